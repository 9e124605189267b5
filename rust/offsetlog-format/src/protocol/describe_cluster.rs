//! The tables of `DescribeCluster`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use crate::message::Kind::{Bool, Int8, Int16, Int32, Structs, Text};
use crate::message::{Field, Message, Unset, field, versions};

/// `DescribeClusterRequest`.
pub(super) const REQUEST: Message = versions(
    "DescribeClusterRequest",
    0,
    2,
    0,
    &[
        field("includeClusterAuthorizedOperations", Bool),
        field("endpointType", Int8).since(1).unset(Unset::Int(1)),
        field("includeFencedBrokers", Bool).since(2),
    ],
);

const DESCRIBE_CLUSTER_BROKER: &[Field] = &[
    field("brokerId", Int32),
    field("host", Text),
    field("port", Int32),
    field("rack", Text).nullable().unset(Unset::Null),
    field("isFenced", Bool).since(2),
];

/// `DescribeClusterResponse`.
pub(super) const RESPONSE: Message = versions(
    "DescribeClusterResponse",
    0,
    2,
    0,
    &[
        field("throttleTimeMs", Int32),
        field("errorCode", Int16),
        field("errorMessage", Text).nullable().unset(Unset::Null),
        field("endpointType", Int8).since(1).unset(Unset::Int(1)),
        field("clusterId", Text),
        field("controllerId", Int32).unset(Unset::Int(-1)),
        field("brokers", Structs(DESCRIBE_CLUSTER_BROKER)),
        field("clusterAuthorizedOperations", Int32).unset(Unset::Int(-2_147_483_648)),
    ],
);
