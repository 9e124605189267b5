//! Batches by hand: an encoder and a reader of magic 2 that know nothing of the engine.

use std::sync::Arc;

/// A record that is to be appended: key, value.
pub type Row = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Bytes before the part that `batch length` counts.
const OVERHEAD: usize = 12;
/// Where the part begins that the checksum covers.
const ATTRIBUTES: usize = 21;
const HEADER: usize = 61;

/// A whole batch as it stands in a file.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Batch {
    /// Offset of its first record.
    pub base: i64,
    /// Offset of its last record.
    pub last: i64,
    /// Epoch of its leader.
    pub epoch: i32,
    /// Greatest timestamp of its records.
    pub timestamp: i64,
    /// All its bytes.
    pub bytes: Arc<[u8]>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            base, last, epoch, ..
        } = self;
        let sum = crc32c(&self.bytes);
        write!(f, "{base}..={last}@{epoch} {}B {sum:08x}", self.bytes.len())
    }
}

/// CRC-32C, bit by bit.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    static TABLE: std::sync::OnceLock<[u32; 256]> = std::sync::OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = [0; 256];
        for (byte, entry) in (0..).zip(&mut table) {
            let mut crc: u32 = byte;
            for _ in 0..8 {
                crc = if crc & 1 == 1 {
                    crc >> 1 ^ 0x82f6_3b78
                } else {
                    crc >> 1
                };
            }
            *entry = crc;
        }
        table
    });
    !bytes.iter().fold(!0, |crc: u32, &byte| {
        table[usize::from(crc as u8 ^ byte)] ^ crc >> 8
    })
}

fn varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = (value << 1 ^ value >> 63) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn field(out: &mut Vec<u8>, bytes: Option<&Vec<u8>>) {
    match bytes {
        Some(bytes) => {
            varint(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
        None => varint(out, -1),
    }
}

/// One uncompressed batch; all records have the same timestamp.
#[must_use]
pub fn encode(base: i64, epoch: i32, timestamp: i64, rows: &[Row]) -> Batch {
    let count = rows.len() as i32;
    let mut covered = Vec::new();
    covered.extend_from_slice(&0_i16.to_be_bytes());
    covered.extend_from_slice(&(count - 1).to_be_bytes());
    covered.extend_from_slice(&timestamp.to_be_bytes());
    covered.extend_from_slice(&timestamp.to_be_bytes());
    covered.extend_from_slice(&(-1_i64).to_be_bytes());
    covered.extend_from_slice(&(-1_i16).to_be_bytes());
    covered.extend_from_slice(&(-1_i32).to_be_bytes());
    covered.extend_from_slice(&count.to_be_bytes());
    for (delta, (key, value)) in (0..).zip(rows) {
        let mut record = vec![0];
        varint(&mut record, 0);
        varint(&mut record, delta);
        field(&mut record, key.as_ref());
        field(&mut record, value.as_ref());
        varint(&mut record, 0);
        varint(&mut covered, record.len() as i64);
        covered.extend_from_slice(&record);
    }
    let mut bytes = Vec::with_capacity(ATTRIBUTES + covered.len());
    bytes.extend_from_slice(&base.to_be_bytes());
    bytes.extend_from_slice(&((ATTRIBUTES - OVERHEAD + covered.len()) as i32).to_be_bytes());
    bytes.extend_from_slice(&epoch.to_be_bytes());
    bytes.push(2);
    bytes.extend_from_slice(&crc32c(&covered).to_be_bytes());
    bytes.extend_from_slice(&covered);
    Batch {
        base,
        last: base + i64::from(count) - 1,
        epoch,
        timestamp,
        bytes: bytes.into(),
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// The whole batch at the front of `bytes`, if there is one with a right checksum.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<Batch> {
    let base = i64::from_be_bytes(number(bytes, 0)?);
    let length = usize::try_from(i32::from_be_bytes(number(bytes, 8)?)).ok()?;
    let size = OVERHEAD.checked_add(length)?;
    let whole = bytes.get(..size).filter(|whole| whole.len() >= HEADER)?;
    if whole[16] != 2 || u32::from_be_bytes(number(whole, 17)?) != crc32c(&whole[ATTRIBUTES..]) {
        return None;
    }
    let delta = i32::from_be_bytes(number(whole, 23)?);
    Some(Batch {
        base,
        last: base + i64::from(delta),
        epoch: i32::from_be_bytes(number(whole, 12)?),
        timestamp: i64::from_be_bytes(number(whole, 35)?),
        bytes: whole.into(),
    })
}

/// A record as it stands in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its offset.
    pub offset: i64,
    /// Its time.
    pub timestamp: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
}

impl Batch {
    /// Its records.
    ///
    /// # Panics
    /// If it is compressed or malformed, which no batch of a script is.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let base_timestamp = i64::from_be_bytes(number(&self.bytes, 27).expect("a header"));
        let mut rest = &self.bytes[HEADER..];
        let mut records = Vec::new();
        while !rest.is_empty() {
            let (_size, _attributes) = (take_varint(&mut rest), take(&mut rest, 1));
            let timestamp = base_timestamp + take_varint(&mut rest);
            let offset = self.base + take_varint(&mut rest);
            let (key, value) = (take_field(&mut rest), take_field(&mut rest));
            assert_eq!(take_varint(&mut rest), 0, "headers");
            records.push(Record {
                offset,
                timestamp,
                key,
                value,
            });
        }
        records
    }
}

fn take<'b>(rest: &mut &'b [u8], count: usize) -> &'b [u8] {
    let (front, behind) = rest.split_at(count);
    *rest = behind;
    front
}

fn take_varint(rest: &mut &[u8]) -> i64 {
    let (mut value, mut shift) = (0_u64, 0);
    loop {
        let byte = take(rest, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return (value >> 1) as i64 ^ -((value & 1) as i64);
        }
    }
}

fn take_field(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let size = usize::try_from(take_varint(rest)).ok()?;
    Some(take(rest, size).to_vec())
}

/// The batches at the front of `bytes`, and where they end.
#[must_use]
pub fn walk(bytes: &[u8]) -> (Vec<Batch>, usize) {
    let mut batches = Vec::new();
    let mut at = 0;
    while let Some(batch) = parse(&bytes[at..]) {
        at += batch.bytes.len();
        batches.push(batch);
    }
    (batches, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_castagnoli() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn a_batch_reads_back_and_a_changed_one_does_not() {
        let batch = encode(
            7,
            3,
            99,
            &[(None, Some(vec![5; 300])), (Some(vec![1]), None)],
        );
        assert_eq!(parse(&batch.bytes), Some(batch.clone()));
        let records = batch.records();
        assert_eq!((records[1].offset, records[1].timestamp), (8, 99));
        assert_eq!(records[0].value, Some(vec![5; 300]));
        assert_eq!(
            (&records[1].key, &records[1].value),
            (&Some(vec![1]), &None)
        );
        for at in 8..batch.bytes.len() {
            let mut bytes = batch.bytes.to_vec();
            bytes[at] ^= 1;
            // The epoch and the offset stand before what is covered.
            assert!((12..16).contains(&at) || parse(&bytes).is_none(), "{at}");
        }
    }
}
