//! Records that go while somebody reads: told by an error, never left out without a word.

use crate::common::{Place, closed, log_file};
use crate::views::filled;
use offsetlog::{
    Error, ErrorKind, Isolation, Log, LogWriter, MaintainOptions, OnCorrupt, ScanOptions,
};
use std::time::Duration;

/// Longer than a handle trusts its last look at a directory.
const TRUSTED: Duration = Duration::from_millis(20);

/// The writer as a reader, or a reader that was opened separately.
fn reader_of(opened_separately: bool, place: &Place, log: &LogWriter) -> Log {
    if opened_separately {
        place.reader()
    } else {
        Log::clone(log)
    }
}

fn assert_out_of_range(error: &Error) {
    assert!(
        matches!(error.kind(), ErrorKind::OffsetOutOfRange { .. }),
        "{error}"
    );
}

/// Deleted between a scan's making and its first record: told, never skipped.
#[test]
fn what_was_deleted_meanwhile_is_told() {
    let (place, log) = filled();
    for reader in [Log::clone(&log), place.reader()] {
        let start = reader.log_start_offset().unwrap();
        let range = |stop| ScanOptions {
            start: Some(start),
            stop,
            ..ScanOptions::default()
        };
        let scans =
            [Some(start + 1), Some(start + 4), None].map(|stop| reader.scan(&range(stop)).unwrap());
        let committed = reader.scan(&ScanOptions {
            isolation: Isolation::ReadCommitted,
            ..range(Some(start + 1))
        });
        log.delete_records_before(start + 4).unwrap();
        std::thread::sleep(TRUSTED);
        for mut scan in scans.into_iter().chain([committed.unwrap()]) {
            let error = scan.next_batch().map(|batch| batch.is_some()).unwrap_err();
            assert_out_of_range(&error);
        }
    }
}

/// Truncated below a scan's start before its first record: the same, also for who trusts its last look.
#[test]
fn what_was_cut_meanwhile_is_told() {
    let cuts = [1, 5, 6, 8];
    let waits = [Duration::ZERO, TRUSTED];
    for (cut, wait) in cuts.iter().flat_map(|cut| waits.map(|wait| (*cut, wait))) {
        for opened_separately in [false, true] {
            let (place, log) = filled();
            let reader = reader_of(opened_separately, &place, &log);
            let options = |isolation| ScanOptions {
                start: Some(9),
                stop: Some(11),
                isolation,
                ..ScanOptions::default()
            };
            // No look is trusted that came right after a change.
            std::thread::sleep(TRUSTED);
            let scans = [Isolation::ReadUncommitted, Isolation::ReadCommitted]
                .map(|isolation| reader.scan(&options(isolation)).unwrap());
            log.truncate_to(cut).unwrap();
            std::thread::sleep(wait);
            for mut scan in scans {
                match scan.next_batch().map(|batch| batch.is_some()) {
                    Err(error) => assert_out_of_range(&error),
                    // The files that were open may still have been whole.
                    Ok(found) => assert!(found && wait.is_zero(), "cut at {cut}"),
                }
            }
        }
    }
}

/// The batches that somebody steps through come without a gap, up to an error if the next ones are gone.
#[test]
fn batches_deleted_meanwhile_are_told() {
    for opened_separately in [false, true] {
        let (place, log) = filled();
        let reader = reader_of(opened_separately, &place, &log);
        let mut batches = reader.batches(None, None).unwrap();
        assert_eq!(batches.next().unwrap().unwrap().base_offset, 0);
        log.delete_records_before(10).unwrap();
        log.maintain(&MaintainOptions::default()).unwrap();
        log.close().unwrap();
        let mut next = 2;
        let error = loop {
            match batches.next() {
                Some(Ok(batch)) => assert_eq!(batch.base_offset, next, "skipped"),
                Some(Err(error)) => break error,
                None => panic!("an end before {next}"),
            }
            next += 2;
        };
        assert_out_of_range(&error);
    }
}

/// A deleted start is told also where damage hides the end, whatever a scan does with damage.
#[test]
fn what_was_deleted_is_told_beside_damage() {
    let (place, log) = filled();
    log.delete_records_before(4).unwrap();
    drop(log);
    let name = log_file(8);
    let mut bytes = place.bytes(&name);
    bytes[16] ^= 1;
    place.put(&name, &bytes);
    for index in ["index", "timeindex"] {
        place.put(&name.replace("log", index), &[]);
    }
    let reader = place.reader();
    let hidden = reader.log_end_offset().unwrap_err();
    assert!(hidden.is_corruption(), "{hidden}");
    for on_corrupt in [OnCorrupt::Raise, OnCorrupt::Skip, OnCorrupt::Stop] {
        let options = ScanOptions {
            start: Some(2),
            on_corrupt,
            ..ScanOptions::default()
        };
        assert_out_of_range(&reader.scan(&options).map(|_| ()).unwrap_err());
    }
}

/// An index entry behind damage leads to the end. In a small segment too, whose end is looked for without the index first.
#[test]
fn damage_before_an_index_entry_does_not_hide_the_end() {
    let place = closed();
    assert_eq!(place.offset_entries(8).len(), 1);
    place.edit(&log_file(8), |bytes| bytes[16] ^= 1);
    assert_eq!(place.reader().log_end_offset().unwrap(), 12);
}

/// Whoever got all batches that were asked for is told nothing of later deletions.
#[test]
fn batches_that_ended_stay_ended() {
    let (_place, log) = filled();
    let mut batches = log.batches(Some(0), Some(2)).unwrap();
    assert_eq!(batches.next().unwrap().unwrap().base_offset, 0);
    log.delete_records_before(4).unwrap();
    log.truncate_to(6).unwrap();
    assert!(batches.next().is_none());
}
