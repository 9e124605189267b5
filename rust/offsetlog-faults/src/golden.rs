//! Parts of directories that real brokers wrote (`tests/data`), small enough to be damaged in every place.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the parts stand on a disk of the tests.
pub const LOG_DIR: &str = "/data";

/// A partition, or some of its segments, and the log dir's own files if they matter.
#[derive(Debug, Clone)]
pub struct Golden {
    /// The partition's directory.
    pub partition: PathBuf,
    /// Paths and contents.
    pub files: Vec<(PathBuf, Arc<Vec<u8>>)>,
}

/// Files of a log dir that are no partition.
const OF_LOG_DIR: [&str; 6] = [
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "meta.properties",
    ".kafka_cleanshutdown",
];

/// Files of a partition that are no segment's.
const OF_PARTITION: [&str; 2] = ["leader-epoch-checkpoint", "partition.metadata"];

/// Where each log of a log dir begins.
pub const LOG_START: &str = "log-start-offset-checkpoint";
const OLD: &str = "kafka-2.8.2/broker-1";
const ONE: &str = "kafka-4.3.0/clean/log-dir-1";
const TWO: &str = "kafka-4.3.0/clean/log-dir-2";

/// A file to damage: log dir, partition, segments beside it, the file, and each how many-th byte of it.
pub type Target = (
    &'static str,
    &'static str,
    &'static [i64],
    &'static str,
    usize,
);

/// Every format of a log and every kind of file beside it.
pub const TARGETS: &[Target] = &[
    // Magic 2: closed segment, active segment, codecs, append time, transactions with their markers, what the cleaner left, sequences.
    (TWO, "g-index-full-0", &[0, 5], "00.log", 1),
    (TWO, "g-index-full-0", &[0, 5], "05.log", 1),
    (OLD, "o-v2-compact-gzip-0", &[99], "99.log", 1),
    (OLD, "o-v2-snappy-0", &[40], "40.log", 5),
    (OLD, "o-v2-lz4-0", &[84], "84.log", 2),
    (OLD, "o-v2-zstd-0", &[83], "83.log", 2),
    (OLD, "o-v2-appendtime-0", &[45], "45.log", 1),
    (TWO, "g-txn-0", &[128, 136], "128.log", 1),
    (TWO, "g-txn-0", &[234, 235], "234.log", 1),
    (ONE, "g-compact-txn-0", &[404], "404.log", 1),
    (ONE, "g-compact-txn-0", &[453, 459], "453.log", 1),
    (ONE, "g-idem-0", &[72], "72.log", 2),
    // Magic 0 and 1, alone and wrapped.
    (OLD, "o-v0-compact-0", &[127, 172], "127.log", 1),
    (OLD, "o-v0-compact-0", &[86], "86.log", 1),
    (OLD, "o-v0-gzip-0", &[44], "44.log", 6),
    (OLD, "o-v0-snappy-0", &[74], "74.log", 1),
    (OLD, "o-v0-lz4-0", &[82], "82.log", 3),
    (OLD, "o-v1-gzip-0", &[80], "80.log", 1),
    (OLD, "o-v1-compact-0", &[0], "00.log", 1),
    (OLD, "o-v1-snappy-0", &[66], "66.log", 3),
    (OLD, "o-v1-lz4-0", &[85], "85.log", 4),
    (OLD, "o-upgraded-0", &[50], "50.log", 1),
    // What stands beside the log.
    (TWO, "g-index-full-0", &[0, 5], "00.index", 1),
    (TWO, "g-index-full-0", &[0, 5], "05.index", 1),
    (TWO, "g-index-full-0", &[0, 5], "00.timeindex", 1),
    (TWO, "g-index-full-0", &[0, 5], "05.timeindex", 1),
    (OLD, "o-v1-lz4-0", &[85], "85.timeindex", 1),
    (TWO, "g-txn-0", &[83, 128], "83.index", 1),
    (TWO, "g-txn-0", &[83, 128], "83.timeindex", 1),
    (TWO, "g-txn-0", &[83, 128], "83.txnindex", 1),
    (TWO, "g-txn-0", &[360, 394], "394.snapshot", 1),
    (ONE, "g-idem-0", &[72, 84], "84.snapshot", 1),
    (ONE, "g-plain-0", &[62], "leader-epoch-checkpoint", 1),
    (ONE, "g-plain-0", &[62], "partition.metadata", 1),
    (
        ONE,
        "g-deleted-prefix-0",
        &[],
        "recovery-point-offset-checkpoint",
        1,
    ),
    (
        ONE,
        "g-deleted-prefix-0",
        &[],
        "replication-offset-checkpoint",
        3,
    ),
    (ONE, "g-deleted-prefix-0", &[], LOG_START, 1),
    (
        ONE,
        "g-deleted-prefix-0",
        &[],
        "cleaner-offset-checkpoint",
        1,
    ),
    (ONE, "g-deleted-prefix-0", &[], "meta.properties", 1),
    (ONE, "g-deleted-prefix-0", &[], ".kafka_cleanshutdown", 1),
];

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data")
}

impl Golden {
    /// The segments with these base offsets of `tests/data/<log_dir>/<partition>`; without any, all of them and the files of the log dir around.
    ///
    /// # Panics
    /// Where they are not.
    #[must_use]
    pub fn load(log_dir: &str, partition: &str, bases: &[i64]) -> Self {
        let source = data().join(log_dir).join(partition);
        let target = Path::new(LOG_DIR).join(partition);
        let mut names: Vec<String> = fs::read_dir(&source)
            .unwrap_or_else(|error| panic!("{}: {error}", source.display()))
            .map(|entry| entry.expect("an entry").file_name())
            .map(|name| name.into_string().expect("UTF-8"))
            .collect();
        names.sort();
        names.retain(|name| match name.split_once('.') {
            Some((base, _)) if base.len() == 20 => {
                bases.is_empty() || bases.contains(&base.parse().expect("an offset"))
            }
            _ => OF_PARTITION.contains(&name.as_str()),
        });
        let mut files: Vec<_> = names
            .iter()
            .map(|name| (target.join(name), read(&source.join(name))))
            .collect();
        for name in OF_LOG_DIR.iter().filter(|_| bases.is_empty()) {
            let around = data().join(log_dir).join(name);
            if around.exists() {
                files.push((Path::new(LOG_DIR).join(name), read(&around)));
            }
        }
        Self {
            partition: target,
            files,
        }
    }

    /// Number of the file whose name ends like this.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn file(&self, end: &str) -> usize {
        let found = self
            .files
            .iter()
            .position(|(path, _)| path.to_string_lossy().ends_with(end));
        found.unwrap_or_else(|| panic!("{}: no {end}", self.partition.display()))
    }
}

fn read(path: &Path) -> Arc<Vec<u8>> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Arc::new(bytes)
}
