//! Looks up one record by offset, and fetches stored batches from an offset on.

use super::values::{AbortedTransaction, BatchInfo, Isolation, Location, Record};
use super::{Log, View};
use crate::codec::Decompressor;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::Limits;
use crate::memory;
use crate::records::Records;
use crate::segment::find::{self, Found, ReadAhead, Trace};
use crate::segment::walk::{Step, Walk};
use offsetlog_format::BatchHeader;
use std::sync::PoisonError;

/// Buffers of a look-up, reused by later ones.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(super) buffer: Vec<u8>,
    pub(super) decompressor: Decompressor,
}

/// Options of a fetch.
#[derive(Debug, Clone, Copy)]
pub struct FetchOptions {
    /// Maximum size of the batches in bytes. The first batch is returned even if it is larger.
    pub max_bytes: u64,
    /// Which records the caller may read.
    pub isolation: Isolation,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            max_bytes: 1 << 20,
            isolation: Isolation::ReadUncommitted,
        }
    }
}

/// The result of a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchResult {
    /// Complete batches as stored, with verified checksums, starting with the one that holds the offset.
    pub records: Vec<u8>,
    /// See [`Log::high_watermark`].
    pub high_watermark: i64,
    /// See [`Log::last_stable_offset`]; -1 if damage hides it and the fetch does not need it.
    pub last_stable_offset: i64,
    /// See [`Log::log_start_offset`].
    pub log_start_offset: i64,
    /// With `read_committed`: the aborted transactions that have records in the batches.
    pub aborted: Vec<AbortedTransaction>,
}

impl Log {
    /// Returns the record at `offset`, or `None` if compaction removed it or it is a control record.
    ///
    /// Cost: a binary search for the segment, one in its index, and the headers of at most one index interval; one read of some
    /// KiB and one decompressed batch. The batch's checksum is verified.
    ///
    /// # Errors
    /// `OffsetOutOfRange` outside `log_start_offset` to `log_end_offset - 1`; corruption of the batch; `Io`.
    pub fn get(&self, offset: i64) -> Result<Option<Record>> {
        let view = self.recent_view()?;
        let mut scratch = self.scratch();
        // A record that is found was in the log at that moment: its batch is complete, and its file was part of the log at the
        // last look. Any other result may come from a log that has changed, so it is looked up again in a fresh view.
        let found = match view.holds(offset) {
            Ok(true) => get(self, &view, offset, &mut scratch).ok().flatten(),
            _ => None,
        };
        let result = match found {
            Some(record) if view.is_told_current() => Ok(Some(record)),
            _ => self.ask(|view| {
                self.check_offset(view, offset)?;
                get(self, view, offset, &mut scratch)
            }),
        };
        self.give_back(scratch);
        result
    }

    /// Looks `offset` up and returns each step: segment, index entry, scan, batch.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn locate(&self, offset: i64) -> Result<Location> {
        self.ask(|view| {
            self.check_offset(view, offset)?;
            self.locate_in(view, offset)
        })
    }

    fn locate_in(&self, view: &View, offset: i64) -> Result<Location> {
        let mut trace = Trace::default();
        let slot = view.floor_slot(offset);
        let Some(segment) = view.segments.get(slot) else {
            return Err(self.out_of_range(view, offset)?);
        };
        let open = view.open(segment)?;
        let (mut walk, found) =
            find::find(&open, offset, ReadAhead::To(offset), Vec::new(), &mut trace)?;
        let (batch, has_record) = match found {
            Found::Batch(header) => {
                let mut decompressor = Decompressor::new();
                let position = walk.batch_position();
                let limit = self.0.options.limits.max_decompressed_bytes;
                let at = |error: Error| {
                    error
                        .at_path(&open.path)
                        .at_position(position)
                        .at_offset(header.last_offset)
                };
                walk.verify(&header)?;
                let bytes = walk.batch()?;
                let mut records =
                    Records::open(&header, bytes, &mut decompressor, limit).map_err(at)?;
                let (mut first, mut has_record) = (None, false);
                while let Some(record) = records.next_record().map_err(|error| at(error.into()))? {
                    first.get_or_insert(record.offset);
                    has_record |= record.offset == offset;
                }
                let codec = header.codec().map_err(|error| at(error.into()))?;
                let base = first.unwrap_or(header.last_offset);
                let info = BatchInfo::new(&header, codec, base, position, open.base_offset);
                (Some(info), has_record)
            }
            Found::End(_) => (None, false),
        };
        Ok(Location {
            topic: self.topic().to_owned(),
            partition: self.partition(),
            offset,
            segment: open.base_offset,
            segment_path: open.path.clone(),
            segment_slot: slot,
            segment_count: view.segments.len(),
            index_state: open.index_state(),
            index_entries: open.index().len(),
            entry: trace.entry,
            rejected: trace.rejected,
            scanned_batches: trace.scanned_batches,
            scanned_bytes: trace.scanned_bytes,
            batch,
            has_record,
        })
    }

    /// Returns stored batches, starting with the one that holds `offset`, like a broker's answer to a fetch. Unlike a broker,
    /// it verifies checksums and never returns a partial batch at the end.
    ///
    /// Stops at the end of the segment, at `max_bytes`, before damage and, with `read_committed`, before the batch that holds
    /// the last stable offset. At the log end offset it returns no batches.
    ///
    /// # Errors
    /// `OffsetOutOfRange` outside `log_start_offset` to `log_end_offset`; corruption of the first batch; `Io`.
    pub fn fetch(&self, offset: i64, options: &FetchOptions) -> Result<FetchResult> {
        let committed = options.isolation == Isolation::ReadCommitted;
        self.ask(|view| {
            let last_stable_offset = match self.last_stable_offset_of(view) {
                // It does not prevent a read of uncommitted records.
                Err(error) if !committed && view.shows_damage(&error) => Ok(-1),
                found => found,
            };
            self.fetch_in(view, offset, options, last_stable_offset)
        })
    }

    fn fetch_in(
        &self,
        view: &View,
        offset: i64,
        options: &FetchOptions,
        last_stable_offset: Result<i64>,
    ) -> Result<FetchResult> {
        let end = view.end()?.log_end_offset;
        let first = view
            .segments
            .first()
            .map_or(0, |segment| segment.base_offset);
        if offset < view.log_start_offset.max(first) || offset > end {
            return Err(self.out_of_range(view, offset)?);
        }
        let last_stable_offset = last_stable_offset?;
        let limit = match options.isolation {
            Isolation::ReadUncommitted => end,
            Isolation::ReadCommitted => last_stable_offset,
        };
        let (records, next) = self.fetch_batches(view, offset, limit, options.max_bytes)?;
        let aborted = match options.isolation {
            Isolation::ReadCommitted if !records.is_empty() => {
                self.aborted_transactions(view, offset, next)?
            }
            _ => Vec::new(),
        };
        let high_watermark = view.high_watermark()?;
        Ok(FetchResult {
            records,
            high_watermark,
            // A broker's last stable offset never exceeds the high watermark.
            last_stable_offset: last_stable_offset.min(high_watermark),
            log_start_offset: view.log_start_offset,
            aborted,
        })
    }

    /// Returns complete batches up to `limit`, and the offset after them.
    fn fetch_batches(
        &self,
        view: &View,
        offset: i64,
        limit: i64,
        max_bytes: u64,
    ) -> Result<(Vec<u8>, i64)> {
        let (mut records, mut next) = (Vec::new(), offset);
        let mut slot = view.floor_slot(offset);
        while let Some(segment) = view
            .segments
            .get(slot)
            .filter(|_| records.is_empty() && next < limit)
        {
            let open = view.open(segment)?;
            let mut walk = find::start(
                &open,
                offset,
                ReadAhead::To(i64::MAX),
                Vec::new(),
                &mut Trace::default(),
            )?;
            loop {
                let header = match walk.step(false) {
                    Ok(Step::Batch(header)) => header,
                    Ok(Step::End(_)) => break,
                    // Returns the batches before the damage. The next fetch reports it.
                    Err(error) if error.is_corruption() && !records.is_empty() => {
                        return Ok((records, next));
                    }
                    Err(error) => return Err(error),
                };
                if header.last_offset < offset {
                    continue;
                }
                let size = header.size_bytes as u64;
                let first = header.base_offset.unwrap_or(header.last_offset);
                let full = !records.is_empty() && records.len() as u64 + size > max_bytes;
                if first >= limit || full {
                    break;
                }
                match walk.verify(&header) {
                    Ok(None) => {}
                    Ok(Some(_)) => break,
                    Err(error) if error.is_corruption() && !records.is_empty() => {
                        return Ok((records, next));
                    }
                    Err(error) => return Err(error),
                }
                memory::extend(&mut records, walk.batch()?)?;
                next = header.last_offset + 1;
                self.check()?;
            }
            slot += 1;
        }
        Ok((records, next))
    }

    /// Fails if the offset is outside the log.
    fn check_offset(&self, view: &View, offset: i64) -> Result<()> {
        if view.holds(offset)? {
            return Ok(());
        }
        Err(self.out_of_range(view, offset)?)
    }

    /// The error for an offset that a view does not hold. An offset below the log start offset is reported even if damage hides the end:
    /// the end is then where the newest segment begins.
    pub(super) fn out_of_range(&self, view: &View, requested: i64) -> Result<Error> {
        let log_end_offset = match view.end() {
            Ok(end) => end.log_end_offset,
            Err(error) if requested < view.log_start_offset && view.shows_damage(&error) => view
                .segments
                .last()
                .map_or(0, |newest| newest.base_offset)
                .max(view.log_start_offset),
            Err(error) => return Err(error),
        };
        Ok(Error::new(ErrorKind::OffsetOutOfRange {
            requested,
            log_start_offset: view.log_start_offset,
            log_end_offset,
        })
        .at_path(self.path()))
    }

    pub(super) fn scratch(&self) -> Scratch {
        let mut pool = self
            .0
            .scratch
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        pool.pop().unwrap_or_else(|| Scratch {
            buffer: Vec::new(),
            decompressor: Decompressor::new(),
        })
    }

    pub(super) fn give_back(&self, scratch: Scratch) {
        let mut pool = self
            .0
            .scratch
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // One per thread that looked up at the same time. More than a few would waste memory.
        if pool.len() < 4 {
            pool.push(scratch);
        }
    }
}

fn get(log: &Log, view: &View, offset: i64, scratch: &mut Scratch) -> Result<Option<Record>> {
    let Some(segment) = view.segments.get(view.floor_slot(offset)) else {
        return Ok(None);
    };
    let open = view.open(segment)?;
    let (mut walk, header) = match find::find_record(&open, offset, &mut scratch.buffer)? {
        (walk, Found::Batch(header)) => (walk, header),
        (walk, Found::End(_)) => {
            scratch.buffer = walk.into_buffer();
            return Ok(None);
        }
    };
    let limits = &log.0.options.limits;
    let record = record_in(
        &mut walk,
        &header,
        offset,
        &mut scratch.decompressor,
        limits,
    );
    scratch.buffer = walk.into_buffer();
    record
}

/// Returns the record at `offset` in the batch of the walk's last step.
fn record_in(
    walk: &mut Walk,
    header: &BatchHeader,
    offset: i64,
    decompressor: &mut Decompressor,
    limits: &Limits,
) -> Result<Option<Record>> {
    let holds = header.base_offset.is_none_or(|base| base <= offset);
    if !holds || walk.verify(header)?.is_some() || header.attributes.is_control() {
        return Ok(None);
    }
    walk.batch()?;
    let walk = &*walk;
    let at = |error: Error| {
        walk.place(error)
            .at_offset(header.base_offset.unwrap_or(header.last_offset))
    };
    let limit = limits.max_decompressed_bytes;
    let mut records =
        Records::open(header, walk.loaded_batch(), decompressor, limit).map_err(at)?;
    let found = records
        .find(|record| record.offset >= offset)
        .map_err(|error| at(error.into()))?;
    let Some(record) = found.filter(|record| record.offset == offset) else {
        return Ok(None);
    };
    limits.check_headers(&record).map_err(at)?;
    Record::new(header, &record).map(Some)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use crate::{AppendOptions, BatchBuilder, LogWriter, OpenOptions, WriteOptions};

    /// How many look-ups read once, and how many more than once, in a log of so many batches with records of such sizes.
    fn reads(batches: usize, sizes: &[usize]) -> [usize; 2] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t-0");
        let open = OpenOptions::default();
        let writer = LogWriter::open(&path, &open, &WriteOptions::default()).unwrap();
        let mut batch = BatchBuilder::default();
        for _ in 0..batches {
            for &size in sizes {
                batch.push(1, None, Some(&vec![7; size]), &[]).unwrap();
            }
            writer
                .append(&mut batch, &AppendOptions::default())
                .unwrap();
        }
        writer.close().unwrap();
        let log = Log::open(&path, &open).unwrap();
        let view = log.fresh_view().unwrap();
        let segment = view.open(&view.segments[0]).unwrap();
        let end = view.end().unwrap().log_end_offset;
        let (mut once, mut more) = (0, 0);
        let mut buffer = Vec::new();
        // Some steps from each other, so that each comes behind another batch than the one before.
        for offset in (0..end).map(|at| at * 7919 % end).skip(1) {
            let (mut walk, found) = find::find_record(&segment, offset, &mut buffer).unwrap();
            let Found::Batch(header) = found else {
                panic!("offset {offset} is in the log");
            };
            assert!(header.base_offset.unwrap() <= offset && offset <= header.last_offset);
            assert_eq!(walk.verify(&header).unwrap(), None);
            if walk.fills() == 1 {
                once += 1;
            } else {
                more += 1;
            }
            buffer = walk.into_buffer();
        }
        [once, more]
    }

    #[test]
    fn where_batches_are_alike_a_look_up_reads_once() {
        // The first one does not know yet how large batches are.
        for sizes in [vec![1000], vec![90], vec![150; 9], vec![500; 5], vec![3000]] {
            let [once, more] = reads(100, &sizes);
            assert!(
                more <= 2,
                "{sizes:?}: {once} read once, {more} more than once"
            );
        }
    }

    #[test]
    fn of_large_batches_only_those_whose_last_record_is_asked_for_read_twice() {
        let [once, more] = reads(50, &[1000; 16]);
        // And those of the first batch, to which no entry leads.
        assert!(more <= 50 + 16, "{once} read once, {more} more than once");
    }
}
