//! Scans: headers, checksums, records; owned buffers and mapped files.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a bench that cannot go on shall stop, and criterion's macros make undocumented items"
)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use offsetlog::{Log, OpenOptions, ScanOptions};
use offsetlog_benches::{kafka_log, uncompressed_log};
use std::hint::black_box;
use std::path::PathBuf;

fn touch_records(log: &Log) -> u64 {
    let mut scan = log.scan(&ScanOptions::default()).unwrap();
    let mut bytes = 0;
    while let Some(mut batch) = scan.next_batch().unwrap() {
        while let Some(record) = batch.next_record().unwrap() {
            bytes += record.value.map_or(0, <[u8]>::len) as u64;
        }
    }
    bytes
}

fn touch_batches(log: &Log) -> u64 {
    let mut scan = log.scan(&ScanOptions::default()).unwrap();
    let mut bytes = 0;
    while let Some(batch) = scan.next_batch().unwrap() {
        bytes += batch.header().size_bytes as u64;
    }
    bytes
}

fn logs() -> Vec<(String, PathBuf)> {
    let mut logs = Vec::new();
    for (value_bytes, records) in [(100, 546), (1000, 64), (10_000, 6)] {
        let name = format!("none-{value_bytes}");
        let batches = (16 << 20) / (records * value_bytes);
        logs.push((
            name.clone(),
            uncompressed_log(&name, 1, batches, records, value_bytes).unwrap(),
        ));
    }
    for codec in ["lz4", "zstd", "snappy", "gzip"] {
        logs.extend(
            kafka_log(&format!("scan-{codec}-1000")).map(|path| (format!("{codec}-1000"), path)),
        );
    }
    logs
}

fn scans(criterion: &mut Criterion) {
    for (name, path) in logs() {
        for mapped in [false, true] {
            let options = OpenOptions {
                mapped,
                ..OpenOptions::default()
            };
            let log = Log::open(&path, &options).unwrap();
            let how = if mapped { "mapped" } else { "owned" };
            let mut group = criterion.benchmark_group(format!("{name}, {how}"));
            group.throughput(Throughput::Bytes(log.size_bytes().unwrap()));
            group.bench_function("headers", |bencher| {
                bencher.iter(|| black_box(log.batches(None, None).unwrap().count()));
            });
            group.bench_function("checksums", |bencher| {
                bencher.iter(|| black_box(touch_batches(&log)));
            });
            group.bench_function("records", |bencher| {
                bencher.iter(|| black_box(touch_records(&log)));
            });
            group.finish();
        }
    }
}

criterion_group!(benches, scans);
criterion_main!(benches);
