//! `mirror`: topics of a live cluster in a directory. Converts, detaches, calls, converts back.

use crate::interrupt::{detached, interrupt, raised_if_any};
use crate::options::MirrorValues;
use crate::progress::Raised;
use crate::raise::raise;
use crate::rows;
use offsetlog::{Error, Interrupt};
use offsetlog_net::mirror::{
    MirrorError, MirrorEvent, MirrorOptions, MirrorProgress, MirrorReport, MirroredPartition,
    Source, Watch, mirror as run,
};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[pyfunction]
#[pyo3(signature = (into, values, *, progress, event))]
pub(crate) fn mirror(
    py: Python<'_>,
    into: PathBuf,
    values: MirrorValues,
    progress: Option<Py<PyAny>>,
    event: Option<Py<PyAny>>,
) -> PyResult<rows::MirrorReport> {
    let source = source_of(py, &values)?;
    let options = MirrorOptions {
        topics: values.topics,
        patterns: values.patterns,
        once: values.once,
        follow_deletes: values.follow_deletes,
        groups: values.groups,
        fetch_max_bytes: values.fetch_max_bytes,
        metadata_interval_ms: values.refresh_ms,
        groups_interval_ms: values.refresh_ms,
        give_up_ms: values.give_up_ms,
        ..MirrorOptions::default()
    };
    let raised = Raised::default();
    let ended = for_good(raised.interrupts(Some(interrupt())));
    let told = raised.clone();
    let done = detached(py, || {
        let watch = Watch {
            progress: progress.map(|progress| {
                let told = told.clone();
                Box::new(move |it: &MirrorProgress| {
                    told.tell(&progress, (progress_row(it),));
                }) as _
            }),
            event: event.map(|event| {
                let told = told.clone();
                Box::new(move |it: &MirrorEvent| {
                    told.tell(&event, (event_row(it),));
                }) as _
            }),
            interrupt: Some(ended),
        };
        let report = run(&source, &into, &options, watch);
        // A signal handler that raised ends a mirror as if all was well.
        (report, raised_if_any())
    });
    match (raised.take(), done) {
        // What else failed while it ended is what a user must know first.
        (Some(error), (Ok(_) | Err(MirrorError::Disk(_)), _)) | (None, (Ok(_), Some(error))) => {
            Err(error)
        }
        (None, (Ok(report), None)) => Ok(report_row(report)),
        (_, (Err(error), _)) => Err(refused(py, error)),
    }
}

/// An interrupt that stays once it was there.
fn for_good(interrupt: Interrupt) -> Interrupt {
    let is_over = AtomicBool::new(false);
    Arc::new(move || {
        let is_over_now = is_over.load(Ordering::SeqCst) || interrupt();
        is_over.store(is_over_now, Ordering::SeqCst);
        is_over_now
    })
}

fn source_of(py: Python<'_>, values: &MirrorValues) -> PyResult<Source> {
    let wrong = |name: &'static str, reason: String| raise(py, &Error::argument(name, reason));
    let mut source = Source::default();
    for list in &values.bootstrap {
        source
            .add_bootstrap(list)
            .map_err(|reason| wrong("bootstrap", reason))?;
    }
    if let Some(path) = &values.config_file {
        let bytes = std::fs::read(path)
            .map_err(|error| raise(py, &Error::io(offsetlog::disk::IoCall::Read, path, error)))?;
        source
            .read_properties(&bytes)
            .map_err(|reason| wrong("config", format!("{}: {reason}", path.display())))?;
    }
    if let Some(pairs) = &values.config {
        source
            .take_settings(pairs)
            .map_err(|reason| wrong("config", reason))?;
    }
    if source.bootstrap.is_empty() {
        let reason = "no broker given: 'host:port', or bootstrap.servers in config";
        return Err(wrong("bootstrap", reason.to_owned()));
    }
    Ok(source)
}

fn refused(py: Python<'_>, error: MirrorError) -> PyErr {
    match error {
        MirrorError::Disk(error) => raise(py, &error),
        MirrorError::WrongCluster { ref path, .. } => {
            let text = error.to_string();
            let place = format!("{}: ", path.display());
            let reason = text.strip_prefix(&place).unwrap_or(&text);
            raise(py, &Error::log_dir(path, reason))
        }
        other => PyOSError::new_err(other.to_string()),
    }
}

fn progress_row(progress: &MirrorProgress) -> rows::MirrorProgress {
    rows::MirrorProgress {
        bytes: progress.bytes,
        batches: progress.batches,
        bytes_per_second: progress.bytes_per_second,
        partitions: progress.partitions,
        partitions_done: progress.partitions_done,
        lag: progress.lag,
    }
}

fn event_row(event: &MirrorEvent) -> rows::MirrorEvent {
    rows::MirrorEvent {
        kind: event.kind.name(),
        topic: event.topic.clone(),
        partition: event.partition,
        broker: event.broker.filter(|&broker| broker >= 0),
        start: event.from,
        stop: event.until,
        message: event.message.clone(),
        kept: event
            .kept
            .iter()
            .map(|path| path.clone().into_os_string())
            .collect(),
    }
}

fn partition_row(each: &MirroredPartition) -> rows::MirroredPartition {
    rows::MirroredPartition {
        topic: each.topic.clone(),
        partition: each.partition,
        log_start_offset: each.log_start_offset,
        log_end_offset: each.log_end_offset,
        high_watermark: each.high_watermark,
        source_log_start_offset: each.source_log_start_offset,
        lag: each.lag(),
        bytes: each.bytes,
        batches: each.batches,
        problem: each.problem.clone(),
    }
}

fn report_row(report: MirrorReport) -> rows::MirrorReport {
    rows::MirrorReport {
        cluster_id: report.cluster_id,
        is_complete: report.is_complete,
        has_losses: report.has_losses,
        bytes: report.progress.bytes,
        batches: report.progress.batches,
        groups: report.groups,
        committed_offsets: report.committed_offsets,
        share_groups: report.share_groups,
        partitions: report.partitions.iter().map(partition_row).collect(),
        events: report.events.iter().map(event_row).collect(),
        events_left_out: report.events_left_out,
    }
}
