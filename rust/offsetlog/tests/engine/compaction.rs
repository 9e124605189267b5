//! What a pass of the cleaner leaves: contract 4.2 to 4.7 of maintenance, which was run through Kafka's own classes.

use crate::common::{
    NOW, Place, append, append_at, bases, builder, committed, end, file, follow, log_file, offsets,
    produce, sent,
};
use offsetlog::{
    AppendOptions, BatchBuilder, CompactOptions, Compaction, LogWriter, MaintainOptions, Producer,
};

/// A record of the examples: key and value; no value is a tombstone.
type Row = (&'static str, Option<&'static str>);

fn batch_of(log: &LogWriter, producer: Producer, rows: &[Row]) -> i64 {
    let mut batch = BatchBuilder::new(offsetlog::format::Codec::None, producer);
    for (key, value) in rows {
        batch
            .push(NOW, Some(key.as_bytes()), value.map(str::as_bytes), &[])
            .unwrap();
    }
    log.append(&mut batch, &AppendOptions::default())
        .unwrap()
        .base_offset
}

fn rows(log: &LogWriter, rows: &[Row]) -> i64 {
    batch_of(log, Producer::default(), rows)
}

fn idempotent(log: &LogWriter, producer_id: i64, base_sequence: i32, given: &[Row]) -> i64 {
    let producer = Producer {
        producer_id,
        producer_epoch: 0,
        base_sequence,
        is_transactional: false,
    };
    batch_of(log, producer, given)
}

fn compact(log: &LogWriter, first_dirty: Option<i64>) -> Compaction {
    let options = CompactOptions {
        first_dirty,
        map_bytes: None,
    };
    log.compact(&options).unwrap()
}

/// Offset, key and value of every record.
fn table(log: &LogWriter) -> Vec<(i64, String, Option<String>)> {
    let mut scan = log.scan(&offsetlog::ScanOptions::default()).unwrap();
    let mut found = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    while let Some(mut batch) = scan.next_batch().unwrap() {
        while let Some(record) = batch.next_record().unwrap() {
            found.push((
                record.offset,
                text(record.key.unwrap_or(b"-")),
                record.value.map(text),
            ));
        }
    }
    found
}

fn keys(log: &LogWriter) -> Vec<(i64, String)> {
    table(log)
        .into_iter()
        .map(|(offset, key, _)| (offset, key))
        .collect()
}

/// First and last offset, bytes and count of each batch of a segment, by their headers.
fn shapes(place: &Place, base: i64) -> Vec<(i64, i64, usize, i32)> {
    let bytes = place.bytes(&log_file(base));
    let (batches, end) = offsetlog_faults::batch::walk(&bytes);
    assert_eq!(end, bytes.len());
    let count = |batch: &offsetlog_faults::batch::Batch| {
        i32::from_be_bytes(batch.bytes[57..61].try_into().unwrap())
    };
    batches
        .iter()
        .map(|batch| (batch.base, batch.last, batch.bytes.len(), count(batch)))
        .collect()
}

fn owned(expected: &[(i64, &str)]) -> Vec<(i64, String)> {
    expected
        .iter()
        .map(|&(offset, key)| (offset, key.to_owned()))
        .collect()
}

const COMPACT: [(&str, &str); 2] = [
    ("cleanup.policy", "compact"),
    ("delete.retention.ms", "1000"),
];

/// Example A.
#[test]
fn the_last_record_of_each_key_stays_and_tombstones_go_later() {
    let place = Place::new();
    let log = place.open(&COMPACT);
    rows(
        &log,
        &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))],
    );
    rows(&log, &[("a", Some("2")), ("b", None)]);
    log.roll().unwrap();
    rows(&log, &[("a", Some("3"))]);
    // A follower stored a record without a key.
    let row = |key: Option<&str>| (key.map(|key| key.as_bytes().to_vec()), Some(b"4".to_vec()));
    let batch = offsetlog_faults::batch::encode(6, 0, NOW, &[row(None), row(Some("d"))]);
    follow(&log, &batch.bytes, 0).unwrap();
    log.roll().unwrap();
    rows(&log, &[("c", Some("9"))]);
    let sizes: Vec<usize> = shapes(&place, 0)
        .iter()
        .chain(&shapes(&place, 5))
        .map(|shape| shape.2)
        .collect();
    assert_eq!(sizes[..3], [88, 78, 70]);
    let untouched = place.batches(5)[0].clone();

    place.set_clock(NOW + 100);
    let done = compact(&log, None);
    assert_eq!((done.first_dirty_offset, done.end_offset), (0, 8));
    assert_eq!(
        (
            done.records_before,
            done.segments_before,
            done.segments_after
        ),
        (8, 2, 1)
    );
    assert_eq!(bases(&log), [0, 8]);
    assert_eq!(
        shapes(&place, 0),
        [(0, 2, 70, 1), (3, 4, 70, 1), (5, 5, 70, 1), (6, 7, 70, 1)]
    );
    assert_eq!(place.batches(0)[2].bytes, untouched.bytes, "bit for bit");
    assert_eq!(
        keys(&log),
        owned(&[(2, "c"), (4, "b"), (5, "a"), (7, "d"), (8, "c")])
    );
    assert!(place.has(&file(5, ".log.deleted")) && !place.has(&file(5, ".snapshot")));

    rows(&log, &[("x", Some("1"))]);
    log.roll().unwrap();
    place.set_clock(NOW + 1099);
    assert_eq!(compact(&log, None).end_offset, 10);
    assert_eq!(
        keys(&log),
        owned(&[(4, "b"), (5, "a"), (7, "d"), (8, "c"), (9, "x")])
    );
    rows(&log, &[("y", Some("1"))]);
    log.roll().unwrap();
    place.set_clock(NOW + 1100);
    compact(&log, None);
    assert_eq!(
        keys(&log),
        owned(&[(5, "a"), (7, "d"), (8, "c"), (9, "x"), (10, "y")])
    );
    assert_eq!(crate::common::bounds(&log), (0, 11, 11));
}

/// Example B: a producer's last batch stays, if need be without records.
#[test]
fn the_last_batch_of_a_producer_stays() {
    let place = Place::new();
    let log = place.open(&COMPACT);
    idempotent(&log, 10, 0, &[("a", Some("1")), ("b", Some("1"))]);
    idempotent(&log, 10, 2, &[("a", Some("2"))]);
    idempotent(&log, 11, 0, &[("a", Some("3")), ("b", Some("3"))]);
    rows(&log, &[("a", Some("4"))]);
    log.roll().unwrap();
    rows(&log, &[("a", Some("5")), ("b", Some("5"))]);
    log.roll().unwrap();
    let last = place.batches(6)[0].clone();
    compact(&log, None);
    let expected = [(2, 2, 61, 0), (3, 4, 61, 0), (6, 7, last.bytes.len(), 2)];
    assert_eq!(shapes(&place, 0), expected);
    assert_eq!(place.batches(0)[2], last);
    // So that their duplicates are known after the snapshots are gone, too.
    log.close().unwrap();
    for name in place
        .files()
        .into_keys()
        .filter(|name| name.ends_with(".snapshot"))
    {
        place.remove(&name);
    }
    let log = place.recovered();
    let again = produce(&log, (10, 0, 3), false, &["next"]).unwrap();
    assert_eq!((again.base_offset, again.duplicate), (8, false));
    let batch = sent(&["v", "v"]).producer(11, 0, 0);
    assert!(crate::common::lead(&log, &batch).unwrap().duplicate);
}

/// Example C: aborted records go at once, markers when nothing of their transaction is left and their time has come.
#[test]
fn transactions_lose_what_was_aborted() {
    let place = Place::new();
    let log = place.open(&COMPACT);
    let transactional = |producer_id, base_sequence, given: &[Row]| {
        let producer = Producer {
            producer_id,
            producer_epoch: 0,
            base_sequence,
            is_transactional: true,
        };
        batch_of(&log, producer, given)
    };
    transactional(20, 0, &[("a", Some("aborted"))]);
    transactional(21, 0, &[("b", Some("1"))]);
    end(&log, 20, 0, false).unwrap();
    end(&log, 21, 0, true).unwrap();
    transactional(20, 1, &[("c", Some("1"))]);
    end(&log, 20, 0, true).unwrap();
    log.roll().unwrap();
    rows(&log, &[("b", Some("2"))]);
    log.roll().unwrap();
    let firsts = || {
        shapes(&place, 0)
            .iter()
            .map(|shape| shape.0)
            .collect::<Vec<_>>()
    };
    let committed_before = committed(&log);
    compact(&log, Some(0));
    assert_eq!(firsts(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(shapes(&place, 0)[0], (1, 1, 61, 0));
    assert_eq!(place.bytes(&file(0, ".txnindex")).len(), 34);
    assert_eq!(committed(&log), committed_before[1..]);
    // The marker gets its time, which makes it a byte longer.
    let marker = shapes(&place, 0)[1].2;
    compact(&log, Some(0));
    assert_eq!(
        (firsts(), shapes(&place, 0)[1].2),
        (vec![1, 2, 3, 4, 5, 6], marker + 1)
    );
    assert!(!place.has(&file(0, ".txnindex")) || place.bytes(&file(0, ".txnindex")).is_empty());
    place.set_clock(NOW + 1000);
    compact(&log, Some(0));
    assert_eq!(firsts(), [1, 3, 4, 5, 6]);
    assert_eq!(committed(&log), committed_before[1..]);
}

/// Example D: what says where a round ended stays, without records.
#[test]
fn the_last_batch_of_a_round_stays() {
    let place = Place::new();
    let log = place.open(&COMPACT);
    rows(&log, &[("a", Some("1"))]);
    let row = || (None, Some(b"v".to_vec()));
    for base in [1, 2] {
        let batch = offsetlog_faults::batch::encode(base, 0, NOW, &[row()]);
        follow(&log, &batch.bytes, 0).unwrap();
    }
    log.roll().unwrap();
    compact(&log, None);
    assert_eq!(shapes(&place, 0), [(0, 0, 70, 1), (2, 2, 61, 0)]);
    rows(&log, &[("a", Some("2"))]);
    log.roll().unwrap();
    compact(&log, None);
    assert_eq!(offsets(&log), [3]);
    assert_eq!(shapes(&place, 0)[0].0, 3);
}

/// Contract 4.2: a table of 4 places takes 3 keys; a pass ends before the record that finds no room.
#[test]
fn a_small_table_makes_several_passes() {
    let place = Place::new();
    let log = place.open(&[COMPACT[0], ("internal.segment.bytes", "300")]);
    for key in ["k0", "k1", "k2", "k3", "k4", "k0", "k1", "k2"] {
        append_at(&log, NOW, key, Some("v"));
    }
    log.roll().unwrap();
    let small = CompactOptions {
        first_dirty: None,
        map_bytes: Some(4 * 24),
    };
    let ends = [0; 3].map(|_| log.compact(&small).unwrap().end_offset);
    assert_eq!(ends, [3, 6, 8]);
    let expected = owned(&[(3, "k3"), (4, "k4"), (5, "k0"), (6, "k1"), (7, "k2")]);
    assert_eq!(keys(&log), expected);
    assert_eq!(log.compact(&small).unwrap().segments_before, 0);
    let none = CompactOptions {
        first_dirty: None,
        map_bytes: Some(24),
    };
    assert_eq!(log.compact(&none).unwrap_err().kind().code(), "Argument");
}

/// Contract 4.2: also inside a batch, of which what is not in the table stays.
#[test]
fn a_pass_may_end_inside_a_batch() {
    let place = Place::new();
    let log = place.open(&COMPACT);
    rows(&log, &[("a", Some("1")), ("b", Some("1"))]);
    rows(&log, &["a", "b", "c", "d", "e"].map(|key| (key, Some("2"))));
    rows(&log, &[("a", Some("3"))]);
    log.roll().unwrap();
    let small = CompactOptions {
        first_dirty: None,
        map_bytes: Some(4 * 24),
    };
    assert_eq!(log.compact(&small).unwrap().end_offset, 5);
    assert_eq!(offsets(&log), [2, 3, 4, 5, 6, 7]);
    assert_eq!(log.compact(&small).unwrap().end_offset, 8);
    assert_eq!(offsets(&log), [3, 4, 5, 6, 7]);
}

/// Contract 4.3: segments of 72 bytes and a limit of 220: three together.
#[test]
fn small_segments_become_larger_ones() {
    let place = Place::new();
    let log = place.open(&[COMPACT[0], ("internal.segment.bytes", "220")]);
    for number in 0..6 {
        append_at(&log, NOW, &format!("k{number}"), Some("vv"));
        log.roll().unwrap();
    }
    assert_eq!(place.bytes(&log_file(0)).len(), 72);
    compact(&log, None);
    assert_eq!(bases(&log), [0, 3, 6]);
    assert_eq!(offsets(&log), [0, 1, 2, 3, 4, 5]);
    // Their offsets and times are found as before.
    assert_eq!(log.locate(4).unwrap().segment, 3);
}

/// Contract 4.1: neither the active segment, nor what is behind the first open transaction, nor what is younger than the lag.
#[test]
fn what_may_not_be_compacted_yet() {
    let filled = |settings: &[(&str, &str)]| {
        let place = Place::new();
        let log = place.open(&[&COMPACT[..1], settings].concat());
        (place, log)
    };
    let (_, log) = filled(&[]);
    append(&log, &["1"]);
    append(&log, &["2"]);
    assert_eq!(compact(&log, None).segments_before, 0);
    assert_eq!(offsets(&log), [0, 1]);
    // An open transaction: rounded down to the begin of its segment.
    let (_, log) = filled(&[]);
    for number in 0..3 {
        append(&log, &["v"]);
        log.roll().unwrap();
        if number == 1 {
            append(&log, &["v"]);
            produce(&log, (9, 0, 0), true, &["open"]).unwrap();
        }
    }
    let done = compact(&log, None);
    assert_eq!((done.first_uncleanable_offset, done.end_offset), (2, 2));
    assert_eq!(offsets(&log), [1, 2, 3, 4]);
    end(&log, 9, 0, true).unwrap();
    log.roll().unwrap();
    compact(&log, None);
    assert_eq!(offsets(&log), [4]);
    // The lag, by the greatest time of a segment.
    let (place, log) = filled(&[("min.compaction.lag.ms", "1000")]);
    for number in 0..4 {
        append_at(&log, NOW + 500 * number, "k", Some("v"));
        log.roll().unwrap();
    }
    place.set_clock(NOW + 1500);
    assert_eq!(compact(&log, None).first_uncleanable_offset, 2);
    assert_eq!(offsets(&log), [1, 2, 3]);
}

/// Contract 4.1: strictly above `min.cleanable.dirty.ratio`, or when a record has waited too long.
#[test]
fn a_log_is_due_when_it_is_dirty_enough() {
    let place = Place::new();
    let log = place.open(&[COMPACT[0], ("min.cleanable.dirty.ratio", "0.5")]);
    let dirty = || {
        append(&log, &["v"]);
        log.roll().unwrap();
    };
    let options = MaintainOptions {
        dry_run: true,
        ..MaintainOptions::default()
    };
    let is_due = |log: &LogWriter| log.maintain(&options).unwrap().compactions.len() == 1;
    assert!(!is_due(&log));
    dirty();
    assert!(is_due(&log));
    assert_eq!(
        log.maintain(&MaintainOptions::default())
            .unwrap()
            .compactions
            .len(),
        1
    );
    // One of two segments of the same size.
    dirty();
    assert!(!is_due(&log));
    log.set_config(&crate::common::config(&[
        COMPACT[0],
        ("max.compaction.lag.ms", "1000"),
        ("min.cleanable.dirty.ratio", "0.5"),
    ]))
    .unwrap();
    place.set_clock(NOW + 1000);
    assert!(!is_due(&log));
    place.set_clock(NOW + 1001);
    assert!(is_due(&log));
    log.set_config(&crate::common::config(&COMPACT)).unwrap();
    dirty();
    // Two of three.
    assert!(is_due(&log));
    log.set_config(&crate::common::config(&[])).unwrap();
    assert!(!is_due(&log), "the policy does not say so");
}

#[test]
fn where_a_pass_ended_is_remembered() {
    let place = Place::new();
    let log = place.open(&COMPACT);
    for key in ["a", "b", "a"] {
        append_at(&log, NOW, key, Some("v"));
    }
    log.roll().unwrap();
    assert_eq!(compact(&log, None).end_offset, 3);
    append_at(&log, NOW, "b", Some("v"));
    log.roll().unwrap();
    let killed = place.copy();
    log.close().unwrap();
    for place in [place, killed] {
        let log = place.again();
        assert_eq!(compact(&log, None).first_dirty_offset, 3);
        assert_eq!(keys(&log), owned(&[(2, "a"), (3, "b")]));
        // What is truncated has to be looked at again.
        log.truncate_to(2).unwrap();
        append_at(&log, NOW, "a", Some("v"));
        log.roll().unwrap();
        assert!(compact(&log, None).first_dirty_offset <= 2);
    }
}

#[test]
fn damage_stops_a_pass_and_stays() {
    let place = Place::new();
    let log = place.open(&COMPACT);
    for _ in 0..3 {
        append(&log, &["v"]);
        log.roll().unwrap();
    }
    log.close().unwrap();
    place.edit(&log_file(1), |bytes| bytes[65] ^= 1);
    let log = place.again();
    let before = place.data_files();
    let error = log.compact(&CompactOptions::default()).unwrap_err();
    assert_eq!(
        (error.kind().code(), error.path()),
        (
            "CorruptBatch",
            Some(crate::common::path(&log_file(1)).as_path())
        )
    );
    let mut after = place.data_files();
    after.retain(|name, _| before.contains_key(name));
    assert_eq!(after, before);
    assert!(
        place
            .files()
            .keys()
            .all(|name| !name.ends_with(".cleaned") && !name.ends_with(".swap"))
    );
}

/// Batches that nothing was taken of are copied, the codec's own bytes and all.
#[test]
fn what_loses_nothing_is_copied() {
    let place = Place::new();
    let log = place.open(&COMPACT);
    let batch = sent(&["v"]).gzip().attributes(0x8081);
    follow(&log, &batch.0, 0).unwrap();
    log.append(
        &mut builder(Producer::default(), &["w"]),
        &AppendOptions::default(),
    )
    .unwrap();
    let last = place.batches(0)[1].bytes.clone();
    log.roll().unwrap();
    compact(&log, None);
    assert_eq!(place.bytes(&log_file(0)), *last);
    let other = Place::new();
    let log = other.open(&COMPACT);
    follow(&log, &batch.0, 0).unwrap();
    log.roll().unwrap();
    compact(&log, None);
    assert_eq!(other.bytes(&log_file(0)), batch.0);
}
