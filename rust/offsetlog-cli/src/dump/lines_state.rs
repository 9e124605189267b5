//! Indexes, snapshots and text files as JSON lines.

use super::kafka_state::first_sequence;
use super::lines_run::{Kind, Run, unreadable};
use super::log_file::{LogFile, whole, whole_limit};
use crate::failure::Failure;
use offsetlog::format::clean_shutdown::read_broker_epoch;
use offsetlog::format::index_entry::{
    ABORTED_TRANSACTION_BYTES, OFFSET_INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES,
    aborted_transaction_count, check_offset_index, check_time_index, offset_entry_count,
    read_transaction_index, time_entry_count,
};
use offsetlog::format::meta_properties::read_properties;
use offsetlog::format::snapshot::read_producer_snapshot;
use offsetlog::format::{
    AbortedTransaction, BatchHeader, Fault, FormatError, LeaderEpochs, MetaProperties,
    OffsetCheckpoint, OffsetIndexEntry, Part, PartitionMetadata, TimeIndexEntry,
};
use serde_json::json;
use std::path::Path;

pub(super) fn dump(
    run: &mut Run<'_, '_>,
    path: &Path,
    kind: Kind,
    offset: i64,
) -> Result<(), Failure> {
    let bytes = whole(path, whole_limit()).map_err(unreadable)?;
    let outcome = match kind {
        Kind::OffsetIndex => return offsets(run, path, &bytes, offset),
        Kind::TimeIndex => return times(run, &bytes, offset),
        Kind::TransactionIndex => return transactions(run, &bytes, offset),
        Kind::ProducerSnapshot => producers(run, &bytes)?,
        Kind::LeaderEpochs => epochs(run, &bytes)?,
        Kind::OffsetCheckpoint => checkpoint(run, &bytes)?,
        Kind::PartitionMetadata => metadata(run, &bytes)?,
        Kind::MetaProperties => properties(run, &bytes)?,
        Kind::CleanShutdown => {
            let epoch = read_broker_epoch(&bytes);
            run.line("clean_shutdown", &json!({"broker_epoch": epoch}))?;
            Ok(())
        }
        Kind::Log | Kind::MetadataSnapshot => Ok(()),
    };
    match outcome {
        Ok(()) => Ok(()),
        Err(error) => run.fault(0, None, error),
    }
}

/// Damage of an entry of an index, at the entry's first byte.
fn entry_fault(
    run: &mut Run<'_, '_>,
    offset: Option<i64>,
    entry_bytes: usize,
    error: FormatError,
) -> Result<(), Failure> {
    let start = error.at - error.at % entry_bytes;
    run.fault(start as u64, offset, error)
}

/// What a file's bytes say, or what is wrong with them; the outer error is of the output.
type Read = Result<Result<(), FormatError>, Failure>;

fn offsets(run: &mut Run<'_, '_>, path: &Path, bytes: &[u8], base: i64) -> Result<(), Failure> {
    let mut log = LogFile::open(&path.with_extension("log")).ok();
    for slot in 0..offset_entry_count(bytes) {
        let Ok(entry) = OffsetIndexEntry::read(bytes, slot, base) else {
            break; // The check below says why.
        };
        run.line(
            "offset_index_entry",
            &json!({"offset": entry.offset, "position": entry.position}),
        )?;
        if let Some(log) = &mut log
            && !holds(log, &entry)?
        {
            let at = slot * OFFSET_INDEX_ENTRY_BYTES;
            let rule = Fault::Rule("points to where no batch with its offset begins");
            entry_fault(
                run,
                Some(entry.offset),
                OFFSET_INDEX_ENTRY_BYTES,
                FormatError::new(Part::OffsetIndex, at, rule),
            )?;
        }
    }
    if let Err(error) = check_offset_index(bytes, base) {
        entry_fault(run, None, OFFSET_INDEX_ENTRY_BYTES, error)?;
    }
    fragment(run, bytes, OFFSET_INDEX_ENTRY_BYTES, Part::OffsetIndex)
}

/// Whether an entry leads to its offset. Of magic 2 the batch at the position has it: the last one, or the first in the indexes of old
/// brokers. Messages of magic 0 and 1 stand one by one: there the position is that of the first message of an append, the offset
/// that of its last one.
fn holds(log: &mut LogFile, entry: &OffsetIndexEntry) -> Result<bool, Failure> {
    let bytes = log
        .bytes(entry.position.into(), BatchHeader::LONGEST)
        .map_err(unreadable)?;
    Ok(BatchHeader::parse(bytes).is_ok_and(|header| {
        let first = header.base_offset.unwrap_or(0);
        let last = if header.magic == 2 {
            header.last_offset
        } else {
            i64::MAX
        };
        (first..=last).contains(&entry.offset)
    }))
}

/// Bytes behind the last whole entry.
fn fragment(run: &mut Run<'_, '_>, bytes: &[u8], entry: usize, part: Part) -> Result<(), Failure> {
    let available = bytes.len() % entry;
    if available == 0 {
        return Ok(());
    }
    let cut = Fault::Truncated {
        needed: entry,
        available,
    };
    entry_fault(
        run,
        None,
        entry,
        FormatError::new(part, bytes.len() - available, cut),
    )
}

fn times(run: &mut Run<'_, '_>, bytes: &[u8], base: i64) -> Result<(), Failure> {
    for slot in 0..time_entry_count(bytes) {
        let Ok(entry) = TimeIndexEntry::read(bytes, slot, base) else {
            break;
        };
        run.line(
            "time_index_entry",
            &json!({"timestamp": entry.timestamp, "offset": entry.offset}),
        )?;
    }
    if let Err(error) = check_time_index(bytes, base) {
        entry_fault(run, None, TIME_INDEX_ENTRY_BYTES, error)?;
    }
    fragment(run, bytes, TIME_INDEX_ENTRY_BYTES, Part::TimeIndex)
}

fn transactions(run: &mut Run<'_, '_>, bytes: &[u8], base: i64) -> Result<(), Failure> {
    for slot in 0..aborted_transaction_count(bytes) {
        let Ok(entry) = AbortedTransaction::read(bytes, slot) else {
            break;
        };
        run.line(
            "aborted_transaction",
            &json!({
                "producer_id": entry.producer_id,
                "first_offset": entry.first_offset,
                "last_offset": entry.last_offset,
                "last_stable_offset": entry.last_stable_offset,
            }),
        )?;
    }
    if let Err(error) = read_transaction_index(bytes, base) {
        entry_fault(run, None, ABORTED_TRANSACTION_BYTES, error)?;
    }
    fragment(
        run,
        bytes,
        ABORTED_TRANSACTION_BYTES,
        Part::TransactionIndex,
    )
}

fn producers(run: &mut Run<'_, '_>, bytes: &[u8]) -> Read {
    let entries = match read_producer_snapshot(bytes) {
        Ok(entries) => entries,
        Err(error) => return Ok(Err(error)),
    };
    for entry in entries {
        let has_batch = entry.last_offset >= 0;
        let open = Some(entry.current_transaction_first_offset).filter(|offset| *offset >= 0);
        let first = first_sequence(entry.last_sequence, entry.offset_delta);
        run.line(
            "producer",
            &json!({
                "producer_id": entry.producer_id,
                "producer_epoch": entry.producer_epoch,
                "coordinator_epoch": Some(entry.coordinator_epoch).filter(|epoch| *epoch >= 0),
                "current_transaction_first_offset": open,
                "last_timestamp": Some(entry.timestamp).filter(|timestamp| *timestamp != -1),
                "first_sequence": has_batch.then_some(first),
                "last_sequence": has_batch.then_some(entry.last_sequence),
                "first_offset": has_batch.then(|| entry.last_offset - i64::from(entry.offset_delta)),
                "last_offset": has_batch.then_some(entry.last_offset),
            }),
        )?;
    }
    Ok(Ok(()))
}

fn epochs(run: &mut Run<'_, '_>, bytes: &[u8]) -> Read {
    match LeaderEpochs::parse(bytes) {
        Ok(epochs) => {
            for entry in epochs.entries() {
                run.line(
                    "leader_epoch",
                    &json!({"epoch": entry.epoch, "start_offset": entry.start_offset}),
                )?;
            }
            // A file of which a reader drops entries, as Kafka does, is not in order.
            Ok(LeaderEpochs::parse_strict(bytes).map(|_| ()))
        }
        Err(error) => Ok(Err(error)),
    }
}

fn checkpoint(run: &mut Run<'_, '_>, bytes: &[u8]) -> Read {
    match OffsetCheckpoint::parse(bytes) {
        Ok(checkpoint) => {
            for entry in checkpoint.entries {
                run.line(
                    "checkpoint_entry",
                    &json!({"topic": entry.topic, "partition": entry.partition, "offset": entry.offset}),
                )?;
            }
            Ok(Ok(()))
        }
        Err(error) => Ok(Err(error)),
    }
}

fn metadata(run: &mut Run<'_, '_>, bytes: &[u8]) -> Read {
    match PartitionMetadata::parse(bytes) {
        Ok(metadata) => {
            run.line(
                "partition_metadata",
                &json!({"version": metadata.version, "topic_id": metadata.topic_id.to_string()}),
            )?;
            Ok(Ok(()))
        }
        Err(error) => Ok(Err(error)),
    }
}

fn properties(run: &mut Run<'_, '_>, bytes: &[u8]) -> Read {
    match read_properties(bytes) {
        Ok(properties) => {
            for property in properties {
                run.line(
                    "property",
                    &json!({"key": property.key, "value": property.value}),
                )?;
            }
            Ok(MetaProperties::parse(bytes).map(|_| ()))
        }
        Err(error) => Ok(Err(error)),
    }
}
