//! Kafka's error codes that a group coordinator answers with.

use offsetlog::format::message::Value;

/// An error code of a response, by Kafka's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i16)]
pub(super) enum Code {
    UnknownServerError = -1,
    None = 0,
    UnknownTopicOrPartition = 3,
    OffsetMetadataTooLarge = 12,
    CoordinatorNotAvailable = 15,
    IllegalGeneration = 22,
    InconsistentGroupProtocol = 23,
    InvalidGroupId = 24,
    UnknownMemberId = 25,
    InvalidSessionTimeout = 26,
    RebalanceInProgress = 27,
    InvalidRequest = 42,
    TransactionalIdAuthorizationFailed = 53,
    NonEmptyGroup = 68,
    GroupIdNotFound = 69,
    MemberIdRequired = 79,
    GroupMaxSizeReached = 81,
    FencedInstanceId = 82,
    GroupSubscribedToTopic = 86,
    UnstableOffsetCommit = 88,
    UnknownTopicId = 100,
}

impl Code {
    /// The error code of a failed append: a retriable one if a retry can help, as after a full disk.
    pub(super) fn of_append(error: &offsetlog::Error) -> Self {
        if error.is_refusal() || matches!(error.kind(), offsetlog::ErrorKind::Limit { .. }) {
            Self::UnknownServerError
        } else {
            Self::CoordinatorNotAvailable
        }
    }
}

impl From<Code> for Value<'_> {
    fn from(code: Code) -> Self {
        Self::Int((code as i16).into())
    }
}
