//! Appends without a sync: batches that are built, batches that came built, single records.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a bench that cannot go on shall stop, and criterion's macros make undocumented items"
)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use offsetlog::format::Codec;
use offsetlog::{AppendOptions, BatchBuilder, LogWriter, OpenOptions, Producer, WriteOptions};
use offsetlog_benches::{
    FIRST_TIMESTAMP, first_batches, first_records, new_log_path, uncompressed_log,
};

/// Records between two new logs: a segment must not grow without end while criterion repeats.
const RECORDS_A_LOG: usize = 64_000;

fn new_log(name: &str) -> LogWriter {
    let path = new_log_path(name).unwrap();
    LogWriter::open(path, &OpenOptions::default(), &WriteOptions::default()).unwrap()
}

fn built(criterion: &mut Criterion) {
    for (value_bytes, per_batch, codec) in [
        (100, 1, Codec::None),
        (1000, 1, Codec::None),
        (100, 1000, Codec::None),
        (1000, 1000, Codec::None),
        (1000, 1000, Codec::Lz4),
        (1000, 1000, Codec::Zstd),
    ] {
        let source = uncompressed_log(&format!("append-{value_bytes}"), 1, 4, 1000, value_bytes);
        let records = first_records(&source.unwrap(), 4000).unwrap();
        let batches = (RECORDS_A_LOG / per_batch).min(2000);
        let mut group =
            criterion.benchmark_group(format!("append {codec}, {value_bytes} B x {per_batch}"));
        group.sample_size(10);
        group.throughput(Throughput::Elements((batches * per_batch) as u64));
        group.bench_function("build and append", |bencher| {
            let mut batch = BatchBuilder::new(codec, Producer::default());
            bencher.iter_batched(
                || new_log("append-target"),
                |log| {
                    let mut next = records.iter().cycle();
                    for _ in 0..batches {
                        for (key, value) in next.by_ref().take(per_batch) {
                            batch
                                .push(FIRST_TIMESTAMP, Some(key), Some(value), &[])
                                .unwrap();
                        }
                        log.append(&mut batch, &AppendOptions::default()).unwrap();
                    }
                    log
                },
                BatchSize::PerIteration,
            );
        });
        group.finish();
    }
}

fn follower(criterion: &mut Criterion) {
    for value_bytes in [100, 1000] {
        let source = uncompressed_log(&format!("follow-{value_bytes}"), 1, 16, 1000, value_bytes);
        let mut batches = first_batches(&source.unwrap(), 16).unwrap();
        let bytes: usize = batches.iter().map(Vec::len).sum();
        let mut group = criterion.benchmark_group(format!("follower, {value_bytes} B x 1000"));
        group.sample_size(10);
        group.throughput(Throughput::Bytes(4 * bytes as u64));
        group.bench_function("append", |bencher| {
            bencher.iter_batched(
                || new_log("follow-target"),
                |log| {
                    let mut next = 0_i64;
                    for _ in 0..4 {
                        for batch in &mut batches {
                            *batch.first_chunk_mut::<8>().unwrap() = next.to_be_bytes();
                            next = log.append_as_follower(batch, 0, false).unwrap().last_offset + 1;
                        }
                    }
                    log
                },
                BatchSize::PerIteration,
            );
        });
        group.finish();
    }
}

criterion_group!(benches, built, follower);
criterion_main!(benches);
