//! Row 11: files of real brokers with one place changed. Whatever is changed, reading ends with a typed error or with records that are
//! the broker's.
//!
//! What no check covers is a batch's base offset, in magic 2 also its partition leader epoch: a broker rewrites them without computing the
//! checksum anew. A change there may move a batch's records to other offsets, or to another epoch, and nothing else.

use offsetlog::{
    FetchOptions, Isolation, Log, LogWriter, OnCorrupt, OpenOptions, Record, ScanOptions,
    VerifyOptions, WriteOptions,
};
use offsetlog_faults::damage::{BLOCK_BYTES, Edit, edits};
use offsetlog_faults::golden::{Golden, LOG_DIR, LOG_START, TARGETS, Target};
use offsetlog_faults::report::{Failures, Row, replayed, scaled, variable};
use offsetlog_faults::run::{clock, options};
use offsetlog_faults::sim::{Names, World};
use offsetlog_faults::{SimDisk, StillDisk};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

const FLOOR: usize = 150_000;
/// Longer than anything here may take, each time it is tried: once, a busy machine may be silent for as long.
const HANG: Duration = Duration::from_secs(1);
const TRIES: usize = 5;
/// Lengths of blocks that are tried at each place, of 64.
const BLOCKS: usize = 1;
/// One input of so many is also opened for appending, which recovers.
const OPENED_FOR_APPEND: usize = 20;

/// What is damaged, and what was read before.
struct Case {
    target: Target,
    golden: Golden,
    file: usize,
    disk: StillDisk,
    options: OpenOptions,
    before: Before,
    /// The same on a disk that can be written to.
    world: World,
}

/// What the undamaged files say.
struct Before {
    records: BTreeMap<i64, Record>,
    committed: Vec<Record>,
    /// Answers to look-ups by time.
    times: Vec<(i64, Option<i64>)>,
    /// Warnings and errors of `verify`.
    findings: u64,
}

/// What of a changed log no check covers.
#[derive(Default)]
struct Free {
    /// By how much a batch may lie elsewhere; `None` for any number.
    moves: Vec<Option<i64>>,
    /// A batch may have any leader epoch.
    epoch: bool,
}

/// What a scan gave.
struct Reading {
    records: Vec<Record>,
    error: Option<offsetlog::Error>,
    /// It ended before a torn tail, or left something out.
    said: bool,
}

struct Input<'c> {
    case: &'c Case,
    edits: &'c [Edit],
}

impl Display for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (log_dir, partition, bases, file, _) = self.case.target;
        write!(f, "{log_dir}/{partition} {bases:?} {file}:")?;
        self.edits.iter().try_for_each(|edit| write!(f, " {edit};"))
    }
}

fn read(log: &Log, isolation: Isolation, on_corrupt: OnCorrupt) -> Reading {
    let options = ScanOptions {
        isolation,
        on_corrupt,
        control_records: true,
        ..ScanOptions::default()
    };
    let mut reading = Reading {
        records: Vec::new(),
        error: None,
        said: false,
    };
    let mut scan = match log.scan(&options) {
        Ok(scan) => scan,
        Err(error) => {
            reading.error = Some(error);
            return reading;
        }
    };
    loop {
        let batch = match scan.next_batch() {
            Ok(Some(mut batch)) => loop {
                match batch.next_record() {
                    Ok(Some(view)) => match Record::new(batch.header(), &view) {
                        Ok(record) => reading.records.push(record),
                        Err(error) => break Err(error),
                    },
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            },
            Ok(None) => break,
            Err(error) => Err(error),
        };
        if let Err(error) = batch {
            reading.error = Some(error);
            break;
        }
    }
    reading.said = !scan.torn_tails().is_empty() || scan.report().hole_count() > 0;
    reading
}

fn time(log: &Log, timestamp: i64) -> Result<Option<i64>, offsetlog::Error> {
    let found = log.offset_for_timestamp(timestamp, Isolation::ReadUncommitted)?;
    Ok(found.map(|found| found.offset))
}

impl Before {
    fn of(log: &Log) -> Self {
        let all = read(log, Isolation::ReadUncommitted, OnCorrupt::Raise);
        assert!(
            all.error.is_none() && !all.said && !all.records.is_empty(),
            "{}: {:?}",
            log.path().display(),
            all.error
        );
        let committed = read(log, Isolation::ReadCommitted, OnCorrupt::Raise);
        let middle = &all.records[all.records.len() / 2];
        let times = [middle.timestamp, middle.timestamp + 1, i64::MAX]
            .map(|at| (at, time(log, at).expect("a sound log")));
        let [_, warnings, errors] = log
            .verify(&VerifyOptions::default())
            .expect("a sound log")
            .counts;
        Self {
            records: all
                .records
                .into_iter()
                .map(|record| (record.offset, record))
                .collect(),
            committed: committed.records,
            times: times.to_vec(),
            findings: warnings + errors,
        }
    }
}

impl Free {
    fn is_nothing(&self) -> bool {
        self.moves.is_empty() && !self.epoch
    }
}

impl Case {
    fn new(target: Target) -> Self {
        let (log_dir, partition, bases, file, _) = target;
        let golden = Golden::load(log_dir, partition, bases);
        let disk = StillDisk::new();
        let folder = golden.partition.to_str().expect("UTF-8");
        let mut world = World::new(Names::Journal, &[LOG_DIR, folder]);
        for (path, bytes) in &golden.files {
            disk.put(path, bytes);
            world.put(path.to_str().expect("UTF-8"), bytes);
        }
        let options = options(Arc::new(disk.clone()), &clock());
        let file = golden.file(file);
        if target.3 == LOG_START {
            // Without it the log begins where its first segment does: those records are the broker's too.
            disk.remove(&golden.files[file].0);
        }
        let log = Log::open(&golden.partition, &options).expect("a sound log");
        let before = Before::of(&log);
        assert_eq!(disk.astray(), 0, "{target:?}");
        Self {
            target,
            golden,
            file,
            disk,
            options,
            before,
            world,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.golden.files[self.file].1
    }

    /// Where a log begins is a number in a file that nothing protects.
    fn is_start(&self) -> bool {
        self.target.3 == LOG_START
    }

    fn is_log(&self) -> bool {
        self.target.3.ends_with(".log")
    }

    /// What of a change lies where no check covers the log.
    fn unprotected(&self, edit: Edit) -> Free {
        let mut free = Free::default();
        let bytes = self.bytes();
        let (touched, byte) = match edit {
            Edit::Set { at, byte } => (at..at + 1, Some(byte)),
            Edit::Cut { .. } => return free,
            Edit::Remove { at, count } | Edit::Double { at, count } => (at..at + count + 1, None),
        };
        let mut start = 0;
        while start + 17 <= bytes.len() {
            let meets = |field: Range<usize>| {
                touched.start < start + field.end && start + field.start < touched.end
            };
            // A byte more or less before the part that is covered makes a frame of other bytes around it.
            let front = if byte.is_some() { 0..8 } else { 0..16 };
            if meets(front) {
                free.moves.push(byte.map(|byte| {
                    let shift = 8 * (7 - (touched.start - start));
                    let was = u64::from(bytes[touched.start]) << shift;
                    (u64::from(byte) << shift).wrapping_sub(was) as i64
                }));
            }
            free.epoch |= bytes[start + 16] == 2 && meets(12..16);
            let size = bytes[start + 8..start + 12].try_into().expect("4 bytes");
            start += 12 + u32::from_be_bytes(size) as usize;
        }
        free
    }

    /// Puts a changed file in the place of the sound one, and checks all that is read.
    fn check(&self, edits: &[Edit], damaged: &Arc<Vec<u8>>, recover: bool) -> Result<(), String> {
        let mut took = self.check_once(edits, damaged, recover)?;
        for _ in 1..TRIES {
            if took > HANG {
                took = took.min(self.check_once(edits, damaged, recover)?);
            }
        }
        if took > HANG {
            return Err(format!("it took {took:?}"));
        }
        match self.disk.astray() {
            0 => Ok(()),
            reads => Err(format!("{reads} reads behind the end of a file")),
        }
    }

    fn check_once(
        &self,
        edits: &[Edit],
        damaged: &Arc<Vec<u8>>,
        recover: bool,
    ) -> Result<Duration, String> {
        self.disk.put(&self.golden.files[self.file].0, damaged);
        let begun = Instant::now();
        let checked = catch_unwind(AssertUnwindSafe(|| {
            self.read(edits)?;
            if recover {
                self.recover(edits, damaged)
            } else {
                Ok(())
            }
        }));
        let took = begun.elapsed();
        checked.map_err(|panic| {
            let words = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            format!("panic: {}", words.unwrap_or_default())
        })??;
        Ok(took)
    }

    fn read(&self, edits: &[Edit]) -> Result<(), String> {
        let log = match Log::open(&self.golden.partition, &self.options) {
            Ok(log) => log,
            Err(error) => return said(&error),
        };
        let raised = read(&log, Isolation::ReadUncommitted, OnCorrupt::Raise);
        self.records("scan", edits, &raised)?;
        let skipped = read(&log, Isolation::ReadUncommitted, OnCorrupt::Skip);
        self.records("scan that skips", edits, &skipped)?;
        self.committed(
            edits,
            &read(&log, Isolation::ReadCommitted, OnCorrupt::Raise),
        )?;
        self.look_ups(&log, edits)?;
        let report = match log.verify(&VerifyOptions::default()) {
            Ok(report) => report,
            Err(error) => return said(&error),
        };
        let [_, warnings, errors] = report.counts;
        let is_seen = warnings + errors > self.before.findings;
        if let (true, &[edit @ Edit::Set { .. }]) = (self.is_log(), edits)
            && self.unprotected(edit).is_nothing()
            && !is_seen
        {
            return Err(format!(
                "verify finds nothing new, only {:?}",
                report.findings
            ));
        }
        Ok(())
    }

    /// Every record is one of the broker's, at its offset; a scan that says nothing leaves none out.
    fn records(&self, who: &str, edits: &[Edit], reading: &Reading) -> Result<(), String> {
        if let Some(error) = &reading.error {
            said(error)?;
        }
        let mut free = Free::default();
        for &edit in edits.iter().filter(|_| self.is_log()) {
            let Free { moves, epoch } = self.unprotected(edit);
            free.moves.extend(moves);
            free.epoch |= epoch;
        }
        let mut next = i64::MIN;
        for record in &reading.records {
            if record.offset < next {
                return Err(format!(
                    "{who}: offset {} behind {}",
                    record.offset,
                    next - 1
                ));
            }
            next = record.offset.saturating_add(1);
            if !self.is_brokers(record, &free) {
                return Err(format!("{who}: not the broker's: {record:?}"));
            }
        }
        let changed_in_place =
            edits.iter().all(|edit| matches!(edit, Edit::Set { .. })) && free.moves.is_empty();
        if (changed_in_place || !self.is_log())
            && !self.is_start()
            && reading.error.is_none()
            && !reading.said
            && reading.records.len() < self.before.records.len()
        {
            return Err(format!(
                "{who}: {} of {} records, and nothing is said",
                reading.records.len(),
                self.before.records.len()
            ));
        }
        Ok(())
    }

    fn is_brokers(&self, record: &Record, free: &Free) -> bool {
        let is_same = |was: &Record| {
            let mut was = was.clone();
            was.offset = record.offset;
            if free.epoch {
                was.leader_epoch = record.leader_epoch;
            }
            was == *record
        };
        let before = &self.before.records;
        let at = |moved: i64| {
            let was = before.get(&record.offset.wrapping_sub(moved));
            was.is_some_and(is_same)
        };
        at(0)
            || free.moves.iter().any(|moved| match moved {
                Some(moved) => at(*moved),
                None => before.values().any(is_same),
            })
    }

    /// A companion that is damaged costs an error at most. In a log that is damaged, what is uncommitted may have lost its marker.
    fn committed(&self, edits: &[Edit], reading: &Reading) -> Result<(), String> {
        self.records("committed", edits, reading).or_else(|error| {
            if error.ends_with("nothing is said") {
                Ok(())
            } else {
                Err(error)
            }
        })?;
        if !self.is_log()
            && !self.is_start()
            && reading.error.is_none()
            && reading.records != self.before.committed
        {
            return Err("committed: other records than before".to_owned());
        }
        Ok(())
    }

    /// Indexes help and are never believed: damaged ones change no answer.
    fn look_ups(&self, log: &Log, edits: &[Edit]) -> Result<(), String> {
        for &(timestamp, expected) in &self.before.times {
            match time(log, timestamp) {
                Err(error) => said(&error)?,
                Ok(found) if found == expected || self.is_log() || self.is_start() => {}
                Ok(found) => {
                    return Err(format!(
                        "time {timestamp}: {found:?} found, {expected:?} expected"
                    ));
                }
            }
        }
        let offsets: Vec<i64> = self.before.records.keys().copied().collect();
        for offset in [
            offsets[0],
            offsets[offsets.len() / 2],
            offsets[offsets.len() - 1],
        ] {
            let expected = Some(&self.before.records[&offset]).filter(|record| !record.is_control);
            match log.get(offset) {
                Err(error) => said(&error)?,
                Ok(found) if self.is_log() => {
                    let reading = Reading {
                        records: found.into_iter().collect(),
                        error: None,
                        said: true,
                    };
                    self.records("get", edits, &reading)?;
                }
                Ok(found) if found.as_ref() == expected => {}
                Ok(found) => return Err(format!("get {offset}: {found:?} found")),
            }
            if let Err(error) = log.locate(offset) {
                said(&error)?;
            }
            if let Err(error) = log.fetch(offset, &FetchOptions::default()) {
                said(&error)?;
            }
        }
        Ok(())
    }

    /// Recovery keeps the broker's records, or says why it does nothing.
    fn recover(&self, edits: &[Edit], damaged: &[u8]) -> Result<(), String> {
        let mut world = self.world.clone();
        world.put(
            self.golden.files[self.file].0.to_str().expect("UTF-8"),
            damaged,
        );
        let options = options(Arc::new(SimDisk::new(world)), &clock());
        let write = WriteOptions::default();
        let log = match LogWriter::open(&self.golden.partition, &options, &write) {
            Ok(log) => log,
            Err(error) => return said(&error),
        };
        let mut reading = read(&log, Isolation::ReadUncommitted, OnCorrupt::Raise);
        reading.said |= log.recovery_report().is_changed();
        let checked = self.records("recovered", edits, &reading);
        log.abandon();
        checked
    }
}

/// An error says something, in one line.
fn said(error: &offsetlog::Error) -> Result<(), String> {
    let words = error.to_string();
    if words.is_empty() || words.contains('\n') {
        return Err(format!("an error says {words:?}"));
    }
    Ok(())
}

#[test]
fn every_change_of_a_brokers_files_is_met() {
    let scale: f64 = variable("OFFSETLOG_SCALE").unwrap_or(1.0);
    let mut row = Row::begin(11, "malformed", "malformed files", "inputs", scaled(FLOOR));
    let mut rng = fastrand::Rng::with_seed(row.seed);
    let mut failures = Failures::default();
    let mut buffer = Vec::new();
    // In a quick look a part of the changes, in a soak more lengths of blocks.
    let blocks = scaled(BLOCKS).clamp(1, BLOCK_BYTES);
    let cases: Vec<Case> = TARGETS.iter().map(|&target| Case::new(target)).collect();
    for case in &cases {
        let all = edits(case.bytes(), case.target.4, blocks, &mut rng);
        for (number, edit) in all.into_iter().enumerate() {
            if scale < 1.0 && rng.f64() > scale * 1.1 {
                continue;
            }
            try_one(
                case,
                &[edit],
                number % OPENED_FOR_APPEND == 0,
                &mut buffer,
                &mut failures,
                row.seed,
            );
            row.count(1);
        }
        restore(case);
    }
    // Two changes at once.
    while row.goes_on() && replayed().is_none() {
        let case = &cases[rng.usize(..cases.len())];
        let bytes = case.bytes();
        let pair = [0, 1].map(|_| Edit::Set {
            at: rng.usize(..bytes.len()),
            byte: rng.u8(..),
        });
        try_one(
            case,
            &pair,
            rng.usize(..OPENED_FOR_APPEND) == 0,
            &mut buffer,
            &mut failures,
            row.seed,
        );
        restore(case);
        row.count(1);
    }
    failures.end("row-11");
    row.end(&format!("{} files", cases.len()));
}

fn restore(case: &Case) {
    let (path, bytes) = &case.golden.files[case.file];
    case.disk.put(path, bytes);
}

fn try_one(
    case: &Case,
    edits: &[Edit],
    recover: bool,
    buffer: &mut Vec<u8>,
    failures: &mut Failures,
    seed: u64,
) {
    let mut damaged = case.bytes().to_vec();
    for edit in edits {
        edit.apply(&damaged, buffer);
        std::mem::swap(&mut damaged, buffer);
    }
    if let Err(error) = case.check(edits, &Arc::new(damaged), recover) {
        failures.note(seed, &Input { case, edits }, &error);
    }
}
