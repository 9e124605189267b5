//! What was counted gives the bytes that the map gives, and what is not as it was then is left to the map.

use super::*;
use crate::codec::Compressor;
use crate::config::LogConfig;
use offsetlog_format::builder::{BatchFields, NewRecord, finish_batch, write_batch};
use offsetlog_format::{Attributes, Codec};
use std::collections::HashMap;

const BASE: i64 = 500;
const CODECS: [Codec; 5] = [
    Codec::None,
    Codec::Gzip,
    Codec::Snappy,
    Codec::Lz4,
    Codec::Zstd,
];

fn plan() -> Plan {
    Plan {
        log_start: 0,
        first_dirty: 100,
        is_reset: false,
        first_uncleanable: 10_000,
        segments: Vec::new(),
        producers: HashMap::new(),
        config: LogConfig::default(),
        now: 1_000_000,
        horizon_from: 1_000_000,
    }
}

/// A batch of twenty records with gaps between their offsets, some with headers, one larger than short numbers can say.
fn batch(codec: Codec) -> (BatchHeader, Vec<u8>) {
    let large = vec![7; 3 << 20];
    let headers = [(&b"name"[..], Some(&b"header"[..])), (b"null", None)];
    let keys: Vec<_> = (0..20).map(key).collect();
    let records = keys.iter().zip(0..).map(|(key, slot)| NewRecord {
        offset: offset(slot),
        timestamp: 1000 - slot * 7,
        key: Some(key),
        value: Some(if slot == 11 { &large } else { b"value" }),
        headers: if slot % 3 == 1 { &headers } else { &[] },
    });
    let fields = BatchFields {
        base_offset: BASE,
        leader_epoch: 3,
        attributes: Attributes::new(codec, false),
        append_time: -1,
        producer_id: 9,
        producer_epoch: 1,
        base_sequence: 40,
    };
    let records: Vec<_> = records.collect();
    let (mut bytes, mut codec) = (Vec::new(), Compressor::new());
    write_batch(&mut bytes, &fields, &records, &mut codec, &mut Vec::new()).unwrap();
    (BatchHeader::parse(&bytes).unwrap(), bytes)
}

fn key(slot: i64) -> Vec<u8> {
    format!("key-{slot}").into_bytes()
}

const fn offset(slot: i64) -> i64 {
    BASE + 2 * slot
}

/// The map and the notes of a log in which later records replace those with the bits of `replaced`.
fn known(replaced: u32) -> (OffsetMap, Replaced) {
    let (mut map, mut notes) = (OffsetMap::new(1 << 16).unwrap(), Replaced::new(100));
    for slot in 0..20 {
        let fingerprint = map.fingerprint(&key(slot));
        map.put(fingerprint, offset(slot)).unwrap();
        if replaced & (1 << slot) != 0 {
            let before = map.put(fingerprint, 2000 + slot).unwrap().unwrap();
            notes.note(before);
        }
    }
    (map, notes)
}

const fn counts(replaced: u32) -> Counts {
    Counts {
        read: 20,
        kept: 20 - replaced.count_ones() as u64,
    }
}

const STANDING: Standing = Standing {
    data: Data::Committed,
    ended_before: false,
};

#[test]
fn what_was_counted_gives_the_bytes_of_the_map() {
    let plan = plan();
    let mut filter = Filter::new(1 << 30);
    for codec in CODECS {
        let (header, bytes) = batch(codec);
        for replaced in [1, 0x8_0000, 0x5_5555, 0xa_aaaa, 0x800, 0xf_f7ff, 0x7_fffe] {
            let (map, notes) = known(replaced);
            let context = CleanContext {
                plan: &plan,
                map: &map,
                replaced: &notes,
                end: 3000,
                keeps_old_tombstones: false,
            };
            let (mut expected, mut found) = (b"before".to_vec(), b"before".to_vec());
            let by_map = filter
                .clean(&context, &header, &bytes, STANDING, &mut expected)
                .unwrap();
            let counts = counts(replaced);
            let counted = filter
                .clean_counted(&context, &header, &bytes, counts, &mut found)
                .unwrap();
            assert!(found == expected, "{codec:?} {replaced:x}");
            assert_eq!(counted.header, by_map.header);
            assert_eq!(counted.counts, by_map.counts);
            assert_eq!(counted.counts, counts);
        }
    }
}

#[test]
fn what_is_not_as_it_was_is_left_to_the_map() {
    let plan = plan();
    let mut filter = Filter::new(1 << 30);
    let replaced = 0x5_5555;
    let (map, notes) = known(replaced);
    let far = Replaced::new(BASE + 20);
    for codec in CODECS {
        let (header, bytes) = batch(codec);
        let mut refuses = |notes: &Replaced, header: &BatchHeader, bytes: &[u8], counts| {
            let context = CleanContext {
                plan: &plan,
                map: &map,
                replaced: notes,
                end: 3000,
                keeps_old_tombstones: false,
            };
            let mut out = b"before".to_vec();
            let cleaned = filter.clean_counted(&context, header, bytes, counts, &mut out);
            assert!(cleaned.is_none() && out == b"before", "{codec:?}");
        };
        let right = counts(replaced);
        // A byte changed, and the end is cut off.
        let mut other = bytes.clone();
        other[100] ^= 1;
        refuses(&notes, &header, &other, right);
        refuses(&notes, &header, &bytes[..bytes.len() - 1], right);
        // It has other records than those that were counted.
        refuses(&notes, &header, &bytes, counts(0x5_5554));
        refuses(&notes, &header, &bytes, Counts { read: 19, ..right });
        // Of some of them, or all, nothing was noted.
        refuses(&far, &header, &bytes, right);
        refuses(&Replaced::new(i64::MAX), &header, &bytes, right);
        // A checksum that is right, over records that are not.
        other.clone_from(&bytes);
        other[61] ^= 0x80;
        let crc = finish_batch(&mut other, 0, &header);
        refuses(&notes, &BatchHeader { crc, ..header }, &other, right);
    }
}
