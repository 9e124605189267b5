//! Bytes and values of Apache Kafka's log directories.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod attributes;
pub mod batch;
pub mod builder;
pub mod checkpoint;
pub mod checksum;
pub mod clean_shutdown;
pub mod control;
pub mod copy;
mod counted;
pub mod cursor;
pub mod error;
pub mod index_entry;
pub mod internal_topic;
pub mod json;
pub mod leader_epoch;
pub mod legacy;
pub mod message;
pub mod meta_properties;
pub mod metadata_record;
pub mod name;
pub mod old_message;
pub mod partition_metadata;
pub mod protocol;
pub mod record;
pub mod snapshot;
mod text;
pub mod uuid;
pub mod v2;
pub mod varint;
pub mod zookeeper;

pub use attributes::{Attributes, Codec, TimestampType};
pub use batch::{BatchHeader, BatchView, Frame};
pub use checkpoint::{OffsetCheckpoint, OffsetCheckpointFile, PartitionOffset};
pub use control::{ControlRecord, ControlType};
pub use counted::{Counted, counted};
pub use error::{Algorithm, Fault, FormatError, Part};
pub use index_entry::{AbortedTransaction, OffsetIndexEntry, TimeIndexEntry};
pub use leader_epoch::{EpochEntry, LeaderEpochs};
pub use meta_properties::MetaProperties;
pub use name::{DirectoryName, DirectoryState, FileName, FileState, SegmentFile, SegmentFileName};
pub use old_message::{OldMessage, OldMessages};
pub use partition_metadata::PartitionMetadata;
pub use record::{Headers, RecordView};
pub use snapshot::ProducerSnapshotEntry;
pub use uuid::Uuid;
