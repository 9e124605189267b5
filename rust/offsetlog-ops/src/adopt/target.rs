//! Which partition a directory is to become, by its name and by what the cluster's metadata says of it.

use super::AdoptOptions;
use crate::identity::{absent_log_dirs, assigned_directory, not_a_replica};
use crate::places::{LogDirPlace, PartitionPlace, Places};
use crate::producer_ids;
use crate::topic_config::topic_config;
use crate::words::about_to_be_deleted;
use offsetlog::format::Uuid;
use offsetlog::format::name::{DIRECTORY_MAXIMUM_CHARACTERS, DirectoryState};
use offsetlog::{Error, MetadataImage, PartitionRegistration, Result, TopicImage};
use std::collections::BTreeSet;

/// What a directory is to become.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) topic: String,
    /// What `partition.metadata` is to say; `None` for a topic without an id.
    pub(super) topic_id: Option<Uuid>,
    /// The leader epoch that the cluster counts.
    pub(super) leader_epoch: Option<i32>,
    /// The next producer id that the cluster gives out, if it is known.
    pub(super) next_producer_id: Option<i64>,
    /// Whether it is compacted by its own settings.
    pub(super) is_compacted: bool,
}

impl Target {
    /// Decides; what is odd or not known is added to `notes`.
    ///
    /// # Errors
    /// `Cluster` for what the metadata does not have here; `LogDir`, `Argument`.
    pub(super) fn of(
        places: &Places,
        place: &LogDirPlace,
        found: &PartitionPlace,
        how: &AdoptOptions,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        if found.topic == offsetlog::format::internal_topic::METADATA_TOPIC {
            let reason = "the cluster's metadata log, which is no topic's partition";
            return Err(Error::log_dir(&found.path, reason));
        }
        match known(places, place) {
            Ok(metadata) => {
                if !metadata.is_of_zookeeper && places.metadata_cluster.is_none() {
                    notes.push(
                        "which cluster's the metadata is, no meta.properties beside it says"
                            .to_owned(),
                    );
                }
                of_metadata(metadata, places, place, found, how, notes)
            }
            Err(why) => {
                let Some(topic_id) = how.topic_id else {
                    let reason = format!(
                        "{why}: name the folder that has it (metadata=, --metadata), or give the topic's id (topic_id=, --topic-id)"
                    );
                    return Err(Error::argument("topic_id", reason));
                };
                if topic_id.is_zero() {
                    return Err(Error::argument("topic_id", "the id of no topic is zero"));
                }
                notes.push(format!("not compared with the cluster's metadata: {why}"));
                Ok(Self {
                    topic: by_name(found, how, None)?,
                    topic_id: Some(topic_id),
                    leader_epoch: None,
                    next_producer_id: None,
                    is_compacted: false,
                })
            }
        }
    }
}

/// The metadata of this log dir's cluster, or why nothing is known.
pub(super) fn known<'p>(
    places: &'p Places,
    place: &LogDirPlace,
) -> std::result::Result<&'p MetadataImage, String> {
    let Some(metadata) = &places.metadata else {
        return Err(match &places.metadata_error {
            Some(error) => format!("the cluster's metadata cannot be read ({error})"),
            None => "no metadata of the cluster is here".to_owned(),
        });
    };
    if !metadata.is_complete {
        return Err("a part of the cluster's metadata is missing".to_owned());
    }
    match (place.cluster_id(), places.metadata_cluster.as_deref()) {
        (Some(here), Some(there)) if here != there => Err(format!(
            "the metadata is that of cluster {there}, and this log dir is of cluster {here}"
        )),
        _ => Ok(metadata),
    }
}

/// The topic of a directory by its name, which may be cut short.
fn by_name(
    found: &PartitionPlace,
    how: &AdoptOptions,
    metadata: Option<&MetadataImage>,
) -> Result<String> {
    let name = found.path.file_name().unwrap_or_default();
    let is_aside = matches!(found.state, DirectoryState::Delete | DirectoryState::Stray);
    let is_cut = is_aside && name.len() >= DIRECTORY_MAXIMUM_CHARACTERS;
    let fits =
        |topic: &str| topic == found.topic || (is_cut && topic.starts_with(found.topic.as_str()));
    if let Some(topic) = &how.topic {
        if fits(topic) {
            return Ok(topic.clone());
        }
        let reason = format!(
            "{topic:?} found, and the directory's name says {:?}",
            found.topic
        );
        return Err(Error::argument("topic", reason));
    }
    if !is_cut {
        return Ok(found.topic.clone());
    }
    let topics = metadata.into_iter().flat_map(|metadata| &metadata.topics);
    let mut names = topics
        .map(|topic| topic.name.as_str())
        .filter(|name| fits(name));
    match (names.next(), names.next()) {
        (Some(only), None) => Ok(only.to_owned()),
        (one, other) => {
            let several = [one, other].into_iter().flatten().chain(names);
            let several: Vec<&str> = several.collect();
            let reason = format!(
                "the directory's name may be cut short, and {}: name the topic (topic=, --topic)",
                if several.is_empty() {
                    "no topic is known that begins so".to_owned()
                } else {
                    format!("may be that of {}", several.join(", "))
                }
            );
            Err(Error::log_dir(&found.path, reason))
        }
    }
}

fn of_metadata(
    metadata: &MetadataImage,
    places: &Places,
    place: &LogDirPlace,
    found: &PartitionPlace,
    how: &AdoptOptions,
    notes: &mut Vec<String>,
) -> Result<Target> {
    let refused = |reason: String| Err(Error::cluster(&found.path, reason));
    let name = by_name(found, how, Some(metadata))?;
    let mut named = metadata.topics.iter().filter(|topic| topic.name == name);
    let Some(topic) = named.next() else {
        return refused(format!(
            "the metadata has no topic {name:?}, and a broker would set the directory aside: make the topic in the cluster first, with at \
             least {} partitions, stop the broker, and call again with set_aside=True or --set-aside",
            i64::from(found.partition) + 1
        ));
    };
    if named.next().is_some() {
        return refused(format!("the metadata has several topics {name:?}"));
    }
    if metadata.deleting_topics.contains(&name) {
        return refused(about_to_be_deleted(&name));
    }
    let topic_id = Some(topic.topic_id).filter(|id| !id.is_zero());
    if let Some(given) = how.topic_id.filter(|given| Some(*given) != topic_id) {
        let known = topic_id.map_or_else(|| "none".to_owned(), |id| id.to_string());
        let reason = format!("{given} found, and the metadata has {known} for topic {name:?}");
        return Err(Error::argument("topic_id", reason));
    }
    let Some(partition) = topic.partitions.get(&found.partition) else {
        return refused(format!(
            "topic {name:?} has {} in the metadata, and no partition {}: add partitions in the cluster first (kafka-topics.sh --alter \
             --partitions {})",
            offsetlog::format::counted(topic.partitions.len(), "partition"),
            found.partition,
            i64::from(found.partition) + 1
        ));
    };
    let Some(node) = place.node_id() else {
        let reason = "which broker's log dir this is, no meta.properties says: no broker without ZooKeeper starts with it";
        return Err(Error::log_dir(&place.path, reason));
    };
    if !partition.replicas.contains(&node) {
        return refused(format!(
            "{}, so it would set the directory aside: take it in there, or give broker {node} a replica first \
             (kafka-reassign-partitions.sh)",
            not_a_replica(node, partition)
        ));
    }
    if !how.single_replica {
        check_replicas(found, partition, node)?;
    }
    check_log_dirs(
        metadata,
        places,
        place,
        found,
        (topic, partition, node),
        notes,
    )?;
    let before = found.topic_id.as_ref().ok().copied().flatten();
    let is_others = |each: &&TopicImage| Some(each.topic_id) == before && each.name != name;
    if let Some(other) = metadata.topics.iter().find(is_others) {
        notes.push(format!(
            "its topic id was that of topic {:?}, which the metadata has too",
            other.name
        ));
    }
    let own = metadata.configs.get(&("topic".to_owned(), name.clone()));
    Ok(Target {
        next_producer_id: producer_ids::next_of(metadata),
        is_compacted: own.is_some_and(|own| topic_config(own).is_compacted()),
        topic: name,
        topic_id,
        leader_epoch: Some(partition.leader_epoch),
    })
}

/// Refuses a partition that other brokers have too.
fn check_replicas(
    found: &PartitionPlace,
    partition: &PartitionRegistration,
    node: i32,
) -> Result<()> {
    let others: BTreeSet<i32> = partition.replicas.iter().copied().collect();
    let others = others.into_iter().filter(|id| *id != node);
    let others: Vec<String> = others.map(|id| id.to_string()).collect();
    if others.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "replicas of the partition are also with {} {}: if one of them leads, this broker cuts off what the leader does not have; if this \
         one leads, they fetch from it. single_replica=True or --single-replica takes it in: let this broker lead then",
        if others.len() == 1 {
            "broker"
        } else {
            "brokers"
        },
        others.join(", ")
    );
    Err(Error::cluster(&found.path, reason))
}

/// Refuses while a log dir is not here in which the broker may have another directory of the partition.
fn check_log_dirs(
    metadata: &MetadataImage,
    places: &Places,
    place: &LogDirPlace,
    found: &PartitionPlace,
    (topic, partition, node): (&TopicImage, &PartitionRegistration, i32),
    notes: &mut Vec<String>,
) -> Result<()> {
    let own = place.directory_id();
    let here: Vec<Uuid> = places
        .log_dirs
        .iter()
        .filter_map(LogDirPlace::directory_id)
        .collect();
    let assigned = assigned_directory(partition, node);
    let missing = absent_log_dirs(metadata, partition, node, &here);
    let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
    if !missing.is_empty() {
        let reason = format!(
            "broker {node} has log dirs that are not here, and may have another directory of {}-{} there: name them (log_dirs=, \
             --log-dir), those with directory.id {} in meta.properties; if they are gone for good, start the broker once without them",
            topic.name,
            found.partition,
            missing.join(", ")
        );
        return Err(Error::log_dir(&found.path, reason));
    }
    if let Some(there) = assigned.filter(|there| own.is_some_and(|own| own != *there)) {
        notes.push(format!(
            "the metadata has the partition in log dir {there}: the broker takes it here, and tells the controllers"
        ));
    }
    Ok(())
}
