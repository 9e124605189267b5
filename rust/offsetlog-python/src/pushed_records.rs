//! Records of Python code, as `append_records` takes them, that are encoded into a batch.

use crate::callback;
use crate::raise::OrRaise;
use crate::record::Record;
use offsetlog::{BatchBuilder, memory};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyTuple};

/// How many records before it is encoded a record's value is read ahead.
const RECORDS_AHEAD: usize = 2;
/// If records are smaller than this on average, finding the next one costs more than waiting for its value.
const LARGE_RECORD_BYTES: usize = 400;

/// Adds every record of an iterable. `now` is asked once, if there is one.
///
/// # Errors
/// What the iterable raises; `TypeError` for what is no record; those of [`BatchBuilder::push`].
pub(crate) fn push_all(
    batch: &mut BatchBuilder,
    records: &Bound<'_, PyAny>,
    now: impl Fn() -> PyResult<i64>,
) -> PyResult<()> {
    let list = records.cast_exact::<PyList>().ok();
    let (mut told, mut ahead) = (None, RECORDS_AHEAD);
    callback::for_each(records, |record| {
        if let Some(list) = list
            && batch.size_bytes() >= batch.len() * LARGE_RECORD_BYTES
        {
            read_ahead(list, ahead);
        }
        ahead += 1;
        let now = match told {
            Some(now) => now,
            None => *told.insert(now()?),
        };
        push_record(batch, &record, now)
    })
}

/// Adds one record as Python code gives it: a value, a pair of key and value, or a [`Record`].
fn push_record(batch: &mut BatchBuilder, record: &Bound<'_, PyAny>, now: i64) -> PyResult<()> {
    let py = record.py();
    let push = |batch: &mut BatchBuilder, timestamp, key: Option<&[u8]>, value: Option<&[u8]>| {
        batch.push(timestamp, key, value, &[]).or_raise(py)
    };
    if record.is_none() {
        return push(batch, now, None, None);
    }
    if let Ok(value) = record.cast::<PyBytes>() {
        return push(batch, now, None, Some(value.as_bytes()));
    }
    if let Ok(pair) = record.cast::<PyTuple>()
        && pair.len() == 2
    {
        let key = pair.get_borrowed_item(0)?;
        let value = pair.get_borrowed_item(1)?;
        if let (Ok(key), Ok(value)) = (plain_part(&key), plain_part(&value)) {
            return push(batch, now, key, value);
        }
        let key = part_of(&key, "key")?;
        let value = part_of(&value, "value")?;
        return push(batch, now, key.as_deref(), value.as_deref());
    }
    if let Ok(record) = record.cast::<Record>() {
        let record = record.get();
        let headers = record.header_pairs(py)?;
        let key = record.key_bytes(py);
        let value = record.value_bytes(py);
        let views: Vec<(&[u8], Option<&[u8]>)> = headers
            .iter()
            .map(|(name, value)| (name.as_slice(), value.as_deref()))
            .collect();
        return batch
            .push(record.own_timestamp(), key, value, &views)
            .or_raise(py);
    }
    Err(PyTypeError::new_err(format!(
        "a record must be bytes, None, (key, value) or Record, found {}",
        record.get_type().name()?
    )))
}

/// Reads the value of a record of a list that is encoded soon ahead, if it is plain `bytes`. Does nothing behind the list's end.
fn read_ahead(list: &Bound<'_, PyList>, at: usize) {
    let Ok(record) = list.get_item(at) else {
        return;
    };
    let value = match record.cast_exact::<PyTuple>() {
        Ok(pair) => pair.get_item(1).ok(),
        Err(_) => Some(record),
    };
    if let Some(value) = value
        .as_ref()
        .and_then(|value| value.cast_exact::<PyBytes>().ok())
    {
        memory::read_ahead(value.as_bytes());
    }
}

/// A key or value that is `bytes` or nothing, where it lies. An error for all else.
fn plain_part<'a>(part: &'a Bound<'_, PyAny>) -> Result<Option<&'a [u8]>, ()> {
    match part.cast::<PyBytes>() {
        Ok(bytes) => Ok(Some(bytes.as_bytes())),
        Err(_) if part.is_none() => Ok(None),
        Err(_) => Err(()),
    }
}

/// A key or value: `bytes`, a `bytearray`, which is copied, or nothing.
fn part_of(part: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<PyBackedBytes>> {
    part.extract().map_err(|_| {
        let found = part.get_type().name().map(|name| name.to_string());
        PyTypeError::new_err(format!(
            "a record's {name} must be bytes or None, found {}",
            found.unwrap_or_default()
        ))
    })
}
