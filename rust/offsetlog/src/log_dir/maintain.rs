//! Upkeep of all partitions of log dirs, and the removal of deleted topics.

use super::writer::{Writer, is_closed};
use super::{LogDir, TopicPartition};
use crate::disk::OverlayDisk;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{
    Guard, Log, MaintainOptions, MaintainReport, Membership, OpenOptions, is_internal,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What [`LogDir::maintain`] did, or would do.
#[derive(Debug, Default)]
pub struct LogDirMaintainReport {
    /// Nothing was changed: the report says what would be.
    pub dry_run: bool,
    /// The partitions of which anything went, in order.
    pub partitions: Vec<(TopicPartition, MaintainReport)>,
    /// Partitions that could not be kept, and why; the others were.
    pub failed: Vec<(TopicPartition, Error)>,
    /// Partitions that another process writes: its own upkeep to do.
    pub busy: Vec<TopicPartition>,
    /// Directories of deleted topics that are gone now.
    pub removed: Vec<PathBuf>,
    /// Partitions of brokers' own topics, which were left alone.
    pub internal: Vec<TopicPartition>,
    /// How many partitions were looked at.
    pub looked_at: usize,
    /// In a broker's log dir: timestamp of the metadata's newest record, in ms since 1970, which tells how old the settings are.
    pub metadata_timestamp: Option<i64>,
}

impl LogDir {
    /// Does what is due now for every partition, one after the other, and removes the directories of topics that were deleted long
    /// enough ago. A partition that fails does not keep the others from their turn.
    ///
    /// # Errors
    /// `Interrupted`, `Closed`, `Argument` for log dirs that were opened for reading; `Io` for the checkpoints that all partitions share.
    /// Those of a partition are in the report.
    pub fn maintain(&self, options: &MaintainOptions) -> Result<LogDirMaintainReport> {
        if options.dry_run {
            self.writer()?;
            // What is not open here is opened, and mended, where nobody else sees it.
            let aside = self.aside()?;
            let mut report = aside.keep_all(options, |partition| match self.opened(partition) {
                Some(log) => Ok(Some(log)),
                None => aside.used(partition),
            })?;
            if options.deletes {
                report.removed = self.remove_deleted(true)?;
            }
            return Ok(report);
        }
        let mut report = self.keep_all(options, |partition| self.used(partition))?;
        self.write_lines()?;
        if options.deletes {
            report.removed = self.remove_deleted(false)?;
        }
        Ok(report)
    }

    fn keep_all(
        &self,
        options: &MaintainOptions,
        open: impl Fn(&TopicPartition) -> Result<Option<Log>>,
    ) -> Result<LogDirMaintainReport> {
        let mut report = LogDirMaintainReport {
            dry_run: options.dry_run,
            ..LogDirMaintainReport::default()
        };
        // The cluster may have changed its settings since.
        self.0.surroundings.forget();
        for partition in self.partitions() {
            let named = &self.writer()?.options.internal_topics;
            if !(options.topics.is_empty() || options.topics.contains(&partition.topic)) {
                continue;
            }
            if is_internal(&partition.topic) && !named.contains(&partition.topic) {
                report.internal.push(partition);
                continue;
            }
            let kept = self.keep(&partition, options, &open, &mut report);
            report.looked_at += usize::from(!matches!(kept, Ok(None)));
            match kept {
                Ok(None) => {}
                Ok(Some(kept)) if kept.is_empty() => {}
                Ok(Some(kept)) => report.partitions.push((partition, kept)),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => return Err(error),
                    ErrorKind::Locked { .. } => report.busy.push(partition),
                    _ => report.failed.push((partition, error)),
                },
            }
        }
        Ok(report)
    }

    /// Upkeep of one partition; none of one that was only made, and has nothing to be kept, or was deleted since the list was made.
    fn keep(
        &self,
        partition: &TopicPartition,
        options: &MaintainOptions,
        open: &impl Fn(&TopicPartition) -> Result<Option<Log>>,
        report: &mut LogDirMaintainReport,
    ) -> Result<Option<MaintainReport>> {
        loop {
            let Some(path) = self.path_of(partition) else {
                return Ok(None);
            };
            match self.was_used(&path) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                // By another thread: deleted.
                Err(_) if !self.has(&partition.topic, partition.partition) => return Ok(None),
                Err(error) => return Err(error),
            }
            let membership = self.membership_of(partition)?;
            let told = membership.metadata_timestamp();
            report.metadata_timestamp = report.metadata_timestamp.max(told);
            // A partition that is refused is not even opened.
            self.check_upkeep(partition, &membership, options)?;
            let Some(log) = open(partition)? else {
                return Ok(None);
            };
            let kept = log.join(membership).and_then(|()| log.maintain(options));
            match kept {
                // By another thread: opened again.
                Err(error) if is_closed(&error) && log.is_closed() => {
                    self.writer()?;
                }
                kept => return kept.map(Some),
            }
        }
    }

    /// The same log dirs, where every change stays in memory.
    pub(super) fn aside(&self) -> Result<Self> {
        let options = OpenOptions {
            disk: Arc::new(OverlayDisk::new(Arc::clone(&self.0.options.disk))),
            mapped: false,
            ..self.0.options.clone()
        };
        let writer = Writer::aside(&self.writer()?.options);
        Self::list(self.0.paths.clone(), &options, Some(writer))
    }

    /// The partition's log, if it is open here for appending.
    pub(super) fn opened(&self, partition: &TopicPartition) -> Option<Log> {
        self.writer().ok()?.logs.opened(partition)
    }

    fn membership_of(&self, partition: &TopicPartition) -> Result<Arc<Membership>> {
        let path = self.path_of(partition).unwrap_or_default();
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
        let path = self.path_of(partition).unwrap_or_default();
        let effective = membership.effective(None, None, &self.writer()?.options.defaults)?;
        let effective = match &options.config {
            Some(config) => effective.with_option(config),
            None => effective,
        };
        let guard = Guard {
            membership: Arc::clone(membership),
            ..Guard::default()
        };
        guard.check_upkeep(&effective, options.parts(), &path)
    }

    /// A partition that has any segment, open for appending.
    fn used(&self, partition: &TopicPartition) -> Result<Option<Log>> {
        let TopicPartition { topic, partition } = partition;
        self.writable_if(topic, *partition, |path| self.was_used(path))
    }

    /// Whether a directory has any segment.
    fn was_used(&self, path: &Path) -> Result<bool> {
        let entries = self
            .disk()
            .list(path)
            .map_err(|error| Error::io("list", path, error))?;
        Ok(entries.iter().any(|entry| entry.name.contains(".log")))
    }
}
