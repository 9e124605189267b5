//! What is fuzzed: each takes any bytes and must come back. `fuzz/` hands them to libFuzzer, row 12 runs them on what is kept of its finds.
//!
//! They panic where an answer contradicts itself, so that a fuzzer sees it.

use crate::plain::{self, PlainRecord};
use crate::run::{clock, options};
use crate::still::StillDisk;
use offsetlog::format::clean_shutdown::read_broker_epoch;
use offsetlog::format::cursor::Reader;
use offsetlog::format::index_entry::{
    OffsetIndexEntry, TimeIndexEntry, check_offset_index, check_time_index, offset_entry_count,
    read_transaction_index, time_entry_count,
};
use offsetlog::format::internal_topic::{
    CoordinatorTopic, MetadataRecord, decode_assignment, decode_control, decode_subscription,
};
use offsetlog::format::legacy::{Message, MessageSet, single_record};
use offsetlog::format::old_message::{OldMessage, OldMessages, is_whole_old_entry};
use offsetlog::format::protocol::{self, RequestHeader, ResponseHeader};
use offsetlog::format::snapshot::{read_producer_snapshot, write_producer_snapshot};
use offsetlog::format::v2::RecordsV2;
use offsetlog::format::zookeeper::{
    LogPiece, SnapshotPiece, SnapshotReader, read_log_header, read_log_piece,
};
use offsetlog::format::{
    BatchHeader, BatchView, ControlRecord, ControlType, DirectoryName, Frame, LeaderEpochs,
    MetaProperties, OffsetCheckpoint, Part, PartitionMetadata, RecordView,
};
use offsetlog::format::{checksum, json};
use offsetlog::{Isolation, Limits, Log, OnCorrupt, OpenOptions, ScanOptions, VerifyOptions};
use std::path::Path;
use std::sync::Arc;

/// Name and entry of a target.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 11] = [
    ("batch", batch),
    ("checkpoint", checkpoint),
    ("index", index),
    ("legacy", legacy),
    ("message", message),
    ("old_message", old_message),
    ("open_log", open_log),
    ("plain", plain),
    ("protocol", protocol),
    ("snapshot", snapshot),
    ("zookeeper", zookeeper),
];

/// A batch of any magic: headers, checksum, records and headers of records where the payload is not compressed.
///
/// # Panics
/// For more records than bytes.
pub fn batch(bytes: &[u8]) {
    let _ = Frame::parse(bytes);
    let _ = BatchHeader::parse(bytes);
    let Ok(view) = BatchView::parse(bytes) else {
        return;
    };
    // A wrong checksum must not keep the fuzzer out of what is behind it.
    let _ = view.check_crc();
    let Ok(mut records) = RecordsV2::new(&view.header, view.payload()) else {
        return;
    };
    let mut seen = 0_usize;
    while let Ok(Some(record)) = records.next_record() {
        seen += 1;
        assert_eq!(record.headers.iter().count(), record.headers.len());
    }
    // Each record takes at least one byte: a count from the file never makes more of them.
    assert!(seen <= bytes.len());
}

/// The text files of log dirs and partitions.
///
/// # Panics
/// For what was read and is not read again when it is written.
pub fn checkpoint(bytes: &[u8]) {
    if let Ok(checkpoint) = OffsetCheckpoint::parse(bytes)
        && let Ok(written) = checkpoint.write()
    {
        assert_eq!(OffsetCheckpoint::parse(&written).ok(), Some(checkpoint));
    }
    let _ = LeaderEpochs::parse(bytes);
    let _ = LeaderEpochs::parse_strict(bytes);
    let _ = PartitionMetadata::parse(bytes);
    let _ = MetaProperties::parse(bytes);
    let _ = read_broker_epoch(bytes);
    if let Ok(name) = std::str::from_utf8(bytes) {
        let _ = DirectoryName::parse(name);
    }
}

/// Offset, time and transaction indexes; the first eight bytes are the segment's base offset.
///
/// # Panics
/// For a transaction index that is not written as it was read.
pub fn index(bytes: &[u8]) {
    let Some((base_offset, bytes)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let base_offset = i64::from_be_bytes(*base_offset);
    for slot in 0..=offset_entry_count(bytes) {
        let _ = OffsetIndexEntry::read(bytes, slot, base_offset);
    }
    for slot in 0..=time_entry_count(bytes) {
        let _ = TimeIndexEntry::read(bytes, slot, base_offset);
    }
    let _ = check_offset_index(bytes, base_offset);
    let _ = check_time_index(bytes, base_offset);
    if let Ok(entries) = read_transaction_index(bytes, base_offset) {
        let mut written = Vec::new();
        for entry in &entries {
            entry.write(&mut written);
        }
        assert_eq!(written, bytes[..written.len()]);
    }
}

/// Messages of magic 0 and 1, and the sets that wrap them, the bytes behind the first message being the set.
///
/// # Panics
/// For more records than bytes, or offsets that do not ascend.
pub fn legacy(bytes: &[u8]) {
    let Ok(view) = BatchView::parse(bytes) else {
        return;
    };
    let _ = view.check_crc();
    let _ = Message::parse(&view);
    let _ = single_record(&view);
    for set in [&bytes[view.bytes().len()..], view.bytes()] {
        let Ok(messages) = MessageSet::new(&view.header, set) else {
            continue;
        };
        let mut messages = messages.not_below(view.header.last_offset / 2);
        let (mut seen, mut next) = (0_usize, view.header.last_offset / 2);
        while let Ok(Some(record)) = messages.next_record() {
            assert!(record.offset >= next);
            next = record.offset.saturating_add(1);
            seen += 1;
        }
        assert!(seen <= bytes.len());
    }
}

/// Records of internal topics: the first byte chooses among kinds, the second says how long the key is.
pub fn message(bytes: &[u8]) {
    let Some((&[kind, key_length], rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let (key, value) = rest.split_at(rest.len().min(usize::from(key_length)));
    let topic = match kind % 8 {
        0 => CoordinatorTopic::ConsumerOffsets,
        1 => CoordinatorTopic::TransactionState,
        2 => CoordinatorTopic::ShareGroupState,
        3 => {
            let _ = MetadataRecord::decode(rest);
            return;
        }
        4 => {
            let _ = decode_subscription(rest);
            return;
        }
        5 => {
            let _ = decode_assignment(rest);
            return;
        }
        _ => {
            let _ = ControlRecord::parse(Some(key), Some(value));
            if let Ok(control) = ControlType::parse_key(Some(key)) {
                let _ = decode_control(control, value);
            }
            return;
        }
    };
    let _ = topic.decode(key, Some(value));
}

/// A frame without its length: a request as a server gets it, or behind an odd byte, an API and a version, a response as a client does.
///
/// # Panics
/// For a message that, once read, cannot be written or is then read as another.
pub fn protocol(bytes: &[u8]) {
    let Some((&kind, frame)) = bytes.split_first() else {
        return;
    };
    let mut reader = Reader::new(frame, Part::Protocol);
    let (message, version) = if kind % 2 == 0 {
        let Ok(header) = RequestHeader::read(&mut reader) else {
            return;
        };
        let Some(api) = protocol::api(header.api_key) else {
            return;
        };
        (&api.request, header.api_version)
    } else {
        let (Ok(key), Ok(version)) = (reader.read_i8(), reader.read_i8()) else {
            return;
        };
        let Some(api) = protocol::api(key.into()) else {
            return;
        };
        if ResponseHeader::read(api, version.into(), &mut reader).is_err() {
            return;
        }
        (&api.response, version.into())
    };
    let Ok(read) = message.read(version, &mut reader) else {
        return;
    };
    let mut again = Vec::new();
    let written = message.write(version, &read, &mut again);
    assert!(written.is_ok_and(|holes| holes.is_empty()));
    let back = message.read(version, &mut Reader::new(&again, Part::Protocol));
    assert_eq!(back.as_ref(), Ok(&read));
}

/// Messages of Kafka 0.7, and a run of them as a compressed set holds it.
///
/// # Panics
/// For a message that is larger than the bytes.
pub fn old_message(bytes: &[u8]) {
    let whole = is_whole_old_entry(bytes);
    if let Ok(message) = OldMessage::parse(bytes) {
        assert!(message.size_bytes <= bytes.len());
        assert!(message.payload.len() < message.size_bytes);
        let sound = message.check_crc().is_ok() && !message.payload.is_empty();
        assert!(whole || !sound);
    }
    let mut messages = OldMessages::new(bytes);
    let mut seen = 0_usize;
    while let Ok(Some(message)) = messages.next_message() {
        seen += message.size_bytes;
    }
    assert!(seen <= bytes.len());
}

/// A whole partition directory: three lengths of two bytes, then `.index`, `.timeindex`, `.txnindex`, and the rest is the `.log`.
///
/// # Panics
/// For a scan whose offsets do not ascend.
pub fn open_log(bytes: &[u8]) {
    let Some((lengths, mut rest)) = bytes.split_first_chunk::<6>() else {
        return;
    };
    let disk = StillDisk::new();
    let partition = Path::new("/fuzz/fuzz-0");
    let put = |suffix: &str, bytes: &[u8]| {
        let path = partition.join(format!("{:020}{suffix}", 0));
        disk.put(&path, &Arc::new(bytes.to_vec()));
    };
    for (length, suffix) in lengths.chunks(2).zip([".index", ".timeindex", ".txnindex"]) {
        let length = usize::from(length[0]) << 8 | usize::from(length[1]);
        let (front, behind) = rest.split_at(rest.len().min(length));
        put(suffix, front);
        rest = behind;
    }
    put(".log", rest);
    let options = OpenOptions {
        limits: Limits {
            max_batch_bytes: 1 << 20,
            max_decompressed_bytes: 4 << 20,
            ..Limits::default()
        },
        ..options(Arc::new(disk), &clock())
    };
    let Ok(log) = Log::open(partition, &options) else {
        return;
    };
    look_up(&log);
    let _ = log.verify(&VerifyOptions::default());
    for on_corrupt in [OnCorrupt::Raise, OnCorrupt::Skip] {
        scan(&log, on_corrupt);
    }
}

fn look_up(log: &Log) {
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        let _ = log.offset_for_timestamp(1_700_000_000_000, isolation);
    }
    let _ = log.last_stable_offset();
    if let Ok(end) = log.log_end_offset() {
        for offset in [0, end / 2, end.saturating_sub(1)] {
            let _ = log.get(offset);
            let _ = log.locate(offset);
        }
    }
    if let Ok(batches) = log.batches(None, None) {
        let _ = batches.take(10_000).filter(Result::is_err).count();
    }
}

fn scan(log: &Log, on_corrupt: OnCorrupt) {
    let options = ScanOptions {
        on_corrupt,
        ..ScanOptions::default()
    };
    let Ok(mut scan) = log.scan(&options) else {
        return;
    };
    let mut left = 100_000_u32;
    let mut next = 0;
    while let Ok(Some(mut batch)) = scan.next_batch() {
        while let Ok(Some(record)) = batch.next_record() {
            assert!(record.offset >= next, "{} behind {next}", record.offset);
            next = record.offset.saturating_add(1);
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }
}

/// Batches as the engine's parser reads them, beside a slow plain one.
///
/// # Panics
/// Where they disagree.
pub fn plain(bytes: &[u8]) {
    let ours = BatchView::parse(bytes).ok();
    let theirs = plain::batch(bytes);
    assert_eq!(ours.is_some(), theirs.is_some(), "whole");
    let (Some(ours), Some(theirs)) = (ours, theirs) else {
        return;
    };
    let header = &ours.header;
    assert_eq!(
        (
            header.size_bytes,
            header.magic as u8,
            header.attributes.codec_number(),
            header.last_offset,
        ),
        (theirs.size, theirs.magic, theirs.codec, theirs.last_offset,)
    );
    assert_eq!(ours.check_crc().is_ok(), theirs.is_sound, "checksum");
    if theirs.codec != 0 {
        return;
    }
    let records = if header.magic == 2 {
        RecordsV2::new(header, ours.payload())
            .ok()
            .and_then(|mut records| {
                let mut all = Vec::new();
                loop {
                    match records.next_record() {
                        Ok(Some(record)) => all.push(owned(&record)),
                        Ok(None) => return Some(all),
                        Err(_) => return None,
                    }
                }
            })
    } else {
        single_record(&ours).ok().map(|record| vec![owned(&record)])
    };
    assert_eq!(records, theirs.records, "records");
}

fn owned(record: &RecordView<'_>) -> PlainRecord {
    PlainRecord {
        offset: record.offset,
        timestamp: record.timestamp,
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        headers: record
            .headers
            .iter()
            .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
            .collect(),
    }
}

/// Producer snapshots: what can be read can be written, and reads as the same again.
///
/// # Panics
/// Where it does not.
pub fn snapshot(bytes: &[u8]) {
    if let Ok(entries) = read_producer_snapshot(bytes)
        && let Ok(written) = write_producer_snapshot(&entries)
    {
        assert_eq!(read_producer_snapshot(&written).ok(), Some(entries));
    }
}

/// By the first byte a snapshot of ZooKeeper's, one of its logs, a transaction whose checksum is right, or what brokers kept in a node.
///
/// # Panics
/// For more changes than bytes, and for a snapshot that has no end.
pub fn zookeeper(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind % 4 {
        0 => {
            let (mut reader, mut rest) = (SnapshotReader::default(), bytes);
            // A list that is empty is a piece of no bytes.
            for _ in 0..bytes.len() + 3 {
                match reader.next(rest, true) {
                    Ok((SnapshotPiece::End, _)) | Err(_) => return,
                    Ok((_, used)) => rest = &rest[used..],
                }
            }
            panic!("no end");
        }
        1 => {
            let Ok(mut at) = read_log_header(bytes) else {
                return;
            };
            while let Ok((LogPiece::Transaction(found), used)) =
                read_log_piece(&bytes[at..], true, 4096)
            {
                let _ = found.changes();
                at += used;
            }
        }
        2 => {
            let mut sum = checksum::Adler32::default();
            sum.update(bytes);
            let mut entry = i64::from(sum.value()).to_be_bytes().to_vec();
            entry.extend((bytes.len() as i32).to_be_bytes());
            entry.extend(bytes);
            entry.push(b'B');
            if let Ok((LogPiece::Transaction(found), _)) = read_log_piece(&entry, true, bytes.len())
                && let Ok(changes) = found.changes()
            {
                assert!(changes.len() <= bytes.len());
            }
        }
        _ => {
            let _ = json::string(bytes);
            let _ = json::strings(bytes);
            for (_, value) in json::members(bytes).unwrap_or_default() {
                let _ = json::integer(value);
                let _ = json::integers(value);
                let _ = json::members(value);
            }
        }
    }
}
