//! Appending, reading back, reopening.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::{
    AppendOptions, BatchBuilder, ErrorKind, Log, LogConfig, LogWriter, OpenOptions, RecoverOptions,
    ScanOptions, WriteOptions, recover,
};
use std::path::Path;
use std::sync::{Arc, Mutex};

fn open(path: &Path, settings: &[(&str, &str)]) -> LogWriter {
    let config = LogConfig::parse(settings.iter().copied()).unwrap();
    let write = WriteOptions {
        config: Some(config),
        ..WriteOptions::default()
    };
    LogWriter::open(path, &OpenOptions::default(), &write).unwrap()
}

fn append(log: &LogWriter, from: i64, count: i64) {
    let mut batch = BatchBuilder::default();
    for number in from..from + count {
        let value = format!("value {number}");
        batch
            .push(
                1_700_000_000_000 + number,
                None,
                Some(value.as_bytes()),
                &[],
            )
            .unwrap();
    }
    let info = log.append(&mut batch, &AppendOptions::default()).unwrap();
    assert_eq!(
        (info.base_offset, info.last_offset),
        (from, from + count - 1)
    );
    assert!(batch.is_empty());
}

fn values(log: &Log) -> Vec<String> {
    let mut scan = log.scan(&ScanOptions::default()).unwrap();
    let mut values = Vec::new();
    while let Some(mut batch) = scan.next_batch().unwrap() {
        while let Some(record) = batch.next_record().unwrap() {
            values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
        }
    }
    values
}

#[test]
fn appends_are_read_back_and_survive_closing_and_killing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let small = [
        ("internal.segment.bytes", "400"),
        ("index.interval.bytes", "100"),
    ];
    let log = open(&path, &small);
    for number in 0..20 {
        append(&log, number * 3, 3);
    }
    let expected: Vec<String> = (0..60).map(|number| format!("value {number}")).collect();
    assert_eq!(values(&log), expected);
    assert_eq!(log.log_end_offset().unwrap(), 60);
    assert!(log.segments().unwrap().len() > 3);
    log.close().unwrap();
    drop(log);
    assert_eq!(
        values(&Log::open(&path, &OpenOptions::default()).unwrap()),
        expected
    );

    let log = open(&path, &small);
    assert!(log.recovery_report().clean);
    append(&log, 60, 2);
    log.abandon();
    drop(log);
    let log = open(&path, &small);
    let report = log.recovery_report();
    assert!(!report.clean, "{report:?}");
    assert_eq!(report.cut, []);
    assert_eq!(log.log_end_offset().unwrap(), 62);
    append(&log, 62, 1);
    assert_eq!(values(&log).len(), 63);
    log.truncate_to(31).unwrap();
    assert_eq!(values(&log).len(), 30);
    append(&log, 31, 1);
    log.close().unwrap();
}

/// `for_each_record` passes most records in a loop of its own: those with headers, of any shape, from any offset on, and between.
#[test]
fn each_record_is_given_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let log = open(&path, &[]);
    let shapes = ["ppp", "phpp", "hhh", "ppnh", "h", "p", "pppppppphp", "nph"];
    let mut expected = Vec::new();
    for shape in shapes {
        let mut batch = BatchBuilder::default();
        for kind in shape.chars() {
            let offset = expected.len() as i64;
            let value = format!("value {offset}");
            let value = (kind != 'n').then_some(value.as_bytes());
            let headers: &[(&[u8], Option<&[u8]>)] = match kind {
                'h' => &[(b"name", Some(b"x"))],
                _ => &[],
            };
            batch.push(offset, None, value, headers).unwrap();
            expected.push((offset, value.map(<[u8]>::to_vec), headers.len()));
        }
        log.append(&mut batch, &AppendOptions::default()).unwrap();
    }
    for start in 0..expected.len() {
        for limit in [None, Some(1), Some(4)] {
            let options = ScanOptions {
                start: Some(start as i64),
                limit,
                ..ScanOptions::default()
            };
            let mut scan = log.scan(&options).unwrap();
            let mut found = Vec::new();
            while let Some(mut batch) = scan.next_batch().unwrap() {
                batch
                    .for_each_record(|record| {
                        let value = record.value.map(<[u8]>::to_vec);
                        found.push((record.offset, value, record.headers.iter().count()));
                    })
                    .unwrap();
                if limit.is_none() {
                    assert_eq!(batch.next_offset(), found.last().unwrap().0 + 1);
                }
            }
            let most = limit.map_or(usize::MAX, |limit| limit as usize);
            let wanted: Vec<_> = expected.iter().skip(start).take(most).cloned().collect();
            assert_eq!(found, wanted, "from {start}, {limit:?}");
        }
    }
    log.close().unwrap();
}

#[test]
fn a_torn_tail_is_cut_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let log = open(&path, &[]);
    append(&log, 0, 5);
    append(&log, 5, 5);
    log.abandon();
    drop(log);
    let file = path.join("00000000000000000000.log");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 3]).unwrap();
    let dry = RecoverOptions {
        dry_run: true,
        ..RecoverOptions::default()
    };
    let report = recover(&path, &OpenOptions::default(), &dry).unwrap();
    assert_eq!(report.log_end_offset, 5);
    assert_eq!(std::fs::read(&file).unwrap().len(), bytes.len() - 3);
    let log = open(&path, &[]);
    let report = log.recovery_report();
    assert_eq!(report.cut.len(), 1);
    let kept = report.cut[0].kept.clone().unwrap();
    let cut = std::fs::read(kept).unwrap();
    assert_eq!(cut, bytes[bytes.len() / 2..bytes.len() - 3]);
    append(&log, 5, 1);
    assert_eq!(values(&log).len(), 6);
}

#[test]
fn a_second_writer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let first = open(&path, &[]);
    let refused =
        LogWriter::open(&path, &OpenOptions::default(), &WriteOptions::default()).unwrap_err();
    assert_eq!(refused.kind().code(), "Locked", "{refused}");
    first.close().unwrap();
    open(&path, &[]);
}

#[test]
fn recovery_asks_and_tells_inside_a_segment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let log = open(&path, &[]);
    for _ in 0..20 {
        let mut batch = BatchBuilder::default();
        batch.push(0, None, Some(&vec![7; 1_000_000]), &[]).unwrap();
        log.append(&mut batch, &AppendOptions::default()).unwrap();
    }
    log.close().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = Arc::clone(&told);
    let dry = RecoverOptions {
        dry_run: true,
        progress: Some(Arc::new(move |bytes| teller.lock().unwrap().push(bytes))),
        ..RecoverOptions::default()
    };
    let report = recover(&path, &OpenOptions::default(), &dry).unwrap();
    let bytes = std::mem::take(&mut *told.lock().unwrap());
    assert!(bytes.len() >= 4, "{bytes:?}");
    assert_eq!(bytes.iter().sum::<u64>(), report.bytes_read);

    let seen = Arc::clone(&told);
    let impatient = OpenOptions {
        interrupt: Some(Arc::new(move || seen.lock().unwrap().len() == 2)),
        ..OpenOptions::default()
    };
    let error = recover(&path, &impatient, &dry).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Interrupted));
    assert_eq!(told.lock().unwrap().len(), 2);
}
