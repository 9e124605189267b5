//! What a scan is asked for, and what it tells of itself.

use super::OnCorrupt;
use crate::log::Log;
use crate::log::values::Isolation;

/// Which records a scan returns.
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// First offset, inclusive; the log start offset by default.
    pub start: Option<i64>,
    /// Last offset, exclusive; to the end of the log by default.
    pub stop: Option<i64>,
    /// Only records with a timestamp at or after this one, in milliseconds. Timestamps need not ascend: this filters, it does not
    /// seek; batches whose greatest timestamp is older are stepped over.
    pub start_timestamp: Option<i64>,
    /// Only records with a timestamp before this one.
    pub stop_timestamp: Option<i64>,
    /// Which records of transactions.
    pub isolation: Isolation,
    /// Only records with one of these keys.
    pub keys: Option<Vec<Vec<u8>>>,
    /// At most so many records.
    pub limit: Option<u64>,
    /// Whether checksums are compared. Without it, damage shows only where it breaks the framing.
    pub verify_checksums: bool,
    /// Whether control records are returned too.
    pub control_records: bool,
    /// What happens where bytes are damaged.
    pub on_corrupt: OnCorrupt,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            start: None,
            stop: None,
            start_timestamp: None,
            stop_timestamp: None,
            isolation: Isolation::ReadUncommitted,
            keys: None,
            limit: None,
            verify_checksums: true,
            control_records: false,
            on_corrupt: OnCorrupt::Raise,
        }
    }
}

/// A range of a log, for a scan over several.
#[derive(Debug, Clone)]
pub struct ScanRange {
    /// The log.
    pub log: Log,
    /// First offset, inclusive; the log start offset by default.
    pub start: Option<i64>,
    /// Last offset, exclusive; to the end of the log by default.
    pub stop: Option<i64>,
}

/// What a scan has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanStatistics {
    /// Batches whose records were handed out.
    pub batches: u64,
    /// Batches stepped over by their header.
    pub batches_skipped: u64,
    /// Bytes of `.log` files passed.
    pub bytes: u64,
    /// Segments opened.
    pub segments: u64,
}
