//! The tables of `InitProducerId`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Bool, Int16, Int32, Int64, Text};
use crate::message::{Message, Unset, field, versions};

/// `InitProducerIdRequest`.
pub(super) const REQUEST: Message = versions(
    "InitProducerIdRequest",
    0,
    6,
    2,
    &[
        field("transactionalId", Text).nullable(),
        field("transactionTimeoutMs", Int32),
        field("producerId", Int64).since(3).unset(Unset::Int(-1)),
        field("producerEpoch", Int16).since(3).unset(Unset::Int(-1)),
        field("enable2Pc", Bool).since(6),
        field("keepPreparedTxn", Bool).since(6),
    ],
);

/// `InitProducerIdResponse`.
pub(super) const RESPONSE: Message = versions(
    "InitProducerIdResponse",
    0,
    6,
    2,
    &[
        field("throttleTimeMs", Int32).ignorable(),
        field("errorCode", Int16),
        field("producerId", Int64).unset(Unset::Int(-1)),
        field("producerEpoch", Int16),
        field("ongoingTxnProducerId", Int64)
            .since(6)
            .unset(Unset::Int(-1)),
        field("ongoingTxnProducerEpoch", Int16)
            .since(6)
            .unset(Unset::Int(-1)),
    ],
);
