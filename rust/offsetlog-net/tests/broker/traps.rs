//! What fails silently when a server does it wrong: a test for each known trap.
//!
//! over 600 lines: one test for each trap, in the order of their list.

use crate::client::{Client, Fetch, NOW, clean, consume, copy, data, int, open, read_all, structs};
use offsetlog::Isolation::{ReadCommitted, ReadUncommitted};
use offsetlog::format::Uuid;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::{ANNOUNCED, api, apis};
use offsetlog_net::server::{Broker, ServeOptions, Until};
use offsetlog_net::{AnyRoom, Service, Step};
use std::path::PathBuf;

fn announced(broker: &Broker) -> Vec<(i64, i64, i64)> {
    let mut client = Client::new(broker);
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

#[test]
fn trap_1_and_2_produce_is_announced_from_0_and_each_partition_is_refused_by_policy() {
    let broker = open(&clean());
    assert!(announced(&broker).contains(&(0, 0, 12)));
    let mut client = Client::new(&broker);
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
        let step = client.send(&apis::PRODUCE, version, &request);
        assert!(matches!(step, Step::Close { reply: None, .. }), "{step:?}");
    }
}

#[test]
fn an_idempotent_producer_gets_an_id_and_a_transactional_one_is_refused() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
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

/// Java's groups read nothing, and say nothing, from a partition with a leader epoch below that of a committed offset.
#[test]
fn trap_3_the_leader_epoch_is_not_below_that_of_any_committed_offset() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    let mut checked = 0;
    for group in broker.groups().iter() {
        for offset in &group.offsets {
            let Some(committed) = offset.leader_epoch else {
                continue;
            };
            let (_, partitions) = client.metadata(&offset.topic);
            let (error, _, epoch) = partitions[offset.partition as usize];
            assert_eq!(error, 0);
            assert!(epoch >= i64::from(committed), "{offset:?}");
            checked += 1;
        }
    }
    assert!(checked > 0);
    // Only the partition itself, without the groups and the cluster's metadata: its own epochs remain.
    let folder = copy(&["kafka-4.3.0/clean/log-dir-1/g-epochs-0"]);
    let alone = open(&[folder.path().to_path_buf()]);
    let (_, partitions) = Client::new(&alone).metadata("g-epochs");
    assert!(partitions[0].2 > 0);
}

/// 328 records, 170 of them committed: without the list Java returns aborted ones as committed.
#[test]
fn trap_4_the_aborted_list_is_exact_and_only_for_read_committed() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    let committed = Fetch {
        isolation: ReadCommitted,
        ..Fetch::new("g-txn", 0, 0)
    };
    let fetched = client.fetch(&committed);
    assert_eq!(fetched.last_stable, 347);
    assert_eq!(fetched.high_watermark, 394);
    assert!(!fetched.aborted.as_ref().unwrap().is_empty());
    let (seen, end, _) = read_all(&mut client, &committed);
    assert_eq!((seen.len(), end), (170, 347));
    let uncommitted = client.fetch(&Fetch::new("g-txn", 0, 0));
    assert_eq!(uncommitted.aborted, None, "null, as Kafka sends it");
    assert_eq!(uncommitted.last_stable, 347);
    // At the last stable offset there is nothing, and the list is empty.
    let fetched = client.fetch(&Fetch {
        offset: 347,
        ..committed
    });
    assert_eq!(fetched.bytes(), b"");
    assert_eq!(fetched.aborted, Some(Vec::new()));
}

#[test]
fn trap_5_records_are_empty_and_never_null() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    let cases = [
        ("g-empty", 0, 0),
        ("g-plain", 0, 1 << 40),
        ("g-plain", 77, 0),
        ("absent", 0, 0),
    ];
    for version in 4..=12 {
        for (topic, partition, offset) in cases {
            let fetched = client.fetch(&Fetch {
                version,
                ..Fetch::new(topic, partition, offset)
            });
            assert_eq!(fetched.records.as_deref(), Some(&b""[..]));
        }
    }
}

/// Listed as two entries, librdkafka hangs; as three, every client reads the two that are here.
#[test]
fn trap_6_missing_partitions_are_listed_without_a_leader() {
    let folder = copy(&[
        "kafka-4.3.0/clean/log-dir-1/g-plain-0",
        "kafka-4.3.0/clean/log-dir-1/g-plain-2",
    ]);
    let broker = open(&[folder.path().to_path_buf()]);
    let mut client = Client::new(&broker);
    let (_, partitions) = client.metadata("g-plain");
    let told: Vec<(i64, i64)> = partitions
        .iter()
        .map(|(error, leader, _)| (*error, *leader))
        .collect();
    assert_eq!(told, [(0, 0), (5, -1), (0, 0)]);
    for partition in [0, 2] {
        let (seen, _, error) = read_all(&mut client, &Fetch::new("g-plain", partition, 0));
        assert_eq!(error, 0);
        assert!(!seen.is_empty());
    }
    assert_eq!(client.fetch(&Fetch::new("g-plain", 1, 0)).error, 6);
    assert_eq!(client.offset(("g-plain", 1), -1, ReadUncommitted).0, 6);
    assert_eq!(client.offset(("g-plain", 3), -1, ReadUncommitted).0, 3);
    let report = broker.report();
    assert!(report.topics[0].partitions[1].problem.is_some());
}

#[test]
fn trap_7_topics_of_before_2_8_have_an_id_of_zeros_and_are_fetched_by_name() {
    let folder = copy(&["kafka-2.8.2/broker-1/o-v0-none-0"]);
    let _ = std::fs::remove_file(folder.path().join("o-v0-none-0/partition.metadata"));
    let broker = open(&[folder.path().to_path_buf()]);
    let mut client = Client::new(&broker);
    let (id, _) = client.metadata("o-v0-none");
    assert!(id.is_zero());
    let by_id = Fetch {
        version: 16,
        ..Fetch::new("", 0, 0)
    };
    assert_eq!(client.fetch(&by_id).error, 100);
    let (seen, _, error) = read_all(&mut client, &Fetch::new("o-v0-none", 0, 0));
    assert_eq!(error, 0);
    assert!(!seen.is_empty());
}

#[test]
fn trap_8_old_formats_go_out_as_they_are() {
    let folder = copy(&["kafka-2.8.2/broker-1/o-v1-lz4-0"]);
    let broker = open(&[folder.path().to_path_buf()]);
    let mut client = Client::new(&broker);
    let fetched = client.fetch(&Fetch::new("o-v1-lz4", 0, 0));
    let path = data("kafka-2.8.2/broker-1/o-v1-lz4-0/00000000000000000000.log");
    let file = std::fs::read(path).unwrap();
    assert!(!fetched.bytes().is_empty());
    assert!(file.starts_with(fetched.bytes()));
}

/// The high watermark that comes with the data is of the same moment: at the end of the data, and never behind it.
#[test]
fn trap_9_the_high_watermark_is_the_end_of_what_is_served() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
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

#[test]
fn trap_10_all_that_is_announced_can_be_read_and_nothing_else_is_answered() {
    let broker = open(&clean());
    for (key, lowest, highest) in announced(&broker) {
        let api = api(key as i16).unwrap();
        for version in lowest.max(i64::from(api.lowest_version()))..=highest {
            assert!(api.has_version(version as i16), "{} {version}", api.name);
        }
    }
    assert_eq!(announced(&broker).len(), ANNOUNCED.len());
    let mut client = Client::new(&broker);
    for (key, version) in [(1_i16, 17_i16), (1, 3), (0, 2), (75, 0), (68, 0), (999, 0)] {
        let mut frame = Vec::new();
        frame.extend_from_slice(&key.to_be_bytes());
        frame.extend_from_slice(&version.to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0, 1, 0xff, 0xff, 0]);
        let step = broker.receive(client.session.as_mut().unwrap(), &frame, NOW, &mut AnyRoom);
        assert!(matches!(step, Step::Close { reply: None, .. }), "{step:?}");
    }
}

/// A consumer that begins inside a batch needs all of it, the lower offsets too; or it hangs for ever.
#[test]
fn trap_11_a_fetch_inside_a_batch_gets_the_whole_batch() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
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

#[test]
fn trap_12_an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    let mut frame = client.frame(&apis::API_VERSIONS, 3, &Struct::new());
    frame[2..4].copy_from_slice(&9_i16.to_be_bytes());
    let session = client.session.as_mut().unwrap();
    let Step::Reply(reply) = broker.receive(session, &frame, NOW, &mut AnyRoom) else {
        panic!("no reply");
    };
    let response = client.response(&apis::API_VERSIONS, 0, &reply);
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

#[test]
fn trap_14_out_of_range_carries_no_offsets() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    for isolation in [ReadUncommitted, ReadCommitted] {
        for offset in [-1, 1 << 40] {
            let fetched = client.fetch(&Fetch {
                isolation,
                ..Fetch::new("g-plain", 0, offset)
            });
            assert_eq!(fetched.error, 1);
            assert_eq!((fetched.high_watermark, fetched.log_start), (-1, -1));
        }
        let (_, _, start, _) = client.offset(("g-deleted-prefix", 0), -2, ReadUncommitted);
        assert!(start > 0);
        let fetched = client.fetch(&Fetch::new("g-deleted-prefix", 0, start - 1));
        assert_eq!(fetched.error, 1);
    }
}

#[test]
fn trap_15_settings_are_not_empty_and_secrets_are_null() {
    let broker_settings = offsetlog::BrokerSettings::parse([
        ("ssl.keystore.password", "very secret"),
        ("log.retention.ms", "12345"),
        ("node.id", "1"),
    ])
    .unwrap();
    let options = ServeOptions {
        broker_settings: Some(broker_settings),
        node_id: Some(1),
        ..ServeOptions::default()
    };
    let broker = Broker::open(&clean(), options).unwrap();
    let mut client = Client::new(&broker);
    let resource = |kind: i8, name: &'static str| {
        Struct::new()
            .with("resourceType", kind)
            .with("resourceName", name)
            .with("configurationKeys", Value::Null)
    };
    let request = Struct::new().with(
        "resources",
        vec![
            resource(2, "g-compact"),
            resource(4, "1"),
            resource(2, "absent"),
            resource(4, "2"),
        ],
    );
    for version in 1..=4 {
        let response = client.call(&apis::DESCRIBE_CONFIGS, version, &request);
        let results = structs(&response, "results");
        let errors: Vec<i64> = results.iter().map(|each| int(each, "errorCode")).collect();
        assert_eq!(errors, [0, 0, 3, 42]);
        let of = |result: &Struct<'_>, name: &str| {
            let all = structs(result, "configs");
            let found = all
                .iter()
                .find(|each| each.get("name").and_then(Value::as_str) == Some(name));
            let found = found.unwrap().clone();
            let value = found
                .get("value")
                .and_then(Value::as_str)
                .map(str::to_owned);
            (value, int(&found, "configSource"))
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(of(&results[0], "cleanup.policy"), (text("compact"), 1));
        assert_eq!(of(&results[0], "retention.ms"), (text("12345"), 4));
        assert_eq!(of(&results[1], "ssl.keystore.password"), (None, 4));
    }
}

#[test]
fn trap_17_the_first_batch_comes_whole_and_then_the_limits_hold() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
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

#[test]
fn trap_18_clients_are_told_the_advertised_address() {
    let options = ServeOptions {
        host: "kafka.example".to_owned(),
        port: 19092,
        ..ServeOptions::default()
    };
    let broker = Broker::open(&clean(), options).unwrap();
    let mut client = Client::new(&broker);
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

#[test]
fn metadata_lists_all_none_or_what_is_named() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
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

#[test]
fn leader_epochs_end_where_the_next_begins_and_mistaken_clients_are_fenced() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
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

#[test]
fn a_partition_ends_at_the_checkpointed_high_watermark_if_asked_for() {
    let folder = copy(&["kafka-4.3.0/clean/log-dir-1/g-plain-0"]);
    std::fs::write(
        folder.path().join("replication-offset-checkpoint"),
        "0\n1\ng-plain 0 7\n",
    )
    .unwrap();
    let options = ServeOptions {
        until: Until::HighWatermark,
        ..ServeOptions::default()
    };
    let paths: [PathBuf; 1] = [folder.path().to_path_buf()];
    let broker = Broker::open(&paths, options).unwrap();
    let mut client = Client::new(&broker);
    assert_eq!(client.offset(("g-plain", 0), -1, ReadUncommitted).2, 7);
    let (seen, end, error) = read_all(&mut client, &Fetch::new("g-plain", 0, 0));
    assert_eq!(error, 0);
    assert!(end <= 7 && seen.iter().all(|record| record.0 < 7));
    // A partition that the checkpoint lacks ends with its log, for who has not seen it there before.
    let checkpoint = folder.path().join("replication-offset-checkpoint");
    std::fs::write(checkpoint, "0\n1\nother 0 7\n").unwrap();
    let until = ServeOptions {
        until: Until::HighWatermark,
        ..ServeOptions::default()
    };
    let lacking = Broker::open(&paths, until).unwrap();
    let end = Client::new(&lacking).offset(("g-plain", 0), -1, ReadUncommitted);
    let whole = open(&paths);
    let log_end = Client::new(&whole)
        .offset(("g-plain", 0), -1, ReadUncommitted)
        .2;
    assert!(log_end > 8);
    assert_eq!(end.2, log_end);
    // A client that has read further, as one in the cluster may have, waits. A broker answers a fetch above its high watermark so.
    for isolation in [ReadUncommitted, ReadCommitted] {
        for offset in [7, 8, log_end] {
            let fetched = client.fetch(&Fetch {
                isolation,
                ..Fetch::new("g-plain", 0, offset)
            });
            assert_eq!((fetched.error, fetched.high_watermark), (0, 7), "{offset}");
            assert_eq!(fetched.bytes(), b"");
        }
        let fetched = client.fetch(&Fetch {
            isolation,
            ..Fetch::new("g-plain", 0, log_end + 1)
        });
        assert_eq!(fetched.error, 1);
    }
    // It is not told that its records were truncated, either.
    let epoch = client.metadata("g-plain").1[0].2 as i32;
    let told = client.end_of_epoch(("g-plain", 0), epoch);
    assert_eq!(told, (0, i64::from(epoch), log_end));
    let fetched = client.fetch(&Fetch {
        last_fetched_epoch: epoch,
        ..Fetch::new("g-plain", 0, log_end)
    });
    assert_eq!((fetched.error, fetched.diverging), (0, None));
}

#[test]
fn log_dirs_and_acls_are_described() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    for version in 1..=4 {
        let request = Struct::new().with("topics", Value::Null);
        let response = client.call(&apis::DESCRIBE_LOG_DIRS, version, &request);
        let results = structs(&response, "results");
        let of_topics = |each: &Struct<'_>| structs(each, "topics").len();
        let counts: Vec<usize> = results.iter().map(of_topics).collect();
        assert!(
            counts.iter().filter(|count| **count > 10).count() == 2,
            "{counts:?}"
        );
    }
    let request = Struct::new()
        .with("resourceTypeFilter", 1_i8)
        .with("resourceNameFilter", Value::Null)
        .with("principalFilter", Value::Null)
        .with("hostFilter", Value::Null)
        .with("operation", 1_i8)
        .with("permissionType", 1_i8);
    for version in 1..=3 {
        let response = client.call(&apis::DESCRIBE_ACLS, version, &request);
        assert_eq!(int(&response, "errorCode"), 54);
    }
}

#[test]
fn another_broker_is_no_replica_of_ours() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    let mut request = Fetch::new("g-plain", 0, 0).request();
    request.set("replicaId", 2);
    let response = client.call(&apis::FETCH, 12, &request);
    let topic = &structs(&response, "responses")[0];
    assert_eq!(int(&structs(topic, "partitions")[0], "errorCode"), 6);
}

/// What the dead cluster's groups had committed is where they go on, metadata included; and what they commit now is kept.
#[test]
fn groups_begin_where_they_had_committed() {
    let broker = open(&clean()).with_coordinator(None, NOW).unwrap();
    let mut client = Client::new(&broker);
    let group = broker
        .groups()
        .iter()
        .find(|group| !group.offsets.is_empty());
    let group = group.unwrap().clone();
    let request = Struct::new()
        .with("key", group.group_id.clone())
        .with("keyType", 0_i8);
    let response = client.call(&apis::FIND_COORDINATOR, 3, &request);
    assert_eq!(
        (int(&response, "errorCode"), int(&response, "port")),
        (0, 9092)
    );
    let committed = |client: &mut Client<'_>, offset: &offsetlog::GroupOffset| {
        let topic = Struct::new()
            .with("name", offset.topic.clone())
            .with("partitionIndexes", vec![offset.partition]);
        let request = Struct::new()
            .with("groupId", group.group_id.clone())
            .with("topics", vec![topic]);
        let response = client.call(&apis::OFFSET_FETCH, 7, &request);
        let found = structs(&structs(&response, "topics")[0], "partitions")[0].clone();
        let metadata = found.get("metadata").and_then(Value::as_str);
        (int(&found, "committedOffset"), metadata.map(str::to_owned))
    };
    for offset in &group.offsets {
        let told = committed(&mut client, offset);
        assert_eq!(told, (offset.offset, Some(offset.metadata.clone())));
    }
    let offset = &group.offsets[0];
    let partition = Struct::new()
        .with("partitionIndex", offset.partition)
        .with("committedOffset", offset.offset + 1)
        .with("committedMetadata", "now");
    let topic = Struct::new()
        .with("name", offset.topic.clone())
        .with("partitions", vec![partition]);
    let request = Struct::new()
        .with("groupId", group.group_id.clone())
        .with("generationIdOrMemberEpoch", -1)
        .with("topics", vec![topic]);
    client.call(&apis::OFFSET_COMMIT, 8, &request);
    let told = committed(&mut client, offset);
    assert_eq!(told, (offset.offset + 1, Some("now".to_owned())));
}

/// What a group committed of another topic tells that the topic is there.
#[test]
fn committed_offsets_are_those_of_the_topics_that_are_served() {
    let folder = data("kafka-4.3.0/clean/log-dir-1");
    let told = |names: &[&str]| -> Vec<String> {
        let options = ServeOptions {
            topics: names.iter().map(|&name| name.to_owned()).collect(),
            ..ServeOptions::default()
        };
        let broker = Broker::open(&[&folder], options).unwrap();
        let broker = broker.with_coordinator(None, 0).unwrap();
        let mut client = Client::new(&broker);
        let group = Struct::new()
            .with("groupId", "g-group-2")
            .with("topics", Value::Null);
        let request = Struct::new().with("groups", vec![group]);
        let response = client.call(&apis::OFFSET_FETCH, 9, &request);
        let groups = structs(&response, "groups");
        let topics = structs(&groups[0], "topics");
        let names = topics
            .iter()
            .map(|topic| topic.get("name").and_then(Value::as_str));
        names.map(|name| name.unwrap().to_owned()).collect()
    };
    assert_eq!(told(&[]), ["g-codec-lz4", "g-plain"]);
    assert_eq!(told(&["g-plain"]), ["g-plain"]);
}
