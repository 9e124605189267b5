//! Compaction and retention on disks in memory: against a model of what may be left, and with a crash at each change of the disk.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a test may panic"
)]

use offsetlog::format::Codec;
use offsetlog::{
    AppendOptions, BatchBuilder, CompactOptions, Isolation, Log, LogConfig, LogWriter,
    MaintainOptions, MarkerOptions, OpenOptions, Producer, ScanOptions, WriteOptions,
};
use offsetlog_faults::report::scaled;
use offsetlog_faults::run::{PARTITION, clock, options};
use offsetlog_faults::sim::{Cut, Fill, Names, SimDisk, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const LOGS: u64 = 5_000;
const CRASHED_LOGS: u64 = 30;
const DELETE_RETENTION_MS: i64 = 300;

/// A record as the model knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    offset: i64,
    key: Option<u8>,
    value: Option<u64>,
    batch: i64,
    /// Its producer, if it is part of a transaction, and how that ended: `true` for a commit.
    transaction: Option<(i64, Option<bool>)>,
    /// Offset of the marker.
    marker: i64,
}

impl Known {
    fn is_aborted(&self) -> bool {
        matches!(self.transaction, Some((_, Some(false))))
    }
}

struct Life {
    rng: fastrand::Rng,
    disk: SimDisk,
    clock: Arc<AtomicI64>,
    log: LogWriter,
    records: Vec<Known>,
    /// Horizons of batches, by base offset.
    horizons: BTreeMap<i64, i64>,
    producers: BTreeMap<i64, i32>,
    open: BTreeSet<i64>,
    checkpoint: i64,
    values: u64,
}

fn config(rng: &mut fastrand::Rng) -> LogConfig {
    let segment = rng.choice([300, 600, 1500]).unwrap().to_string();
    let retention = DELETE_RETENTION_MS.to_string();
    let pairs = [
        ("cleanup.policy", "compact"),
        ("internal.segment.bytes", &segment),
        ("delete.retention.ms", &retention),
        ("index.interval.bytes", "100"),
        // An index file is as long as it may become, and a disk in memory has to hold that.
        ("segment.index.bytes", "600"),
    ];
    LogConfig::parse(pairs).unwrap()
}

fn open(disk: &SimDisk, clock: &Arc<AtomicI64>, config: Option<LogConfig>) -> LogWriter {
    let write = WriteOptions {
        config,
        ..WriteOptions::default()
    };
    LogWriter::open(PARTITION, &open_options(disk, clock), &write).unwrap()
}

fn open_options(disk: &SimDisk, clock: &Arc<AtomicI64>) -> OpenOptions {
    options(Arc::new(disk.clone()), clock)
}

/// Offset, key and value of all data records.
fn read(log: &Log, isolation: Isolation) -> Vec<(i64, Option<u8>, Option<u64>)> {
    let options = ScanOptions {
        isolation,
        ..ScanOptions::default()
    };
    let mut scan = log.scan(&options).unwrap();
    let mut found = Vec::new();
    while let Some(mut batch) = scan.next_batch().unwrap() {
        if batch.header().attributes.is_control() {
            continue;
        }
        while let Some(record) = batch.next_record().unwrap() {
            let value = record.value.map(|value| {
                u64::from_be_bytes(value[..8].try_into().expect("a value of the test's"))
            });
            found.push((record.offset, record.key.map(|key| key[0]), value));
        }
    }
    found
}

/// The value of each key that is not deleted, as a reader of the whole log ends up with.
fn table(log: &Log) -> BTreeMap<u8, u64> {
    let mut table = BTreeMap::new();
    for (_, key, value) in read(log, Isolation::ReadCommitted) {
        match (key, value) {
            (Some(key), Some(value)) => table.insert(key, value),
            (Some(key), None) => table.remove(&key),
            (None, _) => None,
        };
    }
    table
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new(World::new(Names::Strict, &["/sim", "/sim/logs"]));
        let clock = clock();
        let log = open(&disk, &clock, Some(config(&mut rng)));
        Self {
            rng,
            disk,
            clock,
            log,
            records: Vec::new(),
            horizons: BTreeMap::new(),
            producers: BTreeMap::new(),
            open: BTreeSet::new(),
            checkpoint: 0,
            values: 0,
        }
    }

    fn now(&self) -> i64 {
        self.clock.load(Ordering::SeqCst)
    }

    fn step(&mut self) {
        self.clock.fetch_add(self.rng.i64(0..40), Ordering::SeqCst);
        match self.rng.u8(0..20) {
            0..=8 => self.append(None),
            9..=12 => {
                let producer = self.rng.i64(1..=3);
                self.append(Some(producer));
            }
            13..=15 => self.end(),
            16..=17 => drop(self.log.roll().unwrap()),
            _ => self.compact(),
        }
    }

    fn append(&mut self, producer_id: Option<i64>) {
        let base = self.log.log_end_offset().unwrap();
        let codec = *self
            .rng
            .choice(&[
                Codec::None,
                Codec::None,
                Codec::Lz4,
                Codec::Zstd,
                Codec::Snappy,
            ])
            .unwrap();
        let producer = producer_id.map_or_else(Producer::default, |producer_id| Producer {
            producer_id,
            producer_epoch: 0,
            base_sequence: *self.producers.entry(producer_id).or_default(),
            is_transactional: true,
        });
        let mut batch = BatchBuilder::new(codec, producer);
        for slot in 0..self.rng.i64(1..=3) {
            self.values += 1;
            let key = self.rng.u8(0..7);
            let value = (self.rng.u8(0..5) > 0).then_some(self.values);
            let bytes = value.map(|value| {
                let mut bytes = value.to_be_bytes().to_vec();
                bytes.resize(8 + self.rng.usize(0..60), 7);
                bytes
            });
            batch
                .push(self.now(), Some(&[key]), bytes.as_deref(), &[])
                .unwrap();
            self.records.push(Known {
                offset: base + slot,
                key: Some(key),
                value,
                batch: base,
                transaction: producer_id.map(|producer_id| (producer_id, None)),
                marker: -1,
            });
        }
        if let Some(producer_id) = producer_id {
            *self.producers.entry(producer_id).or_default() += batch.len() as i32;
            self.open.insert(producer_id);
        }
        self.log
            .append(&mut batch, &AppendOptions::default())
            .unwrap();
    }

    fn end(&mut self) {
        let Some(&producer_id) = self.rng.choice(&self.open) else {
            return;
        };
        let commit = self.rng.bool();
        let marker = MarkerOptions {
            producer_id,
            producer_epoch: 0,
            commit,
            coordinator_epoch: 0,
            timestamp: None,
            transaction_version: 0,
        };
        let info = self
            .log
            .append_marker(&marker, &AppendOptions::default())
            .unwrap();
        self.open.remove(&producer_id);
        for known in &mut self.records {
            if known.transaction == Some((producer_id, None)) {
                known.transaction = Some((producer_id, Some(commit)));
                known.marker = info.base_offset;
            }
        }
    }

    /// One pass, and what the model says must be left.
    fn compact(&mut self) {
        let now = self.now();
        let before = table(&self.log);
        let bases: Vec<i64> = self
            .log
            .segments()
            .unwrap()
            .iter()
            .map(|segment| segment.base_offset)
            .collect();
        let first_dirty = if self.rng.u8(0..3) == 0 {
            Some(self.rng.i64(0..=self.checkpoint))
        } else {
            None
        };
        let compact = CompactOptions {
            first_dirty,
            map_bytes: Some(24 * self.rng.choice([2, 4, 7, 20]).unwrap()),
        };
        let done = self.log.compact(&compact).unwrap();
        assert_eq!(
            done.first_dirty_offset,
            first_dirty.unwrap_or(self.checkpoint)
        );
        assert!(done.end_offset >= done.first_dirty_offset);
        assert_eq!(table(&self.log), before, "what the keys stand for changed");
        if done.segments_before > 0 {
            self.checkpoint = done.end_offset;
            self.expect(done.first_dirty_offset, done.end_offset, &bases, now);
        }
        let found = read(&self.log, Isolation::ReadUncommitted);
        let expected: Vec<_> = self
            .records
            .iter()
            .map(|known| (known.offset, known.key, known.value))
            .collect();
        assert_eq!(found, expected, "{done:?}");
    }

    /// What is left of the records below the last segment that a pass copied.
    fn expect(&mut self, first_dirty: i64, end: i64, bases: &[i64], now: i64) {
        let copied = bases.partition_point(|&base| base < end);
        let behind = bases.get(copied).copied().unwrap_or(i64::MAX);
        let mut last = BTreeMap::new();
        for known in &self.records {
            if (first_dirty..end).contains(&known.offset) && !known.is_aborted() {
                last.insert(known.key, known.offset);
            }
        }
        let due = |known: &Known| {
            known.value.is_none()
                && self
                    .horizons
                    .get(&known.batch)
                    .is_some_and(|&horizon| horizon <= now)
        };
        self.records.retain(|known| {
            if known.offset >= behind {
                return true;
            }
            if known.is_aborted() {
                return false;
            }
            known.offset >= end
                || (last
                    .get(&known.key)
                    .is_none_or(|&last| last <= known.offset)
                    && !due(known))
        });
        for known in &self.records {
            if known.offset < behind && known.value.is_none() {
                let horizon = now + DELETE_RETENTION_MS;
                self.horizons.entry(known.batch).or_insert(horizon);
            }
        }
    }
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let first = std::env::var("OFFSETLOG_UPKEEP_SEED")
        .ok()
        .map(|seed| seed.parse().expect("a number"));
    let range = first.map_or(0..scaled(count as usize) as u64, |seed| seed..seed + 1);
    range.inspect(|seed| {
        if seed.is_multiple_of(1_000) {
            println!("from seed {seed} on (OFFSETLOG_UPKEEP_SEED)");
        }
    })
}

fn named(seed: u64, run: impl FnOnce() + std::panic::UnwindSafe) {
    if let Err(panic) = std::panic::catch_unwind(run) {
        eprintln!("OFFSETLOG_UPKEEP_SEED={seed}");
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn what_is_left_is_what_the_model_says() {
    let mut logs = 0;
    for seed in seeds(LOGS) {
        named(seed, || {
            let mut life = Life::new(seed);
            for _ in 0..life.rng.usize(5..40) {
                life.step();
            }
            if life.rng.bool() {
                while !life.open.is_empty() {
                    life.end();
                }
            }
            life.log.roll().unwrap();
            life.compact();
            let found = read(&life.log, Isolation::ReadUncommitted);
            life.log.close().unwrap();
            // And that is what stands on the disk.
            let again = Log::open(PARTITION, &open_options(&life.disk, &life.clock)).unwrap();
            assert_eq!(read(&again, Isolation::ReadUncommitted), found);
        });
        logs += 1;
    }
    println!("{logs} logs compacted as the model says");
}

#[test]
fn a_crash_at_any_change_leaves_the_log_before_or_after() {
    let states = std::sync::atomic::AtomicUsize::new(0);
    for seed in seeds(CRASHED_LOGS) {
        named(seed, || {
            let mut life = Life::new(seed);
            for _ in 0..life.rng.usize(10..40) {
                life.step();
            }
            // Beyond an open transaction nothing is cleaned.
            while !life.open.is_empty() {
                life.end();
            }
            life.log.roll().unwrap();
            life.log.flush().unwrap();
            // What is appended now may be lost with the power; what was there may not.
            let expected = table(&life.log);
            let before = read(&life.log, Isolation::ReadUncommitted);
            let (world, first) = (life.disk.world(), life.disk.changes());
            if life.rng.bool() {
                life.log.compact(&CompactOptions::default()).unwrap();
            } else {
                life.clock.fetch_add(1_000, Ordering::SeqCst);
                life.log.maintain(&MaintainOptions::default()).unwrap();
            }
            let after = read(&life.log, Isolation::ReadUncommitted);
            life.log.abandon();
            let changes = life.disk.recorded();
            let mut world = world;
            for count in first..=changes.len() {
                if count > first {
                    world.apply(&changes[count - 1]);
                }
                let cuts = [Cut::Process, Cut::Nothing, Cut::Random, Cut::Random];
                let cut = *life.rng.choice(&cuts).unwrap();
                let image = world.crash(cut, Fill::Zeros, &mut life.rng);
                let told = format!(
                    "after change {} of {}, {cut:?}",
                    count - first,
                    changes.len() - first
                );
                check(&image, &life.clock, &expected, &before, &after, &told);
                states.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    println!("{} crashes while a log was kept up", states.into_inner());
}

/// A reader, then a writer, then a reader again find the same keys, and only records that were there.
fn check(
    image: &World,
    clock: &Arc<AtomicI64>,
    expected: &BTreeMap<u8, u64>,
    before: &[(i64, Option<u8>, Option<u64>)],
    after: &[(i64, Option<u8>, Option<u64>)],
    told: &str,
) {
    let disk = SimDisk::new(image.clone());
    let reader = Log::open(PARTITION, &open_options(&disk, clock)).unwrap();
    assert_eq!(table(&reader), *expected, "a reader, {told}");
    drop(reader);
    assert_eq!(disk.changes(), 0, "a reader changed something, {told}");
    let log = open(&disk, clock, None);
    assert_eq!(table(&log), *expected, "a writer, {told}");
    let report = log.recovery_report();
    assert!(report.cut.is_empty(), "{told}: {report:?}");
    let found = read(&log, Isolation::ReadUncommitted);
    for record in &found {
        assert!(before.contains(record), "{record:?}, {told}");
    }
    for record in after {
        assert!(found.contains(record), "{record:?} is lost, {told}");
    }
    let mut batch = BatchBuilder::default();
    batch
        .push(
            clock.load(Ordering::SeqCst),
            Some(b"\x63"),
            Some(&9_u64.to_be_bytes()),
            &[],
        )
        .unwrap();
    log.append(&mut batch, &AppendOptions::default()).unwrap();
    log.compact(&CompactOptions::default()).unwrap();
    log.close().unwrap();
    let leftovers: Vec<String> = disk.look(|world| {
        let files = world.files().map(|(path, _)| path.display().to_string());
        files
            .filter(|path| path.ends_with(".cleaned") || path.ends_with(".swap"))
            .collect()
    });
    assert!(leftovers.is_empty(), "{told}: {leftovers:?}");
    let again = Log::open(PARTITION, &open_options(&disk, clock)).unwrap();
    let mut with_new = expected.clone();
    with_new.insert(0x63, 9);
    assert_eq!(table(&again), with_new, "opened again, {told}");
}
