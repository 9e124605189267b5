//! Share groups in `__consumer_offsets`.

use super::Kind::{Array, Int8, Int32, Int64, Structs, Text, Uuid};
use super::{Field, Message, NEVER, Unset, field, message};

/// `ShareGroupCurrentMemberAssignmentKey`.
pub const SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Message = message(
    "ShareGroupCurrentMemberAssignmentKey",
    0,
    NEVER,
    &[field("groupId", Text), field("memberId", Text)],
);

const SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_TOPIC_PARTITIONS: &[Field] =
    &[field("topicId", Uuid), field("partitions", Array(&Int32))];

/// `ShareGroupCurrentMemberAssignmentValue`.
pub const SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Message = message(
    "ShareGroupCurrentMemberAssignmentValue",
    0,
    0,
    &[
        field("memberEpoch", Int32),
        field("previousMemberEpoch", Int32),
        field("state", Int8),
        field(
            "assignedPartitions",
            Structs(SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_TOPIC_PARTITIONS),
        ),
    ],
);

/// `ShareGroupMemberMetadataKey`.
pub const SHARE_GROUP_MEMBER_METADATA_KEY: Message = message(
    "ShareGroupMemberMetadataKey",
    0,
    NEVER,
    &[field("groupId", Text), field("memberId", Text)],
);

/// `ShareGroupMemberMetadataValue`.
pub const SHARE_GROUP_MEMBER_METADATA_VALUE: Message = message(
    "ShareGroupMemberMetadataValue",
    0,
    0,
    &[
        field("rackId", Text).nullable(),
        field("clientId", Text),
        field("clientHost", Text),
        field("subscribedTopicNames", Array(&Text)),
    ],
);

/// `ShareGroupMetadataKey`.
pub const SHARE_GROUP_METADATA_KEY: Message =
    message("ShareGroupMetadataKey", 0, NEVER, &[field("groupId", Text)]);

/// `ShareGroupMetadataValue`.
pub const SHARE_GROUP_METADATA_VALUE: Message = message(
    "ShareGroupMetadataValue",
    0,
    0,
    &[field("epoch", Int32), field("metadataHash", Int64)],
);

/// `ShareGroupStatePartitionMetadataKey`.
pub const SHARE_GROUP_STATE_PARTITION_METADATA_KEY: Message = message(
    "ShareGroupStatePartitionMetadataKey",
    0,
    NEVER,
    &[field("groupId", Text)],
);

const SHARE_GROUP_STATE_PARTITION_METADATA_VALUE_TOPIC_PARTITIONS_INFO: &[Field] = &[
    field("topicId", Uuid),
    field("topicName", Text),
    field("partitions", Array(&Int32)),
];

const SHARE_GROUP_STATE_PARTITION_METADATA_VALUE_TOPIC_INFO: &[Field] =
    &[field("topicId", Uuid), field("topicName", Text)];

/// `ShareGroupStatePartitionMetadataValue`.
pub const SHARE_GROUP_STATE_PARTITION_METADATA_VALUE: Message = message(
    "ShareGroupStatePartitionMetadataValue",
    0,
    0,
    &[
        field(
            "initializingTopics",
            Structs(SHARE_GROUP_STATE_PARTITION_METADATA_VALUE_TOPIC_PARTITIONS_INFO),
        ),
        field(
            "initializedTopics",
            Structs(SHARE_GROUP_STATE_PARTITION_METADATA_VALUE_TOPIC_PARTITIONS_INFO),
        ),
        field(
            "deletingTopics",
            Structs(SHARE_GROUP_STATE_PARTITION_METADATA_VALUE_TOPIC_INFO),
        ),
    ],
);

/// `ShareGroupTargetAssignmentMemberKey`.
pub const SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY: Message = message(
    "ShareGroupTargetAssignmentMemberKey",
    0,
    NEVER,
    &[field("groupId", Text), field("memberId", Text)],
);

const SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE_TOPIC_PARTITION: &[Field] =
    &[field("topicId", Uuid), field("partitions", Array(&Int32))];

/// `ShareGroupTargetAssignmentMemberValue`.
pub const SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Message = message(
    "ShareGroupTargetAssignmentMemberValue",
    0,
    0,
    &[field(
        "topicPartitions",
        Structs(SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE_TOPIC_PARTITION),
    )],
);

/// `ShareGroupTargetAssignmentMetadataKey`.
pub const SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_KEY: Message = message(
    "ShareGroupTargetAssignmentMetadataKey",
    0,
    NEVER,
    &[field("groupId", Text)],
);

/// `ShareGroupTargetAssignmentMetadataValue`.
pub const SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Message = message(
    "ShareGroupTargetAssignmentMetadataValue",
    0,
    0,
    &[
        field("assignmentEpoch", Int32),
        field("assignmentTimestamp", Int64).tag(0, Unset::Int(0)),
    ],
);
