//! `salvage`: a sound log of everything that can be read of a damaged one. Converts, detaches, calls, converts back.

use crate::interrupt::detached;
use crate::log::open_options;
use crate::options::OpenValues;
use crate::progress::Raised;
use crate::rows;
use offsetlog_ops::{LeftOut, Loss, SalvageOptions, SalvageReport, TakenBack};
use pyo3::prelude::*;
use std::path::PathBuf;

#[pyfunction]
#[pyo3(signature = (source, into, options, *, include_truncated, dry_run, progress))]
pub(crate) fn salvage(
    py: Python<'_>,
    source: PathBuf,
    into: PathBuf,
    options: OpenValues,
    include_truncated: bool,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<rows::SalvageReport> {
    let mut options = open_options(&options);
    let raised = Raised::default();
    options.interrupt = Some(raised.interrupts(options.interrupt.take()));
    let how = SalvageOptions {
        include_truncated,
        dry_run,
        progress: raised.of_bytes(progress),
        ..SalvageOptions::default()
    };
    let report = detached(py, || {
        offsetlog_ops::salvage(&source, &into, &options, &how)
    });
    raised.or(py, report).map(report_row)
}

fn report_row(report: SalvageReport) -> rows::SalvageReport {
    let built = report.built;
    rows::SalvageReport {
        topic: report.topic,
        partition: report.partition,
        source: report.source.into_os_string(),
        path: built.path.into_os_string(),
        dry_run: report.dry_run,
        records: built.records,
        batches: built.batches,
        bytes_written: built.bytes_written,
        log_start_offset: built.log_start_offset,
        log_end_offset: built.log_end_offset,
        losses: report.losses.into_iter().map(loss_row).collect(),
        loss_count: report.loss_count,
        torn_tail_bytes: report.torn_tail.map_or(0, |torn| torn.bytes),
        taken_back: report.taken_back.into_iter().map(taken_back_row).collect(),
        left_out: report.left_out.into_iter().map(left_out_row).collect(),
        first_unstable_offset: report.first_unstable_offset,
        warnings: report.warnings.into(),
    }
}

pub(crate) fn loss_row(loss: Loss) -> rows::Loss {
    let records_max = loss.records_max();
    rows::Loss {
        path: loss.hole.path.into_os_string(),
        position: loss.hole.position,
        bytes: loss.hole.bytes,
        start: loss.hole.start,
        stop: loss.hole.stop,
        reason: loss.hole.reason,
        taken_back: loss.taken_back,
        records_max,
        time_before: loss.time_before,
        time_after: loss.time_after,
    }
}

pub(crate) fn taken_back_row(taken: TakenBack) -> rows::TakenBack {
    rows::TakenBack {
        path: taken.path.into_os_string(),
        batches: taken.batches,
        records: taken.records,
        first_offset: taken.first_offset,
        last_offset: taken.last_offset,
    }
}

pub(crate) fn left_out_row(left: LeftOut) -> rows::LeftOut {
    rows::LeftOut {
        path: left.path.into_os_string(),
        batches: left.batches,
        first_offset: left.first_offset,
        last_offset: left.last_offset,
        reason: left.reason,
    }
}
