//! Samples that fail.

use super::*;
use crate::restore::RestoreOptions;
use offsetlog::disk::RealDisk;
use offsetlog::{AppendOptions, BatchBuilder, LogWriter, OpenOptions, WriteOptions};
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};
use std::path::Path;
use std::sync::Arc;

/// Segments of a log, and bytes of each, which no disk has to read: to read them all takes more than a second on any machine.
const SEGMENTS: usize = 20;
const BYTES: u64 = 2_000_000_000;

/// A log whose segments have as many zeros, and a last one that is sound.
fn log(folder: &Path, topic: &str) {
    let path = folder.join(topic);
    let log = LogWriter::open(&path, &OpenOptions::default(), &WriteOptions::default()).unwrap();
    for _ in 0..=SEGMENTS {
        let mut batch = BatchBuilder::default();
        batch.push(1, None, Some(b"value"), &[]).unwrap();
        log.append(&mut batch, &AppendOptions::default()).unwrap();
        log.roll().unwrap();
    }
    log.close().unwrap();
    for base in 0..SEGMENTS {
        let path = path.join(format!("{base:020}.log"));
        let file = std::fs::OpenOptions::new().write(true).open(path);
        file.unwrap().set_len(BYTES).unwrap();
    }
}

fn plan(folder: &Path, options: &OpenOptions) -> RestorePlan {
    for topic in ["bad-0", "good-0"] {
        log(folder, topic);
    }
    let into = folder.with_extension("new");
    RestorePlan::make(&[folder], &[into], &RestoreOptions::default(), options).unwrap()
}

#[test]
fn a_sample_that_fails_late_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new(Arc::new(RealDisk), Plan::none());
    let options = OpenOptions {
        disk: Arc::new(disk.clone()),
        ..OpenOptions::default()
    };
    let plan = plan(folder.path(), &options);
    // The system tries again and again, and gives up.
    let late = Duration::from_millis(200);
    disk.set(Plan {
        kinds: |call, path| call == Call::Read && path.contains("bad-0"),
        nth: 1,
        lasting: Lasting::FromThenOn,
        ..Plan::none()
    });
    disk.before(1, move || std::thread::sleep(late));
    let seconds = plan.reading_seconds_min().unwrap();
    assert!(!disk.failed().is_empty());
    // As if the eight MiB of the other one had taken that time.
    let samples = plan.bytes() / SAMPLE_BYTES as u64;
    let with_it = late.as_millis() * u128::from(samples) / 1000;
    assert!(u128::from(seconds) < with_it / 2, "{seconds} s");
}
