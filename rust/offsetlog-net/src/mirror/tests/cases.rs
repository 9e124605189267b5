//! Cases that random histories seldom reach: each was wrong once, or nearly.

use super::{NODES, Run, batches, log_bytes};
use crate::mirror::core::{Core, Node};
use crate::mirror::options::MirrorOptions;
use crate::mirror::perform::lock;
use crate::mirror::report::{EventKind, MirrorReport};
use crate::mirror::store::{Store, TopicOutcome};
use crate::mirror::work::GroupCommit;
use offsetlog::format::Uuid;
use offsetlog::format::protocol::apis::LIST_GROUPS;
use offsetlog::{GroupsOptions, OpenOptions, TopicPartition};
use std::path::Path;

const HOUR_MS: i64 = 3_600_000;

pub(super) fn once(folder: &Path) -> Run {
    let mut run = Run::new(folder, 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    again(&mut run);
    run
}

/// A new mirror of the same directory, with `once`.
pub(super) fn again(run: &mut Run) {
    run.options.once = true;
    run.kill();
}

pub(super) fn append(run: &mut Run, number: usize) {
    for _ in 0..5 {
        run.model.append("orders", number);
    }
    run.model.settle();
}

/// Everything answers, except what is left out, for this many milliseconds.
pub(super) fn go_on(run: &mut Run, span_ms: i64, asks: impl Fn(&Run, Node) -> bool) -> bool {
    let until = run.now + span_ms;
    while !lock(&run.core).is_finished(run.now) {
        if run.now > until {
            return false;
        }
        for node in NODES {
            if asks(run, node) {
                run.ask(node);
                run.answer(node, false);
            }
        }
        while !run.arrived.is_empty() {
            run.work();
        }
        run.now += 100;
    }
    true
}

pub(super) fn finished(run: &mut Run, span_ms: i64) -> MirrorReport {
    let is_over = go_on(run, span_ms, |_, _| true);
    let report = lock(&run.core).report();
    assert!(is_over, "{report:#?}");
    report
}

/// Whole batches in `offsetlog-cut` of a partition.
pub(super) fn kept(run: &Run, number: usize) -> usize {
    let folder = run.folder.join(format!("orders-{number}/offsetlog-cut"));
    let files = super::files(&folder).into_iter();
    files
        .map(|(file, _)| batches(&std::fs::read(file).unwrap()).len())
        .sum()
}

pub(super) fn told(report: &MirrorReport, kind: EventKind) -> Vec<String> {
    let found = report.events.iter().filter(|event| event.kind == kind);
    found.map(|event| event.message.clone()).collect()
}

pub(super) fn assert_same(run: &Run, number: usize) {
    let found = batches(&log_bytes(&run.folder.join(format!("orders-{number}"))));
    let log = &run.model.topics["orders"].partitions[number].log;
    let wanted: Vec<_> = log.iter().map(|batch| batch.bytes.clone()).collect();
    assert_eq!(found, wanted);
}

pub(super) fn stored(run: Run, group: &str, number: i32) -> Option<i64> {
    let mut run = run;
    run.store.take().unwrap().close().unwrap();
    let log_dir = offsetlog::LogDir::open(&[&run.folder], &OpenOptions::default()).unwrap();
    let (groups, ..) = log_dir.groups(&GroupsOptions::default()).unwrap();
    let found = groups.iter().find(|each| each.group_id == group)?;
    let mut offsets = found.offsets.iter();
    offsets
        .find(|offset| offset.partition == number)
        .map(|offset| offset.offset)
}

pub(super) fn commit(run: &mut Run, number: i32, offset: i64) {
    let key = ("readers".to_owned(), "orders".to_owned(), number);
    run.model.commits.insert(key, offset);
}

#[test]
fn once_does_not_take_an_empty_answer_for_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    append(&mut run, 1);
    run.model.silent.insert("orders".to_owned());
    // Tiered storage that takes its time.
    assert!(!go_on(&mut run, 3000, |_, _| true));
    run.model.silent.clear();
    let report = finished(&mut run, 30_000);
    assert!(report.is_complete && !report.has_losses, "{report:#?}");
    assert_same(&run, 0);
    assert_same(&run, 1);
    // It never comes, which is reported.
    append(&mut run, 0);
    let end = run.model.topics["orders"].partitions[0].end();
    commit(&mut run, 0, end);
    run.model.silent.insert("orders".to_owned());
    again(&mut run);
    let report = finished(&mut run, 60_000);
    assert!(report.has_losses && !report.is_complete, "{report:#?}");
    let lost = told(&report, EventKind::Lost);
    assert!(lost[0].contains("nothing to read"), "{lost:?}");
    assert_eq!(stored(run, "readers", 0), None);
}

#[test]
fn once_gives_up_what_gets_answers_and_does_not_move() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    append(&mut run, 1);
    run.model.damaged.insert("orders".to_owned());
    let report = finished(&mut run, HOUR_MS);
    assert!(!report.is_complete);
    let problem = report.partitions[0].problem.as_ref().unwrap();
    assert!(problem.contains("refused"), "{problem}");
    // The high watermark went back: the copy cannot reach its target.
    run.model.damaged.clear();
    again(&mut run);
    assert!(!go_on(&mut run, 300, |_, _| true));
    let partition = run.model.partition_of("orders", 0);
    partition.high_watermark = partition.log[0].last + 1;
    partition.told = partition.high_watermark;
    finished(&mut run, HOUR_MS);
}

#[test]
fn once_ends_whatever_happens_meanwhile() {
    for seed in super::seeds() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Run::new(folder.path(), seed, false);
        again(&mut run);
        let mut steps = 0;
        while !lock(&run.core).is_finished(run.now) {
            run.step(true);
            steps += 1;
            assert!(
                steps < 100_000,
                "seed {seed}: {:#?}",
                lock(&run.core).report()
            );
        }
    }
}

#[test]
fn an_offset_that_comes_late_is_stored_when_the_copy_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    for partition in &mut run.model.topics.get_mut("orders").unwrap().partitions {
        partition.leader = 2;
    }
    append(&mut run, 0);
    append(&mut run, 1);
    // Broker 1 coordinates all groups; it is asked when all partitions are done.
    assert!(!go_on(&mut run, 5000, |_, node| node != Node::Broker(1)));
    append(&mut run, 0);
    let end = run.model.topics["orders"].partitions[0].end();
    commit(&mut run, 0, end);
    let report = finished(&mut run, 20_000);
    assert!(report.is_complete, "{report:#?}");
    assert_same(&run, 0);
    assert_eq!(stored(run, "readers", 0), Some(end));
}

#[test]
fn an_offset_that_comes_before_its_partition_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    finished(&mut run, 20_000);
    commit(&mut run, 0, 1);
    // Nothing is appended this time, and the groups answer before the topics are known.
    again(&mut run);
    let any_later = |run: &Run, node| match node {
        Node::Any => !lock(&run.core).brokers().contains_key(&1),
        Node::Broker(id) => id == 1,
    };
    assert!(!go_on(&mut run, 3000, any_later));
    let began = run.now;
    let report = finished(&mut run, 20_000);
    assert!(
        report.is_complete && run.now - began < 10_000,
        "{report:#?}"
    );
    assert_eq!(stored(run, "readers", 0), Some(1));
}

#[test]
fn offsets_of_a_topic_made_anew_do_not_touch_those_of_the_copy() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    append(&mut run, 0);
    let end = run.model.topics["orders"].partitions[0].end();
    commit(&mut run, 0, end);
    go_on(&mut run, 20_000, |_, _| true);
    run.model.make("orders", 2);
    commit(&mut run, 0, 1);
    go_on(&mut run, 20_000, |_, _| true);
    let report = lock(&run.core).report();
    assert_eq!(told(&report, EventKind::Recreated).len(), 1, "{report:#?}");
    assert!(!report.is_complete && report.has_losses);
    assert_eq!(stored(run, "readers", 0), Some(end));
}

#[test]
fn once_ends_behind_a_gap_and_what_was_lost_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    let report = finished(&mut run, 20_000);
    assert!(report.is_complete && !report.has_losses, "{report:#?}");
    append(&mut run, 0);
    append(&mut run, 1);
    for number in 0..2 {
        let partition = run.model.partition_of("orders", number);
        partition.start = partition.end();
        partition.epochs = vec![(partition.epoch, partition.start)];
    }
    let end = run.model.topics["orders"].partitions[0].end();
    commit(&mut run, 0, end);
    again(&mut run);
    let report = finished(&mut run, 30_000);
    assert!(report.is_complete && report.has_losses, "{report:#?}");
    // One had records, the other was empty.
    assert_eq!(told(&report, EventKind::Lost).len(), 2, "{report:#?}");
    assert_eq!(stored(run, "readers", 0), Some(end));
}

#[test]
fn a_transaction_whose_end_was_lost_in_a_gap_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    let transactional = |run: &mut Run, is_marker| {
        run.model.append_one("orders", 0, (10, 1), true, is_marker);
        run.model.settle();
    };
    transactional(&mut run, false);
    finished(&mut run, 20_000);
    // Its marker comes and is deleted before it is fetched; the next marker of the producer is of another transaction.
    transactional(&mut run, true);
    let partition = run.model.partition_of("orders", 0);
    partition.start = partition.end();
    partition.epochs = vec![(partition.epoch, partition.start)];
    transactional(&mut run, false);
    transactional(&mut run, true);
    again(&mut run);
    let report = finished(&mut run, 20_000);
    let lost = told(&report, EventKind::Lost);
    assert_eq!(lost.len(), 2, "{report:#?}");
    assert!(
        lost[1].contains("producer 7") && lost[1].contains("offset 0"),
        "{lost:?}"
    );
    // Told once.
    again(&mut run);
    let report = finished(&mut run, 20_000);
    assert!(told(&report, EventKind::Lost).is_empty(), "{report:#?}");
}

#[test]
fn what_was_compacted_at_the_end_and_comes_back_is_copied() {
    for is_old in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Run::new(folder.path(), 5, is_old);
        run.model.topics.retain(|name, _| name == "orders");
        append(&mut run, 0);
        let partition = run.model.partition_of("orders", 0);
        let count = partition.log.len();
        partition.log[count - 2].is_there = false;
        partition.log[count - 3].is_there = false;
        go_on(&mut run, 10_000, |_, _| true);
        // An unclean election of a replica that ends before the last batch, and has compacted nothing.
        let partition = run.model.partition_of("orders", 0);
        partition.log.pop();
        partition.log[count - 2].is_there = true;
        partition.log[count - 3].is_there = true;
        let leader = partition.leader;
        partition.lead(leader);
        run.model.settle();
        go_on(&mut run, 20_000, |_, _| true);
        assert_same(&run, 0);
        let report = lock(&run.core).report();
        assert_eq!(told(&report, EventKind::Cut).len(), 1, "{report:#?}");
    }
}

#[test]
fn what_was_there_before_and_is_gone_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    finished(&mut run, 20_000);
    run.model.hidden.insert("orders".to_owned());
    run.model.make("other", 1);
    again(&mut run);
    let report = finished(&mut run, 30_000);
    assert!(report.is_complete && report.has_losses, "{report:#?}");
    assert_eq!(told(&report, EventKind::DeletedTopic).len(), 1);
    // Nothing at all: a right was lost, or a pattern is wrong.
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    run.model.hidden.insert("orders".to_owned());
    let report = finished(&mut run, 30_000);
    assert!(!report.is_complete, "{report:#?}");
}

#[test]
fn groups_that_are_not_told_make_it_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    run.model.groups_error = 14;
    assert!(!go_on(&mut run, 60_000, |_, _| true));
    let report = finished(&mut run, HOUR_MS);
    assert!(!report.is_complete, "{report:#?}");
    // Loaded in time.
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    run.model.groups_error = 14;
    append(&mut run, 0);
    commit(&mut run, 0, 1);
    assert!(!go_on(&mut run, 60_000, |_, _| true));
    run.model.groups_error = 0;
    assert!(finished(&mut run, HOUR_MS).is_complete);
    assert_eq!(stored(run, "readers", 0), Some(1));
}

#[test]
fn a_group_that_an_answer_leaves_out_makes_it_incomplete_until_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    append(&mut run, 0);
    commit(&mut run, 0, 1);
    for error in [Some(30), None] {
        run.model.offsets_error = Some(error);
        go_on(&mut run, 20_000, |_, _| true);
        let report = lock(&run.core).report();
        assert!(!report.is_complete, "{error:?}: {report:#?}");
        let warned = told(&report, EventKind::Warning);
        assert!(
            warned.iter().any(|each| each.contains("readers")),
            "{warned:?}"
        );
        run.model.offsets_error = None;
        go_on(&mut run, 20_000, |_, _| true);
        let report = lock(&run.core).report();
        assert!(report.is_complete, "{error:?}: {report:#?}");
    }
    assert_eq!(stored(run, "readers", 0), Some(1));
}

#[test]
fn brokers_that_cannot_tell_groups_make_it_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    append(&mut run, 0);
    run.model.versions.remove(&LIST_GROUPS.key);
    let report = finished(&mut run, 20_000);
    assert!(!report.is_complete, "{report:#?}");
    let problems = told(&report, EventKind::Problem);
    assert!(problems[0].contains("committed offsets"), "{problems:?}");
}

fn opened(folder: &Path, topics: &[&str]) -> Store {
    let options = MirrorOptions {
        topics: topics.iter().map(|&name| name.to_owned()).collect(),
        groups: topics.is_empty(),
        ..MirrorOptions::default()
    };
    let mut store = Store::open(folder, &options, &OpenOptions::default()).unwrap();
    store.identify(Some("one")).unwrap();
    store
}

fn of_group(count: i32, metadata: usize) -> Vec<GroupCommit> {
    let of = |partition| GroupCommit {
        group: "readers".to_owned(),
        at: TopicPartition {
            topic: "orders".to_owned(),
            partition,
        },
        offset: 1,
        leader_epoch: None,
        metadata: "m".repeat(metadata),
    };
    (0..count).map(of).collect()
}

#[test]
fn much_metadata_is_stored_and_too_much_is_a_problem_of_its_group() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = opened(folder.path(), &[]);
    let outcome = |store: &mut Store, commits: &[GroupCommit]| {
        let outcome = store.commit(commits).unwrap();
        (outcome.written, outcome.stored.len(), outcome.refused.len())
    };
    assert_eq!(outcome(&mut store, &of_group(600, 4096)), (600, 600, 0));
    assert_eq!(outcome(&mut store, &of_group(1, 40_000)), (0, 0, 1));
    assert_eq!(outcome(&mut store, &of_group(3, 1)), (3, 3, 0));
    // What is there is not written again, and the last one of a partition counts.
    let mut several = of_group(3, 1);
    several.extend(of_group(2, 2));
    several.extend(of_group(1, 1));
    assert_eq!(outcome(&mut store, &several), (1, 3, 0));
    assert_eq!(outcome(&mut store, &of_group(1, 1)), (0, 1, 0));
    store.close().unwrap();
}

#[test]
fn committed_offsets_are_the_sources_or_the_mirrors_and_never_both() {
    let folder = tempfile::tempdir().unwrap();
    let id = Uuid::from_bytes([7; 16]);
    let mut store = opened(folder.path(), &["__consumer_offsets"]);
    store.topic("__consumer_offsets", id, 3, None).unwrap();
    store.close().unwrap();
    let mut store = opened(folder.path(), &[]);
    let refused = store.commit(&of_group(1, 1)).unwrap().refused;
    assert!(refused[0].1.contains("the source's own"), "{refused:?}");
    store.close().unwrap();
    let other = tempfile::tempdir().unwrap();
    let mut store = opened(other.path(), &[]);
    assert!(store.commit(&of_group(1, 1)).unwrap().refused.is_empty());
    store.close().unwrap();
    let mut store = opened(other.path(), &["__consumer_offsets"]);
    let refused = store.topic("__consumer_offsets", id, 3, None).unwrap_err();
    assert!(
        refused.to_string().contains("mirror into another"),
        "{refused}"
    );
}

#[test]
fn a_topic_that_was_half_made_gets_its_id_and_settings() {
    let folder = tempfile::tempdir().unwrap();
    let id = Uuid::from_bytes([7; 16]);
    let settings = [("retention.ms".to_owned(), "5000".to_owned())];
    // As a kill leaves it: the last partitions, the first of them without an id.
    let store = opened(folder.path(), &[]);
    store.close().unwrap();
    for (number, metadata) in [
        (1, None),
        (2, Some(format!("version: 0\ntopic_id: {id}\n"))),
    ] {
        let directory = folder.path().join(format!("orders-{number}"));
        std::fs::create_dir(&directory).unwrap();
        let bytes = metadata.unwrap_or_default();
        std::fs::write(directory.join("partition.metadata"), bytes).unwrap();
    }
    let mut store = opened(folder.path(), &[]);
    let TopicOutcome::Ready(ready) = store.topic("orders", id, 3, Some(&settings)).unwrap() else {
        panic!("it is another");
    };
    // Nothing was ever copied into those that are there.
    assert_eq!((ready.new, ready.positions.len()), (vec![1, 2, 0], 3));
    store.close().unwrap();
    let log_dir = offsetlog::LogDir::open(&[folder.path()], &OpenOptions::default()).unwrap();
    for number in 0..3 {
        let log = log_dir.log("orders", number).unwrap();
        assert_eq!(log.topic_id().unwrap(), Some(id));
        let config = log.stored_config().unwrap().unwrap();
        assert!(config.given().any(|pair| pair == ("retention.ms", "5000")));
    }
    let mut store = opened(folder.path(), &[]);
    let other = Uuid::from_bytes([8; 16]);
    let another = store.topic("orders", other, 3, None).unwrap();
    assert!(matches!(another, TopicOutcome::Another(ours) if ours == id));
    // One process at a time.
    let refused = Store::open(
        folder.path(),
        &MirrorOptions::default(),
        &OpenOptions::default(),
    );
    assert!(refused.unwrap_err().to_string().contains("lock"));
}

#[test]
fn a_cluster_that_gets_ids_later_keeps_its_topics() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = opened(folder.path(), &[]);
    let none = Uuid::from_bytes([0; 16]);
    let (first, other) = (Uuid::from_bytes([7; 16]), Uuid::from_bytes([8; 16]));
    for (id, is_same) in [(none, true), (first, true), (first, true), (other, false)] {
        let found = store.topic("orders", id, 1, None).unwrap();
        assert_eq!(matches!(found, TopicOutcome::Ready(_)), is_same, "{id}");
    }
}

#[test]
fn a_broker_that_does_not_answer_is_told_once_and_when_it_is_back() {
    let now = 0;
    let mut core = Core::new(MirrorOptions::default(), now);
    let node = Node::Broker(3);
    for _ in 0..10 {
        core.failed(node, None, "refused", now);
    }
    let news = core.news();
    assert_eq!(news.len(), 1, "{news:?}");
    assert!(
        news[0]
            .message
            .contains("broker 3 does not answer: refused")
    );
    core.tell_answer(node);
    core.tell_answer(node);
    assert_eq!(core.news().len(), 1);
}
