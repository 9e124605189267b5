//! Which producer snapshot is taken, and which are refused.

use super::*;

#[test]
fn silent_producers_expire_by_the_time_of_their_records() {
    let mut states = after(&[
        batch(1, 0, 0, 0, 1),
        transactional(batch(2, 0, 0, 1, 1)),
        batch(3, 0, 0, 5, 1),
    ]);
    states.remove_expired(1999, 1000);
    assert_eq!(states.entries().len(), 3);
    // Producer 1 was last heard of at 1000; 2 has a transaction open.
    states.remove_expired(2000, 1000);
    assert_eq!(states.get(1), None);
    assert_eq!(states.entries().len(), 2);
    states.remove_expired(i64::MAX, 1000);
    assert_eq!(states.entries().len(), 1);
    // Forgotten, so any sequence will do.
    assert!(accepts(&states, Origin::Client, 0, batch(3, 0, 77, 6, 1)));
}

#[test]
fn a_snapshot_keeps_the_last_batch_under_the_time_of_the_last_marker() {
    let states = after(&[
        transactional(batch(5, 0, 0, 0, 1)),
        transactional(batch(5, 0, 1, 1, 2)),
        of_coordinator(abort(5, 0, 3), 2),
        transactional(batch(6, 0, 0, 4, 1)),
        commit(7, 9, 5),
    ]);
    let entries = states.to_snapshot();
    let written = |id, epoch, last_sequence, last_offset, delta, time, coordinator, first| {
        ProducerSnapshotEntry {
            producer_id: id,
            producer_epoch: epoch,
            last_sequence,
            last_offset,
            offset_delta: delta,
            timestamp: time,
            coordinator_epoch: coordinator,
            current_transaction_first_offset: first,
        }
    };
    assert_eq!(
        entries,
        [
            written(5, 0, 2, 2, 1, 1003, 2, -1),
            written(6, 0, 0, 4, 0, 1004, -1, 4),
            written(7, 9, -1, -1, 0, 1005, 0, -1),
        ]
    );
    let mut loaded = after(&[transactional(batch(8, 0, 0, 0, 1))]);
    loaded.load_snapshot(&entries, 6, 2000, 1_000_000);
    assert_eq!(loaded.end_offset(), 6);
    assert_eq!(loaded.to_snapshot(), entries);
    assert_eq!(loaded.get(8), None);
    assert_eq!(loaded.first_unstable_offset(), Some(4));
    assert_eq!(duplicate(&loaded, batch(5, 0, 1, 6, 2)), Some((1, 2, 1003)));
    assert_eq!(duplicate(&loaded, batch(5, 0, 0, 6, 1)), None);
    assert_eq!(loaded.get(7).unwrap().batches.as_slice(), []);
    // Expired producers are not loaded; an open transaction keeps its producer.
    loaded.load_snapshot(&entries, 6, 2004, 1000);
    let mut ids: Vec<_> = loaded.entries().map(|(id, _)| id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [6, 7]);
}

/// The order of a Java `HashMap` whose table grew with the thirteenth producer and stays large.
#[test]
fn a_snapshot_has_the_order_of_a_brokers() {
    let ids = |states: &ProducerStates| -> Vec<i64> {
        let entries = states.to_snapshot();
        entries.iter().map(|entry| entry.producer_id).collect()
    };
    let twelve: Vec<_> = (20..32).map(|id| batch(id, 0, 0, id, 1)).collect();
    let mut states = after(&twelve);
    let by_16: Vec<i64> = (0..16)
        .flat_map(|bucket| (20..32).filter(move |id| id % 16 == bucket))
        .collect();
    assert_eq!(ids(&states), by_16);
    append(&mut states, Origin::Client, &[batch(64, 0, 0, 40, 1)]);
    let sorted_by_32: Vec<i64> = std::iter::once(64).chain(20..32).collect();
    assert_eq!(ids(&states), sorted_by_32);
    // Producers expire, the table stays: 17 comes before 33 in a table of 32, behind it in one of 16.
    states.remove_expired(i64::MAX, 0);
    assert_eq!(states.entries().len(), 0);
    append(&mut states, Origin::Client, &[batch(33, 0, 0, 41, 1)]);
    append(&mut states, Origin::Client, &[batch(17, 0, 0, 42, 1)]);
    assert_eq!(ids(&states), [33, 17]);
    states.clear(0);
    append(&mut states, Origin::Client, &[batch(17, 0, 0, 43, 1)]);
    append(&mut states, Origin::Client, &[batch(33, 0, 0, 44, 1)]);
    assert_eq!(ids(&states), [33, 17]);
}
