//! The tables of `OffsetDelete`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Int16, Int32, Structs, Text};
use crate::message::{Field, Message, NEVER, field, versions};

const OFFSET_DELETE_REQUEST_PARTITION: &[Field] = &[field("partitionIndex", Int32)];

const OFFSET_DELETE_REQUEST_TOPIC: &[Field] = &[
    field("name", Text),
    field("partitions", Structs(OFFSET_DELETE_REQUEST_PARTITION)),
];

/// `OffsetDeleteRequest`.
pub(super) const REQUEST: Message = versions(
    "OffsetDeleteRequest",
    0,
    0,
    NEVER,
    &[
        field("groupId", Text),
        field("topics", Structs(OFFSET_DELETE_REQUEST_TOPIC)),
    ],
);

const OFFSET_DELETE_RESPONSE_PARTITION: &[Field] =
    &[field("partitionIndex", Int32), field("errorCode", Int16)];

const OFFSET_DELETE_RESPONSE_TOPIC: &[Field] = &[
    field("name", Text),
    field("partitions", Structs(OFFSET_DELETE_RESPONSE_PARTITION)),
];

/// `OffsetDeleteResponse`.
pub(super) const RESPONSE: Message = versions(
    "OffsetDeleteResponse",
    0,
    0,
    NEVER,
    &[
        field("errorCode", Int16),
        field("throttleTimeMs", Int32).ignorable(),
        field("topics", Structs(OFFSET_DELETE_RESPONSE_TOPIC)),
    ],
);
