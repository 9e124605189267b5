//! The end of a loading: where the log begins and ends, its leader epochs, its producers.

use super::loader::{Loaded, Loading, RECOVER};
use super::producer_state::{ProducerFiles, Tracked};
use super::sanity_check;
use super::scan_segment::{self, Carried, Contents};
use crate::error::{Error, Result};
use crate::log::state::write_epochs;
use offsetlog_format::LeaderEpochs;
use offsetlog_format::name::LEADER_EPOCH_CHECKPOINT;

impl Loading<'_> {
    /// The leader epochs as stored. A file that is malformed is refused here, as a broker does, and set aside by recovery.
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

    /// What the directory holds, after all that is due was mended.
    pub(in crate::log) fn finish(
        mut self,
        mut bases: Vec<i64>,
        last: Option<&Contents>,
        mut carried: Carried,
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
        // The start may be the end: what a broker would find at its next loading is done now.
        carried.epochs.truncate_from_end(log_end);
        if carried.epochs != *stored_epochs && !self.terms.dry_run {
            write_epochs(self.directory, &carried.epochs)?;
        }
        let mut snapshots = std::mem::take(&mut self.files.snapshots);
        // Where there is no segment, one is about to be made.
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
        self.report.log_start_offset = log_start;
        self.report.log_end_offset = log_end;
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

    /// The producers' state at the base offset of a segment that is to be read. Where it is read whole, as in a broker's recovery, the
    /// snapshots behind go, and one is taken there.
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

    /// A snapshot behind a segment that was read whole.
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
        }
    }

    /// Leader epochs that do not reach that of the last batch were lost: a broker goes on without them.
    fn complete_epochs(
        &mut self,
        epochs: &mut LeaderEpochs,
        last_epoch: i32,
        bases: &[i64],
    ) -> Result<()> {
        let known = epochs.latest().map_or(-1, |entry| entry.epoch);
        // Of an empty last segment nothing is known.
        let is_unknown = last_epoch < 0 && known < 0 && bases.len() > 1;
        if known >= last_epoch && !is_unknown {
            return Ok(());
        }
        let found = scan_segment::epochs_of(self.directory, bases)?;
        let last_epoch = found.latest().map_or(-1, |entry| entry.epoch);
        if found == *epochs {
            return Ok(());
        }
        *epochs = found;
        let path = self.directory.path.join(LEADER_EPOCH_CHECKPOINT);
        let reason = format!("it knew epochs up to {known}, the last batch has {last_epoch}");
        self.report.rebuilt.push((path, reason));
        Ok(())
    }

    /// A log start offset above the end: a broker throws all segments away. Here they are kept aside, and that only where recovery
    /// is asked for or the recovery point says that the log did reach that far: then all records were deleted and the last ones truncated.
    fn take_all_out(&mut self, bases: &mut Vec<i64>, log_end: i64) -> Result<()> {
        let start = self.terms.start;
        let log_start = start.log_start_offset;
        let is_ours = start.own.is_some() || start.noted_by_us || start.crashed_beyond.is_some();
        let reason =
            format!("the log start offset {log_start} is above the log end offset {log_end}");
        // A broker that truncated below the log start and was killed leaves segments without batches: nothing can be lost with them.
        let is_told = self.terms.cut_batches || is_ours || start.recovery_point >= log_start;
        let mut loses_batches = false;
        for &base in bases.iter() {
            loses_batches |= self.holds_batches(base)?;
        }
        if loses_batches && !is_told {
            return Err(Error::log_dir(&self.directory.path, reason).advise(RECOVER));
        }
        for base in bases.drain(..) {
            self.take_out(base, &reason)?;
        }
        let mut snapshots = std::mem::take(&mut self.files.snapshots);
        // All of them lie outside a log that is empty.
        self.producer_files(&[], log_start)
            .drop_outside(&mut snapshots, log_start)
    }
}
