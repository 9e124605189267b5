//! Kafka's requests and responses: which there are, in which versions, and the headers in front of them (FORMAT.md «Protocol»).
//!
//! A frame on a connection is four bytes of length, a header, a body. The bodies are tables that `protocol/generate.py` writes from
//! Kafka's own schemas; [`Message`] reads and writes them.
//!
//! ```
//! use offsetlog_format::cursor::Reader;
//! use offsetlog_format::error::Part;
//! use offsetlog_format::message::Struct;
//! use offsetlog_format::protocol::{RequestHeader, api, apis};
//!
//! let header = RequestHeader { api_key: 10, api_version: 0, correlation_id: 7, client_id: Some(b"me") };
//! let mut frame = Vec::new();
//! header.write(&mut frame)?;
//! apis::FIND_COORDINATOR.request.write(0, &Struct::new().with("key", "group"), &mut frame)?;
//!
//! let mut reader = Reader::new(&frame, Part::Protocol);
//! let header = RequestHeader::read(&mut reader)?;
//! let api = api(header.api_key).unwrap();
//! let request = api.request.read(header.api_version, &mut reader)?;
//! assert_eq!(api.name, "FindCoordinator");
//! assert_eq!(request.get("key").and_then(|key| key.as_str()), Some("group"));
//! # Ok::<(), offsetlog_format::FormatError>(())
//! ```

mod announced;
mod api_versions;
pub mod apis;
mod delete_groups;
mod describe_acls;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod fetch;
mod find_coordinator;
mod header;
mod heartbeat;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_groups;
mod list_offsets;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod sasl_authenticate;
mod sasl_handshake;
mod sync_group;

pub use announced::{ANNOUNCED, Announced, announced};
pub use header::{RequestHeader, ResponseHeader};

use crate::message::Message;

/// A request and its response.
#[derive(Debug)]
pub struct Api {
    /// The number in a request's header.
    pub key: i16,
    /// Kafka's name.
    pub name: &'static str,
    /// The request's table.
    pub request: Message,
    /// The response's table.
    pub response: Message,
}

impl Api {
    /// The lowest version that can be read and written.
    #[must_use]
    pub const fn lowest_version(&self) -> i16 {
        self.request.lowest_version
    }

    /// The highest version that can be read and written.
    #[must_use]
    pub const fn highest_version(&self) -> i16 {
        self.request.highest_version
    }

    /// Whether this version can be read and written.
    #[must_use]
    pub const fn has_version(&self, version: i16) -> bool {
        self.lowest_version() <= version && version <= self.highest_version()
    }
}

/// The API with this key, if it is known here.
#[must_use]
pub fn api(key: i16) -> Option<&'static Api> {
    apis::ALL.iter().find(|api| api.key == key).copied()
}

#[cfg(test)]
#[path = "protocol/tests.rs"]
mod tests;
