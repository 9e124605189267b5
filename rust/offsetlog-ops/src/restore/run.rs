//! Carries a plan out: partition after partition, and the topics of a new cluster last.

use super::choice::{self, FailedReplica};
use super::compare::Wanted;
use super::write_topics::keep_controllers_out;
use super::{
    PartitionState, PartitionToRestore, RestorePlan, RestoreProgress, Target, committed, compare,
    open_transactions,
};
use crate::places;
use crate::producer_ids;
use crate::replicas::Extent;
use crate::salvage::{SalvageOptions, Salvaged, salvage_log};
use crate::topic_config::config_to_build_with;
use offsetlog::disk::{IoCall, write_whole};
use offsetlog::format::clean_shutdown::write_clean_shutdown;
use offsetlog::format::internal_topic::METADATA_TOPIC;
use offsetlog::format::name::{CLEAN_SHUTDOWN, DirectoryName, DirectoryState};
use offsetlog::{
    Error, ErrorKind, Log, LogConfig, LogDir, LogDirOptions, NewPartition, OpenOptions, Result,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl RestorePlan {
    /// Restores. `progress` is called as the work proceeds. A partition that fails does not keep the others from it, but the topics of a new cluster are then not written: run it
    /// again when the cause is gone. Reads what was built of `__consumer_offsets` at the end, and tells anew of groups behind the end.
    ///
    /// # Errors
    /// `Locked`: a broker runs on one of the log dirs, or a controller. `LogDir`: another restore has written another topic of a name into
    /// `bootstrap.checkpoint` since the plan was made. `Io` where the target's own files cannot be written; `Interrupted`.
    pub fn run(&mut self, progress: Option<&RestoreProgress>) -> Result<()> {
        // Held to the end: no controller and no broker starts meanwhile.
        let _controllers = keep_controllers_out(&self.bootstraps, &self.options)?;
        // While partitions change the marks are away.
        let mut marked = Vec::new();
        for (_, log_dir) in &self.log_dirs {
            let mark = log_dir.join(CLEAN_SHUTDOWN);
            if places::is_there(self.options.disk.as_ref(), &mark)? {
                marked.push(log_dir.clone());
            }
        }
        self.marked = marked.into_iter().collect();
        let held = Held::open(&self.log_dirs, &self.options)?;
        let done = self.run_locked(&held, progress);
        let closed = held.close();
        done?;
        closed
    }

    fn run_locked(&mut self, held: &Held, progress: Option<&RestoreProgress>) -> Result<()> {
        let total = self.bytes();
        let mut done = 0;
        let is_new = self.target == Target::NewCluster;
        // A stopped broker's cluster goes on where it was: what matters is which ids records have.
        let mut producer_id_max = if is_new { self.next_producer_id } else { 0 } - 1;
        let mut partitions = std::mem::take(&mut self.partitions);
        for each in &mut partitions {
            if matches!(each.state, PartitionState::Refused(_)) {
                continue;
            }
            let planned = each.bytes;
            let part = (done, planned, total);
            let restored = self.restore_best(each, (held, part), progress, &mut producer_id_max);
            each.close_files();
            match restored {
                Ok(state) => {
                    if let Some(report) = state.report() {
                        each.log_end_offset = Some(report.built.log_end_offset);
                        let start = report.built.log_start_offset;
                        self.warnings.extend(each.begins_at(start));
                    }
                    each.state = state;
                }
                Err(error) if error.is_of_process() => {
                    self.partitions = partitions;
                    return Err(error);
                }
                Err(error) => each.state = PartitionState::Failed(error),
            }
            done += planned;
        }
        self.partitions = partitions;
        committed::tell(self)?;
        open_transactions::add(self);
        if self.target == Target::StoppedBroker {
            let next = self.target_producer_id;
            let what = "what is restored";
            let told = producer_ids::given_again(what, producer_id_max, next);
            self.warnings.extend(told);
        }
        let has_failed = |each: &PartitionToRestore| {
            matches!(
                each.state,
                PartitionState::Failed(_) | PartitionState::Refused(_)
            )
        };
        if self.target == Target::NewCluster && self.partitions.iter().any(has_failed) {
            let reason = "not written, because a partition could not be restored: run it again when the cause is gone, or leave the topic out";
            for path in &self.bootstrap_checkpoints {
                self.warnings.push(format!("{}: {reason}", path.display()));
            }
            return Ok(());
        }
        held.write_checkpoints()?;
        for log_dir in &self.fresh {
            if !self.has_others(log_dir)? {
                mark_clean(log_dir, &self.options)?;
            }
        }
        self.write_topics(producer_id_max)
    }

    /// Restores one partition; from the next best replica, whole, if one fails while it is read.
    fn restore_best(
        &mut self,
        each: &mut PartitionToRestore,
        part: (&Held, (u64, u64, u64)),
        progress: Option<&RestoreProgress>,
        producer_id_max: &mut i64,
    ) -> Result<PartitionState> {
        loop {
            let error = match self.restore(each, part, progress, producer_id_max) {
                Err(error) => failure_of(each, error)?,
                Ok((state, is_cut_at_time)) => {
                    each.is_cut |= is_cut_at_time;
                    return Ok(state);
                }
            };
            if !self.fall_back(each, &error)? {
                return Err(error);
            }
        }
    }

    /// Takes the next best replica instead of one that failed, if there is one.
    fn fall_back(&mut self, each: &mut PartitionToRestore, error: &Error) -> Result<bool> {
        let name = format!("{}-{}", each.topic, each.partition);
        let (Some(log), Some(extent)) = (each.log.clone(), each.extent) else {
            return Ok(false);
        };
        let mut failed = each.failed.clone();
        let paths = each.other_replicas.iter().map(|(path, _)| path.clone());
        let paths: Vec<PathBuf> = paths
            .filter(|path| failed.iter().all(|failed| failed.path != *path))
            .filter(|path| each.unopened.iter().all(|(unopened, _)| unopened != path))
            .collect();
        failed.push(FailedReplica {
            log,
            path: each.source.clone(),
            extent,
            stop: each.log_end_offset.unwrap_or(i64::MAX),
            reason: error.to_string(),
        });
        let chosen = choice::choose(&paths, failed, &self.how, &self.options, &mut self.warnings);
        let mut source = match chosen {
            Ok(Some(source)) => source,
            Ok(None) => return Ok(false),
            Err((_, error)) if error.is_of_process() => return Err(error),
            Err((_, error)) => {
                self.warnings.push(format!("{name}: {error}"));
                return Ok(false);
            }
        };
        // A broker has written into it since: the topics of the plan have lower epochs.
        if source.leader_epoch > each.leader_epoch.unwrap_or(-1) {
            return Ok(false);
        }
        let remote = each.remote;
        let accepted = each.leader_epoch_accepted;
        if let Some(reason) = remote.and_then(|remote| remote.refuses(&source, accepted)) {
            let path = source.path.display();
            self.warnings
                .push(format!("{name}: {path} is not taken instead: {reason}"));
            return Ok(false);
        }
        self.warnings.push(format!(
            "{name}: {} failed while it was read, and {} is taken instead, which {}: {error}",
            each.source.display(),
            source.path.display(),
            source.extent.less(extent)
        ));
        source.unopened.extend(each.unopened.iter().cloned());
        self.warn_of_settings(&source);
        // What made the first one fall short is true of this one too.
        let fell_short = each.falls_short;
        each.take(source);
        each.falls_short |= fell_short;
        Ok(true)
    }

    /// Restores one partition into each of its directories. Returns too whether it ends before a record at the time where it is cut.
    fn restore(
        &self,
        each: &PartitionToRestore,
        (held, (done, bytes, total)): (&Held, (u64, u64, u64)),
        progress: Option<&RestoreProgress>,
        producer_id_max: &mut i64,
    ) -> Result<(PartitionState, bool)> {
        let Some(log) = &each.log else {
            return Err(Error::argument("sources", "the partition is not open"));
        };
        let name = format!("{}-{}", each.topic, each.partition);
        let progress = progress.cloned().map(|progress| {
            let name = name.clone();
            Arc::new(move |part: u64, _| progress(done + part.min(bytes), total, &name)) as _
        });
        let how = SalvageOptions {
            progress,
            ..SalvageOptions::default()
        };
        let others = each.other_logs.as_slice();
        let config = self.config_of(each);
        let (mut built, mut there, mut is_cut, mut first) = (None, None, false, None);
        let mut noted = |made: Salvaged| {
            *producer_id_max = (*producer_id_max).max(made.producer_id_max);
            is_cut |= made.is_cut_at_time;
            let made = made.report;
            let offsets = (made.built.log_start_offset, made.built.log_end_offset);
            let (start, end) = *first.get_or_insert(offsets);
            if offsets == (start, end) {
                return Ok(Box::new(made));
            }
            let reason = format!(
                "{} has offsets {} to {}, and the directory of it that was made before has {start} to {end}: the source was changed \
                 meanwhile; delete both, and run it again",
                made.built.path.display(),
                offsets.0,
                offsets.1
            );
            Err(Error::log_dir(log.path(), reason))
        };
        for (_, path) in &each.into {
            // Each directory takes its time, and the source may be one of a running broker.
            self.check_extent(each, log)?;
            let wanted = Wanted::of(each, &config, self.is_marked(path));
            let same = compare::is_there(log, path, each.cut, &wanted, &self.options, others)?;
            if let Some(same) = same {
                there = Some(noted(same)?);
                // A restore that was killed may not have come to them.
                if let Some(log_dir) = held.around(path) {
                    log_dir.complete_lines(path)?;
                }
                continue;
            }
            let begin = self.begin(each, log)?;
            let place = (path.as_path(), held.around(path));
            let begin = (Some(&begin), each.cut.until);
            let made = salvage_log(log, place, &self.options, &how, begin, others)?;
            built = Some(noted(made)?);
        }
        let state = match (built, there) {
            (Some(built), _) => PartitionState::Restored(built),
            (None, Some(there)) => PartitionState::There(there),
            (None, None) => return Err(Error::argument("into", "no directory for the partition")),
        };
        Ok((state, is_cut))
    }

    /// Fails if the replica is no longer what was chosen: another one may have more, and the topic's ids and epochs were planned for it.
    fn check_extent(&self, each: &PartitionToRestore, log: &Log) -> Result<()> {
        let Some(planned) = each.extent else {
            return Ok(());
        };
        let (now, _) = Extent::of(log, &self.options)?;
        let Some(change) = now.change_since(planned) else {
            return Ok(());
        };
        let reason = format!(
            "it {change}: another program changed it after the restore was planned; run it again, which chooses anew among the replicas"
        );
        Err(Error::log_dir(log.path(), reason))
    }

    /// Whether the log dir around a directory is marked as stopped cleanly, or will be: a broker then believes what is in it.
    fn is_marked(&self, path: &Path) -> bool {
        let is_around = |log_dir: &PathBuf| path.parent() == Some(log_dir);
        self.fresh.iter().chain(&self.marked).any(is_around)
    }

    /// Whether a log dir has partitions by now that are not restored: nobody knows how they ended.
    fn has_others(&self, log_dir: &Path) -> Result<bool> {
        let entries = self
            .options
            .disk
            .list(log_dir)
            .map_err(|error| Error::io(IoCall::List, log_dir, error))?;
        let all = self.partitions.iter().flat_map(|each| &each.into);
        let ours: BTreeSet<&Path> = all.map(|(_, path)| path.as_path()).collect();
        Ok(entries.iter().any(|entry| {
            let is_partition = DirectoryName::parse(&entry.name).is_ok_and(|name| {
                name.topic != METADATA_TOPIC
                    && matches!(name.state, DirectoryState::Live | DirectoryState::Future)
            });
            is_partition && !ours.contains(log_dir.join(&entry.name).as_path())
        }))
    }

    /// In a folder only the settings that offsetlog stored go along: of others nobody knows whether they are all, and by those that
    /// are taken for all a later upkeep would delete.
    fn begin(&self, each: &PartitionToRestore, log: &Log) -> Result<NewPartition> {
        let stored = match log.stored_config() {
            Err(error) if error.is_corruption() => None,
            stored => stored?,
        };
        Ok(NewPartition {
            config: stored.filter(|_| self.target == Target::Folder),
            defaults: self.config_of(each),
            topic_id: each.topic_id,
            stop: each.cut.stop,
            leader_epoch_max: each.leader_epoch_max,
            replaces_empty: true,
            reads_back: true,
            ..NewPartition::default()
        })
    }

    /// What the metadata has of its topic.
    fn config_of(&self, each: &PartitionToRestore) -> LogConfig {
        let known = self.configs.get(&each.topic);
        known.map(config_to_build_with).unwrap_or_default()
    }
}

impl PartitionToRestore {
    /// Notes where the restored log begins. Returns a warning if the source began earlier when it was chosen.
    fn begins_at(&mut self, start: i64) -> Option<String> {
        let planned = std::mem::replace(&mut self.log_start_offset, start);
        if start <= planned {
            return None;
        }
        let replicas = self.other_replicas.iter().zip(&self.other_logs);
        let earlier: Vec<String> = replicas
            .filter(|(_, log)| log.log_start_offset().is_ok_and(|first| first < start))
            .map(|((path, _), _)| path.display().to_string())
            .collect();
        let others = if earlier.is_empty() {
            String::new()
        } else {
            format!("; {} begins earlier", earlier.join(", "))
        };
        Some(format!(
            "{}-{}: restored from offset {start} on, and {} began at {planned} when the restore was planned: its first records were deleted \
             meanwhile{others}",
            self.topic,
            self.partition,
            self.source.display()
        ))
    }
}

/// The log dirs of each broker, held: those of two brokers have directories of the same partition.
struct Held(Vec<(Vec<PathBuf>, LogDir)>);

impl Held {
    fn open(log_dirs: &[(Option<i32>, PathBuf)], options: &OpenOptions) -> Result<Self> {
        let mut by_node: BTreeMap<Option<i32>, Vec<PathBuf>> = BTreeMap::new();
        for (node, path) in log_dirs {
            by_node.entry(*node).or_default().push(path.clone());
        }
        let how = LogDirOptions::default();
        let held = by_node.into_values().map(|paths| {
            let log_dir = LogDir::open_for_append(&paths, options, &how)?;
            Ok((paths, log_dir))
        });
        held.collect::<Result<_>>().map(Self)
    }

    /// The one with the log dir of a partition directory.
    fn around(&self, path: &Path) -> Option<&LogDir> {
        let is_around = |paths: &[PathBuf]| paths.iter().any(|each| path.parent() == Some(each));
        let found = self.0.iter().find(|(paths, _)| is_around(paths));
        found.map(|(_, log_dir)| log_dir)
    }

    fn write_checkpoints(&self) -> Result<()> {
        self.0
            .iter()
            .try_for_each(|(_, log_dir)| log_dir.write_checkpoints())
    }

    /// Closes all of them; returns the first error.
    fn close(&self) -> Result<()> {
        let closed = self.0.iter().map(|(_, log_dir)| log_dir.close());
        closed.fold(Ok(()), Result::and)
    }
}

/// The error, if it says that the replica that is taken cannot be read.
///
/// # Errors
/// The error, if it says anything else.
fn failure_of(each: &PartitionToRestore, error: Error) -> Result<Error> {
    let Some(log) = &each.log else {
        return Err(error);
    };
    if choice::has_failed(log, &error) {
        return Ok(error);
    }
    // The existing log may come from another replica because this one failed, and the comparison has not reached the place where it fails.
    if matches!(error.kind(), ErrorKind::LogDir { .. }) && !each.other_logs.is_empty() {
        match choice::read_whole(log, each.cut.stop) {
            Err(found) if choice::has_failed(log, &found) => return Ok(found),
            Err(found) if found.is_of_process() => return Err(found),
            _ => {}
        }
    }
    Err(error)
}

/// Marks a log dir as stopped cleanly that no broker has used yet, so that the first one need not look through what was restored.
fn mark_clean(log_dir: &Path, options: &OpenOptions) -> Result<()> {
    let mark = log_dir.join(CLEAN_SHUTDOWN);
    if places::is_there(options.disk.as_ref(), &mark)? {
        return Ok(());
    }
    // No broker had an epoch yet.
    write_whole(options.disk.as_ref(), &mark, &write_clean_shutdown(-1))
        .map_err(|failed| Error::failed_call(&mark, failed))
}
