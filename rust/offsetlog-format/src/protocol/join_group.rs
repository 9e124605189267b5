//! The tables of `JoinGroup`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Bool, Bytes, Int16, Int32, Structs, Text};
use crate::message::{Field, Message, Unset, field, versions};

const JOIN_GROUP_REQUEST_PROTOCOL: &[Field] = &[field("name", Text), field("metadata", Bytes)];

/// `JoinGroupRequest`.
pub(super) const REQUEST: Message = versions(
    "JoinGroupRequest",
    0,
    9,
    6,
    &[
        field("groupId", Text),
        field("sessionTimeoutMs", Int32),
        field("rebalanceTimeoutMs", Int32)
            .since(1)
            .unset(Unset::Int(-1))
            .ignorable(),
        field("memberId", Text),
        field("groupInstanceId", Text)
            .since(5)
            .nullable()
            .unset(Unset::Null),
        field("protocolType", Text),
        field("protocols", Structs(JOIN_GROUP_REQUEST_PROTOCOL)),
        field("reason", Text)
            .since(8)
            .nullable()
            .unset(Unset::Null)
            .ignorable(),
    ],
);

const JOIN_GROUP_RESPONSE_MEMBER: &[Field] = &[
    field("memberId", Text),
    field("groupInstanceId", Text)
        .since(5)
        .nullable()
        .unset(Unset::Null)
        .ignorable(),
    field("metadata", Bytes),
];

/// `JoinGroupResponse`.
pub(super) const RESPONSE: Message = versions(
    "JoinGroupResponse",
    0,
    9,
    6,
    &[
        field("throttleTimeMs", Int32).since(2).ignorable(),
        field("errorCode", Int16),
        field("generationId", Int32).unset(Unset::Int(-1)),
        field("protocolType", Text)
            .since(7)
            .nullable()
            .unset(Unset::Null)
            .ignorable(),
        field("protocolName", Text).nullable_since(7),
        field("leader", Text),
        field("skipAssignment", Bool).since(9),
        field("memberId", Text),
        field("members", Structs(JOIN_GROUP_RESPONSE_MEMBER)),
    ],
);
