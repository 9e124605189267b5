//! Reads a cluster's metadata from `__cluster_metadata` (FORMAT.md «Internal topics»): the newest snapshot first, then the records after
//! it, in order.
//!
//! Source: Kafka's `MetadataImage` and the deltas that it is made of. Tokens, controllers and the contents of credentials are not kept.

use super::access::{AccessControlEntry, Accesses, ClientQuota, ScramCredential};
use super::metadata_snapshot::{Snapshot, newest_snapshot};
use super::replay::{LeftOut, each_record, int, long, numbers, optional, structs, text};
use crate::error::Result;
use crate::log::{Log, SetAside};
use crate::step_progress::{DirectoryProgress, Steps};
use offsetlog_format::internal_topic::MetadataRecord;
use offsetlog_format::message::{Struct, Value};
use offsetlog_format::{FormatError, Uuid};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// A cluster's metadata, from its metadata log or, before KRaft, from ZooKeeper. There transaction numbers take the place of offsets.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MetadataImage {
    /// The first offset of the metadata log that is not in it.
    pub end_offset: i64,
    /// The offset, exclusive, up to which it comes from a snapshot, if one was there.
    pub snapshot_end_offset: Option<i64>,
    /// Whether it begins at the beginning and ends in a whole batch; otherwise offsets are in no snapshot and no longer in the log, or half a
    /// batch at the end was some more, or offsets in between are missing, or a file was given that was set aside from the log, and what they
    /// say is missing.
    pub is_complete: bool,
    /// Timestamp of the newest record, in ms since 1970: how old what it says is. Controllers write one twice a second while they run.
    pub newest_timestamp: Option<i64>,
    /// Levels of features that are on, by name; `metadata.version` is one.
    pub features: BTreeMap<String, i32>,
    /// The brokers that are registered, by id.
    pub brokers: Vec<BrokerRegistration>,
    /// The topics, by name and id.
    pub topics: Vec<TopicImage>,
    /// Dynamic settings by type and name of what they are for: `topic`, `broker` (an empty name is the default for all brokers),
    /// `broker-logger`, `client-metrics` or `group`.
    pub configs: BTreeMap<(String, String), BTreeMap<String, String>>,
    /// Who may do what.
    pub acls: Vec<AccessControlEntry>,
    /// Limits of users, clients and addresses.
    pub client_quotas: Vec<ClientQuota>,
    /// Who has a password, not which.
    pub scram_credentials: Vec<ScramCredential>,
    /// Producer ids below it were given out, as far as is known.
    pub next_producer_id: Option<i64>,
    /// Topics whose removal is in the log after the snapshot, in that order; the snapshot has no earlier ones.
    pub removed_topics: Vec<(String, Uuid)>,
    /// Topics that the cluster is about to delete, by name: of ZooKeeper's data, those in `/admin/delete_topics`.
    pub deleting_topics: BTreeSet<String>,
    /// Whether it is of ZooKeeper's data: then features are not in it, nor settings that are encrypted.
    pub is_of_zookeeper: bool,
    /// What was left out, and why; of ZooKeeper's data also what is about to change.
    pub warnings: Vec<String>,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicImage {
    /// Its name. Here and below, text that is not UTF-8 has replacement characters.
    pub name: String,
    /// Its id; zeros where brokers with ZooKeeper gave none, before 2.8.
    pub topic_id: Uuid,
    /// Its partitions, by number.
    pub partitions: BTreeMap<i32, PartitionRegistration>,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionRegistration {
    /// Ids of the brokers that have it, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Those of them that are in sync.
    pub isr: Vec<i32>,
    /// The one that leads it; `None` while none does.
    pub leader: Option<i32>,
    /// Counts its leaders.
    pub leader_epoch: i32,
    /// Counts the changes.
    pub partition_epoch: i32,
    /// Replicas that a reassignment adds.
    pub adding_replicas: Vec<i32>,
    /// Replicas that a reassignment removes.
    pub removing_replicas: Vec<i32>,
    /// Replicas that are not in sync and may lead all the same.
    pub elr: Vec<i32>,
    /// Those of which that was known last.
    pub last_known_elr: Vec<i32>,
    /// For each replica the `directory.id` of its log dir; zeros are a dir that is not known, with a 1 at their end one that is not
    /// assigned, with a 2 one that is lost.
    pub directories: Vec<Uuid>,
}

/// A broker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BrokerRegistration {
    /// Its `node.id`.
    pub id: i32,
    /// The offset of its registration, in ZooKeeper the transaction.
    pub epoch: i64,
    /// Its `broker.rack`.
    pub rack: Option<String>,
    /// Whether it may not lead.
    pub fenced: bool,
    /// Whether it is stopping.
    pub in_controlled_shutdown: bool,
    /// Listener, host and port of each endpoint.
    pub endpoints: Vec<(String, String, i32)>,
    /// The `directory.id` of each of its log dirs.
    pub log_dirs: Vec<Uuid>,
}

impl MetadataImage {
    /// The topic of this id.
    #[must_use]
    pub fn topic(&self, topic_id: Uuid) -> Option<&TopicImage> {
        self.topics.iter().find(|topic| topic.topic_id == topic_id)
    }
}

/// Reads the metadata log `log`: its newest snapshot, then the log after it. Records of a metadata transaction count once it has ended.
/// Records that the quorum has not committed yet are not distinguished. Holds the whole metadata in memory.
///
/// # Errors
/// As a scan; `Corrupt` kinds for a snapshot that is damaged or has no end and for a record that is not a metadata record,
/// `UnsupportedVersion` for one newer than Kafka 4.3's. Records of unknown types, and changes to things that do not exist, are left out
/// with a warning.
pub(crate) fn read_metadata(log: &Log) -> Result<MetadataImage> {
    read_metadata_told(log, &mut Steps::new(&DirectoryProgress::default()))
}

/// The same. The snapshot is a step, and the log behind it.
///
/// # Errors
/// Those of the progress too.
pub(crate) fn read_metadata_told(log: &Log, steps: &mut Steps<'_, Path>) -> Result<MetadataImage> {
    match read_once(log, steps) {
        // A snapshot that a controller has just replaced.
        Err(error) if error.is_missing_file() => read_once(log, steps),
        read => read,
    }
}

fn read_once(log: &Log, steps: &mut Steps<'_, Path>) -> Result<MetadataImage> {
    let name = format!("{}-{}", log.topic(), log.partition());
    let mut replay = Replay::default();
    let mut warnings = Vec::new();
    let mut newest = None;
    let options = log.options();
    let snapshot = newest_snapshot(options.disk.as_ref(), log.path())?;
    if let Some(Snapshot { path, .. }) = &snapshot {
        steps.add(1);
        steps.at(path)?;
        super::metadata_snapshot::each_record(path, options, |value, offset, timestamp| {
            newest = newest.max(Some(timestamp));
            replay.take(value, offset)
        })?;
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        warnings.extend(replay.warnings(&format!("{name}, {file}")));
        replay.left_out = LeftOut::default();
        replay.image.removed_topics.clear();
    }
    let held = snapshot.map(|snapshot| snapshot.end_offset);
    let (first, end) = (log.log_start_offset()?, log.log_end_offset()?);
    let torn = log.torn_tail()?.filter(|_| !log.has_running_owner());
    let is_torn = torn.is_some();
    warnings.extend(
        torn.map(|torn| format!("{name}: {torn}: what they said, and all behind them, is missing")),
    );
    let start = held.unwrap_or(0);
    let is_part = SetAside::of(log.path()).is_some();
    if is_part {
        let file = log.path().file_name().unwrap_or_default();
        warnings.push(format!(
            "{name}: {} was set aside and is read by itself: what the rest of the log and its snapshots say is missing",
            file.to_string_lossy()
        ));
    } else if start < first {
        warnings.push(format!(
            "{name}: offsets {start} to {} are in no snapshot and no longer in the log: what they say is missing",
            first - 1
        ));
    }
    let mut gaps = Gaps::from(start.max(first));
    if start.max(first) < end {
        steps.add(1);
        steps.at(log.path())?;
        each_record(log, Some(start.max(first)), |header, record| {
            newest = newest.max(Some(header.max_timestamp));
            gaps.pass(record.offset);
            if header.attributes.is_control() {
                return Ok(());
            }
            replay.take(record.value.unwrap_or_default(), record.offset)
        })?;
    }
    warnings.extend(replay.warnings(&name));
    let gap = gaps.told().filter(|_| !is_part);
    let has_gap = gap.is_some();
    warnings
        .extend(gap.map(|gap| format!("{name}: {gap} not in the log: what was there is missing")));
    let mut image = replay.finish();
    image.end_offset = end.max(start);
    image.snapshot_end_offset = held;
    image.is_complete = start >= first && !is_torn && !is_part && !has_gap;
    image.newest_timestamp = newest.filter(|&timestamp| timestamp >= 0);
    image.warnings = warnings;
    Ok(image)
}

/// Offsets that no record has: the metadata log is never compacted, so they are lost, as behind damage that was salvaged.
struct Gaps {
    next: i64,
    first: Option<(i64, i64)>,
    offsets: i64,
}

impl Gaps {
    const fn from(next: i64) -> Self {
        Self {
            next,
            first: None,
            offsets: 0,
        }
    }

    fn pass(&mut self, offset: i64) {
        if offset > self.next {
            self.first.get_or_insert((self.next, offset - 1));
            self.offsets = self.offsets.saturating_add(offset - self.next);
        }
        self.next = offset.saturating_add(1);
    }

    fn told(&self) -> Option<String> {
        let (first, last) = self.first?;
        let others = self.offsets - (last - first + 1);
        Some(match others {
            0 if first == last => format!("offset {first} is"),
            0 => format!("offsets {first} to {last} are"),
            _ => format!("offsets {first} to {last}, and {others} more behind them, are"),
        })
    }
}

/// The image as records make it.
#[derive(Default)]
struct Replay {
    image: MetadataImage,
    brokers: BTreeMap<i32, BrokerRegistration>,
    topics: HashMap<Uuid, TopicImage>,
    ids: HashMap<String, Uuid>,
    accesses: Accesses,
    open: Option<OpenTransaction>,
    left_out: LeftOut,
}

/// A metadata transaction that has not ended yet.
struct OpenTransaction {
    /// Offset of the record that begins it.
    begin: i64,
    /// Its records, with their offsets.
    records: Vec<(i64, Vec<u8>)>,
}

const NOT_OPEN: &str = "they end a metadata transaction that is not open";
const NOT_THERE: &str = "what they change is not there";

impl Replay {
    fn take(&mut self, value: &[u8], offset: i64) -> Result<(), FormatError> {
        if let Some(number) = MetadataRecord::unknown_type(value) {
            let what = || format!("type {number}");
            self.left_out.add("their type is not known", offset, what);
            return Ok(());
        }
        let record = MetadataRecord::decode(value)?;
        match record.message.name {
            "BeginTransactionRecord" => {
                self.drop_open();
                self.open = Some(OpenTransaction {
                    begin: offset,
                    records: Vec::new(),
                });
            }
            "AbortTransactionRecord" | "EndTransactionRecord" => {
                let name = record.message.name;
                match self.open.take() {
                    None => self.left_out.add(NOT_OPEN, offset, || name.to_owned()),
                    Some(_) if name == "AbortTransactionRecord" => {}
                    Some(ended) => {
                        for (offset, value) in ended.records {
                            self.apply(&MetadataRecord::decode(&value)?, offset);
                        }
                    }
                }
            }
            _ => match &mut self.open {
                Some(open) => open.records.push((offset, value.to_vec())),
                None => self.apply(&record, offset),
            },
        }
        Ok(())
    }

    /// Tells of the records of a transaction that has not ended: a broker does not see them either.
    fn drop_open(&mut self) {
        if let Some(OpenTransaction { begin, records }) = self.open.take() {
            for (offset, _) in records {
                let what = || format!("of the one that begins at offset {begin}");
                let why = "their metadata transaction has no end";
                self.left_out.add(why, offset, what);
            }
        }
    }

    fn warnings(&mut self, name: &str) -> Vec<String> {
        self.drop_open();
        self.left_out.warnings(name).collect()
    }

    fn finish(self) -> MetadataImage {
        let mut topics: Vec<TopicImage> = self.topics.into_values().collect();
        topics.sort_by(|one, other| {
            let ids = || one.topic_id.to_bytes().cmp(&other.topic_id.to_bytes());
            one.name.cmp(&other.name).then_with(ids)
        });
        let mut image = MetadataImage {
            topics,
            brokers: self.brokers.into_values().collect(),
            ..self.image
        };
        self.accesses.finish(&mut image);
        image
    }

    fn apply(&mut self, record: &MetadataRecord<'_>, offset: i64) {
        let name = record.message.name;
        let fields = &record.fields;
        let applied = match name {
            "TopicRecord" => {
                self.topic(fields);
                Some(())
            }
            "RemoveTopicRecord" => self.remove_topic(fields),
            "PartitionRecord" => self.partition(fields),
            "PartitionChangeRecord" => self.change_partition(fields),
            "ClearElrRecord" => self.clear_elr(fields),
            "ConfigRecord" => {
                self.config(fields);
                Some(())
            }
            "FeatureLevelRecord" => {
                self.feature(fields);
                Some(())
            }
            "RegisterBrokerRecord" => {
                self.register_broker(fields);
                Some(())
            }
            "UnregisterBrokerRecord" => {
                let is_here = self.broker(fields, "brokerId", "brokerEpoch").is_some();
                is_here.then(|| drop(self.brokers.remove(&int(fields, "brokerId"))))
            }
            "FenceBrokerRecord" => {
                let broker = self.broker(fields, "id", "epoch");
                broker.map(|broker| broker.fenced = true)
            }
            "UnfenceBrokerRecord" => {
                let broker = self.broker(fields, "id", "epoch");
                broker.map(|broker| broker.fenced = false)
            }
            "BrokerRegistrationChangeRecord" => self.change_broker(fields),
            "ProducerIdsRecord" => {
                self.image.next_producer_id = long(fields, "nextProducerId");
                Some(())
            }
            _ => self.accesses.apply(name, fields),
        };
        if applied.is_none() {
            self.left_out.add(NOT_THERE, offset, || name.to_owned());
        }
    }

    fn topic(&mut self, fields: &Struct<'_>) {
        let (name, topic_id) = (text(fields, "name"), uuid(fields, "topicId"));
        self.ids.insert(name.clone(), topic_id);
        let topic = TopicImage {
            name,
            topic_id,
            partitions: BTreeMap::new(),
        };
        self.topics.insert(topic_id, topic);
    }

    /// Its settings go with it.
    fn remove_topic(&mut self, fields: &Struct<'_>) -> Option<()> {
        let topic = self.topics.remove(&uuid(fields, "topicId"))?;
        if self.ids.get(&topic.name) == Some(&topic.topic_id) {
            self.ids.remove(&topic.name);
        }
        let resource = ("topic".to_owned(), topic.name);
        self.image.configs.remove(&resource);
        self.image.removed_topics.push((resource.1, topic.topic_id));
        Some(())
    }

    fn partition(&mut self, fields: &Struct<'_>) -> Option<()> {
        let topic = self.topics.get_mut(&uuid(fields, "topicId"))?;
        let some = |name| numbers(fields, name).unwrap_or_default();
        let replicas = some("replicas");
        let partition = PartitionRegistration {
            directories: directories(uuids(fields, "directories"), replicas.len()),
            replicas,
            isr: some("isr"),
            leader: leader(int(fields, "leader")),
            leader_epoch: int(fields, "leaderEpoch"),
            partition_epoch: int(fields, "partitionEpoch"),
            adding_replicas: some("addingReplicas"),
            removing_replicas: some("removingReplicas"),
            elr: some("eligibleLeaderReplicas"),
            last_known_elr: some("lastKnownElr"),
        };
        topic
            .partitions
            .insert(int(fields, "partitionId"), partition);
        Some(())
    }

    /// Fields that the record does not have stay as they are; a leader in the record begins an epoch, even if it was the leader before.
    fn change_partition(&mut self, fields: &Struct<'_>) -> Option<()> {
        let topic = self.topics.get_mut(&uuid(fields, "topicId"))?;
        let partition = topic.partitions.get_mut(&int(fields, "partitionId"))?;
        let change = |name, place: &mut Vec<i32>| {
            if let Some(numbers) = numbers(fields, name) {
                *place = numbers;
            }
        };
        change("replicas", &mut partition.replicas);
        change("isr", &mut partition.isr);
        change("addingReplicas", &mut partition.adding_replicas);
        change("removingReplicas", &mut partition.removing_replicas);
        change("eligibleLeaderReplicas", &mut partition.elr);
        change("lastKnownElr", &mut partition.last_known_elr);
        let named = uuids(fields, "directories");
        let named = named.unwrap_or_else(|| std::mem::take(&mut partition.directories));
        partition.directories = directories(Some(named), partition.replicas.len());
        if fields.get("leader").is_some() {
            partition.leader = leader(int(fields, "leader"));
            partition.leader_epoch = partition.leader_epoch.saturating_add(1);
        }
        partition.partition_epoch = partition.partition_epoch.saturating_add(1);
        Some(())
    }

    /// Of one topic, or without a name of all.
    fn clear_elr(&mut self, fields: &Struct<'_>) -> Option<()> {
        let clear = |topic: &mut TopicImage| {
            for partition in topic.partitions.values_mut() {
                if partition.elr.is_empty() && partition.last_known_elr.is_empty() {
                    continue;
                }
                partition.elr.clear();
                partition.last_known_elr.clear();
                partition.partition_epoch = partition.partition_epoch.saturating_add(1);
            }
        };
        let name = text(fields, "topicName");
        if name.is_empty() {
            self.topics.values_mut().for_each(clear);
            return Some(());
        }
        self.topics.get_mut(self.ids.get(&name)?).map(clear)
    }

    fn config(&mut self, fields: &Struct<'_>) {
        let resource_type = match int(fields, "resourceType") {
            2 => "topic".to_owned(),
            4 => "broker".to_owned(),
            8 => "broker-logger".to_owned(),
            16 => "client-metrics".to_owned(),
            32 => "group".to_owned(),
            other => format!("unknown({other})"),
        };
        let resource = (resource_type, text(fields, "resourceName"));
        let name = text(fields, "name");
        if let Some(value) = optional(fields, "value") {
            let configs = self.image.configs.entry(resource).or_default();
            configs.insert(name, value);
        } else if let Some(configs) = self.image.configs.get_mut(&resource) {
            configs.remove(&name);
            if configs.is_empty() {
                self.image.configs.remove(&resource);
            }
        }
    }

    /// Level 0 turns a feature off.
    fn feature(&mut self, fields: &Struct<'_>) {
        let (name, level) = (text(fields, "name"), int(fields, "featureLevel"));
        if level == 0 {
            self.image.features.remove(&name);
        } else {
            self.image.features.insert(name, level);
        }
    }

    fn register_broker(&mut self, fields: &Struct<'_>) {
        let endpoints = structs(fields, "endPoints").map(|each| {
            let (name, host) = (text(each, "name"), text(each, "host"));
            (name, host, int(each, "port"))
        });
        let id = int(fields, "brokerId");
        let broker = BrokerRegistration {
            id,
            epoch: long(fields, "brokerEpoch").unwrap_or(-1),
            rack: optional(fields, "rack"),
            fenced: is_set(fields, "fenced"),
            in_controlled_shutdown: is_set(fields, "inControlledShutdown"),
            endpoints: endpoints.collect(),
            log_dirs: uuids(fields, "logDirs").unwrap_or_default(),
        };
        self.brokers.insert(id, broker);
    }

    fn change_broker(&mut self, fields: &Struct<'_>) -> Option<()> {
        let broker = self.broker(fields, "brokerId", "brokerEpoch")?;
        match long(fields, "fenced") {
            Some(1) => broker.fenced = true,
            Some(-1) => broker.fenced = false,
            _ => {}
        }
        if long(fields, "inControlledShutdown") == Some(1) {
            broker.in_controlled_shutdown = true;
        }
        if let Some(log_dirs) = uuids(fields, "logDirs") {
            broker.log_dirs = log_dirs;
        }
        Some(())
    }

    /// The broker of this id, unless it has registered again since.
    fn broker(
        &mut self,
        fields: &Struct<'_>,
        id: &str,
        epoch: &str,
    ) -> Option<&mut BrokerRegistration> {
        let epoch = long(fields, epoch);
        let broker = self.brokers.get_mut(&int(fields, id));
        broker.filter(|broker| Some(broker.epoch) == epoch)
    }
}

/// Where records say nothing of log dirs, they are not known.
fn directories(named: Option<Vec<Uuid>>, replicas: usize) -> Vec<Uuid> {
    let named = named.filter(|named| !named.is_empty());
    named.unwrap_or_else(|| vec![Uuid::default(); replicas])
}

fn leader(id: i32) -> Option<i32> {
    Some(id).filter(|id| *id >= 0)
}

fn is_set(fields: &Struct<'_>, name: &str) -> bool {
    matches!(fields.get(name), Some(Value::Bool(true)))
}

fn uuid(fields: &Struct<'_>, name: &str) -> Uuid {
    let found = fields.get(name).and_then(Value::as_uuid);
    found.unwrap_or_default()
}

fn uuids(fields: &Struct<'_>, name: &str) -> Option<Vec<Uuid>> {
    let elements = fields.get(name)?.as_array()?;
    Some(elements.iter().filter_map(Value::as_uuid).collect())
}
