//! Cases in which a copy has what the source has, and that is not the whole: transactions without their end, groups that were further.

use super::Run;
use super::cases::{again, append, assert_same, commit, finished, go_on, once, stored, told};
use crate::mirror::core::Node;
use crate::mirror::perform::lock;
use crate::mirror::report::EventKind;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A part of a transaction, or its marker.
fn transactional(run: &mut Run, is_marker: bool) {
    run.model.append_one("orders", 0, (10, 1), true, is_marker);
    run.model.settle();
}

/// A record of no transaction.
fn plain(run: &mut Run) {
    run.model.append_one("orders", 0, (10, 1), false, false);
    run.model.settle();
}

/// Compaction removes the batch at this place.
fn compact(run: &mut Run, place: usize) {
    run.model.partition_of("orders", 0).log[place].is_there = false;
}

/// Makes the files of the copy so old.
fn age(folder: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * 86_400);
    for entry in std::fs::read_dir(folder.join("orders-0")).unwrap() {
        let file = std::fs::File::options()
            .write(true)
            .open(entry.unwrap().path());
        file.unwrap().set_modified(then).unwrap();
    }
}

/// The source's cleaner removes the aborted record, and a day later its marker. The copy has the record, and comes back after that: the
/// next marker of the producer will decide.
#[test]
fn a_transaction_whose_marker_was_compacted_away_is_told() {
    for is_followed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = once(folder.path());
        plain(&mut run);
        transactional(&mut run, false);
        let report = finished(&mut run, 20_000);
        assert!(report.is_complete && !report.has_losses, "{report:#?}");
        transactional(&mut run, true);
        plain(&mut run);
        compact(&mut run, 1);
        compact(&mut run, 2);
        if is_followed {
            transactional(&mut run, false);
            transactional(&mut run, true);
        }
        run.kill();
        age(&run.folder, 2);
        again(&mut run);
        let report = finished(&mut run, 20_000);
        assert!(report.is_complete && report.has_losses, "{report:#?}");
        let lost = told(&report, EventKind::Lost);
        assert_eq!(lost.len(), 1, "{report:#?}");
        assert!(
            lost[0].contains("producer 7 that began at offset 1 may have ended")
                && lost[0].contains("compaction removed"),
            "{lost:?}"
        );
        again(&mut run);
        let report = finished(&mut run, 20_000);
        assert!(!report.has_losses, "{report:#?}");
    }
}

/// The records' timestamps may be those of events long ago: what counts is how long the copy has them.
#[test]
fn a_marker_that_cannot_be_gone_yet_is_not_missed() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    plain(&mut run);
    transactional(&mut run, false);
    finished(&mut run, 20_000);
    plain(&mut run);
    transactional(&mut run, true);
    compact(&mut run, 2);
    again(&mut run);
    let report = finished(&mut run, 20_000);
    assert!(report.is_complete && !report.has_losses, "{report:#?}");
}

/// Its last stable offset shows it, however little time has passed.
#[test]
fn a_transaction_that_has_ended_at_the_source_and_not_in_the_copy_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    transactional(&mut run, false);
    go_on(&mut run, 10_000, |_, _| true);
    transactional(&mut run, true);
    plain(&mut run);
    compact(&mut run, 1);
    go_on(&mut run, 10_000, |_, _| true);
    let report = lock(&run.core).report();
    let lost = told(&report, EventKind::Lost);
    assert_eq!(lost.len(), 1, "{report:#?}");
    assert!(
        lost[0].contains("offset 0 has ended at the source"),
        "{lost:?}"
    );
}

#[test]
fn a_transaction_whose_marker_comes_behind_a_gap_is_not_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    transactional(&mut run, false);
    go_on(&mut run, 10_000, |_, _| true);
    plain(&mut run);
    transactional(&mut run, true);
    compact(&mut run, 1);
    // Another one is open in both.
    transactional(&mut run, false);
    go_on(&mut run, 10_000, |_, _| true);
    let report = lock(&run.core).report();
    assert_eq!(report.partitions[0].log_end_offset, 4, "{report:#?}");
    assert!(!report.has_losses, "{report:#?}");
}

/// Its leader epochs begin below its log, as those of a directory in which segments are missing: the copy agrees with all of them.
#[test]
fn once_ends_behind_a_gap_in_which_leaders_changed() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    finished(&mut run, 20_000);
    let end = run.model.topics["orders"].partitions[0].end();
    let partition = run.model.partition_of("orders", 0);
    partition.epoch = 3;
    while run.model.topics["orders"].partitions[0].end() < end + 100 {
        append(&mut run, 0);
    }
    let partition = run.model.partition_of("orders", 0);
    partition.start = partition.end();
    partition.epochs = vec![(0, 0), (2, end + 20), (3, end + 80)];
    append(&mut run, 0);
    again(&mut run);
    let report = finished(&mut run, 30_000);
    assert!(report.is_complete && report.has_losses, "{report:#?}");
    assert_eq!(told(&report, EventKind::Cut).len(), 0, "{report:#?}");
    let source = &run.model.topics["orders"].partitions[0];
    assert_eq!(report.partitions[0].log_end_offset, source.end());
}

/// An unclean election took them, or a server hides them (`serve --until high-watermark`).
#[test]
fn a_group_that_had_read_what_the_source_does_not_have_is_told() {
    for is_once in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = once(folder.path());
        run.options.once = is_once;
        run.kill();
        append(&mut run, 0);
        let end = run.model.topics["orders"].partitions[0].end();
        commit(&mut run, 0, end + 50);
        commit(&mut run, 1, 0);
        assert_eq!(go_on(&mut run, 30_000, |_, _| true), is_once);
        lock(&run.core).end(run.now);
        let report = lock(&run.core).report();
        assert!(report.is_complete && report.has_losses, "{report:#?}");
        let lost = told(&report, EventKind::Lost);
        assert_eq!(lost.len(), 1, "{report:#?}");
        assert!(
            lost[0].contains(&format!("group readers committed offset {}", end + 50)),
            "{lost:?}"
        );
        assert_eq!(stored(run, "readers", 0), Some(end + 50));
    }
}

#[test]
fn a_mirror_that_is_ended_before_the_groups_came_is_not_complete() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    for partition in &mut run.model.topics.get_mut("orders").unwrap().partitions {
        partition.leader = 2;
    }
    commit(&mut run, 0, 1);
    // All records are copied; broker 1 coordinates the groups.
    assert!(!go_on(&mut run, 5000, |_, node| node != Node::Broker(1)));
    assert_same(&run, 0);
    lock(&run.core).end(run.now);
    let report = lock(&run.core).report();
    assert!(!report.is_complete, "{report:#?}");
    let problems = told(&report, EventKind::Problem);
    assert!(problems[0].contains("interrupted"), "{problems:?}");
    // One that had all when it was interrupted is.
    again(&mut run);
    finished(&mut run, 20_000);
    lock(&run.core).end(run.now);
    let report = lock(&run.core).report();
    assert!(report.is_complete, "{report:#?}");
    assert_eq!(stored(run, "readers", 0), Some(1));
}
