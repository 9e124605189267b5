//! The tables of `Heartbeat`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Int16, Int32, Text};
use crate::message::{Message, Unset, field, versions};

/// `HeartbeatRequest`.
pub(super) const REQUEST: Message = versions(
    "HeartbeatRequest",
    0,
    4,
    4,
    &[
        field("groupId", Text),
        field("generationId", Int32),
        field("memberId", Text),
        field("groupInstanceId", Text)
            .since(3)
            .nullable()
            .unset(Unset::Null),
    ],
);

/// `HeartbeatResponse`.
pub(super) const RESPONSE: Message = versions(
    "HeartbeatResponse",
    0,
    4,
    4,
    &[
        field("throttleTimeMs", Int32).since(1).ignorable(),
        field("errorCode", Int16),
    ],
);
