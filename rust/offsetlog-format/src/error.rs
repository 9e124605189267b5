//! What can be wrong with bytes: one small type that names the structure, the byte and the rule.
//!
//! This module knows bytes, not files. The engine adds the path, the position in the file and the offset.

use crate::counted::counted;
use core::fmt;

/// Which structure was being read. Names are section titles of `docs/FORMAT.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The header of a record batch, magic 2.
    BatchHeader,
    /// A record of a magic 2 batch.
    Record,
    /// A header of a record.
    RecordHeader,
    /// The key or value of a control record.
    ControlRecord,
    /// A record of an internal topic that a coordinator writes.
    CoordinatorRecord,
    /// A record of the metadata log.
    MetadataRecord,
    /// A request, a response, or the header of one.
    Protocol,
    /// A message of magic 0 or 1.
    Message,
    /// A compressed set of messages of magic 0 or 1, or of Kafka 0.7.
    MessageSet,
    /// A message of Kafka 0.7.
    OldMessage,
    /// A compressed payload.
    Compression,
    /// An entry of a `.index` file.
    OffsetIndex,
    /// An entry of a `.timeindex` file.
    TimeIndex,
    /// An entry of a `.txnindex` file.
    TransactionIndex,
    /// A `.snapshot` file.
    ProducerSnapshot,
    /// A `leader-epoch-checkpoint` file.
    LeaderEpochCheckpoint,
    /// A `recovery-point-`, `replication-`, `log-start-` or `cleaner-offset-checkpoint` file.
    OffsetCheckpoint,
    /// A `partition.metadata` file.
    PartitionMetadata,
    /// A `meta.properties` file.
    MetaProperties,
    /// A `.kafka_cleanshutdown` file.
    CleanShutdown,
    /// A snapshot of ZooKeeper's.
    ZooKeeperSnapshot,
    /// A transaction log of ZooKeeper's.
    ZooKeeperLog,
    /// The data of a node in ZooKeeper, as brokers write it.
    ZooKeeperNode,
    /// The file of ours that keeps a topic's settings beside its data.
    Settings,
    /// The name of a file in a partition directory.
    FileName,
    /// The name of a partition directory.
    DirectoryName,
    /// The name of a topic.
    TopicName,
    /// An id of 16 bytes, as topics and log directories have.
    Uuid,
}

impl Part {
    /// The words an error message uses.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::BatchHeader => "record batch",
            Self::Record => "record",
            Self::RecordHeader => "record header",
            Self::ControlRecord => "control record",
            Self::CoordinatorRecord => "coordinator record",
            Self::MetadataRecord => "metadata record",
            Self::Protocol => "request or response",
            Self::Message => "legacy message",
            Self::MessageSet => "compressed message set",
            Self::OldMessage => "0.7 message",
            Self::Compression => "compressed records",
            Self::OffsetIndex => "offset index entry",
            Self::TimeIndex => "time index entry",
            Self::TransactionIndex => "transaction index entry",
            Self::ProducerSnapshot => "producer snapshot",
            Self::LeaderEpochCheckpoint => "leader epoch checkpoint",
            Self::OffsetCheckpoint => "offset checkpoint",
            Self::PartitionMetadata => "partition metadata",
            Self::MetaProperties => "meta.properties",
            Self::CleanShutdown => "clean shutdown marker",
            Self::ZooKeeperSnapshot => "ZooKeeper snapshot",
            Self::ZooKeeperLog => "ZooKeeper transaction log",
            Self::ZooKeeperNode => "ZooKeeper node",
            Self::Settings => "settings file",
            Self::FileName => "file name",
            Self::DirectoryName => "directory name",
            Self::TopicName => "topic name",
            Self::Uuid => "id",
        }
    }
}

/// A checksum's algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// CRC-32 as in zlib: magic 0 and 1.
    Crc32,
    /// CRC-32C (Castagnoli): magic 2 and producer snapshots.
    Crc32c,
    /// Adler-32: ZooKeeper's files.
    Adler32,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crc32 => "CRC-32",
            Self::Crc32c => "CRC-32C",
            Self::Adler32 => "Adler-32",
        })
    }
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Fewer bytes than the structure needs.
    Truncated {
        /// Bytes needed from the place on.
        needed: usize,
        /// Bytes there.
        available: usize,
    },
    /// A magic byte other than 0, 1 or 2.
    UnknownMagic {
        /// The byte found.
        found: i8,
    },
    /// A length field outside its bounds.
    Length {
        /// The length found.
        found: i64,
        /// Smallest legal length.
        minimum: i64,
        /// Largest legal length.
        maximum: i64,
    },
    /// Stored and computed checksum differ.
    Checksum {
        /// The algorithm.
        algorithm: Algorithm,
        /// Checksum in the bytes.
        stored: u32,
        /// Checksum of the bytes.
        computed: u32,
    },
    /// A variable-length integer that is too long or has bits beyond its width.
    Varint {
        /// Bytes read until the fault.
        bytes_read: usize,
    },
    /// A count that does not agree with what is there.
    Count {
        /// Items found.
        found: i64,
        /// Items promised.
        expected: i64,
    },
    /// A codec that does not exist, or not for this magic.
    Codec {
        /// The codec's number.
        found: u8,
    },
    /// An offset outside the bounds that its neighbours set.
    OffsetOrder {
        /// The offset found.
        found: i64,
        /// Smallest legal offset.
        minimum: i64,
        /// Largest legal offset.
        maximum: i64,
    },
    /// An offset beyond 2^63 - 1.
    OffsetOverflow {
        /// The offset to which was added.
        base: i64,
        /// What was added.
        delta: i64,
    },
    /// A version that cannot be read.
    Version {
        /// The version found.
        found: i64,
        /// The highest one that can be read.
        maximum: i64,
    },
    /// A line of a text file.
    Line {
        /// Line number, from 1.
        line: usize,
        /// The rule that is broken.
        rule: &'static str,
    },
    /// A field of a message that is to be written.
    Field {
        /// Kafka's name of it.
        name: &'static str,
        /// The rule that its value breaks.
        rule: &'static str,
    },
    /// Any other rule.
    Rule(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { needed, available } => {
                let needed = counted(needed, "byte");
                write!(f, "cut short: {needed} needed, {available} available")
            }
            Self::UnknownMagic { found } => write!(f, "magic {found} found, 0, 1 or 2 expected"),
            Self::Length {
                found,
                minimum,
                maximum,
            } => write!(f, "length {found} found, {minimum} to {maximum} expected"),
            Self::Checksum {
                algorithm,
                stored,
                computed,
            } => write!(
                f,
                "checksum mismatch: stored {stored:#010x}, computed {computed:#010x} ({algorithm})"
            ),
            Self::Varint { bytes_read } => {
                let bytes = counted(bytes_read, "byte");
                write!(
                    f,
                    "variable-length integer of {bytes} does not fit its type"
                )
            }
            Self::Count { found, expected } => {
                write!(f, "{} found, {expected} expected", counted(found, "item"))
            }
            Self::Codec { found } => write!(f, "codec {found} is not one that this magic knows"),
            Self::OffsetOrder {
                found,
                minimum,
                maximum,
            } => write!(f, "offset {found} found, {minimum} to {maximum} expected"),
            Self::OffsetOverflow { base, delta } => {
                write!(
                    f,
                    "offset {base} plus {delta} is beyond 9223372036854775807"
                )
            }
            Self::Version { found, maximum } => {
                write!(f, "version {found} found, up to {maximum} can be read")
            }
            Self::Line { line, rule } => write!(f, "line {line}: {rule}"),
            Self::Field { name, rule } => write!(f, "field {name} {rule}"),
            Self::Rule(rule) => f.write_str(rule),
        }
    }
}

/// A fault at a byte of the slice that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FormatError {
    /// The structure.
    pub part: Part,
    /// Byte of the slice given, from 0.
    pub at: usize,
    /// What is wrong.
    pub fault: Fault,
}

impl FormatError {
    /// Makes an error.
    #[must_use]
    pub const fn new(part: Part, at: usize, fault: Fault) -> Self {
        Self { part, at, fault }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.part.words(), self.fault)
    }
}

impl core::error::Error for FormatError {}
