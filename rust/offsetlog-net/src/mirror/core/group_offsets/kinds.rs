//! What kinds of groups a broker lists: those that commit offsets, which are copied, and share groups, which have none.
//!
//! A broker returns an empty list, and no error, where it is asked for committed offsets of a group of a kind that has none. So a mirror must
//! know the kinds, or tell that it does not.
//!
//! Source: Kafka's `Group.GroupType`, `ShareGroup.validateOffsetFetch` and `OffsetMetadataManager.fetchAllOffsets`.

use super::super::Core;
use super::super::answers::{structs, text};
use super::GROUPS_MAX;
use crate::mirror::report::{EventKind, MirrorEvent};
use offsetlog::format::message::Struct;
use std::collections::BTreeSet;

/// Kinds whose groups commit offsets. Without a kind: of brokers before 3.8.
const COMMITTING: [&str; 4] = ["", "classic", "consumer", "streams"];
const SHARE: &str = "share";
/// Names in one sentence.
const NAMED_MAX: usize = 10;

/// The groups that a broker lists.
pub(super) struct Listed {
    /// Those that are asked for their offsets.
    pub(super) names: Vec<String>,
    /// Share groups.
    pub(super) shared: Vec<String>,
    /// Those of `names` whose kind is not known, with that.
    pub(super) unknown: Vec<(String, String)>,
    /// How many more there are than may be.
    pub(super) left_out: usize,
}

impl Listed {
    pub(super) fn of(answer: &Struct<'_>) -> Self {
        let mut listed = Self {
            names: Vec::new(),
            shared: Vec::new(),
            unknown: Vec::new(),
            left_out: 0,
        };
        for group in structs(answer, "groups") {
            let Some(name) = text(group, "groupId") else {
                continue;
            };
            if listed.names.len() + listed.shared.len() >= GROUPS_MAX {
                listed.left_out += 1;
                continue;
            }
            let kind = text(group, "groupType").unwrap_or_default();
            if kind.eq_ignore_ascii_case(SHARE) {
                listed.shared.push(name);
                continue;
            }
            if !COMMITTING.iter().any(|it| kind.eq_ignore_ascii_case(it)) {
                listed.unknown.push((name.clone(), kind));
            }
            listed.names.push(name);
        }
        listed
    }
}

impl Core {
    /// Reports share groups, each when it is listed first, and groups of kinds that are not known.
    pub(super) fn tell_kinds(
        &mut self,
        id: i32,
        shared: Vec<String>,
        unknown: Vec<(String, String)>,
    ) {
        let shared: BTreeSet<String> = shared.into_iter().collect();
        // One that this broker no longer lists was deleted, or moved to another broker.
        self.groups
            .shared
            .retain(|name, broker| *broker != id || shared.contains(name));
        let mut new = Vec::new();
        for name in shared {
            if self.groups.shared.insert(name.clone(), id).is_none() {
                new.push(name);
            }
        }
        if !new.is_empty() {
            let message = words_of(&new);
            self.tell(MirrorEvent::new(EventKind::Warning, message).by(id));
        }
        for (name, kind) in unknown {
            let message = format!(
                "group {name} is of an unknown type, {kind}: only what it has of committed offsets is copied"
            );
            self.tell_group(&name, message);
        }
    }
}

fn words_of(new: &[String]) -> String {
    let named: Vec<&str> = new.iter().take(NAMED_MAX).map(String::as_str).collect();
    let (noun, verb, begin) = match new.len() {
        1 => ("share group", "is", "it begins"),
        _ => ("share groups", "are", "they begin"),
    };
    let more = match new.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{noun} {}{more} {verb} not copied: in the copy {begin} anew, where share.auto.offset.reset says",
        named.join(", ")
    )
}
