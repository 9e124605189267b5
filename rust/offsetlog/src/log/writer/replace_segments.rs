//! Selects the segments that the cleaner may clean, and replaces them by its output.
//!
//! Source: Kafka's `LogCleanerManager.cleanableOffsets`, `LogToClean` and `LocalLog.replaceSegments`.

use super::PartitionWriter;
use crate::config::LogConfig;
use crate::disk::IoCall;
use crate::error::{Error, Result};
use crate::log::cleaner::{LastRecord, Plan, Source, discard};
use crate::log::recovery::scan_segment;
use crate::log::state::State;
use crate::segment::time_index::SegmentTimes;
use crate::segment::walk::{LOOKUP_BYTES, Step, Walk};
use crate::segment::{segment_path, with_state};
use offsetlog_format::FileState;
use std::collections::HashMap;
use std::sync::Arc;

impl PartitionWriter {
    /// Returns what a cleaning with these settings at `now` works on. Without `first_dirty` it continues where the last one ended.
    pub(crate) fn cleaning_plan(
        &self,
        config: &LogConfig,
        first_dirty: Option<i64>,
        now: i64,
    ) -> Result<Plan> {
        self.check_usable()?;
        let (log_start, log_end) = (self.ends.log_start(), self.log_end());
        let (cleaned, is_reset) = match self.place.cleaner_point()? {
            // A log that was truncated below this offset, or whose start moved above it, is cleaned from its start again.
            Some(offset) if offset < log_start || offset > log_end => (log_start, true),
            Some(offset) => (offset, false),
            None => (log_start, false),
        };
        let (first_dirty, is_reset) = match first_dirty {
            // What lies between would never be compared: a tombstone there goes before the value that it deletes.
            Some(offset) if offset > cleaned => {
                return Err(Error::argument(
                    "first_dirty",
                    format!(
                        "{offset} found, at most {cleaned} expected, where the last pass ended"
                    ),
                ));
            }
            Some(offset) => (offset, false),
            None => (cleaned, is_reset),
        };
        let lag = config.min_compaction_lag_ms();
        let uncleanable = self.uncleanable_offset(first_dirty, lag, now)?;
        let first_uncleanable = self.segments.floor_base(uncleanable);
        let mut segments = Vec::new();
        for (slot, &base_offset) in self.segments.closed.iter().enumerate() {
            if base_offset >= first_uncleanable {
                break;
            }
            let next = self.segments.closed.get(slot + 1).copied();
            segments.push(self.source(
                base_offset,
                next.unwrap_or(self.segments.active.base_offset),
            )?);
        }
        let producers: HashMap<i64, LastRecord> = self
            .producers
            .states
            .iter()
            .map(|(producer_id, entry)| {
                let last = LastRecord {
                    data_offset: entry.batches.last().map(|batch| batch.last_offset),
                    producer_epoch: entry.producer_epoch,
                };
                (producer_id, last)
            })
            .collect();
        Ok(Plan {
            log_start,
            first_dirty,
            is_reset,
            first_uncleanable,
            segments,
            producers,
            config: config.clone(),
            now,
            horizon_from: now.max(self.now()),
        })
    }

    fn source(&self, base_offset: i64, next_base_offset: i64) -> Result<Source> {
        let disk = self.directory.disk.as_ref();
        let path = |suffix| segment_path(&self.directory.path, base_offset, suffix);
        let stat = disk
            .stat(&path(".log"))
            .map_err(|error| Error::io(IoCall::Stat, &path(".log"), error))?;
        // A missing index is rebuilt when it is needed.
        let size_of = |suffix| disk.stat(&path(suffix)).map_or(0, |stat| stat.size);
        Ok(Source {
            base_offset,
            next_base_offset,
            size: stat.size,
            index_bytes: size_of(".index"),
            time_index_bytes: size_of(".timeindex"),
            modified_ms: stat.modified_ms,
        })
    }

    /// Returns the offset from which nothing is cleaned: the least of the active segment's base offset, the last stable offset,
    /// the high watermark and the first segment younger than `lag`, which is `min.compaction.lag.ms`.
    fn uncleanable_offset(&self, first_dirty: i64, lag: i64, now: i64) -> Result<i64> {
        let stable = self.ends.last_stable().min(self.high_watermark()?);
        let mut uncleanable = stable.min(self.segments.active.base_offset);
        if lag > 0 {
            for (base, next) in self.dirty_segments(first_dirty) {
                let segment = scan_segment::open(&self.directory, base, Some(next))?;
                let mut newest = SegmentTimes::load(&segment, &|| Ok(()))?.max_timestamp;
                if newest < 0 {
                    newest = segment.stat.modified_ms;
                }
                if newest > now.saturating_sub(lag) {
                    uncleanable = uncleanable.min(base);
                    break;
                }
            }
        }
        Ok(uncleanable.max(first_dirty))
    }

    /// Base offsets of the closed segments, from the one that holds `first_dirty`, each with that of the next segment.
    fn dirty_segments(&self, first_dirty: i64) -> impl Iterator<Item = (i64, i64)> {
        let slot = self
            .segments
            .closed
            .partition_point(|&base| base <= first_dirty);
        let first = if first_dirty >= self.segments.active.base_offset {
            self.segments.closed.len()
        } else {
            slot.saturating_sub(1)
        };
        let nexts = self.segments.closed.iter().skip(first + 1).copied();
        let nexts = nexts.chain([self.segments.active.base_offset]);
        self.segments.closed.iter().skip(first).copied().zip(nexts)
    }

    /// Whether the first batch of a dirty segment is older than `max.compaction.lag.ms`.
    pub(crate) fn must_be_cleaned(&self, plan: &Plan, now: i64) -> Result<bool> {
        let lag = plan.config.max_compaction_lag_ms().max(0);
        let until = now.saturating_sub(lag);
        for (base, next) in self.dirty_segments(plan.first_dirty) {
            let segment = scan_segment::open(&self.directory, base, Some(next))?;
            let mut walk = Walk::new(segment, 0, LOOKUP_BYTES, Vec::new()).headers_only();
            if let Step::Batch(header) = walk.step(false)?
                && (1..until).contains(&header.max_timestamp)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes everything below the active segment durable and writes the recovery point. Cleaning leaves gaps in the offsets,
    /// which the next opening must not take for bytes that a power failure lost.
    pub(crate) fn settle_for_cleaning(&mut self) -> Result<()> {
        self.check_usable()?;
        self.durability.flusher.wait();
        self.durability.flusher.check(&self.directory.path)?;
        if self.ends.recovery_point() < self.segments.active.base_offset {
            self.commit_job()?.run()?;
        }
        self.mark_unclean()?;
        self.save_point()
    }

    /// Replaces the files of all segments of `group` by those of the cleaner, which have the base offset of the group's first
    /// segment and are durable under the suffix `.cleaned`. After an error they are gone, unless the log must be opened again.
    ///
    /// Invariant: after a crash at any moment, Kafka's loader and ours load the log from before or the log from after. Until
    /// all new files are named `.swap`, loading deletes them; from then on they replace the old ones. The directory is synced
    /// between the steps, because no file system promises the order of renames.
    pub(crate) fn swap_in(&mut self, group: &[i64], suffixes: &[&str], plan: &Plan) -> Result<()> {
        let Some(&first) = group.first() else {
            return Ok(());
        };
        let swapped = self.swap_all(group, first, suffixes, plan);
        // Where it is not known which files have which names, all must stay: without the one named `.cleaned` the next opening would take
        // an index named `.swap` for one of the old segment.
        if swapped.is_err() && self.poisoned.is_none() {
            discard(&self.directory, first);
        }
        swapped
    }

    fn swap_all(
        &mut self,
        group: &[i64],
        first: i64,
        suffixes: &[&str],
        plan: &Plan,
    ) -> Result<()> {
        self.check_usable()?;
        self.mark_unclean()?;
        let maps = Arc::clone(&self.maps);
        let _files = maps.changing_files(first..=group.last().copied().unwrap_or(first));
        self.ready(first, suffixes)?;
        let swapped = self.take_places(group, first, suffixes, plan);
        if let Err(error) = &swapped {
            // Only the next opening can find out which files exist.
            self.poison(error);
        }
        swapped
    }

    /// Syncs the directory, renames all output files to `.swap`, and syncs it again: a power failure must not leave one named `.swap` and none
    /// of the others. If that fails, renames them back, so that loading does not take a part of them for all.
    fn ready(&mut self, first: i64, suffixes: &[&str]) -> Result<()> {
        if let Err(error) = self.sync_names() {
            // Nothing was renamed yet.
            if error.is_failed_sync() {
                self.poison(&error);
            }
            return Err(error);
        }
        let renamed = suffixes.iter().rev().try_for_each(|suffix| {
            self.give_state(first, suffix, FileState::Cleaned, FileState::Swap)
        });
        let Err(error) = renamed.and_then(|()| self.sync_names()) else {
            return Ok(());
        };
        let mut undone = Ok(());
        for suffix in suffixes {
            // The `.log` comes first: while any file is named `.cleaned`, loading deletes those named `.swap`. So each of them helps.
            let back = self.give_state(first, suffix, FileState::Swap, FileState::Cleaned);
            undone = undone.and(back.or_else(|error| {
                if error.is_missing_file() {
                    Ok(())
                } else {
                    Err(error)
                }
            }));
        }
        if error.is_failed_sync() {
            self.poison(&error);
        } else if let Err(error) = undone.and_then(|()| self.sync_names()) {
            // Without the sync a crash could bring the names back, after the files named `.cleaned` were deleted.
            self.poison(&error);
        }
        Err(error)
    }

    fn take_places(
        &mut self,
        group: &[i64],
        first: i64,
        suffixes: &[&str],
        plan: &Plan,
    ) -> Result<()> {
        // Not the time by which ages counted: that may be any.
        let now = self.now();
        let due = now.saturating_add(plan.config.file_delete_delay_ms());
        for &base in group {
            if base == first {
                self.schedule_delete_files(base, due)?;
            } else {
                self.schedule_delete(base, due)?;
                self.segments.made_with.remove(&base);
            }
            self.durability
                .unsettled
                .retain(|&unsettled| unsettled != base);
        }
        self.sync_names()?;
        for suffix in suffixes {
            self.give_state(first, suffix, FileState::Swap, FileState::Live)?;
        }
        self.sync_names()?;
        self.durability.names_changed = false;
        self.segments
            .closed
            .retain(|base| *base == first || !group.contains(base));
        let settings = self.settings(now);
        self.segments.made_with.insert(first, settings);
        Ok(())
    }

    fn give_state(&self, base: i64, suffix: &str, from: FileState, to: FileState) -> Result<()> {
        let path = segment_path(&self.directory.path, base, suffix);
        let (from, to) = (with_state(path.clone(), from), with_state(path, to));
        self.directory
            .disk
            .rename(&from, &to)
            .map_err(|error| Error::io(IoCall::Rename, &from, error))
    }

    pub(super) fn sync_names(&self) -> Result<()> {
        let path = &self.directory.path;
        self.directory
            .disk
            .sync_directory(path)
            .map_err(|error| Error::io(IoCall::SyncDirectory, path, error))
    }

    /// Writes the offset up to which the log is cleaned.
    pub(crate) fn set_cleaner_point(&mut self, offset: i64) -> Result<()> {
        self.check_usable()?;
        self.mark_unclean()?;
        let recovery_point = self.ends.recovery_point().min(self.segments.data_end);
        let state = State::new(recovery_point, self.ends.log_start());
        self.place.set_cleaner_point(offset, state)
    }

    /// Called when a log is opened: what recovery cut is neither durable nor cleaned, nor is what is appended in its place.
    pub(super) fn limit_points(&mut self, log_end: i64) -> Result<()> {
        self.place.limit_durable(log_end);
        if self
            .place
            .cleaner_point()?
            .is_some_and(|point| point > log_end)
        {
            let base = self.segments.floor_base(log_end).min(log_end);
            self.place.limit_cleaner_point(base);
        }
        Ok(())
    }

    /// Called before a truncation: records appended in the place of cleaned segments must be cleaned too. Whatever the policy is now:
    /// another one may hold for the next pass.
    pub(super) fn lower_cleaner_point(&mut self, offset: i64) -> Result<()> {
        let base = self.segments.floor_base(offset).min(offset);
        match self.place.cleaner_point()? {
            Some(point) if point > base => self.set_cleaner_point(base),
            _ => Ok(()),
        }
    }
}
