//! A broker that was killed left offsets that no segment holds, beyond the recovery point. Whoever opens that log is killed at any change
//! of the disk, and so is the next: what stands behind the gap stays, as it would have with the broker.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::{
    AppendOptions, BatchBuilder, LogConfig, LogDir, LogDirOptions, LogWriter, WriteOptions,
};
use offsetlog_faults::check::read;
use offsetlog_faults::run::{PARTITION, clock, options};
use offsetlog_faults::sim::{Names, SimDisk, World};
use std::path::Path;
use std::sync::Arc;

const PLACE: &str = "/sim/logs";

/// How a log is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// By itself, in a folder that is no log dir.
    Plain,
    /// By itself, in a log dir.
    InLogDir,
    /// Where the whole log dir is open, and its checkpoints are written later.
    Gathered,
}

/// Batches of one record at 0 and at 5, each in a segment, and nothing that says who closed the log.
fn left_by_another(how: How) -> World {
    let mut world = World::new(Names::Strict, &["/sim", PLACE]);
    if how != How::Plain {
        let meta = b"#\nversion=1\nnode.id=1\ncluster.id=AAAAAAAAQACAAAAAAAAAAA\n";
        world.put("/sim/logs/meta.properties", meta);
    }
    let disk = SimDisk::new(world);
    let write = WriteOptions {
        config: Some(LogConfig::parse([("internal.segment.bytes", "100")]).unwrap()),
        ..WriteOptions::default()
    };
    let log = LogWriter::open(
        PARTITION,
        &options(Arc::new(disk.clone()), &clock()),
        &write,
    )
    .unwrap();
    let mut batch = BatchBuilder::default();
    batch.push(1, None, Some(b"value"), &[]).unwrap();
    log.append(&mut batch, &AppendOptions::default()).unwrap();
    let first = Path::new(PARTITION).join("00000000000000000000.log");
    let mut behind = disk.world().bytes(&first).unwrap().to_vec();
    // No checksum covers where a batch begins.
    behind[..8].copy_from_slice(&5_i64.to_be_bytes());
    log.append_as_follower(&behind, 0, false).unwrap();
    log.close().unwrap();
    let mut world = disk.world();
    world.put("/sim/logs/orders-0/.offsetlog.state", b"");
    if how != How::Plain {
        let points = b"0\n1\norders 0 0\n";
        world.put("/sim/logs/recovery-point-offset-checkpoint", points);
    }
    world
}

/// Opens what `world` holds, sees that all is there, and gives the disks that a kill during the opening leaves.
fn opened(world: &World, how: How) -> Vec<World> {
    let disk = SimDisk::new(world.clone());
    let options = options(Arc::new(disk.clone()), &clock());
    let check = |log: &LogWriter| {
        let (found, error) = read(log);
        assert!(error.is_none(), "{how:?}: {error:?}");
        let bases: Vec<i64> = found.iter().map(|batch| batch.base).collect();
        let report = log.recovery_report();
        assert_eq!((bases, report.cut.len()), (vec![0, 5], 0), "{how:?}");
    };
    if how == How::Gathered {
        let log_dir =
            LogDir::open_for_append(&[PLACE], &options, &LogDirOptions::default()).unwrap();
        check(&log_dir.log_writer("orders", 0).unwrap());
        // Closed by nobody.
        std::mem::forget(log_dir);
    } else {
        let log = LogWriter::open(PARTITION, &options, &WriteOptions::default()).unwrap();
        check(&log);
        log.abandon();
    }
    let mut left = vec![world.clone()];
    for change in disk.recorded() {
        let mut next = left.last().unwrap().clone();
        next.apply(&change);
        left.push(next);
    }
    left
}

#[test]
fn a_found_gap_stays() {
    for how in [How::Plain, How::InLogDir, How::Gathered] {
        let mut ends = 0;
        for once in opened(&left_by_another(how), how) {
            for twice in opened(&once, how) {
                opened(&twice, how);
                ends += 1;
            }
        }
        assert!(ends > 20, "{how:?}: {ends} ends of two lives");
    }
}
