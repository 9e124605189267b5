//! What is restored: which topics, which replica of each partition, and up to where.

use super::choice::{self, SourcePartition};
use super::same_topic::{Told, one_topic};
use super::unknown::kafkas_own;
use super::{RestoreOptions, Target};
use crate::places::{PartitionPlace, Places};
use crate::recreation::{Recreation, TopicToMake, of_places};
use crate::salvage::shown_by;
use crate::topic_config::topic_config;
use offsetlog::format::Uuid;
use offsetlog::format::internal_topic::METADATA_TOPIC;
use offsetlog::format::name::DirectoryState;
use offsetlog::{Error, MetadataImage, OpenOptions, Result, is_internal_topic};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Topics whose records mean nothing in another cluster.
const NEVER: [&str; 3] = [METADATA_TOPIC, "__remote_log_metadata", "@metadata"];

/// What was found in the sources, and chosen.
pub(crate) struct Sources {
    /// By name.
    pub(crate) topics: Vec<SourceTopic>,
    /// What is not restored, and why.
    pub(crate) left_out: Vec<(String, String)>,
    /// Whether a topic is among these that was asked for: nobody chose to do without it.
    pub(crate) lacks_topics: bool,
    pub(crate) recreation: Recreation,
    /// Whether committed offsets are among the sources.
    pub(crate) has_groups: bool,
    pub(crate) warnings: Vec<String>,
}

impl Sources {
    /// Whether the metadata among the sources is whole and has the topic, and so all its settings.
    pub(crate) fn tells_settings(&self, topic: &str) -> bool {
        let metadata = self.recreation.metadata.as_ref();
        metadata.is_some_and(|metadata| {
            metadata.is_complete && metadata.topics.iter().any(|each| each.name == topic)
        })
    }
}

/// A topic that is restored.
pub(crate) struct SourceTopic {
    pub(crate) to_make: TopicToMake,
    /// Whether the metadata has it. If not, nobody knows its settings and how many partitions it had.
    pub(crate) is_told: bool,
    /// Whether the cleaner's checkpoint has one of its partitions.
    pub(crate) was_compacted: bool,
    /// By number.
    pub(crate) partitions: BTreeMap<i32, SourcePartition>,
    /// Partitions that the topic has, and the sources have not.
    pub(crate) missing: Vec<i32>,
    /// Partitions of which no replica can be opened: one of them, and why.
    pub(crate) unreadable: BTreeMap<i32, (PathBuf, String)>,
}

impl Sources {
    /// The ids of the topics, as far as they are known: as the metadata has them, or else a directory.
    pub(super) fn topic_ids(&self) -> BTreeMap<String, Uuid> {
        let of = |topic: &SourceTopic| {
            let own = || {
                let mut logs = topic.partitions.values();
                logs.find_map(|each| each.log.topic_id().ok().flatten())
            };
            Some((
                topic.to_make.name.clone(),
                topic.to_make.topic_id.or_else(own)?,
            ))
        };
        self.topics.iter().filter_map(of).collect()
    }
}

/// Finds what is to be restored.
///
/// # Errors
/// Those of listing the sources; `Argument` for a topic that nobody has. A partition that cannot be opened is left out.
pub(crate) fn find<P: AsRef<Path>>(
    paths: &[P],
    how: &RestoreOptions,
    target: Target,
    options: &OpenOptions,
) -> Result<Sources> {
    let mut places = Places::read(paths, options)?;
    let mut found = Sources {
        topics: Vec::new(),
        left_out: Vec::new(),
        lacks_topics: false,
        recreation: of_places(&mut places, &[]),
        has_groups: false,
        warnings: Vec::new(),
    };
    found.warnings = std::mem::take(&mut found.recreation.warnings);
    if let Some(error) = &found.recreation.metadata_error {
        found.warnings.push(format!(
            "the cluster's metadata cannot be read, so topics that were deleted may come back, settings of topics are those of their \
             directories, and partitions that no directory shows are not missed: {error}"
        ));
    }
    tell_set_aside(&places, how, &mut found.warnings);
    let mut by_topic = by_topic(&places);
    found.has_groups = by_topic.contains_key("__consumer_offsets");
    check_ends(&found.recreation, &by_topic, how)?;
    let names = chosen_names(&mut found, &by_topic, how, target)?;
    for name in names {
        let replicas = by_topic.remove(name.as_str()).unwrap_or_default();
        let to_make = to_make(&found.recreation, &name, &replicas);
        let left_out = match topic(to_make, replicas, &places, (how, options), &mut found) {
            Ok(Ok(topic)) => {
                found.topics.push(topic);
                continue;
            }
            Ok(Err(why)) => why,
            Err(error) if error.is_of_process() => return Err(error),
            Err(error) => error.to_string(),
        };
        found.left_out.push((name, left_out));
        found.lacks_topics = true;
    }
    Ok(found)
}

/// Directories that a broker has set aside, or deletes, are not restored, and hold records all the same.
fn tell_set_aside(places: &Places, how: &RestoreOptions, warnings: &mut Vec<String>) {
    for place in places
        .log_dirs
        .iter()
        .flat_map(|log_dir| &log_dir.partitions)
    {
        let what = match place.state {
            DirectoryState::Stray => "was set aside by a broker, as its metadata did not have it",
            DirectoryState::Delete => "was deleted, and waits for its removal",
            DirectoryState::Live | DirectoryState::Future => continue,
        };
        if how.takes(&place.topic) {
            warnings.push(format!(
                "left out: {} {what}: copy it under its old name to restore it, or see offsetlog adopt",
                place.path.display()
            ));
        }
    }
}

/// The directories of each topic's partitions: live ones, and those on their way to another log dir.
fn by_topic(places: &Places) -> BTreeMap<&str, BTreeMap<i32, Vec<&PartitionPlace>>> {
    let mut found: BTreeMap<&str, BTreeMap<i32, Vec<&PartitionPlace>>> = BTreeMap::new();
    let all = places
        .log_dirs
        .iter()
        .flat_map(|log_dir| &log_dir.partitions);
    for place in all {
        let is_readable = matches!(place.state, DirectoryState::Live | DirectoryState::Future);
        if is_readable && place.partition >= 0 && !NEVER.contains(&place.topic.as_str()) {
            let topic = found.entry(place.topic.as_str()).or_default();
            topic.entry(place.partition).or_default().push(place);
        }
    }
    found
}

/// A partition that is written wrong would be restored to its end.
///
/// # Errors
/// `Argument`: an end of a partition that no source has.
fn check_ends(
    recreation: &Recreation,
    by_topic: &BTreeMap<&str, BTreeMap<i32, Vec<&PartitionPlace>>>,
    how: &RestoreOptions,
) -> Result<()> {
    let metadata = recreation.metadata.as_ref();
    for key in how.ends.keys() {
        let topic = by_topic.get(key.topic.as_str());
        let is_here = topic.is_some_and(|topic| topic.contains_key(&key.partition));
        let is_told = metadata.is_some_and(|metadata| {
            let mut topics = metadata.topics.iter();
            topics
                .any(|each| each.name == key.topic && each.partitions.contains_key(&key.partition))
        });
        if !is_here && !is_told {
            let reason = format!("an end is given of {key}, which is in none of the sources");
            return Err(Error::argument("ends", reason));
        }
    }
    Ok(())
}

/// Topics that are asked for: those that the metadata has, and where it is not here, those that have directories.
fn chosen_names(
    found: &mut Sources,
    by_topic: &BTreeMap<&str, BTreeMap<i32, Vec<&PartitionPlace>>>,
    how: &RestoreOptions,
    target: Target,
) -> Result<Vec<String>> {
    let metadata = found.recreation.metadata.as_ref();
    let is_told = metadata.is_some_and(|metadata| metadata.is_complete);
    let known: BTreeSet<&str> = metadata
        .map(|metadata| metadata.topics.iter().map(|topic| topic.name.as_str()))
        .into_iter()
        .flatten()
        .filter(|name| !NEVER.contains(name))
        .collect();
    let mut names: BTreeSet<&str> = known.clone();
    let mut lacking = BTreeSet::new();
    for (name, replicas) in by_topic {
        if is_told && !known.contains(name) {
            let why = if metadata.is_some_and(|metadata| is_deleted(metadata, name, replicas)) {
                "it was deleted, as the metadata says; give its directories alone to restore it"
            } else {
                lacking.insert((*name).to_owned());
                "the metadata does not have it: it is older than the topic, or of another cluster, or the topic was deleted; give its \
                 directories alone to restore it"
            };
            found.left_out.push(((*name).to_owned(), why.to_owned()));
        } else {
            names.insert(name);
        }
    }
    let mut chosen = Vec::new();
    for name in names.iter().filter(|name| how.takes(name)) {
        if target == Target::StoppedBroker && how.topics.is_empty() && is_internal_topic(name) {
            let why = "the cluster has its own; -t names it";
            found.left_out.push(((*name).to_owned(), why.to_owned()));
        } else {
            chosen.push((*name).to_owned());
        }
    }
    found.left_out.retain(|(name, _)| how.takes(name));
    // Who names a topic wants it; a pattern may match what was deleted.
    found.lacks_topics = found
        .left_out
        .iter()
        .any(|(name, _)| how.topics.contains(name) || lacking.contains(name));
    for pattern in &how.topics {
        let matches_any = names
            .iter()
            .copied()
            .chain(found.left_out.iter().map(|(name, _)| name.as_str()))
            .any(|name| name_matches(pattern, name));
        if !matches_any {
            let reason = format!("no topic {pattern:?} is among the sources");
            return Err(Error::argument("topics", reason));
        }
    }
    Ok(chosen)
}

/// Whether the metadata says that the topic of these directories was deleted.
fn is_deleted(
    metadata: &MetadataImage,
    name: &str,
    replicas: &BTreeMap<i32, Vec<&PartitionPlace>>,
) -> bool {
    let mut places = replicas.values().flatten();
    places.all(|place| {
        let id = place.topic_id.as_ref().ok().copied().flatten();
        let mut removed = metadata.removed_topics.iter();
        id.is_some_and(|id| removed.any(|(topic, of)| topic == name && *of == id))
    })
}

fn to_make(
    recreation: &Recreation,
    name: &str,
    replicas: &BTreeMap<i32, Vec<&PartitionPlace>>,
) -> TopicToMake {
    let known = recreation.topics.iter().find(|topic| topic.name == name);
    if let Some(known) = known {
        return known.clone();
    }
    // Topics of brokers' own are not among those that are made again by hand.
    let metadata = recreation.metadata.as_ref();
    let image =
        metadata.and_then(|metadata| metadata.topics.iter().find(|topic| topic.name == name));
    let configs = metadata.and_then(|metadata| {
        let key = ("topic".to_owned(), name.to_owned());
        metadata.configs.get(&key).cloned()
    });
    let last = image.map_or_else(
        || replicas.keys().next_back().copied(),
        |image| image.partitions.keys().next_back().copied(),
    );
    let mut ids = replicas
        .values()
        .flatten()
        .filter_map(|place| place.topic_id.clone().ok().flatten());
    TopicToMake {
        name: name.to_owned(),
        topic_id: image.map_or_else(
            || ids.next(),
            |image| Some(image.topic_id).filter(|id| !id.is_zero()),
        ),
        partitions: i64::from(last.unwrap_or(-1)) + 1,
        replication_factor: image.and_then(|image| {
            image
                .partitions
                .values()
                .map(|each| each.replicas.len())
                .max()
        }),
        assignment: None,
        configs: match image {
            Some(_) => configs.unwrap_or_default(),
            None => kafkas_own(name),
        },
        notes: Vec::new(),
    }
}

/// Opens what a topic has; in words why it is left out.
fn topic(
    to_make: TopicToMake,
    replicas: BTreeMap<i32, Vec<&PartitionPlace>>,
    places: &Places,
    (how, options): (&RestoreOptions, &OpenOptions),
    found: &mut Sources,
) -> Result<std::result::Result<SourceTopic, String>> {
    let metadata = found.recreation.metadata.as_ref();
    let is_told = metadata.is_some_and(|metadata| {
        let mut topics = metadata.topics.iter();
        topics.any(|topic| topic.name == to_make.name)
    });
    let told = Told {
        topic_id: to_make.topic_id,
        by_metadata: is_told,
    };
    let wanted = match one_topic(told, &replicas, places) {
        Ok(wanted) => wanted,
        Err(why) => return Ok(Err(why)),
    };
    let mut topic = SourceTopic {
        partitions: BTreeMap::new(),
        missing: Vec::new(),
        unreadable: BTreeMap::new(),
        is_told,
        was_compacted: false,
        to_make,
    };
    let is_tiered = topic_config(&topic.to_make.configs).remote_storage_enable();
    for (partition, places) in replicas {
        let is_of_it = |place: &&&PartitionPlace| match (wanted, &place.topic_id) {
            (Some(wanted), Ok(Some(id))) => id.to_bytes() == wanted,
            _ => true,
        };
        let (own, foreign): (Vec<_>, Vec<_>) =
            places.into_iter().partition(|place| is_of_it(&place));
        for place in foreign {
            found.warnings.push(format!(
                "left out: {} is of an earlier topic of this name",
                place.path.display()
            ));
        }
        let paths = live_ones(&own);
        for (place, error) in own
            .iter()
            .filter_map(|place| Some((place, place.topic_id.as_ref().err()?)))
        {
            found.warnings.push(format!(
                "{} is taken for a replica of this topic, and may be of an earlier one: its topic id cannot be read: {error}",
                place.path.display()
            ));
        }
        match choice::choose(&paths, Vec::new(), how, options, &mut found.warnings) {
            Ok(Some(mut chosen)) => {
                if is_tiered {
                    tell_tiered(&mut chosen, &mut found.warnings);
                }
                // Where the checkpoint cannot be read, it may.
                let point = chosen.log.cleaner_offset();
                topic.was_compacted |= point.map_or(true, |point| point.is_some());
                topic.partitions.insert(partition, chosen);
            }
            Ok(None) => {}
            Err((_, error)) if error.is_of_process() => return Err(error),
            Err((path, error)) => {
                topic
                    .unreadable
                    .insert(partition, (path, error.to_string()));
            }
        }
    }
    found.warnings.extend(cut_and_compacted(&topic));
    // Of all partitions together that is more than a process may have.
    topic
        .partitions
        .values()
        .for_each(SourcePartition::close_files);
    let numbers = 0..i32::try_from(topic.to_make.partitions).unwrap_or(0);
    topic.missing = numbers
        .filter(|number| !topic.partitions.contains_key(number))
        .filter(|number| !topic.unreadable.contains_key(number))
        .collect();
    Ok(Ok(topic))
}

/// Compaction keeps the newest value of a key. Where that one lies behind a cut, an older one is not there any more.
fn cut_and_compacted(topic: &SourceTopic) -> Option<String> {
    let is_compacted = topic_config(&topic.to_make.configs).is_compacted();
    let mut places = Vec::new();
    for (number, source) in topic.partitions.iter().filter(|(_, source)| source.is_cut) {
        // Without the cleaner's checkpoint nobody knows how far it came; with it, a follower may have copied what its leader had compacted.
        let knows = || {
            source.log.is_compaction_noted().unwrap_or(false)
                && matches!(shown_by(&source.log), Ok(None))
        };
        let point = match source.log.cleaner_offset() {
            Ok(Some(point)) if point > source.stop => Some(point),
            Ok(None) if is_compacted && !knows() => None,
            Err(_) if is_compacted => None,
            _ => continue,
        };
        let came = point.map_or(String::new(), |point| format!(", compacted up to {point}"));
        places.push(format!("{number} (cut at {}{came})", source.stop));
    }
    (!places.is_empty()).then(|| {
        format!(
            "{} is compacted, and keys whose newest value lies behind the cut are lost, as compaction has removed their older ones: partition {}",
            topic.to_make.name,
            places.join(", ")
        )
    })
}

/// Without its line in the checkpoint nobody knows where a tiered log begins.
fn tell_tiered(chosen: &mut SourcePartition, warnings: &mut Vec<String>) {
    let first = chosen.log_start_offset;
    let noted = chosen.log.checkpointed_log_start_offset().ok().flatten();
    if chosen.begins_before || first == 0 || noted.is_some() {
        return;
    }
    chosen.begins_before = true;
    warnings.push(format!(
        "{}-{}: records before offset {first} may be in remote storage, and are not restored: the topic has remote.storage.enable=true, and \
         no log-start-offset-checkpoint says where it begins",
        chosen.log.topic(),
        chosen.log.partition()
    ));
}

/// Directories on their way to another log dir count only if there are no others.
fn live_ones(places: &[&PartitionPlace]) -> Vec<PathBuf> {
    let is_live = |place: &&&PartitionPlace| place.state == DirectoryState::Live;
    let has_live = places.iter().any(|place| is_live(&place));
    let counted = places.iter().filter(|place| !has_live || is_live(place));
    counted.map(|place| place.path.clone()).collect()
}

/// Whether a name is meant by a pattern, in which `*` stands for any characters and `?` for one.
#[must_use]
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    // The position of the last `*`, and how much of the name it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    let (mut at, mut taken) = (0, 0);
    while taken < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, taken));
                at += 1;
            }
            Some(byte) if *byte == b'?' || name.get(taken) == Some(byte) => {
                at += 1;
                taken += 1;
            }
            _ => {
                let Some((place, before)) = star else {
                    return false;
                };
                star = Some((place, before + 1));
                at = place + 1;
                taken = before + 1;
            }
        }
    }
    pattern
        .get(at..)
        .unwrap_or_default()
        .iter()
        .all(|byte| *byte == b'*')
}
