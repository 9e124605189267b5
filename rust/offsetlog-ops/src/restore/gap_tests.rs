//! A replica that has lost a segment as a whole: no damage shows it, only offsets that no batch has.

use super::*;

impl Place {
    /// Three segments of six records, and a copy without the one in the middle.
    fn without_a_segment(&self) {
        for _ in 0..3 {
            self.append("whole", 2, "value", 0);
            self.roll("whole");
        }
        self.copy("whole", "one");
        self.lose("one", 6);
    }

    /// Removes the files of a segment.
    fn lose(&self, replica: &str, base_offset: i64) {
        for entry in fs::read_dir(self.of(replica)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.starts_with(&format!("{base_offset:020}.")) {
                fs::remove_file(path).unwrap();
            }
        }
    }

    /// Brokers store no settings with a log.
    fn forget(&self, replica: &str) {
        for entry in fs::read_dir(self.of(replica)).unwrap() {
            let path = entry.unwrap().path();
            if path.to_str().unwrap().contains("/.offsetlog") {
                fs::remove_file(path).unwrap();
            }
        }
    }

    /// What the cleaner of the broker that had a replica noted.
    fn cleaner(&self, replica: &str, lines: &str) {
        let file = self.0.path().join(replica);
        fs::write(file.join("cleaner-offset-checkpoint"), lines).unwrap();
    }

    /// Lets a replica be the one that is taken.
    fn longer(&self, replica: &str) {
        self.append(replica, 1, "value", 0);
    }
}

const NEVER: &str = "0\n0\n";
const OFFSETS: std::ops::Range<i64> = 6..12;

#[test]
fn a_segment_that_is_lost_comes_from_another_replica() {
    let place = Place::new();
    place.without_a_segment();
    place.cleaner("one", NEVER);
    place.longer("one");
    let report = place.restore(&["one", "whole"]);
    assert_eq!(replica_of(&report.source), "one");
    assert_eq!(place.offsets("new"), (0..21).collect::<Vec<_>>());
    assert_eq!(taken(&report), [("whole".to_owned(), 6, 11)]);
    assert_eq!((report.loss_count, report.has_losses()), (1, false));
}

#[test]
fn a_segment_that_nobody_has_is_a_loss() {
    let place = Place::new();
    place.without_a_segment();
    place.cleaner("one", NEVER);
    let report = place.restore(&["one"]);
    let hole = &report.losses[0].hole;
    assert_eq!((hole.start, hole.stop, hole.kind), (6, Some(12), "Gap"));
    assert_eq!(report.losses[0].records_max(), Some(6));
    assert!(report.losses[0].time_before.is_some() && report.losses[0].time_after.is_some());
    assert!(hole.reason.contains("nothing says"), "{}", hole.reason);
    assert!(report.has_losses());
}

/// Without the log dir it is unknown whether the cleaner removed the records: nothing is taken, and both are reported.
#[test]
fn where_nothing_tells_whether_a_topic_is_compacted_it_is_told() {
    let place = Place::new();
    place.without_a_segment();
    place.longer("one");
    place.forget("one");
    let report = place.restore(&["one", "whole"]);
    assert_eq!(report.losses[0].records_max(), Some(6));
    assert!(report.losses[0].hole.reason.contains("unless"));
    assert_eq!(left(&report), [("whole".to_owned(), 6, Some(11))]);
    assert!(report.left_out[0].reason.contains("log dir"));
    let offsets: Vec<i64> = (0..21).filter(|each| !OFFSETS.contains(each)).collect();
    assert_eq!(place.offsets("new"), offsets);
}

#[test]
fn what_the_cleaner_removed_stays_removed() {
    for (replica, lines) in [
        ("one", "0\n1\norders 0 12\n"),
        ("whole", "0\n1\norders 0 12\n"),
    ] {
        let place = Place::new();
        place.without_a_segment();
        place.cleaner("one", NEVER);
        place.cleaner(replica, lines);
        place.longer("one");
        let report = place.restore(&["one", "whole"]);
        assert!(taken(&report).is_empty(), "{report:?}");
        assert_eq!(report.losses, []);
        assert!(!place.offsets("new").contains(&6));
    }
}

/// Of two that have the same end, the one that lacks nothing is taken.
#[test]
fn of_equal_ends_the_one_without_gaps_is_the_best() {
    let place = Place::new();
    place.without_a_segment();
    let report = place.restore(&["one", "whole"]);
    assert_eq!(replica_of(&report.source), "whole");
    assert_eq!(place.offsets("new"), (0..18).collect::<Vec<_>>());
    assert!(!report.has_losses());
}

/// The one that is lost lay before the empty active segment: no batch follows the gap.
#[test]
fn of_equal_ends_the_one_that_lost_its_last_records_is_not_the_best() {
    let place = Place::new();
    place.without_a_segment();
    place.copy("whole", "torn");
    place.lose("torn", 12);
    let report = place.restore(&["torn", "whole"]);
    assert_eq!(replica_of(&report.source), "whole");
    assert_eq!(place.offsets("new"), (0..18).collect::<Vec<_>>());
}

/// What is before the beginning of the replica that is taken is not restored.
#[test]
fn of_equal_ends_the_one_that_begins_first_is_the_best() {
    let place = Place::new();
    place.without_a_segment();
    place.copy("whole", "late");
    place.lose("late", 0);
    place.copy("late", "later");
    place.lose("later", 6);
    let found = |replicas: &[&str]| {
        let plan = place.plan(replicas);
        let each = &plan.partitions[0];
        (replica_of(&each.source), each.log_start_offset)
    };
    assert_eq!(found(&["later", "late", "whole"]), ("whole".to_owned(), 0));
    assert_eq!(found(&["later", "late"]), ("late".to_owned(), 6));
    assert_eq!(found(&["late", "later"]), ("late".to_owned(), 6));
    // A gap inside counts more than the beginning.
    assert_eq!(found(&["one", "late"]), ("late".to_owned(), 6));
    let report = place.restore(&["later", "late", "whole"]);
    assert_eq!(place.offsets("new"), (0..18).collect::<Vec<_>>());
    assert!(!report.has_losses());
    // And so does the end.
    place.longer("later");
    assert_eq!(found(&["whole", "late", "later"]), ("later".to_owned(), 12));
}

/// The offsets that are lost stand beside damage: both are one range.
#[test]
fn a_lost_segment_beside_damage_is_filled() {
    let place = Place::new();
    place.without_a_segment();
    place.cleaner("one", NEVER);
    place.longer("one");
    place.damage("one", &[12]);
    let report = place.restore(&["one", "whole"]);
    assert_eq!(place.offsets("new"), (0..21).collect::<Vec<_>>());
    assert!(!report.has_losses(), "{report:?}");
}
