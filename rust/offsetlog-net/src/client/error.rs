//! Errors of a connection to a broker.

use offsetlog::format::FormatError;
use std::fmt;
use std::io;
use std::time::Duration;

/// Why a connection cannot be opened or used any more. After any error but [`Request`](Self::Request) the connection is unusable.
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
        /// How long the client waited.
        after: Duration,
    },
    /// The broker closed the connection.
    Closed {
        /// `host:port`.
        address: String,
        /// What may be wrong, if it answered nothing before.
        question: Option<&'static str>,
    },
    /// The connection broke.
    Io {
        /// `host:port`.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// A response's length is negative or above the limit: the broker does not speak Kafka's protocol, or not as requested (TLS).
    Length {
        /// `host:port`.
        address: String,
        /// The length in the response.
        length: i32,
        /// The greatest length allowed.
        bytes_max: u32,
    },
    /// A response belongs to another request.
    CorrelationId {
        /// `host:port`.
        address: String,
        /// The id in the response.
        found: i32,
        /// The id in the request.
        expected: i32,
    },
    /// A response does not follow the protocol.
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
    /// The broker rejects the client's credentials, or does not prove its own identity.
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
            Self::Closed { address, question } => {
                write!(f, "{address} closed the connection")?;
                question.map_or(Ok(()), |question| {
                    write!(f, " before it answered anything: {question}")
                })
            }
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
