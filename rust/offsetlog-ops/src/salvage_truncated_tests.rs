//! What a truncation removed stays removed, wherever it is kept.

use super::*;

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
    let asked = SalvageOptions {
        include_truncated: true,
        ..SalvageOptions::default()
    };
    place.salvage(&asked);
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
    let asked = SalvageOptions {
        include_truncated: true,
        ..SalvageOptions::default()
    };
    place.salvage(&asked);
    assert_eq!(offsets(&place.made()), (0..18).collect::<Vec<_>>());
}
