//! Kills processes that commit, and fails the disk: no acknowledged commit is lost, and none is invented.

use super::*;
use offsetlog_faults::SimDisk;
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};
use offsetlog_faults::sim::{Names, World};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

const KILLS: usize = 200;
/// Kills of one directory.
const ROUNDS: usize = 8;
/// Set in the process that is killed, to the directory of the log.
const DIRECTORY: &str = "OFFSETLOG_TEST_COMMITS";
/// Set in the process that kills.
const KILLER: &str = "OFFSETLOG_TEST_KILLER";
const GROUPS: u64 = 5;
const PARTITIONS: i32 = 3;

/// By group and partition: the newest that was acknowledged, and one that was begun behind it. -1 is no offset.
type Promised = BTreeMap<(String, i32), (i64, Option<i64>)>;

/// Commits until it is killed, and prints what it begins and what it has done.
#[test]
fn a_process_that_commits_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let mut offsets = CommittedOffsets::open(directory, &options()).unwrap();
    let mut out = std::io::stdout();
    let mut random = fastrand::Rng::new();
    let first = random.i64(0..1 << 40);
    for number in first.. {
        let group = format!("group-{}", random.u64(0..GROUPS));
        let partition = random.i32(0..PARTITIONS);
        let (said, what) = match random.u8(0..10) {
            0 => (-1, "remove"),
            1 => (number, "pair"),
            _ => (number, "store"),
        };
        let both = what == "pair";
        writeln!(out, "begins {group} {partition} {said} {both}").unwrap();
        match what {
            "remove" => offsets
                .remove(&group, &[("top".to_owned(), partition)])
                .unwrap(),
            // A commit of two partitions is there for both or for neither.
            "pair" => {
                let other = commit("top", PARTITIONS + partition, number);
                offsets
                    .store(&group, &[commit("top", partition, number), other])
                    .unwrap();
            }
            _ => offsets
                .store(&group, &[commit("top", partition, number)])
                .unwrap(),
        }
        writeln!(out, "done {group} {partition} {said} {both}").unwrap();
    }
}

/// This program, for one of its tests.
fn this_program(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg(module_path!().split_once("::").unwrap().1.to_owned() + "::" + test);
    command
}

fn keys(group: &str, partition: i32, both: bool) -> Vec<(String, i32)> {
    let mut keys = vec![(group.to_owned(), partition)];
    keys.extend(both.then(|| (group.to_owned(), PARTITIONS + partition)));
    keys
}

/// Reads a line that a killed process had printed.
fn take(line: &str, promised: &mut Promised) {
    let words: Vec<_> = line.split(' ').collect();
    let [said, group, partition, offset, both] = words[..] else {
        return;
    };
    // A torn line is the last one.
    let Ok(both) = both.parse() else { return };
    let offset: i64 = offset.parse().unwrap();
    for key in keys(group, partition.parse().unwrap(), both) {
        let promise = promised.entry(key).or_insert((-1, None));
        match said {
            "begins" => promise.1 = Some(offset),
            "done" => *promise = (offset, None),
            _ => {}
        }
    }
}

fn check(offsets: &CommittedOffsets, promised: &mut Promised, round: usize) {
    for ((group, partition), promise) in promised.iter_mut() {
        let found = offsets
            .get(group, "top", *partition)
            .map_or(-1, |commit| commit.offset);
        let (acknowledged, begun) = *promise;
        assert!(
            found == acknowledged || Some(found) == begun,
            "round {round}, {group} {partition}: {found} found, {acknowledged} acknowledged, {begun:?} begun"
        );
        *promise = (found, None);
    }
    let known = offsets
        .all()
        .all(|(group, commit)| promised.contains_key(&(group.to_owned(), commit.partition)));
    assert!(known, "round {round}: a commit that nobody made");
}

#[test]
fn two_hundred_kills_lose_nothing_and_invent_nothing() {
    if std::env::var_os(KILLER).is_none() {
        // In a process of its own: until it has become another program, a child holds the locks that tests beside this one have.
        let mut killer = this_program("two_hundred_kills_lose_nothing_and_invent_nothing");
        assert!(killer.env(KILLER, "1").status().unwrap().success());
        return;
    }
    // A kill loses nothing of the page cache: memory will do for a disk.
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let mut promised = Promised::new();
    let mut random = fastrand::Rng::with_seed(7);
    let mut commits = 0;
    for round in 0..KILLS {
        // Thousands of commits go into each round, and opening reads all of them.
        let directory = folder.path().join(format!("groups-{}", round / ROUNDS));
        if round % ROUNDS == 0 {
            promised.clear();
        }
        let mut child = this_program("a_process_that_commits_until_it_is_killed")
            .env(DIRECTORY, &directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A round whose process is killed before it prints anything counts, too.
        let wanted = random.usize(0..30);
        let mut said = 0;
        while said < wanted {
            let Some(line) = lines.next() else { break };
            let line = line.unwrap();
            said += usize::from(line.starts_with("done"));
            take(&line, &mut promised);
        }
        child.kill().unwrap();
        for line in lines.map_while(std::result::Result::ok) {
            said += usize::from(line.starts_with("done"));
            take(&line, &mut promised);
        }
        child.wait().unwrap();
        commits += said;
        let offsets = CommittedOffsets::open(&directory, &options()).unwrap();
        check(&offsets, &mut promised, round);
        if random.bool() {
            offsets.close().unwrap();
        }
    }
    assert!(commits > 1000, "{commits}");
}

/// Each disk call fails once, or from then on: a failed commit is not returned, and a successful one is there after reopening.
#[test]
fn a_commit_that_fails_is_not_visible() {
    let (mut failures, mut nth) = (0, 0);
    loop {
        nth += 1;
        let sim = SimDisk::new(World::new(Names::Journal, &["/data"]));
        let plan = Plan {
            kinds: |call, path| path.contains(TOPIC) && call.is_change() && call != Call::Lock,
            nth,
            lasting: if nth % 2 == 0 {
                Lasting::FromThenOn
            } else {
                Lasting::Once
            },
            error: 28,
            half: nth % 3 == 0,
            ..Plan::none()
        };
        let disk = FaultDisk::over(&sim, plan);
        let with = |disk: Arc<dyn offsetlog::disk::Disk>, durable| CommittedOffsetsOptions {
            durable,
            open: OpenOptions {
                disk,
                ..OpenOptions::default()
            },
            ..options()
        };
        let durable = nth % 5 == 0;
        let Ok(mut offsets) =
            CommittedOffsets::open("/data/groups", &with(Arc::new(disk.clone()), durable))
        else {
            failures += 1;
            continue;
        };
        let mut promised = Promised::new();
        let mut failed = 0;
        for number in 0..12 {
            let (group, partition) = (format!("group-{}", number % 2), number as i32 % 3);
            let before = kept(&offsets);
            let key = (group.clone(), partition);
            match offsets.store(&group, &[commit("top", partition, number)]) {
                Ok(()) => {
                    promised.insert(key, (number, None));
                }
                Err(error) => {
                    failed += 1;
                    assert_eq!(kept(&offsets), before, "{error}");
                    // After a failed flush the log may or may not have the commit.
                    let known = promised.entry(key).or_insert((-1, None));
                    if error.is_appended() {
                        known.1 = Some(number);
                    }
                }
            }
        }
        drop(offsets);
        failures += failed;
        let offsets = CommittedOffsets::open("/data/groups", &with(Arc::new(sim), false)).unwrap();
        check(&offsets, &mut promised, nth as usize);
        if failed == 0 && nth > 40 {
            break;
        }
    }
    assert!(failures > 5, "{failures}");
}
