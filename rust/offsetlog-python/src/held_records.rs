//! `LogDir.producers`, `LogDir.why` and `end_transaction`: who holds back records. Converts, detaches, calls, converts back.

use crate::config::broker_of;
use crate::interrupt::detached;
use crate::log::open_options;
use crate::log_dir::{LogDir, Partial, unread_errors};
use crate::options::OpenValues;
use crate::progress::Raised;
use crate::rows::{self, Interned};
use offsetlog::{LogDirOptions, TopicPartition};
use offsetlog_ops::{
    Answer, EndTransactionOptions, PartitionProducer, ProducersOptions, WhyOptions,
};
use pyo3::prelude::*;
use std::path::PathBuf;

/// Producers, warnings of what was left out, and what could not be read.
#[pyfunction]
#[pyo3(signature = (log_dir, *, topics, open_only, progress))]
pub(crate) fn producers(
    py: Python<'_>,
    log_dir: &LogDir,
    topics: Vec<String>,
    open_only: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Partial<rows::PartitionProducer>> {
    let raised = Raised::default();
    let options = ProducersOptions {
        topics,
        partitions: Vec::new(),
        only_open: open_only,
        progress: raised.of_partitions(progress),
    };
    let list = detached(py, || {
        log_dir.0.check_one_cluster()?;
        offsetlog_ops::producers(&log_dir.0, &options)
    });
    let list = raised.or(py, list)?;
    let producers = list.producers.into_iter().map(producer_row);
    let unread = unread_errors(py, list.unread);
    Ok((producers.collect(), list.warnings, unread))
}

/// Answers, warnings of what was left out, and what could not be read.
#[pyfunction]
#[pyo3(signature = (log_dir, *, topics, broker, metadata, now, progress))]
pub(crate) fn why(
    py: Python<'_>,
    log_dir: &LogDir,
    topics: Vec<String>,
    broker: Option<PathBuf>,
    metadata: Option<PathBuf>,
    now: Option<i64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Partial<rows::WhyAnswer>> {
    let raised = Raised::default();
    let options = WhyOptions {
        topics,
        partitions: Vec::new(),
        broker: broker_of(py, broker.as_deref())?,
        metadata,
        now,
        progress: raised.of_partitions(progress),
    };
    let report = detached(py, || offsetlog_ops::why(&log_dir.0, &options));
    let report = raised.or(py, report)?;
    let answers = report.answers.into_iter().map(answer_row);
    let unread = unread_errors(py, report.unread);
    Ok((answers.collect(), report.warnings, unread))
}

#[pyfunction]
#[pyo3(signature = (paths, topic, partition, producer_id, options, *, commit, without_state, dry_run, single_replica, metadata, progress))]
#[allow(clippy::too_many_arguments, reason = "one parameter an option")]
pub(crate) fn end_transaction(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    topic: String,
    partition: i32,
    producer_id: i64,
    options: OpenValues,
    commit: Option<bool>,
    without_state: bool,
    dry_run: bool,
    single_replica: bool,
    metadata: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(rows::EndedTransaction, Vec<String>)> {
    let open = open_options(&options);
    let raised = Raised::default();
    let how = LogDirOptions {
        single_replica,
        metadata,
        ..LogDirOptions::default()
    };
    let ending = EndTransactionOptions {
        commit,
        without_state,
        dry_run,
        progress: raised.of_partitions(progress),
    };
    let partition = TopicPartition { topic, partition };
    let ended = detached(py, || {
        offsetlog::LogDir::open(&paths, &open)?.check_one_cluster()?;
        offsetlog_ops::end_transaction(&paths, &partition, producer_id, &ending, (&open, &how))
    });
    let ended = raised.or(py, ended)?;
    let row = rows::EndedTransaction {
        dry_run,
        committed: ended.committed,
        marker_offset: ended.marker_offset,
        last_stable_offset_before: ended.last_stable_offset_before,
        last_stable_offset: ended.last_stable_offset,
        producer: producer_row(ended.producer),
    };
    Ok((row, ended.warnings))
}

fn producer_row(found: PartitionProducer) -> rows::PartitionProducer {
    let known = found.producer;
    rows::PartitionProducer {
        topic: found.partition.topic,
        partition: found.partition.partition,
        path: found.path.into_os_string(),
        producer_id: known.producer_id,
        producer_epoch: known.producer_epoch,
        last_sequence: unless_negative(known.last_sequence),
        last_offset: unless_negative(known.last_offset),
        last_timestamp: unless_negative(known.last_timestamp),
        coordinator_epoch: unless_negative(known.coordinator_epoch),
        transaction_first_offset: known.transaction_first_offset,
        transaction_start_timestamp: found.transaction_start_timestamp,
        transactional_id: found.transactional_id,
        state: found.state.map(|state| state.to_string()),
        timeout_ms: found.timeout_ms,
        standing: Interned(found.standing.name()),
    }
}

fn answer_row(answer: Answer) -> rows::WhyAnswer {
    let settings = answer
        .settings
        .into_iter()
        .map(|setting| rows::DecisiveSetting {
            name: Interned(setting.name),
            value: setting.value,
            source: Interned(setting.source.name()),
        });
    rows::WhyAnswer {
        topic: answer.partition.topic,
        partition: answer.partition.partition,
        path: answer.path.into_os_string(),
        question: Interned(answer.question.name()),
        reason: Interned(answer.reason.name()),
        sentence: answer.sentence,
        remedy: answer.remedy,
        segment: answer.segment,
        offset: answer.offset,
        timestamp: answer.timestamp,
        due_timestamp: answer.due_timestamp,
        size_bytes: answer.bytes,
        producer: answer.producer.map(producer_row),
        settings: settings.collect(),
    }
}

/// Kafka writes -1 for what is not there.
fn unless_negative<N: PartialOrd + From<i8>>(number: N) -> Option<N> {
    (number >= N::from(0)).then_some(number)
}
