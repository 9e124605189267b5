//! `ListOffsets`: the first and last offsets of partitions, and offsets by time.

use super::broker::{Asked, Broker};
use super::catalog::Slot;
use super::partition::{Bounds, Partition, code_of};
use super::request::{int, long, structs, text};
use crate::error_code::ErrorCode;
use offsetlog::format::message::Struct;
use offsetlog::{Isolation, Result};
use std::collections::{HashMap, HashSet};

/// Kafka's names for what is not a time: `ListOffsetsRequest.LATEST_TIMESTAMP` and so on.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

/// The timestamp, the offset and the leader epoch of an answer; -1 for each that does not exist.
type Found = (i64, i64, i32);

impl Broker {
    pub(super) fn list_offsets(&self, asked: &Asked<'_>, request: &Struct<'_>) -> Struct<'static> {
        let catalog = self.catalog();
        let isolation = match int(request, "isolationLevel", 0) {
            1 => Isolation::ReadCommitted,
            _ => Isolation::ReadUncommitted,
        };
        let replica_id = int(request, "replicaId", -1);
        let mut counts: HashMap<(&str, i32), u32> = HashMap::new();
        for topic in structs(request, "topics") {
            for each in structs(topic, "partitions") {
                let name = text(topic, "name").unwrap_or_default();
                let number = int(each, "partitionIndex", -1);
                *counts.entry((name, number)).or_default() += 1;
            }
        }
        let mut refused = HashSet::new();
        let topics: Vec<Struct<'static>> = structs(request, "topics")
            .map(|each| {
                let name = text(each, "name").unwrap_or_default();
                let topic = catalog.topic(name);
                let partitions: Vec<Struct<'static>> = structs(each, "partitions")
                    .filter_map(|each| {
                        let number = int(each, "partitionIndex", -1);
                        let timestamp = long(each, "timestamp", LATEST);
                        let slot = topic.and_then(|topic| topic.slots.get(&number));
                        let is_repeated = counts.get(&(name, number)).is_some_and(|&n| n > 1);
                        // As in Kafka, it is refused once.
                        if is_repeated && !refused.insert((name, number)) {
                            return None;
                        }
                        let found = if is_repeated {
                            Err(ErrorCode::InvalidRequest)
                        } else if !is_supported(timestamp, asked.version) {
                            Err(ErrorCode::UnsupportedVersion)
                        } else {
                            let current = int(each, "currentLeaderEpoch", -1);
                            self.offset_of(slot, (timestamp, current), replica_id, isolation)
                        };
                        let answer = Struct::new().with("partitionIndex", number);
                        Some(match found {
                            Err(code) => answer.with("errorCode", code),
                            Ok((timestamp, offset, epoch)) => {
                                let answer =
                                    answer.with("timestamp", timestamp).with("offset", offset);
                                if asked.version >= 4 {
                                    answer.with("leaderEpoch", epoch)
                                } else {
                                    answer
                                }
                            }
                        })
                    })
                    .collect();
                Struct::new()
                    .with("name", name.to_owned())
                    .with("partitions", partitions)
            })
            .collect();
        Struct::new().with("topics", topics)
    }

    fn offset_of(
        &self,
        slot: Option<&Slot>,
        (timestamp, current_epoch): (i64, i32),
        replica_id: i32,
        isolation: Isolation,
    ) -> std::result::Result<Found, ErrorCode> {
        let slot = slot.ok_or(ErrorCode::UnknownTopicOrPartition)?;
        // A debug consumer (-2) is answered as any; another broker is no replica of this one.
        let partition = slot
            .partition()
            .filter(|_| replica_id < 0)
            .ok_or(ErrorCode::NotLeaderOrFollower)?;
        let bounds = partition.bounds().map_err(|error| code_of(&error))?;
        bounds.fence(current_epoch)?;
        let found = self
            .look_up(partition, &bounds, timestamp, isolation)
            .map_err(|error| code_of(&error))?;
        // Whoever reads up to such an answer would take a part of the log for all of it, and no fetch would tell of the damage.
        let depends_on_end = match timestamp {
            LATEST | MAX_TIMESTAMP => true,
            _ => timestamp >= 0 && found.1 < 0,
        };
        // The first record that is here is late enough: one that is not may be, too.
        if timestamp >= 0 && found.1 == bounds.first_here && bounds.start < bounds.first_here {
            return Err(ErrorCode::CorruptMessage);
        }
        if depends_on_end && bounds.is_end_hidden() {
            return Err(ErrorCode::CorruptMessage);
        }
        Ok(found)
    }

    fn look_up(
        &self,
        partition: &Partition,
        bounds: &Bounds,
        timestamp: i64,
        isolation: Isolation,
    ) -> Result<Found> {
        let last = |bounds: &Bounds| match isolation {
            Isolation::ReadUncommitted => Ok(bounds.end),
            Isolation::ReadCommitted => self.last_stable_offset(partition, bounds),
        };
        match timestamp {
            LATEST => Ok((-1, last(bounds)?, bounds.leader_epoch)),
            EARLIEST => {
                let epochs = bounds.leader_epochs();
                let first = epochs
                    .entries()
                    .first()
                    .filter(|first| first.start_offset <= bounds.start);
                Ok((-1, bounds.start, first.map_or(-1, |first| first.epoch)))
            }
            EARLIEST_LOCAL => {
                let epochs = bounds.leader_epochs();
                let mut known = epochs.entries().iter().rev();
                let floor = known.find(|each| each.start_offset <= bounds.first_here);
                Ok((-1, bounds.first_here, floor.map_or(-1, |floor| floor.epoch)))
            }
            LATEST_TIERED => Ok((-1, -1, -1)),
            MAX_TIMESTAMP => match max_timestamp(partition)? {
                Some(timestamp) => by_time(partition, last(bounds)?, timestamp),
                None => Ok((-1, -1, -1)),
            },
            _ => by_time(partition, last(bounds)?, timestamp),
        }
    }
}

fn by_time(partition: &Partition, end: i64, timestamp: i64) -> Result<Found> {
    let found = partition
        .log
        .offset_for_timestamp(timestamp, Isolation::ReadUncommitted)?
        .filter(|found| found.offset < end);
    Ok(found.map_or((-1, -1, -1), |found| {
        (
            found.timestamp,
            found.offset,
            found.leader_epoch.unwrap_or(-1),
        )
    }))
}

/// The greatest timestamp of the log.
fn max_timestamp(partition: &Partition) -> Result<Option<i64>> {
    let mut greatest = None;
    for segment in partition.log.segments()? {
        let age = partition.log.segment_age(segment.base_offset)?;
        let of_record = age.filter(|age| age.is_of_a_record);
        greatest = greatest.max(of_record.map(|age| age.newest_timestamp));
    }
    Ok(greatest)
}

/// Whether this version of the request has this special timestamp.
const fn is_supported(timestamp: i64, version: i16) -> bool {
    match timestamp {
        LATEST | EARLIEST => true,
        MAX_TIMESTAMP => version >= 7,
        EARLIEST_LOCAL => version >= 8,
        LATEST_TIERED => version >= 9,
        _ => timestamp >= 0,
    }
}
