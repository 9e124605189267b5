//! Messages of magic 0 and 1 and the compressed sets that wrap them (FORMAT.md «Message, magic 0 and 1»).
//!
//! Kafka 0.8 to 0.10 wrote them; every broker since reads them. This module does not decompress.

use crate::attributes::{Attributes, Codec, TimestampType};
use crate::batch::{
    BatchHeader, BatchView, LOG_OVERHEAD_BYTES, MESSAGE_HEADER_BYTES, MINIMUM_LENGTH_V0,
};
use crate::checksum;
use crate::cursor::Reader;
use crate::error::{Fault, FormatError, Part};
use crate::record::{Headers, RecordView};
use alloc::vec::Vec;

/// Key and value of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The key; a wrapper's is not looked at.
    pub key: Option<&'a [u8]>,
    /// The value; a wrapper's is the compressed set.
    pub value: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// Reads key and value of the message that `batch` views.
    ///
    /// # Errors
    /// `Length` or `Truncated` when they do not lie within the message. Bytes behind the value are ignored, as in Kafka.
    pub fn parse(batch: &BatchView<'a>) -> Result<Self, FormatError> {
        Self::fields(batch.bytes(), batch.header.magic)
    }

    fn fields(bytes: &'a [u8], magic: i8) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes, Part::MessageSet);
        reader.bytes(if magic == 0 {
            MESSAGE_HEADER_BYTES[0]
        } else {
            MESSAGE_HEADER_BYTES[1]
        })?;
        let key = nullable_bytes(&mut reader)?;
        let value = nullable_bytes(&mut reader)?;
        Ok(Self { key, value })
    }
}

fn nullable_bytes<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a [u8]>, FormatError> {
    let at = reader.position();
    let length = reader.read_i32()?;
    let Ok(count) = usize::try_from(length) else {
        return Ok(None);
    };
    let maximum = reader.remaining() as i64;
    reader.bytes(count).map(Some).map_err(|_| {
        FormatError::new(
            Part::MessageSet,
            at,
            Fault::Length {
                found: i64::from(length),
                minimum: -1,
                maximum,
            },
        )
    })
}

/// The record that an uncompressed message is.
///
/// # Errors
/// Those of [`Message::parse`].
pub fn single_record<'a>(batch: &BatchView<'a>) -> Result<RecordView<'a>, FormatError> {
    let message = Message::parse(batch)?;
    Ok(RecordView {
        offset: batch.header.last_offset,
        timestamp: batch.header.max_timestamp,
        timestamp_type: batch.header.timestamp_type(),
        key: message.key,
        value: message.value,
        headers: Headers::default(),
    })
}

/// One complete entry of a decompressed set.
#[derive(Debug, Clone, Copy)]
struct Inner<'a> {
    at: usize,
    offset: i64,
    bytes: &'a [u8],
    magic: i8,
}

/// Iterates the messages of a compressed set, given its wrapper and the decompressed bytes.
///
/// Inner offsets are absolute under magic 0 and relative to the last one under magic 1; an incomplete last message is left out,
/// and inner checksums are not looked at: all as Kafka reads them.
#[derive(Debug, Clone)]
pub struct MessageSet<'a> {
    set: &'a [u8],
    position: usize,
    /// What is added to a stored inner offset.
    base: i64,
    previous: i64,
    last: Option<&'a [u8]>,
    maximum: i64,
    wrapper: BatchHeader,
}

impl<'a> MessageSet<'a> {
    /// Walks `set` once to find its last offset, and starts at its first message.
    ///
    /// # Errors
    /// * `Rule`: no complete message; a message that is itself compressed.
    /// * `Length`: an inner size below 14.
    /// * `OffsetOrder`: the wrapper's offset is below the last inner one (magic 1).
    /// * `OffsetOverflow`: the last inner offset is so far below 0 that no sum reaches the wrapper's (magic 1).
    pub fn new(wrapper: &BatchHeader, set: &'a [u8]) -> Result<Self, FormatError> {
        let mut position = 0;
        let mut last = None;
        while let Some(inner) = next_inner(set, &mut position)? {
            last = Some(inner.offset);
        }
        let Some(last) = last else {
            return Err(FormatError::new(
                Part::MessageSet,
                0,
                Fault::Rule("the compressed set holds no complete message"),
            ));
        };
        // Old librdkafka wrote offset 0 into the wrapper of relative offsets; they then count from 0.
        let relative = wrapper.magic == 1 && wrapper.last_offset != 0;
        if relative && wrapper.last_offset < last {
            return Err(FormatError::new(
                Part::MessageSet,
                0,
                Fault::Rule("the offset of the compressed set is below its last inner offset"),
            ));
        }
        let base = match wrapper.last_offset.checked_sub(last) {
            _ if !relative => 0,
            Some(base) => base,
            None => {
                return Err(FormatError::new(
                    Part::MessageSet,
                    0,
                    Fault::OffsetOverflow {
                        base: wrapper.last_offset,
                        delta: last.saturating_neg(),
                    },
                ));
            }
        };
        Ok(Self {
            set,
            position: 0,
            base,
            previous: -1,
            last: None,
            maximum: if wrapper.magic == 1 && !relative {
                i64::MAX
            } else {
                wrapper.last_offset
            },
            wrapper: *wrapper,
        })
    }

    /// The same, of a log whose offsets below `minimum` are given: nothing else says where the set begins. It ends with the wrapper's
    /// offset, behind which the next batch may begin, even if that is 0.
    #[must_use]
    pub fn not_below(mut self, minimum: i64) -> Self {
        self.previous = self.previous.max(minimum.saturating_sub(1));
        self.maximum = self.wrapper.last_offset;
        self
    }

    /// Decodes the next message; `None` at the end.
    ///
    /// # Errors
    /// Those of [`Message::parse`]; `OffsetOrder` when offsets do not ascend.
    pub fn next_record(&mut self) -> Result<Option<RecordView<'a>>, FormatError> {
        let Some(inner) = next_inner(self.set, &mut self.position)? else {
            return Ok(None);
        };
        let Some(offset) = self.base.checked_add(inner.offset) else {
            return Err(FormatError::new(
                Part::MessageSet,
                inner.at,
                Fault::OffsetOverflow {
                    base: self.base,
                    delta: inner.offset,
                },
            ));
        };
        if offset <= self.previous || offset > self.maximum {
            return Err(FormatError::new(
                Part::MessageSet,
                inner.at,
                Fault::OffsetOrder {
                    found: offset,
                    minimum: self.previous + 1,
                    maximum: self.maximum,
                },
            ));
        }
        self.previous = offset;
        self.last = Some(inner.bytes);
        let at = inner.at;
        let message = Message::fields(inner.bytes, inner.magic)
            .map_err(|error| FormatError::new(error.part, at + error.at, error.fault))?;
        let (timestamp, timestamp_type) = self.timestamp(&inner);
        Ok(Some(RecordView {
            offset,
            timestamp,
            timestamp_type,
            key: message.key,
            value: message.value,
            headers: Headers::default(),
        }))
    }

    /// The message that [`next_record`](Self::next_record) gave last, header included.
    #[must_use]
    pub const fn last_message(&self) -> Option<&'a [u8]> {
        self.last
    }

    fn timestamp(&self, inner: &Inner<'_>) -> (i64, TimestampType) {
        if self.wrapper.magic == 1 && self.wrapper.attributes.is_log_append_time() {
            return (self.wrapper.max_timestamp, TimestampType::LogAppend);
        }
        if inner.magic == 0 {
            return (-1, TimestampType::None);
        }
        let mut reader = Reader::new(inner.bytes, Part::MessageSet);
        let stored = reader
            .bytes(MESSAGE_HEADER_BYTES[0])
            .and_then(|_| reader.read_i64());
        (stored.unwrap_or(-1), TimestampType::Create)
    }
}

/// The next complete message of a set; `None` where fewer bytes are left than it or its size field needs.
fn next_inner<'a>(set: &'a [u8], position: &mut usize) -> Result<Option<Inner<'a>>, FormatError> {
    let at = *position;
    let rest = set.get(at..).unwrap_or(&[]);
    if rest.len() < LOG_OVERHEAD_BYTES {
        return Ok(None);
    }
    let mut reader = Reader::new(rest, Part::MessageSet);
    let offset = reader.read_i64()?;
    let length = reader.read_i32()?;
    if length < MINIMUM_LENGTH_V0 as i32 {
        return Err(FormatError::new(
            Part::MessageSet,
            at + 8,
            Fault::Length {
                found: i64::from(length),
                minimum: MINIMUM_LENGTH_V0 as i64,
                maximum: reader.remaining() as i64,
            },
        ));
    }
    let size = LOG_OVERHEAD_BYTES + length as usize;
    let Some(bytes) = rest.get(..size) else {
        return Ok(None);
    };
    let mut reader = Reader::new(bytes, Part::MessageSet);
    reader.bytes(16)?;
    let magic = reader.read_i8()?;
    if magic != 0 && magic != 1 {
        return Err(FormatError::new(
            Part::MessageSet,
            at + 16,
            Fault::UnknownMagic { found: magic },
        ));
    }
    if Attributes(i16::from(reader.read_u8()?)).codec_number() != 0 {
        return Err(FormatError::new(
            Part::MessageSet,
            at + 17,
            Fault::Rule("a message of a compressed set is compressed itself"),
        ));
    }
    *position = at + size;
    Ok(Some(Inner {
        at,
        offset,
        bytes,
        magic,
    }))
}

/// Appends one message of magic 0 or 1, checksum included. With a codec other than none, `value` is the compressed set.
pub fn write_message(
    out: &mut Vec<u8>,
    magic: i8,
    offset: i64,
    timestamp: i64,
    attributes: Attributes,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) {
    let start = out.len();
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(&[0; 8]);
    out.push(magic as u8);
    out.push(attributes.0 as u8);
    if magic == 1 {
        out.extend_from_slice(&timestamp.to_be_bytes());
    }
    for bytes in [key, value] {
        let length = bytes.map_or(-1, |bytes| bytes.len() as i32);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(bytes.unwrap_or(&[]));
    }
    let length = (out.len() - start - LOG_OVERHEAD_BYTES) as i32;
    let crc = checksum::crc32(out.get(start + 16..).unwrap_or(&[]));
    if let Some(field) = out.get_mut(start + 8..start + 12) {
        field.copy_from_slice(&length.to_be_bytes());
    }
    if let Some(field) = out.get_mut(start + 12..start + 16) {
        field.copy_from_slice(&crc.to_be_bytes());
    }
}

/// The attributes of a message of magic 0 or 1.
#[must_use]
pub const fn message_attributes(codec: Codec, log_append_time: bool) -> Attributes {
    Attributes::new(codec, log_append_time)
}
