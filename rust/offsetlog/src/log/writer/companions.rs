//! Updates the files beside the segments: leader epochs, producer snapshots, clean-shutdown marks.

use super::PartitionWriter;
use crate::disk::DiskFile;
use crate::error::Result;
use crate::log::state::{place_snapshot, write_epochs, write_snapshot};
use offsetlog_format::ProducerSnapshotEntry;
use std::path::PathBuf;
use std::sync::Arc;

impl PartitionWriter {
    /// Removes the clean-shutdown marks before the first change.
    pub(super) fn mark_unclean(&mut self) -> Result<()> {
        self.place
            .mark_unclean(self.ends.recovery_point(), self.ends.log_start())
    }

    /// Knows these producers from now on. The log has no batch yet; the first snapshot will have them.
    pub(in crate::log) fn begin_with_producers(&mut self, entries: &[ProducerSnapshotEntry]) {
        let log_end = self.log_end();
        self.producers.states.load_unexpired(entries, log_end);
        self.publish(log_end);
    }

    pub(super) fn write_epochs(&self) -> Result<()> {
        write_epochs(&self.directory, &self.epochs)
    }

    /// Writes a snapshot of the producers' state at its end offset, unless there is one at that offset or above. Without
    /// `sync`, returns the file, and the caller must sync it.
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
