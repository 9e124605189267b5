//! Opens what a crash left, and compares with what may be found: F1 to F12 and F18.

use crate::batch::{Batch, encode, parse};
use crate::cleaned::is_part;
use crate::files::{batches, check_layout, segments, stored_epochs, stored_points};
use crate::model::{End, Model};
use crate::run::{PARTITION, clock, config, options};
use crate::script::Script;
use crate::sim::{SimDisk, World};
use offsetlog::{
    AppendOptions, BatchBuilder, Isolation, Log, LogWriter, OpenOptions, RecoveryReport,
    ScanOptions, WriteOptions,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How much is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What a reader and a writer find.
    Found,
    /// And that the log can be written to, closed and opened again.
    GoesOn,
    /// And that recovering again gives the same.
    Repeated,
}

impl Depth {
    /// Mostly less.
    #[must_use]
    pub fn random(rng: &mut fastrand::Rng) -> Self {
        match rng.u8(0..8) {
            0 => Self::Repeated,
            1..=4 => Self::GoesOn,
            _ => Self::Found,
        }
    }
}

/// What was seen on the way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Something was cut.
    pub cut: usize,
    /// Nothing was there at all.
    pub nothing: usize,
}

impl Seen {
    /// Adds up.
    pub fn add(&mut self, other: Self) {
        self.cut += other.cut;
        self.nothing += other.nothing;
    }
}

/// A log that was opened after a crash.
pub struct Recovered {
    /// Its disk.
    pub disk: SimDisk,
    /// The log.
    pub log: LogWriter,
    /// What opening did.
    pub report: RecoveryReport,
}

fn partition() -> &'static Path {
    Path::new(PARTITION)
}

fn open_options(disk: &SimDisk) -> OpenOptions {
    let clock = clock();
    // A year later: opening deletes nothing however old it is (F11).
    clock.fetch_add(365 * 86_400_000, Ordering::SeqCst);
    options(Arc::new(disk.clone()), &clock)
}

fn write_options(world: &World, script: &Script) -> WriteOptions {
    let config_path = partition().join(".offsetlog.config");
    WriteOptions {
        config: world.bytes(&config_path).is_none().then(|| config(script)),
        ..WriteOptions::default()
    }
}

/// Opens for appending what `world` holds.
///
/// # Errors
/// What the engine says, in words.
pub fn open(world: &World, script: &Script) -> Result<Recovered, String> {
    let disk = SimDisk::new(world.clone());
    let options = open_options(&disk);
    let write = write_options(world, script);
    // What a crash leaves is never refused: `recover` is for damage.
    let log = LogWriter::open(partition(), &options, &write);
    let log = log.map_err(|error| format!("opening: {error}"))?;
    let report = log.recovery_report();
    Ok(Recovered { disk, log, report })
}

/// The batches that the engine reads, up to the end or the first error.
pub fn read(log: &Log) -> (Vec<Batch>, Option<offsetlog::Error>) {
    let mut found = Vec::new();
    let mut scan = match log.scan(&ScanOptions::default()) {
        Ok(scan) => scan,
        Err(error) => return (found, Some(error)),
    };
    loop {
        match scan.next_batch() {
            Ok(Some(batch)) => match parse(batch.bytes()) {
                Some(batch) => found.push(batch),
                None => panic!("the engine read a batch whose checksum is wrong"),
            },
            Ok(None) => return (found, None),
            Err(error) => return (found, Some(error)),
        }
    }
}

/// What is not a lock and not kept for people; and no snapshot at or below the log start: Kafka takes one there when it rolls, and drops
/// it the next time it loads the log.
fn files_of(world: &World, log_start: i64) -> Vec<(String, Vec<u8>)> {
    let is_due = |path: &str| {
        let offset = path
            .strip_suffix(".snapshot")
            .and_then(|path| path.rsplit('/').next());
        offset.is_some_and(|offset| offset.parse().is_ok_and(|offset: i64| offset <= log_start))
    };
    world
        .files()
        .map(|(path, bytes)| {
            let mut bytes = bytes.to_vec();
            // Behind the two offsets stand times.
            if path.ends_with(".offsetlog.state") {
                let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
                let third = ends.map(|(at, _)| at).nth(2);
                bytes.truncate(third.unwrap_or(bytes.len()));
            }
            (path.display().to_string(), bytes)
        })
        .filter(|(path, _)| !path.contains(".lock") && !path.contains("offsetlog-cut"))
        .filter(|(path, _)| !is_due(path))
        .collect()
}

/// A reader, before anything is recovered (F10, and F2 to F4 as far as it comes).
fn check_reader(world: &World, model: &Model, end: End) -> Result<(), String> {
    let disk = SimDisk::new(world.clone());
    let options = open_options(&disk);
    let opened = Log::open(partition(), &options);
    if let Ok(log) = opened {
        let (found, error) = read(&log);
        // Before recovery old segments and new ones may stand side by side, but nothing else.
        let older: &[Vec<Batch>] = if end == End::Power { &model.older } else { &[] };
        let legal = |batch: &Batch| {
            let mut histories = std::iter::once(&model.current)
                .chain(&model.others)
                .chain(older);
            histories.any(|history| {
                history.contains(batch)
                    || model.cleaning.is_some()
                        && history.iter().any(|before| is_part(batch, before))
            })
        };
        if !found.iter().all(legal) {
            return Err(format!(
                "F4: a reader found {found:?}, then {error:?}; {model:?}"
            ));
        }
    }
    if disk.changes() > 0 {
        return Err(format!("F10: a reader changed {:?}", disk.recorded()));
    }
    Ok(())
}

/// All that must hold of what a crash left.
///
/// # Errors
/// What does not hold, in words.
pub fn crashed(
    world: &World,
    model: &Model,
    end: End,
    script: &Script,
    depth: Depth,
) -> Result<Seen, String> {
    check_reader(world, model, end)?;
    let (recovery_point, _) = stored_points(world, partition());
    let there = world.node(partition()).is_some();
    let recovered = open(world, script)?;
    let seen = Seen {
        cut: usize::from(!recovered.report.cut.is_empty()),
        nothing: usize::from(!there),
    };
    let found = check_recovered(&recovered, model, end)?;
    let after = recovered
        .log
        .log_end_offset()
        .map_err(|error| error.to_string())?;
    if let Some(point) =
        recovery_point.filter(|&point| point > after.max(model.gaps.last().copied().unwrap_or(0)))
    {
        return Err(format!(
            "F8: recovery point {point} was stored, the log ends at {after}"
        ));
    }
    if depth == Depth::Repeated {
        check_repeated(world, &recovered, script)?;
    }
    if depth == Depth::Found {
        recovered.log.abandon();
    } else {
        check_goes_on(recovered, &found, model, script)?;
    }
    Ok(seen)
}

/// What opening made of it: by the engine's reading and by the slow one.
///
/// # Errors
/// What does not hold, in words.
pub fn check_recovered(
    recovered: &Recovered,
    model: &Model,
    end: End,
) -> Result<Vec<Batch>, String> {
    let log = &recovered.log;
    let offset = |value: offsetlog::Result<i64>| value.map_err(|error| error.to_string());
    let log_start = offset(log.log_start_offset())?;
    let log_end = offset(log.log_end_offset())?;
    let found = recovered
        .disk
        .look(|world| batches(&segments(world, partition())));
    model
        .check(end, &found, log_start, log_end)
        .map_err(|error| format!("{error}\n  report {:?}", recovered.report))?;
    let (read, error) = read(log);
    if let Some(error) = error {
        return Err(format!("F3: reading after recovery: {error}"));
    }
    let visible: Vec<Batch> = found
        .iter()
        .filter(|batch| batch.last >= log_start)
        .cloned()
        .collect();
    if read != visible {
        return Err(format!(
            "F3: the engine reads {read:?}, the files hold {visible:?}"
        ));
    }
    check_look_ups(log, &visible, log_start)?;
    let epochs = recovered
        .disk
        .look(|world| stored_epochs(world, partition()));
    for batch in &visible {
        // The epoch of a batch that the log start lies in begins there.
        let first = batch.base.max(log_start);
        let known = epochs.iter().rev().find(|(_, start)| *start <= first);
        if known.map(|known| known.0) != Some(batch.epoch) {
            return Err(format!("F6: leader epochs {epochs:?}, but {batch:?}"));
        }
    }
    if epochs.iter().any(|(_, start)| *start > log_end) {
        return Err(format!(
            "F6: leader epochs {epochs:?} behind the end {log_end}"
        ));
    }
    Ok(found)
}

/// F7: what the indexes say is what a plain scan says.
fn check_look_ups(log: &LogWriter, visible: &[Batch], log_start: i64) -> Result<(), String> {
    for batch in visible {
        for offset in [batch.base.max(log_start), batch.last] {
            let location = log
                .locate(offset)
                .map_err(|error| format!("F7: locate {offset}: {error}"))?;
            let at = location.batch.map(|found| found.base_offset);
            if at != Some(batch.base) {
                return Err(format!(
                    "F7: {offset} is in {batch:?}, found in the batch at {at:?}"
                ));
            }
        }
        // Of what was cleaned the first record may be gone.
        let first = |other: &Batch| {
            let mut offsets = other.records().into_iter().map(|record| record.offset);
            offsets.find(|&offset| offset >= log_start)
        };
        let expected = visible
            .iter()
            .filter(|other| other.timestamp >= batch.timestamp)
            .find_map(|other| Some((first(other)?, other.timestamp)));
        let found = log
            .offset_for_timestamp(batch.timestamp, Isolation::ReadUncommitted)
            .map_err(|error| format!("F7: time {}: {error}", batch.timestamp))?
            .map(|found| (found.offset, found.timestamp));
        if found != expected {
            return Err(format!(
                "F7: time {}: {found:?} found, {expected:?} expected",
                batch.timestamp
            ));
        }
    }
    Ok(())
}

/// F9 and F18: recovering the same again, or after a kill, and closing gives the same files.
fn check_repeated(world: &World, recovered: &Recovered, script: &Script) -> Result<(), String> {
    let log_start = recovered.report.log_start_offset;
    let close = |recovered: Recovered| {
        recovered
            .log
            .close()
            .map_err(|error| format!("F9: closing: {error}"))?;
        Ok::<_, String>(files_of(&recovered.disk.world(), log_start))
    };
    let killed = recovered.disk.world();
    let same = open(world, script)?;
    if let Some(difference) = difference(
        &files_of(&killed, log_start),
        &files_of(&same.disk.world(), log_start),
    ) {
        return Err(format!("F18: the same recovery twice: {difference}"));
    }
    if same.report != recovered.report {
        return Err(format!(
            "F18: reports {:?} and {:?}",
            same.report, recovered.report
        ));
    }
    if same.report.clean {
        // Nothing was recovered; who is killed behind a clean opening is.
        same.log.abandon();
        return Ok(());
    }
    let once = close(same)?;
    let again = close(open(&killed, script)?)?;
    match difference(&once, &again) {
        Some(difference) => Err(format!("F9: a second recovery changed {difference}")),
        None => Ok(()),
    }
}

/// The first file that differs.
fn difference(left: &[(String, Vec<u8>)], right: &[(String, Vec<u8>)]) -> Option<String> {
    let missing =
        |from: &[(String, Vec<u8>)], path: &str| !from.iter().any(|(other, _)| other == path);
    for (path, bytes) in left {
        match right.iter().find(|(other, _)| other == path) {
            None => return Some(format!("{path}: only in the first")),
            Some((_, other)) if other != bytes => {
                let at = bytes.iter().zip(other).position(|(one, two)| one != two);
                let (one, two) = (bytes.len(), other.len());
                return Some(format!(
                    "{path}: {one} and {two} bytes, different at {at:?}"
                ));
            }
            Some(_) => {}
        }
    }
    right
        .iter()
        .find(|(path, _)| missing(left, path))
        .map(|(path, _)| format!("{path}: only in the second"))
}

/// F12 and F6: the log can be written to, closed, and opened again, and nothing else changes.
fn check_goes_on(
    recovered: Recovered,
    found: &[Batch],
    model: &Model,
    script: &Script,
) -> Result<(), String> {
    let words = |error: offsetlog::Error| format!("F12: {error}");
    let Recovered { disk, log, .. } = recovered;
    let timestamp = (log.options().clock)();
    let value = b"after".to_vec();
    let mut builder = BatchBuilder::default();
    let key = script.compact.then(|| b"after".to_vec());
    builder
        .push(timestamp, key.as_deref(), Some(&value), &[])
        .map_err(words)?;
    let next = log.log_end_offset().map_err(words)?;
    let epoch = found.last().map_or(0, |batch| batch.epoch);
    let append = AppendOptions {
        leader_epoch: Some(epoch),
        flush: false,
    };
    let info = log.append(&mut builder, &append).map_err(words)?;
    if info.base_offset != next {
        return Err(format!(
            "F5: offset {} given, {next} expected",
            info.base_offset
        ));
    }
    log.flush().map_err(words)?;
    log.close().map_err(words)?;
    let log_start = log.log_start_offset().map_err(words)?;
    drop(log);
    let mut expected = found.to_vec();
    expected.push(encode(next, epoch, timestamp, &[(key, Some(value))]));
    disk.look(|world| {
        check_layout(world, partition(), log_start, &model.gaps)?;
        let now = batches(&segments(world, partition()));
        if now == expected {
            Ok(())
        } else {
            Err(format!(
                "F12: {now:?} after one more append, {expected:?} expected"
            ))
        }
    })?;
    if disk.open_files() + disk.held_locks() > 0 {
        return Err(format!(
            "F14: {} files and {} locks left",
            disk.open_files(),
            disk.held_locks()
        ));
    }
    // A clean end survives the loss of power, and opening it changes nothing.
    let closed = disk.world().crash(
        crate::sim::Cut::Nothing,
        script.fill,
        &mut fastrand::Rng::with_seed(0),
    );
    let disk = SimDisk::new(closed.clone());
    let options = open_options(&disk);
    let log = LogWriter::open(partition(), &options, &WriteOptions::default()).map_err(words)?;
    let report = log.recovery_report();
    if !report.clean || report.is_changed() {
        return Err(format!("F12: after a clean end: {report:?}"));
    }
    let (now, error) = read(&log);
    expected.retain(|batch| batch.last >= log_start);
    if now != expected || error.is_some() {
        return Err(format!(
            "F12: {now:?}, {error:?} read after a clean end, {expected:?} expected"
        ));
    }
    log.close().map_err(words)?;
    drop(log);
    match difference(
        &files_of(&closed, log_start),
        &files_of(&disk.world(), log_start),
    ) {
        Some(difference) => Err(format!(
            "F9: opening and closing a clean log changed {difference}"
        )),
        None => Ok(()),
    }
}
