//! Offsets that wait for their records, and what became of those that the directory was to store.

use super::{AskedOffset, Core, GROUPS_MAX, Pending, TopicState, keys_of};
use crate::mirror::partition::Partition;
use crate::mirror::store::CommitOutcome;
use crate::mirror::work::{GroupCommit, ReadyCommit, Work};
use offsetlog::TopicPartition;
use offsetlog::format::Uuid;

/// Up to this many waiting offsets are all looked through whenever records have arrived.
const WALKED_ALWAYS: usize = 1000;
/// Milliseconds before more of them are looked through again.
const WALK_MS: i64 = 200;

impl Core {
    /// Looks through all offsets that wait for their records, unless they are many and that was done just now.
    pub(in crate::mirror::core) fn walk_offsets(&mut self, works: &mut Vec<Work>, now: i64) {
        if self.groups.pending.len() > WALKED_ALWAYS {
            if now < self.groups.walk_at {
                return;
            }
            self.groups.walk_at = now.saturating_add(WALK_MS);
        }
        if self.options.once {
            self.raise_targets(None);
        }
        self.store_offsets(None, works, now);
    }

    pub(super) fn take_commit(&mut self, commit: GroupCommit, now: i64) {
        let is_taken = self.options.takes(&commit.at.topic, false);
        if !is_taken {
            return;
        }
        let key = (commit.at.clone(), commit.group.clone());
        let asked = AskedOffset {
            at: now,
            look: self.look + 1,
        };
        if let Some(pending) = self.groups.pending.get_mut(&key) {
            if pending.commit == commit {
                pending.later = None;
            } else {
                pending.later = Some((commit, asked));
            }
            return;
        }
        let stored = (commit.group.clone(), commit.at.clone());
        if self.groups.stored.get(&stored) == Some(&commit) {
            return;
        }
        if self.groups.groups.len() < GROUPS_MAX {
            self.groups.groups.insert(commit.group.clone());
        }
        let pending = Pending {
            commit,
            asked,
            later: None,
        };
        self.groups.pending.insert(key, pending);
        self.hurry_metadata(now);
    }

    /// Adds work for offsets that the copies have reached, and for those that the source does not have either: of one partition, or of all.
    pub(in crate::mirror::core) fn store_offsets(
        &mut self,
        of: Option<&TopicPartition>,
        works: &mut Vec<Work>,
        now: i64,
    ) {
        let mut ready = Vec::new();
        let mut emptied = Vec::new();
        for (key, pending) in self.groups.pending.range_mut(keys_of(of)) {
            let is_ready = |commit: &GroupCommit, asked: AskedOffset| {
                let topic = self
                    .topics
                    .get(&commit.at.topic)
                    .filter(|topic| topic.state == TopicState::Ready && topic.seen >= asked.look);
                let Some((each, topic)) = self.partitions.get(&commit.at).zip(topic) else {
                    return false;
                };
                let is_beyond = each
                    .high_watermark
                    .is_some_and(|(offset, at)| at > asked.at && offset < commit.offset);
                // A topic with remote storage is never compacted: its records come, if late.
                let is_ended =
                    || each.has_nothing_below(commit.offset, now) && !topic.has_remote_storage();
                each.reached() >= commit.offset || is_beyond || is_ended()
            };
            while is_ready(&pending.commit, pending.asked) {
                let offset = pending.commit.offset;
                let copy = self.partitions.get(&key.0);
                let is_known_beyond = |each: &Partition| {
                    each.reached() < offset
                        && each.high_watermark.is_some_and(|(end, _)| end < offset)
                };
                if copy.is_some_and(is_known_beyond) {
                    self.groups.beyond.insert(key.clone(), offset);
                } else {
                    self.groups.beyond.remove(key);
                }
                let id = self.topics.get(&pending.commit.at.topic);
                ready.push(ReadyCommit {
                    commit: pending.commit.clone(),
                    topic_id: id.map_or(Uuid::ZERO, |topic| topic.id),
                });
                let Some((later, asked)) = pending.later.take() else {
                    emptied.push(key.clone());
                    break;
                };
                pending.commit = later;
                pending.asked = asked;
            }
        }
        for key in emptied {
            self.groups.pending.remove(&key);
        }
        if !ready.is_empty() {
            works.push(Work::Commits(ready));
        }
    }

    /// The offsets that are to be stored still. A topic may have been deleted, and recreated, since they were ready: those of other topics
    /// are dropped, and those of topics that are not copied at the moment wait again.
    pub(crate) fn still_ready(&mut self, commits: Vec<ReadyCommit>, now: i64) -> Vec<GroupCommit> {
        let mut ready = Vec::new();
        for ReadyCommit { commit, topic_id } in commits {
            let topic = self.topics.get(&commit.at.topic);
            let topic = topic.filter(|topic| topic_id.is_zero() || topic.id == topic_id);
            match topic.map(|topic| topic.state) {
                Some(TopicState::Ready) => ready.push(commit),
                Some(_) => {
                    let key = (commit.at.clone(), commit.group.clone());
                    let asked = AskedOffset {
                        at: now,
                        look: self.look + 1,
                    };
                    self.groups.pending.entry(key).or_insert(Pending {
                        commit,
                        asked,
                        later: None,
                    });
                }
                None => {}
            }
        }
        ready
    }

    /// Offsets are on the disk, or were refused. A refused one is asked for again with the group's next ones.
    pub(crate) fn committed(&mut self, outcome: CommitOutcome) {
        let CommitOutcome {
            written,
            stored,
            refused,
        } = outcome;
        self.groups.count = self.groups.count.saturating_add(written);
        for commit in stored {
            let key = (commit.at.clone(), commit.group.clone());
            self.groups.refused.remove(&key);
            let key = (commit.group.clone(), commit.at.clone());
            self.groups.stored.insert(key, commit);
        }
        for (commit, reason) in refused {
            let group = commit.group;
            let key = (group.clone(), commit.at.clone());
            self.groups.stored.remove(&key);
            self.tell_group(
                &group,
                format!("offsets of group {group} are not stored: {reason}"),
            );
            self.groups.refused.insert((commit.at, group));
        }
    }
}
