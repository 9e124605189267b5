//! Up to where a log was compacted: in the checkpoint of a log dir, as a broker's cleaner keeps it, otherwise in the partition's own state.

use super::{Place, State};
use crate::error::Result;
use offsetlog_format::OffsetCheckpointFile;
use std::path::PathBuf;

impl Place {
    fn cleaner_file(&self) -> Option<PathBuf> {
        let log_dir = self.log_dir.as_ref()?;
        Some(log_dir.join(OffsetCheckpointFile::CleanerOffset.name()))
    }

    /// First offset that was not compacted yet, if the log ever was. A checkpoint that cannot be read counts as empty.
    pub(in crate::log::appender) fn cleaner_point(&self) -> Result<Option<i64>> {
        let Some(path) = self.cleaner_file() else {
            return Ok(self.cleaner);
        };
        match self.read_checkpoint(&path) {
            Ok(checkpoint) => Ok(checkpoint.offset_of(&self.topic, self.partition)),
            Err(error) if error.is_corruption() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes it down. `state` is what stands beside it where there is no log dir.
    pub(in crate::log::appender) fn set_cleaner_point(
        &mut self,
        offset: i64,
        state: State,
    ) -> Result<()> {
        let Some(path) = self.cleaner_file() else {
            self.cleaner = Some(offset);
            let boot = Some(self.boot());
            return self.write_state(&State { boot, ..state });
        };
        let log_dir = self.log_dir.clone().unwrap_or_default();
        let _shared = self.share(&log_dir)?;
        self.set_line(&path, Some(offset))
    }
}
