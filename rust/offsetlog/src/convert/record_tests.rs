//! How a conversion changes records, batches and offsets.

#[path = "place_tests.rs"]
mod places;

use super::*;
use crate::batch_builder::{BatchBuilder, Producer};
use crate::log::{AppendOptions, LogWriter, MarkerOptions, WriteOptions};
use offsetlog_format::builder::{
    BatchFields, NewRecord, Uncompressed, write_batch, write_message_set,
};
use offsetlog_format::name::byte_offset_segment_name;
use offsetlog_format::old_message::write_old_message;
use offsetlog_format::{BatchHeader, TimestampType};
use std::fs;

/// Offset, timestamp, type, key, value.
type Row = (i64, i64, TimestampType, Option<Vec<u8>>, Option<Vec<u8>>);

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("old")).unwrap();
        Self { folder }
    }

    fn old(&self) -> PathBuf {
        self.folder.path().join("old/orders-0")
    }

    fn new_one(&self) -> PathBuf {
        self.folder.path().join("new/orders-0")
    }

    /// Creates the old directory with these segments: base offset and bytes.
    fn write(&self, segments: &[(i64, &[u8])]) {
        fs::create_dir_all(self.old()).unwrap();
        for (base, bytes) in segments {
            fs::write(self.old().join(format!("{base:020}.log")), bytes).unwrap();
        }
    }

    fn convert(&self, codec: Option<Codec>) -> Result<ConvertReport> {
        let how = ConvertOptions {
            codec,
            ..ConvertOptions::default()
        };
        self.convert_as(&how)
    }

    fn convert_as(&self, how: &ConvertOptions) -> Result<ConvertReport> {
        convert(self.old(), self.new_one(), &OpenOptions::default(), how)
    }

    /// Names in the parent directory of the new one.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path().join("new"));
        let mut names: Vec<String> = entries
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn rows(path: &Path) -> Vec<Row> {
    let log = Log::open(path, &OpenOptions::default()).unwrap();
    let mut scan = log.scan(&ScanOptions::default()).unwrap();
    let mut rows = Vec::new();
    while let Some(mut batch) = scan.next_batch().unwrap() {
        while let Some(record) = batch.next_record().unwrap() {
            rows.push((
                record.offset,
                record.timestamp,
                record.timestamp_type,
                record.key.map(<[u8]>::to_vec),
                record.value.map(<[u8]>::to_vec),
            ));
        }
    }
    rows
}

fn headers(path: &Path) -> Vec<BatchHeader> {
    let log = Log::open(path, &OpenOptions::default()).unwrap();
    let options = ScanOptions {
        control_records: true,
        ..ScanOptions::default()
    };
    let mut scan = log.scan(&options).unwrap();
    let mut headers = Vec::new();
    while let Some(batch) = scan.next_batch().unwrap() {
        headers.push(*batch.header());
    }
    headers
}

fn ends(path: &Path) -> (i64, i64) {
    let log = Log::open(path, &OpenOptions::default()).unwrap();
    (
        log.log_start_offset().unwrap(),
        log.log_end_offset().unwrap(),
    )
}

fn record(offset: i64, timestamp: i64, value: &'static [u8]) -> NewRecord<'static> {
    NewRecord {
        offset,
        timestamp,
        key: Some(b"key"),
        value: Some(value),
        headers: &[],
    }
}

fn messages(
    magic: i8,
    codec: Codec,
    append_time: Option<i64>,
    records: &[NewRecord<'_>],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut compressor = crate::codec::Compressor::new();
    write_message_set(
        &mut bytes,
        magic,
        codec,
        append_time,
        records,
        &mut compressor,
    )
    .unwrap();
    bytes
}

fn batch(fields: &BatchFields, records: &[NewRecord<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_batch(
        &mut bytes,
        fields,
        records,
        &mut Uncompressed,
        &mut Vec::new(),
    )
    .unwrap();
    bytes
}

#[test]
fn messages_that_stand_by_themselves_come_together() {
    let place = Place::new();
    let plain: Vec<_> = [0, 1, 5, 6].map(|n| record(n, 1000 + n, b"v")).to_vec();
    let stamped: Vec<_> = [7, 8].map(|n| record(n, 1, b"w")).to_vec();
    let later = [record(9, 1, b"x")];
    let bytes = [
        messages(1, Codec::None, None, &plain),
        messages(1, Codec::None, Some(5000), &stamped),
        messages(1, Codec::None, Some(6000), &later),
        messages(0, Codec::None, None, &[record(12, 1, b"y")]),
    ]
    .concat();
    place.write(&[(0, &bytes)]);
    let before = rows(&place.old());
    let report = place.convert(None).unwrap();
    let after = rows(&place.new_one());
    let as_create = |mut row: Row| {
        // A batch of magic 2 always has a timestamp type.
        if row.2 == TimestampType::None {
            row.2 = TimestampType::Create;
        }
        row
    };
    let expected: Vec<Row> = before.into_iter().map(as_create).collect();
    assert_eq!(after, expected);
    assert_eq!(after.len(), 8);
    let batches: Vec<_> = headers(&place.new_one())
        .iter()
        .map(|header| {
            (
                header.base_offset.unwrap(),
                header.last_offset,
                header.record_count,
            )
        })
        .collect();
    assert_eq!(batches, [(0, 6, 4), (7, 8, 2), (9, 9, 1), (12, 12, 1)]);
    assert_eq!(
        (report.records, report.batches, report.batches_kept),
        (8, 4, 0)
    );
    assert_eq!(report.bytes_read, bytes.len() as u64);
    assert_eq!((report.log_start_offset, report.log_end_offset), (0, 13));
    assert_eq!(place.names(), ["orders-0"]);
}

#[test]
fn batches_are_bounded() {
    let place = Place::new();
    let value: &'static [u8] = Box::leak(vec![b'x'; 20_000].into_boxed_slice());
    let records: Vec<_> = (0..10).map(|n| record(n, n, value)).collect();
    place.write(&[(0, &messages(1, Codec::None, None, &records))]);
    place.convert(None).unwrap();
    let counts: Vec<_> = headers(&place.new_one())
        .iter()
        .map(|header| header.record_count)
        .collect();
    assert_eq!(counts, [4, 4, 2]);
    assert_eq!(rows(&place.new_one()), rows(&place.old()));
}

#[test]
fn a_compressed_set_is_one_batch_in_its_codec() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4] {
        for magic in [0, 1] {
            let place = Place::new();
            let sets: [&[_]; 3] = [
                &[record(0, 10, b"a"), record(3, 20, b"b")],
                &[record(4, 30, b"c")],
                &[record(9, 40, b"d"), record(10, 15, b"e")],
            ];
            let bytes: Vec<u8> = sets
                .iter()
                .flat_map(|set| messages(magic, codec, None, set))
                .collect();
            place.write(&[(0, &bytes)]);
            place.convert(None).unwrap();
            let found: Vec<_> = headers(&place.new_one())
                .iter()
                .map(|header| {
                    (
                        header.base_offset.unwrap(),
                        header.last_offset,
                        header.codec(),
                    )
                })
                .collect();
            assert_eq!(
                found,
                [(0, 3, Ok(codec)), (4, 4, Ok(codec)), (9, 10, Ok(codec))]
            );
            let offsets = |path: &Path| -> Vec<_> {
                let rows = rows(path).into_iter();
                rows.map(|(offset, timestamp, _, key, value)| (offset, timestamp, key, value))
                    .collect()
            };
            assert_eq!(offsets(&place.new_one()), offsets(&place.old()));
        }
    }
}

#[test]
fn a_set_reaches_to_the_offset_of_its_wrapper() {
    let place = Place::new();
    let inner = messages(
        0,
        Codec::None,
        None,
        &[record(2, 0, b"a"), record(3, 0, b"b")],
    );
    let mut compressed = Vec::new();
    let mut compressor = crate::codec::Compressor::new();
    offsetlog_format::builder::Compress::compress(
        &mut compressor,
        Codec::Gzip,
        0,
        &inner,
        &mut compressed,
    )
    .unwrap();
    let mut bytes = Vec::new();
    let attributes = offsetlog_format::Attributes::new(Codec::Gzip, false);
    offsetlog_format::legacy::write_message(
        &mut bytes,
        0,
        11,
        -1,
        attributes,
        None,
        Some(&compressed),
    );
    place.write(&[(0, &bytes)]);
    let report = place.convert(Some(Codec::Zstd)).unwrap();
    let header = headers(&place.new_one())[0];
    assert_eq!(
        (header.base_offset, header.last_offset, header.codec()),
        (Some(2), 11, Ok(Codec::Zstd))
    );
    assert_eq!(report.log_end_offset, 12);
    assert_eq!(ends(&place.new_one()), ends(&place.old()));
}

#[test]
fn sets_that_reach_back_are_named() {
    let place = Place::new();
    let bytes = [
        messages(1, Codec::None, None, &[record(5, 0, b"a")]),
        messages(
            0,
            Codec::Gzip,
            None,
            &[record(5, 0, b"b"), record(6, 0, b"c")],
        ),
    ]
    .concat();
    place.write(&[(0, &bytes)]);
    let error = place.convert(None).unwrap_err();
    assert_eq!(error.kind().code(), "OffsetOrder");
    let position = messages(1, Codec::None, None, &[record(5, 0, b"a")]).len() as u64;
    assert_eq!(
        (error.position(), error.offset()),
        (Some(position), Some(6))
    );
    assert!(error.path().unwrap().starts_with(place.old()));
    assert_eq!(place.names(), Vec::<String>::new());
}

/// All fields of a batch of magic 2 are kept, in its codec and in another one.
#[test]
fn batches_of_magic_2_keep_what_they_say() {
    let place = Place::new();
    let options = OpenOptions::default();
    let log = LogWriter::open(place.old(), &options, &WriteOptions::default()).unwrap();
    for (slot, codec) in [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ]
    .into_iter()
    .enumerate()
    {
        let slot = slot as i32;
        let producer = Producer {
            producer_id: 7,
            producer_epoch: 2,
            base_sequence: slot * 2,
            is_transactional: true,
        };
        let mut batch = BatchBuilder::new(codec, producer);
        let now = crate::disk::wall_clock();
        batch
            .push(
                now,
                Some(b"k"),
                Some(b"v"),
                &[(b"h", Some(b"x")), (b"h", None)],
            )
            .unwrap();
        batch.push(now - 5, None, None, &[]).unwrap();
        let epoch = AppendOptions {
            leader_epoch: Some(slot),
            flush: false,
        };
        log.append(&mut batch, &epoch).unwrap();
    }
    let marker = MarkerOptions {
        producer_id: 7,
        producer_epoch: 2,
        commit: false,
        coordinator_epoch: 3,
        timestamp: None,
        transaction_version: 0,
    };
    log.append_marker(&marker, &AppendOptions::default())
        .unwrap();
    log.close().unwrap();
    let before = headers(&place.old());
    for codec in [
        None,
        Some(Codec::None),
        Some(Codec::Gzip),
        Some(Codec::Lz4),
        Some(Codec::Zstd),
    ] {
        let report = place.convert(codec).unwrap();
        let after = headers(&place.new_one());
        let expected: Vec<_> = before
            .iter()
            .zip(&after)
            .map(|(before, after)| {
                let kept = before.attributes.is_control() || codec.is_none();
                let codec = if kept {
                    before.codec().unwrap()
                } else {
                    codec.unwrap()
                };
                BatchHeader {
                    attributes: before.attributes.with_codec(codec),
                    size_bytes: after.size_bytes,
                    crc: after.crc,
                    ..*before
                }
            })
            .collect();
        assert_eq!(after, expected);
        assert_eq!(report.batches_kept, if codec.is_none() { 6 } else { 2 });
        assert_eq!((report.records, report.batches), (10, 6));
        let all = |path: PathBuf| {
            let log = Log::open(path, &options).unwrap();
            let mut scan = log.scan(&ScanOptions::default()).unwrap();
            let mut all = Vec::new();
            while let Some(mut batch) = scan.next_batch().unwrap() {
                all.extend(batch.to_records().unwrap());
            }
            (
                all,
                log.leader_epoch().unwrap(),
                fs::read(log.path().join(format!("{:020}.txnindex", 0))).unwrap(),
            )
        };
        assert_eq!(all(place.new_one()), all(place.old()));
        if codec.is_none() {
            let log = |path: PathBuf| fs::read(path.join(format!("{:020}.log", 0))).unwrap();
            assert_eq!(log(place.new_one()), log(place.old()));
        }
        fs::remove_dir_all(place.new_one()).unwrap();
    }
}

/// Gaps, empty batches, a missing leader epoch, a batch across the log start offset, offsets after the last batch.
#[test]
fn what_compaction_and_deletion_leave_is_kept() {
    let place = Place::new();
    let fields = |base_offset, leader_epoch| BatchFields {
        base_offset,
        leader_epoch,
        ..BatchFields::default()
    };
    let mut empty = batch(&fields(20, 4), &[]);
    let mut header = BatchHeader::parse(&empty).unwrap();
    header.last_offset = 25;
    header.producer_id = 9;
    header.producer_epoch = 0;
    header.base_sequence = 3;
    offsetlog_format::builder::finish_batch(&mut empty, 0, &header);
    let first = [
        batch(&fields(10, 3), &[record(10, 1, b"a"), record(13, 2, b"b")]),
        empty,
        batch(&fields(30, -1), &[record(31, 3, b"c")]),
        batch(&fields(6_000_000_000, 4), &[record(6_000_000_000, 3, b"d")]),
    ];
    // Too far apart for one segment.
    place.write(&[
        (0, &first[..3].concat()),
        (6_000_000_000, &first[3]),
        (12_000_000_000, b""),
    ]);
    for codec in [None, Some(Codec::Lz4)] {
        let report = place.convert(codec).unwrap();
        assert_eq!(ends(&place.new_one()), ends(&place.old()));
        assert_eq!(report.log_end_offset, 12_000_000_000);
        assert_eq!(rows(&place.new_one()), rows(&place.old()));
        let headers = headers(&place.new_one());
        let epochs: Vec<_> = headers
            .iter()
            .take(4)
            .map(|header| header.leader_epoch)
            .collect();
        assert_eq!(epochs, [3, 4, 4, 4]);
        assert_eq!(
            (
                headers[1].last_offset,
                headers[1].producer_id,
                headers[1].base_sequence
            ),
            (25, 9, 3)
        );
        let after = LogWriter::open(
            place.new_one(),
            &OpenOptions::default(),
            &WriteOptions::default(),
        )
        .unwrap();
        assert!(!after.recovery_report().is_changed());
        assert!(after.recovery_report().clean);
        after.close().unwrap();
        fs::remove_dir_all(place.new_one()).unwrap();
    }
}

#[test]
fn an_unfinished_end_is_left_out_and_told() {
    let place = Place::new();
    let bytes = messages(
        1,
        Codec::None,
        None,
        &[record(0, 0, b"a"), record(1, 0, b"b")],
    );
    place.write(&[(0, &bytes[..bytes.len() - 1])]);
    let report = place.convert(None).unwrap();
    let torn = report.torn_tail.unwrap();
    assert_eq!(
        (torn.position, torn.bytes),
        (bytes.len() as u64 / 2, bytes.len() as u64 / 2 - 1)
    );
    assert_eq!(rows(&place.new_one()).len(), 1);
}

#[test]
fn damage_makes_nothing() {
    let place = Place::new();
    let mut bytes = messages(
        1,
        Codec::None,
        None,
        &[record(0, 0, b"a"), record(1, 0, b"b")],
    );
    bytes[20] ^= 1;
    place.write(&[(0, &bytes)]);
    let error = place.convert(None).unwrap_err();
    assert_eq!(error.kind().code(), "CorruptBatch");
    assert_eq!(place.names(), Vec::<String>::new());
}

#[test]
fn old_logs_get_offsets() {
    for codec in [None, Some(Codec::Zstd)] {
        let place = Place::new();
        fs::create_dir_all(place.old()).unwrap();
        let mut first = Vec::new();
        write_old_message(&mut first, 0, Codec::None, b"one");
        write_old_message(&mut first, 1, Codec::None, b"");
        let mut set = Vec::new();
        let mut compressed = Vec::new();
        let mut compressor = crate::codec::Compressor::new();
        offsetlog_format::builder::Compress::compress(
            &mut compressor,
            Codec::Gzip,
            0,
            &first,
            &mut compressed,
        )
        .unwrap();
        write_old_message(&mut set, 1, Codec::Gzip, &compressed);
        let second = [set, first.clone(), b"\0\0\0".to_vec()].concat();
        fs::write(place.old().join(byte_offset_segment_name(4096)), &first).unwrap();
        fs::write(
            place
                .old()
                .join(byte_offset_segment_name(4096 + first.len() as i64)),
            &second,
        )
        .unwrap();
        let report = place.convert(codec).unwrap();
        let values = [b"one".as_slice(), b""].repeat(3);
        let expected: Vec<Row> = (0..)
            .zip(values)
            .map(|(offset, value)| {
                (
                    offset,
                    -1,
                    TimestampType::Create,
                    None,
                    Some(value.to_vec()),
                )
            })
            .collect();
        assert_eq!(rows(&place.new_one()), expected);
        let codecs: Vec<_> = headers(&place.new_one())
            .iter()
            .map(|header| header.codec().unwrap())
            .collect();
        let wanted = |old: Codec| codec.unwrap_or(old);
        assert_eq!(
            codecs,
            [
                wanted(Codec::None),
                wanted(Codec::Gzip),
                wanted(Codec::None)
            ]
        );
        assert_eq!((report.records, report.torn_tail.unwrap().bytes), (6, 3));
        assert_eq!(report.bytes_read, (first.len() + second.len() - 3) as u64);
        assert_eq!(ends(&place.new_one()), (0, 6));
    }
}
