//! Reads and writes LZ4 frames. Frames are parsed here because Kafka's rules differ from the frame libraries': in magic 0 the
//! header checksum is historically wrong, content checksums are not verified, and only the first frame is read.

use super::{CodecError, Output};
use lz4::block::CompressionMode;
use twox_hash::XxHash32;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// What Kafka writes: version 1, independent blocks, no checksums, no content size, blocks of 64 KiB.
const DESCRIPTOR: [u8; 2] = [0x60, 0x40];
const BLOCK_BYTES: usize = 64 * 1024;
/// Largest size of a compressed block: one byte more per 255, plus 16.
const BLOCK_BOUND: usize = BLOCK_BYTES + BLOCK_BYTES / 255 + 16;
/// High bit of a block's size field: the block is not compressed.
const STORED: u32 = 1 << 31;
/// At this level Kafka uses the fast compressor, at all others the high compressor. 9 is Kafka's default for historical
/// reasons.
pub(super) const FAST_LEVEL: i32 = 9;

/// The flags of a frame descriptor.
struct Flags(u8);

impl Flags {
    const fn version(&self) -> u8 {
        self.0 >> 6
    }
    const fn independent_blocks(&self) -> bool {
        self.0 & 0x20 != 0
    }
    const fn block_checksums(&self) -> bool {
        self.0 & 0x10 != 0
    }
    const fn content_size(&self) -> bool {
        self.0 & 0x08 != 0
    }
    const fn content_checksum(&self) -> bool {
        self.0 & 0x04 != 0
    }
    const fn reserved(&self) -> bool {
        self.0 & 0x03 != 0
    }
}

pub(super) fn decompress(payload: &[u8], magic: i8, output: &mut Output) -> Result<(), CodecError> {
    let cut = || CodecError::bad("frame is cut short");
    let rest = payload
        .strip_prefix(&MAGIC)
        .ok_or_else(|| CodecError::bad("frame does not start with 04224d18"))?;
    let (&[flags, block_descriptor], _) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
    let flags = Flags(flags);
    let size_code = block_descriptor >> 4 & 7;
    if flags.version() != 1 || !flags.independent_blocks() || flags.reserved() {
        return Err(CodecError::bad(format!(
            "frame flags {:#04x}: version 1 with independent blocks expected",
            flags.0
        )));
    }
    if size_code < 4 || block_descriptor & 0x8f != 0 {
        return Err(CodecError::bad(format!(
            "block descriptor {block_descriptor:#04x}: block size code 4 to 7 expected"
        )));
    }
    let block_max = 1_usize << (8 + 2 * size_code);
    let descriptor_bytes = if flags.content_size() { 10 } else { 2 };
    let (descriptor, rest) = rest.split_at_checked(descriptor_bytes).ok_or_else(cut)?;
    let (&checksum, mut rest) = rest.split_first().ok_or_else(cut)?;
    if magic > 0 {
        let computed = (XxHash32::oneshot(0, descriptor) >> 8) as u8;
        if computed != checksum {
            return Err(CodecError::bad(format!(
                "frame header checksum {checksum:#04x} found, {computed:#04x} expected"
            )));
        }
    }
    loop {
        let (&size, behind) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let size = u32::from_le_bytes(size);
        if size == 0 {
            rest = behind;
            break;
        }
        let stored = size >> 31 == 1;
        let length = (size & 0x7fff_ffff) as usize;
        if length > block_max {
            return Err(CodecError::bad(format!(
                "block of {length} bytes found, at most {block_max} expected"
            )));
        }
        let (block, behind) = behind.split_at_checked(length).ok_or_else(cut)?;
        rest = behind;
        if flags.block_checksums() {
            let (&checksum, behind) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
            let (stored, computed) = (u32::from_le_bytes(checksum), XxHash32::oneshot(0, block));
            if stored != computed {
                return Err(CodecError::bad(format!(
                    "block checksum mismatch: stored {stored:#010x}, computed {computed:#010x}"
                )));
            }
            rest = behind;
        }
        let count = if stored {
            output.push(block)?;
            0
        } else {
            decompress_block(block, block_max, output)?
        };
        output.advance(count);
    }
    if flags.content_checksum() && rest.len() < 4 {
        return Err(CodecError::bad("content checksum is missing"));
    }
    Ok(())
}

fn decompress_block(
    block: &[u8],
    block_max: usize,
    output: &mut Output,
) -> Result<usize, CodecError> {
    // LZ4 expands at most 255 times, so a small block needs little room even if the frame allows large blocks.
    let most = block_max.min(block.len().saturating_mul(255) + 16);
    let room = match output.room(most) {
        Ok(room) => room,
        // Close to the limit the block may still fit.
        Err(CodecError::Limit(_)) => output.spare()?,
        Err(error) => return Err(error),
    };
    let room = room.get_mut(..most.min(room.len())).unwrap_or_default();
    let size = i32::try_from(room.len()).unwrap_or(i32::MAX);
    let near_limit = room.len() < most;
    lz4::block::decompress_to_buffer(block, Some(size), room).map_err(|error| {
        if near_limit {
            CodecError::Limit(output.limit as u64 + 1)
        } else {
            CodecError::bad(error)
        }
    })
}

/// Appends the frame that Kafka writes. `block` is reused between calls.
///
/// `magic` 0 gets the historical header checksum, which also covers the frame's magic number.
pub(super) fn compress(
    level: i32,
    magic: i8,
    input: &[u8],
    block: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let mut header = [0; 6];
    for (place, byte) in header.iter_mut().zip(MAGIC.into_iter().chain(DESCRIPTOR)) {
        *place = byte;
    }
    let covered: &[u8] = if magic == 0 { &header } else { &DESCRIPTOR };
    let checksum = (XxHash32::oneshot(0, covered) >> 8) as u8;
    out.extend_from_slice(&header);
    out.push(checksum);
    let mode = if level == FAST_LEVEL {
        CompressionMode::DEFAULT
    } else {
        CompressionMode::HIGHCOMPRESSION(level)
    };
    block.resize(BLOCK_BOUND, 0);
    for plain in input.chunks(BLOCK_BYTES) {
        let length = lz4::block::compress_to_buffer(plain, Some(mode), false, block)
            .map_err(CodecError::bad)?;
        let (mark, bytes) = match block.get(..length) {
            Some(compressed) if length < plain.len() => (0, compressed),
            _ => (STORED, plain),
        };
        out.extend_from_slice(&(bytes.len() as u32 | mark).to_le_bytes());
        out.extend_from_slice(bytes);
    }
    out.extend_from_slice(&[0; 4]);
    Ok(())
}
