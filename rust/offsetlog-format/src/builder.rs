//! Laying out batches and message sets from records: the writing side of [`crate::v2`] and [`crate::legacy`].
//!
//! The codecs live in the engine; they come in as [`Compress`].

use crate::attributes::{Attributes, Codec};
use crate::batch::{BATCH_HEADER_V2_BYTES, BatchHeader, CRC_COVERS_FROM_V2};
use crate::checksum;
use crate::legacy::{message_attributes, write_message};
use crate::v2::write_record;
use alloc::vec::Vec;

/// Compresses the records of a batch.
pub trait Compress {
    /// What can go wrong in the codec.
    type Error;

    /// Appends `input`, compressed as Kafka frames it for this magic, to `out`.
    ///
    /// # Errors
    /// The codec's own.
    fn compress(
        &mut self,
        codec: Codec,
        magic: i8,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Self::Error>;
}

/// The codec «none».
#[derive(Debug, Clone, Copy, Default)]
pub struct Uncompressed;

impl Compress for Uncompressed {
    type Error = core::convert::Infallible;

    fn compress(
        &mut self,
        _: Codec,
        _: i8,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Self::Error> {
        out.extend_from_slice(input);
        Ok(())
    }
}

/// A record to be written.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    /// Offset, at or above the batch's base offset and above the record before.
    pub offset: i64,
    /// Milliseconds since 1970, or -1.
    pub timestamp: i64,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value.
    pub value: Option<&'a [u8]>,
    /// Key and value of each header.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
}

/// What the header of a batch says beside what follows from its records.
#[derive(Debug, Clone, Copy)]
pub struct BatchFields {
    /// Offset of the batch; offset deltas count from it.
    pub base_offset: i64,
    /// Leader epoch, -1 for none.
    pub leader_epoch: i32,
    /// Codec and flags.
    pub attributes: Attributes,
    /// The append time, written where the attributes say `LogAppendTime`.
    pub append_time: i64,
    /// Producer id, -1 for none.
    pub producer_id: i64,
    /// Producer epoch, -1 for none.
    pub producer_epoch: i16,
    /// Sequence of the first record, -1 for none.
    pub base_sequence: i32,
}

impl Default for BatchFields {
    fn default() -> Self {
        Self {
            base_offset: 0,
            leader_epoch: -1,
            attributes: Attributes::default(),
            append_time: -1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
        }
    }
}

/// Appends one batch of magic 2 that holds `records`, checksum included.
///
/// The base timestamp is the first record's, the maximum the greatest or the append time. `scratch` holds the uncompressed
/// records meanwhile and is reused by the caller.
///
/// # Errors
/// Those of `codec`; `out` is then as it was.
pub fn write_batch<C: Compress>(
    out: &mut Vec<u8>,
    fields: &BatchFields,
    records: &[NewRecord<'_>],
    codec: &mut C,
    scratch: &mut Vec<u8>,
) -> Result<(), C::Error> {
    let base_timestamp = records.first().map_or(-1, |record| record.timestamp);
    let greatest = records.iter().map(|record| record.timestamp).max();
    let log_append = fields.attributes.is_log_append_time();
    scratch.clear();
    for record in records {
        write_record(
            scratch,
            record.timestamp.wrapping_sub(base_timestamp),
            (record.offset - fields.base_offset) as i32,
            record.key,
            record.value,
            record.headers.iter().copied(),
        );
    }
    let start = out.len();
    out.extend_from_slice(&[0; BATCH_HEADER_V2_BYTES]);
    let kind = fields.attributes.codec(crate::Part::BatchHeader);
    match kind.unwrap_or_default() {
        Codec::None => out.extend_from_slice(scratch),
        kind => {
            if let Err(error) = codec.compress(kind, 2, scratch, out) {
                out.truncate(start);
                return Err(error);
            }
        }
    }
    let header = BatchHeader {
        base_offset: Some(fields.base_offset),
        last_offset: records
            .last()
            .map_or(fields.base_offset, |record| record.offset),
        size_bytes: out.len() - start,
        magic: 2,
        leader_epoch: fields.leader_epoch,
        crc: 0,
        attributes: fields.attributes,
        base_timestamp,
        max_timestamp: if log_append {
            fields.append_time
        } else {
            greatest.unwrap_or(-1)
        },
        producer_id: fields.producer_id,
        producer_epoch: fields.producer_epoch,
        base_sequence: fields.base_sequence,
        record_count: records.len() as i32,
    };
    finish_batch(out, start, &header);
    Ok(())
}

/// Writes `header` over the 61 bytes at `start` of `out`, with the checksum over what follows in the batch, which is returned.
pub fn finish_batch(out: &mut [u8], start: usize, header: &BatchHeader) -> u32 {
    let batch = out
        .get_mut(start..start + header.size_bytes)
        .unwrap_or_default();
    if let Some(head) = batch.first_chunk_mut() {
        header.write_v2_at(head);
    }
    let crc = checksum::crc32c(batch.get(CRC_COVERS_FROM_V2..).unwrap_or(&[]));
    if let Some(place) = batch.get_mut(CRC_COVERS_FROM_V2 - 4..CRC_COVERS_FROM_V2) {
        place.copy_from_slice(&crc.to_be_bytes());
    }
    crc
}

/// Appends `records` as messages of magic 0 or 1: one by one, or as one compressed set whose wrapper carries the last offset.
///
/// # Errors
/// Those of `codec`; `out` is then as it was.
pub fn write_message_set<C: Compress>(
    out: &mut Vec<u8>,
    magic: i8,
    kind: Codec,
    append_time: Option<i64>,
    records: &[NewRecord<'_>],
    codec: &mut C,
) -> Result<(), C::Error> {
    let log_append = append_time.is_some() && magic == 1;
    let one = |out: &mut Vec<u8>, offset: i64, record: &NewRecord<'_>| {
        write_message(
            out,
            magic,
            offset,
            append_time.unwrap_or(record.timestamp),
            message_attributes(Codec::None, log_append),
            record.key,
            record.value,
        );
    };
    if kind == Codec::None {
        for record in records {
            one(out, record.offset, record);
        }
        return Ok(());
    }
    let (Some(first), Some(last)) = (records.first(), records.last()) else {
        return Ok(());
    };
    let mut set = Vec::new();
    for record in records {
        let offset = if magic == 1 {
            record.offset - first.offset
        } else {
            record.offset
        };
        one(&mut set, offset, record);
    }
    let mut compressed = Vec::new();
    codec.compress(kind, magic, &set, &mut compressed)?;
    let greatest = records
        .iter()
        .map(|record| record.timestamp)
        .max()
        .unwrap_or(-1);
    write_message(
        out,
        magic,
        last.offset,
        append_time.unwrap_or(greatest),
        message_attributes(kind, log_append),
        None,
        Some(&compressed),
    );
    Ok(())
}
