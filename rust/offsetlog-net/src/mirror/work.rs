//! What is to be done on the disk, in order.

use super::batches::Walked;
use offsetlog::TopicPartition;
use offsetlog::format::Uuid;
use std::ops::Range;

/// A group's committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupCommit {
    /// The group.
    pub(crate) group: String,
    /// The partition.
    pub(crate) at: TopicPartition,
    /// The offset.
    pub(crate) offset: i64,
    /// The leader epoch of the record before it, if the client said one.
    pub(crate) leader_epoch: Option<i32>,
    /// The client's text.
    pub(crate) metadata: String,
}

/// A committed offset whose records the copy has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadyCommit {
    pub(crate) commit: GroupCommit,
    /// The topic that it belongs to; zero if the source has no ids.
    pub(crate) topic_id: Uuid,
}

/// What is to be done on the disk.
#[derive(Debug)]
pub(crate) enum Work {
    /// Check that the directory is of this cluster, or make it so.
    Identify(Option<String>),
    /// Make a topic ready: create it or its missing partitions, store its settings, say where its partitions stand.
    Topic {
        /// Its name.
        name: String,
        /// Its id; zero if the source has none.
        id: Uuid,
        /// How many partitions it has.
        partitions: i32,
        /// Its settings, if they are known.
        config: Option<Vec<(String, String)>>,
    },
    /// Store the settings of a topic.
    Settings {
        /// Its name.
        name: String,
        /// Its settings.
        config: Vec<(String, String)>,
    },
    /// Append batches.
    Append(Append),
    /// Cut a copy that diverged, and keep what is cut.
    Cut {
        /// Which.
        at: TopicPartition,
        /// Of the partition.
        generation: u64,
        /// The leader's answer: an epoch, and where it ends; without an epoch, the leader's end.
        leader: (Option<i32>, i64),
    },
    /// Cut what was fetched by name and may belong to the recreated topic, and keep it.
    CutUnproven {
        /// Which.
        at: TopicPartition,
    },
    /// An empty copy begins at this offset.
    StartAt {
        /// Which.
        at: TopicPartition,
        /// Of the partition.
        generation: u64,
        /// The offset.
        offset: i64,
    },
    /// Delete the records before an offset, as the source did.
    DeleteBefore {
        /// Which.
        at: TopicPartition,
        /// The offset.
        offset: i64,
    },
    /// Delete a topic, as the source did.
    DeleteTopic {
        /// Its name.
        name: String,
    },
    /// Store committed offsets.
    Commits(Vec<ReadyCommit>),
}

/// Batches to append.
#[derive(Debug, Clone)]
pub(crate) struct Append {
    /// Where.
    pub(crate) at: TopicPartition,
    pub(crate) generation: u64,
    /// The offset that was asked for.
    pub(crate) position: i64,
    /// Where the copy must end when they are appended. That is `position`, unless the source was asked where its log begins and said that
    /// nothing is between.
    pub(crate) copy_end: i64,
    /// Their position in the response.
    pub(crate) records: Range<usize>,
    pub(crate) walked: Walked,
    pub(crate) leader_epoch: Option<i32>,
    /// Whether they were asked for by the topic's id.
    pub(crate) is_by_id: bool,
    /// Who sent them.
    pub(crate) broker: i32,
}

impl Work {
    /// The partition and its generation, of work that may be void.
    pub(crate) const fn generation(&self) -> Option<(&TopicPartition, u64)> {
        match self {
            Self::Append(Append { at, generation, .. })
            | Self::Cut { at, generation, .. }
            | Self::StartAt { at, generation, .. } => Some((at, *generation)),
            _ => None,
        }
    }
}
