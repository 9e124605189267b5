//! `Record`: one frozen object a record. Fields that the records of a batch share are stored once, behind an `Arc`.
//!
//! Key and value are Python objects in fields of a frozen class: Python reads those as it reads its own slots, without a call.

use crate::convert;
use offsetlog::format::Headers;
use offsetlog::format::record::write_header;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::sync::Arc;

/// Longest repr, in characters.
const REPR_CHARS_MAX: usize = 200;

/// Name and value of a header, copied.
pub(crate) type HeaderBytes = (Vec<u8>, Option<Vec<u8>>);

/// What all records of a batch have in common.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) topic: Py<PyString>,
    pub(crate) partition: i32,
    pub(crate) leader_epoch: i32,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) is_transactional: bool,
    pub(crate) is_control: bool,
}

/// Headers: encoded until somebody looks at them.
struct LazyHeaders {
    encoded: Box<[u8]>,
    count: usize,
    decoded: PyOnceLock<Py<PyTuple>>,
}

impl LazyHeaders {
    fn tuple<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyTuple>> {
        self.decoded
            .get_or_try_init(py, || {
                let pairs = Headers::from_checked(&self.encoded, self.count)
                    .iter()
                    .map(|(key, value)| {
                        Ok((
                            convert::header_key(py, key)?,
                            value.map(|value| convert::bytes(py, value)).transpose()?,
                        ))
                    })
                    .collect::<PyResult<Vec<_>>>()?;
                PyTuple::new(py, pairs).map(Bound::unbind)
            })
            .map(|tuple| tuple.bind(py))
    }
}

/// One record of a log. Frozen, hashable, picklable; two records are equal when all their fields are.
///
/// Scans and look-ups make them; the constructor is there for tests of code that takes records.
#[pyclass(frozen, module = "offsetlog")]
pub(crate) struct Record {
    origin: Arc<Origin>,
    /// Offset in the partition.
    #[pyo3(get)]
    offset: i64,
    /// Timestamp in ms since 1970; -1 when there is none (magic 0).
    #[pyo3(get)]
    timestamp: i64,
    /// The key; ``None`` is not the same as ``b""``.
    #[pyo3(get)]
    key: Py<PyAny>,
    /// The value; ``None`` is a tombstone.
    #[pyo3(get)]
    value: Py<PyAny>,
    headers: Option<Box<LazyHeaders>>,
    /// Sequence number of this record; -1 for none.
    #[pyo3(get)]
    sequence: i32,
    /// 0 create time (the producer's), 1 log append time (the broker's), -1 none.
    #[pyo3(get)]
    timestamp_type: i8,
}

/// The fields of a record that are its own, as the engine gives them.
pub(crate) struct Fields<'a> {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) timestamp_type: i8,
    pub(crate) sequence: i32,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: Headers<'a>,
}

impl Record {
    /// Key, value, headers and timestamp, for appending the record somewhere else.
    pub(crate) fn key_bytes<'a>(&'a self, py: Python<'a>) -> Option<&'a [u8]> {
        bytes_of(py, &self.key)
    }

    pub(crate) fn value_bytes<'a>(&'a self, py: Python<'a>) -> Option<&'a [u8]> {
        bytes_of(py, &self.value)
    }

    pub(crate) fn header_pairs(&self, py: Python<'_>) -> PyResult<Vec<HeaderBytes>> {
        let Some(headers) = &self.headers else {
            return Ok(Vec::new());
        };
        // A record that Python made has them decoded only.
        headers
            .tuple(py)?
            .iter()
            .map(|pair| {
                let (name, value): (Bound<'_, PyAny>, Option<Vec<u8>>) = pair.extract()?;
                let name = name.call_method1("encode", ("utf-8", "surrogateescape"))?;
                Ok((name.extract()?, value))
            })
            .collect()
    }

    pub(crate) const fn own_timestamp(&self) -> i64 {
        self.timestamp
    }

    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "a record by value is twelve words to copy, once a record"
    )]
    pub(crate) fn of(py: Python<'_>, origin: Arc<Origin>, fields: &Fields<'_>) -> PyResult<Self> {
        let bytes = |part: Option<&[u8]>| -> PyResult<Py<PyAny>> {
            part.map_or_else(
                || Ok(py.None()),
                |part| convert::bytes(py, part).map(|part| part.into_any().unbind()),
            )
        };
        let headers = (!fields.headers.is_empty()).then(|| {
            Box::new(LazyHeaders {
                encoded: fields.headers.encoded().into(),
                count: fields.headers.len(),
                decoded: PyOnceLock::new(),
            })
        });
        Ok(Self {
            origin,
            offset: fields.offset,
            timestamp: fields.timestamp,
            key: bytes(fields.key)?,
            value: bytes(fields.value)?,
            headers,
            sequence: fields.sequence,
            timestamp_type: fields.timestamp_type,
        })
    }

    /// A record that a look-up copied out of its batch.
    pub(crate) fn owned(
        py: Python<'_>,
        topic: Py<PyString>,
        partition: i32,
        record: &offsetlog::Record,
    ) -> PyResult<Self> {
        let mut encoded = Vec::new();
        for (key, value) in &record.headers {
            write_header(&mut encoded, key, value.as_deref());
        }
        let origin = Origin {
            topic,
            partition,
            leader_epoch: record.leader_epoch,
            producer_id: record.producer_id,
            producer_epoch: record.producer_epoch,
            is_transactional: record.is_transactional,
            is_control: record.is_control,
        };
        let fields = Fields {
            offset: record.offset,
            timestamp: record.timestamp,
            timestamp_type: convert::timestamp_type(record.timestamp_type),
            sequence: record.sequence,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: Headers::from_checked(&encoded, record.headers.len()),
        };
        Self::of(py, Arc::new(origin), &fields)
    }

    fn headers_tuple<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match &self.headers {
            Some(headers) => headers.tuple(py).cloned(),
            None => Ok(PyTuple::empty(py)),
        }
    }
}

#[pymethods]
impl Record {
    #[new]
    #[pyo3(signature = (topic, partition, offset, timestamp=-1, timestamp_type=None, key=None, value=None, headers=None,
                        leader_epoch=-1, producer_id=-1, producer_epoch=-1, sequence=-1, is_transactional=false, is_control=false),
           text_signature = "(topic, partition, offset, timestamp=-1, timestamp_type=None, key=None, value=None, headers=None, \
                             leader_epoch=-1, producer_id=-1, producer_epoch=-1, sequence=-1, is_transactional=False, \
                             is_control=False)")]
    #[expect(clippy::too_many_arguments, reason = "one parameter a field")]
    fn new(
        topic: Bound<'_, PyString>,
        partition: i32,
        offset: i64,
        timestamp: i64,
        timestamp_type: Option<i8>,
        key: Option<Bound<'_, PyBytes>>,
        value: Option<Bound<'_, PyBytes>>,
        headers: Option<Bound<'_, PyAny>>,
        leader_epoch: i32,
        producer_id: i64,
        producer_epoch: i16,
        sequence: i32,
        is_transactional: bool,
        is_control: bool,
    ) -> PyResult<Self> {
        let py = topic.py();
        let timestamp_type = timestamp_type.unwrap_or(if timestamp == -1 { -1 } else { 0 });
        if !(-1..=1).contains(&timestamp_type) {
            return Err(PyValueError::new_err(format!(
                "timestamp_type must be 0 (create), 1 (append) or -1 (none), found {timestamp_type}"
            )));
        }
        let decoded = headers
            .map(|headers| header_pairs(&headers))
            .transpose()?
            .filter(|pairs| !pairs.is_empty());
        Ok(Self {
            origin: Arc::new(Origin {
                topic: topic.unbind(),
                partition,
                leader_epoch,
                producer_id,
                producer_epoch,
                is_transactional,
                is_control,
            }),
            offset,
            timestamp,
            key: key.map_or_else(|| py.None(), |key| key.into_any().unbind()),
            value: value.map_or_else(|| py.None(), |value| value.into_any().unbind()),
            headers: decoded.map(|pairs| {
                let decoded = PyOnceLock::new();
                let count = pairs.len();
                // A fresh cell takes its first value.
                let _ = decoded.set(py, pairs.unbind());
                Box::new(LazyHeaders {
                    encoded: Box::default(),
                    count,
                    decoded,
                })
            }),
            sequence,
            timestamp_type,
        })
    }

    /// Name of the topic.
    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<PyString> {
        self.origin.topic.clone_ref(py)
    }

    /// Number of the partition.
    #[getter]
    fn partition(&self) -> i32 {
        self.origin.partition
    }

    /// Names and values in order, repeats kept; name bytes that are not UTF-8 become lone surrogates.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.headers_tuple(py)
    }

    /// Epoch of the leader that appended it; -1 in magic 0 and 1.
    #[getter]
    fn leader_epoch(&self) -> i32 {
        self.origin.leader_epoch
    }

    /// Producer id; -1 when the producer was neither idempotent nor transactional.
    #[getter]
    fn producer_id(&self) -> i64 {
        self.origin.producer_id
    }

    /// Producer epoch; -1 for none.
    #[getter]
    fn producer_epoch(&self) -> i16 {
        self.origin.producer_epoch
    }

    /// Whether it was written within a transaction.
    #[getter]
    fn is_transactional(&self) -> bool {
        self.origin.is_transactional
    }

    /// Whether it is a commit or abort marker. Scans and look-ups give none.
    #[getter]
    fn is_control(&self) -> bool {
        self.origin.is_control
    }

    /// The timestamp as an aware UTC datetime; ``None`` when there is none, and outside the years 1 to 9999.
    #[getter]
    fn datetime<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static TO_DATETIME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        TO_DATETIME
            .import(py, "offsetlog._times", "to_datetime")?
            .call1((self.timestamp,))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
        let py = other.py();
        // `None` becomes NotImplemented: Python then asks the other side.
        let Ok(other) = other.cast::<Self>() else {
            return Ok(None);
        };
        let other = other.get();
        let (one, two) = (&*self.origin, &*other.origin);
        let same_origin = Arc::ptr_eq(&self.origin, &other.origin)
            || one.partition == two.partition
                && one.leader_epoch == two.leader_epoch
                && one.producer_id == two.producer_id
                && one.producer_epoch == two.producer_epoch
                && one.is_transactional == two.is_transactional
                && one.is_control == two.is_control
                && one.topic.bind(py).as_any().eq(two.topic.bind(py))?;
        Ok(Some(
            same_origin
                && self.offset == other.offset
                && self.timestamp == other.timestamp
                && self.timestamp_type == other.timestamp_type
                && self.sequence == other.sequence
                && self.key_bytes(py) == other.key_bytes(py)
                && self.value_bytes(py) == other.value_bytes(py)
                && self.headers_tuple(py)?.eq(other.headers_tuple(py)?)?,
        ))
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        (&self.origin.topic, self.origin.partition, self.offset)
            .into_pyobject(py)?
            .hash()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let py = slf.py();
        let record = slf.get();
        let origin = &record.origin;
        let place = (
            origin.topic.clone_ref(py),
            origin.partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            record.key.clone_ref(py),
            record.value.clone_ref(py),
            record.headers_tuple(py)?,
        )
            .into_pyobject(py)?;
        let rest = (
            origin.leader_epoch,
            origin.producer_id,
            origin.producer_epoch,
            record.sequence,
            origin.is_transactional,
            origin.is_control,
        )
            .into_pyobject(py)?;
        Ok((slf.get_type().into_any(), place.add(rest)?))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let part = |bytes: Option<&[u8]>| match bytes {
            Some(bytes) => convert::short_repr(py, bytes),
            None => Ok("None".to_owned()),
        };
        let mut text = format!(
            "Record({}-{} offset {}, timestamp {}, key={}, value={}",
            self.origin.topic.bind(py).to_string_lossy().escape_debug(),
            self.origin.partition,
            self.offset,
            self.timestamp,
            part(self.key_bytes(py))?,
            part(self.value_bytes(py))?,
        );
        if let Some(headers) = &self.headers {
            text.push_str(", headers=");
            text.push_str(&headers.count.to_string());
        }
        text.push(')');
        if text.chars().count() > REPR_CHARS_MAX {
            text = text.chars().take(REPR_CHARS_MAX - 4).collect();
            text.push_str("...)");
        }
        Ok(text)
    }
}

/// The bytes of a key or value; `None` for none.
fn bytes_of<'a>(py: Python<'a>, part: &'a Py<PyAny>) -> Option<&'a [u8]> {
    part.cast_bound::<PyBytes>(py)
        .ok()
        .map(PyBytesMethods::as_bytes)
}

/// Checks and copies headers given from Python: pairs of `str` and `bytes | None`.
fn header_pairs<'py>(headers: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let pairs = headers
        .try_iter()?
        .map(|pair| {
            let (key, value): (Bound<'py, PyString>, Option<Bound<'py, PyBytes>>) =
                pair?.extract().map_err(|_| {
                    PyTypeError::new_err("headers must be pairs of str and bytes or None")
                })?;
            Ok((key, value))
        })
        .collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(headers.py(), pairs)
}
