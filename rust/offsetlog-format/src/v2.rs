//! The records of a magic 2 batch, decoded one by one from its decompressed payload (FORMAT.md «Record»).

use crate::attributes::TimestampType;
use crate::batch::BatchHeader;
use crate::copy::extend;
use crate::error::{Fault, FormatError, Part};
use crate::record::{Headers, RecordView, next_bytes, write_bytes, write_header};
use crate::varint::{
    MAX_VARINT_BYTES, MAX_VARLONG_BYTES, read_varint, read_varlong, short_varint, varint_bytes,
    varlong_bytes, write_varint, write_varlong, zigzag,
};
use alloc::vec::Vec;

/// Attributes, timestamp delta, and five numbers of 32 bits: length, offset delta, lengths of key and value, number of headers.
const RECORD_OVERHEAD_MAX: usize = 1 + MAX_VARLONG_BYTES + 5 * MAX_VARINT_BYTES;

/// Smallest encoded record, its length included: bounds how many records a payload can hold.
pub const MINIMUM_RECORD_BYTES: usize = 7;

/// Bytes from which all numbers before a key can be read, each of at most three bytes: length, attributes, timestamp delta, offset
/// delta, length of the key.
const FRONT_BYTES: usize = 16;

/// Iterates the records of a batch over its decompressed payload.
///
/// Strict where Kafka is not: offset deltas must ascend and stay within `last_offset`, and the payload must be used up by the
/// promised number of records. A count of 0 gives no records whatever follows, as in Kafka.
#[derive(Debug, Clone)]
pub struct RecordsV2<'a> {
    payload: &'a [u8],
    /// The records that were not decoded yet: the end of the payload.
    rest: &'a [u8],
    left: u32,
    count: i32,
    base_offset: i64,
    last_offset_delta: i64,
    previous_delta: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
}

impl<'a> RecordsV2<'a> {
    /// Starts at the first record of `payload`, decompressed.
    ///
    /// # Errors
    /// `Count` for a negative record count.
    #[inline]
    pub fn new(header: &BatchHeader, payload: &'a [u8]) -> Result<Self, FormatError> {
        let Ok(left) = u32::try_from(header.record_count) else {
            return Err(FormatError::new(
                Part::Record,
                0,
                Fault::Count {
                    found: 0,
                    expected: i64::from(header.record_count),
                },
            ));
        };
        let base_offset = header.base_offset.unwrap_or(header.last_offset);
        Ok(Self {
            payload,
            rest: payload,
            left,
            count: header.record_count,
            base_offset,
            last_offset_delta: header.last_offset - base_offset,
            previous_delta: -1,
            base_timestamp: header.base_timestamp,
            append_time: header
                .attributes
                .is_log_append_time()
                .then_some(header.max_timestamp),
        })
    }

    /// Number of the record that comes next, from 0.
    #[must_use]
    pub const fn slot(&self) -> i32 {
        self.count - self.left as i32
    }

    /// Offset after the last decoded record; that of the batch before the first one.
    #[must_use]
    pub const fn next_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(self.previous_delta)
            .saturating_add(1)
    }

    /// Upper bound on the number of records that follow: what the header says, and no more than the payload can hold.
    #[must_use]
    pub fn records_left(&self) -> usize {
        let held = self.rest.len() / MINIMUM_RECORD_BYTES;
        usize::try_from(self.left).map_or(held, |left| left.min(held))
    }

    /// Byte of the payload where the next record begins.
    const fn position(&self) -> usize {
        self.payload.len() - self.rest.len()
    }

    /// Decodes the next record; `None` at the end.
    ///
    /// # Errors
    /// `Count` when records are missing or bytes are left over; `Length`, `Varint`, `Truncated` for what is wrong with the
    /// record; `OffsetOrder` for a delta that does not ascend or leaves the batch. `at` is the byte of the payload.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<RecordView<'a>>, FormatError> {
        match self.next_plain() {
            Some(record) => Ok(Some(record)),
            None => self.next_checked(),
        }
    }

    /// Decodes the next record if it is sound and plain: numbers of at most three bytes, and 16 bytes or more to the end of the payload.
    /// `None` says nothing about the record, or whether there is one, and steps over nothing: [`next_record`](Self::next_record) decides.
    ///
    /// One check of bounds covers all numbers before the key, and no error is made here: a loop over records keeps them in registers.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "once a record; as a call it would write and read again each field of the view"
    )]
    pub fn next_plain(&mut self) -> Option<RecordView<'a>> {
        let left = self.left.checked_sub(1)?;
        let front = self.rest.first_chunk::<FRONT_BYTES>()?;
        let mut at = 0;
        let length = length_of(short_varint(front, &mut at)?)?;
        let (record, rest) = self.rest.split_at_checked(at + length)?;
        // The attributes byte of a record has no meaning yet.
        at += 1;
        let timestamp_delta = i64::from(zigzag(short_varint(front, &mut at)?));
        let offset_delta = length_of(short_varint(front, &mut at)?)? as i64;
        if offset_delta <= self.previous_delta || offset_delta > self.last_offset_delta {
            return None;
        }
        let key_length = short_varint(front, &mut at)?;
        let (key, body) = split_bytes(record.get(at..)?, key_length)?;
        let mut at = 0;
        let value_length = short_varint(body, &mut at)?;
        let (value, body) = split_bytes(body.get(at..)?, value_length)?;
        let headers = if body == [0] {
            Headers::default()
        } else {
            headers_of(body)?
        };
        self.rest = rest;
        self.left = left;
        self.previous_delta = offset_delta;
        Some(self.view(timestamp_delta, offset_delta, key, value, headers))
    }

    /// As [`next_record`](Self::next_record), for records of any shape: the rules and the errors are here.
    #[cold]
    #[inline(never)]
    fn next_checked(&mut self) -> Result<Option<RecordView<'a>>, FormatError> {
        if self.left == 0 {
            return self.finish();
        }
        let start = self.position();
        if self.rest.is_empty() {
            return Err(FormatError::new(
                Part::Record,
                start,
                Fault::Count {
                    found: i64::from(self.slot()),
                    expected: i64::from(self.count),
                },
            ));
        }
        let mut position = start;
        let length = read_varint(self.payload, &mut position)?;
        let body_start = position;
        let Some(body_end) = usize::try_from(length)
            .ok()
            .map(|length| body_start + length)
            .filter(|&end| end <= self.payload.len())
        else {
            return Err(FormatError::new(
                Part::Record,
                start,
                Fault::Length {
                    found: i64::from(length),
                    minimum: 0,
                    maximum: (self.payload.len() - body_start) as i64,
                },
            ));
        };
        let body = self.payload.get(..body_end).unwrap_or(&[]);
        let record = self
            .decode(body, body_start)
            .map_err(|error| FormatError::new(error.part, error.at.max(start), error.fault))?;
        self.rest = self.payload.get(body_end..).unwrap_or(&[]);
        self.left -= 1;
        Ok(Some(record))
    }

    /// Decodes the record whose fields start at `position` and end with `body`.
    #[inline]
    fn decode(
        &mut self,
        body: &'a [u8],
        mut position: usize,
    ) -> Result<RecordView<'a>, FormatError> {
        // The attributes byte of a record has no meaning yet; Kafka does not look at it either.
        position += 1;
        let timestamp_delta = read_varlong(body, &mut position)?;
        let offset_delta_at = position;
        let offset_delta = i64::from(read_varint(body, &mut position)?);
        if offset_delta <= self.previous_delta || offset_delta > self.last_offset_delta {
            return Err(self.offset_order(offset_delta_at, offset_delta));
        }
        let key = next_bytes(body, &mut position, Part::Record)?;
        let value = next_bytes(body, &mut position, Part::Record)?;
        let header_count = read_varint(body, &mut position)?;
        let rest = body.get(position..).unwrap_or(&[]);
        let headers = if header_count == 0 && rest.is_empty() {
            Headers::default()
        } else {
            Headers::parse(rest, header_count)
                .map_err(|error| FormatError::new(error.part, position + error.at, error.fault))?
        };
        self.previous_delta = offset_delta;
        Ok(self.view(timestamp_delta, offset_delta, key, value, headers))
    }

    #[inline]
    fn view(
        &self,
        timestamp_delta: i64,
        offset_delta: i64,
        key: Option<&'a [u8]>,
        value: Option<&'a [u8]>,
        headers: Headers<'a>,
    ) -> RecordView<'a> {
        let (timestamp, timestamp_type) = match self.append_time {
            Some(time) => (time, TimestampType::LogAppend),
            None => (
                self.base_timestamp.wrapping_add(timestamp_delta),
                TimestampType::Create,
            ),
        };
        RecordView {
            // The delta is at most that of the last offset, which the header's check showed to fit.
            offset: self.base_offset.wrapping_add(offset_delta),
            timestamp,
            timestamp_type,
            key,
            value,
            headers,
        }
    }

    #[cold]
    fn offset_order(&self, at: usize, offset_delta: i64) -> FormatError {
        FormatError::new(
            Part::Record,
            at,
            Fault::OffsetOrder {
                found: self.base_offset.saturating_add(offset_delta),
                minimum: self.base_offset.saturating_add(self.previous_delta + 1),
                maximum: self.base_offset.saturating_add(self.last_offset_delta),
            },
        )
    }

    #[inline]
    fn finish(&self) -> Result<Option<RecordView<'a>>, FormatError> {
        if self.count == 0 || self.rest.is_empty() {
            Ok(None)
        } else {
            Err(FormatError::new(
                Part::Record,
                self.position(),
                Fault::Rule("bytes are left behind the last record that the batch counts"),
            ))
        }
    }
}

/// A length, or a delta that cannot be negative; `None` for null and what else is negative.
#[inline]
const fn length_of(raw: u32) -> Option<usize> {
    if raw & 1 == 0 {
        Some((raw >> 1) as usize)
    } else {
        None
    }
}

/// Cuts off as many bytes as a length says; a negative length is null.
#[inline]
fn split_bytes(bytes: &[u8], length: u32) -> Option<(Option<&[u8]>, &[u8])> {
    match length_of(length) {
        Some(length) => {
            let (cut, rest) = bytes.split_at_checked(length)?;
            Some((Some(cut), rest))
        }
        None => Some((None, bytes)),
    }
}

/// The headers of a record, their count before them, if they are sound.
#[inline(never)]
fn headers_of(bytes: &[u8]) -> Option<Headers<'_>> {
    let mut at = 0;
    let count = zigzag(short_varint(bytes, &mut at)?);
    Headers::parse(bytes.get(at..)?, count).ok()
}

/// Size of an encoded record in bytes, its length included. Kafka: `DefaultRecord.sizeInBytes`.
#[must_use]
#[inline]
pub fn record_size<'h>(
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone,
) -> usize {
    let body = body_size(timestamp_delta, offset_delta, key, value, headers);
    body + varint_bytes(body as i32)
}

/// Upper bound on the size of an encoded record in bytes, its length included: every number in it at its longest.
///
/// Costs one addition for each field, where [`record_size`] finds out each number's length.
#[must_use]
#[inline]
pub fn record_size_upper_bound<'h>(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)>,
) -> usize {
    let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let headers: usize = headers
        .map(|(key, value)| 2 * MAX_VARINT_BYTES + key.len() + length(value))
        .sum();
    RECORD_OVERHEAD_MAX + length(key) + length(value) + headers
}

/// Size of an encoded record without its length.
#[inline]
fn body_size<'h>(
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone,
) -> usize {
    let field = |bytes: Option<&[u8]>| {
        let length = bytes.map_or(0, <[u8]>::len);
        varint_bytes(if bytes.is_some() { length as i32 } else { -1 }) + length
    };
    1 + varlong_bytes(timestamp_delta)
        + varint_bytes(offset_delta)
        + field(key)
        + field(value)
        + varint_bytes(headers.clone().count() as i32)
        + headers
            .map(|(key, value)| field(Some(key)) + field(value))
            .sum::<usize>()
}

/// Appends one encoded record. Deltas are those to the batch's base timestamp and base offset.
#[inline]
pub fn write_record<'h>(
    out: &mut Vec<u8>,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone,
) {
    if headers.clone().next().is_none()
        && let Some(front) = Front::of(timestamp_delta, offset_delta, key, value)
    {
        front.write_record(out, key, value);
        return;
    }
    let header_count = headers.clone().count() as i32;
    let size = body_size(timestamp_delta, offset_delta, key, value, headers.clone());
    out.reserve(size + varint_bytes(size as i32));
    write_varint(out, size as i32);
    out.push(0);
    write_varlong(out, timestamp_delta);
    write_varint(out, offset_delta);
    write_bytes(out, key);
    write_bytes(out, value);
    write_varint(out, header_count);
    for (key, value) in headers {
        write_header(out, key, value);
    }
}

/// What stands before the key of a record whose numbers are short, in one register: nearly every record of up to 8 KB.
#[derive(Debug, Clone, Copy)]
struct Front {
    /// Length of the record, attributes, deltas, length of the key: at most 2, 1, 2, 2 and 1 bytes, the first one lowest.
    bytes: u64,
    length: usize,
    /// Length of the value: at most 2 bytes.
    value: ShortVarint,
}

/// The encoding of a number, the first byte lowest.
#[derive(Debug, Clone, Copy)]
struct ShortVarint {
    bytes: u16,
    length: usize,
}

impl ShortVarint {
    /// `None` if it takes more than two bytes. `value` is zig-zag.
    #[inline]
    const fn of(value: u64) -> Option<Self> {
        if value < 0x80 {
            return Some(Self {
                bytes: value as u16,
                length: 1,
            });
        }
        if value < 0x4000 {
            return Some(Self {
                bytes: (value as u16 & 0x7f) | 0x80 | ((value as u16 >> 7) << 8),
                length: 2,
            });
        }
        None
    }
}

impl Front {
    /// `None` if a number is longer.
    #[inline]
    fn of(
        timestamp_delta: i64,
        offset_delta: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Option<Self> {
        // Zig-zag: of a length its double, of null, which is -1, 1.
        let length_of = |bytes: Option<&[u8]>| bytes.map_or(1, |bytes| 2 * bytes.len() as u64);
        let key_length = u8::try_from(length_of(key))
            .ok()
            .filter(|&length| length < 0x80)?;
        let value_length = ShortVarint::of(length_of(value))?;
        let timestamp = ShortVarint::of(((timestamp_delta << 1) ^ (timestamp_delta >> 63)) as u64)?;
        let offset = ShortVarint::of(u64::from(
            ((offset_delta << 1) ^ (offset_delta >> 31)) as u32,
        ))?;
        // Attributes, the key's length and the number of headers are a byte each.
        let size = 3
            + timestamp.length
            + offset.length
            + value_length.length
            + key.map_or(0, <[u8]>::len)
            + value.map_or(0, <[u8]>::len);
        let record = ShortVarint::of(2 * size as u64)?;
        let mut bytes = u64::from(key_length);
        bytes = (bytes << (8 * offset.length)) | u64::from(offset.bytes);
        bytes = (bytes << (8 * timestamp.length)) | u64::from(timestamp.bytes);
        bytes = (bytes << (8 + 8 * record.length)) | u64::from(record.bytes);
        Some(Self {
            bytes,
            length: record.length + 2 + timestamp.length + offset.length,
            value: value_length,
        })
    }

    #[inline]
    fn write_record(self, out: &mut Vec<u8>, key: Option<&[u8]>, value: Option<&[u8]>) {
        let (key, value) = (key.unwrap_or(&[]), value.unwrap_or(&[]));
        let before = out.len();
        // Each number is written at its longest, and cut.
        out.reserve(size_of::<u64>() + key.len() + size_of::<u16>() + value.len() + 1);
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.truncate(before + self.length);
        extend(out, key);
        let before = out.len();
        out.extend_from_slice(&self.value.bytes.to_le_bytes());
        out.truncate(before + self.value.length);
        extend(out, value);
        out.push(0);
    }
}

#[cfg(test)]
#[path = "v2_tests.rs"]
mod tests;
