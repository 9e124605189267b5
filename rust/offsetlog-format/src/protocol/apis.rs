//! The APIs that are known here. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.

use super::{
    Api, api_versions, delete_groups, describe_acls, describe_cluster, describe_configs,
    describe_groups, describe_log_dirs, fetch, find_coordinator, heartbeat, init_producer_id,
    join_group, leave_group, list_groups, list_offsets, metadata, offset_commit, offset_delete,
    offset_fetch, offset_for_leader_epoch, produce, sasl_authenticate, sasl_handshake, sync_group,
};

/// `Produce`.
pub static PRODUCE: Api = Api {
    key: 0,
    name: "Produce",
    request: produce::REQUEST,
    response: produce::RESPONSE,
};

/// `Fetch`.
pub static FETCH: Api = Api {
    key: 1,
    name: "Fetch",
    request: fetch::REQUEST,
    response: fetch::RESPONSE,
};

/// `ListOffsets`.
pub static LIST_OFFSETS: Api = Api {
    key: 2,
    name: "ListOffsets",
    request: list_offsets::REQUEST,
    response: list_offsets::RESPONSE,
};

/// `Metadata`.
pub static METADATA: Api = Api {
    key: 3,
    name: "Metadata",
    request: metadata::REQUEST,
    response: metadata::RESPONSE,
};

/// `OffsetCommit`.
pub static OFFSET_COMMIT: Api = Api {
    key: 8,
    name: "OffsetCommit",
    request: offset_commit::REQUEST,
    response: offset_commit::RESPONSE,
};

/// `OffsetFetch`.
pub static OFFSET_FETCH: Api = Api {
    key: 9,
    name: "OffsetFetch",
    request: offset_fetch::REQUEST,
    response: offset_fetch::RESPONSE,
};

/// `FindCoordinator`.
pub static FIND_COORDINATOR: Api = Api {
    key: 10,
    name: "FindCoordinator",
    request: find_coordinator::REQUEST,
    response: find_coordinator::RESPONSE,
};

/// `JoinGroup`.
pub static JOIN_GROUP: Api = Api {
    key: 11,
    name: "JoinGroup",
    request: join_group::REQUEST,
    response: join_group::RESPONSE,
};

/// `Heartbeat`.
pub static HEARTBEAT: Api = Api {
    key: 12,
    name: "Heartbeat",
    request: heartbeat::REQUEST,
    response: heartbeat::RESPONSE,
};

/// `LeaveGroup`.
pub static LEAVE_GROUP: Api = Api {
    key: 13,
    name: "LeaveGroup",
    request: leave_group::REQUEST,
    response: leave_group::RESPONSE,
};

/// `SyncGroup`.
pub static SYNC_GROUP: Api = Api {
    key: 14,
    name: "SyncGroup",
    request: sync_group::REQUEST,
    response: sync_group::RESPONSE,
};

/// `DescribeGroups`.
pub static DESCRIBE_GROUPS: Api = Api {
    key: 15,
    name: "DescribeGroups",
    request: describe_groups::REQUEST,
    response: describe_groups::RESPONSE,
};

/// `ListGroups`.
pub static LIST_GROUPS: Api = Api {
    key: 16,
    name: "ListGroups",
    request: list_groups::REQUEST,
    response: list_groups::RESPONSE,
};

/// `SaslHandshake`.
pub static SASL_HANDSHAKE: Api = Api {
    key: 17,
    name: "SaslHandshake",
    request: sasl_handshake::REQUEST,
    response: sasl_handshake::RESPONSE,
};

/// `ApiVersions`.
pub static API_VERSIONS: Api = Api {
    key: 18,
    name: "ApiVersions",
    request: api_versions::REQUEST,
    response: api_versions::RESPONSE,
};

/// `InitProducerId`.
pub static INIT_PRODUCER_ID: Api = Api {
    key: 22,
    name: "InitProducerId",
    request: init_producer_id::REQUEST,
    response: init_producer_id::RESPONSE,
};

/// `OffsetForLeaderEpoch`.
pub static OFFSET_FOR_LEADER_EPOCH: Api = Api {
    key: 23,
    name: "OffsetForLeaderEpoch",
    request: offset_for_leader_epoch::REQUEST,
    response: offset_for_leader_epoch::RESPONSE,
};

/// `DescribeAcls`.
pub static DESCRIBE_ACLS: Api = Api {
    key: 29,
    name: "DescribeAcls",
    request: describe_acls::REQUEST,
    response: describe_acls::RESPONSE,
};

/// `DescribeConfigs`.
pub static DESCRIBE_CONFIGS: Api = Api {
    key: 32,
    name: "DescribeConfigs",
    request: describe_configs::REQUEST,
    response: describe_configs::RESPONSE,
};

/// `DescribeLogDirs`.
pub static DESCRIBE_LOG_DIRS: Api = Api {
    key: 35,
    name: "DescribeLogDirs",
    request: describe_log_dirs::REQUEST,
    response: describe_log_dirs::RESPONSE,
};

/// `SaslAuthenticate`.
pub static SASL_AUTHENTICATE: Api = Api {
    key: 36,
    name: "SaslAuthenticate",
    request: sasl_authenticate::REQUEST,
    response: sasl_authenticate::RESPONSE,
};

/// `DeleteGroups`.
pub static DELETE_GROUPS: Api = Api {
    key: 42,
    name: "DeleteGroups",
    request: delete_groups::REQUEST,
    response: delete_groups::RESPONSE,
};

/// `OffsetDelete`.
pub static OFFSET_DELETE: Api = Api {
    key: 47,
    name: "OffsetDelete",
    request: offset_delete::REQUEST,
    response: offset_delete::RESPONSE,
};

/// `DescribeCluster`.
pub static DESCRIBE_CLUSTER: Api = Api {
    key: 60,
    name: "DescribeCluster",
    request: describe_cluster::REQUEST,
    response: describe_cluster::RESPONSE,
};

/// All of them, by key.
pub static ALL: &[&Api] = &[
    &PRODUCE,
    &FETCH,
    &LIST_OFFSETS,
    &METADATA,
    &OFFSET_COMMIT,
    &OFFSET_FETCH,
    &FIND_COORDINATOR,
    &JOIN_GROUP,
    &HEARTBEAT,
    &LEAVE_GROUP,
    &SYNC_GROUP,
    &DESCRIBE_GROUPS,
    &LIST_GROUPS,
    &SASL_HANDSHAKE,
    &API_VERSIONS,
    &INIT_PRODUCER_ID,
    &OFFSET_FOR_LEADER_EPOCH,
    &DESCRIBE_ACLS,
    &DESCRIBE_CONFIGS,
    &DESCRIBE_LOG_DIRS,
    &SASL_AUTHENTICATE,
    &DELETE_GROUPS,
    &OFFSET_DELETE,
    &DESCRIBE_CLUSTER,
];
