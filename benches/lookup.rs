//! Look-ups: offset to record, time to offset. On warm logs; and over 1, 1,000 and 10,000 segments by a reader, a reader that maps
//! everything, and a writer, which maps indexes: cold, the first look into a segment, and warm, with the memory that each took.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on shall stop, and criterion's macros make undocumented items"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use offsetlog::{Isolation, Log, LogConfig, LogWriter, OpenOptions, WriteOptions};
use offsetlog_benches::{Draws, FIRST_TIMESTAMP, densely_indexed_log, kafka_log, uncompressed_log};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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

/// Who looks up.
#[derive(Debug, Clone, Copy)]
enum By {
    Reader,
    MappedReader,
    Writer,
}

/// An open log; a writer's is given up as it is.
struct Held(Log, Option<LogWriter>);

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(writer) = &self.1 {
            writer.abandon();
        }
    }
}

impl By {
    const fn name(self) -> &'static str {
        match self {
            Self::Reader => "read",
            Self::MappedReader => "mapped by a reader, log and indexes",
            Self::Writer => "mapped by the writer, indexes",
        }
    }

    fn open(self, path: &Path) -> Held {
        let options = OpenOptions {
            mapped: matches!(self, Self::MappedReader),
            ..OpenOptions::default()
        };
        if !matches!(self, Self::Writer) {
            return Held(Log::open(path, &options).unwrap(), None);
        }
        let settings = [("index.interval.bytes", "0"), ("retention.ms", "-1")];
        let write = WriteOptions {
            config: Some(LogConfig::parse(settings).unwrap()),
            clean: Some(true),
            ..WriteOptions::default()
        };
        let writer = LogWriter::open(path, &options, &write).unwrap();
        Held(writer.log().clone(), Some(writer))
    }
}

/// Resident memory of this process in KiB: its own, and that of files it maps.
fn resident() -> (i64, i64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let words = line.and_then(|line| line.split_whitespace().next());
        words.and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    (of("RssAnon:"), of("RssFile:"))
}

fn segments(criterion: &mut Criterion) {
    // The one segment has as many entries as one of 1 GiB by Kafka's defaults.
    for (count, batches) in [(1, 262_000), (1_000, 600), (10_000, 600)] {
        let path = densely_indexed_log(&format!("look-up-{count}"), count, batches).unwrap();
        // The last segment is the active one, which is never mapped.
        drop(By::Writer.open(&path).1.as_ref().map(LogWriter::roll));
        let mut group = criterion.benchmark_group(format!("{count} segments"));
        group
            .sample_size(10)
            .measurement_time(Duration::from_secs(2));
        let end = (count * batches) as i64;
        for by in [By::Reader, By::MappedReader, By::Writer] {
            let mut draws = Draws::new(1);
            group.bench_function(format!("{}, cold", by.name()), |bencher| {
                bencher.iter_custom(|times| {
                    let (mut held, mut taken) = (by.open(&path), Duration::ZERO);
                    for time in 0..times as usize {
                        if time > 0 && time % count == 0 {
                            held = by.open(&path);
                        }
                        let base = (time % count * batches) as i64;
                        let offset = base + draws.offset_below(batches as i64);
                        let begun = Instant::now();
                        black_box(held.0.get(offset).unwrap());
                        taken += begun.elapsed();
                    }
                    taken
                });
            });
            let before = resident();
            let held = by.open(&path);
            let log = &held.0;
            for segment in 0..count {
                log.get((segment * batches) as i64 + 5).unwrap();
            }
            group.bench_function(format!("{}, warm", by.name()), |bencher| {
                bencher.iter(|| black_box(log.get(draws.offset_below(end)).unwrap()));
            });
            let by_offset = resident();
            group.bench_function(format!("{}, time to offset, warm", by.name()), |bencher| {
                bencher.iter(|| {
                    let time = FIRST_TIMESTAMP + draws.offset_below(end);
                    black_box(
                        log.offset_for_timestamp(time, Isolation::ReadUncommitted)
                            .unwrap(),
                    )
                });
            });
            let by_time = resident();
            println!(
                "{count} segments, {}: after look-ups by offset {:+} KiB of its own and {:+} KiB of mapped files, after those by time {:+} and {:+}",
                by.name(),
                by_offset.0 - before.0,
                by_offset.1 - before.1,
                by_time.0 - before.0,
                by_time.1 - before.1,
            );
        }
        group.finish();
    }
}

criterion_group!(benches, look_ups, segments);
criterion_main!(benches);
