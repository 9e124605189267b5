//! The producer snapshots that a recovery leaves for its end, so that a log of many segments waits for the disk once: which to delete, and
//! which to sync.
//!
//! Source: Kafka's `LogLoader.recoverSegment`, which deletes the snapshots behind a segment, writes one at its end, and syncs each. Wherever a
//! recovery ends instead, nobody takes what it left for right: a snapshot has a checksum, the next recovery doubts the same ones again, and a
//! loading deletes those beyond the end of the log.

use super::interrupted_swaps;
use crate::disk::{Access, Disk, IoCall, replace_file};
use crate::error::{Error, Result};
use crate::segment::{Directory, segment_path};
use crate::together::with_each;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// When so many wait they are synced: the system forgets that it could not write a file when it drops the file from memory.
const UNSYNCED_MAX: usize = 256;

/// What is left to do.
#[derive(Debug, Default)]
pub(in crate::log) struct DueSnapshots {
    /// Those that are there and do not count any more.
    doubted: BTreeSet<i64>,
    unsynced: BTreeSet<i64>,
    /// What the system shows of a file may not be on the disk: a sync may have failed since the machine was switched on.
    is_cache_doubtful: bool,
    /// Names changed since the directory was synced.
    has_new_names: bool,
}

impl DueSnapshots {
    pub(super) fn new(is_cache_doubtful: bool) -> Self {
        Self {
            is_cache_doubtful,
            ..Self::default()
        }
    }

    /// A snapshot does not count any more.
    pub(super) fn doubt(&mut self, offset: i64) {
        self.doubted.insert(offset);
        self.unsynced.remove(&offset);
    }

    /// Whether a snapshot that was doubted has these bytes, and can be synced. Then it counts again.
    pub(super) fn keep_if_same(
        &mut self,
        directory: &Directory,
        offset: i64,
        bytes: &[u8],
    ) -> Result<bool> {
        if self.is_cache_doubtful || !self.doubted.contains(&offset) {
            return Ok(false);
        }
        let path = segment_path(&directory.path, offset, ".snapshot");
        match has_bytes(directory.disk.as_ref(), &path, bytes) {
            Ok(false) => return Ok(false),
            Ok(true) => {}
            // It is replaced.
            Err(error) if is_not_ours(&error) => return Ok(false),
            Err(error) => return Err(Error::io(IoCall::Read, &path, error)),
        }
        self.doubted.remove(&offset);
        // Its writer may have ended before it was synced.
        self.unsynced.insert(offset);
        Ok(true)
    }

    /// Puts a snapshot in place.
    pub(super) fn write(&mut self, directory: &Directory, offset: i64, bytes: &[u8]) -> Result<()> {
        let path = segment_path(&directory.path, offset, ".snapshot");
        let put = || {
            replace_file(directory.disk.as_ref(), &path, bytes)
                .map_err(|failed| Error::failed_call(&path, failed))
        };
        match put() {
            Err(error) if error.is_out_of_room() && !self.doubted.is_empty() => {
                self.delete_doubted(directory)?;
                put()?;
            }
            done => done?,
        }
        self.doubted.remove(&offset);
        self.has_new_names = true;
        self.unsynced.insert(offset);
        Ok(())
    }

    /// Whether so many wait for being synced that it is done now, in a recovery that goes on.
    pub(super) fn has_many_unsynced(&self) -> bool {
        self.unsynced.len() >= UNSYNCED_MAX
    }

    /// Whether some wait for being deleted.
    pub(super) fn has_doubted(&self) -> bool {
        !self.doubted.is_empty()
    }

    /// Makes durable what was written, and deletes what is doubted. `before_change` is called before the first one is deleted.
    pub(super) fn settle(
        &mut self,
        directory: &Directory,
        before_change: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        self.sync(directory, before_change)?;
        if self.has_doubted() {
            before_change()?;
            self.delete_doubted(directory)?;
        }
        if !std::mem::take(&mut self.has_new_names) {
            return Ok(());
        }
        directory
            .disk
            .sync_directory(&directory.path)
            .map_err(|error| Error::io(IoCall::SyncDirectory, &directory.path, error))
    }

    /// Deletes what is doubted, now: it makes room.
    pub(super) fn delete_doubted(&mut self, directory: &Directory) -> Result<()> {
        for offset in std::mem::take(&mut self.doubted) {
            let path = segment_path(&directory.path, offset, ".snapshot");
            interrupted_swaps::remove(directory.disk.as_ref(), &path)?;
        }
        Ok(())
    }

    /// Syncs what waits for it. What cannot be synced is deleted: the system would show it, and sync it later without an error, although the
    /// disk does not have it.
    pub(super) fn sync(
        &mut self,
        directory: &Directory,
        before_change: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let disk = directory.disk.as_ref();
        let path_of = |&offset: &i64| segment_path(&directory.path, offset, ".snapshot");
        let paths: Vec<PathBuf> = self.unsynced.iter().map(path_of).collect();
        self.unsynced.clear();
        let failed = Mutex::new(Vec::new());
        let synced = with_each(&paths, |path| {
            let Err(error) = sync(disk, path) else {
                return Ok(());
            };
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.push(path.clone());
            // Without it the next opening scans more. A log on a full disk must open, so that room can be made.
            if error.is_out_of_room() {
                return Ok(());
            }
            Err(error)
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        if !failed.is_empty() {
            before_change()?;
        }
        let removed = failed
            .iter()
            .try_for_each(|path| interrupted_swaps::remove(disk, path));
        // Of two failures the first one.
        synced.and(removed)
    }
}

/// Whether a file holds these bytes and no others. It is opened as for its sync.
fn has_bytes(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let file = disk.open(path, Access::Write)?;
    if file.stat_at_open()?.size != bytes.len() as u64 {
        return Ok(false);
    }
    let mut found = vec![0; bytes.len()];
    Ok(file.read_at(&mut found, 0)? == bytes.len() && found == bytes)
}

/// Whether it is the file that is wrong, not the disk.
fn is_not_ours(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
    )
}

/// Syncs a snapshot, unless it was removed since.
fn sync(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.open(path, Access::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        file => file
            .and_then(|file| file.sync_all())
            .map_err(|error| Error::io(IoCall::Sync, path, error)),
    }
}
