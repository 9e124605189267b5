//! What members of classic groups tell each other: bytes within group metadata that begin with their version.

use super::Kind::{Array, Bytes, Int32, Structs, Text};
use super::{Field, Message, NEVER, field, message};

const CONSUMER_PROTOCOL_SUBSCRIPTION_TOPIC_PARTITION: &[Field] =
    &[field("topic", Text), field("partitions", Array(&Int32))];

/// `ConsumerProtocolSubscription`.
pub const CONSUMER_PROTOCOL_SUBSCRIPTION: Message = message(
    "ConsumerProtocolSubscription",
    3,
    NEVER,
    &[
        field("topics", Array(&Text)),
        field("userData", Bytes).nullable(),
        field(
            "ownedPartitions",
            Structs(CONSUMER_PROTOCOL_SUBSCRIPTION_TOPIC_PARTITION),
        )
        .since(1),
        field("generationId", Int32).since(2),
        field("rackId", Text).since(3).nullable(),
    ],
);

const CONSUMER_PROTOCOL_ASSIGNMENT_TOPIC_PARTITION: &[Field] =
    &[field("topic", Text), field("partitions", Array(&Int32))];

/// `ConsumerProtocolAssignment`.
pub const CONSUMER_PROTOCOL_ASSIGNMENT: Message = message(
    "ConsumerProtocolAssignment",
    3,
    NEVER,
    &[
        field(
            "assignedPartitions",
            Structs(CONSUMER_PROTOCOL_ASSIGNMENT_TOPIC_PARTITION),
        ),
        field("userData", Bytes).nullable(),
    ],
);
