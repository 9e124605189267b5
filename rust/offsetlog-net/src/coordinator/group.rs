//! A classic group: its members, its state, and how one generation follows another (Kafka's `ClassicGroup`).

mod join;
mod members;
mod rebalance;
mod sync;

pub(super) use join::JoinRequest;
pub(super) use sync::SyncRequest;

use super::committed_offsets::{GroupMetadata, MemberMetadata};
use super::error::Code;
use super::shared::Shared;
use offsetlog::format::cursor::Reader;
use offsetlog::format::error::Part;
use offsetlog::format::message::consumer_protocol::CONSUMER_PROTOCOL_SUBSCRIPTION;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The protocol type of consumers.
const CONSUMER: &str = "consumer";

/// How long a group without members and offsets is remembered.
const EMPTY_GROUP_MS: i64 = 600_000;

/// The state of a group, by Kafka's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupState {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A protocol that a member supports, and its metadata for it.
pub(super) type Protocol = (String, Vec<u8>);

/// A member of a group.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) instance_id: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    rebalance_timeout_ms: i32,
    session_timeout_ms: i32,
    protocols: Vec<Protocol>,
    pub(super) assignment: Vec<u8>,
    /// The join that waits for the rebalance.
    join: Option<u64>,
    /// The sync that waits for the leader.
    sync: Option<u64>,
    /// Whether its first join has not been answered yet: it cannot send heartbeats.
    is_new: bool,
    /// When its session ends.
    due: Option<i64>,
}

impl Member {
    pub(super) fn metadata(&self, protocol: &str) -> Vec<u8> {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found
            .map(|(_, metadata)| metadata.clone())
            .unwrap_or_default()
    }

    fn bytes(&self) -> u64 {
        let protocols = self.protocols.iter();
        let protocols: usize = protocols
            .map(|(name, bytes)| name.len() + bytes.len() + 64)
            .sum();
        let texts = self.id.len() + self.client_id.len() + self.client_host.len();
        (texts + protocols + self.assignment.len() + 512) as u64
    }

    /// A member that waits for an answer counts as alive, except a new one: its client may have gone unnoticed.
    const fn is_heard(&self) -> bool {
        !self.is_new && (self.join.is_some() || self.sync.is_some())
    }
}

/// What ends the joining of members.
#[derive(Debug, Clone, Copy)]
enum JoinTimer {
    /// Waits for more members of a group that was empty: the length of this delay, and what is left after it, in milliseconds.
    Initial { delay_ms: i64, left_ms: i64 },
    /// The rebalance timeout.
    Complete,
}

/// A classic group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: String,
    pub(super) state: GroupState,
    /// The state before this one.
    previous: Option<GroupState>,
    /// Since when it is in this state.
    since: i64,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<String>,
    pub(super) protocol: Option<String>,
    leader: Option<String>,
    pub(super) members: BTreeMap<String, Member>,
    /// Member ids by `group.instance.id`.
    static_members: BTreeMap<String, String>,
    /// Member ids that have not joined yet, and their deadlines.
    pending: BTreeMap<String, i64>,
    /// Members of this generation that have not asked for their assignment yet.
    pending_sync: BTreeSet<String>,
    /// Topics that its members subscribe to, if that is known.
    topics: Option<BTreeSet<String>>,
    /// Whether a member came while the first rebalance is delayed.
    has_new_member: bool,
    join_timer: Option<(i64, JoinTimer)>,
    sync_due: Option<i64>,
    /// The bytes of the group and its members that are counted in [`Shared`], and those of them that it costs without members.
    counted: u64,
    own_bytes: u64,
}

impl Group {
    pub(super) fn new(id: &str, now: i64) -> Self {
        Self {
            id: id.to_owned(),
            state: GroupState::Empty,
            previous: None,
            since: now,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending: BTreeMap::new(),
            pending_sync: BTreeSet::new(),
            topics: None,
            has_new_member: false,
            join_timer: None,
            sync_due: None,
            counted: 0,
            own_bytes: Self::bytes(id),
        }
    }

    /// What a group without members costs, about.
    pub(super) const fn bytes(id: &str) -> u64 {
        (size_of::<Self>() + 3 * id.len() + 256) as u64
    }

    /// A group that exists at the start. Its committed offsets have a limit of their own, so without members it takes no room from others.
    pub(super) fn initial(id: &str, now: i64) -> Self {
        Self {
            own_bytes: 0,
            ..Self::new(id, now)
        }
    }

    /// A group whose members are gone.
    pub(super) fn stored(id: &str, metadata: &GroupMetadata, now: i64) -> Self {
        let protocol_type = Some(metadata.protocol_type.clone());
        let protocol_type = protocol_type.filter(|name| !name.is_empty());
        Self {
            generation: metadata.generation.max(0),
            topics: protocol_type
                .as_deref()
                .filter(|name| *name == CONSUMER)
                .map(|_| BTreeSet::new()),
            protocol_type,
            ..Self::initial(id, now)
        }
    }

    pub(super) fn is_consumers(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER)
    }

    /// Whether its members subscribe to a topic, or may, as far as known.
    pub(super) fn is_subscribed(&self, topic: &str) -> bool {
        match &self.topics {
            Some(topics) => topics.contains(topic),
            None => self.is_consumers(),
        }
    }

    fn transition(&mut self, state: GroupState, now: i64) {
        self.previous = Some(self.state);
        self.state = state;
        self.since = now;
    }

    fn is_leader(&self, member: &str) -> bool {
        self.leader.as_deref() == Some(member)
    }

    /// Checks that a request comes from a member.
    pub(super) fn check_member(&self, member: &str, instance: Option<&str>) -> Result<(), Code> {
        if let Some(instance) = instance {
            match self.static_members.get(instance) {
                None => return Err(Code::UnknownMemberId),
                Some(id) if id != member => return Err(Code::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member) {
            Ok(())
        } else {
            Err(Code::UnknownMemberId)
        }
    }

    pub(super) fn heartbeat(
        &mut self,
        member: &str,
        instance: Option<&str>,
        generation: i32,
        now: i64,
    ) -> Code {
        if let Err(code) = self.check_member(member, instance) {
            return code;
        }
        if generation != self.generation {
            return Code::IllegalGeneration;
        }
        match self.state {
            GroupState::Empty => Code::UnknownMemberId,
            GroupState::PreparingRebalance => {
                self.hear(member, now);
                Code::RebalanceInProgress
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.hear(member, now);
                Code::None
            }
        }
    }

    /// Checks whether a member, or a consumer that is not a member, may commit.
    pub(super) fn check_commit(
        &mut self,
        member: &str,
        instance: Option<&str>,
        generation: i32,
        now: i64,
    ) -> Result<(), Code> {
        if generation < 0 && self.state == GroupState::Empty {
            return Ok(());
        }
        if generation >= 0 || !member.is_empty() || instance.is_some() {
            self.check_member(member, instance)?;
            if generation != self.generation {
                return Err(Code::IllegalGeneration);
            }
        } else if self.state != GroupState::Empty {
            return Err(Code::UnknownMemberId);
        }
        if self.state == GroupState::CompletingRebalance {
            return Err(Code::RebalanceInProgress);
        }
        self.hear(member, now);
        Ok(())
    }

    /// Restarts a member's session timeout.
    fn hear(&mut self, member: &str, now: i64) {
        if let Some(member) = self.members.get_mut(member) {
            member.due = Some(after(now, member.session_timeout_ms.into()));
        }
    }

    /// When the group is next due by time alone. If nothing else is due, this is when it is to be removed.
    pub(super) fn next_due(&self, has_offsets: bool) -> Option<i64> {
        let sessions = self.members.values().filter_map(|member| member.due);
        let pending = self.pending.values().copied();
        let timers = [self.join_timer.map(|(due, _)| due), self.sync_due];
        let due = sessions
            .chain(pending)
            .chain(timers.into_iter().flatten())
            .min();
        due.or_else(|| self.forget_due(has_offsets))
    }

    fn forget_due(&self, has_offsets: bool) -> Option<i64> {
        let is_idle = self.state == GroupState::Empty && self.pending.is_empty() && !has_offsets;
        is_idle.then(|| after(self.since, EMPTY_GROUP_MS))
    }

    pub(super) fn is_forgotten(&self, has_offsets: bool, now: i64) -> bool {
        self.forget_due(has_offsets).is_some_and(|due| due <= now)
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, now: i64, shared: &mut Shared) {
        let ended = self.pending.iter().filter(|(_, due)| **due <= now);
        let ended: Vec<String> = ended.map(|(id, _)| id.clone()).collect();
        for id in ended {
            self.pending.remove(&id);
            if self.state == GroupState::PreparingRebalance && self.have_all_joined() {
                self.complete_join(now, shared);
            }
        }
        let silent = self
            .members
            .values()
            .filter(|it| it.due.is_some_and(|due| due <= now));
        let silent: Vec<String> = silent.map(|member| member.id.clone()).collect();
        for id in silent {
            self.session_ended(&id, now, shared);
        }
        if self.sync_due.is_some_and(|due| due <= now) {
            self.sync_timed_out(now, shared);
        }
        while let Some((due, timer)) = self.join_timer.filter(|(due, _)| *due <= now) {
            let _ = due;
            self.join_timed_out(timer, now, shared);
        }
        self.count(shared);
    }

    fn session_ended(&mut self, id: &str, now: i64, shared: &mut Shared) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        // A rebalance that another expired session completed may have restarted this session.
        if member.due.is_none_or(|due| due > now) {
            return;
        }
        member.due = None;
        if member.is_heard() {
            return;
        }
        self.remove(id, shared);
        self.member_gone(now, shared);
    }

    /// Whether it is as if nobody had ever asked for it.
    pub(super) fn is_blank(&self) -> bool {
        self.members.is_empty() && self.pending.is_empty() && self.state == GroupState::Empty
    }

    /// Takes its bytes out of the sum.
    pub(super) fn uncount(&mut self, shared: &mut Shared) {
        shared.member_bytes = shared.member_bytes.saturating_sub(self.counted);
        self.counted = 0;
    }

    /// Keeps the sum of all groups' bytes.
    pub(super) fn count(&mut self, shared: &mut Shared) {
        let pending: usize = self.pending.keys().map(|id| id.len() + 64).sum();
        let members: u64 = self.members.values().map(Member::bytes).sum();
        let bytes = self.own_bytes + members + pending as u64;
        shared.member_bytes = shared
            .member_bytes
            .saturating_sub(self.counted)
            .saturating_add(bytes);
        self.counted = bytes;
    }

    /// What the log stores of the group: with these assignments, or with the current ones.
    fn metadata(&self, assignments: Option<&BTreeMap<String, Vec<u8>>>) -> GroupMetadata {
        let protocol = self.protocol.clone().unwrap_or_default();
        let members = self.members.values().map(|member| MemberMetadata {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout_ms,
            subscription: member.metadata(&protocol),
            assignment: match assignments {
                Some(given) => given.get(&member.id).cloned().unwrap_or_default(),
                None => member.assignment.clone(),
            },
        });
        GroupMetadata {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            state_timestamp: self.since,
            members: members.collect(),
        }
    }
}

/// A time some milliseconds after another. Negative ones count as none.
fn after(now: i64, milliseconds: i64) -> i64 {
    now.saturating_add(milliseconds.max(0))
}

/// The topics of a subscription. What follows them differs between versions.
fn subscribed(metadata: &[u8]) -> Option<Vec<String>> {
    let mut reader = Reader::new(metadata, Part::CoordinatorRecord);
    reader.read_i16().ok()?;
    let subscription = CONSUMER_PROTOCOL_SUBSCRIPTION.read(0, &mut reader).ok()?;
    Some(super::fields::texts(&subscription, "topics"))
}
