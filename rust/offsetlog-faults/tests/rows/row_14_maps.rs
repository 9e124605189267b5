//! Row 14: the indexes that a writer maps are never shortened under a live map.
//!
//! Threads look up by offset and by time, on the writer and on a reader of the same process, while another thread appends, rolls,
//! truncates, deletes, compacts, moves staged segments in, closes and recovers. The disk asks the system, at each call that shortens an
//! index or opens it to write it anew, whether this process still maps what goes: an access to it would end the process. Linux only,
//! because of `/proc/self/maps`.
#![cfg(target_os = "linux")]

use crate::watched_disk::{Seen, WatchedDisk, stays};
use offsetlog::{
    AppendOptions, BatchBuilder, CompactOptions, ErrorKind, Isolation, Log, LogConfig, LogWriter,
    MaintainOptions, OpenOptions, RecoverOptions, WriteOptions, recover,
};
use offsetlog_faults::report::{Failures, Row, scaled};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

const START: i64 = 1_700_000_000_000;
/// Batches of a record each between two rolls: more than a page of entries in each index.
const RECORDS: usize = 700;

/// Some keys come again and again, so that compaction has something to remove; offsets of the others stay.
const fn is_removable(offset: i64) -> bool {
    offset % 7 == 0
}

/// What is done to a log of some segments.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// With and without room for new index files.
    Truncate {
        has_no_room: bool,
    },
    DeleteRecords,
    Compact,
    TruncateFully,
    /// The writer goes without closing.
    Recover,
    /// Segments of a log that was written aside become part of this one.
    Move,
    KeepByAge,
    KeepBySize,
}

/// Each case makes all of them, in an order of its own.
const CHANGES: [Change; 11] = [
    Change::Truncate { has_no_room: true },
    Change::Truncate { has_no_room: true },
    Change::Truncate { has_no_room: false },
    Change::Truncate { has_no_room: false },
    Change::DeleteRecords,
    Change::Compact,
    Change::TruncateFully,
    Change::Recover,
    Change::Move,
    Change::KeepByAge,
    Change::KeepBySize,
];

/// What happened in one case, or in all: a row in which one of them is zero tried nothing.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    looked: usize,
    shortened: usize,
    moved: usize,
    removed_by_age: usize,
    removed_by_size: usize,
}

struct Case {
    path: PathBuf,
    options: OpenOptions,
    seen: Arc<Seen>,
    /// The logs that are looked into: of the writer now, of earlier writers, and of a reader.
    logs: RwLock<Vec<Log>>,
    done: AtomicBool,
    looked: AtomicUsize,
}

fn failed(what: &'static str) -> impl Fn(offsetlog::Error) -> String {
    move |error| format!("{what}: {error}")
}

impl Case {
    fn write_options() -> WriteOptions {
        let settings = [
            ("cleanup.policy", "compact,delete"),
            ("internal.segment.bytes", "100000"),
            ("index.interval.bytes", "0"),
            ("segment.index.bytes", "20000"),
            ("retention.ms", "-1"),
            ("file.delete.delay.ms", "0"),
            ("min.cleanable.dirty.ratio", "0"),
        ];
        WriteOptions {
            config: Some(LogConfig::parse(settings).unwrap()),
            ..WriteOptions::default()
        }
    }

    fn open(&self) -> Result<LogWriter, String> {
        let writer = LogWriter::open(&self.path, &self.options, &Self::write_options());
        let writer = writer.map_err(failed("open"))?;
        let mut logs = self.logs.write().unwrap();
        // The reader stays, and so do the last two writers' logs.
        if logs.len() > 3 {
            logs.remove(1);
        }
        logs.push(writer.log().clone());
        Ok(writer)
    }

    fn look(&self, mut rng: fastrand::Rng) -> Result<(), String> {
        while !self.done.load(Ordering::Relaxed) {
            let log = {
                let logs = self.logs.read().unwrap();
                logs[rng.usize(..logs.len())].clone()
            };
            let (start, end) = match (log.log_start_offset(), log.log_end_offset()) {
                (Ok(start), Ok(end)) if start < end => (start, end),
                _ => continue,
            };
            for _ in 0..20 {
                let offset = rng.i64(start..end);
                check_offset(&log, offset)?;
                check_time(&log, offset)?;
                self.looked.fetch_add(2, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn change(&self, rng: &mut fastrand::Rng) -> Result<Counts, String> {
        let mut writer = self.open()?;
        let mut counts = Counts::default();
        let mut has_mapped = false;
        let mut changes = CHANGES;
        rng.shuffle(&mut changes);
        for change in changes {
            fill(&writer, 0)?;
            // Somebody looks into each index before it is changed.
            let (start, end) = (bound(writer.log_start_offset())?, writer_end(&writer)?);
            for segment in writer.segments().map_err(|error| error.to_string())? {
                if (start..end).contains(&segment.base_offset) {
                    check_offset(&writer, segment.base_offset)?;
                    check_time(&writer, segment.base_offset)?;
                }
            }
            has_mapped |= self.first_mapped(".index").is_some();
            if matches!(change, Change::Recover) {
                writer.abandon();
                recover(&self.path, &self.options, &RecoverOptions::default())
                    .map_err(failed("recover"))?;
                writer = self.open()?;
            } else {
                self.make(change, &writer, (start, end), rng, &mut counts)?;
            }
        }
        writer.close().map_err(failed("close"))?;
        let mut left = None;
        if stays(self.seen.patience, || {
            left = self.first_mapped("index");
            left.is_some()
        }) {
            return Err(format!("mapped after closing: {left:?}"));
        }
        if !has_mapped {
            return Err("no index was mapped".to_owned());
        }
        Ok(counts)
    }

    /// The first map of this process of a file of the log whose name has a part.
    fn first_mapped(&self, part: &str) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let folder = self.path.to_string_lossy();
        let mut lines = maps.lines();
        lines
            .find(|line| line.contains(folder.as_ref()) && line.contains(part))
            .map(str::to_owned)
    }

    /// Changes a log that has records from `start` on and ends at `end`.
    fn make(
        &self,
        change: Change,
        writer: &LogWriter,
        (start, end): (i64, i64),
        rng: &mut fastrand::Rng,
        counts: &mut Counts,
    ) -> Result<(), String> {
        let behind = RECORDS as i64 * 2;
        let near_start = start + rng.i64(0..behind).min(end - start - 1);
        let near_end = rng.i64(end.saturating_sub(behind).max(start)..end);
        let retention = |now: Option<i64>, settings: &[(&str, &str)]| {
            let options = MaintainOptions {
                now,
                compaction: false,
                config: Some(LogConfig::parse(settings.iter().copied()).unwrap()),
                ..MaintainOptions::default()
            };
            let maintained = writer.maintain(&options).map_err(failed("maintain"))?;
            Ok::<_, String>(maintained.removed.len())
        };
        match change {
            Change::Truncate { has_no_room } => {
                self.seen.has_no_room.store(has_no_room, Ordering::Relaxed);
                let cut = writer.truncate_to(near_end);
                self.seen.has_no_room.store(false, Ordering::Relaxed);
                cut.map_err(failed("truncate"))?;
            }
            Change::DeleteRecords => {
                writer
                    .delete_records_before(near_start)
                    .map_err(failed("delete"))?;
                retention(None, &[])?;
            }
            Change::Compact => {
                let options = CompactOptions {
                    first_dirty: Some(start),
                    map_bytes: Some(1 << 20),
                };
                writer.compact(&options).map_err(failed("compact"))?;
            }
            Change::TruncateFully => {
                writer
                    .truncate_fully_and_start_at(end, None)
                    .map_err(failed("truncate fully"))?;
            }
            Change::Move => counts.moved += self.move_in(writer, end)?,
            // Both ask too little for the first segment to stay.
            Change::KeepByAge => {
                let second = writer.segments().map_err(failed("segments"))?[1].base_offset;
                let now = START + rng.i64(second..second + behind).min(end - 1) + 1000;
                counts.removed_by_age += retention(Some(now), &[("retention.ms", "1000")])?;
            }
            Change::KeepBySize => {
                let segments = writer.segments().map_err(failed("segments"))?;
                let others: u64 = segments[1..].iter().map(|other| other.size_bytes).sum();
                let bytes = rng.u64(20_000..=others.min(150_000)).to_string();
                counts.removed_by_size += retention(None, &[("retention.bytes", &bytes)])?;
            }
            Change::Recover => unreachable!("it needs the writer itself"),
        }
        Ok(())
    }

    /// Writes a log aside and moves its segments behind this one's end. Returns how many batches came.
    fn move_in(&self, writer: &LogWriter, end: i64) -> Result<usize, String> {
        let folder = self.path.with_file_name("staged");
        let path = folder.join("orders-0");
        let staged = LogWriter::open(&path, &self.options, &Self::write_options());
        let staged = staged.map_err(failed("open what is staged"))?;
        fill(&staged, end)?;
        let batches = writer_end(&staged)? as usize;
        staged.close().map_err(failed("close what is staged"))?;
        let moved = writer.move_log(&path, batches, None);
        if moved.map_err(failed("move"))?.is_none() {
            return Err("move: it would have to be copied".to_owned());
        }
        if writer_end(writer)? != end + batches as i64 {
            return Err(format!("move: {batches} batches behind {end} expected"));
        }
        std::fs::remove_dir_all(&folder).unwrap();
        Ok(batches)
    }
}

fn bound(offset: offsetlog::Result<i64>) -> Result<i64, String> {
    offset.map_err(|error| error.to_string())
}

fn writer_end(writer: &LogWriter) -> Result<i64, String> {
    bound(writer.log_end_offset())
}

/// Two segments of batches of one record. `moved_by` is how far their offsets will be moved, which records hold as they will be then.
fn fill(writer: &LogWriter, moved_by: i64) -> Result<(), String> {
    for _ in 0..2 {
        for _ in 0..RECORDS {
            let offset = moved_by + writer_end(writer)?;
            let text = offset.to_string();
            let key = if is_removable(offset) {
                "again"
            } else {
                text.as_str()
            };
            let mut batch = BatchBuilder::default();
            batch
                .push(
                    START + offset,
                    Some(key.as_bytes()),
                    Some(text.as_bytes()),
                    &[],
                )
                .expect("a record");
            writer
                .append(&mut batch, &AppendOptions::default())
                .map_err(|error| format!("append: {error}"))?;
        }
        writer.roll().map_err(|error| format!("roll: {error}"))?;
    }
    Ok(())
}

/// Whether the log may have come to lack the offset: a call that is out of range says so, and nothing else may fail.
fn is_gone(error: &offsetlog::Error) -> bool {
    matches!(error.kind(), ErrorKind::OffsetOutOfRange { .. })
}

fn check_offset(log: &Log, offset: i64) -> Result<(), String> {
    match log.get(offset) {
        Ok(Some(record))
            if record.offset == offset
                && record.timestamp == START + offset
                && record.value.as_deref() == Some(offset.to_string().as_bytes()) =>
        {
            Ok(())
        }
        Ok(None) if is_removable(offset) => Ok(()),
        Err(error) if is_gone(&error) => Ok(()),
        other => Err(format!("offset {offset}: {other:?}")),
    }
}

fn check_time(log: &Log, offset: i64) -> Result<(), String> {
    match log.offset_for_timestamp(START + offset, Isolation::ReadUncommitted) {
        // Nothing between the two that compaction must keep.
        Ok(Some(found)) if found.timestamp == START + found.offset && found.offset >= offset => {
            let start = bound(log.log_start_offset())?;
            let passed = (offset.max(start)..found.offset).find(|&passed| !is_removable(passed));
            match passed {
                Some(passed) => Err(format!("time of {offset}: {found:?}, and not {passed}")),
                None => Ok(()),
            }
        }
        // The records went meanwhile.
        Ok(None) => Ok(()),
        other => Err(format!("time of {offset}: {other:?}")),
    }
}

fn run(seed: u64, patience: Duration) -> Result<Counts, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let seen = Seen::new(patience);
    let case = Case {
        path: folder.path().join("orders-0"),
        options: OpenOptions {
            disk: Arc::new(WatchedDisk(Arc::clone(&seen))),
            ..OpenOptions::default()
        },
        seen: Arc::clone(&seen),
        logs: RwLock::new(Vec::new()),
        done: AtomicBool::new(false),
        looked: AtomicUsize::new(0),
    };
    case.open()?.close().map_err(|error| error.to_string())?;
    case.logs.write().unwrap().clear();
    let reader = Log::open(&case.path, &case.options).map_err(|error| error.to_string())?;
    case.logs.write().unwrap().push(reader);
    let mut rng = fastrand::Rng::with_seed(seed);
    let outcome = std::thread::scope(|scope| {
        let looking: Vec<_> = (0..3)
            .map(|_| {
                let (case, rng) = (&case, rng.fork());
                scope.spawn(move || case.look(rng))
            })
            .collect();
        let changed = case.change(&mut rng);
        case.done.store(true, Ordering::Relaxed);
        let looked = looking
            .into_iter()
            .map(|thread| thread.join().expect("a thread"));
        looked.collect::<Result<(), String>>().and(changed)
    });
    let found = seen.shortened_under_a_map.lock().unwrap();
    if let Some(first) = found.first() {
        return Err(format!("shortened under a map: {first}"));
    }
    Ok(Counts {
        looked: case.looked.load(Ordering::Relaxed),
        shortened: seen.shortened.load(Ordering::Relaxed),
        ..outcome?
    })
}

#[test]
fn no_index_is_shortened_under_a_map() {
    let mut row = Row::begin(
        14,
        "maps",
        "races in one process: mapped indexes",
        "interleavings",
        scaled(40),
    );
    let mut failures = Failures::default();
    let mut seeds = fastrand::Rng::with_seed(row.seed);
    let mut all = Counts::default();
    let mut patience = Duration::from_secs(120);
    while row.goes_on() {
        let seed = seeds.u64(..);
        match run(seed, patience) {
            Ok(counts) => {
                all.looked += counts.looked;
                all.shortened += counts.shortened;
                all.moved += counts.moved;
                all.removed_by_age += counts.removed_by_age;
                all.removed_by_size += counts.removed_by_size;
            }
            Err(error) => {
                failures.note(row.seed, &seed, &error);
                // The row has failed: the others need not wait as long.
                patience = Duration::from_secs(1);
            }
        }
        row.count(1);
    }
    failures.end("row-14");
    let Counts {
        looked,
        shortened,
        moved,
        removed_by_age,
        removed_by_size,
    } = all;
    for (count, what) in [
        (looked, "look-up was made"),
        (shortened, "index was shortened"),
        (moved, "batch was moved"),
        (removed_by_age, "segment was removed by its age"),
        (removed_by_size, "segment was removed by the log's size"),
    ] {
        assert!(count > 0, "no {what}");
    }
    row.end(&format!(
        "{looked} look-ups, {shortened} indexes shortened, {moved} batches moved, {} segments removed",
        removed_by_age + removed_by_size
    ));
}
