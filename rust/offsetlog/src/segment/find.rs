//! Finds the batch that holds an offset: looks the offset up in the index, checks the entry, scans forward.

use super::offset_index::{IndexSlot, IndexState};
use super::walk::{HOP_BYTES, LOOKUP_BYTES, SCAN_BYTES, Step, TornTail, Walk};
use super::{OpenSegment, Source};
use crate::codec::Decompressor;
use crate::error::Result;
use offsetlog_format::BatchHeader;
use std::sync::Arc;

/// How much more a look-up reads than a batch as large as others, so that a slightly larger one needs no second read.
const SPARE_BYTES: usize = 64;

/// How a look-up went, for diagnostics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace {
    pub(crate) entry: Option<IndexSlot>,
    pub(crate) rejected: Option<(IndexSlot, String)>,
    pub(crate) scanned_batches: u64,
    pub(crate) scanned_bytes: u64,
}

/// The result of a look-up.
#[derive(Debug)]
pub(crate) enum Found {
    /// The first batch whose last offset is at or after the target. The walk is positioned after it.
    Batch(BatchHeader),
    /// The segment has no such batch.
    End(Option<TornTail>),
}

/// How much a walk reads at once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReadAhead {
    /// This many bytes.
    Bytes(usize),
    /// As far as a batch with about this offset; `i64::MAX` where that is not known. Decides how much is read, never what is found.
    To(i64),
}

/// Starts a walk at the position that the index gives for `target`.
///
/// Invariant: the walk misses no batch with an offset at or after `target`, whatever the index says. An entry is used only if
/// the batch header at its position begins at or before the target: offsets ascend, so every earlier batch ends before it.
/// Otherwise the walk starts at position 0.
pub(crate) fn start(
    segment: &Arc<OpenSegment>,
    target: i64,
    read_ahead: ReadAhead,
    buffer: Vec<u8>,
    trace: &mut Trace,
) -> Result<Walk> {
    let around = segment.index().around(target);
    start_peeked(segment, around, target, read_ahead, buffer, trace).map(|(walk, _)| walk)
}

/// The index entry at or below a target, and the one after it.
type Around = (Option<IndexSlot>, Option<IndexSlot>);

/// As [`start`], from the entries around the target; also the header at the walk's position if that was looked at.
fn start_peeked(
    segment: &Arc<OpenSegment>,
    around: Around,
    target: i64,
    read_ahead: ReadAhead,
    buffer: Vec<u8>,
    trace: &mut Trace,
) -> Result<(Walk, Option<BatchHeader>)> {
    let from_start = |bytes, buffer| Ok((Walk::new(Arc::clone(segment), 0, bytes, buffer), None));
    let (Some(entry), next) = around else {
        return from_start(read_ahead.at_start(), buffer);
    };
    let read_ahead = match read_ahead {
        ReadAhead::Bytes(bytes) => bytes,
        ReadAhead::To(end) => look_up_bytes(segment, entry, next, end),
    };
    if entry.position == 0 {
        trace.entry = Some(entry);
        return from_start(read_ahead, buffer);
    }
    let reason = match check_entry(segment, entry, target, read_ahead, buffer)? {
        Ok((walk, header)) => {
            trace.entry = Some(entry);
            return Ok((walk, Some(header)));
        }
        Err(reason) => reason,
    };
    trace.rejected = Some((entry, reason));
    from_start(read_ahead, Vec::new())
}

/// How many bytes a look-up reads at once from an entry on: to where the target's batch probably ends, or only headers where batches
/// are larger than the index interval.
///
/// An entry says where a batch begins and which offset is its last. So if batches are as large as those found of late, their number
/// up to the target's is known. Before any was found, records are taken to be alike, and 1 KiB more is read.
fn look_up_bytes(
    segment: &OpenSegment,
    entry: IndexSlot,
    next: Option<IndexSlot>,
    end_offset: i64,
) -> usize {
    let until = next.map_or(segment.stat.size, |next| next.position);
    let gap = until.saturating_sub(entry.position);
    if gap > LOOKUP_BYTES as u64 {
        return HOP_BYTES;
    }
    let next = next.filter(|next| (entry.offset..=next.offset).contains(&end_offset));
    let Some(next) = next else {
        return (gap as usize + 1024).max(2048);
    };
    let records = next.offset.abs_diff(entry.offset).max(1);
    let passed = end_offset.abs_diff(entry.offset);
    let usual = u64::from(segment.usual_batch_bytes()).min(gap);
    if usual == 0 {
        let before = gap.saturating_mul(passed) / records + gap / 8;
        return (before.min(gap) as usize + 1024).max(2048);
    }
    let of_batch = (usual.saturating_mul(records) / gap).max(1);
    let batches = passed.div_ceil(of_batch).saturating_add(1);
    let end = batches.saturating_mul(usual).min(gap + usual);
    end as usize + SPARE_BYTES
}

impl ReadAhead {
    /// Bytes for a walk from the start of a segment, where no index entry says how far it is.
    pub(crate) const fn at_start(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::To(_) => LOOKUP_BYTES,
        }
    }
}

fn check_entry(
    segment: &Arc<OpenSegment>,
    entry: IndexSlot,
    target: i64,
    read_ahead: usize,
    buffer: Vec<u8>,
) -> Result<Result<(Walk, BatchHeader), String>> {
    if entry.offset < segment.base_offset || entry.position >= segment.stat.size {
        return Ok(Err(format!(
            "position {} is not before the end {} of the log",
            entry.position, segment.stat.size
        )));
    }
    let mut walk = Walk::new(Arc::clone(segment), entry.position, read_ahead, buffer);
    match walk.peek()? {
        Some(header) => {
            let first = match header.base_offset {
                Some(base) => base,
                None => match first_offset_of_set(&mut walk, &header) {
                    Some(first) => first,
                    None => return Ok(Err("the batch there cannot be read".to_owned())),
                },
            };
            if first <= target {
                Ok(Ok((walk, header)))
            } else {
                Ok(Err(format!("the batch there begins at offset {first}")))
            }
        }
        None => Ok(Err("no batch starts there".to_owned())),
    }
}

/// First offset of a compressed message set of magic 0 or 1. Only its inner messages hold it, so the set is decompressed.
pub(crate) fn first_offset_of_set(walk: &mut Walk, header: &BatchHeader) -> Option<i64> {
    let limit = walk.segment().directory.limits.max_decompressed_bytes;
    let bytes = walk.peeked(header).ok()?;
    let mut decompressor = Decompressor::new();
    let records = crate::records::Records::open(header, bytes, &mut decompressor, limit).ok()?;
    records.first_offset()
}

/// Looks `target` up and scans headers to the first batch whose last offset is at or after it.
///
/// If the scan meets damage or a torn tail after an index entry, the entry may have pointed into the middle of a batch. The
/// scan is then repeated from the start of the segment, and only that result counts.
pub(crate) fn find(
    segment: &Arc<OpenSegment>,
    target: i64,
    read_ahead: ReadAhead,
    buffer: Vec<u8>,
    trace: &mut Trace,
) -> Result<(Walk, Found)> {
    let around = segment.index().around(target);
    find_from(segment, around, target, read_ahead, buffer, trace)
}

/// Finds the batch that holds the record at `target`, as [`find`] does. Begins with a shortcut for large batches.
#[inline]
pub(crate) fn find_record(
    segment: &Arc<OpenSegment>,
    target: i64,
    buffer: &mut Vec<u8>,
) -> Result<(Walk, Found)> {
    let around = segment.index().around(target);
    if let Some((walk, header)) = find_next_entry(segment, around, target, buffer)? {
        return Ok((walk, Found::Batch(header)));
    }
    let (buffer, read_ahead) = (std::mem::take(buffer), ReadAhead::To(target));
    let trace = &mut Trace::default();
    find_from(segment, around, target, read_ahead, buffer, trace)
}

fn find_from(
    segment: &Arc<OpenSegment>,
    around: Around,
    target: i64,
    read_ahead: ReadAhead,
    buffer: Vec<u8>,
    trace: &mut Trace,
) -> Result<(Walk, Found)> {
    let (walk, peeked) = start_peeked(segment, around, target, read_ahead, buffer, trace)?;
    let Some(entry) = trace.entry.filter(|entry| entry.position > 0) else {
        return scan_to(walk, peeked, target, trace);
    };
    match scan_to(walk, peeked, target, trace) {
        Ok((walk, found @ (Found::Batch(_) | Found::End(None)))) => Ok((walk, found)),
        Ok((_, Found::End(Some(_)))) | Err(_) => {
            trace.rejected = Some((entry, "no batch follows from there".to_owned()));
            trace.entry = None;
            let bytes = read_ahead.at_start();
            let walk = Walk::new(Arc::clone(segment), 0, bytes, Vec::new());
            scan_to(walk, None, target, trace)
        }
    }
}

/// Scans from the walk's position, at which the batch with the header `peeked` is if there is one.
fn scan_to(
    mut walk: Walk,
    mut peeked: Option<BatchHeader>,
    target: i64,
    trace: &mut Trace,
) -> Result<(Walk, Found)> {
    let from = walk.position();
    trace.scanned_batches = 0;
    let found = loop {
        let step = match peeked.take() {
            Some(header) => walk.step_peeked(header)?,
            None => walk.step(false)?,
        };
        match step {
            Step::Batch(header) => {
                trace.scanned_batches += 1;
                if header.last_offset >= target {
                    walk.segment().note_batch_bytes(header.size_bytes);
                    break Found::Batch(header);
                }
            }
            Step::End(torn) => break Found::End(torn),
        }
    };
    trace.scanned_bytes = walk.position() - from;
    Ok((walk, found))
}

/// A shortcut for batches larger than the index interval. The entry after the one that the look-up gives is then the target
/// batch's own entry, and the batch header proves it. `None` means that the shortcut does not apply, not that the offset is
/// missing.
#[inline]
fn find_next_entry(
    segment: &Arc<OpenSegment>,
    (entry, next): Around,
    target: i64,
    buffer: &mut Vec<u8>,
) -> Result<Option<(Walk, BatchHeader)>> {
    let before = entry.map_or(0, |entry| entry.position);
    let Some(next) = next else {
        return Ok(None);
    };
    let is_own_entry = entry.is_some_and(|entry| entry.offset == target);
    let gap = next.position.saturating_sub(before);
    if is_own_entry || gap <= LOOKUP_BYTES as u64 || next.position >= segment.stat.size {
        return Ok(None);
    }
    // The batch ends at the latest where the entry after its own begins.
    let after = segment.index().entry(next.slot + 1);
    let read_ahead = match after.and_then(|after| after.position.checked_sub(next.position)) {
        Some(bytes) => bytes.clamp(HOP_BYTES as u64, SCAN_BYTES as u64),
        None => (gap + 1024).clamp(LOOKUP_BYTES as u64, SCAN_BYTES as u64),
    } as usize;
    let buffer = std::mem::take(buffer);
    let mut walk = Walk::new(Arc::clone(segment), next.position, read_ahead, buffer);
    match walk.peek()? {
        Some(header)
            if header.base_offset.is_some_and(|base| base <= target)
                && target <= header.last_offset =>
        {
            walk.step_peeked(header)?;
            Ok(Some((walk, header)))
        }
        _ => Ok(None),
    }
}

impl OpenSegment {
    /// The state of the offset index file.
    pub(crate) fn index_state(&self) -> IndexState {
        self.index().state()
    }

    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.source, Source::Mapped(_))
    }
}
