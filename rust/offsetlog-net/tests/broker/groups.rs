//! What groups commit, and what clients are then told of the partitions.

use crate::client::{Asks, Client, NOW, copy, int, open, structs};
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::apis;
use offsetlog_net::Service;

/// Commits an offset with a leader epoch, outside of any group's generation. Returns the error.
fn commit(client: &mut Client<'_>, topic: &str, offset: i64, epoch: i32) -> i64 {
    let partition = Struct::new()
        .with("partitionIndex", 0)
        .with("committedOffset", offset)
        .with("committedLeaderEpoch", epoch)
        .with("committedMetadata", "");
    let topic = Struct::new()
        .with("name", topic.to_owned())
        .with("partitions", vec![partition]);
    let request = Struct::new()
        .with("groupId", "group")
        .with("generationIdOrMemberEpoch", -1)
        .with("topics", vec![topic]);
    let response = client.call(&apis::OFFSET_COMMIT, 8, &request);
    let topic = &structs(&response, "topics")[0];
    int(&structs(topic, "partitions")[0], "errorCode")
}

/// The offset and the leader epoch that the group has committed.
fn committed(client: &mut Client<'_>, topic: &str) -> (i64, i64) {
    let topic = Struct::new()
        .with("name", topic.to_owned())
        .with("partitionIndexes", vec![0]);
    let request = Struct::new()
        .with("groupId", "group")
        .with("topics", vec![topic]);
    let response = client.call(&apis::OFFSET_FETCH, 7, &request);
    let found = &structs(&structs(&response, "topics")[0], "partitions")[0];
    (
        int(found, "committedOffset"),
        int(found, "committedLeaderEpoch"),
    )
}

/// Java's groups read nothing, and say nothing, from a partition with a leader epoch below that of a committed offset.
#[test]
fn a_committed_leader_epoch_that_no_client_was_told_is_not_stored() {
    let folder = copy(&["kafka-4.3.0/clean/log-dir-1/g-epochs-0"]);
    let broker = open(&[folder.path().to_path_buf()]);
    let broker = broker.with_coordinator(None, NOW).unwrap();
    let mut client = Client::new(&broker);
    // Nobody has asked for the metadata yet.
    assert_eq!(commit(&mut client, "g-epochs", 45, 4), 0);
    assert_eq!(committed(&mut client, "g-epochs"), (45, 4));
    let told = client.metadata("g-epochs").1[0].2;
    assert_eq!(told, 4);
    for epoch in [5, i32::MAX] {
        assert_eq!(commit(&mut client, "g-epochs", 50, epoch), 0);
        assert_eq!(committed(&mut client, "g-epochs"), (50, -1), "{epoch}");
    }
    assert_eq!(client.metadata("g-epochs").1[0].2, told);
}

/// The directory is replaced by one of the same topic that has less: clients have been told of the epoch, and groups have committed it.
#[test]
fn a_leader_epoch_does_not_go_back_when_a_directory_is_replaced() {
    let folder = copy(&["kafka-4.3.0/clean/log-dir-1/g-epochs-0"]);
    let broker = open(&[folder.path().to_path_buf()]);
    let broker = broker.with_coordinator(None, NOW).unwrap();
    let mut client = Client::new(&broker);
    assert_eq!(commit(&mut client, "g-epochs", 45, 4), 0);
    let other = copy(&["kafka-4.3.0/clean/log-dir-1/g-epochs-0"]);
    let (place, less) = (
        folder.path().join("g-epochs-0"),
        other.path().join("g-epochs-0"),
    );
    for entry in std::fs::read_dir(&less).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("00000000000000000040") || name == "leader-epoch-checkpoint" {
            std::fs::remove_file(path).unwrap();
        }
    }
    std::fs::rename(&place, folder.path().join("before")).unwrap();
    std::fs::rename(&less, &place).unwrap();
    client.now += 1001;
    broker.tick(client.now);
    assert_eq!(
        client
            .offset(("g-epochs", 0), -1, offsetlog::Isolation::ReadUncommitted)
            .2,
        40,
        "the other directory is served"
    );
    assert_eq!(client.metadata("g-epochs").1[0].2, 4);
}
