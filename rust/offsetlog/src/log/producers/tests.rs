//! Tests of producer state: against brokers' files, and of snapshots.

mod kafka;
mod snapshots;

use super::changes::Content;
use super::*;
use crate::error::ErrorKind;

impl ProducerStates {
    fn entries(&self) -> impl ExactSizeIterator<Item = (i64, &ProducerEntry)> {
        self.producers
            .iter()
            .map(|(&id, stored)| (id, &stored.entry))
    }

    /// The last stable offset for readers of committed records.
    fn last_stable_offset(&self, log_start_offset: i64, high_watermark: i64) -> i64 {
        let first = self.first_unstable_offset();
        first.map_or(high_watermark, |first| {
            first.max(log_start_offset).min(high_watermark)
        })
    }
}

/// A batch of `count` records.
fn batch(producer_id: i64, epoch: i16, sequence: i32, base_offset: i64, count: i32) -> Batch {
    let last = i64::from(sequence) + i64::from(count) - 1;
    Batch {
        producer_id,
        producer_epoch: epoch,
        base_sequence: sequence,
        last_sequence: (last & 0x7fff_ffff) as i32,
        base_offset,
        last_offset: base_offset + i64::from(count) - 1,
        max_timestamp: 1000 + base_offset,
        is_transactional: false,
        content: Content::Records,
    }
}

fn transactional(batch: Batch) -> Batch {
    Batch {
        is_transactional: true,
        ..batch
    }
}

fn marker(producer_id: i64, epoch: i16, offset: i64, commit: bool) -> Batch {
    let marker = Marker {
        commit,
        coordinator_epoch: 0,
        timestamp: 1000 + offset,
    };
    Batch {
        last_sequence: -1,
        content: Content::Marker(marker),
        ..transactional(batch(producer_id, epoch, -1, offset, 1))
    }
}

fn commit(producer_id: i64, epoch: i16, offset: i64) -> Batch {
    marker(producer_id, epoch, offset, true)
}

fn abort(producer_id: i64, epoch: i16, offset: i64) -> Batch {
    marker(producer_id, epoch, offset, false)
}

fn of_coordinator(mut batch: Batch, epoch: i32) -> Batch {
    if let Content::Marker(marker) = &mut batch.content {
        marker.coordinator_epoch = epoch;
    }
    batch
}

fn aborted(producer_id: i64, first: i64, last: i64, last_stable: i64) -> AbortedTransaction {
    AbortedTransaction {
        producer_id,
        first_offset: first,
        last_offset: last,
        last_stable_offset: last_stable,
    }
}

/// Appends the batches together and returns the entries for the transaction index.
fn append(
    states: &mut ProducerStates,
    origin: Origin,
    batches: &[Batch],
) -> Vec<AbortedTransaction> {
    match states.check(batches, origin, 0).unwrap() {
        Checked::Update(changes) => {
            let foreseen = states.aborted_by(&changes);
            let aborted = states.apply(&changes);
            assert_eq!(foreseen, aborted);
            aborted
        }
        duplicate @ Checked::Duplicate { .. } => panic!("{duplicate:?}"),
    }
}

/// Returns the state after these batches, each one appended by a follower.
fn after(batches: &[Batch]) -> ProducerStates {
    let mut states = ProducerStates::new();
    for batch in batches {
        append(&mut states, Origin::Replication, &[*batch]);
        states.set_end_offset(batch.last_offset + 1);
    }
    states
}

fn refused(states: &ProducerStates, origin: Origin, version: i16, batch: Batch) -> String {
    states
        .check(&[batch], origin, version)
        .unwrap_err()
        .to_string()
}

fn accepts(states: &ProducerStates, origin: Origin, version: i16, batch: Batch) -> bool {
    matches!(
        states.check(&[batch], origin, version),
        Ok(Checked::Update(_))
    )
}

/// Returns first offset, last offset and timestamp of the batch that this one duplicates.
fn duplicate(states: &ProducerStates, batch: Batch) -> Option<(i64, i64, i64)> {
    match states.check(&[batch], Origin::Client, 0) {
        Ok(Checked::Duplicate {
            first_offset,
            last_offset,
            timestamp,
        }) => Some((first_offset, last_offset, timestamp)),
        _ => None,
    }
}

#[test]
fn the_last_five_batches_are_known_again() {
    let sent: Vec<_> = (0..6)
        .map(|n| batch(5, 0, 2 * n, 10 + 2 * i64::from(n), 2))
        .collect();
    let states = after(&sent);
    for sent in &sent[1..] {
        let again = Batch {
            base_offset: 22,
            last_offset: 23,
            ..*sent
        };
        let (first, last) = (sent.base_offset, sent.last_offset);
        assert_eq!(duplicate(&states, again), Some((first, last, 1000 + first)));
    }
    let older = refused(&states, Origin::Client, 0, sent[0]);
    assert_eq!(
        older,
        "out of order sequence of producer 5, epoch 0: 0 found, 12 expected; base offset 10"
    );
    // Not a duplicate: other bounds, another epoch, or not from a client.
    assert_eq!(duplicate(&states, batch(5, 0, 10, 22, 1)), None);
    assert_eq!(duplicate(&states, batch(5, 1, 10, 22, 2)), None);
    assert!(accepts(&states, Origin::Coordinator, 0, sent[5]));
}

#[test]
fn sequences_go_on_from_the_last_batch() {
    let states = after(&[batch(5, 3, 7, 0, 3)]);
    assert!(accepts(&states, Origin::Client, 0, batch(5, 3, 10, 3, 1)));
    for wrong in [0, 9, 11] {
        let error = states
            .check(&[batch(5, 3, wrong, 3, 1)], Origin::Client, 0)
            .unwrap_err();
        assert_eq!(error.kind().code(), "OutOfOrderSequence");
        assert_eq!(error.found(), Some(format!("sequence {wrong}")));
        assert_eq!(error.expected(), Some("sequence 10".into()));
        assert_eq!(error.offset(), Some(3));
        // Only clients are checked.
        for origin in [Origin::Coordinator, Origin::Replication, Origin::Recovery] {
            assert!(accepts(&states, origin, 0, batch(5, 3, wrong, 3, 1)));
        }
    }
    // A new epoch starts at 0, an unknown producer anywhere.
    assert!(accepts(&states, Origin::Client, 0, batch(5, 4, 0, 3, 1)));
    let error = refused(&states, Origin::Client, 0, batch(5, 4, 10, 3, 1));
    assert!(error.contains("epoch 4: 10 found, 0 expected"), "{error}");
    assert!(accepts(&states, Origin::Client, 0, batch(6, 4, 999, 3, 1)));
}

#[test]
fn sequences_wrap_to_zero() {
    let states = after(&[batch(5, 0, i32::MAX - 1, 0, 2)]);
    assert_eq!(states.get(5).unwrap().last_sequence(), i32::MAX);
    assert!(accepts(&states, Origin::Client, 0, batch(5, 0, 0, 2, 1)));
    let states = after(&[batch(5, 0, i32::MAX, 0, 3)]);
    let entry = states.get(5).unwrap();
    assert_eq!(entry.last_sequence(), 1);
    // The first sequence is counted back from the last.
    assert_eq!(entry.batches.last().unwrap().first_sequence(), i32::MAX);
    assert_eq!(
        duplicate(&states, batch(5, 0, i32::MAX, 3, 3)),
        Some((0, 2, 1000))
    );
    assert!(accepts(&states, Origin::Client, 0, batch(5, 0, 2, 3, 1)));
}

#[test]
fn lower_epochs_are_fenced_but_not_for_followers() {
    let mut states = after(&[batch(5, 3, 0, 0, 1)]);
    for lower in [batch(5, 2, 0, 1, 1), transactional(batch(5, 2, 1, 1, 1))] {
        for origin in [Origin::Client, Origin::Coordinator] {
            assert_eq!(
                refused(&states, origin, 0, lower),
                "producer 5 is fenced: epoch 2 found, at least 3 expected; base offset 1"
            );
        }
    }
    append(&mut states, Origin::Replication, &[batch(5, 2, 9, 1, 1)]);
    let entry = states.get(5).unwrap();
    assert_eq!(entry.producer_epoch, 2);
    assert_eq!(entry.batches.as_slice().len(), 1);
}

#[test]
fn a_transaction_takes_transactional_batches_only() {
    let mut states = after(&[transactional(batch(5, 0, 0, 7, 2))]);
    assert_eq!(states.get(5).unwrap().transaction_first_offset, Some(7));
    for origin in [Origin::Client, Origin::Coordinator, Origin::Replication] {
        let error = states
            .check(&[batch(5, 0, 2, 9, 1)], origin, 0)
            .unwrap_err();
        assert!(matches!(
            error.kind(),
            ErrorKind::InvalidTxnState {
                producer_id: 5,
                first_offset: 7
            }
        ));
        assert_eq!(
            error.to_string(),
            "batch is not transactional, but a transaction of producer 5 is open since offset 7; base offset 9"
        );
    }
    append(
        &mut states,
        Origin::Client,
        &[transactional(batch(5, 0, 2, 9, 1))],
    );
    assert_eq!(states.get(5).unwrap().transaction_first_offset, Some(7));
    assert_eq!(states.first_unstable_offset(), Some(7));
}

/// Kafka cannot start on such a log: records were deleted up to an offset inside a transaction, a truncation made it forget the
/// transaction, and the producer appended without one. Recovery here reads what is stored.
#[test]
fn recovery_refuses_nothing() {
    let mut states = after(&[transactional(batch(5, 3, 0, 7, 2))]);
    append(&mut states, Origin::Recovery, &[batch(5, 2, 9, 9, 1)]);
    let entry = states.get(5).unwrap();
    assert_eq!(
        (entry.producer_epoch, entry.transaction_first_offset),
        (2, Some(7))
    );
    assert_eq!(
        append(&mut states, Origin::Recovery, &[abort(5, 1, 10)]),
        [aborted(5, 7, 10, 11)]
    );
}

#[test]
fn a_marker_ends_the_transaction_and_keeps_the_batches() {
    let mut states = after(&[transactional(batch(5, 0, 4, 7, 2))]);
    let ending = of_coordinator(abort(5, 0, 9), 3);
    assert_eq!(
        append(&mut states, Origin::Coordinator, &[ending]),
        [aborted(5, 7, 9, 10)]
    );
    let entry = *states.get(5).unwrap();
    assert_eq!(entry.transaction_first_offset, None);
    assert_eq!(entry.coordinator_epoch, 3);
    assert_eq!(entry.last_timestamp, 1009);
    assert_eq!(entry.last_sequence(), 5);
    assert!(accepts(&states, Origin::Client, 0, batch(5, 0, 6, 10, 1)));
    // A commit adds no entry to the index.
    append(
        &mut states,
        Origin::Client,
        &[transactional(batch(5, 0, 6, 10, 1))],
    );
    let ending = of_coordinator(commit(5, 0, 11), 3);
    assert_eq!(append(&mut states, Origin::Coordinator, &[ending]), []);
}

#[test]
fn a_marker_that_raises_the_epoch_forgets_the_batches() {
    let mut states = after(&[transactional(batch(5, 0, 4, 7, 2))]);
    append(&mut states, Origin::Coordinator, &[abort(5, 1, 9)]);
    assert_eq!(states.get(5).unwrap().batches.as_slice(), []);
    let error = refused(&states, Origin::Client, 0, batch(5, 1, 6, 10, 1));
    assert!(error.contains("6 found, 0 expected"), "{error}");
    assert!(accepts(&states, Origin::Client, 0, batch(5, 1, 0, 10, 1)));
}

#[test]
fn a_marker_without_transaction_is_remembered_and_ends_nothing() {
    let mut states = ProducerStates::new();
    assert_eq!(
        append(&mut states, Origin::Coordinator, &[abort(5, 4, 0)]),
        []
    );
    assert_eq!(states.first_unstable_offset(), None);
    let entry = states.get(5).unwrap();
    assert_eq!((entry.producer_epoch, entry.last_timestamp), (4, 1000));
    // The epoch is known now, so its first sequence is 0.
    assert!(!accepts(&states, Origin::Client, 0, batch(5, 4, 9, 1, 1)));
    assert!(accepts(&states, Origin::Client, 0, batch(5, 4, 0, 1, 1)));
}

#[test]
fn markers_need_an_epoch_by_their_transaction_version() {
    let open = after(&[transactional(batch(5, 3, 0, 0, 1))]);
    let closed = after(&[transactional(batch(5, 3, 0, 0, 1)), commit(5, 3, 1)]);
    let coordinator = Origin::Coordinator;
    for version in [0, 1] {
        assert!(!accepts(&open, coordinator, version, commit(5, 2, 2)));
        assert!(accepts(&open, coordinator, version, commit(5, 3, 2)));
        assert!(accepts(&open, coordinator, version, commit(5, 4, 2)));
    }
    assert_eq!(
        refused(&open, coordinator, 2, commit(5, 3, 2)),
        "producer 5 is fenced: epoch 3 found, at least 4 expected; base offset 2"
    );
    assert!(accepts(&open, coordinator, 2, commit(5, 4, 2)));
    // Sent again after the transaction has ended.
    assert!(accepts(&closed, coordinator, 2, commit(5, 3, 2)));
    assert!(!accepts(&closed, coordinator, 2, commit(5, 2, 2)));
    // The highest epoch cannot be raised.
    let last = after(&[transactional(batch(5, i16::MAX, 0, 0, 1))]);
    assert!(accepts(&last, coordinator, 2, commit(5, i16::MAX, 2)));
    assert!(!accepts(&last, coordinator, 2, commit(5, i16::MAX - 1, 2)));
    // Only a follower may leave the version out.
    let unknown = TRANSACTION_VERSION_UNKNOWN;
    let error = refused(&open, coordinator, unknown, commit(5, 4, 2));
    assert!(error.starts_with("transaction_version: "), "{error}");
    for epoch in [2, 3] {
        let marker = commit(5, epoch, 2);
        assert!(accepts(&open, Origin::Replication, unknown, marker));
    }
}

#[test]
fn markers_of_replaced_coordinators_are_fenced() {
    let ended = of_coordinator(commit(5, 0, 1), 4);
    let states = after(&[transactional(batch(5, 0, 0, 0, 1)), ended]);
    let late = of_coordinator(commit(5, 0, 2), 3);
    assert_eq!(
        refused(&states, Origin::Coordinator, 0, late),
        "marker for producer 5 comes from a replaced coordinator: coordinator epoch 3 found, at least 4 expected; base offset 2"
    );
    let same = of_coordinator(commit(5, 0, 2), 4);
    assert!(accepts(&states, Origin::Coordinator, 0, same));
    let mut states = states;
    append(&mut states, Origin::Replication, &[late]);
    assert_eq!(states.get(5).unwrap().coordinator_epoch, 3);
}

/// A producer that has only such a batch left still gets an entry.
#[test]
fn a_marker_that_was_cleaned_away_changes_nothing() {
    let cleaned = |id| Batch {
        content: Content::Nothing,
        ..commit(id, 7, 2)
    };
    let mut states = after(&[transactional(batch(5, 3, 0, 0, 1))]);
    let before = *states.get(5).unwrap();
    append(&mut states, Origin::Replication, &[cleaned(5), cleaned(6)]);
    assert_eq!(states.get(5), Some(&before));
    assert_eq!(states.get(6), Some(&ProducerEntry::unknown()));
}

#[test]
fn each_batch_of_an_append_sees_those_before_it() {
    let mut states = ProducerStates::new();
    let two = [
        transactional(batch(5, 0, 0, 0, 2)),
        abort(5, 0, 2),
        transactional(batch(5, 0, 2, 3, 1)),
        abort(5, 0, 4),
    ];
    assert_eq!(
        append(&mut states, Origin::Replication, &two),
        [aborted(5, 0, 2, 3), aborted(5, 3, 4, 5)]
    );
    assert_eq!(states.get(5).unwrap().last_sequence(), 2);
}

#[test]
fn nothing_is_committed_if_one_batch_fails() {
    let states = after(&[transactional(batch(5, 0, 0, 0, 1))]);
    let batches = [commit(5, 0, 1), batch(6, 0, 0, 2, 1), batch(5, 0, 1, 3, 1)];
    let fails = transactional(batch(6, 0, 1, 4, 1));
    let not = batch(6, 0, 2, 5, 1);
    let check = |batches: &[Batch]| states.check(batches, Origin::Replication, 0).is_ok();
    assert!(check(&batches));
    assert!(!check(&[&batches[..], &[fails, not]].concat()));
    assert_eq!(states.get(6), None);
    assert_eq!(states.get(5).unwrap().transaction_first_offset, Some(0));
}

/// Kafka drops the stored batches only if the append ends at another epoch than it began with.
#[test]
fn an_epoch_that_goes_up_and_down_within_an_append_keeps_the_batches() {
    let down_and_up = [batch(5, 2, 40, 1, 1), batch(5, 3, 50, 2, 1)];
    let mut states = after(&[batch(5, 3, 7, 0, 1)]);
    append(&mut states, Origin::Replication, &down_and_up);
    let sequences = |states: &ProducerStates| -> Vec<i32> {
        let batches = states.get(5).unwrap().batches;
        batches
            .as_slice()
            .iter()
            .map(|batch| batch.last_sequence)
            .collect()
    };
    assert_eq!(sequences(&states), [7, 50]);
    let singly = after(&[batch(5, 3, 7, 0, 1), down_and_up[0], down_and_up[1]]);
    assert_eq!(sequences(&singly), [50]);
}

#[test]
fn aborts_name_the_earliest_transaction_still_open() {
    let mut states = after(&[
        transactional(batch(1, 0, 0, 0, 1)),
        transactional(batch(2, 0, 0, 1, 1)),
        transactional(batch(3, 0, 0, 2, 1)),
    ]);
    assert_eq!(
        append(&mut states, Origin::Coordinator, &[abort(2, 0, 3)]),
        [aborted(2, 1, 3, 0)]
    );
    assert_eq!(
        append(&mut states, Origin::Coordinator, &[abort(1, 0, 4)]),
        [aborted(1, 0, 4, 2)]
    );
    assert_eq!(
        append(&mut states, Origin::Coordinator, &[abort(3, 0, 5)]),
        [aborted(3, 2, 5, 6)]
    );
}

/// All transactions of an append count as open from its start.
#[test]
fn an_abort_names_a_transaction_that_opens_behind_it_in_the_same_append() {
    let batches = [
        transactional(batch(1, 0, 0, 0, 1)),
        abort(1, 0, 1),
        transactional(batch(2, 0, 0, 2, 1)),
    ];
    let mut states = ProducerStates::new();
    let mut later = batches.to_vec();
    later.push(commit(2, 0, 3));
    assert_eq!(
        append(&mut states, Origin::Replication, &later),
        [aborted(1, 0, 1, 2)]
    );
    let mut states = after(&batches[..1]);
    assert_eq!(
        append(&mut states, Origin::Replication, &batches[1..2]),
        [aborted(1, 0, 1, 2)]
    );
}

#[test]
fn transactions_hold_the_last_stable_offset_until_their_markers_are_replicated() {
    let mut states = after(&[
        batch(1, 0, 0, 0, 2),
        transactional(batch(2, 0, 0, 2, 1)),
        transactional(batch(3, 0, 0, 3, 1)),
    ]);
    assert_eq!(states.last_stable_offset(0, 4), 2);
    assert_eq!(states.last_stable_offset(0, 2), 2);
    assert_eq!(states.last_stable_offset(0, 1), 1);
    append(&mut states, Origin::Coordinator, &[commit(2, 0, 4)]);
    // The marker is at 4; a high watermark of 4 does not cover it.
    states.complete_until(4);
    assert_eq!(states.last_stable_offset(0, 4), 2);
    states.complete_until(5);
    assert_eq!(states.last_stable_offset(0, 5), 3);
    // Records were deleted up to an offset inside the transaction.
    assert_eq!(states.last_stable_offset(4, 5), 4);
    append(&mut states, Origin::Coordinator, &[abort(3, 0, 5)]);
    states.complete_until(6);
    assert_eq!(states.first_unstable_offset(), None);
    assert_eq!(states.last_stable_offset(4, 6), 6);
}

#[test]
fn batches_come_from_headers() {
    use offsetlog_format::{Attributes, BatchHeader};
    let header = BatchHeader {
        base_offset: Some(10),
        last_offset: 14,
        size_bytes: 100,
        magic: 2,
        leader_epoch: 0,
        crc: 0,
        attributes: Attributes(0x10),
        base_timestamp: 5,
        max_timestamp: 9,
        producer_id: 3,
        producer_epoch: 1,
        base_sequence: i32::MAX - 1,
        record_count: 5,
    };
    let made = Batch::new(&header, None).unwrap();
    assert_eq!((made.base_sequence, made.last_sequence), (i32::MAX - 1, 2));
    assert!(made.is_transactional);
    assert_eq!(made.content, Content::Records);
    // Followers store sequences that a leader refuses; a broker counts on from them.
    for (base, last) in [(-1, -1), (-2, 2), (-7, -3), (i32::MAX, 3)] {
        let header = BatchHeader {
            base_sequence: base,
            ..header
        };
        assert_eq!(Batch::new(&header, None).unwrap().last_sequence, last);
    }
    let without = BatchHeader {
        producer_id: -1,
        ..header
    };
    assert_eq!(Batch::new(&without, None), None);
    let legacy = BatchHeader {
        base_offset: None,
        ..header
    };
    assert_eq!(Batch::new(&legacy, None), None);
    let control = BatchHeader {
        attributes: Attributes(0x30),
        ..header
    };
    assert_eq!(
        Batch::new(&control, None).unwrap().content,
        Content::Nothing
    );
    let Content::Marker(marker) = commit(3, 1, 10).content else {
        panic!("a commit is no marker");
    };
    assert_eq!(
        Batch::new(&control, Some(marker)).unwrap().content,
        Content::Marker(marker)
    );
}

#[test]
fn markers_come_from_control_records() {
    use offsetlog_format::{Headers, RecordView, TimestampType};
    let record = |key: &'static [u8], value: &'static [u8]| RecordView {
        offset: 4,
        timestamp: 77,
        timestamp_type: TimestampType::Create,
        key: Some(key),
        value: Some(value),
        headers: Headers::default(),
    };
    let marker = Marker::parse(&record(&[0, 0, 0, 1], &[0, 0, 0, 0, 0, 9])).unwrap();
    assert_eq!(
        marker,
        Marker {
            commit: true,
            coordinator_epoch: 9,
            timestamp: 77
        }
    );
    assert!(
        !Marker::parse(&record(&[0, 0, 0, 0], &[0, 0, 0, 0, 0, 9]))
            .unwrap()
            .commit
    );
    for (key, value) in [
        (&[0, 0, 0, 9], &[0, 0, 0, 0, 0, 9][..]),
        (&[0, 0, 0, 4], &[0, 0, 0]),
        (&[0, 0, 0, 1], &[0, 0, 0]),
    ] {
        let error = Marker::parse(&record(key, value)).unwrap_err();
        assert_eq!(error.kind().code(), "InvalidRecord");
    }
}
