//! Reads records in offset order: one range or several, of one log or several.
//!
//! A scan returns batches, and a batch returns records as views over the scan's buffers. A batch that cannot hold a wanted
//! record is skipped by its header, without checksum and decompression.

mod batch;
mod damage;
mod detached;
mod later;
mod newer_view;
mod options;
mod report;
mod txn_outcome;

use super::filter::{Filter, Selection};
use super::transactions::{TxnOutcome, TxnOutcomes, TxnOutcomesDamage};
use super::values::Isolation;
use super::{Log, View};
use crate::codec::Decompressor;
use crate::error::{Error, Result};
use crate::segment::find::{self, ReadAhead, Trace};
use crate::segment::walk::{SCAN_BYTES, Step, TornTail, Walk};
use offsetlog_format::BatchHeader;
use std::sync::Arc;

pub use batch::Batch;
pub use detached::DetachedBatch;
pub use later::LaterLog;
use later::Ranges;
pub use options::{ScanOptions, ScanRange, ScanStatistics};
use report::{BadBatch, CorruptionPolicy};
pub use report::{Hole, OnCorrupt, ScanReport};

/// Bytes scanned between two checks for interruption.
const CHECK_BYTES: u64 = 4 << 20;

/// A scan in progress. See [`Log::scan`].
#[derive(Debug)]
pub struct Scan {
    ranges: Ranges,
    filter: Arc<Filter>,
    limit: Option<u64>,
    cursor: Option<Cursor>,
    decompressor: Decompressor,
    buffer: Vec<u8>,
    statistics: ScanStatistics,
    /// Number of segments that the report shows. Kept here because updating the report takes a lock.
    reported_segments: u64,
    torn: Vec<TornTail>,
    bad: CorruptionPolicy,
    /// `OnCorrupt::Stop` met damage: the rest of the current log is skipped.
    stopped: bool,
}

/// The position of a scan within one log.
#[derive(Debug)]
struct Cursor {
    log: Log,
    view: Arc<View>,
    /// Slot of the next segment to open.
    slot: usize,
    walk: Option<Walk>,
    /// Where the range began, and where what is left of it begins.
    first: i64,
    start: i64,
    stop: i64,
    /// Whether the range has no stop of its own: it ends where the log does.
    is_open_ended: bool,
    is_committed: bool,
    /// Whether the view may be some milliseconds older than this cursor. It is asked once whether that is why it ends early.
    may_be_old: bool,
    /// How often in a row the log changed while markers were looked for.
    marker_looks: u32,
    /// Offset after the last batch that was read.
    next: i64,
    txn_outcomes: Option<Arc<TxnOutcomes>>,
    /// Why the last stable offset is unknown.
    lso_error: Option<TxnOutcomesDamage>,
    unchecked_bytes: u64,
    /// A fresh look after an error found the current segment unchanged, so more damage in it needs no further look.
    is_current: bool,
    /// Number of newer views taken since the cursor last advanced.
    looks: u32,
    /// Offset after the last hole that was reported.
    reported_up_to: i64,
    /// Offset after the last batch in the statistics. A newer view of the same log starts with batches that were counted
    /// before.
    counted: i64,
    /// Base offset of the last segment in the statistics.
    counted_segment: Option<i64>,
}

/// The result of a step.
enum CursorEvent {
    Batch(BatchHeader),
    /// A batch of a transaction whose outcome is hidden by damage. It has been reported.
    Undecided,
    End,
}

impl Log {
    /// Reads records in offset order. Checks the bounds now, but reads nothing until the first batch is requested.
    ///
    /// The scan ends where the log ended when reading began, or later if this process truncated, compacted or deleted segments
    /// meanwhile. A torn tail of the active segment ends it without an error (see
    /// [`Scan::torn_tails`]). Damage before that is an error; the records before the damage are returned first.
    ///
    /// # Errors
    /// `OffsetOutOfRange` if the start is outside `log_start_offset` to `log_end_offset` (a start at the end returns no
    /// records), also at the first batch if the log lost the start since; `Argument` if the stop is before the start.
    pub fn scan(&self, options: &ScanOptions) -> Result<Scan> {
        let range = ScanRange {
            log: self.clone(),
            start: options.start,
            stop: options.stop,
        };
        Scan::over(vec![range], options)
    }

    /// Returns the records at `offsets`, in the given order. Repeated offsets are returned repeatedly, missing ones are left
    /// out.
    ///
    /// # Errors
    /// `OffsetOutOfRange` for an offset outside the log.
    pub fn take(&self, offsets: &[i64], options: &ScanOptions) -> Result<Scan> {
        self.look(|view| {
            let end = view.end()?.log_end_offset;
            let outside = |&&offset: &&i64| offset < view.log_start_offset || offset >= end;
            match offsets.iter().find(outside) {
                Some(&offset) => Err(self.out_of_range(view, offset)?),
                None => Ok(()),
            }
        })?;
        let ranges = offsets.iter().map(|&offset| ScanRange {
            log: self.clone(),
            start: Some(offset),
            stop: Some(offset + 1),
        });
        Scan::over(ranges.collect(), options)
    }
}

impl Scan {
    /// Scans several ranges one after another. Ignores `start` and `stop` of the options.
    ///
    /// # Errors
    /// As [`Log::scan`].
    pub fn over(ranges: Vec<ScanRange>, options: &ScanOptions) -> Result<Self> {
        let mut looked_at: Option<&Log> = None;
        for range in &ranges {
            if let (Some(start), Some(stop)) = (range.start, range.stop)
                && stop < start
            {
                return Err(Error::argument(
                    "stop",
                    format!("{stop} found, at least the start {start} expected"),
                ));
            }
            // A range with a stop uses a recent view, as look-ups do. For the others, one fresh look per log is enough.
            let needs_look = range.stop.is_none()
                && looked_at.is_none_or(|log| !Arc::ptr_eq(&log.0, &range.log.0));
            if !needs_look {
                let view = range.log.recent_view()?;
                if range.log.checked_start(&view, range.start).is_ok() {
                    continue;
                }
            }
            looked_at = Some(&range.log);
            match range
                .log
                .look(|view| range.log.checked_start(view, range.start))
            {
                // If damage hides the end, the start may be within the log.
                Err(error) if options.on_corrupt != OnCorrupt::Raise && error.is_corruption() => {}
                checked => drop(checked?),
            }
        }
        Ok(Self {
            ranges: ranges.into(),
            filter: Arc::new(Filter::new(options)),
            limit: options.limit,
            cursor: None,
            decompressor: Decompressor::new(),
            buffer: Vec::new(),
            statistics: ScanStatistics::default(),
            reported_segments: 0,
            torn: Vec::new(),
            bad: CorruptionPolicy {
                on_corrupt: options.on_corrupt,
                report: ScanReport::default(),
                order: 0,
            },
            stopped: false,
        })
    }

    /// What could not be read so far; empty if damage is an error. The report keeps growing while the scan runs.
    #[must_use]
    pub fn report(&self) -> ScanReport {
        self.bad.report.clone()
    }

    /// Reports to a shared report from now on; this scan's entries are ordered from `order` on.
    pub(super) fn report_to(&mut self, report: &ScanReport, order: u64) {
        self.bad.report = report.clone();
        self.bad.order = order;
    }

    /// Whether damage ends a log without an error: [`OnCorrupt::Stop`].
    #[must_use]
    pub fn stops_at_damage(&self) -> bool {
        self.bad.on_corrupt == OnCorrupt::Stop
    }

    /// What the scan has done so far. The report has the same numbers, as of the last segment.
    #[must_use]
    pub fn statistics(&self) -> ScanStatistics {
        self.statistics
    }

    /// The torn tails at which scans of logs have ended so far.
    #[must_use]
    pub fn torn_tails(&self) -> &[TornTail] {
        &self.torn
    }

    /// Returns the next batch that can hold a wanted record. Its records borrow the scan until the next call.
    ///
    /// # Errors
    /// Corruption, with file, position and offset; `Io`; `Limit`; `Interrupted`. After an error the scan has ended.
    pub fn next_batch(&mut self) -> Result<Option<Batch<'_>>> {
        let advanced = self.advance();
        if !matches!(advanced, Ok(Some(_))) || self.reported_segments != self.statistics.segments {
            self.reported_segments = self.statistics.segments;
            self.bad.report.tell(self.statistics);
        }
        let header = match advanced {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(error) => {
                self.ranges.clear();
                self.cursor = None;
                return Err(error);
            }
        };
        let Some((cursor, walk)) = self
            .cursor
            .as_ref()
            .and_then(|cursor| Some((cursor, cursor.walk.as_ref()?)))
        else {
            return Ok(None);
        };
        let selection = Selection::of(&self.filter, &header, cursor.start..cursor.stop);
        Ok(Some(Batch {
            header,
            log: &cursor.log,
            walk,
            source: Some(&mut self.decompressor),
            records: None,
            filter: &self.filter,
            is_whole: selection.takes_all() && self.limit.is_none(),
            selection,
            limit: &mut self.limit,
            bad: &self.bad,
            stopped: &mut self.stopped,
            next: header.base_offset.unwrap_or(i64::MIN),
            ended_early: false,
        }))
    }

    /// Whether the options limit the number of records.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Counts the records that the rest of the scan would return. Uses batch headers wherever the records need not be checked
    /// one by one.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch).
    pub fn count_records(&mut self) -> Result<u64> {
        let mut total = 0;
        while let Some(mut batch) = self.next_batch()? {
            if let Some(count) = batch.take_whole() {
                total += count;
            } else {
                while batch.next_record()?.is_some() {
                    total += 1;
                }
            }
        }
        Ok(total)
    }

    /// Moves to the next batch that can hold a wanted record, reads it and verifies its checksum.
    fn advance(&mut self) -> Result<Option<BatchHeader>> {
        loop {
            if self.limit == Some(0) {
                return Ok(None);
            }
            if self.stopped {
                self.end_log();
            }
            if self.cursor.is_none() {
                let Some(range) = self.ranges.next()? else {
                    return Ok(None);
                };
                self.cursor = Some(Cursor::new(range, &self.filter, &self.bad)?);
            }
            let Some(cursor) = self.cursor.as_mut() else {
                return Ok(None);
            };
            let met = cursor.step(
                &self.filter,
                &mut self.statistics,
                &mut self.buffer,
                &mut self.torn,
                &self.bad,
            );
            let met = match met {
                Ok(met) => met,
                Err(error) => {
                    self.recover(error)?;
                    continue;
                }
            };
            match met {
                CursorEvent::Batch(header) => {
                    self.statistics.batches += 1;
                    self.bad.order += 1;
                    return Ok(Some(header));
                }
                CursorEvent::Undecided => self.stopped = self.bad.on_corrupt == OnCorrupt::Stop,
                CursorEvent::End => self.end_range(),
            }
        }
    }

    /// Continues after an error: in a newer view if the segments have changed, otherwise after the damage if damage is reported
    /// and not raised.
    #[cold]
    fn recover(&mut self, error: Error) -> Result<()> {
        let Some(cursor) = self.cursor.as_mut() else {
            return Err(error);
        };
        let notes = self.bad.notes() && error.is_corruption();
        let error = if notes && cursor.is_current {
            error
        } else {
            match cursor.retry_in_new_view(error, &mut self.buffer) {
                Ok(()) => return Ok(()),
                Err(error) if !notes => return Err(error),
                Err(error) => error,
            }
        };
        cursor.is_current = true;
        if !error.is_corruption() {
            return Err(error);
        }
        if cursor.next >= cursor.stop {
            // The damage lies after the requested range.
            self.end_range();
            return Ok(());
        }
        cursor.log.check()?;
        let hole = cursor.pass_damage(error)?;
        self.statistics.bytes += hole.as_ref().map_or(0, |hole| hole.bytes);
        if let Some(hole) = hole {
            self.bad.note_behind(hole);
            self.stopped = self.bad.on_corrupt == OnCorrupt::Stop;
        }
        Ok(())
    }

    fn end_range(&mut self) {
        if let Some(walk) = self.cursor.take().and_then(|cursor| cursor.walk) {
            self.buffer = walk.into_buffer();
        }
    }

    /// Skips the rest of the current log, including its later ranges.
    fn end_log(&mut self) {
        self.stopped = false;
        if let Some(cursor) = &self.cursor {
            let path = cursor.log.path();
            self.ranges.leave_out(path);
        }
        self.end_range();
    }
}

impl Cursor {
    fn new(range: ScanRange, filter: &Filter, bad: &CorruptionPolicy) -> Result<Self> {
        let log = range.log;
        let is_committed = filter.isolation == Isolation::ReadCommitted;
        let (view, may_be_old) = newer_view::first(&log, range.start, range.stop, is_committed)?;
        let (view, stable) = if is_committed {
            match log.in_view(Arc::clone(&view), |view| log.last_stable_offset_of(view)) {
                Ok((view, last_stable_offset)) => (view, Ok(last_stable_offset)),
                Err(error) if bad.notes() && error.is_corruption() => {
                    (log.view(), Err(TxnOutcomesDamage::of(&error, i64::MIN)))
                }
                Err(error) => return Err(error),
            }
        } else {
            (view, Ok(i64::MAX))
        };
        // The log may have lost its start or its end since: nothing is left out without a word.
        let start = match log.checked_start(&view, range.start) {
            Err(error) if bad.notes() && error.is_corruption() => range
                .start
                .unwrap_or(view.log_start_offset)
                .max(view.log_start_offset),
            checked => checked?,
        };
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
            is_open_ended: range.stop.is_none(),
            is_committed,
            may_be_old,
            marker_looks: 0,
            next: start,
            txn_outcomes: None,
            lso_error,
            unchecked_bytes: 0,
            is_current: false,
            looks: 0,
            reported_up_to: i64::MIN,
            counted: i64::MIN,
            counted_segment: None,
        })
    }

    fn step(
        &mut self,
        filter: &Filter,
        statistics: &mut ScanStatistics,
        buffer: &mut Vec<u8>,
        torn_tails: &mut Vec<TornTail>,
        bad: &CorruptionPolicy,
    ) -> Result<CursorEvent> {
        loop {
            if self.view.was_cut() {
                self.go_on_in(self.log.fresh_view()?, buffer)?;
            }
            if self.walk.is_none() && !self.open_next(statistics, buffer)? {
                if self.go_on_behind(buffer)? {
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
                if self.go_on_behind(buffer)? {
                    continue;
                }
                return Ok(CursorEvent::End);
            }
            let is_excluded = header.last_offset < self.start || filter.excludes(&header);
            // A flipped bit can turn a batch of records into a control batch, which would be skipped. Control batches are few
            // and small, so their checksums are verified.
            let is_trusted = header.last_offset < self.start || !header.attributes.is_control();
            if is_excluded && (is_trusted || !filter.verify_checksums) {
                statistics.batches_skipped += u64::from(is_new);
                self.pass(behind);
                continue;
            }
            if filter.verify_checksums {
                if let Some(torn) = walk.verify(&header)? {
                    if self.look_again(buffer)? {
                        continue;
                    }
                    bad.report.note_torn(&self.log, torn.clone());
                    torn_tails.push(torn);
                    self.close(buffer);
                    continue;
                }
            } else {
                walk.batch()?;
            }
            if is_excluded {
                statistics.batches_skipped += u64::from(is_new);
                self.pass(behind);
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
                        self.pass(behind);
                        continue;
                    }
                    TxnOutcome::Undecided => {
                        self.pass(behind);
                        return Ok(CursorEvent::Undecided);
                    }
                }
            }
            self.pass(behind);
            return Ok(CursorEvent::Batch(header));
        }
    }

    /// Goes on behind a batch. A batch that fails again and again is looked at a few times only, however often files change.
    fn pass(&mut self, behind: i64) {
        if behind > self.start {
            self.looks = 0;
        }
        self.next = behind;
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
        self.is_current = false;
        self.slot += 1;
        if self.counted_segment < Some(segment.base_offset) {
            self.counted_segment = Some(segment.base_offset);
            statistics.segments += 1;
        }
        Ok(true)
    }

    fn close(&mut self, buffer: &mut Vec<u8>) {
        if let Some(walk) = self.walk.take() {
            *buffer = walk.into_buffer();
        }
    }
}
