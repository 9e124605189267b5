//! The last steps of loading a log: its start and end offsets, its leader epochs and its producer state.

use super::loader::{Loaded, Loading, RECOVER};
use super::producer_state::{ProducerFiles, Tracked};
use super::sanity_check;
use super::scan_segment::{self, ReplayState, ScannedSegment};
use crate::error::{Error, Result};
use crate::log::named_offsets::lost_end;
use crate::log::state::write_epochs;
use offsetlog_format::LeaderEpochs;
use offsetlog_format::name::LEADER_EPOCH_CHECKPOINT;

/// The advice where leader epochs are lost that no batch here has.
const REBUILD: &str = "`offsetlog recover` goes on with the epochs of the segments that are here";

impl Loading<'_> {
    /// Returns the stored leader epochs. Opening refuses a malformed file, as a broker does; `recover` keeps a copy and starts without
    /// epochs.
    pub(in crate::log) fn read_epochs(&mut self) -> Result<LeaderEpochs> {
        let path = self.directory.path.join(LEADER_EPOCH_CHECKPOINT);
        let Some(bytes) = crate::log::named_offsets::read_optional(self.directory, &path)? else {
            return Ok(LeaderEpochs::default());
        };
        match LeaderEpochs::parse(&bytes) {
            Ok(epochs) => Ok(epochs),
            Err(error) if self.terms.cut_batches => {
                self.report.rebuilt.push((path.clone(), error.to_string()));
                self.keep_bytes(&path, 0, &bytes)?;
                Ok(LeaderEpochs::default())
            }
            Err(error) => Err(Error::new(error).at_path(&path).advise(RECOVER)),
        }
    }

    /// Completes the loading after every segment is checked and repaired.
    pub(in crate::log) fn finish(
        mut self,
        mut bases: Vec<i64>,
        last: Option<&ScannedSegment>,
        mut carried: ReplayState,
        stored_epochs: &LeaderEpochs,
    ) -> Result<Loaded> {
        let start = self.terms.start;
        let mut active = match (last, bases.last()) {
            (Some(contents), Some(&base)) => Some(sanity_check::of_contents(contents, base)),
            (None, Some(_)) => self.tail.take(),
            _ => None,
        };
        let mut log_end = match &active {
            Some(active) => active.next_offset,
            None => start.log_start_offset.max(0),
        };
        let mut tracked = Tracked::new();
        if log_end < start.log_start_offset {
            self.take_all_out(&mut bases, log_end)?;
            active = None;
            carried.epochs = LeaderEpochs::default();
            log_end = start.log_start_offset;
            tracked.states.set_end_offset(log_end);
        }
        let log_start = start
            .log_start_offset
            .max(bases.first().copied().unwrap_or(0));
        if let Some(tail) = &active
            && tail.next_offset > log_start
            && start.own.is_none()
        {
            self.complete_epochs(&mut carried.epochs, tail.last_epoch, &bases)?;
        }
        carried.epochs.truncate_from_end(log_end);
        carried.epochs.truncate_from_start(start.log_start_offset);
        // If the log start offset is the log end offset, the entry just kept starts at the end. A broker drops it at its next loading.
        carried.epochs.truncate_from_end(log_end);
        if carried.epochs != *stored_epochs && !self.terms.dry_run {
            self.before_change()?;
            write_epochs(self.directory, &carried.epochs)?;
        }
        let mut snapshots = std::mem::take(&mut self.files.snapshots);
        // A log without segments gets its first one at the log start offset.
        let expected = if bases.is_empty() {
            &[log_start]
        } else {
            &*bases
        };
        let files = ProducerFiles {
            clean: start.clean,
            ..self.producer_files(expected, log_start)
        };
        files.drop_stray(&mut snapshots)?;
        files.rebuild(&mut snapshots, &mut tracked, log_end)?;
        self.settle_snapshots()?;
        self.report.log_start_offset = log_start;
        self.report.log_end_offset = log_end;
        // Closing the log lowers the checkpoint's line, as a broker's start does: from then on nobody can tell.
        let told = lost_end(start.promised(), log_end);
        self.report.warnings.extend(told);
        let recovery_point = if start.clean {
            log_end
        } else {
            start.recovery_point.min(log_end)
        };
        Ok(Loaded {
            bases,
            active: active.map(|active| active.contents),
            epochs: carried.epochs,
            producers: tracked.states,
            snapshots,
            last_snapshot: tracked.last_snapshot,
            log_start,
            recovery_point: recovery_point.max(log_start),
            gap: self.gap,
            report: self.report,
        })
    }

    /// Does with the snapshots what was left for the end.
    fn settle_snapshots(&self) -> Result<()> {
        let mut due = self.due_snapshots.borrow_mut();
        due.settle(self.directory, &|| self.before_change())
    }

    /// Returns the producer state at the base offset of a segment that is about to be scanned. If the whole segment is recovered, this
    /// also deletes the snapshots above that offset and takes one there, as a broker's recovery does.
    pub(in crate::log) fn producers_before(
        &mut self,
        base: i64,
        bases: &[i64],
        is_whole: bool,
    ) -> Result<Tracked> {
        let mut tracked = Tracked::new();
        let mut snapshots = self.files.snapshots.clone();
        let mut files = self.producer_files(bases, self.terms.start.log_start_offset);
        files.dry_run |= !is_whole;
        files.rebuild(&mut snapshots, &mut tracked, base)?;
        if is_whole {
            self.files.snapshots = snapshots;
        }
        Ok(tracked)
    }

    /// Takes a producer snapshot at the end of a segment that was recovered.
    pub(in crate::log) fn snapshot_behind(
        &mut self,
        bases: &[i64],
        tracked: &mut Tracked,
    ) -> Result<()> {
        let mut snapshots = std::mem::take(&mut self.files.snapshots);
        let written = self
            .producer_files(bases, self.terms.start.log_start_offset)
            .write(&mut snapshots, tracked);
        self.files.snapshots = snapshots;
        written
    }

    fn producer_files<'f>(&'f self, bases: &'f [i64], log_start: i64) -> ProducerFiles<'f> {
        ProducerFiles {
            directory: self.directory,
            bases,
            log_start,
            now: self.terms.now,
            dry_run: self.terms.dry_run,
            clean: false,
            recovered: self.recovered_place(),
            due: Some(&self.due_snapshots),
            due_indexes: Some(&self.due_indexes),
        }
    }

    /// Completes leader epochs that stop below the epoch of the last batch: entries were lost. A broker keeps the short list.
    ///
    /// The batches only tell of their own offsets. Entries that begin before them stay: with tiered storage they are of segments in the
    /// remote store, and a broker deletes those whose epochs it does not know.
    fn complete_epochs(
        &mut self,
        epochs: &mut LeaderEpochs,
        last_epoch: i32,
        bases: &[i64],
    ) -> Result<()> {
        let known = epochs.latest().map_or(-1, |entry| entry.epoch);
        // An empty last segment has no epoch: only the earlier segments can tell.
        let is_unknown = last_epoch < 0 && known < 0 && bases.len() > 1;
        if known >= last_epoch && !is_unknown {
            return Ok(());
        }
        let found = scan_segment::epochs_of(self.directory, bases)?;
        let last_epoch = found.latest().map_or(-1, |entry| entry.epoch);
        let mut completed = epochs.clone();
        completed.truncate_from_end(bases.first().copied().unwrap_or(0));
        for &entry in found.entries() {
            // Drops entries that contradict the batches.
            completed.assign(entry);
        }
        if completed == *epochs {
            return Ok(());
        }
        *epochs = completed;
        let path = self.directory.path.join(LEADER_EPOCH_CHECKPOINT);
        let reason = format!("it knew epochs up to {known}, the last batch has {last_epoch}");
        self.report.rebuilt.push((path, reason));
        Ok(())
    }

    /// Called before anything is written. Of a log without stored epochs that begins below its first segment, those of the offsets before
    /// it are lost: with tiered storage a broker then deletes what the remote store has of them. Opening refuses to go on with the epochs of
    /// the batches.
    pub(in crate::log) fn tell_lost_epochs(
        &mut self,
        stored_epochs: &LeaderEpochs,
        bases: &[i64],
    ) -> Result<()> {
        let (Some(start), Some(&first)) = (self.terms.start.line, bases.first()) else {
            return Ok(());
        };
        if start >= first || !stored_epochs.entries().is_empty() {
            return Ok(());
        }
        let epoch = scan_segment::newest_segment_epoch(self.directory, bases)?;
        if epoch.is_some_and(|epoch| epoch < 0) {
            // Its format has none.
            return Ok(());
        }
        let path = self.directory.path.join(LEADER_EPOCH_CHECKPOINT);
        let reason = format!(
            "no readable leader-epoch-checkpoint is here, and the log begins at {start}, before its first segment: the leader epochs of \
             offsets {start} to {} are lost. With tiered storage a broker deletes remote segments whose epochs it does not know: put a copy \
             of the file here, of another replica or of the remote store, before a broker starts",
            first - 1
        );
        if epoch.is_some() && !self.terms.cut_batches {
            return Err(Error::log_dir(&path, reason).advise(REBUILD));
        }
        self.report.warnings.push(reason);
        if epoch.is_some() && !self.report.rebuilt.iter().any(|(file, _)| *file == path) {
            let reason = "there is none; the batches have epochs".to_owned();
            self.report.rebuilt.push((path, reason));
        }
        Ok(())
    }

    /// Removes all segments, because the log start offset is above the log end offset. A broker deletes them; this moves them to the
    /// folder for cut bytes. If they hold batches, this fails unless one of these is true: `recover` was called, a mark of our own writer
    /// explains the offsets, or the recovery point is at or above the log start offset. The last means that the log once reached that
    /// far: its records were deleted and the rest truncated.
    fn take_all_out(&mut self, bases: &mut Vec<i64>, log_end: i64) -> Result<()> {
        let start = self.terms.start;
        let log_start = start.log_start_offset;
        let is_ours = start.own.is_some() || start.noted_by_us || start.crashed_beyond.is_some();
        let reason =
            format!("the log start offset {log_start} is above the log end offset {log_end}");
        // A broker killed while truncating below the log start offset leaves segments without batches: removing them loses nothing.
        let is_told = self.terms.cut_batches || is_ours || start.recovery_point >= log_start;
        let mut loses_batches = false;
        for &base in bases.iter() {
            loses_batches |= self.holds_batches(base)?;
        }
        if loses_batches && !is_told {
            return Err(Error::log_dir(&self.directory.path, reason).advise(RECOVER));
        }
        // All of it is below the log start: opening takes nothing away that could still be read.
        if self.terms.cut_batches {
            self.before_cut(loses_batches, log_start)?;
        }
        self.quarantine_segments(&std::mem::take(bases), &reason)?;
        let mut snapshots = std::mem::take(&mut self.files.snapshots);
        // Every snapshot is outside a log that is empty.
        self.producer_files(&[], log_start)
            .drop_outside(&mut snapshots, log_start)
    }
}
