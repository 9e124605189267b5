//! What an append stores, and what of it a log then says.

use crate::common::{
    NOW, Place, Sent, append, append_in, bases, bounds, coordinate, end, follow, lead, log_file,
    offsets, produce, records, rows, sent, stored, values,
};
use offsetlog::format::Codec;
use offsetlog::{
    AppendInfo, AppendLogOptions, AppendOptions, AppendOrigin, BatchBuilder, Producer,
};
use offsetlog_faults::batch::encode;

fn left_out(bytes: usize, info: AppendInfo) -> AppendInfo {
    AppendInfo {
        left_out_bytes: bytes as u64,
        ..info
    }
}

fn info(base_offset: i64, last_offset: i64, max_timestamp: i64) -> AppendInfo {
    AppendInfo {
        base_offset,
        last_offset,
        max_timestamp,
        log_append_time: -1,
        duplicate: false,
        left_out_bytes: 0,
    }
}

#[test]
fn records_get_the_next_offsets_and_are_stored_as_kafka_encodes_them() {
    let place = Place::new();
    let log = place.open(&[]);
    assert_eq!(bounds(&log), (0, 0, 0));
    assert_eq!(append(&log, &["a"]), info(0, 0, NOW));
    assert_eq!(append(&log, &["b", "c"]), info(1, 2, NOW));
    let expected = [stored(0, &["a"]), stored(1, &["b", "c"])].concat();
    assert_eq!(place.bytes(&log_file(0)), expected);
    assert_eq!(bounds(&log), (0, 3, 3));
    assert_eq!(log.high_watermark().unwrap(), 3);
    assert_eq!(values(&log), ["a", "b", "c"]);
    assert_eq!(place.epochs(), "0\n1\n0 0\n");
}

#[test]
fn every_field_of_a_record_comes_back() {
    let place = Place::new();
    let log = place.open(&[]);
    let headers: [(&[u8], Option<&[u8]>); 3] =
        [(b"trace", Some(b"1")), (b"trace", None), (b"", Some(b""))];
    let mut batch = BatchBuilder::default();
    batch
        .push(NOW + 5, Some(b"key"), Some(b"value"), &headers)
        .unwrap();
    batch.push(NOW - 7, None, None, &[]).unwrap();
    batch.push(-1, Some(b""), Some(b""), &[]).unwrap();
    log.append(&mut batch, &AppendOptions::default()).unwrap();
    assert!(batch.is_empty());
    let first = log.get(0).unwrap().unwrap();
    let parts = (first.key.as_deref(), first.value.as_deref());
    assert_eq!(parts, (Some(&b"key"[..]), Some(&b"value"[..])));
    let found: Vec<_> = first
        .headers
        .iter()
        .map(|header| (header.0.as_ref(), header.1.as_deref()))
        .collect();
    assert_eq!(found, headers);
    assert_eq!((first.timestamp, first.leader_epoch), (NOW + 5, 0));
    let second = log.get(1).unwrap().unwrap();
    assert_eq!(
        (second.key, second.value, second.timestamp),
        (None, None, NOW - 7)
    );
    let third = log.get(2).unwrap().unwrap();
    assert_eq!(third.key.as_deref(), Some(&b""[..]));
    assert_eq!(third.value.as_deref(), Some(&b""[..]));
    assert_eq!(third.timestamp, -1);
}

/// Kafka's `LogValidator` in place: offset and leader epoch, and nothing else.
#[test]
fn a_leader_changes_two_fields_of_a_batch_that_is_right() {
    let place = Place::new();
    let log = place.open(&[]);
    append(&log, &["first"]);
    for (number, batch) in [sent(&["x", "y"]), sent(&["x", "y"]).gzip()]
        .into_iter()
        .enumerate()
    {
        let options = AppendOptions {
            leader_epoch: Some(3),
            flush: false,
        };
        let base = 1 + 2 * number as i64;
        let given = log.append_batches(&batch.0, AppendOrigin::Client, &options);
        assert_eq!(given.unwrap(), info(base, base + 1, NOW));
        let bytes = place.bytes(&log_file(0));
        let at = bytes.len() - batch.len();
        assert_eq!(bytes[at..], batch.base(base).epoch(3).0);
    }
    assert_eq!(values(&log), ["first", "x", "y", "x", "y"]);
}

/// Contract 1.4: a false greatest timestamp is made right, and only then the bits of the attributes that mean nothing go.
#[test]
fn what_a_leader_mends_of_a_header() {
    let odd = 0x8080;
    let cases = [
        // Sent, and as it must stand there.
        (sent(&["a"]).attributes(odd), sent(&["a"]).attributes(odd)),
        (sent(&["a"]).times(NOW, NOW + 9), sent(&["a"])),
        (sent(&["a"]).attributes(odd).times(NOW, 5), sent(&["a"])),
        // Says that its time is that of the append, in a topic where it is that of creation.
        (sent(&["a"]).attributes(8), sent(&["a"])),
    ];
    for (number, (given, expected)) in cases.into_iter().enumerate() {
        let place = Place::new();
        let log = place.open(&[]);
        assert_eq!(lead(&log, &given).unwrap().max_timestamp, NOW, "{number}");
        assert_eq!(place.bytes(&log_file(0)), expected.0, "case {number}");
    }
}

#[test]
fn the_time_of_the_append_is_the_clocks() {
    let place = Place::new();
    let log = place.open(&[("message.timestamp.type", "LogAppendTime")]);
    place.set_clock(NOW + 10);
    let given = lead(&log, &sent(&["a", "b"]).times(5, 5)).unwrap();
    assert_eq!(
        (given.log_append_time, given.max_timestamp),
        (NOW + 10, NOW + 10)
    );
    // Records and first timestamp stay as they were sent.
    let expected = sent(&["a", "b"]).attributes(8).times(5, NOW + 10);
    assert_eq!(place.bytes(&log_file(0)), expected.0);
    place.set_clock(NOW + 20);
    assert_eq!(append(&log, &["c"]).log_append_time, NOW + 20);
    // A follower stores what its leader decided.
    follow(&log, &sent(&["d"]).base(3).times(7, 7).0, 0).unwrap();
    let times = [0, 1, 2, 3].map(|offset| log.get(offset).unwrap().unwrap().timestamp);
    assert_eq!(times, [NOW + 10, NOW + 10, NOW + 20, 7]);
}

/// Contract 1.4: encoded anew it is as if the same records had been encoded afresh.
#[test]
fn what_is_compressed_otherwise_is_encoded_anew() {
    let place = Place::new();
    let log = place.open(&[("compression.type", "uncompressed")]);
    append(&log, &["first"]);
    let given = lead(&log, &sent(&["x", "y"]).gzip().attributes(0x8001));
    assert_eq!(given.unwrap(), info(1, 2, NOW));
    let expected = [stored(0, &["first"]), stored(1, &["x", "y"])].concat();
    assert_eq!(place.bytes(&log_file(0)), expected);
    let batch = sent(&["z"]).gzip().producer(9, 1, 0);
    lead(&log, &batch).unwrap();
    assert_eq!(
        place.bytes(&log_file(0))[expected.len()..],
        sent(&["z"]).base(3).producer(9, 1, 0).0
    );
}

#[test]
fn each_codec_is_stored_as_the_settings_say() {
    let rows: Vec<String> = (0..50)
        .map(|n| format!("compress me {n} ").repeat(9))
        .collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let codecs = [
        (Codec::None, "uncompressed", 0),
        (Codec::Gzip, "gzip", 1),
        (Codec::Snappy, "snappy", 2),
        (Codec::Lz4, "lz4", 3),
        (Codec::Zstd, "zstd", 4),
    ];
    for (wanted, name, bits) in codecs {
        for (codec, _, sent_bits) in codecs {
            for (setting, expected) in [("producer", sent_bits), (name, bits)] {
                let place = Place::new();
                let log = place.open(&[("compression.type", setting)]);
                let mut batch = BatchBuilder::new(codec, Producer::default());
                for row in &rows {
                    batch.push(NOW, None, Some(row.as_bytes()), &[]).unwrap();
                }
                log.append(&mut batch, &AppendOptions::default()).unwrap();
                let attributes = place.bytes(&log_file(0))[22];
                assert_eq!(
                    attributes & 7,
                    expected,
                    "{codec:?} to {setting} of {wanted:?}"
                );
                assert_eq!(values(&log), rows);
            }
        }
    }
}

/// A message of magic 1 with a key, a value and a time, as FORMAT.md has it.
fn message(magic: u8, offset: i64, value: &[u8]) -> Vec<u8> {
    let mut body = vec![magic, 0];
    if magic == 1 {
        body.extend_from_slice(&NOW.to_be_bytes());
    }
    body.extend_from_slice(&1_i32.to_be_bytes());
    body.push(b'k');
    body.extend_from_slice(&(value.len() as i32).to_be_bytes());
    body.extend_from_slice(value);
    let mut crc = flate2::Crc::new();
    crc.update(&body);
    let mut bytes = offset.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    bytes.extend_from_slice(&crc.sum().to_be_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

/// Contract 1.4: all messages of an append become one batch; those of magic 0 have no time.
#[test]
fn messages_of_old_formats_become_one_batch() {
    for (magic, time) in [(1, NOW), (0, -1)] {
        let place = Place::new();
        let log = place.open(&[]);
        let both = [message(magic, 0, b"a"), message(magic, 0, b"b")].concat();
        let given = lead(&log, &Sent(both)).unwrap();
        assert_eq!(given, info(0, 1, time));
        let expected = encode(0, 0, time, &rows(&["a", "b"]));
        assert_eq!(place.bytes(&log_file(0)), *expected.bytes);
    }
}

#[test]
fn half_a_batch_behind_a_whole_one_is_left_out() {
    let place = Place::new();
    let log = place.open(&[]);
    let mut both = sent(&["a"]).0;
    both.extend_from_slice(&sent(&["b"]).0[..69]);
    assert_eq!(
        lead(&log, &Sent(both)).unwrap(),
        left_out(69, info(0, 0, NOW))
    );
    assert_eq!(place.bytes(&log_file(0)), stored(0, &["a"]));
    // Nothing whole at all is nothing to append.
    let half = sent(&["b"]).base(1).0[..69].to_vec();
    assert_eq!(
        follow(&log, &half, 0).unwrap(),
        left_out(69, info(-1, -1, -1))
    );
    assert_eq!(log.log_end_offset().unwrap(), 1);
}

#[test]
fn a_coordinators_base_offset_is_overwritten() {
    let place = Place::new();
    let log = place.open(&[]);
    assert_eq!(
        coordinate(&log, &sent(&["a"]).base(77)).unwrap(),
        info(0, 0, NOW)
    );
    assert_eq!(place.bytes(&log_file(0)), stored(0, &["a"]));
}

#[test]
fn a_follower_stores_bytes_offsets_and_gaps_as_they_are() {
    let place = Place::new();
    let log = place.open(&[]);
    let first = sent(&["a", "b"]).base(100).epoch(2).attributes(0x8080);
    let second = sent(&["c"]).base(150).epoch(5).times(NOW, NOW + 99);
    let both = [first.0, second.0].concat();
    assert_eq!(follow(&log, &both, 5).unwrap(), info(100, 150, NOW + 99));
    assert_eq!(place.bytes(&log_file(0)), both);
    assert_eq!(offsets(&log), [100, 101, 150]);
    assert_eq!(bounds(&log), (0, 151, 151));
    assert!(log.get(120).unwrap().is_none());
    assert_eq!(place.epochs(), "0\n2\n2 100\n5 150\n");
    // A batch without records moves the end.
    let empty = sent(&[]).base(151).epoch(5).count(0).last_delta(4);
    assert_eq!(follow(&log, &empty.0, 5).unwrap().last_offset, 155);
    assert_eq!(log.log_end_offset().unwrap(), 156);
}

/// Contract 1.3, 2c: from the first batch of a newer epoch on all is left out.
#[test]
fn a_follower_leaves_newer_epochs_out() {
    let place = Place::new();
    let log = place.open(&[]);
    let (old, new) = (sent(&["a"]).epoch(2), sent(&["b"]).base(1).epoch(3));
    let late = sent(&["c"]).base(2).epoch(2);
    let before = place.files();
    assert_eq!(
        follow(&log, &new.0, 2).unwrap(),
        left_out(new.0.len(), info(-1, -1, -1))
    );
    assert_eq!(place.files(), before);
    let behind = new.0.len() + late.0.len();
    let all = [old.0, new.0, late.0].concat();
    assert_eq!(
        follow(&log, &all, 2).unwrap(),
        left_out(behind, info(0, 0, NOW))
    );
    assert_eq!(
        (values(&log), place.epochs()),
        (vec!["a".to_owned()], "0\n1\n2 0\n".to_owned())
    );
}

/// Contract 5: the cache 1@0 3@3 7@6 of a log that ends at 8.
#[test]
fn epochs_are_kept_and_asked_for() {
    let place = Place::new();
    let log = place.open(&[]);
    assert_eq!(log.leader_epoch().unwrap(), None);
    assert_eq!(log.end_offset_for_epoch(0), None);
    append_in(&log, 1, &["a", "b", "c"]);
    append_in(&log, 3, &["d", "e"]);
    // Without an epoch it is the newest one.
    append(&log, &["f"]);
    append_in(&log, 7, &["g", "h"]);
    assert_eq!(place.epochs(), "0\n3\n1 0\n3 3\n7 6\n");
    let asked = [-1, 0, 1, 2, 3, 6, 7, 8].map(|epoch| log.end_offset_for_epoch(epoch));
    let expected = [
        None,
        Some((0, 0)),
        Some((1, 3)),
        Some((1, 3)),
        Some((3, 6)),
        Some((3, 6)),
        Some((7, 8)),
        None,
    ];
    assert_eq!(asked, expected);
    assert_eq!(log.leader_epoch().unwrap(), Some(7));
    let stored: Vec<i32> = (place.batches(0).iter()).map(|batch| batch.epoch).collect();
    assert_eq!(stored, [1, 3, 3, 7]);
}

/// Contract 6: an epoch below the newest takes those at or above it away.
#[test]
fn an_older_epoch_replaces_newer_ones() {
    let place = Place::new();
    let log = place.open(&[]);
    for (epoch, base) in [(1, 0), (3, 3), (7, 6)] {
        follow(&log, &sent(&["a"]).base(base).epoch(epoch).0, 9).unwrap();
    }
    follow(&log, &sent(&["b"]).base(20).epoch(5).0, 9).unwrap();
    assert_eq!(place.epochs(), "0\n3\n1 0\n3 3\n5 20\n");
}

/// Key: version and type; value: version and the coordinator's epoch (FORMAT.md «Control records»).
#[test]
fn a_marker_is_a_control_batch() {
    for (commit, kind) in [(false, 0), (true, 1)] {
        let place = Place::new();
        let log = place.open(&[]);
        produce(&log, (5, 2, 0), true, &["a"]).unwrap();
        let options = offsetlog::MarkerOptions {
            coordinator_epoch: 0x0102_0304,
            timestamp: Some(NOW + 9),
            ..crate::common::marker(5, 2, commit)
        };
        let given = log.append_marker(&options, &AppendOptions::default());
        assert_eq!(given.unwrap(), info(1, 1, NOW + 9));
        let row = (Some(vec![0, 0, 0, kind]), Some(vec![0, 0, 1, 2, 3, 4]));
        let plain = Sent(encode(1, 0, NOW + 9, &[row]).bytes.to_vec());
        let expected = plain.attributes(0x30).producer(5, 2, -1);
        let bytes = place.bytes(&log_file(0));
        assert_eq!(bytes[bytes.len() - expected.len()..], expected.0);
        // It is no record.
        assert_eq!(values(&log), ["a"]);
        assert!(log.get(1).unwrap().is_none());
        assert_eq!(log.log_end_offset().unwrap(), 2);
    }
}

/// Contract 1.3, 13: points 0, 2, 2, 4, 4 with `flush.messages` 2.
#[test]
fn flush_messages_makes_every_second_append_durable() {
    let place = Place::new();
    let log = place.open(&[("flush.messages", "2")]);
    let points = ["a", "b", "c", "d", "e"].map(|value| {
        append(&log, &[value]);
        log.recovery_point()
    });
    assert_eq!(points, [0, 2, 2, 4, 4]);
}

#[test]
fn what_is_flushed_is_on_the_disk_without_power() {
    use offsetlog_faults::sim::{Cut, Fill};
    let place = Place::new();
    let log = place.open(&[]);
    let flush = AppendOptions {
        leader_epoch: None,
        flush: true,
    };
    let mut batch = crate::common::builder(Producer::default(), &["a"]);
    log.append(&mut batch, &flush).unwrap();
    append(&log, &["b"]);
    log.flush().unwrap();
    append(&log, &["lost"]);
    assert_eq!(log.recovery_point(), 2);
    let mut rng = fastrand::Rng::with_seed(1);
    let world = place
        .disk
        .world()
        .crash(Cut::Nothing, Fill::Zeros, &mut rng);
    assert_eq!(values(&Place::of(world).again()), ["a", "b"]);
    // A kill loses nothing.
    let world = place
        .disk
        .world()
        .crash(Cut::Process, Fill::Zeros, &mut rng);
    assert_eq!(values(&Place::of(world).again()), ["a", "b", "lost"]);
}

#[test]
fn flush_ms_makes_the_next_append_durable() {
    let place = Place::new();
    let log = place.open(&[("flush.ms", "100000")]);
    append(&log, &["a"]);
    assert_eq!(log.recovery_point(), 0);
    place.set_clock(NOW + 100_000);
    append(&log, &["b"]);
    assert_eq!(log.recovery_point(), 2);
}

#[test]
fn another_logs_batches_get_the_next_offsets_or_keep_their_own() {
    let from = Place::new();
    let source = from.open(&[]);
    follow(&source, &sent(&["x", "y"]).base(10).epoch(4).0, 9).unwrap();
    follow(&source, &sent(&["z"]).base(20).epoch(6).0, 9).unwrap();
    for (keep_offsets, expected, epochs) in [
        // The distance between batches stays.
        (false, vec![1, 2, 11], "0\n2\n0 0\n2 1\n"),
        (true, vec![10, 11, 20], "0\n3\n0 0\n4 10\n6 20\n"),
    ] {
        let place = Place::new();
        let log = place.open(&[]);
        append(&log, &["first"]);
        let options = AppendLogOptions {
            keep_offsets,
            append: AppendOptions {
                leader_epoch: (!keep_offsets).then_some(2),
                flush: true,
            },
            ..AppendLogOptions::default()
        };
        let given = log.append_log(&source, &options).unwrap();
        assert_eq!(
            (given.base_offset, given.last_offset),
            (expected[0], expected[2])
        );
        assert_eq!(offsets(&log)[1..], expected);
        assert_eq!(place.epochs(), epochs);
        assert_eq!(log.recovery_point(), expected[2] + 1);
        // No byte that the checksum covers is another.
        for (found, sent) in place.batches(0)[1..].iter().zip(from.batches(0)) {
            assert_eq!(found.bytes[16..], sent.bytes[16..]);
        }
    }
}

/// Contract 3: 32-bit distances inside a segment.
#[test]
fn a_jump_begins_a_segment() {
    let far = [0, (1 << 31) - 1, (1 << 31) + 5, 1 << 32, 1 << 62];
    let place = Place::new();
    let log = place.open(&[]);
    for offset in far {
        follow(&log, &sent(&["a"]).base(offset).0, 0).unwrap();
    }
    assert_eq!(bases(&log), [0, (1 << 31) + 5, 1 << 62]);
    assert_eq!(append(&log, &["on"]).base_offset, (1 << 62) + 1);
    assert_eq!(log.locate(1 << 32).unwrap().segment, (1 << 31) + 5);
    log.close().unwrap();
    let again = place.recovered();
    assert_eq!(again.recovery_report().cut, []);
    assert_eq!(offsets(&again), [&far[..], &[(1 << 62) + 1]].concat());
}

#[test]
fn threads_append_without_losing_or_mixing() {
    let place = Place::new();
    let log = place.open(&[("internal.segment.bytes", "4000")]);
    let mut taken: Vec<i64> = std::thread::scope(|scope| {
        let work = |number: usize| {
            let log = &log;
            scope.spawn(move || {
                let turn = |turn| append(log, &[&format!("{number}/{turn}")]).base_offset;
                (0..40).map(turn).collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = (0..4).map(work).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    taken.sort_unstable();
    assert_eq!(taken, (0..160).collect::<Vec<_>>());
    let found = records(&log);
    assert_eq!(found.len(), 160);
    for number in 0..4 {
        let prefix = format!("{number}/");
        let own = found
            .iter()
            .filter_map(|(_, value)| value.strip_prefix(&prefix));
        let turns: Vec<usize> = own.map(|turn| turn.parse().unwrap()).collect();
        assert_eq!(turns, (0..40).collect::<Vec<_>>());
    }
}

#[test]
fn a_transaction_is_read_when_it_has_ended() {
    let place = Place::new();
    let log = place.open(&[]);
    append(&log, &["plain"]);
    produce(&log, (1, 0, 0), true, &["lost"]).unwrap();
    produce(&log, (2, 0, 0), true, &["kept"]).unwrap();
    let state = || (crate::common::committed(&log).len(), bounds(&log).2);
    assert_eq!(state(), (1, 1));
    end(&log, 1, 0, false).unwrap();
    assert_eq!(state(), (1, 2));
    end(&log, 2, 0, true).unwrap();
    assert_eq!(state(), (2, 5));
    let expected = [(0, "plain".to_owned()), (2, "kept".to_owned())];
    assert_eq!(crate::common::committed(&log), expected);
}
