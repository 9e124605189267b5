//! `OldLog`: a partition of Kafka 0.7. Messages are decoded without the interpreter, some at a time.

use crate::convert::{self, path_text};
use crate::interrupt::detached;
use crate::log::open_options;
use crate::options::OpenValues;
use crate::raise::{OrRaise, raise};
use crate::rows;
use offsetlog::format::counted;
use offsetlog::{Error, OldScan, TornTail, memory};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::path::PathBuf;
use std::sync::{Mutex, TryLockError};

/// How much is decoded ahead at most.
const AHEAD_BYTES_MAX: usize = 512 * 1024;
const AHEAD_RECORDS_MAX: usize = 2048;

#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct OldLog(offsetlog::OldLog);

#[pymethods]
impl OldLog {
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, options: OpenValues) -> PyResult<Self> {
        let options = open_options(&options);
        detached(py, || offsetlog::OldLog::open(&path, &options))
            .or_raise(py)
            .map(Self)
    }

    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        path_text(py, self.0.path())
    }

    #[getter]
    fn topic(&self) -> &str {
        self.0.topic()
    }

    #[getter]
    fn partition(&self) -> i32 {
        self.0.partition()
    }

    #[getter]
    fn start(&self) -> i64 {
        self.0.start()
    }

    #[getter]
    fn end(&self) -> i64 {
        self.0.end()
    }

    #[getter]
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    /// Gives lists of messages, first those of one entry.
    #[pyo3(signature = (start))]
    fn scan(&self, py: Python<'_>, start: Option<i64>) -> PyResult<OldMessages> {
        let scan = self.0.scan(start).or_raise(py)?;
        Ok(OldMessages(Mutex::new(Progress {
            scan: Some(scan),
            torn_tail: None,
            failure: None,
            want: 1,
        })))
    }
}

struct Progress {
    scan: Option<OldScan>,
    /// What the scan left out at the end.
    torn_tail: Option<TornTail>,
    failure: Option<Error>,
    /// Messages to decode at least before the interpreter is taken back: grows, so that the first one comes soon.
    want: usize,
}

/// Messages decoded ahead: offset, next offset, and where the value ends in the bytes.
#[derive(Default)]
struct Ahead {
    bytes: Vec<u8>,
    messages: Vec<(i64, i64, usize)>,
}

impl Progress {
    /// Decodes whole entries; leaves no scan at the end or where an error is all that is left.
    fn refill(&mut self) -> Ahead {
        let mut ahead = Ahead::default();
        if let Some(scan) = self.scan.as_mut() {
            match decode(scan, &mut ahead, self.want) {
                Ok(true) => self.want = (self.want * 4).min(AHEAD_RECORDS_MAX),
                Ok(false) => {
                    self.torn_tail = scan.torn_tail().cloned();
                    self.scan = None;
                }
                Err(error) => {
                    self.scan = None;
                    self.failure = Some(error);
                }
            }
        }
        ahead
    }
}

fn decode(scan: &mut OldScan, ahead: &mut Ahead, want: usize) -> Result<bool, Error> {
    while ahead.messages.len() < want && ahead.bytes.len() < AHEAD_BYTES_MAX {
        let Some(entry) = scan.next_entry()? else {
            return Ok(false);
        };
        for record in entry.records() {
            memory::extend(&mut ahead.bytes, record.value)?;
            let end = ahead.bytes.len();
            ahead
                .messages
                .push((record.offset, record.next_offset, end));
        }
    }
    Ok(true)
}

/// Iterates over lists of messages. One thread at a time.
#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct OldMessages(Mutex<Progress>);

#[pymethods]
impl OldMessages {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Words about the unfinished end of the last file, once everything before it was given; `None` without one.
    fn torn_tail(&self) -> PyResult<Option<String>> {
        let progress = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(convert::shared_iterator()),
        };
        let words = |torn: &TornTail| {
            format!(
                "left out: {} at the end of {}, from position {}: {}",
                counted(torn.bytes, "byte"),
                torn.path.display(),
                torn.position,
                torn.reason
            )
        };
        Ok(progress.torn_tail.as_ref().map(words))
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Vec<rows::OldRecord>>> {
        let mut guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(convert::shared_iterator()),
        };
        let progress = &mut *guard;
        loop {
            let ahead = detached(py, || progress.refill());
            if !ahead.messages.is_empty() {
                return message_rows(py, &ahead).map(Some);
            }
            if let Some(error) = progress.failure.take() {
                return Err(raise(py, &error));
            }
            if progress.scan.is_none() {
                return Ok(None);
            }
        }
    }
}

fn message_rows(py: Python<'_>, ahead: &Ahead) -> PyResult<Vec<rows::OldRecord>> {
    let mut start = 0;
    let rows = ahead.messages.iter().map(|&(offset, next_offset, end)| {
        let value = ahead.bytes.get(start..end).unwrap_or_default();
        start = end;
        Ok(rows::OldRecord {
            offset,
            next_offset,
            value: convert::bytes(py, value)?.unbind(),
        })
    });
    rows.collect()
}
