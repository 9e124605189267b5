//! What is wrong: the kinds of the engine's errors, and the code of each.

use crate::disk::IoCall;
use crate::limits::LimitName;
use offsetlog_format::{Codec, Fault, FormatError, Part};
use std::io;

/// What is wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A system call or a memory allocation failed.
    Io {
        /// The system's error.
        source: io::Error,
        /// The call.
        call: IoCall,
    },
    /// A batch whose framing, size or checksum is wrong.
    CorruptBatch(FormatError),
    /// A batch with a correct checksum and wrong contents.
    InvalidRecord(FormatError),
    /// A magic byte other than 0, 1 and 2.
    UnsupportedMagic(FormatError),
    /// A codec that does not exist, or not for this magic.
    UnsupportedCodec(FormatError),
    /// A newer version of a settings file, a coordinator record or a metadata record than this one can read.
    UnsupportedVersion(FormatError),
    /// A compressed payload that its codec cannot decompress.
    Decompression {
        /// The codec.
        codec: Codec,
        /// The codec's error.
        reason: String,
    },
    /// Offsets that do not ascend, or that leave their segment.
    OffsetOrder(FormatError),
    /// An offset that cannot be represented.
    OffsetOverflow(FormatError),
    /// A malformed entry of an offset or time index.
    CorruptIndex(FormatError),
    /// A malformed entry of a transaction index.
    CorruptTxnIndex(FormatError),
    /// A malformed producer snapshot.
    CorruptSnapshot(FormatError),
    /// A malformed checkpoint: offsets or leader epochs.
    Checkpoint(FormatError),
    /// A malformed `partition.metadata`, `meta.properties`, clean-shutdown marker, settings file or file of ZooKeeper's.
    MetadataFile(FormatError),
    /// A directory with wrong names, contents or bounds.
    LogDir {
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A change that contradicts the cluster to which the log dir belongs, or for which the cluster's state is unknown.
    Cluster {
        /// Why it is refused, and what would be accepted.
        reason: String,
    },
    /// A `.log` file longer than 2^31 - 1 bytes.
    SegmentTooLarge {
        /// Its size in bytes.
        size: u64,
    },
    /// An offset outside the log.
    OffsetOutOfRange {
        /// The offset asked for.
        requested: i64,
        /// The first readable offset.
        log_start_offset: i64,
        /// The offset that the next record gets.
        log_end_offset: i64,
    },
    /// A limit of [`Limits`](crate::Limits) was reached.
    Limit {
        /// Which limit.
        name: LimitName,
        /// Its value.
        limit: u64,
        /// The value found.
        seen: u64,
    },
    /// An append that a reader with the same limit could not read.
    Unreadable {
        /// Which limit.
        name: LimitName,
        /// Its value.
        limit: u64,
        /// The value that the append needs.
        seen: u64,
    },
    /// A batch of an idempotent producer that does not follow its last one.
    OutOfOrderSequence {
        /// The producer.
        producer_id: i64,
        /// Epoch of the batch.
        producer_epoch: i16,
        /// Sequence of the batch's first record.
        found: i32,
        /// The sequence that would follow.
        expected: i32,
    },
    /// A batch or marker with an older producer epoch.
    ProducerFenced {
        /// The producer.
        producer_id: i64,
        /// Epoch of the batch.
        found: i16,
        /// The lowest epoch that is accepted.
        minimum: i16,
    },
    /// A marker from a transaction coordinator that another one has replaced.
    TransactionCoordinatorFenced {
        /// The producer.
        producer_id: i64,
        /// Coordinator epoch of the marker.
        found: i32,
        /// Coordinator epoch of the producer's last marker.
        minimum: i32,
    },
    /// A batch that is not transactional while a transaction of its producer is open.
    InvalidTxnState {
        /// The producer.
        producer_id: i64,
        /// First offset of the open transaction.
        first_offset: i64,
    },
    /// An append refused because its bytes are malformed or contradict each other. The log is as it was.
    BatchRejected(Box<ErrorKind>),
    /// An append refused because of a record or of the batch itself.
    RecordRejected {
        /// What is wrong with it.
        reason: String,
    },
    /// A record's timestamp is too far from now, or of the wrong kind.
    InvalidTimestamp {
        /// Index of the record in its batch, -1 if it is not known.
        slot: i64,
        /// Its timestamp in milliseconds since 1970.
        timestamp: i64,
        /// The time of the append, in milliseconds since 1970.
        now: i64,
        /// `message.timestamp.before.max.ms`.
        before: i64,
        /// `message.timestamp.after.max.ms`.
        after: i64,
    },
    /// A batch larger than `max.message.bytes`.
    RecordTooLarge {
        /// Its size in bytes, header included.
        size: u64,
        /// The value of the setting, in bytes.
        maximum: i64,
    },
    /// An append larger than `segment.bytes`.
    RecordBatchTooLarge {
        /// Its size in bytes.
        size: u64,
        /// The value of the setting, in bytes.
        maximum: i64,
    },
    /// The batches of a follower's append do not ascend.
    OffsetsOutOfOrder,
    /// A follower's append that begins below the log end offset.
    UnexpectedAppendOffset {
        /// First offset of the append.
        found: i64,
        /// The log end offset.
        log_end_offset: i64,
    },
    /// An append whose last offset does not fit the segment, or leaves no offset for the log end.
    AppendTooWide {
        /// Base offset of the segment.
        base_offset: i64,
        /// Last offset of the append.
        last_offset: i64,
    },
    /// Another process, or another writer in this one, has the log open for writing.
    Locked {
        /// The process that holds the lock, if it is known.
        pid: Option<i32>,
    },
    /// The log is closed.
    Closed,
    /// An earlier failure left the files in an unknown state, so appending ended.
    Poisoned {
        /// The text of that failure.
        first: String,
    },
    /// A codec failed to compress.
    Compression {
        /// The codec.
        codec: Codec,
        /// The codec's error.
        reason: String,
    },
    /// An argument that is not valid.
    Argument {
        /// The argument's name.
        name: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The caller's [`Interrupt`](crate::Interrupt) stopped the work.
    Interrupted,
}

impl ErrorKind {
    /// Returns the kind's code: one word, for programs and for JSON.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "Io",
            Self::CorruptBatch(_) => "CorruptBatch",
            Self::InvalidRecord(_) => "InvalidRecord",
            Self::RecordRejected { .. } | Self::BatchRejected(_) => "RecordRejected",
            Self::UnsupportedMagic(_) => "UnsupportedMagic",
            Self::UnsupportedCodec(_) => "UnsupportedCodec",
            Self::UnsupportedVersion(_) => "UnsupportedVersion",
            Self::Decompression { .. } => "Decompression",
            Self::OffsetOrder(_) => "OffsetOrder",
            Self::OffsetOverflow(_) => "OffsetOverflow",
            Self::AppendTooWide { .. } => "AppendTooWide",
            Self::CorruptIndex(_) => "CorruptIndex",
            Self::CorruptTxnIndex(_) => "CorruptTxnIndex",
            Self::CorruptSnapshot(_) => "CorruptSnapshot",
            Self::Checkpoint(_) => "Checkpoint",
            Self::MetadataFile(_) => "MetadataFile",
            Self::LogDir { .. } => "LogDir",
            Self::Cluster { .. } => "Cluster",
            Self::SegmentTooLarge { .. } => "SegmentTooLarge",
            Self::OffsetOutOfRange { .. } => "OffsetOutOfRange",
            Self::Limit { name, .. } | Self::Unreadable { name, .. } => match name {
                LimitName::MaxDecompressedBytes => "DecompressionLimit",
                _ => "Limit",
            },
            Self::OutOfOrderSequence { .. } => "OutOfOrderSequence",
            Self::ProducerFenced { .. } => "ProducerFenced",
            Self::TransactionCoordinatorFenced { .. } => "TransactionCoordinatorFenced",
            Self::InvalidTxnState { .. } => "InvalidTxnState",
            Self::InvalidTimestamp { .. } => "InvalidTimestamp",
            Self::RecordTooLarge { .. } => "RecordTooLarge",
            Self::RecordBatchTooLarge { .. } => "RecordBatchTooLarge",
            Self::OffsetsOutOfOrder => "OffsetsOutOfOrder",
            Self::UnexpectedAppendOffset { .. } => "UnexpectedAppendOffset",
            Self::Locked { .. } => "Locked",
            Self::Closed => "Closed",
            Self::Poisoned { .. } => "Poisoned",
            Self::Compression { .. } => "Compression",
            Self::Argument { .. } => "Argument",
            Self::Interrupted => "Interrupted",
        }
    }

    /// Returns what the bytes contradict, where the kind tells it.
    pub(super) fn fault(&self) -> Option<&FormatError> {
        match self {
            Self::CorruptBatch(error)
            | Self::InvalidRecord(error)
            | Self::UnsupportedMagic(error)
            | Self::UnsupportedCodec(error)
            | Self::UnsupportedVersion(error)
            | Self::OffsetOrder(error)
            | Self::OffsetOverflow(error)
            | Self::CorruptIndex(error)
            | Self::CorruptTxnIndex(error)
            | Self::CorruptSnapshot(error)
            | Self::Checkpoint(error)
            | Self::MetadataFile(error) => Some(error),
            Self::BatchRejected(kind) => kind.fault(),
            _ => None,
        }
    }
}

impl From<FormatError> for ErrorKind {
    fn from(error: FormatError) -> Self {
        match (error.part, error.fault) {
            (_, Fault::UnknownMagic { .. }) if error.part == Part::BatchHeader => {
                Self::UnsupportedMagic(error)
            }
            (Part::OldMessage, Fault::Version { .. }) => Self::UnsupportedMagic(error),
            (_, Fault::Codec { .. }) => Self::UnsupportedCodec(error),
            (_, Fault::OffsetOrder { .. }) => Self::OffsetOrder(error),
            (_, Fault::OffsetOverflow { .. }) => Self::OffsetOverflow(error),
            (Part::OffsetIndex | Part::TimeIndex, _) => Self::CorruptIndex(error),
            (Part::TransactionIndex, _) => Self::CorruptTxnIndex(error),
            (Part::ProducerSnapshot, _) => Self::CorruptSnapshot(error),
            (Part::LeaderEpochCheckpoint | Part::OffsetCheckpoint, _) => Self::Checkpoint(error),
            (
                Part::PartitionMetadata
                | Part::MetaProperties
                | Part::CleanShutdown
                | Part::ZooKeeperSnapshot
                | Part::ZooKeeperLog
                | Part::ZooKeeperNode,
                _,
            ) => Self::MetadataFile(error),
            (Part::CoordinatorRecord | Part::MetadataRecord, Fault::Version { .. }) => {
                Self::UnsupportedVersion(error)
            }
            (
                Part::Record
                | Part::RecordHeader
                | Part::ControlRecord
                | Part::CoordinatorRecord
                | Part::MetadataRecord
                | Part::MessageSet
                | Part::Compression,
                _,
            ) => Self::InvalidRecord(error),
            _ => Self::CorruptBatch(error),
        }
    }
}
