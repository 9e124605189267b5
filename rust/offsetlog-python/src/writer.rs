//! `Writer`: the engine's record accumulator for several Python threads, with a timer for what waits. Public as `offsetlog.Writer`:
//! a method in Python around `append` would cost as much as the append.

mod shared;

use crate::appender::{Appender, codec, info_row};
use crate::interrupt::{detached, raised_if_any};
use crate::raise::{OrRaise, misuse, noted, raise};
use crate::record_arguments::RecordArguments;
use crate::rows;
use crate::unclosed;
use crate::writers::{self, Lost};
use offsetlog::disk::process_id;
use offsetlog::format::counted;
use offsetlog::{AppendOptions, Error, RecordAccumulator};
use pyo3::prelude::*;
use shared::State;
pub(crate) use shared::{Ending, Shared};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NOT_TAKEN_NOTE: &str = "the record of this call was not taken";
const ENDED_NOTE: &str = "the records that waited were appended at the system's time";
const WAITS_NOTE: &str = "the record of this call was taken and waits; flush() appends it";

/// Many small appends, gathered into batches. Made by ``WritableLog.writer``; safe to use from several threads.
///
/// A record counts as appended when its batch is: at the latest after ``flush``, or when the writer or its log is closed. The offsets
/// come with ``flush``.
#[pyclass(frozen, weakref, module = "offsetlog")]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    closed: AtomicBool,
}

/// What became of a record that was given to the writer.
enum Taken {
    Waits,
    /// It waits, and its batch is full.
    Full,
    /// Its batch would be too large: those that wait are appended before.
    NoRoom,
    /// Another thread has closed the writer meanwhile.
    Closed,
}

#[pymethods]
impl Writer {
    /// Add a record to the batch, which is appended when it is full or has waited long enough.
    #[pyo3(signature = (value, *, key=None, headers=None, timestamp=None),
           text_signature = "($self, value, *, key=None, headers=(), timestamp=None)")]
    fn append(
        &self,
        value: &Bound<'_, PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        timestamp: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = value.py();
        self.check_usable(py)?;
        let headers = match headers {
            Some(headers) if headers.is_truthy()? => Some(headers),
            _ => None,
        };
        let record = RecordArguments::checked(value, key, headers, timestamp)?;
        let shared = &self.shared;
        let timestamp = match record.timestamp {
            Some(timestamp) => timestamp,
            None => shared
                .clock
                .told(py)
                .map_err(|raised| noted(py, raised, NOT_TAKEN_NOTE))?,
        };
        let (key, value, views) = (record.key(), record.value(), record.headers());
        let push = |state: &mut State| -> Result<Taken, Error> {
            if let Some(failed) = state.failed.take() {
                return Err(failed.error);
            }
            let log = match &state.log {
                Some(log) if !state.closed => log,
                _ => return Ok(Taken::Closed),
            };
            // Together with others it would take them along when the batch is refused.
            log.check_headers(views.len())?;
            let records = &mut state.records;
            if !records.push(Instant::now, timestamp, key, value, &views)? {
                return Ok(Taken::NoRoom);
            }
            if records.is_full() {
                return Ok(Taken::Full);
            }
            shared.start_timer(state);
            Ok(Taken::Waits)
        };
        loop {
            // The lock is held by the timer only while it appends, and then we wait without the interpreter.
            let taken = match shared.state.try_lock() {
                Ok(mut state) => push(&mut state),
                Err(_) => detached(py, || push(&mut shared.state())),
            };
            match taken.map_err(|error| not_taken(py, &error))? {
                Taken::Waits => return Ok(()),
                Taken::Full => {
                    let appended = self.append_waiting(py, WAITS_NOTE).inspect_err(|_| {
                        detached(py, || shared.start_timer(&mut shared.state()));
                    });
                    return appended?.or_raise(py);
                }
                Taken::NoRoom => self
                    .append_waiting(py, NOT_TAKEN_NOTE)?
                    .map_err(|error| not_taken(py, &error))?,
                Taken::Closed => return Err(closed(py)),
            }
        }
    }

    /// Append what waits, and return what the last append did; ``None`` before the first.
    fn flush(&self, py: Python<'_>) -> PyResult<Option<rows::AppendInfo>> {
        self.check_usable(py)?;
        if detached(py, || self.shared.state().closed) {
            return Err(closed(py));
        }
        self.flush_waiting(py)
    }

    /// Append what waits and end the writer. Closing twice is fine.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // In a forked child the records that wait are the parent's to append.
        if self.closed.swap(true, Ordering::AcqRel) || self.shared.process != process_id() {
            return Ok(());
        }
        // With its log, as a rule: no clock is asked any more.
        if detached(py, || self.shared.state().is_done(Ending::WithLog)) {
            return Ok(());
        }
        let flushed = self.flush_waiting(py);
        // What waits still if a clock raised.
        let waiting = detached(py, || self.shared.state().records.len());
        let ended = self.shared.end(py);
        match (flushed, ended) {
            (Ok(_), ended) => ended.map_err(|lost| raise(py, &lost.error)),
            (Err(raised), Ok(())) if waiting > 0 => Err(noted(py, raised, ENDED_NOTE)),
            (Err(raised), Ok(())) => Err(raised),
            // The clock raised a second time, behind which they were appended.
            (Err(raised), Err(lost)) if lost.records == Some(0) => {
                drop(raised_if_any());
                Err(noted(py, raised, ENDED_NOTE))
            }
            (Err(raised), Err(lost)) => Err(noted(py, raised, &not_appended(&lost))),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().check_usable(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (kind, error, traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (kind, traceback);
        self.close(py).or_else(|failure| {
            // The records that waited are not in the log. Python sets no context of an error raised here.
            let is_behind = !error.is_none() && !failure.value(py).is(error);
            if is_behind {
                failure.value(py).setattr("__context__", error)?;
            }
            Err(failure)
        })
    }
}

/// What became of records that waited when a writer was closed, beside another error.
fn not_appended(lost: &Lost) -> String {
    let records = lost.records.map_or_else(
        || "records that waited".to_owned(),
        |records| format!("{} that waited", counted(records, "record")),
    );
    format!(
        "not appended, and not in the log: {records}: {}",
        lost.error
    )
}

impl Drop for Writer {
    fn drop(&mut self) {
        let shared = &self.shared;
        if self.closed.load(Ordering::Acquire) || shared.process != process_id() {
            return;
        }
        let Some((waiting, what, untold)) = shared.dropped() else {
            return;
        };
        if waiting == 0 && untold.is_none() {
            return;
        }
        Python::try_attach(|py| {
            if waiting > 0 {
                writers::warn(py, &shared.unclosed(waiting, what));
            }
            if let Some(lost) = &untold {
                writers::warn(py, &shared.told(lost));
            }
        });
    }
}

impl Writer {
    pub(crate) fn of(
        py: Python<'_>,
        appender: &Appender,
        batch_bytes: usize,
        linger_ms: u64,
        compression: Option<&str>,
        leader_epoch: Option<i32>,
    ) -> PyResult<Self> {
        let (log, clock) = appender.engine();
        let linger = Duration::from_millis(linger_ms);
        let linger = (!linger.is_zero()).then_some(linger);
        let records = RecordAccumulator::new(codec(compression)?, batch_bytes, linger);
        let options = AppendOptions {
            leader_epoch,
            flush: false,
        };
        let shared = Shared::new(log, clock, records, options, linger.is_some());
        let shared = Arc::new(shared);
        appender.writers().add(&shared);
        unclosed::remember(py, &shared);
        Ok(Self {
            shared,
            closed: AtomicBool::new(false),
        })
    }

    fn check_usable(&self, py: Python<'_>) -> PyResult<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(closed(py));
        }
        let made_in = self.shared.process;
        if made_in != process_id() {
            let message = format!(
                "the writer was made in process {made_in}; a child process cannot write through its parent's log"
            );
            return Err(misuse(py, "ForkedLogError", &message));
        }
        Ok(())
    }

    /// Appends what waits. The outer error is what a clock in Python raised, with `note`: nothing was appended then.
    fn append_waiting(&self, py: Python<'_>, note: &str) -> PyResult<Result<(), Error>> {
        let shared = &self.shared;
        let append = || shared.append(&mut shared.state());
        let appended = shared.clock.timed(py, append);
        appended.map_err(|raised| noted(py, raised, note))
    }

    fn flush_waiting(&self, py: Python<'_>) -> PyResult<Option<rows::AppendInfo>> {
        let shared = &self.shared;
        let append = || {
            let mut state = shared.state();
            if let Some(failed) = state.failed.take() {
                return Err(failed.error);
            }
            shared.append(&mut state)?;
            Ok(state.last)
        };
        let appended = shared.clock.timed(py, append)?;
        appended
            .map_err(|error| raise(py, &error))
            .map(|last| last.as_ref().map(info_row))
    }
}

fn closed(py: Python<'_>) -> PyErr {
    misuse(py, "LogClosedError", "the writer is closed")
}

/// The exception of a call whose record was not taken, even if it is about records that were given before.
fn not_taken(py: Python<'_>, error: &Error) -> PyErr {
    noted(py, raise(py, error), NOT_TAKEN_NOTE)
}
