//! Every record of the directories that real brokers wrote comes out of the answers, as a real consumer got it.

use crate::client::{Asks, Client, Fetch, Seen, clean, data, open, read_all, tree};
use base64::Engine;
use offsetlog::Isolation::{ReadCommitted, ReadUncommitted};
use offsetlog_net::Service;
use offsetlog_net::server::Broker;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What a real consumer saw: the record, and whether `read_committed` saw it too.
fn expected(path: &Path) -> Vec<(Seen, bool)> {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    let mut decoder = flate2::read::GzDecoder::new(file);
    decoder.read_to_string(&mut text).unwrap();
    let bytes = |value: &Value| {
        let text = value.as_str()?;
        let engine = base64::engine::general_purpose::STANDARD;
        Some(engine.decode(text).unwrap())
    };
    text.lines()
        .map(|line| {
            let record: Value = serde_json::from_str(line).unwrap();
            let seen = (
                record["offset"].as_i64().unwrap(),
                record["timestamp"].as_i64().unwrap(),
                bytes(&record["key"]),
                bytes(&record["value"]),
            );
            (seen, record["committed"].as_bool().unwrap())
        })
        .collect()
}

/// The partitions of a folder of `expected`.
fn partitions(folder: &Path) -> Vec<(String, i32, PathBuf)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if let Some(name) = name.strip_suffix(".jsonl.gz") {
            let (topic, partition) = name.rsplit_once('-').unwrap();
            found.push((topic.to_owned(), partition.parse().unwrap(), path.clone()));
        }
    }
    found.sort();
    found
}

/// Reads all partitions in all versions that matter, and compares. Returns how many records were compared.
fn compare(broker: &Broker, folder: &str, leave_out: &[&str]) -> usize {
    let mut client = Client::new(broker);
    let mut compared = 0;
    for (topic, partition, path) in partitions(&data("expected").join(folder)) {
        if leave_out.contains(&topic.as_str()) {
            continue;
        }
        let expected = expected(&path);
        let (id, _) = client.metadata(&topic);
        let (_, _, start, _) = client.offset((&topic, partition), -2, ReadUncommitted);
        for version in [4, 6, 11, 12, 16] {
            if version >= 13 && id.is_zero() {
                continue;
            }
            for (isolation, max_bytes) in [(ReadUncommitted, 1 << 20), (ReadCommitted, 700)] {
                let fetch = Fetch {
                    version,
                    topic_id: id,
                    isolation,
                    partition_max_bytes: max_bytes,
                    ..Fetch::new(&topic, partition, start)
                };
                let (seen, end, error) = read_all(&mut client, &fetch);
                assert_eq!(error, 0, "{topic}-{partition}");
                let wanted: Vec<&Seen> = expected
                    .iter()
                    .filter(|(_, committed)| isolation == ReadUncommitted || *committed)
                    .map(|(seen, _)| seen)
                    .collect();
                let seen: Vec<&Seen> = seen.iter().collect();
                assert!(
                    seen == wanted,
                    "{topic}-{partition} {isolation:?} version {version}: {} seen to {end}, {} expected",
                    seen.len(),
                    wanted.len()
                );
                compared += seen.len();
            }
        }
    }
    compared
}

#[test]
fn all_records_of_a_clean_broker_4_3() {
    let before = tree(&[data("kafka-4.3.0/clean")]);
    let broker = open(&clean());
    assert!(compare(&broker, "kafka-4.3.0-clean", &[]) > 50_000);
    broker.tick(crate::client::NOW);
    let report = broker.report();
    assert_eq!(report.warnings, Vec::<String>::new());
    assert_eq!(
        before,
        tree(&[data("kafka-4.3.0/clean")]),
        "serving changes nothing"
    );
}

/// What a broker cuts when it recovers is served up to there, and what it leaves is served whole.
#[test]
fn what_a_broker_keeps_of_torn_logs_is_served() {
    let paths = ["log-dir-1", "log-dir-2"].map(|name| data("kafka-4.3.0/torn").join(name));
    let before = tree(&paths);
    let broker = open(&paths);
    let mut client = Client::new(&broker);
    let mut loud = Vec::new();
    for (topic, partition, path) in partitions(&data("expected/kafka-4.3.0-torn")) {
        let expected: Vec<Seen> = expected(&path).into_iter().map(|(seen, _)| seen).collect();
        let (_, _, start, _) = client.offset((&topic, partition), -2, ReadUncommitted);
        let fetch = Fetch::new(&topic, partition, start);
        let (seen, end, error) = read_all(&mut client, &fetch);
        assert!(seen == expected, "{topic} to {end}");
        if error != 0 {
            assert_eq!(error, 2);
            loud.push(topic);
        }
    }
    // What stands behind the damage is not the end of the log: a client is told.
    assert_eq!(
        loud,
        ["g-torn-flip-active", "g-torn-flip-magic", "g-torn-flip-old"]
    );
    assert_eq!(before, tree(&paths), "serving changes nothing");
}

#[test]
fn all_records_of_three_brokers_2_8_with_replicas_and_old_formats() {
    let paths: Vec<PathBuf> = (1..=3)
        .map(|number| data(&format!("kafka-2.8.2/broker-{number}")))
        .collect();
    let broker = open(&paths);
    assert!(compare(&broker, "kafka-2.8.2", &[]) > 10_000);
}

#[test]
fn all_records_of_a_killed_broker_and_of_a_copy_taken_while_it_wrote() {
    for set in ["unclean", "live"] {
        let paths =
            ["log-dir-1", "log-dir-2"].map(|name| data(&format!("kafka-4.3.0/{set}")).join(name));
        let broker = open(&paths);
        // A broker has removed deleted segments there; and one that starts ends transactions and writes its own state.
        let compared = compare(
            &broker,
            &format!("kafka-4.3.0-{set}"),
            &["__transaction_state"],
        );
        assert!(compared > 1000, "{compared}");
    }
}

/// The answers to `ListOffsets`, by name and by time, against those of the broker that wrote the directories.
#[test]
fn offsets_are_those_of_the_broker() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    let folder = data("expected/kafka-4.3.0-clean");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let lookups: Value = serde_json::from_str(&text("lookups.json")).unwrap();
    let exceptions = text("lookups-exceptions.json");
    let mut compared = 0;
    for (_, partition) in lookups.as_object().unwrap() {
        let topic = partition["topic"].as_str().unwrap();
        let number = partition["partition"].as_i64().unwrap() as i32;
        let place = (topic, number);
        if exceptions.contains(&format!("\"{topic}-{number}\"")) {
            continue;
        }
        let asked = [
            ("earliest", -2, ReadUncommitted),
            ("latest", -1, ReadUncommitted),
            ("maxTimestamp", -3, ReadUncommitted),
            ("earliestLocal", -4, ReadUncommitted),
            ("latestTiered", -5, ReadUncommitted),
            ("latestCommitted", -1, ReadCommitted),
        ];
        for (name, timestamp, isolation) in asked {
            let wanted = &partition["listOffsets"][name];
            let mut found = client.offset(place, timestamp, isolation);
            let is_empty = partition["beginningOffset"] == partition["endOffset"];
            if name != "latestTiered" && (is_empty || name.starts_with("latest")) {
                // The broker was asked before it stopped, which gave the partition another leader.
                let told = wanted["leaderEpoch"].as_i64().unwrap_or(-1);
                assert!(found.3 >= told, "{topic}-{number} {name}");
                found.3 = told;
            }
            let wanted = (
                0,
                wanted["timestamp"].as_i64().unwrap(),
                wanted["offset"].as_i64().unwrap(),
                wanted["leaderEpoch"].as_i64().unwrap_or(-1),
            );
            assert_eq!(found, wanted, "{topic}-{number} {name}");
            compared += 1;
        }
        for query in partition["offsetsForTimes"].as_array().unwrap() {
            let timestamp = query["query"].as_i64().unwrap();
            if timestamp < 0 {
                continue;
            }
            for (name, isolation) in [
                ("uncommitted", ReadUncommitted),
                ("committed", ReadCommitted),
            ] {
                let wanted = &query[name];
                let found = client.offset(place, timestamp, isolation);
                let field = |name: &str| wanted[name].as_i64().unwrap_or(-1);
                let wanted = (0, field("timestamp"), field("offset"), field("leaderEpoch"));
                assert_eq!(found, wanted, "{topic}-{number} at {timestamp} {name}");
                compared += 1;
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}
