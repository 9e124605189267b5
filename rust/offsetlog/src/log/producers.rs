//! What a partition remembers of its idempotent and transactional producers: epochs, the last sequences, open transactions.
//!
//! No files and no clock. Who appends [`check`](ProducerStates::check)s all batches of an append, writes them, then
//! [`apply`](ProducerStates::apply)s what the check gave. Who rebuilds the state from the log does the same with
//! [`Origin::Recovery`], a scanned stretch at a time ([`prepare`](ProducerStates::prepare)). Snapshots go out and come in as
//! entries.
//!
//! Invariants:
//! - `ongoing` has exactly the open transactions of all entries.
//! - A transaction is in `ongoing` or in `unreplicated` or forgotten, never in both.

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

/// `producer.id.expiration.ms` of a broker.
pub(in crate::log) const PRODUCER_EXPIRATION_MS: i64 = 86_400_000;

/// First offset and producer of a transaction. The offset alone would do but for followers, which may be sent batches that overlap.
type TransactionKey = (i64, i64);

/// An entry, and its place in the order of first appearance.
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
    /// Table size of the Java `HashMap` that a broker would have by now: it decides the order of a snapshot.
    hash_table: usize,
    ongoing: BTreeSet<TransactionKey>,
    /// Completed transactions, and where their markers are, that the high watermark has not passed.
    unreplicated: BTreeMap<TransactionKey, i64>,
    end_offset: i64,
}

/// What a check found.
#[derive(Debug)]
pub(crate) enum Checked {
    /// The client sent a batch again that is already there; nothing is to be appended.
    Duplicate {
        first_offset: i64,
        last_offset: i64,
        /// What the answer calls the log append time.
        timestamp: i64,
    },
    /// To be applied when the batches are written.
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
    /// No producers, at offset 0.
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

    /// Offset behind the last batch that the state knows of, also of those without a producer.
    pub(crate) const fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// To be called after each append, whether or not a producer took part.
    pub(crate) const fn set_end_offset(&mut self, end_offset: i64) {
        self.end_offset = end_offset;
    }

    /// Whether there is neither a producer nor a transaction that waits to be replicated.
    pub(crate) fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.unreplicated.is_empty()
    }

    /// What is remembered of a producer.
    pub(crate) fn get(&self, producer_id: i64) -> Option<&ProducerEntry> {
        self.producers.get(&producer_id).map(|stored| &stored.entry)
    }

    /// All that are known.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &ProducerEntry)> {
        let all = self.producers.iter();
        all.map(|(&producer_id, stored)| (producer_id, &stored.entry))
    }

    /// Checks the batches of one append. Each is held against the state that those before it leave.
    ///
    /// `transaction_version` is that of a marker's sender: 0, 1 or 2. It matters for markers alone.
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

    /// One batch of [`check`](Self::check): adds it to the changes, or gives the batch of which it is a duplicate. After an error
    /// the changes are worth nothing.
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

    /// Commits what [`check`](Self::check) gave. Gives the entries for the `.txnindex` of the segment that holds the markers.
    pub(crate) fn apply(&mut self, changes: &Changes) -> Vec<AbortedTransaction> {
        // Backwards: the map in which a broker gathers an append's producers puts a new one before those of the same bucket, which
        // shows in the order of snapshots.
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

    /// What [`apply`](Self::apply) will give, for whoever writes it before.
    pub(crate) fn aborted_by(&self, changes: &Changes) -> Vec<AbortedTransaction> {
        if !changes.completed.iter().any(|completed| completed.aborted) {
            return Vec::new();
        }
        let mut ongoing = self.ongoing.clone();
        ongoing.extend(&changes.started);
        end_transactions(&changes.completed, &mut ongoing)
    }

    /// First offset of the earliest transaction that is open, or whose marker the high watermark has not passed. It may lie below
    /// the log start offset.
    pub(crate) fn first_unstable_offset(&self) -> Option<i64> {
        let ongoing = self.ongoing.first().map(|&(first, _)| first);
        let unreplicated = self.unreplicated.keys().next().map(|&(first, _)| first);
        ongoing.into_iter().chain(unreplicated).min()
    }

    /// Forgets completed transactions with markers below `offset`: when the high watermark moves there, or the log start offset.
    pub(crate) fn complete_until(&mut self, offset: i64) {
        self.unreplicated.retain(|_, marker| *marker >= offset);
    }

    /// Forgets producers that were silent for `expiration_ms`.
    pub(crate) fn remove_expired(&mut self, now: i64, expiration_ms: i64) {
        self.producers
            .retain(|_, stored| !stored.entry.is_expired(now, expiration_ms));
    }

    /// Forgets everything and goes on at `end_offset`: a log that was truncated, before its snapshot is loaded.
    pub(crate) fn clear(&mut self, end_offset: i64) {
        // The table of a Java map keeps its size.
        self.producers.clear();
        self.ongoing.clear();
        self.unreplicated.clear();
        self.end_offset = end_offset;
    }

    /// What a snapshot at [`end_offset`](Self::end_offset) holds, in the order in which a broker would write it.
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

    /// Goes on from a snapshot: what was known before is forgotten, and so are producers that have expired since.
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

/// Takes the completed transactions from the open ones, and gives the index entries of those that were aborted. All that began in
/// the same append are among `ongoing` when the first one ends, also those that began behind its marker.
fn end_transactions(
    completed: &[CompletedTransaction],
    ongoing: &mut BTreeSet<TransactionKey>,
) -> Vec<AbortedTransaction> {
    let mut aborted = Vec::new();
    for transaction in completed {
        ongoing.remove(&(transaction.first_offset, transaction.producer_id));
        if transaction.aborted {
            // First offset of the earliest open transaction of another producer, or the offset behind the marker.
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
