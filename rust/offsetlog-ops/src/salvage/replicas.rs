//! What other replicas of a partition have where the best one has a hole: the very batches, or those of another history.
//!
//! Followers copy a leader's batches byte for byte. Two logs that have the same batch have the same ones before it, and a leader epoch
//! has one batch at an offset. So the same batch behind a hole, or the leader epoch that the log had there, shows that a replica's
//! batches are those that the log had. Compaction changes each replica at its own time: there both neighbours of the hole must be the
//! same, and the size of what is between them.

use super::everything;
use super::set_aside::Entry;
use crate::replicas::{latest_epoch, told};
use offsetlog::disk::{IoCall, read_whole};
use offsetlog::format::name::LEADER_EPOCH_CHECKPOINT;
use offsetlog::format::{BatchHeader, LeaderEpochs};
use offsetlog::{
    Error, ErrorKind, Hole, Log, OpenOptions, Result, Scan, ScanOptions, is_internal_topic,
};

/// Greatest number of bytes of a `leader-epoch-checkpoint` that are read.
const EPOCHS_BYTES_MAX: u64 = 16 << 20;

const DIFFERS: &str = "this replica differs from the one that is taken, in the batches around them";
const DIFFERS_HERE: &str =
    "this replica differs in them from another one, from which holes are filled";
const OTHER_EPOCH: &str =
    "they are of a leader epoch that the replica that is taken does not have at these offsets";
const UNPROVEN: &str = "the leader epochs of the replica that is taken do not reach there, and this replica does not have the batch behind them: they may be of a leader that was deposed";
const COMPACTED: &str = "the log is compacted, and this replica does not have the same batches before and behind them, or not as many bytes in between: compaction may have removed or replaced them";
const UNKNOWN: &str = "nothing says whether the topic is compacted, which may have removed them from the replica that is taken: give its whole log dir";

/// The batches of the log before and after a hole.
#[derive(Clone, Copy)]
pub(super) struct Around {
    pub(super) before: Option<BatchHeader>,
    pub(super) after: Option<BatchHeader>,
    /// Bytes between them that cannot be read.
    pub(super) bytes: u64,
    /// Whether the log shows that it was compacted: offsets are left out before the hole.
    pub(super) has_gaps: bool,
    /// Whether nothing says that the log ever had what it lacks here.
    pub(super) is_unknown: bool,
}

/// The batches of a replica in a hole.
pub(super) struct Candidate {
    pub(super) log: Log,
    pub(super) entries: Vec<Entry>,
    /// Why they may not be taken.
    pub(super) differs: Option<&'static str>,
    /// What cannot be read there.
    pub(super) unreadable: Vec<Hole>,
    /// Why nothing is known of it.
    pub(super) failed: Option<Error>,
}

/// The other replicas of a log.
pub(super) struct Replicas<'s> {
    all: &'s [Log],
    /// Which leader wrote which offsets, by the log's `leader-epoch-checkpoint`. What `Log::leader_epochs` adds to it is read of batches
    /// and says nothing about those that cannot be read.
    history: LeaderEpochs,
    /// Whether the history has the leader epoch of the last batch of the log.
    is_whole: bool,
    is_compacted: bool,
}

/// What a replica has at the place of a batch of the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Neighbour {
    /// The log has none there.
    None,
    Absent,
    Same,
    /// Another batch, of the same leader epoch or not.
    Other {
        is_of_its_epoch: bool,
    },
}

impl<'s> Replicas<'s> {
    /// `is_compacted` says what the topic's settings are, where they are known.
    pub(super) fn of(
        log: &Log,
        all: &'s [Log],
        options: &OpenOptions,
        is_compacted: bool,
    ) -> Result<Self> {
        let mut replicas = Self {
            all,
            history: LeaderEpochs::default(),
            is_whole: false,
            is_compacted,
        };
        replicas.is_compacted |= is_internal_topic(log.topic());
        for log in [log].into_iter().chain(all) {
            replicas.is_compacted |= may_be_compacted(log)?;
        }
        if all.is_empty() {
            return Ok(replicas);
        }
        if let Some(history) = history(log, options)? {
            let known = history.latest().map(|entry| entry.epoch);
            replicas.is_whole = match latest_epoch(log) {
                Err(error) if error.is_of_process() => return Err(error),
                latest => latest.is_ok_and(|latest| latest == known),
            };
            replicas.history = history;
        }
        Ok(replicas)
    }

    /// Whether the topic is compacted, or one of the logs is.
    pub(super) fn is_compacted(&self) -> bool {
        self.is_compacted
    }

    /// What each of them has in a hole, of those that have anything, or fail.
    pub(super) fn candidates(&self, hole: (i64, i64), around: Around) -> Result<Vec<Candidate>> {
        let mut found: Vec<Candidate> = Vec::new();
        // Of those that may be taken, by offset.
        let mut sound: Vec<Entry> = Vec::new();
        for log in self.all {
            match self.of_one(log, hole, around) {
                Err(error) if error.is_of_process() => return Err(error),
                Err(error) => found.push(Candidate {
                    failed: Some(error),
                    ..empty(log)
                }),
                Ok(candidates) => {
                    for mut each in candidates {
                        if each.differs.is_none() {
                            if each.entries.iter().any(|entry| is_against(*entry, &sound)) {
                                each.differs = Some(DIFFERS_HERE);
                            } else {
                                sound.extend(&each.entries);
                                sound.sort_by_key(|entry| entry.first);
                                sound.dedup_by(|one, other| one.is_same(*other));
                            }
                        }
                        found.push(each);
                    }
                }
            }
        }
        Ok(found)
    }

    /// What one of them has in a hole: those batches together that may be taken, or may not for the same reason.
    fn of_one(&self, log: &Log, hole: (i64, i64), around: Around) -> Result<Vec<Candidate>> {
        let mut scan = scan(log, hole)?;
        let entries = Entry::of_scan(&mut scan)?;
        let unreadable = scan.report().holes();
        let mut found = Vec::new();
        if !unreadable.is_empty() {
            found.push(Candidate {
                unreadable,
                ..empty(log)
            });
        }
        if entries.is_empty() {
            return Ok(found);
        }
        let before = neighbour(log, around.before)?;
        let behind = neighbour(log, around.after)?;
        // Behind it that may be of another leader: then both are of one history up to there.
        let is_other = matches!(before, Neighbour::Other { .. })
            || behind
                == Neighbour::Other {
                    is_of_its_epoch: true,
                };
        let bytes = entries.iter().map(|entry| entry.size_bytes).sum::<u64>();
        let is_between = [before, behind]
            .iter()
            .all(|each| matches!(each, Neighbour::None | Neighbour::Same));
        let may_be_compacted =
            self.is_compacted || around.has_gaps || entries.iter().any(|entry| entry.is_sparse);
        for entry in entries {
            let epoch = self.epoch_at(entry.first, around);
            let differs = if entry.epoch >= 0 && epoch.is_some_and(|epoch| epoch != entry.epoch) {
                Some(OTHER_EPOCH)
            } else if is_other {
                Some(DIFFERS)
            } else if around.is_unknown {
                Some(UNKNOWN)
            } else if may_be_compacted && !(is_between && bytes == around.bytes) {
                Some(COMPACTED)
            } else if behind != Neighbour::Same && epoch != Some(entry.epoch) {
                Some(UNPROVEN)
            } else {
                None
            };
            let same = found
                .iter_mut()
                .find(|each| !each.entries.is_empty() && each.differs == differs);
            match same {
                Some(same) => same.entries.push(entry),
                None => found.push(Candidate {
                    entries: vec![entry],
                    differs,
                    ..empty(log)
                }),
            }
        }
        Ok(found)
    }

    /// The leader epoch that the log had at an offset of a hole, if that is sure: a file may be old, or of another log.
    fn epoch_at(&self, offset: i64, around: Around) -> Option<i32> {
        // Old messages have no epoch.
        let before = around.before.filter(|batch| batch.leader_epoch >= 0);
        let after = around.after.filter(|batch| batch.leader_epoch >= 0);
        let has =
            |batch: BatchHeader, offset| self.history.epoch_of(offset) == Some(batch.leader_epoch);
        let reaches = match around.after {
            Some(_) => after.is_some_and(|batch| has(batch, first_of(&batch))),
            None => self.is_whole,
        };
        if reaches && before.is_none_or(|batch| has(batch, batch.last_offset)) {
            return self.history.epoch_of(offset);
        }
        // Epochs never fall.
        let before = before?.leader_epoch;
        after
            .is_some_and(|after| after.leader_epoch == before)
            .then_some(before)
    }
}

fn empty(log: &Log) -> Candidate {
    Candidate {
        log: log.clone(),
        entries: Vec::new(),
        differs: None,
        unreadable: Vec::new(),
        failed: None,
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

/// Whether a log is compacted, or was: by what is stored with it, and by the cleaner. Where neither can be read it may be.
fn may_be_compacted(log: &Log) -> Result<bool> {
    let is_set = log
        .stored_config()
        .map(|config| config.is_some_and(|config| config.is_compacted()));
    let is_cleaned = log.cleaner_offset().map(|offset| offset.is_some());
    for each in [is_set, is_cleaned] {
        match each {
            Err(error) if error.is_of_process() => return Err(error),
            Ok(false) => {}
            _ => return Ok(true),
        }
    }
    Ok(false)
}

/// The epochs of a log, where its file can be read.
///
/// # Errors
/// Where the process cannot read any.
pub(crate) fn history(log: &Log, options: &OpenOptions) -> Result<Option<LeaderEpochs>> {
    let path = log.path().join(LEADER_EPOCH_CHECKPOINT);
    let bytes = read_whole(options.disk.as_ref(), &path, EPOCHS_BYTES_MAX);
    let bytes = told(bytes.map_err(|error| Error::io(IoCall::Read, &path, error)))?.ok();
    Ok(bytes.and_then(|bytes| LeaderEpochs::parse(&bytes).ok()))
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

/// What a replica has at the place of a batch of the log.
fn neighbour(log: &Log, batch: Option<BatchHeader>) -> Result<Neighbour> {
    let Some(batch) = batch else {
        return Ok(Neighbour::None);
    };
    let mut scan = scan(log, (first_of(&batch), batch.last_offset.saturating_add(1)))?;
    let mut neighbour = Neighbour::Absent;
    while let Some(found) = scan.next_batch()? {
        let found = found.header();
        let is_same = (found.base_offset, found.last_offset, found.crc)
            == (batch.base_offset, batch.last_offset, batch.crc);
        if !is_same {
            let is_of_its_epoch = found.leader_epoch == batch.leader_epoch;
            return Ok(Neighbour::Other { is_of_its_epoch });
        }
        neighbour = Neighbour::Same;
    }
    Ok(neighbour)
}

fn first_of(batch: &BatchHeader) -> i64 {
    batch.base_offset.unwrap_or(batch.last_offset)
}
