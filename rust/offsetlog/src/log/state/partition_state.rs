//! Where a log keeps what a broker keeps in its log dir: recovery point, log start offset, the mark of a clean end, settings.
//!
//! A partition directory in any folder keeps them inside itself, in files that a broker ignores. In a log dir the checkpoints and
//! the clean marker beside it rule, because a broker reads and writes those; the own file then only tells whether *this*
//! partition was closed cleanly and not touched since.

mod cleaner_point;

use super::log_dir_files::LogDirFiles;
use super::state_file::{CleanMark, Lines, State};
use crate::config::LogConfig;
use crate::disk::{Disk, IoCall, read_whole, write_whole};
use crate::error::{Error, Result};
use crate::folder::has_log_dir_files;
use crate::log::Membership;
use crate::segment::Directory;
use offsetlog_format::OffsetCheckpointFile;
use offsetlog_format::name::CLEAN_SHUTDOWN;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Settings of the partition.
pub(crate) const CONFIG_FILE: &str = ".offsetlog.config";
/// Recovery point, log start offset and clean mark of the partition.
pub(crate) const STATE_FILE: &str = ".offsetlog.state";
/// Exclusive lock of the partition's writer.
pub(crate) const LOCK_FILE: &str = ".offsetlog.lock";

/// The boot id on systems that have none.
const UNKNOWN_BOOT: u128 = 0;

/// What stands on the disk about a partition's last writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::log) struct Start {
    pub(in crate::log) clean: bool,
    /// A writer of ours closed the log, and the segment with this base offset is as it left it: a clean end, if that is still the
    /// last one.
    pub(in crate::log) own: Option<i64>,
    /// A writer of ours ended since the machine was started without closing the log: the system's cache may show what a disk that
    /// failed does not hold.
    pub(in crate::log) same_boot: bool,
    /// A writer of ours ended without closing the log: beyond this offset power loss may have taken any bytes, also of segments that
    /// others follow.
    pub(in crate::log) crashed_beyond: Option<i64>,
    /// The log start offset is the one that a writer of ours noted.
    pub(in crate::log) noted_by_us: bool,
    pub(in crate::log) recovery_point: i64,
    /// Everything below is on the disk, as far as is written down. A recovery point that a caller names says only from where on to read.
    pub(in crate::log) durable: i64,
    pub(in crate::log) log_start_offset: i64,
}

/// A partition's place and how it is marked.
#[derive(Debug)]
pub(in crate::log) struct PartitionState {
    directory: Arc<Directory>,
    /// What is shared with the log dir's other partitions, where the folder around this one is a log dir.
    shared: Option<Arc<LogDirFiles>>,
    topic: String,
    partition: i32,
    marked_unclean: bool,
    /// As in [`State`].
    cleaner: Option<i64>,
    /// Everything below was durable when the last writer of ours ended, whatever recovery point this one was told to begin with; in a log
    /// dir, if no broker has been there since.
    durable: i64,
    /// Other brokers have replicas, or nobody can tell: the high watermark is theirs to raise.
    has_others: bool,
}

impl PartitionState {
    /// `shared` is what a program has that has the whole log dir open.
    pub(in crate::log) fn new(
        directory: &Arc<Directory>,
        topic: &str,
        partition: i32,
        shared: Option<&Arc<LogDirFiles>>,
    ) -> Result<Self> {
        let shared = match (shared, directory.path.parent()) {
            (Some(shared), _) => Some(Arc::clone(shared)),
            (None, Some(parent)) if has_log_dir_files(directory.disk.as_ref(), parent)? => {
                Some(Arc::new(LogDirFiles::new(&directory.checkpoints)))
            }
            _ => None,
        };
        Ok(Self {
            directory: Arc::clone(directory),
            shared,
            topic: topic.to_owned(),
            partition,
            marked_unclean: false,
            cleaner: None,
            durable: 0,
            has_others: false,
        })
    }

    /// Goes by what the cluster says of the partition.
    pub(in crate::log) fn join(&mut self, membership: &Membership) {
        self.has_others = membership.is_brokers()
            && (membership.unreadable().is_some() || !membership.others().is_empty());
    }

    /// The high watermark of a log that ends at `log_end`: where others have replicas what the broker wrote down, else the end.
    ///
    /// # Errors
    /// `Io`.
    pub(in crate::log) fn high_watermark(&self, log_end: i64) -> Result<i64> {
        let line = self.high_watermark_line(log_end)?;
        Ok(line.unwrap_or(0))
    }

    fn high_watermark_line(&self, log_end: i64) -> Result<Option<i64>> {
        let Some(shared) = self.shared.as_ref().filter(|_| self.has_others) else {
            return Ok(Some(log_end));
        };
        let line = shared.line(
            OffsetCheckpointFile::HighWatermark,
            &self.topic,
            self.partition,
        );
        match line {
            Err(error) if error.is_corruption() => Ok(None),
            line => Ok(line?.map(|line| line.min(log_end))),
        }
    }

    pub(in crate::log) const fn durable(&self) -> i64 {
        self.durable
    }

    /// What is known to be durable ends at `offset`: the log does, or is about to.
    pub(in crate::log) fn limit_durable(&mut self, offset: i64) {
        self.durable = self.durable.min(offset);
    }

    /// Everything below `offset` is durable, wherever the recovery point is.
    pub(in crate::log) fn raise_durable(&mut self, offset: i64) {
        self.durable = self.durable.max(offset);
    }

    pub(in crate::log) const fn is_marked_unclean(&self) -> bool {
        self.marked_unclean
    }

    pub(in crate::log) fn log_dir(&self) -> Option<&Path> {
        self.shared.as_ref().map(|shared| shared.log_dir())
    }

    fn disk(&self) -> &dyn Disk {
        self.directory.disk.as_ref()
    }

    fn state_path(&self) -> PathBuf {
        self.directory.path.join(STATE_FILE)
    }

    /// What the marks and checkpoints say; a file that cannot be read counts as not there, as in a broker, and leaves a warning.
    pub(in crate::log) fn read(&mut self, warnings: &mut Vec<String>) -> Result<Start> {
        let state = read_state(self.disk(), &self.state_path(), warnings)?;
        self.cleaner = state.and_then(|state| state.cleaner);
        let own = state.and_then(|state| state.closed_with(self.disk(), &self.directory.path));
        let crashed = state.filter(|state| state.boot.is_some());
        let same_boot = crashed.is_some_and(|state| {
            state.boot.filter(|&boot| boot != UNKNOWN_BOOT) == self.disk().boot_id()
        });
        let Some(shared) = &self.shared else {
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
            match shared.line(file, &self.topic, self.partition) {
                Err(error) if error.is_corruption() => {
                    warnings.push(format!("ignored: {error}"));
                    Ok(None)
                }
                line => line,
            }
        };
        let recovery_point = entry(OffsetCheckpointFile::RecoveryPoint)?;
        let log_start = entry(OffsetCheckpointFile::LogStartOffset)?;
        let recovery_point = recovery_point.unwrap_or(0);
        // Unless a broker had the log after us. What is noted may be further than the checkpoint, which is written for many at once.
        let crashed =
            crashed.filter(|state| state.notes(|lines| lines.recovery_point == recovery_point));
        self.durable = crashed.map_or(0, |state| state.recovery_point);
        Ok(Start {
            own,
            same_boot,
            crashed_beyond: crashed.map(|state| state.recovery_point.max(recovery_point)),
            noted_by_us: state
                .is_some_and(|state| state.notes(|lines| Some(lines.log_start) == log_start)),
            clean: self
                .disk()
                .stat(&shared.log_dir().join(CLEAN_SHUTDOWN))
                .is_ok(),
            recovery_point,
            durable: recovery_point,
            log_start_offset: log_start.unwrap_or(0),
        })
    }

    /// Takes the clean marks away, durably, before the first change of a file.
    pub(in crate::log) fn mark_unclean(
        &mut self,
        recovery_point: i64,
        log_start: i64,
    ) -> Result<()> {
        if self.marked_unclean {
            return Ok(());
        }
        let state = State {
            boot: Some(self.boot()),
            ..State::new(recovery_point, log_start)
        };
        let Some(shared) = &self.shared else {
            self.write_state(&state)?;
            self.marked_unclean = true;
            return Ok(());
        };
        let on_disk = self.on_disk(shared)?;
        let line = shared.line(
            OffsetCheckpointFile::RecoveryPoint,
            &self.topic,
            self.partition,
        );
        let recovery_point = match line {
            Err(error) if error.is_corruption() => 0,
            line => line?.unwrap_or(0),
        };
        let recovery_point = recovery_point.max(self.durable);
        self.write_state(&State {
            // What stands there, or will, to see whether a broker moves it.
            recovery_point,
            before: (recovery_point != on_disk.recovery_point).then_some(on_disk),
            ..state
        })?;
        shared.leave_marker(&self.name())?;
        self.marked_unclean = true;
        Ok(())
    }

    fn boot(&self) -> u128 {
        self.disk().boot_id().unwrap_or(UNKNOWN_BOOT)
    }

    /// What the log dir's checkpoints say of the partition now, 0 without a line.
    fn on_disk(&self, shared: &LogDirFiles) -> Result<Lines> {
        let line = |file| -> Result<i64> {
            let line = shared.line_on_disk(file, &self.topic, self.partition)?;
            Ok(line.unwrap_or(0))
        };
        Ok(Lines {
            recovery_point: line(OffsetCheckpointFile::RecoveryPoint)?,
            log_start: line(OffsetCheckpointFile::LogStartOffset)?,
        })
    }

    /// The partition is gone, or another one takes its place that begins at `log_start`: so are its lines in the log dir.
    pub(in crate::log) fn forget(&self, log_start: Option<i64>) -> Result<()> {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        shared.forget(&self.topic, self.partition, log_start)
    }

    /// Writes recovery point and log start offset where the next opening reads them. `first_base` decides, as in a broker,
    /// whether the log dir needs a line for the log start offset.
    pub(in crate::log) fn checkpoint(
        &self,
        state: State,
        log_end: i64,
        first_base: i64,
    ) -> Result<()> {
        let boot = Some(self.boot());
        self.note(State { boot, ..state }, log_end, first_base)
    }

    /// Writes them down for a minute in which nobody did, where many partitions' are written together.
    pub(in crate::log) fn checkpoint_in_time(&self, now: i64) -> Result<()> {
        match &self.shared {
            Some(shared) => shared.write_lines_in_time(now),
            None => Ok(()),
        }
    }

    /// As [`checkpoint`](Self::checkpoint), and notes a clean end; everything else is on the disk already.
    pub(in crate::log) fn close(
        &mut self,
        state: State,
        mark: CleanMark,
        log_end: i64,
        first_base: i64,
    ) -> Result<()> {
        let clean = Some(mark);
        self.note(State { clean, ..state }, log_end, first_base)?;
        self.marked_unclean = false;
        match &self.shared {
            Some(shared) if !shared.gathers() => shared.settle(),
            _ => Ok(()),
        }
    }

    fn note(&self, state: State, log_end: i64, first_base: i64) -> Result<()> {
        let state = State {
            recovery_point: state.recovery_point.max(self.durable),
            ..state
        };
        let Some(shared) = &self.shared else {
            return self.write_state(&state);
        };
        let start_line = (state.log_start > first_base).then_some(state.log_start);
        let high_watermark = self.high_watermark_line(log_end)?;
        let lines = [
            (
                OffsetCheckpointFile::RecoveryPoint,
                Some(state.recovery_point),
            ),
            (OffsetCheckpointFile::LogStartOffset, start_line),
            (OffsetCheckpointFile::HighWatermark, high_watermark),
        ];
        shared.withdraw(&lines, &self.topic, self.partition);
        let on_disk = self.on_disk(shared)?;
        // What is lower must not be found higher, and where the log begins is a promise.
        let at_once = !shared.gathers()
            || state.recovery_point < on_disk.recovery_point
            || state.log_start < on_disk.log_start
            || start_line.is_some_and(|start| start != on_disk.log_start);
        let before = Some(on_disk).filter(|&on_disk| on_disk != state.lines());
        if before.is_some() || !at_once {
            // Until all is written both count as ours: a crash in between must not look like a broker's doing.
            let noted = State { before, ..state };
            self.write_state(&if at_once {
                State {
                    clean: None,
                    boot: Some(self.boot()),
                    ..noted
                }
            } else {
                noted
            })?;
        }
        shared.set_lines(&lines, &self.topic, self.partition, at_once)?;
        if at_once {
            self.write_state(&state)?;
        }
        Ok(())
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

pub(crate) fn read_small(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>> {
    match read_whole(disk, path, 16 << 20) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(IoCall::Read, path, error)),
    }
}

/// Whether an entry of a partition directory is a file of ours.
pub(in crate::log) fn is_ours(name: &str) -> bool {
    name.starts_with(".offsetlog") || name.starts_with("offsetlog-")
}
