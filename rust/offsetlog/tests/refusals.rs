//! Calls that come too late, work that is told to stop, and what an error of the format is called.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use offsetlog::{
    AppendOptions, BatchBuilder, ErrorKind, LogWriter, OpenOptions, RecoverOptions, WriteOptions,
    recover,
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
