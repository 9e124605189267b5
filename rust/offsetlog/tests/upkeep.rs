//! Readers beside a writer that compacts and removes segments.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::{
    AppendOptions, BatchBuilder, CompactOptions, ErrorKind, Log, LogConfig, LogWriter,
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
