//! The records of a magic 2 batch, decoded one by one from its decompressed payload (FORMAT.md «Record»).

use crate::attributes::TimestampType;
use crate::batch::BatchHeader;
use crate::error::{Fault, FormatError, Part};
use crate::record::{Headers, RecordView, next_bytes, write_bytes, write_header};
use crate::varint::{
    MAX_VARINT_BYTES, MAX_VARLONG_BYTES, read_varint, read_varlong, varint_bytes, varlong_bytes,
    write_varint, write_varlong,
};
use alloc::vec::Vec;

/// Attributes, timestamp delta, and five numbers of 32 bits: length, offset delta, lengths of key and value, number of headers.
const RECORD_OVERHEAD_MAX: usize = 1 + MAX_VARLONG_BYTES + 5 * MAX_VARINT_BYTES;

/// Smallest encoded record, its length included: bounds how many records a payload can hold.
pub const MINIMUM_RECORD_BYTES: usize = 7;

/// Iterates the records of a batch over its decompressed payload.
///
/// Strict where Kafka is not: offset deltas must ascend and stay within `last_offset`, and the payload must be used up by the
/// promised number of records. A count of 0 gives no records whatever follows, as in Kafka.
#[derive(Debug, Clone)]
pub struct RecordsV2<'a> {
    payload: &'a [u8],
    position: usize,
    left: i32,
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
        if header.record_count < 0 {
            return Err(FormatError::new(
                Part::Record,
                0,
                Fault::Count {
                    found: 0,
                    expected: i64::from(header.record_count),
                },
            ));
        }
        let base_offset = header.base_offset.unwrap_or(header.last_offset);
        Ok(Self {
            payload,
            position: 0,
            left: header.record_count,
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
        self.count - self.left
    }

    /// Decodes the next record, or says that there is none.
    ///
    /// # Errors
    /// `Count` when records are missing or bytes are left over; `Length`, `Varint`, `Truncated` for what is wrong with the
    /// record; `OffsetOrder` for a delta that does not ascend or leaves the batch. `at` is the byte of the payload.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<RecordView<'a>>, FormatError> {
        if self.left == 0 {
            return self.finish();
        }
        if self.position == self.payload.len() {
            return Err(FormatError::new(
                Part::Record,
                self.position,
                Fault::Count {
                    found: i64::from(self.slot()),
                    expected: i64::from(self.count),
                },
            ));
        }
        let start = self.position;
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
        self.position = body_end;
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
        let (timestamp, timestamp_type) = match self.append_time {
            Some(time) => (time, TimestampType::LogAppend),
            None => (
                self.base_timestamp.wrapping_add(timestamp_delta),
                TimestampType::Create,
            ),
        };
        Ok(RecordView {
            // The delta is at most that of the last offset, which the header's check showed to fit.
            offset: self.base_offset.wrapping_add(offset_delta),
            timestamp,
            timestamp_type,
            key,
            value,
            headers,
        })
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
        if self.count == 0 || self.position == self.payload.len() {
            Ok(None)
        } else {
            Err(FormatError::new(
                Part::Record,
                self.position,
                Fault::Rule("bytes are left behind the last record that the batch counts"),
            ))
        }
    }
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
pub fn write_record<'h>(
    out: &mut Vec<u8>,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone,
) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn sizes_are_those_of_what_is_written(
            timestamp_delta: i64,
            offset_delta: i32,
            key: Option<Vec<u8>>,
            value: Option<Vec<u8>>,
            headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        ) {
            let (key, value) = (key.as_deref(), value.as_deref());
            let headers = || headers.iter().map(|(name, value)| (&**name, value.as_deref()));
            let mut out = Vec::new();
            write_record(&mut out, timestamp_delta, offset_delta, key, value, headers());
            prop_assert_eq!(record_size(timestamp_delta, offset_delta, key, value, headers()), out.len());
            prop_assert!(record_size_upper_bound(key, value, headers()) >= out.len());
        }
    }
}
