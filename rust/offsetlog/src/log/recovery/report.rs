//! The options of a recovery, and the report of what it found and did.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that recovery removed from a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The file that held them.
    pub path: PathBuf,
    /// Position of the first removed byte; 0 if the whole file was removed.
    pub position: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// What is wrong with them.
    pub reason: String,
    /// Whether they hold whole batches.
    pub had_batches: bool,
    /// Number of records in those batches, including control records. They can be read from the kept copy.
    pub records: u64,
    /// First and last offset of those batches, both inclusive.
    pub offsets: Option<(i64, i64)>,
    /// Where a copy is kept, or would be after a dry run; `None` if there were only zeros, or no bytes.
    pub kept: Option<PathBuf>,
}

/// What opening a log for writing found and did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecoveryReport {
    /// Whether the last shutdown was clean.
    pub clean: bool,
    /// Nothing was changed: the report says what would be.
    pub dry_run: bool,
    /// Bytes cut off segments, segments moved out whole, and small files that could not be parsed.
    pub cut: Vec<Cut>,
    /// Files rebuilt from the batches, or rewritten because the disk did not hold what the page cache showed; each with the reason.
    pub rebuilt: Vec<(PathBuf, String)>,
    /// Leftover files deleted or renamed, one sentence each.
    pub tidied: Vec<String>,
    /// What is odd and was left as it is.
    pub warnings: Vec<String>,
    /// Number of segments that were scanned whole.
    pub segments_read: usize,
    /// Their size in bytes.
    pub bytes_read: u64,
    /// Lowest offset that can be read.
    pub log_start_offset: i64,
    /// Offset that the next record gets.
    pub log_end_offset: i64,
}

impl RecoveryReport {
    /// Paths of the copies of removed bytes.
    pub fn kept(&self) -> impl Iterator<Item = &Path> {
        self.cut.iter().filter_map(|cut| cut.kept.as_deref())
    }

    /// Number of records that this call removed from the log and that could be read, control records too. The kept copies have them. What
    /// earlier calls removed is told in [`warnings`](Self::warnings).
    #[must_use]
    pub fn records_cut(&self) -> u64 {
        self.cut.iter().map(|cut| cut.records).sum()
    }

    /// First and last offset of their batches, both inclusive; `None` where no whole batch was cut.
    #[must_use]
    pub fn offsets_cut(&self) -> Option<(i64, i64)> {
        let offsets = || self.cut.iter().filter_map(|cut| cut.offsets);
        let first = offsets().map(|(first, _)| first).min()?;
        Some((first, offsets().map(|(_, last)| last).max()?))
    }

    /// Whether anything was changed, or would be.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        !(self.cut.is_empty() && self.rebuilt.is_empty() && self.tidied.is_empty())
    }
}

/// Called every few MiB with the number of segment bytes read since the last call.
pub type Progress = Arc<dyn Fn(u64) + Send + Sync>;

/// How a log is recovered.
#[derive(Clone, Default)]
pub struct RecoverOptions {
    /// The segment with this offset and all later ones are scanned whole; `None` scans all.
    pub from_offset: Option<i64>,
    /// Only reports what would be done. Takes no lock and changes nothing.
    pub dry_run: bool,
    /// Called as the recovery makes progress.
    pub progress: Option<Progress>,
}

impl std::fmt::Debug for RecoverOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecoverOptions")
            .field("from_offset", &self.from_offset)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}
