//! The tables of `DescribeLogDirs`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Array, Bool, Int16, Int32, Int64, Structs, Text};
use crate::message::{Field, Message, Unset, field, versions};

const DESCRIBABLE_LOG_DIR_TOPIC: &[Field] =
    &[field("topic", Text), field("partitions", Array(&Int32))];

/// `DescribeLogDirsRequest`.
pub(super) const REQUEST: Message = versions(
    "DescribeLogDirsRequest",
    1,
    5,
    2,
    &[field("topics", Structs(DESCRIBABLE_LOG_DIR_TOPIC)).nullable()],
);

const DESCRIBE_LOG_DIRS_PARTITION: &[Field] = &[
    field("partitionIndex", Int32),
    field("partitionSize", Int64),
    field("offsetLag", Int64),
    field("isFutureKey", Bool),
];

const DESCRIBE_LOG_DIRS_TOPIC: &[Field] = &[
    field("name", Text),
    field("partitions", Structs(DESCRIBE_LOG_DIRS_PARTITION)),
];

const DESCRIBE_LOG_DIRS_RESULT: &[Field] = &[
    field("errorCode", Int16),
    field("logDir", Text),
    field("topics", Structs(DESCRIBE_LOG_DIRS_TOPIC)),
    field("totalBytes", Int64)
        .since(4)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("usableBytes", Int64)
        .since(4)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("isCordoned", Bool).since(5).ignorable(),
];

/// `DescribeLogDirsResponse`.
pub(super) const RESPONSE: Message = versions(
    "DescribeLogDirsResponse",
    1,
    5,
    2,
    &[
        field("throttleTimeMs", Int32),
        field("errorCode", Int16).since(3).ignorable(),
        field("results", Structs(DESCRIBE_LOG_DIRS_RESULT)),
    ],
);
