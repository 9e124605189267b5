//! `offsetlog create`, `delete` and `settings`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has to fail"
)]

mod common;

use common::{files, offsetlog, offsetlog_fed, offsetlog_on};
use offsetlog_cli::Terminal;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_topic_is_made_told_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("d1"), folder.path().join("d2"));
    let dirs = [text(&one), text(&other)];
    let made = offsetlog(&[
        "create",
        "orders",
        dirs[0],
        dirs[1],
        "--partitions",
        "3",
        "--config",
        "retention.ms=5",
    ]);
    assert_eq!((made.code, made.err.as_str()), (0, ""));
    let expected = format!(
        "{0}/orders-0\n{1}/orders-1\n{0}/orders-2\n",
        dirs[0], dirs[1]
    );
    assert_eq!(made.text(), expected);
    let again = offsetlog(&["create", "orders", dirs[0], dirs[1]]);
    assert_eq!(again.code, 2);
    assert!(again.err.contains("is there already"), "{}", again.err);

    let id = "LswxTofUkfNIDaSgcjYDnA";
    let json = offsetlog(&["create", "t", dirs[0], dirs[1], "--topic-id", id, "--json"]);
    let expected =
        json!({"topic": "t", "partition": 0, "topic_id": id, "path": format!("{}/t-0", dirs[1])});
    assert_eq!(json.lines(), [expected]);

    let before = files(folder.path());
    let dry = offsetlog(&["delete", "--dry-run", "orders", dirs[0], dirs[1]]);
    assert_eq!(dry.code, 0);
    assert_eq!(dry.text().lines().count(), 3);
    assert!(dry.text().contains("orders-1: would be deleted"));
    assert_eq!(files(folder.path()), before);
    let deleted = offsetlog(&["delete", "orders", dirs[0], dirs[1], "--json"]);
    assert_eq!(deleted.code, 0);
    assert_eq!(deleted.lines()[1]["path"], format!("{}/orders-1", dirs[1]));
    let listed = offsetlog(&["ls", dirs[0], dirs[1], "--by-topic", "--json"]);
    assert_eq!(listed.lines().len(), 1);
    let gone = offsetlog(&["delete", "orders", dirs[0], dirs[1]]);
    assert_eq!(gone.code, 2);
    assert!(gone.err.contains("there is no topic"), "{}", gone.err);
}

#[test]
fn a_wrong_folder_is_not_made_for_a_deletion() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("nothing");
    let refused = offsetlog(&["delete", "orders", text(&nothing)]);
    assert_eq!(refused.code, 2);
    assert!(!nothing.exists());
}

#[test]
fn names_and_settings_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("d");
    for (arguments, told) in [
        (&["create", "a/b", text(&dir)][..], "a/b"),
        (&["create", "t", text(&dir), "--partitions", "0"][..], "'0'"),
        (
            &["create", "t", text(&dir), "--config", "retention.ms=soon"][..],
            "retention.ms",
        ),
        (
            &["create", "t", text(&dir), "--config", "retenton.ms=5"][..],
            "did you mean retention.ms?",
        ),
        (
            &[
                "create",
                "t",
                text(&dir),
                "--config",
                "segment.ms=5",
                "--config",
                "segment.ms=6",
            ][..],
            "given twice",
        ),
        (
            &["settings", text(&dir), "--config", "segment.ms=5"][..],
            "--topic",
        ),
    ] {
        let refused = offsetlog(arguments);
        assert_eq!(refused.code, 2, "{arguments:?}");
        assert!(refused.err.contains(told), "{}", refused.err);
        assert_eq!(refused.err.lines().count(), 1);
    }
    assert!(
        files(folder.path())
            .iter()
            .all(|(path, _)| !text(path).contains("t-0"))
    );
}

#[test]
fn settings_are_shown_and_changed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("d");
    offsetlog(&[
        "create",
        "a",
        text(&dir),
        "--partitions",
        "2",
        "--config",
        "segment.ms=7",
    ]);
    offsetlog(&["create", "b", text(&dir)]);
    let shown = offsetlog(&["settings", text(&dir)]);
    assert_eq!(shown.code, 0);
    assert_eq!(
        shown.text(),
        "TOPIC  SETTING     VALUE  FROM\na      segment.ms  7      topic\n"
    );
    let properties = folder.path().join("server.properties");
    std::fs::write(&properties, "log.retention.hours=1\nlog.roll.ms=9\n").unwrap();
    let both = offsetlog(&[
        "settings",
        text(&dir),
        "--broker",
        text(&properties),
        "--json",
    ]);
    let row = |topic: &str, name: &str, value: &str, from: &str| json!({"topic": topic, "name": name, "value": value, "from": from});
    assert_eq!(
        both.lines(),
        [
            row("a", "retention.ms", "3600000", "broker"),
            row("a", "segment.ms", "7", "topic"),
            row("b", "retention.ms", "3600000", "broker"),
            row("b", "segment.ms", "9", "broker"),
        ]
    );
    let changed = offsetlog(&[
        "settings",
        text(&dir),
        "-t",
        "a",
        "--config",
        "cleanup.policy=compact",
        "--unset",
        "segment.ms",
    ]);
    assert_eq!(
        changed.text(),
        "TOPIC  SETTING         VALUE    FROM\na      cleanup.policy  compact  topic\n"
    );
    for partition in ["a-0", "a-1"] {
        let stored =
            std::fs::read_to_string(dir.join(partition).join(".offsetlog.config")).unwrap();
        assert_eq!(stored, "version: 0\ncleanup.policy=compact\n");
    }
    let unknown = offsetlog(&["settings", text(&dir), "-t", "a", "--unset", "segment.mss"]);
    assert!(
        unknown.err.contains("did you mean segment.ms?"),
        "{}",
        unknown.err
    );
    let nobody = offsetlog(&["settings", text(&dir), "-t", "nobody"]);
    assert_eq!((nobody.code, nobody.text()), (1, ""));
}

#[test]
fn without_a_path_all_settings_are_listed() {
    let table = offsetlog(&["settings"]);
    assert_eq!(
        table.text().lines().count(),
        offsetlog::settings().len() + 1
    );
    assert!(
        table
            .text()
            .lines()
            .any(|line| line.starts_with("segment.bytes ") && line.contains("at least 1048576"))
    );
    let json = offsetlog(&["settings", "--json"]);
    let found = json.lines();
    let row = found
        .iter()
        .find(|row| row["name"] == "retention.ms")
        .unwrap();
    assert_eq!(
        row["broker_synonyms"],
        json!([
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours"
        ])
    );
    assert_eq!(
        (&row["default"], &row["type"]),
        (&json!("604800000"), &json!("long"))
    );
}

/// Ten segments of which the time has come, in two partitions; a topic that is compacted; one that was deleted.
fn aged(dir: &Path) {
    offsetlog(&[
        "create",
        "aged",
        text(dir),
        "--partitions",
        "2",
        "--config",
        "internal.segment.bytes=100",
        "--config",
        "retention.ms=1",
    ]);
    offsetlog(&["create", "old", text(dir)]);
    for partition in ["aged-0", "aged-1"] {
        let path = dir.join(partition);
        for _ in 0..5 {
            let put = offsetlog_fed(
                "some value of a record\n",
                &["append", text(&path), "--timestamp", "1000", "--quiet"],
            );
            assert_eq!((put.code, put.err.as_str()), (0, ""));
        }
    }
    offsetlog(&["delete", "old", text(dir)]);
}

#[test]
fn maintain_says_what_would_go_and_then_does_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("d");
    aged(&dir);
    let dry = offsetlog(&["maintain", "--dry-run", text(&dir), "--json"]);
    assert_eq!((dry.code, dry.err.as_str()), (0, ""));
    let lines = dry.lines();
    assert_eq!(lines.len(), 2, "the deleted topic is not due: {lines:?}");
    assert_eq!(lines[1]["partition"], 1);
    assert_eq!(lines[0]["removed"].as_array().unwrap().len(), 5);
    assert_eq!(lines[0]["removed"][0]["reason"], "retention.ms");
    assert!(dir.join("aged-0/00000000000000000000.log").exists());
    let done = offsetlog(&["maintain", text(&dir)]);
    assert_eq!((done.code, done.err.as_str()), (0, ""));
    assert_eq!(done.text().lines().count(), 10, "{}", done.text());
    assert!(
        done.text().starts_with("aged-0: offsets 0 to 0 removed, "),
        "{}",
        done.text()
    );
    assert!(!dir.join("aged-0/00000000000000000000.log").exists());
    let nothing = offsetlog(&["maintain", "--dry-run", text(&dir)]);
    assert_eq!(
        (nothing.code, nothing.text()),
        (1, "nothing to do in 2 partitions\n")
    );
}

#[test]
fn maintain_makes_no_log_dir_of_a_wrong_path() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("nothing");
    let refused = offsetlog(&["maintain", text(&nothing)]);
    assert_eq!(refused.code, 2);
    assert!(!nothing.exists());
    let refused = offsetlog(&["maintain", text(folder.path()), "--every", "5w"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("30s, 5m, 1h or 1d"), "{}", refused.err);
}

/// Gone, or emptied, while it waits between two rounds: what it said, and what it does not say, is not taken for what is meant.
#[test]
fn maintain_reads_the_brokers_settings_in_each_round() {
    for is_emptied in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("d");
        aged(&dir);
        let properties = folder.path().join("server.properties");
        std::fs::write(&properties, "log.retention.hours=1\n").unwrap();
        let (asked, file) = (AtomicUsize::new(0), properties.clone());
        let terminal = Terminal {
            interrupt: Some(Arc::new(move || {
                let count = asked.fetch_add(1, Ordering::SeqCst);
                if count == 200 && is_emptied {
                    std::fs::write(&file, "").unwrap();
                } else if count == 200 {
                    std::fs::remove_file(&file).unwrap();
                }
                count > 2_000
            })),
            ..Terminal::default()
        };
        let words = ["maintain", text(&dir), "--broker", text(&properties)];
        let run = offsetlog_on(terminal, &[&words[..], &["--every", "1s"]].concat());
        assert_eq!(run.code, 2, "{}", run.text());
        assert!(run.err.contains("server.properties"), "{}", run.err);
        assert_eq!(run.err.contains("no setting found"), is_emptied);
    }
}

#[test]
fn maintain_goes_on_until_it_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("d");
    aged(&dir);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let terminal = Terminal {
        // Some looks are those of opening and reading.
        interrupt: Some(Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst) > 200
        })),
        ..Terminal::default()
    };
    let run = offsetlog_on(
        terminal,
        &[
            "maintain",
            text(&dir),
            "--every",
            "1s",
            "--only",
            "retention",
        ],
    );
    assert_eq!(run.code, 130);
    assert!(
        run.text().contains("nothing to do in 2 partitions"),
        "{}",
        run.text()
    );
}

#[test]
fn maintain_that_is_interrupted_tells_what_it_removed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("d");
    aged(&dir);
    let oldest = dir.join("aged-0/00000000000000000000.log");
    let terminal = Terminal {
        interrupt: Some(Arc::new(move || !oldest.exists())),
        ..Terminal::default()
    };
    let run = offsetlog_on(terminal, &["maintain", text(&dir)]);
    assert_eq!(run.code, 130);
    let told = run.text();
    assert!(
        told.starts_with("aged-0: offsets 0 to 0 removed, "),
        "{told}"
    );
    assert!(!told.contains("aged-1"), "{told}");
    assert!(dir.join("aged-1/00000000000000000000.log").exists());
}
