//! What goes wrong on a connection to a broker.

use offsetlog::format::FormatError;
use std::fmt;
use std::io;
use std::time::Duration;

/// Why a connection cannot be opened or used any more. After any of them but [`Request`](Self::Request) the connection is of no use.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The broker cannot be reached.
    Connect {
        /// `host:port`.
        address: String,
        /// The system's error of the last address tried.
        source: io::Error,
    },
    /// The broker sent or took nothing for this long.
    TimedOut {
        /// `host:port`.
        address: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The broker closed the connection.
    Closed {
        /// `host:port`.
        address: String,
    },
    /// The connection broke.
    Io {
        /// `host:port`.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// A response says that it is longer than it may be, or of a negative length: a broker that does not speak Kafka's protocol, or not
    /// in the way that was asked for (TLS).
    Length {
        /// `host:port`.
        address: String,
        /// What it says.
        length: i32,
        /// The greatest length allowed.
        bytes_max: u32,
    },
    /// A response belongs to another request.
    CorrelationId {
        /// `host:port`.
        address: String,
        /// What it has.
        found: i32,
        /// What the request had.
        expected: i32,
    },
    /// A response is not what the protocol says.
    Response {
        /// `host:port`.
        address: String,
        /// Kafka's name of the API.
        api: &'static str,
        /// What is wrong.
        source: FormatError,
    },
    /// A request cannot be written in this version.
    Request {
        /// Kafka's name of the API.
        api: &'static str,
        /// What is wrong.
        source: FormatError,
    },
    /// The encrypted connection cannot be set up.
    Tls {
        /// `host:port`.
        address: String,
        /// Why.
        reason: String,
    },
    /// The broker does not accept who we are, or does not prove who it is.
    Sasl {
        /// `host:port`.
        address: String,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { address, source } => {
                write!(f, "cannot connect to {address}: {source}")
            }
            Self::TimedOut { address, after } => {
                write!(f, "{address} did not answer for {} ms", after.as_millis())
            }
            Self::Closed { address } => write!(f, "{address} closed the connection"),
            Self::Io { address, source } => {
                write!(f, "the connection to {address} broke: {source}")
            }
            Self::Length {
                address,
                length,
                bytes_max,
            } => write!(
                f,
                "{address} announces a response of {length} bytes, at most {bytes_max} are allowed: is it a Kafka broker, and is its listener \
encrypted?"
            ),
            Self::CorrelationId {
                address,
                found,
                expected,
            } => write!(
                f,
                "{address} answered request {found}, but request {expected} was asked"
            ),
            Self::Response {
                address,
                api,
                source,
            } => write!(f, "{address}: response to {api}: {source}"),
            Self::Request { api, source } => write!(f, "request {api}: {source}"),
            Self::Tls { address, reason } => write!(f, "TLS with {address}: {reason}"),
            Self::Sasl { address, reason } => write!(f, "SASL with {address}: {reason}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect { source, .. } | Self::Io { source, .. } => Some(source),
            Self::Response { source, .. } | Self::Request { source, .. } => Some(source),
            _ => None,
        }
    }
}
