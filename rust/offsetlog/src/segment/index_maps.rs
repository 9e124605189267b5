//! Maps the indexes of closed segments while this process has the log open for appending.
//!
//! Invariant: no file is shortened under a live map by this process, and no map is used after the writer's locks are released.
//! A file is mapped only while the writer counts its segment as closed, and while no change of files is in progress. A change
//! first drops the maps of the segments that it is about ([`IndexMaps::changing_files`]), and closing drops all of them. A
//! look-up holds a map's lock while it copies an entry out, so dropping waits for it, and for no more than that.
//!
//! A program that ignores locks can still shorten a file. So a map that was not used for [`LOOK_EVERY`] is compared with its
//! file before it is used again; if they differ, the index is read from then on. Within that time, and between the comparison
//! and the access, such a program ends this process with SIGBUS (decision 3).
//!
//! Where no map can be had, the index is read. Maps are hints in any case: every entry is checked against the log.

use super::Directory;
use super::live_offsets::LiveOffsets;
use crate::disk::{Access, DiskFile, FileStat, LookedAt, Map, Moment};
use std::collections::VecDeque;
use std::ops::RangeBounds;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockWriteGuard, TryLockError, Weak,
};
use std::time::Duration;

/// How many indexes this process maps at a time. Linux allows a process 65,530 maps by default, of which others need some.
const MAPS_MAX: usize = 16_384;
/// Larger indexes are mapped. A map of one page takes more memory and more time than a copy of it.
const READ_BYTES_MAX: u64 = 4096;
/// How long a map is used before it is compared with its file again.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The number of maps in this process.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// The maps of one writer's log.
#[derive(Debug)]
pub(crate) struct IndexMaps {
    ends: Arc<LiveOffsets>,
    /// A forked child inherits the maps, but not the locks that make them safe.
    process: u32,
    /// In the order in which they were mapped, or last found in use when one had to be dropped. Some may be unmapped by now.
    ring: Mutex<VecDeque<Weak<IndexMap>>>,
}

/// The maps of one segment, which outlive its open files.
#[derive(Debug, Default)]
pub(crate) struct SegmentMaps {
    offset: OnceLock<Arc<IndexMap>>,
    time: OnceLock<Arc<IndexMap>>,
}

impl SegmentMaps {
    /// The map of the index with this suffix.
    pub(super) fn of(&self, suffix: &str) -> &OnceLock<Arc<IndexMap>> {
        if suffix == ".index" {
            &self.offset
        } else {
            &self.time
        }
    }
}

/// An index of a closed segment, mapped on use.
#[derive(Debug)]
pub(crate) struct IndexMap {
    directory: Arc<Directory>,
    base_offset: i64,
    path: PathBuf,
    /// Bytes beyond this count are not part of the index.
    size_max: u64,
    /// The file as it was first found. Another one under its name is not mapped.
    stat: FileStat,
    state: RwLock<State>,
    /// Used since a map last had to be dropped.
    used: AtomicBool,
    /// When it was last compared with its file.
    looked: LookedAt,
}

#[derive(Debug)]
enum State {
    /// Not mapped now.
    Dropped,
    Mapped(Map, Counted),
    /// Not to be mapped any more: the file changed, or its file system does not map.
    Refused,
}

/// One of the maps that this process may have.
#[derive(Debug)]
struct Counted(());

impl Drop for Counted {
    fn drop(&mut self) {
        MAPPED.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Counted {
    fn new() -> Option<Self> {
        let more = |count| (count < MAPS_MAX).then_some(count + 1);
        let counted = MAPPED.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        counted.is_ok().then_some(Self(()))
    }
}

impl IndexMaps {
    pub(crate) fn new(ends: &Arc<LiveOffsets>) -> Self {
        Self {
            ends: Arc::clone(ends),
            process: std::process::id(),
            ring: Mutex::new(VecDeque::new()),
        }
    }

    /// Begins a change of files other than growth: as [`LiveOffsets::changing_files`], and nothing is mapped meanwhile. Drops the
    /// maps of the segments with these base offsets, whose files the change shortens, replaces or removes.
    pub(crate) fn changing_files(&self, bases: impl RangeBounds<i64>) -> RwLockWriteGuard<'_, ()> {
        let files = self.ends.changing_files();
        self.drop_within(bases);
        files
    }

    /// Ends the log for readers, and drops all maps. Called before the locks are released.
    pub(crate) fn close(&self) {
        self.ends.close();
        self.drop_within(..);
    }

    fn drop_within(&self, bases: impl RangeBounds<i64>) {
        if self.is_inherited() {
            // Another thread of the parent may have held the lock when the child was made.
            return;
        }
        self.ring().retain(|map| match map.upgrade() {
            Some(map) if bases.contains(&map.base_offset) => {
                map.drop_map();
                false
            }
            Some(_) => true,
            None => false,
        });
    }

    fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    fn ring(&self) -> MutexGuard<'_, VecDeque<Weak<IndexMap>>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more map. At the limit, drops the map of this log that was not used for longest; `None` if it has none.
    fn room(&self) -> Option<Counted> {
        if let Some(room) = Counted::new() {
            return Some(room);
        }
        let mut ring = self.ring();
        for _ in 0..ring.len().saturating_mul(2) {
            let Some(map) = ring.pop_front() else { break };
            let Some(found) = map.upgrade() else { continue };
            if found.used.swap(false, Ordering::Relaxed) {
                ring.push_back(map);
            } else if found.drop_map() {
                drop(ring);
                return Counted::new();
            }
        }
        None
    }

    fn note(&self, map: &Arc<IndexMap>) {
        let mut ring = self.ring();
        if ring.len() == ring.capacity() {
            ring.retain(|map| map.strong_count() > 0);
        }
        ring.push_back(Arc::downgrade(map));
    }
}

impl IndexMap {
    /// For an index of a closed segment of a writer's log; `None` if it is better read.
    pub(super) fn new(
        directory: &Arc<Directory>,
        base_offset: i64,
        path: PathBuf,
        size_max: u64,
        file: &dyn DiskFile,
    ) -> Option<Arc<Self>> {
        let stat = file.stat_at_open().ok()?;
        // On other systems our lock does not keep out a broker that starts later (decision 9).
        if !cfg!(target_os = "linux") || stat.size.min(size_max) <= READ_BYTES_MAX {
            return None;
        }
        let map = Arc::new(Self {
            directory: Arc::clone(directory),
            base_offset,
            path,
            size_max,
            stat,
            state: RwLock::new(State::Dropped),
            used: AtomicBool::new(true),
            looked: LookedAt::default(),
        });
        map.map(Some(file)).then_some(map)
    }

    /// Runs `work` on the mapped bytes, which maps them if they are not. `None` if they cannot be mapped now.
    pub(super) fn read<T>(self: &Arc<Self>, work: impl Fn(&[u8]) -> T) -> Option<T> {
        for is_last in [false, true] {
            let state = match self.state.try_read() {
                Ok(state) => state,
                // A thread of the parent may have held the lock when this child was made.
                Err(TryLockError::WouldBlock) if self.is_inherited() => return None,
                // It is being mapped, or dropped, which takes no time.
                _ => self.state.read().unwrap_or_else(PoisonError::into_inner),
            };
            match &*state {
                State::Mapped(map, _) if self.is_unchanged() => {
                    self.used.store(true, Ordering::Relaxed);
                    return Some(work(map.bytes()));
                }
                State::Mapped(..) => {
                    drop(state);
                    self.set(State::Refused);
                    return None;
                }
                State::Dropped if !is_last => {
                    drop(state);
                    if !self.map(None) {
                        return None;
                    }
                }
                State::Dropped | State::Refused => return None,
            }
        }
        None
    }

    /// The directory, the path and the greatest size, to read the index.
    pub(super) fn file(&self) -> (&Directory, &PathBuf, u64) {
        (&self.directory, &self.path, self.size_max)
    }

    fn is_inherited(&self) -> bool {
        let maps = self.directory.maps.as_ref();
        maps.is_none_or(|maps| maps.is_inherited())
    }

    /// Whether the file is as it was when it was mapped, as far as was seen in the last [`LOOK_EVERY`].
    fn is_unchanged(&self) -> bool {
        if self.looked.is_within(LOOK_EVERY) {
            return true;
        }
        let now = Moment::now();
        let stat = self.directory.disk.stat(&self.path);
        let is_unchanged = stat.is_ok_and(|stat| stat == self.stat);
        if is_unchanged {
            self.looked.set(now);
        }
        is_unchanged
    }

    /// Maps the file, `file` if it is open already. Returns whether it is mapped.
    fn map(self: &Arc<Self>, file: Option<&dyn DiskFile>) -> bool {
        let Some(maps) = self.directory.maps.as_deref() else {
            return false;
        };
        // Never waits: the thread may hold this lock already, and a change may take long.
        let Some(_unchanged) = maps.ends.try_listing() else {
            return false;
        };
        if maps.ends.active_base() <= self.base_offset || maps.is_inherited() {
            return false;
        }
        let Some(counted) = maps.room() else {
            return false;
        };
        maps.note(self);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        match *state {
            State::Mapped(..) => return true,
            State::Refused => return false,
            // Closing tells first and then drops the maps. So one made here is dropped there, or it is seen here.
            State::Dropped if maps.ends.is_closed() => return false,
            State::Dropped => {}
        }
        let looked = Moment::now();
        let disk = &self.directory.disk;
        let opened = match file {
            Some(_) => None,
            None => disk.open(&self.path, Access::Read).ok(),
        };
        let mapped = file
            .or(opened.as_deref())
            // The size is that of this moment: since nothing changes now, the file keeps it while it is mapped.
            .filter(|file| file.stat().is_ok_and(|stat| stat == self.stat))
            .and_then(|file| file.map(self.stat.size.min(self.size_max)));
        self.looked.set(looked);
        let is_mapped = mapped.is_some();
        *state = mapped.map_or(State::Refused, |map| State::Mapped(map, counted));
        is_mapped
    }

    /// Returns whether it was mapped.
    fn drop_map(&self) -> bool {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let was_mapped = matches!(*state, State::Mapped(..));
        if was_mapped {
            *state = State::Dropped;
        }
        was_mapped
    }

    fn set(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}
