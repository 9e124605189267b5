//! The groups' committed offsets: fetched from each broker for the groups that it coordinates, stored when the copy has reached them.
//!
//! A group that is restored must find what it committed: an offset is stored only when the copy of its partition goes that far. With
//! `once` the offsets are asked for first, and the partitions are copied up to them at least.

mod coordinators;
mod ending;
mod kinds;
mod storing;

use super::answers::{epoch, error_name, int, int_or, int32, structs, text};
use super::{Asked, Core, Request, TopicState, Versions, version_of};
use crate::mirror::report::{EventKind, MirrorEvent};
use crate::mirror::work::{GroupCommit, Work};
pub(super) use coordinators::OFFSETS_TOPIC;
use coordinators::{Coordinators, offsets_of};
use kinds::Listed;
use offsetlog::TopicPartition;
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::apis::{LIST_GROUPS, OFFSET_FETCH};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// The last version with names of topics.
const OFFSET_FETCH_NEWEST: i16 = 9;
/// The first version that asks for all topics of a group.
const ALL_TOPICS: i16 = 2;
/// The first version that asks for several groups.
const SEVERAL_GROUPS: i16 = 8;
const GROUPS_AT_ONCE: usize = 50;
/// Most groups that are known: more are left out, and reported.
const GROUPS_MAX: usize = 100_000;
/// Milliseconds that a broker is asked about groups before it is asked for records again.
const TURN_MS: i64 = 200;

/// What is known of a broker's groups.
#[derive(Debug, Default)]
struct OfBroker {
    /// When it was first asked about groups since it was asked for records.
    turn_began: Option<i64>,
    due: i64,
    /// Probe groups: a refusal shows what the broker does not coordinate. They are asked for before it lists its groups.
    probes: VecDeque<String>,
    /// Whether it coordinates all that it leads.
    is_proven: bool,
    /// Since when it refuses that.
    refused_since: Option<i64>,
    waiting: VecDeque<String>,
    is_asked: bool,
    /// Whether all its groups were asked for once.
    is_known: bool,
    /// Whether its next answer was asked for before a topic was deleted here: then it is asked again.
    is_stale: bool,
    /// How many topics had been shown when its groups' offsets were asked for last.
    asked_at: u64,
    /// Whether all its groups are to be asked for once more behind this time, for what they told of a topic before it was shown.
    is_behind: bool,
    failures: u32,
}

/// An offset that is to be stored when the copy has it.
#[derive(Debug)]
struct Pending {
    commit: GroupCommit,
    asked: AskedOffset,
    /// The newest one after it.
    later: Option<(GroupCommit, AskedOffset)>,
}

/// Partition and group of an offset that waits.
type WaitingKey = (TopicPartition, String);

/// When a broker returned an offset.
#[derive(Debug, Clone, Copy)]
struct AskedOffset {
    at: i64,
    /// The look at the metadata that says whether its topic was still the one that is copied.
    look: u64,
}

#[derive(Debug)]
pub(in crate::mirror) struct GroupOffsets {
    is_wanted: bool,
    began_at: i64,
    brokers: BTreeMap<i32, OfBroker>,
    /// By partition first: an append asks for those of its own.
    pending: BTreeMap<WaitingKey, Pending>,
    /// When many are looked through again.
    walk_at: i64,
    stored: BTreeMap<(String, TopicPartition), GroupCommit>,
    count: u64,
    groups: BTreeSet<String>,
    told: BTreeSet<String>,
    /// Groups that a broker listed without returning their offsets, with that broker.
    untold: BTreeMap<String, i32>,
    /// Offsets that were stored though they are above the source's high watermark.
    beyond: BTreeMap<WaitingKey, i64>,
    /// Offsets that the directory did not take.
    refused: BTreeSet<WaitingKey>,
    /// Brokers that cannot be asked about groups.
    deaf: BTreeSet<i32>,
    /// Brokers that answered the last request for their groups with an error.
    unlisted: BTreeSet<i32>,
    /// Share groups, with the broker that listed each last.
    shared: BTreeMap<String, i32>,
    coordinators: Coordinators,
    /// How many topics looks have shown for the first time.
    shown: u64,
}

impl GroupOffsets {
    pub(super) fn new(is_wanted: bool, now: i64) -> Self {
        Self {
            is_wanted,
            began_at: now,
            brokers: BTreeMap::new(),
            pending: BTreeMap::new(),
            walk_at: now,
            stored: BTreeMap::new(),
            count: 0,
            groups: BTreeSet::new(),
            told: BTreeSet::new(),
            untold: BTreeMap::new(),
            beyond: BTreeMap::new(),
            refused: BTreeSet::new(),
            deaf: BTreeSet::new(),
            unlisted: BTreeSet::new(),
            shared: BTreeMap::new(),
            coordinators: Coordinators::default(),
            shown: 0,
        }
    }

    /// A topic was deleted here, with its offsets. If it was recreated, it may have others, and the known ones may be of the old topic: all
    /// are fetched again.
    pub(super) fn forget(&mut self, topic: &str, now: i64) {
        self.pending.retain(|(at, _), _| at.topic != topic);
        self.stored.retain(|(_, at), _| at.topic != topic);
        self.refused.retain(|(at, _)| at.topic != topic);
        self.beyond.retain(|(at, _), _| at.topic != topic);
        for broker in self.brokers.values_mut() {
            broker.begin_anew();
            broker.is_stale = broker.is_asked;
        }
        self.ask_all_again(now);
    }

    /// A topic is shown for the first time. Returns how many were by then. What was told of its name before may be of one that was deleted:
    /// that is asked for again, of whichever broker told it.
    pub(super) fn first_shown(&mut self, topic: &str, now: i64) -> u64 {
        self.shown += 1;
        let at = TopicPartition {
            topic: topic.to_owned(),
            partition: i32::MIN,
        };
        let waiting = self.pending.range((at, String::new())..);
        let waiting: Vec<WaitingKey> = waiting
            .map(|(key, _)| key)
            .take_while(|(at, _)| at.topic == topic)
            .cloned()
            .collect();
        if !waiting.is_empty() {
            for broker in self.brokers.values_mut() {
                broker.is_behind = true;
            }
            self.ask_all_again(now);
        }
        for key in waiting {
            self.pending.remove(&key);
        }
        self.shown
    }

    /// Whether a broker told an offset of a topic that was first shown, as this one in turn, after it was asked: then it is asked again.
    fn takes_for_older(&mut self, id: i32, shown: u64) -> bool {
        let broker = self.brokers.get_mut(&id);
        let older = broker.filter(|broker| broker.asked_at < shown);
        older.map(|broker| broker.is_behind = true).is_some()
    }

    /// Whether a broker's answer is stale.
    fn takes_for_stale(&mut self, id: i32) -> bool {
        let Some(broker) = self.brokers.get_mut(&id) else {
            return false;
        };
        let is_stale = std::mem::take(&mut broker.is_stale);
        broker.is_asked &= !is_stale;
        is_stale
    }

    pub(super) fn know_broker(&mut self, id: i32) {
        let began_at = self.began_at;
        self.brokers.entry(id).or_insert_with(|| OfBroker {
            due: began_at,
            ..OfBroker::default()
        });
    }

    pub(super) fn keep_brokers(&mut self, brokers: &BTreeMap<i32, (String, u16)>, now: i64) {
        if self.brokers.keys().any(|id| !brokers.contains_key(id)) {
            self.ask_all_again(now);
        }
        self.brokers.retain(|id, _| brokers.contains_key(id));
        self.untold.retain(|_, id| brokers.contains_key(id));
        self.shared.retain(|_, id| brokers.contains_key(id));
        self.deaf.retain(|id| brokers.contains_key(id));
        self.unlisted.retain(|id| brokers.contains_key(id));
    }

    /// Groups moved from a broker to another, which may have been asked before.
    fn ask_all_again(&mut self, due: i64) {
        for broker in self.brokers.values_mut() {
            broker.is_known = false;
            broker.due = broker.due.min(due);
        }
    }

    pub(super) fn failed(&mut self, id: i32, due: i64) {
        if let Some(broker) = self.brokers.get_mut(&id) {
            broker.is_asked = false;
            broker.is_stale = false;
            broker.due = due;
            broker.failures = broker.failures.saturating_add(1);
            broker.begin_anew();
        }
    }

    /// Whether each broker's groups were asked for.
    pub(super) fn are_known(&self) -> bool {
        !self.is_wanted
            || (self.coordinators.are_there()
                && self.brokers.values().all(|broker| broker.is_known))
    }

    pub(super) fn group_count(&self) -> usize {
        let groups: BTreeSet<&str> = self
            .stored
            .keys()
            .map(|(group, _)| group.as_str())
            .collect();
        groups.len()
    }

    pub(super) const fn stored(&self) -> u64 {
        self.count
    }

    /// Share groups of the source, of which nothing is copied.
    pub(super) fn share_group_count(&self) -> usize {
        self.shared.len()
    }

    /// Whether offsets of groups are missing that the source has.
    pub(super) fn has_missing(&self) -> bool {
        !self.untold.is_empty()
            || !self.refused.is_empty()
            || !self.deaf.is_empty()
            || !self.unlisted.is_empty()
    }

    /// The broker is asked for something else.
    pub(super) fn end_turn(&mut self, id: i32) {
        if let Some(broker) = self.brokers.get_mut(&id) {
            broker.turn_began = None;
        }
    }
}

impl Core {
    /// Whether a broker is asked about groups before records. With `once` they say how far the partitions are to be copied.
    pub(super) fn groups_come_first(&self, id: i32, now: i64) -> bool {
        let once = self.options.once;
        self.groups.brokers.get(&id).is_none_or(|broker| {
            let is_new = once && !broker.is_known;
            let spent = broker
                .turn_began
                .map_or(0, |began| now.saturating_sub(began));
            is_new || spent < TURN_MS
        })
    }

    pub(super) fn next_of_groups(
        &mut self,
        id: i32,
        versions: &Versions,
        now: i64,
    ) -> Option<Request> {
        if !self.groups.is_wanted {
            return None;
        }
        let once = self.options.once;
        let broker = self.groups.brokers.get_mut(&id)?;
        if broker.is_asked {
            return None;
        }
        if !broker.waiting.is_empty() {
            broker.turn_began.get_or_insert(now);
            return self.offsets_request(id, versions);
        }
        if broker.due > now || (once && broker.is_known) {
            return None;
        }
        let has_both = version_of(&OFFSET_FETCH, versions, OFFSET_FETCH_NEWEST)
            .is_some_and(|version| version >= ALL_TOPICS);
        let Some(version) = version_of(&LIST_GROUPS, versions, i16::MAX).filter(|_| has_both)
        else {
            broker.is_known = true;
            broker.due = i64::MAX;
            if self.groups.deaf.insert(id) {
                let message = format!(
                    "broker {id} is too old to tell the committed offsets of its groups: they are not copied"
                );
                self.tell(MirrorEvent::new(EventKind::Problem, message).by(id));
            }
            return None;
        };
        broker.turn_began.get_or_insert(now);
        if let Some(request) = self.proof_request(id, versions) {
            return Some(request);
        }
        let broker = self.groups.brokers.get_mut(&id)?;
        broker.is_asked = true;
        broker.is_behind = false;
        broker.due = now.saturating_add(self.options.groups_interval_ms);
        Some(Request {
            api: &LIST_GROUPS,
            version,
            body: Struct::new(),
            asked: Asked::Groups,
        })
    }

    fn offsets_request(&mut self, id: i32, versions: &Versions) -> Option<Request> {
        let version = version_of(&OFFSET_FETCH, versions, OFFSET_FETCH_NEWEST)?;
        let broker = self.groups.brokers.get_mut(&id)?;
        let at_once = if version >= SEVERAL_GROUPS {
            GROUPS_AT_ONCE
        } else {
            1
        };
        let count = at_once.min(broker.waiting.len());
        let groups: Vec<String> = broker.waiting.drain(..count).collect();
        broker.is_asked = true;
        broker.asked_at = self.groups.shown;
        Some(Request {
            api: &OFFSET_FETCH,
            version,
            body: offsets_of(&groups, version),
            asked: Asked::Offsets(groups),
        })
    }

    pub(super) fn take_groups(&mut self, id: i32, answer: &Struct<'_>, now: i64) {
        if self.groups.takes_for_stale(id) {
            return;
        }
        let error = int(answer, "errorCode");
        let Listed {
            names,
            shared,
            unknown,
            left_out,
        } = Listed::of(answer);
        let Some(broker) = self.groups.brokers.get_mut(&id) else {
            return;
        };
        broker.is_asked = false;
        if error != 0 {
            self.retry_groups(id, error, now);
            return;
        }
        broker.failures = 0;
        self.groups.unlisted.remove(&id);
        // A group that is no longer listed was deleted, or moved to another broker.
        let listed: BTreeSet<&String> = names.iter().collect();
        self.groups
            .untold
            .retain(|name, broker| *broker != id || listed.contains(name));
        let is_empty = names.is_empty();
        broker.waiting = names.into();
        if is_empty {
            self.note_known(id, now);
        }
        self.tell_kinds(id, shared, unknown);
        if left_out > 0 {
            self.is_partial = true;
            self.tell_group(
                "",
                format!("broker {id} has more than {GROUPS_MAX} groups; {left_out} are not copied"),
            );
        }
    }

    fn retry_groups(&mut self, id: i32, error: i64, now: i64) {
        let due = now.saturating_add(self.options.backoff(5));
        self.groups.failed(id, due);
        // Loading, or moving: retried later.
        if matches!(error, 14..=16) {
            return;
        }
        // It may be over soon. With `once` the mirror waits for that as for a partition.
        if self.groups.unlisted.insert(id) {
            let name = error_name(error);
            let message =
                format!("broker {id} does not list its groups: {name}; they are not copied yet");
            self.tell(MirrorEvent::new(EventKind::Problem, message).by(id));
        }
        // What the principal may not do does not change by itself.
        if matches!(error, 29..=31)
            && let Some(broker) = self.groups.brokers.get_mut(&id)
        {
            broker.is_known = true;
        }
    }

    fn tell_group(&mut self, group: &str, message: String) {
        if self.groups.told.len() < 1000 && self.groups.told.insert(format!("{group}: {message}")) {
            self.tell(MirrorEvent::new(EventKind::Warning, message));
        }
    }

    pub(super) fn take_offsets(
        &mut self,
        id: i32,
        asked: &[String],
        answer: &Struct<'_>,
        now: i64,
        works: &mut Vec<Work>,
    ) {
        if self.groups.takes_for_stale(id) {
            return;
        }
        let mut moved = false;
        let mut several: Vec<(String, i64, &Struct<'_>)> = structs(answer, "groups")
            .filter_map(|group| Some((text(group, "groupId")?, int(group, "errorCode"), group)))
            .collect();
        // Up to version 7 the answer is of one group. A newer one without groups leaves them out.
        if answer.get("groups").is_none()
            && let [one] = asked
        {
            several.push((one.clone(), int(answer, "errorCode"), answer));
        }
        let mut waiting: BTreeSet<&String> = asked.iter().collect();
        let mut told = BTreeSet::new();
        for (group, error, found) in several {
            if !waiting.remove(&group) {
                continue;
            }
            match error {
                0 => {
                    self.groups.untold.remove(&group);
                    self.take_group(id, &group, found, now, &mut told);
                }
                // Deleted since it was listed.
                69 => {
                    self.groups.untold.remove(&group);
                }
                14..=16 => moved = true,
                error => {
                    self.groups.untold.insert(group.clone(), id);
                    let name = error_name(error);
                    self.tell_group(
                        &group,
                        format!("the offsets of group {group} are not copied: {name}"),
                    );
                }
            }
        }
        for group in waiting {
            self.groups.untold.insert(group.clone(), id);
            self.tell_group(
                group,
                format!(
                    "the offsets of group {group} are not copied: broker {id} does not tell them"
                ),
            );
        }
        if let Some(broker) = self.groups.brokers.get_mut(&id) {
            broker.is_asked = false;
            if moved {
                let due = now.saturating_add(self.options.backoff(5));
                self.groups.failed(id, due);
                self.groups.ask_all_again(due);
            } else if broker.waiting.is_empty() {
                // However long it took: the next round begins after a pause.
                broker.due = now.saturating_add(self.options.groups_interval_ms);
                broker.failures = 0;
                self.note_known(id, now);
            }
        }
        for at in &told {
            self.store_offsets(Some(at), works, now);
        }
    }

    fn take_group(
        &mut self,
        id: i32,
        group: &str,
        found: &Struct<'_>,
        now: i64,
        told: &mut BTreeSet<TopicPartition>,
    ) {
        for topic in structs(found, "topics") {
            let Some(name) = text(topic, "name") else {
                continue;
            };
            for partition in structs(topic, "partitions") {
                let at = TopicPartition {
                    topic: name.clone(),
                    partition: int32(partition, "partitionIndex"),
                };
                let offset = int_or(partition, "committedOffset", -1);
                let error = int(partition, "errorCode");
                if error != 0 {
                    self.groups.untold.insert(group.to_owned(), id);
                    let reason = error_name(error);
                    self.tell_group(
                        group,
                        format!(
                            "an offset of group {group} in {name}-{} is not copied: {reason}",
                            at.partition
                        ),
                    );
                }
                if offset < 0 || error != 0 {
                    continue;
                }
                let commit = GroupCommit {
                    group: group.to_owned(),
                    offset,
                    leader_epoch: epoch(partition, "committedLeaderEpoch"),
                    metadata: text(partition, "metadata").unwrap_or_default(),
                    at,
                };
                told.insert(commit.at.clone());
                let shown = self.topics.get(&name).map_or(0, |topic| topic.shown);
                if !self.groups.takes_for_older(id, shown) {
                    self.take_commit(commit, now);
                }
            }
        }
    }
}

/// The keys of offsets that wait, of one partition or of all.
fn keys_of(of: Option<&TopicPartition>) -> (Bound<WaitingKey>, Bound<WaitingKey>) {
    let Some(at) = of else {
        return (Bound::Unbounded, Bound::Unbounded);
    };
    let first = |partition| TopicPartition {
        topic: at.topic.clone(),
        partition,
    };
    let next = at.partition.checked_add(1).map(first);
    (
        Bound::Included((at.clone(), String::new())),
        next.map_or(Bound::Unbounded, |next| {
            Bound::Excluded((next, String::new()))
        }),
    )
}
