//! The tables of `SyncGroup`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Bytes, Int16, Int32, Structs, Text};
use crate::message::{Field, Message, Unset, field, versions};

const SYNC_GROUP_REQUEST_ASSIGNMENT: &[Field] =
    &[field("memberId", Text), field("assignment", Bytes)];

/// `SyncGroupRequest`.
pub(super) const REQUEST: Message = versions(
    "SyncGroupRequest",
    0,
    5,
    4,
    &[
        field("groupId", Text),
        field("generationId", Int32),
        field("memberId", Text),
        field("groupInstanceId", Text)
            .since(3)
            .nullable()
            .unset(Unset::Null),
        field("protocolType", Text)
            .since(5)
            .nullable()
            .unset(Unset::Null)
            .ignorable(),
        field("protocolName", Text)
            .since(5)
            .nullable()
            .unset(Unset::Null)
            .ignorable(),
        field("assignments", Structs(SYNC_GROUP_REQUEST_ASSIGNMENT)),
    ],
);

/// `SyncGroupResponse`.
pub(super) const RESPONSE: Message = versions(
    "SyncGroupResponse",
    0,
    5,
    4,
    &[
        field("throttleTimeMs", Int32).since(1).ignorable(),
        field("errorCode", Int16),
        field("protocolType", Text)
            .since(5)
            .nullable()
            .unset(Unset::Null)
            .ignorable(),
        field("protocolName", Text)
            .since(5)
            .nullable()
            .unset(Unset::Null)
            .ignorable(),
        field("assignment", Bytes),
    ],
);
