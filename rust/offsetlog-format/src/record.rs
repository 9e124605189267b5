//! One record as a view over decompressed bytes, and its headers.

use crate::attributes::TimestampType;
use crate::error::{Fault, FormatError, Part};
use crate::varint::{read_varint, write_varint};
use alloc::vec::Vec;

/// A record that borrows the bytes it was decoded from.
///
/// Offsets and timestamps are absolute. A `None` value is a tombstone; an empty key or value is not the same as none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Offset in the partition.
    pub offset: i64,
    /// Milliseconds since 1970; -1 where there is none.
    pub timestamp: i64,
    /// What the timestamp means.
    pub timestamp_type: TimestampType,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value.
    pub value: Option<&'a [u8]>,
    /// The headers, in order, repeats kept.
    pub headers: Headers<'a>,
}

/// The headers of a record, still encoded. They were checked when the record was decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Headers<'a> {
    /// Checks `count` encoded headers that must fill `bytes` exactly.
    ///
    /// # Errors
    /// `Length`, `Truncated` or `Varint` for what is wrong with a header; `Count` when bytes are left over.
    pub fn parse(bytes: &'a [u8], count: i32) -> Result<Self, FormatError> {
        let Some(count) = usize::try_from(count)
            .ok()
            .filter(|&count| count <= bytes.len())
        else {
            return Err(FormatError::new(
                Part::RecordHeader,
                0,
                Fault::Length {
                    found: i64::from(count),
                    minimum: 0,
                    maximum: bytes.len() as i64,
                },
            ));
        };
        let mut position = 0;
        for _ in 0..count {
            next_header(bytes, &mut position)?;
        }
        if position == bytes.len() {
            Ok(Self { bytes, count })
        } else {
            Err(FormatError::new(
                Part::RecordHeader,
                position,
                Fault::Rule("bytes are left behind the last header"),
            ))
        }
    }

    /// Views headers that [`parse`](Self::parse) accepted before.
    #[must_use]
    pub const fn from_checked(bytes: &'a [u8], count: usize) -> Self {
        Self { bytes, count }
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The encoded headers, without their count.
    #[must_use]
    pub const fn encoded(&self) -> &'a [u8] {
        self.bytes
    }

    /// Key and value of each, in order. Keys are meant to be UTF-8 but nothing promises it.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone + use<'a> {
        let (bytes, mut left, mut position) = (self.bytes, self.count, 0);
        core::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            next_header(bytes, &mut position).ok()
        })
    }
}

fn next_header<'a>(
    bytes: &'a [u8],
    position: &mut usize,
) -> Result<(&'a [u8], Option<&'a [u8]>), FormatError> {
    let at = *position;
    let Some(key) = next_bytes(bytes, position, Part::RecordHeader)? else {
        return Err(FormatError::new(
            Part::RecordHeader,
            at,
            Fault::Rule("the key of a header cannot be null"),
        ));
    };
    let value = next_bytes(bytes, position, Part::RecordHeader)?;
    Ok((key, value))
}

/// Reads a length and that many bytes; a negative length is null.
#[inline]
pub(crate) fn next_bytes<'a>(
    bytes: &'a [u8],
    position: &mut usize,
    part: Part,
) -> Result<Option<&'a [u8]>, FormatError> {
    let at = *position;
    let length = read_varint(bytes, position)?;
    let Ok(length) = usize::try_from(length) else {
        return Ok(None);
    };
    // `position` is at most the slice's length and `length` at most 2^31, so the sum cannot overflow.
    let end = *position + length;
    match bytes.get(*position..end) {
        Some(slice) => {
            *position = end;
            Ok(Some(slice))
        }
        None => Err(FormatError::new(
            part,
            at,
            Fault::Length {
                found: length as i64,
                minimum: 0,
                maximum: (bytes.len() - *position) as i64,
            },
        )),
    }
}

/// Appends one encoded header.
pub fn write_header(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    write_bytes(out, Some(key));
    write_bytes(out, value);
}

/// Appends a length (-1 for null) and the bytes.
pub(crate) fn write_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            write_varint(out, i32::try_from(bytes.len()).unwrap_or(i32::MAX));
            out.extend_from_slice(bytes);
        }
        None => write_varint(out, -1),
    }
}
