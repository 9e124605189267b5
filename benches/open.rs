//! Opening a partition directory of many segments, to the point where its end is known.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a bench that cannot go on shall stop, and criterion's macros make undocumented items"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use offsetlog::{Log, OpenOptions};
use offsetlog_benches::uncompressed_log;
use std::hint::black_box;

fn opens(criterion: &mut Criterion) {
    for segments in [1, 100, 1000] {
        let path = uncompressed_log(&format!("open-{segments}"), segments, 4, 4, 1000).unwrap();
        criterion.bench_function(&format!("open {segments} segments"), |bencher| {
            bencher.iter(|| {
                let log = Log::open(&path, &OpenOptions::default()).unwrap();
                black_box(log.log_end_offset().unwrap())
            });
        });
    }
}

criterion_group!(benches, opens);
criterion_main!(benches);
