//! Random histories: many clients, a clock that the test turns, and writers between the steps.

use crate::client::{Client, Fetch, Fetched, consume, int, open, structs};
use offsetlog::Isolation::{self, ReadCommitted, ReadUncommitted};
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis;
use offsetlog::{
    AppendOptions, BatchBuilder, LogWriter, MarkerOptions, OpenOptions, Producer, WriteOptions,
};
use offsetlog_net::server::Broker;
use offsetlog_net::{Service, Step};
use std::collections::{BTreeMap, HashMap};

const TOPICS: [&str; 3] = ["a", "b", "c"];

/// A record that was appended: its value, and whether its transaction was committed; `None` while it is open.
#[derive(Clone)]
struct Appended {
    value: Vec<u8>,
    committed: Option<bool>,
}

struct Writer {
    log: LogWriter,
    /// By offset; markers are not among them.
    records: BTreeMap<i64, Appended>,
    /// Producer id and its open transaction's offsets.
    open: HashMap<i64, Vec<i64>>,
    sequences: HashMap<i64, i32>,
}

impl Writer {
    fn append(&mut self, random: &mut fastrand::Rng, producer: Option<i64>) {
        let mut batch = BatchBuilder::default();
        if let Some(producer_id) = producer {
            batch.set_producer(Producer {
                producer_id,
                producer_epoch: 0,
                base_sequence: self.sequences.get(&producer_id).copied().unwrap_or(0),
                is_transactional: true,
            });
        }
        let count = random.usize(1..5);
        let values: Vec<Vec<u8>> = (0..count)
            .map(|_| (0..random.usize(0..300)).map(|_| random.u8(..)).collect())
            .collect();
        for value in &values {
            batch.push(1, None, Some(value), &[]).unwrap();
        }
        let done = self.log.append(&mut batch, &AppendOptions::default());
        let base = done.unwrap().base_offset;
        for (offset, value) in (base..).zip(values) {
            let committed = producer.is_none().then_some(true);
            self.records.insert(offset, Appended { value, committed });
            if let Some(producer) = producer {
                self.open.entry(producer).or_default().push(offset);
            }
        }
        if let Some(producer) = producer {
            *self.sequences.entry(producer).or_default() += count as i32;
        }
    }

    fn end(&mut self, producer_id: i64, commit: bool) {
        let Some(offsets) = self.open.remove(&producer_id) else {
            return;
        };
        let marker = MarkerOptions {
            producer_id,
            producer_epoch: 0,
            commit,
            coordinator_epoch: 0,
            timestamp: None,
            transaction_version: 1,
        };
        let done = self.log.append_marker(&marker, &AppendOptions::default());
        done.unwrap();
        for offset in offsets {
            self.records.get_mut(&offset).unwrap().committed = Some(commit);
        }
    }

    fn last_stable(&self) -> i64 {
        let first = self.open.values().flatten().min().copied();
        first.unwrap_or_else(|| self.log.log_end_offset().unwrap())
    }
}

struct Reader<'b> {
    client: Client<'b>,
    isolation: Isolation,
    session: (i32, i32),
    positions: [i64; 3],
    high_watermarks: [i64; 3],
    seen: [BTreeMap<i64, Vec<u8>>; 3],
    waits: bool,
}

impl Reader<'_> {
    fn request(&mut self, random: &mut fastrand::Rng) -> Struct<'static> {
        let topics: Vec<Struct<'static>> = (0..3)
            .map(|slot| {
                let partition = Struct::new()
                    .with("partition", 0)
                    .with("fetchOffset", self.positions[slot])
                    .with("partitionMaxBytes", random.i32(1..3000));
                Struct::new()
                    .with("topic", TOPICS[slot])
                    .with("partitions", vec![partition])
            })
            .collect();
        let fetch = Fetch {
            session: self.session,
            isolation: self.isolation,
            min_bytes: random.i32(0..500),
            max_wait_ms: random.i32(0..300),
            max_bytes: random.i32(1..5000),
            ..Fetch::new("", 0, 0)
        };
        fetch.frame().with("topics", topics)
    }

    /// Takes an answer. Returns how many records came.
    fn take(&mut self, step: Step, writers: &[Writer]) -> usize {
        let reply = match step {
            Step::Reply(reply) => reply,
            Step::Wait { .. } => {
                self.waits = true;
                return 0;
            }
            other => panic!("{other:?}"),
        };
        self.waits = false;
        let response = self.client.response(&apis::FETCH, 12, &reply);
        assert_eq!(int(&response, "errorCode"), 0);
        let id = int(&response, "sessionId") as i32;
        self.session = match (self.session, id) {
            (_, 0) => (0, 0),
            ((0, _), id) => (id, 1),
            ((_, epoch), id) => (id, epoch + 1),
        };
        let mut count = 0;
        for topic in structs(&response, "responses") {
            let name = topic.get("topic").and_then(Value::as_str).unwrap();
            let slot = TOPICS.iter().position(|topic| *topic == name).unwrap();
            let fetched = Fetched::of(&structs(&topic, "partitions")[0]);
            assert_eq!(fetched.error, 0);
            let end = writers[slot].log.log_end_offset().unwrap();
            assert!(fetched.high_watermark <= end);
            assert!(
                fetched.high_watermark >= self.high_watermarks[slot],
                "it goes back"
            );
            assert!(fetched.last_stable <= fetched.high_watermark);
            self.high_watermarks[slot] = fetched.high_watermark;
            let (seen, next) = consume(&fetched, self.positions[slot]);
            count += seen.len();
            for (offset, _, _, value) in seen {
                let before = self.seen[slot].insert(offset, value.unwrap());
                assert!(before.is_none(), "offset {offset} came twice");
            }
            let limit = match self.isolation {
                ReadUncommitted => fetched.high_watermark,
                ReadCommitted => fetched.last_stable,
            };
            assert!(next <= limit.max(self.positions[slot]));
            self.positions[slot] = next;
        }
        count
    }
}

impl Writer {
    fn open(path: &std::path::Path, write: &WriteOptions) -> Self {
        Self {
            log: LogWriter::open(path, &OpenOptions::default(), write).unwrap(),
            records: BTreeMap::new(),
            open: HashMap::new(),
            sequences: HashMap::new(),
        }
    }
}

impl<'b> Reader<'b> {
    /// Readers of both isolation levels, with a fetch session and without.
    fn new(broker: &'b Broker, number: i32) -> Self {
        Self {
            client: Client::new(broker),
            isolation: if number % 2 == 0 {
                ReadUncommitted
            } else {
                ReadCommitted
            },
            session: (0, if number < 2 { 0 } else { -1 }),
            positions: [0; 3],
            high_watermarks: [0; 3],
            seen: [const { BTreeMap::new() }; 3],
            waits: false,
        }
    }
}

fn history(seed: u64) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    let settings = [("internal.segment.bytes", "2000")];
    let write = WriteOptions {
        config: Some(offsetlog::LogConfig::parse(settings).unwrap()),
        ..WriteOptions::default()
    };
    let mut writers: Vec<Writer> = TOPICS
        .iter()
        .map(|topic| Writer::open(&folder.path().join(format!("{topic}-0")), &write))
        .collect();
    let broker = open(&[folder.path().to_path_buf()]);
    let mut readers: Vec<Reader<'_>> = (0..4).map(|number| Reader::new(&broker, number)).collect();
    let mut now = readers[0].client.now;
    for _ in 0..300 {
        now += random.i64(0..80);
        let writer = random.usize(0..3);
        match random.u8(0..10) {
            0..=1 => writers[writer].append(&mut random, None),
            2 => {
                let producer = random.i64(1..4);
                writers[writer].append(&mut random, Some(producer));
            }
            3 => writers[writer].end(random.i64(1..4), random.bool()),
            4 => {
                broker.tick(now);
            }
            5 if random.u8(0..8) == 0 => {
                // The connection ends, perhaps while it waits; another one goes on where it was.
                let reader = &mut readers[random.usize(0..4)];
                let session = reader.client.session.take().unwrap();
                broker.end(session, now);
                reader.client = Client::new(&broker);
                reader.session = (0, 0);
                reader.waits = false;
            }
            _ => {
                let reader = &mut readers[random.usize(0..4)];
                reader.client.now = now;
                let step = if reader.waits {
                    reader.client.resume()
                } else {
                    let request = reader.request(&mut random);
                    reader.client.send(&apis::FETCH, 12, &request)
                };
                reader.take(step, &writers);
            }
        }
    }
    // All reach the end.
    let mut count = 0;
    for reader in &mut readers {
        reader.client.now = now + 10_000;
        let mut idle = 0;
        while idle < 6 {
            reader.client.now += 1000;
            let step = if reader.waits {
                reader.client.resume()
            } else {
                let request = reader.request(&mut random);
                reader.client.send(&apis::FETCH, 12, &request)
            };
            idle = if reader.take(step, &writers) == 0 {
                idle + 1
            } else {
                0
            };
        }
        for (slot, writer) in writers.iter().enumerate() {
            let stable = writer.last_stable();
            let expected: BTreeMap<i64, Vec<u8>> = writer
                .records
                .iter()
                .filter(|(offset, record)| match reader.isolation {
                    ReadUncommitted => true,
                    ReadCommitted => **offset < stable && record.committed == Some(true),
                })
                .map(|(offset, record)| (*offset, record.value.clone()))
                .collect();
            assert!(
                reader.seen[slot] == expected,
                "seed {seed}, {:?} {}: {} seen, {} expected",
                reader.isolation,
                TOPICS[slot],
                reader.seen[slot].len(),
                expected.len()
            );
            count += expected.len();
        }
    }
    count
}

#[test]
fn nothing_is_lost_doubled_or_shown_too_early_in_random_histories() {
    let number = |name| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    // A seed by itself is that of a history that failed.
    let seeds = match (number("OFFSETLOG_SEED"), number("OFFSETLOG_SCALE")) {
        (Some(seed), None) => seed..seed + 1,
        (seed, scale) => {
            let first = seed.unwrap_or(0);
            first..first + 12 * scale.unwrap_or(1).max(1)
        }
    };
    println!(
        "counted {} histories of a served directory",
        seeds.end - seeds.start
    );
    let count: usize = seeds.map(history).sum();
    assert!(count > 100, "{count}");
}
