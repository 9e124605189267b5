//! A model of a cluster: what leaders answer, by the rules of Kafka's `Partition.readRecords` and `LeaderEpochFileCache`, without any of
//! its code. Random events happen to it.
//!
//! over 600 lines: one cluster, whose leaders, logs and answers change together.

use super::coordination::{Coordination, NOT_COORDINATOR, OFFSETS_TOPIC};
use crate::mirror::core::{Node, Request, Versions};
use offsetlog::format::batch::BatchHeader;
use offsetlog::format::builder::{BatchFields, NewRecord, Uncompressed, write_batch};
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis::{
    DESCRIBE_CONFIGS, FETCH, LIST_GROUPS, LIST_OFFSETS, METADATA, OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
};
use offsetlog::format::{Attributes, Codec, Uuid};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const BROKERS: [i32; 3] = [1, 2, 3];

/// Splitmix64.
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

#[derive(Debug, Clone)]
pub(super) struct ModelBatch {
    pub(super) base: i64,
    pub(super) last: i64,
    pub(super) bytes: Vec<u8>,
    /// False once compaction removed it.
    pub(super) is_there: bool,
    /// A leader removed it, and a later one has it: who followed the first does not.
    pub(super) was_removed: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ModelPartition {
    pub(super) leader: i32,
    pub(super) epoch: i32,
    /// The leader's history; what retention removed stays in it.
    pub(super) log: Vec<ModelBatch>,
    pub(super) start: i64,
    pub(super) high_watermark: i64,
    /// What the leader says: behind, after it became leader.
    pub(super) told: i64,
    pub(super) epochs: Vec<(i32, i64)>,
}

impl ModelPartition {
    pub(super) fn end(&self) -> i64 {
        self.log.last().map_or(0, |batch| batch.last + 1)
    }

    fn end_of(&self, epoch: i32) -> Option<(i32, i64)> {
        let &(latest, _) = self.epochs.last()?;
        let &(first, first_start) = self.epochs.first()?;
        if epoch == latest {
            return Some((epoch, self.end()));
        }
        if epoch > latest {
            return None;
        }
        if epoch < first {
            return Some((epoch, first_start));
        }
        let next = self
            .epochs
            .iter()
            .position(|&(each, _)| each > epoch)
            .unwrap();
        Some((self.epochs[next - 1].0, self.epochs[next].1))
    }

    /// The leader knows its transactions, whatever its cleaner has removed. One producer has them all.
    fn last_stable(&self) -> i64 {
        let mut open = None;
        for batch in self.log.iter().filter(|batch| batch.last < self.told) {
            let attributes = BatchHeader::parse(&batch.bytes).unwrap().attributes;
            if attributes.is_control() {
                open = None;
            } else if attributes.is_transactional() {
                open = open.or(Some(batch.base));
            }
        }
        open.unwrap_or(self.told)
    }

    pub(super) fn lead(&mut self, leader: i32) {
        self.leader = leader;
        self.epoch += 1;
        let end = self.end();
        self.epochs.retain(|&(_, start)| start < end);
        self.epochs.push((self.epoch, end));
    }
}

#[derive(Debug, Clone)]
pub(super) struct ModelTopic {
    pub(super) id: Uuid,
    pub(super) partitions: Vec<ModelPartition>,
    pub(super) config: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) topics: BTreeMap<String, ModelTopic>,
    pub(super) commits: BTreeMap<(String, String, i32), i64>,
    /// Groups whose type is told, also those without committed offsets.
    pub(super) group_types: BTreeMap<String, &'static str>,
    pub(super) versions: Versions,
    pub(super) random: Random,
    /// What was truncated or belongs to a deleted topic.
    pub(super) gone: Vec<Vec<u8>>,
    pub(super) recreated: Vec<String>,
    /// Topics that no look shows.
    pub(super) hidden: BTreeSet<String>,
    /// Topics whose fetches are empty.
    pub(super) silent: BTreeSet<String>,
    /// Topics whose log is damaged from an offset on, as the leader knows.
    pub(super) corrupt: BTreeMap<String, i64>,
    /// Topics whose batches arrive damaged.
    pub(super) damaged: BTreeSet<String>,
    /// What `DescribeConfigs` answers for each topic.
    pub(super) configs_error: i16,
    /// What `ListGroups` answers.
    pub(super) groups_error: i16,
    /// What `OffsetFetch` answers for each group; without an error code it leaves the group out.
    #[allow(clippy::option_option)]
    pub(super) offsets_error: Option<Option<i16>>,
    /// Where the groups' offsets are, if it tells.
    pub(super) coordination: Option<Coordination>,
    made: u64,
    /// Whether topics are deleted and recreated again and again.
    pub(super) deletes: bool,
}

impl Model {
    pub(super) fn new(seed: u64, is_old: bool) -> Self {
        let fetch = if is_old { 11 } else { 17 };
        let versions = [
            (FETCH.key, (4, fetch)),
            (LIST_OFFSETS.key, (1, if is_old { 5 } else { 10 })),
            (METADATA.key, (0, if is_old { 9 } else { 13 })),
            (DESCRIBE_CONFIGS.key, (1, 4)),
            (LIST_GROUPS.key, (0, if is_old { 2 } else { 5 })),
            (OFFSET_FETCH.key, (1, if is_old { 5 } else { 9 })),
            (OFFSET_FOR_LEADER_EPOCH.key, (2, 4)),
        ];
        let mut model = Self {
            topics: BTreeMap::new(),
            commits: BTreeMap::new(),
            group_types: BTreeMap::new(),
            versions: versions.into_iter().collect(),
            random: Random(seed),
            gone: Vec::new(),
            recreated: Vec::new(),
            hidden: BTreeSet::new(),
            silent: BTreeSet::new(),
            corrupt: BTreeMap::new(),
            damaged: BTreeSet::new(),
            configs_error: 0,
            groups_error: 0,
            offsets_error: None,
            coordination: None,
            made: 0,
            deletes: false,
        };
        for name in ["orders", "audit.log", "recreated"] {
            model.make(name, 2);
        }
        model
    }

    fn is_old(&self) -> bool {
        self.versions[&FETCH.key].1 < 12
    }

    pub(super) fn make(&mut self, name: &str, partitions: usize) {
        let mut id = [0; 16];
        if !self.is_old() {
            id[..8].copy_from_slice(&self.random.next().to_be_bytes());
            id[8..].copy_from_slice(&self.random.next().to_be_bytes());
        }
        let partitions = (0..partitions).map(|_| self.partition()).collect();
        let topic = ModelTopic {
            id: Uuid::from_bytes(id),
            partitions,
            config: BTreeMap::new(),
        };
        self.delete(name);
        self.topics.insert(name.to_owned(), topic);
    }

    /// Deletes a topic, and as its coordinators do, the offsets that groups committed in it.
    pub(super) fn delete(&mut self, name: &str) {
        if let Some(topic) = self.topics.remove(name) {
            let batches = topic.partitions.into_iter().flat_map(|each| each.log);
            self.gone.extend(batches.map(|batch| batch.bytes));
        }
        if self.deletes {
            self.commits.retain(|(_, topic, _), _| topic != name);
        }
    }

    fn partition(&mut self) -> ModelPartition {
        ModelPartition {
            leader: BROKERS[self.random.below(3)],
            epochs: vec![(0, 0)],
            ..ModelPartition::default()
        }
    }

    /// Everything that was appended is committed, and all leaders say so.
    pub(super) fn settle(&mut self) {
        for topic in self.topics.values_mut() {
            for partition in &mut topic.partitions {
                partition.high_watermark = partition.end();
                partition.told = partition.end();
            }
        }
    }

    /// Something happens.
    pub(super) fn event(&mut self, is_hard: bool) {
        let names: Vec<String> = self.topics.keys().cloned().collect();
        let name = names[self.random.below(names.len())].clone();
        let count = self.topics[&name].partitions.len();
        let number = self.random.below(count);
        match self.random.below(if is_hard { 24 } else { 12 }) {
            0..=6 => self.append(&name, number),
            7..=9 => {
                let committed = self.random.below(2) == 0;
                let partition = self.partition_of(&name, number);
                let end = partition.end();
                if committed {
                    partition.high_watermark = end;
                }
                partition.told = partition.high_watermark;
            }
            10 => self.commit(&name, number),
            11 => {
                let value = (self.random.below(5) * 1000 + 86_400_000).to_string();
                let topic = self.topics.get_mut(&name).unwrap();
                topic.config.insert("retention.ms".to_owned(), value);
            }
            12 | 13 => self.elect(&name, number, false),
            14 | 15 => self.elect(&name, number, true),
            16 | 17 => self.retain(&name, number),
            18 | 19 => self.compact(&name, number),
            20 => {
                if count < 4 {
                    let partition = self.partition();
                    self.topics
                        .get_mut(&name)
                        .unwrap()
                        .partitions
                        .push(partition);
                }
            }
            21 => {
                if self.topics.len() < 5 {
                    let name = format!("new{}", self.topics.len());
                    self.make(&name, 1);
                }
            }
            // One stays: a source that shows nothing of what was copied is not followed.
            22 if self.deletes && name != "audit.log" && self.random.one_in(4) => {
                self.make(&name, count);
            }
            23 if self.deletes && name != "audit.log" && self.random.one_in(4) => {
                self.delete(&name);
            }
            22 if !self.deletes
                && name == "recreated"
                && self.recreated.is_empty()
                && !self.is_old() =>
            {
                self.recreated.push(name.clone());
                self.make(&name, 2);
            }
            _ => self.append(&name, number),
        }
    }

    pub(super) fn partition_of(&mut self, name: &str, number: usize) -> &mut ModelPartition {
        &mut self.topics.get_mut(name).unwrap().partitions[number]
    }

    pub(super) fn append(&mut self, name: &str, number: usize) {
        for _ in 0..=self.random.below(4) {
            let value = self.random.below(300);
            let records = 1 + self.random.below(3) as i64;
            let is_transactional = self.random.one_in(4);
            let is_marker = self.random.one_in(8);
            self.append_one(name, number, (value, records), is_transactional, is_marker);
        }
    }

    /// One batch with `records` of `value` bytes. A marker aborts.
    pub(super) fn append_one(
        &mut self,
        name: &str,
        number: usize,
        (value, records): (usize, i64),
        is_transactional: bool,
        is_marker: bool,
    ) {
        self.made += 1;
        let made = self.made.to_string();
        let value = vec![b'v'; value];
        let partition = self.partition_of(name, number);
        let base = partition.end();
        let epoch = partition.epoch;
        let mut attributes = Attributes::new(Codec::None, false);
        if is_transactional || is_marker {
            attributes = attributes.transactional();
        }
        let marker: ([u8; 4], [u8; 6]) = ([0, 0, 0, 0], [0, 0, 0, 0, 0, 7]);
        let records: Vec<NewRecord<'_>> = (0..if is_marker { 1 } else { records })
            .map(|at| NewRecord {
                offset: base + at,
                timestamp: 1_700_000_000_000 + base,
                key: Some(if is_marker {
                    &marker.0
                } else {
                    made.as_bytes()
                }),
                value: Some(if is_marker { &marker.1 } else { &value }),
                headers: &[],
            })
            .collect();
        if is_marker {
            attributes = attributes.control();
        }
        let fields = BatchFields {
            base_offset: base,
            leader_epoch: epoch,
            attributes,
            producer_id: if is_transactional || is_marker { 7 } else { -1 },
            producer_epoch: if is_transactional || is_marker { 0 } else { -1 },
            base_sequence: if is_transactional && !is_marker {
                (base & 0xffff) as i32
            } else {
                -1
            },
            ..BatchFields::default()
        };
        let mut bytes = Vec::new();
        let mut scratch = Vec::new();
        let done = write_batch(
            &mut bytes,
            &fields,
            &records,
            &mut Uncompressed,
            &mut scratch,
        );
        done.unwrap();
        partition.log.push(ModelBatch {
            base,
            last: base + records.len() as i64 - 1,
            bytes,
            is_there: true,
            was_removed: false,
        });
    }

    pub(super) fn elect(&mut self, name: &str, number: usize, is_unclean: bool) {
        let leader = BROKERS[self.random.below(3)];
        let draw = self.random.next();
        let back = self.random.below(40) as i64;
        let partition = self.partition_of(name, number);
        let lowest = if is_unclean {
            partition.start
        } else {
            partition.high_watermark
        };
        let keep_from = partition
            .log
            .iter()
            .filter(|batch| batch.base < lowest)
            .count();
        let removable = partition.log.len() - keep_from;
        let keep = keep_from + (draw % (removable as u64 + 1)) as usize;
        // Compaction never removes what is last in a leader's log.
        while partition.log[..keep]
            .last()
            .is_some_and(|batch| !batch.is_there)
        {
            partition.log[keep - 1].is_there = true;
            partition.log[keep - 1].was_removed = true;
        }
        let gone: Vec<Vec<u8>> = partition
            .log
            .drain(keep..)
            .map(|batch| batch.bytes)
            .collect();
        partition.lead(leader);
        partition.high_watermark = partition.high_watermark.min(partition.end());
        partition.told = (partition.high_watermark - back).max(partition.start);
        partition.start = partition.start.min(partition.end());
        self.gone.extend(gone);
    }

    fn retain(&mut self, name: &str, number: usize) {
        let draw = self.random.next();
        let partition = self.partition_of(name, number);
        let room = partition.high_watermark - partition.start;
        if room > 0 {
            partition.start += (draw % (room as u64 + 1)) as i64;
        }
        let start = partition.start;
        // The epoch that holds at the start stays, and begins there.
        let floor = partition
            .epochs
            .iter()
            .rposition(|&(_, from)| from <= start);
        if let Some(floor) = floor {
            partition.epochs.drain(..floor);
            partition.epochs[0].1 = start.max(partition.epochs[0].1);
        }
        partition.told = partition.told.max(partition.start);
    }

    fn compact(&mut self, name: &str, number: usize) {
        let mut draw = self.random.clone();
        self.random.next();
        let partition = self.partition_of(name, number);
        let below = partition.high_watermark;
        let count = partition.log.len();
        for batch in partition.log.iter_mut().take(count.saturating_sub(1)) {
            if batch.last < below && draw.one_in(4) {
                batch.is_there = false;
            }
        }
    }

    fn commit(&mut self, name: &str, number: usize) {
        let group = format!("group-{}", self.random.below(3));
        let draw = self.random.next();
        let partition = &self.topics[name].partitions[number];
        let offset = (draw % (partition.high_watermark as u64 + 1)) as i64;
        self.commits
            .insert((group, name.to_owned(), number as i32), offset);
    }

    /// The bytes of the answer's body.
    pub(super) fn answer(&mut self, node: Node, request: &Request) -> Vec<u8> {
        let mut records = Vec::new();
        let answer = match request.api.name {
            "Metadata" => self.metadata(&request.body),
            "DescribeConfigs" => self.configs(&request.body),
            "Fetch" => self.fetch(node, request, &mut records),
            "ListOffsets" => self.list_offsets(node, &request.body),
            "OffsetForLeaderEpoch" => self.epochs(node, &request.body),
            "ListGroups" => self.groups(node),
            "OffsetFetch" => self.offsets(node, request),
            other => panic!("{other} is not expected"),
        };
        // The request must be one that can be written, and read.
        let mut written = Vec::new();
        let version = request.version;
        request
            .api
            .request
            .write(version, &request.body, &mut written)
            .unwrap();
        let mut out = Vec::new();
        let holes = request
            .api
            .response
            .write(version, &answer, &mut out)
            .unwrap();
        let mut whole = Vec::new();
        let mut from = 0;
        for (hole, bytes) in holes.iter().zip(records) {
            assert_eq!(hole.bytes, bytes.len());
            whole.extend_from_slice(&out[from..hole.at]);
            whole.extend_from_slice(&bytes);
            from = hole.at;
        }
        whole.extend_from_slice(&out[from..]);
        whole
    }

    fn metadata(&self, request: &Struct<'_>) -> Struct<'static> {
        let brokers: Vec<Struct<'static>> = BROKERS
            .iter()
            .map(|&id| {
                Struct::new()
                    .with("nodeId", id)
                    .with("host", "h")
                    .with("port", 9092 + id)
            })
            .collect();
        let wanted: Option<Vec<String>> =
            request.get("topics").and_then(Value::as_array).map(|all| {
                let names = all.iter().filter_map(Value::as_struct);
                names
                    .map(|topic| topic.get("name").unwrap().as_str().unwrap().to_owned())
                    .collect()
            });
        let is_old = self.is_old();
        // Brokers before 2.8 create it then.
        let asks_for_internal = wanted.iter().flatten().any(|name| name == OFFSETS_TOPIC);
        assert!(!(is_old && asks_for_internal));
        let is_shown = |name: &&String| !self.hidden.contains(*name);
        let shown = self.topics.keys().filter(is_shown).cloned();
        let mut names = wanted.unwrap_or_else(|| {
            let internal = self.coordination.iter().map(|_| OFFSETS_TOPIC.to_owned());
            shown.chain(internal).collect()
        });
        let internal = self.coordination.as_ref().map(Coordination::topic);
        let internal = internal.filter(|_| names.iter().any(|name| name == OFFSETS_TOPIC));
        names.retain(|name| internal.is_none() || name != OFFSETS_TOPIC);
        let topics: Vec<Struct<'static>> = names
            .into_iter()
            .map(|name| {
                let Some(topic) = self.topics.get(&name).filter(|_| is_shown(&&name)) else {
                    return Struct::new().with("errorCode", 3).with("name", name);
                };
                let partitions: Vec<Struct<'static>> = topic
                    .partitions
                    .iter()
                    .enumerate()
                    .map(|(number, partition)| {
                        Struct::new()
                            .with("partitionIndex", number as i32)
                            .with("leaderId", partition.leader)
                            .with("leaderEpoch", partition.epoch)
                    })
                    .collect();
                let mut answer = Struct::new()
                    .with("name", name)
                    .with("partitions", partitions);
                if !is_old {
                    answer = answer.with("topicId", topic.id);
                }
                answer
            })
            .chain(internal)
            .collect();
        Struct::new()
            .with("brokers", brokers)
            .with("clusterId", "model")
            .with("topics", topics)
    }

    fn configs(&self, request: &Struct<'_>) -> Struct<'static> {
        let wanted = request.get("resources").and_then(Value::as_array).unwrap();
        let results: Vec<Struct<'static>> = wanted
            .iter()
            .filter_map(Value::as_struct)
            .map(|resource| {
                let name = resource
                    .get("resourceName")
                    .unwrap()
                    .as_str()
                    .unwrap()
                    .to_owned();
                let result = Struct::new()
                    .with("resourceType", 2)
                    .with("resourceName", name.clone());
                let Some(topic) = self.topics.get(&name) else {
                    return result.with("errorCode", 3);
                };
                if self.configs_error != 0 {
                    return result.with("errorCode", self.configs_error);
                }
                let own = topic
                    .config
                    .iter()
                    .map(|(key, value)| (key.as_str(), value.as_str(), 1));
                let configs: Vec<Struct<'static>> = own
                    .chain([("segment.bytes", "1048576", 5)])
                    .map(|(key, value, source)| {
                        Struct::new()
                            .with("name", key.to_owned())
                            .with("value", value.to_owned())
                            .with("configSource", source)
                    })
                    .collect();
                result.with("configs", configs)
            })
            .collect();
        Struct::new().with("results", results)
    }

    fn find(
        &self,
        node: Node,
        topic: &Struct<'_>,
        partition: &Struct<'_>,
        names: (&str, &str),
    ) -> Result<(String, usize), i64> {
        let number = partition.get(names.1).unwrap().as_int().unwrap() as usize;
        let id = topic.get("topicId").and_then(Value::as_uuid);
        let name = match id.filter(|id| !id.is_zero()) {
            Some(id) => self
                .topics
                .iter()
                .find(|(_, each)| each.id == id)
                .map(|(name, _)| name.clone())
                .ok_or(100)?,
            None => topic.get(names.0).unwrap().as_str().unwrap().to_owned(),
        };
        let found = self
            .topics
            .get(&name)
            .and_then(|topic| topic.partitions.get(number))
            .ok_or(3)?;
        if Node::Broker(found.leader) != node {
            return Err(6);
        }
        let epoch = partition
            .get("currentLeaderEpoch")
            .and_then(Value::as_int)
            .unwrap_or(-1);
        match epoch {
            epoch if epoch >= 0 && epoch < i64::from(found.epoch) => Err(74),
            epoch if epoch > i64::from(found.epoch) => Err(75),
            _ => Ok((name, number)),
        }
    }

    fn fetch(
        &mut self,
        node: Node,
        request: &Request,
        records: &mut Vec<Vec<u8>>,
    ) -> Struct<'static> {
        let mut room = request.body.get("maxBytes").unwrap().as_int().unwrap() as usize;
        let mut is_first = true;
        let topics = request
            .body
            .get("topics")
            .and_then(Value::as_array)
            .unwrap();
        let mut responses = Vec::new();
        for topic in topics.iter().filter_map(Value::as_struct) {
            let mut partitions: Vec<Struct<'static>> = Vec::new();
            for asked in topic
                .get("partitions")
                .and_then(Value::as_array)
                .unwrap()
                .iter()
                .filter_map(Value::as_struct)
            {
                let number = asked.get("partition").unwrap().as_int().unwrap();
                let answer = Struct::new().with("partitionIndex", number as i32);
                let answer = match self.read(node, topic, asked, &mut room, &mut is_first) {
                    Ok((found, bytes)) => {
                        let length = bytes.len();
                        records.push(bytes);
                        let mut answer = answer.with("records", Value::Records(length));
                        for (name, value) in found.fields {
                            answer = answer.with(name, value);
                        }
                        answer
                    }
                    Err(error) => {
                        records.push(Vec::new());
                        answer
                            .with("errorCode", error as i16)
                            .with("highWatermark", -1_i64)
                            .with("records", Value::Records(0))
                    }
                };
                partitions.push(answer);
            }
            let mut response = Struct::new().with("partitions", partitions);
            for name in ["topic", "topicId"] {
                if let Some(value) = topic.get(name) {
                    response = response.with(name, value.clone().into_owned());
                }
            }
            responses.push(response);
        }
        Struct::new().with("responses", responses)
    }

    fn read(
        &mut self,
        node: Node,
        topic: &Struct<'_>,
        asked: &Struct<'_>,
        room: &mut usize,
        is_first: &mut bool,
    ) -> Result<(Struct<'static>, Vec<u8>), i64> {
        let (name, number) = self.find(node, topic, asked, ("topic", "partition"))?;
        let torn = self.random.below(200);
        let partition = &self.topics[&name].partitions[number];
        let int = |name: &str| asked.get(name).and_then(Value::as_int);
        let offset = int("fetchOffset").unwrap();
        let answer = Struct::new()
            .with("highWatermark", partition.told)
            .with("lastStableOffset", partition.last_stable())
            .with("logStartOffset", partition.start);
        if let Some(last) = int("lastFetchedEpoch").filter(|&last| last >= 0) {
            let (epoch, end) = partition.end_of(last as i32).ok_or(1)?;
            if i64::from(epoch) < last || end < offset {
                let diverging = Struct::new().with("epoch", epoch).with("endOffset", end);
                return Ok((answer.with("divergingEpoch", diverging), Vec::new()));
            }
        }
        if offset < partition.start || offset > partition.end() {
            return Err(1);
        }
        if self.corrupt.get(&name).is_some_and(|&from| offset >= from) {
            return Err(2);
        }
        let mut bytes = Vec::new();
        if self.silent.contains(&name) {
            return Ok((answer, bytes));
        }
        let mut limit = int("partitionMaxBytes").unwrap() as usize;
        for batch in partition.log.iter().filter(|batch| batch.is_there) {
            if batch.last < offset || batch.last < partition.start || batch.last >= partition.told {
                continue;
            }
            let fits = batch.bytes.len() <= limit.min(*room);
            if !fits && !*is_first {
                // The end of a response is torn off.
                bytes.extend_from_slice(&batch.bytes[..torn.min(batch.bytes.len()).min(*room)]);
                break;
            }
            *is_first = false;
            *room = room.saturating_sub(batch.bytes.len());
            limit = limit.saturating_sub(batch.bytes.len());
            bytes.extend_from_slice(&batch.bytes);
        }
        if self.damaged.contains(&name)
            && let Some(last) = bytes.last_mut()
        {
            *last ^= 1;
        }
        Ok((answer, bytes))
    }

    fn per_partition(
        &self,
        request: &Struct<'_>,
        of: impl Fn(&Struct<'_>, &Struct<'_>) -> Struct<'static>,
        name: &'static str,
    ) -> Struct<'static> {
        let topics = request.get("topics").and_then(Value::as_array).unwrap();
        let topics: Vec<Struct<'static>> = topics
            .iter()
            .filter_map(Value::as_struct)
            .map(|topic| {
                let partitions = topic.get("partitions").and_then(Value::as_array).unwrap();
                let partitions: Vec<Struct<'static>> = partitions
                    .iter()
                    .filter_map(Value::as_struct)
                    .map(|asked| of(topic, asked))
                    .collect();
                Struct::new()
                    .with(name, topic.get(name).unwrap().clone().into_owned())
                    .with("partitions", partitions)
            })
            .collect();
        Struct::new().with("topics", topics)
    }

    fn list_offsets(&self, node: Node, request: &Struct<'_>) -> Struct<'static> {
        self.per_partition(
            request,
            |topic, asked| {
                let number = asked.get("partitionIndex").unwrap().as_int().unwrap() as i32;
                let answer = Struct::new().with("partitionIndex", number);
                match self.find(node, topic, asked, ("name", "partitionIndex")) {
                    Err(error) => answer.with("errorCode", error as i16),
                    Ok((name, number)) => {
                        let partition = &self.topics[&name].partitions[number];
                        if asked.get("timestamp").unwrap().as_int() == Some(-2) {
                            return answer.with("offset", partition.start);
                        }
                        if partition.told < partition.epochs.last().unwrap().1 {
                            return answer.with("errorCode", 78_i16);
                        }
                        answer.with("offset", partition.told)
                    }
                }
            },
            "name",
        )
    }

    fn epochs(&self, node: Node, request: &Struct<'_>) -> Struct<'static> {
        self.per_partition(
            request,
            |topic, asked| {
                let number = asked.get("partition").unwrap().as_int().unwrap() as i32;
                let answer = Struct::new().with("partition", number);
                match self.find(node, topic, asked, ("topic", "partition")) {
                    Err(error) => answer.with("errorCode", error as i16),
                    Ok((name, number)) => {
                        let epoch = asked.get("leaderEpoch").unwrap().as_int().unwrap();
                        match self.topics[&name].partitions[number].end_of(epoch as i32) {
                            Some((epoch, end)) => {
                                answer.with("leaderEpoch", epoch).with("endOffset", end)
                            }
                            None => answer,
                        }
                    }
                }
            },
            "topic",
        )
    }

    fn groups(&self, node: Node) -> Struct<'static> {
        let committing = self.commits.keys().map(|(group, ..)| group);
        let groups: BTreeSet<&String> = committing.chain(self.group_types.keys()).collect();
        let mut groups: Vec<&String> = groups.into_iter().collect();
        // All are coordinated by broker 1, if nothing else is said.
        groups.retain(|group| match &self.coordination {
            Some(coordination) => coordination.is_at(node, group),
            None => node == Node::Broker(1),
        });
        let groups: Vec<Struct<'static>> = groups
            .into_iter()
            .map(|group| {
                let kind = self.group_types.get(group).copied().unwrap_or_default();
                Struct::new()
                    .with("groupId", group.clone())
                    .with("protocolType", "consumer")
                    .with("groupType", kind)
            })
            .collect();
        Struct::new()
            .with("errorCode", self.groups_error)
            .with("groups", groups)
    }

    fn offsets(&self, node: Node, request: &Request) -> Struct<'static> {
        let is_here = |group: &str| {
            let coordination = self.coordination.as_ref();
            coordination.is_none_or(|coordination| coordination.is_at(node, group))
        };
        let of = |group: &str, index: &'static str| {
            let own = self.commits.iter().filter(|((name, ..), _)| name == group);
            let topics: Vec<Struct<'static>> = own
                .map(|((_, topic, partition), offset)| {
                    let partition = Struct::new()
                        .with(index, *partition)
                        .with("committedOffset", *offset)
                        .with("metadata", "");
                    Struct::new()
                        .with("name", topic.clone())
                        .with("partitions", vec![partition])
                })
                .collect();
            topics
        };
        if request.version < 8 {
            let group = request.body.get("groupId").unwrap().as_str().unwrap();
            if !is_here(group) {
                return Struct::new().with("errorCode", NOT_COORDINATOR);
            }
            return Struct::new().with("topics", of(group, "partitionIndex"));
        }
        let groups = request
            .body
            .get("groups")
            .and_then(Value::as_array)
            .unwrap();
        let groups: Vec<Struct<'static>> = groups
            .iter()
            .filter_map(Value::as_struct)
            .filter(|_| self.offsets_error != Some(None))
            .map(|group| {
                let id = group.get("groupId").unwrap().as_str().unwrap();
                let answer = Struct::new().with("groupId", id.to_owned());
                match self.offsets_error.flatten() {
                    None if !is_here(id) => answer.with("errorCode", NOT_COORDINATOR),
                    Some(error) => answer.with("errorCode", error),
                    None => answer.with("topics", of(id, "partitionIndex")),
                }
            })
            .collect();
        Struct::new().with("groups", groups)
    }
}
