//! What a recovery is asked for, and what it found and did.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that recovery took out of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The file that they were cut from.
    pub path: PathBuf,
    /// Where the cut begins; the file ends there now.
    pub position: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What is wrong with them.
    pub reason: String,
    /// Whether whole batches were among them.
    pub had_batches: bool,
    /// Records in those whole batches, control records among them: they can be read from what is kept.
    pub records: u64,
    /// The first and the last offset of those batches.
    pub offsets: Option<(i64, i64)>,
    /// Where they are kept; `None` for zeros, which are not worth keeping.
    pub kept: Option<PathBuf>,
}

/// What was found and done when a log was opened for writing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecoveryReport {
    /// Whether the last writer's end was clean.
    pub clean: bool,
    /// Nothing was changed: the report says what would be.
    pub dry_run: bool,
    /// Bytes cut off segments, and segments taken out whole.
    pub cut: Vec<Cut>,
    /// Files made from the batches again, with the reason.
    pub rebuilt: Vec<(PathBuf, String)>,
    /// Leftovers removed or put in place, in words.
    pub tidied: Vec<String>,
    /// What is odd and was left as it is.
    pub warnings: Vec<String>,
    /// Segments that were read whole.
    pub segments_read: usize,
    /// Their bytes.
    pub bytes_read: u64,
    /// Lowest offset that can be read.
    pub log_start_offset: i64,
    /// Offset that the next record gets.
    pub log_end_offset: i64,
}

impl RecoveryReport {
    /// Files and folders in which cut bytes are kept.
    pub fn kept(&self) -> impl Iterator<Item = &Path> {
        self.cut.iter().filter_map(|cut| cut.kept.as_deref())
    }

    /// Whether anything was changed, or would be.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        !(self.cut.is_empty() && self.rebuilt.is_empty() && self.tidied.is_empty())
    }
}

/// Told every few MiB how many bytes of segments were read since it was told last.
pub type Progress = Arc<dyn Fn(u64) + Send + Sync>;

/// How a log is recovered.
#[derive(Clone, Default)]
pub struct RecoverOptions {
    /// Segments from the one that holds this offset on are read whole; `None`: all.
    pub from_offset: Option<i64>,
    /// Only say what would be done. Takes no lock and changes nothing.
    pub dry_run: bool,
    /// Follows the work.
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
