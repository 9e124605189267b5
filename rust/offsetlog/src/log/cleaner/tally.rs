//! Counts, while the map is built, how many records of each batch a later one replaces.
//!
//! So the second pass skips batches of which no record stays, and copies batches of which every record stays without reading the records.
//! Which records of a batch stay is in [`Replaced`](super::replaced::Replaced), and batches that were not counted are decided by the map.

/// Batches that are counted: 6 MiB of memory.
const MAX_BATCHES: usize = 1 << 18;

/// What stays of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remains {
    Nothing,
    All,
    /// So many records.
    Some(u32),
}

/// One batch whose records are in the map.
#[derive(Debug, Clone, Copy)]
struct Counted {
    last_offset: i64,
    /// The checksum of what was counted.
    crc: u32,
    /// 0 if it is not known of each record whether it stays until a later one replaces it.
    records: u32,
    replaced: u32,
}

/// The counts of all batches.
#[derive(Debug, Default)]
pub(super) struct Tally {
    batches: Vec<Counted>,
    is_over: bool,
    /// Slot of the batch whose record was replaced last, and of the batch that was asked for last.
    replaced: usize,
    asked: usize,
}

impl Tally {
    /// Begins a batch: its records are put into the map next. Call it with ascending offsets, for every batch that is put there.
    pub(super) fn begin(&mut self, last_offset: i64, crc: u32) {
        if self.batches.len() == MAX_BATCHES {
            self.give_up();
        }
        if !self.is_over {
            self.batches.push(Counted {
                last_offset,
                crc,
                records: 0,
                replaced: 0,
            });
        }
    }

    /// Ends that batch: all its records are in the map, and each of them stays until a later one has its key.
    pub(super) fn end(&mut self, records: u32) {
        if let Some(batch) = self.batches.last_mut() {
            batch.records = records;
        }
    }

    /// Counts that a later record replaced the one at `offset`.
    #[inline]
    pub(super) fn replace(&mut self, offset: i64) {
        if self.is_over {
            return;
        }
        if !self.holds(self.replaced, offset) {
            self.replaced += 1;
            if !self.holds(self.replaced, offset) {
                self.search(offset);
            }
        }
        if let Some(batch) = self.batches.get_mut(self.replaced) {
            batch.replaced += 1;
        }
    }

    /// Whether the record at `offset` is in the batch in `slot`.
    #[inline]
    fn holds(&self, slot: usize, offset: i64) -> bool {
        let before = slot.checked_sub(1).and_then(|slot| self.batches.get(slot));
        let begins = before.is_none_or(|before| before.last_offset < offset);
        let batch = self.batches.get(slot);
        begins && batch.is_some_and(|batch| offset <= batch.last_offset)
    }

    /// Finds the batch of a record. Most batches hold about as many records as others, so a guess by proportion comes close.
    fn search(&mut self, offset: i64) {
        let guessed = self.guess(offset).unwrap_or(0);
        let near = guessed.saturating_sub(1)..=guessed + 1;
        self.replaced = near
            .into_iter()
            .find(|&slot| self.holds(slot, offset))
            .unwrap_or_else(|| {
                self.batches
                    .partition_point(|batch| batch.last_offset < offset)
            });
    }

    fn guess(&self, offset: i64) -> Option<usize> {
        let first = self.batches.first()?.last_offset;
        let span = self.batches.last()?.last_offset.checked_sub(first)?;
        let part = i128::from(offset.checked_sub(first)?) * (self.batches.len() as i128 - 1);
        usize::try_from(part.checked_div(i128::from(span))?).ok()
    }

    /// Counts nothing from now on: each record is decided for itself.
    pub(super) fn give_up(&mut self) {
        self.is_over = true;
        self.batches = Vec::new();
    }

    /// Returns what stays of the batch with this last offset and checksum, and its number of records; `None` if that was not counted: the
    /// batch may be another than the one that was. Call it with ascending offsets, once the map is complete.
    pub(super) fn remains(&mut self, last_offset: i64, crc: u32) -> Option<(Remains, u32)> {
        while let Some(batch) = self.batches.get(self.asked)
            && batch.last_offset < last_offset
        {
            self.asked += 1;
        }
        let batch = self.batches.get(self.asked)?;
        if (batch.last_offset, batch.crc) != (last_offset, crc) || batch.records == 0 {
            return None;
        }
        let remains = match batch.replaced {
            0 => Remains::All,
            replaced if replaced == batch.records => Remains::Nothing,
            replaced => Remains::Some(batch.records.checked_sub(replaced)?),
        };
        Some((remains, batch.records))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRC: u32 = 0x1234_5678;

    fn tally(batches: i64) -> Tally {
        let mut tally = Tally::default();
        for batch in 0..batches {
            tally.begin(batch * 10 + 9, CRC);
            tally.end(10);
        }
        tally
    }

    #[test]
    fn whole_batches_are_told_from_parts() {
        let mut tally = tally(4);
        for offset in (0..10).chain(20..25).chain(30..40) {
            tally.replace(offset);
        }
        tally.begin(49, CRC);
        let found: Vec<_> = (0..5)
            .map(|batch| tally.remains(batch * 10 + 9, CRC))
            .collect();
        let nothing = Some((Remains::Nothing, 10));
        let (all, half) = (Some((Remains::All, 10)), Some((Remains::Some(5), 10)));
        let expected = [nothing, all, half, nothing, None];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_batch_that_was_not_put_is_unknown() {
        let mut tally = tally(2);
        assert_eq!(tally.remains(15, CRC), None);
        assert_eq!(tally.remains(19, CRC), Some((Remains::All, 10)));
    }

    #[test]
    fn another_batch_in_its_place_is_unknown() {
        let mut tally = tally(2);
        (0..10).for_each(|offset| tally.replace(offset));
        assert_eq!(tally.remains(9, CRC + 1), None);
        assert_eq!(tally.remains(9, CRC), Some((Remains::Nothing, 10)));
        assert_eq!(tally.remains(19, CRC - 1), None);
    }

    #[test]
    fn keys_in_another_order_are_found() {
        let mut tally = Tally::default();
        let mut next = 0;
        for batch in 0..1000 {
            let records = 1 + batch * 7919 % 50;
            next += i64::from(records);
            tally.begin(next - 1, CRC);
            tally.end(records);
        }
        let halves = 0..next / 2;
        for step in halves.clone() {
            tally.replace(step * 7919 % halves.end);
        }
        for slot in 0..1000 {
            let batch = tally.batches[slot];
            let begins = batch.last_offset + 1 - i64::from(batch.records);
            let replaced = (halves.end - begins).clamp(0, i64::from(batch.records));
            assert_eq!(i64::from(batch.replaced), replaced, "{slot}");
        }
    }

    #[test]
    fn too_many_batches_end_the_counting() {
        let mut tally = tally(MAX_BATCHES as i64);
        assert!(!tally.is_over);
        tally.begin(i64::MAX, CRC);
        assert!(tally.is_over && tally.remains(9, CRC).is_none());
    }
}
