//! Members get the leader's assignments (Kafka's `classicGroupSyncToClassicGroup`), and leave.

use super::super::error::Code;
use super::super::shared::Shared;
use super::super::ticket::Synced;
use super::{Group, GroupState};
use std::collections::BTreeMap;

/// A `SyncGroup`.
pub(in super::super) struct SyncRequest {
    pub(in super::super) member_id: String,
    pub(in super::super) instance_id: Option<String>,
    pub(in super::super) generation: i32,
    pub(in super::super) protocol_type: Option<String>,
    pub(in super::super) protocol: Option<String>,
    pub(in super::super) assignments: BTreeMap<String, Vec<u8>>,
}

impl Group {
    /// Answers the ticket, now or when the leader has given the assignments.
    pub(in super::super) fn sync(
        &mut self,
        request: &SyncRequest,
        ticket: u64,
        now: i64,
        shared: &mut Shared,
    ) {
        if let Err(code) = self.check_sync(request) {
            shared.tickets.synced(Some(ticket), Synced::failed(code));
            return;
        }
        let id = request.member_id.as_str();
        match self.state {
            GroupState::Empty => {
                let answer = Synced::failed(Code::UnknownMemberId);
                shared.tickets.synced(Some(ticket), answer);
            }
            GroupState::PreparingRebalance => {
                let answer = Synced::failed(Code::RebalanceInProgress);
                shared.tickets.synced(Some(ticket), answer);
            }
            GroupState::CompletingRebalance => {
                self.wait_for_leader(id, ticket, shared);
                self.synced(id);
                if self.is_leader(id) {
                    self.assign(&request.assignments, now, shared);
                }
            }
            GroupState::Stable => {
                self.synced(id);
                let member = self.members.get(id);
                let answer = Synced {
                    error: Code::None,
                    protocol_type: self.protocol_type.clone(),
                    protocol: self.protocol.clone(),
                    assignment: member.map(|it| it.assignment.clone()).unwrap_or_default(),
                };
                shared.tickets.synced(Some(ticket), answer);
            }
        }
        self.count(shared);
    }

    fn check_sync(&self, request: &SyncRequest) -> Result<(), Code> {
        if self.state == GroupState::Empty {
            return Err(Code::UnknownMemberId);
        }
        self.check_member(&request.member_id, request.instance_id.as_deref())?;
        if request.generation != self.generation {
            return Err(Code::IllegalGeneration);
        }
        let differs = |said: &Option<String>, known: &Option<String>| {
            said.is_some() && known.is_some() && said != known
        };
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol, &self.protocol)
        {
            return Err(Code::InconsistentGroupProtocol);
        }
        Ok(())
    }

    fn wait_for_leader(&mut self, id: &str, ticket: u64, shared: &mut Shared) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        // An earlier one that still waits: its client has given it up.
        let earlier = member.sync.replace(ticket);
        let answer = Synced::failed(Code::RebalanceInProgress);
        shared.tickets.synced(earlier, answer);
    }

    fn synced(&mut self, id: &str) {
        self.pending_sync.remove(id);
        if self.pending_sync.is_empty() {
            self.sync_due = None;
        }
    }

    fn assign(&mut self, given: &BTreeMap<String, Vec<u8>>, now: i64, shared: &mut Shared) {
        let bytes: usize = given.values().map(Vec::len).sum();
        let has_room = shared.has_room(bytes as u64);
        let stored = if has_room {
            shared.store_group(&self.id, self.metadata(Some(given)))
        } else {
            Err(Code::UnknownServerError)
        };
        match stored {
            Ok(()) => {
                self.propagate(given, Code::None, now, shared);
                self.transition(GroupState::Stable, now);
            }
            Err(code) => {
                self.propagate(&BTreeMap::new(), code, now, shared);
                self.prepare_rebalance(now, shared);
            }
        }
    }

    /// Removes members that have not asked for their assignment in time.
    pub(super) fn sync_timed_out(&mut self, now: i64, shared: &mut Shared) {
        self.sync_due = None;
        let is_waiting = matches!(
            self.state,
            GroupState::CompletingRebalance | GroupState::Stable
        );
        if !is_waiting || self.pending_sync.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.pending_sync) {
            self.remove(&id, shared);
        }
        self.prepare_rebalance(now, shared);
    }

    /// A member leaves, or is removed by its `group.instance.id`. [`left`](Self::left) rebalances afterwards.
    pub(in super::super) fn leave(
        &mut self,
        member: &str,
        instance: Option<&str>,
        shared: &mut Shared,
    ) -> Code {
        let known = instance
            .and_then(|instance| self.static_members.get(instance))
            .cloned();
        let leaving = match (member.is_empty(), known) {
            (true, Some(id)) => id,
            (true, None) => return Code::UnknownMemberId,
            (false, _) if self.pending.contains_key(member) => member.to_owned(),
            (false, _) => match self.check_member(member, instance) {
                Ok(()) => member.to_owned(),
                Err(code) => return code,
            },
        };
        self.remove(&leaving, shared);
        Code::None
    }

    /// Rebalances after members have left.
    pub(in super::super) fn left(&mut self, now: i64, shared: &mut Shared) {
        match self.state {
            GroupState::Stable | GroupState::CompletingRebalance => {
                self.prepare_rebalance(now, shared);
            }
            GroupState::PreparingRebalance => self.maybe_complete_join(now, shared),
            GroupState::Empty => {}
        }
        self.count(shared);
    }
}
