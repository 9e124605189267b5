//! The producers of a log, as its newest sound producer snapshot and the batches behind it show them.
//!
//! Source: Kafka's `DescribeProducers` and `ProducerStateManager`, which keep this in memory.

use super::producers::{Changes, Origin, ProducerStates, TRANSACTION_VERSION_UNKNOWN};
use super::recovery::scan_segment::producer_batch;
use super::transactions::marker_of;
use super::values::sequence_of;
use super::{Log, View};
use crate::error::{ErrorKind, Result};
use crate::segment::find::{self, Found, ReadAhead, Trace};
use offsetlog_format::BatchHeader;
use offsetlog_format::name::SegmentFile;
use offsetlog_format::snapshot::{ProducerSnapshotEntry, read_producer_snapshot};
use std::collections::{HashMap, HashSet};

/// Producers checked in a snapshot before it is believed.
const SNAPSHOT_CHECKS: usize = 64;

/// A producer with a producer id, as one partition knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerState {
    /// The producer id.
    pub producer_id: i64,
    /// The producer epoch of its last batch or marker.
    pub producer_epoch: i16,
    /// Sequence of its last record, -1 if only markers of that epoch are known.
    pub last_sequence: i32,
    /// Offset of its last record, -1 if only markers of that epoch are known.
    pub last_offset: i64,
    /// Greatest timestamp of its last batch, or that of its last marker, in milliseconds since 1970.
    pub last_timestamp: i64,
    /// Epoch of the coordinator that wrote its last marker, -1 without one.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction, which has no marker; `None` without one.
    pub transaction_first_offset: Option<i64>,
}

/// The producers with a transaction that has no marker.
#[derive(Debug)]
pub(crate) struct OpenTransactions {
    /// By the first offset of the transaction.
    producers: Vec<ProducerState>,
}

impl OpenTransactions {
    /// The producers, by the first offset of their transactions.
    pub(super) fn producers(&self) -> &[ProducerState] {
        &self.producers
    }

    /// First offset of the oldest transaction.
    pub(super) fn first_offset(&self) -> Option<i64> {
        self.producers.first()?.transaction_first_offset
    }
}

impl ProducerState {
    const fn new(header: &BatchHeader) -> Self {
        Self {
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            last_sequence: -1,
            last_offset: -1,
            last_timestamp: -1,
            coordinator_epoch: -1,
            transaction_first_offset: None,
        }
    }

    fn of_snapshot(entry: &ProducerSnapshotEntry) -> Self {
        let first = entry.current_transaction_first_offset;
        Self {
            producer_id: entry.producer_id,
            producer_epoch: entry.producer_epoch,
            last_sequence: entry.last_sequence,
            last_offset: entry.last_offset,
            last_timestamp: entry.timestamp,
            coordinator_epoch: entry.coordinator_epoch,
            transaction_first_offset: (first >= 0).then_some(first),
        }
    }

    const fn has_transactions(&self) -> bool {
        self.transaction_first_offset.is_some() || self.coordinator_epoch >= 0
    }

    fn append(&mut self, header: &BatchHeader) {
        self.producer_epoch = header.producer_epoch;
        self.last_sequence = sequence_of(header, header.last_offset);
        self.last_offset = header.last_offset;
        self.last_timestamp = header.max_timestamp;
        if header.attributes.is_transactional() {
            let first = header.base_offset.unwrap_or(header.last_offset);
            self.transaction_first_offset.get_or_insert(first);
        }
    }

    const fn end_transaction(&mut self, header: &BatchHeader, coordinator_epoch: i32) {
        if self.producer_epoch != header.producer_epoch {
            // Sequences restart with a new epoch.
            self.producer_epoch = header.producer_epoch;
            self.last_sequence = -1;
            self.last_offset = -1;
        }
        self.last_timestamp = header.max_timestamp;
        self.coordinator_epoch = coordinator_epoch;
        self.transaction_first_offset = None;
    }
}

impl Log {
    /// The producers with a producer id that the log knows, by producer id: those of the newest producer snapshot that agrees with the
    /// log, and of the batches behind it. A broker forgets a producer that has appended nothing for `producer.id.expiration.ms`; it may
    /// still be here.
    ///
    /// Costs a walk over the batch headers behind that snapshot; over those of the whole log if there is none. Keeps one value for
    /// each producer in memory.
    ///
    /// # Errors
    /// As [`log_end_offset`](Self::log_end_offset).
    pub fn producers(&self) -> Result<Vec<ProducerState>> {
        let mut found: Vec<ProducerState> = self.ask(|view| {
            let walked = self.walk_producers(view, false)?;
            Ok(walked.into_values().collect())
        })?;
        found.sort_unstable_by_key(|producer| producer.producer_id);
        Ok(found)
    }

    /// The producers whose transaction has no marker, oldest transaction first: those that
    /// [`last_stable_offset`](Self::last_stable_offset) waits for. The cost is that of it, once for both.
    ///
    /// # Errors
    /// As [`log_end_offset`](Self::log_end_offset).
    pub fn open_transactions(&self) -> Result<Vec<ProducerState>> {
        self.ask(|view| Ok(self.open_transactions_of(view)?.producers.clone()))
    }

    /// The producers as they were known at `offset`, the first one of a batch of the log or where one would be: what a producer snapshot
    /// there has. Of records below the log start offset only snapshots may know.
    ///
    /// If the newest snapshot is behind `offset`, this returns from it the producers that wrote nothing between the two, and the
    /// transactions that were open all the time: what a log needs that begins at `offset` to know the same at its end. That costs a walk
    /// over the headers between them at most; otherwise it is one from that snapshot to the end of the segment before `offset`.
    ///
    /// # Errors
    /// As [`log_end_offset`](Self::log_end_offset); damage below `offset`.
    pub fn producer_snapshot_at(&self, offset: i64) -> Result<Vec<ProducerSnapshotEntry>> {
        self.ask(|view| self.producers_before(view, offset))
    }

    fn producers_before(&self, view: &View, offset: i64) -> Result<Vec<ProducerSnapshotEntry>> {
        let end = match view.end() {
            // Each snapshot is looked at anyway.
            Err(error) if view.shows_damage(&error) => i64::MAX,
            end => end?.log_end_offset,
        };
        let first_base = view
            .segments
            .first()
            .map_or(0, |segment| segment.base_offset);
        let (mut states, mut from) = (ProducerStates::new(), first_base);
        for &at in view.snapshots.iter().rev().filter(|&&at| at <= end) {
            let Some(entries) = self.sound_snapshot(view, at)? else {
                continue;
            };
            if at > offset {
                // Of a producer of which only a marker is known nothing says where that stands.
                let has_doubt = entries.iter().any(|entry| entry.last_offset < 0);
                let mut seen = HashSet::new();
                if has_doubt {
                    self.visit_headers_below(view, (offset, at), |header, _| {
                        let first = header.base_offset.unwrap_or(header.last_offset);
                        if (offset..at).contains(&first) {
                            seen.insert(header.producer_id);
                        }
                        Ok(())
                    })?;
                }
                return Ok(entries
                    .iter()
                    .filter(|entry| entry.last_offset >= 0 || !seen.contains(&entry.producer_id))
                    .filter_map(|entry| as_of(entry, offset))
                    .collect());
            }
            states.load_unexpired(&entries, at);
            from = at.max(first_base);
            break;
        }
        if from < offset {
            let mut changes = Changes::default();
            self.visit_headers_below(view, (from, offset), |header, walk| {
                let first = header.base_offset.unwrap_or(header.last_offset);
                if (from..offset).contains(&first)
                    && let Some(batch) = producer_batch(header, walk)?
                {
                    let version = TRANSACTION_VERSION_UNKNOWN;
                    states.prepare(&mut changes, &batch, Origin::Recovery, version)?;
                }
                Ok(())
            })?;
            states.apply(&changes);
        }
        Ok(states.to_snapshot())
    }

    pub(super) fn open_transactions_of<'v>(&self, view: &'v View) -> Result<&'v OpenTransactions> {
        if let Some(open) = view.open_transactions.get() {
            return Ok(open);
        }
        let walked = self.walk_producers(view, true)?;
        let is_open = |producer: &ProducerState| producer.transaction_first_offset.is_some();
        let mut producers: Vec<ProducerState> = walked.into_values().filter(is_open).collect();
        producers.sort_unstable_by_key(|producer| producer.transaction_first_offset);
        Ok(view
            .open_transactions
            .get_or_init(|| OpenTransactions { producers }))
    }

    /// Reads the newest sound snapshot and the headers behind it. `only_transactional`: leaves out producers that never had a
    /// transaction. Those that have none now may begin one, and then the epoch of their last coordinator counts.
    fn walk_producers(
        &self,
        view: &View,
        only_transactional: bool,
    ) -> Result<HashMap<i64, ProducerState>> {
        let end = view.end()?.log_end_offset;
        let first_base = view
            .segments
            .first()
            .map_or(0, |segment| segment.base_offset);
        let (mut producers, mut from) = (HashMap::new(), first_base);
        for &offset in view.snapshots.iter().rev().filter(|&&offset| offset <= end) {
            if let Some(entries) = self.sound_snapshot(view, offset)? {
                let known = entries.iter().map(ProducerState::of_snapshot);
                let known = known
                    .filter(|known| !only_transactional || known.has_transactions())
                    .map(|known| (known.producer_id, known));
                producers.extend(known);
                from = offset.max(first_base);
                break;
            }
        }
        let limit = self.0.options.limits.max_decompressed_bytes;
        self.visit_headers(view, from, |header, walk| {
            let first = header.base_offset.unwrap_or(header.last_offset);
            if first < from || header.producer_id < 0 {
                return Ok(());
            }
            let producer_id = header.producer_id;
            if header.attributes.is_control() {
                if let Some(marker) = marker_of(header, walk, limit)? {
                    let known = producers.entry(producer_id);
                    let known = known.or_insert_with(|| ProducerState::new(header));
                    known.end_transaction(header, marker.coordinator_epoch);
                }
            } else if !only_transactional || header.attributes.is_transactional() {
                let known = producers.entry(producer_id);
                known
                    .or_insert_with(|| ProducerState::new(header))
                    .append(header);
            }
            Ok(())
        })?;
        Ok(producers)
    }

    /// The entries of the producer snapshot at `offset` if it can be read and agrees with the log: each producer's last batch is
    /// where the snapshot says, and open transactions begin with a batch of theirs. Damage says nothing against it: it has a checksum of
    /// its own, and knows what the damage hides.
    fn sound_snapshot(
        &self,
        view: &View,
        offset: i64,
    ) -> Result<Option<Vec<ProducerSnapshotEntry>>> {
        let name =
            offsetlog_format::name::SegmentFileName::live(offset, SegmentFile::ProducerSnapshot);
        let path = self.path().join(name.to_string());
        let bytes = match super::named_offsets::read_optional(&self.0.directory, &path) {
            Ok(Some(bytes)) => bytes,
            // Without one that may be sound, producers whose records are deleted would be forgotten.
            Err(error) if matches!(error.kind(), ErrorKind::Io { .. }) => return Err(error),
            Ok(None) | Err(_) => return Ok(None),
        };
        let Ok(entries) = read_producer_snapshot(&bytes) else {
            return Ok(None);
        };
        let start = view.log_start_offset;
        let mut disturbed = None;
        for entry in entries.iter().take(SNAPSHOT_CHECKS) {
            let open = entry.current_transaction_first_offset;
            for (at, must_be_data) in [(entry.last_offset, false), (open, true)] {
                let is_there = if at >= offset {
                    Some(false)
                } else if at >= start {
                    match is_batch_of(view, at, entry.producer_id, must_be_data) {
                        // The others are looked at too, so that one more look is enough for all.
                        Err(error) if error.is_corruption() => {
                            disturbed.get_or_insert(error);
                            None
                        }
                        found => found?,
                    }
                } else {
                    None
                };
                if is_there == Some(false) {
                    return Ok(None);
                }
            }
        }
        disturbed.map_or(Ok(Some(entries)), Err)
    }
}

/// What was known at `offset` of a producer that a later snapshot knows, if its batches from `offset` on do not show it.
fn as_of(entry: &ProducerSnapshotEntry, offset: i64) -> Option<ProducerSnapshotEntry> {
    if entry.last_offset < offset {
        return Some(*entry);
    }
    let open = entry.current_transaction_first_offset;
    (0..offset)
        .contains(&open)
        .then_some(ProducerSnapshotEntry {
            last_sequence: -1,
            last_offset: -1,
            offset_delta: 0,
            ..*entry
        })
}

/// Whether the batch that holds `offset` is one of this producer's; `None` where damage hides it.
fn is_batch_of(
    view: &View,
    offset: i64,
    producer_id: i64,
    must_be_data: bool,
) -> Result<Option<bool>> {
    let Some(segment) = view.segments.get(view.floor_slot(offset)) else {
        return Ok(Some(false));
    };
    let open = view.open(segment)?;
    let found = find::find(
        &open,
        offset,
        ReadAhead::To(offset),
        Vec::new(),
        &mut Trace::default(),
    );
    let found = match found {
        Err(error) if view.shows_damage(&error) => return Ok(None),
        found => found?.1,
    };
    Ok(Some(matches!(found, Found::Batch(header)
        if header.producer_id == producer_id
            && header.base_offset.is_some_and(|base| base <= offset)
            && !(must_be_data && header.attributes.is_control()))))
}
