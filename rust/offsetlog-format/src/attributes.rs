//! The attribute bits of batches and messages (FORMAT.md «Attributes»).

use crate::error::{Fault, FormatError, Part};
use core::fmt;

/// How records are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Codec {
    /// Not compressed.
    #[default]
    None = 0,
    /// gzip (RFC 1952).
    Gzip = 1,
    /// Snappy, in the framing of Java's snappy or as one raw block.
    Snappy = 2,
    /// LZ4 frames.
    Lz4 = 3,
    /// Zstandard; magic 2 only.
    Zstd = 4,
}

impl Codec {
    /// Kafka's name, as in `compression.type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a record's timestamp means; numbers as in Spark's and Kafka's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(i8)]
pub enum TimestampType {
    /// Messages of magic 0 have no timestamp.
    None = -1,
    /// Set by the creator of the record.
    #[default]
    Create = 0,
    /// Set by the broker when it appended the batch; the same for all its records.
    LogAppend = 1,
}

/// The attribute bits, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes(pub i16);

impl Attributes {
    const CODEC: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    const DELETE_HORIZON: i16 = 0x40;

    /// Makes the bits of a batch, magic 2.
    #[must_use]
    pub const fn new(codec: Codec, log_append_time: bool) -> Self {
        Self(
            codec as i16
                | if log_append_time {
                    Self::LOG_APPEND_TIME
                } else {
                    0
                },
        )
    }

    /// The bits that Kafka knows, with another timestamp type: what a leader writes when it changes the type.
    #[must_use]
    pub const fn with_timestamp_type(self, log_append_time: bool) -> Self {
        let known = Self::CODEC | Self::TRANSACTIONAL | Self::CONTROL | Self::DELETE_HORIZON;
        let kind = if log_append_time {
            Self::LOG_APPEND_TIME
        } else {
            0
        };
        Self(self.0 & known | kind)
    }

    /// The same with another codec, all other bits kept.
    #[must_use]
    pub const fn with_codec(self, codec: Codec) -> Self {
        Self(self.0 & !Self::CODEC | codec as i16)
    }

    /// The same with the transactional bit.
    #[must_use]
    pub const fn transactional(self) -> Self {
        Self(self.0 | Self::TRANSACTIONAL)
    }

    /// The same with the control bit.
    #[must_use]
    pub const fn control(self) -> Self {
        Self(self.0 | Self::CONTROL)
    }

    /// The same with the bit that makes the base timestamp a delete horizon (KIP-534).
    #[must_use]
    pub const fn delete_horizon(self) -> Self {
        Self(self.0 | Self::DELETE_HORIZON)
    }

    /// The codec's number, 0 to 7, even if no such codec exists.
    #[must_use]
    pub const fn codec_number(self) -> u8 {
        (self.0 & Self::CODEC) as u8
    }

    /// The codec.
    ///
    /// # Errors
    /// `Codec` for the numbers 5 to 7.
    #[inline]
    pub const fn codec(self, part: Part) -> Result<Codec, FormatError> {
        Ok(match self.codec_number() {
            0 => Codec::None,
            1 => Codec::Gzip,
            2 => Codec::Snappy,
            3 => Codec::Lz4,
            4 => Codec::Zstd,
            found => return Err(FormatError::new(part, 0, Fault::Codec { found })),
        })
    }

    /// Whether the broker set the timestamps.
    #[must_use]
    pub const fn is_log_append_time(self) -> bool {
        self.0 & Self::LOG_APPEND_TIME != 0
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the batch holds control records.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the base timestamp is a delete horizon.
    #[must_use]
    pub const fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }
}
