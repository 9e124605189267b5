//! Batches of magic 2, 1 and 0: the bytes that Kafka's own builder made, and that decoding undoes encoding.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use offsetlog_format::batch::sequence_after;
use offsetlog_format::builder::{
    BatchFields, NewRecord, Uncompressed, write_batch, write_message_set,
};
use offsetlog_format::v2::RecordsV2;
use offsetlog_format::{
    Attributes, BatchHeader, BatchView, Codec, Fault, FormatError, Part, TimestampType, legacy,
};
use proptest::prelude::*;

const THREE_RECORDS: &str = "000000000000000000000052ffffffff028b6e5f9000000000000200000000000003e800000000000003edffffffffffffffffffffffffffff0000000320000000026b04763104026802780268010c000a0201000010000104046b320100";
const EMPTY_BATCH: &str = "000000000000006400000031000000050274ef4d99000000000004ffffffffffffffff00000000000007d00000000000000fa000030000000a00000000";
const CLEANED: &str = "00000000000000640000003c000000050281333e1d0040000000020000000005271f5000000000000003e90000000000000fa000030000000a000000011400cdedb8520202620100";
const APPEND_TIME: &str = "00000000000000000000004300000000021ce5080500080000000100000000000003e80000000000001e61ffffffffffffffffffffffffffff0000000210000000026b02760010000602026b027600";
const MESSAGE_V0: &str = "000000000000000000000011615054270000000000016b000000027631";
const MESSAGE_V1: &str =
    "00000000000000000000001943a94d68010000000000000003e8000000016b000000027631";

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

#[derive(Debug, Clone, PartialEq)]
struct Owned {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn decode(bytes: &[u8]) -> Result<(BatchHeader, Vec<Owned>), FormatError> {
    let view = BatchView::parse(bytes)?;
    view.check_crc()?;
    let mut records = Vec::new();
    let mut add = |record: offsetlog_format::RecordView<'_>| {
        records.push(Owned {
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .iter()
                .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                .collect(),
        });
    };
    if view.header.magic == 2 {
        let mut iterator = RecordsV2::new(&view.header, view.payload())?;
        while let Some(record) = iterator.next_record()? {
            add(record);
        }
    } else {
        add(legacy::single_record(&view)?);
    }
    Ok((view.header, records))
}

fn owned(offset: i64, timestamp: i64, key: Option<&str>, value: Option<&str>) -> Owned {
    Owned {
        offset,
        timestamp,
        key: key.map(Into::into),
        value: value.map(Into::into),
        headers: Vec::new(),
    }
}

#[test]
fn three_records_made_by_kafka() {
    let (header, records) = decode(&hex(THREE_RECORDS)).unwrap();
    let mut first = owned(0, 1000, Some("k"), Some("v1"));
    first.headers = vec![(b"h".to_vec(), Some(b"x".to_vec())), (b"h".to_vec(), None)];
    let expected = vec![
        first,
        owned(1, 1005, None, Some("")),
        owned(2, 999, Some("k2"), None),
    ];
    assert_eq!(records, expected);
    assert_eq!((header.last_offset, header.max_timestamp), (2, 1005));
    assert_eq!((header.leader_epoch, header.producer_id), (-1, -1));
    assert_eq!(header.timestamp_type(), TimestampType::Create);
}

/// The same three records written by us are the same bytes.
#[test]
fn three_records_are_written_as_kafka_writes_them() {
    let headers: [(&[u8], Option<&[u8]>); 2] = [(b"h", Some(b"x")), (b"h", None)];
    let record =
        |offset, timestamp, key: Option<&'static [u8]>, value: Option<&'static [u8]>| NewRecord {
            offset,
            timestamp,
            key,
            value,
            headers: &[],
        };
    let mut first = record(0, 1000, Some(b"k"), Some(b"v1"));
    first.headers = &headers;
    let records = [
        first,
        record(1, 1005, None, Some(b"")),
        record(2, 999, Some(b"k2"), None),
    ];
    let mut out = Vec::new();
    write_batch(
        &mut out,
        &BatchFields::default(),
        &records,
        &mut Uncompressed,
        &mut Vec::new(),
    )
    .unwrap();
    assert_eq!(out, hex(THREE_RECORDS));
}

#[test]
fn a_batch_that_compaction_emptied() {
    let (header, records) = decode(&hex(EMPTY_BATCH)).unwrap();
    assert_eq!(records, []);
    assert_eq!((header.base_offset, header.last_offset), (Some(100), 104));
    assert_eq!(
        (
            header.producer_id,
            header.producer_epoch,
            header.base_sequence
        ),
        (4000, 3, 10)
    );
    assert_eq!((header.last_sequence(), header.max_timestamp), (14, 2000));
}

#[test]
fn a_tombstone_kept_with_its_delete_horizon() {
    let (header, records) = decode(&hex(CLEANED)).unwrap();
    assert!(header.attributes.has_delete_horizon());
    assert_eq!(header.base_timestamp, 86_450_000);
    assert_eq!(records, [owned(101, 1001, Some("b"), None)]);
}

#[test]
fn append_time_is_every_records_time() {
    let (header, records) = decode(&hex(APPEND_TIME)).unwrap();
    assert_eq!(header.timestamp_type(), TimestampType::LogAppend);
    let expected = [
        owned(0, 7777, Some("k"), Some("v")),
        owned(1, 7777, Some("k"), Some("v")),
    ];
    assert_eq!(records, expected);
}

#[test]
fn messages_made_by_kafka() {
    for (bytes, magic, timestamp) in [(MESSAGE_V0, 0, -1), (MESSAGE_V1, 1, 1000)] {
        let (header, records) = decode(&hex(bytes)).unwrap();
        assert_eq!(header.magic, magic);
        assert_eq!(records, [owned(0, timestamp, Some("k"), Some("v1"))]);
        let record = NewRecord {
            offset: 0,
            timestamp,
            key: Some(b"k"),
            value: Some(b"v1"),
            headers: &[],
        };
        let mut out = Vec::new();
        write_message_set(
            &mut out,
            magic,
            Codec::None,
            None,
            &[record],
            &mut Uncompressed,
        )
        .unwrap();
        assert_eq!(out, hex(bytes));
    }
}

fn check_fault(change: impl Fn(&mut Vec<u8>), part: Part, fault: Fault) {
    let mut bytes = hex(THREE_RECORDS);
    change(&mut bytes);
    let error = BatchView::parse(&bytes)
        .and_then(|view| {
            let mut records = RecordsV2::new(&view.header, view.payload())?;
            while records.next_record()?.is_some() {}
            Ok(())
        })
        .unwrap_err();
    assert_eq!((error.part, error.fault), (part, fault));
}

/// Each rule of FORMAT.md «Record batch, magic 2» and «Record» that a reader holds.
#[test]
fn broken_batches_are_told_apart() {
    let maximum = i64::from(i32::MAX) - 12;
    let length = |found, minimum| Fault::Length {
        found,
        minimum,
        maximum,
    };
    check_fault(|b| b[8..12].fill(0), Part::BatchHeader, length(0, 14));
    check_fault(
        |b| b[8..12].copy_from_slice(&(-5_i32).to_be_bytes()),
        Part::BatchHeader,
        length(-5, 14),
    );
    check_fault(
        |b| b[8..12].copy_from_slice(&48_i32.to_be_bytes()),
        Part::BatchHeader,
        length(48, 49),
    );
    check_fault(
        |b| b[16] = 3,
        Part::BatchHeader,
        Fault::UnknownMagic { found: 3 },
    );
    check_fault(
        |b| b[16] = 0xff,
        Part::BatchHeader,
        Fault::UnknownMagic { found: -1 },
    );
    let negative = Fault::OffsetOrder {
        found: -1,
        minimum: 0,
        maximum: i64::MAX,
    };
    check_fault(|b| b[..8].fill(0xff), Part::BatchHeader, negative);
    let delta = Fault::Length {
        found: -1,
        minimum: 0,
        maximum: i64::from(i32::MAX),
    };
    check_fault(|b| b[23..27].fill(0xff), Part::Record, delta);
    let overflow = Fault::OffsetOverflow {
        base: i64::MAX,
        delta: 2,
    };
    check_fault(
        |b| b[..8].copy_from_slice(&i64::MAX.to_be_bytes()),
        Part::BatchHeader,
        overflow,
    );
    check_fault(
        |b| b[60] = 4,
        Part::Record,
        Fault::Count {
            found: 3,
            expected: 4,
        },
    );
    let left = Fault::Rule("bytes are left behind the last record that the batch counts");
    check_fault(|b| b[60] = 2, Part::Record, left);
    check_fault(
        |b| b[57..61].fill(0xff),
        Part::Record,
        Fault::Count {
            found: 0,
            expected: -1,
        },
    );
    let order = Fault::OffsetOrder {
        found: 2,
        minimum: 2,
        maximum: 1,
    };
    check_fault(|b| b[26] = 1, Part::Record, order);
    let cut = Fault::Truncated {
        needed: 94,
        available: 93,
    };
    check_fault(
        |b| {
            b.pop();
        },
        Part::BatchHeader,
        cut,
    );
}

#[test]
fn a_flipped_byte_under_the_checksum_is_noticed() {
    let bytes = hex(THREE_RECORDS);
    for at in 21..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        let noticed = BatchView::parse(&flipped)
            .and_then(|view| view.check_crc())
            .is_err();
        assert!(noticed, "byte {at}");
    }
}

#[test]
fn sequences_wrap_to_zero() {
    assert_eq!(sequence_after(i32::MAX, 1), 0);
    assert_eq!(sequence_after(-1, 5), -1);
}

/// Headers as the builder takes them.
type HeaderViews<'a> = Vec<(&'a [u8], Option<&'a [u8]>)>;

fn bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40))
}

prop_compose! {
    fn record()(
        step in 1_i64..1000,
        timestamp in prop_oneof![any::<i64>(), 0_i64..2_000_000_000_000],
        key in bytes(),
        value in bytes(),
        headers in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..8), bytes()), 0..4),
    ) -> (i64, Owned) {
        (step, Owned { offset: 0, timestamp, key, value, headers })
    }
}

proptest! {
    #[test]
    fn decode_after_encode_is_identity(
        base in 0_i64..1 << 50,
        records in proptest::collection::vec(record(), 1..20),
        leader_epoch in -1_i32..1000,
        producer_id in -1_i64..1000,
        base_sequence in -1_i32..i32::MAX,
        transactional: bool,
    ) {
        let mut offset = base - 1;
        let expected: Vec<Owned> = records.into_iter().map(|(step, mut record)| {
            offset += step;
            record.offset = offset;
            record
        }).collect();
        let headers: Vec<HeaderViews<'_>> = expected.iter()
            .map(|record| record.headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect())
            .collect();
        let new: Vec<NewRecord<'_>> = expected.iter().zip(&headers).map(|(record, headers)| NewRecord {
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers,
        }).collect();
        let attributes = Attributes::new(Codec::None, false);
        let attributes = if transactional { attributes.transactional() } else { attributes };
        let fields = BatchFields { base_offset: base, leader_epoch, attributes, producer_id, base_sequence, ..BatchFields::default() };
        let mut out = vec![7; 3];
        write_batch(&mut out, &fields, &new, &mut Uncompressed, &mut Vec::new()).unwrap();
        let (header, decoded) = decode(&out[3..]).unwrap();
        prop_assert_eq!(decoded, expected);
        prop_assert_eq!(header.size_bytes, out.len() - 3);
        prop_assert_eq!(header.attributes.is_transactional(), transactional);
        prop_assert_eq!((header.leader_epoch, header.producer_id), (leader_epoch, producer_id));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes);
    }

    /// A sound header over hostile records: the checksum is not what stops them.
    #[test]
    fn any_payload_is_decoded_or_refused(payload in proptest::collection::vec(any::<u8>(), 0..200), count in -2_i32..50) {
        let header = BatchHeader { record_count: count, ..BatchView::parse(&hex(THREE_RECORDS)).unwrap().header };
        if let Ok(mut records) = RecordsV2::new(&header, &payload) {
            while let Ok(Some(record)) = records.next_record() {
                prop_assert!(record.headers.iter().count() == record.headers.len());
            }
        }
        let wrapper = BatchHeader { magic: 1, base_offset: None, ..header };
        if let Ok(mut set) = legacy::MessageSet::new(&wrapper, &payload) {
            while let Ok(Some(_)) = set.next_record() {}
        }
    }
}
