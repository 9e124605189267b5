//! Finds the first record at or after a timestamp.

use super::values::{Isolation, OffsetAndTimestamp};
use super::{Log, Scratch, View};
use crate::error::{Error, Result};
use crate::records::Records;
use crate::segment::find::{self, Found, ReadAhead, Trace};
use crate::segment::time_index::Start;
use crate::segment::walk::{LOOKUP_BYTES, Step, Walk};
use crate::segment::{OpenSegment, Segment};
use std::sync::{Arc, PoisonError};

/// How much more than the size of the batch before a look-up reads, so that a slightly larger one needs no second read.
const SPARE_BYTES: usize = 256;

/// A result and the segment that holds it.
type FoundIn = (OffsetAndTimestamp, Arc<OpenSegment>);

impl Log {
    /// Returns the first record in offset order, including control records, whose timestamp is at or after `timestamp` and
    /// whose offset is at or after the log start offset; `None` if there is none. With `read_committed` it also returns `None`
    /// if that record is at or after the last stable offset.
    ///
    /// Finds the segment by the segments' greatest timestamps and the position in it by the time index, if the index agrees
    /// with the log. Then it scans batches. The first look-up computes the greatest timestamps, with one small read for each
    /// segment up to the answer; later look-ups reuse them.
    ///
    /// Kafka stops after the first segment whose greatest timestamp is late enough. This continues, so that it finds a record
    /// if one exists (FORMAT.md «Time index»).
    ///
    /// # Errors
    /// Corruption of a scanned batch; `Io`.
    pub fn offset_for_timestamp(
        &self,
        timestamp: i64,
        isolation: Isolation,
    ) -> Result<Option<OffsetAndTimestamp>> {
        // A record that is found stays the answer when the log grows. If none is found, a fresh view may have one.
        let view = self.recent_view()?;
        if let Ok(Some((found, open))) = self.first_at_or_after(&view, timestamp)
            && (isolation == Isolation::ReadUncommitted
                || self
                    .known_last_stable_offset(&view)
                    .is_some_and(|last_stable_offset| found.offset < last_stable_offset))
            && view.is_whole(&open)
        {
            return Ok(Some(found));
        }
        self.ask(|view| {
            let found = self.first_at_or_after(view, timestamp)?;
            let found = found.map(|(found, _)| found);
            match (found, isolation) {
                (Some(found), Isolation::ReadCommitted)
                    if found.offset >= self.last_stable_offset_of(view)? =>
                {
                    Ok(None)
                }
                (answer, _) => Ok(answer),
            }
        })
    }

    fn first_at_or_after(&self, view: &View, timestamp: i64) -> Result<Option<FoundIn>> {
        let first_slot = view.floor_slot(view.log_start_offset);
        let mut slot = first_slot;
        let mut scratch = self.scratch();
        let mut result = Ok(None);
        while matches!(result, Ok(None)) {
            let Some(found) = self.next_segment_at_or_after(view, first_slot, slot, timestamp)?
            else {
                break;
            };
            result = self.first_record_at_or_after(view, found, timestamp, &mut scratch);
            slot = found + 1;
            self.check()?;
        }
        self.give_back(scratch);
        result
    }

    /// Slot of the first segment at or after `slot` with a timestamp at or after `timestamp`.
    ///
    /// The running maximum of the segments' greatest timestamps is kept, so a binary search finds the first such segment.
    fn next_segment_at_or_after(
        &self,
        view: &View,
        first_slot: usize,
        slot: usize,
        timestamp: i64,
    ) -> Result<Option<usize>> {
        if slot == first_slot {
            let mut known = view
                .max_timestamps
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            while known.last().is_none_or(|&last| last < timestamp) {
                let Some(segment) = view.segments.get(first_slot + known.len()) else {
                    return Ok(None);
                };
                let greatest = self.max_timestamp_of(view, segment)?;
                let before = known.last().copied().unwrap_or(i64::MIN);
                known.push(before.max(greatest));
            }
            return Ok(Some(
                first_slot + known.partition_point(|&greatest| greatest < timestamp),
            ));
        }
        for (at, segment) in view.segments.iter().enumerate().skip(slot) {
            if self.max_timestamp_of(view, segment)? >= timestamp {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn max_timestamp_of(&self, view: &View, segment: &Arc<Segment>) -> Result<i64> {
        let open = view.open(segment)?;
        Ok(segment.times(&open, &|| self.check())?.max_timestamp)
    }

    fn first_record_at_or_after(
        &self,
        view: &View,
        slot: usize,
        timestamp: i64,
        scratch: &mut Scratch,
    ) -> Result<Option<FoundIn>> {
        let Some(segment) = view.segments.get(slot) else {
            return Ok(None);
        };
        let open = view.open(segment)?;
        let buffer = std::mem::take(&mut scratch.buffer);
        let mut walk =
            self.start_at_time(segment, &open, timestamp, view.log_start_offset, buffer)?;
        let result = self.scan_for(&mut walk, timestamp, view.log_start_offset, scratch);
        scratch.buffer = walk.into_buffer();
        Ok(result?.map(|found| (found, open)))
    }

    fn scan_for(
        &self,
        walk: &mut Walk,
        timestamp: i64,
        log_start_offset: i64,
        scratch: &mut Scratch,
    ) -> Result<Option<OffsetAndTimestamp>> {
        let limit = self.0.options.limits.max_decompressed_bytes;
        let mut scanned = 0_u64;
        loop {
            let Step::Batch(header) = walk.step(false)? else {
                return Ok(None);
            };
            scanned += header.size_bytes as u64;
            if scanned > 1 << 20 {
                scanned = 0;
                self.check()?;
            }
            if header.max_timestamp < timestamp || header.last_offset < log_start_offset {
                continue;
            }
            if walk.verify(&header)?.is_some() {
                return Ok(None);
            }
            walk.batch()?;
            let walk = &*walk;
            let at = |error: Error| {
                walk.place(error)
                    .at_offset(header.base_offset.unwrap_or(header.last_offset))
            };
            let bytes = walk.loaded_batch();
            let mut records =
                Records::open(&header, bytes, &mut scratch.decompressor, limit).map_err(at)?;
            let found = records
                .find(|record| record.timestamp >= timestamp && record.offset >= log_start_offset)
                .map_err(|error| at(error.into()))?;
            if let Some(record) = found {
                return Ok(Some(OffsetAndTimestamp {
                    offset: record.offset,
                    timestamp: record.timestamp,
                    leader_epoch: (header.leader_epoch >= 0).then_some(header.leader_epoch),
                }));
            }
        }
    }

    fn start_at_time(
        &self,
        segment: &Segment,
        open: &Arc<OpenSegment>,
        timestamp: i64,
        log_start_offset: i64,
        buffer: Vec<u8>,
    ) -> Result<Walk> {
        let start = segment.times(open, &|| self.check())?.start(timestamp);
        if let Start::Entry {
            timestamp: entry_timestamp,
            offset,
            probable_end,
        } = start
        {
            let mut trace = Trace::default();
            let found = find::find(
                open,
                offset,
                ReadAhead::To(probable_end),
                buffer,
                &mut trace,
            );
            if let Ok((mut walk, Found::Batch(header))) = found
                && header.max_timestamp == entry_timestamp
            {
                // All records up to the end of this batch are older.
                return if header.last_offset < log_start_offset {
                    find::start(
                        open,
                        log_start_offset,
                        ReadAhead::To(probable_end),
                        walk.into_buffer(),
                        &mut trace,
                    )
                } else {
                    // Batches larger than the index interval have an entry each: the next one holds the answer.
                    walk.read_at_least(header.size_bytes + SPARE_BYTES);
                    Ok(walk)
                };
            }
            let walked = segment
                .walked_times(open, &|| self.check())?
                .start(timestamp);
            return start_at_position(open, walked, log_start_offset, Vec::new());
        }
        start_at_position(open, start, log_start_offset, buffer)
    }
}

fn start_at_position(
    open: &Arc<OpenSegment>,
    start: Start,
    log_start_offset: i64,
    buffer: Vec<u8>,
) -> Result<Walk> {
    match start {
        Start::Position(position) if position > 0 => {
            Ok(Walk::new(Arc::clone(open), position, LOOKUP_BYTES, buffer))
        }
        // Records below the log start offset cannot be the answer, so the walk skips them.
        _ if log_start_offset > open.base_offset => find::start(
            open,
            log_start_offset,
            ReadAhead::To(i64::MAX),
            buffer,
            &mut Trace::default(),
        ),
        _ => Ok(Walk::new(Arc::clone(open), 0, LOOKUP_BYTES, buffer)),
    }
}
