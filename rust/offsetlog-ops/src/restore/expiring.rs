//! Groups of which a coordinator deletes the committed offsets soon after it has loaded them, because nobody has used them for long.
//!
//! Source: `GroupMetadataManager` and `OffsetMetadataManager.cleanupExpiredOffsets`: `ClassicGroup.offsetExpirationCondition`,
//! `OffsetExpirationConditionImpl`. The first round is `offsets.retention.check.interval.ms` (10 minutes) after the start.

use super::committed::{Commits, Committed};
use super::remains::Remaining;
use offsetlog::BrokerSettings;
use offsetlog::format::counted;
use offsetlog::format::message::{Struct, Value};
use std::collections::{BTreeMap, BTreeSet};

const SETTING: &str = "offsets.retention.minutes";
/// Kafka's default: 7 days.
const DEFAULT_MINUTES: i64 = 10_080;
const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;
/// How much longer than now the setting is told to keep them.
const MORE: i64 = 30 * DAY;
const NAMES_MAX: usize = 20;

/// What a group of the classic protocol stored of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupState {
    has_members: bool,
    /// When it became empty, where the record has it. A group without a protocol type goes by its commits.
    empty_since: Option<i64>,
}

impl GroupState {
    pub(super) fn of(value: &Struct<'_>) -> Self {
        let members = value.get("members").and_then(Value::as_array);
        let protocol_type = value.get("protocolType").and_then(Value::as_str);
        let since = value.get("currentStateTimestamp").and_then(Value::as_int);
        Self {
            has_members: members.is_some_and(|members| !members.is_empty()),
            empty_since: since
                .filter(|since| *since >= 0)
                .filter(|_| protocol_type.is_some_and(|text| !text.is_empty())),
        }
    }
}

/// How long the target's brokers keep offsets of groups that nobody uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct OffsetsRetention {
    minutes: i64,
    is_known: bool,
    now: i64,
}

impl OffsetsRetention {
    pub(super) fn of(broker: Option<&BrokerSettings>, now: i64) -> Self {
        let given = broker.and_then(|broker| broker.given.get(SETTING));
        Self {
            minutes: given
                .and_then(|given| given.trim().parse().ok())
                .unwrap_or(DEFAULT_MINUTES),
            is_known: broker.is_some(),
            now,
        }
    }

    /// When the offset is deleted, if the group stays as it is; `None` while it has members, which begin anew when they are gone.
    fn due(&self, committed: &Committed, group: Option<GroupState>) -> Option<i64> {
        if group.is_some_and(|group| group.has_members) {
            return None;
        }
        if let Some(expires) = committed.expires {
            return Some(expires);
        }
        let since = group
            .and_then(|group| group.empty_since)
            .unwrap_or(committed.timestamp);
        Some(since.saturating_add(self.minutes.saturating_mul(MINUTE)))
    }
}

/// The groups that lose offsets within a day.
#[derive(Debug, Default)]
pub(super) struct Expiring {
    groups: BTreeSet<String>,
    /// Groups with an expiry of their own in the record, which no setting changes.
    explicit: BTreeSet<String>,
    /// For how long nobody has used them, at most.
    unused_ms: i64,
}

impl Expiring {
    pub(super) fn add(&mut self, found: &Commits, how: OffsetsRetention) {
        let states: &BTreeMap<String, GroupState> = &found.groups;
        for ((group, ..), committed) in &found.offsets {
            let Some(due) = how.due(committed, states.get(group).copied()) else {
                continue;
            };
            if due > how.now.saturating_add(DAY) {
                continue;
            }
            if committed.expires.is_some() {
                self.explicit.insert(group.clone());
            } else {
                self.groups.insert(group.clone());
                let since = due.saturating_sub(how.minutes.saturating_mul(MINUTE));
                self.unused_ms = self.unused_ms.max(how.now.saturating_sub(since));
            }
        }
    }

    pub(super) fn told(&self, how: OffsetsRetention) -> Vec<Remaining> {
        let mut told = Vec::new();
        let saved = "offsetlog groups SOURCE --reset-csv > offsets.csv".to_owned();
        if !self.groups.is_empty() {
            let minutes = (self.unused_ms.saturating_add(MORE) / MINUTE).min(i64::from(i32::MAX));
            let (held, known) = (
                how.minutes,
                if how.is_known {
                    ""
                } else {
                    ", if theirs is Kafka's default"
                },
            );
            told.push(Remaining {
                about: "groups".to_owned(),
                reason: format!(
                    "{} ({}) had no members for so long that a coordinator deletes committed offsets of theirs minutes after the start, or \
                     within a day ({SETTING}={held} of the brokers{known}): put {SETTING}={minutes} into each broker's server.properties \
                     before it, until their consumers have run. This writes the offsets down",
                    counted(self.groups.len(), "group"),
                    names(&self.groups),
                ),
                commands: vec![saved.clone()],
            });
        }
        if !self.explicit.is_empty() {
            told.push(Remaining {
                about: "groups".to_owned(),
                reason: format!(
                    "{} ({}) committed with a time after which a coordinator deletes the offsets, which no setting changes, and it has passed or \
                     passes within a day: write them down, and set them again when the cluster runs",
                    counted(self.explicit.len(), "group"),
                    names(&self.explicit),
                ),
                commands: vec![saved],
            });
        }
        told
    }
}

fn names(groups: &BTreeSet<String>) -> String {
    let mut names: Vec<String> = groups.iter().take(NAMES_MAX).cloned().collect();
    if let Some(more) = groups.len().checked_sub(NAMES_MAX).filter(|more| *more > 0) {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}
