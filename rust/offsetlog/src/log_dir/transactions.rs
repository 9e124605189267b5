//! Reads transactional ids from `__transaction_state` (FORMAT.md «Internal topics»). The last record of each id counts.

use super::whole_logs::{Doubts, check_end};
use super::{LogDir, Unread, pass_over};
use crate::error::Result;
use crate::log::Log;
use crate::log::replay::{LeftOut, each_record, int, long, numbers, structs, text};
use crate::step_progress::{PartitionProgress, Steps};
use offsetlog_format::internal_topic::{CoordinatorTopic, KnownRecord};
use offsetlog_format::message::{Struct, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The topic in which Kafka stores its transactions.
const TOPIC: &str = "__transaction_state";

/// The state of a transactional id, with Kafka's names and numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionState {
    /// 0: it has a producer id but no transaction yet.
    Empty,
    /// 1: a transaction is open.
    Ongoing,
    /// 2: it will be committed; its markers are being written.
    PrepareCommit,
    /// 3: it will be aborted; its markers are being written.
    PrepareAbort,
    /// 4: the last transaction was committed.
    CompleteCommit,
    /// 5: the last transaction was aborted.
    CompleteAbort,
    /// 6: it expired and is being removed.
    Dead,
    /// 7: its producer is being fenced.
    PrepareEpochFence,
    /// A number that Kafka 4.3 does not define.
    Unknown(i32),
}

impl TransactionState {
    const fn from_number(number: i32) -> Self {
        match number {
            0 => Self::Empty,
            1 => Self::Ongoing,
            2 => Self::PrepareCommit,
            3 => Self::PrepareAbort,
            4 => Self::CompleteCommit,
            5 => Self::CompleteAbort,
            6 => Self::Dead,
            7 => Self::PrepareEpochFence,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for TransactionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(number) => write!(f, "Unknown({number})"),
            known => write!(f, "{known:?}"),
        }
    }
}

/// A transactional id and its open or last transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// The producer's `transactional.id`. Here and below, text that is not UTF-8 has replacement characters.
    pub transactional_id: String,
    /// The producer id.
    pub producer_id: i64,
    /// The previous producer id, if the record has it (version 1).
    pub previous_producer_id: Option<i64>,
    /// The producer id after the end of the transaction, if the record has it (version 1).
    pub next_producer_id: Option<i64>,
    /// The producer epoch.
    pub producer_epoch: i32,
    /// The producer epoch after the end of the transaction, if the record has it (version 1).
    pub next_producer_epoch: Option<i32>,
    /// State of the transaction.
    pub state: TransactionState,
    /// `transaction.timeout.ms` of the producer.
    pub timeout_ms: i32,
    /// The partitions of the transaction, by topic; empty once it is complete.
    pub partitions: Vec<(String, Vec<i32>)>,
    /// Of a complete transaction: the partitions that the record before named, which prepared its end. `None` if compaction has removed
    /// that record, and while a transaction is not complete.
    pub ended_partitions: Option<Vec<(String, Vec<i32>)>>,
    /// The producer epoch of the transaction's records: that of the record that said it was ongoing. `None` if compaction has removed that
    /// record, and before the first transaction.
    pub ongoing_epoch: Option<i32>,
    /// Start of the transaction, in ms since 1970; `None` before the first one.
    pub start_timestamp: Option<i64>,
    /// When the coordinator last changed the record, in ms since 1970.
    pub last_update_timestamp: i64,
    /// Kafka's `transaction.version` of the client, if the record has it: 2 with KIP-890.
    pub client_transaction_version: Option<i32>,
    /// Partition of `__transaction_state` that holds the record.
    pub partition: i32,
    /// Offset of the record.
    pub offset: i64,
}

/// What coordinators have stored in log dirs.
#[derive(Debug)]
pub struct TransactionList {
    /// The transactional ids, by name.
    pub transactions: Vec<Transaction>,
    /// What was skipped, and what may be missing.
    pub warnings: Vec<String>,
    /// Partitions of the topic that could not be read completely.
    pub unread: Vec<Unread>,
    /// Of partitions whose last record may be missing, what is said of it: bytes behind the last batch that are none, or another replica that
    /// is longer and damaged.
    pub torn_ends: BTreeMap<i32, String>,
    /// Whether the beginning of a partition is missing.
    pub starts_late: bool,
    /// Whether nothing shows that records are missing in the partitions that are here.
    pub is_whole: bool,
}

impl Default for TransactionList {
    fn default() -> Self {
        Self {
            transactions: Vec::new(),
            warnings: Vec::new(),
            unread: Vec::new(),
            torn_ends: BTreeMap::new(),
            starts_late: false,
            is_whole: true,
        }
    }
}

impl LogDir {
    /// Returns the transactional ids that their coordinators stored in these log dirs, by name; warnings about what was
    /// skipped; and the partitions of the topic that could not be read completely. Such a partition gives no ids at all,
    /// because records after the damage may contradict those before it. Reads `__transaction_state` completely and keeps one
    /// value per key in memory. Records of unknown types or without a key are skipped with a warning; coordinators skip the
    /// former too.
    ///
    /// # Errors
    /// `Interrupted`. Per partition, those of a scan, `Corrupt` kinds for a record that no coordinator wrote, and
    /// `UnsupportedVersion` for one newer than Kafka 4.3.
    pub fn transactions(&self) -> Result<(Vec<Transaction>, Vec<String>, Vec<Unread>)> {
        let list = self.transaction_list(&PartitionProgress::default())?;
        Ok((list.transactions, list.warnings, list.unread))
    }

    /// The same, and calls `progress` before each partition that is read.
    ///
    /// # Errors
    /// The same; that of `progress`.
    pub fn transaction_list(&self, progress: &PartitionProgress) -> Result<TransactionList> {
        let mut list = TransactionList::default();
        let mut partitions = self.partitions();
        partitions.retain(|place| place.topic == TOPIC);
        let mut steps = Steps::new(progress);
        steps.add(partitions.len());
        for place in &partitions {
            steps.at(place)?;
            let mut left_out = LeftOut::default();
            let replayed = self.log(&place.topic, place.partition).and_then(|log| {
                let found = replay(&log, place.partition, &mut left_out)?;
                check_end(&log)?;
                Ok((found, Doubts::of(&log)?))
            });
            match replayed {
                Ok((transactions, doubts)) => {
                    list.transactions.extend(transactions.into_values());
                    list.starts_late |= doubts.late_start.is_some();
                    let outreached = self.outreached(place);
                    if let Some(torn) = doubts.torn_end.as_ref().or(outreached.as_ref()) {
                        list.torn_ends.insert(place.partition, torn.clone());
                    }
                    list.warnings.extend(doubts.warnings().chain(outreached));
                }
                Err(error) => pass_over(error, place, &mut list.unread)?,
            }
            let before = list.warnings.len();
            list.warnings.extend(left_out.warnings(&place.to_string()));
            list.is_whole &= list.warnings.len() == before;
        }
        list.is_whole &= list.unread.is_empty() && list.torn_ends.is_empty() && !list.starts_late;
        steps.end()?;
        // An id belongs to one partition. If the topic was assembled from two clusters, two may have it; then both are
        // returned.
        list.transactions
            .sort_by(|one, other| one.transactional_id.cmp(&other.transactional_id));
        Ok(list)
    }
}

fn replay(
    log: &Log,
    partition: i32,
    left_out: &mut LeftOut,
) -> Result<BTreeMap<Vec<u8>, Transaction>> {
    let mut transactions = BTreeMap::new();
    each_record(log, None, |header, record| {
        if header.attributes.is_control() {
            return Ok(());
        }
        let known = left_out.known(CoordinatorTopic::TransactionState, record)?;
        let Some(KnownRecord { key, value, .. }) = known else {
            return Ok(());
        };
        let id = key.get("transactionalId").and_then(Value::as_bytes);
        let id = id.unwrap_or_default().to_vec();
        match value {
            None => transactions.remove(&id),
            Some((_, value)) => {
                let name = text(&key, "transactionalId");
                let mut found = transaction(name, &value, (partition, record.offset));
                let before: Option<&Transaction> = transactions.get(&id);
                found.ended_partitions =
                    before.and_then(|before| partitions_of_end(before, &found));
                found.ongoing_epoch = ongoing_epoch(before, &found);
                transactions.insert(id, found)
            }
        };
        Ok(())
    })?;
    Ok(transactions)
}

/// The producer epoch of a transaction's records, as the records before tell it.
fn ongoing_epoch(before: Option<&Transaction>, found: &Transaction) -> Option<i32> {
    use TransactionState::{
        CompleteAbort, CompleteCommit, Ongoing, PrepareAbort, PrepareCommit, PrepareEpochFence,
    };
    if found.state == Ongoing {
        return Some(found.producer_epoch);
    }
    let before = before.filter(|before| {
        before.producer_id == found.producer_id
            || found.previous_producer_id == Some(before.producer_id)
    })?;
    let is_next = match (before.state, found.state) {
        (Ongoing, PrepareCommit | PrepareAbort | PrepareEpochFence)
        | (PrepareEpochFence, PrepareAbort)
        | (PrepareCommit, CompleteCommit)
        | (PrepareAbort | PrepareEpochFence, CompleteAbort) => true,
        // Written again, for example with another timeout.
        (one, other) => one == other && before.start_timestamp == found.start_timestamp,
    };
    before.ongoing_epoch.filter(|_| is_next)
}

/// The partitions of a transaction that `complete` ends, as the record before it named them.
fn partitions_of_end(
    before: &Transaction,
    complete: &Transaction,
) -> Option<Vec<(String, Vec<i32>)>> {
    use TransactionState::{
        CompleteAbort, CompleteCommit, PrepareAbort, PrepareCommit, PrepareEpochFence,
    };
    let is_its_own = before.producer_id == complete.producer_id
        || complete.previous_producer_id == Some(before.producer_id);
    match (before.state, complete.state) {
        (PrepareCommit, CompleteCommit) | (PrepareAbort | PrepareEpochFence, CompleteAbort)
            if is_its_own =>
        {
            Some(before.partitions.clone())
        }
        // Written again, for example with another timeout.
        (CompleteCommit, CompleteCommit) | (CompleteAbort, CompleteAbort)
            if is_its_own && before.start_timestamp == complete.start_timestamp =>
        {
            before.ended_partitions.clone()
        }
        _ => None,
    }
}

fn transaction(
    transactional_id: String,
    value: &Struct<'_>,
    (partition, offset): (i32, i64),
) -> Transaction {
    let small = |name| Some(int(value, name)).filter(|number| *number >= 0);
    let mut partitions: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for each in structs(value, "transactionPartitions") {
        let of_topic = partitions.entry(text(each, "topic")).or_default();
        of_topic.extend(numbers(each, "partitionIds").unwrap_or_default());
        of_topic.sort_unstable();
    }
    Transaction {
        transactional_id,
        producer_id: long(value, "producerId").unwrap_or(-1),
        previous_producer_id: long(value, "previousProducerId"),
        next_producer_id: long(value, "nextProducerId"),
        producer_epoch: int(value, "producerEpoch"),
        next_producer_epoch: small("nextProducerEpoch"),
        state: TransactionState::from_number(int(value, "transactionStatus")),
        timeout_ms: int(value, "transactionTimeoutMs"),
        partitions: partitions.into_iter().collect(),
        ended_partitions: None,
        ongoing_epoch: None,
        start_timestamp: long(value, "transactionStartTimestampMs").filter(|time| *time >= 0),
        last_update_timestamp: long(value, "transactionLastUpdateTimestampMs").unwrap_or(-1),
        client_transaction_version: small("clientTransactionVersion"),
        partition,
        offset,
    }
}
