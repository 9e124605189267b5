//! When a mirror with `once` ends, which nodes it reports as silent, and what it reports as given up.

use super::{Core, Node, TopicState, Versions, version_of};
use crate::mirror::report::{EventKind, MirrorEvent};
use offsetlog::format::protocol::apis::FETCH;

/// Failures in a row after which a node is reported as silent.
const FAILURES_TOLD: u32 = 3;

impl Core {
    /// A copy grew, was truncated or restarted.
    pub(super) fn progressed(&mut self, now: i64) {
        self.progressed_at = self.progressed_at.max(now);
    }

    /// The disk was at work for this many milliseconds: they do not count against anybody else.
    pub(crate) fn worked(&mut self, spent_ms: i64, now: i64) {
        let moved = self.progressed_at.saturating_add(spent_ms.max(0));
        self.progressed_at = moved.min(now).max(self.progressed_at);
    }

    /// Reports a node that does not answer, once until it does.
    pub(super) fn tell_silence(&mut self, node: Node, failures: u32, reason: &str) {
        let state = self.nodes.entry(node).or_default();
        if failures < FAILURES_TOLD || state.is_told {
            return;
        }
        state.is_told = true;
        let event = match node {
            Node::Any if !self.has_metadata => MirrorEvent::new(
                EventKind::Problem,
                format!("no broker answers yet: {reason}"),
            ),
            Node::Any => {
                let message = format!("no broker tells topics and leaders: {reason}");
                MirrorEvent::new(EventKind::Problem, message)
            }
            Node::Broker(id) => {
                let message = format!("broker {id} does not answer: {reason}");
                MirrorEvent::new(EventKind::Problem, message).by(id)
            }
        };
        self.tell(event);
    }

    /// Reports a broker that has no fetch with message format 2, once while it is so. With `once` what it leads is given up.
    pub(super) fn tell_age(&mut self, id: i32, versions: &Versions) {
        let is_too_old = version_of(&FETCH, versions, i16::MAX).is_none();
        let state = self.nodes.entry(Node::Broker(id)).or_default();
        let was_told = std::mem::replace(&mut state.is_too_old, is_too_old);
        if !is_too_old {
            return;
        }
        let message = format!(
            "broker {id} is older than Kafka 0.11: records of the partitions that it leads are not copied"
        );
        for each in self.partitions.values_mut() {
            if each.leader == Some(id) && !each.is_done {
                each.problem = Some(message.clone());
                each.is_done = self.options.once;
            }
        }
        if !was_told {
            self.tell(MirrorEvent::new(EventKind::Problem, message).by(id));
        }
    }

    /// A node answers.
    pub(crate) fn tell_answer(&mut self, node: Node) {
        let state = self.nodes.entry(node).or_default();
        state.failures = 0;
        if std::mem::take(&mut state.is_told) {
            let event = match node {
                Node::Any => MirrorEvent::new(EventKind::Warning, "brokers answer again"),
                Node::Broker(id) => {
                    MirrorEvent::new(EventKind::Warning, format!("broker {id} answers again"))
                        .by(id)
                }
            };
            self.tell(event);
        }
    }

    /// With `once`: whether nothing is left to do. Gives up partitions that make no progress while nothing else does either.
    pub(crate) fn is_finished(&mut self, now: i64) -> bool {
        if !self.options.once {
            return false;
        }
        let is_late = now.saturating_sub(self.progressed_at) > self.options.give_up_ms;
        let mut is_waiting = false;
        for (at, each) in &mut self.partitions {
            let is_ready = self
                .topics
                .get(&at.topic)
                .is_some_and(|topic| topic.state == TopicState::Ready);
            if each.is_done || !is_ready {
                continue;
            }
            if is_late {
                each.is_done = true;
                let reason = each.gives_up();
                each.problem.get_or_insert(reason);
            } else {
                is_waiting = true;
            }
        }
        let is_making = self
            .topics
            .values()
            .any(|topic| matches!(topic.state, TopicState::Settings | TopicState::Making));
        // Waits for a topic that may be deleted.
        let is_leaving = self.follows() && self.has_away();
        let has_all = self.is_identified
            && self.has_metadata
            && !is_making
            && !is_leaving
            && self.renewed.is_empty()
            && self.held.is_empty();
        let is_over = if has_all {
            !is_waiting && (self.offsets_are_settled() || is_late)
        } else {
            is_late
        };
        if is_over && !is_late && (self.has_unproven() || self.has_unconfirmed_groups()) {
            // A later look must show that what was fetched by name belongs to the copied topic; groups likewise.
            self.metadata_due = self.metadata_due.min(now);
            return false;
        }
        if is_over && !std::mem::replace(&mut self.is_ended, true) {
            self.tell_left();
        }
        is_over
    }

    /// The mirror ends, on its own or not. With `once` what is not known to be whole is not.
    pub(crate) fn end(&mut self, now: i64) {
        if self.options.once && !self.is_ended && !self.is_finished(now) {
            self.is_ended = true;
            self.is_partial = true;
            let message = "the mirror was interrupted before it had all";
            self.tell(MirrorEvent::new(EventKind::Problem, message));
            self.tell_left();
        }
        self.tell_beyond();
    }

    fn has_unproven(&self) -> bool {
        self.partitions.iter().any(|(at, each)| {
            each.proven < each.end
                && self
                    .topics
                    .get(&at.topic)
                    .is_some_and(|topic| topic.state == TopicState::Ready && !topic.id.is_zero())
        })
    }

    /// Reports what is missing in the end.
    fn tell_left(&mut self) {
        let knows_none = self.topics.is_empty() && self.unknown.is_empty();
        if self.has_metadata && knows_none && self.deleted.is_empty() {
            let message = "the source shows no topic that is meant: is there one, and may the principal describe it?";
            self.tell(MirrorEvent::new(EventKind::Problem, message));
            self.is_partial = true;
        }
        for name in std::mem::take(&mut self.held).into_keys() {
            let message = format!("the source did not tell whether it has topic {name} still");
            self.tell(MirrorEvent::topic(EventKind::Problem, &name, message));
            self.is_partial = true;
        }
        if self.has_unproven() {
            let message = "no look has shown that the topics are the same still, after the last records were asked for by name";
            self.tell(MirrorEvent::new(EventKind::Problem, message));
            self.is_partial = true;
        }
        let leaving = self.topics.iter().filter(|(_, topic)| {
            self.follows() && topic.away.looks > 0 && topic.state == TopicState::Ready
        });
        let leaving: Vec<String> = leaving.map(|(name, _)| name.clone()).collect();
        for name in std::mem::take(&mut self.renewed) {
            let message = format!(
                "topic {name} was made anew, and the mirror ended before it was found again"
            );
            self.tell(MirrorEvent::topic(EventKind::Problem, &name, message));
            self.is_partial = true;
        }
        for name in leaving {
            let message = format!(
                "the last looks did not show topic {name}, and the mirror ended before it could be sure: it stays here"
            );
            self.tell(MirrorEvent::topic(EventKind::Problem, &name, message));
            self.is_partial = true;
        }
        self.tell_unstored();
        self.tell_beyond();
    }
}
