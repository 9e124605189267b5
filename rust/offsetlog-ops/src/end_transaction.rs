//! Ends an abandoned transaction: appends the marker that its coordinator has decided on, or did not get to decide.
//!
//! The coordinator's record in `__transaction_state` decides. A commit that it wants was acknowledged to the producer, and readers of other
//! partitions may have it: so it is never aborted, and an abort that it wants is never committed.

use crate::producers::{
    Coordinators, EPOCH_PER_TRANSACTION, PartitionProducer, Standing, describe, lost_end,
};
use offsetlog::{
    AppendOptions, Error, Log, LogDir, LogDirOptions, MarkerOptions, OpenOptions,
    PartitionProgress, ProducerState, Result, TopicPartition,
};
use std::path::Path;

const STATE_TOPIC: &str = "__transaction_state";

/// How a transaction is to be ended.
#[derive(Debug, Clone, Default)]
pub struct EndTransactionOptions {
    /// `Some(true)` commits, `Some(false)` aborts, where the coordinator has not decided; `None` does what it decided.
    pub commit: Option<bool>,
    /// Ends the transaction although no coordinator's record tells how.
    pub without_state: bool,
    /// Appends nothing.
    pub dry_run: bool,
    /// Called before each partition of `__transaction_state` that is read, and again for all of them under the partition's lock. Its error ends
    /// the work before the marker is appended.
    pub progress: PartitionProgress,
}

/// A transaction that was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTransaction {
    /// The producer, its partition and what its coordinator knew, before the end.
    pub producer: PartitionProducer,
    /// Whether the transaction was committed; otherwise it was aborted.
    pub committed: bool,
    /// Offset of the marker; `None` for a dry run.
    pub marker_offset: Option<i64>,
    /// First offset that `read_committed` does not read yet, before.
    pub last_stable_offset_before: i64,
    /// The same afterwards; unchanged in a dry run.
    pub last_stable_offset: i64,
    /// What is odd about the coordinators' records, and which acknowledged offsets the partition lost at its end.
    pub warnings: Vec<String>,
    /// That the partition ends below its high watermark, before.
    lost_end: Option<String>,
}

/// Ends the open transaction of a producer in one partition, with a marker that is on the disk when this returns. `paths` are the log
/// dirs of a stopped broker, opened for appending with `how` once all is decided.
///
/// A transaction of which the coordinator has decided is ended as decided. One that is ongoing there may be aborted. Where no record of
/// a coordinator tells, both need `without_state`: nobody knows then whether it was committed elsewhere.
///
/// # Errors
/// `Argument`: no such open transaction, or an end that the coordinator's record forbids; the text says what may be done. `Cluster` if
/// other brokers have replicas of the partition, unless `how` has `single_replica`: that is found when the partition was opened for
/// appending, which may have recovered it. Those of an append. The others change nothing.
pub fn end_transaction<P: AsRef<Path>>(
    paths: &[P],
    partition: &TopicPartition,
    producer_id: i64,
    options: &EndTransactionOptions,
    (open, how): (&OpenOptions, &LogDirOptions),
) -> Result<EndedTransaction> {
    let (mut ended, _) = plan(paths, partition, producer_id, options, (open, how), None)?;
    if options.dry_run {
        return Ok(ended);
    }
    let log_dir = LogDir::open_for_append(paths, open, how)?;
    let appended = append(&log_dir, paths, &ended, options, (open, how));
    let closed = log_dir.close();
    (ended.marker_offset, ended.last_stable_offset) = appended?;
    match closed {
        // The marker is on the disk. Without room for the mark of a clean end the next opening recovers.
        Err(error) if !error.is_out_of_room() => Err(error),
        _ => Ok(ended),
    }
}

/// Reads what the partition and the coordinators say, and decides. `planned` is what was decided before the partition was opened for
/// writing: that lowers the high watermark, the only trace of a lost end.
fn plan<P: AsRef<Path>>(
    paths: &[P],
    partition: &TopicPartition,
    producer_id: i64,
    options: &EndTransactionOptions,
    (open, how): (&OpenOptions, &LogDirOptions),
    planned: Option<&EndedTransaction>,
) -> Result<(EndedTransaction, MarkerOptions)> {
    let log_dir = LogDir::open_with_metadata(paths, open, how.metadata.as_deref())?;
    let log = log_dir.log(&partition.topic, partition.partition)?;
    let found = log.open_transactions()?;
    let Some(&producer) = found.iter().find(|open| open.producer_id == producer_id) else {
        let ids: Vec<String> = found
            .iter()
            .map(|open| open.producer_id.to_string())
            .collect();
        let others = if ids.is_empty() {
            "nobody has one there".to_owned()
        } else {
            format!("those that have one: {}", ids.join(", "))
        };
        let reason =
            format!("producer {producer_id} has no open transaction in {partition}; {others}");
        return Err(Error::argument("producer_id", reason));
    };
    let mut coordinators = Coordinators::told(&log_dir, options.progress.clone());
    let lost = match planned {
        Some(planned) => planned.lost_end.clone(),
        None => lost_end(&log)?,
    };
    let found = describe(
        &log,
        partition,
        producer,
        lost.as_deref(),
        &mut coordinators,
    )?;
    let commit = decide(&found, options, lost.as_deref(), &coordinators)?;
    let known = coordinators.of(&producer)?;
    let version = known.and_then(|known| known.client_transaction_version);
    let transaction_version = i16::try_from(version.unwrap_or(0)).unwrap_or(0).clamp(0, 2);
    // A coordinator that raises the epoch with each transaction writes the marker with the raised one.
    let raised = i16::from(i32::from(transaction_version) >= EPOCH_PER_TRANSACTION);
    let raised = producer.producer_epoch.saturating_add(raised);
    let decided = known
        .filter(|known| known.producer_id == producer_id && found.standing != Standing::Hanging)
        .and_then(|known| i16::try_from(known.producer_epoch).ok());
    let coordinator_epoch = match known {
        Some(known) => epoch_of_record(&log_dir, known.partition, known.offset)?,
        None => 0,
    };
    let marker = MarkerOptions {
        producer_id,
        producer_epoch: raised.max(decided.unwrap_or(0)),
        commit,
        coordinator_epoch: coordinator_epoch.max(producer.coordinator_epoch).max(0),
        timestamp: None,
        transaction_version,
    };
    let stable = log.last_stable_offset()?;
    let warnings = coordinators.warnings().iter().cloned();
    let ended = EndedTransaction {
        producer: found,
        committed: commit,
        marker_offset: None,
        last_stable_offset_before: stable,
        last_stable_offset: stable,
        warnings: warnings.chain(lost.clone()).collect(),
        lost_end: lost,
    };
    Ok((ended, marker))
}

/// Appends the marker, if under the lock of the partition all is still as it was planned.
fn append<P: AsRef<Path>>(
    log_dir: &LogDir,
    paths: &[P],
    planned: &EndedTransaction,
    options: &EndTransactionOptions,
    (open, how): (&OpenOptions, &LogDirOptions),
) -> Result<(Option<i64>, i64)> {
    let partition = &planned.producer.partition;
    let writer = log_dir.log_writer(&partition.topic, partition.partition)?;
    let producer_id = planned.producer.producer.producer_id;
    let how = (open, how);
    let (again, marker) = plan(paths, partition, producer_id, options, how, Some(planned))?;
    if again != *planned {
        let reason =
            "somebody changed the partition or its coordinator's record meanwhile; call again";
        return Err(Error::log_dir(&planned.producer.path, reason));
    }
    let flushed = AppendOptions {
        flush: true,
        ..AppendOptions::default()
    };
    let appended = writer.append_marker(&marker, &flushed)?;
    let stable = writer.log().last_stable_offset()?;
    Ok((Some(appended.base_offset), stable))
}

/// Whether the transaction is to be committed.
fn decide(
    found: &PartitionProducer,
    options: &EndTransactionOptions,
    lost_end: Option<&str>,
    coordinators: &Coordinators<'_>,
) -> Result<bool> {
    let id = found.transactional_id.as_deref().unwrap_or_default();
    let state = found.state.map(|state| state.to_string());
    let state = state.unwrap_or_default();
    let torn_end = coordinators.torn_end(coordinators.known_of(&found.producer));
    let refused = |reason: String| Err(Error::argument("commit", reason));
    match (found.standing, options.commit) {
        (Standing::Committing, Some(false)) => refused(format!(
            "the coordinator of {id:?} has decided to commit ({state}): to abort it here would take away what was promised to the \
             producer; leave out commit=False or --abort to commit it"
        )),
        (Standing::Aborting, Some(true)) => refused(format!(
            "the coordinator of {id:?} has decided to abort ({state}): to commit it here would show what was taken back; leave out \
             commit=True or --commit to abort it"
        )),
        (Standing::Committing, _) => Ok(true),
        (Standing::Aborting, _) | (Standing::Ongoing, Some(false)) => Ok(false),
        (Standing::Ongoing, Some(true)) => refused(format!(
            "the coordinator of {id:?} has not decided ({state}): only its producer may commit it; commit=False or --abort aborts it"
        )),
        (Standing::Ongoing, None) => refused(format!(
            "the coordinator of {id:?} has not decided ({state}): its producer may still commit it, if it and the cluster run again; \
             commit=False or --abort aborts it"
        )),
        (_, Some(commit)) if options.without_state => Ok(commit),
        _ => refused(format!(
            "{}, so nobody can tell from here whether the transaction was committed; if you know, say so: --without-state with --commit or \
             --abort (without_state=True with commit=)",
            match found.standing {
                Standing::Unknown if lost_end.is_some() => format!(
                    "{}: the marker of this transaction may be among them",
                    lost_end.unwrap_or_default()
                ),
                _ if !coordinators.are_here() => format!("no partition of {STATE_TOPIC} is here"),
                Standing::Unknown if torn_end.is_some() => torn_end.unwrap_or_default().to_owned(),
                Standing::Hanging if found.state.is_some() => format!(
                    "the coordinator of {id:?} has another transaction ({state}), and not this one"
                ),
                Standing::Hanging => "no coordinator has a transaction of this producer".to_owned(),
                _ if found.state.is_some() => format!(
                    "the coordinator's record of {id:?} ({state}) does not tell whether it is of this transaction, and of all of it"
                ),
                _ => match coordinators.unread() {
                    Some(unread) => unread.to_owned(),
                    None => format!("the partition of {STATE_TOPIC} that would tell is not here"),
                },
            }
        )),
    }
}

/// How an open transaction of a partition ends for readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionEnd {
    /// The producer, its partition and what its coordinator knows.
    pub producer: PartitionProducer,
    /// Whether it is committed; `None` if nobody can tell.
    pub commit: Option<bool>,
}

/// Says how open transactions of a partition end for readers, without ending them: as [`end_transaction`] ends them, what is ongoing by an
/// abort. `without_state` aborts those of which no coordinator's record tells, unless a partition of `__transaction_state` is here and cannot
/// be read: it may tell of a commit. Reads `__transaction_state` once.
///
/// # Errors
/// Those of reading `__transaction_state` and the partition.
pub fn transaction_ends(
    log_dir: &LogDir,
    log: &Log,
    open: &[ProducerState],
    without_state: bool,
) -> Result<Vec<TransactionEnd>> {
    let partition = TopicPartition {
        topic: log.topic().to_owned(),
        partition: log.partition(),
    };
    let mut coordinators = Coordinators::new(log_dir);
    let lost = lost_end(log)?;
    let lost = lost.as_deref();
    let mut ends = Vec::new();
    for producer in open {
        let producer = describe(log, &partition, *producer, lost, &mut coordinators)?;
        let is_decided = producer.standing == Standing::Committing;
        let options = EndTransactionOptions {
            commit: (!is_decided).then_some(false),
            without_state: without_state && !may_tell(&producer, &coordinators),
            dry_run: true,
            ..EndTransactionOptions::default()
        };
        let commit = decide(&producer, &options, lost, &coordinators).ok();
        ends.push(TransactionEnd { producer, commit });
    }
    Ok(ends)
}

/// Whether there is a coordinator's record that may be of the transaction, although nobody can tell: it may tell of a commit.
fn may_tell(producer: &PartitionProducer, coordinators: &Coordinators<'_>) -> bool {
    producer.standing == Standing::Unknown
        && (producer.state.is_some()
            || coordinators.unread().is_some()
            || coordinators.torn_end(None).is_some()
            || coordinators.starts_late())
}

/// The leader epoch with which a coordinator's record was written, which is the coordinator's epoch.
fn epoch_of_record(log_dir: &LogDir, partition: i32, offset: i64) -> Result<i32> {
    let log = log_dir.log(STATE_TOPIC, partition)?;
    let located = log.locate(offset)?;
    Ok(located.batch.map_or(0, |batch| batch.leader_epoch))
}

#[cfg(test)]
#[path = "end_transaction_tests.rs"]
mod tests;
