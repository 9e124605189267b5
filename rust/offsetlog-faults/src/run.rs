//! Runs a script on a disk and tells the model.

use crate::batch::{Batch, Row, encode};
use crate::files::{SegmentFiles, batches, segments};
use crate::model::{End, Model};
use crate::script::{Script, Step};
use crate::sim::{SimDisk, World};
use offsetlog::disk::Disk;
use offsetlog::{
    AppendOptions, AppendOrigin, BatchBuilder, CompactOptions, Error, LogConfig, LogWriter,
    MaintainOptions, OpenOptions, WriteOptions,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The partition of all scripts.
pub const PARTITION: &str = "/sim/logs/orders-0";
const BEGIN_MS: i64 = 1_700_000_100_000;

/// A disk before the first step.
#[must_use]
pub fn fresh(script: &Script) -> World {
    if !script.log_dir {
        return World::new(script.names, &["/sim"]);
    }
    let mut world = World::new(script.names, &["/sim", "/sim/logs"]);
    let meta = "#\nversion=1\nnode.id=1\ncluster.id=AAAAAAAAQACAAAAAAAAAAA\ndirectory.id=AAAAAAAAQACAAAAAAAAAAQ\n";
    world.put("/sim/logs/meta.properties", meta.as_bytes());
    world.put("/sim/logs/.lock", b"");
    world.put(
        "/sim/logs/.kafka_cleanshutdown",
        b"{\"version\":0,\"brokerEpoch\":3}",
    );
    world.put(
        "/sim/logs/recovery-point-offset-checkpoint",
        b"0\n1\nother 0 5\n",
    );
    world
}

/// The settings of a script.
#[must_use]
pub fn config(script: &Script) -> LogConfig {
    let numbers = [
        ("internal.segment.bytes", script.segment_bytes),
        ("segment.index.bytes", script.index_bytes),
        ("index.interval.bytes", script.index_interval),
    ];
    let texts = numbers.map(|(name, number)| (name, number.to_string()));
    let preallocate = script.preallocate.to_string();
    let retention = script.retention_bytes.to_string();
    let policy = match (script.compact, script.retention_bytes >= 0) {
        (true, true) => "compact,delete",
        (true, false) => "compact",
        _ => "delete",
    };
    let pairs = texts
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .chain([
            ("preallocate", preallocate.as_str()),
            ("retention.bytes", &retention),
            ("cleanup.policy", policy),
        ]);
    LogConfig::parse(pairs).expect("settings")
}

/// How logs are opened on a disk.
#[must_use]
pub fn options(disk: Arc<dyn Disk>, clock: &Arc<AtomicI64>) -> OpenOptions {
    let clock = Arc::clone(clock);
    OpenOptions {
        disk,
        clock: Arc::new(move || clock.load(Ordering::SeqCst)),
        ..OpenOptions::default()
    }
}

/// A clock at the begin of all scripts.
#[must_use]
pub fn clock() -> Arc<AtomicI64> {
    Arc::new(AtomicI64::new(BEGIN_MS))
}

/// A script under way.
pub struct Run {
    script: Script,
    /// What decides what is held, even if the engine works through a failing disk in front.
    pub sim: SimDisk,
    disk: Arc<dyn Disk>,
    clock: Arc<AtomicI64>,
    epoch: i32,
    /// The open log.
    pub log: Option<LogWriter>,
    /// What may be found now.
    pub model: Model,
    /// What was found wrong on the way.
    pub broken: Option<String>,
    /// After so many changes of the disk, this may be found.
    pub marks: Vec<(usize, Model)>,
}

impl Run {
    /// Nothing is opened yet.
    #[must_use]
    pub fn new(script: &Script, sim: SimDisk, disk: Arc<dyn Disk>) -> Self {
        Self {
            script: script.clone(),
            sim,
            disk,
            clock: clock(),
            epoch: 0,
            log: None,
            model: Model::new(),
            broken: None,
            marks: Vec::new(),
        }
    }

    /// Runs all steps on a new disk. The disk and the marks are the result.
    ///
    /// # Errors
    /// The first error of the engine, with the step.
    pub fn whole(script: &Script) -> Result<Self, String> {
        let sim = SimDisk::new(fresh(script));
        let mut run = Self::new(script, sim.clone(), Arc::new(sim));
        run.open().map_err(|error| format!("opening: {error}"))?;
        for (slot, &step) in script.steps.iter().enumerate() {
            run.step(step)
                .map_err(|error| format!("step {slot}, {step}: {error}"))?;
            if let Some(broken) = run.broken {
                return Err(format!("F1: step {slot}, {step}: {broken}"));
            }
        }
        run.settle();
        Ok(run)
    }

    fn mark(&mut self) {
        self.marks.push((self.sim.changes(), self.model.clone()));
    }

    /// What may be found after so many changes.
    #[must_use]
    pub fn model_at(&self, changes: usize) -> &Model {
        let after = self.marks.partition_point(|(count, _)| *count <= changes);
        &self.marks[after.saturating_sub(1)].1
    }

    /// Lets the background finish.
    pub fn settle(&mut self) {
        self.sim.release();
        if let Some(log) = &self.log {
            let _ = log.recovery_point();
        }
    }

    /// Opens the log.
    ///
    /// # Errors
    /// The engine's.
    pub fn open(&mut self) -> Result<(), Error> {
        self.mark();
        let write = WriteOptions {
            config: Some(config(&self.script)),
            ..WriteOptions::default()
        };
        let options = options(Arc::clone(&self.disk), &self.clock);
        let log = LogWriter::open(PARTITION, &options, &write)?;
        let (log_start, log_end) = (log.log_start_offset()?, log.log_end_offset()?);
        let found = self
            .sim
            .look(|world| batches(&segments(world, Self::partition())));
        match self.model.check(End::Process, &found, log_start, log_end) {
            Ok(()) => self.model.adopt(found, log_start, log_end),
            Err(error) => self.broken = Some(format!("opened again: {error}")),
        }
        self.log = Some(log);
        self.mark();
        Ok(())
    }

    /// One step. After an error the model knows what it may have left.
    ///
    /// # Errors
    /// The engine's.
    pub fn step(&mut self, step: Step) -> Result<(), Error> {
        self.clock.fetch_add(7, Ordering::SeqCst);
        if matches!(step, Step::Append { .. } | Step::Roll) && self.script.late {
            self.sim.hold();
        } else {
            self.settle();
        }
        let done = self.act(step);
        if !self.script.late {
            self.settle();
        }
        self.mark();
        done
    }

    fn act(&mut self, step: Step) -> Result<(), Error> {
        let Some(log) = self.log.clone() else {
            return self.open();
        };
        match step {
            Step::Append { batches, seed } => self.append(&log, batches, seed),
            Step::Durable { seed } => {
                self.append_one(&log, u64::from(seed), true)?;
                self.model.flushed();
                Ok(())
            }
            Step::Flush => {
                log.flush()?;
                self.model.flushed();
                Ok(())
            }
            Step::Roll => log.roll().map(drop),
            Step::Truncate { records } => {
                let offset = (self.model.next - i64::from(records)).max(0);
                if offset >= self.model.next {
                    return log.truncate_to(offset).map(drop);
                }
                let before = self.model.clone();
                self.model.truncating(offset);
                self.mark();
                if let Err(error) = log.truncate_to(offset) {
                    if log.log_end_offset().is_ok_and(|end| end == before.next) {
                        self.model.not_truncated(before);
                    }
                    return Err(error);
                }
                self.model.truncated(offset);
                Ok(())
            }
            Step::Delete { kept } => {
                let offset = (self.model.next - i64::from(kept)).max(0);
                let before = self.model.log_start();
                self.model.deleting(offset);
                self.mark();
                let done = log.delete_records_before(offset);
                self.log_start_moved(&log, before, done.is_ok());
                done.map(drop)
            }
            Step::Checkpoint => {
                // The next append writes the recovery point down.
                self.clock.fetch_add(60_000, Ordering::SeqCst);
                log.set_config(&config(&self.script))
            }
            Step::Maintain => self.maintain(&log),
            Step::Compact { keys } => self.compact(&log, keys),
            Step::Close => {
                self.log = None;
                log.close()?;
                drop(log);
                self.model.flushed();
                self.open()
            }
            Step::Kill => {
                self.log = None;
                log.abandon();
                drop(log);
                self.open()
            }
        }
    }

    fn segments(&self) -> Vec<SegmentFiles> {
        self.sim.look(|world| segments(world, Self::partition()))
    }

    /// Where the log should start when retention is done: no segment stays whole below that, and as many go as leave the log at or
    /// above its limit.
    fn retained(&self, segments: &[SegmentFiles]) -> i64 {
        let log_start = self.model.log_start();
        let mut ends: Vec<i64> = segments
            .iter()
            .skip(1)
            .map(|segment| segment.base)
            .collect();
        let closed = ends.len();
        ends.push(self.model.next);
        let mut gone = ends[..closed].partition_point(|&end| end <= log_start);
        if let Ok(limit) = usize::try_from(self.script.retention_bytes) {
            let size = |slot: usize| -> usize {
                segments[slot]
                    .batches
                    .iter()
                    .map(|batch| batch.bytes.len())
                    .sum()
            };
            let mut left: usize = (gone..segments.len()).map(size).sum();
            while gone < segments.len()
                && (gone < closed || size(gone) > 0)
                && left >= limit + size(gone)
            {
                left -= size(gone);
                gone += 1;
            }
        }
        gone.checked_sub(1)
            .map_or(log_start, |last| log_start.max(ends[last]))
    }

    /// After a call that was to move the log start; if it failed, the log says whether it did, and files may say either.
    fn log_start_moved(&mut self, log: &LogWriter, before: i64, is_done: bool) {
        if is_done {
            self.model.deleted();
        } else if log.log_start_offset().is_ok_and(|start| start == before) {
            self.model.not_deleted(before);
        }
    }

    fn maintain(&mut self, log: &LogWriter) -> Result<(), Error> {
        let expected = self.retained(&self.segments());
        let before = self.model.log_start();
        self.model.retaining(expected);
        self.mark();
        let options = MaintainOptions {
            compaction: false,
            ..MaintainOptions::default()
        };
        let done = log.maintain(&options);
        self.log_start_moved(log, before, done.is_ok());
        let report = done?;
        let left = self.segments();
        let is_below = |pair: &[SegmentFiles]| pair[1].base <= expected;
        if report.log_start_offset != expected || left.windows(2).any(is_below) {
            let bases: Vec<i64> = left.iter().map(|segment| segment.base).collect();
            let found = report.log_start_offset;
            self.broken = Some(format!(
                "retention: {found} is the log start, {expected} expected; segments {bases:?}"
            ));
        }
        Ok(())
    }

    fn compact(&mut self, log: &LogWriter, keys: u8) -> Result<(), Error> {
        if !self.model.older.is_empty() {
            // What a loss of power may bring back behind a truncation would stand behind what was cleaned.
            log.flush()?;
            self.model.flushed();
        }
        let bases: Vec<i64> = self.segments().iter().map(|segment| segment.base).collect();
        self.model.compacting(&bases);
        self.mark();
        let options = CompactOptions {
            first_dirty: None,
            map_bytes: (keys > 0).then_some(24 * usize::from(keys)),
        };
        log.compact(&options)?;
        let found = batches(&self.segments());
        if let Err(error) = self.model.compacted(found) {
            self.broken = Some(format!("compaction: {error}"));
        }
        Ok(())
    }

    fn append(&mut self, log: &LogWriter, batches: u8, seed: u16) -> Result<(), Error> {
        if seed.is_multiple_of(2) {
            for number in 0..batches {
                self.append_one(log, u64::from(seed) << 8 | u64::from(number), false)?;
            }
            return Ok(());
        }
        let mut handed = Vec::new();
        let mut next = self.model.next;
        for number in 0..batches {
            let (rows, timestamp) = self.rows(u64::from(seed) << 8 | u64::from(number));
            let epoch = self.epoch(seed);
            let batch = encode(next, epoch, timestamp, &rows);
            let size: usize = handed.iter().map(|batch: &Batch| batch.bytes.len()).sum();
            if size + batch.bytes.len() > self.script.segment_bytes as usize {
                break;
            }
            next = batch.last + 1;
            handed.push(batch);
        }
        let bytes: Vec<u8> = handed
            .iter()
            .flat_map(|batch| batch.bytes.iter().copied())
            .collect();
        self.appending(&handed, |_| {
            log.append_as_follower(&bytes, i32::MAX, false).map(drop)
        })
    }

    /// Leaders' epochs never go down, whatever became of what they wrote.
    fn epoch(&mut self, seed: u16) -> i32 {
        self.epoch += i32::from(seed.is_multiple_of(7));
        self.epoch
    }

    fn append_one(&mut self, log: &LogWriter, seed: u64, flush: bool) -> Result<(), Error> {
        let (rows, timestamp) = self.rows(seed);
        let epoch = self.epoch((seed >> 8) as u16);
        let batch = encode(self.model.next, epoch, timestamp, &rows);
        let append = AppendOptions {
            leader_epoch: Some(epoch),
            flush,
        };
        self.appending(&[batch], |_| {
            let info = if seed.is_multiple_of(3) {
                let bytes = encode(0, 0, timestamp, &rows).bytes;
                log.append_batches(&bytes, AppendOrigin::Client, &append)?
            } else {
                let mut builder = BatchBuilder::default();
                for (key, value) in &rows {
                    builder.push(timestamp, key.as_deref(), value.as_deref(), &[])?;
                }
                log.append(&mut builder, &append)?
            };
            let _ = info;
            Ok(())
        })
    }

    fn appending(
        &mut self,
        batches: &[Batch],
        append: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let end = |run: &Self| run.log.as_ref().and_then(|log| log.log_end_offset().ok());
        let before = end(self);
        self.model.appending(batches);
        self.mark();
        let done = append(self);
        if done.is_ok() {
            self.model.appended();
        } else {
            // The log itself says whether the batch is in.
            if before.is_some() && end(self).is_some_and(|end| Some(end) != before) {
                self.model.entered();
            } else {
                self.model.unknown();
            }
        }
        self.mark();
        done
    }

    /// Records of a batch, small and large, some of them nasty, and their time.
    fn rows(&self, seed: u64) -> (Vec<Row>, i64) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let count = rng.usize(1..=3);
        let rows = (0..count).map(|_| {
            (
                // A log that is compacted has no records without a key.
                (rng.bool() || self.script.compact).then(|| vec![7; rng.usize(0..9)]),
                self.value(&mut rng),
            )
        });
        let mut rows: Vec<Row> = rows.collect();
        if encode(0, 0, 0, &rows).bytes.len() > self.script.segment_bytes as usize {
            let key = self.script.compact.then(|| vec![7]);
            rows = vec![(key, Some(vec![seed as u8; 300]))];
        }
        let timestamp = self.clock.load(Ordering::SeqCst) + rng.i64(-40..40);
        (rows, timestamp)
    }

    fn value(&self, rng: &mut fastrand::Rng) -> Option<Vec<u8>> {
        let size = match rng.u8(0..6) {
            0 => return None,
            1..=3 => rng.usize(0..60),
            4 => rng.usize(200..700),
            _ => rng.usize(0..1_600),
        };
        let mut value = vec![0; size];
        match rng.u8(0..8) {
            0 => {}
            // A whole batch inside a record: what looks for batches behind damage finds it.
            1 => {
                let next = self.model.next + rng.i64(0..4);
                let inner = encode(
                    next,
                    0,
                    BEGIN_MS,
                    &[(None, Some(vec![1; rng.usize(0..40)]))],
                );
                value.truncate(rng.usize(0..40).min(size));
                value.extend_from_slice(&inner.bytes);
            }
            _ => rng.fill(&mut value),
        }
        Some(value)
    }

    /// The partition directory.
    #[must_use]
    pub fn partition() -> &'static Path {
        Path::new(PARTITION)
    }
}
