//! Where a log keeps what a broker keeps in its log dir: recovery point, log start offset, the mark of a clean end, settings.
//!
//! A partition directory in any folder keeps them inside itself, in files that a broker ignores. In a log dir the checkpoints and
//! the clean marker beside it rule, because a broker reads and writes those; the own file then only tells whether *this*
//! partition was closed cleanly and not touched since.

mod cleaner_point;

use super::state::{CleanMark, Lines, State, Unclean};
use crate::config::LogConfig;
use crate::disk::{Disk, LockKind, SYNC_NAMES, read_whole, write_whole};
use crate::error::{Error, Result};
use crate::segment::Directory;
use offsetlog_format::clean_shutdown::{read_broker_epoch, write_clean_shutdown};
use offsetlog_format::name::{CLEAN_SHUTDOWN, LOCK, META_PROPERTIES};
use offsetlog_format::{OffsetCheckpoint, OffsetCheckpointFile, PartitionOffset};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Settings of the partition.
pub(crate) const CONFIG_FILE: &str = ".offsetlog.config";
/// Recovery point, log start offset and clean mark of the partition.
pub(crate) const STATE_FILE: &str = ".offsetlog.state";
/// Exclusive lock of the partition's writer.
pub(crate) const LOCK_FILE: &str = ".offsetlog.lock";
/// In a log dir: the partitions that writers of ours have not closed, and the marker to be restored when the last one is.
const UNCLEAN_FILE: &str = "offsetlog-unclean";
/// In a log dir: held while one of our processes changes a file that all partitions share.
const SHARED_LOCK_FILE: &str = "offsetlog-shared.lock";

/// The boot id on systems that have none.
const UNKNOWN_BOOT: u128 = 0;

/// What stands on the disk about a partition's last writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Start {
    pub(super) clean: bool,
    /// A writer of ours closed the log, and the segment with this base offset is as it left it: a clean end, if that is still the
    /// last one.
    pub(super) own: Option<i64>,
    /// A writer of ours ended since the machine was started without closing the log: the system's cache may show what a disk that
    /// failed does not hold.
    pub(super) same_boot: bool,
    /// A writer of ours ended without closing the log: beyond this offset power loss may have taken any bytes, also of segments that
    /// others follow.
    pub(super) crashed_beyond: Option<i64>,
    /// The log start offset is the one that a writer of ours noted.
    pub(super) noted_by_us: bool,
    pub(super) recovery_point: i64,
    /// Everything below is on the disk, as far as is written down. A recovery point that a caller names says only from where on to read.
    pub(super) durable: i64,
    pub(super) log_start_offset: i64,
}

/// A partition's place and how it is marked.
#[derive(Debug)]
pub(in crate::log) struct Place {
    directory: Arc<Directory>,
    /// The log dir, where the folder around the partition is one.
    log_dir: Option<PathBuf>,
    topic: String,
    partition: i32,
    marked_unclean: bool,
    /// As in [`State`].
    cleaner: Option<i64>,
    /// Everything below was durable when the last writer of ours ended, whatever recovery point this one was told to begin with.
    /// Outside a log dir only: in one, a broker may have been there.
    durable: i64,
}

impl Place {
    pub(in crate::log) fn new(
        directory: &Arc<Directory>,
        topic: &str,
        partition: i32,
    ) -> Result<Self> {
        let log_dir = match directory.path.parent() {
            Some(parent) if is_log_dir(directory.disk.as_ref(), parent)? => {
                Some(parent.to_path_buf())
            }
            _ => None,
        };
        Ok(Self {
            directory: Arc::clone(directory),
            log_dir,
            topic: topic.to_owned(),
            partition,
            marked_unclean: false,
            cleaner: None,
            durable: 0,
        })
    }

    pub(super) const fn durable(&self) -> i64 {
        self.durable
    }

    /// What is known to be durable ends at `offset`: the log does, or is about to.
    pub(super) fn limit_durable(&mut self, offset: i64) {
        self.durable = self.durable.min(offset);
    }

    pub(super) const fn is_marked_unclean(&self) -> bool {
        self.marked_unclean
    }

    pub(super) fn log_dir(&self) -> Option<&Path> {
        self.log_dir.as_deref()
    }

    fn disk(&self) -> &dyn Disk {
        self.directory.disk.as_ref()
    }

    fn state_path(&self) -> PathBuf {
        self.directory.path.join(STATE_FILE)
    }

    /// What the marks and checkpoints say; a file that cannot be read counts as not there, as in a broker, and leaves a warning.
    pub(super) fn read(&mut self, warnings: &mut Vec<String>) -> Result<Start> {
        let state = read_state(self.disk(), &self.state_path(), warnings)?;
        self.cleaner = state.and_then(|state| state.cleaner);
        let own = state
            .and_then(|state| state.clean)
            .filter(|&mark| self.matches(mark))
            .map(|mark| mark.active_base);
        let crashed = state.filter(|state| state.boot.is_some());
        let same_boot = crashed.is_some_and(|state| {
            state.boot.filter(|&boot| boot != UNKNOWN_BOOT) == self.disk().boot_id()
        });
        let Some(log_dir) = &self.log_dir else {
            let crashed_beyond = crashed.map(|state| state.recovery_point);
            let state = state.unwrap_or_default();
            if own.is_some() || crashed_beyond.is_some() {
                self.durable = state.recovery_point;
            }
            return Ok(Start {
                clean: false,
                own,
                same_boot,
                crashed_beyond,
                noted_by_us: true,
                recovery_point: state.recovery_point,
                durable: state.recovery_point,
                log_start_offset: state.log_start,
            });
        };
        let mut entry = |file: OffsetCheckpointFile| -> Result<Option<i64>> {
            let path = log_dir.join(file.name());
            let checkpoint = match self.read_checkpoint(&path) {
                Ok(checkpoint) => checkpoint,
                Err(error) if error.is_corruption() => {
                    warnings.push(format!("ignored: {error}"));
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            Ok(checkpoint.offset_of(&self.topic, self.partition))
        };
        let recovery_point = entry(OffsetCheckpointFile::RecoveryPoint)?;
        let log_start = entry(OffsetCheckpointFile::LogStartOffset)?;
        let recovery_point = recovery_point.unwrap_or(0);
        Ok(Start {
            own,
            same_boot,
            // Unless a broker had the log after us.
            crashed_beyond: crashed
                .filter(|state| state.notes(|lines| lines.recovery_point == recovery_point))
                .map(|_| recovery_point),
            noted_by_us: state
                .is_some_and(|state| state.notes(|lines| Some(lines.log_start) == log_start)),
            clean: self.disk().stat(&log_dir.join(CLEAN_SHUTDOWN)).is_ok(),
            recovery_point,
            durable: recovery_point,
            log_start_offset: log_start.unwrap_or(0),
        })
    }

    /// Whether the active segment is as it was when the mark was made.
    fn matches(&self, mark: CleanMark) -> bool {
        let name = format!("{:020}.log", mark.active_base);
        self.disk()
            .stat(&self.directory.path.join(name))
            .is_ok_and(|stat| stat.size == mark.size && stat.modified_ns == mark.modified_ns)
    }

    /// Takes the clean marks away, durably, before the first change of a file.
    pub(super) fn mark_unclean(&mut self, recovery_point: i64, log_start: i64) -> Result<()> {
        if self.marked_unclean {
            return Ok(());
        }
        self.write_state(&State {
            // In a log dir: what stands there, to see whether a broker moves it.
            recovery_point: match &self.log_dir {
                Some(log_dir) => self.line(log_dir, OffsetCheckpointFile::RecoveryPoint)?,
                None => recovery_point,
            },
            boot: Some(self.boot()),
            ..State::new(recovery_point, log_start)
        })?;
        if let Some(log_dir) = self.log_dir.clone() {
            self.leave_marker(&log_dir)?;
        }
        self.marked_unclean = true;
        Ok(())
    }

    fn boot(&self) -> u128 {
        self.disk().boot_id().unwrap_or(UNKNOWN_BOOT)
    }

    /// The partition's line in a checkpoint of the log dir, 0 without one.
    fn line(&self, log_dir: &Path, file: OffsetCheckpointFile) -> Result<i64> {
        let checkpoint = match self.read_checkpoint(&log_dir.join(file.name())) {
            Err(error) if error.is_corruption() => OffsetCheckpoint::default(),
            read => read?,
        };
        let offset = checkpoint.offset_of(&self.topic, self.partition);
        Ok(offset.unwrap_or(0))
    }

    /// The partition is gone: so are its lines in the log dir.
    pub(in crate::log) fn forget(&self) -> Result<()> {
        let log_dir = self.log_dir.clone().unwrap_or_default();
        let _shared = self.share(&log_dir)?;
        for file in OffsetCheckpointFile::ALL {
            self.set_line(&log_dir.join(file.name()), None)?;
        }
        self.no_longer_unclean(&log_dir)
    }

    /// Removes the log dir's clean marker and notes that this partition is the reason.
    fn leave_marker(&self, log_dir: &Path) -> Result<()> {
        let _shared = self.share(log_dir)?;
        let marker = log_dir.join(CLEAN_SHUTDOWN);
        let list = log_dir.join(UNCLEAN_FILE);
        let mut unclean = match read_small(self.disk(), &marker)? {
            Some(bytes) => Unclean {
                broker_epoch: read_broker_epoch(&bytes).unwrap_or(-1),
                partitions: Vec::new(),
            },
            None => match read_small(self.disk(), &list)? {
                Some(bytes) => Unclean::parse(&bytes),
                // Nobody said that the log dir was clean: there is nothing to restore.
                None => return Ok(()),
            },
        };
        let name = self.name();
        if !unclean.partitions.contains(&name) {
            unclean.partitions.push(name);
        }
        self.write(&list, unclean.text().as_bytes())?;
        self.remove(&marker)
    }

    /// Notes a clean end; everything else is on the disk already.
    pub(super) fn mark_clean(&mut self, state: State, mark: CleanMark) -> Result<()> {
        self.write_state(&State {
            clean: Some(mark),
            ..state
        })?;
        self.marked_unclean = false;
        let Some(log_dir) = self.log_dir.clone() else {
            return Ok(());
        };
        let _shared = self.share(&log_dir)?;
        self.no_longer_unclean(&log_dir)
    }

    /// Takes the partition from the list of those that are not closed; behind the last one the log dir is clean again.
    fn no_longer_unclean(&self, log_dir: &Path) -> Result<()> {
        let list = log_dir.join(UNCLEAN_FILE);
        let Some(bytes) = read_small(self.disk(), &list)? else {
            return Ok(());
        };
        let mut unclean = Unclean::parse(&bytes);
        let name = self.name();
        unclean.partitions.retain(|partition| *partition != name);
        if !unclean.partitions.is_empty() {
            return self.write(&list, unclean.text().as_bytes());
        }
        self.write(
            &log_dir.join(CLEAN_SHUTDOWN),
            &write_clean_shutdown(unclean.broker_epoch),
        )?;
        self.remove(&list)
    }

    /// Writes recovery point and log start offset where the next opening reads them. `first_base` decides, as in a broker,
    /// whether the log dir needs a line for the log start offset.
    pub(super) fn checkpoint(
        &self,
        state: State,
        high_watermark: i64,
        first_base: i64,
    ) -> Result<()> {
        let Some(log_dir) = &self.log_dir else {
            let boot = Some(self.boot());
            return self.write_state(&State { boot, ..state });
        };
        let _shared = self.share(log_dir)?;
        let lines = [
            (
                OffsetCheckpointFile::RecoveryPoint,
                Some(state.recovery_point),
            ),
            (
                OffsetCheckpointFile::LogStartOffset,
                (state.log_start > first_base).then_some(state.log_start),
            ),
            (OffsetCheckpointFile::HighWatermark, Some(high_watermark)),
        ];
        let state = State {
            boot: Some(self.boot()),
            ..state
        };
        let before = Lines {
            recovery_point: self.line(log_dir, OffsetCheckpointFile::RecoveryPoint)?,
            log_start: self.line(log_dir, OffsetCheckpointFile::LogStartOffset)?,
        };
        if before != state.lines() {
            // Until all is written both count as ours: a crash in between must not look like a broker's doing.
            let before = Some(before);
            self.write_state(&State { before, ..state })?;
        }
        for (file, offset) in lines {
            self.set_line(&log_dir.join(file.name()), offset)?;
        }
        self.write_state(&state)
    }

    fn set_line(&self, path: &Path, offset: Option<i64>) -> Result<()> {
        // A checkpoint that cannot be read is empty to a broker too.
        let mut checkpoint = match self.read_checkpoint(path) {
            Ok(checkpoint) => checkpoint,
            Err(error) if error.is_corruption() => OffsetCheckpoint::default(),
            Err(error) => return Err(error),
        };
        let before = checkpoint.clone();
        let is_ours = |entry: &PartitionOffset| {
            entry.partition == self.partition && entry.topic == self.topic
        };
        match (
            checkpoint.entries.iter_mut().find(|entry| is_ours(entry)),
            offset,
        ) {
            (Some(entry), Some(offset)) => entry.offset = offset,
            (None, Some(offset)) => checkpoint.entries.push(PartitionOffset {
                topic: self.topic.clone(),
                partition: self.partition,
                offset,
            }),
            (_, None) => checkpoint.entries.retain(|entry| !is_ours(entry)),
        }
        if checkpoint == before {
            return Ok(());
        }
        let bytes = checkpoint
            .write()
            .map_err(|error| Error::new(error).at_path(path))?;
        self.write(path, &bytes)
    }

    fn read_checkpoint(&self, path: &Path) -> Result<OffsetCheckpoint> {
        match read_small(self.disk(), path)? {
            Some(bytes) => {
                OffsetCheckpoint::parse(&bytes).map_err(|error| Error::new(error).at_path(path))
            }
            None => Ok(OffsetCheckpoint::default()),
        }
    }

    /// Keeps our other processes away from what the partitions share; held for a few small writes.
    fn share(&self, log_dir: &Path) -> Result<crate::disk::Lock> {
        let path = log_dir.join(SHARED_LOCK_FILE);
        let mut waited = 0;
        loop {
            let lock = self
                .disk()
                .lock(&path, LockKind::Exclusive)
                .map_err(|error| Error::io("lock", &path, error))?;
            if let Some(lock) = lock {
                return Ok(lock);
            }
            if waited >= 10_000 {
                let busy = io::Error::new(io::ErrorKind::TimedOut, "held for more than 10 s");
                return Err(Error::io("lock", &path, busy));
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
            waited += 2;
        }
    }

    fn name(&self) -> String {
        format!("{}-{}", self.topic, self.partition)
    }

    fn write_state(&self, state: &State) -> Result<()> {
        let state = State {
            recovery_point: state.recovery_point.max(self.durable),
            cleaner: self.cleaner,
            ..*state
        };
        self.write(&self.state_path(), state.text().as_bytes())
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        write_whole(self.disk(), path, bytes).map_err(|failed| Error::failed_call(path, failed))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let removed = match self.disk().unlink(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other,
        };
        removed.map_err(|error| Error::io("remove", path, error))?;
        match path.parent() {
            Some(parent) => self
                .disk()
                .sync_directory(parent)
                .map_err(|error| Error::io(SYNC_NAMES, parent, error)),
            None => Ok(()),
        }
    }
}

/// A folder that a broker keeps logs in, or that is prepared for one.
pub(crate) fn is_log_dir(disk: &dyn Disk, path: &Path) -> Result<bool> {
    let marks = [META_PROPERTIES, LOCK, UNCLEAN_FILE]
        .into_iter()
        .chain(OffsetCheckpointFile::ALL.iter().map(|file| file.name()));
    for name in marks {
        let mark = path.join(name);
        match disk.stat(&mark) {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("look at", &mark, error)),
        }
    }
    Ok(false)
}

/// The settings stored with a partition, if any.
pub(crate) fn read_config(disk: &dyn Disk, directory: &Path) -> Result<Option<LogConfig>> {
    let path = directory.join(CONFIG_FILE);
    match read_small(disk, &path)? {
        Some(bytes) => LogConfig::read_file(&bytes)
            .map(Some)
            .map_err(|error| error.at_path(&path)),
        None => Ok(None),
    }
}

pub(crate) fn write_config(disk: &dyn Disk, directory: &Path, config: &LogConfig) -> Result<()> {
    let path = directory.join(CONFIG_FILE);
    write_whole(disk, &path, &config.write_file())
        .map_err(|failed| Error::failed_call(&path, failed))
}

/// The partition's own log start offset, for readers; `None` where no writer of ours left one.
pub(crate) fn read_state(
    disk: &dyn Disk,
    path: &Path,
    warnings: &mut Vec<String>,
) -> Result<Option<State>> {
    let Some(bytes) = read_small(disk, path)? else {
        return Ok(None);
    };
    let state = State::parse(&bytes);
    if state.is_none() {
        warnings.push(format!("ignored: {} cannot be read", path.display()));
    }
    Ok(state)
}

fn read_small(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>> {
    match read_whole(disk, path, 16 << 20) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path, error)),
    }
}

/// Whether an entry of a partition directory is a file of ours.
pub(super) fn is_ours(name: &str) -> bool {
    name.starts_with(".offsetlog") || name.starts_with("offsetlog-")
}
