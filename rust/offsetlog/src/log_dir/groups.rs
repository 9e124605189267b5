//! Reads consumer groups from `__consumer_offsets` (FORMAT.md «Internal topics»).
//!
//! A group coordinator stores its state as records; the last record of each key counts. An offset that was committed in a
//! transaction counts once the transaction is committed. Of two commits of one key, the one with the later record wins.

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

/// The topic in which Kafka stores its groups.
const TOPIC: &str = "__consumer_offsets";

/// A group of consumers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Its name. Here and below, text that is not UTF-8 has replacement characters.
    pub group_id: String,
    /// `classic`, `consumer`, `share` or `streams`; empty if only offsets of the group are left.
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
    /// Its assigned partitions, by topic. If only a topic's id is known, from neither these log dirs nor metadata in them, the
    /// id is used as the name.
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
    /// Log end offset of the partition in these log dirs; `None` if they do not have the partition or it cannot be read.
    pub log_end_offset: Option<i64>,
}

impl GroupOffset {
    /// Number of offsets between the committed offset and the log end offset; `None` if the latter is unknown.
    #[must_use]
    pub const fn lag(&self) -> Option<i64> {
        match self.log_end_offset {
            Some(end) => Some(end.saturating_sub(self.offset)),
            None => None,
        }
    }
}

type OffsetKey = (String, String, i32);

/// The state of all groups in one partition of the topic, while its records are replayed.
#[derive(Default)]
struct Replay {
    groups: BTreeMap<String, Replayed>,
    offsets: BTreeMap<OffsetKey, Commit>,
    /// Commits of open transactions, by producer id.
    pending: HashMap<i64, BTreeMap<OffsetKey, Commit>>,
    left_out: LeftOut,
}

#[derive(Default)]
struct Replayed {
    group: Group,
    members: BTreeMap<String, GroupMember>,
    /// Assignments by topic id, per member id.
    by_id: BTreeMap<String, Vec<(String, Vec<i32>)>>,
}

#[derive(Clone)]
struct Commit {
    /// Offset of the record.
    at: i64,
    offset: GroupOffset,
}

impl LogDir {
    /// Returns the consumer groups that their coordinators stored in these log dirs, by name, with their committed offsets and
    /// lag; warnings about what was skipped; and what could not be read. A damaged partition of the topic gives no groups at
    /// all, because records after the damage may contradict those before it. If a log's end cannot be determined, there is no
    /// lag. Reads `__consumer_offsets` completely and keeps one value per key in memory. Records of unknown types or without a
    /// key are skipped with a warning; coordinators skip the former too.
    ///
    /// # Errors
    /// `Interrupted`. Per partition, those of a scan, and `Corrupt` kinds for a record that no coordinator wrote.
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
        let topics = metadata.topics.into_iter();
        for topic in topics.filter(|topic| !topic.topic_id.is_zero()) {
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
