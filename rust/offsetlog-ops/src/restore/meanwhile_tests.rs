//! What becomes of the chosen replica between the plan and its end: truncated, replaced, removed, or grown.

use super::*;

impl Place {
    /// Two replicas, the second one a batch shorter than the first, and the plan that takes the first.
    fn planned() -> (Self, RestorePlan) {
        let place = Self::new();
        place.append("two", 5, "value", 0);
        place.copy("two", "one");
        place.append("one", 1, "value", 0);
        let plan = place.plan(&["one", "two"]);
        assert_eq!(replica_of(&plan.partitions[0].source), "one");
        assert_eq!(plan.partitions[0].log_end_offset, Some(18));
        (place, plan)
    }

    /// The plan does not restore less than it says, and the next one takes the replica that has most by then.
    fn is_refused_and_planned_anew(&self, mut plan: RestorePlan, expected: &str) {
        plan.run(None).unwrap();
        let state = &plan.partitions[0].state;
        let reason = state.reason().unwrap_or_else(|| panic!("{state:?}"));
        assert!(reason.contains(expected), "{reason}");
        assert!(!self.of("new").exists());
        self.restore(&["one", "two"]);
        assert_eq!(self.rows("new"), self.rows("two"));
    }
}

#[test]
fn a_source_that_is_truncated() {
    let (place, plan) = Place::planned();
    let write = WriteOptions::default();
    let log = LogWriter::open(place.of("one"), &OpenOptions::default(), &write).unwrap();
    log.truncate_to(9).unwrap();
    log.close().unwrap();
    place.is_refused_and_planned_anew(plan, "had more when the restore was planned");
}

#[test]
fn a_source_that_is_replaced_by_a_shorter_one() {
    let (place, plan) = Place::planned();
    place.append("three", 2, "value", 0);
    fs::rename(place.of("one"), place.0.path().join("away")).unwrap();
    fs::rename(place.of("three"), place.of("one")).unwrap();
    place.is_refused_and_planned_anew(plan, "one/orders-0");
}

#[test]
fn a_source_that_is_replaced_by_one_of_an_older_epoch() {
    let place = Place::new();
    place.append("two", 5, "value", 4);
    place.append("one", 1, "value", 5);
    place.append("three", 9, "value", 3);
    let plan = place.plan(&["one", "two"]);
    assert_eq!(replica_of(&plan.partitions[0].source), "one");
    fs::rename(place.of("one"), place.0.path().join("away")).unwrap();
    fs::rename(place.of("three"), place.of("one")).unwrap();
    place.is_refused_and_planned_anew(plan, "one/orders-0");
}

#[test]
fn a_source_that_is_removed() {
    let (place, plan) = Place::planned();
    fs::remove_dir_all(place.0.path().join("one").join("orders-0")).unwrap();
    fs::create_dir_all(place.of("one")).unwrap();
    place.is_refused_and_planned_anew(plan, "one/orders-0");
}

#[test]
fn a_source_that_grows() {
    let (place, mut plan) = Place::planned();
    place.append("one", 3, "later", 0);
    plan.run(None).unwrap();
    assert_eq!(plan.partitions[0].state.name(), "restored");
    assert_eq!(plan.partitions[0].log_end_offset, Some(27));
    assert_eq!(place.rows("new"), place.rows("one"));
}
