//! Decoding beside a plain decoder that is written here, byte by byte out of FORMAT.md «Record»: sound records of all lengths at which an
//! encoding grows, numbers that are longer than they need be, and damage.

use super::*;
use crate::attributes::Attributes;
use proptest::collection::vec as several;
use proptest::option;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// What a record holds, copied.
#[derive(Debug, Clone, PartialEq)]
struct Plain {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A cursor that stops at the end of its bytes and knows no fast way.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: i128) -> Option<&'a [u8]> {
        if count < 0 || count > self.0.len() as i128 {
            return None;
        }
        let (taken, rest) = self.0.split_at(count as usize);
        self.0 = rest;
        Some(taken)
    }

    /// Seven bits a byte, the lowest first, the sign in the lowest bit of all.
    fn number(&mut self, bits: u32, longest: usize) -> Option<i128> {
        let (mut raw, mut shift) = (0_i128, 0);
        for _ in 0..longest {
            let byte = self.take(1)?[0];
            raw += i128::from(byte % 128) << shift;
            shift += 7;
            if byte < 128 {
                let half = raw / 2;
                return (raw < 1 << bits).then_some(if raw % 2 == 0 { half } else { -half - 1 });
            }
        }
        None
    }

    fn int(&mut self) -> Option<i128> {
        self.number(32, 5)
    }

    fn field(&mut self) -> Result<Option<Vec<u8>>, Wrong> {
        match self.int().ok_or(Wrong)? {
            ..0 => Ok(None),
            length => Ok(Some(self.take(length).ok_or(Wrong)?.to_vec())),
        }
    }
}

/// A field that is not whole.
#[derive(Debug)]
struct Wrong;

fn plain_record(bytes: &mut Bytes<'_>, header: &BatchHeader, previous: i128) -> Option<Plain> {
    let length = bytes.int()?;
    let mut body = Bytes(bytes.take(length)?);
    body.take(1)?;
    let timestamp_delta = body.number(64, 10)?;
    let delta = body.int()?;
    let base = header.base_offset.unwrap();
    if delta <= previous || delta > i128::from(header.last_offset - base) {
        return None;
    }
    let (key, value) = (body.field().ok()?, body.field().ok()?);
    let count = body.int()?;
    if count < 0 {
        return None;
    }
    let mut headers = Vec::new();
    for _ in 0..count {
        headers.push((body.field().ok()??, body.field().ok()?));
    }
    let created = (i128::from(header.base_timestamp) + timestamp_delta) as i64;
    let is_appended = header.attributes.0 & 8 != 0;
    body.0.is_empty().then_some(Plain {
        offset: base + delta as i64,
        timestamp: if is_appended {
            header.max_timestamp
        } else {
            created
        },
        key,
        value,
        headers,
    })
}

/// The records before the first that is wrong, and whether none is.
fn plain_records(header: &BatchHeader, payload: &[u8]) -> (Vec<Plain>, bool) {
    let (mut bytes, mut records) = (Bytes(payload), Vec::new());
    let mut previous = -1;
    for _ in 0..header.record_count {
        let Some(record) = plain_record(&mut bytes, header, previous) else {
            return (records, false);
        };
        previous = i128::from(record.offset - header.base_offset.unwrap());
        records.push(record);
    }
    (records, header.record_count == 0 || bytes.0.is_empty())
}

type Step<'a> = Result<Option<RecordView<'a>>, FormatError>;

fn decoded<'a>(
    header: &BatchHeader,
    payload: &'a [u8],
    next: impl Fn(&mut RecordsV2<'a>) -> Step<'a>,
) -> (Vec<RecordView<'a>>, Option<(FormatError, i32)>) {
    let mut records = RecordsV2::new(header, payload).unwrap();
    let mut found = Vec::new();
    loop {
        match next(&mut records) {
            Ok(Some(record)) => found.push(record),
            Ok(None) => return (found, None),
            Err(error) => return (found, Some((error, records.slot()))),
        }
    }
}

/// The plain decoder, the usual way and the way without the fast path say the same, errors included.
fn check(header: &BatchHeader, payload: &[u8]) -> Result<(), TestCaseError> {
    let (found, error) = decoded(header, payload, RecordsV2::next_record);
    let slowly = decoded(header, payload, RecordsV2::next_checked);
    prop_assert_eq!((&found, &error), (&slowly.0, &slowly.1));
    let copies: Vec<Plain> = found
        .iter()
        .map(|record| Plain {
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .iter()
                .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                .collect(),
        })
        .collect();
    let (expected, is_sound) = plain_records(header, payload);
    prop_assert_eq!(&copies, &expected);
    prop_assert_eq!(error.is_none(), is_sound);
    Ok(())
}

/// Lengths on both sides of each length at which its encoding grows by a byte.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        8 => 0..24_usize,
        4 => 60..68_usize,
        2 => 8188..8196_usize,
        1 => (1 << 20) - 4..(1 << 20) + 4_usize,
    ]
}

fn field() -> impl Strategy<Value = Option<Vec<u8>>> {
    option::weighted(
        0.9,
        (length(), any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    )
}

fn small_field() -> impl Strategy<Value = Option<Vec<u8>>> {
    option::of(several(any::<u8>(), 0..70))
}

/// Deltas of each size; those of offsets are added up.
fn delta() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => 0..3_i64,
        3 => 60..68_i64,
        2 => 8188..8196_i64,
        1 => (1 << 20) - 4..(1 << 20) + 4_i64,
    ]
}

fn timestamp_delta() -> impl Strategy<Value = i64> {
    prop_oneof![8 => delta(), 4 => delta().prop_map(|delta| -delta), 1 => any::<i64>()]
}

#[derive(Debug, Clone)]
struct Made {
    timestamp_delta: i64,
    step: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn made(fields: impl Strategy<Value = Option<Vec<u8>>>) -> impl Strategy<Value = Made> {
    let headers = prop_oneof![
        3 => Just(vec![]),
        1 => several((several(any::<u8>(), 0..9), small_field()), 0..4),
    ];
    (timestamp_delta(), delta(), small_field(), fields, headers).prop_map(
        |(timestamp_delta, step, key, value, headers)| Made {
            timestamp_delta,
            step: step + 1,
            key,
            value,
            headers,
        },
    )
}

/// Appends a number as `write_varint` does, and then makes it longer than it need be.
fn write_padded(out: &mut Vec<u8>, value: i64, padding: usize) {
    write_varlong(out, value);
    for _ in 0..padding {
        *out.last_mut().unwrap() |= 0x80;
        out.push(0);
    }
}

fn header(records: i32, last_delta: i64, is_appended: bool) -> BatchHeader {
    BatchHeader {
        base_offset: Some(1_000_000),
        last_offset: 1_000_000 + last_delta,
        size_bytes: 0,
        magic: 2,
        leader_epoch: 0,
        crc: 0,
        attributes: Attributes(if is_appended { 8 } else { 0 }),
        base_timestamp: 1_700_000_000_000,
        max_timestamp: 1_700_000_999_999,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        record_count: records,
    }
}

/// The payload of some records, and the header of their batch.
fn encoded(records: &[Made], is_appended: bool, padding: &[usize]) -> (BatchHeader, Vec<u8>) {
    let mut padding = padding.iter().copied().chain(core::iter::repeat(0));
    let mut pad = || padding.next().unwrap_or(0);
    let (mut payload, mut delta) = (Vec::new(), -1);
    for record in records {
        delta += record.step;
        let mut body = vec![0];
        // Longer encodings of what is not a delta of 64 bits are read too, up to five bytes.
        write_padded(&mut body, record.timestamp_delta, 0);
        write_padded(&mut body, delta, pad());
        for bytes in [&record.key, &record.value] {
            write_padded(
                &mut body,
                bytes.as_ref().map_or(-1, |bytes| bytes.len() as i64),
                pad(),
            );
            body.extend_from_slice(bytes.as_deref().unwrap_or(&[]));
        }
        write_padded(&mut body, record.headers.len() as i64, pad());
        for (key, value) in &record.headers {
            write_header(&mut body, key, value.as_deref());
        }
        write_padded(&mut payload, body.len() as i64, pad());
        payload.extend_from_slice(&body);
    }
    (
        header(records.len() as i32, delta.max(0), is_appended),
        payload,
    )
}

/// A change to a payload or to what its header says.
#[derive(Debug, Clone)]
enum Damage {
    Byte(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    More(Vec<u8>),
    Count(i32),
    LastOffset(i64),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        6 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        2 => any::<prop::sample::Index>().prop_map(Damage::Cut),
        1 => several(any::<u8>(), 1..20).prop_map(Damage::More),
        1 => (-2..3).prop_map(Damage::Count),
        1 => (-3..3_i64).prop_map(Damage::LastOffset),
    ]
}

impl Damage {
    fn apply(&self, header: &mut BatchHeader, payload: &mut Vec<u8>) {
        match self {
            Self::Byte(at, byte) if !payload.is_empty() => {
                let at = at.index(payload.len());
                payload[at] = *byte;
            }
            Self::Cut(at) if !payload.is_empty() => payload.truncate(at.index(payload.len())),
            Self::More(bytes) => payload.extend_from_slice(bytes),
            Self::Count(more) => header.record_count = (header.record_count + more).max(0),
            Self::LastOffset(more) => {
                header.last_offset = (header.last_offset + more).max(1_000_000);
            }
            Self::Byte(..) | Self::Cut(_) => {}
        }
    }
}

proptest! {
    #[test]
    fn sizes_are_those_of_what_is_written(
        timestamp_delta: i64,
        offset_delta: i32,
        key: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
        headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    ) {
        let (key, value) = (key.as_deref(), value.as_deref());
        let headers = || headers.iter().map(|(name, value)| (&**name, value.as_deref()));
        let mut out = Vec::new();
        write_record(&mut out, timestamp_delta, offset_delta, key, value, headers());
        prop_assert_eq!(record_size(timestamp_delta, offset_delta, key, value, headers()), out.len());
        prop_assert!(record_size_upper_bound(key, value, headers()) >= out.len());
    }

    #[test]
    fn sound_records_are_those_of_a_plain_decoder(
        records in several(made(field()), 0..6),
        is_appended: bool,
        padding in several(0..3_usize, 0..12),
    ) {
        let (header, payload) = encoded(&records, is_appended, &padding);
        check(&header, &payload)?;
        if padding.iter().all(|&bytes| bytes == 0) {
            let (found, error) = decoded(&header, &payload, RecordsV2::next_record);
            prop_assert_eq!(error, None);
            prop_assert_eq!(found.len(), records.len());
            for (record, made) in found.iter().zip(&records) {
                prop_assert_eq!(record.key, made.key.as_deref());
                prop_assert_eq!(record.value, made.value.as_deref());
            }
        }
    }

    #[test]
    fn damage_is_found_where_a_plain_decoder_finds_it(
        records in several(made(small_field()), 1..6),
        is_appended: bool,
        padding in several(0..3_usize, 0..12),
        damage in several(damage(), 1..4),
    ) {
        let (mut header, mut payload) = encoded(&records, is_appended, &padding);
        for damage in &damage {
            damage.apply(&mut header, &mut payload);
        }
        check(&header, &payload)?;
    }

    #[test]
    fn any_bytes_are_read_as_by_a_plain_decoder(
        payload in several(prop_oneof![0..4_u8, 0..40_u8, any::<u8>()], 0..80),
        records in 0..6,
        last_delta in 0..100_i64,
    ) {
        check(&header(records, last_delta, false), &payload)?;
    }
}

/// Every byte of a payload in every value, with records that end where the fast path does.
#[test]
fn every_byte_in_every_value() {
    let record = |size: usize| Made {
        timestamp_delta: 70,
        step: 1,
        key: Some(vec![b'k'; 3]),
        value: Some(vec![b'v'; size]),
        headers: vec![],
    };
    let sizes = if cfg!(miri) { vec![2] } else { vec![2, 8, 70] };
    for size in sizes {
        let (header, payload) = encoded(&[record(size), record(size)], false, &[]);
        for at in 0..payload.len() {
            for byte in (0..=255_u8).step_by(if cfg!(miri) { 51 } else { 1 }) {
                let mut payload = payload.clone();
                payload[at] = byte;
                check(&header, &payload).unwrap();
            }
        }
    }
}

/// Each number one byte after the other, as Kafka's `DefaultRecord.writeTo`.
fn encoded_plainly(
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Vec<u8> {
    let mut body = vec![0];
    write_varlong(&mut body, timestamp_delta);
    write_varint(&mut body, offset_delta);
    for bytes in [key, value] {
        write_varint(&mut body, bytes.map_or(-1, |bytes| bytes.len() as i32));
        body.extend_from_slice(bytes.unwrap_or(&[]));
    }
    body.push(0);
    let mut record = Vec::new();
    write_varint(&mut record, body.len() as i32);
    record.extend_from_slice(&body);
    record
}

/// Records whose numbers take a byte less or more than the quick way has room for.
#[test]
fn short_numbers_and_long_ones_are_written_alike() {
    let bytes = vec![b'x'; 9000];
    let part = |length: Option<usize>| length.and_then(|length| bytes.get(..length));
    let timestamps = [
        0,
        1,
        -1,
        63,
        64,
        -64,
        -65,
        8191,
        8192,
        -8192,
        -8193,
        i64::MAX,
        i64::MIN,
    ];
    let deltas = [0, 1, 63, 64, 8191, 8192, i32::MAX];
    let keys = [
        None,
        Some(0),
        Some(1),
        Some(62),
        Some(63),
        Some(64),
        Some(200),
    ];
    let values = [
        None,
        Some(0),
        Some(63),
        Some(64),
        Some(100),
        Some(8170),
        Some(8180),
        Some(8191),
        Some(8192),
    ];
    for timestamp in timestamps {
        for delta in deltas {
            for key in keys {
                for value in values {
                    let (key, value) = (part(key), part(value));
                    let mut out = vec![9];
                    write_record(&mut out, timestamp, delta, key, value, core::iter::empty());
                    let expected = encoded_plainly(timestamp, delta, key, value);
                    assert_eq!(out.split_first(), Some((&9, expected.as_slice())));
                }
            }
        }
    }
}
