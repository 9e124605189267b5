//! Many partitions opened for reading in one call, while others change the log dir.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::disk::{
    Access, Disk, DiskDirectory, DiskFile, Entry, FileStat, IoCall, Lock, LockKind, RealDisk,
};
use offsetlog::{
    AppendOptions, BatchBuilder, Error, ErrorKind, Log, LogConfig, LogDir, LogDirOptions, NewTopic,
    OpenOptions, Result, Route, TopicPartition,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Partitions of the log dir: more than share an answer.
const PARTITIONS: i32 = 150;
const START: &str = "log-start-offset-checkpoint";
const HIGH: &str = "replication-offset-checkpoint";

/// When something happens to a partition's directory that is being opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    BeforeOpening,
    BeforeListing,
    BehindListing,
}

type Work = Box<dyn FnOnce() + Send>;

/// The system's disk. Counts calls by kind, and does something once in the midst of the opening of a partition.
#[derive(Default)]
struct Watched {
    calls: Mutex<BTreeMap<&'static str, usize>>,
    meanwhile: Mutex<Option<(When, PathBuf, Work)>>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

impl Watched {
    fn count(&self, call: &'static str) {
        *self.calls.lock().unwrap().entry(call).or_default() += 1;
    }

    fn pass(&self, when: When, directory: &Path) {
        let due = self
            .meanwhile
            .lock()
            .unwrap()
            .take_if(|(at, path, _)| *at == when && path == directory);
        if let Some((_, _, work)) = due {
            work();
        }
    }
}

#[derive(Debug, Clone)]
struct WatchedDisk(Arc<Watched>);

#[derive(Debug)]
struct WatchedDirectory {
    open: Box<dyn DiskDirectory>,
    path: PathBuf,
    disk: Arc<Watched>,
}

impl DiskDirectory for WatchedDirectory {
    fn stat(&self) -> io::Result<FileStat> {
        self.disk.count("fstat");
        self.open.stat()
    }

    fn list(&self) -> io::Result<Vec<Entry>> {
        self.disk.pass(When::BeforeListing, &self.path);
        let listed = self.open.list();
        self.disk.pass(When::BehindListing, &self.path);
        listed
    }

    fn open(&self, name: &OsStr) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.count("open");
        self.open.open(name)
    }
}

impl Disk for WatchedDisk {
    fn is_systems(&self) -> bool {
        true
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        self.0.count("list");
        RealDisk.list(directory)
    }

    fn open_directory(&self, path: &Path) -> io::Result<Option<Box<dyn DiskDirectory>>> {
        self.0.pass(When::BeforeOpening, path);
        self.0.count("open directory");
        let open = RealDisk.open_directory(path)?;
        Ok(open.map(|open| -> Box<dyn DiskDirectory> {
            Box::new(WatchedDirectory {
                open,
                path: path.to_path_buf(),
                disk: Arc::clone(&self.0),
            })
        }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        self.0.count("open");
        RealDisk.open(path, access)
    }

    fn open_uncached(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
        RealDisk.open_uncached(path)
    }

    fn boot_id(&self) -> Option<u128> {
        RealDisk.boot_id()
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        self.0.count("stat");
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

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_directory(path)
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Option<Lock>> {
        RealDisk.lock(path, kind)
    }

    fn lock_holder(&self, path: &Path) -> io::Result<Option<Option<i32>>> {
        self.0.count("lock holder");
        RealDisk.lock_holder(path)
    }
}

/// Sets times as of a log dir that nobody has changed for an hour: what changed just now is always looked at again.
fn age(path: &Path) {
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            age(&entry.path());
        } else {
            let file = fs::File::open(entry.path()).unwrap();
            file.set_modified(hour_ago).unwrap();
        }
    }
    fs::File::open(path)
        .unwrap()
        .set_modified(hour_ago)
        .unwrap();
}

/// A checkpoint of the topic's partitions: the partition and its offset.
fn checkpoint(lines: &[(i32, i64)]) -> String {
    let lines: Vec<String> = lines
        .iter()
        .map(|(partition, offset)| format!("many {partition} {offset}\n"))
        .collect();
    format!("0\n{}\n{}", lines.len(), lines.concat())
}

/// The records that were appended to a partition.
fn records(partition: i32) -> i64 {
    i64::from(partition % 3) + 1
}

/// A stopped broker's log dir of partitions whose records are counted above: copies of three. Nothing of offsetlog's is left in it.
fn many(path: &Path) {
    let made = tempfile::tempdir().unwrap();
    let options = LogDirOptions::default();
    let paths = [made.path()];
    let log_dir = LogDir::open_for_append(&paths, &OpenOptions::default(), &options).unwrap();
    let topic = NewTopic {
        name: "many",
        partitions: 3,
        config: LogConfig::default(),
        topic_id: None,
    };
    log_dir.create_topic(&topic).unwrap();
    let mut batch = BatchBuilder::default();
    for partition in 0..3 {
        for number in 0..records(partition) {
            batch
                .push(1_000 + number, None, Some(b"value"), &[])
                .unwrap();
        }
        let append = AppendOptions::default();
        let route = Route::Partition(partition);
        log_dir.append("many", route, &mut batch, &append).unwrap();
    }
    log_dir.close().unwrap();
    for partition in 0..PARTITIONS {
        let directory = path.join(format!("many-{partition}"));
        fs::create_dir(&directory).unwrap();
        let source = made.path().join(format!("many-{}", partition % 3));
        for entry in fs::read_dir(source).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if !name.starts_with(".offsetlog") {
                fs::copy(entry.path(), directory.join(name)).unwrap();
            }
        }
    }
    fs::write(path.join(".lock"), "").unwrap();
    fs::write(path.join(START), checkpoint(&[(0, 1)])).unwrap();
    fs::write(path.join(HIGH), checkpoint(&[(0, 1)])).unwrap();
    age(path);
}

struct Case {
    folder: tempfile::TempDir,
    disk: Arc<Watched>,
    log_dir: LogDir,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        many(folder.path());
        let disk = Arc::new(Watched::default());
        let options = OpenOptions {
            disk: Arc::new(WatchedDisk(Arc::clone(&disk))),
            ..OpenOptions::default()
        };
        let log_dir = LogDir::open(&[folder.path()], &options).unwrap();
        disk.calls.lock().unwrap().clear();
        Self {
            folder,
            disk,
            log_dir,
        }
    }

    fn partition(&self, partition: i32) -> PathBuf {
        self.folder.path().join(format!("many-{partition}"))
    }

    fn meanwhile(&self, when: When, partition: i32, work: impl FnOnce() + Send + 'static) {
        let due = (when, self.partition(partition), Box::new(work) as Work);
        *self.disk.meanwhile.lock().unwrap() = Some(due);
    }

    /// Opens all on one thread, in the order of their numbers.
    fn open(&self) -> Vec<Result<Log>> {
        let logs = self.log_dir.logs(&self.log_dir.partitions(), 1);
        assert!(
            self.disk.meanwhile.lock().unwrap().is_none(),
            "nothing happened"
        );
        logs
    }

    fn calls(&self, call: &str) -> usize {
        self.disk
            .calls
            .lock()
            .unwrap()
            .get(call)
            .copied()
            .unwrap_or(0)
    }
}

fn lock(path: &Path) -> Lock {
    let lock = RealDisk.lock(&path.join(".lock"), LockKind::Exclusive);
    lock.unwrap().unwrap()
}

#[test]
fn all_are_opened_in_the_order_in_which_they_are_given() {
    let case = Case::new();
    let mut wanted = case.log_dir.partitions();
    wanted.extend(wanted.clone().into_iter().step_by(3).rev());
    let unknown = TopicPartition {
        topic: "many".to_owned(),
        partition: PARTITIONS,
    };
    wanted.insert(70, unknown);
    for threads in [0, 1, 2, 7] {
        let logs = case.log_dir.logs(&wanted, threads);
        assert_eq!(logs.len(), wanted.len());
        for (wanted, log) in wanted.iter().zip(logs) {
            if wanted.partition == PARTITIONS {
                let error = log.unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::LogDir { .. }), "{error}");
                continue;
            }
            let log = log.unwrap();
            assert_eq!((log.topic(), log.partition()), ("many", wanted.partition));
            assert_eq!(log.log_end_offset().unwrap(), records(wanted.partition));
            let start = i64::from(wanted.partition == 0);
            assert_eq!(log.log_start_offset().unwrap(), start);
            let high = (wanted.partition == 0).then_some(1);
            assert_eq!(log.checkpointed_high_watermark().unwrap(), high);
            assert!(!log.has_running_owner());
        }
    }
    assert!(case.log_dir.logs(&[], 2).is_empty());
}

/// Each is asked as it is opened, and anew where somebody has changed the log dir meanwhile.
#[test]
fn what_is_asked_is_of_the_moment_of_the_opening() {
    let case = Case::new();
    let path = case.folder.path().to_path_buf();
    let (taken, asked) = (Arc::new(Mutex::new(None)), AtomicUsize::new(0));
    let held = Arc::clone(&taken);
    case.meanwhile(When::BeforeOpening, 30, move || {
        *held.lock().unwrap() = Some(lock(&path));
    });
    let ask = |log: &Log| {
        asked.fetch_add(1, Ordering::Relaxed);
        if log.partition() == 3 {
            return Err(Error::io(IoCall::Read, log.path(), io::Error::other("no")));
        }
        Ok((log.has_running_owner(), log.log_end_offset()?))
    };
    let logs = case.log_dir.logs_with(&case.log_dir.partitions(), 1, ask);
    for (number, found) in (0..).zip(logs) {
        match found {
            Ok((_, answer)) => assert_eq!(answer, (true, records(number))),
            Err(error) => assert!(number == 3 && error.to_string().contains("no"), "{error}"),
        }
    }
    assert_eq!(asked.into_inner(), PARTITIONS as usize + 64);
}

/// Three calls for each partition's files, and what it has in common with others once for 64 before and after, also if it is asked at once.
#[test]
fn what_partitions_have_in_common_is_asked_once_for_many() {
    let case = Case::new();
    let count = PARTITIONS as usize;
    let shares = count.div_ceil(64);
    let ask = |log: &Log| Ok((log.log_start_offset()?, log.log_end_offset()?));
    let logs = case.log_dir.logs_with(&case.log_dir.partitions(), 1, ask);
    assert_eq!(case.calls("lock holder"), 2 * shares);
    assert_eq!(case.calls("stat"), 2 * 2 * shares);
    assert_eq!(case.calls("open directory"), count);
    assert_eq!(case.calls("fstat"), 2 * count);
    assert_eq!(case.calls("open"), count + 2); // The checkpoints once.
    assert_eq!(case.calls("list"), 0);
    let (log, _) = logs[1].as_ref().unwrap();
    assert_eq!(log.log_end_offset().unwrap(), records(1));
    assert!(case.calls("stat") > 2 * 2 * shares);
}

/// As the first opening behind it would have found, if each had been opened alone.
#[test]
fn a_lock_that_is_taken_meanwhile_is_seen() {
    let case = Case::new();
    let path = case.folder.path().to_path_buf();
    let taken = Arc::new(Mutex::new(None));
    let held = Arc::clone(&taken);
    case.meanwhile(When::BeforeOpening, 30, move || {
        *held.lock().unwrap() = Some(lock(&path));
    });
    let logs = case.open();
    // Their order is that of the numbers.
    for (number, log) in logs.into_iter().enumerate().skip(30) {
        assert!(log.unwrap().has_running_owner(), "{number}");
    }
    drop(taken);
}

#[test]
fn a_lock_that_ends_meanwhile_is_seen() {
    let case = Case::new();
    let taken = lock(case.folder.path());
    case.meanwhile(When::BeforeOpening, 30, move || drop(taken));
    for (number, log) in case.open().into_iter().enumerate().skip(31) {
        assert!(!log.unwrap().has_running_owner(), "{number}");
    }
}

/// What is told of the moment of opening is that of the new lines.
#[test]
fn a_checkpoint_that_is_replaced_meanwhile_is_read() {
    for in_place in [false, true] {
        let case = Case::new();
        // Its first segment begins behind the start that the checkpoint gets.
        let directory = case.partition(40);
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if let Some(suffix) = name.strip_prefix("00000000000000000000") {
                let new = directory.join(format!("00000000000000000007{suffix}"));
                fs::rename(entry.path(), new).unwrap();
            }
        }
        age(case.folder.path());
        let path = case.folder.path().to_path_buf();
        case.meanwhile(When::BeforeOpening, 39, move || {
            let text = checkpoint(&[(40, 5)]);
            if in_place {
                fs::write(path.join(START), text).unwrap();
            } else {
                fs::write(path.join("new"), text).unwrap();
                fs::rename(path.join("new"), path.join(START)).unwrap();
            }
        });
        let log = case.open().swap_remove(40).unwrap();
        let warnings = log.warnings();
        assert!(
            warnings.iter().any(|each| each.contains("offsets 5 to 6")),
            "{warnings:?}"
        );
    }
}

/// The high watermark is not asked for the end of a log, and is as it is now for itself.
#[test]
fn a_high_watermark_that_is_stored_later_is_read() {
    let case = Case::new();
    let log = case.open().swap_remove(50).unwrap();
    assert_eq!(log.log_end_offset().unwrap(), records(50));
    assert_eq!(log.checkpointed_high_watermark().unwrap(), None);
    fs::write(case.folder.path().join(HIGH), checkpoint(&[(50, 2)])).unwrap();
    assert_eq!(log.log_end_offset().unwrap(), records(50));
    assert_eq!(log.checkpointed_high_watermark().unwrap(), Some(2));
    fs::write(case.folder.path().join(START), checkpoint(&[(50, 1)])).unwrap();
    assert_eq!(log.log_start_offset().unwrap(), 1);
}

/// Without a checkpoint of the log start offsets, that of the high watermarks shows that this is a log dir, where a state file of ours
/// does not count.
#[test]
fn where_the_log_begins_depends_on_what_the_folder_is() {
    let case = Case::new();
    let path = case.folder.path();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() && entry.file_name() != HIGH {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let state = "version: 0\nrecovery_point: 0\nlog_start_offset: 2\n";
    fs::write(case.partition(5).join(".offsetlog.state"), state).unwrap();
    age(path);
    let log = Log::open(case.partition(5), &OpenOptions::default()).unwrap();
    assert_eq!(log.log_start_offset().unwrap(), 0);
    fs::remove_file(path.join(HIGH)).unwrap();
    assert_eq!(log.log_start_offset().unwrap(), 2);
    fs::write(path.join(HIGH), checkpoint(&[])).unwrap();
    assert_eq!(log.log_start_offset().unwrap(), 0);
}

/// A state file that appears behind the listing is read by the next call.
#[test]
fn a_state_file_that_is_written_meanwhile_is_read() {
    let case = Case::new();
    let path = case.folder.path();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    age(path);
    let state = case.partition(5).join(".offsetlog.state");
    case.meanwhile(When::BehindListing, 5, move || {
        fs::write(
            state,
            "version: 0\nrecovery_point: 0\nlog_start_offset: 2\n",
        )
        .unwrap();
    });
    let log = case.open().swap_remove(5).unwrap();
    assert_eq!(log.log_start_offset().unwrap(), 2);
}

/// A directory that is replaced while it is opened is the old one or the new one, and the next call sees the new one.
#[test]
fn a_partition_that_is_replaced_meanwhile_is_no_mixture() {
    for when in [
        When::BeforeOpening,
        When::BeforeListing,
        When::BehindListing,
    ] {
        let case = Case::new();
        // A directory of two records at offset 7, where the other has three at 0.
        let new = case.folder.path().join("new");
        fs::create_dir(&new).unwrap();
        let donor = case.partition(1).join("00000000000000000000.log");
        let mut bytes = fs::read(donor).unwrap();
        bytes[..8].copy_from_slice(&7_i64.to_be_bytes());
        fs::write(new.join("00000000000000000007.log"), &bytes).unwrap();
        age(&new);
        let (path, aside) = (case.partition(32), case.folder.path().join("aside"));
        case.meanwhile(when, 32, move || {
            fs::rename(&path, aside).unwrap();
            fs::rename(new, path).unwrap();
        });
        let log = case.open().swap_remove(32).unwrap();
        assert_eq!(log.log_end_offset().unwrap(), 9, "{when:?}");
        assert_eq!(log.log_start_offset().unwrap(), 7, "{when:?}");
        assert_eq!(log.segments().unwrap()[0].base_offset, 7, "{when:?}");
    }
}

/// A partition that another process deletes, appends to or rolls while it is opened is as after one of its calls.
#[test]
fn a_partition_that_changes_meanwhile_is_seen_as_it_is() {
    for when in [
        When::BeforeOpening,
        When::BeforeListing,
        When::BehindListing,
    ] {
        let case = Case::new();
        let path = case.partition(32);
        case.meanwhile(when, 32, move || fs::remove_dir_all(path).unwrap());
        let opened = case.open().swap_remove(32);
        let error = opened.and_then(|log| log.log_end_offset()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");

        let case = Case::new();
        let path = case.partition(32);
        let donor = case.partition(2).join("00000000000000000000.log");
        case.meanwhile(when, 32, move || {
            let mut bytes = fs::read(donor).unwrap();
            bytes[..8].copy_from_slice(&3_i64.to_be_bytes());
            fs::write(path.join("00000000000000000003.log"), &bytes).unwrap();
        });
        let log = case.open().swap_remove(32).unwrap();
        assert_eq!(log.log_end_offset().unwrap(), 6, "{when:?}");
        assert_eq!(log.segments().unwrap().len(), 2, "{when:?}");

        let case = Case::new();
        let path = case.partition(32).join("00000000000000000000.log");
        case.meanwhile(when, 32, move || {
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_len(0).unwrap();
        });
        let log = case.open().swap_remove(32).unwrap();
        assert_eq!(log.log_end_offset().unwrap(), 0, "{when:?}");
    }
}

/// Replicas and directories that were given themselves share nothing, and several log dirs share each its own.
#[test]
fn several_log_dirs_share_each_its_own() {
    let case = Case::new();
    let other = tempfile::tempdir().unwrap();
    let path = other.path().join("moved-0");
    fs::rename(case.partition(7), &path).unwrap();
    let alone = tempfile::tempdir().unwrap();
    let given = alone.path().join("given-0");
    fs::rename(case.partition(8), &given).unwrap();
    fs::write(other.path().join(START), "0\n1\nmoved 0 1\n").unwrap();
    age(other.path());
    let held = lock(other.path());
    let paths = [case.folder.path(), other.path(), given.as_path()];
    let log_dir = LogDir::open(&paths, case.log_dir.options()).unwrap();
    let logs = log_dir.logs(&log_dir.partitions(), 2);
    assert_eq!(logs.len(), PARTITIONS as usize);
    for log in logs {
        let log = log.unwrap();
        let is_moved = log.topic() == "moved";
        assert_eq!(log.has_running_owner(), is_moved, "{}", log.topic());
        assert_eq!(
            log.log_start_offset().unwrap() == 1,
            is_moved || log.path().ends_with("many-0")
        );
        assert!(log.path().starts_with(match log.topic() {
            "moved" => other.path(),
            "given" => alone.path(),
            _ => case.folder.path(),
        }));
    }
    drop(held);
}
