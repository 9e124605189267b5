//! `offsetlog restore`: what it says of its work if that ends early.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has to fail"
)]

mod common;

use common::{data, offsetlog_on};
use offsetlog_cli::Terminal;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Interrupted wherever it asks: a partition is told as restored if, and only if, it is there.
#[test]
fn what_was_restored_before_an_interrupt_is_told() {
    let log_dirs = [
        data("kafka-4.3.0/clean/log-dir-1"),
        data("kafka-4.3.0/clean/log-dir-2"),
    ];
    let mut told_early = BTreeSet::new();
    for questions in 0.. {
        let root = tempfile::tempdir().unwrap();
        let into = root.path().join("new");
        let asked = AtomicUsize::new(0);
        let terminal = Terminal {
            interrupt: Some(Arc::new(move || {
                asked.fetch_add(1, Ordering::Relaxed) >= questions
            })),
            ..Terminal::default()
        };
        let mut args = vec!["restore", "--json", "-t", "g-plain"];
        args.extend(log_dirs.iter().map(String::as_str));
        args.extend(["--into", into.to_str().unwrap()]);
        let outcome = offsetlog_on(terminal, &args);
        let lines = outcome.lines();
        let told: BTreeSet<String> = lines
            .iter()
            .filter(|line| line["state"] == "restored")
            .map(|line| format!("{}-{}", line["topic"].as_str().unwrap(), line["partition"]))
            .collect();
        let there: BTreeSet<String> = std::fs::read_dir(&into)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("g-plain-"))
            .collect();
        assert_eq!(told, there, "{questions}: {}", outcome.err);
        if outcome.code == 0 {
            assert_eq!(told.len(), 3);
            break;
        }
        assert_eq!(outcome.code, 130, "{questions}: {}", outcome.err);
        assert!(lines.iter().all(|line| line.get("target").is_none()));
        told_early.insert(told.len());
    }
    assert!(told_early.is_superset(&BTreeSet::from([0, 1, 2])));
}
