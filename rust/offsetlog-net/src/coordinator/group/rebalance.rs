//! Rebalances: from one generation to the next.

use super::super::error::Code;
use super::super::shared::Shared;
use super::{Group, GroupState, JoinTimer, after};
use std::collections::BTreeMap;

impl Group {
    /// Begins a rebalance, or looks whether the one under way is complete.
    pub(super) fn prepare_or_complete(&mut self, now: i64, shared: &mut Shared) {
        if self.state == GroupState::PreparingRebalance {
            self.maybe_complete_join(now, shared);
        } else {
            self.prepare_rebalance(now, shared);
        }
    }

    pub(super) fn prepare_rebalance(&mut self, now: i64, shared: &mut Shared) {
        if self.state == GroupState::CompletingRebalance {
            self.propagate(&BTreeMap::new(), Code::RebalanceInProgress, now, shared);
        }
        self.pending_sync.clear();
        self.sync_due = None;
        let is_first = self.state == GroupState::Empty;
        self.transition(GroupState::PreparingRebalance, now);
        if is_first {
            // More members may be on their way.
            let delay_ms = shared.options.initial_rebalance_delay_ms.max(0);
            let left_ms = self.rebalance_timeout_ms().saturating_sub(delay_ms).max(0);
            let timer = JoinTimer::Initial { delay_ms, left_ms };
            self.join_timer = Some((after(now, delay_ms), timer));
        } else if self.have_all_joined() {
            self.complete_join(now, shared);
        } else {
            let due = after(now, self.rebalance_timeout_ms());
            self.join_timer = Some((due, JoinTimer::Complete));
        }
    }

    /// Completes a rebalance that all members have joined, except the first one of a group, which waits for its delay.
    pub(super) fn maybe_complete_join(&mut self, now: i64, shared: &mut Shared) {
        let is_first = self.previous == Some(GroupState::Empty);
        if self.state == GroupState::PreparingRebalance && !is_first && self.have_all_joined() {
            self.complete_join(now, shared);
        }
    }

    pub(super) fn join_timed_out(&mut self, timer: JoinTimer, now: i64, shared: &mut Shared) {
        self.join_timer = None;
        match timer {
            JoinTimer::Initial { delay_ms, left_ms } if self.has_new_member && left_ms > 0 => {
                self.has_new_member = false;
                let next_ms = shared.options.initial_rebalance_delay_ms.clamp(0, left_ms);
                let timer = JoinTimer::Initial {
                    delay_ms: next_ms,
                    left_ms: left_ms.saturating_sub(delay_ms).max(0),
                };
                self.join_timer = Some((after(now, next_ms), timer));
            }
            _ => self.complete_join(now, shared),
        }
    }

    /// A member has gone.
    pub(super) fn member_gone(&mut self, now: i64, shared: &mut Shared) {
        match self.state {
            GroupState::Stable | GroupState::CompletingRebalance => {
                self.prepare_rebalance(now, shared);
            }
            GroupState::PreparingRebalance if self.have_all_joined() => {
                self.complete_join(now, shared);
            }
            GroupState::PreparingRebalance | GroupState::Empty => {}
        }
    }

    /// Begins the next generation: members that have joined, and static members, whose session decides.
    pub(super) fn complete_join(&mut self, now: i64, shared: &mut Shared) {
        self.join_timer = None;
        let absent = self.members.values();
        let absent = absent.filter(|it| it.join.is_none() && it.instance_id.is_none());
        let absent: Vec<String> = absent.map(|member| member.id.clone()).collect();
        for id in absent {
            self.remove(&id, shared);
        }
        if !self.elect() && !self.members.is_empty() {
            // At least a millisecond later, so that `tick` ends.
            let due = after(now, self.rebalance_timeout_ms().max(1));
            self.join_timer = Some((due, JoinTimer::Complete));
            return;
        }
        // Generations only grow: a client's is below all later ones.
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.pending_sync.clear();
        self.has_new_member = false;
        if self.members.is_empty() {
            self.protocol = None;
            self.topics = self.subscriptions_of_none();
            self.transition(GroupState::Empty, now);
            // Otherwise a restart brings back the previous generation, whose members are gone.
            let _ = shared.store_group(&self.id, self.metadata(None));
            return;
        }
        self.protocol = self.select_protocol();
        self.topics = self.subscriptions();
        self.transition(GroupState::CompletingRebalance, now);
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let answer = self.joined(&id);
            if let Some(member) = self.members.get_mut(&id) {
                shared.tickets.joined(member.join.take(), answer);
                member.is_new = false;
                member.due = Some(after(now, member.session_timeout_ms.into()));
            }
            self.pending_sync.insert(id);
        }
        self.sync_due = Some(after(now, self.rebalance_timeout_ms()));
    }

    fn subscriptions_of_none(&self) -> Option<std::collections::BTreeSet<String>> {
        self.is_consumers().then(Default::default)
    }

    /// Whether the leader has joined, or another member that has becomes the leader.
    fn elect(&mut self) -> bool {
        let leader = self.leader.as_ref().and_then(|id| self.members.get(id));
        if leader.is_some_and(|member| member.join.is_some()) {
            return true;
        }
        let joined = self.members.values().find(|member| member.join.is_some());
        let Some(joined) = joined.filter(|_| self.leader.is_some()) else {
            return false;
        };
        self.leader = Some(joined.id.clone());
        true
    }
}
