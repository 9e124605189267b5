//! What stands in log dirs: partitions, and directories that wait for their deletion.

use super::TopicPartition;
use crate::disk::{Disk, EntryKind};
use crate::error::{Error, Result};
use offsetlog_format::name::{DirectoryName, DirectoryState, FileName};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Folder of a broker with tiered storage; no partition's.
const REMOTE_INDEX_CACHE: &str = "remote-log-index-cache";

/// The directories found.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Each partition with the directories that hold a replica of it.
    pub(super) partitions: BTreeMap<TopicPartition, Vec<PathBuf>>,
    /// Directories renamed to be deleted, in the order found.
    pub(super) doomed: Vec<PathBuf>,
    pub(super) warnings: Vec<String>,
}

impl Listing {
    /// Adds what stands in a log dir; a partition directory counts as itself.
    pub(super) fn add(&mut self, disk: &dyn Disk, path: &Path) -> Result<()> {
        let entries = disk
            .list(path)
            .map_err(|error| Error::io("list", path, error))?;
        let own_name = path
            .file_name()
            .and_then(|name| name.to_str())
            .map(DirectoryName::parse);
        let holds_segments = entries.iter().any(|entry| {
            entry.kind == EntryKind::File
                && matches!(
                    FileName::classify(&entry.name),
                    FileName::Segment(_) | FileName::ByteOffsetSegment { .. }
                )
        });
        if let (Some(Ok(name)), true) = (own_name, holds_segments) {
            self.insert(&name, path.to_path_buf());
            return Ok(());
        }
        for entry in entries {
            if entry.kind != EntryKind::Directory || entry.name == REMOTE_INDEX_CACHE {
                continue;
            }
            match DirectoryName::parse(&entry.name) {
                Ok(name) if name.state == DirectoryState::Live => {
                    self.insert(&name, path.join(&entry.name));
                }
                Ok(name) if name.state == DirectoryState::Delete => {
                    self.doomed.push(path.join(&entry.name));
                }
                Ok(_) => {}
                Err(error) => self.warnings.push(format!(
                    "left out: directory {:?} of {} is not topic-partition: {}",
                    entry.name,
                    path.display(),
                    error.fault
                )),
            }
        }
        Ok(())
    }

    fn insert(&mut self, name: &DirectoryName<'_>, path: PathBuf) {
        let partition = TopicPartition {
            topic: name.topic.to_owned(),
            partition: name.partition,
        };
        self.partitions.entry(partition).or_default().push(path);
    }

    /// Says of partitions that stand in several log dirs what is done with them.
    pub(super) fn warn_of_replicas(&mut self) {
        for (partition, replicas) in &self.partitions {
            if replicas.len() > 1 {
                self.warnings.push(format!(
                    "{}-{} stands in {} log dirs: the longest valid replica is read",
                    partition.topic,
                    partition.partition,
                    replicas.len()
                ));
            }
        }
    }

    /// Numbers of a topic's partitions, ascending.
    pub(super) fn numbers(&self, topic: &str) -> Vec<i32> {
        let first = TopicPartition {
            topic: topic.to_owned(),
            partition: i32::MIN,
        };
        self.partitions
            .range(first..)
            .take_while(|(partition, _)| partition.topic == topic)
            .map(|(partition, _)| partition.partition)
            .collect()
    }
}
