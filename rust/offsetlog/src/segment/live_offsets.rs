//! The start and end offsets of a log that this process writes: set by the writer, read by readers in the same process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How many cuts are remembered separately.
const CUTS_MAX: usize = 1024;

/// How many rolls are remembered, to update views that were taken before them.
const ROLLS_MAX: usize = 1024;

/// A new active segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Roll {
    /// The generation that the roll started.
    generation: u64,
    pub(crate) base_offset: i64,
    /// Whether a producer snapshot at that offset was written.
    pub(crate) has_snapshot: bool,
}

/// Where the log begins and ends now.
#[derive(Debug, Default)]
pub(crate) struct LiveOffsets {
    log_start: AtomicI64,
    log_end: AtomicI64,
    last_stable: AtomicI64,
    /// All records below this offset are synced.
    recovery_point: AtomicI64,
    closed: AtomicBool,
    /// Base offset of the active segment, and the number of its bytes that are complete batches.
    active: Mutex<(i64, u64)>,
    /// Write-locked while files change other than by growth of the active segment, read-locked while files are listed.
    files: RwLock<()>,
    /// Raised with every change other than growth of the active segment. Views of an older generation are out of date.
    generation: AtomicU64,
    /// The latest rolls, ascending.
    rolls: Mutex<VecDeque<Roll>>,
    /// Truncations of the end: the number of the last one, and the number and offset of each one that no later one covers. Numbers and
    /// offsets both ascend.
    cuts: Mutex<(u64, Vec<(u64, i64)>)>,
    /// A copy of that number, read without the lock.
    cut_count: AtomicU64,
}

macro_rules! offsets {
    ($($name:ident $set:ident $field:ident;)*) => {
        $(
            pub(crate) fn $name(&self) -> i64 {
                self.$field.load(Ordering::Acquire)
            }

            pub(crate) fn $set(&self, offset: i64) {
                self.$field.store(offset, Ordering::Release);
            }
        )*
    };
}

impl LiveOffsets {
    /// Those of a writer whose truncations are numbered from `first` on.
    pub(crate) fn numbered_from(first: u64) -> Self {
        Self {
            cuts: Mutex::new((first, Vec::new())),
            cut_count: AtomicU64::new(first),
            ..Self::default()
        }
    }

    offsets! {
        log_end set_log_end log_end;
        last_stable set_last_stable last_stable;
        recovery_point set_recovery_point recovery_point;
    }

    pub(crate) fn log_start(&self) -> i64 {
        self.log_start.load(Ordering::Acquire)
    }

    pub(crate) fn set_log_start(&self, offset: i64) {
        if self.log_start.swap(offset, Ordering::AcqRel) != offset {
            self.raise_generation();
        }
    }

    /// Raises the recovery point, never lowers it: a flush that finishes late must not undo a later one.
    pub(crate) fn raise_recovery_point(&self, offset: i64) {
        self.recovery_point.fetch_max(offset, Ordering::AcqRel);
    }

    /// Records how many bytes of the active segment are written.
    pub(crate) fn set_active(&self, base_offset: i64, size: u64) {
        let before = {
            let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *active, (base_offset, size))
        };
        if before.0 != base_offset || before.1 > size {
            self.raise_generation();
        }
    }

    /// Records that a new active segment was started.
    pub(crate) fn note_roll(&self, base_offset: i64, has_snapshot: bool) {
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = (base_offset, 0);
        let mut rolls = self.rolls.lock().unwrap_or_else(PoisonError::into_inner);
        if rolls.len() == ROLLS_MAX {
            rolls.pop_front();
        }
        rolls.push_back(Roll {
            generation: self.raise_generation(),
            base_offset,
            has_snapshot,
        });
    }

    /// The rolls between two generations, if nothing but rolls happened between them.
    pub(crate) fn rolls_between(&self, before: u64, after: u64) -> Option<Vec<Roll>> {
        let rolls = self.rolls.lock().unwrap_or_else(PoisonError::into_inner);
        let between = |roll: &&Roll| (before + 1..=after).contains(&roll.generation);
        let found: Vec<Roll> = rolls.iter().filter(between).copied().collect();
        (found.len() as u64 == after.checked_sub(before)?).then_some(found)
    }

    /// Whether the log has only grown and rolled since that generation: no file took the place of another.
    pub(crate) fn has_only_rolled_since(&self, before: u64) -> bool {
        let now = self.generation();
        now == before || self.rolls_between(before, now).is_some()
    }

    /// The number of bytes written to the segment with this base offset, if it is the active one.
    pub(crate) fn written(&self, base_offset: i64) -> Option<u64> {
        let (base, size) = *self.active.lock().unwrap_or_else(PoisonError::into_inner);
        (base == base_offset).then_some(size)
    }

    /// Blocks listings while files change other than by growth: a listing taken halfway would appear to miss a segment.
    /// Listings from before are out of date.
    pub(crate) fn changing_files(&self) -> RwLockWriteGuard<'_, ()> {
        let files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        // Raised while the lock is held: a listing that sees the new generation also sees the finished change.
        self.raise_generation();
        files
    }

    /// Blocks changes other than growth while files are listed.
    pub(crate) fn listing(&self) -> RwLockReadGuard<'_, ()> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`listing`](Self::listing), without waiting; `None` while files change.
    pub(crate) fn try_listing(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.files.try_read().ok()
    }

    /// Base offset of the active segment.
    pub(crate) fn active_base(&self) -> i64 {
        self.active.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn raise_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Records a truncation: all batches that hold `offset` or a later one were removed.
    pub(crate) fn note_cut(&self, offset: i64) {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, noted) = &mut *cuts;
        *count += 1;
        noted.retain(|&(_, cut)| cut < offset);
        noted.push((*count, offset));
        if noted.len() > CUTS_MAX {
            // Merges the two oldest. A reader that asks from the first one on then hears of more than was removed, never of
            // less.
            let lowest = noted.remove(0).1;
            if let Some(first) = noted.first_mut() {
                first.1 = lowest;
            }
        }
        self.cut_count.store(*count, Ordering::Release);
    }

    /// Continues the truncations of the partition's last writer, which is closed: a reader that did not look while that one was open
    /// learns of its truncations here.
    pub(crate) fn succeed(&self, before: &Self) {
        let (last, mut noted) = {
            let cuts = before.cuts.lock().unwrap_or_else(PoisonError::into_inner);
            cuts.clone()
        };
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, own) = &mut *cuts;
        // A writer that began to open earlier may have got the lock later.
        *count = (*count).max(last + 1);
        let lowest = own.iter().map(|&(_, cut)| cut).min();
        noted.retain(|&(_, cut)| lowest.is_none_or(|lowest| cut < lowest));
        noted.extend(own.iter().map(|&(_, cut)| (*count, cut)));
        let end = self.log_end();
        if before.log_end() > end {
            // Behind a batch that was truncated whole for an offset inside it there was a gap, which is gone. Or recovery removed the end.
            noted.retain(|&(_, cut)| cut < end);
            noted.push((*count, end));
        }
        *own = noted;
        self.cut_count.store(*count, Ordering::Release);
    }

    /// How many truncations there were.
    pub(crate) fn cut_count(&self) -> u64 {
        self.cut_count.load(Ordering::Acquire)
    }

    /// Returns the number of truncations so far, and the lowest offset truncated since there had been `count` of them.
    pub(crate) fn cuts_since(&self, count: u64) -> (u64, Option<i64>) {
        let cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut later = cuts.1.iter().filter(|&&(number, _)| number > count);
        (cuts.0, later.next().map(|&(_, offset)| offset))
    }

    /// As [`cuts_since`](Self::cuts_since) without waiting for the lock.
    pub(crate) fn try_cuts_since(&self, count: u64) -> Option<i64> {
        let cuts = self.cuts.try_lock().ok()?;
        let mut later = cuts.1.iter().filter(|&&(number, _)| number > count);
        later.next().map(|&(_, offset)| offset)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}
