//! `convert`: a new partition directory with the records of an old one. Converts, detaches, calls, converts back.

use crate::appender::codec;
use crate::config::{self, Pairs};
use crate::convert::path_text;
use crate::interrupt::detached;
use crate::log::{LimitValues, open_options};
use crate::raise::OrRaise;
use offsetlog::{ConvertOptions, ConvertProgress, ConvertReport, Interrupt};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Path, records, batches, batches kept, bytes read and written, bytes dropped and why, log start and end offset.
type Row<'py> = (
    Bound<'py, PyString>,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    Option<String>,
    i64,
    i64,
);

/// What Python's progress raised: it ends the work and is raised again.
type Raised = Arc<Mutex<Option<PyErr>>>;

fn told(progress: Py<PyAny>, raised: &Raised) -> ConvertProgress {
    let raised = Arc::clone(raised);
    Arc::new(move |done, total| {
        let outcome = Python::try_attach(|py| progress.call1(py, (done, total)).map(drop));
        if let Some(Err(error)) = outcome {
            *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    })
}

fn stopped(interrupt: Option<Interrupt>, raised: &Raised) -> Interrupt {
    let raised = Arc::clone(raised);
    Arc::new(move || {
        let has_raised = raised
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some();
        has_raised || interrupt.as_ref().is_some_and(|interrupt| interrupt())
    })
}

#[pyfunction]
#[pyo3(signature = (old, new, *, compression, config, progress, mapped, limits))]
#[allow(clippy::too_many_arguments, reason = "one argument an option")]
pub(crate) fn convert<'py>(
    py: Python<'py>,
    old: PathBuf,
    new: PathBuf,
    compression: Option<&str>,
    config: Option<Pairs>,
    progress: Option<Py<PyAny>>,
    mapped: bool,
    limits: LimitValues,
) -> PyResult<Row<'py>> {
    let mut options = open_options(mapped, limits);
    let raised = Raised::default();
    options.interrupt = Some(stopped(options.interrupt.take(), &raised));
    let how = ConvertOptions {
        codec: compression.map(|name| codec(Some(name))).transpose()?,
        config: config.map(|pairs| config::parse(py, &pairs)).transpose()?,
        progress: progress.map(|progress| told(progress, &raised)),
    };
    let report = detached(py, || offsetlog::convert(&old, &new, &options, &how));
    let raised = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
    match raised {
        Some(error) => Err(error),
        None => row(py, &report.or_raise(py)?),
    }
}

fn row<'py>(py: Python<'py>, report: &ConvertReport) -> PyResult<Row<'py>> {
    let torn = report.torn_tail.as_ref();
    Ok((
        path_text(py, &report.path)?,
        report.records,
        report.batches,
        report.batches_kept,
        report.bytes_read,
        report.bytes_written,
        torn.map_or(0, |torn| torn.bytes),
        torn.map(|torn| torn.reason.clone()),
        report.log_start_offset,
        report.log_end_offset,
    ))
}
