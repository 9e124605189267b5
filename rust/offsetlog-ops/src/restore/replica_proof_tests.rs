//! What shows that a replica has the very batches of a hole, and what becomes of replicas that fail.

use super::*;
use crate::replicas::choose_replica;
use offsetlog::LogConfig;
use offsetlog::disk::RealDisk;
use offsetlog_faults::batch::encode;
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};

/// Batches of three records each, at the offsets 0, 3, 9 and 12, and between them a compressed set of messages of magic 1.
pub(crate) fn around_old_messages() -> Vec<Vec<u8>> {
    let rows = vec![(Some(b"key".to_vec()), Some(b"value".to_vec())); 3];
    let batch = |base| encode(base, 0, 1_700_000_000_000, &rows).bytes.to_vec();
    let inner: Vec<u8> = (0..3)
        .flat_map(|offset| old_message(offset, b"old", 0))
        .collect();
    vec![
        batch(0),
        batch(3),
        old_message(8, &gzip_stored(&inner), 1),
        batch(9),
        batch(12),
    ]
}

fn old_message(offset: i64, value: &[u8], codec: u8) -> Vec<u8> {
    let mut body = vec![1, codec];
    body.extend_from_slice(&1_700_000_000_000_i64.to_be_bytes());
    body.extend_from_slice(&(-1_i32).to_be_bytes());
    body.extend_from_slice(&(value.len() as i32).to_be_bytes());
    body.extend_from_slice(value);
    let mut message = offset.to_be_bytes().to_vec();
    message.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    message.extend_from_slice(&crc32(&body).to_be_bytes());
    message.extend_from_slice(&body);
    message
}

/// RFC 1952, with one block that is not compressed.
fn gzip_stored(bytes: &[u8]) -> Vec<u8> {
    let size = bytes.len() as u16;
    let mut made = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    made.extend_from_slice(&size.to_le_bytes());
    made.extend_from_slice(&(!size).to_le_bytes());
    made.extend_from_slice(bytes);
    made.extend_from_slice(&crc32(bytes).to_le_bytes());
    made.extend_from_slice(&u32::from(size).to_le_bytes());
    made
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    })
}

#[test]
fn a_hole_before_compressed_old_messages_is_filled() {
    let place = Place::new();
    let mut parts = around_old_messages();
    for replica in ["whole", "one"] {
        place.write(replica, 0, &parts[..4]);
        // Damage does not hide where the log ends.
        place.write(replica, 12, &parts[4..]);
        parts[1][70] ^= 0xff;
    }
    let report = place.restore(&["one", "whole"]);
    assert_eq!(place.offsets("new"), (0..15).collect::<Vec<_>>());
    assert_eq!(taken(&report), [("whole".to_owned(), 3, 5)]);
    assert!(!report.has_losses());
}

/// What may stand in the place of a `leader-epoch-checkpoint`.
const CHECKPOINTS: [Option<&str>; 3] = [None, Some("no checkpoint"), Some("0\n1\n0 0\n")];

impl Place {
    fn set_checkpoint(&self, replica: &str, text: Option<&str>) {
        match text {
            None => fs::remove_file(self.checkpoint(replica)).unwrap(),
            Some(text) => fs::write(self.checkpoint(replica), text).unwrap(),
        }
    }
}

#[test]
fn without_a_history_batches_of_a_leader_that_was_deposed_are_left() {
    for checkpoint in CHECKPOINTS {
        let place = Place::new();
        place.append("one", 2, "value", 0);
        place.copy("one", "stale");
        place.append("stale", 2, "stale", 0);
        place.append("one", 3, "value", 1);
        place.roll("one");
        place.copy("one", "whole");
        place.destroy("one", 6);
        place.set_checkpoint("one", checkpoint);
        let report = place.restore(&["one", "stale"]);
        assert_eq!(
            place.offsets("new"),
            (0..6).chain(9..15).collect::<Vec<_>>(),
            "{checkpoint:?}"
        );
        assert_eq!(left(&report), [("stale".to_owned(), 6, Some(8))]);
        assert!(report.has_losses());
        fs::remove_dir_all(place.0.path().join("new")).unwrap();
        let report = place.restore(&["one", "stale", "whole"]);
        assert_eq!(place.rows("new"), place.rows("whole"), "{checkpoint:?}");
        assert_eq!(taken(&report), [("whole".to_owned(), 6, 8)]);
    }
}

#[test]
fn without_a_history_the_batch_behind_a_hole_shows_that_a_replica_is_of_the_same() {
    for checkpoint in CHECKPOINTS {
        let place = Place::new();
        place.append("one", 3, "value", 0);
        place.copy("one", "short");
        place.append("one", 2, "value", 1);
        place.roll("one");
        place.copy("one", "whole");
        place.destroy("one", 6);
        place.set_checkpoint("one", checkpoint);
        let report = place.restore(&["one", "short"]);
        assert_eq!(left(&report), [("short".to_owned(), 6, Some(8))]);
        assert!(report.has_losses());
        fs::remove_dir_all(place.0.path().join("new")).unwrap();
        let report = place.restore(&["one", "short", "whole"]);
        assert_eq!(place.rows("new"), place.rows("whole"), "{checkpoint:?}");
        assert_eq!(taken(&report), [("whole".to_owned(), 6, 8)]);
        assert!(!report.has_losses());
    }
}

#[test]
fn a_compacted_log_takes_batches_only_between_two_that_both_have() {
    let place = Place::new();
    place.append("one", 3, "value", 0);
    place.copy("one", "short");
    place.append("one", 2, "value", 0);
    place.roll("one");
    place.compact("one");
    place.copy("one", "whole");
    place.damage("one", &[6]);
    let report = place.restore(&["one", "short"]);
    assert_eq!(left(&report), [("short".to_owned(), 6, Some(8))]);
    assert!(report.has_losses());
    fs::remove_dir_all(place.0.path().join("new")).unwrap();
    let report = place.restore(&["one", "short", "whole"]);
    assert_eq!(place.rows("new"), place.rows("whole"));
    assert_eq!(taken(&report), [("whole".to_owned(), 6, 8)]);
}

/// A disk that can fail, and options with it.
pub(super) fn failing() -> (FaultDisk, OpenOptions) {
    let disk = FaultDisk::new(Arc::new(RealDisk), Plan::none());
    let options = OpenOptions {
        disk: Arc::new(disk.clone()),
        ..OpenOptions::default()
    };
    (disk, options)
}

/// Fails what is done to the replica `two`, from the `nth` call on.
fn of_two(nth: u64, kinds: fn(Call, &str) -> bool) -> Plan {
    Plan {
        kinds,
        nth,
        lasting: Lasting::FromThenOn,
        ..Plan::none()
    }
}

#[test]
fn a_replica_that_fails_is_left_out_and_the_others_fill_the_holes() {
    let place = Place::new();
    place.append("whole", 6, "value", 0);
    place.roll("whole");
    for replica in ["one", "two"] {
        place.copy("whole", replica);
    }
    place.damage("one", &[6, 12]);
    let sources = ["one", "two", "whole"].map(|each| place.0.path().join(each));
    for nth in 1.. {
        let (disk, options) = failing();
        let new = format!("new-{nth}");
        let into = [place.0.path().join(&new)];
        let how = RestoreOptions::default();
        let mut plan = RestorePlan::make(&sources, &into, &how, &options).unwrap();
        disk.set(of_two(nth, |call, path| {
            matches!(call, Call::Read | Call::Open | Call::Stat | Call::List)
                && path.contains("/two/orders-0")
        }));
        plan.run(None).unwrap();
        let state = &plan.partitions[0].state;
        let report = state.report().unwrap_or_else(|| panic!("{nth}: {state:?}"));
        assert_eq!(place.rows(&new), place.rows("whole"), "{nth}");
        assert!(!report.has_losses(), "{nth}");
        if disk.failed().is_empty() {
            assert!(nth > 3, "{nth}");
            break;
        }
        let is_told = report.left_out.iter().any(|left| {
            replica_of(&left.path) == "two"
                && left.reason.contains("cannot be read")
                && left.reason.contains("os error 5")
        });
        assert!(is_told, "{nth}: {:?}", report.left_out);
    }
}

#[test]
fn a_replica_that_fails_at_the_second_call_is_named() {
    let place = Place::new();
    place.append("whole", 6, "value", 0);
    place.roll("whole");
    place.copy("whole", "one");
    place.copy("whole", "two");
    place.damage("one", &[6]);
    place.restore(&["one", "two"]);
    let sources = ["one", "two"].map(|each| place.0.path().join(each));
    let into = [place.0.path().join("new")];
    for nth in 1.. {
        let (disk, options) = failing();
        let how = RestoreOptions::default();
        let mut plan = RestorePlan::make(&sources, &into, &how, &options).unwrap();
        disk.set(of_two(nth, |call, path| {
            matches!(call, Call::Read | Call::Open | Call::Stat | Call::List)
                && path.contains("/two/orders-0")
        }));
        plan.run(None).unwrap();
        let state = &plan.partitions[0].state;
        if disk.failed().is_empty() {
            assert!(
                matches!(state, PartitionState::There(_)),
                "{nth}: {state:?}"
            );
            assert!(nth > 3, "{nth}");
            break;
        }
        let reason = state.reason().unwrap_or_default();
        assert!(reason.contains("os error 5"), "{nth}: {state:?}");
    }
}

#[test]
fn a_replica_beyond_a_limit_is_left_out_and_the_others_fill_the_hole() {
    let place = Place::new();
    place.append("one", 2, "value", 0);
    place.copy("one", "two");
    place.append("one", 3, "value", 0);
    place.roll("one");
    place.copy("one", "whole");
    place.damage("one", &[6]);
    let mut options = OpenOptions::default();
    let write = WriteOptions::default();
    let log = LogWriter::open(place.of("two"), &options, &write).unwrap();
    let mut batch = BatchBuilder::default();
    let headers = [(b"a".as_slice(), Some(b"1".as_slice())), (b"b", None)];
    batch.push(1, None, None, &headers).unwrap();
    log.append(&mut batch, &AppendOptions::default()).unwrap();
    log.close().unwrap();
    options.limits.max_headers = 1;
    let sources = ["one", "two", "whole"].map(|each| place.0.path().join(each));
    let into = [place.0.path().join("new")];
    let mut plan =
        RestorePlan::make(&sources, &into, &RestoreOptions::default(), &options).unwrap();
    plan.run(None).unwrap();
    let state = &plan.partitions[0].state;
    let report = state.report().unwrap_or_else(|| panic!("{state:?}"));
    assert_eq!(place.rows("new"), place.rows("whole"));
    assert!(!report.has_losses());
    let left = &report.left_out[0];
    let place = (left.first_offset, left.last_offset, left.batches);
    assert_eq!(
        (replica_of(&left.path).as_str(), place),
        ("two", (6, Some(8), 0))
    );
    assert!(left.reason.contains("max_headers"), "{}", left.reason);
}

#[test]
fn without_a_history_the_batches_say_which_replica_is_of_the_newest_leader() {
    for checkpoint in CHECKPOINTS {
        let place = Place::new();
        place.append("one", 2, "value", 0);
        place.copy("one", "stale");
        place.append("stale", 5, "stale", 0);
        place.append("one", 1, "value", 1);
        place.roll("one");
        place.set_checkpoint("one", checkpoint);
        let report = place.restore(&["stale", "one"]);
        assert_eq!(replica_of(&report.source), "one", "{checkpoint:?}");
        assert_eq!(place.rows("new"), place.rows("one"), "{checkpoint:?}");
    }
}

/// Batches of this many records each, at these offsets.
fn batches(of: &[(i64, usize)]) -> Vec<Vec<u8>> {
    let batch = |&(base, records): &(i64, usize)| {
        let rows = vec![(Some(b"key".to_vec()), Some(b"value".to_vec())); records];
        encode(base, 0, 1_700_000_000_000, &rows).bytes.to_vec()
    };
    of.iter().map(batch).collect()
}

impl Place {
    /// A replica of these batches, of which the last one is alone in its segment.
    fn write_all(&self, replica: &str, of: &[(i64, usize)]) {
        let (last, rest) = of.split_last().unwrap();
        self.write(replica, 0, &batches(rest));
        self.write(replica, last.0, &batches(&[*last]));
    }

    fn compact(&self, replica: &str) {
        let options = OpenOptions::default();
        let log = LogWriter::open(self.of(replica), &options, &WriteOptions::default()).unwrap();
        log.set_config(&LogConfig::parse([("cleanup.policy", "compact")]).unwrap())
            .unwrap();
        log.close().unwrap();
    }
}

#[test]
fn what_compaction_removed_or_replaced_does_not_come_back() {
    let old = [(0, 3), (3, 3), (6, 3), (9, 3), (12, 3)];
    let removed = [(0, 3), (6, 3), (9, 3), (12, 3)];
    let replaced = [(0, 3), (5, 1), (6, 3), (9, 3), (12, 3)];
    for (cleaned, damaged) in [(removed.as_slice(), 6), (&replaced, 5), (&replaced, 6)] {
        let place = Place::new();
        place.write_all("one", cleaned);
        place.write_all("old", &old);
        place.write_all("same", cleaned);
        place.compact("one");
        place.damage("one", &[damaged]);
        let report = place.restore(&["one", "old"]);
        assert_eq!(place.offsets("new"), place.offsets("one"), "{damaged}");
        assert!(taken(&report).is_empty(), "{:?}", report.taken_back);
        assert_eq!(left(&report).len(), 1, "{:?}", report.left_out);
        assert!(report.has_losses());
        fs::remove_dir_all(place.0.path().join("new")).unwrap();
        let report = place.restore(&["one", "old", "same"]);
        assert_eq!(place.offsets("new"), place.offsets("same"), "{damaged}");
        assert!(taken(&report).iter().all(|each| each.0 == "same"));
    }
}

#[test]
fn offsets_that_are_left_out_show_that_a_log_was_compacted() {
    let place = Place::new();
    place.append("one", 5, "value", 0);
    let parts = place.parts("one");
    fs::remove_dir_all(place.of("one")).unwrap();
    for (replica, of) in [("one", [0, 2, 4].as_slice()), ("short", &[0, 2, 3])] {
        let parts: Vec<Vec<u8>> = of.iter().map(|part| parts[*part].clone()).collect();
        place.write(replica, 0, &parts);
    }
    place.write("one", 15, &batches(&[(15, 3)]));
    place.damage("one", &[12]);
    let report = place.restore(&["one", "short"]);
    assert!(taken(&report).is_empty(), "{:?}", report.taken_back);
    assert!(report.left_out[0].reason.contains("compact"));
}

#[test]
fn a_history_without_the_last_epoch_says_nothing_of_the_end() {
    let place = Place::new();
    place.append("one", 2, "value", 0);
    place.copy("one", "stale");
    // At 6 a new leader begins, whose only batch is damaged; the old one has another batch there.
    place.append("stale", 1, "stale", 0);
    place.append("one", 1, "value", 1);
    for replica in ["one", "stale"] {
        place.roll(replica);
    }
    place.copy("one", "whole");
    place.damage("one", &[6]);
    for checkpoint in CHECKPOINTS {
        place.set_checkpoint("one", checkpoint);
        let report = place.restore(&["one", "stale"]);
        assert_eq!(replica_of(&report.source), "one", "{checkpoint:?}");
        assert_eq!(place.offsets("new"), (0..6).collect::<Vec<_>>());
        assert_eq!(left(&report), [("stale".to_owned(), 6, Some(8))]);
        assert!(report.has_losses());
        fs::remove_dir_all(place.0.path().join("new")).unwrap();
        fs::write(place.checkpoint("one"), "").unwrap();
    }
    // One that has it says whose they are.
    let whole = fs::read(place.checkpoint("whole")).unwrap();
    fs::write(place.checkpoint("one"), whole).unwrap();
    let report = place.restore(&["one", "stale"]);
    assert_eq!(left(&report), [("stale".to_owned(), 6, Some(8))]);
}

/// A leader stores its epoch before its first record. What is stored of an epoch behind the end says that records are lost here.
#[test]
fn a_stored_epoch_counts_up_to_the_end_of_the_log() {
    for (checkpoint, newest) in [("0\n2\n0 0\n5 6\n", "one"), ("0\n2\n0 0\n5 7\n", "two")] {
        let place = Place::new();
        place.append("one", 2, "value", 0);
        place.copy("one", "two");
        place.append("two", 1, "value", 0);
        place.set_checkpoint("one", Some(checkpoint));
        for replicas in [["one", "two"], ["two", "one"]] {
            let plan = place.plan(&replicas);
            assert_eq!(replica_of(&plan.partitions[0].source), newest);
        }
    }
}

#[test]
fn where_equal_replicas_are_compared_one_that_fails_is_not_preferred() {
    let place = Place::new();
    place.append("one", 2, "value", 0);
    place.roll("one");
    place.append("one", 2, "value", 0);
    place.copy("one", "two");
    let paths = ["two", "one"].map(|each| place.of(each));
    for nth in 1.. {
        let (disk, options) = failing();
        disk.set(of_two(nth, |call, path| {
            call != Call::Lock && path.contains("/two")
        }));
        let (chosen, failures) = choose_replica(&paths, &options).unwrap();
        let chosen = chosen.unwrap();
        assert_eq!(chosen.others.len() + failures.len(), 1, "{nth}");
        if disk.failed().is_empty() {
            assert!(nth > 3 && chosen.best.path == paths[0]);
            break;
        }
    }
}

#[test]
fn a_worse_replica_that_fails_does_not_discard_the_choice() {
    let place = Place::new();
    place.append("one", 6, "value", 0);
    place.append("two", 3, "value", 0);
    let paths = ["one", "two"].map(|each| place.of(each));
    for nth in 1.. {
        let (disk, options) = failing();
        disk.set(of_two(nth, |_, path| path.contains("/two")));
        let (chosen, failures) = choose_replica(&paths, &options).unwrap();
        let chosen = chosen.unwrap();
        assert_eq!(chosen.best.path, paths[0], "{nth}");
        assert_eq!(chosen.others.len() + failures.len(), 1, "{nth}");
        if disk.failed().is_empty() {
            assert!(nth > 1);
            break;
        }
    }
}
