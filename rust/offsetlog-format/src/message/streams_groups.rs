//! Streams groups in `__consumer_offsets`.

use super::Kind::{Array, Int8, Int16, Int32, Int64, Struct, Structs, Text, Uint16};
use super::{Field, Message, NEVER, Unset, field, message};

/// `StreamsGroupCurrentMemberAssignmentKey`.
pub const STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Message = message(
    "StreamsGroupCurrentMemberAssignmentKey",
    0,
    NEVER,
    &[field("groupId", Text), field("memberId", Text)],
);

const STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_TASK_IDS: &[Field] = &[
    field("subtopologyId", Text),
    field("partitions", Array(&Int32)),
    field("assignmentEpochs", Array(&Int32))
        .nullable()
        .tag(0, Unset::Empty),
];

/// `StreamsGroupCurrentMemberAssignmentValue`.
pub const STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Message = message(
    "StreamsGroupCurrentMemberAssignmentValue",
    0,
    0,
    &[
        field("memberEpoch", Int32),
        field("previousMemberEpoch", Int32),
        field("state", Int8),
        field(
            "activeTasks",
            Structs(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_TASK_IDS),
        ),
        field(
            "standbyTasks",
            Structs(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_TASK_IDS),
        ),
        field(
            "warmupTasks",
            Structs(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_TASK_IDS),
        ),
        field(
            "activeTasksPendingRevocation",
            Structs(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_TASK_IDS),
        ),
        field(
            "standbyTasksPendingRevocation",
            Structs(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_TASK_IDS),
        ),
        field(
            "warmupTasksPendingRevocation",
            Structs(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE_TASK_IDS),
        ),
    ],
);

/// `StreamsGroupMemberMetadataKey`.
pub const STREAMS_GROUP_MEMBER_METADATA_KEY: Message = message(
    "StreamsGroupMemberMetadataKey",
    0,
    NEVER,
    &[field("groupId", Text), field("memberId", Text)],
);

const STREAMS_GROUP_MEMBER_METADATA_VALUE_ENDPOINT: &[Field] =
    &[field("host", Text), field("port", Uint16)];

const STREAMS_GROUP_MEMBER_METADATA_VALUE_KEY_VALUE: &[Field] =
    &[field("key", Text), field("value", Text)];

/// `StreamsGroupMemberMetadataValue`.
pub const STREAMS_GROUP_MEMBER_METADATA_VALUE: Message = message(
    "StreamsGroupMemberMetadataValue",
    0,
    0,
    &[
        field("instanceId", Text).nullable(),
        field("rackId", Text).nullable(),
        field("clientId", Text),
        field("clientHost", Text),
        field("rebalanceTimeoutMs", Int32),
        field("topologyEpoch", Int32),
        field("processId", Text),
        field(
            "userEndpoint",
            Struct(STREAMS_GROUP_MEMBER_METADATA_VALUE_ENDPOINT),
        )
        .nullable(),
        field(
            "clientTags",
            Structs(STREAMS_GROUP_MEMBER_METADATA_VALUE_KEY_VALUE),
        ),
    ],
);

/// `StreamsGroupMetadataKey`.
pub const STREAMS_GROUP_METADATA_KEY: Message = message(
    "StreamsGroupMetadataKey",
    0,
    NEVER,
    &[field("groupId", Text)],
);

const STREAMS_GROUP_METADATA_VALUE_LAST_ASSIGNMENT_CONFIG: &[Field] =
    &[field("key", Text), field("value", Text)];

/// `StreamsGroupMetadataValue`.
pub const STREAMS_GROUP_METADATA_VALUE: Message = message(
    "StreamsGroupMetadataValue",
    0,
    0,
    &[
        field("epoch", Int32),
        field("metadataHash", Int64),
        field("validatedTopologyEpoch", Int32).tag(0, Unset::Int(-1)),
        field(
            "lastAssignmentConfigs",
            Structs(STREAMS_GROUP_METADATA_VALUE_LAST_ASSIGNMENT_CONFIG),
        )
        .nullable()
        .tag(1, Unset::Empty),
    ],
);

/// `StreamsGroupTargetAssignmentMemberKey`.
pub const STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY: Message = message(
    "StreamsGroupTargetAssignmentMemberKey",
    0,
    NEVER,
    &[field("groupId", Text), field("memberId", Text)],
);

const STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE_TASK_IDS: &[Field] = &[
    field("subtopologyId", Text),
    field("partitions", Array(&Int32)),
];

/// `StreamsGroupTargetAssignmentMemberValue`.
pub const STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Message = message(
    "StreamsGroupTargetAssignmentMemberValue",
    0,
    0,
    &[
        field(
            "activeTasks",
            Structs(STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE_TASK_IDS),
        ),
        field(
            "standbyTasks",
            Structs(STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE_TASK_IDS),
        ),
        field(
            "warmupTasks",
            Structs(STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE_TASK_IDS),
        ),
    ],
);

/// `StreamsGroupTargetAssignmentMetadataKey`.
pub const STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_KEY: Message = message(
    "StreamsGroupTargetAssignmentMetadataKey",
    0,
    NEVER,
    &[field("groupId", Text)],
);

/// `StreamsGroupTargetAssignmentMetadataValue`.
pub const STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Message = message(
    "StreamsGroupTargetAssignmentMetadataValue",
    0,
    0,
    &[
        field("assignmentEpoch", Int32),
        field("assignmentTimestamp", Int64).tag(0, Unset::Int(0)),
    ],
);

/// `StreamsGroupTopologyKey`.
pub const STREAMS_GROUP_TOPOLOGY_KEY: Message = message(
    "StreamsGroupTopologyKey",
    0,
    NEVER,
    &[field("groupId", Text)],
);

const STREAMS_GROUP_TOPOLOGY_VALUE_TOPIC_CONFIG: &[Field] =
    &[field("key", Text), field("value", Text)];

const STREAMS_GROUP_TOPOLOGY_VALUE_TOPIC_INFO: &[Field] = &[
    field("name", Text),
    field("partitions", Int32),
    field("replicationFactor", Int16),
    field(
        "topicConfigs",
        Structs(STREAMS_GROUP_TOPOLOGY_VALUE_TOPIC_CONFIG),
    ),
];

const STREAMS_GROUP_TOPOLOGY_VALUE_COPARTITION_GROUP: &[Field] = &[
    field("sourceTopics", Array(&Int16)),
    field("sourceTopicRegex", Array(&Int16)),
    field("repartitionSourceTopics", Array(&Int16)),
];

const STREAMS_GROUP_TOPOLOGY_VALUE_SUBTOPOLOGY: &[Field] = &[
    field("subtopologyId", Text),
    field("sourceTopics", Array(&Text)),
    field("sourceTopicRegex", Array(&Text)),
    field(
        "stateChangelogTopics",
        Structs(STREAMS_GROUP_TOPOLOGY_VALUE_TOPIC_INFO),
    ),
    field("repartitionSinkTopics", Array(&Text)),
    field(
        "repartitionSourceTopics",
        Structs(STREAMS_GROUP_TOPOLOGY_VALUE_TOPIC_INFO),
    ),
    field(
        "copartitionGroups",
        Structs(STREAMS_GROUP_TOPOLOGY_VALUE_COPARTITION_GROUP),
    ),
];

/// `StreamsGroupTopologyValue`.
pub const STREAMS_GROUP_TOPOLOGY_VALUE: Message = message(
    "StreamsGroupTopologyValue",
    0,
    0,
    &[
        field("epoch", Int32),
        field(
            "subtopologies",
            Structs(STREAMS_GROUP_TOPOLOGY_VALUE_SUBTOPOLOGY),
        ),
    ],
);
