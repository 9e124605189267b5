//! Committed offsets as the file that Kafka's tools reset offsets from: `kafka-consumer-groups --reset-offsets --from-file`.
//!
//! Kafka 4.3.0 reads the file as UTF-8, splits it at each line feed, and then parses each line by itself as CSV. A field in
//! quotation marks holds everything but a line feed, so a name with one cannot be written.

use offsetlog::{Group, GroupOffset};
use std::fmt::Write;

/// What the file says, and what it does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResetPlan {
    /// The file: `topic,partition,offset` if it is of one group, `group,topic,partition,offset` if it is of several.
    pub csv: String,
    /// Groups in the file for `kafka-consumer-groups`, by name.
    pub groups: Vec<String>,
    /// Groups in the file for `kafka-streams-groups`, by name.
    pub streams_groups: Vec<String>,
    /// Offsets in the file that were committed with metadata. The file has none, and neither has the offset after a reset.
    pub with_metadata: u64,
    /// Offsets in the file that were committed with a leader epoch. As for metadata.
    pub with_leader_epoch: u64,
    /// What cannot be in the file.
    pub refused: Vec<Refused>,
}

/// Committed offsets that are not in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The group.
    pub group: String,
    /// The topic; `None` if nothing of the group is in the file.
    pub topic: Option<String>,
    /// Why.
    pub reason: String,
}

/// Returns the committed offsets of `groups` as a file for Kafka's tools. Groups without offsets are not in it. Costs memory for
/// the file.
///
/// ```
/// use offsetlog::Group;
/// use offsetlog_ops::reset_plan;
///
/// let plan = reset_plan(&[Group::default()]);
/// assert!(plan.csv.is_empty() && plan.groups.is_empty() && plan.refused.is_empty());
/// ```
#[must_use]
pub fn reset_plan(groups: &[Group]) -> ResetPlan {
    let mut plan = ResetPlan::default();
    let mut written: Vec<(&Group, Vec<&GroupOffset>)> = Vec::new();
    for group in groups.iter().filter(|group| !group.offsets.is_empty()) {
        if let Some(reason) = refused_group(group) {
            plan.refuse(group, None, reason);
            continue;
        }
        let mut offsets = Vec::new();
        for each in &group.offsets {
            match refused_offset(each) {
                Some(reason) => plan.refuse(group, Some(&each.topic), reason),
                None => offsets.push(each),
            }
        }
        if !offsets.is_empty() {
            written.push((group, offsets));
        }
    }
    let has_one_group = written.len() == 1;
    for (group, offsets) in written {
        let names = match group.kind {
            "streams" => &mut plan.streams_groups,
            _ => &mut plan.groups,
        };
        names.push(group.group_id.clone());
        for each in offsets {
            plan.with_metadata += u64::from(!each.metadata.is_empty());
            plan.with_leader_epoch += u64::from(each.leader_epoch.is_some());
            if !has_one_group {
                push_field(&mut plan.csv, &group.group_id);
                plan.csv.push(',');
            }
            push_field(&mut plan.csv, &each.topic);
            // A string takes every write.
            let _ = writeln!(plan.csv, ",{},{}", each.partition, each.offset);
        }
    }
    plan
}

impl ResetPlan {
    fn refuse(&mut self, group: &Group, topic: Option<&str>, reason: String) {
        self.refused.push(Refused {
            group: group.group_id.clone(),
            topic: topic.map(ToOwned::to_owned),
            reason,
        });
    }
}

fn refused_group(group: &Group) -> Option<String> {
    if group.kind == "share" {
        return Some("a share group has start offsets, kafka-share-groups resets them".to_owned());
    }
    group
        .group_id
        .contains('\n')
        .then(|| "the name has a line feed, at which Kafka splits the file".to_owned())
}

fn refused_offset(each: &GroupOffset) -> Option<String> {
    if each.topic.contains('\n') {
        return Some("the topic's name has a line feed, at which Kafka splits the file".to_owned());
    }
    if each.is_of_another_topic {
        return Some(format!(
            "committed for an earlier topic of this name, with the topic id {}",
            each.topic_id
        ));
    }
    if each.partition < 0 || each.offset < 0 {
        return Some(format!(
            "partition {}, offset {}: Kafka refuses a file with a negative number",
            each.partition, each.offset
        ));
    }
    None
}

/// Names of topics that Kafka allows need no quotation marks. In all others, a quotation mark is written twice.
fn push_field(csv: &mut String, name: &str) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if !name.is_empty() && name.bytes().all(is_plain) {
        csv.push_str(name);
        return;
    }
    csv.push('"');
    for character in name.chars() {
        if character == '"' {
            csv.push('"');
        }
        csv.push(character);
    }
    csv.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use offsetlog::FirstUnread;

    fn group(name: &str, kind: &'static str, offsets: &[(&str, i32, i64)]) -> Group {
        let offsets = offsets
            .iter()
            .map(|(topic, partition, offset)| GroupOffset {
                is_of_another_topic: false,
                topic: (*topic).to_owned(),
                partition: *partition,
                offset: *offset,
                leader_epoch: Some(3),
                metadata: "note".to_owned(),
                commit_timestamp: 0,
                topic_id: offsetlog::format::Uuid::ZERO,
                log_end_offset: None,
                first_unread: FirstUnread::Unknown,
            });
        Group {
            group_id: name.to_owned(),
            kind,
            offsets: offsets.collect(),
            ..Group::default()
        }
    }

    #[test]
    fn one_group_has_three_columns() {
        let plan = reset_plan(&[
            group("a", "classic", &[("t", 0, 5), ("t", 12, i64::MAX)]),
            group("without", "consumer", &[]),
        ]);
        assert_eq!(plan.csv, "t,0,5\nt,12,9223372036854775807\n");
        assert_eq!(plan.groups, ["a"]);
        assert_eq!((plan.with_metadata, plan.with_leader_epoch), (2, 2));
    }

    #[test]
    fn several_groups_have_four_columns() {
        let plan = reset_plan(&[
            group("a", "", &[("t", 0, 5)]),
            group("b \"c\", d", "streams", &[("t,u", 1, 6)]),
        ]);
        assert_eq!(plan.csv, "a,t,0,5\n\"b \"\"c\"\", d\",\"t,u\",1,6\n");
        assert_eq!(plan.groups, ["a"]);
        assert_eq!(plan.streams_groups, ["b \"c\", d"]);
    }

    /// A refused group does not count: the tool gets one group to reset.
    #[test]
    fn what_kafka_would_read_as_something_else_is_refused() {
        let plan = reset_plan(&[
            group("a\nb,t,0,7", "classic", &[("t", 0, 5)]),
            group(
                "c",
                "classic",
                &[("t\n", 0, 5), ("t", -1, 5), ("t", 0, -1), ("t", 1, 0)],
            ),
            group("s", "share", &[("t", 0, 5)]),
        ]);
        assert_eq!(plan.csv, "t,1,0\n");
        let refused = plan.refused.iter();
        let names: Vec<_> = refused
            .map(|each| (each.group.as_str(), each.topic.as_deref()))
            .collect();
        let expected = [
            ("a\nb,t,0,7", None),
            ("c", Some("t\n")),
            ("c", Some("t")),
            ("c", Some("t")),
            ("s", None),
        ];
        assert_eq!(names, expected);
    }
}
