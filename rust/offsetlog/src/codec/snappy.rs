//! Reads and writes Snappy: the chunked framing of Java's snappy library. Also reads a single raw block, as librdkafka writes
//! it.

use super::snappy_block::{BLOCK_BYTES, Encoder};
use super::{CodecError, Output};
use snap::raw::{Decoder, decompress_len};

/// Start of a framed payload. Version and compatible version (4 bytes each) follow and are not checked.
const MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
const HEADER_BYTES: usize = 16;
/// Version and compatible version as Java's library writes them.
const VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
/// The densest element copies 64 bytes for 3, so a block that claims a larger ratio is wrong.
const GREATEST_RATIO: usize = 24;

pub(super) fn decompress(
    decoder: &mut Decoder,
    payload: &[u8],
    output: &mut Output,
) -> Result<(), CodecError> {
    if !payload.starts_with(MAGIC) {
        return block(decoder, payload, output);
    }
    let mut rest = payload;
    while !rest.is_empty() {
        if rest.starts_with(MAGIC) {
            // Concatenated streams repeat the header between chunks.
            rest = rest
                .get(HEADER_BYTES..)
                .ok_or_else(|| CodecError::bad("stream header is cut short"))?;
            continue;
        }
        let (length, behind) = rest
            .split_first_chunk::<4>()
            .ok_or_else(|| CodecError::bad("chunk length is cut short"))?;
        let length = i32::from_be_bytes(*length);
        let (chunk, behind) = usize::try_from(length)
            .ok()
            .and_then(|length| behind.split_at_checked(length))
            .ok_or_else(|| {
                CodecError::bad(format!(
                    "chunk length {length} found, 0 to {} expected",
                    behind.len()
                ))
            })?;
        block(decoder, chunk, output)?;
        rest = behind;
    }
    Ok(())
}

fn block(decoder: &mut Decoder, block: &[u8], output: &mut Output) -> Result<(), CodecError> {
    let size = decompress_len(block).map_err(CodecError::bad)?;
    if block.is_empty() || size > block.len().saturating_mul(GREATEST_RATIO) {
        return Err(CodecError::bad(format!(
            "block of {} promises {size}",
            offsetlog_format::counted(block.len(), "byte")
        )));
    }
    let room = output.room(size)?;
    let count = decoder.decompress(block, room).map_err(CodecError::bad)?;
    output.advance(count);
    Ok(())
}

/// Appends the framing that Kafka's Java clients and brokers write: the header, even for empty input, then one chunk per 32
/// KiB.
pub(super) fn compress(encoder: &mut Encoder, input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSIONS);
    for block in input.chunks(BLOCK_BYTES) {
        let block = encoder.compress(block);
        out.extend_from_slice(&(block.len() as u32).to_be_bytes());
        out.extend_from_slice(block);
    }
}
