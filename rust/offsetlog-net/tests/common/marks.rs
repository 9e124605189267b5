//! Clients whose data bears their mark: a topic, a group, members, a user for each, requests of every kind for these, and a look for
//! anybody else's mark.

use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::{Api, apis};
use offsetlog::{AppendOptions, BatchBuilder, LogWriter, OpenOptions, WriteOptions};
use std::collections::HashSet;
use std::path::Path;

/// What each mark begins with.
const MARK: &[u8] = b"M4rk";
/// Bytes of a mark: that, whether it is a name, and whose it is.
const MARK_BYTES: usize = 12;
/// Owners of marks.
const OWNERS: usize = 64;

/// A request with its version.
pub type Request = (&'static Api, i16, Struct<'static>);

/// A client, by its number below 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(pub usize);

impl Owner {
    /// Stands in names, which a request for all topics or groups shows to anybody.
    fn public(self) -> String {
        format!("M4rkN{:06x}.", self.code())
    }

    /// Stands in what only its owner asks for.
    fn private(self) -> String {
        format!("M4rkP{:06x}.", self.code())
    }

    /// No byte changed makes it another one's.
    fn code(self) -> usize {
        ((self.0 + 1) * 0x009e_3779) & 0x00ff_ffff
    }

    /// A text of so many bytes about, private all over.
    pub fn secret(self, bytes: usize) -> String {
        self.private().repeat(bytes / MARK_BYTES + 1)
    }

    pub fn topic(self) -> String {
        format!("topic-{}", self.public())
    }

    pub fn group(self) -> String {
        format!("group-{}", self.public())
    }

    pub fn client_id(self) -> String {
        format!("client-{}", self.public())
    }

    pub fn user(self) -> String {
        format!("user-{}", self.public())
    }

    pub fn password(self) -> String {
        format!("password-{}", self.private())
    }

    /// Makes its partition in a log dir. Returns the bytes of its batches; one of them is larger than any buffer between disk and client.
    pub fn make(self, log_dir: &Path) -> Vec<u8> {
        let place = log_dir.join(format!("{}-0", self.topic()));
        let log =
            LogWriter::open(&place, &OpenOptions::default(), &WriteOptions::default()).unwrap();
        for (number, bytes) in [100, 3_000, 90_000, 10, 700, 9_000].into_iter().enumerate() {
            let mut batch = BatchBuilder::default();
            for record in 0..=number % 3 {
                let value = self.secret(bytes * (self.0 + 2) / (self.0 + 1) + record);
                let key = self.secret(1);
                batch
                    .push(1, Some(key.as_bytes()), Some(value.as_bytes()), &[])
                    .unwrap();
            }
            log.append(&mut batch, &AppendOptions::default()).unwrap();
        }
        log.close().unwrap();
        std::fs::read(place.join("00000000000000000000.log")).unwrap()
    }

    /// Reads its partition from this offset.
    pub fn fetch(self, offset: i64, max_bytes: i32, session: (i32, i32)) -> Struct<'static> {
        let partition = Struct::new()
            .with("partition", 0)
            .with("fetchOffset", offset)
            .with("partitionMaxBytes", max_bytes);
        let topic = Struct::new()
            .with("topic", self.topic())
            .with("partitions", vec![partition]);
        Struct::new()
            .with("maxWaitMs", 100)
            .with("minBytes", 1)
            .with("maxBytes", 1 << 20)
            .with("sessionId", session.0)
            .with("sessionEpoch", session.1)
            .with("topics", vec![topic])
    }

    /// Joins its group, as this member or as a new one.
    pub fn join(self, member: &str) -> Struct<'static> {
        let protocol = Struct::new()
            .with("name", "range")
            .with("metadata", self.secret(500).into_bytes());
        Struct::new()
            .with("groupId", self.group())
            .with("sessionTimeoutMs", 10_000)
            .with("rebalanceTimeoutMs", 60_000)
            .with("memberId", member.to_owned())
            .with("protocolType", "consumer")
            .with("protocols", vec![protocol])
    }

    /// What the leader of its group gives to its only member.
    pub fn sync(self, member: &str, generation: i32) -> Struct<'static> {
        let assignment = Struct::new()
            .with("memberId", member.to_owned())
            .with("assignment", self.secret(500).into_bytes());
        Struct::new()
            .with("groupId", self.group())
            .with("memberId", member.to_owned())
            .with("generationId", generation)
            .with("assignments", vec![assignment])
    }

    pub fn heartbeat(self, member: &str, generation: i32) -> Struct<'static> {
        Struct::new()
            .with("groupId", self.group())
            .with("memberId", member.to_owned())
            .with("generationId", generation)
    }

    pub fn commit(self, member: &str, generation: i32, offset: i64) -> Struct<'static> {
        let partition = Struct::new()
            .with("partitionIndex", 0)
            .with("committedOffset", offset)
            .with("committedMetadata", self.secret(300));
        let topic = Struct::new()
            .with("name", self.topic())
            .with("partitions", vec![partition]);
        Struct::new()
            .with("groupId", self.group())
            .with("memberId", member.to_owned())
            .with("generationIdOrMemberEpoch", generation)
            .with("topics", vec![topic])
    }

    pub fn committed(self) -> Struct<'static> {
        Struct::new()
            .with("groupId", self.group())
            .with("topics", self.partitions("name", "partitionIndexes"))
    }

    pub fn metadata(self) -> Struct<'static> {
        let topic = Struct::new().with("name", self.topic());
        Struct::new().with("topics", vec![topic])
    }

    fn partitions(self, name: &'static str, numbers: &'static str) -> Vec<Struct<'static>> {
        let topic = Struct::new()
            .with(name, self.topic())
            .with(numbers, vec![0, 1]);
        vec![topic]
    }

    /// Requests of all kinds. `shows_names`: also those that show the names of all.
    pub fn requests(self, shows_names: bool) -> Vec<Request> {
        let mut all = self.of_partitions();
        all.extend(self.of_groups());
        all.extend(self.of_the_server());
        if shows_names {
            let none = Struct::new;
            let every = || none().with("topics", Value::Null);
            all.extend([
                (&apis::METADATA, 0, none()),
                (&apis::METADATA, 12, every()),
                (&apis::DESCRIBE_LOG_DIRS, 4, every()),
                (&apis::LIST_GROUPS, 0, none()),
                (&apis::LIST_GROUPS, 5, none()),
            ]);
        }
        all
    }

    /// One partition of its topic.
    fn partition(
        self,
        name: &'static str,
        list: &'static str,
        partition: Struct<'static>,
    ) -> Struct<'static> {
        let topic = Struct::new()
            .with(name, self.topic())
            .with(list, vec![partition]);
        Struct::new().with("topics", vec![topic])
    }

    fn of_partitions(self) -> Vec<Request> {
        let none = Struct::new;
        let number = none().with("partitionIndex", 0);
        let listed = self.partition("name", "partitions", number);
        let epoch = none().with("partition", 0);
        let epoch = self.partition("topic", "partitions", epoch);
        let topics = self.fetch(0, 2_000, (0, -1));
        let topics = topics.get("topics").unwrap().clone();
        let old = none().with("maxWaitMs", 0).with("topics", topics);
        let record = none()
            .with("index", 0)
            .with("records", self.secret(200).into_bytes());
        let produce = |name: &'static str| {
            let topic = none()
                .with("name", format!("{}{name}", self.topic()))
                .with("partitionData", vec![record.clone()]);
            none().with("acks", 1_i16).with("topicData", vec![topic])
        };
        let unknown = none().with("name", self.secret(100));
        let sizes = self.partitions("topic", "partitions");
        vec![
            (&apis::METADATA, 1, self.metadata()),
            (&apis::METADATA, 12, self.metadata()),
            (&apis::METADATA, 9, none().with("topics", vec![unknown])),
            (&apis::FETCH, 4, old),
            (&apis::FETCH, 12, self.fetch(0, 2_000, (0, 0))),
            (&apis::FETCH, 12, self.fetch(1 << 40, 2_000, (0, -1))),
            (&apis::FETCH, 12, self.fetch(0, 2_000, (77, 5))),
            (&apis::LIST_OFFSETS, 1, listed.clone()),
            (&apis::LIST_OFFSETS, 9, listed),
            (&apis::OFFSET_FOR_LEADER_EPOCH, 4, epoch),
            (&apis::PRODUCE, 3, produce("")),
            (&apis::PRODUCE, 12, produce("-unknown")),
            (&apis::DESCRIBE_LOG_DIRS, 1, none().with("topics", sizes)),
        ]
    }

    fn of_groups(self) -> Vec<Request> {
        let none = Struct::new;
        let group = || none().with("groupId", self.group());
        let stranger = self.secret(20);
        let leaving = none().with("memberId", stranger.clone());
        let keys = vec![self.group(), self.secret(50)];
        let every = group().with("topics", Value::Null);
        let number = none().with("partitionIndex", 0);
        let deleted = self.partition("name", "partitions", number);
        let deleted = deleted.get("topics").unwrap().clone();
        let named = |list: &'static str| none().with(list, vec![self.group()]);
        vec![
            (&apis::FIND_COORDINATOR, 0, none().with("key", self.group())),
            (
                &apis::FIND_COORDINATOR,
                4,
                none().with("coordinatorKeys", keys),
            ),
            (&apis::JOIN_GROUP, 9, self.join("")),
            (&apis::JOIN_GROUP, 3, self.join(&stranger)),
            (&apis::JOIN_GROUP, 2, self.join("")),
            (&apis::SYNC_GROUP, 3, self.sync(&stranger, 1)),
            (&apis::HEARTBEAT, 4, self.heartbeat(&stranger, 1)),
            (&apis::OFFSET_COMMIT, 2, self.commit("", -1, 3)),
            (&apis::OFFSET_COMMIT, 8, self.commit(&stranger, 7, 3)),
            (&apis::OFFSET_FETCH, 1, self.committed()),
            (&apis::OFFSET_FETCH, 8, none().with("groups", vec![every])),
            (&apis::DESCRIBE_GROUPS, 5, named("groups")),
            (&apis::DELETE_GROUPS, 2, named("groupsNames")),
            (&apis::OFFSET_DELETE, 0, group().with("topics", deleted)),
            (
                &apis::LEAVE_GROUP,
                5,
                group().with("members", vec![leaving]),
            ),
        ]
    }

    fn of_the_server(self) -> Vec<Request> {
        let none = Struct::new;
        let resource = none()
            .with("resourceType", 2_i8)
            .with("resourceName", self.topic());
        let resources = || none().with("resources", vec![resource.clone()]);
        let documented = resources()
            .with("includeSynonyms", true)
            .with("includeDocumentation", true);
        let filter = none()
            .with("resourceTypeFilter", 2_i8)
            .with("resourceNameFilter", self.topic())
            .with("operation", 1_i8)
            .with("permissionType", 1_i8);
        let software = none().with("clientSoftwareName", "tests");
        let producer = |id: Value<'static>| none().with("transactionalId", id);
        vec![
            (&apis::API_VERSIONS, 0, none()),
            (&apis::API_VERSIONS, 3, software),
            (&apis::INIT_PRODUCER_ID, 4, producer(self.secret(20).into())),
            (&apis::INIT_PRODUCER_ID, 0, producer(Value::Null)),
            (&apis::DESCRIBE_ACLS, 1, filter),
            (&apis::DESCRIBE_CONFIGS, 1, resources()),
            (&apis::DESCRIBE_CONFIGS, 4, documented),
            (&apis::DESCRIBE_CLUSTER, 1, none()),
        ]
    }

    /// The first mark in these bytes that is not this client's, and where it stands; names count only where they are not shown to all.
    pub fn foreign(self, bytes: &[u8], shows_names: bool) -> Option<(usize, String)> {
        let others = (0..OWNERS).map(Self).filter(|&owner| owner != self);
        let others: HashSet<String> = others
            .flat_map(|owner| [owner.public(), owner.private()])
            .collect();
        let is_mark = |at: &usize| bytes[*at] == MARK[0] && bytes[*at..].starts_with(MARK);
        for at in (0..bytes.len()).filter(is_mark) {
            let mark = &bytes[at..bytes.len().min(at + MARK_BYTES)];
            let is_shown = shows_names && mark.get(4) == Some(&b'N');
            // One that is cut off or changed is nobody's.
            if let Some(mark) = std::str::from_utf8(mark).ok().and_then(|it| others.get(it))
                && !is_shown
            {
                return Some((at, mark.clone()));
            }
        }
        None
    }
}

/// Whether any of the frames in what a client sent may be a request for the names of all.
pub fn asks_for_all(mut sent: &[u8]) -> bool {
    let all = [
        apis::METADATA.key,
        apis::LIST_GROUPS.key,
        apis::DESCRIBE_LOG_DIRS.key,
    ];
    while let Some((length, rest)) = sent.split_first_chunk() {
        if let Some(key) = rest.first_chunk()
            && all.contains(&i16::from_be_bytes(*key))
        {
            return true;
        }
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        sent = rest.get(length..).unwrap_or_default();
    }
    false
}
