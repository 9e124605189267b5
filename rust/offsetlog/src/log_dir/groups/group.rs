//! What a group of consumers is: its members, what it committed, and how far that is behind.

use crate::log_dir::TopicPartition;
use offsetlog_format::Uuid;
use std::fmt;

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
    /// The topic that has this name now, by complete metadata in these log dirs or else by the directories in them, has another id: the
    /// offset says nothing of its records.
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

    pub(super) const fn place(&self) -> (&String, i32) {
        (&self.topic, self.partition)
    }

    pub(super) fn topic_partition(&self) -> TopicPartition {
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
    pub(super) fn topic_partition(&self) -> TopicPartition {
        TopicPartition {
            topic: self.topic.clone(),
            partition: self.partition,
        }
    }

    /// Whether a log of this name is what it was committed for.
    pub(super) const fn has_log(&self) -> bool {
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
