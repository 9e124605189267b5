//! A topic that is to exist when a new cluster starts: its records for `bootstrap.checkpoint`.

use super::bootstrap::Bootstrap;
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
    /// Adds the records that `file` does not have yet.
    pub(super) fn records(&self, file: &Bootstrap, records: &mut Vec<Vec<u8>>) {
        if !file.topics.contains_key(&self.name) {
            records.push(topic_record(&self.name, self.topic_id));
            let configs = self.configs.iter();
            records.extend(
                configs.map(|(name, value)| {
                    config_record(TOPIC_RESOURCE, &self.name, name, Some(value))
                }),
            );
        }
        for (number, partition) in &self.partitions {
            let key = (self.topic_id.to_bytes(), *number);
            if file.partitions.contains(&key) {
                continue;
            }
            let directories: Option<Vec<Uuid>> = partition.directories.iter().copied().collect();
            records.push(partition_record(&PartitionToMake {
                topic_id: self.topic_id,
                partition: *number,
                replicas: &partition.nodes,
                leader_epoch: partition.leader_epoch,
                directories: directories.as_deref().filter(|_| file.knows_directories()),
            }));
        }
    }
}
