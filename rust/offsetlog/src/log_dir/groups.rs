//! Reads consumer groups from `__consumer_offsets` (FORMAT.md «Internal topics»).
//!
//! A group coordinator stores its state as records; the last record of each key counts. An offset that was committed in a
//! transaction counts once the transaction is committed. Of two commits of one key, the one with the later record wins.

mod behind;
mod replay;

use super::{LogDir, TopicPartition, Unread, pass_over};
use crate::error::Result;
use crate::log::MetadataImage;
use behind::Wanted;
use offsetlog_format::internal_topic::METADATA_TOPIC;
use replay::Replay;
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
    /// The first record that the group has not read.
    pub first_unread: FirstUnread,
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

    /// Number of offsets between the committed offset and the log end offset; `None` if the latter is unknown.
    #[must_use]
    pub const fn lag(&self) -> Option<i64> {
        match self.log_end_offset {
            Some(end) => Some(end.saturating_sub(self.offset)),
            None => None,
        }
    }
}

impl LogDir {
    /// Returns the consumer groups that their coordinators stored in these log dirs, by name, with their committed offsets and
    /// lag; warnings about what was skipped; and what could not be read. A damaged partition of the topic gives no groups at
    /// all, because records after the damage may contradict those before it. If a log's end cannot be determined, there is no
    /// lag; if damage hides the first unread record, a warning names the partition. Records of unknown types or without a
    /// key are skipped with a warning; coordinators skip the former too.
    ///
    /// Cost: reads `__consumer_offsets` completely and keeps one value per key in memory. Opens each partition with a committed
    /// offset once, and looks each committed offset below its end up once, as [`Log::get`](crate::Log::get) does; groups that
    /// committed the same offset share the look-up.
    ///
    /// # Errors
    /// `Interrupted`. Per partition, those of a scan, and `Corrupt` kinds for a record that no coordinator wrote.
    pub fn groups(&self) -> Result<(Vec<Group>, Vec<String>, Vec<Unread>)> {
        let (mut warnings, mut unread) = (Vec::new(), Vec::new());
        let partitions = self.partitions();
        let mut found = self.replayed_groups(&partitions, &mut warnings, &mut unread)?;
        let mut wanted = Wanted::new();
        for each in found.values().flat_map(|group| &group.offsets) {
            wanted
                .entry(each.topic_partition())
                .or_default()
                .insert(each.offset);
        }
        let behind = self.behind(&partitions, wanted, &mut warnings, &mut unread)?;
        for each in found.values_mut().flat_map(|group| &mut group.offsets) {
            let partition = each.topic_partition();
            (each.log_end_offset, each.first_unread) = behind.of(&partition, each.offset);
        }
        Ok((found.into_values().collect(), warnings, unread))
    }

    /// The groups by name, as `__consumer_offsets` alone has them.
    fn replayed_groups(
        &self,
        partitions: &[TopicPartition],
        warnings: &mut Vec<String>,
        unread: &mut Vec<Unread>,
    ) -> Result<BTreeMap<String, Group>> {
        let mut found: BTreeMap<String, Group> = BTreeMap::new();
        let mut ids: Option<HashMap<String, String>> = None;
        for partition in partitions.iter().filter(|found| found.topic == TOPIC) {
            let mut replay = Replay::default();
            let replayed = self
                .log(&partition.topic, partition.partition)
                .and_then(|log| replay.run(&log));
            if let Err(error) = replayed {
                pass_over(error, partition, unread)?;
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
                        None => ids.insert(self.topics_by_id(partitions, unread)?),
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
