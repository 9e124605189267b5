//! Idempotent and transactional producers: what is a duplicate, which sequence follows, what is remembered by whom.

use crate::common::{
    HOUR, NOW, Place, append, bounds, committed, coordinate, end, file, follow, lead, log_file,
    offsets, produce, scanned, sent, values,
};
use offsetlog::{
    AppendOptions, FetchOptions, Isolation, LogWriter, MarkerOptions, OnCorrupt, ScanOptions,
};

/// Base offset of what a producer's batch got, and whether it was a duplicate; or the kind of the refusal.
fn sends(
    log: &LogWriter,
    producer: (i64, i16, i32),
    values: &[&str],
) -> Result<(i64, bool), &'static str> {
    let given = produce(log, producer, false, values);
    given
        .map(|info| (info.base_offset, info.duplicate))
        .map_err(|error| error.kind().code())
}

#[test]
fn what_was_sent_before_is_answered_with_its_offsets() {
    let place = Place::new();
    let log = place.open(&[]);
    let first = produce(&log, (9, 1, 0), false, &["a", "b"]).unwrap();
    append(&log, &["between"]);
    let (before, changes) = (place.files(), place.disk.changes());
    let again = produce(&log, (9, 1, 0), false, &["a", "b"]).unwrap();
    assert!(again.duplicate && !first.duplicate);
    assert_eq!((again.base_offset, again.last_offset), (0, 1));
    // Contract 1.3, 9: the time is that of the first append.
    assert_eq!(again.log_append_time, NOW);
    let encoded = sent(&["a", "b"]).producer(9, 1, 0);
    assert!(lead(&log, &encoded).unwrap().duplicate);
    assert_eq!((place.files(), place.disk.changes()), (before, changes));
    assert_eq!(values(&log), ["a", "b", "between"]);
}

/// Contract 7.1: five batches are remembered, of the log as it was loaded one.
#[test]
fn duplicates_are_known_five_batches_back() {
    let place = Place::new();
    let log = place.open(&[]);
    for sequence in 0..7 {
        assert_eq!(
            sends(&log, (9, 0, sequence), &["v"]),
            Ok((i64::from(sequence), false))
        );
    }
    for sequence in 2..7 {
        assert_eq!(
            sends(&log, (9, 0, sequence), &["v"]),
            Ok((i64::from(sequence), true))
        );
    }
    for sequence in 0..2 {
        assert_eq!(
            sends(&log, (9, 0, sequence), &["v"]),
            Err("OutOfOrderSequence")
        );
    }
    log.close().unwrap();
    let log = place.again();
    assert_eq!(sends(&log, (9, 0, 6), &["v"]), Ok((6, true)));
    assert_eq!(sends(&log, (9, 0, 5), &["v"]), Err("OutOfOrderSequence"));
    assert_eq!(sends(&log, (9, 0, 7), &["v"]), Ok((7, false)));
}

#[test]
fn a_duplicate_is_the_same_sequences_in_the_same_epoch() {
    let place = Place::new();
    let log = place.open(&[]);
    sends(&log, (9, 0, 0), &["a", "b"]).unwrap();
    assert_eq!(sends(&log, (9, 0, 0), &["a"]), Err("OutOfOrderSequence"));
    // Of a newer epoch it is something new.
    assert_eq!(sends(&log, (9, 1, 0), &["a", "b"]), Ok((2, false)));
    // And of another producer.
    assert_eq!(sends(&log, (8, 0, 0), &["a", "b"]), Ok((4, false)));
    // A coordinator's are not asked for.
    let batch = sent(&["a", "b"]).producer(8, 0, 0);
    assert_eq!(coordinate(&log, &batch).unwrap().base_offset, 6);
}

/// Behind 2147483647 comes 0.
#[test]
fn sequences_begin_anew() {
    let place = Place::new();
    let log = place.open(&[]);
    assert_eq!(sends(&log, (9, 0, i32::MAX - 1), &["a"]), Ok((0, false)));
    assert_eq!(sends(&log, (9, 0, i32::MAX), &["b", "c"]), Ok((1, false)));
    assert_eq!(sends(&log, (9, 0, 0), &["x"]), Err("OutOfOrderSequence"));
    assert_eq!(sends(&log, (9, 0, 1), &["d"]), Ok((3, false)));
    assert_eq!(sends(&log, (9, 0, i32::MAX), &["b", "c"]), Ok((1, true)));
    assert_eq!(sends(&log, (8, 0, i32::MAX), &["a"]), Ok((4, false)));
    assert_eq!(sends(&log, (8, 0, 0), &["b"]), Ok((5, false)));
}

/// Contract 7.1: after a marker that raised the epoch 0 is wanted, after one that did not the next.
#[test]
fn what_follows_a_marker() {
    for (marker_epoch, expected) in [(0, 1), (1, 0)] {
        let place = Place::new();
        let log = place.open(&[]);
        produce(&log, (9, 0, 0), true, &["a"]).unwrap();
        end(&log, 9, marker_epoch, true).unwrap();
        let other = 1 - expected;
        let send = |sequence| {
            let given = produce(&log, (9, marker_epoch, sequence), true, &["b"]);
            given.map(|info| (info.base_offset, info.duplicate))
        };
        let refused = send(other);
        if (marker_epoch, other) == (0, 0) {
            // That one was there before.
            assert_eq!(refused.unwrap(), (0, true));
        } else {
            assert_eq!(refused.unwrap_err().kind().code(), "OutOfOrderSequence");
        }
        assert_eq!(send(expected).unwrap(), (2, false));
    }
}

/// Contract 7.1: a follower's leader has checked. Epochs may go down, and do.
#[test]
fn a_follower_takes_epochs_and_sequences_as_they_come() {
    let place = Place::new();
    let log = place.open(&[]);
    for (base, epoch, sequence) in [(0, 4, 0), (1, 4, 9), (2, 3, 5)] {
        let batch = sent(&["v"]).base(base).producer(9, epoch, sequence);
        follow(&log, &batch.0, 0).unwrap();
    }
    assert_eq!(sends(&log, (9, 3, 6), &["v"]), Ok((3, false)));
}

#[test]
fn the_first_open_transaction_holds_back_what_is_stable() {
    let place = Place::new();
    let log = place.open(&[]);
    let stable = || bounds(&log).2;
    append(&log, &["plain"]);
    produce(&log, (1, 0, 0), true, &["a"]).unwrap();
    produce(&log, (2, 0, 0), true, &["b"]).unwrap();
    assert_eq!(stable(), 1);
    end(&log, 2, 0, true).unwrap();
    assert_eq!(stable(), 1);
    assert_eq!(committed(&log), [(0, "plain".to_owned())]);
    produce(&log, (1, 0, 1), true, &["c"]).unwrap();
    end(&log, 1, 0, false).unwrap();
    assert_eq!(stable(), 6);
    let expected = [(0, "plain".to_owned()), (2, "b".to_owned())];
    assert_eq!(committed(&log), expected);
    // Closed, opened by a reader, or killed: the same.
    let reader = place.reader();
    assert_eq!((committed(&reader).len(), bounds(&reader).2), (2, 6));
    log.abandon();
    let again = place.recovered();
    assert_eq!((committed(&again).len(), bounds(&again).2), (2, 6));
}

/// Contract 7.1, 5: it is stored, and moves nothing but the producer's epoch.
#[test]
fn a_marker_without_a_transaction() {
    let place = Place::new();
    let log = place.open(&[]);
    assert_eq!(end(&log, 9, 5, false).unwrap().base_offset, 0);
    assert_eq!(end(&log, 9, 5, true).unwrap().base_offset, 1);
    assert!(!place.has(&file(0, ".txnindex")));
    assert_eq!((offsets(&log), bounds(&log)), (vec![], (0, 2, 2)));
    assert_eq!(sends(&log, (9, 4, 0), &["v"]), Err("ProducerFenced"));
}

/// Since version 2 of the protocol a marker's epoch is above that of the records; the same marker sent again is taken.
#[test]
fn a_marker_of_the_second_protocol() {
    let place = Place::new();
    let log = place.open(&[]);
    produce(&log, (9, 0, 0), true, &["a"]).unwrap();
    let marker = MarkerOptions {
        transaction_version: 2,
        ..crate::common::marker(9, 1, true)
    };
    for base in [1, 2] {
        let given = log
            .append_marker(&marker, &AppendOptions::default())
            .unwrap();
        assert_eq!(given.base_offset, base);
    }
    assert_eq!(committed(&log), [(0, "a".to_owned())]);
    assert_eq!(
        produce(&log, (9, 1, 0), true, &["b"]).unwrap().base_offset,
        3
    );
}

/// Contract 7.3: by the time of its last record a producer is forgotten, and those with an open transaction are not.
#[test]
fn producers_are_forgotten_after_a_day() {
    let place = Place::new();
    let log = place.open(&[]);
    sends(&log, (9, 4, 0), &["a"]).unwrap();
    produce(&log, (8, 4, 0), true, &["b"]).unwrap();
    log.close().unwrap();
    place.set_clock(NOW + 24 * HOUR - 1);
    let log = place.again();
    assert_eq!(sends(&log, (9, 4, 0), &["a"]), Ok((0, true)));
    log.close().unwrap();
    place.set_clock(NOW + 24 * HOUR);
    let log = place.again();
    // Nobody knows the epoch nor the sequence.
    assert_eq!(sends(&log, (9, 3, 7), &["c"]), Ok((2, false)));
    let fenced = produce(&log, (8, 3, 0), true, &["d"]).unwrap_err();
    assert_eq!(fenced.kind().code(), "ProducerFenced");
    assert_eq!(bounds(&log).2, 1);
}

#[test]
fn producers_come_back_from_snapshots_or_batches() {
    let place = Place::new();
    let log = place.open(&[]);
    for sequence in 0..9 {
        produce(&log, (9, 2, sequence), false, &["v"]).unwrap();
        if sequence % 3 == 2 {
            log.roll().unwrap();
        }
    }
    produce(&log, (8, 0, 0), true, &["open"]).unwrap();
    log.close().unwrap();
    let snapshots = [
        file(3, ".snapshot"),
        file(6, ".snapshot"),
        file(9, ".snapshot"),
        file(10, ".snapshot"),
    ];
    let damages: [fn(&Place, &str); 3] = [
        |place, name| place.remove(name),
        |place, name| place.put(name, b"garbage"),
        |place, name| place.put(name, b""),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        for last in 0..snapshots.len() {
            for clean in [true, false] {
                let place = place.copy();
                for name in snapshots[last..].iter().filter(|name| place.has(name)) {
                    damage(&place, name);
                }
                let write = if clean {
                    crate::common::clean()
                } else {
                    crate::common::unclean(0)
                };
                let log = place.try_again(write).unwrap();
                let case = format!("damage {number} from {last}, clean {clean}");
                assert_eq!(sends(&log, (9, 2, 8), &["v"]), Ok((8, true)), "{case}");
                assert_eq!(
                    sends(&log, (9, 2, 12), &["v"]),
                    Err("OutOfOrderSequence"),
                    "{case}"
                );
                assert_eq!(sends(&log, (9, 2, 9), &["v"]), Ok((10, false)), "{case}");
                assert_eq!(bounds(&log).2, 9, "{case}");
                assert!(
                    produce(&log, (8, 0, 0), true, &["open"]).unwrap().duplicate,
                    "{case}"
                );
            }
        }
    }
}

/// A marker that cannot be read is not the unfinished end if batches stand behind it: what it aborted is not shown.
#[test]
fn a_damaged_marker_in_the_active_segment_hides_what_became_of_its_transaction() {
    for (is_open, interval) in [(true, "0"), (false, "0"), (true, "4096"), (false, "4096")] {
        let place = Place::new();
        let log = place.open(&[("index.interval.bytes", interval)]);
        produce(&log, (7, 0, 0), true, &["aborted"]).unwrap();
        let marker = end(&log, 7, 0, false).unwrap().base_offset;
        append(&log, &["behind"]);
        // Of another transaction, of which all can be read.
        produce(&log, (8, 0, 0), true, &["committed"]).unwrap();
        end(&log, 8, 0, true).unwrap();
        append(&log, &["end"]);
        let at = place.batches(0)[0].bytes.len();
        assert_eq!((marker, committed(&log).len()), (1, 3));
        if !is_open {
            log.close().unwrap();
        }
        place.edit(&log_file(0), |bytes| bytes[at + 65] ^= 1);
        let reader = place.reader();
        for log in is_open.then_some(&*log).into_iter().chain([&reader]) {
            let read = |on_corrupt| {
                let options = ScanOptions {
                    isolation: Isolation::ReadCommitted,
                    on_corrupt,
                    ..ScanOptions::default()
                };
                scanned(log, &options)
            };
            let error = read(OnCorrupt::Raise).unwrap_err();
            assert_eq!(error.position(), Some(at as u64), "{error}");
            let seen = read(OnCorrupt::Skip).unwrap();
            let all = [(2, "behind"), (3, "committed"), (5, "end")];
            assert_eq!(seen, all.map(|(offset, value)| (offset, value.to_owned())));
            let behind = ScanOptions {
                isolation: Isolation::ReadCommitted,
                on_corrupt: OnCorrupt::Skip,
                start: Some(2),
                ..ScanOptions::default()
            };
            assert_eq!(scanned(log, &behind).unwrap(), seen);
            let fetch = FetchOptions {
                isolation: Isolation::ReadCommitted,
                ..FetchOptions::default()
            };
            assert!(log.fetch(0, &fetch).unwrap_err().is_corruption());
        }
    }
}
