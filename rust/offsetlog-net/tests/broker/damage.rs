//! Damage: everything before it is served, at it each fetch fails loudly, and a log is told once.

use crate::client::{Asks, Client, Fetch, consume, copy, data, read_all};
use offsetlog::Isolation::{ReadCommitted, ReadUncommitted};
use offsetlog::{
    AppendOptions, BatchBuilder, BatchInfo, Log, LogWriter, OpenOptions, WriteOptions,
};
use offsetlog_net::Service;
use offsetlog_net::server::{Broker, Event, ServeOptions};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Kafka's numbers in `ListOffsets`.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;

fn batches(path: &Path) -> Vec<BatchInfo> {
    let log = Log::open(path, &OpenOptions::default()).unwrap();
    let batches = log.batches(None, None).unwrap();
    batches.map(Result::unwrap).collect()
}

/// Flips bits in the last byte of a batch.
fn flip(path: &Path, batch: &BatchInfo) {
    let file = path.join(format!("{:020}.log", batch.segment));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[(batch.position + batch.size_bytes) as usize - 1] ^= 0x55;
    std::fs::write(&file, bytes).unwrap();
}

fn open(folder: &Path) -> (Broker, Arc<Mutex<Vec<Event>>>) {
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let told = Arc::clone(&events);
    let options = ServeOptions {
        on_event: Some(Arc::new(move |event: &Event| {
            told.lock().unwrap().push(event.clone());
        })),
        ..ServeOptions::default()
    };
    (Broker::open(&[folder], options).unwrap(), events)
}

#[test]
fn each_batch_damaged_in_turn_stops_a_client_there() {
    let name = "g-roll-ms-0";
    let source = "kafka-4.3.0/clean/log-dir-2/g-roll-ms-0";
    let whole = batches(&data(source));
    assert!(whole.len() > 5);
    let last = whole.len() - 1;
    for damaged in 0..last {
        let folder = copy(&[source]);
        flip(&folder.path().join(name), &whole[damaged]);
        let (broker, events) = open(folder.path());
        let mut client = Client::new(&broker);
        for isolation in [ReadUncommitted, ReadCommitted] {
            for max_bytes in [1, 1 << 20] {
                let fetch = Fetch {
                    isolation,
                    partition_max_bytes: max_bytes,
                    ..Fetch::new("g-roll-ms", 0, whole[0].base_offset)
                };
                let (_, end, error) = read_all(&mut client, &fetch);
                assert_eq!(
                    (end, error),
                    (whole[damaged].base_offset, 2),
                    "{isolation:?}"
                );
                // Time passes, and it is as damaged as before.
                client.now += 10_000;
                let again = client.fetch(&Fetch {
                    offset: end,
                    ..fetch
                });
                assert_eq!((again.error, again.high_watermark), (2, -1));
                assert_eq!(again.records.as_deref(), Some(&b""[..]));
            }
        }
        // What fetches have found is reported as the partition's state, too: monitoring asks for that.
        let problem = broker.report().topics[0].partitions[0].problem.clone();
        let place = format!("damage at offset {}", whole[damaged].base_offset);
        assert!(problem.unwrap().starts_with(&place));
        let after = &whole[damaged + 1];
        let is_hidden = whole[damaged].segment == whole[last].segment;
        let end = whole[last].last_offset + 1;
        if is_hidden {
            // OFFSET_OUT_OF_RANGE would let a group that stands behind damage start over, and nobody would hear of it.
            for isolation in [ReadUncommitted, ReadCommitted] {
                for offset in [after.base_offset, end - 1, end, end + 1000] {
                    client.now += 10_000;
                    let fetched = client.fetch(&Fetch {
                        isolation,
                        ..Fetch::new("g-roll-ms", 0, offset)
                    });
                    assert_eq!((fetched.error, fetched.high_watermark), (2, -1), "{offset}");
                    assert_eq!(fetched.records.as_deref(), Some(&b""[..]));
                }
            }
            // Nor is it told that the log was truncated: nobody knows where it ends.
            let epoch = client.metadata("g-roll-ms").1[0].2 as i32;
            assert_eq!(client.end_of_epoch(("g-roll-ms", 0), epoch).0, 0);
            assert!(client.end_of_epoch(("g-roll-ms", 0), epoch).2 > end);
            assert_eq!(client.end_of_epoch(("g-roll-ms", 0), epoch + 1).0, 2);
            let fetched = client.fetch(&Fetch {
                last_fetched_epoch: epoch + 1,
                ..Fetch::new("g-roll-ms", 0, after.base_offset)
            });
            assert_eq!(fetched.error, 2);
            // Who asks for the end, and reads up to it, would take a part for the whole.
            let place = ("g-roll-ms", 0);
            for isolation in [ReadUncommitted, ReadCommitted] {
                for timestamp in [LATEST, MAX_TIMESTAMP, i64::MAX] {
                    assert_eq!(client.offset(place, timestamp, isolation).0, 2);
                }
                let first = client.offset(place, EARLIEST, isolation);
                assert_eq!((first.0, first.2), (0, whole[0].base_offset));
            }
            if damaged > 0 {
                let (error, _, offset, _) = client.offset(place, 0, ReadUncommitted);
                assert_eq!((error, offset), (0, whole[0].base_offset));
            }
        } else {
            let latest = client.offset(("g-roll-ms", 0), LATEST, ReadUncommitted);
            assert_eq!((latest.0, latest.2), (0, end));
            // What stands in the segments behind it can be read by who asks for it.
            let fetched = client.fetch(&Fetch::new("g-roll-ms", 0, after.base_offset));
            assert_eq!((fetched.error, fetched.high_watermark), (0, end));
            assert_eq!(
                consume(&fetched, after.base_offset).0[0].0,
                after.base_offset
            );
        }
        let events = events.lock().unwrap();
        assert!(
            matches!(&events[..], [Event::Damage { offset, .. }] if *offset == whole[damaged].base_offset),
            "{events:?}"
        );
    }
}

/// The first that hears of damage may stand behind it: the log of the server is told all the same.
#[test]
fn a_client_behind_damage_is_an_event_too() {
    let source = "kafka-4.3.0/clean/log-dir-2/g-roll-ms-0";
    let whole = batches(&data(source));
    let last = whole.last().unwrap();
    let damaged = whole.iter().find(|batch| batch.segment == last.segment);
    let folder = copy(&[source]);
    flip(&folder.path().join("g-roll-ms-0"), damaged.unwrap());
    let (broker, events) = open(folder.path());
    let mut client = Client::new(&broker);
    for offset in [last.last_offset + 1, last.base_offset] {
        let fetched = client.fetch(&Fetch::new("g-roll-ms", 0, offset));
        assert_eq!(fetched.error, 2);
    }
    let events = events.lock().unwrap();
    assert!(matches!(&events[..], [Event::Damage { .. }]), "{events:?}");
}

/// An operator puts the file of another replica in its place: monitoring hears that the damage is gone, also before somebody reads there.
#[test]
fn damage_that_was_repaired_is_no_longer_reported() {
    let source = "kafka-4.3.0/clean/log-dir-2/g-roll-ms-0";
    let whole = batches(&data(source));
    let folder = copy(&[source]);
    let place = folder.path().join("g-roll-ms-0");
    for damaged in [&whole[0], &whole[whole.len() / 2], &whole[whole.len() - 2]] {
        flip(&place, damaged);
        let (broker, _) = open(folder.path());
        let problem = || broker.report().topics[0].partitions[0].problem.clone();
        let mut client = Client::new(&broker);
        let fetch = Fetch::new("g-roll-ms", 0, whole[0].base_offset);
        let (_, end, error) = read_all(&mut client, &fetch);
        assert_eq!((end, error), (damaged.base_offset, 2));
        assert!(problem().is_some());
        assert!(problem().is_some(), "each time it is asked");
        flip(&place, damaged);
        assert_eq!(problem(), None);
        client.now += 10_000;
        let (_, end, error) = read_all(&mut client, &fetch);
        assert_eq!((end, error), (whole[whole.len() - 1].last_offset + 1, 0));
    }
}

/// The last batch of the active segment may be one that is being written: it is the end for now.
#[test]
fn a_torn_tail_is_the_end_for_now() {
    let source = "kafka-4.3.0/clean/log-dir-2/g-roll-ms-0";
    let whole = batches(&data(source));
    let last = whole.last().unwrap();
    let folder = copy(&[source]);
    let place = folder.path().join("g-roll-ms-0");
    let file = place.join(format!("{:020}.log", last.segment));
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 3]).unwrap();
    let (broker, _) = open(folder.path());
    let mut client = Client::new(&broker);
    let fetch = Fetch::new("g-roll-ms", 0, whole[0].base_offset);
    let (_, end, error) = read_all(&mut client, &fetch);
    assert_eq!((end, error), (last.base_offset, 0));
    // Its writer completes it.
    std::fs::write(&file, &bytes).unwrap();
    let fetch = Fetch {
        offset: end,
        ..fetch
    };
    let (_, end, error) = read_all(&mut client, &fetch);
    assert_eq!((end, error), (last.last_offset + 1, 0));
}

#[test]
fn a_partition_that_cannot_be_opened_is_offline_and_the_others_are_served() {
    let folder = copy(&[
        "kafka-4.3.0/clean/log-dir-1/g-plain-0",
        "kafka-4.3.0/clean/log-dir-1/g-plain-2",
    ]);
    std::fs::write(folder.path().join("g-plain-0/0000x.log"), b"x").unwrap();
    let (broker, events) = open(folder.path());
    let mut client = Client::new(&broker);
    let (_, partitions) = client.metadata("g-plain");
    assert_eq!((partitions[0].0, partitions[2].0), (5, 0));
    let (seen, _, error) = read_all(&mut client, &Fetch::new("g-plain", 2, 0));
    assert!(!seen.is_empty() && error == 0);
    assert!(matches!(
        &events.lock().unwrap()[..],
        [Event::Offline { .. }]
    ));
}

#[test]
fn a_partition_that_can_be_opened_again_is_served_and_each_reason_is_told_once() {
    let folder = copy(&[
        "kafka-4.3.0/clean/log-dir-1/g-plain-0",
        "kafka-4.3.0/clean/log-dir-1/g-plain-2",
    ]);
    let place = folder.path().join("g-plain-0");
    std::fs::write(place.join("0000x.log"), b"x").unwrap();
    let (broker, events) = open(folder.path());
    let mut client = Client::new(&broker);
    let mut look = || {
        for _ in 0..3 {
            client.now += 1001;
            broker.tick(client.now);
        }
        let fetched = client.fetch(&Fetch::new("g-plain", 0, 0));
        (fetched.error, std::mem::take(&mut *events.lock().unwrap()))
    };
    let (error, told) = look();
    assert_eq!(error, 6);
    assert!(matches!(&told[..], [Event::Offline { .. }]), "{told:?}");
    // Another reason.
    std::fs::rename(place.join("0000x.log"), place.join("0000y.log")).unwrap();
    let (error, told) = look();
    assert_eq!(error, 6);
    assert!(
        matches!(&told[..], [Event::Offline { reason, .. }] if reason.contains("0000y")),
        "{told:?}"
    );
    std::fs::remove_file(place.join("0000y.log")).unwrap();
    let (error, told) = look();
    assert_eq!(error, 0);
    assert!(
        matches!(&told[..], [Event::Changed { lines }] if lines == &["g-plain has 2 partitions, 1 before"]),
        "{told:?}"
    );
    assert_eq!(look(), (0, Vec::new()));
}

#[test]
fn a_log_dir_that_cannot_be_listed_is_told_once() {
    let source = "kafka-4.3.0/clean/log-dir-1/g-plain-0";
    let (folder, other) = (copy(&[source]), copy(&[source]));
    let (broker, events) = open(folder.path());
    let mut client = Client::new(&broker);
    let mut look = || {
        for _ in 0..3 {
            client.now += 1001;
            broker.tick(client.now);
        }
        std::mem::take(&mut *events.lock().unwrap())
    };
    for _ in 0..2 {
        let hidden = other.path().join("hidden");
        std::fs::rename(folder.path(), &hidden).unwrap();
        let told = look();
        assert!(matches!(&told[..], [Event::NotListed { .. }]), "{told:?}");
        std::fs::rename(&hidden, folder.path()).unwrap();
        assert_eq!(look(), Vec::new());
    }
}

/// Two replicas: one has more, and is damaged; the other can be read further.
#[test]
fn of_several_replicas_the_one_that_can_be_read_furthest_is_served() {
    let source = "kafka-4.3.0/clean/log-dir-2/g-roll-ms-0";
    let whole = batches(&data(source));
    let last = whole.last().unwrap();
    let damaged = whole.iter().find(|batch| batch.segment == last.segment);
    let damaged = damaged.unwrap();
    assert!(damaged.base_offset < last.base_offset);
    let (longer, shorter) = (copy(&[source]), copy(&[source]));
    flip(&longer.path().join("g-roll-ms-0"), damaged);
    let cut = |folder: &tempfile::TempDir, batch: &BatchInfo| {
        let name = format!("g-roll-ms-0/{:020}.log", last.segment);
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(folder.path().join(name))
            .unwrap();
        file.set_len(batch.position).unwrap();
    };
    cut(&shorter, last);
    for paths in [
        [longer.path(), shorter.path()],
        [shorter.path(), longer.path()],
    ] {
        let broker = Broker::open(&paths, ServeOptions::default()).unwrap();
        let mut client = Client::new(&broker);
        let fetch = Fetch::new("g-roll-ms", 0, whole[0].base_offset);
        let (_, end, error) = read_all(&mut client, &fetch);
        assert_eq!((end, error), (last.base_offset, 0));
        let report = broker.report();
        let topic = report.topics.iter().find(|topic| topic.name == "g-roll-ms");
        let partition = &topic.unwrap().partitions[0];
        assert!(partition.path.as_ref().unwrap().starts_with(shorter.path()));
        let [other] = &partition.others[..] else {
            panic!("{partition:?}");
        };
        assert!(other.path.starts_with(longer.path()));
        assert!(other.reason.contains("damage"), "{}", other.reason);
    }
    // One that ends where the damage begins does not reach further: more of the log is behind the damage.
    cut(&shorter, damaged);
    let paths = [shorter.path(), longer.path()];
    let broker = Broker::open(&paths, ServeOptions::default()).unwrap();
    let mut client = Client::new(&broker);
    let fetch = Fetch::new("g-roll-ms", 0, damaged.base_offset);
    assert_eq!(client.fetch(&fetch).error, 2);
}

/// The newest replica's checkpoint lacks its last epoch, as after a crash, and damage hides its batches: where the older one goes on is not
/// known to be the same.
#[test]
fn a_stale_replica_is_not_read_past_the_damage_of_a_newer_one() {
    let folder = tempfile::tempdir().unwrap();
    let [newer, stale] = ["newer", "stale"].map(|name| folder.path().join(name).join("orders-0"));
    let append = |path: &Path, values: &[&str], epoch: i32| {
        let log = LogWriter::open(path, &OpenOptions::default(), &WriteOptions::default()).unwrap();
        for value in values {
            let mut batch = BatchBuilder::default();
            batch.push(1, None, Some(value.as_bytes()), &[]).unwrap();
            let options = AppendOptions {
                leader_epoch: Some(epoch),
                ..AppendOptions::default()
            };
            log.append(&mut batch, &options).unwrap();
        }
        log.close().unwrap();
    };
    for path in [&newer, &stale] {
        append(path, &["value"; 6], 0);
    }
    append(&newer, &["newer"; 4], 1);
    append(&stale, &["stale"; 3], 0);
    let all = batches(&newer);
    flip(&newer, &all[4]);
    std::fs::write(newer.join("leader-epoch-checkpoint"), "0\n1\n0 0\n").unwrap();
    let paths = [newer.parent().unwrap(), stale.parent().unwrap()];
    let broker = Broker::open(&paths, ServeOptions::default()).unwrap();
    let mut client = Client::new(&broker);
    let (_, end, error) = read_all(&mut client, &Fetch::new("orders", 0, 0));
    assert_eq!((end, error), (4, 2));
}
