//! `offsetlog convert`: what it makes, says and refuses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

mod common;

use common::{offsetlog, offsetlog_on};
use offsetlog_cli::Terminal;
use serde_json::json;
use std::fs;
use std::sync::Arc;

const OLD: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/kafka-2.8.2/broker-1/o-v1-lz4-0"
);

#[test]
fn a_directory_is_converted_and_told() {
    let place = tempfile::tempdir().unwrap();
    let new = place.path().join("o-v1-lz4-0");
    let new = new.to_str().unwrap();
    let done = offsetlog(&["convert", OLD, new, "--json", "--compression", "gzip"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let line = &done.lines()[0];
    let expected = [
        ("path", json!(new)),
        ("records", json!(108)),
        ("batches_kept", json!(0)),
        ("bytes_read", json!(10132)),
        ("dropped_bytes", json!(0)),
        ("dropped_reason", json!(null)),
        ("log_start_offset", json!(0)),
        ("log_end_offset", json!(108)),
    ];
    for (name, value) in expected {
        assert_eq!(line[name], value, "{name}");
    }
    assert!(
        done.err
            .starts_with("offsetlog: o-v1-lz4-0: 108 records in ")
    );
    let format = ["-f", "%o %T %k %s\\n"];
    let cat = |path: &str| offsetlog(&[&["cat", path], &format[..]].concat()).out;
    assert_eq!(cat(new), cat(OLD));
    let again = offsetlog(&["convert", OLD, new]);
    assert_eq!((again.code, again.out.len()), (2, 0));
    assert!(again.err.contains("is not empty"), "{}", again.err);
}

#[test]
fn quiet_says_nothing_and_settings_are_given_once() {
    let place = tempfile::tempdir().unwrap();
    let new = place.path().join("t-0");
    let new = new.to_str().unwrap();
    let twice = ["--config", "segment.ms=5", "--config", "segment.ms=6"];
    let refused = offsetlog(&[&["convert", OLD, new], &twice[..]].concat());
    assert_eq!(refused.code, 2);
    assert_eq!(
        refused.err,
        "offsetlog: the setting segment.ms is given twice\n"
    );
    let done = offsetlog(&["convert", "-q", OLD, new, "--config", "retention.ms=5"]);
    assert_eq!((done.code, done.text(), done.err.as_str()), (0, "", ""));
    let settings = fs::read_to_string(place.path().join("t-0/.offsetlog.config")).unwrap();
    assert!(settings.contains("retention.ms=5"), "{settings}");
}

#[test]
fn ctrl_c_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let new = place.path().join("t-0");
    let terminal = Terminal {
        interrupt: Some(Arc::new(|| true)),
        ..Terminal::default()
    };
    let stopped = offsetlog_on(terminal, &["convert", OLD, new.to_str().unwrap()]);
    assert_eq!((stopped.code, stopped.err.as_str()), (130, ""));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}
