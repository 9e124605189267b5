//! The plan to recreate a cluster's topics and settings, as far as its folders show them.

use crate::places::Places;
use crate::topic_config::remove_not_given;
use offsetlog::format::name::{DIRECTORY_MAXIMUM_CHARACTERS, DirectoryState, check_topic};
use offsetlog::format::{Uuid, counted};
use offsetlog::{
    DirectoryProgress, Error, MetadataImage, OpenOptions, Result, TopicImage, is_internal_topic,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The topics of a cluster, and the rest of its metadata, to be recreated.
#[derive(Debug)]
pub struct Recreation {
    /// The topics, by name.
    pub topics: Vec<TopicToMake>,
    /// Topics that are not recreated, and why.
    pub left_out: Vec<(String, String)>,
    /// What the metadata says, unless it is not here, with secrets.
    pub metadata: Option<MetadataImage>,
    /// Why the metadata that is here cannot be read: then the folders tell of topics.
    pub metadata_error: Option<Error>,
    /// Only topics were asked for, by name.
    pub is_of_some: bool,
    /// What was left out of the metadata, and the like.
    pub warnings: Vec<String>,
}

/// A topic to be recreated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicToMake {
    /// Its name, which Kafka takes.
    pub name: String,
    /// The id that it had.
    pub topic_id: Option<Uuid>,
    /// The number of partitions: of the last one that is known, and one.
    pub partitions: i64,
    /// The number of replicas of each; `None` where nobody knows.
    pub replication_factor: Option<usize>,
    /// The brokers of each partition, the preferred leader first; `None` where it is not known of all, and where their number differs,
    /// which Kafka does not take for a new topic.
    pub assignment: Option<Vec<Vec<i32>>>,
    /// Its own settings, with secrets.
    pub configs: BTreeMap<String, String>,
    /// What is unknown, or differs from the original; a sentence each.
    pub notes: Vec<String>,
}

impl TopicToMake {
    /// The same with the settings that a new cluster takes, none of which is a secret, and a note for each of the others.
    pub(crate) fn for_new_cluster(&self, show_secrets: bool) -> Self {
        let mut to_make = self.clone();
        let removed = remove_not_given(&mut to_make.configs);
        let notes = removed
            .iter()
            .map(|each| format!("left out: {}", each.told("topic", show_secrets)));
        to_make.notes.extend(notes);
        to_make
    }
}

/// Reads what makes a cluster's topics again: its metadata if that is among the paths, else the names of its partition directories.
/// Topics that brokers make for themselves, or that the cluster was about to delete, are left out unless they are among `topics`; if there are any `topics`, so are all others.
/// Changes nothing.
///
/// # Errors
/// `Io` if a folder cannot be listed; `LogDir` if none of them has anything of a log dir, for the folder around log dirs, for a file that was
/// set aside, and for log dirs of several clusters;
/// `Interrupted`; those of the progress. Metadata that cannot be read is no error: see [`Recreation::metadata_error`].
///
/// ```no_run
/// use offsetlog::{DirectoryProgress, OpenOptions};
/// use offsetlog_ops::recreation;
///
/// # fn main() -> Result<(), offsetlog::Error> {
/// let (open, progress) = (OpenOptions::default(), DirectoryProgress::default());
/// let found = recreation(&["/mnt/metadata"], &[], &open, &progress)?;
/// print!("{}", found.commands("localhost:9092", false, false));
/// # Ok(())
/// # }
/// ```
pub fn recreation<P: AsRef<Path>>(
    paths: &[P],
    topics: &[String],
    options: &OpenOptions,
    progress: &DirectoryProgress,
) -> Result<Recreation> {
    let mut places = Places::read_told(paths, options, progress)?;
    places.check_one_cluster(options)?;
    let mut found = of_places(&mut places, topics);
    leave_what_is_deleted(&mut found, topics);
    Ok(found)
}

/// Leaves out topics that the cluster was about to delete, unless they are among `topics`.
fn leave_what_is_deleted(found: &mut Recreation, topics: &[String]) {
    let Some(metadata) = &found.metadata else {
        return;
    };
    let deleting = &metadata.deleting_topics;
    let left_out = &mut found.left_out;
    found.topics.retain_mut(|topic| {
        if !deleting.contains(&topic.name) {
            return true;
        }
        let why = "the cluster was about to delete it (/admin/delete_topics)";
        let is_named = topics.contains(&topic.name);
        if is_named {
            topic.notes.push(why.to_owned());
        } else {
            left_out.push((topic.name.clone(), format!("{why}; -t names it")));
        }
        is_named
    });
    left_out.sort();
}

/// The same of folders that were read: takes the metadata and the warnings out of them.
pub(crate) fn of_places(places: &mut Places, topics: &[String]) -> Recreation {
    let mut found = Recreation {
        topics: Vec::new(),
        left_out: Vec::new(),
        metadata: places.metadata.take(),
        metadata_error: places.metadata_error.take(),
        is_of_some: !topics.is_empty(),
        warnings: std::mem::take(&mut places.warnings),
    };
    let mut names = BTreeSet::new();
    if let Some(metadata) = &found.metadata {
        for topic in &metadata.topics {
            names.insert(topic.name.clone());
            found.topics.push(of_metadata(metadata, topic));
        }
    }
    for (name, seen) in on_disk(places) {
        if names.insert(name.clone()) {
            let is_told = found.metadata.as_ref().is_some_and(|all| all.is_complete);
            if is_told && seen.is_live {
                let why = "its directories are here, and the metadata does not have it (metadata --directories says what a broker does with them)";
                found.left_out.push((name, why.to_owned()));
            } else if !is_told {
                let topic = of_directories(name, &seen, found.metadata.is_some());
                found.topics.push(topic);
            }
        }
    }
    for name in topics {
        if !names.contains(name) {
            let why = "neither the metadata nor a directory has it";
            found.left_out.push((name.clone(), why.to_owned()));
        }
    }
    choose(&mut found, topics);
    found
}

impl Recreation {
    /// Why more may have been there than is made again.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(error) = &self.metadata_error {
            doubts.push(format!(
                "the metadata cannot be read, so topics are those of the directories: {error}"
            ));
        }
        let doubt = match &self.metadata {
            None => {
                "without metadata of the cluster nobody knows replication factors and settings, nor whether there were more topics and partitions"
            }
            Some(metadata) if !metadata.is_complete => {
                "a part of the metadata is missing, and what it said"
            }
            Some(_) => return doubts,
        };
        doubts.push(doubt.to_owned());
        doubts
    }
}

/// Keeps the topics that are asked for, and that Kafka takes.
fn choose(found: &mut Recreation, topics: &[String]) {
    let all = std::mem::take(&mut found.topics);
    found
        .left_out
        .retain(|(name, _)| topics.is_empty() || topics.contains(name));
    let left_out = &mut found.left_out;
    let mut kept: Vec<TopicToMake> = Vec::new();
    for topic in all {
        let is_named = topics.contains(&topic.name);
        if !topics.is_empty() && !is_named {
            continue;
        }
        if let Err(error) = check_topic(&topic.name) {
            left_out.push((
                topic.name,
                format!("Kafka takes no such name: {}", error.fault),
            ));
        } else if !is_named && is_internal_topic(&topic.name) {
            let why = "brokers make it for themselves; -t names it";
            left_out.push((topic.name, why.to_owned()));
        } else if kept.last().is_some_and(|last| last.name == topic.name) {
            left_out.push((
                topic.name,
                "the metadata has another one of this name".to_owned(),
            ));
        } else {
            kept.push(topic);
        }
    }
    kept.sort_by(|one, other| one.name.cmp(&other.name));
    left_out.sort();
    left_out.dedup();
    found.topics = kept;
}

fn of_metadata(metadata: &MetadataImage, topic: &TopicImage) -> TopicToMake {
    let mut notes = Vec::new();
    let last = topic.partitions.keys().next_back().copied();
    let partitions = i64::from(last.unwrap_or(-1).max(-1)) + 1;
    let known = topic.partitions.len() as i64;
    if known < partitions {
        let missing = partitions - known;
        notes.push(format!(
            "the metadata lacks {missing} of its {partitions} partitions"
        ));
    }
    // A reassignment that was going on has both the old and the new brokers.
    let wanted: Vec<Vec<i32>> = topic
        .partitions
        .values()
        .map(|partition| {
            let stays = |id: &&i32| !partition.removing_replicas.contains(id);
            partition.replicas.iter().filter(stays).copied().collect()
        })
        .collect();
    let moving = topic.partitions.values().filter(|partition| {
        !partition.adding_replicas.is_empty() || !partition.removing_replicas.is_empty()
    });
    let moving = moving.count();
    if moving > 0 {
        notes.push(format!(
            "{} was being reassigned: counted are the replicas that it was to have",
            counted(moving, "partition")
        ));
    }
    let factors: BTreeSet<usize> = wanted.iter().map(Vec::len).collect();
    let most = factors.last().copied().filter(|most| *most > 0);
    if factors.len() > 1 {
        let numbers: Vec<String> = factors.iter().map(ToString::to_string).collect();
        notes.push(format!(
            "its partitions had {} replicas, and kafka-topics.sh gives all the same number: the greatest; kafka-reassign-partitions.sh changes single ones",
            numbers.join(" and ")
        ));
    }
    let is_even = factors.len() == 1 && known == partitions && most.is_some();
    let configs = metadata
        .configs
        .get(&("topic".to_owned(), topic.name.clone()));
    TopicToMake {
        name: topic.name.clone(),
        topic_id: Some(topic.topic_id).filter(|id| !id.is_zero()),
        partitions,
        replication_factor: most,
        assignment: is_even.then_some(wanted),
        configs: configs.cloned().unwrap_or_default(),
        notes,
    }
}

/// What the directories of a topic show.
#[derive(Default)]
struct Seen {
    numbers: BTreeSet<i32>,
    ids: BTreeSet<[u8; 16]>,
    /// By partition: the brokers that have it.
    nodes: BTreeMap<i32, BTreeSet<i32>>,
    is_live: bool,
    /// Partitions that only directories have which a broker set aside.
    strays: BTreeSet<i32>,
}

/// Topics by their directories: live, on the way from one log dir to another, or set aside by a broker that had no metadata of them, if
/// these are not of another topic of the name.
fn on_disk(places: &Places) -> BTreeMap<String, Seen> {
    let mut topics: BTreeMap<String, Seen> = BTreeMap::new();
    for log_dir in &places.log_dirs {
        for place in &log_dir.partitions {
            if !matches!(place.state, DirectoryState::Live | DirectoryState::Future)
                || place.partition < 0
            {
                continue;
            }
            let seen = topics.entry(place.topic.clone()).or_default();
            seen.numbers.insert(place.partition);
            seen.is_live |= place.state == DirectoryState::Live;
            if let Ok(Some(id)) = place.topic_id {
                seen.ids.insert(id.to_bytes());
            }
            if let Some(node) = log_dir.node_id() {
                seen.nodes.entry(place.partition).or_default().insert(node);
            }
        }
    }
    for place in places.log_dirs.iter().flat_map(|each| &each.partitions) {
        let name = place.path.file_name().unwrap_or_default();
        let is_cut = name.len() >= DIRECTORY_MAXIMUM_CHARACTERS;
        if place.state != DirectoryState::Stray || is_cut || place.partition < 0 {
            continue;
        }
        let seen = topics.entry(place.topic.clone()).or_default();
        let id = place.topic_id.as_ref().ok().copied().flatten();
        let is_its = id.is_none_or(|id| seen.ids.is_empty() || seen.ids.contains(&id.to_bytes()));
        if is_its && !seen.numbers.contains(&place.partition) {
            seen.strays.insert(place.partition);
        }
        if !seen.is_live && seen.numbers.is_empty() {
            seen.ids.extend(id.map(Uuid::to_bytes));
        }
    }
    for seen in topics.values_mut() {
        seen.numbers.extend(&seen.strays);
    }
    topics.remove(offsetlog::format::internal_topic::METADATA_TOPIC);
    topics
}

fn of_directories(name: String, seen: &Seen, has_metadata: bool) -> TopicToMake {
    let last = seen.numbers.last().copied().unwrap_or(0);
    let partitions = i64::from(last) + 1;
    let mut notes = Vec::new();
    if has_metadata {
        notes.push("it is not in what is left of the metadata".to_owned());
    }
    notes.push(format!(
        "number of partitions unknown: {} here, the last one is {last}, and there may have been more",
        counted(seen.numbers.len(), "partition")
    ));
    if !seen.strays.is_empty() {
        let numbers: Vec<String> = seen.strays.iter().map(i32::to_string).collect();
        notes.push(format!(
            "of {} only directories are here that a broker set aside (-stray): offsetlog adopt takes them in",
            if numbers.len() == 1 {
                format!("partition {}", numbers.join(", "))
            } else {
                format!("partitions {}", numbers.join(", "))
            }
        ));
    }
    let replicas = seen.nodes.values().map(BTreeSet::len).max().unwrap_or(0);
    let at_least = if replicas > 1 {
        format!(", at least {replicas}")
    } else {
        String::new()
    };
    notes.push(format!(
        "replication factor unknown{at_least}: the new cluster's default.replication.factor holds"
    ));
    notes.push("settings unknown: the new cluster's defaults hold".to_owned());
    if seen.ids.len() > 1 {
        notes.push(format!(
            "its directories have {} topic ids: they are of several topics of this name",
            seen.ids.len()
        ));
    }
    let mut ids = seen.ids.iter();
    let topic_id = match (ids.next(), ids.next()) {
        (Some(id), None) => Some(Uuid::from_bytes(*id)),
        _ => None,
    };
    TopicToMake {
        name,
        topic_id,
        partitions,
        replication_factor: None,
        assignment: None,
        configs: BTreeMap::new(),
        notes,
    }
}
