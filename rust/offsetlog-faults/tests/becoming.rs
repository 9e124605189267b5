//! A folder becomes a log dir while another program begins to write a partition in it: what that one deletes stays deleted.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use offsetlog::disk::RealDisk;
use offsetlog::{
    AppendOptions, BatchBuilder, ErrorKind, Log, LogDir, LogDirOptions, LogWriter, OpenOptions,
    Result, WriteOptions,
};
use offsetlog_faults::fault::{FaultDisk, Plan};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

fn partition(folder: &Path) -> PathBuf {
    folder.join("orders-0")
}

fn on(disk: &FaultDisk) -> OpenOptions {
    OpenOptions {
        disk: Arc::new(disk.clone()),
        ..OpenOptions::default()
    }
}

fn plain_disk() -> FaultDisk {
    FaultDisk::new(Arc::new(RealDisk), Plan::none())
}

/// A folder with a partition of ten records, of which the first three are deleted.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let log = LogWriter::open(
        partition(folder.path()),
        &OpenOptions::default(),
        &WriteOptions::default(),
    )
    .unwrap();
    for _ in 0..10 {
        let mut batch = BatchBuilder::default();
        batch.push(1, None, Some(b"value"), &[]).unwrap();
        log.append(&mut batch, &AppendOptions::default()).unwrap();
    }
    log.delete_records_before(3).unwrap();
    log.close().unwrap();
    folder
}

/// Opens the partition, says so, waits, and deletes the records before offset 8.
fn write(folder: &Path, disk: &FaultDisk, opened: &Sender<()>, go: &Receiver<()>) -> Result<()> {
    let log = LogWriter::open(partition(folder), &on(disk), &WriteOptions::default())?;
    let _ = opened.send(());
    let _ = go.recv();
    log.delete_records_before(8)?;
    log.close()
}

fn become_log_dir(folder: &Path, disk: &FaultDisk) -> Result<()> {
    LogDir::open_for_append(&[folder], &on(disk), &LogDirOptions::default())?.close()
}

/// Where the log begins, for a reader and for the next writer.
fn starts(folder: &Path) -> [i64; 2] {
    let options = OpenOptions::default();
    let reader = Log::open(partition(folder), &options).unwrap();
    let read = reader.log_start_offset().unwrap();
    let log = LogWriter::open(partition(folder), &options, &WriteOptions::default()).unwrap();
    let written = log.log_start_offset().unwrap();
    log.close().unwrap();
    [read, written]
}

fn is_locked(done: &Result<()>) -> bool {
    done.as_ref()
        .is_err_and(|error| matches!(error.kind(), ErrorKind::Locked { .. }))
}

type Other = Arc<Mutex<Option<(JoinHandle<Result<()>>, Sender<()>)>>>;

/// Has `work` done by another thread just before the call `meets`, until it has ended, waits for what this thread holds, or is open.
fn meet(
    disk: &FaultDisk,
    meets: u64,
    work: impl FnOnce(&Sender<()>, &Receiver<()>) -> Result<()> + Send + 'static,
) -> Other {
    let other = Other::default();
    let begun = Arc::clone(&other);
    disk.set(Plan::none());
    disk.before(meets, move || {
        let (opened, is_open) = channel();
        let (goes, go) = channel();
        let thread = std::thread::spawn(move || work(&opened, &go));
        let _ = is_open.recv_timeout(Duration::from_millis(100));
        *begun.lock().unwrap() = Some((thread, goes));
    });
    other
}

/// Lets the other thread go on, and returns what it did; `None` if it was not begun.
fn end(other: &Other) -> Option<Result<()>> {
    let (thread, go) = other.lock().unwrap().take()?;
    drop(go);
    Some(thread.join().unwrap())
}

#[test]
fn who_writes_meanwhile_deletes_for_good() {
    let mut refused = 0;
    for meets in 1.. {
        let folder = folder();
        let disk = plain_disk();
        let place = folder.path().to_path_buf();
        let other = meet(&disk, meets, move |opened, go| {
            write(&place, &plain_disk(), opened, go)
        });
        let made = become_log_dir(folder.path(), &disk);
        let Some(written) = end(&other) else {
            assert!(meets > 5 && refused > 0, "{meets}: {refused} refused");
            break;
        };
        written.unwrap();
        assert!(made.is_ok() || is_locked(&made), "{meets}: {made:?}");
        refused += u64::from(made.is_err());
        assert_eq!(starts(folder.path()), [8, 8], "{meets}: {made:?}");
        become_log_dir(folder.path(), &plain_disk()).unwrap();
        assert_eq!(starts(folder.path()), [8, 8], "{meets}: again");
    }
}

#[test]
fn who_begins_to_write_notices_it() {
    let mut refused = 0;
    for meets in 1.. {
        let folder = folder();
        let disk = plain_disk();
        let place = folder.path().to_path_buf();
        let other = meet(&disk, meets, move |_, _| {
            become_log_dir(&place, &plain_disk())
        });
        let (opened, go) = (channel().0, channel().1);
        write(folder.path(), &disk, &opened, &go).unwrap();
        let Some(made) = end(&other) else {
            assert!(meets > 20 && refused > 0, "{meets}: {refused} refused");
            break;
        };
        assert!(made.is_ok() || is_locked(&made), "{meets}: {made:?}");
        refused += u64::from(made.is_err());
        assert_eq!(starts(folder.path()), [8, 8], "{meets}: {made:?}");
        become_log_dir(folder.path(), &plain_disk()).unwrap();
        assert_eq!(starts(folder.path()), [8, 8], "{meets}: again");
    }
}
