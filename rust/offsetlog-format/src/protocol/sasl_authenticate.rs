//! The tables of `SaslAuthenticate`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Bytes, Int16, Int64, Text};
use crate::message::{Message, field, versions};

/// `SaslAuthenticateRequest`.
pub(super) const REQUEST: Message = versions(
    "SaslAuthenticateRequest",
    0,
    2,
    2,
    &[field("authBytes", Bytes)],
);

/// `SaslAuthenticateResponse`.
pub(super) const RESPONSE: Message = versions(
    "SaslAuthenticateResponse",
    0,
    2,
    2,
    &[
        field("errorCode", Int16),
        field("errorMessage", Text).nullable(),
        field("authBytes", Bytes),
        field("sessionLifetimeMs", Int64).since(1).ignorable(),
    ],
);
