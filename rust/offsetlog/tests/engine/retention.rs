//! Which segments go by size, age and log start offset: contract 3.5 of maintenance, which was run through Kafka's own classes.

use crate::common::{
    HOUR, NOW, Place, append, append_at, bases, bounds, config, file, lead, log_file, offsets,
    sent, sized,
};
use offsetlog::{
    LogWriter, MaintainOptions, MaintainReport, OpenOptions, RetentionReason, WriteOptions,
};
use offsetlog_faults::run::PARTITION;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Three one-record segments at offsets 0, 1, 2 with times NOW, NOW + 1000 and NOW + 2000; each has [`SIZE`] bytes.
fn three(settings: &[(&str, &str)]) -> (Place, LogWriter) {
    let place = Place::new();
    let log = place.open(&[&[("retention.ms", "-1")], settings].concat());
    for number in 0..3 {
        if number > 0 {
            log.roll().unwrap();
        }
        append_at(&log, NOW + number * 1000, "k", Some("vv"));
    }
    assert_eq!(place.bytes(&log_file(0)).len(), SIZE);
    (place, log)
}

const SIZE: usize = 71;

fn at(now: i64) -> MaintainOptions {
    MaintainOptions {
        now: Some(now),
        ..MaintainOptions::default()
    }
}

fn maintain(log: &LogWriter, now: i64) -> MaintainReport {
    log.maintain(&at(now)).unwrap()
}

/// Base offsets of what goes at a time.
fn gone(log: &LogWriter, now: i64) -> Vec<i64> {
    let removed = maintain(log, now).removed;
    removed.iter().map(|segment| segment.base_offset).collect()
}

#[test]
fn by_age_of_the_newest_record() {
    assert_eq!(sent(&["vv"]).len(), SIZE);
    let (place, log) = three(&[("retention.ms", "10000")]);
    let steps: [(i64, &[i64], i64); 6] = [
        (10_000, &[], 0),
        (10_001, &[0], 1),
        (11_000, &[], 1),
        (11_001, &[1], 2),
        (12_000, &[], 2),
        // The active segment too: an empty one takes its place.
        (12_001, &[2], 3),
    ];
    for (wait, removed, start) in steps {
        let report = maintain(&log, NOW + wait);
        let found: Vec<i64> = report.removed.iter().map(|one| one.base_offset).collect();
        assert_eq!(
            (found.as_slice(), report.log_start_offset),
            (removed, start),
            "{wait}"
        );
        for segment in &report.removed {
            let expected = (
                segment.base_offset + 1,
                SIZE as u64,
                RetentionReason::RetentionMs,
            );
            assert_eq!(
                (segment.end_offset, segment.size_bytes, segment.reason),
                expected
            );
        }
        assert_eq!(
            (bounds(&log), offsets(&log)),
            ((start, 3, 3), (start..3).collect()),
            "{wait}"
        );
    }
    assert_eq!(bases(&log), [3]);
    assert!(place.has(&file(3, ".snapshot")));
    assert_eq!(gone(&log, NOW + 100 * HOUR), Vec::<i64>::new());
    assert_eq!(append_at(&log, NOW, "k", Some("next")).base_offset, 3);
}

#[test]
fn by_size_no_smaller_than_the_setting() {
    let (_, log) = three(&[]);
    let steps: [(i64, &[i64]); 10] = [
        (300, &[]),
        (213, &[]),
        (212, &[]),
        (143, &[]),
        (142, &[0]),
        (141, &[]),
        (71, &[1]),
        (70, &[]),
        (1, &[]),
        (0, &[2]),
    ];
    for (limit, removed) in steps {
        let settings = [
            ("retention.ms", "-1"),
            ("retention.bytes", &limit.to_string()),
        ];
        log.set_config(&config(&settings)).unwrap();
        assert_eq!(gone(&log, NOW), removed, "{limit}");
    }
    assert_eq!((bases(&log), bounds(&log)), (vec![3], (3, 3, 3)));
    assert_eq!(gone(&log, NOW), Vec::<i64>::new());
}

/// Six segments of 344 bytes and a limit of 1000: three go, 1032 bytes are left (contract 8).
#[test]
fn by_size_the_excess_decides() {
    let place = Place::new();
    let log = place.open(&[
        ("retention.ms", "-1"),
        ("retention.bytes", "1000"),
        ("internal.segment.bytes", "344"),
    ]);
    for _ in 0..6 {
        lead(&log, &sized(344)).unwrap();
    }
    assert_eq!(log.size_bytes().unwrap(), 6 * 344);
    assert_eq!(gone(&log, NOW), [0, 1, 2]);
    assert_eq!(log.size_bytes().unwrap(), 1032);
}

#[test]
fn by_the_start_whole_segments_below_it() {
    let (_, log) = three(&[]);
    for (start, removed) in [(1, &[0][..]), (3, &[1])] {
        log.delete_records_before(start).unwrap();
        let report = maintain(&log, NOW);
        let found: Vec<i64> = report.removed.iter().map(|one| one.base_offset).collect();
        assert_eq!(found, removed, "{start}");
        assert_eq!(report.removed[0].reason, RetentionReason::LogStartOffset);
    }
    // The active segment stays, whatever is deleted of it.
    assert_eq!((bases(&log), bounds(&log)), (vec![2], (3, 3, 3)));
}

/// A record of the future keeps its segment and all behind it.
#[test]
fn a_time_in_the_future_keeps_what_is_behind_it() {
    let place = Place::new();
    let log = place.open(&[("retention.ms", "1000")]);
    for time in [NOW + HOUR, NOW - 100 * HOUR, NOW - 100 * HOUR] {
        append_at(&log, time, "k", Some("v"));
        log.roll().unwrap();
    }
    assert_eq!(gone(&log, NOW), Vec::<i64>::new());
    assert_eq!(gone(&log, NOW + HOUR + 1001), [0, 1, 2]);
}

/// Without any time a segment is as old as its file.
#[test]
fn records_without_a_time_are_as_old_as_their_file() {
    use offsetlog::disk::Disk;
    let place = Place::new();
    let log = place.open(&[("retention.ms", "1000")]);
    append_at(&log, -1, "k", Some("v"));
    log.roll().unwrap();
    log.recovery_point();
    let modified = place
        .disk
        .stat(&crate::common::path(&log_file(0)))
        .unwrap()
        .modified_ms;
    assert_eq!(gone(&log, modified + 1000), Vec::<i64>::new());
    assert_eq!(gone(&log, modified + 1001), [0]);
}

/// Neither the base of the segment nor its last record counts.
#[test]
fn the_newest_record_of_a_segment_counts() {
    for reopened in [false, true] {
        let place = Place::new();
        let mut log = place.open(&[("retention.ms", "1000")]);
        for time in [NOW, NOW + 5000, NOW + 1] {
            append_at(&log, time, "k", Some("v"));
        }
        log.roll().unwrap();
        if reopened {
            log.close().unwrap();
            // A time index that lies does not decide.
            place.edit(&file(0, ".timeindex"), |bytes| {
                bytes[..8].copy_from_slice(&NOW.to_be_bytes());
            });
            log = place.again();
        }
        assert_eq!(gone(&log, NOW + 6000), Vec::<i64>::new(), "{reopened}");
        assert_eq!(gone(&log, NOW + 6001), [0], "{reopened}");
    }
}

#[test]
fn the_policy_says_whether_size_and_age_count() {
    for (policy, removed) in [
        ("delete", &[0, 1, 2][..]),
        ("compact,delete", &[0, 1, 2]),
        ("compact", &[]),
        ("", &[]),
    ] {
        let settings = [
            ("retention.ms", "0"),
            ("retention.bytes", "0"),
            ("cleanup.policy", policy),
        ];
        let (_, log) = three(&settings);
        let options = MaintainOptions {
            compaction: false,
            ..at(NOW + 100 * HOUR)
        };
        let report = log.maintain(&options).unwrap();
        let found: Vec<i64> = report.removed.iter().map(|one| one.base_offset).collect();
        assert_eq!(found, removed, "{policy:?}");
        // The start counts always.
        if removed.is_empty() {
            log.delete_records_before(1).unwrap();
            assert_eq!(log.maintain(&options).unwrap().removed.len(), 1);
        }
    }
}

/// Contract 3.2: renamed first, gone after `file.delete.delay.ms`.
#[test]
fn files_go_after_a_delay() {
    let (place, log) = three(&[("retention.bytes", "71"), ("file.delete.delay.ms", "5000")]);
    place.set_clock(NOW + 1);
    maintain(&log, NOW + 1);
    let suffixes = [".log", ".index", ".timeindex"];
    for suffix in suffixes {
        assert!(!place.has(&file(0, suffix)), "{suffix}");
        assert!(
            place.has(&file(0, &format!("{suffix}.deleted"))),
            "{suffix}"
        );
    }
    let deleted = || {
        place
            .files()
            .into_keys()
            .filter(|name| name.ends_with(".deleted"))
            .count()
    };
    let before = deleted();
    assert!(maintain(&log, NOW + 5000).deleted.is_empty());
    assert_eq!(deleted(), before);
    assert_eq!(maintain(&log, NOW + 5001).deleted.len(), before);
    assert_eq!(deleted(), 0);
    // Where they are left, the next opening removes them.
    let (place, log) = three(&[("retention.bytes", "71")]);
    maintain(&log, NOW);
    log.abandon();
    place.again();
    assert!(place.files().keys().all(|name| !name.ends_with(".deleted")));
}

#[test]
fn a_dry_run_says_what_would_go_and_changes_nothing() {
    let (place, log) = three(&[("retention.ms", "10000"), ("retention.bytes", "142")]);
    log.flush().unwrap();
    let (before, changes) = (place.files(), place.disk.changes());
    let options = MaintainOptions {
        dry_run: true,
        ..at(NOW + 100 * HOUR)
    };
    let planned = log.maintain(&options).unwrap();
    assert!(planned.dry_run);
    let reasons: Vec<_> = planned
        .removed
        .iter()
        .map(|one| (one.base_offset, one.reason))
        .collect();
    let expected = [
        (0, RetentionReason::RetentionBytes),
        (1, RetentionReason::RetentionMs),
        (2, RetentionReason::RetentionMs),
    ];
    assert_eq!(reasons, expected);
    assert_eq!((planned.log_start_offset, planned.log_end_offset), (3, 3));
    assert_eq!((place.files(), place.disk.changes()), (before, changes));
    assert_eq!(offsets(&log), [0, 1, 2]);
    let nothing = MaintainOptions {
        retention: false,
        compaction: false,
        deletes: false,
        ..at(NOW + 100 * HOUR)
    };
    assert!(log.maintain(&nothing).unwrap().is_empty());
    let done = maintain(&log, NOW + 100 * HOUR);
    assert_eq!(
        MaintainReport {
            dry_run: true,
            ..done
        },
        planned
    );
}

/// Contract 3.2: the start is on the disk before the first name goes.
#[test]
fn a_crash_at_any_change_leaves_the_old_start_or_the_new_one() {
    use offsetlog_faults::sim::{Cut, Fill};
    let (place, log) = three(&[("retention.bytes", "71")]);
    log.flush().unwrap();
    let (mut world, first) = (place.disk.world(), place.disk.changes());
    maintain(&log, NOW);
    assert_eq!(bounds(&log).0, 2);
    let mut rng = fastrand::Rng::with_seed(3);
    for change in &place.disk.recorded()[first..] {
        world.apply(change);
        for cut in [Cut::Process, Cut::Nothing, Cut::Random] {
            let log = Place::of(world.crash(cut, Fill::Zeros, &mut rng)).again();
            let start = bounds(&log).0;
            assert!(
                start == 0 || start == 2,
                "{start} after {change:?}, {cut:?}"
            );
            assert_eq!(offsets(&log), (start..3).collect::<Vec<_>>());
        }
    }
}

/// Also a dry run's: a truncation behind it deletes files after the log's own delay.
#[test]
fn the_settings_of_a_run_end_with_it() {
    for dry_run in [true, false] {
        let place = Place::new();
        let log = place.open(&[
            ("internal.segment.bytes", "100"),
            ("file.delete.delay.ms", "60000"),
        ]);
        for value in ["a", "b", "c"] {
            append(&log, &[value]);
        }
        let options = MaintainOptions {
            config: Some(config(&[("file.delete.delay.ms", "0")])),
            dry_run,
            ..MaintainOptions::default()
        };
        log.maintain(&options).unwrap();
        log.truncate_to(1).unwrap();
        // An append deletes what is due.
        append(&log, &["d"]);
        let kept = format!("{}.deleted", log_file(2));
        assert!(place.has(&kept), "dry run {dry_run}");
    }
}

/// Settings that are altered while a run is under way hold for what it has not deleted yet.
#[test]
fn settings_altered_during_a_run_hold() {
    let (place, log) = three(&[("retention.ms", "10000")]);
    drop(log);
    let log: Arc<OnceLock<LogWriter>> = Arc::default();
    let is_asked = Arc::new(AtomicBool::new(false));
    // The run asks for the time between its beginning and its first step.
    let clock = {
        let (log, is_asked) = (Arc::clone(&log), Arc::clone(&is_asked));
        move || {
            if is_asked.swap(false, Ordering::SeqCst) {
                let kept = config(&[("retention.ms", "-1")]);
                log.get().unwrap().set_config(&kept).unwrap();
            }
            NOW + HOUR
        }
    };
    let options = OpenOptions {
        clock: Arc::new(clock),
        ..place.options()
    };
    let opened = LogWriter::open(PARTITION, &options, &WriteOptions::default()).unwrap();
    let log = log.get_or_init(|| opened);
    is_asked.store(true, Ordering::SeqCst);
    let report = log.maintain(&MaintainOptions::default()).unwrap();
    assert!(!is_asked.load(Ordering::SeqCst), "the clock was not asked");
    assert_eq!(report.removed.len(), 0);
    assert_eq!(report.log_start_offset, 0);
}
