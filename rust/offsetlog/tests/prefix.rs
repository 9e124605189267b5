//! A file cut anywhere reads as a prefix of its records: what a crash, or a look at a running broker, leaves.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod model;

use model::{Model, Step};
use offsetlog::{Log, OpenOptions, ScanOptions};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::FileFailurePersistence;

fn offsets(log: &Log) -> Vec<i64> {
    let mut scan = log.scan(&ScanOptions::default()).unwrap();
    let mut offsets = Vec::new();
    while let Some(mut batch) = scan.next_batch().unwrap() {
        while let Some(record) = batch.next_record().unwrap() {
            offsets.push(record.offset);
        }
    }
    offsets
}

/// Cuts the active segment at `length`, puts `tail` behind it, and reads.
fn check_cut(model: &Model, whole: &[u8], length: usize, tail: &[u8]) {
    let mut bytes = whole[..length].to_vec();
    bytes.extend_from_slice(tail);
    std::fs::write(&model.active, &bytes).unwrap();
    let kept = model
        .active_ends
        .iter()
        .take_while(|end| end.position <= length);
    let last = kept.last();
    let end = last.map_or(model.active_base, |end| end.next_offset);
    let log = Log::open(&model.directory, &OpenOptions::default()).unwrap();
    assert_eq!(log.log_end_offset().unwrap(), end, "length {length}");
    let data = model.records.iter().filter(|record| !record.is_control);
    let expected: Vec<i64> = data
        .map(|record| record.offset)
        .filter(|&offset| offset < end)
        .collect();
    assert_eq!(offsets(&log), expected, "length {length}");
    let torn = log.torn_tail().unwrap();
    let whole_bytes = last.map_or(0, |end| end.position);
    assert_eq!(torn.is_some(), whole_bytes < bytes.len(), "length {length}");
    if let Some(torn) = torn {
        assert_eq!(torn.position, whole_bytes as u64);
        assert_eq!(torn.bytes, (bytes.len() - whole_bytes) as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        // A case is a whole log; PROPTEST_CASES makes it more.
        cases: ProptestConfig::default().cases / 4,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_prefix_is_a_prefix(
        steps in model::steps(),
        indexes in model::indexes(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 8),
        zeros in prop_oneof![Just(1_usize), Just(17), Just(18), 1_usize..5000],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let model = model::write(&folder.path().join("t-0"), 0, 1_700_000_000_000, &steps, &indexes);
        let whole = std::fs::read(&model.active).unwrap();
        for cut in cuts {
            check_cut(&model, &whole, cut.index(whole.len() + 1), &[]);
        }
        for end in &model.active_ends {
            for length in [end.position - 1, end.position] {
                check_cut(&model, &whole, length, &[]);
            }
            check_cut(&model, &whole, end.position, &vec![0; zeros]);
        }
    }
}

/// Not one byte too many, not one record too few.
#[test]
fn every_length_of_a_small_file_is_a_prefix() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..4 {
        let steps = model::steps().new_tree(&mut runner).unwrap().current();
        let small: Vec<Step> = steps
            .into_iter()
            .filter(|step| !matches!(step, Step::Roll))
            .take(4)
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let model = model::write(
            &folder.path().join("t-0"),
            0,
            1_700_000_000_000,
            &small,
            &[model::Indexes::Right(1)],
        );
        let whole = std::fs::read(&model.active).unwrap();
        for length in 0..=whole.len().min(3000) {
            check_cut(&model, &whole, length, &[]);
        }
    }
}
