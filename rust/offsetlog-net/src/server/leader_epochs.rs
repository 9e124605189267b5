//! `OffsetForLeaderEpoch`: where a leader epoch ends, by which a client finds out whether what it has read is still in the log.

use super::broker::Broker;
use super::catalog::Slot;
use super::partition::code_of;
use super::request::{int, structs, text};
use crate::error_code::ErrorCode;
use offsetlog::format::message::Struct;

impl Broker {
    pub(super) fn leader_epochs(&self, request: &Struct<'_>) -> Struct<'static> {
        let catalog = self.catalog();
        let is_replica = int(request, "replicaId", -1) >= 0;
        let topics: Vec<Struct<'static>> = structs(request, "topics")
            .map(|each| {
                let name = text(each, "topic").unwrap_or_default();
                let topic = catalog.topic(name);
                let partitions: Vec<Struct<'static>> = structs(each, "partitions")
                    .map(|each| {
                        let number = int(each, "partition", -1);
                        let slot = topic.and_then(|topic| topic.slots.get(&number));
                        let answer = Struct::new().with("partition", number);
                        match end_of(slot, each, is_replica) {
                            Ok((epoch, end)) => {
                                answer.with("leaderEpoch", epoch).with("endOffset", end)
                            }
                            Err(code) => answer.with("errorCode", code),
                        }
                    })
                    .collect();
                Struct::new()
                    .with("topic", name.to_owned())
                    .with("partitions", partitions)
            })
            .collect();
        Struct::new().with("topics", topics)
    }
}

fn end_of(
    slot: Option<&Slot>,
    asked: &Struct<'_>,
    is_replica: bool,
) -> Result<(i32, i64), ErrorCode> {
    let slot = slot.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let partition = slot
        .partition()
        .filter(|_| !is_replica)
        .ok_or(ErrorCode::NotLeaderOrFollower)?;
    let bounds = partition.bounds().map_err(|error| code_of(&error))?;
    bounds.fence(int(asked, "currentLeaderEpoch", -1))?;
    bounds.end_of_epoch(int(asked, "leaderEpoch", -1))
}
