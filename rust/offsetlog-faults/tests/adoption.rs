//! Adopting a directory that a broker set aside, on a disk in memory: power is lost at each change, or a call fails, and the same call
//! finishes. Nothing of the log is lost, nor of what stood in its place, and no state between is one in which a broker would cut it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "a test may panic"
)]

use offsetlog::disk::{Disk, IoCall};
use offsetlog::format::{PartitionMetadata, Uuid};
use offsetlog::{Adoption, Error, Log, LogWriter, WriteOptions, interrupted_adoption};
use offsetlog_faults::batch::Batch;
use offsetlog_faults::check::read;
use offsetlog_faults::fault::{FaultDisk, Plan};
use offsetlog_faults::report::{Failures, replayed, scaled};
use offsetlog_faults::run::{PARTITION, Run, clock, options};
use offsetlog_faults::script::Script;
use offsetlog_faults::sim::{Cut, Node, SimDisk, World};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

const LOG_DIR: &str = "/sim/logs";
const STRAY: &str = "/sim/logs/orders-0.0123456789abcdef0123456789abcdef-stray";
const MARKER: &str = "/sim/logs/.kafka_cleanshutdown";
/// What is to be told, as long as the note is there.
const TOLD: &str = "the log ended at 9";
/// Crashes at each change.
const CRASHES: usize = 3;

fn wanted() -> Uuid {
    Uuid::from_bytes([7; 16])
}

/// A log dir with a log that was set aside, and another one in its place.
struct Place {
    script: Script,
    world: World,
    batches: Vec<Batch>,
    start: i64,
    end: i64,
}

fn words(error: Error) -> String {
    error.to_string()
}

fn is_there(disk: &dyn Disk, path: &str) -> Result<bool, Error> {
    match disk.stat(Path::new(path)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io(IoCall::Stat, Path::new(path), error)),
        Ok(_) => Ok(true),
    }
}

/// What a caller does, the first time and again: finds the directory by its old name, or by the note, and adopts it.
fn adopt(disk: Arc<dyn Disk>) -> Result<(), Error> {
    let open = options(Arc::clone(&disk), &clock());
    let live = Path::new(PARTITION);
    let is_there = is_there(disk.as_ref(), STRAY)?;
    let directory = Path::new(if is_there { STRAY } else { PARTITION });
    let note = interrupted_adoption(directory, &open)?;
    if !is_there && note.is_none() {
        return Ok(());
    }
    let in_the_way = is_there && self::is_there(disk.as_ref(), PARTITION)?;
    let log = Log::open(directory, &open)?;
    let first = log.segments()?.first().map_or(0, |first| first.base_offset);
    if let Some(note) = &note {
        assert_eq!(note.told, [TOLD]);
    }
    let noted = note.filter(|_| is_there);
    let start = match noted.and_then(|note| note.log_start_offset) {
        Some(start) => start,
        None => log.log_start_offset()?,
    };
    let adoption = Adoption {
        directory: directory.to_path_buf(),
        topic: "orders".to_owned(),
        partition: 0,
        topic_id: Some(wanted()),
        in_the_way: in_the_way.then(|| live.to_path_buf()).into_iter().collect(),
        log_start_offset: Some(start).filter(|start| *start > first),
        checked_end_offset: log.log_end_offset()?,
        told: vec![TOLD.to_owned()],
    };
    drop(log);
    adoption.run(&open, || Ok(())).map(drop)
}

impl Place {
    fn new(script: Script) -> Result<Self, String> {
        let mut run = Run::whole(&script)?;
        run.log.take().expect("a log").close().map_err(words)?;
        let sim = run.sim;
        sim.rename(Path::new(PARTITION), Path::new(STRAY)).unwrap();
        // The start that only the log dir knew is lost with the name, as when a broker renames it.
        let open = options(Arc::new(sim.clone()), &clock());
        let reader = Log::open(STRAY, &open).map_err(words)?;
        let start = reader.log_start_offset().map_err(words)?;
        let end = reader.log_end_offset().map_err(words)?;
        let (batches, error) = read(&reader);
        drop(reader);
        if let Some(error) = error {
            return Err(format!("the log cannot be read: {error:?}"));
        }
        let fresh = WriteOptions {
            topic_id: Some(Uuid::from_bytes([8; 16])),
            ..WriteOptions::default()
        };
        let log = LogWriter::open(PARTITION, &open, &fresh).map_err(words)?;
        log.close().map_err(words)?;
        let mut rng = fastrand::Rng::with_seed(1);
        let world = sim.world().crash(Cut::Nothing, script.fill, &mut rng);
        Ok(Self {
            script,
            world,
            batches,
            start,
            end,
        })
    }

    /// Under one of the two names stands the whole log; under the partition's name nothing else but what stood there before.
    fn check_between(&self, world: &World) -> Result<(), String> {
        let is_there = |path: &str| world.node(Path::new(path)).is_some();
        if is_there(STRAY) {
            return self.check_log(world, STRAY);
        }
        self.check_log(world, PARTITION)?;
        let metadata = world.bytes(Path::new("/sim/logs/orders-0/partition.metadata"));
        let metadata = PartitionMetadata::parse(metadata.unwrap_or_default());
        if metadata.map(|found| found.topic_id) != Ok(wanted()) {
            return Err("the partition has its name, and not its topic id".to_owned());
        }
        // With the mark of a clean stop a broker looks at no log: it comes back when the log was closed, and its lines are there.
        if is_there(MARKER) {
            let lines = world.bytes(Path::new("/sim/logs/recovery-point-offset-checkpoint"));
            let lines = String::from_utf8_lossy(lines.unwrap_or_default()).into_owned();
            let line = format!("orders 0 {}", self.end);
            if !lines.lines().any(|found| found == line) {
                return Err("marked clean before the log was closed".to_owned());
            }
        }
        Ok(())
    }

    fn check_log(&self, world: &World, path: &str) -> Result<(), String> {
        let disk = SimDisk::new(world.clone());
        let reader = Log::open(path, &options(Arc::new(disk), &clock())).map_err(words)?;
        let (found, error) = read(&reader);
        let end = reader.log_end_offset().map_err(words)?;
        // A directory that was set aside has its start in a file of its own, which goes before the line is written.
        let kept: Vec<_> = found
            .iter()
            .filter(|batch| batch.last >= self.start)
            .collect();
        let expected: Vec<_> = self.batches.iter().collect();
        if kept != expected || error.is_some() || end != self.end {
            return Err(format!(
                "{path} holds {found:?}, {error:?}, {end}; {expected:?}, {} expected",
                self.end
            ));
        }
        Ok(())
    }

    /// After it came to its end.
    fn check_done(&self, world: &World) -> Result<(), String> {
        self.check_between(world)?;
        let open = options(Arc::new(SimDisk::new(world.clone())), &clock());
        let log = Log::open(PARTITION, &open).map_err(words)?;
        let start = log.log_start_offset().map_err(words)?;
        if start != self.start {
            return Err(format!("begins at {start}, not at {}", self.start));
        }
        drop(log);
        let mut asides = 0;
        for (name, node) in world.children(Path::new(LOG_DIR)) {
            if node == Node::Directory && name != "orders-0" {
                asides += 1;
                if !name.ends_with("-stray") || format!("{LOG_DIR}/{name}") == STRAY {
                    return Err(format!("a folder {name} is left"));
                }
            }
        }
        if asides != 1 {
            return Err(format!("{asides} folders set aside, 1 expected"));
        }
        let note = Path::new("/sim/logs/orders-0/.offsetlog.adopting");
        if world.node(note).is_some() {
            return Err("the note is left".to_owned());
        }
        Ok(())
    }

    /// What a crash left, and the same call again.
    fn check(&self, world: &World, is_done: bool) -> Result<(), String> {
        self.check_between(world)?;
        if is_done {
            return self.check_done(world);
        }
        let disk = SimDisk::new(world.clone());
        adopt(Arc::new(disk.clone())).map_err(|error| format!("again: {error}"))?;
        // Of a call that had come to its last step, only the note may come back with power that is lost now.
        let mut rng = fastrand::Rng::with_seed(1);
        let world = disk.world().crash(Cut::Process, self.script.fill, &mut rng);
        self.check_done(&world)
            .map_err(|error| format!("again: {error}"))
    }

    /// Loses power at each change.
    fn crash(&self, seed: u64) -> Result<usize, String> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new(self.world.clone());
        adopt(Arc::new(disk.clone())).map_err(words)?;
        let changes = disk.recorded();
        let mut world = self.world.clone();
        let mut states = 0;
        for count in 0..=changes.len() {
            if count > 0 {
                world.apply(&changes[count - 1]);
            }
            for slot in 0..CRASHES {
                let cut = [Cut::Nothing, Cut::Random, Cut::Process][slot];
                let image = world.crash(cut, self.script.fill, &mut rng);
                self.check(&image, count == changes.len())
                    .map_err(|error| {
                        format!(
                            "after {count} of {} changes, {cut:?}: {error}",
                            changes.len()
                        )
                    })?;
                states += 1;
            }
        }
        Ok(states)
    }

    /// The nth call fails, for each n.
    fn fail(&self, error: i32) -> Result<usize, String> {
        for nth in 1.. {
            let sim = SimDisk::new(self.world.clone());
            let plan = Plan {
                nth,
                error,
                half: true,
                ..Plan::none()
            };
            let faults = FaultDisk::over(&sim, plan);
            let adopted = adopt(Arc::new(faults.clone()));
            let failed = faults.failed();
            let place = |words: String| format!("call {nth}, {failed:?}, {adopted:?}: {words}");
            let (files, locks) = (sim.open_files(), sim.held_locks());
            if files + locks > 0 {
                return Err(place(format!("{files} files and {locks} locks left")));
            }
            let mut rng = fastrand::Rng::with_seed(1);
            let image = sim.world().crash(Cut::Process, self.script.fill, &mut rng);
            self.check(&image, adopted.is_ok()).map_err(place)?;
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
        (seed, Script::random(&mut fastrand::Rng::with_seed(seed)))
    })
    .filter(|(_, script)| script.log_dir)
    .map(|(seed, script)| (seed, Place::new(script).expect("the script runs")))
}

#[test]
fn after_a_crash_at_any_change_the_same_call_finishes() {
    let (mut failures, mut states) = (Failures::default(), 0);
    for (seed, place) in places(1) {
        match place.crash(seed) {
            Ok(seen) => states += seen,
            Err(error) => {
                states += 1;
                failures.note(seed, &place.script, &error);
            }
        }
        if states > scaled(3_000) || replayed().is_some() {
            break;
        }
    }
    failures.end("adoption");
}

#[test]
fn after_an_error_of_any_call_the_same_call_finishes() {
    let mut failures = Failures::default();
    for (seed, place) in places(5).take(if replayed().is_some() { 1 } else { 6 }) {
        for error in [5, 28] {
            if let Err(error) = place.fail(error) {
                failures.note(seed, &place.script, &error);
            }
        }
    }
    failures.end("adoption");
}
