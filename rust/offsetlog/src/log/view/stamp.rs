//! What is looked at to see whether a log has changed: the metadata of its directory, its active segment and two checkpoints of its log dir.

use crate::disk::{Disk, FileStat, Moment};
use crate::segment::Directory;
use offsetlog_format::OffsetCheckpointFile;
use offsetlog_format::name::LOCK;
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
    pub(crate) fn look(disk: &dyn Disk, log_dir: &Path) -> (Self, Moment) {
        let looked = Moment::now();
        let around = Self {
            is_locked: is_locked(disk, log_dir),
            checkpoints: CHECKPOINTS.map(|file| disk.stat(&log_dir.join(file.name())).ok()),
        };
        (around, looked)
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
pub(crate) fn is_locked(disk: &dyn Disk, log_dir: &Path) -> bool {
    matches!(disk.lock_holder(&log_dir.join(LOCK)), Ok(Some(_)))
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
