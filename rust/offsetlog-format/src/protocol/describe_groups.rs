//! The tables of `DescribeGroups`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Array, Bool, Bytes, Int16, Int32, Structs, Text};
use crate::message::{Field, Message, Unset, field, versions};

/// `DescribeGroupsRequest`.
pub(super) const REQUEST: Message = versions(
    "DescribeGroupsRequest",
    0,
    6,
    5,
    &[
        field("groups", Array(&Text)),
        field("includeAuthorizedOperations", Bool).since(3),
    ],
);

const DESCRIBED_GROUP_MEMBER: &[Field] = &[
    field("memberId", Text),
    field("groupInstanceId", Text)
        .since(4)
        .nullable()
        .unset(Unset::Null)
        .ignorable(),
    field("clientId", Text),
    field("clientHost", Text),
    field("memberMetadata", Bytes),
    field("memberAssignment", Bytes),
];

const DESCRIBED_GROUP: &[Field] = &[
    field("errorCode", Int16),
    field("errorMessage", Text)
        .since(6)
        .nullable()
        .unset(Unset::Null),
    field("groupId", Text),
    field("groupState", Text),
    field("protocolType", Text),
    field("protocolData", Text),
    field("members", Structs(DESCRIBED_GROUP_MEMBER)),
    field("authorizedOperations", Int32)
        .since(3)
        .unset(Unset::Int(-2_147_483_648)),
];

/// `DescribeGroupsResponse`.
pub(super) const RESPONSE: Message = versions(
    "DescribeGroupsResponse",
    0,
    6,
    5,
    &[
        field("throttleTimeMs", Int32).since(1).ignorable(),
        field("groups", Structs(DESCRIBED_GROUP)),
    ],
);
