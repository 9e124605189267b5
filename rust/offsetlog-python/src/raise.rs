//! The engine's errors as Python exceptions: one match.

use crate::interrupt;
use offsetlog::{Error, ErrorKind};
use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};
use std::io;
use std::path::Path;

/// Longest text of a value in an exception's attribute.
const TEXT_CHARS_MAX: usize = 200;

/// The note on an exception whose records are in the log all the same.
const APPENDED_NOTE: &str = "the records were written and can be read, but making them durable failed: after power loss they may be missing. \
Open the log again to go on";

/// What functions of this crate return from the engine to Python.
pub(crate) trait OrRaise<T> {
    /// Turns the engine's error into its Python exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &error))
    }
}

/// The Python exception for `error`: its class by kind, its attributes, its text.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let raised = exception(py, error);
    if !error.is_appended() {
        return raised;
    }
    let value = raised.value(py);
    let told = value
        .setattr("appended", true)
        .and_then(|()| value.call_method1("add_note", (APPENDED_NOTE,)));
    told.map_or_else(|failure| failure, |_| raised)
}

/// The exception with a note.
pub(crate) fn noted(py: Python<'_>, raised: PyErr, note: &str) -> PyErr {
    match raised.value(py).call_method1("add_note", (note,)) {
        Ok(_) => raised,
        Err(failure) => failure,
    }
}

fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let arguments = PyDict::new(py);
    let built = match error.kind() {
        ErrorKind::Interrupted => return interrupt::raised(),
        ErrorKind::Io { source, .. } => {
            let raised = os_error(py, source, error.path());
            // The text of an `OSError` is the system's.
            return match error.advice() {
                Some(advice) => noted(py, raised, advice),
                None => raised,
            };
        }
        ErrorKind::OffsetOutOfRange {
            requested,
            log_start_offset,
            log_end_offset,
        } => arguments
            .set_item("requested", requested)
            .and_then(|()| arguments.set_item("log_start_offset", log_start_offset))
            .and_then(|()| arguments.set_item("log_end_offset", log_end_offset))
            .and_then(|()| arguments.set_item("offset", requested)),
        ErrorKind::Limit { name, limit, seen } | ErrorKind::Unreadable { name, limit, seen } => {
            arguments
                .set_item("name", name.as_str())
                .and_then(|()| arguments.set_item("limit", limit))
                .and_then(|()| arguments.set_item("seen", seen))
        }
        ErrorKind::Argument { name, .. } => arguments.set_item("key", name),
        ErrorKind::Locked { pid } => arguments.set_item("pid", pid),
        _ => Ok(()),
    };
    built
        .and_then(|()| typed(py, error, &arguments))
        .unwrap_or_else(|failure| failure)
}

/// The Python class of an error's code, also if it is the kind of a finding or a hole. A text that is not an error's code stays as it is.
pub(crate) fn class_name(code: &'static str) -> &'static str {
    match code {
        "Io" => "OSError",
        "Interrupted" => "KeyboardInterrupt",
        "CorruptBatch" => "CorruptBatchError",
        "InvalidRecord" => "InvalidRecordError",
        "RecordRejected" | "AppendTooWide" => "RecordRejectedError",
        "InvalidTimestamp" => "InvalidTimestampError",
        "UnsupportedMagic" => "UnsupportedMagicError",
        "UnsupportedCodec" => "UnsupportedCodecError",
        "UnsupportedVersion" => "UnsupportedVersionError",
        "Decompression" => "DecompressionError",
        "OffsetOrder" => "OffsetOrderError",
        "OffsetOverflow" => "OffsetOverflowError",
        "CorruptIndex" => "CorruptIndexError",
        "CorruptTxnIndex" => "CorruptTxnIndexError",
        "CorruptSnapshot" => "CorruptSnapshotError",
        "Checkpoint" => "CheckpointError",
        "MetadataFile" => "MetadataFileError",
        "LogDir" => "LogDirError",
        "Cluster" => "ClusterError",
        "SegmentTooLarge" => "SegmentTooLargeError",
        "OffsetOutOfRange" => "OffsetOutOfRangeError",
        "Limit" => "LimitExceededError",
        "DecompressionLimit" => "DecompressionLimitError",
        "OutOfOrderSequence" => "OutOfOrderSequenceError",
        "ProducerFenced" => "ProducerFencedError",
        "TransactionCoordinatorFenced" => "TransactionCoordinatorFencedError",
        "InvalidTxnState" => "InvalidTxnStateError",
        "RecordTooLarge" => "RecordTooLargeError",
        "RecordBatchTooLarge" => "RecordBatchTooLargeError",
        "OffsetsOutOfOrder" => "OffsetsOutOfOrderError",
        "UnexpectedAppendOffset" => "UnexpectedAppendOffsetError",
        "Locked" => "LogLockedError",
        "Closed" => "LogClosedError",
        "Poisoned" => "LogPoisonedError",
        "Compression" => "CompressionError",
        "Argument" => "ConfigError",
        kind => kind,
    }
}

/// Whether an exception is of this class of `offsetlog.errors`. Making one runs Python, which may raise another instead.
pub(crate) fn is_of(py: Python<'_>, raised: &PyErr, class: &str) -> bool {
    let class = errors(py).and_then(|errors| errors.getattr(class));
    class.is_ok_and(|class| raised.is_instance(py, &class))
}

/// The exception of this class of `offsetlog.errors` for a call that the engine is not asked about: the object is of no use any more.
pub(crate) fn misuse(py: Python<'_>, class: &str, message: &str) -> PyErr {
    errors(py)
        .and_then(|errors| errors.getattr(class)?.call1((message,)))
        .map_or_else(|failure| failure, PyErr::from_value)
}

fn errors(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let errors = ERRORS.get_or_try_init(py, || {
        PyModule::import(py, "offsetlog.errors").map(Bound::unbind)
    })?;
    Ok(errors.bind(py))
}

fn typed(py: Python<'_>, error: &Error, arguments: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    if let Some(path) = error.path() {
        arguments.set_item("path", path.as_os_str())?;
    }
    if let Some(position) = error.position() {
        arguments.set_item("position", position)?;
    }
    if let Some(offset) = error.offset() {
        arguments.set_item("offset", offset)?;
    }
    if let Some(found) = error.found() {
        arguments.set_item("found", cut(&found))?;
    }
    if let Some(expected) = error.expected() {
        arguments.set_item("expected", cut(&expected))?;
    }
    let class = errors(py)?.getattr(class_name(error.kind().code()))?;
    Ok(PyErr::from_value(
        class.call((error.to_string(),), Some(arguments))?,
    ))
}

/// `OSError(errno, strerror, filename)`, which makes Python choose the subclass. `PyO3`'s own conversion loses errno and filename.
fn os_error(py: Python<'_>, source: &io::Error, path: Option<&Path>) -> PyErr {
    let path = path.map(Path::as_os_str);
    let Some(errno) = source.raw_os_error() else {
        // Refused by us, in the system's terms: another topic's by now, not a regular file, too large, shorter than it was.
        let errno = match source.kind() {
            io::ErrorKind::OutOfMemory => return PyMemoryError::new_err(source.to_string()),
            io::ErrorKind::NotFound => 2,
            io::ErrorKind::InvalidInput => 22,
            io::ErrorKind::FileTooLarge => 27,
            _ => 5,
        };
        return PyOSError::new_err((errno, source.to_string(), path.map(ToOwned::to_owned)));
    };
    let strerror = PyModule::import(py, "os")
        .and_then(|os| os.call_method1("strerror", (errno,)))
        .and_then(|text| text.extract::<String>())
        .unwrap_or_else(|_| source.to_string());
    PyOSError::new_err((errno, strerror, path.map(ToOwned::to_owned)))
}

fn cut(text: &str) -> &str {
    text.char_indices()
        .nth(TEXT_CHARS_MAX)
        .map_or(text, |(end, _)| text.split_at(end).0)
}
