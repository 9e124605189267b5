//! What is told of kept files that cannot be read.

use super::*;

/// So many places are listed.
const LISTED: i64 = 10_000;

/// A log with a kept file in which each second batch is damaged, this many of them.
fn with_damaged(count: i64) -> Place {
    let place = Place::new();
    place.append(1, "first", 0);
    let batch = place.bytes();
    let mut kept = Vec::new();
    for number in 1..=(2 * count + 1) {
        let begin = kept.len();
        kept.extend_from_slice(&batch);
        // No checksum covers the base offset.
        kept[begin..begin + 8].copy_from_slice(&(3 * number).to_be_bytes());
        if number % 2 == 0 {
            kept[begin + 70] ^= 0xff;
        }
    }
    place.keep(batch.len() as u64, &kept);
    place
}

#[test]
fn of_more_places_than_are_listed_the_rest_is_counted() {
    for more in [0, 3] {
        let count = LISTED + more;
        let place = with_damaged(count);
        let how = SalvageOptions {
            dry_run: true,
            ..SalvageOptions::default()
        };
        let report = place.salvage(&how);
        let found: i64 = report
            .taken_back
            .iter()
            .map(|back| back.batches as i64)
            .sum();
        assert_eq!(found, count + 1);
        let (rest, listed): (Vec<_>, Vec<_>) = report
            .left_out
            .iter()
            .partition(|left| left.reason.contains("further place"));
        assert!(listed.iter().all(|left| left.batches == 0));
        let told = listed
            .iter()
            .map(|left| (left.first_offset, left.last_offset));
        let wanted = (0..LISTED).map(|number| (6 * number + 6, Some(6 * number + 8)));
        assert!(told.eq(wanted), "{more}: {:?}", listed.last());
        let rest = rest
            .iter()
            .map(|left| (left.first_offset, left.last_offset, left.reason.as_str()));
        let rest: Vec<_> = rest.collect();
        let behind = 6 * LISTED + 3;
        let reason = "3 further places of it cannot be read either, and is not in the losses";
        let wanted = (more > 0).then_some((behind, None, reason));
        assert_eq!(rest, Vec::from_iter(wanted));
    }
}
