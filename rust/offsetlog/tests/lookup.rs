//! Whatever stands in the indexes, a look-up finds what looking at every record finds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod model;

use model::{Model, Seen};
use offsetlog::{ErrorKind, Isolation, Log, OpenOptions, Record, Scan, ScanOptions};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

fn seen(record: &Record) -> Seen {
    Seen {
        offset: record.offset,
        timestamp: record.timestamp,
        key: record.key.clone(),
        value: record.value.clone(),
        headers: record.headers.clone(),
        is_control: record.is_control,
        is_committed: false,
    }
}

fn all(mut scan: Scan) -> Vec<Seen> {
    let mut records = Vec::new();
    while let Some(mut batch) = scan.next_batch().unwrap() {
        records.extend(batch.to_records().unwrap().iter().map(seen));
    }
    records
}

/// What the model has, without what only the model knows.
fn expected(model: &Model, keep: impl Fn(&Seen) -> bool) -> Vec<Seen> {
    model
        .records
        .iter()
        .filter(|record| keep(record))
        .map(|record| Seen {
            is_committed: false,
            ..record.clone()
        })
        .collect()
}

fn check_offsets(log: &Log, model: &Model) {
    for offset in model.start..model.end {
        let wanted = expected(model, |record| {
            record.offset == offset && !record.is_control
        });
        let found = log.get(offset).unwrap();
        assert_eq!(
            found.iter().map(seen).collect::<Vec<_>>(),
            wanted,
            "offset {offset}"
        );
        let location = log.locate(offset).unwrap();
        assert_eq!(
            location.segment,
            log.segments()
                .unwrap()
                .iter()
                .map(|segment| segment.base_offset)
                .filter(|&base| base <= offset)
                .max()
                .unwrap()
        );
        if !wanted.is_empty() {
            let batch = location.batch.unwrap();
            assert!(batch.base_offset <= offset && offset <= batch.last_offset);
        }
    }
    for outside in [model.start - 1, model.end] {
        let error = log.get(outside).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::OffsetOutOfRange { .. }),
            "{error}"
        );
    }
}

fn check_times(log: &Log, model: &Model) {
    let mut times: Vec<i64> = model
        .records
        .iter()
        .flat_map(|record| [record.timestamp - 1, record.timestamp, record.timestamp + 1])
        .chain([i64::MIN, 0, i64::MAX])
        .collect();
    times.sort_unstable();
    times.dedup();
    for time in times {
        let first = model.records.iter().find(|record| record.timestamp >= time);
        let found = log
            .offset_for_timestamp(time, Isolation::ReadUncommitted)
            .unwrap();
        assert_eq!(
            found.map(|found| (found.offset, found.timestamp)),
            first.map(|record| (record.offset, record.timestamp)),
            "time {time}"
        );
        let stable = first.filter(|record| record.offset < model.last_stable_offset);
        let found = log
            .offset_for_timestamp(time, Isolation::ReadCommitted)
            .unwrap();
        assert_eq!(
            found.map(|found| found.offset),
            stable.map(|record| record.offset),
            "time {time}"
        );
    }
}

fn check_scans(log: &Log, model: &Model, start: i64, stop: i64) {
    let within = |record: &Seen| start <= record.offset && record.offset < stop;
    let options = ScanOptions {
        start: Some(start),
        stop: Some(stop),
        ..ScanOptions::default()
    };
    assert_eq!(
        all(log.scan(&options).unwrap()),
        expected(model, |record| within(record) && !record.is_control)
    );
    let committed = ScanOptions {
        isolation: Isolation::ReadCommitted,
        ..options
    };
    assert_eq!(
        all(log.scan(&committed).unwrap()),
        expected(model, |record| within(record)
            && record.is_committed
            && record.offset < model.last_stable_offset)
    );
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        // A case is a whole log; PROPTEST_CASES makes it more.
        cases: ProptestConfig::default().cases / 2,
        ..ProptestConfig::default()
    })]

    #[test]
    fn lookup_equals_linear_scan(
        start in prop_oneof![Just(0_i64), 0_i64..1000, Just(1_i64 << 40)],
        steps in model::steps(),
        indexes in model::indexes(),
        range in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        mapped: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let model = model::write(&folder.path().join("t-0"), start, 1_700_000_000_000, &steps, &indexes);
        let options = OpenOptions { mapped, ..OpenOptions::default() };
        let log = Log::open(&model.directory, &options).unwrap();
        prop_assert_eq!(log.log_start_offset().unwrap(), model.start);
        prop_assert_eq!(log.log_end_offset().unwrap(), model.end);
        prop_assert_eq!(log.last_stable_offset().unwrap(), model.last_stable_offset);
        check_offsets(&log, &model);
        check_times(&log, &model);
        check_scans(&log, &model, model.start, model.end);
        let length = (model.end - model.start + 1) as usize;
        let (one, other) = (range.0.index(length) as i64, range.1.index(length) as i64);
        check_scans(&log, &model, model.start + one.min(other), model.start + one.max(other));
    }
}
