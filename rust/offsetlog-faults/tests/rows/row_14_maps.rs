//! Row 14: the indexes that a writer maps are never shortened under a live map.
//!
//! Threads look up by offset and by time, on the writer and on a reader of the same process, while another thread appends, rolls,
//! truncates, deletes, compacts, closes and recovers. The disk asks the system, at each call that shortens an index, whether this
//! process still maps what goes: an access to it would end the process. Linux only, because of `/proc/self/maps`.
#![cfg(target_os = "linux")]

use offsetlog::disk::{Access, Disk, DiskFile, Entry, FileStat, Lock, LockKind, Map, RealDisk};
use offsetlog::{
    AppendOptions, BatchBuilder, CompactOptions, ErrorKind, Isolation, Log, LogConfig, LogWriter,
    MaintainOptions, OpenOptions, RecoverOptions, WriteOptions, recover,
};
use offsetlog_faults::report::{Failures, Row, scaled};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

const START: i64 = 1_700_000_000_000;
/// Batches of a record each between two rolls: more than a page of entries in each index.
const RECORDS: usize = 700;

/// What the disk saw, and what it shall do.
#[derive(Debug, Default)]
struct Seen {
    shortened_under_a_map: Mutex<Vec<String>>,
    /// New files for indexes find no room, so that a truncation has to change the old ones.
    has_no_room: AtomicBool,
    shortened: AtomicUsize,
}

/// The system's disk, watched.
#[derive(Debug, Clone)]
struct WatchedDisk(Arc<Seen>);

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    seen: Arc<Seen>,
}

/// The bytes of a file that this process maps, rounded up to whole pages; 0 if it maps none of it.
fn mapped_bytes(inode: u64) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let lengths = maps.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (range, found) = (words.next()?, words.nth(3)?);
        let (from, to) = range.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        (found.parse() == Ok(inode)).then_some(address(to)? - address(from)?)
    });
    lengths.max().unwrap_or(0)
}

/// Whether something stays true. A map whose last user is dropping it just now, on another thread, is still among those of the process
/// for a moment, and nobody can look into it any more.
fn stays(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(120);
    while is_so() {
        if Instant::now() > end {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

fn is_index(path: &Path) -> bool {
    path.to_string_lossy().contains("index")
}

impl DiskFile for WatchedFile {
    fn set_len(&self, size: u64) -> io::Result<()> {
        let stat = self.file.stat()?;
        if is_index(&self.path) && size < stat.size {
            self.seen.shortened.fetch_add(1, Ordering::Relaxed);
            // One that stays is waited for once.
            let is_found = !self.seen.shortened_under_a_map.lock().unwrap().is_empty();
            let is_mapped = || mapped_bytes(stat.id.1) > size.next_multiple_of(4096);
            if is_mapped() && (is_found || stays(is_mapped)) {
                let what = format!("{} from {} to {size}", self.path.display(), stat.size);
                self.seen.shortened_under_a_map.lock().unwrap().push(what);
                // Left as it is: the process shall live to tell.
                return Ok(());
            }
        }
        self.file.set_len(size)
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.file.stat()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_at(bytes, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_modified(&self, modified_ms: i64) -> io::Result<()> {
        self.file.set_modified(modified_ms)
    }

    fn map(&self, size: u64) -> Option<Map> {
        self.file.map(size)
    }
}

impl Disk for WatchedDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let is_new = access == Access::Replace && is_index(path);
        if is_new && self.0.has_no_room.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(Arc::new(WatchedFile {
            file: RealDisk.open(path, access)?,
            path: path.to_path_buf(),
            seen: Arc::clone(&self.0),
        }))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        RealDisk.list(directory)
    }

    fn open_uncached(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
        RealDisk.open_uncached(path)
    }

    fn boot_id(&self) -> Option<u128> {
        RealDisk.boot_id()
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        RealDisk.stat(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        RealDisk.unlink(path)
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Option<Lock>> {
        RealDisk.lock(path, kind)
    }

    fn lock_holder(&self, path: &Path) -> io::Result<Option<Option<i32>>> {
        RealDisk.lock_holder(path)
    }
}

/// Some keys come again and again, so that compaction has something to remove; offsets of the others stay.
const fn is_removable(offset: i64) -> bool {
    offset % 7 == 0
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

impl Case {
    fn open(&self) -> Result<LogWriter, String> {
        let settings = [
            ("cleanup.policy", "compact,delete"),
            ("internal.segment.bytes", "100000"),
            ("index.interval.bytes", "0"),
            ("segment.index.bytes", "20000"),
            ("retention.ms", "-1"),
            ("file.delete.delay.ms", "0"),
            ("min.cleanable.dirty.ratio", "0"),
        ];
        let write = WriteOptions {
            config: Some(LogConfig::parse(settings).unwrap()),
            ..WriteOptions::default()
        };
        let writer = LogWriter::open(&self.path, &self.options, &write);
        let writer = writer.map_err(|error| format!("open: {error}"))?;
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

    fn change(&self, rng: &mut fastrand::Rng) -> Result<(), String> {
        let mut writer = self.open()?;
        let mut has_mapped = false;
        for _ in 0..8 {
            fill(&writer)?;
            // Somebody looks into each index before it is changed.
            let (start, end) = (bound(writer.log_start_offset())?, writer_end(&writer)?);
            for segment in writer.segments().map_err(|error| error.to_string())? {
                if (start..end).contains(&segment.base_offset) {
                    check_offset(&writer, segment.base_offset)?;
                    check_time(&writer, segment.base_offset)?;
                }
            }
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let folder = self.path.to_string_lossy().into_owned();
            has_mapped |= maps
                .lines()
                .any(|line| line.contains(&folder) && line.contains(".index"));
            let failed = |what: &str, error: &offsetlog::Error| format!("{what}: {error}");
            let behind = RECORDS as i64 * 2;
            let near_end = rng.i64(end.saturating_sub(behind).max(start)..end);
            match rng.u8(0..8) {
                0..=3 => {
                    // With and without room for new index files.
                    self.seen.has_no_room.store(rng.bool(), Ordering::Relaxed);
                    let cut = writer.truncate_to(near_end);
                    self.seen.has_no_room.store(false, Ordering::Relaxed);
                    cut.map_err(|error| failed("truncate", &error))?;
                }
                4 => {
                    let before = start + rng.i64(0..behind).min(end - start - 1);
                    let deleted = writer.delete_records_before(before);
                    deleted.map_err(|error| failed("delete", &error))?;
                    let maintained = writer.maintain(&MaintainOptions {
                        compaction: false,
                        ..MaintainOptions::default()
                    });
                    maintained.map_err(|error| failed("maintain", &error))?;
                }
                5 => {
                    let options = CompactOptions {
                        first_dirty: Some(start),
                        map_bytes: Some(1 << 20),
                    };
                    let compacted = writer.compact(&options);
                    compacted.map_err(|error| failed("compact", &error))?;
                }
                6 => {
                    let fully = writer.truncate_fully_and_start_at(end, None);
                    fully.map_err(|error| failed("truncate fully", &error))?;
                }
                _ => {
                    writer.abandon();
                    let recovered = recover(&self.path, &self.options, &RecoverOptions::default());
                    recovered.map_err(|error| failed("recover", &error))?;
                    writer = self.open()?;
                }
            }
        }
        writer.close().map_err(|error| format!("close: {error}"))?;
        let folder = self.path.to_string_lossy().into_owned();
        let mut left = None;
        if stays(|| {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let mut lines = maps.lines();
            left = lines
                .find(|line| line.contains(&folder) && line.contains("index"))
                .map(str::to_owned);
            left.is_some()
        }) {
            return Err(format!("mapped after closing: {left:?}"));
        }
        if !has_mapped {
            return Err("no index was mapped".to_owned());
        }
        Ok(())
    }
}

fn bound(offset: offsetlog::Result<i64>) -> Result<i64, String> {
    offset.map_err(|error| error.to_string())
}

fn writer_end(writer: &LogWriter) -> Result<i64, String> {
    bound(writer.log_end_offset())
}

fn fill(writer: &LogWriter) -> Result<(), String> {
    for _ in 0..2 {
        for _ in 0..RECORDS {
            let offset = writer_end(writer)?;
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

fn run(seed: u64) -> Result<usize, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let seen = Arc::new(Seen::default());
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
        looked.chain([changed]).collect::<Result<(), String>>()
    });
    let found = seen.shortened_under_a_map.lock().unwrap();
    if let Some(first) = found.first() {
        return Err(format!("shortened under a map: {first}"));
    }
    outcome?;
    Ok(case.looked.load(Ordering::Relaxed))
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
    let mut looked = 0;
    while row.goes_on() {
        let seed = seeds.u64(..);
        match run(seed) {
            Ok(count) => looked += count,
            Err(error) => {
                failures.note(row.seed, &seed, &error);
            }
        }
        row.count(1);
    }
    failures.end("row-14");
    row.end(&format!("{looked} look-ups"));
}
