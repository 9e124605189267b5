//! A whole partition directory: `.log`, `.index`, `.timeindex` and `.txnindex` from hostile bytes, opened, looked into and read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offsetlog::{Isolation, Limits, Log, OpenOptions, ScanOptions};
use std::fs;

fuzz_target!(|input: (&[u8], &[u8], &[u8], &[u8])| {
    let (offset_index, time_index, txn_index, log) = input;
    let folder = tempfile::tempdir().unwrap();
    let partition = folder.path().join("fuzz-0");
    fs::create_dir(&partition).unwrap();
    for (suffix, bytes) in [
        ("log", log),
        ("index", offset_index),
        ("timeindex", time_index),
        ("txnindex", txn_index),
    ] {
        fs::write(partition.join(format!("{:020}.{suffix}", 0)), bytes).unwrap();
    }
    let options = OpenOptions {
        limits: Limits {
            max_batch_bytes: 1 << 20,
            max_decompressed_bytes: 4 << 20,
            ..Limits::default()
        },
        ..OpenOptions::default()
    };
    let Ok(log) = Log::open(&partition, &options) else {
        return;
    };
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        let _ = log.offset_for_timestamp(1_700_000_000_000, isolation);
    }
    let _ = log.last_stable_offset();
    if let Ok(end) = log.log_end_offset() {
        for offset in [0, end / 2, end.saturating_sub(1)] {
            let _ = log.get(offset);
            let _ = log.locate(offset);
        }
    }
    if let Ok(batches) = log.batches(None, None) {
        let _ = batches.take(10_000).filter(Result::is_err).count();
    }
    if let Ok(mut scan) = log.scan(&ScanOptions::default()) {
        let mut left = 100_000_u32;
        while let Ok(Some(mut batch)) = scan.next_batch() {
            while left > 0 && matches!(batch.next_record(), Ok(Some(_))) {
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
    }
});
