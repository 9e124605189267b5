//! What another server of Kafka's protocol answered wrong, by its own list: metadata of commits, settings, look-ups by time.

use super::logic::{Asks, data, int, level, structs};
use offsetlog::Isolation::{ReadCommitted, ReadUncommitted};
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis;

/// Kafka's `offset.metadata.max.bytes`.
const METADATA_MAX: usize = 4096;

/// What a commit in this version answers.
fn commit(client: &mut dyn Asks, version: i16, group: &str, partition: Struct<'_>) -> i64 {
    let topic = Struct::new()
        .with("name", "g-plain")
        .with("partitions", vec![partition.into_owned()]);
    let request = Struct::new()
        .with("groupId", group.to_owned())
        .with("generationIdOrMemberEpoch", -1)
        .with("topics", vec![topic]);
    let response = client.call(&apis::OFFSET_COMMIT, version, &request);
    let topic = &structs(&response, "topics")[0];
    int(&structs(topic, "partitions")[0], "errorCode")
}

/// Offset, metadata and error of two partitions in this version.
fn committed(client: &mut dyn Asks, version: i16, group: &str) -> Vec<(i64, String, i64)> {
    let topic = Struct::new()
        .with("name", "g-plain")
        .with("partitionIndexes", vec![0, 1]);
    let one = Struct::new()
        .with("groupId", group.to_owned())
        .with("topics", vec![topic]);
    let response = if version < 8 {
        client.call(&apis::OFFSET_FETCH, version, &one)
    } else {
        let request = Struct::new().with("groups", vec![one]);
        let response = client.call(&apis::OFFSET_FETCH, version, &request);
        structs(&response, "groups")[0].clone()
    };
    let topic = structs(&response, "topics")[0].clone();
    let mut partitions = structs(&topic, "partitions");
    partitions.sort_by_key(|each| int(each, "partitionIndex"));
    let each = partitions.iter().map(|each| {
        let metadata = each.get("metadata").and_then(Value::as_str).unwrap();
        let offset = int(each, "committedOffset");
        (offset, metadata.to_owned(), int(each, "errorCode"))
    });
    each.collect()
}

/// As Kafka: null is empty, what is too long is refused, and what was there before stays.
pub fn commits_come_back_with_their_metadata(client: &mut dyn Asks) {
    for version in 2..=9 {
        let group = format!("trap-15-{version}");
        let partition = |offset: i64, metadata: Value<'static>| {
            let partition = Struct::new()
                .with("partitionIndex", 1)
                .with("committedOffset", offset)
                .with("committedMetadata", metadata);
            if version >= 6 {
                partition.with("committedLeaderEpoch", 0)
            } else {
                partition
            }
        };
        let longest = "n".repeat(METADATA_MAX);
        let too_long = "n".repeat(METADATA_MAX + 1);
        let notes: [(Value<'static>, i64, &str); 4] = [
            ("a note".into(), 0, "a note"),
            (Value::Null, 0, ""),
            (longest.clone().into(), 0, &longest),
            (too_long.into(), 12, &longest),
        ];
        let mut stored = -1;
        for (number, (metadata, error, wanted)) in notes.into_iter().enumerate() {
            let offset = 42 + number as i64;
            let found = commit(client, version, &group, partition(offset, metadata));
            assert_eq!(found, error, "{number} in version {version}");
            if error == 0 {
                stored = offset;
            }
            for reading in if version == 9 {
                1..=9
            } else {
                version..=version
            } {
                let found = committed(client, reading, &group);
                let wanted = [(-1, String::new(), 0), (stored, wanted.to_owned(), 0)];
                assert_eq!(found, wanted, "{number}, {version} read in {reading}");
            }
        }
    }
}

pub fn settings_are_told_but_secrets(client: &mut dyn Asks) {
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

/// By the answers of the broker that wrote the directories: the first record at that time or later, or none.
pub fn times_are_looked_up(client: &mut dyn Asks) {
    let path = data("expected/kafka-4.3.0-clean/lookups.json");
    let text = std::fs::read_to_string(path).unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut compared = 0;
    for (topic, partition) in [("g-time", 0), ("g-appendtime", 0), ("g-txn", 0)] {
        let queries = all[format!("{topic}-{partition}")]["offsetsForTimes"].clone();
        for (number, query) in queries.as_array().unwrap().iter().enumerate() {
            let timestamp = query["query"].as_i64().unwrap();
            // Negative ones are names of offsets.
            if timestamp < 0 {
                continue;
            }
            // Each in another version; isolation is asked for from 2 on, and the epoch told from 4 on.
            let version = 1 + (number % 9) as i16;
            let levels = [
                ("uncommitted", ReadUncommitted),
                ("committed", ReadCommitted),
            ];
            for (name, isolation) in &levels[..if version < 2 { 1 } else { 2 }] {
                let wanted = Struct::new()
                    .with("partitionIndex", partition)
                    .with("timestamp", timestamp);
                let asked = Struct::new()
                    .with("name", topic)
                    .with("partitions", vec![wanted]);
                let request = Struct::new()
                    .with("replicaId", -1)
                    .with("isolationLevel", level(*isolation))
                    .with("topics", vec![asked]);
                let response = client.call(&apis::LIST_OFFSETS, version, &request);
                let found = structs(&structs(&response, "topics")[0], "partitions")[0].clone();
                let field = |name: &str| found.get(name).and_then(Value::as_int).unwrap_or(-1);
                let told = |field: &str| query[*name][field].as_i64().unwrap_or(-1);
                let epoch = if version < 4 { -1 } else { told("leaderEpoch") };
                assert_eq!(
                    (field("timestamp"), field("offset"), field("leaderEpoch")),
                    (told("timestamp"), told("offset"), epoch),
                    "{topic} at {timestamp} {name} in version {version}"
                );
                assert_eq!(field("errorCode"), 0);
                compared += 1;
            }
        }
    }
    assert!(compared > 150, "{compared}");
}
