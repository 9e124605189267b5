//! Tests the checkpoint lines of restored partitions: they never promise more than is there, whenever a restore is killed.

use super::proof::failing;
use super::*;
use offsetlog_faults::fault::{Call, Lasting, Plan};
use std::collections::BTreeMap;

const RECOVERY_POINT: &str = "recovery-point-offset-checkpoint";
const HIGH_WATERMARK: &str = "replication-offset-checkpoint";
const LOG_START: &str = "log-start-offset-checkpoint";
const CLEAN: &str = ".kafka_cleanshutdown";

impl Place {
    fn in_new(&self, name: &str) -> PathBuf {
        self.0.path().join("new").join(name)
    }

    /// Two partitions of 18 records, which begin at 4, inside of a batch.
    fn two_partitions(&self) {
        self.append("one", 6, "value", 0);
        let log = LogWriter::open(
            self.of("one"),
            &OpenOptions::default(),
            &WriteOptions::default(),
        );
        let log = log.unwrap();
        log.delete_records_before(4).unwrap();
        log.close().unwrap();
        self.copy_to_second();
    }

    fn copy_to_second(&self) {
        let second = self.0.path().join("one/orders-1");
        fs::create_dir_all(&second).unwrap();
        for entry in fs::read_dir(self.of("one")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), second.join(entry.file_name())).unwrap();
        }
    }

    /// A log dir that had a longer partition of the name, and was stopped cleanly.
    fn stale_log_dir(&self) {
        fs::create_dir_all(self.in_new("")).unwrap();
        for (name, offset) in [(RECOVERY_POINT, 90), (HIGH_WATERMARK, 90), (LOG_START, 60)] {
            let lines = format!("0\n2\norders 0 {offset}\nother 3 7\n");
            fs::write(self.in_new(name), lines).unwrap();
        }
        fs::write(self.in_new(CLEAN), "{\"version\":0,\"brokerEpoch\":7}").unwrap();
    }

    /// The lines of a checkpoint by topic and partition.
    fn lines(&self, name: &str) -> BTreeMap<String, i64> {
        let text = fs::read_to_string(self.in_new(name)).unwrap_or_default();
        let line = |line: &str| {
            let (partition, offset) = line.rsplit_once(' ').unwrap();
            (partition.to_owned(), offset.parse().unwrap())
        };
        text.lines().skip(2).map(line).collect()
    }

    /// No line promises more than is there; the line of the log start offset is there before the log is.
    fn check_lines(&self, when: u64) {
        for partition in ["0", "1"] {
            if !self.in_new(&format!("orders-{partition}")).exists() {
                continue;
            }
            let key = format!("orders {partition}");
            for name in [RECOVERY_POINT, HIGH_WATERMARK] {
                let line = self.lines(name).get(&key).copied();
                assert!(
                    line.is_none_or(|line| line <= 18),
                    "{when}: {name} {line:?}"
                );
            }
            assert_eq!(self.lines(LOG_START).get(&key), Some(&4), "{when}");
        }
        for (name, offset) in [(RECOVERY_POINT, 7), (HIGH_WATERMARK, 7), (LOG_START, 7)] {
            assert_eq!(self.lines(name).get("other 3"), Some(&offset), "{when}");
        }
    }
}

fn restored(plan: &RestorePlan) -> Vec<&'static str> {
    plan.partitions
        .iter()
        .map(|each| each.state.name())
        .collect()
}

#[test]
fn a_restore_that_is_killed_leaves_no_line_that_promises_more_than_is_there() {
    let mut places = 0;
    for nth in 1.. {
        let place = Place::new();
        place.two_partitions();
        place.stale_log_dir();
        let sources = [place.0.path().join("one")];
        let into = [place.in_new("")];
        let how = RestoreOptions::default();
        let (disk, options) = failing();
        let mut plan = RestorePlan::make(&sources, &into, &how, &options).unwrap();
        disk.set(Plan {
            kinds: |call, path| call.is_change() && call != Call::Lock && path.contains("/new"),
            nth,
            lasting: Lasting::Killed,
            ..Plan::none()
        });
        drop(plan.run(None));
        let is_whole = disk.failed().is_empty();
        drop(plan);
        places += usize::from(place.of("new").exists());
        place.check_lines(nth);
        let mut again = RestorePlan::make(&sources, &into, &how, &OpenOptions::default()).unwrap();
        again.run(None).unwrap();
        let states = restored(&again);
        let is_done = |state: &&str| ["restored", "there"].contains(state);
        assert!(states.iter().all(is_done), "{nth}: {:?}", again.partitions);
        place.check_lines(nth);
        for name in [RECOVERY_POINT, HIGH_WATERMARK] {
            for partition in ["orders 0", "orders 1"] {
                assert_eq!(place.lines(name).get(partition), Some(&18), "{nth}: {name}");
            }
        }
        if is_whole {
            // A broker's mark stays where nothing was killed.
            assert!(place.in_new(CLEAN).exists());
            assert_eq!(states, ["there", "there"]);
            assert!(nth > 40 && places > 20, "{nth}, {places}");
            break;
        }
    }
}

#[test]
fn lines_are_written_once_for_all_partitions() {
    let place = Place::new();
    place.append("one", 6, "value", 0);
    place.copy_to_second();
    fs::create_dir_all(place.in_new("")).unwrap();
    fs::write(place.in_new(RECOVERY_POINT), "0\n0\n").unwrap();
    let sources = [place.0.path().join("one")];
    let (disk, options) = failing();
    let how = RestoreOptions::default();
    let mut plan = RestorePlan::make(&sources, &[place.in_new("")], &how, &options).unwrap();
    disk.set(Plan {
        kinds: |call, path| {
            call == Call::Rename && path.ends_with("/recovery-point-offset-checkpoint")
        },
        ..Plan::none()
    });
    plan.run(None).unwrap();
    assert_eq!(restored(&plan), ["restored", "restored"]);
    assert_eq!(disk.seen(), 1);
    assert_eq!(place.lines(RECOVERY_POINT).len(), 2);
}
