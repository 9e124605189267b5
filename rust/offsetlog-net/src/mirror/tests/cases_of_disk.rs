//! What the disk refuses, and where it fails: one partition has a problem, or the mirror ends and the next one finds everything whole.

use super::cases::{append, assert_same, finished, go_on, once, told};
use super::model::ModelBatch;
use super::{NODES, Run, batches};
use crate::mirror::batches::walk;
use crate::mirror::core::Core;
use crate::mirror::options::MirrorOptions;
use crate::mirror::perform::{lock, perform};
use crate::mirror::report::EventKind;
use crate::mirror::store::{AppendOutcome, Store, TopicOutcome, is_of_topic};
use crate::mirror::work::{Append, GroupCommit, Work};
use offsetlog::disk::{Disk, RealDisk};
use offsetlog::format::Uuid;
use offsetlog::format::builder::{BatchFields, NewRecord, Uncompressed, write_batch};
use offsetlog::{GroupsOptions, LogDir, OpenOptions, TopicPartition};
use offsetlog_faults::SimDisk;
use offsetlog_faults::fault::{Call, FaultDisk, Lasting, Plan};
use offsetlog_faults::sim::{Cut, Fill, Names, World};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const HOUR_MS: i64 = 3_600_000;

/// One batch of one record.
fn batch(base: i64, leader_epoch: i32, producer_id: i64) -> Vec<u8> {
    let record = NewRecord {
        offset: base,
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(b"v"),
        headers: &[],
    };
    let fields = BatchFields {
        base_offset: base,
        leader_epoch,
        producer_id,
        producer_epoch: if producer_id < 0 { -1 } else { 0 },
        base_sequence: if producer_id < 0 { -1 } else { 9 },
        ..BatchFields::default()
    };
    let mut bytes = Vec::new();
    let mut scratch = Vec::new();
    let records = [record];
    write_batch(
        &mut bytes,
        &fields,
        &records,
        &mut Uncompressed,
        &mut scratch,
    )
    .unwrap();
    bytes
}

/// A batch as it stands in the leader's log, whatever the rules of producers say.
fn put(run: &mut Run, number: usize, base: i64, producer_id: i64) {
    let partition = run.model.partition_of("orders", number);
    partition.log.push(ModelBatch {
        base,
        last: base,
        bytes: batch(base, partition.epoch, producer_id),
        is_there: true,
        was_removed: false,
    });
    run.model.settle();
}

#[test]
fn a_batch_that_a_follower_refuses_is_a_problem_of_its_partition() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    run.model.append_one("orders", 0, (10, 1), true, false);
    run.model.settle();
    finished(&mut run, 20_000);
    // Brokers have written such logs: a batch without a transaction of a producer whose transaction is open.
    put(&mut run, 0, 1, 7);
    append(&mut run, 1);
    super::cases::again(&mut run);
    let report = finished(&mut run, HOUR_MS);
    assert!(!report.is_complete, "{report:#?}");
    let problem = report.partitions[0].problem.as_ref().unwrap();
    assert!(problem.contains("is refused"), "{problem}");
    assert_eq!(report.partitions[0].log_end_offset, 1);
    assert_eq!(report.partitions[1].problem, None);
    assert_same(&run, 1);
}

/// A disk of the source may be damaged there for ever, and consumers are sent what is before.
#[test]
fn sound_batches_before_a_damaged_one_of_the_same_answer_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    for base in 0..4 {
        put(&mut run, 0, base, -1);
    }
    // Its checksum does not hold.
    run.model.partition_of("orders", 0).log[2].bytes[60] ^= 1;
    let report = finished(&mut run, HOUR_MS);
    assert!(!report.is_complete, "{report:#?}");
    assert!(report.partitions[0].problem.is_some());
    assert_eq!(report.partitions[0].log_end_offset, 2);
}

#[test]
fn batches_are_walked_up_to_one_of_an_unknown_version() {
    let mut bytes = [batch(0, 0, -1), batch(1, 0, -1), batch(2, 0, -1)];
    bytes[1][16] = 9;
    let whole = bytes.concat();
    let walked = walk(&whole, 0, None).unwrap();
    assert_eq!(
        (walked.batches, walked.next_offset, walked.torn),
        (1, 1, None)
    );
    assert!(walk(&whole[walked.bytes..], 1, None).is_err());
}

#[test]
fn batches_of_one_answer_that_no_segment_can_hold_together_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    // Compaction has left little; offsets in a segment lie at most `i32::MAX` apart.
    let far = i64::from(i32::MAX) + 10;
    for base in [0, 1, far, far + 1, 3 * far] {
        put(&mut run, 0, base, -1);
    }
    let report = finished(&mut run, HOUR_MS);
    assert!(report.is_complete, "{report:#?}");
    assert_same(&run, 0);
}

pub(super) const MIRROR: &str = "/data/mirror";
const MINUTE_MS: i64 = 60_000;

pub(super) fn topic_id() -> Uuid {
    Uuid::from_bytes([7; 16])
}

/// The directory as a mirror opens it, at this time of day.
pub(super) fn opened(disk: Arc<dyn Disk>, now: i64) -> Store {
    let open = OpenOptions {
        disk,
        clock: Arc::new(move || now),
        ..OpenOptions::default()
    };
    let mut store = Store::open(Path::new(MIRROR), &MirrorOptions::default(), &open).unwrap();
    store.identify(Some("one")).unwrap();
    store
}

fn made(store: &mut Store, topic: &str, partitions: i32) {
    let made = store.topic(topic, topic_id(), partitions, None).unwrap();
    let TopicOutcome::Ready(ready) = made else {
        panic!("{topic} is another");
    };
    assert!(ready.broken.is_empty(), "{:?}", ready.broken);
}

pub(super) fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition {
        topic: topic.to_owned(),
        partition,
    }
}

/// Appends the batch with this offset.
pub(super) fn copy(store: &mut Store, at: &TopicPartition, base: i64) -> offsetlog::Result<()> {
    let bytes = batch(base, 0, -1);
    let append = Append {
        at: at.clone(),
        generation: 0,
        position: base,
        copy_end: base,
        records: 0..bytes.len(),
        walked: walk(&bytes, base, None).unwrap(),
        leader_epoch: Some(0),
        is_by_id: true,
        broker: 1,
    };
    let appended = store.append(&append, &bytes)?;
    assert!(
        matches!(appended, AppendOutcome::Appended(..)),
        "{appended:?}"
    );
    Ok(())
}

#[test]
fn batches_that_do_not_begin_at_the_end_are_appended_only_behind_a_gap_that_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let options = MirrorOptions::default();
    let mut store = Store::open(folder.path(), &options, &OpenOptions::default()).unwrap();
    store.identify(Some("one")).unwrap();
    made(&mut store, "orders", 1);
    let at = at("orders", 0);
    let mut append = |position, copy_end| {
        let bytes = batch(position, 0, -1);
        let append = Append {
            at: at.clone(),
            generation: 0,
            position,
            copy_end,
            records: 0..bytes.len(),
            walked: walk(&bytes, position, None).unwrap(),
            leader_epoch: Some(0),
            is_by_id: true,
            broker: 1,
        };
        match store.append(&append, &bytes).unwrap() {
            AppendOutcome::Appended(position, _) => (true, position.end),
            AppendOutcome::Elsewhere(position) => (false, position.end),
        }
    };
    assert_eq!(append(0, 0), (true, 1));
    // Batches of another broker, which come first to the disk.
    assert_eq!(append(3, 3), (false, 1));
    // The same ones again.
    assert_eq!(append(0, 0), (false, 1));
    // The source says that nothing is between; not of another end.
    assert_eq!(append(3, 2), (false, 1));
    assert_eq!(append(3, 1), (true, 4));
}

fn commit(group: &str, at: &TopicPartition, offset: i64) -> GroupCommit {
    GroupCommit {
        group: group.to_owned(),
        at: at.clone(),
        offset,
        leader_epoch: None,
        metadata: String::new(),
    }
}

/// By partition directory the batches, and the groups' offsets.
type Found = (
    BTreeMap<String, Vec<u8>>,
    BTreeMap<(String, TopicPartition), i64>,
);

fn found(disk: &SimDisk) -> Found {
    let world = disk.world();
    let mut logs = BTreeMap::new();
    for (path, bytes) in world.files() {
        let name = path.strip_prefix(MIRROR).unwrap_or(path);
        let (directory, file) = name.to_str().unwrap().split_once('/').unwrap_or_default();
        let is_copy = !directory.ends_with("-delete") && !directory.starts_with("__");
        if is_copy && file.ends_with(".log") {
            let log: &mut Vec<u8> = logs.entry(directory.to_owned()).or_default();
            log.extend(batches(bytes).concat());
        }
    }
    let open = OpenOptions {
        disk: Arc::new(disk.clone()),
        ..OpenOptions::default()
    };
    let log_dir = LogDir::open(&[MIRROR], &open).unwrap();
    let (groups, _, unread) = log_dir.groups(&GroupsOptions::default()).unwrap();
    assert!(unread.is_empty(), "{unread:?}");
    let offsets = groups.into_iter().flat_map(|group| {
        let id = group.group_id;
        let offsets = group.offsets.into_iter();
        offsets.map(move |offset| {
            (
                (id.clone(), at(&offset.topic, offset.partition)),
                offset.offset,
            )
        })
    });
    (logs, offsets.collect())
}

/// Without what belongs to a topic.
fn without(all: &Found, topic: &str) -> Found {
    let (mut logs, mut offsets) = all.clone();
    logs.retain(|directory, _| !directory.starts_with(topic));
    offsets.retain(|(_, at), _| at.topic != topic);
    (logs, offsets)
}

/// Two topics with records, and groups that read them.
fn filled() -> World {
    let sim = SimDisk::new(World::new(Names::Journal, &["/data"]));
    let mut store = opened(Arc::new(sim.clone()), 0);
    made(&mut store, "kept", 1);
    made(&mut store, "orders", 2);
    let mut commits = Vec::new();
    for at in [at("kept", 0), at("orders", 0), at("orders", 1)] {
        for base in 0..3 {
            copy(&mut store, &at, base).unwrap();
        }
        commits.extend(["readers", "others"].map(|group| commit(group, &at, 2)));
    }
    assert!(store.commit(&commits).unwrap().refused.is_empty());
    store.close().unwrap();
    sim.world()
}

pub(super) const fn failing(nth: u64, lasting: Lasting) -> Plan {
    Plan {
        kinds: |call, _| call.is_change(),
        nth,
        lasting,
        ..Plan::none()
    }
}

/// Checks the state after an interrupted deletion: of the topic all, or part of it and no offsets; of the rest all.
fn is_in_order(now: &Found, before: &Found, context: &str) {
    let topic = "orders";
    assert!(
        without(now, topic) == without(before, topic),
        "{context}: {now:?}"
    );
    let (logs, offsets) = now;
    let left = logs
        .iter()
        .filter(|(directory, _)| directory.starts_with(topic));
    let left: Vec<_> = left.collect();
    assert!(
        left.iter()
            .all(|&(directory, log)| before.0.get(directory) == Some(log)),
        "{context}: {left:?}"
    );
    let mut of_topic = offsets.iter().filter(|((_, at), _)| at.topic == topic);
    assert!(
        of_topic.all(|(key, offset)| left.len() == 2 && before.1.get(key) == Some(offset)),
        "{context}: {offsets:?} with {} directories",
        left.len()
    );
}

#[test]
fn a_topic_whose_deletion_ends_anywhere_is_deleted_by_the_next_run_with_its_offsets() {
    let world = filled();
    let before = found(&SimDisk::new(world.clone()));
    assert_eq!((before.0.len(), before.1.len()), (3, 6));
    let mut random = fastrand::Rng::with_seed(26);
    let mut states = BTreeSet::new();
    for lasting in [Lasting::Killed, Lasting::Once] {
        for nth in 1.. {
            let sim = SimDisk::new(world.clone());
            let disk = FaultDisk::over(&sim, Plan::none());
            let mut store = opened(Arc::new(disk.clone()), 0);
            made(&mut store, "orders", 2);
            disk.set(failing(nth, lasting));
            let deleted = store.delete_topic("orders");
            let has_failed = !disk.failed().is_empty();
            match lasting {
                Lasting::Killed => drop(store),
                // An error of the disk ends the mirror.
                _ => drop(store.close()),
            }
            let cuts = match lasting {
                Lasting::Killed => &[Cut::Process, Cut::Nothing][..],
                _ => &[Cut::Process],
            };
            for &cut in cuts {
                let context = format!("call {nth} {lasting:?}, {:?}, {cut:?}", disk.failed());
                let after = sim.world().crash(cut, Fill::Zeros, &mut random);
                let sim = SimDisk::new(after.clone());
                let now = found(&sim);
                is_in_order(&now, &before, &context);
                states.insert((now.0.len(), now.1.len()));
                if deleted.is_ok() {
                    assert!(now == without(&before, "orders"), "{context}: {now:?}");
                }
                // The source no longer has it.
                let mut store = opened(Arc::new(sim.clone()), 2 * MINUTE_MS);
                if store.topics().contains(&"orders".to_owned()) {
                    store.delete_topic("orders").unwrap();
                }
                store.close().unwrap();
                assert!(found(&sim) == without(&before, "orders"), "{context}");
                let store = opened(Arc::new(sim.clone()), 4 * MINUTE_MS);
                store.remove_deleted().unwrap();
                store.close().unwrap();
                let world = sim.world();
                let mut names = world.children(Path::new(MIRROR));
                assert!(names.all(|(name, _)| !name.contains("orders")), "{context}");
                // The source shows it again.
                let sim = SimDisk::new(after);
                let mut store = opened(Arc::new(sim.clone()), 2 * MINUTE_MS);
                made(&mut store, "orders", 2);
                store.close().unwrap();
                let (mut logs, offsets) = found(&sim);
                assert!(logs.len() == 3 && offsets == now.1, "{context}");
                logs.retain(|_, log| !log.is_empty());
                assert!(logs == now.0, "{context}");
            }
            if !has_failed {
                deleted.unwrap();
                break;
            }
        }
    }
    // It ended before it began, among the offsets, between these and the directories, among the directories, and behind them.
    for state in [(3, 6), (3, 4), (3, 2), (2, 2), (1, 2)] {
        assert!(states.contains(&state), "{state:?} of {states:?}");
    }
}

#[test]
fn a_sync_beside_appends_that_fails_is_told_and_nothing_counts_as_durable() {
    for is_idle in [true, false] {
        let sim = SimDisk::new(World::new(Names::Journal, &["/data"]));
        let disk = FaultDisk::over(&sim, Plan::none());
        let mut store = opened(Arc::new(disk.clone()), 0);
        made(&mut store, "kept", 1);
        made(&mut store, "orders", 1);
        store.flush().unwrap();
        let (kept, orders) = (at("kept", 0), at("orders", 0));
        copy(&mut store, &kept, 0).unwrap();
        copy(&mut store, &orders, 0).unwrap();
        disk.set(Plan {
            kinds: |call, path| {
                call == Call::Sync && path.contains("orders-0") && path.ends_with(".log")
            },
            ..failing(1, Lasting::Once)
        });
        store.begin_flush().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let told = loop {
            assert!(
                Instant::now() < deadline,
                "the sync that failed was not told"
            );
            if !is_idle {
                // Others do not fail for it.
                let end = store.position(&kept).unwrap().end;
                copy(&mut store, &kept, end).unwrap();
            }
            if let Err(error) = store.begin_flush() {
                break error;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(!is_of_topic(told.kind()), "{told}");
        assert_eq!(disk.failed().len(), 1);
        // A later call fails too, and no offset is stored above what is not durable.
        store.flush().unwrap_err();
        store.commit(&[commit("readers", &orders, 1)]).unwrap_err();
        let copied = store.position(&kept).unwrap().end;
        drop(store.close());
        let mut random = fastrand::Rng::with_seed(26);
        let after = sim.world().crash(Cut::Nothing, Fill::Zeros, &mut random);
        let sim = SimDisk::new(after);
        assert!(found(&sim).1.is_empty());
        let mut store = opened(Arc::new(sim.clone()), 0);
        made(&mut store, "kept", 1);
        made(&mut store, "orders", 1);
        for (at, to) in [(&kept, copied), (&orders, 3)] {
            for base in store.position(at).unwrap().end..to {
                copy(&mut store, at, base).unwrap();
            }
        }
        store.begin_flush().unwrap();
        assert!(
            store
                .commit(&[commit("readers", &orders, 3)])
                .unwrap()
                .refused
                .is_empty()
        );
        store.flush().unwrap();
        let after = sim.world().crash(Cut::Nothing, Fill::Zeros, &mut random);
        store.close().unwrap();
        let (logs, offsets) = found(&SimDisk::new(after));
        let wanted = |to| {
            (0..to)
                .flat_map(|base| batch(base, 0, -1))
                .collect::<Vec<u8>>()
        };
        assert!(logs["kept-0"] == wanted(copied) && logs["orders-0"] == wanted(3));
        assert_eq!(offsets.into_values().collect::<Vec<_>>(), [3]);
    }
}

#[test]
fn a_sync_that_fails_before_a_deletion_is_no_fault_of_the_deleted_topic() {
    let sim = SimDisk::new(filled());
    let mut store = opened(Arc::new(sim.clone()), 0);
    made(&mut store, "kept", 1);
    made(&mut store, "orders", 2);
    copy(&mut store, &at("kept", 0), 3).unwrap();
    // Somebody removes the segment of another topic.
    let segment = "kept-0/00000000000000000000.log";
    sim.unlink(&Path::new(MIRROR).join(segment)).unwrap();
    let core = Mutex::new(Core::new(MirrorOptions::default(), 0));
    let works = vec![Work::DeleteTopic {
        name: "orders".to_owned(),
    }];
    let error = perform(&core, &mut store, works, &[], 0).unwrap_err();
    assert!(error.to_string().contains("kept-0"), "{error}");
    assert!(store.topics().contains(&"orders".to_owned()));
    assert!(lock(&core).news().is_empty());
    drop(store.close());
}

#[test]
fn a_partition_that_did_not_open_and_is_back_with_its_topic_comes_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = once(folder.path());
    // All that there is comes at once.
    run.model.append_one("orders", 0, (10, 1), false, false);
    run.model.settle();
    // Another topic without a leader keeps the mirror waiting.
    run.model.make("other", 1);
    run.model.partition_of("other", 0).lead(-1);
    let of_orders =
        |work: &Work| matches!(work, Work::Append(append) if append.at == at("orders", 0));
    let mut has_failed = false;
    while !has_failed {
        for node in NODES {
            run.ask(node);
            run.answer(node, false);
        }
        while let Some((_, works, bytes)) = run.arrived.pop_front() {
            for work in works {
                let store = run.store.as_mut().unwrap();
                if of_orders(&work) && !has_failed {
                    // Its batches are there, and then it does not open again.
                    let Work::Append(append) = work else { continue };
                    store
                        .append(&append, &bytes[append.records.clone()])
                        .unwrap();
                    lock(&run.core).broken(&append.at, "it does not open");
                    has_failed = true;
                } else {
                    perform(&run.core, store, vec![work], &bytes, run.now).unwrap();
                }
            }
        }
        run.now += 100;
    }
    run.model.hidden.insert("orders".to_owned());
    go_on(&mut run, 20_000, |_, _| true);
    let report = lock(&run.core).report();
    assert_eq!(told(&report, EventKind::DeletedTopic).len(), 1);
    run.model.hidden.clear();
    go_on(&mut run, MINUTE_MS, |_, _| true);
    let is_done = lock(&run.core).partitions[&at("orders", 0)].is_done;
    let report = lock(&run.core).report();
    assert!(is_done, "{report:#?}");
    assert_same(&run, 0);
}

/// The id that a mirror gives a topic of brokers without ids stays its own, wherever it was killed: when they have ids one day, the copy is
/// no other topic.
#[test]
fn a_topic_of_brokers_without_ids_is_no_other_one_after_their_upgrade() {
    let mut kills = 0;
    for nth in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mirror");
        let disk = FaultDisk::new(Arc::new(RealDisk), Plan::none());
        let open = |disk: Arc<dyn Disk>| {
            let open = OpenOptions {
                disk,
                ..OpenOptions::default()
            };
            let mut store = Store::open(&path, &MirrorOptions::default(), &open).unwrap();
            store.identify(Some("one")).unwrap();
            store
        };
        let mut store = open(Arc::new(disk.clone()));
        disk.set(Plan {
            kinds: |call, _| call.is_change(),
            nth,
            lasting: Lasting::Killed,
            ..Plan::none()
        });
        let made = store.topic("n", Uuid::ZERO, 2, None);
        let was_killed = !disk.failed().is_empty();
        assert_eq!(made.is_err(), was_killed, "{nth}");
        drop(store);
        kills += u32::from(was_killed);
        for id in [Uuid::ZERO, topic_id(), topic_id()] {
            let mut store = open(Arc::new(RealDisk));
            let made = store.topic("n", id, 2, None).unwrap();
            assert!(matches!(made, TopicOutcome::Ready(_)), "{nth}, {id}");
            store.close().unwrap();
        }
        if !was_killed {
            break;
        }
    }
    assert!(kills > 10, "{kills}");
}
