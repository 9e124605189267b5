//! Who coordinates the groups of the model's cluster.

use crate::mirror::core::Node;
use offsetlog::format::internal_topic::partition_of;
use offsetlog::format::message::Struct;
use std::collections::BTreeSet;

pub(super) const OFFSETS_TOPIC: &str = "__consumer_offsets";
pub(super) const NOT_COORDINATOR: i16 = 16;

/// Brokers that lead the partitions of `__consumer_offsets`, and those partitions that they coordinate by now.
#[derive(Debug, Default)]
pub(super) struct Coordination {
    pub(super) leaders: Vec<Option<i32>>,
    pub(super) active: BTreeSet<usize>,
}

impl Coordination {
    pub(super) fn of(&self, group: &str) -> usize {
        partition_of(group, self.leaders.len())
    }

    /// Whether a broker coordinates a group.
    pub(super) fn is_at(&self, node: Node, group: &str) -> bool {
        let number = self.of(group);
        self.leaders[number].map(Node::Broker) == Some(node) && self.active.contains(&number)
    }

    pub(super) fn topic(&self) -> Struct<'static> {
        let partitions = self.leaders.iter().enumerate();
        let partitions = partitions.map(|(number, leader)| {
            Struct::new()
                .with("errorCode", if leader.is_some() { 0 } else { 5 })
                .with("partitionIndex", number as i32)
                .with("leaderId", leader.unwrap_or(-1))
                .with("leaderEpoch", 0)
        });
        Struct::new()
            .with("name", OFFSETS_TOPIC)
            .with("isInternal", true)
            .with("partitions", partitions.collect::<Vec<_>>())
    }
}
