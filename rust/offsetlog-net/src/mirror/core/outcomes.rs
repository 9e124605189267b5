//! What the disk says of the work that it was given.

use super::{Core, TopicState};
use crate::mirror::partition::{Need, Partition, Position};
use crate::mirror::report::{EventKind, MirrorEvent};
use crate::mirror::work::{Append, Work};
use offsetlog::TopicPartition;
use offsetlog::format::Uuid;
use std::path::PathBuf;

impl Core {
    /// The directory is of the cluster.
    pub(crate) fn identified(&mut self) {
        self.is_identified = true;
    }

    /// A topic is ready, with all its partitions; `new` of them were made just now.
    pub(crate) fn topic_ready(
        &mut self,
        name: &str,
        partitions: &[(i32, Position)],
        new: usize,
        warnings: Vec<String>,
        now: i64,
    ) {
        let Some(topic) = self.topics.get_mut(name) else {
            return;
        };
        topic.state = TopicState::Ready;
        for &(partition, position) in partitions {
            let at = TopicPartition {
                topic: name.to_owned(),
                partition,
            };
            self.partitions
                .entry(at)
                .or_insert_with(|| Partition::new(position, now));
        }
        if new > 0 {
            let word = if new == 1 { "partition" } else { "partitions" };
            let message = format!("topic {name}: {new} new {word}");
            self.tell(MirrorEvent::topic(EventKind::New, name, message));
        }
        for warning in warnings {
            self.tell(MirrorEvent::topic(EventKind::Warning, name, warning));
        }
        self.lead(name, now);
    }

    /// The directory has a topic of this name with another id.
    pub(crate) fn topic_is_another(
        &mut self,
        name: &str,
        ours: Uuid,
        theirs: Uuid,
        works: &mut Vec<Work>,
    ) {
        if let Some(topic) = self.topics.get_mut(name) {
            topic.state = TopicState::Refused;
            if self.options.follow_deletes {
                topic.state = TopicState::Gone;
                works.push(Work::DeleteTopic {
                    name: name.to_owned(),
                });
            }
            self.tell_recreated(name, ours, theirs);
        }
    }

    /// A topic cannot be copied.
    pub(crate) fn topic_refused(&mut self, name: &str, reason: &str) {
        if let Some(topic) = self.topics.get_mut(name) {
            topic.state = TopicState::Refused;
            let message = format!("topic {name} is not copied: {reason}");
            self.tell(MirrorEvent::topic(EventKind::Problem, name, message));
        }
    }

    /// A topic was deleted here too. If the source has one of its name, the next look finds it.
    pub(crate) fn topic_deleted(&mut self, name: &str, now: i64) {
        self.partitions.retain(|at, _| at.topic != name);
        self.topics.remove(name);
        self.metadata_due = self.metadata_due.min(now);
    }

    /// The settings of a topic were stored.
    pub(crate) fn settings_stored(&mut self, name: &str, warnings: Vec<String>) {
        let message =
            format!("the settings of topic {name} changed at the source, and were stored");
        self.tell(MirrorEvent::topic(EventKind::Settings, name, message));
        for warning in warnings {
            self.tell(MirrorEvent::topic(EventKind::Warning, name, warning));
        }
    }

    /// Batches were appended; the copy now stands there.
    pub(crate) fn appended(
        &mut self,
        append: &Append,
        at: Position,
        now: i64,
        works: &mut Vec<Work>,
    ) {
        let once = self.options.once;
        let Some(partition) = self.partitions.get_mut(&append.at) else {
            return;
        };
        partition.pending = partition.pending.saturating_sub(1);
        partition.stands(at);
        partition.failures = 0;
        partition.answered_at = now;
        partition.bytes = partition.bytes.saturating_add(append.walked.bytes as u64);
        partition.batches = partition.batches.saturating_add(append.walked.batches);
        if partition.position < partition.end {
            // Begun anew while it was appended: what was asked for meanwhile is there already.
            let need = partition.need;
            partition.restart(need);
        }
        if once
            && partition
                .target
                .is_some_and(|target| partition.end >= target)
        {
            partition.is_done = true;
        }
        if once {
            self.raise_targets();
        }
        self.store_offsets(works);
    }

    /// Work of an older generation, that was left out.
    pub(crate) fn left_out(&mut self, work: &Work) {
        if let Work::Append(append) = work
            && let Some(partition) = self.partitions.get_mut(&append.at)
        {
            partition.pending = partition.pending.saturating_sub(1);
        }
    }

    /// What a broker sent could not be appended, by its own fault.
    pub(crate) fn append_refused(&mut self, append: &Append, at: Position, reason: &str, now: i64) {
        if let Some(partition) = self.partitions.get_mut(&append.at) {
            partition.pending = partition.pending.saturating_sub(1);
            partition.stands(at);
            partition.restart(Need::Fetch);
        }
        self.refuse_batches(append.broker, &append.at, append.position, reason, now);
    }

    /// A copy was cut: what stood from `position.end` to `before` is in the files `kept`.
    pub(crate) fn cut(
        &mut self,
        at: &TopicPartition,
        position: Position,
        before: i64,
        kept: Vec<PathBuf>,
        is_done: bool,
    ) {
        let Some(partition) = self.partitions.get_mut(at) else {
            return;
        };
        partition.stands(position);
        partition.restart(Need::Fetch);
        partition.is_done = false;
        if is_done {
            partition.compared = Some(partition.leader_epoch);
        } else {
            partition.compared = None;
        }
        let broker = partition.leader.unwrap_or(-1);
        if before > position.end {
            let message = format!(
                "the copy diverged from its leader at offset {}: it was cut there, and what it had up to {before} is kept in offsetlog-cut",
                position.end
            );
            let mut event = MirrorEvent::of(EventKind::Cut, at, message)
                .range(position.end, before)
                .by(broker);
            event.kept = kept;
            self.tell(event);
        }
    }

    /// An empty copy begins anew elsewhere.
    pub(crate) fn started(&mut self, at: &TopicPartition, position: Position) {
        if let Some(partition) = self.partitions.get_mut(at) {
            partition.stands(position);
            partition.first_end = partition.first_end.max(position.end);
            partition.restart(Need::Fetch);
        }
    }

    /// Records were deleted here too.
    pub(crate) fn deleted_before(&mut self, at: &TopicPartition, start: i64) {
        if let Some(partition) = self.partitions.get_mut(at) {
            partition.start = start;
        }
    }
}
