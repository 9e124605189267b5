//! Cases of brokers before Kafka 3.1, which are asked for records by name or for one group at a time.

use super::Run;
use super::cases::{append, go_on};
use crate::mirror::core::{Next, Node};
use crate::mirror::perform::lock;
use offsetlog::format::protocol::apis::{FETCH, LIST_GROUPS, OFFSET_FETCH};

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
