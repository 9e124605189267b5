//! A look at the disk that fails is no answer: what would have been seen may be there.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use offsetlog::disk::RealDisk;
use offsetlog::{Log, LogDir, OpenOptions, VerifyOptions, verify};
use offsetlog_faults::fault::{Call, FaultDisk, Plan};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/kafka-4.3.0/clean")
        .join(name)
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copied(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A disk on which each call of these kinds fails.
fn failing(kinds: fn(Call, &str) -> bool) -> OpenOptions {
    let plan = Plan {
        kinds,
        nth: 1,
        lasting: offsetlog_faults::fault::Lasting::FromThenOn,
        ..Plan::none()
    };
    OpenOptions {
        disk: Arc::new(FaultDisk::new(Arc::new(RealDisk), plan)),
        ..OpenOptions::default()
    }
}

#[test]
fn a_log_dir_that_cannot_be_asked_for_its_cluster_is_of_no_certain_one() {
    let kinds = |call, path: &str| {
        matches!(call, Call::Open | Call::Read) && path.ends_with("log-dir-2/meta.properties")
    };
    let paths = [golden("log-dir-1"), golden("log-dir-2")];
    let sound = LogDir::open(&paths, &OpenOptions::default()).unwrap();
    sound.check_one_cluster().unwrap();
    let log_dir = LogDir::open(&paths, &failing(kinds)).unwrap();
    let error = log_dir.check_one_cluster().unwrap_err().to_string();
    assert!(
        error.contains("whether all log dirs are of one cluster"),
        "{error}"
    );
    // One alone is of one.
    let alone = LogDir::open(&paths[1..], &failing(kinds)).unwrap();
    alone.check_one_cluster().unwrap();
}

#[test]
fn an_older_metadata_log_does_not_stand_for_one_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["logs", "one", "two"].map(|name| folder.path().join(name));
    copied(&golden("log-dir-1"), &paths[0]);
    for metadata in &paths[1..] {
        copied(&golden("metadata-dir"), metadata);
    }
    let kinds = |call, path: &str| {
        matches!(call, Call::Open | Call::Read | Call::List)
            && path.contains("two/__cluster_metadata-0")
    };
    let settings = |options: &OpenOptions| {
        let log_dir = LogDir::open(&paths, options)?;
        log_dir.topic_settings("g-plain", None, None)
    };
    settings(&OpenOptions::default()).unwrap();
    let error = settings(&failing(kinds)).unwrap_err().to_string();
    assert!(error.contains("two/__cluster_metadata-0"), "{error}");
    assert!(error.contains("--metadata DIR"), "{error}");
}

#[test]
fn a_link_that_cannot_be_followed_is_told_as_unread() {
    let folder = tempfile::tempdir().unwrap();
    let (log_dir, disk) = (folder.path().join("logs"), folder.path().join("disk"));
    copied(&golden("log-dir-1"), &log_dir);
    fs::rename(log_dir.join("g-plain-0"), &disk).unwrap();
    symlink(&disk, log_dir.join("g-plain-0")).unwrap();
    let worst = |options: &OpenOptions| {
        let report = verify(&[&log_dir], options, &VerifyOptions::default()).unwrap();
        let mut findings = report.findings.into_iter();
        let found = findings
            .find(|found| found.path.ends_with("g-plain-0"))
            .unwrap();
        (found.severity.name(), found.reason)
    };
    let (severity, _) = worst(&OpenOptions::default());
    assert_eq!(severity, "warning");
    let kinds = |call, path: &str| call == Call::List && path.ends_with("logs/g-plain-0");
    let (severity, reason) = worst(&failing(kinds));
    assert_eq!(severity, "error", "{reason}");
}

#[test]
fn a_lock_that_cannot_be_asked_for_may_be_a_brokers() {
    let folder = tempfile::tempdir().unwrap();
    copied(&golden("log-dir-1"), folder.path());
    let partition = folder.path().join("g-plain-0");
    let kinds = |call, path: &str| call == Call::Lock && path.ends_with("/.lock");
    let told = |error: offsetlog::Error| {
        assert_eq!(error.path(), Some(&*folder.path().join(".lock")), "{error}");
    };
    assert!(
        !Log::open(&partition, &OpenOptions::default())
            .unwrap()
            .has_running_owner()
    );
    told(Log::open(&partition, &failing(kinds)).unwrap_err());
    // Of many at once, each says it.
    let log_dir = LogDir::open(&[folder.path()], &failing(kinds)).unwrap();
    let partitions = log_dir.partitions();
    assert!(partitions.len() > 10);
    for opened in log_dir.logs(&partitions, 2) {
        told(opened.unwrap_err());
    }
}
