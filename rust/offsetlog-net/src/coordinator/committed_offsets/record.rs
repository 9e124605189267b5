//! Records of `__consumer_offsets`, as Kafka 4.3 writes them (FORMAT.md «Internal topics»).

use super::{Commit, GroupMetadata};
use offsetlog::format::Uuid;
use offsetlog::format::message::{Struct, Value};
use offsetlog::{Error, Result};

const OFFSET_COMMIT: i16 = 1;
const OFFSET_COMMIT_VALUE: i16 = 4;
const GROUP_METADATA: i16 = 2;
const GROUP_METADATA_VALUE: i16 = 3;
/// The tag of the topic's id in the value of a commit.
const TOPIC_ID: u8 = 0;

/// The key of a commit.
pub(super) fn commit_key(group: &str, topic: &str, partition: i32) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.extend(OFFSET_COMMIT.to_be_bytes());
    text(&mut out, "group", group)?;
    text(&mut out, "topic", topic)?;
    out.extend(partition.to_be_bytes());
    Ok(out)
}

/// The value of a commit.
pub(super) fn commit_value(commit: &Commit) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.extend(OFFSET_COMMIT_VALUE.to_be_bytes());
    out.extend(commit.offset.to_be_bytes());
    out.extend(commit.leader_epoch.unwrap_or(-1).to_be_bytes());
    let metadata = commit.metadata.as_bytes();
    if metadata.len() > i16::MAX as usize {
        return Err(too_long("metadata", metadata.len()));
    }
    unsigned(&mut out, metadata.len() as u32 + 1);
    out.extend(metadata);
    out.extend(commit.commit_timestamp.to_be_bytes());
    if commit.topic_id.is_zero() {
        out.push(0);
    } else {
        let id = commit.topic_id.to_bytes();
        out.extend([1, TOPIC_ID, id.len() as u8]);
        out.extend(id);
    }
    Ok(out)
}

/// The key of a group.
pub(super) fn group_key(group: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.extend(GROUP_METADATA.to_be_bytes());
    text(&mut out, "group", group)?;
    Ok(out)
}

/// The value of a group.
pub(super) fn group_value(group: &GroupMetadata) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.extend(GROUP_METADATA_VALUE.to_be_bytes());
    text(&mut out, "protocol type", &group.protocol_type)?;
    out.extend(group.generation.to_be_bytes());
    nullable(&mut out, "protocol", group.protocol.as_deref())?;
    nullable(&mut out, "leader", group.leader.as_deref())?;
    out.extend(group.state_timestamp.to_be_bytes());
    count(&mut out, "members", group.members.len())?;
    for member in &group.members {
        text(&mut out, "member id", &member.member_id)?;
        nullable(&mut out, "instance id", member.instance_id.as_deref())?;
        text(&mut out, "client id", &member.client_id)?;
        text(&mut out, "client host", &member.client_host)?;
        out.extend(member.rebalance_timeout_ms.to_be_bytes());
        out.extend(member.session_timeout_ms.to_be_bytes());
        for (name, bytes) in [
            ("subscription", &member.subscription),
            ("assignment", &member.assignment),
        ] {
            count(&mut out, name, bytes.len())?;
            out.extend(bytes);
        }
    }
    Ok(out)
}

fn text(out: &mut Vec<u8>, name: &'static str, text: &str) -> Result<()> {
    let length = i16::try_from(text.len()).map_err(|_| too_long(name, text.len()))?;
    out.extend(length.to_be_bytes());
    out.extend(text.as_bytes());
    Ok(())
}

fn nullable(out: &mut Vec<u8>, name: &'static str, value: Option<&str>) -> Result<()> {
    if let Some(value) = value {
        return text(out, name, value);
    }
    out.extend((-1_i16).to_be_bytes());
    Ok(())
}

fn count(out: &mut Vec<u8>, name: &'static str, count: usize) -> Result<()> {
    let length = i32::try_from(count).map_err(|_| too_long(name, count))?;
    out.extend(length.to_be_bytes());
    Ok(())
}

fn unsigned(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn too_long(name: &'static str, found: usize) -> Error {
    let reason = format!("{found} bytes found, at most {} expected", i16::MAX);
    Error::argument(name, reason)
}

/// The topic id in a commit's value, zero if there is none.
pub(super) fn topic_id(value: &Struct<'_>) -> Uuid {
    let id = value.get("topicId").and_then(Value::as_uuid);
    id.unwrap_or(Uuid::ZERO)
}
