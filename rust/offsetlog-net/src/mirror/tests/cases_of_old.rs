//! Cases of brokers before Kafka 3.1, which are asked for records by name or for one group at a time.

use super::cases::{append, assert_same, finished, go_on, kept, once, told};
use super::{Run, batches, log_bytes};
use crate::mirror::core::{Next, Node};
use crate::mirror::perform::lock;
use crate::mirror::report::EventKind;
use offsetlog::format::protocol::apis::{
    DESCRIBE_CONFIGS, FETCH, LIST_GROUPS, OFFSET_FETCH, OFFSET_FOR_LEADER_EPOCH,
};

/// Ids in the metadata and none in a fetch.
fn by_name(run: &mut Run) {
    run.model.topics.retain(|name, _| name == "orders");
    run.model.versions.insert(FETCH.key, (4, 12));
}

/// The topic is recreated, with the same leaders and longer logs.
fn make_anew(run: &mut Run) {
    let leaders = run.model.topics["orders"].partitions.clone();
    run.model.make("orders", leaders.len());
    for (number, old) in leaders.iter().enumerate() {
        run.model.partition_of("orders", number).leader = old.leader;
        while run.model.topics["orders"].partitions[number].end() <= old.end() + 3 {
            // Of one record each, so that one begins where the copy ends.
            run.model
                .append_one("orders", number, (10, 1), false, false);
        }
    }
    run.model.settle();
}

#[test]
fn what_came_by_name_from_a_topic_made_anew_is_cut_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    by_name(&mut run);
    append(&mut run, 0);
    append(&mut run, 1);
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
    let before = log_bytes(&run.folder.join("orders-0"));
    make_anew(&mut run);
    // No look in between.
    go_on(&mut run, 3000, |_, node| node != Node::Any);
    let mixed = log_bytes(&run.folder.join("orders-0"));
    let foreign = batches(&mixed).len() - batches(&before).len();
    assert!(foreign > 0);
    go_on(&mut run, 20_000, |_, _| true);
    let report = lock(&run.core).report();
    assert_eq!(told(&report, EventKind::Recreated).len(), 1, "{report:#?}");
    assert!(!report.is_complete && report.has_losses);
    assert!(log_bytes(&run.folder.join("orders-0")) == before);
    assert_eq!(kept(&run, 0), foreign);
    assert!(!told(&report, EventKind::Cut).is_empty(), "{report:#?}");
}

#[test]
fn once_ends_with_a_look_at_what_came_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    by_name(&mut run);
    append(&mut run, 0);
    append(&mut run, 1);
    assert!(finished(&mut run, 20_000).is_complete);
    let before = log_bytes(&run.folder.join("orders-0"));
    append(&mut run, 0);
    super::cases::again(&mut run);
    // Recreated after the first look and before the records are fetched.
    assert!(!go_on(&mut run, 400, |_, node| node == Node::Any));
    make_anew(&mut run);
    assert!(!go_on(&mut run, 3000, |_, node| node != Node::Any));
    assert!(log_bytes(&run.folder.join("orders-0")).len() > before.len());
    let report = finished(&mut run, 20_000);
    assert_eq!(told(&report, EventKind::Recreated).len(), 1, "{report:#?}");
    assert!(log_bytes(&run.folder.join("orders-0")) == before);
}

#[test]
fn many_groups_of_a_broker_do_not_hold_up_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, true);
    run.model.topics.retain(|name, _| name == "orders");
    for partition in &mut run.model.topics.get_mut("orders").unwrap().partitions {
        partition.leader = 1;
    }
    go_on(&mut run, 3000, |_, _| true);
    for number in 0..2000 {
        let key = (format!("group-{number}"), "orders".to_owned(), 0);
        run.model.commits.insert(key, 0);
    }
    append(&mut run, 0);
    run.now += run.options.groups_interval_ms;
    let node = Node::Broker(1);
    let (mut asked, mut fetches, mut ended_at) = (0, 0, None);
    while asked < 2001 {
        let next = lock(&run.core).next(node, &run.model.versions, run.now);
        let Next::Request(request) = next else {
            run.now += 10;
            continue;
        };
        fetches += usize::from(request.api.key == FETCH.key);
        asked += usize::from([LIST_GROUPS.key, OFFSET_FETCH.key].contains(&request.api.key));
        run.asked.insert(node, *request);
        run.now += 10;
        run.answer(node, false);
        while !run.arrived.is_empty() {
            run.work();
        }
        if asked == 100 {
            assert!(fetches > 0, "nothing but groups is asked for");
        }
        ended_at = Some(run.now);
    }
    // The pause before the next round counts from its end.
    let ended_at = ended_at.unwrap();
    loop {
        let next = lock(&run.core).next(node, &run.model.versions, run.now);
        if let Next::Request(request) = next {
            if request.api.key == LIST_GROUPS.key {
                break;
            }
            run.asked.insert(node, *request);
            run.answer(node, false);
            while !run.arrived.is_empty() {
                run.work();
            }
        }
        run.now += 10;
    }
    assert!(run.now - ended_at >= run.options.groups_interval_ms);
}

#[test]
fn brokers_that_compare_epochs_in_no_way_of_ours_are_copied_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(folder.path(), 5, false);
    by_name(&mut run);
    // Kafka 2.0 and before.
    run.model.versions.insert(FETCH.key, (4, 8));
    run.model
        .versions
        .insert(OFFSET_FOR_LEADER_EPOCH.key, (0, 1));
    for is_killed in [false, false, true] {
        if is_killed {
            run.kill();
        }
        append(&mut run, 0);
        append(&mut run, 1);
        go_on(&mut run, 20_000, |_, _| true);
        assert_same(&run, 0);
        assert_same(&run, 1);
    }
    let report = lock(&run.core).report();
    assert!(report.is_complete && !report.has_losses, "{report:#?}");
}

#[test]
fn brokers_without_a_fetch_of_ours_are_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    // Kafka 0.10.2.
    run.model.versions.insert(FETCH.key, (0, 3));
    append(&mut run, 0);
    let report = finished(&mut run, 20_000);
    assert!(!report.is_complete);
    let problems = told(&report, EventKind::Problem);
    for id in [1, 2, 3] {
        let found = problems
            .iter()
            .filter(|said| said.starts_with(&format!("broker {id} is older than Kafka 0.11")));
        assert!(found.count() <= 1, "{problems:#?}");
    }
    assert!(
        problems
            .iter()
            .any(|said| said.contains("older than Kafka 0.11")),
        "{problems:#?}"
    );
    assert!(
        report.partitions.iter().all(|each| each
            .problem
            .as_ref()
            .is_some_and(|problem| problem.contains("0.11"))),
        "{report:#?}"
    );
    // It is replaced by a newer one.
    run.model.versions.insert(FETCH.key, (4, 17));
    super::cases::again(&mut run);
    let report = finished(&mut run, 20_000);
    assert!(report.is_complete, "{report:#?}");
    assert_same(&run, 0);
}

#[test]
fn brokers_that_do_not_tell_which_settings_are_a_topics_own_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    // Kafka 1.0.
    run.model.versions.insert(DESCRIBE_CONFIGS.key, (0, 0));
    append(&mut run, 0);
    let report = finished(&mut run, 20_000);
    assert!(report.is_complete, "{report:#?}");
    assert_same(&run, 0);
    let warnings = told(&report, EventKind::Warning);
    assert_eq!(
        warnings,
        ["the settings of topic orders are not copied: the source is older than Kafka 1.1"]
    );
}
