//! Tests the log of committed offsets: Kafka's records are re-encoded byte for byte; reopening, refusals, limits.

#[path = "committed_offsets_kills.rs"]
mod kills;

use super::*;
use offsetlog::{GroupsOptions, Log, ScanOptions};
use std::sync::Arc;

const GOLDEN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/kafka-4.3.0/clean"
);

fn commit(topic: &str, partition: i32, offset: i64) -> Commit {
    Commit {
        topic: topic.to_owned(),
        partition,
        offset,
        leader_epoch: Some(3),
        metadata: format!("m{offset}"),
        commit_timestamp: 1_700_000_000_000 + offset,
        topic_id: Uuid::ZERO,
    }
}

fn options() -> CommittedOffsetsOptions {
    CommittedOffsetsOptions::default()
}

fn kept(offsets: &CommittedOffsets) -> Vec<(String, Commit)> {
    let all = offsets.all();
    all.map(|(group, commit)| (group.to_owned(), commit.clone()))
        .collect()
}

/// A 4.3.0 broker's own records, read and encoded again.
#[test]
fn records_are_a_brokers_byte_for_byte() {
    let (mut commits, mut groups) = (0, 0);
    for (dir, partition) in [("log-dir-1", 0), ("log-dir-2", 1)] {
        let path = format!("{GOLDEN}/{dir}/{TOPIC}-{partition}");
        let log = Log::open(path, &OpenOptions::default()).unwrap();
        let mut scan = log.scan(&ScanOptions::default()).unwrap();
        while let Some(mut batch) = scan.next_batch().unwrap() {
            while let Some(found) = batch.next_record().unwrap() {
                let (key, value) = (found.key.unwrap(), found.value);
                let mut read = BTreeMap::new();
                let decoded = offsetlog::format::internal_topic::CoordinatorTopic::ConsumerOffsets
                    .decode(key, value)
                    .unwrap();
                let offsetlog::format::internal_topic::CoordinatorRecord::Known(known) = decoded
                else {
                    continue;
                };
                replay::take(&known, &mut read);
                let Some((group, stored)) = read.into_iter().next() else {
                    continue;
                };
                assert_eq!(partition_of(&group, 2), partition, "{group}");
                for commit in stored.offsets.values() {
                    let written = record::commit_key(&group, &commit.topic, commit.partition);
                    assert_eq!(written.unwrap(), key);
                    assert_eq!(record::commit_value(commit).unwrap(), value.unwrap());
                    commits += 1;
                }
                for (topic, partition) in &stored.deleted {
                    let written = record::commit_key(&group, topic, *partition);
                    assert_eq!((written.unwrap().as_slice(), None), (key, value));
                }
                if let Some(metadata) = &stored.metadata {
                    assert_eq!(record::group_key(&group).unwrap(), key);
                    assert_eq!(record::group_value(metadata).unwrap(), value.unwrap());
                    groups += 1;
                }
            }
        }
    }
    assert!(
        commits > 0 && groups > 0,
        "{commits} commits, {groups} groups"
    );
}

/// Computed with Java's `"...".hashCode()`: the last hash is the smallest number, whose absolute value in Kafka is 0.
#[test]
fn groups_are_where_kafkas_hash_says() {
    for (group, partition) in [
        ("", 0),
        ("group", 47),
        ("\u{e9}\u{1F600}", 12),
        ("polygenelubricants", 0),
    ] {
        assert_eq!(partition_of(group, 50), partition, "{group:?}");
    }
}

#[test]
fn what_was_stored_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("groups");
    let mut offsets = CommittedOffsets::open(
        &path,
        &CommittedOffsetsOptions {
            partitions: 3,
            ..options()
        },
    )
    .unwrap();
    for group in ["one", "two", "three", "four"] {
        offsets
            .store(group, &[commit("top", 0, 1), commit("top", 1, 2)])
            .unwrap();
    }
    offsets.store("one", &[commit("top", 0, 7)]).unwrap();
    offsets
        .remove("two", &[("top".to_owned(), 1), ("absent".to_owned(), 1)])
        .unwrap();
    offsets.remove_group("three").unwrap();
    let metadata = GroupMetadata {
        protocol_type: "consumer".to_owned(),
        generation: 4,
        protocol: Some("range".to_owned()),
        leader: Some("me".to_owned()),
        state_timestamp: 5,
        members: vec![MemberMetadata {
            member_id: "me".to_owned(),
            instance_id: Some("static".to_owned()),
            client_id: "client".to_owned(),
            client_host: "/127.0.0.1".to_owned(),
            rebalance_timeout_ms: 6,
            session_timeout_ms: 7,
            subscription: vec![1, 2],
            assignment: Vec::new(),
        }],
    };
    offsets.store_group("one", metadata.clone()).unwrap();
    let (before, bytes) = (kept(&offsets), offsets.bytes());
    assert_eq!(before.len(), 5);
    assert_eq!(offsets.get("one", "top", 0).unwrap().offset, 7);
    // As a kill leaves it.
    drop(offsets);
    let offsets = CommittedOffsets::open(&path, &options()).unwrap();
    assert_eq!(kept(&offsets), before);
    assert_eq!(offsets.bytes(), bytes);
    assert_eq!(offsets.metadata("one"), Some(&metadata));
    assert_eq!(offsets.groups().collect::<Vec<_>>(), ["four", "one", "two"]);
    offsets.close().unwrap();

    // The reader of the engine, which real brokers' directories are tested with, sees the same.
    let log_dir = LogDir::open(&[&path], &OpenOptions::default()).unwrap();
    let (groups, warnings, unread) = log_dir.groups(&GroupsOptions::without_lag()).unwrap();
    assert!(
        warnings.is_empty() && unread.is_empty(),
        "{warnings:?} {unread:?}"
    );
    let read = groups.iter().flat_map(|group| {
        group.offsets.iter().map(|it| {
            (
                group.group_id.clone(),
                it.topic.clone(),
                it.partition,
                it.offset,
            )
        })
    });
    let stored = before
        .iter()
        .map(|(group, it)| (group.clone(), it.topic.clone(), it.partition, it.offset));
    assert_eq!(read.collect::<Vec<_>>(), stored.collect::<Vec<_>>());
    let one = groups.iter().find(|group| group.group_id == "one").unwrap();
    assert_eq!((one.epoch, one.members.len()), (Some(4), 1));
}

#[test]
fn a_dead_clusters_offsets_yield_to_the_log_and_stay_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = [
        commit("top", 0, 1),
        commit("top", 1, 1),
        commit("top", 2, 1),
    ];
    let mut offsets = CommittedOffsets::open(folder.path(), &options()).unwrap();
    offsets.seed("group", seeds.clone(), &unknown()).unwrap();
    offsets.store("group", &[commit("top", 0, 9)]).unwrap();
    offsets.remove("group", &[("top".to_owned(), 1)]).unwrap();
    offsets
        .seed("gone", [commit("top", 0, 1)], &unknown())
        .unwrap();
    offsets.remove_group("gone").unwrap();
    drop(offsets);
    let mut offsets = CommittedOffsets::open(folder.path(), &options()).unwrap();
    offsets.seed("group", seeds, &unknown()).unwrap();
    offsets
        .seed("gone", [commit("top", 0, 1)], &unknown())
        .unwrap();
    let found: Vec<_> = offsets
        .all()
        .map(|(group, it)| (group, it.partition, it.offset))
        .collect();
    assert_eq!(found, [("group", 0, 9), ("group", 2, 1)]);
}

/// No partition has a topic id.
fn unknown() -> TopicId {
    Arc::new(|_, _| Some(Uuid::ZERO))
}

#[test]
fn an_entry_of_an_earlier_topic_of_the_name_does_not_hide_a_dead_clusters_offset() {
    let folder = tempfile::tempdir().unwrap();
    let [earlier, later] = [1, 2].map(|id| Uuid::from_bytes([id; 16]));
    let of = |partition, offset, topic_id| Commit {
        topic_id,
        ..commit("top", partition, offset)
    };
    let mut offsets = CommittedOffsets::open(folder.path(), &options()).unwrap();
    let own = [
        of(0, 8, earlier),
        of(1, 8, later),
        of(2, 8, Uuid::ZERO),
        of(3, 8, earlier),
    ];
    offsets.store("group", &own).unwrap();
    let is_there: TopicId = Arc::new(move |_, _| Some(later));
    let seeds = [
        of(0, 120, later),
        of(1, 120, later),
        of(2, 120, later),
        of(3, 120, earlier),
        of(4, 120, Uuid::ZERO),
    ];
    let before = offsets.bytes();
    offsets.seed("group", seeds.clone(), &is_there).unwrap();
    let found = |offsets: &CommittedOffsets| {
        let all = offsets.of("group").map(|it| it.offset);
        all.collect::<Vec<i64>>()
    };
    assert_eq!(found(&offsets), [120, 8, 8, 8, 120]);
    let grown = seeds[0].bytes() - own[0].bytes() + seeds[4].bytes();
    assert_eq!(offsets.bytes(), before + grown);
    // What clients commit now is of the topic that is there.
    offsets.store("group", &[of(0, 121, later)]).unwrap();
    offsets.close().unwrap();
    let mut offsets = CommittedOffsets::open(folder.path(), &options()).unwrap();
    offsets.seed("group", seeds, &is_there).unwrap();
    assert_eq!(found(&offsets), [121, 8, 8, 8, 120]);
}

#[test]
fn a_deletion_outlives_compaction() {
    let folder = tempfile::tempdir().unwrap();
    let mut offsets = CommittedOffsets::open(folder.path(), &options()).unwrap();
    for round in 0..20 {
        offsets.store("group", &[commit("top", 0, round)]).unwrap();
    }
    offsets.store("group", &[commit("top", 1, 1)]).unwrap();
    offsets.remove("group", &[("top".to_owned(), 1)]).unwrap();
    let log_dir = offsets.log_dir().unwrap();
    let writer = log_dir.log_writer(TOPIC, 0).unwrap();
    writer.roll().unwrap();
    // Twice, and later: what a cleaner drops it drops in the second pass.
    for _ in 0..2 {
        writer
            .compact(&offsetlog::CompactOptions::default())
            .unwrap();
    }
    drop((writer, log_dir));
    drop(offsets);
    let mut offsets = CommittedOffsets::open(folder.path(), &options()).unwrap();
    offsets
        .seed(
            "group",
            [commit("top", 0, 1), commit("top", 1, 1)],
            &unknown(),
        )
        .unwrap();
    let found: Vec<_> = offsets
        .all()
        .map(|(_, it)| (it.partition, it.offset))
        .collect();
    assert_eq!(found, [(0, 19)]);
}

#[test]
fn directories_of_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let served = folder.path().join("served");
    std::fs::create_dir(&served).unwrap();
    let with = CommittedOffsetsOptions {
        served: vec![served.clone()],
        ..options()
    };
    std::os::unix::fs::symlink(&served, folder.path().join("link")).unwrap();
    for inside in [
        served.clone(),
        served.join("groups"),
        folder.path().join("link/groups"),
        folder.path().to_owned(),
    ] {
        let error = CommittedOffsets::open(&inside, &with)
            .unwrap_err()
            .to_string();
        assert!(error.contains("is served"), "{error}");
    }
    assert_eq!(std::fs::read_dir(&served).unwrap().count(), 0);

    let broker = folder.path().join("broker");
    std::fs::create_dir(&broker).unwrap();
    std::fs::write(broker.join("meta.properties"), "version=1\n").unwrap();
    let error = CommittedOffsets::open(&broker, &with)
        .unwrap_err()
        .to_string();
    assert!(error.contains("a broker's log dir"), "{error}");

    let other = folder.path().join("other");
    let log_dir = LogDir::open_for_append(
        &[&other],
        &OpenOptions::default(),
        &LogDirOptions::default(),
    )
    .unwrap();
    let topic = NewTopic {
        name: "orders",
        partitions: 1,
        config: LogConfig::default(),
        topic_id: None,
    };
    log_dir.create_topic(&topic).unwrap();
    log_dir.close().unwrap();
    let error = CommittedOffsets::open(&other, &with)
        .unwrap_err()
        .to_string();
    assert!(error.contains("has the topic \"orders\""), "{error}");
    // A mirror keeps the groups beside the topics.
    let log_dir = LogDir::open_for_append(
        &[&other],
        &OpenOptions::default(),
        &LogDirOptions::default(),
    )
    .unwrap();
    let mut offsets = CommittedOffsets::open_in(&log_dir, &options()).unwrap();
    offsets.store("group", &[commit("orders", 0, 1)]).unwrap();
    offsets.close().unwrap();
    log_dir.close().unwrap();
}

#[test]
fn memory_is_bounded() {
    let mut offsets = CommittedOffsets::in_memory(&CommittedOffsetsOptions {
        max_bytes: 1000,
        ..options()
    });
    let mut stored = 0;
    let error = loop {
        match offsets.store("group", &[commit("top", stored, 1)]) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error.kind(), ErrorKind::Limit { limit: 1000, .. }),
        "{error}"
    );
    assert!(offsets.bytes() <= 1000 && stored > 2);
    assert_eq!(offsets.all().count(), stored as usize);
    // An existing entry may change.
    offsets.store("group", &[commit("top", 0, 2)]).unwrap();
}

#[test]
fn a_commit_that_is_too_long_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut offsets = CommittedOffsets::open(folder.path(), &options()).unwrap();
    let many: Vec<_> = (0..400)
        .map(|partition| Commit {
            metadata: "m".repeat(4000),
            ..commit("top", partition, 1)
        })
        .collect();
    let error = offsets.store("group", &many).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::RecordTooLarge { .. }),
        "{error}"
    );
    let long = Commit {
        metadata: "m".repeat(40_000),
        ..commit("top", 0, 1)
    };
    offsets
        .store("group", &[commit("top", 0, 1), long])
        .unwrap_err();
    assert_eq!((offsets.all().count(), offsets.bytes()), (0, 0));
    offsets.store("group", &[commit("top", 0, 1)]).unwrap();
    assert_eq!(offsets.all().count(), 1);
}
