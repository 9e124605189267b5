//! The views of its log that a scan reads in: the first one, and newer ones after files were deleted, replaced or cut under it.

use super::{CorruptionPolicy, Cursor};
use crate::error::{Error, Result};
use crate::log::transactions::TxnOutcomesDamage;
use crate::log::{LOOKS_MAX, Log, View};
use std::sync::Arc;

/// Returns the view to begin in, and whether it may be old: a range with a stop needs no fresh one if a recent one contains it (for
/// `read_committed`, below the last stable offset) in one segment. Of several segments, another process may have cut one; the next may
/// still be open here.
pub(super) fn first(
    log: &Log,
    start: Option<i64>,
    stop: Option<i64>,
    is_committed: bool,
) -> Result<(Arc<View>, bool)> {
    if let Some(stop) = stop {
        let recent = log.recent_view()?;
        let first = start.unwrap_or(recent.log_start_offset);
        let has_it = recent.end().is_ok_and(|end| stop <= end.log_end_offset)
            && (recent.ends().is_some()
                || recent.floor_slot(first) == recent.floor_slot(stop.saturating_sub(1)));
        let stable = log.known_last_stable_offset(&recent);
        if has_it && (!is_committed || stable.is_some_and(|stable| stop <= stable)) {
            return Ok((recent, true));
        }
    }
    Ok((log.view_from(start)?, false))
}

/// The last stable offset for `read_committed`, or the damage that hides it; otherwise the greatest number.
pub(super) fn stable_in(
    log: &Log,
    view: &View,
    is_committed: bool,
) -> Result<std::result::Result<i64, TxnOutcomesDamage>> {
    if !is_committed {
        return Ok(Ok(i64::MAX));
    }
    match log.last_stable_offset_of(view) {
        Err(error) if view.shows_damage(&error) => Ok(Err(TxnOutcomesDamage::of(&error, i64::MIN))),
        found => found.map(Ok),
    }
}

/// Where a range begins. If damage hides the end, a start behind it may be within the log.
pub(super) fn start_in(log: &Log, view: &View, wanted: Option<i64>) -> Result<i64> {
    match log.checked_start(view, wanted) {
        Err(error) if view.shows_damage(&error) => Ok(wanted
            .unwrap_or(view.log_start_offset)
            .max(view.log_start_offset)),
        checked => checked,
    }
}

impl Cursor {
    /// Continues in a newer view if segments were deleted or replaced; otherwise returns `error`.
    pub(super) fn retry_in_new_view(&mut self, error: Error, buffer: &mut Vec<u8>) -> Result<()> {
        if self.looks >= LOOKS_MAX {
            return Err(error);
        }
        self.looks += 1;
        let view = self.log.view_after(&self.view, error)?;
        self.go_on_in(view, buffer)
    }

    /// Returns whether the cursor continues in a fresh view, because the one in use may be old and its segment ends short of the stop:
    /// another process may have cut the log since.
    pub(super) fn look_again(&mut self, buffer: &mut Vec<u8>) -> Result<bool> {
        let is_early = self.next.max(self.start) < self.stop;
        if !self.may_be_old || !is_early {
            return Ok(false);
        }
        self.go_on_in(self.log.fresh_view()?, buffer)?;
        Ok(true)
    }

    /// Returns whether the cursor continues behind its stop, because a segment of its view was replaced before it was opened, or because
    /// it had to take a newer view. The records that replaced those that compaction removed may be there.
    ///
    /// # Errors
    /// Damage that hides the new last stable offset, unless the scan reports damage: it then reads on, as one that begins there does.
    pub(super) fn go_on_behind(
        &mut self,
        buffer: &mut Vec<u8>,
        bad: &CorruptionPolicy,
    ) -> Result<bool> {
        // Damage hid the last stable offset of the newer view that the cursor is in: it kept the stop of the older one.
        let has_old_stop = self.lso_error.is_some() && self.stop < self.range_stop;
        let is_whole = self.range_stop < i64::MAX && self.stop >= self.range_stop;
        if is_whole || !(self.view.is_replaced() || has_old_stop) {
            return Ok(false);
        }
        let log = &self.log;
        let mut view = log.fresh_view()?;
        let mut stop = i64::MAX;
        if self.is_committed {
            (view, stop) = log.in_view(view, |view| {
                if bad.notes() {
                    Ok(stable_in(log, view, true)?.unwrap_or(i64::MAX))
                } else {
                    log.last_stable_offset_of(view)
                }
            })?;
        }
        self.stop = stop.min(self.range_stop).max(self.stop);
        // Retention may have removed what nobody asked for.
        self.next = self.next.max(view.log_start_offset);
        self.go_on_in(view, buffer)?;
        Ok(true)
    }

    pub(super) fn go_on_in(&mut self, view: Arc<View>, buffer: &mut Vec<u8>) -> Result<()> {
        if let Some(progress) = &self.progress
            && view.ends().is_none()
            && let Ok(end) = view.end()
        {
            progress.meet_end(end.log_end_offset);
        }
        // The truncated records may have ended transactions, and the records in their place have transactions of their own.
        self.txn_outcomes = None;
        let (log, next, stop) = (&self.log, self.next.max(self.start), self.stop);
        // Records that compaction removed may stand behind the old end again.
        let (range_stop, is_committed) = (self.range_stop, self.is_committed);
        let stop_at = |stable: i64| {
            if is_committed {
                range_stop.min(stable)
            } else {
                stop.min(stable)
            }
        };
        let (view, stable) = log.in_view(view, |view| {
            let stable = stable_in(log, view, self.is_committed)?;
            if next < stable.as_ref().map_or(stop, |&stable| stop_at(stable)) {
                if next == self.first {
                    // Nothing was read yet: a start that was cut off is reported, as when the scan was made.
                    start_in(log, view, Some(next))?;
                } else if next < view.log_start_offset {
                    // Retention deleted the next records.
                    return Err(log.out_of_range(view, next)?);
                }
            }
            Ok(stable)
        })?;
        match stable {
            Ok(stable) => (self.stop, self.lso_error) = (stop_at(stable), None),
            Err(damage) => self.lso_error = Some(damage),
        }
        self.may_be_old = false;
        self.start = next;
        self.slot = view.floor_slot(next);
        self.view = view;
        self.close(buffer);
        Ok(())
    }
}
