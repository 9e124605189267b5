//! `adopt`: directories that a broker set aside made partitions again. Converts, detaches, calls, converts back.

use crate::interrupt::detached;
use crate::log::open_options;
use crate::options::OpenValues;
use crate::progress::Raised;
use crate::raise::noted;
use crate::rows;
use offsetlog::format::Uuid;
use offsetlog_ops::{AdoptOptions, AdoptedPartition};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

#[pyfunction]
#[pyo3(signature = (directories, options, *, log_dirs, metadata, broker, topic, topic_id, set_aside, single_replica, dry_run, progress))]
#[allow(clippy::too_many_arguments, reason = "one parameter an option")]
pub(crate) fn adopt(
    py: Python<'_>,
    directories: Vec<PathBuf>,
    options: OpenValues,
    log_dirs: Vec<PathBuf>,
    metadata: Option<PathBuf>,
    broker: Option<PathBuf>,
    topic: Option<String>,
    topic_id: Option<String>,
    set_aside: bool,
    single_replica: bool,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<rows::AdoptedPartition>> {
    let mut open = open_options(&options);
    let raised = Raised::default();
    open.interrupt = Some(raised.interrupts(open.interrupt.take()));
    let topic_id = topic_id
        .map(|text| Uuid::parse(&text).map_err(|error| PyValueError::new_err(error.to_string())))
        .transpose()?;
    let done: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&done);
    let how = AdoptOptions {
        log_dirs,
        metadata,
        broker,
        topic,
        topic_id,
        set_aside,
        single_replica,
        dry_run,
        progress: raised.of_names(progress),
        adopted: Some(Arc::new(move |each| {
            let text = format!(
                "{} is {} now",
                each.directory.display(),
                each.path.display()
            );
            told.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(text);
        })),
    };
    let adopted = detached(py, || offsetlog_ops::adopt(&directories, &how, &open));
    match raised.or(py, adopted) {
        Ok(rows) => Ok(rows.into_iter().map(|each| row(each, dry_run)).collect()),
        Err(error) => Err(with_those(py, error, &done)),
    }
}

/// The error with a note of what was taken in before it.
fn with_those(py: Python<'_>, error: PyErr, done: &Mutex<Vec<String>>) -> PyErr {
    let done = done.lock().unwrap_or_else(PoisonError::into_inner);
    if done.is_empty() {
        return error;
    }
    let note = format!(
        "taken in before that: {}; leave them out of the next call, and name their log dirs in it (log_dirs=)",
        done.join(", ")
    );
    noted(py, error, &note)
}

fn row(each: AdoptedPartition, dry_run: bool) -> rows::AdoptedPartition {
    let set_aside = each.set_aside.into_iter();
    let set_aside: Vec<_> = set_aside
        .map(|(before, since)| (before.into_os_string(), since.map(PathBuf::into_os_string)))
        .collect();
    rows::AdoptedPartition {
        directory: each.directory.into_os_string(),
        path: each.path.into_os_string(),
        topic: each.topic,
        partition: each.partition,
        topic_id_before: each.topic_id_before.map(|id| id.to_string()),
        topic_id: each.topic_id.map(|id| id.to_string()),
        dry_run,
        changed: each.is_changed,
        set_aside: set_aside.into(),
        records: each.records,
        log_start_offset: each.log_start_offset,
        log_end_offset: each.log_end_offset,
        notes: each.notes.into(),
    }
}
