//! What the tests of the command share: the directories of real brokers, and what real clients saw in them.
#![allow(dead_code, reason = "each test file uses its part")]

use flate2::read::GzDecoder;
use offsetlog_cli::{Terminal, run};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// One run of the command.
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Outcome {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

pub(crate) fn offsetlog_on<S: Into<OsString> + Clone>(terminal: Terminal, args: &[S]) -> Outcome {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = args.iter().cloned().map(Into::into);
    let code = run(
        std::iter::once(OsString::from("offsetlog")).chain(args),
        &mut out,
        &mut err,
        terminal,
    );
    Outcome {
        code,
        out,
        err: String::from_utf8(err).unwrap(),
    }
}

/// Runs the command as in a pipe.
pub(crate) fn offsetlog<S: Into<OsString> + Clone>(args: &[S]) -> Outcome {
    offsetlog_on(Terminal::default(), args)
}

pub(crate) fn data(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    root.join(path).to_str().unwrap().to_owned()
}

/// Sets of directories: the log dirs, and the folder of `expected` with what was seen in them.
pub(crate) const SETS: [(&[&str], &str); 2] = [
    (
        &["kafka-4.3.0/clean/log-dir-1", "kafka-4.3.0/clean/log-dir-2"],
        "expected/kafka-4.3.0-clean",
    ),
    (
        &[
            "kafka-2.8.2/broker-1",
            "kafka-2.8.2/broker-2",
            "kafka-2.8.2/broker-3",
        ],
        "expected/kafka-2.8.2",
    ),
];

pub(crate) fn paths(dirs: &[&str]) -> Vec<String> {
    dirs.iter().map(|dir| data(dir)).collect()
}

/// `lookups.json` of a set: what a consumer and the broker's admin answers said of each partition.
pub(crate) fn lookups(expected: &str) -> serde_json::Map<String, Value> {
    let file = File::open(data(expected) + "/lookups.json").unwrap();
    serde_json::from_reader(BufReader::new(file)).unwrap()
}

/// The records of a partition as a real consumer saw them.
pub(crate) fn records(expected: &str, partition: &str) -> Vec<Value> {
    let path = PathBuf::from(data(expected)).join(format!("{partition}.jsonl.gz"));
    let lines = BufReader::new(GzDecoder::new(File::open(path).unwrap())).lines();
    lines
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect()
}
