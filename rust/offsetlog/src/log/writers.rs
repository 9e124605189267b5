//! Tracks which partitions this process writes, so that readers in the same process learn of changes without looking at files.
//!
//! A partition is identified by its directory's device and inode, whatever path leads to it. An entry holds the writer's
//! offsets while there is a writer, and a version that counts writers that opened the partition and locks on it that ended.

use crate::disk::{Disk, FileStat, process_id};
use crate::segment::live_offsets::LiveOffsets;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};
use std::time::Duration;

/// Identifies a directory within a process. A forked child has its parent's table but none of its writers. Simulated disks are
/// distinct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    process: u32,
    disk: usize,
    directory: (u64, u64),
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (_, inode) = self.directory;
        state.write_u64(inode);
    }
}

/// Hashes inodes: few directories have the same one. The table needs the highest bits to differ as well as the lowest.
#[derive(Debug, Default)]
struct Inodes(u64);

impl Hasher for Inodes {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, inode: u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = (self.0 ^ inode).wrapping_mul(ODD);
        self.0 = mixed ^ mixed >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What this process does to one partition directory.
#[derive(Debug)]
pub(crate) struct Slot {
    key: Option<Key>,
    /// Raised when a writer opens the partition and when a lock on it is released.
    version: AtomicU64,
    ends: RwLock<Option<Arc<LiveOffsets>>>,
    /// How many locks on the partition this process holds.
    locks: AtomicU64,
    /// The state file for whose writer readers have waited in vain.
    waited_for: Mutex<Option<FileStat>>,
}

/// All slots that are in use, and perhaps some that were.
struct Slots {
    by_directory: HashMap<Key, Weak<Slot>, BuildHasherDefault<Inodes>>,
    /// With so many, those that are not in use are dropped.
    many: usize,
}

/// Fewer are not worth a look.
const MANY: usize = 64;

/// Threads that open many partitions meet in one of them seldom.
const TABLES: usize = 16;

/// A directory's slot is in the table of its inode.
static SLOTS: [Mutex<Slots>; TABLES] = [const {
    Mutex::new(Slots {
        by_directory: HashMap::with_hasher(BuildHasherDefault::new()),
        many: MANY,
    })
}; TABLES];

impl Slot {
    const fn new(key: Option<Key>) -> Self {
        Self {
            key,
            version: AtomicU64::new(0),
            ends: RwLock::new(None),
            locks: AtomicU64::new(0),
            waited_for: Mutex::new(None),
        }
    }

    /// Returns the slot of the directory with this identity. A missing directory gets a slot that nobody shares.
    pub(super) fn of(disk: &dyn Disk, directory: Option<(u64, u64)>) -> Arc<Self> {
        let Some(key) = directory.map(|directory| key_of(disk, directory)) else {
            return Arc::new(Self::new(None));
        };
        let Some(mut slots) = lock_slots(key) else {
            // Then a writer in this process is treated like one in another process.
            return Arc::new(Self::new(None));
        };
        let known = slots.by_directory.entry(key).or_default();
        if let Some(slot) = known.upgrade() {
            return slot;
        }
        let slot = Arc::new(Self::new(Some(key)));
        *known = Arc::downgrade(&slot);
        slots.tidy();
        slot
    }

    /// Whether the other slot belongs to another directory; a forked child has another slot of the same one.
    pub(super) fn is_elsewhere(&self, other: &Self) -> bool {
        self.key
            .zip(other.key)
            .is_some_and(|(own, other)| own.directory != other.directory)
    }

    /// As [`cuts_since`](Self::cuts_since) in a forked child, where a thread of the parent may have held a lock: then nothing is known.
    pub(super) fn lowest_cut_before_fork(&self, count: u64) -> Option<i64> {
        self.ends.try_read().ok()?.as_ref()?.try_cuts_since(count)
    }

    /// Whether this slot belongs to the directory with this identity.
    pub(super) fn is_of(&self, disk: &dyn Disk, directory: (u64, u64)) -> bool {
        self.key == Some(key_of(disk, directory))
    }

    /// Whether it is this process that has the partition locked.
    pub(super) fn is_locked_here(&self) -> bool {
        self.locks.load(Ordering::Acquire) > 0
    }

    /// Whether readers have waited in vain for the writer of this state file.
    pub(super) fn has_waited_for(&self, state_file: Option<FileStat>) -> bool {
        let waited_for = self.waited_for.lock();
        let waited_for = waited_for.unwrap_or_else(PoisonError::into_inner);
        waited_for.is_some() && *waited_for == state_file
    }

    pub(super) fn note_wait(&self, state_file: Option<FileStat>) {
        let waited_for = self.waited_for.lock();
        *waited_for.unwrap_or_else(PoisonError::into_inner) = state_file;
    }

    /// Registers a writer of this process.
    pub(super) fn begin(&self, ends: &Arc<LiveOffsets>) {
        let mut slot = self.ends.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = slot.as_ref() {
            ends.succeed(before);
        }
        *slot = Some(Arc::clone(ends));
        self.raise();
    }

    /// The writer's offsets while it is open.
    pub(super) fn ends(&self) -> Option<Arc<LiveOffsets>> {
        let ends = self.ends.read().unwrap_or_else(PoisonError::into_inner);
        ends.as_ref().filter(|ends| !ends.is_closed()).cloned()
    }

    /// Returns the number of the latest truncation by any writer of this process, and the lowest offset truncated after number `count`;
    /// writers that closed since are included.
    pub(super) fn cuts_since(&self, count: u64) -> (u64, Option<i64>) {
        let ends = self.ends.read().unwrap_or_else(PoisonError::into_inner);
        ends.as_ref()
            .map_or((count, None), |ends| ends.cuts_since(count))
    }

    /// The number of the latest truncation by any writer of this process.
    pub(super) fn cut_count(&self) -> u64 {
        let ends = self.ends.read().unwrap_or_else(PoisonError::into_inner);
        ends.as_ref().map_or(0, |ends| ends.cut_count())
    }

    /// Files may have changed: earlier views are out of date.
    pub(super) fn raise(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
}

impl Drop for Slot {
    /// Leaves no entry behind: whoever opens the directory next would have to look at it, and free it.
    fn drop(&mut self) {
        let Some(key) = self.key else {
            return;
        };
        // Of a forked child's parent, whose table is another one. Nobody waits here: what stays is found by [`Slots::tidy`].
        let Some(table) = table_of(key).filter(|_| key.process == process_id()) else {
            return;
        };
        let Ok(mut slots) = table.try_lock() else {
            return;
        };
        if let Entry::Occupied(entry) = slots.by_directory.entry(key)
            // Another one may have taken its place already.
            && std::ptr::eq(entry.get().as_ptr(), self)
        {
            entry.remove();
        }
    }
}

impl Slots {
    /// Forgets those that nobody uses, each time there may be twice as many as are used.
    fn tidy(&mut self) {
        if self.by_directory.len() < self.many {
            return;
        }
        self.by_directory.retain(|_, slot| slot.strong_count() > 0);
        self.many = (2 * self.by_directory.len()).max(MANY);
    }
}

/// Counts a lock that allows this process to change the files, and raises the version of the partition when it is dropped with that lock.
#[derive(Debug)]
pub(super) struct RaiseAtEnd(Arc<Slot>);

impl RaiseAtEnd {
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        slot.locks.fetch_add(1, Ordering::AcqRel);
        Self(slot)
    }
}

impl Drop for RaiseAtEnd {
    fn drop(&mut self) {
        self.0.locks.fetch_sub(1, Ordering::AcqRel);
        self.0.raise();
    }
}

fn key_of(disk: &dyn Disk, directory: (u64, u64)) -> Key {
    Key {
        process: process_id(),
        disk: if disk.is_systems() {
            0
        } else {
            std::ptr::from_ref(disk).cast::<()>() as usize
        },
        directory,
    }
}

fn table_of(key: Key) -> Option<&'static Mutex<Slots>> {
    let (_, inode) = key.directory;
    SLOTS.get((inode % TABLES as u64) as usize)
}

/// The table; `None` in a forked child if another thread of the parent held its lock during the fork.
fn lock_slots(key: Key) -> Option<MutexGuard<'static, Slots>> {
    // It is held for less than a microsecond, unless its holder waits for a processor.
    const SPINS: u32 = 1_000;
    let table = table_of(key)?;
    for tries in 0..SPINS + 1_000 {
        match table.try_lock() {
            Ok(slots) => return Some(slots),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if tries < SPINS => std::hint::spin_loop(),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    fn entry(directory: (u64, u64)) -> Option<*const Slot> {
        let slots = lock_slots(key_of(&RealDisk, directory)).unwrap();
        let known = slots.by_directory.get(&key_of(&RealDisk, directory));
        known.map(Weak::as_ptr)
    }

    #[test]
    fn a_slot_leaves_no_entry_and_takes_no_other_one_away() {
        let directory = (u64::MAX, 1);
        let slot = Slot::of(&RealDisk, Some(directory));
        assert!(Arc::ptr_eq(&slot, &Slot::of(&RealDisk, Some(directory))));
        assert_eq!(entry(directory), Some(Arc::as_ptr(&slot)));
        drop(slot);
        // Where another test has the table just then, the entry stays.
        let is_gone = |_| {
            drop(Slot::of(&RealDisk, Some(directory)));
            entry(directory).is_none()
        };
        assert!((0..1_000).any(is_gone));

        let late = Slot::new(Some(key_of(&RealDisk, directory)));
        let next = Slot::of(&RealDisk, Some(directory));
        drop(late);
        assert_eq!(entry(directory), Some(Arc::as_ptr(&next)));
        let elsewhere = Slot::of(&RealDisk, Some((u64::MAX, 2)));
        assert!(elsewhere.is_elsewhere(&next));
    }
}
