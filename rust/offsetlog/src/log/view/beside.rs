//! What a reader's view shows of a writer in another process: whether it is at work, whether it only appended, and whether an error is
//! damage or a file that it is changing.

use super::{View, has_holder};
use crate::disk::IoCall;
use crate::error::{Error, ErrorKind, Result};
use crate::log::state::{LOCK_FILE, STATE_FILE, read_state};
use crate::log::{Interrupt, RACY_WAIT};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a reader waits at most for a writer that is changing the bounds, which may read segments for that, and how long between two
/// looks.
pub(super) const WRITER_WAIT: Duration = Duration::from_secs(10);
const WRITER_LOOK: Duration = Duration::from_millis(5);

/// How many errors are kept with a view.
const MET_MAX: usize = 1000;

/// Errors of reads that another process may have disturbed: an error that occurs again is damage.
#[derive(Debug, Default)]
pub(super) struct Met {
    /// Met in the views before.
    before: Vec<Place>,
    /// Met in this one.
    here: Vec<Place>,
    /// Met in both.
    again: Vec<Place>,
}

/// The kind of an error, and the bytes it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    kind: &'static str,
    path: Option<PathBuf>,
    position: Option<u64>,
}

impl Place {
    fn of(error: &Error) -> Self {
        Self {
            kind: error.kind().code(),
            path: error.path().map(Path::to_path_buf),
            position: error.position(),
        }
    }
}

impl Met {
    /// Notes an error, and returns whether it was met in a view before.
    fn note(&mut self, error: &Error) -> bool {
        let place = Place::of(error);
        let is_known = self.again.contains(&place);
        if is_known || self.before.contains(&place) {
            keep(&mut self.again, place);
            return true;
        }
        keep(&mut self.here, place);
        false
    }
}

fn keep(places: &mut Vec<Place>, place: Place) {
    if places.len() < MET_MAX && !places.contains(&place) {
        places.push(place);
    }
}

impl View {
    /// Whether an error is damage. If not, a file may have changed while it was read, and the caller passes the error on: the code that
    /// took the view looks again in a newer one.
    ///
    /// It is damage if nothing has changed since the view was taken, or if the same error occurred in an earlier view.
    pub(in crate::log) fn shows_damage(&self, error: &Error) -> bool {
        error.is_corruption()
            && ((!self.is_racy && self.is_undisturbed()) || self.met().note(error))
    }

    fn met(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands on to a newer view what was met in this one, so that what is met again there is damage.
    pub(in crate::log) fn hand_on(&self, error: &Error, newer: &Self) {
        let mut places = {
            let mut met = self.met();
            met.note(error);
            [met.before.clone(), met.here.clone()].concat()
        };
        let mut met = newer.met();
        for place in places.drain(..) {
            keep(&mut met.before, place);
        }
    }

    /// Hands on to a newer view of the same log what was found to be damage.
    pub(in crate::log) fn hand_on_damage(&self, newer: &Self) {
        let again = self.met().again.clone();
        newer.met().again = again;
    }

    /// The error of a read that saw two states of the log: the code that took the view looks again in a newer one.
    pub(in crate::log) fn met_two_states(&self) -> Error {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        Error::io(IoCall::Open, &self.directory.path, missing)
    }

    /// Whether this view's segments and bytes are in a later one, as far as names, files and sizes tell: the log was appended to, and
    /// rolled.
    pub(in crate::log) fn has_only_grown_to(&self, later: &Self) -> bool {
        let has_same_names = self.stamp.directory == later.stamp.directory;
        let has_rolled = later.base_offsets.len() > self.base_offsets.len()
            && later.base_offsets.starts_with(&self.base_offsets);
        (has_same_names || has_rolled) && self.active_has_grown()
    }

    /// Whether the names in the directory are those of this view, and its active segment is as it was or longer. Cheaper than a fresh view.
    pub(in crate::log) fn has_grown_in_place(&self) -> bool {
        let directory = self.directory.disk.stat(&self.directory.path).ok();
        directory == self.stamp.directory && self.active_has_grown()
    }

    fn active_has_grown(&self) -> bool {
        let active = self
            .segments
            .last()
            .map(|segment| segment.file_path(".log"));
        let now = active.and_then(|path| self.directory.disk.stat(&path).ok());
        match (self.stamp.active, now) {
            (Some(before), Some(now)) => before.id == now.id && before.size <= now.size,
            (before, now) => before == now,
        }
    }

    /// Whether a log whose records end below its start is empty at its start: a writer in another process continues there after a
    /// truncation inside a batch. It is not if that writer is truncating it below its start, or has done so since this view was taken.
    ///
    /// Fails if the view may be of two states, so that a newer one is taken.
    pub(super) fn is_empty_at_start(&self) -> Result<bool> {
        if !self.is_held()? {
            return Ok(false);
        }
        if self.directory.ends.is_some() {
            return Ok(true);
        }
        // Read again: the state file records a truncation before the first byte is deleted. When that entry is gone, the file has the lower
        // start, which a log dir's checkpoint gets later.
        let path = self.directory.path.join(STATE_FILE);
        let state = read_state(self.directory.disk.as_ref(), &path, &mut Vec::new())?;
        let is_cut = state.is_some_and(|state| {
            state.cutting.is_some() || state.log_start < self.log_start_offset
        });
        let is_settled = !self.is_racy && self.is_undisturbed();
        // Without a segment it is about to begin again.
        let is_cut_since = is_cut && !self.is_being_cut;
        if !is_settled || (is_cut_since && self.active.is_none() && self.changes_soon()) {
            return Err(self.met_two_states());
        }
        Ok(!is_cut)
    }

    /// Whether an offsetlog writer holds the partition's lock.
    fn is_held(&self) -> Result<bool> {
        let (disk, path) = (&self.directory.disk, &self.directory.path);
        has_holder(disk.as_ref(), &path.join(LOCK_FILE))
    }

    /// Waits while a writer in another process cuts the log: between two of its steps lies no state of the log. Returns whether the state
    /// file has changed since, so that another view is to be taken. It has not if that writer was killed, or if it was waited for in vain
    /// until `until`, or before: then the log is what is there.
    pub(super) fn waits_for_cut(
        &self,
        until: Instant,
        interrupt: Option<&Interrupt>,
    ) -> Result<bool> {
        if !self.is_being_cut {
            return Ok(false);
        }
        let path = self.directory.path.join(STATE_FILE);
        let state_file = || self.directory.disk.stat(&path).ok();
        let seen = state_file();
        if self.slot.has_waited_for(seen) {
            return Ok(false);
        }
        loop {
            // Asked first: what a writer does before it lets go is seen then. Where nobody can say it, somebody may have the log.
            let is_held = self.is_held().unwrap_or(true) && !self.slot.is_locked_here();
            if state_file() != seen || !self.is_cut_now()? {
                return Ok(true);
            }
            if !is_held {
                return Ok(false);
            }
            if Instant::now() >= until {
                self.slot.note_wait(seen);
                return Ok(false);
            }
            if interrupt.is_some_and(|interrupt| interrupt()) {
                return Err(Error::new(ErrorKind::Interrupted));
            }
            std::thread::sleep(WRITER_LOOK);
        }
    }

    /// Whether the state file says that the log is being cut.
    fn is_cut_now(&self) -> Result<bool> {
        let path = self.directory.path.join(STATE_FILE);
        let state = read_state(self.directory.disk.as_ref(), &path, &mut Vec::new())?;
        Ok(state.is_some_and(|state| state.cutting.is_some()))
    }

    /// Fails if a tail may only seem torn because a writer in another process cut the segment while it was read, so that a newer view is
    /// taken: a log that such a writer cut ends at its start, and not where the bytes that are left do.
    pub(super) fn refuse_torn_by_another(&self) -> Result<()> {
        if self.directory.ends.is_some() || self.is_current() {
            return Ok(());
        }
        Err(self.met_two_states())
    }

    /// Whether this is the error of [`met_two_states`](Self::met_two_states): a writer that is at work again and again leaves its files
    /// alone in between.
    pub(in crate::log) fn is_between_states(&self, error: &Error) -> bool {
        error.is_missing_file()
            && error.path() == Some(self.directory.path.as_path())
            // Whether that writer has it still does not matter: it may just have closed it.
            && self.directory.disk.stat(&self.directory.path).is_ok()
    }

    /// Whether the log seems to end below its start only because a writer is at work: it is writing the batch at the end, or has
    /// truncated the log and not yet stored the lower start. Waits until the files change, at most [`WRITER_WAIT`].
    pub(in crate::log) fn ends_below_start_for_now(&self) -> bool {
        // What a writer of this process has published is no guess. One that had noted its cut was waited for when the view was taken.
        let may_be_below = self.directory.ends.is_none()
            && !self.is_being_cut
            && self
                .base_offsets
                .last()
                .is_some_and(|&last| last < self.log_start_offset);
        let is_below = may_be_below
            && self
                .end()
                .is_ok_and(|end| end.log_end_offset < self.log_start_offset);
        is_below && self.changes_soon()
    }

    /// Whether the files change while a writer in another process has the log. Waits for that, at most [`WRITER_WAIT`].
    fn changes_soon(&self) -> bool {
        if self.is_racy {
            // Times do not tell yet.
            std::thread::sleep(RACY_WAIT);
            return true;
        }
        let until = Instant::now() + WRITER_WAIT;
        let seen = (
            self.stamp.directory,
            self.stamp.active,
            self.stamp.checkpoints,
        );
        loop {
            // Asked first: a writer that has just closed may have changed them.
            // Where nobody can say it, somebody may.
            let is_held = self.is_held().unwrap_or(true);
            let now = self.stamp_now();
            if (now.directory, now.active, now.checkpoints) != seen {
                return true;
            }
            if !is_held || Instant::now() >= until {
                return false;
            }
            std::thread::sleep(WRITER_LOOK);
        }
    }
}
