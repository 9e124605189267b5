//! Kafka's error codes by name (`org.apache.kafka.common.protocol.Errors`), those that a server of ours answers with.

use offsetlog::format::message::Value;

/// An error code of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum ErrorCode {
    /// Anything that has no code of its own.
    UnknownServerError = -1,
    /// No error.
    None = 0,
    /// The offset is outside the log.
    OffsetOutOfRange = 1,
    /// A batch is damaged.
    CorruptMessage = 2,
    /// There is no such topic or partition.
    UnknownTopicOrPartition = 3,
    /// The partition has no leader.
    LeaderNotAvailable = 5,
    /// This broker does not lead the partition, or the caller is no replica of it.
    NotLeaderOrFollower = 6,
    /// The coordinator is loading.
    CoordinatorLoadInProgress = 14,
    /// There is no coordinator.
    CoordinatorNotAvailable = 15,
    /// This is not the coordinator.
    NotCoordinator = 16,
    /// A topic's name is not allowed.
    InvalidTopicException = 17,
    /// The mechanism is not known.
    UnsupportedSaslMechanism = 33,
    /// The request does not fit the state of the authentication.
    IllegalSaslState = 34,
    /// The version is not known.
    UnsupportedVersion = 35,
    /// The request contradicts itself.
    InvalidRequest = 42,
    /// The policy of this server refuses it.
    PolicyViolation = 44,
    /// There is no authorizer.
    SecurityDisabled = 54,
    /// The disk failed.
    KafkaStorageError = 56,
    /// The fetch session is not known.
    FetchSessionIdNotFound = 70,
    /// The fetch session has another epoch.
    InvalidFetchSessionEpoch = 71,
    /// The caller knows an older leader.
    FencedLeaderEpoch = 74,
    /// The caller knows a newer leader.
    UnknownLeaderEpoch = 75,
    /// There is no topic of this id.
    UnknownTopicId = 100,
    /// A fetch session that began with topic names continues with ids, or the other way round.
    FetchSessionTopicIdError = 106,
    /// The endpoint is one for controllers.
    MismatchedEndpointType = 114,
    /// The type of endpoint is not known.
    UnsupportedEndpointType = 115,
}

impl ErrorCode {
    /// The number.
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16
    }
}

impl From<ErrorCode> for Value<'_> {
    fn from(code: ErrorCode) -> Self {
        Self::Int(i64::from(code.code()))
    }
}
