//! The tables of `Metadata`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Array, Bool, Int16, Int32, Structs, Text, Uuid};
use crate::message::{Field, Message, Unset, field, versions};

const METADATA_REQUEST_TOPIC: &[Field] = &[
    field("topicId", Uuid).since(10).ignorable(),
    field("name", Text).nullable_since(10),
];

/// `MetadataRequest`.
pub(super) const REQUEST: Message = versions(
    "MetadataRequest",
    0,
    13,
    9,
    &[
        field("topics", Structs(METADATA_REQUEST_TOPIC)).nullable_since(1),
        field("allowAutoTopicCreation", Bool)
            .since(4)
            .unset(Unset::Int(1)),
        field("includeClusterAuthorizedOperations", Bool)
            .since(8)
            .until(10),
        field("includeTopicAuthorizedOperations", Bool).since(8),
    ],
);

const METADATA_RESPONSE_BROKER: &[Field] = &[
    field("nodeId", Int32),
    field("host", Text),
    field("port", Int32),
    field("rack", Text)
        .since(1)
        .nullable()
        .unset(Unset::Null)
        .ignorable(),
];

const METADATA_RESPONSE_PARTITION: &[Field] = &[
    field("errorCode", Int16),
    field("partitionIndex", Int32),
    field("leaderId", Int32),
    field("leaderEpoch", Int32)
        .since(7)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("replicaNodes", Array(&Int32)),
    field("isrNodes", Array(&Int32)),
    field("offlineReplicas", Array(&Int32)).since(5).ignorable(),
];

const METADATA_RESPONSE_TOPIC: &[Field] = &[
    field("errorCode", Int16),
    field("name", Text).nullable_since(12),
    field("topicId", Uuid).since(10).ignorable(),
    field("isInternal", Bool).since(1).ignorable(),
    field("partitions", Structs(METADATA_RESPONSE_PARTITION)),
    field("topicAuthorizedOperations", Int32)
        .since(8)
        .unset(Unset::Int(-2_147_483_648)),
];

/// `MetadataResponse`.
pub(super) const RESPONSE: Message = versions(
    "MetadataResponse",
    0,
    13,
    9,
    &[
        field("throttleTimeMs", Int32).since(3).ignorable(),
        field("brokers", Structs(METADATA_RESPONSE_BROKER)),
        field("clusterId", Text)
            .since(2)
            .nullable()
            .unset(Unset::Null)
            .ignorable(),
        field("controllerId", Int32)
            .since(1)
            .unset(Unset::Int(-1))
            .ignorable(),
        field("topics", Structs(METADATA_RESPONSE_TOPIC)),
        field("clusterAuthorizedOperations", Int32)
            .since(8)
            .until(10)
            .unset(Unset::Int(-2_147_483_648)),
        field("errorCode", Int16).since(13).ignorable(),
    ],
);
