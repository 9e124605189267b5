//! Writes the batches of a new log: copied unchanged, recompressed, or built from old messages.

use super::NewPartition;
use super::appender::Appender;
use crate::batch_decoder::BatchDecoder;
use crate::codec::{Compressor, Decompressor};
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Checksums, LogWriter, OpenOptions, Rest, Rewriter};
use crate::memory;
use offsetlog_format::batch::BATCH_HEADER_V2_BYTES;
use offsetlog_format::builder::{Compress, finish_batch};
use offsetlog_format::v2::{record_size_upper_bound, write_record};
use offsetlog_format::{Attributes, BatchHeader, BatchView, Codec};

/// Maximum size of a batch that combines uncompressed messages, in bytes of records.
const BATCH_BYTES: usize = 64 << 10;
/// The same for a compressed set, which becomes one batch unless it is huge.
const SET_BYTES: usize = 1 << 30;
/// Bytes that are appended to the log at once: as many as a follower fetches by default. Large writes take large folios of the page
/// cache.
const CHUNK_BYTES: usize = 1 << 20;
/// In a log of small segments fewer, so that segments become nearly full.
const CHUNK_BYTES_SMALL: usize = 256 << 10;
const CHUNKS_IN_SEGMENT: usize = 64;
/// Maximum span of offsets of one batch or one append.
const SPAN_MAX: i64 = i32::MAX as i64;

/// Properties that all messages of a batch share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Their codec in the old log.
    pub(crate) codec: Codec,
    /// Log append time that the broker set, the same for all of them; `None` for create time.
    pub(crate) append_time: Option<i64>,
}

/// A message of an old format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
}

/// The batch that is being built from messages.
#[derive(Debug)]
struct Batch {
    kind: Kind,
    first: i64,
    last: i64,
    base_timestamp: i64,
    max_timestamp: i64,
    count: i32,
}

/// The leader epochs of the new log.
#[derive(Debug)]
struct Epochs {
    /// The greatest one that the log may have; if there is one, epochs are renumbered.
    maximum: Option<i32>,
    /// Greatest epoch of the old log so far; -1 before the first.
    seen: i32,
    /// Number of epochs in it so far, less one.
    counted: i32,
}

impl Epochs {
    const fn new(maximum: Option<i32>) -> Self {
        Self {
            maximum,
            seen: -1,
            counted: -1,
        }
    }

    /// The epoch of a batch in the new log. Old messages have none, and get the one before.
    fn of(&mut self, epoch: i32) -> i32 {
        if epoch > self.seen {
            self.seen = epoch;
            self.counted += 1;
        }
        self.now()
    }

    /// The epoch of a batch that is written now.
    fn now(&self) -> i32 {
        let epoch = self
            .maximum
            .map_or(self.seen, |maximum| self.counted.min(maximum));
        epoch.max(0)
    }

    /// Whether a batch of this epoch keeps it.
    fn keeps(&self, epoch: i32) -> bool {
        epoch >= 0 && self.maximum.is_none()
    }
}

/// The new log while it is filled.
#[derive(Debug)]
pub(super) struct Target {
    log: LogWriter,
    /// The requested codec.
    codec: Option<Codec>,
    compressor: Compressor,
    decompressor: Decompressor,
    max_decompressed_bytes: u64,
    batch: Option<Batch>,
    /// The encoded records of `batch`.
    records_encoded: Vec<u8>,
    encoded: Vec<u8>,
    appender: Appender,
    /// Complete batches that will be appended together.
    chunk: Vec<u8>,
    chunk_first: i64,
    /// Greatest timestamp of its first batch.
    chunk_timestamp: i64,
    /// `Verify` if any of its batches has not been verified.
    chunk_checksums: Checksums,
    chunk_bytes: usize,
    segment_ms: i64,
    epochs: Epochs,
    next_offset: i64,
    pub(super) records: u64,
    pub(super) batches: u64,
    pub(super) batches_kept: u64,
    pub(super) bytes: u64,
}

impl Target {
    pub(super) fn new(
        log: &LogWriter,
        begin: &NewPartition,
        options: &OpenOptions,
    ) -> Result<Self> {
        let codec = begin.codec;
        let config = log.config();
        let mut compressor = Compressor::new();
        for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
            compressor.set_level(codec, config.compression_level(codec))?;
        }
        let segment_bytes = usize::try_from(config.segment_bytes()).unwrap_or(0);
        let chunk_bytes = (segment_bytes / CHUNKS_IN_SEGMENT).clamp(CHUNK_BYTES_SMALL, CHUNK_BYTES);
        Ok(Self {
            log: log.clone(),
            codec,
            compressor,
            decompressor: Decompressor::new(),
            max_decompressed_bytes: options.limits.max_decompressed_bytes,
            batch: None,
            records_encoded: Vec::new(),
            encoded: Vec::new(),
            appender: Appender::new(log, begin.reads_back),
            chunk: Vec::new(),
            chunk_first: 0,
            chunk_timestamp: -1,
            chunk_checksums: Checksums::Verified,
            // An append larger than a segment is refused even if each of its batches would fit.
            chunk_bytes: chunk_bytes.min(segment_bytes),
            segment_ms: config.segment_ms(),
            epochs: Epochs::new(begin.leader_epoch_max),
            next_offset: 0,
            records: 0,
            batches: 0,
            batches_kept: 0,
            bytes: 0,
        })
    }

    /// The offset after everything added so far.
    pub(super) fn next_offset(&self) -> i64 {
        let open = self.batch.as_ref();
        open.map_or(self.next_offset, |batch| batch.last.saturating_add(1))
    }

    /// Adds a batch of magic 2, unchanged or in the requested codec. Control batches and empty batches are never recompressed.
    pub(super) fn add(
        &mut self,
        header: &BatchHeader,
        codec: Codec,
        (bytes, checksums): (&[u8], Checksums),
        place: impl Fn(Error) -> Error,
    ) -> Result<()> {
        self.end_batch()?;
        if header.attributes.is_transactional() {
            // For an aborted transaction among batches of one append, both Kafka and offsetlog record a last stable offset that
            // already takes the later batches into account. Appended on its own, the batch gets the same last stable offset as
            // after a recovery.
            self.append_chunk()?;
        }
        let epoch = self.epochs.of(header.leader_epoch);
        let wanted = self.codec.unwrap_or(codec);
        let first = header.base_offset.unwrap_or(header.last_offset);
        let is_kept = wanted == codec || header.attributes.is_control() || header.record_count <= 0;
        if is_kept {
            let start = self.hand_over(bytes, (first, header.last_offset), header.max_timestamp)?;
            if checksums == Checksums::Verify {
                self.chunk_checksums = checksums;
            }
            self.batches_kept += 1;
            if !self.epochs.keeps(header.leader_epoch) {
                // The checksum does not cover the epoch, and the log refuses a batch without one.
                let field = self.chunk.get_mut(start + 12..start + 16);
                if let Some(field) = field {
                    field.copy_from_slice(&epoch.to_be_bytes());
                }
            }
            return Ok(());
        }
        let payload = BatchView::parse(bytes).map_err(|error| place(error.into()))?;
        let header = BatchHeader {
            leader_epoch: self.written(epoch, header),
            ..*header
        };
        let plain = self
            .decompressor
            .decompress(codec, 2, payload.payload(), self.max_decompressed_bytes)
            .map_err(place)?;
        encode(
            &mut self.encoded,
            &mut self.compressor,
            header,
            wanted,
            plain,
        )?;
        self.hand_over_encoded((first, header.last_offset), header.max_timestamp)
    }

    /// Adds a batch of magic 2 with only its records below `end`: the rest cannot be read. Its offsets, its producer and its sequence stay,
    /// as in a compacted log.
    pub(super) fn add_first(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
        end: i64,
        place: impl Fn(Error) -> Error,
    ) -> Result<()> {
        self.end_batch()?;
        let epoch = self.epochs.of(header.leader_epoch);
        let header = BatchHeader {
            leader_epoch: self.written(epoch, header),
            ..*header
        };
        let first = header.base_offset.unwrap_or(header.last_offset);
        let mut decoder = BatchDecoder::default();
        let found = decoder.records(bytes, self.max_decompressed_bytes);
        let mut found = found.map_err(&place)?;
        self.encoded.clear();
        let add_all = |rest: &mut Rest<'_>| {
            let mut at = first;
            // The record behind the last readable one is not to be looked at.
            while at < end
                && let Some(record) = found.next_record()?.filter(|record| record.offset < end)
            {
                rest.add(&record);
                at = record.offset + 1;
            }
            Ok(())
        };
        let mut rewriter = Rewriter::new();
        rewriter
            .write(&header, None, add_all, &mut self.encoded)
            .map_err(place)?;
        self.hand_over_encoded((first, header.last_offset), header.max_timestamp)
    }

    /// Adds a message of an old format to a batch of its kind. `is_set`: the message was in a compressed set.
    pub(super) fn push(&mut self, message: &Message<'_>, kind: Kind, is_set: bool) -> Result<()> {
        let limit = if is_set { SET_BYTES } else { BATCH_BYTES };
        let fits = self.batch.as_ref().is_none_or(|batch| {
            batch.kind == kind
                && self.records_encoded.len() < limit
                && message.offset - batch.first <= SPAN_MAX
                && batch.count < i32::MAX
        });
        if !fits {
            self.end_batch()?;
        }
        let batch = self.batch.get_or_insert(Batch {
            kind,
            first: message.offset,
            last: message.offset,
            base_timestamp: message.timestamp,
            max_timestamp: message.timestamp,
            count: 0,
        });
        let bytes = record_size_upper_bound(message.key, message.value, std::iter::empty());
        memory::reserve(&mut self.records_encoded, bytes)?;
        write_record(
            &mut self.records_encoded,
            message.timestamp.wrapping_sub(batch.base_timestamp),
            (message.offset - batch.first) as i32,
            message.key,
            message.value,
            [].into_iter(),
        );
        batch.last = message.offset;
        batch.max_timestamp = batch.max_timestamp.max(message.timestamp);
        batch.count += 1;
        self.records += 1;
        Ok(())
    }

    /// Ends the batch of a compressed set. The batch extends to `last` even if compaction removed the set's last messages.
    pub(super) fn end_set(&mut self, last: i64) -> Result<()> {
        if let Some(batch) = &mut self.batch
            && (0..=SPAN_MAX).contains(&(last - batch.first))
        {
            batch.last = batch.last.max(last);
        }
        self.end_batch()
    }

    /// Encodes the batch that is being built, if there is one.
    pub(super) fn end_batch(&mut self) -> Result<()> {
        let Some(batch) = self.batch.take() else {
            return Ok(());
        };
        let codec = self.codec.unwrap_or(batch.kind.codec);
        let append_time = batch.kind.append_time;
        let header = BatchHeader {
            attributes: Attributes::new(codec, append_time.is_some()),
            base_timestamp: batch.base_timestamp,
            max_timestamp: append_time.unwrap_or(batch.max_timestamp),
            record_count: batch.count,
            ..self.header(batch.first, batch.last)
        };
        let records = &self.records_encoded;
        encode(
            &mut self.encoded,
            &mut self.compressor,
            header,
            codec,
            records,
        )?;
        self.records_encoded.clear();
        self.hand_over_encoded((batch.first, batch.last), header.max_timestamp)
    }

    /// Appends everything that is left. Adds empty batches up to `log_end`, because compaction may have left only offsets after
    /// the last batch. Returns the log end offset.
    pub(super) fn finish(&mut self, log_end: i64) -> Result<i64> {
        self.end_batch()?;
        self.next_offset = self.next_offset.max(self.log.log_end_offset()?);
        while self.next_offset < log_end {
            let first = self.next_offset;
            let last = (log_end - 1).min(first.saturating_add(SPAN_MAX));
            let header = self.header(first, last);
            let codec = Codec::None;
            encode(&mut self.encoded, &mut self.compressor, header, codec, &[])?;
            self.hand_over_encoded((first, last), -1)?;
        }
        self.append_chunk()?;
        self.appender.finish()?;
        Ok(self.next_offset)
    }

    /// The epoch that a batch gets which would have `epoch`, counted.
    fn written(&self, epoch: i32, header: &BatchHeader) -> i32 {
        if self.epochs.keeps(header.leader_epoch) {
            header.leader_epoch
        } else {
            epoch
        }
    }

    /// The checksum of all bytes of the new log, if they are read back.
    pub(super) fn digest(&self) -> Option<u64> {
        self.appender.digest()
    }

    /// Ends what is still going on. Call it before the log is given up.
    pub(super) fn stop(&mut self) {
        self.appender.stop();
    }

    /// The header of an empty batch.
    fn header(&self, first: i64, last: i64) -> BatchHeader {
        BatchHeader {
            base_offset: Some(first),
            last_offset: last,
            size_bytes: 0,
            magic: 2,
            leader_epoch: self.epochs.now(),
            crc: 0,
            attributes: Attributes(0),
            base_timestamp: -1,
            max_timestamp: -1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: 0,
        }
    }

    fn hand_over_encoded(&mut self, offsets: (i64, i64), max_timestamp: i64) -> Result<()> {
        let encoded = std::mem::take(&mut self.encoded);
        let handed = self.hand_over(&encoded, offsets, max_timestamp);
        self.encoded = encoded;
        handed.map(|_| ())
    }

    /// Adds a complete batch to the chunk and returns its position there.
    fn hand_over(
        &mut self,
        bytes: &[u8],
        (first, last): (i64, i64),
        max_timestamp: i64,
    ) -> Result<usize> {
        let fits = self.chunk.len() + bytes.len() <= self.chunk_bytes;
        // One append goes into one segment.
        let is_later = self.chunk_timestamp >= 0
            && max_timestamp.saturating_sub(self.chunk_timestamp) > self.segment_ms;
        if !fits || is_later || last - self.chunk_first > SPAN_MAX {
            self.append_chunk()?;
        }
        if self.chunk.is_empty() {
            self.chunk_first = first;
            self.chunk_timestamp = max_timestamp;
        }
        let start = self.chunk.len();
        memory::extend(&mut self.chunk, bytes)?;
        self.next_offset = last.saturating_add(1);
        self.batches += 1;
        self.bytes += bytes.len() as u64;
        Ok(start)
    }

    fn append_chunk(&mut self) -> Result<()> {
        if !self.chunk.is_empty() {
            let checksums = std::mem::replace(&mut self.chunk_checksums, Checksums::Verified);
            self.appender.append(&mut self.chunk, checksums)?;
        }
        Ok(())
    }
}

/// Encodes a batch into `out`: `header` with its size, codec and checksum filled in, then the records.
fn encode(
    out: &mut Vec<u8>,
    compressor: &mut Compressor,
    header: BatchHeader,
    codec: Codec,
    records: &[u8],
) -> Result<()> {
    out.clear();
    out.resize(BATCH_HEADER_V2_BYTES, 0);
    if codec == Codec::None {
        memory::extend(out, records)?;
    } else {
        compressor.compress(codec, 2, records, out)?;
    }
    if out.len() > i32::MAX as usize {
        return Err(Error::new(ErrorKind::RecordTooLarge {
            size: out.len() as u64,
            maximum: i64::from(i32::MAX),
        }));
    }
    let header = BatchHeader {
        size_bytes: out.len(),
        attributes: header.attributes.with_codec(codec),
        ..header
    };
    finish_batch(out, 0, &header);
    Ok(())
}
