//! What groups have committed: in memory, or with a log of our own, which is a partition of `__consumer_offsets` as a broker writes it.
//!
//! over 600 lines: one type, whose methods change memory and log together; a third of it is documentation.

mod record;
mod replay;

use super::TopicId;
use offsetlog::disk::IoCall;
use offsetlog::format::Uuid;
use offsetlog::format::internal_topic::partition_of;
use offsetlog::format::name::{META_PROPERTIES, TOPIC_MAXIMUM_CHARACTERS};
use offsetlog::{
    AppendOptions, BatchBuilder, Error, ErrorKind, LimitName, LogConfig, LogDir, LogDirOptions,
    LogWriter, MaintainOptions, NewTopic, OpenOptions, Result, local_path,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// The topic in which Kafka stores its groups.
const TOPIC: &str = "__consumer_offsets";

/// What the memory of an entry costs beside its texts, roughly.
const ENTRY_BYTES: u64 = 160;

/// Settings of the topic. A tombstone is kept for a hundred years, because a deletion must win over what a dead cluster had committed for
/// as long as its directories are served; more years would overflow in Kafka's cleaner. Segments are smaller than a broker's 100 MiB:
/// only closed ones are compacted, and opening reads all.
const SETTINGS: [(&str, &str); 3] = [
    ("cleanup.policy", "compact"),
    ("delete.retention.ms", "3153600000000"),
    ("segment.bytes", "16777216"),
];

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    /// Leader epoch of the last record read, if the consumer sent it.
    pub leader_epoch: Option<i32>,
    /// What the consumer committed with it.
    pub metadata: String,
    /// When it was committed, in milliseconds since 1970.
    pub commit_timestamp: i64,
    /// Id of the topic, zero if it is not known.
    pub topic_id: Uuid,
}

impl Commit {
    /// Whether it was committed for an earlier topic of its name than the one that is there.
    pub(super) fn is_of_other(&self, topic_id: &TopicId) -> bool {
        let known = topic_id(&self.topic, self.partition).unwrap_or(Uuid::ZERO);
        !self.topic_id.is_zero() && !known.is_zero() && self.topic_id != known
    }

    fn bytes(&self) -> u64 {
        ENTRY_BYTES + 2 * self.topic.len() as u64 + self.metadata.len() as u64
    }
}

/// What is stored of a classic group beside its offsets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupMetadata {
    /// Such as `consumer`; empty without members.
    pub protocol_type: String,
    /// The generation.
    pub generation: i32,
    /// The assignment strategy.
    pub protocol: Option<String>,
    /// The leader's member id.
    pub leader: Option<String>,
    /// When its state last changed, in milliseconds since 1970.
    pub state_timestamp: i64,
    /// The members.
    pub members: Vec<MemberMetadata>,
}

/// What is stored of a member of a classic group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberMetadata {
    /// Its id.
    pub member_id: String,
    /// Its `group.instance.id`.
    pub instance_id: Option<String>,
    /// Its `client.id`.
    pub client_id: String,
    /// The address of its client, as Kafka writes it: with a slash in front.
    pub client_host: String,
    /// How long a rebalance may take.
    pub rebalance_timeout_ms: i32,
    /// How long it may be silent.
    pub session_timeout_ms: i32,
    /// What it sent for the protocol that was chosen.
    pub subscription: Vec<u8>,
    /// What the leader assigned to it.
    pub assignment: Vec<u8>,
}

/// How committed offsets are kept.
#[derive(Clone, Debug)]
pub struct CommittedOffsetsOptions {
    /// Number of partitions of a new log; an existing log keeps its number. Kafka's hash of a group's name selects its partition.
    pub partitions: i32,
    /// Whether a commit is flushed before it is acknowledged. If not, it survives a kill of this process, but not a power failure.
    pub durable: bool,
    /// Most bytes of memory, about, for all commits.
    pub max_bytes: u64,
    /// Directories that are served: the log must be neither inside nor around one of them.
    pub served: Vec<PathBuf>,
    /// Disk, clock and limits.
    pub open: OpenOptions,
}

impl Default for CommittedOffsetsOptions {
    fn default() -> Self {
        Self {
            partitions: 1,
            durable: false,
            max_bytes: 256 << 20,
            served: Vec::new(),
            open: OpenOptions::default(),
        }
    }
}

/// The offsets of one group.
pub type GroupOffsets = BTreeMap<(String, i32), Commit>;

/// A group, as far as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Stored {
    offsets: GroupOffsets,
    metadata: Option<GroupMetadata>,
    /// Deleted offsets: they keep a dead cluster's commits from coming back.
    deleted: BTreeSet<(String, i32)>,
}

impl Stored {
    fn is_group(&self) -> bool {
        self.metadata.is_some() || !self.offsets.is_empty()
    }
}

/// The log behind the commits.
#[derive(Debug)]
struct OffsetsLog {
    log_dir: LogDir,
    writers: Vec<LogWriter>,
    /// Whether the log dir was opened here, and is closed here.
    is_own: bool,
}

/// Committed offsets of all groups.
///
/// A commit is stored whole or not at all: its records are one batch. When a call returns without an error, the log has its records, and
/// later calls return them. After an error neither has changed, unless [`Error::is_appended`] says that the log has the records and only a
/// flush failed: then they are not returned, and may or may not be there after the next opening.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use offsetlog_net::coordinator::committed_offsets::{Commit, CommittedOffsets, CommittedOffsetsOptions};
///
/// # let folder = tempfile::tempdir()?;
/// # let directory = folder.path().join("groups");
/// let mut offsets = CommittedOffsets::open(&directory, &CommittedOffsetsOptions::default())?;
/// let commit = Commit {
///     topic: "orders".to_owned(),
///     partition: 0,
///     offset: 42,
///     leader_epoch: None,
///     metadata: String::new(),
///     commit_timestamp: 1_700_000_000_000,
///     topic_id: offsetlog::format::Uuid::ZERO,
/// };
/// offsets.store("billing", &[commit])?;
/// assert_eq!(offsets.of("billing").count(), 1);
/// offsets.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CommittedOffsets {
    groups: BTreeMap<String, Stored>,
    bytes: u64,
    options: CommittedOffsetsOptions,
    log: Option<OffsetsLog>,
    batch: BatchBuilder,
}

impl CommittedOffsets {
    /// Keeps commits in memory only.
    #[must_use]
    pub fn in_memory(options: &CommittedOffsetsOptions) -> Self {
        Self {
            groups: BTreeMap::new(),
            bytes: 0,
            options: options.clone(),
            log: None,
            batch: BatchBuilder::default(),
        }
    }

    /// Opens the log in `directory`, or creates it: a log dir that holds `__consumer_offsets` and nothing else. After a kill it is
    /// recovered like any log of ours.
    ///
    /// # Errors
    /// `LogDir` if the directory is a broker's, has other topics, lies in a served one or around one; `Limit` if the commits need more
    /// memory than allowed; `Locked` if another process has it; those of opening and reading a log.
    pub fn open(directory: impl AsRef<Path>, options: &CommittedOffsetsOptions) -> Result<Self> {
        let directory = &local_path(directory)?;
        refuse_served(directory, options)?;
        refuse_brokers(directory, options)?;
        let how = LogDirOptions {
            internal_topics: BTreeSet::from([TOPIC.to_owned()]),
            ..LogDirOptions::default()
        };
        let log_dir = LogDir::open_for_append(&[directory], &options.open, &how)?;
        let other = log_dir.topics().into_keys().find(|topic| topic != TOPIC);
        if let Some(other) = other {
            let reason = format!(
                "it has the topic {other:?}: the log of committed offsets needs a directory of its own"
            );
            log_dir.close()?;
            return Err(Error::log_dir(directory, reason));
        }
        let mut opened = Self::open_in(&log_dir, options)?;
        if let Some(log) = &mut opened.log {
            log.is_own = true;
        }
        Ok(opened)
    }

    /// As [`open`](Self::open), but in a log dir that the caller has open for appending and that may have other topics, as a mirror does.
    /// The caller closes it. `LogDir::maintain` compacts the topic only if the log dir's options name it among `internal_topics`.
    ///
    /// # Errors
    /// As there; `LogDir` if it has records that neither a mirror nor a server of ours wrote.
    pub fn open_in(log_dir: &LogDir, options: &CommittedOffsetsOptions) -> Result<Self> {
        let mut count = log_dir.topics().get(TOPIC).map_or(0, Vec::len) as i32;
        if count == 0 {
            log_dir.create_topic(&NewTopic {
                name: TOPIC,
                partitions: options.partitions,
                config: LogConfig::parse(SETTINGS)?,
                topic_id: None,
            })?;
            count = options.partitions;
        } else {
            // Fails if partitions are missing: the group's partition is then unknown.
            count = count.max(log_dir.partition_count(TOPIC)?);
        }
        let writers = (0..count).map(|partition| log_dir.log_writer(TOPIC, partition));
        let writers: Vec<LogWriter> = writers.collect::<Result<_>>()?;
        let mut opened = Self::in_memory(options);
        for writer in &writers {
            replay::replay(writer.log(), &mut opened.groups)?;
        }
        opened.bytes = opened.groups.values().map(Stored::bytes).sum();
        opened.allow(opened.bytes)?;
        opened.log = Some(OffsetsLog {
            log_dir: log_dir.clone(),
            writers,
            is_own: false,
        });
        Ok(opened)
    }

    /// Adds a dead cluster's commits. Entries of the log win, deletions too, except an entry of an earlier topic of the name, which no
    /// client would get: `topic_id` says which topic is there. Writes nothing.
    ///
    /// # Errors
    /// `Limit` if the commits need more memory than allowed; the commits before it are added.
    pub fn seed(
        &mut self,
        group: &str,
        commits: impl IntoIterator<Item = Commit>,
        topic_id: &TopicId,
    ) -> Result<()> {
        for commit in commits {
            let key = (commit.topic.clone(), commit.partition);
            let stored = self.groups.get(group);
            let known = stored.and_then(|it| it.offsets.get(&key));
            let is_known =
                known.is_some_and(|it| !it.is_of_other(topic_id) || commit.is_of_other(topic_id));
            if is_known || stored.is_some_and(|it| it.deleted.contains(&key)) {
                continue;
            }
            let replaced = known.map_or(0, Commit::bytes);
            let bytes = self.bytes.saturating_add(commit.bytes());
            let bytes = bytes.saturating_sub(replaced);
            self.allow(bytes)?;
            self.bytes = bytes;
            let stored = self.groups.entry(group.to_owned()).or_default();
            stored.offsets.insert(key, commit);
        }
        Ok(())
    }

    /// Adds the generation of a dead cluster's group, unless the log has the group or its deletion. Writes nothing.
    pub fn seed_group(&mut self, group: &str, protocol_type: &str, generation: i32) {
        let known = self.groups.get(group);
        let is_deleted = |stored: &Stored| stored.offsets.is_empty() && !stored.deleted.is_empty();
        if known.is_some_and(|stored| stored.metadata.is_some() || is_deleted(stored)) {
            return;
        }
        let metadata = GroupMetadata {
            protocol_type: protocol_type.to_owned(),
            generation,
            state_timestamp: -1,
            ..GroupMetadata::default()
        };
        self.change(group, |stored| stored.metadata = Some(metadata));
    }

    /// Stores commits of a group, all or none. Of several for one partition the last one counts. Does nothing without commits.
    ///
    /// # Errors
    /// `Limit` without memory for them; `Argument` for a text above 32,767 bytes; those of [`LogWriter::append`], such as
    /// `RecordTooLarge` for more than a mebibyte at once.
    pub fn store(&mut self, group: &str, commits: &[Commit]) -> Result<()> {
        let added: u64 = commits.iter().map(Commit::bytes).sum();
        let stored = self.groups.get(group);
        let replaced = commits.iter().filter_map(|commit| {
            let key = (commit.topic.clone(), commit.partition);
            stored?.offsets.get(&key)
        });
        let replaced: u64 = replaced.map(Commit::bytes).sum();
        self.allow(self.bytes.saturating_add(added).saturating_sub(replaced))?;
        let records = commits.iter().map(|commit| {
            let key = record::commit_key(group, &commit.topic, commit.partition)?;
            Ok((key, Some(record::commit_value(commit)?)))
        });
        self.append(group, &records.collect::<Result<Vec<_>>>()?)?;
        self.change(group, |stored| {
            for commit in commits {
                let key = (commit.topic.clone(), commit.partition);
                stored.deleted.remove(&key);
                stored.offsets.insert(key, commit.clone());
            }
        });
        Ok(())
    }

    /// Stores a group's generation and members.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub fn store_group(&mut self, group: &str, metadata: GroupMetadata) -> Result<()> {
        let added = metadata.bytes() + ENTRY_BYTES + group.len() as u64;
        self.allow(self.bytes.saturating_add(added))?;
        let value = record::group_value(&metadata)?;
        self.append(group, &[(record::group_key(group)?, Some(value))])?;
        self.change(group, |stored| stored.metadata = Some(metadata));
        Ok(())
    }

    /// Deletes offsets of a group; ignores those that it does not have.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub fn remove(&mut self, group: &str, partitions: &[(String, i32)]) -> Result<()> {
        let Some(stored) = self.groups.get(group) else {
            return Ok(());
        };
        let there = partitions.iter();
        let there: BTreeSet<_> = there
            .filter(|key| stored.offsets.contains_key(*key))
            .cloned()
            .collect();
        let records = there
            .iter()
            .map(|(topic, partition)| Ok((record::commit_key(group, topic, *partition)?, None)));
        self.append(group, &records.collect::<Result<Vec<_>>>()?)?;
        self.change(group, |stored| {
            for key in there {
                stored.offsets.remove(&key);
                stored.deleted.insert(key);
            }
        });
        Ok(())
    }

    /// Deletes a group with all its offsets. Does nothing if there is no such group.
    ///
    /// # Errors
    /// As [`store`](Self::store). A group whose deletion takes several batches may be left with a part of its offsets.
    pub fn remove_group(&mut self, group: &str) -> Result<()> {
        // A batch is a mebibyte at most; each key has the group's name and the topic's.
        const AT_ONCE: usize = 1000;
        let Some(stored) = self.groups.get(group).filter(|stored| stored.is_group()) else {
            return Ok(());
        };
        let keys: Vec<_> = stored.offsets.keys().cloned().collect();
        for keys in keys.chunks(AT_ONCE) {
            self.remove(group, keys)?;
        }
        self.append(group, &[(record::group_key(group)?, None)])?;
        self.change(group, |stored| stored.metadata = None);
        Ok(())
    }

    /// Names of all groups that have offsets or a generation, ascending.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        let groups = self.groups.iter().filter(|(_, stored)| stored.is_group());
        groups.map(|(name, _)| name.as_str())
    }

    /// All commits with their groups, by group, topic and partition.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Commit)> {
        self.groups.iter().flat_map(|(name, stored)| {
            stored
                .offsets
                .values()
                .map(|commit| (name.as_str(), commit))
        })
    }

    /// The commits of a group, by topic and partition.
    pub fn of(&self, group: &str) -> impl Iterator<Item = &Commit> {
        self.groups
            .get(group)
            .into_iter()
            .flat_map(|stored| stored.offsets.values())
    }

    /// A commit.
    #[must_use]
    pub fn get(&self, group: &str, topic: &str, partition: i32) -> Option<&Commit> {
        let offsets = &self.groups.get(group)?.offsets;
        // No topic has such a name, and each look-up copies it.
        if topic.len() > TOPIC_MAXIMUM_CHARACTERS {
            return None;
        }
        offsets.get(&(topic.to_owned(), partition))
    }

    /// Whether an offset was deleted here.
    #[must_use]
    pub fn is_deleted(&self, group: &str, topic: &str, partition: i32) -> bool {
        self.groups.get(group).is_some_and(|stored| {
            !stored.deleted.is_empty() && stored.deleted.contains(&(topic.to_owned(), partition))
        })
    }

    /// What is stored of a group beside its offsets.
    #[must_use]
    pub fn metadata(&self, group: &str) -> Option<&GroupMetadata> {
        self.groups.get(group)?.metadata.as_ref()
    }

    /// Whether a log is behind the commits.
    #[must_use]
    pub const fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Whether a group has committed offsets.
    #[must_use]
    pub fn has_offsets(&self, group: &str) -> bool {
        let stored = self.groups.get(group);
        stored.is_some_and(|stored| !stored.offsets.is_empty())
    }

    /// Roughly how many bytes of memory all of it takes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes everything that was stored durable.
    ///
    /// # Errors
    /// Those of [`LogWriter::flush`].
    pub fn flush(&self) -> Result<()> {
        let writers = self.log.iter().flat_map(|log| &log.writers);
        writers.into_iter().try_for_each(LogWriter::flush)
    }

    /// The log dir with the log, for maintenance beside the commits; see [`maintain`].
    #[must_use]
    pub fn log_dir(&self) -> Option<LogDir> {
        self.log.as_ref().map(|log| log.log_dir.clone())
    }

    /// Closes the log cleanly. Dropping it instead leaves the log as a kill does: nothing is lost, and the next opening recovers it.
    ///
    /// # Errors
    /// Those of [`LogDir::close`].
    pub fn close(self) -> Result<()> {
        match self.log {
            Some(log) if log.is_own => log.log_dir.close(),
            _ => Ok(()),
        }
    }

    /// Appends records of a group as one batch, if there are any.
    fn append(&mut self, group: &str, records: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<()> {
        let Some(log) = self.log.as_ref().filter(|_| !records.is_empty()) else {
            return Ok(());
        };
        let place = partition_of(group, log.writers.len());
        let Some(writer) = log.writers.get(place) else {
            return Err(Error::argument(
                "partitions",
                "none found, one or more expected",
            ));
        };
        let now = (self.options.open.clock)();
        self.batch.clear();
        for (key, value) in records {
            self.batch.push(now, Some(key), value.as_deref(), &[])?;
        }
        let options = AppendOptions {
            flush: self.options.durable,
            ..AppendOptions::default()
        };
        let appended = writer.append(&mut self.batch, &options);
        self.batch.clear();
        appended.map(drop)
    }

    /// Changes a group in memory, and removes it if nothing of it is left.
    fn change(&mut self, group: &str, change: impl FnOnce(&mut Stored)) {
        let stored = self.groups.entry(group.to_owned()).or_default();
        let before = stored.bytes();
        change(stored);
        self.bytes = self
            .bytes
            .saturating_sub(before)
            .saturating_add(stored.bytes());
        if *stored == Stored::default() {
            self.groups.remove(group);
        }
    }

    fn allow(&self, bytes: u64) -> Result<()> {
        if bytes <= self.options.max_bytes {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Limit {
            name: LimitName::MaxBytes,
            limit: self.options.max_bytes,
            seen: bytes,
        }))
    }
}

impl Stored {
    fn bytes(&self) -> u64 {
        let offsets: u64 = self.offsets.values().map(Commit::bytes).sum();
        let deleted: u64 = self
            .deleted
            .iter()
            .map(|(topic, _)| topic.len() as u64 + 80)
            .sum();
        offsets + deleted + self.metadata.as_ref().map_or(0, GroupMetadata::bytes)
    }
}

impl GroupMetadata {
    fn bytes(&self) -> u64 {
        let members = self.members.iter().map(|member| {
            let texts = [&member.member_id, &member.client_id, &member.client_host];
            let texts: usize = texts.iter().map(|text| text.len()).sum();
            texts + member.subscription.len() + member.assignment.len()
        });
        ENTRY_BYTES + members.map(|bytes| bytes as u64 + ENTRY_BYTES).sum::<u64>()
    }
}

/// Compacts the log of committed offsets if that is due. Commits continue meanwhile.
///
/// # Errors
/// Those of [`LogDir::maintain`], and the first error of a partition.
pub fn maintain(log_dir: &LogDir) -> Result<()> {
    // Nothing was committed yet.
    if !log_dir.topics().contains_key(TOPIC) {
        return Ok(());
    }
    let report = log_dir.maintain(&MaintainOptions {
        topics: vec![TOPIC.to_owned()],
        ..MaintainOptions::default()
    })?;
    let failed = report.failed.into_iter().next();
    failed.map_or(Ok(()), |(_, error)| Err(error))
}

/// The path with links resolved; it need not exist yet.
fn real(path: &Path, options: &CommittedOffsetsOptions) -> Result<PathBuf> {
    let path = local_path(path)?;
    let mut missing = Vec::new();
    for ancestor in path.ancestors() {
        match options.open.disk.real_path(ancestor) {
            Ok(real) => {
                return Ok(missing
                    .iter()
                    .rev()
                    .fold(real, |path, name| path.join(name)));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                missing.extend(ancestor.file_name());
            }
            Err(error) => return Err(Error::io(IoCall::Resolve, ancestor, error)),
        }
    }
    Ok(path)
}

fn refuse_served(directory: &Path, options: &CommittedOffsetsOptions) -> Result<()> {
    let own = real(directory, options)?;
    for served in &options.served {
        let served = real(served, options)?;
        if own.starts_with(&served) || served.starts_with(&own) {
            let reason = format!(
                "{} is served, and nothing is written into what is served: give a directory elsewhere",
                served.display()
            );
            return Err(Error::log_dir(directory, reason));
        }
    }
    Ok(())
}

fn refuse_brokers(directory: &Path, options: &CommittedOffsetsOptions) -> Result<()> {
    let mark = directory.join(META_PROPERTIES);
    match options.open.disk.stat(&mark) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io(IoCall::Stat, &mark, error)),
        Ok(_) => {
            let reason = "a broker's log dir: its group coordinator writes there";
            Err(Error::log_dir(directory, reason))
        }
    }
}

#[cfg(test)]
#[path = "committed_offsets_tests.rs"]
mod tests;
