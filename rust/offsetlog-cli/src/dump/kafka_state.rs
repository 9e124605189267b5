//! Producer snapshots and transaction indexes, as Kafka's tool prints them.

use super::java;
use super::kafka_run::{Ended, Run, cannot_read, exception};
use super::log_file::{whole, whole_limit};
use offsetlog::format::index_entry::{ABORTED_TRANSACTION_BYTES, AbortedTransaction};
use offsetlog::format::snapshot::read_producer_snapshot;
use offsetlog::format::{Fault, FormatError};
use std::fmt::Write as _;
use std::path::Path;

pub(super) fn snapshot(run: &mut Run<'_, '_>, file: &str) -> Result<(), Ended> {
    let bytes = whole(Path::new(file), whole_limit()).map_err(|error| cannot_read(file, &error))?;
    let entries = match read_producer_snapshot(&bytes) {
        Ok(entries) => entries,
        Err(error) => {
            run.say(refusal(&error));
            return Ok(());
        }
    };
    for entry in entries {
        let open = match entry.current_transaction_first_offset {
            offset if offset >= 0 => format!("OptionalLong[{offset}]"),
            _ => "OptionalLong.empty".to_owned(),
        };
        let mut line = format!(
            "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {open} lastTimestamp: {}",
            entry.producer_id, entry.producer_epoch, entry.coordinator_epoch, entry.timestamp
        );
        if entry.last_offset >= 0 {
            let _ = write!(
                line,
                " firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
                first_sequence(entry.last_sequence, entry.offset_delta),
                entry.last_sequence,
                entry.last_offset,
                entry.offset_delta,
                entry.timestamp
            );
        }
        run.line(&line)?;
    }
    Ok(())
}

/// Sequences count from 2^31 - 1 on to 0.
pub(super) const fn first_sequence(last: i32, delta: i32) -> i32 {
    if last < delta {
        i32::MAX - (delta - last) + 1
    } else {
        last - delta
    }
}

fn refusal(error: &FormatError) -> String {
    match error.fault {
        Fault::Version { found, .. } => {
            format!(
                "Snapshot failed schema validation: Snapshot contained an unknown file version {found}"
            )
        }
        Fault::Checksum {
            stored, computed, ..
        } => format!(
            "Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"
        ),
        _ => format!("Snapshot failed schema validation: {error}"),
    }
}

pub(super) fn aborted(run: &mut Run<'_, '_>, file: &str) -> Result<(), Ended> {
    let bytes = match whole(Path::new(file), whole_limit()) {
        Ok(bytes) => bytes,
        // Kafka's index of a file that is not there has no entries.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(cannot_read(file, &error)),
    };
    for slot in 0..bytes.len() / ABORTED_TRANSACTION_BYTES {
        let entry = AbortedTransaction::read(&bytes, slot).map_err(|error| {
            let Fault::Version { found, maximum } = error.fault else {
                return exception("org.apache.kafka.common.KafkaException", &error.to_string());
            };
            exception(
                "org.apache.kafka.common.KafkaException",
                &format!(
                    "Unexpected aborted transaction version {found} in transaction index {}, current version is {maximum}",
                    java::absolute(file)
                ),
            )
        })?;
        run.line(&format!(
            "version: 0 producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
            entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
        ))?;
    }
    Ok(())
}
