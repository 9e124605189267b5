//! Cutting a range of offsets into ranges of about equal bytes, for tasks that run apart.

use super::{Log, View};
use crate::error::Result;
use crate::segment::OpenSegment;
use crate::segment::find::{self, ReadAhead, Trace};
use crate::segment::walk::{Walk, hop_headers};
use std::sync::Arc;

/// A range of offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// First offset, inclusive.
    pub start: i64,
    /// Last offset, exclusive.
    pub stop: i64,
    /// Bytes of `.log` files that reading it takes, about.
    pub size_bytes: u64,
}

impl Log {
    /// Cuts `start` to `stop` into ranges of at most about `max_bytes`. They tile the range exactly: each offset lies in one of
    /// them; cuts fall behind batches, so no batch is read twice.
    ///
    /// Cuts come from the offset indexes, one binary search and one header each; segments whose index is of no use have their
    /// headers walked. Ends are fixed at the time of the call: the last range does not grow with the log.
    ///
    /// # Errors
    /// `OffsetOutOfRange` for a start outside the log; `Argument` for `max_bytes` 0; `Io`.
    pub fn splits(
        &self,
        start: Option<i64>,
        stop: Option<i64>,
        max_bytes: u64,
    ) -> Result<Vec<Split>> {
        if max_bytes == 0 {
            return Err(crate::Error::argument(
                "max_bytes",
                "0 found, at least 1 expected",
            ));
        }
        self.ask(|view| self.splits_in(view, start, stop, max_bytes))
    }

    fn splits_in(
        &self,
        view: &View,
        start: Option<i64>,
        stop: Option<i64>,
        max_bytes: u64,
    ) -> Result<Vec<Split>> {
        let end = view.end()?.log_end_offset;
        let start = self.checked_start(view, start)?;
        let stop = stop.unwrap_or(end).min(end);
        let mut cutter = Cutter {
            splits: Vec::new(),
            start,
            size_bytes: 0,
            max_bytes,
        };
        for slot in view.floor_slot(start)..view.segments.len() {
            let Some(segment) = view
                .segments
                .get(slot)
                .filter(|segment| segment.base_offset < stop)
            else {
                break;
            };
            let open = view.open(segment)?;
            self.cut_segment(&open, start, stop, &mut cutter)?;
            self.check()?;
        }
        cutter.finish(stop);
        Ok(cutter.splits)
    }

    fn cut_segment(
        &self,
        open: &Arc<OpenSegment>,
        start: i64,
        stop: i64,
        cutter: &mut Cutter,
    ) -> Result<()> {
        let index = open.index();
        let first = position_of(open, start)?;
        let last = match index.lookup(stop) {
            Some(entry) if open.next_base_offset.is_none_or(|next| stop < next) => entry.position,
            _ => open.stat.size,
        };
        let last = last.min(open.stat.size).max(first);
        if cutter.size_bytes + (last - first) > cutter.max_bytes {
            cutter.cut(open.base_offset);
        }
        if last - first <= cutter.max_bytes {
            cutter.size_bytes += last - first;
            return Ok(());
        }
        let mut position = first;
        for slot in 0..index.len() {
            let Some(entry) = index.entry(slot) else {
                break;
            };
            let within = entry.position > position && entry.position <= last;
            if !within || cutter.size_bytes + (entry.position - position) < cutter.max_bytes {
                continue;
            }
            // The entry names a place; the header there says which offsets are before it.
            let mut walk = Walk::new(Arc::clone(open), entry.position, 4096, Vec::new());
            let Some(header) = walk.peek()?.filter(|header| header.last_offset < stop) else {
                continue;
            };
            let behind = entry.position + header.size_bytes as u64;
            cutter.size_bytes += behind - position;
            cutter.cut(header.last_offset + 1);
            position = behind;
        }
        if last.saturating_sub(position) > cutter.max_bytes {
            // Few entries or none: the headers say where batches end.
            let position = position_of(open, cutter.start)?;
            return self.cut_by_headers(open, position, stop, cutter);
        }
        cutter.size_bytes += last.saturating_sub(position);
        Ok(())
    }

    fn cut_by_headers(
        &self,
        open: &Arc<OpenSegment>,
        position: u64,
        stop: i64,
        cutter: &mut Cutter,
    ) -> Result<()> {
        hop_headers(open, position, &|| self.check(), |header, _| {
            cutter.size_bytes += header.size_bytes as u64;
            if cutter.size_bytes >= cutter.max_bytes && header.last_offset < stop {
                cutter.cut(header.last_offset + 1);
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Where a scan for `offset` would start in the segment.
fn position_of(open: &Arc<OpenSegment>, offset: i64) -> Result<u64> {
    let mut trace = Trace::default();
    let walk = find::start(
        open,
        offset,
        ReadAhead::To(i64::MAX),
        Vec::new(),
        &mut trace,
    )?;
    Ok(walk.position())
}

/// The ranges made so far and the one being made.
struct Cutter {
    splits: Vec<Split>,
    start: i64,
    size_bytes: u64,
    max_bytes: u64,
}

impl Cutter {
    /// Ends the present range before `offset`, unless it would be empty.
    fn cut(&mut self, offset: i64) {
        if offset > self.start {
            self.splits.push(Split {
                start: self.start,
                stop: offset,
                size_bytes: self.size_bytes,
            });
            self.start = offset;
            self.size_bytes = 0;
        }
    }

    fn finish(&mut self, stop: i64) {
        self.cut(stop);
    }
}
