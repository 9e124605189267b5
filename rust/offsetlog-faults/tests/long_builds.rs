//! New logs so long that another thread appends to them: they have the old log's bytes, and when either thread fails, the error is reported
//! and nothing is left.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a test may panic"
)]

use offsetlog::disk::RealDisk;
use offsetlog::format::Codec;
use offsetlog::{
    AppendOptions, BatchBuilder, BuiltPartition, ErrorKind, Log, LogConfig, LogWriter,
    MarkerOptions, NewPartition, OpenOptions, PartitionBuilder, Producer, Result, ScanOptions,
    WriteOptions,
};
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Several times what makes another thread worth its start.
const BYTES: u64 = 24 << 20;

fn settings() -> LogConfig {
    LogConfig::parse([("internal.segment.bytes", "5000000")]).unwrap()
}

fn append(log: &LogWriter, value: &[u8], producer: Producer) {
    let mut batch = BatchBuilder::new(Codec::None, producer);
    for _ in 0..4 {
        let time = 1_000 + log.log_end_offset().unwrap();
        batch.push(time, None, Some(value), &[]).unwrap();
    }
    log.append(&mut batch, &AppendOptions::default()).unwrap();
}

/// Large batches, with now and then a transaction of small ones, which are appended one by one.
fn old_log(path: &Path) {
    let write = WriteOptions {
        config: Some(settings()),
        ..WriteOptions::default()
    };
    let log = LogWriter::open(path, &OpenOptions::default(), &write).unwrap();
    let mut rng = fastrand::Rng::with_seed(24);
    let mut sequence = 0;
    while log.log().size_bytes().unwrap() < BYTES {
        for _ in 0..rng.usize(1..40) {
            append(&log, &vec![7; rng.usize(1..9_000)], Producer::default());
        }
        for _ in 0..rng.usize(1..200) {
            let producer = Producer {
                producer_id: 9,
                producer_epoch: 0,
                base_sequence: sequence,
                is_transactional: true,
            };
            append(&log, &[8; 20], producer);
            sequence += 4;
        }
        let marker = MarkerOptions {
            producer_id: 9,
            producer_epoch: 0,
            commit: rng.bool(),
            coordinator_epoch: 0,
            timestamp: Some(1_000 + log.log_end_offset().unwrap()),
            transaction_version: 0,
        };
        log.append_marker(&marker, &AppendOptions::default())
            .unwrap();
    }
    log.close().unwrap();
}

fn build(old: &Path, new: &Path, options: &OpenOptions) -> Result<BuiltPartition> {
    let log = Log::open(old, &OpenOptions::default())?;
    let begin = NewPartition {
        config: Some(settings()),
        reads_back: true,
        ..NewPartition::default()
    };
    let mut builder = PartitionBuilder::create(new, options, &begin)?;
    let mut scan = log.scan(&ScanOptions {
        control_records: true,
        ..ScanOptions::default()
    })?;
    while let Some(mut batch) = scan.next_batch()? {
        builder.add(&mut batch)?;
    }
    builder.finish(0, log.log_end_offset()?)
}

/// All bytes of the files of one kind, in the order of their names.
fn bytes(log: &Path, ending: &str) -> Vec<u8> {
    let mut files: Vec<PathBuf> = fs::read_dir(log)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    files.sort();
    files
        .iter()
        .flat_map(|path| fs::read(path).unwrap())
        .collect()
}

/// Whether a thread of this name writes to the new log: the other thread, or the one that builds.
fn writes(call: Call, path: &str, name: &str) -> bool {
    call == Call::Write && path.ends_with(".log") && std::thread::current().name() == Some(name)
}

const BUILDER: &str = "builder";

/// The writes of each thread.
const WRITERS: [fn(Call, &str) -> bool; 2] = [
    |call, path| writes(call, path, "offsetlog-append"),
    |call, path| writes(call, path, BUILDER),
];

/// Nothing is in the folder but the old log.
fn has_only_the_old(folder: &Path) -> bool {
    let names = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names.collect::<Vec<_>>() == ["old-0"]
}

struct Case {
    folder: tempfile::TempDir,
    disk: FaultDisk,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        old_log(&folder.path().join("old-0"));
        let disk = FaultDisk::new(Arc::new(RealDisk), Plan::none());
        Self { folder, disk }
    }

    fn old(&self) -> PathBuf {
        self.folder.path().join("old-0")
    }

    fn new_log(&self) -> PathBuf {
        self.folder.path().join("new-0")
    }

    /// Builds the new log on a thread that has a name.
    fn build(&self) -> std::thread::Result<Result<BuiltPartition>> {
        let options = OpenOptions {
            disk: Arc::new(self.disk.clone()),
            ..OpenOptions::default()
        };
        std::thread::scope(|scope| {
            let work = || build(&self.old(), &self.new_log(), &options);
            let builder = std::thread::Builder::new().name(BUILDER.to_owned());
            builder.spawn_scoped(scope, work).unwrap().join()
        })
    }
}

#[test]
fn it_has_the_same_batches_and_aborted_transactions() {
    let case = Case::new();
    let built = case.build().unwrap().unwrap();
    assert_eq!(built.batches, built.batches_kept);
    for ending in [".log", ".txnindex"] {
        let (old, new) = (bytes(&case.old(), ending), bytes(&case.new_log(), ending));
        assert!(!old.is_empty());
        assert!(old == new, "{ending}: {} {}", old.len(), new.len());
    }
}

/// Of either thread, at its first writes and at some later ones; the last chunks are written when the log is finished.
#[test]
fn a_write_that_fails_is_reported_and_leaves_nothing() {
    let case = Case::new();
    let (mut failed, mut unfailed) = (0, 0);
    for kinds in WRITERS {
        for nth in [1, 2, 3, 7, 40, 200, 100_000] {
            for lasting in [Lasting::Once, Lasting::FromThenOn] {
                case.disk.forget();
                case.disk.set(Plan {
                    kinds,
                    nth,
                    lasting,
                    error: 28,
                    ..Plan::none()
                });
                let built = case.build().unwrap();
                let failures = case.disk.failed().len();
                match built {
                    Ok(_) => {
                        assert_eq!(
                            failures, 0,
                            "{nth}: a write failed, and nothing was reported"
                        );
                        fs::remove_dir_all(case.new_log()).unwrap();
                        unfailed += 1;
                    }
                    Err(error) => {
                        let is_io = matches!(error.kind(), ErrorKind::Io { .. });
                        assert!(
                            is_io && error.to_string().contains(".log"),
                            "{nth}: {error}"
                        );
                        assert_eq!(failures, 1, "{nth}: something was written behind a failure");
                        failed += 1;
                    }
                }
                assert!(has_only_the_old(case.folder.path()), "{nth}");
            }
        }
    }
    // How many writes a thread comes to depends on the machine; the first ones of the builder are its own.
    assert!(failed > 6 && unfailed >= 4, "{failed} {unfailed}");
}

/// A bit that is wrong on the disk is found when the new log is read back, whichever thread wrote it.
#[test]
fn a_bit_that_is_written_wrong_is_found() {
    let case = Case::new();
    for kinds in WRITERS {
        case.disk.forget();
        case.disk.set(Plan {
            kinds,
            nth: 3,
            flips: true,
            ..Plan::none()
        });
        let built = case.build().unwrap();
        assert_eq!(built.is_err(), !case.disk.failed().is_empty(), "{built:?}");
        if built.is_ok() {
            fs::remove_dir_all(case.new_log()).unwrap();
        }
        assert!(has_only_the_old(case.folder.path()));
    }
}

/// Whichever thread panics, the caller's does, and waits for nobody.
#[test]
fn a_panic_ends_it() {
    let case = Case::new();
    for kinds in WRITERS {
        case.disk.forget();
        case.disk.set(Plan {
            kinds,
            ..Plan::none()
        });
        case.disk.before(2, || panic!("the disk"));
        match case.build() {
            Err(panic) => assert_eq!(panic.downcast_ref(), Some(&"the disk")),
            Ok(built) => {
                // On a busy machine the other thread comes to nothing.
                assert!(case.disk.seen() < 2, "{built:?}");
                fs::remove_dir_all(case.new_log()).unwrap();
            }
        }
        assert!(has_only_the_old(case.folder.path()));
    }
}

/// After an error no batch is taken, however often it is tried, and the name can be used at once.
#[test]
fn what_is_added_after_an_error_fails_too() {
    let case = Case::new();
    case.disk.set(Plan {
        kinds: |call, path| call == Call::Write && path.ends_with(".log"),
        nth: 6,
        error: 28,
        ..Plan::none()
    });
    let options = OpenOptions {
        disk: Arc::new(case.disk.clone()),
        ..OpenOptions::default()
    };
    let log = Log::open(case.old(), &OpenOptions::default()).unwrap();
    let begin = NewPartition::default();
    let mut builder = PartitionBuilder::create(case.new_log(), &options, &begin).unwrap();
    let mut scan = log.scan(&ScanOptions::default()).unwrap();
    let mut failures = 0;
    let mut first = None;
    while let Some(mut batch) = scan.next_batch().unwrap() {
        if let Err(error) = builder.add(&mut batch) {
            failures += 1;
            first.get_or_insert(error);
        }
    }
    assert!(failures > 1, "{failures}");
    assert!(matches!(first.unwrap().kind(), ErrorKind::Io { .. }));
    let error = builder
        .finish(0, log.log_end_offset().unwrap())
        .unwrap_err();
    assert!(error.to_string().contains("given up"), "{error}");
    assert!(has_only_the_old(case.folder.path()));
    case.build().unwrap().unwrap();
}
