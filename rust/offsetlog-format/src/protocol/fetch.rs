//! The tables of `Fetch`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{
    Array, Int8, Int16, Int32, Int64, Records, Struct, Structs, Text, Uuid,
};
use crate::message::{Field, Message, Unset, field, versions};

const REPLICA_STATE: &[Field] = &[
    field("replicaId", Int32).since(15).unset(Unset::Int(-1)),
    field("replicaEpoch", Int64).since(15).unset(Unset::Int(-1)),
];

const FETCH_PARTITION: &[Field] = &[
    field("partition", Int32),
    field("currentLeaderEpoch", Int32)
        .since(9)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("fetchOffset", Int64),
    field("lastFetchedEpoch", Int32)
        .since(12)
        .unset(Unset::Int(-1)),
    field("logStartOffset", Int64)
        .since(5)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("partitionMaxBytes", Int32),
    field("replicaDirectoryId", Uuid)
        .since(17)
        .tag(0, Unset::Uuid)
        .ignorable(),
    field("highWatermark", Int64)
        .since(18)
        .tag(1, Unset::Int(9_223_372_036_854_775_807))
        .ignorable(),
];

const FETCH_TOPIC: &[Field] = &[
    field("topic", Text).until(12).ignorable(),
    field("topicId", Uuid).since(13).ignorable(),
    field("partitions", Structs(FETCH_PARTITION)),
];

const FORGOTTEN_TOPIC: &[Field] = &[
    field("topic", Text).since(7).until(12).ignorable(),
    field("topicId", Uuid).since(13).ignorable(),
    field("partitions", Array(&Int32)).since(7),
];

/// `FetchRequest`.
pub(super) const REQUEST: Message = versions(
    "FetchRequest",
    4,
    18,
    12,
    &[
        field("clusterId", Text)
            .since(12)
            .nullable()
            .tag(0, Unset::Null)
            .ignorable(),
        field("replicaId", Int32).until(14).unset(Unset::Int(-1)),
        field("replicaState", Struct(REPLICA_STATE))
            .since(15)
            .tag(1, Unset::Struct),
        field("maxWaitMs", Int32),
        field("minBytes", Int32),
        field("maxBytes", Int32)
            .since(3)
            .unset(Unset::Int(2_147_483_647))
            .ignorable(),
        field("isolationLevel", Int8).since(4).ignorable(),
        field("sessionId", Int32).since(7).ignorable(),
        field("sessionEpoch", Int32)
            .since(7)
            .unset(Unset::Int(-1))
            .ignorable(),
        field("topics", Structs(FETCH_TOPIC)),
        field("forgottenTopicsData", Structs(FORGOTTEN_TOPIC)).since(7),
        field("rackId", Text).since(11).ignorable(),
    ],
);

const EPOCH_END_OFFSET: &[Field] = &[
    field("epoch", Int32).since(12).unset(Unset::Int(-1)),
    field("endOffset", Int64).since(12).unset(Unset::Int(-1)),
];

const LEADER_ID_AND_EPOCH: &[Field] = &[
    field("leaderId", Int32).since(12).unset(Unset::Int(-1)),
    field("leaderEpoch", Int32).since(12).unset(Unset::Int(-1)),
];

const SNAPSHOT_ID: &[Field] = &[
    field("endOffset", Int64).unset(Unset::Int(-1)),
    field("epoch", Int32).unset(Unset::Int(-1)),
];

const ABORTED_TRANSACTION: &[Field] = &[
    field("producerId", Int64).since(4),
    field("firstOffset", Int64).since(4),
];

const PARTITION_DATA: &[Field] = &[
    field("partitionIndex", Int32),
    field("errorCode", Int16),
    field("highWatermark", Int64),
    field("lastStableOffset", Int64)
        .since(4)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("logStartOffset", Int64)
        .since(5)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("divergingEpoch", Struct(EPOCH_END_OFFSET))
        .since(12)
        .tag(0, Unset::Struct),
    field("currentLeader", Struct(LEADER_ID_AND_EPOCH))
        .since(12)
        .tag(1, Unset::Struct),
    field("snapshotId", Struct(SNAPSHOT_ID))
        .since(12)
        .tag(2, Unset::Struct),
    field("abortedTransactions", Structs(ABORTED_TRANSACTION))
        .since(4)
        .nullable()
        .ignorable(),
    field("preferredReadReplica", Int32)
        .since(11)
        .unset(Unset::Int(-1)),
    field("records", Records).nullable(),
];

const FETCHABLE_TOPIC_RESPONSE: &[Field] = &[
    field("topic", Text).until(12).ignorable(),
    field("topicId", Uuid).since(13).ignorable(),
    field("partitions", Structs(PARTITION_DATA)),
];

const NODE_ENDPOINT: &[Field] = &[
    field("nodeId", Int32).since(16),
    field("host", Text).since(16),
    field("port", Int32).since(16),
    field("rack", Text).since(16).nullable().unset(Unset::Null),
];

/// `FetchResponse`.
pub(super) const RESPONSE: Message = versions(
    "FetchResponse",
    4,
    18,
    12,
    &[
        field("throttleTimeMs", Int32).since(1).ignorable(),
        field("errorCode", Int16).since(7).ignorable(),
        field("sessionId", Int32).since(7),
        field("responses", Structs(FETCHABLE_TOPIC_RESPONSE)),
        field("nodeEndpoints", Structs(NODE_ENDPOINT))
            .since(16)
            .tag(0, Unset::Empty),
    ],
);
