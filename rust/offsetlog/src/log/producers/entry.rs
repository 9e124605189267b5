//! One producer's entry in the producer state (Kafka's `ProducerStateEntry`).

use offsetlog_format::{BatchHeader, ProducerSnapshotEntry};

/// Batches remembered per producer: a client may have this many requests in flight, and send any of them again.
const BATCHES: usize = 5;

/// Epoch of an unknown producer.
pub(crate) const NO_EPOCH: i16 = -1;
/// Sequence of a batch without one.
pub(crate) const NO_SEQUENCE: i32 = -1;

/// The properties of an appended batch by which a duplicate is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AppendedBatch {
    pub(crate) last_sequence: i32,
    pub(crate) last_offset: i64,
    pub(crate) offset_delta: i32,
    pub(crate) timestamp: i64,
}

impl AppendedBatch {
    /// Returns the first record's sequence, counted back from the last one.
    pub(crate) const fn first_sequence(&self) -> i32 {
        if self.last_sequence < self.offset_delta {
            i32::MAX
                .wrapping_sub(self.offset_delta.wrapping_sub(self.last_sequence))
                .wrapping_add(1)
        } else {
            self.last_sequence.wrapping_sub(self.offset_delta)
        }
    }

    pub(crate) const fn first_offset(&self) -> i64 {
        self.last_offset.wrapping_sub(self.offset_delta as i64)
    }
}

/// Returns the sequence of a batch's last record. Unlike [`offsetlog_format::batch::sequence_after`] it also counts on from sequences
/// below -1, which only a leader refuses.
pub(crate) fn last_sequence(header: &BatchHeader, offset_delta: i32) -> i32 {
    if header.base_sequence == NO_SEQUENCE {
        return NO_SEQUENCE;
    }
    let last = i64::from(header.base_sequence) + i64::from(offset_delta);
    // 0 follows 2^31 - 1.
    i32::try_from(last).unwrap_or((last & 0x7fff_ffff) as i32)
}

/// The last batches of a producer's epoch, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LastBatches {
    batches: [AppendedBatch; BATCHES],
    count: usize,
}

impl LastBatches {
    pub(crate) fn as_slice(&self) -> &[AppendedBatch] {
        self.batches.get(..self.count).unwrap_or_default()
    }

    pub(crate) fn last(&self) -> Option<&AppendedBatch> {
        self.as_slice().last()
    }

    fn push(&mut self, batch: AppendedBatch) {
        if self.count == BATCHES {
            self.batches.rotate_left(1);
            self.count -= 1;
        }
        if let Some(slot) = self.batches.get_mut(self.count) {
            *slot = batch;
            self.count += 1;
        }
    }

    const fn clear(&mut self) {
        self.count = 0;
    }
}

/// What is remembered of one producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerEntry {
    pub(crate) producer_epoch: i16,
    /// From the last marker, -1 if there is none.
    pub(crate) coordinator_epoch: i32,
    /// From the last batch or marker, milliseconds since 1970.
    pub(crate) last_timestamp: i64,
    /// First offset of the open transaction.
    pub(crate) transaction_first_offset: Option<i64>,
    pub(crate) batches: LastBatches,
}

impl ProducerEntry {
    /// An entry for an unknown producer.
    pub(crate) fn unknown() -> Self {
        Self {
            producer_epoch: NO_EPOCH,
            coordinator_epoch: -1,
            last_timestamp: -1,
            transaction_first_offset: None,
            batches: LastBatches::default(),
        }
    }

    /// Returns the entry without its batches, for an append to change.
    pub(crate) fn without_batches(&self) -> Self {
        Self {
            batches: LastBatches::default(),
            ..*self
        }
    }

    /// Returns the sequence of the epoch's last record, -1 if there is none.
    pub(crate) fn last_sequence(&self) -> i32 {
        self.batches
            .last()
            .map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    /// Returns the remembered batch with this epoch and these sequences.
    pub(crate) fn find_duplicate(
        &self,
        producer_epoch: i16,
        base_sequence: i32,
        last_sequence: i32,
    ) -> Option<&AppendedBatch> {
        if self.producer_epoch != producer_epoch {
            return None;
        }
        self.batches.as_slice().iter().find(|batch| {
            batch.first_sequence() == base_sequence && batch.last_sequence == last_sequence
        })
    }

    pub(crate) fn add_batch(&mut self, producer_epoch: i16, batch: AppendedBatch) {
        self.set_epoch(producer_epoch);
        self.batches.push(batch);
        self.last_timestamp = batch.timestamp;
    }

    /// Ends the open transaction, if there is one. The batches are kept unless the marker has another epoch.
    pub(crate) fn end_transaction(
        &mut self,
        producer_epoch: i16,
        coordinator_epoch: i32,
        timestamp: i64,
    ) {
        self.set_epoch(producer_epoch);
        self.coordinator_epoch = coordinator_epoch;
        self.last_timestamp = timestamp;
        self.transaction_first_offset = None;
    }

    /// Adopts what an append made of [`without_batches`](Self::without_batches).
    ///
    /// As in Kafka, the stored batches are kept if the append ends at the epoch it began with, whatever epochs came between.
    pub(crate) fn merge(&mut self, changed: &Self) {
        self.set_epoch(changed.producer_epoch);
        for batch in changed.batches.as_slice() {
            self.batches.push(*batch);
        }
        self.coordinator_epoch = changed.coordinator_epoch;
        self.last_timestamp = changed.last_timestamp;
        self.transaction_first_offset = changed.transaction_first_offset;
    }

    fn set_epoch(&mut self, producer_epoch: i16) {
        if self.producer_epoch != producer_epoch {
            self.batches.clear();
            self.producer_epoch = producer_epoch;
        }
    }

    /// Whether the producer's last batch or marker is at least `expiration_ms` old. A producer with an open transaction does not expire.
    pub(crate) const fn is_expired(&self, now: i64, expiration_ms: i64) -> bool {
        self.transaction_first_offset.is_none()
            && now.wrapping_sub(self.last_timestamp) >= expiration_ms
    }

    /// Returns the snapshot entry, which has only the last batch.
    pub(crate) fn to_snapshot(self, producer_id: i64) -> ProducerSnapshotEntry {
        let last = self.batches.last();
        ProducerSnapshotEntry {
            producer_id,
            producer_epoch: self.producer_epoch,
            last_sequence: self.last_sequence(),
            last_offset: last.map_or(-1, |batch| batch.last_offset),
            offset_delta: last.map_or(0, |batch| batch.offset_delta),
            timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
            current_transaction_first_offset: self.transaction_first_offset.unwrap_or(-1),
        }
    }

    /// Restores an entry from a snapshot. Its batch gets the producer's timestamp, which may be that of a later marker.
    pub(crate) fn from_snapshot(entry: &ProducerSnapshotEntry) -> Self {
        let mut batches = LastBatches::default();
        if entry.last_offset >= 0 {
            batches.push(AppendedBatch {
                last_sequence: entry.last_sequence,
                last_offset: entry.last_offset,
                offset_delta: entry.offset_delta,
                timestamp: entry.timestamp,
            });
        }
        Self {
            producer_epoch: entry.producer_epoch,
            coordinator_epoch: entry.coordinator_epoch,
            last_timestamp: entry.timestamp,
            transaction_first_offset: Some(entry.current_transaction_first_offset)
                .filter(|&offset| offset >= 0),
            batches,
        }
    }
}
