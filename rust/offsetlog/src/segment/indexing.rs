//! The rule that decides which batches get index entries, for appends and for rebuilds alike (FORMAT.md «Offset index»).
//!
//! A batch gets an entry when more than `index.interval.bytes` were written since the batch that got the last one. Its offset
//! entry pairs its last offset with its own position. Its time entry has the segment's greatest timestamp so far, including
//! this batch.

use crate::error::Result;
use offsetlog_format::index_entry::{
    OFFSET_INDEX_ENTRY_BYTES, OffsetIndexEntry, TIME_INDEX_ENTRY_BYTES, TimeIndexEntry,
};

/// A timestamp and the last offset of the first batch that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaxTimestamp {
    pub(crate) timestamp: i64,
    pub(crate) offset: i64,
}

/// The fields of a batch that the rule needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Indexed {
    pub(crate) last_offset: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) position: u64,
    pub(crate) size_bytes: u64,
}

/// The state of the rule within one segment. It is `Copy`, so a failed append can restore it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Indexing {
    base_offset: i64,
    interval: u64,
    /// Bytes since the batch that got the last entry; 0 when the segment is opened.
    since: u64,
    /// The segment's greatest timestamp.
    pub(crate) max: MaxTimestamp,
    /// The last time entry, or (-1, base offset).
    last_time: MaxTimestamp,
    /// Entries that can still be added.
    offset_room: usize,
    time_room: usize,
}

/// Encoded entries.
#[derive(Debug, Default)]
pub(crate) struct NewEntries {
    pub(crate) offset: Vec<u8>,
    pub(crate) time: Vec<u8>,
}

impl NewEntries {
    pub(crate) fn clear(&mut self) {
        self.offset.clear();
        self.time.clear();
    }
}

impl Indexing {
    /// For a segment without time entries whose indexes have room for `offset_room` and `time_room` more entries.
    pub(crate) fn new(
        base_offset: i64,
        interval: i32,
        offset_room: usize,
        time_room: usize,
    ) -> Self {
        let none = MaxTimestamp {
            timestamp: -1,
            offset: base_offset,
        };
        Self {
            base_offset,
            interval: interval.max(0) as u64,
            since: 0,
            max: none,
            last_time: none,
            offset_room,
            time_room,
        }
    }

    /// Continues after an index whose last time entry is `last_time`. The segment's greatest timestamp becomes the later of it
    /// and `max`.
    pub(crate) fn resume(&mut self, last_time: Option<TimeIndexEntry>, max: MaxTimestamp) {
        if let Some(entry) = last_time {
            self.last_time = MaxTimestamp {
                timestamp: entry.timestamp,
                offset: entry.offset,
            };
        }
        self.max = if max.timestamp > self.last_time.timestamp {
            max
        } else {
            self.last_time
        };
    }

    /// Continues after batches with an unknown number of bytes since the last entry: the next batch may get an entry.
    pub(crate) const fn resume_anywhere(&mut self) {
        self.since = self.interval.saturating_add(1);
    }

    /// Whether an index has no room for the entries of one more append. The last time slot is reserved for the closing entry.
    pub(crate) const fn is_full(&self) -> bool {
        self.offset_room == 0 || self.time_room <= 1
    }

    /// Number of entries that can be added before an index is full.
    pub(crate) fn room(&self) -> usize {
        self.offset_room.min(self.time_room.saturating_sub(1))
    }

    /// The same rule with unlimited room.
    pub(crate) const fn unbounded(mut self) -> Self {
        self.offset_room = usize::MAX;
        self.time_room = usize::MAX;
        self
    }

    /// Processes the next batch and appends its entries to `out`. In a full index it gets none.
    pub(crate) fn note(&mut self, batch: &Indexed, out: &mut NewEntries) -> Result<()> {
        if batch.max_timestamp > self.max.timestamp {
            self.max = MaxTimestamp {
                timestamp: batch.max_timestamp,
                offset: batch.last_offset,
            };
        }
        if self.since > self.interval && !self.is_full() {
            OffsetIndexEntry {
                offset: batch.last_offset,
                position: batch.position as u32,
            }
            .write(self.base_offset, &mut out.offset)?;
            self.offset_room -= 1;
            self.note_time(&mut out.time)?;
            self.since = 0;
        }
        self.since += batch.size_bytes;
        Ok(())
    }

    /// Appends the entry for the segment's greatest timestamp, if the index does not have it yet.
    pub(crate) fn note_time(&mut self, out: &mut Vec<u8>) -> Result<()> {
        if self.max.timestamp > self.last_time.timestamp {
            TimeIndexEntry {
                timestamp: self.max.timestamp,
                offset: self.max.offset,
            }
            .write(self.base_offset, out)?;
            self.last_time = self.max;
            self.time_room = self.time_room.saturating_sub(1);
        }
        Ok(())
    }
}

/// Number of entries that fit into indexes of `segment.index.bytes`: offset index, time index.
pub(crate) const fn capacities(index_bytes: i32) -> (usize, usize) {
    let bytes = if index_bytes < 0 {
        0
    } else {
        index_bytes as usize
    };
    (
        bytes / OFFSET_INDEX_ENTRY_BYTES,
        bytes / TIME_INDEX_ENTRY_BYTES,
    )
}
