//! Logs that are asked as they are opened, and change under that: the answer is of one state all the same.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::{
    AppendOptions, BatchBuilder, Log, LogDir, LogWriter, OpenOptions, TopicPartition, WriteOptions,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn segment(partition: &Path, base: i64) -> PathBuf {
    partition.join(format!("{base:020}.log"))
}

/// Two segments of three records in batches of one.
fn log(partition: &Path) {
    let log =
        LogWriter::open(partition, &OpenOptions::default(), &WriteOptions::default()).unwrap();
    for number in 0..6 {
        if number == 3 {
            log.roll().unwrap();
        }
        let mut batch = BatchBuilder::default();
        batch
            .push(1_700_000_000_000, None, Some(b"value"), &[])
            .unwrap();
        log.append(&mut batch, &AppendOptions::default()).unwrap();
    }
    log.close().unwrap();
}

/// As a roll of another process leaves it, and then a compaction. No state has the new first segment and not the third one.
fn change(partition: &Path) {
    let bytes = fs::read(segment(partition, 3)).unwrap();
    let mut third = bytes[..bytes.len() / 3].to_vec();
    third[..8].copy_from_slice(&6_i64.to_be_bytes());
    fs::write(segment(partition, 6), third).unwrap();
    let first = fs::read(segment(partition, 0)).unwrap();
    let swap = partition.join("new");
    fs::write(&swap, &first[first.len() / 3..]).unwrap();
    fs::rename(swap, segment(partition, 0)).unwrap();
}

#[test]
fn a_log_that_changes_while_it_is_asked_is_looked_at_again() {
    let folder = tempfile::tempdir().unwrap();
    let partitions = [folder.path().join("t-0"), folder.path().join("t-1")];
    for partition in &partitions {
        log(partition);
    }
    // Until the directories are old enough for the next change to show.
    std::thread::sleep(Duration::from_millis(100));
    let log_dir = LogDir::open(&[folder.path()], &OpenOptions::default()).unwrap();
    let asked = AtomicU32::new(0);
    let ask = |log: &Log| {
        if log.partition() == 1 && asked.fetch_add(1, Ordering::Relaxed) == 0 {
            change(log.path());
        }
        Ok((
            log.size_bytes()?,
            log.segments()?.len(),
            log.log_end_offset()?,
        ))
    };
    let wanted: Vec<TopicPartition> = log_dir.partitions();
    let answers = log_dir.logs_with(&wanted, 1, ask);
    assert_eq!(answers.len(), 2);
    for ((partition, found), (segments, end)) in
        partitions.iter().zip(answers).zip([(2, 6), (3, 7)])
    {
        let sizes = fs::read_dir(partition).unwrap().map(|entry| entry.unwrap());
        let sizes = sizes.filter(|entry| entry.path().extension().is_some_and(|end| end == "log"));
        let sum: u64 = sizes.map(|entry| entry.metadata().unwrap().len()).sum();
        let (_, answer) = found.unwrap();
        assert_eq!(answer, (sum, segments, end), "{}", partition.display());
    }
    assert!(asked.into_inner() > 0);
}
