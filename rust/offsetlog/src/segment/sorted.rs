//! Searches the entries of an index, which ascend.

/// Slot of the first of `count` entries at or after `target`; `at` returns the timestamp or offset in a slot.
///
/// Both mostly grow evenly, so the search begins where the entry then is, and widens from there: a look-up waits for one
/// or two lines of memory in place of one for each halving.
pub(super) fn first_at_or_after(
    count: usize,
    at: impl Fn(usize) -> Option<i64>,
    target: i64,
) -> usize {
    let Some(most) = count.checked_sub(1) else {
        return 0;
    };
    let (Some(first), Some(last)) = (at(0), at(most)) else {
        return 0;
    };
    if target <= first {
        return 0;
    }
    if target > last {
        return count;
    }
    let is_before = |slot: usize| at(slot).is_some_and(|entry| entry < target);
    let (passed, range) = (target.abs_diff(first), last.abs_diff(first));
    // So few bits that the product has at most 64; the guess loses nothing that matters.
    let shift = 32_u32.saturating_sub(range.leading_zeros());
    let guess = (passed >> shift).saturating_mul(most as u64) / (range >> shift).max(1);
    let guess = (guess as usize).min(most);
    let (mut low, mut high, mut step) = (0, count, 4);
    if is_before(guess) {
        low = guess + 1;
        while let Some(next) = low.checked_add(step).filter(|&next| next < high) {
            if !is_before(next) {
                high = next;
                break;
            }
            low = next + 1;
            step *= 2;
        }
    } else {
        high = guess;
        while let Some(next) = high.checked_sub(step) {
            if is_before(next) {
                low = next + 1;
                break;
            }
            high = next;
            step *= 2;
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::first_at_or_after;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_guess_decides_how_long_a_search_takes_and_not_what_it_finds(
            mut timestamps in prop_oneof![
                prop::collection::vec(0_i64..400, 0..300),
                prop::collection::vec(any::<i64>(), 0..300),
                prop::collection::vec((0_u32..62).prop_map(|bit| 1_i64 << bit), 0..60),
            ],
            others in prop::collection::vec(any::<i64>(), 4),
        ) {
            timestamps.sort_unstable();
            timestamps.dedup();
            let at = |slot: usize| timestamps.get(slot).copied();
            let near = timestamps.iter().flat_map(|&at| [at.saturating_sub(1), at, at.saturating_add(1)]);
            for timestamp in near.chain(others).chain([i64::MIN, i64::MAX]) {
                prop_assert_eq!(
                    first_at_or_after(timestamps.len(), at, timestamp),
                    timestamps.partition_point(|&entry| entry < timestamp)
                );
            }
        }
    }
}
