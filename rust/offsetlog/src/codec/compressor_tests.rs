//! What the compressor writes: the same bytes as Kafka's own builder, and payloads that the decompressor can read.

use super::compressor::Levels;
use super::{Compressor, Decompressor};
use crate::error::ErrorKind;
use offsetlog_format::builder::{BatchFields, Compress, NewRecord, write_batch, write_message_set};
use offsetlog_format::checksum::{crc32, crc32c};
use offsetlog_format::{Attributes, BatchView, Codec};
use proptest::prelude::*;
use std::fmt::Write;

/// Batches that Kafka 4.3.0 built. The head of the file says how.
const BY_KAFKA: &str = include_str!("../../tests/data/compressed_by_kafka.tsv");
/// Version number of the zstd library inside Kafka 4.3.0.
const ZSTD_OF_KAFKA: u32 = 10506;

const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

/// One line: a batch described by its records, and the length and checksums of Kafka's output for it.
struct Vector<'a> {
    line: &'a str,
    codec: Codec,
    level: Option<i32>,
    magic: i8,
    values: Vec<Vec<u8>>,
    length: usize,
    crc32c: u32,
    crc32: u32,
}

impl<'a> Vector<'a> {
    fn parse(line: &'a str) -> Self {
        let fields: Vec<&str> = line.split('\t').collect();
        let [
            codec,
            level,
            magic,
            kind,
            count,
            bytes,
            seed,
            length,
            crc32c,
            crc32,
        ] = fields[..]
        else {
            panic!("{line}")
        };
        let mut random = Random(seed.parse().unwrap());
        let bytes: usize = bytes.parse().unwrap();
        Self {
            line,
            codec: CODECS.into_iter().find(|c| c.name() == codec).unwrap(),
            level: level.parse().ok(),
            magic: magic.parse().unwrap(),
            values: (0..count.parse().unwrap())
                .map(|at| random.value(kind, bytes, at))
                .collect(),
            length: length.parse().unwrap(),
            crc32c: u32::from_str_radix(crc32c, 16).unwrap(),
            crc32: u32::from_str_radix(crc32, 16).unwrap(),
        }
    }

    /// Builds the batch, or the wrapper message, with the engine.
    fn build(&self, compressor: &mut Compressor) -> Vec<u8> {
        let keys: Vec<String> = (0..self.values.len()).map(|at| at.to_string()).collect();
        let records: Vec<NewRecord<'_>> = keys
            .iter()
            .zip(&self.values)
            .zip(0..)
            .map(|((key, value), offset)| NewRecord {
                offset,
                timestamp: 1_700_000_000_000 + offset,
                key: Some(key.as_bytes()),
                value: Some(value),
                headers: &[],
            })
            .collect();
        let mut out = Vec::new();
        if self.magic == 2 {
            let fields = BatchFields {
                attributes: Attributes(self.codec as i16),
                ..BatchFields::default()
            };
            write_batch(&mut out, &fields, &records, compressor, &mut Vec::new()).unwrap();
        } else {
            let (magic, codec) = (self.magic, self.codec);
            write_message_set(&mut out, magic, codec, None, &records, compressor).unwrap();
        }
        out
    }

    /// Whether zstd 1.5.7 writes the same bytes as 1.5.6. The newer version finds other matches at the levels of its second
    /// strategy, and splits blocks differently where two of 128 KiB or more follow each other.
    fn is_same_in_every_zstd(&self) -> bool {
        let bytes: usize = self.values.iter().map(Vec::len).sum();
        !matches!(self.level, Some(0 | 3 | 4)) && bytes < 256 * 1024
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    fn value(&mut self, kind: &str, bytes: usize, record: usize) -> Vec<u8> {
        let kind = match kind {
            "mixed" if record.is_multiple_of(2) => "random",
            "mixed" => "text",
            kind => kind,
        };
        let mut value = Vec::new();
        while value.len() < bytes {
            match kind {
                "random" => value.push(self.next() as u8),
                "text" => value.extend(format!("item-{} ", self.next() % 200).bytes()),
                _ => value.resize(bytes, 0),
            }
        }
        value.truncate(bytes);
        value
    }
}

fn compressed(codec: Codec, level: Option<i32>, magic: i8, input: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::new();
    compressor.set_level(codec, level).unwrap();
    let mut out = Vec::new();
    compressor.compress(codec, magic, input, &mut out).unwrap();
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn batches_of_kafka_byte_for_byte() {
    let zstd_is_kafkas = zstd::zstd_safe::version_number() == ZSTD_OF_KAFKA;
    let mut compressor = Compressor::new();
    let mut tried = 0;
    for line in BY_KAFKA.lines().filter(|line| !line.starts_with('#')) {
        let vector = Vector::parse(line);
        compressor.set_level(vector.codec, vector.level).unwrap();
        let batch = vector.build(&mut compressor);
        BatchView::parse(&batch).unwrap().check_crc().unwrap();
        tried += 1;
        if vector.codec == Codec::Zstd && !zstd_is_kafkas && !vector.is_same_in_every_zstd() {
            // Checks only that the length is close; another test checks that the records can be read back.
            let other = batch.len().abs_diff(vector.length);
            assert!(other <= 8 + vector.length / 50, "{line}: {}", batch.len());
            continue;
        }
        assert_eq!(
            (batch.len(), crc32c(&batch), crc32(&batch)),
            (vector.length, vector.crc32c, vector.crc32),
            "{}: {}",
            vector.line,
            hex(&batch[..batch.len().min(200)])
        );
    }
    assert_eq!(tried, 100);
}

/// The payloads of FORMAT.md's one-record batches, and an empty stream.
#[test]
fn streams_of_kafka_in_full() {
    let one_record = [0x12, 0, 0, 0, 2, b'k', 4, b'v', b'1', 0];
    for (codec, magic, input, expected) in [
        (
            Codec::Gzip,
            2,
            &one_record[..],
            "1f8b08000000000000ff1362606060ca662933640000f35ab87a0a000000",
        ),
        (
            Codec::Snappy,
            2,
            &one_record,
            "82534e41505059000000000100000001\
             0000000c0a2412000000026b04763100",
        ),
        (
            Codec::Lz4,
            2,
            &one_record,
            "04224d186040820a00008012000000026b0476310000000000",
        ),
        (
            Codec::Zstd,
            2,
            &one_record,
            "28b52ffd005850000012000000026b04763100010000",
        ),
        (
            Codec::Gzip,
            2,
            &[],
            "1f8b08000000000000ff03000000000000000000",
        ),
        (Codec::Snappy, 2, &[], "82534e41505059000000000100000001"),
        (Codec::Lz4, 2, &[], "04224d1860408200000000"),
        (Codec::Lz4, 1, &[], "04224d1860408200000000"),
        (Codec::Lz4, 0, &[], "04224d1860401a00000000"),
        (Codec::Zstd, 2, &[], "28b52ffd2000010000"),
    ] {
        let out = compressed(codec, None, magic, input);
        assert_eq!(hex(&out), expected, "{codec} magic {magic}");
    }
}

#[test]
fn no_codec_copies_and_appends() {
    let mut out = b"front ".to_vec();
    let mut compressor = Compressor::new();
    for codec in [Codec::None, Codec::None] {
        compressor.compress(codec, 2, b"abc", &mut out).unwrap();
    }
    assert_eq!(out, b"front abcabc");
}

/// Sizes around the block limits of every codec, with reused contexts.
#[test]
fn every_input_comes_back() {
    let sizes = [
        0, 1, 14, 15, 16, 255, 256, 257, 8192, 32767, 32768, 32769, 65535, 65536, 65537, 131_072,
        131_073, 300_000,
    ];
    let mut compressor = Compressor::new();
    let mut decompressor = Decompressor::new();
    let mut out = Vec::new();
    for (seed, size) in sizes.into_iter().enumerate() {
        for kind in ["text", "random", "zeros"] {
            let input = Random(seed as u64).value(kind, size, 0);
            for codec in CODECS {
                out.clear();
                compressor.compress(codec, 2, &input, &mut out).unwrap();
                let back = decompressor.decompress(codec, 2, &out, 1 << 20).unwrap();
                assert!(back == input, "{codec} {kind} {size}");
            }
        }
    }
}

#[test]
fn incompressible_lz4_blocks_are_stored() {
    let input = Random(1).value("random", 65536 + 100, 0);
    let out = compressed(Codec::Lz4, None, 2, &input);
    assert_eq!(out.len(), 7 + 4 + 65536 + 4 + 100 + 4);
    assert_eq!(out[7..11], (65536_u32 | 1 << 31).to_le_bytes());
}

#[test]
fn levels_have_kafkas_bounds() {
    let mut levels = Levels::default();
    for (codec, good, bad, name) in [
        (
            Codec::Gzip,
            vec![-1, 1, 9],
            vec![-2, 0, 10],
            "compression.gzip.level",
        ),
        (
            Codec::Lz4,
            vec![1, 9, 17],
            vec![-1, 0, 18],
            "compression.lz4.level",
        ),
        (
            Codec::Zstd,
            vec![-131_072, 0, 22],
            vec![-131_073, 23],
            "compression.zstd.level",
        ),
    ] {
        for level in good {
            levels.set(codec, Some(level)).unwrap();
        }
        let before = levels;
        for level in bad {
            let error = levels.set(codec, Some(level)).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Argument { name: found, .. } if *found == name),
                "{error}"
            );
            assert_eq!(levels, before);
        }
        levels.set(codec, None).unwrap();
    }
    assert_eq!(levels, Levels::default());
    let error = levels.set(Codec::Gzip, Some(0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "compression.gzip.level: 0 found, 1 to 9 or -1 expected"
    );
    for codec in [Codec::None, Codec::Snappy] {
        levels.set(codec, None).unwrap();
        assert!(levels.set(codec, Some(1)).is_err());
    }
}

/// A level applies from the next call on, also when it returns to an earlier one.
#[test]
fn levels_can_change_between_batches() {
    let input = Random(3).value("text", 20_000, 0);
    let mut kept = Compressor::new();
    for (codec, level) in [
        (Codec::Gzip, Some(1)),
        (Codec::Zstd, Some(-5)),
        (Codec::Lz4, Some(12)),
        (Codec::Gzip, None),
        (Codec::Zstd, None),
        (Codec::Lz4, None),
        (Codec::Gzip, Some(1)),
        (Codec::Zstd, Some(9)),
    ] {
        kept.set_level(codec, level).unwrap();
        let mut out = Vec::new();
        kept.compress(codec, 2, &input, &mut out).unwrap();
        assert_eq!(
            out,
            compressed(codec, level, 2, &input),
            "{codec} {level:?}"
        );
    }
}

#[test]
fn zstd_is_for_magic_2() {
    for magic in [0, 1] {
        let mut out = b"front".to_vec();
        let error = Compressor::new()
            .compress(Codec::Zstd, magic, b"abc", &mut out)
            .unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::UnsupportedCodec(_)),
            "{error}"
        );
        assert_eq!(out, b"front");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Contexts that have compressed other inputs write the same as new ones.
    #[test]
    fn kept_contexts_leave_no_trace(
        inputs in prop::collection::vec((prop::collection::vec(0_u8..7, 0..3000), 1_usize..40), 1..4),
        level in 1_i32..10,
    ) {
        let mut kept = Compressor::new();
        let mut decompressor = Decompressor::new();
        for (input, times) in inputs {
            let input = input.repeat(times);
            for codec in CODECS {
                let level = (codec != Codec::Snappy).then_some(level);
                kept.set_level(codec, level).unwrap();
                let mut out = Vec::new();
                kept.compress(codec, 2, &input, &mut out).unwrap();
                prop_assert_eq!(&out, &compressed(codec, level, 2, &input));
                prop_assert_eq!(decompressor.decompress(codec, 2, &out, 1 << 20).unwrap(), &input);
            }
        }
    }
}
