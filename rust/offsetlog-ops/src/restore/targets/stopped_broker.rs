//! Where partitions go in stopped brokers' log dirs: where the cluster's metadata has them, or else where empty directories of them are.

use super::super::compare::has_records;
use super::super::sources::SourceTopic;
use super::super::tiered::RemoteStorage;
use super::super::{RestoreOptions, SourcePartition};
use super::{Placed, Targets};
use crate::identity::{absent_log_dirs, assigned_directory};
use crate::places::Places;
use crate::words::{about_to_be_deleted, brokers};
use offsetlog::format::Uuid;
use offsetlog::{Log, MetadataImage, OpenOptions};

impl Targets {
    /// Warns of metadata that does not say all, or not whose it is.
    pub(super) fn tell_of_metadata(&mut self, places: &Places) {
        if self
            .metadata
            .as_ref()
            .is_some_and(|known| !known.is_of_zookeeper)
            && places.metadata_cluster.is_none()
        {
            self.warnings.push(
                "which cluster's the metadata is, no meta.properties beside it says: of another one's topic ids the broker would set aside \
                 what is restored"
                    .to_owned(),
            );
        }
        if self.metadata.is_some() && self.whole_metadata().is_none() {
            self.warnings.push(
                "a part of the cluster's metadata is missing: partitions go where the rest has them, and what it says of settings is not \
                 believed. Give the metadata.log.dir of another controller (--metadata DIR)"
                    .to_owned(),
            );
        }
    }

    /// What the cluster's metadata says, if it says all: a setting that is not in a part of it may be in the other.
    pub(crate) fn whole_metadata(&self) -> Option<&MetadataImage> {
        self.metadata.as_ref().filter(|known| known.is_complete)
    }

    /// Whether a stopped broker's cluster has a topic, as far as is known.
    pub(crate) fn has_topic(&self, name: &str) -> bool {
        let known = self.metadata.as_ref();
        if known.is_some_and(|known| known.topics.iter().any(|topic| topic.name == name)) {
            return true;
        }
        let all = self.log_dirs.iter();
        let mut here = all.flat_map(|each| each.live.keys());
        self.whole_metadata().is_none() && here.any(|(topic, _)| topic == name)
    }

    /// Where a partition of a stopped broker's cluster goes.
    ///
    /// # Errors
    /// In words: why it cannot be restored here, and what to do.
    pub(super) fn in_stopped_broker(
        &mut self,
        topic: &SourceTopic,
        number: i32,
        source: &SourcePartition,
        how: &RestoreOptions,
        options: &OpenOptions,
    ) -> std::result::Result<Placed, String> {
        let name = &topic.to_make.name;
        let here = (name.clone(), number);
        let nodes = self.nodes();
        let metadata = self.metadata.as_ref();
        let Some(metadata) = metadata else {
            return self.without_metadata(topic, number, source, options);
        };
        let found = metadata.topics.iter().find(|each| each.name == *name);
        let registered =
            found.and_then(|found| Some((found.topic_id, found.partitions.get(&number)?)));
        let Some((topic_id, registered)) = registered else {
            let what = if found.is_some() {
                "has no such partition of the topic"
            } else {
                "does not have the topic"
            };
            return Err(if metadata.is_complete {
                format!(
                    "the cluster {what}: make it with kafka-topics.sh, stop the broker and run this again"
                )
            } else {
                format!(
                    "the cluster {what} by its metadata, of which a part is missing: give the metadata.log.dir of another controller \
                     (--metadata DIR); or, if it is so, make it with kafka-topics.sh, stop the broker and run this again"
                )
            });
        };
        if metadata.deleting_topics.contains(name) {
            return Err(about_to_be_deleted(name));
        }
        // A directory with records is compared itself.
        let of_it = self.log_dirs.iter();
        let mut of_it = of_it.filter_map(|each| each.live.get(&here));
        let is_compared = of_it.any(|path| has_records(path, options));
        if let Some(reason) = self
            .is_another_topic(name, topic_id)
            .filter(|_| !is_compared)
        {
            return Err(reason);
        }
        let registered = registered.clone();
        let (own, absent): (Vec<i32>, Vec<i32>) = registered
            .replicas
            .iter()
            .partition(|node| nodes.contains(node));
        if own.is_empty() {
            return Err(format!(
                "by the cluster's metadata it belongs to {}, and none of their log dirs is given",
                brokers(&absent)
            ));
        }
        if !absent.is_empty() && !how.single_replica {
            return Err(format!(
                "there are replicas on {} too, which would cut this one to what they have: give their log dirs too (stopped), or take them off the partition with kafka-reassign-partitions.sh; --single-replica restores it all the same, for a cluster that comes back without them",
                brokers(&absent)
            ));
        }
        for node in &own {
            let here = self.directory_ids(*node);
            let missing = absent_log_dirs(metadata, &registered, *node, &here);
            if !missing.is_empty() {
                return Err(not_here(*node, &missing));
            }
        }
        let slots: Vec<(Option<i32>, usize)> = own
            .iter()
            .map(|node| {
                let directory = assigned_directory(&registered, *node);
                (
                    Some(*node),
                    self.slot(Some(*node), &here.0, here.1, directory),
                )
            })
            .collect();
        let mut placed = self.placed(
            &slots,
            topic,
            number,
            source,
            Some(topic_id).filter(|id| !id.is_zero()),
        );
        placed.absent = absent;
        placed.remote = RemoteStorage::of(topic, self.metadata.as_ref(), placed.topic_id);
        let known = registered.leader_epoch;
        placed.leader_epoch_accepted = Some(known.max(0));
        placed.leader_epoch_max = (source.leader_epoch > known).then_some(known.max(0));
        Ok(placed)
    }

    /// Why a topic of the metadata is not the one that the log dirs have partitions of, if its id says so.
    fn is_another_topic(&self, name: &str, topic_id: Uuid) -> Option<String> {
        let here = self.ids.get(name).copied();
        let here = here.filter(|here| *here != topic_id && !topic_id.is_zero())?;
        let all = self.log_dirs.iter();
        let mut paths = all.flat_map(|each| &each.live);
        let (_, path) = paths.find(|((topic, _), _)| topic == name)?;
        Some(format!(
            "the topic has the id {topic_id} in the metadata, and {here} in the log dirs here ({}): the metadata is another cluster's, or older \
             than the topic: give that of this cluster's controllers (--metadata DIR). If the topic was made anew while the broker was \
             stopped, move its old directories away, or give them its id with offsetlog adopt",
            path.display()
        ))
    }

    /// Without metadata the empty directories tell which partitions are this broker's.
    fn without_metadata(
        &mut self,
        topic: &SourceTopic,
        number: i32,
        source: &SourcePartition,
        options: &OpenOptions,
    ) -> std::result::Result<Placed, String> {
        let name = topic.to_make.name.clone();
        let mut slots = Vec::new();
        let mut known = -1;
        for (slot, log_dir) in self.log_dirs.iter().enumerate() {
            if let Some(path) = log_dir.live.get(&(name.clone(), number)) {
                let epoch = Log::open(path, options).and_then(|log| log.leader_epoch());
                let epoch = epoch.map_err(|error| error.to_string())?;
                known = known.max(epoch.unwrap_or(-1));
                slots.push((log_dir.node_id, slot));
            }
        }
        if slots.is_empty() {
            return Err(
                "the log dirs have no directory of it, and no metadata says whose it is: make the topic with kafka-topics.sh, or name the metadata.log.dir with --metadata"
                    .to_owned(),
            );
        }
        let topic_id = self.known_id(&name);
        let mut placed = self.placed(&slots, topic, number, source, topic_id);
        placed.remote = RemoteStorage::of(topic, None, topic_id);
        placed.leader_epoch_accepted = Some(known.max(0));
        placed.leader_epoch_max = (source.leader_epoch > known).then_some(known.max(0));
        Ok(placed)
    }
}

/// Says that a partition belongs into a log dir that is not among those given.
fn not_here(node: i32, missing: &[Uuid]) -> String {
    let ids: Vec<String> = missing.iter().map(ToString::to_string).collect();
    format!(
        "by the cluster's metadata broker {node} has it, or may have it, in a log dir that is not here: give all log dirs of the broker, also that with \
         directory.id {} in meta.properties; if it is gone for good, start the broker once without it",
        ids.join(", ")
    )
}
