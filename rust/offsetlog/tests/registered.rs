//! How many partitions a topic has by the cluster's metadata: what is found out while something changes is not taken for what is so since.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::disk::RealDisk;
use offsetlog::{LogDir, OpenOptions};
use offsetlog_faults::fault::{Call, FaultDisk, Plan};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TOPIC: &str = "g-plain";
/// What its partition 0 is called, and the file that says which topic's it is.
const IDENTITY: &str = "g-plain-0/partition.metadata";

/// A cluster's log dirs and metadata. Of three partitions of the topic the last one is away.
struct Cluster(tempfile::TempDir);

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &place);
        } else {
            fs::copy(entry.path(), place).unwrap();
        }
    }
}

impl Cluster {
    fn new() -> Self {
        let cluster = Self(tempfile::tempdir().unwrap());
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kafka-4.3.0/clean");
        for name in ["log-dir-1", "log-dir-2", "metadata-dir"] {
            copy(&data.join(name), &cluster.path(name));
        }
        fs::remove_dir_all(cluster.path("log-dir-1/g-plain-2")).unwrap();
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn open(&self, names: &[&str], disk: &FaultDisk) -> LogDir {
        let paths: Vec<PathBuf> = names.iter().map(|name| self.path(name)).collect();
        let options = OpenOptions {
            disk: Arc::new(disk.clone()),
            ..OpenOptions::default()
        };
        LogDir::open(&paths, &options).unwrap()
    }
}

/// A disk on which nothing fails; it counts these calls.
fn disk(kinds: fn(Call, &str) -> bool) -> FaultDisk {
    let plan = Plan {
        kinds,
        ..Plan::none()
    };
    FaultDisk::new(Arc::new(RealDisk), plan)
}

/// The number, or that the metadata has three, of which not all are here.
fn count(log_dir: &LogDir) -> Option<i32> {
    match log_dir.partition_count(TOPIC) {
        Ok(count) => Some(count),
        Err(error) => {
            let told = error.to_string();
            assert!(told.contains("says that it has 3"), "{told}");
            None
        }
    }
}

/// Another process makes the topic anew just when its id was read: it is not the one that the cluster has.
#[test]
fn an_answer_from_before_a_listing_is_not_kept() {
    let cluster = Cluster::new();
    let disk = disk(|call, path| call == Call::Read && path.ends_with(IDENTITY));
    let log_dir = cluster.open(&["log-dir-1", "log-dir-2", "metadata-dir"], &disk);
    assert_eq!(count(&log_dir), None);
    log_dir.refresh_listing().unwrap();
    let (other, identity) = (log_dir.clone(), cluster.path("log-dir-1").join(IDENTITY));
    let seen = disk.seen();
    disk.before(seen + 1, move || {
        let new = identity.with_extension("new");
        fs::write(&new, "version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA\n").unwrap();
        // The file that is read is the old one still.
        fs::rename(&new, &identity).unwrap();
        other.refresh_listing().unwrap();
    });
    count(&log_dir);
    assert!(disk.seen() > seen);
    assert_eq!(count(&log_dir), Some(2));
}

/// The cluster's metadata is moved while a metadata log is looked for, and where it was found it is no more.
#[test]
fn a_metadata_log_from_before_a_refresh_is_not_kept() {
    let cluster = Cluster::new();
    let log = "__cluster_metadata-0";
    fs::create_dir(cluster.path("last")).unwrap();
    fs::copy(
        cluster.path("metadata-dir/meta.properties"),
        cluster.path("last/meta.properties"),
    )
    .unwrap();
    fs::rename(
        cluster.path("metadata-dir").join(log),
        cluster.path("log-dir-2").join(log),
    )
    .unwrap();
    let disk = disk(|call, path| call == Call::Stat && path.ends_with("last/__cluster_metadata-0"));
    let log_dir = cluster.open(&["log-dir-1", "metadata-dir", "log-dir-2", "last"], &disk);
    let other = log_dir.clone();
    let (from, to) = (cluster.path("log-dir-2"), cluster.path("metadata-dir"));
    let seen = disk.seen();
    disk.before(seen + 1, move || {
        fs::rename(from.join(log), to.join(log)).unwrap();
        other.refresh().unwrap();
    });
    let _ = log_dir.partition_count(TOPIC);
    assert!(disk.seen() > seen);
    assert_eq!(count(&log_dir), None);
}

/// The settings of the cluster are read again, as a server does it, and with them all that its metadata says.
#[test]
fn metadata_that_is_read_again_counts() {
    let cluster = Cluster::new();
    let log = cluster.path("metadata-dir/__cluster_metadata-0/00000000000000000000.log");
    let whole = fs::read(&log).unwrap();
    let name = whole.windows(8).position(|bytes| bytes == b"\x08g-plain");
    let name = name.unwrap();
    // Up to the batch that has the topic.
    let mut end = 0;
    loop {
        let size = u32::from_be_bytes(whole[end + 8..end + 12].try_into().unwrap());
        let next = end + 12 + usize::try_from(size).unwrap();
        if next > name {
            break;
        }
        end = next;
    }
    assert!(end > 0);
    fs::write(&log, &whole[..end]).unwrap();
    let log_dir = cluster.open(
        &["log-dir-1", "log-dir-2", "metadata-dir"],
        &disk(|_, _| true),
    );
    assert_eq!(count(&log_dir), Some(2));
    fs::write(&log, &whole).unwrap();
    assert_eq!(count(&log_dir), Some(2), "nobody has read it again");
    let settings = log_dir.cluster_settings(None, None).unwrap();
    assert_eq!(settings.refresh().unwrap(), Vec::<String>::new());
    assert_eq!(count(&log_dir), None);
}
