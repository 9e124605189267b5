//! Makes the directories of new partitions. Each appears whole, with its topic id and its settings, or not at all.
//!
//! They are filled in a folder beside them whose name ends in `-delete`, and renamed into place when all are complete. A broker and a
//! [`LogDir`] take such a folder for a partition that is being deleted and remove it. A program that meets a directory half made would
//! open it without its settings, delete the files that are being written, and append records to a directory that may go away again.

use super::topics::{DEPTH_MAX, remove_all};
use super::writer::{PendingDelete, guard};
use super::{LogDir, TopicPartition};
use crate::config::LogConfig;
use crate::disk::{Disk, IoCall, Lock, write_whole};
use crate::error::{Error, ErrorKind, Result, is_out_of_room};
use crate::log::{lock_idle, lock_partition, write_config};
use offsetlog_format::name::{PARTITION_METADATA, directory_name};
use offsetlog_format::partition_metadata::PARTITION_METADATA_VERSION;
use offsetlog_format::{PartitionMetadata, Uuid};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A new partition, and the log dir in which its directory is made.
pub(super) type Place = (TopicPartition, PathBuf);

/// A folder in a log dir, in which partitions are made. The lock shows others that it is in use.
struct Aside {
    path: PathBuf,
    lock: Lock,
}

/// The folders in use. They go away at the end, with what is left in them.
struct Asides<'d> {
    log_dir: &'d LogDir,
    by_parent: BTreeMap<PathBuf, Aside>,
}

impl Drop for Asides<'_> {
    fn drop(&mut self) {
        let disk = self.log_dir.disk();
        for Aside { path, lock } in std::mem::take(&mut self.by_parent).into_values() {
            let _ = remove_all(disk, &path, DEPTH_MAX);
            lock.release();
            // On a network file system an open file stays in its folder until it is closed. A folder that cannot be removed waits as a
            // deleted topic does.
            if remove_all(disk, &path, DEPTH_MAX).is_err()
                && let Ok(writer) = self.log_dir.writer()
            {
                let due = self.log_dir.0.now();
                guard(&writer.pending_deletes).push(PendingDelete { path, due });
            }
        }
    }
}

impl LogDir {
    /// Makes the directories, and gives them their names in the order of `places`. Returns the directory of each; they are durable. After
    /// an error those are left that another program has opened meanwhile, or that cannot be taken back; they are complete.
    ///
    /// # Errors
    /// `Io`, `Argument`.
    pub(super) fn make_partitions(
        &self,
        places: &[Place],
        config: &LogConfig,
        topic_id: Option<Uuid>,
    ) -> Result<Vec<(TopicPartition, PathBuf)>> {
        let disk = self.disk();
        let mut asides = Asides {
            log_dir: self,
            by_parent: BTreeMap::new(),
        };
        let mut filled = Vec::with_capacity(places.len());
        for (partition, parent) in places {
            let name = directory_name(&partition.topic, partition.partition)
                .map_err(|error| Error::argument("name", error.fault.to_string()))?;
            if !asides.by_parent.contains_key(parent) {
                let path = self.delete_target(&parent.join(&name), partition)?;
                create_directory(disk, &path)?;
                let lock = lock_partition(disk, &path).inspect_err(|_| {
                    let _ = remove_all(disk, &path, DEPTH_MAX);
                })?;
                let aside = Aside { path, lock };
                asides.by_parent.insert(parent.clone(), aside);
            }
            let Some(aside) = asides.by_parent.get(parent) else {
                continue;
            };
            let building = aside.path.join(&name);
            create_directory(disk, &building)?;
            fill(disk, &building, config, topic_id)?;
            filled.push((partition, building, parent.join(&name)));
        }
        let mut renamed = 0;
        let mut publish = || -> Result<()> {
            for (_, building, path) in &filled {
                disk.rename(building, path)
                    .map_err(|error| Error::io(IoCall::Rename, path, error))?;
                renamed += 1;
            }
            for (parent, aside) in &asides.by_parent {
                for folder in [&aside.path, parent] {
                    disk.sync_directory(folder)
                        .map_err(|error| Error::io(IoCall::SyncDirectory, folder, error))?;
                }
            }
            Ok(())
        };
        if let Err(error) = publish() {
            for (_, building, path) in filled.iter().take(renamed) {
                self.take_back(path, building);
            }
            for parent in asides.by_parent.keys() {
                let _ = disk.sync_directory(parent);
            }
            return Err(error);
        }
        let made = filled.into_iter();
        Ok(made
            .map(|(partition, _, path)| (partition.clone(), path))
            .collect())
    }

    /// Moves a directory back to where it was made, unless somebody has opened it.
    fn take_back(&self, path: &Path, building: &Path) {
        let locked = match lock_partition(self.disk(), path) {
            // A full disk has no room for the lock file, which any process that has opened the partition has made.
            Err(error) if lacks_room(&error) => lock_idle(self.disk(), path),
            locked => locked.map(Some),
        };
        let Ok(Some(lock)) = locked else { return };
        // Nobody can append now, and without a segment nobody has.
        if matches!(self.was_used(path), Ok(false)) {
            let _ = self.disk().rename(path, building);
        }
        lock.release();
    }
}

fn lacks_room(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { source, .. } if is_out_of_room(source))
}

fn create_directory(disk: &dyn Disk, path: &Path) -> Result<()> {
    disk.create_directory(path)
        .map_err(|error| Error::io(IoCall::Create, path, error))
}

fn fill(disk: &dyn Disk, path: &Path, config: &LogConfig, topic_id: Option<Uuid>) -> Result<()> {
    if let Some(topic_id) = topic_id {
        let metadata = PartitionMetadata {
            version: PARTITION_METADATA_VERSION,
            topic_id,
        };
        let file = path.join(PARTITION_METADATA);
        write_whole(disk, &file, &metadata.write())
            .map_err(|failed| Error::failed_call(&file, failed))?;
    }
    if config.given().next().is_some() {
        write_config(disk, path, config)?;
    }
    Ok(())
}
