//! When a segment ends and the next begins, and what the old and the new one look like.

use crate::common::{
    HOUR, NOW, Place, append, append_at, bases, end, file, follow, log_file, produce, records,
    sent, sized, values,
};

/// Magic, checksum and count of no producers: contract 3.
const EMPTY_SNAPSHOT: [u8; 10] = [0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0];

/// Contract 3, 1: an exact fit stays.
#[test]
fn by_size_an_exact_fit_stays() {
    let cases: [(&[usize], &[i64]); 4] = [
        (&[499, 499], &[0]),
        (&[500, 500, 500], &[0, 2]),
        (&[501, 501, 501], &[0, 1, 2]),
        (&[1000, 71, 929, 71], &[0, 1, 3]),
    ];
    for (sizes, expected) in cases {
        let place = Place::new();
        let log = place.open(&[("internal.segment.bytes", "1000")]);
        for (offset, &size) in (0..).zip(sizes) {
            follow(&log, &sized(size).base(offset).0, 0).unwrap();
        }
        assert_eq!(bases(&log), expected, "{sizes:?}");
    }
}

/// Contract 3, 2 and the last rows of 3.5 of maintenance: the times of records count where they have any, else the clock.
#[test]
fn by_time_of_the_records_or_of_the_clock() {
    // What the clock moves, the record's time, and whether a segment begins with it; the first record has the first time.
    let with_times = [
        (10 * HOUR, NOW + HOUR, false),
        (0, NOW + HOUR + 1, true),
        (10 * HOUR, -1, false),
        (0, NOW + HOUR + 1 + HOUR, false),
        (0, NOW, false),
        (0, NOW + 2 * HOUR + 2, true),
    ];
    let without = [
        (0, -1, false),
        (HOUR, -1, false),
        (1, -1, true),
        (HOUR, -1, false),
    ];
    for (first, cases) in [(NOW, &with_times[..]), (-1, &without[..])] {
        let place = Place::new();
        let log = place.open(&[("segment.ms", &HOUR.to_string())]);
        append_at(&log, first, "k", Some("v"));
        let (mut clock, mut expected) = (NOW, vec![0]);
        for (offset, &(wait, timestamp, rolls)) in (1..).zip(cases) {
            clock += wait;
            place.set_clock(clock);
            append_at(&log, timestamp, "k", Some("v"));
            expected.extend(rolls.then_some(offset));
            assert_eq!(bases(&log), expected, "record {offset}");
        }
    }
}

/// An empty segment is not rolled by any time, and compacted topics roll before their records may be compacted too late.
#[test]
fn by_time_only_what_holds_records() {
    let place = Place::new();
    let log = place.open(&[
        ("segment.ms", &(9 * HOUR).to_string()),
        ("max.compaction.lag.ms", &HOUR.to_string()),
        ("cleanup.policy", "compact"),
    ]);
    place.set_clock(NOW + 101 * HOUR);
    append_at(&log, NOW + 100 * HOUR, "k", Some("v"));
    assert_eq!(bases(&log), [0]);
    append_at(&log, NOW + 101 * HOUR, "k", Some("v"));
    append_at(&log, NOW + 101 * HOUR + 1, "k", Some("v"));
    assert_eq!(bases(&log), [0, 2]);
}

/// Contract 3, 3: of the time index the last place is kept for the end of the segment.
#[test]
fn by_an_index_that_is_full() {
    // Each batch but the first gets an entry, of 8 bytes and, with a new time, of 12.
    for (bytes, with_times, batches) in [("24", true, 2), ("24", false, 4), ("48", true, 4)] {
        let place = Place::new();
        let log = place.open(&[
            ("segment.index.bytes", bytes),
            ("index.interval.bytes", "0"),
        ]);
        for number in 0..20 {
            let time = if with_times { NOW + number } else { -1 };
            append_at(&log, time, "k", Some("v"));
        }
        let expected: Vec<i64> = (0..20).step_by(batches).collect();
        assert_eq!(bases(&log), expected, "{bytes} bytes, times {with_times}");
        log.abandon();
        let again = place.recovered();
        assert_eq!(records(&again).len(), 20);
        assert_eq!(again.recovery_report().cut, []);
    }
}

/// A follower's append of many batches never fills an index in its middle (12.7).
#[test]
fn an_append_that_would_fill_the_index_goes_to_the_next_segment() {
    let place = Place::new();
    let log = place.open(&[("segment.index.bytes", "48"), ("index.interval.bytes", "0")]);
    append(&log, &["v"]);
    append(&log, &["v"]);
    let many: Vec<u8> = (2..6).flat_map(|base| sent(&["v"]).base(base).0).collect();
    follow(&log, &many, 0).unwrap();
    append(&log, &["v"]);
    assert_eq!(records(&log).len(), 7);
    log.abandon();
    let again = place.recovered();
    assert_eq!(records(&again).len(), 7);
    assert_eq!(again.recovery_report().cut, []);
    again.close().unwrap();
    assert!(
        place
            .recovered()
            .verify(&offsetlog::VerifyOptions::default())
            .unwrap()
            .findings
            .is_empty()
    );
}

#[test]
fn what_a_roll_leaves() {
    let place = Place::new();
    let log = place.open(&[]);
    append(&log, &["a", "b"]);
    assert_eq!(place.bytes(&file(0, ".index")).len(), 1000);
    assert_eq!(log.roll().unwrap(), 2);
    assert_eq!(place.bytes(&file(0, ".index")), b"");
    // By the last offset of the batch that has it.
    assert_eq!(place.time_entries(0), [(NOW, 1)]);
    assert_eq!(place.bytes(&log_file(2)), b"");
    assert_eq!(place.bytes(&file(2, ".snapshot")), EMPTY_SNAPSHOT);
    // The old segment is on the disk soon.
    assert_eq!(log.recovery_point(), 2);
    append(&log, &["c"]);
    assert_eq!((bases(&log), values(&log).len()), (vec![0, 2], 3));
    let active = log.segments().unwrap();
    assert_eq!((active[0].is_active, active[1].is_active), (false, true));
}

/// 12.17: an empty segment stays, whoever asks for a new one.
#[test]
fn a_roll_of_an_empty_segment_changes_nothing() {
    let place = Place::new();
    let log = place.open(&[]);
    let before = place.files();
    assert_eq!(log.roll().unwrap(), 0);
    assert_eq!(place.files(), before);
    append(&log, &["a"]);
    assert_eq!((log.roll().unwrap(), log.recovery_point()), (1, 1));
    let before = place.files();
    assert_eq!(log.roll().unwrap(), 1);
    assert_eq!(place.files(), before);
}

#[test]
fn preallocated_files_are_trimmed() {
    let place = Place::new();
    let log = place.open(&[("preallocate", "true"), ("internal.segment.bytes", "5000")]);
    let size = |base| place.bytes(&log_file(base)).len();
    append(&log, &["a"]);
    assert_eq!(size(0), 5000);
    // Its zeros are no records, for whoever looks.
    let reader = place.reader();
    assert_eq!(
        (values(&reader), reader.log_end_offset().unwrap()),
        (values(&log), 1)
    );
    log.roll().unwrap();
    append(&log, &["other"]);
    assert!(log.truncate_to(1).unwrap());
    append(&log, &["b"]);
    assert_eq!(values(&log), ["a", "b"]);
    assert_eq!(size(0), sent(&["a"]).len());
    let killed = place.copy();
    log.close().unwrap();
    assert_eq!(size(1), sent(&["b"]).len());
    let again = killed.again();
    assert_eq!(again.recovery_report().kept().count(), 0);
    append(&again, &["c"]);
    assert_eq!(values(&again), ["a", "b", "c"]);
}

/// Kafka's snapshot: version 1, CRC-32C of what follows, count, entries of 46 bytes (contract 7.4).
#[test]
fn producers_are_written_down_at_a_roll() {
    let place = Place::new();
    let log = place.open(&[]);
    produce(&log, (9, 3, 5), false, &["a", "b"]).unwrap();
    produce(&log, (8, 0, 0), true, &["c"]).unwrap();
    produce(&log, (7, 1, 0), true, &["d"]).unwrap();
    end(&log, 7, 1, true).unwrap();
    log.roll().unwrap();
    // Id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of the open transaction.
    let entry =
        |id: i64, epoch: i16, sequence: i32, last: i64, delta: i32, coordinator: i32, open: i64| {
            let mut bytes = id.to_be_bytes().to_vec();
            bytes.extend_from_slice(&epoch.to_be_bytes());
            bytes.extend_from_slice(&sequence.to_be_bytes());
            bytes.extend_from_slice(&last.to_be_bytes());
            bytes.extend_from_slice(&delta.to_be_bytes());
            bytes.extend_from_slice(&NOW.to_be_bytes());
            bytes.extend_from_slice(&coordinator.to_be_bytes());
            bytes.extend_from_slice(&open.to_be_bytes());
            bytes
        };
    // Buckets of Java's HashMap of 16: by the number.
    let mut covered = 3_i32.to_be_bytes().to_vec();
    covered.extend(entry(7, 1, 0, 3, 0, 0, -1));
    covered.extend(entry(8, 0, 0, 2, 0, -1, 2));
    covered.extend(entry(9, 3, 6, 1, 1, -1, -1));
    let mut expected = 1_i16.to_be_bytes().to_vec();
    expected.extend(offsetlog_faults::batch::crc32c(&covered).to_be_bytes());
    expected.extend(covered);
    assert_eq!(place.bytes(&file(5, ".snapshot")), expected);
}
