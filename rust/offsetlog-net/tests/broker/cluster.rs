//! The cluster's metadata changes while its log dirs are served.

use crate::client::{Asks, Client, int, structs};
use crate::growth::{lead, writer};
use offsetlog::format::Uuid;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis;
use offsetlog::{AppendOptions, BatchBuilder, LogWriter, OpenOptions, WriteOptions};
use offsetlog_net::Service;
use offsetlog_net::server::{Broker, Event, ServeOptions};
use std::path::Path;
use std::sync::{Arc, Mutex};

type Events = Arc<Mutex<Vec<Event>>>;

const ID: [u8; 16] = *b"an id of a topic";

/// Text of at most 126 bytes, as a compact string.
fn text(text: &str) -> Vec<u8> {
    let mut bytes = vec![text.len() as u8 + 1];
    bytes.extend(text.as_bytes());
    bytes
}

/// A metadata record of version 0 with its frame and no tagged fields.
fn record(number: u8, body: &[&[u8]]) -> Vec<u8> {
    [&[1, number, 0], &body.concat()[..], &[0]].concat()
}

fn topic(name: &str, id: [u8; 16]) -> Vec<u8> {
    record(2, &[&text(name), &id])
}

/// Of one replica, which leads.
fn partition(number: i32, id: [u8; 16], leader_epoch: i32) -> Vec<u8> {
    let one = [&[2][..], &1_i32.to_be_bytes()].concat();
    let leader = [1, leader_epoch, 0].map(i32::to_be_bytes).concat();
    record(
        3,
        &[&number.to_be_bytes(), &id, &one, &one, &[1], &[1], &leader],
    )
}

fn config(name: &str, key: &str, value: &str) -> Vec<u8> {
    record(4, &[&[2], &text(name), &text(key), &text(value)])
}

fn write(log: &LogWriter, records: &[Vec<u8>]) {
    for record in records {
        let mut batch = BatchBuilder::default();
        batch.push(1, None, Some(record), &[]).unwrap();
        log.append(&mut batch, &AppendOptions::default()).unwrap();
    }
    log.flush().unwrap();
}

/// A topic's partition of this id with a record.
fn make(path: &Path, id: [u8; 16]) {
    let how = WriteOptions {
        topic_id: Some(Uuid::from_bytes(id)),
        ..WriteOptions::default()
    };
    let log = LogWriter::open(path, &OpenOptions::default(), &how).unwrap();
    lead(&log, 0, b"value");
    log.close().unwrap();
}

/// Value and source of a setting.
fn told(client: &mut Client<'_>, topic: &str, name: &str) -> (String, i64) {
    let resource = Struct::new()
        .with("resourceType", 2)
        .with("resourceName", topic)
        .with("configurationKeys", vec![Value::from(name)]);
    let request = Struct::new().with("resources", vec![resource]);
    let response = client.call(&apis::DESCRIBE_CONFIGS, 4, &request);
    let result = structs(&response, "results")[0].clone();
    assert_eq!(int(&result, "errorCode"), 0);
    let found = structs(&result, "configs")[0].clone();
    let value = found.get("value").and_then(Value::as_str).unwrap();
    (value.to_owned(), int(&found, "configSource"))
}

/// A server, and what it tells.
fn serve(paths: &[&Path]) -> (Broker, Events) {
    let events = Events::default();
    let sink = Arc::clone(&events);
    let options = ServeOptions {
        on_event: Some(Arc::new(move |event| {
            sink.lock().unwrap().push(event.clone());
        })),
        ..ServeOptions::default()
    };
    (Broker::open(paths, options).unwrap(), events)
}

/// What is told by a look that is late enough.
fn look(broker: &Broker, events: &Events, client: &mut Client<'_>) -> Vec<Event> {
    client.now += 5001;
    broker.follow_metadata(client.now);
    broker.tick(client.now);
    std::mem::take(&mut *events.lock().unwrap())
}

fn is_not_read(all: &[Event]) -> bool {
    matches!(all, [Event::MetadataNotRead { .. }])
}

/// Turns bits of a byte, and back.
fn turn(metadata: &Path) {
    use std::os::unix::fs::FileExt;
    let file = metadata.join("00000000000000000000.log");
    let mut open = std::fs::OpenOptions::new();
    let (open, mut byte) = (open.read(true).write(true).open(file).unwrap(), [0]);
    open.read_exact_at(&mut byte, 70).unwrap();
    open.write_all_at(&[byte[0] ^ 0x55], 70).unwrap();
}

fn one(value: &str) -> (String, i64) {
    (value.to_owned(), 1)
}

#[test]
fn settings_topics_and_leader_epochs_follow_the_metadata() {
    let folder = tempfile::tempdir().unwrap();
    make(&folder.path().join("t-0"), ID);
    let log = writer(&folder.path().join("__cluster_metadata-0"));
    write(
        &log,
        &[
            topic("t", ID),
            partition(0, ID, 3),
            config("t", "retention.ms", "1000"),
        ],
    );
    let (broker, events) = serve(&[folder.path()]);
    let mut client = Client::new(&broker);
    let later = |client: &mut Client<'_>| look(&broker, &events, client);
    assert_eq!(told(&mut client, "t", "retention.ms"), one("1000"));
    assert_eq!(client.metadata("t").1, [(0, 0, 3)]);

    // A setting and a leader.
    write(
        &log,
        &[config("t", "retention.ms", "2000"), partition(0, ID, 7)],
    );
    assert_eq!(later(&mut client), []);
    assert_eq!(told(&mut client, "t", "retention.ms"), one("2000"));
    assert_eq!(client.metadata("t").1, [(0, 0, 7)]);

    // A topic that is made, of which another broker has a partition.
    let other = *b"id of the second";
    write(
        &log,
        &[
            topic("u", other),
            partition(0, other, 0),
            partition(1, other, 0),
            config("u", "retention.ms", "3"),
        ],
    );
    make(&folder.path().join("u-0"), other);
    assert!(matches!(&later(&mut client)[..], [Event::Changed { .. }]));
    assert_eq!(told(&mut client, "u", "retention.ms"), one("3"));
    let (id, partitions) = client.metadata("u");
    assert_eq!(id, Uuid::from_bytes(other));
    assert_eq!(
        (partitions.len(), partitions[1].1),
        (2, -1),
        "a partition is offline"
    );

    // A look that fails keeps what was known, and is told once.
    turn(&folder.path().join("__cluster_metadata-0"));
    let all = later(&mut client);
    assert!(is_not_read(&all), "{all:?}");
    assert_eq!(later(&mut client), []);
    assert_eq!(told(&mut client, "t", "retention.ms"), one("2000"));
    assert_eq!(client.metadata("t").1, [(0, 0, 7)]);
    assert_eq!(client.metadata("u").1.len(), 2);
    turn(&folder.path().join("__cluster_metadata-0"));
    log.close().unwrap();
    std::fs::rename(
        folder.path().join("__cluster_metadata-0"),
        folder.path().join("gone"),
    )
    .unwrap();
    let all = later(&mut client);
    assert!(is_not_read(&all), "{all:?}");
    assert_eq!(told(&mut client, "t", "retention.ms"), one("2000"));
    std::fs::rename(
        folder.path().join("gone"),
        folder.path().join("__cluster_metadata-0"),
    )
    .unwrap();

    // It is there again.
    let log = writer(&folder.path().join("__cluster_metadata-0"));
    write(&log, &[config("t", "retention.ms", "4000")]);
    later(&mut client);
    assert_eq!(told(&mut client, "t", "retention.ms"), one("4000"));

    // Not more often than it may cost.
    write(&log, &[config("t", "retention.ms", "5000")]);
    client.now += 1001;
    broker.follow_metadata(client.now);
    broker.tick(client.now);
    assert_eq!(told(&mut client, "t", "retention.ms"), one("4000"));
    later(&mut client);
    assert_eq!(told(&mut client, "t", "retention.ms"), one("5000"));
}

/// At once for a topic that has just been made, though once a second at most, by the clock of the requests.
#[test]
fn settings_of_a_new_topic_are_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let log = writer(&folder.path().join("__cluster_metadata-0"));
    make(&folder.path().join("t-0"), ID);
    write(&log, &[topic("t", ID), partition(0, ID, 0)]);
    let (broker, _) = serve(&[folder.path()]);
    let mut client = Client::new(&broker);
    let begin = |name: &str, id: [u8; 16]| {
        let settings = config(name, "retention.ms", "7");
        write(&log, &[topic(name, id), partition(0, id, 0), settings]);
        make(&folder.path().join(format!("{name}-0")), id);
    };
    begin("u", *b"id of the second");
    client.now += 1001;
    broker.tick(client.now);
    assert_eq!(told(&mut client, "u", "retention.ms"), one("7"));
    begin("v", *b"the third id....");
    // The directories are listed by another clock, which goes on alone.
    broker.tick(client.now + 1001);
    client.now += 999;
    // Of an unknown source, as long as nothing is known of the topic.
    let unknown = ("604800000".to_owned(), 0);
    assert_eq!(told(&mut client, "v", "retention.ms"), unknown);
    client.now += 1;
    assert_eq!(told(&mut client, "v", "retention.ms"), one("7"));
}

/// Of two directories of a name the one stays that was chosen at the start, whatever the metadata says of the name by now.
#[test]
fn a_topic_that_was_made_again_in_another_log_dir_is_served_once_its_old_directory_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one", "two", "metadata"].map(|name| folder.path().join(name));
    let other = *b"id of the second";
    make(&paths[0].join("t-0"), ID);
    make(&paths[1].join("t-0"), other);
    let log = writer(&paths[2].join("__cluster_metadata-0"));
    write(&log, &[topic("t", ID), partition(0, ID, 0)]);
    let (broker, events) = serve(&[&paths[0], &paths[1], &paths[2]]);
    let mut client = Client::new(&broker);
    assert_eq!(client.metadata("t").0, Uuid::from_bytes(ID));
    let removed = record(9, &[&ID]);
    write(&log, &[removed, topic("t", other), partition(0, other, 0)]);
    for _ in 0..2 {
        assert_eq!(look(&broker, &events, &mut client), []);
        assert_eq!(
            client.metadata("t"),
            (Uuid::from_bytes(ID), vec![(0, 0, 0)])
        );
    }
    std::fs::remove_dir_all(paths[0].join("t-0")).unwrap();
    assert!(matches!(
        &look(&broker, &events, &mut client)[..],
        [Event::Changed { .. }]
    ));
    assert_eq!(
        client.metadata("t"),
        (Uuid::from_bytes(other), vec![(0, 0, 0)])
    );
    let served = broker.report().topics[0].partitions[0].path.clone();
    assert_eq!(served, Some(paths[1].join("t-0")));
}

/// A controller that was formatted again, or a copy of last week, says nothing of the cluster that is served.
#[test]
fn metadata_that_ends_before_what_is_known_is_not_taken_and_told_of_once() {
    let folder = tempfile::tempdir().unwrap();
    make(&folder.path().join("t-0"), ID);
    let place = folder.path().join("__cluster_metadata-0");
    let log = writer(&place);
    let records = [
        topic("t", ID),
        partition(0, ID, 7),
        config("t", "retention.ms", "1000"),
    ];
    write(&log, &records);
    let (broker, events) = serve(&[folder.path()]);
    let mut client = Client::new(&broker);
    let known = |client: &mut Client<'_>| {
        assert_eq!(told(client, "t", "retention.ms"), one("1000"));
        assert_eq!(client.metadata("t").1, [(0, 0, 7)]);
        // What Metadata tells, the other answers know.
        assert_eq!(client.end_of_epoch(("t", 0), 7).0, 0);
    };
    known(&mut client);
    log.close().unwrap();
    let aside = folder.path().join("aside");
    for turn in 0..4 {
        std::fs::rename(&place, &aside).unwrap();
        let log = writer(&place);
        if turn % 2 == 0 {
            write(&log, &[topic("t", ID), config("t", "retention.ms", "2")]);
        }
        log.close().unwrap();
        let all = look(&broker, &events, &mut client);
        assert_eq!(is_not_read(&all), turn == 0, "{turn} {all:?}");
        known(&mut client);
        // It comes back, and goes again: that is told of no more.
        std::fs::remove_dir_all(&place).unwrap();
        std::fs::rename(&aside, &place).unwrap();
        assert_eq!(look(&broker, &events, &mut client), []);
        known(&mut client);
    }
    let log = writer(&place);
    write(&log, &[config("t", "retention.ms", "3")]);
    assert_eq!(look(&broker, &events, &mut client), []);
    assert_eq!(told(&mut client, "t", "retention.ms"), one("3"));
}

/// As what it is, and not as committed offsets that are missing.
#[test]
fn metadata_that_is_damaged_from_the_start_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    make(&folder.path().join("t-0"), ID);
    let place = folder.path().join("__cluster_metadata-0");
    let log = writer(&place);
    write(&log, &[topic("t", ID), partition(0, ID, 1)]);
    log.close().unwrap();
    turn(&place);
    let (broker, _) = serve(&[folder.path()]);
    let warnings = broker.report().warnings;
    let of_metadata: Vec<_> = warnings
        .iter()
        .filter(|text| text.contains("__cluster_metadata-0"))
        .collect();
    assert!(
        matches!(&of_metadata[..], [text] if text.contains("metadata cannot be read")),
        "{warnings:?}"
    );
}

/// Two brokers' log dirs, each with its own metadata log.
#[test]
fn one_metadata_log_that_is_damaged_or_gone_does_not_hold_back_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| folder.path().join(name));
    let other = *b"id of the second";
    make(&paths[0].join("t-0"), ID);
    make(&paths[1].join("u-0"), other);
    let places = paths
        .each_ref()
        .map(|path| path.join("__cluster_metadata-0"));
    let logs = places.each_ref().map(|place| writer(place));
    for log in &logs {
        let first = [topic("t", ID), partition(0, ID, 1), topic("u", other)];
        write(log, &first);
        write(log, &[partition(0, other, 1)]);
        let settings = ["t", "u"].map(|name| config(name, "retention.ms", "1"));
        write(log, &settings);
    }
    let (broker, events) = serve(&[&paths[0], &paths[1]]);
    let mut client = Client::new(&broker);
    let [first, second] = logs;
    first.close().unwrap();
    turn(&places[0]);
    let change = |value: &str, epoch: i32| {
        let settings = ["t", "u"].map(|name| config(name, "retention.ms", value));
        write(&second, &settings);
        write(&second, &[partition(0, other, epoch)]);
    };
    change("2", 2);
    let all = look(&broker, &events, &mut client);
    assert!(is_not_read(&all), "{all:?}");
    assert_eq!(told(&mut client, "t", "retention.ms"), one("1"), "kept");
    assert_eq!(told(&mut client, "u", "retention.ms"), one("2"));
    assert_eq!(client.metadata("u").1, [(0, 0, 2)]);
    change("3", 3);
    assert_eq!(look(&broker, &events, &mut client), []);
    assert_eq!(told(&mut client, "u", "retention.ms"), one("3"));
    // Where it is gone, the other one tells of its log dir too.
    std::fs::remove_dir_all(&places[0]).unwrap();
    assert_eq!(look(&broker, &events, &mut client), []);
    assert_eq!(told(&mut client, "t", "retention.ms"), one("3"));
    change("4", 4);
    assert_eq!(look(&broker, &events, &mut client), []);
    assert_eq!(told(&mut client, "t", "retention.ms"), one("4"));
    assert_eq!(client.metadata("u").1, [(0, 0, 4)]);
}
