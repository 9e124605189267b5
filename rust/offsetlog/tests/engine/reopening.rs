//! A log that is closed and opened again: what is kept of it, and that nothing changes when nothing was changed.

use crate::common::{
    NOW, Place, append, append_in, bases, bounds, clean, closed, config, numbered, produce,
    records, unclean,
};
use offsetlog::{Isolation, RecoverOptions, WriteOptions, recover};
use offsetlog_faults::run::PARTITION;

#[test]
fn opening_and_closing_a_clean_log_leaves_its_files() {
    let place = closed();
    let before = place.data_files();
    let state = place.bytes(".offsetlog.state");
    for _ in 0..3 {
        let log = place.again();
        assert!(log.recovery_report().clean);
        assert_eq!(records(&log), numbered(0, 12));
        log.get(3).unwrap();
        log.locate(5).unwrap();
        log.offset_for_timestamp(NOW, Isolation::ReadCommitted)
            .unwrap();
        log.fetch(0, &offsetlog::FetchOptions::default()).unwrap();
        assert!(!log.truncate_to(12).unwrap());
        assert!(!log.delete_records_before(0).unwrap());
        log.flush().unwrap();
        log.close().unwrap();
        assert_eq!(place.data_files(), before);
        assert_eq!(place.bytes(".offsetlog.state"), state);
    }
    // A dry run does not even take a lock.
    let changes = place.disk.changes();
    let dry_run = RecoverOptions {
        dry_run: true,
        ..RecoverOptions::default()
    };
    let report = recover(PARTITION, &place.options(), &dry_run).unwrap();
    assert!(report.dry_run && !report.is_changed(), "{report:?}");
    assert_eq!((report.segments_read, report.log_end_offset), (3, 12));
    assert_eq!(place.disk.changes(), changes);
}

#[test]
fn a_reader_changes_nothing() {
    let place = closed();
    let before = place.disk.changes();
    let reader = place.reader();
    assert_eq!(
        (records(&reader), bounds(&reader)),
        (numbered(0, 12), (0, 12, 12))
    );
    reader.locate(7).unwrap();
    reader
        .offset_for_timestamp(NOW, Isolation::ReadCommitted)
        .unwrap();
    reader.verify(&offsetlog::VerifyOptions::default()).unwrap();
    assert_eq!(place.disk.changes(), before);
    assert_eq!(place.disk.held_locks(), 0);
}

#[test]
fn a_closed_log_answers_and_changes_nothing_more() {
    let place = closed();
    let log = place.again();
    append(&log, &["v12"]);
    log.close().unwrap();
    log.close().unwrap();
    let before = place.disk.changes();
    let late = [
        crate::common::try_append(&log, &["x"]).map(drop),
        crate::common::end(&log, 1, 0, true).map(drop),
        log.flush(),
        log.roll().map(drop),
        log.truncate_to(0).map(drop),
        log.delete_records_before(1).map(drop),
        log.set_config(&config(&[])),
        log.maintain(&offsetlog::MaintainOptions::default())
            .map(drop),
        log.compact(&offsetlog::CompactOptions::default()).map(drop),
    ];
    for (number, answer) in late.into_iter().enumerate() {
        assert_eq!(answer.unwrap_err().kind().code(), "Closed", "call {number}");
    }
    assert_eq!(place.disk.changes(), before);
    drop(log);
    assert_eq!((place.disk.held_locks(), place.disk.open_files()), (0, 0));
}

/// Offsets, epochs, producers, transactions, settings: all that the next writer has to know.
#[test]
fn everything_is_known_again() {
    let place = Place::new();
    let settings = [
        ("segment.ms", "3600000"),
        ("cleanup.policy", "compact"),
        ("retention.ms", "-1"),
    ];
    let log = place.open(&settings);
    append_in(&log, 4, &["v0", "v1"]);
    produce(&log, (9, 1, 5), false, &["v2"]).unwrap();
    produce(&log, (8, 1, 0), true, &["v3"]).unwrap();
    log.delete_records_before(1).unwrap();
    let config = log.config();
    let text = String::from_utf8(place.bytes(".offsetlog.config")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "version: 0",
        "cleanup.policy=compact",
        "retention.ms=-1",
        "segment.index.bytes=1000",
        "segment.ms=3600000",
    ];
    assert_eq!(lines, expected);
    let killed = place.copy();
    log.close().unwrap();
    for (is_clean, place) in [(true, place), (false, killed)] {
        let log = place.again();
        assert_eq!(log.recovery_report().clean, is_clean);
        assert_eq!(bounds(&log), (1, 4, 3));
        assert_eq!(records(&log), numbered(1, 4));
        assert_eq!(log.end_offset_for_epoch(4), Some((4, 4)));
        assert_eq!(log.config(), config);
        assert!(produce(&log, (9, 1, 5), false, &["v2"]).unwrap().duplicate);
        assert!(produce(&log, (8, 1, 0), true, &["v3"]).unwrap().duplicate);
        assert_eq!(append(&log, &["v4"]).base_offset, 4);
        let batch = log.batches(Some(4), None).unwrap().next().unwrap().unwrap();
        assert_eq!(batch.leader_epoch, 4);
    }
}

/// Which segments are read whole: none after a clean end, else those from the recovery point on, the last one always.
#[test]
fn what_counts_as_clean_can_be_said() {
    let cases = [
        (WriteOptions::default(), 0),
        (clean(), 0),
        (unclean(0), 3),
        (unclean(3), 3),
        (unclean(4), 2),
        (unclean(5), 2),
        (unclean(12), 1),
    ];
    for (number, (write, segments)) in cases.into_iter().enumerate() {
        let log = closed().try_again(write).unwrap();
        let report = log.recovery_report();
        assert_eq!(
            (report.clean, report.segments_read),
            (segments == 0, segments),
            "case {number}"
        );
        assert_eq!(report.cut, []);
    }
    let place = closed();
    for (from, segments) in [(0, 3), (3, 3), (4, 2), (8, 1), (11, 1), (99, 1)] {
        let options = RecoverOptions {
            from_offset: Some(from),
            ..RecoverOptions::default()
        };
        let report = recover(PARTITION, &place.options(), &options).unwrap();
        assert_eq!(report.segments_read, segments, "from {from}");
    }
}

/// Whoever opened a log and changed nothing leaves it clean, even if killed.
#[test]
fn only_a_change_takes_the_clean_mark_away() {
    let place = closed();
    place.again().abandon();
    let log = place.again();
    assert!(log.recovery_report().clean);
    append(&log, &["v12"]);
    log.abandon();
    let log = place.again();
    assert!(!log.recovery_report().clean);
    assert_eq!(records(&log), numbered(0, 13));
}

#[test]
fn settings_are_kept_replaced_and_changed() {
    let place = Place::new();
    let stored = |settings: Option<&[(&str, &str)]>| {
        let log = match settings {
            Some(settings) => place.open(settings),
            None => place.again(),
        };
        let found = log.config();
        log.close().unwrap();
        found
    };
    assert_eq!(
        stored(Some(&[("segment.ms", "5")])),
        config(&[("segment.ms", "5")])
    );
    assert_eq!(stored(None), config(&[("segment.ms", "5")]));
    assert_eq!(
        stored(Some(&[("segment.bytes", "2000000")])),
        config(&[("segment.bytes", "2000000")])
    );
    assert_eq!(stored(None), config(&[("segment.bytes", "2000000")]));
    let log = place.again();
    log.set_config(&config(&[("max.message.bytes", "100")]))
        .unwrap();
    let large = crate::common::try_append(&log, &[&"v".repeat(100)]).unwrap_err();
    assert_eq!(large.kind().code(), "RecordTooLarge");
    log.abandon();
    assert_eq!(stored(None), config(&[("max.message.bytes", "100")]));
}

#[test]
fn a_topics_id_is_stored_once() {
    let id = |text: &str| WriteOptions {
        topic_id: Some(text.parse().unwrap()),
        ..WriteOptions::default()
    };
    let (first, other) = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg");
    let place = Place::new();
    let log = place.open_with(&[], id(first));
    append(&log, &["a"]);
    log.close().unwrap();
    let expected = format!("version: 0\ntopic_id: {first}");
    assert_eq!(place.bytes("partition.metadata"), expected.as_bytes());
    let before = place.data_files();
    let error = place.try_again(id(other)).unwrap_err();
    assert_eq!(error.kind().code(), "Argument", "{error}");
    assert_eq!(place.data_files(), before);
    for write in [id(first), WriteOptions::default()] {
        let log = place.try_again(write).unwrap();
        assert_eq!(log.topic_id().unwrap().unwrap().to_string(), first);
        log.close().unwrap();
    }
    assert_eq!(bases(&place.reader()), [0]);
}

/// Each of them names the file, and changes none.
#[test]
fn files_beside_the_records_that_cannot_be_read() {
    let cases: [(&str, &[u8], &str, &str); 9] = [
        (
            ".offsetlog.config",
            b"version: 0\nsegment.ms\n",
            "MetadataFile",
            "not a name, an equals sign and a value",
        ),
        (
            ".offsetlog.config",
            b"version: 0\nsegment.ms=5",
            "MetadataFile",
            "newline at the end is missing",
        ),
        (
            ".offsetlog.config",
            b"version: 0\nsegment.ms=soon\n",
            "MetadataFile",
            "not a topic setting with a value that it takes",
        ),
        (
            ".offsetlog.config",
            b"version: 0\nsegment.days=5\n",
            "MetadataFile",
            "not a topic setting",
        ),
        (".offsetlog.config", b"", "MetadataFile", ""),
        (
            ".offsetlog.config",
            b"version: 7\n",
            "UnsupportedVersion",
            "version 7 found",
        ),
        ("partition.metadata", b"nonsense", "MetadataFile", ""),
        (
            "leader-epoch-checkpoint",
            b"0\n2\n0 0\n",
            "Checkpoint",
            "offsetlog recover",
        ),
        ("foo.log", b"", "LogDir", "is named like a segment"),
    ];
    for (name, bytes, kind, words) in cases {
        let place = closed();
        place.put(name, bytes);
        let before = place.data_files();
        let error = place.try_again(WriteOptions::default()).unwrap_err();
        assert_eq!(error.kind().code(), kind, "{name}: {error}");
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.path(), Some(crate::common::path(name).as_path()));
        assert_eq!(place.data_files(), before);
        assert_eq!(place.disk.held_locks(), 0);
    }
}
