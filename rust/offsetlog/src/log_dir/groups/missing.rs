//! Which partitions of the groups' topics are not in these log dirs: what they have would be missing in silence.

use super::{TOPIC, share};
use crate::log::MetadataImage;
use crate::log_dir::TopicPartition;
use offsetlog_format::counted;
use std::collections::BTreeSet;

/// Partitions that a warning names.
const NAMED_MAX: usize = 5;

/// How many partitions `__consumer_offsets` has, if the cluster's metadata says it.
pub(super) fn known_count(image: &MetadataImage) -> Option<usize> {
    let topic = image.topics.iter().find(|topic| topic.name == TOPIC)?;
    Some(topic.partitions.len())
}

/// A warning for each topic of which partitions are missing. Without metadata nobody knows of those above the greatest number.
pub(super) fn warnings(image: &MetadataImage, partitions: &[TopicPartition]) -> Vec<String> {
    [TOPIC, share::TOPIC]
        .into_iter()
        .filter_map(|topic| warning(topic, image, partitions))
        .collect()
}

fn warning(topic: &str, image: &MetadataImage, partitions: &[TopicPartition]) -> Option<String> {
    let here: BTreeSet<i32> = partitions
        .iter()
        .filter(|found| found.topic == topic)
        .map(|found| found.partition)
        .collect();
    let known = image.topics.iter().find(|known| known.name == topic);
    let all: BTreeSet<i32> = match known {
        Some(known) => known.partitions.keys().copied().collect(),
        None => (0..here.last().copied().unwrap_or(0)).collect(),
    };
    let missing: Vec<i32> = all.difference(&here).copied().collect();
    let (are, them) = match missing.len() {
        0 => return None,
        1 => ("is", "it"),
        _ => ("are", "them"),
    };
    let hidden = match topic {
        TOPIC => format!("the groups in {them} are not shown"),
        _ => format!("where share groups read is not shown as far as it is in {them}"),
    };
    let mut named: Vec<String> = missing.iter().take(NAMED_MAX).map(i32::to_string).collect();
    if missing.len() > NAMED_MAX {
        named.push("...".to_owned());
    }
    Some(format!(
        "{} of {topic} {are} not here ({}), and {hidden}",
        counted(missing.len(), "partition"),
        named.join(", ")
    ))
}
