//! How far groups are behind: the end of each partition's log, and the first record that each offset leaves unread.

use super::FirstUnread;
use crate::error::{ErrorKind, Result};
use crate::log::Log;
use crate::log_dir::{LogDir, TopicPartition, Unread, pass_over};
use crate::step_progress::Steps;
use offsetlog_format::Uuid;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What is asked of a log: the offsets from which groups read on.
pub(super) type Wanted = BTreeMap<TopicPartition, BTreeSet<i64>>;

/// What the logs say.
#[derive(Default)]
pub(super) struct Behind(HashMap<TopicPartition, (Option<i64>, HashMap<i64, FirstUnread>)>);

impl Behind {
    /// The log end offset of a partition, and the first record at or after an offset that was asked for.
    pub(super) fn of(&self, partition: &TopicPartition, offset: i64) -> (Option<i64>, FirstUnread) {
        let Some((end, first)) = self.0.get(partition) else {
            return (None, FirstUnread::Unknown);
        };
        let first = first.get(&offset).copied();
        (*end, first.unwrap_or(FirstUnread::Unknown))
    }
}

impl LogDir {
    /// Opens each partition once, and looks each offset up once. `partitions` are those of these log dirs, in order. `ids` are those that
    /// topics have by the metadata: the log of a topic with another id says nothing.
    pub(super) fn behind(
        &self,
        partitions: &[TopicPartition],
        ids: &HashMap<String, Uuid>,
        wanted: Wanted,
        steps: &mut Steps<'_, TopicPartition>,
        warnings: &mut Vec<String>,
        unread: &mut Vec<Unread>,
    ) -> Result<Behind> {
        let mut found = HashMap::new();
        let mut wanted = wanted;
        wanted.retain(|partition, _| partitions.binary_search(partition).is_ok());
        steps.add(wanted.len());
        for (partition, offsets) in wanted {
            steps.at(&partition)?;
            let log = match self.log(&partition.topic, partition.partition) {
                Ok(log) => log,
                Err(error) => {
                    pass_over(error, &partition, unread)?;
                    continue;
                }
            };
            if let Some(own) = ids.get(&partition.topic) {
                match log.topic_id() {
                    Ok(Some(other)) if other != *own => {
                        warnings.push(format!(
                            "{partition}: its directory is of another topic of this name, with the topic id {other}; by the metadata the \
                             topic has {own}, so no lag is known"
                        ));
                        continue;
                    }
                    Ok(_) => {}
                    Err(error) => {
                        pass_over(error, &partition, unread)?;
                        continue;
                    }
                }
            }
            let end = match log.log_end_offset() {
                Ok(end) => Some(end),
                Err(error) => pass_over(error, &partition, unread).map(|()| None)?,
            };
            if end.is_some()
                && let Ok(Some((end, high_watermark))) = log.missing_end()
            {
                warnings.push(format!(
                    "{partition}: it ends at offset {end}, and the high watermark of its log dir is {high_watermark}: records are missing, so \
                     no lag is known"
                ));
                continue;
            }
            let mut first = HashMap::new();
            for offset in offsets {
                let unread = first_unread(&log, &partition, offset, end, warnings)?;
                first.insert(offset, unread);
            }
            found.insert(partition, (end, first));
        }
        Ok(Behind(found))
    }
}

/// If the end is unknown, the damage that hides it was reported: an offset that it hides too needs no second report.
fn first_unread(
    log: &Log,
    partition: &TopicPartition,
    offset: i64,
    end: Option<i64>,
    warnings: &mut Vec<String>,
) -> Result<FirstUnread> {
    if end.is_some_and(|end| offset >= end) {
        return Ok(FirstUnread::Nothing);
    }
    match log.first_record(offset) {
        Ok(Some(found)) => Ok(FirstUnread::Record {
            offset: found.offset,
            timestamp: Some(found.timestamp).filter(|timestamp| *timestamp >= 0),
        }),
        Ok(None) if end.is_some() => Ok(FirstUnread::Nothing),
        Ok(None) => Ok(FirstUnread::Unknown),
        Err(error) => {
            if error.is_of_process() || matches!(error.kind(), ErrorKind::Closed) {
                return Err(error);
            }
            if end.is_some() {
                warnings.push(format!(
                    "{partition}: the first record at or after offset {offset} cannot be read, so its time is unknown: {error}"
                ));
            }
            Ok(FirstUnread::Unknown)
        }
    }
}
