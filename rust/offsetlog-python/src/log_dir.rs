//! `LogDir`: one or several log dirs as one.

use crate::config::{Pairs, broker_of, pairs};
use crate::interrupt::detached;
use crate::log::{Log, open_options};
use crate::options::OpenValues;
use crate::progress::Raised;
use crate::raise::{OrRaise, raise};
use crate::rows::{self, Dict, Tuple};
use crate::scan::Later;
use offsetlog::format::Uuid;
use offsetlog::{
    AccessControlEntry, BrokerRegistration, ClientQuota, Group, GroupMember, GroupOffset,
    GroupsOptions, MetadataImage, PartitionRegistration, ShareGroupOffset, Steps, Stray,
    TopicImage, TopicPartition, Transaction, Unread,
};
use pyo3::prelude::*;
use std::path::PathBuf;

/// An answer, warnings of what was left out, and the errors of partitions that could not be read.
pub(crate) type Answer<T> = (T, Vec<String>, Dict<rows::TopicPartition, Py<PyAny>>);
pub(crate) type Partial<T> = Answer<Vec<T>>;
type StrayRows = (Option<Vec<rows::Stray>>, Vec<String>);

pub(crate) fn partition_key(partition: TopicPartition) -> rows::TopicPartition {
    rows::TopicPartition {
        topic: partition.topic,
        partition: partition.partition,
    }
}

pub(crate) fn unread_errors(
    py: Python<'_>,
    unread: Vec<Unread>,
) -> Dict<rows::TopicPartition, Py<PyAny>> {
    let row = |unread: Unread| {
        let error = raise(py, &unread.error).into_value(py).into_any();
        (partition_key(unread.partition), error)
    };
    unread.into_iter().map(row).collect()
}

fn by_topic(partitions: Vec<(String, Vec<i32>)>) -> Tuple<(String, Tuple<i32>)> {
    let partitions = partitions.into_iter();
    partitions
        .map(|(topic, numbers)| (topic, numbers.into()))
        .collect()
}

fn group_row(group: Group) -> rows::Group {
    rows::Group {
        group_id: group.group_id,
        kind: group.kind,
        protocol_type: group.protocol_type,
        protocol: group.protocol,
        epoch: group.epoch,
        leader: group.leader,
        members: group.members.into_iter().map(member_row).collect(),
        offsets: group.offsets.into_iter().map(offset_row).collect(),
        state: group.state.to_string(),
        share_offsets: group.share_offsets.into_iter().map(share_row).collect(),
    }
}

fn share_row(offset: ShareGroupOffset) -> rows::ShareGroupOffset {
    rows::ShareGroupOffset {
        lag: offset.lag(),
        topic: offset.topic,
        partition: offset.partition,
        start_offset: offset.start_offset,
        leader_epoch: offset.leader_epoch,
        delivery_complete_count: offset.delivery_complete_count,
        log_end_offset: offset.log_end_offset,
        first_unread_timestamp: offset.first_unread.timestamp(),
    }
}

fn member_row(member: GroupMember) -> rows::GroupMember {
    rows::GroupMember {
        member_id: member.member_id,
        instance_id: member.instance_id,
        client_id: member.client_id,
        client_host: member.client_host,
        assignment: by_topic(member.assignment),
    }
}

fn offset_row(committed: GroupOffset) -> rows::GroupOffset {
    rows::GroupOffset {
        lag: committed.lag(),
        first_unread_timestamp: committed.first_unread.timestamp(),
        topic: committed.topic,
        partition: committed.partition,
        offset: committed.offset,
        leader_epoch: committed.leader_epoch,
        metadata: committed.metadata,
        commit_timestamp: committed.commit_timestamp,
        log_end_offset: committed.log_end_offset,
        topic_id: Some(committed.topic_id)
            .filter(|id| !id.is_zero())
            .map(|id| id.to_string()),
        is_of_another_topic: committed.is_of_another_topic,
    }
}

fn transaction_row(transaction: Transaction) -> rows::Transaction {
    rows::Transaction {
        transactional_id: transaction.transactional_id,
        producer_id: transaction.producer_id,
        previous_producer_id: transaction.previous_producer_id,
        next_producer_id: transaction.next_producer_id,
        producer_epoch: transaction.producer_epoch,
        next_producer_epoch: transaction.next_producer_epoch,
        state: transaction.state.to_string(),
        timeout_ms: transaction.timeout_ms,
        partitions: by_topic(transaction.partitions),
        start_timestamp: transaction.start_timestamp,
        last_update_timestamp: transaction.last_update_timestamp,
        client_transaction_version: transaction.client_transaction_version,
        partition: transaction.partition,
        offset: transaction.offset,
    }
}

fn ids(ids: &[Uuid]) -> Tuple<String> {
    ids.iter().map(ToString::to_string).collect()
}

fn partition_row((number, partition): (i32, PartitionRegistration)) -> rows::PartitionRegistration {
    rows::PartitionRegistration {
        partition: number,
        replicas: partition.replicas.into(),
        isr: partition.isr.into(),
        leader: partition.leader,
        leader_epoch: partition.leader_epoch,
        partition_epoch: partition.partition_epoch,
        adding_replicas: partition.adding_replicas.into(),
        removing_replicas: partition.removing_replicas.into(),
        elr: partition.elr.into(),
        last_known_elr: partition.last_known_elr.into(),
        directories: ids(&partition.directories),
    }
}

fn topic_row(topic: TopicImage) -> rows::TopicImage {
    rows::TopicImage {
        name: topic.name,
        // Brokers with ZooKeeper gave none before 2.8.
        topic_id: (!topic.topic_id.is_zero()).then(|| topic.topic_id.to_string()),
        partitions: topic.partitions.into_iter().map(partition_row).collect(),
    }
}

fn broker_row(broker: BrokerRegistration) -> rows::BrokerRegistration {
    rows::BrokerRegistration {
        broker_id: broker.id,
        epoch: broker.epoch,
        rack: broker.rack,
        fenced: broker.fenced,
        in_controlled_shutdown: broker.in_controlled_shutdown,
        endpoints: broker.endpoints.into(),
        log_dirs: ids(&broker.log_dirs),
    }
}

fn image_row(image: MetadataImage) -> (rows::MetadataImage, Vec<String>) {
    let configs = image.configs.into_iter();
    let removed = image.removed_topics.into_iter();
    let row = rows::MetadataImage {
        end_offset: image.end_offset,
        snapshot_end_offset: image.snapshot_end_offset,
        features: image.features.into_iter().collect(),
        brokers: image.brokers.into_iter().map(broker_row).collect(),
        topics: image.topics.into_iter().map(topic_row).collect(),
        configs: configs
            .map(|(of, settings)| (of, settings.into_iter().collect()))
            .collect(),
        removed_topics: removed.map(|(name, id)| (name, id.to_string())).collect(),
        acls: image.acls.into_iter().map(acl_row).collect(),
        client_quotas: image.client_quotas.into_iter().map(quota_row).collect(),
        scram_credentials: image
            .scram_credentials
            .into_iter()
            .map(|each| rows::ScramCredential {
                user: each.user,
                mechanism: each.mechanism,
                iterations: each.iterations,
            })
            .collect(),
    };
    (row, image.warnings)
}

fn acl_row(acl: AccessControlEntry) -> rows::AccessControlEntry {
    rows::AccessControlEntry {
        resource_type: acl.resource_type,
        resource_name: acl.resource_name,
        pattern_type: acl.pattern_type,
        principal: acl.principal,
        host: acl.host,
        operation: acl.operation,
        permission_type: acl.permission_type,
    }
}

fn quota_row(quota: ClientQuota) -> rows::ClientQuota {
    rows::ClientQuota {
        entity: quota.entity.into(),
        quotas: quota.quotas.into_iter().collect(),
    }
}

fn stray_row(stray: Stray) -> rows::Stray {
    rows::Stray {
        topic: stray.topic,
        partition: stray.partition,
        path: stray.path.into_os_string(),
        topic_id: stray.topic_id.map(|id| id.to_string()),
        reason: stray.reason,
    }
}

#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct LogDir(pub(crate) offsetlog::LogDir);

#[pymethods]
impl LogDir {
    #[staticmethod]
    fn open(py: Python<'_>, paths: Vec<PathBuf>, options: OpenValues) -> PyResult<Self> {
        let options = open_options(&options);
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

    fn partitions(&self, py: Python<'_>) -> Vec<rows::TopicPartition> {
        let partitions = detached(py, || self.0.partitions());
        partitions.into_iter().map(partition_key).collect()
    }

    fn partition_count(&self, py: Python<'_>, topic: &str) -> PyResult<i32> {
        detached(py, || self.0.partition_count(topic)).or_raise(py)
    }

    fn topic_config(&self, py: Python<'_>, topic: &str) -> PyResult<Pairs> {
        let config = detached(py, || self.0.topic_config(topic)).or_raise(py)?;
        Ok(pairs(&config))
    }

    #[pyo3(signature = (topic, *, broker, metadata))]
    fn topic_settings(
        &self,
        py: Python<'_>,
        topic: &str,
        broker: Option<PathBuf>,
        metadata: Option<PathBuf>,
    ) -> PyResult<rows::TopicSettings> {
        let broker = broker_of(py, broker.as_deref())?;
        let found = detached(py, || {
            self.0
                .topic_settings(topic, broker.as_ref(), metadata.as_deref())
        })
        .or_raise(py)?;
        let config = &found.config;
        let settings = offsetlog::settings().iter().map(|setting| {
            let effective = rows::EffectiveSetting {
                value: config.text(setting.name).map(ToOwned::to_owned),
                source: config.source(setting.name).name(),
                reason: config.reason(setting.name).map(ToOwned::to_owned),
            };
            (setting.name, effective)
        });
        Ok(rows::TopicSettings {
            settings: settings.collect(),
            broker: found.broker,
            metadata_timestamp: found.metadata_timestamp,
        })
    }

    /// Groups, warnings of what was left out, and what could not be read.
    #[pyo3(signature = (*, progress))]
    fn groups(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Partial<rows::Group>> {
        let raised = Raised::default();
        let how = GroupsOptions {
            progress: raised.of_partitions(progress),
            ..GroupsOptions::default()
        };
        let found = detached(py, || self.0.groups(&how));
        let (groups, warnings, unread) = raised.or(py, found)?;
        let groups = groups.into_iter().map(group_row);
        Ok((groups.collect(), warnings, unread_errors(py, unread)))
    }

    /// Groups as Prometheus text, warnings of what was left out, and what could not be read.
    #[pyo3(signature = (now, *, progress))]
    fn groups_prometheus(
        &self,
        py: Python<'_>,
        now: Option<i64>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Answer<String>> {
        let raised = Raised::default();
        let how = GroupsOptions {
            progress: raised.of_partitions(progress),
            ..GroupsOptions::default()
        };
        let found = detached(py, || {
            let now = now.unwrap_or_else(|| (self.0.options().clock)());
            let (groups, warnings, unread) = self.0.groups(&how)?;
            let text = offsetlog_ops::groups_prometheus(&groups, now);
            Ok::<_, offsetlog::Error>((text, warnings, unread))
        });
        let (text, warnings, unread) = raised.or(py, found)?;
        Ok((text, warnings, unread_errors(py, unread)))
    }

    /// Committed offsets of these groups as a file for Kafka's tools, warnings, and what could not be read.
    #[pyo3(signature = (names, *, progress))]
    fn groups_reset_csv(
        &self,
        py: Python<'_>,
        names: Vec<String>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Answer<rows::ResetFile>> {
        let raised = Raised::default();
        let how = GroupsOptions {
            progress: raised.of_partitions(progress),
            ..GroupsOptions::without_lag()
        };
        let found = detached(py, || {
            let (mut groups, mut warnings, unread) = self.0.groups(&how)?;
            for name in &names {
                if !groups.iter().any(|group| group.group_id == *name) {
                    warnings.push(format!("no group {name} here"));
                }
            }
            groups.retain(|group| names.is_empty() || names.contains(&group.group_id));
            let plan = offsetlog_ops::reset_plan(&groups);
            Ok::<_, offsetlog::Error>((plan, warnings, unread))
        });
        let (plan, warnings, unread) = raised.or(py, found)?;
        let refused = plan.refused.into_iter();
        let refused: Vec<_> = refused
            .map(|each| (each.group, each.topic, each.reason))
            .collect();
        let file = rows::ResetFile {
            csv: plan.csv,
            groups: plan.groups.into(),
            streams_groups: plan.streams_groups.into(),
            with_metadata: plan.with_metadata,
            with_leader_epoch: plan.with_leader_epoch,
            refused: refused.into(),
        };
        Ok((file, warnings, unread_errors(py, unread)))
    }

    /// Transactions, warnings of what was left out, and what could not be read.
    #[pyo3(signature = (*, progress))]
    fn transactions(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Partial<rows::Transaction>> {
        let raised = Raised::default();
        let progress = raised.of_partitions(progress);
        let list = detached(py, || {
            self.0.check_one_cluster()?;
            self.0.transaction_list(&progress)
        });
        let list = raised.or(py, list)?;
        let transactions = list.transactions.into_iter().map(transaction_row);
        let unread = unread_errors(py, list.unread);
        Ok((transactions.collect(), list.warnings, unread))
    }

    /// What the metadata log says, and warnings of what was left out of it.
    #[pyo3(signature = (*, show_secrets, progress))]
    fn metadata(
        &self,
        py: Python<'_>,
        show_secrets: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Option<(rows::MetadataImage, Vec<String>)>> {
        let raised = Raised::default();
        let progress = raised.of_directories(progress);
        let image = detached(py, || {
            let mut steps = Steps::new(&progress);
            let image = self.0.metadata_told(&mut steps)?;
            steps.end()?;
            Ok(image)
        });
        let mut image = raised.or(py, image)?;
        if let Some(image) = image.as_mut().filter(|_| !show_secrets) {
            image.hide_secrets();
        }
        Ok(image.map(image_row))
    }

    /// Strays, unless a part of the metadata is missing, and warnings of what was left out of it.
    #[pyo3(signature = (*, progress))]
    fn strays(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Option<StrayRows>> {
        let raised = Raised::default();
        let progress = raised.of_directories(progress);
        let found = detached(py, || {
            let mut steps = Steps::new(&progress);
            let Some(image) = self.0.metadata_told(&mut steps)? else {
                return Ok(None);
            };
            let strays = self.0.strays_told(&image, &mut steps)?;
            steps.end()?;
            Ok(Some((strays, image.warnings)))
        });
        let Some((strays, warnings)) = raised.or(py, found)? else {
            return Ok(None);
        };
        let strays = strays.map(|strays| strays.into_iter().map(stray_row).collect());
        Ok(Some((strays, warnings)))
    }

    /// A partition for a scan; one that is gone by then is an error.
    fn later(&self, topic: String, partition: i32) -> Later {
        Later(self.0.later(TopicPartition { topic, partition }, true))
    }

    fn log(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<Log> {
        detached(py, || self.0.log(topic, partition))
            .or_raise(py)
            .map(Log)
    }
}
