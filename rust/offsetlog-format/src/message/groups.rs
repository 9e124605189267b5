//! Groups of consumers, classic and new, in `__consumer_offsets`: offsets, members, assignments.

use super::Kind::{Array, Bytes, Int8, Int32, Int64, Struct, Structs, Text, Uuid};
use super::{Field, Message, NEVER, Unset, field, message};

/// `ConsumerGroupCurrentMemberAssignmentKey`.
pub const CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Message = message(
    "ConsumerGroupCurrentMemberAssignmentKey",
    0,
    NEVER,
    &[field("groupId", Text), field("memberId", Text)],
);

const CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_TOPIC_PARTITIONS: &[Field] = &[
    field("topicId", Uuid),
    field("partitions", Array(&Int32)),
    field("assignmentEpochs", Array(&Int32))
        .nullable()
        .tag(0, Unset::Empty),
];

/// `ConsumerGroupCurrentMemberAssignmentValue`.
pub const CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Message = message(
    "ConsumerGroupCurrentMemberAssignmentValue",
    0,
    0,
    &[
        field("memberEpoch", Int32),
        field("previousMemberEpoch", Int32),
        field("state", Int8),
        field(
            "assignedPartitions",
            Structs(CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_TOPIC_PARTITIONS),
        ),
        field(
            "partitionsPendingRevocation",
            Structs(CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_TOPIC_PARTITIONS),
        ),
    ],
);

/// `ConsumerGroupMemberMetadataKey`.
pub const CONSUMER_GROUP_MEMBER_METADATA_KEY: Message = message(
    "ConsumerGroupMemberMetadataKey",
    0,
    NEVER,
    &[field("groupId", Text), field("memberId", Text)],
);

const CONSUMER_GROUP_MEMBER_METADATA_VALUE_CLASSIC_PROTOCOL: &[Field] =
    &[field("name", Text), field("metadata", Bytes)];

const CONSUMER_GROUP_MEMBER_METADATA_VALUE_CLASSIC_MEMBER_METADATA: &[Field] = &[
    field("sessionTimeoutMs", Int32),
    field(
        "supportedProtocols",
        Structs(CONSUMER_GROUP_MEMBER_METADATA_VALUE_CLASSIC_PROTOCOL),
    ),
];

/// `ConsumerGroupMemberMetadataValue`.
pub const CONSUMER_GROUP_MEMBER_METADATA_VALUE: Message = message(
    "ConsumerGroupMemberMetadataValue",
    0,
    0,
    &[
        field("instanceId", Text).nullable(),
        field("rackId", Text).nullable(),
        field("clientId", Text),
        field("clientHost", Text),
        field("subscribedTopicNames", Array(&Text)),
        field("subscribedTopicRegex", Text).nullable(),
        field("rebalanceTimeoutMs", Int32),
        field("serverAssignor", Text).nullable(),
        field(
            "classicMemberMetadata",
            Struct(CONSUMER_GROUP_MEMBER_METADATA_VALUE_CLASSIC_MEMBER_METADATA),
        )
        .nullable()
        .tag(0, Unset::Struct),
    ],
);

/// `ConsumerGroupMetadataKey`.
pub const CONSUMER_GROUP_METADATA_KEY: Message = message(
    "ConsumerGroupMetadataKey",
    0,
    NEVER,
    &[field("groupId", Text)],
);

/// `ConsumerGroupMetadataValue`.
pub const CONSUMER_GROUP_METADATA_VALUE: Message = message(
    "ConsumerGroupMetadataValue",
    0,
    0,
    &[
        field("epoch", Int32),
        field("metadataHash", Int64).tag(0, Unset::Int(0)),
    ],
);

/// `ConsumerGroupPartitionMetadataKey`.
pub const CONSUMER_GROUP_PARTITION_METADATA_KEY: Message = message(
    "ConsumerGroupPartitionMetadataKey",
    0,
    NEVER,
    &[field("groupId", Text)],
);

const CONSUMER_GROUP_PARTITION_METADATA_VALUE_PARTITION_METADATA: &[Field] =
    &[field("partition", Int32), field("racks", Array(&Text))];

const CONSUMER_GROUP_PARTITION_METADATA_VALUE_TOPIC_METADATA: &[Field] = &[
    field("topicId", Uuid),
    field("topicName", Text),
    field("numPartitions", Int32),
    field(
        "partitionMetadata",
        Structs(CONSUMER_GROUP_PARTITION_METADATA_VALUE_PARTITION_METADATA),
    ),
];

/// `ConsumerGroupPartitionMetadataValue`.
pub const CONSUMER_GROUP_PARTITION_METADATA_VALUE: Message = message(
    "ConsumerGroupPartitionMetadataValue",
    0,
    0,
    &[field(
        "topics",
        Structs(CONSUMER_GROUP_PARTITION_METADATA_VALUE_TOPIC_METADATA),
    )],
);

/// `ConsumerGroupRegularExpressionKey`.
pub const CONSUMER_GROUP_REGULAR_EXPRESSION_KEY: Message = message(
    "ConsumerGroupRegularExpressionKey",
    0,
    NEVER,
    &[field("groupId", Text), field("regularExpression", Text)],
);

/// `ConsumerGroupRegularExpressionValue`.
pub const CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE: Message = message(
    "ConsumerGroupRegularExpressionValue",
    0,
    0,
    &[
        field("topics", Array(&Text)),
        field("version", Int64),
        field("timestamp", Int64),
    ],
);

/// `ConsumerGroupTargetAssignmentMemberKey`.
pub const CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY: Message = message(
    "ConsumerGroupTargetAssignmentMemberKey",
    0,
    NEVER,
    &[field("groupId", Text), field("memberId", Text)],
);

const CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE_TOPIC_PARTITION: &[Field] =
    &[field("topicId", Uuid), field("partitions", Array(&Int32))];

/// `ConsumerGroupTargetAssignmentMemberValue`.
pub const CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Message = message(
    "ConsumerGroupTargetAssignmentMemberValue",
    0,
    0,
    &[field(
        "topicPartitions",
        Structs(CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE_TOPIC_PARTITION),
    )],
);

/// `ConsumerGroupTargetAssignmentMetadataKey`.
pub const CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY: Message = message(
    "ConsumerGroupTargetAssignmentMetadataKey",
    0,
    NEVER,
    &[field("groupId", Text)],
);

/// `ConsumerGroupTargetAssignmentMetadataValue`.
pub const CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Message = message(
    "ConsumerGroupTargetAssignmentMetadataValue",
    0,
    0,
    &[
        field("assignmentEpoch", Int32),
        field("assignmentTimestamp", Int64).tag(0, Unset::Int(0)),
    ],
);

/// `GroupMetadataKey`.
pub const GROUP_METADATA_KEY: Message =
    message("GroupMetadataKey", 0, NEVER, &[field("group", Text)]);

const GROUP_METADATA_VALUE_MEMBER_METADATA: &[Field] = &[
    field("memberId", Text),
    field("groupInstanceId", Text).since(3).nullable(),
    field("clientId", Text),
    field("clientHost", Text),
    field("rebalanceTimeout", Int32).since(1),
    field("sessionTimeout", Int32),
    field("subscription", Bytes),
    field("assignment", Bytes),
];

/// `GroupMetadataValue`.
pub const GROUP_METADATA_VALUE: Message = message(
    "GroupMetadataValue",
    4,
    4,
    &[
        field("protocolType", Text),
        field("generation", Int32),
        field("protocol", Text).nullable(),
        field("leader", Text).nullable(),
        field("currentStateTimestamp", Int64).since(2),
        field("members", Structs(GROUP_METADATA_VALUE_MEMBER_METADATA)),
    ],
);

/// `LegacyOffsetCommitKey`.
pub const LEGACY_OFFSET_COMMIT_KEY: Message = message(
    "LegacyOffsetCommitKey",
    0,
    NEVER,
    &[
        field("group", Text),
        field("topic", Text),
        field("partition", Int32),
    ],
);

/// `LegacyOffsetCommitValue`.
pub const LEGACY_OFFSET_COMMIT_VALUE: Message = message(
    "LegacyOffsetCommitValue",
    0,
    NEVER,
    &[
        field("offset", Int64),
        field("metadata", Text),
        field("commitTimestamp", Int64),
    ],
);

/// `OffsetCommitKey`.
pub const OFFSET_COMMIT_KEY: Message = message(
    "OffsetCommitKey",
    0,
    NEVER,
    &[
        field("group", Text),
        field("topic", Text),
        field("partition", Int32),
    ],
);

/// `OffsetCommitValue`.
pub const OFFSET_COMMIT_VALUE: Message = message(
    "OffsetCommitValue",
    4,
    4,
    &[
        field("offset", Int64),
        field("leaderEpoch", Int32).since(3),
        field("metadata", Text),
        field("commitTimestamp", Int64),
        field("expireTimestamp", Int64).since(1).until(1),
        field("topicId", Uuid).since(4).tag(0, Unset::Uuid),
    ],
);
