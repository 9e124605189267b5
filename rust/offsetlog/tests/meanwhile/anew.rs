//! A log that its writer begins anew, in another process than its readers.

use super::disk::Meanwhile;
use super::{batch, config};
use offsetlog::disk::{Disk, LockKind, RealDisk};
use offsetlog::{
    AppendOptions, Error, ErrorKind, FetchOptions, Log, LogWriter, OpenOptions, Scan, ScanOptions,
    WriteOptions,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a writer is waited for.
const WAIT: Duration = Duration::from_secs(10);

const STATE: &str = ".offsetlog.state";
const LOCK: &str = ".offsetlog.lock";

/// Copies a partition, which does not change meanwhile.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Adds the line that a writer has in the state file while it begins the log anew.
fn note(partition: &Path) {
    let state = fs::read_to_string(partition.join(STATE)).unwrap();
    if !state.contains("cutting") {
        store(partition, &format!("{state}cutting: 100\n"));
    }
}

fn store(partition: &Path, state: &str) {
    fs::write(partition.join("new"), state).unwrap();
    fs::rename(partition.join("new"), partition.join(STATE)).unwrap();
}

/// Makes the copy of a partition what its original has become, as its writer does: with the note first, and the state file last.
fn follow(copied: &Path, original: &Path) {
    note(copied);
    for entry in fs::read_dir(copied).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if name != STATE && name != LOCK && !original.join(name).exists() {
            fs::remove_file(path).unwrap();
        }
    }
    for entry in fs::read_dir(original).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if name != STATE && name != LOCK {
            fs::copy(&path, copied.join(name)).unwrap();
        }
    }
    store(copied, &fs::read_to_string(original.join(STATE)).unwrap());
}

fn open(path: &Path, disk: &Meanwhile) -> LogWriter {
    let options = OpenOptions {
        disk: Arc::new(disk.clone()),
        ..OpenOptions::default()
    };
    let write = WriteOptions {
        config: Some(config(&[("internal.segment.bytes", "300")])),
        ..WriteOptions::default()
    };
    LogWriter::open(path, &options, &write).unwrap()
}

/// A log from 3 to 8, in several segments.
fn filled(path: &Path, disk: &Meanwhile) -> LogWriter {
    let writer = open(path, disk);
    for at in 0..8 {
        writer
            .append(&mut batch(at), &AppendOptions::default())
            .unwrap();
    }
    writer.delete_records_before(3).unwrap();
    // What rolls sync in the background is done: a failure that comes next is that of the test's own call.
    writer.flush().unwrap();
    writer
}

/// The partition as it is before each change of a name while it begins anew, and its state behind.
fn steps_to(base_offset: i64, log_start: Option<i64>, folder: &Path) -> (Vec<PathBuf>, LogWriter) {
    let path = folder.join("t-0");
    let disk = Meanwhile::default();
    let writer = filled(&path, &disk);
    let steps = Arc::new(Mutex::new(Vec::new()));
    let (noted, within) = (Arc::clone(&steps), folder.to_path_buf());
    *disk.before_rename.lock().unwrap() = Some(Box::new(move || {
        let mut noted = noted.lock().unwrap();
        let step = within.join(format!("{}/t-0", noted.len()));
        copy(&path, &step);
        noted.push(step);
        Ok(())
    }));
    writer
        .truncate_fully_and_start_at(base_offset, log_start)
        .unwrap();
    *disk.before_rename.lock().unwrap() = None;
    let steps = std::mem::take(&mut *steps.lock().unwrap());
    assert!(steps.len() > 8, "{steps:?}");
    (steps, writer)
}

/// What is left of a scan: its offsets, and the bounds if it began outside of them.
fn offsets(scan: &mut Scan) -> Result<Vec<i64>, Error> {
    let mut found = Vec::new();
    while let Some(mut batch) = scan.next_batch()? {
        while let Some(record) = batch.next_record()? {
            found.push(record.offset);
        }
    }
    Ok(found)
}

fn bounds_of(error: &Error) -> (i64, i64) {
    match error.kind() {
        ErrorKind::OffsetOutOfRange {
            log_start_offset,
            log_end_offset,
            ..
        } => (*log_start_offset, *log_end_offset),
        _ => panic!("{error}"),
    }
}

/// What a reader in another process is told that asks while the log begins anew: the old log with all its records, or the new one, which
/// is empty. The old start with the new end was never there, nor was a part of the old records.
fn begins_anew_at(base_offset: i64, log_start: Option<i64>) {
    let folder = tempfile::tempdir().unwrap();
    let (steps, writer) = steps_to(base_offset, log_start, folder.path());
    // A reader in another process does not know a start below the first segment.
    let (old, new) = ((3, 8), (base_offset, base_offset));
    let records: Vec<i64> = (3..8).collect();
    let lock = |path: &Path| {
        let lock = RealDisk.lock(&path.join(LOCK), LockKind::Exclusive);
        lock.unwrap().unwrap()
    };
    let whole = folder.path().join("whole");
    copy(&steps[0], &whole);
    for (nth, step) in steps.iter().enumerate() {
        let before = folder
            .path()
            .join("before")
            .join(nth.to_string())
            .join("t-0");
        copy(&whole, &before);
        let _held = [lock(step), lock(&before)];
        let old_reader = Log::open(&before, &OpenOptions::default()).unwrap();
        let mut begun = old_reader.scan(&ScanOptions::default()).unwrap();
        assert!(begun.next_batch().unwrap().is_some());
        note(&before);
        follow(&before, step);
        note(&before);
        // The first step is that of the note itself.
        note(step);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                follow(step, writer.log().path());
                follow(&before, writer.log().path());
            });
            let reader = Log::open(step, &OpenOptions::default()).unwrap();
            let scanned = reader
                .scan(&ScanOptions::default())
                .and_then(|mut scan| offsets(&mut scan));
            match scanned {
                Ok(found) => assert!(
                    [&records[..], &[]].contains(&&found[..]),
                    "{nth}: {found:?}"
                ),
                Err(error) => assert_eq!(bounds_of(&error), new, "{nth}"),
            }
            let found = match reader.fetch(base_offset, &FetchOptions::default()) {
                Ok(fetched) => (fetched.log_start_offset, fetched.high_watermark),
                Err(error) => bounds_of(&error),
            };
            assert!([old, new].contains(&found), "{nth}: {found:?}");
            // One after the other: the start may not be older than the end.
            let end = reader.log_end_offset().unwrap();
            let found = (reader.log_start_offset().unwrap(), end);
            assert!([old, new].contains(&found), "{nth}: {found:?}");
            match offsets(&mut begun) {
                // One whose next offset is cut off ends.
                Ok(found) if base_offset < 4 && found.is_empty() => {}
                Ok(found) => assert_eq!(found, records[1..], "{nth}"),
                Err(error) => assert_eq!(bounds_of(&error), new, "{nth}"),
            }
        });
    }
}

#[test]
fn a_log_that_begins_anew_while_it_is_read_is_the_old_one_or_the_new_one() {
    for (base_offset, log_start) in [(100, None), (100, Some(50)), (8, None), (6, None)] {
        begins_anew_at(base_offset, log_start);
    }
}

#[test]
fn a_log_that_begins_anew_at_an_old_offset_is_the_old_one_or_the_new_one() {
    for base_offset in [3, 2, 0] {
        begins_anew_at(base_offset, None);
    }
}

/// It answers then from what is there, and does not wait again for what the same writer does not do.
#[test]
fn a_writer_that_stands_still_is_waited_for_once() {
    let folder = tempfile::tempdir().unwrap();
    let (steps, _writer) = steps_to(100, None, folder.path());
    let step = &steps[8];
    let _held = RealDisk
        .lock(&step.join(LOCK), LockKind::Exclusive)
        .unwrap();
    let begun = Instant::now();
    let log = Log::open(step, &OpenOptions::default()).unwrap();
    assert!(begun.elapsed() > WAIT / 2);
    let waited = Instant::now();
    for name in ["a", "b", "c"] {
        fs::write(step.join(name), name).unwrap();
        assert_eq!(log.log_start_offset().unwrap(), 3);
        log.scan(&ScanOptions::default()).unwrap();
        Log::open(step, &OpenOptions::default()).unwrap();
    }
    assert!(waited.elapsed() < WAIT);
}

/// The names of before, and the state file of behind: what is between them is no log.
#[test]
fn names_that_change_until_the_state_file_is_read_are_looked_at_again() {
    let folder = tempfile::tempdir().unwrap();
    let (steps, writer) = steps_to(5, None, folder.path());
    let whole = folder.path().join("whole/t-0");
    copy(&steps[0], &whole);
    for (nth, step) in steps.iter().enumerate() {
        let place = folder
            .path()
            .join("place")
            .join(nth.to_string())
            .join("t-0");
        copy(&whole, &place);
        let disk = Meanwhile::default();
        let options = OpenOptions {
            disk: Arc::new(disk.clone()),
            ..OpenOptions::default()
        };
        let reader = Log::open(&place, &options).unwrap();
        assert_eq!(reader.log_end_offset().unwrap(), 8);
        follow(&place, step);
        let (place, finished) = (place.clone(), writer.log().path().to_path_buf());
        *disk.before_state.lock().unwrap() = Some(Box::new(move || follow(&place, &finished)));
        assert_eq!(reader.log_end_offset().unwrap(), 5, "{nth}");
        assert!(disk.before_state.lock().unwrap().is_none());
        assert_eq!(reader.log_start_offset().unwrap(), 5, "{nth}");
    }
}

/// Nobody waits for one that was killed, and the next writer takes its note away, whatever it finds.
#[test]
fn a_writer_that_was_killed_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (steps, _writer) = steps_to(100, None, folder.path());
    let mut noted = 0;
    for step in &steps {
        let is_noted = fs::read_to_string(step.join(STATE))
            .unwrap()
            .contains("cutting");
        noted += usize::from(is_noted);
        let begun = Instant::now();
        let log = Log::open(step, &OpenOptions::default()).unwrap();
        log.log_end_offset().unwrap();
        assert!(begun.elapsed() < WAIT);
        let _next = open(step, &Meanwhile::default());
        let state = fs::read_to_string(step.join(STATE)).unwrap();
        assert!(!state.contains("cutting"), "{state}");
    }
    assert!(noted > 8, "{noted}");
}

/// As where it was killed before the first change of the log.
#[test]
fn a_note_over_a_closed_log_goes_with_the_next_opening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t-0");
    filled(&path, &Meanwhile::default()).close().unwrap();
    let closed = fs::read_to_string(path.join(STATE)).unwrap();
    store(&path, &format!("{closed}boot: {:032x}\ncutting: 100\n", 7));
    let next = open(&path, &Meanwhile::default());
    let state = fs::read_to_string(path.join(STATE)).unwrap();
    assert!(!state.contains("cutting"), "{state}");
    assert_eq!(next.log().log_end_offset().unwrap(), 8);
}

/// The call fails before it has changed anything, and readers need not wait for it.
#[test]
fn a_note_that_could_not_be_synced_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t-0");
    let disk = Meanwhile::default();
    let writer = filled(&path, &disk);
    *disk.failing_sync.lock().unwrap() = Some(std::io::Error::other("a bad sector"));
    writer.truncate_fully_and_start_at(100, None).unwrap_err();
    let state = fs::read_to_string(path.join(STATE)).unwrap();
    assert!(!state.contains("cutting"), "{state}");
    assert_eq!(writer.log().log_end_offset().unwrap(), 8);
}

fn full() -> std::io::Result<()> {
    const ENOSPC: i32 = 28;
    Err(std::io::Error::from_raw_os_error(ENOSPC))
}

/// Nothing was noted, so nothing need be taken back.
#[test]
fn a_log_whose_new_beginning_finds_no_room_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t-0");
    let disk = Meanwhile::default();
    let writer = filled(&path, &disk);
    *disk.before_rename.lock().unwrap() = Some(Box::new(full));
    let error = writer.truncate_fully_and_start_at(100, None).unwrap_err();
    assert!(error.is_out_of_room(), "{error}");
    *disk.before_rename.lock().unwrap() = None;
    let info = writer.append(&mut batch(8), &AppendOptions::default());
    assert_eq!(info.unwrap().base_offset, 8);
}

/// It would be believed as long as the writer has the log.
#[test]
fn a_note_that_cannot_be_taken_back_ends_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t-0");
    let disk = Meanwhile::default();
    let writer = filled(&path, &disk);
    let mut renamed = 0;
    *disk.before_rename.lock().unwrap() = Some(Box::new(move || {
        renamed += 1;
        if renamed == 1 { Ok(()) } else { full() }
    }));
    *disk.failing_sync.lock().unwrap() = Some(std::io::Error::other("a bad sector"));
    writer.truncate_fully_and_start_at(100, None).unwrap_err();
    let state = fs::read_to_string(path.join(STATE)).unwrap();
    assert!(state.contains("cutting"), "{state}");
    let error = writer.append(&mut batch(8), &AppendOptions::default());
    assert!(matches!(
        error.unwrap_err().kind(),
        ErrorKind::Poisoned { .. }
    ));
    drop(writer);
    let next = open(&path, &Meanwhile::default());
    assert_eq!(next.log().log_end_offset().unwrap(), 8);
}
