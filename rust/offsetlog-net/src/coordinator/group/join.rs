//! Members join (Kafka's `classicGroupJoinToClassicGroup`).

use super::super::Context;
use super::super::error::Code;
use super::super::shared::Shared;
use super::super::ticket::Joined;
use super::{Group, GroupState, Protocol, after};

/// How long a new member's first join may take: its client may have gone unnoticed.
const NEW_MEMBER_MS: i64 = 300_000;

/// The first version in which a new member must join again with the id that it gets.
const KNOWN_MEMBER: i16 = 4;
/// The first version that lets a leader keep the assignment (`skipAssignment`).
const SKIPS_ASSIGNMENT: i16 = 9;

/// A `JoinGroup`.
pub(in super::super) struct JoinRequest<'r> {
    pub(in super::super) version: i16,
    pub(in super::super) context: &'r Context<'r>,
    pub(in super::super) member_id: String,
    pub(in super::super) instance_id: Option<String>,
    pub(in super::super) session_timeout_ms: i32,
    pub(in super::super) rebalance_timeout_ms: i32,
    pub(in super::super) protocol_type: String,
    pub(in super::super) protocols: Vec<Protocol>,
}

impl JoinRequest<'_> {
    pub(in super::super) fn bytes(&self) -> u64 {
        let protocols = self.protocols.iter();
        let protocols: usize = protocols
            .map(|(name, bytes)| name.len() + bytes.len() + 64)
            .sum();
        (protocols + 1024) as u64
    }
}

impl Group {
    /// Answers the ticket, now or when the rebalance is complete.
    pub(in super::super) fn join(
        &mut self,
        request: &JoinRequest<'_>,
        ticket: u64,
        now: i64,
        shared: &mut Shared,
    ) {
        let id = request.member_id.as_str();
        if !self.accepts(id, shared) {
            self.remove(id, shared);
            let answer = Joined::failed(Code::GroupMaxSizeReached, "");
            shared.tickets.joined(Some(ticket), answer);
        } else if !self.supports(&request.protocol_type, &request.protocols) {
            let answer = Joined::failed(Code::InconsistentGroupProtocol, id);
            shared.tickets.joined(Some(ticket), answer);
        } else if !id.is_empty() {
            self.join_again(request, ticket, now, shared);
        } else if let Some(instance) = &request.instance_id {
            let new = shared.member_id(request.context, Some(instance));
            match self.static_members.get(instance).cloned() {
                Some(old) => self.replace(request, (instance, &old, &new), ticket, now, shared),
                None => self.join_new(&new, request, ticket, now, shared),
            }
        } else {
            let new = shared.member_id(request.context, None);
            if request.version < KNOWN_MEMBER {
                self.join_new(&new, request, ticket, now, shared);
                return;
            }
            let due = after(now, request.session_timeout_ms.into());
            self.pending.insert(new.clone(), due);
            let answer = Joined::failed(Code::MemberIdRequired, &new);
            shared.tickets.joined(Some(ticket), answer);
        }
        self.count(shared);
    }

    /// Whether there is room for this member. Kafka bounds only those that have joined; here also ids that were given out.
    fn accepts(&self, id: &str, shared: &Shared) -> bool {
        let maximum = shared.options.max_group_size;
        let is_known = self.members.get(id);
        let has_room = match self.state {
            GroupState::Empty => true,
            GroupState::PreparingRebalance => {
                is_known.is_some_and(|member| member.join.is_some()) || self.joining() < maximum
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                is_known.is_some() || self.members.len() < maximum
            }
        };
        let is_expected = is_known.is_some() || self.pending.contains_key(id);
        has_room && (is_expected || self.pending.len() < maximum)
    }

    fn join_new(
        &mut self,
        id: &str,
        request: &JoinRequest<'_>,
        ticket: u64,
        now: i64,
        shared: &mut Shared,
    ) {
        let is_first = self.state == GroupState::PreparingRebalance
            && self.previous == Some(GroupState::Empty);
        self.has_new_member |= is_first;
        self.add(id, request, ticket);
        if let Some(member) = self.members.get_mut(id) {
            member.due = Some(after(now, NEW_MEMBER_MS));
        }
        self.prepare_or_complete(now, shared);
    }

    fn join_again(
        &mut self,
        request: &JoinRequest<'_>,
        ticket: u64,
        now: i64,
        shared: &mut Shared,
    ) {
        let id = request.member_id.as_str();
        if self.pending.contains_key(id) {
            if request.instance_id.is_some() {
                // Only ids of dynamic members are given out before they join.
                let answer = Joined::failed(Code::UnknownServerError, "");
                shared.tickets.joined(Some(ticket), answer);
                return;
            }
            self.join_new(id, request, ticket, now, shared);
            return;
        }
        if let Err(code) = self.check_member(id, request.instance_id.as_deref()) {
            shared
                .tickets
                .joined(Some(ticket), Joined::failed(code, id));
            return;
        }
        let member = self.members.get(id);
        let is_same = member.is_some_and(|member| member.protocols == request.protocols);
        match self.state {
            GroupState::Empty => {
                let answer = Joined::failed(Code::UnknownMemberId, id);
                shared.tickets.joined(Some(ticket), answer);
            }
            // The member has not received the answer to its join. In a stable group it can only be a follower.
            GroupState::CompletingRebalance if is_same => {
                shared.tickets.joined(Some(ticket), self.joined(id));
            }
            GroupState::Stable if is_same && !self.is_leader(id) => {
                shared.tickets.joined(Some(ticket), self.joined(id));
            }
            // A leader that joins again may have seen a change that no metadata shows, such as partitions that were added.
            _ => {
                self.update(id, request, ticket, shared);
                self.prepare_or_complete(now, shared);
            }
        }
    }

    /// A static member comes back without its id.
    fn replace(
        &mut self,
        request: &JoinRequest<'_>,
        (instance, old, new): (&str, &str, &str),
        ticket: u64,
        now: i64,
        shared: &mut Shared,
    ) {
        let leader = self.leader.clone();
        let before = self.members.get(old).cloned();
        self.replace_static(instance, old, new, shared);
        self.hear(new, now);
        self.update(new, request, ticket, shared);
        match self.state {
            GroupState::Stable if self.select_protocol() == self.protocol => {
                let answer = match shared.store_group(&self.id, self.metadata(None)) {
                    Ok(()) if request.version >= SKIPS_ASSIGNMENT => Joined {
                        skip_assignment: self.is_leader(new),
                        ..self.joined(new)
                    },
                    // An older client that gets the old leader's id asks for the assignment as a follower does.
                    Ok(()) => Joined {
                        leader: leader.unwrap_or_default(),
                        members: Vec::new(),
                        ..self.joined(new)
                    },
                    Err(code) => {
                        self.take_back(instance, new, before, now);
                        Joined {
                            error: code,
                            leader: leader.unwrap_or_default(),
                            members: Vec::new(),
                            ..self.joined("")
                        }
                    }
                };
                if let Some(member) = self.members.get_mut(new) {
                    member.join = None;
                }
                shared.tickets.joined(Some(ticket), answer);
            }
            // The leader may have the old id, so its assignment would not reach the new one.
            GroupState::Stable | GroupState::CompletingRebalance => {
                self.prepare_rebalance(now, shared);
            }
            GroupState::Empty | GroupState::PreparingRebalance => {
                self.maybe_complete_join(now, shared);
            }
        }
    }

    /// Restores a static member whose new id could not be stored.
    fn take_back(&mut self, instance: &str, new: &str, before: Option<super::Member>, now: i64) {
        let Some(mut member) = before else { return };
        self.members.remove(new);
        if self.is_leader(new) {
            self.leader = Some(member.id.clone());
        }
        (member.join, member.sync) = (None, None);
        member.due = Some(after(now, member.session_timeout_ms.into()));
        self.static_members
            .insert(instance.to_owned(), member.id.clone());
        self.members.insert(member.id.clone(), member);
    }
}
