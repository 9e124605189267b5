//! What shows that a replica has the very batches of a hole, and what becomes of replicas that fail.

use super::*;
use crate::replicas::choose_replica;
use offsetlog::disk::RealDisk;
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};

/// What may stand in the place of a `leader-epoch-checkpoint`.
const CHECKPOINTS: [Option<&str>; 3] = [None, Some("no checkpoint"), Some("0\n1\n0 0\n")];

impl Place {
    fn set_checkpoint(&self, replica: &str, text: Option<&str>) {
        match text {
            None => fs::remove_file(self.of(replica).join("leader-epoch-checkpoint")).unwrap(),
            Some(text) => {
                fs::write(self.of(replica).join("leader-epoch-checkpoint"), text).unwrap()
            }
        }
    }
}

#[test]
fn without_a_history_the_batches_say_which_replica_is_of_the_newest_leader() {
    for checkpoint in CHECKPOINTS {
        let place = Place::new();
        place.append("one", 2, "value", 0);
        place.copy("one", "stale");
        place.append("stale", 5, "stale", 0);
        place.append("one", 1, "value", 1);
        place.roll("one");
        place.set_checkpoint("one", checkpoint);
        let report = place.restore(&["stale", "one"]);
        assert_eq!(replica_of(&report.source), "one", "{checkpoint:?}");
        assert_eq!(place.rows("new"), place.rows("one"), "{checkpoint:?}");
    }
}

/// A disk that can fail, and options with it.
fn failing() -> (FaultDisk, OpenOptions) {
    let disk = FaultDisk::new(Arc::new(RealDisk), Plan::none());
    let options = OpenOptions {
        disk: Arc::new(disk.clone()),
        ..OpenOptions::default()
    };
    (disk, options)
}

/// Fails what is done to the replica `two`, from the `nth` call on.
fn of_two(nth: u64, kinds: fn(Call, &str) -> bool) -> Plan {
    Plan {
        kinds,
        nth,
        lasting: Lasting::FromThenOn,
        ..Plan::none()
    }
}

#[test]
fn a_worse_replica_that_fails_does_not_discard_the_choice() {
    let place = Place::new();
    place.append("one", 6, "value", 0);
    place.append("two", 3, "value", 0);
    let paths = ["one", "two"].map(|each| place.of(each));
    for nth in 1.. {
        let (disk, options) = failing();
        disk.set(of_two(nth, |_, path| path.contains("/two")));
        let (chosen, failures) = choose_replica(&paths, &options).unwrap();
        let chosen = chosen.unwrap();
        assert_eq!(chosen.best.path, paths[0], "{nth}");
        assert_eq!(chosen.others.len() + failures.len(), 1, "{nth}");
        if disk.failed().is_empty() {
            assert!(nth > 1);
            break;
        }
    }
}
