//! `verify`: what is wrong with partitions and log dirs.

use crate::callback;
use crate::interrupt::detached;
use crate::log::open_options;
use crate::options::OpenValues;
use crate::raise::{OrRaise, class_name};
use crate::rows;
use offsetlog::{Finding, VerifyOptions};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Checks partitions and log dirs; also returns why they could not be compared with the metadata. `progress` is called with the bytes read since it was called last.
#[pyfunction]
#[pyo3(signature = (paths, options, *, progress))]
pub(crate) fn verify(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    options: OpenValues,
    progress: Option<Py<PyAny>>,
) -> PyResult<(rows::DamageReport, Option<String>)> {
    let mut options = open_options(&options);
    let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
    let failed = Arc::clone(&raised);
    let verify = VerifyOptions {
        progress: progress.map(|progress| {
            let told: offsetlog::Progress = Arc::new(move |bytes| {
                Python::attach(|py| {
                    let told = (bytes,)
                        .into_pyobject(py)
                        .and_then(|arguments| callback::call(progress.bind(py), &arguments));
                    if let Err(error) = told {
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
    let report = detached(py, || offsetlog_ops::verify(&paths, &options, &verify));
    if let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    let verified = report.or_raise(py)?;
    let not_compared = verified.not_compared.map(|error| error.to_string());
    let report = verified.report;
    let [notes, warnings, errors] = report.counts;
    let row = rows::DamageReport {
        findings: report.findings.into_iter().map(finding_row).collect(),
        notes,
        warnings,
        errors,
        partitions: report.partitions,
        segments: report.segments,
        batches: report.batches,
        records: report.records,
        bytes_read: report.bytes,
    };
    Ok((row, not_compared))
}

fn finding_row(finding: Finding) -> rows::Finding {
    rows::Finding {
        severity: finding.severity.name(),
        kind: class_name(finding.kind),
        path: finding.path.into_os_string(),
        position: finding.position,
        offset: finding.offset,
        reason: finding.reason,
        found: finding.found,
        expected: finding.expected,
        clean: finding.clean,
        unclean: finding.unclean,
        recover: finding.recover,
    }
}
