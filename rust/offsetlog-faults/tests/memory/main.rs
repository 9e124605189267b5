//! Row 13: what reading hostile bytes may cost. Every allocation of this binary is counted; what the codecs' C code takes is seen in what
//! the process holds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a test may panic"
)]

mod bombs;

use bombs::LIMIT;
use offsetlog::{
    FetchOptions, Isolation, Limits, Log, OnCorrupt, OpenOptions, ScanOptions, VerifyOptions,
};
use offsetlog_faults::StillDisk;
use offsetlog_faults::damage::{Edit, edits};
use offsetlog_faults::golden::{Golden, LOG_DIR, TARGETS};
use offsetlog_faults::report::{Failures, Row, scaled};
use offsetlog_faults::run::{clock, options};
use peak_alloc::PeakAlloc;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Twice the largest batch that may be read, and the buffers of whoever reads.
const MOST: usize = 2 * LIMIT + (16 << 20);
/// The C library gives freed memory back late.
const MOST_HELD: usize = MOST + (16 << 20);
const BOMBS: usize = 60;
const INPUTS: usize = 10_000;
/// Of a batch of magic 2.
const HEADER_BYTES: usize = 61;

fn open_options(disk: &StillDisk) -> OpenOptions {
    OpenOptions {
        limits: Limits {
            max_batch_bytes: LIMIT as u64,
            max_decompressed_bytes: LIMIT as u64,
            max_state_file_bytes: 1 << 20,
            ..Limits::default()
        },
        ..options(Arc::new(disk.clone()), &clock())
    }
}

/// All ways to read a log, whatever comes of it.
fn read(partition: &Path, options: &OpenOptions) {
    let Ok(log) = Log::open(partition, options) else {
        return;
    };
    for (isolation, on_corrupt) in [
        (Isolation::ReadUncommitted, OnCorrupt::Raise),
        (Isolation::ReadCommitted, OnCorrupt::Skip),
    ] {
        let scan = log.scan(&ScanOptions {
            isolation,
            on_corrupt,
            ..ScanOptions::default()
        });
        let Ok(mut scan) = scan else { continue };
        while let Ok(Some(mut batch)) = scan.next_batch() {
            while let Ok(Some(record)) = batch.next_record() {
                let _ = record.headers.iter().count();
            }
        }
    }
    let _ = log.verify(&VerifyOptions::default());
    let _ = log.offset_for_timestamp(1, Isolation::ReadCommitted);
    let first = log.log_start_offset().unwrap_or(0);
    let _ = log.get(first);
    let _ = log.locate(first);
    let _ = log.fetch(first, &FetchOptions::default());
    if let Ok(batches) = log.batches(None, None) {
        let _ = batches.take_while(Result::is_ok).count();
    }
}

/// A line of `/proc/self/status` in bytes.
fn held(name: &str) -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    Some(number.parse::<usize>().ok()? << 10)
}

/// Runs `work`; what it allocated at most at a time, and, where the system tells, how much more the process held.
fn peak(work: impl FnOnce(), is_held: bool) -> (usize, usize) {
    let before = is_held
        .then(|| std::fs::write("/proc/self/clear_refs", "5").ok())
        .flatten()
        .and_then(|()| held("VmRSS"));
    let allocated = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    work();
    let most = MEMORY.peak_usage().saturating_sub(allocated);
    let more = before
        .zip(held("VmHWM"))
        .map_or(0, |(before, most)| most.saturating_sub(before));
    (most, more)
}

fn judge(seen: (usize, usize)) -> Result<(), String> {
    let (allocated, more) = seen;
    if allocated > MOST || more > MOST_HELD {
        return Err(format!(
            "{} KiB allocated of {}, {} KiB held of {}",
            allocated >> 10,
            MOST >> 10,
            more >> 10,
            MOST_HELD >> 10
        ));
    }
    Ok(())
}

#[test]
fn hostile_bytes_take_no_more_than_the_limits_allow() {
    let mut failures = Failures::default();
    bombs(&mut failures);
    changed_headers(&mut failures);
    failures.end("row-13");
}

fn bombs(failures: &mut Failures) {
    // A build without optimizations takes minutes for all of them.
    let floor = scaled(BOMBS).clamp(1, BOMBS);
    let mut row = Row::begin(13, "bombs", "memory, bombs", "bombs", floor);
    let partition = PathBuf::from(LOG_DIR).join("bomb-0");
    let log = partition.join(format!("{:020}.log", 0));
    let (mut count, mut greatest) = (0, 0);
    bombs::each(BOMBS / floor, |bomb| {
        let disk = StillDisk::new();
        disk.put(&log, &Arc::new(bomb.log.clone()));
        let options = open_options(&disk);
        let seen = peak(|| read(&partition, &options), true);
        greatest = greatest.max(seen.0);
        if let Err(error) = judge(seen) {
            failures.note(row.seed, &bomb.name, &error);
        }
        count += 1;
    });
    row.count(count);
    row.end(&format!("at most {} KiB", greatest >> 10));
}

/// Row 11's changes in the headers of the first batch of each log, and companions that say to be a terabyte.
fn changed_headers(failures: &mut Failures) {
    let mut row = Row::begin(13, "headers", "memory", "inputs", INPUTS);
    let mut rng = fastrand::Rng::with_seed(row.seed);
    let mut greatest = 0;
    let mut damaged = Vec::new();
    for &(log_dir, partition, bases, file, _) in TARGETS {
        let golden = Golden::load(log_dir, partition, bases);
        let disk = StillDisk::new();
        for (path, bytes) in &golden.files {
            disk.put(path, bytes);
        }
        let options = open_options(&disk);
        let (path, bytes) = &golden.files[golden.file(file)];
        let mut check = |what: &dyn std::fmt::Display, row: &mut Row| {
            let seen = peak(|| read(&golden.partition, &options), false);
            greatest = greatest.max(seen.0);
            if let Err(error) = judge(seen) {
                let case = format!("{log_dir}/{partition} {file}: {what}");
                failures.note(row.seed, &case, &error);
            }
            row.count(1);
        };
        if file.ends_with(".log") {
            for edit in edits(&bytes[..HEADER_BYTES.min(bytes.len())], 1, 1, &mut rng) {
                if matches!(edit, Edit::Set { .. }) {
                    edit.apply(bytes, &mut damaged);
                    disk.put(path, &Arc::new(damaged.clone()));
                    check(&edit, &mut row);
                }
            }
        } else {
            disk.put_sparse(path, bytes, 1 << 40);
            check(&"a terabyte", &mut row);
        }
    }
    row.end(&format!("at most {} KiB", greatest >> 10));
}
