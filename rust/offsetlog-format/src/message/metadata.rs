//! What the controllers know of a cluster, in `__cluster_metadata`.

use super::Kind::{
    Array, Bool, Bytes, Float64, Int8, Int16, Int32, Int64, Structs, Text, Uint16, Uuid,
};
use super::{Field, Message, Unset, field, message};

/// `AbortTransactionRecord`.
pub const ABORT_TRANSACTION_RECORD: Message = message(
    "AbortTransactionRecord",
    0,
    0,
    &[field("reason", Text).nullable().tag(0, Unset::Null)],
);

/// `AccessControlEntryRecord`.
pub const ACCESS_CONTROL_ENTRY_RECORD: Message = message(
    "AccessControlEntryRecord",
    0,
    0,
    &[
        field("id", Uuid),
        field("resourceType", Int8),
        field("resourceName", Text),
        field("patternType", Int8),
        field("principal", Text),
        field("host", Text),
        field("operation", Int8),
        field("permissionType", Int8),
    ],
);

/// `BeginTransactionRecord`.
pub const BEGIN_TRANSACTION_RECORD: Message = message(
    "BeginTransactionRecord",
    0,
    0,
    &[field("name", Text).nullable().tag(0, Unset::Null)],
);

/// `BrokerRegistrationChangeRecord`.
pub const BROKER_REGISTRATION_CHANGE_RECORD: Message = message(
    "BrokerRegistrationChangeRecord",
    3,
    0,
    &[
        field("brokerId", Int32),
        field("brokerEpoch", Int64),
        field("fenced", Int8).tag(0, Unset::Int(0)),
        field("inControlledShutdown", Int8)
            .since(1)
            .tag(1, Unset::Int(0)),
        field("logDirs", Array(&Uuid)).since(2).tag(2, Unset::Empty),
        field("cordonedLogDirs", Array(&Uuid))
            .since(3)
            .nullable()
            .tag(3, Unset::Null),
    ],
);

/// `ClearElrRecord`.
pub const CLEAR_ELR_RECORD: Message = message("ClearElrRecord", 0, 0, &[field("topicName", Text)]);

const CLIENT_QUOTA_RECORD_ENTITY_DATA: &[Field] = &[
    field("entityType", Text),
    field("entityName", Text).nullable(),
];

/// `ClientQuotaRecord`.
pub const CLIENT_QUOTA_RECORD: Message = message(
    "ClientQuotaRecord",
    0,
    0,
    &[
        field("entity", Structs(CLIENT_QUOTA_RECORD_ENTITY_DATA)),
        field("key", Text),
        field("value", Float64),
        field("remove", Bool),
    ],
);

/// `ConfigRecord`.
pub const CONFIG_RECORD: Message = message(
    "ConfigRecord",
    0,
    0,
    &[
        field("resourceType", Int8),
        field("resourceName", Text),
        field("name", Text),
        field("value", Text).nullable(),
    ],
);

/// `DelegationTokenRecord`.
pub const DELEGATION_TOKEN_RECORD: Message = message(
    "DelegationTokenRecord",
    0,
    0,
    &[
        field("owner", Text),
        field("requester", Text),
        field("renewers", Array(&Text)),
        field("issueTimestamp", Int64),
        field("maxTimestamp", Int64),
        field("expirationTimestamp", Int64),
        field("tokenId", Text),
    ],
);

/// `EndTransactionRecord`.
pub const END_TRANSACTION_RECORD: Message = message("EndTransactionRecord", 0, 0, &[]);

/// `FeatureLevelRecord`.
pub const FEATURE_LEVEL_RECORD: Message = message(
    "FeatureLevelRecord",
    0,
    0,
    &[field("name", Text), field("featureLevel", Int16)],
);

/// `FenceBrokerRecord`.
pub const FENCE_BROKER_RECORD: Message = message(
    "FenceBrokerRecord",
    0,
    0,
    &[field("id", Int32), field("epoch", Int64)],
);

/// `NoOpRecord`.
pub const NO_OP_RECORD: Message = message("NoOpRecord", 0, 0, &[]);

/// `PartitionChangeRecord`.
pub const PARTITION_CHANGE_RECORD: Message = message(
    "PartitionChangeRecord",
    2,
    0,
    &[
        field("partitionId", Int32),
        field("topicId", Uuid),
        field("isr", Array(&Int32)).nullable().tag(0, Unset::Null),
        field("leader", Int32).tag(1, Unset::Int(-2)),
        field("replicas", Array(&Int32))
            .nullable()
            .tag(2, Unset::Null),
        field("removingReplicas", Array(&Int32))
            .nullable()
            .tag(3, Unset::Null),
        field("addingReplicas", Array(&Int32))
            .nullable()
            .tag(4, Unset::Null),
        field("leaderRecoveryState", Int8).tag(5, Unset::Int(-1)),
        field("directories", Array(&Uuid))
            .since(1)
            .nullable()
            .tag(8, Unset::Null),
        field("eligibleLeaderReplicas", Array(&Int32))
            .since(2)
            .nullable()
            .tag(6, Unset::Null),
        field("lastKnownElr", Array(&Int32))
            .since(2)
            .nullable()
            .tag(7, Unset::Null),
    ],
);

/// `PartitionRecord`.
pub const PARTITION_RECORD: Message = message(
    "PartitionRecord",
    2,
    0,
    &[
        field("partitionId", Int32),
        field("topicId", Uuid),
        field("replicas", Array(&Int32)),
        field("isr", Array(&Int32)),
        field("removingReplicas", Array(&Int32)),
        field("addingReplicas", Array(&Int32)),
        field("leader", Int32),
        field("leaderRecoveryState", Int8).tag(0, Unset::Int(0)),
        field("leaderEpoch", Int32),
        field("partitionEpoch", Int32),
        field("directories", Array(&Uuid)).since(1),
        field("eligibleLeaderReplicas", Array(&Int32))
            .since(2)
            .nullable()
            .tag(1, Unset::Null),
        field("lastKnownElr", Array(&Int32))
            .since(2)
            .nullable()
            .tag(2, Unset::Null),
    ],
);

/// `ProducerIdsRecord`.
pub const PRODUCER_IDS_RECORD: Message = message(
    "ProducerIdsRecord",
    0,
    0,
    &[
        field("brokerId", Int32),
        field("brokerEpoch", Int64),
        field("nextProducerId", Int64),
    ],
);

const REGISTER_BROKER_RECORD_BROKER_ENDPOINT: &[Field] = &[
    field("name", Text),
    field("host", Text),
    field("port", Uint16),
    field("securityProtocol", Int16),
];

const REGISTER_BROKER_RECORD_BROKER_FEATURE: &[Field] = &[
    field("name", Text),
    field("minSupportedVersion", Int16),
    field("maxSupportedVersion", Int16),
];

/// `RegisterBrokerRecord`.
pub const REGISTER_BROKER_RECORD: Message = message(
    "RegisterBrokerRecord",
    4,
    0,
    &[
        field("brokerId", Int32),
        field("isMigratingZkBroker", Bool).since(2),
        field("incarnationId", Uuid),
        field("brokerEpoch", Int64),
        field("endPoints", Structs(REGISTER_BROKER_RECORD_BROKER_ENDPOINT)),
        field("features", Structs(REGISTER_BROKER_RECORD_BROKER_FEATURE)),
        field("rack", Text).nullable(),
        field("fenced", Bool),
        field("inControlledShutdown", Bool).since(1),
        field("logDirs", Array(&Uuid)).since(3).tag(0, Unset::Empty),
        field("cordonedLogDirs", Array(&Uuid))
            .since(4)
            .nullable()
            .tag(1, Unset::Null),
    ],
);

const REGISTER_CONTROLLER_RECORD_CONTROLLER_ENDPOINT: &[Field] = &[
    field("name", Text),
    field("host", Text),
    field("port", Uint16),
    field("securityProtocol", Int16),
];

const REGISTER_CONTROLLER_RECORD_CONTROLLER_FEATURE: &[Field] = &[
    field("name", Text),
    field("minSupportedVersion", Int16),
    field("maxSupportedVersion", Int16),
];

/// `RegisterControllerRecord`.
pub const REGISTER_CONTROLLER_RECORD: Message = message(
    "RegisterControllerRecord",
    0,
    0,
    &[
        field("controllerId", Int32),
        field("incarnationId", Uuid),
        field("zkMigrationReady", Bool),
        field(
            "endPoints",
            Structs(REGISTER_CONTROLLER_RECORD_CONTROLLER_ENDPOINT),
        ),
        field(
            "features",
            Structs(REGISTER_CONTROLLER_RECORD_CONTROLLER_FEATURE),
        ),
    ],
);

/// `RemoveAccessControlEntryRecord`.
pub const REMOVE_ACCESS_CONTROL_ENTRY_RECORD: Message =
    message("RemoveAccessControlEntryRecord", 0, 0, &[field("id", Uuid)]);

/// `RemoveDelegationTokenRecord`.
pub const REMOVE_DELEGATION_TOKEN_RECORD: Message = message(
    "RemoveDelegationTokenRecord",
    0,
    0,
    &[field("tokenId", Text)],
);

/// `RemoveTopicRecord`.
pub const REMOVE_TOPIC_RECORD: Message =
    message("RemoveTopicRecord", 0, 0, &[field("topicId", Uuid)]);

/// `RemoveUserScramCredentialRecord`.
pub const REMOVE_USER_SCRAM_CREDENTIAL_RECORD: Message = message(
    "RemoveUserScramCredentialRecord",
    0,
    0,
    &[field("name", Text), field("mechanism", Int8)],
);

/// `TopicRecord`.
pub const TOPIC_RECORD: Message = message(
    "TopicRecord",
    0,
    0,
    &[field("name", Text), field("topicId", Uuid)],
);

/// `UnfenceBrokerRecord`.
pub const UNFENCE_BROKER_RECORD: Message = message(
    "UnfenceBrokerRecord",
    0,
    0,
    &[field("id", Int32), field("epoch", Int64)],
);

/// `UnregisterBrokerRecord`.
pub const UNREGISTER_BROKER_RECORD: Message = message(
    "UnregisterBrokerRecord",
    0,
    0,
    &[field("brokerId", Int32), field("brokerEpoch", Int64)],
);

/// `UserScramCredentialRecord`.
pub const USER_SCRAM_CREDENTIAL_RECORD: Message = message(
    "UserScramCredentialRecord",
    0,
    0,
    &[
        field("name", Text),
        field("mechanism", Int8),
        field("salt", Bytes),
        field("storedKey", Bytes),
        field("serverKey", Bytes),
        field("iterations", Int32),
    ],
);

/// `ZkMigrationStateRecord`.
pub const ZK_MIGRATION_STATE_RECORD: Message = message(
    "ZkMigrationStateRecord",
    0,
    0,
    &[field("zkMigrationState", Int8)],
);
