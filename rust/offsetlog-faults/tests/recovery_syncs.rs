//! What a recovery wrote is durable when it ends, whatever it left for its end; and what was right it leaves alone.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::disk::Disk;
use offsetlog::{LogConfig, LogWriter, OpenOptions, RecoverOptions, Result, WriteOptions, recover};
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};
use offsetlog_faults::sim::{Change, Cut, Fill, Names, Node, SimDisk, World, name};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PARTITION: &str = "/sim/logs/g-txn-1";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/kafka-4.3.0/clean/log-dir-2/g-txn-1")
}

fn is_segment(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|of| of == "log")
}

/// A disk with a partition of a broker that was killed: the files that `is_there` takes.
fn killed(is_there: impl Fn(&str) -> bool) -> World {
    let mut world = World::new(Names::Journal, &["/sim", "/sim/logs", PARTITION]);
    for entry in std::fs::read_dir(golden()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if is_there(&name) {
            let bytes = std::fs::read(entry.path()).unwrap();
            world.put(&format!("{PARTITION}/{name}"), &bytes);
        }
    }
    world
}

fn options(disk: Arc<dyn Disk>) -> OpenOptions {
    OpenOptions {
        disk,
        clock: Arc::new(|| 1_700_000_000_000),
        ..OpenOptions::default()
    }
}

fn open(disk: &SimDisk) -> Result<LogWriter> {
    open_on(Arc::new(disk.clone()))
}

fn open_on(disk: Arc<dyn Disk>) -> Result<LogWriter> {
    let write = WriteOptions {
        config: Some(LogConfig::parse([("index.interval.bytes", "512")]).unwrap()),
        ..WriteOptions::default()
    };
    LogWriter::open(PARTITION, &options(disk), &write)
}

/// The files beside the segments.
fn beside(world: &World) -> BTreeMap<PathBuf, Vec<u8>> {
    let is_beside = |path: &Path| {
        path.extension()
            .is_some_and(|of| of == "snapshot" || of.to_string_lossy().ends_with("index"))
    };
    let files = world.files().filter(|(path, _)| is_beside(path));
    files
        .map(|(path, bytes)| (path.to_path_buf(), bytes.to_vec()))
        .collect()
}

/// The disk when power is lost: nothing is left that was not synced.
fn lost(disk: &SimDisk, seed: u64) -> World {
    let rng = &mut fastrand::Rng::with_seed(seed);
    disk.world().crash(Cut::Nothing, Fill::Zeros, rng)
}

/// A power failure behind the recovery takes nothing that it wrote, of each index and each snapshot.
#[test]
fn what_a_recovery_wrote_is_durable() {
    let disk = SimDisk::new(killed(is_segment));
    let log = open(&disk).unwrap();
    let written = beside(&disk.world());
    let count = |suffix: &str| {
        let is_one = |path: &&PathBuf| path.to_string_lossy().ends_with(suffix);
        written.keys().filter(is_one).count()
    };
    assert_eq!((count(".index"), count(".timeindex")), (3, 3));
    assert_eq!((count(".txnindex"), count(".snapshot")), (2, 3));
    assert_eq!(beside(&lost(&disk, 1)), written);
    drop(log);
}

/// A second recovery finds the snapshots right and touches none; one that a killed writer damaged, and one of no segment, are replaced and
/// deleted.
#[test]
fn right_snapshots_stay() {
    let disk = SimDisk::new(killed(is_segment));
    drop(open(&disk).unwrap());
    let first = beside(&disk.world());
    let mut world = killed(is_segment);
    for (path, bytes) in &first {
        world.put(path.to_str().unwrap(), bytes);
    }
    let again = SimDisk::new(world.clone());
    drop(open(&again).unwrap());
    let is_of_snapshot = |change: &Change| format!("{change:?}").contains(".snapshot");
    let changes: Vec<_> = again
        .recorded()
        .into_iter()
        .filter(is_of_snapshot)
        .collect();
    assert!(changes.is_empty(), "{changes:?}");
    let snapshot = |offset: i64| format!("{PARTITION}/{offset:020}.snapshot");
    let mut damaged = first[Path::new(&snapshot(50))].clone();
    *damaged.last_mut().unwrap() ^= 1;
    world.put(&snapshot(50), &damaged);
    world.put(&snapshot(64), &first[Path::new(&snapshot(50))]);
    let mended = SimDisk::new(world);
    let log = open(&mended).unwrap();
    assert_eq!(beside(&mended.world()), first);
    drop(log);
}

/// Opening that is refused, because bytes that are no batch have batches behind them, leaves the snapshots behind them as they were.
#[test]
fn a_refused_opening_deletes_no_snapshot() {
    let mut world = killed(|_| true);
    let path = format!("{PARTITION}/00000000000000000002.log");
    let mut bytes = world.bytes(Path::new(&path)).unwrap().to_vec();
    bytes[70] ^= 1;
    world.put(&path, &bytes);
    let disk = SimDisk::new(world.clone());
    assert!(open(&disk).is_err());
    let left = beside(&disk.world());
    for path in beside(&world).keys() {
        assert!(left.contains_key(path), "{}", path.display());
    }
}

/// A sync fails in the recovery, which says so. The second opening, of the same system, closes the log; then power is lost.
#[test]
fn a_failed_sync_is_not_forgotten() {
    let bare = || SimDisk::new(killed(is_segment));
    let disk = bare();
    open(&disk).unwrap().close().unwrap();
    let right = beside(&disk.world());
    let mut failed = 0;
    for nth in 1.. {
        let disk = bare();
        let plan = Plan {
            kinds: |call, name| call == Call::Sync && !name.starts_with('.'),
            nth,
            lasting: Lasting::Once,
            error: 5,
            ..Plan::none()
        };
        let faults = FaultDisk::over(&disk, plan);
        let first = open_on(Arc::new(faults.clone()));
        if faults.failed().is_empty() {
            break;
        }
        failed += 1;
        assert!(first.is_err());
        drop(first);
        open(&disk).unwrap().close().unwrap();
        let third = SimDisk::new(lost(&disk, 1));
        open(&third).unwrap().close().unwrap();
        assert_eq!(beside(&third.world()), right, "{:?}", faults.failed());
    }
    assert!(failed >= 11, "{failed}");
}

/// `recover` of a log that was closed, and lacks an index. Power is lost in it, at any time; an opening behind that is right.
#[test]
fn power_lost_in_recover_leaves_no_index_that_is_trusted() {
    let disk = SimDisk::new(killed(is_segment));
    open(&disk).unwrap().close().unwrap();
    let right = beside(&disk.world());
    for gone in right.keys().filter(|path| {
        path.ends_with("00000000000000000000.timeindex")
            || path.ends_with("00000000000000000002.index")
    }) {
        let mut world = disk.world();
        let Some(Node::File(inode)) = world.node(gone) else {
            panic!("{}", gone.display());
        };
        world.apply(&Change::Unlink {
            path: name(gone),
            inode,
        });
        world.apply(&Change::SyncDirectory {
            path: name(Path::new(PARTITION)),
        });
        let recovered = SimDisk::new(world.clone());
        recover(
            PARTITION,
            &options(Arc::new(recovered.clone())),
            &RecoverOptions::default(),
        )
        .unwrap();
        for change in recovered.recorded() {
            world.apply(&change);
            for seed in 0..3 {
                let rng = &mut fastrand::Rng::with_seed(seed);
                let next = SimDisk::new(world.crash(Cut::Random, Fill::Zeros, rng));
                open(&next).unwrap().close().unwrap();
                assert_eq!(beside(&next.world()), right, "{change:?}");
            }
        }
    }
}
