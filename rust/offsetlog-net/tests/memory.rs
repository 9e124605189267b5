//! What a request that repeats names makes the server allocate: a bounded multiple of its bytes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    dead_code,
    missing_docs,
    unreachable_pub
)]

#[path = "broker/client.rs"]
mod client;

use client::{Asks, Client, Fetch, NOW, clean, int, open, structs};
use offsetlog::format::cursor::Reader;
use offsetlog::format::error::Part;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::{Api, RequestHeader, apis};
use offsetlog_net::transport::{ServerLimits, answer_all};
use offsetlog_net::{AnyRoom, Service, Step, VALUE_BYTES};
use peak_alloc::PeakAlloc;
use std::sync::{Mutex, PoisonError};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// One test at a time: they count what all threads allocate.
static ALONE: Mutex<()> = Mutex::new(());

/// Bytes of memory for a byte of a request. Reading a frame may take a hundred.
const MOST: usize = 200;
/// What an answer costs, however small the request is.
const ALWAYS: usize = 1 << 20;

/// Sends a frame. Returns the step, and the bytes that were allocated at its peak.
fn measured(client: &mut Client<'_>, frame: &[u8]) -> (Step, usize) {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let session = client.session.as_mut().unwrap();
    let step = client
        .broker
        .receive(session, frame, client.now, &mut AnyRoom);
    (step, MEMORY.peak_usage() - before)
}

/// Sends a request; its peak must be within the bounds.
fn send(
    client: &mut Client<'_>,
    what: &str,
    api: &Api,
    version: i16,
    request: &Struct<'_>,
) -> Step {
    let frame = client.frame(api, version, request);
    let (step, peak) = measured(client, &frame);
    assert!(
        peak <= MOST * frame.len() + ALWAYS,
        "{what}: {peak} bytes for a request of {}",
        frame.len()
    );
    step
}

fn repeated(element: &Struct<'static>, count: usize) -> Vec<Struct<'static>> {
    vec![element.clone(); count]
}

fn ask(
    client: &mut Client<'_>,
    what: &str,
    api: &Api,
    version: i16,
    request: &Struct<'_>,
) -> Struct<'static> {
    match send(client, what, api, version, request) {
        Step::Reply(reply) => client.response(api, version, &reply),
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn a_request_costs_a_bounded_multiple_of_its_bytes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let broker = open(&clean()).with_coordinator(None, NOW).unwrap();
    let client = &mut Client::new(&broker);
    fetches(client);
    topics(client);
    described_groups(client);
    fetched_offsets(client);
}

fn fetches(client: &mut Client<'_>) {
    let fetch_of = |name: &str, partitions: Vec<i32>, session: (i32, i32)| {
        let partitions: Vec<Struct<'static>> = partitions
            .into_iter()
            .map(|number| {
                Struct::new()
                    .with("partition", number)
                    .with("fetchOffset", 0)
                    .with("partitionMaxBytes", 1000)
            })
            .collect();
        let topic = Struct::new()
            .with("topic", name.to_owned())
            .with("partitions", partitions);
        let mut fetch = Fetch::new("", 0, 0);
        fetch.session = session;
        fetch.frame().with("topics", vec![topic])
    };
    // A name for all its partitions, once and for ever.
    let long = "x".repeat(32_000);
    for session in [(0, -1), (0, 0)] {
        for (name, each) in [
            (long.as_str(), 0),
            (&long, 1),
            ("g-plain", 0),
            ("g-plain", 1),
        ] {
            let partitions = (0..10_000).map(|number| number * each).collect();
            let request = fetch_of(name, partitions, session);
            ask(client, "Fetch", &apis::FETCH, 12, &request);
        }
    }
    // What is repeated is one partition, where it stood first and with what was said last, as in Kafka.
    let last = Struct::new()
        .with("partition", 0)
        .with("fetchOffset", 3)
        .with("partitionMaxBytes", 1000);
    let mut partitions = repeated(&last.clone().with("fetchOffset", 1_i64 << 40), 9_999);
    partitions.push(last);
    let topic = Struct::new()
        .with("topic", "g-plain")
        .with("partitions", partitions);
    let request = Fetch::new("", 0, 0).frame().with("topics", vec![topic]);
    let answer = ask(client, "Fetch", &apis::FETCH, 12, &request);
    let answered = structs(&structs(&answer, "responses")[0], "partitions");
    assert_eq!((answered.len(), int(&answered[0], "errorCode")), (1, 0));
}

/// Topics and their settings.
fn topics(client: &mut Client<'_>) {
    let topic = Struct::new().with("name", "g-plain");
    let request = Struct::new().with("topics", repeated(&topic, 20_000));
    let answer = ask(client, "Metadata", &apis::METADATA, 12, &request);
    assert_eq!(structs(&answer, "topics").len(), 1);
    let (id, _) = client.metadata("g-plain");
    let topic = Struct::new().with("name", Value::Null).with("topicId", id);
    let request = Struct::new().with("topics", repeated(&topic, 5_000));
    let answer = ask(client, "Metadata", &apis::METADATA, 12, &request);
    assert_eq!(structs(&answer, "topics").len(), 1);
    let resource = Struct::new()
        .with("resourceType", 2_i8)
        .with("resourceName", "g-plain")
        .with("configurationKeys", vec!["cleanup.policy"]);
    let mut resources = repeated(&resource, 2_000);
    resources.push(resource.with("configurationKeys", vec!["retention.ms"]));
    let request = Struct::new()
        .with("resources", resources)
        .with("includeSynonyms", true)
        .with("includeDocumentation", true);
    let answer = ask(
        client,
        "DescribeConfigs",
        &apis::DESCRIBE_CONFIGS,
        4,
        &request,
    );
    let results = structs(&answer, "results");
    assert_eq!(results.len(), 1);
    assert_eq!(
        structs(&results[0], "configs").len(),
        2,
        "what any of them asks for"
    );
}

/// Members come with what they sent.
fn described_groups(client: &mut Client<'_>) {
    let protocol = Struct::new()
        .with("name", "range")
        .with("metadata", vec![0_u8; 10_000]);
    let join = Struct::new()
        .with("groupId", "members")
        .with("sessionTimeoutMs", 10_000)
        .with("rebalanceTimeoutMs", 60_000)
        .with("memberId", "")
        .with("protocolType", "test")
        .with("protocols", vec![protocol]);
    let joined = client.call(&apis::JOIN_GROUP, 3, &join);
    let member = joined.get("memberId").and_then(Value::as_str).unwrap();
    let sync = Struct::new()
        .with("groupId", "members")
        .with("memberId", member.to_owned())
        .with("generationId", 1)
        .with("assignments", Vec::<Struct<'_>>::new());
    client.call(&apis::SYNC_GROUP, 3, &sync);
    let request = Struct::new().with("groups", vec!["members"; 2_000]);
    let answer = ask(
        client,
        "DescribeGroups",
        &apis::DESCRIBE_GROUPS,
        5,
        &request,
    );
    let groups = structs(&answer, "groups");
    assert_eq!((groups.len(), structs(&groups[0], "members").len()), (1, 1));
}

/// Offsets come with what was committed with them.
fn fetched_offsets(client: &mut Client<'_>) {
    let partition = Struct::new()
        .with("partitionIndex", 0)
        .with("committedOffset", 1)
        .with("committedMetadata", "m".repeat(4_000));
    let topic = Struct::new()
        .with("name", "g-plain")
        .with("partitions", vec![partition]);
    let commit = Struct::new()
        .with("groupId", "offsets")
        .with("generationIdOrMemberEpoch", -1)
        .with("topics", vec![topic]);
    client.call(&apis::OFFSET_COMMIT, 8, &commit);
    let topic = Struct::new()
        .with("name", "g-plain")
        .with("partitionIndexes", vec![0; 10_000]);
    let topics = repeated(&topic.clone().with("partitionIndexes", vec![0]), 1_000);
    let offsets_of = |groups: Vec<Struct<'static>>| Struct::new().with("groups", groups);
    let group = Struct::new().with("groupId", "offsets");
    for (groups, answers) in [
        (
            repeated(&group.clone().with("topics", Value::Null), 3_000),
            1,
        ),
        (vec![group.clone().with("topics", vec![topic])], 1),
        (vec![group.clone().with("topics", topics.clone())], 1),
        (
            repeated(&group.with("topics", vec![topics[0].clone()]), 1_000),
            1,
        ),
    ] {
        let answer = ask(
            client,
            "OffsetFetch",
            &apis::OFFSET_FETCH,
            8,
            &offsets_of(groups),
        );
        let groups = structs(&answer, "groups");
        let topics = groups.iter().flat_map(|group| structs(group, "topics"));
        let told = topics.map(|topic| structs(&topic, "partitions").len());
        assert_eq!(told.sum::<usize>(), answers);
    }
    let topic = Struct::new()
        .with("name", "g-plain")
        .with("partitionIndexes", vec![0; 10_000]);
    let request = Struct::new()
        .with("groupId", "offsets")
        .with("topics", vec![topic]);
    ask(client, "OffsetFetch", &apis::OFFSET_FETCH, 7, &request);
}

/// Sessions of all connections together have a bound, however long the names in them are.
#[test]
fn fetch_sessions_are_bounded_by_bytes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let broker = open(&clean());
    let client = &mut Client::new(&broker);
    let before = MEMORY.current_usage();
    let mut refused = 0;
    for round in 0..40 {
        let topics: Vec<Struct<'static>> = (0..4_000)
            .map(|number| {
                let partition = Struct::new()
                    .with("partition", 0)
                    .with("fetchOffset", 0)
                    .with("partitionMaxBytes", 1000);
                Struct::new()
                    .with("topic", format!("{round:0100}-{number:0100}"))
                    .with("partitions", vec![partition])
            })
            .collect();
        let mut fetch = Fetch::new("", 0, 0);
        fetch.session = (0, 0);
        let request = fetch.frame().with("topics", topics);
        let answer = client.call(&apis::FETCH, 12, &request);
        refused += usize::from(int(&answer, "sessionId") == 0);
    }
    let kept = MEMORY.current_usage().saturating_sub(before);
    assert!(kept < 80 << 20, "{kept}");
    assert!((1..39).contains(&refused), "{refused}");
}

/// Values of a request: the fewest with which it can be read.
fn values_of(client: &mut Client<'_>, api: &Api, version: i16, request: &Struct<'_>) -> usize {
    let frame = client.frame(api, version, request);
    let mut reader = Reader::new(&frame, Part::Protocol);
    RequestHeader::read(&mut reader).unwrap();
    let (mut few, mut enough) = (0, 1 << 20);
    while few + 1 < enough {
        let half = usize::midpoint(few, enough);
        match api.request.read_within(version, &mut reader.clone(), half) {
            Ok(_) => enough = half,
            Err(_) => few = half,
        }
    }
    enough
}

/// Requests of many values, each of which is answered.
fn requests_of_many(count: i32) -> Vec<(&'static Api, i16, Struct<'static>)> {
    let names: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let all_of = |field: &'static str, one: &dyn Fn(i32) -> Struct<'static>| {
        let all: Vec<Struct<'static>> = (0..count).map(one).collect();
        Struct::new().with(field, all)
    };
    let numbers = || (0..count).collect::<Vec<i32>>();
    let numbered = |list: &'static str| {
        let topic = Struct::new().with("name", "g-plain").with(list, numbers());
        vec![topic]
    };
    let group = Struct::new()
        .with("groupId", "nobody")
        .with("topics", numbered("partitionIndexes"));
    let config = |number: i32| {
        Struct::new()
            .with("resourceType", 2_i8)
            .with("resourceName", number.to_string())
    };
    let asked = |number: i32| Struct::new().with("partitionIndex", number);
    let epoch = |number: i32| Struct::new().with("partition", number);
    let committed = |number: i32| asked(number).with("committedOffset", 1);
    let of_topic = |name: &'static str, one: &dyn Fn(i32) -> Struct<'static>| {
        let partitions: Vec<Struct<'static>> = (0..count).map(one).collect();
        let topic = Struct::new()
            .with(name, "g-plain")
            .with("partitions", partitions);
        vec![topic]
    };
    let in_group = Struct::new().with("groupId", "nobody");
    vec![
        (
            &apis::FIND_COORDINATOR,
            4,
            Struct::new().with("coordinatorKeys", names.clone()),
        ),
        (
            &apis::DESCRIBE_GROUPS,
            5,
            Struct::new().with("groups", names.clone()),
        ),
        (
            &apis::DELETE_GROUPS,
            2,
            Struct::new().with("groupsNames", names),
        ),
        (
            &apis::METADATA,
            4,
            all_of("topics", &|number| {
                Struct::new().with("name", number.to_string())
            }),
        ),
        (&apis::OFFSET_FETCH, 7, group),
        (&apis::DESCRIBE_CONFIGS, 4, all_of("resources", &config)),
        (
            &apis::LIST_OFFSETS,
            7,
            Struct::new()
                .with("replicaId", -1)
                .with("topics", of_topic("name", &asked)),
        ),
        (
            &apis::OFFSET_FOR_LEADER_EPOCH,
            4,
            Struct::new()
                .with("replicaId", -1)
                .with("topics", of_topic("topic", &epoch)),
        ),
        (
            &apis::OFFSET_COMMIT,
            8,
            in_group
                .clone()
                .with("generationIdOrMemberEpoch", -1)
                .with("topics", of_topic("name", &committed)),
        ),
        (
            &apis::OFFSET_DELETE,
            0,
            in_group.with("topics", of_topic("name", &asked)),
        ),
    ]
}

/// A list of short names costs most for each byte: each is answered with a structure.
#[test]
fn a_value_costs_no_more_than_is_counted_for_it() {
    const COUNT: i32 = 20_000;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let broker = open(&clean()).with_coordinator(None, NOW).unwrap();
    let client = &mut Client::new(&broker);
    for (api, version, request) in requests_of_many(COUNT) {
        let values = values_of(client, api, version, &request);
        assert!(values >= COUNT as usize, "{}", api.name);
        let frame = client.frame(api, version, &request);
        let (step, peak) = measured(client, &frame);
        assert!(matches!(step, Step::Reply(_)), "{}: {step:?}", api.name);
        let most = values * usize::try_from(VALUE_BYTES).unwrap() + ALWAYS;
        assert!(
            peak <= most,
            "{}: {peak} bytes for {values} values",
            api.name
        );
        println!("{}: {} bytes a value", api.name, peak / values);
    }
}

/// A request that may cost more than there is ends its connection, and none other.
#[test]
fn a_request_that_is_too_large_ends_its_connection() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let broker = open(&clean()).with_coordinator(None, NOW).unwrap();
    let mut client = Client::new(&broker);
    let limits = ServerLimits {
        requests_bytes_max: 20_000 * VALUE_BYTES,
        ..ServerLimits::default()
    };
    for (count, is_answered) in [(19_000, true), (21_000, false)] {
        let names: Vec<String> = (0..count).map(|number: i32| number.to_string()).collect();
        let request = Struct::new().with("coordinatorKeys", names);
        let frame = client.frame(&apis::FIND_COORDINATOR, 4, &request);
        let mut input = i32::try_from(frame.len()).unwrap().to_be_bytes().to_vec();
        input.extend_from_slice(&frame);
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        let output = answer_all(&broker, &limits, None, &input);
        let peak = MEMORY.peak_usage() - before;
        assert_eq!(output.is_empty(), !is_answered);
        assert!(peak <= 20_000 * 600 + (2 << 20), "{peak}");
    }
}
