//! `verify`: what is wrong with partitions and log dirs.

use crate::interrupt::detached;
use crate::log::open_options;
use crate::options::OpenValues;
use crate::progress::Raised;
use crate::raise::class_name;
use crate::rows;
use offsetlog::{Finding, VerifyOptions};
use pyo3::prelude::*;
use std::path::PathBuf;

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
    let raised = Raised::default();
    options.interrupt = Some(raised.interrupts(options.interrupt.take()));
    let verify = VerifyOptions {
        progress: raised.of_more(progress),
    };
    let report = detached(py, || offsetlog_ops::verify(&paths, &options, &verify));
    let verified = raised.or(py, report)?;
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
