//! Several directories in one call: each is decided about again under the locks, beside all the log dirs that the first decision saw, and
//! without another look at all of the others.

use super::*;
use offsetlog::disk::RealDisk;
use offsetlog_faults::fault::{Call, FaultDisk, Plan as Faults};
use std::fs;

const IDENTITY: &str = "partition.metadata";
const UUID: &str = "0123456789abcdef0123456789abcdef";

/// Log dirs of one broker.
struct Disks(tempfile::TempDir);

impl Disks {
    fn new() -> Self {
        let disks = Self(tempfile::tempdir().unwrap());
        for name in ["one", "two"] {
            fs::create_dir(disks.path(name)).unwrap();
            fs::write(
                disks.path(name).join("meta.properties"),
                "version=1\nnode.id=1\n",
            )
            .unwrap();
        }
        disks
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A directory of a partition without records.
    fn make(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        make(&path);
        path
    }
}

fn make(path: &Path) {
    fs::create_dir(path).unwrap();
    let identity = format!("version: 0\ntopic_id: {}", Uuid::from_bytes([7; 16]));
    fs::write(path.join(IDENTITY), identity).unwrap();
    fs::write(path.join(format!("{:020}.log", 0)), b"").unwrap();
}

fn take_in(
    directories: &[PathBuf],
    disk: &FaultDisk,
    dry_run: bool,
) -> Result<Vec<AdoptedPartition>> {
    let how = AdoptOptions {
        topic_id: Some(Uuid::from_bytes([8; 16])),
        set_aside: true,
        dry_run,
        ..AdoptOptions::default()
    };
    let options = OpenOptions {
        disk: Arc::new(disk.clone()),
        ..OpenOptions::default()
    };
    adopt(directories, &how, &options)
}

/// A disk on which nothing fails; it counts these calls.
fn counting(inner: Arc<dyn offsetlog::disk::Disk>, kinds: fn(Call, &str) -> bool) -> FaultDisk {
    let plan = Faults {
        kinds,
        ..Faults::none()
    };
    FaultDisk::new(inner, plan)
}

#[test]
fn each_is_taken_in_beside_the_log_dirs_of_the_others() {
    for turned in [false, true] {
        let disks = Disks::new();
        let mut all = [
            disks.make(&format!("one/a-0.{UUID}-stray")),
            disks.make(&format!("two/b-0.{UUID}-stray")),
        ];
        let in_the_way = disks.make("two/a-0");
        if turned {
            all.reverse();
        }
        let disk = counting(Arc::new(RealDisk), |_, _| true);
        let planned = take_in(&all, &disk, true).unwrap();
        let done = take_in(&all, &disk, false).unwrap();
        let names = |all: &[AdoptedPartition]| -> Vec<PathBuf> {
            let all = all.iter().flat_map(|each| &each.set_aside);
            all.map(|(before, _)| before.clone()).collect()
        };
        assert_eq!(names(&planned), [in_the_way.as_path()]);
        assert_eq!(names(&done), names(&planned));
        let is_there = |name: &str| disks.path(name).exists();
        assert!(is_there("one/a-0") && is_there("two/b-0") && !is_there("two/a-0"));
    }
}

/// What comes to stand beside it behind the first decision; nothing has changed then.
#[test]
fn what_comes_meanwhile_in_another_log_dir_is_seen() {
    let future = format!("two/a-0.{UUID}-future");
    for (came, is_of_it) in [
        ("two/a-0", true),
        (&future, true),
        ("one/a-0", true),
        ("two/a-1", false),
        ("two/c-0", false),
    ] {
        let disks = Disks::new();
        let all = [
            disks.make(&format!("one/a-0.{UUID}-stray")),
            disks.make(&format!("two/b-0.{UUID}-stray")),
        ];
        let path = disks.path(came);
        let disk = counting(Arc::new(RealDisk), |call, _| call == Call::Lock);
        disk.before(1, move || make(&path));
        let done = take_in(&all, &disk, false);
        assert!(disks.path(came).exists());
        assert_eq!(all[0].exists(), is_of_it, "{came}");
        match done {
            Err(error) => assert!(
                is_of_it && error.to_string().contains("meanwhile"),
                "{error}"
            ),
            Ok(done) => assert_eq!((is_of_it, done.len()), (false, 2), "{came}"),
        }
    }
}

/// Reads of a file that every directory has, and all calls, when so many are taken in.
fn calls(count: usize) -> (u64, u64) {
    let disks = Disks::new();
    let names = (0..count).map(|number| format!("one/t{number}-0.{UUID}-stray"));
    let all: Vec<PathBuf> = names.map(|name| disks.make(&name)).collect();
    let identities = counting(Arc::new(RealDisk), |call, path| {
        call == Call::Open && path.ends_with(IDENTITY)
    });
    let disk = counting(Arc::new(identities.clone()), |_, _| true);
    assert_eq!(take_in(&all, &disk, false).unwrap().len(), count);
    (identities.seen(), disk.seen())
}

#[test]
fn ten_times_as_many_cost_ten_times_as_much() {
    let (few, many) = (calls(10), calls(100));
    assert!(few.0 >= 10, "{few:?}");
    assert!(many.0 <= 11 * few.0, "{few:?} {many:?}");
    assert!(many.1 <= 11 * few.1, "{few:?} {many:?}");
}
