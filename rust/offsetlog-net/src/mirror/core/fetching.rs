//! Fetches, and what their answers mean.
//!
//! From version 12 on a fetch carries the leader epoch of what lies before its offset, and its answer says where the copy diverged
//! (KIP-595); it says the same to consumers. The source's broker takes the mirror for a consumer that reads uncommitted records.

use super::answers::{epoch, error_name, int, int_or, int32, structs, text, uuid};
use super::{Asked, Core, FetchedPartition, Node, Request, Versions, version_of};
use crate::mirror::batches::walk;
use crate::mirror::partition::{Need, Nothing, Partition};
use crate::mirror::report::{EventKind, MirrorEvent};
use crate::mirror::work::{Append, Work};
use offsetlog::TopicPartition;
use offsetlog::format::Uuid;
use offsetlog::format::batch::FRAME_BYTES;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis::{FETCH, OFFSET_FOR_LEADER_EPOCH};
use std::collections::BTreeMap;

/// The first version whose answer says where the copy diverged.
const DIVERGING: i16 = 12;
/// The last version with names of topics.
const WITH_NAMES: i16 = 12;
/// Batches of a newer leader in a row before this is reported.
const NEWER_MAX: u32 = 5;
/// A partition that is fetched alone counts as empty after this many fetches without records, and not before `EMPTY_MS`.
const EMPTY_TIMES: u32 = 4;
/// See `EMPTY_TIMES`.
const EMPTY_MS: i64 = 4000;
/// How long a broker waits with such an answer.
const EMPTY_WAIT_MS: i32 = 200;
/// The last version that says nothing new to a consumer.
const NEWEST: i16 = 17;

impl Core {
    pub(super) fn next_fetch(&mut self, id: i32, versions: &Versions, now: i64) -> Option<Request> {
        let newest = version_of(&FETCH, versions, NEWEST)?;
        let mut wanted = self.needing(id, now, |need| *need == Need::Fetch);
        if newest < DIVERGING && version_of(&OFFSET_FOR_LEADER_EPOCH, versions, i16::MAX).is_some()
        {
            // These are compared first, by another request.
            wanted.retain(|at| {
                self.partitions
                    .get(at)
                    .is_some_and(|each| !each.must_compare())
            });
        }
        if self.options.once {
            // An append that is under way may bring all that is wanted: an error of the fetch behind it would void the append.
            wanted.retain(|at| {
                self.partitions
                    .get(at)
                    .is_some_and(|each| !each.has_its_end_pending())
            });
        }
        // A partition whose fetch was empty is fetched again alone, when nothing else is left: other partitions may have been the reason.
        if wanted.iter().all(|at| self.has_been_empty(at)) {
            let fewest = wanted
                .iter()
                .min_by_key(|at| {
                    let empties = self.partitions.get(at).and_then(|each| each.empties);
                    empties.map(|(since, count)| (count, since))
                })
                .cloned();
            wanted = fewest.into_iter().collect();
        } else {
            wanted.retain(|at| !self.has_been_empty(at));
        }
        if wanted.is_empty() {
            return None;
        }
        let turn = &mut self.nodes.entry(Node::Broker(id)).or_default().turn;
        *turn = turn.wrapping_add(1) % wanted.len();
        wanted.rotate_left(*turn);
        let has_ids = wanted.iter().all(|at| !self.topic_id(&at.topic).is_zero());
        let version = if has_ids {
            newest
        } else {
            newest.min(WITH_NAMES)
        };
        let mut asked = Vec::with_capacity(wanted.len());
        for at in wanted {
            let topic_id = self.topic_id(&at.topic);
            let Some(each) = self.partitions.get_mut(&at) else {
                continue;
            };
            each.is_asked = true;
            asked.push(FetchedPartition {
                topic_id,
                is_by_id: version > WITH_NAMES,
                generation: each.generation,
                position: each.position,
                at,
            });
        }
        let body = self.fetch_of(&asked, version);
        Some(Request {
            api: &FETCH,
            version,
            body,
            asked: Asked::Fetch(asked),
        })
    }

    /// The id of a topic; zero for none.
    pub(super) fn topic_id(&self, name: &str) -> Uuid {
        let none = Uuid::from_bytes([0; 16]);
        self.topics.get(name).map_or(none, |topic| topic.id)
    }

    fn fetch_of(&self, asked: &[FetchedPartition], version: i16) -> Struct<'static> {
        let is_empty = asked.iter().all(|each| self.has_been_empty(&each.at));
        let is_at_its_end = |each: &FetchedPartition| {
            self.partitions
                .get(&each.at)
                .is_some_and(Partition::asks_at_its_end)
        };
        let max_wait_ms = if asked.iter().any(is_at_its_end) {
            0
        } else if is_empty {
            self.options.max_wait_ms.min(EMPTY_WAIT_MS)
        } else {
            self.options.max_wait_ms
        };
        let all = self.options.fetch_max_bytes.max(1);
        let share = all / i32::try_from(asked.len()).unwrap_or(i32::MAX).max(1);
        let share = share.max(self.options.partition_max_bytes).clamp(1, all);
        let mut topics: Vec<(&str, Uuid, Vec<Struct<'static>>)> = Vec::new();
        for fetched in asked {
            let Some(each) = self.partitions.get(&fetched.at) else {
                continue;
            };
            let needed = i32::try_from(each.next_bytes).unwrap_or(i32::MAX);
            let mut partition = Struct::new()
                .with("partition", fetched.at.partition)
                .with("currentLeaderEpoch", each.leader_epoch.unwrap_or(-1))
                .with("fetchOffset", fetched.position)
                .with("partitionMaxBytes", share.max(needed));
            if version >= DIVERGING {
                partition = partition.with("lastFetchedEpoch", each.position_epoch.unwrap_or(-1));
            }
            match topics.last_mut() {
                Some((topic, _, partitions)) if *topic == fetched.at.topic => {
                    partitions.push(partition);
                }
                _ => topics.push((&fetched.at.topic, fetched.topic_id, vec![partition])),
            }
        }
        let topics: Vec<Struct<'static>> = topics
            .into_iter()
            .map(|(topic, id, partitions)| {
                let named = Struct::new().with("partitions", partitions);
                if version > WITH_NAMES {
                    named.with("topicId", id)
                } else {
                    named.with("topic", topic.to_owned())
                }
            })
            .collect();
        Struct::new()
            .with("maxWaitMs", max_wait_ms)
            .with("minBytes", 1)
            .with("maxBytes", all)
            .with("isolationLevel", 0)
            .with("topics", topics)
    }

    pub(super) fn take_fetch(
        &mut self,
        broker: i32,
        asked: &[FetchedPartition],
        answer: &Struct<'_>,
        bytes: &[u8],
        now: i64,
        works: &mut Vec<Work>,
    ) {
        let mut waiting: BTreeMap<(&TopicPartition, u64), &FetchedPartition> = BTreeMap::new();
        for each in asked {
            waiting.insert((&each.at, each.generation), each);
            if let Some(partition) = self.current(&each.at, each.generation) {
                partition.is_asked = false;
            }
        }
        let error = int(answer, "errorCode");
        if error != 0 {
            let name = error_name(error);
            self.failed(Node::Broker(broker), None, &format!("fetch: {name}"), now);
            return;
        }
        let by_partition: BTreeMap<&TopicPartition, (usize, &FetchedPartition)> = asked
            .iter()
            .enumerate()
            .map(|(slot, each)| (&each.at, (slot, each)))
            .collect();
        // A broker fills an answer in the order of the request: what comes before the first partition with records had all the room.
        let mut first_full = usize::MAX;
        let mut found = Vec::new();
        for topic in structs(answer, "responses") {
            let name = match text(topic, "topic") {
                Some(name) if !name.is_empty() => name,
                _ => {
                    let id = uuid(topic, "topicId");
                    match asked.iter().find(|each| each.topic_id == id) {
                        Some(each) => each.at.topic.clone(),
                        None => continue,
                    }
                }
            };
            for partition in structs(topic, "partitions") {
                let at = TopicPartition {
                    topic: name.clone(),
                    partition: int32(partition, "partitionIndex"),
                };
                let records = partition.get("records").and_then(Value::as_bytes);
                if records.is_some_and(|records| !records.is_empty())
                    && let Some((slot, _)) = by_partition.get(&at)
                {
                    first_full = first_full.min(*slot);
                }
                found.push((at, partition));
            }
        }
        for (at, partition) in found {
            let place = by_partition.get(&at).copied();
            // Nobody asked for this one, or it is twice in the answer.
            let Some((slot, fetched)) = place.and_then(|(slot, each)| {
                Some((slot, waiting.remove(&(&each.at, each.generation))?))
            }) else {
                continue;
            };
            self.take_partition(broker, fetched, partition, bytes, now, works);
            let had_room = if self.options.once {
                first_full == usize::MAX
            } else {
                slot < first_full
            };
            if had_room {
                let is_alone = asked.len() == 1;
                self.take_emptiness(broker, fetched, partition, is_alone, now);
            }
        }
    }

    fn current(&mut self, at: &TopicPartition, generation: u64) -> Option<&mut Partition> {
        let partition = self.partitions.get_mut(at)?;
        (partition.generation == generation).then_some(partition)
    }

    fn take_partition(
        &mut self,
        broker: i32,
        fetched: &FetchedPartition,
        answer: &Struct<'_>,
        bytes: &[u8],
        now: i64,
        works: &mut Vec<Work>,
    ) {
        let error = int(answer, "errorCode");
        if error != 0 {
            self.take_error(broker, &fetched.at, fetched.generation, error, now);
            return;
        }
        if self.is_sent_elsewhere(broker, fetched, answer, now) {
            return;
        }
        let once = self.options.once;
        let options = self.options.clone();
        let look = self.look + 1;
        let Some(partition) = self.current(&fetched.at, fetched.generation) else {
            return;
        };
        let diverging = answer.get("divergingEpoch").and_then(Value::as_struct);
        if let Some(diverging) = diverging
            && let Some(leader) = epoch(diverging, "epoch")
        {
            let end = int_or(diverging, "endOffset", -1).max(0);
            partition.restart(Need::Confirm {
                leader: (Some(leader), end),
                look,
            });
            self.hurry_metadata(now);
            return;
        }
        let high_watermark = int_or(answer, "highWatermark", -1);
        partition.answered(fetched.position, high_watermark, once, now);
        let source_start = int_or(answer, "logStartOffset", -1);
        let start = (source_start >= 0).then_some(source_start);
        let records = answer
            .get("records")
            .and_then(Value::as_bytes)
            .unwrap_or_default();
        let walked = match walk(records, fetched.position, partition.leader_epoch) {
            Ok(walked) => walked,
            Err(bad) => {
                partition.restart(Need::Fetch);
                self.refuse_batches(broker, &fetched.at, fetched.position, &bad.to_string(), now);
                return;
            }
        };
        // The source's log start offset may lie inside a batch: where an empty copy begins, or behind a gap.
        let before = walked
            .first_offset
            .filter(|&first| first < fetched.position);
        if let Some(first) = before
            && first < partition.end
            && !(partition.is_empty() && partition.position == fetched.position)
        {
            let reason = format!(
                "batch at byte 0 of the records: base offset {first} found, {} or more expected",
                fetched.position
            );
            partition.restart(Need::Fetch);
            self.refuse_batches(broker, &fetched.at, fetched.position, &reason, now);
            return;
        }
        let mut has_newer = false;
        if walked.bytes == 0 {
            partition.next_bytes = walked.torn.unwrap_or(0);
            if records.len() >= FRAME_BYTES && walked.torn.is_none() {
                // A batch of a newer leader: the metadata will show it.
                partition.fail(now, |failures| options.backoff(failures));
                has_newer = true;
            }
        } else if let Some(range) = place_of(records.get(..walked.bytes), bytes) {
            partition.next_bytes = 0;
            partition.pending += 1;
            let copy_end = std::mem::replace(&mut partition.copy_end, walked.next_offset);
            partition.position = walked.next_offset;
            partition.position_epoch = walked.leader_epoch.or(partition.position_epoch);
            works.push(Work::Append(Append {
                at: fetched.at.clone(),
                generation: fetched.generation,
                position: fetched.position,
                copy_end,
                records: range,
                walked,
                leader_epoch: partition.leader_epoch,
                is_by_id: fetched.is_by_id,
                broker,
            }));
        }
        if partition.pending == 0 && partition.is_at_its_end() {
            partition.is_done = true;
        }
        partition.is_fresh = false;
        if has_newer {
            self.wait_for_newer(broker, fetched, now);
        } else if walked.bytes == 0 {
            partition.problem = None;
            partition.unexplained = 0;
        }
        let last_stable = int_or(answer, "lastStableOffset", -1);
        self.compare_open(broker, fetched, (last_stable, high_watermark));
        if let Some(start) = start {
            self.take_source_start(broker, &fetched.at, (start, fetched.is_by_id), works);
        }
    }

    /// Looks for transactions that the source ended and the copy has open, if the copy has all that the source has.
    fn compare_open(
        &mut self,
        broker: i32,
        fetched: &FetchedPartition,
        (last_stable, high_watermark): (i64, i64),
    ) {
        let Some(partition) = self.current(&fetched.at, fetched.generation) else {
            return;
        };
        let has_all = partition.pending == 0
            && partition.end == fetched.position
            && partition.end == high_watermark;
        if has_all && !partition.open.is_empty() {
            self.check_open(broker, &fetched.at, last_stable);
        }
    }

    /// Waits for metadata that shows the newer leader of a batch.
    fn wait_for_newer(&mut self, broker: i32, fetched: &FetchedPartition, now: i64) {
        self.hurry_metadata(now);
        let Some(partition) = self.current(&fetched.at, fetched.generation) else {
            return;
        };
        if partition.failures > NEWER_MAX {
            let known = partition.leader_epoch.unwrap_or(-1);
            let message = format!(
                "the batch behind offset {} has a leader epoch above {known}, the one that the source's metadata has",
                fetched.position
            );
            self.trouble(&fetched.at, broker, message);
        }
    }

    /// Whether the leader sends consumers to another replica.
    fn is_sent_elsewhere(
        &mut self,
        broker: i32,
        fetched: &FetchedPartition,
        answer: &Struct<'_>,
        now: i64,
    ) -> bool {
        let other = int_or(answer, "preferredReadReplica", -1);
        if other < 0 {
            return false;
        }
        let options = self.options.clone();
        if let Some(partition) = self.current(&fetched.at, fetched.generation) {
            partition.restart(Need::Fetch);
            partition.fail(now, |failures| options.backoff(failures.saturating_add(3)));
            let message = format!(
                "the source sends consumers of it to broker {other} (replica.selector.class), and a mirror reads from leaders alone"
            );
            self.trouble(&fetched.at, broker, message);
        }
        true
    }

    fn has_been_empty(&self, at: &TopicPartition) -> bool {
        self.partitions
            .get(at)
            .is_some_and(|each| each.empties.is_some())
    }

    /// With `once`: the whole answer is empty, below the target. Compaction may have removed the records, but slow tiered storage answers
    /// the same. So the partition is fetched alone, again, and reported if nothing comes.
    fn take_emptiness(
        &mut self,
        broker: i32,
        fetched: &FetchedPartition,
        answer: &Struct<'_>,
        is_alone: bool,
        now: i64,
    ) {
        if int(answer, "errorCode") != 0 {
            return;
        }
        if !self.options.once {
            self.note_nothing(fetched, answer, now);
            return;
        }
        let high_watermark = int_or(answer, "highWatermark", -1);
        let Some(partition) = self.current(&fetched.at, fetched.generation) else {
            return;
        };
        let Some(target) = partition.target.filter(|&target| {
            partition.need == Need::Fetch
                && partition.position == partition.reached()
                && partition.reached() < target
                && target <= high_watermark
        }) else {
            return;
        };
        let (since, count) = partition.empties.unwrap_or((now, 0));
        let count = count + u32::from(is_alone);
        partition.empties = Some((since, count));
        if count < EMPTY_TIMES || now.saturating_sub(since) < EMPTY_MS {
            return;
        }
        partition.is_done = true;
        partition.empties = None;
        let from = partition.reached();
        self.progressed(now);
        let message = format!(
            "the source has nothing to read from offset {from} to {target}, though its high watermark is {high_watermark}: compaction \
             removed it, or its tiered storage does not answer in time"
        );
        let event = MirrorEvent::of(EventKind::Lost, &fetched.at, message);
        self.tell(event.range(from, target).by(broker));
    }

    /// Without `once`: the answer has nothing of a partition, though there was room, below the high watermark.
    fn note_nothing(&mut self, fetched: &FetchedPartition, answer: &Struct<'_>, now: i64) {
        let below = int_or(answer, "highWatermark", -1);
        let Some(each) = self.current(&fetched.at, fetched.generation) else {
            return;
        };
        let is_short = each.need == Need::Fetch
            && each.pending == 0
            && each.position == fetched.position
            && each.reached() == fetched.position
            && each.reached() < below;
        each.nothing = is_short.then(|| {
            let known = each.nothing.unwrap_or(Nothing {
                since: now,
                count: 0,
                below,
            });
            Nothing {
                count: known.count.saturating_add(1),
                below: known.below.min(below),
                ..known
            }
        });
    }

    /// Refuses batches that are invalid or that nobody asked for: they are fetched again.
    pub(super) fn refuse_batches(
        &mut self,
        broker: i32,
        at: &TopicPartition,
        position: i64,
        reason: &str,
        now: i64,
    ) {
        let options = self.options.clone();
        if let Some(partition) = self.partitions.get_mut(at) {
            partition.fail(now, |failures| options.backoff(failures));
        }
        let message = format!(
            "what the broker sent for offset {position} is refused: {reason}; it is fetched again"
        );
        self.trouble(at, broker, message);
    }

    /// An error instead of an answer about a partition.
    pub(super) fn take_error(
        &mut self,
        broker: i32,
        at: &TopicPartition,
        generation: u64,
        error: i64,
        now: i64,
    ) {
        const OFFSET_OUT_OF_RANGE: i64 = 1;
        let options = self.options.clone();
        let Some(partition) = self.current(at, generation) else {
            return;
        };
        if error == OFFSET_OUT_OF_RANGE && partition.need == Need::Fetch {
            partition.restart(Need::Earliest);
            return;
        }
        partition.restart(Need::Fetch);
        partition.compared = None;
        match error {
            // The leader or the topic has changed, or will: the metadata shows it.
            3 | 5 | 6 | 9 | 56 | 74 | 75 | 78 | 100 | 103 => {
                partition.fail(now, |failures| options.backoff(failures));
                if partition.failures > 10 {
                    let message = format!("the source's broker answers {}", error_name(error));
                    self.trouble(at, broker, message);
                }
                self.hurry_metadata(now);
            }
            _ => {
                partition.fail(now, |failures| options.backoff(failures.saturating_add(3)));
                let message = format!("the source's broker answers {}", error_name(error));
                self.trouble(at, broker, message);
            }
        }
    }
}

/// The position of a part of a response in it.
fn place_of(part: Option<&[u8]>, whole: &[u8]) -> Option<std::ops::Range<usize>> {
    let part = part?;
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}
