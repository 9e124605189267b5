//! Whether a partition of a topic with remote storage can be restored into a stopped broker: one that starts with a directory which does not
//! know of the segments there deletes them.
//!
//! Source: Kafka's `RemoteLogManager`, which deletes segments whose leader epochs are all below the earliest of the log's
//! (`deleteLogSegmentsDueToLeaderEpochCacheTruncation`), and those before the log start offset; and `LogLoader`, by which a log with remote
//! storage begins where `log-start-offset-checkpoint` says, at 0 without a line, and not with its first segment.

use super::choice::SourcePartition;
use super::sources::SourceTopic;
use crate::topic_config::topic_config;
use offsetlog::MetadataImage;
use offsetlog::format::Uuid;

/// Remote storage of a topic that partitions are restored into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RemoteStorage {
    /// Whether segments there may be of the topic that is restored: they go by the topic's id.
    is_its_own: bool,
    /// Whether a setting says that the topic has it. If not, nobody knows.
    is_told: bool,
}

impl RemoteStorage {
    /// The remote storage of a topic that has this id in a stopped broker's cluster; `None` if it has none.
    pub(super) fn of(
        topic: &SourceTopic,
        target: Option<&MetadataImage>,
        topic_id: Option<Uuid>,
    ) -> Option<Self> {
        let to_make = &topic.to_make;
        let ids = to_make.topic_id.zip(topic_id);
        let is_its_own = ids.is_none_or(|(had, has)| had == has);
        let key = ("topic".to_owned(), to_make.name.clone());
        let has_it_there = target
            .and_then(|target| target.configs.get(&key))
            .is_some_and(|own| topic_config(own).remote_storage_enable());
        // What a part of the metadata does not say, the other may.
        if !has_it_there && target.is_none_or(|target| !target.is_complete) {
            // Nobody tells but the source, whose cluster was this one if the topic is the same.
            let is_told = topic_config(&to_make.configs).remote_storage_enable();
            let has_it = is_its_own && (is_told || !topic.is_told);
            return has_it.then_some(Self {
                is_its_own,
                is_told,
            });
        }
        has_it_there.then_some(Self {
            is_its_own,
            is_told: true,
        })
    }

    /// Why no directory is to be built of `source`, where the cluster takes leader epochs up to `known`.
    pub(super) fn refuses(self, source: &SourcePartition, known: Option<i32>) -> Option<String> {
        let first = source.first_offset;
        let has_it = if self.is_told {
            "the topic has remote storage (remote.storage.enable)"
        } else {
            "the topic may have remote storage, as no whole metadata of the cluster is here (--metadata DIR)"
        };
        let by_hand = format!(
            "put its directory back as it is: while the broker is stopped, copy {} into the log dir in place of the empty one",
            source.path.display()
        );
        if let Some(known) = known.filter(|known| source.leader_epoch > *known)
            && self.is_its_own
            && self.is_told
        {
            return Some(format!(
                "{has_it}, where segments are found by their leader epochs, and the cluster takes no epoch above {known}: those of the records, \
                 up to {}, would be counted anew. Instead {by_hand}",
                source.leader_epoch
            ));
        }
        if first == 0 || !(self.is_told || source.begins_before) {
            return None;
        }
        Some(if self.is_its_own {
            format!(
                "{has_it}, and the log begins at offset {first} here: a restored directory has no leader epochs of what is before, and a broker \
                 that starts with it deletes these segments from the remote storage, for good. Instead {by_hand}, and its line of \
                 log-start-offset-checkpoint too"
            )
        } else {
            format!(
                "{has_it} and another topic id, and the log begins at offset {first} here: nothing is in the remote storage before, and a broker \
                 would take the log to begin at 0 all the same. Make the topic without remote.storage.enable"
            )
        })
    }
}
