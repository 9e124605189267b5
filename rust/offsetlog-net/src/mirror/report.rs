//! What a mirror did, and what a user must know: records lost before they were copied, what was cut, what is refused.

use offsetlog::TopicPartition;
use std::path::PathBuf;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A topic, or more partitions of one, is copied from now on.
    New,
    /// The source's settings of a topic are other ones than the copy had, and were stored.
    Settings,
    /// The copy diverged from its leader; its end was cut and kept in `offsetlog-cut`.
    Cut,
    /// The source deleted records before they were copied, or has records that were deleted here, not by the mirror.
    Lost,
    /// The source deleted records that were copied. They stay, unless deletes are followed.
    DeletedRecords,
    /// The source deleted a topic. The copy stays, unless deletes are followed.
    DeletedTopic,
    /// The source has another topic of this name than the one that was copied. It is not copied, unless deletes are followed.
    Recreated,
    /// Something is wrong with a partition or topic. It is tried again.
    Problem,
    /// Something is copied differently from the source, or not at all.
    Warning,
}

impl EventKind {
    /// Its name in JSON and in Python.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Settings => "settings",
            Self::Cut => "cut",
            Self::Lost => "lost",
            Self::DeletedRecords => "deleted-records",
            Self::DeletedTopic => "deleted-topic",
            Self::Recreated => "recreated",
            Self::Problem => "problem",
            Self::Warning => "warning",
        }
    }
}

/// Something that a user may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorEvent {
    /// What happened.
    pub kind: EventKind,
    /// The topic.
    pub topic: Option<String>,
    /// The partition.
    pub partition: Option<i32>,
    /// Node id of the broker that answered.
    pub broker: Option<i32>,
    /// The first offset that it concerns.
    pub from: Option<i64>,
    /// The offset behind the last one.
    pub until: Option<i64>,
    /// A sentence.
    pub message: String,
    /// The files where what was cut is kept.
    pub kept: Vec<PathBuf>,
}

impl MirrorEvent {
    pub(crate) fn new(kind: EventKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            topic: None,
            partition: None,
            broker: None,
            from: None,
            until: None,
            message: message.into(),
            kept: Vec::new(),
        }
    }

    pub(crate) fn of(kind: EventKind, at: &TopicPartition, message: impl Into<String>) -> Self {
        Self {
            topic: Some(at.topic.clone()),
            partition: Some(at.partition),
            ..Self::new(kind, message)
        }
    }

    pub(crate) fn topic(kind: EventKind, topic: &str, message: impl Into<String>) -> Self {
        Self {
            topic: Some(topic.to_owned()),
            ..Self::new(kind, message)
        }
    }

    pub(crate) fn range(mut self, from: i64, until: i64) -> Self {
        self.from = Some(from);
        self.until = Some(until);
        self
    }

    pub(crate) const fn by(mut self, broker: i32) -> Self {
        self.broker = Some(broker);
        self
    }
}

/// One partition of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirroredPartition {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The copy's log start offset.
    pub log_start_offset: i64,
    /// The copy's log end offset.
    pub log_end_offset: i64,
    /// The source's high watermark when it was last asked.
    pub high_watermark: Option<i64>,
    /// The source's log start offset when it was last asked.
    pub source_log_start_offset: Option<i64>,
    /// Bytes of batches that this run appended.
    pub bytes: u64,
    /// Batches that this run appended.
    pub batches: u64,
    /// Why it is not, or not wholly, copied.
    pub problem: Option<String>,
}

impl MirroredPartition {
    /// Offsets between the copy's end and the source's high watermark; `None` if the source has not answered yet.
    #[must_use]
    pub fn lag(&self) -> Option<i64> {
        let high_watermark = self.high_watermark?;
        Some(high_watermark.saturating_sub(self.log_end_offset).max(0))
    }
}

/// How far a mirror is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MirrorProgress {
    /// Bytes of batches that this run appended.
    pub bytes: u64,
    /// Batches that this run appended.
    pub batches: u64,
    /// Bytes a second, over the last seconds.
    pub bytes_per_second: u64,
    /// Partitions that are copied.
    pub partitions: usize,
    /// Those that have reached their target: the source's high watermark, or with `once` the one of the beginning.
    pub partitions_done: usize,
    /// Offsets between the copies' ends and the source's high watermarks, together.
    pub lag: i64,
    /// Offsets that this run appended, gaps included.
    pub offsets: i64,
}

/// What a mirror did.
#[derive(Debug, Clone, Default)]
pub struct MirrorReport {
    /// The cluster that is mirrored; `None` for one that has no id.
    pub cluster_id: Option<String>,
    /// By topic and number.
    pub partitions: Vec<MirroredPartition>,
    /// What happened, oldest first; at most 1,000, losses before others, and `events_left_out` more.
    pub events: Vec<MirrorEvent>,
    /// Events that are not in the list.
    pub events_left_out: u64,
    /// Groups whose committed offsets were copied.
    pub groups: usize,
    /// Committed offsets that this run stored, changed ones once for each change.
    pub committed_offsets: u64,
    /// Share groups of the source: what they have read is not copied.
    pub share_groups: usize,
    /// How far it came.
    pub progress: MirrorProgress,
    /// Whether everything that was to be copied was: no problem is left, and with `once` every partition reached its end.
    pub is_complete: bool,
    /// Whether records were deleted before they were copied, or here and not by the mirror; a copy was cut; or a topic was deleted or
    /// recreated and deletes are not followed: what a user should look at.
    pub has_losses: bool,
}
