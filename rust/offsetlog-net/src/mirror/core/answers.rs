//! Takes answers apart: which request they belong to, and the fields of structures.

use super::{Asked, Core, Node};
use crate::mirror::work::Work;
use offsetlog::format::cursor::Reader;
use offsetlog::format::error::Part;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::Api;
use offsetlog::format::{FormatError, Uuid};

impl Core {
    /// Takes the response to a request of this node: the body in `bytes` from `at` on. Returns the work for the disk, whose ranges of
    /// records are positions in `bytes`.
    ///
    /// # Errors
    /// The bytes are not such a response. The connection is then unusable; call [`failed`](Self::failed).
    pub(crate) fn answered(
        &mut self,
        node: Node,
        (api, version): (&Api, i16),
        asked: &Asked,
        bytes: &[u8],
        at: usize,
        now: i64,
    ) -> Result<Vec<Work>, FormatError> {
        let body = bytes.get(at..).unwrap_or_default();
        let mut reader = Reader::new(body, Part::Protocol);
        let answer = api.response.read(version, &mut reader)?;
        let failures = self.nodes.get(&node).map_or(0, |state| state.failures);
        let state = self.nodes.entry(node).or_default();
        let throttled = int(&answer, "throttleTimeMs").clamp(0, 600_000);
        state.not_before = now.saturating_add(throttled);
        let mut works = Vec::new();
        self.nodes.entry(node).or_default().failures = 0;
        match (asked, node) {
            (Asked::Metadata { look, names }, _) => {
                self.take_metadata(*look, names.as_deref(), &answer, now, &mut works);
            }
            (Asked::Configs(names), _) => self.take_configs(names, &answer, now, &mut works),
            (Asked::Fetch(asked), Node::Broker(id)) => {
                self.take_fetch(id, asked, &answer, bytes, now, &mut works);
            }
            (Asked::Earliest(asked), Node::Broker(id)) => {
                self.take_earliest(id, asked, &answer, now, &mut works);
            }
            (Asked::Latest(asked), Node::Broker(id)) => self.take_latest(id, asked, &answer, now),
            (Asked::Epochs(asked), Node::Broker(id)) => self.take_epochs(id, asked, &answer, now),
            (Asked::Coordinators, Node::Broker(id)) => self.take_proof(id, &answer, now),
            (Asked::Groups, Node::Broker(id)) => self.take_groups(id, &answer, now),
            (Asked::Offsets(groups), Node::Broker(id)) => {
                self.take_offsets(id, groups, &answer, now, &mut works);
            }
            (_, Node::Any) => {}
        }
        let state = self.nodes.entry(node).or_default();
        if state.failures == 0 {
            self.tell_answer(node);
        } else {
            // An answer that is an error as a whole.
            state.failures = failures.saturating_add(1);
            let failures = state.failures;
            let wait = self.options.backoff(failures);
            state.not_before = state.not_before.max(now.saturating_add(wait));
            self.tell_silence(node, failures, "it answers with an error");
        }
        Ok(works)
    }
}

/// An integer, 0 where the version has none.
pub(super) fn int(of: &Struct<'_>, name: &str) -> i64 {
    of.get(name).and_then(Value::as_int).unwrap_or(0)
}

pub(super) fn int_or(of: &Struct<'_>, name: &str, otherwise: i64) -> i64 {
    of.get(name).and_then(Value::as_int).unwrap_or(otherwise)
}

pub(super) fn int32(of: &Struct<'_>, name: &str) -> i32 {
    i32::try_from(int(of, name)).unwrap_or(-1)
}

/// The structures of an array, none where it is null or not there.
pub(super) fn structs<'s, 'a>(
    of: &'s Struct<'a>,
    name: &str,
) -> impl Iterator<Item = &'s Struct<'a>> + use<'s, 'a> {
    let elements = of.get(name).and_then(Value::as_array).unwrap_or_default();
    elements.iter().filter_map(Value::as_struct)
}

/// A text; what is not UTF-8 is replaced.
pub(super) fn text(of: &Struct<'_>, name: &str) -> Option<String> {
    let bytes = of.get(name)?.as_bytes()?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

pub(super) fn uuid(of: &Struct<'_>, name: &str) -> Uuid {
    let none = Uuid::from_bytes([0; 16]);
    of.get(name).and_then(Value::as_uuid).unwrap_or(none)
}

/// An epoch; a negative number means none.
pub(super) fn epoch(of: &Struct<'_>, name: &str) -> Option<i32> {
    i32::try_from(int_or(of, name, -1))
        .ok()
        .filter(|&epoch| epoch >= 0)
}

/// Kafka's name of an error, as far as a mirror meets it.
pub(super) fn error_name(code: i64) -> String {
    let name = match code {
        -1 => "UNKNOWN_SERVER_ERROR",
        1 => "OFFSET_OUT_OF_RANGE",
        2 => "CORRUPT_MESSAGE",
        3 => "UNKNOWN_TOPIC_OR_PARTITION",
        5 => "LEADER_NOT_AVAILABLE",
        6 => "NOT_LEADER_OR_FOLLOWER",
        7 => "REQUEST_TIMED_OUT",
        9 => "REPLICA_NOT_AVAILABLE",
        14 => "COORDINATOR_LOAD_IN_PROGRESS",
        15 => "COORDINATOR_NOT_AVAILABLE",
        16 => "NOT_COORDINATOR",
        17 => "INVALID_TOPIC_EXCEPTION",
        29 => "TOPIC_AUTHORIZATION_FAILED",
        30 => "GROUP_AUTHORIZATION_FAILED",
        31 => "CLUSTER_AUTHORIZATION_FAILED",
        35 => "UNSUPPORTED_VERSION",
        56 => "KAFKA_STORAGE_ERROR",
        69 => "GROUP_ID_NOT_FOUND",
        74 => "FENCED_LEADER_EPOCH",
        75 => "UNKNOWN_LEADER_EPOCH",
        78 => "OFFSET_NOT_AVAILABLE",
        100 => "UNKNOWN_TOPIC_ID",
        103 => "INCONSISTENT_TOPIC_ID",
        _ => return format!("error {code}"),
    };
    name.to_owned()
}
