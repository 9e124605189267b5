//! What a mirror copies, how often it asks, how much it holds in memory.

use rustix::process::{Resource, getrlimit};

/// Files that an open partition has.
const FILES_EACH: usize = 7;
/// Files that are left for connections and others.
const FILES_LEFT: usize = 200;
const OPEN_MIN: usize = 20;
const OPEN_MAX: usize = 10_000;

/// What a mirror copies and how.
#[derive(Debug, Clone)]
pub struct MirrorOptions {
    /// Topics by name.
    pub topics: Vec<String>,
    /// Topics by pattern, in which `*` stands for any characters and `?` for one. Kafka's internal topics match no pattern. Without
    /// topics and patterns: all topics but the internal ones.
    pub patterns: Vec<String>,
    /// Ends when every partition has reached the high watermark that it had when it was first fetched.
    pub once: bool,
    /// Deletes here what the source deletes: records below its log start offset, and topics with the groups' offsets in them. While the
    /// source shows none of the topics that were copied before, or no cluster id, no topic is deleted.
    pub follow_deletes: bool,
    /// With `follow_deletes`: milliseconds for which all looks must show that a topic is deleted or recreated, before it is deleted here. A
    /// pause between looks restarts them.
    pub follow_after_ms: i64,
    /// Whether the groups' committed offsets are copied.
    pub groups: bool,
    /// Most bytes of one fetch response, except for a single larger batch. A broker's connection holds at most three responses at a time:
    /// one that arrives, one that waits, one that is appended.
    pub fetch_max_bytes: i32,
    /// Bytes of one partition in it at most, if the partitions share it.
    pub partition_max_bytes: i32,
    /// Milliseconds that a broker waits for new records.
    pub max_wait_ms: i32,
    /// Milliseconds between two looks at topics, partitions, leaders and settings.
    pub metadata_interval_ms: i64,
    /// Milliseconds between two looks at the groups' offsets.
    pub groups_interval_ms: i64,
    /// Milliseconds after which what was appended begins to be synced, beside further appends; much of it earlier.
    pub flush_interval_ms: i64,
    /// Milliseconds before a failed request is tried again; twice as long each time, up to `backoff_max_ms`.
    pub backoff_ms: i64,
    /// See `backoff_ms`.
    pub backoff_max_ms: i64,
    /// With `once`: after this many milliseconds without progress of any partition, the remaining ones are given up. The report shows it.
    pub give_up_ms: i64,
    /// Partitions that are open at a time; by default as many as the process may have files for. More busy ones than that are closed and
    /// opened all the time, which is slow.
    pub max_open_partitions: Option<usize>,
}

impl Default for MirrorOptions {
    fn default() -> Self {
        Self {
            topics: Vec::new(),
            patterns: Vec::new(),
            once: false,
            follow_deletes: false,
            follow_after_ms: 60_000,
            groups: true,
            fetch_max_bytes: 8 << 20,
            partition_max_bytes: 1 << 20,
            max_wait_ms: 500,
            metadata_interval_ms: 30_000,
            groups_interval_ms: 30_000,
            flush_interval_ms: 5_000,
            backoff_ms: 100,
            backoff_max_ms: 10_000,
            give_up_ms: 120_000,
            max_open_partitions: None,
        }
    }
}

impl MirrorOptions {
    /// Whether a topic is to be copied.
    #[must_use]
    pub fn takes(&self, topic: &str, is_internal: bool) -> bool {
        if self.topics.iter().any(|name| name == topic) {
            return true;
        }
        if is_internal || offsetlog::is_internal_topic(topic) {
            return false;
        }
        if self.topics.is_empty() && self.patterns.is_empty() {
            return true;
        }
        self.patterns
            .iter()
            .any(|pattern| offsetlog_ops::name_matches(pattern, topic))
    }

    /// How many partitions may be open.
    pub(crate) fn open_partitions(&self) -> usize {
        self.max_open_partitions.unwrap_or_else(|| {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            let files = usize::try_from(limit).unwrap_or(usize::MAX);
            let partitions = files.saturating_sub(FILES_LEFT) / FILES_EACH;
            partitions.clamp(OPEN_MIN, OPEN_MAX)
        })
    }

    /// Milliseconds before the next try after this many failures in a row.
    pub(crate) fn backoff(&self, failures: u32) -> i64 {
        let doubled = self
            .backoff_ms
            .saturating_mul(1_i64 << failures.saturating_sub(1).min(20));
        doubled.clamp(0, self.backoff_max_ms.max(0))
    }
}
