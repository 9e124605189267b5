//! Reads one range of a log: opens its segments one after the other, and stops at each batch that can hold a wanted record.

use super::newer_view;
use super::options::{ScanRange, ScanStatistics};
use super::progress::Progress;
use super::report::CorruptionPolicy;
use crate::error::Result;
use crate::log::filter::Filter;
use crate::log::transactions::{TxnOutcome, TxnOutcomes, TxnOutcomesDamage};
use crate::log::values::Isolation;
use crate::log::{LOOKS_BETWEEN_MAX, Log, View};
use crate::segment::find::{self, ReadAhead, Trace};
use crate::segment::walk::{SCAN_BYTES, Step, TornTail, Walk};
use offsetlog_format::BatchHeader;
use std::sync::Arc;

/// Bytes scanned between two checks for interruption.
const CHECK_BYTES: u64 = 4 << 20;

/// The position of a scan within one log.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) log: Log,
    pub(super) view: Arc<View>,
    /// Slot of the next segment to open.
    pub(super) slot: usize,
    pub(super) walk: Option<Walk>,
    /// Where the range began, and where what is left of it begins.
    pub(super) first: i64,
    pub(super) start: i64,
    pub(super) stop: i64,
    /// The range's own stop; the greatest number if it ends where the log does. The cursor's may be lower: the last stable offset.
    pub(super) range_stop: i64,
    pub(super) is_committed: bool,
    /// Whether the view may be some milliseconds older than this cursor. It is asked once whether that is why it ends early.
    pub(super) may_be_old: bool,
    /// How often in a row the log changed while markers were looked for.
    pub(super) marker_looks: u32,
    /// Offset after the last batch that was read.
    pub(super) next: i64,
    /// Of a follower: how far it is, and where its range ended short the last time.
    pub(super) progress: Option<Arc<Progress>>,
    pub(super) ended_at: Option<i64>,
    pub(super) txn_outcomes: Option<Arc<TxnOutcomes>>,
    /// How often the walk had read from its file when the outcomes were last found to be of the same state of the log.
    pub(super) fills_checked: u64,
    /// Why the last stable offset is unknown.
    pub(super) lso_error: Option<TxnOutcomesDamage>,
    unchecked_bytes: u64,
    /// A fresh look after an error found the current segment unchanged.
    pub(super) is_current: bool,
    /// Number of newer views taken since the cursor last advanced.
    pub(super) looks: u32,
    /// Offset after the last hole that was reported.
    pub(super) reported_up_to: i64,
    /// Offset after the last batch in the statistics. A newer view of the same log starts with batches that were counted
    /// before.
    counted: i64,
    /// Base offset of the last segment in the statistics.
    counted_segment: Option<i64>,
}

/// The result of a step.
pub(super) enum CursorEvent {
    Batch(BatchHeader),
    /// A batch of a transaction whose outcome is hidden by damage. It has been reported.
    Undecided,
    /// The log of a follower may have been truncated. With the leader epoch of the batch that was read, -1 without one.
    MayBeCut(i32),
    End,
}

impl Cursor {
    /// Begins a range. Looks again if a writer in another process was found between two states of the log.
    pub(super) fn new(
        range: &ScanRange,
        progress: Option<&Arc<Progress>>,
        filter: &Filter,
        bad: &CorruptionPolicy,
    ) -> Result<Self> {
        let mut looks = 0;
        loop {
            let error = match Self::begin(range.clone(), progress.cloned(), filter, bad) {
                Ok(cursor) => return Ok(cursor),
                Err(error) => error,
            };
            let view = range.log.view();
            if looks >= LOOKS_BETWEEN_MAX || !view.is_between_states(&error) {
                return Err(error);
            }
            range.log.view_after(&view, error)?;
            looks += 1;
        }
    }

    fn begin(
        range: ScanRange,
        progress: Option<Arc<Progress>>,
        filter: &Filter,
        bad: &CorruptionPolicy,
    ) -> Result<Self> {
        let log = range.log;
        let is_committed = filter.isolation == Isolation::ReadCommitted;
        let wanted = match (&progress, range.start) {
            (Some(progress), Some(start)) => Some(progress.start_of(&log, start)?),
            (_, start) => start,
        };
        let (view, may_be_old) = newer_view::first(&log, wanted, range.stop, is_committed)?;
        // The log may have lost its start or its end since: nothing is left out without a word.
        let (view, (stable, start)) = log.in_view(view, |view| {
            if bad.notes() {
                let stable = newer_view::stable_in(&log, view, is_committed)?;
                return Ok((stable, newer_view::start_in(&log, view, wanted)?));
            }
            let stable = if is_committed {
                log.last_stable_offset_of(view)?
            } else {
                i64::MAX
            };
            Ok((Ok(stable), log.checked_start(view, wanted)?))
        })?;
        let stop = range.stop.unwrap_or(i64::MAX);
        let stop = stop.min(*stable.as_ref().unwrap_or(&i64::MAX));
        let lso_error = stable.err();
        Ok(Self {
            slot: view.floor_slot(start),
            log,
            view,
            walk: None,
            first: start,
            start,
            stop,
            range_stop: range.stop.unwrap_or(i64::MAX),
            is_committed,
            may_be_old,
            marker_looks: 0,
            next: start,
            progress,
            ended_at: None,
            txn_outcomes: None,
            fills_checked: 0,
            lso_error,
            unchecked_bytes: 0,
            is_current: false,
            looks: 0,
            reported_up_to: i64::MIN,
            counted: i64::MIN,
            counted_segment: None,
        })
    }

    pub(super) fn step(
        &mut self,
        filter: &Filter,
        statistics: &mut ScanStatistics,
        buffer: &mut Vec<u8>,
        torn_tails: &mut Vec<TornTail>,
        bad: &CorruptionPolicy,
    ) -> Result<CursorEvent> {
        loop {
            if self.may_be_cut(None) {
                return Ok(CursorEvent::MayBeCut(-1));
            }
            if self.view.was_cut() {
                self.go_on_in(self.log.fresh_view()?, buffer)?;
            }
            if self.walk.is_none() && !self.open_next(statistics, buffer)? {
                if self.go_on_behind(buffer, bad)? {
                    continue;
                }
                return Ok(CursorEvent::End);
            }
            let Some(walk) = self.walk.as_mut() else {
                return Ok(CursorEvent::End);
            };
            let header = match walk.step(false)? {
                Step::Batch(header) => header,
                Step::End(torn) => {
                    if self.look_again(buffer)? {
                        continue;
                    }
                    if let Some(torn) = torn {
                        bad.report.note_torn(&self.log, torn.clone());
                        torn_tails.push(torn);
                    }
                    self.close(buffer);
                    continue;
                }
            };
            let behind = header.last_offset.saturating_add(1);
            let size = header.size_bytes as u64;
            let is_new = behind > self.counted;
            if is_new {
                self.counted = behind;
                statistics.bytes += size;
            }
            self.unchecked_bytes += size;
            if self.unchecked_bytes >= CHECK_BYTES {
                self.unchecked_bytes = 0;
                self.log.check()?;
            }
            if header.base_offset.is_some_and(|base| base >= self.stop) {
                if self.go_on_behind(buffer, bad)? {
                    continue;
                }
                return Ok(CursorEvent::End);
            }
            let is_excluded = header.last_offset < self.start || filter.excludes(&header);
            // A flipped bit can turn a batch of records into a control batch, which would be skipped. Control batches are few
            // and small, so their checksums are verified.
            let is_trusted = header.last_offset < self.start || !header.attributes.is_control();
            let is_passed = is_excluded && (is_trusted || !filter.verify_checksums);
            if filter.verify_checksums && !is_passed {
                if let Some(torn) = walk.verify(&header)? {
                    if self.look_again(buffer)? {
                        continue;
                    }
                    bad.report.note_torn(&self.log, torn.clone());
                    torn_tails.push(torn);
                    self.close(buffer);
                    continue;
                }
            } else if !is_passed {
                walk.batch()?;
            }
            if self.may_be_cut(Some(&header)) {
                return Ok(CursorEvent::MayBeCut(header.leader_epoch));
            }
            if is_excluded {
                statistics.batches_skipped += u64::from(is_new);
                self.pass(behind, header.leader_epoch);
                continue;
            }
            let in_transaction =
                header.attributes.is_transactional() && !header.attributes.is_control();
            if in_transaction && filter.isolation == Isolation::ReadCommitted {
                let from = header.base_offset.unwrap_or(header.last_offset);
                let Some(txn_outcomes) = self.txn_outcomes_from(from, buffer)? else {
                    continue;
                };
                match self.txn_outcome(&txn_outcomes, &header, bad)? {
                    TxnOutcome::Committed => {}
                    TxnOutcome::Aborted => {
                        statistics.batches_skipped += u64::from(is_new);
                        self.pass(behind, header.leader_epoch);
                        continue;
                    }
                    TxnOutcome::Undecided => {
                        self.pass(behind, header.leader_epoch);
                        return Ok(CursorEvent::Undecided);
                    }
                }
            }
            self.pass(behind, header.leader_epoch);
            return Ok(CursorEvent::Batch(header));
        }
    }

    /// Continues after a batch. A batch that keeps failing is read a few times only, however often files change.
    fn pass(&mut self, behind: i64, leader_epoch: i32) {
        if behind > self.start {
            self.looks = 0;
        }
        self.next = behind;
        self.tell(behind, leader_epoch);
    }

    /// Opens the next segment that can hold an offset before the stop. Returns whether there is one.
    fn open_next(&mut self, statistics: &mut ScanStatistics, buffer: &mut Vec<u8>) -> Result<bool> {
        let Some(segment) = self.view.segments.get(self.slot) else {
            return Ok(false);
        };
        if segment.base_offset >= self.stop || self.start >= self.stop {
            return Ok(false);
        }
        self.log.check()?;
        let open = self.view.open(segment)?;
        // A short range is a look-up; a long range reads ahead.
        let short = self.stop.saturating_sub(self.start) <= 16;
        let reused = std::mem::take(buffer);
        let read_ahead = if short {
            ReadAhead::To(self.stop)
        } else {
            ReadAhead::Bytes(SCAN_BYTES)
        };
        let walk = if segment.base_offset >= self.start {
            Walk::new(open, 0, read_ahead.at_start(), reused)
        } else {
            find::start(&open, self.start, read_ahead, reused, &mut Trace::default())?
        };
        self.walk = Some(walk);
        self.fills_checked = 0;
        self.is_current = false;
        self.slot += 1;
        if self.counted_segment < Some(segment.base_offset) {
            self.counted_segment = Some(segment.base_offset);
            statistics.segments += 1;
        }
        Ok(true)
    }

    /// Whether a look found the current segment unchanged, and it has not changed since: more damage in it needs no further look.
    pub(super) fn is_as_it_was(&self) -> bool {
        let open = self.walk.as_ref().map(Walk::segment);
        self.is_current && open.is_some_and(|open| self.view.has_only_grown(open))
    }

    pub(super) fn close(&mut self, buffer: &mut Vec<u8>) {
        if let Some(walk) = self.walk.take() {
            *buffer = walk.into_buffer();
        }
    }
}
