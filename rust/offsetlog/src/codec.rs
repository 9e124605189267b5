//! Kafka's four compression codecs. Each decompresses a whole payload in one call, into a buffer that is reused from batch to
//! batch.
//!
//! Each codec reads every framing that Kafka's clients and librdkafka write, and refuses what Kafka refuses (FORMAT.md
//! «Compression»). None trusts a length before the bytes are there. Each writes the same bytes as Kafka's Java code; zstd does
//! if the linked library has the same version as Kafka's.

mod compressor;
mod gzip;
mod lz4;
mod snappy;
mod snappy_block;
mod zstd;

#[cfg(test)]
mod compressor_tests;
#[cfg(test)]
mod tests;

pub(crate) use compressor::Compressor;

use crate::error::{Error, ErrorKind};
use crate::limits::LimitName;
use offsetlog_format::Codec;

/// Smallest output buffer; most batches fit without growth.
const FIRST_OUTPUT_BYTES: usize = 256 * 1024;

/// Decompresses payloads. Owns the codecs' contexts and the output buffer.
pub(crate) struct Decompressor {
    output: Output,
    gzip: gzip::Gzip,
    snappy: snap::raw::Decoder,
    zstd: Option<::zstd::bulk::Decompressor<'static>>,
}

/// An error of a codec module.
#[derive(Debug)]
pub(crate) enum CodecError {
    /// The bytes are not valid for the codec.
    Bad(String),
    /// The output would be larger than the limit; at least this many bytes.
    Limit(u64),
    /// There is no memory for the output.
    Memory,
}

impl CodecError {
    #[allow(clippy::needless_pass_by_value, reason = "a converter for `map_err`")]
    fn bad(reason: impl ToString) -> Self {
        Self::Bad(reason.to_string())
    }
}

/// The output buffer. It grows as bytes arrive and never beyond the limit.
pub(crate) struct Output {
    bytes: Vec<u8>,
    used: usize,
    limit: usize,
}

impl Output {
    /// Returns the unused part, grown to hold at least `room` more bytes.
    fn room(&mut self, room: usize) -> Result<&mut [u8], CodecError> {
        let wanted = self.used.saturating_add(room);
        if wanted > self.limit {
            return Err(CodecError::Limit(wanted as u64));
        }
        if wanted > self.bytes.len() {
            let grown = wanted
                .max(self.bytes.len().saturating_mul(2))
                .max(FIRST_OUTPUT_BYTES)
                .min(self.limit.max(wanted));
            // If memory for twice the size is not available, grows by an eighth or more: each growth may copy all bytes.
            let step = self.bytes.len() + FIRST_OUTPUT_BYTES.max(self.bytes.len() / 8);
            let size = [grown, step.clamp(wanted, grown)]
                .into_iter()
                .find(|size| {
                    let more = size - self.bytes.len();
                    self.bytes.try_reserve_exact(more).is_ok()
                })
                .ok_or(CodecError::Memory)?;
            self.bytes.resize(size, 0);
        }
        Ok(self.bytes.get_mut(self.used..).unwrap_or_default())
    }

    /// Returns the unused part without growing it, or grows it by at least one byte if it is empty.
    fn spare(&mut self) -> Result<&mut [u8], CodecError> {
        let spare = self.bytes.len().min(self.limit) - self.used;
        self.room(spare.max(1))
            .map(|room| room.get_mut(..spare.max(1)).unwrap_or_default())
    }

    fn advance(&mut self, count: usize) {
        self.used += count;
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), CodecError> {
        if let Some(room) = self.room(bytes.len())?.get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
        }
        self.advance(bytes.len());
        Ok(())
    }
}

impl Decompressor {
    pub(crate) fn new() -> Self {
        Self {
            output: Output {
                bytes: Vec::new(),
                used: 0,
                limit: 0,
            },
            gzip: gzip::Gzip::default(),
            snappy: snap::raw::Decoder::new(),
            zstd: None,
        }
    }

    /// Decompresses `payload` into at most `limit` bytes. The result is valid until the next call.
    ///
    /// `magic` matters only for LZ4: frames in magic 0 have a header checksum that old clients computed wrongly.
    pub(crate) fn decompress(
        &mut self,
        codec: Codec,
        magic: i8,
        payload: &[u8],
        limit: u64,
    ) -> Result<&[u8], Error> {
        self.output.used = 0;
        self.output.limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let output = &mut self.output;
        match codec {
            Codec::None => output.push(payload),
            Codec::Gzip => self.gzip.decompress(payload, output),
            Codec::Snappy => snappy::decompress(&mut self.snappy, payload, output),
            Codec::Lz4 => lz4::decompress(payload, magic, output),
            Codec::Zstd => zstd::decompress(&mut self.zstd, payload, output),
        }
        .map_err(|error| match error {
            CodecError::Bad(reason) => Error::new(ErrorKind::Decompression { codec, reason }),
            CodecError::Limit(seen) => Error::new(ErrorKind::Limit {
                name: LimitName::MaxDecompressedBytes,
                limit,
                seen,
            }),
            CodecError::Memory => Error::no_memory(),
        })?;
        Ok(self.output.bytes.get(..self.output.used).unwrap_or(&[]))
    }
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decompressor")
            .field("buffer_bytes", &self.output.bytes.len())
            .finish_non_exhaustive()
    }
}
