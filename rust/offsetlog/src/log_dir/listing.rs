//! Lists log dirs: partitions, and directories that wait for deletion.

use super::TopicPartition;
use super::clusters::Clusters;
use super::empty_folders::not_a_log_dir;
use crate::disk::{Disk, EntryKind, IoCall};
use crate::error::{Error, Result};
use crate::folder::{self, FolderContents, FolderKind, REMOTE_INDEX_CACHE};
use crate::local_path::joined;
use crate::log::{SetAside, partition_name};
use offsetlog_format::name::{DirectoryName, DirectoryState};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The directories that were found.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Each partition with the directories that hold a replica of it.
    pub(super) partitions: BTreeMap<TopicPartition, Vec<PathBuf>>,
    /// Directories renamed for deletion, in the order found.
    pub(super) pending_deletes: Vec<PathBuf>,
    /// Partitions of which a single file was given, one that is no part of their log.
    set_aside: Vec<TopicPartition>,
    /// Paths in which nothing is that a log dir, a partition or metadata consists of.
    empty: Vec<PathBuf>,
    /// The data of the cluster's ZooKeeper.
    pub(super) zookeeper: Option<PathBuf>,
    pub(super) warnings: Vec<String>,
}

impl Listing {
    /// Adds the partitions of a log dir; a partition directory adds itself, and ZooKeeper's data none. Refuses a directory around
    /// log dirs: the log dirs in it would look like partitions if their names end in a number.
    pub(super) fn add(&mut self, disk: &dyn Disk, path: &Path) -> Result<()> {
        let listed = disk.list(path);
        if let Err(error) = &listed
            && error.kind() == io::ErrorKind::NotADirectory
            && let Some(aside) = SetAside::of(path)
        {
            let partition = TopicPartition {
                topic: aside.topic,
                partition: aside.partition,
            };
            self.set_aside.push(partition.clone());
            let replicas = self.partitions.entry(partition).or_default();
            replicas.push(path.to_path_buf());
            return Ok(());
        }
        let entries = listed.map_err(|error| Error::io(IoCall::List, path, error))?;
        let contents = FolderContents::from_entries(&entries);
        match contents.kind(disk, path) {
            FolderKind::Partition => {
                let name = partition_name(path)?;
                self.insert_all(vec![(of_name(&name), path.to_path_buf())]);
                return Ok(());
            }
            FolderKind::AroundLogDirs(log_dirs) => return Err(folder::around(path, &log_dirs)),
            FolderKind::ZooKeeper => {
                if let Some(other) = self.zookeeper.replace(path.to_path_buf()) {
                    let reason = format!(
                        "ZooKeeper's data is in {} too: give that of one server, or the folder around its dataDir and dataLogDir",
                        other.display()
                    );
                    return Err(Error::log_dir(path, reason));
                }
                return Ok(());
            }
            _ => {}
        }
        if contents.holds_segments() {
            self.warnings.push(format!(
                "left out: files named like segments stand in {}, which is a log dir; no broker reads them",
                path.display()
            ));
        }
        let (mut live, mut pending, mut told) = (Vec::new(), Vec::new(), Vec::new());
        let mut has_left_out = false;
        for entry in entries {
            let parsed = DirectoryName::parse(&entry.name);
            let mut tell = |reason: &str| {
                let text = format!(
                    "left out: {}{:?} of {} is {reason}",
                    if parsed.is_err() { "directory " } else { "" },
                    entry.name,
                    path.display()
                );
                told.push((entry.name.clone(), text));
            };
            if entry.kind != EntryKind::Directory {
                // A broker follows such a link. Its target may be anything.
                if entry.kind == EntryKind::Other && parsed.is_ok() {
                    tell("no folder but a link or the like; give the path that it leads to");
                }
                continue;
            }
            if entry.name == REMOTE_INDEX_CACHE {
                continue;
            }
            match &parsed {
                // A directory with files that only log dirs have needs no further check. In any other directory each entry is
                // checked.
                Ok(name)
                    if name.state == DirectoryState::Live
                        && !contents.is_marked()
                        && folder::is_log_dir(disk, &path.join(&entry.name)) =>
                {
                    tell("a log dir itself; give its path to read it");
                }
                Ok(name) if name.state == DirectoryState::Live => {
                    live.push((of_name(name), joined(path, &entry.name)));
                }
                Ok(name) if name.state == DirectoryState::Delete => {
                    pending.push(path.join(&entry.name));
                }
                Ok(_) => has_left_out = true,
                Err(error) => tell(&format!("not topic-partition: {}", error.fault)),
            }
        }
        let has_partitions = has_left_out || !live.is_empty() || !pending.is_empty();
        if !has_partitions && !contents.is_marked() {
            self.empty.push(path.to_path_buf());
        }
        // Only what is shown is sorted by its name: of partitions there are thousands.
        pending.sort_unstable();
        self.pending_deletes.append(&mut pending);
        told.sort_unstable();
        self.warnings.extend(told.into_iter().map(|(_, text)| text));
        self.insert_all(live);
        Ok(())
    }

    /// Adds partitions with their directories, thousands as fast as they can be sorted.
    fn insert_all(&mut self, mut found: Vec<(TopicPartition, PathBuf)>) {
        found.sort_unstable();
        let mut grouped: Vec<(TopicPartition, Vec<PathBuf>)> = Vec::with_capacity(found.len());
        for (partition, path) in found {
            match grouped.last_mut() {
                // Kafka reads `t-7` and `t-07` as one.
                Some((last, paths)) if *last == partition => paths.push(path),
                _ => grouped.push((partition, vec![path])),
            }
        }
        if self.partitions.is_empty() {
            self.partitions = grouped.into_iter().collect();
            return;
        }
        for (partition, paths) in grouped {
            self.partitions.entry(partition).or_default().extend(paths);
        }
    }

    /// Adds partitions that were made here.
    pub(super) fn add_new(&mut self, made: Vec<(TopicPartition, PathBuf)>) {
        let made = made.into_iter();
        self.partitions
            .extend(made.map(|(partition, path)| (partition, vec![path])));
    }

    /// Refuses a path in which nothing of a log dir is: a wrong one, and the mount point of a disk that is not mounted, would look like an
    /// empty log dir. `others`: several paths were given.
    pub(super) fn refuse_empty(&self, others: bool) -> Result<()> {
        self.empty
            .first()
            .map_or(Ok(()), |path| Err(not_a_log_dir(path, others)))
    }

    /// Refuses a file that was set aside beside its partition, or beside another file of it: they are no replicas of each other.
    pub(super) fn refuse_mixed(&self) -> Result<()> {
        for partition in &self.set_aside {
            let paths = self
                .partitions
                .get(partition)
                .map_or(&[][..], Vec::as_slice);
            if let [first, second, ..] = paths {
                let reason = format!(
                    "a file that was set aside is no replica of {partition}: give {} in a call of its own",
                    second.display()
                );
                return Err(Error::log_dir(first, reason));
            }
        }
        Ok(())
    }

    /// Warns about partitions that have replicas in several log dirs.
    pub(super) fn warn_of_replicas(&mut self) {
        for (partition, replicas) in &self.partitions {
            if replicas.len() > 1 {
                self.warnings.push(format!(
                    "{}-{} stands in {} log dirs: the replica of the newest leader epoch is read, of those the one that can be read furthest, and \
                     of equals the one that lacks the fewest offsets",
                    partition.topic,
                    partition.partition,
                    replicas.len()
                ));
            }
        }
    }

    /// Warns about log dirs of several clusters.
    pub(super) fn warn_of_clusters(&mut self, clusters: &Clusters) {
        if let Some(several) = clusters.several() {
            self.warnings.push(format!(
                "the log dirs are of several clusters, by cluster.id in meta.properties: {several}; what they have under one name is listed as one"
            ));
        }
    }

    /// Numbers of a topic's partitions, ascending. The first and the last cost no walk over the others.
    pub(super) fn numbers(&self, topic: &str) -> impl DoubleEndedIterator<Item = i32> {
        let at = |partition| TopicPartition {
            topic: topic.to_owned(),
            partition,
        };
        self.partitions
            .range(at(i32::MIN)..=at(i32::MAX))
            .map(|(partition, _)| partition.partition)
    }
}

fn of_name(name: &DirectoryName<'_>) -> TopicPartition {
    TopicPartition {
        topic: name.topic.to_owned(),
        partition: name.partition,
    }
}
