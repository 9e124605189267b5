//! Plain conversions between the engine's values and Python's.

use crate::raise::OrRaise;
use crate::rows::{self, Interned};
use offsetlog::format::TimestampType;
use offsetlog::{BatchInfo, Isolation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::path::Path;

/// Bytes of a key or value that a repr shows.
const REPR_BYTES_MAX: usize = 48;

/// From here on bytes may be more than there is memory for.
const LARGE_BYTES: usize = 1 << 20;

/// A copy of `part`; without memory for it a `MemoryError`, where `PyBytes::new` would panic.
pub(crate) fn bytes<'py>(py: Python<'py>, part: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    if part.len() < LARGE_BYTES {
        return Ok(PyBytes::new(py, part));
    }
    PyBytes::new_with(py, part.len(), |bytes| {
        bytes.copy_from_slice(part);
        Ok(())
    })
}

/// A header's name: UTF-8, with lone surrogates for bytes that are not.
pub(crate) fn header_key<'py>(py: Python<'py>, key: &[u8]) -> PyResult<Bound<'py, PyString>> {
    match std::str::from_utf8(key) {
        Ok(key) => Ok(PyString::new(py, key)),
        Err(_) => Ok(PyBytes::new(py, key)
            .call_method1("decode", ("utf-8", "surrogateescape"))?
            .cast_into::<PyString>()?),
    }
}

/// A path as Python's file functions return it: bytes that are not UTF-8 become lone surrogates.
pub(crate) fn path_text<'py>(py: Python<'py>, path: &Path) -> PyResult<Bound<'py, PyString>> {
    Ok(path.as_os_str().into_pyobject(py)?)
}

/// Python's repr of `bytes`, cut: `b'abc'...(9000 bytes)`.
pub(crate) fn short_repr(py: Python<'_>, bytes: &[u8]) -> PyResult<String> {
    let (shown, rest) = bytes.split_at(bytes.len().min(REPR_BYTES_MAX));
    let text = PyBytes::new(py, shown).repr()?.to_string();
    Ok(if rest.is_empty() {
        text
    } else {
        format!("{text}...({} bytes)", bytes.len())
    })
}

/// Kafka's word for an isolation level.
pub(crate) fn isolation(py: Python<'_>, level: &str) -> PyResult<Isolation> {
    level.parse().or_raise(py)
}

/// Kafka's number for a timestamp type.
pub(crate) const fn timestamp_type(kind: TimestampType) -> i8 {
    kind as i8
}

/// An iterator has one user at a time.
pub(crate) fn shared_iterator() -> PyErr {
    PyValueError::new_err("this iterator is in use by another thread; give each thread its own")
}

pub(crate) fn batch_row(batch: &BatchInfo) -> rows::BatchInfo {
    rows::BatchInfo {
        base_offset: batch.base_offset,
        last_offset: batch.last_offset,
        position: batch.position,
        size_bytes: batch.size_bytes,
        magic: batch.magic,
        codec: Interned(batch.codec.name()),
        timestamp_type: timestamp_type(batch.timestamp_type),
        base_timestamp: batch.base_timestamp,
        max_timestamp: batch.max_timestamp,
        leader_epoch: batch.leader_epoch,
        producer_id: batch.producer_id,
        producer_epoch: batch.producer_epoch,
        base_sequence: batch.base_sequence,
        record_count: batch.record_count,
        is_transactional: batch.is_transactional,
        is_control: batch.is_control,
        segment: batch.segment,
    }
}
