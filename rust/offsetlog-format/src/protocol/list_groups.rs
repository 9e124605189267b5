//! The tables of `ListGroups`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Array, Int16, Int32, Structs, Text};
use crate::message::{Field, Message, field, versions};

/// `ListGroupsRequest`.
pub(super) const REQUEST: Message = versions(
    "ListGroupsRequest",
    0,
    5,
    3,
    &[
        field("statesFilter", Array(&Text)).since(4),
        field("typesFilter", Array(&Text)).since(5),
    ],
);

const LISTED_GROUP: &[Field] = &[
    field("groupId", Text),
    field("protocolType", Text),
    field("groupState", Text).since(4).ignorable(),
    field("groupType", Text).since(5).ignorable(),
];

/// `ListGroupsResponse`.
pub(super) const RESPONSE: Message = versions(
    "ListGroupsResponse",
    0,
    5,
    3,
    &[
        field("throttleTimeMs", Int32).since(1).ignorable(),
        field("errorCode", Int16),
        field("groups", Structs(LISTED_GROUP)),
    ],
);
