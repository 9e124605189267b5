//! Decodes the messages in the records of Kafka's internal topics (FORMAT.md «Internal topics»).
//!
//! Records of `__consumer_offsets`, `__transaction_state` and `__share_group_state` have a key that begins with a type and a value that
//! begins with the version of its message; a null value deletes. Records of `__cluster_metadata` have no key.
//!
//! ```
//! use offsetlog_format::internal_topic::{CoordinatorRecord, CoordinatorTopic};
//!
//! let key = [b"\x00\x01\x00\x03grp\x00\x03top".as_slice(), &3_i32.to_be_bytes()].concat();
//! let CoordinatorRecord::Known(record) = CoordinatorTopic::ConsumerOffsets.decode(&key, None)? else { unreachable!() };
//! assert_eq!(record.record_type.name(), "OffsetCommit");
//! assert_eq!(record.key.get("partition").and_then(|value| value.as_int()), Some(3));
//! assert!(record.value.is_none(), "the offset was deleted");
//! # Ok::<(), offsetlog_format::FormatError>(())
//! ```

use crate::control::ControlType;
use crate::cursor::Reader;
use crate::error::{Fault, FormatError, Part};
use crate::message::{
    Message, Struct, consumer_protocol, groups, metadata, quorum, read_unsigned, share_groups,
    share_state, streams_groups, transactions,
};

/// A topic whose records a coordinator writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CoordinatorTopic {
    /// `__consumer_offsets`.
    ConsumerOffsets,
    /// `__transaction_state`.
    TransactionState,
    /// `__share_group_state`.
    ShareGroupState,
}

/// The name of the metadata log's topic.
pub const METADATA_TOPIC: &str = "__cluster_metadata";

/// The version of the frame around each metadata record.
const METADATA_FRAME_VERSION: u32 = 1;

/// What a record of a coordinator is about.
#[derive(Debug)]
pub struct RecordType {
    /// The number in the key.
    pub number: i16,
    /// The message in the key, always version 0.
    pub key: Message,
    /// The message in the value.
    pub value: Message,
}

impl RecordType {
    /// Kafka's name, such as `OffsetCommit`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.key.name.strip_suffix("Key").unwrap_or(self.key.name)
    }
}

const fn record_type(number: i16, key: Message, value: Message) -> RecordType {
    RecordType { number, key, value }
}

static CONSUMER_OFFSETS: &[RecordType] = &[
    record_type(
        0,
        groups::LEGACY_OFFSET_COMMIT_KEY,
        groups::LEGACY_OFFSET_COMMIT_VALUE,
    ),
    record_type(1, groups::OFFSET_COMMIT_KEY, groups::OFFSET_COMMIT_VALUE),
    record_type(2, groups::GROUP_METADATA_KEY, groups::GROUP_METADATA_VALUE),
    record_type(
        3,
        groups::CONSUMER_GROUP_METADATA_KEY,
        groups::CONSUMER_GROUP_METADATA_VALUE,
    ),
    record_type(
        4,
        groups::CONSUMER_GROUP_PARTITION_METADATA_KEY,
        groups::CONSUMER_GROUP_PARTITION_METADATA_VALUE,
    ),
    record_type(
        5,
        groups::CONSUMER_GROUP_MEMBER_METADATA_KEY,
        groups::CONSUMER_GROUP_MEMBER_METADATA_VALUE,
    ),
    record_type(
        6,
        groups::CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY,
        groups::CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ),
    record_type(
        7,
        groups::CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY,
        groups::CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ),
    record_type(
        8,
        groups::CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY,
        groups::CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ),
    record_type(
        10,
        share_groups::SHARE_GROUP_MEMBER_METADATA_KEY,
        share_groups::SHARE_GROUP_MEMBER_METADATA_VALUE,
    ),
    record_type(
        11,
        share_groups::SHARE_GROUP_METADATA_KEY,
        share_groups::SHARE_GROUP_METADATA_VALUE,
    ),
    record_type(
        12,
        share_groups::SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_KEY,
        share_groups::SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ),
    record_type(
        13,
        share_groups::SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY,
        share_groups::SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ),
    record_type(
        14,
        share_groups::SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY,
        share_groups::SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ),
    record_type(
        15,
        share_groups::SHARE_GROUP_STATE_PARTITION_METADATA_KEY,
        share_groups::SHARE_GROUP_STATE_PARTITION_METADATA_VALUE,
    ),
    record_type(
        16,
        groups::CONSUMER_GROUP_REGULAR_EXPRESSION_KEY,
        groups::CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE,
    ),
    record_type(
        17,
        streams_groups::STREAMS_GROUP_METADATA_KEY,
        streams_groups::STREAMS_GROUP_METADATA_VALUE,
    ),
    record_type(
        19,
        streams_groups::STREAMS_GROUP_MEMBER_METADATA_KEY,
        streams_groups::STREAMS_GROUP_MEMBER_METADATA_VALUE,
    ),
    record_type(
        20,
        streams_groups::STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_KEY,
        streams_groups::STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ),
    record_type(
        21,
        streams_groups::STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY,
        streams_groups::STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ),
    record_type(
        22,
        streams_groups::STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY,
        streams_groups::STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ),
    record_type(
        23,
        streams_groups::STREAMS_GROUP_TOPOLOGY_KEY,
        streams_groups::STREAMS_GROUP_TOPOLOGY_VALUE,
    ),
];

static TRANSACTION_STATE: &[RecordType] = &[record_type(
    0,
    transactions::TRANSACTION_LOG_KEY,
    transactions::TRANSACTION_LOG_VALUE,
)];

static SHARE_GROUP_STATE: &[RecordType] = &[
    record_type(
        0,
        share_state::SHARE_SNAPSHOT_KEY,
        share_state::SHARE_SNAPSHOT_VALUE,
    ),
    record_type(
        1,
        share_state::SHARE_UPDATE_KEY,
        share_state::SHARE_UPDATE_VALUE,
    ),
];

/// By number; types 6, 13 and 16 are not in use.
static METADATA: &[(u32, Message)] = &[
    (0, metadata::REGISTER_BROKER_RECORD),
    (1, metadata::UNREGISTER_BROKER_RECORD),
    (2, metadata::TOPIC_RECORD),
    (3, metadata::PARTITION_RECORD),
    (4, metadata::CONFIG_RECORD),
    (5, metadata::PARTITION_CHANGE_RECORD),
    (7, metadata::FENCE_BROKER_RECORD),
    (8, metadata::UNFENCE_BROKER_RECORD),
    (9, metadata::REMOVE_TOPIC_RECORD),
    (10, metadata::DELEGATION_TOKEN_RECORD),
    (11, metadata::USER_SCRAM_CREDENTIAL_RECORD),
    (12, metadata::FEATURE_LEVEL_RECORD),
    (14, metadata::CLIENT_QUOTA_RECORD),
    (15, metadata::PRODUCER_IDS_RECORD),
    (17, metadata::BROKER_REGISTRATION_CHANGE_RECORD),
    (18, metadata::ACCESS_CONTROL_ENTRY_RECORD),
    (19, metadata::REMOVE_ACCESS_CONTROL_ENTRY_RECORD),
    (20, metadata::NO_OP_RECORD),
    (21, metadata::ZK_MIGRATION_STATE_RECORD),
    (22, metadata::REMOVE_USER_SCRAM_CREDENTIAL_RECORD),
    (23, metadata::BEGIN_TRANSACTION_RECORD),
    (24, metadata::END_TRANSACTION_RECORD),
    (25, metadata::ABORT_TRANSACTION_RECORD),
    (26, metadata::REMOVE_DELEGATION_TOKEN_RECORD),
    (27, metadata::REGISTER_CONTROLLER_RECORD),
    (28, metadata::CLEAR_ELR_RECORD),
];

/// A record of a coordinator, decoded.
#[derive(Debug)]
pub enum CoordinatorRecord<'a> {
    /// Of a type that is known.
    Known(KnownRecord<'a>),
    /// Of a type that is not; coordinators skip it.
    Unknown {
        /// The number in the key.
        number: i16,
    },
}

/// A record of a coordinator of a type that is known.
#[derive(Debug)]
pub struct KnownRecord<'a> {
    /// What it is about.
    pub record_type: &'static RecordType,
    /// The key's message.
    pub key: Struct<'a>,
    /// Version and message of the value; `None` where what the key names is deleted.
    pub value: Option<(i16, Struct<'a>)>,
}

/// A metadata record, decoded.
#[derive(Debug)]
pub struct MetadataRecord<'a> {
    /// The number in front of it.
    pub number: u32,
    /// The message.
    pub message: &'static Message,
    /// Its version.
    pub version: i16,
    /// Its fields.
    pub fields: Struct<'a>,
}

impl CoordinatorTopic {
    /// The topic of this name.
    #[must_use]
    pub fn of_name(topic: &str) -> Option<Self> {
        Some(match topic {
            "__consumer_offsets" => Self::ConsumerOffsets,
            "__transaction_state" => Self::TransactionState,
            "__share_group_state" => Self::ShareGroupState,
            _ => return None,
        })
    }

    fn record_types(self) -> &'static [RecordType] {
        match self {
            Self::ConsumerOffsets => CONSUMER_OFFSETS,
            Self::TransactionState => TRANSACTION_STATE,
            Self::ShareGroupState => SHARE_GROUP_STATE,
        }
    }

    /// Decodes key and value of a data record. Bytes behind the messages are ignored, as Kafka does.
    ///
    /// # Errors
    /// Those of [`Message::read`], at a byte of the key or of the value; the part is `CoordinatorRecord` in both.
    pub fn decode<'a>(
        self,
        key: &'a [u8],
        value: Option<&'a [u8]>,
    ) -> Result<CoordinatorRecord<'a>, FormatError> {
        let mut reader = Reader::new(key, Part::CoordinatorRecord);
        let number = reader.read_i16()?;
        let mut types = self.record_types().iter();
        let Some(record_type) = types.find(|known| known.number == number) else {
            return Ok(CoordinatorRecord::Unknown { number });
        };
        let key = record_type.key.read(0, &mut reader)?;
        let value = value.map(|value| {
            let mut reader = Reader::new(value, Part::CoordinatorRecord);
            let version = reader.read_i16()?;
            Ok((version, record_type.value.read(version, &mut reader)?))
        });
        Ok(CoordinatorRecord::Known(KnownRecord {
            record_type,
            key,
            value: value.transpose()?,
        }))
    }
}

impl<'a> MetadataRecord<'a> {
    /// The type of a record, if it is not known here: [`decode`](Self::decode) refuses it.
    #[must_use]
    pub fn unknown_type(value: &[u8]) -> Option<u32> {
        let mut reader = Reader::new(value, Part::MetadataRecord);
        let frame = read_unsigned(&mut reader).ok()?;
        let number = read_unsigned(&mut reader).ok()?;
        let is_known = METADATA.iter().any(|(known, _)| *known == number);
        (frame == METADATA_FRAME_VERSION && !is_known).then_some(number)
    }

    /// Decodes the value of a data record of the metadata log.
    ///
    /// # Errors
    /// Those of [`Message::read`]; `Version` for another frame; `Rule` for a type that is not known and for bytes behind the record.
    pub fn decode(value: &'a [u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(value, Part::MetadataRecord);
        let start = reader;
        let frame = read_unsigned(&mut reader)?;
        if frame != METADATA_FRAME_VERSION {
            return Err(start.error(Fault::Version {
                found: i64::from(frame),
                maximum: i64::from(METADATA_FRAME_VERSION),
            }));
        }
        let unknown = reader.error(Fault::Rule("the type is not known"));
        let number = read_unsigned(&mut reader)?;
        let (_, message) = METADATA
            .iter()
            .find(|(known, _)| *known == number)
            .ok_or(unknown)?;
        let version = i16::try_from(read_unsigned(&mut reader)?).unwrap_or(i16::MAX);
        let fields = message.read(version, &mut reader)?;
        if reader.remaining() > 0 {
            return Err(reader.error(Fault::Rule("bytes are left behind the record")));
        }
        Ok(Self {
            number,
            message,
            version,
            fields,
        })
    }
}

/// The partition of `__consumer_offsets` in which Kafka stores a group: by Java's hash of its name. 0 if the topic has no partition.
///
/// ```
/// use offsetlog_format::internal_topic::partition_of;
///
/// assert_eq!(partition_of("console-consumer", 50), 40);
/// ```
#[must_use]
pub fn partition_of(group: &str, count: usize) -> usize {
    // Kafka's absolute value: that of the smallest number is 0.
    let positive = java_hash(group).checked_abs().unwrap_or(0);
    (positive as usize).checked_rem(count).unwrap_or(0)
}

/// What Java's `String.hashCode` returns.
#[must_use]
pub fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

/// Decodes the value of a control record of the metadata log; `None` for other types of control records.
///
/// A version above those known is read as the newest one, as Kafka does.
///
/// # Errors
/// Those of [`Message::read`].
pub fn decode_control(
    control_type: ControlType,
    value: &[u8],
) -> Option<Result<Struct<'_>, FormatError>> {
    let message = match control_type {
        ControlType::LeaderChange => quorum::LEADER_CHANGE_MESSAGE,
        ControlType::SnapshotHeader => quorum::SNAPSHOT_HEADER_RECORD,
        ControlType::SnapshotFooter => quorum::SNAPSHOT_FOOTER_RECORD,
        ControlType::KraftVersion => quorum::KRAFT_VERSION_RECORD,
        ControlType::KraftVoters => quorum::VOTERS_RECORD,
        ControlType::Abort | ControlType::Commit | ControlType::Unknown(_) => return None,
    };
    let mut reader = Reader::new(value, Part::ControlRecord);
    let version = reader.clone().read_i16();
    Some(
        version.and_then(|version| message.read(version.min(message.highest_version), &mut reader)),
    )
}

/// Decodes what a member of a classic group of consumers says it subscribes to; the bytes begin with the version.
///
/// # Errors
/// Those of [`Message::read`].
pub fn decode_subscription(bytes: &[u8]) -> Result<(i16, Struct<'_>), FormatError> {
    decode_versioned(consumer_protocol::CONSUMER_PROTOCOL_SUBSCRIPTION, bytes)
}

/// Decodes which partitions a member of a classic group of consumers was given; the bytes begin with the version.
///
/// # Errors
/// Those of [`Message::read`].
pub fn decode_assignment(bytes: &[u8]) -> Result<(i16, Struct<'_>), FormatError> {
    decode_versioned(consumer_protocol::CONSUMER_PROTOCOL_ASSIGNMENT, bytes)
}

fn decode_versioned(message: Message, bytes: &[u8]) -> Result<(i16, Struct<'_>), FormatError> {
    let mut reader = Reader::new(bytes, Part::CoordinatorRecord);
    let version = reader.read_i16()?;
    Ok((version, message.read(version, &mut reader)?))
}

/// Every message that is known.
#[cfg(test)]
pub(crate) fn all_messages() -> impl Iterator<Item = Message> {
    let coordinators = [CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE];
    let coordinators = coordinators.into_iter().flatten();
    let control = [
        quorum::LEADER_CHANGE_MESSAGE,
        quorum::SNAPSHOT_HEADER_RECORD,
        quorum::SNAPSHOT_FOOTER_RECORD,
        quorum::KRAFT_VERSION_RECORD,
        quorum::VOTERS_RECORD,
        consumer_protocol::CONSUMER_PROTOCOL_SUBSCRIPTION,
        consumer_protocol::CONSUMER_PROTOCOL_ASSIGNMENT,
    ];
    coordinators
        .flat_map(|record_type| [record_type.key, record_type.value])
        .chain(METADATA.iter().map(|(_, message)| *message))
        .chain(control)
}
