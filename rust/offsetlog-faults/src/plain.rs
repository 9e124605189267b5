//! Batches read slowly, byte by byte, by code that shares nothing with the engine's: what FORMAT.md says, and no more.

use crate::batch::crc32c;

/// A record of any magic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainRecord {
    /// Its offset.
    pub offset: i64,
    /// Its time, -1 for none.
    pub timestamp: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Key and value of each header.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A batch whose records are not compressed, or whose records are not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainBatch {
    /// Bytes of it.
    pub size: usize,
    /// Format version.
    pub magic: u8,
    /// Number of the codec.
    pub codec: u8,
    /// Whether the checksum is right.
    pub is_sound: bool,
    /// Offset of the last record.
    pub last_offset: i64,
    /// The records; `None` where they are compressed or are not what the format says.
    pub records: Option<Vec<PlainRecord>>,
}

struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, count: i128) -> Option<&'b [u8]> {
        let count = usize::try_from(count).ok()?;
        if count > self.0.len() {
            return None;
        }
        let (front, rest) = self.0.split_at(count);
        self.0 = rest;
        Some(front)
    }

    /// A big-endian number with a sign.
    fn number(&mut self, count: i128) -> Option<i128> {
        let bytes = self.take(count)?;
        let sign = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
        Some(
            bytes
                .iter()
                .fold(sign, |value, &byte| value << 8 | i128::from(byte)),
        )
    }

    /// A number of at most so many bits, seven to a byte, zig-zag.
    fn varint(&mut self, bits: u32) -> Option<i128> {
        let mut raw: u128 = 0;
        for index in 0..bits.div_ceil(7) {
            let byte = self.take(1)?[0];
            raw += u128::from(byte % 128) << (7 * index);
            if byte < 128 {
                let half = (raw / 2) as i128;
                let value = if raw.is_multiple_of(2) {
                    half
                } else {
                    -half - 1
                };
                return (raw >> bits == 0).then_some(value);
            }
        }
        None
    }

    /// Null, or bytes with their length before them, which is negative for null.
    #[allow(clippy::option_option, reason = "none there, or null")]
    fn nullable(&mut self, length: Option<i128>) -> Option<Option<Vec<u8>>> {
        let length = length?;
        if length < 0 {
            return Some(None);
        }
        Some(Some(self.take(length)?.to_vec()))
    }
}

/// CRC-32 of zlib, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ if crc % 2 == 1 { 0xedb8_8320 } else { 0 }
        })
    })
}

/// The whole batch at the front of `bytes`, if there is one.
#[must_use]
pub fn batch(bytes: &[u8]) -> Option<PlainBatch> {
    let mut frame = Bytes(bytes);
    let offset = frame.number(8)?;
    let length = frame.number(4)?;
    let magic = Bytes(bytes.get(16..)?).number(1)?;
    let smallest = match magic {
        0 => 14,
        1 => 22,
        2 => 49,
        _ => return None,
    };
    if length < smallest || length > i128::from(i32::MAX) - 12 || offset < 0 {
        return None;
    }
    let mut inside = Bytes(frame.take(length)?);
    let whole = &bytes[..12 + length as usize];
    if magic == 2 {
        version_2(whole, offset, &mut inside)
    } else {
        message(whole, offset, magic, &mut inside)
    }
}

fn version_2(whole: &[u8], offset: i128, inside: &mut Bytes<'_>) -> Option<PlainBatch> {
    inside.take(4 + 1)?;
    let crc = inside.number(4)? as u32;
    let attributes = inside.number(2)?;
    let last_delta = inside.number(4)?;
    let base_time = inside.number(8)?;
    let greatest_time = inside.number(8)?;
    inside.take(8 + 2 + 4)?;
    let count = inside.number(4)?;
    let last_offset = i64::try_from(offset + last_delta).ok()?;
    if last_delta < 0 {
        return None;
    }
    let codec = (attributes & 7) as u8;
    let mut batch = PlainBatch {
        size: whole.len(),
        magic: 2,
        codec,
        is_sound: crc == crc32c(&whole[21..]),
        last_offset,
        records: None,
    };
    let append_time = (attributes & 8 != 0).then_some(greatest_time);
    if codec == 0 && count >= 0 {
        batch.records = records(inside, count, offset, last_delta, |delta| {
            // Timestamps wrap around, as in Java.
            append_time.unwrap_or_else(|| i128::from((base_time + delta) as i64))
        });
    }
    Some(batch)
}

fn records(
    inside: &mut Bytes<'_>,
    count: i128,
    base: i128,
    last_delta: i128,
    time: impl Fn(i128) -> i128,
) -> Option<Vec<PlainRecord>> {
    let mut records = Vec::new();
    let mut before = -1;
    for _ in 0..count {
        let length = inside.varint(32)?;
        let mut record = Bytes(inside.take(length)?);
        record.take(1)?;
        let time_delta = record.varint(64)?;
        let delta = record.varint(32)?;
        if delta <= before || delta > last_delta {
            return None;
        }
        before = delta;
        let mut field = || {
            let length = record.varint(32);
            record.nullable(length)
        };
        let (key, value) = (field()?, field()?);
        let header_count = record.varint(32)?;
        let mut headers = Vec::new();
        for _ in 0..header_count {
            let length = record.varint(32);
            let name = record.nullable(length)??;
            let length = record.varint(32);
            headers.push((name, record.nullable(length)?));
        }
        if header_count < 0 || !record.0.is_empty() {
            return None;
        }
        records.push(PlainRecord {
            offset: (base + delta) as i64,
            timestamp: time(time_delta) as i64,
            key,
            value,
            headers,
        });
    }
    // Where nothing is counted, nothing is looked at.
    (count == 0 || inside.0.is_empty()).then_some(records)
}

fn message(whole: &[u8], offset: i128, magic: i128, inside: &mut Bytes<'_>) -> Option<PlainBatch> {
    let crc = inside.number(4)? as u32;
    inside.take(1)?;
    let codec = inside.number(1)? as u8 & 7;
    let timestamp = if magic == 1 { inside.number(8)? } else { -1 };
    let mut field = || {
        let length = inside.number(4);
        inside.nullable(length)
    };
    let key_and_value = field().and_then(|key| Some((key, field()?)));
    let record = key_and_value
        .filter(|_| codec == 0)
        .map(|(key, value)| PlainRecord {
            offset: offset as i64,
            timestamp: timestamp as i64,
            key,
            value,
            headers: Vec::new(),
        });
    Some(PlainBatch {
        size: whole.len(),
        magic: magic as u8,
        codec,
        is_sound: crc == crc32(&whole[16..]),
        last_offset: offset as i64,
        records: record.map(|record| vec![record]),
    })
}
