//! One view over a batch of any magic: framing, header, checksum.
//!
//! A batch of magic 2 holds records; an entry of magic 0 or 1 is one message or a wrapper around a compressed set. Both start
//! with an offset, a length and, at byte 16, the magic. This module does not decompress and does not decode records.

use crate::attributes::{Attributes, Codec, TimestampType};
use crate::checksum;
use crate::cursor::Reader;
use crate::error::{Algorithm, Fault, FormatError, Part};
use alloc::vec::Vec;

/// Offset and length in front of every batch; the length counts what follows it (FORMAT.md «Record batch, magic 2»).
pub const LOG_OVERHEAD_BYTES: usize = 12;
/// Bytes from which the framing can be known: [`LOG_OVERHEAD_BYTES`], leader epoch or CRC, magic.
pub const FRAME_BYTES: usize = 17;
/// Header of a magic 2 batch.
pub const BATCH_HEADER_V2_BYTES: usize = 61;
/// Bytes of a magic 2 batch that its CRC-32C does not cover: all before `attributes`.
pub const CRC_COVERS_FROM_V2: usize = 21;
/// Smallest length field of any batch: a magic 0 message with neither key nor value.
pub const MINIMUM_LENGTH_V0: usize = 14;
/// Smallest length field of a magic 1 message.
pub const MINIMUM_LENGTH_V1: usize = 22;
/// Smallest length field of a magic 2 batch.
pub const MINIMUM_LENGTH_V2: usize = BATCH_HEADER_V2_BYTES - LOG_OVERHEAD_BYTES;
/// Bytes before the key length of a magic 0 and of a magic 1 message.
pub(crate) const MESSAGE_HEADER_BYTES: [usize; 2] = [18, 26];

/// Offset field, size in bytes and magic of the batch at the front of a slice: what is needed to step over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Base offset (magic 2) or offset of the last message (magic 0 and 1).
    pub offset: i64,
    /// Whole size, header included. The step to the next batch.
    pub size_bytes: usize,
    /// Format version: 0, 1 or 2.
    pub magic: i8,
}

impl Frame {
    /// Reads the frame at the front of `bytes`, of which the batch itself may be only partly there.
    ///
    /// # Errors
    /// * `Truncated`: fewer than [`FRAME_BYTES`].
    /// * `Length`: the length field is below what the magic needs. Nothing can be said about where the next batch begins.
    /// * `UnknownMagic`: not 0, 1 or 2.
    ///
    /// Source: FORMAT.md «Record batch, magic 2», «Message, magic 0 and 1».
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let Some(front) = bytes.first_chunk::<FRAME_BYTES>() else {
            return Err(FormatError::new(
                Part::BatchHeader,
                0,
                Fault::Truncated {
                    needed: FRAME_BYTES,
                    available: bytes.len(),
                },
            ));
        };
        let mut reader = Reader::new(front, Part::BatchHeader);
        let offset = reader.read_i64()?;
        let length = reader.read_i32()?;
        reader.read_i32()?;
        let magic = reader.read_i8()?;
        let bad_length = |minimum: usize| {
            FormatError::new(
                Part::BatchHeader,
                8,
                Fault::Length {
                    found: i64::from(length),
                    minimum: minimum as i64,
                    maximum: i64::from(i32::MAX) - LOG_OVERHEAD_BYTES as i64,
                },
            )
        };
        // The lowest bound first: a length of 0 over zeros is a bad length, whatever the magic byte happens to be.
        if length < MINIMUM_LENGTH_V0 as i32 || length > i32::MAX - LOG_OVERHEAD_BYTES as i32 {
            return Err(bad_length(MINIMUM_LENGTH_V0));
        }
        let minimum = match magic {
            0 => MINIMUM_LENGTH_V0,
            1 => MINIMUM_LENGTH_V1,
            2 => MINIMUM_LENGTH_V2,
            found => {
                return Err(FormatError::new(
                    Part::BatchHeader,
                    16,
                    Fault::UnknownMagic { found },
                ));
            }
        };
        if (length as usize) < minimum {
            return Err(bad_length(minimum));
        }
        Ok(Self {
            offset,
            size_bytes: length as usize + LOG_OVERHEAD_BYTES,
            magic,
        })
    }
}

/// The header of a batch of any magic. Fields that a magic has not got hold Kafka's «none», -1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record of the original batch, kept by compaction. `None` for a compressed set of magic 0 or 1:
    /// only decompression tells.
    pub base_offset: Option<i64>,
    /// Offset of the last record of the original batch, kept by compaction.
    pub last_offset: i64,
    /// Whole size in bytes.
    pub size_bytes: usize,
    /// Format version.
    pub magic: i8,
    /// Epoch of the leader that appended the batch.
    pub leader_epoch: i32,
    /// Stored checksum.
    pub crc: u32,
    /// Codec, timestamp type and flags.
    pub attributes: Attributes,
    /// Milliseconds to which timestamp deltas are added; or the delete horizon.
    pub base_timestamp: i64,
    /// Greatest timestamp of the batch, or the append time.
    pub max_timestamp: i64,
    /// Producer id.
    pub producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
    /// Sequence of the first record.
    pub base_sequence: i32,
    /// Records in the batch; -1 for a compressed set of magic 0 or 1.
    pub record_count: i32,
}

impl BatchHeader {
    /// Whether a batch of magic 2 has fewer records than offsets: compaction has removed some.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        let offsets = self
            .base_offset
            .map(|first| self.last_offset.saturating_sub(first).saturating_add(1));
        self.magic == 2 && offsets.is_some_and(|offsets| i64::from(self.record_count) < offsets)
    }

    /// Bytes of a slice from which [`parse`](Self::parse) always succeeds for a sound batch.
    pub const LONGEST: usize = BATCH_HEADER_V2_BYTES;

    /// Reads the header at the front of `bytes`; the rest of the batch need not be there, and the checksum is not looked at.
    ///
    /// # Errors
    /// Those of [`Frame::parse`]; `OffsetOrder` for a negative base offset or last offset delta; `OffsetOverflow` when the last
    /// offset is beyond 2^63 - 1.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let frame = Frame::parse(bytes)?;
        if frame.offset < 0 {
            return Err(FormatError::new(
                Part::BatchHeader,
                0,
                Fault::OffsetOrder {
                    found: frame.offset,
                    minimum: 0,
                    maximum: i64::MAX,
                },
            ));
        }
        if frame.magic == 2 {
            Self::parse_v2(bytes, frame)
        } else {
            Self::parse_message(bytes, frame)
        }
    }

    #[inline]
    fn parse_v2(bytes: &[u8], frame: Frame) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes, Part::BatchHeader);
        let header: [u8; BATCH_HEADER_V2_BYTES] = reader.array()?;
        let mut reader = Reader::new(&header, Part::BatchHeader);
        reader.bytes(LOG_OVERHEAD_BYTES)?;
        let leader_epoch = reader.read_i32()?;
        reader.read_i8()?;
        let crc = reader.read_u32()?;
        let attributes = Attributes(reader.read_i16()?);
        let last_offset_delta = reader.read_i32()?;
        let base_timestamp = reader.read_i64()?;
        let max_timestamp = reader.read_i64()?;
        let producer_id = reader.read_i64()?;
        let producer_epoch = reader.read_i16()?;
        let base_sequence = reader.read_i32()?;
        let record_count = reader.read_i32()?;
        if last_offset_delta < 0 {
            return Err(FormatError::new(
                Part::Record,
                23,
                Fault::Length {
                    found: i64::from(last_offset_delta),
                    minimum: 0,
                    maximum: i64::from(i32::MAX),
                },
            ));
        }
        let Some(last_offset) = frame.offset.checked_add(i64::from(last_offset_delta)) else {
            return Err(FormatError::new(
                Part::BatchHeader,
                23,
                Fault::OffsetOverflow {
                    base: frame.offset,
                    delta: i64::from(last_offset_delta),
                },
            ));
        };
        Ok(Self {
            base_offset: Some(frame.offset),
            last_offset,
            size_bytes: frame.size_bytes,
            magic: 2,
            leader_epoch,
            crc,
            attributes,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        })
    }

    fn parse_message(bytes: &[u8], frame: Frame) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes, Part::Message);
        reader.bytes(LOG_OVERHEAD_BYTES)?;
        let crc = reader.read_u32()?;
        reader.read_i8()?;
        let attributes = Attributes(i16::from(reader.read_u8()?));
        let timestamp = if frame.magic == 1 {
            reader.read_i64()?
        } else {
            -1
        };
        let compressed = attributes.codec_number() != 0;
        Ok(Self {
            base_offset: (!compressed).then_some(frame.offset),
            last_offset: frame.offset,
            size_bytes: frame.size_bytes,
            magic: frame.magic,
            leader_epoch: -1,
            crc,
            attributes: Attributes(attributes.0 & 0x0f),
            base_timestamp: timestamp,
            max_timestamp: timestamp,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: if compressed { -1 } else { 1 },
        })
    }

    /// The codec.
    ///
    /// # Errors
    /// `Codec` for a number that does not exist or, with magic 0 and 1, for zstd.
    #[inline]
    pub fn codec(&self) -> Result<Codec, FormatError> {
        match self.attributes.codec(Part::BatchHeader)? {
            Codec::Zstd if self.magic < 2 => Err(FormatError::new(
                Part::BatchHeader,
                17,
                Fault::Codec { found: 4 },
            )),
            codec => Ok(codec),
        }
    }

    /// What the records' timestamps mean.
    #[inline]
    #[must_use]
    pub const fn timestamp_type(&self) -> TimestampType {
        if self.magic == 0 {
            TimestampType::None
        } else if self.attributes.is_log_append_time() {
            TimestampType::LogAppend
        } else {
            TimestampType::Create
        }
    }

    /// The last record's sequence, -1 without one; counts from 2^31 - 1 on to 0.
    #[must_use]
    pub fn last_sequence(&self) -> i32 {
        let delta = self
            .base_offset
            .map_or(0, |base| self.last_offset.wrapping_sub(base));
        sequence_after(self.base_sequence, i32::try_from(delta).unwrap_or(0))
    }

    /// Checks the checksum of the whole batch at the front of `bytes`.
    ///
    /// Magic 2: CRC-32C from `attributes` on, so it does not cover base offset, leader epoch and magic: a broker rewrites them without
    /// recomputing it. Magic 0 and 1: CRC-32 from `magic` on.
    ///
    /// # Errors
    /// `Truncated` when the batch is incomplete; `Checksum`.
    #[inline]
    pub fn check_crc(&self, bytes: &[u8]) -> Result<(), FormatError> {
        let (algorithm, part, at, from) = self.checksum();
        match bytes.get(from..self.size_bytes) {
            Some(covered) => checksum::check(part, at, algorithm, self.crc, covered),
            None => Err(FormatError::new(
                part,
                0,
                Fault::Truncated {
                    needed: self.size_bytes,
                    available: bytes.len(),
                },
            )),
        }
    }

    /// Whether the checksum is that of the batch's bytes, which come part by part: `read` is called once, with the place of the first byte
    /// that it covers, and with what takes the bytes from there to the end.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn has_crc_of<E>(
        &self,
        read: impl FnOnce(usize, &mut dyn FnMut(&[u8])) -> Result<(), E>,
    ) -> Result<bool, E> {
        let (algorithm, _, _, from) = self.checksum();
        let computed = checksum::of_parts(algorithm, |take| read(from, take))?;
        Ok(computed == self.crc)
    }

    /// Which checksum it is, in which part, where it stands, and from which byte on it covers the batch.
    #[inline]
    const fn checksum(&self) -> (Algorithm, Part, usize, usize) {
        if self.magic == 2 {
            (Algorithm::Crc32c, Part::BatchHeader, 17, CRC_COVERS_FROM_V2)
        } else {
            (Algorithm::Crc32, Part::Message, 12, 16)
        }
    }

    /// Appends the 61 bytes of a magic 2 header; the checksum is taken from `crc`.
    pub fn write_v2(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; BATCH_HEADER_V2_BYTES];
        self.write_v2_at(&mut bytes);
        out.extend_from_slice(&bytes);
    }

    /// The same into an array.
    pub fn write_v2_at(&self, out: &mut [u8; BATCH_HEADER_V2_BYTES]) {
        let base_offset = self.base_offset.unwrap_or(self.last_offset);
        let mut rest = out.as_mut_slice();
        let mut put = |bytes: &[u8]| {
            // The fields are 61 bytes together, as the array is.
            if let Some((field, behind)) =
                core::mem::take(&mut rest).split_at_mut_checked(bytes.len())
            {
                field.copy_from_slice(bytes);
                rest = behind;
            }
        };
        put(&base_offset.to_be_bytes());
        put(&((self.size_bytes - LOG_OVERHEAD_BYTES) as i32).to_be_bytes());
        put(&self.leader_epoch.to_be_bytes());
        put(&[2]);
        put(&self.crc.to_be_bytes());
        put(&self.attributes.0.to_be_bytes());
        put(&((self.last_offset - base_offset) as i32).to_be_bytes());
        put(&self.base_timestamp.to_be_bytes());
        put(&self.max_timestamp.to_be_bytes());
        put(&self.producer_id.to_be_bytes());
        put(&self.producer_epoch.to_be_bytes());
        put(&self.base_sequence.to_be_bytes());
        put(&self.record_count.to_be_bytes());
    }
}

/// The sequence `delta` records after `base`; -1 stays -1, and 2^31 - 1 is followed by 0.
#[must_use]
pub const fn sequence_after(base: i32, delta: i32) -> i32 {
    if base < 0 {
        -1
    } else {
        ((base as i64 + delta as i64) & 0x7fff_ffff) as i32
    }
}

/// A whole batch: its header and its bytes.
#[derive(Debug, Clone, Copy)]
pub struct BatchView<'a> {
    /// The header.
    pub header: BatchHeader,
    bytes: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// Reads the batch at the front of `bytes`; its checksum is checked by [`BatchHeader::check_crc`].
    ///
    /// Only the first batch is read; `header.size_bytes` is the step to the next one.
    ///
    /// # Errors
    /// Those of [`BatchHeader::parse`]; `Truncated` when the batch is not wholly there: at the end of the active segment a torn
    /// tail, not damage.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let frame = Frame::parse(bytes)?;
        let Some(whole) = bytes.get(..frame.size_bytes) else {
            return Err(FormatError::new(
                Part::BatchHeader,
                0,
                Fault::Truncated {
                    needed: frame.size_bytes,
                    available: bytes.len(),
                },
            ));
        };
        Ok(Self {
            header: BatchHeader::parse(whole)?,
            bytes: whole,
        })
    }

    /// The whole batch.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Checks the checksum.
    ///
    /// # Errors
    /// `Checksum`.
    #[inline]
    pub fn check_crc(&self) -> Result<(), FormatError> {
        self.header.check_crc(self.bytes)
    }

    /// The records of a magic 2 batch as stored, compressed or not; empty for magic 0 and 1.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        if self.header.magic == 2 {
            self.bytes.get(BATCH_HEADER_V2_BYTES..).unwrap_or(&[])
        } else {
            &[]
        }
    }
}
