//! The tables of `DeleteGroups`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Array, Int16, Int32, Structs, Text};
use crate::message::{Field, Message, field, versions};

/// `DeleteGroupsRequest`.
pub(super) const REQUEST: Message = versions(
    "DeleteGroupsRequest",
    0,
    2,
    2,
    &[field("groupsNames", Array(&Text))],
);

const DELETABLE_GROUP_RESULT: &[Field] = &[field("groupId", Text), field("errorCode", Int16)];

/// `DeleteGroupsResponse`.
pub(super) const RESPONSE: Message = versions(
    "DeleteGroupsResponse",
    0,
    2,
    2,
    &[
        field("throttleTimeMs", Int32),
        field("results", Structs(DELETABLE_GROUP_RESULT)),
    ],
);
