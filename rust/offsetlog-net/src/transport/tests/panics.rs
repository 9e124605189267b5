//! A bug in the server's own logic ends the connection that met it, whatever locks it held: all others go on, and nothing is kept.

use super::super::ended::Ended;
use super::logic::{int, structs};
use super::marks::Owner;
use super::passing::{Server, Then, request};
use super::world::BEGIN_MS;
use crate::coordinator::committed_offsets::{CommittedOffsets, CommittedOffsetsOptions};
use crate::coordinator::{Coordinator, CoordinatorOptions};
use crate::server::{Broker, ServeOptions};
use crate::step::{AnyRoom, Peer, Service as _, Step};
use crate::transport::clock::Clock as _;
use offsetlog::disk::RealDisk;
use offsetlog::format::Uuid;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis;
use offsetlog_faults::fault::{FaultDisk, Plan};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// More disk calls than any request makes.
const CALLS_MAX: u64 = 400;

/// A disk whose calls may panic.
struct Faulty(FaultDisk);

impl Faulty {
    fn new() -> Self {
        Self(FaultDisk::new(Arc::new(RealDisk), Plan::none()))
    }

    fn options(&self) -> ServeOptions {
        let mut options = ServeOptions::default();
        options.open.disk = Arc::new(self.0.clone());
        options
    }

    /// The call after so many others panics, once.
    fn panics_after(&self, calls: u64) {
        self.0
            .before(self.0.seen() + calls + 1, || panic!("planted"));
    }

    /// No call panics.
    fn is_well(&self) {
        self.0.before(u64::MAX, || ());
    }
}

fn open(log_dir: &Path, disk: &Faulty) -> Broker {
    Broker::open(&[log_dir], disk.options()).unwrap()
}

fn is_planted(ended: &Ended) -> bool {
    matches!(ended, Ended::Panic(words) if words == "planted")
}

/// What clients read again and again, with the same answer each time.
fn reads(owner: Owner) -> Vec<Vec<u8>> {
    let at = |name, partition: Struct<'static>| {
        let topic = Struct::new()
            .with(name, owner.topic())
            .with("partitions", vec![partition]);
        Struct::new().with("topics", vec![topic])
    };
    let by_time = Struct::new().with("partitionIndex", 0).with("timestamp", 1);
    let epoch = Struct::new().with("partition", 0);
    vec![
        request(&apis::METADATA, 12, &owner.metadata()),
        request(&apis::FETCH, 12, &owner.fetch(0, 200_000, (0, -1))),
        request(&apis::FETCH, 12, &owner.fetch(4, 10, (0, -1))),
        request(&apis::LIST_OFFSETS, 7, &at("name", by_time)),
        request(&apis::OFFSET_FOR_LEADER_EPOCH, 4, &at("topic", epoch)),
        request(
            &apis::DESCRIBE_LOG_DIRS,
            4,
            &Struct::new().with("topics", Value::Null),
        ),
    ]
}

/// A client whose fetch waits at the end of a partition.
fn wait(server: &Server, owner: Owner, end: i64) -> (crate::server::Session, i64) {
    let peer = Peer {
        address: "127.0.0.1".parse().unwrap(),
        port: 2,
        is_encrypted: false,
    };
    let mut session = server.broker.begin(peer);
    let fetch = request(&apis::FETCH, 12, &owner.fetch(end, 1000, (0, -1)));
    let now = server.clock.wall_ms();
    let step = (server.broker).receive(&mut session, &fetch[4..], now, &mut AnyRoom);
    let Step::Wait { until_ms } = step else {
        panic!("{step:?}");
    };
    (session, until_ms)
}

#[test]
fn a_panic_while_a_log_is_read_ends_that_connection() {
    let folder = tempfile::tempdir().unwrap();
    let owners = [Owner(1), Owner(2)];
    for owner in owners {
        owner.make(folder.path());
    }
    let disk = Faulty::new();
    let server = Server::new(open(folder.path(), &disk));
    let whole: Vec<_> = owners
        .iter()
        .flat_map(|&owner| reads(owner))
        .map(|input| (server.answer(&input, usize::MAX, Then::Gone).0, input))
        .collect();
    let (mut panics, mut calls) = (0, 0);
    for (_, input) in &whole[..whole.len() / 2] {
        for after in 0..CALLS_MAX {
            let (mut other, until_ms) = wait(&server, owners[0], 12);
            // What was looked up a moment ago is looked up again.
            std::thread::sleep(Duration::from_millis(11));
            disk.panics_after(after);
            let (output, ended) = server.answer(input, usize::MAX, Then::Gone);
            disk.is_well();
            let is_over = matches!(ended, Ended::ByClient);
            assert!(is_over || is_planted(&ended), "{ended}");
            assert!(!is_over || !output.is_empty());
            panics += usize::from(!is_over);
            calls += 1;
            // The other one waits on, and is answered at its time.
            let now = server.clock.wall_ms();
            let step = server.broker.resume(&mut other, now);
            assert!(matches!(step, Step::Wait { .. }), "{step:?}");
            let step = server.broker.resume(&mut other, until_ms);
            assert!(matches!(step, Step::Reply(_)), "{step:?}");
            server.broker.end(other, until_ms);
            assert!(server.broker.awaits_nothing(), "call {after}");
            if is_over {
                break;
            }
        }
        for (expected, input) in &whole {
            let (again, _) = server.answer(input, usize::MAX, Then::Gone);
            assert!(again == *expected);
        }
    }
    assert!(panics > 15, "{panics} of {calls}");
    // One while nobody asks, in what time alone does: the next one does it.
    let mut panics = 0;
    for after in 0..CALLS_MAX {
        disk.panics_after(after);
        server.clock.sleep(Duration::from_secs(2));
        let now = server.clock.wall_ms();
        let ticked = catch_unwind(AssertUnwindSafe(|| server.broker.tick(now)));
        disk.is_well();
        panics += usize::from(ticked.is_err());
        if ticked.is_ok() {
            break;
        }
    }
    assert!(panics > 0);
    for (expected, input) in &whole {
        let (again, _) = server.answer(input, usize::MAX, Then::Gone);
        assert!(again == *expected);
    }
}

/// Joins its group, commits, and reads that again; `Err` with the first panic.
fn whole_member(server: &Server, owner: Owner, offset: i64) -> Result<(), Ended> {
    let joined = server.ask(&apis::JOIN_GROUP, 3, &owner.join(""))?;
    assert_eq!(int(&joined, "errorCode"), 0);
    let member = joined.get("memberId").and_then(Value::as_str).unwrap();
    let generation = i32::try_from(int(&joined, "generationId")).unwrap();
    let synced = server.ask(&apis::SYNC_GROUP, 3, &owner.sync(member, generation))?;
    assert_eq!(int(&synced, "errorCode"), 0);
    let beat = server.ask(&apis::HEARTBEAT, 3, &owner.heartbeat(member, generation))?;
    assert_eq!(int(&beat, "errorCode"), 0);
    let commit = owner.commit(member, generation, offset);
    let done = server.ask(&apis::OFFSET_COMMIT, 8, &commit)?;
    assert_eq!(error_of(&done), 0);
    assert_eq!(committed(server, owner)?, offset);
    let leave = Struct::new()
        .with("groupId", owner.group())
        .with("memberId", member.to_owned());
    let left = server.ask(&apis::LEAVE_GROUP, 1, &leave)?;
    assert_eq!(int(&left, "errorCode"), 0);
    Ok(())
}

fn first_partition(answer: &Struct<'_>) -> Struct<'static> {
    let topic = &structs(answer, "topics")[0];
    structs(topic, "partitions")[0].clone()
}

fn error_of(answer: &Struct<'_>) -> i64 {
    int(&first_partition(answer), "errorCode")
}

fn committed(server: &Server, owner: Owner) -> Result<i64, Ended> {
    let answer = server.ask(&apis::OFFSET_FETCH, 7, &owner.committed())?;
    Ok(int(&first_partition(&answer), "committedOffset"))
}

#[test]
fn a_panic_while_a_commit_is_written_leaves_the_groups_whole() {
    let folder = tempfile::tempdir().unwrap();
    let log_dir = folder.path().join("log-dir");
    for number in 0..40 {
        Owner(number).make(&log_dir);
    }
    let groups = folder.path().join("groups");
    let disk = Faulty::new();
    let broker = open(&log_dir, &disk);
    let broker = broker.with_coordinator(Some(&groups), BEGIN_MS).unwrap();
    let server = Server::new(broker);
    let (mut panics, mut number, mut after) = (0, 0, 0);
    loop {
        let (owner, other) = (Owner(number % 38), Owner(38 + number % 2));
        number += 1;
        disk.panics_after(after);
        let ended = whole_member(&server, owner, after as i64);
        disk.is_well();
        whole_member(&server, other, 1000 + after as i64).unwrap();
        // The member that is not heard of any more is gone by now.
        server.clock.sleep(Duration::from_secs(60));
        whole_member(&server, owner, 2000 + after as i64).unwrap();
        match ended {
            Err(ended) => assert!(is_planted(&ended), "{ended}"),
            Ok(()) => break,
        }
        panics += 1;
        after += 1;
    }
    assert!(panics >= 2, "{panics}");
    let last = (number - 1) % 38;
    server.broker.flush_groups().unwrap();
    drop(server);
    let broker = open(&log_dir, &disk);
    let broker = broker.with_coordinator(Some(&groups), BEGIN_MS).unwrap();
    let server = Server::new(broker);
    assert_eq!(
        committed(&server, Owner(last)).unwrap(),
        2000 + after as i64
    );
}

/// A bug under the lock of all groups, in the middle of a commit.
#[test]
fn a_panic_under_the_lock_of_the_groups_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let owners = [Owner(1), Owner(2)];
    for owner in owners {
        owner.make(folder.path());
    }
    let broker = Broker::open(&[folder.path()], ServeOptions::default()).unwrap();
    let is_ill = Arc::new(AtomicBool::new(false));
    let (ill, victim) = (Arc::clone(&is_ill), owners[0].topic());
    let options = CoordinatorOptions {
        topic_id: Arc::new(move |topic, _| {
            assert!(!(ill.load(Ordering::Relaxed) && topic == victim), "planted");
            Some(Uuid::ZERO)
        }),
        ..CoordinatorOptions::default()
    };
    let changes = broker.shared_changes();
    let offsets = CommittedOffsets::in_memory(&CommittedOffsetsOptions::default());
    let coordinator = Coordinator::new(options, offsets, BEGIN_MS, move || changes.announce());
    let server = Server::new(broker.with_groups(Box::new(coordinator)));
    whole_member(&server, owners[0], 5).unwrap();
    for round in 0..10 {
        is_ill.store(true, Ordering::Relaxed);
        let both = owners.map(|owner| {
            let commit = owner.commit("", -1, 99);
            structs(&commit, "topics")[0].clone()
        });
        // The one that is fine comes first.
        let commit = owners[0]
            .commit("", -1, 99)
            .with("topics", both.into_iter().rev().collect::<Vec<_>>());
        let ended = server.ask(&apis::OFFSET_COMMIT, 8, &commit).unwrap_err();
        assert!(is_planted(&ended), "{ended}");
        // All others go on at once.
        whole_member(&server, owners[1], round).unwrap();
        is_ill.store(false, Ordering::Relaxed);
        assert_eq!(committed(&server, owners[0]).unwrap(), 5, "as before");
    }
    server.clock.sleep(Duration::from_secs(60));
    whole_member(&server, owners[0], 6).unwrap();
}

/// Each lock that requests share was held by one that panicked: a poisoned one keeps nobody out.
#[test]
fn locks_that_were_held_in_a_panic_keep_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let owner = Owner(1);
    owner.make(folder.path());
    let broker = Broker::open(&[folder.path()], ServeOptions::default()).unwrap();
    let server = Server::new(broker.with_coordinator(None, BEGIN_MS).unwrap());
    let before: Vec<_> = reads(owner)
        .iter()
        .map(|input| server.answer(input, usize::MAX, Then::Gone).0)
        .collect();
    server.broker.poison();
    server.common.poison();
    let after: Vec<_> = reads(owner)
        .iter()
        .map(|input| server.answer(input, usize::MAX, Then::Gone).0)
        .collect();
    assert!(before == after);
    // Sessions and waits too.
    let answer = server
        .ask(&apis::FETCH, 12, &owner.fetch(0, 1000, (0, 0)))
        .unwrap();
    let id = i32::try_from(int(&answer, "sessionId")).unwrap();
    assert!(id > 0);
    let answer = server
        .ask(&apis::FETCH, 12, &owner.fetch(12, 1000, (id, 1)))
        .unwrap();
    assert_eq!(int(&answer, "errorCode"), 0);
    whole_member(&server, owner, 3).unwrap();
    server.clock.sleep(Duration::from_secs(5));
    server.broker.tick(server.clock.wall_ms());
    assert!(server.broker.awaits_nothing());
}
