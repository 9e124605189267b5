//! Producer snapshots: what a broker remembers of idempotent and transactional producers (FORMAT.md «Producer snapshot»).

use crate::checksum;
use crate::cursor::Reader;
use crate::error::{Algorithm, Fault, FormatError, Part};
use alloc::vec::Vec;

/// The only version there is.
pub const SNAPSHOT_VERSION: i16 = 1;
/// Bytes before the first entry.
pub const SNAPSHOT_HEADER_BYTES: usize = 10;
/// Bytes of an entry.
pub const SNAPSHOT_ENTRY_BYTES: usize = 46;
/// First byte that the checksum covers.
pub const SNAPSHOT_CRC_COVERS_FROM: usize = 6;

/// What is known of one producer; only its last batch is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProducerSnapshotEntry {
    /// The producer.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Sequence of the last record, -1 when only markers were seen.
    pub last_sequence: i32,
    /// Offset of the last record, -1 when only markers were seen.
    pub last_offset: i64,
    /// Last offset of the last batch minus its first.
    pub offset_delta: i32,
    /// Timestamp of the last batch or marker, milliseconds since 1970.
    pub timestamp: i64,
    /// Epoch of the coordinator that wrote the last marker, -1 when there is none.
    pub coordinator_epoch: i32,
    /// First offset of the open transaction, -1 when there is none.
    pub current_transaction_first_offset: i64,
}

impl ProducerSnapshotEntry {
    fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            producer_id: reader.read_i64()?,
            producer_epoch: reader.read_i16()?,
            last_sequence: reader.read_i32()?,
            last_offset: reader.read_i64()?,
            offset_delta: reader.read_i32()?,
            timestamp: reader.read_i64()?,
            coordinator_epoch: reader.read_i32()?,
            current_transaction_first_offset: reader.read_i64()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.producer_id.to_be_bytes());
        out.extend_from_slice(&self.producer_epoch.to_be_bytes());
        out.extend_from_slice(&self.last_sequence.to_be_bytes());
        out.extend_from_slice(&self.last_offset.to_be_bytes());
        out.extend_from_slice(&self.offset_delta.to_be_bytes());
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.coordinator_epoch.to_be_bytes());
        out.extend_from_slice(&self.current_transaction_first_offset.to_be_bytes());
    }
}

/// Reads a whole `.snapshot` file; entries come in the order of the file, which means nothing.
///
/// Bytes behind the last entry are accepted when the checksum covers them, as Kafka does.
///
/// # Errors
/// `Truncated`, `Version`, `Checksum`; `Count` when there are fewer entries than promised or the promise is negative. Kafka
/// deletes such a file and takes the next older one.
pub fn read_producer_snapshot(bytes: &[u8]) -> Result<Vec<ProducerSnapshotEntry>, FormatError> {
    let mut reader = Reader::new(bytes, Part::ProducerSnapshot);
    let version = reader.read_i16()?;
    if version != SNAPSHOT_VERSION {
        return Err(FormatError::new(
            Part::ProducerSnapshot,
            0,
            Fault::Version {
                found: i64::from(version),
                maximum: i64::from(SNAPSHOT_VERSION),
            },
        ));
    }
    let stored = reader.read_u32()?;
    checksum::check(
        Part::ProducerSnapshot,
        2,
        Algorithm::Crc32c,
        stored,
        reader.rest(),
    )?;
    let promised = reader.read_i32()?;
    let there = reader.remaining() / SNAPSHOT_ENTRY_BYTES;
    let Some(count) = usize::try_from(promised)
        .ok()
        .filter(|&count| count <= there)
    else {
        return Err(FormatError::new(
            Part::ProducerSnapshot,
            SNAPSHOT_CRC_COVERS_FROM,
            Fault::Count {
                found: there as i64,
                expected: i64::from(promised),
            },
        ));
    };
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push(ProducerSnapshotEntry::read(&mut reader)?);
    }
    Ok(entries)
}

/// Makes the bytes of a `.snapshot` file, entries in the order given. [`sort_as_hash_map`] gives Kafka's order.
///
/// # Errors
/// `Length` for more entries than the count field can hold.
pub fn write_producer_snapshot(entries: &[ProducerSnapshotEntry]) -> Result<Vec<u8>, FormatError> {
    let count = i32::try_from(entries.len()).map_err(|_| {
        FormatError::new(
            Part::ProducerSnapshot,
            SNAPSHOT_CRC_COVERS_FROM,
            Fault::Length {
                found: entries.len() as i64,
                minimum: 0,
                maximum: i64::from(i32::MAX),
            },
        )
    })?;
    let mut covered = Vec::with_capacity(4 + entries.len() * SNAPSHOT_ENTRY_BYTES);
    covered.extend_from_slice(&count.to_be_bytes());
    for entry in entries {
        entry.write(&mut covered);
    }
    let mut out = Vec::with_capacity(SNAPSHOT_CRC_COVERS_FROM + covered.len());
    out.extend_from_slice(&SNAPSHOT_VERSION.to_be_bytes());
    out.extend_from_slice(&checksum::crc32c(&covered).to_be_bytes());
    out.extend_from_slice(&covered);
    Ok(out)
}

/// Smallest table of a Java `HashMap`.
pub const HASH_TABLE_MINIMUM: usize = 16;
/// Largest table of a Java `HashMap`.
const HASH_TABLE_MAXIMUM: usize = 1 << 30;
/// Tables below this size grow when a bucket gets its ninth entry; larger ones turn the bucket into a tree.
const TREE_TABLE_MINIMUM: usize = 64;
const BUCKET_MAXIMUM: usize = 8;

/// Sorts entries, given in the order in which their producers were first seen, into the order in which a broker's Java
/// `HashMap` would write them. Returns the map's table size.
///
/// `table_size` is what an earlier call returned for the same map, or [`HASH_TABLE_MINIMUM`]: the table never shrinks, even when producers
/// expire. A caller that has the map itself follows its table with [`hash_table_after`] and sorts with [`sort_by_bucket`]. Buckets of more
/// than eight in a table of 64 or more are kept in order of insertion, where Java makes a tree; ids that collide so often are rare, and
/// readers take any order.
pub fn sort_as_hash_map(entries: &mut [ProducerSnapshotEntry], table_size: usize) -> usize {
    let mut table = table_size
        .clamp(HASH_TABLE_MINIMUM, HASH_TABLE_MAXIMUM)
        .next_power_of_two();
    for (count, entry) in entries.iter().enumerate() {
        let earlier = entries.iter().take(count).map(|other| other.producer_id);
        table = hash_table_after(table, entry.producer_id, count, earlier);
    }
    sort_by_bucket(entries, table);
    table
}

/// Table size of a Java `HashMap` of size `table` after `producer_id` was put into it, new, beside the `count` ids of `earlier`
/// in any order. These are looked at only while the table is small.
#[must_use]
pub fn hash_table_after(
    mut table: usize,
    producer_id: i64,
    count: usize,
    earlier: impl Iterator<Item = i64>,
) -> usize {
    if table < TREE_TABLE_MINIMUM {
        let bucket = bucket_of(producer_id, table);
        let same = earlier.filter(|&other| bucket_of(other, table) == bucket);
        if same.count() >= BUCKET_MAXIMUM {
            table *= 2;
        }
    }
    if count + 1 > table / 4 * 3 && table < HASH_TABLE_MAXIMUM {
        table *= 2;
    }
    table
}

/// Sorts entries, given in the order in which their producers were first seen, by their buckets in a Java `HashMap` of this
/// table size, a power of two.
pub fn sort_by_bucket(entries: &mut [ProducerSnapshotEntry], table: usize) {
    entries.sort_by_key(|entry| bucket_of(entry.producer_id, table));
}

/// The bucket of a boxed Java `long` in a table of a power of two.
fn bucket_of(producer_id: i64, table: usize) -> usize {
    let hash = (producer_id ^ (producer_id as u64 >> 32) as i64) as u32;
    (hash ^ (hash >> 16)) as usize & (table - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    fn entry(producer_id: i64) -> ProducerSnapshotEntry {
        ProducerSnapshotEntry {
            producer_id,
            producer_epoch: 3,
            last_sequence: 11,
            last_offset: 105,
            offset_delta: 1,
            timestamp: 2000,
            coordinator_epoch: -1,
            current_transaction_first_offset: 104,
        }
    }

    fn kafkas() -> Vec<u8> {
        let text = "00018f53ccc7000000010000000000000fa000030000000b00000000000000690000000100000000000007d0ffffffff0000000000000068";
        (0..text.len() / 2)
            .map(|place| u8::from_str_radix(&text[2 * place..2 * place + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn snapshot_has_kafkas_bytes() {
        assert_eq!(read_producer_snapshot(&kafkas()), Ok(vec![entry(4000)]));
        assert_eq!(write_producer_snapshot(&[entry(4000)]), Ok(kafkas()));
    }

    #[test]
    fn every_damage_is_told_with_its_byte() {
        let at = |bytes: &[u8]| read_producer_snapshot(bytes).unwrap_err().at;
        for version in [0, 2] {
            let mut bytes = kafkas();
            bytes[1] = version;
            assert_eq!(at(&bytes), 0);
        }
        for flipped in 2..kafkas().len() {
            let mut bytes = kafkas();
            bytes[flipped] ^= 0x10;
            assert_eq!(at(&bytes), 2, "byte {flipped}");
        }
        for length in 0..kafkas().len() {
            assert!(
                read_producer_snapshot(&kafkas()[..length]).is_err(),
                "{length}"
            );
        }
        for count in [-1_i32, 2, i32::MAX] {
            let mut bytes = kafkas();
            bytes[6..10].copy_from_slice(&count.to_be_bytes());
            let crc = checksum::crc32c(&bytes[6..]);
            bytes[2..6].copy_from_slice(&crc.to_be_bytes());
            assert_eq!(at(&bytes), 6);
        }
    }

    /// A newer, shorter snapshot written over a longer one would leave such a tail; under the checksum it is no damage.
    #[test]
    fn covered_bytes_behind_the_last_entry_are_accepted() {
        let mut bytes = kafkas();
        bytes.extend_from_slice(b"tail");
        assert_eq!(read_producer_snapshot(&bytes).unwrap_err().at, 2);
        let crc = checksum::crc32c(&bytes[6..]);
        bytes[2..6].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(read_producer_snapshot(&bytes), Ok(vec![entry(4000)]));
    }

    fn sorted(ids: &[i64], table: usize) -> (Vec<i64>, usize) {
        let mut entries: Vec<_> = ids.iter().map(|&id| entry(id)).collect();
        let table = sort_as_hash_map(&mut entries, table);
        (
            entries.iter().map(|entry| entry.producer_id).collect(),
            table,
        )
    }

    /// Expected values follow from Java's documented `Long.hashCode` and the growth of `HashMap`.
    #[test]
    fn order_is_that_of_a_java_hash_map() {
        assert_eq!(sorted(&[17, 1, 33, 0], 16), (vec![0, 17, 1, 33], 16));
        // Twelve fill three quarters of 16; the thirteenth doubles the table, and stays doubled.
        let twelve: Vec<i64> = (20..32).collect();
        assert_eq!(sorted(&twelve, 16).1, 16);
        let thirteen: Vec<i64> = (20..33).collect();
        let (order, table) = sorted(&thirteen, 16);
        assert_eq!((order[0], table), (32, 32));
        assert_eq!(sorted(&[33, 17], 32), (vec![33, 17], 32));
        // The high half is folded in: 2^32 + 1 hashes to 0.
        assert_eq!(sorted(&[1, (1 << 32) + 1], 16).0, [(1 << 32) + 1, 1]);
        // Nine in one bucket of a small table double it.
        let colliding: Vec<i64> = (0..9).map(|id| id * 64).collect();
        assert_eq!(sorted(&colliding, 16).1, 32);
    }

    proptest! {
        #[test]
        fn written_snapshots_read_back(ids in prop::collection::vec(any::<i64>(), 0..60), epoch: i16, sequence: i32, offset: i64) {
            let mut entries: Vec<_> = ids.iter().map(|&id| ProducerSnapshotEntry {
                producer_epoch: epoch, last_sequence: sequence, last_offset: offset, ..entry(id)
            }).collect();
            sort_as_hash_map(&mut entries, 0);
            let bytes = write_producer_snapshot(&entries).unwrap();
            prop_assert_eq!(bytes.len(), SNAPSHOT_HEADER_BYTES + entries.len() * SNAPSHOT_ENTRY_BYTES);
            prop_assert_eq!(read_producer_snapshot(&bytes), Ok(entries));
        }

        #[test]
        fn any_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), fix: bool) {
            if fix && bytes.len() >= 10 {
                bytes[..2].copy_from_slice(&[0, 1]);
                let crc = checksum::crc32c(&bytes[6..]);
                bytes[2..6].copy_from_slice(&crc.to_be_bytes());
            }
            let _ = read_producer_snapshot(&bytes);
        }
    }
}
