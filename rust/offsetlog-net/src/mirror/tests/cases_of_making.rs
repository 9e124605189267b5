//! A mirror that is killed while it makes a topic for the first time.

use super::cases_of_disk::{MIRROR, at, copy, failing, opened, topic_id};
use crate::mirror::store::{ReadyTopic, Store, TopicOutcome};
use offsetlog::Result;
use offsetlog::disk::Disk;
use offsetlog_faults::SimDisk;
use offsetlog_faults::fault::{FaultDisk, Lasting, Plan};
use offsetlog_faults::sim::{Cut, Fill, Names, World};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

const PARTITIONS: i32 = 3;

fn made(store: &mut Store) -> Result<ReadyTopic> {
    match store.topic("orders", topic_id(), PARTITIONS, None)? {
        TopicOutcome::Ready(ready) => Ok(ready),
        TopicOutcome::Another(id) => panic!("{id} is another"),
    }
}

/// The partitions of the topic that are there, and those of them that somebody has opened.
fn there(world: &World) -> (BTreeSet<i32>, BTreeSet<i32>) {
    let mut found = (BTreeSet::new(), BTreeSet::new());
    for partition in 0..PARTITIONS {
        let name = format!("orders-{partition}");
        let mut names = world.children(Path::new(MIRROR));
        if names.any(|(found, _)| found == name) {
            found.0.insert(partition);
            let directory = Path::new(MIRROR).join(name);
            let mut files = world.children(&directory);
            if files.any(|(file, _)| file.ends_with(".log")) {
                found.1.insert(partition);
            }
        }
    }
    found
}

/// Nothing was ever copied: no directory was lost, and what the source had deleted before is no loss.
#[test]
fn a_topic_whose_making_is_killed_anywhere_is_new_to_the_next_run() {
    let mut random = fastrand::Rng::with_seed(27);
    let mut states = BTreeSet::new();
    for nth in 1.. {
        let sim = SimDisk::new(World::new(Names::Journal, &["/data"]));
        let disk = FaultDisk::over(&sim, Plan::none());
        let mut store = opened(Arc::new(disk.clone()), 0);
        disk.set(failing(nth, Lasting::Killed));
        let first = made(&mut store);
        let has_failed = !disk.failed().is_empty();
        drop(store);
        for cut in [Cut::Process, Cut::Nothing] {
            let context = format!("call {nth}, {:?}, {cut:?}", disk.failed());
            let after = sim.world().crash(cut, Fill::Zeros, &mut random);
            let (here, used) = there(&after);
            states.insert((here.len(), used.len()));
            let mut store = opened(Arc::new(SimDisk::new(after)), 0);
            let ready = made(&mut store).unwrap();
            assert!(ready.again.is_empty(), "{context}: {ready:?}");
            assert!(ready.broken.is_empty(), "{context}: {ready:?}");
            let new: BTreeSet<i32> = ready.new.iter().copied().collect();
            assert_eq!(new.len(), ready.new.len(), "{context}: {ready:?}");
            let all: BTreeSet<i32> = (0..PARTITIONS).collect();
            assert_eq!(new, &all - &used, "{context}: {here:?}");
        }
        if !has_failed {
            first.unwrap();
            break;
        }
    }
    // Before the renames, between them, behind them, and while partitions are opened.
    for state in [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (3, 3)] {
        assert!(states.contains(&state), "{state:?} of {states:?}");
    }
}

/// Below a partition that was copied, a directory that is not there is lost, also where others were only made.
#[test]
fn a_directory_that_is_lost_below_one_that_was_copied_is_told() {
    let sim = SimDisk::new(World::new(Names::Journal, &["/data"]));
    let mut store = opened(Arc::new(sim.clone()), 0);
    made(&mut store).unwrap();
    copy(&mut store, &at("orders", 1), 0).unwrap();
    store.close().unwrap();
    sim.rename(
        &Path::new(MIRROR).join("orders-0"),
        Path::new("/data/aside"),
    )
    .unwrap();
    let mut store = opened(Arc::new(sim), 0);
    let ready = made(&mut store).unwrap();
    assert_eq!((ready.new, ready.again), (vec![0], vec![0]));
}
