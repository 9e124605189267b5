//! The tables of `DescribeConfigs`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Array, Bool, Int8, Int16, Int32, Structs, Text};
use crate::message::{Field, Message, Unset, field, versions};

const DESCRIBE_CONFIGS_RESOURCE: &[Field] = &[
    field("resourceType", Int8),
    field("resourceName", Text),
    field("configurationKeys", Array(&Text)).nullable(),
];

/// `DescribeConfigsRequest`.
pub(super) const REQUEST: Message = versions(
    "DescribeConfigsRequest",
    1,
    4,
    4,
    &[
        field("resources", Structs(DESCRIBE_CONFIGS_RESOURCE)),
        field("includeSynonyms", Bool).since(1),
        field("includeDocumentation", Bool).since(3),
    ],
);

const DESCRIBE_CONFIGS_SYNONYM: &[Field] = &[
    field("name", Text).since(1),
    field("value", Text).since(1).nullable(),
    field("source", Int8).since(1),
];

const DESCRIBE_CONFIGS_RESOURCE_RESULT: &[Field] = &[
    field("name", Text),
    field("value", Text).nullable(),
    field("readOnly", Bool),
    field("configSource", Int8)
        .since(1)
        .unset(Unset::Int(-1))
        .ignorable(),
    field("isSensitive", Bool),
    field("synonyms", Structs(DESCRIBE_CONFIGS_SYNONYM))
        .since(1)
        .ignorable(),
    field("configType", Int8).since(3).ignorable(),
    field("documentation", Text).since(3).nullable().ignorable(),
];

const DESCRIBE_CONFIGS_RESULT: &[Field] = &[
    field("errorCode", Int16),
    field("errorMessage", Text).nullable(),
    field("resourceType", Int8),
    field("resourceName", Text),
    field("configs", Structs(DESCRIBE_CONFIGS_RESOURCE_RESULT)),
];

/// `DescribeConfigsResponse`.
pub(super) const RESPONSE: Message = versions(
    "DescribeConfigsResponse",
    1,
    4,
    4,
    &[
        field("throttleTimeMs", Int32),
        field("results", Structs(DESCRIBE_CONFIGS_RESULT)),
    ],
);
