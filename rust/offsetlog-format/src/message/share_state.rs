//! Which records of share groups are delivered, in `__share_group_state`.

use super::Kind::{Int8, Int16, Int32, Int64, Structs, Text, Uuid};
use super::{Field, Message, NEVER, Unset, field, message};

/// `ShareSnapshotKey`.
pub const SHARE_SNAPSHOT_KEY: Message = message(
    "ShareSnapshotKey",
    0,
    NEVER,
    &[
        field("groupId", Text),
        field("topicId", Uuid),
        field("partition", Int32),
    ],
);

const SHARE_SNAPSHOT_VALUE_STATE_BATCH: &[Field] = &[
    field("firstOffset", Int64),
    field("lastOffset", Int64),
    field("deliveryState", Int8),
    field("deliveryCount", Int16),
];

/// `ShareSnapshotValue`.
pub const SHARE_SNAPSHOT_VALUE: Message = message(
    "ShareSnapshotValue",
    0,
    0,
    &[
        field("snapshotEpoch", Int32),
        field("stateEpoch", Int32),
        field("leaderEpoch", Int32),
        field("startOffset", Int64),
        field("deliveryCompleteCount", Int32).tag(0, Unset::Int(-1)),
        field("createTimestamp", Int64),
        field("writeTimestamp", Int64),
        field("stateBatches", Structs(SHARE_SNAPSHOT_VALUE_STATE_BATCH)),
    ],
);

/// `ShareUpdateKey`.
pub const SHARE_UPDATE_KEY: Message = message(
    "ShareUpdateKey",
    0,
    NEVER,
    &[
        field("groupId", Text),
        field("topicId", Uuid),
        field("partition", Int32),
    ],
);

const SHARE_UPDATE_VALUE_STATE_BATCH: &[Field] = &[
    field("firstOffset", Int64),
    field("lastOffset", Int64),
    field("deliveryState", Int8),
    field("deliveryCount", Int16),
];

/// `ShareUpdateValue`.
pub const SHARE_UPDATE_VALUE: Message = message(
    "ShareUpdateValue",
    0,
    0,
    &[
        field("snapshotEpoch", Int32),
        field("leaderEpoch", Int32),
        field("startOffset", Int64),
        field("deliveryCompleteCount", Int32).tag(0, Unset::Int(-1)),
        field("stateBatches", Structs(SHARE_UPDATE_VALUE_STATE_BATCH)),
    ],
);
