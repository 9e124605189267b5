//! Data directories of a real server's, and planted ones: what they say, and what is refused.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test"
)]

use super::*;
use crate::codec::Compressor;
use crate::disk::RealDisk;
use crate::log::cluster::{Membership, Metadata};
use crate::step_progress::DirectoryProgress;
use offsetlog_format::Uuid;
use offsetlog_format::builder::Compress;
use offsetlog_format::checksum::Adler32;
use std::fs;
use std::sync::Arc;
use tempfile::TempDir;

const STATE: &str = r#"{"controller_epoch":2,"leader":3,"version":1,"leader_epoch":4,"isr":[3]}"#;

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as i32).to_be_bytes()[..], bytes].concat()
}

fn sum(bytes: &[u8]) -> Vec<u8> {
    let mut sum = Adler32::default();
    sum.update(bytes);
    i64::from(sum.value()).to_be_bytes().to_vec()
}

/// A snapshot of nodes, each with its path and data, of ZooKeeper 3.5.
fn snapshot(nodes: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = b"ZKSN\0\0\0\x02".to_vec();
    bytes.extend([0; 16]);
    for (path, data) in nodes {
        bytes.extend(text(path.as_bytes()));
        bytes.extend(text(data.as_bytes()));
        bytes.extend([0; 68]);
    }
    bytes.extend(text(b"/"));
    bytes.extend(sum(&bytes));
    bytes.extend(text(b"/"));
    bytes
}

enum Do<'a> {
    Create(&'a str, &'a str),
    Own(&'a str, i64),
    Set(&'a str, &'a str),
    Delete(&'a str),
    Close(i64),
}

fn entry(zxid: i64, change: &Do<'_>) -> Vec<u8> {
    let data = |path: &str, data: &str| [text(path.as_bytes()), text(data.as_bytes())].concat();
    let (kind, session, body) = match *change {
        Do::Create(path, with) => (1, 0, [data(path, with), vec![0; 9]].concat()),
        Do::Own(path, session) => (
            1,
            session,
            [data(path, "{}"), vec![0, 0, 0, 0, 1, 0, 0, 0, 0]].concat(),
        ),
        Do::Set(path, with) => (5, 0, [data(path, with), vec![0, 0, 0, 7]].concat()),
        Do::Delete(path) => (2, 0, text(path.as_bytes())),
        Do::Close(session) => (-11, session, vec![]),
    };
    let mut bytes = i64::to_be_bytes(session).to_vec();
    bytes.extend([0; 4]);
    bytes.extend(zxid.to_be_bytes());
    bytes.extend((1000 + zxid).to_be_bytes());
    bytes.extend(i32::to_be_bytes(kind));
    bytes.extend(body);
    [sum(&bytes), text(&bytes), b"B".to_vec()].concat()
}

fn log(entries: &[(i64, Do<'_>)]) -> Vec<u8> {
    let mut bytes = b"ZKLG\0\0\0\x02\0\0\0\0\0\0\0\0".to_vec();
    for (zxid, change) in entries {
        bytes.extend(entry(*zxid, change));
    }
    bytes.extend([0; 200]);
    bytes
}

/// A data directory with these files.
fn planted(files: &[(&str, Vec<u8>)]) -> TempDir {
    let place = TempDir::new().unwrap();
    for (name, bytes) in files {
        let path = place.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    place
}

fn read_of(place: &Path, cluster_id: Option<&str>) -> Result<Found> {
    let found = Places::find(&RealDisk, place)?;
    found.expect("files of ZooKeeper's").read(
        &OpenOptions::default(),
        cluster_id,
        &mut Steps::new(&DirectoryProgress::default()),
    )
}

fn read(files: &[(&str, Vec<u8>)]) -> Result<Found> {
    read_of(planted(files).path(), None)
}

fn said(files: &[(&str, Vec<u8>)]) -> String {
    read(files).unwrap_err().to_string()
}

const TOPICS: (&str, &str) = ("/brokers/topics", "");
const A: (&str, &str) = (
    "/brokers/topics/a",
    r#"{"version":1,"partitions":{"0":[3,4]}}"#,
);

fn config(found: &Found, topic: &str, name: &str) -> Option<String> {
    let configs = found
        .image
        .configs
        .get(&("topic".to_owned(), topic.to_owned()))?;
    configs.get(name).cloned()
}

/// A real server's: three topics and one that was deleted, settings of all kinds, below a chroot. The answers are the broker's own.
#[test]
fn a_real_servers_data_says_what_its_broker_said() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kafka-3.9.2-zookeeper");
    let found = read_of(&data.join("zookeeper"), None).unwrap();
    assert_eq!(found.cluster_id.as_deref(), Some("E4g93QLNTA69uPESHy330Q"));
    assert_eq!(found.deleting, BTreeSet::new());
    let image = found.image;
    let ids: Vec<_> = image
        .topics
        .iter()
        .map(|topic| (topic.name.as_str(), topic.topic_id.to_string()))
        .collect();
    assert_eq!(
        ids,
        [
            ("late", "EVb8r-PFTxeMerz4ilRDKQ".to_owned()),
            ("own", "2ms_BpkmRGOLVPtl2Svo3g".to_owned()),
            ("plain", "c0vIXr2oTU6VC3fMURTQ-Q".to_owned()),
        ]
    );
    let counts: Vec<_> = image
        .topics
        .iter()
        .map(|topic| topic.partitions.len())
        .collect();
    assert_eq!(counts, [1, 1, 2]);
    let partition = &image.topics[2].partitions[&1];
    assert_eq!(
        (&*partition.replicas, &*partition.isr),
        (&[1][..], &[1][..])
    );
    let told = |kind: &str, name: &str| {
        let settings = &image.configs[&(kind.to_owned(), name.to_owned())];
        let settings = settings
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        settings.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        told("topic", "own"),
        "cleanup.policy=compact,delete retention.bytes=5000"
    );
    assert_eq!(told("topic", "late"), "segment.bytes=1048576");
    assert_eq!(told("broker", "1"), "log.retention.ms=43200000");
    assert_eq!(
        told("broker", ""),
        "log.retention.bytes=100000 log.retention.ms=129600000"
    );
    // The broker stopped before its ZooKeeper did, as the last that was written.
    assert_eq!(image.brokers, []);
    assert!(image.is_complete);
    assert_eq!(image.warnings, Vec::<String>::new());
    assert!(image.newest_timestamp > Some(1_795_000_000_000));
}

#[test]
fn a_snapshot_with_later_changes_comes_to_the_same() {
    let later = r#"{"version":1,"partitions":{"0":[5]}}"#;
    let entries = || {
        log(&[
            (1, Do::Create(TOPICS.0, "")),
            (2, Do::Create(A.0, A.1)),
            (
                3,
                Do::Create(
                    "/config/topics/a",
                    r#"{"version":1,"config":{"retention.ms":"1"}}"#,
                ),
            ),
            (
                4,
                Do::Set(
                    "/config/topics/a",
                    r#"{"version":1,"config":{"retention.ms":"2"}}"#,
                ),
            ),
            (5, Do::Delete("/config/topics/a")),
            (6, Do::Set(A.0, later)),
            (7, Do::Own("/brokers/ids/3", 9)),
            (8, Do::Own("/brokers/ids/4", 8)),
            (9, Do::Close(9)),
        ])
    };
    let whole = read(&[("version-2/log.1", entries())]).unwrap();
    assert_eq!(whole.image.topics[0].partitions[&0].replicas, [5]);
    assert_eq!(
        whole
            .image
            .brokers
            .iter()
            .map(|broker| broker.id)
            .collect::<Vec<_>>(),
        [4]
    );
    assert_eq!(config(&whole, "a", "retention.ms"), None);
    assert_eq!(whole.image.newest_timestamp, Some(1009));
    // Named for the second change, with some of the later ones and without others.
    for nodes in [
        vec![TOPICS, (A.0, later)],
        vec![
            TOPICS,
            A,
            (
                "/config/topics/a",
                r#"{"version":1,"config":{"retention.ms":"2"}}"#,
            ),
        ],
    ] {
        let files = [
            ("version-2/snapshot.2", snapshot(&nodes)),
            ("version-2/log.1", entries()),
        ];
        let found = read(&files).unwrap();
        assert_eq!(found.image.topics[0].partitions[&0].replicas, [5]);
        assert_eq!(
            (&found.image.configs, &found.image.brokers),
            (&whole.image.configs, &whole.image.brokers)
        );
    }
}

#[test]
fn what_is_missing_is_told_and_nothing_is_taken_from_what_is_there() {
    let front = || log(&[(1, Do::Create(TOPICS.0, "")), (2, Do::Create(A.0, A.1))]);
    let all = snapshot(&[TOPICS, A]);
    let more = |zxid| log(&[(zxid, Do::Delete(A.0))]);
    // The log continues in the next file, even with the next leader.
    for next in [3, 1 << 32 | 1] {
        let name = format!("log.{next:x}");
        assert_eq!(
            read(&[("log.1", front()), (&name, more(next))])
                .unwrap()
                .image
                .topics,
            []
        );
    }
    for next in [4, 1 << 32 | 2] {
        let name = format!("log.{next:x}");
        let error = said(&[("log.1", front()), (&name, more(next))]);
        assert!(
            error.contains("transactions from 0x3 on are missing"),
            "{error}"
        );
    }
    // The next log was begun, and nothing in it was written whole.
    let torn = || log(&[])[..20].to_vec();
    for logs in [
        vec![("log.1", front()), ("log.3", torn())],
        vec![("log.3", torn())],
    ] {
        let files = [vec![("snapshot.2", all.clone())], logs].concat();
        assert_eq!(read(&files).unwrap().image.topics.len(), 1);
    }
    // No log that begins before the snapshot's next transaction.
    for files in [
        vec![("snapshot.2", all.clone())],
        vec![("snapshot.2", all.clone()), ("log.4", more(4))],
    ] {
        let error = said(&files);
        assert!(
            error.contains("transactions from 0x3 on are missing"),
            "{error}"
        );
        assert!(
            error.contains("where dataLogDir is another folder"),
            "{error}"
        );
    }
    // Logs that were left behind when dataLogDir became another folder.
    let error = said(&[("snapshot.9", all.clone()), ("log.1", front())]);
    assert!(error.contains("the newest log ends with 0x2"), "{error}");
    // And with both.
    let files = [
        ("data/version-2/snapshot.2", all.clone()),
        ("logs/version-2/log.1", front()),
    ];
    assert_eq!(read(&files).unwrap().image.topics.len(), 1);
    // Several servers.
    let error = said(&[
        ("1/version-2/snapshot.2", all.clone()),
        ("2/version-2/snapshot.2", all),
    ]);
    assert!(error.contains("in several folders"), "{error}");
    assert_eq!(
        Places::find(&RealDisk, planted(&[("x/y", vec![])]).path()).unwrap(),
        None
    );
}

#[test]
fn damage_is_refused_and_a_torn_end_is_an_end() {
    let all = [
        (1, Do::Create(TOPICS.0, "")),
        (2, Do::Create(A.0, A.1)),
        (3, Do::Delete(A.0)),
    ];
    let whole = log(&all);
    let end = whole.len() - 200;
    let last = end - entry(3, &all[2].1).len();
    for cut in last + 1..end {
        let mut zeros = whole.clone();
        zeros[cut..].fill(0);
        for torn in [whole[..cut].to_vec(), zeros] {
            assert_eq!(
                read(&[("log.1", torn)]).unwrap().image.topics.len(),
                1,
                "{cut}"
            );
        }
    }
    for at in 0..end {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        match read(&[("log.1", flipped)]) {
            // The database's id, which nobody looks at; and a length that is too great makes the last one look as if it were not whole.
            Ok(_) => assert!(
                (8..16).contains(&at) || (last + 8..last + 12).contains(&at),
                "{at}"
            ),
            Err(error) => assert!(error.to_string().contains("log.1"), "{at}: {error}"),
        }
    }
    let mut behind = whole.clone();
    behind[end + 150] = 1;
    assert!(said(&[("log.1", behind)]).contains("more follows where the transactions end"));
    let error = said(&[(
        "log.1",
        log(&[(1, Do::Create(TOPICS.0, "")), (1, Do::Delete(A.0))]),
    )]);
    assert!(error.contains("do not ascend"), "{error}");
    // A snapshot that is not whole leaves the one before it.
    let good = snapshot(&[TOPICS, A]);
    let files = |newest: &[u8]| {
        [
            ("snapshot.2", good.clone()),
            ("snapshot.3", newest.to_vec()),
            ("log.1", whole.clone()),
        ]
    };
    for newest in [&good[..good.len() - 1], &[], &[&good[..], b"x"].concat()] {
        let found = read(&files(newest)).unwrap();
        assert_eq!(found.image.topics, []);
        assert!(
            found.image.warnings[0].contains("snapshot.3"),
            "{:?}",
            found.image.warnings
        );
    }
    let error = said(&[("snapshot.2", b"ZKSN".to_vec()), ("log.1", whole)]);
    assert!(
        error.contains("no snapshot of ZooKeeper's is whole"),
        "{error}"
    );
}

#[test]
fn compressed_snapshots_are_read() {
    let good = snapshot(&[TOPICS, A]);
    for (codec, suffix) in [
        (offsetlog_format::Codec::Gzip, "gz"),
        (offsetlog_format::Codec::Snappy, "snappy"),
    ] {
        let mut packed = Vec::new();
        Compressor::new()
            .compress(codec, 2, &good, &mut packed)
            .unwrap();
        let log = || log(&[(2, Do::Create("/x", ""))]);
        let name = format!("snapshot.2.{suffix}");
        let found = read(&[(&name, packed.clone()), ("log.2", log())]).unwrap();
        assert_eq!(found.image.topics.len(), 1);
        let cut = packed[..packed.len() - 3].to_vec();
        assert!(read(&[(&name, cut), ("log.2", log())]).is_err());
    }
}

#[test]
fn of_several_clusters_the_id_decides() {
    let nodes = [
        ("/east/brokers/topics", ""),
        ("/east/cluster/id", r#"{"version":"1","id":"E"}"#),
        ("/west/brokers/topics", ""),
        ("/west/cluster/id", r#"{"version":"1","id":"W"}"#),
        ("/west/brokers/topics/a", A.1),
        ("/west/brokers/topics/a/partitions/0/state", STATE),
    ];
    let place = planted(&[
        ("snapshot.0", snapshot(&nodes)),
        ("log.1", log(&[(1, Do::Create("/x", ""))])),
    ]);
    let found = read_of(place.path(), Some("W")).unwrap();
    let partition = &found.image.topics[0].partitions[&0];
    assert_eq!(
        (partition.leader, partition.leader_epoch, &*partition.isr),
        (Some(3), 4, &[3][..])
    );
    assert_eq!(read_of(place.path(), Some("E")).unwrap().image.topics, []);
    for id in [None, Some("X")] {
        let error = read_of(place.path(), id).unwrap_err().to_string();
        assert!(error.contains("2 Kafka clusters"), "{error}");
    }
}

#[test]
fn nodes_that_kafka_would_not_read_are_refused_by_name() {
    let with = |node: (&str, &str)| {
        let nodes = [TOPICS, node];
        read(&[
            ("snapshot.0", snapshot(&nodes)),
            ("log.1", log(&[(1, Do::Create("/x", ""))])),
        ])
    };
    for (path, data) in [
        (A.0, "x"),
        (A.0, r#"{"partitions":{"x":[1]}}"#),
        (A.0, r#"{"partitions":{"0":["1"]}}"#),
        (A.0, r#"{"partitions":{},"topic_id":"short"}"#),
        ("/config/topics/a", r#"{"config":{"retention.ms":1}}"#),
        ("/config/brokers/<default>", "{"),
        ("/cluster/id", "[]"),
    ] {
        let error = with((path, data)).unwrap_err().to_string();
        assert!(error.contains(path), "{error}");
    }
    assert_eq!(
        with(("/config/topics/a", "")).unwrap().image.configs.len(),
        0
    );
    let secret = r#"{"config":{"x":"keyLength:128,initializationVector:a","retention.ms":"5"}}"#;
    let found = with(("/config/topics/a", secret)).unwrap();
    assert_eq!(
        found.image.configs[&("topic".to_owned(), "a".to_owned())].len(),
        1
    );
    let error = with(("/migration", "{}")).unwrap_err().to_string();
    assert!(error.contains("begun to move to KRaft"), "{error}");
    let going = with(("/admin/delete_topics/a", "")).unwrap();
    assert_eq!(going.deleting, BTreeSet::from(["a".to_owned()]));
    assert!(said(&[("log.1", log(&[(1, Do::Create("/x", ""))]))]).contains("no Kafka cluster"));
}

/// Brokers before 2.8 gave topics no ids; a topic that is being deleted no longer has settings.
#[test]
fn a_topic_is_known_by_its_name_where_it_has_no_id_until_it_is_to_be_deleted() {
    let image = read(&[(
        "log.1",
        log(&[(1, Do::Create(TOPICS.0, "")), (2, Do::Create(A.0, A.1))]),
    )]);
    let image = image.unwrap().image;
    assert!(image.topics[0].topic_id.is_zero());
    let member = |deleting: &[&str]| Membership {
        topic: "a".to_owned(),
        topic_id: Some(Uuid::METADATA_TOPIC),
        metadata: Some(Arc::new(Metadata {
            path: PathBuf::new(),
            cluster_id: None,
            image: Ok(image.clone()),
            deleting: deleting.iter().map(ToString::to_string).collect(),
        })),
        ..Membership::default()
    };
    assert_eq!(member(&[]).missing_because(), None);
    let why = member(&["a"]).missing_because();
    assert!(why.unwrap().contains("about to delete the topic"));
}
