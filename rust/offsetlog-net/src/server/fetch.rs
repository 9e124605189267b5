//! Fetch: batches as stored in the files, with long polling and sessions.
//!
//! Source: Kafka's `ReplicaManager.readFromLog`, `Partition.readRecords` and `DelayedFetch`.

use super::broker::{Asked, Broker, lock};
use super::catalog::{Catalog, Slot};
use super::fetch_sessions::{Key, Plan, Told, Wanted};
use super::options::Event;
use super::partition::{Bounds, Partition, code_of};
use super::reply::reply_in;
use super::request::{elements, id, int, long, structs, text};
use crate::error_code::ErrorCode;
use crate::step::Step;
use offsetlog::format::Uuid;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::Api;
use offsetlog::{AbortedTransaction, FileRange, Isolation, RangeOptions};
use std::collections::HashMap;
use std::sync::Arc;

/// A fetch is tried this many times if other leaders write meanwhile. A retry is rare: it takes a truncation within milliseconds.
const TURNS_MAX: usize = 3;
/// The first version that can say where logs diverge.
const FIRST_DIVERGING: i16 = 12;

/// A fetch until it is answered.
#[derive(Debug)]
pub(super) struct FetchJob {
    api: &'static Api,
    version: i16,
    correlation_id: i32,
    /// When it is answered with whatever there is.
    pub(super) until_ms: i64,
    min_bytes: i64,
    max_bytes: u64,
    isolation: Isolation,
    is_replica: bool,
    plan: Plan,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    wanted: Wanted,
    /// What is to be read, or why it is not.
    found: Result<Arc<Partition>, ErrorCode>,
}

/// What was read of a partition.
#[derive(Debug)]
struct Read {
    error: ErrorCode,
    high_watermark: i64,
    last_stable: i64,
    log_start: i64,
    diverging: Option<(i32, i64)>,
    aborted: Option<Vec<AbortedTransaction>>,
    records: Option<FileRange>,
}

impl Read {
    /// An error. If reading failed, Kafka sends no list of aborted transactions, otherwise an empty one.
    const fn failed(error: ErrorCode, aborted: Option<Vec<AbortedTransaction>>) -> Self {
        Self {
            error,
            high_watermark: -1,
            last_stable: -1,
            log_start: -1,
            diverging: None,
            aborted,
            records: None,
        }
    }

    fn bytes(&self) -> u64 {
        self.records.as_ref().map_or(0, |range| range.length)
    }

    fn told(&self) -> Told {
        Told {
            has_records: self.bytes() > 0,
            high_watermark: self.high_watermark,
            log_start: self.log_start,
            is_error: self.error != ErrorCode::None,
            is_diverging: self.diverging.is_some(),
        }
    }
}

impl FetchJob {
    /// The partitions that it reads.
    pub(super) fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.parts
            .iter()
            .filter_map(|part| part.found.as_ref().ok())
    }
}

impl Broker {
    /// Takes a request, or answers it at once with an error.
    pub(super) fn fetch(&self, asked: &Asked<'_>, request: &Struct<'_>) -> Result<FetchJob, Step> {
        let uses_ids = asked.version >= 13;
        let wanted = wanted(request);
        let forgotten: Vec<Key> = structs(request, "forgottenTopicsData")
            .flat_map(|topic| {
                let name: Arc<str> = text(topic, "topic").unwrap_or_default().into();
                let id = id(topic, "topicId").to_bytes();
                elements(topic, "partitions")
                    .iter()
                    .filter_map(Value::as_int)
                    .filter_map(|number| i32::try_from(number).ok())
                    .map(move |number| (Arc::clone(&name), id, number))
            })
            .collect();
        let session = (
            int(request, "sessionId", 0),
            int(request, "sessionEpoch", -1),
        );
        let taken = lock(&self.sessions).take(session, uses_ids, wanted, &forgotten, asked.now_ms);
        let (plan, wanted) = taken.map_err(|code| {
            let (api, version) = (asked.api, asked.version);
            refuse(api, version, asked.correlation_id, code)
        })?;
        let catalog = self.catalog();
        let parts: Vec<Part> = wanted
            .into_iter()
            .map(|wanted| Part {
                found: find(&catalog, &wanted, uses_ids),
                wanted,
            })
            .collect();
        let replica = request.get("replicaState").and_then(Value::as_struct);
        let replica_id = match replica {
            Some(state) => int(state, "replicaId", -1),
            None => int(request, "replicaId", -1),
        };
        let max_wait_ms = int(request, "maxWaitMs", 0).max(0);
        let max_bytes = int(request, "maxBytes", i32::MAX).min(self.options.fetch_max_bytes);
        Ok(FetchJob {
            api: asked.api,
            version: asked.version,
            correlation_id: asked.correlation_id,
            until_ms: asked.now_ms.saturating_add(i64::from(max_wait_ms)),
            min_bytes: long(request, "minBytes", 0),
            max_bytes: u64::try_from(max_bytes).unwrap_or(0),
            isolation: match int(request, "isolationLevel", 0) {
                1 => Isolation::ReadCommitted,
                _ => Isolation::ReadUncommitted,
            },
            is_replica: replica_id >= 0,
            plan,
            parts,
        })
    }

    /// Reads, and answers if there is enough, an error, or no more time.
    pub(super) fn try_fetch(&self, job: &FetchJob, now_ms: i64) -> Option<Step> {
        let mut left = job.max_bytes;
        let mut has_first = false;
        let mut is_due = now_ms >= job.until_ms || job.parts.is_empty();
        let mut bytes = 0_u64;
        let mut reads = Vec::new();
        // Partitions may have come, or been removed or replaced.
        let catalog = self.catalog();
        for part in &job.parts {
            let read = self.read_part(job, part, &catalog, (left, !has_first), now_ms);
            let length = read.bytes();
            has_first |= length > 0;
            left = left.saturating_sub(length);
            bytes = bytes.saturating_add(length);
            is_due |= read.error != ErrorCode::None || read.diverging.is_some();
            reads.push(read);
        }
        let is_enough = i64::try_from(bytes).unwrap_or(i64::MAX) >= job.min_bytes;
        (is_due || is_enough).then(|| self.answer(job, reads, now_ms))
    }

    fn read_part(
        &self,
        job: &FetchJob,
        part: &Part,
        catalog: &Catalog,
        (left, min_one): (u64, bool),
        now_ms: i64,
    ) -> Read {
        let found = find(catalog, &part.wanted, job.version >= 13);
        let partition = match found {
            Ok(_) if job.is_replica => {
                return Read::failed(ErrorCode::NotLeaderOrFollower, None);
            }
            Ok(partition) => partition,
            Err(code) => return Read::failed(code, Some(Vec::new())),
        };
        let limit = u64::try_from(part.wanted.max_bytes).unwrap_or(0).min(left);
        match self.read(job, &part.wanted, &partition, (limit, min_one), now_ms) {
            Ok(read) => read,
            Err(code) => Read::failed(code, None),
        }
    }

    fn read(
        &self,
        job: &FetchJob,
        wanted: &Wanted,
        partition: &Partition,
        (max_bytes, min_one): (u64, bool),
        now_ms: i64,
    ) -> Result<Read, ErrorCode> {
        let offset = wanted.offset;
        if partition.is_damaged_at(offset, now_ms) {
            return Err(ErrorCode::CorruptMessage);
        }
        let failed = |error: &offsetlog::Error| {
            let code = code_of(error);
            self.tell_failure(partition, offset, error, code, now_ms);
            code
        };
        let bounds_now = || partition.bounds().map_err(|error| failed(&error));
        let mut bounds = bounds_now()?;
        let mut turns = 0;
        let (diverging, found) = loop {
            turns += 1;
            bounds.fence(wanted.current_epoch)?;
            let diverging = diverging(&bounds, wanted)?;
            if diverging.is_none() && (bounds.start..bounds.first_here).contains(&offset) {
                let reason = bounds.missing_start().unwrap_or_default();
                self.tell_damage(partition, bounds.start, reason, now_ms);
                return Err(ErrorCode::CorruptMessage);
            }
            let found = self
                .with_outcome(partition, |outcome| {
                    let at = if diverging.is_some() {
                        bounds.first_here
                    } else {
                        offset
                    };
                    let options = RangeOptions {
                        max_bytes: if diverging.is_some() { 0 } else { max_bytes },
                        min_one: min_one && diverging.is_none(),
                        isolation: job.isolation,
                        stop: bounds.stop,
                        outcome,
                    };
                    partition.log.fetch_range(at, &options)
                })
                .map_err(|error| failed(&error))?;
            if found.records.is_none() {
                break (diverging, found);
            }
            // Records of other epochs than those that were compared: the log was truncated and grew again meanwhile.
            let after = bounds_now()?;
            if after.has_epochs_of(&bounds) {
                break (diverging, found);
            }
            if turns == TURNS_MAX {
                // The leader is no longer the one that was read. Every client then refreshes its metadata and fetches again:
                // FENCED_LEADER_EPOCH is for clients that send an epoch, and older ones take it for a bug.
                return Err(ErrorCode::NotLeaderOrFollower);
            }
            bounds = after;
        };
        Ok(Read {
            error: ErrorCode::None,
            high_watermark: found.log_end_offset,
            last_stable: found.last_stable_offset,
            log_start: if bounds.start < bounds.first_here {
                bounds.start
            } else {
                found.log_start_offset
            },
            diverging,
            aborted: (job.isolation == Isolation::ReadCommitted && diverging.is_none())
                .then_some(found.aborted),
            records: found.records,
        })
    }

    fn tell_failure(
        &self,
        partition: &Partition,
        offset: i64,
        error: &offsetlog::Error,
        code: ErrorCode,
        now_ms: i64,
    ) {
        let (topic, number) = (partition.topic.clone(), partition.number);
        let reason = error.to_string();
        match code {
            ErrorCode::CorruptMessage => self.tell_damage(partition, offset, reason, now_ms),
            ErrorCode::OffsetOutOfRange => {}
            _ => self.options.tell(&Event::Failed {
                topic,
                partition: number,
                reason,
            }),
        }
    }

    /// Reports damage that a fetch has found, once for each place.
    fn tell_damage(&self, partition: &Partition, offset: i64, reason: String, now_ms: i64) {
        if partition.found_damage(offset, now_ms) {
            self.options.tell(&Event::Damage {
                topic: partition.topic.clone(),
                partition: partition.number,
                offset,
                reason,
            });
        }
    }

    fn answer(&self, job: &FetchJob, reads: Vec<Read>, now_ms: i64) -> Step {
        let told: Vec<(Wanted, Told)> = job
            .parts
            .iter()
            .zip(&reads)
            .map(|(part, read)| (part.wanted.clone(), read.told()))
            .collect();
        let answered = lock(&self.sessions).answered(job.plan, &told, now_ms);
        let (session_id, is_told) = match answered {
            Ok(answered) => answered,
            Err(code) => return refuse(job.api, job.version, job.correlation_id, code),
        };
        if job.version < FIRST_DIVERGING && reads.iter().any(|read| read.diverging.is_some()) {
            // Only a session that a request of a newer version began asks for it.
            let answer = Struct::new()
                .with("errorCode", ErrorCode::UnsupportedVersion)
                .with("sessionId", session_id);
            return reply_in(
                job.api,
                job.version,
                job.correlation_id,
                &answer,
                Vec::new(),
            );
        }
        let mut topics: Vec<(&str, Uuid, Vec<Struct<'static>>)> = Vec::new();
        let mut ranges = Vec::new();
        for ((part, read), is_told) in job.parts.iter().zip(reads).zip(is_told) {
            if !is_told {
                continue;
            }
            let (name, id) = (&*part.wanted.topic, part.wanted.topic_id);
            let answer = partition_data(&part.wanted, &read);
            ranges.extend(read.records);
            match topics.last_mut() {
                Some((last, last_id, partitions))
                    if *last_id == id && (std::ptr::eq(*last, name) || *last == name) =>
                {
                    partitions.push(answer);
                }
                _ => topics.push((name, id, vec![answer])),
            }
        }
        let responses: Vec<Struct<'_>> = topics
            .into_iter()
            .map(|(name, id, partitions)| {
                let topic = Struct::new().with("partitions", partitions);
                if job.version >= 13 {
                    topic.with("topicId", id)
                } else {
                    topic.with("topic", name)
                }
            })
            .collect();
        let answer = Struct::new()
            .with("sessionId", session_id)
            .with("responses", responses);
        reply_in(job.api, job.version, job.correlation_id, &answer, ranges)
    }
}

/// The partitions of a request. A repeated one is read once: at its first place, with its last parameters, as in Kafka.
fn wanted(request: &Struct<'_>) -> Vec<Wanted> {
    type Topic<'r> = (&'r str, [u8; 16]);
    let mut topics: HashMap<Topic<'_>, (usize, Arc<str>)> = HashMap::new();
    let mut places: HashMap<(usize, i32), usize> = HashMap::new();
    let mut all: Vec<Wanted> = Vec::new();
    for topic in structs(request, "topics") {
        let name = text(topic, "topic").unwrap_or_default();
        let topic_id = id(topic, "topicId");
        let number = topics.len();
        let (number, name) = topics
            .entry((name, topic_id.to_bytes()))
            .or_insert_with(|| (number, name.into()));
        for each in structs(topic, "partitions") {
            let wanted = Wanted {
                topic: Arc::clone(name),
                topic_id,
                partition: int(each, "partition", -1),
                offset: long(each, "fetchOffset", -1),
                current_epoch: int(each, "currentLeaderEpoch", -1),
                last_fetched_epoch: int(each, "lastFetchedEpoch", -1),
                max_bytes: int(each, "partitionMaxBytes", 0),
            };
            let place = places.entry((*number, wanted.partition));
            let place = *place.or_insert(all.len());
            match all.get_mut(place) {
                Some(known) => *known = wanted,
                None => all.push(wanted),
            }
        }
    }
    all
}

/// An answer that has nothing but an error.
fn refuse(api: &'static Api, version: i16, correlation_id: i32, code: ErrorCode) -> Step {
    let answer = Struct::new().with("errorCode", code);
    reply_in(api, version, correlation_id, &answer, Vec::new())
}

fn find(catalog: &Catalog, wanted: &Wanted, by_id: bool) -> Result<Arc<Partition>, ErrorCode> {
    let topic = if by_id {
        catalog
            .topic_of_id(wanted.topic_id)
            .ok_or(ErrorCode::UnknownTopicId)?
    } else {
        catalog
            .topic(&wanted.topic)
            .ok_or(ErrorCode::UnknownTopicOrPartition)?
    };
    let slot = topic.slots.get(&wanted.partition);
    let slot = slot.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    Slot::partition(slot)
        .cloned()
        .ok_or(ErrorCode::NotLeaderOrFollower)
}

/// Where the log of a client that last read `last_fetched_epoch` diverges from this one.
fn diverging(bounds: &Bounds, wanted: &Wanted) -> Result<Option<(i32, i64)>, ErrorCode> {
    let asked = wanted.last_fetched_epoch;
    if asked < 0 {
        return Ok(None);
    }
    let (epoch, end) = bounds.end_of_epoch(asked)?;
    if epoch < 0 || end < 0 {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    // Kafka looks at the log start first, whether epochs part or not.
    if wanted.offset < bounds.start {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    Ok((epoch < asked || end < wanted.offset).then_some((epoch, end)))
}

fn partition_data(wanted: &Wanted, read: &Read) -> Struct<'static> {
    let aborted: Value<'static> = match &read.aborted {
        None => Value::Null,
        Some(aborted) => aborted
            .iter()
            .map(|aborted| {
                Struct::new()
                    .with("producerId", aborted.producer_id)
                    .with("firstOffset", aborted.first_offset)
            })
            .collect::<Vec<_>>()
            .into(),
    };
    // Null records end Java 2.8's consumers; no records are empty.
    let records = match &read.records {
        Some(range) => Value::Records(usize::try_from(range.length).unwrap_or(usize::MAX)),
        None => Value::Bytes(Vec::new().into()),
    };
    let mut answer = Struct::new()
        .with("partitionIndex", wanted.partition)
        .with("errorCode", read.error)
        .with("highWatermark", read.high_watermark)
        .with("lastStableOffset", read.last_stable)
        .with("logStartOffset", read.log_start)
        .with("abortedTransactions", aborted)
        .with("records", records);
    if let Some((epoch, end)) = read.diverging {
        let diverging = Struct::new().with("epoch", epoch).with("endOffset", end);
        answer.set("divergingEpoch", diverging);
    }
    answer
}
