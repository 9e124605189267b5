//! `LogDir`: one or several log dirs as one.

use crate::config::{Pairs, rows};
use crate::interrupt::detached;
use crate::log::{LimitValues, Log, open_options};
use crate::raise::OrRaise;
use offsetlog::{Group, Transaction};
use pyo3::prelude::*;
use std::path::PathBuf;

type MemberRow = (
    String,
    Option<String>,
    String,
    String,
    Vec<(String, Vec<i32>)>,
);
type OffsetRow = (
    String,
    i32,
    i64,
    Option<i32>,
    String,
    i64,
    Option<i64>,
    Option<i64>,
);
type GroupRow = (
    String,
    &'static str,
    Option<String>,
    Option<String>,
    Option<i32>,
    Option<String>,
    Vec<MemberRow>,
    Vec<OffsetRow>,
);

fn group_row(group: Group) -> GroupRow {
    let members = group.members.into_iter().map(|member| {
        (
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.assignment,
        )
    });
    let offsets = group.offsets.into_iter().map(|committed| {
        let lag = committed.lag();
        (
            committed.topic,
            committed.partition,
            committed.offset,
            committed.leader_epoch,
            committed.metadata,
            committed.commit_timestamp,
            committed.log_end_offset,
            lag,
        )
    });
    (
        group.group_id,
        group.kind,
        group.protocol_type,
        group.protocol,
        group.epoch,
        group.leader,
        members.collect(),
        offsets.collect(),
    )
}

type TransactionRow = (
    String,
    i64,
    Option<i64>,
    Option<i64>,
    i32,
    Option<i32>,
    String,
    i32,
    Vec<(String, Vec<i32>)>,
    Option<i64>,
    i64,
    (Option<i32>, i32, i64),
);

fn transaction_row(transaction: Transaction) -> TransactionRow {
    (
        transaction.transactional_id,
        transaction.producer_id,
        transaction.previous_producer_id,
        transaction.next_producer_id,
        transaction.producer_epoch,
        transaction.next_producer_epoch,
        transaction.state.to_string(),
        transaction.timeout_ms,
        transaction.partitions,
        transaction.start_timestamp,
        transaction.last_update_timestamp,
        // A tuple has at most twelve elements here.
        (
            transaction.client_transaction_version,
            transaction.partition,
            transaction.offset,
        ),
    )
}

#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct LogDir(pub(crate) offsetlog::LogDir);

#[pymethods]
impl LogDir {
    #[staticmethod]
    #[pyo3(signature = (paths, *, mapped, limits))]
    fn open(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        mapped: bool,
        limits: LimitValues,
    ) -> PyResult<Self> {
        let options = open_options(mapped, limits);
        detached(py, || offsetlog::LogDir::open(&paths, &options))
            .or_raise(py)
            .map(Self)
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }

    fn partitions(&self, py: Python<'_>) -> Vec<(String, i32)> {
        let partitions = detached(py, || self.0.partitions());
        partitions
            .into_iter()
            .map(|partition| (partition.topic, partition.partition))
            .collect()
    }

    fn topic_config(&self, py: Python<'_>, topic: &str) -> PyResult<Pairs> {
        let config = detached(py, || self.0.topic_config(topic)).or_raise(py)?;
        Ok(rows(&config))
    }

    fn groups(&self, py: Python<'_>) -> PyResult<Vec<GroupRow>> {
        let groups = detached(py, || self.0.groups()).or_raise(py)?;
        Ok(groups.into_iter().map(group_row).collect())
    }

    /// Transactions, and warnings of what was left out.
    fn transactions(&self, py: Python<'_>) -> PyResult<(Vec<TransactionRow>, Vec<String>)> {
        let (transactions, warnings) = detached(py, || self.0.transactions()).or_raise(py)?;
        let rows = transactions.into_iter().map(transaction_row);
        Ok((rows.collect(), warnings))
    }

    fn log(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<Log> {
        detached(py, || self.0.log(topic, partition))
            .or_raise(py)
            .map(Log)
    }
}
