//! `bootstrap.checkpoint`: the records that the first controller of a new cluster appends to its empty metadata log. What stands in
//! it exists before the first start.
//!
//! Source: Kafka's `BootstrapDirectory` and `ActivationRecordsGenerator`; FORMAT.md «Internal topics».

use crate::places::is_there;
use offsetlog::disk::{Access, IoCall, read_whole, write_whole};
use offsetlog::format::builder::{BatchFields, NewRecord, Uncompressed, write_batch};
use offsetlog::format::control::{ControlRecord, ControlType};
use offsetlog::format::internal_topic::MetadataRecord;
use offsetlog::format::message::Value;
use offsetlog::format::metadata_record::TOPIC_RESOURCE;
use offsetlog::format::name::{FileName, MetadataSnapshotState};
use offsetlog::format::{BatchHeader, Fault, FormatError, Part, Uuid};
use offsetlog::{BatchDecoder, Error, OpenOptions, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file's name.
pub(crate) const BOOTSTRAP_CHECKPOINT: &str = "bootstrap.checkpoint";

/// The snapshot before a metadata log's first record.
const FIRST_SNAPSHOT: &str = "00000000000000000000-0000000000.checkpoint";

/// More than any formatting writes, and room for a hundred thousand partitions.
const BYTES_MAX: u64 = 64 << 20;

/// Records of a batch. Kafka reads batches of up to 8 MiB from the file; a setting's value is at most 32 KiB.
const BATCH_RECORDS: usize = 200;

/// The `metadata.version` since which partitions know the log dirs of their replicas: 3.7-IV2.
const WITH_DIRECTORIES: i32 = 17;

/// A file, read.
#[derive(Debug)]
pub(crate) struct Bootstrap {
    pub(crate) path: PathBuf,
    bytes: Vec<u8>,
    /// Where the footer's batch begins.
    footer: usize,
    /// The footer's offset: the number of records before it.
    end_offset: i64,
    pub(crate) metadata_version: i32,
    /// Topics in it, with their ids.
    pub(crate) topics: BTreeMap<String, Uuid>,
    /// Partitions in it, by their topic's id.
    pub(crate) partitions: BTreeMap<([u8; 16], i32), KnownPartition>,
    /// Settings of topics in it, by the topic's name.
    configs: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) next_producer_id: Option<i64>,
}

/// What a file says of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownPartition {
    /// The brokers that have it; the first one leads.
    pub(crate) nodes: Vec<i32>,
    /// For each of them the id of its log dir; empty where the file knows none.
    pub(crate) directories: Vec<Uuid>,
    pub(crate) leader_epoch: i32,
}

impl Bootstrap {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// `Io`; corruption with the position; a `metadata.version` that is not there.
    pub(crate) fn read(path: PathBuf, options: &OpenOptions) -> Result<Self> {
        let bytes = read_whole(options.disk.as_ref(), &path, BYTES_MAX)
            .map_err(|error| Error::io(IoCall::Read, &path, error))?;
        let mut found = Self {
            footer: 0,
            end_offset: 0,
            metadata_version: 0,
            topics: BTreeMap::new(),
            partitions: BTreeMap::new(),
            configs: BTreeMap::new(),
            next_producer_id: None,
            path,
            bytes,
        };
        let bytes = std::mem::take(&mut found.bytes);
        let (mut at, mut is_whole) = (0, false);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            is_whole = found
                .take_batch(rest, at, options.limits.max_decompressed_bytes)
                .map_err(|error| error.at_path(&found.path).at_position(at as u64))?;
            at += BatchHeader::parse(rest)?.size_bytes;
        }
        if !is_whole {
            return Err(no_footer(&found.path, at));
        }
        if found.metadata_version == 0 {
            let reason = "it says no metadata.version; format the log dir with kafka-storage.sh";
            return Err(Error::log_dir(&found.path, reason));
        }
        found.bytes = bytes;
        Ok(found)
    }

    /// Whether a partition's record names the log dirs of its replicas.
    pub(crate) const fn knows_directories(&self) -> bool {
        self.metadata_version >= WITH_DIRECTORIES
    }

    /// The settings that a topic has in it.
    pub(crate) fn configs_of(&self, topic: &str) -> BTreeMap<String, String> {
        self.configs.get(topic).cloned().unwrap_or_default()
    }

    /// Takes what a batch says. Returns whether it is the footer.
    fn take_batch(&mut self, bytes: &[u8], position: usize, limit: u64) -> Result<bool> {
        let header = BatchHeader::parse(bytes)?;
        let batch = whole(bytes, &header)?;
        header.check_crc(batch)?;
        let mut decoder = BatchDecoder::default();
        let mut records = decoder.records(batch, limit)?;
        let mut is_footer = false;
        while let Some(record) = records.next_record()? {
            if header.attributes.is_control() {
                is_footer = ControlType::parse_key(record.key)? == ControlType::SnapshotFooter;
            } else {
                self.take_record(record.value.unwrap_or_default())?;
            }
        }
        if is_footer {
            self.footer = position;
            self.end_offset = header.base_offset.unwrap_or(header.last_offset);
        }
        Ok(is_footer)
    }

    fn take_record(&mut self, value: &[u8]) -> Result<()> {
        if MetadataRecord::unknown_type(value).is_some() {
            return Ok(());
        }
        let record = MetadataRecord::decode(value)?;
        let text = |name| match record.fields.get(name) {
            Some(value) => {
                String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
            }
            None => String::new(),
        };
        let number = |name| record.fields.get(name).and_then(Value::as_int);
        let uuid = |name| {
            let id = record.fields.get(name).and_then(Value::as_uuid);
            id.unwrap_or_default()
        };
        match record.message.name {
            "FeatureLevelRecord" if text("name") == "metadata.version" => {
                let level = number("featureLevel").unwrap_or_default();
                self.metadata_version = i32::try_from(level).unwrap_or_default();
            }
            "TopicRecord" => {
                self.topics.insert(text("name"), uuid("topicId"));
            }
            "PartitionRecord" => {
                let all = |name| record.fields.get(name).and_then(Value::as_array);
                let nodes = all("replicas").unwrap_or_default().iter();
                let directories = all("directories").unwrap_or_default().iter();
                let partition = number("partitionId").unwrap_or_default();
                let known = KnownPartition {
                    nodes: nodes
                        .filter_map(|node| i32::try_from(node.as_int()?).ok())
                        .collect(),
                    directories: directories.filter_map(Value::as_uuid).collect(),
                    leader_epoch: number("leaderEpoch").unwrap_or_default() as i32,
                };
                // Of several the last one holds, as for a controller.
                self.partitions
                    .insert((uuid("topicId").to_bytes(), partition as i32), known);
            }
            "ConfigRecord" if number("resourceType") == Some(TOPIC_RESOURCE.into()) => {
                let configs = self.configs.entry(text("resourceName")).or_default();
                match record.fields.get("value").and_then(Value::as_bytes) {
                    Some(_) => drop(configs.insert(text("name"), text("value"))),
                    None => drop(configs.remove(&text("name"))),
                }
            }
            // Nothing that formats a log dir writes them: what they would leave of a topic is not followed here.
            name @ ("PartitionChangeRecord" | "RemoveTopicRecord") => {
                let reason = format!(
                    "it has a {name}, which restore does not follow: format the log dir anew"
                );
                return Err(Error::log_dir(&self.path, reason));
            }
            "ProducerIdsRecord" => self.next_producer_id = number("nextProducerId"),
            _ => {}
        }
        Ok(())
    }

    /// Adds records before the footer, and replaces the file: it has all of them or none. The file and its folder are synced.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn add(&self, records: &[Vec<u8>], now: i64, options: &OpenOptions) -> Result<()> {
        let (before, footer) = self.bytes.split_at(self.footer);
        let mut out = before.to_vec();
        let (mut offset, mut scratch) = (self.end_offset, Vec::new());
        for values in records.chunks(BATCH_RECORDS) {
            let new: Vec<NewRecord<'_>> = (offset..)
                .zip(values)
                .map(|(offset, value)| NewRecord {
                    offset,
                    timestamp: now,
                    key: None,
                    value: Some(value),
                    headers: &[],
                })
                .collect();
            let fields = BatchFields {
                base_offset: offset,
                leader_epoch: 0,
                ..BatchFields::default()
            };
            match write_batch(&mut out, &fields, &new, &mut Uncompressed, &mut scratch) {
                Ok(()) => {}
                Err(never) => match never {},
            }
            offset += values.len() as i64;
        }
        // The checksum does not cover the offset.
        out.extend_from_slice(&offset.to_be_bytes());
        out.extend_from_slice(footer.get(8..).unwrap_or_default());
        write_whole(options.disk.as_ref(), &self.path, &out)
            .map_err(|failed| Error::failed_call(&self.path, failed))
    }
}

/// The controllers that a node was formatted with (`--standalone`, `--initial-controllers`), as stored in the snapshot that its metadata
/// log begins with; none if there is no such snapshot.
///
/// # Errors
/// `Io`; corruption with the position.
pub(crate) fn formatted_voters(log_dir: &Path, options: &OpenOptions) -> Result<Vec<i32>> {
    let path = log_dir.join("__cluster_metadata-0").join(FIRST_SNAPSHOT);
    if !is_there(options.disk.as_ref(), &path)? {
        return Ok(Vec::new());
    }
    let disk = options.disk.as_ref();
    let bytes = read_whole(disk, &path, BYTES_MAX)
        .map_err(|error| Error::io(IoCall::Read, &path, error))?;
    let (mut at, mut found, mut is_whole) = (0, Vec::new(), false);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let here = |error: Error| error.at_path(&path).at_position(at as u64);
        let header = BatchHeader::parse(rest).map_err(|error| here(error.into()))?;
        is_whole = take_voters(rest, &header, options, &mut found).map_err(here)?;
        at += header.size_bytes;
    }
    if is_whole {
        Ok(found)
    } else {
        Err(no_footer(&path, at))
    }
}

/// Takes what a batch says of controllers. Returns whether it is the footer.
fn take_voters(
    bytes: &[u8],
    header: &BatchHeader,
    options: &OpenOptions,
    found: &mut Vec<i32>,
) -> Result<bool> {
    let batch = whole(bytes, header)?;
    header.check_crc(batch)?;
    if !header.attributes.is_control() {
        return Ok(false);
    }
    let mut decoder = BatchDecoder::default();
    let mut records = decoder.records(batch, options.limits.max_decompressed_bytes)?;
    let mut is_footer = false;
    while let Some(record) = records.next_record()? {
        match ControlRecord::parse(record.key, record.value)? {
            ControlRecord::KraftVoters(voters) => {
                found.extend(voters.iter().map(|voter| voter.voter_id));
            }
            ControlRecord::SnapshotFooter => is_footer = true,
            _ => {}
        }
    }
    Ok(is_footer)
}

fn no_footer(path: &Path, position: usize) -> Error {
    let rule = Fault::Rule("the file ends without a footer: a part of it is missing");
    Error::new(FormatError::new(Part::ControlRecord, 0, rule))
        .at_path(path)
        .at_position(position as u64)
}

/// The bytes of a batch, which must be there to its end.
fn whole<'b>(bytes: &'b [u8], header: &BatchHeader) -> Result<&'b [u8]> {
    bytes.get(..header.size_bytes).ok_or_else(|| {
        let rule = Fault::Rule("the file ends inside of the batch");
        Error::new(FormatError::new(Part::BatchHeader, 0, rule))
    })
}

/// Whether the metadata log in a log dir has begun: then its controllers do not read `bootstrap.checkpoint` any more. It has records, or
/// a snapshot that a controller wrote or fetched: one that was killed just after it had fetched one has no record yet.
pub(crate) fn has_started(log_dir: &Path, options: &OpenOptions) -> Result<bool> {
    let log = log_dir.join("__cluster_metadata-0");
    let disk = options.disk.as_ref();
    if !is_there(disk, &log)? {
        return Ok(false);
    }
    let entries = disk
        .list(&log)
        .map_err(|error| Error::io(IoCall::List, &log, error))?;
    for entry in entries {
        let path = log.join(&entry.name);
        if is_later_snapshot(&entry.name) {
            return Ok(true);
        }
        if Path::new(&entry.name)
            .extension()
            .is_some_and(|end| end == "log")
        {
            let file = disk
                .open(&path, Access::Read)
                .and_then(|file| file.stat())
                .map_err(|error| Error::io(IoCall::Stat, &path, error))?;
            if file.size > 0 {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether this is a whole snapshot of the metadata, other than the one that a node is formatted with.
fn is_later_snapshot(name: &str) -> bool {
    let is_whole = matches!(
        FileName::classify(name),
        FileName::MetadataSnapshot {
            state: MetadataSnapshotState::Live,
            ..
        }
    );
    is_whole && name != FIRST_SNAPSHOT
}
