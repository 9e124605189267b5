//! The tables of `LeaveGroup`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Int16, Int32, Structs, Text};
use crate::message::{Field, Message, Unset, field, versions};

const MEMBER_IDENTITY: &[Field] = &[
    field("memberId", Text).since(3),
    field("groupInstanceId", Text)
        .since(3)
        .nullable()
        .unset(Unset::Null),
    field("reason", Text)
        .since(5)
        .nullable()
        .unset(Unset::Null)
        .ignorable(),
];

/// `LeaveGroupRequest`.
pub(super) const REQUEST: Message = versions(
    "LeaveGroupRequest",
    0,
    5,
    4,
    &[
        field("groupId", Text),
        field("memberId", Text).until(2),
        field("members", Structs(MEMBER_IDENTITY)).since(3),
    ],
);

const MEMBER_RESPONSE: &[Field] = &[
    field("memberId", Text).since(3),
    field("groupInstanceId", Text).since(3).nullable(),
    field("errorCode", Int16).since(3),
];

/// `LeaveGroupResponse`.
pub(super) const RESPONSE: Message = versions(
    "LeaveGroupResponse",
    0,
    5,
    4,
    &[
        field("throttleTimeMs", Int32).since(1).ignorable(),
        field("errorCode", Int16),
        field("members", Structs(MEMBER_RESPONSE)).since(3),
    ],
);
