//! The directory that a mirror fills: a log dir of its own, with a note that says which cluster it mirrors.

mod append;
mod commits;
mod noted;
mod syncs;
mod unended;

pub(crate) use append::AppendOutcome;
pub(crate) use commits::CommitOutcome;
pub(crate) use unended::{Transactions, Unended};

use super::error::MirrorError;
use super::note::Note;
use super::options::MirrorOptions;
use super::partition::Position;
use super::truncation::truncation;
use crate::coordinator::committed_offsets::CommittedOffsets;
use noted::{difference_of, is_as_made, note_start, noted_start};
use offsetlog::disk::{Disk, IoCall, Lock, LockKind, read_whole, write_whole};
use offsetlog::format::{PartitionMetadata, Uuid};
use offsetlog::{
    Error, ErrorKind, LogConfig, LogDir, LogDirOptions, LogWriter, MaintainOptions, NewTopic,
    OpenOptions, Result, TopicPartition, is_internal_topic, local_path, new_topic_id,
};
use std::io;
use std::path::{Path, PathBuf};
use syncs::Syncs;
use unended::OpenOfCopies;

/// Kafka's topic of committed offsets.
const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Locked by the mirror that fills the directory.
const LOCK_FILE: &str = ".offsetlog.mirror.lock";
/// The file of a partition directory that has the topic's id.
const PARTITION_METADATA: &str = "partition.metadata";
/// Its version.
const PARTITION_METADATA_VERSION: i32 = 0;

/// The directory.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    log_dir: LogDir,
    open: OpenOptions,
    note: Option<Note>,
    commits: Option<CommittedOffsets>,
    syncs: Syncs,
    open_transactions: OpenOfCopies,
    _lock: Lock,
}

/// What became of a topic.
#[derive(Debug)]
pub(crate) enum TopicOutcome {
    /// Its partitions.
    Ready(ReadyTopic),
    /// The directory has a topic of this name, with this id.
    Another(Uuid),
}

/// A topic whose partitions are there.
#[derive(Debug, Default)]
pub(crate) struct ReadyTopic {
    /// Where its partitions stand.
    pub(crate) positions: Vec<(i32, Position)>,
    /// Those that were made just now, or by a run that was killed before it made them ready.
    pub(crate) new: Vec<i32>,
    /// Those among them that were here before: their directories are lost.
    pub(crate) again: Vec<i32>,
    /// In what the settings of a copy differed from the source's.
    pub(crate) other_settings: Option<String>,
    /// Those that cannot be opened, and why.
    pub(crate) broken: Vec<(i32, String)>,
    /// What a user should know.
    pub(crate) warnings: Vec<String>,
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
        let path = &local_path(path)?;
        let disk = open.disk.as_ref();
        // A directory that belongs to something else stays unchanged.
        let note = read_note(disk, path)?;
        let named = options.topics.iter().map(String::as_str);
        let owns_offsets = options.groups || note.is_some_and(|note| note.owns_offsets);
        let own = owns_offsets.then_some(OFFSETS_TOPIC);
        let internal = named.chain(own).filter(|name| is_internal_topic(name));
        let how = LogDirOptions {
            max_open_partitions: options.open_partitions().max(1),
            internal_topics: internal.map(str::to_owned).collect(),
            fills_mirror: true,
            ..LogDirOptions::default()
        };
        let log_dir = LogDir::open_for_append(&[path], open, &how)?;
        let lock = lock(disk, path)?;
        // Another mirror may have written it until now.
        let note = read_note(disk, path)?;
        log_dir.refresh_listing()?;
        Ok(Self {
            path: path.clone(),
            log_dir,
            open: open.clone(),
            note,
            commits: None,
            syncs: Syncs::default(),
            open_transactions: OpenOfCopies::default(),
            _lock: lock,
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
                    ..Note::default()
                };
                note.write(self.open.disk.as_ref(), &self.path)?;
                self.note = Some(note);
                Ok(())
            }
        }
    }

    /// The names of the topics that are here.
    pub(crate) fn topics(&self) -> Vec<String> {
        self.log_dir.topics().into_keys().collect()
    }

    /// Makes a topic ready.
    ///
    /// # Errors
    /// Those of creating partitions.
    pub(crate) fn topic(
        &mut self,
        name: &str,
        id: Uuid,
        partitions: i32,
        config: Option<&[(String, String)]>,
    ) -> Result<TopicOutcome> {
        if name == OFFSETS_TOPIC && self.note.as_ref().is_some_and(|note| note.owns_offsets) {
            let reason = "it has the committed offsets that a mirror without this topic copied: mirror into another directory";
            return Err(Error::log_dir(&self.path, reason));
        }
        let mut ready = ReadyTopic::default();
        let config = config.map(|pairs| settings(pairs, &mut ready.warnings));
        let known = self.numbers(name);
        if known.is_empty() {
            // Those of an earlier copy, perhaps of another topic of the name.
            self.forget_earlier(name, |_| true, &mut ready.warnings)?;
            let mut topic_id = (!id.is_zero()).then_some(id);
            if id.is_zero()
                && let Some(note) = &mut self.note
            {
                // Noted before the topic is there: an id that nobody noted would pass for that of another topic at the source.
                let own = new_topic_id();
                note.own_ids.insert(name.to_owned(), own);
                note.write(self.open.disk.as_ref(), &self.path)?;
                topic_id = Some(own);
            }
            let topic = NewTopic {
                name,
                partitions,
                config: config.clone().unwrap_or_default(),
                topic_id,
            };
            self.log_dir.create_topic(&topic)?;
            ready.new = (0..partitions).collect();
        } else {
            let unused = self.as_made(name, &known)?;
            if let Some(another) = self.check_ids(name, id, &known)? {
                return Ok(TopicOutcome::Another(another));
            }
            let is_new = |partition| !known.contains(&partition);
            if (0..partitions).any(is_new) {
                self.forget_earlier(name, is_new, &mut ready.warnings)?;
            }
            let made = self.log_dir.add_partitions(name, partitions)?;
            // The first partition is made last: below one that nobody has used, others may never have been.
            let used = known.iter().filter(|known| !unused.contains(known));
            let last = used.max();
            ready.again = made
                .iter()
                .filter(|made| Some(*made) < last)
                .copied()
                .collect();
            ready.new = unused;
            ready.new.extend(made);
        }
        for partition in self.numbers(name) {
            match self.ready(name, partition, config.as_ref()) {
                Ok((position, difference)) => {
                    if !ready.new.contains(&partition) {
                        ready.other_settings = ready.other_settings.or(difference);
                    }
                    ready.positions.push((partition, position));
                }
                Err(error) if is_of_topic(error.kind()) => {
                    ready.broken.push((partition, error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(TopicOutcome::Ready(ready))
    }

    /// Those of the partitions that a run has made, which was killed before it made them ready.
    fn as_made(&self, name: &str, known: &[i32]) -> Result<Vec<i32>> {
        let mut unused = Vec::new();
        for &partition in known {
            let directory = self.path.join(format!("{name}-{partition}"));
            if is_as_made(self.open.disk.as_ref(), &directory)? {
                unused.push(partition);
            }
        }
        Ok(unused)
    }

    fn numbers(&self, name: &str) -> Vec<i32> {
        self.log_dir.topics().remove(name).unwrap_or_default()
    }

    /// Where a partition stands, once it has the topic's settings: a kill may have left some without. Returns in what its own differed.
    fn ready(
        &self,
        name: &str,
        partition: i32,
        config: Option<&LogConfig>,
    ) -> Result<(Position, Option<String>)> {
        let log = self.log_dir.log_writer(name, partition)?;
        let mut difference = None;
        if let Some(config) = config {
            let before = log.stored_config()?.unwrap_or_default();
            if set_config(&log, config)? {
                difference = Some(difference_of(&before, config));
            }
        }
        let mut position = position_of(&log)?;
        position.noted_start = noted_start(self.open.disk.as_ref(), &log)?;
        Ok((position, difference))
    }

    /// The id of the topic that is here, if it is another one than the source's. Partitions without an id, which a kill while they were made
    /// leaves, get it.
    fn check_ids(&mut self, name: &str, id: Uuid, known: &[i32]) -> Result<Option<Uuid>> {
        if id.is_zero() {
            return Ok(None);
        }
        let own = self
            .note
            .as_ref()
            .and_then(|note| note.own_ids.get(name).copied());
        let mut is_own = false;
        for &partition in known {
            let directory = self.path.join(format!("{name}-{partition}"));
            match topic_id_of(self.open.disk.as_ref(), &directory)? {
                Some(ours) if own == Some(ours) => is_own = true,
                Some(ours) if ours != id => return Ok(Some(ours)),
                Some(_) => {}
                None if own.is_some() => {}
                None => {
                    let metadata = PartitionMetadata {
                        version: PARTITION_METADATA_VERSION,
                        topic_id: id,
                    };
                    let file = directory.join(PARTITION_METADATA);
                    write_whole(self.open.disk.as_ref(), &file, &metadata.write())
                        .map_err(|failed| Error::failed_call(&file, failed))?;
                }
            }
        }
        if let Some(note) = self.note.as_mut().filter(|_| is_own) {
            // The source has ids since an upgrade: from now on this one is the topic's.
            match note.source_ids.get(name) {
                Some(&source) if source != id => return Ok(Some(source)),
                Some(_) => {}
                None => {
                    note.source_ids.insert(name.to_owned(), id);
                    note.write(self.open.disk.as_ref(), &self.path)?;
                }
            }
        }
        Ok(None)
    }

    /// Stores the settings of a topic. Returns whether it had others, and what a user should know.
    ///
    /// # Errors
    /// Those of storing them.
    pub(crate) fn set_settings(
        &self,
        name: &str,
        pairs: &[(String, String)],
    ) -> Result<(bool, Vec<String>)> {
        let mut is_changed = false;
        let mut warnings = Vec::new();
        let config = settings(pairs, &mut warnings);
        for partition in self.numbers(name) {
            let log = self.log_dir.log_writer(name, partition);
            match log.and_then(|log| set_config(&log, &config)) {
                Err(error) if !is_of_topic(error.kind()) => return Err(error),
                Err(error) => warnings.push(format!("{name}-{partition}: {error}")),
                Ok(is_other) => is_changed |= is_other,
            }
        }
        Ok((is_changed, warnings))
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
        self.syncs.dirty();
        self.open_transactions.forget(at);
        let before = log.log_end_offset()?;
        let (leader_epoch, leader_end) = leader;
        let to = match leader_epoch {
            Some(epoch) => truncation((epoch, leader_end), log.end_offset_for_epoch(epoch), before),
            None => truncation((-1, leader_end), None, before),
        };
        let kept = log.truncate_to_keeping(to.offset.max(0))?;
        if to.offset < before {
            // The new leader may have what the old one had compacted away before the cut.
            let end = end_of_batches(&log)?;
            if end < log.log_end_offset()? {
                log.truncate_to(end)?;
            }
        }
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
        self.syncs.dirty();
        self.open_transactions.forget(at);
        note_start(self.open.disk.as_ref(), &log, offset)?;
        log.truncate_fully_and_start_at(offset, None)?;
        let noted_start = offset;
        position_of(&log).map(|position| Position {
            noted_start,
            ..position
        })
    }

    /// Deletes the records before an offset. Returns the new log start offset.
    ///
    /// # Errors
    /// Those of [`LogWriter::delete_records_before`].
    pub(crate) fn delete_before(&mut self, at: &TopicPartition, offset: i64) -> Result<i64> {
        let log = self.log(at)?;
        self.syncs.dirty();
        note_start(self.open.disk.as_ref(), &log, offset)?;
        log.delete_records_before(offset.min(log.high_watermark()?))?;
        // Deletes the segments below the new start, but none for age or size: that is up to the source.
        let by_start = LogConfig::default().with("cleanup.policy", "compact")?;
        log.maintain(&MaintainOptions {
            compaction: false,
            config: Some(by_start),
            ..MaintainOptions::default()
        })?;
        log.log_start_offset()
    }

    /// Deletes a topic as a broker does, and first the groups' offsets in it, as the coordinator does. A kill in between leaves the topic,
    /// which the next run finds.
    ///
    /// # Errors
    /// Those of [`LogDir::delete_topic`] and [`CommittedOffsets::remove`].
    pub(crate) fn delete_topic(&mut self, name: &str) -> Result<()> {
        self.forget_offsets(name, |_| true)?;
        self.open_transactions.forget_topic(name);
        if self.log_dir.topics().contains_key(name) {
            self.log_dir.delete_topic(name)?;
        }
        if let Some(note) = &mut self.note
            && (note.own_ids.remove(name).is_some() | note.source_ids.remove(name).is_some())
        {
            note.write(self.open.disk.as_ref(), &self.path)?;
        }
        Ok(())
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// Those of [`LogDir::flush`].
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.syncs.flush(&self.log_dir)
    }

    /// Whether enough was appended to make it durable.
    pub(crate) const fn has_much_unsynced(&self) -> bool {
        self.syncs.is_due()
    }

    /// Begins to make durable what was written, beside further appends.
    ///
    /// # Errors
    /// Those of [`LogDir::flush`], of the one that was begun before.
    pub(crate) fn begin_flush(&mut self) -> Result<()> {
        self.syncs.begin(&self.log_dir)
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
    pub(crate) fn abandon(mut self) {
        self.syncs.end().unwrap();
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

/// The note of a directory; `None` if a mirror may begin in it.
fn read_note(disk: &dyn Disk, path: &Path) -> Result<Option<Note>> {
    let note = Note::read(disk, path)?;
    if note.is_none() {
        Note::check_free(disk, path)?;
    }
    Ok(note)
}

/// Keeps other mirrors out of the directory.
fn lock(disk: &dyn Disk, path: &Path) -> Result<Lock> {
    let file = path.join(LOCK_FILE);
    let lock = disk
        .lock(&file, LockKind::Exclusive)
        .map_err(|error| Error::io(IoCall::Lock, &file, error))?;
    lock.ok_or_else(|| Error::new(ErrorKind::Locked { pid: None }).at_path(&file))
}

/// The topic's id that a partition directory has.
fn topic_id_of(disk: &dyn Disk, directory: &Path) -> Result<Option<Uuid>> {
    let file = directory.join(PARTITION_METADATA);
    match read_whole(disk, &file, 1 << 16) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => {
            let bytes = read.map_err(|error| Error::io(IoCall::Read, &file, error))?;
            if bytes.is_empty() {
                // Killed before the file was written.
                return Ok(None);
            }
            let parsed = PartitionMetadata::parse(&bytes);
            let parsed = parsed.map_err(|error| Error::new(error).at_path(&file))?;
            Ok(Some(parsed.topic_id))
        }
    }
}

/// Whether an error concerns one topic, partition or group, and not the disk.
pub(crate) const fn is_of_topic(kind: &ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::Io { .. }
            | ErrorKind::Interrupted
            | ErrorKind::Closed
            | ErrorKind::Poisoned { .. }
    )
}

/// The offset behind the last batch, which may lie before the log end offset; the log start offset if there is no batch.
fn end_of_batches(log: &LogWriter) -> Result<i64> {
    let (start, end) = (log.log_start_offset()?, log.log_end_offset()?);
    let mut step = 1;
    loop {
        let from = end.saturating_sub(step).max(start);
        let mut found = None;
        for batch in log.batches(Some(from), None)? {
            found = Some(batch?.last_offset.saturating_add(1));
        }
        match found {
            // Without batches it stands at its start: there the next opening finds its end, too.
            None if from == start => return Ok(start),
            None => step = step.saturating_mul(8),
            Some(found) => return Ok(found),
        }
    }
}

/// Stores the settings of a partition. Returns whether it had others.
fn set_config(log: &LogWriter, config: &LogConfig) -> Result<bool> {
    let is_other = log.stored_config()?.unwrap_or_default() != *config;
    if is_other {
        log.set_config(config)?;
    }
    Ok(is_other)
}

fn position_of(log: &LogWriter) -> Result<Position> {
    Ok(Position {
        start: log.log_start_offset()?,
        end: log.log_end_offset()?,
        epoch: log.leader_epoch()?,
        noted_start: 0,
    })
}

/// The settings that can be stored; adds a warning for each of the others.
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
