//! Batches and records of a segment, as Kafka's tool prints them.

use super::java;
use super::kafka_decode;
use super::kafka_run::{Ended, Run, cannot_read, exception};
use super::kafka_words;
use super::log_file::LogFile;
use offsetlog::format::batch::{
    BATCH_HEADER_V2_BYTES, CRC_COVERS_FROM_V2, FRAME_BYTES, LOG_OVERHEAD_BYTES, sequence_after,
};
use offsetlog::format::checksum::{crc32, crc32c};
use offsetlog::format::cursor::Reader;
use offsetlog::format::internal_topic::decode_control;
use offsetlog::format::{Attributes, ControlRecord, ControlType, Part, RecordView};
use offsetlog::{ErrorKind, Limits};
use std::borrow::Cow;
use std::fmt::Write as _;

/// What Kafka's reader of files knows of a batch before it reads it: it takes whatever magic there is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Framed {
    offset: i64,
    size: usize,
    magic: i8,
}

/// Steps to the batch at `position`; `None` where less than a whole one is left before `end`.
pub(super) fn next(
    log: &mut LogFile,
    position: u64,
    end: u64,
    file: &str,
) -> Result<Option<Framed>, Ended> {
    if position + FRAME_BYTES as u64 >= end {
        return Ok(None);
    }
    let bytes = log.bytes(position, FRAME_BYTES);
    let bytes = bytes.map_err(|error| cannot_read(file, &error))?;
    let mut reader = Reader::new(bytes, Part::BatchHeader);
    let fields = (|| {
        Ok((
            reader.read_i64()?,
            reader.read_i32()?,
            reader.read_i32()?,
            reader.read_i8()?,
        ))
    })();
    let Ok::<_, offsetlog::format::FormatError>((offset, length, _, magic)) = fields else {
        return Ok(None);
    };
    let Some(length) = usize::try_from(length)
        .ok()
        .filter(|&length| length >= MINIMUM_LENGTH)
    else {
        return Err(exception(
            "org.apache.kafka.common.errors.CorruptRecordException",
            &format!(
                "Found record size {length} smaller than minimum record overhead ({MINIMUM_LENGTH}) in file {file}."
            ),
        ));
    };
    let size = LOG_OVERHEAD_BYTES + length;
    Ok((position + size as u64 <= end).then_some(Framed {
        offset,
        size,
        magic,
    }))
}

impl Framed {
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// The batch as Kafka reads one of a magic that is not there yet; the checksum does not cover the byte.
    pub(super) fn readable<'b>(&self, batch: &'b [u8]) -> Cow<'b, [u8]> {
        if self.magic <= MAGIC_V2 {
            return Cow::Borrowed(batch);
        }
        let mut batch = batch.to_vec();
        if let Some(magic) = batch.get_mut(FRAME_BYTES - 1) {
            *magic = MAGIC_V2 as u8;
        }
        Cow::Owned(batch)
    }
}

/// The last offset of a batch at a position.
pub(super) fn last_offset(
    log: &mut LogFile,
    framed: &Framed,
    position: u64,
    file: &str,
) -> Result<i64, Ended> {
    if framed.magic < MAGIC_V2 {
        return Ok(framed.offset);
    }
    let bytes = log.bytes(position, BATCH_HEADER_V2_BYTES);
    let bytes = bytes.map_err(|error| cannot_read(file, &error))?;
    Header::read(bytes, framed).map(|header| header.last_offset)
}

const MINIMUM_LENGTH: usize = offsetlog::format::batch::MINIMUM_LENGTH_V0;

/// The header of a batch, without any check.
struct Header {
    last_offset: i64,
    crc: u32,
    attributes: Attributes,
    max_timestamp: i64,
    is_valid: bool,
    v2: Option<HeaderV2>,
}

struct HeaderV2 {
    leader_epoch: i32,
    base_timestamp: i64,
    last_offset_delta: i32,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    record_count: i32,
}

/// Prints a batch and, in depth, its records; returns its size. `previous` is the offset of the record before.
pub(super) fn dump(
    run: &mut Run<'_, '_>,
    log: &mut LogFile,
    framed: &Framed,
    position: u64,
    file: &str,
    previous: &mut i64,
) -> Result<u64, Ended> {
    let bytes = log.bytes(position, framed.size.max(BATCH_HEADER_V2_BYTES));
    let bytes = bytes.map_err(|error| cannot_read(file, &error))?;
    let header = Header::read(bytes, framed)?;
    header.print(run, framed, position)?;
    if run.is_deep() {
        let batch = bytes.get(..framed.size).unwrap_or(bytes);
        records(run, batch, framed, &header, file, previous)?;
    }
    Ok(framed.size as u64)
}

impl Header {
    fn read(bytes: &[u8], framed: &Framed) -> Result<Self, Ended> {
        if !(0..=1).contains(&framed.magic) && framed.magic < MAGIC_V2 {
            return Err(exception(
                "java.lang.IllegalArgumentException",
                &format!("Invalid magic used in LegacyRecord: {}", framed.magic),
            ));
        }
        let whole = bytes.get(..framed.size).unwrap_or(bytes);
        let read = if framed.magic >= MAGIC_V2 {
            Self::read_v2
        } else {
            Self::read_message
        };
        read(bytes, whole, framed).map_err(|_| {
            exception(
                "org.apache.kafka.common.KafkaException",
                "Failed to load record batch header",
            )
        })
    }

    fn read_v2(
        bytes: &[u8],
        whole: &[u8],
        framed: &Framed,
    ) -> Result<Self, offsetlog::format::FormatError> {
        let mut reader = Reader::new(bytes, Part::BatchHeader);
        reader.bytes(LOG_OVERHEAD_BYTES)?;
        let leader_epoch = reader.read_i32()?;
        reader.read_i8()?;
        let crc = reader.read_u32()?;
        let attributes = Attributes(reader.read_i16()?);
        let last_offset_delta = reader.read_i32()?;
        let base_timestamp = reader.read_i64()?;
        let max_timestamp = reader.read_i64()?;
        let covered = whole.get(CRC_COVERS_FROM_V2..).unwrap_or(&[]);
        Ok(Self {
            last_offset: framed.offset.wrapping_add(last_offset_delta.into()),
            crc,
            attributes,
            max_timestamp,
            is_valid: framed.size >= BATCH_HEADER_V2_BYTES && crc32c(covered) == crc,
            v2: Some(HeaderV2 {
                leader_epoch,
                base_timestamp,
                last_offset_delta,
                producer_id: reader.read_i64()?,
                producer_epoch: reader.read_i16()?,
                base_sequence: reader.read_i32()?,
                record_count: reader.read_i32()?,
            }),
        })
    }

    fn read_message(
        _: &[u8],
        whole: &[u8],
        framed: &Framed,
    ) -> Result<Self, offsetlog::format::FormatError> {
        let mut reader = Reader::new(whole, Part::Message);
        reader.bytes(LOG_OVERHEAD_BYTES)?;
        let crc = reader.read_u32()?;
        reader.read_i8()?;
        let attributes = Attributes(reader.read_u8()?.into());
        let max_timestamp = if framed.magic == 0 {
            -1
        } else {
            reader.read_i64()?
        };
        Ok(Self {
            last_offset: framed.offset,
            crc,
            attributes,
            max_timestamp,
            is_valid: crc32(whole.get(FRAME_BYTES - 1..).unwrap_or(&[])) == crc,
            v2: None,
        })
    }

    const fn timestamp_type(&self, magic: i8) -> &'static str {
        if magic == 0 {
            "NoTimestampType"
        } else if self.attributes.is_log_append_time() {
            "LogAppendTime"
        } else {
            "CreateTime"
        }
    }

    fn print(&self, run: &mut Run<'_, '_>, framed: &Framed, position: u64) -> Result<(), Ended> {
        let first = match &self.v2 {
            Some(v2) => v2.line(self, framed),
            None => format!("offset: {}", self.last_offset),
        };
        run.part(&first)?;
        let codec = match self.attributes.codec(Part::BatchHeader) {
            Ok(codec) => codec.name(),
            Err(_) => {
                return Err(exception(
                    "java.lang.IllegalArgumentException",
                    &format!(
                        "Unknown compression type id: {}",
                        self.attributes.codec_number()
                    ),
                ));
            }
        };
        run.line(&format!(
            " position: {position} {}: {} size: {} magic: {} compresscodec: {codec} crc: {} isvalid: {}",
            self.timestamp_type(framed.magic),
            self.max_timestamp,
            framed.size,
            framed.magic,
            self.crc,
            self.is_valid
        ))
    }
}

impl HeaderV2 {
    fn line(&self, header: &Header, framed: &Framed) -> String {
        let attributes = header.attributes;
        let horizon = if attributes.has_delete_horizon() {
            format!("OptionalLong[{}]", self.base_timestamp)
        } else {
            "OptionalLong.empty".to_owned()
        };
        format!(
            "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} \
             partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {horizon}",
            framed.offset,
            header.last_offset,
            self.record_count,
            self.base_sequence,
            sequence_after(self.base_sequence, self.last_offset_delta),
            self.producer_id,
            self.producer_epoch,
            self.leader_epoch,
            attributes.is_transactional(),
            attributes.is_control(),
        )
    }
}

const MAGIC_V2: i8 = 2;

/// What Kafka throws for records that cannot be read.
pub(super) fn invalid(error: &offsetlog::Error) -> Ended {
    let sentence = match error.kind() {
        ErrorKind::InvalidRecord(fault) => kafka_words::records(fault),
        _ => None,
    };
    exception(
        "org.apache.kafka.common.InvalidRecordException",
        &sentence.unwrap_or_else(|| error.to_string()),
    )
}

fn records(
    run: &mut Run<'_, '_>,
    batch: &[u8],
    framed: &Framed,
    header: &Header,
    file: &str,
    previous: &mut i64,
) -> Result<(), Ended> {
    let limit = Limits::default().max_decompressed_bytes;
    let mut decoder = std::mem::take(&mut run.decoder);
    let batch = &framed.readable(batch);
    let mut records = decoder
        .records(batch, limit)
        .map_err(|error| invalid(&error))?;
    if header.attributes.codec_number() != 0 {
        // Kafka reads all records of a compressed batch before it prints the first one.
        let mut ahead = records.clone();
        while ahead
            .next_record()
            .map_err(|error| invalid(&error))?
            .is_some()
        {}
    }
    let mut left = header.v2.as_ref().map_or(0, |v2| v2.record_count);
    while let Some(record) = records.next_record().map_err(|error| invalid(&error))? {
        left = left.saturating_sub(1);
        if left == 0 {
            // Before Kafka returns the last record that the batch counts, it looks at what follows.
            let behind = records.clone().next_record();
            behind.map_err(|error| invalid(&error))?;
        }
        if record.offset != previous.wrapping_add(1) {
            let pairs = run.not_consecutive.of(&java::absolute(file));
            match pairs.iter_mut().find(|(first, _)| first == previous) {
                Some(pair) => pair.1 = record.offset,
                None => pairs.push((*previous, record.offset)),
            }
            pairs.sort_unstable();
        }
        *previous = record.offset;
        let mut line = String::new();
        if !run.args.skip_record_metadata {
            let message = records.inner_message().unwrap_or(batch);
            let printed = metadata(&mut line, &record, message, framed, header);
            or_cut_off(run, &line, printed)?;
        }
        if run.shows_contents() && !header.attributes.is_control() {
            let contents = kafka_decode::contents(run.decoder_kind(), &record);
            let (key, value) = or_cut_off(run, &line, contents)?;
            let mut lead = if run.args.skip_record_metadata {
                "| "
            } else {
                " "
            };
            if let Some(key) = key {
                let _ = write!(line, "{lead}key: {key}");
                lead = " ";
            }
            if let Some(value) = value {
                let _ = write!(line, "{lead}payload: {value}");
            }
        }
        run.line(&line)?;
    }
    run.decoder = decoder;
    Ok(())
}

/// What a step returned; if that is an exception, what was printed of the line stays without an end.
fn or_cut_off<T>(run: &mut Run<'_, '_>, line: &str, result: Result<T, Ended>) -> Result<T, Ended> {
    if result.is_err() {
        run.part(line)?;
    }
    result
}

fn metadata(
    line: &mut String,
    record: &RecordView<'_>,
    message: &[u8],
    framed: &Framed,
    header: &Header,
) -> Result<(), Ended> {
    let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
    // A String takes every write.
    let _ = write!(
        line,
        "| offset: {} {}: {} keySize: {} valueSize: {}",
        record.offset,
        header.timestamp_type(framed.magic),
        record.timestamp,
        size(record.key),
        size(record.value)
    );
    if let Some(v2) = &header.v2 {
        let delta = record.offset.wrapping_sub(framed.offset) as i32;
        let names: Vec<_> = record
            .headers
            .iter()
            .map(|(name, _)| java::text(name))
            .collect();
        let _ = write!(
            line,
            " sequence: {} headerKeys: [{}]",
            sequence_after(v2.base_sequence, delta),
            names.join(",")
        );
    } else {
        let stored = message
            .get(12..16)
            .and_then(|bytes| bytes.first_chunk().copied());
        let stored = u32::from_be_bytes(stored.unwrap_or_default());
        let is_valid = crc32(message.get(FRAME_BYTES - 1..).unwrap_or(&[])) == stored;
        let _ = write!(line, " isValid: {is_valid} crc: {stored}");
    }
    if header.attributes.is_control() && header.v2.is_some() {
        control(line, record)?;
    }
    Ok(())
}

fn control(line: &mut String, record: &RecordView<'_>) -> Result<(), Ended> {
    let invalid = |error: offsetlog::format::FormatError| {
        exception(
            "org.apache.kafka.common.InvalidRecordException",
            &error.to_string(),
        )
    };
    let control_type = ControlType::parse_key(record.key).map_err(invalid)?;
    let lead = match control_type {
        ControlType::Abort | ControlType::Commit => {
            let marker = ControlRecord::parse(record.key, record.value).map_err(invalid)?;
            if let ControlRecord::Abort { coordinator_epoch }
            | ControlRecord::Commit { coordinator_epoch } = marker
            {
                let _ = write!(
                    line,
                    " endTxnMarker: {} coordinatorEpoch: {coordinator_epoch}",
                    control_type.name()
                );
            }
            return Ok(());
        }
        ControlType::LeaderChange => " LeaderChange: ",
        ControlType::SnapshotHeader => " SnapshotHeader ",
        ControlType::SnapshotFooter => " SnapshotFooter ",
        ControlType::KraftVersion => " KRaftVersion ",
        ControlType::KraftVoters => " KRaftVoters ",
        ControlType::Unknown(number) => {
            let _ = write!(line, " controlType: {}({number})", control_type.name());
            return Ok(());
        }
    };
    let fields = decode_control(control_type, record.value.unwrap_or(&[]));
    let fields = fields.transpose().map_err(invalid)?;
    line.push_str(lead);
    if let Some(fields) = fields {
        java::write_struct(line, &fields);
    }
    Ok(())
}
