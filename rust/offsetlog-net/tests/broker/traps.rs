//! What fails silently when a server does it wrong: a test for each known trap.

use crate::client::{Asks, Client, Fetch, NOW, clean, copy, data, int, open, read_all, structs};
use crate::{known_traps, trap_15};
use offsetlog::Isolation::{ReadCommitted, ReadUncommitted};
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis;
use offsetlog_net::Step;
use offsetlog_net::server::{Broker, ServeOptions, Until};
use std::path::PathBuf;

/// A client that has the server to itself.
fn alone(trap: fn(&mut dyn Asks)) {
    let old = known_traps::old_log_dir();
    let broker = known_traps::open_served(old.path());
    trap(&mut Client::new(&broker));
}

#[test]
fn trap_1_and_2_produce_is_announced_from_0_and_each_partition_is_refused_by_policy() {
    alone(known_traps::produce_is_refused_by_policy);
}

/// With nothing to refuse, a producer that wants no answer goes on.
#[test]
fn an_empty_produce_that_wants_no_answer_ends_nothing() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    for version in 3..=12 {
        let request = Struct::new()
            .with("acks", 0_i16)
            .with("timeoutMs", 1000)
            .with("topicData", Vec::<Struct<'_>>::new());
        let step = client.send(&apis::PRODUCE, version, &request);
        assert!(matches!(step, Step::Silent), "{step:?}");
    }
}

#[test]
fn an_idempotent_producer_gets_an_id_and_a_transactional_one_is_refused() {
    alone(known_traps::producers_get_ids);
}

#[test]
fn trap_3_the_leader_epoch_is_not_below_that_of_any_committed_offset() {
    alone(known_traps::leader_epochs_are_not_below_committed_ones);
    // Only the partition itself, without the groups and the cluster's metadata: its own epochs remain.
    let folder = copy(&["kafka-4.3.0/clean/log-dir-1/g-epochs-0"]);
    let alone = open(&[folder.path().to_path_buf()]);
    let (_, partitions) = Client::new(&alone).metadata("g-epochs");
    assert!(partitions[0].2 > 0);
}

#[test]
fn trap_4_the_aborted_list_is_exact_and_only_for_read_committed() {
    alone(known_traps::aborted_list_is_exact);
}

#[test]
fn trap_5_records_are_empty_and_never_null() {
    alone(known_traps::records_are_never_null);
}

#[test]
fn trap_6_missing_partitions_are_listed_without_a_leader() {
    alone(known_traps::missing_partitions_have_no_leader);
    let old = known_traps::old_log_dir();
    let report = known_traps::open_served(old.path()).report();
    let holes = report.topics.iter().find(|topic| topic.name == "holes");
    assert!(holes.unwrap().partitions[1].problem.is_some());
}

#[test]
fn trap_7_topics_of_before_2_8_have_an_id_of_zeros_and_are_fetched_by_name() {
    alone(known_traps::topics_without_an_id_are_fetched_by_name);
}

#[test]
fn trap_8_old_formats_go_out_as_they_are() {
    alone(known_traps::old_formats_go_out_as_they_are);
}

#[test]
fn trap_9_the_high_watermark_is_the_end_of_what_is_served() {
    alone(known_traps::high_watermark_is_the_end);
}

#[test]
fn trap_10_all_that_is_announced_can_be_read_and_nothing_else_is_answered() {
    alone(known_traps::announced_is_what_is_read);
}

#[test]
fn trap_11_a_fetch_inside_a_batch_gets_the_whole_batch() {
    alone(known_traps::whole_batches_come);
}

#[test]
fn trap_12_an_unknown_version_of_api_versions_is_answered_in_version_0() {
    alone(known_traps::unknown_api_versions_are_answered);
}

#[test]
fn trap_14_out_of_range_carries_no_offsets() {
    alone(known_traps::out_of_range_carries_no_offsets);
}

#[test]
fn trap_15_settings_are_not_empty_and_secrets_are_null() {
    alone(trap_15::settings_are_told_but_secrets);
}

#[test]
fn trap_15_commits_come_back_with_their_metadata() {
    alone(trap_15::commits_come_back_with_their_metadata);
}

#[test]
fn trap_15_times_are_looked_up() {
    alone(trap_15::times_are_looked_up);
}

#[test]
fn trap_17_the_first_batch_comes_whole_and_then_the_limits_hold() {
    alone(known_traps::first_batch_comes_whole);
}

#[test]
fn trap_18_clients_are_told_the_advertised_address() {
    alone(known_traps::advertised_address_is_told);
}

#[test]
fn metadata_lists_all_none_or_what_is_named() {
    alone(known_traps::metadata_lists_what_is_named);
}

#[test]
fn leader_epochs_end_where_the_next_begins_and_mistaken_clients_are_fenced() {
    alone(known_traps::leader_epochs_end_and_fence);
}

#[test]
fn a_partition_ends_at_the_checkpointed_high_watermark_if_asked_for() {
    let folder = copy(&["kafka-4.3.0/clean/log-dir-1/g-plain-0"]);
    std::fs::write(
        folder.path().join("replication-offset-checkpoint"),
        "0\n1\ng-plain 0 7\n",
    )
    .unwrap();
    let options = ServeOptions {
        until: Until::HighWatermark,
        ..ServeOptions::default()
    };
    let paths: [PathBuf; 1] = [folder.path().to_path_buf()];
    let broker = Broker::open(&paths, options).unwrap();
    let mut client = Client::new(&broker);
    assert_eq!(client.offset(("g-plain", 0), -1, ReadUncommitted).2, 7);
    let (seen, end, error) = read_all(&mut client, &Fetch::new("g-plain", 0, 0));
    assert_eq!(error, 0);
    assert!(end <= 7 && seen.iter().all(|record| record.0 < 7));
    // A partition that the checkpoint lacks ends with its log, for who has not seen it there before.
    let checkpoint = folder.path().join("replication-offset-checkpoint");
    std::fs::write(checkpoint, "0\n1\nother 0 7\n").unwrap();
    let until = ServeOptions {
        until: Until::HighWatermark,
        ..ServeOptions::default()
    };
    let lacking = Broker::open(&paths, until).unwrap();
    let end = Client::new(&lacking).offset(("g-plain", 0), -1, ReadUncommitted);
    let whole = open(&paths);
    let log_end = Client::new(&whole)
        .offset(("g-plain", 0), -1, ReadUncommitted)
        .2;
    assert!(log_end > 8);
    assert_eq!(end.2, log_end);
    // A client that has read further, as one in the cluster may have, waits. A broker answers a fetch above its high watermark so.
    for isolation in [ReadUncommitted, ReadCommitted] {
        for offset in [7, 8, log_end] {
            let fetched = client.fetch(&Fetch {
                isolation,
                ..Fetch::new("g-plain", 0, offset)
            });
            assert_eq!((fetched.error, fetched.high_watermark), (0, 7), "{offset}");
            assert_eq!(fetched.bytes(), b"");
        }
        let fetched = client.fetch(&Fetch {
            isolation,
            ..Fetch::new("g-plain", 0, log_end + 1)
        });
        assert_eq!(fetched.error, 1);
    }
    // It is not told that its records were truncated, either.
    let epoch = client.metadata("g-plain").1[0].2 as i32;
    let told = client.end_of_epoch(("g-plain", 0), epoch);
    assert_eq!(told, (0, i64::from(epoch), log_end));
    let fetched = client.fetch(&Fetch {
        last_fetched_epoch: epoch,
        ..Fetch::new("g-plain", 0, log_end)
    });
    assert_eq!((fetched.error, fetched.diverging), (0, None));
}

#[test]
fn log_dirs_and_acls_are_described() {
    let broker = open(&clean());
    let mut client = Client::new(&broker);
    for version in 1..=4 {
        let request = Struct::new().with("topics", Value::Null);
        let response = client.call(&apis::DESCRIBE_LOG_DIRS, version, &request);
        let results = structs(&response, "results");
        let of_topics = |each: &Struct<'_>| structs(each, "topics").len();
        let counts: Vec<usize> = results.iter().map(of_topics).collect();
        assert!(
            counts.iter().filter(|count| **count > 10).count() == 2,
            "{counts:?}"
        );
    }
    let request = Struct::new()
        .with("resourceTypeFilter", 1_i8)
        .with("resourceNameFilter", Value::Null)
        .with("principalFilter", Value::Null)
        .with("hostFilter", Value::Null)
        .with("operation", 1_i8)
        .with("permissionType", 1_i8);
    for version in 1..=3 {
        let response = client.call(&apis::DESCRIBE_ACLS, version, &request);
        assert_eq!(int(&response, "errorCode"), 54);
    }
}

#[test]
fn another_broker_is_no_replica_of_ours() {
    alone(known_traps::another_broker_is_no_replica);
}

/// What the dead cluster's groups had committed is where they go on, metadata included; and what they commit now is kept.
#[test]
fn groups_begin_where_they_had_committed() {
    let broker = open(&clean()).with_coordinator(None, NOW).unwrap();
    let mut client = Client::new(&broker);
    let group = broker
        .groups()
        .iter()
        .find(|group| !group.offsets.is_empty());
    let group = group.unwrap().clone();
    let request = Struct::new()
        .with("key", group.group_id.clone())
        .with("keyType", 0_i8);
    let response = client.call(&apis::FIND_COORDINATOR, 3, &request);
    assert_eq!(
        (int(&response, "errorCode"), int(&response, "port")),
        (0, 9092)
    );
    let committed = |client: &mut Client<'_>, offset: &offsetlog::GroupOffset| {
        let topic = Struct::new()
            .with("name", offset.topic.clone())
            .with("partitionIndexes", vec![offset.partition]);
        let request = Struct::new()
            .with("groupId", group.group_id.clone())
            .with("topics", vec![topic]);
        let response = client.call(&apis::OFFSET_FETCH, 7, &request);
        let found = structs(&structs(&response, "topics")[0], "partitions")[0].clone();
        let metadata = found.get("metadata").and_then(Value::as_str);
        (int(&found, "committedOffset"), metadata.map(str::to_owned))
    };
    for offset in &group.offsets {
        let told = committed(&mut client, offset);
        assert_eq!(told, (offset.offset, Some(offset.metadata.clone())));
    }
    let offset = &group.offsets[0];
    let partition = Struct::new()
        .with("partitionIndex", offset.partition)
        .with("committedOffset", offset.offset + 1)
        .with("committedMetadata", "now");
    let topic = Struct::new()
        .with("name", offset.topic.clone())
        .with("partitions", vec![partition]);
    let request = Struct::new()
        .with("groupId", group.group_id.clone())
        .with("generationIdOrMemberEpoch", -1)
        .with("topics", vec![topic]);
    client.call(&apis::OFFSET_COMMIT, 8, &request);
    let told = committed(&mut client, offset);
    assert_eq!(told, (offset.offset + 1, Some("now".to_owned())));
}

/// What a group committed of another topic tells that the topic is there.
#[test]
fn committed_offsets_are_those_of_the_topics_that_are_served() {
    let folder = data("kafka-4.3.0/clean/log-dir-1");
    let told = |names: &[&str]| -> Vec<String> {
        let options = ServeOptions {
            topics: names.iter().map(|&name| name.to_owned()).collect(),
            ..ServeOptions::default()
        };
        let broker = Broker::open(&[&folder], options).unwrap();
        let broker = broker.with_coordinator(None, 0).unwrap();
        let mut client = Client::new(&broker);
        let group = Struct::new()
            .with("groupId", "g-group-2")
            .with("topics", Value::Null);
        let request = Struct::new().with("groups", vec![group]);
        let response = client.call(&apis::OFFSET_FETCH, 9, &request);
        let groups = structs(&response, "groups");
        let topics = structs(&groups[0], "topics");
        let names = topics
            .iter()
            .map(|topic| topic.get("name").and_then(Value::as_str));
        names.map(|name| name.unwrap().to_owned()).collect()
    };
    assert_eq!(told(&[]), ["g-codec-lz4", "g-plain"]);
    assert_eq!(told(&["g-plain"]), ["g-plain"]);
}
