//! Which offsets were committed for an earlier topic of the same name: they say nothing of the records of the topic that is there now.
//!
//! Complete metadata decides which id a topic has. A directory with another id is what a broker calls a stray: the log of an earlier
//! topic, or of a later one if the metadata is old.

use super::{Group, GroupOffset};
use crate::error::Result;
use crate::log::{MetadataImage, id_in};
use crate::log_dir::{LogDir, TopicPartition};
use offsetlog_format::Uuid;
use std::collections::{BTreeMap, HashMap};

/// Marks these offsets. Returns a warning for each group and topic.
///
/// # Errors
/// `Interrupted`.
pub(super) fn mark(
    log_dir: &LogDir,
    metadata: &MetadataImage,
    groups: &mut BTreeMap<String, Group>,
) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    let mut ids = Ids::new(log_dir, metadata);
    for group in groups.values_mut() {
        let mut told: BTreeMap<String, String> = BTreeMap::new();
        for each in &mut group.offsets {
            if each.topic_id.is_zero() {
                continue;
            }
            let known = ids.of(each)?;
            let Some(here) = known.first().filter(|_| !known.contains(&each.topic_id)) else {
                continue;
            };
            each.is_of_another_topic = true;
            told.entry(each.topic.clone()).or_insert_with(|| {
                format!(
                    "group {}: offsets of {} were committed for an earlier topic of this name, with the topic id {}; the one that is there \
                     now has {here}, and the group has read nothing of it",
                    group.group_id, each.topic, each.topic_id
                )
            });
        }
        warnings.extend(told.into_values());
    }
    Ok(warnings)
}

/// The ids that topics have by complete metadata, by name. Metadata of which a part is missing may know an earlier topic alone.
pub(super) fn decided(metadata: &MetadataImage) -> HashMap<String, Uuid> {
    let topics = metadata.topics.iter().filter(|_| metadata.is_complete);
    topics
        .filter(|topic| !topic.topic_id.is_zero())
        .map(|topic| (topic.name.clone(), topic.topic_id))
        .collect()
}

/// The ids that a topic has here.
struct Ids<'a> {
    log_dir: &'a LogDir,
    in_directories: HashMap<(String, i32), Vec<Uuid>>,
    in_metadata: HashMap<&'a str, Uuid>,
    /// Whether nothing else counts for the topics that the metadata has.
    is_complete: bool,
}

impl<'a> Ids<'a> {
    fn new(log_dir: &'a LogDir, metadata: &'a MetadataImage) -> Self {
        let topics = metadata.topics.iter();
        let known = topics.filter(|topic| !topic.topic_id.is_zero());
        Self {
            log_dir,
            in_directories: HashMap::new(),
            in_metadata: known
                .map(|topic| (topic.name.as_str(), topic.topic_id))
                .collect(),
            is_complete: metadata.is_complete,
        }
    }

    /// By complete metadata, else by the partition's directories and by what is left of the metadata. What cannot be read says nothing;
    /// others tell that.
    fn of(&mut self, offset: &GroupOffset) -> Result<Vec<Uuid>> {
        if let Some(known) = self.in_metadata.get(offset.topic.as_str())
            && self.is_complete
        {
            return Ok(vec![*known]);
        }
        let key = (offset.topic.clone(), offset.partition);
        if !self.in_directories.contains_key(&key) {
            let found = self.in_replicas(&offset.topic_partition())?;
            self.in_directories.insert(key.clone(), found);
        }
        let mut known = self.in_directories.get(&key).cloned().unwrap_or_default();
        known.extend(self.in_metadata.get(offset.topic.as_str()));
        Ok(known)
    }

    fn in_replicas(&self, partition: &TopicPartition) -> Result<Vec<Uuid>> {
        let disk = self.log_dir.options().disk.as_ref();
        let paths = {
            let listing = self.log_dir.0.listing();
            listing
                .partitions
                .get(partition)
                .cloned()
                .unwrap_or_default()
        };
        let mut found = Vec::new();
        for path in paths {
            found.extend(id_in(disk, &path)?);
        }
        Ok(found)
    }
}
