//! `LogDir`: one or several log dirs as one.

use crate::config::{Pairs, broker_of, rows};
use crate::convert::path_text;
use crate::interrupt::detached;
use crate::log::{LimitValues, Log, open_options};
use crate::raise::{OrRaise, raise};
use offsetlog::format::Uuid;
use offsetlog::{
    BrokerRegistration, Group, MetadataImage, PartitionRegistration, Stray, Transaction, Unread,
};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::BTreeMap;
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

type UnreadRow = (String, i32, Py<PyAny>);

/// Partitions that could not be read, each with its exception.
fn unread_rows(py: Python<'_>, unread: Vec<Unread>) -> Vec<UnreadRow> {
    let row = |unread: Unread| {
        let error = raise(py, &unread.error).into_value(py).into_any();
        (unread.partition.topic, unread.partition.partition, error)
    };
    unread.into_iter().map(row).collect()
}

type StrayRow<'py> = (String, i32, Bound<'py, PyString>, Option<String>, String);
type StrayRows<'py> = (Option<Vec<StrayRow<'py>>>, Vec<String>);
type PartitionRow = (
    i32,
    Vec<i32>,
    Vec<i32>,
    Option<i32>,
    i32,
    i32,
    Vec<i32>,
    Vec<i32>,
    Vec<i32>,
    Vec<i32>,
    Vec<String>,
);
type TopicRow = (String, String, Vec<PartitionRow>);
type BrokerRow = (
    i32,
    i64,
    Option<String>,
    bool,
    bool,
    Vec<(String, String, i32)>,
    Vec<String>,
);
type ImageRow = (
    i64,
    Option<i64>,
    BTreeMap<String, i32>,
    Vec<BrokerRow>,
    Vec<TopicRow>,
    BTreeMap<(String, String), BTreeMap<String, String>>,
    Vec<(String, String)>,
    Vec<String>,
);

type SettingRow = (&'static str, Option<String>, &'static str, Option<String>);
type SettingsRow = (Vec<SettingRow>, Option<String>, Option<i64>);

fn ids(ids: &[Uuid]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

fn partition_row((number, partition): (i32, PartitionRegistration)) -> PartitionRow {
    (
        number,
        partition.replicas,
        partition.isr,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.adding_replicas,
        partition.removing_replicas,
        partition.elr,
        partition.last_known_elr,
        ids(&partition.directories),
    )
}

fn broker_row(broker: BrokerRegistration) -> BrokerRow {
    (
        broker.id,
        broker.epoch,
        broker.rack,
        broker.fenced,
        broker.in_controlled_shutdown,
        broker.endpoints,
        ids(&broker.log_dirs),
    )
}

fn image_row(image: MetadataImage) -> ImageRow {
    let topics = image.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(partition_row);
        (topic.name, topic.topic_id.to_string(), partitions.collect())
    });
    let removed = image.removed_topics.into_iter();
    (
        image.end_offset,
        image.snapshot_end_offset,
        image.features,
        image.brokers.into_iter().map(broker_row).collect(),
        topics.collect(),
        image.configs,
        removed.map(|(name, id)| (name, id.to_string())).collect(),
        image.warnings,
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

    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.0.refresh()).or_raise(py)
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

    /// Name, value, source and reason of each setting; what says that the log dir is a broker's; the time of the newest metadata.
    #[pyo3(signature = (topic, broker, metadata))]
    fn topic_settings(
        &self,
        py: Python<'_>,
        topic: &str,
        broker: Option<PathBuf>,
        metadata: Option<PathBuf>,
    ) -> PyResult<SettingsRow> {
        let broker = broker_of(py, broker.as_deref())?;
        let found = detached(py, || {
            self.0
                .topic_settings(topic, broker.as_ref(), metadata.as_deref())
        })
        .or_raise(py)?;
        let config = &found.config;
        let rows = offsetlog::settings().iter().map(|setting| {
            (
                setting.name,
                config.text(setting.name).map(ToOwned::to_owned),
                config.source(setting.name).name(),
                config.reason(setting.name).map(ToOwned::to_owned),
            )
        });
        Ok((rows.collect(), found.broker, found.metadata_timestamp))
    }

    /// Groups, warnings of what was left out, and what could not be read.
    #[allow(clippy::type_complexity, reason = "a row of three lists")]
    fn groups(&self, py: Python<'_>) -> PyResult<(Vec<GroupRow>, Vec<String>, Vec<UnreadRow>)> {
        let (groups, warnings, unread) = detached(py, || self.0.groups()).or_raise(py)?;
        let rows = groups.into_iter().map(group_row);
        Ok((rows.collect(), warnings, unread_rows(py, unread)))
    }

    /// Transactions, warnings of what was left out, and what could not be read.
    #[allow(clippy::type_complexity, reason = "a row of three lists")]
    fn transactions(
        &self,
        py: Python<'_>,
    ) -> PyResult<(Vec<TransactionRow>, Vec<String>, Vec<UnreadRow>)> {
        let (transactions, warnings, unread) =
            detached(py, || self.0.transactions()).or_raise(py)?;
        let rows = transactions.into_iter().map(transaction_row);
        Ok((rows.collect(), warnings, unread_rows(py, unread)))
    }

    /// What the metadata log says, warnings last.
    fn metadata(&self, py: Python<'_>) -> PyResult<Option<ImageRow>> {
        let image = detached(py, || self.0.metadata()).or_raise(py)?;
        Ok(image.map(image_row))
    }

    /// Strays, unless a part of the metadata is missing, and warnings of what was left out of it.
    fn strays<'py>(&self, py: Python<'py>) -> PyResult<Option<StrayRows<'py>>> {
        let found = detached(py, || {
            let image = self.0.metadata()?;
            image
                .map(|image| Ok((self.0.strays(&image)?, image.warnings)))
                .transpose()
        });
        let Some((strays, warnings)) = found.or_raise(py)? else {
            return Ok(None);
        };
        let row = |stray: Stray| {
            Ok((
                stray.topic,
                stray.partition,
                path_text(py, &stray.path)?,
                stray.topic_id.map(|id| id.to_string()),
                stray.reason,
            ))
        };
        let rows = strays.map(|strays| strays.into_iter().map(row).collect::<PyResult<_>>());
        Ok(Some((rows.transpose()?, warnings)))
    }

    fn log(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<Log> {
        detached(py, || self.0.log(topic, partition))
            .or_raise(py)
            .map(Log)
    }
}
