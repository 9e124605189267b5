//! Up to where a log was compacted: in the checkpoint of a log dir, as a broker's cleaner keeps it, otherwise in the partition's own state.

use super::{PartitionState, State};
use crate::error::Result;
use offsetlog_format::OffsetCheckpointFile;

const FILE: OffsetCheckpointFile = OffsetCheckpointFile::CleanerOffset;

impl PartitionState {
    /// First offset that was not compacted yet, if the log ever was. A checkpoint that cannot be read counts as empty.
    pub(in crate::log) fn cleaner_point(&self) -> Result<Option<i64>> {
        let Some(shared) = &self.shared else {
            return Ok(self.cleaner);
        };
        match shared.line(FILE, &self.topic, self.partition) {
            Err(error) if error.is_corruption() => Ok(None),
            line => line,
        }
    }

    /// Writes it down. `state` is what stands beside it where there is no log dir.
    pub(in crate::log) fn set_cleaner_point(&mut self, offset: i64, state: State) -> Result<()> {
        let Some(shared) = &self.shared else {
            self.cleaner = Some(offset);
            let boot = Some(self.boot());
            return self.write_state(&State { boot, ..state });
        };
        // A point that was lost is cleaned from again; one that is too high hides what is dirty.
        let on_disk = shared.line_on_disk(FILE, &self.topic, self.partition)?;
        let is_lower = on_disk.is_some_and(|on_disk| offset < on_disk);
        shared.set_lines(
            &[(FILE, Some(offset))],
            &self.topic,
            self.partition,
            is_lower,
        )
    }
}
