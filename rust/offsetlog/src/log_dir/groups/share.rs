//! Replays `__share_group_state`: where share groups begin to read.

use super::{FirstUnread, ShareGroupOffset};
use crate::error::Result;
use crate::log::Log;
use crate::log::replay::{LeftOut, each_record, int, long, text};
use offsetlog_format::internal_topic::{CoordinatorTopic, KnownRecord};
use offsetlog_format::message::{Struct, Value};
use std::collections::BTreeMap;

/// The topic in which Kafka stores what share groups have done with records.
pub(super) const TOPIC: &str = "__share_group_state";

/// Group, topic id and partition.
pub(super) type ShareKey = (String, String, i32);

/// The state of all share partitions in one partition of the topic, while its records are replayed. The topic is the id.
#[derive(Default)]
pub(super) struct ShareReplay {
    pub(super) offsets: BTreeMap<ShareKey, ShareGroupOffset>,
    pub(super) left_out: LeftOut,
}

impl ShareReplay {
    pub(super) fn run(&mut self, log: &Log) -> Result<()> {
        each_record(log, None, |header, record| {
            if header.attributes.is_control() {
                return Ok(());
            }
            let topic = CoordinatorTopic::ShareGroupState;
            if let Some(known) = self.left_out.known(topic, record)? {
                self.take(&known);
            }
            Ok(())
        })
    }

    /// A snapshot replaces what was there; an update changes what it names, and a start offset or a leader epoch of -1 names
    /// nothing. Only the snapshot's null value deletes.
    fn take(&mut self, record: &KnownRecord<'_>) {
        let id = match record.key.get("topicId") {
            Some(Value::Uuid(id)) => id.to_string(),
            _ => String::new(),
        };
        let partition = int(&record.key, "partition");
        let key = (text(&record.key, "groupId"), id, partition);
        let value = record.value.as_ref().map(|(_, value)| value);
        match (record.record_type.number, value) {
            (0, None) => {
                self.offsets.remove(&key);
            }
            (0, Some(value)) => {
                self.offsets.insert(key.clone(), stored(&key, value));
            }
            (1, Some(value)) => {
                let update = stored(&key, value);
                let Some(known) = self.offsets.get_mut(&key) else {
                    self.offsets.insert(key, update);
                    return;
                };
                known.start_offset = update.start_offset.or(known.start_offset);
                known.leader_epoch = update.leader_epoch.or(known.leader_epoch);
                known.delivery_complete_count = update.delivery_complete_count;
            }
            _ => {}
        }
    }
}

fn stored((_, topic, partition): &ShareKey, value: &Struct<'_>) -> ShareGroupOffset {
    let small = |name| Some(int(value, name)).filter(|number| *number >= 0);
    ShareGroupOffset {
        topic: topic.clone(),
        partition: *partition,
        start_offset: long(value, "startOffset").filter(|offset| *offset >= 0),
        leader_epoch: small("leaderEpoch"),
        delivery_complete_count: small("deliveryCompleteCount"),
        log_end_offset: None,
        first_unread: FirstUnread::Unknown,
    }
}
