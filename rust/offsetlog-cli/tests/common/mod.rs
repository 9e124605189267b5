//! What the tests of the command share: the directories of real brokers, and what real clients saw in them.
#![allow(dead_code, reason = "each test file uses its part")]

use flate2::read::GzDecoder;
use offsetlog::{BatchInfo, Log, LogWriter, OpenOptions, WriteOptions};
use offsetlog_cli::{Terminal, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

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

/// Runs the command with an input, as behind a pipe.
pub(crate) fn offsetlog_fed<S: Into<OsString> + Clone>(
    input: impl Into<Vec<u8>>,
    args: &[S],
) -> Outcome {
    let input = input.into();
    let terminal = Terminal {
        stdin: Some(Arc::new(move || Box::new(Cursor::new(input.clone())))),
        ..Terminal::default()
    };
    offsetlog_on(terminal, args)
}

/// A place for a partition that is not there yet.
pub(crate) struct Place {
    _root: TempDir,
    pub(crate) path: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("data/orders-0");
        Self { _root: root, path }
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Appends `input`; the options are words of a line.
    pub(crate) fn append(&self, input: impl Into<Vec<u8>>, options: &str) -> Outcome {
        offsetlog_fed(input, &self.arguments(options))
    }

    pub(crate) fn arguments(&self, options: &str) -> Vec<String> {
        let options = options.split_whitespace().map(ToOwned::to_owned);
        ["append".to_owned(), self.path().to_owned()]
            .into_iter()
            .chain(options)
            .collect()
    }

    pub(crate) fn records(&self) -> Vec<Value> {
        offsetlog(&["cat", self.path(), "-J"]).lines()
    }

    pub(crate) fn values(&self) -> Vec<Value> {
        let records = self.records().into_iter();
        records.map(|record| record["payload"].clone()).collect()
    }

    pub(crate) fn batches(&self) -> Vec<BatchInfo> {
        let log = Log::open(&self.path, &OpenOptions::default()).unwrap();
        log.batches(None, None)
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    /// Whether the next opening finds nothing to mend: the log was closed.
    pub(crate) fn is_closed_cleanly(&self) -> bool {
        let write = WriteOptions::default();
        let log = LogWriter::open(&self.path, &OpenOptions::default(), &write).unwrap();
        let clean = log.recovery_report().clean;
        log.close().unwrap();
        clean
    }
}

/// Every file below a directory with its bytes.
pub(crate) fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(root).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

/// Copies a directory with all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for (path, bytes) in files(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::write(target, bytes).unwrap();
    }
}

/// Runs the command as in a pipe.
pub(crate) fn offsetlog<S: Into<OsString> + Clone>(args: &[S]) -> Outcome {
    offsetlog_on(Terminal::default(), args)
}

/// Words of a line; those that begin with `kafka-` are paths below the test data.
pub(crate) fn arguments(line: &str) -> Vec<String> {
    let path = |word: &str| {
        if word.starts_with("kafka-") {
            data(word)
        } else {
            word.to_owned()
        }
    };
    line.split(' ').map(path).collect()
}

/// Waits for what another thread or process does.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(300), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
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
