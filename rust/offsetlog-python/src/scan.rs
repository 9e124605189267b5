//! `Scan`: the range to read and how, kept as plain options; each read starts a scan of its own.

use crate::arrow::{self, Batches};
use crate::capsule;
use crate::convert::isolation;
use crate::follow::Follow;
use crate::interrupt::{detached, interrupt};
use crate::log::Log;
use crate::options::ScanValues;
use crate::raise::{OrRaise, class_name};
use crate::records::RecordIterator;
use crate::requested;
use crate::rows;
use offsetlog::arrow::{ArrowOptions, ArrowScan, Column};
use offsetlog::{
    Error, ErrorKind, Hole, LaterLog, OnCorrupt, ScanOptions, ScanRange, ScanReport, TornTail,
};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use std::iter;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The names that `columns=` may hold, in their order.
pub(crate) fn column_names(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(py, Column::ALL.iter().map(|column| column.name()))
}

/// A capsule of the schema that a scan with these columns has.
#[pyfunction]
#[pyo3(signature = (columns))]
pub(crate) fn arrow_schema(
    py: Python<'_>,
    columns: Option<Vec<String>>,
) -> PyResult<Bound<'_, PyCapsule>> {
    let columns = chosen(columns.as_deref()).or_raise(py)?;
    arrow::schema_capsule(py, &offsetlog::arrow::schema(&columns))
}

fn chosen(columns: Option<&[String]>) -> Result<Vec<Column>, Error> {
    match columns {
        None => Ok(Column::DEFAULT.to_vec()),
        Some(names) => names.iter().map(|name| name.parse()).collect(),
    }
}

/// A partition of a log dir, to be opened when a scan comes to it.
#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct Later(pub(crate) LaterLog);

/// What a range is of.
#[derive(FromPyObject)]
enum Place<'py> {
    Log(Bound<'py, Log>),
    Later(Bound<'py, Later>),
}

#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct Scan {
    ranges: Vec<ScanRange>,
    /// Behind the ranges: whole logs that are opened when the scan comes to them.
    later: Vec<LaterLog>,
    options: ScanOptions,
    /// Damage ends a partition, and is an error only when the others were read.
    raises_last: bool,
    /// Offsets to take, in this order, from the only range's log.
    offsets: Option<Vec<i64>>,
    columns: Vec<Column>,
    arrow: ArrowOptions,
    /// That of the reading begun last.
    report: Mutex<ScanReport>,
}

impl Scan {
    fn begin(&self) -> Result<offsetlog::Scan, Error> {
        let scan = match (&self.offsets, self.ranges.as_slice()) {
            (Some(offsets), [range]) => range.log.take(offsets, &self.options),
            _ => offsetlog::Scan::over(self.ranges.clone(), &self.options)
                .map(|scan| scan.and_logs(self.later.clone())),
        }?;
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = scan.report();
        Ok(scan)
    }

    fn present_report(&self) -> ScanReport {
        let report = self.report.lock();
        report.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn begin_arrow(&self, columns: &[Column]) -> Result<ArrowScan, Error> {
        ArrowScan::new(self.begin()?, columns, &self.arrow)
    }
}

#[pymethods]
impl Scan {
    #[new]
    #[pyo3(signature = (ranges, options, *, raises_last=false))]
    fn new(
        py: Python<'_>,
        ranges: Vec<(Place<'_>, Option<i64>, Option<i64>)>,
        options: ScanValues,
        raises_last: bool,
    ) -> PyResult<Self> {
        let (mut open, mut later) = (Vec::new(), Vec::new());
        for (place, start, stop) in ranges {
            match place {
                Place::Log(log) => open.push(ScanRange {
                    log: log.get().0.clone(),
                    start,
                    stop,
                }),
                Place::Later(log) => later.push(log.get().0.clone()),
            }
        }
        let on_corrupt = options.on_corrupt.parse::<OnCorrupt>().or_raise(py)?;
        let raises_last = raises_last && on_corrupt == OnCorrupt::Raise;
        let engine = ScanOptions {
            start_timestamp: options.start_timestamp,
            stop_timestamp: options.stop_timestamp,
            isolation: isolation(py, &options.isolation_level)?,
            keys: options.keys,
            limit: options.limit,
            verify_checksums: options.verify_checksums,
            on_corrupt: if raises_last {
                OnCorrupt::Stop
            } else {
                on_corrupt
            },
            ..ScanOptions::default()
        };
        let defaults = ArrowOptions::default();
        let arrow = ArrowOptions {
            batch_rows: options.batch_rows.unwrap_or(defaults.batch_rows),
            batch_bytes: options.batch_bytes.unwrap_or(defaults.batch_bytes),
            threads: options.threads,
        };
        Ok(Self {
            ranges: open,
            later,
            options: engine,
            raises_last,
            offsets: options.offsets,
            columns: chosen(options.columns.as_deref()).or_raise(py)?,
            arrow,
            report: Mutex::default(),
        })
    }

    /// Of the reading begun last.
    fn report(&self) -> rows::ScanReport {
        let report = self.present_report();
        let done = report.statistics();
        rows::ScanReport {
            holes: report.holes().into_iter().map(hole_row).collect(),
            hole_count: report.hole_count(),
            hole_bytes: report.hole_bytes(),
            torn_tails: report.torn_tails().into_iter().map(torn_row).collect(),
            segments: done.segments,
            batches: done.batches,
            batches_skipped: done.batches_skipped,
            bytes_read: done.bytes,
        }
    }

    fn records(&self, py: Python<'_>) -> PyResult<RecordIterator> {
        let scan = detached(py, || self.begin()).or_raise(py)?;
        Ok(RecordIterator::new(scan, interrupt()))
    }

    /// The same ranges, also as they grow.
    fn follow(
        &self,
        py: Python<'_>,
        look_every_ms: u64,
        at_most_ms: Option<u64>,
    ) -> PyResult<Follow> {
        let look_every = Duration::from_millis(look_every_ms);
        let follow = detached(py, || {
            let ranges = self.ranges.clone();
            offsetlog::Follow::over(ranges, &self.later, &self.options, look_every)
        })
        .or_raise(py)?;
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = follow.report();
        Ok(Follow::new(
            follow,
            at_most_ms.map(Duration::from_millis),
            self.options.limit,
        ))
    }

    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        detached(py, || self.begin()?.count_records()).or_raise(py)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn arrow_stream<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let own = offsetlog::arrow::schema(&self.columns);
        let asked = requested_schema
            .map(|capsule| capsule::schema(&capsule))
            .transpose()?
            .flatten();
        let (columns, schema) = match asked.and_then(|asked| requested::serve(&asked, &own)) {
            Some((names, schema)) => (chosen(Some(&names)).or_raise(py)?, schema),
            None => (self.columns.clone(), own),
        };
        let scan = detached(py, || self.begin_arrow(&columns)).or_raise(py)?;
        if !self.raises_last {
            return arrow::stream_capsule(py, Box::new(scan), schema);
        }
        let report = self.present_report();
        let end = iter::once_with(move || unread(&report).map_or(Ok(None), Err));
        let batches = scan.map(|batch| batch.map(Some)).chain(end);
        arrow::stream_capsule(py, Box::new(batches.filter_map(Result::transpose)), schema)
    }

    fn read_all(&self, py: Python<'_>) -> PyResult<Batches> {
        let batches: Result<_, Error> = detached(py, || self.begin_arrow(&self.columns)?.collect());
        Ok(Batches {
            batches: batches.or_raise(py)?,
            schema: offsetlog::arrow::schema(&self.columns),
        })
    }
}

/// The end of a stream over many partitions if damage ended some of them: a text, since a stream can report nothing else.
fn unread(report: &ScanReport) -> Option<Error> {
    let holes = report.holes();
    let first = holes.first()?;
    let more = holes.len() - 1;
    let reason = format!(
        "{} partition{} could not be read whole, the others were: {first}{}",
        holes.len(),
        if more == 0 { "" } else { "s" },
        if more == 0 {
            String::new()
        } else {
            format!("; and {more} more")
        },
    );
    Some(Error::new(ErrorKind::LogDir { reason }))
}

fn hole_row(hole: Hole) -> rows::Hole {
    rows::Hole {
        topic: hole.topic,
        partition: hole.partition,
        path: hole.path.into_os_string(),
        position: hole.position,
        size_bytes: hole.bytes,
        start: Some(hole.start),
        stop: hole.stop,
        error: class_name(hole.kind),
        reason: hole.reason,
    }
}

/// An unfinished end, of which no offset is known.
fn torn_row((log, torn): (offsetlog::Log, TornTail)) -> rows::Hole {
    rows::Hole {
        topic: log.topic().to_owned(),
        partition: log.partition(),
        path: torn.path.into_os_string(),
        position: torn.position,
        size_bytes: torn.bytes,
        start: None,
        stop: None,
        error: "",
        reason: torn.reason,
    }
}
