//! The tables of `OffsetForLeaderEpoch`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Int16, Int32, Int64, Structs, Text};
use crate::message::{Field, Message, Unset, field, versions};

const OFFSET_FOR_LEADER_PARTITION: &[Field] = &[
    field("partition", Int32),
    field("currentLeaderEpoch", Int32)
        .since(2)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("leaderEpoch", Int32),
];

const OFFSET_FOR_LEADER_TOPIC: &[Field] = &[
    field("topic", Text),
    field("partitions", Structs(OFFSET_FOR_LEADER_PARTITION)),
];

/// `OffsetForLeaderEpochRequest`.
pub(super) const REQUEST: Message = versions(
    "OffsetForLeaderEpochRequest",
    2,
    4,
    4,
    &[
        field("replicaId", Int32)
            .since(3)
            .unset(Unset::Int(-2))
            .ignorable(),
        field("topics", Structs(OFFSET_FOR_LEADER_TOPIC)),
    ],
);

const EPOCH_END_OFFSET: &[Field] = &[
    field("errorCode", Int16),
    field("partition", Int32),
    field("leaderEpoch", Int32)
        .since(1)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("endOffset", Int64).unset(Unset::Int(-1)),
];

const OFFSET_FOR_LEADER_TOPIC_RESULT: &[Field] = &[
    field("topic", Text),
    field("partitions", Structs(EPOCH_END_OFFSET)),
];

/// `OffsetForLeaderEpochResponse`.
pub(super) const RESPONSE: Message = versions(
    "OffsetForLeaderEpochResponse",
    2,
    4,
    4,
    &[
        field("throttleTimeMs", Int32).since(2).ignorable(),
        field("topics", Structs(OFFSET_FOR_LEADER_TOPIC_RESULT)),
    ],
);
