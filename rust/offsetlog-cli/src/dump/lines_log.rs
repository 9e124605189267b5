//! Batches and records of a `.log` or `.checkpoint` file as JSON lines.
//!
//! A batch with a wrong checksum is shown with its header, but without its records. Reading continues behind a batch that is damaged
//! inside, and ends if the next one cannot be found.

use super::kafka_decode::unfold_members;
use super::lines_run::{Kind, Run, unreadable};
use super::log_file::LogFile;
use crate::args::Decoder;
use crate::failure::Failure;
use crate::json::{Shown, Tree};
use offsetlog::Limits;
use offsetlog::disk::{Disk as _, RealDisk};
use offsetlog::format::batch::FRAME_BYTES;
use offsetlog::format::internal_topic::{CoordinatorRecord, MetadataRecord, decode_control};
use offsetlog::format::{
    BatchHeader, Codec, ControlRecord, ControlType, Fault, FileName, FormatError, Frame, Part,
    RecordView, SegmentFile, TimestampType,
};
use serde::Serialize;
use serde_json::json;
use std::path::Path;

#[derive(Serialize)]
struct BatchLine {
    position: u64,
    size_bytes: usize,
    base_offset: Option<i64>,
    last_offset: i64,
    record_count: Option<i32>,
    magic: i8,
    codec: Option<&'static str>,
    timestamp_type: Option<&'static str>,
    base_timestamp: Option<i64>,
    max_timestamp: Option<i64>,
    delete_horizon: Option<i64>,
    leader_epoch: Option<i32>,
    producer_id: Option<i64>,
    producer_epoch: Option<i16>,
    base_sequence: Option<i32>,
    last_sequence: Option<i32>,
    is_transactional: bool,
    is_control: bool,
    crc: u32,
    crc_valid: bool,
}

impl BatchLine {
    fn of(header: &BatchHeader, position: u64, crc_valid: bool) -> Self {
        let has_horizon = header.magic == 2 && header.attributes.has_delete_horizon();
        let has_producer = header.producer_id >= 0;
        let has_sequence = header.base_sequence >= 0;
        Self {
            position,
            size_bytes: header.size_bytes,
            base_offset: header.base_offset,
            last_offset: header.last_offset,
            record_count: Some(header.record_count).filter(|count| *count >= 0),
            magic: header.magic,
            codec: header.codec().ok().map(Codec::name),
            timestamp_type: timestamp_type(header.timestamp_type()),
            base_timestamp: (header.magic == 2 && !has_horizon).then_some(header.base_timestamp),
            max_timestamp: (header.magic > 0).then_some(header.max_timestamp),
            delete_horizon: has_horizon.then_some(header.base_timestamp),
            leader_epoch: Some(header.leader_epoch).filter(|epoch| *epoch >= 0),
            producer_id: has_producer.then_some(header.producer_id),
            producer_epoch: has_producer.then_some(header.producer_epoch),
            base_sequence: has_sequence.then_some(header.base_sequence),
            last_sequence: has_sequence.then(|| header.last_sequence()),
            is_transactional: header.attributes.is_transactional(),
            is_control: header.attributes.is_control(),
            crc: header.crc,
            crc_valid,
        }
    }
}

const fn timestamp_type(kind: TimestampType) -> Option<&'static str> {
    match kind {
        TimestampType::None => None,
        TimestampType::Create => Some("create"),
        TimestampType::LogAppend => Some("logappend"),
    }
}

#[derive(Serialize)]
struct RecordLine<'a> {
    offset: i64,
    timestamp: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<i32>,
    key: Shown<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_error: Option<String>,
    value: Shown<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_error: Option<String>,
    headers: Vec<HeaderPart<'a>>,
    /// What a control record says.
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<serde_json::Value>,
    /// What a record of an internal topic says.
    #[serde(skip_serializing_if = "Option::is_none")]
    decoded: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decode_error: Option<String>,
}

#[derive(Serialize)]
struct HeaderPart<'a> {
    key: Shown<'a>,
    value: Shown<'a>,
}

#[derive(Serialize)]
struct Tail {
    position: u64,
    bytes: u64,
    reason: &'static str,
}

/// Where the walk through a file stands.
struct Walk {
    log: LogFile,
    position: u64,
    end: u64,
    /// Lowest offset that the next batch may have.
    minimum: i64,
    decoder: Option<Decoder>,
    /// Whether an unfinished last write may stand at the end.
    may_grow: bool,
}

pub(super) fn dump(
    run: &mut Run<'_, '_>,
    path: &Path,
    kind: Kind,
    base: i64,
) -> Result<(), Failure> {
    let log = LogFile::open(path).map_err(unreadable)?;
    let limit = run
        .args
        .max_bytes
        .and_then(|limit| u64::try_from(limit).ok());
    let mut walk = Walk {
        end: log.size.min(limit.unwrap_or(u64::MAX)),
        log,
        position: 0,
        minimum: if kind == Kind::Log { base } else { 0 },
        decoder: run
            .record_decoder()
            .or((kind == Kind::MetadataSnapshot).then_some(Decoder::Metadata)),
        may_grow: kind == Kind::Log && is_last(path, base),
    };
    while walk.position < walk.end {
        run.look()?;
        let front = walk
            .log
            .bytes(walk.position, FRAME_BYTES)
            .map_err(unreadable)?;
        let frame = match Frame::parse(front) {
            Ok(frame) => frame,
            Err(error) => return walk.end_at(run, error, limit.is_some()),
        };
        if walk.position + frame.size_bytes as u64 > walk.end {
            let error = FormatError::new(
                Part::BatchHeader,
                0,
                Fault::Truncated {
                    needed: frame.size_bytes,
                    available: (walk.end - walk.position) as usize,
                },
            );
            return walk.end_at(run, error, limit.is_some());
        }
        walk.batch(run, &frame)?;
        walk.position += frame.size_bytes as u64;
    }
    Ok(())
}

/// Whether no segment follows this one in its directory.
fn is_last(path: &Path, base: i64) -> bool {
    let entries = path.canonicalize().and_then(|path| match path.parent() {
        Some(directory) => RealDisk.list(directory),
        None => Ok(Vec::new()),
    });
    entries.is_ok_and(|entries| {
        !entries.iter().any(|entry| {
            matches!(FileName::classify(&entry.name), FileName::Segment(segment)
                if segment.file == SegmentFile::Log && segment.offset > base && entry.name.ends_with("log"))
        })
    })
}

impl Walk {
    /// No whole batch begins here: a tail that is not written yet, or damage.
    fn end_at(
        &mut self,
        run: &mut Run<'_, '_>,
        error: FormatError,
        is_limited: bool,
    ) -> Result<(), Failure> {
        let is_cut = matches!(error.fault, Fault::Truncated { .. });
        if is_cut && is_limited {
            return Ok(());
        }
        let bytes = self.end - self.position;
        let zeros = !is_cut && self.only_zeros()?;
        if self.may_grow && (is_cut || zeros) {
            let reason = if zeros {
                "zeros, as in a file that was made longer in advance or was not written before a crash"
            } else {
                "the last batch is not wholly there"
            };
            return run.line(
                "tail",
                &Tail {
                    position: self.position,
                    bytes,
                    reason,
                },
            );
        }
        run.fault(self.position, None, error)
    }

    fn only_zeros(&mut self) -> Result<bool, Failure> {
        const STEP: usize = 64 << 10;
        let mut position = self.position;
        while position < self.end {
            let bytes = self.log.bytes(position, STEP).map_err(unreadable)?;
            if bytes.is_empty() || bytes.iter().any(|byte| *byte != 0) {
                return Ok(bytes.is_empty());
            }
            position += bytes.len() as u64;
        }
        Ok(true)
    }

    fn batch(&mut self, run: &mut Run<'_, '_>, frame: &Frame) -> Result<(), Failure> {
        let (position, decoder) = (self.position, self.decoder);
        let limits = Limits::default();
        if frame.size_bytes as u64 > limits.max_batch_bytes {
            let error = offsetlog::ErrorKind::Limit {
                name: offsetlog::LimitName::MaxBatchBytes,
                limit: limits.max_batch_bytes,
                seen: frame.size_bytes as u64,
            };
            return run.damage(
                Some(position),
                Some(frame.offset),
                &offsetlog::Error::new(error),
            );
        }
        let bytes = self
            .log
            .bytes(position, frame.size_bytes)
            .map_err(unreadable)?;
        let header = match BatchHeader::parse(bytes) {
            Ok(header) => header,
            Err(error) => return run.fault(position, Some(frame.offset), error),
        };
        let crc = header.check_crc(bytes);
        run.line("batch", &BatchLine::of(&header, position, crc.is_ok()))?;
        let first = header.base_offset.unwrap_or(header.last_offset);
        if first < self.minimum {
            let order = Fault::OffsetOrder {
                found: first,
                minimum: self.minimum,
                maximum: i64::MAX,
            };
            run.fault(
                position,
                Some(first),
                FormatError::new(Part::BatchHeader, 0, order),
            )?;
        }
        // From here on, so that one jump is reported once.
        self.minimum = header.last_offset.saturating_add(1);
        if let Err(error) = crc {
            return run.fault(position, Some(first), error);
        }
        if run.args.batches {
            return Ok(());
        }
        let mut batches = std::mem::take(&mut run.decoder);
        let mut next = first;
        let outcome = (|| {
            let mut records = batches.records(bytes, limits.max_decompressed_bytes)?;
            while let Some(record) = records.next_record()? {
                next = record.offset.saturating_add(1);
                if let Err(failure) = print(run, &header, &record, decoder) {
                    return Ok(Err(failure));
                }
            }
            Ok(Ok(()))
        })();
        run.decoder = batches;
        match outcome {
            Ok(printed) => printed,
            Err(error) => run.damage(Some(position), Some(next), &error),
        }
    }
}

fn print(
    run: &mut Run<'_, '_>,
    header: &BatchHeader,
    record: &RecordView<'_>,
    decoder: Option<Decoder>,
) -> Result<(), Failure> {
    let (key, key_error) = Shown::encoded(record.key, run.args.key_format);
    let (value, value_error) = Shown::encoded(record.value, run.args.value_format);
    let is_control = header.attributes.is_control() && header.magic == 2;
    let (said, decode_error) = if is_control {
        split(control(record))
    } else {
        split(decoder.map_or(Ok(None), |decoder| decoded(decoder, record)))
    };
    let (control, contents) = if is_control {
        (said, None)
    } else {
        (None, said)
    };
    let delta = header
        .base_offset
        .map(|base| record.offset.wrapping_sub(base) as i32);
    let line = RecordLine {
        offset: record.offset,
        timestamp: (record.timestamp_type != TimestampType::None).then_some(record.timestamp),
        sequence: delta
            .filter(|_| header.base_sequence >= 0)
            .map(|delta| offsetlog::format::batch::sequence_after(header.base_sequence, delta)),
        key,
        key_error,
        value,
        value_error,
        headers: record
            .headers
            .iter()
            .map(|(key, value)| HeaderPart {
                key: Shown::plain(Some(key)),
                value: Shown::plain(value),
            })
            .collect(),
        control,
        decoded: contents,
        decode_error,
    };
    run.line("record", &line)
}

type Said = Option<serde_json::Value>;

fn split(said: Result<Said, FormatError>) -> (Said, Option<String>) {
    match said {
        Ok(said) => (said, None),
        Err(error) => (None, Some(error.to_string())),
    }
}

fn control(record: &RecordView<'_>) -> Result<Said, FormatError> {
    let kind = ControlType::parse_key(record.key)?;
    let name = kind.name();
    if let Some(fields) = decode_control(kind, record.value.unwrap_or(&[])) {
        let fields = fields?;
        return Ok(Some(json!({"type": name, "value": Tree(&fields)})));
    }
    Ok(Some(
        match ControlRecord::parse(record.key, record.value)? {
            ControlRecord::Abort { coordinator_epoch }
            | ControlRecord::Commit { coordinator_epoch } => {
                json!({"type": name, "coordinator_epoch": coordinator_epoch})
            }
            _ => json!({"type": name, "number": kind.number()}),
        },
    ))
}

fn decoded(decoder: Decoder, record: &RecordView<'_>) -> Result<Said, FormatError> {
    Ok(match decoder {
        Decoder::Metadata => {
            let record = MetadataRecord::decode(record.value.unwrap_or(&[]))?;
            let (name, version) = (record.message.name, record.version);
            Some(json!({"type": name, "version": version, "value": Tree(&record.fields)}))
        }
        Decoder::Coordinator(topic) => {
            let Some(key) = record.key else {
                return Ok(None);
            };
            match topic.decode(key, record.value)? {
                CoordinatorRecord::Unknown { number } => Some(json!({"type": number})),
                CoordinatorRecord::Known(known) => {
                    let name = known.record_type.name();
                    let (version, value) = known.value.unzip();
                    let value = value.map(|mut fields| {
                        unfold_members(&mut fields);
                        fields
                    });
                    let value = value.as_ref().map(Tree);
                    Some(
                        json!({"type": name, "key": Tree(&known.key), "version": version, "value": value}),
                    )
                }
            }
        }
    })
}
