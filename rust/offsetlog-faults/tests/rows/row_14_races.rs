//! Row 14: a writer and readers in one process.
//!
//! Three parts. The engine's own `LiveOffsets`, compiled with loom's locks and atomics, in every interleaving of one writer that publishes
//! and rolls as the appender does and two readers. Its `Commits` likewise, with callers who append and share syncs. And the whole log over a simulated disk whose calls let other threads go first
//! at places that differ with the seed: many schedules, not all.

use offsetlog::{AppendOptions, BatchBuilder, LogWriter, WriteOptions};
use offsetlog_faults::check::read;
use offsetlog_faults::report::{Failures, Row, scaled};
use offsetlog_faults::run::{PARTITION, clock, config, fresh, options};
use offsetlog_faults::script::Script;
use offsetlog_faults::sim::SimDisk;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

#[allow(dead_code, unreachable_pub, reason = "the engine uses more of it")]
mod ends {
    include!(concat!(env!("OUT_DIR"), "/live_offsets.rs"));
}

#[allow(dead_code, unreachable_pub, reason = "the engine uses more of it")]
mod commits {
    include!(concat!(env!("OUT_DIR"), "/group_commit.rs"));
}

/// Bytes and records of each batch in the model.
const BYTES: u64 = 100;

/// What the appender does around a batch and a roll, in its order: bytes, how many of them readers may see, the end; then a new
/// segment.
fn write(ends: &ends::LiveOffsets, written: &loom::sync::atomic::AtomicU64) {
    written.store(BYTES, loom::sync::atomic::Ordering::Release);
    ends.set_active(0, BYTES);
    ends.set_log_end(1);
    ends.set_active(1, 0);
    ends.raise_recovery_point(1);
}

fn look(ends: &ends::LiveOffsets, written: &loom::sync::atomic::AtomicU64) {
    let durable = ends.recovery_point();
    let end = ends.log_end();
    let shown = ends.written(0);
    let on_disk = written.load(loom::sync::atomic::Ordering::Acquire);
    assert!(durable <= end, "durable beyond the end");
    // A segment that is no longer the active one is shown whole.
    let shown = shown.unwrap_or(on_disk);
    assert!(shown <= on_disk, "bytes are shown that were not written");
    assert!(
        end == 0 || shown == BYTES,
        "an end is told whose bytes are not shown"
    );
}

#[test]
fn what_is_published_is_written() {
    let mut row = Row::begin(
        14,
        "loom",
        "races in one process: loom",
        "interleavings",
        100,
    );
    let count = Arc::new(AtomicI64::new(0));
    for readers in [1, 2] {
        let counted = Arc::clone(&count);
        let mut model = loom::model::Builder::new();
        // All interleavings of a writer and a reader; of two readers those with at most two switches that nobody waits for.
        model.preemption_bound = (readers > 1).then_some(2);
        model.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let ends = loom::sync::Arc::new(ends::LiveOffsets::default());
            let written = loom::sync::Arc::new(loom::sync::atomic::AtomicU64::new(0));
            let looking: Vec<_> = (0..readers)
                .map(|_| {
                    let (ends, written) = (ends.clone(), written.clone());
                    loom::thread::spawn(move || look(&ends, &written))
                })
                .collect();
            write(&ends, &written);
            for reader in looking {
                reader.join().unwrap();
            }
        });
    }
    row.count(count.load(Ordering::Relaxed) as usize);
    row.end(&"one reader: all; two: all with at most two preemptions");
}

/// What callers of one log share: the lock of the writer with the end of the log, what is durable, and who syncs.
#[derive(Default)]
struct Writer {
    end: loom::sync::Mutex<i64>,
    durable: loom::sync::atomic::AtomicI64,
    /// The first sync fails, after which none is tried.
    fails: bool,
    failed: loom::sync::atomic::AtomicBool,
    commits: commits::Commits,
}

impl Writer {
    /// An append that is durable when it returns, or fails, as the engine does both.
    fn append(&self) -> bool {
        let target = {
            let mut end = self.end.lock().unwrap();
            *end += 1;
            *end
        };
        self.commit(Some(target))
    }

    /// What the sync behind a roll does: all that was appended is durable, and nobody was woken.
    fn settle(&self) {
        let end = self.end.lock().unwrap();
        self.durable
            .fetch_max(*end, loom::sync::atomic::Ordering::AcqRel);
    }

    /// `LogWriter::commit`, step by step. A caller without target wants everything to be durable.
    fn commit(&self, target: Option<i64>) -> bool {
        let acquire = loom::sync::atomic::Ordering::Acquire;
        let mut is_next = false;
        loop {
            let end = self.end.lock().unwrap();
            let wanted = target.unwrap_or(*end);
            let is_durable = self.durable.load(acquire) >= wanted;
            let done = if self.failed.load(acquire) {
                Some(false)
            } else {
                is_durable.then_some(true)
            };
            if let Some(done) = done {
                drop(end);
                if is_next {
                    self.commits.pass_on();
                }
                return done;
            }
            if self.commits.lead(*end) {
                let reached = *end;
                drop(end);
                if self.fails {
                    self.failed
                        .store(true, loom::sync::atomic::Ordering::Release);
                } else {
                    self.durable
                        .fetch_max(reached, loom::sync::atomic::Ordering::AcqRel);
                }
                self.commits.finish(self.fails);
                return !self.fails;
            }
            drop(end);
            is_next = !self.commits.wait_for(target);
        }
    }
}

#[test]
fn everybody_is_woken_when_it_is_durable() {
    let mut row = Row::begin(
        14,
        "commits",
        "races in one process: commits",
        "interleavings",
        1000,
    );
    let count = Arc::new(AtomicI64::new(0));
    for fails in [false, true] {
        let counted = Arc::clone(&count);
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        // Loom tells of callers who wait for ever.
        model.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let writer = loom::sync::Arc::new(Writer {
                fails,
                ..Writer::default()
            });
            let callers: Vec<_> = (0..3)
                .map(|_| {
                    let writer = writer.clone();
                    loom::thread::spawn(move || writer.append())
                })
                .collect();
            // A flush, or what a roll's own sync does: all that was appended is durable without a commit.
            if fails {
                writer.commit(None);
            } else {
                writer.settle();
            }
            writer.commits.wait();
            for caller in callers {
                assert_eq!(caller.join().unwrap(), !fails);
            }
            assert!(writer.commits.is_idle());
            let durable = writer.durable.load(loom::sync::atomic::Ordering::Acquire);
            assert_eq!(durable, if fails { 0 } else { 3 });
        });
    }
    row.count(count.load(Ordering::Relaxed) as usize);
    row.end(&"three callers and a flush or a roll, with at most two preemptions");
}

/// What a reader may find: whole batches in order, up to an end that never goes back, and everything below the end it was told.
fn watch(log: &LogWriter, done: &AtomicBool) -> Result<(), String> {
    let mut last_end = 0;
    loop {
        let is_last = done.load(Ordering::SeqCst);
        let end = log.log_end_offset().map_err(|error| error.to_string())?;
        if end < last_end {
            return Err(format!("the end went back from {last_end} to {end}"));
        }
        last_end = end;
        if end > 0 {
            match log.get(end - 1) {
                Ok(Some(_)) => {}
                other => {
                    return Err(format!(
                        "offset {} below the published end: {other:?}",
                        end - 1
                    ));
                }
            }
        }
        let (found, error) = read(log);
        if let Some(error) = error {
            return Err(format!("reading: {error}"));
        }
        let mut next = 0;
        for batch in &found {
            if batch.base != next {
                return Err(format!("{batch:?} where {next} should be"));
            }
            next = batch.last + 1;
        }
        if next < end {
            return Err(format!(
                "the end {end} was told, {next} is where reading ended"
            ));
        }
        if is_last {
            return Ok(());
        }
    }
}

fn schedule(seed: u64) -> Result<(), String> {
    let script: Script =
        "strict=false stale=false log_dir=false segment=600 index=24 interval=0 preallocate=false late=false:"
            .parse()?;
    let disk = SimDisk::new(fresh(&script));
    let write = WriteOptions {
        config: Some(config(&script)),
        ..WriteOptions::default()
    };
    let log = LogWriter::open(
        PARTITION,
        &options(Arc::new(disk.clone()), &clock()),
        &write,
    )
    .map_err(|error| error.to_string())?;
    disk.shake(seed);
    let done = AtomicBool::new(false);
    let mut rng = fastrand::Rng::with_seed(seed);
    let outcome = std::thread::scope(|scope| {
        let readers = [(); 2].map(|()| scope.spawn(|| watch(&log, &done)));
        let mut appended = Ok(());
        for number in 0..6_u8 {
            let mut batch = BatchBuilder::default();
            for _ in 0..=rng.u8(0..3) {
                let value = vec![number; rng.usize(0..150)];
                batch
                    .push(1_700_000_100_000, None, Some(&value), &[])
                    .expect("a record");
            }
            let append = AppendOptions {
                flush: rng.u8(0..3) == 0,
                ..AppendOptions::default()
            };
            appended = appended.and_then(|()| log.append(&mut batch, &append).map(drop));
            if rng.u8(0..4) == 0 {
                appended = appended.and_then(|()| log.roll().map(drop));
            }
        }
        done.store(true, Ordering::SeqCst);
        let watched = readers.map(|reader| reader.join().expect("a reader"));
        appended.map_err(|error| error.to_string())?;
        watched.into_iter().collect::<Result<(), String>>()
    });
    disk.shake(0);
    log.close().map_err(|error| error.to_string())?;
    outcome
}

#[test]
fn readers_see_whole_acknowledged_batches() {
    let mut row = Row::begin(
        14,
        "schedules",
        "races in one process",
        "interleavings",
        scaled(3_000),
    );
    let mut failures = Failures::default();
    let mut seeds = fastrand::Rng::with_seed(row.seed);
    while row.goes_on() {
        let seed = seeds.u64(..);
        if let Err(error) = schedule(seed) {
            failures.note(row.seed, &seed, &error);
        }
        row.count(1);
    }
    failures.end("row-14");
    row.end(&"schedules drawn at random, by real threads");
}
