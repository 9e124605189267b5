//! `offsetlog append`: what goes in comes out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has to fail"
)]

mod common;

use common::{Place, SETS, lookups, offsetlog, paths};
use offsetlog::format::Codec;
use offsetlog::{LogWriter, OpenOptions, WriteOptions};
use serde_json::{Value, json};
use std::path::Path;

/// Key, value and headers of each record.
fn parts(records: &[Value]) -> Vec<Value> {
    records
        .iter()
        .map(|record| json!([record["key"], record["payload"], record["headers"]]))
        .collect()
}

#[test]
fn lines_are_values_and_offsets_go_on() {
    let place = Place::new();
    let first = place.append("one\n\ntwo", "");
    assert_eq!(
        (first.code, first.text(), first.err.as_str()),
        (
            0,
            "",
            "offsetlog: orders-0: 3 records appended at offsets 0 to 2, 88 bytes\n"
        )
    );
    let second = place.append("three\n", "");
    assert!(
        second
            .err
            .contains("1 record appended at offset 3, 73 bytes"),
        "{}",
        second.err
    );
    let none = place.append("", "");
    assert_eq!(
        (none.code, none.err.as_str()),
        (0, "offsetlog: orders-0: nothing appended\n")
    );
    assert_eq!(place.values(), ["one", "", "two", "three"]);
    assert_eq!(place.records()[0]["key"], Value::Null);
    assert!(place.is_closed_cleanly());
    let quiet = place.append("four\n", "-q");
    assert_eq!((quiet.code, quiet.err.as_str()), (0, ""));
}

#[test]
fn a_line_may_hold_headers_a_key_and_nulls() {
    let place = Place::new();
    let input = "a=1,b=NULL\tk1\tv\tw\n\tNULL\tNULL\na=1,a=2\t\t\n";
    let options = r"--headers-separator \t -K \t --null-value NULL -H host=web1 -H flag -H empty=";
    let outcome = place.append(input, options);
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    let given = ["host", "web1", "flag", "", "empty", ""];
    let with_given = |own: &[Value]| {
        let mut headers = own.to_vec();
        headers.extend(given.map(Value::from));
        let null = headers.len() - 3;
        headers[null] = Value::Null;
        headers
    };
    assert_eq!(
        parts(&place.records()),
        [
            json!([
                "k1",
                "v\tw",
                with_given(&[json!("a"), json!("1"), json!("b"), Value::Null])
            ]),
            json!([null, null, with_given(&[])]),
            json!([
                "",
                "",
                with_given(&[json!("a"), json!("1"), json!("a"), json!("2")])
            ]),
        ]
    );
    // What `cat` prints in this layout is what was put in.
    let back = offsetlog(&["cat", place.path(), "--raw", "-Z", "-f", r"%h\t%k\t%s\n"]);
    let copy = Place::new();
    copy.append(back.out, r"--headers-separator \t -K \t --null-value NULL");
    assert_eq!(parts(&copy.records()), parts(&place.records()));
}

#[test]
fn kcats_letters_do_what_they_do_there() {
    let place = Place::new();
    let outcome = place.append("a;b;;c", "-P -D ; -k same -Z -z lz4 -H a=1");
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    let header = json!(["a", "1"]);
    assert_eq!(
        parts(&place.records()),
        [
            json!(["same", "a", header]),
            json!(["same", "b", header]),
            json!(["same", null, header]),
            json!(["same", "c", header]),
        ]
    );
    assert_eq!(place.batches()[0].codec, Codec::Lz4);
}

/// Bytes are bytes: nothing says that lines have to be text.
#[test]
fn lines_that_are_not_utf8_are_kept_as_they_are() {
    let place = Place::new();
    let line: Vec<u8> = (0..=255).filter(|byte| *byte != b'\n').collect();
    let mut input = line.clone();
    input.extend(b"\r\n\xff\0:\xfe\n");
    assert_eq!(place.append(input, "").code, 0);
    let raw = offsetlog(&["cat", place.path(), "--raw", "-D", "|"]);
    let mut expected = line;
    expected.extend(b"\r|\xff\0:\xfe|");
    assert_eq!(raw.out, expected);
    let keyed = Place::new();
    assert_eq!(keyed.append(b"\xff\0:\xfe\n".as_slice(), "-K :").code, 0);
    let record = &keyed.records()[0];
    assert_eq!(
        (&record["key"], &record["payload"]),
        (&json!({"base64": "/wA="}), &json!({"base64": "/g=="}))
    );
}

/// What a record is, whatever became of the log around it.
fn content(record: &Value) -> Value {
    let timestamp = record.get("ts").cloned().unwrap_or(json!(-1));
    json!([
        record["key"],
        record["payload"],
        record["headers"],
        timestamp
    ])
}

/// Every partition that real brokers wrote: `cat --json | append --json` gives the same records, in each codec by turns.
#[test]
fn json_round_trips_every_golden_partition() {
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    let mut turn = 0;
    let mut refused = 0;
    for (dirs, expected) in SETS {
        for (name, lookup) in lookups(expected) {
            let mut args = vec!["cat".to_owned(), "--json".into(), "-q".into()];
            args.extend(["-t".into(), lookup["topic"].as_str().unwrap().to_owned()]);
            args.extend(["-p".into(), lookup["partition"].to_string()]);
            args.extend(paths(dirs));
            let original = offsetlog(&args);
            let records = original.lines();
            let place = Place::new();
            turn += 1;
            let codec = codecs[turn % codecs.len()];
            let options = format!(
                "--json -q -z {codec} --config message.timestamp.after.max.ms={}",
                i64::MAX
            );
            let outcome = place.append(original.out, &options);
            // A leader takes no timestamp below -1, which an old broker did.
            let negative = records
                .iter()
                .position(|record| record["ts"].as_i64().is_some_and(|ts| ts < -1));
            let whole = negative.unwrap_or(records.len());
            assert_eq!(
                outcome.code,
                if negative.is_some() { 4 } else { 0 },
                "{name}: {}",
                outcome.err
            );
            if let Some(slot) = negative {
                refused += 1;
                let line = format!("offsetlog: line {}: timestamp -", slot + 1);
                assert!(outcome.err.starts_with(&line), "{name}: {}", outcome.err);
            }
            assert_eq!(outcome.lines()[0]["appended"], whole, "{name}");
            let copied: Vec<Value> = place.records().iter().map(content).collect();
            let expected: Vec<Value> = records[..whole].iter().map(content).collect();
            assert_eq!(copied, expected, "{name}");
            let wanted = codec.parse::<Shape>().unwrap();
            assert!(place.batches().iter().all(|batch| batch.codec == wanted.0));
        }
    }
    assert!(turn > 40, "{turn}");
    assert!(refused > 0, "g-time has negative timestamps");
}

struct Shape(Codec);

impl std::str::FromStr for Shape {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let codecs = [
            Codec::None,
            Codec::Gzip,
            Codec::Snappy,
            Codec::Lz4,
            Codec::Zstd,
        ];
        let found = codecs.into_iter().find(|codec| codec.to_string() == name);
        found.map(Self).ok_or(())
    }
}

#[test]
fn formats_of_cat_round_trip_too() {
    let source = Place::new();
    let input: Vec<u8> = (0..=255).filter(|byte| *byte != b'\n').collect();
    source.append(input, "-k \u{7f}key");
    let expected: Vec<Value> = source.records().iter().map(content).collect();
    for format in ["base64", "hex"] {
        let options = format!("--key-format={format} --value-format={format}");
        let formats: Vec<&str> = options.split(' ').collect();
        let copy = |flag: &str, more: &[&str]| {
            let printed = offsetlog(&[&["cat", source.path(), flag], more, &formats].concat());
            let place = Place::new();
            let into = match flag {
                "-J" => format!("-J {options}"),
                _ => format!("-K : {options}"),
            };
            let outcome = place.append(printed.out, &into);
            assert_eq!(outcome.code, 0, "{}", outcome.err);
            place.records().iter().map(content).collect::<Vec<_>>()
        };
        assert_eq!(copy("-J", &[]), expected);
        let keyed = copy("-K:", &[]);
        assert_eq!(
            (&keyed[0][0], &keyed[0][1]),
            (&expected[0][0], &expected[0][1])
        );
    }
    let place = Place::new();
    let outcome = place.append(
        r#"{"payload":{"b":1.0,"a":[1e400]}}"#,
        "-J --value-format json",
    );
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert_eq!(place.values(), [r#"{"b":1.0,"a":[1e400]}"#]);
}

#[test]
fn json_means_both_ways_and_each_can_be_had_alone() {
    let place = Place::new();
    let both = place.append(
        "{\"payload\":\"a\"}\n\n{\"payload\":null,\"key\":\"k\"}\n",
        "-J",
    );
    assert_eq!(
        both.lines(),
        [json!({
            "topic": "orders", "partition": 0, "appended": 2, "base_offset": 0, "last_offset": 1, "bytes": 77
        })]
    );
    let out_only = place.append("b\n", "--json --format lines -q");
    assert_eq!(out_only.lines()[0]["base_offset"], 2);
    let in_only = place.append("{\"value\":\"c\"}", "--format json");
    assert_eq!((in_only.code, in_only.text()), (0, ""));
    let nothing = place.append("", "--json");
    assert_eq!(nothing.lines()[0]["base_offset"], Value::Null);
    assert_eq!(
        place.values(),
        [json!("a"), Value::Null, json!("b"), json!("c")]
    );
    assert_eq!(
        nothing.lines()[0]["bytes"],
        0,
        "the bytes are those of this append"
    );
}

#[test]
fn timestamps_are_the_records_or_now_or_as_asked() {
    let place = Place::new();
    let now = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        i64::try_from(now.unwrap().as_millis()).unwrap()
    };
    let before = now();
    let objects = r#"{"payload":"given","ts":1700000000000}
{"payload":"missing"}
{"payload":"none","ts":null}
{"payload":"of magic 0","offset":7}
"#;
    place.append("line\n", "");
    place.append(objects, "--format json");
    place.append(objects, "--format json --timestamp 2023-11-14T22:13:21Z");
    place.append(objects, "--format json --timestamp now");
    place.append("fixed\n", "--timestamp 5");
    place.append("no time\n", "--timestamp -1");
    let after = now();
    let times: Vec<String> = place
        .records()
        .iter()
        .map(|record| match record["ts"].as_i64().unwrap() {
            ts if (before..=after).contains(&ts) => "now".to_owned(),
            ts => ts.to_string(),
        })
        .collect();
    let (a, b) = ("1700000000000", "1700000001000");
    assert_eq!(
        times,
        [
            "now", a, "now", "-1", "-1", b, b, b, b, "now", "now", "now", "now", "5", "-1"
        ]
    );
}

/// A batch that the log refuses for its size alone goes in in parts.
#[test]
fn batches_above_the_logs_limit_are_divided() {
    let place = Place::new();
    let expected: Vec<String> = (0..500).map(|number| format!("value {number}")).collect();
    let input = expected.join("\n");
    let outcome = place.append(input, "--batch-bytes 1MiB --config max.message.bytes=1000");
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert_eq!(place.values(), expected);
    assert!(place.batches().iter().all(|batch| batch.size_bytes <= 1000));
}

#[test]
fn batches_are_as_large_as_asked() {
    let input = "x".repeat(90) + "\n";
    let sizes = |options: &str| {
        let place = Place::new();
        place.append(input.repeat(1000), options);
        assert_eq!(place.records().len(), 1000);
        place
            .batches()
            .iter()
            .map(|batch| batch.size_bytes)
            .collect::<Vec<_>>()
    };
    for (options, limit) in [("", 16_384), ("--batch-bytes 4K", 4096)] {
        let found = sizes(options);
        let (last, full) = found.split_last().unwrap();
        assert!(
            full.iter()
                .all(|size| (limit * 3 / 4..=limit).contains(size)),
            "{found:?}"
        );
        assert!(*last <= limit);
    }
    assert_eq!(sizes("--batch-bytes 1").len(), 1000);
    let place = Place::new();
    place.append(input.repeat(1000) + &"y".repeat(50_000), "");
    let last = place.batches().pop().unwrap();
    assert_eq!(last.record_count, Some(1), "a large record is by itself");
}

fn config(path: &Path) -> Vec<(String, String)> {
    let log = LogWriter::open(path, &OpenOptions::default(), &WriteOptions::default()).unwrap();
    let config = log.config();
    log.close().unwrap();
    let given = config.given();
    given
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn settings_are_stored_and_added_to() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let place = Place::new();
    place.append(
        "a\n",
        "--config segment.bytes=1048576 --config compression.type=gzip -z lz4",
    );
    assert_eq!(
        config(&place.path),
        [
            pair("compression.type", "gzip"),
            pair("segment.bytes", "1048576")
        ]
    );
    place.append("b\n", "--config compression.type=zstd");
    place.append("c\n", "");
    assert_eq!(
        config(&place.path),
        [
            pair("compression.type", "zstd"),
            pair("segment.bytes", "1048576")
        ]
    );
    let codecs: Vec<Codec> = place.batches().iter().map(|batch| batch.codec).collect();
    assert_eq!(codecs, [Codec::Gzip, Codec::Zstd, Codec::Zstd]);
}

#[test]
fn the_topic_id_is_kept() {
    let place = Place::new();
    let id = "MWJ6FHTfRYy67jzwZdeqSQ";
    assert_eq!(place.append("a\n", &format!("--topic-id {id}")).code, 0);
    let line = &offsetlog(&["ls", "--json", place.path()]).lines()[0];
    assert_eq!(line["topic_id"], id);
    assert_eq!(place.append("b\n", &format!("--topic-id {id}")).code, 0);
    let other = place.append("c\n", "--topic-id AAAAAAAAAAAAAAAAAAAAAQ");
    assert_eq!(other.code, 2);
    assert!(
        other
            .err
            .contains("the partition belongs to the topic MWJ6"),
        "{}",
        other.err
    );
    assert_eq!(place.values(), ["a", "b"]);
}

#[test]
fn every_batch_is_durable_with_flush() {
    let place = Place::new();
    let outcome = place.append("a\nb\n", "--flush --batch-bytes 1");
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert_eq!(place.batches().len(), 2);
}
