//! Rewrites a batch with only the records that are kept, or as a header without records.
//!
//! Source: Kafka's `MemoryRecords.buildRetainedRecordsInto` and `DefaultRecordBatch.writeEmptyHeader`.

use crate::codec::Compressor;
use crate::error::Result;
use offsetlog_format::batch::BATCH_HEADER_V2_BYTES;
use offsetlog_format::builder::{Compress, finish_batch};
use offsetlog_format::v2::write_record;
use offsetlog_format::{Attributes, BatchHeader, Codec, RecordView};

/// Writes batches of magic 2. Reuses its contexts and buffer from batch to batch.
#[derive(Debug)]
pub(crate) struct Rewriter {
    compressor: Compressor,
    /// The uncompressed records.
    records: Vec<u8>,
}

/// What remains of a batch: its records are added to the new one.
#[derive(Debug)]
pub(crate) struct Rest<'w> {
    /// The new batch's records, encoded.
    records: &'w mut Vec<u8>,
    /// The offset to which the first record's would be relative, and the timestamp; `None` for its own.
    base_offset: Option<i64>,
    base_timestamp: Option<i64>,
    kept: Option<Kept>,
}

/// Running totals of the records that a batch keeps.
#[derive(Debug, Clone, Copy)]
struct Kept {
    count: i32,
    first_offset: i64,
    last_offset: i64,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl Rest<'_> {
    /// Adds the next record.
    #[inline]
    pub(crate) fn add(&mut self, record: &RecordView<'_>) {
        let kept = self.kept.get_or_insert(Kept {
            count: 0,
            first_offset: self.base_offset.unwrap_or(record.offset),
            last_offset: record.offset,
            base_timestamp: self.base_timestamp.unwrap_or(record.timestamp),
            max_timestamp: -1,
        });
        write_record(
            self.records,
            record.timestamp.wrapping_sub(kept.base_timestamp),
            (record.offset - kept.first_offset) as i32,
            record.key,
            record.value,
            record.headers.iter(),
        );
        kept.count += 1;
        kept.last_offset = record.offset;
        kept.max_timestamp = kept.max_timestamp.max(record.timestamp);
    }
}

impl Rewriter {
    pub(crate) fn new() -> Self {
        Self {
            compressor: Compressor::new(),
            records: Vec::new(),
        }
    }

    /// Appends `original` to `out` with only the records that `add_all` adds. A batch of magic 0 or 1 becomes one of magic 2.
    ///
    /// For magic 2 the base offset and last offset stay, and so do the producer and the leader epoch, so sequences and epochs
    /// are unchanged. `horizon` replaces the base timestamp: from then on tombstones, or a marker, may be deleted.
    pub(crate) fn write(
        &mut self,
        original: &BatchHeader,
        horizon: Option<i64>,
        add_all: impl FnOnce(&mut Rest<'_>) -> Result<()>,
        out: &mut Vec<u8>,
    ) -> Result<BatchHeader> {
        let codec = original.codec()?;
        let start = out.len();
        out.resize(start + BATCH_HEADER_V2_BYTES, 0);
        self.records.clear();
        let records = if codec == Codec::None {
            &mut *out
        } else {
            &mut self.records
        };
        let mut rest = Rest {
            records,
            base_offset: original.base_offset.filter(|_| original.magic == 2),
            base_timestamp: horizon,
            kept: None,
        };
        add_all(&mut rest)?;
        let Some(kept) = rest.kept else {
            out.truncate(start);
            return Ok(write_empty(original, out));
        };
        if codec != Codec::None {
            self.compressor.compress(codec, 2, &self.records, out)?;
        }
        let mut header = BatchHeader {
            base_offset: Some(kept.first_offset),
            last_offset: if original.magic == 2 {
                original.last_offset
            } else {
                kept.last_offset
            },
            size_bytes: out.len() - start,
            magic: 2,
            attributes: attributes(original, codec, horizon.is_some()),
            base_timestamp: kept.base_timestamp,
            max_timestamp: if is_log_append_time(original) {
                original.max_timestamp
            } else {
                kept.max_timestamp
            },
            record_count: kept.count,
            ..*original
        };
        header.crc = finish_batch(out, start, &header);
        Ok(header)
    }
}

/// Appends the header of a batch without records. It preserves the offsets, and the producer's last sequence.
pub(super) fn write_empty(original: &BatchHeader, out: &mut Vec<u8>) -> BatchHeader {
    let start = out.len();
    out.resize(start + BATCH_HEADER_V2_BYTES, 0);
    let mut header = BatchHeader {
        base_offset: Some(original.base_offset.unwrap_or(original.last_offset)),
        size_bytes: BATCH_HEADER_V2_BYTES,
        magic: 2,
        attributes: attributes(original, Codec::None, false),
        base_timestamp: -1,
        record_count: 0,
        ..*original
    };
    header.crc = finish_batch(out, start, &header);
    header
}

const fn is_log_append_time(original: &BatchHeader) -> bool {
    original.magic > 0 && original.attributes.is_log_append_time()
}

/// The attribute bits that Kafka defines.
const fn attributes(original: &BatchHeader, codec: Codec, horizon: bool) -> Attributes {
    let mut attributes = Attributes::new(codec, is_log_append_time(original));
    if original.magic == 2 && original.attributes.is_transactional() {
        attributes = attributes.transactional();
    }
    if original.magic == 2 && original.attributes.is_control() {
        attributes = attributes.control();
    }
    if horizon {
        attributes = attributes.delete_horizon();
    }
    attributes
}
