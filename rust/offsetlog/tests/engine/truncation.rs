//! What is left when records are taken away from the end, or all of them, or from the start.

use crate::common::{
    NOW, Place, append, append_in, bases, bounds, end, file, fill, follow, log_file, numbered,
    offsets, produce, records, sent, stored, values,
};

/// Batches of two records from 0 to 11, in segments from 0, 4 and 8.
fn three_segments() -> (Place, offsetlog::LogWriter) {
    let place = Place::new();
    let log = place.open(&[("index.interval.bytes", "0")]);
    fill(&log, 6, &[2, 4]);
    assert_eq!(bases(&log), [0, 4, 8]);
    (place, log)
}

/// Contract 8: segments above go, of the one that holds the offset what stands before the batch with it stays.
#[test]
fn every_offset_of_a_log() {
    for offset in 0..=13 {
        let (place, log) = three_segments();
        let is_cut = log.truncate_to(offset).unwrap();
        assert_eq!(is_cut, offset < 12, "{offset}");
        // A batch goes whole, the offset stays.
        let records_end = if is_cut { offset - offset % 2 } else { 12 };
        let end = offset.min(12);
        assert_eq!(records(&log), numbered(0, records_end), "{offset}");
        assert_eq!(bounds(&log), (0, end, end), "{offset}");
        let kept: Vec<i64> = [0, 4, 8]
            .into_iter()
            .filter(|&base| base <= offset)
            .collect();
        assert_eq!(bases(&log), kept, "{offset}");
        assert_eq!(append(&log, &["next"]).base_offset, end, "{offset}");
        let mut expected = numbered(0, records_end);
        expected.push((end, "next".to_owned()));
        let (reader, recovered) = (place.reader(), place.copy().recovered());
        log.close().unwrap();
        let again = place.again();
        let logs = [&reader, recovered.log(), again.log()];
        for (turn, log) in logs.into_iter().enumerate() {
            assert_eq!(records(log), expected, "{offset}, turn {turn}");
            assert_eq!(log.log_end_offset().unwrap(), end + 1);
        }
    }
}

#[test]
fn files_are_cut_and_set_aside() {
    let (place, log) = three_segments();
    let size = sent(&["v0", "v1"]).len() as i32;
    log.truncate_to(5).unwrap();
    assert_eq!(place.bytes(&log_file(4)), b"", "the batch 4 to 5 goes");
    for suffix in [".log", ".index", ".timeindex"] {
        assert!(
            place.has(&file(8, &format!("{suffix}.deleted"))),
            "{suffix}"
        );
        assert!(!place.has(&file(8, suffix)), "{suffix}");
    }
    assert_eq!(place.offset_entries(0), [(3, size)]);
    assert_eq!(place.offset_entries(4), []);
    // Written again as long as it may become.
    assert_eq!(place.bytes(&file(4, ".index")).len(), 1000);
    log.truncate_to(3).unwrap();
    assert_eq!(place.bytes(&log_file(0)), stored(0, &["v0", "v1"]));
    assert_eq!(place.offset_entries(0), []);
    // They go a minute later (`file.delete.delay.ms`).
    place.set_clock(NOW + 60_000);
    append(&log, &["next"]);
    assert!(place.files().keys().all(|name| !name.ends_with(".deleted")));
}

/// Contract 6 and 5: epochs that begin at or behind the offset go.
#[test]
fn epochs_go_with_their_records() {
    for (offset, text) in [
        (7, "0\n3\n1 0\n3 3\n7 6\n"),
        (6, "0\n2\n1 0\n3 3\n"),
        (4, "0\n2\n1 0\n3 3\n"),
        (3, "0\n1\n1 0\n"),
        (0, "0\n0\n"),
    ] {
        let place = Place::new();
        let log = place.open(&[]);
        for (epoch, count) in [(1, 3), (3, 3), (7, 2)] {
            for _ in 0..count {
                append_in(&log, epoch, &["v"]);
            }
        }
        log.truncate_to(offset).unwrap();
        assert_eq!(place.epochs(), text, "{offset}");
    }
}

#[test]
fn producers_and_transactions_go_with_their_records() {
    let place = Place::new();
    let log = place.open(&[]);
    produce(&log, (1, 0, 0), false, &["a"]).unwrap();
    produce(&log, (2, 0, 0), true, &["b"]).unwrap();
    end(&log, 2, 0, false).unwrap();
    produce(&log, (1, 0, 1), false, &["c"]).unwrap();
    assert_eq!(
        (bounds(&log).2, place.bytes(&file(0, ".txnindex")).len()),
        (4, 34)
    );
    // The marker goes: the transaction is open again.
    log.truncate_to(2).unwrap();
    assert_eq!(
        (bounds(&log).2, place.bytes(&file(0, ".txnindex")).len()),
        (1, 0)
    );
    let again = produce(&log, (1, 0, 1), false, &["d"]).unwrap();
    assert_eq!((again.base_offset, again.duplicate), (2, false));
    // Its first record goes: nobody knows it.
    log.truncate_to(1).unwrap();
    assert_eq!(bounds(&log).2, 1);
    assert_eq!(
        produce(&log, (2, 0, 9), true, &["e"]).unwrap().base_offset,
        1
    );
    assert!(produce(&log, (1, 0, 0), false, &["a"]).unwrap().duplicate);
}

#[test]
fn the_recovery_point_never_stays_above_the_end() {
    let (_, log) = three_segments();
    log.flush().unwrap();
    assert_eq!(log.recovery_point(), 12);
    log.truncate_to(5).unwrap();
    assert!(log.recovery_point() <= 5);
}

/// What was cut does not come back, whatever the system had not written yet.
#[test]
fn a_truncation_is_durable() {
    use offsetlog_faults::sim::{Cut, Fill};
    let (place, log) = three_segments();
    log.flush().unwrap();
    log.truncate_to(6).unwrap();
    let mut rng = fastrand::Rng::with_seed(5);
    for cut in [Cut::Nothing, Cut::Process, Cut::Random, Cut::Random] {
        let world = place.disk.world().crash(cut, Fill::Zeros, &mut rng);
        assert_eq!(
            records(&Place::of(world).again()),
            numbered(0, 6),
            "{cut:?}"
        );
    }
}

/// Contract 8: all files go, and it goes on wherever it is told to.
#[test]
fn a_log_that_begins_anew() {
    for (offset, start) in [
        (1000, None),
        (50, Some(40)),
        (4, None),
        (0, None),
        (12, Some(0)),
    ] {
        let (place, log) = three_segments();
        append_in(&log, 3, &["v12", "v13"]);
        log.truncate_fully_and_start_at(offset, start).unwrap();
        let first = start.unwrap_or(offset);
        assert_eq!(bounds(&log), (first, offset, offset));
        assert_eq!((bases(&log), offsets(&log)), (vec![offset], vec![]));
        assert_eq!(
            (log.leader_epoch().unwrap(), place.epochs()),
            (None, "0\n0\n".to_owned())
        );
        let snapshots: Vec<String> = place
            .files()
            .into_keys()
            .filter(|name| name.ends_with(".snapshot"))
            .collect();
        assert!(snapshots.len() <= 1, "{snapshots:?}");
        assert_eq!(append(&log, &["anew"]).base_offset, offset);
        log.close().unwrap();
        let (reader, again) = (place.reader(), place.again());
        for log in [&reader, again.log()] {
            assert_eq!(records(log), [(offset, "anew".to_owned())]);
            // As a broker loads it: no lower than the first segment.
            assert_eq!(log.log_start_offset().unwrap(), offset);
        }
    }
}

/// Contract 8: no file of records is touched.
#[test]
fn deleted_records_are_not_read_and_their_files_stay() {
    let (place, log) = three_segments();
    let before: Vec<Vec<u8>> = [0, 4, 8].map(|base| place.bytes(&log_file(base))).into();
    assert!(!log.delete_records_before(0).unwrap());
    assert!(log.delete_records_before(5).unwrap());
    assert!(!log.delete_records_before(3).unwrap());
    assert_eq!(
        (records(&log), bounds(&log)),
        (numbered(5, 12), (5, 12, 12))
    );
    assert_eq!(log.get(4).unwrap_err().kind().code(), "OffsetOutOfRange");
    let after: Vec<Vec<u8>> = [0, 4, 8].map(|base| place.bytes(&log_file(base))).into();
    assert_eq!(after, before);
    // Contract 8: the recovery point is never below the start.
    assert!(log.recovery_point() >= 5);
    let killed = place.copy();
    assert_eq!(records(&killed.recovered()), numbered(5, 12));
    assert!(log.delete_records_before(12).unwrap());
    assert_eq!((offsets(&log), bounds(&log)), (vec![], (12, 12, 12)));
    log.close().unwrap();
    assert_eq!(bounds(&place.reader()), (12, 12, 12));
    assert_eq!(append(&place.again(), &["next"]).base_offset, 12);
}

/// Contract 6: the last epoch below the start begins there.
#[test]
fn deleted_records_take_their_epochs_along() {
    for (start, text) in [
        (4, "0\n2\n3 4\n7 6\n"),
        (6, "0\n1\n7 6\n"),
        (3, "0\n2\n3 3\n7 6\n"),
    ] {
        let place = Place::new();
        let log = place.open(&[]);
        for (epoch, base) in [(1, 0), (3, 3), (7, 6)] {
            follow(&log, &sent(&["v"]).base(base).epoch(epoch).0, 9).unwrap();
        }
        log.delete_records_before(start).unwrap();
        assert_eq!(place.epochs(), text, "{start}");
    }
}

#[test]
fn a_start_inside_a_batch_that_is_truncated() {
    let place = Place::new();
    let log = place.open(&[]);
    append(&log, &["a", "b", "c", "d"]);
    log.delete_records_before(2).unwrap();
    log.truncate_to(3).unwrap();
    assert_eq!((bounds(&log), offsets(&log)), ((2, 3, 3), vec![]));
    assert_eq!(append(&log, &["e"]).base_offset, 3);
    assert_eq!(values(&log), ["e"]);
    log.truncate_to(1).unwrap();
    assert_eq!(bounds(&log), (1, 1, 1));
}

#[test]
fn far_away() {
    let last = i64::MAX;
    for is_clean in [true, false] {
        let place = Place::new();
        let log = place.open(&[]);
        log.truncate_fully_and_start_at(last - 10, None).unwrap();
        for value in ["a", "b", "c", "d", "e"] {
            append(&log, &[value]);
        }
        assert!(log.truncate_to(last - 7).unwrap());
        assert!(!log.truncate_to(last).unwrap());
        log.close().unwrap();
        let log = if is_clean {
            place.again()
        } else {
            place.recovered()
        };
        assert_eq!(bounds(&log), (last - 10, last - 7, last - 7));
        assert_eq!(values(&log), ["a", "b", "c"]);
    }
}
