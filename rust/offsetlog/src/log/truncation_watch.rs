//! Finds out whether a log was truncated while it was copied: the copy would hold records of two histories, or offsets that nobody wrote.

use super::Log;
use super::scan::Progress;
use crate::error::{Error, Result};
use offsetlog_format::BatchHeader;

/// Watches the end of a log while the log is copied. See [`Log::watch_end`].
#[derive(Debug)]
pub struct TruncationWatch {
    log: Log,
    log_end_offset: i64,
    progress: Progress,
}

impl Log {
    /// Returns the log end offset as it is now, in a watch that notices if the log is truncated below it from now on.
    ///
    /// A truncation is noticed even if the log has grown again since, if a writer of this process did it, or if another leader wrote
    /// there: its leader epoch shows it. Costs what [`leader_epochs`](Self::leader_epochs) costs.
    ///
    /// # Errors
    /// As [`log_end_offset`](Self::log_end_offset).
    pub fn watch_end(&self) -> Result<TruncationWatch> {
        let log_end_offset = self.log_end_offset()?;
        // If the log is truncated before the watch begins, its end shows it; nothing was read yet if it has grown again by then.
        let progress = Progress::new(self, log_end_offset)?;
        Ok(TruncationWatch {
            log: self.clone(),
            log_end_offset,
            progress,
        })
    }
}

impl TruncationWatch {
    /// The log end offset when the watch began.
    #[must_use]
    pub const fn log_end_offset(&self) -> i64 {
        self.log_end_offset
    }

    /// Watches up to the end of this batch too, which was read and may have been appended since the watch began.
    pub fn passed(&self, header: &BatchHeader) {
        let behind = header.last_offset.saturating_add(1);
        if behind > self.progress.next() {
            self.progress.pass(behind, header.leader_epoch);
        }
    }

    /// Fails if the log was truncated below what is watched.
    ///
    /// # Errors
    /// `LogDir` if it was; those of [`Log::log_end_offset`].
    pub fn check(&self) -> Result<()> {
        let Some(cut) = self.progress.look(&self.log)?.1 else {
            return Ok(());
        };
        let reason = format!(
            "it was truncated meanwhile, to offset {cut}: what was read before and after would be mixed; call it again"
        );
        Err(Error::log_dir(self.log.path(), reason))
    }
}
