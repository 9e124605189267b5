//! `verify`: what is wrong with partitions and log dirs.

use crate::convert::path_text;
use crate::interrupt::detached;
use crate::log::{LimitValues, open_options};
use crate::raise::{OrRaise, class_name};
use offsetlog::{Finding, VerifyOptions};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

type FindingRow<'py> = (
    &'static str,
    &'static str,
    Bound<'py, PyString>,
    Option<u64>,
    Option<i64>,
    String,
    Option<String>,
    Option<String>,
    &'static str,
    &'static str,
    &'static str,
);

type ReportRow<'py> = (
    Vec<FindingRow<'py>>,
    (u64, u64, u64),
    (u64, u64, u64, u64, u64),
);

/// Checks partitions and log dirs. `progress` is called with the bytes read since it was called last.
#[pyfunction]
#[pyo3(signature = (paths, *, progress, limits))]
pub(crate) fn verify(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    progress: Option<Py<PyAny>>,
    limits: LimitValues,
) -> PyResult<ReportRow<'_>> {
    let mut options = open_options(false, limits);
    let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
    let failed = Arc::clone(&raised);
    let verify = VerifyOptions {
        progress: progress.map(|callback| {
            let told: offsetlog::Progress = Arc::new(move |bytes| {
                Python::attach(|py| {
                    if let Err(error) = callback.call1(py, (bytes,)) {
                        failed
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .get_or_insert(error);
                    }
                });
            });
            told
        }),
    };
    if verify.progress.is_some() {
        // What the callback raises ends the work.
        let (asked, failed) = (options.interrupt.take(), Arc::clone(&raised));
        options.interrupt = Some(Arc::new(move || {
            let has_failed = failed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_some();
            has_failed || asked.as_ref().is_some_and(|asked| asked())
        }));
    }
    let report = detached(py, || offsetlog::verify(&paths, &options, &verify));
    if let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    let report = report.or_raise(py)?;
    let findings = report.findings.iter().map(|finding| row(py, finding));
    Ok((
        findings.collect::<PyResult<_>>()?,
        report.counts.into(),
        (
            report.partitions,
            report.segments,
            report.batches,
            report.records,
            report.bytes,
        ),
    ))
}

fn row<'py>(py: Python<'py>, finding: &Finding) -> PyResult<FindingRow<'py>> {
    Ok((
        finding.severity.name(),
        class_name(finding.kind),
        path_text(py, &finding.path)?,
        finding.position,
        finding.offset,
        finding.reason.clone(),
        finding.found.clone(),
        finding.expected.clone(),
        finding.clean,
        finding.unclean,
        finding.recover,
    ))
}
