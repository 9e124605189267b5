//! The offset index: maps an offset to a position in the `.log` at or before the batch that holds it.
//!
//! The index is sparse (one entry per `index.interval.bytes`, 4 KiB) and has no checksum and no header. An entry pairs a
//! batch's *last* offset with that batch's *start* position (before Kafka 2.0: the first offset of an append; up to 3.9: the
//! last offset of a whole append). Entries are hints: every user checks the batch header at the entry's position (`find`).

use super::OpenSegment;
use crate::disk::{Access, Map};
use crate::memory;
use offsetlog_format::index_entry::{
    OFFSET_INDEX_ENTRY_BYTES, OffsetIndexEntry, offset_entry_count,
};

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
    entries: Entries,
    count: usize,
    base_offset: i64,
    pub(crate) state: IndexState,
}

/// Bytes of an index: mapped if the caller promised that nobody shrinks the file, otherwise owned.
#[derive(Debug)]
pub(crate) enum Entries {
    Mapped(Map),
    Owned(Vec<u8>),
}

impl Entries {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map.bytes(),
            Self::Owned(bytes) => bytes,
        }
    }

    /// Reads or maps an index of `segment`; `None` if the file does not exist or cannot be read.
    pub(crate) fn load(segment: &OpenSegment, suffix: &str, entry_bytes: usize) -> Option<Self> {
        let path = segment.index_path(suffix);
        let file = segment.directory.disk.open(&path, Access::Read).ok()?;
        let size = file.stat_at_open().ok()?.size;
        // An index cannot have more entries than the log has batches (at least 26 bytes each), so the rest is not read.
        let batches = segment.stat.size / 26 + 1;
        let size = size.min(batches * entry_bytes as u64);
        if segment.directory.map_indexes
            && !segment.is_active()
            && let Some(map) = file.map(size)
        {
            return Some(Self::Mapped(map));
        }
        let mut bytes = Vec::new();
        memory::reserve(&mut bytes, size as usize).ok()?;
        bytes.resize(size as usize, 0);
        let read = file.read_at(&mut bytes, 0).ok()?;
        bytes.truncate(read);
        Some(Self::Owned(bytes))
    }
}

impl OffsetIndex {
    pub(crate) fn load(segment: &OpenSegment) -> Self {
        let loaded = Entries::load(segment, ".index", OFFSET_INDEX_ENTRY_BYTES);
        let state = if loaded.is_some() {
            IndexState::Empty
        } else {
            IndexState::Missing
        };
        let mut entries = loaded.unwrap_or(Entries::Owned(Vec::new()));
        let count = offset_entry_count(entries.bytes());
        if let Entries::Owned(bytes) = &mut entries {
            bytes.truncate(count * OFFSET_INDEX_ENTRY_BYTES);
            bytes.shrink_to_fit();
        }
        Self {
            entries,
            count,
            base_offset: segment.base_offset,
            state: if count > 0 { IndexState::Used } else { state },
        }
    }

    /// Number of valid entries: those before the zeros of a preallocated file.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// The entry in `slot`.
    pub(crate) fn entry(&self, slot: usize) -> Option<IndexSlot> {
        if slot >= self.count {
            return None;
        }
        let entry = OffsetIndexEntry::read(self.entries.bytes(), slot, self.base_offset).ok()?;
        Some(IndexSlot {
            slot,
            offset: entry.offset,
            position: u64::from(entry.position),
        })
    }

    /// Returns the last entry at or below `target` by binary search: about 20 probes for a full index, no allocation, and no
    /// system call on a mapped file. If the entries are out of order, it may return any entry; the caller checks it.
    pub(crate) fn lookup(&self, target: i64) -> Option<IndexSlot> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle)?.offset <= target {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.entry(low.checked_sub(1)?)
    }
}
