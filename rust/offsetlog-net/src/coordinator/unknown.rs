//! What a dead cluster's groups may have committed, and nobody knows here. A consumer that is told that its group has committed nothing
//! begins elsewhere, in silence; so it gets an error.

use super::committed_offsets::CommittedOffsets;
use offsetlog::format::internal_topic::partition_of;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Groups of which it is logged that they asked for such offsets.
const TOLD_MAX: usize = 1000;

/// Takes the name of a group that asked for what is not known, and why it is not known.
pub type OnUnknown = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The offset of a group in a partition of a topic.
type Key = (String, String, i32);

/// What is not known of committed offsets.
#[derive(Clone, Default)]
pub struct UnknownOffsets {
    /// How many partitions `__consumer_offsets` has, if the cluster's metadata says it.
    pub partitions: Option<usize>,
    /// Its partitions that are missing, or of which something is: why.
    pub unread: BTreeMap<i32, String>,
    /// Whether a part of one of these is known.
    pub is_partly_known: bool,
    /// The groups that are known.
    pub known: BTreeSet<String>,
    /// Offsets that wait for the end of a transaction.
    pub unstable: BTreeSet<Key>,
    /// Called once for each group.
    pub on_unknown: Option<OnUnknown>,
    /// The groups that it was called for.
    pub told: BTreeSet<String>,
}

impl fmt::Debug for UnknownOffsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnknownOffsets")
            .field("unread", &self.unread)
            .field("unstable", &self.unstable)
            .finish_non_exhaustive()
    }
}

impl UnknownOffsets {
    /// Why nobody knows all that a group has committed; `None` if all of it is known.
    pub(super) fn why(&self, group: &str) -> Option<&str> {
        let reason = match self.partitions {
            Some(count) => {
                let own = i32::try_from(partition_of(group, count)).ok()?;
                self.unread.get(&own)
            }
            // Which partition it is in, nobody knows. What is known of the group is of one that can be read, unless that is known in part.
            None if self.known.contains(group) && !self.is_partly_known => None,
            None => self.unread.values().next(),
        };
        reason.map(String::as_str)
    }

    /// A group asked for what is not known.
    pub(super) fn asked(&mut self, group: &str) {
        if self.told.len() >= TOLD_MAX || self.told.contains(group) {
            return;
        }
        let Some((tell, reason)) = self.on_unknown.as_ref().zip(self.why(group)) else {
            return;
        };
        tell(group, reason);
        self.told.insert(group.to_owned());
    }

    pub(super) fn is_unstable(&self, group: &str, topic: &str, partition: i32) -> bool {
        // Copies of names are made for groups with transactions only.
        !self.unstable.is_empty()
            && self
                .unstable
                .contains(&(group.to_owned(), topic.to_owned(), partition))
    }

    /// A client has committed or deleted the offset here: what the dead cluster's transaction would have made of it no longer counts.
    pub(super) fn replaced(&mut self, group: &str, topic: &str, partition: i32) {
        if !self.unstable.is_empty() {
            let key = (group.to_owned(), topic.to_owned(), partition);
            self.unstable.remove(&key);
        }
    }

    /// A client has deleted the group here.
    pub(super) fn deleted(&mut self, group: &str) {
        self.unstable.retain(|(name, ..)| name != group);
    }

    /// What the log of commits has was committed or deleted here by an earlier run.
    pub(crate) fn without(mut self, offsets: &CommittedOffsets) -> Self {
        self.unstable.retain(|(group, topic, partition)| {
            offsets.get(group, topic, *partition).is_none()
                && !offsets.is_deleted(group, topic, *partition)
        });
        self
    }
}
