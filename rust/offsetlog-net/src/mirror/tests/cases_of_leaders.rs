//! Leaders that go and come: how soon a mirror follows them.

use super::cases::{append, assert_same, go_on, told};
use super::{Run, lock};
use crate::mirror::core::Core;
use crate::mirror::report::EventKind;
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
