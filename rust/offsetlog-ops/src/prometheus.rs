//! Groups as Prometheus text (exposition format 0.0.4), with the metric names of `kafka_exporter`.

use offsetlog::{FirstUnread, Group, GroupOffset, ShareGroupOffset};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The groups as Prometheus text: what each has committed and how far it is behind, in offsets and in seconds up to `now`, in ms
/// since 1970.
///
/// All families are gauges with the names and labels of `kafka_exporter`, but three: `kafka_consumergroup_lag_seconds` is the age
/// of the first unread record, 0 if everything is read; `kafka_consumergroup_state` is 1; `kafka_sharegroup_…` are of share groups.
/// A lag that is unknown is left out, and so is a sum over it. A family without samples is left out. Returns an empty text without
/// groups. Costs memory for the text.
///
/// ```
/// use offsetlog::Group;
/// use offsetlog_ops::groups_prometheus;
///
/// let group = Group { group_id: "a \"b\"".to_owned(), ..Group::default() };
/// let text = groups_prometheus(&[group], 1_700_000_000_000);
/// assert!(text.contains("\nkafka_consumergroup_members{consumergroup=\"a \\\"b\\\"\"} 0\n"));
/// ```
#[must_use]
pub fn groups_prometheus(groups: &[Group], now: i64) -> String {
    let mut text = Text::default();
    text.family(
        "kafka_consumergroup_members",
        "Members of a group when its coordinator last wrote",
        groups.iter().map(|group| {
            let labels = labels(&[("consumergroup", &group.group_id)]);
            (labels, group.members.len().to_string())
        }),
    );
    text.family(
        "kafka_consumergroup_state",
        "1 for the state of a group when its coordinator last wrote",
        groups.iter().map(|group| {
            let state = group.state.to_string();
            let labels = labels(&[("consumergroup", &group.group_id), ("state", &state)]);
            (labels, "1".to_owned())
        }),
    );
    text.family(
        "kafka_consumergroup_current_offset",
        "The next offset that a group reads of a partition",
        each_offset(groups, |each| Some(each.offset.to_string())),
    );
    text.family(
        "kafka_consumergroup_current_offset_sum",
        "Sum of the next offsets that a group reads of a topic's partitions",
        sums(groups, |each| Some(each.offset)),
    );
    text.family(
        "kafka_consumergroup_lag",
        "Offsets from the next one that a group reads to the end of the partition's log",
        each_offset(groups, |each| each.lag().map(|lag| lag.to_string())),
    );
    text.family(
        "kafka_consumergroup_lag_sum",
        "Sum of a group's lags of a topic's partitions",
        // An offset behind a log's end makes up for nothing elsewhere.
        sums(groups, |each| each.lag().map(|lag| lag.max(0))),
    );
    text.family(
        "kafka_consumergroup_lag_seconds",
        "Age of the first record of a partition that a group has not read, by the record's timestamp",
        each_offset(groups, |each| lag_seconds(each.first_unread, now)),
    );
    text.family(
        "kafka_sharegroup_start_offset",
        "The first offset of a partition that a share group may still deliver",
        each_share_offset(groups, |each| {
            each.start_offset.map(|offset| offset.to_string())
        }),
    );
    text.family(
        "kafka_sharegroup_lag",
        "Records of a partition that wait for delivery or acknowledgement in a share group",
        each_share_offset(groups, |each| each.lag().map(|lag| lag.to_string())),
    );
    text.family(
        "kafka_sharegroup_lag_seconds",
        "Age of the first record at or after a share group's start offset, by the record's timestamp",
        each_share_offset(groups, |each| lag_seconds(each.first_unread, now)),
    );
    text.0
}

/// What is written, family by family.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, help: &str, samples: impl Iterator<Item = (String, String)>) {
        let mut is_first = true;
        for (labels, value) in samples {
            if std::mem::take(&mut is_first) {
                self.line(format_args!("# HELP {name} {help}."));
                self.line(format_args!("# TYPE {name} gauge"));
            }
            self.line(format_args!("{name}{{{labels}}} {value}"));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A string takes every write.
        let _ = writeln!(self.0, "{line}");
    }
}

fn each_offset(
    groups: &[Group],
    value: impl Fn(&GroupOffset) -> Option<String>,
) -> impl Iterator<Item = (String, String)> {
    let offsets = groups.iter().flat_map(|group| {
        let offsets = group.offsets.iter();
        offsets.map(move |each| (group.group_id.as_str(), each))
    });
    offsets.filter_map(move |(group, each)| {
        let labels = labels(&[
            ("consumergroup", group),
            ("topic", &each.topic),
            ("partition", &each.partition.to_string()),
        ]);
        value(each).map(|value| (labels, value))
    })
}

fn each_share_offset(
    groups: &[Group],
    value: impl Fn(&ShareGroupOffset) -> Option<String>,
) -> impl Iterator<Item = (String, String)> {
    let offsets = groups.iter().flat_map(|group| {
        let offsets = group.share_offsets.iter();
        offsets.map(move |each| (group.group_id.as_str(), each))
    });
    offsets.filter_map(move |(group, each)| {
        let labels = labels(&[
            ("sharegroup", group),
            ("topic", &each.topic),
            ("partition", &each.partition.to_string()),
        ]);
        value(each).map(|value| (labels, value))
    })
}

/// Sums by group and topic, if every summand is known. Two offsets fit into no 64 bits.
fn sums(
    groups: &[Group],
    value: impl Fn(&GroupOffset) -> Option<i64>,
) -> impl Iterator<Item = (String, String)> {
    let of_group = move |group: &Group| {
        let mut sums: BTreeMap<&str, Option<i128>> = BTreeMap::new();
        for each in &group.offsets {
            let sum = sums.entry(&each.topic).or_insert(Some(0));
            let value = value(each).map(i128::from);
            *sum = sum.zip(value).map(|(sum, value)| sum.saturating_add(value));
        }
        let known = sums.into_iter().filter_map(|(topic, sum)| {
            let labels = labels(&[("consumergroup", &group.group_id), ("topic", topic)]);
            sum.map(|sum| (labels, sum.to_string()))
        });
        known.collect::<Vec<_>>()
    };
    groups.iter().flat_map(of_group)
}

fn lag_seconds(first_unread: FirstUnread, now: i64) -> Option<String> {
    let milliseconds = match first_unread {
        FirstUnread::Nothing => 0,
        known => known.age_ms(now)?,
    };
    Some(format!(
        "{}.{:03}",
        milliseconds / 1000,
        milliseconds % 1000
    ))
}

/// Labels as they stand between the braces: a backslash, a quotation mark and a line feed have escapes, nothing else has.
fn labels(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for character in value.chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(topic: &str, partition: i32, end: Option<i64>, first: FirstUnread) -> GroupOffset {
        GroupOffset {
            is_of_another_topic: false,
            topic: topic.to_owned(),
            partition,
            offset: 5,
            leader_epoch: None,
            metadata: String::new(),
            commit_timestamp: 0,
            topic_id: offsetlog::format::Uuid::ZERO,
            log_end_offset: end,
            first_unread: first,
        }
    }

    fn record(timestamp: Option<i64>) -> FirstUnread {
        FirstUnread::Record {
            offset: 6,
            timestamp,
        }
    }

    fn samples(text: &str, family: &str) -> Vec<String> {
        let lead = format!("{family}{{");
        text.lines()
            .filter_map(|line| line.strip_prefix(&lead))
            .map(ToOwned::to_owned)
            .collect()
    }

    /// A user who adds up the remaining lags of a topic would take the sum for all of it.
    #[test]
    fn unknown_lags_and_sums_over_them_are_left_out() {
        let group = Group {
            group_id: "g".to_owned(),
            offsets: vec![
                offset("a", 0, Some(7), record(Some(1000))),
                offset("a", 1, None, FirstUnread::Unknown),
                offset("b", 0, Some(5), FirstUnread::Nothing),
                offset("b", 1, Some(9), record(None)),
                offset("b", 2, Some(9), record(Some(9000))),
            ],
            ..Group::default()
        };
        let text = groups_prometheus(&[group], 2500);
        let of = |family| samples(&text, family);
        assert_eq!(of("kafka_consumergroup_current_offset").len(), 5);
        assert_eq!(
            of("kafka_consumergroup_current_offset_sum"),
            [
                r#"consumergroup="g",topic="a"} 10"#,
                r#"consumergroup="g",topic="b"} 15"#
            ]
        );
        assert_eq!(of("kafka_consumergroup_lag").len(), 4);
        assert_eq!(
            of("kafka_consumergroup_lag_sum"),
            [r#"consumergroup="g",topic="b"} 8"#]
        );
        assert_eq!(
            of("kafka_consumergroup_lag_seconds"),
            [
                r#"consumergroup="g",topic="a",partition="0"} 1.500"#,
                r#"consumergroup="g",topic="b",partition="0"} 0.000"#,
                r#"consumergroup="g",topic="b",partition="2"} 0.000"#
            ]
        );
    }

    #[test]
    fn sums_of_large_offsets_do_not_overflow() {
        let mut one = offset("a", 0, None, FirstUnread::Unknown);
        one.offset = i64::MAX;
        let group = Group {
            offsets: vec![one.clone(), one],
            ..Group::default()
        };
        let text = groups_prometheus(&[group], 0);
        let sum = samples(&text, "kafka_consumergroup_current_offset_sum");
        assert_eq!(sum, [r#"consumergroup="",topic="a"} 18446744073709551614"#]);
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(
            labels(&[("a", "\\ \" \n \t é")]),
            "a=\"\\\\ \\\" \\n \t é\""
        );
    }

    #[test]
    fn no_group_is_no_text() {
        assert_eq!(groups_prometheus(&[], 0), "");
    }
}
