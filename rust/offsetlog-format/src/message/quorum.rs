//! Control records of `__cluster_metadata`: leaders, snapshots and voters of the log itself.

use super::Kind::{Int16, Int32, Int64, Struct, Structs, Text, Uint16, Uuid};
use super::{Field, Message, field, message};

const LEADER_CHANGE_MESSAGE_VOTER: &[Field] = &[
    field("voterId", Int32),
    field("voterDirectoryId", Uuid).since(1),
];

/// `LeaderChangeMessage`.
pub const LEADER_CHANGE_MESSAGE: Message = message(
    "LeaderChangeMessage",
    1,
    0,
    &[
        field("version", Int16),
        field("leaderId", Int32),
        field("voters", Structs(LEADER_CHANGE_MESSAGE_VOTER)),
        field("grantingVoters", Structs(LEADER_CHANGE_MESSAGE_VOTER)),
    ],
);

/// `SnapshotHeaderRecord`.
pub const SNAPSHOT_HEADER_RECORD: Message = message(
    "SnapshotHeaderRecord",
    0,
    0,
    &[
        field("version", Int16),
        field("lastContainedLogTimestamp", Int64),
    ],
);

/// `SnapshotFooterRecord`.
pub const SNAPSHOT_FOOTER_RECORD: Message =
    message("SnapshotFooterRecord", 0, 0, &[field("version", Int16)]);

/// `KRaftVersionRecord`.
pub const KRAFT_VERSION_RECORD: Message = message(
    "KRaftVersionRecord",
    0,
    0,
    &[field("version", Int16), field("kRaftVersion", Int16)],
);

const VOTERS_RECORD_ENDPOINT: &[Field] = &[
    field("name", Text),
    field("host", Text),
    field("port", Uint16),
];

const VOTERS_RECORD_KRAFT_VERSION_FEATURE: &[Field] = &[
    field("minSupportedVersion", Int16),
    field("maxSupportedVersion", Int16),
];

const VOTERS_RECORD_VOTER: &[Field] = &[
    field("voterId", Int32),
    field("voterDirectoryId", Uuid),
    field("endpoints", Structs(VOTERS_RECORD_ENDPOINT)),
    field(
        "kRaftVersionFeature",
        Struct(VOTERS_RECORD_KRAFT_VERSION_FEATURE),
    ),
];

/// `VotersRecord`.
pub const VOTERS_RECORD: Message = message(
    "VotersRecord",
    0,
    0,
    &[
        field("version", Int16),
        field("voters", Structs(VOTERS_RECORD_VOTER)),
    ],
);
