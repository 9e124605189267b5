//! Tests that follow the source's deletes: what is deleted, when, and what stays.

use super::cases::{append, assert_same, commit, finished, go_on, told};
use super::{NODES, Run, lock, log_bytes};
use crate::mirror::core::{Asked, Core, Node, Request};
use crate::mirror::report::EventKind;
use offsetlog::format::protocol::apis::OFFSET_FETCH;
use offsetlog::{GroupsOptions, LogDir, OpenOptions};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

const MINUTE_MS: i64 = 60_000;

fn following(folder: &Path) -> Run {
    let mut run = Run::new(folder, 5, false);
    run.model.topics.retain(|name, _| name == "orders");
    run.model.make("kept", 1);
    run.model.make("other", 1);
    run.model.deletes = true;
    run.options.follow_deletes = true;
    run.core = Mutex::new(Core::new(run.options.clone(), run.now));
    run
}

fn topics(run: &Run) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = run.store.as_ref().unwrap().topics().into_iter().collect();
    names.remove("__consumer_offsets");
    names
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|&name| name.to_owned()).collect()
}

fn committed(run: &mut Run) -> Vec<(String, i32, i64)> {
    run.store.take().unwrap().close().unwrap();
    let log_dir = LogDir::open(&[&run.folder], &OpenOptions::default()).unwrap();
    let (groups, ..) = log_dir.groups(&GroupsOptions::default()).unwrap();
    let offsets = groups.into_iter().flat_map(|group| group.offsets);
    offsets
        .map(|offset| (offset.topic, offset.partition, offset.offset))
        .collect()
}

#[test]
fn a_deleted_topic_is_deleted_when_it_has_been_away_for_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = following(folder.path());
    append(&mut run, 0);
    commit(&mut run, 0, 1);
    let key = ("readers".to_owned(), "other".to_owned(), 0);
    run.model.commits.insert(key, 0);
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
    run.model.delete("orders");
    go_on(&mut run, MINUTE_MS - 5000, |_, _| true);
    assert_eq!(topics(&run), names(&["kept", "orders", "other"]));
    go_on(&mut run, 15_000, |_, _| true);
    assert_eq!(topics(&run), names(&["kept", "other"]));
    let report = lock(&run.core).report();
    assert!(report.is_complete && !report.has_losses, "{report:#?}");
    let said = told(&report, EventKind::DeletedTopic);
    assert_eq!(
        said,
        ["the source deleted topic orders; it is deleted here too"]
    );
    // The groups' offsets in it were deleted too, as a coordinator does.
    assert_eq!(committed(&mut run), [("other".to_owned(), 0, 0)]);
}

#[test]
fn a_topic_that_is_away_for_less_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = following(folder.path());
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    for _ in 0..3 {
        run.model.hidden.insert("orders".to_owned());
        go_on(&mut run, MINUTE_MS - 10_000, |_, _| true);
        run.model.hidden.clear();
        go_on(&mut run, 20_000, |_, _| true);
    }
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
    let report = lock(&run.core).report();
    assert!(told(&report, EventKind::DeletedTopic).is_empty());
    assert!(report.is_complete, "{report:#?}");
}

#[test]
fn a_topic_that_was_deleted_between_two_calls_is_deleted_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = following(folder.path());
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    run.model.delete("orders");
    run.options.once = true;
    run.kill();
    let began = run.now;
    let report = finished(&mut run, 2 * MINUTE_MS);
    assert!(run.now - began >= MINUTE_MS);
    assert!(report.is_complete && !report.has_losses, "{report:#?}");
    assert_eq!(topics(&run), names(&["kept", "other"]));
}

#[test]
fn once_copies_what_was_made_anew_between_two_calls() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = following(folder.path());
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    run.model.make("orders", 1);
    append(&mut run, 0);
    commit(&mut run, 0, 2);
    run.model.delete("other");
    run.options.once = true;
    run.kill();
    let report = finished(&mut run, 2 * MINUTE_MS);
    assert!(report.is_complete && !report.has_losses, "{report:#?}");
    assert_eq!(topics(&run), names(&["kept", "orders"]));
    assert_same(&run, 0);
    assert_eq!(committed(&mut run), [("orders".to_owned(), 0, 2)]);
}

/// A source whose disks were wiped, with the same cluster id, and the topics that its applications recreate.
fn wiped(run: &mut Run, made: &[&str]) {
    for name in ["kept", "orders", "other"] {
        run.model.delete(name);
    }
    for name in made {
        run.model.make(name, 1);
    }
}

#[test]
fn a_source_that_shows_nothing_that_was_copied_is_not_followed() {
    for made in [&[][..], &["fresh"], &["kept", "fresh"]] {
        for is_named in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let mut run = following(folder.path());
            if is_named {
                let meant = ["kept", "orders", "other", "fresh"];
                run.options.topics = meant.map(str::to_owned).to_vec();
                run.core = Mutex::new(Core::new(run.options.clone(), run.now));
                run.model.make("fresh", 1);
            }
            append(&mut run, 0);
            go_on(&mut run, 20_000, |_, _| true);
            let before = log_bytes(&run.folder.join("orders-0"));
            if is_named {
                run.model.delete("fresh");
            }
            wiped(&mut run, made);
            go_on(&mut run, 4 * MINUTE_MS, |_, _| true);
            let there = topics(&run);
            assert!(
                names(&["kept", "orders", "other"]).is_subset(&there),
                "{made:?} {is_named} {there:?}"
            );
            assert_eq!(log_bytes(&run.folder.join("orders-0")), before);
            let report = lock(&run.core).report();
            let said = told(&report, EventKind::DeletedTopic);
            assert!(said.len() >= 2 && report.has_losses, "{said:?}");
            assert!(
                said.iter().all(|line| line.contains("it stays here")),
                "{said:?}"
            );
        }
    }
}

#[test]
fn a_wiped_source_is_not_followed_by_the_next_call_either() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = following(folder.path());
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    wiped(&mut run, &["fresh"]);
    run.options.once = true;
    run.kill();
    let report = finished(&mut run, 3 * MINUTE_MS);
    assert!(report.has_losses, "{report:#?}");
    assert_eq!(topics(&run), names(&["fresh", "kept", "orders", "other"]));
}

#[test]
fn looks_before_and_after_an_outage_do_not_make_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = following(folder.path());
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    run.model.hidden.insert("orders".to_owned());
    go_on(&mut run, 6000, |_, _| true);
    // Nobody answers; then a broker that has just started does.
    go_on(&mut run, 2 * MINUTE_MS, |_, _| false);
    go_on(&mut run, MINUTE_MS / 2, |_, _| true);
    run.model.hidden.clear();
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
    let report = lock(&run.core).report();
    assert!(told(&report, EventKind::DeletedTopic).is_empty());
    assert!(report.is_complete, "{report:#?}");
}

#[test]
fn a_topic_that_was_made_anew_is_deleted_and_copied_anew() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = following(folder.path());
    append(&mut run, 0);
    commit(&mut run, 0, 2);
    go_on(&mut run, 20_000, |_, _| true);
    run.model.make("orders", 1);
    go_on(&mut run, 3000, |_, _| true);
    append(&mut run, 0);
    commit(&mut run, 0, 1);
    go_on(&mut run, MINUTE_MS - 10_000, |_, _| true);
    let report = lock(&run.core).report();
    assert!(!report.is_complete, "{report:#?}");
    go_on(&mut run, 40_000, |_, _| true);
    assert_same(&run, 0);
    let report = lock(&run.core).report();
    assert!(report.is_complete && !report.has_losses, "{report:#?}");
    assert_eq!(told(&report, EventKind::Recreated).len(), 1);
    let said = told(&report, EventKind::DeletedTopic);
    assert_eq!(
        said,
        ["topic orders was made anew at the source; the copy of the old one is deleted"]
    );
    assert_eq!(committed(&mut run), [("orders".to_owned(), 0, 1)]);
}

#[test]
fn a_broker_that_lags_does_not_have_the_newer_topic_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = following(folder.path());
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    let newer = run.model.topics["orders"].clone();
    let gone = run.model.gone.len();
    run.model.make("orders", 2);
    go_on(&mut run, 30_000, |_, _| true);
    run.model.topics.insert("orders".to_owned(), newer);
    run.model.gone.truncate(gone);
    go_on(&mut run, 20_000, |_, _| true);
    append(&mut run, 0);
    go_on(&mut run, MINUTE_MS, |_, _| true);
    assert_same(&run, 0);
    let report = lock(&run.core).report();
    assert!(report.is_complete, "{report:#?}");
}

#[test]
fn an_answer_for_the_deleted_topic_is_not_taken_for_the_one_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = following(folder.path());
    go_on(&mut run, 20_000, |_, _| true);
    append(&mut run, 0);
    // All brokers are asked for records, and one takes its time.
    let asked = loop {
        let leader = run.model.topics["orders"].partitions[0].leader;
        run.ask(Node::Broker(leader));
        if let Some(asked) = run.asked.remove(&Node::Broker(leader))
            && matches!(asked.asked, Asked::Fetch(_))
        {
            break (leader, asked);
        }
        go_on(&mut run, 100, |_, _| true);
    };
    let late = run.model.answer(Node::Broker(asked.0), &asked.1);
    run.model.make("orders", 2);
    go_on(&mut run, 2 * MINUTE_MS, |_, node| {
        node != Node::Broker(asked.0)
    });
    let known = (asked.1.api, asked.1.version);
    let works = lock(&run.core).answered(
        Node::Broker(asked.0),
        known,
        &asked.1.asked,
        &late,
        0,
        run.now,
    );
    if let Ok(works) = works {
        run.arrived.push_back((Node::Any, works, late));
        run.work();
    }
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    assert_same(&run, 0);
}

/// Goes on for ten seconds in which nobody tells the settings of topics, so that nothing of them gets onto the disk.
fn go_on_without_settings(run: &mut Run) {
    for _ in 0..100 {
        for node in NODES {
            run.ask(node);
            match run.asked.remove(&node) {
                Some(Request { asked, .. }) if matches!(asked, Asked::Configs(_)) => {
                    lock(&run.core).failed(node, Some(&asked), "cut", run.now);
                }
                asked => run.asked.extend(asked.map(|asked| (node, asked))),
            }
            run.answer(node, false);
        }
        while !run.arrived.is_empty() {
            run.work();
        }
        run.now += 100;
    }
}

#[test]
fn offsets_of_a_topic_that_was_made_anew_before_it_was_copied_are_not_the_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = following(folder.path());
    commit(&mut run, 0, 0);
    go_on_without_settings(&mut run);
    assert_eq!(topics(&run), names(&[]));
    run.model.make("orders", 2);
    go_on_without_settings(&mut run);
    assert_eq!(topics(&run), names(&[]));
    go_on(&mut run, 20_000, |_, _| true);
    assert_eq!(topics(&run), names(&["kept", "orders", "other"]));
    assert_same(&run, 0);
    assert_eq!(committed(&mut run), []);
}

/// Offsets of a topic that no look has shown may be of one that is made anew before the first one does.
#[test]
fn offsets_told_before_a_topic_was_shown_are_asked_for_again() {
    for is_made_anew in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = following(folder.path());
        run.model.hidden.insert("orders".to_owned());
        commit(&mut run, 0, 0);
        go_on(&mut run, 20_000, |_, _| true);
        assert_eq!(topics(&run), names(&["kept", "other"]));
        if is_made_anew {
            run.model.make("orders", 2);
        }
        run.model.hidden.clear();
        go_on(&mut run, 20_000, |_, _| true);
        assert_eq!(topics(&run), names(&["kept", "orders", "other"]));
        let wanted: &[_] = if is_made_anew {
            &[]
        } else {
            &[("orders".to_owned(), 0, 0)]
        };
        assert_eq!(committed(&mut run), wanted);
    }
}

/// However many groups are asked for at once, and whenever the first look shows the topic meanwhile.
#[test]
fn once_stores_each_offset_though_a_topic_is_first_shown_meanwhile() {
    for newest in [7, 9] {
        for step in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let mut run = following(folder.path());
            run.options.once = true;
            run.core = Mutex::new(Core::new(run.options.clone(), run.now));
            run.model.versions.insert(OFFSET_FETCH.key, (1, newest));
            run.model.hidden.insert("orders".to_owned());
            for group in 0..60 {
                for topic in ["kept", "orders"] {
                    let key = (format!("group-{group:02}"), topic.to_owned(), 0);
                    run.model.commits.insert(key, 0);
                }
            }
            for _ in 0..step {
                go_on(&mut run, 0, |_, _| true);
            }
            run.model.hidden.clear();
            go_on(&mut run, 60_000, |_, _| true);
            // It may have ended before the topic was shown.
            let is_copied = topics(&run).contains("orders");
            assert!(is_copied || step > 2, "{newest}, {step}");
            let found = committed(&mut run);
            let of = |name: &str| found.iter().filter(|(topic, ..)| topic == name).count();
            let of_orders = if is_copied { 60 } else { 0 };
            assert_eq!(
                (of("kept"), of("orders")),
                (60, of_orders),
                "{newest}, {step}"
            );
        }
    }
}

#[test]
fn records_that_the_source_deleted_are_deleted_and_their_segments_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = following(folder.path());
    let config = &mut run.model.topics.get_mut("orders").unwrap().config;
    config.insert("segment.bytes".to_owned(), (1 << 20).to_string());
    config.insert("retention.ms".to_owned(), "1".to_owned());
    for _ in 0..12 {
        run.model
            .append_one("orders", 0, (300_000, 2), false, false);
    }
    run.model.settle();
    go_on(&mut run, 20_000, |_, _| true);
    let logs = |run: &Run| {
        let files = super::files(&run.folder.join("orders-0")).into_iter();
        files.filter(|(_, name)| name.ends_with(".log")).count()
    };
    let before = logs(&run);
    assert!(before > 5);
    let partition = run.model.partition_of("orders", 0);
    partition.start = partition.log[partition.log.len() / 2].base;
    let start = partition.start;
    go_on(&mut run, 10_000, |_, _| true);
    let report = lock(&run.core).report();
    let of_orders = report.partitions.iter().find(|each| each.topic == "orders");
    assert_eq!(of_orders.unwrap().log_start_offset, start);
    // The segments below the start are deleted, and none for their age.
    assert!(logs(&run) < before && logs(&run) > 2);
    assert!(report.is_complete && !report.has_losses, "{report:#?}");
    let said = told(&report, EventKind::DeletedRecords);
    assert!(said[0].ends_with("they are deleted here too"), "{said:?}");
    run.store.take().unwrap().close().unwrap();
    let log_dir = LogDir::open(&[&run.folder], &OpenOptions::default()).unwrap();
    let log = log_dir.log("orders", 0).unwrap();
    assert_eq!(log.log_start_offset().unwrap(), start);
    let first = log.batches(None, None).unwrap().next().unwrap().unwrap();
    assert!(first.base_offset <= start && first.last_offset >= start);
}

#[test]
fn records_of_a_source_that_is_empty_by_now_are_deleted_though_some_were_not_copied() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = following(folder.path());
    append(&mut run, 0);
    go_on(&mut run, 20_000, |_, _| true);
    // More comes, and all of it is deleted before it is fetched.
    append(&mut run, 0);
    let partition = run.model.partition_of("orders", 0);
    partition.start = partition.end();
    partition.epochs = vec![(partition.epoch, partition.start)];
    let start = partition.start;
    go_on(&mut run, 20_000, |_, _| true);
    let report = lock(&run.core).report();
    let of_orders = report.partitions.iter().find(|each| each.topic == "orders");
    let (first, end) = of_orders
        .map(|each| (each.log_start_offset, each.log_end_offset))
        .unwrap();
    assert!(first == end && end < start, "{first} to {end}");
    assert_eq!(told(&report, EventKind::Lost).len(), 1);
    let said = told(&report, EventKind::DeletedRecords);
    assert!(said[0].ends_with("they are deleted here too"), "{said:?}");
    // Later records have its offsets, even after a kill.
    for is_killed in [false, true] {
        if is_killed {
            run.kill();
        }
        append(&mut run, 0);
        go_on(&mut run, 20_000, |_, _| true);
        let report = lock(&run.core).report();
        let of_orders = report.partitions.iter().find(|each| each.topic == "orders");
        assert_eq!(of_orders.unwrap().log_start_offset, start, "{is_killed}");
    }
    let end = run.model.topics["orders"].partitions[0].end();
    run.store.take().unwrap().close().unwrap();
    let log_dir = LogDir::open(&[&run.folder], &OpenOptions::default()).unwrap();
    let log = log_dir.log("orders", 0).unwrap();
    let first = log.batches(None, None).unwrap().next().unwrap().unwrap();
    assert_eq!(
        (first.base_offset, log.log_start_offset().unwrap()),
        (start, start)
    );
    assert_eq!(log.log_end_offset().unwrap(), end);
}
