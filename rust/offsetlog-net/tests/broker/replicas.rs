//! Replicas of a partition that change, come and go while one of them is served: it stays.

use crate::client::{Asks, Client, Fetch, read_all};
use crate::growth::{lead, writer};
use offsetlog::LogWriter;
use offsetlog::format::protocol::apis;
use offsetlog_net::server::{Broker, Event, PartitionReport, ServeOptions, Until};
use offsetlog_net::{Service, Step};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

type Events = Arc<Mutex<Vec<Event>>>;

/// Log dirs with a replica of `t-0`, each with this many records of leader epoch 0.
fn replicas(ends: &[usize]) -> (tempfile::TempDir, Vec<PathBuf>, Vec<LogWriter>) {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..ends.len())
        .map(|place| folder.path().join(place.to_string()))
        .collect();
    let logs = paths.iter().zip(ends).map(|(path, end)| {
        let log = writer(&path.join("t-0"));
        for offset in 0..*end {
            lead(&log, 0, format!("0 {offset}").as_bytes());
        }
        log
    });
    let logs = logs.collect();
    (folder, paths, logs)
}

fn open(paths: &[PathBuf], until: Until) -> (Broker, Events) {
    let events = Events::default();
    let sink = Arc::clone(&events);
    let options = ServeOptions {
        until,
        on_event: Some(Arc::new(move |event| {
            sink.lock().unwrap().push(event.clone());
        })),
        ..ServeOptions::default()
    };
    (Broker::open(paths, options).unwrap(), events)
}

/// What is told by a look at all again.
fn look(broker: &Broker, events: &Events, client: &mut Client<'_>) -> Vec<Event> {
    client.now += 1001;
    broker.tick(client.now);
    std::mem::take(&mut *events.lock().unwrap())
}

fn report(broker: &Broker) -> PartitionReport {
    broker.report().topics[0].partitions[0].clone()
}

/// Clients that name no leader epoch would go on in another leader's records, and miss what it wrote below their position.
#[test]
fn a_replica_that_gets_ahead_does_not_take_the_place_of_the_served_one() {
    let (_folder, paths, logs) = replicas(&[10, 6]);
    let (broker, events) = open(&paths, Until::LogEnd);
    let mut client = Client::new(&broker);
    assert_eq!(read_all(&mut client, &Fetch::new("t", 0, 0)).1, 10);
    let served = report(&broker).path;
    assert_eq!(served, Some(paths[0].join("t-0")));
    for offset in 6..14 {
        lead(&logs[1], 1, format!("1 {offset}").as_bytes());
        assert_eq!(look(&broker, &events, &mut client), []);
    }
    assert_eq!(report(&broker).path, served);
    assert_eq!(client.fetch(&Fetch::new("t", 0, 10)).bytes(), b"");
    assert_eq!(client.metadata("t").1, [(0, 0, 0)]);
}

#[test]
fn replicas_beside_the_served_one_come_and_go_and_it_stays() {
    let (folder, paths, logs) = replicas(&[10, 6, 3]);
    let (broker, events) = open(&paths, Until::LogEnd);
    let mut client = Client::new(&broker);
    let served = report(&broker).path;
    assert_eq!(report(&broker).others.len(), 2);
    for offset in 3..20 {
        lead(&logs[2], 3, format!("3 {offset}").as_bytes());
    }
    let away = folder.path().join("away");
    for _ in 0..3 {
        std::fs::rename(paths[2].join("t-0"), &away).unwrap();
        assert_eq!(look(&broker, &events, &mut client), []);
        assert_eq!(report(&broker).path, served);
        assert_eq!(report(&broker).others.len(), 1);
        std::fs::rename(&away, paths[2].join("t-0")).unwrap();
        assert_eq!(look(&broker, &events, &mut client), []);
        assert_eq!(report(&broker).path, served);
        assert_eq!(report(&broker).others.len(), 2);
    }
    // Only where it is gone itself another one is served, and a fetch that waits waits there.
    let waiting = Fetch {
        max_wait_ms: 60_000,
        ..Fetch::new("t", 0, 20)
    };
    std::fs::rename(paths[0].join("t-0"), &away).unwrap();
    assert!(matches!(
        &look(&broker, &events, &mut client)[..],
        [Event::Changed { .. }]
    ));
    assert_eq!(report(&broker).path, Some(paths[2].join("t-0")));
    let step = client.send(&apis::FETCH, 12, &waiting.request());
    assert!(matches!(step, Step::Wait { .. }), "{step:?}");
    look(&broker, &events, &mut client);
    std::fs::rename(paths[2].join("t-0"), folder.path().join("gone")).unwrap();
    for offset in 6..20 {
        lead(&logs[1], 3, format!("3 {offset}").as_bytes());
    }
    look(&broker, &events, &mut client);
    assert_eq!(report(&broker).path, Some(paths[1].join("t-0")));
    look(&broker, &events, &mut client);
    let seen = broker.changes().count();
    lead(&logs[1], 3, b"3 20");
    look(&broker, &events, &mut client);
    assert_ne!(broker.changes().count(), seen, "who waits is told");
}

/// What clients have seen below a high watermark stays, if the other replica is removed.
#[test]
fn a_partition_that_has_no_other_replica_any_more_keeps_its_high_watermark() {
    let (_folder, paths, logs) = replicas(&[10, 6]);
    for log in logs {
        log.close().unwrap();
    }
    let checkpoint = paths[0].join("replication-offset-checkpoint");
    std::fs::write(&checkpoint, "0\n1\nt 0 8\n").unwrap();
    let (broker, events) = open(&paths, Until::HighWatermark);
    let mut client = Client::new(&broker);
    assert_eq!(read_all(&mut client, &Fetch::new("t", 0, 0)).1, 8);
    std::fs::remove_file(&checkpoint).unwrap();
    std::fs::remove_dir_all(paths[1].join("t-0")).unwrap();
    assert_eq!(look(&broker, &events, &mut client), []);
    assert_eq!(report(&broker).others.len(), 0);
    assert_eq!(read_all(&mut client, &Fetch::new("t", 0, 0)).1, 8);
}
