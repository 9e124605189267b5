//! With `once`: whether each partition of `__consumer_offsets` has a coordinator, before brokers are asked which groups they have.
//!
//! A broker lists the groups of the partitions that it coordinates. After a start or an election it has none yet, and returns an empty list
//! without an error: a mirror that trusted it would end without their offsets. So each leader is first asked for the offsets of groups that
//! nobody has, one in each of its partitions. It refuses them while it does not coordinate the partition or loads it. If the principal may
//! not see the topic, or such groups, this check shows nothing, and the list is trusted.
//!
//! Source: Kafka's `GroupCoordinatorService.listGroups` and `CoordinatorRuntime.scheduleReadAllOperation`; before 4.0
//! `GroupMetadataManager.currentGroups`.

use super::super::answers::{int, structs};
use super::super::metadata::leaders_of;
use super::super::{Asked, Core, Request, Versions, version_of};
use super::{GROUPS_AT_ONCE, OFFSET_FETCH_NEWEST, OfBroker, SEVERAL_GROUPS};
use crate::mirror::report::{EventKind, MirrorEvent};
use offsetlog::format::internal_topic::partition_of;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis::OFFSET_FETCH;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(in crate::mirror::core) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Milliseconds before the metadata is asked for again while a partition has no leader.
const LEADERLESS_WAIT_MS: i64 = 500;
/// Milliseconds that a leader is waited for, if that is less than this part of what ends the mirror when nothing moves.
const LEADERLESS_MS: i64 = 30_000;
const LEADERLESS_SHARE: i64 = 4;
/// What part of that a broker is waited for that refuses what it leads.
const REFUSED_SHARE: i64 = 2;

/// Where the groups' offsets are.
#[derive(Debug, Default)]
pub(super) struct Coordinators {
    /// The leader of each partition, as the last look showed it; `None` if it did not: the principal may not see the topic, or nobody has
    /// ever committed an offset.
    leaders: Option<BTreeMap<i32, Option<i32>>>,
    /// The last look that could show it.
    look: u64,
    /// The last look that had begun when a broker's groups were known.
    known_at: u64,
    /// Since when a partition has no leader.
    leaderless_since: Option<i64>,
    /// Whether the wait for a leader ended without one.
    has_waited: bool,
    /// Brokers that refused to the end, and listed the groups that they have.
    refusing: BTreeSet<i32>,
}

impl Coordinators {
    fn leaderless(&self) -> Vec<i32> {
        let leaders = self.leaders.iter().flatten();
        let leaderless = leaders.filter(|(_, leader)| leader.is_none());
        leaderless.map(|(number, _)| *number).collect()
    }

    /// Whether each partition has a leader, or one was waited for long enough.
    pub(super) const fn are_there(&self) -> bool {
        self.leaderless_since.is_none() || self.has_waited
    }

    /// Names of groups that nobody has, one in each partition that the broker leads.
    fn probes_of(&self, id: i32) -> VecDeque<String> {
        let leaders = self.leaders.iter().flatten();
        let led = leaders.filter(|(_, leader)| **leader == Some(id));
        let mut left: BTreeSet<i32> = led.map(|(number, _)| *number).collect();
        let last = self.leaders.iter().flatten().last();
        let count = last.map_or(0, |(&last, _)| last as usize + 1);
        let mut probes = VecDeque::new();
        for number in 0..count.saturating_mul(4) {
            if left.is_empty() {
                break;
            }
            let name = probe(number);
            if left.remove(&(partition_of(&name, count) as i32)) {
                probes.push_back(name);
            }
        }
        probes
    }
}

/// The name of a group that nobody has. The hash of the next one is greater by one: Java's multiplies by 31, and the number is written to
/// that base, in neighbouring characters.
fn probe(number: usize) -> String {
    let digit = |power: u32| {
        let value = number / 31_usize.pow(power) % 31;
        char::from(b'A' + value as u8)
    };
    let digits: String = (0..4).rev().map(digit).collect();
    format!("offsetlog-mirror-asks-{digits}")
}

impl Core {
    /// Whether a look is to show where the groups' offsets are, though the topic is not copied.
    pub(in crate::mirror::core) const fn looks_for_coordinators(&self) -> bool {
        self.options.once && self.groups.is_wanted
    }

    /// Takes what a look says of `__consumer_offsets`. If another broker leads a part of it now, all are asked again.
    pub(in crate::mirror::core) fn take_coordinators(
        &mut self,
        topic: &Struct<'_>,
        look: u64,
        now: i64,
    ) {
        if !self.looks_for_coordinators() {
            return;
        }
        let leaders: BTreeMap<i32, Option<i32>> = match int(topic, "errorCode") {
            // Nobody has ever committed an offset.
            3 => BTreeMap::new(),
            0 | 5 => {
                let leaders = leaders_of(topic).1.into_iter();
                leaders
                    .map(|(number, (leader, _))| (number, leader))
                    .collect()
            }
            _ => {
                self.miss_coordinators(look);
                return;
            }
        };
        let longest = LEADERLESS_MS.min(self.options.give_up_ms / LEADERLESS_SHARE);
        let coordinators = &mut self.groups.coordinators;
        coordinators.look = look;
        if leaders.values().any(Option::is_none) {
            let since = *coordinators.leaderless_since.get_or_insert(now);
            coordinators.has_waited = now.saturating_sub(since) >= longest;
            let soon = now.saturating_add(LEADERLESS_WAIT_MS);
            if !coordinators.has_waited {
                self.metadata_due = self.metadata_due.min(soon);
            }
        } else {
            coordinators.leaderless_since = None;
        }
        if self.groups.coordinators.leaders.as_ref() != Some(&leaders) {
            self.groups.coordinators.leaders = Some(leaders);
            for broker in self.groups.brokers.values_mut() {
                broker.begin_anew();
                broker.is_stale = broker.is_asked;
            }
            self.groups.ask_all_again(now);
        }
    }

    /// A look that could show the topic did not.
    pub(in crate::mirror::core) fn miss_coordinators(&mut self, look: u64) {
        let coordinators = &mut self.groups.coordinators;
        coordinators.look = look;
        coordinators.leaders = None;
        coordinators.leaderless_since = None;
    }

    /// What a broker is asked before it lists its groups; `None` if it coordinates all that it leads.
    pub(super) fn proof_request(&mut self, id: i32, versions: &Versions) -> Option<Request> {
        if !self.looks_for_coordinators() {
            return None;
        }
        let version = version_of(&OFFSET_FETCH, versions, OFFSET_FETCH_NEWEST)?;
        let groups = &mut self.groups;
        let broker = groups.brokers.get_mut(&id)?;
        if broker.is_proven {
            return None;
        }
        if broker.probes.is_empty() {
            broker.probes = groups.coordinators.probes_of(id);
        }
        let at_once = if version >= SEVERAL_GROUPS {
            GROUPS_AT_ONCE
        } else {
            1
        };
        let count = at_once.min(broker.probes.len());
        let probes: Vec<String> = broker.probes.drain(..count).collect();
        if probes.is_empty() {
            broker.is_proven = true;
            return None;
        }
        broker.is_asked = true;
        Some(Request {
            api: &OFFSET_FETCH,
            version,
            body: offsets_of(&probes, version),
            asked: Asked::Coordinators,
        })
    }

    pub(in crate::mirror::core) fn take_proof(&mut self, id: i32, answer: &Struct<'_>, now: i64) {
        if self.groups.takes_for_stale(id) {
            return;
        }
        let mut errors = structs(answer, "groups").map(|group| int(group, "errorCode"));
        // Loading, not available yet, or moved. A principal that may not see such a group gets another error, which shows nothing.
        // An unknown error is what a server of ours answers that has lost the partition.
        let is_away = |error: i64| matches!(error, -1 | 14..=16);
        let is_refused = errors.any(is_away) || is_away(int(answer, "errorCode"));
        let Some(broker) = self.groups.brokers.get_mut(&id) else {
            return;
        };
        if !is_refused {
            broker.is_asked = false;
            broker.is_proven = broker.probes.is_empty();
            if broker.is_proven {
                broker.refused_since = None;
                self.groups.coordinators.refusing.remove(&id);
            }
            return;
        }
        let since = *broker.refused_since.get_or_insert(now);
        if now.saturating_sub(since) < self.options.give_up_ms / REFUSED_SHARE {
            let due = now.saturating_add(self.options.backoff(5));
            self.groups.failed(id, due);
            self.hurry_metadata(now);
        } else {
            // The groups that it has are better than none.
            broker.begin_anew();
            broker.is_asked = false;
            broker.is_proven = true;
            self.groups.coordinators.refusing.insert(id);
        }
    }

    /// A broker's groups are known: a later look must show that no other broker had them meanwhile.
    pub(super) fn note_known(&mut self, id: i32, now: i64) {
        let look = self.look;
        if let Some(broker) = self.groups.brokers.get_mut(&id) {
            if broker.is_behind {
                broker.due = broker.due.min(now);
                return;
            }
            broker.is_known = true;
            self.groups.coordinators.known_at = look;
        }
    }

    /// Whether no look has shown yet that the coordinators are still those that were asked.
    pub(in crate::mirror::core) fn has_unconfirmed_groups(&self) -> bool {
        let coordinators = &self.groups.coordinators;
        let leaders = coordinators.leaders.iter().flatten();
        leaders.count() > 0 && coordinators.look <= coordinators.known_at
    }

    /// Tells why groups may be missing that no broker listed.
    pub(super) fn tell_unlisted(&mut self) {
        let mut problems = Vec::new();
        for id in std::mem::take(&mut self.groups.coordinators.refusing) {
            let message = format!(
                "broker {id} does not coordinate all that it leads of {OFFSETS_TOPIC}: what groups committed there is not copied"
            );
            problems.push(MirrorEvent::new(EventKind::Problem, message).by(id));
        }
        let leaderless = self.groups.coordinators.leaderless();
        if let Some(first) = leaderless.first() {
            let message = format!(
                "{} of {OFFSETS_TOPIC} without a leader, {first} among them: what groups committed there is not copied",
                offsetlog::format::counted(leaderless.len(), "partition")
            );
            problems.push(MirrorEvent::new(EventKind::Problem, message));
        }
        if self.has_unconfirmed_groups() {
            let message = "no look has shown that the groups' coordinators are the same still";
            problems.push(MirrorEvent::new(EventKind::Problem, message));
        }
        self.is_partial |= !problems.is_empty();
        for event in problems {
            self.tell(event);
        }
    }
}

impl OfBroker {
    /// Its earlier answers no longer count.
    pub(super) fn begin_anew(&mut self) {
        self.probes.clear();
        self.is_proven = false;
        self.waiting.clear();
    }
}

/// The request for all that groups have committed: of several from version 8 on.
pub(super) fn offsets_of(groups: &[String], version: i16) -> Struct<'static> {
    let of_one = |group: String| {
        Struct::new()
            .with("groupId", group)
            .with("topics", Value::Null)
    };
    if version >= SEVERAL_GROUPS {
        let each = groups.iter().cloned().map(of_one);
        Struct::new().with("groups", each.collect::<Vec<Struct<'static>>>())
    } else {
        of_one(groups.first().cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also of counts that are multiples of 31, by which Java's hash multiplies.
    #[test]
    fn there_is_a_group_in_each_partition() {
        for count in (1..=310_usize).chain([961, 29_791, 199_981]) {
            let known = Coordinators {
                leaders: Some((0..count as i32).map(|number| (number, Some(7))).collect()),
                ..Coordinators::default()
            };
            let probes = known.probes_of(7);
            let of: BTreeSet<usize> = probes
                .iter()
                .map(|name| partition_of(name, count))
                .collect();
            assert_eq!((of.len(), probes.len()), (count, count));
        }
        // What a source claims costs no more than that.
        let odd = Coordinators {
            leaders: Some([(199_999, Some(7))].into()),
            ..Coordinators::default()
        };
        assert!(odd.probes_of(7).len() <= 1);
    }
}
