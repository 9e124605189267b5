//! Known traps, as a client meets them: what it asks, and what Kafka's clients need to be told.
//!
//! A client without sockets and clients in a world both run them, against [`open_served`].

use super::logic::{Asks, Fetch, NOW, clean, consume, copy, data, int, read_all, structs};
use super::trap_15::{
    commits_come_back_with_their_metadata, settings_are_told_but_secrets, times_are_looked_up,
};
use super::trap_16::sessions_tell_what_changed;
use offsetlog::Isolation::{ReadCommitted, ReadUncommitted};
use offsetlog::format::Uuid;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::{ANNOUNCED, api, apis};
use offsetlog_net::server::{Broker, ServeOptions};
use std::path::Path;

type Trap = (&'static str, fn(&mut dyn Asks));

pub const ALL: [Trap; 22] = [
    (
        "leader_epochs_are_not_below_committed_ones",
        leader_epochs_are_not_below_committed_ones,
    ),
    (
        "missing_partitions_have_no_leader",
        missing_partitions_have_no_leader,
    ),
    (
        "topics_without_an_id_are_fetched_by_name",
        topics_without_an_id_are_fetched_by_name,
    ),
    ("produce_is_refused_by_policy", produce_is_refused_by_policy),
    ("producers_get_ids", producers_get_ids),
    ("aborted_list_is_exact", aborted_list_is_exact),
    ("records_are_never_null", records_are_never_null),
    (
        "old_formats_go_out_as_they_are",
        old_formats_go_out_as_they_are,
    ),
    ("high_watermark_is_the_end", high_watermark_is_the_end),
    ("announced_is_what_is_read", announced_is_what_is_read),
    ("whole_batches_come", whole_batches_come),
    (
        "unknown_api_versions_are_answered",
        unknown_api_versions_are_answered,
    ),
    (
        "out_of_range_carries_no_offsets",
        out_of_range_carries_no_offsets,
    ),
    (
        "commits_come_back_with_their_metadata",
        commits_come_back_with_their_metadata,
    ),
    (
        "settings_are_told_but_secrets",
        settings_are_told_but_secrets,
    ),
    ("times_are_looked_up", times_are_looked_up),
    ("sessions_tell_what_changed", sessions_tell_what_changed),
    ("first_batch_comes_whole", first_batch_comes_whole),
    ("advertised_address_is_told", advertised_address_is_told),
    ("metadata_lists_what_is_named", metadata_lists_what_is_named),
    ("leader_epochs_end_and_fence", leader_epochs_end_and_fence),
    ("another_broker_is_no_replica", another_broker_is_no_replica),
];

/// A log dir with a hole between two partitions, and with topics of clusters before 2.8.
pub fn old_log_dir() -> tempfile::TempDir {
    let folder = copy(&[
        "kafka-4.3.0/clean/log-dir-1/g-plain-0",
        "kafka-4.3.0/clean/log-dir-1/g-plain-2",
        "kafka-2.8.2/broker-1/o-v0-none-0",
        "kafka-2.8.2/broker-1/o-v1-lz4-0",
    ]);
    for (from, to) in [("g-plain-0", "holes-0"), ("g-plain-2", "holes-2")] {
        std::fs::rename(folder.path().join(from), folder.path().join(to)).unwrap();
    }
    // Ids are of 2.8 and later.
    for name in ["holes-0", "holes-2", "o-v0-none-0", "o-v1-lz4-0"] {
        let _ = std::fs::remove_file(folder.path().join(name).join("partition.metadata"));
    }
    folder
}

/// A server of that log dir and of a cluster of today.
pub fn open_served(old_log_dir: &Path) -> Broker {
    let broker_settings = offsetlog::BrokerSettings::parse([
        ("ssl.keystore.password", "very secret"),
        ("log.retention.ms", "12345"),
        ("node.id", "1"),
    ])
    .unwrap();
    let options = ServeOptions {
        broker_settings: Some(broker_settings),
        node_id: Some(1),
        host: "kafka.example".to_owned(),
        port: 19092,
        ..ServeOptions::default()
    };
    let mut paths = clean();
    paths.push(old_log_dir.to_path_buf());
    let broker = Broker::open(&paths, options).unwrap();
    broker.with_coordinator(None, NOW).unwrap()
}

/// The same fetch in each version that begins with this one, by name and by id.
fn of_versions<'t>(client: &mut dyn Asks, first: i16, fetch: &Fetch<'t>) -> Vec<Fetch<'t>> {
    let topic = Struct::new().with("name", fetch.topic.to_owned());
    let request = Struct::new().with("topics", vec![topic]);
    let response = client.call(&apis::METADATA, 12, &request);
    let topic = &structs(&response, "topics")[0];
    let told = topic.get("topicId").and_then(Value::as_uuid).unwrap();
    // One that nobody has, for a topic that is not there.
    let topic_id = if told.is_zero() {
        Uuid::from_bytes([9; 16])
    } else {
        told
    };
    let each = |version| Fetch {
        version,
        topic_id,
        ..fetch.clone()
    };
    (first..=16).map(each).collect()
}

fn announced(client: &mut dyn Asks) -> Vec<(i64, i64, i64)> {
    let request = Struct::new()
        .with("clientSoftwareName", "test")
        .with("clientSoftwareVersion", "1.0");
    let response = client.call(&apis::API_VERSIONS, 3, &request);
    assert_eq!(int(&response, "errorCode"), 0);
    structs(&response, "apiKeys")
        .iter()
        .map(|each| {
            (
                int(each, "apiKey"),
                int(each, "minVersion"),
                int(each, "maxVersion"),
            )
        })
        .collect()
}

/// Java's groups read nothing, and say nothing, from a partition with a leader epoch below that of a committed offset.
pub fn leader_epochs_are_not_below_committed_ones(client: &mut dyn Asks) {
    let response = client.call(&apis::LIST_GROUPS, 0, &Struct::new());
    let groups = structs(&response, "groups");
    let groups = groups
        .iter()
        .filter_map(|each| each.get("groupId").and_then(Value::as_str));
    let mut checked = 0;
    for group in groups.filter(|group| group.starts_with("g-")) {
        let request = Struct::new()
            .with("groupId", group.to_owned())
            .with("topics", Value::Null);
        let response = client.call(&apis::OFFSET_FETCH, 7, &request);
        for topic in structs(&response, "topics") {
            let name = topic.get("name").and_then(Value::as_str).unwrap();
            let (_, told) = client.metadata(name);
            for partition in structs(&topic, "partitions") {
                let (error, _, epoch) = told[int(&partition, "partitionIndex") as usize];
                assert_eq!(error, 0);
                let committed = int(&partition, "committedLeaderEpoch");
                assert!(epoch >= committed, "{name}: {partition:?}");
                checked += usize::from(committed >= 0);
            }
        }
    }
    assert!(checked > 0);
}

/// Listed as two entries, librdkafka hangs; as three, every client reads the two that are here.
pub fn missing_partitions_have_no_leader(client: &mut dyn Asks) {
    let (_, partitions) = client.metadata("holes");
    let told: Vec<(i64, i64)> = partitions
        .iter()
        .map(|(error, leader, _)| (*error, *leader))
        .collect();
    assert_eq!(told, [(0, 1), (5, -1), (0, 1)]);
    for partition in [0, 2] {
        let (seen, _, error) = read_all(client, &Fetch::new("holes", partition, 0));
        assert_eq!(error, 0);
        assert!(!seen.is_empty());
    }
    assert_eq!(client.fetch(&Fetch::new("holes", 1, 0)).error, 6);
    assert_eq!(client.offset(("holes", 1), -1, ReadUncommitted).0, 6);
    assert_eq!(client.offset(("holes", 3), -1, ReadUncommitted).0, 3);
}

pub fn topics_without_an_id_are_fetched_by_name(client: &mut dyn Asks) {
    let (id, _) = client.metadata("o-v0-none");
    assert!(id.is_zero());
    for version in 13..=16 {
        let by_id = Fetch {
            version,
            ..Fetch::new("", 0, 0)
        };
        assert_eq!(client.fetch(&by_id).error, 100);
    }
    let (seen, _, error) = read_all(client, &Fetch::new("o-v0-none", 0, 0));
    assert_eq!(error, 0);
    assert!(!seen.is_empty());
}

pub fn produce_is_refused_by_policy(client: &mut dyn Asks) {
    assert!(announced(client).contains(&(0, 0, 12)));
    for version in 3..=12 {
        let partition = Struct::new()
            .with("index", 0)
            .with("records", vec![1_u8; 70]);
        let topic = Struct::new()
            .with("name", "g-plain")
            .with("partitionData", vec![partition]);
        let mut request = Struct::new()
            .with("acks", -1_i16)
            .with("timeoutMs", 1000)
            .with("topicData", vec![topic]);
        let response = client.call(&apis::PRODUCE, version, &request);
        let topic = &structs(&response, "responses")[0];
        let partition = &structs(topic, "partitionResponses")[0];
        assert_eq!(int(partition, "errorCode"), 44);
        assert_eq!(int(partition, "baseOffset"), -1);
        // As in Kafka, the end of the connection tells a producer that reads no answer.
        request.set("acks", 0_i16);
        let frame = client.frame(&apis::PRODUCE, version, &request);
        let answer = client.answer(&frame, &apis::PRODUCE, version);
        assert!(answer.is_none(), "{answer:?}");
    }
}

pub fn producers_get_ids(client: &mut dyn Asks) {
    for version in 0..=4 {
        let request = Struct::new()
            .with("transactionalId", Value::Null)
            .with("transactionTimeoutMs", 1000);
        let response = client.call(&apis::INIT_PRODUCER_ID, version, &request);
        assert_eq!(int(&response, "errorCode"), 0);
        assert!(int(&response, "producerId") >= 0);
        let request = request.with("transactionalId", "tx");
        let response = client.call(&apis::INIT_PRODUCER_ID, version, &request);
        assert_eq!(int(&response, "errorCode"), 44);
    }
}

/// 328 records, 170 of them committed: without the list Java returns aborted ones as committed.
pub fn aborted_list_is_exact(client: &mut dyn Asks) {
    for uncommitted in of_versions(client, 4, &Fetch::new("g-txn", 0, 0)) {
        let committed = Fetch {
            isolation: ReadCommitted,
            ..uncommitted.clone()
        };
        let fetched = client.fetch(&committed);
        assert_eq!(fetched.last_stable, 347);
        assert_eq!(fetched.high_watermark, 394);
        assert!(!fetched.aborted.as_ref().unwrap().is_empty());
        let (seen, end, _) = read_all(client, &committed);
        assert_eq!((seen.len(), end), (170, 347));
        let fetched = client.fetch(&uncommitted);
        assert_eq!(fetched.aborted, None, "null, as Kafka sends it");
        assert_eq!(fetched.last_stable, 347);
        // At the last stable offset there is nothing, and the list is empty.
        let fetched = client.fetch(&Fetch {
            offset: 347,
            ..committed
        });
        assert_eq!(fetched.bytes(), b"");
        assert_eq!(fetched.aborted, Some(Vec::new()));
    }
}

pub fn records_are_never_null(client: &mut dyn Asks) {
    // The error by name, and by id.
    let cases = [
        ("g-empty", 0, 0, (0, 0)),
        ("g-plain", 0, 1 << 40, (1, 1)),
        ("g-plain", 77, 0, (3, 3)),
        ("absent", 0, 0, (3, 100)),
    ];
    for (topic, partition, offset, (by_name, by_id)) in cases {
        for fetch in of_versions(client, 4, &Fetch::new(topic, partition, offset)) {
            let (version, error) = (
                fetch.version,
                if fetch.version < 13 { by_name } else { by_id },
            );
            let fetched = client.fetch(&fetch);
            assert_eq!(
                fetched.error, error,
                "{topic}-{partition} in version {version}"
            );
            assert_eq!(
                fetched.records.as_deref(),
                Some(&b""[..]),
                "version {version}"
            );
        }
    }
}

pub fn old_formats_go_out_as_they_are(client: &mut dyn Asks) {
    let fetched = client.fetch(&Fetch::new("o-v1-lz4", 0, 0));
    let path = data("kafka-2.8.2/broker-1/o-v1-lz4-0/00000000000000000000.log");
    let file = std::fs::read(path).unwrap();
    assert!(!fetched.bytes().is_empty());
    assert!(file.starts_with(fetched.bytes()));
}

/// The high watermark that comes with the data is of the same moment: at the end of the data, and never behind it.
pub fn high_watermark_is_the_end(client: &mut dyn Asks) {
    let (_, _, end, _) = client.offset(("g-big", 0), -1, ReadUncommitted);
    let mut fetch = Fetch {
        partition_max_bytes: 1000,
        ..Fetch::new("g-big", 0, 0)
    };
    loop {
        let fetched = client.fetch(&fetch);
        assert_eq!(fetched.high_watermark, end);
        let (_, next) = consume(&fetched, fetch.offset);
        if next == fetch.offset {
            break;
        }
        fetch.offset = next;
    }
    assert_eq!(fetch.offset, end);
}

pub fn announced_is_what_is_read(client: &mut dyn Asks) {
    for (key, lowest, highest) in announced(client) {
        let api = api(key as i16).unwrap();
        for version in lowest.max(i64::from(api.lowest_version()))..=highest {
            assert!(api.has_version(version as i16), "{} {version}", api.name);
        }
    }
    assert_eq!(announced(client).len(), ANNOUNCED.len());
    for (key, version) in [(1_i16, 17_i16), (1, 3), (0, 2), (75, 0), (68, 0), (999, 0)] {
        let mut frame = Vec::new();
        frame.extend_from_slice(&key.to_be_bytes());
        frame.extend_from_slice(&version.to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0, 1, 0xff, 0xff, 0]);
        let answer = client.answer(&frame, &apis::API_VERSIONS, 0);
        assert!(answer.is_none(), "{answer:?}");
    }
}

/// A consumer that begins inside a batch needs all of it, the lower offsets too; or it hangs for ever.
pub fn whole_batches_come(client: &mut dyn Asks) {
    let whole = client.fetch(&Fetch {
        partition_max_bytes: 1,
        ..Fetch::new("g-codec-gzip", 0, 0)
    });
    let (_, next) = consume(&whole, 0);
    assert!(next > 3, "one batch of several records");
    for offset in 1..next {
        let inside = client.fetch(&Fetch {
            partition_max_bytes: 1,
            ..Fetch::new("g-codec-gzip", 0, offset)
        });
        assert_eq!(inside.records, whole.records, "{offset}");
    }
}

pub fn unknown_api_versions_are_answered(client: &mut dyn Asks) {
    let mut frame = client.frame(&apis::API_VERSIONS, 3, &Struct::new());
    frame[2..4].copy_from_slice(&9_i16.to_be_bytes());
    let response = client.answer(&frame, &apis::API_VERSIONS, 0).unwrap();
    assert_eq!(int(&response, "errorCode"), 35);
    let keys = structs(&response, "apiKeys");
    assert!(keys.iter().any(|each| int(each, "apiKey") == 18));
    for version in 0..3 {
        let response = client.call(&apis::API_VERSIONS, version, &Struct::new());
        assert_eq!(structs(&response, "apiKeys").len(), ANNOUNCED.len());
    }
    // A name that is none, as a broker refuses it.
    let response = client.call(&apis::API_VERSIONS, 3, &Struct::new());
    assert_eq!(int(&response, "errorCode"), 42);
}

pub fn out_of_range_carries_no_offsets(client: &mut dyn Asks) {
    let (_, _, start, _) = client.offset(("g-deleted-prefix", 0), -2, ReadUncommitted);
    assert!(start > 0);
    for (topic, offset) in [
        ("g-plain", -1),
        ("g-plain", 1 << 40),
        ("g-deleted-prefix", start - 1),
    ] {
        for fetch in of_versions(client, 4, &Fetch::new(topic, 0, offset)) {
            for isolation in [ReadUncommitted, ReadCommitted] {
                let fetched = client.fetch(&Fetch {
                    isolation,
                    ..fetch.clone()
                });
                assert_eq!(
                    fetched.error, 1,
                    "{topic} {offset} in version {}",
                    fetch.version
                );
                assert_eq!((fetched.high_watermark, fetched.log_start), (-1, -1));
            }
        }
    }
}

pub fn first_batch_comes_whole(client: &mut dyn Asks) {
    let topic = |partition: i32| {
        Struct::new()
            .with("partition", partition)
            .with("fetchOffset", 0_i64)
            .with("partitionMaxBytes", 1)
    };
    let topics = Struct::new()
        .with("topic", "g-plain")
        .with("partitions", vec![topic(0), topic(1), topic(2)]);
    let request = Fetch::new("", 0, 0).frame().with("topics", vec![topics]);
    let response = client.call(&apis::FETCH, 12, &request);
    let partitions = structs(&structs(&response, "responses")[0], "partitions");
    let lengths: Vec<usize> = partitions
        .iter()
        .map(|each| each.get("records").and_then(Value::as_bytes).unwrap().len())
        .collect();
    assert!(lengths[0] > 1, "the first batch, although it is larger");
    assert_eq!(lengths[1..], [0, 0]);
    // Two batches and a bit are two batches.
    let one = client.fetch(&Fetch {
        partition_max_bytes: 1,
        ..Fetch::new("g-big", 0, 0)
    });
    let (_, next) = consume(&one, 0);
    let two = client.fetch(&Fetch {
        partition_max_bytes: 1,
        ..Fetch::new("g-big", 0, next)
    });
    let sum = one.bytes().len() + two.bytes().len();
    for (limit, expected) in [(sum - 1, one.bytes().len()), (sum, sum), (sum + 1, sum)] {
        // Twice: read and checked, then remembered.
        for _ in 0..2 {
            let fetched = client.fetch(&Fetch {
                partition_max_bytes: limit as i32,
                ..Fetch::new("g-big", 0, 0)
            });
            assert_eq!(fetched.bytes().len(), expected, "limit {limit}");
        }
    }
}

pub fn advertised_address_is_told(client: &mut dyn Asks) {
    for version in 0..=12 {
        let response = client.call(&apis::METADATA, version, &Struct::new());
        let nodes = structs(&response, "brokers");
        assert_eq!(nodes.len(), 1);
        assert_eq!(
            nodes[0].get("host").and_then(Value::as_str),
            Some("kafka.example")
        );
        assert_eq!(int(&nodes[0], "port"), 19092);
    }
    for version in 0..=1 {
        let response = client.call(&apis::DESCRIBE_CLUSTER, version, &Struct::new());
        assert_eq!(int(&structs(&response, "brokers")[0], "port"), 19092);
    }
}

pub fn metadata_lists_what_is_named(client: &mut dyn Asks) {
    let mut count = |version: i16, topics: Option<Vec<Struct<'static>>>| {
        let mut request = Struct::new();
        if let Some(topics) = topics {
            request.set("topics", topics);
        } else if version >= 1 {
            request.set("topics", Value::Null);
        }
        let response = client.call(&apis::METADATA, version, &request);
        let topics = structs(&response, "topics");
        (
            topics.len(),
            topics
                .iter()
                .map(|each| int(each, "errorCode"))
                .collect::<Vec<_>>(),
        )
    };
    let (all, _) = count(0, Some(Vec::new()));
    assert!(all > 20, "{all}");
    for version in 1..=12 {
        assert_eq!(count(version, None).0, all);
        assert_eq!(count(version, Some(Vec::new())).0, 0);
        let named = ["g-plain", "absent", "not/allowed"];
        let named = named.map(|name| Struct::new().with("name", name)).to_vec();
        assert_eq!(count(version, Some(named)).1, [0, 3, 17]);
    }
    let unknown = Struct::new()
        .with("topicId", Uuid::from_bytes([9; 16]))
        .with("name", Value::Null);
    assert_eq!(count(12, Some(vec![unknown])).1, [100]);
}

pub fn leader_epochs_end_and_fence(client: &mut dyn Asks) {
    let (_, partitions) = client.metadata("g-epochs");
    let latest = partitions[0].2 as i32;
    let (_, _, end, epoch) = client.offset(("g-epochs", 0), -1, ReadUncommitted);
    assert_eq!(epoch, i64::from(latest));
    let mut ask = |version: i16, current: i32, asked: i32| {
        let partition = Struct::new()
            .with("partition", 0)
            .with("currentLeaderEpoch", current)
            .with("leaderEpoch", asked);
        let topic = Struct::new()
            .with("topic", "g-epochs")
            .with("partitions", vec![partition]);
        let request = Struct::new().with("topics", vec![topic]);
        let response = client.call(&apis::OFFSET_FOR_LEADER_EPOCH, version, &request);
        let found = structs(&structs(&response, "topics")[0], "partitions")[0].clone();
        (
            int(&found, "errorCode"),
            int(&found, "leaderEpoch"),
            int(&found, "endOffset"),
        )
    };
    for version in 2..=4 {
        assert_eq!(ask(version, -1, latest), (0, i64::from(latest), end));
        assert_eq!(ask(version, latest, latest), (0, i64::from(latest), end));
        assert_eq!(ask(version, -1, latest + 1), (0, -1, -1));
        assert_eq!(ask(version, latest - 1, latest).0, 74);
        assert_eq!(ask(version, latest + 1, latest).0, 75);
        let (error, epoch, first_end) = ask(version, -1, 0);
        assert_eq!((error, epoch), (0, 0));
        assert!(first_end > 0 && first_end <= end);
    }
    let fetch = Fetch::new("g-epochs", 0, 0);
    for (current, error) in [(latest, 0), (latest - 1, 74), (latest + 1, 75)] {
        let fetched = client.fetch(&Fetch {
            current_epoch: current,
            ..fetch.clone()
        });
        assert_eq!(fetched.error, error);
    }
    // What was read last does not fit: the fetch says where the logs part, and brings no records.
    let (_, _, first_end) = {
        let fetched = client.fetch(&Fetch {
            last_fetched_epoch: 0,
            offset: end,
            ..fetch.clone()
        });
        assert_eq!(fetched.error, 0);
        assert_eq!(fetched.bytes(), b"");
        let (epoch, end) = fetched.diverging.unwrap();
        (0, epoch, end)
    };
    assert!(first_end < end);
    let fetched = client.fetch(&Fetch {
        last_fetched_epoch: latest,
        offset: end,
        ..fetch.clone()
    });
    assert_eq!((fetched.error, fetched.diverging), (0, None));
    let fetched = client.fetch(&Fetch {
        last_fetched_epoch: latest + 1,
        ..fetch
    });
    assert_eq!(fetched.error, 1, "as Kafka: an epoch that is not known");
}

pub fn another_broker_is_no_replica(client: &mut dyn Asks) {
    let mut request = Fetch::new("g-plain", 0, 0).request();
    request.set("replicaId", 2);
    let response = client.call(&apis::FETCH, 12, &request);
    let topic = &structs(&response, "responses")[0];
    assert_eq!(int(&structs(topic, "partitions")[0], "errorCode"), 6);
}
