//! Validates batches before they are appended, and changes them as a leader does.
//!
//! A leader assigns offsets and its epoch, corrects the greatest timestamp and the timestamp type, and encodes a batch again if
//! its compression differs from the settings or its format is old. A follower stores what its leader stored.

use super::owned_records::OwnedRecords;
use crate::codec::{Compressor, Decompressor};
use crate::config::LogConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::Limits;
use crate::log::producers::Origin;
use crate::records::Records;
use offsetlog_format::batch::{
    BATCH_HEADER_V2_BYTES, CRC_COVERS_FROM_V2, FRAME_BYTES, LOG_OVERHEAD_BYTES,
};
use offsetlog_format::builder::{BatchFields, write_batch};
use offsetlog_format::{
    Attributes, BatchHeader, Codec, Fault, FormatError, Frame, Part, RecordView, TimestampType,
    checksum, counted,
};

/// Smallest length field of any batch.
const MINIMUM_LENGTH: i32 = 14;

/// The batches of an append as received.
#[derive(Debug)]
pub(super) struct Incoming<'a> {
    /// The whole batches. An incomplete one at the end is left out, as in a broker; so is everything from a newer leader epoch
    /// on.
    pub(super) bytes: &'a [u8],
    /// As in [`AppendInfo`](crate::AppendInfo).
    pub(super) left_out_bytes: u64,
    /// Position and header of each batch.
    pub(super) batches: Vec<(usize, BatchHeader)>,
    pub(super) max_timestamp: i64,
    source: Codec,
}

/// Whether an append computes the checksums of its batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checksums {
    /// As for all bytes that come from elsewhere.
    Verify,
    /// The caller has just verified those of magic 2, or has made the batches.
    Verified,
}

/// Settings, time and log state for one append.
#[derive(Debug, Clone, Copy)]
pub(super) struct AppendContext<'c> {
    pub(super) config: &'c LogConfig,
    pub(super) now: i64,
    pub(super) leader_epoch: i32,
    pub(super) log_end_offset: i64,
    pub(super) limits: Limits,
}

/// A batch as a leader stores it.
#[derive(Debug)]
pub(super) enum Stored<'a> {
    /// A new header in front of the received bytes.
    Patched {
        head: [u8; BATCH_HEADER_V2_BYTES],
        rest: &'a [u8],
        header: BatchHeader,
    },
    /// Encoded again.
    Rebuilt { bytes: Vec<u8>, header: BatchHeader },
}

impl Stored<'_> {
    pub(super) const fn header(&self) -> &BatchHeader {
        match self {
            Self::Patched { header, .. } | Self::Rebuilt { header, .. } => header,
        }
    }

    pub(super) fn parts(&self) -> [&[u8]; 2] {
        match self {
            Self::Patched { head, rest, .. } => [head, rest],
            Self::Rebuilt { bytes, .. } => [bytes, &[]],
        }
    }
}

/// Returns the error for an append that is refused because of a record or of the batch itself.
pub(super) fn refused(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::RecordRejected {
        reason: reason.into(),
    })
}

/// Splits `data` into batches and checks what does not depend on the log: framing, size, checksum, order.
///
/// # Errors
/// `CorruptBatch`, `UnsupportedMagic`: framing or checksum. `RecordTooLarge`. `RecordRejected`: a client's batch whose base
/// offset is not 0. `OffsetsOutOfOrder`: a follower's batches whose offsets do not ascend.
pub(super) fn inspect<'a>(
    data: &'a [u8],
    origin: Origin,
    checksums: Checksums,
    leader_epoch: i32,
    config: &LogConfig,
) -> Result<Incoming<'a>> {
    let mut incoming = Incoming {
        bytes: &[],
        left_out_bytes: 0,
        batches: Vec::new(),
        max_timestamp: -1,
        source: Codec::None,
    };
    let mut at = 0;
    let mut previous: Option<i64> = None;
    let mut in_order = true;
    while let Some(batch) = next_batch(data, at).map_err(|error| error.at_position(at as u64))? {
        let place = |error: Error| error.at_position(at as u64);
        let magic = batch.get(16).copied().unwrap_or_default();
        if origin == Origin::Replication {
            let epoch = be_i32(batch, 12);
            if magic == 2 && epoch != -1 && epoch > leader_epoch {
                // From a newer leader that this replica does not know yet. The batches will be sent again.
                break;
            }
        } else if origin == Origin::Client && magic >= 2 && be_i64(batch, 0) != 0 {
            return Err(place(refused(format!(
                "base offset {} found, 0 expected: a leader gives the offsets",
                be_i64(batch, 0)
            ))));
        }
        if origin != Origin::Replication
            && batch.len() as i64 > i64::from(config.max_message_bytes())
        {
            return Err(place(too_large(batch.len(), config)));
        }
        let header = checked_header(batch, origin, checksums).map_err(place)?;
        if previous
            .is_some_and(|previous| header.base_offset.unwrap_or(header.last_offset) <= previous)
        {
            in_order = false;
        }
        previous = Some(header.last_offset);
        incoming.max_timestamp = incoming.max_timestamp.max(header.max_timestamp);
        match header.attributes.codec(Part::BatchHeader) {
            Ok(Codec::None) => {}
            Ok(codec) => incoming.source = codec,
            Err(error) => return Err(place(Error::new(error))),
        }
        incoming.batches.push((at, header));
        at += batch.len();
    }
    if origin == Origin::Replication && !in_order {
        return Err(Error::new(ErrorKind::OffsetsOutOfOrder));
    }
    incoming.bytes = data.get(..at).unwrap_or(&[]);
    incoming.left_out_bytes = data.len().saturating_sub(at) as u64;
    Ok(incoming)
}

/// Returns the whole batch at `at`, or `None` after the last whole one.
fn next_batch(data: &[u8], at: usize) -> Result<Option<&[u8]>> {
    let rest = data.get(at..).unwrap_or(&[]);
    if rest.len() < LOG_OVERHEAD_BYTES {
        return Ok(None);
    }
    let length = be_i32(rest, 8);
    if length < MINIMUM_LENGTH {
        return Err(Error::new(FormatError::new(
            Part::BatchHeader,
            8,
            Fault::Length {
                found: i64::from(length),
                minimum: i64::from(MINIMUM_LENGTH),
                maximum: i64::from(i32::MAX),
            },
        )));
    }
    if rest.len() < FRAME_BYTES {
        return Ok(None);
    }
    let size = length as usize + LOG_OVERHEAD_BYTES;
    Frame::parse(rest)?;
    Ok(rest.get(..size))
}

/// Parses the header of a whole batch and verifies its checksum. Ignores the offset if a leader will overwrite it.
fn checked_header(batch: &[u8], origin: Origin, checksums: Checksums) -> Result<BatchHeader> {
    let magic = batch.get(16).copied().unwrap_or_default();
    if magic == 2 && checksums == Checksums::Verify {
        let covered = batch.get(CRC_COVERS_FROM_V2..).unwrap_or(&[]);
        checksum::check(
            Part::BatchHeader,
            17,
            offsetlog_format::Algorithm::Crc32c,
            be_i32(batch, 17) as u32,
            covered,
        )?;
    }
    let header = if origin == Origin::Replication {
        BatchHeader::parse(batch)?
    } else {
        let mut front = [0; BATCH_HEADER_V2_BYTES];
        let length = batch.len().min(BATCH_HEADER_V2_BYTES);
        if let (Some(to), Some(from)) = (front.get_mut(8..length), batch.get(8..length)) {
            to.copy_from_slice(from);
        }
        BatchHeader::parse(&front)?
    };
    if magic < 2 {
        header.check_crc(batch)?;
    }
    Ok(header)
}

fn too_large(size: usize, config: &LogConfig) -> Error {
    Error::new(ErrorKind::RecordTooLarge {
        size: size as u64,
        maximum: i64::from(config.max_message_bytes()),
    })
}

fn be_i32(bytes: &[u8], at: usize) -> i32 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<4>())
        .map_or(0, |chunk| i32::from_be_bytes(*chunk))
}

fn be_i64(bytes: &[u8], at: usize) -> i64 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<8>())
        .map_or(0, |chunk| i64::from_be_bytes(*chunk))
}

/// Codec contexts and buffers, reused from append to append.
#[derive(Debug, Default)]
pub(super) struct CodecBuffers {
    pub(super) decompressor: Option<Decompressor>,
    pub(super) compressor: Option<Compressor>,
    pub(super) scratch: Vec<u8>,
}

/// Returns what a leader stores for `incoming`: one batch that begins at the log end offset.
///
/// # Errors
/// `RecordRejected`, `InvalidTimestamp`, `RecordTooLarge`, `Decompression`, `UnsupportedCodec`. The log is not changed.
///
/// Source: Kafka's `LogValidator`; FORMAT.md «Record batch, magic 2».
pub(super) fn validate<'a>(
    incoming: &Incoming<'a>,
    origin: Origin,
    context: &AppendContext<'_>,
    buffers: &mut CodecBuffers,
) -> Result<Stored<'a>> {
    let Some((_, first)) = incoming.batches.first() else {
        return Err(refused("the append holds no batch"));
    };
    let source = incoming.source;
    if (first.magic == 2 || source != Codec::None) && incoming.batches.len() > 1 {
        return Err(refused(format!(
            "{} batches found, 1 expected",
            incoming.batches.len()
        )));
    }
    let target = context.config.codec_for(source);
    for (_, header) in &incoming.batches {
        check_batch(header, first.magic, origin)?;
    }
    let control = first.attributes.is_control();
    let mut checks = RecordChecks::new(context);
    let walked = walk_records(incoming, context, &mut buffers.decompressor, &mut checks)?;
    let in_place = first.magic == 2
        && (control && source == Codec::None
            || target == source && (source == Codec::None || walked.consecutive));
    if in_place {
        let delta = first.last_offset - first.base_offset.unwrap_or(first.last_offset);
        if delta + 1 != walked.count {
            return Err(refused(format!(
                "{} found, {} expected by the last offset delta",
                counted(walked.count as u64, "record"),
                delta + 1
            )));
        }
        return Ok(patch(incoming.bytes, first, &walked, context));
    }
    rebuild(incoming, first, target, context, buffers)
}

fn check_batch(header: &BatchHeader, magic: i8, origin: Origin) -> Result<()> {
    if header.magic != magic {
        return Err(refused(format!(
            "magic {} found beside magic {magic}",
            header.magic
        )));
    }
    if origin != Origin::Client || header.magic < 2 {
        return Ok(());
    }
    let delta = header.last_offset - header.base_offset.unwrap_or(header.last_offset);
    if header.record_count <= 0 || i64::from(header.record_count) != delta + 1 {
        return Err(refused(format!(
            "{} records counted, {} expected by the last offset delta",
            header.record_count,
            delta + 1
        )));
    }
    if header.attributes.is_control() {
        return Err(refused("clients may not append control records"));
    }
    if header.producer_id >= 0 && header.base_sequence < 0 {
        return Err(refused(format!(
            "base sequence {} found for producer id {}, 0 or more expected",
            header.base_sequence, header.producer_id
        )));
    }
    Ok(())
}

/// Totals over the records of an append.
#[derive(Debug, Clone, Copy)]
struct Walked {
    count: i64,
    max_timestamp: i64,
    /// The offset deltas are 0, 1, 2, …
    consecutive: bool,
}

fn walk_records(
    incoming: &Incoming<'_>,
    context: &AppendContext<'_>,
    decompressor: &mut Option<Decompressor>,
    checks: &mut RecordChecks<'_>,
) -> Result<Walked> {
    let mut walked = Walked {
        count: 0,
        max_timestamp: -1,
        consecutive: true,
    };
    for (at, header) in &incoming.batches {
        let bytes = incoming
            .bytes
            .get(*at..*at + header.size_bytes)
            .unwrap_or(&[]);
        let place = |error: Error| error.at_position(*at as u64);
        let decompressor = decompressor.get_or_insert_with(Decompressor::new);
        let limit = context.limits.max_decompressed_bytes;
        let mut records = Records::open(header, bytes, decompressor, limit).map_err(place)?;
        let base = header.base_offset.unwrap_or(0);
        while let Some(record) = records
            .next_record()
            .map_err(|error| place(as_refusal(error)))?
        {
            if record.offset - base != walked.count {
                walked.consecutive = false;
            }
            context
                .limits
                .allow_headers(record.headers.len())
                .map_err(place)?;
            walked.max_timestamp = walked.max_timestamp.max(record.timestamp);
            checks.check(walked.count, &record, header.timestamp_type());
            walked.count += 1;
        }
        // Within a batch a bad timestamp is reported before a missing key. Of several batches the first bad one is reported.
        checks.finish()?;
    }
    if walked.count == 0 {
        return Err(refused("the batch holds no record"));
    }
    Ok(walked)
}

/// The checksum is correct, so the producer wrote the offsets out of order: the append is refused, nothing is corrupt.
fn as_refusal(error: FormatError) -> Error {
    match error.fault {
        Fault::OffsetOrder { .. } => refused(error.to_string()),
        _ => Error::new(error),
    }
}

/// Rules for each record that a client or coordinator appends.
struct RecordChecks<'c> {
    compacted: bool,
    create_time: bool,
    now: i64,
    before: i64,
    after: i64,
    null_key: Option<i64>,
    bad_time: Option<(i64, i64)>,
    config: &'c LogConfig,
}

impl<'c> RecordChecks<'c> {
    fn new(context: &AppendContext<'c>) -> Self {
        let config = context.config;
        Self {
            compacted: config.is_compacted(),
            create_time: config.message_timestamp_type() == TimestampType::Create,
            now: context.now,
            before: config.message_timestamp_before_max_ms(),
            after: config.message_timestamp_after_max_ms(),
            null_key: None,
            bad_time: None,
            config,
        }
    }

    fn check(&mut self, slot: i64, record: &RecordView<'_>, kind: TimestampType) {
        if self.compacted && record.key.is_none() {
            self.null_key.get_or_insert(slot);
            return;
        }
        let timestamp = record.timestamp;
        let bad = if self.create_time && timestamp != -1 {
            !self.is_near(timestamp)
        } else {
            kind == TimestampType::LogAppend
        };
        if bad && self.bad_time.is_none() {
            self.bad_time = Some((slot, timestamp));
        }
    }

    /// Whether the timestamp is within the allowed range around now. As in a broker, a difference that does not fit 64 bits
    /// wraps.
    fn is_near(&self, timestamp: i64) -> bool {
        self.now.wrapping_sub(timestamp) <= self.before
            && timestamp.wrapping_sub(self.now) <= self.after
    }

    fn finish(&self) -> Result<()> {
        if let Some((slot, timestamp)) = self.bad_time {
            return Err(Error::new(ErrorKind::InvalidTimestamp {
                slot,
                timestamp,
                now: self.now,
                before: self.config.message_timestamp_before_max_ms(),
                after: self.config.message_timestamp_after_max_ms(),
            }));
        }
        match self.null_key {
            Some(slot) => Err(null_key(slot)),
            None => Ok(()),
        }
    }
}

pub(super) fn null_key(slot: i64) -> Error {
    refused(format!(
        "record {slot} has no key, which compaction needs (cleanup.policy=compact)"
    ))
}

/// Checks the timestamps of records that we encode ourselves. Only the least and the greatest are known.
pub(super) fn check_times(minimum: i64, maximum: i64, context: &AppendContext<'_>) -> Result<()> {
    let mut checks = RecordChecks::new(context);
    if checks.create_time {
        for timestamp in [minimum, maximum] {
            if timestamp != -1 && !checks.is_near(timestamp) {
                checks.bad_time = Some((-1, timestamp));
            }
        }
    }
    checks.finish()
}

/// Returns the received bytes behind a header with new offsets, epoch, timestamp type and greatest timestamp.
fn patch<'a>(
    bytes: &'a [u8],
    header: &BatchHeader,
    walked: &Walked,
    context: &AppendContext<'_>,
) -> Stored<'a> {
    let delta = header.last_offset - header.base_offset.unwrap_or(header.last_offset);
    let last_offset = context.log_end_offset.saturating_add(walked.count - 1);
    let append_time = context.config.message_timestamp_type() == TimestampType::LogAppend;
    let max_timestamp = if append_time {
        context.now
    } else {
        walked.max_timestamp
    };
    let mut patched = BatchHeader {
        base_offset: Some(last_offset - delta),
        last_offset,
        leader_epoch: context.leader_epoch,
        ..*header
    };
    let rest = bytes.get(BATCH_HEADER_V2_BYTES..).unwrap_or(&[]);
    let changed = header.attributes.is_log_append_time() != append_time
        || header.max_timestamp != max_timestamp;
    if changed {
        patched.attributes = header.attributes.with_timestamp_type(append_time);
        patched.max_timestamp = max_timestamp;
    }
    let mut head = [0; BATCH_HEADER_V2_BYTES];
    patched.write_v2_at(&mut head);
    if changed {
        patched.crc = checksum::crc32c_of(&[head.get(CRC_COVERS_FROM_V2..).unwrap_or(&[]), rest]);
        patched.write_v2_at(&mut head);
    }
    Stored::Patched {
        head,
        rest,
        header: patched,
    }
}

/// Encodes all records of the append as one new batch of magic 2.
fn rebuild<'a>(
    incoming: &Incoming<'a>,
    first: &BatchHeader,
    target: Codec,
    context: &AppendContext<'_>,
    buffers: &mut CodecBuffers,
) -> Result<Stored<'a>> {
    if first.producer_id >= 0 && (first.producer_epoch < 0 || first.base_sequence < 0) {
        return Err(refused(format!(
            "producer epoch {} and base sequence {} found for producer id {}, 0 or more expected",
            first.producer_epoch, first.base_sequence, first.producer_id
        )));
    }
    if first.producer_id < 0 && first.attributes.is_transactional() {
        return Err(refused("a transactional batch without producer id"));
    }
    let append_time = context.config.message_timestamp_type() == TimestampType::LogAppend;
    let mut attributes = Attributes::new(target, append_time);
    if first.attributes.is_transactional() {
        attributes = attributes.transactional();
    }
    let fields = BatchFields {
        base_offset: context.log_end_offset,
        leader_epoch: context.leader_epoch,
        attributes,
        append_time: context.now,
        producer_id: first.producer_id,
        producer_epoch: first.producer_epoch,
        base_sequence: first.base_sequence,
    };
    let mut owned = OwnedRecords::default();
    for (at, header) in &incoming.batches {
        let bytes = incoming
            .bytes
            .get(*at..*at + header.size_bytes)
            .unwrap_or(&[]);
        let decompressor = buffers.decompressor.get_or_insert_with(Decompressor::new);
        let limit = context.limits.max_decompressed_bytes;
        let mut records = Records::open(header, bytes, decompressor, limit)?;
        while let Some(record) = records.next_record()? {
            if record.timestamp < -1 {
                return Err(Error::new(ErrorKind::InvalidTimestamp {
                    slot: owned.len() as i64,
                    timestamp: record.timestamp,
                    now: context.now,
                    before: context.config.message_timestamp_before_max_ms(),
                    after: context.config.message_timestamp_after_max_ms(),
                }));
            }
            owned.push(&record);
        }
    }
    let headers = owned.headers();
    let records = owned.records(context.log_end_offset, &headers);
    let compressor = buffers.compressor.get_or_insert_with(Compressor::new);
    if target != Codec::None {
        compressor.set_level(target, context.config.compression_level(target))?;
    }
    let mut bytes = Vec::new();
    write_batch(
        &mut bytes,
        &fields,
        &records,
        compressor,
        &mut buffers.scratch,
    )?;
    context
        .limits
        .allow_unpacked(target, buffers.scratch.len())?;
    if bytes.len() as i64 > i64::from(context.config.max_message_bytes()) {
        return Err(too_large(bytes.len(), context.config));
    }
    let header = BatchHeader::parse(&bytes)?;
    Ok(Stored::Rebuilt { bytes, header })
}
