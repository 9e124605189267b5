//! Maintains all partitions of log dirs, and deletes the directories of deleted topics.

use super::listing::Listing;
use super::topics::may_be_of;
use super::writer::{PendingDelete, Writer, guard, is_closed};
use super::{ClusterSettings, LogDir, TopicPartition};
use crate::disk::{IoCall, OverlayDisk};
use crate::error::{Error, ErrorKind, Result};
use crate::log::{
    Guard, Log, LogWriter, MaintainOptions, MaintainReport, Membership, OpenOptions,
    is_internal_topic,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What [`LogDir::maintain`] did, or would do.
#[derive(Debug, Default)]
pub struct LogDirMaintainReport {
    /// Nothing was changed: the report shows what would be done.
    pub dry_run: bool,
    /// The partitions from which something was removed, by topic and number.
    pub partitions: Vec<(TopicPartition, MaintainReport)>,
    /// Partitions whose maintenance failed, and why. The others were maintained. Of a topic that was named and is not here, partition 0.
    pub failed: Vec<(TopicPartition, Error)>,
    /// Partitions that another process writes. That process maintains them.
    pub busy: Vec<TopicPartition>,
    /// Directories of deleted topics that were removed.
    pub removed: Vec<PathBuf>,
    /// Partitions of Kafka's internal topics, which were skipped.
    pub internal: Vec<TopicPartition>,
    /// Number of partitions checked.
    pub looked_at: usize,
    /// In a broker's log dir: timestamp of the metadata's newest record, in ms since 1970. It shows how old the settings are.
    pub metadata_timestamp: Option<i64>,
}

impl LogDirMaintainReport {
    /// Whether a round has told something here.
    fn is_begun(&self) -> bool {
        let is_empty = self.partitions.is_empty()
            && self.failed.is_empty()
            && self.busy.is_empty()
            && self.removed.is_empty()
            && self.internal.is_empty();
        self.looked_at > 0 || !is_empty
    }
}

impl LogDir {
    /// Does all maintenance that is due for every partition, one after another, and removes directories of deleted topics whose
    /// delay has passed, with `topics` of these only. A failed partition does not stop the others. If a log's policies are `compact` and `delete`, segments
    /// are deleted both before and after compaction.
    ///
    /// # Errors
    /// `LogDir` if there is none of the named topics, nor a directory of one that waits for its removal: then nothing is done. `Interrupted`,
    /// `Closed`, `Argument` for log dirs that were opened for reading; `Io` for the checkpoints that all partitions share. Errors of a
    /// partition are in the report, and that of a missing topic if others were named with it.
    pub fn maintain(&self, options: &MaintainOptions) -> Result<LogDirMaintainReport> {
        let mut report = LogDirMaintainReport::default();
        self.maintain_into(options, &mut report)?;
        Ok(report)
    }

    /// As [`maintain`](Self::maintain), and adds what it does to `report`, which so also has what was done before an error, and what earlier
    /// calls told there.
    ///
    /// # Errors
    /// Those of [`maintain`](Self::maintain); `Argument` for a dry run that would add to the report of a real one, or the reverse.
    pub fn maintain_into(
        &self,
        options: &MaintainOptions,
        report: &mut LogDirMaintainReport,
    ) -> Result<()> {
        let now = options.now.unwrap_or_else(|| self.0.now());
        if report.dry_run != options.dry_run && report.is_begun() {
            let reason = "it has what another call did, and of the two only one is a dry run: take a new one";
            return Err(Error::argument("report", reason));
        }
        report.dry_run = options.dry_run;
        if options.dry_run {
            self.writer()?;
            // Logs that are not open here are opened, and recovered if needed, on a disk that keeps all changes in memory.
            let aside = self.aside()?;
            // Known to this one already, or found by the listing of the other.
            let mut found = aside.newly_deleted(aside.disk())?;
            let mut known = guard(&self.writer()?.pending_deletes).clone();
            found.retain(|found| known.iter().all(|known| known.path != found.path));
            known.extend(found.iter().cloned());
            let missing = aside.missing(&options.topics, &known)?;
            report.failed.extend(missing);
            let open = |partition: &TopicPartition| match self.opened(partition) {
                Some(log) => Ok(Some(log)),
                None => aside.used(partition),
            };
            aside.keep_all(options, open, report)?;
            if options.deletes {
                self.remove_deleted_of((&options.topics, now), &found, true, &mut report.removed)?;
            }
            return Ok(());
        }
        {
            // Another process may have made topics or partitions, or deleted some. A thread that does so here has done it wholly.
            let _none_removes = guard(&self.writer()?.removing);
            let _alone = guard(&self.writer()?.topics);
            // Where a folder cannot be listed, or is the mount point of a disk that is away, what is known is looked at: its partitions
            // fail, and no others.
            let _ = self.list_anew(Listing::refuse_empty);
            let found = self.newly_deleted(self.disk())?;
            guard(&self.writer()?.pending_deletes).extend(found);
        }
        let known = guard(&self.writer()?.pending_deletes).clone();
        let missing = self.missing(&options.topics, &known)?;
        report.failed.extend(missing);
        self.keep_all(options, |partition| self.used(partition), report)?;
        match self.write_lines() {
            // The checkpoints are written next time. Until then the old ones remain valid, and the next step may free space.
            Err(error) if error.is_out_of_room() => {}
            written => written?,
        }
        if options.deletes {
            self.remove_deleted_of((&options.topics, now), &[], false, &mut report.removed)?;
        }
        Ok(())
    }

    /// The topics that were named and of which there is nothing here, each with the error that tells so.
    ///
    /// # Errors
    /// That error, if there is none of them.
    fn missing(
        &self,
        topics: &[String],
        deleted: &[PendingDelete],
    ) -> Result<Vec<(TopicPartition, Error)>> {
        let names: BTreeSet<&String> = topics.iter().collect();
        let is_there = |topic: &str| {
            self.0.listing().numbers(topic).next().is_some()
                || deleted
                    .iter()
                    .any(|deleted| may_be_of(&deleted.path, topic))
        };
        let missing = names.iter().filter(|topic| !is_there(topic));
        let missing: Vec<_> = missing
            .map(|topic| {
                let of = TopicPartition {
                    topic: (*topic).clone(),
                    partition: 0,
                };
                (of, self.unknown(topic, 0))
            })
            .collect();
        if missing.len() < names.len() {
            return Ok(missing);
        }
        match missing.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(Vec::new()),
        }
    }

    fn keep_all(
        &self,
        options: &MaintainOptions,
        open: impl Fn(&TopicPartition) -> Result<Option<LogWriter>>,
        report: &mut LogDirMaintainReport,
    ) -> Result<()> {
        // The cluster's settings may have changed since.
        self.forget_cluster();
        let mut waiting = Vec::new();
        for partition in self.partitions() {
            let asked = self.0.options.interrupt.as_ref();
            if asked.is_some_and(|asked| asked()) {
                return Err(Error::new(ErrorKind::Interrupted));
            }
            let named = &self.writer()?.options.internal_topics;
            if !(options.topics.is_empty() || options.topics.contains(&partition.topic)) {
                continue;
            }
            if is_internal_topic(&partition.topic) && !named.contains(&partition.topic) {
                report.internal.push(partition);
                continue;
            }
            if let Some(error) = self.keep_one(&partition, options, &open, report)? {
                waiting.push((partition, error));
            }
        }
        // The others may have freed the space that these need.
        let has_freed = !report.partitions.is_empty() && !options.dry_run;
        for (partition, error) in waiting {
            let again = if has_freed {
                self.keep_one(&partition, options, &open, report)?
            } else {
                Some(error)
            };
            report.failed.extend(again.map(|error| (partition, error)));
        }
        report
            .partitions
            .sort_by(|(one, _), (other, _)| one.cmp(other));
        report.failed.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(())
    }

    /// Maintains a partition and adds the result to the report. If there was no space left, returns that error instead.
    fn keep_one(
        &self,
        partition: &TopicPartition,
        options: &MaintainOptions,
        open: &impl Fn(&TopicPartition) -> Result<Option<LogWriter>>,
        report: &mut LogDirMaintainReport,
    ) -> Result<Option<Error>> {
        let mut kept = MaintainReport::default();
        let earlier = report.partitions.iter().position(|(of, _)| of == partition);
        if let Some(earlier) = earlier {
            (_, kept) = report.partitions.remove(earlier);
        }
        let looked_at = self.keep(partition, options, open, (report, &mut kept));
        if !kept.is_empty() {
            report.partitions.push((partition.clone(), kept));
        }
        match looked_at {
            Ok(was_used) => {
                report.looked_at += usize::from(was_used);
                Ok(None)
            }
            Err(error) if error.is_out_of_room() => Ok(Some(error)),
            Err(error) => {
                match error.kind() {
                    ErrorKind::Interrupted => return Err(error),
                    ErrorKind::Locked { .. } => report.busy.push(partition.clone()),
                    _ => report.failed.push((partition.clone(), error)),
                }
                report.looked_at += 1;
                Ok(None)
            }
        }
    }

    /// Maintains one partition. Returns `false` if it has no segment yet, or was deleted since the list was made.
    fn keep(
        &self,
        partition: &TopicPartition,
        options: &MaintainOptions,
        open: &impl Fn(&TopicPartition) -> Result<Option<LogWriter>>,
        (report, kept): (&mut LogDirMaintainReport, &mut MaintainReport),
    ) -> Result<bool> {
        loop {
            let Some(path) = self.place_of(partition)? else {
                return Ok(false);
            };
            match self.was_used(&path) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                // It was deleted in the meantime, and perhaps created again elsewhere.
                Err(_) if self.place_of(partition)?.as_ref() != Some(&path) => continue,
                Err(error) => return Err(error),
            }
            let membership = self.membership_of(partition)?;
            let told = membership.metadata_timestamp();
            report.metadata_timestamp = report.metadata_timestamp.max(told);
            // A partition whose maintenance is refused is not even opened.
            self.check_upkeep(partition, &membership, options)?;
            let Some(log) = open(partition)? else {
                return Ok(false);
            };
            // Read again: the topic may have been made anew until the log was open, which keeps others out.
            let membership = self.membership_of(partition)?;
            let done = log
                .join(membership)
                .and_then(|()| log.maintain_one(kept, options, true));
            match done {
                // Another thread closed it: opens it again.
                Err(error) if is_closed(&error) && log.is_closed() => {
                    self.writer()?;
                }
                done => return done.map(|()| true),
            }
        }
    }

    /// The same log dirs on a disk that keeps all changes in memory.
    pub(super) fn aside(&self) -> Result<Self> {
        let options = OpenOptions {
            disk: Arc::new(OverlayDisk::new(Arc::clone(&self.0.options.disk))),
            mapped: false,
            ..self.0.options.clone()
        };
        let writer = Writer::aside(&self.writer()?.options);
        let metadata = writer.options.metadata.clone();
        Self::list(
            self.0.paths.clone(),
            &options,
            metadata.as_deref(),
            Some(writer),
        )
    }

    /// The partition's log, if it is already open for appending here.
    pub(super) fn opened(&self, partition: &TopicPartition) -> Option<LogWriter> {
        self.writer().ok()?.logs.opened(partition)
    }

    /// The offset up to which upkeep may remove records of a partition: the high watermark of the log dir's checkpoint where, as far as
    /// `cluster` knows, other brokers have replicas, 0 without a line there; otherwise the log end offset.
    ///
    /// # Errors
    /// As [`Log::log_end_offset`]; `Io` for the checkpoint.
    pub fn removable_end(&self, log: &Log, cluster: &ClusterSettings) -> Result<i64> {
        let end = log.log_end_offset()?;
        let found = cluster
            .0
            .membership(log.path(), log.topic(), log.partition())?;
        // The rule of a log that is open for appending.
        if !found.may_have_others() {
            return Ok(end);
        }
        match log.checkpointed_high_watermark() {
            Err(error) if error.is_corruption() => Ok(0),
            line => Ok(line?.unwrap_or(0).min(end)),
        }
    }

    fn membership_of(&self, partition: &TopicPartition) -> Result<Arc<Membership>> {
        let path = self.path_of(partition)?.unwrap_or_default();
        let (topic, number) = (&partition.topic, partition.partition);
        self.0
            .surroundings
            .membership(&path, topic, number)
            .map(Arc::new)
    }

    fn check_upkeep(
        &self,
        partition: &TopicPartition,
        membership: &Arc<Membership>,
        options: &MaintainOptions,
    ) -> Result<()> {
        if !membership.is_brokers() {
            return Ok(());
        }
        let path = self.path_of(partition)?.unwrap_or_default();
        let effective = membership.effective(None, None, &self.writer()?.options.defaults)?;
        let effective = match &options.config {
            Some(config) => effective.with_option(config),
            None => effective,
        };
        let guard = Guard {
            membership: Arc::clone(membership),
            fills_mirror: self.writer()?.options.fills_mirror,
            ..Guard::default()
        };
        guard.check_upkeep(&effective, options.parts(), &path)
    }

    /// Opens a partition for appending if it has any segment.
    fn used(&self, partition: &TopicPartition) -> Result<Option<LogWriter>> {
        let TopicPartition { topic, partition } = partition;
        self.writable_if(topic, *partition, |path| self.was_used(path))
    }

    /// Whether a directory has any segment.
    pub(super) fn was_used(&self, path: &Path) -> Result<bool> {
        let entries = self
            .disk()
            .list(path)
            .map_err(|error| Error::io(IoCall::List, path, error))?;
        Ok(entries.iter().any(|entry| entry.name.contains(".log")))
    }
}
