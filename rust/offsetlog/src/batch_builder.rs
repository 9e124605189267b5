//! Records that are becoming one batch: each is encoded once, when it is pushed.

use crate::codec::Compressor;
use crate::error::{Error, ErrorKind, Result};
use crate::memory;
use offsetlog_format::batch::BATCH_HEADER_V2_BYTES;
use offsetlog_format::builder::{Compress, finish_batch};
use offsetlog_format::v2::{RecordsV2, record_size, record_size_upper_bound, write_record};
use offsetlog_format::{Attributes, BatchHeader, Codec, RecordView};

/// A batch's size is a positive 32-bit number.
const PAYLOAD_BYTES_MAX: usize = i32::MAX as usize - BATCH_HEADER_V2_BYTES;

/// The producer of a batch, by which brokers recognise duplicates and transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Producer {
    /// The producer's id, -1 for none.
    pub producer_id: i64,
    /// Its epoch, -1 for none.
    pub producer_epoch: i16,
    /// Sequence of the batch's first record, -1 for none.
    pub base_sequence: i32,
    /// Whether the batch belongs to a transaction.
    pub is_transactional: bool,
}

impl Default for Producer {
    fn default() -> Self {
        Self {
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            is_transactional: false,
        }
    }
}

/// Records of one batch, encoded. Its buffers are kept when it is appended, so one builder serves many batches.
///
/// ```
/// use offsetlog::BatchBuilder;
///
/// let mut batch = BatchBuilder::default();
/// batch.push(1_700_000_000_000, Some(b"order-7"), Some(b"paid"), &[])?;
/// assert_eq!(batch.len(), 1);
/// # Ok::<(), offsetlog::Error>(())
/// ```
#[derive(Debug)]
pub struct BatchBuilder {
    /// Room for the header and the records behind it, so that the finished batch is one piece; empty before the first record.
    encoded: Vec<u8>,
    /// The same with the records compressed.
    compressed: Vec<u8>,
    count: i32,
    /// Offset delta of the last record.
    last_delta: i32,
    base_timestamp: i64,
    /// Of the timestamps that are not -1.
    min_timestamp: Option<i64>,
    max_timestamp: i64,
    first_null_key: Option<i64>,
    /// Headers of the record that has most.
    most_headers: usize,
    codec: Codec,
    producer: Producer,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new(Codec::None, Producer::default())
    }
}

impl BatchBuilder {
    /// An empty batch. `codec` counts where the log's `compression.type` is `producer`.
    #[must_use]
    pub const fn new(codec: Codec, producer: Producer) -> Self {
        Self {
            encoded: Vec::new(),
            compressed: Vec::new(),
            count: 0,
            last_delta: -1,
            base_timestamp: -1,
            min_timestamp: None,
            max_timestamp: -1,
            first_null_key: None,
            most_headers: 0,
            codec,
            producer,
        }
    }

    /// Adds a record. `timestamp` is in milliseconds since 1970, or -1 for none.
    ///
    /// # Errors
    /// `RecordRejected` for a timestamp below -1; `RecordTooLarge` when the batch would pass 2^31 bytes; `Io` where
    /// there is no memory. The batch is then as before.
    #[inline]
    pub fn push(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<()> {
        if timestamp < -1 {
            return Err(negative_timestamp(timestamp));
        }
        self.push_at(
            i64::from(self.last_delta) + 1,
            timestamp,
            key,
            value,
            headers,
        )
    }

    /// As [`push`](Self::push), with an offset `delta` above the batch's first one, as in a restored or compacted log. Takes any timestamp:
    /// a broker that stores a producer's batch unchanged stores timestamps below -1 too, and ignores them in the batch's maximum timestamp.
    ///
    /// # Errors
    /// As there except for timestamps, and `RecordRejected` for a delta that is not above the one before, or has more than 31 bits.
    #[inline]
    pub(crate) fn push_at(
        &mut self,
        delta: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<()> {
        let delta = match i32::try_from(delta) {
            Ok(delta) if delta > self.last_delta => delta,
            _ => return Err(unfit_delta(delta, self.last_delta)),
        };
        let bytes = record_size_upper_bound(key, value, headers.iter().copied());
        if self.payload_bytes() + bytes > PAYLOAD_BYTES_MAX || self.count == i32::MAX {
            return Err(Error::new(ErrorKind::RecordTooLarge {
                size: (self.payload_bytes() + bytes) as u64,
                maximum: PAYLOAD_BYTES_MAX as i64,
            }));
        }
        // Nothing has been changed yet when there is no memory.
        memory::reserve(&mut self.encoded, BATCH_HEADER_V2_BYTES + bytes)?;
        if self.count == 0 {
            self.encoded.resize(BATCH_HEADER_V2_BYTES, 0);
            self.base_timestamp = timestamp;
            self.max_timestamp = timestamp.max(-1);
        }
        write_record(
            &mut self.encoded,
            timestamp.wrapping_sub(self.base_timestamp),
            delta,
            key,
            value,
            headers.iter().copied(),
        );
        if key.is_none() && self.first_null_key.is_none() {
            self.first_null_key = Some(i64::from(self.count));
        }
        self.most_headers = self.most_headers.max(headers.len());
        if timestamp >= 0 {
            self.min_timestamp = Some(
                self.min_timestamp
                    .map_or(timestamp, |min| min.min(timestamp)),
            );
            self.max_timestamp = self.max_timestamp.max(timestamp);
        }
        self.count += 1;
        self.last_delta = delta;
        Ok(())
    }

    /// Records in the batch.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is no record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Size of the batch in bytes before compression, header included.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        BATCH_HEADER_V2_BYTES + self.payload_bytes()
    }

    /// Size of the batch in bytes with one more record. Kafka: `MemoryRecordsBuilder.hasRoomFor`.
    pub(crate) fn size_bytes_with(
        &self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> usize {
        let timestamp_delta = if self.is_empty() {
            0
        } else {
            timestamp.wrapping_sub(self.base_timestamp)
        };
        self.size_bytes()
            + record_size(
                timestamp_delta,
                self.last_delta.saturating_add(1),
                key,
                value,
                headers.iter().copied(),
            )
    }

    /// The records, decoded again. Their offsets count from 0.
    pub(crate) fn records(&self) -> Result<Vec<RecordView<'_>>> {
        let payload = self.encoded.get(BATCH_HEADER_V2_BYTES..).unwrap_or(&[]);
        let header = self.header(0, -1, None, Codec::None);
        let mut records = RecordsV2::new(&header, payload).map_err(Error::new)?;
        std::iter::from_fn(|| records.next_record().map_err(Error::new).transpose()).collect()
    }

    pub(crate) const fn payload_bytes(&self) -> usize {
        self.encoded.len().saturating_sub(BATCH_HEADER_V2_BYTES)
    }

    /// Forgets the records and keeps the buffers.
    pub fn clear(&mut self) {
        self.encoded.clear();
        self.count = 0;
        self.last_delta = -1;
        self.min_timestamp = None;
        self.max_timestamp = -1;
        self.first_null_key = None;
        self.most_headers = 0;
    }

    /// The codec asked for.
    #[must_use]
    pub const fn codec(&self) -> Codec {
        self.codec
    }

    /// Makes the next batch that of another producer, or of the next sequence.
    pub const fn set_producer(&mut self, producer: Producer) {
        self.producer = producer;
    }

    pub(crate) const fn producer_id(&self) -> i64 {
        self.producer.producer_id
    }

    pub(crate) const fn base_sequence(&self) -> i32 {
        self.producer.base_sequence
    }

    /// Smallest and greatest timestamp, those of -1 aside.
    pub(crate) fn timestamps(&self) -> (i64, i64) {
        (self.min_timestamp.unwrap_or(-1), self.max_timestamp)
    }

    pub(crate) const fn most_headers(&self) -> usize {
        self.most_headers
    }

    pub(crate) const fn first_null_key(&self) -> Option<i64> {
        self.first_null_key
    }

    /// The finished batch and its header.
    pub(crate) fn finish(
        &mut self,
        base_offset: i64,
        leader_epoch: i32,
        append_time: Option<i64>,
        codec: Codec,
        compressor: &mut Compressor,
    ) -> Result<(&[u8], BatchHeader)> {
        let mut header = self.header(base_offset, leader_epoch, append_time, codec);
        let batch = if codec == Codec::None {
            &mut self.encoded
        } else {
            let payload = self.encoded.get(BATCH_HEADER_V2_BYTES..).unwrap_or(&[]);
            self.compressed.clear();
            self.compressed.resize(BATCH_HEADER_V2_BYTES, 0);
            compressor.compress(codec, 2, payload, &mut self.compressed)?;
            &mut self.compressed
        };
        header.size_bytes = batch.len();
        header.crc = finish_batch(batch, 0, &header);
        Ok((batch, header))
    }

    /// The batch's header, without its checksum and with the size that it has uncompressed.
    fn header(
        &self,
        base_offset: i64,
        leader_epoch: i32,
        append_time: Option<i64>,
        codec: Codec,
    ) -> BatchHeader {
        let mut attributes = Attributes::new(codec, append_time.is_some());
        if self.producer.is_transactional {
            attributes = attributes.transactional();
        }
        BatchHeader {
            base_offset: Some(base_offset),
            last_offset: base_offset.saturating_add(i64::from(self.last_delta)),
            size_bytes: self.size_bytes(),
            magic: 2,
            leader_epoch,
            crc: 0,
            attributes,
            base_timestamp: self.base_timestamp,
            max_timestamp: append_time.unwrap_or(self.max_timestamp),
            producer_id: self.producer.producer_id,
            producer_epoch: self.producer.producer_epoch,
            base_sequence: self.producer.base_sequence,
            record_count: self.count,
        }
    }
}

#[cold]
fn unfit_delta(delta: i64, last: i32) -> Error {
    Error::new(ErrorKind::RecordRejected {
        reason: format!("offset delta {delta} found behind {last}, more expected, below 2^31"),
    })
}

fn negative_timestamp(timestamp: i64) -> Error {
    Error::new(ErrorKind::RecordRejected {
        reason: format!("timestamp {timestamp} found, 0 or more expected, or -1 for none"),
    })
}
