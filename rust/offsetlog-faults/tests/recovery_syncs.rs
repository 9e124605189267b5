//! What a recovery wrote is durable when it ends, whatever it left for its end; and what was right it leaves alone.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::disk::Disk;
use offsetlog::{
    AppendOptions, BatchBuilder, LogConfig, LogWriter, OpenOptions, RecoverOptions, Result,
    WriteOptions, recover,
};
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};
use offsetlog_faults::sim::{Change, Cut, Fill, Names, Node, SimDisk, World, name};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    killed_on(Names::Journal, is_there)
}

fn killed_on(rule: Names, is_there: impl Fn(&str) -> bool) -> World {
    let mut world = World::new(rule, &["/sim", "/sim/logs", PARTITION]);
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

/// A file is gone for good.
fn lose(world: &mut World, gone: &Path) {
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

/// Whatever of its last writes a loss of power takes from a log, the next opening makes the files beside its segments right.
fn opens_right_behind_a_crash(
    world: &World,
    seeds: u64,
    right: &BTreeMap<PathBuf, Vec<u8>>,
    what: &str,
) {
    for seed in 0..seeds {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let next = SimDisk::new(world.crash(Cut::Random, Fill::Zeros, rng));
        open(&next).unwrap().close().unwrap();
        assert_eq!(beside(&next.world()), *right, "{what}");
    }
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
        lose(&mut world, gone);
        let recovered = SimDisk::new(world.clone());
        recover(
            PARTITION,
            &options(Arc::new(recovered.clone())),
            &RecoverOptions::default(),
        )
        .unwrap();
        for change in recovered.recorded() {
            world.apply(&change);
            opens_right_behind_a_crash(&world, 3, &right, &format!("{change:?}"));
        }
    }
}

/// The calls that may fail.
type Kinds = fn(Call, &str) -> bool;

fn is_index(path: &Path) -> bool {
    path.to_string_lossy().ends_with("index")
}

/// Settings with which a log has many short segments, with entries in each index.
fn short() -> WriteOptions {
    let settings = [
        ("internal.segment.bytes", "400"),
        ("index.interval.bytes", "100"),
    ];
    WriteOptions {
        config: Some(LogConfig::parse(settings).unwrap()),
        ..WriteOptions::default()
    }
}

fn open_short(disk: Arc<dyn Disk>) -> Result<LogWriter> {
    LogWriter::open(PARTITION, &options(disk), &short())
}

/// A log of more segments than those whose indexes wait at a time: as it was when its writer was killed, and closed.
fn many_segments(rule: Names) -> [World; 2] {
    let disk = SimDisk::new(World::new(rule, &["/sim", "/sim/logs"]));
    let log = open_short(Arc::new(disk.clone())).unwrap();
    for number in 0..120 {
        let mut batch = BatchBuilder::default();
        let time = 1_700_000_000_000 + number;
        batch.push(time, None, Some(&[7; 100]), &[]).unwrap();
        log.append(&mut batch, &AppendOptions::default()).unwrap();
    }
    let killed = disk.world();
    log.close().unwrap();
    [killed, disk.world()]
}

/// The indexes alone.
fn indexes(world: &World) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = beside(world);
    files.retain(|path, _| is_index(path));
    files
}

/// Takes the indexes away.
fn without_indexes(mut world: World) -> World {
    for path in indexes(&world).into_keys() {
        lose(&mut world, &path);
    }
    world
}

/// Opens and closes the log; these are its indexes then.
fn has_after_closing(world: World, right: &BTreeMap<PathBuf, Vec<u8>>, what: &str) {
    let disk = SimDisk::new(world);
    let log = open_short(Arc::new(disk.clone())).unwrap();
    log.close().unwrap();
    drop(log);
    has(&disk.world(), right, what);
}

fn has(world: &World, right: &BTreeMap<PathBuf, Vec<u8>>, what: &str) {
    let found = indexes(world);
    let differs: Vec<_> = right
        .iter()
        .filter(|(path, bytes)| found.get(*path) != Some(*bytes))
        .collect();
    assert!(differs.is_empty(), "{what}: {differs:?}");
    assert_eq!(found.len(), right.len(), "{what}");
}

/// `recover` of a closed log that lacks all its indexes, whatever the disk keeps of names. Power is lost in it, at any time; an opening
/// behind that is right.
#[test]
fn power_lost_while_many_indexes_wait_leaves_none_that_is_trusted() {
    for rule in [Names::Journal, Names::Strict] {
        let [_, closed] = many_segments(rule);
        let right = indexes(&closed);
        assert!(right.len() > 100);
        let mut world = without_indexes(closed);
        let disk = SimDisk::new(world.clone());
        let recovering = options(Arc::new(disk.clone()));
        recover(PARTITION, &recovering, &RecoverOptions::default()).unwrap();
        has(&disk.world(), &right, "recovered");
        has(&lost(&disk, 1), &right, "durable");
        for (nth, change) in disk.recorded().into_iter().enumerate() {
            world.apply(&change);
            let rng = &mut fastrand::Rng::with_seed(nth as u64);
            let left = world.crash(Cut::Random, Fill::Zeros, rng);
            has_after_closing(left, &right, &format!("{rule:?}, {nth}: {change:?}"));
        }
    }
}

/// A transaction index that is no longer one has the other two looked at as well. They have their names before it has one: with a right one
/// nobody would look.
#[test]
fn what_has_the_others_looked_at_is_replaced_last() {
    for suffix in [".index", ".timeindex"] {
        let disk = SimDisk::new(killed_on(Names::Strict, is_segment));
        open(&disk).unwrap().close().unwrap();
        let right = beside(&disk.world());
        let of = |suffix: &str| PathBuf::from(format!("{PARTITION}/{:020}{suffix}", 2));
        let mut world = disk.world();
        let mut wrong = right[&of(suffix)].clone();
        *wrong.last_mut().unwrap() ^= 1;
        world.put(of(suffix).to_str().unwrap(), &wrong);
        let wrong = &right[&of(".txnindex")][1..];
        world.put(of(".txnindex").to_str().unwrap(), wrong);
        let recovered = SimDisk::new(world.clone());
        let recovering = options(Arc::new(recovered.clone()));
        recover(PARTITION, &recovering, &RecoverOptions::default()).unwrap();
        assert_eq!(beside(&recovered.world()), right);
        for change in recovered.recorded() {
            world.apply(&change);
            if !matches!(change, Change::Rename { .. }) {
                continue;
            }
            opens_right_behind_a_crash(&world, 64, &right, &format!("{suffix}: {change:?}"));
        }
    }
}

/// Of a segment that has lost all three nobody looks for the transaction index behind the names of the others: it has its own before.
#[test]
fn what_nobody_would_miss_has_its_name_first() {
    let disk = SimDisk::new(killed_on(Names::Strict, is_segment));
    open(&disk).unwrap().close().unwrap();
    let right = beside(&disk.world());
    let mut world = disk.world();
    for suffix in [".index", ".timeindex", ".txnindex"] {
        let gone = PathBuf::from(format!("{PARTITION}/{:020}{suffix}", 2));
        assert!(!right[&gone].is_empty());
        lose(&mut world, &gone);
    }
    let opened = SimDisk::new(world.clone());
    open(&opened).unwrap().close().unwrap();
    assert_eq!(beside(&opened.world()), right);
    for change in opened.recorded() {
        world.apply(&change);
        opens_right_behind_a_crash(&world, 8, &right, &format!("{change:?}"));
    }
}

/// A call fails while indexes wait: for want of room or of open files it is done without waiting; otherwise the opening says so. Either way
/// nothing is left that has no name of its own, and the next opening, behind a loss of power as well, is right.
#[test]
fn a_call_that_fails_while_indexes_wait() {
    let [killed, closed] = many_segments(Names::Journal);
    let right = indexes(&closed);
    let bare = without_indexes(killed);
    let is_index = |call, name: &str| {
        let is_one = matches!(call, Call::Create | Call::Write | Call::Rename);
        is_one && name.contains("index")
    };
    let opens_index = |call, name: &str| call == Call::Create && name.contains("index");
    let syncs = |call, name: &str| {
        let is_one = matches!(call, Call::Sync | Call::SyncDirectory);
        is_one && (call == Call::SyncDirectory || name.contains("index"))
    };
    let cases: [(_, Kinds, _); 4] = [
        (28, is_index, true),
        (24, opens_index, true),
        (5, is_index, false),
        (5, syncs, false),
    ];
    for (error, kinds, is_bridged) in cases {
        let mut failed = 0;
        for nth in (1..).step_by(5) {
            let disk = SimDisk::new(bare.clone());
            let plan = Plan {
                kinds,
                nth,
                error,
                ..Plan::none()
            };
            let faults = FaultDisk::over(&disk, plan);
            let first = open_short(Arc::new(faults.clone()));
            if faults.failed().is_empty() {
                break;
            }
            failed += 1;
            let what = format!("{error}, {:?}", faults.failed());
            let is_named = |(path, _): (&Path, _)| path.extension().is_none_or(|of| of != "tmp");
            assert!(disk.world().files().all(is_named), "{what}");
            assert_eq!(first.is_ok(), is_bridged, "{what}: {:?}", first.err());
            has_after_closing(lost(&disk, nth), &right, &what);
            has_after_closing(disk.world(), &right, &what);
        }
        assert!(failed > 10, "{failed}");
    }
}

/// A log of which no more files may be opened while indexes wait, each of them an open file, is opened all the same.
#[test]
fn indexes_that_wait_hold_back_no_other_file() {
    let [killed, closed] = many_segments(Names::Journal);
    let right = indexes(&closed);
    let bare = without_indexes(killed);
    let kinds: Kinds = |call, name| {
        let opens = matches!(call, Call::Open | Call::Create);
        opens && [".log", ".snapshot"].iter().any(|kind| name.contains(kind))
    };
    let mut bridged = 0;
    for nth in (1..).step_by(29) {
        let disk = SimDisk::new(bare.clone());
        let plan = Plan {
            kinds,
            nth,
            error: 24,
            ..Plan::none()
        };
        let faults = FaultDisk::over(&disk, plan);
        let first = open_short(Arc::new(faults.clone()));
        if faults.failed().is_empty() {
            break;
        }
        let what = format!("{:?}", faults.failed());
        // It stays an error before the first one waits, and behind the last one.
        bridged += usize::from(first.is_ok());
        drop(first);
        has_after_closing(disk.world(), &right, &what);
    }
    assert!(bridged > 2, "{bridged}");
}

/// An opening that is refused leaves durable indexes of what it had read.
#[test]
fn a_refused_opening_keeps_the_indexes_that_waited() {
    let [killed, closed] = many_segments(Names::Journal);
    let mut world = without_indexes(killed);
    // A broker's: of ours lost power would explain it.
    lose(&mut world, &Path::new(PARTITION).join(".offsetlog.state"));
    let paths = world.files().map(|(path, _)| path.to_path_buf());
    let mut logs = paths.filter(|path| is_segment(&path.to_string_lossy()));
    // They come in their order.
    let damaged = logs.nth(5).unwrap();
    drop(logs);
    let mut bytes = world.bytes(&damaged).unwrap().to_vec();
    bytes[70] ^= 1;
    world.put(damaged.to_str().unwrap(), &bytes);
    let disk = SimDisk::new(world);
    assert!(open_short(Arc::new(disk.clone())).is_err());
    let mut before = indexes(&closed);
    before.retain(|path, _| *path < damaged.with_extension(""));
    assert_eq!(before.len(), 10);
    has(&lost(&disk, 1), &before, "refused");
}

/// An opening that is interrupted leaves nothing that has no name of its own, and the next one is right.
#[test]
fn an_interrupted_opening_leaves_nothing_without_a_name() {
    let [killed, closed] = many_segments(Names::Journal);
    let right = indexes(&closed);
    let bare = without_indexes(killed);
    let mut ended = 0;
    for nth in (1..).step_by(7) {
        let disk = SimDisk::new(bare.clone());
        let calls = Arc::new(AtomicU64::new(0));
        let open = OpenOptions {
            interrupt: Some(Arc::new(move || {
                calls.fetch_add(1, Ordering::Relaxed) + 1 >= nth
            })),
            ..options(Arc::new(disk.clone()))
        };
        let first = LogWriter::open(PARTITION, &open, &short());
        if first.is_ok() {
            break;
        }
        drop(first);
        ended += 1;
        let is_named = |(path, _): (&Path, _)| path.extension().is_none_or(|of| of != "tmp");
        assert!(disk.world().files().all(is_named), "{nth}");
        has_after_closing(disk.world(), &right, &format!("{nth}"));
    }
    assert!(ended > 5, "{ended}");
}
