//! How far a follower has returned the records of a log. Its scan writes this, batch by batch, and the next scan begins there.
//!
//! A range of a follower's scan ends if the log was truncated below the returned records: it would return the new records beside the
//! truncated ones. The follower's next look reports the offset. A truncation above it changes only what the range returns.

use super::Cursor;
use crate::error::{Error, ErrorKind, Result};
use crate::log::Log;
use crate::log::writers::Slot;
use offsetlog_format::{BatchHeader, LeaderEpochs};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by a follower and its scan.
#[derive(Debug)]
pub(in crate::log) struct Progress {
    /// Offset after the last one that was returned or passed.
    next: AtomicI64,
    /// Up to where there is no batch behind `next`, as the log was looked at last.
    empty_to: AtomicI64,
    /// Offset after the last batch that was read, and the leader epoch in its header. One thread at a time reads.
    read: AtomicI64,
    read_epoch: AtomicI32,
    /// Copies of what was looked at last, read without the lock: the number of the truncation, the slot's version, and the newest leader
    /// epoch.
    cuts: AtomicU64,
    version: AtomicU64,
    epoch: AtomicI32,
    looked: Mutex<Looked>,
}

/// What was known of the log when it was looked at last.
#[derive(Debug)]
struct Looked {
    /// What this process does to the directory, and the number of its last truncation.
    slot: Arc<Slot>,
    cuts: u64,
    /// The leader epochs, if they are known and another process writes.
    epochs: Option<Arc<LeaderEpochs>>,
    /// `next` at the look before, and the last offset before it whose leader epoch is known, with that.
    next: i64,
    read: Option<(i64, i32)>,
    /// Where the log was truncated below the returned records, until this is reported to the follower. The log may have grown past it again
    /// by then.
    found: Option<FoundCut>,
    /// The lowest end below `next` that was met since, by a scan or in another range of the log, as `found`.
    met_end: Option<i64>,
}

/// A truncation below what was returned, and what the log was when it was found: a later one is told beside it.
#[derive(Debug)]
struct FoundCut {
    offset: i64,
    /// The last offset before it, and its leader epoch.
    read: Option<(i64, i32)>,
    seen: Seen,
}

/// What a look has seen of the directory.
#[derive(Debug)]
struct Seen {
    slot: Arc<Slot>,
    cuts: u64,
    version: u64,
    epochs: Option<Arc<LeaderEpochs>>,
}

impl Looked {
    /// Notes in which leader epoch the last offset before `next` was read. While this process writes, the batch says it.
    fn advance(&mut self, next: i64, batch: Option<(i64, i32)>) {
        if next > self.next {
            self.next = next;
            self.read = self.known(next - 1).or(batch);
        }
    }

    fn known(&self, offset: i64) -> Option<(i64, i32)> {
        Some((offset, self.epochs.as_ref()?.epoch_of(offset)?))
    }

    /// The offset from which another leader wrote in place of what was returned.
    ///
    /// Source: KIP-320.
    fn diverged(&self, epochs: &LeaderEpochs) -> Option<i64> {
        let (last, epoch) = self.read?;
        // Entries below the log start are gone.
        if epochs.epoch_of(last)? == epoch {
            return None;
        }
        let mut others = epochs.entries().iter();
        let cut = others.find(|entry| entry.epoch > epoch)?;
        (cut.start_offset <= last).then_some(cut.start_offset)
    }
}

impl Progress {
    /// Begins at `next`. Truncations until now are no news.
    pub(in crate::log) fn new(log: &Log, next: i64) -> Result<Self> {
        log.refresh()?;
        let slot = Arc::clone(log.view().slot());
        let version = slot.version();
        let (cuts, _) = slot.cuts_since(0);
        let progress = Self {
            next: AtomicI64::new(next),
            empty_to: AtomicI64::new(next),
            read: AtomicI64::new(next),
            read_epoch: AtomicI32::new(-1),
            cuts: AtomicU64::new(cuts),
            version: AtomicU64::new(version),
            epoch: AtomicI32::new(i32::MAX),
            looked: Mutex::new(Looked {
                slot,
                cuts,
                epochs: None,
                next,
                read: None,
                found: None,
                met_end: None,
            }),
        };
        // Another leader that writes below it from now on is reported, too.
        progress.look(log)?;
        {
            let mut looked = progress.looked();
            looked.read = looked.known(next - 1);
        }
        Ok(progress)
    }

    /// Offset after the last one that was returned or passed.
    pub(in crate::log) fn next(&self) -> i64 {
        self.next.load(Ordering::Acquire)
    }

    /// Where there may be records that were not returned.
    pub(in crate::log) fn unread(&self) -> i64 {
        self.next().max(self.empty_to.load(Ordering::Acquire))
    }

    /// Where to read on from `start`: where the log starts, if retention moved that into a gap, or behind one, that begins at `start`.
    pub(super) fn start_of(&self, log: &Log, start: i64) -> Result<i64> {
        if self.unread() <= start {
            return Ok(start);
        }
        // In this order: what was a gap until now was one when the log was made to start there.
        let log_start = log.log_start_offset()?;
        self.look(log)?;
        Ok(log_start.min(self.unread()).max(start))
    }

    /// What was returned stays returned: with `read_committed`, a truncation can move the stop of a range below it.
    fn raise(&self, next: i64) {
        self.next.fetch_max(next, Ordering::AcqRel);
    }

    /// Everything below `next` was returned or passed, the last of it in a batch of this leader epoch.
    #[inline]
    pub(in crate::log) fn pass(&self, next: i64, leader_epoch: i32) {
        self.read.store(next, Ordering::Relaxed);
        self.read_epoch.store(leader_epoch, Ordering::Relaxed);
        self.raise(next);
    }

    /// The last offset below `next` that was read in a batch, and the leader epoch of that.
    fn last_batch(&self, next: i64) -> Option<(i64, i32)> {
        let epoch = self.read_epoch.load(Ordering::Relaxed);
        let behind = self.read.load(Ordering::Relaxed).min(next);
        (epoch >= 0).then_some((behind - 1, epoch))
    }

    fn looked(&self) -> MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the log and returns its log end offset, and the lowest offset below [`next`](Self::next) from which on the log was
    /// truncated, or written by another leader, since that was returned. Such an offset is found again by every later look until
    /// [`go_on_at_cut`](Self::go_on_at_cut).
    pub(in crate::log) fn look(&self, log: &Log) -> Result<(i64, Option<i64>)> {
        let next = self.next();
        let mut looked = self.looked();
        looked.advance(next, self.last_batch(next));
        loop {
            // A writer that came since is known to a fresh view.
            log.refresh()?;
            let view = log.view();
            let slot = Arc::clone(view.slot());
            // Read before all else: what another process changes while this one does not write comes after it was raised.
            let version = slot.version();
            let told = view.ends().cloned();
            let is_same_slot = Arc::ptr_eq(&slot, &looked.slot);
            // Also of writers that came and went since.
            let (count, lowest) = if is_same_slot {
                slot.cuts_since(looked.cuts)
            } else if slot.is_elsewhere(&looked.slot) {
                // Another directory has got the name: nothing that was returned is in it.
                (slot.cut_count(), Some(0))
            } else {
                let before = looked.slot.lowest_cut_before_fork(looked.cuts);
                let (count, lowest) = slot.cuts_since(0);
                (count, before.into_iter().chain(lowest).min())
            };
            let (end, epochs) = match &told {
                Some(_) if is_same_slot && version == self.version.load(Ordering::Relaxed) => {
                    (log.log_end_offset()?, None)
                }
                Some(_) => (log.log_end_offset()?, epochs_of(log)?),
                None => end_and_epochs(log)?,
            };
            let diverged = epochs.as_ref().and_then(|epochs| looked.diverged(epochs));
            let found = looked.found.as_ref().map(|found| found.offset);
            // The log may be shorter, and another leader have written below its end too: continuing at that end would skip its records.
            let cuts = [lowest, Some(end), diverged, found, looked.met_end];
            let cut = cuts.into_iter().flatten().filter(|&cut| cut < next).min();
            // Below a truncation the epochs are those of before it, in an older view too.
            let epochs_there = match (cut, &epochs) {
                (Some(_), None) => epochs_of(log)?,
                _ => epochs.clone(),
            };
            let read = cut.and_then(|cut| Some((cut - 1, epochs_there?.epoch_of(cut - 1)?)));
            let is_same = slot.cuts_since(count).0 == count;
            let seen = Seen {
                slot,
                cuts: count,
                version,
                // Those of this process's own writer are old with its next append.
                epochs: epochs.filter(|_| told.is_none()),
            };
            if let Some(offset) = cut {
                looked.found = Some(FoundCut { offset, read, seen });
                return Ok((end, cut));
            }
            let known = self.version.load(Ordering::Relaxed);
            if !is_same_slot
                || count != looked.cuts
                || version != known
                || seen.epochs != looked.epochs
            {
                // Records may be there now.
                self.empty_to.store(next, Ordering::Release);
            }
            self.remember(&mut looked, seen);
            if is_same {
                return Ok((end, None));
            }
        }
    }

    /// Notes where the log was met to end, or was cut, which may have grown since.
    pub(in crate::log) fn meet_end(&self, end: i64) {
        if end < self.next() {
            let mut looked = self.looked();
            looked.met_end = Some(looked.met_end.map_or(end, |before| before.min(end)));
        }
    }

    /// Whether a truncation is known that the follower was not told of.
    pub(in crate::log) fn knows_cut(&self) -> bool {
        let looked = self.looked();
        looked.found.is_some() || looked.met_end.is_some()
    }

    fn remember(&self, looked: &mut Looked, seen: Seen) {
        let newest = seen.epochs.as_ref().map(|epochs| epochs.latest());
        let newest = newest.map_or(i32::MAX, |newest| newest.map_or(-1, |newest| newest.epoch));
        self.epoch.store(newest, Ordering::Relaxed);
        self.cuts.store(seen.cuts, Ordering::Relaxed);
        self.version.store(seen.version, Ordering::Relaxed);
        (looked.slot, looked.cuts, looked.epochs) = (seen.slot, seen.cuts, seen.epochs);
    }

    /// Continues at the truncation that the last look found, which was reported to the follower. The next look finds later truncations.
    pub(in crate::log) fn go_on_at_cut(&self) {
        let mut looked = self.looked();
        let Some(found) = looked.found.take() else {
            return;
        };
        looked.met_end = None;
        let FoundCut { offset, read, seen } = found;
        self.next.store(offset, Ordering::Release);
        self.empty_to.store(offset, Ordering::Release);
        self.read.store(offset, Ordering::Relaxed);
        self.read_epoch.store(-1, Ordering::Relaxed);
        (looked.next, looked.read) = (offset, read);
        self.remember(&mut looked, seen);
    }

    /// Whether the log may have been truncated since the last look: by a writer of this process, by another process after that, or by
    /// another leader, whose batch this is.
    fn may_be_cut(&self, slot: &Slot, header: Option<&BatchHeader>) -> bool {
        let epoch = self.epoch.load(Ordering::Relaxed);
        slot.cut_count() > self.cuts.load(Ordering::Relaxed)
            || slot.version() != self.version.load(Ordering::Relaxed)
            || header.is_some_and(|header| header.leader_epoch > epoch)
    }
}

impl Cursor {
    /// Whether the log of a follower may have been truncated since it was looked at last. Asked after a batch was read and before it is
    /// returned: bytes that were written after a truncation are seen after its number.
    #[inline]
    pub(super) fn may_be_cut(&self, header: Option<&BatchHeader>) -> bool {
        let progress = self.progress.as_ref();
        progress.is_some_and(|progress| progress.may_be_cut(self.view.slot(), header))
    }

    /// Looks whether the log was truncated below what was returned. If it was not, what was read is read again in a fresh view.
    #[cold]
    pub(super) fn is_cut(&self, leader_epoch: i32) -> Result<bool> {
        let Some(progress) = &self.progress else {
            return Ok(false);
        };
        let is_cut = progress.look(&self.log)?.1.is_some();
        // The checkpoint may not have it yet.
        progress.epoch.fetch_max(leader_epoch, Ordering::Relaxed);
        Ok(is_cut)
    }

    /// Tells a follower that everything below `next` was returned or passed, the last of it in a batch of this leader epoch.
    #[inline]
    pub(super) fn tell(&self, behind: i64, leader_epoch: i32) {
        if let Some(progress) = &self.progress {
            progress.read.store(behind, Ordering::Relaxed);
            progress.read_epoch.store(leader_epoch, Ordering::Relaxed);
            // Of a batch across the stop, which one of another size may now be, the rest is for the next scan.
            progress.raise(self.next.max(self.start).min(self.stop));
        }
    }

    /// Returns whether a follower's range has to be read again from where it ended, because batches of it were missing: they may have been
    /// truncated, with others in their place. If they are missing again, compaction removed them, and the follower continues after them.
    pub(super) fn is_short(&mut self) -> Result<bool> {
        let Some(progress) = &self.progress else {
            return Ok(false);
        };
        let next = self.next.max(self.start).max(self.reported_up_to);
        if next >= self.stop {
            progress.raise(self.stop);
            return Ok(false);
        }
        let (end, cut) = progress.look(&self.log)?;
        if cut.is_some() || end < self.stop {
            return Ok(false);
        }
        if self.ended_at == Some(next) {
            progress.empty_to.store(self.stop, Ordering::Release);
            return Ok(false);
        }
        self.ended_at = Some(next);
        Ok(true)
    }

    /// Leaves the rest of a range out, for a follower too.
    pub(super) fn leave_rest(&self) {
        if let Some(progress) = &self.progress {
            progress.raise(self.stop);
        }
    }
}

/// The log end offset and the leader epochs of one state.
fn end_and_epochs(log: &Log) -> Result<(i64, Option<Arc<LeaderEpochs>>)> {
    let found = log.look(|view| {
        let end = view.end()?.log_end_offset;
        Ok((end, Some(log.leader_epochs_of(view)?)))
    });
    match found {
        Err(error) if hides_epochs(&error) => {
            log.look(|view| Ok((view.end()?.log_end_offset, None)))
        }
        found => found,
    }
}

/// The leader epochs.
fn epochs_of(log: &Log) -> Result<Option<Arc<LeaderEpochs>>> {
    match log.look(|view| log.leader_epochs_of(view).map(Some)) {
        Err(error) if hides_epochs(&error) => Ok(None),
        found => found,
    }
}

/// Whether leader epochs are damaged, too large, or cannot be read. Files that were only being changed were looked at again before.
fn hides_epochs(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Io { .. } | ErrorKind::Limit { .. } => true,
        _ => error.is_corruption(),
    }
}

/// Passes an error on, unless a follower's log was truncated below the records it has returned: its next look reports where, which the
/// error may not. After an error about a higher log start offset, the follower continues there.
pub(super) fn unless_cut(followed: Option<(Log, Arc<Progress>)>, error: Error) -> Result<()> {
    if let (
        Some((log, progress)),
        ErrorKind::OffsetOutOfRange {
            log_start_offset,
            log_end_offset,
            ..
        },
    ) = (followed, error.kind())
    {
        progress.meet_end(*log_end_offset);
        if progress.look(&log)?.1.is_some() {
            return Ok(());
        }
        progress.raise(*log_start_offset);
    }
    Err(error)
}
