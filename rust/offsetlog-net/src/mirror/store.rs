//! The directory that a mirror fills: a log dir of its own, with a note that says which cluster it mirrors.

use super::batches::runs;
use super::error::MirrorError;
use super::note::Note;
use super::options::MirrorOptions;
use super::partition::Position;
use super::truncation::truncation;
use super::work::{Append, GroupCommit};
use crate::coordinator::committed_offsets::{Commit, CommittedOffsets, CommittedOffsetsOptions};
use offsetlog::format::Uuid;
use offsetlog::{
    Error, ErrorKind, LogConfig, LogDir, LogDirOptions, LogWriter, NewTopic, OpenOptions, Result,
    TopicPartition, is_internal_topic,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Kafka's topic of committed offsets.
const OFFSETS_TOPIC: &str = "__consumer_offsets";
/// Commits that are stored at once.
const COMMITS_AT_ONCE: usize = 1000;

/// The directory.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    log_dir: LogDir,
    open: OpenOptions,
    note: Option<Note>,
    commits: Option<CommittedOffsets>,
    has_unsynced: bool,
}

/// What became of a topic.
#[derive(Debug)]
pub(crate) enum TopicOutcome {
    /// Its partitions, how many of them are new, and what a user should know.
    Ready(Vec<(i32, Position)>, usize, Vec<String>),
    /// The directory has a topic of this name, with this id.
    Another(Uuid),
}

/// What became of a copy that diverged.
#[derive(Debug)]
pub(crate) struct CutOutcome {
    /// Where it stands.
    pub(crate) position: Position,
    /// Its end before.
    pub(crate) before: i64,
    /// Where what was cut is kept.
    pub(crate) kept: Vec<PathBuf>,
    /// Whether leader and copy agree now.
    pub(crate) is_done: bool,
}

impl Store {
    /// Opens a directory of a mirror, or a new one.
    ///
    /// # Errors
    /// `Locked` if another process has it; `LogDir` if it holds something that no mirror made.
    pub(crate) fn open(path: &Path, options: &MirrorOptions, open: &OpenOptions) -> Result<Self> {
        let note = Note::read(open.disk.as_ref(), path)?;
        let internal = options.topics.iter().filter(|name| is_internal_topic(name));
        let how = LogDirOptions {
            max_open_partitions: options.max_open_partitions.max(1),
            internal_topics: internal.cloned().collect(),
            ..LogDirOptions::default()
        };
        if note.is_none() {
            Note::check_free(open.disk.as_ref(), path)?;
        }
        let log_dir = LogDir::open_for_append(&[path], open, &how)?;
        Ok(Self {
            path: path.to_path_buf(),
            log_dir,
            open: open.clone(),
            note,
            commits: None,
            has_unsynced: false,
        })
    }

    /// Checks that the directory is of this cluster, and writes the note if there is none yet.
    ///
    /// # Errors
    /// `WrongCluster`; those of writing the note.
    pub(crate) fn identify(
        &mut self,
        cluster_id: Option<&str>,
    ) -> std::result::Result<(), MirrorError> {
        match &self.note {
            Some(note) if note.cluster_id.as_deref() != cluster_id => {
                Err(MirrorError::WrongCluster {
                    path: self.path.clone(),
                    expected: note.cluster_id.clone(),
                    found: cluster_id.map(str::to_owned),
                })
            }
            Some(_) => Ok(()),
            None => {
                let note = Note {
                    cluster_id: cluster_id.map(str::to_owned),
                    own_ids: BTreeMap::new(),
                };
                note.write(self.open.disk.as_ref(), &self.path)?;
                self.note = Some(note);
                Ok(())
            }
        }
    }

    /// Makes a topic ready.
    ///
    /// # Errors
    /// Those of creating and opening partitions.
    pub(crate) fn topic(
        &mut self,
        name: &str,
        id: Uuid,
        partitions: i32,
        config: Option<&[(String, String)]>,
    ) -> Result<TopicOutcome> {
        let mut warnings = Vec::new();
        let config = config.map(|pairs| settings(pairs, &mut warnings));
        let known = self.log_dir.topics().remove(name).unwrap_or_default();
        let mut new = 0;
        if let Some(&first) = known.first() {
            let ours = self.log_dir.log_writer(name, first)?.topic_id()?;
            let is_own = self
                .note
                .as_ref()
                .is_some_and(|note| note.own_ids.get(name).copied() == ours && ours.is_some());
            if let Some(ours) = ours.filter(|&ours| !id.is_zero() && !is_own && ours != id) {
                return Ok(TopicOutcome::Another(ours));
            }
            new += self.log_dir.add_partitions(name, partitions)?.len();
        } else {
            let topic = NewTopic {
                name,
                partitions,
                config: config.clone().unwrap_or_default(),
                topic_id: (!id.is_zero()).then_some(id),
            };
            let made = self.log_dir.create_topic(&topic)?;
            new += usize::try_from(partitions).unwrap_or(0);
            if id.is_zero()
                && let Some(note) = &mut self.note
            {
                note.own_ids.insert(name.to_owned(), made);
                note.write(self.open.disk.as_ref(), &self.path)?;
            }
        }
        if let Some(config) = config
            && self.log_dir.topic_config(name)? != config
        {
            self.log_dir.set_topic_config(name, &config)?;
        }
        let numbers = self.log_dir.topics().remove(name).unwrap_or_default();
        let mut positions = Vec::new();
        for partition in numbers {
            let log = self.log_dir.log_writer(name, partition)?;
            positions.push((partition, position_of(&log)?));
        }
        Ok(TopicOutcome::Ready(positions, new, warnings))
    }

    /// Stores the settings of a topic. Returns what a user should know.
    ///
    /// # Errors
    /// Those of [`LogDir::set_topic_config`].
    pub(crate) fn set_settings(
        &self,
        name: &str,
        pairs: &[(String, String)],
    ) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        let config = settings(pairs, &mut warnings);
        if self.log_dir.topic_config(name)? != config {
            self.log_dir.set_topic_config(name, &config)?;
        }
        Ok(warnings)
    }

    fn log(&self, at: &TopicPartition) -> Result<LogWriter> {
        self.log_dir.log_writer(&at.topic, at.partition)
    }

    /// Where a copy stands.
    ///
    /// # Errors
    /// Those of opening it.
    pub(crate) fn position(&self, at: &TopicPartition) -> Result<Position> {
        position_of(&self.log(at)?)
    }

    /// Appends whole batches as a follower does.
    ///
    /// # Errors
    /// Those of [`LogWriter::append_as_follower`]. What was appended before the error stays.
    pub(crate) fn append(&mut self, append: &Append, records: &[u8]) -> Result<Position> {
        let log = self.log(&append.at)?;
        self.has_unsynced = true;
        let (start, end) = (log.log_start_offset()?, log.log_end_offset()?);
        let inside = append
            .walked
            .first_offset
            .filter(|&first| first < end && start == end && end == append.position);
        if let Some(first) = inside {
            // The source's log start offset lies inside a batch; a follower begins with the batch, too.
            log.truncate_fully_and_start_at(first, None)?;
        }
        let leader_epoch = append.leader_epoch.unwrap_or(i32::MAX);
        let at_most = usize::try_from(log.config().segment_bytes()).unwrap_or(1);
        for run in runs(records, at_most) {
            if let Err(error) = log.append_as_follower(run, leader_epoch, false) {
                let ErrorKind::RecordBatchTooLarge { size, .. } = error.kind() else {
                    return Err(error);
                };
                append_wide(&log, run, leader_epoch, *size)?;
            }
        }
        if inside.is_some() {
            log.delete_records_before(append.position)?;
        }
        Ok(Position {
            start: log.log_start_offset()?,
            end: log.log_end_offset()?,
            epoch: match append.walked.leader_epoch {
                Some(epoch) => Some(epoch),
                None => log.leader_epoch()?,
            },
        })
    }

    /// Cuts a copy that diverged, as a follower does, and keeps what it cuts.
    ///
    /// # Errors
    /// Those of [`LogWriter::truncate_to_keeping`].
    pub(crate) fn cut(
        &mut self,
        at: &TopicPartition,
        leader: (Option<i32>, i64),
    ) -> Result<CutOutcome> {
        let log = self.log(at)?;
        self.has_unsynced = true;
        let before = log.log_end_offset()?;
        let (leader_epoch, leader_end) = leader;
        let to = match leader_epoch {
            Some(epoch) => truncation((epoch, leader_end), log.end_offset_for_epoch(epoch), before),
            None => truncation((-1, leader_end), None, before),
        };
        let kept = log.truncate_to_keeping(to.offset.max(0))?;
        Ok(CutOutcome {
            position: position_of(&log)?,
            before,
            kept,
            is_done: to.is_done,
        })
    }

    /// Begins a copy at an offset; what it had is deleted.
    ///
    /// # Errors
    /// Those of [`LogWriter::truncate_fully_and_start_at`].
    pub(crate) fn start_at(&mut self, at: &TopicPartition, offset: i64) -> Result<Position> {
        let log = self.log(at)?;
        self.has_unsynced = true;
        log.truncate_fully_and_start_at(offset, None)?;
        position_of(&log)
    }

    /// Deletes the records before an offset. Returns the new log start offset.
    ///
    /// # Errors
    /// Those of [`LogWriter::delete_records_before`].
    pub(crate) fn delete_before(&mut self, at: &TopicPartition, offset: i64) -> Result<i64> {
        let log = self.log(at)?;
        self.has_unsynced = true;
        log.delete_records_before(offset.min(log.high_watermark()?))?;
        log.log_start_offset()
    }

    /// Deletes a topic as a broker does.
    ///
    /// # Errors
    /// Those of [`LogDir::delete_topic`].
    pub(crate) fn delete_topic(&mut self, name: &str) -> Result<()> {
        if self.log_dir.topics().contains_key(name) {
            self.log_dir.delete_topic(name)?;
        }
        if let Some(note) = &mut self.note
            && note.own_ids.remove(name).is_some()
        {
            note.write(self.open.disk.as_ref(), &self.path)?;
        }
        Ok(())
    }

    /// Stores committed offsets, after everything that was appended before is durable.
    ///
    /// # Errors
    /// Those of [`CommittedOffsets::store`].
    pub(crate) fn commit(&mut self, commits: &[GroupCommit]) -> Result<()> {
        self.flush()?;
        let mut by_group: BTreeMap<&str, Vec<Commit>> = BTreeMap::new();
        for commit in commits {
            let topic_id = self
                .log_dir
                .log_if(&commit.at.topic, commit.at.partition, false)?
                .and_then(|log| log.topic_id().transpose())
                .transpose()?;
            by_group.entry(&commit.group).or_default().push(Commit {
                topic: commit.at.topic.clone(),
                partition: commit.at.partition,
                offset: commit.offset,
                leader_epoch: commit.leader_epoch,
                metadata: commit.metadata.clone(),
                commit_timestamp: (self.open.clock)(),
                topic_id: topic_id.unwrap_or(Uuid::from_bytes([0; 16])),
            });
        }
        let mut log = if let Some(log) = self.commits.take() {
            log
        } else {
            let options = CommittedOffsetsOptions {
                open: self.open.clone(),
                ..CommittedOffsetsOptions::default()
            };
            CommittedOffsets::open_in(&self.log_dir, &options)?
        };
        self.has_unsynced = true;
        for (group, commits) in by_group {
            // What is there already is not written again.
            let news: Vec<Commit> = commits
                .into_iter()
                .filter(|commit| {
                    let known = log.get(group, &commit.topic, commit.partition);
                    !known.is_some_and(|known| {
                        (known.offset, known.leader_epoch, &known.metadata)
                            == (commit.offset, commit.leader_epoch, &commit.metadata)
                    })
                })
                .collect();
            for part in news.chunks(COMMITS_AT_ONCE) {
                log.store(group, part)?;
            }
        }
        self.commits = Some(log);
        Ok(())
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// Those of [`LogDir::flush`].
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.has_unsynced {
            self.log_dir.flush()?;
            self.has_unsynced = false;
        }
        Ok(())
    }

    /// Removes the directories of deleted topics whose time has come.
    ///
    /// # Errors
    /// Those of [`LogDir::remove_deleted`].
    pub(crate) fn remove_deleted(&self) -> Result<()> {
        self.log_dir.remove_deleted(false).map(|_| ())
    }

    /// Makes everything durable and closes the directory clean.
    ///
    /// # Errors
    /// Those of [`LogDir::close`].
    pub(crate) fn close(mut self) -> Result<()> {
        drop(self.commits.take());
        self.log_dir.close()
    }

    /// Leaves the directory as a killed process does.
    #[cfg(test)]
    pub(crate) fn abandon(self) {
        for at in self.log_dir.partitions() {
            if let Ok(log) = self.log(&at) {
                log.abandon();
            }
        }
    }

    /// Whether the committed offsets are copied as a topic, and not group by group.
    pub(crate) fn copies_offsets_topic(options: &MirrorOptions) -> bool {
        options.topics.iter().any(|topic| topic == OFFSETS_TOPIC)
    }
}

/// Appends one batch that is larger than the topic's `segment.bytes`, which was lowered at the source since it was written.
fn append_wide(log: &LogWriter, run: &[u8], leader_epoch: i32, size: u64) -> Result<()> {
    let stored = log.stored_config()?.unwrap_or_default();
    log.set_config(&stored.with("segment.bytes", &size.to_string())?)?;
    let appended = log.append_as_follower(run, leader_epoch, false);
    log.set_config(&stored)?;
    appended.map(|_| ())
}

fn position_of(log: &LogWriter) -> Result<Position> {
    Ok(Position {
        start: log.log_start_offset()?,
        end: log.log_end_offset()?,
        epoch: log.leader_epoch()?,
    })
}

/// The settings that can be stored; of the others a warning.
fn settings(pairs: &[(String, String)], warnings: &mut Vec<String>) -> LogConfig {
    let mut config = LogConfig::default();
    for (name, value) in pairs {
        match config.with(name, value) {
            Ok(with) => config = with,
            Err(error) => warnings.push(format!("setting {name}={value} is not stored: {error}")),
        }
    }
    config
}

/// Whether an append failed by what the broker sent, and not by this machine.
pub(crate) fn is_brokers_fault(error: &Error) -> bool {
    error.is_corruption()
        || matches!(
            error.kind(),
            ErrorKind::OffsetsOutOfOrder
                | ErrorKind::UnexpectedAppendOffset { .. }
                | ErrorKind::Argument { .. }
                | ErrorKind::UnsupportedMagic(_)
                | ErrorKind::Limit { .. }
                | ErrorKind::Unreadable { .. }
                | ErrorKind::RecordRejected { .. }
                | ErrorKind::RecordBatchTooLarge { .. }
        )
}
