//! A client that talks to the logic without a socket, and reads batches as Java's consumer does.

use offsetlog::format::control::ControlType;
use offsetlog::format::cursor::Reader;
use offsetlog::format::error::Part;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::{Api, RequestHeader, ResponseHeader, apis};
use offsetlog::format::{BatchView, Uuid};
use offsetlog::{BatchDecoder, Isolation};
use offsetlog_net::server::{Broker, ServeOptions, Session};
use offsetlog_net::{AnyRoom, Peer, Piece, Reply, Service, Step};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

pub const NOW: i64 = 1_800_000_000_000;

/// A path below tests/data.
pub fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data")
        .join(path)
}

pub fn open(paths: &[PathBuf]) -> Broker {
    Broker::open(paths, ServeOptions::default()).unwrap()
}

/// The log dirs of the 4.3.0 broker that stopped cleanly, with its metadata.
pub fn clean() -> Vec<PathBuf> {
    ["log-dir-1", "log-dir-2", "metadata-dir"]
        .map(|name| data("kafka-4.3.0/clean").join(name))
        .to_vec()
}

/// A copy of some partition directories in a log dir of its own.
pub fn copy(partitions: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for path in partitions {
        let from = data(path);
        let to = folder.path().join(from.file_name().unwrap());
        std::fs::create_dir(&to).unwrap();
        for entry in std::fs::read_dir(&from).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
    folder
}

pub struct Client<'b> {
    pub broker: &'b Broker,
    pub session: Option<Session>,
    pub now: i64,
    correlation_id: i32,
}

impl<'b> Client<'b> {
    pub fn new(broker: &'b Broker) -> Self {
        let peer = Peer {
            address: "127.0.0.1".parse().unwrap(),
            port: 4711,
            is_encrypted: false,
        };
        Self {
            broker,
            session: Some(broker.begin(peer)),
            now: NOW,
            correlation_id: 0,
        }
    }

    pub fn send(&mut self, api: &Api, version: i16, request: &Struct<'_>) -> Step {
        let frame = self.frame(api, version, request);
        let session = self.session.as_mut().unwrap();
        self.broker.receive(session, &frame, self.now, &mut AnyRoom)
    }

    pub fn resume(&mut self) -> Step {
        let session = self.session.as_mut().unwrap();
        self.broker.resume(session, self.now)
    }

    /// The response of a reply; records that come from files are filled in.
    pub fn response(&self, api: &Api, version: i16, reply: &Reply) -> Struct<'static> {
        let bytes = bytes_of(reply);
        assert_eq!(bytes.len() as u64, reply.length());
        let mut reader = Reader::new(&bytes, Part::Protocol);
        let header = ResponseHeader::read(api, version, &mut reader).unwrap();
        assert_eq!(header.correlation_id, self.correlation_id);
        let response = api.response.read(version, &mut reader).unwrap();
        assert!(
            reader.remaining() == 0,
            "bytes are left behind the response"
        );
        response.into_owned()
    }
}

/// A client, with a socket or without: what it asks, by words that tests know.
pub trait Asks {
    /// A request of this client, without its length.
    fn frame(&mut self, api: &Api, version: i16, request: &Struct<'_>) -> Vec<u8>;

    /// The response of this version to that, after as long a wait as it takes; `None` if the server ended the connection without one.
    fn answer(&mut self, frame: &[u8], api: &Api, version: i16) -> Option<Struct<'static>>;

    fn call(&mut self, api: &Api, version: i16, request: &Struct<'_>) -> Struct<'static> {
        let frame = self.frame(api, version, request);
        let answer = self.answer(&frame, api, version);
        answer.unwrap_or_else(|| panic!("{} {version} is not answered", api.name))
    }

    /// Metadata by name: topic id, and for each partition error, leader and leader epoch.
    fn metadata(&mut self, topic: &str) -> (Uuid, Vec<(i64, i64, i64)>) {
        let wanted = Struct::new().with("name", topic);
        let request = Struct::new().with("topics", vec![wanted]);
        let response = self.call(&apis::METADATA, 12, &request);
        let topic = structs(&response, "topics")[0].clone();
        assert_eq!(int(&topic, "errorCode"), 0);
        let partitions = structs(&topic, "partitions");
        let partitions = partitions.iter().map(|each| {
            let leader = int(each, "leaderId");
            (int(each, "errorCode"), leader, int(each, "leaderEpoch"))
        });
        let id = topic.get("topicId").and_then(Value::as_uuid).unwrap();
        (id, partitions.collect())
    }

    /// `ListOffsets`: error, timestamp, offset, leader epoch.
    fn offset(
        &mut self,
        (topic, partition): (&str, i32),
        timestamp: i64,
        isolation: Isolation,
    ) -> (i64, i64, i64, i64) {
        let wanted = Struct::new()
            .with("partitionIndex", partition)
            .with("timestamp", timestamp);
        let topic = Struct::new()
            .with("name", topic)
            .with("partitions", vec![wanted]);
        let request = Struct::new()
            .with("replicaId", -1)
            .with("isolationLevel", level(isolation))
            .with("topics", vec![topic]);
        let response = self.call(&apis::LIST_OFFSETS, 9, &request);
        let found = structs(&structs(&response, "topics")[0], "partitions")[0].clone();
        (
            int(&found, "errorCode"),
            int(&found, "timestamp"),
            int(&found, "offset"),
            int(&found, "leaderEpoch"),
        )
    }

    /// `OffsetForLeaderEpoch`: error, leader epoch, end offset.
    fn end_of_epoch(&mut self, (topic, partition): (&str, i32), epoch: i32) -> (i64, i64, i64) {
        let wanted = Struct::new()
            .with("partition", partition)
            .with("currentLeaderEpoch", -1)
            .with("leaderEpoch", epoch);
        let topic = Struct::new()
            .with("topic", topic)
            .with("partitions", vec![wanted]);
        let request = Struct::new().with("topics", vec![topic]);
        let response = self.call(&apis::OFFSET_FOR_LEADER_EPOCH, 4, &request);
        let found = structs(&structs(&response, "topics")[0], "partitions")[0].clone();
        (
            int(&found, "errorCode"),
            int(&found, "leaderEpoch"),
            int(&found, "endOffset"),
        )
    }

    /// A fetch of one partition without a session, answered at once.
    fn fetch(&mut self, fetch: &Fetch<'_>) -> Fetched {
        let response = self.call(&apis::FETCH, fetch.version, &fetch.request());
        if fetch.version >= 7 {
            assert_eq!(int(&response, "errorCode"), 0);
        }
        let topics = structs(&response, "responses");
        Fetched::of(&structs(&topics[0], "partitions")[0])
    }
}

impl Asks for Client<'_> {
    fn frame(&mut self, api: &Api, version: i16, request: &Struct<'_>) -> Vec<u8> {
        self.correlation_id += 1;
        let header = RequestHeader {
            api_key: api.key,
            api_version: version,
            correlation_id: self.correlation_id,
            client_id: Some(b"test"),
        };
        let mut frame = Vec::new();
        header.write(&mut frame).unwrap();
        api.request.write(version, request, &mut frame).unwrap();
        frame
    }

    fn answer(&mut self, frame: &[u8], api: &Api, version: i16) -> Option<Struct<'static>> {
        let session = self.session.as_mut().unwrap();
        let mut step = self.broker.receive(session, frame, self.now, &mut AnyRoom);
        for _ in 0..10 {
            match step {
                Step::Reply(reply) => return Some(self.response(api, version, &reply)),
                Step::Close { reply: None, .. } => return None,
                Step::Wait { until_ms } => {
                    self.now = self.now.max(until_ms);
                    step = self.resume();
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("it waits for ever");
    }
}

/// A fetch of one partition.
#[derive(Clone)]
pub struct Fetch<'t> {
    pub version: i16,
    pub topic: &'t str,
    pub topic_id: Uuid,
    pub partition: i32,
    pub offset: i64,
    pub isolation: Isolation,
    pub max_bytes: i32,
    pub partition_max_bytes: i32,
    pub min_bytes: i32,
    pub max_wait_ms: i32,
    pub current_epoch: i32,
    pub last_fetched_epoch: i32,
    pub session: (i32, i32),
}

impl<'t> Fetch<'t> {
    pub fn new(topic: &'t str, partition: i32, offset: i64) -> Self {
        Self {
            version: 12,
            topic,
            topic_id: Uuid::ZERO,
            partition,
            offset,
            isolation: Isolation::ReadUncommitted,
            max_bytes: i32::MAX,
            partition_max_bytes: 1 << 20,
            min_bytes: 1,
            max_wait_ms: 0,
            current_epoch: -1,
            last_fetched_epoch: -1,
            session: (0, -1),
        }
    }

    pub fn request(&self) -> Struct<'t> {
        let partition = Struct::new()
            .with("partition", self.partition)
            .with("fetchOffset", self.offset)
            .with("currentLeaderEpoch", self.current_epoch)
            .with("lastFetchedEpoch", self.last_fetched_epoch)
            .with("partitionMaxBytes", self.partition_max_bytes);
        let topic = Struct::new().with("partitions", vec![partition]);
        let topic = if self.version >= 13 {
            topic.with("topicId", self.topic_id)
        } else {
            topic.with("topic", self.topic)
        };
        self.frame().with("topics", vec![topic])
    }

    /// A request of no partition.
    pub fn frame(&self) -> Struct<'t> {
        Struct::new()
            .with("maxWaitMs", self.max_wait_ms)
            .with("minBytes", self.min_bytes)
            .with("maxBytes", self.max_bytes)
            .with("isolationLevel", level(self.isolation))
            .with("sessionId", self.session.0)
            .with("sessionEpoch", self.session.1)
    }
}

/// What came of a partition.
#[derive(Debug, Clone, PartialEq)]
pub struct Fetched {
    pub error: i64,
    pub high_watermark: i64,
    pub last_stable: i64,
    pub log_start: i64,
    pub diverging: Option<(i64, i64)>,
    /// `None` for null.
    pub aborted: Option<Vec<(i64, i64)>>,
    /// `None` for null.
    pub records: Option<Vec<u8>>,
}

impl Fetched {
    pub fn of(partition: &Struct<'_>) -> Self {
        let aborted = partition.get("abortedTransactions").unwrap();
        let diverging = partition.get("divergingEpoch").and_then(Value::as_struct);
        Self {
            error: int(partition, "errorCode"),
            high_watermark: int(partition, "highWatermark"),
            last_stable: int(partition, "lastStableOffset"),
            log_start: partition
                .get("logStartOffset")
                .and_then(Value::as_int)
                .unwrap_or(-1),
            diverging: diverging.map(|each| (int(each, "epoch"), int(each, "endOffset"))),
            aborted: aborted.as_array().map(|all| {
                all.iter()
                    .filter_map(Value::as_struct)
                    .map(|each| (int(each, "producerId"), int(each, "firstOffset")))
                    .collect()
            }),
            records: partition
                .get("records")
                .and_then(Value::as_bytes)
                .map(<[u8]>::to_vec),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        self.records.as_deref().unwrap()
    }
}

pub const fn level(isolation: Isolation) -> i8 {
    match isolation {
        Isolation::ReadUncommitted => 0,
        Isolation::ReadCommitted => 1,
    }
}

pub fn int(fields: &Struct<'_>, name: &str) -> i64 {
    let found = fields.get(name).and_then(Value::as_int);
    found.unwrap_or_else(|| panic!("no {name}"))
}

pub fn structs(fields: &Struct<'_>, name: &str) -> Vec<Struct<'static>> {
    let all = fields.get(name).and_then(Value::as_array);
    let all = all.unwrap_or_else(|| panic!("no {name}"));
    let all = all.iter().filter_map(Value::as_struct);
    all.map(|each| each.clone().into_owned()).collect()
}

pub fn bytes_of(reply: &Reply) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in &reply.pieces {
        match piece {
            Piece::Bytes(part) => bytes.extend_from_slice(part),
            Piece::File {
                file,
                position,
                length,
            } => {
                let mut part = vec![0; usize::try_from(*length).unwrap()];
                assert_eq!(file.read_at(&mut part, *position).unwrap(), part.len());
                bytes.extend_from_slice(&part);
            }
        }
    }
    bytes
}

/// A record as a consumer sees it: offset, timestamp, key, value.
pub type Seen = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// The records of batches as Java's consumer takes them, and the offset that it fetches next.
pub fn consume(fetched: &Fetched, offset: i64) -> (Vec<Seen>, i64) {
    let mut bytes = fetched.bytes();
    let mut aborted: Vec<(i64, i64)> = fetched.aborted.clone().unwrap_or_default();
    aborted.sort_by_key(|(_, first)| *first);
    let mut aborted = aborted.into_iter().peekable();
    let mut producers = HashSet::new();
    let mut decoder = BatchDecoder::default();
    let (mut seen, mut next) = (Vec::new(), offset);
    while !bytes.is_empty() {
        let header = BatchView::parse(bytes).unwrap().header;
        let (batch, rest) = bytes.split_at(header.size_bytes);
        header.check_crc(batch).unwrap();
        bytes = rest;
        next = header.last_offset + 1;
        while let Some((id, _)) = aborted.next_if(|(_, first)| *first <= header.last_offset) {
            producers.insert(id);
        }
        let mut records = decoder.records(batch, 1 << 26).unwrap();
        if header.attributes.is_control() {
            if let Some(record) = records.next_record().unwrap()
                && ControlType::parse_key(record.key).ok() == Some(ControlType::Abort)
            {
                producers.remove(&header.producer_id);
            }
            continue;
        }
        if fetched.aborted.is_some()
            && header.attributes.is_transactional()
            && producers.contains(&header.producer_id)
        {
            continue;
        }
        while let Some(record) = records.next_record().unwrap() {
            if record.offset >= offset {
                seen.push((
                    record.offset,
                    record.timestamp,
                    record.key.map(<[u8]>::to_vec),
                    record.value.map(<[u8]>::to_vec),
                ));
            }
        }
    }
    (seen, next)
}

/// All records of a partition, and where the client ended; the error with which it ended, if any.
pub fn read_all(client: &mut (impl Asks + ?Sized), fetch: &Fetch<'_>) -> (Vec<Seen>, i64, i64) {
    let mut fetch = fetch.clone();
    let mut all = Vec::new();
    loop {
        let fetched = client.fetch(&fetch);
        if fetched.error != 0 {
            return (all, fetch.offset, fetched.error);
        }
        let end = match fetch.isolation {
            Isolation::ReadUncommitted => fetched.high_watermark,
            Isolation::ReadCommitted => fetched.last_stable,
        };
        assert!(fetched.last_stable <= fetched.high_watermark);
        let (seen, next) = consume(&fetched, fetch.offset);
        assert!(next <= end, "{next} is beyond {end}");
        all.extend(seen);
        if next == fetch.offset {
            assert_eq!(next, end, "nothing came, and it is not the end");
            return (all, next, 0);
        }
        fetch.offset = next;
    }
}

/// Size and hash of each file below these paths.
pub fn tree(paths: &[PathBuf]) -> BTreeMap<PathBuf, (u64, u64)> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut found = BTreeMap::new();
    let mut folders: Vec<PathBuf> = paths.to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                let mut hasher = DefaultHasher::new();
                bytes.hash(&mut hasher);
                found.insert(path, (bytes.len() as u64, hasher.finish()));
            }
        }
    }
    found
}
