//! What another program meets while a topic is made, and what is left of its records if making the topic fails then.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::disk::RealDisk;
use offsetlog::{
    AppendOptions, BatchBuilder, ErrorKind, LogConfig, LogDir, LogDirOptions, LogWriter, NewTopic,
    OpenOptions, Result, Route, ScanOptions, WriteOptions,
};
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Moment, Plan};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TOPIC: &str = "t";
const RETENTION: &str = "123456";
/// The lock of who has a partition open.
const LOCK: &str = ".offsetlog.lock";

/// What changes the disk.
fn changes(call: Call, _: &str) -> bool {
    !matches!(call, Call::Read | Call::Stat | Call::List | Call::Open)
}

fn open(folder: &Path, disk: &FaultDisk) -> LogDir {
    let options = OpenOptions {
        disk: Arc::new(disk.clone()),
        ..OpenOptions::default()
    };
    LogDir::open_for_append(&[folder], &options, &LogDirOptions::default()).unwrap()
}

fn make(log_dir: &LogDir, adds: bool) -> Result<()> {
    if adds {
        return log_dir.add_partitions(TOPIC, 3).map(|_| ());
    }
    let topic = NewTopic {
        name: TOPIC,
        partitions: 2,
        config: LogConfig::parse([("retention.ms", RETENTION)]).unwrap(),
        topic_id: None,
    };
    log_dir.create_topic(&topic).map(|_| ())
}

/// The directories of the topic, and what the file with the topic's id says in each.
fn directories(folder: &Path) -> BTreeMap<PathBuf, Option<String>> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    names
        .filter(|entry| {
            let name = entry.file_name().into_string().unwrap();
            matches!(name.as_str(), "t-0" | "t-1" | "t-2")
        })
        .map(|entry| {
            let metadata = entry.path().join("partition.metadata");
            (entry.path(), fs::read_to_string(metadata).ok())
        })
        .collect()
}

/// Appends a record to a partition, and flushes it.
fn append(log_dir: &LogDir, partition: i32) -> Result<()> {
    let mut batch = BatchBuilder::default();
    batch.push(1, None, Some(b"kept"), &[])?;
    let flushed = AppendOptions {
        flush: true,
        ..AppendOptions::default()
    };
    log_dir
        .append(TOPIC, Route::Partition(partition), &mut batch, &flushed)
        .map(drop)
}

/// Another program: appends a record to each partition of the topic that it finds, and returns those that have it then. It may have to
/// wait until the topic is made, and one that was taken back meanwhile is none.
fn append_to_all(folder: &Path) -> Vec<PathBuf> {
    let log_dir = LogDir::open_for_append(
        &[folder],
        &OpenOptions::default(),
        &LogDirOptions::default(),
    );
    let log_dir = log_dir.unwrap();
    let mut appended = Vec::new();
    for (number, path) in log_dir.directories(TOPIC) {
        match append(&log_dir, number) {
            Ok(()) => {
                let settings = log_dir.topic_config(TOPIC).unwrap();
                assert_eq!(
                    settings.text("retention.ms"),
                    Some(RETENTION),
                    "{}",
                    path.display()
                );
                appended.push(path);
            }
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::LogDir { .. }),
                "{}: {error}",
                path.display()
            ),
        }
    }
    log_dir.close().unwrap();
    appended
}

/// Has the other program begin, and waits until it has ended or has a partition open.
fn begin(folder: &Path) -> Option<JoinHandle<Vec<PathBuf>>> {
    let there = directories(folder);
    if there.is_empty() {
        return None;
    }
    assert!(there.values().all(Option::is_some), "{there:?}");
    let place = folder.to_path_buf();
    let other = std::thread::spawn(move || append_to_all(&place));
    let is_open = || there.keys().any(|path| path.join(LOCK).exists());
    while !other.is_finished() && !is_open() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Some(other)
}

fn holds_a_record(path: &Path) -> bool {
    let log = LogWriter::open(path, &OpenOptions::default(), &WriteOptions::default()).unwrap();
    let mut scan = log.scan(&ScanOptions::default()).unwrap();
    scan.next_batch().unwrap().is_some()
}

/// Calls that change the disk while a topic is made, without anybody else.
fn calls(adds: bool) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new(Arc::new(RealDisk), Plan::none());
    let log_dir = open(folder.path(), &disk);
    if adds {
        make(&log_dir, false).unwrap();
    }
    disk.set(Plan {
        kinds: changes,
        ..Plan::none()
    });
    make(&log_dir, adds).unwrap();
    disk.seen()
}

/// Makes the topic, or adds a partition to it; somebody else appends to what is there before the call `meets`, and the call `fails` fails.
fn meet(adds: bool, meets: u64, fails: u64) {
    let told = format!("adds {adds}, before call {meets}, call {fails} fails");
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new(Arc::new(RealDisk), Plan::none());
    let log_dir = open(folder.path(), &disk);
    if adds {
        make(&log_dir, false).unwrap();
    }
    disk.set(Plan {
        kinds: changes,
        nth: fails,
        lasting: Lasting::Once,
        ..Plan::none()
    });
    let other: Arc<Mutex<Option<JoinHandle<Vec<PathBuf>>>>> = Arc::default();
    let (place, begun) = (folder.path().to_path_buf(), Arc::clone(&other));
    disk.before(meets, move || *begun.lock().unwrap() = begin(&place));
    let made = make(&log_dir, adds);
    let other = other.lock().unwrap().take();
    let appended = other.map_or_else(Vec::new, |other| other.join().unwrap());
    let found = directories(folder.path());
    assert!(
        found.values().all(Option::is_some),
        "{told}: {made:?} {found:?}"
    );
    let ids: BTreeSet<_> = found.values().collect();
    assert!(ids.len() <= 1, "{told}: {found:?}");
    for path in &appended {
        assert!(
            found.contains_key(path),
            "{told}: {} is gone, with the record in it",
            path.display()
        );
        assert!(
            holds_a_record(path),
            "{told}: the record in {} is gone",
            path.display()
        );
    }
    if made.is_ok() {
        assert_eq!(found.len(), if adds { 3 } else { 2 }, "{told}");
    } else if appended.is_empty() && fails > 0 {
        assert_eq!(found.len(), if adds { 2 } else { 0 }, "{told}: {found:?}");
    }
    drop(log_dir.close());
}

/// Whoever appends to a partition that is being made finds it whole, and keeps the record, whatever fails then.
#[test]
fn nobody_meets_a_topic_half_made() {
    for adds in [false, true] {
        let calls = calls(adds);
        assert!(calls > 8, "{calls}");
        for meets in 1..=calls {
            meet(adds, meets, 0);
            for fails in meets..=calls {
                meet(adds, meets, fails);
            }
        }
    }
}

/// Waits until another thread has ended, or waits for what this one holds.
fn wait_for(other: &JoinHandle<()>) {
    let until = Instant::now() + Duration::from_millis(300);
    while !other.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A thread that looks again for a topic which another program has deleted, while a second thread makes the topic anew.
#[test]
fn a_topic_made_while_another_thread_lists_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new(Arc::new(RealDisk), Plan::none());
    let log_dir = open(folder.path(), &disk);
    make(&log_dir, false).unwrap();
    let elsewhere = open(
        folder.path(),
        &FaultDisk::new(Arc::new(RealDisk), Plan::none()),
    );
    elsewhere.delete_topic(TOPIC).unwrap();
    elsewhere.close().unwrap();

    let second: Arc<Mutex<Option<JoinHandle<()>>>> = Arc::default();
    let (maker, begun) = (log_dir.clone(), Arc::clone(&second));
    disk.while_listing(Moment::BehindNames, move || {
        let other = std::thread::spawn(move || {
            maker.refresh_listing().unwrap();
            make(&maker, false).unwrap();
        });
        wait_for(&other);
        *begun.lock().unwrap() = Some(other);
    });
    let appended = append(&log_dir, 0);
    let second = second.lock().unwrap().take().unwrap();
    second.join().unwrap();
    assert!(log_dir.topics().contains_key(TOPIC), "{appended:?}");
    log_dir.delete_topic(TOPIC).unwrap();
    log_dir.close().unwrap();
}

/// A program that appends to a topic which another one deletes in that moment says so, and makes no directory under the name.
#[test]
fn a_topic_deleted_meanwhile_is_not_made_again() {
    for meets in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let disk = FaultDisk::new(Arc::new(RealDisk), Plan::none());
        let log_dir = open(folder.path(), &disk);
        make(&log_dir, false).unwrap();
        disk.set(Plan::none());
        let (place, begun) = (folder.path().to_path_buf(), Arc::default());
        let deleter: Arc<Mutex<Option<JoinHandle<()>>>> = Arc::clone(&begun);
        disk.before(meets, move || {
            let other = std::thread::spawn(move || {
                let other = open(&place, &FaultDisk::new(Arc::new(RealDisk), Plan::none()));
                // It is refused while the partition is open.
                drop(other.delete_topic(TOPIC));
                other.close().unwrap();
            });
            wait_for(&other);
            *begun.lock().unwrap() = Some(other);
        });
        let appended = append(&log_dir, 0);
        let is_over = disk.seen() < meets;
        if let Some(other) = deleter.lock().unwrap().take() {
            other.join().unwrap();
        }
        let found = directories(folder.path());
        assert!(found.values().all(Option::is_some), "{meets}: {found:?}");
        match appended {
            Ok(()) => assert_eq!(found.len(), 2, "{meets}: {found:?}"),
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::LogDir { .. }),
                    "{meets}: {error}"
                );
                assert!(found.is_empty(), "{meets}: {found:?}");
            }
        }
        drop(log_dir.close());
        if is_over {
            assert!(meets > 10);
            break;
        }
    }
}
