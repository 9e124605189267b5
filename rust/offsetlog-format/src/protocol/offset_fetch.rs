//! The tables of `OffsetFetch`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Array, Bool, Int16, Int32, Int64, Structs, Text, Uuid};
use crate::message::{Field, Message, Unset, field, versions};

const OFFSET_FETCH_REQUEST_TOPIC: &[Field] = &[
    field("name", Text).until(7),
    field("partitionIndexes", Array(&Int32)).until(7),
];

const OFFSET_FETCH_REQUEST_TOPICS: &[Field] = &[
    field("name", Text).since(8).until(9).ignorable(),
    field("topicId", Uuid).since(10).ignorable(),
    field("partitionIndexes", Array(&Int32)).since(8),
];

const OFFSET_FETCH_REQUEST_GROUP: &[Field] = &[
    field("groupId", Text).since(8),
    field("memberId", Text)
        .since(9)
        .nullable()
        .unset(Unset::Null)
        .ignorable(),
    field("memberEpoch", Int32)
        .since(9)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("topics", Structs(OFFSET_FETCH_REQUEST_TOPICS))
        .since(8)
        .nullable(),
];

/// `OffsetFetchRequest`.
pub(super) const REQUEST: Message = versions(
    "OffsetFetchRequest",
    1,
    10,
    6,
    &[
        field("groupId", Text).until(7),
        field("topics", Structs(OFFSET_FETCH_REQUEST_TOPIC))
            .until(7)
            .nullable_since(2),
        field("groups", Structs(OFFSET_FETCH_REQUEST_GROUP)).since(8),
        field("requireStable", Bool).since(7),
    ],
);

const OFFSET_FETCH_RESPONSE_PARTITION: &[Field] = &[
    field("partitionIndex", Int32).until(7),
    field("committedOffset", Int64).until(7),
    field("committedLeaderEpoch", Int32)
        .since(5)
        .until(7)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("metadata", Text).until(7).nullable(),
    field("errorCode", Int16).until(7),
];

const OFFSET_FETCH_RESPONSE_TOPIC: &[Field] = &[
    field("name", Text).until(7),
    field("partitions", Structs(OFFSET_FETCH_RESPONSE_PARTITION)).until(7),
];

const OFFSET_FETCH_RESPONSE_PARTITIONS: &[Field] = &[
    field("partitionIndex", Int32).since(8),
    field("committedOffset", Int64).since(8),
    field("committedLeaderEpoch", Int32)
        .since(8)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("metadata", Text).since(8).nullable(),
    field("errorCode", Int16).since(8),
];

const OFFSET_FETCH_RESPONSE_TOPICS: &[Field] = &[
    field("name", Text).since(8).until(9).ignorable(),
    field("topicId", Uuid).since(10).ignorable(),
    field("partitions", Structs(OFFSET_FETCH_RESPONSE_PARTITIONS)).since(8),
];

const OFFSET_FETCH_RESPONSE_GROUP: &[Field] = &[
    field("groupId", Text).since(8),
    field("topics", Structs(OFFSET_FETCH_RESPONSE_TOPICS)).since(8),
    field("errorCode", Int16).since(8),
];

/// `OffsetFetchResponse`.
pub(super) const RESPONSE: Message = versions(
    "OffsetFetchResponse",
    1,
    10,
    6,
    &[
        field("throttleTimeMs", Int32).since(3).ignorable(),
        field("topics", Structs(OFFSET_FETCH_RESPONSE_TOPIC)).until(7),
        field("errorCode", Int16).since(2).until(7).ignorable(),
        field("groups", Structs(OFFSET_FETCH_RESPONSE_GROUP)).since(8),
    ],
);
