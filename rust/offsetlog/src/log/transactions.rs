//! Finds in the log itself which transactions were committed, which were aborted, and which are open.
//!
//! A missing or emptied `.txnindex` cannot be told from that of a segment without aborts, so it decides nothing here. The markers
//! in the log do: a record of a transactional producer has the fate of that producer's next marker. They are found by one
//! walk over batch headers from where the reader starts.

use super::active_producers::OpenTransactions;
use super::values::AbortedTransaction;
use super::{Log, View};
use crate::codec::Decompressor;
use crate::error::{Error, Result};
use crate::records::Records;
use crate::segment::find::{self, ReadAhead, Trace};
use crate::segment::walk::{Walk, hop_headers_from};
use offsetlog_format::BatchHeader;
use offsetlog_format::control::{ControlRecord, ControlType};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

/// A producer's markers, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marker {
    pub(super) offset: i64,
    pub(super) aborted: bool,
    /// -1 in a marker whose value cannot be read: readers go by the key alone.
    pub(super) coordinator_epoch: i32,
}

/// How transactions with records at or after some offset ended.
#[derive(Debug, Default)]
pub(crate) struct TxnOutcomes {
    markers: HashMap<i64, Vec<Marker>>,
    /// First offset of each aborted transaction whose first batch the walk saw, by producer and marker.
    aborted: Vec<(AbortedTransaction, i64)>,
    /// First offset of each transaction that had no marker where the walk ended, by producer id.
    open: HashMap<i64, i64>,
    /// What the walk met; what comes after is not known.
    damage: Option<TxnOutcomesDamage>,
}

/// Damage that hides markers.
#[derive(Debug, Clone)]
pub(crate) struct TxnOutcomesDamage {
    /// Last offset before it.
    last: i64,
    /// Name of the error's kind, and its words.
    pub(crate) kind: &'static str,
    pub(crate) words: String,
}

impl TxnOutcomesDamage {
    pub(crate) fn of(error: &Error, last: i64) -> Self {
        Self {
            last,
            kind: error.kind().code(),
            words: error.words(),
        }
    }
}

/// What became of a record's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TxnOutcome {
    Committed,
    Aborted,
    /// No marker yet, or none that could be read.
    Undecided,
}

impl TxnOutcomes {
    /// The fate of a transactional record of `producer_id` at `offset`, which is at or after the walk's start.
    pub(crate) fn of(&self, producer_id: i64, offset: i64) -> TxnOutcome {
        let markers = self
            .markers
            .get(&producer_id)
            .map_or(&[][..], Vec::as_slice);
        let next = markers.partition_point(|marker| marker.offset < offset);
        match markers.get(next) {
            Some(marker) if marker.aborted => TxnOutcome::Aborted,
            Some(_) => TxnOutcome::Committed,
            None => TxnOutcome::Undecided,
        }
    }

    pub(crate) const fn is_incomplete(&self) -> bool {
        self.damage.is_some()
    }

    pub(crate) const fn damage(&self) -> Option<&TxnOutcomesDamage> {
        self.damage.as_ref()
    }

    /// The aborted transactions with a marker at or after `start` that began before `stop`.
    pub(super) fn aborted_between(
        &self,
        start: i64,
        stop: i64,
    ) -> impl Iterator<Item = AbortedTransaction> + '_ {
        let is_between = move |(aborted, marker): &&(AbortedTransaction, i64)| {
            *marker >= start && aborted.first_offset < stop
        };
        self.aborted
            .iter()
            .filter(is_between)
            .map(|(aborted, _)| *aborted)
    }

    /// First offset of the oldest transaction that had no marker where the walk ended.
    pub(super) fn first_open(&self) -> Option<i64> {
        self.open.values().copied().min()
    }

    /// Offset, exclusive, up to which all is known: the damage, or the first transaction whose marker it may hide. `None` without damage.
    pub(super) fn known_to(&self) -> Option<i64> {
        let damage = self.damage.as_ref()?;
        let open = self.first_open();
        let last = damage.last.saturating_add(1);
        Some(open.map_or(last, |first| first.min(last)))
    }

    /// Whether a walk from `from` on could not tell more.
    pub(crate) fn knows(&self, from: i64) -> bool {
        self.damage
            .as_ref()
            .is_none_or(|damage| from <= damage.last)
    }
}

/// Whether a control batch ends a transaction, and how; `None` for other kinds of control records.
pub(super) fn marker_of(
    header: &BatchHeader,
    walk: &mut Walk,
    limit: u64,
) -> Result<Option<Marker>> {
    if header.record_count == 0 {
        // A cleaned marker: the cleaner keeps the batch without its record once the transaction's data are gone.
        return Ok(None);
    }
    // A marker with a flipped bit would show what was aborted, or hide what was committed.
    if walk.verify(header)?.is_some() {
        // The unfinished end: no marker so far.
        walk.step_over(header);
        return Ok(None);
    }
    let walk = &*walk;
    let at = |error: Error| walk.place(error).at_offset(header.last_offset);
    let mut decompressor = Decompressor::new();
    let mut records =
        Records::open(header, walk.loaded_batch(), &mut decompressor, limit).map_err(at)?;
    let Some(record) = records.next_record().map_err(|error| at(error.into()))? else {
        return Ok(None);
    };
    let kind = ControlType::parse_key(record.key).map_err(|error| at(error.into()))?;
    let coordinator_epoch = match ControlRecord::parse(record.key, record.value) {
        Ok(
            ControlRecord::Commit { coordinator_epoch }
            | ControlRecord::Abort { coordinator_epoch },
        ) => coordinator_epoch,
        _ => -1,
    };
    Ok(match kind {
        ControlType::Abort => Some(true),
        ControlType::Commit => Some(false),
        _ => None,
    }
    .map(|aborted| Marker {
        offset: record.offset,
        aborted,
        coordinator_epoch,
    }))
}

impl Log {
    /// As [`Log::last_stable_offset`], of a view.
    pub(crate) fn last_stable_offset_of(&self, view: &View) -> Result<i64> {
        if let Some(told) = view.told_last_stable() {
            return Ok(told);
        }
        let open = self.open_transactions_of(view)?;
        self.bound_of(view, open)
    }

    /// The same where it is known without reading.
    pub(super) fn known_last_stable_offset(&self, view: &View) -> Option<i64> {
        let told = view.told_last_stable();
        told.or_else(|| self.bound_of(view, view.open_transactions.get()?).ok())
    }

    fn bound_of(&self, view: &View, open: &OpenTransactions) -> Result<i64> {
        let end = view.end()?.log_end_offset;
        let bound = match view.high_watermark {
            Some(high_watermark) if high_watermark < end && self.has_owner_still()? => {
                high_watermark.max(view.log_start_offset).min(end)
            }
            _ => end,
        };
        Ok(open
            .first_offset()
            .map_or(bound, |first| first.max(view.log_start_offset).min(bound)))
    }

    /// How the transactions with records from `from` on ended. Kept with the view, so that scans of one log share the walk.
    ///
    /// Fails where bytes were read that another process was changing.
    pub(super) fn txn_outcomes(&self, view: &View, from: i64) -> Result<Arc<TxnOutcomes>> {
        let mut kept = view
            .txn_outcomes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((start, txn_outcomes)) = kept.as_ref()
            && *start <= from
            && txn_outcomes.knows(from)
        {
            return Ok(Arc::clone(txn_outcomes));
        }
        let mut txn_outcomes = TxnOutcomes::default();
        let mut last = from;
        if let Err(error) = self.walk_txn_outcomes(view, from, &mut txn_outcomes, &mut last) {
            if !view.shows_damage(&error) {
                return Err(error);
            }
            txn_outcomes.damage = Some(TxnOutcomesDamage::of(&error, last));
        }
        let txn_outcomes = Arc::new(txn_outcomes);
        *kept = Some((from, Arc::clone(&txn_outcomes)));
        Ok(txn_outcomes)
    }

    /// The error of the damage that hides how transactions with records from `from` on ended. Walks to it again.
    pub(super) fn outcomes_error(&self, view: &View, from: i64) -> Error {
        let walked = self.walk_txn_outcomes(view, from, &mut TxnOutcomes::default(), &mut 0);
        // The bytes that were damaged can be read now.
        walked.map_or_else(|error| error, |()| view.met_two_states())
    }

    fn walk_txn_outcomes(
        &self,
        view: &View,
        from: i64,
        txn_outcomes: &mut TxnOutcomes,
        last: &mut i64,
    ) -> Result<()> {
        let limit = self.0.options.limits.max_decompressed_bytes;
        self.visit_headers(view, from, |header, walk| {
            if header.last_offset < from {
                // The walk may begin earlier. Damage there does not affect the answer.
                return Ok(());
            }
            *last = header.last_offset;
            if header.producer_id < 0 || !header.attributes.is_transactional() {
                return Ok(());
            }
            if !header.attributes.is_control() {
                let first = header.base_offset.unwrap_or(header.last_offset);
                let open = txn_outcomes.open.entry(header.producer_id);
                open.or_insert(first);
            } else if let Some(marker) = marker_of(header, walk, limit)? {
                let first = txn_outcomes.open.remove(&header.producer_id);
                if let Some(first_offset) = first.filter(|_| marker.aborted) {
                    let aborted = AbortedTransaction {
                        producer_id: header.producer_id,
                        first_offset,
                    };
                    txn_outcomes.aborted.push((aborted, marker.offset));
                }
                txn_outcomes
                    .markers
                    .entry(header.producer_id)
                    .or_default()
                    .push(marker);
            }
            Ok(())
        })
    }

    /// The aborted transactions with a marker at or after `start` that began before `stop`.
    pub(super) fn aborted_transactions(
        &self,
        view: &View,
        start: i64,
        stop: i64,
    ) -> Result<Vec<AbortedTransaction>> {
        // From the log's first batch, so that the first offset of a transaction that began before `start` is the true one.
        let first_base = view
            .segments
            .first()
            .map_or(0, |segment| segment.base_offset);
        let txn_outcomes = self.txn_outcomes(view, first_base)?;
        if txn_outcomes.is_incomplete() {
            return Err(self.outcomes_error(view, first_base));
        }
        Ok(txn_outcomes.aborted_between(start, stop).collect())
    }

    /// Gives the header of each batch from the one that holds `from` on to `visit`, through all later segments.
    pub(super) fn visit_headers(
        &self,
        view: &View,
        from: i64,
        visit: impl FnMut(&BatchHeader, &mut Walk) -> Result<()>,
    ) -> Result<()> {
        self.visit_headers_below(view, (from, i64::MAX), visit)
    }

    /// The same, of segments that begin below `stop`.
    pub(super) fn visit_headers_below(
        &self,
        view: &View,
        (from, stop): (i64, i64),
        mut visit: impl FnMut(&BatchHeader, &mut Walk) -> Result<()>,
    ) -> Result<()> {
        let first = view.floor_slot(from);
        let segments = view.segments.iter().skip(first);
        for segment in segments.take_while(|segment| segment.base_offset < stop) {
            let open = view.open(segment)?;
            let position = if segment.base_offset < from {
                find::start(
                    &open,
                    from,
                    ReadAhead::To(i64::MAX),
                    Vec::new(),
                    &mut Trace::default(),
                )?
                .position()
            } else {
                0
            };
            hop_headers_from(&open, (position, from), &|| self.check(), &mut visit)?;
        }
        Ok(())
    }
}
