//! Options of a scan, and its statistics.

use super::OnCorrupt;
use crate::log::Log;
use crate::log::values::Isolation;

/// Which records a scan returns.
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// First offset, inclusive. Default: the log start offset.
    pub start: Option<i64>,
    /// Last offset, exclusive. Default: the end of the log.
    pub stop: Option<i64>,
    /// Only records with a timestamp at or after this one, in ms. Timestamps need not ascend, so this filters and does not
    /// seek. Batches whose greatest timestamp is older are skipped.
    pub start_timestamp: Option<i64>,
    /// Only records with a timestamp before this one, in ms.
    pub stop_timestamp: Option<i64>,
    /// Which records of transactions are returned.
    pub isolation: Isolation,
    /// Only records with one of these keys.
    pub keys: Option<Vec<Vec<u8>>>,
    /// Maximum number of records.
    pub limit: Option<u64>,
    /// Whether checksums are verified. Without that, only damage that breaks the framing is noticed.
    pub verify_checksums: bool,
    /// Whether control records are returned too.
    pub control_records: bool,
    /// What the scan does with damaged bytes.
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

/// A range of a log, for a scan of several.
#[derive(Debug, Clone)]
pub struct ScanRange {
    /// The log.
    pub log: Log,
    /// First offset, inclusive. Default: the log start offset.
    pub start: Option<i64>,
    /// Last offset, exclusive. Default: the end of the log.
    pub stop: Option<i64>,
}

/// What a scan has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanStatistics {
    /// Batches that were returned.
    pub batches: u64,
    /// Batches skipped by their header.
    pub batches_skipped: u64,
    /// Bytes of `.log` files read or skipped.
    pub bytes: u64,
    /// Segments opened.
    pub segments: u64,
}
