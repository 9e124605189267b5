//! What the cluster's metadata does not tell of a partition, and why.

use super::{Membership, MetadataImage};
use offsetlog_format::internal_topic::METADATA_TOPIC;
use std::path::Path;

impl Membership {
    /// Why the metadata at hand does not tell what the cluster `cluster_id` has: it is another one's, it cannot be read, or a part of it is
    /// missing, which may be about any topic. `None` too if there is none.
    pub(super) fn unusable_because(&self, cluster_id: Option<&str>) -> Option<String> {
        let metadata = self.metadata.as_ref()?;
        let place = metadata.path.display();
        let there = metadata.cluster_id.as_deref();
        if let Some(why) = cluster_id.and_then(|here| is_another(&metadata.path, here, there)) {
            return Some(why);
        }
        match &metadata.image {
            Err(error) => Some(format!("{place} cannot be read: {error}")),
            Ok(image) if !image.is_complete => {
                Some(format!("a part of its metadata is missing in {place}"))
            }
            Ok(_) => None,
        }
    }

    /// Why the cluster's settings of the topic are not known.
    pub(super) fn missing_because(&self) -> Option<String> {
        let Some(metadata) = &self.metadata else {
            return Some(format!(
                "the cluster may set it, and its metadata ({METADATA_TOPIC}-0, or ZooKeeper's data) was not found"
            ));
        };
        if let Some(why) = &self.unusable {
            let is_part = |image: &MetadataImage| !image.is_complete;
            return Some(if metadata.image.as_ref().is_ok_and(is_part) {
                format!("the cluster may set it, and {why}")
            } else {
                why.clone()
            });
        }
        let place = metadata.path.display();
        match &metadata.image {
            Ok(image) if self.topic_in(image).is_none() => Some(format!(
                "the metadata in {place} does not have this topic{}",
                self.topic_id
                    .map_or_else(String::new, |id| format!(" with the id {id}"))
            )),
            Ok(_) if metadata.deleting.contains(&self.topic) => Some(format!(
                "the cluster is about to delete the topic (/admin/delete_topics in {place})"
            )),
            _ => None,
        }
    }

    /// Why it is not known which other brokers have a replica of the partition: the metadata that is at hand cannot be read, or the
    /// partition may be in the part of it that is missing.
    pub(crate) fn others_unknown(&self) -> Option<&str> {
        let metadata = self.metadata.as_ref()?;
        let is_told = metadata.image.as_ref().is_ok_and(|image| {
            let topic = self.topic_in(image);
            // It has no topic of its own.
            image.is_complete
                || self.topic == METADATA_TOPIC
                || topic.is_some_and(|topic| topic.partitions.contains_key(&self.partition))
        });
        self.unusable.as_deref().filter(|_| !is_told)
    }

    /// Whether other brokers have a replica, or may have one.
    pub(crate) fn may_have_others(&self) -> bool {
        self.is_brokers() && (self.others_unknown().is_some() || !self.others().is_empty())
    }

    /// The topic's partitions in the cluster; `None` where no metadata is at hand, or where it does not have the topic.
    ///
    /// # Errors
    /// In words why the metadata that is at hand does not tell them.
    pub(crate) fn partitions(&self) -> Result<Option<Vec<i32>>, &str> {
        if !self.is_brokers() {
            return Ok(None);
        }
        if let Some(why) = &self.unusable {
            return Err(why);
        }
        let topic = self.image().and_then(|image| self.topic_in(image));
        Ok(topic.map(|topic| topic.partitions.keys().copied().collect()))
    }
}

/// Why the metadata at `place` is not the cluster `here`'s.
pub(super) fn is_another(place: &Path, here: &str, there: Option<&str>) -> Option<String> {
    let there = there.filter(|&there| there != here)?;
    let place = place.display();
    Some(format!(
        "{place} is the metadata of cluster {there}, and the log dir is one of cluster {here}"
    ))
}
