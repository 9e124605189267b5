//! Which batches get index entries, when appended and when rebuilt.

use crate::common::{
    HOUR, NOW, Place, append, append_at, end, file, follow, log_file, produce, recovered, sent,
    sized,
};
use offsetlog_faults::fault::{Call, FaultDisk, Plan};

const T: i64 = NOW;

/// A batch of so many bytes, at an offset, with a last offset and a greatest timestamp.
fn batch(bytes: usize, base: i64, last: i64, timestamp: i64) -> Vec<u8> {
    let delta = (last - base) as i32;
    let batch = sized(bytes).base(base).last_delta(delta).count(delta + 1);
    batch.times(timestamp, timestamp).0
}

/// The worked example of 2.2, which was run through Kafka's own classes.
fn worked(place: &Place) -> offsetlog::LogWriter {
    let log = place.open(&[("index.interval.bytes", "200")]);
    let one_by_one = [
        batch(102, 0, 0, T),
        batch(102, 1, 1, T + 100),
        batch(131, 2, 2, T + 200),
        batch(99, 3, 4, T + 301),
        batch(272, 5, 5, T + 400),
        batch(71, 6, 6, T + 500),
        batch(71, 7, 7, T + 600),
    ];
    for batch in one_by_one {
        follow(&log, &batch, 0).unwrap();
    }
    let together = [
        batch(238, 8, 10, T + 5002),
        batch(192, 11, 11, T + 100),
        batch(162, 12, 12, T + 6000),
        batch(99, 13, 14, T + 8),
    ];
    follow(&log, &together.concat(), 0).unwrap();
    log
}

const OFFSETS: [(i64, i32); 5] = [(2, 204), (5, 434), (6, 706), (11, 1086), (14, 1440)];
const TIMES: [(i64, i64); 5] = [
    (T + 200, 2),
    (T + 400, 5),
    (T + 500, 6),
    (T + 5002, 10),
    (T + 6000, 12),
];

#[test]
fn entries_come_when_more_than_the_interval_stands_before() {
    let place = Place::new();
    let log = worked(&place);
    // Until they are closed the files are as long as they may become: whole entries below 1000 bytes.
    let size = |suffix| place.bytes(&file(0, suffix)).len();
    assert_eq!((size(".index"), size(".timeindex")), (1000, 996));
    log.close().unwrap();
    assert_eq!((size(".index"), size(".timeindex")), (40, 60));
    assert_eq!(place.offset_entries(0), OFFSETS);
    assert_eq!(place.time_entries(0), TIMES);
}

/// Nothing but a look-up that reads further tells that the newest ones are not in the files yet.
#[test]
fn entries_are_written_eight_at_a_time() {
    let place = Place::new();
    let log = place.open(&[("index.interval.bytes", "0")]);
    for number in 0..20 {
        append_at(&log, NOW + number, "k", Some("v"));
        // The first batch has no entry.
        let written = number as usize / 8 * 8;
        let entries = (place.offset_entries(0).len(), place.time_entries(0).len());
        assert_eq!(entries, (written, written), "{number}");
        assert_eq!(log.get(number).unwrap().unwrap().offset, number);
    }
    // A cut needs them all: those below it stay.
    assert!(log.truncate_to(18).unwrap());
    let offsets = |place: &Place| -> Vec<i64> {
        let entries = place.offset_entries(0).into_iter();
        entries.map(|(offset, _)| offset).collect()
    };
    assert_eq!(offsets(&place), (1..18).collect::<Vec<_>>());
    append_at(&log, NOW + 30, "k", Some("v"));
    log.abandon();
    assert_eq!(place.time_entries(0).len(), 17);
    // What a kill took along is made again, also where nobody appends.
    let other = place.copy();
    recovered(&other, false);
    place.recovered().close().unwrap();
    for place in [place, other] {
        assert_eq!(offsets(&place), (1..19).collect::<Vec<_>>());
        assert_eq!(place.time_entries(0).len(), 18);
    }
}

/// A cut reads the times that stay from the file. Without the newest one, it would take a later record for the newest.
#[test]
fn a_cut_that_cannot_write_the_entries_cuts_nothing() {
    for half in [false, true] {
        let place = Place::new();
        let disk = FaultDisk::over(&place.disk, Plan::none());
        let log = place.open_over(&disk, &[("index.interval.bytes", "0")]);
        let times = (0..9).chain([500]).chain([200; 8]);
        for time in times.map(|time| NOW + time) {
            append_at(&log, time, "k", Some("v"));
        }
        disk.set(Plan {
            kinds: |call, path| call == Call::Write && path.contains("index"),
            nth: 1,
            error: 28,
            half,
            ..Plan::none()
        });
        let error = log.truncate_to(17).unwrap_err();
        assert!(error.is_out_of_room(), "{error}");
        assert_eq!(log.log_end_offset().unwrap(), 18);
        assert!(log.truncate_to(17).unwrap());
        append_at(&log, NOW + 300, "k", Some("v"));
        log.close().unwrap();
        let growing = (1..9).map(|offset| (NOW + offset, offset));
        let expected: Vec<_> = growing.chain([(NOW + 500, 9)]).collect();
        assert_eq!(place.time_entries(0), expected);
        assert_eq!(place.offset_entries(0).len(), 16);
    }
}

#[test]
fn a_rebuild_makes_the_same_entries() {
    let place = Place::new();
    worked(&place).abandon();
    for missing in [
        &[".index", ".timeindex"][..],
        &[".index"],
        &[".timeindex"],
        &[],
    ] {
        let place = place.copy();
        for suffix in missing {
            place.remove(&file(0, suffix));
        }
        place.recovered().close().unwrap();
        assert_eq!(place.offset_entries(0), OFFSETS, "without {missing:?}");
        assert_eq!(place.time_entries(0), TIMES, "without {missing:?}");
    }
}

/// Contract 2.2: the count of bytes begins anew with each opening, a rebuild counts from the first.
#[test]
fn the_count_begins_anew_with_each_opening() {
    let place = Place::new();
    let settings = [("index.interval.bytes", "200")];
    for opening in 0..2 {
        let log = place.open(&settings);
        for number in 0..3 {
            let offset = opening * 3 + number;
            follow(&log, &batch(102, offset, offset, T), 0).unwrap();
        }
        log.close().unwrap();
    }
    assert_eq!(place.offset_entries(0), [(2, 204), (5, 510)]);
    place.remove(&file(0, ".index"));
    place.again().close().unwrap();
    assert_eq!(place.offset_entries(0), [(2, 204), (4, 408)]);
}

#[test]
fn with_no_interval_every_batch_but_the_first_gets_an_entry() {
    let place = Place::new();
    let log = place.open(&[("index.interval.bytes", "0")]);
    for value in ["a", "b", "c"] {
        append(&log, &[value]);
    }
    let size = sent(&["a"]).len() as i32;
    log.close().unwrap();
    assert_eq!(place.offset_entries(0), [(1, size), (2, 2 * size)]);
    // Equal times are entered once, by the first record that has it.
    assert_eq!(place.time_entries(0), [(NOW, 0)]);
}

#[test]
fn records_without_a_time_leave_the_time_index_empty() {
    let place = Place::new();
    let log = place.open(&[("index.interval.bytes", "0")]);
    for _ in 0..3 {
        append_at(&log, -1, "k", Some("v"));
    }
    log.roll().unwrap();
    assert_eq!(place.bytes(&file(0, ".timeindex")), b"");
    assert_eq!(place.offset_entries(0).len(), 2);
}

/// Contract 2.3: a segment that is closed gets its greatest time, whether or not an entry is due.
#[test]
fn a_closed_segment_ends_with_its_greatest_time() {
    let close: [fn(&offsetlog::LogWriter); 2] = [
        |log| assert_eq!(log.roll().unwrap(), 3),
        |log| log.close().unwrap(),
    ];
    for (case, close) in close.into_iter().enumerate() {
        let place = Place::new();
        let log = place.open(&[]);
        append_at(&log, NOW, "k", Some("a"));
        append_at(&log, NOW + HOUR, "k", Some("b"));
        append_at(&log, NOW + 1, "k", Some("c"));
        assert_eq!(place.time_entries(0), []);
        close(&log);
        assert_eq!(place.time_entries(0), [(NOW + HOUR, 1)], "case {case}");
        assert_eq!(place.bytes(&file(0, ".timeindex")).len(), 12);
        assert_eq!(place.bytes(&file(0, ".index")), b"");
    }
}

#[test]
fn look_ups_by_time_find_the_first_record_in_file_order() {
    let place = Place::new();
    let log = place.open(&[("index.interval.bytes", "0")]);
    let times = [100, 300, 200, 300, 400];
    for time in times {
        append_at(&log, T + time, "k", Some("v"));
    }
    log.roll().unwrap();
    append_at(&log, T + 350, "k", Some("v"));
    append_at(&log, T + 500, "k", Some("v"));
    let find = |log: &offsetlog::Log, time: i64| {
        let found = log.offset_for_timestamp(T + time, offsetlog::Isolation::ReadUncommitted);
        found
            .unwrap()
            .map(|found| (found.timestamp - T, found.offset))
    };
    let cases = [
        (-T, Some((100, 0))),
        (100, Some((100, 0))),
        (101, Some((300, 1))),
        (300, Some((300, 1))),
        (301, Some((400, 4))),
        (401, Some((500, 6))),
        (500, Some((500, 6))),
        (501, None),
    ];
    for (time, expected) in cases {
        assert_eq!(find(&log, time), expected, "{time}");
    }
    // Records below the start are not there, and later segments are looked at (12.10).
    log.delete_records_before(5).unwrap();
    assert_eq!(find(&place.reader(), 400), Some((500, 6)));
}

/// Version 0, producer, first offset, last offset, last stable offset: contract 7.2.
#[test]
fn aborted_transactions_stand_beside_the_segment_of_their_marker() {
    let place = Place::new();
    let log = place.open(&[]);
    produce(&log, (1, 0, 0), true, &["a"]).unwrap();
    produce(&log, (2, 0, 0), true, &["b"]).unwrap();
    produce(&log, (3, 0, 0), true, &["c"]).unwrap();
    end(&log, 3, 0, true).unwrap();
    assert!(!place.has(&file(0, ".txnindex")), "a commit has no entry");
    log.roll().unwrap();
    end(&log, 1, 0, false).unwrap();
    end(&log, 2, 0, false).unwrap();
    let entry = |numbers: [i64; 4]| {
        let mut bytes = vec![0, 0];
        bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        bytes
    };
    // While producer 2 is open nothing from its first offset on is stable; behind its marker everything is.
    let expected = [entry([1, 0, 4, 1]), entry([2, 1, 5, 6])].concat();
    assert_eq!(place.bytes(&file(4, ".txnindex")), expected);
    assert!(!place.has(&file(0, ".txnindex")));
    log.abandon();
    // Made again from the batches.
    place.remove(&file(4, ".txnindex"));
    let again = place.recovered();
    assert_eq!(crate::common::committed(&again).len(), 1);
    assert_eq!(place.bytes(&file(4, ".txnindex")), expected);
    assert!(!place.bytes(&log_file(4)).is_empty());
}
