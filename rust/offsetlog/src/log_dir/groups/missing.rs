//! Which partitions of `__consumer_offsets` are not in these log dirs: the groups in them would be missing in silence.

use super::TOPIC;
use crate::log_dir::{LogDir, TopicPartition};
use offsetlog_format::counted;
use std::collections::BTreeSet;

/// Partitions that a warning names.
const NAMED_MAX: usize = 5;

/// How many partitions `__consumer_offsets` has, if the cluster's metadata says it.
pub(super) fn known_count(log_dir: &LogDir) -> Option<usize> {
    let image = log_dir.metadata().ok().flatten()?;
    let topic = image.topics.iter().find(|topic| topic.name == TOPIC)?;
    Some(topic.partitions.len())
}

/// A warning if partitions are missing. Without metadata nobody knows of those above the greatest number.
pub(super) fn warnings(log_dir: &LogDir, partitions: &[TopicPartition]) -> Option<String> {
    let here: BTreeSet<i32> = partitions
        .iter()
        .filter(|found| found.topic == TOPIC)
        .map(|found| found.partition)
        .collect();
    // That metadata cannot be read is for others to tell: groups are read without it.
    let image = log_dir.metadata().ok().flatten();
    let known = image.iter().flat_map(|image| &image.topics);
    let mut known = known.filter(|topic| topic.name == TOPIC);
    let known = known.next().map(|topic| topic.partitions.keys().copied());
    let all: BTreeSet<i32> = match known {
        Some(known) => known.collect(),
        None => (0..here.last().copied().unwrap_or(0)).collect(),
    };
    let missing: Vec<i32> = all.difference(&here).copied().collect();
    let (are, them) = match missing.len() {
        0 => return None,
        1 => ("is", "it"),
        _ => ("are", "them"),
    };
    let mut named: Vec<String> = missing.iter().take(NAMED_MAX).map(i32::to_string).collect();
    if missing.len() > NAMED_MAX {
        named.push("...".to_owned());
    }
    Some(format!(
        "{} of {TOPIC} {are} not here ({}), and the groups in {them} are not shown",
        counted(missing.len(), "partition"),
        named.join(", ")
    ))
}
