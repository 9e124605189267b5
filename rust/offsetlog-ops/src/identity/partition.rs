//! What a broker does with a partition's directory, by its name, its `partition.metadata` and the cluster's metadata.

use super::Outcome;
use crate::places::{LogDirPlace, PartitionPlace};
use offsetlog::format::Uuid;
use offsetlog::format::name::DirectoryState;
use offsetlog::{MetadataImage, PartitionRegistration, TopicImage};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Ids below this number stand for a log dir that is not known, not assigned or lost.
const RESERVED_IDS: u8 = 100;

/// Topics of the metadata, by what directories know of them.
pub(super) struct Known<'a> {
    metadata: &'a MetadataImage,
    by_id: HashMap<Uuid, &'a TopicImage>,
    by_name: BTreeMap<&'a str, &'a TopicImage>,
}

impl<'a> Known<'a> {
    pub(super) fn of(metadata: &'a MetadataImage) -> Self {
        let topics = metadata.topics.iter();
        let with_id = topics.clone().filter(|topic| !topic.topic_id.is_zero());
        Self {
            metadata,
            by_id: with_id.map(|topic| (topic.topic_id, topic)).collect(),
            by_name: topics.map(|topic| (topic.name.as_str(), topic)).collect(),
        }
    }

    /// What became of a topic id that no topic has.
    fn unknown_id(&self, id: Uuid, name: &str) -> String {
        let mut removed = self.metadata.removed_topics.iter();
        let what = if removed.any(|(_, removed)| *removed == id) {
            "was deleted"
        } else {
            "is not in the metadata"
        };
        match self.by_name.get(name) {
            Some(now) => format!(
                "topic id {id} {what}, and the topic of this name is now {}",
                now.topic_id
            ),
            None => format!("topic id {id} {what}, and no topic of this name is"),
        }
    }
}

/// Live directories by cluster, broker, topic and partition.
pub(super) type Live<'a> = HashMap<Key<'a>, Vec<&'a Path>>;
pub(crate) type Key<'a> = (Option<&'a str>, Option<i32>, &'a str, i32);

/// Which partition of which broker a directory is.
pub(crate) fn key<'a>(place: &'a LogDirPlace, found: &'a PartitionPlace) -> Key<'a> {
    (
        place.cluster_id(),
        place.node_id(),
        &found.topic,
        found.partition,
    )
}

/// Decides about the partitions of one log dir.
pub(super) struct Judge<'a> {
    pub(super) is_kraft: bool,
    pub(super) known: Option<&'a Known<'a>>,
    /// Why nothing is known, if so.
    pub(super) missing: String,
    pub(super) place: &'a LogDirPlace,
    pub(super) live: &'a Live<'a>,
}

/// What the metadata says of a directory that it has.
struct Assigned<'a> {
    topic: &'a TopicImage,
    partition: &'a PartitionRegistration,
}

impl Judge<'_> {
    pub(super) fn partition(&self, found: &PartitionPlace) -> (Outcome, String) {
        if found.is_metadata_log() {
            let reason = "the cluster's metadata log, which is no broker's partition".to_owned();
            return (Outcome::Serves, reason);
        }
        if let Err(error) = &found.topic_id {
            let reason = format!(
                "partition.metadata: {error}: the log dir goes offline, or the broker does not start"
            );
            return (Outcome::Fails, reason);
        }
        match found.state {
            DirectoryState::Delete => {
                let reason = "to be deleted: it does so file.delete.delay.ms, a minute by default, after its start";
                (Outcome::Deletes, reason.to_owned())
            }
            DirectoryState::Stray => (Outcome::Ignores, self.stray(found)),
            DirectoryState::Live => self.live(found),
            DirectoryState::Future => self.future(found),
        }
    }

    /// A directory that a broker has set aside already.
    fn stray(&self, found: &PartitionPlace) -> String {
        let id = found.topic_id.as_ref().ok().copied().flatten();
        let is_known = |known: &Known<'_>| {
            let topic = id.and_then(|id| known.by_id.get(&id));
            topic.is_some_and(|topic| topic.partitions.contains_key(&found.partition))
        };
        let mut reason = "set aside: no broker serves or deletes it".to_owned();
        if self.known.is_some_and(is_known) {
            reason.push_str("; the metadata has its topic id and partition");
        }
        reason
    }

    fn live(&self, found: &PartitionPlace) -> (Outcome, String) {
        if let Some(other) = self.other(found) {
            let reason = format!("{other} is the same partition of the same broker");
            return (Outcome::Stops, reason);
        }
        let assigned = match self.assigned(found) {
            Ok(assigned) => assigned,
            Err(decided) => return decided,
        };
        (Outcome::Serves, self.served(&assigned))
    }

    fn future(&self, found: &PartitionPlace) -> (Outcome, String) {
        let assigned = match self.assigned(found) {
            Ok(assigned) => assigned,
            Err(decided) => return decided,
        };
        let own = self.place.directory_id();
        let reason = if let Some(current) = self.other(found) {
            format!("on the way from {current}: it copies what is missing, then takes this one")
        } else if own.is_some() && self.directory_of(&assigned) == own {
            "no current replica is here, and the metadata has it in this log dir: it takes this one"
                .to_owned()
        } else {
            "on its way here; the current replica, which it copies from, is in none of the log dirs given"
                .to_owned()
        };
        (Outcome::Moves, reason)
    }

    /// What the metadata has a directory for, or what the broker does instead of serving it.
    fn assigned(&self, found: &PartitionPlace) -> Result<Assigned<'_>, (Outcome, String)> {
        let id = found.topic_id.as_ref().ok().copied().flatten();
        if self.is_kraft && id.is_none() {
            let reason = "no partition.metadata, so it has no topic id".to_owned();
            return Err((Outcome::Strays, reason));
        }
        let Some(known) = self.known else {
            return Err((Outcome::Unknown, self.missing.clone()));
        };
        if !known.metadata.is_complete {
            let reason = "a part of the metadata is missing".to_owned();
            return Err((Outcome::Unknown, reason));
        }
        match id.filter(|_| self.is_kraft) {
            Some(id) => self.by_id(known, found, id),
            None => self.by_name(known, found, id),
        }
    }

    /// As brokers without ZooKeeper do: the topic id decides, and who has a replica.
    fn by_id<'k>(
        &self,
        known: &'k Known<'_>,
        found: &PartitionPlace,
        id: Uuid,
    ) -> Result<Assigned<'k>, (Outcome, String)> {
        let strays = |reason| Err((Outcome::Strays, reason));
        let Some(topic) = known.by_id.get(&id) else {
            return strays(known.unknown_id(id, &found.topic));
        };
        let Some(partition) = topic.partitions.get(&found.partition) else {
            return strays(format!("the topic has no partition {}", found.partition));
        };
        let node = self.node()?;
        if !partition.replicas.contains(&node) {
            return strays(not_a_replica(node, partition));
        }
        if topic.name != found.topic {
            let reason = format!(
                "topic id {id} is that of {:?}, and a broker asks for directories by name",
                topic.name
            );
            return Err(match known.by_name.get(found.topic.as_str()) {
                Some(_) => (Outcome::Fails, format!("{reason}: this one has another id")),
                None => (
                    Outcome::Ignores,
                    format!("{reason}: nobody asks for this one"),
                ),
            });
        }
        Ok(Assigned { topic, partition })
    }

    /// As brokers with ZooKeeper do: the controller names what they serve, and with which id.
    fn by_name<'k>(
        &self,
        known: &'k Known<'_>,
        found: &PartitionPlace,
        id: Option<Uuid>,
    ) -> Result<Assigned<'k>, (Outcome, String)> {
        let ignores = |reason| Err((Outcome::Ignores, reason));
        let Some(topic) = known.by_name.get(found.topic.as_str()) else {
            return ignores("there is no topic of this name, so nobody asks for it".to_owned());
        };
        let Some(partition) = topic.partitions.get(&found.partition) else {
            return ignores(format!(
                "the topic has no partition {}, so nobody asks for it",
                found.partition
            ));
        };
        let node = self.node()?;
        if !partition.replicas.contains(&node) {
            return ignores(not_a_replica(node, partition));
        }
        if let Some(id) = id.filter(|id| *id != topic.topic_id && !topic.topic_id.is_zero()) {
            let reason = format!(
                "topic id {id} is not {}, that of the topic of this name: the partition goes offline",
                topic.topic_id
            );
            return Err((Outcome::Fails, reason));
        }
        Ok(Assigned { topic, partition })
    }

    fn node(&self) -> Result<i32, (Outcome, String)> {
        let nameless = || {
            let reason = "which broker this is, no meta.properties says".to_owned();
            (Outcome::Unknown, reason)
        };
        self.place.node_id().ok_or_else(nameless)
    }

    /// Where the metadata has this broker's replica.
    fn directory_of(&self, assigned: &Assigned<'_>) -> Option<Uuid> {
        assigned_directory(assigned.partition, self.place.node_id()?)
    }

    fn served(&self, assigned: &Assigned<'_>) -> String {
        let own = self.place.directory_id();
        match self.directory_of(assigned) {
            Some(there) if own.is_some_and(|own| own != there) => format!(
                "the metadata has it in log dir {there}: the broker takes it here, and tells the controllers"
            ),
            _ if assigned.topic.topic_id.is_zero() => "as the metadata has it, by name".to_owned(),
            _ => "as the metadata has it".to_owned(),
        }
    }

    /// The live directory of the same partition in another log dir of the same broker.
    fn other(&self, found: &PartitionPlace) -> Option<String> {
        let mut all = self.live.get(&key(self.place, found))?.iter();
        let other = all.find(|path| **path != found.path)?;
        Some(other.display().to_string())
    }
}

/// The log dirs of a broker that are not among those `here`, and in which it may have another directory of a partition, by their
/// `directory.id`.
pub(crate) fn absent_log_dirs(
    metadata: &MetadataImage,
    partition: &PartitionRegistration,
    node: i32,
    here: &[Uuid],
) -> Vec<Uuid> {
    let brokers = metadata.brokers.iter().filter(|broker| broker.id == node);
    let registered: Vec<Uuid> = brokers.flat_map(|broker| broker.log_dirs.clone()).collect();
    let assigned = assigned_directory(partition, node);
    // Where the metadata says in which log dir it is, no other one has it. One that the broker does not have any more has nothing.
    let all = match assigned {
        Some(assigned) if registered.is_empty() || registered.contains(&assigned) => vec![assigned],
        Some(_) => Vec::new(),
        None => registered,
    };
    all.into_iter().filter(|id| !here.contains(id)).collect()
}

/// The `directory.id` of the log dir in which the metadata has a broker's replica, if it says which.
pub(crate) fn assigned_directory(partition: &PartitionRegistration, node: i32) -> Option<Uuid> {
    let mut replicas = partition.replicas.iter();
    let at = replicas.position(|replica| *replica == node)?;
    let found = partition.directories.get(at).copied()?;
    let bytes = found.to_bytes();
    let (last, rest) = bytes.split_last()?;
    let is_reserved = *last < RESERVED_IDS && rest.iter().all(|byte| *byte == 0);
    (!is_reserved).then_some(found)
}

pub(crate) fn not_a_replica(node: i32, partition: &PartitionRegistration) -> String {
    let replicas = partition.replicas.iter();
    let replicas: Vec<String> = replicas.map(ToString::to_string).collect();
    format!(
        "broker {node} is none of those that have it: {}",
        replicas.join(", ")
    )
}
