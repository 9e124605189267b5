//! Reading records from front to back: one range or several, of one log or several.
//!
//! A scan hands out batches; a batch hands out records as views over the scan's buffers. Batches that cannot hold a wanted record are
//! stepped over by their header: no checksum, no decompression.

mod options;

use super::filter::{Filter, Selection, Verdict};
use super::transactions::{Fate, Fates};
use super::values::{Isolation, Record};
use super::{Log, View};
use crate::codec::Decompressor;
use crate::error::{Error, ErrorKind, Result};
use crate::records::Records;
use crate::segment::find::{self, Trace};
use crate::segment::walk::{LOOKUP_BYTES, SCAN_BYTES, Step, TornTail, Walk};
use offsetlog_format::{BatchHeader, RecordView};
use std::collections::VecDeque;
use std::sync::Arc;

pub use options::{ScanOptions, ScanRange, ScanStatistics};

/// Bytes scanned between two questions whether to go on.
const CHECK_BYTES: u64 = 4 << 20;

/// A scan in progress. See [`Log::scan`].
#[derive(Debug)]
pub struct Scan {
    ranges: VecDeque<ScanRange>,
    filter: Arc<Filter>,
    limit: Option<u64>,
    cursor: Option<Cursor>,
    decompressor: Decompressor,
    buffer: Vec<u8>,
    statistics: ScanStatistics,
    torn: Vec<TornTail>,
}

/// Where a scan stands within one log.
#[derive(Debug)]
struct Cursor {
    log: Log,
    view: Arc<View>,
    /// Slot of the next segment to open.
    slot: usize,
    walk: Option<Walk>,
    start: i64,
    stop: i64,
    /// Behind the last batch that was met.
    next: i64,
    fates: Option<Arc<Fates>>,
    unchecked_bytes: u64,
}

/// What the cursor met.
enum Met {
    Batch(BatchHeader),
    End,
}

impl Log {
    /// Reads records from front to back. Nothing is read before the first batch is asked for, but bounds are checked now.
    ///
    /// The end is that of the moment: a torn tail of the active segment ends the scan without an error (see [`Scan::torn_tails`]);
    /// damage before it is an error, and the records before the damage are given first.
    ///
    /// # Errors
    /// `OffsetOutOfRange` for a start outside `log_start_offset` to `log_end_offset` (which gives no records); `Argument` for a
    /// stop before the start.
    pub fn scan(&self, options: &ScanOptions) -> Result<Scan> {
        let range = ScanRange {
            log: self.clone(),
            start: options.start,
            stop: options.stop,
        };
        Scan::over(vec![range], options)
    }

    /// The records at `offsets`, in the order asked, repeats kept, absent ones left out.
    ///
    /// # Errors
    /// `OffsetOutOfRange` for an offset outside the log.
    pub fn take(&self, offsets: &[i64], options: &ScanOptions) -> Result<Scan> {
        let view = self.fresh_view()?;
        let end = view.end()?.log_end_offset;
        for &offset in offsets {
            if offset < view.log_start_offset || offset >= end {
                return Err(self.out_of_range(&view, offset)?);
            }
        }
        let ranges = offsets.iter().map(|&offset| ScanRange {
            log: self.clone(),
            start: Some(offset),
            stop: Some(offset + 1),
        });
        Scan::over(ranges.collect(), options)
    }
}

impl Scan {
    /// Scans several ranges one after another. `start` and `stop` of the options are not used.
    ///
    /// # Errors
    /// As [`Log::scan`].
    pub fn over(ranges: Vec<ScanRange>, options: &ScanOptions) -> Result<Self> {
        for range in &ranges {
            if let (Some(start), Some(stop)) = (range.start, range.stop)
                && stop < start
            {
                return Err(Error::argument(
                    "stop",
                    format!("{stop} found, at least the start {start} expected"),
                ));
            }
            let checked = range.log.checked_start(&range.log.view(), range.start);
            if checked.is_err() {
                // What lies outside this view may lie within a newer one.
                let view = range.log.fresh_view()?;
                range.log.checked_start(&view, range.start)?;
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
            torn: Vec::new(),
        })
    }

    /// What was done so far.
    #[must_use]
    pub fn statistics(&self) -> ScanStatistics {
        self.statistics
    }

    /// The torn tails at which scans of logs ended so far.
    #[must_use]
    pub fn torn_tails(&self) -> &[TornTail] {
        &self.torn
    }

    /// The next batch that can hold a wanted record. Its records borrow the scan until the next call.
    ///
    /// # Errors
    /// Corruption, with file, position and offset; `Io`; `Limit`; `Interrupted`. After an error the scan is at its end.
    pub fn next_batch(&mut self) -> Result<Option<Batch<'_>>> {
        let header = match self.advance() {
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
        let first = header.base_offset.unwrap_or(i64::MIN);
        Ok(Some(Batch {
            header,
            log: &cursor.log,
            walk,
            source: Some(&mut self.decompressor),
            records: None,
            filter: &self.filter,
            selection: Selection {
                looks_at_records: self.filter.looks_at_records(),
                cut: first < cursor.start || header.last_offset >= cursor.stop,
                start: cursor.start,
                stop: cursor.stop,
            },
            limit: &mut self.limit,
        }))
    }

    /// Whether the number of records is bounded.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Counts the records that the rest of the scan would return, by batch headers where nothing has to be looked at one by one.
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

    /// Steps to the next batch that can hold a wanted record, reads it and compares its checksum.
    fn advance(&mut self) -> Result<Option<BatchHeader>> {
        loop {
            if self.limit == Some(0) {
                return Ok(None);
            }
            if self.cursor.is_none() {
                let Some(range) = self.ranges.pop_front() else {
                    return Ok(None);
                };
                self.cursor = Some(Cursor::new(range, &self.filter)?);
            }
            let Some(cursor) = self.cursor.as_mut() else {
                return Ok(None);
            };
            let met = cursor.step(
                &self.filter,
                &mut self.statistics,
                &mut self.buffer,
                &mut self.torn,
            );
            let met = match met {
                Ok(met) => met,
                Err(error) => {
                    cursor.move_on(error, &mut self.buffer)?;
                    continue;
                }
            };
            match met {
                Met::Batch(header) => {
                    self.statistics.batches += 1;
                    return Ok(Some(header));
                }
                Met::End => {
                    if let Some(walk) = self.cursor.take().and_then(|cursor| cursor.walk) {
                        self.buffer = walk.into_buffer();
                    }
                }
            }
        }
    }
}

impl Cursor {
    fn new(range: ScanRange, filter: &Filter) -> Result<Self> {
        let log = range.log;
        // A range that was fixed before needs no newer view than the one that has it.
        let view = match range.stop {
            Some(stop) if stop <= log.view().end().map_or(i64::MIN, |end| end.log_end_offset) => {
                log.view()
            }
            _ => log.fresh_view()?,
        };
        let start = range
            .start
            .unwrap_or(view.log_start_offset)
            .max(view.log_start_offset);
        let mut stop = range.stop.unwrap_or(i64::MAX);
        if filter.isolation == Isolation::ReadCommitted {
            stop = stop.min(log.last_stable_offset_of(&view)?);
        }
        Ok(Self {
            slot: view.floor_slot(start),
            log,
            view,
            walk: None,
            start,
            stop,
            next: start,
            fates: None,
            unchecked_bytes: 0,
        })
    }

    fn step(
        &mut self,
        filter: &Filter,
        statistics: &mut ScanStatistics,
        buffer: &mut Vec<u8>,
        torn_tails: &mut Vec<TornTail>,
    ) -> Result<Met> {
        loop {
            if self.walk.is_none() && !self.open_next(statistics, buffer)? {
                return Ok(Met::End);
            }
            let Some(walk) = self.walk.as_mut() else {
                return Ok(Met::End);
            };
            let header = match walk.step(false)? {
                Step::Batch(header) => header,
                Step::End(torn) => {
                    torn_tails.extend(torn);
                    self.close(buffer);
                    continue;
                }
            };
            let behind = header.last_offset.saturating_add(1);
            let size = header.size_bytes as u64;
            statistics.bytes += size;
            self.unchecked_bytes += size;
            if self.unchecked_bytes >= CHECK_BYTES {
                self.unchecked_bytes = 0;
                self.log.check()?;
            }
            if header.base_offset.is_some_and(|base| base >= self.stop) {
                return Ok(Met::End);
            }
            if header.last_offset < self.start || filter.excludes(&header) {
                statistics.batches_skipped += 1;
                self.next = behind;
                continue;
            }
            if filter.verify_checksums {
                if let Some(torn) = walk.verify(&header)? {
                    torn_tails.push(torn);
                    self.close(buffer);
                    continue;
                }
            } else {
                walk.batch()?;
            }
            let in_transaction =
                header.attributes.is_transactional() && !header.attributes.is_control();
            if in_transaction
                && filter.isolation == Isolation::ReadCommitted
                && self.fate(&header)? == Fate::Aborted
            {
                statistics.batches_skipped += 1;
                self.next = behind;
                continue;
            }
            self.next = behind;
            return Ok(Met::Batch(header));
        }
    }

    /// Opens the next segment that can hold an offset below the stop; says whether there is one.
    fn open_next(&mut self, statistics: &mut ScanStatistics, buffer: &mut Vec<u8>) -> Result<bool> {
        let Some(segment) = self.view.segments.get(self.slot) else {
            return Ok(false);
        };
        if segment.base_offset >= self.stop || self.start >= self.stop {
            return Ok(false);
        }
        self.log.check()?;
        let open = self.view.open(segment)?;
        // A short range is a look-up; a long one reads ahead.
        let short = self.stop.saturating_sub(self.start) <= 16;
        let read_ahead = if short { LOOKUP_BYTES } else { SCAN_BYTES };
        let reused = std::mem::take(buffer);
        let walk = if segment.base_offset >= self.start {
            Walk::new(open, 0, read_ahead, reused)
        } else {
            find::start(&open, self.start, read_ahead, reused, &mut Trace::default())?
        };
        self.walk = Some(walk);
        self.slot += 1;
        statistics.segments += 1;
        Ok(true)
    }

    /// Goes on in a newer view where segments were removed or replaced under this one.
    fn move_on(&mut self, error: Error, buffer: &mut Vec<u8>) -> Result<()> {
        let view = self.log.view_after(&self.view, error)?;
        let next = self.next.max(self.start);
        if next < view.log_start_offset {
            // What comes next went with retention.
            return Err(self.log.out_of_range(&view, next)?);
        }
        self.start = next;
        self.slot = view.floor_slot(next);
        self.view = view;
        self.close(buffer);
        Ok(())
    }

    fn close(&mut self, buffer: &mut Vec<u8>) {
        if let Some(walk) = self.walk.take() {
            *buffer = walk.into_buffer();
        }
    }

    /// The fate of a transactional batch below the last stable offset. One without a marker is committed: the cleaner removes
    /// markers only after an aborted transaction's records, and an open one is not below the last stable offset.
    fn fate(&mut self, header: &BatchHeader) -> Result<Fate> {
        let from = header.base_offset.unwrap_or(header.last_offset);
        let fates = if let Some(fates) = &self.fates {
            Arc::clone(fates)
        } else {
            let fates = self.log.fates(&self.view, from)?;
            self.fates = Some(Arc::clone(&fates));
            fates
        };
        match fates.of(header.producer_id, from) {
            Fate::Undecided if fates.is_incomplete() => {
                self.log.fates_error(&self.view, from)?;
                Ok(Fate::Committed)
            }
            fate => Ok(fate),
        }
    }
}

/// A batch of a scan. It is decompressed when its first record is asked for.
#[derive(Debug)]
pub struct Batch<'s> {
    header: BatchHeader,
    log: &'s Log,
    walk: &'s Walk,
    source: Option<&'s mut Decompressor>,
    records: Option<Records<'s>>,
    filter: &'s Arc<Filter>,
    selection: Selection,
    limit: &'s mut Option<u64>,
}

impl<'s> Batch<'s> {
    /// The header.
    #[must_use]
    pub const fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The log that the batch is from.
    #[must_use]
    pub const fn log(&self) -> &'s Log {
        self.log
    }

    /// Position of the batch in its segment's `.log` file.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.walk.batch_position()
    }

    /// The whole batch as stored.
    #[must_use]
    pub fn bytes(&self) -> &'s [u8] {
        self.walk.loaded_batch()
    }

    /// If all records of the batch are wanted and its header counts them: passes them all and returns how many there are.
    /// They are then not decoded.
    pub fn take_whole(&mut self) -> Option<u64> {
        let untouched = self.source.is_some() && self.selection.takes_all();
        let count = u64::try_from(self.header.record_count).ok()?;
        if !untouched || self.limit.is_some_and(|limit| limit < count) {
            return None;
        }
        self.source = None;
        if let Some(limit) = self.limit {
            *limit -= count;
        }
        Some(count)
    }

    /// If all records of the batch are wanted and their offsets are consecutive: passes them all and returns the first and
    /// the last offset.
    pub fn take_offsets(&mut self) -> Option<(i64, i64)> {
        let base = self.header.base_offset?;
        let dense = self.header.last_offset.checked_sub(base)?.checked_add(1)?
            == i64::from(self.header.record_count);
        if !dense {
            return None;
        }
        self.take_whole().map(|_| (base, self.header.last_offset))
    }

    /// The next wanted record, or `None` at the end of the batch.
    ///
    /// # Errors
    /// Corruption, with file, position and offset; `Limit`.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<RecordView<'s>>> {
        if self.records.is_none() && !self.open()? {
            return Ok(None);
        }
        let Some(records) = self.records.as_mut() else {
            return Ok(None);
        };
        loop {
            let record = match records.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.place(Error::new(ErrorKind::from(error)))),
            };
            match self.selection.verdict(self.filter, &record) {
                Verdict::Take => {}
                Verdict::Leave => continue,
                Verdict::Stop => return Ok(None),
            }
            if let Some(limit) = self.limit {
                match limit.checked_sub(1) {
                    Some(left) => *limit = left,
                    None => return Ok(None),
                }
            }
            return Ok(Some(record));
        }
    }

    #[cfg(feature = "arrow")]
    /// Which records are wanted, for a thread that decodes a copy of the batch.
    pub(crate) fn selection(&self) -> (Selection, &'s Arc<Filter>) {
        (self.selection, self.filter)
    }

    /// Path of the segment's `.log` file.
    #[must_use]
    pub fn path(&self) -> &'s std::path::Path {
        &self.walk.segment().path
    }

    /// Copies the rest of the wanted records.
    ///
    /// # Errors
    /// As [`next_record`](Self::next_record).
    pub fn to_records(&mut self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        while let Some(view) = self.next_record()? {
            records.push(Record::new(&self.header, &view)?);
        }
        Ok(records)
    }

    #[cold]
    fn place(&self, error: Error) -> Error {
        let offset = self.header.base_offset.unwrap_or(self.header.last_offset);
        self.walk.place(error).at_offset(offset)
    }

    /// Decompresses; says whether there is anything to read.
    fn open(&mut self) -> Result<bool> {
        let Some(decompressor) = self.source.take() else {
            return Ok(false);
        };
        if self.header.attributes.codec_number() != 0 {
            // A few bytes of the file can decompress to any number: its bytes alone do not say when to ask.
            self.log.check()?;
        }
        let limit = self.log.0.options.limits.max_decompressed_bytes;
        let records = Records::open(&self.header, self.walk.loaded_batch(), decompressor, limit);
        self.records = Some(records.map_err(|error| self.place(error))?);
        Ok(true)
    }
}
