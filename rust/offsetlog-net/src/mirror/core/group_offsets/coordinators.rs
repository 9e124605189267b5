//! With `once`: whether each partition of `__consumer_offsets` has a coordinator, before brokers are asked which groups they have.
//!
//! A broker lists the groups of the partitions that it coordinates. Behind a start or an election it has none yet, and says so without an
//! error: a mirror that believed it would end without their offsets. So each leader is asked first for the offsets of groups that nobody
//! has, one in each of its partitions, which it refuses while it does not coordinate them or loads them.
//!
//! Source: Kafka's `GroupCoordinatorService.listGroups` and `CoordinatorRuntime.scheduleReadAllOperation`; before 4.0
//! `GroupMetadataManager.currentGroups`.

use super::super::answers::{int, structs};
use super::super::metadata::leaders_of;
use super::super::{Asked, Core, Leaders, Request, Versions, version_of};
use super::{GROUPS_AT_ONCE, OFFSET_FETCH_NEWEST, OfBroker, SEVERAL_GROUPS};
use crate::coordinator::committed_offsets::partition_of;
use crate::mirror::report::{EventKind, MirrorEvent};
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis::OFFSET_FETCH;
use std::collections::{BTreeSet, VecDeque};

pub(in crate::mirror::core) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Milliseconds before the metadata is asked for again while a partition has no leader.
const LEADERLESS_WAIT_MS: i64 = 500;

/// Where the groups' offsets are.
#[derive(Debug, Default)]
pub(super) struct Coordinators {
    /// As the last look showed it; `None` if it did not: the principal may not see the topic, or nobody has ever committed an offset.
    leaders: Option<Leaders>,
    /// The look that showed it.
    look: u64,
    /// The last look that had begun when a broker's groups were known.
    known_at: u64,
}

impl Coordinators {
    fn leaderless(&self) -> Vec<i32> {
        let leaders = self.leaders.iter().flatten();
        let leaderless = leaders.filter(|(_, (leader, _))| leader.is_none());
        leaderless.map(|(number, _)| *number).collect()
    }

    /// Whether each partition has a leader.
    pub(super) fn are_there(&self) -> bool {
        self.leaders
            .iter()
            .flatten()
            .all(|(_, (leader, _))| leader.is_some())
    }

    /// Names of groups that nobody has, one in each partition that the broker leads.
    fn probes_of(&self, id: i32) -> VecDeque<String> {
        let Some(leaders) = &self.leaders else {
            return VecDeque::new();
        };
        let led = leaders
            .iter()
            .filter(|(_, (leader, _))| *leader == Some(id));
        let mut left: BTreeSet<i32> = led.map(|(number, _)| *number).collect();
        let count = leaders.keys().last().map_or(0, |&last| last as usize + 1);
        let mut probes = VecDeque::new();
        for number in 0_u64.. {
            if left.is_empty() {
                break;
            }
            let name = format!("offsetlog-mirror-asks-{number}");
            if left.remove(&(partition_of(&name, count) as i32)) {
                probes.push_back(name);
            }
        }
        probes
    }
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
        let leaders = match int(topic, "errorCode") {
            // Nobody has ever committed an offset.
            3 => Leaders::new(),
            0 | 5 => leaders_of(topic).1,
            // Who may not see it is told of the groups that he may see.
            _ => return,
        };
        let coordinators = &mut self.groups.coordinators;
        coordinators.look = look;
        if coordinators.leaders.as_ref() != Some(&leaders) {
            coordinators.leaders = Some(leaders);
            for broker in self.groups.brokers.values_mut() {
                broker.begin_anew();
                broker.is_stale = broker.is_asked;
            }
            self.groups.ask_all_again(now);
        }
        if !self.groups.coordinators.are_there() {
            let soon = now.saturating_add(LEADERLESS_WAIT_MS);
            self.metadata_due = self.metadata_due.min(soon);
        }
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
        // Loading, not there yet, or moved. Who may not see such a group is refused otherwise, and shows nothing by it.
        let is_away = |error: i64| matches!(error, 14..=16);
        if errors.any(is_away) || is_away(int(answer, "errorCode")) {
            self.groups
                .failed(id, now.saturating_add(self.options.backoff(5)));
            self.hurry_metadata(now);
        } else if let Some(broker) = self.groups.brokers.get_mut(&id) {
            broker.is_asked = false;
            broker.is_proven = broker.probes.is_empty();
        }
    }

    /// A broker's groups are known: a look that begins now is to show that they were not another broker's meanwhile.
    pub(super) fn note_known(&mut self, id: i32) {
        let look = self.look;
        if let Some(broker) = self.groups.brokers.get_mut(&id) {
            broker.is_known = true;
            self.groups.coordinators.known_at = look;
        }
    }

    /// Whether no look has shown yet that the coordinators are still those that were asked.
    pub(in crate::mirror::core) fn has_unconfirmed_groups(&self) -> bool {
        let coordinators = &self.groups.coordinators;
        let has_any = coordinators
            .leaders
            .as_ref()
            .is_some_and(|all| !all.is_empty());
        has_any && coordinators.look <= coordinators.known_at
    }

    /// Tells of parts of the groups' offsets that nobody coordinates.
    pub(super) fn tell_leaderless_offsets(&mut self) {
        let leaderless = self.groups.coordinators.leaderless();
        if let Some(first) = leaderless.first() {
            let message = format!(
                "{} of {OFFSETS_TOPIC} have no leader, {first} among them: what groups committed there is not copied",
                offsetlog::format::counted(leaderless.len(), "partition")
            );
            self.tell(MirrorEvent::new(EventKind::Problem, message));
            self.is_partial = true;
        }
    }
}

impl OfBroker {
    /// Nothing that it was asked counts.
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
