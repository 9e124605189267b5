//! Takes the results of the disk's work.

use super::deletes::Away;
use super::{Core, TopicState};
use crate::mirror::partition::{Need, Partition, Position};
use crate::mirror::report::{EventKind, MirrorEvent};
use crate::mirror::store::{ReadyTopic, Transactions, Unended};
use crate::mirror::work::{Append, Work};
use offsetlog::TopicPartition;
use offsetlog::format::Uuid;
use std::path::PathBuf;

impl Core {
    /// The directory is of the cluster.
    pub(crate) fn identified(&mut self, held: Vec<String>, now: i64) {
        self.is_identified = true;
        let new = held
            .into_iter()
            .filter(|name| self.options.takes(name, false) && !self.topics.contains_key(name));
        let new: Vec<String> = new.collect();
        if !new.is_empty() {
            // Whether the source still has them.
            self.metadata_due = self.metadata_due.min(now);
        }
        self.held = new
            .into_iter()
            .map(|name| (name, Away::default()))
            .collect();
    }

    /// A topic is ready.
    pub(crate) fn topic_ready(&mut self, name: &str, id: Uuid, ready: ReadyTopic, now: i64) {
        let ReadyTopic {
            positions,
            new,
            again,
            broken,
            other_settings,
            warnings,
        } = ready;
        let Some(topic) = self.topics.get_mut(name).filter(|topic| topic.awaits(id)) else {
            // Later looks have shown otherwise.
            return;
        };
        topic.state = TopicState::Ready;
        let is_new = new.len() == positions.len() + broken.len();
        topic
            .copied_since
            .get_or_insert(if is_new { now } else { i64::MIN });
        self.progressed_at = self.progressed_at.max(now);
        for &(partition, position) in &positions {
            let at = TopicPartition {
                topic: name.to_owned(),
                partition,
            };
            self.partitions.entry(at).or_insert_with(|| Partition {
                is_fresh: new.contains(&partition) && !again.contains(&partition),
                generation: self.first_generation,
                ..Partition::new(position, now)
            });
        }
        if !new.is_empty() {
            let word = if new.len() == 1 {
                "partition"
            } else {
                "partitions"
            };
            let message = format!("topic {name}: {} new {word}", new.len());
            self.tell(MirrorEvent::topic(EventKind::New, name, message));
        }
        if let Some(difference) = other_settings {
            let message = format!(
                "topic {name}: the copy had other settings than the source ({difference}), changed at the source or here: it has the source's now"
            );
            self.tell(MirrorEvent::topic(EventKind::Settings, name, message));
        }
        for partition in again {
            let message = format!(
                "the directory of {name}-{partition} was not here, though those of later partitions are: it is copied anew"
            );
            self.tell(MirrorEvent::topic(EventKind::Warning, name, message));
        }
        for warning in warnings {
            self.tell(MirrorEvent::topic(EventKind::Warning, name, warning));
        }
        for (partition, reason) in broken {
            let at = TopicPartition {
                topic: name.to_owned(),
                partition,
            };
            let unknown = Partition {
                generation: self.first_generation,
                ..Partition::new(Position::default(), now)
            };
            self.partitions.entry(at.clone()).or_insert(unknown);
            self.broken(&at, &reason);
        }
        self.lead(name, now);
    }

    /// A topic cannot be copied.
    pub(crate) fn topic_refused(&mut self, name: &str, id: Uuid, reason: &str) {
        if let Some(topic) = self.topics.get_mut(name).filter(|topic| topic.awaits(id)) {
            topic.state = TopicState::Refused;
            let message = format!("topic {name} is not copied: {reason}");
            self.tell(MirrorEvent::topic(EventKind::Problem, name, message));
        }
    }

    /// The settings of a topic are stored, which may have had them already.
    pub(crate) fn settings_stored(&mut self, name: &str, is_changed: bool, warnings: Vec<String>) {
        if is_changed {
            let message =
                format!("the settings of topic {name} changed at the source, and were stored");
            self.tell(MirrorEvent::topic(EventKind::Settings, name, message));
        }
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
        if append.is_by_id && append.position <= partition.proven {
            partition.proven = partition.proven.max(partition.end);
        }
        partition.failures = 0;
        partition.empties = None;
        partition.nothing = None;
        partition.problem = None;
        partition.unexplained = 0;
        partition.bytes = partition.bytes.saturating_add(append.walked.bytes as u64);
        partition.batches = partition.batches.saturating_add(append.walked.batches);
        if partition.generation != append.generation || partition.position < partition.end {
            // Restarted during the append: what was requested meanwhile is already here, and a cut is decided again.
            let need = match partition.need {
                Need::Store | Need::Confirm { .. } => Need::Fetch,
                need => need,
            };
            partition.restart(need);
        }
        if once && partition.is_at_its_end() {
            partition.is_done = true;
        }
        self.progressed(now);
        if once {
            self.raise_targets(Some(&append.at));
        }
        self.store_offsets(Some(&append.at), works, now);
    }

    /// Reports transactions that were open where a gap begins. How they ended at the source is not known here.
    pub(crate) fn tell_open(&mut self, append: &Append, transactions: Transactions) {
        let Transactions {
            at_gap,
            compacted,
            open,
        } = transactions;
        let (at, broker, behind) = (&append.at, append.broker, append.position);
        let how = format!("may have ended in what the source deleted before offset {behind}");
        self.tell_unended(at, broker, &at_gap, (&how, behind));
        let behind = append.walked.next_offset;
        let how = format!(
            "may have ended in what compaction removed before offset {behind}, after its records were copied"
        );
        self.tell_unended(at, broker, &compacted, (&how, behind));
        if let Some(partition) = self.partitions.get_mut(at) {
            partition.open = open;
        }
    }

    /// The copy has all that the source has, and the source says up to where all transactions have ended.
    pub(super) fn check_open(&mut self, broker: i32, at: &TopicPartition, last_stable: i64) {
        let Some(partition) = self.partitions.get_mut(at) else {
            return;
        };
        let behind = partition.end;
        let (ended, open) = std::mem::take(&mut partition.open)
            .into_iter()
            .partition(|&(_, first)| first < last_stable);
        partition.open = open;
        let how = "has ended at the source, which has removed its end before it was copied";
        self.tell_unended(at, broker, &ended, (how, behind));
    }

    fn tell_unended(
        &mut self,
        at: &TopicPartition,
        broker: i32,
        unended: &[Unended],
        (how, behind): (&str, i64),
    ) {
        let Some(&(producer, first)) = unended.first() else {
            return;
        };
        let more = match unended.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!(
            "the transaction of producer {producer} that began at offset {first}{more} {how}: here it is open until the producer's next \
             marker, which then commits or aborts it, or until serve --open-transactions decides, if __transaction_state is copied and its record \
             tells how; readers of committed records stop before it"
        );
        let event = MirrorEvent::of(EventKind::Lost, at, message);
        self.tell(event.range(first, behind).by(broker));
    }

    /// Work of an older generation that was skipped.
    pub(crate) fn left_out(&mut self, work: &Work) {
        match work {
            Work::Append(append) => {
                if let Some(partition) = self.partitions.get_mut(&append.at) {
                    partition.pending = partition.pending.saturating_sub(1);
                }
            }
            // The topic is back.
            Work::DeleteTopic { name } => {
                self.renewed.remove(name);
            }
            Work::Cut { at, .. } | Work::StartAt { at, .. } => {
                if let Some(partition) = self.partitions.get_mut(at)
                    && partition.need == Need::Store
                {
                    partition.restart(Need::Fetch);
                }
            }
            _ => {}
        }
    }

    /// Batches do not begin where the copy ends: what is between comes first.
    pub(crate) fn overtaken(&mut self, append: &Append, at: Position) {
        if let Some(partition) = self.partitions.get_mut(&append.at) {
            partition.pending = partition.pending.saturating_sub(1);
            partition.stands(at);
            partition.restart(Need::Fetch);
        }
    }

    /// A broker's batches could not be appended, by its own fault.
    pub(crate) fn append_refused(&mut self, append: &Append, at: Position, reason: &str, now: i64) {
        if let Some(partition) = self.partitions.get_mut(&append.at) {
            partition.pending = partition.pending.saturating_sub(1);
            partition.stands(at);
            partition.restart(Need::Fetch);
        }
        self.refuse_batches(append.broker, &append.at, append.position, reason, now);
    }

    /// A copy was cut: the files `kept` have what it had from `position.end` to `before`.
    pub(crate) fn cut(
        &mut self,
        at: &TopicPartition,
        position: Position,
        before: i64,
        kept: Vec<PathBuf>,
        is_done: bool,
        now: i64,
    ) {
        let Some(partition) = self.partitions.get_mut(at) else {
            return;
        };
        partition.stands(position);
        partition.restart(Need::Fetch);
        partition.is_done = false;
        // The target may no longer exist.
        partition.target = None;
        if is_done {
            partition.compared = Some(partition.leader_epoch);
            if before == position.end {
                partition.agreed = Some((position.end, partition.leader_epoch));
            }
        } else {
            partition.compared = None;
        }
        let broker = partition.leader.unwrap_or(-1);
        if before > position.end {
            self.progressed(now);
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

    /// Up to where a partition is known to belong to the copied topic.
    pub(crate) fn proven(&self, at: &TopicPartition) -> Option<i64> {
        self.partitions.get(at).map(|each| each.proven)
    }

    /// What may belong to a recreated topic was cut.
    pub(crate) fn cut_unproven(
        &mut self,
        at: &TopicPartition,
        position: Position,
        before: i64,
        kept: Vec<PathBuf>,
    ) {
        let Some(partition) = self.partitions.get_mut(at) else {
            return;
        };
        partition.stands(position);
        partition.restart(Need::Fetch);
        partition.is_done = true;
        if before <= position.end {
            return;
        }
        let message = format!(
            "what came from offset {} on was asked for by name, and may be of the topic that was made anew: it was cut, and what the copy had up \
             to {before} is kept in offsetlog-cut",
            position.end
        );
        let mut event = MirrorEvent::of(EventKind::Cut, at, message).range(position.end, before);
        event.kept = kept;
        self.tell(event);
    }

    /// An empty copy restarts at another offset.
    pub(crate) fn started(&mut self, at: &TopicPartition, position: Position, now: i64) {
        self.progressed(now);
        if let Some(partition) = self.partitions.get_mut(at) {
            partition.stands(position);
            partition.first_end = partition.first_end.max(position.end);
            partition.restart(Need::Fetch);
            // Nothing is below.
            partition.proven = partition.end;
            partition.proving = partition.end;
        }
    }

    /// A partition of the directory does not open, or cannot be changed. It is left alone.
    pub(crate) fn broken(&mut self, at: &TopicPartition, reason: &str) {
        if let Some(partition) = self.partitions.get_mut(at) {
            partition.restart(Need::Store);
            partition.is_done = true;
            partition.pending = 0;
        }
        self.trouble(at, -1, reason.to_owned());
    }

    /// Records were deleted here too.
    pub(crate) fn deleted_before(&mut self, at: &TopicPartition, start: i64) {
        if let Some(partition) = self.partitions.get_mut(at) {
            partition.start = start;
            partition.noted_start = partition.noted_start.max(start);
            // Behind a gap it is less than the source has deleted: the rest follows when there are records again.
            partition.deleted_to = start;
        }
    }
}
