//! What is served, as a value: for a screen, for JSON.

use super::broker::Broker;
use super::catalog::{Slot, Topic};
use super::partition::Partition;
use offsetlog::format::Uuid;
use offsetlog_ops::TransactionEnd;
use std::path::PathBuf;

/// What a server serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeReport {
    /// The cluster id that clients see.
    pub cluster_id: String,
    /// The broker id that clients see.
    pub node_id: i32,
    /// Topics by name.
    pub topics: Vec<TopicReport>,
    /// What was left out, and what could not be read.
    pub warnings: Vec<String>,
}

/// A topic that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicReport {
    /// Its name.
    pub name: String,
    /// Its id; `None` if no directory and no metadata has one: then clients fetch by name.
    pub topic_id: Option<Uuid>,
    /// Whether it is one of Kafka's own.
    pub is_internal: bool,
    /// Its partitions, by number; missing ones too.
    pub partitions: Vec<PartitionReport>,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionReport {
    /// Its number.
    pub partition: i32,
    /// The directory that is served; `None` for a missing partition.
    pub path: Option<PathBuf>,
    /// Lowest offset that clients can read; `None` if the partition is offline.
    pub log_start_offset: Option<i64>,
    /// End of what clients can read, exclusive.
    pub log_end_offset: Option<i64>,
    /// End of what `read_committed` can read, exclusive; `None` if damage hides it.
    pub last_stable_offset: Option<i64>,
    /// Leader epoch that clients see; -1 for none.
    pub leader_epoch: i32,
    /// The other replicas, and why they are not served.
    pub others: Vec<ReplicaReport>,
    /// Why the partition is offline, or what is damaged.
    pub problem: Option<String>,
    /// Transactions without a marker.
    pub open_transactions: Vec<OpenTransactionReport>,
}

/// A replica that is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaReport {
    /// Its directory.
    pub path: PathBuf,
    /// What it lacks.
    pub reason: String,
}

/// A transaction without a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTransactionReport {
    /// The producer id.
    pub producer_id: i64,
    /// The producer's transactional id, if `__transaction_state` is here and has it.
    pub transactional_id: Option<String>,
    /// Its first offset.
    pub first_offset: i64,
    /// What it waits for, a word of [`offsetlog_ops::Standing`].
    pub standing: &'static str,
    /// Whether it is shown as committed; `None` if `read_committed` waits for it.
    pub commit: Option<bool>,
}

impl Broker {
    /// Says what is served now. Opens each partition's active segment, and reads the headers behind its newest producer snapshot.
    #[must_use]
    pub fn report(&self) -> ServeReport {
        let catalog = self.catalog();
        ServeReport {
            cluster_id: self.cluster_id.clone(),
            node_id: self.node_id,
            topics: catalog
                .topics
                .values()
                .map(|topic| self.topic_report(topic))
                .collect(),
            warnings: self.warnings.clone(),
        }
    }

    fn topic_report(&self, topic: &Topic) -> TopicReport {
        let slots = topic.slots.iter();
        TopicReport {
            name: topic.name.clone(),
            topic_id: (!topic.id.is_zero()).then_some(topic.id),
            is_internal: topic.is_internal,
            partitions: slots
                .map(|(number, slot)| match slot {
                    Slot::Here {
                        partition, others, ..
                    } => self.partition_report(partition, others),
                    Slot::Missing => offline(*number, None, "no log dir has it"),
                    Slot::Unreadable { path, reason, .. } => {
                        offline(*number, Some(path.clone()), reason)
                    }
                })
                .collect(),
        }
    }

    fn partition_report(
        &self,
        partition: &Partition,
        others: &[(PathBuf, String)],
    ) -> PartitionReport {
        let bounds = match partition.bounds() {
            Ok(bounds) => bounds,
            Err(error) => {
                let path = partition.log.path().to_path_buf();
                return offline(partition.number, Some(path), &error.to_string());
            }
        };
        let mut problem = bounds.is_damaged.then(|| {
            format!(
                "damage at offset {} hides what follows: fetches there fail",
                bounds.end
            )
        });
        if let Some(missing) = bounds.missing_start() {
            problem.get_or_insert(missing);
        } else if let Ok(Some((start, first))) = partition.log.missing_start() {
            let missing = format!(
                "its broker noted the log start {start}, and its first segment begins at {first}: the broker had just deleted what is between, \
                 or a segment is missing"
            );
            problem.get_or_insert(missing);
        }
        if let Some(offset) = partition.first_damage() {
            problem.get_or_insert_with(|| format!("damage at offset {offset}: fetches there fail"));
        }
        let mut note = |error: offsetlog::Error| {
            problem.get_or_insert(error.to_string());
        };
        let stable = self.last_stable_offset(partition, &bounds);
        let open = self.open_transactions_of(partition);
        PartitionReport {
            partition: partition.number,
            path: Some(partition.log.path().to_path_buf()),
            log_start_offset: Some(bounds.start),
            log_end_offset: Some(bounds.end),
            last_stable_offset: stable.map_err(&mut note).ok(),
            leader_epoch: bounds.leader_epoch,
            others: others
                .iter()
                .map(|(path, reason)| ReplicaReport {
                    path: path.clone(),
                    reason: reason.clone(),
                })
                .collect(),
            open_transactions: open
                .map_err(&mut note)
                .unwrap_or_default()
                .into_iter()
                .map(open_transaction)
                .collect(),
            problem,
        }
    }
}

fn open_transaction(end: TransactionEnd) -> OpenTransactionReport {
    let TransactionEnd { producer, commit } = end;
    OpenTransactionReport {
        producer_id: producer.producer.producer_id,
        transactional_id: producer.transactional_id,
        first_offset: producer.producer.transaction_first_offset.unwrap_or(-1),
        standing: producer.standing.name(),
        commit,
    }
}

fn offline(partition: i32, path: Option<PathBuf>, reason: &str) -> PartitionReport {
    PartitionReport {
        partition,
        path,
        leader_epoch: -1,
        problem: Some(reason.to_owned()),
        ..PartitionReport::default()
    }
}
