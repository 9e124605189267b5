//! `offsetlog create`, `delete` and `settings`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has to fail"
)]

mod common;

use common::{files, offsetlog};
use serde_json::json;
use std::path::Path;

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
        "-n",
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
        (&["create", "t", text(&dir), "-n", "0"][..], "'0'"),
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
        "-n",
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
