//! Compresses batches. Keeps the codecs' levels, contexts and buffers from batch to batch.

use super::{CodecError, gzip, lz4, snappy, snappy_block, zstd};
use crate::error::{Error, ErrorKind};
use offsetlog_format::builder::Compress;
use offsetlog_format::{Codec, Fault, FormatError, Part};
use std::fmt;
use std::ops::RangeInclusive;

const GZIP_DEFAULT: i32 = -1;
const GZIP_LEVELS: RangeInclusive<i32> = 1..=9;
const LZ4_LEVELS: RangeInclusive<i32> = 1..=17;
const ZSTD_DEFAULT: i32 = 3;
const ZSTD_LEVELS: RangeInclusive<i32> = -131_072..=22;

/// Compression levels, within Kafka's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Levels {
    gzip: i32,
    lz4: i32,
    zstd: i32,
}

impl Default for Levels {
    fn default() -> Self {
        Self {
            gzip: GZIP_DEFAULT,
            lz4: lz4::FAST_LEVEL,
            zstd: ZSTD_DEFAULT,
        }
    }
}

impl Levels {
    /// Sets the level of `codec`; `None` sets Kafka's default. A codec without levels accepts only `None`.
    pub(super) fn set(&mut self, codec: Codec, level: Option<i32>) -> Result<(), Error> {
        let (name, place, default, bounds) = match codec {
            Codec::Gzip => (
                "compression.gzip.level",
                &mut self.gzip,
                GZIP_DEFAULT,
                GZIP_LEVELS,
            ),
            Codec::Lz4 => (
                "compression.lz4.level",
                &mut self.lz4,
                lz4::FAST_LEVEL,
                LZ4_LEVELS,
            ),
            Codec::Zstd => (
                "compression.zstd.level",
                &mut self.zstd,
                ZSTD_DEFAULT,
                ZSTD_LEVELS,
            ),
            Codec::None | Codec::Snappy => {
                return level.map_or(Ok(()), |level| {
                    let reason = format!("level {level} found, {codec} has none");
                    Err(Error::argument("compression.type", reason))
                });
            }
        };
        let level = level.unwrap_or(default);
        if level != default && !bounds.contains(&level) {
            let (least, most) = (bounds.start(), bounds.end());
            let or = if bounds.contains(&default) {
                String::new()
            } else {
                format!(" or {default}")
            };
            let reason = format!("{level} found, {least} to {most}{or} expected");
            return Err(Error::argument(name, reason));
        }
        *place = level;
        Ok(())
    }
}

/// Compresses payloads. Contexts and buffers are created on first use.
#[derive(Default)]
pub(crate) struct Compressor {
    levels: Levels,
    gzip: Option<gzip::Deflater>,
    snappy: Option<snappy_block::Encoder>,
    zstd: Option<zstd::Compressor>,
    block: Vec<u8>,
}

impl Compressor {
    /// A compressor with Kafka's default level for every codec.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sets the level of `codec` for later calls; `None` sets Kafka's default.
    pub(crate) fn set_level(&mut self, codec: Codec, level: Option<i32>) -> Result<(), Error> {
        self.levels.set(codec, level)
    }

    fn write(
        &mut self,
        codec: Codec,
        magic: i8,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        match codec {
            Codec::None => out.extend_from_slice(input),
            Codec::Gzip => gzip::compress(&mut self.gzip, self.levels.gzip, input, out)?,
            Codec::Snappy => {
                snappy::compress(self.snappy.get_or_insert_default(), input, out);
            }
            Codec::Lz4 => lz4::compress(self.levels.lz4, magic, input, &mut self.block, out)?,
            Codec::Zstd => zstd::compress(&mut self.zstd, self.levels.zstd, input, out)?,
        }
        Ok(())
    }
}

impl Compress for Compressor {
    type Error = Error;

    /// Appends the compressed `input` to `out`, with the same bytes as Kafka's Java code. After an error `out` is unchanged.
    ///
    /// # Errors
    /// * `UnsupportedCodec`: zstd with magic 0 or 1, which do not support it.
    /// * `Compression`: the codec's library failed, for example for lack of memory.
    fn compress(
        &mut self,
        codec: Codec,
        magic: i8,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        if codec == Codec::Zstd && magic < 2 {
            let fault = Fault::Codec { found: codec as u8 };
            return Err(FormatError::new(Part::MessageSet, 0, fault).into());
        }
        let start = out.len();
        self.write(codec, magic, input, out).map_err(|error| {
            out.truncate(start);
            let reason = match error {
                CodecError::Bad(reason) => reason,
                CodecError::Limit(seen) => format!("{seen} bytes are too many"),
                CodecError::Memory => return Error::no_memory(),
            };
            Error::new(ErrorKind::Compression { codec, reason })
        })
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor")
            .field("levels", &self.levels)
            .finish_non_exhaustive()
    }
}
