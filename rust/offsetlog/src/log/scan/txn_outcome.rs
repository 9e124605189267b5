//! Decides whether the transaction of a batch was committed, aborted, or cannot be decided because of damage.

use super::{CorruptionPolicy, Cursor, Hole};
use crate::error::Result;
use crate::log::LOOKS_MAX;
use crate::log::transactions::{TxnOutcome, TxnOutcomes};
use crate::segment::walk::Walk;
use offsetlog_format::BatchHeader;
use std::sync::Arc;

/// Each look can find one more place to be damaged.
const MARKER_LOOKS_MAX: u32 = 100;

impl Cursor {
    /// Returns how the transactions from `from` on ended. `None` if the cursor continues in a fresh view instead: another process may have
    /// cut off a marker meanwhile, and then the last stable offset is lower, too.
    pub(super) fn txn_outcomes_from(
        &mut self,
        from: i64,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Arc<TxnOutcomes>>> {
        if self.view.was_cut() {
            self.go_on_in(self.log.fresh_view()?, buffer)?;
            return Ok(None);
        }
        let fills = self.walk.as_ref().map_or(0, Walk::fills);
        let known = self.txn_outcomes.as_ref();
        if let Some(known) = known.filter(|txn_outcomes| txn_outcomes.knows(from)) {
            let known = Arc::clone(known);
            // Bytes that were read since may be those of a later log.
            if self.fills_checked == fills || !self.is_of_another(fills, buffer)? {
                return Ok(Some(known));
            }
            return Ok(None);
        }
        let txn_outcomes = match self.log.txn_outcomes(&self.view, from) {
            // Not of the batch that the cursor is at.
            Err(error) if error.is_corruption() && self.marker_looks < MARKER_LOOKS_MAX => {
                self.marker_looks += 1;
                let view = self.log.view_after(&self.view, error)?;
                self.go_on_in(view, buffer)?;
                return Ok(None);
            }
            found => found?,
        };
        if self.is_of_another(fills, buffer)? {
            return Ok(None);
        }
        self.txn_outcomes = Some(Arc::clone(&txn_outcomes));
        Ok(Some(txn_outcomes))
    }

    /// Returns whether the cursor continues in a fresh view, because the log was cut since the one in use: the bytes and the outcomes that
    /// were read may be of different logs.
    fn is_of_another(&mut self, fills: u64, buffer: &mut Vec<u8>) -> Result<bool> {
        let is_cut = self.view.was_cut();
        if !is_cut && self.view.ends().is_some() {
            // A writer of this process tells of each truncation.
            self.fills_checked = fills;
            return Ok(false);
        }
        if !is_cut && self.view.has_grown_in_place() {
            (self.fills_checked, self.marker_looks) = (fills, 0);
            return Ok(false);
        }
        let fresh = self.log.fresh_view()?;
        // Of a directory that changes all the time it is not known whether the log was cut: to look for ever would end nothing.
        if !is_cut && (self.marker_looks >= LOOKS_MAX || self.view.has_only_grown_to(&fresh)) {
            (self.fills_checked, self.marker_looks) = (fills, 0);
            return Ok(false);
        }
        self.marker_looks += 1;
        self.go_on_in(fresh, buffer)?;
        Ok(true)
    }

    /// Returns the outcome of the transaction of a batch below the last stable offset. A transaction without a marker counts as
    /// committed: the cleaner removes markers only after an aborted transaction's records, and an open transaction is not below
    /// the last stable offset. If damage hides the outcome and damage is reported instead of raised, reports the batch and
    /// returns `Undecided`.
    pub(super) fn txn_outcome(
        &self,
        txn_outcomes: &TxnOutcomes,
        header: &BatchHeader,
        bad: &CorruptionPolicy,
    ) -> Result<TxnOutcome> {
        let from = header.base_offset.unwrap_or(header.last_offset);
        let txn_outcome = txn_outcomes.of(header.producer_id, from);
        if txn_outcome != TxnOutcome::Undecided {
            return Ok(txn_outcome);
        }
        if txn_outcomes.is_incomplete() && !bad.notes() {
            return Err(self.log.outcomes_error(&self.view, from));
        }
        if self.lso_error.is_some() && !bad.notes() {
            // As the last stable offset, so the end of this transaction is not known.
            self.log.last_stable_offset_of(&self.view)?;
            return Err(self.view.met_two_states());
        }
        let damage = txn_outcomes.damage().or(self.lso_error.as_ref());
        let (Some(damage), Some(walk), true) = (damage, &self.walk, bad.notes()) else {
            return Ok(TxnOutcome::Committed);
        };
        let mut hole = Hole::of(&self.log, walk.segment().path.clone(), damage.kind);
        hole.position = walk.batch_position();
        hole.bytes = header.size_bytes as u64;
        hole.start = from.max(self.start);
        hole.stop = Some(header.last_offset.saturating_add(1).min(self.stop));
        hole.reason = format!("damage hides how its transaction ended: {}", damage.words);
        bad.note_behind(hole);
        Ok(TxnOutcome::Undecided)
    }
}
