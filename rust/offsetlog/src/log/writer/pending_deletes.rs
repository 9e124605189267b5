//! Files that are renamed `.deleted` and go when `file.delete.delay.ms` is over.
//!
//! Source: Kafka's `LocalLog.deleteSegmentFiles` with `asyncDelete`.

use super::PartitionWriter;
use crate::disk::IoCall;
use crate::error::{Error, Result};
use crate::segment::segment_path;
use offsetlog_format::FileState;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

impl PartitionWriter {
    /// Renames a segment's files, to be removed when `file.delete.delay.ms` is over: who reads them can finish.
    pub(super) fn doom_segment(&mut self, base_offset: i64, now: i64) -> Result<()> {
        self.doom_files(base_offset, now)?;
        self.doom_snapshot(base_offset, now)
    }

    /// The same for its `.log` and indexes alone.
    pub(super) fn doom_files(&mut self, base_offset: i64, now: i64) -> Result<()> {
        [".log", ".index", ".timeindex", ".txnindex"]
            .into_iter()
            .try_for_each(|suffix| self.doom(base_offset, suffix, now))
    }

    /// The same for the snapshot of an offset.
    pub(super) fn doom_snapshot(&mut self, offset: i64, now: i64) -> Result<()> {
        if self.producers.snapshots.remove(&offset) {
            self.doom(offset, ".snapshot", now)?;
        }
        Ok(())
    }

    fn doom(&mut self, offset: i64, suffix: &str, now: i64) -> Result<()> {
        let path = segment_path(&self.directory.path, offset, suffix);
        let mut target = path.as_os_str().to_owned();
        target.push(FileState::Deleted.suffix());
        let target = PathBuf::from(target);
        match self.directory.disk.rename(&path, &target) {
            Ok(()) => {
                self.durability.names_changed = true;
                let due = now.saturating_add(self.upkeep_config().file_delete_delay_ms());
                self.segments.pending_deletes.push((due, target));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io(IoCall::Rename, &path, error)),
        }
    }

    /// Removes what has waited long enough, and tells. A file that cannot be removed now is removed when the log is opened again.
    pub(crate) fn delete_due(&mut self, now: i64) -> Vec<PathBuf> {
        let disk = Arc::clone(&self.directory.disk);
        let is_due = |doomed: &mut (i64, PathBuf)| doomed.0 <= now;
        let due = self.segments.pending_deletes.extract_if(.., is_due);
        due.filter(|(_, path)| disk.unlink(path).is_ok())
            .map(|(_, path)| path)
            .collect()
    }

    /// What [`delete_due`](Self::delete_due) would remove.
    pub(crate) fn due(&self, now: i64) -> Vec<PathBuf> {
        let due = self
            .segments
            .pending_deletes
            .iter()
            .filter(|(due, _)| *due <= now);
        due.map(|(_, path)| path.clone()).collect()
    }
}
