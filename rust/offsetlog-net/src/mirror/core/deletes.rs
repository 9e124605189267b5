//! Topics that the source no longer shows, or shows with another id: what is reported, and what is deleted here if deletes are followed.
//!
//! A broker that has just started, lags behind, or is cut off from its controller reports an outdated state, and a cluster whose disks were
//! wiped shows nothing. So a topic is deleted only if looks at several brokers agree for a minute without a pause, and if the source still
//! shows another topic that was copied before.

use super::{Core, TopicState};
use crate::mirror::partition::Need;
use crate::mirror::report::{EventKind, MirrorEvent};
use crate::mirror::work::Work;
use offsetlog::format::Uuid;
use offsetlog::is_internal_topic;

/// This many looks in a row must miss a topic before it counts as deleted.
const MISSED_MAX: u32 = 3;
/// Milliseconds between these.
const MISSED_INTERVAL_MS: i64 = 2000;
/// This many looks in a row must miss a topic, or show another one, before it is deleted here.
const LOOKS_MIN: u32 = 4;
/// A pause of this many milliseconds between two looks restarts the count.
const PAUSE_MS: i64 = 20_000;

/// How often in a row looks did not show the topic that is copied, and since when.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::mirror) struct Away {
    pub(super) looks: u32,
    since: i64,
    last: i64,
    /// Whether they showed another one of its name.
    is_another: bool,
    /// Whether an event reported that the copy stays all the same.
    is_told: bool,
}

impl Away {
    /// Counts another look without it. Of looks that something else hurried, only those count that are far enough apart.
    fn missed(&mut self, is_another: bool, now: i64, pause_ms: i64) {
        let is_new = self.looks == 0
            || self.is_another != is_another
            || now.saturating_sub(self.last) > pause_ms;
        if is_new {
            *self = Self {
                since: now,
                is_another,
                is_told: self.is_told,
                ..Self::default()
            };
        }
        if self.looks == 0 || now.saturating_sub(self.last) >= MISSED_INTERVAL_MS {
            self.looks = self.looks.saturating_add(1);
            self.last = now;
        }
    }

    const fn lasted(self, now: i64) -> i64 {
        now.saturating_sub(self.since)
    }
}

impl Core {
    /// Whether deletes are followed: of a source that says which cluster it is.
    pub(super) fn follows(&self) -> bool {
        self.options.follow_deletes && self.cluster_id.as_ref().is_some_and(Option::is_some)
    }

    /// Whether a topic may be deleted soon.
    pub(super) fn has_away(&self) -> bool {
        let mut topics = self.topics.values();
        topics.any(|topic| {
            let is_over = matches!(topic.state, TopicState::Gone | TopicState::Deleting);
            topic.away.looks > 0 && !topic.away.is_told && !is_over
        })
    }

    /// A look showed the topic, though not what it needs to be copied.
    pub(super) fn is_there(&mut self, name: &str) {
        if let Some(topic) = self.topics.get_mut(name) {
            topic.away = Away::default();
        }
    }

    /// A look at all topics is over: records since when the topics that it showed are copied.
    pub(super) fn note_shown(&mut self, look: u64) {
        let shown = self.topics.iter().filter(|(name, topic)| {
            topic.state == TopicState::Ready
                && topic.seen == look
                && topic.away.looks == 0
                && !is_internal_topic(name)
        });
        self.shown_since = shown.filter_map(|(_, topic)| topic.copied_since).min();
    }

    /// Milliseconds between two looks of which the first missed a topic, and the longest pause between them.
    fn intervals(&self, looks: u32) -> (i64, i64) {
        let after_ms = self.options.follow_after_ms;
        let again_ms = if looks < MISSED_MAX {
            MISSED_INTERVAL_MS
        } else {
            MISSED_INTERVAL_MS.max(after_ms / 8)
        };
        (again_ms, PAUSE_MS.max(after_ms / 2))
    }

    /// Whether looks missed a topic for long enough, and whether the source shows a topic that was copied before these looks.
    fn is_to_be_deleted(&self, away: Away, now: i64) -> (bool, bool) {
        let is_long = away.looks >= LOOKS_MIN && away.lasted(now) >= self.options.follow_after_ms;
        let has_others = self.shown_since.is_some_and(|since| since < away.since);
        (is_long, has_others)
    }

    pub(super) fn take_missing(&mut self, name: &str, now: i64, works: &mut Vec<Work>) {
        let (_, pause_ms) = self.intervals(0);
        let away = match (self.topics.get_mut(name), self.held.get_mut(name)) {
            (Some(topic), _) if matches!(topic.state, TopicState::Gone | TopicState::Deleting) => {
                return;
            }
            (Some(topic), _) => &mut topic.away,
            (None, Some(away)) => away,
            (None, None) if self.deleted.contains(name) => return,
            (None, None) if !self.is_identified => {
                // The directory may have it.
                self.missing.push(name.to_owned());
                let soon = now.saturating_add(MISSED_INTERVAL_MS);
                self.metadata_due = self.metadata_due.min(soon);
                return;
            }
            (None, None) => {
                self.refuse_topic(name, "the source has no such topic");
                return;
            }
        };
        away.missed(false, now, pause_ms);
        let away = *away;
        let follows = self.follows();
        let (is_long, has_others) = self.is_to_be_deleted(away, now);
        if away.looks < MISSED_MAX || (follows && !is_long) {
            self.missing.push(name.to_owned());
            let (again_ms, _) = self.intervals(away.looks);
            self.metadata_due = self.metadata_due.min(now.saturating_add(again_ms));
            return;
        }
        let is_followed = follows && has_others;
        self.held.remove(name);
        self.deleted.insert(name.to_owned());
        if let Some(topic) = self.topics.get_mut(name) {
            topic.state = if is_followed {
                TopicState::Deleting
            } else {
                TopicState::Gone
            };
        }
        for (_, each) in self.of_topic(name) {
            each.restart(Need::Fetch);
            each.is_done = true;
        }
        if is_followed {
            works.push(Work::DeleteTopic {
                name: name.to_owned(),
            });
            return;
        }
        let message = if follows {
            format!(
                "the source deleted topic {name}; it stays here, for the source shows none of the topics that were copied before it was missed"
            )
        } else {
            format!("the source deleted topic {name}; it stays here")
        };
        self.tell(MirrorEvent::topic(EventKind::DeletedTopic, name, message));
    }

    pub(super) fn take_recreated(
        &mut self,
        name: &str,
        ours: Uuid,
        theirs: Uuid,
        now: i64,
        works: &mut Vec<Work>,
    ) {
        let (_, pause_ms) = self.intervals(0);
        let unproven = self.void(name);
        let Some(topic) = self.topics.get_mut(name) else {
            return;
        };
        if topic.state == TopicState::Deleting {
            return;
        }
        topic.away.missed(true, now, pause_ms);
        let away = topic.away;
        if topic.state != TopicState::Another {
            topic.state = TopicState::Another;
            works.extend(unproven);
            self.tell_recreated(name, ours, theirs);
        }
        if !self.follows() || away.is_told {
            return;
        }
        let (is_long, has_others) = self.is_to_be_deleted(away, now);
        if !is_long {
            let (again_ms, _) = self.intervals(away.looks);
            self.metadata_due = self.metadata_due.min(now.saturating_add(again_ms));
        } else if let Some(topic) = self.topics.get_mut(name) {
            if has_others {
                // Deleted here; the next look finds the new topic.
                topic.state = TopicState::Deleting;
                self.renewed.insert(name.to_owned());
                works.push(Work::DeleteTopic {
                    name: name.to_owned(),
                });
            } else {
                topic.away.is_told = true;
                let message = format!(
                    "the copy of topic {name} stays, for the source shows none of the topics that were copied before it was made anew: move the copy's \
                     directories away, or mirror into another directory"
                );
                self.tell(MirrorEvent::topic(EventKind::Recreated, name, message));
            }
        }
    }

    /// The source has another topic of the name: voids work for the copy under way. Returns the cuts of what may be of the other one.
    fn void(&mut self, name: &str) -> Vec<Work> {
        let mut unproven = Vec::new();
        for (at, each) in self.of_topic(name) {
            // An append that is under way may still end.
            if each.pending > 0 || each.proven < each.end {
                unproven.push(Work::CutUnproven { at: at.clone() });
            }
            each.restart(Need::Fetch);
            each.is_done = true;
        }
        unproven
    }

    fn tell_recreated(&mut self, name: &str, ours: Uuid, theirs: Uuid) {
        let follows = self.follows();
        let then = if follows {
            "the copy is deleted and begins anew when later looks say the same"
        } else {
            "the copy stays as it is, and the new topic is not copied: move the copy's directories away, or mirror into another directory"
        };
        let message = format!(
            "topic {name} was deleted at the source and another one made: the copy is of {ours}, the source has {theirs}; {then}"
        );
        let event = MirrorEvent::topic(EventKind::Recreated, name, message);
        self.tell_deleted(event, follows);
    }

    /// The directory has a topic of this name with another id.
    pub(crate) fn topic_is_another(&mut self, name: &str, ours: Uuid, theirs: Uuid, now: i64) {
        let (again_ms, pause_ms) = self.intervals(0);
        let Some(topic) = self
            .topics
            .get_mut(name)
            .filter(|topic| topic.awaits(theirs))
        else {
            return;
        };
        topic.state = TopicState::Another;
        // Later looks are compared with the id of the copy.
        topic.id = ours;
        topic.away.missed(true, now, pause_ms);
        let unproven = self.void(name);
        self.unasked.extend(unproven);
        self.tell_recreated(name, ours, theirs);
        if self.follows() {
            self.metadata_due = self.metadata_due.min(now.saturating_add(again_ms));
        }
    }

    /// A topic was deleted here too. If the source has one of its name, the next look finds it.
    pub(crate) fn topic_deleted(&mut self, name: &str, now: i64) {
        let first = self.first_generation;
        let generations = self.of_topic(name).map(|(_, each)| each.generation + 1);
        self.first_generation = generations.max().unwrap_or(first).max(first);
        self.partitions.retain(|at, _| at.topic != name);
        self.topics.remove(name);
        self.groups.forget(name, now);
        self.deleted.insert(name.to_owned());
        self.metadata_due = self.metadata_due.min(now);
        self.progressed(now);
        let message = if self.renewed.contains(name) {
            format!("topic {name} was made anew at the source; the copy of the old one is deleted")
        } else {
            format!("the source deleted topic {name}; it is deleted here too")
        };
        let event = MirrorEvent::topic(EventKind::DeletedTopic, name, message);
        self.tell_deleted(event, true);
    }

    /// A topic that the source deleted cannot be deleted here.
    pub(crate) fn topic_stays(&mut self, name: &str, reason: &str) {
        self.is_partial = true;
        self.renewed.remove(name);
        if let Some(topic) = self.topics.get_mut(name) {
            topic.state = TopicState::Gone;
        }
        let message = format!("the source deleted topic {name}; it is not deleted here: {reason}");
        self.tell(MirrorEvent::topic(EventKind::Problem, name, message));
    }
}
