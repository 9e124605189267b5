//! What other replicas of a partition have where the best one has a hole: the very batches, or those of another history.
//!
//! Followers copy a leader's batches byte for byte, so replicas of one history have the same batch at an offset. Where two of them
//! have another one, one of them would have been truncated: nothing is taken from the one, where the other is taken.

use super::everything;
use super::set_aside::Entry;
use offsetlog::disk::read_whole;
use offsetlog::format::name::LEADER_EPOCH_CHECKPOINT;
use offsetlog::format::{BatchHeader, LeaderEpochs};
use offsetlog::{ErrorKind, Hole, Log, OpenOptions, Result, Scan, ScanOptions};

/// Greatest number of bytes of a `leader-epoch-checkpoint` that are read.
const EPOCHS_BYTES_MAX: u64 = 16 << 20;

const DIFFERS: &str = "this replica differs from the one that is taken, in the batches around them";
const DIFFERS_HERE: &str =
    "this replica differs in them from another one, from which holes are filled";
const OTHER_EPOCH: &str =
    "they are of a leader epoch that the replica that is taken does not have at these offsets";

/// The batches of the log before and after a hole.
#[derive(Clone, Copy)]
pub(super) struct Around {
    pub(super) before: Option<BatchHeader>,
    pub(super) after: Option<BatchHeader>,
}

/// The batches of a replica in a hole.
pub(super) struct Candidate {
    pub(super) log: Log,
    pub(super) entries: Vec<Entry>,
    /// Why they may not be taken.
    pub(super) differs: Option<&'static str>,
    /// What cannot be read there.
    pub(super) unreadable: Vec<Hole>,
}

/// The other replicas of a log.
pub(super) struct Replicas<'s> {
    all: &'s [Log],
    /// Which leader wrote which offsets, by the log's `leader-epoch-checkpoint`.
    history: LeaderEpochs,
}

impl<'s> Replicas<'s> {
    pub(super) fn of(log: &Log, all: &'s [Log], options: &OpenOptions) -> Self {
        let history = if all.is_empty() {
            None
        } else {
            history(log, options)
        };
        Self {
            all,
            history: history.unwrap_or_default(),
        }
    }

    /// What each of them has in a hole, of those that have anything.
    pub(super) fn candidates(&self, hole: (i64, i64), around: Around) -> Result<Vec<Candidate>> {
        let mut found: Vec<Candidate> = Vec::new();
        // Of those that may be taken, by offset.
        let mut sound: Vec<Entry> = Vec::new();
        for log in self.all {
            let (entries, unreadable) = batches(log, hole)?;
            if entries.is_empty() && unreadable.is_empty() {
                continue;
            }
            let (entries, others): (Vec<Entry>, Vec<Entry>) = entries
                .into_iter()
                .partition(|entry| !self.is_of_another_leader(*entry));
            let mut differs = None;
            if !entries.is_empty() && has_another(log, around)? {
                differs = Some(DIFFERS);
            } else if entries.iter().any(|entry| is_against(*entry, &sound)) {
                differs = Some(DIFFERS_HERE);
            } else {
                sound.extend(&entries);
                sound.sort_by_key(|entry| entry.first);
                sound.dedup_by(|one, other| one.is_same(*other));
            }
            found.push(Candidate {
                log: log.clone(),
                entries,
                differs,
                unreadable,
            });
            if !others.is_empty() {
                found.push(Candidate {
                    log: log.clone(),
                    entries: others,
                    differs: Some(OTHER_EPOCH),
                    unreadable: Vec::new(),
                });
            }
        }
        Ok(found)
    }

    fn is_of_another_leader(&self, entry: Entry) -> bool {
        // Old messages have no epoch.
        entry.epoch >= 0
            && self
                .history
                .epoch_of(entry.first)
                .is_some_and(|epoch| epoch != entry.epoch)
    }
}

/// Whether another batch is known for offsets of this one. `sound` has no two batches that overlap.
fn is_against(entry: Entry, sound: &[Entry]) -> bool {
    let first = sound.partition_point(|each| each.last < entry.first);
    let rest = sound.get(first..).unwrap_or_default();
    rest.iter()
        .take_while(|each| each.overlaps(entry))
        .any(|each| !each.is_same(entry))
}

/// The epochs of a log, where its file can be read.
pub(crate) fn history(log: &Log, options: &OpenOptions) -> Option<LeaderEpochs> {
    let path = log.path().join(LEADER_EPOCH_CHECKPOINT);
    let bytes = read_whole(options.disk.as_ref(), &path, EPOCHS_BYTES_MAX).ok()?;
    LeaderEpochs::parse(&bytes).ok()
}

/// A scan of the batches of a replica in a hole.
pub(super) fn scan(log: &Log, (start, stop): (i64, i64)) -> Result<Scan> {
    let first = log.log_start_offset()?;
    let options = |start: i64| ScanOptions {
        start: Some(start),
        stop: Some(stop.max(start)),
        ..everything()
    };
    match log.scan(&options(start.max(first))) {
        // It ends before the hole.
        Err(error) if matches!(error.kind(), ErrorKind::OffsetOutOfRange { .. }) => {
            log.scan(&ScanOptions {
                stop: Some(first),
                ..options(first)
            })
        }
        scan => scan,
    }
}

/// The batches of a replica in a hole, and what cannot be read there.
fn batches(log: &Log, (start, stop): (i64, i64)) -> Result<(Vec<Entry>, Vec<Hole>)> {
    let mut scan = scan(log, (start, stop))?;
    let entries = Entry::of_scan(&mut scan)?;
    Ok((entries, scan.report().holes()))
}

/// Whether a replica has, next to a hole, another batch than the log. Behind it that may be of another leader: then both are of one
/// history up to there, as each batch of the hole shows by its epoch.
fn has_another(log: &Log, around: Around) -> Result<bool> {
    let before = around.before.map(|batch| (batch, true));
    let after = around.after.map(|batch| (batch, false));
    for (batch, is_before) in before.into_iter().chain(after) {
        let first = batch.base_offset.unwrap_or(batch.last_offset);
        let mut scan = scan(log, (first, batch.last_offset.saturating_add(1)))?;
        while let Some(found) = scan.next_batch()? {
            let found = found.header();
            let is_same = (found.base_offset, found.last_offset, found.crc)
                == (batch.base_offset, batch.last_offset, batch.crc);
            if !is_same && (is_before || found.leader_epoch == batch.leader_epoch) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
