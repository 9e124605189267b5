//! Groups of old consumers, which keep their offsets in ZooKeeper: as `/consumers` has them.

use super::{FirstUnread, Group, GroupMember, GroupOffset, GroupState};
use crate::error::Result;
use crate::log_dir::LogDir;
use offsetlog_format::Uuid;
use std::collections::BTreeMap;

const KIND: &str = "zookeeper";

impl LogDir {
    /// Adds the groups of ZooKeeper's data, if that is among the paths. A group that a coordinator has too has moved there: its remains in
    /// ZooKeeper are reported and left out.
    pub(super) fn add_zookeepers_groups(
        &self,
        found: &mut BTreeMap<String, Group>,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let (groups, left_out) = self.0.surroundings.named_groups()?;
        warnings.extend(left_out);
        for group in groups {
            if found.contains_key(&group.name) {
                warnings.push(format!(
                    "left out: what ZooKeeper has of group {:?}, which is in __consumer_offsets too",
                    group.name
                ));
                continue;
            }
            let mut owned = group.owned;
            let members = group.members.into_iter().map(|id| GroupMember {
                assignment: assignment(owned.remove(&id).unwrap_or_default()),
                member_id: id,
                ..GroupMember::default()
            });
            let members: Vec<_> = members.collect();
            let offsets = group.offsets.into_iter().map(|each| GroupOffset {
                is_of_another_topic: false,
                topic: each.topic,
                partition: each.partition,
                offset: each.offset,
                leader_epoch: None,
                metadata: String::new(),
                commit_timestamp: each.timestamp,
                topic_id: Uuid::ZERO,
                log_end_offset: None,
                first_unread: FirstUnread::Unknown,
            });
            let added = Group {
                group_id: group.name.clone(),
                kind: KIND,
                state: if members.is_empty() {
                    GroupState::Empty
                } else {
                    GroupState::Stable
                },
                members,
                offsets: offsets.collect(),
                ..Group::default()
            };
            found.insert(group.name, added);
        }
        Ok(())
    }
}

/// Partitions by topic, in order.
fn assignment(owned: Vec<(String, i32)>) -> Vec<(String, Vec<i32>)> {
    let mut topics: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for (topic, number) in owned {
        topics.entry(topic).or_default().push(number);
    }
    let mut topics: Vec<_> = topics.into_iter().collect();
    for (_, numbers) in &mut topics {
        numbers.sort_unstable();
    }
    topics
}
