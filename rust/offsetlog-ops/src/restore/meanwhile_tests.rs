//! What becomes of the chosen replica between the plan and its end: truncated, replaced, removed, or grown.

use super::proof::failing;
use super::*;
use offsetlog_faults::fault::{Call, Plan};

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
    place.is_refused_and_planned_anew(plan, "ends at offset 9 now, and ended at 18");
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

/// Three segments of two batches each.
fn with_segments(place: &Place, replica: &str) {
    for _ in 0..3 {
        place.append(replica, 2, "value", 0);
        place.roll(replica);
    }
}

fn segments_planned() -> (Place, RestorePlan) {
    let place = Place::new();
    with_segments(&place, "two");
    place.copy("two", "one");
    let plan = place.plan(&["one", "two"]);
    assert_eq!(replica_of(&plan.partitions[0].source), "one");
    (place, plan)
}

#[test]
fn a_source_that_loses_its_first_segment() {
    let (place, plan) = segments_planned();
    for entry in fs::read_dir(place.of("one")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("00000000000000000000.") {
            fs::remove_file(path).unwrap();
        }
    }
    place.is_refused_and_planned_anew(plan, "lacks records before offset 6 now");
}

#[test]
fn a_source_whose_first_records_are_deleted() {
    let (place, mut plan) = segments_planned();
    let write = WriteOptions::default();
    let log = LogWriter::open(place.of("one"), &OpenOptions::default(), &write).unwrap();
    log.delete_records_before(7).unwrap();
    log.close().unwrap();
    plan.run(None).unwrap();
    let restored = &plan.partitions[0];
    assert_eq!(
        (restored.state.name(), restored.log_start_offset),
        ("restored", 7)
    );
    let told = plan.warnings.join("\n");
    for word in [
        "restored from offset 7 on",
        "began at 0",
        "two/orders-0 begins earlier",
    ] {
        assert!(told.contains(word), "{told}");
    }
}

#[test]
fn a_source_that_becomes_another_topic() {
    let place = Place::new();
    let with_id = |replica: &str, batches, id| {
        place.append(replica, batches, replica, 0);
        let text = format!("version: 0\ntopic_id: {id}");
        fs::write(place.of(replica).join("partition.metadata"), text).unwrap();
    };
    with_id("one", 6, "AQIDBAUGBwgJCgsMDQ4PEA");
    place.copy("one", "two");
    with_id("other", 9, "EQIDBAUGBwgJCgsMDQ4PEA");
    let mut plan = place.plan(&["one", "two"]);
    fs::rename(place.of("one"), place.0.path().join("away")).unwrap();
    fs::rename(place.of("other"), place.of("one")).unwrap();
    plan.run(None).unwrap();
    let reason = plan.partitions[0].state.reason().unwrap();
    let id = "has another topic id now, EQIDBAUGBwgJCgsMDQ4PEA";
    assert!(reason.contains(id), "{reason}");
    assert!(!place.of("new").exists());
    place.restore(&["two"]);
    assert_eq!(place.rows("new"), place.rows("two"));
}

#[test]
fn a_source_of_a_later_epoch() {
    let (place, mut plan) = Place::planned();
    place.append("one", 1, "later", 3);
    plan.run(None).unwrap();
    let reason = plan.partitions[0].state.reason().unwrap();
    assert!(
        reason.contains("is of leader epoch 3 now, and was of 0"),
        "{reason}"
    );
    assert!(!place.of("new").exists());
    place.restore(&["one", "two"]);
    assert_eq!(place.rows("new"), place.rows("one"));
}

/// A directory for each of two brokers, and a source that is cut when the first one is about to get its name.
#[test]
fn a_source_that_is_truncated_between_two_directories() {
    let place = Place::new();
    place.append("one", 6, "value", 0);
    let (disk, options) = failing();
    let sources = [place.0.path().join("one")];
    let into = [place.0.path().join("new")];
    let how = RestoreOptions::default();
    let mut plan = RestorePlan::make(&sources, &into, &how, &options).unwrap();
    plan.partitions[0].into.push((None, place.of("second")));
    disk.set(Plan {
        kinds: |call, path| call == Call::Rename && path.ends_with("/new/orders-0"),
        ..Plan::none()
    });
    let source = place.of("one");
    disk.before(1, move || {
        let write = WriteOptions::default();
        let log = LogWriter::open(&source, &OpenOptions::default(), &write).unwrap();
        log.truncate_to(9).unwrap();
        log.close().unwrap();
    });
    plan.run(None).unwrap();
    let reason = plan.partitions[0].state.reason().unwrap();
    assert!(reason.contains("ends at offset 9 now"), "{reason}");
    assert_eq!(place.offsets("new"), (0..18).collect::<Vec<_>>());
    assert!(!place.of("second").exists());
}
