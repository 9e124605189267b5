//! The tables of `Produce`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Int16, Int32, Int64, Records, Struct, Structs, Text, Uuid};
use crate::message::{Field, Message, Unset, field, versions};

const PARTITION_PRODUCE_DATA: &[Field] =
    &[field("index", Int32), field("records", Records).nullable()];

const TOPIC_PRODUCE_DATA: &[Field] = &[
    field("name", Text).until(12).ignorable(),
    field("topicId", Uuid).since(13).ignorable(),
    field("partitionData", Structs(PARTITION_PRODUCE_DATA)),
];

/// `ProduceRequest`.
pub(super) const REQUEST: Message = versions(
    "ProduceRequest",
    3,
    13,
    9,
    &[
        field("transactionalId", Text)
            .since(3)
            .nullable()
            .unset(Unset::Null),
        field("acks", Int16),
        field("timeoutMs", Int32),
        field("topicData", Structs(TOPIC_PRODUCE_DATA)),
    ],
);

const BATCH_INDEX_AND_ERROR_MESSAGE: &[Field] = &[
    field("batchIndex", Int32).since(8),
    field("batchIndexErrorMessage", Text)
        .since(8)
        .nullable()
        .unset(Unset::Null),
];

const LEADER_ID_AND_EPOCH: &[Field] = &[
    field("leaderId", Int32).since(10).unset(Unset::Int(-1)),
    field("leaderEpoch", Int32).since(10).unset(Unset::Int(-1)),
];

const PARTITION_PRODUCE_RESPONSE: &[Field] = &[
    field("index", Int32),
    field("errorCode", Int16),
    field("baseOffset", Int64),
    field("logAppendTimeMs", Int64)
        .since(2)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("logStartOffset", Int64)
        .since(5)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("recordErrors", Structs(BATCH_INDEX_AND_ERROR_MESSAGE))
        .since(8)
        .ignorable(),
    field("errorMessage", Text)
        .since(8)
        .nullable()
        .unset(Unset::Null)
        .ignorable(),
    field("currentLeader", Struct(LEADER_ID_AND_EPOCH))
        .since(10)
        .tag(0, Unset::Struct),
];

const TOPIC_PRODUCE_RESPONSE: &[Field] = &[
    field("name", Text).until(12).ignorable(),
    field("topicId", Uuid).since(13).ignorable(),
    field("partitionResponses", Structs(PARTITION_PRODUCE_RESPONSE)),
];

const NODE_ENDPOINT: &[Field] = &[
    field("nodeId", Int32).since(10),
    field("host", Text).since(10),
    field("port", Int32).since(10),
    field("rack", Text).since(10).nullable().unset(Unset::Null),
];

/// `ProduceResponse`.
pub(super) const RESPONSE: Message = versions(
    "ProduceResponse",
    3,
    13,
    9,
    &[
        field("responses", Structs(TOPIC_PRODUCE_RESPONSE)),
        field("throttleTimeMs", Int32).since(1).ignorable(),
        field("nodeEndpoints", Structs(NODE_ENDPOINT))
            .since(10)
            .tag(0, Unset::Empty),
    ],
);
