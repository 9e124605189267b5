//! Transactions in `__transaction_state`.

use super::Kind::{Array, Int8, Int16, Int32, Int64, Structs, Text};
use super::{Field, Message, NEVER, Unset, field, message};

/// `TransactionLogKey`.
pub const TRANSACTION_LOG_KEY: Message = message(
    "TransactionLogKey",
    0,
    NEVER,
    &[field("transactionalId", Text)],
);

const TRANSACTION_LOG_VALUE_PARTITIONS_SCHEMA: &[Field] =
    &[field("topic", Text), field("partitionIds", Array(&Int32))];

/// `TransactionLogValue`.
pub const TRANSACTION_LOG_VALUE: Message = message(
    "TransactionLogValue",
    1,
    1,
    &[
        field("producerId", Int64),
        field("previousProducerId", Int64)
            .since(1)
            .tag(0, Unset::Int(-1)),
        field("nextProducerId", Int64)
            .since(1)
            .tag(1, Unset::Int(-1)),
        field("producerEpoch", Int16),
        field("nextProducerEpoch", Int16)
            .since(1)
            .tag(3, Unset::Int(-1)),
        field("transactionTimeoutMs", Int32),
        field("transactionStatus", Int8),
        field(
            "transactionPartitions",
            Structs(TRANSACTION_LOG_VALUE_PARTITIONS_SCHEMA),
        )
        .nullable(),
        field("transactionLastUpdateTimestampMs", Int64),
        field("transactionStartTimestampMs", Int64),
        field("clientTransactionVersion", Int16)
            .since(1)
            .tag(2, Unset::Int(0)),
    ],
);
