//! The tables of `ListOffsets`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Int8, Int16, Int32, Int64, Structs, Text};
use crate::message::{Field, Message, Unset, field, versions};

const LIST_OFFSETS_PARTITION: &[Field] = &[
    field("partitionIndex", Int32),
    field("currentLeaderEpoch", Int32)
        .since(4)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("timestamp", Int64),
];

const LIST_OFFSETS_TOPIC: &[Field] = &[
    field("name", Text),
    field("partitions", Structs(LIST_OFFSETS_PARTITION)),
];

/// `ListOffsetsRequest`.
pub(super) const REQUEST: Message = versions(
    "ListOffsetsRequest",
    1,
    11,
    6,
    &[
        field("replicaId", Int32),
        field("isolationLevel", Int8).since(2),
        field("topics", Structs(LIST_OFFSETS_TOPIC)),
        field("timeoutMs", Int32).since(10).ignorable(),
    ],
);

const LIST_OFFSETS_PARTITION_RESPONSE: &[Field] = &[
    field("partitionIndex", Int32),
    field("errorCode", Int16),
    field("timestamp", Int64).since(1).unset(Unset::Int(-1)),
    field("offset", Int64).since(1).unset(Unset::Int(-1)),
    field("leaderEpoch", Int32).since(4).unset(Unset::Int(-1)),
];

const LIST_OFFSETS_TOPIC_RESPONSE: &[Field] = &[
    field("name", Text),
    field("partitions", Structs(LIST_OFFSETS_PARTITION_RESPONSE)),
];

/// `ListOffsetsResponse`.
pub(super) const RESPONSE: Message = versions(
    "ListOffsetsResponse",
    1,
    11,
    6,
    &[
        field("throttleTimeMs", Int32).since(2).ignorable(),
        field("topics", Structs(LIST_OFFSETS_TOPIC_RESPONSE)),
    ],
);
