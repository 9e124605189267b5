//! What members and fetches wait for, to the millisecond: whole connections to a real broker's logic, by a clock that the test turns.

use super::super::clock::Clock as _;
use super::super::options::ServerLimits;
use super::logic::{Fetched, int, structs};
use super::marks::Owner;
use super::wire::{Kafka, Simulated};
use super::world::BEGIN_MS;
use crate::server::{Broker, ServeOptions};
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis;
use offsetlog::{AppendOptions, BatchBuilder, LogWriter, OpenOptions, WriteOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const OWNER: Owner = Owner(1);
/// Of a partition that an owner made.
const END: i64 = 12;
const REBALANCE_IN_PROGRESS: i64 = 27;
const UNKNOWN_MEMBER_ID: i64 = 25;

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

type Server = Simulated<Broker>;

/// Runs clients against a broker of one partition, in several orders of their threads. Each is given the folder of the partition.
fn each_order(clients: &[fn(&Server, PathBuf)]) {
    for seed in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        OWNER.make(folder.path());
        let broker = Broker::open(&[folder.path()], ServeOptions::default()).unwrap();
        let broker = broker.with_coordinator(None, BEGIN_MS).unwrap();
        let server = Simulated::new(seed, Arc::new(broker), ServerLimits::default(), None);
        for &client in clients {
            let path = folder.path().join(format!("{}-0", OWNER.topic()));
            server.client(move |server| client(server, path));
        }
        server.run();
        assert!(server.service.awaits_nothing());
    }
}

fn connect(server: &Server) -> Kafka {
    Kafka::new(server.connect(), "client")
}

/// Sleeps until this time of the world.
fn until(server: &Server, time: Duration) {
    server.world.sleep(time.saturating_sub(server.world.time()));
}

/// A member of the group, and its generation.
fn member(joined: &Struct<'_>) -> (String, i32) {
    assert_eq!(int(joined, "errorCode"), 0);
    let id = joined.get("memberId").and_then(Value::as_str).unwrap();
    let generation = int(joined, "generationId");
    (id.to_owned(), generation.try_into().unwrap())
}

fn is_leader(joined: &Struct<'_>) -> bool {
    joined.get("leader") == joined.get("memberId")
}

fn beat(kafka: &mut Kafka, (id, generation): &(String, i32)) -> i64 {
    let request = OWNER.heartbeat(id, *generation);
    int(
        &kafka.call(&apis::HEARTBEAT, 3, &request).unwrap(),
        "errorCode",
    )
}

fn state(kafka: &mut Kafka) -> String {
    let request = Struct::new().with("groups", vec![OWNER.group()]);
    let answer = kafka.call(&apis::DESCRIBE_GROUPS, 5, &request).unwrap();
    let group = &structs(&answer, "groups")[0];
    group
        .get("groupState")
        .and_then(Value::as_str)
        .unwrap()
        .to_owned()
}

/// Kafka's `group.initial.rebalance.delay.ms` is three seconds; a session ends its timeout after the last heartbeat.
#[test]
fn a_member_that_is_silent_is_gone_when_its_session_ends() {
    each_order(&[|server, _| {
        let (mut one, mut other) = (connect(server), connect(server));
        let joined = one.call(&apis::JOIN_GROUP, 3, &OWNER.join("")).unwrap();
        assert_eq!(server.world.time(), ms(3000));
        let me = member(&joined);
        one.call(&apis::SYNC_GROUP, 3, &OWNER.sync(&me.0, me.1))
            .unwrap();
        until(server, ms(5000));
        assert_eq!(beat(&mut one, &me), 0);
        // Its connection has no part in that.
        drop(one);
        until(server, ms(14_999));
        assert_eq!(state(&mut other), "Stable");
        until(server, ms(15_001));
        assert_eq!(state(&mut other), "Empty");
        assert_eq!(beat(&mut other, &me), UNKNOWN_MEMBER_ID);
    }]);
}

/// Kafka's `DelayedJoin`: who was a member has the rebalance timeout to join again, and is then left out.
#[test]
fn a_rebalance_waits_for_its_timeout_and_no_longer() {
    each_order(&[|server, _| {
        let (mut one, mut two) = (connect(server), connect(server));
        one.send(&apis::JOIN_GROUP, 3, &OWNER.join(""));
        two.send(&apis::JOIN_GROUP, 3, &OWNER.join(""));
        let answers = [&mut one, &mut two].map(|it| it.receive(&apis::JOIN_GROUP, 3).unwrap());
        let [first, second] = answers.each_ref().map(member);
        for ((kafka, joined), (id, generation)) in [&mut one, &mut two]
            .into_iter()
            .zip(&answers)
            .zip([&first, &second])
        {
            let assignments = OWNER.sync(id, *generation);
            let none = Vec::<Struct<'static>>::new();
            let request = if is_leader(joined) {
                assignments
            } else {
                assignments.with("assignments", none)
            };
            kafka.send(&apis::SYNC_GROUP, 3, &request);
        }
        for kafka in [&mut one, &mut two] {
            let synced = kafka.receive(&apis::SYNC_GROUP, 3).unwrap();
            assert_eq!(int(&synced, "errorCode"), 0);
        }
        until(server, ms(8000));
        let mut three = connect(server);
        three.send(&apis::JOIN_GROUP, 3, &OWNER.join(""));
        until(server, ms(8100));
        assert_eq!(beat(&mut two, &second), REBALANCE_IN_PROGRESS);
        two.send(&apis::JOIN_GROUP, 3, &OWNER.join(&second.0));
        // The first one lives, and does not join again.
        for beats in 1..=19 {
            until(server, ms(8100 + beats * 3000));
            assert_eq!(beat(&mut one, &first), REBALANCE_IN_PROGRESS);
        }
        for kafka in [&mut two, &mut three] {
            let joined = kafka.receive(&apis::JOIN_GROUP, 3).unwrap();
            assert_eq!(server.world.time(), ms(8000 + 60_000));
            assert_eq!(member(&joined).1, first.1 + 1);
        }
        assert_eq!(beat(&mut one, &first), UNKNOWN_MEMBER_ID);
    }]);
}

/// A fetch waits as long as it says, also longer than a connection may be idle, and not when there is something to read.
#[test]
fn a_fetch_waits_for_its_time_or_for_records() {
    each_order(&[|server, path| {
        let fetch = |wait_ms: i32| {
            let fetch = OWNER.fetch(END, 1000, (0, -1));
            let topics = fetch.get("topics").unwrap().clone();
            Struct::new()
                .with("maxWaitMs", wait_ms)
                .with("minBytes", 1)
                .with("topics", topics)
        };
        let bytes = |answer: &Struct<'_>| {
            let topic = &structs(answer, "responses")[0];
            Fetched::of(&structs(topic, "partitions")[0]).bytes().len()
        };
        let mut kafka = connect(server);
        let answer = kafka.call(&apis::FETCH, 12, &fetch(500)).unwrap();
        assert_eq!((bytes(&answer), server.world.time()), (0, ms(500)));
        let answer = kafka.call(&apis::FETCH, 12, &fetch(700_000)).unwrap();
        assert_eq!((bytes(&answer), server.world.time()), (0, ms(700_500)));
        kafka.send(&apis::FETCH, 12, &fetch(700_000));
        until(server, ms(702_005));
        let log = LogWriter::open(&path, &OpenOptions::default(), &WriteOptions::default());
        let mut batch = BatchBuilder::default();
        batch.push(1, None, Some(b"new"), &[]).unwrap();
        let log = log.unwrap();
        log.append(&mut batch, &AppendOptions::default()).unwrap();
        let answer = kafka.receive(&apis::FETCH, 12).unwrap();
        assert!(bytes(&answer) > 0);
        // Partitions that are waited for are looked at each 20 ms.
        assert!(
            server.world.time() <= ms(702_025),
            "{:?}",
            server.world.time()
        );
    }]);
}
