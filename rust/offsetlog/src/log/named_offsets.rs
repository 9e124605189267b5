//! The offsets of a log that have names, and the checkpoints around its directory that say where some of them are.

use super::state::{STATE_FILE, read_config, read_state};
use super::{Isolation, Log, View};
use crate::config::LogConfig;
use crate::disk::{FileStat, read_whole};
use crate::error::{Error, ErrorKind, Result};
use crate::folder::has_log_dir_files;
use crate::segment::Directory;
use offsetlog_format::OffsetCheckpointFile;
use offsetlog_format::leader_epoch::{EpochEntry, LeaderEpochs};
use offsetlog_format::name::{DirectoryState, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA};
use offsetlog_format::partition_metadata::PartitionMetadata;
use offsetlog_format::uuid::Uuid;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What the log dir's checkpoints say of one partition.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    pub(super) log_start: Option<i64>,
    /// The line of `log-start-offset-checkpoint`, of a directory that a broker would load.
    pub(super) start_line: Option<i64>,
    /// A writer of ours closed the log with that start, when the segment with this base offset was the active one, and as it is now.
    pub(super) closed_with: Option<i64>,
    pub(super) high_watermark: Option<i64>,
    /// A writer of ours has a state file in the directory.
    pub(super) has_state: bool,
    /// By that file it cuts the log, or was killed while it did.
    pub(super) is_being_cut: bool,
    pub(super) warnings: Vec<String>,
}

/// Reads the checkpoints beside the partition directory. One that is malformed, or not for us to read, counts as having no entries,
/// as a broker takes it at start, and leaves a warning. Where the disk fails nothing is made up: the log would seem to begin where its
/// deleted records do.
///
/// `looked` are the stats of the checkpoints of the log start offsets and of the high watermarks, where the caller has just seen them,
/// `is_all` that one without a stat is not there, and `has_no_state` that there is no state file in the directory.
pub(super) fn read_checkpoints(
    directory: &Directory,
    (looked, is_all): (&[Option<FileStat>; 2], bool),
    has_no_state: bool,
) -> Result<Bounds> {
    let mut bounds = Bounds::default();
    if let Some(ends) = &directory.ends {
        bounds.log_start = Some(ends.log_start());
        return Ok(bounds);
    }
    let Some(state_of_name) = directory.state else {
        return Ok(bounds);
    };
    let [start_stat, high_stat] = *looked;
    let mut entry = |file: OffsetCheckpointFile, stat: Option<FileStat>| -> Result<Option<i64>> {
        if is_all && stat.is_none() {
            return Ok(None);
        }
        directory
            .checkpoints
            .offset_of_seen(file, stat, &directory.topic, directory.partition)
            .or_else(|error| warn(error, &mut bounds.warnings))
    };
    let log_start = entry(OffsetCheckpointFile::LogStartOffset, start_stat)?;
    let high_watermark = entry(OffsetCheckpointFile::HighWatermark, high_stat)?;
    // A writer of ours keeps it inside the directory, where the folder around it is no log dir.
    let state = if has_no_state {
        None
    } else {
        let path = directory.path.join(STATE_FILE);
        read_state(directory.disk.as_ref(), &path, &mut bounds.warnings)
            .or_else(|error| warn(error, &mut bounds.warnings))?
    };
    // A log dir has these checkpoints; where neither was seen, other files may tell.
    let parent = || directory.path.parent().unwrap_or(Path::new(""));
    let in_log_dir = looked.iter().any(Option::is_some)
        || (state.is_some() && has_log_dir_files(directory.disk.as_ref(), parent())?);
    let own = state.filter(|_| !in_log_dir).map(|state| state.log_start);
    bounds.log_start = log_start.or(own);
    bounds.start_line = log_start.filter(|_| state_of_name == DirectoryState::Live);
    bounds.closed_with = state
        .filter(|state| bounds.log_start == Some(state.log_start))
        .and_then(|state| state.closed_with(directory.disk.as_ref(), &directory.path));
    bounds.high_watermark = high_watermark;
    bounds.has_state = state.is_some();
    bounds.is_being_cut = state.is_some_and(|state| state.cutting.is_some());
    Ok(bounds)
}

/// Which offsets of a log are not in its directory, if its line in the log dir's checkpoint is below its first segment.
pub(super) fn not_here(start_line: Option<i64>, first_base: Option<i64>) -> Option<String> {
    let (start, first) = start_line
        .zip(first_base)
        .filter(|(start, first)| start < first)?;
    let range = if start + 1 == first {
        format!("offset {start} is")
    } else {
        format!("offsets {start} to {} are", first - 1)
    };
    Some(format!(
        "{range} not in this directory: its log start offset is {start}, and its first segment begins at {first}; with tiered storage they \
         are in the remote store, else a broker deleted them and had not yet noted it, or a segment is missing"
    ))
}

/// Which offsets a log has lost behind its end, if the log dir's checkpoint has a high watermark above it.
pub(super) fn lost_end(high_watermark: Option<i64>, end: i64) -> Option<String> {
    let high_watermark = high_watermark.filter(|line| *line > end)?;
    Some(format!(
        "it ends at offset {end}, and the high watermark of its log dir is {high_watermark}: records up to there were acknowledged, and are \
         missing; another replica may have them"
    ))
}

/// A warning instead of a checkpoint, unless the disk failed.
fn warn<T>(error: Error, warnings: &mut Vec<String>) -> Result<Option<T>> {
    if let ErrorKind::Io { source, .. } = error.kind() {
        const ELOOP: i32 = 40;
        let is_refused = source.kind() == io::ErrorKind::PermissionDenied;
        if !is_refused && source.raw_os_error().is_some_and(|number| number != ELOOP) {
            return Err(error);
        }
    }
    warnings.push(format!("ignored: {error}"));
    Ok(None)
}

/// Bytes of a small file, or `None` where there is no such file.
pub(super) fn read_optional(directory: &Directory, path: &Path) -> Result<Option<Vec<u8>>> {
    let limit = directory.limits.max_state_file_bytes;
    match read_whole(directory.disk.as_ref(), path, limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::state_file(path, error)),
    }
}

impl Log {
    /// Lowest offset that can be read, inclusive: that of the log dir's `log-start-offset-checkpoint` or the first segment's
    /// base offset, whichever is greater.
    ///
    /// # Errors
    /// `Io`.
    pub fn log_start_offset(&self) -> Result<i64> {
        if let Some(ends) = self.told() {
            return Ok(ends.log_start());
        }
        self.look_at_bounds(|view| Ok(view.log_start_offset))
    }

    /// Offset that the next record gets, exclusive end of what can be read: behind the last whole batch of the active segment. A
    /// torn tail does not count. Below a checkpointed log start offset, where somebody put a foreign checkpoint beside the log or took
    /// segments away: then a scan is refused.
    ///
    /// # Errors
    /// `Io`; those of damage in the active segment behind which whole batches follow.
    pub fn log_end_offset(&self) -> Result<i64> {
        if let Some(ends) = self.told() {
            return Ok(ends.log_end());
        }
        self.look_at_bounds(|view| Ok(view.end()?.log_end_offset))
    }

    /// The settings that offsetlog stored with the log; `None` for one of a broker, whose settings are in the cluster's metadata.
    ///
    /// # Errors
    /// `Io`; `StateFile` if they cannot be read.
    pub fn stored_config(&self) -> Result<Option<LogConfig>> {
        read_config(self.0.directory.disk.as_ref(), self.path())
    }

    /// Exclusive end of the replicated records as the log dir's `replication-offset-checkpoint` has it, which a running broker
    /// writes each 5 seconds; the log end offset where there is none. Never outside the log.
    ///
    /// # Errors
    /// As [`log_end_offset`](Self::log_end_offset).
    pub fn high_watermark(&self) -> Result<i64> {
        if let Some(ends) = self.told() {
            return Ok(ends.log_end());
        }
        self.look(View::high_watermark)
    }

    /// The high watermark as the log dir's `replication-offset-checkpoint` has it; `None` where there is none. A value beyond the log end
    /// offset means that replicated, acknowledged records are missing from the log.
    ///
    /// # Errors
    /// `Io`.
    pub fn checkpointed_high_watermark(&self) -> Result<Option<i64>> {
        self.look(|view| Ok(view.high_watermark))
    }

    /// The log end offset and the checkpointed high watermark, if that is beyond the end: replicated, acknowledged records are missing.
    /// `None` while a broker or writer holds the log: its checkpoint is older or newer than the segments.
    ///
    /// # Errors
    /// As [`log_end_offset`](Self::log_end_offset).
    pub(crate) fn missing_end(&self) -> Result<Option<(i64, i64)>> {
        if self.has_running_owner() || self.told().is_some() {
            return Ok(None);
        }
        let line = match self.checkpointed_high_watermark() {
            Err(error) if error.is_corruption() => None,
            line => line?,
        };
        // A log never ends below its first segment.
        let first = self.look(|view| Ok(view.segments.first().map(|first| first.base_offset)))?;
        let Some(line) = line.filter(|line| *line > first.unwrap_or(0)) else {
            return Ok(None);
        };
        let end = self.log_end_offset()?;
        Ok(Some((end, line)).filter(|_| line > end))
    }

    /// Says that acknowledged records are missing behind the end, if the log dir's `replication-offset-checkpoint` has a high watermark
    /// above it. `None` while a broker or a writer holds the log: the checkpoint is older or newer than the segments.
    ///
    /// # Errors
    /// As [`log_end_offset`](Self::log_end_offset).
    pub fn lost_end(&self) -> Result<Option<String>> {
        let missing = self.missing_end()?;
        Ok(missing.and_then(|(end, high_watermark)| lost_end(Some(high_watermark), end)))
    }

    /// Exclusive end of what `read_committed` reads: the first offset of the oldest transaction that has no marker yet, or else the
    /// log end offset. While a broker holds the log dir, not above the high watermark.
    ///
    /// Worked out from the newest producer snapshot that agrees with the log and the batch headers behind it, so it costs a walk
    /// over the headers of the whole log where there is no such snapshot.
    ///
    /// # Errors
    /// As [`log_end_offset`](Self::log_end_offset).
    pub fn last_stable_offset(&self) -> Result<i64> {
        if let Some(ends) = self.told() {
            return Ok(ends.last_stable());
        }
        self.ask(|view| self.last_stable_offset_of(view))
    }

    /// Exclusive end for an isolation level.
    ///
    /// # Errors
    /// As [`log_end_offset`](Self::log_end_offset).
    pub fn end_offset(&self, isolation: Isolation) -> Result<i64> {
        match isolation {
            Isolation::ReadUncommitted => self.log_end_offset(),
            Isolation::ReadCommitted => self.last_stable_offset(),
        }
    }

    /// Whether a broker or a writer held the log dir when the log was opened.
    #[must_use]
    pub fn has_running_owner(&self) -> bool {
        self.0.log_dir_was_locked
    }

    /// Whether somebody held the log dir when the log was opened, and somebody holds it now. Of an owner that has ended the checkpoints stay
    /// as they are, for ever behind.
    ///
    /// # Errors
    /// `Io`: the lock cannot be asked for.
    pub(super) fn has_owner_still(&self) -> Result<bool> {
        let directory = &self.0.directory;
        match directory.path.parent() {
            Some(log_dir) if self.0.log_dir_was_locked => {
                super::view::is_locked(directory.disk.as_ref(), log_dir)
            }
            _ => Ok(false),
        }
    }

    /// The greatest leader epoch of the log, from `leader-epoch-checkpoint` and the last batch; `None` without one. A leader that has no
    /// record yet counts; an epoch that begins behind the end does not, as its leader had records that are lost here.
    ///
    /// # Errors
    /// As [`log_end_offset`](Self::log_end_offset); `Checkpoint` when the file is malformed.
    pub fn leader_epoch(&self) -> Result<Option<i32>> {
        self.ask(|view| self.leader_epoch_of(view))
    }

    fn leader_epoch_of(&self, view: &View) -> Result<Option<i32>> {
        let end = view.end()?;
        let stored = self.checkpointed_epoch(end.log_end_offset)?;
        let last = end.leader_epoch;
        Ok(stored.max((last >= 0).then_some(last)))
    }

    /// The greatest leader epoch of `leader-epoch-checkpoint` that begins at or before an offset; `None` without one.
    ///
    /// # Errors
    /// `Checkpoint` when the file is malformed; `Io`.
    pub(crate) fn checkpointed_epoch(&self, end: i64) -> Result<Option<i32>> {
        let path = self.0.directory.path.join(LEADER_EPOCH_CHECKPOINT);
        let Some(bytes) = read_optional(&self.0.directory, &path)? else {
            return Ok(None);
        };
        let epochs =
            LeaderEpochs::parse(&bytes).map_err(|error| Error::new(error).at_path(&path))?;
        Ok(epochs.epoch_of(end))
    }

    /// The leader epochs of the log with their start offsets: those of `leader-epoch-checkpoint`, and of the batches behind what it has.
    /// Empty for a log whose batches have none.
    ///
    /// Cost: a small file; a walk over batch headers if the last batch has an epoch that the file does not have.
    ///
    /// # Errors
    /// As [`leader_epoch`](Self::leader_epoch).
    pub fn leader_epochs(&self) -> Result<LeaderEpochs> {
        self.ask(|view| self.leader_epochs_of(view).map(|epochs| (*epochs).clone()))
    }

    /// As [`Log::leader_epochs`], of a view. A log that was truncated and grew to the same end again has another view.
    pub(super) fn leader_epochs_of(&self, view: &View) -> Result<Arc<LeaderEpochs>> {
        if let Some(known) = view.leader_epochs.get() {
            return Ok(Arc::clone(known));
        }
        let path = self.0.directory.path.join(LEADER_EPOCH_CHECKPOINT);
        let mut epochs = match read_optional(&self.0.directory, &path)? {
            Some(bytes) => {
                LeaderEpochs::parse(&bytes).map_err(|error| Error::new(error).at_path(&path))?
            }
            None => LeaderEpochs::default(),
        };
        let last = match view.end() {
            Ok(end) => end.leader_epoch,
            // Damage hides it; what can be read of the batches is not asked either.
            Err(error) if view.shows_damage(&error) => -1,
            Err(error) => return Err(error),
        };
        let known = epochs.latest();
        if last >= 0 && known.is_none_or(|known| known.epoch < last) {
            let first = view
                .segments
                .first()
                .map_or(0, |segment| segment.base_offset);
            let from = known.map_or(first, |known| known.start_offset.max(first));
            self.visit_headers(view, from, |header, _| {
                let start_offset = header.base_offset.unwrap_or(header.last_offset);
                // The walk may begin before.
                if start_offset >= from {
                    epochs.assign(EpochEntry {
                        epoch: header.leader_epoch,
                        start_offset,
                    });
                }
                Ok(())
            })?;
        }
        let epochs = view.leader_epochs.get_or_init(|| Arc::new(epochs));
        Ok(Arc::clone(epochs))
    }

    /// The topic's id from `partition.metadata`, which brokers write since 2.8; `None` without the file.
    ///
    /// # Errors
    /// `MetadataFile` when it is malformed; `Io`.
    pub fn topic_id(&self) -> Result<Option<Uuid>> {
        let path = self.0.directory.path.join(PARTITION_METADATA);
        match read_optional(&self.0.directory, &path)? {
            Some(bytes) => PartitionMetadata::parse(&bytes)
                .map(|metadata| Some(metadata.topic_id))
                .map_err(|error| Error::new(error).at_path(&path)),
            None => Ok(None),
        }
    }

    /// The torn tail of the active segment, if it has one.
    ///
    /// # Errors
    /// As [`log_end_offset`](Self::log_end_offset).
    pub fn torn_tail(&self) -> Result<Option<crate::TornTail>> {
        // Of one state: a segment that another process cuts while it is read seems torn.
        self.ask(|view| Ok(view.end()?.torn.clone()))
    }
}
