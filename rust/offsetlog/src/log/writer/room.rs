//! Makes room on a full disk: deletes what retention would delete, without writing anything first.
//!
//! Elsewhere something is written before anything is deleted: the clean-shutdown mark is removed, the new log start offset is
//! stored, files are renamed to `.deleted`. On a full disk that fails. A broker's retention deletes segments before it stores
//! the new start, and derives the start from the name of the first segment left. So does this.

use super::PartitionWriter;
use super::retention::{Due, RemovedSegment};
use crate::config::LogConfig;
use crate::disk::IoCall;
use crate::error::{Error, Result};
use crate::log::recovery::follow_log_start;
use crate::log::recovery::interrupted_swaps;
use crate::segment::segment_path;
use std::path::PathBuf;
use std::sync::Arc;

/// What was deleted to make room.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    /// Segments, oldest first.
    pub(crate) removed: Vec<RemovedSegment>,
    /// Files that were named `.deleted`.
    pub(crate) deleted: Vec<PathBuf>,
}

impl Freed {
    pub(crate) const fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.deleted.is_empty()
    }
}

impl PartitionWriter {
    /// Deletes all files named `.deleted`, even before their delay is over, and the segments below the active one that
    /// retention with these settings selects at `now`, and adds them to `freed`. Writes nothing. After a crash the log begins with
    /// one of its segments.
    pub(crate) fn make_room(
        &mut self,
        config: &LogConfig,
        now: i64,
        freed: &mut Freed,
    ) -> Result<()> {
        self.check_usable()?;
        self.check_in_place()?;
        let Due { segments, stopped } = self.deletable_segments(config, now)?;
        // Damage is told when retention goes on.
        if let Some(error) = stopped.filter(|error| segments.is_empty() && !error.is_corruption()) {
            return Err(error);
        }
        freed.deleted.extend(self.delete_due(i64::MAX));
        // Deleting the active segment would need room for a new one.
        for segment in segments.into_iter().take(self.segments.closed.len()) {
            self.remove_oldest(&segment)?;
            freed.removed.push(segment);
        }
        Ok(())
    }

    fn remove_oldest(&mut self, segment: &RemovedSegment) -> Result<()> {
        let (base, start) = (segment.base_offset, segment.end_offset);
        let (ends, maps) = (Arc::clone(&self.ends), Arc::clone(&self.maps));
        let _files = maps.changing_files(..=base);
        let disk = Arc::clone(&self.directory.disk);
        let path = |suffix| segment_path(&self.directory.path, base, suffix);
        let beside = [".index", ".timeindex", ".txnindex", ".snapshot"].map(path);
        interrupted_swaps::remove(disk.as_ref(), &path(".log"))?;
        // From here on the segment's records are deleted, even if the rest fails: the next opening deletes files without a
        // `.log`.
        self.durability.names_changed = true;
        self.segments.closed.retain(|&closed| closed != base);
        self.durability
            .unsettled
            .retain(|&unsettled| unsettled != base);
        self.segments.made_with.remove(&base);
        self.producers.snapshots.remove(&base);
        if start > ends.log_start() {
            ends.set_log_start(start);
            self.place.move_start_line(start);
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
        // Synced after each segment: names that reappear after a power failure must not leave a hole.
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

    use super::Freed;
    use crate::batch_builder::BatchBuilder;
    use crate::config::LogConfig;
    use crate::log::{
        AppendOptions, Log, LogWriter, MaintainOptions, OpenOptions, ScanOptions, WriteOptions,
    };
    use std::path::Path;

    const NOW: i64 = 1_700_000_000_000;

    /// Three segments of one record each, all old enough to be deleted.
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
        // The file that cannot be deleted, and the log start offset after that.
        for (stuck, start) in [("log", 0), ("index", 1), ("timeindex", 1)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("orders-0");
            let log = filled(&path);
            let file = path.join(format!("00000000000000000000.{stuck}"));
            let aside = folder.path().join("aside");
            std::fs::rename(&file, &aside).unwrap();
            std::fs::create_dir(&file).unwrap();
            let config = log.config();
            let make_room = || {
                let mut freed = Freed::default();
                let made = log.changing(|writer| writer.make_room(&config, NOW + 1, &mut freed));
                made.map(|()| freed)
            };
            let failed = make_room();
            assert!(failed.is_err(), "{stuck}");
            std::fs::remove_dir(&file).unwrap();
            std::fs::rename(&aside, &file).unwrap();
            assert_eq!(log.log_start_offset().unwrap(), start, "{stuck}");
            assert_eq!(count(&log), 3 - start as usize, "{stuck}");
            // A second call deletes the other closed segments, and maintenance the last one.
            let freed = make_room().unwrap();
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
