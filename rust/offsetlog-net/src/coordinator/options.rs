//! Settings of a coordinator, and what it asks the server.

use super::unknown::UnknownOffsets;
use offsetlog::format::Uuid;
use std::fmt;
use std::sync::Arc;

/// Looks a partition up: its topic's id, zero if it has none; `None` if there is no such partition.
pub type TopicId = Arc<dyn Fn(&str, i32) -> Option<Uuid> + Send + Sync>;

/// Whether clients see a leader epoch of a partition that is at least this one.
pub type IsTold = Arc<dyn Fn(&str, i32, i32) -> bool + Send + Sync>;

/// The node that answers as the coordinator of every group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// The broker's id.
    pub id: i32,
    /// The advertised host.
    pub host: String,
    /// The advertised port.
    pub port: i32,
}

/// Settings of a coordinator. Defaults are Kafka's where it has the setting.
#[derive(Clone)]
pub struct CoordinatorOptions {
    /// The node that `FindCoordinator` returns, until the coordinator gets another one.
    pub node: Node,
    /// `group.initial.rebalance.delay.ms`: how long a group that was empty waits for more members.
    pub initial_rebalance_delay_ms: i64,
    /// `group.min.session.timeout.ms`.
    pub min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`.
    pub max_session_timeout_ms: i32,
    /// `group.max.size`: most members of a group, and most ids that have not joined. Kafka's default has no bound.
    pub max_group_size: usize,
    /// `offset.metadata.max.bytes`: most characters (UTF-16) of what is committed with an offset.
    pub max_metadata: usize,
    /// Most groups. The groups that exist at the start may be more.
    pub max_groups: usize,
    /// Most bytes of memory, about, for groups and members. Committed offsets have a limit of their own.
    pub max_member_bytes: u64,
    /// Tells which partitions exist.
    pub topic_id: TopicId,
    /// Tells which leader epochs clients can know.
    pub is_told: IsTold,
    /// What the dead cluster's groups may have committed, and nobody knows.
    pub unknown: UnknownOffsets,
    /// Seed for members' ids, so that runs repeat.
    pub seed: Option<u64>,
}

impl Default for CoordinatorOptions {
    fn default() -> Self {
        Self {
            node: Node::default(),
            initial_rebalance_delay_ms: 3000,
            min_session_timeout_ms: 6000,
            max_session_timeout_ms: 1_800_000,
            max_group_size: 10_000,
            max_metadata: 4096,
            max_groups: 100_000,
            max_member_bytes: 256 << 20,
            topic_id: Arc::new(|_, _| Some(Uuid::ZERO)),
            is_told: Arc::new(|_, _, _| true),
            unknown: UnknownOffsets::default(),
            seed: None,
        }
    }
}

impl fmt::Debug for CoordinatorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoordinatorOptions").finish_non_exhaustive()
    }
}
