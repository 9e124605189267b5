//! Replays a log of committed offsets: the last record of each key counts.

use super::{Commit, GroupMetadata, MemberMetadata, Stored, record};
use offsetlog::format::internal_topic::{CoordinatorRecord, CoordinatorTopic, KnownRecord};
use offsetlog::format::message::{Struct, Value};
use offsetlog::{Error, Log, Result, ScanOptions};
use std::collections::BTreeMap;

const OLD_COMMIT: i16 = 0;
const COMMIT: i16 = 1;
const GROUP: i16 = 2;

/// Adds what a partition holds.
pub(super) fn replay(log: &Log, groups: &mut BTreeMap<String, Stored>) -> Result<()> {
    let mut scan = log.scan(&ScanOptions::default())?;
    while let Some(mut batch) = scan.next_batch()? {
        let path = batch.path().to_path_buf();
        if batch.header().attributes.is_transactional() {
            let reason = "it has commits of transactions, which only a broker's coordinator can end: the log is not of ours";
            return Err(Error::log_dir(&path, reason));
        }
        let position = batch.position();
        while let Some(found) = batch.next_record()? {
            let Some(key) = found.key else { continue };
            let decoded = CoordinatorTopic::ConsumerOffsets.decode(key, found.value);
            let decoded =
                decoded.map_err(|error| Error::new(error).at_path(&path).at_position(position))?;
            if let CoordinatorRecord::Known(known) = decoded {
                take(&known, groups);
            }
        }
    }
    Ok(())
}

pub(super) fn take(found: &KnownRecord<'_>, groups: &mut BTreeMap<String, Stored>) {
    let name = text(&found.key, "group");
    let value = found.value.as_ref().map(|(_, value)| value);
    match (found.record_type.number, value) {
        (OLD_COMMIT | COMMIT, value) => {
            let key = (
                text(&found.key, "topic"),
                int(&found.key, "partition") as i32,
            );
            let stored = groups.entry(name).or_default();
            if let Some(value) = value {
                stored.deleted.remove(&key);
                stored.offsets.insert(key.clone(), commit(key, value));
            } else {
                stored.offsets.remove(&key);
                stored.deleted.insert(key);
            }
        }
        (GROUP, value) => {
            groups.entry(name).or_default().metadata = value.map(group);
        }
        // Groups of `group.protocol=consumer` and others, which a server of ours does not keep.
        _ => {}
    }
}

fn commit((topic, partition): (String, i32), value: &Struct<'_>) -> Commit {
    // Written by no version: then the field is not there.
    let epoch = value.get("leaderEpoch").and_then(Value::as_int);
    Commit {
        topic,
        partition,
        offset: int(value, "offset"),
        leader_epoch: epoch.filter(|epoch| *epoch >= 0).map(|epoch| epoch as i32),
        metadata: text(value, "metadata"),
        commit_timestamp: int(value, "commitTimestamp"),
        topic_id: record::topic_id(value),
    }
}

fn group(value: &Struct<'_>) -> GroupMetadata {
    let members = value
        .get("members")
        .and_then(Value::as_array)
        .unwrap_or_default();
    let members = members
        .iter()
        .filter_map(Value::as_struct)
        .map(|member| MemberMetadata {
            member_id: text(member, "memberId"),
            instance_id: optional(member, "groupInstanceId"),
            client_id: text(member, "clientId"),
            client_host: text(member, "clientHost"),
            rebalance_timeout_ms: int(member, "rebalanceTimeout") as i32,
            session_timeout_ms: int(member, "sessionTimeout") as i32,
            subscription: bytes(member, "subscription"),
            assignment: bytes(member, "assignment"),
        });
    GroupMetadata {
        protocol_type: text(value, "protocolType"),
        generation: int(value, "generation") as i32,
        protocol: optional(value, "protocol"),
        leader: optional(value, "leader"),
        state_timestamp: value
            .get("currentStateTimestamp")
            .and_then(Value::as_int)
            .unwrap_or(-1),
        members: members.collect(),
    }
}

fn int(fields: &Struct<'_>, name: &str) -> i64 {
    fields.get(name).and_then(Value::as_int).unwrap_or_default()
}

fn optional(fields: &Struct<'_>, name: &str) -> Option<String> {
    let bytes = fields.get(name)?.as_bytes()?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

fn text(fields: &Struct<'_>, name: &str) -> String {
    optional(fields, name).unwrap_or_default()
}

fn bytes(fields: &Struct<'_>, name: &str) -> Vec<u8> {
    let bytes = fields.get(name).and_then(Value::as_bytes);
    bytes.unwrap_or_default().to_vec()
}
