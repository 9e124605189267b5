//! Decides whether the transaction of a batch was committed, aborted, or cannot be decided because of damage.

use super::{BadBatches, Cursor, Hole};
use crate::error::Result;
use crate::log::transactions::Fate;
use offsetlog_format::BatchHeader;
use std::sync::Arc;

impl Cursor {
    /// Returns the outcome of the transaction of a batch below the last stable offset. A transaction without a marker counts as
    /// committed: the cleaner removes markers only after an aborted transaction's records, and an open transaction is not below
    /// the last stable offset. If damage hides the outcome and damage is reported instead of raised, reports the batch and
    /// returns `Undecided`.
    pub(super) fn fate(&mut self, header: &BatchHeader, bad: &BadBatches) -> Result<Fate> {
        let from = header.base_offset.unwrap_or(header.last_offset);
        let known = self.fates.as_ref().filter(|fates| fates.knows(from));
        let fates = if let Some(fates) = known {
            Arc::clone(fates)
        } else {
            let fates = self.log.fates(&self.view, from)?;
            self.fates = Some(Arc::clone(&fates));
            fates
        };
        let fate = fates.of(header.producer_id, from);
        if fate != Fate::Undecided {
            return Ok(fate);
        }
        if fates.is_incomplete() && !bad.notes() {
            self.log.fates_error(&self.view, from)?;
        }
        let damage = fates.damage().or(self.unstable.as_ref());
        let (Some(damage), Some(walk), true) = (damage, &self.walk, bad.notes()) else {
            return Ok(Fate::Committed);
        };
        let mut hole = Hole::of(&self.log, walk.segment().path.clone(), damage.kind);
        hole.position = walk.batch_position();
        hole.bytes = header.size_bytes as u64;
        hole.start = from.max(self.start);
        hole.stop = Some(header.last_offset.saturating_add(1).min(self.stop));
        hole.reason = format!("damage hides how its transaction ended: {}", damage.words);
        bad.note_behind(hole);
        Ok(Fate::Undecided)
    }
}
