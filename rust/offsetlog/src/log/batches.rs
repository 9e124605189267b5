//! Iterates the headers of a log's batches.

use super::values::BatchInfo;
use super::{LOOKS_MAX, Log, View};
use crate::codec::Decompressor;
use crate::error::{Error, Result};
use crate::records::Records;
use crate::segment::find::{self, ReadAhead, Trace};
use crate::segment::walk::{Step, Walk};
use std::sync::Arc;

/// Read-ahead in bytes for small batches. Only the headers of large batches are read.
const READ_AHEAD: usize = 64 * 1024;

/// Iterates the headers of a log's batches in offset order, including control batches. Does not verify checksums. The first
/// error ends the iteration.
#[derive(Debug)]
pub struct Batches {
    log: Log,
    view: Arc<View>,
    slot: usize,
    walk: Option<Walk>,
    start: i64,
    stop: i64,
    seen: u32,
    /// Number of newer views taken since the iterator last advanced.
    looks: u32,
}

impl Log {
    /// Iterates the batches that hold an offset from `start`, inclusive, to `stop`, exclusive. Default: all batches.
    ///
    /// # Errors
    /// `OffsetOutOfRange` if the start is outside the log.
    pub fn batches(&self, start: Option<i64>, stop: Option<i64>) -> Result<Batches> {
        let view = self.fresh_view()?;
        let (view, start) = self.in_view(view, |view| self.checked_start(view, start))?;
        Ok(Batches {
            log: self.clone(),
            slot: view.floor_slot(start),
            view,
            walk: None,
            start,
            stop: stop.unwrap_or(i64::MAX),
            seen: 0,
            looks: 0,
        })
    }

    /// Returns a fresh view to read from `start`: a later one if a writer was changing the bounds.
    pub(super) fn view_from(&self, start: Option<i64>) -> Result<Arc<View>> {
        let view = self.fresh_view()?;
        match view.check_bounds() {
            Ok(()) => Ok(view),
            // If the error persists, the read reports it.
            Err(_) => self
                .in_view(view, |view| self.checked_start(view, start))
                .map_or_else(|_| Ok(self.view()), |(view, _)| Ok(view)),
        }
    }

    /// Returns `start` if it is within the log; by default the log start offset.
    pub(super) fn checked_start(&self, view: &View, start: Option<i64>) -> Result<i64> {
        view.check_bounds()?;
        match start {
            None => Ok(view.log_start_offset),
            Some(start) if start < view.log_start_offset || start > view.end()?.log_end_offset => {
                Err(self.out_of_range(view, start)?)
            }
            Some(start) => Ok(start),
        }
    }
}

impl Batches {
    fn next_info(&mut self) -> Result<Option<BatchInfo>> {
        loop {
            match self.try_next() {
                Err(error) if self.looks >= LOOKS_MAX => return Err(error),
                Err(error) => {
                    self.looks += 1;
                    let view = self.log.view_after(&self.view, error)?;
                    self.go_on_in(view)?;
                }
                next => return next,
            }
        }
    }

    fn go_on_in(&mut self, view: Arc<View>) -> Result<()> {
        let (view, ()) = self.log.in_view(view, |view| {
            if self.start < view.log_start_offset && self.start < self.stop {
                // Retention deleted the next batches.
                return Err(self.log.out_of_range(view, self.start)?);
            }
            Ok(())
        })?;
        self.slot = view.floor_slot(self.start);
        self.view = view;
        self.walk = None;
        Ok(())
    }

    fn try_next(&mut self) -> Result<Option<BatchInfo>> {
        loop {
            if self.view.was_cut() {
                let view = self.log.fresh_view()?;
                self.go_on_in(view)?;
            }
            let Some(walk) = &mut self.walk else {
                let Some(segment) = self.view.segments.get(self.slot) else {
                    return Ok(None);
                };
                if segment.base_offset >= self.stop {
                    return Ok(None);
                }
                let open = self.view.open(segment)?;
                let walk = find::start(
                    &open,
                    self.start,
                    ReadAhead::Bytes(READ_AHEAD),
                    Vec::new(),
                    &mut Trace::default(),
                )?;
                self.walk = Some(walk.headers_only());
                self.slot += 1;
                continue;
            };
            let Step::Batch(header) = walk.step(false)? else {
                self.walk = None;
                continue;
            };
            self.seen = self.seen.wrapping_add(1);
            if self.seen.is_multiple_of(4096) {
                self.log.check()?;
            }
            if header.last_offset < self.start {
                continue;
            }
            let position = walk.batch_position();
            let segment = walk.segment().base_offset;
            let at = |error: Error, walk: &Walk| walk.place(error).at_offset(header.last_offset);
            let codec = header.codec().map_err(|error| at(error.into(), walk))?;
            let first = if let Some(base) = header.base_offset {
                base
            } else {
                walk.batch()?;
                let limit = self.log.0.options.limits.max_decompressed_bytes;
                let mut decompressor = Decompressor::new();
                let records = Records::open(&header, walk.loaded_batch(), &mut decompressor, limit)
                    .map_err(|error| at(error, walk))?;
                records.first_offset().unwrap_or(header.last_offset)
            };
            if first >= self.stop {
                return Ok(None);
            }
            self.start = header.last_offset.saturating_add(1);
            self.looks = 0;
            return Ok(Some(BatchInfo::new(
                &header, codec, first, position, segment,
            )));
        }
    }
}

impl Iterator for Batches {
    type Item = Result<BatchInfo>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_info().transpose();
        if !matches!(next, Some(Ok(_))) {
            // The iterator ends here and never continues after an error.
            self.walk = None;
            self.slot = self.view.segments.len();
        }
        next
    }
}
