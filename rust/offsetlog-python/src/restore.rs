//! `restore`: topics from a dead broker's disks. Converts, detaches, calls, converts back.

use crate::interrupt::detached;
use crate::log::open_options;
use crate::log_dir::partition_key;
use crate::options::{OpenValues, RestoreValues};
use crate::progress::Raised;
use crate::rows;
use crate::salvage::{left_out_row, loss_row, taken_back_row};
use offsetlog::TopicPartition;
use offsetlog_ops::{PartitionToRestore, RestoreOptions, RestorePlan};
use pyo3::prelude::*;
use std::path::PathBuf;

#[pyfunction]
#[pyo3(signature = (sources, into, options, values, *, progress))]
pub(crate) fn restore(
    py: Python<'_>,
    sources: Vec<PathBuf>,
    into: Vec<PathBuf>,
    options: OpenValues,
    values: RestoreValues,
    progress: Option<Py<PyAny>>,
) -> PyResult<rows::RestoreReport> {
    let mut options = open_options(&options);
    let raised = Raised::default();
    options.interrupt = Some(raised.interrupts(options.interrupt.take()));
    let dry_run = values.dry_run;
    let how = options_of(values);
    let progress = raised.of_names(progress);
    let done = detached(py, || {
        let mut plan = RestorePlan::make(&sources, &into, &how, &options)?;
        if !dry_run {
            plan.run(progress.as_ref())?;
            return Ok((plan, None));
        }
        // This reads too: of a dying disk it may take minutes.
        let seconds = plan.reading_seconds_min();
        Ok((plan, seconds))
    });
    let row = |(plan, seconds)| report_row(plan, dry_run, seconds);
    raised.or(py, done).map(row)
}

fn options_of(values: RestoreValues) -> RestoreOptions {
    let ends = values.ends.into_iter();
    RestoreOptions {
        topics: values.topics,
        until: values.until,
        ends: ends
            .map(|(topic, partition, end)| (TopicPartition { topic, partition }, end))
            .collect(),
        new_cluster: values.new_cluster,
        metadata: values.metadata,
        broker: values.broker,
        replication_factor: values.replication_factor,
        single_replica: values.single_replica,
        keep_retention: values.keep_retention,
    }
}

fn report_row(
    plan: RestorePlan,
    dry_run: bool,
    reading_seconds_min: Option<u64>,
) -> rows::RestoreReport {
    rows::RestoreReport {
        target: plan.target.name(),
        dry_run,
        bytes: plan.bytes(),
        reading_seconds_min,
        has_losses: plan.has_losses(),
        missing: plan.missing.into_iter().map(partition_key).collect(),
        left_out: plan
            .left_out
            .into_iter()
            .map(|(name, reason)| rows::NotRestored { name, reason })
            .collect(),
        bootstrap_checkpoints: plan
            .bootstrap_checkpoints
            .into_iter()
            .map(PathBuf::into_os_string)
            .collect(),
        remaining: plan
            .remaining
            .into_iter()
            .map(|each| rows::Remaining {
                about: each.about,
                reason: each.reason,
                commands: each.commands.into(),
            })
            .collect(),
        warnings: plan.warnings.into(),
        partitions: plan.partitions.into_iter().map(partition_row).collect(),
    }
}

fn partition_row(each: PartitionToRestore) -> rows::RestoredPartition {
    let report = each.state.report();
    rows::RestoredPartition {
        topic: each.topic,
        partition: each.partition,
        state: each.state.name(),
        reason: each.state.reason(),
        source: each.source.into_os_string(),
        other_replicas: each
            .other_replicas
            .into_iter()
            .map(|(path, less)| rows::OtherReplica {
                path: path.into_os_string(),
                less,
            })
            .collect(),
        into: each
            .into
            .into_iter()
            .map(|(node_id, path)| rows::NewReplica {
                node_id,
                path: path.into_os_string(),
            })
            .collect(),
        topic_id: each.topic_id.map(|id| id.to_string()),
        log_start_offset: each.log_start_offset,
        log_end_offset: each.log_end_offset,
        is_cut: each.is_cut,
        bytes: each.bytes,
        newest_timestamp: each.newest_timestamp,
        leader_epoch: each.leader_epoch,
        leader_epoch_max: each.leader_epoch_max,
        records: report.map(|report| report.built.records),
        loss_count: report.map_or(0, |report| report.loss_count),
        first_unstable_offset: report.and_then(|report| report.first_unstable_offset),
        losses: report
            .into_iter()
            .flat_map(|report| report.losses.iter().cloned())
            .map(loss_row)
            .collect(),
        taken_back: report
            .into_iter()
            .flat_map(|report| report.taken_back.iter().cloned())
            .map(taken_back_row)
            .collect(),
        left_out: report
            .into_iter()
            .flat_map(|report| report.left_out.iter().cloned())
            .map(left_out_row)
            .collect(),
    }
}
