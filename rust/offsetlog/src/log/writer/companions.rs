//! The files beside the segments, as the writer changes them: leader epochs, producer snapshots, the clean marks.

use super::PartitionWriter;
use crate::disk::DiskFile;
use crate::error::Result;
use crate::log::state::{place_snapshot, write_epochs, write_snapshot};
use std::path::PathBuf;
use std::sync::Arc;

impl PartitionWriter {
    /// Takes the clean marks away before the first change.
    pub(super) fn mark_unclean(&mut self) -> Result<()> {
        self.place
            .mark_unclean(self.ends.recovery_point(), self.ends.log_start())
    }

    pub(super) fn write_epochs(&self) -> Result<()> {
        write_epochs(&self.directory, &self.epochs)
    }

    /// Writes the producers' state at its end offset, unless a snapshot of that offset or a later one is there. Without `sync` the
    /// caller syncs the file that is returned.
    pub(super) fn take_snapshot(
        &mut self,
        sync: bool,
    ) -> Result<Option<(PathBuf, Arc<dyn DiskFile>)>> {
        let offset = self.producers.states.end_offset();
        if offset <= self.producers.last_snapshot {
            return Ok(None);
        }
        let file = if sync {
            write_snapshot(&self.directory, &self.producers.states)?;
            None
        } else {
            Some(place_snapshot(&self.directory, &self.producers.states)?)
        };
        self.producers.snapshots.insert(offset);
        self.producers.last_snapshot = offset;
        Ok(file)
    }
}
