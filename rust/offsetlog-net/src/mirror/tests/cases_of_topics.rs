//! Topics that are away, back, made anew, or grow while they are made.

use super::cases::{append, assert_same, go_on, told};
use super::{Node, Run, lock, log_bytes};
use crate::mirror::report::EventKind;
use offsetlog::format::Uuid;

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
    // A broker that tells no ids does not make it the one that was copied.
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

#[test]
fn a_partition_that_is_added_while_its_topic_is_made_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    // Topics, then their settings: the disk has the work, and takes its time.
    run.ask(Node::Any);
    run.answer(Node::Any, false);
    run.work();
    run.ask(Node::Any);
    run.answer(Node::Any, false);
    assert!(!run.arrived.is_empty());
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
