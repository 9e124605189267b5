//! Where the source's logs begin, compared with the copies: what the source deleted since, and what is no longer here though it is there.

use super::Core;
use crate::mirror::report::{EventKind, MirrorEvent};
use crate::mirror::work::Work;
use offsetlog::TopicPartition;

impl Core {
    /// A broker tells the source's log start offset.
    pub(super) fn take_source_start(
        &mut self,
        broker: i32,
        at: &TopicPartition,
        (start, is_by_id): (i64, bool),
        works: &mut Vec<Work>,
    ) {
        let follows = self.follows();
        let is_old = self.topic_id(&at.topic).is_zero();
        let Some(partition) = self.partitions.get_mut(at) else {
            return;
        };
        partition.source_start = Some(start);
        // By name, it may be another topic's.
        let is_missing = start < partition.start && partition.noted_start < partition.start;
        if is_missing && (is_by_id || is_old) {
            self.tell_missing(broker, at, start);
            return;
        }
        // A start above what the copy has reached is not the start of the copy. By name, it may be another topic's.
        let is_proven = is_by_id || is_old || start <= partition.proven;
        let is_reached = start <= partition.reached();
        if start <= partition.start || partition.is_empty() || !is_reached || !is_proven {
            return;
        }
        let from = partition.start;
        if follows && partition.deleted_to < start {
            partition.deleted_to = start;
            works.push(Work::DeleteBefore {
                at: at.clone(),
                offset: start,
            });
        }
        if !partition.told_deletes {
            partition.told_deletes = true;
            let message = if follows {
                format!(
                    "the source deleted the records below offset {start}; they are deleted here too"
                )
            } else {
                format!("the source deleted the records below offset {start}; they stay here")
            };
            let event = MirrorEvent::of(EventKind::DeletedRecords, at, message);
            self.tell(event.range(from, start).by(broker));
        }
    }

    /// The copy begins behind the source's start, and the mirror never began it there: somebody deleted records here.
    fn tell_missing(&mut self, broker: i32, at: &TopicPartition, start: i64) {
        let Some(partition) = self.partitions.get_mut(at) else {
            return;
        };
        if std::mem::replace(&mut partition.told_missing, true) {
            return;
        }
        // What is before the mirror's own beginning was never here.
        let (from, own) = (start.max(partition.noted_start), partition.start);
        let message = format!(
            "the source has the records from offset {from} to {own}, and they were deleted here, not by the mirror: they are not fetched \
             again. To have them, move the partition's directory away: the next run copies it anew"
        );
        let event = MirrorEvent::of(EventKind::Lost, at, message);
        self.tell(event.range(from, own).by(broker));
    }
}
