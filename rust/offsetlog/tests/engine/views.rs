//! What is seen of each change: on the handle that made it, on readers that were opened before, and on those opened after.

use crate::common::{
    Place, append, bases, bounds, committed, config, end, fill, follow, numbered, produce, records,
    sent,
};
use offsetlog::{
    CompactOptions, ErrorKind, FetchOptions, Isolation, Log, LogWriter, MaintainOptions,
    OpenOptions, ScanOptions, WriteOptions,
};
use offsetlog_faults::fault::{Call, FaultDisk, Moment, Plan};
use offsetlog_faults::run::PARTITION;
use std::sync::Arc;

/// The answers of a handle to each way of asking for records.
#[derive(Debug, PartialEq)]
struct Seen {
    bounds: (i64, i64, i64),
    segments: Vec<i64>,
    records: Vec<(i64, String)>,
    committed: Vec<(i64, String)>,
    batches: Vec<i64>,
}

fn seen(log: &Log) -> Seen {
    let batches = log.batches(None, None).unwrap();
    Seen {
        bounds: bounds(log),
        segments: bases(log),
        records: records(log),
        committed: committed(log),
        batches: batches.map(|batch| batch.unwrap().base_offset).collect(),
    }
}

/// Six batches of two records in three segments, of which two are closed.
pub(crate) fn filled() -> (Place, LogWriter) {
    let place = Place::new();
    let log = place.open(&[("index.interval.bytes", "0"), ("retention.ms", "-1")]);
    fill(&log, 6, &[2, 4]);
    (place, log)
}

/// A change, and the records that are there after it.
type Change = (&'static str, fn(&LogWriter), Vec<(i64, String)>);

fn kept(offsets: &[i64]) -> Vec<(i64, String)> {
    offsets
        .iter()
        .map(|offset| (*offset, format!("v{offset}")))
        .collect()
}

fn changes() -> Vec<Change> {
    let with = |more: &[i64]| [numbered(0, 12), kept(more)].concat();
    vec![
        (
            "append",
            |log| assert_eq!(append(log, &["v12"]).base_offset, 12),
            with(&[12]),
        ),
        (
            "append as a follower",
            |log| {
                follow(log, &sent(&["v20"]).base(20).0, 0).unwrap();
            },
            with(&[20]),
        ),
        ("roll", |log| assert_eq!(log.roll().unwrap(), 12), with(&[])),
        (
            "roll and append",
            |log| {
                log.roll().unwrap();
                append(log, &["v12"]);
            },
            with(&[12]),
        ),
        (
            "a transaction",
            |log| {
                produce(log, (9, 0, 0), true, &["v12"]).unwrap();
                end(log, 9, 0, true).unwrap();
            },
            with(&[12]),
        ),
        (
            "truncation in the last segment",
            |log| assert!(log.truncate_to(10).unwrap()),
            numbered(0, 10),
        ),
        (
            "truncation of segments",
            |log| assert!(log.truncate_to(2).unwrap()),
            numbered(0, 2),
        ),
        (
            "truncation and other records",
            |log| {
                log.truncate_to(3).unwrap();
                append(log, &["v3"]);
            },
            kept(&[0, 1, 3]),
        ),
        (
            "truncation to nothing",
            |log| {
                log.truncate_fully_and_start_at(100, None).unwrap();
                append(log, &["v100"]);
            },
            kept(&[100]),
        ),
        (
            "deletion",
            |log| assert!(log.delete_records_before(5).unwrap()),
            numbered(5, 12),
        ),
        (
            "retention",
            |log| {
                let config =
                    crate::common::config(&[("retention.ms", "-1"), ("retention.bytes", "1")]);
                log.set_config(&config).unwrap();
                let report = log.maintain(&MaintainOptions::default()).unwrap();
                assert_eq!(report.removed.len(), 2);
            },
            numbered(8, 12),
        ),
        (
            "compaction",
            |log| {
                let done = log.compact(&CompactOptions::default()).unwrap();
                assert_eq!((done.records_before, done.records_after), (8, 1));
            },
            kept(&[7, 8, 9, 10, 11]),
        ),
    ]
}

/// The writer's own answers are right at once, and those of whoever opens the log then, with the writer there or dead.
#[test]
fn the_writer_and_who_comes_after_see_each_change() {
    for (name, change, expected) in changes() {
        let (place, log) = filled();
        // It has looked before.
        assert_eq!(seen(&log).records, numbered(0, 12));
        change(&log);
        let now = seen(&log);
        assert_eq!(now.records, expected, "{name}");
        assert_eq!(now.committed, expected, "{name}");
        let reader = seen(&place.reader());
        // A reader in another process finds an end inside nothing only behind what is there.
        assert_eq!(
            (&reader.records, &reader.batches, &reader.segments),
            (&now.records, &now.batches, &now.segments),
            "{name}"
        );
        log.abandon();
        let again = place.try_again(WriteOptions::default()).unwrap();
        assert_eq!(again.recovery_report().cut, [], "{name}");
        assert_eq!(records(&again), expected, "{name}");
    }
}

/// A reader that was opened before finds what is there now when it is asked for all of it.
#[test]
fn readers_that_came_before_see_each_change() {
    for (name, change, expected) in changes() {
        let (place, log) = filled();
        let fresh = place.reader();
        let used = place.reader();
        assert_eq!(seen(&used).records, numbered(0, 12));
        change(&log);
        for (reader, which) in [(&fresh, "fresh"), (&used, "used")] {
            let end = log.log_end_offset().unwrap();
            assert_eq!(reader.log_end_offset().unwrap(), end, "{name}, {which}");
            assert_eq!(bases(reader), bases(&log), "{name}, {which}");
            assert_eq!(records(reader), expected, "{name}, {which}");
        }
    }
}

/// A scan that is under way gives what was there when it began, as far as it still is, and never what came later.
#[test]
fn a_scan_under_way_ends_where_the_log_did() {
    let (_, log) = filled();
    let mut scan = log.scan(&ScanOptions::default()).unwrap();
    assert!(scan.next_batch().unwrap().is_some());
    append(&log, &["later"]);
    log.roll().unwrap();
    append(&log, &["later still"]);
    let mut found = Vec::new();
    while let Some(mut batch) = scan.next_batch().unwrap() {
        while let Some(record) = batch.next_record().unwrap() {
            found.push(record.offset);
        }
    }
    assert_eq!(found, (2..12).collect::<Vec<_>>());
}

/// Cut under a scan: it may end with an error, and gives no record that is not the one it says.
#[test]
fn a_scan_under_way_gives_nothing_wrong_after_a_truncation() {
    for is_writer in [true, false] {
        let (place, log) = filled();
        let reader = place.reader();
        let scanning = if is_writer { &log } else { &reader };
        let mut scan = scanning.scan(&ScanOptions::default()).unwrap();
        assert!(scan.next_batch().unwrap().is_some());
        log.truncate_to(6).unwrap();
        follow(&log, &sent(&["other", "records"]).base(6).epoch(1).0, 1).unwrap();
        let expected = records(&log);
        while let Ok(Some(mut batch)) = scan.next_batch() {
            while let Ok(Some(record)) = batch.next_record() {
                let value = String::from_utf8_lossy(record.value.unwrap()).into_owned();
                let given = (record.offset, value);
                // What it read ahead may be what was there.
                assert!(
                    expected.contains(&given) || numbered(0, 12).contains(&given),
                    "{given:?}"
                );
            }
        }
    }
}

/// Cut under a scan of committed records: how transactions ended is asked of what the log has now.
#[test]
fn a_scan_of_committed_records_asks_again_after_a_truncation() {
    for commit in [Some(true), Some(false), None] {
        for is_writer in [true, false] {
            let place = Place::new();
            let log = place.open(&[]);
            produce(&log, (1, 0, 0), true, &["first"]).unwrap();
            end(&log, 1, 0, true).unwrap();
            for _ in 0..8 {
                append(&log, &["between"]);
            }
            produce(&log, (1, 0, 1), true, &["cut"]).unwrap();
            // What was there ended the other way.
            end(&log, 1, 0, commit == Some(false)).unwrap();
            append(&log, &["behind"]);
            let reader = place.reader();
            let scanning = if is_writer { &log } else { &reader };
            let options = ScanOptions {
                isolation: Isolation::ReadCommitted,
                ..ScanOptions::default()
            };
            let before = committed(&log);
            let mut scan = scanning.scan(&options).unwrap();
            let mut found = Vec::new();
            let mut take = |batch: &mut offsetlog::Batch<'_>| {
                while let Some(record) = batch.next_record().unwrap() {
                    let value = String::from_utf8_lossy(record.value.unwrap());
                    found.push((record.offset, value.into_owned()));
                }
            };
            take(&mut scan.next_batch().unwrap().unwrap());
            log.truncate_to(10).unwrap();
            produce(&log, (1, 0, 1), true, &["other"]).unwrap();
            if let Some(commit) = commit {
                end(&log, 1, 0, commit).unwrap();
            }
            append(&log, &["last"]);
            while let Some(mut batch) = scan.next_batch().unwrap() {
                take(&mut batch);
            }
            let mut expected = committed(&log);
            // The scan ends where the log ended when it began.
            expected.retain(|(offset, _)| *offset < 13);
            // A reader may give what it had read ahead.
            let is_of_before = !is_writer && found == before;
            assert!(found == expected || is_of_before, "{commit:?}: {found:?}");
        }
    }
}

#[test]
fn an_open_transaction_ends_what_is_stable_for_everybody() {
    for commit in [true, false] {
        let place = Place::new();
        let log = place.open(&[]);
        append(&log, &["before"]);
        produce(&log, (1, 0, 0), true, &["inside"]).unwrap();
        append(&log, &["behind"]);
        let reader = place.reader();
        for which in [&log, &reader] {
            assert_eq!(bounds(which), (0, 3, 1));
            assert_eq!(committed(which), [(0, "before".to_owned())]);
            assert_eq!(records(which).len(), 3);
        }
        end(&log, 1, 0, commit).unwrap();
        for which in [&log, &reader, &place.reader()] {
            assert_eq!(bounds(which), (0, 4, 4), "{commit}");
            let expected: Vec<i64> = if commit { vec![0, 1, 2] } else { vec![0, 2] };
            let found: Vec<i64> = committed(which).iter().map(|(offset, _)| *offset).collect();
            assert_eq!(found, expected);
            let options = FetchOptions {
                isolation: Isolation::ReadCommitted,
                ..FetchOptions::default()
            };
            let fetched = which.fetch(0, &options).unwrap();
            let aborted: Vec<_> = fetched
                .aborted
                .iter()
                .map(|one| (one.producer_id, one.first_offset))
                .collect();
            assert_eq!(aborted, if commit { vec![] } else { vec![(1, 1)] });
            assert_eq!(
                (
                    fetched.high_watermark,
                    fetched.last_stable_offset,
                    fetched.log_start_offset
                ),
                (4, 4, 0)
            );
        }
    }
}

/// Contract 4: a fetch begins with the batch that holds the offset and stays in its segment; never half a batch.
#[test]
fn what_a_fetch_gives() {
    let (place, log) = filled();
    let size = sent(&["v0", "v1"]).len();
    let cases = [
        // Offset, most bytes, first offset of the first batch, how many batches.
        (0, u64::MAX, 0, 2),
        (1, u64::MAX, 0, 2),
        (2, u64::MAX, 2, 1),
        (5, 0, 4, 1),
        (4, size as u64, 4, 1),
        (4, 2 * size as u64 - 1, 4, 1),
        (4, 2 * size as u64, 4, 2),
        (8, u64::MAX, 8, 2),
    ];
    for log in [&log, &place.reader()] {
        for (offset, max_bytes, base, count) in cases {
            let options = FetchOptions {
                max_bytes,
                isolation: Isolation::ReadUncommitted,
            };
            let fetched = log.fetch(offset, &options).unwrap();
            let (batches, end) = offsetlog_faults::batch::walk(&fetched.records);
            assert_eq!(end, fetched.records.len());
            assert_eq!(
                (batches[0].base, batches.len()),
                (base, count),
                "{offset}, {max_bytes}"
            );
        }
        let at_end = log.fetch(12, &FetchOptions::default()).unwrap();
        assert_eq!(at_end.records, b"");
        assert_eq!(
            log.fetch(13, &FetchOptions::default())
                .unwrap_err()
                .kind()
                .code(),
            "OffsetOutOfRange"
        );
    }
}

/// Every way to ask for a part: by offset, by time, up to an offset. All of them answer from the log as it is now.
fn ask_for_parts(log: &Log, expected: &[(i64, String)], told: &str) {
    let (start, end, _) = bounds(log);
    for offset in 0..=101 {
        let known = expected.iter().find(|record| record.0 == offset);
        let found = log.get(offset).map(|record| {
            let value = record.and_then(|record| record.value);
            value.map(|value| String::from_utf8_lossy(&value).into_owned())
        });
        let place = log.locate(offset);
        if (start..end).contains(&offset) {
            assert_eq!(
                found.unwrap().as_ref(),
                known.map(|record| &record.1),
                "{told}, {offset}"
            );
            // A marker has a place, and is no record.
            assert!(
                place.unwrap().has_record || known.is_none(),
                "{told}, {offset}"
            );
        } else {
            for kind in [found.map(drop), place.map(drop)] {
                let error = kind.unwrap_err();
                assert_eq!(error.kind().code(), "OffsetOutOfRange", "{told}, {offset}");
            }
        }
        let options = ScanOptions {
            stop: Some(offset),
            ..ScanOptions::default()
        };
        let below: Vec<_> = expected
            .iter()
            .filter(|record| record.0 < offset)
            .cloned()
            .collect();
        if offset >= start {
            let found = crate::common::scanned(log, &options).unwrap();
            assert_eq!(found, below, "{told}, up to {offset}");
        }
    }
    let found = log.offset_for_timestamp(crate::common::NOW, Isolation::ReadCommitted);
    let first = expected.first().map(|record| record.0);
    assert_eq!(found.unwrap().map(|found| found.offset), first, "{told}");
}

/// Whoever opens the log after a change, and asks often.
#[test]
fn parts_are_answered_from_the_log_as_it_is() {
    for (name, change, expected) in changes() {
        let (place, log) = filled();
        ask_for_parts(&log, &numbered(0, 12), "before");
        change(&log);
        let reader = place.reader();
        for turn in 0..2 {
            ask_for_parts(&reader, &expected, &format!("{name}, turn {turn}"));
        }
    }
}

/// A directory of ten thousand segments takes milliseconds to list, and the writer knows what it has begun.
#[test]
fn a_roll_is_seen_without_listing_the_directory() {
    let place = Place::new();
    let lists = Plan {
        kinds: |call, _| call == Call::List,
        ..Plan::none()
    };
    let disk = FaultDisk::over(&place.disk, lists);
    let options = OpenOptions {
        disk: Arc::new(disk.clone()),
        ..place.options()
    };
    let write = WriteOptions {
        config: Some(config(&[("index.interval.bytes", "0")])),
        ..WriteOptions::default()
    };
    let log = LogWriter::open(PARTITION, &options, &write).unwrap();
    let beside = Log::open(PARTITION, &options).unwrap();
    for number in 0..12 {
        let of = produce(
            &log,
            (7, 0, number),
            number % 3 == 0,
            &[&format!("v{number}")],
        );
        of.unwrap();
        if number % 3 == 0 {
            end(&log, 7, 0, true).unwrap();
        }
        let newest = log.log_end_offset().unwrap() - 1;
        log.roll().unwrap();
        if number % 4 == 3 {
            // Several at once.
            append(&log, &["more"]);
            log.roll().unwrap();
        }
        let listed = disk.seen();
        for handle in [&log, &beside] {
            assert!(handle.get(newest).unwrap().is_some() || number % 3 == 0);
            assert_eq!(seen(handle), seen(&place.reader()), "behind roll {number}");
        }
        if number > 0 {
            assert_eq!(disk.seen(), listed, "behind roll {number}");
        }
    }
    // What is more than a roll is looked for.
    let listed = disk.seen();
    log.truncate_to(9).unwrap();
    log.roll().unwrap();
    log.delete_records_before(3).unwrap();
    append(&log, &["again"]);
    log.roll().unwrap();
    for handle in [&log, &beside] {
        assert_eq!(seen(handle), seen(&place.reader()));
    }
    assert!(disk.seen() > listed);
}

/// Names are read at another moment than the ends that the writer tells, or than the times of the directory: a new segment may be in the
/// one and not in the other, of the same process or of another one.
#[test]
fn a_roll_while_the_directory_is_listed_is_seen_once() {
    for moment in [Moment::BeforeNames, Moment::BehindNames] {
        for is_of_this_process in [true, false] {
            let told = format!("{moment:?}, {is_of_this_process}");
            let place = Place::new();
            let disk = FaultDisk::over(&place.disk, Plan::none());
            let settings = [("index.interval.bytes", "0")];
            let log = if is_of_this_process {
                place.open_over(&disk, &settings)
            } else {
                place.open(&settings)
            };
            fill(&log, 6, &[2, 4]);
            let reader = Log::open(PARTITION, &place.faulty(&disk)).unwrap();
            // More than growth and rolls, so that the next look lists.
            log.truncate_to(10).unwrap();
            place.put("other", b"");
            let rolling = log.clone();
            disk.while_listing(moment, move || {
                append(&rolling, &["v10"]);
                rolling.roll().unwrap();
                append(&rolling, &["v11"]);
            });
            // One of the states that the log had.
            let (all, found) = (numbered(0, 12), records(&reader));
            assert_eq!(log.log_end_offset().unwrap(), 12, "{told}: it was listed");
            assert!(found.len() >= 10, "{told}: {found:?}");
            assert_eq!(found, numbered(0, found.len() as i64), "{told}");
            // And then the one that it has.
            assert_eq!(records(&reader), all, "{told}");
            assert_eq!(seen(&reader), seen(&place.reader()), "{told}");
            log.roll().unwrap();
            append(&log, &["v12"]);
            assert_eq!(seen(&reader), seen(&place.reader()), "{told}");
            assert_eq!(records(&reader), numbered(0, 13), "{told}");
        }
    }
}

#[test]
fn rolls_count_for_the_limit_of_segments() {
    let place = Place::new();
    let mut options = place.options();
    options.limits.max_segments = 3;
    let log = LogWriter::open(PARTITION, &options, &WriteOptions::default()).unwrap();
    for turn in 0..3 {
        append(&log, &["v"]);
        assert!(log.get(turn).is_ok());
        log.roll().unwrap();
    }
    let told = log.get(0).unwrap_err();
    assert!(matches!(told.kind(), ErrorKind::Limit { .. }), "{told}");
}
