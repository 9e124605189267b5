//! The files that the partitions of a log dir share: the checkpoints, with a line for each partition, and the clean-shutdown marker.
//!
//! A log that is opened alone updates these files at once. A program that has the whole log dir open collects the lines of its
//! partitions, as a broker does, and writes them together. Lines that must not be lost in between are written at once there too.

use super::{STATE_FILE, Unclean, read_small, read_state};
use crate::checkpoints::Checkpoints;
use crate::disk::{Disk, EntryKind, FileStat, IoCall, Lock, LockKind, write_whole};
use crate::error::{Error, Result};
use crate::folder::UNCLEAN_FILE;
use offsetlog_format::clean_shutdown::{read_broker_epoch, write_clean_shutdown};
use offsetlog_format::name::{CLEAN_SHUTDOWN, DirectoryName, DirectoryState, LOCK};
use offsetlog_format::{OffsetCheckpoint, OffsetCheckpointFile, PartitionOffset};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The file of a log dir that a process locks while it changes a file that all partitions share: see [`lock_shared_files`].
pub const SHARED_LOCK_FILE: &str = "offsetlog-shared.lock";
/// An entry of the list that stands for all partitions: their own state files decide. A program that has the whole log dir open writes
/// it.
const ANY: &str = "*";
/// How often collected lines are written: a broker's `log.flush.offset.checkpoint.interval.ms`.
pub(crate) const CHECKPOINT_INTERVAL_MS: i64 = 60_000;

/// A checkpoint file, and the value for a partition's line in it; `None` removes the line.
pub(crate) type CheckpointUpdate = (OffsetCheckpointFile, Option<i64>);

/// The files of one log dir that its partitions share.
#[derive(Debug)]
pub(crate) struct LogDirFiles {
    checkpoints: Arc<Checkpoints>,
    /// Whether lines are collected until [`write_lines`](Self::write_lines).
    defers_writes: bool,
    waiting: Mutex<PendingUpdates>,
}

/// Lines by partition.
type ByPartition = HashMap<(String, i32), Option<i64>>;

#[derive(Debug, Default)]
struct PendingUpdates {
    lines: BTreeMap<OffsetCheckpointFile, ByPartition>,
    /// When the last interval of [`write_lines_in_time`](LogDirFiles::write_lines_in_time) began, in ms since 1970.
    written: Option<i64>,
    /// The list's stat when it last named what this program needs.
    listed: Option<FileStat>,
    /// Of partitions with waiting lines whose lock this program has given back: their state file at that moment. Each of our writers
    /// writes that file before its first change.
    left: HashMap<(String, i32), Option<FileStat>>,
}

impl PendingUpdates {
    fn drop_lines(&mut self, of: &(String, i32)) {
        for by_partition in self.lines.values_mut() {
            by_partition.remove(of);
        }
        self.left.remove(of);
    }

    fn take(&mut self, lines: &[CheckpointUpdate], of: &(String, i32)) {
        for (file, _) in lines {
            if let Some(by_partition) = self.lines.get_mut(file) {
                by_partition.remove(of);
            }
        }
    }
}

impl LogDirFiles {
    /// For a log that is opened alone: every change is written at once.
    pub(crate) fn new(checkpoints: &Arc<Checkpoints>) -> Self {
        Self::with(checkpoints, false)
    }

    /// For all logs of the log dir.
    pub(crate) fn gathering(checkpoints: &Arc<Checkpoints>) -> Self {
        Self::with(checkpoints, true)
    }

    fn with(checkpoints: &Arc<Checkpoints>, defers_writes: bool) -> Self {
        Self {
            checkpoints: Arc::clone(checkpoints),
            defers_writes,
            waiting: Mutex::default(),
        }
    }

    pub(crate) fn checkpoints(&self) -> &Arc<Checkpoints> {
        &self.checkpoints
    }

    /// Whether lines are collected before they are written.
    pub(crate) const fn defers_writes(&self) -> bool {
        self.defers_writes
    }

    fn disk(&self) -> &dyn Disk {
        self.checkpoints.disk().as_ref()
    }

    /// Writes the state file of a partition whose lock this program holds. Another process that has lines of it to write has written
    /// them before, or finds a new state file.
    ///
    /// # Errors
    /// `Io`; those of `write`.
    pub(crate) fn hold(
        &self,
        topic: &str,
        partition: i32,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        // In this order, as everywhere: the lines of this process, then the files of all.
        let mut waiting = self.waiting();
        let _shared = self.share()?;
        write()?;
        waiting.left.remove(&(topic.to_owned(), partition));
        Ok(())
    }

    /// Records that the partition's lock is about to be given back. Another process may change the partition from then on: lines that
    /// still wait are then no longer true.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn leave(&self, topic: &str, partition: i32) -> Result<()> {
        if !self.defers_writes {
            return Ok(());
        }
        let of = (topic.to_owned(), partition);
        let state = self.state_of(&of)?;
        self.waiting().left.insert(of, state);
        Ok(())
    }

    /// Drops the waiting lines of a partition that is given back without [`leave`](Self::leave), after an error.
    pub(crate) fn give_up(&self, topic: &str, partition: i32) {
        let mut waiting = self.waiting();
        let of = (topic.to_owned(), partition);
        if !waiting.left.contains_key(&of) {
            waiting.drop_lines(&of);
        }
    }

    fn state_of(&self, (topic, partition): &(String, i32)) -> Result<Option<FileStat>> {
        let directory = self.log_dir().join(format!("{topic}-{partition}"));
        self.look_at(&directory.join(STATE_FILE))
    }

    /// Whether another process has opened the partition for appending since its lines were left waiting.
    fn is_stale(&self, waiting: &PendingUpdates, of: &(String, i32)) -> Result<bool> {
        match waiting.left.get(of) {
            Some(left) => Ok(self.state_of(of)? != *left),
            None => Ok(false),
        }
    }

    pub(crate) fn log_dir(&self) -> &Path {
        self.checkpoints.log_dir()
    }

    /// Returns the value of a partition's line, including one that is not written yet.
    ///
    /// # Errors
    /// `Io`; those of damage in the checkpoint.
    pub(crate) fn line(
        &self,
        file: OffsetCheckpointFile,
        topic: &str,
        partition: i32,
    ) -> Result<Option<i64>> {
        let mut waiting = self.waiting();
        let of = (topic.to_owned(), partition);
        if self.is_stale(&waiting, &of)? {
            waiting.drop_lines(&of);
        }
        match waiting.lines.get(&file).and_then(|lines| lines.get(&of)) {
            Some(&line) => Ok(line),
            None => self.checkpoints.offset_of(file, topic, partition),
        }
    }

    /// Returns the value of a partition's line on the disk. An unreadable checkpoint counts as empty, as in a broker.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn line_on_disk(
        &self,
        file: OffsetCheckpointFile,
        topic: &str,
        partition: i32,
    ) -> Result<Option<i64>> {
        match self.checkpoints.offset_of(file, topic, partition) {
            Err(error) if error.is_corruption() => Ok(None),
            read => read,
        }
    }

    /// Drops a partition's unwritten lines, because new ones follow.
    pub(crate) fn withdraw(&self, lines: &[CheckpointUpdate], topic: &str, partition: i32) {
        self.waiting().take(lines, &(topic.to_owned(), partition));
    }

    /// Sets a partition's lines. Writes them at once, with all collected ones, or leaves them for the next write.
    ///
    /// # Errors
    /// `Io`; then these lines are not kept for the next write either.
    pub(crate) fn set_lines(
        &self,
        lines: &[CheckpointUpdate],
        topic: &str,
        partition: i32,
        at_once: bool,
    ) -> Result<()> {
        let mut waiting = self.waiting();
        let of = (topic.to_owned(), partition);
        for &(file, offset) in lines {
            let by_partition = waiting.lines.entry(file).or_default();
            by_partition.insert(of.clone(), offset);
        }
        waiting.left.remove(&of);
        if !at_once && self.defers_writes {
            return Ok(());
        }
        let written = self.write_waiting(&mut waiting);
        if written.is_err() {
            waiting.take(lines, &of);
        }
        written
    }

    /// Removes the lines of a partition that is deleted or about to be created. `log_start` is the new partition's log start offset, if
    /// that is not the base offset of its first segment.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn forget(&self, topic: &str, partition: i32, log_start: Option<i64>) -> Result<()> {
        let lines = OffsetCheckpointFile::ALL.map(|file| match file {
            OffsetCheckpointFile::LogStartOffset => (file, log_start),
            _ => (file, None),
        });
        self.set_lines(&lines, topic, partition, false)?;
        if self.defers_writes {
            // Another process may create a partition of this name before the lines are written.
            self.leave(topic, partition)
        } else {
            self.settle()
        }
    }

    /// As [`forget`](Self::forget) for a partition that is about to be created, and that lines of an earlier one must not be found for. Lines
    /// that promise nothing wait with the others.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn forget_stale(
        &self,
        topic: &str,
        partition: i32,
        log_start: Option<i64>,
    ) -> Result<()> {
        let mut is_stale = false;
        for file in OffsetCheckpointFile::ALL {
            let line = self.line_on_disk(file, topic, partition)?.unwrap_or(0);
            let wanted = match file {
                OffsetCheckpointFile::LogStartOffset => log_start.unwrap_or(0),
                _ => 0,
            };
            is_stale |= line.max(0) != wanted;
        }
        let lines = OffsetCheckpointFile::ALL.map(|file| match file {
            OffsetCheckpointFile::LogStartOffset => (file, log_start),
            _ => (file, None),
        });
        self.set_lines(&lines, topic, partition, is_stale)
    }

    /// Writes the collected lines.
    ///
    /// # Errors
    /// `Io`; the lines that were not written are kept.
    pub(crate) fn write_lines(&self) -> Result<()> {
        self.write_waiting(&mut self.waiting())
    }

    /// Writes the collected lines, unless this function did so in the last minute.
    ///
    /// # Errors
    /// As [`write_lines`](Self::write_lines).
    pub(crate) fn write_lines_in_time(&self, now: i64) -> Result<()> {
        let mut waiting = self.waiting();
        let since = *waiting.written.get_or_insert(now);
        if now.saturating_sub(since) < CHECKPOINT_INTERVAL_MS {
            return Ok(());
        }
        waiting.written = Some(now);
        self.write_waiting(&mut waiting)
    }

    fn write_waiting(&self, waiting: &mut PendingUpdates) -> Result<()> {
        if waiting.lines.values().all(HashMap::is_empty) {
            return Ok(());
        }
        let _shared = self.share()?;
        let left: Vec<_> = waiting.left.keys().cloned().collect();
        for of in left {
            if self.is_stale(waiting, &of)? {
                waiting.drop_lines(&of);
            }
        }
        for (file, lines) in &mut waiting.lines {
            self.write_checkpoint(*file, lines)?;
            lines.clear();
        }
        waiting.left.clear();
        Ok(())
    }

    fn write_checkpoint(&self, file: OffsetCheckpointFile, lines: &ByPartition) -> Result<()> {
        let before = match self.checkpoints.read(file) {
            Err(error) if error.is_corruption() => OffsetCheckpoint::default(),
            read => read?,
        };
        let mut after = OffsetCheckpoint::default();
        let mut rest = lines.clone();
        for entry in &before.entries {
            let of = (entry.topic.clone(), entry.partition);
            let offset = match lines.get(&of) {
                Some(&line) => {
                    // Of duplicate lines one is kept.
                    if rest.remove(&of).is_none() {
                        continue;
                    }
                    line
                }
                None => Some(entry.offset),
            };
            if let Some(offset) = offset {
                after.entries.push(PartitionOffset {
                    offset,
                    ..entry.clone()
                });
            }
        }
        let mut added: Vec<_> = rest.into_iter().collect();
        added.sort_unstable();
        for ((topic, partition), offset) in added {
            if let Some(offset) = offset {
                after.entries.push(PartitionOffset {
                    topic,
                    partition,
                    offset,
                });
            }
        }
        if after == before {
            return Ok(());
        }
        let path = self.checkpoints.path(file);
        let bytes = after
            .write()
            .map_err(|error| Error::new(error).at_path(&path))?;
        self.write(&path, &bytes)
    }

    /// Deletes the clean-shutdown marker durably, and records for whom: for `partition`, or for any if the whole log dir is open.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn leave_marker(&self, partition: &str) -> Result<()> {
        let mut waiting = self.waiting();
        let _shared = self.share()?;
        let marker = self.log_dir().join(CLEAN_SHUTDOWN);
        let list = self.log_dir().join(UNCLEAN_FILE);
        if waiting.listed.is_some() && self.look_at(&list)? == waiting.listed {
            return Ok(());
        }
        let mut unclean = match read_small(self.disk(), &marker)? {
            Some(bytes) => Unclean {
                broker_epoch: read_broker_epoch(&bytes).unwrap_or(-1),
                partitions: Vec::new(),
            },
            None => match read_small(self.disk(), &list)? {
                Some(bytes) => Unclean::parse(&bytes),
                // Nobody said that the log dir was clean: there is no marker to restore.
                None => return Ok(()),
            },
        };
        let name = if self.defers_writes { ANY } else { partition };
        if !unclean.partitions.iter().any(|noted| noted == name) {
            unclean.partitions.push(name.to_owned());
        }
        self.write(&list, unclean.text().as_bytes())?;
        self.remove(&marker)?;
        if self.defers_writes {
            waiting.listed = self.look_at(&list)?;
        }
        Ok(())
    }

    /// Deletes the clean-shutdown marker, and what would restore it. Returns whether there was any.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn forget_marker(&self) -> Result<bool> {
        let _shared = self.share()?;
        let mut found = false;
        for name in [UNCLEAN_FILE, CLEAN_SHUTDOWN] {
            let path = self.log_dir().join(name);
            if self.look_at(&path)?.is_some() {
                self.remove(&path)?;
                found = true;
            }
        }
        Ok(found)
    }

    /// Removes the partitions from the list that were closed cleanly since. When it is empty, restores the clean-shutdown marker.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn settle(&self) -> Result<()> {
        let list = self.log_dir().join(UNCLEAN_FILE);
        // A process that adds itself to the list waits for this, and then sees the result.
        let _shared = self.share()?;
        let Some(bytes) = read_small(self.disk(), &list)? else {
            return Ok(());
        };
        let mut unclean = Unclean::parse(&bytes);
        let mut open = Vec::new();
        for name in &unclean.partitions {
            let is_open = if name == ANY {
                self.is_any_open()?
            } else {
                self.is_open(name, true)?
            };
            if is_open {
                open.push(name.clone());
            }
        }
        if open == unclean.partitions && !open.is_empty() {
            return Ok(());
        }
        unclean.partitions = open;
        if !unclean.partitions.is_empty() {
            return self.write(&list, unclean.text().as_bytes());
        }
        self.write(
            &self.log_dir().join(CLEAN_SHUTDOWN),
            &write_clean_shutdown(unclean.broker_epoch),
        )?;
        self.remove(&list)
    }

    /// Whether a partition's own state file says that a writer of ours has it open or did not close it. Returns `unknown` if there is no
    /// such file, and `true` if it cannot be parsed.
    fn is_open(&self, name: &str, unknown: bool) -> Result<bool> {
        let directory = self.log_dir().join(name);
        if self.look_at(&directory)?.is_none() {
            // The partition was deleted.
            return Ok(false);
        }
        let mut unreadable = Vec::new();
        let state = read_state(self.disk(), &directory.join(STATE_FILE), &mut unreadable)?;
        Ok(match state {
            Some(state) => state.is_open(),
            None => unknown || !unreadable.is_empty(),
        })
    }

    fn is_any_open(&self) -> Result<bool> {
        let entries = self
            .disk()
            .list(self.log_dir())
            .map_err(|error| Error::io(IoCall::List, self.log_dir(), error))?;
        for entry in entries {
            let is_partition = entry.kind == EntryKind::Directory
                && DirectoryName::parse(&entry.name)
                    .is_ok_and(|name| name.state == DirectoryState::Live);
            // A writer writes its state file before it changes anything.
            if is_partition && self.is_open(&entry.name, false)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Calls [`lock_shared_files`] for this log dir.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn share(&self) -> Result<Lock> {
        lock_shared_files(self.disk(), self.log_dir())
    }

    fn look_at(&self, path: &Path) -> Result<Option<FileStat>> {
        look_at(self.disk(), path)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        write_whole(self.disk(), path, bytes).map_err(|failed| Error::failed_call(path, failed))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        remove(self.disk(), self.log_dir(), path)
    }

    fn waiting(&self) -> MutexGuard<'_, PendingUpdates> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Deletes the list if all writers in it are dead. A broker may have used the log dir since and been killed too, so closing our
/// partitions no longer proves that the log dir is clean. Must be called before a writer locks the log dir.
///
/// # Errors
/// `Io`.
pub(crate) fn forget_dead_writers(disk: &dyn Disk, log_dir: &Path) -> Result<()> {
    let list = log_dir.join(UNCLEAN_FILE);
    if look_at(disk, &list)?.is_none() {
        return Ok(());
    }
    // Another process that does the same waits here, and so does one that adds itself to the list.
    let _shared = lock_shared_files(disk, log_dir)?;
    let path = log_dir.join(LOCK);
    let alone = disk
        .lock(&path, LockKind::Exclusive)
        .map_err(|error| Error::io(IoCall::Lock, &path, error))?;
    // Each writer in the list holds a shared lock here for its life. This lock is released before the list is deleted: a process that
    // finds no list does not wait, and must not find the log dir locked.
    match alone {
        Some(alone) => alone.release(),
        None => return Ok(()),
    }
    remove(disk, log_dir, &list)
}

/// Locks the files that the partitions of a log dir share, and their names, against our other processes and threads; held for a few small
/// writes. It is the only lock that is waited for: who holds it must wait for no other, and who takes it for several log dirs takes them
/// in the order of their paths.
///
/// # Errors
/// `Io`, also if others hold it for more than a minute. Each needs a few small writes, which may take seconds on a busy disk.
///
/// ```
/// use offsetlog::disk::RealDisk;
/// use offsetlog::lock_shared_files;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let log_dir = folder.path();
/// let lock = lock_shared_files(&RealDisk, log_dir)?;
/// std::fs::write(log_dir.join("bootstrap.checkpoint"), b"")?;
/// lock.release();
/// # Ok(())
/// # }
/// ```
pub fn lock_shared_files(disk: &dyn Disk, log_dir: &Path) -> Result<Lock> {
    let path = log_dir.join(SHARED_LOCK_FILE);
    let mut waited = 0;
    loop {
        let lock = disk
            .lock(&path, LockKind::Exclusive)
            .map_err(|error| Error::io(IoCall::Lock, &path, error))?;
        if let Some(lock) = lock {
            return Ok(lock);
        }
        if waited >= 60_000 {
            let busy = io::Error::new(io::ErrorKind::TimedOut, "held for more than 60 s");
            return Err(Error::io(IoCall::Lock, &path, busy));
        }
        std::thread::sleep(Duration::from_millis(2));
        waited += 2;
    }
}

fn look_at(disk: &dyn Disk, path: &Path) -> Result<Option<FileStat>> {
    match disk.stat(path) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(IoCall::Stat, path, error)),
    }
}

fn remove(disk: &dyn Disk, log_dir: &Path, path: &Path) -> Result<()> {
    match disk.unlink(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        removed => removed.map_err(|error| Error::io(IoCall::Remove, path, error))?,
    }
    disk.sync_directory(log_dir)
        .map_err(|error| Error::io(IoCall::SyncDirectory, log_dir, error))
}
