//! What a kill, a torn write or damage leaves, and what opening and `recover` make of it.

use crate::common::{
    Place, append, append_in, bases, bounds, clean, closed, file, fill, follow, kept, log_file,
    logs, numbered, offsets, produce, records, recovered, sent, stored, unclean, values,
};
use offsetlog::{AppendLogOptions, LogWriter, OpenOptions, RecoverOptions, WriteOptions, recover};
use offsetlog_faults::run::PARTITION;
use std::collections::BTreeMap;

/// Batches of two records of producer 4 in one segment, whose writer was killed.
fn killed(batches: i32) -> Place {
    let place = Place::new();
    let log = place.open(&[]);
    for number in 0..batches {
        let (first, second) = (format!("v{}", 2 * number), format!("v{}", 2 * number + 1));
        produce(&log, (4, 0, 2 * number), false, &[&first, &second]).unwrap();
    }
    log.abandon();
    place
}

fn without_snapshots(place: &Place) -> BTreeMap<String, Vec<u8>> {
    let mut files = place.data_files();
    files.retain(|name, _| !name.ends_with(".snapshot"));
    files
}

#[test]
fn a_killed_writers_log_comes_back_whole() {
    let place = killed(3);
    let before = place.bytes(&log_file(0));
    let log = place.again();
    let report = log.recovery_report();
    assert!(!report.clean);
    assert_eq!((report.cut.as_slice(), report.segments_read), (&[][..], 1));
    assert_eq!(
        (report.bytes_read, report.log_end_offset),
        (before.len() as u64, 6)
    );
    assert_eq!(records(&log), numbered(0, 6));
    assert!(
        produce(&log, (4, 0, 4), false, &["v4", "v5"])
            .unwrap()
            .duplicate
    );
    assert_eq!(append(&log, &["v6"]).base_offset, 6);
    log.close().unwrap();
    assert!(place.bytes(&log_file(0)).starts_with(&before));
    assert!(place.again().recovery_report().clean);
}

/// Contract 9.5, and better: wherever a write was torn the batches before it stay, and its bytes are kept.
#[test]
fn every_length_of_a_file() {
    let source = killed(3);
    let whole = source.bytes(&log_file(0));
    let size = whole.len() / 3;
    for length in 0..=whole.len() {
        for clean in [None, Some(true)] {
            let place = source.copy();
            place.put(&log_file(0), &whole[..length]);
            let batches = length / size;
            let end = 2 * batches as i64;
            let reader = place.reader();
            assert_eq!(
                (records(&reader), reader.log_end_offset().unwrap()),
                (numbered(0, end), end)
            );
            let write = WriteOptions {
                clean,
                ..WriteOptions::default()
            };
            let log = place.try_again(write).unwrap();
            assert_eq!(
                (records(&log), bounds(&log)),
                (numbered(0, end), (0, end, end)),
                "{length}"
            );
            let report = log.recovery_report();
            let rest = &whole[batches * size..length];
            let cuts: Vec<_> = report
                .cut
                .iter()
                .map(|cut| (cut.position, cut.bytes, cut.had_batches))
                .collect();
            let expected = [((batches * size) as u64, rest.len() as u64, false)];
            assert_eq!(cuts, expected[..usize::from(!rest.is_empty())], "{length}");
            // Zeros are not worth keeping.
            let worth = if rest.iter().any(|&byte| byte != 0) {
                rest
            } else {
                &[]
            };
            assert_eq!(kept(&place, &report), worth, "{length}");
            // What was cut is sent again, and the producer is known as far as its batches are there.
            let again = produce(&log, (4, 0, end as i32), false, &["next"]).unwrap();
            assert_eq!((again.base_offset, again.duplicate), (end, false));
            log.abandon();
            let mut expected = numbered(0, end);
            expected.push((end, "next".to_owned()));
            assert_eq!(records(&place.again()), expected, "{length}");
        }
    }
}

/// Contract 9.5 and 12.3, 12.4: a file that grew before its bytes came.
#[test]
fn zeros_behind_the_end() {
    for zeros in [1, 11, 12, 16, 17, 18, 61, 5000] {
        for write in [clean(), unclean(0), unclean(6)] {
            let place = killed(3);
            place.edit(&log_file(0), |bytes| bytes.resize(bytes.len() + zeros, 0));
            let log = place.try_again(write).unwrap();
            let report = log.recovery_report();
            assert_eq!((bounds(&log).1, report.kept().count()), (6, 0), "{zeros}");
            assert_eq!(append(&log, &["v6"]).base_offset, 6);
            assert_eq!(records(&log), numbered(0, 7));
            log.close().unwrap();
            assert_eq!(records(&place.reader()), numbered(0, 7));
        }
    }
}

/// Contract 12.1: Kafka cuts there without asking. Opening refuses and changes no record, `recover` cuts and keeps.
#[test]
fn damage_with_batches_behind_it() {
    let bytes = stored(0, &["v0", "v1"]).len() as u64;
    // The segment's base and the batch in it; each segment holds two.
    for (base, slot) in [(0, 0), (0, 1), (4, 0), (4, 1), (8, 0)] {
        let place = closed();
        let position = slot * bytes;
        place.edit(&log_file(base), |bytes| bytes[position as usize + 66] ^= 4);
        // Snapshots go when segments are read again, as in a broker; the records say what was in them.
        let before = without_snapshots(&place);
        let error = place.try_again(unclean(0)).unwrap_err();
        assert_eq!(error.kind().code(), "CorruptBatch", "{error}");
        assert_eq!(
            error.path(),
            Some(crate::common::path(&log_file(base)).as_path())
        );
        assert_eq!(error.position(), Some(position));
        assert!(error.to_string().contains("`offsetlog recover`"), "{error}");
        assert_eq!(without_snapshots(&place), before);
        assert!(
            crate::common::scanned(&place.reader(), &offsetlog::ScanOptions::default()).is_err()
        );

        let changes = place.disk.changes();
        let planned = recovered(&place, true);
        assert_eq!(place.disk.changes(), changes);
        let logs_before = logs(&place);
        let report = recovered(&place, false);
        let end = base + 2 * slot as i64;
        assert_eq!((planned.log_end_offset, report.log_end_offset), (end, end));
        assert_eq!(planned.cut, report.cut);
        assert_eq!(
            (report.cut[0].position, report.cut[0].path.as_path()),
            (position, error.path().unwrap())
        );
        assert!(report.cut.iter().any(|cut| cut.had_batches));
        // Every byte that left the log is kept.
        let after: Vec<u8> = logs(&place)
            .into_iter()
            .filter(|(name, _)| !name.contains('/'))
            .flat_map(|(_, bytes)| bytes)
            .collect();
        let whole: Vec<u8> = logs_before.into_values().flatten().collect();
        assert_eq!([after, kept(&place, &report)].concat(), whole);
        let log = place.again();
        assert!(log.recovery_report().clean);
        assert_eq!(records(&log), numbered(0, end));
        assert_eq!(append(&log, &["next"]).base_offset, end);
    }
}

/// No checksum covers a base offset: of a batch with a wrong one nothing can be said, and those behind it count.
#[test]
fn a_wrong_base_offset_is_no_offset_of_what_was_cut() {
    let bytes = stored(0, &["v0", "v1"]).len();
    // The segment of that batch, which of its bytes is wrong, and what is cut beside it.
    for (base, at, records, first) in [
        (0, bytes + 2, 8, 4),
        (4, 2, 6, 6),
        (4, 4, 6, 6),
        (8, 2, 6, 4),
    ] {
        let place = closed();
        if base > 0 {
            place.edit(&log_file(0), |segment| segment[bytes + 66] ^= 4);
        }
        place.edit(&log_file(base), |segment| segment[at] ^= 4);
        let planned = recovered(&place, true);
        let report = recovered(&place, false);
        assert_eq!(planned.cut, report.cut);
        assert_eq!(report.log_end_offset, 2, "{base} {at}");
        let cut = (report.records_cut(), report.offsets_cut());
        assert_eq!(cut, (records, Some((first, 11))), "{base} {at}");
    }
}

/// Nothing whole stands behind it: that is a torn write, whatever the clean mark says.
#[test]
fn damage_in_the_last_batch_is_cut_when_opening() {
    for write in [WriteOptions::default(), clean(), unclean(0), unclean(12)] {
        let place = closed();
        let position = stored(8, &["v8", "v9"]).len();
        place.edit(&log_file(8), |bytes| *bytes.last_mut().unwrap() ^= 1);
        let log = place.try_again(write).unwrap();
        let report = log.recovery_report();
        assert_eq!(
            (report.cut.len(), report.cut[0].position as usize),
            (1, position)
        );
        assert_eq!(
            (report.cut[0].had_batches, records(&log)),
            (false, numbered(0, 10))
        );
        assert_eq!(append(&log, &["next"]).base_offset, 10);
    }
}

/// Fields before what the checksum covers: contract 12.5. None of them loses or moves another record that was on the disk.
#[test]
fn fields_that_no_checksum_covers() {
    let source = killed(3);
    let log = source.again();
    append(&log, &["v6", "v7"]);
    log.close().unwrap();
    let size = killed(1).bytes(&log_file(0)).len();
    for at in (0..17).filter(|at| !(12..16).contains(at)) {
        for bit in 0..8 {
            let place = source.copy();
            // Of the batch in the middle.
            place.edit(&log_file(0), |bytes| bytes[size + at] ^= 1 << bit);
            let before = logs(&place);
            match place.try_again(unclean(0)) {
                Err(_) => assert_eq!(logs(&place), before, "{at} {bit}"),
                Ok(log) => {
                    let found = records(&log);
                    let known = |at: usize, value: &str| {
                        found.get(at).is_some_and(|record| record.1 == value)
                    };
                    assert!(
                        known(0, "v0") && known(4, "v4") && known(6, "v6"),
                        "{at} {bit}: {found:?}"
                    );
                    assert!(
                        found.windows(2).all(|pair| pair[0].0 < pair[1].0),
                        "{at} {bit}: {found:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn recovering_twice_keeps_both_cuts() {
    let place = closed();
    let end = place.bytes(&log_file(8)).len();
    let mut all = Vec::new();
    for rest in [&b"first rest of a write"[..], b"second rest"] {
        place.edit(&log_file(8), |bytes| bytes.extend_from_slice(rest));
        let report = recovered(&place, false);
        assert_eq!(
            (report.cut.len(), report.cut[0].position as usize),
            (1, end)
        );
        all.push(report);
    }
    let found: Vec<_> = all.iter().map(|report| kept(&place, report)).collect();
    assert_eq!(found, [&b"first rest of a write"[..], b"second rest"]);
}

#[test]
fn what_was_kept_can_be_read_as_a_log() {
    let place = closed();
    place.edit(&log_file(4), |bytes| bytes[66] ^= 4);
    let report = recovered(&place, false);
    let rescued = Place::new();
    let log = rescued.open(&[]);
    // The last segment went whole.
    let last = report
        .cut
        .iter()
        .find(|cut| cut.path.ends_with(log_file(8)))
        .unwrap();
    let name = last
        .kept
        .as_deref()
        .unwrap()
        .strip_prefix(PARTITION)
        .unwrap();
    follow(&log, &place.bytes(name.to_str().unwrap()), 0).unwrap();
    assert_eq!(records(&log), numbered(8, 12));
    // And appended where it came from.
    let log_again = place.again();
    let options = AppendLogOptions {
        keep_offsets: true,
        ..AppendLogOptions::default()
    };
    log_again
        .append_log(
            &log,
            &AppendLogOptions {
                start: Some(8),
                ..options
            },
        )
        .unwrap();
    assert_eq!(
        records(&log_again),
        [numbered(0, 4), numbered(8, 12)].concat()
    );
}

/// Contract 9.2, 2: unfinished work is taken away, what was to be deleted too; what nobody of Kafka's wrote stays.
#[test]
fn leftovers_of_deletions_and_compactions() {
    let place = closed();
    let contents = logs(&place);
    place.put("00000000000000000099.log.deleted", b"old");
    place.put(&file(4, ".log.cleaned"), b"half");
    place.put(&file(4, ".index.cleaned"), b"");
    place.put(".offsetlog.state.tmp", b"half");
    place.put("notes.txt", b"mine");
    assert_eq!(records(&place.reader()), numbered(0, 12));
    let log = place.again();
    assert_eq!(log.recovery_report().tidied.len(), 4);
    assert_eq!((records(&log), logs(&place)), (numbered(0, 12), contents));
    assert_eq!(place.bytes("notes.txt"), b"mine");
    let left = place.files().into_keys().filter(|name| {
        name.ends_with(".deleted") || name.ends_with(".cleaned") || name.ends_with(".tmp")
    });
    assert_eq!(left.count(), 0);
}

/// Contract 4.7 of maintenance: files of the segments that were replaced go, and the new one takes its name.
#[test]
fn a_swap_that_was_begun_is_finished() {
    let output = [sent(&["v1"]).base(1).0, sent(&["v7"]).base(7).0].concat();
    // With unfinished output at a higher base the swap counts; at the same base it does not.
    for (cleaned, expected) in [
        (None, vec![1, 7, 8, 9, 10, 11]),
        (Some(8), vec![1, 7, 8, 9, 10, 11]),
        (Some(0), (0..12).collect()),
    ] {
        let place = closed();
        place.put(&file(0, ".log.swap"), &output);
        if let Some(base) = cleaned {
            place.put(&file(base, ".log.cleaned"), b"half");
        }
        let log = place.again();
        assert_eq!(offsets(&log), expected, "{cleaned:?}");
        assert!(!log.recovery_report().tidied.is_empty());
        assert_eq!(
            bases(&log),
            if expected.len() == 12 {
                vec![0, 4, 8]
            } else {
                vec![0, 8]
            }
        );
        assert_eq!(append(&log, &["next"]).base_offset, 12);
        assert!(
            place
                .files()
                .keys()
                .all(|name| !name.ends_with(".swap") && !name.ends_with(".cleaned"))
        );
        assert!(log.get(5).unwrap().is_none() == (expected.len() < 12));
    }
}

/// Contract 9.2, 4.
#[test]
fn indexes_without_a_segment_go() {
    let place = closed();
    for suffix in [".index", ".timeindex", ".txnindex"] {
        place.put(&file(50, suffix), &[0; 8]);
    }
    let log = place.again();
    assert_eq!(records(&log), numbered(0, 12));
    assert!(
        place
            .files()
            .keys()
            .all(|name| !name.starts_with(&file(50, "")))
    );
}

/// Contract 9.6: in the middle of what is durable a missing segment is a gap, and is told.
#[test]
fn a_segment_that_is_missing() {
    let place = closed();
    for suffix in [".log", ".index", ".timeindex"] {
        place.remove(&file(4, suffix));
    }
    for write in [clean(), WriteOptions::default()] {
        let log = place.copy().try_again(write).unwrap();
        assert_eq!(records(&log), [numbered(0, 4), numbered(8, 12)].concat());
        assert_eq!(append(&log, &["next"]).base_offset, 12);
    }
    let place = closed();
    for suffix in [".log", ".index", ".timeindex"] {
        place.remove(&file(0, suffix));
    }
    assert_eq!(bounds(&place.again()).0, 4);
}

/// Beyond the recovery point: names of new segments reached the disk, the bytes of older ones did not.
#[test]
fn a_hole_that_lost_power_left_ends_the_log() {
    for (emptied, end, kept_bases) in [
        (&[2, 4][..], 2, &[0, 2][..]),
        (&[2], 2, &[0, 2]),
        (&[], 7, &[0, 2, 4, 6]),
    ] {
        let place = Place::new();
        let log = place.open(&[]);
        for number in 0..7 {
            append(&log, &[&format!("v{number}")]);
            if number % 2 == 1 {
                log.roll().unwrap();
            }
        }
        log.abandon();
        for &base in emptied {
            place.put(&log_file(base), b"");
        }
        let log = place.again();
        assert_eq!((bounds(&log).1, bases(&log)), (end, kept_bases.to_vec()));
        let cut = log.recovery_report().cut;
        assert_eq!(cut.is_empty(), emptied.is_empty(), "{cut:?}");
        assert_eq!(append(&log, &["next"]).base_offset, end);
        assert_eq!(records(&log).len() as i64, end + 1);
    }
}

#[test]
fn a_gap_that_was_acknowledged_is_no_hole() {
    let place = Place::new();
    let log = place.open(&[]);
    append(&log, &["v0"]);
    append(&log, &["v1", "v2", "v3"]);
    log.truncate_to(3).unwrap();
    assert_eq!(log.roll().unwrap(), 3);
    append(&log, &["v3"]);
    log.abandon();
    let log = place.again();
    assert_eq!(log.recovery_report().cut, []);
    assert_eq!(records(&log), [(0, "v0".to_owned()), (3, "v3".to_owned())]);
}

/// Wherever power is lost after a flush, and whatever of the rest reached the disk, the flushed records come back.
#[test]
fn power_is_lost_at_any_change() {
    use offsetlog_faults::sim::{Cut, Fill};
    let place = Place::new();
    let log = place.open(&[("index.interval.bytes", "0")]);
    fill(&log, 2, &[]);
    log.flush().unwrap();
    let (mut world, first) = (place.disk.world(), place.disk.changes());
    for number in 4..10 {
        append_in(&log, number, &[&format!("v{number}")]);
        if number % 3 == 0 {
            log.roll().unwrap();
        }
    }
    log.close().unwrap();
    let mut rng = fastrand::Rng::with_seed(11);
    for change in &place.disk.recorded()[first..] {
        world.apply(change);
        for cut in [Cut::Process, Cut::Nothing, Cut::Random] {
            let place = Place::of(world.crash(cut, Fill::Zeros, &mut rng));
            let log = place.again();
            let mended = records(&log);
            assert!(
                mended.len() >= 4 && mended == numbered(0, mended.len() as i64),
                "{mended:?}"
            );
            assert_eq!(append(&log, &["next"]).base_offset, mended.len() as i64);
        }
    }
}

#[test]
fn what_is_no_log() {
    let place = Place::new();
    let options: OpenOptions = place.options();
    let all = RecoverOptions::default();
    let absent = recover("/sim/logs/absent-0", &options, &all).unwrap_err();
    assert_eq!(absent.kind().code(), "Io", "{absent}");
    let changes = place.disk.changes();
    let unnamed = recover("/sim/logs", &options, &all).unwrap_err();
    assert_eq!(unnamed.kind().code(), "LogDir", "{unnamed}");
    assert!(LogWriter::open("/sim/logs", &options, &WriteOptions::default()).is_err());
    assert_eq!(place.disk.changes(), changes);
    assert_eq!(values(&place.open(&[])), Vec::<String>::new());
}
