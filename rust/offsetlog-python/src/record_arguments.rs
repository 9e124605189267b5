//! The arguments of an append of one record. Values of the plain types are used in place; all others go through the checks of the facade,
//! `offsetlog._append_arguments` and `_times`, which convert it or refuse it.

use crate::appender::{HeaderRow, header_views};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyInt, PyTuple};

/// Name and value of a header, where they lie.
pub(crate) type HeaderView<'a> = (&'a [u8], Option<&'a [u8]>);

/// A key or value.
enum Part<'a, 'py> {
    Given(Option<&'a [u8]>),
    Converted(Bound<'py, PyBytes>),
}

/// A record to append, as Python code gives it.
pub(crate) struct RecordArguments<'a, 'py> {
    value: Part<'a, 'py>,
    key: Part<'a, 'py>,
    headers: Vec<HeaderRow>,
    /// Milliseconds since 1970; `None`: the time of the call.
    pub(crate) timestamp: Option<i64>,
}

impl<'a, 'py> RecordArguments<'a, 'py> {
    /// # Errors
    /// What the facade's checks raise, in the order of the parameters.
    pub(crate) fn checked(
        value: &'a Bound<'py, PyAny>,
        key: Option<&'a Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            value: Part::checked("value", value)?,
            key: key.map_or(Ok(Part::Given(None)), |key| Part::checked("key", key))?,
            headers: headers.map_or(Ok(Vec::new()), checked_headers)?,
            timestamp: timestamp.map(checked_timestamp).transpose()?,
        })
    }

    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.value.bytes()
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.key.bytes()
    }

    pub(crate) fn headers(&self) -> Vec<HeaderView<'_>> {
        header_views(&self.headers)
    }
}

impl<'a, 'py> Part<'a, 'py> {
    fn checked(name: &str, given: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        static CHECK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(Self::Given(Some(bytes.as_bytes())));
        }
        if given.is_none() {
            return Ok(Self::Given(None));
        }
        let check = CHECK.import(given.py(), "offsetlog._append_arguments", "checked_bytes")?;
        let converted = check.call1((name, given))?;
        Ok(Self::Converted(converted.cast_into()?))
    }

    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Given(bytes) => *bytes,
            Self::Converted(bytes) => Some(bytes.as_bytes()),
        }
    }
}

fn checked_headers(given: &Bound<'_, PyAny>) -> PyResult<Vec<HeaderRow>> {
    static CHECK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if given.cast::<PyTuple>().is_ok_and(PyTupleMethods::is_empty) {
        return Ok(Vec::new());
    }
    let check = CHECK.import(given.py(), "offsetlog._append_arguments", "checked_headers")?;
    check.call1((given,))?.extract()
}

fn checked_timestamp(given: &Bound<'_, PyAny>) -> PyResult<i64> {
    static CHECK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if given.cast_exact::<PyInt>().is_ok()
        && let Ok(timestamp) = given.extract()
    {
        return Ok(timestamp);
    }
    let check = CHECK.import(given.py(), "offsetlog._times", "to_millis")?;
    check.call1((given, "timestamp"))?.extract()
}

/// The leader epoch of an append.
///
/// # Errors
/// What the facade's check raises.
pub(crate) fn checked_epoch(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<i32>> {
    static CHECK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let Some(given) = given else {
        return Ok(None);
    };
    let check = CHECK.import(given.py(), "offsetlog._append_arguments", "checked_epoch")?;
    check.call1((given,))?.extract()
}
