//! With `once`: how far groups' offsets require a copy, whether all are stored, and what is reported of those that are not.

use super::{Core, TopicState, keys_of};
use crate::mirror::partition::Partition;
use crate::mirror::report::{EventKind, MirrorEvent};
use offsetlog::TopicPartition;
use std::collections::BTreeMap;

impl Core {
    /// With `once`: raises the target of a partition to the offsets that groups committed, if the source has it that far. A partition that
    /// was done before such an offset was returned is fetched once more, to see whether the source has it that far by now. For one
    /// partition, or for all.
    pub(in crate::mirror::core) fn raise_targets(&mut self, of: Option<&TopicPartition>) {
        for (_, pending) in self.groups.pending.range(keys_of(of)) {
            let (commit, asked) = pending
                .later
                .as_ref()
                .map_or((&pending.commit, pending.asked), |(commit, asked)| {
                    (commit, *asked)
                });
            let Some(each) = self.partitions.get_mut(&commit.at) else {
                continue;
            };
            let (Some(target), Some((high_watermark, at))) = (each.target, each.high_watermark)
            else {
                continue;
            };
            if commit.offset <= target || each.problem.is_some() {
                continue;
            }
            if commit.offset <= high_watermark {
                each.target = Some(commit.offset);
                each.is_done = false;
            } else if at <= asked.at {
                each.is_done = false;
            }
        }
    }

    /// With `once`: whether each offset was stored, except those of partitions that are not copied, or not that far.
    pub(in crate::mirror::core) fn offsets_are_settled(&self) -> bool {
        self.groups.are_known()
            && self.groups.pending.values().all(|pending| {
                let at = &pending.commit.at;
                let is_copied = self
                    .topics
                    .get(&at.topic)
                    .is_some_and(|topic| topic.state == TopicState::Ready);
                let each = self.partitions.get(at).filter(|_| is_copied);
                each.is_none_or(|each| {
                    let is_short = each.target.is_some_and(|target| each.reached() < target);
                    each.is_done && (each.problem.is_some() || is_short)
                })
            })
    }

    /// Reports groups whose offsets are above the source's high watermark and above the copy.
    pub(in crate::mirror::core) fn tell_beyond(&mut self) {
        let mut by_partition: BTreeMap<TopicPartition, (String, i64, usize)> = BTreeMap::new();
        for ((at, group), offset) in std::mem::take(&mut self.groups.beyond) {
            let is_here = |each: &Partition| each.reached() >= offset;
            if self.partitions.get(&at).is_none_or(is_here) {
                continue;
            }
            let known = by_partition.entry(at).or_insert((group, offset, 0));
            known.1 = offset.max(known.1);
            known.2 += 1;
        }
        for (at, (group, offset, count)) in by_partition {
            let Some(end) = self.partitions.get(&at).map(Partition::reached) else {
                continue;
            };
            let more = match count - 1 {
                0 => String::new(),
                more => format!(" and {more} more groups"),
            };
            let message = format!(
                "group {group}{more} committed offset {offset}, above the source's high watermark; it is stored, and the copy ends at {end}: the \
                 source has lost what is between, or does not give it"
            );
            let event = MirrorEvent::of(EventKind::Lost, &at, message);
            self.tell(event.range(end, offset));
        }
    }

    /// Reports the offsets that were not stored, and the brokers that did not return theirs.
    pub(in crate::mirror::core) fn tell_unstored(&mut self) {
        let mut unstored = Vec::new();
        for pending in self.groups.pending.values() {
            let commit = &pending.commit;
            // Topics that are not copied were reported before.
            let is_copied = self
                .topics
                .get(&commit.at.topic)
                .is_some_and(|topic| topic.state == TopicState::Ready);
            let Some(each) = self.partitions.get(&commit.at).filter(|_| is_copied) else {
                continue;
            };
            let message = format!(
                "offset {} of group {} is not stored: the copy ends at {}",
                commit.offset, commit.group, each.end
            );
            unstored.push(MirrorEvent::of(EventKind::Problem, &commit.at, message));
        }
        let silent = self
            .groups
            .brokers
            .iter()
            .filter(|(_, each)| !each.is_known);
        let silent: Vec<i32> = silent.map(|(id, _)| *id).collect();
        self.is_partial |= !unstored.is_empty();
        for event in unstored {
            self.tell(event);
        }
        self.tell_unlisted();
        if self.groups.is_wanted {
            for id in silent {
                let message =
                    format!("broker {id} did not tell the committed offsets of its groups");
                self.tell(MirrorEvent::new(EventKind::Problem, message).by(id));
                self.is_partial = true;
            }
        }
    }
}
