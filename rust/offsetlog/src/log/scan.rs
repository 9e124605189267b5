//! Reads records in offset order: one range or several, of one log or several.
//!
//! A scan returns batches, and a batch returns records as views over the scan's buffers. A batch that cannot hold a wanted
//! record is skipped by its header, without checksum and decompression.

mod batch;
mod cursor;
mod damage;
mod detached;
mod later;
mod newer_view;
mod one_topic;
mod options;
mod progress;
mod report;
mod txn_outcome;

use super::Log;
use super::filter::{Filter, Selection};
use crate::codec::Decompressor;
use crate::error::{Error, Result};
use crate::segment::walk::TornTail;
use cursor::{Cursor, CursorEvent};
use offsetlog_format::BatchHeader;
use std::sync::Arc;

pub use batch::Batch;
pub use detached::DetachedBatch;
pub use later::LaterLog;
use later::Ranges;
pub use one_topic::OneTopic;
pub(crate) use one_topic::{id_in, other_topic};
pub use options::{ScanOptions, ScanRange, ScanStatistics};
pub(super) use progress::Progress;
use progress::unless_cut;
use report::{BadBatch, CorruptionPolicy};
pub use report::{Hole, OnCorrupt, ScanReport};

/// A scan in progress. See [`Log::scan`].
#[derive(Debug)]
pub struct Scan {
    ranges: Ranges,
    topics: OneTopic,
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
            topics: OneTopic::default(),
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

    /// Scans the ranges of a follower, and tells it its progress. Its ranges are recent, so they are checked when they are read.
    pub(super) fn following(
        ranges: Vec<(ScanRange, Arc<Progress>)>,
        options: &ScanOptions,
    ) -> Result<Self> {
        let mut scan = Self::over(Vec::new(), options)?;
        scan.ranges = Ranges::followed(ranges);
        Ok(scan)
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
                let Some((range, progress)) = self.next_range()? else {
                    return Ok(None);
                };
                let followed = progress
                    .as_ref()
                    .map(|progress| (range.log.clone(), Arc::clone(progress)));
                match Cursor::new(&range, progress.as_ref(), &self.filter, &self.bad) {
                    Ok(cursor) => self.cursor = Some(cursor),
                    Err(error) => {
                        unless_cut(followed, error)?;
                        continue;
                    }
                }
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
                    self.recover_or_end(error)?;
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
                CursorEvent::MayBeCut(leader_epoch) => {
                    if cursor.is_cut(leader_epoch)? {
                        self.end_range();
                    } else {
                        self.read_on()?;
                    }
                }
                CursorEvent::End => {
                    if cursor.is_short()? {
                        self.read_on()?;
                    } else {
                        self.end_range();
                    }
                }
            }
        }
    }

    /// Continues in a fresh view.
    #[cold]
    fn read_on(&mut self) -> Result<()> {
        let Some(cursor) = self.cursor.as_mut() else {
            return Ok(());
        };
        let renewed = cursor.log.fresh_view();
        match renewed.and_then(|view| cursor.go_on_in(view, &mut self.buffer)) {
            Ok(()) => Ok(()),
            Err(error) => self.recover_or_end(error),
        }
    }

    /// Continues after an error, or ends the range of a follower whose log was truncated below what was returned.
    #[cold]
    fn recover_or_end(&mut self, error: Error) -> Result<()> {
        let Err(error) = self.recover(error) else {
            return Ok(());
        };
        let followed = self.cursor.as_ref().and_then(|cursor| {
            let progress = Arc::clone(cursor.progress.as_ref()?);
            Some((cursor.log.clone(), progress))
        });
        unless_cut(followed, error)?;
        self.end_range();
        Ok(())
    }

    /// Continues after an error: in a newer view if the segments have changed, otherwise after the damage if damage is reported
    /// and not raised.
    #[cold]
    fn recover(&mut self, error: Error) -> Result<()> {
        let Some(cursor) = self.cursor.as_mut() else {
            return Err(error);
        };
        let notes = self.bad.notes() && error.is_corruption();
        let is_damage = notes && (cursor.is_as_it_was() || cursor.view.shows_damage(&error));
        let error = if is_damage {
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
            // The damage lies after the requested range, unless that goes on behind it.
            if !cursor.go_on_behind(&mut self.buffer, &self.bad)? {
                self.end_range();
            }
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
            cursor.leave_rest();
            let path = cursor.log.path();
            self.ranges.leave_out(path);
        }
        self.end_range();
    }
}
