//! The producer state of a partition (Kafka's `ProducerStateManager`): epochs, last sequences and open transactions.
//!
//! It reads no files and no clock. An append [`check`](ProducerStates::check)s all its batches, writes them, then
//! [`apply`](ProducerStates::apply)s the changes that the check returned. Rebuilding the state from the log does the same with
//! [`Origin::Recovery`], one scanned stretch at a time ([`prepare`](ProducerStates::prepare)). Snapshots are read and written as entries.
//!
//! Invariants:
//! - `ongoing` has exactly the open transactions of all entries.
//! - A transaction is in `ongoing`, in `unreplicated`, or forgotten; never in both sets.

mod changes;
mod entry;
mod marker;
#[cfg(test)]
mod tests;

pub(crate) use changes::{
    Batch, Changes, CompletedTransaction, Marker, Origin, TRANSACTION_VERSION_UNKNOWN,
};
pub(crate) use entry::{AppendedBatch, ProducerEntry};
pub use marker::MarkerOptions;
pub(in crate::log) use marker::{encode_marker, parse_marker};

use crate::error::Result;
use offsetlog_format::snapshot::{HASH_TABLE_MINIMUM, hash_table_after, sort_by_bucket};
use offsetlog_format::{AbortedTransaction, ProducerSnapshotEntry};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A broker's `producer.id.expiration.ms`.
pub(in crate::log) const PRODUCER_EXPIRATION_MS: i64 = 86_400_000;

/// First offset and producer of a transaction. The offset alone is not enough: a follower may be sent batches that overlap.
type TransactionKey = (i64, i64);

/// An entry, and its place in the order in which producers first appeared.
#[derive(Debug, Clone)]
struct Stored {
    serial: u64,
    entry: ProducerEntry,
}

/// The producers of a partition.
#[derive(Debug, Clone)]
pub(crate) struct ProducerStates {
    producers: HashMap<i64, Stored>,
    next_serial: u64,
    /// Table size of the Java `HashMap` that a broker would have: it decides the order of entries in a snapshot.
    hash_table: usize,
    ongoing: BTreeSet<TransactionKey>,
    /// Completed transactions that the high watermark has not passed, with the offsets of their markers.
    unreplicated: BTreeMap<TransactionKey, i64>,
    end_offset: i64,
}

/// The result of a check.
#[derive(Debug)]
pub(crate) enum Checked {
    /// The client sent a batch that is in the log already; nothing is appended.
    Duplicate {
        first_offset: i64,
        last_offset: i64,
        /// The timestamp of the stored batch, which the response returns as log append time.
        timestamp: i64,
    },
    /// Apply these when the batches are written.
    Update(Changes),
}

impl From<&AppendedBatch> for Checked {
    fn from(batch: &AppendedBatch) -> Self {
        Self::Duplicate {
            first_offset: batch.first_offset(),
            last_offset: batch.last_offset,
            timestamp: batch.timestamp,
        }
    }
}

impl ProducerStates {
    /// An empty state at offset 0.
    pub(crate) fn new() -> Self {
        Self {
            producers: HashMap::new(),
            next_serial: 0,
            hash_table: HASH_TABLE_MINIMUM,
            ongoing: BTreeSet::new(),
            unreplicated: BTreeMap::new(),
            end_offset: 0,
        }
    }

    /// Returns the offset after the last batch that the state covers, including batches without a producer.
    pub(crate) const fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// Sets the end offset. Call it after each append, with or without a producer.
    pub(crate) const fn set_end_offset(&mut self, end_offset: i64) {
        self.end_offset = end_offset;
    }

    /// Whether there are no producers and no completed transactions that the high watermark has not passed.
    pub(crate) fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.unreplicated.is_empty()
    }

    /// Returns the entry of a producer.
    pub(crate) fn get(&self, producer_id: i64) -> Option<&ProducerEntry> {
        self.producers.get(&producer_id).map(|stored| &stored.entry)
    }

    /// Returns all producers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &ProducerEntry)> {
        let all = self.producers.iter();
        all.map(|(&producer_id, stored)| (producer_id, &stored.entry))
    }

    /// Checks the batches of one append, each against the state that the ones before it leave.
    ///
    /// `transaction_version` is that of a marker's sender: 0, 1 or 2. Only markers need it.
    ///
    /// # Errors
    /// [`OutOfOrderSequence`](crate::ErrorKind::OutOfOrderSequence), [`ProducerFenced`](crate::ErrorKind::ProducerFenced),
    /// [`TransactionCoordinatorFenced`](crate::ErrorKind::TransactionCoordinatorFenced),
    /// [`InvalidTxnState`](crate::ErrorKind::InvalidTxnState);
    /// [`Argument`](crate::ErrorKind::Argument) for a leader's marker without transaction version.
    pub(crate) fn check<'b>(
        &self,
        batches: impl IntoIterator<Item = &'b Batch>,
        origin: Origin,
        transaction_version: i16,
    ) -> Result<Checked> {
        let mut changes = Changes::default();
        for batch in batches {
            if let Some(batch) = self.prepare(&mut changes, batch, origin, transaction_version)? {
                return Ok(batch.into());
            }
        }
        Ok(Checked::Update(changes))
    }

    /// Checks one batch of [`check`](Self::check): adds it to the changes, or returns the batch that it duplicates. After an error the
    /// changes must be dropped.
    pub(crate) fn prepare(
        &self,
        changes: &mut Changes,
        batch: &Batch,
        origin: Origin,
        transaction_version: i16,
    ) -> Result<Option<&AppendedBatch>> {
        let stored = self.get(batch.producer_id);
        if let Some(stored) = stored {
            let (epoch, base, last) = (
                batch.producer_epoch,
                batch.base_sequence,
                batch.last_sequence,
            );
            if origin == Origin::Client
                && let Some(duplicate) = stored.find_duplicate(epoch, base, last)
            {
                return Ok(Some(duplicate));
            }
            if origin.is_leader() && batch.is_transactional {
                changes::check_epoch(batch, stored.producer_epoch)?;
            }
        }
        changes.add(stored, batch, origin, transaction_version)?;
        Ok(None)
    }

    /// Applies what [`check`](Self::check) returned. Returns the entries for the `.txnindex` of the segment that holds the markers.
    pub(crate) fn apply(&mut self, changes: &Changes) -> Vec<AbortedTransaction> {
        // In reverse: the map in which a broker collects an append's producers puts a new one before others in the same bucket. The order
        // of a snapshot shows it.
        for changed in changes.changed.iter().rev() {
            match self.producers.get_mut(&changed.producer_id) {
                Some(stored) => stored.entry.merge(&changed.entry),
                None => self.insert(changed.producer_id, changed.entry),
            }
        }
        self.ongoing.extend(&changes.started);
        let aborted = end_transactions(&changes.completed, &mut self.ongoing);
        for transaction in &changes.completed {
            let key = (transaction.first_offset, transaction.producer_id);
            self.unreplicated.insert(key, transaction.last_offset);
        }
        aborted
    }

    /// Returns what [`apply`](Self::apply) will return, for a caller that writes it first.
    pub(crate) fn aborted_by(&self, changes: &Changes) -> Vec<AbortedTransaction> {
        if !changes.completed.iter().any(|completed| completed.aborted) {
            return Vec::new();
        }
        let mut ongoing = self.ongoing.clone();
        ongoing.extend(&changes.started);
        end_transactions(&changes.completed, &mut ongoing)
    }

    /// Returns the first offset of the earliest transaction that is open or whose marker the high watermark has not passed. It may be
    /// below the log start offset.
    pub(crate) fn first_unstable_offset(&self) -> Option<i64> {
        let ongoing = self.ongoing.first().map(|&(first, _)| first);
        let unreplicated = self.unreplicated.keys().next().map(|&(first, _)| first);
        ongoing.into_iter().chain(unreplicated).min()
    }

    /// Forgets completed transactions whose markers are below `offset`: the new high watermark or log start offset.
    pub(crate) fn complete_until(&mut self, offset: i64) {
        self.unreplicated.retain(|_, marker| *marker >= offset);
    }

    /// Forgets producers that wrote nothing for `expiration_ms`, except those with an open transaction.
    pub(crate) fn remove_expired(&mut self, now: i64, expiration_ms: i64) {
        self.producers
            .retain(|_, stored| !stored.entry.is_expired(now, expiration_ms));
    }

    /// Forgets everything and sets the end offset, as after a truncation and before a snapshot is loaded.
    pub(crate) fn clear(&mut self, end_offset: i64) {
        // The table of a Java map keeps its size.
        self.producers.clear();
        self.ongoing.clear();
        self.unreplicated.clear();
        self.end_offset = end_offset;
    }

    /// Returns the entries of a snapshot at [`end_offset`](Self::end_offset), in the order in which a broker would write them.
    pub(crate) fn to_snapshot(&self) -> Vec<ProducerSnapshotEntry> {
        let mut stored: Vec<_> = self.producers.iter().collect();
        stored.sort_unstable_by_key(|(_, stored)| stored.serial);
        let mut entries: Vec<_> = stored
            .into_iter()
            .map(|(&producer_id, stored)| stored.entry.to_snapshot(producer_id))
            .collect();
        sort_by_bucket(&mut entries, self.hash_table);
        entries
    }

    /// Replaces the state with that of a snapshot, without producers that have expired since.
    pub(crate) fn load_snapshot(
        &mut self,
        entries: &[ProducerSnapshotEntry],
        end_offset: i64,
        now: i64,
        expiration_ms: i64,
    ) {
        self.clear(end_offset);
        for snapshot in entries {
            let entry = ProducerEntry::from_snapshot(snapshot);
            if entry.is_expired(now, expiration_ms) {
                continue;
            }
            if let Some(first_offset) = entry.transaction_first_offset {
                self.ongoing.insert((first_offset, snapshot.producer_id));
            }
            self.insert(snapshot.producer_id, entry);
        }
    }

    /// The same with all producers: somebody else decides whether they have expired.
    pub(crate) fn load_unexpired(&mut self, entries: &[ProducerSnapshotEntry], end_offset: i64) {
        self.load_snapshot(entries, end_offset, 0, i64::MAX);
    }

    fn insert(&mut self, producer_id: i64, entry: ProducerEntry) {
        if let Some(stored) = self.producers.get_mut(&producer_id) {
            stored.entry = entry;
            return;
        }
        self.hash_table = hash_table_after(
            self.hash_table,
            producer_id,
            self.producers.len(),
            self.producers.keys().copied(),
        );
        let serial = self.next_serial;
        self.next_serial += 1;
        self.producers.insert(producer_id, Stored { serial, entry });
    }
}

/// Removes the completed transactions from the open ones and returns the index entries of the aborted ones. All transactions that began
/// in the same append are in `ongoing` when the first one ends, even those that began after its marker.
fn end_transactions(
    completed: &[CompletedTransaction],
    ongoing: &mut BTreeSet<TransactionKey>,
) -> Vec<AbortedTransaction> {
    let mut aborted = Vec::new();
    for transaction in completed {
        ongoing.remove(&(transaction.first_offset, transaction.producer_id));
        if transaction.aborted {
            // First offset of the earliest open transaction of another producer, or the offset after the marker.
            let other = ongoing
                .iter()
                .find(|&&(_, producer_id)| producer_id != transaction.producer_id);
            let behind = transaction.last_offset.saturating_add(1);
            aborted.push(AbortedTransaction {
                producer_id: transaction.producer_id,
                first_offset: transaction.first_offset,
                last_offset: transaction.last_offset,
                last_stable_offset: other.map_or(behind, |&(first, _)| first),
            });
        }
    }
    aborted
}
