//! Where a partition keeps what a broker keeps in its log dir: recovery point, log start offset, clean-shutdown mark and settings.
//!
//! Outside a log dir they are in the partition directory, in files that a broker ignores. In a log dir the checkpoints and the
//! clean-shutdown marker are authoritative, because a broker reads and writes them. The partition's own state file then says whether our
//! writer closed *this* partition, which values it wrote last, and on which boot of the machine.

mod cleaner_point;
mod cut_note;

use super::log_dir_files::LogDirFiles;
use super::state_file::{CleanMark, Lines, State};
use crate::config::LogConfig;
use crate::disk::{Disk, IoCall, process_id, read_whole, write_whole};
use crate::error::{Error, Result};
use crate::folder::UNCLEAN_FILE;
use crate::folder::{has_log_dir_files, is_absent, is_there};
use crate::log::Membership;
use crate::segment::Directory;
use offsetlog_format::OffsetCheckpointFile;
use offsetlog_format::name::CLEAN_SHUTDOWN;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The settings of the partition.
pub(crate) const CONFIG_FILE: &str = ".offsetlog.config";
/// Recovery point, log start offset and clean-shutdown mark of the partition.
pub(crate) const STATE_FILE: &str = ".offsetlog.state";
/// The lock file of the partition's writer.
pub(crate) const LOCK_FILE: &str = ".offsetlog.lock";

/// The boot id on systems that have none.
const UNKNOWN_BOOT: u128 = 0;

/// What the files say about a partition's last writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::log) struct Start {
    pub(in crate::log) clean: bool,
    /// Our writer closed the log, and the segment with this base offset is unchanged since. The shutdown was clean if it is still the
    /// last segment.
    pub(in crate::log) own: Option<i64>,
    /// Our writer ended on this boot of the machine without closing the log: the page cache may show bytes that a failing disk does not
    /// hold.
    pub(in crate::log) same_boot: bool,
    /// Our writer ended without closing the log: lost power may have removed any bytes from this offset on, also in segments that others
    /// follow.
    pub(in crate::log) crashed_beyond: Option<i64>,
    /// The log start offset is one that our writer wrote.
    pub(in crate::log) noted_by_us: bool,
    pub(in crate::log) recovery_point: i64,
    /// All records below are on the disk, according to the files. A recovery point that the caller passes only says where a scan begins.
    pub(in crate::log) durable: i64,
    pub(in crate::log) log_start_offset: i64,
    /// The line of the log dir's `log-start-offset-checkpoint` as it was found. With tiered storage it is below the first segment.
    pub(in crate::log) line: Option<i64>,
    /// The line of a broker's `replication-offset-checkpoint` as it was found, wherever the log ends.
    pub(in crate::log) high_watermark: Option<i64>,
}

impl Start {
    /// Up to where the checkpoint says that records were acknowledged. Not where our writer had the log last, and did not close it: it may
    /// have lost what was never flushed, and nobody was told that it is safe.
    pub(in crate::log) fn promised(&self) -> Option<i64> {
        let is_open = self.noted_by_us && self.crashed_beyond.is_some();
        self.high_watermark.filter(|_| !is_open)
    }
}

/// Where a partition keeps its state, and whether it is marked unclean.
#[derive(Debug)]
pub(in crate::log) struct PartitionState {
    directory: Arc<Directory>,
    /// The files that the log dir's partitions share, if the parent directory is a log dir.
    shared: Option<Arc<LogDirFiles>>,
    topic: String,
    partition: i32,
    marked_unclean: bool,
    /// As in [`State`].
    cleaner: Option<i64>,
    /// All records below are durable, whatever recovery point the caller passed. In a log dir this is known only if no broker has been
    /// there since our last writer.
    durable: i64,
    /// Other brokers have replicas, or it is unknown whether they do: then they decide how far the high watermark rises.
    has_others: bool,
    /// Whether lines may wait that this writer set while it held the partition's lock.
    owns_lines: bool,
    /// The line of the log start offset, if there was one when the log was opened. It stays, and follows the start when that moves: a broker
    /// with tiered storage writes it for each log, also below the first segment, and a log of it without a line begins at 0.
    start_line: Option<i64>,
    /// The topic is known to have tiered storage: its line stays too if there was none before the start moved.
    is_tiered: bool,
    /// The state file as it was found.
    found: Option<State>,
    /// A recovery is noted as unfinished.
    noted_recovery: AtomicBool,
    /// The log dir's clean-shutdown marker was taken away for good.
    forgot_marker: AtomicBool,
    /// That was because there was no room to note who is to restore it.
    had_no_room: AtomicBool,
    /// No record at or above this offset is cleaned, whatever the stored point says. Not stored yet.
    cleaner_limit: Option<i64>,
    /// The process that made this: a forked child must not touch what its parent's threads may have locked.
    process: u32,
}

impl PartitionState {
    /// `shared` comes from a program that has the whole log dir open.
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
            owns_lines: false,
            start_line: None,
            is_tiered: false,
            found: None,
            noted_recovery: AtomicBool::new(false),
            forgot_marker: AtomicBool::new(false),
            had_no_room: AtomicBool::new(false),
            cleaner_limit: None,
            process: process_id(),
        })
    }

    /// Says whether the topic has `remote.storage.enable`, as far as that is known.
    pub(in crate::log) const fn set_tiered(&mut self, is_tiered: bool) {
        self.is_tiered = is_tiered;
    }

    /// The line of the log start offset that stays even if it is not above the first segment.
    pub(in crate::log) const fn start_line(&self) -> Option<i64> {
        self.start_line
    }

    /// Makes the line follow the log start offset, which was moved. Returns the line before, for
    /// [`restore_start_line`](Self::restore_start_line).
    pub(in crate::log) const fn move_start_line(&mut self, log_start: i64) -> Option<i64> {
        let before = self.start_line;
        if before.is_some() || self.is_tiered {
            self.start_line = Some(log_start);
        }
        before
    }

    pub(in crate::log) const fn restore_start_line(&mut self, before: Option<i64>) {
        self.start_line = before;
    }

    /// Lowers the line to `offset`, where the log is truncated to, or begins by what the caller knows.
    pub(in crate::log) fn limit_start_line(&mut self, offset: i64) {
        self.start_line = self.start_line.map(|line| line.min(offset));
    }

    /// Adopts what the cluster's metadata says of the partition.
    pub(in crate::log) fn join(&mut self, membership: &Membership) {
        self.has_others = membership.may_have_others();
    }

    /// Returns the high watermark of a log that ends at `log_end`: if other brokers have replicas, the checkpoint's value, or 0 if there
    /// is none; otherwise `log_end`.
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

    /// Lowers what is known to be durable to `offset`, where the log ends or is about to end.
    pub(in crate::log) fn limit_durable(&mut self, offset: i64) {
        self.durable = self.durable.min(offset);
    }

    /// Records that everything below `offset` is durable, wherever the recovery point is.
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

    /// Reads the marks and checkpoints. A file that cannot be parsed counts as missing, as in a broker, and adds a warning.
    pub(in crate::log) fn read(&mut self, warnings: &mut Vec<String>) -> Result<Start> {
        let state = read_state(self.disk(), &self.state_path(), warnings)?;
        self.cleaner = state.and_then(|state| state.cleaner);
        self.found = state;
        let own = state.and_then(|state| state.closed_with(self.disk(), &self.directory.path));
        let crashed = state.filter(State::is_crashed);
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
                line: None,
                high_watermark: None,
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
        let high_watermark = entry(OffsetCheckpointFile::HighWatermark)?;
        self.start_line = log_start;
        let recovery_point = recovery_point.unwrap_or(0);
        // Not if a broker had the log after us. The state file may be ahead of the checkpoint, which is written for many partitions at
        // once.
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
            line: log_start,
            high_watermark,
        })
    }

    /// Removes the clean-shutdown marks and syncs, before the first change of a file.
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
            self.cleaner = self.cleaner_limit.or(self.cleaner);
            self.write_state(&state)?;
            self.marked_unclean = true;
            self.cleaner_limit = None;
            return Ok(());
        };
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
        let shared = Arc::clone(shared);
        self.owns_lines = true;
        shared.hold(&self.topic, self.partition, || {
            let on_disk = self.on_disk(&shared)?;
            self.write_state(&State {
                // The value of the line, written or collected: a different one later shows that a broker moved it.
                recovery_point,
                before: (recovery_point != on_disk.recovery_point).then_some(on_disk),
                ..state
            })
        })?;
        shared.leave_marker(&self.name())?;
        if let Some(limit) = self.cleaner_limit {
            self.set_cleaner_point(limit, state)?;
        }
        self.marked_unclean = true;
        Ok(())
    }

    /// Takes the log dir's clean-shutdown marker away until the log is closed, before a recovery changes the first file: by the marker a
    /// broker takes snapshots and indexes as it finds them. A recovery that ends in between counts as a writer that did not close the log.
    pub(in crate::log) fn note_recovery(&self) -> Result<()> {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        if self.noted_recovery.load(Ordering::Relaxed) || !self.has_marker()? {
            return Ok(());
        }
        // Where there is no state file, nobody can take the partition for closed. What was closed has lost nothing by a crash.
        let noted = match self.found.filter(|state| !state.is_open()) {
            Some(state) => shared.hold(&self.topic, self.partition, || {
                let boot = Some(self.boot());
                self.write_state(&State { boot, ..state })
            }),
            None => Ok(()),
        };
        match noted.and_then(|()| shared.leave_marker(&self.name())) {
            // There is no room to say who is to restore it.
            Err(error) if error.is_out_of_room() => {
                self.had_no_room.store(true, Ordering::Relaxed);
                self.forget_marker()?;
            }
            noted => noted?,
        }
        self.noted_recovery.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Lets nobody restore the log dir's clean-shutdown marker. Returns whether it was there, or was to be restored, when this was first
    /// called.
    pub(in crate::log) fn forget_marker(&self) -> Result<bool> {
        if let Some(shared) = &self.shared
            && shared.forget_marker()?
        {
            self.forgot_marker.store(true, Ordering::Relaxed);
        }
        Ok(self.forgot_marker.load(Ordering::Relaxed))
    }

    /// Whether the log dir's clean-shutdown marker was taken away for good, and that only for want of room.
    pub(in crate::log) fn had_no_room_for_marker(&self) -> bool {
        self.had_no_room.load(Ordering::Relaxed) && self.forgot_marker.load(Ordering::Relaxed)
    }

    /// Whether the log dir's clean-shutdown marker is there, or is to be restored.
    pub(in crate::log) fn has_marker(&self) -> Result<bool> {
        let Some(shared) = &self.shared else {
            return Ok(false);
        };
        let has = |name| is_there(self.disk(), &shared.log_dir().join(name));
        Ok(has(CLEAN_SHUTDOWN)? || has(UNCLEAN_FILE)?)
    }

    fn boot(&self) -> u128 {
        self.disk().boot_id().unwrap_or(UNKNOWN_BOOT)
    }

    /// Returns what the log dir's checkpoints on the disk say of the partition; 0 for a missing line.
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

    /// Removes the partition's lines from the log dir: it was deleted, or another one that begins at `log_start` takes its place.
    pub(in crate::log) fn forget(&self, log_start: Option<i64>) -> Result<()> {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        shared.forget(&self.topic, self.partition, log_start)
    }

    /// Writes the recovery point and log start offset for the next opening. As in a broker, the log dir gets a line for the log start
    /// offset only if that is above `first_base`, or if the log had a line before.
    pub(in crate::log) fn checkpoint(
        &self,
        state: State,
        log_end: i64,
        first_base: i64,
    ) -> Result<()> {
        let boot = Some(self.boot());
        self.note(State { boot, ..state }, log_end, first_base)
    }

    /// Writes the log dir's collected lines once a minute.
    pub(in crate::log) fn checkpoint_in_time(&self, now: i64) -> Result<()> {
        match &self.shared {
            Some(shared) => shared.write_lines_in_time(now),
            None => Ok(()),
        }
    }

    /// Does what [`checkpoint`](Self::checkpoint) does, and marks a clean shutdown. Everything else must be on the disk already.
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
            Some(shared) if !shared.defers_writes() => shared.settle(),
            Some(shared) => {
                shared.leave(&self.topic, self.partition)?;
                self.owns_lines = false;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Drops the lines that wait, before the partition's lock is given back without a clean end.
    pub(in crate::log) fn give_up(&mut self) {
        if let Some(shared) = self.shared.as_ref().filter(|_| self.owns_lines) {
            shared.give_up(&self.topic, self.partition);
        }
        self.owns_lines = false;
    }

    fn note(&self, state: State, log_end: i64, first_base: i64) -> Result<()> {
        let state = State {
            recovery_point: state.recovery_point.max(self.durable),
            ..state
        };
        let Some(shared) = &self.shared else {
            return self.write_state(&state);
        };
        let start_line = if state.log_start > first_base {
            Some(state.log_start)
        } else {
            self.start_line
        };
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
        // A lower value must not be found higher after a crash, and a moved log start offset is a promise.
        let at_once = !shared.defers_writes()
            || state.recovery_point < on_disk.recovery_point
            || state.log_start < on_disk.log_start
            || start_line.is_some_and(|start| start != on_disk.log_start);
        let before = Some(on_disk).filter(|&on_disk| on_disk != state.lines());
        if before.is_some() || !at_once {
            // Until both files are written, both values count as ours: a crash in between must not look like a broker's change.
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

impl Drop for PartitionState {
    fn drop(&mut self) {
        if self.process == process_id() {
            self.give_up();
        }
    }
}

/// Returns the settings stored with a partition, if any.
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

/// Reads the partition's state file; `None` if it is missing or cannot be parsed, the latter with a warning.
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

/// A file beside the segments, if there is one. Beside a single file that was set aside there is none.
pub(crate) fn read_small(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>> {
    match read_whole(disk, path, 16 << 20) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(Error::io(IoCall::Read, path, error)),
    }
}

/// Whether a name in a partition directory is that of a file of ours.
pub(in crate::log) fn is_ours(name: &str) -> bool {
    name.starts_with(".offsetlog") || name.starts_with("offsetlog-")
}
