//! The tables of `DescribeAcls`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Int8, Int16, Int32, Structs, Text};
use crate::message::{Field, Message, Unset, field, versions};

/// `DescribeAclsRequest`.
pub(super) const REQUEST: Message = versions(
    "DescribeAclsRequest",
    1,
    3,
    2,
    &[
        field("resourceTypeFilter", Int8),
        field("resourceNameFilter", Text).nullable(),
        field("patternTypeFilter", Int8)
            .since(1)
            .unset(Unset::Int(3)),
        field("principalFilter", Text).nullable(),
        field("hostFilter", Text).nullable(),
        field("operation", Int8),
        field("permissionType", Int8),
    ],
);

const ACL_DESCRIPTION: &[Field] = &[
    field("principal", Text),
    field("host", Text),
    field("operation", Int8),
    field("permissionType", Int8),
];

const DESCRIBE_ACLS_RESOURCE: &[Field] = &[
    field("resourceType", Int8),
    field("resourceName", Text),
    field("patternType", Int8).since(1).unset(Unset::Int(3)),
    field("acls", Structs(ACL_DESCRIPTION)),
];

/// `DescribeAclsResponse`.
pub(super) const RESPONSE: Message = versions(
    "DescribeAclsResponse",
    1,
    3,
    2,
    &[
        field("throttleTimeMs", Int32),
        field("errorCode", Int16),
        field("errorMessage", Text).nullable(),
        field("resources", Structs(DESCRIBE_ACLS_RESOURCE)),
    ],
);
