//! The time index: maps a timestamp to an offset up to which every record is older.
//!
//! An entry (timestamp, offset) promises that no record at or below the offset has a greater timestamp. The file has no
//! checksum, so it is used only if its entries are in order and the last one agrees with the batch that holds its offset.
//! Otherwise the batch headers, each of which has the batch's greatest timestamp, are walked once.
//!
//! Known gap: an entry that points too far, at a batch that by chance has the entry's very timestamp, is believed, as by Kafka.
//! Only a walk over all headers, which the index is there to save, would show it.

use super::find::{self, ReadAhead, Trace};
use super::index_maps::IndexMap;
use super::offset_index::{Entries, Found};
use super::sorted::first_at_or_after;
use super::walk::hop_headers;
use super::{Check, OpenSegment};
use crate::error::Result;
use offsetlog_format::index_entry::{TIME_INDEX_ENTRY_BYTES, TimeIndexEntry, time_entry_count};
use std::sync::{Arc, OnceLock};

/// A walk over headers remembers one place per this many bytes.
const MARK_BYTES: u64 = 64 * 1024;

/// The timestamps of a segment.
#[derive(Debug, Clone)]
pub(crate) struct SegmentTimes {
    /// Greatest timestamp of any batch, -1 if no batch has one.
    pub(crate) max_timestamp: i64,
    /// Ascending. Each place is an offset or a position, with a timestamp that no record before the place exceeds.
    places: Arc<Places>,
}

#[derive(Debug)]
enum Places {
    /// From the index file.
    Index(Vec<(i64, i64)>),
    /// From the map of the index file, which had this many entries, all in order; read where it is gone.
    Mapped {
        map: Arc<IndexMap>,
        base_offset: i64,
        count: usize,
        read: OnceLock<Vec<(i64, i64)>>,
    },
    /// From the headers: the greatest timestamp before each position.
    Headers(Vec<(i64, u64)>),
}

impl SegmentTimes {
    pub(crate) fn load(segment: &Arc<OpenSegment>, check: &Check<'_>) -> Result<Self> {
        if let Some(entries) = SoundEntries::load(segment)
            && let Some(times) = Self::from_index(segment, entries, check)?
        {
            return Ok(times);
        }
        Self::from_headers(segment, check)
    }

    /// Uses the index if the batch at its last entry has exactly that timestamp. Batches after that one are walked.
    fn from_index(
        segment: &Arc<OpenSegment>,
        entries: SoundEntries,
        check: &Check<'_>,
    ) -> Result<Option<Self>> {
        let Some((timestamp, offset)) = entries.last else {
            return Ok(None);
        };
        let found = find::find(
            segment,
            offset,
            ReadAhead::To(offset),
            Vec::new(),
            &mut Trace::default(),
        );
        let Ok((walk, find::Found::Batch(header))) = found else {
            return Ok(None);
        };
        if header.max_timestamp != timestamp {
            return Ok(None);
        }
        let mut max_timestamp = timestamp;
        hop_headers(segment, walk.position(), check, |header, _| {
            max_timestamp = max_timestamp.max(header.max_timestamp);
            Ok(())
        })?;
        Ok(Some(Self {
            max_timestamp,
            places: Arc::new(entries.places),
        }))
    }

    /// Like [`load`](Self::load), but tolerates damage in a closed segment. The hidden batches have no timestamp above that of
    /// the index's last entry, which a roll writes, so `max_timestamp` covers them. Places reach only up to the damage.
    pub(crate) fn load_past_damage(segment: &Arc<OpenSegment>, check: &Check<'_>) -> Result<Self> {
        let error = match Self::load(segment, check) {
            Err(error) if error.is_corruption() && !segment.is_active() => error,
            loaded => return loaded,
        };
        let last = SoundEntries::load(segment).and_then(|entries| entries.last);
        let Some((timestamp, _)) = last else {
            return Err(error);
        };
        let (mut times, _) = Self::walk(segment, check);
        times.max_timestamp = times.max_timestamp.max(timestamp);
        Ok(times)
    }

    pub(crate) fn from_headers(segment: &Arc<OpenSegment>, check: &Check<'_>) -> Result<Self> {
        let (times, walked) = Self::walk(segment, check);
        walked.map(|()| times)
    }

    /// Walks the headers up to the first that cannot be read.
    fn walk(segment: &Arc<OpenSegment>, check: &Check<'_>) -> (Self, Result<()>) {
        let mut max_timestamp = -1;
        let mut places: Vec<(i64, u64)> = Vec::new();
        let walked = hop_headers(segment, 0, check, |header, walk| {
            let position = walk.batch_position();
            if places
                .last()
                .is_none_or(|&(_, last)| position - last >= MARK_BYTES)
            {
                places.push((max_timestamp, position));
            }
            max_timestamp = max_timestamp.max(header.max_timestamp);
            Ok(())
        });
        let times = Self {
            max_timestamp,
            places: Arc::new(Places::Headers(places)),
        };
        (times, walked.map(drop))
    }

    /// Where to start scanning for `timestamp`: all records before it are older.
    pub(crate) fn start(&self, timestamp: i64) -> Start {
        match self.places.as_ref() {
            Places::Index(entries) => {
                let at = |slot: usize| entries.get(slot).copied();
                Start::of_entries(entries.len(), at, timestamp)
            }
            Places::Mapped {
                map,
                base_offset,
                count,
                read,
            } => map
                .read(|bytes| {
                    let at = |slot| entry_at(bytes, slot, *base_offset);
                    Start::of_entries(*count, at, timestamp)
                })
                .unwrap_or_else(|| {
                    let entries = read.get_or_init(|| {
                        let read = Entries::read_unmapped(map);
                        read.and_then(|read| {
                            let bytes = read.bytes();
                            let slots = 0..time_entry_count(bytes).min(*count);
                            slots
                                .map(|slot| entry_at(bytes, slot, *base_offset))
                                .collect()
                        })
                        .unwrap_or_default()
                    });
                    let at = |slot: usize| entries.get(slot).copied();
                    Start::of_entries(entries.len(), at, timestamp)
                }),
            Places::Headers(places) => {
                let slot = places.partition_point(|&(before, _)| before < timestamp);
                slot.checked_sub(1)
                    .and_then(|slot| places.get(slot))
                    .map_or(Start::Position(0), |&(_, position)| {
                        Start::Position(position)
                    })
            }
        }
    }
}

/// A place from which to scan.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    /// An index entry. The caller may use it only after it found that the batch with that offset has that timestamp.
    Entry {
        timestamp: i64,
        offset: i64,
        /// About the offset of the first record with the timestamp that is looked for.
        probable_end: i64,
    },
    Position(u64),
}

impl Start {
    /// The last of `count` entries, which ascend, before `timestamp`.
    fn of_entries(count: usize, at: impl Fn(usize) -> Option<(i64, i64)>, timestamp: i64) -> Self {
        let slot = first_at_or_after(count, |slot| at(slot).map(|(entry, _)| entry), timestamp);
        let Some((before, offset)) = slot.checked_sub(1).and_then(&at) else {
            return Self::Position(0);
        };
        // Timestamps mostly grow as offsets do.
        let probable_end = at(slot).and_then(|(after, next)| {
            let records = next.abs_diff(offset);
            let passed = records.checked_mul(timestamp.abs_diff(before))?;
            offset.checked_add_unsigned(passed.checked_div(after.abs_diff(before))?)
        });
        Self::Entry {
            timestamp: before,
            offset,
            probable_end: probable_end.unwrap_or(i64::MAX),
        }
    }
}

/// The entry in a slot, as (timestamp, offset).
#[inline]
fn entry_at(bytes: &[u8], slot: usize, base_offset: i64) -> Option<(i64, i64)> {
    let entry = TimeIndexEntry::read(bytes, slot, base_offset).ok()?;
    Some((entry.timestamp, entry.offset))
}

/// The entries of a `.timeindex` in which both timestamps and offsets ascend, no timestamp is negative and all offsets lie
/// within the segment.
///
/// Kafka makes no entry for "no timestamp". One would agree with every batch that has none, wherever it points.
struct SoundEntries {
    places: Places,
    last: Option<(i64, i64)>,
}

impl SoundEntries {
    fn load(segment: &OpenSegment) -> Option<Self> {
        let base_offset = segment.base_offset;
        let map = match Entries::load(segment, ".timeindex", TIME_INDEX_ENTRY_BYTES)? {
            Found::Bytes(entries) => return Self::of_bytes(segment, entries.bytes()),
            Found::Kept(map) => map,
        };
        let checked = map.read(|bytes| check_entries(segment, bytes, |_| {}));
        let Some(checked) = checked else {
            return Self::of_bytes(segment, Entries::read_unmapped(&map)?.bytes());
        };
        let (count, last) = checked?;
        let places = Places::Mapped {
            map,
            base_offset,
            count,
            read: OnceLock::new(),
        };
        Some(Self { places, last })
    }

    fn of_bytes(segment: &OpenSegment, bytes: &[u8]) -> Option<Self> {
        let mut entries = Vec::with_capacity(time_entry_count(bytes));
        let (_, last) = check_entries(segment, bytes, |entry| entries.push(entry))?;
        let places = Places::Index(entries);
        Some(Self { places, last })
    }
}

/// Passes each entry to `visit`. Returns their number and the last one; `None` if they are not sound.
fn check_entries(
    segment: &OpenSegment,
    bytes: &[u8],
    mut visit: impl FnMut((i64, i64)),
) -> Option<(usize, Option<(i64, i64)>)> {
    let count = time_entry_count(bytes);
    let mut last: Option<(i64, i64)> = None;
    for slot in 0..count {
        let (timestamp, offset) = entry_at(bytes, slot, segment.base_offset)?;
        let within = offset >= segment.base_offset
            && segment.next_base_offset.is_none_or(|next| offset < next);
        let ascends = last.is_none_or(|(before, last)| timestamp > before && offset >= last);
        if !within || !ascends || timestamp < 0 {
            return None;
        }
        last = Some((timestamp, offset));
        visit((timestamp, offset));
    }
    Some((count, last))
}
