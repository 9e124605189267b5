//! The offsets of a log that this process writes, for readers beside the writer: set by the writer, read without a lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Cuts that are told apart.
const CUTS_MAX: usize = 1024;

/// Rolls that are remembered, for views of before them.
const ROLLS_MAX: usize = 1024;

/// A segment that was begun behind all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Roll {
    /// The generation that began with it.
    generation: u64,
    pub(crate) base_offset: i64,
    /// Whether a producer snapshot of that offset was written.
    pub(crate) has_snapshot: bool,
}

/// Where a log begins and ends at the moment.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    log_start: AtomicI64,
    log_end: AtomicI64,
    last_stable: AtomicI64,
    /// Everything below is on the disk.
    recovery_point: AtomicI64,
    closed: AtomicBool,
    /// Base offset of the active segment, and how many of its bytes are whole batches.
    active: Mutex<(i64, u64)>,
    /// Held by whoever changes files otherwise than at the end of the active one, and by whoever lists them.
    files: RwLock<()>,
    /// Raised with every change that is more than growth of the active segment: views from before do not count any more.
    generation: AtomicU64,
    /// The last changes that were rolls, ascending.
    rolls: Mutex<VecDeque<Roll>>,
    /// What was cut from the end: how many cuts there were, and for each that no later one covers its number and its offset, both
    /// ascending.
    cuts: Mutex<(u64, Vec<(u64, i64)>)>,
    /// The first of the two.
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

impl Ends {
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

    /// Moves the recovery point up, never down: a flush that ends late must not undo a later one.
    pub(crate) fn raise_recovery_point(&self, offset: i64) {
        self.recovery_point.fetch_max(offset, Ordering::AcqRel);
    }

    /// Notes how much of the active segment is written.
    pub(crate) fn set_active(&self, base_offset: i64, size: u64) {
        let before = {
            let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *active, (base_offset, size))
        };
        if before.0 != base_offset || before.1 > size {
            self.raise_generation();
        }
    }

    /// Notes that a segment was begun behind all others.
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

    /// The rolls from one generation to a later one, if nothing but rolls lies between them.
    pub(crate) fn rolls_between(&self, before: u64, after: u64) -> Option<Vec<Roll>> {
        let rolls = self.rolls.lock().unwrap_or_else(PoisonError::into_inner);
        let between = |roll: &&Roll| (before + 1..=after).contains(&roll.generation);
        let found: Vec<Roll> = rolls.iter().filter(between).copied().collect();
        (found.len() as u64 == after.checked_sub(before)?).then_some(found)
    }

    /// How much of the segment with this base offset is written, if it is the active one.
    pub(crate) fn written(&self, base_offset: i64) -> Option<u64> {
        let (base, size) = *self.active.lock().unwrap_or_else(PoisonError::into_inner);
        (base == base_offset).then_some(size)
    }

    /// Keeps listings away while files are changed otherwise than by growth: half of that would look like a log with a hole. Whoever
    /// looked before has to look again.
    pub(crate) fn changing_files(&self) -> RwLockWriteGuard<'_, ()> {
        let files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        // Whoever lists from now on waits, and then sees what came of it.
        self.raise_generation();
        files
    }

    /// Keeps files as they are, but for growth, while they are listed.
    pub(crate) fn listing(&self) -> RwLockReadGuard<'_, ()> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn raise_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Notes that batches were cut from the end, all that hold `offset` or a later one.
    pub(crate) fn note_cut(&self, offset: i64) {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, noted) = &mut *cuts;
        *count += 1;
        noted.retain(|&(_, cut)| cut < offset);
        noted.push((*count, offset));
        if noted.len() > CUTS_MAX {
            // The two oldest become one: who asks since the first is told of more than was cut.
            let lowest = noted.remove(0).1;
            if let Some(first) = noted.first_mut() {
                first.1 = lowest;
            }
        }
        self.cut_count.store(*count, Ordering::Release);
    }

    /// How often batches were cut from the end.
    pub(crate) fn cut_count(&self) -> u64 {
        self.cut_count.load(Ordering::Acquire)
    }

    /// How often batches were cut, and the lowest offset that was since there had been `count` cuts.
    pub(crate) fn cuts_since(&self, count: u64) -> (u64, Option<i64>) {
        let cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut later = cuts.1.iter().filter(|&&(number, _)| number > count);
        (cuts.0, later.next().map(|&(_, offset)| offset))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}
