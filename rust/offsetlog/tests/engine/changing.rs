//! What a reader says if a file is changed just while it is read: what stands in the log, and no word of damage.
//!
//! The directory was changed less than a clock tick before, so its times do not show another change.

use crate::common::{append, config, end, produce};
use offsetlog::disk::RealDisk;
use offsetlog::{
    Error, FetchOptions, Isolation, Log, LogWriter, OnCorrupt, OpenOptions, RangeOptions,
    ScanOptions, WriteOptions,
};
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Segments from 0, 3, 6 and 8. Of producer 7 an aborted transaction, of 8 a committed one, and of 9 one that is open.
fn fill(path: &Path) {
    let write = WriteOptions {
        config: Some(config(&[("index.interval.bytes", "0")])),
        ..WriteOptions::default()
    };
    let log = LogWriter::open(path, &OpenOptions::default(), &write).unwrap();
    produce(&log, (7, 0, 0), true, &["a0", "a1"]).unwrap();
    produce(&log, (8, 0, 0), true, &["b2"]).unwrap();
    log.roll().unwrap();
    end(&log, 7, 0, false).unwrap();
    append(&log, &["v4"]);
    end(&log, 8, 0, true).unwrap();
    log.roll().unwrap();
    produce(&log, (9, 0, 0), true, &["c6"]).unwrap();
    append(&log, &["v7"]);
    log.roll().unwrap();
    append(&log, &["v8"]);
    produce(&log, (9, 0, 1), true, &["c9"]).unwrap();
    log.close().unwrap();
}

/// A read of a closed segment.
fn is_closed(call: Call, path: &str) -> bool {
    call == Call::Read && path.ends_with(".log") && !path.ends_with("8.log")
}

type Verb = (&'static str, fn(&Log) -> Result<String, Error>);

fn scanned(log: &Log, isolation: Isolation, on_corrupt: OnCorrupt) -> Result<String, Error> {
    let options = ScanOptions {
        isolation,
        on_corrupt,
        ..ScanOptions::default()
    };
    let mut scan = log.scan(&options)?;
    let mut found = Vec::new();
    while let Some(mut batch) = scan.next_batch()? {
        while let Some(record) = batch.next_record()? {
            found.push((record.offset, record.value.map(<[u8]>::to_vec)));
        }
    }
    Ok(format!("{found:?} {:?}", scan.report().holes()))
}

fn fetched(log: &Log, isolation: Isolation) -> Result<String, Error> {
    let options = FetchOptions {
        isolation,
        ..FetchOptions::default()
    };
    Ok(format!("{:?}", log.fetch(0, &options)?))
}

fn ranged(log: &Log, isolation: Isolation) -> Result<String, Error> {
    let options = RangeOptions {
        isolation,
        ..RangeOptions::default()
    };
    let found = log.fetch_range(0, &options)?;
    let range = found.records.map(|range| (range.position, range.length));
    let bounds = (found.log_end_offset, found.last_stable_offset);
    Ok(format!("{range:?} {bounds:?} {:?}", found.aborted))
}

fn verbs() -> Vec<Verb> {
    use Isolation::{ReadCommitted, ReadUncommitted};
    vec![
        ("last_stable_offset", |log| {
            log.last_stable_offset().map(|offset| offset.to_string())
        }),
        ("producers", |log| {
            log.producers().map(|found| format!("{found:?}"))
        }),
        ("open_transactions", |log| {
            log.open_transactions().map(|found| format!("{found:?}"))
        }),
        ("fetch", |log| fetched(log, ReadUncommitted)),
        ("fetch of what is committed", |log| {
            fetched(log, ReadCommitted)
        }),
        ("fetch_range", |log| ranged(log, ReadUncommitted)),
        ("fetch_range of what is committed", |log| {
            ranged(log, ReadCommitted)
        }),
        ("scan", |log| {
            scanned(log, ReadUncommitted, OnCorrupt::Raise)
        }),
        ("scan that skips", |log| {
            scanned(log, ReadUncommitted, OnCorrupt::Skip)
        }),
        ("scan that stops", |log| {
            scanned(log, ReadUncommitted, OnCorrupt::Stop)
        }),
        ("scan of what is committed", |log| {
            scanned(log, ReadCommitted, OnCorrupt::Raise)
        }),
        ("scan of what is committed that skips", |log| {
            scanned(log, ReadCommitted, OnCorrupt::Skip)
        }),
        ("leader_epochs", |log| {
            log.leader_epochs().map(|epochs| format!("{epochs:?}"))
        }),
        ("extent_and_epochs", |log| {
            let (extent, epochs) = log.extent_and_epochs()?;
            Ok(format!("{extent:?} {:?}", epochs.ok()))
        }),
        ("get", |log| log.get(4).map(|record| format!("{record:?}"))),
        ("locate", |log| {
            let found = log.locate(4)?;
            Ok(format!("{:?}", found.batch))
        }),
        ("offset_for_timestamp", |log| {
            let found = log.offset_for_timestamp(0, ReadCommitted)?;
            Ok(format!("{found:?}"))
        }),
        ("segment_age", |log| {
            log.segment_age(3).map(|age| format!("{age:?}"))
        }),
        ("batches", |log| {
            let found: Result<Vec<_>, _> = log.batches(None, None)?.collect();
            found.map(|found| format!("{found:?}"))
        }),
        ("splits", |log| {
            // Where they are cut is a matter of size, which damage may hide.
            let splits = log.splits(None, None, 100)?;
            let mut at = 0;
            for split in &splits {
                assert_eq!(split.start, at, "{splits:?}");
                at = split.stop;
            }
            Ok(at.to_string())
        }),
    ]
}

fn open(path: &Path, disk: &FaultDisk) -> Log {
    let options = OpenOptions {
        disk: Arc::new(disk.clone()),
        ..OpenOptions::default()
    };
    Log::open(path, &options).unwrap()
}

/// Changes the times of a directory, and of nothing in it.
fn touch(path: &Path) {
    let other = path.join("other");
    fs::write(&other, "").unwrap();
    fs::remove_file(&other).unwrap();
}

fn garbled(nth: u64, lasting: Lasting) -> Plan {
    Plan {
        kinds: is_closed,
        nth,
        lasting,
        garbles: true,
        ..Plan::none()
    }
}

/// The answer beside a change at a certain read, and whether there was such a read.
fn beside_a_change(path: &Path, verb: Verb, nth: u64, expected: &str) -> (String, bool) {
    for _ in 0..50 {
        let disk = FaultDisk::new(Arc::new(RealDisk), Plan::none());
        let log = open(path, &disk);
        disk.set(garbled(nth, Lasting::Once));
        touch(path);
        let before = Instant::now();
        let answer = (verb.1)(&log).unwrap_or_else(|error| format!("{error}"));
        let is_met = !disk.failed().is_empty();
        // On a machine that stood still the change was long ago when it was looked at, and what was read is damage.
        if answer == expected || before.elapsed() < Duration::from_millis(15) {
            return (answer, is_met);
        }
    }
    panic!("{}: a machine that stands still all the time", verb.0);
}

#[test]
fn a_file_that_changes_while_it_is_read_is_read_again() {
    for has_snapshots in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events-0");
        fill(&path);
        if !has_snapshots {
            for entry in fs::read_dir(&path).unwrap() {
                let entry = entry.unwrap().path();
                if entry.extension().is_some_and(|kind| kind == "snapshot") {
                    fs::remove_file(entry).unwrap();
                }
            }
        }
        for verb in verbs() {
            let still = open(&path, &FaultDisk::new(Arc::new(RealDisk), Plan::none()));
            let expected = (verb.1)(&still).unwrap();
            let mut nth = 1;
            loop {
                let (answer, is_met) = beside_a_change(&path, verb, nth, &expected);
                let told = format!("{}, read {nth}, snapshots: {has_snapshots}", verb.0);
                assert_eq!(answer, expected, "{told}");
                if !is_met {
                    break;
                }
                nth += 1;
            }
        }
    }
}

/// The files in a directory that this process has open, as Linux tells them.
fn open_files(path: &Path) -> usize {
    let all = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let targets = all.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| target.starts_with(path)).count()
}

#[test]
fn a_log_whose_files_are_closed_answers_as_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events-0");
    fill(&path);
    let log = open(&path, &FaultDisk::new(Arc::new(RealDisk), Plan::none()));
    for verb in verbs() {
        let expected = (verb.1)(&log).unwrap();
        for _ in 0..2 {
            log.close_files();
            assert_eq!(open_files(&path), 0, "{}", verb.0);
            assert_eq!((verb.1)(&log).unwrap(), expected, "{}", verb.0);
        }
    }
    let all = scanned(&log, Isolation::ReadUncommitted, OnCorrupt::Raise).unwrap();
    let mut scan = log.scan(&ScanOptions::default()).unwrap();
    let mut found = 0;
    while let Some(mut batch) = scan.next_batch().unwrap() {
        while batch.next_record().unwrap().is_some() {
            found += 1;
        }
        log.close_files();
    }
    assert_eq!(found, all.matches("Some").count());
    // What comes meanwhile is seen, whoever wrote it.
    log.close_files();
    let write = WriteOptions::default();
    let writer = LogWriter::open(&path, &OpenOptions::default(), &write).unwrap();
    let end = log.log_end_offset().unwrap();
    log.close_files();
    append(&writer, &["later"]);
    assert_eq!(log.log_end_offset().unwrap(), end + 1);
    writer.log().close_files();
    append(&writer, &["latest"]);
    assert_eq!(writer.log().log_end_offset().unwrap(), end + 2);
    writer.close().unwrap();
    log.close_files();
    assert_eq!(log.log_end_offset().unwrap(), end + 2);
}

#[test]
fn damage_beside_a_change_is_told_as_damage() {
    let damages: [&[(&str, usize)]; 6] = [
        &[("3", 80)],
        &[("3", 16)],
        &[("0", 10)],
        &[("6", 60)],
        // Of two transactions, one is damaged; and so is the marker of the other.
        &[("0", 70), ("3", 150)],
        &[("0", 10), ("3", 16), ("6", 60)],
    ];
    for damage in damages {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events-0");
        fill(&path);
        for (name, at) in damage {
            let file = path.join(format!("{name:0>20}.log"));
            let mut bytes = fs::read(&file).unwrap();
            bytes[*at] ^= 0xff;
            fs::write(&file, bytes).unwrap();
        }
        for verb in verbs() {
            let answer = |log: &Log| (verb.1)(log).unwrap_or_else(|error| format!("{error}"));
            std::thread::sleep(Duration::from_millis(25));
            let disk = FaultDisk::new(Arc::new(RealDisk), Plan::none());
            let expected = answer(&open(&path, &disk));
            let log = open(&path, &disk);
            touch(&path);
            assert_eq!(answer(&log), expected, "{}, {damage:?}", verb.0);
        }
    }
}

/// A batch of a transaction that fills a good part of what a scan reads at once.
fn transaction(log: &LogWriter, producer: i64, sequence: i32, value: &str) {
    produce(log, (producer, 0, sequence), true, &[value]).unwrap();
}

/// Touches the directory at each look at it, for as long as the plan counts such looks.
fn stir(disk: &FaultDisk, path: &Path, nth: u64) {
    let (again, place) = (disk.clone(), path.to_path_buf());
    disk.before(nth, move || {
        touch(&place);
        stir(&again, &place, nth + 1);
    });
}

#[test]
fn a_directory_that_was_stirred_for_a_while_is_compared_again() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("a-0"), directory.path().join("b-0"));
    let value = "x".repeat(100_000);
    let old = LogWriter::open(&path, &OpenOptions::default(), &WriteOptions::default()).unwrap();
    let new = LogWriter::open(&other, &OpenOptions::default(), &WriteOptions::default()).unwrap();
    for sequence in 0..60 {
        transaction(&old, 1, sequence, &value);
        if sequence < 40 {
            transaction(&new, 1, sequence, &value);
        }
    }
    end(&old, 1, 0, true).unwrap();
    old.close().unwrap();
    for sequence in 0..30 {
        transaction(&new, 2, sequence, &value);
    }
    end(&new, 2, 0, false).unwrap();
    append(&new, &["behind"]);
    new.close().unwrap();
    let disk = FaultDisk::new(Arc::new(RealDisk), Plan::none());
    let log = open(&path, &disk);
    let options = ScanOptions {
        isolation: Isolation::ReadCommitted,
        ..ScanOptions::default()
    };
    let mut scan = log.scan(&options).unwrap();
    disk.set(Plan {
        kinds: |call, path| call == Call::Stat && path.ends_with("a-0"),
        ..Plan::none()
    });
    stir(&disk, &path, 1);
    let mut offsets = Vec::new();
    while offsets.len() < 20 {
        let batch = scan.next_batch().unwrap().unwrap();
        offsets.push(batch.header().last_offset);
    }
    assert!(disk.seen() > 16, "{} looks", disk.seen());
    disk.set(Plan {
        kinds: |_, _| false,
        ..Plan::none()
    });
    // As another process does: it cuts the transaction that was committed, and writes one that it aborts in its place. The file of the records stays the same one.
    for entry in fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        if !other.join(entry.file_name()).exists() {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    for entry in fs::read_dir(&other).unwrap() {
        let entry = entry.unwrap();
        let place = path.join(entry.file_name());
        fs::write(place, fs::read(entry.path()).unwrap()).unwrap();
    }
    while let Some(batch) = scan.next_batch().unwrap() {
        offsets.push(batch.header().last_offset);
    }
    // What was read before the cut may be returned; what is open or aborted now is not.
    assert!(offsets.len() < 30, "{offsets:?}");
}
