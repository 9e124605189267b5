//! Moving a staged log into its partition, on a disk in memory: power is lost at each change, or a call fails, and the next commit
//! finishes. Every record that was there stays, and every staged one comes once, in order, whatever fails and however often.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "a test may panic"
)]

use offsetlog::disk::Disk;
use offsetlog::{
    AppendLogOptions, AppendOptions, BatchBuilder, Error, Log, LogWriter, WriteOptions, moving_note,
};
use offsetlog_faults::batch::Batch;
use offsetlog_faults::check::read;
use offsetlog_faults::fault::{FaultDisk, Plan};
use offsetlog_faults::report::{Failures, replayed, scaled};
use offsetlog_faults::run::{PARTITION, Run, clock, config, options};
use offsetlog_faults::script::Script;
use offsetlog_faults::sim::{Cut, SimDisk, World};
use std::path::Path;
use std::sync::Arc;

const OTHER: &[u8] = b"what another one appended";
const STAGED: &str = "/sim/logs/orders-0/offsetlog-staging/job/attempt/orders-0";
/// Crashes at each change.
const CRASHES: [Cut; 4] = [Cut::Nothing, Cut::Random, Cut::Random, Cut::Process];

fn words(error: Error) -> String {
    error.to_string()
}

/// A log, and one that was staged for it.
struct Place {
    script: Script,
    world: World,
    before: Vec<Batch>,
    start: i64,
    end: i64,
    staged: Vec<Batch>,
    /// Whether another one appends before, and nobody syncs that.
    has_other: bool,
}

/// What of a batch stays when it gets another offset and epoch.
fn body(batch: &Batch) -> &[u8] {
    &batch.bytes[16..]
}

/// What a commit does, the first time and again: publishes what is not there. Returns whether it was moved.
fn publish(disk: Arc<dyn Disk>, place: &Place) -> Result<bool, Error> {
    publish_and(disk, place, || {})
}

/// The same; does something when all of it is flushed.
fn publish_and(disk: Arc<dyn Disk>, place: &Place, flushed: impl FnOnce()) -> Result<bool, Error> {
    let open = options(Arc::clone(&disk), &clock());
    let log = LogWriter::open(PARTITION, &open, &WriteOptions::default())?;
    let noted = moving_note(disk.as_ref(), Path::new(STAGED))?;
    if let Some(noted) = &noted {
        assert_eq!(noted.len(), place.staged.len());
    }
    let (found, error) = read(&log);
    if let Some(error) = error {
        return Err(error);
    }
    let there = found.iter().filter(|batch| place.is_staged(batch)).count();
    let left = place.staged.len() - there;
    let mut is_moved = false;
    if left > 0 {
        if place.has_other && there == 0 && noted.is_none() {
            let mut batch = BatchBuilder::default();
            batch.push(1_700_000_100_000, Some(b"key"), Some(OTHER), &[])?;
            log.append(&mut batch, &AppendOptions::default())?;
        }
        let can_move = there == 0 || noted.is_some();
        is_moved = can_move && log.move_log(Path::new(STAGED), left, None)?.is_some();
        if !is_moved {
            let copy = AppendLogOptions {
                start: Some(place.staged[there].base),
                ..AppendLogOptions::default()
            };
            log.append_log(&Log::open(STAGED, &open)?, &copy)?;
        }
    }
    log.flush()?;
    flushed();
    log.close()?;
    Ok(is_moved)
}

impl Place {
    fn is_staged(&self, batch: &Batch) -> bool {
        self.staged.iter().any(|staged| body(staged) == body(batch))
    }

    fn new(script: Script, rng: &mut fastrand::Rng) -> Result<Self, String> {
        let mut run = Run::whole(&script)?;
        run.log.take().expect("a log").close().map_err(words)?;
        let sim = run.sim;
        let open = options(Arc::new(sim.clone()), &clock());
        let write = WriteOptions {
            config: Some(config(&script)),
            ..WriteOptions::default()
        };
        let log = LogWriter::open(STAGED, &open, &write).map_err(words)?;
        // At least a quarter of a segment, at most several.
        let least =
            u64::from(script.segment_bytes) / 4 + rng.u64(0..2 * u64::from(script.segment_bytes));
        // A few dozen batches, whatever the segments hold.
        let longest = (script.segment_bytes as usize / 6).min(3_000);
        let (mut bytes, mut number) = (0, 0);
        while bytes < least {
            let mut batch = BatchBuilder::default();
            for _ in 0..rng.usize(1..4) {
                let value = format!("staged {number} {}", "x".repeat(rng.usize(0..longest)));
                let key = format!("key {number}");
                let time = 1_700_000_200_000 + number;
                batch
                    .push(time, Some(key.as_bytes()), Some(value.as_bytes()), &[])
                    .map_err(words)?;
                bytes += value.len() as u64 + 60;
                number += 1;
            }
            log.append(&mut batch, &AppendOptions::default())
                .map_err(words)?;
        }
        log.close().map_err(words)?;
        let staged = read(&Log::open(STAGED, &open).map_err(words)?).0;
        let reader = Log::open(PARTITION, &open).map_err(words)?;
        let (before, error) = read(&reader);
        if let Some(error) = error {
            return Err(format!("the log cannot be read: {error:?}"));
        }
        let start = reader.log_start_offset().map_err(words)?;
        let end = reader.log_end_offset().map_err(words)?;
        drop(reader);
        let world = sim.world().crash(Cut::Process, script.fill, rng);
        Ok(Self {
            script,
            world,
            before,
            start,
            end,
            staged,
            has_other: false,
        })
    }

    /// The log as it was, and behind it what others appended and the first ones of the staged batches, each whole; all of them if it
    /// `is_done`.
    fn check_log(&self, world: &World, is_done: bool) -> Result<(), String> {
        let disk = SimDisk::new(world.clone());
        let reader = Log::open(PARTITION, &options(Arc::new(disk), &clock())).map_err(words)?;
        let (found, error) = read(&reader);
        let (before, new): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|batch| batch.base < self.end);
        if error.is_some() || before != self.before {
            return Err(format!("{before:?}, {error:?}; {:?} expected", self.before));
        }
        let others = new.iter().take_while(|batch| !self.is_staged(batch));
        let mut next = others.last().map_or(self.end, |batch| batch.last + 1);
        let new: Vec<&Batch> = new.iter().filter(|batch| batch.base >= next).collect();
        for (batch, staged) in new.iter().zip(&self.staged) {
            if batch.base != next || body(batch) != body(staged) {
                return Err(format!("{batch:?} found, {staged:?} at {next} expected"));
            }
            let located = reader.locate(batch.last).map_err(words)?;
            if located.batch.map(|found| found.base_offset) != Some(batch.base) {
                return Err(format!("{} is not found in {batch:?}", batch.last));
            }
            next = batch.last + 1;
        }
        let start = reader.log_start_offset().map_err(words)?;
        let end = reader.log_end_offset().map_err(words)?;
        if new.len() > self.staged.len() || (is_done && new.len() < self.staged.len()) {
            return Err(format!("{} of {} batches", new.len(), self.staged.len()));
        }
        if start != self.start || end != next {
            return Err(format!(
                "{start} to {end}; {} to {next} expected",
                self.start
            ));
        }
        Ok(())
    }

    /// What a crash left, and the commit that comes next; now and then that one dies, too.
    fn check(&self, world: &World, is_done: bool, rng: &mut fastrand::Rng) -> Result<(), String> {
        // What nobody synced may be torn until the next one opens the log.
        if is_done || !self.has_other {
            self.check_log(world, is_done)?;
        }
        let disk = SimDisk::new(world.clone());
        publish(Arc::new(disk.clone()), self).map_err(|error| format!("again: {error}"))?;
        if rng.u8(0..4) == 0 {
            let changes = disk.recorded();
            let mut world = world.clone();
            for change in &changes[..rng.usize(..=changes.len())] {
                world.apply(change);
            }
            let image = world.crash(Cut::Random, self.script.fill, rng);
            let image = SimDisk::new(image);
            publish(Arc::new(image.clone()), self)
                .map_err(|error| format!("a third time: {error}"))?;
            let world = image.world().crash(Cut::Nothing, self.script.fill, rng);
            self.check_log(&world, true)
                .map_err(|error| format!("a third time: {error}"))?;
        }
        let world = disk.world().crash(Cut::Nothing, self.script.fill, rng);
        self.check_log(&world, true)
            .map_err(|error| format!("again: {error}"))
    }

    /// Loses power at each change. Returns how often, and whether the log was moved.
    fn crash(&self, seed: u64) -> Result<(usize, bool), String> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new(self.world.clone());
        let mut durable = usize::MAX;
        let is_moved = publish_and(Arc::new(disk.clone()), self, || durable = disk.changes());
        let is_moved = is_moved.map_err(words)?;
        let changes = disk.recorded();
        let mut world = self.world.clone();
        let mut states = 0;
        for count in 0..=changes.len() {
            if count > 0 {
                world.apply(&changes[count - 1]);
            }
            for cut in CRASHES {
                let image = world.crash(cut, self.script.fill, &mut rng);
                self.check(&image, count >= durable, &mut rng)
                    .map_err(|error| {
                        let last = count.checked_sub(1).map(|last| &changes[last]);
                        let all = changes.len();
                        format!("after {count} of {all} changes, {last:?}, {cut:?}: {error}")
                    })?;
                states += 1;
            }
        }
        Ok((states, is_moved))
    }

    /// The nth call fails, for each n.
    fn fail(&self, error: i32) -> Result<usize, String> {
        let mut rng = fastrand::Rng::with_seed(1);
        for nth in 1.. {
            let sim = SimDisk::new(self.world.clone());
            let plan = Plan {
                nth,
                error,
                half: true,
                ..Plan::none()
            };
            let faults = FaultDisk::over(&sim, plan);
            let published = publish(Arc::new(faults.clone()), self);
            let failed = faults.failed();
            let place = |words: String| format!("call {nth}, {failed:?}, {published:?}: {words}");
            for cut in [Cut::Process, Cut::Nothing] {
                let image = sim.world().crash(cut, self.script.fill, &mut rng);
                self.check(&image, published.is_ok(), &mut rng)
                    .map_err(place)?;
            }
            if failed.is_empty() {
                return Ok(nth as usize);
            }
        }
        Ok(0)
    }
}

fn places(seed: u64) -> impl Iterator<Item = (u64, Place)> {
    let mut seeds = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(move || {
        let seed = replayed().unwrap_or_else(|| seeds.u64(..));
        let mut rng = fastrand::Rng::with_seed(seed);
        let script = Script::random(&mut rng);
        let place = Place::new(script, &mut rng).expect("the script runs");
        (seed, place)
    })
}

#[test]
fn after_a_crash_at_any_change_each_record_is_there_once() {
    crash_all(1, false, 12_000);
}

/// What is moved is behind records that are on the disk, or the next opening would take it out with what is missing.
#[test]
fn after_a_crash_behind_what_nobody_synced_each_record_is_there_once() {
    crash_all(2, true, 6_000);
}

fn crash_all(chance: u64, has_other: bool, states_min: usize) {
    let (mut failures, mut states, mut logs, mut moved) = (Failures::default(), 0, 0, 0);
    for (seed, mut place) in places(chance) {
        place.has_other = has_other;
        logs += 1;
        match place.crash(seed) {
            Ok((seen, is_moved)) => {
                states += seen;
                moved += usize::from(is_moved);
            }
            Err(error) => {
                states += 100;
                failures.note(seed, &place.script, &error);
            }
        }
        if states > scaled(states_min) || replayed().is_some() {
            break;
        }
    }
    failures.end("move_log");
    // The others have indexes without room.
    assert!(
        replayed().is_some() || moved * 2 > logs,
        "{moved} of {logs}"
    );
}

#[test]
fn after_an_error_of_any_call_each_record_is_there_once() {
    let mut failures = Failures::default();
    for (seed, place) in places(5).take(if replayed().is_some() { 1 } else { 12 }) {
        for error in [5, 28] {
            if let Err(error) = place.fail(error) {
                failures.note(seed, &place.script, &error);
            }
        }
    }
    failures.end("move_log");
}
