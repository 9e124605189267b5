//! The offset index: maps an offset to a position in the `.log` at or before the batch that holds it.
//!
//! The index is sparse (one entry per `index.interval.bytes`, 4 KiB) and has no checksum and no header. An entry pairs a
//! batch's *last* offset with that batch's *start* position (before Kafka 2.0: the first offset of an append; up to 3.9: the
//! last offset of a whole append). Entries are hints: every user checks the batch header at the entry's position (`find`).

use super::OpenSegment;
use super::index_maps::IndexMap;
use super::sorted::first_at_or_after;
use crate::disk::{Access, DiskFile, Map};
use crate::memory;
use offsetlog_format::index_entry::{
    OFFSET_INDEX_ENTRY_BYTES, OffsetIndexEntry, offset_entry_count,
};
use std::sync::{Arc, OnceLock};

/// State of an index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexState {
    /// It has entries.
    Used,
    /// The file does not exist or cannot be read.
    Missing,
    /// The file has no entries.
    Empty,
}

/// An entry and its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexSlot {
    /// Number of the entry, from 0.
    pub slot: usize,
    /// The entry's offset, absolute.
    pub offset: i64,
    /// The entry's position in the `.log` file.
    pub position: u64,
}

/// The entries of one `.index` file.
#[derive(Debug)]
pub(crate) struct OffsetIndex {
    base_offset: i64,
    /// In a log that this process writes.
    mapped: Option<Arc<IndexMap>>,
    /// Otherwise, and while there is no map.
    loaded: OnceLock<Loaded>,
}

/// Entries in memory.
#[derive(Debug)]
struct Loaded {
    entries: Entries,
    count: usize,
    state: IndexState,
}

/// Bytes of an index: mapped if the caller promised that nobody shrinks the file, otherwise owned.
#[derive(Debug)]
pub(crate) enum Entries {
    Mapped(Map),
    Owned(Vec<u8>),
}

/// An index of a segment: the map that the writer keeps of it, or its bytes.
pub(crate) enum Found {
    Kept(Arc<IndexMap>),
    Bytes(Entries),
}

impl Entries {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map.bytes(),
            Self::Owned(bytes) => bytes,
        }
    }

    /// Reads or maps an index of `segment`; `None` if the file does not exist or cannot be read.
    pub(crate) fn load(segment: &OpenSegment, suffix: &str, entry_bytes: usize) -> Option<Found> {
        let kept = segment.maps.as_deref().map(|maps| maps.of(suffix));
        if let Some(map) = kept.and_then(OnceLock::get) {
            return Some(Found::Kept(Arc::clone(map)));
        }
        let directory = &segment.directory;
        let path = segment.index_path(suffix);
        let file = directory.disk.open(&path, Access::Read).ok()?;
        let size = file.stat_at_open().ok()?.size;
        // An index cannot have more entries than the log has batches (at least 26 bytes each), so the rest is not read.
        let batches = segment.stat.size / 26 + 1;
        let size_max = batches * entry_bytes as u64;
        if directory.map_indexes
            && !segment.is_active()
            && let Some(map) = file.map(size.min(size_max))
        {
            return Some(Found::Bytes(Self::Mapped(map)));
        }
        if let Some(kept) = kept
            && let Some(map) = IndexMap::new(
                directory,
                segment.base_offset,
                path,
                size_max,
                file.as_ref(),
            )
        {
            return Some(Found::Kept(Arc::clone(kept.get_or_init(|| map))));
        }
        Self::read(file.as_ref(), size.min(size_max)).map(Found::Bytes)
    }

    /// Reads an index of which there is no map now.
    pub(crate) fn read_unmapped(map: &IndexMap) -> Option<Self> {
        let (directory, path, size_max) = map.file();
        let file = directory.disk.open(path, Access::Read).ok()?;
        let size = file.stat_at_open().ok()?.size;
        Self::read(file.as_ref(), size.min(size_max))
    }

    fn read(file: &dyn DiskFile, size: u64) -> Option<Self> {
        let mut bytes = Vec::new();
        memory::reserve(&mut bytes, size as usize).ok()?;
        bytes.resize(size as usize, 0);
        let read = file.read_at(&mut bytes, 0).ok()?;
        bytes.truncate(read);
        Some(Self::Owned(bytes))
    }
}

impl Loaded {
    fn new(entries: Option<Entries>) -> Self {
        let state = if entries.is_some() {
            IndexState::Empty
        } else {
            IndexState::Missing
        };
        let mut entries = entries.unwrap_or(Entries::Owned(Vec::new()));
        let count = offset_entry_count(entries.bytes());
        if let Entries::Owned(bytes) = &mut entries {
            bytes.truncate(count * OFFSET_INDEX_ENTRY_BYTES);
            bytes.shrink_to_fit();
        }
        Self {
            entries,
            count,
            state: if count > 0 { IndexState::Used } else { state },
        }
    }
}

impl OffsetIndex {
    pub(crate) fn load(segment: &OpenSegment) -> Self {
        let (mapped, loaded) = match Entries::load(segment, ".index", OFFSET_INDEX_ENTRY_BYTES) {
            Some(Found::Kept(map)) => (Some(map), OnceLock::new()),
            Some(Found::Bytes(entries)) => (None, OnceLock::from(Loaded::new(Some(entries)))),
            None => (None, OnceLock::from(Loaded::new(None))),
        };
        Self {
            base_offset: segment.base_offset,
            mapped,
            loaded,
        }
    }

    /// Runs `work` on the bytes and the number of entries.
    #[inline]
    fn with<T>(&self, work: impl Fn(&[u8], usize) -> T) -> T {
        if let Some(map) = &self.mapped {
            // Without a look at each entry, which would load the whole file: zeros behind the last one are there after a crash only.
            let counted = |bytes: &[u8]| match bytes.as_chunks::<OFFSET_INDEX_ENTRY_BYTES>().0 {
                [.., [0, 0, 0, 0, ..]] => offset_entry_count(bytes),
                slots => slots.len(),
            };
            if let Some(done) = map.read(|bytes| work(bytes, counted(bytes))) {
                return done;
            }
        }
        let loaded = self.loaded();
        work(loaded.entries.bytes(), loaded.count)
    }

    fn loaded(&self) -> &Loaded {
        self.loaded.get_or_init(|| {
            let map = self.mapped.as_deref();
            Loaded::new(map.and_then(Entries::read_unmapped))
        })
    }

    /// Number of valid entries: those before the zeros of a preallocated file.
    pub(crate) fn len(&self) -> usize {
        self.with(|bytes, count| match self.mapped {
            Some(_) => offset_entry_count(bytes),
            None => count,
        })
    }

    pub(crate) fn state(&self) -> IndexState {
        match &self.mapped {
            Some(_) if self.len() > 0 => IndexState::Used,
            Some(_) => IndexState::Empty,
            None => self.loaded().state,
        }
    }

    /// The entry in `slot`.
    pub(crate) fn entry(&self, slot: usize) -> Option<IndexSlot> {
        self.with(|bytes, count| entry_in(bytes, count, slot, self.base_offset))
    }

    /// Returns the last entry at or below `target`, as [`around`](Self::around).
    pub(crate) fn lookup(&self, target: i64) -> Option<IndexSlot> {
        self.around(target).0
    }

    /// Returns the last entry at or below `target`, and the one after it: a few probes where offsets grow evenly, about 40 at most, no
    /// allocation, and no system call. If the entries are out of order, it may return any entries; the caller checks them.
    pub(crate) fn around(&self, target: i64) -> (Option<IndexSlot>, Option<IndexSlot>) {
        self.with(|bytes, count| {
            let entry = |slot| entry_in(bytes, count, slot, self.base_offset);
            let after = match target.checked_add(1) {
                Some(above) => {
                    let offset = |slot| entry(slot).map(|entry| entry.offset);
                    first_at_or_after(count, offset, above)
                }
                None => count,
            };
            (after.checked_sub(1).and_then(entry), entry(after))
        })
    }
}

#[inline]
fn entry_in(bytes: &[u8], count: usize, slot: usize, base_offset: i64) -> Option<IndexSlot> {
    if slot >= count {
        return None;
    }
    let entry = OffsetIndexEntry::read(bytes, slot, base_offset).ok()?;
    Some(IndexSlot {
        slot,
        offset: entry.offset,
        position: u64::from(entry.position),
    })
}
