//! Deletes files as Kafka does: renames them to `.deleted`, and deletes those after `file.delete.delay.ms`.
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

/// A file that was renamed to `.deleted`.
#[derive(Debug)]
struct PendingDelete {
    number: u64,
    due: i64,
    path: PathBuf,
}

/// The files that were renamed to `.deleted` and wait.
#[derive(Debug, Default)]
pub(super) struct PendingDeletes {
    files: Vec<PendingDelete>,
    /// Number of the next one.
    next: u64,
}

impl PartitionWriter {
    /// Renames the files of a segment, and its snapshot, to `.deleted`. They are deleted at `due`: until then readers can finish.
    pub(super) fn schedule_delete(&mut self, base_offset: i64, due: i64) -> Result<()> {
        self.schedule_delete_files(base_offset, due)?;
        self.schedule_delete_snapshot(base_offset, due)
    }

    /// As [`schedule_delete`](Self::schedule_delete), without the snapshot.
    pub(super) fn schedule_delete_files(&mut self, base_offset: i64, due: i64) -> Result<()> {
        [".log", ".index", ".timeindex", ".txnindex"]
            .into_iter()
            .try_for_each(|suffix| self.schedule(base_offset, suffix, due))
    }

    /// As [`schedule_delete`](Self::schedule_delete), for the snapshot of an offset alone.
    pub(super) fn schedule_delete_snapshot(&mut self, offset: i64, due: i64) -> Result<()> {
        if self.producers.snapshots.remove(&offset) {
            self.schedule(offset, ".snapshot", due)?;
        }
        Ok(())
    }

    fn schedule(&mut self, offset: i64, suffix: &str, due: i64) -> Result<()> {
        let path = segment_path(&self.directory.path, offset, suffix);
        let mut target = path.as_os_str().to_owned();
        target.push(FileState::Deleted.suffix());
        let target = PathBuf::from(target);
        match self.directory.disk.rename(&path, &target) {
            Ok(()) => {
                self.durability.names_changed = true;
                let pending = &mut self.segments.pending_deletes;
                pending.files.push(PendingDelete {
                    number: pending.next,
                    due,
                    path: target,
                });
                pending.next += 1;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io(IoCall::Rename, &path, error)),
        }
    }

    /// Deletes the files whose delay is over and returns their paths. A file that cannot be deleted now is deleted at the next
    /// opening.
    pub(crate) fn delete_due(&mut self, now: i64) -> Vec<PathBuf> {
        self.delete_due_since(0, now)
    }

    /// As [`delete_due`](Self::delete_due), of the files from this number on.
    pub(crate) fn delete_due_since(&mut self, first: u64, now: i64) -> Vec<PathBuf> {
        let files = &mut self.segments.pending_deletes.files;
        // Each append asks.
        if files.is_empty() {
            return Vec::new();
        }
        let disk = Arc::clone(&self.directory.disk);
        let due = files.extract_if(.., |file| file.number >= first && file.due <= now);
        due.filter(|file| disk.unlink(&file.path).is_ok())
            .map(|file| file.path)
            .collect()
    }

    /// The number of the next file that is renamed to `.deleted`.
    pub(crate) const fn next_pending_delete(&self) -> u64 {
        self.segments.pending_deletes.next
    }

    /// Returns what [`delete_due`](Self::delete_due) would delete.
    pub(crate) fn due(&self, now: i64) -> Vec<PathBuf> {
        let files = self.segments.pending_deletes.files.iter();
        files
            .filter(|file| file.due <= now)
            .map(|file| file.path.clone())
            .collect()
    }
}
