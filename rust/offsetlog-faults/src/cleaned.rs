//! What a cleaner may leave of a log, decided by its records alone.

use crate::batch::{Batch, Record};
use std::collections::BTreeMap;

/// Whether `found` is what cleaning may have left of `whole`, of which the batches up to `end` are there and those from `uncleaned`
/// on as they were. Before the log start offset nothing is asked for. No tombstone is old enough to go.
///
/// # Errors
/// What cannot be, in words.
pub fn check(
    found: &[Batch],
    whole: &[Batch],
    uncleaned: i64,
    log_start: i64,
    end: i64,
) -> Result<(), String> {
    let mut next = i64::MIN;
    for batch in found {
        if batch.base < next {
            return Err(format!("{batch:?} stands behind {next}"));
        }
        next = batch.last + 1;
        if !whole.iter().any(|before| is_part(batch, before)) {
            return Err(format!("{batch:?} is no part of a batch of {whole:?}"));
        }
    }
    let there = || whole.iter().filter(|batch| batch.last < end);
    for batch in there().filter(|batch| batch.base >= uncleaned && batch.last >= log_start) {
        if !found.contains(batch) {
            return Err(format!("{batch:?} was not to be cleaned, and is lost"));
        }
    }
    // Records without a key go.
    let mut last: BTreeMap<Vec<u8>, Record> = BTreeMap::new();
    for record in there().flat_map(Batch::records) {
        if let Some(key) = &record.key {
            last.insert(key.clone(), record);
        }
    }
    let left: Vec<Record> = found.iter().flat_map(Batch::records).collect();
    for record in last.into_values() {
        if record.offset >= log_start && !left.contains(&record) {
            return Err(format!("{record:?}, the last one of its key, is lost"));
        }
    }
    Ok(())
}

/// Whether a batch is `before` or what is left of it: some of its records, or none, under the same offsets.
#[must_use]
pub fn is_part(batch: &Batch, before: &Batch) -> bool {
    if batch == before {
        return true;
    }
    let head = |batch: &Batch| (batch.base, batch.last, batch.epoch);
    if head(batch) != head(before) {
        return false;
    }
    let mut records = before.records().into_iter();
    let left = batch.records();
    left.iter()
        .all(|record| records.any(|before| before == *record))
}
