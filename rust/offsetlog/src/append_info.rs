//! The result of an append: Kafka's `LogAppendInfo`. An error after an append carries it too.

/// Result of one append, or of several one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendInfo {
    /// Offset of the first record. -1 if nothing was appended, or if a follower's batch of magic 0 or 1 does not say it.
    pub base_offset: i64,
    /// Offset of the last record; -1 if nothing was appended.
    pub last_offset: i64,
    /// Greatest timestamp of the batches; -1 if there is none.
    pub max_timestamp: i64,
    /// Under `message.timestamp.type=LogAppendTime` the append time, otherwise -1. For a duplicate, the timestamp of the first
    /// append.
    pub log_append_time: i64,
    /// The producer had sent this batch before: nothing was appended, and the offsets are those of the first append.
    pub duplicate: bool,
    /// Bytes of the input that were not appended: an incomplete batch at the end, or, for a follower, the first batch of a
    /// newer leader epoch than the one it knows and everything after it.
    pub left_out_bytes: u64,
}

impl AppendInfo {
    /// No record was appended.
    pub const NOTHING: Self = Self {
        base_offset: -1,
        last_offset: -1,
        max_timestamp: -1,
        log_append_time: -1,
        duplicate: false,
        left_out_bytes: 0,
    };

    /// What this append and the `next` one did together.
    #[must_use]
    pub fn and(self, next: Self) -> Self {
        if self.base_offset < 0 {
            return next;
        }
        Self {
            base_offset: self.base_offset,
            max_timestamp: self.max_timestamp.max(next.max_timestamp),
            ..next
        }
    }
}
