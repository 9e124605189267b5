//! What the disk refuses, and where it fails: one partition has a problem, or the mirror ends and the next one finds everything whole.

use super::Run;
use super::cases::{append, assert_same, finished, once};
use super::model::ModelBatch;
use offsetlog::format::builder::{BatchFields, NewRecord, Uncompressed, write_batch};

const HOUR_MS: i64 = 3_600_000;

/// One batch of one record as it stands in the leader's log, whatever the rules of producers say.
fn put(run: &mut Run, number: usize, base: i64, producer_id: i64) {
    let record = NewRecord {
        offset: base,
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(b"v"),
        headers: &[],
    };
    let partition = run.model.partition_of("orders", number);
    let fields = BatchFields {
        base_offset: base,
        leader_epoch: partition.epoch,
        producer_id,
        producer_epoch: if producer_id < 0 { -1 } else { 0 },
        base_sequence: if producer_id < 0 { -1 } else { 9 },
        ..BatchFields::default()
    };
    let mut bytes = Vec::new();
    let written = write_batch(
        &mut bytes,
        &fields,
        &[record],
        &mut Uncompressed,
        &mut Vec::new(),
    );
    written.unwrap();
    partition.log.push(ModelBatch {
        base,
        last: base,
        bytes,
        is_there: true,
    });
    run.model.settle();
}

#[test]
fn a_batch_that_a_follower_refuses_is_a_problem_of_its_partition() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    run.model.append_one("orders", 0, (10, 1), true, false);
    run.model.settle();
    finished(&mut run, 20_000);
    // Brokers have written such logs: a batch without a transaction of a producer whose transaction is open.
    put(&mut run, 0, 1, 7);
    append(&mut run, 1);
    super::cases::again(&mut run);
    let report = finished(&mut run, HOUR_MS);
    assert!(!report.is_complete, "{report:#?}");
    let problem = report.partitions[0].problem.as_ref().unwrap();
    assert!(problem.contains("is refused"), "{problem}");
    assert_eq!(report.partitions[0].log_end_offset, 1);
    assert_eq!(report.partitions[1].problem, None);
    assert_same(&run, 1);
}

#[test]
fn batches_of_one_answer_that_no_segment_can_hold_together_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    // Compaction has left little; offsets in a segment lie at most `i32::MAX` apart.
    let far = i64::from(i32::MAX) + 10;
    for base in [0, 1, far, far + 1, 3 * far] {
        put(&mut run, 0, base, -1);
    }
    let report = finished(&mut run, HOUR_MS);
    assert!(report.is_complete, "{report:#?}");
    assert_same(&run, 0);
}
