//! `convert`: a new partition directory with the records of an old one. Converts, detaches, calls, converts back.

use crate::appender::codec;
use crate::config::{self, Pairs};
use crate::interrupt::detached;
use crate::log::open_options;
use crate::options::OpenValues;
use crate::progress::Raised;
use crate::rows;
use offsetlog::{ConvertOptions, ConvertReport};
use pyo3::prelude::*;
use std::path::PathBuf;

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
    options.interrupt = Some(raised.interrupts(options.interrupt.take()));
    let how = ConvertOptions {
        codec: compression.map(|name| codec(Some(name))).transpose()?,
        config: config.map(|pairs| config::parse(py, &pairs)).transpose()?,
        progress: raised.of_bytes(progress),
    };
    let report = detached(py, || offsetlog::convert(&old, &new, &options, &how));
    raised.or(py, report).map(report_row)
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
        missing_offsets: report.missing_offsets.into(),
        warnings: report.warnings.into(),
    }
}
