//! A compaction whose output cannot take its place: whatever fails on the way, and however often, the log that is opened next has all files
//! of the old segment or all of the new one.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a test may panic"
)]

use offsetlog::disk::{Access, Disk};
use offsetlog::format::Codec;
use offsetlog::{
    AppendOptions, BatchBuilder, CompactOptions, LogConfig, LogWriter, MarkerOptions, Producer,
    WriteOptions,
};
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};
use offsetlog_faults::run::{PARTITION, clock, options};
use offsetlog_faults::sim::{Cut, Fill, Names, SimDisk, World};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The files of the first segment, by their endings.
type Files = BTreeMap<&'static str, Vec<u8>>;

fn open(disk: Arc<dyn Disk>) -> LogWriter {
    let settings = [
        ("cleanup.policy", "compact"),
        ("internal.segment.bytes", "4000"),
        ("index.interval.bytes", "100"),
        ("segment.index.bytes", "600"),
    ];
    let write = WriteOptions {
        config: Some(LogConfig::parse(settings).unwrap()),
        ..WriteOptions::default()
    };
    LogWriter::open(PARTITION, &options(disk, &clock()), &write).unwrap()
}

fn append(log: &LogWriter, number: i64, producer: Producer) {
    let mut batch = BatchBuilder::new(Codec::None, producer);
    let key = [u8::try_from(number % 7).unwrap()];
    batch
        .push(1_000 + number, Some(&key), Some(&[7; 90]), &[])
        .unwrap();
    log.append(&mut batch, &AppendOptions::default()).unwrap();
}

/// A log with a segment to compact. `aborted`: of an aborted transaction too.
fn filled(aborted: bool) -> World {
    let disk = SimDisk::new(World::new(Names::Strict, &["/sim", "/sim/logs"]));
    let log = open(Arc::new(disk.clone()));
    if aborted {
        let producer = Producer {
            producer_id: 9,
            producer_epoch: 0,
            base_sequence: 0,
            is_transactional: true,
        };
        append(&log, 0, producer);
        let marker = MarkerOptions {
            producer_id: 9,
            producer_epoch: 0,
            commit: false,
            coordinator_epoch: 0,
            timestamp: Some(1_000),
            transaction_version: 0,
        };
        log.append_marker(&marker, &AppendOptions::default())
            .unwrap();
    }
    for number in 0..20 {
        append(&log, number, Producer::default());
    }
    log.roll().unwrap();
    log.close().unwrap();
    disk.world()
}

fn first_segment(world: &World) -> Files {
    let mut files = Files::new();
    for ending in ["log", "index", "timeindex", "txnindex"] {
        let path = format!("{PARTITION}/{:020}.{ending}", 0);
        if let Some(bytes) = world.bytes(Path::new(&path)) {
            files.insert(ending, bytes.to_vec());
        }
    }
    files
}

/// Opens what is left, and gives the first segment.
fn reopened(world: &World) -> Files {
    let disk = SimDisk::new(world.clone());
    let log = open(Arc::new(disk.clone()));
    assert!(log.recovery_report().cut.is_empty());
    log.abandon();
    let world = disk.world();
    for (path, _) in world.files() {
        let name = path.to_str().unwrap();
        assert!(
            !name.ends_with(".swap") && !name.ends_with(".cleaned"),
            "{name}"
        );
    }
    first_segment(&world)
}

/// Whether all files are old, or all are new. Opening makes the indexes of a new segment again where it completes the swap.
fn is_one(files: &Files, old: &Files, new: &Files) -> bool {
    if files.get("log") == old.get("log") {
        return files == old;
    }
    files.get("log") == new.get("log") && files.get("index") != old.get("index")
}

#[test]
fn the_files_of_a_segment_stay_together_whatever_fails() {
    let kinds: [fn(Call, &str) -> bool; 4] = [
        |call, _| call == Call::Rename,
        |call, path| {
            call == Call::Rename && (path.ends_with(".log.swap") || path.ends_with(".cleaned"))
        },
        |call, path| {
            call == Call::Rename && (path.ends_with(".log.swap") || path.ends_with("index.cleaned"))
        },
        |call, path| {
            call == Call::SyncDirectory || call == Call::Rename && path.ends_with(".cleaned")
        },
    ];
    let mut failed = 0;
    for aborted in [false, true] {
        let before = filled(aborted);
        let old = first_segment(&before);
        let whole = SimDisk::new(before.clone());
        let log = open(Arc::new(whole.clone()));
        log.compact(&CompactOptions::default()).unwrap();
        let new = first_segment(&whole.world());
        assert!(old["log"] != new["log"] && old["index"] != new["index"]);
        assert!(old.contains_key("txnindex") == aborted);
        for kinds in kinds {
            for lasting in [Lasting::Once, Lasting::FromThenOn] {
                for nth in 1.. {
                    let sim = SimDisk::new(before.clone());
                    let disk = FaultDisk::over(&sim, Plan::none());
                    let log = open(Arc::new(disk.clone()));
                    let start = sim.world();
                    let first = sim.changes();
                    disk.set(Plan {
                        kinds,
                        nth,
                        lasting,
                        ..Plan::none()
                    });
                    let done = log.compact(&CompactOptions::default());
                    log.abandon();
                    if disk.failed().is_empty() {
                        done.unwrap();
                        break;
                    }
                    failed += 1;
                    let told = format!("{nth}, {lasting:?}: {:?}", disk.failed());
                    let files = reopened(&sim.world());
                    assert!(is_one(&files, &old, &new), "{told}");
                    // And if the power went at any moment.
                    let mut world = start;
                    let mut rng = fastrand::Rng::with_seed(nth);
                    for change in &sim.recorded()[first..] {
                        world.apply(change);
                        for cut in [Cut::Process, Cut::Nothing, Cut::Random, Cut::Random] {
                            let files = reopened(&world.crash(cut, Fill::Zeros, &mut rng));
                            assert!(is_one(&files, &old, &new), "{told}, {cut:?}");
                        }
                    }
                }
            }
        }
    }
    println!("{failed} compactions failed");
}

/// What an earlier compaction left: the next one has no such file to put in its place.
#[test]
fn an_old_transaction_index_does_not_make_the_output_unfinished() {
    let before = filled(false);
    let old = first_segment(&before);
    let disk = SimDisk::new(before);
    let log = open(Arc::new(disk.clone()));
    let stale = format!("{PARTITION}/{:020}.txnindex.cleaned", 0);
    disk.open(Path::new(&stale), Access::Create).unwrap();
    let (mut world, first) = (disk.world(), disk.changes());
    log.compact(&CompactOptions::default()).unwrap();
    let new = first_segment(&disk.world());
    assert!(old != new);
    log.abandon();
    let mut rng = fastrand::Rng::with_seed(1);
    for change in &disk.recorded()[first..] {
        world.apply(change);
        for cut in [Cut::Process, Cut::Nothing, Cut::Random, Cut::Random] {
            let files = reopened(&world.crash(cut, Fill::Zeros, &mut rng));
            assert!(is_one(&files, &old, &new), "{change:?}, {cut:?}");
        }
    }
}

/// Without its entries, a broker would serve aborted records as committed ones, for ever.
#[test]
fn a_transaction_index_that_cannot_be_read_is_none_that_is_empty() {
    let before = filled(true);
    let whole = SimDisk::new(before.clone());
    let log = open(Arc::new(whole.clone()));
    log.compact(&CompactOptions::default()).unwrap();
    let new = first_segment(&whole.world());
    assert!(!new["txnindex"].is_empty());
    let mut failed = 0;
    for lasting in [Lasting::Once, Lasting::FromThenOn] {
        for nth in 1.. {
            let sim = SimDisk::new(before.clone());
            let disk = FaultDisk::over(&sim, Plan::none());
            let log = open(Arc::new(disk.clone()));
            disk.set(Plan {
                kinds: |call, path| {
                    matches!(call, Call::Open | Call::Read | Call::Stat)
                        && path.ends_with(".txnindex")
                },
                nth,
                lasting,
                ..Plan::none()
            });
            let done = log.compact(&CompactOptions::default());
            if disk.failed().is_empty() {
                done.unwrap();
                break;
            }
            failed += u32::from(done.is_err());
            disk.set(Plan::none());
            if done.is_err() {
                log.abandon();
                let log = open(Arc::new(sim.clone()));
                log.compact(&CompactOptions::default()).unwrap();
            }
            let files = first_segment(&sim.world());
            assert!(files == new, "{nth}, {lasting:?}: {:?}", disk.failed());
        }
    }
    assert!(failed > 0);
}
