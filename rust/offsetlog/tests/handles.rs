//! What a handle sees of changes that another one, or it itself, has made: never what was before.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::{
    AppendOptions, BatchBuilder, ErrorKind, Follow, Isolation, Log, LogConfig, LogWriter,
    OpenOptions, ScanOptions, ScanRange, WriteOptions,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const NOW: i64 = 1_700_000_000_000;

fn open(path: &Path) -> LogWriter {
    let settings = [("internal.segment.bytes", "1000"), ("retention.ms", "-1")];
    let write = WriteOptions {
        config: Some(LogConfig::parse(settings).unwrap()),
        ..WriteOptions::default()
    };
    LogWriter::open(path, &OpenOptions::default(), &write).unwrap()
}

fn append(log: &LogWriter, value: &[u8]) {
    let mut batch = BatchBuilder::default();
    batch.push(NOW, None, Some(value), &[]).unwrap();
    log.append(&mut batch, &AppendOptions::default()).unwrap();
}

fn values(log: &Log, start: i64, stop: i64) -> Vec<Vec<u8>> {
    let options = ScanOptions {
        start: Some(start),
        stop: Some(stop),
        ..ScanOptions::default()
    };
    let (mut scan, mut values) = (log.scan(&options).unwrap(), Vec::new());
    while let Some(mut batch) = scan.next_batch().unwrap() {
        while let Some(record) = batch.next_record().unwrap() {
            values.push(record.value.unwrap().to_vec());
        }
    }
    values
}

#[test]
fn truncated_and_deleted_records_do_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let writer = open(&path);
    for _ in 0..20 {
        append(&writer, &[b'o'; 60]);
    }
    let reader = Log::open(&path, &OpenOptions::default()).unwrap();
    for log in [&writer, &reader] {
        assert_eq!(values(log, 0, 20).len(), 20);
        assert!(log.get(17).unwrap().is_some());
    }
    writer.truncate_to(16).unwrap();
    for log in [&writer, &reader] {
        let refused = log.get(17).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::OffsetOutOfRange { .. }));
    }
    for _ in 0..4 {
        append(&writer, &[b'n'; 90]);
    }
    for log in [&writer, &reader] {
        let record = log.get(17).unwrap().unwrap();
        assert_eq!(record.value.as_deref(), Some(&[b'n'; 90][..]));
        assert_eq!(values(log, 16, 20), vec![vec![b'n'; 90]; 4]);
    }
    writer.delete_records_before(18).unwrap();
    for log in [&writer, &reader] {
        assert!(log.get(17).is_err());
        let found = log.offset_for_timestamp(NOW, Isolation::ReadCommitted);
        assert_eq!(found.unwrap().unwrap().offset, 18);
    }
}

#[test]
fn a_writer_that_was_dropped_tells_nothing_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let reader = {
        let writer = open(&path);
        append(&writer, b"a");
        Log::open(&path, &OpenOptions::default()).unwrap()
    };
    assert_eq!(reader.log_end_offset().unwrap(), 1);
    let writer = open(&path);
    append(&writer, b"b");
    assert_eq!(reader.log_end_offset().unwrap(), 2);
    assert!(reader.get(1).unwrap().is_some());
    writer.close().unwrap();
    assert_eq!(reader.log_end_offset().unwrap(), 2);
}

#[test]
fn a_follower_is_told_of_a_cut_below_what_it_gave() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let writer = open(&path);
    for _ in 0..5 {
        append(&writer, b"old");
    }
    let log = Log::open(&path, &OpenOptions::default()).unwrap();
    let range = ScanRange {
        log,
        start: None,
        stop: None,
    };
    let every = Duration::from_millis(10);
    let mut follow = Follow::over(vec![range], &[], &ScanOptions::default(), every).unwrap();
    let mut scan = follow.next_scan(Some(every)).unwrap().unwrap();
    assert_eq!(scan.count_records().unwrap(), 5);
    writer.truncate_to(3).unwrap();
    for _ in 0..5 {
        append(&writer, b"new");
    }
    let refused = follow.next_scan(Some(every)).unwrap_err();
    let ErrorKind::OffsetOutOfRange {
        requested,
        log_end_offset,
        ..
    } = refused.kind()
    else {
        panic!("{refused}");
    };
    assert_eq!((*requested, *log_end_offset), (5, 3));
}

/// Look-ups beside a thread that cuts the log and fills it again: each gives what was there at one moment, and no error but that of an
/// offset that is not there.
#[test]
fn look_ups_beside_truncations_are_of_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let writer = open(&path);
    let fill = |round: usize| {
        for offset in writer.log_end_offset().unwrap()..20 {
            append(
                &writer,
                format!("{offset} {}", "x".repeat(20 + round % 70)).as_bytes(),
            );
        }
    };
    fill(0);
    let reader = Log::open(&path, &OpenOptions::default()).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for log in [&writer, &reader] {
            scope.spawn(|| {
                let mut asked = 0;
                while !ends.load(Ordering::Acquire) {
                    asked += 1;
                    let offset = asked % 20;
                    match log.get(offset) {
                        Ok(record) => {
                            let value = record.unwrap().value.unwrap();
                            assert!(value.starts_with(format!("{offset} ").as_bytes()));
                        }
                        Err(error) => {
                            assert!(
                                matches!(error.kind(), ErrorKind::OffsetOutOfRange { .. }),
                                "{error}"
                            );
                        }
                    }
                    let found = log.offset_for_timestamp(NOW, Isolation::ReadCommitted);
                    assert_eq!(found.unwrap().unwrap().offset, 0);
                }
            });
        }
        for round in 1..60 {
            writer.truncate_to(1 + (round as i64 * 7) % 19).unwrap();
            fill(round);
        }
        ends.store(true, Ordering::Release);
    });
}

/// A person with truncate(1), whom no lock keeps out.
#[test]
fn an_index_that_another_program_empties_is_read_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let settings = [
        ("internal.segment.bytes", "1000000"),
        ("index.interval.bytes", "0"),
    ];
    let write = WriteOptions {
        config: Some(LogConfig::parse(settings).unwrap()),
        ..WriteOptions::default()
    };
    let writer = LogWriter::open(&path, &OpenOptions::default(), &write).unwrap();
    for offset in 0..2000 {
        let mut batch = BatchBuilder::default();
        batch.push(NOW + offset, None, Some(b"value"), &[]).unwrap();
        writer
            .append(&mut batch, &AppendOptions::default())
            .unwrap();
    }
    writer.roll().unwrap();
    let check = |offset| {
        assert_eq!(writer.get(offset).unwrap().unwrap().offset, offset);
        let found = writer.offset_for_timestamp(NOW + offset, Isolation::ReadUncommitted);
        assert_eq!(found.unwrap().unwrap().offset, offset);
    };
    check(10);
    check(1990);
    for (suffix, size) in [("index", 40), ("timeindex", 0)] {
        let index = path.join(format!("{:020}.{suffix}", 0));
        assert!(
            index.metadata().unwrap().len() > 4096,
            "large enough to be mapped"
        );
        // Longer than a map is used without another look at its file.
        std::thread::sleep(Duration::from_millis(25));
        let file = std::fs::File::options().write(true).open(index).unwrap();
        file.set_len(size).unwrap();
        for offset in [1990, 10, 1000] {
            check(offset);
        }
    }
}
