//! Row 26: power is lost at any change of the disk while a log is converted, or a call fails: the old log is as it was, and under the
//! new name stands nothing or all of it.
use offsetlog::disk::{Access, Disk};
use offsetlog::{
    ConvertOptions, Error, Log, LogWriter, NewPartition, PartitionBuilder, WriteOptions, convert,
};
use offsetlog_faults::batch::Batch;
use offsetlog_faults::check::read;
use offsetlog_faults::fault::{FaultDisk, Plan};
use offsetlog_faults::files::{batches, segments};
use offsetlog_faults::report::{Failures, Row, replayed, scaled};
use offsetlog_faults::run::{PARTITION, Run, clock, options};
use offsetlog_faults::script::Script;
use offsetlog_faults::sim::{Cut, Names, Node, SimDisk, World};
use std::path::Path;
use std::sync::Arc;

/// Another topic; in a log dir, if there is one.
const NEW: &str = "/sim/logs/copy-0";
/// Crashes at each change.
const CRASHES: usize = 3;

/// A log that is to be converted, closed and on the disk.
struct Old {
    script: Script,
    world: World,
    files: Vec<(String, Vec<u8>)>,
    batches: Vec<Batch>,
    log_start: i64,
    log_end: i64,
}

fn files(world: &World, directory: &str) -> Vec<(String, Vec<u8>)> {
    let found = world
        .files()
        .filter(|(path, _)| path.starts_with(directory));
    found
        .map(|(path, bytes)| (path.display().to_string(), bytes.to_vec()))
        .collect()
}

/// Those that are not empty: an empty one may stand at the end, for the offsets behind the last record.
fn with_records(mut batches: Vec<Batch>) -> Vec<Batch> {
    batches.retain(|batch| !batch.records().is_empty());
    batches
}

impl Old {
    fn new(script: Script) -> Result<Self, String> {
        let mut run = Run::whole(&script)?;
        let log = run.log.take().expect("a log");
        let words = |error: Error| error.to_string();
        log.close().map_err(words)?;
        let world =
            run.sim
                .world()
                .crash(Cut::Nothing, script.fill, &mut fastrand::Rng::with_seed(1));
        let (log_start, next) = (run.model.log_start(), run.model.next);
        let mut batches = run.model.current.clone();
        // Behind a truncation inside a batch the files do not tell how far the log went.
        let disk = SimDisk::new(world.clone());
        let reader = Log::open(PARTITION, &options(Arc::new(disk), &clock())).map_err(words)?;
        let log_end = reader.log_end_offset().map_err(words)?;
        let after = batches.last().map_or(0, |batch| batch.last + 1);
        if log_end != next && log_end != after.max(log_start) {
            return Err(format!("the old log ends at {log_end}, not {next}"));
        }
        batches.retain(|batch| batch.last >= log_start);
        let batches = with_records(batches);
        Ok(Self {
            files: files(&world, PARTITION),
            log_end,
            script,
            world,
            batches,
            log_start,
        })
    }

    fn is_empty(&self) -> bool {
        !self
            .files
            .iter()
            .any(|(path, bytes)| path.ends_with(".log") && !bytes.is_empty())
    }

    /// Converts on a disk: what the engine says, if that can be.
    fn convert(&self, disk: Arc<dyn Disk>) -> Result<Result<(), Error>, String> {
        let options = options(disk, &clock());
        let report = match convert(PARTITION, NEW, &options, &ConvertOptions::default()) {
            Ok(report) => report,
            Err(error) => return Ok(Err(error)),
        };
        let ends = (report.log_start_offset, report.log_end_offset);
        if ends == (self.log_start, self.log_end) {
            Ok(Ok(()))
        } else {
            let expected = (self.log_start, self.log_end);
            Err(format!("{ends:?} converted, {expected:?} expected"))
        }
    }

    /// The new log, if there is one, is the old one; says whether there is.
    fn check_new(&self, world: &World) -> Result<bool, String> {
        let is_there = world.node(Path::new(NEW)).is_some() && !files(world, NEW).is_empty();
        if !is_there {
            return Ok(false);
        }
        let words = |error: Error| format!("the new log: {error}");
        let disk = SimDisk::new(world.clone());
        let options = options(Arc::new(disk.clone()), &clock());
        let reader = Log::open(NEW, &options).map_err(words)?;
        let is_whole = |ends| ends == (self.log_start, self.log_end);
        let (found, error) = read(&reader);
        let ends = (
            reader.log_start_offset().map_err(words)?,
            reader.log_end_offset().map_err(words)?,
        );
        let found = with_records(found);
        if found != self.batches || error.is_some() || !is_whole(ends) {
            return Err(format!(
                "a reader of the new log finds {found:?}, {error:?}, {ends:?}; {:?}, {:?} expected",
                self.batches,
                (self.log_start, self.log_end)
            ));
        }
        drop(reader);
        let log = LogWriter::open(NEW, &options, &WriteOptions::default()).map_err(words)?;
        let report = log.recovery_report();
        let ends = (
            log.log_start_offset().map_err(words)?,
            log.log_end_offset().map_err(words)?,
        );
        if !report.cut.is_empty() || !is_whole(ends) {
            return Err(format!(
                "a writer of the new log finds {ends:?}: {report:?}"
            ));
        }
        log.close().map_err(words)?;
        let left = with_records(disk.look(|world| batches(&segments(world, Path::new(NEW)))));
        if left != self.batches {
            return Err(format!(
                "the new log holds {left:?}, {:?} expected",
                self.batches
            ));
        }
        Ok(true)
    }

    /// What a crash left.
    fn check(&self, world: &World, is_done: bool) -> Result<(), String> {
        if files(world, PARTITION) != self.files {
            return Err("the old log changed".to_owned());
        }
        for (name, node) in world.children(Path::new("/sim/logs")) {
            let is_known = ["orders-0", "copy-0"].contains(&name) || name.ends_with("-delete");
            if node == Node::Directory && !is_known {
                return Err(format!(
                    "a folder {name} is left, which keeps a broker from starting"
                ));
            }
        }
        let is_there = self.check_new(world)?;
        if is_there {
            return Ok(());
        }
        if is_done {
            return Err("the new log was finished, and is not there".to_owned());
        }
        // It can be done again.
        let disk = SimDisk::new(world.clone());
        self.convert(Arc::new(disk.clone()))?
            .map_err(|error| format!("converting again: {error}"))?;
        if self.check_new(&disk.world())? {
            Ok(())
        } else {
            Err("converted again, and not there".to_owned())
        }
    }
}

/// Converts a log and loses power at each change.
fn crash(old: &Old, seed: u64) -> Result<usize, String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let disk = SimDisk::new(old.world.clone());
    old.convert(Arc::new(disk.clone()))?
        .map_err(|error| format!("converting: {error}"))?;
    let changes = disk.recorded();
    let mut world = old.world.clone();
    let mut states = 0;
    for count in 0..=changes.len() {
        if count > 0 {
            world.apply(&changes[count - 1]);
        }
        for slot in 0..CRASHES {
            let cut = [Cut::Nothing, Cut::Random, Cut::Random, Cut::Process]
                [if slot == 0 { rng.usize(..4) } else { 1 }];
            let image = world.crash(cut, old.script.fill, &mut rng);
            let is_done = count == changes.len();
            old.check(&image, is_done).map_err(|error| {
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
fn fail(old: &Old, error: i32) -> Result<usize, String> {
    for nth in 1.. {
        let sim = SimDisk::new(old.world.clone());
        let plan = Plan {
            nth,
            error,
            half: true,
            ..Plan::none()
        };
        let faults = FaultDisk::over(&sim, plan);
        let converted = old.convert(Arc::new(faults.clone()));
        let failed = faults.failed();
        let done = converted.map_err(|error| format!("call {nth}, {failed:?}: {error}"))?;
        let place = |words: String| {
            format!(
                "call {nth}, {failed:?}, the engine said {:?}: {words}",
                done.as_ref().err()
            )
        };
        let (files, locks) = (sim.open_files(), sim.held_locks());
        if files + locks > 0 {
            return Err(place(format!("F14: {files} files and {locks} locks left")));
        }
        let image = sim.world().crash(
            Cut::Process,
            old.script.fill,
            &mut fastrand::Rng::with_seed(1),
        );
        if let Err(error) = &done
            && image.node(Path::new(NEW)).is_some()
            && !error.to_string().contains("is complete and durable")
        {
            return Err(place("the new log is there nevertheless".to_owned()));
        }
        old.check(&image, done.is_ok()).map_err(place)?;
        if failed.is_empty() {
            return Ok(nth as usize);
        }
    }
    Ok(0)
}

/// Scripts that once failed: run first. The line above says what was wrong.
const REGRESSIONS: [&str; 2] = [
    // A state file that could not be read counted as none, and deleted records were converted.
    "strict=false stale=true log_dir=false segment=20000 index=600 interval=1000 preallocate=true late=true: \
     roll; append 5 15969; delete 3; roll; append 4 1964;",
    // Power lost behind the rename, before the log dir knew the log start offset.
    "strict=true stale=false log_dir=true segment=4000 index=96 interval=0 preallocate=false late=true: \
     append 4 47964; append 2 41430; delete 2; durable 38485;",
];

fn logs(seed: u64) -> impl Iterator<Item = (u64, Old)> {
    let known = REGRESSIONS.map(|line| (1, line.parse().expect("a script")));
    let mut seeds = fastrand::Rng::with_seed(seed);
    let drawn = std::iter::repeat_with(move || {
        let seed = replayed().unwrap_or_else(|| seeds.u64(..));
        (seed, Script::random(&mut fastrand::Rng::with_seed(seed)))
    });
    known
        .into_iter()
        .filter(|_| replayed().is_none())
        .chain(drawn)
        .map(|(seed, script)| (seed, Old::new(script).expect("the script runs")))
        .filter(|(_, old)| !old.is_empty())
}

#[test]
fn a_crash_leaves_the_old_log_and_nothing_or_all_of_the_new_one() {
    let mut row = Row::begin(
        26,
        "convert",
        "crash while converting",
        "states",
        scaled(3_000),
    );
    let mut failures = Failures::default();
    for (seed, old) in logs(row.seed) {
        match crash(&old, seed) {
            Ok(states) => row.count(states),
            Err(error) => {
                row.count(1);
                failures.note(seed, &old.script, &error);
            }
        }
        if !row.goes_on() || replayed().is_some() {
            break;
        }
    }
    failures.end("row-26");
    row.end(&"");
}

#[test]
fn a_call_that_fails_leaves_the_old_log_and_nothing_or_all_of_the_new_one() {
    let mut row = Row::begin(
        26,
        "convert-errors",
        "error while converting",
        "injections",
        scaled(1_000),
    );
    let mut failures = Failures::default();
    for (seed, old) in logs(row.seed) {
        match [5, 28]
            .into_iter()
            .map(|error| fail(&old, error))
            .sum::<Result<usize, _>>()
        {
            Ok(injections) => row.count(injections),
            Err(error) => {
                row.count(1);
                failures.note(seed, &old.script, &error);
            }
        }
        if !row.goes_on() || replayed().is_some() {
            break;
        }
    }
    failures.end("row-26");
    row.end(&"");
}

/// The nth call fails while a new partition takes the place of one that never had a record, as `restore` lets it. Returns whether a call
/// failed.
fn replace(nth: u64) -> Result<bool, String> {
    let words = |error: Error| error.to_string();
    let sim = SimDisk::new(World::new(Names::Strict, &["/sim", "/sim/logs"]));
    let sound = options(Arc::new(sim.clone()), &clock());
    sim.open(
        Path::new("/sim/logs/recovery-point-offset-checkpoint"),
        Access::Replace,
    )
    .and_then(|file| file.write_at(b"0\n0\n", 0))
    .expect("a log dir's file");
    let empty = LogWriter::open(NEW, &sound, &WriteOptions::default()).map_err(words)?;
    let topic_id = empty.topic_id().map_err(words)?;
    empty.close().map_err(words)?;
    let faults = FaultDisk::over(&sim, Plan::none());
    let begin = NewPartition {
        topic_id,
        base_offset: Some(7),
        replaces_empty: true,
        ..NewPartition::default()
    };
    let failing = options(Arc::new(faults.clone()), &clock());
    let builder = PartitionBuilder::create(NEW, &failing, &begin).map_err(words)?;
    faults.set(Plan {
        nth,
        ..Plan::none()
    });
    let finished = builder.finish(7, 7);
    let failed = faults.failed();
    let log = Log::open(NEW, &sound).map_err(|error| {
        format!("call {nth}, {failed:?}, the engine said {finished:?}: {error}")
    })?;
    let end = log.log_end_offset().map_err(words)?;
    let is_complete = finished.as_ref().map_or_else(
        |error| error.to_string().contains("is complete and durable"),
        |_| true,
    );
    let expected = if is_complete { 7 } else { 0 };
    if (end, log.topic_id().map_err(words)?) != (expected, topic_id) {
        return Err(format!(
            "call {nth}, {failed:?}, the engine said {finished:?}: the log ends at {end}, {expected} expected"
        ));
    }
    Ok(!failed.is_empty())
}

#[test]
fn a_call_that_fails_leaves_the_empty_partition_that_was_to_be_replaced() {
    let mut nth = 1;
    while replace(nth).expect("the old one or the new one") {
        nth += 1;
    }
    assert!(nth > 50, "{nth} calls");
}
