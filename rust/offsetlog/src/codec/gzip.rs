//! Reads and writes gzip. libdeflate reads the form that every client writes, a single member without flags; zlib reads the
//! rest. zlib also writes, because Java uses it.

use super::{CodecError, Output};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use libdeflater::{DecompressionError, Decompressor};

/// Smallest possible member: header (10 bytes) and trailer (CRC-32 and size).
const SMALLEST_MEMBER: usize = 18;
/// Flags in a member's header. They announce the fields after its first ten bytes.
const HAS_CHECKSUM: u8 = 1 << 1;
const HAS_EXTRA: u8 = 1 << 2;
const HAS_NAME: u8 = 1 << 3;
const HAS_COMMENT: u8 = 1 << 4;
/// Java does not look for another member if at most this many bytes follow a trailer.
const LEAST_BEHIND: usize = 18;
/// The header that Java writes since version 16: no name, no time, no flags, unknown system. Earlier versions end it with 0.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The level that zlib uses for -1.
const DEFAULT_LEVEL: u32 = 6;
/// DEFLATE cannot expand further than this, so a greater size field is wrong.
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

    /// The fast path for one member that fills the payload. Returns whether it succeeded.
    ///
    /// libdeflate stops after the first member without reporting where, so the payload must not contain the start of a second
    /// one. It also needs room for the whole output, whose size the last four bytes state.
    fn whole_member(&mut self, payload: &[u8], output: &mut Output) -> Result<bool, CodecError> {
        let Some((front, &size)) = payload.split_last_chunk::<4>() else {
            return Ok(false);
        };
        let size = u32::from_le_bytes(size) as usize;
        let behind_header = front.get(SMALLEST_MEMBER - 4..).unwrap_or(&[]);
        if payload.len() < SMALLEST_MEMBER
            || size > payload.len().saturating_mul(GREATEST_RATIO)
            // libdeflate refuses reserved flags and does not verify a header checksum.
            || payload.get(3) != Some(&0)
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
            // A wrong size field, bytes after the member, or damage. The slow path finds out which.
            Ok(_) | Err(DecompressionError::BadData | DecompressionError::InsufficientSpace) => {
                Ok(false)
            }
        }
    }
}

/// Decompresses members one after another. Like Java, ignores bytes after the last member that are not a member.
///
/// Source: `GZIPInputStream`. Its header rules differ from zlib's, so the header is parsed here.
fn members(payload: &[u8], output: &mut Output) -> Result<(), CodecError> {
    let mut rest = header(payload).map_err(CodecError::bad)?;
    loop {
        rest = member(rest, output)?;
        if rest.len() <= LEAST_BEHIND {
            return Ok(());
        }
        match header(rest) {
            Ok(body) => rest = body,
            Err(_) => return Ok(()),
        }
    }
}

/// Parses a member's header and returns the bytes after it.
///
/// As in Java: reserved flag bits of RFC 1952 are ignored, a header checksum is verified, and no field has a maximum length.
fn header(member: &[u8]) -> Result<&[u8], &'static str> {
    const CUT: &str = "header of a gzip member cut short";
    let Some((&[first, second, method, flags, ..], mut rest)) = member.split_first_chunk::<10>()
    else {
        return Err(CUT);
    };
    if [first, second] != [0x1f, 0x8b] {
        return Err("invalid gzip header");
    }
    if method != 8 {
        return Err("a gzip member's method is not deflate");
    }
    if flags & HAS_EXTRA != 0 {
        let (length, behind) = rest.split_first_chunk::<2>().ok_or(CUT)?;
        rest = behind
            .get(usize::from(u16::from_le_bytes(*length))..)
            .ok_or(CUT)?;
    }
    for text in [HAS_NAME, HAS_COMMENT] {
        if flags & text != 0 {
            let end = memchr::memchr(0, rest).ok_or(CUT)?;
            rest = rest.get(end + 1..).ok_or(CUT)?;
        }
    }
    if flags & HAS_CHECKSUM != 0 {
        let (found, behind) = rest.split_first_chunk::<2>().ok_or(CUT)?;
        let mut checksum = flate2::Crc::new();
        checksum.update(member.get(..member.len() - rest.len()).unwrap_or(&[]));
        if checksum.sum() & 0xffff != u32::from(u16::from_le_bytes(*found)) {
            return Err("the checksum of a gzip member's header is not right");
        }
        rest = behind;
    }
    Ok(rest)
}

/// Decompresses one member, starting after its header. Returns the bytes after its trailer.
fn member<'p>(payload: &'p [u8], output: &mut Output) -> Result<&'p [u8], CodecError> {
    let mut stream = Decompress::new(false);
    let mut checksum = flate2::Crc::new();
    let mut rest = payload;
    loop {
        let room = output.spare()?;
        let (taken, given) = (stream.total_in(), stream.total_out());
        let status = stream
            .decompress(rest, room, FlushDecompress::None)
            .map_err(CodecError::bad)?;
        let taken = usize::try_from(stream.total_in() - taken).unwrap_or(usize::MAX);
        let given = usize::try_from(stream.total_out() - given).unwrap_or(usize::MAX);
        checksum.update(room.get(..given).unwrap_or(&[]));
        output.advance(given);
        rest = rest.get(taken..).unwrap_or(&[]);
        match status {
            Status::StreamEnd => break,
            _ if taken == 0 && given == 0 => {
                return Err(CodecError::bad("gzip member cut short"));
            }
            Status::Ok | Status::BufError => {}
        }
    }
    let trailer = rest.split_first_chunk::<8>();
    let (trailer, behind) = trailer.ok_or_else(|| CodecError::bad("gzip member cut short"))?;
    // The size field holds the output size modulo 2^32.
    let right = u64::from(checksum.amount()) << 32 | u64::from(checksum.sum());
    if u64::from_le_bytes(*trailer) != right {
        return Err(CodecError::bad(
            "checksum or size of a gzip member is not right",
        ));
    }
    Ok(behind)
}

/// Keeps zlib's window and tables for one level.
pub(super) struct Deflater {
    stream: Compress,
    level: i32,
}

/// Appends one member to `out`. `level` is 1 to 9, or -1 for zlib's default.
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
    // In the worst case, stored blocks, five bytes are added per 16 KiB.
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
