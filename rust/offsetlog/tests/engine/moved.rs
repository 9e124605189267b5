//! Moving a staged log: the files are those that appending its batches makes, and what cannot be moved stays as it is.

use crate::common::{Place, Sent, append, append_in, bases, config, follow, offsets, sent, values};
use offsetlog::disk::Disk;
use offsetlog::{ErrorKind, LogWriter, WriteOptions, moving_note};
use offsetlog_faults::run::PARTITION;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SETTINGS: &[(&str, &str)] = &[
    ("internal.segment.bytes", "400"),
    ("index.interval.bytes", "100"),
];
const COUNT: usize = 12;

fn staged() -> PathBuf {
    Path::new(PARTITION).join("offsetlog-staging/job/orders-0")
}

fn value(number: usize) -> String {
    format!("staged {number} {}", "x".repeat(number * 3))
}

/// A log for the partition, written aside.
fn stage(place: &Place, settings: &[(&str, &str)], fill: impl FnOnce(&LogWriter)) {
    let write = WriteOptions {
        config: Some(config(settings)),
        ..WriteOptions::default()
    };
    let log = LogWriter::open(staged(), &place.options(), &write).unwrap();
    fill(&log);
    log.close().unwrap();
}

fn twelve(log: &LogWriter) {
    for number in 0..COUNT {
        append(log, &[&value(number)]);
    }
}

/// The partition's own files.
fn own(place: &Place) -> BTreeMap<String, Vec<u8>> {
    let mut files = place.data_files();
    files.retain(|name, _| !name.contains('/'));
    files
}

#[test]
fn the_files_are_those_of_appending() {
    for first in [None, Some("first")] {
        let (moved, appended) = (Place::new(), Place::new());
        stage(&moved, SETTINGS, twelve);
        let log = moved.open(SETTINGS);
        let other = appended.open(SETTINGS);
        for log in [&log, &other] {
            first.map(|first| append(log, &[first]));
        }
        let info = log.move_log(&staged(), COUNT, Some(2)).unwrap().unwrap();
        let start = i64::from(first.is_some());
        assert_eq!((info.base_offset, info.last_offset), (start, start + 11));
        other.roll().unwrap();
        for number in 0..COUNT {
            append_in(&other, 2, &[&value(number)]);
        }
        assert!(bases(&log).len() > 3);
        assert_eq!(bases(&log), bases(&other));
        assert_eq!(values(&log), values(&other));
        log.flush().unwrap();
        assert_eq!(log.recovery_point(), start + 12);
        for log in [log, other] {
            log.close().unwrap();
        }
        assert_eq!(own(&moved), own(&appended));
        // What recovery rebuilds is the same again.
        let again = moved.recovered();
        assert_eq!(again.recovery_report().rebuilt, []);
        assert_eq!(again.recovery_report().cut, []);
        append(&again, &["behind"]);
        assert_eq!(*offsets(&again).last().unwrap(), start + 12);
        let noted = moving_note(&moved.disk, &staged()).unwrap().unwrap();
        assert_eq!(noted.len(), COUNT);
    }
}

#[test]
fn what_is_small_is_moved_into_no_log() {
    let place = Place::new();
    stage(&place, SETTINGS, |log| {
        append(log, &["a"]);
    });
    let before = place.files();
    let log = place.open(SETTINGS);
    assert_eq!(log.move_log(&staged(), 1, None).unwrap(), None);
    append(&log, &["first"]);
    assert_eq!(log.move_log(&staged(), 1, None).unwrap(), None);
    assert_eq!(offsets(&log), [0]);
    assert_eq!(moving_note(&place.disk, &staged()).unwrap(), None);
    for (name, bytes) in before.iter().filter(|(name, _)| name.contains('/')) {
        assert_eq!(place.bytes(name), *bytes, "{name}");
    }
}

fn refused(fill: impl FnOnce(&LogWriter), settings: &[(&str, &str)], batches: usize) {
    let place = Place::new();
    stage(&place, settings, fill);
    let log = place.open(SETTINGS);
    append(&log, &["first"]);
    let before = place.data_files();
    assert_eq!(log.move_log(&staged(), batches, None).unwrap(), None);
    assert_eq!(place.data_files(), before);
    assert_eq!(moving_note(&place.disk, &staged()).unwrap(), None);
}

#[test]
fn what_renaming_would_not_keep_is_copied() {
    let long = "v".repeat(200);
    let send = |log: &LogWriter, batch: Sent| {
        follow(log, &batch.0, 9).unwrap();
    };
    let large: &[(&str, &str)] = &[("internal.segment.bytes", "4000")];
    // A gap between batches, and one before the first.
    refused(
        |log| {
            send(log, sent(&[&long]));
            send(log, sent(&[&long]).base(5));
        },
        large,
        2,
    );
    refused(|log| send(log, sent(&[&long]).base(5)), large, 1);
    // The log would have to know the producer.
    refused(|log| send(log, sent(&[&long]).producer(7, 0, 0)), large, 1);
    // A segment is larger than those of the log.
    refused(twelve, large, COUNT);
}

#[test]
fn a_log_that_is_not_whole_or_is_open_is_refused() {
    let place = Place::new();
    stage(&place, SETTINGS, twelve);
    let log = place.open(SETTINGS);
    let held = LogWriter::open(staged(), &place.options(), &WriteOptions::default()).unwrap();
    let error = log.move_log(&staged(), COUNT, None).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Locked { .. }), "{error}");
    held.close().unwrap();
    let error = log.move_log(&staged(), COUNT + 1, None).unwrap_err();
    assert!(
        error.to_string().contains("12 staged batches, 13 expected"),
        "{error}"
    );
    let name = staged().join("00000000000000000000.log");
    let name = name.strip_prefix(PARTITION).unwrap().to_str().unwrap();
    place.edit(name, |bytes| bytes[70] ^= 1);
    let error = log.move_log(&staged(), COUNT, None).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    place.edit(name, |bytes| bytes[70] ^= 1);
    assert_eq!(moving_note(&place.disk, &staged()).unwrap(), None);
    assert_eq!(offsets(&log), []);
    // Nothing of that hinders the right call.
    assert!(log.move_log(&staged(), COUNT, None).unwrap().is_some());
    assert_eq!(offsets(&log).len(), COUNT);
    // A second one finds nothing that is left.
    let error = log.move_log(&staged(), COUNT, None).unwrap_err();
    assert!(error.to_string().contains("was moved in part"), "{error}");
    place.disk.stat(&staged()).unwrap();
}
