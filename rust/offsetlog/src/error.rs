//! The engine's one error type: what is wrong, what was found and expected, and where.
//!
//! An error starts as a [`FormatError`] or an [`io::Error`] and gains its path, position and offset as it climbs. The texts say
//! what is wrong, then found and expected, then where; the last words, if any, are what to do.

mod text;

use crate::disk::{AboveLimit, IoCall};
use offsetlog_format::{Codec, Fault, FormatError, Part};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What the engine's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine, one pointer wide.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    path: Option<PathBuf>,
    position: Option<u64>,
    offset: Option<i64>,
    advice: Option<&'static str>,
    appended: bool,
}

/// What is wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused a call.
    Io {
        /// What it said.
        source: io::Error,
        /// What was asked of it.
        call: IoCall,
    },
    /// Framing, size or checksum of a batch.
    CorruptBatch(FormatError),
    /// A batch whose checksum is right and whose content is not.
    InvalidRecord(FormatError),
    /// A magic byte other than 0, 1 and 2.
    UnsupportedMagic(FormatError),
    /// A codec that does not exist, or not for this magic.
    UnsupportedCodec(FormatError),
    /// A version of a file that cannot be read.
    UnsupportedVersion(FormatError),
    /// A compressed payload that is not what its codec writes.
    Decompression {
        /// The codec.
        codec: Codec,
        /// What it said.
        reason: String,
    },
    /// Offsets that do not ascend or leave their segment.
    OffsetOrder(FormatError),
    /// An offset that cannot be represented.
    OffsetOverflow(FormatError),
    /// An entry of an offset or time index.
    CorruptIndex(FormatError),
    /// An entry of a transaction index.
    CorruptTxnIndex(FormatError),
    /// A producer snapshot.
    CorruptSnapshot(FormatError),
    /// A checkpoint file.
    Checkpoint(FormatError),
    /// `partition.metadata`, `meta.properties` or a file of ZooKeeper's.
    MetadataFile(FormatError),
    /// The names or bounds of a directory.
    LogDir {
        /// What is wrong and what would do.
        reason: String,
    },
    /// A change that would go against the cluster that the log dir belongs to, or for which it is not known what the cluster wants.
    Cluster {
        /// Why, and what would do.
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
        /// First readable offset.
        log_start_offset: i64,
        /// Offset that the next record gets.
        log_end_offset: i64,
    },
    /// A limit of [`Limits`](crate::Limits) was reached.
    Limit {
        /// The limit's name.
        name: &'static str,
        /// Its value.
        limit: u64,
        /// What was met.
        seen: u64,
    },
    /// An append that a reader with the same limit could not read back.
    Unreadable {
        /// The limit's name.
        name: &'static str,
        /// Its value.
        limit: u64,
        /// What the append needs.
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
    /// A batch or marker whose producer epoch is behind.
    ProducerFenced {
        /// The producer.
        producer_id: i64,
        /// Epoch of the batch.
        found: i16,
        /// Lowest epoch that would do.
        minimum: i16,
    },
    /// A marker of a transaction coordinator that another one has replaced.
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
    /// An append that is refused for what a record or the batch itself is.
    RecordRejected {
        /// What is wrong with it.
        reason: String,
    },
    /// A record's timestamp too far from now, or of the wrong kind.
    InvalidTimestamp {
        /// Number of the record in its batch, -1 where it is not known.
        slot: i64,
        /// Its timestamp in milliseconds since 1970.
        timestamp: i64,
        /// The time of the append.
        now: i64,
        /// `message.timestamp.before.max.ms`.
        before: i64,
        /// `message.timestamp.after.max.ms`.
        after: i64,
    },
    /// A batch above `max.message.bytes`.
    RecordTooLarge {
        /// Its size in bytes, header included.
        size: u64,
        /// The setting.
        maximum: i64,
    },
    /// An append above `segment.bytes`.
    RecordBatchTooLarge {
        /// Its size in bytes.
        size: u64,
        /// The setting.
        maximum: i64,
    },
    /// The batches of a follower's append do not ascend.
    OffsetsOutOfOrder,
    /// A follower's append begins below the log end offset.
    UnexpectedAppendOffset {
        /// First offset of the append.
        found: i64,
        /// Where the log ends.
        log_end_offset: i64,
    },
    /// An append whose offsets are further apart than a segment is wide.
    AppendTooWide {
        /// Base offset of the segment.
        base_offset: i64,
        /// Last offset of the append.
        last_offset: i64,
    },
    /// Somebody else writes.
    Locked {
        /// The process that holds the lock, where it is known.
        pid: Option<i32>,
    },
    /// The log was closed.
    Closed,
    /// An earlier failure left the files in a state that is not known.
    Poisoned {
        /// That failure.
        first: String,
    },
    /// A codec refused to compress.
    Compression {
        /// The codec.
        codec: Codec,
        /// What it said.
        reason: String,
    },
    /// An argument that makes no sense.
    Argument {
        /// Its name.
        name: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The caller's [`Interrupt`](crate::Interrupt) said to stop.
    Interrupted,
}

impl ErrorKind {
    /// The kind's code: one word, for programs and for JSON.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "Io",
            Self::CorruptBatch(_) => "CorruptBatch",
            Self::InvalidRecord(_) => "InvalidRecord",
            Self::RecordRejected { .. } => "RecordRejected",
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
            Self::Limit { name, .. } | Self::Unreadable { name, .. } => {
                if matches!(name.as_bytes(), b"max_decompressed_bytes") {
                    "DecompressionLimit"
                } else {
                    "Limit"
                }
            }
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

    const fn fault(&self) -> Option<&FormatError> {
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

impl Error {
    /// Makes an error that does not know its place yet.
    pub fn new(kind: impl Into<ErrorKind>) -> Self {
        Self(Box::new(Inner {
            kind: kind.into(),
            path: None,
            position: None,
            offset: None,
            advice: None,
            appended: false,
        }))
    }

    pub(crate) fn io(call: IoCall, path: &Path, source: io::Error) -> Self {
        Self::new(ErrorKind::Io { source, call }).at_path(path)
    }

    /// For a file of [`Limits::max_state_file_bytes`](crate::Limits::max_state_file_bytes) that could not be read whole.
    pub(crate) fn state_file(path: &Path, source: io::Error) -> Self {
        let above = source.get_ref().and_then(|above| above.downcast_ref());
        let Some(&AboveLimit { size, limit }) = above else {
            return Self::io(IoCall::Read, path, source);
        };
        Self::new(ErrorKind::Limit {
            name: "max_state_file_bytes",
            limit,
            seen: size,
        })
        .at_path(path)
    }

    /// For memory that is not to be had, asked for before it is used: an allocation that fails by itself ends the process.
    pub(crate) fn no_memory() -> Self {
        Self::new(ErrorKind::Io {
            source: io::ErrorKind::OutOfMemory.into(),
            call: IoCall::HoldBatch,
        })
    }

    /// For a file that could not be replaced.
    pub(crate) fn failed_call(path: &Path, (call, source): (IoCall, io::Error)) -> Self {
        Self::io(call, path, source)
    }

    /// Whether it was a sync that failed, after which it is not known what the disk holds.
    pub(crate) fn is_failed_sync(&self) -> bool {
        let ErrorKind::Io { call, source } = &self.0.kind else {
            return false;
        };
        // A directory that could not be opened to be synced is no sync that failed.
        *call == IoCall::Sync || (*call == IoCall::SyncDirectory && !is_out_of_descriptors(source))
    }

    /// Whether there was no room for what was to be written. What was only asked or read says nothing of room, nor does a sync, after
    /// which it is not known what the disk holds.
    pub(crate) fn is_out_of_room(&self) -> bool {
        let ErrorKind::Io { call, source } = &self.0.kind else {
            return false;
        };
        is_out_of_room(source) && call.needs_room()
    }

    pub(crate) fn log_dir(path: &Path, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::LogDir {
            reason: reason.into(),
        })
        .at_path(path)
    }

    pub(crate) fn cluster(path: &Path, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Cluster {
            reason: reason.into(),
        })
        .at_path(path)
    }

    pub(crate) fn argument(name: &'static str, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Argument {
            name,
            reason: reason.into(),
        })
    }

    /// Adds the file, unless one is known.
    pub(crate) fn at_path(mut self, path: &Path) -> Self {
        self.0.path.get_or_insert_with(|| path.to_path_buf());
        self
    }

    /// Adds the position of the batch or entry in the file, unless one is known.
    pub(crate) fn at_position(mut self, position: u64) -> Self {
        self.0.position.get_or_insert(position);
        self
    }

    /// Adds the base offset of the batch, unless one is known.
    pub(crate) fn at_offset(mut self, offset: i64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Adds what to do.
    pub(crate) fn advise(mut self, advice: &'static str) -> Self {
        self.0.advice.get_or_insert(advice);
        self
    }

    /// Says that the records were appended and only their flush failed.
    pub(crate) fn after_append(mut self) -> Self {
        self.0.appended = true;
        self
    }

    /// Whether the records of the append that failed are in the log all the same: they were written, and making them durable failed.
    /// They are read and may survive, but nothing is promised.
    #[must_use]
    pub fn is_appended(&self) -> bool {
        self.0.appended
    }

    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The file or directory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Position in the file of the batch or entry that is wrong.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        self.0.position
    }

    /// Base offset of the batch that is wrong, where it is known.
    #[must_use]
    pub fn offset(&self) -> Option<i64> {
        self.0.offset
    }

    /// What was found, in words.
    #[must_use]
    pub fn found(&self) -> Option<String> {
        self.found_and_expected().map(|(found, _)| found)
    }

    /// What was expected, in words.
    #[must_use]
    pub fn expected(&self) -> Option<String> {
        self.found_and_expected().map(|(_, expected)| expected)
    }

    /// Whether bytes of a file contradict themselves or each other.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        self.0.kind.fault().is_some()
            || matches!(
                self.0.kind,
                ErrorKind::Decompression { .. } | ErrorKind::SegmentTooLarge { .. }
            )
    }
}

impl Error {
    /// Whether this is what a reader meets whose segments were removed or replaced meanwhile: a file that is gone, or offsets that do
    /// not belong where they are found.
    pub(crate) fn may_be_stale(&self) -> bool {
        self.is_missing_file() || self.is_corruption()
    }

    /// Whether there is no such file.
    pub(crate) fn is_missing_file(&self) -> bool {
        matches!(&self.0.kind, ErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Whether the disk is full, or what its user may have of it.
pub(crate) fn is_out_of_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    let errno = error
        .raw_os_error()
        .map(rustix::io::Errno::from_raw_os_error);
    matches!(
        errno,
        Some(rustix::io::Errno::NFILE | rustix::io::Errno::MFILE)
    )
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", self.0.kind.code())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            ErrorKind::Io { source, .. } => Some(source),
            kind => kind.fault().map(|error| error as _),
        }
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        Self::new(error)
    }
}
