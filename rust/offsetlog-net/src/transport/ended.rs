//! Why a connection ended.

use std::fmt;
use std::io;

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The client closed it between two requests, or while it waited for an answer.
    ByClient,
    /// The client went away in the middle of a request or a response, or the network did.
    Broken(io::Error),
    /// No whole request, and no proof of who it is, came within the time that a new connection has.
    HandshakeTime,
    /// Nothing was asked for too long.
    Idle,
    /// A request began and did not come whole in time.
    SlowRequest,
    /// The client did not take a response in time.
    SlowClient,
    /// The length of a request is not allowed.
    Length { length: i32, bytes_max: u32 },
    /// All memory for requests or answers, or each turn, was in use until the deadline.
    Memory,
    /// TLS could not be set up.
    #[cfg_attr(
        not(feature = "tls"),
        expect(dead_code, reason = "nothing is encrypted")
    )]
    Tls(String),
    /// The client did not prove who it is, or asked before it did.
    Authentication(String),
    /// The protocol logic ended it.
    Service(String),
    /// The protocol logic failed: a bug.
    Panic(String),
    /// A file is shorter than what was promised of it, or cannot be read.
    File(io::Error),
    /// A response is longer than the protocol can say.
    ResponseLength(u64),
    /// The server stops.
    Stopped,
}

/// Kinds of ends, for counting: the order is that of [`Ended::kind`].
pub(crate) const KINDS: [&str; 14] = [
    "client",
    "broken",
    "handshake-timeout",
    "idle",
    "slow-request",
    "slow-client",
    "request-length",
    "memory",
    "tls",
    "authentication",
    "protocol",
    "panic",
    "file",
    "stopped",
];

impl Ended {
    /// Place in [`KINDS`].
    pub(crate) fn kind(&self) -> usize {
        match self {
            Self::ByClient => 0,
            Self::Broken(_) => 1,
            Self::HandshakeTime => 2,
            Self::Idle => 3,
            Self::SlowRequest => 4,
            Self::SlowClient => 5,
            Self::Length { .. } => 6,
            Self::Memory => 7,
            Self::Tls(_) => 8,
            Self::Authentication(_) => 9,
            Self::Service(_) | Self::ResponseLength(_) => 10,
            Self::Panic(_) => 11,
            Self::File(_) => 12,
            Self::Stopped => 13,
        }
    }

    /// Whether neither the client nor the server did anything wrong: nothing is logged.
    pub(crate) fn is_ordinary(&self) -> bool {
        matches!(
            self,
            Self::ByClient | Self::Broken(_) | Self::Idle | Self::Stopped
        )
    }

    /// Whether it is the server's fault.
    pub(crate) fn is_error(&self) -> bool {
        matches!(
            self,
            Self::Panic(_) | Self::File(_) | Self::ResponseLength(_)
        )
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByClient => f.write_str("the client closed the connection"),
            Self::Broken(error) => write!(f, "the connection broke: {error}"),
            Self::HandshakeTime => f.write_str("no whole first request came in time"),
            Self::Idle => f.write_str("nothing was asked for too long"),
            Self::SlowRequest => f.write_str("a request did not come whole in time"),
            Self::SlowClient => f.write_str("the client did not take its response in time"),
            Self::Length { length, bytes_max } => write!(
                f,
                "a request of {length} bytes is announced, at most {bytes_max} are allowed"
            ),
            Self::Memory => f.write_str("all memory for requests was in use for too long"),
            Self::Tls(reason) => write!(f, "TLS: {reason}"),
            Self::Authentication(reason) => write!(f, "SASL: {reason}"),
            Self::Service(reason) => f.write_str(reason),
            Self::Panic(reason) => write!(f, "a bug of offsetlog ended this connection: {reason}"),
            Self::File(error) => write!(f, "a file cannot be sent: {error}"),
            Self::ResponseLength(length) => write!(
                f,
                "a response of {length} bytes is longer than the protocol can say"
            ),
            Self::Stopped => f.write_str("the server stops"),
        }
    }
}
