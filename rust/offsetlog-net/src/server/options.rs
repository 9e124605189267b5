//! The options of a server, and the events that it reports while it serves.

use offsetlog::{BrokerSettings, OpenOptions};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Up to where a partition is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Until {
    /// The end of its last whole batch.
    #[default]
    LogEnd,
    /// The high watermark in the log dir's `replication-offset-checkpoint`, which may be five seconds old; without one as `LogEnd`.
    HighWatermark,
}

/// What becomes of transactions without a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OpenTransactions {
    /// As in Kafka: `read_committed` ends before the first one.
    #[default]
    Wait,
    /// Their coordinator's record in `__transaction_state` decides, as in [`offsetlog_ops::end_transaction`]: what it commits is delivered,
    /// what it aborts or has not decided is shown as aborted. If nothing decides, `read_committed` waits.
    Decide {
        /// Shows transactions without a coordinator's record as aborted.
        without_state: bool,
    },
}

/// An event to be logged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A fetch has found damage; reported once for each place.
    Damage {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The offset that was asked for.
        offset: i64,
        /// The error, which names the file and the position.
        reason: String,
    },
    /// A partition cannot be opened.
    Offline {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The error.
        reason: String,
    },
    /// A partition could not be read.
    Failed {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The error.
        reason: String,
    },
    /// Topics or partitions came, or were removed or replaced.
    Changed {
        /// What changed, one line each.
        lines: Vec<String>,
    },
    /// The upkeep of the groups' commits failed; commits continue.
    GroupsFailed {
        /// The error.
        reason: String,
    },
    /// A group asked for committed offsets that are not known; reported once for each group.
    GroupUnknown {
        /// The group.
        group: String,
        /// Why they are not known.
        reason: String,
    },
    /// The cluster's metadata could not be read again; its last known state is kept. Each reason is reported once an hour at most.
    MetadataNotRead {
        /// The error.
        reason: String,
    },
    /// The log dirs could not be listed; the last known partitions are served.
    NotListed {
        /// The error.
        reason: String,
    },
}

/// Takes events, in any thread. It must not call the broker.
pub type OnEvent = Arc<dyn Fn(&Event) + Send + Sync>;

/// Options of [`Broker::open`](super::Broker::open).
#[derive(Clone)]
pub struct ServeOptions {
    /// The advertised host.
    pub host: String,
    /// The advertised port.
    pub port: u16,
    /// The broker id that clients see; that in `meta.properties` if `None`, 0 without one.
    pub node_id: Option<i32>,
    /// Only these topics; all if empty.
    pub topics: Vec<String>,
    /// Up to where partitions are served.
    pub until: Until,
    /// What becomes of open transactions.
    pub open_transactions: OpenTransactions,
    /// Groups whose committed offsets are in a partition of `__consumer_offsets` that is missing or cannot be read begin with none, instead
    /// of an error for each consumer.
    pub without_offsets: bool,
    /// The broker's `server.properties`, for the settings that clients see.
    pub broker_settings: Option<BrokerSettings>,
    /// Where the cluster's metadata is, if it is not in the log dirs.
    pub metadata: Option<PathBuf>,
    /// How logs are opened.
    pub open: OpenOptions,
    /// Greatest number of records' bytes in one answer to a fetch: `fetch.max.bytes` of a broker. A first batch may be larger.
    pub fetch_max_bytes: i32,
    /// Greatest number of fetch sessions: `max.incremental.fetch.session.cache.slots` of a broker.
    pub fetch_sessions_max: usize,
    /// Takes the events to be logged.
    pub on_event: Option<OnEvent>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 9092,
            node_id: None,
            topics: Vec::new(),
            until: Until::default(),
            open_transactions: OpenTransactions::default(),
            without_offsets: false,
            broker_settings: None,
            metadata: None,
            open: OpenOptions::default(),
            fetch_max_bytes: 57_671_680,
            fetch_sessions_max: 1000,
            on_event: None,
        }
    }
}

impl ServeOptions {
    pub(crate) fn tell(&self, event: &Event) {
        if let Some(on_event) = &self.on_event {
            on_event(event);
        }
    }
}

impl fmt::Debug for ServeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeOptions")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("until", &self.until)
            .field("open_transactions", &self.open_transactions)
            .finish_non_exhaustive()
    }
}
