//! Chooses the replica of a partition to restore: the best one, or the next best if that fails while it is read.

use super::RestoreOptions;
use crate::places::is_there;
use crate::replicas::{ChosenReplica, Extent, UnopenedReplica, choose_replica, readable};
use crate::retention::LogAge;
use crate::salvage::everything;
use offsetlog::disk::IoCall;
use offsetlog::{
    Error, ErrorKind, Isolation, Log, OpenOptions, Result, ScanOptions, TopicPartition,
};
use std::io;
use std::path::PathBuf;

/// The replica of a partition that is restored.
#[derive(Clone)]
pub(crate) struct SourcePartition {
    pub(crate) log: Log,
    /// Its directory.
    pub(crate) path: PathBuf,
    /// The other replicas, with what they have less.
    pub(crate) others: Vec<(PathBuf, String)>,
    /// The same, in the same order.
    pub(crate) other_logs: Vec<Log>,
    /// Those of them that were better, and failed.
    pub(crate) failed: Vec<FailedReplica>,
    /// Others that cannot be opened, and why: they may have more.
    pub(crate) unopened: Vec<(PathBuf, String)>,
    pub(crate) log_start_offset: i64,
    /// The first offset that may have a record here: that, or where the first segment begins.
    pub(crate) first_offset: i64,
    /// Whether the log begins before its first segment: by the log dir's checkpoint, or as a tiered topic may.
    pub(crate) begins_before: bool,
    /// What the replica has.
    pub(crate) extent: Extent,
    /// Offset, exclusive, up to which it is restored.
    pub(crate) stop: i64,
    /// Whether that is before the end of the log.
    pub(crate) is_cut: bool,
    /// The end that is asked for, which may be behind that of the log. Records that were cut off the log come back up to there.
    pub(crate) wanted: Option<i64>,
    /// The time that is asked for. What fills holes may have an earlier record of it than this replica.
    pub(crate) until: Option<i64>,
    /// The greatest leader epoch of the log.
    pub(crate) leader_epoch: i32,
    /// Its segments up to there: their bytes, at most, and how old they are.
    pub(crate) age: LogAge,
}

impl SourcePartition {
    /// Closes the files of all replicas. Whoever reads one later opens them again.
    pub(super) fn close_files(&self) {
        let failed = self.failed.iter().map(|failed| &failed.log);
        let logs = self.other_logs.iter().chain(failed);
        logs.for_each(Log::close_files);
        self.log.close_files();
    }

    /// Whether records before the first segment are not here, one that failed had more of what is to be restored, or one that cannot be
    /// opened may have.
    pub(crate) fn falls_short(&self) -> bool {
        let own = if self.is_cut { self.stop } else { i64::MAX };
        let is_more = |failed: &FailedReplica| {
            let stop = failed.stop.min(own);
            failed.extent.leader_epoch > self.extent.leader_epoch
                || failed.extent.end.min(stop) > self.extent.end.min(stop)
                || failed.extent.begins_before(self.extent)
        };
        self.begins_before || !self.unopened.is_empty() || self.failed.iter().any(is_more)
    }
}

/// A replica that was the best one, and failed while it was read.
#[derive(Debug, Clone)]
pub(crate) struct FailedReplica {
    pub(crate) log: Log,
    pub(crate) path: PathBuf,
    pub(crate) extent: Extent,
    /// Up to where it was to be restored.
    pub(crate) stop: i64,
    /// How it failed.
    pub(crate) reason: String,
}

impl FailedReplica {
    /// What is reported of it beside the replica that is taken.
    fn told(&self) -> String {
        format!("failed while it was read: {}", self.reason)
    }
}

/// The files that each replica of the partition at work may hold open: of many segments more are not faster, and of several replicas
/// together they are more than a process may have.
const OPEN_FILES_MAX: usize = 32;

/// With so few files.
pub(super) fn with_few_files(options: &OpenOptions) -> OpenOptions {
    let mut few = options.clone();
    few.limits.max_open_files = few.limits.max_open_files.min(OPEN_FILES_MAX);
    few
}

/// Chooses among the directories of a partition. `failed` ones are not among them: they fill holes, as far as they can be read.
/// `None` if there are none.
///
/// # Errors
/// Why the best one cannot be restored, or no one, with its directory.
pub(super) fn choose(
    paths: &[PathBuf],
    mut failed: Vec<FailedReplica>,
    how: &RestoreOptions,
    options: &OpenOptions,
    warnings: &mut Vec<String>,
) -> std::result::Result<Option<SourcePartition>, (PathBuf, Error)> {
    let mut first: Option<(PathBuf, Error)> = None;
    let mut rest: Vec<&PathBuf> = paths.iter().collect();
    loop {
        let place = || rest.first().map(|path| (*path).clone()).unwrap_or_default();
        let (chosen, mut failures) =
            choose_replica(&rest, options).map_err(|error| (place(), error))?;
        warnings.extend(
            failures
                .iter()
                .map(|failed| format!("left out: {}", failed.error)),
        );
        let Some(chosen) = chosen else {
            let last = failures.pop().map(|failed| (failed.path, failed.error));
            return first.or(last).map_or(Ok(None), Err);
        };
        let (path, log) = (chosen.best.path.clone(), chosen.best.log.clone());
        let extent = chosen.best.extent();
        match part(chosen, how, warnings) {
            Ok(mut source) => {
                for each in &failed {
                    source.others.push((each.path.clone(), each.told()));
                    source.other_logs.push(each.log.clone());
                }
                source.failed = failed;
                source.close_files();
                for UnopenedReplica { path, error } in failures {
                    // One that is gone by now was moved, or deleted; unless its log dir is gone too.
                    let disk = options.disk.as_ref();
                    let log_dir = path.parent().map(|log_dir| disk.list(log_dir));
                    let is_empty =
                        log_dir.is_none_or(|listed| listed.map_or(true, |all| all.is_empty()));
                    if is_empty || is_there(disk, &path).unwrap_or(true) {
                        let told = format!("cannot be opened, and may have more: {error}");
                        source.unopened.push((path, told));
                    }
                }
                return Ok(Some(source));
            }
            Err(error) if has_failed(&log, &error) => {
                warnings.push(format!("left out: {error}"));
                rest.retain(|each| **each != path);
                failed.push(FailedReplica {
                    stop: i64::MAX,
                    reason: error.to_string(),
                    extent,
                    log,
                    path: path.clone(),
                });
                first.get_or_insert((path, error));
            }
            Err(error) => return Err((path, error)),
        }
    }
}

/// Whether an error means that this log, or what is beside it in its log dir, cannot be read: not that a limit or the process has too
/// little room, and not that the target failed. No target lies in a source.
pub(super) fn has_failed(log: &Log, error: &Error) -> bool {
    let ErrorKind::Io { source, call } = error.kind() else {
        return false;
    };
    let log_dir = log.path().parent().unwrap_or(log.path());
    error.path().is_some_and(|path| path.starts_with(log_dir))
        && *call != IoCall::HoldBatch
        && source.kind() != io::ErrorKind::OutOfMemory
        && !error.is_of_process()
}

/// Reads a log to the end.
///
/// # Errors
/// As a restore would have them.
pub(super) fn read_whole(log: &Log, stop: Option<i64>) -> Result<()> {
    let mut scan = log.scan(&ScanOptions {
        stop,
        ..everything()
    })?;
    while scan.next_batch()?.is_some() {}
    Ok(())
}

/// Tells of checkpoints that cannot be read: without them deleted records may come back, and an end that is lost is not told.
fn tell_ignored(log: &Log, key: &TopicPartition, warnings: &mut Vec<String>) {
    for ignored in log.warnings() {
        let told = format!("{key}: {ignored}");
        if ignored.starts_with("ignored: ") && !warnings.contains(&told) {
            warnings.push(told);
        }
    }
}

fn part(
    chosen: ChosenReplica,
    how: &RestoreOptions,
    warnings: &mut Vec<String>,
) -> Result<SourcePartition> {
    let ChosenReplica {
        best,
        others,
        other_logs,
    } = chosen;
    let extent = best.extent();
    let log = best.log;
    let log_start_offset = log.log_start_offset()?;
    let key = TopicPartition {
        topic: log.topic().to_owned(),
        partition: log.partition(),
    };
    tell_ignored(&log, &key, warnings);
    // Retention of a tiered topic keeps the checkpoint, and so does a first segment that is lost. A broker's retention that was
    // killed before it wrote the checkpoint leaves the same.
    let noted = readable(log.checkpointed_log_start_offset())?.flatten();
    let noted = noted.filter(|noted| *noted < log_start_offset);
    if let Some(noted) = noted {
        let told = format!(
            "{key}: offsets {noted} to {} are not restored: by log-start-offset-checkpoint the log begins at {noted}, and its \
             first segment at {log_start_offset}: they are in remote storage, or a segment is lost, or retention deleted it",
            log_start_offset - 1
        );
        if !warnings.contains(&told) {
            warnings.push(told);
        }
    }
    // Damage at the end of the log hides where it ends: then all is read.
    let end = if best.end_is_hidden {
        i64::MAX
    } else {
        best.end
    };
    let mut stop = match how.until {
        Some(until) => first_at(&log, until)?.unwrap_or(end),
        None => end,
    };
    let wanted = how.ends.get(&key).copied();
    if let Some(wanted) = wanted {
        if wanted > end {
            let told =
                format!("{key} ends at offset {end}, before the end that is given, {wanted}");
            if !warnings.contains(&told) {
                warnings.push(told);
            }
        }
        stop = stop.min(wanted);
    }
    let stop = stop.max(log_start_offset);
    if how.until.is_some()
        && wanted.is_none()
        && last_timestamp(&log, (log_start_offset, stop))?.is_some_and(|time| time < 0)
    {
        return Err(has_no_time(&log, best.end_is_hidden, end));
    }
    let is_cut = stop < end;
    let segments = log.segments()?;
    let nexts = segments.iter().skip(1).map(|next| next.base_offset);
    let used = segments.iter().zip(nexts.chain([i64::MAX]));
    let used: Vec<(i64, u64)> = used
        .filter(|(segment, next)| segment.base_offset < stop && *next > log_start_offset)
        .map(|(segment, _)| (segment.base_offset, segment.size_bytes))
        .collect();
    let age = LogAge::of(&log, &used, Some(log_start_offset))?;
    Ok(SourcePartition {
        path: best.path,
        others,
        other_logs,
        failed: Vec::new(),
        unopened: Vec::new(),
        log_start_offset,
        first_offset: segments.first().map_or(log_start_offset, |segment| {
            segment.base_offset.max(log_start_offset)
        }),
        begins_before: noted.is_some(),
        extent,
        stop,
        is_cut,
        wanted,
        until: how.until,
        leader_epoch: best.leader_epoch,
        age,
        log,
    })
}

/// The greatest timestamp of the last batch with records in this range that can be read, which is negative if it has none; `None` without a batch. If it
/// has one, batches without are before it.
fn last_timestamp(log: &Log, (start, stop): (i64, i64)) -> Result<Option<i64>> {
    if start >= stop {
        return Ok(None);
    }
    let last_of = |first: i64| -> Result<Option<i64>> {
        let mut scan = log.scan(&ScanOptions {
            start: Some(first.max(start)),
            stop: Some(stop).filter(|stop| *stop < i64::MAX),
            ..everything()
        })?;
        let mut last = None;
        while let Some(batch) = scan.next_batch()? {
            // One that only holds offsets has no time.
            if batch.header().record_count != 0 {
                last = Some(batch.header().max_timestamp);
            }
        }
        Ok(last)
    };
    // The last offset has a batch, unless compaction left it out, or damage did.
    if stop < i64::MAX
        && let Some(last) = last_of(stop - 1)?
    {
        return Ok(Some(last));
    }
    for segment in log.segments()?.iter().rev() {
        if segment.base_offset < stop
            && let Some(last) = last_of(segment.base_offset)?
        {
            return Ok(Some(last));
        }
    }
    Ok(None)
}

/// Why a log is not cut at a time. To restore all of it is what nobody has asked for.
fn has_no_time(log: &Log, end_is_hidden: bool, end: i64) -> Error {
    let all = if end_is_hidden {
        String::new()
    } else {
        format!("; with {end}, all of it is restored")
    };
    let reason = format!(
        "its last records have no timestamp, as those of Kafka before 0.10, and nobody knows which of them are before the time (--until): name \
         the offset where it is to end in --offsets{all}"
    );
    Error::log_dir(log.path(), reason)
}

/// The offset of the first record at a time, or a later one, that can be read.
fn first_at(log: &Log, time: i64) -> Result<Option<i64>> {
    let found = readable(log.offset_for_timestamp(time, Isolation::ReadUncommitted))?;
    if let Some(found) = found {
        return Ok(found.map(|found| found.offset));
    }
    // Damage ends a look-up. A scan continues behind it.
    let mut scan = log.scan(&everything())?;
    while let Some(mut batch) = scan.next_batch()? {
        if batch.header().max_timestamp < time {
            continue;
        }
        while let Some(record) = batch.next_record()? {
            if record.timestamp >= time {
                return Ok(Some(record.offset));
            }
        }
    }
    Ok(None)
}
