//! Log dirs that are open for appending.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::{
    AppendOptions, BatchBuilder, ErrorKind, LogConfig, LogDir, LogDirMaintainReport, LogDirOptions,
    MaintainOptions, NewTopic, OpenOptions, Partitioner, Route, ScanOptions, partition_for,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

fn open(paths: &[PathBuf], options: &LogDirOptions) -> LogDir {
    LogDir::open_for_append(paths, &OpenOptions::default(), options).unwrap()
}

fn two_dirs(folder: &Path) -> Vec<PathBuf> {
    vec![folder.join("d1"), folder.join("d2")]
}

fn topic(name: &str, partitions: i32) -> NewTopic<'_> {
    NewTopic {
        name,
        partitions,
        config: LogConfig::default(),
        topic_id: None,
    }
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.') && name.contains('-') && !name.contains("checkpoint"))
        .filter(|name| !name.starts_with("offsetlog"))
        .collect();
    names.sort();
    names
}

fn append(log_dir: &LogDir, topic: &str, key: Option<&[u8]>, value: &[u8]) -> i32 {
    let mut batch = BatchBuilder::default();
    batch.push(1_000, key, Some(value), &[]).unwrap();
    let route = Route::By(Partitioner::Default, key);
    let options = AppendOptions::default();
    log_dir
        .append(topic, route, &mut batch, &options)
        .unwrap()
        .0
}

/// contract/maintenance.md 1.4: five partitions over two dirs, and the next topic's first.
#[test]
fn partitions_go_where_the_fewest_are() {
    let folder = tempfile::tempdir().unwrap();
    let paths = two_dirs(folder.path());
    let log_dir = open(&paths, &LogDirOptions::default());
    let id = log_dir.create_topic(&topic("a", 5)).unwrap();
    assert!(!id.is_zero());
    log_dir.create_topic(&topic("b", 1)).unwrap();
    assert_eq!(names(&paths[0]), ["a-0", "a-2", "a-4"]);
    assert_eq!(names(&paths[1]), ["a-1", "a-3", "b-0"]);
    log_dir.close().unwrap();
    let again = open(&paths, &LogDirOptions::default());
    assert_eq!(again.topics()["a"], [0, 1, 2, 3, 4]);
    let text = std::fs::read_to_string(paths[1].join("a-3/partition.metadata")).unwrap();
    assert_eq!(text, format!("version: 0\ntopic_id: {id}"));
}

#[test]
fn records_go_where_their_keys_say_and_partitions_are_opened_on_use() {
    let folder = tempfile::tempdir().unwrap();
    let paths = two_dirs(folder.path());
    let few = LogDirOptions {
        max_open_partitions: 3,
        ..LogDirOptions::default()
    };
    let log_dir = open(&paths, &few);
    log_dir.create_topic(&topic("t", 8)).unwrap();
    for number in 0..60 {
        let key = format!("key-{number}");
        let partition = append(&log_dir, "t", Some(key.as_bytes()), b"v");
        assert_eq!(partition, partition_for(key.as_bytes(), 8).unwrap());
        let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        assert!(files < 120, "{files} files are open");
    }
    log_dir.close().unwrap();
    assert!(matches!(
        log_dir.append("t", Route::Partition(0), &mut BatchBuilder::default(), &AppendOptions::default()),
        Err(error) if matches!(error.kind(), ErrorKind::Closed)
    ));
    let reader = LogDir::open(&paths, &OpenOptions::default()).unwrap();
    let mut found = 0;
    for partition in reader.partitions() {
        let log = reader.log("t", partition.partition).unwrap();
        let mut scan = log.scan(&ScanOptions::default()).unwrap();
        while let Some(mut batch) = scan.next_batch().unwrap() {
            while let Some(record) = batch.next_record().unwrap() {
                let wanted = partition_for(record.key.unwrap(), 8).unwrap();
                assert_eq!(partition.partition, wanted);
                found += 1;
            }
        }
    }
    assert_eq!(found, 60);
}

#[test]
fn a_deleted_topic_is_gone_at_once_and_its_directories_later() {
    let folder = tempfile::tempdir().unwrap();
    let paths = two_dirs(folder.path());
    let log_dir = open(&paths, &LogDirOptions::default());
    log_dir.create_topic(&topic("t", 3)).unwrap();
    log_dir.create_topic(&topic("other", 1)).unwrap();
    append(&log_dir, "t", Some(b"k"), b"v");
    append(&log_dir, "other", Some(b"k"), b"v");
    log_dir.delete_topic("t").unwrap();
    assert!(log_dir.remove_deleted(false).unwrap().is_empty());
    assert_eq!(log_dir.topics().keys().collect::<Vec<_>>(), ["other"]);
    assert!(log_dir.delete_topic("t").is_err());
    let left: Vec<String> = paths.iter().flat_map(|path| names(path)).collect();
    let waiting = left.iter().filter(|name| name.starts_with("t-")).count();
    assert_eq!(waiting, 3, "{left:?}");
    assert!(
        left.iter()
            .all(|name| name == "other-0" || name.ends_with("-delete"))
    );
    // One of the same name begins anew.
    log_dir.create_topic(&topic("t", 1)).unwrap();
    let mut batch = BatchBuilder::default();
    batch.push(5, None, Some(b"v"), &[]).unwrap();
    let (_, info) = log_dir
        .append(
            "t",
            Route::Partition(0),
            &mut batch,
            &AppendOptions::default(),
        )
        .unwrap();
    assert_eq!(info.base_offset, 0);
    log_dir.close().unwrap();
    // A broker's are due a minute after they were seen first, ours a minute after they were deleted, whoever is there then.
    std::fs::create_dir(paths[0].join(format!("old-0.{:032x}-delete", 7))).unwrap();
    let now = Arc::new(AtomicI64::new(offsetlog::disk::wall_clock()));
    let clock = Arc::clone(&now);
    let later = OpenOptions {
        clock: Arc::new(move || clock.load(Ordering::SeqCst)),
        ..OpenOptions::default()
    };
    let reopened = || LogDir::open_for_append(&paths, &later, &LogDirOptions::default()).unwrap();
    let log_dir = reopened();
    now.fetch_add(59_999, Ordering::SeqCst);
    let early = log_dir.remove_deleted(true).unwrap();
    assert!(
        early
            .iter()
            .all(|path| !path.to_string_lossy().contains("old-0")),
        "{early:?}"
    );
    log_dir.close().unwrap();
    now.fetch_add(1, Ordering::SeqCst);
    let log_dir = reopened();
    assert_eq!(log_dir.remove_deleted(true).unwrap().len(), 4);
    assert_eq!(log_dir.remove_deleted(false).unwrap().len(), 4);
    assert!(log_dir.remove_deleted(false).unwrap().is_empty());
    log_dir.close().unwrap();
    let left: Vec<String> = paths.iter().flat_map(|path| names(path)).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_directory_that_cannot_be_removed_keeps_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicI64::new(offsetlog::disk::wall_clock()));
    let clock = Arc::clone(&now);
    let later = OpenOptions {
        clock: Arc::new(move || clock.load(Ordering::SeqCst)),
        ..OpenOptions::default()
    };
    let path = folder.path();
    let log_dir = LogDir::open_for_append(&[path], &later, &LogDirOptions::default()).unwrap();
    let begins = |path: &Path| path.file_name().unwrap().to_str().unwrap()[..3].to_owned();
    for name in ["a", "b", "c"] {
        log_dir.create_topic(&topic(name, 1)).unwrap();
        log_dir.delete_topic(name).unwrap();
    }
    // Deeper than anything of a partition.
    let waiting = names(path).into_iter().find(|name| name.starts_with("b-0"));
    let stuck = path.join(waiting.unwrap());
    let inner = (0..12).fold(stuck.clone(), |inner, _| inner.join("n"));
    std::fs::create_dir_all(inner).unwrap();
    now.fetch_add(60_000, Ordering::SeqCst);
    let mut removed = Vec::new();
    for expected in [&["a-0", "c-0"][..], &[]] {
        removed.clear();
        let failed = log_dir.remove_deleted_into(false, &mut removed);
        assert_eq!(failed.unwrap_err().path(), Some(stuck.as_path()));
        let removed: Vec<String> = removed.iter().map(|path| begins(path)).collect();
        assert_eq!(removed, expected);
    }
    std::fs::remove_dir_all(stuck.join("n")).unwrap();
    assert_eq!(log_dir.remove_deleted(false).unwrap(), [stuck]);
    log_dir.close().unwrap();
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let paths = two_dirs(folder.path());
    let log_dir = open(&paths, &LogDirOptions::default());
    log_dir.create_topic(&topic("a.b", 2)).unwrap();
    for (name, partitions) in [
        ("", 1),
        ("..", 1),
        ("a/b", 1),
        ("ok", 0),
        ("ok", -1),
        ("a.b", 1),
        ("a_b", 1),
    ] {
        assert!(
            log_dir.create_topic(&topic(name, partitions)).is_err(),
            "{name:?} {partitions}"
        );
    }
    let lag = LogConfig::parse([("min.compaction.lag.ms", "9")]).unwrap();
    let defaults = LogConfig::parse([("max.compaction.lag.ms", "5")]).unwrap();
    let strict = LogDirOptions {
        defaults,
        ..LogDirOptions::default()
    };
    log_dir.close().unwrap();
    let log_dir = open(&paths, &strict);
    let contradicting = NewTopic {
        config: lag,
        ..topic("lag", 1)
    };
    assert!(log_dir.create_topic(&contradicting).is_err());
    assert_eq!(log_dir.topics().len(), 1);
    // A partition is missing: nobody knows how many there are.
    log_dir.close().unwrap();
    std::fs::remove_dir_all(paths[0].join("a.b-0")).unwrap();
    let log_dir = open(&paths, &LogDirOptions::default());
    let told = log_dir.partition_count("a.b").unwrap_err().to_string();
    assert!(
        told.contains("[1]") && told.contains("name the partition"),
        "{told}"
    );
}

#[test]
fn a_partition_in_two_places_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let paths = two_dirs(folder.path());
    for path in &paths {
        std::fs::create_dir_all(path.join("t-0")).unwrap();
    }
    let refused =
        LogDir::open_for_append(&paths, &OpenOptions::default(), &LogDirOptions::default());
    assert!(refused.unwrap_err().to_string().contains("t-0 stands in"));
}

/// Its partitions would stand in two places, and a writer would wait for its own lock.
#[test]
fn one_folder_under_two_names_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    // The second pair is not there yet, and is not made.
    for (one, other) in [
        (real.clone(), link.clone()),
        (real.join("new"), link.join("new")),
    ] {
        let refused = LogDir::open_for_append(
            &[one, other],
            &OpenOptions::default(),
            &LogDirOptions::default(),
        );
        let told = refused.unwrap_err().to_string();
        assert!(told.contains("are one folder"), "{told}");
    }
    assert_eq!(std::fs::read_dir(&real).unwrap().count(), 0);
    open(&[link], &LogDirOptions::default());
}

/// Another program, which has only one of the log dirs, makes the topic there too. What cannot be done is told, and nothing is changed.
#[test]
fn a_partition_that_comes_to_stand_in_two_places_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let paths = two_dirs(folder.path());
    let both = open(&paths, &LogDirOptions::default());
    for name in ["t", "u"] {
        both.create_topic(&topic(name, 1)).unwrap();
        append(&both, name, Some(b"k"), b"v");
    }
    let stood = names(&paths[0]).contains(&"t-0".to_owned());
    let other = open(
        &[paths[usize::from(stood)].clone()],
        &LogDirOptions::default(),
    );
    other.create_topic(&topic("t", 1)).unwrap();
    append(&other, "t", Some(b"k"), b"another");
    other.close().unwrap();
    let report = both.maintain(&MaintainOptions::default()).unwrap();
    let failed: Vec<_> = report.failed.iter().map(|(of, _)| of.to_string()).collect();
    assert_eq!(failed, ["t-0"], "{report:?}");
    let before: Vec<_> = paths.iter().map(|path| names(path)).collect();
    let lag = LogConfig::parse([("retention.ms", "9")]).unwrap();
    for done in [
        both.delete_topic("t"),
        both.check_delete("t"),
        both.set_topic_config("t", &lag),
        both.add_partitions("t", 3).map(drop),
    ] {
        let told = done.unwrap_err().to_string();
        assert!(told.contains("t-0 stands in"), "{told}");
    }
    let after: Vec<_> = paths.iter().map(|path| names(path)).collect();
    assert_eq!(after, before);
    assert_eq!(both.topic_config("t").unwrap(), LogConfig::default());
    both.delete_topic("u").unwrap();
}

#[test]
fn settings_of_a_topic_stand_above_those_of_the_log_dir() {
    let folder = tempfile::tempdir().unwrap();
    let paths = vec![folder.path().join("d")];
    let options = LogDirOptions {
        defaults: LogConfig::parse([("segment.ms", "77"), ("retention.ms", "5")]).unwrap(),
        ..LogDirOptions::default()
    };
    let log_dir = open(&paths, &options);
    let given = LogConfig::parse([("retention.ms", "9")]).unwrap();
    log_dir
        .create_topic(&NewTopic {
            config: given.clone(),
            ..topic("t", 2)
        })
        .unwrap();
    let config = log_dir.log_writer("t", 1).unwrap().config();
    assert_eq!((config.segment_ms(), config.retention_ms()), (77, 9));
    assert_eq!(log_dir.topic_config("t").unwrap(), given);
    let changed = LogConfig::parse([("segment.ms", "8")]).unwrap();
    log_dir.set_topic_config("t", &changed).unwrap();
    let config = log_dir.log_writer("t", 1).unwrap().config();
    assert_eq!((config.segment_ms(), config.retention_ms()), (8, 5));
    log_dir.close().unwrap();
    let stored = LogDir::open(&paths, &OpenOptions::default()).unwrap();
    assert_eq!(stored.topic_config("t").unwrap(), changed);
}

/// Another log dir value, as of another process, makes the topic anew with another number of partitions.
#[test]
fn keys_go_where_they_belong_in_a_topic_that_was_made_anew() {
    for counts in [(2, 5), (5, 2), (1, 3), (3, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let paths = two_dirs(folder.path());
        let first = open(&paths, &LogDirOptions::default());
        first.create_topic(&topic("t", counts.0)).unwrap();
        let other = open(&paths, &LogDirOptions::default());
        other.delete_topic("t").unwrap();
        other.create_topic(&topic("t", counts.1)).unwrap();
        for number in 0..40_u8 {
            let key = [number];
            let expected = partition_for(&key, counts.1).unwrap();
            assert_eq!(append(&first, "t", Some(&key), b"v"), expected);
        }
        let all: Vec<i32> = (0..counts.1).collect();
        assert_eq!(first.topics()["t"], all);
        for _ in 0..3 {
            assert!((0..counts.1).contains(&append(&first, "t", None, b"v")));
        }
        first.close().unwrap();
        other.delete_topic("t").unwrap();
        let told =
            LogDir::open_for_append(&paths, &OpenOptions::default(), &LogDirOptions::default())
                .unwrap()
                .partition_count("t")
                .unwrap_err()
                .to_string();
        assert!(told.contains("there is no topic \"t\""), "{told}");
    }
}

/// The number is the caller's own, as of a partitioner of its own: the log dir says that it is no longer one of so many.
#[test]
fn a_choice_among_other_partitions_than_there_are_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let paths = two_dirs(folder.path());
    let first = open(&paths, &LogDirOptions::default());
    first.create_topic(&topic("t", 2)).unwrap();
    let other = open(&paths, &LogDirOptions::default());
    other.delete_topic("t").unwrap();
    other.create_topic(&topic("t", 3)).unwrap();
    assert!(first.writable_of("t", 1, 2).unwrap().is_none());
    assert_eq!(first.partition_count("t").unwrap(), 3);
    let held = first.writable_of("t", 2, 3).unwrap().unwrap();
    assert_eq!(held.partition(), 2);
    let told = other.delete_topic("t").unwrap_err();
    assert!(matches!(told.kind(), ErrorKind::Locked { .. }), "{told}");
    drop(held);
    first.close().unwrap();
    other.delete_topic("t").unwrap();
    let third = open(&paths, &LogDirOptions::default());
    let told = third.writable_of("t", 2, 3).unwrap_err().to_string();
    assert!(told.contains("there is no topic"), "{told}");
}

#[test]
fn upkeep_passes_over_what_another_process_has_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let paths = two_dirs(folder.path());
    let first = open(&paths, &LogDirOptions::default());
    for name in ["gone", "anew", "kept"] {
        first.create_topic(&topic(name, 2)).unwrap();
        append(&first, name, Some(b"k"), b"v");
    }
    first.close().unwrap();
    let first = open(&paths, &LogDirOptions::default());
    let other = open(&paths, &LogDirOptions::default());
    other.delete_topic("gone").unwrap();
    other.delete_topic("anew").unwrap();
    other.create_topic(&topic("between", 1)).unwrap();
    other.create_topic(&topic("anew", 3)).unwrap();
    append(&other, "anew", Some(b"k"), b"v");
    other.close().unwrap();
    let report = first.maintain(&MaintainOptions::default()).unwrap();
    assert!(
        report.failed.is_empty() && report.busy.is_empty(),
        "{report:?}"
    );
    assert_eq!(first.topics()["anew"], [0, 1, 2]);
    assert!(!first.topics().contains_key("gone"));
}

/// A program that keeps the log dirs open removes what others have deleted meanwhile, when its time has come.
#[test]
fn upkeep_removes_what_another_process_has_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let paths = two_dirs(folder.path());
    let keeper = open(&paths, &LogDirOptions::default());
    keeper.create_topic(&topic("gone", 2)).unwrap();
    let other = open(&paths, &LogDirOptions::default());
    other.delete_topic("gone").unwrap();
    other.close().unwrap();
    let at = |later: i64, dry_run: bool| {
        let options = MaintainOptions {
            now: Some(offsetlog::disk::wall_clock() + later),
            dry_run,
            ..MaintainOptions::default()
        };
        keeper.maintain(&options).unwrap().removed.len()
    };
    assert_eq!(at(3_600_000, true), 2);
    assert_eq!(at(0, false), 0);
    assert_eq!(at(3_600_000, true), 2);
    assert_eq!(at(3_600_000, false), 2);
    assert_eq!(at(3_600_000, false), 0);
    for path in &paths {
        let left = names(path);
        assert!(
            !left.iter().any(|name| name.ends_with("-delete")),
            "{left:?}"
        );
    }
}

/// What was removed before the interruption is told.
#[test]
fn upkeep_that_is_interrupted_tells_what_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let paths = vec![folder.path().to_path_buf()];
    let first = open(&paths, &LogDirOptions::default());
    for name in ["a", "b"] {
        let settings = [("retention.ms", "1000"), ("internal.segment.bytes", "200")];
        let new = NewTopic {
            config: LogConfig::parse(settings).unwrap(),
            ..topic(name, 1)
        };
        first.create_topic(&new).unwrap();
        for _ in 0..8 {
            append(&first, name, Some(b"k"), &[b'x'; 50]);
        }
    }
    first.close().unwrap();
    let oldest = folder.path().join("a-0/00000000000000000000.log");
    assert!(oldest.exists());
    let options = OpenOptions {
        interrupt: Some(Arc::new(move || !oldest.exists())),
        ..OpenOptions::default()
    };
    let log_dir = LogDir::open_for_append(&paths, &options, &LogDirOptions::default()).unwrap();
    let mut report = LogDirMaintainReport::default();
    let done = log_dir.maintain_into(&MaintainOptions::default(), &mut report);
    assert!(matches!(done.unwrap_err().kind(), ErrorKind::Interrupted));
    let [(of, kept)] = report.partitions.as_slice() else {
        panic!("{report:?}");
    };
    assert_eq!(of.to_string(), "a-0");
    assert!(!kept.removed.is_empty());
}

/// What an earlier round told stays, and a report is of real rounds or of dry runs.
#[test]
fn a_report_of_upkeep_takes_several_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let log_dir = open(&[folder.path().to_path_buf()], &LogDirOptions::default());
    log_dir.create_topic(&topic("here", 1)).unwrap();
    append(&log_dir, "here", Some(b"k"), b"v");
    let of = |names: &[&str], dry_run| MaintainOptions {
        topics: names.iter().map(|&name| name.to_owned()).collect(),
        dry_run,
        ..MaintainOptions::default()
    };
    for dry_run in [true, false] {
        let mut report = LogDirMaintainReport::default();
        for missing in ["one", "two"] {
            let round = of(&["here", missing], dry_run);
            log_dir.maintain_into(&round, &mut report).unwrap();
        }
        let failed: Vec<_> = report.failed.iter().map(|(of, _)| of.to_string()).collect();
        assert_eq!(failed, ["one-0", "two-0"]);
        assert_eq!((report.looked_at, report.dry_run), (2, dry_run));
        let other = log_dir.maintain_into(&of(&[], !dry_run), &mut report);
        assert!(matches!(
            other.unwrap_err().kind(),
            ErrorKind::Argument { .. }
        ));
        assert_eq!((report.failed.len(), report.dry_run), (2, dry_run));
    }
}

/// A deletion is undone with `mv`: the folder is not told as removed.
#[test]
fn a_folder_that_was_renamed_back_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let paths = vec![folder.path().to_path_buf()];
    let log_dir = open(&paths, &LogDirOptions::default());
    for name in ["back", "gone"] {
        log_dir.create_topic(&topic(name, 1)).unwrap();
        append(&log_dir, name, Some(b"k"), b"v");
        log_dir.delete_topic(name).unwrap();
    }
    let found = names(folder.path());
    let renamed = found
        .iter()
        .find(|name| name.starts_with("back-0."))
        .unwrap();
    std::fs::rename(folder.path().join(renamed), folder.path().join("back-0")).unwrap();
    for dry_run in [true, false] {
        let options = MaintainOptions {
            now: Some(offsetlog::disk::wall_clock() + 3_600_000),
            dry_run,
            retention: false,
            ..MaintainOptions::default()
        };
        let removed = log_dir.maintain(&options).unwrap().removed;
        let [removed] = removed.as_slice() else {
            panic!("{removed:?}");
        };
        let removed = removed.file_name().unwrap().to_string_lossy();
        assert!(removed.starts_with("gone-0."), "{removed}");
    }
    assert_eq!(log_dir.topics().keys().collect::<Vec<_>>(), ["back"]);
    let scan = log_dir.log("back", 0).unwrap();
    assert_eq!(scan.log_end_offset().unwrap(), 1);
}

/// With the same seed the second program draws the names that the first one gave to what waits for its removal.
#[test]
fn a_topic_is_deleted_again_under_the_same_seed() {
    let folder = tempfile::tempdir().unwrap();
    let paths = two_dirs(folder.path());
    let seeded = LogDirOptions {
        seed: Some(1),
        ..LogDirOptions::default()
    };
    for _ in 0..3 {
        let log_dir = open(&paths, &seeded);
        log_dir.create_topic(&topic("t", 2)).unwrap();
        append(&log_dir, "t", None, b"v");
        log_dir.delete_topic("t").unwrap();
        log_dir.close().unwrap();
    }
}
