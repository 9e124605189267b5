//! Tests of what a mirror reports: whether it is complete, what is lost, and what it counts.

use super::cases::{again, append, finished, once, told};
use crate::mirror::report::EventKind;

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
        assert!(!told(&report, EventKind::Problem).is_empty());
        again(&mut run);
    }
}
