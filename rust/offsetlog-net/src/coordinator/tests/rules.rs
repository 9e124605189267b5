//! Tests timing, limits, and the state at the start and after a restart.

use super::super::committed_offsets::{Commit, CommittedOffsets};
use super::*;
use offsetlog::{GroupsOptions, LogDir, OpenOptions};

const GOLDEN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/kafka-4.3.0/clean"
);

/// A consumer's assignment of no partition.
const NOTHING: [u8; 10] = [0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];

fn ask(
    coordinator: &Coordinator,
    api_key: i16,
    version: i16,
    request: &Struct<'_>,
    now: i64,
) -> Answer {
    let context = Context {
        client_id: "client",
        client_host: "/127.0.0.1",
        connection_id: 1,
    };
    coordinator.handle(api_key, version, request, &context, now)
}

fn reply(
    coordinator: &Coordinator,
    api_key: i16,
    version: i16,
    request: &Struct<'_>,
) -> Struct<'static> {
    match ask(coordinator, api_key, version, request, 1) {
        Answer::Reply(response) => over_the_wire(api_key, version, &response),
        Answer::Wait { .. } => panic!("it waits"),
    }
}

/// A join of version 3, which needs no id.
fn join(group: &str, metadata: usize) -> Struct<'static> {
    let protocol = Struct::new()
        .with("name", "range")
        .with("metadata", vec![0_u8; metadata]);
    Struct::new()
        .with("groupId", group.to_owned())
        .with("sessionTimeoutMs", 10_000)
        .with("rebalanceTimeoutMs", 60_000)
        .with("memberId", "")
        .with("protocolType", "consumer")
        .with("protocols", vec![protocol])
}

fn ticket(answer: Answer) -> u64 {
    match answer {
        Answer::Wait { ticket, .. } => ticket,
        Answer::Reply(response) => panic!("{response:?}"),
    }
}

fn ready(coordinator: &Coordinator, ticket: u64, now: i64) -> Option<Struct<'static>> {
    match coordinator.poll(ticket, now) {
        Answer::Reply(response) => Some(response),
        Answer::Wait { .. } => None,
    }
}

/// Kafka's `InitialDelayedJoin`: each new member restarts the delay, up to the rebalance timeout.
#[test]
fn a_new_group_waits_for_more_members() {
    let coordinator = coordinator(CoordinatorOptions::default(), &[]);
    let alone = ticket(ask(&coordinator, 11, 3, &join("alone", 10), 0));
    assert_eq!(coordinator.tick(0), 3000);
    assert!(ready(&coordinator, alone, 2999).is_none());
    assert_eq!(
        int32(&ready(&coordinator, alone, 3000).unwrap(), "generationId"),
        1
    );

    let one = ticket(ask(&coordinator, 11, 3, &join("two", 10), 10_000));
    let two = ticket(ask(&coordinator, 11, 3, &join("two", 10), 12_000));
    assert!(ready(&coordinator, one, 13_000).is_none());
    assert!(ready(&coordinator, two, 15_999).is_none());
    coordinator.tick(16_000);
    let (one, two) = (
        ready(&coordinator, one, 16_000).unwrap(),
        ready(&coordinator, two, 16_000).unwrap(),
    );
    assert_eq!(
        (int32(&one, "generationId"), int32(&two, "generationId")),
        (1, 1)
    );
    assert_eq!(
        structs(&one, "members").count() + structs(&two, "members").count(),
        2
    );
}

#[test]
fn groups_and_members_have_limits() {
    let options = CoordinatorOptions {
        initial_rebalance_delay_ms: 0,
        max_groups: 2,
        max_member_bytes: 50_000,
        ..CoordinatorOptions::default()
    };
    let coordinator = coordinator(options, &[("one", 1)]);
    let error = |request: &Struct<'_>| code(&reply(&coordinator, 11, 3, request));
    assert_eq!(error(&join("one", 100)), 0);
    // Too much at once, and too much with what is there.
    assert_eq!(error(&join("two", 100_000)), 81);
    assert_eq!(error(&join("two", 30_000)), 0);
    assert_eq!(error(&join("one", 30_000)), 81);
    assert_eq!(error(&join("three", 100)), 81);
    let partition = Struct::new()
        .with("partitionIndex", 0)
        .with("committedOffset", 1)
        .with("committedMetadata", "");
    let topic = Struct::new()
        .with("name", "one")
        .with("partitions", vec![partition]);
    let commit = Struct::new()
        .with("groupId", "three")
        .with("topics", vec![topic]);
    let response = reply(&coordinator, 8, 9, &commit);
    let topic = structs(&response, "topics").next().unwrap();
    assert_eq!(code(structs(topic, "partitions").next().unwrap()), -1);
    // Ids that were given out are bounded too.
    let options = CoordinatorOptions {
        max_group_size: 3,
        ..CoordinatorOptions::default()
    };
    let coordinator = super::coordinator(options, &[]);
    let codes: Vec<i64> = (0..5)
        .map(|_| code(&reply(&coordinator, 11, 9, &join("one", 10))))
        .collect();
    assert_eq!(codes, [79, 79, 79, 81, 81]);
}

/// Clients get the offsets that a dead cluster has committed.
#[test]
fn a_dead_clusters_groups_go_on() {
    let paths = [format!("{GOLDEN}/log-dir-1"), format!("{GOLDEN}/log-dir-2")];
    let log_dir = LogDir::open(&paths, &OpenOptions::default()).unwrap();
    let mut offsets = CommittedOffsets::in_memory(&CommittedOffsetsOptions::default());
    let options = CoordinatorOptions::default();
    let (groups, ..) = log_dir.groups(&GroupsOptions::without_lag()).unwrap();
    seed(&mut offsets, &groups, &options.topic_id).unwrap();
    let coordinator = Coordinator::new(CoordinatorOptions::default(), offsets, 0, || ());
    let (mut compared, mut kinds) = (0, BTreeSet::new());
    for group in groups.iter().filter(|group| !group.offsets.is_empty()) {
        let asked = vec![
            Struct::new()
                .with("groupId", group.group_id.clone())
                .with("topics", Value::Null),
        ];
        let response = reply(&coordinator, 9, 9, &Struct::new().with("groups", asked));
        let answered = structs(&response, "groups").next().unwrap();
        let mut found = Vec::new();
        for topic in structs(answered, "topics") {
            for it in structs(topic, "partitions") {
                assert_eq!(code(it), 0);
                found.push((
                    text(topic, "name"),
                    int32(it, "partitionIndex"),
                    int(it, "committedOffset").unwrap(),
                    int32(it, "committedLeaderEpoch"),
                    text(it, "metadata"),
                ));
            }
        }
        let stored = group.offsets.iter().map(|it| {
            (
                it.topic.clone(),
                it.partition,
                it.offset,
                it.leader_epoch.unwrap_or(-1),
                it.metadata.clone(),
            )
        });
        assert_eq!(found, stored.collect::<Vec<_>>(), "{}", group.group_id);
        compared += found.len();
        kinds.insert(group.kind);
        let response = reply(
            &coordinator,
            15,
            5,
            &Struct::new().with("groups", vec![group.group_id.clone()]),
        );
        let described = structs(&response, "groups").next().unwrap();
        assert_eq!(text(described, "groupState"), "Empty");
        if group.kind == "classic" {
            let generation = coordinator.lock().groups[&group.group_id].generation;
            assert_eq!(Some(generation), group.epoch, "{}", group.group_id);
        }
    }
    assert!(
        compared > 5 && kinds.contains("classic"),
        "{compared} {kinds:?}"
    );
    let epochs = coordinator.leader_epochs();
    let largest = groups
        .iter()
        .flat_map(|group| &group.offsets)
        .filter_map(|it| it.leader_epoch)
        .max();
    assert_eq!(epochs.values().max().copied(), largest);
}

/// With a log a group's generation continues, and `offsetlog groups` and a broker see its members.
#[test]
fn a_restart_keeps_generations_and_commits() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let options = CommittedOffsetsOptions::default();
        let offsets = CommittedOffsets::open(folder.path(), &options).unwrap();
        let options = CoordinatorOptions {
            initial_rebalance_delay_ms: 0,
            seed: Some(1),
            ..CoordinatorOptions::default()
        };
        Coordinator::new(options, offsets, 0, || ())
    };
    for run in 1..4 {
        let coordinator = open();
        let joined = reply(&coordinator, 11, 3, &join("group", 10));
        let (member, generation) = (text(&joined, "memberId"), int32(&joined, "generationId"));
        assert_eq!((code(&joined), generation), (0, run));
        let given = Struct::new()
            .with("memberId", member.clone())
            .with("assignment", NOTHING.to_vec());
        let sync = Struct::new()
            .with("groupId", "group")
            .with("generationId", generation)
            .with("memberId", member.clone())
            .with("assignments", vec![given]);
        assert_eq!(
            bytes(&reply(&coordinator, 14, 3, &sync), "assignment"),
            NOTHING
        );
        let partition = Struct::new()
            .with("partitionIndex", run)
            .with("committedOffset", i64::from(run))
            .with("committedMetadata", "m");
        let topic = Struct::new()
            .with("name", "one")
            .with("partitions", vec![partition]);
        let commit = Struct::new()
            .with("groupId", "group")
            .with("generationIdOrMemberEpoch", generation)
            .with("memberId", member.clone())
            .with("topics", vec![topic]);
        reply(&coordinator, 8, 9, &commit);
        assert_eq!(
            coordinator.lock().shared.offsets.of("group").count(),
            run as usize
        );
        // As a kill leaves it, and then the members are still stored.
        drop(coordinator);
        let log_dir = LogDir::open(&[folder.path()], &OpenOptions::default()).unwrap();
        let (groups, warnings, unread) = log_dir.groups(&GroupsOptions::without_lag()).unwrap();
        assert!(
            warnings.is_empty() && unread.is_empty(),
            "{warnings:?} {unread:?}"
        );
        let group = &groups[0];
        assert_eq!(
            (group.epoch, group.members[0].member_id.as_str()),
            (Some(run), member.as_str())
        );
        assert_eq!(
            (group.protocol_type.as_deref(), group.offsets.len()),
            (Some("consumer"), run as usize)
        );
    }
}

#[test]
fn an_offset_of_an_earlier_topic_of_the_name_is_none() {
    let (old, new) = (Uuid::from_bytes([1; 16]), Uuid::from_bytes([2; 16]));
    let mut offsets = CommittedOffsets::in_memory(&CommittedOffsetsOptions::default());
    let commit = |partition, topic_id| Commit {
        topic: "one".to_owned(),
        partition,
        offset: 5,
        leader_epoch: None,
        metadata: String::new(),
        commit_timestamp: 0,
        topic_id,
    };
    offsets
        .store(
            "group",
            &[commit(0, old), commit(1, new), commit(2, Uuid::ZERO)],
        )
        .unwrap();
    let options = CoordinatorOptions {
        topic_id: Arc::new(move |_, _| Some(new)),
        ..CoordinatorOptions::default()
    };
    let coordinator = Coordinator::new(options, offsets, 0, || ());
    let topics = vec![
        Struct::new()
            .with("name", "one")
            .with("partitionIndexes", vec![0, 1, 2]),
    ];
    let groups = vec![
        Struct::new()
            .with("groupId", "group")
            .with("topics", topics),
    ];
    let response = reply(&coordinator, 9, 9, &Struct::new().with("groups", groups));
    let group = structs(&response, "groups").next().unwrap();
    let topic = structs(group, "topics").next().unwrap();
    let found: Vec<_> = structs(topic, "partitions")
        .map(|it| int(it, "committedOffset").unwrap())
        .collect();
    assert_eq!(found, [-1, 5, 5]);
    // A request for all offsets, as a mirror sends it, does not return it either.
    let groups = vec![
        Struct::new()
            .with("groupId", "group")
            .with("topics", Value::Null),
    ];
    let response = reply(&coordinator, 9, 9, &Struct::new().with("groups", groups));
    let group = structs(&response, "groups").next().unwrap();
    let topic = structs(group, "topics").next().unwrap();
    let found: Vec<_> = structs(topic, "partitions")
        .map(|it| int(it, "partitionIndex").unwrap())
        .collect();
    assert_eq!(found, [1, 2]);
}

/// One request deletes as many groups as fit into it, while everybody waits for the lock.
#[test]
fn many_groups_are_deleted_in_linear_time() {
    const GROUPS: usize = 100_000;
    let coordinator = coordinator(CoordinatorOptions::default(), &[]);
    let names: Vec<String> = (0..GROUPS)
        .map(|number| format!("group-{number}"))
        .collect();
    let twice = names.iter().chain(&names).cloned();
    let request = Struct::new().with("groupsNames", twice.collect::<Vec<_>>());
    let begin = std::time::Instant::now();
    let response = reply(&coordinator, 42, 2, &request);
    // In quadratic time it would take hours.
    assert!(begin.elapsed().as_secs() < 300, "{:?}", begin.elapsed());
    let results: Vec<_> = structs(&response, "results")
        .map(|it| (text(it, "groupId"), code(it)))
        .collect();
    // Each one once, in the order of the request.
    assert!(
        results
            .iter()
            .zip(&names)
            .all(|((id, code), name)| id == name && *code == 69)
    );
    assert_eq!(results.len(), GROUPS);
}

/// Each protocol is compared with each one of each member.
#[test]
fn a_member_has_a_hundred_protocols_at_most() {
    let coordinator = coordinator(CoordinatorOptions::default(), &[]);
    let with = |count: usize| {
        let protocols = (0..count).map(|number| {
            Struct::new()
                .with("name", format!("protocol-{number}"))
                .with("metadata", Vec::<u8>::new())
        });
        join("group", 0).with("protocols", protocols.collect::<Vec<_>>())
    };
    let response = reply(&coordinator, 11, 3, &with(101));
    assert_eq!((code(&response), coordinator.lock().groups.len()), (23, 0));
    ticket(ask(&coordinator, 11, 3, &with(100), 1));
}

/// A broker keeps the group of a refused join until it looks for empty ones. Here it takes no room from others.
#[test]
fn a_group_that_only_a_refused_join_has_made_gives_way() {
    let options = CoordinatorOptions {
        max_groups: 3,
        ..CoordinatorOptions::default()
    };
    let coordinator = coordinator(options, &[("one", 1)]);
    let refused = |group: &str| {
        let request = join(group, 10).with("protocolType", "");
        code(&reply(&coordinator, 11, 3, &request))
    };
    assert_eq!(["a", "b", "c"].map(refused), [23; 3]);
    // The client has corrected its request, and joins again.
    ticket(ask(&coordinator, 11, 3, &join("a", 10), 1));
    assert_eq!(refused("d"), 23);
    for group in ["e", "f"] {
        ticket(ask(&coordinator, 11, 3, &join(group, 10), 1));
    }
    assert_eq!(code(&reply(&coordinator, 11, 3, &join("g", 10))), 81);
    let state = coordinator.lock();
    let names: Vec<&String> = state.groups.keys().collect();
    assert_eq!(names, ["a", "e", "f"]);
}

/// A group costs memory without members, too.
#[test]
fn groups_without_members_are_within_the_limit_of_memory() {
    let options = CoordinatorOptions {
        initial_rebalance_delay_ms: 0,
        max_member_bytes: 100_000,
        ..CoordinatorOptions::default()
    };
    let coordinator = coordinator(options, &[("one", 1)]);
    let long = |number: usize| format!("{number:030000}");
    let mut refused = 0;
    for number in 0..10 {
        let joined = reply(&coordinator, 11, 3, &join(&long(number), 10));
        if code(&joined) == 81 {
            refused += 1;
            continue;
        }
        let member = Struct::new()
            .with("memberId", text(&joined, "memberId"))
            .with("groupInstanceId", Value::Null);
        let leave = Struct::new()
            .with("groupId", long(number))
            .with("members", vec![member]);
        assert_eq!(code(&reply(&coordinator, 13, 3, &leave)), 0);
    }
    let groups = coordinator.lock().groups.len();
    assert!(refused >= 6 && groups == 10 - refused, "{groups}");
    // Forgotten, they give it back.
    coordinator.tick(1_000_000);
    let state = coordinator.lock();
    assert_eq!((state.groups.len(), state.shared.member_bytes), (0, 0));
}

/// A server looks for due groups fifty times a second: a group with nothing due must cost nothing.
#[test]
fn groups_that_only_have_offsets_cost_a_tick_nothing() {
    let mut offsets = CommittedOffsets::in_memory(&CommittedOffsetsOptions::default());
    let commit = Commit {
        topic: "one".to_owned(),
        partition: 0,
        offset: 5,
        leader_epoch: None,
        metadata: String::new(),
        commit_timestamp: 0,
        topic_id: Uuid::ZERO,
    };
    for number in 0..50_000 {
        let group = format!("group-{number}");
        offsets
            .store(&group, std::slice::from_ref(&commit))
            .unwrap();
    }
    let coordinator = Coordinator::new(CoordinatorOptions::default(), offsets, 0, || ());
    let without = CommittedOffsets::in_memory(&CommittedOffsetsOptions::default());
    let without = Coordinator::new(CoordinatorOptions::default(), without, 0, || ());
    // The fastest of several rounds, which no other load of the machine is in.
    let fastest = |coordinator: &Coordinator| {
        let rounds = (0..10).map(|round| {
            let begin = std::time::Instant::now();
            for now in 0..100 {
                assert_eq!(coordinator.tick(100 * round + now), i64::MAX);
            }
            begin.elapsed()
        });
        rounds.min().unwrap()
    };
    let (with, without) = (fastest(&coordinator), fastest(&without));
    assert!(with < 100 * without, "{with:?}, {without:?} without them");
    // One of them gets a member, whose session is the only thing that is due.
    ticket(ask(&coordinator, 11, 3, &join("group-7", 10), 1000));
    assert_eq!(coordinator.tick(1000), 4000);
    assert_eq!(coordinator.tick(4000), 14_000);
    assert_eq!(coordinator.tick(14_000), i64::MAX);
    assert_eq!(coordinator.lock().groups.len(), 50_000);
}
