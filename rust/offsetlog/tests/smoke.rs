//! Every partition that real brokers wrote can be scanned to its end, and each record found again by offset.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test"
)]

use offsetlog::{LogDir, OpenOptions, ScanOptions};
use std::path::PathBuf;

fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data")
        .join(path)
}

fn check_log_dir(paths: &[PathBuf]) {
    let log_dir = LogDir::open(paths, &OpenOptions::default()).unwrap();
    assert!(!log_dir.partitions().is_empty());
    for partition in log_dir.partitions() {
        let log = log_dir.log(&partition.topic, partition.partition).unwrap();
        let mut scan = log.scan(&ScanOptions::default()).unwrap();
        let mut last = log.log_start_offset().unwrap() - 1;
        while let Some(mut batch) = scan.next_batch().unwrap() {
            for record in batch.to_records().unwrap() {
                assert!(record.offset > last);
                last = record.offset;
                assert_eq!(
                    log.get(record.offset).unwrap().as_ref(),
                    Some(&record),
                    "{partition:?}"
                );
            }
        }
        assert!(scan.torn_tails().is_empty());
        assert!(last < log.log_end_offset().unwrap());
    }
}

#[test]
fn brokers_of_4_3_0() {
    check_log_dir(&[
        data("kafka-4.3.0/clean/log-dir-1"),
        data("kafka-4.3.0/clean/log-dir-2"),
    ]);
}

#[test]
fn brokers_of_2_8_2() {
    check_log_dir(&[
        data("kafka-2.8.2/broker-1"),
        data("kafka-2.8.2/broker-2"),
        data("kafka-2.8.2/broker-3"),
    ]);
}
