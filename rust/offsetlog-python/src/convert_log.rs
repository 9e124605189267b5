//! `convert`: a new partition directory with the records of an old one. Converts, detaches, calls, converts back.

use crate::appender::codec;
use crate::callback;
use crate::config::{self, Pairs};
use crate::interrupt::detached;
use crate::log::open_options;
use crate::options::OpenValues;
use crate::raise::OrRaise;
use crate::rows;
use offsetlog::{ConvertOptions, ConvertProgress, ConvertReport, Interrupt};
use offsetlog_ops::RestoreProgress;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// What Python's progress raised: it ends the work and is raised again.
pub(crate) type Raised = Arc<Mutex<Option<PyErr>>>;

/// A progress of done and total that calls Python's.
pub(crate) fn told(progress: Py<PyAny>, raised: &Raised) -> ConvertProgress {
    let raised = Arc::clone(raised);
    Arc::new(move |done, total| {
        let outcome = Python::try_attach(|py| {
            let arguments = (done, total).into_pyobject(py)?;
            callback::call(progress.bind(py), &arguments).map(drop)
        });
        if let Some(Err(error)) = outcome {
            *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    })
}

/// A progress of done, total and the name of what is at work that calls Python's.
pub(crate) fn told_by_name(progress: Py<PyAny>, raised: &Raised) -> RestoreProgress {
    let raised = Arc::clone(raised);
    Arc::new(move |done, total, name: &str| {
        let outcome = Python::try_attach(|py| {
            let arguments = (done, total, name).into_pyobject(py)?;
            callback::call(progress.bind(py), &arguments).map(drop)
        });
        if let Some(Err(error)) = outcome {
            *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    })
}

/// An interrupt that also ends the work when Python's progress raised.
pub(crate) fn stopped(interrupt: Option<Interrupt>, raised: &Raised) -> Interrupt {
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
#[pyo3(signature = (old, new, options, *, compression, config, progress))]
pub(crate) fn convert(
    py: Python<'_>,
    old: PathBuf,
    new: PathBuf,
    options: OpenValues,
    compression: Option<&str>,
    config: Option<Pairs>,
    progress: Option<Py<PyAny>>,
) -> PyResult<rows::ConvertReport> {
    let mut options = open_options(&options);
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
        None => report.or_raise(py).map(report_row),
    }
}

fn report_row(report: ConvertReport) -> rows::ConvertReport {
    let torn = report.torn_tail;
    rows::ConvertReport {
        path: report.path.into_os_string(),
        records: report.records,
        batches: report.batches,
        batches_kept: report.batches_kept,
        bytes_read: report.bytes_read,
        bytes_written: report.bytes_written,
        dropped_bytes: torn.as_ref().map_or(0, |torn| torn.bytes),
        dropped_reason: torn.map(|torn| torn.reason),
        log_start_offset: report.log_start_offset,
        log_end_offset: report.log_end_offset,
    }
}
