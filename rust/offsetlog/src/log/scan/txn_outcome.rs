//! Decides whether the transaction of a batch was committed, aborted, or cannot be decided because of damage.

use super::{CorruptionPolicy, Cursor, Hole};
use crate::error::Result;
use crate::log::transactions::TxnOutcome;
use offsetlog_format::BatchHeader;
use std::sync::Arc;

impl Cursor {
    /// Returns the outcome of the transaction of a batch below the last stable offset. A transaction without a marker counts as
    /// committed: the cleaner removes markers only after an aborted transaction's records, and an open transaction is not below
    /// the last stable offset. If damage hides the outcome and damage is reported instead of raised, reports the batch and
    /// returns `Undecided`.
    pub(super) fn txn_outcome(
        &mut self,
        header: &BatchHeader,
        bad: &CorruptionPolicy,
    ) -> Result<TxnOutcome> {
        let from = header.base_offset.unwrap_or(header.last_offset);
        let known = self
            .txn_outcomes
            .as_ref()
            .filter(|txn_outcomes| txn_outcomes.knows(from));
        let txn_outcomes = if let Some(txn_outcomes) = known {
            Arc::clone(txn_outcomes)
        } else {
            let txn_outcomes = self.log.txn_outcomes(&self.view, from)?;
            self.txn_outcomes = Some(Arc::clone(&txn_outcomes));
            txn_outcomes
        };
        let txn_outcome = txn_outcomes.of(header.producer_id, from);
        if txn_outcome != TxnOutcome::Undecided {
            return Ok(txn_outcome);
        }
        if txn_outcomes.is_incomplete() && !bad.notes() {
            self.log.fates_error(&self.view, from)?;
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
