//! `append_arrow`: takes Arrow data from any producer, passes it to the engine, and reports after an error which rows are in the log.

use crate::appender::{Appender, codec, info_row};
use crate::arrow::Batches;
use crate::callback;
use crate::capsule::{self, Unusable};
use crate::interrupt::{self, detached};
use crate::options::AppendValues;
use crate::raise::{OrRaise, raise};
use crate::rows;
use arrow_array::RecordBatch;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{ArrowError, SchemaRef};
use offsetlog::Error;
use offsetlog::arrow::{ArrowAppendOptions, ArrowRows};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyModule, PyTuple};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Where rows come from.
enum Source {
    /// Read by a scan of ours.
    Own(SchemaRef, Vec<RecordBatch>),
    Stream(capsule::Stream),
    Array(ArrayRef),
}

/// Why rows could not be taken.
enum Refused {
    /// By the engine.
    Engine(Error),
    /// By their maker, at the beginning or in the middle.
    Maker(ArrowError),
    /// A layout so wrong that arrow-rs panics over it, or would do worse.
    Layout,
    /// What a signal handler raised, most often Ctrl-C.
    Interrupted,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<Unusable> for Refused {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Maker(error) => Self::Maker(error),
            Unusable::Layout => Self::Layout,
        }
    }
}

impl Refused {
    fn raise(&self, py: Python<'_>) -> PyErr {
        match self {
            Self::Engine(error) => raise(py, error),
            Self::Maker(error) => {
                PyRuntimeError::new_err(format!("data: its maker failed to give it: {error}"))
            }
            Self::Layout => wrong_layout(py).unwrap_or_else(|failure| failure),
            Self::Interrupted => interrupt::raised(),
        }
    }
}

fn wrong_layout(py: Python<'_>) -> PyResult<PyErr> {
    let class = PyModule::import(py, "offsetlog.errors")?.getattr("ConfigError")?;
    let arguments = PyDict::new(py);
    arguments.set_item("key", "data")?;
    let text = "data: not valid Arrow data: buffers or children are missing or short";
    Ok(PyErr::from_value(class.call((text,), Some(&arguments))?))
}

/// Runs what reads foreign structures. A panic of arrow-rs there means that they are not what they say.
fn guarded<T>(read: impl FnOnce() -> Result<T, Refused>) -> Result<T, Refused> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or(Err(Refused::Layout))
}

#[pyfunction]
#[pyo3(signature = (appender, data, options, *, compression, batch_bytes, keep_offsets))]
pub(crate) fn append_arrow(
    py: Python<'_>,
    appender: &Bound<'_, Appender>,
    data: &Bound<'_, PyAny>,
    options: AppendValues,
    compression: Option<&str>,
    batch_bytes: usize,
    keep_offsets: bool,
) -> PyResult<rows::AppendInfo> {
    let options = ArrowAppendOptions {
        codec: codec(compression)?,
        batch_bytes,
        append: options.into(),
    };
    let (log, clock) = appender.get().engine();
    let source = source_of(data)?;
    let rows = detached(py, || guarded(|| read(source, keep_offsets)));
    let mut rows = rows.map_err(|refused| refused.raise(py))?;
    let (result, rows) = clock.timed(py, move || (rows.append(&log, &options), rows))?;
    match result.or_raise(py) {
        Ok(info) => Ok(info_row(&info)),
        Err(error) => {
            if let Some(note) = note(&rows) {
                error.value(py).call_method1("add_note", (note,))?;
            }
            Err(error)
        }
    }
}

/// Number of rows, and the sum of their hashes modulo 2^128.
#[pyfunction]
#[pyo3(signature = (data, *, keep_offsets))]
pub(crate) fn arrow_digest(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    keep_offsets: bool,
) -> PyResult<(u64, u128)> {
    let source = source_of(data)?;
    let rows = detached(py, || {
        guarded(|| read(source, keep_offsets).map(|rows| (rows.len(), rows.digest())))
    });
    rows.map_err(|refused| refused.raise(py))
}

/// What an error alone does not say.
fn note(rows: &ArrowRows) -> Option<String> {
    if let Some(row) = rows.oversized() {
        return Some(format!(
            "row {row} of the data, counted from 0; nothing was appended"
        ));
    }
    let (count, info) = rows.appended()?;
    Some(format!(
        "the first {count} of {} rows are in the log, at offsets {} to {}",
        rows.len(),
        info.base_offset,
        info.last_offset
    ))
}

/// Takes what `data` offers, without pulling anything yet.
fn source_of(data: &Bound<'_, PyAny>) -> PyResult<Source> {
    let py = data.py();
    if let Ok(own) = data.cast::<Batches>() {
        let own = own.get();
        return Ok(Source::Own(own.schema.clone(), own.batches.clone()));
    }
    let taken = if let Some(stream) = offered(data, "__arrow_c_stream__")? {
        let capsule = stream.cast::<PyCapsule>()?;
        let stream = guarded(|| Ok(capsule::stream(capsule)));
        stream.map(|stream| stream.map(|stream| stream.map(Source::Stream)))
    } else if let Some(pair) = offered(data, "__arrow_c_array__")? {
        let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair.extract()?;
        let array = guarded(|| Ok(capsule::array(&schema, &array)));
        array.map(|array| array.map(|array| array.map(Source::Array)))
    } else {
        return Err(PyTypeError::new_err(format!(
            "data must have __arrow_c_stream__ or __arrow_c_array__, as a pyarrow.Table, a polars.DataFrame, a DuckDB relation and a \
             scan have; found {}",
            data.get_type().name()?
        )));
    };
    let taken = taken.map_err(|refused| refused.raise(py))??;
    taken.map_err(|unusable| Refused::from(unusable).raise(py))
}

/// The answer of a method of the Arrow `PyCapsule` interface, if `data` has it.
fn offered<'py>(data: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    data.getattr_opt(name)?
        .map(|method| callback::call(&method, &PyTuple::empty(data.py())))
        .transpose()
}

/// All rows of the source, checked; their buffers are held, not copied.
fn read(source: Source, keep_offsets: bool) -> Result<ArrowRows, Refused> {
    let stopped = interrupt::interrupt();
    let go_on = || {
        if stopped() {
            Err(Refused::Interrupted)
        } else {
            Ok(())
        }
    };
    match source {
        Source::Own(schema, batches) => {
            let mut rows = if keep_offsets {
                ArrowRows::with_offsets(&schema)?
            } else {
                ArrowRows::new(&schema)?
            };
            for batch in &batches {
                go_on()?;
                rows.push(batch)?;
            }
            Ok(rows)
        }
        Source::Array(array) => {
            let mut rows = ArrowRows::of_type(array.data_type(), keep_offsets)?;
            rows.push_array(&array)?;
            Ok(rows)
        }
        Source::Stream(stream) => {
            let mut rows = ArrowRows::of_type(stream.data_type(), keep_offsets)?;
            for array in stream {
                rows.push_array(&array?)?;
                go_on()?;
            }
            Ok(rows)
        }
    }
}
