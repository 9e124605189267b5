//! Zig-zag variable-length integers of record batches, magic 2 (FORMAT.md «Variable-length integers»).

use crate::error::{Fault, FormatError, Part};
use alloc::vec::Vec;

/// Longest encoding of an `i32`.
pub const MAX_VARINT_BYTES: usize = 5;
/// Longest encoding of an `i64`.
pub const MAX_VARLONG_BYTES: usize = 10;

/// Reads an `i32` at `position` of `bytes` and moves `position` behind it.
///
/// Over-long encodings such as `80 00` are read, as Kafka does; bits beyond 32 are refused where Kafka drops them in silence.
///
/// # Errors
/// `Truncated` at the end of `bytes`; `Varint` when the value does not fit.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "three calls a record; the one-byte path must not cost a call"
)]
pub fn read_varint(bytes: &[u8], position: &mut usize) -> Result<i32, FormatError> {
    match bytes.get(*position) {
        Some(&byte) if byte < 0x80 => {
            *position += 1;
            Ok(i32::from(byte >> 1) ^ -i32::from(byte & 1))
        }
        Some(&low) => match bytes.get(*position + 1) {
            Some(&high) if high < 0x80 => {
                *position += 2;
                let raw = u32::from(low & 0x7f) | u32::from(high) << 7;
                Ok(zigzag(raw))
            }
            _ => read_long_varint(bytes, position),
        },
        None => read_long_varint(bytes, position),
    }
}

/// Reads an `i64` at `position` of `bytes` and moves `position` behind it.
///
/// # Errors
/// As [`read_varint`].
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "once a record; the one-byte path must not cost a call"
)]
pub fn read_varlong(bytes: &[u8], position: &mut usize) -> Result<i64, FormatError> {
    match bytes.get(*position) {
        Some(&byte) if byte < 0x80 => {
            *position += 1;
            Ok(i64::from(byte >> 1) ^ -i64::from(byte & 1))
        }
        Some(&low) => match bytes.get(*position + 1) {
            Some(&high) if high < 0x80 => {
                *position += 2;
                let raw = u64::from(low & 0x7f) | u64::from(high) << 7;
                Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
            }
            _ => read_long_varlong(bytes, position),
        },
        None => read_long_varlong(bytes, position),
    }
}

/// Reads a number of at most three bytes, its sign still in the lowest bit (see [`zigzag`]); `None` for a longer one, or where
/// `bytes` end before it does.
///
/// Three bytes hold no more than 21 bits, so an `i32` and an `i64` read the same.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "five calls a record; the checks of bounds fold into one where the length of `bytes` is known"
)]
pub(crate) fn short_varint(bytes: &[u8], position: &mut usize) -> Option<u32> {
    let at = *position;
    let low = u32::from(*bytes.get(at)?);
    let (raw, size) = if low < 0x80 {
        (low, 1)
    } else {
        let middle = u32::from(*bytes.get(at + 1)?);
        if middle < 0x80 {
            (low & 0x7f | middle << 7, 2)
        } else {
            let high = u32::from(*bytes.get(at + 2)?);
            if high >= 0x80 {
                return None;
            }
            (low & 0x7f | (middle & 0x7f) << 7 | high << 14, 3)
        }
    };
    *position = at + size;
    Some(raw)
}

/// The number that is encoded as `raw`.
#[inline]
pub(crate) const fn zigzag(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

#[cold]
#[inline(never)]
fn read_long_varint(bytes: &[u8], position: &mut usize) -> Result<i32, FormatError> {
    let raw = read_raw(bytes, position, MAX_VARINT_BYTES, u64::from(u32::MAX))? as u32;
    Ok(zigzag(raw))
}

#[cold]
#[inline(never)]
fn read_long_varlong(bytes: &[u8], position: &mut usize) -> Result<i64, FormatError> {
    let raw = read_raw(bytes, position, MAX_VARLONG_BYTES, u64::MAX)?;
    Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

fn read_raw(
    bytes: &[u8],
    position: &mut usize,
    longest: usize,
    greatest: u64,
) -> Result<u64, FormatError> {
    let start = *position;
    let mut value = 0_u128;
    for index in 0..longest {
        let Some(&byte) = bytes.get(start + index) else {
            return Err(FormatError::new(
                Part::Record,
                start,
                Fault::Truncated {
                    needed: index + 1,
                    available: index,
                },
            ));
        };
        value |= u128::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *position = start + index + 1;
            return u64::try_from(value)
                .ok()
                .filter(|&value| value <= greatest)
                .ok_or(FormatError::new(
                    Part::Record,
                    start,
                    Fault::Varint {
                        bytes_read: index + 1,
                    },
                ));
        }
    }
    Err(FormatError::new(
        Part::Record,
        start,
        Fault::Varint {
            bytes_read: longest,
        },
    ))
}

/// Appends the shortest encoding of `value`.
#[inline]
pub fn write_varint(out: &mut Vec<u8>, value: i32) {
    write_raw(out, u64::from(((value << 1) ^ (value >> 31)) as u32));
}

/// Appends the shortest encoding of `value`.
#[inline]
pub fn write_varlong(out: &mut Vec<u8>, value: i64) {
    write_raw(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends the shortest encoding of `value`, which is not zig-zag: lengths and numbers of messages.
pub(crate) fn write_unsigned(out: &mut Vec<u8>, value: u32) {
    write_raw(out, u64::from(value));
}

/// Most numbers of a record take one byte or two.
#[inline]
fn write_raw(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(value as u8);
    } else if value < 0x4000 {
        out.extend_from_slice(&[value as u8 | 0x80, (value >> 7) as u8]);
    } else {
        write_long(out, value);
    }
}

#[inline(never)]
fn write_long(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`write_varint`] appends for `value`.
#[must_use]
pub const fn varint_bytes(value: i32) -> usize {
    raw_bytes(((value << 1) ^ (value >> 31)) as u32 as u64)
}

/// Bytes that [`write_varlong`] appends for `value`.
#[must_use]
pub const fn varlong_bytes(value: i64) -> usize {
    raw_bytes(((value << 1) ^ (value >> 63)) as u64)
}

const fn raw_bytes(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    fn check_varint(value: i32, expected: &[u8]) {
        let mut out = vec![];
        write_varint(&mut out, value);
        assert_eq!(out, expected);
        assert_eq!(varint_bytes(value), expected.len());
        let mut position = 0;
        assert_eq!(read_varint(&out, &mut position), Ok(value));
        assert_eq!(position, expected.len());
    }

    /// The values of FORMAT.md «Variable-length integers», made by Kafka.
    #[test]
    fn varints_are_kafkas() {
        check_varint(0, &[0x00]);
        check_varint(-1, &[0x01]);
        check_varint(1, &[0x02]);
        check_varint(63, &[0x7e]);
        check_varint(-64, &[0x7f]);
        check_varint(64, &[0x80, 0x01]);
        check_varint(300, &[0xd8, 0x04]);
        check_varint(i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]);
        check_varint(i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]);
    }

    #[test]
    fn long_encodings_are_read_and_long_values_refused() {
        assert_eq!(read_varint(&[0x80, 0x00], &mut 0), Ok(0));
        let surplus = read_varint(&[0x8e, 0x80, 0x80, 0x80, 0x70], &mut 0).unwrap_err();
        assert_eq!(surplus.fault, Fault::Varint { bytes_read: 5 });
        let endless = read_varlong(&[0x80; 11], &mut 0).unwrap_err();
        assert_eq!(endless.fault, Fault::Varint { bytes_read: 10 });
        let cut = read_varlong(&[0x80; 3], &mut 0).unwrap_err();
        assert_eq!(
            cut.fault,
            Fault::Truncated {
                needed: 4,
                available: 3
            }
        );
    }

    proptest! {
        #[test]
        fn decode_after_encode_is_identity(int: i32, long: i64) {
            let mut out = vec![];
            write_varint(&mut out, int);
            prop_assert_eq!(out.len(), varint_bytes(int));
            write_varlong(&mut out, long);
            prop_assert_eq!(out.len(), varint_bytes(int) + varlong_bytes(long));
            let mut position = 0;
            prop_assert_eq!(read_varint(&out, &mut position), Ok(int));
            prop_assert_eq!(read_varlong(&out, &mut position), Ok(long));
            prop_assert_eq!(position, out.len());
        }
    }
}
