//! What nobody knows of topics that no metadata among the sources has: their settings, and how many partitions they had.

use super::remains::Remaining;
use super::sources::{SourceTopic, Sources};
use super::targets::{Target, Targets};
use crate::retention::alter;
use offsetlog::BrokerSettings;
use offsetlog::format::counted;
use std::collections::BTreeMap;

/// An internal topic of Kafka's: the setting of a broker with the number of its partitions, which is 50 by default, and what it has
/// records of.
struct Internal {
    name: &'static str,
    partitions: &'static str,
    holds: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

const PARTITIONS: i64 = 50;

/// As brokers of Kafka 4.3 make them (`GroupCoordinatorService`, `TransactionStateManager`, `ShareCoordinatorService`), but for
/// `min.insync.replicas`, which is of the number of brokers. Kafka deletes nothing of `__share_group_state` by its age from 4.0 on; a
/// compaction would remove updates, which are no whole states.
const INTERNAL: [Internal; 3] = [
    Internal {
        name: "__consumer_offsets",
        partitions: "offsets.topic.num.partitions",
        holds: "a group",
        settings: &[
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", "104857600"),
        ],
    },
    Internal {
        name: "__transaction_state",
        partitions: "transaction.state.log.num.partitions",
        holds: "a transactional id",
        settings: &[
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("segment.bytes", "104857600"),
            ("unclean.leader.election.enable", "false"),
        ],
    },
    Internal {
        name: "__share_group_state",
        partitions: "share.coordinator.state.topic.num.partitions",
        holds: "a share group",
        settings: &[
            ("cleanup.policy", "delete"),
            ("compression.type", "producer"),
            ("retention.ms", "-1"),
            ("segment.bytes", "104857600"),
        ],
    },
];

fn internal(topic: &str) -> Option<&'static Internal> {
    INTERNAL.iter().find(|each| each.name == topic)
}

/// Whether brokers make the topic for themselves: nobody else writes it, and its records have keys.
pub(crate) fn is_kafkas_own(topic: &str) -> bool {
    internal(topic).is_some()
}

/// The settings with which brokers make a topic for themselves; none for others.
pub(super) fn kafkas_own(topic: &str) -> BTreeMap<String, String> {
    let settings = internal(topic).map_or(&[][..], |each| each.settings);
    let settings = settings.iter();
    settings
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Tells which topics get settings and a number of partitions that are guesses. Returns whether what is in an internal topic may not be
/// found again, with a warning for each.
pub(super) fn tell(
    found: &Sources,
    targets: &Targets,
    (broker, keeps_retention): (Option<&BrokerSettings>, bool),
    remaining: &mut Vec<Remaining>,
    warnings: &mut Vec<String>,
) -> bool {
    let made = |topic: &&SourceTopic| match targets.kind {
        Target::NewCluster => true,
        Target::StoppedBroker => !targets.has_topic(&topic.to_make.name),
        Target::Folder => false,
    };
    let unknown: Vec<&SourceTopic> = found
        .topics
        .iter()
        .filter(|topic| !topic.is_told && made(topic))
        .collect();
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown
            .iter()
            .map(|topic| topic.to_make.name.as_str())
            .collect();
        let counts: Vec<String> = unknown
            .iter()
            .map(|topic| format!("{} {}", topic.to_make.name, topic.to_make.partitions))
            .collect();
        remaining.push(Remaining {
            about: names.join(", "),
            reason: format!(
                "no metadata among the sources has them. The number of their partitions is that of the last one here and one ({}), and may \
                 have been greater; settings are the new brokers' defaults, and Kafka's own for internal topics. With the \
                 metadata.log.dir of a controller as a source they are known",
                counts.join(", ")
            ),
            commands: Vec::new(),
        });
    }
    let compacted = unknown.iter().filter(|topic| topic.was_compacted);
    for topic in compacted.filter(|topic| internal(&topic.to_make.name).is_none()) {
        let is_kept = targets.kind == Target::NewCluster && !keeps_retention;
        remaining.push(compacted_once(&topic.to_make.name, is_kept));
    }
    let mut is_guess = false;
    for topic in &found.topics {
        if let Some(warning) = of_internal(topic, targets, broker) {
            warnings.push(warning);
            is_guess = true;
        }
    }
    is_guess
}

/// A topic that the cleaner's checkpoint names. It may have another policy since, and then a compaction would remove records without a
/// key: so nobody but its owner can say.
fn compacted_once(topic: &str, is_kept: bool) -> Remaining {
    let now = if is_kept {
        "it deletes nothing now, and is not compacted (retention.ms=-1, retention.bytes=-1)"
    } else {
        "by the brokers' defaults retention may delete what compaction kept"
    };
    let mut commands = vec![alter(topic, "--add-config cleanup.policy=compact")];
    if is_kept {
        commands.push(alter(topic, "--delete-config retention.ms,retention.bytes"));
    }
    Remaining {
        about: topic.to_owned(),
        reason: format!(
            "it was compacted, by the cleaner-offset-checkpoint, and its settings are not known: {now}. If its policy was compact, which \
             deletes records without a key, set it"
        ),
        commands,
    }
}

/// A coordinator looks for what belongs to a name in the partition that the hash of the name says, by the number of partitions.
fn of_internal(
    topic: &SourceTopic,
    targets: &Targets,
    broker: Option<&BrokerSettings>,
) -> Option<String> {
    let name = &topic.to_make.name;
    let known = internal(name)?;
    let had = topic.to_make.partitions;
    let seeks = format!(
        "a coordinator finds {} by the hash of its name and this number; by another number than it had, not again",
        known.holds
    );
    match targets.kind {
        Target::Folder => None,
        Target::StoppedBroker => {
            let metadata = targets.metadata.as_ref()?;
            let there = metadata.topics.iter().find(|each| each.name == *name)?;
            let there = there.partitions.len() as i64;
            (there != had).then(|| {
                format!(
                    "{name} has {} in the cluster, and {had} in the sources: {seeks}",
                    counted(there, "partition")
                )
            })
        }
        Target::NewCluster => {
            let given = broker.and_then(|broker| broker.given.get(known.partitions));
            let usual = given.and_then(|given| given.trim().parse().ok());
            let usual: i64 = usual.unwrap_or(PARTITIONS);
            (!topic.is_told && usual != had).then(|| {
                format!(
                    "{name} gets {}, as partition {} is the last one here, and brokers make it with {usual} ({}): {seeks}. Give the \
                     metadata.log.dir of a controller and the log dirs of all brokers as sources, or leave it out",
                    counted(had, "partition"),
                    had - 1,
                    known.partitions
                )
            })
        }
    }
}
