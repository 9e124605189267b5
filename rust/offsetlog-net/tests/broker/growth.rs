//! Log dirs that change while they are served: they grow, are truncated, and topics come, go and are replaced.

use crate::client::{Asks, Client, Fetch, copy, data, open, read_all};
use offsetlog::Isolation::{ReadCommitted, ReadUncommitted};
use offsetlog::format::Uuid;
use offsetlog::format::protocol::apis;
use offsetlog::{
    AppendOptions, BatchBuilder, LogDir, LogDirOptions, LogWriter, NewTopic, OpenOptions,
    WriteOptions,
};
use offsetlog_net::server::{Broker, ServeOptions, Until};
use offsetlog_net::{Service, Step};
use std::path::Path;

pub fn append(log: &LogWriter, value: &[u8]) -> i64 {
    let mut batch = BatchBuilder::default();
    batch.push(1, None, Some(value), &[]).unwrap();
    let appended = log.append(&mut batch, &AppendOptions::default()).unwrap();
    appended.base_offset
}

pub fn writer(path: &Path) -> LogWriter {
    LogWriter::open(path, &OpenOptions::default(), &WriteOptions::default()).unwrap()
}

/// A tick so much later that all is looked at again. Announces that what waits may look.
fn tick(broker: &Broker, client: &mut Client<'_>) {
    client.now += 1001;
    broker.tick(client.now);
}

#[test]
fn a_fetch_that_waits_is_answered_when_a_writer_appends() {
    let folder = tempfile::tempdir().unwrap();
    let log = writer(&folder.path().join("t-0"));
    append(&log, b"first");
    let broker = open(&[folder.path().to_path_buf()]);
    let mut client = Client::new(&broker);
    let (seen, end, _) = read_all(&mut client, &Fetch::new("t", 0, 0));
    assert_eq!((seen.len(), end), (1, 1));
    let fetch = Fetch {
        max_wait_ms: 60_000,
        ..Fetch::new("t", 0, 1)
    };
    let step = client.send(&apis::FETCH, 12, &fetch.request());
    assert!(matches!(step, Step::Wait { .. }));
    tick(&broker, &mut client);
    let seen = broker.changes().count();
    tick(&broker, &mut client);
    assert_eq!(broker.changes().count(), seen, "nothing moved");
    append(&log, b"second");
    tick(&broker, &mut client);
    assert_ne!(broker.changes().count(), seen, "who waits is told");
    let Step::Reply(reply) = client.resume() else {
        panic!("no reply");
    };
    assert!(reply.length() > 60);
    let (seen, end, _) = read_all(&mut client, &Fetch::new("t", 0, 1));
    assert_eq!((seen[0].3.as_deref(), end), (Some(&b"second"[..]), 2));
}

/// A writer of another process: only the files show what it does.
#[test]
fn another_process_is_followed_batch_by_batch() {
    let source = data("kafka-4.3.0/clean/log-dir-1/g-many-entries-0");
    let bytes = std::fs::read(source.join("00000000000000000000.log")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("g-many-entries-0");
    std::fs::create_dir(&place).unwrap();
    let file = place.join("00000000000000000000.log");
    std::fs::write(&file, b"").unwrap();
    let broker = open(&[folder.path().to_path_buf()]);
    let mut client = Client::new(&broker);
    let (mut next, mut all) = (0, 0);
    let mut written = 0;
    while written < bytes.len() {
        // Rarely a whole number of batches.
        written = (written + 37_111).min(bytes.len());
        std::fs::write(&file, &bytes[..written]).unwrap();
        let fetch = Fetch {
            isolation: if written % 2 == 0 {
                ReadCommitted
            } else {
                ReadUncommitted
            },
            ..Fetch::new("g-many-entries", 0, next)
        };
        let (seen, end, error) = read_all(&mut client, &fetch);
        assert_eq!(error, 0);
        assert!(end >= next);
        (next, all) = (end, all + seen.len());
    }
    let whole = open(&[source]);
    let (seen, end, _) = read_all(
        &mut Client::new(&whole),
        &Fetch::new("g-many-entries", 0, 0),
    );
    assert_eq!((all, next), (seen.len(), end));
}

#[test]
fn truncated_and_deleted_records_are_out_of_range() {
    let folder = tempfile::tempdir().unwrap();
    let log = writer(&folder.path().join("t-0"));
    for _ in 0..20 {
        append(&log, b"value");
    }
    let broker = open(&[folder.path().to_path_buf()]);
    let mut client = Client::new(&broker);
    assert_eq!(read_all(&mut client, &Fetch::new("t", 0, 0)).1, 20);
    log.truncate_to(10).unwrap();
    assert_eq!(client.fetch(&Fetch::new("t", 0, 15)).error, 1);
    assert_eq!(client.offset(("t", 0), -1, ReadUncommitted).2, 10);
    // Other bytes where checked ones were.
    for _ in 0..5 {
        append(&log, b"other, and longer");
    }
    let (seen, end, error) = read_all(&mut client, &Fetch::new("t", 0, 0));
    assert_eq!((seen.len(), end, error), (15, 15, 0));
    assert_eq!(seen[12].3.as_deref(), Some(&b"other, and longer"[..]));
    log.delete_records_before(7).unwrap();
    assert_eq!(client.fetch(&Fetch::new("t", 0, 6)).error, 1);
    let fetched = client.fetch(&Fetch::new("t", 0, 7));
    assert_eq!((fetched.error, fetched.log_start), (0, 7));
}

/// Appends a batch of one record as the leader of this epoch.
pub fn lead(log: &LogWriter, leader_epoch: i32, value: &[u8]) {
    let mut batch = BatchBuilder::default();
    batch.push(1, None, Some(value), &[]).unwrap();
    let options = AppendOptions {
        leader_epoch: Some(leader_epoch),
        ..AppendOptions::default()
    };
    log.append(&mut batch, &options).unwrap();
}

/// After an unclean election: a replica leads that had less, and what it appends ends where the old leader's log did.
fn elect(log: &LogWriter) {
    log.truncate_to(6).unwrap();
    for _ in 6..10 {
        lead(log, 1, b"another");
    }
}

/// Whoever has read the old leader's records is told where they end (`LeaderEpochFileCache.endOffsetFor`).
fn expect_divergence(client: &mut Client<'_>) {
    let fetch = Fetch {
        last_fetched_epoch: 0,
        ..Fetch::new("t", 0, 10)
    };
    assert_eq!(client.fetch(&fetch).diverging, Some((0, 6)));
    assert_eq!(client.end_of_epoch(("t", 0), 0), (0, 0, 6));
    assert_eq!(client.end_of_epoch(("t", 0), 1), (0, 1, 10));
}

#[test]
fn a_log_that_grew_to_the_same_end_again_diverges() {
    let folder = tempfile::tempdir().unwrap();
    let log = writer(&folder.path().join("t-0"));
    for _ in 0..10 {
        lead(&log, 0, b"value");
    }
    let broker = open(&[folder.path().to_path_buf()]);
    let mut client = Client::new(&broker);
    let waiting = Fetch {
        max_wait_ms: 60_000,
        last_fetched_epoch: 0,
        ..Fetch::new("t", 0, 10)
    };
    let step = client.send(&apis::FETCH, 12, &waiting.request());
    assert!(matches!(step, Step::Wait { .. }), "{step:?}");
    tick(&broker, &mut client);
    let seen = broker.changes().count();
    elect(&log);
    tick(&broker, &mut client);
    assert_ne!(broker.changes().count(), seen, "who waits is told");
    assert!(matches!(client.resume(), Step::Reply(_)));
    expect_divergence(&mut client);
}

/// Another leader writes while a fetch reads: the answer is of one state of the log, and the new leader's records do not come as if they
/// followed the old one's.
#[test]
fn a_log_that_another_leader_writes_under_a_fetch_diverges() {
    let folder = tempfile::tempdir().unwrap();
    let log = writer(&folder.path().join("t-0"));
    let value = vec![b'x'; 900_000];
    for _ in 0..10 {
        lead(&log, 0, b"value");
    }
    for _ in 0..8 {
        lead(&log, 0, &value);
    }
    let log = std::sync::Arc::new(log);
    let is_armed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (other, armed) = (
        std::sync::Arc::clone(&log),
        std::sync::Arc::clone(&is_armed),
    );
    let mut options = ServeOptions::default();
    // Asked every few MiB of a fetch.
    options.open.interrupt = Some(std::sync::Arc::new(move || {
        if armed.swap(false, std::sync::atomic::Ordering::SeqCst) {
            elect(&other);
            for _ in 0..8 {
                lead(&other, 1, &vec![b'y'; 900_000]);
            }
        }
        false
    }));
    let broker = Broker::open(&[folder.path().to_path_buf()], options).unwrap();
    let mut client = Client::new(&broker);
    let fetch = Fetch {
        last_fetched_epoch: 0,
        partition_max_bytes: i32::MAX,
        ..Fetch::new("t", 0, 10)
    };
    is_armed.store(true, std::sync::atomic::Ordering::SeqCst);
    let fetched = client.fetch(&fetch);
    assert!(
        !is_armed.load(std::sync::atomic::Ordering::SeqCst),
        "nobody wrote meanwhile"
    );
    assert_eq!(fetched.diverging, Some((0, 6)));
    assert!(fetched.records.is_none_or(|records| records.is_empty()));
}

/// Another leader writes under each look of a fetch: the fetch ends all the same, with an error that every client retries.
#[test]
fn a_fetch_under_which_leaders_change_all_the_time_ends() {
    use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
    const LEADERS: i32 = 300;
    let (folder, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let log = writer(&source.path().join("t-0"));
    for _ in 0..6 {
        lead(&log, 0, b"value");
    }
    for _ in 0..8 {
        lead(&log, 1, &vec![b'x'; 900_000]);
    }
    let starts: Vec<u64> = log
        .batches(Some(6), None)
        .unwrap()
        .map(|batch| batch.unwrap().position)
        .collect();
    log.close().unwrap();
    let bytes = std::fs::read(source.path().join("t-0/00000000000000000000.log")).unwrap();
    let place = folder.path().join("t-0");
    std::fs::create_dir(&place).unwrap();
    // Another process: no checksum has the leader epoch in it.
    let elect = move |epoch: i32| {
        let mut bytes = bytes.clone();
        for start in &starts {
            let at = *start as usize + 12;
            bytes[at..at + 4].copy_from_slice(&epoch.to_be_bytes());
        }
        let checkpoint = format!("0\n2\n0 0\n{epoch} 6\n");
        for (name, bytes) in [
            ("00000000000000000000.log", bytes),
            ("leader-epoch-checkpoint", checkpoint.into_bytes()),
        ] {
            let written = place.join("new");
            std::fs::write(&written, bytes).unwrap();
            std::fs::rename(written, place.join(name)).unwrap();
        }
    };
    elect(1);
    let leader = std::sync::Arc::new(AtomicI32::new(LEADERS));
    let led = std::sync::Arc::clone(&leader);
    let mut options = ServeOptions::default();
    // Asked every few MiB of a fetch.
    options.open.interrupt = Some(std::sync::Arc::new(move || {
        if led.load(SeqCst) < LEADERS {
            elect(led.fetch_add(1, SeqCst) + 2);
        }
        false
    }));
    let broker = Broker::open(&[folder.path().to_path_buf()], options).unwrap();
    let mut client = Client::new(&broker);
    let fetch = Fetch {
        partition_max_bytes: i32::MAX,
        ..Fetch::new("t", 0, 0)
    };
    leader.store(0, SeqCst);
    let error = client.fetch(&fetch).error;
    let led = leader.swap(LEADERS, SeqCst);
    assert_eq!(error, 6, "NOT_LEADER_OR_FOLLOWER, after {led} leaders");
    assert!(led < LEADERS, "it goes on while leaders change");
    let (seen, end, error) = read_all(&mut client, &fetch);
    assert_eq!((seen.len(), end, error), (14, 14, 0));
}

/// Without the leader epochs a partition is served, and nobody is told an epoch by which he would ask.
#[test]
fn a_malformed_leader_epoch_checkpoint_hides_no_records() {
    let folder = tempfile::tempdir().unwrap();
    let log = writer(&folder.path().join("t-0"));
    for _ in 0..10 {
        lead(&log, 3, b"value");
    }
    log.close().unwrap();
    let checkpoint = folder.path().join("t-0/leader-epoch-checkpoint");
    std::fs::write(checkpoint, "0\n1\nthree 0\n").unwrap();
    let broker = open(&[folder.path().to_path_buf()]);
    let mut client = Client::new(&broker);
    let (extent, epochs) = offsetlog::Log::open(folder.path().join("t-0"), &OpenOptions::default())
        .unwrap()
        .extent_and_epochs()
        .unwrap();
    assert_eq!((extent.log_end_offset, extent.leader_epoch), (10, 3));
    assert!(
        epochs
            .unwrap_err()
            .to_string()
            .contains("leader-epoch-checkpoint")
    );
    let (seen, end, error) = read_all(&mut client, &Fetch::new("t", 0, 0));
    assert_eq!((seen.len(), end, error), (10, 10, 0));
}

#[test]
fn another_process_may_write_what_grew_to_the_same_end_again() {
    let folder = tempfile::tempdir().unwrap();
    let source = tempfile::tempdir().unwrap();
    let log = writer(&source.path().join("t-0"));
    for _ in 0..10 {
        lead(&log, 0, b"value");
    }
    let place = folder.path().join("t-0");
    std::fs::create_dir(&place).unwrap();
    let give = || {
        for name in ["00000000000000000000.log", "leader-epoch-checkpoint"] {
            let bytes = std::fs::read(source.path().join("t-0").join(name)).unwrap();
            let written = place.join(format!("{name}.tmp"));
            std::fs::write(&written, bytes).unwrap();
            std::fs::rename(written, place.join(name)).unwrap();
        }
    };
    log.flush().unwrap();
    give();
    let broker = open(&[folder.path().to_path_buf()]);
    let mut client = Client::new(&broker);
    assert_eq!(client.end_of_epoch(("t", 0), 0), (0, 0, 10));
    elect(&log);
    log.flush().unwrap();
    give();
    expect_divergence(&mut client);
}

/// Batches of one record each: the bytes of the log, and where each batch ends.
fn log_of(values: &[&str]) -> (Vec<u8>, Vec<usize>) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("t-0");
    let log = writer(&place);
    let file = place.join("00000000000000000000.log");
    let mut ends = Vec::new();
    for value in values {
        append(&log, value.as_bytes());
        ends.push(log.log().size_bytes().unwrap() as usize);
    }
    let mut bytes = std::fs::read(file).unwrap();
    bytes.truncate(*ends.last().unwrap());
    (bytes, ends)
}

/// What was shown below a high watermark and then cut is not shown again before it is replicated again.
#[test]
fn a_high_watermark_does_not_outlive_a_truncation() {
    let (bytes, ends) = log_of(&["0", "1", "2", "3", "4", "5", "6", "7"]);
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("t-0");
    std::fs::create_dir(&place).unwrap();
    let give = |length: usize, high_watermark: i64| {
        // Under another name first: each is a file of its own.
        let written = place.join("new");
        std::fs::write(&written, &bytes[..length]).unwrap();
        std::fs::rename(written, place.join("00000000000000000000.log")).unwrap();
        let written = folder.path().join("new");
        std::fs::write(&written, format!("0\n1\nt 0 {high_watermark}\n")).unwrap();
        std::fs::rename(written, folder.path().join("replication-offset-checkpoint")).unwrap();
    };
    give(bytes.len(), 7);
    let options = ServeOptions {
        until: Until::HighWatermark,
        ..ServeOptions::default()
    };
    let broker = Broker::open(&[folder.path().to_path_buf()], options).unwrap();
    let mut client = Client::new(&broker);
    let mut end = || client.offset(("t", 0), -1, ReadUncommitted).2;
    assert_eq!(end(), 7);
    give(ends[3], 3);
    assert_eq!(end(), 4, "what clients have read is not taken away");
    give(bytes.len(), 3);
    assert_eq!(end(), 4);
}

/// Another process, which tells nobody, truncates the log and writes other batches into the same file. They are checked.
#[test]
fn what_another_process_writes_in_place_of_checked_bytes_is_checked() {
    let first = ["0", "1", "2", "3", "4", "5", "6", "7"];
    let (bytes, _) = log_of(&first);
    for more in [&[][..], &["other"][..]] {
        let values = ["0", "1", "2", "a", "b", "c", "d", "e"].map(|value| value);
        let (mut regrown, ends) = log_of(&[&values[..], more].concat());
        assert!(regrown.len() >= bytes.len());
        regrown[ends[4] - 1] ^= 0x55;
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("t-0");
        std::fs::create_dir(&place).unwrap();
        let file = place.join("00000000000000000000.log");
        std::fs::write(&file, &bytes).unwrap();
        let broker = open(&[folder.path().to_path_buf()]);
        let mut client = Client::new(&broker);
        let (seen, end, error) = read_all(&mut client, &Fetch::new("t", 0, 0));
        assert_eq!((seen.len(), end, error), (8, 8, 0));
        let open = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        open.set_len(ends[2] as u64).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&open, &regrown, 0).unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(2);
        open.set_modified(later).unwrap();
        // A reader that checks no checksums must not get it.
        for offset in 0..5 {
            let fetch = Fetch::new("t", 0, offset);
            let (seen, end, error) = read_all(&mut client, &fetch);
            assert_eq!((end, error), (4, 2), "{offset}");
            assert_eq!(seen.len() as i64, 4 - offset);
        }
    }
}

#[test]
fn topics_come_go_and_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().to_path_buf()];
    let how = LogDirOptions::default();
    let log_dir = LogDir::open_for_append(&paths, &OpenOptions::default(), &how);
    let log_dir = log_dir.or_else(|_| {
        std::fs::create_dir(folder.path().join("first-0")).unwrap();
        LogDir::open_for_append(&paths, &OpenOptions::default(), &how)
    });
    let log_dir = log_dir.unwrap();
    let make = |name: &str| {
        let topic = NewTopic {
            name,
            partitions: 2,
            config: offsetlog::LogConfig::default(),
            topic_id: None,
        };
        log_dir.create_topic(&topic).unwrap()
    };
    let id = make("one");
    append(&log_dir.log_writer("one", 0).unwrap(), b"old");
    let broker = open(&paths);
    let mut client = Client::new(&broker);
    assert_eq!(client.metadata("one").0, id);
    assert_eq!(client.fetch(&Fetch::new("two", 0, 0)).error, 3);
    make("two");
    tick(&broker, &mut client);
    append(&log_dir.log_writer("two", 1).unwrap(), b"here");
    assert_eq!(read_all(&mut client, &Fetch::new("two", 1, 0)).0.len(), 1);
    let by_id = |id: Uuid, offset: i64| Fetch {
        version: 16,
        topic_id: id,
        ..Fetch::new("one", 0, offset)
    };
    assert_eq!(client.fetch(&by_id(id, 0)).error, 0);
    // A fetch that waits while its topic is replaced ends with an error, and not with the other topic's records.
    let waiting = Fetch {
        max_wait_ms: 60_000,
        ..by_id(id, 1)
    };
    let step = client.send(&apis::FETCH, 16, &waiting.request());
    assert!(matches!(step, Step::Wait { .. }), "{step:?}");
    log_dir.delete_topic("one").unwrap();
    let other = make("one");
    for _ in 0..3 {
        append(&log_dir.log_writer("one", 0).unwrap(), b"new");
    }
    tick(&broker, &mut client);
    let Step::Reply(reply) = client.resume() else {
        panic!("no reply");
    };
    assert!(reply.length() < 100, "an error without records");
    assert_eq!(client.fetch(&by_id(id, 0)).error, 100);
    assert_eq!(client.metadata("one").0, other);
    let (seen, _, error) = read_all(&mut client, &by_id(other, 0));
    assert_eq!((seen.len(), error), (3, 0));
    log_dir.delete_topic("one").unwrap();
    tick(&broker, &mut client);
    assert_eq!(client.fetch(&by_id(other, 0)).error, 100);
    assert_eq!(client.fetch(&Fetch::new("one", 0, 0)).error, 3);
}

#[test]
fn a_directory_that_is_removed_ends_its_partition_only() {
    let folder = copy(&[
        "kafka-4.3.0/clean/log-dir-1/g-plain-0",
        "kafka-4.3.0/clean/log-dir-1/g-codec-lz4-0",
    ]);
    let broker = open(&[folder.path().to_path_buf()]);
    let mut client = Client::new(&broker);
    assert_eq!(client.fetch(&Fetch::new("g-plain", 0, 0)).error, 0);
    std::fs::remove_dir_all(folder.path().join("g-plain-0")).unwrap();
    let error = client.fetch(&Fetch::new("g-plain", 0, 0)).error;
    assert!(error == 3 || error == 56, "{error}");
    assert_eq!(client.fetch(&Fetch::new("g-codec-lz4", 0, 0)).error, 0);
    tick(&broker, &mut client);
    assert_eq!(client.fetch(&Fetch::new("g-plain", 0, 0)).error, 3);
    assert_eq!(client.fetch(&Fetch::new("g-codec-lz4", 0, 0)).error, 0);
}

/// A request of a gigabyte is answered by ranges of files: nothing of the records is in memory.
#[test]
fn records_are_not_in_the_answer_but_in_the_file() {
    let broker = open(&[data("kafka-4.3.0/clean/log-dir-2")]);
    let mut client = Client::new(&broker);
    let fetch = Fetch {
        partition_max_bytes: 1 << 30,
        ..Fetch::new("g-big", 0, 0)
    };
    let Step::Reply(reply) = client.send(&apis::FETCH, 12, &fetch.request()) else {
        panic!("no reply");
    };
    let in_memory: u64 = reply
        .pieces
        .iter()
        .filter(|piece| matches!(piece, offsetlog_net::Piece::Bytes(_)))
        .map(offsetlog_net::Piece::length)
        .sum();
    assert!(in_memory < 200, "{in_memory}");
    assert!(reply.length() > 300_000);
}
