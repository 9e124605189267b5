//! Scans a segment once: checks every batch and computes its indexes, aborted transactions, leader epochs and producer state. Writes
//! nothing.

use super::parallel_crc::Ahead;
use super::producer_state::Tracked;
use crate::error::{Error, Result};
use crate::log::producers::parse_marker;
use crate::log::producers::{Batch, Checked, Origin, ProducerStates, TRANSACTION_VERSION_UNKNOWN};
use crate::segment::indexing::{Indexed, Indexing, MaxTimestamp, NewEntries, capacities};
use crate::segment::walk::{LOOKUP_BYTES, SCAN_BYTES, Step, Walk};
use crate::segment::{Directory, OpenSegment, Segment};
use offsetlog_format::index_entry::OFFSET_INDEX_ENTRY_BYTES;
use offsetlog_format::{BatchHeader, EpochEntry, LeaderEpochs};
use std::sync::Arc;

/// Number of bytes after which the caller may interrupt the scan.
const CHECK_BYTES: u64 = 4 << 20;

/// Bytes of a segment that are not batches.
#[derive(Debug)]
pub(in crate::log) struct Damage {
    pub(in crate::log) error: Error,
    /// Whether whole batches follow, which a cut would lose.
    pub(in crate::log) batches_follow: bool,
}

/// What a scan of a segment found.
#[derive(Debug)]
pub(in crate::log) struct ScannedSegment {
    /// Up to this position the segment holds whole, checked batches in order.
    pub(in crate::log) valid_bytes: u64,
    pub(in crate::log) file_bytes: u64,
    pub(in crate::log) entries: NewEntries,
    /// Number of offset entries that a rebuild wants, even if the index has no room for them.
    pub(in crate::log) rebuilt_entries: usize,
    pub(in crate::log) transactions: Vec<u8>,
    pub(in crate::log) max: MaxTimestamp,
    pub(in crate::log) first_timestamp: Option<i64>,
    /// Offset after the last batch; the base offset if there is none.
    pub(in crate::log) next_offset: i64,
    /// Leader epoch of the last batch, -1 for none.
    pub(in crate::log) last_epoch: i32,
    pub(in crate::log) damage: Option<Damage>,
    /// What is odd, such as leader epochs that decrease: kept, and reported as warnings.
    pub(in crate::log) oddities: Vec<String>,
}

/// What a scan hands on from one segment to the next.
#[derive(Debug)]
pub(in crate::log) struct ReplayState {
    pub(in crate::log) producers: Tracked,
    pub(in crate::log) epochs: LeaderEpochs,
    /// What was read last: a new buffer for each segment would cost as much as reading a short one.
    buffer: Vec<u8>,
}

impl ReplayState {
    pub(in crate::log) fn new(epochs: LeaderEpochs) -> Self {
        Self {
            producers: Tracked::new(),
            epochs,
            buffer: Vec::new(),
        }
    }
}

/// Settings that decide which index entries are written.
#[derive(Debug, Clone, Copy)]
pub(in crate::log) struct Rule {
    pub(in crate::log) index_bytes: i32,
    pub(in crate::log) index_interval: i32,
}

/// Opens a segment for a scan up to its last whole batch, even if it is the last segment.
pub(in crate::log) fn open(
    directory: &Arc<Directory>,
    base_offset: i64,
    next_base: Option<i64>,
) -> Result<Arc<OpenSegment>> {
    // This process holds the lock, so nobody can shrink the file under a mapping. A mapping saves a copy of every byte.
    let directory = if directory.ends.is_some() {
        Arc::new(directory.mapped())
    } else {
        Arc::clone(directory)
    };
    open_closed(directory, base_offset, next_base)
}

/// Opened as a closed segment: the scan decides whether bad bytes are an unfinished append.
fn open_closed(
    directory: Arc<Directory>,
    base_offset: i64,
    next_base: Option<i64>,
) -> Result<Arc<OpenSegment>> {
    let end = next_base.unwrap_or(i64::MAX);
    let segment = Segment::new(directory, base_offset, Some(end));
    Ok(segment.open()?.0)
}

/// Scans a segment from its start. Calls `check` every few MiB with the number of bytes since the last call; its error ends the scan.
pub(in crate::log) fn scan_segment(
    directory: &Arc<Directory>,
    base_offset: i64,
    next_base: Option<i64>,
    rule: Rule,
    carried: &mut ReplayState,
    check: &dyn Fn(u64) -> Result<()>,
) -> Result<ScannedSegment> {
    // Every byte is read once, into buffers that stay in the processor's cache: that costs less than the page faults of a map.
    let unmapped = Arc::new(directory.unmapped());
    let segment = open_closed(unmapped, base_offset, next_base)?;
    let mut ahead = Ahead::of(&segment);
    let buffer = std::mem::take(&mut carried.buffer);
    let mut walk = Walk::new(Arc::clone(&segment), 0, SCAN_BYTES, buffer);
    let (offset_room, time_room) = capacities(rule.index_bytes);
    let mut indexing = Indexing::new(base_offset, rule.index_interval, offset_room, time_room);
    let mut unbounded = indexing.unbounded();
    let mut discarded = NewEntries::default();
    let mut contents = ScannedSegment {
        valid_bytes: 0,
        file_bytes: segment.stat.size,
        entries: NewEntries::default(),
        rebuilt_entries: 0,
        transactions: Vec::new(),
        max: indexing.max,
        first_timestamp: None,
        next_offset: base_offset,
        last_epoch: -1,
        damage: None,
        oddities: Vec::new(),
    };
    let mut told = 0;
    loop {
        if walk.position() >= told + CHECK_BYTES {
            check(walk.position() - told)?;
            told = walk.position();
        }
        let known = ahead.known(walk.position(), check)?;
        let step = if let Some(header) = known.filter(|header| walk.step_over(header)) {
            // Only the few bytes of a marker are read here.
            walk.set_read_ahead(LOOKUP_BYTES);
            Ok(Step::Batch(header))
        } else {
            walk.set_read_ahead(SCAN_BYTES);
            walk.step(true)
        };
        let header = match step {
            Ok(Step::Batch(header)) => header,
            Ok(Step::End(_)) => break,
            Err(error) if error.is_corruption() || is_unknown_magic(&error) => {
                let batches_follow = walk.stands_on_whole_batch()? || walk.valid_batch_follows()?;
                contents.damage = Some(Damage {
                    error,
                    batches_follow,
                });
                break;
            }
            Err(error) => return Err(error),
        };
        let position = walk.batch_position();
        let indexed = Indexed {
            last_offset: header.last_offset,
            max_timestamp: header.max_timestamp,
            position,
            size_bytes: header.size_bytes as u64,
        };
        indexing.note(&indexed, &mut contents.entries)?;
        discarded.clear();
        unbounded.note(&indexed, &mut discarded)?;
        contents.rebuilt_entries += discarded.offset.len() / OFFSET_INDEX_ENTRY_BYTES;
        if position == 0 {
            contents.first_timestamp = Some(header.max_timestamp);
        }
        note_epoch(&header, carried, &mut contents.oddities);
        let producers = &mut carried.producers.states;
        note_producer(&header, &mut walk, producers, &mut contents.transactions)?;
        contents.next_offset = header.last_offset.saturating_add(1);
        contents.last_epoch = header.leader_epoch;
        contents.valid_bytes = walk.position();
        producers.set_end_offset(contents.next_offset);
    }
    check(contents.file_bytes.saturating_sub(told))?;
    indexing.note_time(&mut contents.entries.time)?;
    contents.max = indexing.max;
    carried.buffer = walk.into_buffer();
    Ok(contents)
}

fn is_unknown_magic(error: &Error) -> bool {
    matches!(error.kind(), crate::ErrorKind::UnsupportedMagic(_))
}

/// Returns the leader epochs according to the batch headers of all segments.
pub(in crate::log) fn epochs_of(directory: &Arc<Directory>, bases: &[i64]) -> Result<LeaderEpochs> {
    let mut carried = ReplayState::new(LeaderEpochs::default());
    for &base in bases {
        let segment = open(directory, base, None)?;
        let mut walk = Walk::new(segment, 0, SCAN_BYTES, Vec::new()).headers_only();
        loop {
            match walk.step(false) {
                Ok(Step::Batch(header)) => note_epoch(&header, &mut carried, &mut Vec::new()),
                Ok(Step::End(_)) => break,
                Err(error) if error.is_corruption() => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(carried.epochs)
}

/// Leader epoch of the first batch of the newest segment that begins with one that can be read, -1 for none; `None` without such a segment.
pub(in crate::log) fn newest_segment_epoch(
    directory: &Arc<Directory>,
    bases: &[i64],
) -> Result<Option<i32>> {
    for &base in bases.iter().rev() {
        let segment = open(directory, base, None)?;
        match Walk::new(segment, 0, LOOKUP_BYTES, Vec::new()).step(false) {
            Ok(Step::Batch(header)) if header.magic < 2 => return Ok(Some(-1)),
            Ok(Step::Batch(header)) => return Ok(Some(header.leader_epoch)),
            Ok(Step::End(_)) => {}
            Err(error) if error.is_corruption() || is_unknown_magic(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Adds an epoch only if it is above the latest one, as a broker's recovery does.
fn note_epoch(header: &BatchHeader, carried: &mut ReplayState, oddities: &mut Vec<String>) {
    if header.magic < 2 || header.leader_epoch < 0 {
        return;
    }
    let base_offset = header.base_offset.unwrap_or(header.last_offset);
    let latest = carried.epochs.latest();
    if latest.is_none_or(|latest| latest.epoch < header.leader_epoch) {
        carried.epochs.assign(EpochEntry {
            epoch: header.leader_epoch,
            start_offset: base_offset,
        });
    } else if let Some(latest) = latest
        && latest.epoch > header.leader_epoch
        && latest.start_offset <= base_offset
        && oddities.len() < 100
    {
        oddities.push(format!(
            "leader epoch {} of the batch at offset {base_offset} is below {}, which began at {}",
            header.leader_epoch, latest.epoch, latest.start_offset
        ));
    }
}

/// Applies a producer's batch under the rules for replicas, and collects the transactions that its marker aborts.
fn note_producer(
    header: &BatchHeader,
    walk: &mut Walk,
    producers: &mut ProducerStates,
    transactions: &mut Vec<u8>,
) -> Result<()> {
    let Some(batch) = producer_batch(header, walk)? else {
        return Ok(());
    };
    let checked = producers
        .check([&batch], Origin::Recovery, TRANSACTION_VERSION_UNKNOWN)
        .map_err(|error| walk.place(error))?;
    if let Checked::Update(changes) = checked {
        for aborted in producers.apply(&changes) {
            aborted.write(transactions);
        }
    }
    Ok(())
}

/// Returns the batch at the position of `walk`, if it has a producer.
pub(in crate::log) fn producer_batch(
    header: &BatchHeader,
    walk: &mut Walk,
) -> Result<Option<Batch>> {
    if header.producer_id < 0 {
        return Ok(None);
    }
    let marker = if header.attributes.is_control() {
        parse_marker(walk.batch()?, header).map_err(|error| walk.place(error))?
    } else {
        None
    };
    Ok(Batch::new(header, marker))
}
