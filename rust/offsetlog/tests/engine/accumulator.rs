//! What a record accumulator gathers into a batch, by size and by a clock that the tests move.

use crate::common::{NOW, Place, append, offsets, values};
use offsetlog::format::Codec;
use offsetlog::{AppendOptions, ErrorKind, LogWriter, RecordAccumulator, ScanOptions};
use offsetlog_faults::fault::{Call, FaultDisk, Plan};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn add(records: &mut RecordAccumulator, now: Instant, value: &str) -> bool {
    records
        .push(|| now, NOW, Some(b"k"), Some(value.as_bytes()), &[])
        .unwrap()
}

fn plain(batch_bytes: usize, linger: Option<Duration>) -> RecordAccumulator {
    RecordAccumulator::new(Codec::None, batch_bytes, linger)
}

fn append_all(records: &mut RecordAccumulator, log: &LogWriter) -> Option<(i64, i64)> {
    let info = records.append_to(log, &AppendOptions::default()).unwrap();
    info.map(|info| (info.base_offset, info.last_offset))
}

/// Kafka: `MemoryRecordsBuilder.hasRoomFor` counts a record's exact size, and one record always has room.
#[test]
fn a_batch_is_at_most_as_large_as_it_may_be() {
    let place = Place::new();
    let log = place.open(&[]);
    let now = Instant::now();
    // A header of 61 bytes, and 2 + 7 bytes beside each value of 100: a length of two bytes, one byte each for attributes, both
    // deltas, the key's length, the key and the number of headers, and two for the value's length.
    let value = "v".repeat(100);
    for (batch_bytes, expected) in [
        (61 + 3 * 110, 3),
        (61 + 3 * 110 - 1, 2),
        (61 + 4 * 110 - 1, 3),
        (1, 1),
    ] {
        let mut records = plain(batch_bytes, None);
        let mut taken = 0;
        while add(&mut records, now, &value) {
            taken += 1;
        }
        assert_eq!(
            (taken, records.len()),
            (expected, expected),
            "{batch_bytes}"
        );
        assert_eq!(records.is_full(), batch_bytes <= 61 + expected * 110);
        append_all(&mut records, &log);
        assert!(records.is_empty() && !records.is_full());
        let size = place.batches(0).last().unwrap().bytes.len();
        assert_eq!(size, 61 + expected * 110);
    }
}

#[test]
fn the_oldest_record_says_how_long_is_left() {
    let place = Place::new();
    let log = place.open(&[]);
    let start = Instant::now();
    let mut records = plain(1 << 20, Some(5 * MS));
    assert_eq!(records.time_left(start), None);
    assert_eq!(append_all(&mut records, &log), None);
    add(&mut records, start, "a");
    add(&mut records, start + 3 * MS, "b");
    assert_eq!(records.time_left(start), Some(5 * MS));
    assert_eq!(records.time_left(start + 4 * MS), Some(MS));
    assert_eq!(records.time_left(start + 5 * MS), Some(Duration::ZERO));
    assert_eq!(records.time_left(start + 500 * MS), Some(Duration::ZERO));
    // A clock that another thread read earlier.
    add(&mut records, start, "c");
    assert_eq!(records.time_left(start), Some(5 * MS));
    assert_eq!(append_all(&mut records, &log), Some((0, 2)));
    assert_eq!(records.time_left(start + 500 * MS), None);
    add(&mut records, start + 600 * MS, "d");
    assert_eq!(records.time_left(start + 601 * MS), Some(4 * MS));
    let mut patient = plain(1 << 20, None);
    add(&mut patient, start, "e");
    assert_eq!(patient.time_left(start + 500 * MS), None);
    let mut hasty = plain(1 << 20, Some(Duration::ZERO));
    add(&mut hasty, start, "f");
    assert_eq!(hasty.time_left(start), Some(Duration::ZERO));
}

#[test]
fn the_time_is_asked_for_the_first_record_only() {
    let mut asked = 0;
    let mut records = plain(1 << 20, Some(MS));
    for _ in 0..3 {
        let now = || {
            asked += 1;
            Instant::now()
        };
        records.push(now, NOW, None, None, &[]).unwrap();
    }
    assert_eq!((records.len(), asked), (3, 1));
}

#[test]
fn a_refused_batch_is_dropped() {
    let place = Place::new();
    let log = place.open(&[("max.message.bytes", "100")]);
    let mut records = plain(1 << 20, None);
    for value in ["a".repeat(30), "b".repeat(30)] {
        add(&mut records, Instant::now(), &value);
    }
    let error = records
        .append_to(&log, &AppendOptions::default())
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::RecordTooLarge { .. }),
        "{error}"
    );
    assert!(records.is_empty());
    assert_eq!(log.log_end_offset().unwrap(), 0);
}

/// Every place of a record that cannot be in the log, in batches of up to nine.
#[test]
fn what_comes_before_a_refused_record_is_appended() {
    for codec in [Codec::None, Codec::Lz4] {
        for count in 1..=9_usize {
            for bad in 0..=count {
                let place = Place::new();
                let log = place.open(&[]);
                append(&log, &["before"]);
                let mut records = RecordAccumulator::new(codec, 1 << 20, None);
                let headers = [
                    (b"h".as_slice(), None),
                    (b"i".as_slice(), Some(b"1".as_slice())),
                ];
                for at in 0..count {
                    // Beyond message.timestamp.after.max.ms.
                    let timestamp = if at == bad { NOW * 2 } else { NOW + at as i64 };
                    let value = format!("v{at}");
                    let taken = records.push(
                        Instant::now,
                        timestamp,
                        None,
                        Some(value.as_bytes()),
                        &headers,
                    );
                    assert!(taken.unwrap());
                }
                let done = records.append_up_to_refused(&log, &AppendOptions::default());
                let told = format!("{count} {bad}");
                assert!(records.is_empty(), "{told}");
                assert_eq!(done.records, bad.min(count), "{told}");
                assert_eq!(done.error.is_some(), bad < count, "{told}");
                assert!(done.error.is_none_or(|error| error.is_refusal()), "{told}");
                let offsets = done.info.map(|info| (info.base_offset, info.last_offset));
                assert_eq!(
                    offsets,
                    (done.records > 0).then_some((1, done.records as i64)),
                    "{told}"
                );
                let expected: Vec<_> = (0..done.records).map(|at| format!("v{at}")).collect();
                assert_eq!(values(&log)[1..], expected, "{told}");
                let mut scan = log.scan(&ScanOptions::default()).unwrap();
                while let Some(mut batch) = scan.next_batch().unwrap() {
                    while let Some(record) = batch.next_record().unwrap() {
                        if record.offset > 0 {
                            assert_eq!(record.timestamp, NOW + record.offset - 1, "{told}");
                            assert!(record.headers.iter().eq(headers), "{told}");
                        }
                    }
                }
            }
        }
    }
}

/// Whoever gives the records of such an error to the log again has them twice.
#[test]
fn records_whose_sync_failed_count_as_appended() {
    let place = Place::new();
    let disk = FaultDisk::over(&place.disk, Plan::none());
    let log = place.open_over(&disk, &[]);
    append(&log, &["a"]);
    let mut records = plain(1 << 20, None);
    for value in ["b", "c"] {
        add(&mut records, Instant::now(), value);
    }
    disk.set(Plan {
        kinds: |call, _| call == Call::Sync,
        nth: 1,
        ..Plan::none()
    });
    let flush = AppendOptions {
        leader_epoch: None,
        flush: true,
    };
    let done = records.append_up_to_refused(&log, &flush);
    let (error, info) = (done.error.unwrap(), done.info.unwrap());
    assert!(error.is_appended(), "{error}");
    assert_eq!(
        (done.records, info.base_offset, info.last_offset),
        (2, 1, 2)
    );
    assert_eq!(offsets(&log), [0, 1, 2]);
    assert!(records.is_empty());
    // The log takes nothing any more, and says so of the next one alone.
    add(&mut records, Instant::now(), "d");
    let done = records.append_up_to_refused(&log, &flush);
    assert!(done.error.is_some_and(|error| !error.is_appended()));
    assert_eq!((done.records, done.info), (0, None));
}
