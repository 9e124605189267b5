//! Readers beside a writer that compacts and removes segments.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::{
    AppendOptions, BatchBuilder, CompactOptions, ErrorKind, Isolation, Log, LogConfig, LogWriter,
    MaintainOptions, OpenOptions, ScanOptions, WriteOptions,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const KEYS: u64 = 12;
const ROUNDS: u64 = 40;

fn open(path: &Path, settings: &[(&str, &str)]) -> LogWriter {
    let write = WriteOptions {
        config: Some(LogConfig::parse(settings.iter().copied()).unwrap()),
        ..WriteOptions::default()
    };
    LogWriter::open(path, &OpenOptions::default(), &write).unwrap()
}

fn append(log: &LogWriter, key: u64, value: u64) {
    let mut batch = BatchBuilder::default();
    let mut bytes = value.to_be_bytes().to_vec();
    bytes.resize(60, 0);
    batch
        .push(
            1_700_000_000_000,
            Some(&key.to_be_bytes()),
            Some(&bytes),
            &[],
        )
        .unwrap();
    log.append(&mut batch, &AppendOptions::default()).unwrap();
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().unwrap())
}

/// The last value of each key.
fn last_values(log: &Log) -> [u64; KEYS as usize] {
    let mut last = [0; KEYS as usize];
    let mut previous = -1;
    let mut scan = log.scan(&ScanOptions::default()).unwrap();
    while let Some(mut batch) = scan.next_batch().unwrap() {
        while let Some(record) = batch.next_record().unwrap() {
            assert!(record.offset > previous);
            previous = record.offset;
            last[number(record.key.unwrap()) as usize] = number(record.value.unwrap());
        }
    }
    last
}

/// The writer's own log, and others that know of it only by its files: each scan sees every key as new as it was when the scan
/// began, whatever is replaced under it.
#[test]
fn readers_find_every_key_while_the_log_is_compacted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let log = open(
        &path,
        &[
            ("cleanup.policy", "compact"),
            ("internal.segment.bytes", "700"),
            ("index.interval.bytes", "100"),
            ("segment.index.bytes", "600"),
            ("file.delete.delay.ms", "0"),
        ],
    );
    for key in 0..KEYS {
        append(&log, key, 1);
    }
    let published: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(1)).collect();
    let (done, scans) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for kind in 0..3 {
            let (path, published, done, scans, log) = (&path, &published, &done, &scans, &log);
            scope.spawn(move || {
                let other = Log::open(path, &OpenOptions::default()).unwrap();
                while !done.load(Ordering::SeqCst) {
                    let floor: Vec<u64> = published
                        .iter()
                        .map(|value| value.load(Ordering::SeqCst))
                        .collect();
                    let seen = match kind {
                        0 => last_values(log),
                        1 => last_values(&other),
                        _ => last_values(&Log::open(path, &OpenOptions::default()).unwrap()),
                    };
                    for (key, (seen, floor)) in seen.iter().zip(&floor).enumerate() {
                        assert!(
                            seen >= floor,
                            "reader {kind}, key {key}: {seen}, {floor} was there"
                        );
                    }
                    scans.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut value = 1;
        for round in 0..ROUNDS {
            for step in 0..15 {
                value += 1;
                let key = (round * 7 + step * 5) % KEYS;
                append(&log, key, value);
                published[key as usize].store(value, Ordering::SeqCst);
            }
            log.compact(&CompactOptions::default()).unwrap();
            log.maintain(&MaintainOptions::default()).unwrap();
        }
        done.store(true, Ordering::SeqCst);
    });
    println!("{} scans beside {ROUNDS} compactions", scans.into_inner());
    assert!(log.segments().unwrap().len() < 20);
    log.close().unwrap();
}

/// A scan has read one segment as it was when compaction replaces the next one under its name: the key's newest value of then is gone
/// from it, and what replaced that value stands behind the end that the log had.
#[test]
fn a_scan_reads_on_to_what_replaced_the_values_that_it_missed() {
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        for is_writers_own in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("orders-0");
            let settings = [
                ("cleanup.policy", "compact"),
                ("internal.segment.bytes", "700"),
                ("min.cleanable.dirty.ratio", "0"),
                ("file.delete.delay.ms", "0"),
            ];
            let log = open(&path, &settings);
            // Two segments, and one that stays open. Each key but the first is there once: compacted, two do not fit into one.
            append(&log, 0, 1);
            let mut key = 1;
            while log.segments().unwrap().len() < 3 {
                if key == 7 {
                    append(&log, 0, 2);
                }
                append(&log, key, 1);
                key += 1;
            }
            let reader = Log::open(&path, &OpenOptions::default()).unwrap();
            let options = ScanOptions {
                isolation,
                ..ScanOptions::default()
            };
            let read: &Log = if is_writers_own { &log } else { &reader };
            let mut scan = read.scan(&options).unwrap();
            let mut values = Vec::new();
            let mut note = |batch: &mut offsetlog::Batch<'_>| {
                while let Some(record) = batch.next_record().unwrap() {
                    if number(record.key.unwrap()) == 0 {
                        values.push(number(record.value.unwrap()));
                    }
                }
            };
            note(&mut scan.next_batch().unwrap().unwrap());
            append(&log, 0, 3);
            log.roll().unwrap();
            log.compact(&CompactOptions::default()).unwrap();
            log.maintain(&MaintainOptions::default()).unwrap();
            while let Some(mut batch) = scan.next_batch().unwrap() {
                note(&mut batch);
            }
            // A file that was open already still has the value of then.
            assert!(
                values == [1, 2] || values == [1, 3],
                "{isolation:?}, the writer's own: {is_writers_own}: {values:?}"
            );
            if !is_writers_own {
                assert_eq!(values, [1, 3], "{isolation:?}");
            }
            log.close().unwrap();
        }
    }
}

/// A reader behind retention is told so; what it reads is whole.
#[test]
fn readers_are_told_what_retention_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    let log = open(
        &path,
        &[
            ("internal.segment.bytes", "700"),
            ("segment.index.bytes", "600"),
            ("retention.bytes", "1400"),
            ("retention.ms", "-1"),
            ("file.delete.delay.ms", "0"),
        ],
    );
    for value in 0..200 {
        append(&log, value % KEYS, value);
    }
    let reader = Log::open(&path, &OpenOptions::default()).unwrap();
    let mut scan = reader.scan(&ScanOptions::default()).unwrap();
    assert!(scan.next_batch().unwrap().is_some());
    let report = log.maintain(&MaintainOptions::default()).unwrap();
    assert!(report.removed.len() > 10);
    log.maintain(&MaintainOptions::default()).unwrap();
    let error = loop {
        match scan.next_batch() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the end, as if nothing had been removed"),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error.kind(), ErrorKind::OffsetOutOfRange { log_start_offset, .. } if *log_start_offset == report.log_start_offset),
        "{error}"
    );
    log.close().unwrap();
}
