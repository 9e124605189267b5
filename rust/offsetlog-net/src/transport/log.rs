//! The events that a server reports to its operator.

use std::net::SocketAddr;
use std::sync::Arc;

/// Something that an operator wants to know.
#[derive(Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// How bad it is.
    pub level: EventLevel,
    /// A word for programs, such as `slow-request`.
    pub kind: &'a str,
    /// The client, if it is about one.
    pub peer: Option<SocketAddr>,
    /// A sentence for people. It may hold what a client sent: escape it for a terminal.
    pub text: String,
}

/// How bad an [`Event`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventLevel {
    /// Worth knowing.
    Info,
    /// A client did something wrong.
    Warning,
    /// The server did, or its disk.
    Error,
}

/// Takes events, from several threads at once. It must not block for long: a connection waits for it.
pub type EventLog = Arc<dyn Fn(&Event<'_>) + Send + Sync>;
