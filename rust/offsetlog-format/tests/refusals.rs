//! What the format refuses, with the place that its error names, and the words that its errors are made of.
//!
//! Kafka refuses the same: `DefaultRecord.readFrom`, `AbstractLegacyRecordBatch.DeepRecordsIterator`, `LegacyRecord`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use offsetlog_format::attributes::{Attributes, Codec};
use offsetlog_format::control::ControlType;
use offsetlog_format::legacy::{MessageSet, message_attributes, write_message};
use offsetlog_format::record::write_header;
use offsetlog_format::{Algorithm, BatchView, Fault, FormatError, Headers, Part};
use std::collections::HashSet;

/// A message of a compressed set, or a set's wrapper.
fn message(magic: i8, offset: i64, codec: Codec) -> Vec<u8> {
    let mut out = Vec::new();
    let attributes = message_attributes(codec, false);
    write_message(&mut out, magic, offset, 7, attributes, None, Some(b"v"));
    out
}

/// Reads all of a set in a wrapper with this offset; the offsets.
fn offsets(magic: i8, last: i64, set: &[u8]) -> Result<Vec<i64>, FormatError> {
    let wrapper = message(magic, last, Codec::Gzip);
    let wrapper = BatchView::parse(&wrapper)?.header;
    let mut messages = MessageSet::new(&wrapper, set)?;
    let mut found = Vec::new();
    while let Some(record) = messages.next_record()? {
        found.push(record.offset);
    }
    Ok(found)
}

/// Relative offsets do not say where a set begins; a log does.
#[test]
fn a_set_does_not_reach_back_behind_the_log_before_it() {
    let wrapper = message(1, 12, Codec::Gzip);
    let wrapper = BatchView::parse(&wrapper).unwrap().header;
    let bytes = set(1, &[0, 1, 2]);
    let first = |minimum| {
        let messages = MessageSet::new(&wrapper, &bytes).unwrap();
        messages.not_below(minimum).next_record()
    };
    assert_eq!(first(10).unwrap().unwrap().offset, 10);
    let fault = Fault::OffsetOrder {
        found: 10,
        minimum: 11,
        maximum: 12,
    };
    assert_eq!(first(11).unwrap_err().fault, fault);
    // What counts from 0 in a wrapper of offset 0 ends there too, where a log's next batch may begin.
    let wrapper = message(1, 0, Codec::Gzip);
    let wrapper = BatchView::parse(&wrapper).unwrap().header;
    let mut messages = MessageSet::new(&wrapper, &bytes).unwrap().not_below(0);
    assert_eq!(messages.next_record().unwrap().unwrap().offset, 0);
    let fault = Fault::OffsetOrder {
        found: 1,
        minimum: 1,
        maximum: 0,
    };
    assert_eq!(messages.next_record().unwrap_err().fault, fault);
}

fn set(magic: i8, offsets: &[i64]) -> Vec<u8> {
    let messages = offsets.iter();
    messages
        .flat_map(|&offset| message(magic, offset, Codec::None))
        .collect()
}

#[test]
fn offsets_of_a_set_ascend_up_to_its_wrappers() {
    assert_eq!(offsets(1, 12, &set(1, &[0, 1, 2])), Ok(vec![10, 11, 12]));
    assert_eq!(offsets(0, 12, &set(0, &[10, 11, 12])), Ok(vec![10, 11, 12]));
    // Old librdkafka's wrapper of relative offsets.
    assert_eq!(offsets(1, 0, &set(1, &[0, 1])), Ok(vec![0, 1]));
    let below = offsets(1, 1, &set(1, &[0, 2])).unwrap_err();
    assert!(matches!(below.fault, Fault::Rule(_)), "{below:?}");
    // Repeated, above the wrapper's by what the last one makes of it, above the wrapper's.
    for (magic, inner, slot) in [(1, [2, 2], 1), (1, [1, 0], 0), (0, [12, 13], 1)] {
        let error = offsets(magic, 12, &set(magic, &inner)).unwrap_err();
        assert!(
            matches!(error.fault, Fault::OffsetOrder { .. }),
            "{error:?}"
        );
        let at = slot * set(magic, &[0]).len();
        assert_eq!((error.part, error.at), (Part::MessageSet, at));
    }
    // So far below 0 that no sum reaches the wrapper's.
    let low = offsets(1, 12, &set(1, &[i64::MIN])).unwrap_err();
    assert!(
        matches!(low.fault, Fault::OffsetOverflow { base: 12, .. }),
        "{low:?}"
    );
    // The last one decides what is added to all: here more than the first one bears.
    let high = offsets(1, 100, &set(1, &[i64::MAX, 3])).unwrap_err();
    let fault = Fault::OffsetOverflow {
        base: 97,
        delta: i64::MAX,
    };
    assert_eq!((high.at, high.fault), (0, fault));
}

#[test]
fn messages_of_a_set_are_plain_and_of_an_old_magic() {
    let mut newer = set(1, &[0]);
    newer[16] = 2;
    let error = offsets(1, 1, &newer).unwrap_err();
    assert_eq!(
        (error.at, error.fault),
        (16, Fault::UnknownMagic { found: 2 })
    );
    let nested = message(1, 0, Codec::Snappy);
    let error = offsets(1, 1, &nested).unwrap_err();
    assert!(
        matches!((error.at, &error.fault), (17, Fault::Rule(_))),
        "{error:?}"
    );
    let mut short = set(1, &[0]);
    short[8..12].copy_from_slice(&13_i32.to_be_bytes());
    let error = offsets(1, 1, &short).unwrap_err();
    assert!(
        matches!(
            (error.at, &error.fault),
            (
                8,
                Fault::Length {
                    found: 13,
                    minimum: 14,
                    ..
                }
            )
        ),
        "{error:?}"
    );
    // As in Kafka an incomplete last message is left out, and a set of nothing else is none.
    let two = set(1, &[0, 1]);
    assert_eq!(offsets(1, 9, &two[..two.len() - 1]), Ok(vec![9]));
    for length in [0, 5, two.len() / 2 - 1] {
        let error = offsets(1, 9, &two[..length]).unwrap_err();
        assert!(matches!(error.fault, Fault::Rule(_)), "{error:?}");
    }
    // A value longer than its message.
    let mut long = set(1, &[0]);
    let at = long.len() - 5;
    long[at..at + 4].copy_from_slice(&9_i32.to_be_bytes());
    let error = offsets(1, 9, &long).unwrap_err();
    assert!(
        matches!(
            error.fault,
            Fault::Length {
                found: 9,
                maximum: 1,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn old_messages_have_no_zstd() {
    let bytes = message(1, 0, Codec::Zstd);
    let header = BatchView::parse(&bytes).unwrap().header;
    let error = header.codec().unwrap_err();
    assert_eq!((error.at, error.fault), (17, Fault::Codec { found: 4 }));
    let cut = &bytes[..bytes.len() - 1];
    let needed = bytes.len();
    let available = needed - 1;
    let error = header.check_crc(cut).unwrap_err();
    assert_eq!(error.fault, Fault::Truncated { needed, available });
}

#[test]
fn headers_fill_their_bytes() {
    let mut bytes = Vec::new();
    write_header(&mut bytes, b"k", Some(b"v"));
    write_header(&mut bytes, b"", None);
    let headers = Headers::parse(&bytes, 2).unwrap();
    let found: Vec<_> = headers.iter().collect();
    assert_eq!(found, [(&b"k"[..], Some(&b"v"[..])), (&b""[..], None)]);
    assert_eq!(
        (headers.len(), headers.is_empty(), headers.encoded()),
        (2, false, &*bytes)
    );
    for count in [-1, i32::MAX, bytes.len() as i32 + 1] {
        let error = Headers::parse(&bytes, count).unwrap_err();
        let fault = Fault::Length {
            found: i64::from(count),
            minimum: 0,
            maximum: bytes.len() as i64,
        };
        assert_eq!((error.at, error.fault), (0, fault));
    }
    let left = Headers::parse(&bytes, 1).unwrap_err();
    assert!(
        matches!((left.at, &left.fault), (4, Fault::Rule(_))),
        "{left:?}"
    );
    // A key without bytes is one, no key is none.
    let null_key = Headers::parse(&[1, 1], 1).unwrap_err();
    assert!(
        matches!((null_key.at, &null_key.fault), (0, Fault::Rule(_))),
        "{null_key:?}"
    );
    // Five bytes of value announced, one there.
    let long = Headers::parse(&[2, b'k', 10, b'v'], 1).unwrap_err();
    let fault = Fault::Length {
        found: 5,
        minimum: 0,
        maximum: 1,
    };
    assert_eq!(
        (long.part, long.at, long.fault),
        (Part::RecordHeader, 2, fault)
    );
    assert!(Headers::parse(&[], 1).is_err());
    assert!(Headers::parse(&[], 0).unwrap().is_empty());
}

/// The names of Kafka's `ControlRecordType`.
#[test]
fn control_records_have_kafkas_names_and_numbers() {
    let names = [
        "ABORT",
        "COMMIT",
        "LEADER_CHANGE",
        "SNAPSHOT_HEADER",
        "SNAPSHOT_FOOTER",
        "KRAFT_VERSION",
        "KRAFT_VOTERS",
        "UNKNOWN",
    ];
    for (number, name) in names.iter().enumerate() {
        let kind = ControlType::from_number(number as i16);
        assert_eq!(
            (kind.name(), kind.number()),
            (*name, number as i16),
            "{number}"
        );
    }
    assert_eq!(ControlType::from_number(-1).name(), "UNKNOWN");
}

/// Bits of KIP-98 and KIP-534 in the attributes of a batch.
#[test]
fn attributes_are_kafkas_bits() {
    let plain = Attributes::new(Codec::Lz4, true);
    assert_eq!(plain.0, 0b1011);
    assert_eq!(
        plain.transactional().control().delete_horizon().0,
        0b111_1011
    );
}

#[test]
fn every_part_has_words_of_its_own() {
    let parts = [
        Part::BatchHeader,
        Part::Record,
        Part::RecordHeader,
        Part::ControlRecord,
        Part::Protocol,
        Part::Message,
        Part::MessageSet,
        Part::Compression,
        Part::OffsetIndex,
        Part::TimeIndex,
        Part::TransactionIndex,
        Part::ProducerSnapshot,
        Part::LeaderEpochCheckpoint,
        Part::OffsetCheckpoint,
        Part::PartitionMetadata,
        Part::MetaProperties,
        Part::CleanShutdown,
        Part::Settings,
        Part::FileName,
        Part::DirectoryName,
        Part::TopicName,
        Part::Uuid,
    ];
    let words: HashSet<_> = parts.iter().map(|part| part.words()).collect();
    assert_eq!(words.len(), parts.len());
    for part in parts {
        let error = FormatError::new(
            part,
            3,
            Fault::Checksum {
                algorithm: Algorithm::Crc32,
                stored: 1,
                computed: 2,
            },
        );
        let text = error.to_string();
        assert!(
            text.contains(part.words()) && text.contains("CRC-32") && text.contains('3'),
            "{text}"
        );
    }
}
