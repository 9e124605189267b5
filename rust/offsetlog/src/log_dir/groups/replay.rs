//! Replays `__consumer_offsets`: finds the state of the groups, as a coordinator does that loads a partition.

use super::{FirstUnread, Group, GroupMember, GroupOffset, GroupState};
use crate::error::Result;
use crate::log::Log;
use crate::log::replay::{LeftOut, each_record, int, long, numbers, optional, structs, text};
use offsetlog_format::control::ControlType;
use offsetlog_format::internal_topic::{CoordinatorTopic, KnownRecord, decode_assignment};
use offsetlog_format::message::{Struct, Value};
use offsetlog_format::{Uuid, counted};
use std::collections::{BTreeMap, HashMap};

pub(super) type OffsetKey = (String, String, i32);

/// The state of all groups in one partition of the topic, while its records are replayed.
#[derive(Default)]
pub(super) struct Replay {
    pub(super) groups: BTreeMap<String, Replayed>,
    pub(super) offsets: BTreeMap<OffsetKey, Commit>,
    /// Commits of open transactions, by producer id.
    pending: HashMap<i64, BTreeMap<OffsetKey, Commit>>,
    pub(super) left_out: LeftOut,
}

impl Replay {
    /// Commits that wait for the end of their transaction, one line a producer: they do not count, although their coordinator may have
    /// decided to commit.
    pub(super) fn undecided(&self, partition: &str) -> Vec<String> {
        let mut waiting: Vec<_> = self.pending.iter().collect();
        waiting.sort_by_key(|(producer, _)| **producer);
        let lines = waiting.iter().map(|(producer, commits)| {
            let mut groups: Vec<&str> = commits.keys().map(|(group, ..)| group.as_str()).collect();
            groups.dedup();
            let more = match groups.len() {
                0 | 1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            format!(
                "{partition}: {} that group {}{more} committed in a transaction of producer {producer} {} not counted, as the transaction has no \
                 end there; `offsetlog transactions` shows whether its coordinator decided to commit",
                counted(commits.len(), "offset"),
                groups.first().unwrap_or(&""),
                if commits.len() == 1 { "is" } else { "are" },
            )
        });
        lines.collect()
    }

    /// Commits that wait for the end of their transaction, each with its producer id and group, in the order of their records.
    pub(super) fn into_pending(self) -> Vec<(i64, String, GroupOffset)> {
        let Self {
            pending, offsets, ..
        } = self;
        let mut waiting = Vec::new();
        for (producer, commits) in pending {
            for (key, commit) in commits {
                let is_replaced = offsets.get(&key).is_some_and(|known| known.at > commit.at);
                if !is_replaced {
                    waiting.push((commit.at, producer, key.0, commit.offset));
                }
            }
        }
        waiting.sort_by_key(|(at, ..)| *at);
        let waiting = waiting.into_iter();
        waiting
            .map(|(_, producer, group, offset)| (producer, group, offset))
            .collect()
    }

    /// Members whose assignment is not what a consumer's protocol says, one line a group: a coordinator takes any bytes from the leader
    /// of a group, and they say nothing of what the group committed.
    pub(super) fn odd_assignments(&self, partition: &str) -> impl Iterator<Item = String> {
        self.groups.iter().filter_map(move |(name, replayed)| {
            let first = replayed.odd_assignments.first()?;
            Some(format!(
                "{partition}: group {name}: what {} of its members are assigned cannot be decoded, first that of {first}",
                replayed.odd_assignments.len()
            ))
        })
    }
}

#[derive(Default)]
pub(super) struct Replayed {
    /// Ids of the members whose assignment cannot be decoded.
    odd_assignments: Vec<String>,
    pub(super) group: Group,
    pub(super) members: BTreeMap<String, GroupMember>,
    /// Assignments by topic id, per member id.
    pub(super) by_id: BTreeMap<String, Vec<(String, Vec<i32>)>>,
    /// Epoch of the newest target assignment.
    assignment_epoch: Option<i32>,
    /// Of a streams group: epoch of its topology, and of the topology that was found to fit the topics.
    topology_epoch: Option<i32>,
    validated_topology_epoch: i32,
    /// How far each member has come with its assignment: its state and its epoch.
    reached: BTreeMap<String, (i32, i32)>,
    /// Names of topics by id, as a share group has them.
    pub(super) topic_names: BTreeMap<String, String>,
}

impl Replayed {
    /// Takes a deletion of a part of the group: `number` is its record type.
    fn forget(&mut self, number: i16, member: &str) {
        match number {
            5 | 10 | 19 => {
                self.members.remove(member);
            }
            6 | 12 | 20 => self.assignment_epoch = None,
            8 | 14 | 22 => {
                self.by_id.remove(member);
                // A member that leaves has the epoch -1 until its other records are deleted.
                self.reached.insert(member.to_owned(), (0, -1));
            }
            15 => self.topic_names.clear(),
            23 => self.topology_epoch = None,
            _ => {}
        }
    }

    /// The state that a coordinator has after it has loaded these records (Kafka 4.3.0).
    pub(super) fn state(&self) -> GroupState {
        let epoch = self.group.epoch.unwrap_or(-1);
        let assigned = self.assignment_epoch.unwrap_or(-1);
        let is_streams = self.group.kind == "streams";
        if self.members.is_empty() {
            return GroupState::Empty;
        }
        if !is_streams && self.group.kind != "consumer" {
            return GroupState::Stable;
        }
        if is_streams && self.topology_epoch != Some(self.validated_topology_epoch) {
            return GroupState::NotReady;
        }
        if epoch > assigned {
            return GroupState::Assigning;
        }
        // Kafka's numbers for a member that has nothing left to revoke or to wait for.
        let stable = i32::from(is_streams);
        // Without a record of its own, a member has not been given anything yet.
        let reached = |member| self.reached.get(member).copied().unwrap_or((stable, 0));
        let mut members = self.members.keys();
        if members.all(|member| reached(member) == (stable, assigned)) {
            GroupState::Stable
        } else {
            GroupState::Reconciling
        }
    }
}

#[derive(Clone)]
pub(super) struct Commit {
    /// Offset of the record.
    at: i64,
    pub(super) offset: GroupOffset,
}

impl Replay {
    pub(super) fn run(&mut self, log: &Log) -> Result<()> {
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
                self.take(&known, record.offset, producer);
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

    /// Deletes what was committed, and what open transactions wait to commit: the end of one would bring a deleted offset back. Kafka's
    /// `OffsetMetadataManager` does so for every null value.
    fn delete_offset(&mut self, key: &OffsetKey) {
        self.offsets.remove(key);
        self.pending.retain(|_, commits| {
            commits.remove(key);
            !commits.is_empty()
        });
    }

    fn take(&mut self, record: &KnownRecord<'_>, at: i64, producer: Option<i64>) {
        let value = record.value.as_ref().map(|(_, value)| value);
        if matches!(record.record_type.number, 0 | 1) {
            let key = (
                text(&record.key, "group"),
                text(&record.key, "topic"),
                int(&record.key, "partition"),
            );
            let Some(value) = value else {
                self.delete_offset(&key);
                return;
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
            return;
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
                *self.groups.entry(name).or_default() = classic(value);
            }
            (3, Some(value)) => self.epoch_of(name, "consumer", value),
            (11, Some(value)) => self.epoch_of(name, "share", value),
            (17, Some(value)) => {
                self.epoch_of(name.clone(), "streams", value);
                let validated = int(value, "validatedTopologyEpoch");
                self.group(name).validated_topology_epoch = validated;
            }
            // A null value deletes what is there; it makes no group.
            (number, None) => {
                if let Some(group) = self.groups.get_mut(&name) {
                    let member = text(&record.key, "memberId");
                    group.forget(number, &member);
                }
            }
            (5 | 10 | 19, Some(value)) => {
                let member = member_of(text(&record.key, "memberId"), value);
                let members = &mut self.group(name).members;
                members.insert(member.member_id.clone(), member);
            }
            (6 | 12 | 20, Some(value)) => {
                self.group(name).assignment_epoch = Some(int(value, "assignmentEpoch"));
            }
            (8 | 14 | 22, Some(value)) => {
                let member = text(&record.key, "memberId");
                let group = self.group(name);
                let reached = (int(value, "state"), int(value, "memberEpoch"));
                group.reached.insert(member.clone(), reached);
                if record.record_type.number != 22 {
                    let assigned = assigned(value, "assignedPartitions", "topicId");
                    group.by_id.insert(member, assigned);
                }
            }
            (15, Some(value)) => {
                let fields = ["initializingTopics", "initializedTopics", "deletingTopics"];
                let topics = fields.iter().flat_map(|field| structs(value, field));
                self.group(name).topic_names = topics
                    .filter_map(|topic| match topic.get("topicId") {
                        Some(Value::Uuid(id)) => Some((id.to_string(), text(topic, "topicName"))),
                        _ => None,
                    })
                    .collect();
            }
            (23, Some(value)) => self.group(name).topology_epoch = Some(int(value, "epoch")),
            _ => {}
        }
    }

    fn group(&mut self, name: String) -> &mut Replayed {
        self.groups.entry(name).or_default()
    }

    fn epoch_of(&mut self, name: String, kind: &'static str, value: &Struct<'_>) {
        let group = &mut self.group(name).group;
        group.kind = kind;
        group.epoch = Some(int(value, "epoch"));
    }
}

fn classic(value: &Struct<'_>) -> Replayed {
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
            if let Ok((_, assignment)) = decode_assignment(given) {
                member.assignment = assigned(&assignment, "assignedPartitions", "topic");
                member.assignment.sort();
            } else {
                replayed.odd_assignments.push(member.member_id.clone());
            }
        }
        replayed.members.insert(member.member_id.clone(), member);
    }
    replayed
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
        topic_id: value
            .get("topicId")
            .and_then(Value::as_uuid)
            .unwrap_or(Uuid::ZERO),
        is_of_another_topic: false,
        log_end_offset: None,
        first_unread: FirstUnread::Unknown,
    }
}
