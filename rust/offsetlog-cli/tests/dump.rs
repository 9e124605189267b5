//! `dump` as JSON lines, beside what a real consumer saw, what Kafka's own tool printed, and what was damaged by hand.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{
    Outcome, SETS, arguments, copy, data, lookups, offsetlog, offsetlog_on, paths, records,
};
use flate2::read::GzDecoder;
use offsetlog_cli::Terminal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

fn run(line: &str) -> Outcome {
    offsetlog(&arguments(line))
}

fn of_type(lines: &[Value], kind: &str) -> Vec<Value> {
    lines
        .iter()
        .filter(|line| line["type"] == kind)
        .cloned()
        .collect()
}

/// Bytes as `dump` shows them, from those of the expected records.
fn shown(value: &Value) -> Value {
    let Some(text) = value.as_str() else {
        return Value::Null;
    };
    let bytes = STANDARD.decode(text).unwrap();
    String::from_utf8(bytes).map_or_else(|_| json!({"base64": text}), Value::String)
}

#[test]
fn records_are_those_that_a_consumer_saw() {
    let mut compared = 0;
    for (dirs, folder) in SETS {
        for (name, looked_up) in &lookups(folder) {
            let places = paths(dirs);
            let mut places = places.iter().map(|dir| format!("{dir}/{name}"));
            let directory = places.find(|place| Path::new(place).is_dir()).unwrap();
            let outcome = offsetlog(&["dump", &directory]);
            assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{name}");
            let start = looked_up["beginningOffset"].as_i64().unwrap();
            let found: Vec<Value> = of_type(&outcome.lines(), "record")
                .into_iter()
                .filter(|record| {
                    record["control"].is_null() && record["offset"].as_i64().unwrap() >= start
                })
                .map(|record| {
                    json!([
                        record["offset"],
                        record["timestamp"],
                        record["key"],
                        record["value"],
                        record["headers"]
                    ])
                })
                .collect();
            let expected: Vec<Value> = records(folder, name)
                .iter()
                .map(|record| {
                    let headers = record["headers"].as_array().unwrap().iter();
                    let headers: Vec<Value> = headers
                        .map(|header| json!({"key": header[0], "value": shown(&header[1])}))
                        .collect();
                    let timed = record["timestampType"] != "NoTimestampType";
                    let timestamp = if timed {
                        record["timestamp"].clone()
                    } else {
                        Value::Null
                    };
                    json!([
                        record["offset"],
                        timestamp,
                        shown(&record["key"]),
                        shown(&record["value"]),
                        headers
                    ])
                })
                .collect();
            assert!(found == expected, "{name}");
            compared += found.len();
        }
    }
    println!("{compared} records compared");
    assert!(compared > 9_000, "{compared}");
}

/// The words of a line of Kafka's tool, by their names; a null is what JSON has for the tool's -1.
fn words(line: &str) -> BTreeMap<String, String> {
    let parts: Vec<&str> = line.split(' ').collect();
    let pairs = parts.chunks(2).filter(|pair| pair.len() == 2);
    pairs
        .map(|pair| (pair[0].trim_end_matches(':').to_owned(), pair[1].to_owned()))
        .collect()
}

fn number(value: &Value) -> String {
    match value {
        Value::Null => "-1".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// For every file of which there is a text of Kafka's: the same batches, entries and producers, number by number.
#[test]
fn numbers_are_those_of_kafkas_tool() {
    let mut compared: BTreeMap<String, usize> = BTreeMap::new();
    for entry in std::fs::read_dir(data("dump")).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let Some(stem) = name.strip_suffix(".plain.txt.gz") else {
            continue;
        };
        let path = stem
            .replace("____", "/\0")
            .replace("__", "/")
            .replace('\0', "__");
        let mut text = String::new();
        GzDecoder::new(File::open(entry.path()).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        let theirs = text.split("--- stderr ---").next().unwrap().lines();
        let theirs: Vec<&str> = theirs
            .filter(|line| !line.starts_with("Dumping") && !line.starts_with("Log starting"))
            .collect();
        if theirs.is_empty() {
            continue; // The tool died before the first entry.
        }
        let outcome = offsetlog(&["dump", "--batches", &data(&path)]);
        assert_eq!(outcome.code, 0, "{path}");
        let kind = path.rsplit('.').next().unwrap();
        let (line_type, fields): (&str, &[(&str, &str)]) = match kind {
            "index" => (
                "offset_index_entry",
                &[("offset", "offset"), ("position", "position")],
            ),
            "timeindex" => (
                "time_index_entry",
                &[("timestamp", "timestamp"), ("offset", "offset")],
            ),
            "txnindex" => (
                "aborted_transaction",
                &[
                    ("producer_id", "producerId"),
                    ("first_offset", "firstOffset"),
                    ("last_offset", "lastOffset"),
                    ("last_stable_offset", "lastStableOffset"),
                ],
            ),
            "snapshot" => (
                "producer",
                &[
                    ("producer_id", "producerId"),
                    ("producer_epoch", "producerEpoch"),
                    ("coordinator_epoch", "coordinatorEpoch"),
                    ("last_timestamp", "lastTimestamp"),
                ],
            ),
            _ => (
                "batch",
                &[
                    ("position", "position"),
                    ("size_bytes", "size"),
                    ("magic", "magic"),
                    ("codec", "compresscodec"),
                    ("crc", "crc"),
                    ("crc_valid", "isvalid"),
                ],
            ),
        };
        let ours = of_type(&outcome.lines(), line_type);
        assert_eq!(ours.len(), theirs.len(), "{path}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let words = words(theirs);
            for (field, word) in fields {
                assert_eq!(
                    number(&ours[*field]),
                    words[*word],
                    "{path} {field}: {theirs}"
                );
            }
            let optional = [
                ("base_offset", "baseOffset"),
                ("record_count", "count"),
                ("leader_epoch", "partitionLeaderEpoch"),
                ("is_control", "isControl"),
                ("is_transactional", "isTransactional"),
                ("first_sequence", "firstSequence"),
                ("last_sequence", "lastSequence"),
                ("last_offset", "lastOffset"),
                ("max_timestamp", "CreateTime"),
                ("max_timestamp", "LogAppendTime"),
            ];
            for (field, word) in optional {
                if let Some(word) = words.get(word) {
                    assert_eq!(&number(&ours[field]), word, "{path} {field}: {theirs}");
                }
            }
        }
        *compared.entry(line_type.to_owned()).or_default() += ours.len();
    }
    println!("{compared:?}");
    assert_eq!(compared.len(), 5, "{compared:?}");
    assert!(compared["batch"] > 400, "{compared:?}");
}

/// Folder, exit code, and what is said: class of the error or `tail`, end of the file's name, position.
type Case = (
    &'static str,
    i32,
    &'static [(&'static str, &'static str, u64)],
);

/// What `damage.json` says was done, as seen in the files.
const CASES: [Case; 13] = [
    ("1/g-torn-none-0", 0, &[]),
    ("1/g-torn-cut-batch-0", 0, &[("tail", "64.log", 2508)]),
    ("1/g-torn-zeros-0", 0, &[("tail", "64.log", 2840)]),
    (
        "1/g-torn-flip-active-0",
        3,
        &[("CorruptBatch", "64.log", 1801)],
    ),
    ("1/g-torn-flip-old-0", 3, &[("CorruptBatch", "32.log", 294)]),
    (
        "1/g-torn-flip-length-0",
        3,
        &[
            ("CorruptBatch", "64.log", 2493),
            ("CorruptIndex", "64.index", 48),
        ],
    ),
    (
        "1/g-torn-flip-magic-0",
        3,
        &[
            ("UnsupportedMagic", "64.log", 2535),
            ("CorruptIndex", "64.index", 48),
        ],
    ),
    ("2/g-torn-garbage-0", 3, &[("CorruptBatch", "64.log", 2904)]),
    (
        "2/g-torn-cut-header-0",
        3,
        &[("tail", "64.log", 2542), ("CorruptIndex", "64.index", 48)],
    ),
    (
        "1/g-torn-bad-snapshot-0",
        3,
        &[
            ("CorruptSnapshot", "32.snapshot", 0),
            ("CorruptSnapshot", "64.snapshot", 0),
        ],
    ),
    (
        "2/g-torn-bad-index-0",
        3,
        &[
            ("OffsetOrder", "0.index", 0),
            ("OffsetOrder", "0.timeindex", 0),
        ],
    ),
    (
        "2/g-torn-odd-index-0",
        3,
        &[
            ("CorruptIndex", "0.index", 56),
            ("CorruptIndex", "0.timeindex", 84),
        ],
    ),
    ("2/g-torn-gap-0", 0, &[]),
];

/// One row a damage that was done by hand: what is said of it, where, and the exit code.
#[test]
fn damage_is_an_object_at_its_place() {
    for (name, code, expected) in CASES {
        let outcome = run(&format!("dump kafka-4.3.0/torn/log-dir-{name}"));
        assert_eq!(outcome.code, code, "{name}");
        let found: Vec<(String, String, u64)> = outcome
            .lines()
            .iter()
            .filter(|line| line["type"] == "damage" || line["type"] == "tail")
            .map(|line| {
                let kind = if line["type"] == "tail" {
                    "tail"
                } else {
                    line["error"].as_str().unwrap()
                };
                let file = line["file"].as_str().unwrap().rsplit('/').next().unwrap();
                let file = file.trim_start_matches('0');
                let file = if file.starts_with('.') {
                    format!("0{file}")
                } else {
                    file.to_owned()
                };
                (kind.to_owned(), file, line["position"].as_u64().unwrap())
            })
            .collect();
        let expected: Vec<(String, String, u64)> = expected
            .iter()
            .map(|(kind, file, position)| ((*kind).to_owned(), (*file).to_owned(), *position))
            .collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn behind_a_batch_that_is_damaged_within_reading_goes_on() {
    let outcome = run("dump kafka-4.3.0/torn/log-dir-1/g-torn-flip-old-0");
    let offsets: Vec<i64> = of_type(&outcome.lines(), "record")
        .iter()
        .map(|record| record["offset"].as_i64().unwrap())
        .collect();
    assert_eq!(offsets, (0..36).chain(40..96).collect::<Vec<_>>());
}

/// A directory of the repository with one file changed.
fn changed(name: &str, file: &str, change: impl FnOnce(&mut Vec<u8>)) -> Outcome {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join(Path::new(name).file_name().unwrap());
    copy(Path::new(&data(name)), &place);
    let path = place.join(file);
    let mut bytes = std::fs::read(&path).unwrap_or_default();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
    offsetlog(&["dump", place.to_str().unwrap()])
}

#[test]
fn damage_of_text_files_is_told() {
    const PLAIN: &str = "kafka-4.3.0/clean/log-dir-1/g-plain-0";
    for (file, bytes, error) in [
        ("leader-epoch-checkpoint", "0\n9\n0 0\n", "Checkpoint"),
        ("leader-epoch-checkpoint", "0\n2\n0 5\n0 3\n", "Checkpoint"),
        ("partition.metadata", "version: 0\n", "MetadataFile"),
    ] {
        let outcome = changed(PLAIN, file, |content| *content = bytes.into());
        let lines = outcome.lines();
        assert_eq!(outcome.code, 3, "{file} {bytes}");
        let damage = of_type(&lines, "damage");
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert_eq!(damage[0]["error"], error);
        assert_eq!(of_type(&lines, "record").len(), 200);
    }
}

/// Each byte of a segment is changed in turn: the answer is JSON to its end, ends with 0 or 1, and no record comes that was not written.
#[test]
fn no_changed_byte_makes_a_record() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("00000000000000000000.log");
    let sound = std::fs::read(data(
        "kafka-4.3.0/torn/log-dir-1/g-torn-none-0/00000000000000000000.log",
    ))
    .unwrap();
    let dump = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        offsetlog(&["dump", path.to_str().unwrap()])
    };
    let contents = |outcome: &Outcome| -> Vec<Value> {
        let records = of_type(&outcome.lines(), "record").into_iter();
        records
            .map(|record| json!([record["key"], record["value"], record["headers"]]))
            .collect()
    };
    let written = contents(&dump(&sound));
    assert_eq!(written.len(), 32);
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        let outcome = dump(&bytes);
        assert!(matches!(outcome.code, 0 | 3), "byte {at}: {}", outcome.err);
        let found = contents(&outcome);
        assert!(
            found.iter().all(|record| written.contains(record)),
            "byte {at}"
        );
    }
    for length in (0..sound.len()).step_by(7) {
        let outcome = dump(&sound[..length]);
        assert_eq!(outcome.code, 0, "{length}");
        let found = contents(&outcome);
        assert_eq!(found, written[..found.len()], "{length}");
    }
}

/// Kafka's tool printed these commits; the same come out decoded, without a decoder being asked for.
#[test]
fn commits_of_groups_are_decoded() {
    let text = std::fs::read_to_string(data("expected/kafka-4.3.0-clean/committed-offsets.jsonl"))
        .unwrap();
    let expected: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut found = Vec::new();
    for partition in 0..2 {
        let dirs = ["kafka-4.3.0/clean/log-dir-1", "kafka-4.3.0/clean/log-dir-2"];
        let mut places = dirs
            .iter()
            .map(|dir| data(&format!("{dir}/__consumer_offsets-{partition}")));
        let place = places.find(|place| Path::new(place).is_dir()).unwrap();
        let lines = offsetlog(&["dump", &place]).lines();
        let decoded = of_type(&lines, "record")
            .into_iter()
            .map(|record| record["decoded"].clone());
        found.extend(decoded.filter(|decoded| decoded["type"] == "OffsetCommit"));
    }
    assert_eq!(found.len(), expected.len());
    assert!(found.len() > 10);
    for (found, expected) in found.iter().zip(&expected) {
        let key = &expected["key"];
        assert_eq!(&found["key"], key.get("data").unwrap_or(key));
        let payload = &expected["payload"];
        assert_eq!(&found["value"], payload.get("data").unwrap_or(payload));
    }
}

#[test]
fn files_of_a_log_dir_and_of_the_metadata_log_are_shown() {
    let outcome = run("dump kafka-4.3.0/clean/log-dir-1");
    assert_eq!(outcome.code, 0);
    assert!(
        outcome
            .err
            .contains("holds 20 partitions; give one to dump it"),
        "{}",
        outcome.err
    );
    let lines = outcome.lines();
    let property = of_type(&lines, "property")
        .into_iter()
        .find(|line| line["key"] == "node.id")
        .unwrap();
    assert_eq!(property["value"], "1");
    assert_eq!(of_type(&lines, "clean_shutdown")[0]["broker_epoch"], 430);
    assert!(of_type(&lines, "checkpoint_entry").len() > 20);
    let metadata = run("dump kafka-4.3.0/clean/metadata-dir/__cluster_metadata-0");
    assert_eq!(metadata.code, 0);
    let topics: Vec<Value> = of_type(&metadata.lines(), "record")
        .iter()
        .filter(|record| record["decoded"]["type"] == "TopicRecord")
        .map(|record| record["decoded"]["value"]["name"].clone())
        .collect();
    assert!(topics.contains(&json!("g-plain")), "{topics:?}");
}

#[test]
fn what_cannot_be_read_is_said_and_the_rest_is_read() {
    let outcome = run(
        "dump no-such-file kafka-4.3.0/clean/log-dir-1/g-plain-0/partition.metadata kafka-4.3.0/torn/damage.json",
    );
    assert_eq!(outcome.code, 2);
    assert_eq!(outcome.lines().len(), 2);
    assert!(
        outcome.err.contains("no-such-file: no such file"),
        "{}",
        outcome.err
    );
    assert!(
        outcome
            .err
            .contains("damage.json: no file of Kafka's has such a name"),
        "{}",
        outcome.err
    );
    assert_eq!(run("dump").code, 2);
    assert_eq!(run("dump --deep-iteration x").code, 2);
    assert_eq!(
        run("dump --kafka --offsets-decoder --cluster-metadata-decoder x").code,
        2
    );
}

/// `g-plain` has a key of all 256 byte values: neither form lets a terminal have them; a pipe gets Kafka's bytes.
#[test]
fn a_terminal_gets_no_control_characters() {
    let terminal = || Terminal {
        stdout_is_terminal: true,
        stderr_is_terminal: true,
        ..Terminal::default()
    };
    let file = "kafka-4.3.0/clean/log-dir-1/g-plain-0/00000000000000000000.log";
    for options in ["", "--kafka --print-data-log "] {
        let outcome = offsetlog_on(terminal(), &arguments(&format!("dump {options}{file}")));
        assert!(
            outcome.text().chars().all(|c| !c.is_control() || c == '\n'),
            "{options}"
        );
    }
    let piped = run(&format!("dump --kafka --print-data-log {file}"));
    assert!(piped.out.contains(&0x1b));
    let strange = offsetlog_on(terminal(), &["dump", "--kafka", "\x1b]0;owned\x07"]);
    assert!(!strange.text().contains('\x1b') && !strange.err.contains('\x1b'));
}

#[test]
fn bytes_can_be_limited() {
    let file = "kafka-4.3.0/clean/log-dir-1/g-plain-0/00000000000000000000.log";
    let lines = run(&format!("dump --batches --max-bytes 2000 {file}")).lines();
    let batches = of_type(&lines, "batch");
    assert!(!batches.is_empty());
    assert!(
        batches
            .iter()
            .all(|batch| batch["position"].as_u64().unwrap()
                + batch["size_bytes"].as_u64().unwrap()
                <= 2000)
    );
    assert_eq!(of_type(&lines, "damage").len(), 0);
}
