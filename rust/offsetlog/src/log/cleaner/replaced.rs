//! Which records a later one replaces, a bit each, noted while the map is built: the second pass so looks up none of them again.

/// Bytes of memory: records up to 33,554,432 offsets behind the first are noted.
const MAX_BYTES: usize = 4 << 20;

/// The replaced records of the dirty part of the log.
#[derive(Debug)]
pub(super) struct Replaced {
    /// The offset of the first bit; `None` if there was no memory for one of them.
    first: Option<i64>,
    /// Up to the last replaced record.
    words: Vec<u64>,
}

impl Replaced {
    /// Of records from the offset `first` on.
    pub(super) const fn new(first: i64) -> Self {
        Self {
            first: Some(first),
            words: Vec::new(),
        }
    }

    /// The word of a record, and its bit there; `None` if it is not one of those that are noted.
    #[inline]
    fn place(&self, offset: i64) -> Option<(usize, u64)> {
        let bit = usize::try_from(offset.checked_sub(self.first?)?).ok()?;
        (bit < 8 * MAX_BYTES).then(|| (bit / 64, 1 << (bit % 64)))
    }

    /// Notes that a later record replaces the one at `offset`.
    #[inline]
    pub(super) fn note(&mut self, offset: i64) {
        let Some((slot, bit)) = self.place(offset) else {
            return;
        };
        if slot >= self.words.len() {
            // Twice as much each time, and no more than all of them.
            let room = (slot + 1).next_power_of_two() - self.words.len();
            if self.words.try_reserve_exact(room).is_err() {
                (self.first, self.words) = (None, Vec::new());
                return;
            }
            self.words.resize(slot + 1, 0);
        }
        if let Some(word) = self.words.get_mut(slot) {
            *word |= bit;
        }
    }

    /// Whether a later record replaces the one at `offset`, which is in the map; `None` if that was not noted.
    #[inline]
    pub(super) fn has(&self, offset: i64) -> Option<bool> {
        let (slot, bit) = self.place(offset)?;
        Some(self.words.get(slot).is_some_and(|word| word & bit != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_the_offsets() {
        let mut replaced = Replaced::new(1000);
        let noted = [1000, 1003, 1063, 1064, 5000, 1200];
        for offset in noted {
            replaced.note(offset);
        }
        for offset in 1000..6000 {
            assert_eq!(replaced.has(offset), Some(noted.contains(&offset)));
        }
    }

    #[test]
    fn what_is_too_far_away_is_unknown() {
        let mut replaced = Replaced::new(-5);
        let last = -5 + (8 * MAX_BYTES as i64 - 1);
        for offset in [i64::MIN, -6, last + 1, i64::MAX] {
            replaced.note(offset);
            assert_eq!(replaced.has(offset), None);
        }
        assert!(replaced.words.is_empty());
        replaced.note(last);
        assert_eq!(
            (replaced.has(last), replaced.has(-5)),
            (Some(true), Some(false))
        );
        assert_eq!(8 * replaced.words.capacity(), MAX_BYTES);
    }
}
