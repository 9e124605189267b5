//! Restores topics from a dead broker's disks into a cluster that has not started yet, a stopped broker's log dirs, or a folder.
//!
//! Makes a plan first, which changes nothing; then restores partition after partition, each of which appears whole or not at all. A
//! partition that is already what would be restored is left: so a killed restore continues where it ended. The topics of a new cluster are
//! written last.

mod bootstrap;
mod choice;
mod committed;
mod compare;
mod expiring;
mod new_topic;
mod open_transactions;
mod own_groups;
mod pace;
mod remains;
mod run;
mod same_topic;
mod sources;
mod targets;
mod tiered;
mod unknown;
mod write_topics;

use crate::places::refuse_overlap;
use crate::producer_ids;
use crate::replicas::Extent;
use crate::salvage::{Cut, SalvageReport};
use bootstrap::Bootstrap;
use choice::{FailedReplica, SourcePartition};
use committed::BehindTheEnd;
pub(crate) use committed::{Committed, commits};
use expiring::OffsetsRetention;
use new_topic::{NewTopic, NewTopicPartition};
use offsetlog::format::Uuid;
use offsetlog::{BrokerSettings, Error, Log, LogDir, OpenOptions, Result, TopicPartition};
use remains::Retention;
use sources::Sources;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use targets::{Placed, Targets};
use tiered::RemoteStorage;

pub use remains::Remaining;
pub use sources::name_matches;
pub use targets::Target;
pub(crate) use unknown::is_kafkas_own;

/// Called as the work proceeds with the bytes that are done, all of them, and the partition at work.
pub type RestoreProgress = Arc<dyn Fn(u64, u64, &str) + Send + Sync>;

/// What is restored, and how.
#[derive(Debug, Clone, Default)]
pub struct RestoreOptions {
    /// Topics, by name or pattern (`*` and `?`). If empty: all, except those that only have a meaning in their own cluster.
    pub topics: Vec<String>,
    /// Restores each partition up to its first record with this timestamp or a later one, in ms. One whose last records have no timestamp is
    /// refused, unless `ends` has it.
    pub until: Option<i64>,
    /// Restores partitions up to these offsets, exclusive.
    pub ends: BTreeMap<TopicPartition, i64>,
    /// Writes the topics into the `bootstrap.checkpoint` of a cluster that was formatted and never started.
    pub new_cluster: bool,
    /// Folders of the target's metadata: the `metadata.log.dir` of each controller that has none of the log dirs.
    pub metadata: Vec<PathBuf>,
    /// Replicas of each partition in a new cluster. Default: as many as it had, at most one a broker.
    pub replication_factor: Option<usize>,
    /// Restores partitions although other brokers have replicas.
    pub single_replica: bool,
    /// The `server.properties` of the target's brokers: what holds for a topic that has nothing of its own. Without it nobody
    /// knows whether their retention deletes what is restored.
    pub broker: Option<PathBuf>,
    /// Keeps retention and `cleanup.policy` in a new cluster even if they delete what is restored.
    pub keep_retention: bool,
}

impl RestoreOptions {
    fn takes(&self, topic: &str) -> bool {
        self.topics.is_empty()
            || self
                .topics
                .iter()
                .any(|pattern| sources::name_matches(pattern, topic))
    }
}

/// What became of a partition, or is to become.
#[derive(Debug)]
pub enum PartitionState {
    /// It is to be restored.
    Planned,
    /// It was restored, and every byte was read back.
    Restored(Box<SalvageReport>),
    /// It was there already, record for record. The report is that of restoring it: what is lost is lost in what is there too.
    There(Box<SalvageReport>),
    /// It cannot be restored; the others can.
    Refused(String),
    /// It could not be restored.
    Failed(Error),
}

impl PartitionState {
    /// The word for it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Restored(_) => "restored",
            Self::There(_) => "there",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }

    /// Why it was refused, or failed.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Refused(reason) => Some(reason.clone()),
            Self::Failed(error) => Some(error.to_string()),
            Self::Planned | Self::Restored(_) | Self::There(_) => None,
        }
    }

    /// What was restored, by this call or an earlier one.
    #[must_use]
    pub fn report(&self) -> Option<&SalvageReport> {
        match self {
            Self::Restored(report) | Self::There(report) => Some(report),
            _ => None,
        }
    }
}

/// One partition of a plan.
#[derive(Debug)]
pub struct PartitionToRestore {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The replica that is taken: that of the greatest leader epoch, and of those the longest. Where that one fails while it is read, the
    /// next best.
    pub source: PathBuf,
    /// The other replicas, and what each has less, or how it failed, or why it cannot be opened. They fill the holes of the first, where they have the very batches.
    pub other_replicas: Vec<(PathBuf, String)>,
    /// The new directories, one a replica, with their brokers.
    pub into: Vec<(Option<i32>, PathBuf)>,
    /// The topic's id in the target.
    pub topic_id: Option<Uuid>,
    /// First offset.
    pub log_start_offset: i64,
    /// Offset, exclusive, up to which it is restored; `None` where damage hides the end of the log.
    pub log_end_offset: Option<i64>,
    /// Whether the log continues behind that.
    pub is_cut: bool,
    /// Bytes of the segments that are read, at most.
    pub bytes: u64,
    /// The greatest timestamp of the last segment that is read, in ms; `None` if no record has one.
    pub newest_timestamp: Option<i64>,
    /// The greatest leader epoch of the source.
    pub leader_epoch: Option<i32>,
    /// The greatest leader epoch of the new log, where the target's cluster does not take those of the source.
    pub leader_epoch_max: Option<i32>,
    /// Other brokers that have the partition by the cluster's metadata.
    pub absent_brokers: Vec<i32>,
    /// What became of it.
    pub state: PartitionState,
    /// The greatest leader epoch that the target's cluster takes, where it has its own.
    leader_epoch_accepted: Option<i32>,
    /// Of its topic in the target's cluster.
    remote: Option<RemoteStorage>,
    log: Option<Log>,
    other_logs: Vec<Log>,
    cut: Cut,
    /// Better replicas that failed.
    failed: Vec<FailedReplica>,
    /// Those that could not be opened when the plan was made.
    unopened: Vec<(PathBuf, String)>,
    /// What the replica has that is taken.
    extent: Option<Extent>,
    /// Whether one that failed had more of what is to be restored, or one that cannot be opened may have.
    falls_short: bool,
}

impl PartitionToRestore {
    /// A partition of which no replica can be opened.
    const fn refused(topic: String, partition: i32, source: PathBuf, reason: String) -> Self {
        Self {
            topic,
            partition,
            source,
            other_replicas: Vec::new(),
            into: Vec::new(),
            topic_id: None,
            log_start_offset: 0,
            log_end_offset: None,
            is_cut: false,
            bytes: 0,
            newest_timestamp: None,
            leader_epoch: None,
            leader_epoch_max: None,
            absent_brokers: Vec::new(),
            state: PartitionState::Refused(reason),
            leader_epoch_accepted: None,
            remote: None,
            log: None,
            other_logs: Vec::new(),
            cut: Cut {
                stop: None,
                until: None,
            },
            failed: Vec::new(),
            unopened: Vec::new(),
            extent: None,
            falls_short: false,
        }
    }

    /// Closes the files of all replicas. Whoever reads one later opens them again.
    fn close_files(&self) {
        let logs = self.log.iter().chain(&self.other_logs);
        logs.chain(self.failed.iter().map(|failed| &failed.log))
            .for_each(Log::close_files);
    }

    /// Takes this replica. The target stays the same.
    fn take(&mut self, source: SourcePartition) {
        self.log_start_offset = source.log_start_offset;
        self.log_end_offset = Some(source.stop).filter(|stop| *stop < i64::MAX);
        self.is_cut = source.is_cut;
        self.bytes = source.age.bytes;
        self.newest_timestamp = source.age.newest_timestamp;
        self.leader_epoch = Some(source.leader_epoch).filter(|epoch| *epoch >= 0);
        // The cluster may take the epochs of this one.
        let is_above = |known: &i32| source.leader_epoch > *known;
        self.leader_epoch_max = self.leader_epoch_max.filter(is_above);
        // The plan excludes what a running broker appends from now on.
        let is_bounded = source.is_cut || source.log.has_running_owner();
        self.cut = Cut {
            stop: Some(source.stop).filter(|_| is_bounded).or(source.wanted),
            until: source.until,
        };
        self.extent = Some(source.extent);
        self.falls_short = source.falls_short();
        self.source = source.path;
        self.other_replicas = source.others;
        self.other_replicas.extend(source.unopened.iter().cloned());
        self.unopened = source.unopened;
        self.log = Some(source.log);
        self.other_logs = source.other_logs;
        self.failed = source.failed;
    }
}

/// What is to be restored; [`run`](Self::run) does it.
#[derive(Debug)]
pub struct RestorePlan {
    /// What kind of log dirs the target has.
    pub target: Target,
    /// By topic and number.
    pub partitions: Vec<PartitionToRestore>,
    /// Partitions that the topics had, and that no source has.
    pub missing: Vec<TopicPartition>,
    /// Topics and partitions that are not restored, and why.
    pub left_out: Vec<(String, String)>,
    /// Files into which the topics of a new cluster are written.
    pub bootstrap_checkpoints: Vec<PathBuf>,
    /// What is left to be done by hand.
    pub remaining: Vec<Remaining>,
    /// What is odd about the sources and the target.
    pub warnings: Vec<String>,
    /// Whether a topic is among `left_out` that was asked for.
    lacks_topics: bool,
    /// With their brokers.
    log_dirs: Vec<(Option<i32>, PathBuf)>,
    /// Log dirs of a new cluster that have no other partitions.
    fresh: Vec<PathBuf>,
    /// Log dirs with the mark of a clean shutdown.
    marked: Vec<PathBuf>,
    bootstraps: Vec<Bootstrap>,
    new_topics: Vec<NewTopic>,
    configs: BTreeMap<String, BTreeMap<String, String>>,
    next_producer_id: i64,
    /// What the target's cluster gives out next.
    target_producer_id: Option<i64>,
    behind_the_end: BehindTheEnd,
    offsets_retention: OffsetsRetention,
    /// The ids that topics have in the sources.
    source_ids: BTreeMap<String, Uuid>,
    how: RestoreOptions,
    options: OpenOptions,
}

impl RestorePlan {
    /// Reads the sources and the target, and decides what is restored where. Changes nothing. Reads the ends of each replica, and records
    /// only to find a time, and committed offsets; memory holds these and the metadata.
    ///
    /// # Errors
    /// `Argument`: no such topic; an end of a partition that no source has; no log dir. `LogDir`: the target is not what `how` says; the text says what to do.
    /// `Cluster`: a mirror fills one of its log dirs. `Io`; `Interrupted`. A partition that cannot be restored is no error, but [`PartitionState::Refused`].
    ///
    /// ```no_run
    /// use offsetlog::OpenOptions;
    /// use offsetlog_ops::{RestoreOptions, RestorePlan};
    ///
    /// # fn main() -> Result<(), offsetlog::Error> {
    /// let how = RestoreOptions { new_cluster: true, ..RestoreOptions::default() };
    /// let mut plan = RestorePlan::make(&["/mnt/kafka-1"], &["/var/lib/kafka"], &how, &OpenOptions::default())?;
    /// plan.run(None)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn make<P: AsRef<Path>, Q: AsRef<Path>>(
        sources: &[P],
        into: &[Q],
        how: &RestoreOptions,
        options: &OpenOptions,
    ) -> Result<Self> {
        let options = &choice::with_few_files(options);
        refuse_overlap(sources, into, options)?;
        let broker = how.broker.as_ref();
        let broker = broker.map(|path| BrokerSettings::read(options.disk.as_ref(), path));
        let broker = broker.transpose()?;
        let mut targets = Targets::read(into, how, broker.as_ref(), options)?;
        let found = sources::find(sources, how, targets.kind, options)?;
        let now = (options.clock)();
        let mut plan = Self {
            target: targets.kind,
            partitions: Vec::new(),
            missing: Vec::new(),
            left_out: Vec::new(),
            bootstrap_checkpoints: targets
                .bootstraps
                .iter()
                .map(|file| file.path.clone())
                .collect(),
            remaining: Vec::new(),
            warnings: std::mem::take(&mut targets.warnings),
            lacks_topics: found.lacks_topics,
            log_dirs: targets.paths(),
            fresh: Vec::new(),
            marked: Vec::new(),
            bootstraps: Vec::new(),
            new_topics: Vec::new(),
            configs: BTreeMap::new(),
            next_producer_id: 0,
            target_producer_id: targets.metadata.as_ref().and_then(producer_ids::next_of),
            behind_the_end: BehindTheEnd::default(),
            offsets_retention: OffsetsRetention::of(broker.as_ref(), now),
            source_ids: found.topic_ids(),
            how: how.clone(),
            options: options.clone(),
        };
        let mut retention =
            Retention::new((&found, &targets), broker.as_ref(), now, how.keep_retention);
        plan.place(&found, &mut targets, &mut retention, how)?;
        plan.warnings.append(&mut targets.warnings);
        if targets.kind == Target::NewCluster {
            plan.fresh = targets.without_others(&plan.partitions);
            plan.warnings.extend(targets.lacks_brokers(how));
        }
        let known = found.recreation.metadata.as_ref();
        let told = known.and_then(|known| known.next_producer_id);
        plan.next_producer_id = match told {
            Some(next) => next,
            None if targets.kind == Target::NewCluster => {
                next_producer_id(sources, options, &mut plan.warnings)?
            }
            None => 0,
        };
        plan.remaining = remains::list(&plan, &found, &targets, &retention);
        let broker = (broker.as_ref(), how.keep_retention);
        let (remaining, warnings) = (&mut plan.remaining, &mut plan.warnings);
        plan.lacks_topics |= unknown::tell(&found, &targets, broker, remaining, warnings);
        committed::tell(&mut plan)?;
        plan.bootstraps = targets.bootstraps;
        plan.left_out = found.left_out;
        plan.warnings.extend(found.warnings);
        Ok(plan)
    }

    fn place(
        &mut self,
        found: &Sources,
        targets: &mut Targets,
        retention: &mut Retention,
        how: &RestoreOptions,
    ) -> Result<()> {
        for topic in &found.topics {
            let name = &topic.to_make.name;
            let mut earlier = None;
            let mut configs = match targets.configs_in_bootstrap(name) {
                // Nothing here says all that the topic had, but the restore that wrote it may have known.
                Some(known) if !found.tells_settings(name) => {
                    retention.recall(topic, &known);
                    let mut all = known.clone();
                    all.extend(topic.to_make.configs.clone());
                    earlier = Some(known);
                    all
                }
                _ => topic.to_make.configs.clone(),
            };
            retention.judge(topic, earlier.as_ref(), &mut configs);
            if let Some(known) = targets.configs_in_bootstrap(name) {
                let has_others = targets.has_others_in_bootstrap(topic);
                retention.keep(name, (&known, has_others), &mut configs);
            }
            self.missing
                .extend(topic.missing.iter().map(|number| TopicPartition {
                    topic: name.clone(),
                    partition: *number,
                }));
            for (number, (path, reason)) in &topic.unreadable {
                let (topic, path) = (name.clone(), path.clone());
                let refused = PartitionToRestore::refused(topic, *number, path, reason.clone());
                self.partitions.push(refused);
            }
            let mut partitions = BTreeMap::new();
            for (number, source) in &topic.partitions {
                self.warn_of_settings(source);
                let placed = targets.place(topic, *number, source, how, &self.options);
                if let Ok(placed) = &placed {
                    let nodes = placed.replicas.iter().filter_map(|(node, _)| *node);
                    let made = NewTopicPartition {
                        nodes: nodes.collect(),
                        directories: placed.directories.clone(),
                        leader_epoch: source.leader_epoch.saturating_add(1),
                    };
                    partitions.insert(*number, made);
                }
                let planned = self.planned(name, *number, source, placed)?;
                planned.close_files();
                self.partitions.push(planned);
            }
            if targets.kind == Target::NewCluster {
                let topic_id = targets.topic_id(topic);
                for number in &topic.missing {
                    // An earlier restore may have had it.
                    if targets.in_bootstrap(topic_id, *number).is_some() {
                        continue;
                    }
                    let nodes = targets.assigned(topic, *number, how);
                    let directories = nodes.iter().map(|node| targets.directory_for_empty(*node));
                    let made = NewTopicPartition {
                        directories: directories.collect(),
                        nodes,
                        leader_epoch: 0,
                    };
                    partitions.insert(*number, made);
                }
                self.new_topics.push(NewTopic {
                    name: name.clone(),
                    topic_id,
                    partitions,
                    configs: configs.clone(),
                });
            }
            self.configs.insert(name.clone(), configs);
        }
        Ok(())
    }

    fn planned(
        &self,
        topic: &str,
        partition: i32,
        source: &SourcePartition,
        placed: std::result::Result<Placed, String>,
    ) -> Result<PartitionToRestore> {
        let (placed, mut state) = match placed {
            Ok(placed) => (Some(placed), PartitionState::Planned),
            Err(reason) => (None, PartitionState::Refused(reason)),
        };
        let known = placed.as_ref();
        let into = known
            .map(|placed| placed.replicas.clone())
            .unwrap_or_default();
        let topic_id = known.and_then(|placed| placed.topic_id);
        for (_, path) in &into {
            if let Err(reason) = compare::may_be_replaced(path, source, topic_id, &self.options)? {
                state = PartitionState::Refused(reason);
            }
        }
        // What is there already need not be built.
        let remote = known.and_then(|placed| placed.remote);
        let accepted = known.and_then(|placed| placed.leader_epoch_accepted);
        if matches!(state, PartitionState::Planned)
            && let Some(reason) = remote.and_then(|remote| remote.refuses(source, accepted))
            && into
                .iter()
                .any(|(_, path)| !compare::has_records(path, &self.options))
        {
            state = PartitionState::Refused(reason);
        }
        let mut planned = PartitionToRestore {
            into,
            topic_id,
            leader_epoch_accepted: accepted,
            remote,
            leader_epoch_max: known.and_then(|placed| placed.leader_epoch_max),
            absent_brokers: known
                .map(|placed| placed.absent.clone())
                .unwrap_or_default(),
            state,
            ..PartitionToRestore::refused(
                topic.to_owned(),
                partition,
                PathBuf::new(),
                String::new(),
            )
        };
        planned.take(source.clone());
        Ok(planned)
    }

    /// Only into a folder the settings that offsetlog stored go along.
    fn warn_of_settings(&mut self, source: &SourcePartition) {
        if self.target == Target::Folder
            && let Err(error) = source.log.stored_config()
            && error.is_corruption()
        {
            self.warnings.push(format!(
                "{}: its settings cannot be read, and are not restored: {error}",
                source.path.display()
            ));
        }
    }

    /// Whether something is not restored: a topic that was asked for, a partition that is missing, refused or failed, records that were
    /// lost or are before the first segment, or a replica that cannot be opened and may have more than the one that is taken.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        let is_lost = |each: &PartitionToRestore| match &each.state {
            PartitionState::Restored(report) | PartitionState::There(report) => report.has_losses(),
            PartitionState::Refused(_) | PartitionState::Failed(_) => true,
            PartitionState::Planned => false,
        };
        let is_lost = |each: &PartitionToRestore| each.falls_short || is_lost(each);
        self.lacks_topics || !self.missing.is_empty() || self.partitions.iter().any(is_lost)
    }

    /// Bytes that are read, at most.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let each = self
            .partitions
            .iter()
            .filter(|each| !matches!(each.state, PartitionState::Refused(_)));
        each.map(|each| each.bytes).sum()
    }
}

/// The id after the greatest that a coordinator among the sources knows: ids whose producers have written nothing are in no batch.
fn next_producer_id<P: AsRef<Path>>(
    sources: &[P],
    options: &OpenOptions,
    warnings: &mut Vec<String>,
) -> Result<i64> {
    let (known, _, unread) = LogDir::open(sources, options)?.transactions()?;
    warnings.extend(unread.iter().map(|unread| {
        format!(
            "{} cannot be read, and may know producer ids above those of the restored records: the new cluster may give them out again: {}",
            unread.partition, unread.error
        )
    }));
    let greatest = known.iter().map(|each| each.producer_id).max();
    Ok(greatest.unwrap_or(-1).saturating_add(1))
}

#[cfg(test)]
#[path = "restore/replica_tests.rs"]
mod replica_tests;
#[cfg(test)]
pub(crate) use replica_tests::around_old_messages;
