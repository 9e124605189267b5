//! Tests of what a mirror reports: whether it is complete, what is lost, and what it counts.

use super::Run;
use super::cases::{again, append, assert_same, commit, finished, go_on, once, stored, told};
use crate::mirror::perform::{lock, perform};
use crate::mirror::report::EventKind;
use crate::mirror::store::CommitOutcome;
use crate::mirror::work::{GroupCommit, ReadyCommit, Work};
use offsetlog::TopicPartition;
use offsetlog::format::Uuid;

const HOUR_MS: i64 = 3_600_000;

#[test]
fn damage_where_the_source_says_that_its_log_ends_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    // A server of a damaged directory: its high watermark is where the damage begins, and a fetch from there on fails.
    let partition = run.model.partition_of("orders", 0);
    let damaged = partition.log.len() / 2;
    let at = partition.log[damaged].base;
    partition.told = at;
    run.model.corrupt.insert("orders".to_owned(), at);
    for _ in 0..2 {
        let report = finished(&mut run, HOUR_MS);
        assert!(!report.is_complete, "{report:#?}");
        let first = &report.partitions[0];
        assert_eq!(first.log_end_offset, at);
        let problem = first.problem.as_ref().unwrap();
        assert!(problem.contains("CORRUPT_MESSAGE"), "{problem}");
        assert_eq!(told(&report, EventKind::Problem).len(), 1, "{report:#?}");
        again(&mut run);
    }
}

/// A mirror that goes on, of one topic.
fn lasting(folder: &std::path::Path) -> Run {
    let mut run = Run::new(folder, 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    append(&mut run, 0);
    append(&mut run, 1);
    run
}

/// Each is an error of Kafka that says nothing of coordinators: of the broker, of its disk, of permissions.
#[test]
fn a_broker_that_does_not_list_its_groups_is_a_problem_until_it_does() {
    for error in [-1, 7, 31, 56] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = once(folder.path());
        append(&mut run, 0);
        commit(&mut run, 0, 3);
        run.model.groups_error = error;
        let report = finished(&mut run, HOUR_MS);
        assert!(!report.is_complete, "{error}: {report:#?}");
        let problems = told(&report, EventKind::Problem);
        assert!(
            problems.iter().any(|told| told.contains("its groups")),
            "{error}: {problems:?}"
        );
        assert_same(&run, 0);
        run.model.groups_error = 0;
        again(&mut run);
        let report = finished(&mut run, HOUR_MS);
        assert!(report.is_complete, "{error}: {report:#?}");
        assert_eq!(report.committed_offsets, 1);
        assert_eq!(stored(run, "readers", 0), Some(3));
    }
}

#[test]
fn an_error_for_a_while_instead_of_the_groups_costs_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    commit(&mut run, 0, 3);
    run.model.groups_error = -1;
    assert!(!go_on(&mut run, 20_000, |_, _| true));
    run.model.groups_error = 0;
    let report = finished(&mut run, HOUR_MS);
    assert!(report.is_complete, "{report:#?}");
    assert_eq!(stored(run, "readers", 0), Some(3));
    // One that goes on says so meanwhile.
    let folder = tempfile::tempdir().unwrap();
    let mut run = lasting(folder.path());
    commit(&mut run, 0, 3);
    run.model.groups_error = -1;
    go_on(&mut run, 20_000, |_, _| true);
    assert!(!lock(&run.core).report().is_complete);
    run.model.groups_error = 0;
    go_on(&mut run, 20_000, |_, _| true);
    assert!(lock(&run.core).report().is_complete);
    assert_eq!(stored(run, "readers", 0), Some(3));
}

#[test]
fn settings_that_were_not_told_for_a_while_are_those_of_the_source_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = lasting(folder.path());
    let own = |run: &mut Run, value: Option<&str>| {
        let config = &mut run.model.topics.get_mut("orders").unwrap().config;
        config.clear();
        config.extend(value.map(|value| ("retention.ms".to_owned(), value.to_owned())));
    };
    own(&mut run, Some("3600000"));
    go_on(&mut run, 20_000, |_, _| true);
    let file = run.folder.join("orders-0/.offsetlog.config");
    let stored = std::fs::read_to_string(&file).unwrap();
    assert!(stored.contains("retention.ms=3600000"), "{stored}");
    // The setting is taken back, and the next mirror is not told so at first.
    own(&mut run, None);
    run.model.configs_error = -1;
    run.kill();
    go_on(&mut run, 20_000, |_, _| true);
    assert!(std::fs::read_to_string(&file).unwrap() == stored);
    run.model.configs_error = 0;
    go_on(&mut run, 20_000, |_, _| true);
    let stored = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(!stored.contains("retention.ms"), "{stored}");
    let report = lock(&run.core).report();
    assert_eq!(told(&report, EventKind::Settings).len(), 1, "{report:#?}");
    // What is stored already has not changed.
    run.model.configs_error = -1;
    run.kill();
    go_on(&mut run, 20_000, |_, _| true);
    run.model.configs_error = 0;
    go_on(&mut run, 20_000, |_, _| true);
    let report = lock(&run.core).report();
    assert!(told(&report, EventKind::Settings).is_empty(), "{report:#?}");
}

#[test]
fn offsets_above_an_end_that_compaction_removed_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = lasting(folder.path());
    let partition = run.model.partition_of("orders", 0);
    // A cleaner may leave nothing behind the last record, and the high watermark stays.
    let last = partition.log.last_mut().unwrap();
    last.is_there = false;
    let end = partition.end();
    let reached = partition.log[partition.log.len() - 1].base;
    commit(&mut run, 0, end);
    go_on(&mut run, 60_000, |_, _| true);
    let report = lock(&run.core).report();
    assert_eq!(report.partitions[0].log_end_offset, reached);
    assert_eq!(stored(run, "readers", 0), Some(end));
}

#[test]
fn offsets_above_an_end_that_compaction_removed_are_stored_beside_a_busy_partition() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = lasting(folder.path());
    let partition = run.model.partition_of("orders", 0);
    partition.log.last_mut().unwrap().is_there = false;
    let (end, leader) = (partition.end(), partition.leader);
    run.model.partition_of("orders", 1).lead(leader);
    commit(&mut run, 0, end);
    for _ in 0..400 {
        append(&mut run, 1);
        go_on(&mut run, 100, |_, _| true);
    }
    assert_eq!(stored(run, "readers", 0), Some(end));
}

#[test]
fn offsets_above_records_that_come_late_wait_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = lasting(folder.path());
    go_on(&mut run, 20_000, |_, _| true);
    append(&mut run, 0);
    let end = run.model.topics["orders"].partitions[0].end();
    // Tiered storage that takes its time.
    run.model.silent.insert("orders".to_owned());
    commit(&mut run, 0, end);
    go_on(&mut run, 5000, |_, _| true);
    assert_eq!(lock(&run.core).report().committed_offsets, 0);
    run.model.silent.clear();
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
    assert_eq!(stored(run, "readers", 0), Some(end));
}

/// A topic with remote storage has no end that compaction removed, however long nothing comes.
#[test]
fn offsets_above_records_in_remote_storage_wait_for_them_as_long_as_it_takes() {
    for enabled in ["true", "TRUE"] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = lasting(folder.path());
        let config = &mut run.model.topics.get_mut("orders").unwrap().config;
        config.insert("remote.storage.enable".to_owned(), enabled.to_owned());
        go_on(&mut run, 20_000, |_, _| true);
        append(&mut run, 0);
        let end = run.model.topics["orders"].partitions[0].end();
        run.model.silent.insert("orders".to_owned());
        commit(&mut run, 0, end);
        go_on(&mut run, 60_000, |_, _| true);
        assert_eq!(lock(&run.core).report().committed_offsets, 0);
        run.model.silent.clear();
        go_on(&mut run, 20_000, |_, _| true);
        assert_same(&run, 0);
        assert_eq!(stored(run, "readers", 0), Some(end));
    }
}

#[test]
fn committed_offsets_are_counted_when_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    commit(&mut run, 0, 3);
    let report = finished(&mut run, HOUR_MS);
    assert_eq!((report.committed_offsets, report.groups), (1, 1));
    // It is there already.
    again(&mut run);
    let report = finished(&mut run, HOUR_MS);
    assert_eq!((report.committed_offsets, report.groups), (0, 1));
    commit(&mut run, 0, 4);
    again(&mut run);
    let report = finished(&mut run, HOUR_MS);
    assert_eq!((report.committed_offsets, report.groups), (1, 1));
}

/// A broker answers a question for the committed offsets of share groups as if they had none: without a word they would be lost.
#[test]
fn share_groups_are_told_and_other_types_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    for (number, kind) in ["classic", "consumer", "streams"].into_iter().enumerate() {
        run.model.group_types.insert(kind.to_owned(), kind);
        let key = (kind.to_owned(), "orders".to_owned(), 0);
        run.model.commits.insert(key, 1 + number as i64);
    }
    let report = finished(&mut run, HOUR_MS);
    assert_eq!((report.groups, report.committed_offsets), (3, 3));
    assert_eq!(report.share_groups, 0);
    assert_eq!(told(&report, EventKind::Warning), Vec::<String>::new());
    run.model.group_types.insert("jobs".to_owned(), "share");
    again(&mut run);
    let report = finished(&mut run, HOUR_MS);
    assert!(report.is_complete && !report.has_losses, "{report:#?}");
    assert_eq!((report.groups, report.share_groups), (3, 1));
    let wanted = "share group jobs is not copied: in the copy it begins anew, where share.auto.offset.reset says";
    assert_eq!(told(&report, EventKind::Warning), [wanted]);
    let event = report.events.iter().find(|event| event.message == wanted);
    assert_eq!(event.unwrap().broker, Some(1));
    assert_eq!(stored(run, "streams", 0), Some(3));
}

#[test]
fn each_share_group_is_told_once_and_many_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = lasting(folder.path());
    let list = |run: &mut Run, numbers: std::ops::Range<usize>| {
        let names = numbers.map(|number| (format!("share-{number:02}"), "Share"));
        run.model.group_types = names.collect();
        go_on(run, 120_000, |_, _| true);
        let report = lock(&run.core).report();
        (report.share_groups, told(&report, EventKind::Warning))
    };
    let (count, warnings) = list(&mut run, 0..13);
    assert_eq!((count, warnings.len()), (13, 1), "{warnings:?}");
    assert!(warnings[0].starts_with("share groups share-00, share-01, "));
    assert!(warnings[0].contains("share-09 and 3 more are not copied: in the copy they begin"));
    // Some were deleted, and others made.
    let (count, warnings) = list(&mut run, 10..15);
    assert_eq!((count, warnings.len()), (5, 2), "{warnings:?}");
    assert!(
        warnings[1].starts_with("share groups share-13, share-14 are not"),
        "{warnings:?}"
    );
    let (count, warnings) = list(&mut run, 0..0);
    assert_eq!((count, warnings.len()), (0, 2), "{warnings:?}");
    assert!(lock(&run.core).report().is_complete);
}

/// Whoever does not want offsets is not told of groups either.
#[test]
fn without_groups_share_groups_are_not_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    run.options.groups = false;
    again(&mut run);
    append(&mut run, 0);
    run.model.group_types.insert("jobs".to_owned(), "share");
    let report = finished(&mut run, HOUR_MS);
    assert_eq!((report.share_groups, report.is_complete), (0, true));
    assert_eq!(told(&report, EventKind::Warning), Vec::<String>::new());
}

#[test]
fn a_group_of_a_type_that_is_not_known_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    commit(&mut run, 0, 3);
    run.model.group_types.insert("readers".to_owned(), "queue");
    let report = finished(&mut run, HOUR_MS);
    let wanted = "group readers is of an unknown type, queue: only what it has of committed offsets is copied";
    assert_eq!(told(&report, EventKind::Warning), [wanted]);
    assert_eq!(stored(run, "readers", 0), Some(3));
}

fn group_commit(partition: i32, offset: i64) -> GroupCommit {
    GroupCommit {
        group: "readers".to_owned(),
        at: TopicPartition {
            topic: "orders".to_owned(),
            partition,
        },
        offset,
        leader_epoch: None,
        metadata: String::new(),
    }
}

#[test]
fn an_offset_that_the_directory_refuses_is_told_and_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = lasting(folder.path());
    go_on(&mut run, 20_000, |_, _| true);
    commit(&mut run, 0, 3);
    // As if the disk had answered so.
    lock(&run.core).committed(CommitOutcome {
        refused: vec![(group_commit(0, 3), "no room".to_owned())],
        ..CommitOutcome::default()
    });
    let report = lock(&run.core).report();
    assert_eq!((report.committed_offsets, report.groups), (0, 0));
    assert!(!report.is_complete, "{report:#?}");
    let warnings = told(&report, EventKind::Warning);
    assert!(warnings[0].contains("not stored: no room"), "{warnings:?}");
    go_on(&mut run, 20_000, |_, _| true);
    let report = lock(&run.core).report();
    assert_eq!((report.committed_offsets, report.groups), (1, 1));
    assert!(report.is_complete, "{report:#?}");
    assert_eq!(stored(run, "readers", 0), Some(3));
}

#[test]
fn an_offset_that_waits_for_the_disk_is_not_one_of_the_topic_that_was_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = lasting(folder.path());
    go_on(&mut run, 20_000, |_, _| true);
    let id = run.model.topics["orders"].id;
    let ready = |partition, topic_id| ReadyCommit {
        commit: group_commit(partition, 3),
        topic_id,
    };
    let other = Uuid::from_bytes([1; 16]);
    let works = vec![Work::Commits(vec![ready(0, id), ready(1, other)])];
    let store = run.store.as_mut().unwrap();
    perform(&run.core, store, works, &[], run.now).unwrap();
    assert_eq!(lock(&run.core).report().committed_offsets, 1);
    assert_eq!(stored(run, "readers", 0), Some(3));
}
