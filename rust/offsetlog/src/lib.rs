//! Apache Kafka's storage engine as a library.
//!
//! Reads and writes the directories that a Kafka broker keeps, without a broker. Reading takes no lock and changes nothing; writing
//! leaves what a broker opens as its own. Bytes from a file are checked before they are used.
//!
//! ```no_run
//! use offsetlog::{Isolation, LogDir, OpenOptions};
//!
//! # fn main() -> Result<(), offsetlog::Error> {
//! let log_dir = LogDir::open(&["/var/lib/kafka"], &OpenOptions::default())?;
//! for partition in log_dir.partitions() {
//!     let log = log_dir.log(&partition.topic, partition.partition)?;
//!     println!("{} {}: {} to {}", partition.topic, partition.partition, log.log_start_offset()?, log.log_end_offset()?);
//!     if let Some(found) = log.offset_for_timestamp(1_700_000_000_000, Isolation::ReadUncommitted)? {
//!         println!("{}", log.locate(found.offset)?);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Layers, each of which may use only those below it:
//!
//! ```text
//! arrow      batches into Arrow columns (feature `arrow`)
//! convert    a directory of any age made a current one
//! adoption   a directory that was set aside, or of another topic id, made a partition again
//! partition_builder  a new directory made of batches, whole or not at all
//! log_dir    one or several log dirs as one
//! log        a partition: segments in order, named offsets, look-up, scan, transactions
//! segment    one base offset: .log and indexes; look-up, walk
//! local_path  what is given as a path, if it is a local one
//! folder     what a folder is: a partition's directory, a log dir, the folder around log dirs
//! disk       files; the only module that knows the operating system
//! ```
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

mod adoption;
mod append_info;
#[cfg(feature = "arrow")]
pub mod arrow;
mod batch_builder;
mod batch_decoder;
mod checkpoints;
mod codec;
mod config;
mod convert;
pub mod disk;
mod error;
mod folder;
mod limits;
mod local_path;
mod log;
mod log_dir;
pub mod memory;
mod old_log;
mod partition_builder;
mod record_accumulator;
mod records;
mod segment;
mod step_progress;
mod together;

pub use adoption::{AdoptedDirectory, Adoption, InterruptedAdoption, interrupted_adoption};
pub use append_info::AppendInfo;
pub use batch_builder::{BatchBuilder, Producer};
pub use batch_decoder::{BatchDecoder, BatchRecords};
pub use config::{
    BrokerSettings, CleanupPolicy, CompressionType, EffectiveConfig, Kind, LogConfig, Setting,
    SettingSource, ThrottledReplicas, nearest_setting, settings,
};
pub use convert::{ConvertOptions, ConvertProgress, ConvertReport, convert, in_brokers_log_dir};
pub use error::{Error, ErrorKind, Result};
pub use folder::{FolderKind, folder_kind};
pub use limits::{LimitName, Limits};
pub use local_path::{given_path, local_path};
pub use log::{
    AbortedTransaction, AccessControlEntry, AppendLogOptions, AppendOptions, AppendOrigin, Batch,
    BatchInfo, Batches, BrokerRegistration, ClientQuota, Clock, CompactOptions, Compaction, Cut,
    DamageReport, DetachedBatch, Extent, FetchOptions, FetchResult, FetchedRange, FileRange,
    Finding, Follow, HIDDEN, Hole, IndexEntry, Interrupt, Isolation, LaterLog, Location, Log,
    LogWriter, MIRROR_NOTE, MaintainOptions, MaintainReport, MarkerOptions, MetadataImage,
    MetadataMark, MovedBatch, NodeAnswer, OffsetAndTimestamp, OnCorrupt, OneTopic, OpenOptions,
    Outcome, PartitionRegistration, ProducerState, Progress, RangeOptions, Record, RecoverOptions,
    RecoveryReport, RemovedSegment, RetentionReason, SHARED_LOCK_FILE, Scan, ScanOptions,
    ScanRange, ScanReport, ScanStatistics, ScramCredential, SegmentAge, SegmentInfo, SetAsideFile,
    Severity, Split, TopicImage, TruncationWatch, VerifyOptions, WriteOptions, check_new_partition,
    is_internal_topic, is_secret, keep_kafka_out, lock_shared_files, moving_note, recover,
    sequence_of, verify, zookeeper_node,
};
pub use log_dir::{
    ClusterSettings, FirstUnread, Group, GroupMember, GroupOffset, GroupState, GroupsOptions,
    LogDir, LogDirMaintainReport, LogDirOptions, NewTopic, Partitioner, PendingOffset, Route,
    ShareGroupOffset, Stray, TopicPartition, TopicSettings, Transaction, TransactionList,
    TransactionState, Unread, check_new_log_dirs, murmur2, new_topic_id, not_a_log_dir,
    partition_for,
};
pub use offsetlog_format as format;
pub use old_log::{OldEntry, OldLog, OldRecord, OldScan, OldSegment};
pub use partition_builder::{BuiltPartition, NewPartition, PartitionBuilder};
pub use record_accumulator::{AppendedRecords, RecordAccumulator};
pub use segment::offset_index::IndexState;
pub use segment::walk::TornTail;
pub use step_progress::{DirectoryProgress, PartitionProgress, StepProgress, Steps};
