//! Reads groups from `__consumer_offsets` and `__share_group_state` (FORMAT.md «Internal topics»).
//!
//! A group coordinator stores its state as records; the last record of each key counts. An offset that was committed in a
//! transaction counts once the transaction is committed. Of two commits of one key, the one with the later record wins.

mod behind;
mod earlier_topics;
mod group;
mod missing;
mod one_partition;
mod pending;
mod replay;
mod share;
mod topic_names;
mod zookeeper;

use super::whole_logs::{Doubts, check_end};
use super::{LogDir, TopicPartition, Unread, pass_over};
use crate::error::Result;
use crate::log::MetadataImage;
use crate::step_progress::{PartitionProgress, Steps};
use behind::Wanted;
pub use group::{FirstUnread, Group, GroupMember, GroupOffset, GroupState, ShareGroupOffset};
use offsetlog_format::Uuid;
use offsetlog_format::internal_topic::METADATA_TOPIC;
pub use pending::PendingOffset;
use replay::Replay;
use share::ShareReplay;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use topic_names::{Named, TopicIds};

/// The topic in which Kafka stores its groups.
const TOPIC: &str = "__consumer_offsets";

/// How groups are read.
#[derive(Debug, Clone, Default)]
pub struct GroupsOptions {
    /// Does not look at the partitions that the groups read: no log end offset is known, nor the first unread record.
    pub without_lag: bool,
    /// Told of each partition: of the internal topics, and then of those that the groups read, which make the total grow.
    pub progress: PartitionProgress,
}

impl GroupsOptions {
    /// Only what the groups stored.
    #[must_use]
    pub fn without_lag() -> Self {
        Self {
            without_lag: true,
            ..Self::default()
        }
    }
}

impl LogDir {
    /// Returns the groups that their coordinators stored in these log dirs, by name, with their committed offsets and
    /// lag; warnings about what was skipped; and what could not be read. A damaged partition of the topic gives no groups at
    /// all, because records after the damage may contradict those before it. One that ends below the high watermark of its log dir gives
    /// what is left and is among what could not be read. If a log's end cannot be determined or is below that, there is no lag, and none for an offset of an earlier topic of the name; complete metadata decides which topic id a name has, and a directory with another one gives no lag; if damage hides the first unread record, a warning names the partition. Records of unknown types or without a
    /// key are skipped with a warning; coordinators skip the former too. Another warning names the partitions of
    /// `__consumer_offsets` and `__share_group_state` that are not here, as far as other partitions or the cluster's metadata show it.
    /// Metadata that cannot be read is among what could not be read.
    ///
    /// A share group also has its start offsets, out of `__share_group_state`, one for each partition. Where it began to read a topic that
    /// was deleted is left out with a warning if another topic has the name now. Groups of old consumers are those of ZooKeeper's data, if
    /// that is among the paths.
    ///
    /// Cost: reads both topics completely and keeps one value per key in memory. Opens each partition with a committed
    /// offset once, and looks each committed offset below its end up once, as [`Log::get`](crate::Log::get) does; groups that
    /// committed the same offset share the look-up.
    ///
    /// # Errors
    /// `LogDir` for log dirs of several clusters; `Interrupted`; those of [`metadata`](Self::metadata) for ZooKeeper's data, and of the progress. Per partition, those of a scan, and
    /// `Corrupt` kinds for a record that no coordinator wrote.
    pub fn groups(&self, how: &GroupsOptions) -> Result<(Vec<Group>, Vec<String>, Vec<Unread>)> {
        self.check_one_cluster()?;
        let (mut warnings, mut unread) = (Vec::new(), Vec::new());
        let partitions = self.partitions();
        let mut steps = Steps::new(&how.progress);
        let metadata = self.metadata_or_unread(&mut unread)?;
        let ids = earlier_topics::decided(&metadata);
        let mut found = self.stored_groups(
            &partitions,
            &metadata,
            &mut steps,
            &mut warnings,
            &mut unread,
        )?;
        if !how.without_lag {
            self.add_lag(
                &mut found,
                &partitions,
                &ids,
                &mut steps,
                &mut warnings,
                &mut unread,
            )?;
        }
        steps.end()?;
        Ok((found, warnings, unread))
    }

    /// Adds what the partitions that the groups read say.
    fn add_lag(
        &self,
        groups: &mut [Group],
        partitions: &[TopicPartition],
        ids: &HashMap<String, Uuid>,
        steps: &mut Steps<'_, TopicPartition>,
        warnings: &mut Vec<String>,
        unread: &mut Vec<Unread>,
    ) -> Result<()> {
        let mut wanted = Wanted::new();
        for group in &*groups {
            for each in group.offsets.iter().filter(|each| each.has_log()) {
                let wanted = wanted.entry(each.topic_partition()).or_default();
                wanted.insert(each.offset);
            }
            for each in &group.share_offsets {
                let wanted = wanted.entry(each.topic_partition()).or_default();
                wanted.extend(each.start_offset);
            }
        }
        let behind = self.behind(partitions, ids, wanted, steps, warnings, unread)?;
        for group in groups {
            for each in group.offsets.iter_mut().filter(|each| each.has_log()) {
                let partition = each.topic_partition();
                (each.log_end_offset, each.first_unread) = behind.of(&partition, each.offset);
            }
            for each in &mut group.share_offsets {
                let start = each.start_offset.unwrap_or(-1);
                let partition = each.topic_partition();
                (each.log_end_offset, each.first_unread) = behind.of(&partition, start);
            }
        }
        Ok(())
    }

    /// The groups that the internal topics and ZooKeeper's data have.
    fn stored_groups(
        &self,
        partitions: &[TopicPartition],
        metadata: &MetadataImage,
        steps: &mut Steps<'_, TopicPartition>,
        warnings: &mut Vec<String>,
        unread: &mut Vec<Unread>,
    ) -> Result<Vec<Group>> {
        warnings.extend(missing::warnings(metadata, partitions));
        let internal = [TOPIC, share::TOPIC];
        let internal = partitions
            .iter()
            .filter(|found| internal.contains(&found.topic.as_str()));
        steps.add(internal.count());
        let mut topics = TopicIds::beside(metadata);
        let mut found = self.replayed_groups(partitions, &mut topics, steps, warnings, unread)?;
        warnings.extend(earlier_topics::mark(self, metadata, &mut found)?);
        self.replay_share_state(partitions, &mut topics, &mut found, steps, warnings, unread)?;
        self.add_zookeepers_groups(&mut found, warnings)?;
        Ok(found.into_values().collect())
    }

    /// The groups by name, as `__consumer_offsets` alone has them.
    fn replayed_groups(
        &self,
        partitions: &[TopicPartition],
        topics: &mut TopicIds<'_>,
        steps: &mut Steps<'_, TopicPartition>,
        warnings: &mut Vec<String>,
        unread: &mut Vec<Unread>,
    ) -> Result<BTreeMap<String, Group>> {
        let mut replays: Vec<(i32, Replay)> = Vec::new();
        let mut greatest = None;
        for partition in partitions.iter().filter(|found| found.topic == TOPIC) {
            greatest = greatest.max(Some(partition.partition));
            steps.at(partition)?;
            let mut replay = Replay::default();
            let replayed = self
                .log(&partition.topic, partition.partition)
                .and_then(|log| {
                    replay.run(&log)?;
                    warnings.extend(Doubts::of(&log)?.warnings());
                    // Of a running broker they are a moment old.
                    if !log.has_running_owner() {
                        warnings.extend(replay.undecided(&partition.to_string()));
                    }
                    Ok(check_end(&log))
                });
            if !is_replayed(replayed, partition, unread)? {
                continue;
            }
            warnings.extend(replay.left_out.warnings(&partition.to_string()));
            warnings.extend(replay.odd_assignments(&partition.to_string()));
            replays.push((partition.partition, replay));
        }
        let known = missing::known_count(topics.metadata);
        warnings.extend(one_partition::settle(&mut replays, known, greatest));
        let mut found: BTreeMap<String, Group> = BTreeMap::new();
        for (_, replay) in replays {
            for (name, replayed) in replay.groups {
                let state = replayed.state();
                let mut group = replayed.group;
                group.group_id.clone_from(&name);
                group.state = state;
                topics.told.extend(replayed.topic_names);
                let mut members = replayed.members;
                for (member, assignment) in replayed.by_id {
                    let Some(member) = members.get_mut(&member) else {
                        continue;
                    };
                    for (id, numbers) in assignment {
                        let name = topics.name(self, partitions, unread, id)?;
                        member.assignment.push((name, numbers));
                    }
                    member.assignment.sort();
                }
                group.members = members.into_values().collect();
                found.insert(name, group);
            }
            for ((name, ..), commit) in replay.offsets {
                let group = found.entry(name.clone()).or_insert_with(|| Group {
                    group_id: name,
                    ..Group::default()
                });
                group.offsets.push(commit.offset);
            }
        }
        Ok(found)
    }

    /// Adds what `__share_group_state` says. A group that `__consumer_offsets` does not have here is added too: its other records may
    /// be in other log dirs.
    fn replay_share_state(
        &self,
        partitions: &[TopicPartition],
        topics: &mut TopicIds<'_>,
        found: &mut BTreeMap<String, Group>,
        steps: &mut Steps<'_, TopicPartition>,
        warnings: &mut Vec<String>,
        unread: &mut Vec<Unread>,
    ) -> Result<()> {
        let of_topic = partitions
            .iter()
            .filter(|found| found.topic == share::TOPIC);
        let mut left_out = BTreeSet::new();
        for partition in of_topic {
            steps.at(partition)?;
            let mut replay = ShareReplay::default();
            let replayed = self
                .log(&partition.topic, partition.partition)
                .and_then(|log| {
                    // Its coordinator deletes what snapshots made superfluous, so a late start says nothing.
                    replay.run(&log)?;
                    warnings.extend(Doubts::of(&log)?.torn_end);
                    Ok(check_end(&log))
                });
            if !is_replayed(replayed, partition, unread)? {
                continue;
            }
            warnings.extend(replay.left_out.warnings(&partition.to_string()));
            for ((name, id, _), mut offset) in replay.offsets {
                match topics.look_up(self, partitions, unread, &id)? {
                    Named::As(topic) => offset.topic = topic,
                    Named::Unknown => {}
                    Named::Before(topic) => {
                        left_out.insert((name, topic, id));
                        continue;
                    }
                }
                let group = found.entry(name.clone()).or_insert_with(|| Group {
                    group_id: name,
                    kind: "share",
                    ..Group::default()
                });
                group.share_offsets.push(offset);
            }
        }
        warnings.extend(left_out.into_iter().map(|(group, topic, id)| {
            format!(
                "left out: where share group {group:?} read topic {topic:?} with the id {id}; the topic of this name has another id now"
            )
        }));
        for group in found.values_mut() {
            group
                .share_offsets
                .sort_by(|one, other| one.place().cmp(&other.place()));
        }
        Ok(())
    }

    /// The cluster's metadata, empty if there is none or it cannot be read: groups are read without it.
    fn metadata_or_unread(&self, unread: &mut Vec<Unread>) -> Result<MetadataImage> {
        match self.metadata() {
            Ok(metadata) => Ok(metadata.unwrap_or_default()),
            Err(error) => {
                let partition = TopicPartition {
                    topic: METADATA_TOPIC.to_owned(),
                    partition: 0,
                };
                pass_over(error, &partition, unread)?;
                Ok(MetadataImage::default())
            }
        }
    }
}

/// Whether there is something to show of a partition that was replayed. If it lost its end, what is left is shown, and the partition is
/// among the unread ones: after a power cut that is all there is of a broker's newest records.
fn is_replayed(
    replayed: Result<Result<()>>,
    partition: &TopicPartition,
    unread: &mut Vec<Unread>,
) -> Result<bool> {
    let is_shown = replayed.is_ok();
    if let Err(error) = replayed.and_then(|has_end| has_end) {
        pass_over(error, partition, unread)?;
    }
    Ok(is_shown)
}
