//! The table of topic settings: one row each, from which the typed fields and their accessors are made as well.

use super::LogConfig;
use super::value::{CleanupPolicy, CompressionType, FromCanonical, Kind, ThrottledReplicas};
use offsetlog_format::TimestampType;
use std::collections::BTreeMap;

/// A topic setting.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Setting {
    /// Kafka's name, as `segment.ms`.
    pub name: &'static str,
    /// Type and bounds.
    pub kind: Kind,
    /// Canonical text of the default; empty for an empty list, and where no value is the default.
    pub default: &'static str,
    /// The settings of a broker from which a topic there has its default; the first one that is set wins.
    pub broker_synonyms: &'static [&'static str],
    /// Whether the engine does anything about it. If not, it is checked and kept for brokers.
    pub effective: bool,
    /// What it means.
    pub documentation: &'static str,
}

/// Every topic setting, sorted by name.
#[must_use]
pub fn settings() -> &'static [Setting] {
    SETTINGS
}

const USED: bool = true;
const KEPT: bool = false;

const fn int(minimum: i32, maximum: i32) -> Kind {
    Kind::Int {
        minimum,
        maximum,
        also: None,
    }
}

const fn long(minimum: i64) -> Kind {
    Kind::Long { minimum }
}

const POLICIES: Kind = Kind::List(&["compact", "delete"]);
const CODECS: Kind = Kind::Choice(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]);
const TIMESTAMP_TYPES: Kind = Kind::Choice(&["CreateTime", "LogAppendTime"]);
const GZIP_LEVELS: Kind = Kind::Int {
    minimum: 1,
    maximum: 9,
    also: Some(-1),
};

/// A default's text: as it is written in the table, unless the table has a text beside it.
macro_rules! default_text {
    ($default:expr) => {
        stringify!($default)
    };
    ($default:expr, $text:literal) => {
        $text
    };
}

macro_rules! table {
    ($(
        $visibility:vis $field:ident: $type:ty = $default:expr $(, written $text:literal)?;
        $name:literal, $kind:expr, $effective:expr, [$($synonym:literal),*],
        $documentation:literal;
    )+) => {
        const SETTINGS: &[Setting] = &[$(Setting {
            name: $name,
            kind: $kind,
            default: default_text!($default $(, $text)?),
            broker_synonyms: &[$($synonym),*],
            effective: $effective,
            documentation: $documentation,
        }),+];

        /// The value of each setting that holds.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(super) struct Fields {
            $($field: $type,)+
        }

        impl Fields {
            /// Given values are canonical; the rest are the table's defaults.
            pub(super) fn resolve(given: &BTreeMap<&'static str, String>) -> Self {
                Self {
                    $($field: given
                        .get($name)
                        .and_then(|text| <$type>::from_canonical(text))
                        .unwrap_or($default),)+
                }
            }
        }

        impl LogConfig {
            $(
                #[doc = concat!("`", $name, "`: ", $documentation)]
                #[must_use]
                $visibility const fn $field(&self) -> $type {
                    self.fields.$field
                }
            )+
        }

        /// Name, default's text, and whether that text means the default.
        #[cfg(test)]
        pub(super) fn defaults() -> Vec<(&'static str, &'static str, bool)> {
            vec![$((
                $name,
                default_text!($default $(, $text)?),
                <$type>::from_canonical(default_text!($default $(, $text)?)).unwrap_or($default) == $default
                    && Fields::resolve(&BTreeMap::new()).$field == $default,
            )),+]
        }
    };
}

table! {
    pub cleanup_policy: CleanupPolicy = CleanupPolicy { compact: false, delete: true }, written "delete";
    "cleanup.policy", POLICIES, USED, ["log.cleanup.policy"],
    "What removes records: delete removes old segments by the retention settings, compact keeps the newest record of each key. Both can \
     be set; with an empty list nothing is removed but by request.";

    pub compression_gzip_level: i32 = -1;
    "compression.gzip.level", GZIP_LEVELS, USED, ["compression.gzip.level"],
    "Level at which gzip compresses when a leader compresses; -1 is gzip's own default, 6.";

    pub compression_lz4_level: i32 = 9;
    "compression.lz4.level", int(1, 17), USED, ["compression.lz4.level"],
    "Level at which lz4 compresses when a leader compresses.";

    pub compression_type: CompressionType = CompressionType::Producer, written "producer";
    "compression.type", CODECS, USED, ["compression.type"],
    "Codec in which a leader stores batches. producer keeps the codec of each batch; any other compresses what comes otherwise anew.";

    pub compression_zstd_level: i32 = 3;
    "compression.zstd.level", int(-131_072, 22), USED, ["compression.zstd.level"],
    "Level at which zstd compresses when a leader compresses; 0 is zstd's own default, 3, and below 0 is faster and larger.";

    pub delete_retention_ms: i64 = 86400000;
    "delete.retention.ms", long(0), USED, ["log.cleaner.delete.retention.ms"],
    "How long tombstones and transaction markers stay in a compacted topic after they were first cleaned, in ms: the time that a \
     reader who began at the start has for seeing them.";

    pub file_delete_delay_ms: i64 = 60000;
    "file.delete.delay.ms", long(0), USED, ["log.segment.delete.delay.ms"],
    "How long the files of a removed segment stay under the suffix .deleted before they go, in ms.";

    pub flush_messages: i64 = 9223372036854775807;
    "flush.messages", long(1), USED, ["log.flush.interval.messages"],
    "Records after which an append flushes the log to disk. By default the operating system decides when.";

    pub flush_ms: i64 = 9223372036854775807;
    "flush.ms", long(0), USED, ["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
    "Time after which the log is flushed to disk, in ms. By default the operating system decides when.";

    pub follower_throttled_replicas: ThrottledReplicas = ThrottledReplicas::None, written "";
    "follower.replication.throttled.replicas", Kind::Replicas, KEPT, [],
    "Followers whose copying from a leader is slowed by a broker's quota: partition:broker pairs, or * for all.";

    pub index_interval_bytes: i32 = 4096;
    "index.interval.bytes", int(0, i32::MAX), USED, ["log.index.interval.bytes"],
    "Bytes of batches between two entries of the offset and time index. Fewer find records with less reading, by larger indexes.";

    pub internal_segment_bytes: Option<i32> = None, written "";
    "internal.segment.bytes", int(0, i32::MAX), USED, [],
    "In the place of segment.bytes if it is set, without its lower bound: for tests that need small segments. Kafka does not list it \
     either, and takes negative numbers, which are refused here.";

    pub leader_throttled_replicas: ThrottledReplicas = ThrottledReplicas::None, written "";
    "leader.replication.throttled.replicas", Kind::Replicas, KEPT, [],
    "Leaders whose serving of followers is slowed by a broker's quota: partition:broker pairs, or * for all.";

    pub local_retention_bytes: i64 = -2;
    "local.retention.bytes", long(-2), KEPT, ["log.local.retention.bytes"],
    "Bytes of a partition that stay on the broker's disk once copied to tiered storage; -2 stands for retention.bytes.";

    pub local_retention_ms: i64 = -2;
    "local.retention.ms", long(-2), KEPT, ["log.local.retention.ms"],
    "How long segments stay on the broker's disk once copied to tiered storage, in ms; -2 stands for retention.ms.";

    pub max_compaction_lag_ms: i64 = 9223372036854775807;
    "max.compaction.lag.ms", long(1), USED, ["log.cleaner.max.compaction.lag.ms"],
    "Longest time that a record of a compacted topic may stay uncompacted, in ms. Segments of such a topic roll at this age too.";

    pub max_message_bytes: i32 = 1048588;
    "max.message.bytes", int(0, i32::MAX), USED, ["message.max.bytes"],
    "Largest batch that a leader appends, in bytes after compression, its header included.";

    pub message_timestamp_after_max_ms: i64 = 3600000;
    "message.timestamp.after.max.ms", long(0), USED, ["log.message.timestamp.after.max.ms"],
    "How far a record's timestamp may lie ahead of the clock of the leader, in ms; of no effect with LogAppendTime.";

    pub message_timestamp_before_max_ms: i64 = 9223372036854775807;
    "message.timestamp.before.max.ms", long(0), USED, ["log.message.timestamp.before.max.ms"],
    "How far a record's timestamp may lie behind the clock of the leader, in ms; of no effect with LogAppendTime.";

    pub message_timestamp_type: TimestampType = TimestampType::Create, written "CreateTime";
    "message.timestamp.type", TIMESTAMP_TYPES, USED, ["log.message.timestamp.type"],
    "Whose time a record's timestamp is: that of who made it, or that of the leader's append.";

    pub min_cleanable_dirty_ratio: f64 = 0.5;
    "min.cleanable.dirty.ratio", Kind::Ratio, USED, ["log.cleaner.min.cleanable.ratio"],
    "Share of bytes not compacted yet from which a compacted log is cleaned. A lower one saves space by more work.";

    pub min_compaction_lag_ms: i64 = 0;
    "min.compaction.lag.ms", long(0), USED, ["log.cleaner.min.compaction.lag.ms"],
    "Time that a record of a compacted topic stays as it is at the least, in ms; no more than max.compaction.lag.ms.";

    pub min_insync_replicas: i32 = 1;
    "min.insync.replicas", int(1, i32::MAX), KEPT, ["min.insync.replicas"],
    "Replicas that must be in sync for an append with acks=all.";

    pub preallocate: bool = false;
    "preallocate", Kind::Boolean, USED, ["log.preallocate"],
    "Whether a new .log file is made at full size, and cut to what it holds when it is rolled or closed.";

    pub remote_log_copy_disable: bool = false;
    "remote.log.copy.disable", Kind::Boolean, KEPT, [],
    "Whether no more segments are copied to tiered storage. The local retention settings then equal those of the whole.";

    pub remote_log_delete_on_disable: bool = false;
    "remote.log.delete.on.disable", Kind::Boolean, KEPT, [],
    "Whether what was copied to tiered storage is removed when the topic leaves it.";

    pub remote_storage_enable: bool = false;
    "remote.storage.enable", Kind::Boolean, KEPT, [],
    "Whether segments are copied to tiered storage. Not for compacted topics; the local retention settings are no more than those of \
     the whole.";

    pub retention_bytes: i64 = -1;
    "retention.bytes", long(i64::MIN), USED, ["log.retention.bytes"],
    "Bytes of a partition above which the oldest segments go under the policy delete; below 0 there is no such limit.";

    pub retention_ms: i64 = 604800000;
    "retention.ms", long(-1), USED, ["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
    "Age of a segment's newest record at which the segment goes under the policy delete, in ms; -1 is never.";

    pub(super) stored_segment_bytes: i32 = 1073741824;
    "segment.bytes", int(1_048_576, i32::MAX), USED, ["log.segment.bytes"],
    "Largest segment in bytes: an append that would make it larger goes to a new one.";

    pub segment_index_bytes: i32 = 10485760;
    "segment.index.bytes", int(12, i32::MAX), USED, ["log.index.size.max.bytes"],
    "Largest index of a segment in bytes, rounded down to whole entries; a full index makes the segment roll. Kafka's bound is 4, but \
     below 12 it opens no log, because a time index has no room for an entry.";

    pub segment_jitter_ms: i64 = 0;
    "segment.jitter.ms", long(0), USED, ["log.roll.jitter.ms", "log.roll.jitter.hours"],
    "Most that is taken at random from segment.ms, in ms, so that not all partitions roll at the same time.";

    pub(super) stored_segment_ms: i64 = 604800000;
    "segment.ms", long(1), USED, ["log.roll.ms", "log.roll.hours"],
    "Longest time from the first to the newest record of a segment, in ms: a later record goes to a new segment.";

    pub unclean_leader_election_enable: bool = false;
    "unclean.leader.election.enable", Kind::Boolean, KEPT, ["unclean.leader.election.enable"],
    "Whether a replica that lacks acknowledged records may become leader when no other is left.";
}
