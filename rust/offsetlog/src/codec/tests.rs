//! What each codec accepts and refuses: FORMAT.md «Compression», row by row.

use super::Decompressor;
use crate::error::ErrorKind;
use crate::limits::LimitName;
use flate2::Compression;
use flate2::write::GzEncoder;
use offsetlog_format::Codec;
use std::io::Write;

const LIMIT: u64 = 1 << 20;

fn text(count: usize) -> Vec<u8> {
    (0..count)
        .map(|at| b"the quick brown fox "[at % 20] ^ (at / 997) as u8)
        .collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for chunk in bytes.chunks(32 * 1024) {
        let block = snap::raw::Encoder::new().compress_vec(chunk).unwrap();
        out.extend_from_slice(&(block.len() as i32).to_be_bytes());
        out.extend_from_slice(&block);
    }
    out
}

/// A frame with the given flags, version 1 and independent blocks.
fn lz4(bytes: &[u8], content_size: bool, block_checksums: bool, content_checksum: bool) -> Vec<u8> {
    let flags = 0x60
        | u8::from(content_size) << 3
        | u8::from(block_checksums) << 4
        | u8::from(content_checksum) << 2;
    let mut descriptor = vec![flags, 0x40];
    if content_size {
        descriptor.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    }
    let mut out = vec![0x04, 0x22, 0x4d, 0x18];
    out.extend_from_slice(&descriptor);
    out.push((twox_hash::XxHash32::oneshot(0, &descriptor) >> 8) as u8);
    for chunk in bytes.chunks(64 * 1024) {
        let block = lz4::block::compress(chunk, None, false).unwrap();
        out.extend_from_slice(&(block.len() as u32).to_le_bytes());
        out.extend_from_slice(&block);
        if block_checksums {
            out.extend_from_slice(&twox_hash::XxHash32::oneshot(0, &block).to_le_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    if content_checksum {
        out.extend_from_slice(&[0xaa; 4]);
    }
    out
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ::zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn decompress(codec: Codec, payload: &[u8]) -> Result<Vec<u8>, String> {
    decompress_magic(codec, 2, payload)
}

fn decompress_magic(codec: Codec, magic: i8, payload: &[u8]) -> Result<Vec<u8>, String> {
    Decompressor::new()
        .decompress(codec, magic, payload, LIMIT)
        .map(<[u8]>::to_vec)
        .map_err(|error| error.to_string())
}

fn concatenated(one: &[u8], two: &[u8]) -> Vec<u8> {
    [one, two].concat()
}

#[test]
fn every_size_comes_back() {
    let mut kept = Decompressor::new();
    for size in [0, 1, 17, 1000, 32 * 1024, 64 * 1024 + 1, 700_000] {
        let bytes = text(size);
        for (codec, payload) in [
            (Codec::Gzip, gzip(&bytes)),
            (Codec::Snappy, snappy(&bytes)),
            (Codec::Lz4, lz4(&bytes, false, false, false)),
            (Codec::Zstd, zstd(&bytes)),
        ] {
            assert_eq!(
                kept.decompress(codec, 2, &payload, LIMIT).unwrap(),
                bytes,
                "{codec} {size}"
            );
        }
    }
}

#[test]
fn concatenated_streams() {
    let (one, two) = (text(5000), text(300));
    let both = concatenated(&one, &two);
    assert_eq!(
        decompress(Codec::Gzip, &concatenated(&gzip(&one), &gzip(&two))),
        Ok(both.clone())
    );
    assert_eq!(
        decompress(Codec::Gzip, &concatenated(&gzip(&one), &gzip(&one))),
        Ok(concatenated(&one, &one))
    );
    assert_eq!(
        decompress(Codec::Snappy, &concatenated(&snappy(&one), &snappy(&two))),
        Ok(both.clone())
    );
    assert_eq!(
        decompress(Codec::Zstd, &concatenated(&zstd(&one), &zstd(&two))),
        Ok(both)
    );
    let frames = concatenated(
        &lz4(&one, false, false, false),
        &lz4(&two, false, false, false),
    );
    assert_eq!(
        decompress(Codec::Lz4, &frames),
        Ok(one),
        "only the first frame"
    );
}

#[test]
fn garbage_and_zeros_behind_the_end() {
    let bytes = text(5000);
    for tail in [&b"garbage"[..], &[0; 9]] {
        assert_eq!(
            decompress(Codec::Gzip, &concatenated(&gzip(&bytes), tail)),
            Ok(bytes.clone())
        );
        assert_eq!(
            decompress(
                Codec::Lz4,
                &concatenated(&lz4(&bytes, false, false, false), tail)
            ),
            Ok(bytes.clone())
        );
        assert!(decompress(Codec::Snappy, &concatenated(&snappy(&bytes), tail)).is_err());
        assert!(decompress(Codec::Zstd, &concatenated(&zstd(&bytes), tail)).is_err());
    }
}

/// A member with these flags and the fields that they announce, as in RFC 1952. `checksum` maps the correct header checksum to
/// the stored one.
fn flagged(bytes: &[u8], flags: u8, checksum: impl Fn(u16) -> u16) -> Vec<u8> {
    let plain = gzip(bytes);
    let mut member = plain[..10].to_vec();
    member[3] = flags;
    if flags & 4 != 0 {
        member.extend_from_slice(b"\x05\0ab\x01\0c");
    }
    for text in [8, 16] {
        if flags & text != 0 {
            member.extend(std::iter::repeat_n(b'n', 70_000));
            member.push(0);
        }
    }
    if flags & 2 != 0 {
        let mut crc = flate2::Crc::new();
        crc.update(&member);
        member.extend_from_slice(&checksum(crc.sum() as u16).to_le_bytes());
    }
    member.extend_from_slice(&plain[10..]);
    member
}

/// What Java 17's `GZIPInputStream` does with each input, as observed.
#[test]
fn flags_of_a_gzip_header() {
    let bytes = text(5000);
    for flags in 0..=255 {
        let member = flagged(&bytes, flags, |right| right);
        assert_eq!(
            decompress(Codec::Gzip, &member),
            Ok(bytes.clone()),
            "flags {flags:#04x}"
        );
        let wrong = flagged(&bytes, flags, |right| right ^ 1);
        assert_eq!(
            decompress(Codec::Gzip, &wrong).is_ok(),
            flags & 2 == 0,
            "flags {flags:#04x}, checksum"
        );
    }
    // The same in a second member, where an invalid header is the end.
    let both = |second: &[u8]| decompress(Codec::Gzip, &concatenated(&gzip(b"a"), second));
    assert_eq!(
        both(&flagged(b"b", 0xe2, |right| right)),
        Ok(b"ab".to_vec())
    );
    assert_eq!(
        both(&flagged(b"b", 2, |right| right ^ 1)),
        Ok(b"a".to_vec())
    );
    assert_eq!(both(&gzip(b"b")[..18]), Ok(b"a".to_vec()));
    assert!(both(&gzip(b"b")[..19]).is_err());
}

#[test]
fn every_cut_is_refused() {
    let bytes = text(3000);
    for (codec, payload) in [
        (Codec::Gzip, gzip(&bytes)),
        (Codec::Lz4, lz4(&bytes, false, false, false)),
        (Codec::Zstd, zstd(&bytes)),
    ] {
        for end in 1..payload.len() {
            assert!(
                decompress(codec, &payload[..end]).is_err(),
                "{codec} cut at {end}"
            );
        }
    }
    let payload = snappy(&bytes);
    for end in 17..payload.len() {
        assert!(
            decompress(Codec::Snappy, &payload[..end]).is_err(),
            "snappy cut at {end}"
        );
    }
}

#[test]
fn empty_payloads() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4] {
        assert!(decompress(codec, &[]).is_err(), "{codec}");
    }
    assert_eq!(decompress(Codec::Zstd, &[]), Ok(Vec::new()));
}

#[test]
fn snappy_as_one_raw_block() {
    let bytes = text(3000);
    let block = snap::raw::Encoder::new().compress_vec(&bytes).unwrap();
    assert_eq!(decompress(Codec::Snappy, &block), Ok(bytes));
}

#[test]
fn snappy_chunk_lengths_are_bounded() {
    for length in [-1, i32::MAX] {
        let mut payload = snappy(b"");
        payload.extend_from_slice(&length.to_be_bytes());
        let error = decompress(Codec::Snappy, &payload).unwrap_err();
        assert!(
            error.contains(&format!("chunk length {length} found")),
            "{error}"
        );
    }
}

#[test]
fn lz4_flags_of_other_clients() {
    let bytes = text(3000);
    for (content_size, block_checksums, content_checksum) in [
        (true, false, false),
        (false, true, false),
        (false, false, true),
        (true, true, true),
    ] {
        let payload = lz4(&bytes, content_size, block_checksums, content_checksum);
        assert_eq!(decompress(Codec::Lz4, &payload), Ok(bytes.clone()));
    }
    let missing = lz4(&bytes, false, false, true);
    assert!(decompress(Codec::Lz4, &missing[..missing.len() - 4]).is_err());
    let mut wrong = lz4(&bytes, false, true, false);
    wrong[12] ^= 1;
    assert!(decompress(Codec::Lz4, &wrong).is_err());
}

#[test]
fn lz4_header_checksum_counts_from_magic_1_on() {
    let bytes = text(100);
    let mut payload = lz4(&bytes, false, false, false);
    payload[6] = 0x1a;
    assert_eq!(decompress_magic(Codec::Lz4, 0, &payload), Ok(bytes));
    for magic in [1, 2] {
        let error = decompress_magic(Codec::Lz4, magic, &payload).unwrap_err();
        assert!(
            error.contains("frame header checksum 0x1a found, 0x82 expected"),
            "{error}"
        );
    }
}

#[test]
fn lz4_descriptors_that_kafka_refuses() {
    for (at, value) in [(4, 0x20), (4, 0x40), (4, 0x61), (5, 0x30)] {
        let mut payload = lz4(&text(100), false, false, false);
        payload[at] = value;
        assert!(
            decompress_magic(Codec::Lz4, 0, &payload).is_err(),
            "byte {at} as {value:#x}"
        );
    }
}

/// A small payload that expands without end stops at the limit, and the buffer stays at most twice as large as the limit.
#[test]
fn bombs_are_stopped() {
    let zeros = vec![0; 3 << 20];
    for (codec, payload) in [
        (Codec::Gzip, gzip(&zeros)),
        (Codec::Snappy, snappy(&zeros)),
        (Codec::Lz4, lz4(&zeros, false, false, false)),
        (Codec::Zstd, zstd(&zeros)),
    ] {
        let mut decompressor = Decompressor::new();
        let error = decompressor
            .decompress(codec, 2, &payload, LIMIT)
            .unwrap_err();
        assert!(
            matches!(
                error.kind(),
                ErrorKind::Limit {
                    name: LimitName::MaxDecompressedBytes,
                    limit: LIMIT,
                    ..
                }
            ),
            "{codec}: {error}"
        );
        assert!(
            decompressor.output.bytes.len() as u64 <= 2 * LIMIT,
            "{codec}"
        );
    }
}
