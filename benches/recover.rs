//! Opening for writing after an unclean end, every segment read.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a bench that cannot go on shall stop, and criterion's macros make undocumented items"
)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use offsetlog::{LogWriter, OpenOptions, WriteOptions};
use offsetlog_benches::uncompressed_log;

fn recoveries(criterion: &mut Criterion) {
    let write = WriteOptions {
        clean: Some(false),
        recovery_point: Some(0),
        ..WriteOptions::default()
    };
    for (segments, batches) in [(1, 4096), (64, 64)] {
        let path = uncompressed_log(&format!("recover-{segments}"), segments, batches, 16, 1000);
        let path = path.unwrap();
        let open = || LogWriter::open(&path, &OpenOptions::default(), &write).unwrap();
        let log = open();
        let mut group = criterion.benchmark_group(format!("recover {segments} segments"));
        group.sample_size(20);
        group.throughput(Throughput::Bytes(log.size_bytes().unwrap()));
        drop(log);
        group.bench_function("open", |bencher| bencher.iter_with_large_drop(open));
        group.finish();
    }
}

criterion_group!(benches, recoveries);
criterion_main!(benches);
