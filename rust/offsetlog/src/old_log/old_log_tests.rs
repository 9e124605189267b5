//! Reads partitions of Kafka 0.7: positions, compressed sets, torn tails, damage and limits.

use super::*;
use crate::codec::Compressor;
use crate::limits::Limits;
use offsetlog_format::Codec;
use offsetlog_format::builder::Compress;
use offsetlog_format::name::byte_offset_segment_name;
use offsetlog_format::old_message::write_old_message;
use std::fs;

/// A partition directory `orders-0` with these files, each named by its start position.
fn directory(files: &[&[u8]]) -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("orders-0");
    fs::create_dir(&path).unwrap();
    let mut start = 0;
    for bytes in files {
        fs::write(path.join(byte_offset_segment_name(start)), bytes).unwrap();
        start += bytes.len() as i64;
    }
    (parent, path)
}

fn plain(values: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (slot, value) in values.iter().enumerate() {
        write_old_message(&mut bytes, (slot % 2) as i8, Codec::None, value);
    }
    bytes
}

fn set(codec: Codec, entries: &[u8]) -> Vec<u8> {
    let mut compressed = Vec::new();
    Compressor::new()
        .compress(codec, 0, entries, &mut compressed)
        .unwrap();
    let mut bytes = Vec::new();
    write_old_message(&mut bytes, 1, codec, &compressed);
    bytes
}

type Row = (i64, i64, Vec<u8>);

/// Reads everything from `start` on. Also returns the size of the torn tail, if there is one.
fn read(path: &Path, start: Option<i64>) -> Result<(Vec<Row>, Option<u64>)> {
    read_with(path, start, &OpenOptions::default())
}

fn read_with(
    path: &Path,
    start: Option<i64>,
    options: &OpenOptions,
) -> Result<(Vec<Row>, Option<u64>)> {
    let log = OldLog::open(path, options)?;
    let mut scan = log.scan(start)?;
    let mut rows = Vec::new();
    while let Some(entry) = scan.next_entry()? {
        rows.extend(
            entry
                .records()
                .map(|record| (record.offset, record.next_offset, record.value.to_vec())),
        );
    }
    Ok((rows, scan.torn_tail().map(|torn| torn.bytes)))
}

fn row(offset: i64, next_offset: i64, value: &[u8]) -> Row {
    (offset, next_offset, value.to_vec())
}

#[test]
fn plain_messages_have_the_positions_of_their_entries() {
    let first = plain(&[b"one", b"two"]);
    let second = plain(&[b"", b"four"]);
    let (_keep, path) = directory(&[&first, &second]);
    let rows = [
        row(0, 12, b"one"),
        row(12, 25, b"two"),
        row(25, 34, b""),
        row(34, 48, b"four"),
    ];
    assert_eq!(read(&path, None).unwrap(), (rows.to_vec(), None));
    for (slot, (offset, ..)) in rows.iter().enumerate() {
        let rest = rows[slot..].to_vec();
        assert_eq!(read(&path, Some(*offset)).unwrap(), (rest, None));
    }
    assert_eq!(read(&path, Some(48)).unwrap(), (vec![], None));
    let log = OldLog::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!((log.topic(), log.partition()), ("orders", 0));
    assert_eq!((log.start(), log.end(), log.size_bytes()), (0, 48, 48));
    for outside in [-1, 49] {
        let error = log.scan(Some(outside)).unwrap_err();
        assert!(matches!(
            error.kind(),
            ErrorKind::OffsetOutOfRange {
                log_end_offset: 48,
                ..
            }
        ));
    }
}

#[test]
fn a_place_within_an_entry_is_refused() {
    let bytes = plain(&[b"one", b"two", b"three"]);
    let (_keep, path) = directory(&[&bytes]);
    for start in 0..bytes.len() as i64 {
        let found = read(&path, Some(start));
        if [0, 12, 25].contains(&start) {
            assert!(found.is_ok(), "{start}");
        } else {
            let error = found.unwrap_err();
            assert!(error.to_string().starts_with("start: "), "{start} {error}");
        }
    }
}

#[test]
fn the_messages_of_a_set_share_its_position() {
    for codec in [Codec::Gzip, Codec::Snappy] {
        let inner = plain(&[b"two", b"three"]);
        let nested = [set(codec, &inner), plain(&[b"four"])].concat();
        let first = plain(&[b"one"]);
        let wrapper = set(codec, &nested);
        let last = plain(&[b"five"]);
        let (_keep, path) = directory(&[&[first.clone(), wrapper.clone(), last].concat()]);
        let at = first.len() as i64;
        let behind = at + wrapper.len() as i64;
        let rows = vec![
            row(0, at, b"one"),
            row(at, at, b"two"),
            row(at, at, b"three"),
            row(at, behind, b"four"),
            row(behind, behind + 13, b"five"),
        ];
        assert_eq!(read(&path, None).unwrap(), (rows, None));
    }
}

#[test]
fn a_log_begins_where_its_first_file_does() {
    let bytes = plain(&[b"one", b"two"]);
    let (_keep, path) = directory(&[]);
    fs::write(path.join(byte_offset_segment_name(1000)), &bytes).unwrap();
    let rows = vec![row(1000, 1012, b"one"), row(1012, 1025, b"two")];
    assert_eq!(read(&path, None).unwrap(), (rows, None));
}

#[test]
fn files_that_do_not_follow_each_other_are_refused() {
    let bytes = plain(&[b"one", b"two"]);
    for next in [24, 26] {
        let (_keep, path) = directory(&[&bytes]);
        fs::write(path.join(byte_offset_segment_name(next)), &bytes).unwrap();
        let error = OldLog::open(&path, &OpenOptions::default()).unwrap_err();
        let words = format!("begins at position {next} of the partition, 25 expected");
        assert!(error.to_string().starts_with(&words), "{error}");
    }
    for name in ["5.kafka", "x.kafka", "00000000000000000000.log"] {
        let (_keep, path) = directory(&[&bytes]);
        fs::write(path.join(name), b"").unwrap();
        let error = OldLog::open(&path, &OpenOptions::default()).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::LogDir { .. }),
            "{name} {error}"
        );
    }
    let (_keep, path) = directory(&[]);
    fs::write(path.join(byte_offset_segment_name(i64::MAX)), b"x").unwrap();
    assert!(OldLog::open(&path, &OpenOptions::default()).is_err());
}

/// Truncates at every byte: the complete entries and a torn tail remain. If another file follows, the directory is refused.
#[test]
fn an_unfinished_end_is_the_end_for_now() {
    let bytes = [
        plain(&[b"one"]),
        set(Codec::Gzip, &plain(&[b"two", b"three"])),
        plain(&[b"four"]),
    ]
    .concat();
    let (_keep, path) = directory(&[&bytes]);
    let (all, _) = read(&path, None).unwrap();
    for end in 0..bytes.len() {
        let (_keep, path) = directory(&[&bytes[..end]]);
        let (rows, torn) = read(&path, None).unwrap();
        assert_eq!(rows, all[..rows.len()], "{end}");
        let whole = rows.last().map_or(0, |(_, next, _)| *next as usize);
        assert_eq!(torn.unwrap_or(0), (end - whole) as u64, "{end}");
    }
    for tail in [
        vec![0; 100],
        vec![0xff; 100],
        vec![0, 0, 0, 20, 1, 0, 0, 0, 0, 0, 9, 9],
    ] {
        let (_keep, path) = directory(&[&[bytes.clone(), tail.clone()].concat()]);
        let found = read(&path, None).unwrap();
        assert_eq!(found, (all.clone(), Some(tail.len() as u64)));
    }
}

/// Flips every bit of every entry. If complete entries follow, this is reported as damage, and everything read before it is
/// correct.
#[test]
fn damage_with_whole_entries_behind_it_is_an_error() {
    let entries = plain(&[b"one", b"two", b"three", b"four"]);
    let (_keep, path) = directory(&[&entries]);
    let (all, _) = read(&path, None).unwrap();
    let last = all[3].0 as usize;
    let mut errors = 0;
    for at in 0..last {
        for bit in 0..8 {
            let mut bytes = entries.clone();
            bytes[at] ^= 1 << bit;
            // No checksum covers magic and attributes: apart from the codec bits, a flip there may go unnoticed.
            let (_keep, path) = directory(&[&bytes]);
            match read(&path, None) {
                Ok((rows, torn)) => {
                    assert_eq!(torn, None, "{at} {bit}");
                    assert_eq!(rows, all, "{at} {bit}");
                }
                Err(error) => {
                    assert!(
                        error.path().is_some() && error.position().is_some(),
                        "{error}"
                    );
                    assert!(error.position().unwrap() <= at as u64);
                    errors += 1;
                }
            }
        }
    }
    assert!(errors >= last * 7, "{errors} of {}", last * 8);
}

#[test]
fn a_closed_file_has_no_unfinished_end() {
    let bytes = plain(&[b"one", b"two"]);
    let cut = &bytes[..bytes.len() - 1];
    let (_keep, path) = directory(&[cut, &bytes]);
    let error = read(&path, None).unwrap_err();
    assert_eq!(error.kind().code(), "CorruptBatch");
    assert_eq!((error.position(), error.offset()), (Some(12), Some(12)));
    assert_eq!(
        error.to_string(),
        "0.7 message cut short: 13 bytes needed, 12 available; orders-0/00000000000000000000.kafka position 12, base offset 12"
    );
}

#[test]
fn an_entry_that_is_whole_but_for_its_magic_is_damage() {
    for (at, byte, name) in [(4, 7, "UnsupportedMagic"), (5, 3, "UnsupportedCodec")] {
        let mut bytes = Vec::new();
        write_old_message(&mut bytes, 1, Codec::None, b"one");
        bytes[at] = byte;
        let (_keep, path) = directory(&[&bytes]);
        assert_eq!(read(&path, None).unwrap_err().kind().code(), name);
    }
}

#[test]
fn a_set_that_cannot_be_unpacked_is_damage() {
    let inner = plain(&[b"one", b"two"]);
    let mut garbage = Vec::new();
    write_old_message(&mut garbage, 1, Codec::Gzip, b"no gzip at all");
    let mut deep = inner.clone();
    for _ in 0..9 {
        deep = set(Codec::Gzip, &deep);
    }
    for (bytes, name) in [
        (garbage, "Decompression"),
        (set(Codec::Gzip, &inner[..inner.len() - 1]), "InvalidRecord"),
        (deep, "InvalidRecord"),
    ] {
        let (_keep, path) = directory(&[&bytes]);
        assert_eq!(read(&path, None).unwrap_err().kind().code(), name);
    }
}

/// Sets that unpack to more than the limit, directly or nested.
#[test]
fn limits_hold() {
    let large = plain(&[&vec![b'x'; 5000]]);
    let twice = [
        set(Codec::Gzip, &large),
        set(
            Codec::Gzip,
            &[set(Codec::Gzip, &large), set(Codec::Gzip, &large)].concat(),
        ),
    ];
    for (bytes, limits, name) in [
        (
            &twice[0],
            Limits {
                max_decompressed_bytes: 4999,
                ..Limits::default()
            },
            "max_decompressed_bytes",
        ),
        (
            &twice[1],
            Limits {
                max_decompressed_bytes: 9999,
                ..Limits::default()
            },
            "max_decompressed_bytes",
        ),
        (
            &large,
            Limits {
                max_batch_bytes: 5000,
                ..Limits::default()
            },
            "max_batch_bytes",
        ),
    ] {
        let (_keep, path) = directory(&[bytes]);
        let options = OpenOptions {
            limits,
            ..OpenOptions::default()
        };
        let error = read_with(&path, None, &options).unwrap_err();
        match error.kind() {
            ErrorKind::Limit { name: found, .. } => assert_eq!(found.as_str(), name),
            _ => panic!("{error}"),
        }
        assert!(read(&path, None).is_ok());
    }
}

#[test]
fn an_interrupt_ends_it() {
    let (_keep, path) = directory(&[&set(Codec::Gzip, &plain(&[b"one"]))]);
    let options = OpenOptions {
        interrupt: Some(std::sync::Arc::new(|| true)),
        ..OpenOptions::default()
    };
    let error = read_with(&path, None, &options).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Interrupted));
}

/// Random bytes, and random changes of valid files: an error or rows, in bounded time, and never a panic.
#[test]
fn hostile_files_end_in_errors() {
    let seed = std::env::var("OFFSETLOG_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(0x0070_1f00_u64);
    println!("OFFSETLOG_SEED={seed}");
    let mut state = seed;
    let mut draw = move |below: usize| {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % below
    };
    let sound = [
        plain(&[b"one", b"two"]),
        set(Codec::Snappy, &plain(&[b"three", b"four"])),
        set(Codec::Gzip, &set(Codec::Gzip, &plain(&[b"five"]))),
        plain(&[b"six"]),
    ]
    .concat();
    let (mut read_whole, mut torn_or_refused) = (0, 0);
    for round in 0..600 {
        let mut bytes = if round % 3 == 0 {
            (0..draw(200)).map(|_| draw(4) as u8).collect()
        } else {
            sound.clone()
        };
        for _ in 0..draw(4) {
            if !bytes.is_empty() {
                let at = draw(bytes.len());
                bytes[at] = draw(256) as u8;
            }
        }
        let (_keep, path) = directory(&[&bytes]);
        match read(&path, None) {
            Ok((rows, None)) => {
                read_whole += 1;
                assert!(rows.len() <= 60, "{round}");
            }
            Ok((_, Some(torn))) => {
                torn_or_refused += 1;
                assert!(torn <= bytes.len() as u64);
            }
            Err(_) => torn_or_refused += 1,
        }
    }
    assert!(read_whole > 20 && torn_or_refused > 200);
}
