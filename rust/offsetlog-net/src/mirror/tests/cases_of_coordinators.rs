//! Cases of brokers that do not coordinate the groups of the partitions that they lead, or not yet: they list none, without an error.

use super::Run;
use super::cases::{again, append, finished, go_on, told};
use super::coordination::Coordination;
use crate::mirror::core::Node;
use crate::mirror::perform::lock;
use crate::mirror::report::EventKind;
use offsetlog::{GroupsOptions, LogDir, OpenOptions};
use std::collections::BTreeSet;
use std::path::Path;

const GROUPS: usize = 12;

/// A cluster with groups in each of four partitions, led by brokers 1 and 2, of which nobody coordinates anything yet.
fn started(folder: &Path, is_old: bool) -> Run {
    let mut run = Run::new(folder, 5, is_old);
    run.model.topics.retain(|name, _| name == "orders");
    append(&mut run, 0);
    let coordination = Coordination {
        leaders: vec![Some(1), Some(2), Some(1), Some(2)],
        active: BTreeSet::new(),
    };
    for number in 0..GROUPS {
        let key = (format!("group-{number}"), "orders".to_owned(), 0);
        run.model.commits.insert(key, 3);
    }
    let of: BTreeSet<usize> = names().map(|group| coordination.of(&group)).collect();
    assert_eq!(of.len(), 4);
    run.model.coordination = Some(coordination);
    again(&mut run);
    run
}

fn names() -> impl Iterator<Item = String> {
    (0..GROUPS).map(|number| format!("group-{number}"))
}

fn coordination(run: &mut Run) -> &mut Coordination {
    run.model.coordination.as_mut().unwrap()
}

/// Groups whose offsets are in the copy.
fn stored(run: &mut Run) -> BTreeSet<String> {
    run.store.take().unwrap().close().unwrap();
    let log_dir = LogDir::open(&[&run.folder], &OpenOptions::default()).unwrap();
    let (groups, ..) = log_dir.groups(&GroupsOptions::without_lag()).unwrap();
    groups.into_iter().map(|group| group.group_id).collect()
}

#[test]
fn once_waits_for_coordinators_that_have_not_come() {
    for is_old in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = started(folder.path(), is_old);
        run.options.topics = vec!["orders".to_owned()];
        again(&mut run);
        assert!(!go_on(&mut run, 3000, |_, _| true), "{is_old}");
        // One after the other.
        for number in 0..4 {
            assert!(!go_on(&mut run, 1000, |_, _| true), "{is_old}");
            coordination(&mut run).active.insert(number);
        }
        let report = finished(&mut run, 30_000);
        assert!(report.is_complete, "{is_old}: {report:#?}");
        assert_eq!(stored(&mut run), names().collect(), "{is_old}");
    }
}

#[test]
fn once_waits_for_their_leaders() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = started(folder.path(), false);
    let known = coordination(&mut run);
    known.active.extend([0, 1, 2, 3]);
    known.leaders[3] = None;
    assert!(!go_on(&mut run, 5000, |_, _| true));
    coordination(&mut run).leaders[3] = Some(3);
    let report = finished(&mut run, 30_000);
    assert!(report.is_complete, "{report:#?}");
    assert_eq!(stored(&mut run), names().collect());
}

#[test]
fn a_leader_that_never_comes_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = started(folder.path(), false);
    let known = coordination(&mut run);
    known.active.extend([0, 1, 2, 3]);
    known.leaders[3] = None;
    let here: BTreeSet<String> = names().filter(|group| known.of(group) != 3).collect();
    // A quarter of what ends a mirror in which nothing moves.
    assert!(!go_on(&mut run, 25_000, |_, _| true));
    let report = finished(&mut run, 10_000);
    assert!(!report.is_complete, "{report:#?}");
    let problems = told(&report, EventKind::Problem);
    assert!(
        problems
            .iter()
            .any(|each| each.starts_with("1 partition of __consumer_offsets without a leader")),
        "{problems:?}"
    );
    assert_eq!(stored(&mut run), here);
}

#[test]
fn who_refuses_to_the_end_is_asked_for_what_it_has() {
    for is_old in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = started(folder.path(), is_old);
        let known = coordination(&mut run);
        // One that cannot be loaded.
        known.active.extend([0, 1, 2]);
        let here: BTreeSet<String> = names().filter(|group| known.of(group) != 3).collect();
        let report = finished(&mut run, 100_000);
        assert!(!report.is_complete, "{is_old}: {report:#?}");
        let problems = told(&report, EventKind::Problem);
        assert!(
            problems
                .iter()
                .any(|each| each.starts_with("broker 2 does not coordinate all that it leads")),
            "{is_old}: {problems:?}"
        );
        assert_eq!(stored(&mut run), here, "{is_old}");
    }
}

/// The principal may not see it any more.
#[test]
fn a_topic_that_is_shown_no_more_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = started(folder.path(), false);
    assert!(!go_on(&mut run, 3000, |_, _| true));
    run.model.coordination = None;
    let report = finished(&mut run, 30_000);
    assert!(report.is_complete, "{report:#?}");
    assert_eq!(stored(&mut run), names().collect());
}

/// Broker 1 has listed its groups, and takes over those of broker 2 before that is asked.
#[test]
fn groups_that_move_between_two_answers_are_not_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = started(folder.path(), false);
    coordination(&mut run).active.extend([0, 1, 2, 3]);
    assert!(!go_on(&mut run, 3000, |_, node| node != Node::Broker(2)));
    let known = coordination(&mut run);
    for leader in &mut known.leaders {
        *leader = Some(1);
    }
    let report = finished(&mut run, 30_000);
    assert!(report.is_complete, "{report:#?}");
    assert_eq!(stored(&mut run), names().collect());
    assert!(lock(&run.core).report().is_complete);
}
