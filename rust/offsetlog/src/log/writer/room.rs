//! Room on a full disk: what retention takes anyway goes at once, without a file that is written first.
//!
//! Elsewhere something is always written before anything is removed: the clean mark goes, the new log start offset is noted, files wait as
//! `.deleted`. With no byte free that fails. A broker's own retention removes segments before it notes the new start, and finds the
//! start again in the name of the first segment that is left; so does this.

use super::PartitionWriter;
use super::retention::RemovedSegment;
use crate::disk::IoCall;
use crate::error::{Error, Result};
use crate::log::recovery::follow_log_start;
use crate::log::recovery::interrupted_swaps;
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

impl PartitionWriter {
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
        for segment in due.into_iter().take(self.segments.closed.len()) {
            self.remove_oldest(&segment)?;
            freed.removed.push(segment);
        }
        Ok(freed)
    }

    fn remove_oldest(&mut self, segment: &RemovedSegment) -> Result<()> {
        let (base, start) = (segment.base_offset, segment.end_offset);
        let ends = Arc::clone(&self.ends);
        let _files = ends.changing_files();
        let disk = Arc::clone(&self.directory.disk);
        let path = |suffix| segment_path(&self.directory.path, base, suffix);
        let beside = [".index", ".timeindex", ".txnindex", ".snapshot"].map(path);
        interrupted_swaps::remove(disk.as_ref(), &path(".log"))?;
        // Its records are gone, whatever becomes of the rest: the next opening removes files that stand beside none.
        self.durability.names_changed = true;
        self.segments.closed.retain(|&closed| closed != base);
        self.durability
            .unsettled
            .retain(|&unsettled| unsettled != base);
        self.segments.made_with.remove(&base);
        self.producers.snapshots.remove(&base);
        if start > ends.log_start() {
            ends.set_log_start(start);
            ends.raise_recovery_point(start);
            self.epochs.truncate_from_start(start);
        }
        self.producers.last_snapshot = follow_log_start(
            &mut self.producers.states,
            &self.producers.snapshots,
            ends.log_start(),
        );
        self.publish(self.log_end());
        for file in &beside {
            interrupted_swaps::remove(disk.as_ref(), file)?;
        }
        // One after the other: names that come back with the power must not leave a hole.
        let path = &self.directory.path;
        disk.sync_directory(path)
            .map_err(|error| Error::io(IoCall::SyncDirectory, path, error))?;
        self.durability.names_changed = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use crate::batch_builder::BatchBuilder;
    use crate::config::LogConfig;
    use crate::log::{
        AppendOptions, Log, LogWriter, MaintainOptions, OpenOptions, ScanOptions, WriteOptions,
    };
    use std::path::Path;

    const NOW: i64 = 1_700_000_000_000;

    /// Three segments of one record each, all of them old enough to go.
    fn filled(path: &Path) -> LogWriter {
        let settings = [("internal.segment.bytes", "100"), ("retention.ms", "0")];
        let write = WriteOptions {
            config: Some(LogConfig::parse(settings).unwrap()),
            ..WriteOptions::default()
        };
        let log = LogWriter::open(path, &OpenOptions::default(), &write).unwrap();
        for _ in 0..3 {
            let mut batch = BatchBuilder::default();
            batch.push(NOW, Some(b"k"), Some(b"v"), &[]).unwrap();
            log.append(&mut batch, &AppendOptions::default()).unwrap();
        }
        log
    }

    fn count(log: &Log) -> usize {
        let mut scan = log.scan(&ScanOptions::default()).unwrap();
        std::iter::from_fn(|| scan.next_batch().unwrap().map(drop)).count()
    }

    #[test]
    fn a_removal_that_fails_half_way_leaves_a_log_that_goes_on() {
        // The file that cannot be removed, and where the log begins then.
        for (stuck, start) in [("log", 0), ("index", 1), ("timeindex", 1)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("orders-0");
            let log = filled(&path);
            let file = path.join(format!("00000000000000000000.{stuck}"));
            let aside = folder.path().join("aside");
            std::fs::rename(&file, &aside).unwrap();
            std::fs::create_dir(&file).unwrap();
            let failed = log.changing(|writer| writer.make_room(NOW + 1));
            assert!(failed.is_err(), "{stuck}");
            std::fs::remove_dir(&file).unwrap();
            std::fs::rename(&aside, &file).unwrap();
            assert_eq!(log.log_start_offset().unwrap(), start, "{stuck}");
            assert_eq!(count(&log), 3 - start as usize, "{stuck}");
            // The second call does the rest, and so does upkeep.
            let freed = log.changing(|writer| writer.make_room(NOW + 1)).unwrap();
            assert_eq!(freed.removed.len(), 2 - start as usize, "{stuck}");
            let options = MaintainOptions {
                now: Some(NOW + 1),
                ..MaintainOptions::default()
            };
            assert_eq!(log.maintain(&options).unwrap().removed.len(), 1, "{stuck}");
            log.close().unwrap();
            let again = Log::open(&path, &OpenOptions::default()).unwrap();
            assert_eq!(again.log_start_offset().unwrap(), 3, "{stuck}");
        }
    }
}
