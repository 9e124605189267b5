//! One partition of several fails: the others are answered, it is named in words and as a JSON line, and the exit code is 2.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has to fail"
)]

mod common;

use common::{Outcome, offsetlog, offsetlog_fed};
use offsetlog::{
    AppendOptions, BatchBuilder, LogConfig, LogDir, LogDirOptions, NewTopic, OpenOptions,
};
use serde_json::Value;
use tempfile::TempDir;

/// A log dir of three partitions with a record each. The second one has a folder in the place of its only segment.
fn with_a_damaged_one() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let paths = [root.path().join("logs")];
    std::fs::create_dir(&paths[0]).unwrap();
    let how = LogDirOptions::default();
    let log_dir = LogDir::open_for_append(&paths, &OpenOptions::default(), &how).unwrap();
    let topic = NewTopic {
        name: "orders",
        partitions: 3,
        config: LogConfig::default(),
        topic_id: None,
    };
    log_dir.create_topic(&topic).unwrap();
    for partition in 0..3 {
        let mut batch = BatchBuilder::default();
        batch.push(1, None, Some(b"value"), &[]).unwrap();
        let log = log_dir.log_writer("orders", partition).unwrap();
        log.append(&mut batch, &AppendOptions::default()).unwrap();
    }
    log_dir.close().unwrap();
    let segment = paths[0].join("orders-1/00000000000000000000.log");
    std::fs::remove_file(&segment).unwrap();
    std::fs::create_dir(&segment).unwrap();
    root
}

fn run(verb: &[&str], root: &TempDir) -> Outcome {
    let path = root.path().join("logs");
    offsetlog(&[verb, &[path.to_str().unwrap()]].concat())
}

fn is_error(line: &Value) -> bool {
    line.get("error").is_some_and(Value::is_string)
}

#[test]
fn every_verb_names_the_one_that_fails_and_answers_the_others() {
    let answering = [
        &["ls", "--json", "-p", "0", "-p", "1", "-p", "2"][..],
        &["cat", "--json"],
        &["grep", "--json", "value"],
        &["grep", "--json", "--count", "value"],
        &["time", "--json", "0"],
        &["recover", "--json"],
        &["recover", "--json", "--dry-run"],
        &["producers", "--json"],
        &[
            "maintain",
            "--json",
            "-t",
            "orders",
            "--config",
            "retention.ms=1",
        ],
        &[
            "maintain",
            "--json",
            "--dry-run",
            "-t",
            "orders",
            "--config",
            "retention.ms=1",
        ],
    ];
    for verb in answering {
        let root = with_a_damaged_one();
        let outcome = run(verb, &root);
        assert_eq!(outcome.code, 2, "{verb:?}: {}", outcome.err);
        assert!(
            outcome.err.contains("orders-1: "),
            "{verb:?}: {}",
            outcome.err
        );
        let lines = outcome.lines();
        let failed: Vec<&Value> = lines.iter().filter(|line| is_error(line)).collect();
        assert_eq!(failed.len(), 1, "{verb:?}: {lines:?}");
        assert_eq!(failed[0]["topic"], "orders", "{verb:?}");
        assert_eq!(failed[0]["partition"], 1, "{verb:?}");
        let answered = |number| {
            let of = |line: &&Value| line["partition"] == number && !is_error(line);
            lines.iter().any(|line| of(&line))
        };
        let has_lines = verb[0] != "producers";
        assert_eq!(
            (answered(0), answered(2)),
            (has_lines, has_lines),
            "{verb:?}: {lines:?}"
        );
    }
}

/// What names a failure is no record for whoever appends what is printed.
#[test]
fn append_refuses_the_line_of_a_partition_that_failed() {
    let root = with_a_damaged_one();
    let printed = run(&["cat", "--json"], &root).out;
    let place = root.path().join("other/orders-0");
    std::fs::create_dir(root.path().join("other")).unwrap();
    let outcome = offsetlog_fed(printed, &["append", "--json", place.to_str().unwrap()]);
    assert_eq!(outcome.code, 4, "{}", outcome.err);
    assert!(outcome.err.contains("line 2"), "{}", outcome.err);
}
