//! One pass of the cleaner: builds the offset map of the dirty part, then rewrites group after group of segments and hands each
//! to the writer.

use super::filter::{CleanContext, Counts, Standing};
use super::fingerprint::Fingerprint;
use super::in_order::{Batch, Board, InOrder, Misplaced, Question};
use super::offset_map::{OffsetMap, TOGETHER};
use super::output::{Output, discard};
use super::replaced::Replaced;
use super::tally::{Remains, Tally};
use super::transactions::{Data, Ending, Met, Outcomes};
use super::{Plan, Source};
use crate::codec::Decompressor;
use crate::error::{Error, ErrorKind, Result};
use crate::log::Log;
use crate::records::Records;
use crate::segment::find::{self, ReadAhead, Trace};
use crate::segment::walk::{Step, Walk};
use crate::segment::{Segment, segment_path};
use offsetlog_format::{BatchHeader, RecordView};
use std::cell::Cell;
use std::sync::Arc;

/// Bytes per read: few enough that they and the output made of them stay in the CPU cache.
const READ_BYTES: usize = 256 << 10;
/// Bytes between two checks for interruption.
const CHECK_BYTES: u64 = 4 << 20;

/// A pass in progress.
pub(crate) struct Pass<'l> {
    log: &'l Log,
    plan: &'l Plan,
    map: OffsetMap,
    tally: Tally,
    replaced: Replaced,
    outcomes: Outcomes<'l>,
    /// Called every few MiB; an error ends the pass.
    check: &'l dyn Fn() -> Result<()>,
    buffer: Vec<u8>,
    /// Fingerprints of the next keys for the map, with their records' offsets.
    keys: Vec<(Fingerprint, i64)>,
    unchecked: Cell<u64>,
    /// Read and written: segments, bytes, records.
    pub(crate) segments: (usize, usize),
    pub(crate) bytes: (u64, u64),
    pub(crate) records: (u64, u64),
}

/// What changes while segments are cleaned.
struct Cleaning {
    met: Met,
    tally: Tally,
    buffer: Vec<u8>,
    /// Read and written.
    bytes: (u64, u64),
}

impl<'l> Pass<'l> {
    pub(crate) fn new(
        log: &'l Log,
        plan: &'l Plan,
        map_bytes: usize,
        check: &'l dyn Fn() -> Result<()>,
    ) -> Result<Self> {
        let from = plan.segments.first().map_or(0, |first| first.base_offset);
        Ok(Self {
            log,
            plan,
            map: OffsetMap::new(map_bytes)?,
            tally: Tally::default(),
            replaced: Replaced::new(plan.first_dirty),
            outcomes: Outcomes::new(log, from, plan.log_start),
            check,
            buffer: Vec::new(),
            keys: Vec::with_capacity(TOGETHER),
            unchecked: Cell::new(0),
            segments: (0, 0),
            bytes: (0, 0),
            records: (0, 0),
        })
    }

    /// Number of keys in the map.
    pub(crate) const fn keys(&self) -> usize {
        self.map.len()
    }

    fn walk(&self, segment: &Source, from: i64) -> Result<Walk> {
        let directory = &self.log.0.directory;
        let next = Some(segment.next_base_offset);
        // Reads instead of mapping: for pages that are used once, a map costs more than a copy.
        let open = Segment::new(Arc::clone(directory), segment.base_offset, next)
            .open()?
            .0;
        find::start(
            &open,
            from,
            ReadAhead::Bytes(READ_BYTES),
            Vec::new(),
            &mut Trace::default(),
        )
    }

    /// Steps to the next batch and returns its header.
    fn step(&self, walk: &mut Walk) -> Result<Option<BatchHeader>> {
        let Step::Batch(header) = walk.step(false)? else {
            return Ok(None);
        };
        let unchecked = self.unchecked.get() + header.size_bytes as u64;
        self.unchecked.set(unchecked % CHECK_BYTES);
        if unchecked >= CHECK_BYTES {
            (self.check)()?;
        }
        Ok(Some(header))
    }

    /// Reads the dirty part into the map. Returns the offset up to which the map is complete.
    pub(crate) fn read_dirty(&mut self) -> Result<i64> {
        let mut latest = -1;
        let mut met = Met::default();
        let mut decompressor = Decompressor::new();
        for segment in self.plan.dirty() {
            let mut walk = self.walk(segment, self.plan.first_dirty)?;
            while let Some(header) = self.step(&mut walk)? {
                walk.verify(&header)?;
                if self.is_mapped(&header, &mut walk, &mut met)? {
                    let is_full = self
                        .put_all(&header, &walk, &mut decompressor, &mut latest)
                        .map_err(|error| walk.place(error).at_offset(header.last_offset))?;
                    if is_full {
                        return Ok(latest + 1);
                    }
                }
                if header.last_offset >= self.plan.first_dirty {
                    latest = header.last_offset;
                }
            }
            let end = segment.next_base_offset.min(self.plan.first_uncleanable);
            latest = end - 1;
        }
        Ok(latest + 1)
    }

    fn limit(&self) -> u64 {
        self.log.0.options.limits.max_decompressed_bytes
    }

    /// Whether the records of a batch belong in the map.
    fn is_mapped(&self, header: &BatchHeader, walk: &mut Walk, met: &mut Met) -> Result<bool> {
        if header.attributes.is_control() {
            met.control(header, walk, &self.outcomes, self.limit())?;
            return Ok(false);
        }
        let data = met.data(header, &self.outcomes)?;
        Ok(data == Data::Committed && header.last_offset >= self.plan.first_dirty)
    }

    /// Puts the keys of a batch into the map. Returns whether the map was full before all of them were in.
    fn put_all(
        &mut self,
        header: &BatchHeader,
        walk: &Walk,
        decompressor: &mut Decompressor,
        latest: &mut i64,
    ) -> Result<bool> {
        let limit = self.limit();
        let mut records = Records::open(header, walk.loaded_batch(), decompressor, limit)?;
        // Such records stay until a later one has their key: no other rule of the filter concerns them.
        let attributes = header.attributes;
        let mut is_plain =
            header.magic == 2 && !attributes.is_transactional() && !attributes.has_delete_horizon();
        let mut count = 0;
        if header.magic < 2 {
            // Records of old sets may have offsets of other batches, whose counts would be wrong then.
            self.tally.give_up();
        }
        self.tally.begin(header.last_offset, header.crc);
        loop {
            if let Records::V2(records) = &mut records {
                // A local decoder stays in registers.
                let mut plain = records.clone();
                while self.keys.len() < TOGETHER
                    && let Some(record) = plain.next_plain()
                {
                    count += 1;
                    is_plain &= self.take_key(&record);
                }
                *records = plain;
            }
            let mut is_over = false;
            let mut failed = None;
            if self.keys.len() < TOGETHER {
                match records.next_record() {
                    Ok(Some(record)) => {
                        count += 1;
                        is_plain &= self.take_key(&record);
                        continue;
                    }
                    Ok(None) => is_over = true,
                    Err(error) => failed = Some(error),
                }
            }
            if self.put_together(latest)? {
                return Ok(true);
            }
            if let Some(error) = failed {
                return Err(error.into());
            }
            if is_over {
                self.tally.end(if is_plain { count } else { 0 });
                return Ok(false);
            }
        }
    }

    /// Takes the key of a dirty record for the map. Returns whether it is dirty, and has a key and a value.
    #[inline]
    fn take_key(&mut self, record: &RecordView<'_>) -> bool {
        let Some(key) = record
            .key
            .filter(|_| record.offset >= self.plan.first_dirty)
        else {
            return false;
        };
        self.keys.push((self.map.fingerprint(key), record.offset));
        record.value.is_some()
    }

    fn put_together(&mut self, latest: &mut i64) -> Result<bool> {
        let fingerprints = self.keys.iter().map(|&(fingerprint, _)| fingerprint);
        self.map.fetch(fingerprints);
        for (fingerprint, offset) in self.keys.drain(..) {
            if self.map.is_full() {
                return Ok(true);
            }
            if let Some(before) = self.map.put(fingerprint, offset)? {
                self.tally.replace(before);
                self.replaced.note(before);
            }
            *latest = offset;
        }
        Ok(false)
    }

    /// Cleans all segments below `end`. Passes the base offsets of each group and the suffixes of its replacement files to
    /// `swap`, which owns these from then on.
    pub(crate) fn clean(
        &mut self,
        end: i64,
        mut swap: impl FnMut(&[i64], &[&str]) -> Result<()>,
    ) -> Result<()> {
        let plan = self.plan;
        let mut group = Cleaning {
            met: Met::default(),
            tally: std::mem::take(&mut self.tally),
            buffer: std::mem::take(&mut self.buffer),
            bytes: (0, 0),
        };
        let groups = plan.groups(end);
        let size = groups
            .iter()
            .copied()
            .flatten()
            .map(|source| source.size)
            .sum();
        let board = Board::default();
        let pass = &*self;
        let (segments, counts) = std::thread::scope(|scope| -> Result<_> {
            let mut lane = InOrder::start(scope, &board, (size, pass.limit()));
            let mut segments = (0, 0);
            for sources in groups {
                (pass.check)()?;
                let Some(first) = sources.first() else {
                    continue;
                };
                let suffixes = pass
                    .clean_group(sources, end, &mut lane, &mut group)
                    .inspect_err(|_| discard(&pass.log.0.directory, first.base_offset))?;
                let bases: Vec<i64> = sources.iter().map(|source| source.base_offset).collect();
                swap(&bases, &suffixes)?;
                segments.0 += sources.len();
                segments.1 += 1;
            }
            Ok((segments, lane.counts()))
        })?;
        let Counts { read, kept } = counts;
        self.records = (read, kept);
        self.segments = segments;
        self.bytes = group.bytes;
        Ok(())
    }

    fn clean_group<'p>(
        &'p self,
        group: &[Source],
        end: i64,
        lane: &mut InOrder<'_, 'p>,
        cleaning: &mut Cleaning,
    ) -> Result<Vec<&'static str>> {
        let config = &self.plan.config;
        let base = group.first().map_or(0, |first| first.base_offset);
        let mut out = Output::create(
            &self.log.0.directory,
            base,
            config.segment_index_bytes(),
            config.index_interval_bytes(),
            std::mem::take(&mut cleaning.buffer),
        )?;
        for source in group {
            let cleaned = self.clean_segment(source, end, lane, cleaning, &mut out);
            match cleaned {
                // A batch before it may have an error of its own, which comes first.
                Err(error) if !matches!(error.kind(), ErrorKind::Interrupted) => {
                    lane.finish(&mut out).map_err(|found| self.place(found))?;
                    return Err(error);
                }
                cleaned => cleaned?,
            }
            cleaning.bytes.0 += source.size;
        }
        lane.finish(&mut out).map_err(|found| self.place(found))?;
        let modified_ms = group.last().map_or(0, |last| last.modified_ms);
        let (suffixes, written, buffer) = out.finish(modified_ms)?;
        cleaning.buffer = buffer;
        cleaning.bytes.1 += written;
        Ok(suffixes)
    }

    fn clean_segment<'p>(
        &'p self,
        source: &Source,
        end: i64,
        lane: &mut InOrder<'_, 'p>,
        cleaning: &mut Cleaning,
        out: &mut Output,
    ) -> Result<()> {
        // The map was built from these batches, so their checksums were verified. A batch that stays unchanged keeps its
        // checksum; one that is rewritten is verified again.
        let checked = self.plan.first_dirty..end;
        let context = CleanContext {
            plan: self.plan,
            map: &self.map,
            replaced: &self.replaced,
            end,
            keeps_old_tombstones: source.modified_ms > self.plan.old_horizon(),
        };
        let mut walk = self.walk(source, source.base_offset)?.headers_only();
        while let Some(header) = self.step(&mut walk)? {
            let known = cleaning.tally.remains(header.last_offset, header.crc);
            if known.is_none_or(|(remains, _)| remains != Remains::Nothing) {
                if checked.contains(&header.last_offset) {
                    walk.batch()?;
                } else {
                    walk.verify(&header)?;
                }
            }
            let standing = self.standing(&header, &mut walk, &mut cleaning.met, out)?;
            let bytes = walk.loaded_batch();
            // A batch that somebody cut since its header was read is not copied: the filter finds that it is cut.
            let is_whole = bytes.len() == header.size_bytes;
            let question = match known {
                Some((Remains::Some(kept), records)) => {
                    let (read, kept) = (u64::from(records), u64::from(kept));
                    Question::Filter(standing, Some(Counts { read, kept }))
                }
                Some((remains, records)) if is_whole || remains == Remains::Nothing => {
                    Question::Known(remains, records)
                }
                _ => Question::Filter(standing, None),
            };
            let batch = Batch {
                context,
                header,
                question,
                at: (source.base_offset, walk.batch_position()),
            };
            lane.add(batch, bytes, out)
                .map_err(|found| self.place(found))?;
        }
        Ok(())
    }

    /// Adds the file and the position of its batch to an error.
    fn place(&self, (error, at): Misplaced) -> Error {
        match at {
            Some((base_offset, position)) => {
                let path = segment_path(&self.log.0.directory.path, base_offset, ".log");
                error.at_path(&path).at_position(position)
            }
            None => error,
        }
    }

    fn standing(
        &self,
        header: &BatchHeader,
        walk: &mut Walk,
        met: &mut Met,
        out: &mut Output,
    ) -> Result<Standing> {
        if !header.attributes.is_control() {
            return Ok(Standing {
                data: met.data(header, &self.outcomes)?,
                ended_before: false,
            });
        }
        let Ending { may_go, aborted } = met.control(header, walk, &self.outcomes, self.limit())?;
        if let Some(aborted) = aborted {
            out.push_aborted(&aborted);
        }
        Ok(Standing {
            data: Data::Committed,
            ended_before: may_go,
        })
    }
}

impl Plan {
    /// Segments modified at or before this time lose their tombstones of magic 0 and 1, which have no delete horizon.
    fn old_horizon(&self) -> i64 {
        let mut segments = self.segments.iter().rev();
        segments
            .find(|segment| segment.base_offset < self.first_dirty)
            .map_or(0, |segment| {
                segment.modified_ms - self.config.delete_retention_ms()
            })
    }
}
