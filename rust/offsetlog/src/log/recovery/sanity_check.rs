//! Checks a segment that needs no recovery (Kafka's `sanityCheck`): are its indexes plausible, and where does the last segment end?

use super::loader::Loading;
use super::scan_segment::{self, Rule, ScannedSegment};
use crate::disk::{Access, IoCall, read_whole};
use crate::error::{Error, Result};
use crate::log::producers::parse_marker;
use crate::segment::active;
use crate::segment::find::{self, ReadAhead, Trace};
use crate::segment::indexing::{MaxTimestamp, capacities};
use crate::segment::segment_path;
use crate::segment::walk::{LOOKUP_BYTES, SCAN_BYTES, Step, Walk, hop_headers};
use offsetlog_format::index_entry::{
    ABORTED_TRANSACTION_BYTES, OFFSET_INDEX_ENTRY_BYTES, OffsetIndexEntry, TIME_INDEX_ENTRY_BYTES,
    TimeIndexEntry, offset_entry_count, time_entry_count,
};
use offsetlog_format::snapshot::SNAPSHOT_HEADER_BYTES;
use offsetlog_format::{AbortedTransaction, SegmentFile};
use std::collections::HashSet;

/// The end of the last segment.
#[derive(Debug, Clone, Copy)]
pub(in crate::log) struct Tail {
    pub(in crate::log) contents: active::Contents,
    pub(in crate::log) next_offset: i64,
    /// Leader epoch of the last batch, -1 for none.
    pub(in crate::log) last_epoch: i32,
}

pub(in crate::log) fn of_contents(contents: &ScannedSegment, base: i64) -> Tail {
    let times = &contents.entries.time;
    let time_entries = times.len() / TIME_INDEX_ENTRY_BYTES;
    Tail {
        contents: active::Contents {
            size: contents.valid_bytes,
            offset_entries: contents.entries.offset.len() / OFFSET_INDEX_ENTRY_BYTES,
            time_entries,
            last_time: time_entries
                .checked_sub(1)
                .and_then(|slot| TimeIndexEntry::read(times, slot, base).ok()),
            max: contents.max,
            first_timestamp: contents.first_timestamp,
            rebuilt_entries: contents.rebuilt_entries,
        },
        next_offset: contents.next_offset,
        last_epoch: contents.last_epoch,
    }
}

/// All files that a recovery rebuilds from a segment's batches.
pub(in crate::log) const ALL: [SegmentFile; 3] = [
    SegmentFile::OffsetIndex,
    SegmentFile::TimeIndex,
    SegmentFile::TransactionIndex,
];
const BY_OFFSET_AND_TIME: [SegmentFile; 2] = [SegmentFile::OffsetIndex, SegmentFile::TimeIndex];

/// The files to check of a segment whose log is durable and whose indexes may not be.
pub(in crate::log) fn indexes_to_verify(
    loading: &Loading<'_>,
    base: i64,
) -> Result<&'static [SegmentFile]> {
    let files = loading.files.segments.get(&base);
    let has_aborted = files.is_some_and(|files| files.contains(&SegmentFile::TransactionIndex))
        || holds_aborted(loading, base)?;
    Ok(if has_aborted {
        &ALL
    } else {
        &BY_OFFSET_AND_TIME
    })
}

/// The files of a segment that must be rebuilt although it needs no recovery; usually none. Correct indexes are kept: they may differ
/// from rebuilt ones, because the index interval was different or a writer restarted. For the last segment this also reads its end and
/// stores it.
pub(in crate::log) fn indexes_to_rebuild(
    loading: &mut Loading<'_>,
    base: i64,
    is_last: bool,
) -> Result<&'static [SegmentFile]> {
    let kinds = loading
        .files
        .segments
        .get(&base)
        .cloned()
        .unwrap_or_default();
    let has_times = kinds.contains(&SegmentFile::TimeIndex);
    if !kinds.contains(&SegmentFile::OffsetIndex) || (is_last && !has_times) {
        let is_new = is_new_segment(loading, base, is_last)?;
        return Ok(if is_new { &[] } else { &ALL });
    }
    if !has_times {
        return Ok(&[SegmentFile::TimeIndex]);
    }
    // An empty transaction index is as good as a missing one: with it a broker would return aborted records.
    let has_aborted =
        kinds.contains(&SegmentFile::TransactionIndex) && size_of(loading, base, ".txnindex")? > 0;
    if has_aborted && !is_sound_txn_index(loading, base)? {
        return Ok(&ALL);
    }
    if is_last {
        loading.tail = read_tail(loading.directory, loading.rule, base)?;
        if loading.tail.is_none() {
            return Ok(&ALL);
        }
    } else if is_emptied(loading, base)? {
        return Ok(&BY_OFFSET_AND_TIME);
    }
    if !has_aborted && has_lost_txn_index(loading, base)? {
        return Ok(&[SegmentFile::TransactionIndex]);
    }
    Ok(&[])
}

/// Returns the size in bytes of one of a segment's files.
fn size_of(loading: &Loading<'_>, base: i64, suffix: &str) -> Result<u64> {
    let path = segment_path(&loading.directory.path, base, suffix);
    let stat = loading.directory.disk.stat(&path);
    Ok(stat
        .map_err(|error| Error::io(IoCall::Stat, &path, error))?
        .size)
}

/// Whether the last segment is empty and has no indexes: it was rolled and never appended to.
fn is_new_segment(loading: &mut Loading<'_>, base: i64, is_last: bool) -> Result<bool> {
    if !is_last || size_of(loading, base, ".log")? > 0 {
        return Ok(false);
    }
    loading.tail = Some(empty(base));
    Ok(true)
}

fn empty(base: i64) -> Tail {
    Tail {
        contents: active::Contents {
            size: 0,
            offset_entries: 0,
            time_entries: 0,
            last_time: None,
            max: MaxTimestamp {
                timestamp: -1,
                offset: base,
            },
            first_timestamp: None,
            rebuilt_entries: 0,
        },
        next_offset: base,
        last_epoch: -1,
    }
}

/// The file must hold whole entries only; each must have a known version and end at or after the base offset, as in a broker.
fn is_sound_txn_index(loading: &Loading<'_>, base: i64) -> Result<bool> {
    let path = segment_path(&loading.directory.path, base, ".txnindex");
    let bytes = read_whole(loading.directory.disk.as_ref(), &path, u64::from(u32::MAX))
        .map_err(|error| Error::io(IoCall::Read, &path, error))?;
    let entries = bytes.len() / ABORTED_TRANSACTION_BYTES;
    Ok(bytes.len().is_multiple_of(ABORTED_TRANSACTION_BYTES)
        && (0..entries).all(|slot| {
            AbortedTransaction::read(&bytes, slot).is_ok_and(|entry| entry.last_offset >= base)
        }))
}

/// Whether a segment without a transaction index holds an aborted transaction, records and marker. Not checked if the snapshot at the
/// segment's end has no producers, or if our writer closed the log.
fn has_lost_txn_index(loading: &Loading<'_>, base: i64) -> Result<bool> {
    if loading.terms.start.own.is_some() {
        return Ok(false);
    }
    let directory = loading.directory;
    let end = loading.files.segments.range(base + 1..).next();
    let snapshots = &loading.files.snapshots;
    let snapshot = match end {
        Some((next, _)) => snapshots.get(next),
        None => snapshots.last().filter(|&&offset| offset > base),
    };
    let is_quiet = snapshot.is_some_and(|&offset| {
        let path = segment_path(&directory.path, offset, ".snapshot");
        let stat = directory.disk.stat(&path);
        stat.is_ok_and(|stat| stat.size == SNAPSHOT_HEADER_BYTES as u64)
    });
    Ok(!is_quiet && holds_aborted(loading, base)?)
}

/// Whether a segment holds the marker of an aborted transaction, and records of it above the log start offset.
fn holds_aborted(loading: &Loading<'_>, base: i64) -> Result<bool> {
    let segment = scan_segment::open(loading.directory, base, None)?;
    let mut walk = Walk::new(segment, 0, SCAN_BYTES, Vec::new()).headers_only();
    // The cleaner removes the records and the index entry of an aborted transaction; its marker may stay. If all records are removed,
    // there is nothing to hide, and a broker that was killed does not know the transaction either.
    let mut with_data = HashSet::new();
    loop {
        let header = match walk.step(false) {
            Ok(Step::Batch(header)) => header,
            Ok(Step::End(_)) => return Ok(false),
            Err(error) if error.is_corruption() => return Ok(false),
            Err(error) => return Err(error),
        };
        if header.attributes.is_control() {
            let had_data = with_data.remove(&header.producer_id);
            let marker = parse_marker(walk.batch()?, &header);
            if had_data && matches!(marker, Ok(Some(marker)) if !marker.commit) {
                return Ok(true);
            }
        } else if header.attributes.is_transactional()
            && header.record_count > 0
            && header.last_offset >= loading.terms.start.log_start_offset
        {
            with_data.insert(header.producer_id);
        }
    }
}

/// Whether the batches of a segment follow each other without a gap, from its base offset on. A compacted segment has gaps.
pub(in crate::log) fn is_contiguous(loading: &Loading<'_>, base: i64) -> Result<bool> {
    let segment = scan_segment::open(loading.directory, base, None)?;
    let mut walk = Walk::new(segment, 0, SCAN_BYTES, Vec::new()).headers_only();
    let mut next = base;
    loop {
        match walk.step(false) {
            Ok(Step::Batch(header)) if header.base_offset == Some(next) => {
                next = header.last_offset.saturating_add(1);
            }
            Ok(Step::End(_)) => return Ok(true),
            Ok(Step::Batch(_)) => return Ok(false),
            Err(error) if error.is_corruption() => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the offset after a segment's last batch, found from its last index entry; `None` if it cannot be read.
pub(in crate::log) fn next_offset(loading: &Loading<'_>, base: i64) -> Result<Option<i64>> {
    let segment = scan_segment::open(loading.directory, base, None)?;
    let mut trace = Trace::default();
    let mut walk = match find::start(
        &segment,
        i64::MAX,
        ReadAhead::To(i64::MAX),
        Vec::new(),
        &mut trace,
    ) {
        Ok(walk) => walk,
        Err(error) if error.is_corruption() => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut next = base;
    loop {
        match walk.step(false) {
            Ok(Step::Batch(header)) => next = header.last_offset.saturating_add(1),
            Ok(Step::End(_)) => return Ok(Some(next)),
            Err(error) if error.is_corruption() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Whether an index of a closed segment is empty although the segment has batches. An interrupted swap leaves zeros at full size; without
/// its time index a segment's records would seem as old as its file.
fn is_emptied(loading: &Loading<'_>, base: i64) -> Result<bool> {
    let times = size_of(loading, base, ".timeindex")?;
    let offsets = size_of(loading, base, ".index")?;
    let (offset_capacity, _) = capacities(loading.rule.index_bytes);
    let may_be_zeros = offsets >= (offset_capacity * OFFSET_INDEX_ENTRY_BYTES) as u64;
    if times > 0 && !may_be_zeros {
        return Ok(false);
    }
    if size_of(loading, base, ".log")? == 0 {
        return Ok(false);
    }
    if may_be_zeros {
        let path = segment_path(&loading.directory.path, base, ".index");
        let mut front = [0; 2 * OFFSET_INDEX_ENTRY_BYTES];
        loading
            .directory
            .disk
            .open(&path, Access::Read)
            .and_then(|file| file.read_at(&mut front, 0))
            .map_err(|error| Error::io(IoCall::Read, &path, error))?;
        if front.iter().all(|&byte| byte == 0) {
            return Ok(true);
        }
    }
    if times > 0 {
        return Ok(false);
    }
    let segment = scan_segment::open(loading.directory, base, None)?;
    let mut walk = Walk::new(segment, 0, LOOKUP_BYTES, Vec::new());
    match walk.step(false) {
        Ok(Step::Batch(header)) => Ok(header.max_timestamp >= 0),
        _ => Ok(true),
    }
}

/// Reads the end of the last segment, from its last index entry on; `None` if the indexes and the log do not agree.
pub(in crate::log) fn read_tail(
    directory: &std::sync::Arc<crate::segment::Directory>,
    rule: Rule,
    base: i64,
) -> Result<Option<Tail>> {
    let disk = directory.disk.as_ref();
    let read =
        |suffix: &str| read_whole(disk, &segment_path(&directory.path, base, suffix), 1 << 31);
    let (Ok(offsets), Ok(times)) = (read(".index"), read(".timeindex")) else {
        return Ok(None);
    };
    let offset_entries = offset_entry_count(&offsets);
    let time_entries = time_entry_count(&times);
    let last_entry = offset_entries
        .checked_sub(1)
        .map(|slot| OffsetIndexEntry::read(&offsets, slot, base));
    let last_time = time_entries
        .checked_sub(1)
        .map(|slot| TimeIndexEntry::read(&times, slot, base));
    let (Ok(last_entry), Ok(last_time)) = (last_entry.transpose(), last_time.transpose()) else {
        return Ok(None);
    };
    let segment = scan_segment::open(directory, base, None)?;
    let position = last_entry.map_or(0, |entry| u64::from(entry.position));
    if position > segment.stat.size || (position == segment.stat.size && position > 0) {
        return Ok(None);
    }
    let mut tail = empty(base);
    tail.contents.size = segment.stat.size;
    tail.contents.offset_entries = offset_entries;
    tail.contents.time_entries = time_entries;
    tail.contents.last_time = last_time;
    if let Some(entry) = last_time {
        tail.contents.max = MaxTimestamp {
            timestamp: entry.timestamp,
            offset: entry.offset,
        };
    }
    let mut walk = Walk::new(
        std::sync::Arc::clone(&segment),
        position,
        SCAN_BYTES,
        Vec::new(),
    );
    let mut is_first = true;
    loop {
        match walk.step(true) {
            Ok(Step::Batch(header)) => {
                let begins = header.base_offset.unwrap_or(header.last_offset);
                if is_first && last_entry.is_some_and(|entry| begins > entry.offset) {
                    return Ok(None);
                }
                is_first = false;
                tail.next_offset = header.last_offset.saturating_add(1);
                tail.last_epoch = header.leader_epoch;
                if header.max_timestamp > tail.contents.max.timestamp {
                    tail.contents.max = MaxTimestamp {
                        timestamp: header.max_timestamp,
                        offset: header.last_offset,
                    };
                }
            }
            Ok(Step::End(_)) => break,
            Err(error) if error.is_corruption() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    // Without a time entry, the greatest timestamp before `position` is unknown.
    if time_entries == 0 && position > 0 && tail.contents.max.timestamp >= 0 {
        return Ok(None);
    }
    if last_time.is_some_and(|entry| entry.offset >= tail.next_offset) {
        return Ok(None);
    }
    if segment.stat.size > 0 {
        let mut first = Walk::new(std::sync::Arc::clone(&segment), 0, LOOKUP_BYTES, Vec::new());
        let Ok(Step::Batch(header)) = first.step(false) else {
            return Ok(None);
        };
        tail.contents.first_timestamp = Some(header.max_timestamp);
    }
    tail.contents.rebuilt_entries = rebuilt_entries(rule, &segment)?;
    Ok(Some(tail))
}

/// Returns how many offset entries a rebuild would write: an upper bound from the size if that is far below the capacity, else the count.
fn rebuilt_entries(
    rule: Rule,
    segment: &std::sync::Arc<crate::segment::OpenSegment>,
) -> Result<usize> {
    let interval = rule.index_interval.max(0) as u64;
    let (offset_room, time_room) = capacities(rule.index_bytes);
    let bound = (segment.stat.size / (interval + 1)) as usize;
    if bound < offset_room.min(time_room) / 2 {
        return Ok(bound);
    }
    let (mut entries, mut since) = (0, 0);
    hop_headers(segment, 0, &|| Ok(()), |header, _| {
        if since > interval {
            entries += 1;
            since = 0;
        }
        since += header.size_bytes as u64;
        Ok(())
    })?;
    Ok(entries)
}
