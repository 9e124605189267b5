//! Describes, lists and deletes consumer groups.

use super::State;
use super::error::Code;
use super::fields::{distinct, texts};
use super::group::GroupState;
use offsetlog::format::message::{Struct, Value};

/// The operations of an unrestricted client on a group, as Kafka's bits: read, delete, describe, and describe and change its settings.
const OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

/// The first version of `DescribeGroups` that may ask for the operations.
const HAS_OPERATIONS: i16 = 3;
/// The first version of `DescribeGroups` that reports a group that does not exist.
const GROUP_NOT_FOUND: i16 = 6;

impl State {
    pub(super) fn describe(
        &mut self,
        version: i16,
        request: &Struct<'_>,
        now: i64,
    ) -> Struct<'static> {
        let asks = request
            .get("includeAuthorizedOperations")
            .and_then(Value::as_bool);
        let asks = version >= HAS_OPERATIONS && asks == Some(true);
        let mut groups = Vec::new();
        for id in distinct(texts(request, "groups")) {
            self.tick_group(&id, now);
            let mut described = self.described(version, &id);
            let is_there = version < GROUP_NOT_FOUND || self.groups.contains_key(&id);
            if asks && is_there {
                described.set("authorizedOperations", OPERATIONS);
            }
            groups.push(described.with("groupId", id));
        }
        Struct::new()
            .with("throttleTimeMs", 0)
            .with("groups", groups)
    }

    fn described(&self, version: i16, id: &str) -> Struct<'static> {
        let Some(group) = self.groups.get(id) else {
            if self.shared.options.unknown.why(id).is_some() {
                return Struct::new().with("errorCode", Code::UnknownServerError);
            }
            let described = Struct::new().with("groupState", "Dead");
            if version < GROUP_NOT_FOUND {
                return described.with("errorCode", Code::None);
            }
            return described
                .with("errorCode", Code::GroupIdNotFound)
                .with("errorMessage", format!("Group {id} not found."));
        };
        let is_stable = group.state == GroupState::Stable;
        let protocol = group.protocol.clone().filter(|_| is_stable);
        let members = group.members.values().map(|member| {
            let metadata = protocol
                .as_deref()
                .map(|protocol| member.metadata(protocol));
            Struct::new()
                .with("memberId", member.id.clone())
                .with("groupInstanceId", member.instance_id.clone())
                .with("clientId", member.client_id.clone())
                .with("clientHost", member.client_host.clone())
                .with("memberMetadata", metadata.unwrap_or_default())
                .with("memberAssignment", member.assignment.clone())
        });
        let members = members.collect::<Vec<_>>();
        Struct::new()
            .with("errorCode", Code::None)
            .with("groupState", group.state.to_string())
            .with(
                "protocolType",
                group.protocol_type.clone().unwrap_or_default(),
            )
            .with("protocolData", protocol.unwrap_or_default())
            .with("members", members)
    }

    pub(super) fn list(&mut self, request: &Struct<'_>, now: i64) -> Struct<'static> {
        self.tick(now);
        let wanted = |name: &str| -> Vec<String> {
            let wanted = texts(request, name).into_iter();
            wanted.map(|text| text.trim().to_lowercase()).collect()
        };
        let (states, types) = (wanted("statesFilter"), wanted("typesFilter"));
        let is_type = types.is_empty() || types.iter().any(|name| name == "classic");
        let groups = self.groups.values().filter(|group| {
            let state = group.state.to_string().to_lowercase();
            is_type && (states.is_empty() || states.contains(&state))
        });
        let groups = groups.map(|group| {
            Struct::new()
                .with("groupId", group.id.clone())
                .with(
                    "protocolType",
                    group.protocol_type.clone().unwrap_or_default(),
                )
                .with("groupState", group.state.to_string())
                .with("groupType", "classic")
        });
        let groups = groups.collect::<Vec<_>>();
        Struct::new()
            .with("throttleTimeMs", 0)
            .with("errorCode", Code::None)
            .with("groups", groups)
    }

    pub(super) fn delete_groups(&mut self, request: &Struct<'_>, now: i64) -> Struct<'static> {
        let mut results: Vec<(String, Code)> = Vec::new();
        for id in distinct(texts(request, "groupsNames")) {
            self.tick_group(&id, now);
            let code = self.delete_group(&id);
            results.push((id, code));
        }
        let results = results
            .into_iter()
            .map(|(id, code)| Struct::new().with("groupId", id).with("errorCode", code));
        Struct::new()
            .with("throttleTimeMs", 0)
            .with("results", results.collect::<Vec<_>>())
    }

    fn delete_group(&mut self, id: &str) -> Code {
        let Some(group) = self.groups.get(id) else {
            if self.shared.options.unknown.why(id).is_some() {
                return Code::UnknownServerError;
            }
            return Code::GroupIdNotFound;
        };
        if group.state != GroupState::Empty {
            return Code::NonEmptyGroup;
        }
        if let Err(error) = self.shared.offsets.remove_group(id) {
            return Code::of_append(&error);
        }
        self.shared.options.unknown.deleted(id);
        self.forget_group(id);
        self.settle(id);
        Code::None
    }
}
