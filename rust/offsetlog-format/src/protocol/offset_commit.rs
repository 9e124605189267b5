//! The tables of `OffsetCommit`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Int16, Int32, Int64, Structs, Text, Uuid};
use crate::message::{Field, Message, Unset, field, versions};

const OFFSET_COMMIT_REQUEST_PARTITION: &[Field] = &[
    field("partitionIndex", Int32),
    field("committedOffset", Int64),
    field("committedLeaderEpoch", Int32)
        .since(6)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("committedMetadata", Text).nullable(),
];

const OFFSET_COMMIT_REQUEST_TOPIC: &[Field] = &[
    field("name", Text).until(9).ignorable(),
    field("topicId", Uuid).since(10).ignorable(),
    field("partitions", Structs(OFFSET_COMMIT_REQUEST_PARTITION)),
];

/// `OffsetCommitRequest`.
pub(super) const REQUEST: Message = versions(
    "OffsetCommitRequest",
    2,
    10,
    8,
    &[
        field("groupId", Text),
        field("generationIdOrMemberEpoch", Int32)
            .since(1)
            .unset(Unset::Int(-1))
            .ignorable(),
        field("memberId", Text).since(1).ignorable(),
        field("groupInstanceId", Text)
            .since(7)
            .nullable()
            .unset(Unset::Null),
        field("retentionTimeMs", Int64)
            .since(2)
            .until(4)
            .unset(Unset::Int(-1))
            .ignorable(),
        field("topics", Structs(OFFSET_COMMIT_REQUEST_TOPIC)),
    ],
);

const OFFSET_COMMIT_RESPONSE_PARTITION: &[Field] =
    &[field("partitionIndex", Int32), field("errorCode", Int16)];

const OFFSET_COMMIT_RESPONSE_TOPIC: &[Field] = &[
    field("name", Text).until(9).ignorable(),
    field("topicId", Uuid).since(10).ignorable(),
    field("partitions", Structs(OFFSET_COMMIT_RESPONSE_PARTITION)),
];

/// `OffsetCommitResponse`.
pub(super) const RESPONSE: Message = versions(
    "OffsetCommitResponse",
    2,
    10,
    8,
    &[
        field("throttleTimeMs", Int32).since(3).ignorable(),
        field("topics", Structs(OFFSET_COMMIT_RESPONSE_TOPIC)),
    ],
);
