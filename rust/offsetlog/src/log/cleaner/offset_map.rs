//! Maps each key to its last offset, in a bounded table of fingerprints (Kafka's `SkimpyOffsetMap`).
//!
//! The number of keys that fit decides where a pass ends, so it is Kafka's: nine tenths of one slot per 24 bytes. Kafka
//! identifies keys by their MD5 alone, for which anybody can construct two keys that collide. Here the fingerprint is a keyed
//! hash, also of 128 bits, with secret keys.

use super::fingerprint::{Fingerprint, Fingerprints};
use crate::error::{Error, Result};

/// Bytes per entry, as in Kafka: a fingerprint and an offset.
const ENTRY_BYTES: usize = 24;
/// Number of slots of a new table.
const FIRST_SLOTS: usize = 4096;

/// Number of keys looked up together, so that their memory accesses overlap.
pub(super) const TOGETHER: usize = 64;

/// The two halves of a fingerprint, and the offset plus one. An empty slot is all zeros.
type Entry = [u64; 3];

/// Maps a key to its last offset.
#[derive(Debug)]
pub(crate) struct OffsetMap {
    entries: Vec<Entry>,
    used: usize,
    /// Maximum number of keys.
    limit: usize,
    slots: usize,
    fingerprints: Fingerprints,
}

impl OffsetMap {
    /// A map of at most `map_bytes` bytes.
    pub(crate) fn new(map_bytes: usize) -> Result<Self> {
        let slots = map_bytes / ENTRY_BYTES;
        let limit = (slots as u128 * 9 / 10) as usize;
        if limit == 0 {
            let least = 2 * ENTRY_BYTES;
            let reason = format!("{map_bytes} found, at least {least} expected");
            return Err(Error::argument("map_bytes", reason));
        }
        let mut map = Self {
            entries: Vec::new(),
            used: 0,
            limit,
            slots,
            fingerprints: Fingerprints::new(),
        };
        map.entries = table(slots.min(FIRST_SLOTS))?;
        Ok(map)
    }

    /// Whether the map accepts no further record, neither of a new key nor of a known one.
    #[inline]
    pub(crate) const fn is_full(&self) -> bool {
        self.used >= self.limit
    }

    /// Number of keys in the map.
    pub(crate) const fn len(&self) -> usize {
        self.used
    }

    /// The fingerprint of a key.
    #[inline]
    pub(crate) fn fingerprint(&self, key: &[u8]) -> Fingerprint {
        self.fingerprints.of(key)
    }

    /// The slot at which the search for a fingerprint starts.
    #[inline]
    const fn home(entries: &[Entry], fingerprint: Fingerprint) -> usize {
        ((fingerprint.0 as u128 * entries.len() as u128) >> 64) as usize
    }

    /// Loads the entries of several fingerprints into the CPU cache together, before they are looked up one by one.
    #[inline]
    pub(crate) fn fetch(&self, fingerprints: impl Iterator<Item = Fingerprint>) {
        let mut any = 0;
        for fingerprint in fingerprints {
            let entry = self.entries.get(Self::home(&self.entries, fingerprint));
            any |= entry.map_or(0, |entry| entry[0] | entry[2]);
        }
        // Keeps the compiler from removing the reads.
        std::hint::black_box(any);
    }

    /// The slot of a fingerprint's entry, or the empty slot where it would be inserted.
    #[inline]
    fn slot_of(entries: &[Entry], fingerprint: Fingerprint) -> usize {
        let Fingerprint(first, second) = fingerprint;
        let mut slot = Self::home(entries, fingerprint);
        while let Some(entry) = entries.get(slot) {
            let [at_first, at_second, offset] = *entry;
            if offset == 0 || (at_first == first && at_second == second) {
                break;
            }
            slot += 1;
            if slot == entries.len() {
                slot = 0;
            }
        }
        slot
    }

    /// Last offset of the key with this fingerprint.
    #[inline]
    pub(crate) fn get(&self, fingerprint: Fingerprint) -> Option<i64> {
        let slot = Self::slot_of(&self.entries, fingerprint);
        let offset = self.entries.get(slot)?[2];
        offset.checked_sub(1).map(|offset| offset as i64)
    }

    /// Records that the record at `offset` has the key with this fingerprint, and returns the offset that the key had before. The caller
    /// has checked that the map is not full.
    #[inline]
    pub(crate) fn put(&mut self, fingerprint: Fingerprint, offset: i64) -> Result<Option<i64>> {
        let slot = Self::slot_of(&self.entries, fingerprint);
        let Some(entry) = self.entries.get_mut(slot) else {
            return Ok(None);
        };
        let before = entry[2].checked_sub(1).map(|before| before as i64);
        *entry = [fingerprint.0, fingerprint.1, offset as u64 + 1];
        if before.is_none() {
            self.used += 1;
            if self.used * 10 > self.entries.len() * 7 && self.entries.len() < self.slots {
                self.grow()?;
            }
        }
        Ok(before)
    }

    fn grow(&mut self) -> Result<()> {
        let mut entries = table(self.entries.len().saturating_mul(4).min(self.slots))?;
        for &entry in self.entries.iter().filter(|entry| entry[2] != 0) {
            let slot = Self::slot_of(&entries, Fingerprint(entry[0], entry[1]));
            if let Some(place) = entries.get_mut(slot) {
                *place = entry;
            }
        }
        self.entries = entries;
        Ok(())
    }
}

fn table(slots: usize) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    entries
        .try_reserve_exact(slots)
        .map_err(|_| Error::no_memory())?;
    entries.resize(slots, [0; 3]);
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(map: &mut OffsetMap, key: &[u8], offset: i64) {
        map.put(map.fingerprint(key), offset).unwrap();
    }

    fn get(map: &OffsetMap, key: &[u8]) -> Option<i64> {
        map.get(map.fingerprint(key))
    }

    #[test]
    fn takes_as_many_keys_as_kafkas() {
        for (bytes, keys) in [(48, 1), (96, 3), (240, 9), (24 * 11, 9), (24 * 1000, 900)] {
            let mut map = OffsetMap::new(bytes).unwrap();
            let mut count = 0_u32;
            while !map.is_full() {
                put(&mut map, &count.to_be_bytes(), i64::from(count));
                count += 1;
            }
            assert_eq!((count, map.len()), (keys, keys as usize), "{bytes} bytes");
            for key in 0..count {
                assert_eq!(get(&map, &key.to_be_bytes()), Some(i64::from(key)));
            }
            assert_eq!(get(&map, b"another"), None);
        }
        assert!(OffsetMap::new(47).is_err());
    }

    #[test]
    fn keeps_the_last_offset_while_it_grows() {
        let mut map = OffsetMap::new(24 * 100_000).unwrap();
        for round in 0..3 {
            for key in 0..60_000_i64 {
                put(&mut map, &key.to_le_bytes(), round * 60_000 + key);
            }
        }
        assert_eq!(map.len(), 60_000);
        for key in 0..60_000_i64 {
            assert_eq!(get(&map, &key.to_le_bytes()), Some(120_000 + key));
        }
        assert_eq!(get(&map, b""), None);
        put(&mut map, b"", 7);
        assert_eq!(get(&map, b""), Some(7));
    }
}
