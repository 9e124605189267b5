//! Every partition that real brokers wrote, through the command, against what real clients and brokers said of it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has to fail"
)]

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{SETS, data, lookups, offsetlog, paths, records};
use serde_json::{Value, json};

/// A header's value as the expected lines have it: base64 or null.
fn header_value(shown: &Value) -> Value {
    match shown {
        Value::String(text) => STANDARD.encode(text).into(),
        Value::Object(object) => object["base64"].clone(),
        other => other.clone(),
    }
}

/// A line of `cat -J --key-format base64 --value-format base64` in the shape of the expected lines.
fn as_expected(line: &Value) -> Value {
    let no_headers = Vec::new();
    let headers = line
        .get("headers")
        .map_or(&no_headers, |headers| headers.as_array().unwrap());
    let timestamp_type = match line.get("tstype").and_then(Value::as_str) {
        Some("create") => "CreateTime",
        Some("logappend") => "LogAppendTime",
        None => "NoTimestampType",
        other => panic!("tstype {other:?}"),
    };
    json!({
        "offset": line["offset"],
        "timestamp": line.get("ts").cloned().unwrap_or(json!(-1)),
        "timestampType": timestamp_type,
        "leaderEpoch": line["leader_epoch"],
        "key": line["key"],
        "value": line["payload"],
        "headers": headers.chunks(2).map(|pair| json!([pair[0], header_value(&pair[1])])).collect::<Vec<_>>(),
    })
}

fn cat(dirs: &[&str], topic: &str, partition: &str, level: &str) -> Vec<Value> {
    let mut args = vec![
        "cat".to_owned(),
        "-J".into(),
        "-t".into(),
        topic.into(),
        "-p".into(),
        partition.into(),
    ];
    args.extend(
        [
            "--key-format=base64",
            "--value-format=base64",
            "--isolation-level",
            level,
        ]
        .map(Into::into),
    );
    args.extend(paths(dirs));
    let outcome = offsetlog(&args);
    let lines: Vec<Value> = outcome.lines().iter().map(as_expected).collect();
    assert_eq!(
        outcome.code,
        i32::from(lines.is_empty()),
        "{topic}-{partition}: {}",
        outcome.err
    );
    check_told(dirs, &outcome.err);
    lines
}

/// Nothing is said but that the three partitions of the older brokers' topic stand on two of them.
fn check_told(dirs: &[&str], err: &str) {
    let (replicas, others): (Vec<_>, Vec<_>) = err.lines().partition(|line| {
        line.ends_with(
            "stands in 2 log dirs: the replica of the newest leader epoch is read, of those the one that can be read furthest, and of \
             equals the one that lacks the fewest offsets",
        )
    });
    let expected = if dirs[0].contains("2.8.2") { 3 } else { 0 };
    assert_eq!((replicas.len(), others), (expected, vec![]));
}

#[test]
fn cat_prints_what_a_consumer_read() {
    for (dirs, expected) in SETS {
        for (name, lookup) in lookups(expected) {
            let (topic, partition) = (
                lookup["topic"].as_str().unwrap(),
                lookup["partition"].to_string(),
            );
            let mut seen = records(expected, &name);
            assert_eq!(Value::from(seen.len()), lookup["records"], "{name}");
            let mut committed = Vec::new();
            for record in &mut seen {
                if record.as_object_mut().unwrap().remove("committed").unwrap() == true {
                    committed.push(record.clone());
                }
            }
            assert_eq!(
                cat(dirs, topic, &partition, "read_uncommitted"),
                seen,
                "{name}"
            );
            assert_eq!(
                cat(dirs, topic, &partition, "read_committed"),
                committed,
                "{name}"
            );
        }
    }
}

#[test]
fn ls_shows_the_offsets_that_the_broker_gave() {
    for (dirs, expected) in SETS {
        let outcome = offsetlog(&[vec!["ls".to_owned(), "--json".into()], paths(dirs)].concat());
        assert_eq!(outcome.code, 0);
        check_told(dirs, &outcome.err);
        let lines = outcome.lines();
        let lookups = lookups(expected);
        assert_eq!(lines.len(), lookups.len());
        for line in lines {
            let name = format!("{}-{}", line["topic"].as_str().unwrap(), line["partition"]);
            let lookup = &lookups[&name];
            assert_eq!(
                line["log_start_offset"], lookup["beginningOffset"],
                "{name}"
            );
            assert_eq!(line["log_end_offset"], lookup["endOffset"], "{name}");
            assert_eq!(line["high_watermark"], lookup["endOffset"], "{name}");
            assert_eq!(
                line["last_stable_offset"], lookup["lastStableOffset"],
                "{name}"
            );
            let seen = records(expected, &name);
            let time = |record: &Value| {
                record["timestamp"]
                    .as_i64()
                    .filter(|timestamp| *timestamp != -1)
            };
            assert_eq!(
                line["first_timestamp"].as_i64(),
                seen.first().and_then(time),
                "{name}"
            );
            if let Some(last) = seen.last().and_then(time) {
                assert!(
                    line["last_timestamp"].as_i64() >= Some(last),
                    "{name}: {line}"
                );
            }
            check_files(&line, dirs, &name);
        }
    }
}

/// Sizes and segments against the directory itself.
fn check_files(line: &Value, dirs: &[&str], name: &str) {
    let sizes: Vec<(u64, u64)> = dirs
        .iter()
        .filter_map(|dir| std::fs::read_dir(data(dir) + "/" + name).ok())
        .map(|entries| {
            let logs = entries.map(Result::unwrap).filter(|entry| {
                let name = entry.file_name().into_string().unwrap();
                std::path::Path::new(&name)
                    .extension()
                    .is_some_and(|suffix| suffix == "log")
            });
            logs.fold((0, 0), |(files, bytes), log| {
                (files + 1, bytes + log.metadata().unwrap().len())
            })
        })
        .collect();
    let shown = (
        line["segments"].as_u64().unwrap(),
        line["size_bytes"].as_u64().unwrap(),
    );
    assert!(
        sizes.contains(&shown),
        "{name}: {shown:?} shown, {sizes:?} there"
    );
    let path = std::path::Path::new(line["path"].as_str().unwrap());
    assert_eq!(path.file_name().unwrap().to_str(), Some(name));
}

/// The broker's answers to queries by time, but those that the data's notes list as the broker's own exceptions.
#[test]
fn time_answers_what_the_broker_answered() {
    for (dirs, expected) in SETS {
        let exceptions = std::fs::read_to_string(data(expected) + "/lookups-exceptions.json")
            .map_or(Value::Null, |text| serde_json::from_str(&text).unwrap());
        let mut compared = 0;
        for (name, lookup) in lookups(expected) {
            for query in lookup["offsetsForTimes"].as_array().unwrap() {
                for level in ["uncommitted", "committed"] {
                    if is_exception(&exceptions, &name, &query["query"], level) {
                        continue;
                    }
                    let when = query["query"].to_string();
                    let isolation = format!("read_{level}");
                    let topic = lookup["topic"].as_str().unwrap().to_owned();
                    let mut args: Vec<String> = [
                        "time",
                        "--json",
                        "-q",
                        "-t",
                        &topic,
                        "-p",
                        &lookup["partition"].to_string(),
                    ]
                    .map(Into::into)
                    .to_vec();
                    args.extend(["--isolation-level".into(), isolation, when]);
                    args.extend(paths(dirs));
                    let outcome = offsetlog(&args);
                    let answer = &outcome.lines()[0];
                    let (given, code) = match &query[level] {
                        Value::Null => (
                            json!({"offset": null, "timestamp": null, "leaderEpoch": null}),
                            1,
                        ),
                        given => (given.clone(), 0),
                    };
                    assert_eq!(outcome.code, code, "{name} {query}");
                    let shown = json!({
                        "offset": answer["offset"], "timestamp": answer["timestamp"], "leaderEpoch": answer["leader_epoch"],
                    });
                    assert_eq!(shown, given, "{name} {level} {query}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 1500, "{expected}: {compared} queries compared");
    }
}

fn is_exception(exceptions: &Value, name: &str, query: &Value, level: &str) -> bool {
    let queries = exceptions
        .get(name)
        .and_then(|levels| levels.get(level))
        .and_then(Value::as_array);
    queries.is_some_and(|queries| queries.contains(query))
}

/// Offsets with a record are explained down to it; others say that there is none.
#[test]
fn explain_finds_exactly_the_offsets_that_have_records() {
    for (dirs, expected) in SETS {
        for (name, lookup) in lookups(expected) {
            let seen = records(expected, &name);
            let (first, end) = (
                lookup["beginningOffset"].as_i64().unwrap(),
                lookup["endOffset"].as_i64().unwrap(),
            );
            let step = ((end - first) / 40).max(1);
            for offset in (first..end).step_by(usize::try_from(step).unwrap()) {
                let record = seen.iter().find(|record| record["offset"] == offset);
                let mut args: Vec<String> = [
                    "explain",
                    "--json",
                    &offset.to_string(),
                    "-t",
                    lookup["topic"].as_str().unwrap(),
                ]
                .map(Into::into)
                .to_vec();
                args.extend(["-p".into(), lookup["partition"].to_string()]);
                args.extend(paths(dirs));
                let outcome = offsetlog(&args);
                assert_eq!(
                    outcome.code,
                    i32::from(record.is_none()),
                    "{name} {offset}: {}",
                    outcome.err
                );
                let line = &outcome.lines()[0];
                assert_eq!(
                    line["record"].is_null(),
                    record.is_none(),
                    "{name} {offset}"
                );
                if let Some(record) = record {
                    let size = |field: &str| {
                        record[field]
                            .as_str()
                            .map(|text| STANDARD.decode(text).unwrap().len())
                    };
                    assert_eq!(
                        line["record"]["key_bytes"],
                        json!(size("key")),
                        "{name} {offset}"
                    );
                    assert_eq!(
                        line["record"]["value_bytes"],
                        json!(size("value")),
                        "{name} {offset}"
                    );
                    let batch = &line["batch"];
                    assert!(
                        batch["base_offset"].as_i64() <= Some(offset),
                        "{name} {offset}"
                    );
                    assert!(
                        batch["last_offset"].as_i64() >= Some(offset),
                        "{name} {offset}"
                    );
                }
            }
        }
    }
}
