//! What another process or thread does between two calls of this one: before a partition is locked, before a segment is read, before a
//! file of a deleted topic is removed, or before a file gets its name.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod anew;
mod disk;

use disk::{Meanwhile, Removal};
use offsetlog::{
    AppendOptions, BatchBuilder, ErrorKind, Log, LogConfig, LogDir, LogDirOptions, LogWriter,
    MaintainOptions, NewTopic, OpenOptions, Route, WriteOptions,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// Options of the process that is late.
fn late(work: impl FnOnce() -> PathBuf + Send + 'static) -> OpenOptions {
    OpenOptions {
        disk: Arc::new(Meanwhile {
            before_lock: Arc::new(Mutex::new(Some(Box::new(work)))),
            ..Meanwhile::default()
        }),
        ..OpenOptions::default()
    }
}

fn log_dir(path: &Path, options: &OpenOptions) -> LogDir {
    LogDir::open_for_append(&[path], options, &LogDirOptions::default()).unwrap()
}

fn config(pairs: &[(&str, &str)]) -> LogConfig {
    LogConfig::parse(pairs.iter().copied()).unwrap()
}

fn create(of: &LogDir, name: &str, pairs: &[(&str, &str)]) {
    let new = NewTopic {
        name,
        partitions: 1,
        config: config(pairs),
        topic_id: None,
    };
    of.create_topic(&new).unwrap();
}

fn batch(timestamp: i64) -> BatchBuilder {
    let mut batch = BatchBuilder::default();
    batch.push(timestamp, None, Some(&[b'x'; 50]), &[]).unwrap();
    batch
}

/// Appends records that are as old as can be, each in a batch of its own.
fn append(of: &LogDir, topic: &str, count: i64) {
    for at in 0..count {
        let mut batch = batch(1000 + at);
        let route = Route::Partition(0);
        of.append(topic, route, &mut batch, &AppendOptions::default())
            .unwrap();
    }
}

/// The lock file of the folder that a deletion renamed.
fn renamed_lock(path: &Path) -> PathBuf {
    let found = std::fs::read_dir(path)
        .unwrap()
        .map(|of| of.unwrap().path());
    let mut found = found.filter(|of| of.to_string_lossy().ends_with("-delete"));
    found.next().unwrap().join(".offsetlog.lock")
}

/// Two writers would append at the same offsets.
#[test]
fn a_folder_that_was_made_anew_has_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    let first = log_dir(&path, &OpenOptions::default());
    create(&first, "t", &[]);
    append(&first, "t", 4);
    first.close().unwrap();
    let (inside, keep) = (path.clone(), Arc::new(Mutex::new(None)));
    let kept = Arc::clone(&keep);
    let options = late(move || {
        let other = log_dir(&inside, &OpenOptions::default());
        other.delete_topic("t").unwrap();
        create(&other, "t", &[]);
        append(&other, "t", 3);
        *kept.lock().unwrap() = Some(other);
        renamed_lock(&inside)
    });
    let opened = LogWriter::open(path.join("t-0"), &options, &WriteOptions::default());
    let error = opened.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Locked { .. }), "{error}");
    let other = keep.lock().unwrap().take().unwrap();
    append(&other, "t", 3);
    other.close().unwrap();
    // Nobody holds it now, and it is the new one that is opened.
    let after = LogWriter::open(path.join("t-0"), &options, &WriteOptions::default()).unwrap();
    assert_eq!(after.log().log_end_offset().unwrap(), 6);
}

/// The retention of the old topic would remove the records of the new one.
#[test]
fn upkeep_goes_by_the_settings_of_the_topic_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    let first = log_dir(&path, &OpenOptions::default());
    create(&first, "t", &[("retention.ms", "1000")]);
    append(&first, "t", 1);
    first.close().unwrap();
    let inside = path.clone();
    let options = late(move || {
        let other = log_dir(&inside, &OpenOptions::default());
        other.delete_topic("t").unwrap();
        let settings = [("retention.ms", "-1"), ("internal.segment.bytes", "300")];
        create(&other, "t", &settings);
        append(&other, "t", 8);
        other.close().unwrap();
        renamed_lock(&inside)
    });
    let late = log_dir(&path, &options);
    let report = late.maintain(&MaintainOptions::default()).unwrap();
    assert!(report.partitions.is_empty(), "{report:?}");
    let log = late.log("t", 0).unwrap();
    assert_eq!(log.log_start_offset().unwrap(), 0);
    assert_eq!(log.log_end_offset().unwrap(), 8);
}

/// Settings that were stored before the lock was taken hold, whatever was read before that.
#[test]
fn settings_that_were_stored_meanwhile_hold() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    let first = log_dir(&path, &OpenOptions::default());
    let settings = [("retention.ms", "1000"), ("internal.segment.bytes", "300")];
    create(&first, "t", &settings);
    append(&first, "t", 8);
    first.close().unwrap();
    let inside = path.clone();
    let options = late(move || {
        let other = log_dir(&inside, &OpenOptions::default());
        other
            .set_topic_config("t", &config(&[("retention.ms", "-1")]))
            .unwrap();
        other.close().unwrap();
        inside.join("t-0/.offsetlog.lock")
    });
    let late = log_dir(&path, &options);
    let report = late.maintain(&MaintainOptions::default()).unwrap();
    assert!(report.partitions.is_empty(), "{report:?}");
    assert_eq!(late.log("t", 0).unwrap().log_start_offset().unwrap(), 0);
}

/// A process that found no stored settings does not replace those that another one stored since.
#[test]
fn settings_of_the_first_writer_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t-0");
    let given = config(&[("retention.ms", "-1")]);
    let (inside, stored) = (path.clone(), given.clone());
    let options = late(move || {
        let write = WriteOptions {
            config: Some(stored),
            ..WriteOptions::default()
        };
        let other = LogWriter::open(&inside, &OpenOptions::default(), &write).unwrap();
        other.close().unwrap();
        inside.join(".offsetlog.lock")
    });
    let late = LogWriter::open(&path, &options, &WriteOptions::default()).unwrap();
    assert_eq!(late.config().retention_ms(), -1);
    late.close().unwrap();
    let text = std::fs::read_to_string(path.join(".offsetlog.config")).unwrap();
    assert!(text.contains("retention.ms"), "{text}");
}

/// Two processes change two settings at once, and both are told that theirs is stored.
#[test]
fn each_of_two_changes_of_settings_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    let first = log_dir(&path, &OpenOptions::default());
    create(&first, "t", &[("segment.ms", "5000")]);
    first.close().unwrap();
    let change = |of: &LogDir, name: &'static str, value: &'static str| {
        let changed = of.change_topic_config("t", |stored| {
            LogConfig::parse(stored.given().chain([(name, value)]))
        });
        changed.unwrap();
    };
    let inside = path.clone();
    let options = late(move || {
        let other = log_dir(&inside, &OpenOptions::default());
        change(&other, "retention.ms", "-1");
        other.close().unwrap();
        inside.join("t-0/.offsetlog.lock")
    });
    let late = log_dir(&path, &options);
    change(&late, "max.message.bytes", "5000");
    let stored = late.topic_config("t").unwrap();
    let stored: Vec<_> = stored.given().collect();
    let expected = [
        ("max.message.bytes", "5000"),
        ("retention.ms", "-1"),
        ("segment.ms", "5000"),
    ];
    assert_eq!(stored, expected);
}

/// A writer whose log begins inside its last batch truncates to that start. The batch goes, and the log ends at its start: never where the
/// bytes end that are left.
#[test]
fn a_log_that_is_cut_to_its_start_while_it_is_read_ends_there() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path().join(name).join("t-0"));
    let writer = LogWriter::open(&ours, &OpenOptions::default(), &WriteOptions::default()).unwrap();
    let segment = |partition: &Path| partition.join("00000000000000000000.log");
    writer
        .append(&mut batch(1), &AppendOptions::default())
        .unwrap();
    let first_bytes = std::fs::metadata(segment(&ours)).unwrap().len();
    let mut three = batch(2);
    for _ in 0..2 {
        three.push(2, None, Some(b"v"), &[]).unwrap();
    }
    writer
        .append(&mut three, &AppendOptions::default())
        .unwrap();
    writer.delete_records_before(3).unwrap();
    // The same log in the hands of another process.
    std::fs::create_dir_all(&theirs).unwrap();
    for entry in std::fs::read_dir(&ours).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, theirs.join(path.file_name().unwrap())).unwrap();
    }
    let path = segment(&theirs);
    let cut = move || {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(first_bytes).unwrap();
    };
    let disk = Meanwhile {
        before_read: Arc::new(Mutex::new(Some(Box::new(cut)))),
        is_held: true,
        ..Meanwhile::default()
    };
    let reader = Log::open(
        &theirs,
        &OpenOptions {
            disk: Arc::new(disk),
            ..OpenOptions::default()
        },
    )
    .unwrap();
    assert_eq!(reader.log_start_offset().unwrap(), 3);
    assert_eq!(reader.log_end_offset().unwrap(), 3);
}

/// A log dir with a deleted topic whose folder is due, that folder, and where to put what is done while it is removed.
fn with_one_to_remove(path: &Path) -> (LogDir, PathBuf, Arc<Mutex<Option<Removal>>>) {
    let disk = Meanwhile::default();
    let before_removal = Arc::clone(&disk.before_removal);
    let now = Arc::new(AtomicI64::new(1_700_000_000_000));
    let clock = Arc::clone(&now);
    let options = OpenOptions {
        disk: Arc::new(disk),
        clock: Arc::new(move || clock.load(Ordering::SeqCst)),
        ..OpenOptions::default()
    };
    let log_dir = log_dir(path, &options);
    create(&log_dir, "t", &[]);
    append(&log_dir, "t", 1);
    log_dir.delete_topic("t").unwrap();
    now.fetch_add(60_000, Ordering::SeqCst);
    let renamed = renamed_lock(path).parent().unwrap().to_path_buf();
    (log_dir, renamed, before_removal)
}

/// What is gone is told, whatever happens to the log dir by then: nobody else can tell it.
#[test]
fn what_was_removed_is_told_though_the_log_dir_was_closed_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let (log_dir, renamed, before_removal) = with_one_to_remove(folder.path());
    let other_thread = log_dir.clone();
    *before_removal.lock().unwrap() = Some(Box::new(move || {
        other_thread.close().unwrap();
        Ok(())
    }));
    let mut removed = Vec::new();
    let done = log_dir.remove_deleted_into(false, &mut removed);
    assert!(!renamed.exists());
    assert_eq!(removed, [renamed], "{done:?}");
    done.unwrap();
    let again = log_dir.remove_deleted_into(false, &mut removed);
    assert!(matches!(again.unwrap_err().kind(), ErrorKind::Closed));
}

/// Whichever file cannot be removed: the folder is not told as removed, and the next call removes it.
#[test]
fn a_folder_of_which_something_cannot_be_removed_still_waits() {
    let mut failures = 0;
    for nth in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let (log_dir, renamed, before_removal) = with_one_to_remove(folder.path());
        let mut calls = 0;
        *before_removal.lock().unwrap() = Some(Box::new(move || {
            calls += 1;
            if calls == nth {
                return Err(io::Error::other("a bad sector"));
            }
            Ok(())
        }));
        let mut removed = Vec::new();
        let done = log_dir.remove_deleted_into(false, &mut removed);
        if done.is_ok() {
            assert_eq!(removed, [renamed]);
            break;
        }
        failures += 1;
        assert_eq!(removed, [] as [PathBuf; 0], "{nth}");
        assert!(renamed.is_dir(), "{nth}");
        for dry_run in [true, false] {
            assert_eq!(log_dir.remove_deleted(dry_run).unwrap(), [&*renamed]);
        }
        assert!(!renamed.exists(), "{nth}");
        assert!(log_dir.remove_deleted(false).unwrap().is_empty(), "{nth}");
        log_dir.close().unwrap();
    }
    assert!(failures > 4, "{failures}");
}
