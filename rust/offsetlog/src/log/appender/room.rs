//! Room on a full disk: what retention takes anyway goes at once, without a file that is written first.
//!
//! Elsewhere something is always written before anything is removed: the clean mark goes, the new log start offset is noted, files wait as
//! `.deleted`. With no byte free that fails. A broker's own retention removes segments before it notes the new start, and finds the
//! start again in the name of the first segment that is left; so does this.

use super::Appender;
use super::leftovers;
use super::load_producers::follow_log_start;
use super::retention::RemovedSegment;
use crate::disk::SYNC_NAMES;
use crate::error::{Error, Result};
use crate::segment::segment_path;
use std::path::PathBuf;
use std::sync::Arc;

/// What went to make room.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    /// Segments, oldest first.
    pub(crate) removed: Vec<RemovedSegment>,
    /// Files that waited as `.deleted`.
    pub(crate) deleted: Vec<PathBuf>,
}

impl Freed {
    pub(crate) const fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.deleted.is_empty()
    }
}

impl Appender {
    /// Removes the files that wait as `.deleted`, and of the segments below the active one those that retention takes at `now`. Writes
    /// nothing. A crash leaves a log that begins with one of its segments.
    pub(crate) fn make_room(&mut self, now: i64) -> Result<Freed> {
        self.check_usable()?;
        self.check_in_place()?;
        let due = self.breached(now)?;
        let mut freed = Freed {
            removed: Vec::new(),
            deleted: self.delete_due(i64::MAX),
        };
        // The active one would need room for another in its place.
        for segment in due.into_iter().take(self.closed.len()) {
            self.remove_oldest(&segment)?;
            freed.removed.push(segment);
        }
        Ok(freed)
    }

    fn remove_oldest(&mut self, segment: &RemovedSegment) -> Result<()> {
        let (base, start) = (segment.base_offset, segment.end_offset);
        let ends = Arc::clone(&self.ends);
        let _files = ends.changing_files();
        if start > ends.log_start() {
            ends.set_log_start(start);
            ends.raise_recovery_point(start);
            self.epochs.truncate_from_start(start);
        }
        let disk = Arc::clone(&self.directory.disk);
        // The records first: without them the others are removed by the next opening.
        for suffix in [".log", ".index", ".timeindex", ".txnindex", ".snapshot"] {
            leftovers::remove(
                disk.as_ref(),
                &segment_path(&self.directory.path, base, suffix),
            )?;
        }
        // One after the other: names that come back with the power must not leave a hole.
        let path = &self.directory.path;
        disk.sync_directory(path)
            .map_err(|error| Error::io(SYNC_NAMES, path, error))?;
        self.snapshots.remove(&base);
        self.closed.retain(|&closed| closed != base);
        self.unsettled.retain(|&unsettled| unsettled != base);
        self.made_with.remove(&base);
        let log_start = self.ends.log_start();
        self.last_snapshot = follow_log_start(&mut self.producers, &self.snapshots, log_start);
        self.publish(self.log_end());
        Ok(())
    }
}
