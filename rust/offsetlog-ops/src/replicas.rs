//! Chooses among the directories of one partition, of several log dirs or brokers, the one that has most of it.

use crate::salvage::{everything, history};
use offsetlog::format::Uuid;
use offsetlog::{Error, Log, OpenOptions, Result, ScanOptions};
use std::path::{Path, PathBuf};

/// A directory of a partition, and how much of the partition it has.
#[derive(Debug)]
pub struct Replica {
    /// The directory.
    pub path: PathBuf,
    /// Its log.
    pub log: Log,
    /// The greatest leader epoch of the log; -1 if it has none.
    pub leader_epoch: i32,
    /// The log end offset; behind the last batch that can be read, if damage hides it.
    pub end: i64,
    /// Whether damage hides where the log ends.
    pub end_is_hidden: bool,
    /// Asked at once: nothing fails after the choice.
    extent: Extent,
}

/// How much of the partition a directory has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The greatest leader epoch.
    pub(crate) leader_epoch: i32,
    /// The log end offset.
    pub(crate) end: i64,
    /// The log start offset; `None` if damage hides it.
    begin: Option<i64>,
    /// [`Log::lacks_before`].
    lacks_before: i64,
    topic_id: Option<Uuid>,
}

/// Of several directories of a partition the one that has most.
#[derive(Debug)]
pub struct ChosenReplica {
    /// That one.
    pub best: Replica,
    /// The others, with what they have less, and what they have before it.
    pub others: Vec<(PathBuf, String)>,
    /// Their logs, in the same order.
    pub other_logs: Vec<Log>,
}

/// A replica that cannot be opened: what it has is not known.
#[derive(Debug)]
pub struct UnopenedReplica {
    /// Its directory.
    pub path: PathBuf,
    /// Why.
    pub error: Error,
}

/// Chooses among the directories of one partition: by the greatest leader epoch, then the greatest log end offset, then whether that can be
/// read, then the fewest offsets missing between segments, then the earliest first segment (a log start offset inside of it tells
/// that records were deleted: nothing is missing before it then), then the order given. Returns also the errors of directories that cannot
/// be opened; `None` if none can. Does not check the records, except in the last segment with any, if damage hides the end or the leader
/// epoch.
///
/// # Errors
/// `Interrupted`; `Io` where the process has as many open files as it may, which says nothing of a replica.
pub fn choose_replica<P: AsRef<Path>>(
    paths: &[P],
    options: &OpenOptions,
) -> Result<(Option<ChosenReplica>, Vec<UnopenedReplica>)> {
    let (mut all, mut failures) = (Vec::new(), Vec::new());
    for path in paths {
        match Replica::open(path.as_ref(), options) {
            Ok(replica) => all.push(replica),
            Err(error) if error.is_of_process() => return Err(error),
            Err(error) => failures.push(UnopenedReplica {
                path: path.as_ref().to_path_buf(),
                error,
            }),
        }
    }
    all.sort_by_key(|replica| replica.end_is_hidden);
    // Of equals the first.
    all.sort_by_key(|replica| std::cmp::Reverse((replica.leader_epoch, replica.end)));
    // What is before the beginning of the chosen one is not restored.
    let rank = |replica: &Replica| (replica.leader_epoch, replica.end, replica.end_is_hidden);
    Log::put_most_whole_first(&mut all, rank, |replica| &replica.log)?;
    let mut all = all.into_iter();
    let Some(best) = all.next() else {
        return Ok((None, failures));
    };
    let (mut others, mut other_logs) = (Vec::new(), Vec::new());
    for other in all {
        others.push((other.path.clone(), other.extent().less(best.extent())));
        other_logs.push(other.log);
    }
    let chosen = ChosenReplica {
        best,
        others,
        other_logs,
    };
    Ok((Some(chosen), failures))
}

impl Extent {
    /// What a log has now, and whether damage hides its end.
    pub(crate) fn of(log: &Log, options: &OpenOptions) -> Result<(Self, bool)> {
        let extent = readable(log.extent())?;
        let begin = extent.map(|extent| extent.log_start_offset);
        let end = extent.filter(|extent| !extent.is_damaged);
        let end = end.map(|extent| extent.log_end_offset);
        let known = readable(latest_epoch(log))?;
        let (leader_epoch, end_at) = if let Some((leader_epoch, end)) = known.zip(end) {
            (leader_epoch.unwrap_or(-1), end)
        } else {
            let (leader_epoch, readable) = readable_end(log, options)?;
            (leader_epoch, end.unwrap_or(readable))
        };
        let found = Self {
            leader_epoch,
            end: end_at,
            begin,
            lacks_before: log.lacks_before()?,
            topic_id: readable(log.topic_id())?.flatten(),
        };
        Ok((found, end.is_none()))
    }

    /// What tells that a log has other records, or less of them, than when it had `before`; `None` if it has only grown, or records were
    /// deleted at its beginning.
    pub(crate) fn change_since(self, before: Self) -> Option<String> {
        if self.topic_id != before.topic_id && before.topic_id.is_some() {
            let id = self.topic_id.map_or("none".to_owned(), |id| id.to_string());
            return Some(format!("has another topic id now, {id}"));
        }
        if self.leader_epoch != before.leader_epoch {
            return Some(format!(
                "is of leader epoch {} now, and was of {}",
                self.leader_epoch, before.leader_epoch
            ));
        }
        if self.end < before.end {
            return Some(format!(
                "ends at offset {} now, and ended at {}",
                self.end, before.end
            ));
        }
        (self.lacks_before > before.lacks_before)
            .then(|| format!("lacks records before offset {} now", self.lacks_before))
    }

    /// Whether it begins earlier than another one of which nothing says why it does not.
    pub(crate) const fn begins_before(self, other: Self) -> bool {
        self.lacks_before < other.lacks_before
    }

    /// What it lacks compared with another one.
    pub(crate) fn less(self, best: Self) -> String {
        let less = if self.leader_epoch < best.leader_epoch {
            format!(
                "ends at offset {} in leader epoch {}, before {}",
                self.end, self.leader_epoch, best.leader_epoch
            )
        } else if self.end < best.end {
            format!("ends at offset {}", self.end)
        } else {
            "has as much".to_owned()
        };
        // Retention may have removed them here and not there yet; or a file is lost.
        match self.begin.zip(best.begin) {
            Some((first, own)) if first < own => {
                format!("{less}, and begins at offset {first}, before {own}")
            }
            _ => less,
        }
    }
}

impl Replica {
    pub(crate) const fn extent(&self) -> Extent {
        self.extent
    }

    fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        let log = Log::open(path, options)?;
        let (extent, end_is_hidden) = Extent::of(&log, options)?;
        Ok(Self {
            path: path.to_path_buf(),
            leader_epoch: extent.leader_epoch,
            end: extent.end,
            end_is_hidden,
            extent,
            log,
        })
    }
}

/// The greatest leader epoch of a log; `None` if it has none. Behind an empty active segment the batches of the one before have it, where
/// `leader-epoch-checkpoint` does not.
pub(crate) fn latest_epoch(log: &Log) -> Result<Option<i32>> {
    let mut latest = log.leader_epoch()?;
    let segments = log.segments()?;
    let older = match segments.split_last() {
        Some((active, older)) if active.size_bytes == 0 && !older.is_empty() => older,
        _ => return Ok(latest),
    };
    let (begin, end) = (log.log_start_offset()?, log.log_end_offset()?);
    for segment in older.iter().rev() {
        let first = segment.base_offset.max(begin);
        if first >= end {
            continue;
        }
        let mut has_batches = false;
        for batch in log.batches(Some(first), None)? {
            let epoch = batch?.leader_epoch;
            latest = latest.max(Some(epoch).filter(|epoch| *epoch >= 0));
            has_batches = true;
        }
        if has_batches {
            break;
        }
    }
    Ok(latest)
}

/// The greatest leader epoch of a log of which damage hides that or the end, and the end of what can be read.
fn readable_end(log: &Log, options: &OpenOptions) -> Result<(i32, i64)> {
    let written = history(log, options)?.and_then(|history| history.latest());
    let mut leader_epoch = written.map_or(-1, |entry| entry.epoch);
    let begin = log.log_start_offset()?;
    for segment in log.segments()?.iter().rev() {
        let mut end = None;
        let mut scan = log.scan(&ScanOptions {
            start: Some(segment.base_offset.max(begin)),
            ..everything()
        })?;
        while let Some(batch) = scan.next_batch()? {
            let header = batch.header();
            leader_epoch = leader_epoch.max(header.leader_epoch);
            end = Some(header.last_offset.saturating_add(1));
        }
        if let Some(end) = end {
            return Ok((leader_epoch, end));
        }
    }
    Ok((leader_epoch, begin))
}

/// What was read, or why it could not be; an error that says nothing of the file ends the work.
pub(crate) fn told<T>(read: Result<T>) -> Result<Result<T>> {
    match read {
        Err(error) if error.is_of_process() => Err(error),
        read => Ok(read),
    }
}

/// `None` if damage hides the value.
pub(crate) fn readable<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.is_corruption() => Ok(None),
        read => read.map(Some),
    }
}
