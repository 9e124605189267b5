//! Truncates the log at its end, and deletes records from its start.
//!
//! Source: Kafka's `UnifiedLog.truncateTo`, `truncateFullyAndStartAt` and `maybeIncrementLogStartOffset`.

use super::PartitionWriter;
use crate::disk::{Access, IoCall, read_whole, replace_file};
use crate::error::{Error, ErrorKind, Result, is_out_of_room};
use crate::log::producers::ProducerStates;
use crate::log::recovery::sanity_check;
use crate::log::recovery::scan_segment::{self, ReplayState, Rule};
use crate::log::recovery::{ProducerFiles, Tracked, follow_log_start};
use crate::log::state::{State, write_epochs};
use crate::segment::active::ActiveSegment;
use crate::segment::find::{self, Found, ReadAhead, Trace};
use crate::segment::segment_path;
use crate::segment::walk::SCAN_BYTES;
use offsetlog_format::index_entry::{
    ABORTED_TRANSACTION_BYTES, OFFSET_INDEX_ENTRY_BYTES, OffsetIndexEntry, TIME_INDEX_ENTRY_BYTES,
    TimeIndexEntry, offset_entry_count, time_entry_count,
};
use offsetlog_format::{AbortedTransaction, LeaderEpochs};
use std::io;
use std::sync::Arc;

impl PartitionWriter {
    /// Deletes the records from `offset` on. Returns false if the log ends at `offset` or below. If `offset` is inside a batch,
    /// the whole batch is deleted, and the next append still gets `offset`.
    pub(crate) fn truncate_to(&mut self, offset: i64) -> Result<bool> {
        self.check_usable()?;
        if offset < 0 {
            return Err(Error::argument(
                "offset",
                format!("{offset} found, 0 or more expected"),
            ));
        }
        if offset >= self.log_end() {
            // An epoch may begin at the log end offset, for instance after all records were deleted. It has no records, so it
            // is removed.
            let before = self.epochs.clone();
            self.epochs.truncate_from_end(self.log_end());
            if self.epochs != before {
                self.mark_unclean()?;
                self.write_epochs()?;
            }
            return Ok(false);
        }
        if offset < self.segments.first_base() {
            self.truncate_fully_and_start_at(offset, None)?;
            return Ok(true);
        }
        self.durability.flusher.wait();
        self.durability.flusher.check(&self.directory.path)?;
        self.mark_unclean()?;
        // Expires producers first, as an append would. Those that the rebuild below reads again stay until the next check.
        self.expire_producers(self.now());
        if self.segments.active.base_offset <= offset {
            // The indexes are cut as they are in the files. If this fails, nothing was truncated.
            self.segments.active.write_entries()?;
        }
        let cutting = (offset < self.ends.log_start()).then_some(offset);
        // In this order: the first call also writes the recovery point from memory; the second writes a lower one, which must
        // stay on the disk during the truncation.
        self.lower_cleaner_point(offset)?;
        self.lower_recovery_point(offset, cutting)?;
        let truncated = self.cut_at(offset);
        if let Err(error) = &truncated {
            // The truncation may be partly done: the next writer continues there, and a follower may have read more.
            self.ends.note_cut(self.segments.data_end.min(offset));
            self.poison(error);
        }
        truncated.map(|()| true)
    }

    fn cut_at(&mut self, offset: i64) -> Result<()> {
        let now = self.now();
        let due = now.saturating_add(self.config.effective.file_delete_delay_ms());
        self.durability.unsynced = true;
        let maps = Arc::clone(&self.maps);
        let files = maps.changing_files(self.segments.floor_base(offset)..);
        let kept = self.segments.closed.partition_point(|&base| base <= offset);
        if self.segments.active.base_offset > offset {
            self.segments.made_with.split_off(&offset.saturating_add(1));
            let mut later = self.segments.closed.split_off(kept);
            later.push(self.segments.active.base_offset);
            // The newest first: after a crash the log ends earlier, but has no hole.
            for base in later.into_iter().rev() {
                self.schedule_delete(base, due)?;
            }
            let base = self.segments.closed.pop().unwrap_or(offset);
            self.reopen_cut(base, offset, now)?;
        } else {
            self.reopen_cut(self.segments.active.base_offset, offset, now)?;
        }
        self.segments.cut_inside =
            (self.segments.data_end < offset).then_some((self.segments.data_end, offset));
        let log_start = self.ends.log_start().min(offset);
        self.ends.set_log_start(log_start);
        self.place.limit_start_line(offset);
        let before = self.epochs.clone();
        self.epochs.truncate_from_end(offset);
        if self.epochs != before {
            self.write_epochs()?;
        }
        self.rebuild_producers(offset, now)?;
        self.publish(offset);
        self.ends.note_cut(self.segments.data_end.min(offset));
        drop(files);
        self.sync_truncation()?;
        self.save_point()
    }

    /// Truncates a segment and makes it the active one.
    fn reopen_cut(&mut self, base: i64, offset: i64, now: i64) -> Result<()> {
        // As in a broker, a segment keeps the settings it was created with, even if the log's settings have changed since.
        let mut settings = if base == self.segments.active.base_offset {
            self.segments.active.settings()
        } else {
            self.segments
                .made_with
                .remove(&base)
                .unwrap_or(self.segments.opened_with)
        };
        let rule = Rule {
            index_bytes: settings.index_bytes,
            index_interval: settings.index_interval,
        };
        let path = segment_path(&self.directory.path, base, ".log");
        let segment = scan_segment::open(&self.directory, base, None)?;
        // Preallocated bytes are not part of the log.
        let written = if base == self.segments.active.base_offset {
            self.segments.active.size()
        } else {
            segment.stat.size
        };
        let found = find::find(
            &segment,
            offset,
            ReadAhead::Bytes(SCAN_BYTES),
            Vec::new(),
            &mut Trace::default(),
        );
        let position = match found {
            Ok((walk, Found::Batch(_))) => walk.batch_position(),
            Ok((_, Found::End(_))) => written,
            Err(error) if written < segment.stat.size && error.is_corruption() => written,
            Err(error) => return Err(error),
        };
        // Unmaps the file before it is truncated.
        drop(segment);
        self.cut_file(base, ".log", position.min(written))?;
        self.cut_entries(base, offset)?;
        let tail = if let Some(tail) = sanity_check::read_tail(&self.directory, rule, base)? {
            tail
        } else {
            let mut carried = ReplayState::new(LeaderEpochs::default());
            let contents = scan_segment::scan_segment(
                &self.directory,
                base,
                None,
                rule,
                &mut carried,
                &|_| Ok(()),
            )?;
            if let Some(damage) = contents.damage {
                return Err(damage.error);
            }
            self.write_entries(base, ".index", &contents.entries.offset)?;
            self.write_entries(base, ".timeindex", &contents.entries.time)?;
            sanity_check::of_contents(&contents, base)
        };
        let contents = tail.contents;
        self.segments.data_end = tail.next_offset;
        debug_assert_eq!(contents.size, position.min(written), "{}", path.display());
        if contents.size == 0 {
            settings.created = now;
        }
        self.segments.active = ActiveSegment::open(&self.directory, base, &settings, &contents)?;
        self.segments.active.touch()
    }

    fn cut_file(&self, base: i64, suffix: &str, size: u64) -> Result<()> {
        let path = segment_path(&self.directory.path, base, suffix);
        self.directory
            .disk
            .open(&path, Access::Write)
            .and_then(|file| file.set_len(size))
            .map_err(|error| Error::io(IoCall::Truncate, &path, error))
    }

    fn write_entries(&self, base: i64, suffix: &str, bytes: &[u8]) -> Result<()> {
        let path = segment_path(&self.directory.path, base, suffix);
        replace_file(self.directory.disk.as_ref(), &path, bytes)
            .map_err(|failed| Error::failed_call(&path, failed))
    }

    /// Removes the index entries from `offset` on.
    fn cut_entries(&self, base: i64, offset: i64) -> Result<()> {
        self.cut_index(base, ".index", |bytes| {
            let kept = (0..offset_entry_count(bytes)).take_while(|&slot| {
                OffsetIndexEntry::read(bytes, slot, base).is_ok_and(|entry| entry.offset < offset)
            });
            kept.count() * OFFSET_INDEX_ENTRY_BYTES
        })?;
        self.cut_index(base, ".timeindex", |bytes| {
            let kept = (0..time_entry_count(bytes)).take_while(|&slot| {
                TimeIndexEntry::read(bytes, slot, base).is_ok_and(|entry| entry.offset < offset)
            });
            kept.count() * TIME_INDEX_ENTRY_BYTES
        })?;
        self.cut_index(base, ".txnindex", |bytes| {
            let kept = (0..bytes.len() / ABORTED_TRANSACTION_BYTES).take_while(|&slot| {
                AbortedTransaction::read(bytes, slot).is_ok_and(|entry| entry.last_offset < offset)
            });
            kept.count() * ABORTED_TRANSACTION_BYTES
        })
    }

    /// Truncates an index to the length that `kept` returns for its bytes.
    fn cut_index(&self, base: i64, suffix: &str, kept: impl FnOnce(&[u8]) -> usize) -> Result<()> {
        let path = segment_path(&self.directory.path, base, suffix);
        let disk = self.directory.disk.as_ref();
        let mut bytes = match read_whole(disk, &path, 1 << 31) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Error::io(IoCall::Read, &path, error)),
        };
        let kept = kept(&bytes);
        let replaced = replace_file(disk, &path, front(&bytes, kept));
        match replaced {
            Err((_, error)) if is_out_of_room(&error) && suffix != ".txnindex" => {
                // Writing zeros needs no room. Truncating a file that a reader has mapped would kill the reader.
                let rest = bytes.get_mut(kept..).unwrap_or_default();
                rest.fill(0);
                disk.open(&path, Access::Write)
                    .and_then(|file| file.write_at(rest, kept as u64))
                    .map_err(|error| Error::io(IoCall::Write, &path, error))
            }
            other => other.map_err(|failed| Error::failed_call(&path, failed)),
        }
    }

    fn rebuild_producers(&mut self, log_end: i64, now: i64) -> Result<()> {
        let bases = self.segments.bases();
        let files = ProducerFiles {
            directory: &self.directory,
            bases: &bases,
            log_start: self.ends.log_start(),
            now,
            dry_run: false,
            clean: false,
            recovered: None,
            due: None,
            due_indexes: None,
        };
        let mut tracked = Tracked {
            states: std::mem::replace(&mut self.producers.states, ProducerStates::new()),
            last_snapshot: self.producers.last_snapshot,
        };
        let rebuilt = files.rebuild(&mut self.producers.snapshots, &mut tracked, log_end);
        self.producers.states = tracked.states;
        self.producers.last_snapshot = tracked.last_snapshot;
        rebuilt
    }

    /// Deletes all records and continues at `offset`, as a follower does whose leader has no older records.
    pub(crate) fn truncate_fully_and_start_at(
        &mut self,
        offset: i64,
        log_start: Option<i64>,
    ) -> Result<()> {
        self.check_usable()?;
        if offset < 0 {
            return Err(Error::argument(
                "offset",
                format!("{offset} found, 0 or more expected"),
            ));
        }
        let log_start = log_start.unwrap_or(offset);
        if !(0..=offset).contains(&log_start) {
            return Err(Error::argument(
                "log_start_offset",
                format!("{log_start} found, 0 to {offset} expected"),
            ));
        }
        self.durability.flusher.wait();
        self.durability.flusher.check(&self.directory.path)?;
        self.mark_unclean()?;
        self.lower_cleaner_point(offset)?;
        self.lower_recovery_point(offset, Some(log_start))?;
        let restarted = self.restart_at(offset, log_start);
        if let Err(error) = &restarted {
            self.ends.note_cut(self.segments.data_end.min(offset));
            self.poison(error);
        }
        restarted
    }

    fn restart_at(&mut self, offset: i64, log_start: i64) -> Result<()> {
        let now = self.now();
        let due = now.saturating_add(self.config.effective.file_delete_delay_ms());
        self.durability.unsynced = true;
        self.durability.names_changed = true;
        let maps = Arc::clone(&self.maps);
        let files = maps.changing_files(..);
        let bases = self.segments.bases();
        let settings = self.settings(now);
        // The new segment is created first if its name is free: a directory without segments does not say where its log begins.
        let mut fresh = None;
        if !bases.contains(&offset) {
            fresh = Some(ActiveSegment::create(&self.directory, offset, &settings)?);
            self.sync_names()?;
        }
        self.segments.closed.clear();
        self.segments.made_with.clear();
        for base in bases.into_iter().rev() {
            self.schedule_delete(base, due)?;
        }
        let disk = self.directory.disk.as_ref();
        for snapshot in std::mem::take(&mut self.producers.snapshots) {
            let path = segment_path(&self.directory.path, snapshot, ".snapshot");
            crate::log::recovery::interrupted_swaps::remove(disk, &path)?;
        }
        self.segments.active = match fresh {
            Some(fresh) => fresh,
            None => ActiveSegment::create(&self.directory, offset, &settings)?,
        };
        self.segments.active.touch()?;
        self.epochs = LeaderEpochs::default();
        write_epochs(&self.directory, &self.epochs)?;
        self.producers.states.clear(offset);
        self.producers.last_snapshot = log_start;
        self.take_snapshot(true)?;
        self.segments.data_end = offset;
        self.segments.cut_inside = None;
        self.ends.set_log_start(log_start);
        self.place.move_start_line(log_start);
        self.publish(offset);
        self.ends.note_cut(offset);
        drop(files);
        self.sync_truncation()?;
        self.save_point()
    }

    /// Makes `offset` the log start offset. Returns whether that changed anything. Deletes no file: retention deletes whole
    /// segments below the start. An offset below the first segment of a tiered log is only stored: its broker then deletes what is below it
    /// in the remote store.
    pub(crate) fn delete_records_before(&mut self, offset: i64) -> Result<bool> {
        self.check_usable()?;
        if offset > self.high_watermark()? || offset < 0 {
            return Err(Error::new(ErrorKind::OffsetOutOfRange {
                requested: offset,
                log_start_offset: self.ends.log_start(),
                log_end_offset: self.log_end(),
            })
            .at_path(&self.directory.path));
        }
        if offset <= self.ends.log_start() {
            return self.raise_start_line(offset);
        }
        self.mark_unclean()?;
        if offset > self.ends.recovery_point() {
            // As in a broker the recovery point moves too, so everything below it must be durable.
            self.durability.flusher.wait();
            self.durability.flusher.check(&self.directory.path)?;
            let mut job = self.commit_job()?;
            job.up_to = offset;
            job.run()?;
        }
        let (log_start, recovery_point) = (self.ends.log_start(), self.ends.recovery_point());
        self.ends.set_log_start(offset);
        self.ends.raise_recovery_point(offset);
        let line = self.place.move_start_line(offset);
        // Written before the epochs: epochs below the start do no harm, but missing epochs above it would.
        if let Err(error) = self.save_point() {
            self.place.restore_start_line(line);
            self.ends.set_log_start(log_start);
            self.ends.set_recovery_point(recovery_point);
            return Err(error);
        }
        self.producers.last_snapshot = follow_log_start(
            &mut self.producers.states,
            &self.producers.snapshots,
            offset,
        );
        self.publish(self.log_end());
        self.drop_epochs_below(offset)?;
        Ok(true)
    }

    /// Moves the start of a log whose line is below its first segment up to `offset`, which is not above the start that is known here.
    fn raise_start_line(&mut self, offset: i64) -> Result<bool> {
        if self.place.start_line().is_none_or(|line| line >= offset) {
            return Ok(false);
        }
        self.mark_unclean()?;
        let line = self.place.move_start_line(offset);
        if let Err(error) = self.save_point() {
            self.place.restore_start_line(line);
            return Err(error);
        }
        self.drop_epochs_below(offset)?;
        Ok(true)
    }

    /// Removes the epochs below the new log start offset.
    fn drop_epochs_below(&mut self, log_start: i64) -> Result<()> {
        let before = self.epochs.clone();
        self.epochs.truncate_from_start(log_start);
        if self.epochs != before
            && let Err(error) = self.write_epochs()
        {
            // The records are deleted all the same. The next change of the epochs writes these, too.
            self.epochs = before;
            if error.is_failed_sync() {
                self.poison(&error);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Lowers the recovery point before the first change, so that recovery after a crash reads everything that is being
    /// changed. Notes `cutting`, too, for readers in other processes: if the log start offset is about to be lowered behind what is cut, they
    /// would take the start for the end meanwhile, as after a truncation inside a batch; if the log begins anew, the old segments and the new
    /// one for a log with a gap.
    fn lower_recovery_point(&mut self, offset: i64, cutting: Option<i64>) -> Result<()> {
        self.durability.gap = self.durability.gap.filter(|&base| base <= offset);
        let durable = self.ends.recovery_point().max(self.place.durable());
        if durable <= offset.min(self.segments.active.base_offset) && cutting.is_none() {
            return Ok(());
        }
        // The position of the cut in its segment is not known yet, so this is the segment's base offset.
        let slot = self.segments.closed.partition_point(|&base| base <= offset);
        let base = if self.segments.active.base_offset <= offset {
            self.segments.active.base_offset
        } else {
            let before = slot
                .checked_sub(1)
                .and_then(|slot| self.segments.closed.get(slot));
            before.copied().unwrap_or(0)
        };
        self.place.limit_durable(base);
        let state = self.state_at(self.ends.recovery_point().min(base));
        let noted = self.save_state(State { cutting, ..state });
        if noted.is_err()
            && cutting.is_some()
            && let Err(error) = self.save_state(state)
            && self.place.may_have_cut_note()
        {
            // Readers would wait for what does not happen.
            self.poison(&error);
        }
        noted?;
        self.ends
            .set_recovery_point(self.ends.recovery_point().min(offset));
        Ok(())
    }

    /// Makes a truncation durable: after a crash the deleted bytes must not reappear among those that are appended next.
    fn sync_truncation(&mut self) -> Result<()> {
        let mut job = self.commit_job()?;
        job.names = true;
        job.up_to = self.ends.recovery_point();
        job.run()
    }

    /// Writes the recovery point and the log start offset.
    pub(super) fn save_point(&self) -> Result<()> {
        self.save_state(self.state_at(self.ends.recovery_point()))
    }

    fn save_state(&self, state: State) -> Result<()> {
        let (log_end, first_base) = (self.ends.log_end(), self.segments.first_base());
        self.place.checkpoint(state, log_end, first_base)
    }

    /// Returns what to write for a recovery point. After a truncation inside a batch that is at most the end of the records:
    /// the log ends there when it is opened again, and records that are missing later were above the point.
    pub(super) fn state_at(&self, recovery_point: i64) -> State {
        let point = match self.segments.cut_inside {
            Some((records_end, log_end)) if recovery_point <= log_end => {
                recovery_point.min(records_end)
            }
            _ => recovery_point,
        };
        State::new(point, self.ends.log_start())
    }
}

fn front(bytes: &[u8], count: usize) -> &[u8] {
    bytes.get(..count).unwrap_or(bytes)
}
