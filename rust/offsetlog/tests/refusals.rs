//! Calls that come too late, work that is told to stop, and what an error of the format is called.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use offsetlog::{
    AppendOptions, BatchBuilder, ErrorKind, Limits, Log, LogWriter, MaintainOptions, OpenOptions,
    RecoverOptions, WriteOptions, recover,
};
use offsetlog_format::{Fault, FormatError, Part};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn one_record() -> BatchBuilder {
    let mut batch = BatchBuilder::default();
    batch
        .push(1_700_000_000_000, None, Some(b"value"), &[])
        .unwrap();
    batch
}

#[test]
fn a_closed_log_changes_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let log = LogWriter::open(&path, &OpenOptions::default(), &WriteOptions::default()).unwrap();
    log.append(&mut one_record(), &AppendOptions::default())
        .unwrap();
    log.close().unwrap();
    let size = || std::fs::metadata(path.join("00000000000000000000.log")).unwrap();
    let before = size().len();
    let late = [
        log.append(&mut one_record(), &AppendOptions::default())
            .map(drop),
        log.roll().map(drop),
        log.truncate_to(0).map(drop),
    ];
    for answer in late {
        let error = answer.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
    }
    // Closing twice is no mistake.
    log.close().unwrap();
    assert_eq!(size().len(), before);
}

/// A recovery that is interrupted leaves a log that the next one recovers.
#[test]
fn recovery_stops_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let options = OpenOptions {
        interrupt: Some(Arc::new(move || asked.load(Ordering::Relaxed))),
        ..OpenOptions::default()
    };
    let open = |clean| {
        let write = WriteOptions {
            clean,
            ..WriteOptions::default()
        };
        LogWriter::open(&path, &options, &write)
    };
    let log = open(None).unwrap();
    log.append(&mut one_record(), &AppendOptions::default())
        .unwrap();
    log.abandon();
    stop.store(true, Ordering::Relaxed);
    let error = open(Some(false)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Interrupted), "{error}");
    stop.store(false, Ordering::Relaxed);
    assert_eq!(open(None).unwrap().log_end_offset().unwrap(), 1);
}

#[test]
fn recovery_begins_at_an_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let log = LogWriter::open(&path, &OpenOptions::default(), &WriteOptions::default()).unwrap();
    log.append(&mut one_record(), &AppendOptions::default())
        .unwrap();
    log.close().unwrap();
    let from = |offset| RecoverOptions {
        from_offset: Some(offset),
        ..RecoverOptions::default()
    };
    assert!(format!("{:?}", from(-1)).contains("from_offset: Some(-1)"));
    let error = recover(&path, &OpenOptions::default(), &from(-1)).unwrap_err();
    assert!(error.to_string().contains("-1 found"), "{error}");
    let report = recover(&path, &OpenOptions::default(), &from(0)).unwrap();
    assert_eq!((report.log_end_offset, report.cut.len()), (1, 0));
}

/// Kafka's positions in a segment are 32 bits; so is what its indexes hold.
#[test]
fn a_segment_of_two_gibibytes_is_none_of_kafkas() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    std::fs::create_dir(&path).unwrap();
    let name = path.join("00000000000000000000.log");
    let file = std::fs::File::create(&name).unwrap();
    file.set_len(1 << 31).unwrap();
    let error = Log::open(&path, &OpenOptions::default()).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::SegmentTooLarge { size } if *size == 1 << 31),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("orders-0/00000000000000000000.log")
    );
}

/// What a reader with the same limits could not read back is not appended.
#[test]
fn what_could_not_be_read_back_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let options = OpenOptions {
        limits: Limits {
            max_headers: 1,
            ..Limits::default()
        },
        ..OpenOptions::default()
    };
    let log = LogWriter::open(&path, &options, &WriteOptions::default()).unwrap();
    let mut batch = BatchBuilder::default();
    let headers: [(&[u8], Option<&[u8]>); 2] = [(b"h", None), (b"h", None)];
    batch
        .push(1_700_000_000_000, None, Some(b"value"), &headers)
        .unwrap();
    let error = log
        .append(&mut batch, &AppendOptions::default())
        .map(drop)
        .unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Unreadable {
                name: offsetlog::LimitName::MaxHeaders,
                limit: 1,
                seen: 2
            }
        ),
        "{error}"
    );
    assert_eq!(log.log_end_offset().unwrap(), 0);
}

/// A partition of a broker's is kept by its topic's settings; a copy of its directory alone does not know them.
#[test]
fn a_brokers_partition_is_not_maintained_by_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("g-plain-0");
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0");
    std::fs::create_dir(&path).unwrap();
    for entry in std::fs::read_dir(source).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), path.join(entry.file_name())).unwrap();
    }
    let log = LogWriter::open(&path, &OpenOptions::default(), &WriteOptions::default()).unwrap();
    let error = log
        .maintain(&MaintainOptions::default())
        .map(drop)
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cluster { .. }), "{error}");
}

/// Python's exceptions have these names.
#[test]
fn errors_of_the_format_are_told_apart_by_file() {
    let names = [
        (Part::BatchHeader, "CorruptBatch"),
        (Part::Record, "InvalidRecord"),
        (Part::OffsetIndex, "CorruptIndex"),
        (Part::TimeIndex, "CorruptIndex"),
        (Part::TransactionIndex, "CorruptTxnIndex"),
        (Part::ProducerSnapshot, "CorruptSnapshot"),
        (Part::LeaderEpochCheckpoint, "Checkpoint"),
        (Part::PartitionMetadata, "MetadataFile"),
    ];
    for (part, name) in names {
        let error = FormatError::new(part, 0, Fault::Rule("it is as it is"));
        assert_eq!(ErrorKind::from(error).code(), name);
    }
}
