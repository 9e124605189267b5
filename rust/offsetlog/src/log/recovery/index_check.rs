//! Checks every entry of an existing index against the log.
//!
//! A correct index may differ from a rebuilt one: the index interval was different, a writer restarted, or an older broker counted
//! appends instead of batches.

use super::scan_segment;
use crate::error::Result;
use crate::log::producers::parse_marker;
use crate::segment::walk::{Walk, hop_headers};
use crate::segment::{Check, Directory};
use offsetlog_format::index_entry::{
    ABORTED_TRANSACTION_BYTES, OFFSET_INDEX_ENTRY_BYTES, OffsetIndexEntry, TIME_INDEX_ENTRY_BYTES,
    TimeIndexEntry, offset_entry_count, time_entry_count,
};
use offsetlog_format::{AbortedTransaction, BatchHeader, SegmentFile};
use std::collections::HashMap;
use std::sync::Arc;

/// Checks an index against the first `valid_bytes` of its segment, and a transaction index also against the `rebuilt` one. Returns the
/// size of its entries in bytes; only zeros follow them. Returns `None` if the index must be rebuilt.
pub(in crate::log) fn judge(
    directory: &Arc<Directory>,
    base: i64,
    valid_bytes: u64,
    kind: SegmentFile,
    (index, rebuilt): (&[u8], &[u8]),
    check: &Check<'_>,
) -> Result<Option<usize>> {
    let entries: Option<Box<dyn IndexEntries>> = match kind {
        SegmentFile::OffsetIndex => {
            Offsets::parse(index, base).map(|entries| Box::new(entries) as _)
        }
        SegmentFile::TimeIndex => Times::parse(index, base).map(|entries| Box::new(entries) as _),
        _ => Aborted::parse(index, rebuilt).map(|entries| Box::new(entries) as _),
    };
    let Some(mut entries) = entries else {
        return Ok(None);
    };
    let segment = scan_segment::open(directory, base, None)?;
    let hopped = hop_headers(&segment, 0, check, |header, walk| {
        if walk.batch_position() < valid_bytes {
            entries.note(header, walk)?;
        }
        Ok(())
    });
    match hopped {
        // The bytes after `valid_bytes` are not batches, so the scan may end with an error.
        Err(error) if !error.is_corruption() => Err(error),
        _ => Ok(entries.holds().then(|| entries.bytes())),
    }
}

/// Index entries, checked batch by batch.
trait IndexEntries {
    fn note(&mut self, header: &BatchHeader, walk: &mut Walk) -> Result<()>;
    /// Whether every entry is correct and no required entry is missing.
    fn holds(&self) -> bool;
    fn bytes(&self) -> usize;
}

/// Entries of an offset index. Each must have the position of a batch, and the last offset of that batch or of one appended together with
/// it.
struct Offsets {
    entries: Vec<OffsetIndexEntry>,
    /// The next entry to match with a batch.
    at: usize,
    /// The offset of the matched entry, until the batch with that last offset is found.
    open: Option<i64>,
    wrong: bool,
}

impl Offsets {
    fn parse(index: &[u8], base: i64) -> Option<Self> {
        let count = offset_entry_count(index);
        let entries = entries(index, count, OFFSET_INDEX_ENTRY_BYTES, |slot| {
            OffsetIndexEntry::read(index, slot, base).ok()
        })?;
        // An index of zeros only is a lost one.
        let is_lost = count == 0 && !index.is_empty();
        (!is_lost).then_some(Self {
            entries,
            at: 0,
            open: None,
            wrong: false,
        })
    }
}

impl IndexEntries for Offsets {
    fn note(&mut self, header: &BatchHeader, walk: &mut Walk) -> Result<()> {
        let position = walk.batch_position();
        if let Some(entry) = self.entries.get(self.at)
            && u64::from(entry.position) <= position
        {
            let begins = header.base_offset.unwrap_or(header.last_offset);
            self.wrong |= u64::from(entry.position) != position
                || begins > entry.offset
                || self.open.is_some();
            self.open = Some(entry.offset);
            self.at += 1;
        }
        if let Some(offset) = self.open.filter(|&offset| offset <= header.last_offset) {
            self.wrong |= offset != header.last_offset;
            self.open = None;
        }
        Ok(())
    }

    fn holds(&self) -> bool {
        !self.wrong && self.open.is_none() && self.at == self.entries.len()
    }

    fn bytes(&self) -> usize {
        self.entries.len() * OFFSET_INDEX_ENTRY_BYTES
    }
}

/// Entries of a time index. Each must have the greatest timestamp so far and an offset in the batch that has it. The last entry must have
/// the segment's greatest timestamp: a lookup by timestamp would not find later records.
struct Times {
    entries: Vec<TimeIndexEntry>,
    at: usize,
    max: i64,
    wrong: bool,
}

impl Times {
    fn parse(index: &[u8], base: i64) -> Option<Self> {
        let count = time_entry_count(index);
        let entries = entries(index, count, TIME_INDEX_ENTRY_BYTES, |slot| {
            TimeIndexEntry::read(index, slot, base).ok()
        })?;
        Some(Self {
            entries,
            at: 0,
            max: -1,
            wrong: false,
        })
    }
}

impl IndexEntries for Times {
    fn note(&mut self, header: &BatchHeader, _: &mut Walk) -> Result<()> {
        self.max = self.max.max(header.max_timestamp);
        let begins = header.base_offset.unwrap_or(header.last_offset);
        while let Some(entry) = self.entries.get(self.at)
            && entry.offset <= header.last_offset
        {
            self.wrong |= entry.offset < begins
                || entry.timestamp != self.max
                || entry.timestamp != header.max_timestamp;
            self.at += 1;
        }
        Ok(())
    }

    fn holds(&self) -> bool {
        let last = self.entries.last().map_or(-1, |entry| entry.timestamp);
        !self.wrong && self.at == self.entries.len() && last == self.max
    }

    fn bytes(&self) -> usize {
        self.entries.len() * TIME_INDEX_ENTRY_BYTES
    }
}

/// Entries of a transaction index. Each must end at an abort marker of its producer and begin after that producer's previous marker.
/// After compaction the index knows more than a rebuild finds, such as where a transaction began whose first records were removed.
/// Whatever the rebuild finds must be in it.
struct Aborted {
    entries: Vec<AbortedTransaction>,
    rebuilt: Vec<AbortedTransaction>,
    at: usize,
    /// Offset of each producer's last marker.
    markers: HashMap<i64, i64>,
    wrong: bool,
}

impl Aborted {
    fn parse(index: &[u8], rebuilt: &[u8]) -> Option<Self> {
        let parse = |bytes: &[u8]| {
            let count = bytes.len() / ABORTED_TRANSACTION_BYTES;
            entries(bytes, count, ABORTED_TRANSACTION_BYTES, |slot| {
                AbortedTransaction::read(bytes, slot).ok()
            })
        };
        Some(Self {
            entries: parse(index)?,
            rebuilt: parse(rebuilt)?,
            at: 0,
            markers: HashMap::new(),
            wrong: false,
        })
    }
}

impl IndexEntries for Aborted {
    fn note(&mut self, header: &BatchHeader, walk: &mut Walk) -> Result<()> {
        if !header.attributes.is_control() || header.producer_id < 0 {
            return Ok(());
        }
        let Some(marker) = parse_marker(walk.batch()?, header)? else {
            return Ok(());
        };
        let before = self.markers.insert(header.producer_id, header.last_offset);
        if let Some(entry) = self.entries.get(self.at)
            && entry.last_offset <= header.last_offset
        {
            self.wrong |= entry.last_offset != header.last_offset
                || entry.producer_id != header.producer_id
                || marker.commit
                || before.is_some_and(|before| entry.first_offset <= before);
            self.at += 1;
        }
        Ok(())
    }

    fn holds(&self) -> bool {
        let covers = |entry: &AbortedTransaction, rebuilt: &AbortedTransaction| {
            entry.producer_id == rebuilt.producer_id
                && entry.last_offset == rebuilt.last_offset
                && entry.first_offset <= rebuilt.first_offset
                && entry.last_stable_offset <= rebuilt.last_stable_offset
        };
        let mut entries = self.entries.iter();
        let is_complete = self
            .rebuilt
            .iter()
            .all(|rebuilt| entries.any(|entry| covers(entry, rebuilt)));
        !self.wrong && self.at == self.entries.len() && is_complete
    }

    fn bytes(&self) -> usize {
        self.entries.len() * ABORTED_TRANSACTION_BYTES
    }
}

/// Returns all entries; `None` if the file ends inside an entry or holds anything but zeros after them.
fn entries<E>(
    index: &[u8],
    count: usize,
    entry_bytes: usize,
    read: impl Fn(usize) -> Option<E>,
) -> Option<Vec<E>> {
    let rest = index.get(count * entry_bytes..)?;
    if rest.iter().any(|&byte| byte != 0) || !index.len().is_multiple_of(entry_bytes) {
        return None;
    }
    (0..count).map(read).collect()
}
