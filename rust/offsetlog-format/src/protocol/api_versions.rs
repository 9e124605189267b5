//! The tables of `ApiVersions`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Bool, Int16, Int32, Int64, Structs, Text};
use crate::message::{Field, Message, Unset, field, versions};

/// `ApiVersionsRequest`.
pub(super) const REQUEST: Message = versions(
    "ApiVersionsRequest",
    0,
    4,
    3,
    &[
        field("clientSoftwareName", Text).since(3).ignorable(),
        field("clientSoftwareVersion", Text).since(3).ignorable(),
    ],
);

const API_VERSION: &[Field] = &[
    field("apiKey", Int16),
    field("minVersion", Int16),
    field("maxVersion", Int16),
];

const SUPPORTED_FEATURE_KEY: &[Field] = &[
    field("name", Text).since(3),
    field("minVersion", Int16).since(3),
    field("maxVersion", Int16).since(3),
];

const FINALIZED_FEATURE_KEY: &[Field] = &[
    field("name", Text).since(3),
    field("maxVersionLevel", Int16).since(3),
    field("minVersionLevel", Int16).since(3),
];

/// `ApiVersionsResponse`.
pub(super) const RESPONSE: Message = versions(
    "ApiVersionsResponse",
    0,
    4,
    3,
    &[
        field("errorCode", Int16),
        field("apiKeys", Structs(API_VERSION)),
        field("throttleTimeMs", Int32).since(1).ignorable(),
        field("supportedFeatures", Structs(SUPPORTED_FEATURE_KEY))
            .since(3)
            .tag(0, Unset::Empty)
            .ignorable(),
        field("finalizedFeaturesEpoch", Int64)
            .since(3)
            .tag(1, Unset::Int(-1))
            .ignorable(),
        field("finalizedFeatures", Structs(FINALIZED_FEATURE_KEY))
            .since(3)
            .tag(2, Unset::Empty)
            .ignorable(),
        field("zkMigrationReady", Bool)
            .since(3)
            .tag(3, Unset::Int(0))
            .ignorable(),
    ],
);
