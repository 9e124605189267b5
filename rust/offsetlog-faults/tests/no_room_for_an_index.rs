//! A disk without room for an index: what recovery took away is told, and the log dir is not called clean with a file less than a broker
//! goes by.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::disk::RealDisk;
use offsetlog::format::Codec;
use offsetlog::{
    AppendOptions, BatchBuilder, LogConfig, LogWriter, OpenOptions, Producer, WriteOptions,
};
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NO_SPACE: i32 = 28;
const NEWEST: i64 = 1_700_000_000_000 + 39;

/// A broker's log dir, stopped cleanly, with one partition of 40 records whose time index is `wrong`.
fn stopped(folder: &Path, wrong: &[u8]) -> PathBuf {
    let meta = "version=1\ncluster.id=b2Zmc2V0bG9nLXRlc3RzLWM\nnode.id=1\n";
    fs::write(folder.join("meta.properties"), meta).unwrap();
    fs::write(
        folder.join(".kafka_cleanshutdown"),
        "{\"version\":0,\"brokerEpoch\":7}",
    )
    .unwrap();
    let partition = folder.join("t-0");
    let config = LogConfig::parse([("index.interval.bytes", "100")]).unwrap();
    let write = WriteOptions {
        config: Some(config),
        ..WriteOptions::default()
    };
    let log = LogWriter::open(&partition, &OpenOptions::default(), &write).unwrap();
    for number in 0..40 {
        let mut batch = BatchBuilder::new(Codec::None, Producer::default());
        let time = 1_700_000_000_000 + number;
        batch.push(time, None, Some(&[7; 100]), &[]).unwrap();
        log.append(&mut batch, &AppendOptions::default()).unwrap();
    }
    log.close().unwrap();
    fs::write(time_index(&partition), wrong).unwrap();
    partition
}

fn time_index(partition: &Path) -> PathBuf {
    partition.join(format!("{:020}.timeindex", 0))
}

/// Opens it while nothing called a time index can be written.
fn opened(partition: &Path) -> (LogWriter, FaultDisk) {
    let plan = Plan {
        kinds: |call, path| call.is_change() && call != Call::Unlink && path.contains("timeindex"),
        nth: 1,
        lasting: Lasting::FromThenOn,
        error: NO_SPACE,
        ..Plan::none()
    };
    let disk = FaultDisk::new(Arc::new(RealDisk), plan);
    let options = OpenOptions {
        disk: Arc::new(disk.clone()),
        ..OpenOptions::default()
    };
    let write = WriteOptions::default();
    (LogWriter::open(partition, &options, &write).unwrap(), disk)
}

#[test]
fn an_index_that_was_removed_is_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let partition = stopped(folder.path(), &[9; 24]);
    let (log, disk) = opened(&partition);
    let report = log.recovery_report();
    assert!(!time_index(&partition).exists());
    assert!(report.is_changed());
    assert!(report.tidied[0].contains(".timeindex: removed"));
    assert!(report.warnings.iter().any(|line| line.contains("no room")));
    // There is room when it is closed: a broker that finds the mark finds the newest timestamp.
    disk.set(Plan::none());
    log.close().unwrap();
    let index = fs::read(time_index(&partition)).unwrap();
    let last = index.rchunks(12).next().unwrap();
    assert_eq!(i64::from_be_bytes(last[..8].try_into().unwrap()), NEWEST);
}
