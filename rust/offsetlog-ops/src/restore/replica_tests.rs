//! What the best replica has lost and another one has: damaged copies of one log, and logs that differ.

use super::*;
use crate::salvage::SalvageReport;
use offsetlog::{
    AppendOptions, BatchBuilder, LogWriter, OnCorrupt, RecoverOptions, ScanOptions, VerifyOptions,
    WriteOptions, recover, verify,
};
use std::fs;
use std::os::unix::fs::FileExt;

/// Replicas of `orders-0`, each in a log dir of its own, and a folder to restore into.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        // Where there is one, in memory: a sync costs nothing there.
        let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self(made.unwrap())
    }

    fn of(&self, replica: &str) -> PathBuf {
        self.0.path().join(replica).join("orders-0")
    }

    /// Appends batches of three records, with `word` in their values.
    fn append(&self, replica: &str, batches: usize, word: &str, epoch: i32) {
        let write = WriteOptions::default();
        let log = LogWriter::open(self.of(replica), &OpenOptions::default(), &write).unwrap();
        let mut batch = BatchBuilder::default();
        for _ in 0..batches {
            for number in 0..3 {
                let value = format!("{word}-{}-{number}", log.log_end_offset().unwrap());
                let time = 1_700_000_000_000 + log.log_end_offset().unwrap();
                batch.push(time, None, Some(value.as_bytes()), &[]).unwrap();
            }
            let options = AppendOptions {
                leader_epoch: Some(epoch),
                ..AppendOptions::default()
            };
            log.append(&mut batch, &options).unwrap();
        }
        log.close().unwrap();
    }

    /// Begins a segment, so that damage in those before does not hide where the log ends.
    fn roll(&self, replica: &str) {
        let write = WriteOptions::default();
        let log = LogWriter::open(self.of(replica), &OpenOptions::default(), &write).unwrap();
        log.roll().unwrap();
        log.close().unwrap();
    }

    /// Makes `other` a byte for byte copy of `replica`.
    fn copy(&self, replica: &str, other: &str) {
        fs::create_dir_all(self.of(other)).unwrap();
        for entry in fs::read_dir(self.of(replica)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), self.of(other).join(entry.file_name())).unwrap();
        }
    }

    /// Changes bytes of the batches that begin at these offsets.
    fn damage(&self, replica: &str, offsets: &[i64]) {
        let log = Log::open(self.of(replica), &OpenOptions::default()).unwrap();
        let found: Vec<_> = log
            .batches(None, None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        for offset in offsets {
            let batch = found
                .iter()
                .find(|each| each.base_offset == *offset)
                .unwrap();
            let path = self.of(replica).join(format!("{:020}.log", batch.segment));
            let file = fs::File::options().write(true).open(path).unwrap();
            file.write_at(&[0xff; 4], batch.position + 70).unwrap();
        }
    }

    /// Leaves nothing of the header of the batch that begins at this offset.
    fn destroy(&self, replica: &str, offset: i64) {
        let log = Log::open(self.of(replica), &OpenOptions::default()).unwrap();
        let mut found = log.batches(Some(offset), None).unwrap();
        let batch = found.next().unwrap().unwrap();
        assert_eq!(batch.base_offset, offset);
        let path = self.of(replica).join(format!("{:020}.log", batch.segment));
        let file = fs::File::options().write(true).open(path).unwrap();
        file.write_at(&[0xff; 61], batch.position).unwrap();
    }

    /// Gives a replica a segment of these bytes.
    fn write(&self, replica: &str, base_offset: i64, parts: &[Vec<u8>]) {
        fs::create_dir_all(self.of(replica)).unwrap();
        let path = self.of(replica).join(format!("{base_offset:020}.log"));
        fs::write(path, parts.concat()).unwrap();
    }

    /// The batches of a log of one segment.
    fn parts(&self, replica: &str) -> Vec<Vec<u8>> {
        let log = Log::open(self.of(replica), &OpenOptions::default()).unwrap();
        let bytes = fs::read(self.of(replica).join("00000000000000000000.log")).unwrap();
        let found = log.batches(None, None).unwrap().map(Result::unwrap);
        found
            .map(|each| bytes[each.position as usize..][..each.size_bytes as usize].to_vec())
            .collect()
    }

    fn checkpoint(&self, replica: &str) -> PathBuf {
        self.of(replica).join("leader-epoch-checkpoint")
    }

    fn plan(&self, replicas: &[&str]) -> RestorePlan {
        let sources: Vec<PathBuf> = replicas
            .iter()
            .map(|each| self.0.path().join(each))
            .collect();
        let into = self.0.path().join("new");
        let how = RestoreOptions::default();
        RestorePlan::make(&sources, &[&into], &how, &OpenOptions::default()).unwrap()
    }

    /// Restores, and restores again, which finds all there.
    fn restore(&self, replicas: &[&str]) -> SalvageReport {
        let mut plan = self.plan(replicas);
        plan.run(None).unwrap();
        let report = plan.partitions[0].state.report();
        let report = report.unwrap_or_else(|| panic!("{:?}", plan.partitions[0].state));
        let found = verify(
            &[self.of("new")],
            &OpenOptions::default(),
            &VerifyOptions::default(),
        );
        assert!(!found.unwrap().is_damaged());
        let mut again = self.plan(replicas);
        again.run(None).unwrap();
        let state = &again.partitions[0].state;
        assert!(matches!(state, PartitionState::There(_)), "{state:?}");
        report.clone()
    }

    fn rows(&self, replica: &str) -> Vec<(i64, String)> {
        let log = Log::open(self.of(replica), &OpenOptions::default()).unwrap();
        let options = ScanOptions {
            on_corrupt: OnCorrupt::Skip,
            ..ScanOptions::default()
        };
        let mut scan = log.scan(&options).unwrap();
        let mut rows = Vec::new();
        while let Some(mut batch) = scan.next_batch().unwrap() {
            while let Some(record) = batch.next_record().unwrap() {
                let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                rows.push((record.offset, value));
            }
        }
        rows
    }

    fn offsets(&self, replica: &str) -> Vec<i64> {
        self.rows(replica).into_iter().map(|row| row.0).collect()
    }
}

/// What was taken from where: the replica, its first and last offset.
fn taken(report: &SalvageReport) -> Vec<(String, i64, i64)> {
    let all = report.taken_back.iter();
    all.map(|each| (replica_of(&each.path), each.first_offset, each.last_offset))
        .collect()
}

/// What was left there.
fn left(report: &SalvageReport) -> Vec<(String, i64, Option<i64>)> {
    let all = report.left_out.iter().filter(|each| each.batches > 0);
    all.map(|each| (replica_of(&each.path), each.first_offset, each.last_offset))
        .collect()
}

fn replica_of(path: &Path) -> String {
    let around = path.parent().and_then(Path::file_name);
    around.unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_hole_is_filled_from_another_replica() {
    let place = Place::new();
    place.append("whole", 6, "value", 0);
    place.roll("whole");
    place.copy("whole", "one");
    place.damage("one", &[6]);
    let plan = place.plan(&["one", "whole"]);
    assert_eq!(replica_of(&plan.partitions[0].source), "one");
    let report = place.restore(&["one", "whole"]);
    assert_eq!(place.rows("new"), place.rows("whole"));
    assert_eq!(taken(&report), [("whole".to_owned(), 6, 8)]);
    assert_eq!((report.loss_count, report.has_losses()), (1, false));
    assert_eq!(report.losses[0].taken_back, 3);
}

#[test]
fn replicas_that_are_damaged_in_different_places_give_all() {
    let place = Place::new();
    place.append("whole", 6, "value", 0);
    place.roll("whole");
    for (replica, offsets) in [("one", [0, 6]), ("two", [6, 9]), ("three", [0, 9])] {
        place.copy("whole", replica);
        place.damage(replica, &offsets);
    }
    let report = place.restore(&["one", "two", "three"]);
    assert_eq!(place.rows("new"), place.rows("whole"));
    assert_eq!(
        taken(&report),
        [("two".to_owned(), 0, 2), ("three".to_owned(), 6, 8)]
    );
    assert!(!report.has_losses());
}

#[test]
fn what_no_replica_has_is_lost() {
    let place = Place::new();
    place.append("whole", 6, "value", 0);
    place.roll("whole");
    for replica in ["one", "two"] {
        place.copy("whole", replica);
        place.damage(replica, &[6]);
    }
    let report = place.restore(&["one", "two"]);
    assert_eq!(
        place.offsets("new"),
        (0..6).chain(9..18).collect::<Vec<_>>()
    );
    assert_eq!(report.losses[0].records_max(), Some(3));
}

#[test]
fn replicas_that_differ_around_a_hole_are_not_mixed() {
    let place = Place::new();
    place.append("one", 6, "value", 0);
    place.append("other", 6, "else", 0);
    place.roll("one");
    place.roll("other");
    place.damage("one", &[6]);
    let report = place.restore(&["one", "other"]);
    assert_eq!(place.rows("new"), place.rows("one"));
    assert_eq!(left(&report), [("other".to_owned(), 6, Some(8))]);
    assert!(report.left_out[0].reason.contains("differs"));
    assert!(report.has_losses());
}

#[test]
fn of_replicas_that_differ_in_a_hole_one_fills_it() {
    let place = Place::new();
    place.append("one", 2, "value", 0);
    for replica in ["two", "three"] {
        place.copy("one", replica);
    }
    for (replica, word) in [("one", "value"), ("two", "value"), ("three", "else")] {
        place.append(replica, 3, word, 0);
        place.roll(replica);
    }
    place.damage("one", &[6, 9, 12]);
    // Of the other one nothing is taken, not even where the first one has nothing.
    place.damage("two", &[9]);
    let report = place.restore(&["one", "two", "three"]);
    assert_eq!(
        place.offsets("new"),
        (0..9).chain(12..15).collect::<Vec<_>>()
    );
    let records = report.taken_back.iter().map(|each| each.records);
    assert_eq!(records.sum::<u64>(), 6);
    assert!(taken(&report).iter().all(|each| each.0 == "two"));
    assert_eq!(left(&report), [("three".to_owned(), 6, Some(14))]);
}

#[test]
fn batches_of_a_leader_that_was_deposed_are_left() {
    let place = Place::new();
    place.append("one", 2, "value", 0);
    place.copy("one", "stale");
    // The old leader went on from 6 to 11; the new one has begun at 6.
    place.append("stale", 2, "stale", 0);
    place.append("one", 3, "value", 1);
    place.roll("one");
    place.damage("one", &[6]);
    let report = place.restore(&["one", "stale"]);
    assert_eq!(
        place.offsets("new"),
        (0..6).chain(9..15).collect::<Vec<_>>()
    );
    assert!(taken(&report).is_empty());
    assert_eq!(left(&report), [("stale".to_owned(), 6, Some(8))]);
}

#[test]
fn damage_at_the_end_of_the_longest_replica_does_not_make_it_the_shortest() {
    let place = Place::new();
    place.append("lagging", 3, "value", 0);
    place.copy("lagging", "long");
    place.append("long", 3, "value", 0);
    place.damage("long", &[12]);
    let report = place.restore(&["lagging", "long"]);
    assert_eq!(replica_of(&report.source), "long");
    assert_eq!(
        place.offsets("new"),
        (0..12).chain(15..18).collect::<Vec<_>>()
    );
    assert!(report.has_losses());
}

#[test]
fn where_damage_hides_the_ends_each_fills_the_other() {
    let place = Place::new();
    place.append("whole", 6, "value", 0);
    for (replica, offset) in [("one", 9), ("two", 12)] {
        place.copy("whole", replica);
        place.damage(replica, &[offset]);
    }
    let report = place.restore(&["one", "two"]);
    assert_eq!(place.rows("new"), place.rows("whole"));
    assert!(!report.has_losses());
}

#[test]
fn records_that_only_another_replica_begins_with_are_told() {
    let place = Place::new();
    place.append("one", 6, "value", 0);
    place.copy("one", "two");
    let options = OpenOptions::default();
    let log = LogWriter::open(place.of("one"), &options, &WriteOptions::default()).unwrap();
    log.delete_records_before(9).unwrap();
    log.close().unwrap();
    let plan = place.plan(&["one", "two"]);
    let (_, less) = &plan.partitions[0].other_replicas[0];
    assert_eq!(less, "has as much, and begins at offset 0, before 9");
}

#[test]
fn what_recovery_cut_is_there_at_the_second_call_too() {
    let place = Place::new();
    place.append("one", 6, "value", 0);
    place.damage("one", &[6]);
    let (options, how) = (OpenOptions::default(), RecoverOptions::default());
    recover(place.of("one"), &options, &how).unwrap();
    let report = place.restore(&["one"]);
    assert_eq!(
        place.offsets("new"),
        (0..6).chain(9..18).collect::<Vec<_>>()
    );
    assert_eq!(report.taken_back[0].records, 9);
}

#[path = "replica_proof_tests.rs"]
mod proof;
pub(crate) use proof::around_old_messages;

#[path = "replica_random_tests.rs"]
mod random;

#[path = "gap_tests.rs"]
mod gaps;

#[path = "fallback_tests.rs"]
mod fallback;

#[path = "line_tests.rs"]
mod lines;

#[path = "written_tests.rs"]
mod written;

#[path = "meanwhile_tests.rs"]
mod meanwhile;
