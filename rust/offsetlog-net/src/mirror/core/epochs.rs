//! What to ask when a fetch alone does not say how copy and source fit together: offsets of the log's two ends, and where epochs end.

use super::answers::{epoch, int, int_or, int32, structs, text};
use super::{Asked, Core, Request, Versions, version_of};
use crate::mirror::partition::{Need, Partition};
use crate::mirror::report::{EventKind, MirrorEvent};
use crate::mirror::work::Work;
use offsetlog::TopicPartition;
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::apis::{FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH};
use std::collections::BTreeMap;

/// Kafka's times that mean the two ends of a log.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// The highest version whose answer means the same to a consumer.
const LIST_OFFSETS_NEWEST: i16 = 9;
/// The first version of a fetch whose answer says where the copy diverged.
const FETCH_DIVERGING: i16 = 12;
/// How often the source may report `OFFSET_OUT_OF_RANGE` for a position that is in its range.
const UNEXPLAINED_MAX: u32 = 5;

impl Partition {
    /// Whether its epochs are to be compared with this leader's before it is fetched.
    pub(super) fn must_compare(&self) -> bool {
        self.epoch.is_some() && self.compared != Some(self.leader_epoch)
    }
}

impl Core {
    pub(super) fn next_of_offsets(
        &mut self,
        id: i32,
        versions: &Versions,
        now: i64,
    ) -> Option<Request> {
        let version = version_of(&LIST_OFFSETS, versions, LIST_OFFSETS_NEWEST)?;
        for (need, time) in [(Need::Earliest, EARLIEST), (Need::Latest, LATEST)] {
            let mut wanted = self.needing(id, now, |each| *each == need);
            // An append that is under way may move the end that the answer is compared with.
            wanted.retain(|at| self.is_at_rest(at));
            if wanted.is_empty() {
                continue;
            }
            let (topics, asked) = self.by_topic(&wanted, "name", |at, each| {
                Struct::new()
                    .with("partitionIndex", at.partition)
                    .with("currentLeaderEpoch", each.leader_epoch.unwrap_or(-1))
                    .with("timestamp", time)
            });
            let body = Struct::new()
                .with("replicaId", -1)
                .with("isolationLevel", 0)
                .with("topics", topics);
            let asked = if time == EARLIEST {
                Asked::Earliest(asked)
            } else {
                Asked::Latest(asked)
            };
            return Some(Request {
                api: &LIST_OFFSETS,
                version,
                body,
                asked,
            });
        }
        None
    }

    /// Whether no append to a copy is under way.
    fn is_at_rest(&self, at: &TopicPartition) -> bool {
        self.partitions
            .get(at)
            .is_some_and(|each| each.pending == 0)
    }

    /// Groups partitions by topic, and marks them as asked.
    fn by_topic(
        &mut self,
        wanted: &[TopicPartition],
        name: &'static str,
        of: impl Fn(&TopicPartition, &Partition) -> Struct<'static>,
    ) -> (Vec<Struct<'static>>, Vec<(TopicPartition, u64)>) {
        let mut topics: BTreeMap<&str, Vec<Struct<'static>>> = BTreeMap::new();
        let mut asked = Vec::new();
        for at in wanted {
            if let Some(each) = self.partitions.get_mut(at) {
                each.is_asked = true;
                topics.entry(&at.topic).or_default().push(of(at, each));
                asked.push((at.clone(), each.generation));
            }
        }
        let topics = topics.into_iter().map(|(topic, partitions)| {
            Struct::new()
                .with(name, topic.to_owned())
                .with("partitions", partitions)
        });
        (topics.collect(), asked)
    }

    pub(super) fn next_of_epochs(
        &mut self,
        id: i32,
        versions: &Versions,
        now: i64,
    ) -> Option<Request> {
        let has_diverging = version_of(&FETCH, versions, i16::MAX)
            .is_some_and(|version| version >= FETCH_DIVERGING);
        let version = version_of(&OFFSET_FOR_LEADER_EPOCH, versions, i16::MAX)?;
        let mut wanted = self.needing(id, now, |need| {
            *need == Need::Epoch || (!has_diverging && *need == Need::Fetch)
        });
        wanted.retain(|at| {
            self.partitions
                .get(at)
                .is_some_and(|each| each.need == Need::Epoch || each.must_compare())
        });
        // An append that is under way may be what is compared.
        wanted.retain(|at| self.is_at_rest(at));
        if wanted.is_empty() {
            return None;
        }
        let epochs: BTreeMap<TopicPartition, i32> = wanted
            .iter()
            .filter_map(|at| Some((at.clone(), self.partitions.get(at)?.epoch?)))
            .collect();
        let (topics, asked) = self.by_topic(&wanted, "topic", |at, each| {
            Struct::new()
                .with("partition", at.partition)
                .with("currentLeaderEpoch", each.leader_epoch.unwrap_or(-1))
                .with("leaderEpoch", each.epoch.unwrap_or(-1))
        });
        let asked = asked.into_iter().filter_map(|(at, generation)| {
            let epoch = *epochs.get(&at)?;
            Some((at, generation, epoch))
        });
        Some(Request {
            api: &OFFSET_FOR_LEADER_EPOCH,
            version,
            body: Struct::new().with("replicaId", -1).with("topics", topics),
            asked: Asked::Epochs(asked.collect()),
        })
    }

    /// The partitions of an answer that were asked for, each once, with their generation.
    fn matched<'s, 'a>(
        &mut self,
        asked: impl Iterator<Item = (TopicPartition, u64)>,
        answer: &'s Struct<'a>,
        (topics, name, index): (&str, &str, &str),
    ) -> Vec<(TopicPartition, u64, &'s Struct<'a>)> {
        let mut waiting: BTreeMap<TopicPartition, u64> = asked.collect();
        for (at, generation) in &waiting {
            if let Some(each) = self.partitions.get_mut(at)
                && each.generation == *generation
            {
                each.is_asked = false;
            }
        }
        let mut found = Vec::new();
        for topic in structs(answer, topics) {
            let Some(name) = text(topic, name) else {
                continue;
            };
            for partition in structs(topic, "partitions") {
                let at = TopicPartition {
                    topic: name.clone(),
                    partition: int32(partition, index),
                };
                if let Some(generation) = waiting.remove(&at)
                    && self
                        .partitions
                        .get(&at)
                        .is_some_and(|each| each.generation == generation)
                {
                    found.push((at, generation, partition));
                }
            }
        }
        found
    }

    pub(super) fn take_earliest(
        &mut self,
        broker: i32,
        asked: &[(TopicPartition, u64)],
        answer: &Struct<'_>,
        now: i64,
        works: &mut Vec<Work>,
    ) {
        let names = ("topics", "name", "partitionIndex");
        for (at, generation, found) in self.matched(asked.iter().cloned(), answer, names) {
            let error = int(found, "errorCode");
            if error != 0 {
                self.take_error(broker, &at, generation, error, now);
                continue;
            }
            let start = int_or(found, "offset", -1);
            let Some(partition) = self.partitions.get_mut(&at) else {
                continue;
            };
            if start <= partition.end {
                partition.need = Need::Latest;
                continue;
            }
            partition.source_start = Some(start);
            let (from, is_empty) = (partition.end, partition.is_empty());
            let is_told = partition.told_lost.replace(start) == Some(start);
            let is_fresh = std::mem::take(&mut partition.is_fresh);
            if is_empty {
                let generation = partition.generation;
                partition.need = Need::Store;
                works.push(Work::StartAt {
                    at: at.clone(),
                    generation,
                    offset: start,
                });
            } else {
                // The next batch is appended behind a gap, such as compaction leaves too.
                partition.restart(Need::Fetch);
                partition.position = start;
                partition.gap = Some(start);
                // The copy's last epoch may end before the gap at the source: all that it can say of the copy, it has said.
                if partition.agreed == Some((partition.end, partition.leader_epoch)) {
                    partition.position_epoch = None;
                }
            }
            // A copy that was just created begins where the source begins.
            if !is_told && !is_fresh {
                let message = format!(
                    "the source deleted the records from offset {from} to {start} before they were copied; the copy goes on behind them"
                );
                self.tell(
                    MirrorEvent::of(EventKind::Lost, &at, message)
                        .range(from, start)
                        .by(broker),
                );
            }
        }
    }

    pub(super) fn take_latest(
        &mut self,
        broker: i32,
        asked: &[(TopicPartition, u64)],
        answer: &Struct<'_>,
        now: i64,
    ) {
        let names = ("topics", "name", "partitionIndex");
        for (at, generation, found) in self.matched(asked.iter().cloned(), answer, names) {
            let error = int(found, "errorCode");
            if error != 0 {
                self.take_error(broker, &at, generation, error, now);
                continue;
            }
            let end = int_or(found, "offset", -1);
            let look = self.look + 1;
            let options = self.options.clone();
            let Some(partition) = self.partitions.get_mut(&at) else {
                continue;
            };
            if (0..partition.end).contains(&end) {
                partition.restart(Need::Confirm {
                    leader: (None, end),
                    look,
                });
                self.hurry_metadata(now);
                continue;
            }
            // Within the range by now, or of an epoch that the leader does not know.
            partition.restart(Need::Fetch);
            partition.compared = None;
            partition.unexplained += 1;
            partition.fail(now, |failures| options.backoff(failures));
            if partition.unexplained > UNEXPLAINED_MAX {
                let message = format!(
                    "the source calls offset {} out of range, and its range goes to {end}: it does not know leader epoch {} of the copy. \
                     Is this the history that was copied? Move the copy away to begin anew",
                    partition.end,
                    partition.epoch.unwrap_or(-1)
                );
                self.trouble(&at, broker, message);
            }
            self.hurry_metadata(now);
        }
    }

    pub(super) fn take_epochs(
        &mut self,
        broker: i32,
        asked: &[(TopicPartition, u64, i32)],
        answer: &Struct<'_>,
        now: i64,
    ) {
        let names = ("topics", "topic", "partition");
        let keys = asked
            .iter()
            .map(|(at, generation, _)| (at.clone(), *generation));
        for (at, generation, found) in self.matched(keys, answer, names) {
            let error = int(found, "errorCode");
            if error != 0 {
                self.take_error(broker, &at, generation, error, now);
                continue;
            }
            let asked_epoch = asked
                .iter()
                .find(|(each, ..)| *each == at)
                .map(|(_, _, epoch)| *epoch);
            let look = self.look + 1;
            let Some(partition) = self.partitions.get_mut(&at) else {
                continue;
            };
            let leader = epoch(found, "leaderEpoch");
            let end = int_or(found, "endOffset", -1);
            let agrees = end < 0 || (leader == asked_epoch && end >= partition.end);
            if agrees {
                // With neither an epoch nor an offset the leader says nothing; if the copy does not fit, the fetch will.
                partition.compared = Some(partition.leader_epoch);
                partition.restart(Need::Fetch);
            } else {
                partition.restart(Need::Confirm {
                    leader: (leader, end),
                    look,
                });
                self.hurry_metadata(now);
            }
        }
    }
}
