//! Which batches and records a scan wants: its options in the form in which they are applied.

use super::scan::ScanOptions;
use super::values::Isolation;
use offsetlog_format::{BatchHeader, RecordView, TimestampType};
use std::collections::HashSet;
use std::ops::Range;

/// The filters of a scan, in the form in which they are applied.
#[derive(Debug)]
pub(crate) struct Filter {
    start_timestamp: i64,
    stop_timestamp: i64,
    keys: Option<HashSet<Vec<u8>>>,
    pub(super) isolation: Isolation,
    pub(super) verify_checksums: bool,
    control_records: bool,
}

impl Filter {
    pub(super) fn new(options: &ScanOptions) -> Self {
        Self {
            start_timestamp: options.start_timestamp.unwrap_or(i64::MIN),
            stop_timestamp: options.stop_timestamp.unwrap_or(i64::MAX),
            keys: options
                .keys
                .as_ref()
                .map(|keys| keys.iter().cloned().collect()),
            isolation: options.isolation,
            verify_checksums: options.verify_checksums,
            control_records: options.control_records,
        }
    }

    /// Whether records have to be looked at one by one.
    pub(super) fn looks_at_records(&self) -> bool {
        self.keys.is_some() || self.start_timestamp > i64::MIN || self.stop_timestamp < i64::MAX
    }

    /// Whether no record of the batch can pass, by its header alone.
    pub(super) fn excludes(&self, header: &BatchHeader) -> bool {
        let append_time = header.timestamp_type() == TimestampType::LogAppend;
        header.attributes.is_control() && !self.control_records
            || header.max_timestamp < self.start_timestamp
            || append_time && header.max_timestamp >= self.stop_timestamp
    }

    #[inline]
    fn passes(&self, record: &RecordView<'_>) -> bool {
        record.timestamp >= self.start_timestamp
            && record.timestamp < self.stop_timestamp
            && self
                .keys
                .as_ref()
                .is_none_or(|keys| record.key.is_some_and(|key| keys.contains(key)))
    }
}

/// Which records of one batch are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selection {
    /// Records have to be looked at one by one.
    pub(super) looks_at_records: bool,
    /// The scan's range begins or ends within the batch.
    pub(super) cut: bool,
    pub(super) start: i64,
    pub(super) stop: i64,
}

/// What to do with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Take,
    Leave,
    Stop,
}

impl Selection {
    /// Of the batch with this header in a scan of these offsets.
    pub(super) fn of(filter: &Filter, header: &BatchHeader, range: Range<i64>) -> Self {
        let first = header.base_offset.unwrap_or(i64::MIN);
        Self {
            looks_at_records: filter.looks_at_records(),
            cut: first < range.start || header.last_offset >= range.end,
            start: range.start,
            stop: range.end,
        }
    }

    /// First offset that can be wanted, and the one behind the last.
    pub(super) fn range(self) -> (i64, i64) {
        if self.cut {
            (self.start, self.stop)
        } else {
            (i64::MIN, i64::MAX)
        }
    }

    pub(super) fn takes_all(self) -> bool {
        !self.looks_at_records && !self.cut
    }

    #[inline]
    pub(crate) fn verdict(self, filter: &Filter, record: &RecordView<'_>) -> Verdict {
        if self.cut {
            if record.offset < self.start {
                return Verdict::Leave;
            }
            if record.offset >= self.stop {
                return Verdict::Stop;
            }
        }
        if self.looks_at_records && !filter.passes(record) {
            return Verdict::Leave;
        }
        Verdict::Take
    }
}
