//! Metadata: topics, their partitions, and this server as the only broker.

use super::broker::{Asked, Broker};
use super::catalog::{Slot, Topic};
use super::request::{elements, id, is_set, text};
use crate::error_code::ErrorCode;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::name::check_topic;
use std::collections::HashSet;
use std::sync::Arc;

/// What Kafka answers without an authorizer: all that can be done with a topic.
const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
/// The same for a cluster.
pub(super) const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;

impl Broker {
    pub(super) fn metadata(&self, asked: &Asked<'_>, request: &Struct<'_>) -> Struct<'static> {
        let version = asked.version;
        let catalog = self.catalog();
        let wanted = elements(request, "topics");
        let is_all =
            request.get("topics").is_none_or(Value::is_null) || version == 0 && wanted.is_empty();
        let with_operations = is_set(request, "includeTopicAuthorizedOperations");
        let of_topic = |topic: &Arc<Topic>| self.topic(topic, version, with_operations);
        let topics: Vec<Struct<'static>> = if is_all {
            catalog.topics.values().map(of_topic).collect()
        } else {
            let wanted = wanted.iter().filter_map(Value::as_struct);
            // Names and ids together are no request of Kafka's clients: there only the ids count.
            let by_id = wanted.clone().any(|each| !id(each, "topicId").is_zero());
            let mut seen = HashSet::new();
            wanted
                // As in Kafka, a repeated topic is answered once.
                .filter(|each| {
                    let id = id(each, "topicId");
                    let name = text(each, "name").filter(|_| version < 12 || !by_id);
                    let is_asked = version < 12 || !by_id || !id.is_zero();
                    is_asked && seen.insert((name, id.to_bytes()))
                })
                .map(|each| {
                    let (name, id) = (text(each, "name"), id(each, "topicId"));
                    if version < 12 && (by_id || name.is_none()) {
                        return absent(ErrorCode::InvalidRequest, name.unwrap_or_default())
                            .with("topicId", id);
                    }
                    if by_id {
                        let Some(topic) = catalog.topic_of_id(id) else {
                            return Struct::new()
                                .with("errorCode", ErrorCode::UnknownTopicId)
                                .with("name", Value::Null)
                                .with("topicId", id);
                        };
                        return of_topic(topic);
                    }
                    let name = name.unwrap_or_default();
                    match catalog.topic(name) {
                        Some(topic) => of_topic(topic),
                        None if check_topic(name).is_err() => {
                            absent(ErrorCode::InvalidTopicException, name)
                        }
                        None => absent(ErrorCode::UnknownTopicOrPartition, name),
                    }
                })
                .collect()
        };
        let mut answer = Struct::new()
            .with("brokers", vec![self.own_node()])
            .with("clusterId", self.cluster_id.clone())
            .with("controllerId", self.node_id)
            .with("topics", topics);
        if is_set(request, "includeClusterAuthorizedOperations") {
            answer.set("clusterAuthorizedOperations", CLUSTER_OPERATIONS);
        }
        answer
    }

    fn own_node(&self) -> Struct<'static> {
        Struct::new()
            .with("nodeId", self.node_id)
            .with("host", self.options.host.clone())
            .with("port", i32::from(self.options.port))
    }

    fn topic(&self, topic: &Arc<Topic>, version: i16, with_operations: bool) -> Struct<'static> {
        let partitions: Vec<Struct<'static>> = topic
            .slots
            .iter()
            .map(|(number, slot)| self.partition(*number, slot))
            .collect();
        let mut answer = Struct::new()
            .with("name", topic.name.clone())
            .with("isInternal", topic.is_internal)
            .with("partitions", partitions);
        if version >= 10 {
            answer.set("topicId", topic.id);
        }
        if with_operations {
            answer.set("topicAuthorizedOperations", TOPIC_OPERATIONS);
        }
        answer
    }

    fn partition(&self, number: i32, slot: &Slot) -> Struct<'static> {
        let answer = Struct::new().with("partitionIndex", number);
        let Some(partition) = slot.partition() else {
            return answer
                .with("errorCode", ErrorCode::LeaderNotAvailable)
                .with("leaderId", -1);
        };
        // If the bounds cannot be read now, a fetch reports the error.
        let leader_epoch = partition.bounds().map_or(-1, |bounds| bounds.leader_epoch);
        answer
            .with("leaderId", self.node_id)
            .with("leaderEpoch", leader_epoch)
            .with("replicaNodes", vec![self.node_id])
            .with("isrNodes", vec![self.node_id])
    }
}

fn absent(code: ErrorCode, name: &str) -> Struct<'static> {
    Struct::new()
        .with("errorCode", code)
        .with("name", name.to_owned())
}
