//! Names of partition directories and of the files in them (FORMAT.md «Names»).

use crate::error::{Fault, FormatError, Part};
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

/// Most characters of a topic's name.
pub const TOPIC_MAXIMUM_CHARACTERS: usize = 249;
/// Most characters of the name of a directory that is being deleted or set aside.
pub const DIRECTORY_MAXIMUM_CHARACTERS: usize = 255;
/// Digits of an offset in a file's name.
pub const OFFSET_DIGITS: usize = 20;
/// Digits of a leader epoch in the name of a metadata snapshot.
pub const EPOCH_DIGITS: usize = 10;

/// File with the leader epochs of a partition.
pub const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";
/// File with the topic's id.
pub const PARTITION_METADATA: &str = "partition.metadata";
/// File with the vote of a controller, in the metadata log only.
pub const QUORUM_STATE: &str = "quorum-state";
/// File of a log directory that names the node and the cluster.
pub const META_PROPERTIES: &str = "meta.properties";
/// File of a log directory that tells a clean stop.
pub const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// File of a log directory that its owner holds locked.
pub const LOCK: &str = ".lock";
/// Ending of a text file's replacement while it is written.
pub const TEMPORARY_SUFFIX: &str = ".tmp";
/// Ending of a segment of Kafka 0.7.
pub const BYTE_OFFSET_SEGMENT_SUFFIX: &str = ".kafka";

/// Says whether Kafka would take `topic` as a new topic's name.
///
/// Names found on disk need not obey: Kafka reads directories without asking this.
///
/// # Errors
/// `Length` when empty or longer than [`TOPIC_MAXIMUM_CHARACTERS`]; `Rule` for `.`, `..` or a character other than ASCII letters,
/// digits, `.`, `_` and `-`.
pub fn check_topic(topic: &str) -> Result<(), FormatError> {
    let fail = |at, fault| Err(FormatError::new(Part::TopicName, at, fault));
    if let Some(at) = topic
        .bytes()
        .position(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'.' | b'_' | b'-'))
    {
        return fail(
            at,
            Fault::Rule("a topic has letters, digits, '.', '_' and '-' only"),
        );
    }
    if topic.is_empty() || topic.len() > TOPIC_MAXIMUM_CHARACTERS {
        return fail(
            0,
            Fault::Length {
                found: topic.len() as i64,
                minimum: 1,
                maximum: TOPIC_MAXIMUM_CHARACTERS as i64,
            },
        );
    }
    if matches!(topic, "." | "..") {
        return fail(0, Fault::Rule("a topic cannot be called '.' or '..'"));
    }
    Ok(())
}

/// Whether Kafka would refuse to have both topics: their names are equal once `.` is replaced by `_`.
#[must_use]
pub fn topics_collide(one: &str, other: &str) -> bool {
    let folded = |byte| if byte == b'.' { b'_' } else { byte };
    one.bytes().map(folded).eq(other.bytes().map(folded))
}

/// What a partition directory's name says about its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DirectoryState {
    /// In use.
    Live,
    /// Being deleted.
    Delete,
    /// A replica that is being moved in from another log directory.
    Future,
    /// A replica that the metadata does not know, kept aside.
    Stray,
}

impl DirectoryState {
    /// The name's ending; empty for a live directory.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Live => "",
            Self::Delete => "-delete",
            Self::Future => "-future",
            Self::Stray => "-stray",
        }
    }
}

/// The name of a partition directory, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectoryName<'a> {
    /// The topic. In a `-delete` or `-stray` name it may be cut short.
    pub topic: &'a str,
    /// Number of the partition.
    pub partition: i32,
    /// What the ending says.
    pub state: DirectoryState,
}

impl<'a> DirectoryName<'a> {
    /// Takes a directory's name apart as Kafka does: split at the last `-`, leniently.
    ///
    /// Topics that [`check_topic`] refuses are read, and so are numbers such as `007` and `+5`.
    ///
    /// # Errors
    /// `Rule` when the name is not that of a partition directory; a broker does not start with such a directory in a log
    /// directory.
    pub fn parse(name: &'a str) -> Result<Self, FormatError> {
        let fail = |at, rule| Err(FormatError::new(Part::DirectoryName, at, Fault::Rule(rule)));
        let state = [
            DirectoryState::Delete,
            DirectoryState::Future,
            DirectoryState::Stray,
        ]
        .into_iter()
        .find(|state| name.ends_with(state.suffix()))
        .unwrap_or(DirectoryState::Live);
        let mut rest = name;
        if let Some(stem) = name.strip_suffix(state.suffix())
            && state != DirectoryState::Live
        {
            // Kafka's pattern is `\S+-\S+\.\S+`, with the white space of Java's regular expressions.
            let first_dash = stem.bytes().skip(1).position(|byte| byte == b'-');
            let last_dot = stem
                .strip_suffix(|_: char| true)
                .and_then(|stem| stem.rfind('.'));
            match (first_dash, last_dot) {
                (Some(dash), Some(dot))
                    if dot >= dash + 3 && !stem.contains(is_java_white_space) =>
                {
                    rest = stem
                        .rfind('.')
                        .and_then(|dot| stem.get(..dot))
                        .unwrap_or("");
                }
                _ => {
                    return fail(
                        stem.len(),
                        "the ending must follow 'topic-partition.' and a unique id",
                    );
                }
            }
        }
        let Some((topic, partition)) = rest.rsplit_once('-') else {
            return fail(0, "no '-' between topic and partition");
        };
        if topic.is_empty() {
            return fail(0, "no topic before '-'");
        }
        let Ok(partition) = partition.parse::<i32>() else {
            return fail(
                topic.len() + 1,
                "what follows the last '-' is not a partition's number",
            );
        };
        Ok(Self {
            topic,
            partition,
            state,
        })
    }
}

/// Makes the name of a live partition directory.
///
/// # Errors
/// As [`check_topic`]; `Rule` for a negative partition.
pub fn directory_name(topic: &str, partition: i32) -> Result<String, FormatError> {
    check_topic(topic)?;
    if partition < 0 {
        return Err(FormatError::new(
            Part::DirectoryName,
            topic.len() + 1,
            Fault::Rule("a partition's number cannot be negative"),
        ));
    }
    Ok(format!("{topic}-{partition}"))
}

/// Makes the name that a partition directory gets in another state; `unique_id` is random bytes of the caller's.
///
/// The topic is cut where the whole would exceed [`DIRECTORY_MAXIMUM_CHARACTERS`], except for
/// [`Future`](DirectoryState::Future), as in Kafka.
///
/// # Errors
/// As [`directory_name`].
pub fn directory_name_in_state(
    topic: &str,
    partition: i32,
    state: DirectoryState,
    unique_id: [u8; 16],
) -> Result<String, FormatError> {
    let live = directory_name(topic, partition)?;
    if state == DirectoryState::Live {
        return Ok(live);
    }
    let unique_id = u128::from_be_bytes(unique_id);
    let tail = format!("-{partition}.{unique_id:032x}{}", state.suffix());
    let room = match state {
        DirectoryState::Future => usize::MAX,
        _ => DIRECTORY_MAXIMUM_CHARACTERS.saturating_sub(tail.len()),
    };
    let topic = topic.get(..topic.len().min(room)).unwrap_or(topic);
    Ok(format!("{topic}{tail}"))
}

/// The white space of Java's regular expressions and of checkpoint lines.
pub(crate) const fn is_java_white_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

/// A kind of file that is named by an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SegmentFile {
    /// Record batches.
    Log,
    /// Offsets to positions.
    OffsetIndex,
    /// Timestamps to offsets.
    TimeIndex,
    /// Aborted transactions.
    TransactionIndex,
    /// Producers' state up to, not including, the offset in the name.
    ProducerSnapshot,
}

impl SegmentFile {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Log,
        Self::OffsetIndex,
        Self::TimeIndex,
        Self::TransactionIndex,
        Self::ProducerSnapshot,
    ];

    /// The name's ending, with its dot.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Log => ".log",
            Self::OffsetIndex => ".index",
            Self::TimeIndex => ".timeindex",
            Self::TransactionIndex => ".txnindex",
            Self::ProducerSnapshot => ".snapshot",
        }
    }
}

/// What a second ending says about a file that is named by an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileState {
    /// In use.
    Live,
    /// Waits for its deletion.
    Deleted,
    /// Output of compaction or of a split that is not finished: never to be read.
    Cleaned,
    /// Finished output that is about to take the place of live files.
    Swap,
}

impl FileState {
    /// The name's ending, with its dot; empty for a live file.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Live => "",
            Self::Deleted => ".deleted",
            Self::Cleaned => ".cleaned",
            Self::Swap => ".swap",
        }
    }
}

/// The name of a file that is named by an offset; [`Display`](fmt::Display) writes it.
///
/// ```
/// use offsetlog_format::name::{SegmentFile, SegmentFileName};
/// assert_eq!(SegmentFileName::live(368_769, SegmentFile::Log).to_string(), "00000000000000368769.log");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentFileName {
    /// Base offset of the segment; for a producer snapshot the offset that it reaches, exclusive.
    pub offset: i64,
    /// What the file holds.
    pub file: SegmentFile,
    /// What the second ending says.
    pub state: FileState,
}

impl SegmentFileName {
    /// The name of a file in use.
    #[must_use]
    pub const fn live(offset: i64, file: SegmentFile) -> Self {
        Self {
            offset,
            file,
            state: FileState::Live,
        }
    }
}

impl fmt::Display for SegmentFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (extension, suffix) = (self.file.extension(), self.state.suffix());
        write!(f, "{:020}{extension}{suffix}", self.offset)
    }
}

/// Makes the name of a live file of a segment: the offset with its zeros, and the ending.
///
/// Offsets on a disk are not negative; one that is has its sign before the zeros, as [`format!`] has it.
#[must_use]
pub fn segment_file_name(offset: i64, extension: &str) -> String {
    let mut digits = [b'0'; OFFSET_DIGITS];
    let Ok(mut rest) = u64::try_from(offset) else {
        return format!("{offset:020}{extension}");
    };
    for digit in digits.iter_mut().rev() {
        // One digit.
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut name = String::with_capacity(OFFSET_DIGITS + extension.len());
    name.push_str(core::str::from_utf8(&digits).unwrap_or_default());
    name.push_str(extension);
    name
}

/// Whether a snapshot of the metadata log is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetadataSnapshotState {
    /// Whole.
    Live,
    /// Being written.
    Part,
    /// Waits for its deletion.
    Deleted,
}

/// What a file of a partition directory is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileName {
    /// A segment's file or a producer snapshot.
    Segment(SegmentFileName),
    /// Ends like a segment's file but is not named by exactly 20 digits. Kafka would stop at it, or read another file in its
    /// place.
    BadSegmentName(FormatError),
    /// The leader epochs.
    LeaderEpochCheckpoint,
    /// The topic's id.
    PartitionMetadata,
    /// A controller's vote, in the metadata log only.
    QuorumState,
    /// A half-written replacement of one of the text files.
    Temporary,
    /// A snapshot of the metadata log, named by its end offset (exclusive) and epoch.
    MetadataSnapshot {
        /// First offset that the snapshot does not hold.
        end_offset: i64,
        /// Leader epoch of the last record in it.
        epoch: i32,
        /// Whether it is whole.
        state: MetadataSnapshotState,
    },
    /// A segment of Kafka 0.7, named by the position of its first byte in the whole partition.
    ByteOffsetSegment {
        /// That position.
        position: i64,
    },
    /// Anything else. Brokers do not look at it.
    Other,
}

impl FileName {
    /// Tells what a file in a partition directory is.
    #[must_use]
    pub fn classify(name: &str) -> Self {
        match name {
            LEADER_EPOCH_CHECKPOINT => return Self::LeaderEpochCheckpoint,
            PARTITION_METADATA => return Self::PartitionMetadata,
            QUORUM_STATE => return Self::QuorumState,
            _ => {}
        }
        if let Some(stem) = name.strip_suffix(TEMPORARY_SUFFIX) {
            return match stem {
                LEADER_EPOCH_CHECKPOINT | PARTITION_METADATA | QUORUM_STATE => Self::Temporary,
                _ => Self::Other,
            };
        }
        let (stem, state) = [FileState::Deleted, FileState::Cleaned, FileState::Swap]
            .into_iter()
            .find_map(|state| Some((name.strip_suffix(state.suffix())?, state)))
            .unwrap_or((name, FileState::Live));
        for file in SegmentFile::ALL {
            if let Some(digits) = stem.strip_suffix(file.extension()) {
                return match parse_digits(digits, OFFSET_DIGITS) {
                    Ok(offset) => Self::Segment(SegmentFileName {
                        offset,
                        file,
                        state,
                    }),
                    // Kafka removes these without reading the number.
                    Err(_) if state == FileState::Deleted => Self::Other,
                    Err(rule) => {
                        Self::BadSegmentName(FormatError::new(Part::FileName, 0, Fault::Rule(rule)))
                    }
                };
            }
        }
        if let Some(digits) = name.strip_suffix(BYTE_OFFSET_SEGMENT_SUFFIX)
            && let Ok(position) = parse_digits(digits, OFFSET_DIGITS)
        {
            return Self::ByteOffsetSegment { position };
        }
        metadata_snapshot(name).unwrap_or(Self::Other)
    }
}

fn metadata_snapshot(name: &str) -> Option<FileName> {
    let (stem, state) = if let Some(stem) = name.strip_suffix(".checkpoint") {
        (stem, MetadataSnapshotState::Live)
    } else if let Some(stem) = name.strip_suffix(".checkpoint.part") {
        (stem, MetadataSnapshotState::Part)
    } else {
        let stem = name.strip_suffix(".checkpoint.deleted")?;
        (stem, MetadataSnapshotState::Deleted)
    };
    let (end_offset, rest) = stem.split_once('-')?;
    let epoch = match state {
        // A random number follows the epoch here.
        MetadataSnapshotState::Part => rest.split_once('-')?.0,
        _ => rest,
    };
    Some(FileName::MetadataSnapshot {
        end_offset: parse_digits(end_offset, OFFSET_DIGITS).ok()?,
        epoch: i32::try_from(parse_digits(epoch, EPOCH_DIGITS).ok()?).ok()?,
        state,
    })
}

/// Makes the name of a segment of Kafka 0.7; `position` is that of its first byte in the whole partition.
#[must_use]
pub fn byte_offset_segment_name(position: i64) -> String {
    format!("{position:020}{BYTE_OFFSET_SEGMENT_SUFFIX}")
}

/// Makes the name of a whole snapshot of the metadata log.
#[must_use]
pub fn metadata_snapshot_name(end_offset: i64, epoch: i32) -> String {
    format!("{end_offset:020}-{epoch:010}.checkpoint")
}

/// Makes the name under which the replacement of the text file `name` is written.
#[must_use]
pub fn temporary_name(name: &str) -> String {
    name.to_string() + TEMPORARY_SUFFIX
}

fn parse_digits(digits: &str, count: usize) -> Result<i64, &'static str> {
    if digits.len() != count || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err("a segment's file is named by an offset of exactly 20 digits");
    }
    let mut digits = digits.bytes().map(|digit| i64::from(digit - b'0'));
    let number = digits.try_fold(0_i64, |number, digit| {
        number.checked_mul(10)?.checked_add(digit)
    });
    number.ok_or("the offset in the file's name is beyond 9223372036854775807")
}

#[cfg(test)]
#[path = "name_tests.rs"]
mod tests;
