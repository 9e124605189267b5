//! The tables of `FindCoordinator`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Array, Int8, Int16, Int32, Structs, Text};
use crate::message::{Field, Message, field, versions};

/// `FindCoordinatorRequest`.
pub(super) const REQUEST: Message = versions(
    "FindCoordinatorRequest",
    0,
    6,
    3,
    &[
        field("key", Text).until(3),
        field("keyType", Int8).since(1),
        field("coordinatorKeys", Array(&Text)).since(4),
    ],
);

const COORDINATOR: &[Field] = &[
    field("key", Text).since(4),
    field("nodeId", Int32).since(4),
    field("host", Text).since(4),
    field("port", Int32).since(4),
    field("errorCode", Int16).since(4),
    field("errorMessage", Text).since(4).nullable().ignorable(),
];

/// `FindCoordinatorResponse`.
pub(super) const RESPONSE: Message = versions(
    "FindCoordinatorResponse",
    0,
    6,
    3,
    &[
        field("throttleTimeMs", Int32).since(1).ignorable(),
        field("errorCode", Int16).until(3),
        field("errorMessage", Text)
            .since(1)
            .until(3)
            .nullable()
            .ignorable(),
        field("nodeId", Int32).until(3),
        field("host", Text).until(3),
        field("port", Int32).until(3),
        field("coordinators", Structs(COORDINATOR)).since(4),
    ],
);
