//! The offsets of a log that this process writes, for readers beside the writer: set by the writer, read without a lock.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

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
    /// Held by whoever gives files of closed segments other names, and by whoever lists them.
    names: RwLock<()>,
    /// How often closed segments were removed or replaced.
    replaced: AtomicU64,
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
        log_start set_log_start log_start;
        log_end set_log_end log_end;
        last_stable set_last_stable last_stable;
        recovery_point set_recovery_point recovery_point;
    }

    /// Moves the recovery point up, never down: a flush that ends late must not undo a later one.
    pub(crate) fn raise_recovery_point(&self, offset: i64) {
        self.recovery_point.fetch_max(offset, Ordering::AcqRel);
    }

    /// Notes how much of the active segment is written.
    pub(crate) fn set_active(&self, base_offset: i64, size: u64) {
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = (base_offset, size);
    }

    /// How much of the segment with this base offset is written, if it is the active one.
    pub(crate) fn written(&self, base_offset: i64) -> Option<u64> {
        let (base, size) = *self.active.lock().unwrap_or_else(PoisonError::into_inner);
        (base == base_offset).then_some(size)
    }

    /// Keeps listings away while files of closed segments get other names: half of that would look like a log with a hole.
    pub(crate) fn renaming(&self) -> RwLockWriteGuard<'_, ()> {
        let names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        // Whoever lists from now on waits, and then sees the new names.
        self.replaced.fetch_add(1, Ordering::AcqRel);
        names
    }

    /// Keeps names as they are while they are listed.
    pub(crate) fn listing(&self) -> RwLockReadGuard<'_, ()> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often closed segments were removed or replaced so far.
    pub(crate) fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Acquire)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}
