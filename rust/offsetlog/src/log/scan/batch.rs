//! A batch that a scan returns, and its records.

use super::{BadBatch, CorruptionPolicy, OnCorrupt};
use crate::codec::Decompressor;
use crate::error::{Error, ErrorKind, Result};
use crate::log::Log;
use crate::log::filter::{Filter, Selection, Verdict};
use crate::log::producers::parse_marker;
use crate::log::values::Record;
use crate::records::Records;
use crate::segment::walk::Walk;
use offsetlog_format::v2::RecordsV2;
use offsetlog_format::{BatchHeader, Codec, RecordView};
use std::sync::Arc;

/// A batch of a scan. It is decompressed when its first record is requested.
#[derive(Debug)]
pub struct Batch<'s> {
    pub(super) header: BatchHeader,
    pub(super) log: &'s Log,
    pub(super) walk: &'s Walk,
    pub(super) source: Option<&'s mut Decompressor>,
    pub(super) records: Option<Records<'s>>,
    pub(super) filter: &'s Arc<Filter>,
    pub(super) selection: Selection,
    pub(super) limit: &'s mut Option<u64>,
    /// Whether every record is wanted.
    pub(super) is_whole: bool,
    pub(super) bad: &'s CorruptionPolicy,
    pub(super) stopped: &'s mut bool,
    /// Offset after the last decoded record.
    pub(super) next: i64,
    /// Whether a record could not be read.
    pub(super) ended_early: bool,
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

    /// If all records of the batch are wanted and its header has their count, consumes them and returns the count. The records
    /// are not decoded.
    pub fn take_whole(&mut self) -> Option<u64> {
        // If damage is reported as holes, only decoding shows whether the batch has bad records.
        let untouched = self.source.is_some() && self.selection.takes_all() && !self.bad.notes();
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

    /// If all records of the batch are wanted and their offsets are consecutive, consumes them and returns the first and the
    /// last offset.
    pub fn take_offsets(&mut self) -> Option<(i64, i64)> {
        let base = self.header.base_offset?;
        let dense = self.header.last_offset.checked_sub(base)?.checked_add(1)?
            == i64::from(self.header.record_count);
        if !dense {
            return None;
        }
        self.take_whole().map(|_| (base, self.header.last_offset))
    }

    /// Returns the next wanted record, or `None` at the end of the batch.
    ///
    /// # Errors
    /// Corruption, with file, position and offset, unless the scan reports it; `Limit`.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<RecordView<'s>>> {
        loop {
            let plain = match &mut self.records {
                Some(Records::V2(records)) => records.next_plain(),
                _ => None,
            };
            let record = match plain {
                Some(record) => record,
                None => match self.next_checked()? {
                    Some(record) => record,
                    None => return Ok(None),
                },
            };
            self.next = record.offset.saturating_add(1);
            if self.is_whole && record.headers.is_empty() {
                return Ok(Some(record));
            }
            match self.selection.verdict(self.filter, &record) {
                Verdict::Take => {}
                Verdict::Leave => continue,
                Verdict::Stop => return Ok(None),
            }
            if !record.headers.is_empty() {
                let limits = &self.log.0.options.limits;
                limits
                    .check_headers(&record)
                    .map_err(|error| self.place(error))?;
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

    /// The records that follow, if they are of magic 2 and every record of the batch is wanted; for a loop that keeps their decoder in
    /// registers. [`step_to`](Self::step_to) takes it back, before the next record that is not plain or has headers.
    pub(crate) fn plain_records(&self) -> Option<RecordsV2<'s>> {
        match &self.records {
            Some(Records::V2(records)) if self.is_whole => Some(records.clone()),
            _ => None,
        }
    }

    /// Goes on where `records` stand, which were those of [`plain_records`](Self::plain_records).
    pub(crate) fn step_to(&mut self, records: RecordsV2<'s>) {
        self.next = self.next.max(records.next_offset());
        self.records = Some(Records::V2(records));
    }

    /// Decodes the next record, wanted or not. Opens the batch first if it was not yet.
    #[inline(never)]
    fn next_checked(&mut self) -> Result<Option<RecordView<'s>>> {
        if self.records.is_none() {
            match self.open() {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => return self.end_badly(error),
            }
        }
        let Some(records) = self.records.as_mut() else {
            return Ok(None);
        };
        records.next_record().or_else(|error| {
            let error = self.place(Error::new(ErrorKind::from(error)));
            self.end_badly(error)
        })
    }

    /// Gives each remaining wanted record to `take`. Faster than a loop over [`next_record`](Self::next_record), which reads and writes the
    /// decoder for each record.
    ///
    /// # Errors
    /// As [`next_record`](Self::next_record); the records before were given.
    #[inline]
    pub fn for_each_record(&mut self, mut take: impl FnMut(&RecordView<'s>)) -> Result<()> {
        while let Some(record) = self.next_record()? {
            take(&record);
            let Some(mut records) = self.plain_records() else {
                continue;
            };
            loop {
                let before = records.clone();
                match records.next_plain() {
                    Some(record) if record.headers.is_empty() => take(&record),
                    _ => {
                        records = before;
                        break;
                    }
                }
            }
            self.step_to(records);
        }
        Ok(())
    }

    /// Decodes the remaining wanted records, and returns their number.
    ///
    /// # Errors
    /// As [`next_record`](Self::next_record).
    pub(crate) fn count_records(&mut self) -> Result<u64> {
        // The first one opens the batch.
        if self.next_record()?.is_none() {
            return Ok(0);
        }
        let mut count = 1;
        if self.selection.takes_all()
            && self.limit.is_none()
            && let Some(records) = self.records.as_mut()
        {
            let limits = &self.log.0.options.limits;
            let mut next = self.next;
            let mut checked = Ok(());
            // The error that ends it occurs again below, and gets its place there.
            while let Ok(Some(record)) = records.next_record() {
                next = record.offset.saturating_add(1);
                checked = limits.check_headers(&record);
                if checked.is_err() {
                    break;
                }
                count += 1;
            }
            self.next = next;
            checked.map_err(|error| self.place(error))?;
        }
        while self.next_record()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Returns the codec. Ends the batch early, with `None`, if the codec is unknown, or if it is a producer's control batch whose marker
    /// says neither commit nor abort: a broker does not start on such a log.
    ///
    /// # Errors
    /// `UnsupportedCodec`, `InvalidRecord`, with file, position and offset, unless the scan reports it.
    pub(crate) fn check(&mut self) -> Result<Option<Codec>> {
        let codec = self.header.codec().map_err(Error::new);
        let marker = |codec| parse_marker(self.walk.loaded_batch(), &self.header).map(|_| codec);
        match codec.and_then(marker) {
            Ok(codec) => Ok(Some(codec)),
            Err(error) => {
                let error = self.place(error);
                self.end_badly(error).map(|_| None)
            }
        }
    }

    /// Whether the scan has verified its checksum.
    pub(crate) fn is_verified(&self) -> bool {
        self.filter.verify_checksums
    }

    /// Offset after the last record that was decoded.
    #[must_use]
    pub const fn next_offset(&self) -> i64 {
        self.next
    }

    /// Whether the records ended before one that cannot be read, which the scan reports.
    #[must_use]
    pub const fn ended_early(&self) -> bool {
        self.ended_early
    }

    /// Path of the segment's `.log` file.
    #[must_use]
    pub fn path(&self) -> &'s std::path::Path {
        &self.walk.segment().path
    }

    /// Copies the remaining wanted records.
    ///
    /// # Errors
    /// As [`next_record`](Self::next_record).
    pub fn to_records(&mut self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        while let Some(view) = self.next_record()? {
            records.try_reserve(1).map_err(|_| Error::no_memory())?;
            records.push(Record::new(&self.header, &view)?);
        }
        Ok(records)
    }

    /// Ends the batch before a record that cannot be read. Returns the error unless the scan reports it.
    #[cold]
    fn end_badly(&mut self, error: Error) -> Result<Option<RecordView<'s>>> {
        self.records = None;
        self.ended_early = true;
        self.bad
            .pass(
                &BadBatch {
                    log: self.log,
                    path: self.path(),
                    position: self.position(),
                    header: &self.header,
                    next: self.next,
                    selection: self.selection,
                },
                &error,
            )
            .then_some(())
            .ok_or(error)?;
        *self.stopped = self.bad.on_corrupt == OnCorrupt::Stop;
        Ok(None)
    }

    #[cold]
    fn place(&self, error: Error) -> Error {
        let offset = self.header.base_offset.unwrap_or(self.header.last_offset);
        self.walk.place(error).at_offset(offset)
    }

    /// Opens the records, decompressed if needed. Returns whether there are any left to read.
    fn open(&mut self) -> Result<bool> {
        let Some(decompressor) = self.source.take() else {
            return Ok(false);
        };
        if self.header.attributes.codec_number() != 0 {
            // A few bytes can decompress to very many, so counting the file's bytes would check for interruption too rarely.
            self.log.check()?;
        }
        let limit = self.log.0.options.limits.max_decompressed_bytes;
        let records = Records::open(&self.header, self.walk.loaded_batch(), decompressor, limit);
        let records = records.map_err(|error| self.place(error))?;
        self.records = Some(records.not_below(self.walk.batch_minimum()));
        Ok(true)
    }
}
