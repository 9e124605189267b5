//! The versions that a server of ours announces: clients infer from them what it can do, so they are chosen, not counted.
//!
//! librdkafka never fetches from a server that does not announce Produce from version 0 to 3 and Fetch from 4 on; Kafka 4 announces
//! Produce from 0 on for its sake, and reads 3 and later. Versions with topic ids in Produce, `OffsetCommit` and `OffsetFetch` are left
//! out: old clusters have no ids. Clients do without the APIs that are not announced (transactions, the consumer and share protocols,
//! `DescribeTopicPartitions`), or refuse by name.

use super::Api;
use super::apis::{
    API_VERSIONS, DELETE_GROUPS, DESCRIBE_ACLS, DESCRIBE_CLUSTER, DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS, DESCRIBE_LOG_DIRS, FETCH, FIND_COORDINATOR, HEARTBEAT, INIT_PRODUCER_ID,
    JOIN_GROUP, LEAVE_GROUP, LIST_GROUPS, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_DELETE,
    OFFSET_FETCH, OFFSET_FOR_LEADER_EPOCH, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE, SYNC_GROUP,
};

/// The versions of one API that are announced.
#[derive(Debug)]
pub struct Announced {
    /// The API.
    pub api: &'static Api,
    /// The lowest version announced, which for Produce is below what can be read.
    pub lowest_version: i16,
    /// The highest version announced.
    pub highest_version: i16,
}

const fn versions(api: &'static Api, lowest_version: i16, highest_version: i16) -> Announced {
    Announced {
        api,
        lowest_version,
        highest_version,
    }
}

/// All that is announced, by key.
pub static ANNOUNCED: &[Announced] = &[
    versions(&PRODUCE, 0, 12),
    versions(&FETCH, 4, 16),
    versions(&LIST_OFFSETS, 1, 9),
    versions(&METADATA, 0, 12),
    versions(&OFFSET_COMMIT, 2, 9),
    versions(&OFFSET_FETCH, 1, 9),
    versions(&FIND_COORDINATOR, 0, 4),
    versions(&JOIN_GROUP, 0, 9),
    versions(&HEARTBEAT, 0, 4),
    versions(&LEAVE_GROUP, 0, 5),
    versions(&SYNC_GROUP, 0, 5),
    versions(&DESCRIBE_GROUPS, 0, 5),
    versions(&LIST_GROUPS, 0, 5),
    versions(&SASL_HANDSHAKE, 0, 1),
    versions(&API_VERSIONS, 0, 4),
    versions(&INIT_PRODUCER_ID, 0, 4),
    versions(&OFFSET_FOR_LEADER_EPOCH, 2, 4),
    versions(&DESCRIBE_ACLS, 1, 3),
    versions(&DESCRIBE_CONFIGS, 1, 4),
    versions(&DESCRIBE_LOG_DIRS, 1, 4),
    versions(&SASL_AUTHENTICATE, 0, 2),
    versions(&DELETE_GROUPS, 0, 2),
    versions(&OFFSET_DELETE, 0, 0),
    versions(&DESCRIBE_CLUSTER, 0, 1),
];

/// What is announced of the API with this key.
#[must_use]
pub fn announced(key: i16) -> Option<&'static Announced> {
    ANNOUNCED.iter().find(|announced| announced.api.key == key)
}

impl Announced {
    /// Whether a request of this version may come.
    #[must_use]
    pub const fn has_version(&self, version: i16) -> bool {
        self.lowest_version <= version && version <= self.highest_version
    }
}
