//! A topic that is to exist when a new cluster starts: its records for `bootstrap.checkpoint`.

use super::bootstrap::{Bootstrap, KnownPartition};
use offsetlog::format::Uuid;
use offsetlog::format::metadata_record::{
    PartitionToMake, TOPIC_RESOURCE, config_record, partition_record, topic_record,
};
use std::collections::BTreeMap;

/// A topic of a new cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewTopic {
    pub(super) name: String,
    pub(super) topic_id: Uuid,
    /// By number.
    pub(super) partitions: BTreeMap<i32, NewTopicPartition>,
    pub(super) configs: BTreeMap<String, String>,
}

/// A partition of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewTopicPartition {
    /// The brokers that have it; the first one leads.
    pub(super) nodes: Vec<i32>,
    /// For each of them the id of its log dir.
    pub(super) directories: Vec<Option<Uuid>>,
    /// Above that of every batch: a leader's epoch is greater than what it finds.
    pub(super) leader_epoch: i32,
}

impl NewTopic {
    /// Adds the records without which `file` does not say this of the topic. A controller appends them in their order, and the last one of a
    /// setting or a partition holds.
    pub(super) fn records(&self, file: &Bootstrap, records: &mut Vec<Vec<u8>>) {
        if !file.topics.contains_key(&self.name) {
            records.push(topic_record(&self.name, self.topic_id));
        }
        let mut known = file.configs_of(&self.name);
        let mut config = |name: &str, value| {
            records.push(config_record(TOPIC_RESOURCE, &self.name, name, value));
        };
        for (name, value) in &self.configs {
            if known.remove(name).as_ref() != Some(value) {
                config(name, Some(value));
            }
        }
        for name in known.keys() {
            config(name, None);
        }
        for (number, partition) in &self.partitions {
            let known = file.partitions.get(&self.key(*number));
            if known.is_some_and(|known| partition.is_told(known, file)) {
                continue;
            }
            let epoch = known.map_or(0, |known| known.leader_epoch);
            records.push(partition_record(&PartitionToMake {
                topic_id: self.topic_id,
                partition: *number,
                replicas: &partition.nodes,
                leader_epoch: partition.leader_epoch.max(epoch),
                directories: partition.directories_in(file).as_deref(),
            }));
        }
    }

    /// Whether somebody else has written something else of the topic into the file since it was `planned`.
    pub(super) fn has_changed(&self, planned: &Bootstrap, file: &Bootstrap) -> bool {
        let configs = file.configs_of(&self.name);
        let is_new = planned.configs_of(&self.name) != configs && self.configs != configs;
        is_new
            || self.partitions.iter().any(|(number, partition)| {
                let key = self.key(*number);
                let known = file.partitions.get(&key);
                known != planned.partitions.get(&key)
                    && !known.is_some_and(|known| partition.is_told(known, file))
            })
    }

    const fn key(&self, number: i32) -> ([u8; 16], i32) {
        (self.topic_id.to_bytes(), number)
    }
}

impl NewTopicPartition {
    /// The ids of its log dirs, where the records of a file have them.
    fn directories_in(&self, file: &Bootstrap) -> Option<Vec<Uuid>> {
        let all: Option<Vec<Uuid>> = self.directories.iter().copied().collect();
        all.filter(|_| file.knows_directories())
    }

    /// Whether a file says this of it, and an epoch that is not below.
    fn is_told(&self, known: &KnownPartition, file: &Bootstrap) -> bool {
        known.nodes == self.nodes
            && known.leader_epoch >= self.leader_epoch
            && self
                .directories_in(file)
                .is_none_or(|directories| directories == known.directories)
    }
}
