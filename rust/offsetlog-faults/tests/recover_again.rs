//! A recovery that ends in the middle, wherever it does: the next one finds what the first would have found, and leaves the same log.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use offsetlog::disk::RealDisk;
use offsetlog::{
    AppendOptions, BatchBuilder, LogConfig, LogWriter, OpenOptions, RecoverOptions, RecoveryReport,
    Result, WriteOptions, recover,
};
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Segments of six records in batches of three.
const SEGMENTS: i64 = 5;

/// A log of which a bit is wrong in the batch that begins at `offset`.
fn damaged(path: &Path, offset: i64) {
    let write = WriteOptions {
        config: Some(LogConfig::parse([("file.delete.delay.ms", "0")]).unwrap()),
        ..WriteOptions::default()
    };
    let log = LogWriter::open(path, &OpenOptions::default(), &write).unwrap();
    for segment in 0..SEGMENTS {
        for _ in 0..2 {
            let mut batch = BatchBuilder::default();
            for _ in 0..3 {
                batch
                    .push(1_700_000_000_000, None, Some(b"value"), &[])
                    .unwrap();
            }
            log.append(&mut batch, &AppendOptions::default()).unwrap();
        }
        if segment + 1 < SEGMENTS {
            log.roll().unwrap();
        }
    }
    let found = log.log().batches(Some(offset), None).unwrap().next();
    let found = found.unwrap().unwrap();
    log.close().unwrap();
    let segment = path.join(format!("{:020}.log", found.segment));
    let file = fs::File::options().write(true).open(segment).unwrap();
    file.write_at(&[0xff], found.position + 63).unwrap();
}

/// The segments, and which of them were put aside.
fn left(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let logs = files.filter(|path| path.extension().is_some_and(|ending| ending == "log"));
    logs.map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read(path).unwrap())
    })
    .collect()
}

fn recovered(path: &Path, disk: Option<&FaultDisk>) -> Result<RecoveryReport> {
    let mut options = OpenOptions::default();
    if let Some(disk) = disk {
        options.disk = Arc::new(disk.clone());
    }
    recover(path, &options, &RecoverOptions::default())
}

/// Fails each look at a name in turn, once with each of two errors, and says how many there were.
fn each_look_fails(act: impl Fn(&Path, &FaultDisk)) -> u64 {
    for nth in 1.. {
        for error in [5, 13] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("orders-0");
            let disk = FaultDisk::new(
                Arc::new(RealDisk),
                Plan {
                    kinds: |call, path| call == Call::Stat && path.contains("offsetlog-cut/"),
                    nth,
                    error,
                    ..Plan::none()
                },
            );
            act(&path, &disk);
            if disk.failed().is_empty() {
                return nth - 1;
            }
        }
    }
    0
}

/// Whether it says that it could not look at all that earlier ones cut.
fn is_not_known_whole(report: &RecoveryReport) -> bool {
    let warnings = report.warnings.iter();
    let told = warnings.filter(|line| line.contains("is not known whole"));
    let told = told.count();
    assert!(told < 2, "{report:?}");
    told > 0
}

#[test]
fn what_was_cut_earlier_stays_where_a_look_at_its_name_fails() {
    let earlier = b"an earlier cut at the same position";
    let again = each_look_fails(|path, disk| {
        damaged(path, 3);
        let report = recovered(path, None).unwrap();
        let kept: Vec<_> = report
            .cut
            .iter()
            .filter_map(|cut| cut.kept.as_ref())
            .collect();
        assert!(kept.len() > 1, "a part of a segment, and segments");
        for kept in &kept {
            fs::write(kept, earlier).unwrap();
        }
        for segment in left(path).keys() {
            fs::remove_file(path.join(segment)).unwrap();
        }
        let anew = path.parent().unwrap().join("anew").join("orders-0");
        damaged(&anew, 3);
        for (name, bytes) in left(&anew) {
            fs::write(path.join(name), bytes).unwrap();
        }
        // What earlier recoveries cut is only told of.
        match recovered(path, Some(disk)) {
            Ok(report) => assert_eq!(is_not_known_whole(&report), !disk.failed().is_empty()),
            Err(_) => assert!(!disk.failed().is_empty()),
        }
        for kept in kept {
            assert_eq!(fs::read(kept).unwrap(), earlier, "{}", kept.display());
        }
    });
    assert!(again > 1, "{again}");
}

#[test]
fn what_was_truncated_earlier_stays_where_a_look_at_its_name_fails() {
    let again = each_look_fails(|path, disk| {
        damaged(path, 27);
        recovered(path, None).unwrap();
        let truncate = |disk: Option<&FaultDisk>| {
            let mut options = OpenOptions::default();
            if let Some(disk) = disk {
                options.disk = Arc::new(disk.clone());
            }
            let log = LogWriter::open(path, &options, &WriteOptions::default()).unwrap();
            let mut batch = BatchBuilder::default();
            batch
                .push(1_700_000_000_000, None, Some(b"value"), &[])
                .unwrap();
            log.append(&mut batch, &AppendOptions::default()).unwrap();
            let end = log.log().log_end_offset().unwrap();
            log.truncate_to_keeping(end - 1)
        };
        let kept = truncate(None).unwrap();
        let earlier = fs::read(&kept[0]).unwrap();
        assert_eq!(kept.len(), 1);
        let done = truncate(Some(disk));
        assert_eq!(done.is_err(), !disk.failed().is_empty());
        assert_eq!(fs::read(&kept[0]).unwrap(), earlier);
        assert!(done.is_err() || done.unwrap() != kept);
    });
    assert!(again > 0, "{again}");
}

/// The records that a recovery says earlier ones cut.
fn told_of_earlier(report: &RecoveryReport) -> u64 {
    let told = report
        .warnings
        .iter()
        .filter_map(|line| line.strip_prefix("earlier recoveries cut "));
    let told: Vec<&str> = told.collect();
    assert!(told.len() < 2, "{told:?}");
    told.first()
        .map_or(0, |line| line.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn the_second_call_goes_on_where_the_first_ended() {
    // In the second batch of the first segment, in the first batch of a segment, and in the last one.
    for offset in [3, 12, 27] {
        let whole = tempfile::tempdir().unwrap();
        let path = whole.path().join("orders-0");
        damaged(&path, offset);
        let undisturbed = recovered(&path, None).unwrap();
        assert_eq!(told_of_earlier(&undisturbed), 0);
        let expected = left(&path);
        let mut ended = 0;
        for lasting in [Lasting::Killed, Lasting::Once] {
            for nth in 1.. {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("orders-0");
                damaged(&path, offset);
                let disk = FaultDisk::new(
                    Arc::new(RealDisk),
                    Plan {
                        kinds: |call: Call, _| call.is_change(),
                        nth,
                        lasting,
                        ..Plan::none()
                    },
                );
                let first = recovered(&path, Some(&disk));
                if disk.failed().is_empty() {
                    break;
                }
                ended += u32::from(first.is_err());
                let was_whole = left(&path) == expected;
                let second = recovered(&path, None).unwrap();
                let what = format!("{offset}, {lasting:?} {nth}");
                assert!(left(&path) == expected, "{what}: another log");
                assert_eq!(second.log_end_offset, undisturbed.log_end_offset, "{what}");
                // Sound, and nothing to cut, only where nothing was left to do.
                assert!(was_whole || !second.cut.is_empty(), "{what}: told as sound");
                // With what the first one cut it has the whole number, and no record twice.
                let all = second.records_cut() + told_of_earlier(&second);
                assert_eq!(all, undisturbed.records_cut(), "{what}: {second:?}");
            }
        }
        assert!(ended > 3, "{offset}: {ended}");
    }
}

#[test]
fn what_was_cut_and_cannot_be_read_keeps_nobody_from_recovering() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders-0");
    damaged(&path, 3);
    recovered(&path, None).unwrap();
    for call in [Call::Open, Call::Read, Call::List] {
        let disk = FaultDisk::new(
            Arc::new(RealDisk),
            Plan {
                kinds: match call {
                    Call::Open => {
                        |call, path| call == Call::Open && path.contains("offsetlog-cut/")
                    }
                    Call::Read => {
                        |call, path| call == Call::Read && path.contains("offsetlog-cut/")
                    }
                    _ => |call, path| call == Call::List && path.ends_with("offsetlog-cut"),
                },
                nth: 1,
                ..Plan::none()
            },
        );
        let report = recovered(&path, Some(&disk)).unwrap();
        assert!(!disk.failed().is_empty(), "{call:?}");
        assert!(is_not_known_whole(&report), "{call:?}: {report:?}");
        assert_eq!(report.log_end_offset, 3);
    }
}
