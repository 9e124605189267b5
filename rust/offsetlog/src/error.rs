//! The engine's one error type: what is wrong, what was found and expected, and where.
//!
//! An error starts as a [`FormatError`] or an [`io::Error`]; callers up the stack add its path, position and offset. A text says what is
//! wrong, then what was found and expected, then where, and last, if known, what to do.

mod text;

use crate::append_info::AppendInfo;
use crate::disk::{AboveLimit, IoCall};
use offsetlog_format::{Codec, Fault, FormatError, Part};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of the engine's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine, one pointer wide.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    path: Option<PathBuf>,
    position: Option<u64>,
    offset: Option<i64>,
    advice: Option<&'static str>,
    appended: Option<AppendInfo>,
}

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
        /// The limit's name.
        name: &'static str,
        /// Its value.
        limit: u64,
        /// The value found.
        seen: u64,
    },
    /// An append that a reader with the same limit could not read.
    Unreadable {
        /// The limit's name.
        name: &'static str,
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
    /// Returns an error without a place.
    pub fn new(kind: impl Into<ErrorKind>) -> Self {
        Self(Box::new(Inner {
            kind: kind.into(),
            path: None,
            position: None,
            offset: None,
            advice: None,
            appended: None,
        }))
    }

    /// An error of the operating system's: which call failed, on which path.
    #[must_use]
    pub fn io(call: IoCall, path: &Path, source: io::Error) -> Self {
        Self::new(ErrorKind::Io { source, call }).at_path(path)
    }

    /// Returns the error for a file that could not be read, or is above
    /// [`Limits::max_state_file_bytes`](crate::Limits::max_state_file_bytes).
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

    /// Returns the error for memory that cannot be allocated. Callers reserve memory before they use it, because an ordinary allocation
    /// that fails ends the process.
    pub(crate) fn no_memory() -> Self {
        Self::new(ErrorKind::Io {
            source: io::ErrorKind::OutOfMemory.into(),
            call: IoCall::HoldBatch,
        })
    }

    /// Returns the error of a call that failed while a file was replaced.
    #[must_use]
    pub fn failed_call(path: &Path, (call, source): (IoCall, io::Error)) -> Self {
        Self::io(call, path, source)
    }

    /// Whether a sync failed: then it is unknown what the disk holds.
    pub(crate) fn is_failed_sync(&self) -> bool {
        let ErrorKind::Io { call, source } = &self.0.kind else {
            return false;
        };
        // If the directory could not be opened, no sync was tried.
        *call == IoCall::Sync || (*call == IoCall::SyncDirectory && !is_out_of_descriptors(source))
    }

    /// Whether there was no room for a write. Calls that only ask or read need no room, and a failed sync is not counted: after it, it is
    /// unknown what the disk holds.
    #[must_use]
    pub fn is_out_of_room(&self) -> bool {
        let ErrorKind::Io { call, source } = &self.0.kind else {
            return false;
        };
        is_out_of_room(source) && call.needs_room()
    }

    /// An error about what a folder is, or is not. `reason` says what was found and what would do.
    #[must_use]
    pub fn log_dir(path: &Path, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::LogDir {
            reason: reason.into(),
        })
        .at_path(path)
    }

    /// An error about what the cluster has. `reason` says what was found and what would do.
    #[must_use]
    pub fn cluster(path: &Path, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Cluster {
            reason: reason.into(),
        })
        .at_path(path)
    }

    /// An error about an argument. `reason` says what was found and what is expected.
    #[must_use]
    pub fn argument(name: &'static str, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Argument {
            name,
            reason: reason.into(),
        })
    }

    /// Adds the path, unless the error has one.
    #[must_use]
    pub fn at_path(mut self, path: &Path) -> Self {
        self.0.path.get_or_insert_with(|| path.to_path_buf());
        self
    }

    /// Adds the position of the batch or entry in the file, unless the error has one.
    #[must_use]
    pub fn at_position(mut self, position: u64) -> Self {
        self.0.position.get_or_insert(position);
        self
    }

    /// Adds the base offset of the batch, unless the error has one.
    pub(crate) fn at_offset(mut self, offset: i64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Adds what to do, unless the error says so already.
    pub(crate) fn advise(mut self, advice: &'static str) -> Self {
        self.0.advice.get_or_insert(advice);
        self
    }

    /// Marks that the records were appended, as `info` says, and a later step failed, such as their flush.
    pub(crate) fn after_append(mut self, info: AppendInfo) -> Self {
        self.0.appended = Some(info);
        self
    }

    /// Changes what of the whole is appended, where this is the error behind the append of a part.
    pub(crate) fn map_appended(
        mut self,
        whole: impl FnOnce(AppendInfo) -> Option<AppendInfo>,
    ) -> Self {
        self.0.appended = self.0.appended.and_then(whole);
        self
    }

    /// Whether the records of the failed append are in the log all the same: they were written, and a later step, such as their flush,
    /// failed. They are read like other records and may survive a crash, which is not promised.
    #[must_use]
    pub fn is_appended(&self) -> bool {
        self.0.appended.is_some()
    }

    /// What the append did, where [`is_appended`](Self::is_appended).
    #[must_use]
    pub fn appended(&self) -> Option<AppendInfo> {
        self.0.appended
    }

    /// Whether an append was refused because of its records: the log may take fewer of them, or others.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::RecordRejected { .. }
                | ErrorKind::InvalidTimestamp { .. }
                | ErrorKind::RecordTooLarge { .. }
                | ErrorKind::RecordBatchTooLarge { .. }
                | ErrorKind::AppendTooWide { .. }
                | ErrorKind::Unreadable { .. }
        )
    }

    /// Returns what is wrong.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the file or directory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the position in the file of the batch or entry that is wrong.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        self.0.position
    }

    /// Returns the base offset of the batch that is wrong, if it is known.
    #[must_use]
    pub fn offset(&self) -> Option<i64> {
        self.0.offset
    }

    /// Returns what was found, in words.
    #[must_use]
    pub fn found(&self) -> Option<String> {
        self.found_and_expected().map(|(found, _)| found)
    }

    /// Returns what was expected, in words.
    #[must_use]
    pub fn expected(&self) -> Option<String> {
        self.found_and_expected().map(|(_, expected)| expected)
    }

    /// Whether bytes of a file are malformed, contradict each other, or have an unsupported magic, codec or version.
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
    /// Whether a reader can get this error because its segments were removed or replaced: a file does not exist, or bytes are malformed
    /// or not where they belong.
    pub(crate) fn may_be_stale(&self) -> bool {
        self.is_missing_file() || self.is_corruption()
    }

    /// Whether the file does not exist.
    pub(crate) fn is_missing_file(&self) -> bool {
        matches!(&self.0.kind, ErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Whether the disk or the user's quota is full.
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
