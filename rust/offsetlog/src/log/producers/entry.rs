//! What is remembered of one producer.

use offsetlog_format::{BatchHeader, ProducerSnapshotEntry};

/// Batches remembered per producer: a client may have that many requests in flight and send any of them again.
const BATCHES: usize = 5;

/// Epoch of a producer that has not been seen.
pub(crate) const NO_EPOCH: i16 = -1;
/// Sequence of a batch without one.
pub(crate) const NO_SEQUENCE: i32 = -1;

/// A batch that was appended, as far as it takes to know it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AppendedBatch {
    pub(crate) last_sequence: i32,
    pub(crate) last_offset: i64,
    pub(crate) offset_delta: i32,
    pub(crate) timestamp: i64,
}

impl AppendedBatch {
    /// The first record's sequence, counted back from the last one.
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

/// The sequence of a batch's last record. Unlike [`offsetlog_format::batch::sequence_after`] it counts on from sequences below
/// -1, which only a leader's check keeps out.
pub(crate) fn last_sequence(header: &BatchHeader, offset_delta: i32) -> i32 {
    if header.base_sequence == NO_SEQUENCE {
        return NO_SEQUENCE;
    }
    let last = i64::from(header.base_sequence) + i64::from(offset_delta);
    // 2^31 - 1 is followed by 0.
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
    /// Of the last marker, -1 when there is none.
    pub(crate) coordinator_epoch: i32,
    /// Of the last batch or marker, milliseconds since 1970.
    pub(crate) last_timestamp: i64,
    /// First offset of the open transaction.
    pub(crate) transaction_first_offset: Option<i64>,
    pub(crate) batches: LastBatches,
}

impl ProducerEntry {
    /// A producer that has not been seen.
    pub(crate) fn unknown() -> Self {
        Self {
            producer_epoch: NO_EPOCH,
            coordinator_epoch: -1,
            last_timestamp: -1,
            transaction_first_offset: None,
            batches: LastBatches::default(),
        }
    }

    /// The same producer without its batches: what an append starts from.
    pub(crate) fn without_batches(&self) -> Self {
        Self {
            batches: LastBatches::default(),
            ..*self
        }
    }

    /// Sequence of the last record of the epoch, -1 when there is none.
    pub(crate) fn last_sequence(&self) -> i32 {
        self.batches
            .last()
            .map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    /// The batch with these sequences, if it was appended lately under this epoch.
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

    /// Ends the open transaction, if there is one. The batches stay unless the marker brings another epoch.
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

    /// Takes over what an append made of [`without_batches`](Self::without_batches).
    ///
    /// The stored batches stay when the append ends at the epoch it began with, whatever happened between: so does Kafka.
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

    /// Whether the producer was silent for `expiration_ms`, by the time of its records. An open transaction keeps it.
    pub(crate) const fn is_expired(&self, now: i64, expiration_ms: i64) -> bool {
        self.transaction_first_offset.is_none()
            && now.wrapping_sub(self.last_timestamp) >= expiration_ms
    }

    /// As a snapshot holds it: with its last batch only.
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

    /// As it comes back from a snapshot. Its batch gets the producer's timestamp, which may be that of a later marker.
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
