//! Fetches stored batches as ranges of files, for a caller that passes them on without reading them.
//!
//! Each byte is checked, framing and checksum, before it is given out the first time; [`Verified`] remembers up to where. A later fetch
//! finds its borders through the offset index and the headers beside them.

use super::transactions::TxnOutcomes;
use super::values::{AbortedTransaction, Isolation};
use super::verified::{Tail, Verified};
use super::{Log, ProducerState, View};
use crate::disk::{Access, DiskFile, IoCall};
use crate::error::{Error, ErrorKind, Result};
use crate::segment::find::{self, Found, ReadAhead, Trace};
use crate::segment::walk::{LOOKUP_BYTES, SCAN_BYTES, Step, Walk};
use crate::segment::{OpenSegment, Source};
use offsetlog_format::leader_epoch::LeaderEpochs;
use std::fmt;
use std::sync::{Arc, PoisonError};

/// How the transaction that a producer has open ends, as a caller knows it: `Some(true)` is a commit, `Some(false)` an abort, `None` not
/// decided.
pub type Outcome<'o> = dyn Fn(&ProducerState) -> Option<bool> + 'o;

/// Options of [`Log::fetch_range`].
#[derive(Clone, Copy)]
pub struct RangeOptions<'o> {
    /// Maximum size of the batches in bytes.
    pub max_bytes: u64,
    /// Whether the first batch is returned even if it is larger.
    pub min_one: bool,
    /// Which records the caller may read.
    pub isolation: Isolation,
    /// Offset, exclusive, at which the log is to end; the log end offset if that is lower.
    pub stop: Option<i64>,
    /// Ends open transactions in the caller's view: those it commits are readable, those it aborts are listed with the aborted
    /// transactions, and only those it does not decide bound the last stable offset.
    pub outcome: Option<&'o Outcome<'o>>,
}

impl fmt::Debug for RangeOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeOptions")
            .field("max_bytes", &self.max_bytes)
            .field("min_one", &self.min_one)
            .field("isolation", &self.isolation)
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}

impl Default for RangeOptions<'_> {
    fn default() -> Self {
        Self {
            max_bytes: 1 << 20,
            min_one: true,
            isolation: Isolation::ReadUncommitted,
            stop: None,
            outcome: None,
        }
    }
}

/// Bytes of a `.log` file.
#[derive(Debug, Clone)]
pub struct FileRange {
    /// The file, open for as long as somebody holds it.
    pub file: Arc<dyn DiskFile>,
    /// Position of the first byte.
    pub position: u64,
    /// Number of bytes.
    pub length: u64,
}

/// The result of [`Log::fetch_range`], all of one moment.
#[derive(Debug, Clone)]
pub struct FetchedRange {
    /// Whole batches of one segment, starting with the one that holds the offset; `None` for no batch.
    pub records: Option<FileRange>,
    /// See [`Log::log_start_offset`].
    pub log_start_offset: i64,
    /// See [`Log::log_end_offset`]; at most the caller's stop, and the start of damage that hides the end.
    pub log_end_offset: i64,
    /// See [`Log::last_stable_offset`]; -1 if damage hides it and the fetch does not need it.
    pub last_stable_offset: i64,
    /// With `read_committed`: the aborted transactions that have records in the batches.
    pub aborted: Vec<AbortedTransaction>,
}

/// Where a log begins and ends for readers, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// See [`Log::log_start_offset`].
    pub log_start_offset: i64,
    /// See [`Log::log_end_offset`]; the start of the damage if that hides the end.
    pub log_end_offset: i64,
    /// Whether damage in the active segment hides the end.
    pub is_damaged: bool,
    /// See [`Log::checkpointed_high_watermark`].
    pub high_watermark: Option<i64>,
    /// Leader epoch of the last batch, -1 if it has none or is hidden.
    pub leader_epoch: i32,
}

/// A border between batches: its position, and the offset after the batch before it.
type Border = (u64, i64);

/// What bounds `read_committed`.
struct Stable {
    /// -1 if damage hides it.
    offset: i64,
    /// Open transactions that the caller aborts.
    aborted: Vec<AbortedTransaction>,
    /// What the log says of its transactions, for `read_committed`.
    outcomes: Option<Arc<TxnOutcomes>>,
    /// Whether damage bounds it.
    is_hidden: bool,
}

impl Log {
    /// Returns where stored batches are, starting with the one that holds `offset`, like a broker's answer to a fetch. Unlike a broker,
    /// it returns whole batches with verified checksums only, at most those of one segment.
    ///
    /// Ends before `max_bytes`, before damage, before a batch with offsets at or after the end and, with `read_committed`, before one with
    /// offsets at or after the last stable offset. At the log end offset there are none, nor between the caller's stop and it.
    ///
    /// Cost: reads the bytes that no fetch of this log has returned before; otherwise two look-ups. The first one with `read_committed`
    /// walks over the batch headers of the log.
    ///
    /// # Errors
    /// `OffsetOutOfRange` below the log start offset and above the log end offset; corruption of the first batch, also at and above an end
    /// that damage hides, and where it hides the last stable offset; `Io`.
    pub fn fetch_range(&self, offset: i64, options: &RangeOptions<'_>) -> Result<FetchedRange> {
        self.ask(|view| self.fetch_range_in(view, offset, options))
    }

    /// Returns where the log begins and ends for readers: unlike [`log_end_offset`](Self::log_end_offset), that is known if damage hides
    /// the true end.
    ///
    /// # Errors
    /// `Io`; those of opening the active segment.
    pub fn extent(&self) -> Result<Extent> {
        self.ask(extent_of)
    }

    /// Returns the extent with the [leader epochs](Self::leader_epochs) of the same moment, or why these are not known: a checkpoint that
    /// is malformed does not hide the extent.
    ///
    /// Cost: a small file if the log changed since the last call, or that file is malformed.
    ///
    /// # Errors
    /// Those of [`extent`](Self::extent); `Io` and `Interrupted` of both.
    pub fn extent_and_epochs(&self) -> Result<(Extent, Result<Arc<LeaderEpochs>>)> {
        self.ask(|view| {
            let extent = extent_of(view)?;
            match self.leader_epochs_of(view) {
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Io { .. } | ErrorKind::Interrupted | ErrorKind::Closed
                    ) || error.is_corruption() && !view.shows_damage(&error) =>
                {
                    Err(error)
                }
                epochs => Ok((extent, epochs)),
            }
        })
    }

    fn fetch_range_in(
        &self,
        view: &View,
        offset: i64,
        options: &RangeOptions<'_>,
    ) -> Result<FetchedRange> {
        let (end, _, is_damaged) = readable_end(view)?;
        let stop = options.stop.unwrap_or(i64::MAX);
        let log_end_offset = end.min(stop).max(view.log_start_offset);
        let first = view
            .segments
            .first()
            .map_or(0, |segment| segment.base_offset);
        // Behind damage nobody knows where the log ends: an offset there may be one of it.
        let is_beyond = offset > end.max(view.log_start_offset) && !is_damaged;
        if offset < view.log_start_offset.max(first) || is_beyond {
            return Err(Error::new(ErrorKind::OffsetOutOfRange {
                requested: offset,
                log_start_offset: view.log_start_offset,
                log_end_offset: end.max(view.log_start_offset),
            })
            .at_path(self.path()));
        }
        if is_damaged && offset >= end {
            walk_to_damage(view).map_err(|(_, error)| error)?;
        }
        let stable = self.stable(view, options, log_end_offset)?;
        let limit = match options.isolation {
            Isolation::ReadUncommitted => log_end_offset,
            Isolation::ReadCommitted => stable.offset.min(log_end_offset),
        };
        if stable.is_hidden && options.isolation == Isolation::ReadCommitted && offset >= limit {
            // A marker may be hidden, and what waits for it would wait for ever.
            if is_damaged {
                walk_to_damage(view).map_err(|(_, error)| error)?;
            }
            let is_incomplete = |outcomes: &Arc<TxnOutcomes>| outcomes.is_incomplete();
            if limit < log_end_offset && stable.outcomes.as_ref().is_some_and(is_incomplete) {
                return Err(self.outcomes_error(view, first));
            }
        }
        let found = if offset < limit {
            self.range_from(view, offset, limit, end, options)?
        } else {
            None
        };
        let mut aborted = Vec::new();
        if let (Some((_, next)), Some(outcomes)) = (&found, &stable.outcomes) {
            let known = outcomes.aborted_between(offset, *next);
            let open = stable.aborted.iter().copied();
            aborted.extend(known.chain(open.filter(|open| open.first_offset < *next)));
        }
        Ok(FetchedRange {
            records: found.map(|(range, _)| range),
            log_start_offset: view.log_start_offset,
            log_end_offset,
            last_stable_offset: stable.offset.min(log_end_offset),
            aborted,
        })
    }

    fn stable(&self, view: &View, options: &RangeOptions<'_>, end: i64) -> Result<Stable> {
        let mut stable = Stable {
            offset: -1,
            aborted: Vec::new(),
            outcomes: None,
            is_hidden: false,
        };
        let bound = match options.outcome {
            None => self.last_stable_offset_of(view),
            Some(outcome) => self.open_transactions_of(view).map(|open| {
                let mut bound = end;
                for producer in open.producers() {
                    let Some(first_offset) = producer.transaction_first_offset else {
                        continue;
                    };
                    match outcome(producer) {
                        Some(true) => {}
                        Some(false) => stable.aborted.push(AbortedTransaction {
                            producer_id: producer.producer_id,
                            first_offset,
                        }),
                        None => bound = bound.min(first_offset.max(view.log_start_offset)),
                    }
                }
                bound
            }),
        };
        stable.offset = match bound {
            Ok(bound) => bound.min(end),
            Err(error) if view.shows_damage(&error) => {
                stable.is_hidden = true;
                -1
            }
            Err(error) => return Err(error),
        };
        if options.isolation == Isolation::ReadCommitted {
            let first = view
                .segments
                .first()
                .map_or(0, |segment| segment.base_offset);
            let outcomes = self.txn_outcomes(view, first)?;
            if stable.offset < 0 {
                stable.offset = outcomes.first_open().map_or(end, |open| open.min(end));
            }
            if let Some(known) = outcomes.known_to() {
                stable.is_hidden = true;
                stable.offset = stable.offset.min(known);
            }
            stable.offset = stable.offset.max(view.log_start_offset);
            stable.outcomes = Some(outcomes);
        }
        Ok(stable)
    }

    fn range_from(
        &self,
        view: &View,
        offset: i64,
        limit: i64,
        end: i64,
        options: &RangeOptions<'_>,
    ) -> Result<Option<(FileRange, i64)>> {
        for segment in view.segments.iter().skip(view.floor_slot(offset)) {
            if segment.base_offset >= limit {
                break;
            }
            let open = view.open(segment)?;
            let trace = &mut Trace::default();
            let (walk, found) =
                find::find(&open, offset, ReadAhead::To(offset), Vec::new(), trace)?;
            let Found::Batch(header) = found else {
                continue;
            };
            let start = walk.batch_position();
            let size = header.size_bytes as u64;
            let is_too_large = size > options.max_bytes && !options.min_one;
            if header.last_offset >= limit || is_too_large {
                break;
            }
            let wanted = start
                .saturating_add(options.max_bytes.max(size))
                .min(open.stat.size);
            let (wanted, by_headers) = match position_of(&open, limit, end) {
                Ok(bound) => (wanted.min(bound), false),
                // Headers show where the limit is, too.
                Err(error) if error.is_corruption() => (wanted, true),
                Err(error) => return Err(error),
            };
            let cuts = view.cut_count();
            let border = match self.checked_to(&open, cuts, start) {
                (Some(checked), index_is_wrong) if checked >= wanted => {
                    let by_headers = by_headers || index_is_wrong;
                    border_before(&open, (start, wanted), limit, by_headers)?
                }
                (checked, _) => self.verify_to(&open, cuts, start, checked, wanted, limit)?,
            };
            let (to, next) = border;
            if to <= start {
                break;
            }
            let range = FileRange {
                file: file_of(&open)?,
                position: start,
                length: to - start,
            };
            return Ok(Some((range, next)));
        }
        Ok(None)
    }

    /// Up to where the bytes from `start` on were checked, and whether the segment's index is wrong.
    fn checked_to(
        &self,
        open: &Arc<OpenSegment>,
        cuts: Option<u64>,
        start: u64,
    ) -> (Option<u64>, bool) {
        let mut verified = self
            .0
            .verified
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(known) = verified.get_mut(&open.base_offset) else {
            return (None, false);
        };
        if !known.still_holds(open, cuts) {
            verified.remove(&open.base_offset);
            return (None, false);
        }
        (known.end_from(start), known.index_is_wrong)
    }

    /// Checks batches up to `wanted`, and returns the last border. `checked`: up to where those from `start` on were checked before.
    fn verify_to(
        &self,
        open: &Arc<OpenSegment>,
        cuts: Option<u64>,
        start: u64,
        checked: Option<u64>,
        wanted: u64,
        limit: i64,
    ) -> Result<Border> {
        let from = checked.unwrap_or(start);
        let ahead = wanted.saturating_sub(from).min(SCAN_BYTES as u64) as usize;
        let mut walk = Walk::new(
            Arc::clone(open),
            from,
            ahead.max(LOOKUP_BYTES / 2),
            Vec::new(),
        );
        let index = open.index();
        let mut slot = slot_at(open, from);
        let mut index_is_wrong = false;
        let (mut to, mut next) = (from, None);
        let mut tail = None;
        let mut unchecked = 0_u64;
        loop {
            let header = match walk.step(false) {
                Ok(Step::Batch(header)) => header,
                Ok(Step::End(_)) => break,
                // The next fetch reports it.
                Err(error) if error.is_corruption() && to > start => break,
                Err(error) => return Err(error),
            };
            let after = to.saturating_add(header.size_bytes as u64);
            if after > wanted || header.last_offset >= limit {
                if next.is_none() {
                    next = Some(header.base_offset.unwrap_or(header.last_offset));
                }
                break;
            }
            match walk.verify(&header) {
                Ok(None) => {}
                Ok(Some(_)) => break,
                Err(error) if error.is_corruption() && to > start => break,
                Err(error) => return Err(error),
            }
            while let Some(entry) = index.entry(slot).filter(|entry| entry.position < after) {
                index_is_wrong |= entry.position != to;
                slot += 1;
            }
            unchecked += header.size_bytes as u64;
            if unchecked > 4 << 20 {
                unchecked = 0;
                self.check()?;
            }
            tail = Some(Tail::of(to, walk.loaded_batch()));
            to = after;
            next = Some(header.last_offset.saturating_add(1));
        }
        let mut verified = self
            .0
            .verified
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = verified
            .entry(open.base_offset)
            .or_insert_with(|| Verified::new(open, cuts));
        if !known.still_holds(open, cuts) {
            *known = Verified::new(open, cuts);
        }
        known.index_is_wrong |= index_is_wrong;
        if let Some(tail) = tail {
            known.add(from, to, tail);
        }
        drop(verified);
        match next {
            Some(next) => Ok((to, next)),
            // Nothing follows what was checked before: the headers before it tell its last offset.
            None => border_before(open, (start, to), limit, true),
        }
    }
}

/// The first slot of the index whose entry is at or after `position`.
fn slot_at(open: &OpenSegment, position: u64) -> usize {
    let index = open.index();
    let (mut low, mut high) = (0, index.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match index.entry(middle) {
            Some(entry) if entry.position < position => low = middle + 1,
            _ => high = middle,
        }
    }
    low
}

/// The last border of batches at or before `wanted`, among checked ones from `start` on, whose offsets are below `limit`.
fn border_before(
    open: &Arc<OpenSegment>,
    (start, wanted): (u64, u64),
    limit: i64,
    by_headers: bool,
) -> Result<Border> {
    let entry = slot_at(open, wanted)
        .checked_sub(1)
        .and_then(|slot| open.index().entry(slot))
        .filter(|entry| !by_headers && entry.position > start);
    let from = entry.map_or(start, |entry| entry.position);
    let ahead = wanted.saturating_sub(from).clamp(128, LOOKUP_BYTES as u64) as usize;
    let mut walk = Walk::new(Arc::clone(open), from, ahead, Vec::new()).headers_only();
    let (mut to, mut next) = (from, None);
    while to < wanted {
        let Step::Batch(header) = walk.step(false)? else {
            break;
        };
        let after = to.saturating_add(header.size_bytes as u64);
        if after > wanted || header.last_offset >= limit {
            if next.is_none() {
                next = Some(header.base_offset.unwrap_or(header.last_offset));
            }
            break;
        }
        to = after;
        next = Some(header.last_offset.saturating_add(1));
    }
    Ok((to, next.unwrap_or(open.base_offset)))
}

/// Position of the first batch with an offset at or after `limit`; the greatest number if the segment has none. `end` is the log end
/// offset.
fn position_of(open: &Arc<OpenSegment>, limit: i64, end: i64) -> Result<u64> {
    let is_behind = match open.next_base_offset {
        Some(next) => next <= limit,
        None => end <= limit,
    };
    if is_behind {
        return Ok(u64::MAX);
    }
    let trace = &mut Trace::default();
    let (walk, found) = find::find(open, limit, ReadAhead::To(limit), Vec::new(), trace)?;
    Ok(match found {
        Found::Batch(_) => walk.batch_position(),
        Found::End(_) => u64::MAX,
    })
}

fn file_of(open: &OpenSegment) -> Result<Arc<dyn DiskFile>> {
    match &open.source {
        Source::File(file) => Ok(Arc::clone(file)),
        Source::Mapped(_) => open
            .directory
            .disk
            .open(&open.path, Access::Read)
            .map_err(|error| Error::io(IoCall::Open, &open.path, error)),
    }
}

fn extent_of(view: &View) -> Result<Extent> {
    let (log_end_offset, leader_epoch, is_damaged) = readable_end(view)?;
    Ok(Extent {
        log_start_offset: view.log_start_offset,
        log_end_offset: log_end_offset.max(view.log_start_offset),
        is_damaged,
        high_watermark: view.high_watermark,
        leader_epoch,
    })
}

/// The log end offset, the leader epoch there, and whether damage hides the true ones.
fn readable_end(view: &View) -> Result<(i64, i32, bool)> {
    match view.end() {
        Ok(end) => Ok((end.log_end_offset, end.leader_epoch, false)),
        Err(error) if view.shows_damage(&error) => {
            if let Some(&known) = view.damaged_end.get() {
                return Ok((known, -1, true));
            }
            let known = match walk_to_damage(view) {
                Err((_, error)) if !view.shows_damage(&error) => return Err(error),
                Ok(end) | Err((end, _)) => end,
            };
            Ok((*view.damaged_end.get_or_init(|| known), -1, true))
        }
        Err(error) => Err(error),
    }
}

/// Walks the active segment to the damage in it: the offset up to which it is whole, with the error; without damage the end.
fn walk_to_damage(view: &View) -> std::result::Result<i64, (i64, Error)> {
    let start = view.log_start_offset;
    let Some(segment) = view.segments.last() else {
        return Ok(start);
    };
    let open = view.open(segment).map_err(|error| (start, error))?;
    let mut end = open.base_offset;
    let mut walk = Walk::new(open, 0, SCAN_BYTES, Vec::new());
    loop {
        match walk.step(true) {
            Ok(Step::Batch(header)) => end = header.last_offset.saturating_add(1),
            Ok(Step::End(_)) => return Ok(end),
            Err(error) => return Err((end, error)),
        }
    }
}
