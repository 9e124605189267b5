//! What a truncation removed stays removed, wherever it is kept.

use super::*;

fn with_truncated() -> SalvageOptions {
    SalvageOptions {
        include_truncated: true,
        ..SalvageOptions::default()
    }
}

#[test]
fn what_was_truncated_needs_to_be_asked_for() {
    let place = Place::new();
    place.append(6, "first", 0);
    place.damage(9);
    place.recover();
    let log = place.open(&[]);
    log.truncate_to(3).unwrap();
    log.close().unwrap();
    let report = place.salvage(&SalvageOptions::default());
    assert_eq!(offsets(&place.made()), (0..3).collect::<Vec<_>>());
    let left: Vec<_> = report
        .left_out
        .iter()
        .filter(|left| left.batches > 0)
        .collect();
    assert_eq!(
        (left[0].batches, left[0].first_offset, left[0].last_offset),
        (2, 12, Some(17))
    );
    fs::remove_dir_all(place.made()).unwrap();
    place.salvage(&with_truncated());
    assert_eq!(
        offsets(&place.made()),
        (0..3).chain(12..18).collect::<Vec<_>>()
    );
}

/// As a mirror truncates what its source's leader does not have: nothing that comes later tells the two apart.
#[test]
fn what_was_truncated_and_kept_needs_to_be_asked_for() {
    let place = Place::new();
    place.append(6, "first", 0);
    for (to, end) in [(9, 18), (3, 9)] {
        let log = place.open(&[]);
        let kept = log.truncate_to_keeping(to).unwrap();
        assert_eq!(offsets(&kept[0]), (to..end).collect::<Vec<_>>());
        append(&log, 1, "other", 0);
        log.truncate_to_keeping(to).unwrap();
        log.close().unwrap();
    }
    let log = Log::open(place.old(), &OpenOptions::default()).unwrap();
    let kept = log.set_aside_files().unwrap();
    assert_eq!(kept.len(), 4);
    assert!(kept.iter().all(|file| file.is_truncation));
    let report = place.salvage(&SalvageOptions::default());
    assert_eq!(offsets(&place.made()), (0..3).collect::<Vec<_>>());
    assert_eq!(
        report.left_out.iter().map(|left| left.batches).sum::<u64>(),
        7
    );
    assert!(report.taken_back.is_empty());
    fs::remove_dir_all(place.made()).unwrap();
    place.salvage(&with_truncated());
    assert_eq!(offsets(&place.made()), (0..18).collect::<Vec<_>>());
}

/// Recovery cuts one segment in its middle and the others whole; a truncation below that position takes the segment, and with it what tells.
#[test]
fn what_was_cut_whole_behind_a_truncated_segment_was_truncated_too() {
    // The last two leave whole segments, 6 to 14, that wait for their deletion.
    for (to, deleted) in [(16, 15..15), (14, 15..15), (4, 6..15), (0, 6..15)] {
        let place = Place::new();
        let log = place.open(&[("internal.segment.bytes", "250")]);
        append(&log, 12, "first", 0);
        let bases = bases(log.log());
        log.close().unwrap();
        assert_eq!(bases[..4], [0, 6, 12, 18]);
        place.damage(15);
        place.recover();
        let kept = set_aside(&place);
        assert!(kept[0].0 == 12 && kept[0].1 > 0, "{kept:?}");
        assert!(kept[1..].iter().all(|(_, position)| *position == 0));
        let whole = SalvageOptions {
            dry_run: true,
            ..SalvageOptions::default()
        };
        let lost = 15..18;
        let all: u64 = place
            .salvage(&whole)
            .taken_back
            .iter()
            .map(|back| back.records)
            .sum();
        assert_eq!(all, 36 - 15 - (lost.end - lost.start));
        let log = place.open(&[]);
        log.truncate_to(to).unwrap();
        log.close().unwrap();
        let report = place.salvage(&SalvageOptions::default());
        let cut = to.min(15);
        if to >= 15 {
            // Nothing before the cut went.
            assert_eq!(
                offsets(&place.made()),
                (0..15).chain(18..36).collect::<Vec<_>>()
            );
            continue;
        }
        assert_eq!(offsets(&place.made()), (0..cut / 3 * 3).collect::<Vec<_>>());
        assert!(report.taken_back.is_empty());
        fs::remove_dir_all(place.made()).unwrap();
        place.salvage(&with_truncated());
        let back = (0..cut / 3 * 3).chain(deleted).chain(18..36);
        assert_eq!(offsets(&place.made()), back.collect::<Vec<_>>());
    }
}

/// The log was written anew, with a segment where one was that recovery had cut whole.
#[test]
fn what_was_cut_whole_behind_a_truncated_segment_that_grew_again_was_truncated_too() {
    let place = Place::new();
    let log = place.open(&[("internal.segment.bytes", "250")]);
    append(&log, 12, "first", 0);
    log.close().unwrap();
    place.damage(3);
    place.recover();
    let kept = set_aside(&place);
    assert!(
        kept[0].0 == 0 && kept[0].1 > 0 && kept[1] == (6, 0),
        "{kept:?}"
    );
    let log = place.open(&[("internal.segment.bytes", "250")]);
    log.truncate_to(0).unwrap();
    append(&log, 3, &"other".repeat(6), 0);
    assert_eq!(bases(log.log()), [0, 3, 6]);
    log.close().unwrap();
    let report = place.salvage(&SalvageOptions::default());
    assert_eq!(offsets(&place.made()), (0..9).collect::<Vec<_>>());
    assert!(report.taken_back.is_empty());
}

/// Two recoveries, the second of which cut below the first: perhaps the log was truncated in between, and written anew.
#[test]
fn what_an_earlier_recovery_cut_behind_a_later_one_needs_to_be_asked_for() {
    let place = Place::new();
    place.append(4, "first", 0);
    place.damage(9);
    place.recover();
    place.damage(3);
    place.recover();
    place.salvage(&SalvageOptions::default());
    assert_eq!(
        offsets(&place.made()),
        (0..3).chain(6..9).collect::<Vec<_>>()
    );
    fs::remove_dir_all(place.made()).unwrap();
    // The same sizes, and other records in the place of those that were truncated.
    let other = Place::new();
    other.append(6, "first", 0);
    other.damage(15);
    other.recover();
    let log = other.open(&[]);
    log.truncate_to(9).unwrap();
    append(&log, 4, "other", 0);
    log.close().unwrap();
    other.damage(12);
    other.recover();
    other.salvage(&SalvageOptions::default());
    let found = rows(&other.made());
    assert!(
        found.iter().all(|row| row.0 < 9
            || row
                .3
                .as_deref()
                .is_some_and(|value| value.starts_with(b"other"))),
        "{found:?}"
    );
}

fn bases(log: &Log) -> Vec<i64> {
    let segments = log.segments().unwrap();
    segments.iter().map(|segment| segment.base_offset).collect()
}

fn set_aside(place: &Place) -> Vec<(i64, u64)> {
    let log = Log::open(place.old(), &OpenOptions::default()).unwrap();
    let files = log.set_aside_files().unwrap();
    files
        .iter()
        .map(|file| (file.base_offset, file.cut_at.unwrap()))
        .collect()
}
