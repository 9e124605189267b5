//! Finds partition directories that the cluster's metadata does not have. Kafka calls them stray replicas and renames them.
//!
//! Source: Kafka's `LogManager.isStrayKraftReplica`, which compares topic id and partition.

use super::LogDir;
use crate::disk::{Disk, read_whole};
use crate::error::{Error, Result};
use crate::log::{MetadataImage, TopicImage};
use crate::step_progress::{DirectoryProgress, Steps};
use offsetlog_format::internal_topic::METADATA_TOPIC;
use offsetlog_format::name::PARTITION_METADATA;
use offsetlog_format::{PartitionMetadata, Uuid};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// A partition directory that the metadata does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// The topic in the directory's name.
    pub topic: String,
    /// The partition in the directory's name.
    pub partition: i32,
    /// The directory.
    pub path: PathBuf,
    /// The topic id in its `partition.metadata`; `None` if the file does not exist.
    pub topic_id: Option<Uuid>,
    /// What the metadata has instead.
    pub reason: String,
}

impl LogDir {
    /// Returns the partition directories in these log dirs that an image of the cluster's metadata does not have, by topic and
    /// partition. Compares topic ids, or names if a directory or the topic has no id. A topic created after the image's end is not in the
    /// image, so its directories are returned too. An image that is not complete gives `None`. Reads `partition.metadata` of
    /// each directory.
    ///
    /// # Errors
    /// `MetadataFile` if such a file is malformed; `Io`.
    pub fn strays(&self, image: &MetadataImage) -> Result<Option<Vec<Stray>>> {
        self.strays_told(image, &mut Steps::new(&DirectoryProgress::default()))
    }

    /// The same. Each directory is a step.
    ///
    /// # Errors
    /// The same; that of the progress.
    pub fn strays_told(
        &self,
        image: &MetadataImage,
        steps: &mut Steps<'_, Path>,
    ) -> Result<Option<Vec<Stray>>> {
        if !image.is_complete {
            return Ok(None);
        }
        let topics = image.topics.iter();
        let known = Known {
            by_id: topics
                .clone()
                .filter(|topic| !topic.topic_id.is_zero())
                .map(|topic| (topic.topic_id, topic))
                .collect(),
            by_name: topics.map(|topic| (topic.name.as_str(), topic)).collect(),
            image,
        };
        let mut listed = self.0.listing().partitions.clone();
        listed.retain(|found, _| found.topic != METADATA_TOPIC);
        steps.add(listed.values().map(Vec::len).sum());
        let mut strays = Vec::new();
        for (found, paths) in listed {
            for path in paths {
                steps.at(&path)?;
                let topic_id = self.topic_id_in(&path)?;
                let objection = known.objection(&found.topic, found.partition, topic_id);
                // A broker that runs may have deleted the topic since the directories were listed.
                if let Some(reason) = objection
                    && !is_gone(self.options().disk.as_ref(), &path)
                {
                    strays.push(Stray {
                        topic: found.topic.clone(),
                        partition: found.partition,
                        path,
                        topic_id,
                        reason,
                    });
                }
            }
        }
        Ok(Some(strays))
    }

    /// Reads the topic id from this directory, because a partition may have several.
    fn topic_id_in(&self, directory: &Path) -> Result<Option<Uuid>> {
        let path = directory.join(PARTITION_METADATA);
        let options = self.options();
        let limit = options.limits.max_state_file_bytes;
        match read_whole(options.disk.as_ref(), &path, limit) {
            Ok(bytes) => PartitionMetadata::parse(&bytes)
                .map(|found| Some(found.topic_id))
                .map_err(|error| Error::new(error).at_path(&path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::state_file(&path, error)),
        }
    }
}

fn is_gone(disk: &dyn Disk, directory: &Path) -> bool {
    let found = disk.stat(directory);
    found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

struct Known<'i> {
    by_id: HashMap<Uuid, &'i TopicImage>,
    by_name: HashMap<&'i str, &'i TopicImage>,
    image: &'i MetadataImage,
}

impl Known<'_> {
    fn objection(&self, name: &str, partition: i32, topic_id: Option<Uuid>) -> Option<String> {
        let named = self.by_name.get(name);
        let Some(topic_id) = topic_id else {
            return match named {
                Some(topic) => lacks(topic, partition),
                None => Some("there is no topic of this name".to_owned()),
            };
        };
        if let Some(topic) = self.by_id.get(&topic_id) {
            if topic.name != name {
                return Some(format!("topic id {topic_id} is that of {:?}", topic.name));
            }
            return lacks(topic, partition);
        }
        if let Some(topic) = named.filter(|topic| topic.topic_id.is_zero()) {
            return lacks(topic, partition);
        }
        let removed = &self.image.removed_topics;
        let was_removed = removed.iter().any(|(_, removed)| *removed == topic_id);
        Some(match (was_removed, named) {
            (true, None) => format!("topic id {topic_id} was deleted"),
            (true, Some(now)) => format!(
                "topic id {topic_id} was deleted, and the topic of this name is now {}",
                now.topic_id
            ),
            (false, Some(now)) => format!(
                "topic id {topic_id} is not known, the topic of this name is {}",
                now.topic_id
            ),
            (false, None) => format!("neither topic id {topic_id} nor the name is known"),
        })
    }
}

fn lacks(topic: &TopicImage, partition: i32) -> Option<String> {
    let has = topic.partitions.contains_key(&partition);
    (!has).then(|| format!("the topic has no partition {partition}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{OpenOptions, PartitionRegistration};
    use std::collections::BTreeMap;

    /// Brokers with ZooKeeper gave topics no ids before 2.8; the directories got theirs later.
    #[test]
    fn topics_without_ids_are_known_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let id = Uuid::from_bytes([7; 16]);
        for name in ["old-0", "old-1", "other-0", "gone-0"] {
            let directory = folder.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(directory.join(format!("{:020}.log", 0)), b"").unwrap();
            let text = format!("version: 0\ntopic_id: {id}\n");
            std::fs::write(directory.join(PARTITION_METADATA), text).unwrap();
        }
        let topic = |name: &str| TopicImage {
            name: name.to_owned(),
            topic_id: Uuid::default(),
            partitions: BTreeMap::from([(0, PartitionRegistration::default())]),
        };
        let image = MetadataImage {
            is_complete: true,
            topics: vec![topic("old"), topic("other")],
            ..MetadataImage::default()
        };
        let log_dir = LogDir::open(&[folder.path()], &OpenOptions::default()).unwrap();
        let strays = log_dir.strays(&image).unwrap().unwrap();
        let found: Vec<_> = strays
            .iter()
            .map(|stray| (stray.topic.as_str(), stray.partition, stray.reason.as_str()))
            .collect();
        let unknown = format!("neither topic id {id} nor the name is known");
        assert_eq!(
            found,
            [
                ("gone", 0, unknown.as_str()),
                ("old", 1, "the topic has no partition 1")
            ]
        );
    }

    #[test]
    fn a_topic_deleted_since_the_listing_is_no_stray() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("gone-0");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join(format!("{:020}.log", 0)), b"").unwrap();
        let log_dir = LogDir::open(&[folder.path()], &OpenOptions::default()).unwrap();
        let image = MetadataImage {
            is_complete: true,
            ..MetadataImage::default()
        };
        assert_eq!(log_dir.strays(&image).unwrap().unwrap().len(), 1);
        // As a broker does.
        let renamed = "gone-0.0123456789abcdef0123456789abcdef-delete";
        std::fs::rename(&directory, folder.path().join(renamed)).unwrap();
        assert_eq!(log_dir.strays(&image).unwrap().unwrap(), []);
    }
}
