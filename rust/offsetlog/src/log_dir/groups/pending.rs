//! Offsets that groups committed in transactions without an end: a coordinator that loads them keeps them until the marker comes.

use super::replay::Replay;
use super::{GroupOffset, TOPIC, missing};
use crate::error::Result;
use crate::log::ProducerState;
use crate::log_dir::{LogDir, TopicPartition, pass_over};
use offsetlog_format::internal_topic::partition_of;

/// An offset that a group committed in a transaction without an end, and that no later commit of it replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingOffset {
    /// The group.
    pub group_id: String,
    /// What it committed. Nothing is known of its lag.
    pub offset: GroupOffset,
    /// The partition of `__consumer_offsets` that has it.
    pub stored_in: i32,
    /// The producer, with the first offset of its transaction there.
    pub producer: ProducerState,
}

impl LogDir {
    /// Returns the offsets that groups committed in transactions without an end, in the order in which a partition has them. What cannot be
    /// read is left out: [`groups`](Self::groups) reports it.
    ///
    /// Cost: of each partition of `__consumer_offsets` that of [`open_transactions`](crate::Log::open_transactions), and a scan of those
    /// with one.
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn pending_offsets(&self) -> Result<Vec<PendingOffset>> {
        let mut unread = Vec::new();
        let metadata = self.metadata_or_unread(&mut unread)?;
        let known = missing::known_count(&metadata);
        let mut found = Vec::new();
        for partition in self.partitions() {
            if partition.topic != TOPIC {
                continue;
            }
            match self.pending_in(&partition, known) {
                Ok(pending) => found.extend(pending),
                Err(error) => pass_over(error, &partition, &mut unread)?,
            }
        }
        Ok(found)
    }

    fn pending_in(
        &self,
        partition: &TopicPartition,
        known: Option<usize>,
    ) -> Result<Vec<PendingOffset>> {
        let log = self.log(&partition.topic, partition.partition)?;
        let open = log.open_transactions()?;
        if open.is_empty() {
            return Ok(Vec::new());
        }
        let mut replay = Replay::default();
        replay.run(&log)?;
        // Kafka looks for a group in one partition; what is left of it in another counts no more.
        let is_own = |group: &str| {
            known.is_none_or(|count| partition_of(group, count) == partition.partition as usize)
        };
        let pending = replay.into_pending().into_iter();
        let pending = pending.filter_map(|(producer_id, group_id, offset)| {
            let producer = open.iter().find(|each| each.producer_id == producer_id)?;
            is_own(&group_id).then_some(PendingOffset {
                group_id,
                offset,
                stored_in: partition.partition,
                producer: *producer,
            })
        });
        Ok(pending.collect())
    }
}
