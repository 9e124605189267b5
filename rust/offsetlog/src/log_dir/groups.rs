//! Groups of consumers, out of `__consumer_offsets` (FORMAT.md «Internal topics»).
//!
//! A coordinator keeps what it knows as records of which the last one of a key holds. An offset that was committed within a transaction
//! holds once the transaction is committed; which of two is newer says their place in the topic.

use super::{LogDir, TopicPartition, Unread, pass_over};
use crate::error::Result;
use crate::log::replay::{LeftOut, each_record, int, long, numbers, optional, structs, text};
use crate::log::{Log, MetadataImage};
use offsetlog_format::control::ControlType;
use offsetlog_format::internal_topic::{
    CoordinatorTopic, KnownRecord, METADATA_TOPIC, decode_assignment,
};
use offsetlog_format::message::{Struct, Value};
use std::collections::{BTreeMap, HashMap};

/// The topic in which Kafka keeps its groups.
const TOPIC: &str = "__consumer_offsets";

/// A group of consumers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Its name. Here and below, text that is not UTF-8 has replacement characters.
    pub group_id: String,
    /// `classic`, `consumer`, `share` or `streams`; empty where only offsets are left of it.
    pub kind: &'static str,
    /// Of a classic group `consumer` or what else uses the protocol, such as `connect`.
    pub protocol_type: Option<String>,
    /// How a classic group shares out partitions.
    pub protocol: Option<String>,
    /// Generation of a classic group, epoch of another one.
    pub epoch: Option<i32>,
    /// The member that leads a classic group.
    pub leader: Option<String>,
    /// Who was in the group when its coordinator last wrote, by member id.
    pub members: Vec<GroupMember>,
    /// What was committed, by topic and partition.
    pub offsets: Vec<GroupOffset>,
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
    /// The address that it came from.
    pub client_host: String,
    /// The partitions that it was given, by topic. A topic of which only the id is known, neither in these log dirs nor in metadata in
    /// them, has that for a name.
    pub assignment: Vec<(String, Vec<i32>)>,
}

/// An offset that a group has committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOffset {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The next offset to be read.
    pub offset: i64,
    /// Leader epoch of the record read last, if the consumer said so.
    pub leader_epoch: Option<i32>,
    /// What the consumer put beside it.
    pub metadata: String,
    /// When it was committed, in ms since 1970.
    pub commit_timestamp: i64,
    /// Where the partition's log ends in these log dirs; `None` where it is in none of them.
    pub log_end_offset: Option<i64>,
}

impl GroupOffset {
    /// Offsets between what is committed and the log's end; `None` where the log is not here.
    #[must_use]
    pub const fn lag(&self) -> Option<i64> {
        match self.log_end_offset {
            Some(end) => Some(end.saturating_sub(self.offset)),
            None => None,
        }
    }
}

type OffsetKey = (String, String, i32);

/// Groups as records make them, of one partition of the topic.
#[derive(Default)]
struct Replay {
    groups: BTreeMap<String, Replayed>,
    offsets: BTreeMap<OffsetKey, Commit>,
    /// By producer id: what its open transaction commits.
    pending: HashMap<i64, BTreeMap<OffsetKey, Commit>>,
    left_out: LeftOut,
}

#[derive(Default)]
struct Replayed {
    group: Group,
    members: BTreeMap<String, GroupMember>,
    /// By member id: topic ids with partitions.
    by_id: BTreeMap<String, Vec<(String, Vec<i32>)>>,
}

#[derive(Clone)]
struct Commit {
    /// Where the record stands.
    at: i64,
    offset: GroupOffset,
}

impl LogDir {
    /// The groups of consumers whose coordinators kept them in these log dirs, by name, with what they have committed and how far that
    /// is behind the logs' ends; warnings of what was left out; and what could not be read: of a partition of the topic that is
    /// damaged nothing is given, as what stands behind the damage may say otherwise, and where a log's end cannot be told there is no lag.
    /// Reads `__consumer_offsets` from front to back; memory holds what its keys hold. Records of types that are not known, or without a
    /// key, are left out with a warning: coordinators pass over the first.
    ///
    /// # Errors
    /// `Interrupted`. With a partition, as a scan; `Corrupt` kinds for a record that is no coordinator's.
    pub fn groups(&self) -> Result<(Vec<Group>, Vec<String>, Vec<Unread>)> {
        let mut unread = Vec::new();
        let partitions = self.partitions();
        let mut found: BTreeMap<String, Group> = BTreeMap::new();
        let mut warnings = Vec::new();
        let mut ids: Option<HashMap<String, String>> = None;
        let mut ends: HashMap<(String, i32), Option<i64>> = HashMap::new();
        for partition in partitions.iter().filter(|found| found.topic == TOPIC) {
            let mut replay = Replay::default();
            let replayed = self
                .log(&partition.topic, partition.partition)
                .and_then(|log| replay.run(&log));
            if let Err(error) = replayed {
                pass_over(error, partition, &mut unread)?;
                continue;
            }
            warnings.extend(replay.left_out.warnings(&partition.to_string()));
            for (name, replayed) in replay.groups {
                let mut group = replayed.group;
                group.group_id.clone_from(&name);
                let mut members = replayed.members;
                for (member, assignment) in replayed.by_id {
                    let ids = match &ids {
                        Some(ids) => ids,
                        None => ids.insert(self.topics_by_id(&partitions, &mut unread)?),
                    };
                    let Some(member) = members.get_mut(&member) else {
                        continue;
                    };
                    let named = assignment.into_iter();
                    member.assignment = named
                        .map(|(id, numbers)| (ids.get(&id).cloned().unwrap_or(id), numbers))
                        .collect();
                    member.assignment.sort();
                }
                group.members = members.into_values().collect();
                found.insert(name, group);
            }
            for ((name, topic, number), commit) in replay.offsets {
                let group = found.entry(name.clone()).or_insert_with(|| Group {
                    group_id: name,
                    ..Group::default()
                });
                let key = (topic, number);
                let end = match ends.get(&key) {
                    Some(end) => *end,
                    None => *ends.entry(key.clone()).or_insert(self.end_of(
                        &partitions,
                        &key,
                        &mut unread,
                    )?),
                };
                group.offsets.push(GroupOffset {
                    log_end_offset: end,
                    ..commit.offset
                });
            }
        }
        Ok((found.into_values().collect(), warnings, unread))
    }

    fn end_of(
        &self,
        partitions: &[TopicPartition],
        (topic, number): &(String, i32),
        unread: &mut Vec<Unread>,
    ) -> Result<Option<i64>> {
        let is_here = |found: &&TopicPartition| found.topic == *topic && found.partition == *number;
        let Some(partition) = partitions.iter().find(is_here) else {
            return Ok(None);
        };
        match self
            .log(topic, *number)
            .and_then(|log| log.log_end_offset())
        {
            Ok(end) => Ok(Some(end)),
            Err(error) => pass_over(error, partition, unread).map(|()| None),
        }
    }

    fn topics_by_id(
        &self,
        partitions: &[TopicPartition],
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
        let metadata = match self.metadata() {
            Ok(metadata) => metadata.unwrap_or_default(),
            Err(error) => {
                let partition = TopicPartition {
                    topic: METADATA_TOPIC.to_owned(),
                    partition: 0,
                };
                pass_over(error, &partition, unread)?;
                MetadataImage::default()
            }
        };
        for topic in metadata.topics {
            ids.entry(topic.topic_id.to_string()).or_insert(topic.name);
        }
        Ok(ids)
    }
}

impl Replay {
    fn run(&mut self, log: &Log) -> Result<()> {
        each_record(log, None, |header, record| {
            if header.attributes.is_control() {
                let ended = ControlType::parse_key(record.key)?;
                self.end_transaction(header.producer_id, ended);
                return Ok(());
            }
            let topic = CoordinatorTopic::ConsumerOffsets;
            if let Some(known) = self.left_out.known(topic, record)? {
                let producer = header
                    .attributes
                    .is_transactional()
                    .then_some(header.producer_id);
                self.take(&known, record.offset, producer)?;
            }
            Ok(())
        })
    }

    fn end_transaction(&mut self, producer_id: i64, ended: ControlType) {
        let commits = match ended {
            ControlType::Commit => self.pending.remove(&producer_id),
            ControlType::Abort => {
                self.pending.remove(&producer_id);
                None
            }
            _ => None,
        };
        for (key, commit) in commits.into_iter().flatten() {
            let is_newer = self
                .offsets
                .get(&key)
                .is_none_or(|known| known.at < commit.at);
            if is_newer {
                self.offsets.insert(key, commit);
            }
        }
    }

    fn take(
        &mut self,
        record: &KnownRecord<'_>,
        at: i64,
        producer: Option<i64>,
    ) -> std::result::Result<(), offsetlog_format::FormatError> {
        let value = record.value.as_ref().map(|(_, value)| value);
        if matches!(record.record_type.number, 0 | 1) {
            let key = (
                text(&record.key, "group"),
                text(&record.key, "topic"),
                int(&record.key, "partition"),
            );
            let Some(value) = value else {
                self.offsets.remove(&key);
                return Ok(());
            };
            let commit = Commit {
                at,
                offset: committed(&key, value),
            };
            match producer {
                Some(producer) => {
                    self.pending
                        .entry(producer)
                        .or_default()
                        .insert(key, commit);
                }
                None => {
                    self.offsets.insert(key, commit);
                }
            }
            return Ok(());
        }
        let name = match record.key.get("group") {
            Some(_) => text(&record.key, "group"),
            None => text(&record.key, "groupId"),
        };
        match (record.record_type.number, value) {
            (2 | 3 | 11 | 17, None) => {
                self.groups.remove(&name);
            }
            (2, Some(value)) => {
                *self.groups.entry(name).or_default() = classic(value)?;
            }
            (3, Some(value)) => self.epoch_of(name, "consumer", value),
            (11, Some(value)) => self.epoch_of(name, "share", value),
            (17, Some(value)) => self.epoch_of(name, "streams", value),
            (5 | 10 | 19, None) => {
                let member = text(&record.key, "memberId");
                self.groups.entry(name).or_default().members.remove(&member);
            }
            (5 | 10 | 19, Some(value)) => {
                let member = member_of(text(&record.key, "memberId"), value);
                let members = &mut self.groups.entry(name).or_default().members;
                members.insert(member.member_id.clone(), member);
            }
            (8 | 14, value) => {
                let member = text(&record.key, "memberId");
                let by_id = &mut self.groups.entry(name).or_default().by_id;
                match value {
                    Some(value) => {
                        by_id.insert(member, assigned(value, "assignedPartitions", "topicId"));
                    }
                    None => {
                        by_id.remove(&member);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn epoch_of(&mut self, name: String, kind: &'static str, value: &Struct<'_>) {
        let group = &mut self.groups.entry(name).or_default().group;
        group.kind = kind;
        group.epoch = Some(int(value, "epoch"));
    }
}

fn classic(value: &Struct<'_>) -> std::result::Result<Replayed, offsetlog_format::FormatError> {
    let mut replayed = Replayed {
        group: Group {
            kind: "classic",
            protocol_type: Some(text(value, "protocolType")).filter(|text| !text.is_empty()),
            protocol: optional(value, "protocol"),
            epoch: Some(int(value, "generation")),
            leader: optional(value, "leader"),
            ..Group::default()
        },
        ..Replayed::default()
    };
    let is_of_consumers = replayed.group.protocol_type.as_deref() == Some("consumer");
    for fields in structs(value, "members") {
        let mut member = member_of(text(fields, "memberId"), fields);
        let given = fields.get("assignment").and_then(Value::as_bytes);
        if let Some(given) = given.filter(|given| is_of_consumers && !given.is_empty()) {
            let (_, assignment) = decode_assignment(given)?;
            member.assignment = assigned(&assignment, "assignedPartitions", "topic");
            member.assignment.sort();
        }
        replayed.members.insert(member.member_id.clone(), member);
    }
    Ok(replayed)
}

fn member_of(member_id: String, fields: &Struct<'_>) -> GroupMember {
    GroupMember {
        member_id,
        instance_id: optional(fields, "groupInstanceId").or_else(|| optional(fields, "instanceId")),
        client_id: text(fields, "clientId"),
        client_host: text(fields, "clientHost"),
        assignment: Vec::new(),
    }
}

fn assigned(fields: &Struct<'_>, name: &str, topic: &str) -> Vec<(String, Vec<i32>)> {
    let topics = structs(fields, name).map(|each| {
        let name = match each.get(topic) {
            Some(Value::Uuid(id)) => id.to_string(),
            _ => text(each, topic),
        };
        let mut numbers = numbers(each, "partitions").unwrap_or_default();
        numbers.sort_unstable();
        (name, numbers)
    });
    topics.collect()
}

fn committed((_, topic, partition): &OffsetKey, value: &Struct<'_>) -> GroupOffset {
    GroupOffset {
        topic: topic.clone(),
        partition: *partition,
        offset: long(value, "offset").unwrap_or(-1),
        leader_epoch: Some(int(value, "leaderEpoch")).filter(|epoch| *epoch >= 0),
        metadata: text(value, "metadata"),
        commit_timestamp: long(value, "commitTimestamp").unwrap_or(-1),
        log_end_offset: None,
    }
}
