//! A whole log dir, open for appending, loses power: what its partitions share is written later there than by a log that is open by
//! itself, and must never say more than is so.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::{
    AppendOptions, BatchBuilder, ErrorKind, LogConfig, LogDir, LogDirOptions, MaintainOptions,
    NewTopic, OpenOptions, Route, ScanOptions,
};
use offsetlog_faults::fault::{Call, FaultDisk, Plan};
use offsetlog_faults::report::scaled;
use offsetlog_faults::run::{clock, options};
use offsetlog_faults::sim::{Cut, Fill, Names, SimDisk, World};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const PLACE: &str = "/sim/logs";
const MARKER: &str = "/sim/logs/.kafka_cleanshutdown";
const POINTS: &str = "/sim/logs/recovery-point-offset-checkpoint";
const LIVES: usize = 500;
const STATES_A_LIFE: usize = 40;
const PARTITIONS: usize = 4;

/// What a partition holds: the value of each offset from 0 on, those below `start` deleted, those below `durable` synced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Held {
    values: Vec<u64>,
    start: usize,
    durable: usize,
}

struct Life {
    rng: fastrand::Rng,
    disk: SimDisk,
    clock: Arc<AtomicI64>,
    log_dir: LogDir,
    /// After so many changes of the disk.
    history: Vec<(usize, [Held; PARTITIONS])>,
    now: [Held; PARTITIONS],
    values: u64,
}

fn world() -> World {
    let mut world = World::new(Names::Strict, &["/sim", PLACE]);
    world.put(
        "/sim/logs/meta.properties",
        b"#\nversion=1\nnode.id=1\ncluster.id=AAAAAAAAQACAAAAAAAAAAA\n",
    );
    world.put(MARKER, b"{\"version\":0,\"brokerEpoch\":3}");
    world.put(POINTS, b"0\n1\nother 0 5\n");
    world
}

fn open_options(disk: &SimDisk, clock: &Arc<AtomicI64>) -> OpenOptions {
    options(Arc::new(disk.clone()), clock)
}

fn open(disk: &SimDisk, clock: &Arc<AtomicI64>) -> LogDir {
    let options = LogDirOptions {
        max_open_partitions: 2,
        ..LogDirOptions::default()
    };
    LogDir::open_for_append(&[PLACE], &open_options(disk, clock), &options).unwrap()
}

fn batch(now: i64, value: u64) -> BatchBuilder {
    let mut batch = BatchBuilder::default();
    batch
        .push(now, None, Some(&value.to_be_bytes()), &[])
        .unwrap();
    batch
}

/// Log start offset, and the values from there on.
fn read(log_dir: &LogDir, partition: usize) -> (usize, Vec<u64>) {
    let log = log_dir.log_writer("t", partition as i32).unwrap();
    let start = log.log_start_offset().unwrap();
    let mut scan = log.scan(&ScanOptions::default()).unwrap();
    let mut values = Vec::new();
    while let Some(mut batch) = scan.next_batch().unwrap() {
        while let Some(record) = batch.next_record().unwrap() {
            assert_eq!(
                record.offset,
                start + values.len() as i64,
                "partition {partition}"
            );
            values.push(u64::from_be_bytes(
                record.value.unwrap().try_into().unwrap(),
            ));
        }
    }
    (start as usize, values)
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new(world());
        let clock = clock();
        let log_dir = open(&disk, &clock);
        let segment = rng.choice(["300", "900"]).unwrap();
        let config = LogConfig::parse([
            ("internal.segment.bytes", segment),
            ("segment.index.bytes", "600"),
            ("index.interval.bytes", "100"),
        ]);
        let topic = NewTopic {
            name: "t",
            partitions: PARTITIONS as i32,
            config: config.unwrap(),
            topic_id: None,
        };
        log_dir.create_topic(&topic).unwrap();
        Self {
            rng,
            disk,
            clock,
            log_dir,
            history: Vec::new(),
            now: Default::default(),
            values: 0,
        }
    }

    fn step(&mut self) {
        let partition = self.rng.usize(0..PARTITIONS);
        let kind = self.rng.u8(0..20);
        let mut held = self.now[partition].clone();
        self.clock
            .fetch_add(self.rng.i64(0..30_000), Ordering::SeqCst);
        let log = |life: &Self| life.log_dir.log_writer("t", partition as i32).unwrap();
        match kind {
            0..=10 => {
                let flush = kind < 2;
                self.values += 1;
                let mut batch = batch(self.clock.load(Ordering::SeqCst), self.values);
                let options = AppendOptions {
                    flush,
                    ..AppendOptions::default()
                };
                let route = Route::Partition(partition as i32);
                let appended = self.log_dir.append("t", route, &mut batch, &options);
                assert_eq!(appended.unwrap().1.base_offset, held.values.len() as i64);
                held.values.push(self.values);
                if flush {
                    held.durable = held.values.len();
                }
            }
            12 => {
                log(self).flush().unwrap();
                held.durable = held.values.len();
            }
            13 => {
                log(self).roll().unwrap();
            }
            14 => {
                let offset = self.rng.usize(held.start..=held.values.len());
                log(self).delete_records_before(offset as i64).unwrap();
                held.start = offset;
            }
            11 | 15 => {
                let offset = self.rng.usize(held.start..=held.values.len());
                log(self).truncate_to(offset as i64).unwrap();
                held.values.truncate(offset);
                held.durable = held.durable.min(offset);
            }
            16 => {
                let report = self.log_dir.maintain(&MaintainOptions::default()).unwrap();
                assert!(report.failed.is_empty(), "{report:?}");
            }
            17 => {
                self.log_dir.close().unwrap();
                held.durable = held.values.len();
                for other in &mut self.now {
                    other.durable = other.values.len();
                }
                self.note();
                self.log_dir = open(&self.disk, &self.clock);
            }
            _ => {
                read(&self.log_dir, partition);
            }
        }
        self.now[partition] = held;
        self.note();
    }

    fn note(&mut self) {
        self.history.push((self.disk.changes(), self.now.clone()));
    }
}

/// What a partition was, or was becoming, when the power went.
fn is_allowed(found: &(usize, Vec<u64>), was: &Held, next: &Held) -> bool {
    let (start, values) = found;
    let end = start + values.len();
    [was, next].iter().any(|held| {
        let required = was.durable.min(next.values.len());
        *start >= was.start.min(next.start)
            && *start <= was.start.max(next.start)
            && (end >= required || *start >= end)
            && end >= was.start
            && held
                .values
                .get(*start..end)
                .is_some_and(|known| known == values)
    })
}

fn check(image: &World, clock: &Arc<AtomicI64>, was: &[Held], next: &[Held], told: &str) {
    let disk = SimDisk::new(image.clone());
    let marked = image.node(Path::new(MARKER)).is_some();
    // Whoever uses some of the partitions only answers for those.
    let log_dir = open(&disk, clock);
    log_dir.log_writer("t", 0).unwrap();
    log_dir.close().unwrap();
    disk.look(|world| {
        let is_marked = world.node(Path::new(MARKER)).is_some();
        assert!(
            marked || !is_marked,
            "{told}: one partition was opened and closed"
        );
    });
    let log_dir = open(&disk, clock);
    for partition in 0..PARTITIONS {
        let log = log_dir.log_writer("t", partition as i32).unwrap();
        let report = log.recovery_report();
        assert!(
            !marked || report.cut.is_empty(),
            "{told}: partition {partition} under a marker: {report:?}"
        );
        let found = read(&log_dir, partition);
        assert!(
            is_allowed(&found, &was[partition], &next[partition]),
            "{told}: partition {partition} has {found:?} where it was {:?} and then {:?}",
            was[partition],
            next[partition]
        );
        let end = found.0 + found.1.len();
        let is_whole = end == was[partition].values.len() || end == next[partition].values.len();
        assert!(
            !marked || is_whole,
            "{told}: partition {partition} under a marker ends at {end}"
        );
        let mut batch = batch(clock.load(Ordering::SeqCst), 1 << 40);
        let info = log.append(&mut batch, &AppendOptions::default()).unwrap();
        assert_eq!(info.base_offset, end as i64, "{told}");
    }
    log_dir.close().unwrap();
    disk.look(|world| {
        // A broker may have been there between the crash and us, and have been killed: nobody but a broker marks that clean.
        assert!(
            marked || world.node(Path::new(MARKER)).is_none(),
            "{told}: all is closed, and a marker is made"
        );
        let points = world.bytes(Path::new(POINTS)).unwrap();
        let points = String::from_utf8(points.to_vec()).unwrap();
        assert!(points.contains("other 0 5\n"), "{told}: {points}");
        assert_eq!(points.lines().count(), 3 + PARTITIONS, "{told}: {points}");
    });
}

#[test]
fn power_loss_at_any_change_of_a_log_dir() {
    let only = std::env::var("OFFSETLOG_LIFE")
        .ok()
        .map(|seed| seed.parse().expect("a number"));
    let lives = scaled(LIVES);
    let mut states = 0;
    for seed in only.map_or(0..lives as u64, |seed: u64| seed..seed + 1) {
        println!("OFFSETLOG_LIFE={seed}");
        let mut life = Life::new(seed);
        let first = life.disk.changes();
        life.note();
        for _ in 0..life.rng.usize(10..60) {
            life.step();
        }
        life.log_dir.close().unwrap();
        for held in &mut life.now {
            held.durable = held.values.len();
        }
        life.note();
        let changes = life.disk.recorded();
        let mut world = world();
        for (count, change) in changes.iter().enumerate() {
            if count >= first && life.rng.usize(0..changes.len()) < STATES_A_LIFE {
                let at = life
                    .history
                    .partition_point(|(changes, _)| *changes <= count)
                    - 1;
                let (_, was) = &life.history[at];
                let (_, next) = life.history.get(at + 1).unwrap_or(&life.history[at]);
                let cut = *life
                    .rng
                    .choice(&[Cut::Process, Cut::Nothing, Cut::Random, Cut::Random])
                    .unwrap();
                let image = world.crash(cut, Fill::Zeros, &mut life.rng);
                let told = format!(
                    "life {seed}, after change {count} of {}, {cut:?}",
                    changes.len()
                );
                check(&image, &life.clock, was, next, &told);
                states += 1;
            }
            world.apply(change);
        }
    }
    println!("{states} states of a log dir that lost power");
    assert!(only.is_some() || states > lives * STATES_A_LIFE / 2);
}

/// Whoever wanted the room is told that another partition could not be synced, and so is whoever asks for everything to be durable.
#[test]
fn a_partition_that_was_closed_without_a_sync_is_not_durable() {
    let sim = SimDisk::new(world());
    let clock = clock();
    let disk = FaultDisk::over(&sim, Plan::none());
    let one = LogDirOptions {
        max_open_partitions: 1,
        ..LogDirOptions::default()
    };
    let options = options(Arc::new(disk.clone()), &clock);
    let log_dir = LogDir::open_for_append(&[PLACE], &options, &one).unwrap();
    let topic = NewTopic {
        name: "t",
        partitions: 2,
        config: LogConfig::default(),
        topic_id: None,
    };
    log_dir.create_topic(&topic).unwrap();
    let append = |partition| {
        let mut batch = batch(clock.load(Ordering::SeqCst), 1);
        log_dir.append(
            "t",
            Route::Partition(partition),
            &mut batch,
            &AppendOptions::default(),
        )
    };
    append(0).unwrap();
    log_dir.flush().unwrap();
    append(0).unwrap();
    disk.set(Plan {
        kinds: |call, path| call == Call::Sync && path.contains("/t-0/"),
        nth: 1,
        ..Plan::none()
    });
    assert!(append(1).is_err(), "t-0 is closed for it");
    assert!(!disk.failed().is_empty());
    append(1).unwrap();
    for _ in 0..2 {
        let error = log_dir.flush().unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Poisoned { .. }),
            "{error}"
        );
        assert!(error.path().unwrap().ends_with("t-0"), "{error}");
    }
    // What it had need not be durable any more.
    log_dir.delete_topic("t").unwrap();
    log_dir.flush().unwrap();
}
