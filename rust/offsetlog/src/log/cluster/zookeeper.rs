//! A cluster's settings and replicas out of ZooKeeper's data directory, where Kafka kept them before KRaft (FORMAT.md «ZooKeeper's data»).
//!
//! What holds is the newest snapshot whose checksums agree and every later transaction, in order. A transaction that is not there is an
//! error: nothing tells what it would have changed.

mod access;
mod consumers;
#[cfg(test)]
mod data_tests;
mod files;
mod nodes;
mod one_node;

pub(crate) use consumers::OldGroup;
pub use one_node::{NodeAnswer, zookeeper_node};

use crate::disk::{Disk, EntryKind, IoCall};
use crate::error::{Error, ErrorKind, Result};
use crate::folder::VERSION_2;
use crate::log::{MetadataImage, OpenOptions};
use crate::step_progress::Steps;
use files::{each_change, read_snapshot};
use nodes::Nodes;
use offsetlog_format::name::META_PROPERTIES;
use offsetlog_format::zookeeper::{DataFile, Packing};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// As ZooKeeper, which tries no more snapshots than these.
const MOST_SNAPSHOTS: usize = 100;

/// Where a server's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    snapshots: PathBuf,
    logs: PathBuf,
}

/// What one Kafka cluster has in ZooKeeper.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    pub(crate) cluster_id: Option<String>,
    pub(crate) image: MetadataImage,
    /// Groups of consumers that keep their offsets here, by name.
    pub(crate) groups: Vec<OldGroup>,
    /// What was left out of them.
    pub(crate) group_warnings: Vec<String>,
    /// Topics that a broker deletes as soon as it can.
    pub(crate) deleting: BTreeSet<String>,
}

impl Places {
    /// The one folder with snapshots and the one with logs: `folder`, its `version-2`, or those of the folders in it, so that `dataDir` and
    /// `dataLogDir` can be named by the folder around both. `None` where there is nothing of ZooKeeper's.
    ///
    /// # Errors
    /// `LogDir` where there are several; `Io`.
    pub(crate) fn find(disk: &dyn Disk, folder: &Path) -> Result<Option<Self>> {
        let mut all = vec![folder.to_path_buf(), folder.join(VERSION_2)];
        let listed = match disk.list(folder) {
            Err(error) if crate::folder::is_absent(&error) => return Ok(None),
            listed => listed.map_err(|error| Error::io(IoCall::List, folder, error))?,
        };
        let folders = listed
            .iter()
            .filter(|entry| entry.kind == EntryKind::Directory && entry.name != VERSION_2);
        all.extend(folders.map(|entry| folder.join(&entry.name).join(VERSION_2)));
        all.sort();
        let (mut snapshots, mut logs) = (Vec::new(), Vec::new());
        for place in all {
            let names = list(disk, &place)?;
            let is_snapshot = |(file, _): &(DataFile, _)| matches!(file, DataFile::Snapshot { .. });
            if names.iter().any(is_snapshot) {
                snapshots.push(place.clone());
            }
            if !names.iter().all(is_snapshot) {
                logs.push(place);
            }
        }
        let one = |found: &[PathBuf], what: &str| match found {
            [_, second, ..] => Err(Error::log_dir(
                folder,
                format!(
                    "{what} of ZooKeeper's are in several folders, {} is another one: name one server's",
                    second.display()
                ),
            )),
            found => Ok(found.first().cloned()),
        };
        let (snapshots, logs) = (one(&snapshots, "snapshots")?, one(&logs, "logs")?);
        Ok(match (snapshots, logs) {
            (None, None) => None,
            // What is missing is told when it is read.
            (snapshots, logs) => {
                let place = snapshots.clone().or_else(|| logs.clone());
                let place = place.unwrap_or_default();
                Some(Self {
                    snapshots: snapshots.unwrap_or_else(|| place.clone()),
                    logs: logs.unwrap_or(place),
                })
            }
        })
    }

    /// What names these files to a reader of messages.
    pub(crate) fn path(&self) -> &Path {
        &self.snapshots
    }

    /// The folders of the files.
    pub(crate) fn folders(&self) -> [PathBuf; 2] {
        [self.snapshots.clone(), self.logs.clone()]
    }

    /// Returns what the data has of the only Kafka cluster in it, or of the one with this id. The snapshot is a step, and each log behind it.
    ///
    /// # Errors
    /// Those of the progress.
    /// `MetadataFile` for damage, and for data of nodes that is not Kafka's; `LogDir` where transactions are missing, where there is no
    /// Kafka cluster, where it is unclear which one is meant, and where the cluster has begun to move to KRaft; `Limit`, `Io`,
    /// `Interrupted`.
    pub(crate) fn read(
        &self,
        options: &OpenOptions,
        cluster_id: Option<&str>,
        steps: &mut Steps<'_, Path>,
    ) -> Result<Found> {
        let nodes = self.nodes(options, false, steps)?;
        let root = self.choose(&nodes, cluster_id)?;
        nodes
            .cluster(&root)
            .map_err(|error| error.at_path(self.path()))
    }

    /// The nodes that are read, or all of them.
    fn nodes(
        &self,
        options: &OpenOptions,
        keeps_all: bool,
        steps: &mut Steps<'_, Path>,
    ) -> Result<Nodes> {
        match self.read_once(options, keeps_all, steps) {
            // A server that runs replaces its files, and writes at their end.
            Err(error) if !matches!(error.kind(), ErrorKind::Interrupted) => {
                self.read_once(options, keeps_all, steps)
            }
            read => read,
        }
    }

    /// The path below which the cluster's nodes are.
    fn choose(&self, nodes: &Nodes, cluster_id: Option<&str>) -> Result<Vec<u8>> {
        let mut all = nodes.clusters();
        if all.is_empty() {
            let reason = "ZooKeeper's data has no Kafka cluster (/brokers/topics)";
            return Err(Error::log_dir(self.path(), reason));
        }
        let count = all.len();
        if count > 1 {
            all.retain(|root| {
                let id = nodes.cluster_id(root).ok().flatten();
                id.is_some() && id.as_deref() == cluster_id
            });
        }
        if let (Some(root), None) = (all.pop(), all.pop()) {
            return Ok(root);
        }
        let reason = format!(
            "ZooKeeper's data has {count} Kafka clusters, and no cluster.id in {META_PROPERTIES} says which one is meant"
        );
        Err(Error::log_dir(self.path(), reason))
    }

    fn read_once(
        &self,
        options: &OpenOptions,
        keeps_all: bool,
        steps: &mut Steps<'_, Path>,
    ) -> Result<Nodes> {
        let disk = options.disk.as_ref();
        let mut snapshots: Vec<(i64, Packing, String)> = list(disk, &self.snapshots)?
            .into_iter()
            .filter_map(|(file, name)| match file {
                DataFile::Snapshot { zxid, packing } => Some((zxid, packing, name)),
                DataFile::Log { .. } => None,
            })
            .collect();
        snapshots.sort_by(|one, other| (other.0, &other.2).cmp(&(one.0, &one.2)));
        let mut nodes = None;
        let mut warnings = Vec::new();
        for (zxid, packing, name) in snapshots.iter().take(MOST_SNAPSHOTS) {
            let path = self.snapshots.join(name);
            steps.add(1);
            steps.at(&path)?;
            match read_snapshot(&path, *packing, *zxid, keeps_all, options) {
                Ok(read) => {
                    nodes = Some(read);
                    break;
                }
                // One that was not written whole; every transaction behind an older one is asked for.
                Err(error) if is_damage(&error) => warnings.push(format!("passed over: {error}")),
                Err(error) => return Err(error),
            }
        }
        let mut nodes = match nodes {
            Some(nodes) => nodes,
            // Old servers write none before they have much to write.
            None if snapshots.is_empty() => Nodes::at(0, keeps_all),
            None => {
                let reason = format!(
                    "no snapshot of ZooKeeper's is whole: {}",
                    warnings.join("; ")
                );
                return Err(Error::log_dir(&self.snapshots, reason));
            }
        };
        nodes.warnings = warnings;
        self.replay(&mut nodes, options, steps)?;
        Ok(nodes)
    }

    /// Applies all transactions behind the snapshot.
    fn replay(
        &self,
        nodes: &mut Nodes,
        options: &OpenOptions,
        steps: &mut Steps<'_, Path>,
    ) -> Result<()> {
        let held = nodes.last_zxid;
        let mut logs: Vec<(i64, String)> = list(options.disk.as_ref(), &self.logs)?
            .into_iter()
            .filter_map(|(file, name)| match file {
                DataFile::Log { zxid } => Some((zxid, name)),
                DataFile::Snapshot { .. } => None,
            })
            .collect();
        logs.sort();
        let next = held.saturating_add(1);
        // A log file begun before a snapshot continues for a while after it. If that file was deleted, one that begins right after the
        // snapshot will do.
        let before = logs.iter().rposition(|(zxid, _)| *zxid <= held);
        let behind = || logs.iter().position(|(zxid, _)| *zxid == next);
        let Some(first) = before.or_else(behind) else {
            let hint = "where dataLogDir is another folder, name the one around both";
            return Err(self.missing(next, hint));
        };
        let mut newest = if before.is_some() { 0 } else { held };
        steps.add(logs.len() - first);
        for (_, name) in logs.iter().skip(first) {
            let path = self.logs.join(name);
            steps.at(&path)?;
            let torn = each_change(&path, options, |transaction| {
                newest = newest.max(transaction.zxid);
                nodes.newest_time = nodes.newest_time.max(Some(transaction.time));
                if transaction.zxid <= held {
                    return Ok(());
                }
                if !follows(nodes.last_zxid, transaction.zxid) {
                    let hint = format!("{name} goes on with {:#x}", transaction.zxid);
                    return Err(self.missing(nodes.last_zxid.saturating_add(1), &hint));
                }
                nodes.last_zxid = transaction.zxid;
                for change in transaction.changes()? {
                    nodes.apply(&change, transaction.zxid, transaction.time);
                }
                Ok(())
            })?;
            nodes.warnings.extend(torn);
        }
        if newest < held {
            let hint = format!(
                "the newest log ends with {newest:#x}, where the snapshot has {held:#x}; where dataLogDir is another folder, name the one \
                 around both"
            );
            return Err(self.missing(newest.saturating_add(1), &hint));
        }
        Ok(())
    }

    fn missing(&self, zxid: i64, hint: &str) -> Error {
        let reason = format!(
            "ZooKeeper's transactions from {zxid:#x} on are missing: what they changed is not known; {hint}"
        );
        Error::log_dir(&self.logs, reason)
    }
}

/// Whether a transaction may come next: one behind the last, or the first of a later leader, which counts from 1.
fn follows(last: i64, zxid: i64) -> bool {
    let (epoch, count) = (zxid >> 32, zxid & i64::from(u32::MAX));
    last.checked_add(1) == Some(zxid) || (epoch > last >> 32 && count == 1)
}

fn is_damage(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::MetadataFile(_) | ErrorKind::Decompression { .. }
    )
}

/// ZooKeeper's files in a folder; none where there is no such folder.
fn list(disk: &dyn Disk, folder: &Path) -> Result<Vec<(DataFile, String)>> {
    let entries = match disk.list(folder) {
        Err(error) if crate::folder::is_absent(&error) => return Ok(Vec::new()),
        listed => listed.map_err(|error| Error::io(IoCall::List, folder, error))?,
    };
    let files = entries
        .into_iter()
        .filter(|entry| entry.kind == EntryKind::File);
    Ok(files
        .filter_map(|entry| Some((DataFile::classify(&entry.name)?, entry.name)))
        .collect())
}
