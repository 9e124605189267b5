//! How open transactions end for readers: as their coordinators' records say, and what happens if these cannot be read.

use crate::client::{Asks, Client, Fetch, clean, copy, read_all};
use offsetlog::Isolation::ReadCommitted;
use offsetlog_net::Service;
use offsetlog_net::server::{Broker, OpenTransactionReport, OpenTransactions, ServeOptions};
use std::path::Path;

/// 17 committed records follow the first open transaction: tried with Java 2.8.2 and 4.3.0 and librdkafka.
const ALL: (usize, i64) = (187, 394);

fn decide(without_state: bool) -> ServeOptions {
    ServeOptions {
        open_transactions: OpenTransactions::Decide { without_state },
        ..ServeOptions::default()
    }
}

fn committed() -> Fetch<'static> {
    Fetch {
        isolation: ReadCommitted,
        ..Fetch::new("g-txn", 0, 0)
    }
}

/// Number of committed records that a client reads, and where it ends.
fn read(client: &mut Client<'_>) -> (usize, i64) {
    let (seen, end, error) = read_all(client, &committed());
    assert_eq!(error, 0);
    (seen.len(), end)
}

fn reported(broker: &Broker) -> Vec<OpenTransactionReport> {
    let report = broker.report();
    let topic = report.topics.iter().find(|topic| topic.name == "g-txn");
    topic.unwrap().partitions[0].open_transactions.clone()
}

/// Changes a bit of the first record in each partition of `__transaction_state`; a second call changes it back.
fn flip_states(folder: &Path) {
    for number in 0..2 {
        let path = folder.join(format!("__transaction_state-{number}/{:020}.log", 0));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[70] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
}

/// What the coordinator has not decided is shown as aborted, to the end of the log.
#[test]
fn open_transactions_are_decided_by_their_state() {
    let broker = Broker::open(&clean(), decide(false)).unwrap();
    let mut client = Client::new(&broker);
    assert_eq!(read(&mut client), ALL);
    assert_eq!(client.offset(("g-txn", 0), -1, ReadCommitted).2, ALL.1);
    let open = reported(&broker);
    assert!(!open.is_empty());
    assert!(
        open.iter().all(|each| each.commit == Some(false)),
        "{open:?}"
    );
}

#[test]
fn without_any_state_they_are_aborted_only_if_asked_for() {
    let folder = copy(&["kafka-4.3.0/clean/log-dir-2/g-txn-0"]);
    assert!(Broker::open(&[folder.path()], decide(false)).is_err());
    let broker = Broker::open(&[folder.path()], decide(true)).unwrap();
    assert_eq!(read(&mut Client::new(&broker)), ALL);
}

/// Beside a file that recovery kept there is nothing of a mirror, and it is no directory.
#[test]
fn those_of_a_kept_file_are_decided_too() {
    let folder = copy(&["kafka-4.3.0/clean/log-dir-2/g-txn-0"]);
    let partition = folder.path().join("g-txn-0");
    // All of the log in one file.
    let segments = std::fs::read_dir(&partition)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> = segments
        .filter(|path| path.extension().is_some_and(|it| it == "log"))
        .collect();
    segments.sort();
    let bytes: Vec<u8> = segments
        .iter()
        .flat_map(|path| std::fs::read(path).unwrap())
        .collect();
    let kept = partition.join(format!("offsetlog-cut/{:020}.log.0", 0));
    std::fs::create_dir(kept.parent().unwrap()).unwrap();
    std::fs::write(&kept, bytes).unwrap();
    let waiting = Broker::open(&[&kept], ServeOptions::default()).unwrap();
    let (seen, end) = read(&mut Client::new(&waiting));
    assert!(seen < ALL.0 && end < ALL.1, "{seen} {end}");
    let broker = Broker::open(&[&kept], decide(true)).unwrap();
    assert_eq!(read(&mut Client::new(&broker)), ALL);
    let open = reported(&broker);
    assert!(!open.is_empty() && open.iter().all(|each| each.commit == Some(false)));
    let warnings = broker.report().warnings;
    assert!(
        !warnings
            .iter()
            .any(|warning| warning.contains("a mirror's copy"))
    );
}

/// A coordinator's partition that cannot be read may hold the record of a commit.
#[test]
fn they_wait_while_a_coordinators_partition_cannot_be_read() {
    let folder = copy(&[
        "kafka-4.3.0/clean/log-dir-2/g-txn-0",
        "kafka-4.3.0/clean/log-dir-1/__transaction_state-0",
        "kafka-4.3.0/clean/log-dir-1/__transaction_state-1",
    ]);
    flip_states(folder.path());
    let broker = Broker::open(&[folder.path()], decide(true)).unwrap();
    let mut client = Client::new(&broker);
    let (seen, end) = read(&mut client);
    assert!(seen < ALL.0 && end < ALL.1, "{seen} {end}");
    let warnings = broker.report().warnings;
    assert!(
        warnings
            .iter()
            .any(|warning| warning.starts_with("open transactions wait")
                && warning.contains("__transaction_state-0")),
        "{warnings:?}"
    );
    let open = reported(&broker);
    assert!(
        !open.is_empty() && open.iter().all(|each| each.commit.is_none()),
        "{open:?}"
    );
    // It is asked again after a while.
    flip_states(folder.path());
    assert_eq!(read(&mut client), (seen, end));
    broker.tick(3_600_000);
    assert_eq!(read(&mut client), ALL);
}

/// Each partition of a copy ends where it was copied to, `__transaction_state` perhaps before a decision to commit.
#[test]
fn decisions_on_a_mirrors_copy_are_doubtful() {
    let folder = copy(&[
        "kafka-4.3.0/clean/log-dir-2/g-txn-0",
        "kafka-4.3.0/clean/log-dir-1/__transaction_state-0",
        "kafka-4.3.0/clean/log-dir-1/__transaction_state-1",
    ]);
    let doubts = |path: &Path, options: ServeOptions| {
        let broker = Broker::open(&[path], options).unwrap();
        let mut warnings = broker.report().warnings;
        warnings.retain(|warning| warning.contains("a mirror's copy"));
        warnings
    };
    assert_eq!(doubts(folder.path(), decide(false)), Vec::<String>::new());
    std::fs::write(folder.path().join(".offsetlog.mirror"), "version=1\n").unwrap();
    for without_state in [false, true] {
        let found = doubts(folder.path(), decide(without_state));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&folder.path().display().to_string()));
        assert!(found[0].contains("shown as aborted"), "{found:?}");
    }
    assert_eq!(
        doubts(&folder.path().join("g-txn-0"), decide(true)).len(),
        1
    );
    // Who waits is shown nothing that may be wrong.
    let waits = doubts(folder.path(), ServeOptions::default());
    assert_eq!(waits, Vec::<String>::new());
}
