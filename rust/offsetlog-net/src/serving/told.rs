//! The server's events as lines of a log.

use crate::server;
use crate::transport::{Event, EventLevel};

/// Logs an event.
pub(super) fn tell(log: &(dyn Fn(&Event<'_>) + Send + Sync), event: &server::Event) {
    let of = |topic: &str, partition: i32, what: &str| format!("{topic}-{partition}: {what}");
    let (level, kind, text) = match event {
        server::Event::Damage {
            topic,
            partition,
            offset,
            reason,
        } => (
            EventLevel::Error,
            "damage",
            of(
                topic,
                *partition,
                &format!("damage at offset {offset}: {reason}"),
            ),
        ),
        server::Event::Offline {
            topic,
            partition,
            reason,
        } => (EventLevel::Error, "offline", of(topic, *partition, reason)),
        server::Event::Failed {
            topic,
            partition,
            reason,
        } => (EventLevel::Error, "failed", of(topic, *partition, reason)),
        server::Event::Changed { lines } => (EventLevel::Info, "changed", lines.join("; ")),
        server::Event::GroupsFailed { reason } => (
            EventLevel::Error,
            "groups-failed",
            format!("the upkeep of committed offsets failed: {reason}"),
        ),
        server::Event::GroupUnknown { group, reason } => (
            EventLevel::Error,
            "group-unknown",
            format!("group {group} gets an error instead of its committed offsets: {reason}"),
        ),
        server::Event::NotListed { reason } => (
            EventLevel::Error,
            "not-listed",
            format!("the log dirs cannot be listed: {reason}"),
        ),
        server::Event::MetadataNotRead { reason } => (
            EventLevel::Error,
            "metadata-not-read",
            format!(
                "the cluster's metadata is not read again, what was known of it is kept: {reason}"
            ),
        ),
    };
    log(&Event {
        level,
        kind,
        peer: None,
        text,
    });
}
