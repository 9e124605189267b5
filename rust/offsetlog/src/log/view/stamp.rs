//! What is looked at to see whether a log has changed: the metadata of its directory, its active segment and two checkpoints of its log dir.

use crate::disk::{Disk, FileStat, IoCall, Moment};
use crate::error::{Error, Result};
use crate::folder::is_absent;
use crate::segment::Directory;
use offsetlog_format::OffsetCheckpointFile;
use offsetlog_format::name::LOCK;
use std::io;
use std::path::Path;

/// Metadata that shows whether a directory has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stamp {
    pub(super) directory: Option<FileStat>,
    pub(super) active: Option<FileStat>,
    pub(super) checkpoints: CheckpointStats,
    /// State of the writer, if this process writes the log.
    pub(super) writer: Option<Told>,
}

/// The state that a writer in this process publishes of its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) last_stable: i64,
    pub(super) log_start: i64,
    pub(super) log_end: i64,
    pub(super) generation: u64,
    pub(super) cuts: u64,
}

/// The checkpoints whose values a view has.
const CHECKPOINTS: [OffsetCheckpointFile; 2] = [
    OffsetCheckpointFile::LogStartOffset,
    OffsetCheckpointFile::HighWatermark,
];

/// Their metadata; `None` for one that is not there.
pub(crate) type CheckpointStats = [Option<FileStat>; CHECKPOINTS.len()];

/// What the opening of a partition asks of the log dir around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Around {
    /// Whether a broker or a writer holds the log dir's lock.
    pub(crate) is_locked: bool,
    pub(super) checkpoints: CheckpointStats,
}

impl Around {
    /// Looks at a log dir. Returns when the look began, too.
    ///
    /// Fails where something cannot be looked at: a checkpoint that has no metadata here is not there.
    pub(crate) fn look(disk: &dyn Disk, log_dir: &Path) -> Result<(Self, Moment)> {
        let looked = Moment::now();
        let is_locked = is_locked(disk, log_dir)?;
        let mut checkpoints = CheckpointStats::default();
        for (seen, file) in checkpoints.iter_mut().zip(CHECKPOINTS) {
            let path = log_dir.join(file.name());
            *seen = match disk.stat(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                stat => Some(stat.map_err(|error| Error::io(IoCall::Stat, &path, error))?),
            };
        }
        let around = Self {
            is_locked,
            checkpoints,
        };
        Ok((around, looked))
    }

    /// Whether the next change of a checkpoint could leave its metadata as it is.
    pub(crate) fn is_racy(&self) -> bool {
        self.checkpoints.iter().flatten().any(FileStat::is_racy)
    }
}

/// What the start and the end of the log depend on, beside a partition's directory: the checkpoint of the log start offsets. Only where that
/// is not there, the other one tells whether this is a log dir.
pub(super) fn bounds_beside(directory: &Directory) -> CheckpointStats {
    match stat_beside(directory, OffsetCheckpointFile::LogStartOffset) {
        None => [
            None,
            stat_beside(directory, OffsetCheckpointFile::HighWatermark),
        ],
        log_start => [log_start, None],
    }
}

fn stat_beside(directory: &Directory, file: OffsetCheckpointFile) -> Option<FileStat> {
    let parent = directory.path.parent()?;
    directory.disk.stat(&parent.join(file.name())).ok()
}

/// Whether a broker or a writer holds a log dir's lock.
///
/// Fails where that cannot be asked: beside a broker, records that it has not committed would count as committed.
pub(crate) fn is_locked(disk: &dyn Disk, log_dir: &Path) -> Result<bool> {
    has_holder(disk, &log_dir.join(LOCK))
}

/// The same of a lock file.
pub(crate) fn has_holder(disk: &dyn Disk, lock: &Path) -> Result<bool> {
    match disk.lock_holder(lock) {
        Ok(holder) => Ok(holder.is_some()),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(Error::io(IoCall::Lock, lock, error)),
    }
}

impl Stamp {
    /// This without what only the high watermark depends on, as [`bounds_beside`].
    pub(super) const fn bounds(mut self) -> Self {
        if let [Some(log_start), _] = self.checkpoints {
            self.checkpoints = [Some(log_start), None];
        }
        self
    }

    /// Whether the next change could leave the directory's modification time as it is.
    pub(super) fn is_racy(&self) -> bool {
        self.directory.is_some_and(|stat| stat.is_racy())
    }

    /// `stat`: that of the directory, asked before. `checkpoints`: theirs, if the caller has them.
    pub(super) fn of(
        directory: &Directory,
        stat: Option<FileStat>,
        active: Option<&Path>,
        checkpoints: Option<CheckpointStats>,
    ) -> Self {
        // Read before the files: what the writer published is already in the files then. The last stable offset is read before
        // the log end offset: all transactions below it ended in batches that are written by then.
        let writer = directory.ends.as_ref().map(|ends| Told {
            cuts: ends.cut_count(),
            generation: ends.generation(),
            last_stable: ends.last_stable(),
            log_start: ends.log_start(),
            log_end: ends.log_end(),
        });
        Self {
            directory: stat,
            active: active.and_then(|path| directory.disk.stat(path).ok()),
            checkpoints: checkpoints
                .unwrap_or_else(|| CHECKPOINTS.map(|file| stat_beside(directory, file))),
            writer,
        }
    }
}
