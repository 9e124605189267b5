//! The tables of `SaslHandshake`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Array, Int16, Text};
use crate::message::{Message, NEVER, field, versions};

/// `SaslHandshakeRequest`.
pub(super) const REQUEST: Message = versions(
    "SaslHandshakeRequest",
    0,
    1,
    NEVER,
    &[field("mechanism", Text)],
);

/// `SaslHandshakeResponse`.
pub(super) const RESPONSE: Message = versions(
    "SaslHandshakeResponse",
    0,
    1,
    NEVER,
    &[field("errorCode", Int16), field("mechanisms", Array(&Text))],
);
