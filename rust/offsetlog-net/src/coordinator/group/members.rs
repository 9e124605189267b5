//! Who is in a group: adding, changing, replacing and removing members, and which protocols they agree on.

use super::super::error::Code;
use super::super::shared::Shared;
use super::super::ticket::{Joined, JoinedMember, Synced};
use super::{Group, GroupState, JoinRequest, Member, Protocol};
use offsetlog::format::internal_topic::java_hash;
use std::collections::{BTreeMap, BTreeSet};

impl Group {
    /// Whether a group with these members could have a member with these protocols.
    pub(super) fn supports(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if self.state == GroupState::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let is_common = |name: &String| self.members.values().all(|member| knows(member, name));
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|(name, _)| is_common(name))
    }

    /// The protocol that most members want of those that all support. Of equals it is the one that comes first in Java's hash map, as in
    /// Kafka.
    pub(super) fn select_protocol(&self) -> Option<String> {
        let mut votes: Vec<(&String, usize)> = Vec::new();
        for member in self.members.values() {
            let is_common = |name: &String| self.members.values().all(|other| knows(other, name));
            let vote = member.protocols.iter().find(|(name, _)| is_common(name));
            let (name, _) = vote?;
            match votes.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => votes.push((name, 1)),
            }
        }
        let bucket = |name: &str| {
            let hash = java_hash(name) as u32;
            (hash ^ (hash >> 16)) & 15
        };
        votes.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), bucket(name)));
        votes.first().map(|(name, _)| (*name).clone())
    }

    pub(super) fn add(&mut self, id: &str, request: &JoinRequest<'_>, ticket: u64) {
        if let Some(instance) = &request.instance_id {
            self.static_members.insert(instance.clone(), id.to_owned());
        }
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
        }
        self.leader.get_or_insert_with(|| id.to_owned());
        let member = Member {
            id: id.to_owned(),
            instance_id: request.instance_id.clone(),
            client_id: request.context.client_id.to_owned(),
            client_host: request.context.client_host.to_owned(),
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            session_timeout_ms: request.session_timeout_ms,
            protocols: request.protocols.clone(),
            assignment: Vec::new(),
            join: Some(ticket),
            sync: None,
            is_new: true,
            due: None,
        };
        self.members.insert(id.to_owned(), member);
        self.pending.remove(id);
    }

    /// Updates a member from a new join. Answers an earlier join that still waits: the client has given it up.
    pub(super) fn update(
        &mut self,
        id: &str,
        request: &JoinRequest<'_>,
        ticket: u64,
        shared: &mut Shared,
    ) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        member.protocols.clone_from(&request.protocols);
        member.rebalance_timeout_ms = request.rebalance_timeout_ms;
        member.session_timeout_ms = request.session_timeout_ms;
        let earlier = member.join.replace(ticket);
        let answer = Joined::failed(Code::RebalanceInProgress, id);
        shared.tickets.joined(earlier, answer);
    }

    /// Gives a static member a new id; a client with the old one is fenced.
    pub(super) fn replace_static(
        &mut self,
        instance: &str,
        old: &str,
        new: &str,
        shared: &mut Shared,
    ) {
        let Some(mut member) = self.members.remove(old) else {
            return;
        };
        let answer = Joined::failed(Code::FencedInstanceId, old);
        shared.tickets.joined(member.join.take(), answer);
        let answer = Synced::failed(Code::FencedInstanceId);
        shared.tickets.synced(member.sync.take(), answer);
        new.clone_into(&mut member.id);
        member.is_new = false;
        if self.is_leader(old) {
            self.leader = Some(new.to_owned());
        }
        if self.pending_sync.remove(old) {
            self.pending_sync.insert(new.to_owned());
        }
        self.members.insert(new.to_owned(), member);
        self.static_members
            .insert(instance.to_owned(), new.to_owned());
    }

    /// Removes a member. Answers its waiting request: if the client is still there, it joins again.
    pub(super) fn remove(&mut self, id: &str, shared: &mut Shared) {
        if let Some(mut member) = self.members.remove(id) {
            let answer = Joined::failed(Code::UnknownMemberId, "");
            shared.tickets.joined(member.join.take(), answer);
            let answer = Synced::failed(Code::UnknownMemberId);
            shared.tickets.synced(member.sync.take(), answer);
            if let Some(instance) = &member.instance_id {
                self.static_members.remove(instance);
            }
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        self.pending.remove(id);
        self.pending_sync.remove(id);
    }

    pub(super) fn have_all_joined(&self) -> bool {
        self.pending.is_empty() && self.members.values().all(|member| member.join.is_some())
    }

    pub(super) fn joining(&self) -> usize {
        self.members
            .values()
            .filter(|member| member.join.is_some())
            .count()
    }

    /// The longest rebalance timeout of its members.
    pub(super) fn rebalance_timeout_ms(&self) -> i64 {
        let timeouts = self
            .members
            .values()
            .map(|member| member.rebalance_timeout_ms);
        timeouts.max().unwrap_or(0).max(0).into()
    }

    /// The answer to a member's join in this generation; the leader's lists all members.
    pub(super) fn joined(&self, id: &str) -> Joined {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let members = self.members.values().filter(|_| self.is_leader(id));
        Joined {
            error: Code::None,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            member_id: id.to_owned(),
            members: members
                .map(|member| JoinedMember {
                    member_id: member.id.clone(),
                    instance_id: member.instance_id.clone(),
                    metadata: member.metadata(protocol),
                })
                .collect(),
        }
    }

    /// Hands out assignments, or none with an error.
    pub(super) fn propagate(
        &mut self,
        assignments: &BTreeMap<String, Vec<u8>>,
        error: Code,
        now: i64,
        shared: &mut Shared,
    ) {
        for member in self.members.values_mut() {
            member.assignment = assignments.get(&member.id).cloned().unwrap_or_default();
            let Some(ticket) = member.sync.take() else {
                continue;
            };
            let is_given = error == Code::None;
            let answer = Synced {
                error,
                protocol_type: self.protocol_type.clone().filter(|_| is_given),
                protocol: self.protocol.clone().filter(|_| is_given),
                assignment: member.assignment.clone(),
            };
            shared.tickets.synced(Some(ticket), answer);
            member.due = Some(super::after(now, member.session_timeout_ms.into()));
        }
    }

    /// All topics that the members subscribe to, if every subscription can be parsed.
    pub(super) fn subscriptions(&self) -> Option<BTreeSet<String>> {
        if !self.is_consumers() {
            return None;
        }
        let protocol = self.protocol.as_deref();
        let members = self.members.values();
        let topics = members.map(|member| super::subscribed(&member.metadata(protocol?)));
        let topics: Option<Vec<Vec<String>>> = topics.collect();
        Some(topics?.into_iter().flatten().collect())
    }
}

fn knows(member: &Member, protocol: &str) -> bool {
    member.protocols.iter().any(|(name, _)| name == protocol)
}
