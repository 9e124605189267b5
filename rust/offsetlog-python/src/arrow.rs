//! Arrow streams as capsules of the Arrow `PyCapsule` interface, and batches read ahead of their export.
//!
//! A stream is pulled from wherever its consumer pleases, with or without the interpreter. Ctrl-C is watched when that is the
//! thread that asked for the stream: only of that one it is known that it may attach.

use crate::interrupt;
use crate::requested;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use offsetlog::{Error, ErrorKind};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyModule};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// How long after an interrupted stream the signal is set again: time for a program that ends to say why.
const SET_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// What the engine gives batch by batch.
pub(crate) type Source = Box<dyn Iterator<Item = Result<RecordBatch, Error>> + Send>;

/// A lazy stream over a scan that has just begun.
struct Stream {
    /// Gone once it has ended, well or badly.
    source: Option<Source>,
    schema: SchemaRef,
    maker: ThreadId,
    interrupted: Option<Interrupted>,
}

/// Ctrl-C came while the consumer's own code was pulling.
struct Interrupted {
    raised: PyErr,
    /// Whether Python has been told.
    told: Arc<AtomicBool>,
}

impl Stream {
    fn failure(&mut self, error: Error) -> ArrowError {
        match error.kind() {
            ErrorKind::Interrupted => {
                let raised = interrupt::raised();
                let text = format!("interrupted: {raised}");
                let told = Arc::new(AtomicBool::new(false));
                let is_ctrl_c =
                    Python::try_attach(|py| raised.is_instance_of::<PyKeyboardInterrupt>(py));
                if is_ctrl_c == Some(true) {
                    set_signal_again(Arc::clone(&told));
                }
                self.interrupted = Some(Interrupted { raised, told });
                ArrowError::ComputeError(text)
            }
            ErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::OutOfMemory => {
                ArrowError::MemoryError(error.to_string())
            }
            ErrorKind::Io { source, .. } => {
                ArrowError::IoError(error.to_string(), io::Error::from(source.kind()))
            }
            _ => ArrowError::ExternalError(Box::new(error)),
        }
    }
}

impl Iterator for Stream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let source = self.source.as_mut()?;
        let may_attach = thread::current().id() == self.maker;
        // A panic must not reach the consumer's C, where it would end the process.
        let pulled = catch_unwind(AssertUnwindSafe(|| {
            if may_attach {
                interrupt::watched(|| source.next())
            } else {
                source.next()
            }
        }));
        match pulled {
            Ok(Some(Ok(batch))) => Some(requested::cast_batch(&batch, &self.schema)),
            pulled => {
                self.source = None;
                match pulled {
                    Ok(Some(Err(error))) => Some(Err(self.failure(error))),
                    Ok(_) => None,
                    Err(_) => Some(Err(ArrowError::ComputeError(
                        "offsetlog panicked, which is a bug: please report it".to_owned(),
                    ))),
                }
            }
        }
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Makes what the signal handler raised out of the consumer's own error where that is possible.
///
/// A C stream can only answer with a number and a text, which pyarrow turns into an exception of its own. `pyarrow.table` releases the
/// stream while that exception propagates; here it is replaced by the one that the user expects. If the consumer releases the stream
/// earlier or later, its exception remains and the signal is raised again a little later, so that no `except Exception` swallows Ctrl-C.
impl Drop for Stream {
    fn drop(&mut self) {
        let Some(Interrupted { raised, told }) = self.interrupted.take() else {
            return;
        };
        if thread::current().id() != self.maker {
            return;
        }
        Python::try_attach(|py| {
            if let Some(on_its_way) = PyErr::take(py) {
                if told.swap(true, Ordering::AcqRel) {
                    on_its_way.restore(py);
                } else {
                    raised.set_context(py, Some(on_its_way));
                    raised.restore(py);
                }
            }
        });
    }
}

/// Sets the signal again in a moment, unless `told` says by then that Python knows.
fn set_signal_again(told: Arc<AtomicBool>) {
    let later = move || {
        thread::sleep(SET_AGAIN_AFTER);
        if !told.swap(true, Ordering::AcqRel) {
            // `None` and errors both mean that Python is about to end: then there is nothing left to interrupt.
            let _ = Python::try_attach(|py| {
                PyModule::import(py, "_thread")
                    .and_then(|module| module.call_method0("interrupt_main"))
                    .map(drop)
            });
        }
    };
    // Without a thread the consumer's exception has to do.
    let _ = thread::Builder::new()
        .name("offsetlog-interrupt".to_owned())
        .spawn(later);
}

/// A capsule `arrow_array_stream` in the layouts of `schema`, whose columns are those of the source.
pub(crate) fn stream_capsule(
    py: Python<'_>,
    source: Source,
    schema: SchemaRef,
) -> PyResult<Bound<'_, PyCapsule>> {
    let stream = Stream {
        source: Some(source),
        schema,
        maker: thread::current().id(),
        interrupted: None,
    };
    let stream = FFI_ArrowArrayStream::new(Box::new(stream));
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}

/// A capsule `arrow_schema`.
pub(crate) fn schema_capsule<'py>(
    py: Python<'py>,
    schema: &Schema,
) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema)
        .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

/// Batches that were read already: what `to_arrow` and its kin hand over, so that errors keep their class and Ctrl-C its speed.
#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct Batches {
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) schema: SchemaRef,
}

#[pymethods]
impl Batches {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The batches exist already: the interface allows a request to be answered with them.
        drop(requested_schema);
        let batches = self.batches.clone().into_iter().map(Ok);
        stream_capsule(py, Box::new(batches), Arc::clone(&self.schema))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.schema)
    }
}
