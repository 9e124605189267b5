//! Rebuilds the producer state of a log from its snapshots and the batches after them.
//!
//! Source: Kafka's `UnifiedLog.rebuildProducerState`. Unlike Kafka, this also scans the log if all snapshots are missing after a clean
//! shutdown, so that duplicates are still recognised.

use super::due_indexes::DueIndexes;
use super::due_snapshots::DueSnapshots;
use super::interrupted_swaps;
use super::scan_segment::{self, producer_batch};
use crate::disk::read_whole;
use crate::error::{Error, Result};
use crate::log::producers::{
    Changes, Origin, PRODUCER_EXPIRATION_MS, ProducerStates, TRANSACTION_VERSION_UNKNOWN,
};
use crate::log::state::{PartitionState, snapshot_of, write_snapshot};
use crate::segment::find::{self, ReadAhead, Trace};
use crate::segment::walk::{SCAN_BYTES, Step};
use crate::segment::{Directory, segment_path};
use offsetlog_format::ProducerSnapshotEntry;
use offsetlog_format::snapshot::read_producer_snapshot;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// What a broker's `ProducerStateManager` holds: the producers, and the offset of their newest snapshot.
#[derive(Debug, Clone)]
pub(in crate::log) struct Tracked {
    pub(in crate::log) states: ProducerStates,
    pub(in crate::log) last_snapshot: i64,
}

impl Tracked {
    /// An empty state.
    pub(in crate::log) fn new() -> Self {
        Self {
            states: ProducerStates::new(),
            last_snapshot: 0,
        }
    }
}

/// Whether the file is missing or its contents are wrong, rather than the system call having failed.
fn is_no_snapshot(error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::NotFound => true,
        // It may be a valid snapshot: without it, producers whose records are deleted would be forgotten.
        io::ErrorKind::FileTooLarge => false,
        _ => error.raw_os_error().is_none(),
    }
}

/// Adapts the producer state to a log start offset that was moved to `log_start`, or found there. Returns the offset of the newest
/// snapshot, or `log_start` if there is none.
pub(in crate::log) fn follow_log_start(
    states: &mut ProducerStates,
    snapshots: &BTreeSet<i64>,
    log_start: i64,
) -> i64 {
    states.complete_until(log_start);
    if states.end_offset() < log_start {
        states.set_end_offset(log_start);
    }
    snapshots.last().copied().unwrap_or(log_start)
}

/// The snapshot files, and the log that they belong to.
pub(in crate::log) struct ProducerFiles<'l> {
    pub(in crate::log) directory: &'l Arc<Directory>,
    pub(in crate::log) bases: &'l [i64],
    pub(in crate::log) log_start: i64,
    pub(in crate::log) now: i64,
    pub(in crate::log) dry_run: bool,
    /// Whether the last shutdown was clean, and the log is being loaded.
    pub(in crate::log) clean: bool,
    /// Where the first change is noted before it is made, in a recovery.
    pub(in crate::log) recovered: Option<&'l PartitionState>,
    /// What is left for the end of a recovery. Without it a snapshot is deleted, or written durably, at once.
    pub(in crate::log) due: Option<&'l RefCell<DueSnapshots>>,
    /// The indexes that wait in that recovery.
    pub(in crate::log) due_indexes: Option<&'l RefCell<DueIndexes>>,
}

impl ProducerFiles<'_> {
    /// Brings the state to `end`: the log end offset, or the base offset of a segment that is about to be scanned. Deletes snapshots
    /// outside the log and writes those that are due.
    pub(in crate::log) fn rebuild(
        &self,
        snapshots: &mut BTreeSet<i64>,
        tracked: &mut Tracked,
        end: i64,
    ) -> Result<()> {
        // A broker takes a snapshot at the base offsets of the last two segments as it passes them.
        let ends = self.bases.len().saturating_sub(2);
        if self.clean && snapshots.is_empty() {
            // A broker writes empty snapshots here, and forgets the producers.
            for &offset in self.bases.iter().skip(ends).chain([&end]) {
                self.scan(&mut tracked.states, offset)?;
                tracked.states.set_end_offset(offset);
                self.write(snapshots, tracked)?;
            }
            return Ok(());
        }
        // A broker does not scan if a truncation found no producers.
        let is_settled = tracked.states.is_empty() && tracked.states.end_offset() >= end;
        self.drop_outside(snapshots, end)?;
        if tracked.states.end_offset() == end {
            tracked.last_snapshot =
                follow_log_start(&mut tracked.states, snapshots, self.log_start);
        } else {
            self.load_newest(snapshots, tracked)?;
        }
        if !is_settled {
            let first = self
                .bases
                .partition_point(|&base| base <= tracked.states.end_offset())
                .saturating_sub(1);
            for (slot, &base) in self.bases.iter().enumerate().skip(first) {
                let from = base.max(tracked.states.end_offset()).max(self.log_start);
                if base >= end || tracked.states.end_offset() >= end {
                    break;
                }
                tracked.states.set_end_offset(from);
                if slot >= ends {
                    self.write(snapshots, tracked)?;
                }
                self.scan_segment(&mut tracked.states, slot, end)?;
            }
        }
        tracked.states.set_end_offset(end);
        self.write(snapshots, tracked)
    }

    /// Loads the newest readable snapshot; deletes the unreadable ones above it. Without one, the state begins empty at the log start
    /// offset.
    fn load_newest(&self, snapshots: &mut BTreeSet<i64>, tracked: &mut Tracked) -> Result<()> {
        while let Some(&snapshot) = snapshots.last() {
            if let Some(entries) = self.read(snapshot)? {
                let expiration_ms = PRODUCER_EXPIRATION_MS;
                tracked
                    .states
                    .load_snapshot(&entries, snapshot, self.now, expiration_ms);
                tracked.last_snapshot = snapshot;
                return Ok(());
            }
            self.remove(snapshots, snapshot)?;
        }
        tracked.states.clear(self.log_start);
        tracked.last_snapshot = self.log_start;
        Ok(())
    }

    /// Takes a snapshot, unless one exists at this offset or above.
    pub(in crate::log) fn write(
        &self,
        snapshots: &mut BTreeSet<i64>,
        tracked: &mut Tracked,
    ) -> Result<()> {
        let offset = tracked.states.end_offset();
        if offset <= tracked.last_snapshot {
            return Ok(());
        }
        if !self.dry_run {
            match self.write_now_or_later(&tracked.states) {
                // Without it the next opening scans more. A log on a full disk must open, so that room can be made.
                Err(error) if error.is_out_of_room() => return Ok(()),
                written => written?,
            }
        }
        snapshots.insert(offset);
        tracked.last_snapshot = offset;
        Ok(())
    }

    fn write_now_or_later(&self, states: &ProducerStates) -> Result<()> {
        let Some(due) = self.due else {
            self.before_change()?;
            return write_snapshot(self.directory, states);
        };
        let (offset, bytes) = snapshot_of(states)?;
        let mut due = due.borrow_mut();
        if !due.keep_if_same(self.directory, offset, &bytes)? {
            self.before_change()?;
            due.write(self.directory, offset, &bytes)?;
        }
        if due.has_many_unsynced() {
            due.sync(self.directory, &|| self.before_change())?;
        }
        Ok(())
    }

    /// Deletes snapshots that belong to no segment, when a log is loaded. The newest of them is kept if it is above the last base offset:
    /// a clean shutdown wrote it.
    pub(in crate::log) fn drop_stray(&self, snapshots: &mut BTreeSet<i64>) -> Result<()> {
        let is_base = |offset: i64| self.bases.binary_search(&offset).is_ok();
        let last_base = self.bases.last().copied();
        let mut newest_first = snapshots.iter().rev().copied();
        let kept = newest_first
            .find(|&offset| !is_base(offset))
            .filter(|&offset| last_base.is_none_or(|base| offset > base));
        let stray: Vec<i64> = snapshots
            .iter()
            .copied()
            .filter(|&offset| !is_base(offset) && kept != Some(offset))
            .collect();
        for offset in stray {
            self.remove(snapshots, offset)?;
        }
        Ok(())
    }

    pub(in crate::log) fn drop_outside(
        &self,
        snapshots: &mut BTreeSet<i64>,
        end: i64,
    ) -> Result<()> {
        let outside: Vec<i64> = snapshots
            .iter()
            .copied()
            .filter(|&offset| offset <= self.log_start || offset > end)
            .collect();
        for offset in outside {
            self.remove(snapshots, offset)?;
        }
        Ok(())
    }

    fn remove(&self, snapshots: &mut BTreeSet<i64>, offset: i64) -> Result<()> {
        snapshots.remove(&offset);
        if self.dry_run {
            return Ok(());
        }
        if let Some(due) = self.due {
            due.borrow_mut().doubt(offset);
            return Ok(());
        }
        self.before_change()?;
        let path = segment_path(&self.directory.path, offset, ".snapshot");
        interrupted_swaps::remove(self.directory.disk.as_ref(), &path)
    }

    fn before_change(&self) -> Result<()> {
        match self.recovered {
            Some(place) => place.note_recovery(),
            None => Ok(()),
        }
    }

    /// Returns the entries of a snapshot; `None` if it is missing or malformed, and the next older one is used.
    fn read(&self, offset: i64) -> Result<Option<Vec<ProducerSnapshotEntry>>> {
        let path = segment_path(&self.directory.path, offset, ".snapshot");
        let limit = self.directory.limits.max_state_file_bytes;
        match read_whole(self.directory.disk.as_ref(), &path, limit) {
            Ok(bytes) => Ok(read_producer_snapshot(&bytes).ok()),
            Err(error) if is_no_snapshot(&error) => Ok(None),
            Err(error) => Err(Error::state_file(&path, error)),
        }
    }

    /// Replays the batches from the state's end offset to `end`.
    fn scan(&self, states: &mut ProducerStates, end: i64) -> Result<()> {
        let from = states.end_offset().max(self.log_start);
        if from >= end {
            return Ok(());
        }
        states.set_end_offset(from);
        let first = self.bases.partition_point(|&base| base <= from);
        for slot in first.saturating_sub(1)..self.bases.len() {
            self.scan_segment(states, slot, end)?;
        }
        Ok(())
    }

    /// Replays a segment's batches from the state's end offset to `end`. As in a broker they are one change: the producer epochs before
    /// the first and after the last of them decide which batches are remembered.
    fn scan_segment(&self, states: &mut ProducerStates, slot: usize, end: i64) -> Result<()> {
        let Some(&base) = self.bases.get(slot).filter(|&&base| base < end) else {
            return Ok(());
        };
        // The walk begins where an index says.
        if let (Some(indexes), Some(due)) = (self.due_indexes, self.due) {
            indexes.borrow_mut().settle((self.directory, due))?;
        }
        let from = states.end_offset();
        let next = self.bases.get(slot + 1).copied();
        let segment = scan_segment::open(self.directory, base, next)?;
        let mut walk = find::start(
            &segment,
            from,
            ReadAhead::Bytes(SCAN_BYTES),
            Vec::new(),
            &mut Trace::default(),
        )?;
        let mut changes = Changes::default();
        loop {
            let header = match walk.step(false) {
                Ok(Step::Batch(header)) => header,
                Ok(Step::End(_)) => break,
                // This pass does not look for damage, and readers do not get past it either.
                Err(error) if error.is_corruption() => break,
                Err(error) => return Err(error),
            };
            if header.last_offset >= end {
                break;
            }
            if header.last_offset >= from
                && let Some(batch) = producer_batch(&header, &mut walk)?
            {
                states
                    .prepare(
                        &mut changes,
                        &batch,
                        Origin::Recovery,
                        TRANSACTION_VERSION_UNKNOWN,
                    )
                    .map_err(|error| walk.place(error))?;
            }
        }
        states.apply(&changes);
        Ok(())
    }
}
