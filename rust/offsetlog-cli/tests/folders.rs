//! What a folder is taken for: a log dir is no partition, the folder around log dirs is neither, and nothing is made in either.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has to fail"
)]

mod common;

use common::{Outcome, copy, data, files, offsetlog, offsetlog_fed};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A copy of what a killed broker left: a folder with its two log dirs, whose names look like partitions'.
fn around() -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let around = root.path().join("unclean");
    copy(Path::new(&data("kafka-4.3.0/unclean")), &around);
    (root, around)
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Every file, and every folder.
fn tree(root: &Path) -> (Vec<PathBuf>, std::collections::BTreeMap<PathBuf, Vec<u8>>) {
    fn folders(root: &Path, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(root).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                into.push(entry.path());
                folders(&entry.path(), into);
            }
        }
    }
    let mut found = Vec::new();
    folders(root, &mut found);
    found.sort();
    (found, files(root))
}

/// Every verb refuses the folder around log dirs, names the paths that work, and changes nothing.
#[test]
fn the_folder_around_log_dirs_is_refused_by_every_verb() {
    let (root, around) = around();
    let path = text(&around);
    let new = text(&root.path().join("new-0"));
    let sound = text(&root.path().join("sound"));
    copy(Path::new(&data("kafka-4.3.0/clean")), Path::new(&sound));
    let log_dir = format!("{sound}/log-dir-1");
    let partition = format!("{log_dir}/g-plain-0");
    let before = tree(root.path());
    let verbs: [&[&str]; 34] = [
        &["ls", &path],
        &["ls", "--json", "--by-topic", &path],
        &["cat", &path],
        &["grep", "x", &path],
        &["dump", &path],
        &["groups", &path],
        &["transactions", &path],
        &["producers", &path],
        &["why", &path],
        &["metadata", &path],
        &["time", "0", &path],
        &["explain", "0", &path],
        &["verify", &path],
        &["recover", "--dry-run", &path],
        &["recover", &path],
        &["create", "orders", &path],
        &["delete", "g-plain", &path],
        &["maintain", &path],
        &["settings", &path],
        &["append", &path],
        &["end-transaction", "g-txn-0", "1", &path],
        &["adopt", &path],
        &["adopt", "--dry-run", &path],
        &["adopt", "--log-dir", &path, &partition],
        &["salvage", &path, "--into", &new],
        &["salvage", &partition, "--into", &path],
        &["salvage", "--dry-run", &partition, "--into", &path],
        &["restore", &path, "--into", &new],
        &["restore", &log_dir, "--into", &path],
        &["serve", "--listen", "127.0.0.1:0", &path],
        &[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--groups",
            &path,
            &log_dir,
        ],
        &["mirror", "--bootstrap", "127.0.0.1:1", "--into", &path],
        &["convert", &path, &new],
        &["commits", &path],
    ];
    // These take a partition or a folder of their own, so that no log dir works. `commits` is done by the Python package, and tested there.
    let others = ["dump", "convert", "mirror", "commits"];
    for verb in verbs {
        let outcome = offsetlog_fed("one\n", verb);
        assert_eq!(outcome.code, 2, "{verb:?}: {}", outcome.err);
        assert_eq!(outcome.text(), "", "{verb:?}");
        if !others.contains(&verb[0]) {
            for log_dir in ["log-dir-1", "log-dir-2"] {
                let works = text(&around.join(log_dir));
                assert!(outcome.err.contains(&works), "{verb:?}: {}", outcome.err);
            }
        }
        assert!(tree(root.path()) == before, "{verb:?} changed something");
    }
}

/// A log dir whose name looks like a partition's is never one.
#[test]
fn a_log_dir_is_never_taken_for_a_partition() {
    let (root, around) = around();
    let log_dir = text(&around.join("log-dir-1"));
    let before = tree(root.path());
    let appended = offsetlog_fed("one\n", &["append", &log_dir]);
    assert_eq!(appended.code, 2, "{}", appended.err);
    assert!(appended.err.contains("a log dir"), "{}", appended.err);
    let converted = offsetlog(&["convert", &log_dir, &text(&root.path().join("new-0"))]);
    assert_eq!(converted.code, 2, "{}", converted.err);
    let adopted = offsetlog(&["adopt", &log_dir]);
    assert_eq!(adopted.code, 2, "{}", adopted.err);
    assert!(adopted.err.contains("a log dir found"), "{}", adopted.err);
    let listed = offsetlog(&["ls", "--json", &log_dir]);
    assert!(listed.lines().len() > 1);
    assert!(listed.lines().iter().all(|line| line["topic"] != "log-dir"));
    assert!(tree(root.path()) == before);
    // Without the files that only log dirs have, the partitions in it tell.
    for name in std::fs::read_dir(&log_dir).unwrap().map(Result::unwrap) {
        if name.file_type().unwrap().is_file() {
            std::fs::remove_file(name.path()).unwrap();
        }
    }
    let before = tree(root.path());
    let appended = offsetlog_fed("one\n", &["append", &log_dir]);
    assert_eq!(appended.code, 2, "{}", appended.err);
    assert!(offsetlog(&["ls", "--json", &log_dir]).lines().len() > 1);
    assert!(tree(root.path()) == before);
}

/// What an earlier mistake left in a log dir makes no partition of it.
#[test]
fn segments_in_a_log_dir_do_not_make_it_a_partition() {
    let (_root, around) = around();
    let log_dir = around.join("log-dir-1");
    std::fs::write(log_dir.join("00000000000000000000.log"), b"").unwrap();
    let listed = offsetlog(&["ls", "--json", &text(&log_dir)]);
    assert!(listed.lines().len() > 1, "{}", listed.err);
    assert!(
        listed.err.contains("no broker reads them"),
        "{}",
        listed.err
    );
    let appended = offsetlog_fed("one\n", &["append", &text(&log_dir)]);
    assert_eq!(appended.code, 2, "{}", appended.err);
}

/// A partition and a log dir are not made inside of a partition's directory.
#[test]
fn nothing_is_made_inside_of_a_partition() {
    let root = tempfile::tempdir().unwrap();
    let partition = root.path().join("orders-0");
    let appended = offsetlog_fed("one\n", &["append", &text(&partition)]);
    assert_eq!(appended.code, 0, "{}", appended.err);
    let before = tree(root.path());
    let inner = text(&partition.join("payments-0"));
    let deeper = text(&partition.join("more/payments-0"));
    for path in [&inner, &deeper] {
        let outcome = offsetlog_fed("two\n", &["append", path]);
        assert_eq!(outcome.code, 2, "{}", outcome.err);
        assert!(
            outcome.err.contains("a partition's directory"),
            "{}",
            outcome.err
        );
        assert_eq!(offsetlog(&["convert", &text(&partition), path]).code, 2);
        assert_eq!(offsetlog(&["create", "t", path]).code, 2);
    }
    assert_eq!(offsetlog(&["create", "t", &text(&partition)]).code, 2);
    assert!(tree(root.path()) == before);
    // A log dir's lock that a mistake left there changes nothing.
    std::fs::write(partition.join(".lock"), b"").unwrap();
    assert_eq!(offsetlog(&["ls", &text(&partition)]).code, 0);
    assert_eq!(
        offsetlog_fed("two\n", &["append", &text(&partition)]).code,
        0
    );
}

/// Nothing but partitions is made inside of a log dir: a broker does not start where another folder is.
#[test]
fn only_partitions_are_made_inside_of_a_log_dir() {
    let root = tempfile::tempdir().unwrap();
    let log_dir = root.path().join("logs");
    std::fs::create_dir(&log_dir).unwrap();
    std::fs::write(
        log_dir.join("meta.properties"),
        "version=1\ncluster.id=abc\nnode.id=1\n",
    )
    .unwrap();
    let partition = text(&log_dir.join("orders-0"));
    let appended = offsetlog_fed("one\n", &["append", &partition]);
    assert_eq!(appended.code, 0, "{}", appended.err);
    std::fs::create_dir(root.path().join("empty")).unwrap();
    let before = tree(root.path());
    let inside = |name: &str| text(&log_dir.join(name));
    let refused = |outcome: &Outcome| {
        assert_eq!(outcome.code, 2, "{}", outcome.err);
        let said = &outcome.err;
        assert!(said.contains("a broker does not start"), "{said}");
    };
    for name in ["backup", "payments-0", "backup/deeper"] {
        refused(&offsetlog(&["create", "t", &inside(name)]));
        let nowhere = ["mirror", "--bootstrap", "127.0.0.1:1", "--once", "--into"];
        refused(&offsetlog(&[&nowhere[..], &[&inside(name)]].concat()));
        refused(&offsetlog(&[
            "restore",
            &partition,
            "--into",
            &inside(name),
        ]));
    }
    for name in ["backup/payments-0", "payments-0/payments-1"] {
        refused(&offsetlog_fed("two\n", &["append", &inside(name)]));
        refused(&offsetlog(&["convert", &partition, &inside(name)]));
        refused(&offsetlog(&[
            "salvage",
            &partition,
            "--into",
            &inside(name),
        ]));
    }
    assert!(tree(root.path()) == before);
    // One that is there already is opened as ever.
    std::fs::create_dir(log_dir.join("older")).unwrap();
    std::fs::write(log_dir.join("older/meta.properties"), "version=1\n").unwrap();
    assert_eq!(offsetlog(&["create", "t", &inside("older")]).code, 0);
}

/// Beside partitions a log dir whose name looks like one is left out, and said.
#[test]
fn a_log_dir_among_partitions_is_left_out_and_said() {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("place");
    let orders = place.join("orders-0");
    assert_eq!(offsetlog_fed("one\n", &["append", &text(&orders)]).code, 0);
    assert_eq!(
        offsetlog(&["create", "t", &text(&place.join("kafka-1"))]).code,
        0
    );
    let listed = offsetlog(&["ls", "--json", &text(&place)]);
    let topics: Vec<_> = listed
        .lines()
        .iter()
        .map(|line| line["topic"].clone())
        .collect();
    assert_eq!(topics, ["orders"], "{}", listed.err);
    assert!(listed.err.contains("kafka-1"), "{}", listed.err);
}

/// Nobody knows how new a replica is that cannot be read: a verb that reads another one says so.
#[test]
fn a_replica_that_cannot_be_read_is_reported() {
    let root = tempfile::tempdir().unwrap();
    let (sound, broken) = (root.path().join("1"), root.path().join("2"));
    for place in [&sound, &broken] {
        let orders = text(&place.join("orders-0"));
        assert_eq!(offsetlog_fed("one\n", &["append", &orders]).code, 0);
    }
    let log = broken.join("orders-0").join(format!("{:020}.log", 0));
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    for verb in ["cat", "ls"] {
        let (sound, broken) = (text(&sound), text(&broken));
        let found = offsetlog(&[verb, sound.as_str(), broken.as_str()]);
        assert!(
            found
                .err
                .contains("is left out, which cannot be read and perhaps is the newest"),
            "{verb}: {} {}",
            found.code,
            found.err
        );
    }
}
