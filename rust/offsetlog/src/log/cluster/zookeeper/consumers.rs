//! Reads consumer groups that keep their offsets in ZooKeeper, as all did before Kafka 0.9 and old consumers did after it (FORMAT.md
//! «ZooKeeper's data»).
//!
//! Source: Kafka's `ConsumerOffset` in `ZkData` and `ZookeeperConsumerConnector` of 0.8 to 1.1.

use super::nodes::{Nodes, shown};
use std::collections::BTreeMap;

pub(super) const GROUPS: &[u8] = b"/consumers";

/// A group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OldGroup {
    pub(crate) name: String,
    /// Ids of the consumers that were connected.
    pub(crate) members: Vec<String>,
    /// By member the partitions that it had: topic and number.
    pub(crate) owned: BTreeMap<String, Vec<(String, i32)>>,
    pub(crate) offsets: Vec<OldOffset>,
}

/// What a group has read of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OldOffset {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    /// The next offset to read.
    pub(crate) offset: i64,
    /// When it was written, in ms since 1970.
    pub(crate) timestamp: i64,
}

impl Nodes {
    /// The groups of the cluster at `root`, by name.
    pub(super) fn groups(&self, root: &[u8], warnings: &mut Vec<String>) -> Vec<OldGroup> {
        let names = self.below(root, GROUPS).map(|(name, _)| name);
        let groups = names.map(|name| self.group(root, name, warnings));
        let groups = groups.collect::<Vec<_>>();
        // Kafka leaves folders of groups that are gone.
        let has_any = |group: &OldGroup| !group.offsets.is_empty() || !group.members.is_empty();
        groups.into_iter().filter(has_any).collect()
    }

    fn group(&self, root: &[u8], name: String, warnings: &mut Vec<String>) -> OldGroup {
        let place = |what: &str| [GROUPS, b"/", name.as_bytes(), b"/", what.as_bytes()].concat();
        let members: Vec<String> = self.below(root, &place("ids")).map(|(id, _)| id).collect();
        let mut owned: BTreeMap<String, Vec<(String, i32)>> = BTreeMap::new();
        for (topic, number, held) in self.of_partitions(root, &place("owners")) {
            let thread = held.data.as_deref().unwrap_or_default();
            let thread = String::from_utf8_lossy(thread);
            // A consumer's id, and the number of its thread.
            let is_of = |id: &&String| {
                let rest = thread.strip_prefix(id.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            if let (Some(id), Ok(number)) = (members.iter().find(is_of), number.parse()) {
                owned.entry(id.clone()).or_default().push((topic, number));
            }
        }
        let mut offsets = Vec::new();
        let place = place("offsets");
        for (topic, number, held) in self.of_partitions(root, &place) {
            let data = held.data.as_deref().unwrap_or_default();
            let offset = core::str::from_utf8(data).ok();
            let offset = offset.and_then(|text| text.trim().parse().ok());
            let (Ok(partition), Some(offset)) = (number.parse(), offset) else {
                let path = [
                    root,
                    &place,
                    b"/",
                    topic.as_bytes(),
                    b"/",
                    number.as_bytes(),
                ]
                .concat();
                warnings.push(format!("left out: {} is no offset", shown(&path)));
                continue;
            };
            offsets.push(OldOffset {
                topic,
                partition,
                offset,
                timestamp: held.modified,
            });
        }
        offsets.sort_by(|one, other| {
            (&one.topic, one.partition).cmp(&(&other.topic, other.partition))
        });
        OldGroup {
            name,
            members,
            owned,
            offsets,
        }
    }

    /// Topic, number and node of each partition below a path.
    fn of_partitions<'n>(
        &'n self,
        root: &'n [u8],
        place: &[u8],
    ) -> Vec<(String, String, &'n super::nodes::Held)> {
        let mut found = Vec::new();
        for (topic, _) in self.below(root, place) {
            let below = [place, b"/", topic.as_bytes()].concat();
            let partitions = self.below(root, &below);
            found.extend(partitions.map(|(number, held)| (topic.clone(), number, held)));
        }
        found
    }
}
