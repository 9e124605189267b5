//! Tests of leader changes: how soon a mirror follows them.

use super::cases::{append, assert_same, go_on, kept, told};
use super::{NODES, Run, lock, log_bytes};
use crate::mirror::core::{Asked, Core, Node};
use crate::mirror::partition::Need;
use crate::mirror::report::EventKind;
use crate::mirror::store::AppendOutcome;
use crate::mirror::work::Work;
use offsetlog::format::Uuid;
use offsetlog::format::protocol::apis::FETCH;
use std::sync::Mutex;

const HOUR_MS: i64 = 3_600_000;

/// A mirror that looks at topics and leaders by itself once an hour.
fn patient(folder: &std::path::Path) -> Run {
    let mut run = Run::new(folder, 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    run.options.metadata_interval_ms = HOUR_MS;
    run.core = Mutex::new(Core::new(run.options.clone(), run.now));
    append(&mut run, 0);
    append(&mut run, 1);
    go_on(&mut run, 10_000, |_, _| true);
    assert_same(&run, 0);
    run
}

#[test]
fn a_leader_that_is_back_is_followed_soon() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = patient(folder.path());
    // The only replica in sync is away for a while, then it leads again.
    let leader = run.model.partition_of("orders", 0).leader;
    run.model.partition_of("orders", 0).lead(-1);
    go_on(&mut run, 20_000, |_, _| true);
    let report = lock(&run.core).report();
    let problems = told(&report, EventKind::Problem);
    assert_eq!(problems, ["the source has no leader for it"]);
    run.model.partition_of("orders", 0).lead(leader);
    append(&mut run, 0);
    go_on(&mut run, 10_000, |_, _| true);
    assert_same(&run, 0);
}

#[test]
fn batches_that_a_leader_sent_before_it_died_are_appended() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = patient(folder.path());
    let end = |run: &Run| lock(&run.core).report().partitions[0].log_end_offset;
    let before = end(&run);
    append(&mut run, 0);
    let leader = Node::Broker(run.model.partition_of("orders", 0).leader);
    let waits = |run: &Run| {
        let mut all = run.arrived.iter().flat_map(|(_, works, _)| works);
        all.any(|work| matches!(work, Work::Append(_)))
    };
    while !waits(&run) {
        run.now += 100;
        run.ask(leader);
        run.answer(leader, false);
    }
    // They wait for the disk when a look shows that nobody leads.
    run.model.partition_of("orders", 0).lead(-1);
    run.now += HOUR_MS;
    run.ask(Node::Any);
    run.answer(Node::Any, false);
    while !run.arrived.is_empty() {
        run.work();
    }
    assert!(end(&run) > before);
}

#[test]
fn looks_that_bring_nothing_new_go_to_another_broker() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = patient(folder.path());
    // A broker that is cut off from the controller reports this.
    run.model.partition_of("orders", 0).lead(-1);
    let (mut looks, mut others) = (0, 0);
    for _ in 0..400 {
        run.now += 100;
        for node in NODES {
            run.ask(node);
            let request = run.asked.get(&node).filter(|_| node == Node::Any);
            if let Some(request) = request
                && matches!(request.asked, Asked::Metadata { .. })
            {
                looks += 1;
                others += usize::from(lock(&run.core).wants_another(&request.asked));
            }
            run.answer(node, false);
        }
        while !run.arrived.is_empty() {
            run.work();
        }
    }
    assert!(others > 0 && others < looks, "{others} of {looks}");
}

#[test]
fn a_cut_that_was_overtaken_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = patient(folder.path());
    let partition = run.model.partition_of("orders", 0);
    partition.log.pop();
    let leader = partition.leader;
    partition.lead(leader);
    run.model.settle();
    let mut overtaken = 0;
    for _ in 0..100 {
        run.now += 100;
        for node in NODES {
            run.ask(node);
            run.answer(node, false);
        }
        for (_, works, _) in &mut run.arrived {
            for work in works {
                // Something was asked anew before the disk came to it.
                if let Work::Cut { generation, .. } = work
                    && overtaken < 2
                {
                    *generation = generation.wrapping_sub(1);
                    overtaken += 1;
                }
            }
        }
        while !run.arrived.is_empty() {
            run.work();
        }
    }
    assert_eq!(overtaken, 2);
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
    assert_eq!(kept(&run, 0), 1);
}

/// Fetches records of partition 0 from its leader, which then waits for the disk. Returns the leader.
fn fetched(run: &mut Run) -> Node {
    let node = Node::Broker(run.model.partition_of("orders", 0).leader);
    let is_there = |run: &Run| {
        run.arrived.iter().any(|(from, works, _)| {
            let is_append = |work: &Work| matches!(work, Work::Append(_));
            *from == node && works.iter().any(is_append)
        })
    };
    for _ in 0..100 {
        run.now += 100;
        run.ask(node);
        run.answer(node, false);
        if is_there(run) {
            return node;
        }
        while !run.arrived.is_empty() {
            run.work();
        }
    }
    panic!("no records came");
}

#[test]
fn batches_that_wait_for_the_disk_while_their_leader_moves_are_not_lost() {
    for has_epochs in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = patient(folder.path());
        append(&mut run, 0);
        append(&mut run, 0);
        let old = fetched(&mut run);
        let partition = run.model.partition_of("orders", 0);
        partition.leader = 1 + partition.leader % 3;
        // A leader can move without a new epoch, as far as a look shows it.
        if has_epochs {
            let leader = partition.leader;
            partition.lead(leader);
        }
        let new = Node::Broker(partition.leader);
        run.now += HOUR_MS;
        run.ask(Node::Any);
        run.answer(Node::Any, false);
        run.work_of(Node::Any);
        for _ in 0..5 {
            run.now += 100;
            run.ask(new);
            run.answer(new, false);
            run.work_of(new);
        }
        run.work_of(old);
        assert_all_is_copied(&mut run);
    }
}

/// After a while the first partition is the source's, and nothing was in the way.
fn assert_all_is_copied(run: &mut Run) {
    go_on(run, 10_000, |_, _| true);
    assert_same(run, 0);
    let report = lock(&run.core).report();
    assert!(report.is_complete && !report.has_losses, "{report:#?}");
    assert!(told(&report, EventKind::Problem).is_empty(), "{report:#?}");
}

#[test]
fn a_leader_that_moves_during_an_append_is_asked_for_what_is_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = patient(folder.path());
    append(&mut run, 0);
    append(&mut run, 0);
    let old = fetched(&mut run);
    let first = run.arrived.iter().position(|(node, ..)| *node == old);
    let (_, works, bytes) = run.arrived.remove(first.unwrap()).unwrap();
    let mut done = Vec::new();
    for work in works {
        // On the disk, and not reported yet.
        if let Work::Append(append) = work {
            let records = &bytes[append.records.clone()];
            let appended = run.store.as_mut().unwrap().append(&append, records);
            done.push((append, appended.unwrap()));
        }
    }
    let partition = run.model.partition_of("orders", 0);
    let leader = 1 + partition.leader % 3;
    partition.lead(leader);
    run.now += HOUR_MS;
    run.ask(Node::Any);
    run.answer(Node::Any, false);
    run.work_of(Node::Any);
    run.ask(Node::Broker(leader));
    run.answer(Node::Broker(leader), false);
    for (append, appended) in done {
        let AppendOutcome::Appended(position, _) = appended else {
            panic!("{appended:?}");
        };
        lock(&run.core).appended(&append, position, run.now, &mut Vec::new());
    }
    // What was fetched twice is not refused.
    assert_all_is_copied(&mut run);
}

#[test]
fn a_batch_of_an_epoch_that_the_metadata_does_not_have_is_told_and_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = patient(folder.path());
    let leader = run.model.partition_of("orders", 0).leader;
    let (before, end) = {
        let partition = run.model.partition_of("orders", 0);
        (partition.epoch, partition.end())
    };
    // The leader knows its next epoch, and no broker's metadata does.
    run.model.partition_of("orders", 0).lead(leader);
    append(&mut run, 0);
    run.model.partition_of("orders", 0).epoch = before;
    go_on(&mut run, 60_000, |_, _| true);
    let report = lock(&run.core).report();
    assert_eq!(report.partitions[0].log_end_offset, end);
    assert!(!report.is_complete);
    let problems = told(&report, EventKind::Problem);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("a leader epoch above"), "{problems:?}");
    run.model.partition_of("orders", 0).epoch = before + 1;
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
    assert!(lock(&run.core).report().is_complete);
}

/// A leader that was elected uncleanly ends below the copy; its answer waits for a look.
fn diverged(run: &mut Run) {
    let partition = run.model.partition_of("orders", 0);
    partition.log.pop();
    let leader = partition.leader;
    partition.lead(leader);
    run.model.settle();
    let waits = |run: &Run| {
        let core = lock(&run.core);
        let mut needs = core.partitions.values().map(|each| each.need);
        needs.any(|need| matches!(need, Need::Confirm { .. }))
    };
    for _ in 0..100 {
        if waits(run) {
            return;
        }
        go_on(run, 0, |_, _| true);
    }
    panic!("no divergence was found");
}

#[test]
fn a_cut_is_confirmed_by_no_look_that_did_not_show_the_topic() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = patient(folder.path());
    let before = log_bytes(&run.folder.join("orders-0"));
    diverged(&mut run);
    // The looks that come then do not show it: it may be another one of its name by now.
    run.model.hidden.insert("orders".to_owned());
    run.model.make("other", 1);
    go_on(&mut run, 1000, |_, _| true);
    let has_cuts = |run: &Run| !told(&lock(&run.core).report(), EventKind::Cut).is_empty();
    assert!(!has_cuts(&run));
    assert!(log_bytes(&run.folder.join("orders-0")) == before);
    run.model.hidden.clear();
    go_on(&mut run, 20_000, |_, _| true);
    let report = lock(&run.core).report();
    assert!(has_cuts(&run), "{report:#?}");
    assert!(told(&report, EventKind::DeletedTopic).is_empty());
    assert_same(&run, 0);
    assert_eq!(kept(&run, 0), 1);
}

#[test]
fn a_cut_is_confirmed_by_no_look_without_the_topics_id() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = patient(folder.path());
    run.model.versions.insert(FETCH.key, (4, 12));
    let before = log_bytes(&run.folder.join("orders-0"));
    diverged(&mut run);
    // While brokers are upgraded, some return no ids.
    let id = run.model.topics["orders"].id;
    run.model.topics.get_mut("orders").unwrap().id = Uuid::from_bytes([0; 16]);
    go_on(&mut run, 20_000, |_, _| true);
    assert!(log_bytes(&run.folder.join("orders-0")) == before);
    run.model.topics.get_mut("orders").unwrap().id = id;
    go_on(&mut run, HOUR_MS, |_, _| true);
    assert_same(&run, 0);
    assert_eq!(kept(&run, 0), 1);
}

#[test]
fn looks_that_a_new_leader_hurries_do_not_make_a_topic_deleted_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = patient(folder.path());
    let leader = run.model.partition_of("orders", 0).leader;
    run.model.partition_of("orders", 0).lead(leader);
    // A broker that has just started does not show the topic, and each fetch asks it again.
    run.model.hidden.insert("orders".to_owned());
    go_on(&mut run, 1500, |_, _| true);
    run.model.hidden.clear();
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
    let report = lock(&run.core).report();
    assert!(told(&report, EventKind::DeletedTopic).is_empty());
}

#[test]
fn what_an_unclean_election_cut_below_the_sources_start_stays_and_the_gap_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = patient(folder.path());
    let before = log_bytes(&run.folder.join("orders-0"));
    let partition = run.model.partition_of("orders", 0);
    partition.log.pop();
    let leader = partition.leader;
    partition.lead(leader);
    append(&mut run, 0);
    append(&mut run, 0);
    // All that could tell what the leader had there is deleted, its epochs too.
    let partition = run.model.partition_of("orders", 0);
    partition.start = partition.end();
    partition.epochs = vec![(partition.epoch, partition.start)];
    let gone = partition.log.len();
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    let log = &run.model.topics["orders"].partitions[0].log[gone..];
    let behind: Vec<u8> = log.iter().flat_map(|batch| batch.bytes.clone()).collect();
    assert!(log_bytes(&run.folder.join("orders-0")) == [before, behind].concat());
    let report = lock(&run.core).report();
    let lost = told(&report, EventKind::Lost);
    assert_eq!(lost.len(), 1, "{report:#?}");
    assert!(lost[0].contains("goes on behind them"), "{lost:?}");
}

/// An unclean leader wrote all of its log anew, and deleted up to an offset inside its first batch. By its epochs, which begin there by then,
/// the copy is cut inside its own first batch: nothing is left of it.
#[test]
fn a_copy_of_which_a_cut_leaves_no_batch_goes_on_inside_the_leaders_first() {
    for follow_deletes in [false, true] {
        // Of a store that has one partition open at a time.
        for seed in [5, 8] {
            let folder = tempfile::tempdir().unwrap();
            let mut run = Run::new(folder.path(), seed, false);
            run.model.topics.retain(|name, _| name == "orders");
            run.options.follow_deletes = follow_deletes;
            run.core = Mutex::new(Core::new(run.options.clone(), run.now));
            run.model.append_one("orders", 0, (10, 2), false, false);
            append(&mut run, 1);
            go_on(&mut run, 10_000, |_, _| true);
            assert_same(&run, 0);
            let partition = run.model.partition_of("orders", 0);
            let leader = partition.leader;
            partition.log.clear();
            partition.lead(leader);
            partition.epochs = vec![(partition.epoch, 1)];
            partition.high_watermark = 0;
            partition.told = 0;
            partition.start = 1;
            run.model.append_one("orders", 0, (10, 3), false, false);
            append(&mut run, 1);
            go_on(&mut run, 30_000, |_, _| true);
            assert_same(&run, 0);
            assert_eq!(kept(&run, 0), 1);
            let report = lock(&run.core).report();
            assert!(told(&report, EventKind::Problem).is_empty(), "{report:#?}");
            let of_orders = report.partitions.iter().find(|each| each.partition == 0);
            let of_orders = of_orders.unwrap();
            assert_eq!(
                (of_orders.log_start_offset, of_orders.log_end_offset),
                (1, 3)
            );
        }
    }
}
