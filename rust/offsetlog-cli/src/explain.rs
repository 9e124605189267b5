//! `offsetlog explain`: one look-up step by step.

use crate::args::Explain;
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::json::{Shown, write_json};
use crate::select::Source;
use crate::{EXIT_FINE, EXIT_NOTHING};
use offsetlog::format::{TimestampType, counted};
use offsetlog::{BatchInfo, IndexEntry, Location, Record};
use offsetlog_ops::When;
use serde::Serialize;
use std::io::Write;

/// The whole look-up, as a JSON line.
#[derive(Serialize)]
struct Explanation<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    segment: SegmentStep<'a>,
    index: IndexStep,
    scan: ScanStep,
    batch: Option<BatchStep>,
    record: Option<RecordStep>,
}

/// The segment whose base offset is the last one at or below the offset.
#[derive(Serialize)]
struct SegmentStep<'a> {
    base_offset: i64,
    path: Shown<'a>,
    slot: usize,
    count: usize,
}

/// The entry of its offset index from which the scan started.
#[derive(Debug, Serialize)]
struct IndexStep {
    state: &'static str,
    entries: usize,
    entry: Option<EntryStep>,
    rejected: Option<RejectedStep>,
}

#[derive(Debug, Serialize)]
struct EntryStep {
    slot: usize,
    offset: i64,
    position: u64,
}

impl EntryStep {
    fn of(entry: &IndexEntry) -> Self {
        Self {
            slot: entry.slot,
            offset: entry.offset,
            position: entry.position,
        }
    }
}

#[derive(Debug, Serialize)]
struct RejectedStep {
    #[serde(flatten)]
    entry: EntryStep,
    reason: String,
}

#[derive(Debug, Serialize)]
struct ScanStep {
    batches: u64,
    bytes: u64,
}

/// The batch that holds the offset.
#[derive(Debug, Serialize)]
struct BatchStep {
    base_offset: i64,
    last_offset: i64,
    position: u64,
    size_bytes: u64,
    magic: i8,
    codec: &'static str,
    max_timestamp: i64,
    leader_epoch: i32,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    record_count: Option<i32>,
    is_transactional: bool,
    is_control: bool,
}

impl BatchStep {
    fn of(batch: &BatchInfo) -> Self {
        Self {
            base_offset: batch.base_offset,
            last_offset: batch.last_offset,
            position: batch.position,
            size_bytes: batch.size_bytes,
            magic: batch.magic,
            codec: batch.codec.name(),
            max_timestamp: batch.max_timestamp,
            leader_epoch: batch.leader_epoch,
            producer_id: batch.producer_id,
            producer_epoch: batch.producer_epoch,
            base_sequence: batch.base_sequence,
            record_count: batch.record_count,
            is_transactional: batch.is_transactional,
            is_control: batch.is_control,
        }
    }
}

/// The record; its bytes are what `cat` is for.
#[derive(Debug, Serialize)]
struct RecordStep {
    timestamp: Option<i64>,
    key_bytes: Option<usize>,
    value_bytes: Option<usize>,
    headers: usize,
}

impl RecordStep {
    fn of(record: &Record) -> Self {
        let has_time = record.timestamp_type != TimestampType::None;
        Self {
            timestamp: has_time.then_some(record.timestamp),
            key_bytes: record.key.as_ref().map(Vec::len),
            value_bytes: record.value.as_ref().map(Vec::len),
            headers: record.headers.len(),
        }
    }
}

pub(crate) fn run(args: &Explain, console: &mut Console<'_>) -> Result<i32, Failure> {
    let source = Source::open(&args.selection, console)?;
    let log = source.log(source.only()?, console)?;
    let location = log.locate(args.offset)?;
    let record = log.get(args.offset)?;
    if args.json {
        write_json(&mut console.out, &explanation(&location, record.as_ref()))?;
        console.out.write_all(b"\n")?;
    } else {
        for line in location.to_string().lines() {
            writeln!(console.out, "{}", escaped(line))?;
        }
        writeln!(
            console.out,
            "5. record: {}",
            record_in_words(&location, record.as_ref())
        )?;
    }
    Ok(if record.is_some() {
        EXIT_FINE
    } else {
        EXIT_NOTHING
    })
}

fn explanation<'a>(location: &'a Location, record: Option<&Record>) -> Explanation<'a> {
    Explanation {
        topic: &location.topic,
        partition: location.partition,
        offset: location.offset,
        segment: SegmentStep {
            base_offset: location.segment,
            path: Shown::path(&location.segment_path),
            slot: location.segment_slot,
            count: location.segment_count,
        },
        index: IndexStep {
            state: location.index_state_name(),
            entries: location.index_entries,
            entry: location.entry.as_ref().map(EntryStep::of),
            rejected: location
                .rejected
                .as_ref()
                .map(|(entry, reason)| RejectedStep {
                    entry: EntryStep::of(entry),
                    reason: reason.clone(),
                }),
        },
        scan: ScanStep {
            batches: location.scanned_batches,
            bytes: location.scanned_bytes,
        },
        batch: location.batch.as_ref().map(BatchStep::of),
        record: record.map(RecordStep::of),
    }
}

fn record_in_words(location: &Location, record: Option<&Record>) -> String {
    let Some(record) = record else {
        return match &location.batch {
            Some(batch) if batch.is_control => {
                "none for readers: a control record, which ends a transaction, stands here"
                    .to_owned()
            }
            _ => "none: compaction removed it".to_owned(),
        };
    };
    let step = RecordStep::of(record);
    let time = step.timestamp.map_or_else(
        || "no timestamp".to_owned(),
        |timestamp| format!("timestamp {timestamp} ({})", When(timestamp)),
    );
    let bytes = |size: Option<usize>| {
        size.map_or_else(
            || "null".to_owned(),
            |size| counted(size, "byte").to_string(),
        )
    };
    format!(
        "{time}, key {}, value {}, headers {}",
        bytes(step.key_bytes),
        bytes(step.value_bytes),
        step.headers
    )
}
