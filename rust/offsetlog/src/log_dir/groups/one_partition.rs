//! A group is stored in one partition of `__consumer_offsets`. If the topic got more partitions, old records of it stay in another one.

use super::TOPIC;
use super::replay::Replay;
use offsetlog_format::internal_topic::partition_of;
use std::collections::{BTreeMap, BTreeSet};

/// Removes groups from the partitions in which no coordinator looks for them, if they are in several. A group that is only in a wrong one
/// stays. `known` is the topic's number of partitions, if the cluster's metadata says it; `greatest` is the greatest number of one that
/// is here, whether it could be read or not. Returns a warning for each of these groups.
pub(super) fn settle(
    replays: &mut [(i32, Replay)],
    known: Option<usize>,
    greatest: Option<i32>,
) -> Vec<String> {
    let mut places: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for (partition, replay) in &*replays {
        let names = replay.groups.keys();
        for name in names.chain(replay.offsets.keys().map(|(group, ..)| group)) {
            match places.get_mut(name) {
                Some(found) => {
                    found.insert(*partition);
                }
                None => {
                    places.insert(name.clone(), BTreeSet::from([*partition]));
                }
            }
        }
    }
    let mut warnings = Vec::new();
    let is_here = |own: i32| replays.iter().any(|(partition, _)| *partition == own);
    if let Some(count) = known {
        for (name, found) in places.iter().filter(|(_, found)| found.len() == 1) {
            let own = i32::try_from(partition_of(name, count)).unwrap_or(-1);
            if !found.contains(&own) && !is_here(own) {
                warnings.push(format!(
                    "group {name}: what is shown may be old, of a time when {TOPIC} had fewer partitions: Kafka looks for it in partition {own}, \
                     which is not here or cannot be read"
                ));
            }
        }
    }
    places.retain(|_, found| found.len() > 1);
    // Without metadata, as many as the greatest number here tells; that names one of the partitions hardly ever if it is wrong.
    let count = known.unwrap_or_else(|| greatest.map_or(0, |number| number as usize + 1));
    for (name, found) in places {
        let own = i32::try_from(partition_of(&name, count)).unwrap_or(-1);
        for (partition, replay) in &mut *replays {
            if *partition != own && found.contains(partition) {
                replay.groups.remove(&name);
                replay.offsets.retain(|(group, ..), _| *group != name);
            }
        }
        let numbers: Vec<String> = found.iter().map(i32::to_string).collect();
        let numbers = numbers.join(", ");
        warnings.push(if found.contains(&own) {
            format!(
                "group {name} is in several partitions of {TOPIC} ({numbers}): only partition {own} counts, in which Kafka looks for it"
            )
        } else {
            format!(
                "group {name} is in several partitions of {TOPIC} ({numbers}) and is not shown: Kafka looks for it in partition {own} of {count}, \
                 or the cluster's metadata is missing here, which says how many there are"
            )
        });
    }
    warnings
}
