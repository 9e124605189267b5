//! `offsetlog recover`: what it says, what it changes, and what it leaves alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has to fail"
)]

mod common;

use common::{copy, data, files, offsetlog, offsetlog_fed, offsetlog_on};
use offsetlog::{LogWriter, OpenOptions, WriteOptions};
use offsetlog_cli::Terminal;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

const TORN: &str = "kafka-4.3.0/torn/log-dir-1";

/// A copy of the damaged directories of a real broker, or of some of them.
fn torn(partitions: &[&str]) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let log_dir = root.path().join("data");
    if partitions.is_empty() {
        copy(Path::new(&data(TORN)), &log_dir);
    }
    for partition in partitions {
        copy(
            &Path::new(&data(TORN)).join(partition),
            &log_dir.join(partition),
        );
    }
    (root, log_dir)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The records of `.log` files by name.
fn segments(partition: &Path) -> Vec<(String, Vec<u8>)> {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files(partition)
        .into_iter()
        .filter(|(path, _)| {
            path.parent() == Some(partition) && path.extension().is_some_and(|end| end == "log")
        })
        .map(|(path, bytes)| (name(&path), bytes))
        .collect()
}

/// A dry run says exactly what the run then does, and changes nothing; no byte is lost.
#[test]
fn a_dry_run_says_what_the_run_does_and_every_cut_byte_is_kept() {
    let (_root, log_dir) = torn(&[]);
    let before = files(&log_dir);
    let dry = offsetlog(&["recover", "--dry-run", "--json", text(&log_dir)]);
    assert_eq!((dry.code, dry.err.as_str()), (3, ""));
    assert_eq!(files(&log_dir), before, "a dry run changes nothing");
    let mut said = dry.lines();
    let would = said.pop().unwrap();
    assert!(said.len() >= 8);

    let run = offsetlog(&["recover", "--json", text(&log_dir)]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let mut done = run.lines();
    let totals = done.pop().unwrap();
    let sum = |name: &str| -> u64 {
        let cuts = done.iter().flat_map(|line| line["cut"].as_array().unwrap());
        cuts.map(|cut| cut[name].as_u64().unwrap()).sum()
    };
    let expected = json!({
        "dry_run": false,
        "partitions": done.len(),
        "partitions_changed": done.iter().filter(|line| line["changed"] == true).count(),
        "partitions_failed": 0,
        "bytes_cut": sum("bytes"),
        "records_cut": sum("records"),
    });
    assert_eq!(totals, expected);
    let mut as_done = would;
    as_done["dry_run"] = json!(false);
    assert_eq!(as_done, totals);
    let mut cuts = 0;
    for (said, done) in said.iter().zip(&done) {
        let partition = PathBuf::from(said["path"].as_str().unwrap());
        let mut as_done = said.clone();
        as_done["dry_run"] = json!(false);
        assert_eq!(&as_done, done, "{}", partition.display());
        let records = |cut: &Value| cut["records"].as_u64().unwrap();
        let offsets = |name: &str| -> Vec<i64> {
            let cuts = done["cut"].as_array().unwrap().iter();
            cuts.filter_map(|cut| cut[name].as_i64()).collect()
        };
        let sum: u64 = done["cut"].as_array().unwrap().iter().map(records).sum();
        assert_eq!(done["records_cut"], sum);
        assert_eq!(
            done["first_offset_cut"].as_i64(),
            offsets("first_offset").into_iter().min()
        );
        assert_eq!(
            done["last_offset_cut"].as_i64(),
            offsets("last_offset").into_iter().max()
        );
        for cut in done["cut"].as_array().unwrap() {
            cuts += 1;
            let old = &before[&PathBuf::from(cut["path"].as_str().unwrap())];
            let position = usize::try_from(cut["position"].as_u64().unwrap()).unwrap();
            let gone = &old[position..];
            assert_eq!(cut["bytes"], gone.len());
            match cut["kept"].as_str() {
                Some(kept) => assert_eq!(std::fs::read(kept).unwrap(), gone),
                None => assert!(gone.iter().all(|&byte| byte == 0)),
            }
        }
        for (name, bytes) in segments(&partition) {
            assert!(before[&partition.join(&name)].starts_with(&bytes), "{name}");
        }
        let end =
            offsetlog(&["ls", "--json", text(&partition)]).lines()[0]["log_end_offset"].clone();
        assert_eq!(end, done["log_end_offset"]);
    }
    assert!(cuts >= 4, "{cuts}");

    let again = offsetlog(&["recover", "-n", text(&log_dir)]);
    assert_eq!((again.code, again.err.as_str()), (0, ""));
    assert_eq!(
        again
            .text()
            .matches(": sound, nothing to recover\n")
            .count(),
        said.len()
    );
    let appended = offsetlog_fed("x\n", &["append", text(&log_dir.join("g-torn-flip-old-0"))]);
    assert_eq!(appended.code, 0, "{}", appended.err);
    assert!(
        appended.err.contains("1 record appended at offset 36"),
        "{}",
        appended.err
    );
}

#[test]
fn the_text_says_it_in_words() {
    let (_root, log_dir) = torn(&["g-torn-flip-old-0", "g-torn-zeros-0"]);
    let (_again, torn_again) = torn(&["g-torn-flip-old-0", "g-torn-zeros-0"]);
    let dry = offsetlog(&["recover", "--dry-run", text(&log_dir)]);
    assert_eq!(dry.code, 3);
    let lines: Vec<&str> = dry.text().lines().collect();
    assert_eq!(
        lines[0],
        "g-torn-flip-old-0: recovering would cut the log at the first bytes that are no batch, with whole batches behind them:"
    );
    assert!(
        lines[1].starts_with(
            "  cut: 00000000000000000032.log from position 294, 2530 bytes, with 24 records at offsets 40 to 63: record batch checksum mismatch: "
        ),
        "{}",
        lines[1]
    );
    assert!(lines[1].ends_with("; kept in offsetlog-cut/00000000000000000032.log.294"));
    assert_eq!(
        lines[2],
        "  cut: 00000000000000000064.log from position 0, 2830 bytes, with 32 records at offsets 64 to 95: \
         it stands behind bytes that are no batch; kept in offsetlog-cut/00000000000000000064.log.0"
    );
    assert!(
        dry.text().contains(
            "\n  56 records that could be read, at offsets 40 to 95, would be lost to the log; the kept files have them\n"
        ),
        "{}",
        dry.text()
    );
    assert!(
        dry.text()
            .contains("\n  read: 2 segments, 5695 bytes; offsets 0 to 35 can be read\n")
    );
    assert!(
        dry.text()
            .contains("zeros behind the last batch; not kept, they are zeros\n"),
        "{}",
        dry.text()
    );
    let run = offsetlog(&["recover", text(&log_dir)]);
    assert_eq!(run.code, 0);
    let words = run
        .text()
        .replace("recovered, the log is cut", "recovering would cut the log")
        .replace(
            "recovered, what is no batch is cut off:",
            "recovering would cut off what is no batch:",
        )
        .replace("are lost to", "would be lost to")
        .replace(" partitions changed;", " partitions would be changed;")
        .replace(
            " cut off, with 56 records",
            " would be cut off, with 56 records",
        );
    assert_eq!(words, dry.text());
    let told = offsetlog(&["recover", "-n", "--json", text(&torn_again)]).lines();
    let cut: u64 = told[..told.len() - 1]
        .iter()
        .flat_map(|line| line["cut"].as_array().unwrap().clone())
        .map(|cut| cut["bytes"].as_u64().unwrap())
        .sum();
    let last = format!(
        "in all: 2 of 2 partitions would be changed; {cut} bytes would be cut off, with 56 records that could be read"
    );
    assert_eq!(lines.last().unwrap(), &last);
}

#[test]
fn a_log_that_was_closed_is_sound() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("orders-0");
    offsetlog_fed("a\nb\n", &["append", text(&path), "-q"]);
    for args in [
        vec!["recover", "-n", text(&path)],
        vec!["recover", text(&path)],
    ] {
        let outcome = offsetlog(&args);
        assert_eq!(
            (outcome.code, outcome.text(), outcome.err.as_str()),
            (
                0,
                "orders-0: sound, nothing to recover\n  read: 1 segment, 77 bytes; offsets 0 to 1 can be read\n",
                ""
            )
        );
    }
    std::fs::remove_file(path.join("00000000000000000000.index")).unwrap();
    let outcome = offsetlog(&["recover", text(&path)]);
    assert_eq!(outcome.code, 0);
    assert!(
        outcome.text().starts_with(
            "orders-0: recovered, all records are sound:\n  rebuilt: 00000000000000000000.index: it was missing\n"
        ),
        "{}",
        outcome.text()
    );
}

#[test]
fn options_choose_partitions_and_where_to_begin() {
    let (_root, log_dir) = torn(&[]);
    let names = |args: &[&str]| -> Vec<Value> {
        let args = [&["recover", "-n", "--json"], args].concat();
        let lines = offsetlog(&args).lines().into_iter();
        lines
            .filter(|line| line.get("partitions").is_none())
            .map(|line| line["topic"].clone())
            .collect()
    };
    let both = ["-t", "g-torn-none", "-t", "g-torn-zeros", text(&log_dir)];
    assert_eq!(names(&both), ["g-torn-none", "g-torn-zeros"]);
    let direct = log_dir.join("g-torn-zeros-0");
    assert_eq!(
        names(&[text(&direct), text(&log_dir), "-t", "g-torn-zeros"]),
        ["g-torn-zeros"]
    );
    let wrong = offsetlog(&["recover", text(&log_dir), "-t", "g-torn-zero"]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains("did you mean 'g-torn-zeros'?"),
        "{}",
        wrong.err
    );

    let read = |from: &str| {
        let args = [
            "recover",
            "-n",
            "--json",
            text(&direct),
            "--from-offset",
            from,
        ];
        offsetlog(&args).lines()[0]["segments_read"].clone()
    };
    assert_eq!(read("0"), 3);
    assert_eq!(read("40"), 2);
    assert_eq!(read("64"), 1);
    assert_eq!(read("1000"), 1);
    assert_eq!(
        offsetlog(&["recover", text(&direct), "--from-offset", "-1"]).code,
        2
    );
}

/// What is in the way of one partition does not keep the others waiting.
#[test]
fn one_that_cannot_be_recovered_is_told_and_the_rest_is_done() {
    let (_root, log_dir) = torn(&["g-torn-none-0", "g-torn-zeros-0"]);
    let write = WriteOptions::default();
    let held = LogWriter::open(
        log_dir.join("g-torn-none-0"),
        &OpenOptions::default(),
        &write,
    )
    .unwrap();
    let outcome = offsetlog(&["recover", text(&log_dir)]);
    assert_eq!(outcome.code, 2);
    assert!(
        outcome.err.starts_with(&format!(
            "offsetlog: g-torn-none-0: process {} writes this log; ",
            std::process::id()
        )),
        "{}",
        outcome.err
    );
    assert!(
        outcome.text().starts_with("g-torn-zeros-0: recovered"),
        "{}",
        outcome.text()
    );
    let last = |args: &[&str]| {
        let outcome = offsetlog(&[&["recover"], args, &[text(&log_dir)]].concat());
        assert_eq!(outcome.code, 2);
        outcome.text().lines().last().unwrap().to_owned()
    };
    // Nobody takes it for the sum of all: one is missing.
    assert_eq!(
        last(&[]),
        "in all: 0 of 1 partition changed; nothing cut off; 1 could not be recovered"
    );
    let lines = offsetlog(&["recover", "--json", text(&log_dir)]).lines();
    let totals = json!({
        "dry_run": false,
        "partitions": 1,
        "partitions_changed": 0,
        "partitions_failed": 1,
        "bytes_cut": 0,
        "records_cut": 0,
    });
    assert_eq!(lines.last().unwrap(), &totals);
    held.close().unwrap();
    // A dry run takes no lock, and cannot read everything either.
    let segment = log_dir.join("g-torn-none-0/00000000000000000000.log");
    std::fs::remove_file(&segment).unwrap();
    std::fs::create_dir(&segment).unwrap();
    assert_eq!(
        last(&["--dry-run"]),
        "in all: 0 of 1 partition would be changed; nothing would be cut off; 1 could not be looked through"
    );
}

/// `recover` on a wrong path must not make a log out of it.
#[test]
fn what_is_no_partition_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    for name in ["orders-0", "empty"] {
        std::fs::create_dir(root.path().join(name)).unwrap();
    }
    let copied = root.path().join("backup");
    copy(&Path::new(&data(TORN)).join("g-torn-none-0"), &copied);
    let before = files(root.path());
    for (name, expected) in [
        ("orders-0", "not a log dir"),
        ("empty", "not a log dir"),
        ("nowhere-0", "No such file"),
        ("backup", "a name such as \"backup-0\" would do"),
        ("backup/00000000000000000000.log", "Not a directory"),
    ] {
        let outcome = offsetlog(&["recover", text(&root.path().join(name))]);
        assert_eq!((outcome.code, outcome.text()), (2, ""), "{name}");
        assert!(outcome.err.contains(expected), "{name}: {}", outcome.err);
        assert_eq!(
            outcome.err.matches('\n').count(),
            1,
            "{name}: {}",
            outcome.err
        );
    }
    let log_dir = root.path().join("kafka");
    std::fs::create_dir(&log_dir).unwrap();
    std::fs::write(log_dir.join("meta.properties"), "version=1\n").unwrap();
    let outcome = offsetlog(&["recover", text(&log_dir)]);
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.err.contains("no partitions here"),
        "{}",
        outcome.err
    );
    std::fs::remove_dir_all(log_dir).unwrap();
    assert_eq!(files(root.path()), before);
}

#[test]
fn it_can_be_interrupted_with_130() {
    let (_root, log_dir) = torn(&["g-torn-none-0", "g-torn-zeros-0"]);
    let after = |questions: usize| {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let terminal = Terminal {
            interrupt: Some(Arc::new(move || {
                count.fetch_add(1, Ordering::Relaxed) >= questions
            })),
            ..Terminal::default()
        };
        (terminal, asked)
    };
    // As often as the first partition asks.
    let (terminal, asked) = after(usize::MAX);
    let first = log_dir.join("g-torn-none-0");
    assert_eq!(
        offsetlog_on(terminal, &["recover", "-n", text(&first)]).code,
        0
    );
    let (terminal, _) = after(asked.load(Ordering::Relaxed));
    let outcome = offsetlog_on(terminal, &["recover", "-n", text(&log_dir)]);
    assert_eq!((outcome.code, outcome.err.as_str()), (130, ""));
    assert!(
        outcome.text().starts_with("g-torn-none-0: "),
        "what was done is said"
    );
    assert!(!outcome.text().contains("g-torn-zeros-0"));
}

/// Kafka reads directories whose topic has any character; a terminal must not.
#[test]
fn names_and_paths_cannot_steer_a_terminal() {
    let root = tempfile::tempdir().unwrap();
    let log_dir = root.path().join("da\x1b]0;x\x07ta");
    let partition = log_dir.join("to\x1b[31m\u{202e}pic-0");
    copy(
        &Path::new(&data(TORN)).join("g-torn-flip-old-0"),
        &partition,
    );
    std::fs::write(partition.join("\u{9b}31m.deleted"), "").unwrap();
    let is_unsafe = |text: &str| {
        text.chars()
            .any(|c| c != '\n' && (c.is_control() || c == '\u{202e}'))
    };
    for args in [["recover", "-n"], ["recover", "--json"]] {
        let outcome = offsetlog(&[&args[..], &[text(&log_dir)]].concat());
        assert!(!outcome.text().is_empty(), "{}", outcome.err);
        assert!(!is_unsafe(outcome.text()), "{:?}", outcome.text());
        assert!(!is_unsafe(&outcome.err), "{:?}", outcome.err);
    }
    let dry = offsetlog(&["recover", "-n", text(&log_dir)]);
    assert!(
        dry.text().starts_with("to\\x1b[31m\\u{202e}pic-0: "),
        "{:?}",
        dry.text()
    );
}
