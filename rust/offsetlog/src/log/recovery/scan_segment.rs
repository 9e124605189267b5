//! One pass over a segment that checks every batch and works out all that is kept beside it: both indexes, aborted transactions,
//! leader epochs, producers. Nothing is written here.

use super::parallel_crc::Ahead;
use super::producer_state::Tracked;
use crate::error::{Error, Result};
use crate::log::producers::parse_marker;
use crate::log::producers::{Batch, Checked, Origin, ProducerStates, TRANSACTION_VERSION_UNKNOWN};
use crate::segment::indexing::{Indexed, Indexing, MaxTimestamp, NewEntries, capacities};
use crate::segment::walk::{SCAN_BYTES, Step, Walk};
use crate::segment::{Directory, OpenSegment, Segment};
use offsetlog_format::index_entry::OFFSET_INDEX_ENTRY_BYTES;
use offsetlog_format::{BatchHeader, EpochEntry, LeaderEpochs};
use std::sync::Arc;

/// After how many bytes the caller is asked whether to go on.
const CHECK_BYTES: u64 = 4 << 20;

/// Bytes of a segment that no batch explains.
#[derive(Debug)]
pub(in crate::log) struct Damage {
    pub(in crate::log) error: Error,
    /// Whole batches stand behind them, which cutting would lose.
    pub(in crate::log) batches_follow: bool,
}

/// What a segment holds.
#[derive(Debug)]
pub(in crate::log) struct Contents {
    /// Up to here whole, checked batches in order.
    pub(in crate::log) valid_bytes: u64,
    pub(in crate::log) file_bytes: u64,
    pub(in crate::log) entries: NewEntries,
    /// Offset entries that the rule asks for, also where the index has no room for them.
    pub(in crate::log) rebuilt_entries: usize,
    pub(in crate::log) transactions: Vec<u8>,
    pub(in crate::log) max: MaxTimestamp,
    pub(in crate::log) first_timestamp: Option<i64>,
    /// Offset behind the last batch; the base offset where there is none.
    pub(in crate::log) next_offset: i64,
    /// Leader epoch of the last batch, -1 for none.
    pub(in crate::log) last_epoch: i32,
    pub(in crate::log) damage: Option<Damage>,
    /// Epochs that go down, gaps and the like: kept, and told.
    pub(in crate::log) oddities: Vec<String>,
}

/// What the segments before leave to this one, and this one to the next.
#[derive(Debug, Clone)]
pub(in crate::log) struct Carried {
    pub(in crate::log) producers: Tracked,
    pub(in crate::log) epochs: LeaderEpochs,
}

impl Carried {
    pub(in crate::log) fn new(epochs: LeaderEpochs) -> Self {
        Self {
            producers: Tracked::new(),
            epochs,
        }
    }
}

/// Settings that decide where index entries stand.
#[derive(Debug, Clone, Copy)]
pub(in crate::log) struct Rule {
    pub(in crate::log) index_bytes: i32,
    pub(in crate::log) index_interval: i32,
}

/// Opens a segment to be walked to its last whole batch, whatever its place in the log.
pub(in crate::log) fn open(
    directory: &Arc<Directory>,
    base_offset: i64,
    next_base: Option<i64>,
) -> Result<Arc<OpenSegment>> {
    // As one that is closed: whether bad bytes are an unfinished end is decided here.
    let end = next_base.unwrap_or(i64::MAX);
    // Whose lock this process holds, nobody can shrink under a mapping; and a mapping saves a copy of every byte.
    let directory = if directory.ends.is_some() {
        Arc::new(directory.mapped())
    } else {
        Arc::clone(directory)
    };
    let segment = Segment::new(directory, base_offset, Some(end));
    Ok(segment.open()?.0)
}

/// Walks a segment from its start. `check` is told every few MiB how far it came since the last time, and may end the work.
pub(in crate::log) fn survey(
    directory: &Arc<Directory>,
    base_offset: i64,
    next_base: Option<i64>,
    rule: Rule,
    carried: &mut Carried,
    check: &dyn Fn(u64) -> Result<()>,
) -> Result<Contents> {
    let segment = open(directory, base_offset, next_base)?;
    let mut ahead = Ahead::of(&segment);
    let mut walk = Walk::new(Arc::clone(&segment), 0, SCAN_BYTES, Vec::new());
    let (offset_room, time_room) = capacities(rule.index_bytes);
    let mut indexing = Indexing::new(base_offset, rule.index_interval, offset_room, time_room);
    let mut unbounded = indexing.unbounded();
    let mut discarded = NewEntries::default();
    let mut contents = Contents {
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
        let is_checked = ahead.has_checked(walk.position());
        let header = match walk.step(!is_checked) {
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
    Ok(contents)
}

fn is_unknown_magic(error: &Error) -> bool {
    matches!(error.kind(), crate::ErrorKind::UnsupportedMagic(_))
}

/// The leader epochs as the batch headers of all segments say.
pub(in crate::log) fn epochs_of(directory: &Arc<Directory>, bases: &[i64]) -> Result<LeaderEpochs> {
    let mut carried = Carried::new(LeaderEpochs::default());
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

/// As in a broker's recovery only epochs above the newest count.
fn note_epoch(header: &BatchHeader, carried: &mut Carried, oddities: &mut Vec<String>) {
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

/// Follows a producer's batch under the rules for replicas, and collects the transactions that it aborts.
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

/// The batch at which `walk` stands, if it has a producer.
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
