//! Up to which offset a log was compacted: stored in the log dir's `cleaner-offset-checkpoint`, as by a broker, else in the partition's
//! state file.

use super::{PartitionState, State};
use crate::error::Result;
use offsetlog_format::OffsetCheckpointFile;

const FILE: OffsetCheckpointFile = OffsetCheckpointFile::CleanerOffset;

impl PartitionState {
    /// Returns the first offset that was not compacted yet, if the log ever was. An unreadable checkpoint counts as empty.
    pub(in crate::log) fn cleaner_point(&self) -> Result<Option<i64>> {
        let Some(shared) = &self.shared else {
            return Ok(self.limited(self.cleaner));
        };
        match shared.line(FILE, &self.topic, self.partition) {
            Err(error) if error.is_corruption() => Ok(None),
            line => Ok(self.limited(line?)),
        }
    }

    fn limited(&self, point: Option<i64>) -> Option<i64> {
        point.map(|point| self.cleaner_limit.map_or(point, |limit| point.min(limit)))
    }

    /// Lowers the point for what recovery has cut. Stored with the first change, before which nothing is appended: a log is opened on a
    /// full disk, too.
    pub(in crate::log) fn limit_cleaner_point(&mut self, offset: i64) {
        self.cleaner_limit = Some(offset);
    }

    /// Stores the first offset that was not compacted yet. Without a log dir, the rest of the state file is written from `state`.
    pub(in crate::log) fn set_cleaner_point(&mut self, offset: i64, state: State) -> Result<()> {
        let Some(shared) = &self.shared else {
            self.cleaner = Some(offset);
            let boot = Some(self.boot());
            return self.write_state(&State { boot, ..state });
        };
        // A lost point costs another cleaning; one that is too high hides dirty records. So a lower one is written at once.
        let on_disk = shared.line_on_disk(FILE, &self.topic, self.partition)?;
        let is_lower = on_disk.is_some_and(|on_disk| offset < on_disk);
        shared.set_lines(
            &[(FILE, Some(offset))],
            &self.topic,
            self.partition,
            is_lower,
        )?;
        self.cleaner_limit = None;
        Ok(())
    }
}
