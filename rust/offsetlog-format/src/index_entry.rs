//! Entries of `.index`, `.timeindex` and `.txnindex` files (FORMAT.md «Offset index», «Time index», «Transaction index»).
//!
//! Indexes have no header and no checksum. What an entry says counts only after the batch header at its position agrees; this
//! module checks what an entry alone and its neighbours can tell.

use crate::cursor::Reader;
use crate::error::{Fault, FormatError, Part};
use alloc::vec::Vec;

/// Bytes of an entry of a `.index` file.
pub const OFFSET_INDEX_ENTRY_BYTES: usize = 8;
/// Bytes of an entry of a `.timeindex` file.
pub const TIME_INDEX_ENTRY_BYTES: usize = 12;
/// Bytes of an entry of a `.txnindex` file.
pub const ABORTED_TRANSACTION_BYTES: usize = 34;
/// The only version of an entry of a `.txnindex` file.
pub const ABORTED_TRANSACTION_VERSION: i16 = 0;

/// The relative offset that stands for `offset` in a segment with `base_offset`.
///
/// `None` below the base offset and more than 2^31 - 1 above it: such an offset cannot be in that segment.
#[inline]
#[must_use]
pub fn relative_offset(base_offset: i64, offset: i64) -> Option<i32> {
    offset
        .checked_sub(base_offset)
        .and_then(|relative| i32::try_from(relative).ok())
        .filter(|&relative| relative >= 0)
}

/// The offset that `relative_offset` stands for in a segment with `base_offset`.
#[inline]
fn absolute_offset(
    part: Part,
    at: usize,
    base_offset: i64,
    relative_offset: i32,
) -> Result<i64, FormatError> {
    if relative_offset < 0 {
        return Err(FormatError::new(
            part,
            at,
            Fault::OffsetOrder {
                found: base_offset.saturating_add(i64::from(relative_offset)),
                minimum: base_offset,
                maximum: base_offset.saturating_add(i64::from(i32::MAX)),
            },
        ));
    }
    base_offset
        .checked_add(i64::from(relative_offset))
        .ok_or(FormatError::new(
            part,
            at,
            Fault::OffsetOverflow {
                base: base_offset,
                delta: i64::from(relative_offset),
            },
        ))
}

/// The bytes of entry `slot`.
#[inline]
fn slot_bytes<const N: usize>(
    part: Part,
    entries: &[u8],
    slot: usize,
) -> Result<(usize, &[u8; N]), FormatError> {
    let at = slot.saturating_mul(N);
    let rest = entries.get(at..).unwrap_or(&[]);
    rest.first_chunk()
        .map(|chunk| (at, chunk))
        .ok_or(FormatError::new(
            part,
            at,
            Fault::Truncated {
                needed: N,
                available: rest.len(),
            },
        ))
}

/// An entry of an offset index: from `position` on, a scan misses no offset from `offset` on.
///
/// Kafka 4.3 pairs a batch's last offset with that batch's first byte; older versions pair the first or last offset of a whole
/// append. The promise is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OffsetIndexEntry {
    /// The offset, absolute.
    pub offset: i64,
    /// Byte of the `.log` file at which a batch starts.
    pub position: u32,
}

impl OffsetIndexEntry {
    /// Reads entry `slot` of `entries`, the index of a segment with `base_offset`.
    ///
    /// # Errors
    /// `Truncated` when there is no such slot; `OffsetOrder` for a negative relative offset; `OffsetOverflow`; `Rule` for a
    /// negative position. `at` is the byte of `entries`.
    #[inline]
    pub fn read(entries: &[u8], slot: usize, base_offset: i64) -> Result<Self, FormatError> {
        let (at, bytes) = slot_bytes::<OFFSET_INDEX_ENTRY_BYTES>(Part::OffsetIndex, entries, slot)?;
        let mut reader = Reader::new(bytes, Part::OffsetIndex);
        let relative_offset = reader.read_i32()?;
        let position = reader.read_i32()?;
        let offset = absolute_offset(Part::OffsetIndex, at, base_offset, relative_offset)?;
        let position = u32::try_from(position).map_err(|_| {
            FormatError::new(
                Part::OffsetIndex,
                at + 4,
                Fault::Rule("the position is negative"),
            )
        })?;
        Ok(Self { offset, position })
    }

    /// Appends the entry.
    ///
    /// # Errors
    /// `OffsetOrder` when the offset cannot be in the segment, `Rule` when the position is beyond 2^31 - 1: the segment must
    /// be rolled before. Nothing is appended then.
    pub fn write(&self, base_offset: i64, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let relative_offset = required_relative(Part::OffsetIndex, base_offset, self.offset)?;
        let position = i32::try_from(self.position).map_err(|_| {
            FormatError::new(
                Part::OffsetIndex,
                4,
                Fault::Rule("a position is at most 2147483647"),
            )
        })?;
        out.extend_from_slice(&relative_offset.to_be_bytes());
        out.extend_from_slice(&position.to_be_bytes());
        Ok(())
    }
}

/// An entry of a time index: no record up to `offset`, inclusive, has a timestamp above `timestamp`.
///
/// The record at `offset` need not have that timestamp, nor exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeIndexEntry {
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// The offset, absolute.
    pub offset: i64,
}

impl TimeIndexEntry {
    /// Reads entry `slot` of `entries`, the time index of a segment with `base_offset`.
    ///
    /// # Errors
    /// `Truncated` when there is no such slot; `OffsetOrder` for a negative relative offset; `OffsetOverflow`. `at` is the byte
    /// of `entries`.
    #[inline]
    pub fn read(entries: &[u8], slot: usize, base_offset: i64) -> Result<Self, FormatError> {
        let (at, bytes) = slot_bytes::<TIME_INDEX_ENTRY_BYTES>(Part::TimeIndex, entries, slot)?;
        let mut reader = Reader::new(bytes, Part::TimeIndex);
        let timestamp = reader.read_i64()?;
        let offset = absolute_offset(Part::TimeIndex, at + 8, base_offset, reader.read_i32()?)?;
        Ok(Self { timestamp, offset })
    }

    /// Appends the entry.
    ///
    /// # Errors
    /// `OffsetOrder` when the offset cannot be in the segment. Nothing is appended then.
    pub fn write(&self, base_offset: i64, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let relative_offset = required_relative(Part::TimeIndex, base_offset, self.offset)?;
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&relative_offset.to_be_bytes());
        Ok(())
    }
}

fn required_relative(part: Part, base_offset: i64, offset: i64) -> Result<i32, FormatError> {
    relative_offset(base_offset, offset).ok_or(FormatError::new(
        part,
        0,
        Fault::OffsetOrder {
            found: offset,
            minimum: base_offset,
            maximum: base_offset.saturating_add(i64::from(i32::MAX)),
        },
    ))
}

/// Counts the entries of an offset index file, which may be longer than its entries: a running or crashed broker leaves zeros.
///
/// The first slot from 1 on with relative offset 0 ends the list. Slot 0 is an entry unless it is all zeros and slot 1 is not an
/// entry either. A fragment at the end is no entry. Linear in the number of entries.
#[must_use]
pub fn offset_entry_count(bytes: &[u8]) -> usize {
    count::<OFFSET_INDEX_ENTRY_BYTES>(bytes, |slot| matches!(slot, [0, 0, 0, 0, ..]))
}

/// Counts the entries of a time index file as [`offset_entry_count`] does; a slot of timestamp 0 and relative offset 0 ends
/// the list.
#[must_use]
pub fn time_entry_count(bytes: &[u8]) -> usize {
    count::<TIME_INDEX_ENTRY_BYTES>(bytes, |slot| *slot == [0; TIME_INDEX_ENTRY_BYTES])
}

#[inline]
fn count<const N: usize>(bytes: &[u8], is_end: impl Fn(&[u8; N]) -> bool) -> usize {
    let (slots, _) = bytes.as_chunks::<N>();
    let Some((first, later)) = slots.split_first() else {
        return 0;
    };
    let later = later.iter().position(is_end).unwrap_or(later.len());
    if later == 0 && *first == [0; N] {
        0
    } else {
        1 + later
    }
}

/// Checks every entry of an offset index and their order; gives their number.
///
/// # Errors
/// Those of [`OffsetIndexEntry::read`]; `OffsetOrder` where an offset is not above the one before. Positions may repeat and go
/// back: old versions wrote such.
pub fn check_offset_index(bytes: &[u8], base_offset: i64) -> Result<usize, FormatError> {
    let count = offset_entry_count(bytes);
    let mut previous: Option<i64> = None;
    for slot in 0..count {
        let entry = OffsetIndexEntry::read(bytes, slot, base_offset)?;
        if let Some(previous) = previous
            && entry.offset <= previous
        {
            return Err(FormatError::new(
                Part::OffsetIndex,
                slot * OFFSET_INDEX_ENTRY_BYTES,
                Fault::OffsetOrder {
                    found: entry.offset,
                    minimum: previous.saturating_add(1),
                    maximum: base_offset.saturating_add(i64::from(i32::MAX)),
                },
            ));
        }
        previous = Some(entry.offset);
    }
    Ok(count)
}

/// Checks every entry of a time index and their order; returns their number.
///
/// # Errors
/// Those of [`TimeIndexEntry::read`]; `OffsetOrder` where an offset goes back and `Rule` where a timestamp does.
pub fn check_time_index(bytes: &[u8], base_offset: i64) -> Result<usize, FormatError> {
    let count = time_entry_count(bytes);
    let mut previous: Option<TimeIndexEntry> = None;
    for slot in 0..count {
        let at = slot * TIME_INDEX_ENTRY_BYTES;
        let entry = TimeIndexEntry::read(bytes, slot, base_offset)?;
        if let Some(previous) = previous {
            if entry.timestamp < previous.timestamp {
                return Err(FormatError::new(
                    Part::TimeIndex,
                    at,
                    Fault::Rule("the timestamp is below that of the entry before"),
                ));
            }
            if entry.offset < previous.offset {
                return Err(FormatError::new(
                    Part::TimeIndex,
                    at + 8,
                    Fault::OffsetOrder {
                        found: entry.offset,
                        minimum: previous.offset,
                        maximum: base_offset.saturating_add(i64::from(i32::MAX)),
                    },
                ));
            }
        }
        previous = Some(entry);
    }
    Ok(count)
}

/// A transaction that was aborted: what a reader of committed records leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer_id: i64,
    /// Offset of the transaction's first record in this partition.
    pub first_offset: i64,
    /// Offset of the abort marker.
    pub last_offset: i64,
    /// The last stable offset after the marker, exclusive.
    pub last_stable_offset: i64,
}

impl AbortedTransaction {
    /// Reads entry `slot` of `entries`.
    ///
    /// # Errors
    /// `Truncated` when there is no such slot; `Version` for any version but 0, where Kafka looks at the first byte only.
    pub fn read(entries: &[u8], slot: usize) -> Result<Self, FormatError> {
        let (at, bytes) =
            slot_bytes::<ABORTED_TRANSACTION_BYTES>(Part::TransactionIndex, entries, slot)?;
        let mut reader = Reader::new(bytes, Part::TransactionIndex);
        let version = reader.read_i16()?;
        if version != ABORTED_TRANSACTION_VERSION {
            return Err(FormatError::new(
                Part::TransactionIndex,
                at,
                Fault::Version {
                    found: i64::from(version),
                    maximum: i64::from(ABORTED_TRANSACTION_VERSION),
                },
            ));
        }
        Ok(Self {
            producer_id: reader.read_i64()?,
            first_offset: reader.read_i64()?,
            last_offset: reader.read_i64()?,
            last_stable_offset: reader.read_i64()?,
        })
    }

    /// Appends the entry.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&ABORTED_TRANSACTION_VERSION.to_be_bytes());
        out.extend_from_slice(&self.producer_id.to_be_bytes());
        out.extend_from_slice(&self.first_offset.to_be_bytes());
        out.extend_from_slice(&self.last_offset.to_be_bytes());
        out.extend_from_slice(&self.last_stable_offset.to_be_bytes());
    }

    /// Whether the transaction can have records from `start` (inclusive) to `stop` (exclusive).
    #[inline]
    #[must_use]
    pub const fn overlaps(&self, start: i64, stop: i64) -> bool {
        self.last_offset >= start && self.first_offset < stop
    }
}

/// Whole entries of a transaction index file. A fragment at the end is no entry.
#[must_use]
pub const fn aborted_transaction_count(bytes: &[u8]) -> usize {
    bytes.len() / ABORTED_TRANSACTION_BYTES
}

/// Reads the whole transaction index of the segment with `base_offset`, in the order of the markers.
///
/// # Errors
/// Those of [`AbortedTransaction::read`]; `OffsetOrder` for a marker below the base offset or not above the one before, and for
/// a transaction that begins behind its marker.
pub fn read_transaction_index(
    bytes: &[u8],
    base_offset: i64,
) -> Result<Vec<AbortedTransaction>, FormatError> {
    let count = aborted_transaction_count(bytes);
    let mut entries = Vec::with_capacity(count);
    let mut minimum = base_offset;
    for slot in 0..count {
        let at = slot * ABORTED_TRANSACTION_BYTES;
        let entry = AbortedTransaction::read(bytes, slot)?;
        let order = |at, found, minimum, maximum| {
            Err(FormatError::new(
                Part::TransactionIndex,
                at,
                Fault::OffsetOrder {
                    found,
                    minimum,
                    maximum,
                },
            ))
        };
        if entry.last_offset < minimum {
            return order(at + 18, entry.last_offset, minimum, i64::MAX);
        }
        if entry.first_offset > entry.last_offset {
            return order(at + 10, entry.first_offset, 0, entry.last_offset);
        }
        minimum = entry.last_offset.saturating_add(1);
        entries.push(entry);
    }
    Ok(entries)
}

#[cfg(test)]
#[path = "index_entry_tests.rs"]
mod tests;
