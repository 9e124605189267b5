//! Log compaction: removes records that a later record with the same key replaced.
//!
//! A pass reads the dirty part of the log into an [`OffsetMap`](offset_map::OffsetMap) of key to last offset, until the map is
//! full. Then it copies all segments up to that point, without the records for which the map has a later offset. Small segments
//! are merged. Nothing here changes a file of the log: the writer puts finished output in place (`writer/replace_segments`), so
//! appends continue during a pass.
//!
//! Source: Kafka's `Cleaner` and `MemoryRecords.filterTo`; FORMAT.md «Record batch, magic 2».

mod filter;
mod fingerprint;
mod in_order;
mod offset_map;
mod output;
mod pass;
mod replaced;
mod rewrite;
mod tally;
mod transactions;

use crate::config::LogConfig;
use std::collections::HashMap;

pub(crate) use output::discard;
pub(crate) use pass::Pass;
pub(crate) use rewrite::{Rest, Rewriter};

/// A segment that may be cleaned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(crate) base_offset: i64,
    pub(crate) next_base_offset: i64,
    pub(crate) size: u64,
    pub(crate) index_bytes: u64,
    pub(crate) time_index_bytes: u64,
    pub(crate) modified_ms: i64,
}

/// The last record of a producer. Its batch is kept, without records if none of them is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastRecord {
    pub(crate) data_offset: Option<i64>,
    pub(crate) producer_epoch: i16,
}

/// What a pass has to clean.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) log_start: i64,
    /// First offset that was not cleaned yet.
    pub(crate) first_dirty: i64,
    /// The cleaner's checkpoint was outside the log, so `first_dirty` is the log start offset instead.
    pub(crate) is_reset: bool,
    /// Base offset of the first segment that must not be cleaned.
    pub(crate) first_uncleanable: i64,
    /// The segments below `first_uncleanable`.
    pub(crate) segments: Vec<Source>,
    pub(crate) producers: HashMap<i64, LastRecord>,
    pub(crate) config: LogConfig,
    pub(crate) now: i64,
    /// The time from which new delete horizons count: never before the log's clock, or a run with an earlier `now` would have the next one
    /// remove tombstones that nobody had time to read.
    pub(crate) horizon_from: i64,
}

impl Plan {
    /// Size of the segments before `first_dirty`, including the one that holds it, in bytes.
    pub(crate) fn clean_bytes(&self) -> u64 {
        let segments = self.segments.iter();
        segments
            .filter(|segment| segment.base_offset < self.first_dirty)
            .map(|segment| segment.size)
            .sum()
    }

    /// The segments with dirty offsets. The first may also hold clean ones.
    pub(crate) fn dirty(&self) -> &[Source] {
        if self.first_dirty >= self.first_uncleanable {
            return &[];
        }
        let slot = self
            .segments
            .partition_point(|segment| segment.base_offset <= self.first_dirty);
        let first = slot.saturating_sub(1);
        self.segments.get(first..).unwrap_or(&[])
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty().iter().map(|segment| segment.size).sum()
    }

    /// Dirty bytes as a share of all bytes that can be cleaned, 0 to 1.
    pub(crate) fn dirty_ratio(&self) -> f64 {
        let (clean, dirty) = (self.clean_bytes(), self.dirty_bytes());
        if dirty == 0 {
            return 0.0;
        }
        #[allow(clippy::cast_precision_loss, reason = "a ratio")]
        {
            dirty as f64 / (clean + dirty) as f64
        }
    }

    /// Groups of segments that are each merged into one, packed greedily by their current sizes.
    pub(crate) fn groups(&self, end: i64) -> Vec<&[Source]> {
        let count = self
            .segments
            .partition_point(|segment| segment.base_offset < end);
        let mut rest = self.segments.get(..count).unwrap_or(&[]);
        let mut groups = Vec::new();
        while !rest.is_empty() {
            let (group, behind) = rest.split_at(self.group_length(rest));
            groups.push(group);
            rest = behind;
        }
        groups
    }

    fn group_length(&self, segments: &[Source]) -> usize {
        let segment_bytes = self.config.segment_bytes().max(0) as u64;
        let index_bytes = self.config.segment_index_bytes().max(0) as u64;
        let mut sums = (0, 0, 0);
        let mut base = None;
        for (slot, segment) in segments.iter().enumerate() {
            sums.0 += segment.size;
            sums.1 += segment.index_bytes;
            sums.2 += segment.time_index_bytes;
            // A segment's last possible offset is the one before the next segment.
            let last = match segments.get(slot + 1) {
                Some(_) => segment.next_base_offset,
                None => self.first_uncleanable,
            } - 1;
            let base = *base.get_or_insert(segment.base_offset);
            let is_narrow = segment.size == 0 || last - base <= i64::from(i32::MAX);
            let fits = sums.0 <= segment_bytes
                && sums.1 <= index_bytes
                && sums.2 <= index_bytes
                && is_narrow;
            if slot > 0 && !fits {
                return slot;
            }
        }
        segments.len()
    }
}
