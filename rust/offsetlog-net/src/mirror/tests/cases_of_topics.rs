//! Tests of topics that disappear, return, are recreated, or grow while they are created.

use super::cases::{again, append, assert_same, commit, finished, go_on, once, told};
use super::{Node, Run, lock, log_bytes, topic_id};
use crate::mirror::core::Core;
use crate::mirror::report::EventKind;
use crate::mirror::store::{ReadyTopic, Store};
use crate::mirror::work::Work;
use offsetlog::format::Uuid;
use offsetlog::{GroupsOptions, LogDir, OpenOptions};
use std::sync::Mutex;

#[test]
fn a_topic_that_was_away_and_is_back_is_copied_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    run.model.hidden.insert("orders".to_owned());
    go_on(&mut run, 20_000, |_, _| true);
    assert_eq!(
        told(&lock(&run.core).report(), EventKind::DeletedTopic).len(),
        1
    );
    append(&mut run, 0);
    run.model.hidden.clear();
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
    let report = lock(&run.core).report();
    assert!(report.is_complete, "{report:#?}");
}

#[test]
fn a_topic_that_was_deleted_and_is_made_anew_later_is_told_and_not_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    let before = log_bytes(&run.folder.join("orders-0"));
    let gone = run.model.topics.remove("orders").unwrap();
    go_on(&mut run, 20_000, |_, _| true);
    assert_eq!(
        told(&lock(&run.core).report(), EventKind::DeletedTopic).len(),
        1
    );
    run.model.make("orders", 2);
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    let report = lock(&run.core).report();
    assert_eq!(told(&report, EventKind::Recreated).len(), 1);
    assert!(!report.is_complete, "{report:#?}");
    assert_eq!(log_bytes(&run.folder.join("orders-0")), before);
    // A broker that returns no ids does not make it the copied topic.
    let anew = run.model.topics["orders"].clone();
    let orders = run.model.topics.get_mut("orders").unwrap();
    orders.id = Uuid::from_bytes([0; 16]);
    go_on(&mut run, 20_000, |_, _| true);
    assert_eq!(log_bytes(&run.folder.join("orders-0")), before);
    run.model.topics.insert("orders".to_owned(), anew);
    go_on(&mut run, 20_000, |_, _| true);
    assert_eq!(log_bytes(&run.folder.join("orders-0")), before);
    // One that lagged behind: the first topic is there after all.
    run.model.topics.insert("orders".to_owned(), gone);
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
}

#[test]
fn an_older_id_that_only_a_lagging_broker_shows_is_not_taken_for_the_copys() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    let newer = run.model.topics["orders"].clone();
    // A new call: the first broker shows an older topic, and does not come to tell its settings.
    run.kill();
    run.model.make("orders", 2);
    run.ask(Node::Any);
    run.answer(Node::Any, false);
    run.work();
    run.model.topics.insert("orders".to_owned(), newer);
    append(&mut run, 0);
    run.now += run.options.metadata_interval_ms;
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
    let report = lock(&run.core).report();
    assert!(told(&report, EventKind::Recreated).is_empty());
    assert!(report.is_complete, "{report:#?}");
}

/// Topics, then their settings: the disk has the work to make them, and takes its time.
fn asks_for_settings(run: &mut Run) {
    run.ask(Node::Any);
    run.answer(Node::Any, false);
    run.work();
    run.ask(Node::Any);
    run.answer(Node::Any, false);
    assert!(!run.arrived.is_empty());
}

#[test]
fn a_partition_that_is_added_while_its_topic_is_made_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    asks_for_settings(&mut run);
    let topic = run.model.topics.get_mut("orders").unwrap();
    let new = topic.partitions[0].clone();
    topic.partitions.push(new);
    append(&mut run, 2);
    run.now += run.options.metadata_interval_ms;
    run.ask(Node::Any);
    run.answer(Node::Any, false);
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 2);
}

#[test]
fn what_the_disk_says_of_another_topic_of_the_name_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    append(&mut run, 0);
    let other = Uuid::from_bytes([9; 16]);
    let says = |run: &Run| {
        let ready = ReadyTopic {
            new: vec![9],
            ..ReadyTopic::default()
        };
        let mut core = lock(&run.core);
        core.topic_ready("orders", other, ready, run.now);
        core.topic_is_another("orders", Uuid::from_bytes([8; 16]), other, run.now);
        core.topic_refused("orders", other, "it is refused");
        let works = core.take_works(run.now);
        assert!(works.is_empty(), "{works:?}");
    };
    // While the disk makes it ready, and when it is copied.
    asks_for_settings(&mut run);
    says(&run);
    go_on(&mut run, 20_000, |_, _| true);
    says(&run);
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
    let report = lock(&run.core).report();
    assert!(report.is_complete, "{report:#?}");
    let problems = told(&report, EventKind::Problem);
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn a_topic_that_is_shown_again_while_it_is_deleted_does_not_hold_the_one_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    run.model.make("kept", 1);
    run.model.deletes = true;
    run.options.follow_deletes = true;
    run.core = Mutex::new(Core::new(run.options.clone(), run.now));
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    let first = run.model.topics["orders"].clone();
    run.model.make("orders", 2);
    // The disk begins to delete the copy of the first topic.
    let is_delete = |work: &Work| matches!(work, Work::DeleteTopic { .. });
    while !run
        .arrived
        .iter()
        .flat_map(|(_, works, _)| works)
        .any(is_delete)
    {
        run.work();
        run.ask(Node::Any);
        run.answer(Node::Any, false);
        run.now += 100;
    }
    run.arrived.clear();
    run.store.as_mut().unwrap().delete_topic("orders").unwrap();
    // Meanwhile a broker that lags shows it once more, and says its settings.
    let anew = run.model.topics.insert("orders".to_owned(), first);
    run.now += 100_000;
    for _ in 0..2 {
        run.ask(Node::Any);
        run.answer(Node::Any, false);
    }
    let is_topic = |work: &Work| matches!(work, Work::Topic { .. });
    assert!(
        run.arrived
            .iter()
            .flat_map(|(_, works, _)| works)
            .any(is_topic)
    );
    lock(&run.core).topic_deleted("orders", run.now);
    run.model.topics.insert("orders".to_owned(), anew.unwrap());
    append(&mut run, 0);
    for _ in 0..2 {
        run.now += 10_000;
        run.ask(Node::Any);
        run.answer(Node::Any, false);
    }
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
    assert_eq!(topic_id(&run, "orders-0"), run.model.topics["orders"].id);
    let report = lock(&run.core).report();
    assert!(report.is_complete, "{report:#?}");
}

#[test]
fn brokers_that_tell_ids_by_turns_do_not_hold_up_a_topic() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    append(&mut run, 0);
    let id = run.model.topics["orders"].id;
    let look = |run: &mut Run, id| {
        run.model.topics.get_mut("orders").unwrap().id = id;
        run.now += run.options.metadata_interval_ms;
        run.ask(Node::Any);
        run.answer(Node::Any, false);
    };
    let none = Uuid::from_bytes([0; 16]);
    // The first look has no id, and another broker tells it before the disk has made the topic.
    run.model.topics.get_mut("orders").unwrap().id = none;
    asks_for_settings(&mut run);
    look(&mut run, id);
    go_on(&mut run, 20_000, |_, _| true);
    append(&mut run, 0);
    // A partition more, that a look without an id shows first.
    let topic = run.model.topics.get_mut("orders").unwrap();
    let new = topic.partitions[1].clone();
    topic.partitions.push(new);
    append(&mut run, 2);
    look(&mut run, none);
    look(&mut run, id);
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
    assert_same(&run, 2);
    let report = lock(&run.core).report();
    assert!(report.is_complete, "{report:#?}");
}

#[test]
fn an_answer_for_a_deleted_topic_does_not_fit_a_partition_that_does_not_open() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    asks_for_settings(&mut run);
    let mut core = lock(&run.core);
    // A topic of this name was deleted, and its partitions had come so far.
    core.first_generation = 5;
    let ready = ReadyTopic {
        broken: vec![(0, "it does not open".to_owned())],
        ..ReadyTopic::default()
    };
    let id = run.model.topics["orders"].id;
    core.topic_ready("orders", id, ready, run.now);
    let generations = core.partitions.values().map(|each| each.generation);
    assert!(generations.min().is_some_and(|lowest| lowest >= 5));
}

/// What the directory has of group `readers`: partition, offset and topic id.
fn offsets(run: &Run) -> Vec<(i32, i64, Uuid)> {
    let log_dir = LogDir::open(&[&run.folder], &OpenOptions::default()).unwrap();
    let (groups, ..) = log_dir.groups(&GroupsOptions::default()).unwrap();
    let of = groups.into_iter().flat_map(|group| group.offsets);
    of.map(|it| (it.partition, it.offset, it.topic_id))
        .collect()
}

/// Both partitions of the topic are copied, and what a group committed in each.
fn copied_with_offsets(folder: &std::path::Path) -> Run {
    let mut run = once(folder);
    append(&mut run, 0);
    append(&mut run, 1);
    for number in 0..2 {
        commit(&mut run, number, 3);
    }
    assert!(finished(&mut run, 20_000).is_complete);
    run
}

#[test]
fn offsets_of_a_topic_whose_copy_was_moved_away_are_not_those_of_the_next_one() {
    for number in [None, Some(0)] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = copied_with_offsets(folder.path());
        let first = run.model.topics["orders"].id;
        assert_eq!(offsets(&run), [(0, 3, first), (1, 3, first)]);
        // The source deletes the topic with what groups have committed in it, and another one gets its name.
        run.model.make("orders", 2);
        run.model.commits.clear();
        append(&mut run, 0);
        append(&mut run, 1);
        let later = run.model.topics["orders"].id;
        if let Some(number) = number {
            commit(&mut run, number, 3);
        }
        run.store.take().unwrap().close().unwrap();
        for number in 0..2 {
            let name = format!("orders-{number}");
            std::fs::rename(run.folder.join(&name), folder.path().join(&name)).unwrap();
        }
        let opened = Store::open(&run.folder, &run.options, &OpenOptions::default());
        run.store = Some(opened.unwrap());
        again(&mut run);
        let report = finished(&mut run, 20_000);
        assert!(report.is_complete, "{report:#?}");
        assert_same(&run, 0);
        let wanted: Vec<_> = number
            .map(|number| (number, 3, later))
            .into_iter()
            .collect();
        assert_eq!(offsets(&run), wanted);
    }
}

#[test]
fn offsets_in_a_partition_whose_copy_was_moved_away_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = copied_with_offsets(folder.path());
    let id = run.model.topics["orders"].id;
    run.store.take().unwrap().close().unwrap();
    std::fs::rename(run.folder.join("orders-1"), folder.path().join("orders-1")).unwrap();
    let opened = Store::open(&run.folder, &run.options, &OpenOptions::default());
    run.store = Some(opened.unwrap());
    again(&mut run);
    // Its partitions are made, and nothing is fetched.
    go_on(&mut run, 10_000, |_, node| node == Node::Any);
    assert!(run.folder.join("orders-1").exists());
    assert_eq!(offsets(&run), [(0, 3, id)]);
    assert!(finished(&mut run, 20_000).is_complete);
    assert_eq!(offsets(&run), [(0, 3, id), (1, 3, id)]);
}
