//! What is refused, why, and that a refusal changes nothing: not one byte, name or time of the whole disk is written.

use crate::common::{
    NOW, Place, Sent, append, append_at, coordinate, end, follow, lead, produce, sent, try_append,
};
use offsetlog::{AppendInfo, Error, LogWriter};

const LAST: i64 = i64::MAX;

/// A log of three records at epoch 2 with a transaction of producer 5, epoch 3, open since offset 2; everything is on the disk.
fn usual(settings: &[(&str, &str)]) -> (Place, LogWriter) {
    let place = Place::new();
    let log = place.open(&[]);
    append(&log, &["a", "b"]);
    let batch = sent(&["t"]).producer(5, 3, 0).attributes(0x10);
    let options = offsetlog::AppendOptions {
        leader_epoch: Some(2),
        flush: true,
    };
    log.append_batches(&batch.0, offsetlog::AppendOrigin::Client, &options)
        .unwrap();
    if !settings.is_empty() {
        log.set_config(&crate::common::config(settings)).unwrap();
    }
    (place, log)
}

fn state(log: &LogWriter) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        crate::common::bounds(log),
        log.leader_epoch().unwrap(),
        log.recovery_point(),
        crate::common::records(log),
        crate::common::bases(log),
        log.config(),
    )
}

/// Calls, and asks that it is refused as this kind, with these words, that nothing was written, and that the log goes on.
fn refused<T>(
    place: &Place,
    log: &LogWriter,
    kind: &str,
    words: &str,
    call: impl FnOnce(&LogWriter) -> Result<T, Error>,
) {
    let (before, changes) = (state(log), place.disk.changes());
    let Err(error) = call(log) else {
        panic!("not refused: {kind} {words}");
    };
    assert_eq!(error.kind().code(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}\n{words}");
    assert_eq!(place.disk.changes(), changes, "{error}");
    assert_eq!(state(log), before, "{error}");
}

/// And that the next append gets the next offset.
fn goes_on(log: &LogWriter) {
    let next = log.log_end_offset().unwrap();
    assert_eq!(append(log, &["fine"]).base_offset, next);
}

type Case = (&'static str, &'static str, Sent);

fn check(
    settings: &[(&str, &str)],
    send: fn(&LogWriter, &Sent) -> Result<AppendInfo, Error>,
    cases: Vec<Case>,
) {
    let (place, log) = usual(settings);
    for (kind, words, batch) in cases {
        refused(&place, &log, kind, words, |log| send(log, &batch));
    }
    goes_on(&log);
}

fn together(first: Sent, second: &Sent) -> Sent {
    Sent([first.0, second.0.clone()].concat())
}

/// Kafka's `LogValidator` and the look at each batch before: contract 1.2 to 1.4.
#[test]
fn batches_that_no_leader_takes() {
    let x = || sent(&["x"]);
    let mut magic = x();
    magic.0[16] = 3;
    let mut short = x();
    short.0[8..12].copy_from_slice(&13_i32.to_be_bytes());
    let mut zeros = x();
    zeros.0.extend_from_slice(&[0; 30]);
    let refuse = "RecordRejected";
    check(
        &[],
        lead,
        vec![
            (refuse, "base offset 3 found, 0 expected", x().base(3)),
            (refuse, "2 batches found, 1 expected", together(x(), &x())),
            (refuse, "2 records counted, 1 expected", x().count(2)),
            (refuse, "0 records counted, 1 expected", x().count(0)),
            (refuse, "-1 records counted", x().count(-1)),
            (refuse, "1 records counted, 2 expected", x().last_delta(1)),
            (
                refuse,
                "clients may not append control records",
                x().attributes(0x20),
            ),
            (
                refuse,
                "base sequence -1 found for producer id 5",
                x().producer(5, 3, -1),
            ),
            // The count that the header gives is not that of the records.
            (refuse, "record", x().count(2).last_delta(1)),
            (refuse, "record", sent(&["x", "y"]).count(1).last_delta(0)),
            ("UnsupportedCodec", "5", x().attributes(5)),
            ("UnsupportedCodec", "6", x().attributes(6)),
            ("UnsupportedCodec", "7", x().attributes(7)),
            (
                "UnsupportedMagic",
                "magic 3 found, 0, 1 or 2 expected",
                magic,
            ),
            (refuse, "length 13 found, 14 to 2147483647 expected", short),
            (refuse, "length 0 found", zeros),
            (
                refuse,
                "gzip decompression failed",
                x().payload(b"not gzip at all").attributes(1),
            ),
        ],
    );
}

#[test]
fn every_bit_that_flipped_on_its_way_is_seen() {
    let (place, log) = usual(&[]);
    // Offset, length, epoch and magic stand before what is covered.
    for at in 17..sent(&["x"]).len() {
        for bit in 0..8 {
            let (mut client, mut follower) = (sent(&["x"]), sent(&["x"]).base(50));
            client.0[at] ^= 1 << bit;
            follower.0[at] ^= 1 << bit;
            let calls = [
                lead(&log, &client),
                coordinate(&log, &client),
                follow(&log, &follower.0, 9),
            ];
            for call in calls {
                let error = call.unwrap_err();
                assert_eq!(error.kind().code(), "RecordRejected", "{at} {bit}");
                assert!(!error.is_corruption(), "{at} {bit}: {error}");
            }
        }
    }
    assert_eq!(log.log_end_offset().unwrap(), 3);
    refused(&place, &log, "RecordRejected", "checksum mismatch", |log| {
        let mut second = sent(&["y"]).base(51);
        *second.0.last_mut().unwrap() ^= 1;
        // The first one is right, and is not appended either.
        follow(log, &together(sent(&["x"]).base(50), &second).0, 9)
    });
    goes_on(&log);
}

/// Contract 1.3, f and 7. Of what a follower is sent one batch may be of any size.
#[test]
fn sizes() {
    let fits = sent(&["v"]).len();
    let maximum = (fits + 20).to_string();
    let (place, log) = usual(&[("max.message.bytes", &maximum)]);
    let (exact, above) = ("v".repeat(21), "v".repeat(22));
    assert_eq!(sent(&[&exact]).len(), fits + 20);
    append(&log, &[&exact]);
    lead(&log, &sent(&[&exact])).unwrap();
    let words = format!(
        "{} bytes found, at most {maximum} bytes expected (max.message.bytes)",
        fits + 21
    );
    let kind = "RecordTooLarge";
    refused(&place, &log, kind, &words, |log| try_append(log, &[&above]));
    refused(&place, &log, kind, &words, |log| {
        lead(log, &sent(&[&above]))
    });
    refused(&place, &log, kind, &words, |log| {
        coordinate(log, &sent(&[&above]))
    });
    follow(&log, &sent(&[&above]).base(50).0, 0).unwrap();
    // What counts is the batch as it would be stored.
    let small = sent(&[&"v".repeat(5000)]).gzip();
    log.set_config(&crate::common::config(&[("max.message.bytes", "200")]))
        .unwrap();
    assert!(small.len() < 200);
    lead(&log, &small).unwrap();
    let settings = [
        ("max.message.bytes", "200"),
        ("compression.type", "uncompressed"),
    ];
    log.set_config(&crate::common::config(&settings)).unwrap();
    refused(&place, &log, kind, "max.message.bytes", |log| {
        lead(log, &small)
    });

    // All of an append goes into one segment.
    let (place, log) = usual(&[("internal.segment.bytes", "300")]);
    let large = sent(&[&"v".repeat(300)]);
    let kind = "RecordBatchTooLarge";
    refused(
        &place,
        &log,
        kind,
        "at most 300 bytes expected (segment.bytes)",
        |log| lead(log, &large),
    );
    let many: Vec<u8> = (50..55)
        .flat_map(|base| sent(&["v"]).base(base).epoch(9).0)
        .collect();
    let words = format!("append of {} bytes found, at most 300", many.len());
    // Kafka has the new epoch written down by then.
    refused(&place, &log, kind, &words, |log| follow(log, &many, 9));
    goes_on(&log);
}

/// Contract 1.4: the limits themselves are accepted, and -1 always.
#[test]
fn times_too_far_away() {
    let (place, log) = usual(&[
        ("message.timestamp.before.max.ms", "1000"),
        ("message.timestamp.after.max.ms", "500"),
    ]);
    for time in [NOW - 1000, NOW + 500, -1] {
        append_at(&log, time, "k", Some("v"));
    }
    for time in [NOW - 1001, NOW + 501, 0] {
        let words =
            format!("timestamp {time} found, at most 1000 ms before and 500 ms after {NOW}");
        let batch = sent(&["x"]).times(time, time);
        let kind = "InvalidTimestamp";
        refused(&place, &log, kind, &format!("record 0: {words}"), |log| {
            lead(log, &batch)
        });
        refused(&place, &log, kind, &words, |log| {
            let mut batch = offsetlog::BatchBuilder::default();
            batch.push(NOW, None, None, &[])?;
            batch.push(time, None, None, &[])?;
            log.append(&mut batch, &offsetlog::AppendOptions::default())
        });
        // A follower's leader has looked.
        let next = log.log_end_offset().unwrap();
        follow(&log, &sent(&["x"]).base(next).times(time, time).0, 0).unwrap();
    }
    goes_on(&log);
    // Of the append's own time a client may not speak.
    let (place, log) = usual(&[("message.timestamp.type", "LogAppendTime")]);
    refused(&place, &log, "InvalidTimestamp", "timestamp", |log| {
        lead(log, &sent(&["x"]).attributes(8))
    });
    // With it any time of the caller's will do.
    append_at(&log, 5, "k", Some("v"));
}

#[test]
fn compacted_topics_want_keys() {
    use offsetlog_faults::batch::encode;
    for policy in ["compact", "compact,delete"] {
        let (place, log) = usual(&[("cleanup.policy", policy)]);
        let rows = [(Some(vec![]), None), (None, Some(vec![1]))];
        let batch = Sent(encode(0, 0, NOW, &rows).bytes.to_vec());
        let words = "record 1 has no key, which compaction needs (cleanup.policy=compact)";
        refused(&place, &log, "RecordRejected", words, |log| {
            lead(log, &batch)
        });
        refused(&place, &log, "RecordRejected", words, |log| {
            coordinate(log, &batch)
        });
        refused(&place, &log, "RecordRejected", words, |log| {
            let mut batch = offsetlog::BatchBuilder::default();
            batch.push(NOW, Some(b"k"), None, &[])?;
            batch.push(NOW, None, Some(b"v"), &[])?;
            log.append(&mut batch, &offsetlog::AppendOptions::default())
        });
        follow(&log, &batch.base(50).0, 0).unwrap();
        goes_on(&log);
    }
}

/// Contract 1.3, e, i and 5, and 6 for the epoch.
#[test]
fn offsets_and_epochs_of_a_follower() {
    let follow_9: fn(&LogWriter, &Sent) -> Result<AppendInfo, Error> =
        |log, batch| follow(log, &batch.0, 9);
    let at = |base| sent(&["x"]).base(base).epoch(9);
    check(
        &[],
        follow_9,
        vec![
            (
                "UnexpectedAppendOffset",
                "first offset 2 found, 3 or more expected",
                at(2),
            ),
            (
                "OffsetsOutOfOrder",
                "do not ascend",
                together(at(20), &at(20)),
            ),
            (
                "OffsetsOutOfOrder",
                "do not ascend",
                together(at(20), &at(19)),
            ),
            ("Argument", "leader_epoch: -1 found", at(20).epoch(-1)),
            // The second batch overlaps the first: Kafka stores that.
            (
                "OffsetsOutOfOrder",
                "do not ascend",
                together(
                    sent(&["x", "y"]).base(20).epoch(9),
                    &sent(&["x", "y"]).base(21).epoch(9),
                ),
            ),
        ],
    );
}

/// Behind the last offset of all there is no log end offset.
#[test]
fn the_last_offset_of_all() {
    let place = Place::new();
    let log = place.open(&[]);
    follow(&log, &sent(&["x"]).base(LAST - 2).0, 0).unwrap();
    log.flush().unwrap();
    let kind = "AppendTooWide";
    refused(&place, &log, kind, "", |log| try_append(log, &["y", "z"]));
    refused(&place, &log, kind, "", |log| lead(log, &sent(&["y", "z"])));
    refused(&place, &log, kind, "", |log| {
        follow(log, &sent(&["y"]).base(LAST).0, 0)
    });
    assert_eq!(append(&log, &["fits"]).base_offset, LAST - 1);
    refused(&place, &log, kind, "", |log| try_append(log, &["y"]));
    refused(&place, &log, kind, "", |log| end(log, 1, 0, true));
    log.abandon();
    let again = place.recovered();
    assert_eq!(again.log_end_offset().unwrap(), LAST);
    assert_eq!(crate::common::values(&again), ["x", "fits"]);
}

/// Contract 7.1, 3 and what a duplicate is no more.
#[test]
fn sequences() {
    let (place, log) = usual(&[]);
    // Nobody knows producer 7: any sequence will do.
    produce(&log, (7, 1, 10), false, &["a", "b"]).unwrap();
    let cases = [
        ((7, 1, 13), "13 found, 12 expected"),
        ((7, 1, 9), "9 found, 12 expected"),
        ((7, 1, 0), "0 found, 12 expected"),
        // A part of what was sent is no duplicate.
        ((7, 1, 11), "11 found, 12 expected"),
        // A new epoch begins at 0.
        ((7, 2, 12), "12 found, 0 expected"),
    ];
    for (producer, words) in cases {
        let kind = "OutOfOrderSequence";
        refused(&place, &log, kind, words, |log| {
            produce(log, producer, false, &["x"])
        });
        let (id, epoch, sequence) = producer;
        let batch = sent(&["x"]).producer(id, epoch, sequence);
        refused(&place, &log, kind, words, |log| lead(log, &batch));
        // Not even the leader's new epoch is written down; Kafka does that.
        let options = offsetlog::AppendOptions {
            leader_epoch: Some(9),
            flush: true,
        };
        refused(&place, &log, kind, words, |log| {
            log.append_batches(&batch.0, offsetlog::AppendOrigin::Client, &options)
        });
    }
    goes_on(&log);
}

/// Contract 7.1: a refusal that comes after a roll was due does not roll (Kafka does, and leaves an empty segment).
#[test]
fn a_refusal_does_not_roll() {
    let (place, log) = usual(&[("internal.segment.bytes", "300")]);
    produce(&log, (7, 1, 0), false, &["a"]).unwrap();
    log.flush().unwrap();
    let batch = sent(&[&"v".repeat(200)]).producer(7, 1, 9);
    refused(
        &place,
        &log,
        "OutOfOrderSequence",
        "9 found, 1 expected",
        |log| lead(log, &batch),
    );
    goes_on(&log);
}

#[test]
fn producers_and_coordinators_that_were_replaced() {
    let (place, log) = usual(&[]);
    produce(&log, (7, 4, 0), false, &["a"]).unwrap();
    let fenced = "ProducerFenced";
    refused(
        &place,
        &log,
        fenced,
        "producer 7 is fenced: epoch 3 found, at least 4 expected",
        |log| produce(log, (7, 3, 1), false, &["x"]),
    );
    let behind = sent(&["x"]).producer(7, 3, 1);
    refused(&place, &log, fenced, "epoch 3 found, at least 4", |log| {
        coordinate(log, &behind)
    });
    refused(&place, &log, fenced, "epoch 3 found, at least 4", |log| {
        end(log, 7, 3, true)
    });
    // Since version 2 each transaction has an epoch of its own, and its marker is one above.
    let options = offsetlog::MarkerOptions {
        transaction_version: 2,
        ..crate::common::marker(5, 3, true)
    };
    refused(
        &place,
        &log,
        fenced,
        "producer 5 is fenced: epoch 3 found, at least 4",
        |log| log.append_marker(&options, &offsetlog::AppendOptions::default()),
    );
    // What is not transactional has no place in a transaction.
    let words = "a transaction of producer 5 is open since offset 2";
    refused(&place, &log, "InvalidTxnState", words, |log| {
        produce(log, (5, 3, 1), false, &["x"])
    });
    let of = |coordinator_epoch| offsetlog::MarkerOptions {
        coordinator_epoch,
        ..crate::common::marker(5, 3, true)
    };
    log.append_marker(&of(8), &offsetlog::AppendOptions::default())
        .unwrap();
    let words = "coordinator epoch 7 found, at least 8 expected";
    refused(&place, &log, "TransactionCoordinatorFenced", words, |log| {
        log.append_marker(&of(7), &offsetlog::AppendOptions::default())
    });
    goes_on(&log);
}

#[test]
fn a_batch_that_unpacks_to_more_than_is_allowed() {
    let place = Place::new();
    let options = offsetlog::OpenOptions {
        limits: offsetlog::Limits {
            max_decompressed_bytes: 10_000,
            ..offsetlog::Limits::default()
        },
        ..place.options()
    };
    let write = offsetlog::WriteOptions {
        config: Some(crate::common::config(&[])),
        ..offsetlog::WriteOptions::default()
    };
    let log = LogWriter::open(offsetlog_faults::run::PARTITION, &options, &write).unwrap();
    append(&log, &["a"]);
    let bomb = sent(&[&"v".repeat(1 << 20)]).gzip();
    refused(
        &place,
        &log,
        "DecompressionLimit",
        "max_decompressed_bytes",
        |log| lead(log, &bomb),
    );
    goes_on(&log);
}

#[test]
fn arguments_outside_the_log() {
    let (place, log) = usual(&[]);
    let range = "OffsetOutOfRange";
    refused(
        &place,
        &log,
        range,
        "offset 4 is out of range: readable offsets are 0 to 2",
        |log| log.delete_records_before(4),
    );
    refused(&place, &log, range, "offset -1", |log| {
        log.delete_records_before(-1)
    });
    refused(&place, &log, range, "offset 3", |log| log.get(3));
    refused(&place, &log, range, "offset 4", |log| {
        log.fetch(4, &offsetlog::FetchOptions::default())
    });
    let bad = "Argument";
    refused(&place, &log, bad, "-1 found, 0 or more expected", |log| {
        log.truncate_to(-1)
    });
    refused(&place, &log, bad, "-1 found", |log| {
        log.truncate_fully_and_start_at(-1, None)
    });
    refused(&place, &log, bad, "6 found, 0 to 5 expected", |log| {
        log.truncate_fully_and_start_at(5, Some(6))
    });
    goes_on(&log);
}

#[test]
fn a_second_writer() {
    let (place, log) = usual(&[]);
    let (before, changes) = (place.files(), place.disk.changes());
    let error = place
        .try_again(offsetlog::WriteOptions::default())
        .unwrap_err();
    assert_eq!(error.kind().code(), "Locked", "{error}");
    let error = offsetlog::recover(
        log.path(),
        &place.options(),
        &offsetlog::RecoverOptions::default(),
    );
    assert_eq!(error.unwrap_err().kind().code(), "Locked");
    assert_eq!((place.files(), place.disk.changes()), (before, changes));
    goes_on(&log);
    log.close().unwrap();
    goes_on(&place.again());
}
