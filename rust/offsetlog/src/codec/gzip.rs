//! gzip: libdeflate reads the single member that every client writes, zlib everything else. zlib writes, since Java does.

use super::{CodecError, Output};
use flate2::bufread::GzDecoder;
use flate2::{Compress, Compression, FlushCompress, Status};
use libdeflater::{DecompressionError, Decompressor};
use std::io::Read;

/// Header (10 bytes) and trailer (CRC-32 and size) of a member, the least there is.
const SMALLEST_MEMBER: usize = 18;
/// What Java writes since version 16: no name, no time, no flags, unknown system. Before, the last byte was 0.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// What level -1 means to zlib.
const DEFAULT_LEVEL: u32 = 6;
/// DEFLATE cannot expand further than this, so a size field beyond it lies.
const GREATEST_RATIO: usize = 1032;

/// Keeps libdeflate's tables.
pub(super) struct Gzip(Decompressor);

impl Default for Gzip {
    fn default() -> Self {
        Self(Decompressor::new())
    }
}

impl Gzip {
    pub(super) fn decompress(
        &mut self,
        payload: &[u8],
        output: &mut Output,
    ) -> Result<(), CodecError> {
        if self.whole_member(payload, output)? {
            return Ok(());
        }
        output.used = 0;
        members(payload, output)
    }

    /// The quick way for one member that fills the payload; says whether it went.
    ///
    /// libdeflate stops behind the first member without saying where that was, so the payload must not hold the start of a
    /// second one; and it needs room for the whole output, which the size field at the end promises.
    fn whole_member(&mut self, payload: &[u8], output: &mut Output) -> Result<bool, CodecError> {
        let Some((front, &size)) = payload.split_last_chunk::<4>() else {
            return Ok(false);
        };
        let size = u32::from_le_bytes(size) as usize;
        let behind_header = front.get(SMALLEST_MEMBER - 4..).unwrap_or(&[]);
        if payload.len() < SMALLEST_MEMBER
            || size > payload.len().saturating_mul(GREATEST_RATIO)
            || memchr::memmem::find(behind_header, &[0x1f, 0x8b, 0x08]).is_some()
        {
            return Ok(false);
        }
        let room = output.room(size)?;
        match self.0.gzip_decompress(payload, room) {
            Ok(count) if count == size => {
                output.advance(count);
                Ok(true)
            }
            // A wrong size field, garbage behind the member or damage: the slow way tells which.
            Ok(_) | Err(DecompressionError::BadData | DecompressionError::InsufficientSpace) => {
                Ok(false)
            }
        }
    }
}

/// Members one after another. Whatever follows the last one and is no member is ignored, as Java does.
fn members(payload: &[u8], output: &mut Output) -> Result<(), CodecError> {
    let mut rest = payload;
    loop {
        let mut member = GzDecoder::new(rest);
        loop {
            let room = output.spare()?;
            match member.read(room) {
                Ok(0) => break,
                Ok(count) => output.advance(count),
                Err(_) if rest.len() < payload.len() && member.header().is_none() => return Ok(()),
                Err(error) => return Err(CodecError::bad(error)),
            }
        }
        rest = member.into_inner();
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// Keeps zlib's window and tables for one level.
pub(super) struct Deflater {
    stream: Compress,
    level: i32,
}

/// Appends one member. `level` is 1 to 9, or -1 for zlib's default.
pub(super) fn compress(
    kept: &mut Option<Deflater>,
    level: i32,
    input: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let stream = match kept {
        Some(deflater) if deflater.level == level => {
            deflater.stream.reset();
            &mut deflater.stream
        }
        kept => {
            let compression = Compression::new(u32::try_from(level).unwrap_or(DEFAULT_LEVEL));
            let stream = Compress::new(compression, false);
            &mut kept.insert(Deflater { stream, level }).stream
        }
    };
    out.extend_from_slice(&HEADER);
    // Stored blocks, the worst there is, add five bytes to each 16 KiB.
    out.reserve(input.len() + input.len() / 2048 + 64);
    loop {
        let consumed = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
        let rest = input.get(consumed..).unwrap_or(&[]);
        match stream.compress_vec(rest, out, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => break,
            Ok(Status::Ok | Status::BufError) => out.reserve(input.len() / 16 + 1024),
            Err(error) => return Err(CodecError::bad(error)),
        }
    }
    let mut checksum = flate2::Crc::new();
    checksum.update(input);
    out.extend_from_slice(&checksum.sum().to_le_bytes());
    out.extend_from_slice(&checksum.amount().to_le_bytes());
    Ok(())
}
