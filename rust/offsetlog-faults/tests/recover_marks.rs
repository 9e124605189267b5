//! A recovery that ends in the middle, wherever it does: the mark of a clean stop is there only where nothing is changed, and nothing brings
//! it back over a loss.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use offsetlog::disk::RealDisk;
use offsetlog::{
    AppendOptions, BatchBuilder, LogWriter, OpenOptions, RecoverOptions, Result, WriteOptions,
    recover,
};
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is wrong with a log that a broker closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Its first batch: recovery cuts all that follow.
    FirstBatch,
    /// Its last one: opening cuts it too.
    LastBatch,
}

/// A copy of a broker's log dir, stopped cleanly, and a partition of it.
fn stopped(folder: &Path, wrong: Wrong) -> PathBuf {
    let golden =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kafka-4.3.0/clean/log-dir-1");
    for entry in fs::read_dir(&golden).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
    for name in ["g-plain-0", "g-plain-2"] {
        fs::create_dir(folder.join(name)).unwrap();
        for entry in fs::read_dir(golden.join(name)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), folder.join(name).join(entry.file_name())).unwrap();
        }
    }
    let partition = folder.join("g-plain-0");
    let logs: Vec<_> = kafkas(&partition).into_keys().collect();
    let logs = || logs.iter().filter(|name| is_named(name, "log"));
    let (name, from_end) = match wrong {
        Wrong::Nothing => return partition,
        Wrong::FirstBatch => (logs().next().unwrap(), false),
        Wrong::LastBatch => (logs().next_back().unwrap(), true),
    };
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(partition.join(name))
        .unwrap();
    let position = if from_end {
        file.metadata().unwrap().len() - 3
    } else {
        70
    };
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_at(&[byte[0] ^ 1], position).unwrap();
    partition
}

/// The files that a broker goes by.
fn kafkas(partition: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(partition).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).unwrap())
        })
        .filter(|(name, _)| !name.starts_with(".offsetlog") && !is_named(name, "tmp"))
        .collect()
}

fn is_named(name: &str, extension: &str) -> bool {
    Path::new(name).extension() == Some(extension.as_ref())
}

fn log_bytes(files: &BTreeMap<String, Vec<u8>>) -> usize {
    let logs = files.iter().filter(|(name, _)| is_named(name, "log"));
    logs.map(|(_, bytes)| bytes.len()).sum()
}

fn has_mark(partition: &Path) -> bool {
    partition
        .parent()
        .unwrap()
        .join(".kafka_cleanshutdown")
        .exists()
}

fn write(single_replica: bool) -> WriteOptions {
    WriteOptions {
        single_replica,
        ..WriteOptions::default()
    }
}

/// Appends a record to a log and closes it, if it can be opened.
fn appended(path: &Path) -> Result<()> {
    let log = LogWriter::open(path, &OpenOptions::default(), &write(true))?;
    append(&log);
    log.close()
}

fn append(log: &LogWriter) {
    let mut batch = BatchBuilder::default();
    batch
        .push(1_700_000_000_000, None, Some(b"value"), &[])
        .unwrap();
    log.append(&mut batch, &AppendOptions::default()).unwrap();
}

/// Does what changes the log, up to where `options` end it, and looks at what is left.
fn check(wrong: Wrong, has_other: bool, opens: bool, options: &OpenOptions, what: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let partition = stopped(folder.path(), wrong);
    let before = kafkas(&partition);
    let other = has_other.then(|| {
        let path = folder.path().join("g-plain-2");
        let log = LogWriter::open(path, &OpenOptions::default(), &write(true)).unwrap();
        append(&log);
        log
    });
    let ended = if opens {
        LogWriter::open(&partition, options, &write(true)).and_then(|log| log.close())
    } else {
        recover(&partition, options, &RecoverOptions::default()).map(|_| ())
    };
    let left = kafkas(&partition);
    let is_cut = log_bytes(&left) < log_bytes(&before);
    if let Some(other) = other {
        assert!(!has_mark(&partition), "{what}: while another writes");
        other.close().unwrap();
    }
    if has_mark(&partition) && ended.is_err() {
        assert!(!is_cut, "{what}: a mark over a loss");
        let is_done = || {
            let folder = tempfile::tempdir().unwrap();
            let whole = stopped(folder.path(), wrong);
            recover(&whole, &OpenOptions::default(), &RecoverOptions::default()).unwrap();
            left == kafkas(&whole)
        };
        let is_whole = opens || left == before || is_done();
        assert!(is_whole, "{what}: a mark over a change");
    }
    // Sound now, or not touched.
    if appended(&partition).is_ok() && is_cut {
        assert!(!has_mark(&partition), "{what}: the mark came back");
    }
    ended.is_err()
}

fn cases() -> impl Iterator<Item = (Wrong, bool, bool)> {
    let recovers =
        [Wrong::Nothing, Wrong::FirstBatch, Wrong::LastBatch].map(|wrong| (wrong, false));
    let all = recovers.into_iter().chain([(Wrong::LastBatch, true)]);
    all.flat_map(|(wrong, opens)| [(wrong, false, opens), (wrong, true, opens)])
}

#[test]
fn where_the_disk_fails_or_the_process_dies() {
    for (wrong, has_other, opens) in cases() {
        let mut failures = 0;
        for lasting in [Lasting::Killed, Lasting::Once] {
            for nth in 1.. {
                let disk = FaultDisk::new(
                    Arc::new(RealDisk),
                    Plan {
                        kinds: |call: Call, _| call.is_change(),
                        nth,
                        lasting,
                        ..Plan::none()
                    },
                );
                let options = OpenOptions {
                    disk: Arc::new(disk.clone()),
                    ..OpenOptions::default()
                };
                let what = format!("{wrong:?}, {has_other}, {opens}, {lasting:?} {nth}");
                failures += u32::from(check(wrong, has_other, opens, &options, &what));
                if disk.failed().is_empty() {
                    break;
                }
            }
        }
        assert!(failures > 10, "{wrong:?}, {has_other}, {opens}: {failures}");
    }
}

#[test]
fn where_it_is_interrupted() {
    for (wrong, has_other, opens) in cases() {
        for nth in 1.. {
            let calls = Arc::new(AtomicU64::new(0));
            let options = OpenOptions {
                interrupt: Some(Arc::new(move || {
                    calls.fetch_add(1, Ordering::Relaxed) + 1 >= nth
                })),
                ..OpenOptions::default()
            };
            let what = format!("{wrong:?}, {has_other}, {opens}, interrupt {nth}");
            if !check(wrong, has_other, opens, &options, &what) {
                break;
            }
        }
    }
}

const NO_SPACE: i32 = 28;

/// A disk that is full from the first call of these kinds on.
fn full(kinds: fn(Call, &str) -> bool) -> FaultDisk {
    FaultDisk::new(
        Arc::new(RealDisk),
        Plan {
            kinds,
            nth: 1,
            lasting: Lasting::FromThenOn,
            error: NO_SPACE,
            ..Plan::none()
        },
    )
}

/// Without room to note that a recovery has begun, the mark goes for good: nobody could bring it back behind a recovery that ended in the
/// middle. Whoever loses it is told.
#[test]
fn where_there_is_no_room_to_note_that_it_has_begun() {
    for wrong in [Wrong::Nothing, Wrong::FirstBatch, Wrong::LastBatch] {
        let folder = tempfile::tempdir().unwrap();
        let partition = stopped(folder.path(), wrong);
        fs::write(partition.join(format!("{:020}.log.deleted", 0)), "").unwrap();
        let disk = full(|call, path| {
            call.is_change() && path.contains("offsetlog-unclean") && call != Call::Unlink
        });
        let options = OpenOptions {
            disk: Arc::new(disk.clone()),
            ..OpenOptions::default()
        };
        let report = recover(&partition, &options, &RecoverOptions::default()).unwrap();
        assert!(!disk.failed().is_empty(), "{wrong:?}");
        assert!(!has_mark(&partition), "{wrong:?}");
        let told = |words: &str| {
            let told = report.warnings.iter();
            told.filter(|line| line.contains(words)).count()
        };
        // Once, and by what matters most.
        let is_lost = wrong != Wrong::Nothing;
        assert_eq!(
            told("the mark of a clean stop is not put back"),
            1,
            "{report:?}"
        );
        assert_eq!(
            told("there was no room"),
            usize::from(!is_lost),
            "{report:?}"
        );
        assert_eq!(told("and had more"), usize::from(is_lost), "{report:?}");
    }
}

/// Nor does it tell less if it cannot go on.
#[test]
fn where_there_is_no_room_for_anything() {
    let folder = tempfile::tempdir().unwrap();
    let partition = stopped(folder.path(), Wrong::Nothing);
    let mut index = kafkas(&partition).into_keys();
    let index = index.find(|name| is_named(name, "index")).unwrap();
    fs::write(partition.join(index), [9; 16]).unwrap();
    let disk = full(|call, path| {
        matches!(call, Call::Create | Call::Write) && !path.contains("offsetlog-shared.lock")
    });
    let options = OpenOptions {
        disk: Arc::new(disk.clone()),
        ..OpenOptions::default()
    };
    let error = recover(&partition, &options, &RecoverOptions::default()).unwrap_err();
    assert!(!disk.failed().is_empty());
    assert!(!has_mark(&partition));
    let words = "the log dir has lost its mark of a clean stop";
    assert!(error.to_string().contains(words), "{error}");
    // The mark is gone, and the next call has nothing to tell of it: the log is whole.
    let report = recover(
        &partition,
        &OpenOptions::default(),
        &RecoverOptions::default(),
    )
    .unwrap();
    assert!(report.warnings.is_empty(), "{report:?}");
}
