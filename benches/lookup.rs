//! Look-ups on warm logs: offset to record, offset to batch, time to offset.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a bench that cannot go on shall stop, and criterion's macros make undocumented items"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use offsetlog::{Isolation, Log, OpenOptions};
use offsetlog_benches::{Draws, FIRST_TIMESTAMP, kafka_log, uncompressed_log};
use std::hint::black_box;
use std::path::PathBuf;

fn logs() -> Vec<(String, PathBuf)> {
    let single = uncompressed_log("look-up-single", 16, 4096, 1, 1000).unwrap();
    let batches = uncompressed_log("look-up-batches", 16, 256, 16, 1000).unwrap();
    let mut logs = vec![
        ("none, 1 record a batch".to_owned(), single),
        ("none, 16 records a batch".to_owned(), batches),
    ];
    logs.extend(kafka_log("lookup-lz4-16384").map(|path| ("lz4, 16 KiB batches".to_owned(), path)));
    logs
}

fn look_ups(criterion: &mut Criterion) {
    for (name, path) in logs() {
        let log = Log::open(&path, &OpenOptions::default()).unwrap();
        let end = log.log_end_offset().unwrap();
        let mut draws = Draws::new(1);
        let mut group = criterion.benchmark_group(name);
        group.bench_function("offset to record", |bencher| {
            bencher.iter(|| black_box(log.get(draws.offset_below(end)).unwrap()));
        });
        group.bench_function("time to offset", |bencher| {
            bencher.iter(|| {
                let time = FIRST_TIMESTAMP + draws.offset_below(end);
                black_box(
                    log.offset_for_timestamp(time, Isolation::ReadUncommitted)
                        .unwrap(),
                )
            });
        });
        group.finish();
    }
}

criterion_group!(benches, look_ups);
criterion_main!(benches);
