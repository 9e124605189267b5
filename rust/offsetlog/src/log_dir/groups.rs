//! Reads groups from `__consumer_offsets` and `__share_group_state` (FORMAT.md «Internal topics»).
//!
//! A group coordinator stores its state as records; the last record of each key counts. An offset that was committed in a
//! transaction counts once the transaction is committed. Of two commits of one key, the one with the later record wins.

mod behind;
mod earlier_topics;
mod missing;
mod one_partition;
mod replay;
mod share;
mod zookeeper;

use super::whole_logs::{check_end, late_start};
use super::{LogDir, TopicPartition, Unread, pass_over};
use crate::error::Result;
use crate::log::MetadataImage;
use crate::step_progress::{PartitionProgress, Steps};
use behind::Wanted;
use offsetlog_format::Uuid;
use offsetlog_format::internal_topic::METADATA_TOPIC;
use replay::Replay;
use share::ShareReplay;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// The topic in which Kafka stores its groups.
const TOPIC: &str = "__consumer_offsets";

/// How groups are read.
#[derive(Debug, Clone, Default)]
pub struct GroupsOptions {
    /// Does not look at the partitions that the groups read: no log end offset is known, nor the first unread record.
    pub without_lag: bool,
    /// Told of each partition: of the internal topics, and then of those that the groups read, which make the total grow.
    pub progress: PartitionProgress,
}

impl GroupsOptions {
    /// Only what the groups stored.
    #[must_use]
    pub fn without_lag() -> Self {
        Self {
            without_lag: true,
            ..Self::default()
        }
    }
}

/// A group of consumers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Its name. Here and below, text that is not UTF-8 has replacement characters.
    pub group_id: String,
    /// `classic`, `consumer`, `share`, `streams`, or `zookeeper` for a group whose offsets ZooKeeper's data has; empty if only offsets of
    /// the group are left.
    pub kind: &'static str,
    /// For a classic group: `consumer`, or the name of another user of the protocol, such as `connect`.
    pub protocol_type: Option<String>,
    /// The assignment strategy of a classic group.
    pub protocol: Option<String>,
    /// Generation of a classic group, epoch of any other group.
    pub epoch: Option<i32>,
    /// The leader of a classic group.
    pub leader: Option<String>,
    /// The members when the coordinator last wrote, by member id.
    pub members: Vec<GroupMember>,
    /// The committed offsets, by topic and partition.
    pub offsets: Vec<GroupOffset>,
    /// Its state when the coordinator last wrote.
    pub state: GroupState,
    /// Of a share group: where it begins to read, by topic and partition.
    pub share_offsets: Vec<ShareGroupOffset>,
}

/// The state of a group, with Kafka's names: what a coordinator that loads the group's records says of it. A rebalance of a classic
/// group is not stored: it is [`Stable`](Self::Stable) with members and [`Empty`](Self::Empty) without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum GroupState {
    /// It has no members.
    #[default]
    Empty,
    /// A streams group whose topology has not been found to fit the topics.
    NotReady,
    /// A consumer or streams group whose newest epoch has no target assignment yet.
    Assigning,
    /// A consumer or streams group whose members have not all reached the target assignment.
    Reconciling,
    /// It has members, and all have what they are to have.
    Stable,
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupMember {
    /// Its id.
    pub member_id: String,
    /// Its `group.instance.id`.
    pub instance_id: Option<String>,
    /// Its `client.id`.
    pub client_id: String,
    /// The address of its client.
    pub client_host: String,
    /// Its assigned partitions, by topic. If only a topic's id is known, from neither these log dirs nor metadata in them, or another
    /// topic has its name now, the id is used as the name.
    pub assignment: Vec<(String, Vec<i32>)>,
}

/// An offset that a group committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOffset {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    /// Leader epoch of the last record read, if the consumer sent it.
    pub leader_epoch: Option<i32>,
    /// The metadata that the consumer committed with the offset.
    pub metadata: String,
    /// When it was committed, in ms since 1970.
    pub commit_timestamp: i64,
    /// Id of the topic that it was committed for, which may be an earlier one of its name; zero if the record does not have it, as
    /// before Kafka 4.1.
    pub topic_id: Uuid,
    /// The topic that has this name now, in these log dirs or by the metadata in them, has another id: the offset says nothing of its
    /// records.
    pub is_of_another_topic: bool,
    /// Log end offset of the partition in these log dirs; `None` if they do not have the partition or it cannot be read.
    pub log_end_offset: Option<i64>,
    /// The first record that the group has not read.
    pub first_unread: FirstUnread,
}

/// Where a share group begins to read a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareGroupOffset {
    /// The topic. If only its id is known, from neither these log dirs nor metadata in them nor the group's records, or these have two
    /// topics of the name, the id is used as the name.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The first offset that may still be delivered; `None` before the group has read the partition.
    pub start_offset: Option<i64>,
    /// Leader epoch of the partition when this was written.
    pub leader_epoch: Option<i32>,
    /// Number of records at or after the start offset that need no delivery; `None` if the broker did not count them (before Kafka
    /// 4.2).
    pub delivery_complete_count: Option<i32>,
    /// As [`GroupOffset::log_end_offset`].
    pub log_end_offset: Option<i64>,
    /// The first record at or after the start offset. It may have been delivered and be waiting for its acknowledgement.
    pub first_unread: FirstUnread,
}

impl ShareGroupOffset {
    /// Number of records that wait for delivery or acknowledgement, as `kafka-share-groups --describe` computes it; `None` if a part
    /// of it is unknown.
    #[must_use]
    pub const fn lag(&self) -> Option<i64> {
        match (
            self.log_end_offset,
            self.start_offset,
            self.delivery_complete_count,
        ) {
            (Some(end), Some(start), Some(count)) => {
                Some(end.saturating_sub(start).saturating_sub(count as i64))
            }
            _ => None,
        }
    }

    const fn place(&self) -> (&String, i32) {
        (&self.topic, self.partition)
    }

    fn topic_partition(&self) -> TopicPartition {
        TopicPartition {
            topic: self.topic.clone(),
            partition: self.partition,
        }
    }
}

/// The first record from an offset on, as a consumer that reads uncommitted records would get it: control records and gaps that
/// compaction left are stepped over. An offset below the log start offset counts as the log start offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstUnread {
    /// The log has no record there: everything is read.
    Nothing,
    /// The record.
    Record {
        /// Its offset.
        offset: i64,
        /// Its timestamp in ms since 1970, stored and not estimated; `None` if the record has none.
        timestamp: Option<i64>,
    },
    /// The partition is not in these log dirs, or damage hides the record.
    Unknown,
}

impl FirstUnread {
    /// The record's timestamp in ms since 1970; `None` if there is no such record, or it has no timestamp, or neither is known.
    #[must_use]
    pub const fn timestamp(&self) -> Option<i64> {
        match self {
            Self::Record { timestamp, .. } => *timestamp,
            Self::Nothing | Self::Unknown => None,
        }
    }

    /// The age of the record in ms at the time `now`, at least 0: the lag as time. `None` as for [`timestamp`](Self::timestamp).
    #[must_use]
    pub const fn age_ms(&self, now: i64) -> Option<i64> {
        match self.timestamp() {
            Some(timestamp) if timestamp < now => Some(now.saturating_sub(timestamp)),
            Some(_) => Some(0),
            None => None,
        }
    }
}

impl GroupOffset {
    fn topic_partition(&self) -> TopicPartition {
        TopicPartition {
            topic: self.topic.clone(),
            partition: self.partition,
        }
    }

    /// Whether a log of this name is what it was committed for.
    const fn has_log(&self) -> bool {
        self.offset >= 0 && !self.is_of_another_topic
    }

    /// Number of offsets between the committed offset and the log end offset; `None` if the latter is unknown. Negative for an offset
    /// behind the end, as after records were lost.
    #[must_use]
    pub const fn lag(&self) -> Option<i64> {
        match self.log_end_offset {
            Some(end) => Some(end.saturating_sub(self.offset)),
            None => None,
        }
    }
}

impl LogDir {
    /// Returns the groups that their coordinators stored in these log dirs, by name, with their committed offsets and
    /// lag; warnings about what was skipped; and what could not be read. A damaged partition of the topic gives no groups at
    /// all, because records after the damage may contradict those before it; so does one that ends below the high watermark of its log
    /// dir. If a log's end cannot be determined or is below that, there is no lag, and none for an offset of an earlier topic of the name; if damage hides the first unread record, a warning names the partition. Records of unknown types or without a
    /// key are skipped with a warning; coordinators skip the former too. Another warning names the partitions of
    /// `__consumer_offsets` and `__share_group_state` that are not here, as far as other partitions or the cluster's metadata show it.
    /// Metadata that cannot be read is among what could not be read.
    ///
    /// A share group also has its start offsets, out of `__share_group_state`. Where it began to read a topic that was deleted is left out
    /// with a warning if another topic has the name now. Groups of old consumers are those of ZooKeeper's data, if
    /// that is among the paths.
    ///
    /// Cost: reads both topics completely and keeps one value per key in memory. Opens each partition with a committed
    /// offset once, and looks each committed offset below its end up once, as [`Log::get`](crate::Log::get) does; groups that
    /// committed the same offset share the look-up.
    ///
    /// # Errors
    /// `Interrupted`; those of [`metadata`](Self::metadata) for ZooKeeper's data, and of the progress. Per partition, those of a scan, and
    /// `Corrupt` kinds for a record that no coordinator wrote.
    pub fn groups(&self, how: &GroupsOptions) -> Result<(Vec<Group>, Vec<String>, Vec<Unread>)> {
        let (mut warnings, mut unread) = (Vec::new(), Vec::new());
        let partitions = self.partitions();
        let mut steps = Steps::new(&how.progress);
        let mut found = self.stored_groups(&partitions, &mut steps, &mut warnings, &mut unread)?;
        if !how.without_lag {
            self.add_lag(
                &mut found,
                &partitions,
                &mut steps,
                &mut warnings,
                &mut unread,
            )?;
        }
        steps.end()?;
        Ok((found, warnings, unread))
    }

    /// Adds what the partitions that the groups read say.
    fn add_lag(
        &self,
        groups: &mut [Group],
        partitions: &[TopicPartition],
        steps: &mut Steps<'_, TopicPartition>,
        warnings: &mut Vec<String>,
        unread: &mut Vec<Unread>,
    ) -> Result<()> {
        let mut wanted = Wanted::new();
        for group in &*groups {
            for each in group.offsets.iter().filter(|each| each.has_log()) {
                let wanted = wanted.entry(each.topic_partition()).or_default();
                wanted.insert(each.offset);
            }
            for each in &group.share_offsets {
                let wanted = wanted.entry(each.topic_partition()).or_default();
                wanted.extend(each.start_offset);
            }
        }
        let behind = self.behind(partitions, wanted, steps, warnings, unread)?;
        for group in groups {
            for each in group.offsets.iter_mut().filter(|each| each.has_log()) {
                let partition = each.topic_partition();
                (each.log_end_offset, each.first_unread) = behind.of(&partition, each.offset);
            }
            for each in &mut group.share_offsets {
                let start = each.start_offset.unwrap_or(-1);
                let partition = each.topic_partition();
                (each.log_end_offset, each.first_unread) = behind.of(&partition, start);
            }
        }
        Ok(())
    }

    /// The groups that the internal topics and ZooKeeper's data have.
    fn stored_groups(
        &self,
        partitions: &[TopicPartition],
        steps: &mut Steps<'_, TopicPartition>,
        warnings: &mut Vec<String>,
        unread: &mut Vec<Unread>,
    ) -> Result<Vec<Group>> {
        let metadata = self.metadata_or_unread(unread)?;
        warnings.extend(missing::warnings(&metadata, partitions));
        let internal = [TOPIC, share::TOPIC];
        let internal = partitions
            .iter()
            .filter(|found| internal.contains(&found.topic.as_str()));
        steps.add(internal.count());
        let mut topics = TopicIds::beside(metadata);
        let mut found = self.replayed_groups(partitions, &mut topics, steps, warnings, unread)?;
        warnings.extend(earlier_topics::mark(self, &topics.metadata, &mut found)?);
        self.replay_share_state(partitions, &mut topics, &mut found, steps, warnings, unread)?;
        self.add_zookeepers_groups(&mut found, warnings)?;
        Ok(found.into_values().collect())
    }

    /// The groups by name, as `__consumer_offsets` alone has them.
    fn replayed_groups(
        &self,
        partitions: &[TopicPartition],
        topics: &mut TopicIds,
        steps: &mut Steps<'_, TopicPartition>,
        warnings: &mut Vec<String>,
        unread: &mut Vec<Unread>,
    ) -> Result<BTreeMap<String, Group>> {
        let mut replays: Vec<(i32, Replay)> = Vec::new();
        for partition in partitions.iter().filter(|found| found.topic == TOPIC) {
            steps.at(partition)?;
            let mut replay = Replay::default();
            let replayed = self
                .log(&partition.topic, partition.partition)
                .and_then(|log| {
                    replay.run(&log)?;
                    check_end(&log)?;
                    warnings.extend(late_start(&log)?);
                    // Of a running broker they are a moment old.
                    if !log.has_running_owner() {
                        warnings.extend(replay.undecided(&partition.to_string()));
                    }
                    Ok(())
                });
            if let Err(error) = replayed {
                pass_over(error, partition, unread)?;
                continue;
            }
            warnings.extend(replay.left_out.warnings(&partition.to_string()));
            warnings.extend(replay.odd_assignments(&partition.to_string()));
            replays.push((partition.partition, replay));
        }
        warnings.extend(one_partition::settle(&mut replays, || {
            missing::known_count(&topics.metadata)
        }));
        let mut found: BTreeMap<String, Group> = BTreeMap::new();
        for (_, replay) in replays {
            for (name, replayed) in replay.groups {
                let state = replayed.state();
                let mut group = replayed.group;
                group.group_id.clone_from(&name);
                group.state = state;
                topics.told.extend(replayed.topic_names);
                let mut members = replayed.members;
                for (member, assignment) in replayed.by_id {
                    let Some(member) = members.get_mut(&member) else {
                        continue;
                    };
                    for (id, numbers) in assignment {
                        let name = topics.name(self, partitions, unread, id)?;
                        member.assignment.push((name, numbers));
                    }
                    member.assignment.sort();
                }
                group.members = members.into_values().collect();
                found.insert(name, group);
            }
            for ((name, ..), commit) in replay.offsets {
                let group = found.entry(name.clone()).or_insert_with(|| Group {
                    group_id: name,
                    ..Group::default()
                });
                group.offsets.push(commit.offset);
            }
        }
        Ok(found)
    }

    /// Adds what `__share_group_state` says. A group that `__consumer_offsets` does not have here is added too: its other records may
    /// be in other log dirs.
    fn replay_share_state(
        &self,
        partitions: &[TopicPartition],
        topics: &mut TopicIds,
        found: &mut BTreeMap<String, Group>,
        steps: &mut Steps<'_, TopicPartition>,
        warnings: &mut Vec<String>,
        unread: &mut Vec<Unread>,
    ) -> Result<()> {
        let of_topic = partitions
            .iter()
            .filter(|found| found.topic == share::TOPIC);
        let mut left_out = BTreeSet::new();
        for partition in of_topic {
            steps.at(partition)?;
            let mut replay = ShareReplay::default();
            let replayed = self
                .log(&partition.topic, partition.partition)
                .and_then(|log| {
                    replay.run(&log)?;
                    check_end(&log)?;
                    warnings.extend(late_start(&log)?);
                    Ok(())
                });
            if let Err(error) = replayed {
                pass_over(error, partition, unread)?;
                continue;
            }
            warnings.extend(replay.left_out.warnings(&partition.to_string()));
            for ((name, id, _), mut offset) in replay.offsets {
                match topics.look_up(self, partitions, unread, &id)? {
                    Named::As(topic) => offset.topic = topic,
                    Named::Unknown => {}
                    Named::Before(topic) => {
                        left_out.insert((name, topic, id));
                        continue;
                    }
                }
                let group = found.entry(name.clone()).or_insert_with(|| Group {
                    group_id: name,
                    kind: "share",
                    ..Group::default()
                });
                group.share_offsets.push(offset);
            }
        }
        warnings.extend(left_out.into_iter().map(|(group, topic, id)| {
            format!(
                "left out: where share group {group:?} read topic {topic:?} with the id {id}; the topic of this name has another id now"
            )
        }));
        for group in found.values_mut() {
            group
                .share_offsets
                .sort_by(|one, other| one.place().cmp(&other.place()));
        }
        Ok(())
    }

    /// The cluster's metadata, empty if there is none or it cannot be read: groups are read without it.
    fn metadata_or_unread(&self, unread: &mut Vec<Unread>) -> Result<MetadataImage> {
        match self.metadata() {
            Ok(metadata) => Ok(metadata.unwrap_or_default()),
            Err(error) => {
                let partition = TopicPartition {
                    topic: METADATA_TOPIC.to_owned(),
                    partition: 0,
                };
                pass_over(error, &partition, unread)?;
                Ok(MetadataImage::default())
            }
        }
    }

    fn topics_by_id(
        &self,
        partitions: &[TopicPartition],
        metadata: MetadataImage,
        unread: &mut Vec<Unread>,
    ) -> Result<HashMap<String, String>> {
        let mut ids = HashMap::new();
        let mut last = None;
        for found in partitions {
            if last.replace(&found.topic) == Some(&found.topic) {
                continue;
            }
            match self
                .log(&found.topic, found.partition)
                .and_then(|log| log.topic_id())
            {
                Ok(Some(id)) => {
                    ids.insert(id.to_string(), found.topic.clone());
                }
                Ok(None) => {}
                Err(error) => pass_over(error, found, unread)?,
            }
        }
        let topics = metadata.topics.into_iter();
        for topic in topics.filter(|topic| !topic.topic_id.is_zero()) {
            ids.entry(topic.topic_id.to_string()).or_insert(topic.name);
        }
        Ok(ids)
    }
}

/// Names of topics by id. No directory is looked at before a name is asked for.
#[derive(Default)]
struct TopicIds {
    metadata: MetadataImage,
    here: Option<HashMap<String, String>>,
    /// Names that share groups stored beside ids.
    told: HashMap<String, String>,
}

/// What is known of the name of a topic with an id.
enum Named {
    As(String),
    /// Only a share group's records know the name, and the topic that has it here has another id.
    Before(String),
    Unknown,
}

impl TopicIds {
    fn beside(metadata: MetadataImage) -> Self {
        Self {
            metadata,
            ..Self::default()
        }
    }

    /// The topic's name, from the log dirs, metadata in them or a share group's records; else the id.
    fn name(
        &mut self,
        log_dir: &LogDir,
        partitions: &[TopicPartition],
        unread: &mut Vec<Unread>,
        id: String,
    ) -> Result<String> {
        match self.look_up(log_dir, partitions, unread, &id)? {
            Named::As(name) => Ok(name),
            Named::Before(_) | Named::Unknown => Ok(id),
        }
    }

    fn look_up(
        &mut self,
        log_dir: &LogDir,
        partitions: &[TopicPartition],
        unread: &mut Vec<Unread>,
        id: &str,
    ) -> Result<Named> {
        let here = if let Some(here) = &self.here {
            here
        } else {
            let metadata = std::mem::take(&mut self.metadata);
            let read = log_dir.topics_by_id(partitions, metadata, unread)?;
            self.here.insert(read)
        };
        if let Some(name) = here.get(id) {
            return Ok(Named::As(name.clone()));
        }
        let Some(told) = self.told.get(id) else {
            return Ok(Named::Unknown);
        };
        if here.values().any(|name| name == told) {
            return Ok(Named::Before(told.clone()));
        }
        // Of two topics that had the name one after the other, nobody knows here which one has it.
        let alike = self.told.values().filter(|name| *name == told);
        Ok(match alike.count() {
            1 => Named::As(told.clone()),
            _ => Named::Unknown,
        })
    }
}
