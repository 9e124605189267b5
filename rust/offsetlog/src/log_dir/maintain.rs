//! Upkeep of all partitions of log dirs, and the removal of deleted topics.

use super::{LogDir, TopicPartition};
use crate::error::{Error, ErrorKind, Result};
use crate::log::{MaintainOptions, MaintainReport};
use std::path::PathBuf;

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
    /// How many partitions were looked at.
    pub looked_at: usize,
}

impl LogDir {
    /// Does what is due now for every partition, one after the other, and removes the directories of topics that were deleted long
    /// enough ago. A partition that fails does not keep the others from their turn.
    ///
    /// # Errors
    /// `Interrupted`, `Closed`, `Argument` for log dirs that were opened for reading; `Io` for the checkpoints that all partitions share.
    /// Those of a partition are in the report.
    pub fn maintain(&self, options: &MaintainOptions) -> Result<LogDirMaintainReport> {
        let mut report = LogDirMaintainReport {
            dry_run: options.dry_run,
            ..LogDirMaintainReport::default()
        };
        for partition in self.partitions() {
            self.writer()?;
            if !self.was_used(&partition)? {
                continue;
            }
            report.looked_at += 1;
            let kept = self
                .writable(&partition.topic, partition.partition)
                .and_then(|log| log.maintain(options));
            match kept {
                Ok(kept) if kept.is_empty() => {}
                Ok(kept) => report.partitions.push((partition, kept)),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => return Err(error),
                    ErrorKind::Locked { .. } => report.busy.push(partition),
                    _ => report.failed.push((partition, error)),
                },
            }
        }
        if !options.dry_run {
            self.write_lines()?;
        }
        if options.deletes {
            report.removed = self.remove_deleted(options.dry_run)?;
        }
        Ok(report)
    }

    /// Whether a partition has any segment: one that was only made has nothing to be kept.
    fn was_used(&self, partition: &TopicPartition) -> Result<bool> {
        let Some(path) = self.path_of(partition) else {
            return Ok(false);
        };
        let entries = self
            .disk()
            .list(&path)
            .map_err(|error| Error::io("list", &path, error))?;
        Ok(entries.iter().any(|entry| entry.name.contains(".log")))
    }
}
