//! The producers of partitions, which of them hold back `read_committed`, and what their transaction coordinator knows of them.
//!
//! Source: `kafka-transactions describe-producers` and `find-hanging`, which ask running brokers.

mod coordinators;

use offsetlog::format::TimestampType;
use offsetlog::{
    Error, ErrorKind, Log, LogDir, PartitionProgress, ProducerState, Result, TopicPartition,
    Transaction, TransactionState, Unread,
};
use std::path::PathBuf;

pub(crate) use coordinators::Coordinators;

/// From this `transaction.version` of a client on, each end of a transaction raises the producer's epoch.
pub(crate) const EPOCH_PER_TRANSACTION: i32 = 2;

/// How far the clocks of two brokers may be apart: what Kerberos allows them.
const CLOCK_SKEW_MAX_MS: i64 = 5 * 60 * 1000;

/// What an open transaction waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The producer has no open transaction in the partition.
    None,
    /// Its coordinator has the transaction open too: the producer ends it, or the coordinator after its timeout.
    Ongoing,
    /// Its coordinator has decided to commit, and the marker is missing here.
    Committing,
    /// Its coordinator has decided to abort, and the marker is missing here.
    Aborting,
    /// No coordinator knows of it, so nobody ends it.
    Hanging,
    /// The coordinator's partition of `__transaction_state` is not here, or cannot be read, or its record does not tell.
    Unknown,
}

impl Standing {
    /// A word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Ongoing => "ongoing",
            Self::Committing => "committing",
            Self::Aborting => "aborting",
            Self::Hanging => "hanging",
            Self::Unknown => "unknown",
        }
    }
}

/// A producer of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionProducer {
    /// The partition.
    pub partition: TopicPartition,
    /// Its directory.
    pub path: PathBuf,
    /// The producer as the partition knows it.
    pub producer: ProducerState,
    /// Timestamp of the first record of its open transaction, in milliseconds since 1970; `None` without one, or if that record was
    /// deleted.
    pub transaction_start_timestamp: Option<i64>,
    /// Its `transactional.id`, if a `__transaction_state` here has it.
    pub transactional_id: Option<String>,
    /// State of the transactional id.
    pub state: Option<TransactionState>,
    /// `transaction.timeout.ms` of the transactional id.
    pub timeout_ms: Option<i32>,
    /// What its open transaction waits for.
    pub standing: Standing,
}

/// Which producers are listed.
#[derive(Debug, Clone, Default)]
pub struct ProducersOptions {
    /// Only these topics; all if empty.
    pub topics: Vec<String>,
    /// Only partitions with these numbers; all if empty.
    pub partitions: Vec<i32>,
    /// Only producers with an open transaction.
    pub only_open: bool,
    /// Called as the work proceeds.
    pub progress: PartitionProgress,
}

/// The producers of several partitions.
#[derive(Debug, Default)]
pub struct ProducerList {
    /// By partition; with open transactions only, the oldest first.
    pub producers: Vec<PartitionProducer>,
    /// What was left out of `__transaction_state`, and why.
    pub warnings: Vec<String>,
    /// Partitions that could not be read.
    pub unread: Vec<Unread>,
}

/// Lists the producers of partitions of a log dir.
///
/// A transaction hangs if its partition has it open, and no coordinator does: only said where all partitions of `__transaction_state`
/// are in the log dir, by the cluster's metadata, and can be read. `__transaction_state` is read once, and only if there is a producer. The log dir is not changed.
///
/// # Errors
/// `Interrupted`; that of `progress`. Those of a partition are in the list.
///
/// ```no_run
/// # fn main() -> Result<(), offsetlog::Error> {
/// use offsetlog::{PartitionProgress, LogDir, OpenOptions};
/// let log_dir = LogDir::open(&["/mnt/dead"], &OpenOptions::default())?;
/// let open = offsetlog_ops::ProducersOptions { only_open: true, ..Default::default() };
/// for found in offsetlog_ops::producers(&log_dir, &open)?.producers {
///     println!("{}: {:?}", found.partition, found.standing);
/// }
/// # Ok(())
/// # }
/// ```
pub fn producers(log_dir: &LogDir, options: &ProducersOptions) -> Result<ProducerList> {
    let mut list = ProducerList::default();
    let mut coordinators = Coordinators::new(log_dir);
    let mut partitions = log_dir.partitions();
    partitions.retain(|partition| {
        is_among(&options.topics, &partition.topic)
            && is_among(&options.partitions, &partition.partition)
    });
    options.progress.for_each(partitions, |partition| {
        let found = of_partition(log_dir, &partition, options.only_open, &mut coordinators);
        match found {
            Ok(found) => list.producers.extend(found),
            Err(error) => pass_over(error, partition, &mut list.unread)?,
        }
        Ok(())
    })?;
    list.warnings = coordinators.into_warnings();
    Ok(list)
}

fn of_partition(
    log_dir: &LogDir,
    partition: &TopicPartition,
    only_open: bool,
    coordinators: &mut Coordinators<'_>,
) -> Result<Vec<PartitionProducer>> {
    let log = log_dir.log(&partition.topic, partition.partition)?;
    let found = if only_open {
        log.open_transactions()?
    } else {
        log.producers()?
    };
    let lost = lost_end(&log)?;
    let mut producers = Vec::new();
    for producer in found {
        let lost = lost.as_deref();
        producers.push(describe(&log, partition, producer, lost, coordinators)?);
    }
    Ok(producers)
}

/// That a partition lost acknowledged records at its end, and so maybe the markers of what is open in it.
pub(crate) fn lost_end(log: &Log) -> Result<Option<String>> {
    let lost = log.lost_end()?;
    Ok(lost.map(|lost| format!("{}-{}: {lost}", log.topic(), log.partition())))
}

/// What is known of a producer of a partition. `lost` is its [`lost_end`].
pub(crate) fn describe(
    log: &Log,
    partition: &TopicPartition,
    producer: ProducerState,
    lost: Option<&str>,
    coordinators: &mut Coordinators<'_>,
) -> Result<PartitionProducer> {
    let is_open = producer.transaction_first_offset.is_some();
    let are_whole = is_open && coordinators.are_whole()?;
    let known = coordinators.of(&producer)?.cloned();
    let standing = match &known {
        _ if !is_open => Standing::None,
        Some(transaction) => {
            let is_last = coordinators.torn_end(Some(transaction)).is_none();
            let standing = standing_of(transaction, is_last, log, (partition, &producer))?;
            // The record may be of a transaction behind a marker that is lost.
            if lost.is_none() || is_decided_by_epoch(transaction) {
                standing
            } else {
                Standing::Unknown
            }
        }
        None if are_whole && lost.is_none() => Standing::Hanging,
        None => Standing::Unknown,
    };
    Ok(PartitionProducer {
        path: log.path().to_path_buf(),
        partition: partition.clone(),
        producer,
        transaction_start_timestamp: start_timestamp(log, &producer)?,
        state: known.as_ref().map(|known| known.state),
        timeout_ms: known.as_ref().map(|known| known.timeout_ms),
        transactional_id: known.map(|known| known.transactional_id),
        standing,
    })
}

fn start_timestamp(log: &Log, producer: &ProducerState) -> Result<Option<i64>> {
    let Some(first) = producer.transaction_first_offset else {
        return Ok(None);
    };
    match log.get(first) {
        Err(error) if error.is_corruption() => Ok(None),
        Err(error) if matches!(error.kind(), ErrorKind::OffsetOutOfRange { .. }) => Ok(None),
        found => Ok(found?
            .map(|record| record.timestamp)
            .filter(|&timestamp| timestamp >= 0)),
    }
}

/// What a coordinator's record says of an open transaction in a partition. `is_last`: nothing shows that a newer record is lost.
fn standing_of(
    transaction: &Transaction,
    is_last: bool,
    log: &Log,
    (partition, producer): (&TopicPartition, &ProducerState),
) -> Result<Standing> {
    let is_among = |partitions: &[(String, Vec<i32>)]| {
        partitions.iter().any(|(topic, numbers)| {
            *topic == partition.topic && numbers.contains(&partition.partition)
        })
    };
    let is_listed = is_among(&transaction.partitions);
    match may_be_of(transaction, producer) {
        Some(true) => {}
        Some(false) if is_last => return Ok(Standing::Hanging),
        _ => return Ok(Standing::Unknown),
    }
    if begins_earlier(log, transaction, producer)? {
        return Ok(Standing::Unknown);
    }
    // A newer record may be of a later transaction, which only clients that raise the epoch show; of this one if its marker is not here yet.
    if !is_last && is_over(log, transaction, producer)? != Some(false) {
        return Ok(Standing::Unknown);
    }
    Ok(match transaction.state {
        // What was decided stays so; of all else a newer record may tell otherwise.
        TransactionState::PrepareCommit if is_listed => Standing::Committing,
        TransactionState::PrepareAbort | TransactionState::PrepareEpochFence if is_listed => {
            Standing::Aborting
        }
        _ if !is_last => Standing::Unknown,
        TransactionState::Ongoing if is_listed => Standing::Ongoing,
        // Such a record names no partitions any more; the one before it did. A batch that came late behind a marker can be of an earlier
        // transaction (KAFKA-14402), which the epoch tells only for clients that raise it with each.
        TransactionState::CompleteCommit | TransactionState::CompleteAbort => {
            match &transaction.ended_partitions {
                Some(ended) if !is_among(ended) => return Ok(Standing::Hanging),
                None if !raises_epochs(transaction) => return Ok(Standing::Unknown),
                _ => {}
            }
            // Its transaction is over here, if its marker is.
            match is_over(log, transaction, producer)? {
                None => Standing::Unknown,
                Some(true) => Standing::Hanging,
                Some(false) if transaction.state == TransactionState::CompleteCommit => {
                    Standing::Committing
                }
                Some(false) => Standing::Aborting,
            }
        }
        TransactionState::Unknown(_) => Standing::Unknown,
        _ => Standing::Hanging,
    })
}

/// Whether what the producer has open begins with records of an earlier transaction. Its marker is missing here, so the partition takes both
/// for one; nobody knows how the earlier one ended.
///
/// A raised epoch tells for certain. Otherwise only a time tells, and only that of a broker: a record may have any.
fn begins_earlier(log: &Log, transaction: &Transaction, producer: &ProducerState) -> Result<bool> {
    let start = log.log_start_offset()?;
    let first = producer
        .transaction_first_offset
        .map(|first| first.max(start));
    let mut is_behind = false;
    for batch in log.batches(first, None)? {
        let batch = batch?;
        let is_own = !batch.is_control && batch.producer_id == producer.producer_id;
        if is_own && !is_behind {
            is_behind = true;
            if batch.producer_epoch != producer.producer_epoch {
                return Ok(true);
            }
            if raises_epochs(transaction) {
                return Ok(false);
            }
        }
        if is_behind && (batch.is_control || batch.timestamp_type == TimestampType::LogAppend) {
            // What comes later in the log has a later time.
            let begun = transaction.start_timestamp;
            return Ok(begun.is_some_and(|begun| {
                batch.max_timestamp < begun.saturating_sub(CLOCK_SKEW_MAX_MS)
            }));
        }
    }
    Ok(false)
}

/// Whether a coordinator's record may be of the transaction that the producer has open in a partition, by producer id and epoch; `None` if
/// nobody can tell.
fn may_be_of(transaction: &Transaction, producer: &ProducerState) -> Option<bool> {
    let state = transaction.state;
    let is_commit = matches!(
        state,
        TransactionState::PrepareCommit | TransactionState::CompleteCommit
    );
    if transaction.producer_id != producer.producer_id {
        // When the epochs of a producer id are used up, the end of the transaction changes the id. What comes later has the new one.
        let is_complete = matches!(
            state,
            TransactionState::CompleteCommit | TransactionState::CompleteAbort
        );
        if !is_complete || transaction.previous_producer_id != Some(producer.producer_id) {
            return Some(false);
        }
        return Some(is_epoch_of_records(transaction, producer).unwrap_or(true));
    }
    if let Some(is_its) = is_epoch_of_records(transaction, producer) {
        return Some(is_its);
    }
    let raise = transaction.producer_epoch - i32::from(producer.producer_epoch);
    match (raise, raises_epochs(transaction)) {
        (1, true) | (0, false) => Some(true),
        // A coordinator that aborts by itself fences the producer first, and with 4.0.0 raised the epoch once more (KAFKA-19367). But that
        // can as well be another transaction, which was aborted, behind one that was committed.
        (2, true) | (1, false) if !is_commit => None,
        _ => Some(false),
    }
}

/// Whether the producer has the epoch of the transaction's records; `None` if no record tells which that is.
fn is_epoch_of_records(transaction: &Transaction, producer: &ProducerState) -> Option<bool> {
    let epoch = transaction.ongoing_epoch?;
    Some(epoch == i32::from(producer.producer_epoch))
}

/// Whether a record decides by its epoch of which transaction it is, and the coordinator waits for that one's markers.
fn is_decided_by_epoch(transaction: &Transaction) -> bool {
    raises_epochs(transaction)
        && matches!(
            transaction.state,
            TransactionState::PrepareCommit
                | TransactionState::PrepareAbort
                | TransactionState::PrepareEpochFence
        )
}

/// Whether each end of a transaction of this client raises the producer's epoch.
fn raises_epochs(transaction: &Transaction) -> bool {
    transaction
        .client_transaction_version
        .is_some_and(|version| version >= EPOCH_PER_TRANSACTION)
}

/// Whether the marker of a complete transaction stands before the producer's open one; `None` if nobody can tell.
///
/// A marker has the time of the partition's leader, and the transaction's start that of its coordinator: these clocks differ.
fn is_over(log: &Log, transaction: &Transaction, producer: &ProducerState) -> Result<Option<bool>> {
    let mut newest = None;
    for batch in log.batches(None, producer.transaction_first_offset)? {
        let batch = batch?;
        if !batch.is_control || batch.producer_id != producer.producer_id {
            continue;
        }
        if raises_epochs(transaction) {
            // Its marker has the raised epoch.
            if batch.producer_epoch > producer.producer_epoch {
                return Ok(Some(true));
            }
            continue;
        }
        newest = newest.max(Some(batch.max_timestamp));
    }
    let Some(newest) = newest else {
        // Retention, or compaction, may have removed it. A raised epoch tells by itself.
        let is_whole = raises_epochs(transaction)
            || (log.log_start_offset()? == 0 && log.cleaner_offset()?.is_none());
        return Ok(is_whole.then_some(false));
    };
    let Some(start) = transaction.start_timestamp else {
        return Ok(None);
    };
    Ok(if newest > start.saturating_add(CLOCK_SKEW_MAX_MS) {
        Some(true)
    } else if newest < start.saturating_sub(CLOCK_SKEW_MAX_MS) {
        Some(false)
    } else {
        None
    })
}

/// Whether `one` is chosen; all are, if nobody chose any.
pub(crate) fn is_among<T: PartialEq>(chosen: &[T], one: &T) -> bool {
    chosen.is_empty() || chosen.contains(one)
}

/// Records the failure of one partition. Returns what ends work on all of them.
pub(crate) fn pass_over(
    error: Error,
    partition: TopicPartition,
    unread: &mut Vec<Unread>,
) -> Result<()> {
    if error.is_of_process() {
        return Err(error);
    }
    unread.push(Unread { partition, error });
    Ok(())
}
