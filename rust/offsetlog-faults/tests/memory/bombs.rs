//! Batches that ask for much: few bytes that decompress to many, and numbers that claim what is not there.

use offsetlog_faults::batch::crc32c;
use std::io::Write;

/// What the limits of the readings allow a batch to be, stored or decompressed.
pub(super) const LIMIT: usize = 8 << 20;
/// What a bomb decompresses to.
const BOMB: usize = 8 * LIMIT;
const LZ4_BLOCK: usize = 64 << 10;
/// Kafka's frames: version 1, independent blocks of 64 KiB, and the header's checksum, which clients of magic 0 computed wrongly.
const LZ4_FRAME: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
const LZ4_FRAME_0: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x1a];
const XERIAL: [u8; 16] = [
    0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1,
];
const GZIP: i16 = 1;
const SNAPPY: i16 = 2;
const LZ4: i16 = 3;
const ZSTD: i16 = 4;
const TIMESTAMP: i64 = 1_700_000_000_000;

/// A log file with one batch in it.
pub(super) struct Bomb {
    pub(super) name: String,
    pub(super) log: Vec<u8>,
}

fn varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = (value << 1 ^ value >> 63) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// A record with a body behind its offset delta.
fn record(delta: i64, body: &[u8]) -> Vec<u8> {
    let mut inner = vec![0, 0];
    varint(&mut inner, delta);
    inner.extend_from_slice(body);
    let mut out = Vec::new();
    varint(&mut out, inner.len() as i64);
    out.extend_from_slice(&inner);
    out
}

/// Null key, null value, and behind them a number of headers.
fn no_fields(headers: i64) -> Vec<u8> {
    let mut body = Vec::new();
    varint(&mut body, -1);
    varint(&mut body, -1);
    varint(&mut body, headers);
    body
}

/// A batch of magic 2.
fn batch(codec: i16, count: i32, payload: &[u8]) -> Vec<u8> {
    let mut covered = Vec::new();
    covered.extend_from_slice(&codec.to_be_bytes());
    covered.extend_from_slice(&(count - 1).to_be_bytes());
    covered.extend_from_slice(&TIMESTAMP.to_be_bytes());
    covered.extend_from_slice(&TIMESTAMP.to_be_bytes());
    covered.extend_from_slice(&(-1_i64).to_be_bytes());
    covered.extend_from_slice(&(-1_i16).to_be_bytes());
    covered.extend_from_slice(&(-1_i32).to_be_bytes());
    covered.extend_from_slice(&count.to_be_bytes());
    covered.extend_from_slice(payload);
    let mut out = vec![0; 8];
    out.extend_from_slice(&(covered.len() as i32 + 9).to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 0, 2]);
    out.extend_from_slice(&crc32c(&covered).to_be_bytes());
    out.extend_from_slice(&covered);
    out
}

/// A message of magic 0 or 1.
fn message(magic: u8, codec: i16, offset: i64, key_length: i32, value: &[u8]) -> Vec<u8> {
    let mut covered = vec![magic, codec as u8];
    if magic == 1 {
        covered.extend_from_slice(&TIMESTAMP.to_be_bytes());
    }
    covered.extend_from_slice(&key_length.to_be_bytes());
    covered.extend_from_slice(&(value.len() as i32).to_be_bytes());
    covered.extend_from_slice(value);
    let mut checksum = flate2::Crc::new();
    checksum.update(&covered);
    let mut out = offset.to_be_bytes().to_vec();
    out.extend_from_slice(&(covered.len() as i32 + 4).to_be_bytes());
    out.extend_from_slice(&checksum.sum().to_be_bytes());
    out.extend_from_slice(&covered);
    out
}

fn gzip(raw: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(raw).expect("into memory");
    encoder.finish().expect("into memory")
}

fn snappy(raw: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(raw).expect("snappy")
}

fn xerial(raw: &[u8]) -> Vec<u8> {
    let mut out = XERIAL.to_vec();
    for block in raw.chunks(32 << 10) {
        let block = snappy(block);
        out.extend_from_slice(&(block.len() as i32).to_be_bytes());
        out.extend_from_slice(&block);
    }
    out
}

fn lz4(front: [u8; 7], raw: &[u8]) -> Vec<u8> {
    let mut out = front.to_vec();
    for block in raw.chunks(LZ4_BLOCK) {
        let packed = lz4::block::compress(block, None, false).expect("lz4");
        let (size, block) = if packed.len() < block.len() {
            (packed.len() as u32, packed.as_slice())
        } else {
            (block.len() as u32 | 1 << 31, block)
        };
        out.extend_from_slice(&size.to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&[0; 4]);
    out
}

fn zstd(raw: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(raw, 1).expect("zstd")
}

/// What a batch of magic 2 decompresses to: a name, the count in its header, the bytes.
fn payloads() -> Vec<(&'static str, i32, Vec<u8>)> {
    let headers = (LIMIT - 64) / 2;
    let mut header_flood = no_fields(headers as i64);
    header_flood.extend(std::iter::repeat_n([0, 1], headers).flatten());
    let mut value = Vec::new();
    varint(&mut value, -1);
    varint(&mut value, (LIMIT - 64) as i64);
    value.resize(value.len() + LIMIT - 64, b'v');
    varint(&mut value, 0);
    let mut long_key = Vec::new();
    varint(&mut long_key, i64::from(i32::MAX));
    let mut long_record = Vec::new();
    varint(&mut long_record, i64::from(i32::MAX));
    long_record.extend_from_slice(&[0; 64]);
    let count = LIMIT / 10;
    let flood = (0..count as i64).flat_map(|delta| record(delta, &no_fields(0)));
    vec![
        ("zeros", 1, vec![0; BOMB]),
        ("a record of 2^31-1 bytes", 1, long_record),
        ("2^31-1 records", i32::MAX, record(0, &no_fields(0))),
        (
            "2^31-1 headers",
            1,
            record(0, &no_fields(i64::from(i32::MAX))),
        ),
        ("a key of 2^31-1 bytes", 1, record(0, &long_key)),
        ("varints without an end", 1, vec![0xff; 1 << 20]),
        (
            "a batch in a batch",
            1,
            batch(GZIP, 1, &gzip(&vec![0; BOMB])),
        ),
        ("as many headers as fit", 1, record(0, &header_flood)),
        ("as many records as fit", count as i32, flood.collect()),
        ("one value as large as fits", 1, record(0, &value)),
    ]
}

/// What a set of magic 0 or 1 decompresses to.
fn sets(magic: u8) -> Vec<(&'static str, Vec<u8>)> {
    let mut long = message(magic, 0, 0, -1, b"v");
    long[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    let nested = message(magic, GZIP, 0, -1, &gzip(&vec![0; BOMB]));
    let smallest = message(magic, 0, 0, -1, b"").len();
    let count = (LIMIT / smallest) as i64;
    vec![
        ("zeros", vec![0; BOMB]),
        ("a message of 2^31-1 bytes", long),
        ("a set in a set", nested),
        (
            "a key of 2^31-1 bytes",
            message(magic, 0, 0, i32::MAX, b"v"),
        ),
        (
            "as many messages as fit",
            (0..count)
                .flat_map(|offset| message(magic, 0, offset, -1, b""))
                .collect(),
        ),
        (
            "one value as large as fits",
            message(magic, 0, 0, -1, &vec![b'v'; LIMIT - 64]),
        ),
    ]
}

/// Compressed streams whose own numbers claim more than there is.
fn claims() -> Vec<(&'static str, i16, Vec<u8>)> {
    let mut size_of_gzip = gzip(&[0; 64]);
    let end = size_of_gzip.len() - 4;
    size_of_gzip[end..].fill(0xff);
    let many_members = gzip(b"").repeat(40_000);
    let mut snappy_size = vec![0xff, 0xff, 0xff, 0xff, 0x0f];
    snappy_size.extend_from_slice(&[0; 64]);
    let xerial_block = |size: i32, rest: &[u8]| {
        let mut out = XERIAL.to_vec();
        out.extend_from_slice(&size.to_be_bytes());
        out.extend_from_slice(rest);
        out
    };
    let mut lz4_block = LZ4_FRAME.to_vec();
    lz4_block.extend_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    lz4_block.extend_from_slice(&[0; 64]);
    let mut lz4_empty = LZ4_FRAME.to_vec();
    lz4_empty.extend_from_slice(&[0; 4]);
    // Single segment, content size of 8 bytes: 2^62.
    let mut zstd_size = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    zstd_size.extend_from_slice(&(1_u64 << 62).to_le_bytes());
    zstd_size.extend_from_slice(&[1, 0, 0]);
    // A window of 2^41 bytes, then one block of a repeated byte.
    let zstd_window = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 0x03, 0x00, 0x10, b'v'];
    let mut zstd_skipped = vec![0x50, 0x2a, 0x4d, 0x18];
    zstd_skipped.extend_from_slice(&u32::MAX.to_le_bytes());
    vec![
        ("gzip, a size of 2^32-1", GZIP, size_of_gzip),
        ("gzip, 40,000 members", GZIP, many_members),
        ("snappy, a size of 2^32-1", SNAPPY, snappy_size.clone()),
        (
            "xerial, a block of 2^31-1",
            SNAPPY,
            xerial_block(i32::MAX, &[0; 64]),
        ),
        ("xerial, a block of -1", SNAPPY, xerial_block(-1, &[0; 64])),
        (
            "xerial, a size of 2^32-1",
            SNAPPY,
            xerial_block(snappy_size.len() as i32, &snappy_size),
        ),
        ("lz4, a block of 2^31-1", LZ4, lz4_block),
        ("lz4, 100,000 frames", LZ4, lz4_empty.repeat(100_000)),
        ("zstd, a size of 2^62", ZSTD, zstd_size),
        ("zstd, a window of 2^41", ZSTD, zstd_window),
        ("zstd, a skipped frame of 2^32-1", ZSTD, zstd_skipped),
        ("zstd, 100,000 frames", ZSTD, zstd(b"").repeat(100_000)),
    ]
}

/// Makes every bomb, one after the other, and hands it over; of what they hold only each `stride`th kind.
pub(super) fn each(stride: usize, mut work: impl FnMut(&Bomb)) {
    let mut hand = |name: String, log: Vec<u8>| work(&Bomb { name, log });
    for (what, count, raw) in payloads().into_iter().step_by(stride) {
        for (framing, codec, payload) in [
            ("gzip", GZIP, gzip(&raw)),
            ("snappy", SNAPPY, snappy(&raw)),
            ("xerial", SNAPPY, xerial(&raw)),
            ("lz4", LZ4, lz4(LZ4_FRAME, &raw)),
            ("zstd", ZSTD, zstd(&raw)),
        ] {
            hand(format!("{framing}, {what}"), batch(codec, count, &payload));
        }
        if raw.len() < LIMIT {
            hand(format!("plain, {what}"), batch(0, count, &raw));
        }
    }
    for magic in [0, 1] {
        let frame = [LZ4_FRAME_0, LZ4_FRAME][usize::from(magic)];
        for (what, raw) in sets(magic).into_iter().step_by(stride) {
            for (framing, codec, set) in [
                ("gzip", GZIP, gzip(&raw)),
                ("snappy", SNAPPY, snappy(&raw)),
                ("xerial", SNAPPY, xerial(&raw)),
                ("lz4", LZ4, lz4(frame, &raw)),
            ] {
                hand(
                    format!("magic {magic}, {framing}, {what}"),
                    message(magic, codec, 0, -1, &set),
                );
            }
        }
    }
    for (name, codec, payload) in claims() {
        hand(name.to_owned(), batch(codec, 1, &payload));
    }
}
