//! The mirror's logic under a seeded scheduler, over a real directory, against a model of a cluster.
//!
//! Requests are answered, lost or cut short in any order; leaders change, cleanly and not; records are deleted and compacted; topics
//! appear, grow and are recreated; the mirror is killed. In the end nothing may be lost, duplicated or invented, and what was cut is kept.
#![allow(
    clippy::case_sensitive_file_extension_comparisons,
    clippy::match_same_arms,
    clippy::unused_self
)]

mod cases;
mod cases_of_coordinators;
mod cases_of_deletes;
mod cases_of_disk;
mod cases_of_endings;
mod cases_of_leaders;
mod cases_of_making;
mod cases_of_old;
mod cases_of_reports;
mod cases_of_topics;
mod coordination;
mod model;

use super::core::{Core, Next, Node, Request};
use super::options::MirrorOptions;
use super::perform::{lock, perform};
use super::report::{EventKind, MirrorEvent, MirrorReport};
use super::store::Store;
use super::work::Work;
use model::{BROKERS, Model, Random};
use offsetlog::format::batch::BatchHeader;
use offsetlog::format::protocol::apis::FETCH;
use offsetlog::format::{Frame, PartitionMetadata, Uuid};
use offsetlog::{GroupsOptions, OpenOptions};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const NODES: [Node; 4] = [
    Node::Any,
    Node::Broker(BROKERS[0]),
    Node::Broker(BROKERS[1]),
    Node::Broker(BROKERS[2]),
];

/// Histories that are drawn at most beyond those that were asked for. Three in ten have a cut, or more.
const MORE_HISTORIES: usize = 100;

struct Run {
    folder: PathBuf,
    core: Mutex<Core>,
    store: Option<Store>,
    asked: BTreeMap<Node, Request>,
    /// What each node answered, and the disk has not done yet.
    arrived: VecDeque<(Node, Vec<Work>, Vec<u8>)>,
    model: Model,
    random: Random,
    now: i64,
    options: MirrorOptions,
    /// All batches that were ever appended.
    copied: BTreeSet<Vec<u8>>,
    shown: Shown,
    /// Topics of which the last report says that they stay, although the source deleted them or made them anew: no other one was copied
    /// yet when looks missed them.
    stay: BTreeSet<String>,
}

/// What histories had, without which they show nothing.
#[derive(Debug, Clone, Copy, Default)]
struct Shown {
    batches: usize,
    cuts: usize,
    /// Topics that were deleted after the source's.
    deletes: usize,
}

impl Run {
    fn new(folder: &Path, seed: u64, is_old: bool) -> Self {
        let options = MirrorOptions {
            fetch_max_bytes: 700,
            partition_max_bytes: 300,
            metadata_interval_ms: 5000,
            groups_interval_ms: 3000,
            // Some runs close partitions and open them again.
            max_open_partitions: Some(1 + seed as usize % 8),
            ..MirrorOptions::default()
        };
        let now = 1_700_000_000_000;
        let folder = folder.join("mirror");
        Self {
            core: Mutex::new(Core::new(options.clone(), now)),
            store: Some(Store::open(&folder, &options, &OpenOptions::default()).unwrap()),
            folder,
            asked: BTreeMap::new(),
            arrived: VecDeque::new(),
            model: Model::new(seed, is_old),
            random: Random(seed ^ 0xabcd),
            now,
            options,
            copied: BTreeSet::new(),
            shown: Shown::default(),
            stay: BTreeSet::new(),
        }
    }

    fn kill(&mut self) {
        self.count_events();
        self.store.take().unwrap().abandon();
        self.asked.clear();
        self.arrived.clear();
        self.core = Mutex::new(Core::new(self.options.clone(), self.now));
        let opened = Store::open(&self.folder, &self.options, &OpenOptions::default());
        self.store = Some(opened.unwrap());
    }

    fn count_events(&mut self) {
        let report = lock(&self.core).report();
        for event in &report.events {
            match event.kind {
                EventKind::Cut => self.shown.cuts += 1,
                EventKind::DeletedTopic if !stays(event) => self.shown.deletes += 1,
                _ => {}
            }
        }
    }

    fn ask(&mut self, node: Node) {
        if self.asked.contains_key(&node) {
            return;
        }
        let ready = lock(&self.core)
            .not_before(node)
            .is_some_and(|time| time <= self.now);
        if !ready {
            return;
        }
        let next = lock(&self.core).next(node, &self.model.versions, self.now);
        if let Next::Request(request) = next {
            self.asked.insert(node, *request);
        }
        let unasked = lock(&self.core).take_works(self.now);
        perform(
            &self.core,
            self.store.as_mut().unwrap(),
            unasked,
            &[],
            self.now,
        )
        .unwrap();
    }

    fn answer(&mut self, node: Node, is_hard: bool) {
        let Some(request) = self.asked.remove(&node) else {
            return;
        };
        if is_hard && self.random.one_in(12) {
            lock(&self.core).failed(node, Some(&request.asked), "cut", self.now);
            return;
        }
        let mut bytes = self.model.answer(node, &request);
        if is_hard && self.random.one_in(20) {
            bytes.truncate(self.random.below(bytes.len()));
        }
        let is_whole = (request.api, request.version);
        let answered =
            lock(&self.core).answered(node, is_whole, &request.asked, &bytes, 0, self.now);
        match answered {
            Ok(works) => self.arrived.push_back((node, works, bytes)),
            Err(_) => lock(&self.core).failed(node, Some(&request.asked), "torn", self.now),
        }
    }

    fn work(&mut self) {
        // Each node's thread hands over in order, and any of them comes first.
        let mut nodes: Vec<Node> = self.arrived.iter().map(|(node, ..)| *node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let drawn = self.random.below(nodes.len());
        if let Some(&node) = nodes.get(drawn) {
            self.work_of(node);
        }
    }

    /// Does what this node answered first.
    fn work_of(&mut self, node: Node) {
        let first = self.arrived.iter().position(|(each, ..)| *each == node);
        let Some((_, works, bytes)) = first.and_then(|first| self.arrived.remove(first)) else {
            return;
        };
        for work in works {
            let records = match &work {
                Work::Append(append) => append.records.clone(),
                _ => 0..0,
            };
            let before = lock(&self.core).progress().batches;
            let store = self.store.as_mut().unwrap();
            perform(&self.core, store, vec![work], &bytes, self.now).unwrap();
            // Batches may be void by now, or refused.
            if lock(&self.core).progress().batches > before {
                self.copied.extend(batches(&bytes[records]));
            }
        }
    }

    fn step(&mut self, is_hard: bool) {
        match self.random.below(10) {
            0..=2 => {
                let node = NODES[self.random.below(4)];
                self.ask(node);
            }
            3..=5 => {
                let node = NODES[self.random.below(4)];
                self.answer(node, is_hard);
            }
            6 | 7 => self.work(),
            8 => self.now += self.random.below(400) as i64,
            _ => self.model.event(is_hard),
        }
    }

    /// Everything goes well until nothing is left to do.
    fn settle(&mut self) {
        self.model.settle();
        // Longer than any wait in between.
        for _ in 0..400 {
            for node in NODES {
                self.ask(node);
                self.answer(node, false);
            }
            while !self.arrived.is_empty() {
                self.work();
            }
            self.now += 200;
        }
    }

    fn check(mut self, seed: u64) -> Shown {
        self.count_events();
        let report = lock(&self.core).report();
        let staying = report.events.iter().filter(|event| stays(event));
        self.stay = staying.filter_map(|event| event.topic.clone()).collect();
        self.store.take().unwrap().close().unwrap();
        // Also directories of partitions that a recreated topic does not have.
        let mut everything: BTreeSet<Vec<u8>> = BTreeSet::new();
        for entry in std::fs::read_dir(&self.folder).unwrap() {
            let folder = entry.unwrap().path();
            everything.extend(batches(&log_bytes(&folder)));
            for (cut, _) in files(&folder.join("offsetlog-cut")) {
                everything.extend(batches(&std::fs::read(cut).unwrap()));
            }
        }
        for (name, topic) in &self.model.topics {
            for (number, partition) in topic.partitions.iter().enumerate() {
                let folder = self.folder.join(format!("{name}-{number}"));
                let found = batches(&log_bytes(&folder));
                if self.model.recreated.contains(name) || self.stay.contains(name) {
                    continue;
                }
                let at = format!("seed {seed}: {name}-{number}");
                // A subsequence of the leader's history, with everything that it has now.
                let mut found = found.iter().peekable();
                for batch in &partition.log {
                    // What an unclean election cut, and retention passed before the mirror looked: nothing there tells of it.
                    while found.peek().is_some_and(|copy| {
                        last_offset(copy) < partition.start && self.model.gone.contains(copy)
                    }) {
                        found.next();
                    }
                    if found.peek() == Some(&&batch.bytes) {
                        found.next();
                    } else {
                        assert!(
                            !batch.is_there || batch.was_removed || batch.last < partition.start,
                            "{at}: {} is missing: {report:#?}",
                            batch.base
                        );
                    }
                }
                assert_eq!(
                    found.next(),
                    None,
                    "{at}: a batch that the leader does not have: {report:#?}"
                );
            }
        }
        if self.options.follow_deletes {
            self.check_deletes(seed, &report);
            let gone = self.model.gone.iter().cloned();
            let partitions = self.model.topics.values().flat_map(|all| &all.partitions);
            let below = partitions.flat_map(|each| {
                let deleted = each.log.iter().filter(|batch| batch.last < each.start);
                deleted.map(|batch| batch.bytes.clone())
            });
            everything.extend(gone.chain(below));
        }
        let lost: Vec<_> = self.copied.difference(&everything).collect();
        assert!(
            lost.is_empty(),
            "seed {seed}: {} copied batches are nowhere",
            lost.len()
        );
        self.check_groups(seed);
        Shown {
            batches: self.copied.len(),
            ..self.shown
        }
    }

    /// What the source deleted is deleted.
    fn check_deletes(&self, seed: u64, report: &MirrorReport) {
        let log_dir = offsetlog::LogDir::open(&[&self.folder], &OpenOptions::default()).unwrap();
        let mut found = log_dir.topics();
        found.remove("__consumer_offsets");
        found.retain(|name, _| !self.stay.contains(name));
        let mut wanted = self.model.topics.clone();
        wanted.retain(|name, _| !self.stay.contains(name));
        assert!(
            found.keys().eq(wanted.keys()),
            "seed {seed}: {:?} are here, {:?} at the source: {report:#?}",
            found.keys(),
            wanted.keys()
        );
        for (name, topic) in &wanted {
            for (number, partition) in topic.partitions.iter().enumerate() {
                let log = log_dir.log(name, number as i32);
                let log = log.unwrap_or_else(|error| panic!("seed {seed}: {error}: {report:#?}"));
                let (start, end) = (
                    log.log_start_offset().unwrap(),
                    log.log_end_offset().unwrap(),
                );
                assert!(
                    start == partition.start || start == end,
                    "seed {seed}: {name}-{number} begins at {start}, at the source at {}",
                    partition.start
                );
            }
        }
    }

    fn check_groups(&self, seed: u64) {
        let log_dir = offsetlog::LogDir::open(&[&self.folder], &OpenOptions::default()).unwrap();
        let (groups, _, unread) = log_dir.groups(&GroupsOptions::default()).unwrap();
        assert!(unread.is_empty());
        let mut found = BTreeMap::new();
        for group in groups {
            for offset in &group.offsets {
                let key = (
                    group.group_id.clone(),
                    offset.topic.clone(),
                    offset.partition,
                );
                found.insert(key, offset.offset);
            }
        }
        for (key, offset) in &self.model.commits {
            if !self.model.recreated.contains(&key.1) && !self.stay.contains(&key.1) {
                assert_eq!(found.get(key), Some(offset), "seed {seed}: {key:?}");
            }
        }
        if self.options.follow_deletes {
            found.retain(|key, _| {
                !self.model.commits.contains_key(key) && !self.stay.contains(&key.1)
            });
            assert!(
                found.is_empty(),
                "seed {seed}: of deleted topics: {found:?}"
            );
        }
    }
}

/// Whether an event says that a topic stays which the source has deleted or made anew.
fn stays(event: &MirrorEvent) -> bool {
    let is_told = "for the source shows none of the topics that were copied before";
    event.message.contains(is_told)
}

fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<(PathBuf, String)> = entries
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.path(), entry.file_name().into_string().unwrap()))
        .filter(|(path, _)| path.is_file())
        .collect();
    files.sort();
    files
}

/// The bytes of a partition's segments, one after the other.
fn log_bytes(folder: &Path) -> Vec<u8> {
    let segments = files(folder)
        .into_iter()
        .filter(|(_, name)| name.ends_with(".log"));
    segments
        .flat_map(|(path, _)| std::fs::read(path).unwrap())
        .collect()
}

/// The topic's id that a partition directory has.
fn topic_id(run: &Run, partition: &str) -> Uuid {
    let file = run.folder.join(partition).join("partition.metadata");
    let metadata = PartitionMetadata::parse(&std::fs::read(file).unwrap());
    metadata.unwrap().topic_id
}

fn last_offset(batch: &[u8]) -> i64 {
    BatchHeader::parse(batch).unwrap().last_offset
}

fn batches(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Ok(frame) = Frame::parse(bytes)
        && frame.size_bytes <= bytes.len()
    {
        found.push(bytes[..frame.size_bytes].to_vec());
        bytes = &bytes[frame.size_bytes..];
    }
    found
}

fn history(seed: u64, source: Source) -> Shown {
    let folder = tempfile::tempdir().unwrap();
    let is_old = matches!(source, Source::Old);
    let mut run = Run::new(folder.path(), seed, is_old);
    if matches!(source, Source::ByName) {
        run.model.versions.insert(FETCH.key, (4, 12));
    }
    if matches!(source, Source::Deleting) {
        run.model.deletes = true;
        run.options.follow_deletes = true;
        run.options.follow_after_ms = 500;
        run.options.metadata_interval_ms = 500;
        run.core = Mutex::new(Core::new(run.options.clone(), run.now));
    }
    for _ in 0..1500 {
        if run.random.one_in(150) {
            run.kill();
        }
        run.step(true);
    }
    run.settle();
    run.check(seed)
}

fn seeds() -> std::ops::Range<u64> {
    let scale = std::env::var("OFFSETLOG_SCALE").ok();
    let scale: u64 = scale.and_then(|scale| scale.parse().ok()).unwrap_or(1);
    let first = std::env::var("OFFSETLOG_SEED").ok();
    let first: u64 = first.and_then(|seed| seed.parse().ok()).unwrap_or(0);
    first..first + 8 * scale
}

/// Which Kafka a model is.
#[derive(Debug, Clone, Copy)]
enum Source {
    Newest,
    /// Topics have ids, and records are asked for by name.
    ByName,
    /// A fetch does not tell divergence, and topics have no ids.
    Old,
    /// Topics are deleted and recreated, and the mirror follows.
    Deleting,
}

/// Histories with a source. Those that were asked for may have had too little to show anything: then more are drawn, so that only
/// histories in which it never happens fail.
fn histories(source: Source) {
    let asked = seeds().count();
    let is_enough = |shown: Shown| {
        shown.batches > 50 * asked
            && shown.cuts > 0
            && (shown.deletes > 0 || !matches!(source, Source::Deleting))
    };
    let (mut shown, mut count) = (Shown::default(), 0);
    while count < asked || (count < asked + MORE_HISTORIES && !is_enough(shown)) {
        let of = history(seeds().start.wrapping_add(count as u64), source);
        shown.batches += of.batches;
        shown.cuts += of.cuts;
        shown.deletes += of.deletes;
        count += 1;
    }
    println!("counted {count} histories of a mirror");
    assert!(
        is_enough(shown),
        "{count} histories had {shown:?}: too little to show anything"
    );
}

#[test]
fn whatever_happens_the_copy_is_the_leaders_history() {
    histories(Source::Newest);
}

#[test]
fn brokers_that_do_not_tell_divergence_in_a_fetch_are_asked_for_epochs() {
    histories(Source::Old);
}

#[test]
fn brokers_that_have_ids_and_are_asked_by_name_are_copied() {
    histories(Source::ByName);
}

#[test]
fn deletes_are_followed_and_nothing_else_is_deleted() {
    histories(Source::Deleting);
}

#[test]
fn once_ends_when_all_that_was_there_is_copied() {
    for seed in seeds() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Run::new(folder.path(), seed, false);
        run.options.once = true;
        run.core = Mutex::new(Core::new(run.options.clone(), run.now));
        for _ in 0..100 {
            run.model.event(true);
        }
        run.model.settle();
        let mut steps = 0;
        while !lock(&run.core).is_finished(run.now) {
            run.step(false);
            steps += 1;
            assert!(
                steps < 20_000,
                "seed {seed}: {:#?}",
                lock(&run.core).report()
            );
        }
        let report = lock(&run.core).report();
        assert!(report.is_complete, "seed {seed}: {report:#?}");
    }
}

#[test]
fn a_directory_mirrors_one_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let options = MirrorOptions::default();
    let open = OpenOptions::default();
    let mut store = Store::open(folder.path(), &options, &open).unwrap();
    store.identify(Some("one")).unwrap();
    store.close().unwrap();
    let mut store = Store::open(folder.path(), &options, &open).unwrap();
    let refused = store.identify(Some("other")).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("a mirror of cluster one, and the brokers are of cluster other")
    );
    store.close().unwrap();
    // A log dir of somebody else.
    let other = tempfile::tempdir().unwrap();
    std::fs::create_dir(other.path().join("orders-0")).unwrap();
    let refused = Store::open(other.path(), &options, &open).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("a mirror needs a directory of its own"),
        "{refused}"
    );
}
