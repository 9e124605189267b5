//! New partition directories in log dirs that are open for appending, built out of batches.

use super::LogDir;
use crate::error::Result;
use crate::local_path::local_path;
use crate::log::{STATE_FILE, partition_name, read_state};
use crate::partition_builder::{NewPartition, PartitionBuilder, give_lines};
use offsetlog_format::OffsetCheckpointFile;
use std::path::Path;

impl LogDir {
    /// Begins the partition directory `new` in one of these log dirs, as [`PartitionBuilder::create`] does. The lines of the log dir's
    /// checkpoints are gathered: they are written once a minute, and when this `LogDir` is closed. Until then a broker that finds the new
    /// partition after a crash recovers it. This `LogDir` does not list it.
    ///
    /// # Errors
    /// Those of [`PartitionBuilder::create`]; `Argument` or `Closed` unless the log dirs are open for appending.
    pub fn build_partition(
        &self,
        new: impl AsRef<Path>,
        begin: &NewPartition,
    ) -> Result<PartitionBuilder> {
        self.writer()?;
        let new = local_path(new)?;
        let shared = self.0.shared_with(&new);
        PartitionBuilder::create_in(&new, &self.0.options, begin, shared)
    }

    /// Gives a partition its lines in the log dir's checkpoints, if one of ours was made there and ended before it had them, or before they
    /// reached its end: a broker would read all behind them. They are gathered.
    ///
    /// # Errors
    /// Those of opening the partition; `Argument` or `Closed` unless the log dirs are open for appending.
    pub fn complete_lines(&self, path: impl AsRef<Path>) -> Result<()> {
        self.writer()?;
        let (path, options) = (local_path(path)?, &self.0.options);
        let Some(shared) = self.0.shared_with(&path) else {
            return Ok(());
        };
        let name = partition_name(&path)?;
        let (topic, partition) = (name.topic, name.partition);
        let mut lacks_lines = false;
        for file in [
            OffsetCheckpointFile::RecoveryPoint,
            OffsetCheckpointFile::HighWatermark,
        ] {
            lacks_lines |= match shared.line(file, topic, partition) {
                Err(error) if error.is_corruption() => true,
                line => line?.is_none(),
            };
        }
        let state = read_state(
            options.disk.as_ref(),
            &path.join(STATE_FILE),
            &mut Vec::new(),
        )?;
        if state.is_some() && !lacks_lines {
            let recovery_point = shared.line(OffsetCheckpointFile::RecoveryPoint, topic, partition);
            let end = self.open_one(&path)?.log_end_offset()?;
            lacks_lines = recovery_point?.is_some_and(|point| point < end);
        }
        match state {
            Some(state) if lacks_lines => {
                give_lines(&path, topic, options, Some(shared), state.log_start)
            }
            // Without such a file it is a broker's.
            _ => Ok(()),
        }
    }

    /// Writes the lines that were gathered.
    ///
    /// # Errors
    /// `Io`; the lines that were not written are kept.
    pub fn write_checkpoints(&self) -> Result<()> {
        self.writer()?;
        self.write_lines()
    }
}
