//! `Writer`: the engine's record accumulator for several Python threads, with a timer for what waits.

use crate::appender::{Appender, HeaderRow, codec, header_views, info_row};
use crate::clock::LogClock;
use crate::interrupt::detached;
use crate::raise::{OrRaise, raise};
use crate::rows;
use offsetlog::{AppendInfo, AppendOptions, Error, RecordAccumulator};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const NOT_TAKEN_NOTE: &str = "the record of this call was not taken";
const WAITS_NOTE: &str = "the record of this call was taken and waits; flush() appends it";

#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct Writer(Arc<Shared>);

/// What the writer and its timer share.
struct Shared {
    log: offsetlog::LogWriter,
    clock: LogClock,
    options: AppendOptions,
    has_linger: bool,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    records: RecordAccumulator,
    timer: bool,
    closed: bool,
    /// A failure of the timer's, for the next call.
    failed: Option<Error>,
    last: Option<AppendInfo>,
}

/// What became of a record that was given to the writer.
enum Taken {
    Waits,
    /// It waits, and its batch is full.
    Full,
    /// Its batch would be too large: those that wait are appended before.
    NoRoom,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, state: &mut State) -> Result<(), Error> {
        let appended = state.records.append_to(&self.log, &self.options);
        let info = match &appended {
            Ok(info) => *info,
            Err(error) => error.appended(),
        };
        state.last = info.or(state.last);
        appended.map(|_| ())
    }

    /// Appends what has waited long enough; ends when nothing waits.
    fn keep_time(&self) {
        let mut state = self.state();
        while let Some(left) = state.records.time_left(Instant::now()) {
            if !left.is_zero() && !state.closed {
                let (next, _) = self
                    .changed
                    .wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner);
                state = next;
                continue;
            }
            if let Err(error) = self.append(&mut state) {
                state.failed.get_or_insert(error);
            }
        }
        state.timer = false;
    }
}

#[pymethods]
impl Writer {
    #[new]
    #[pyo3(signature = (appender, *, batch_bytes, linger_ms, compression, leader_epoch))]
    fn new(
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
        Ok(Self(Arc::new(Shared {
            log,
            clock,
            options: AppendOptions {
                leader_epoch,
                flush: false,
            },
            has_linger: linger.is_some(),
            state: Mutex::new(State {
                records,
                timer: false,
                closed: false,
                failed: None,
                last: None,
            }),
            changed: Condvar::new(),
        })))
    }

    #[pyo3(signature = (value, key, headers, timestamp))]
    fn append(
        &self,
        py: Python<'_>,
        value: Option<PyBackedBytes>,
        key: Option<PyBackedBytes>,
        headers: Option<Vec<HeaderRow>>,
        timestamp: Option<i64>,
    ) -> PyResult<()> {
        let headers = headers.unwrap_or_default();
        let shared = &self.0;
        let views = header_views(&headers);
        let timestamp = match timestamp {
            Some(timestamp) => timestamp,
            None => shared
                .clock
                .timed(py, || shared.clock.now())
                .map_err(|raised| noted(py, raised, NOT_TAKEN_NOTE))?,
        };
        let push = |state: &mut State| -> Result<Taken, Error> {
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            // Together with others it would take them along when the batch is refused.
            shared.log.check_headers(views.len())?;
            let (key, value) = (key.as_deref(), value.as_deref());
            let records = &mut state.records;
            if !records.push(Instant::now, timestamp, key, value, &views)? {
                return Ok(Taken::NoRoom);
            }
            if records.is_full() {
                return Ok(Taken::Full);
            }
            self.start_timer(state);
            Ok(Taken::Waits)
        };
        let append = || shared.append(&mut shared.state());
        // A clock that raises is asked before anything is appended.
        let timed = |note| {
            let appended = shared.clock.timed(py, append);
            appended.map_err(|raised| noted(py, raised, note))
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
                    let appended = timed(WAITS_NOTE).inspect_err(|_| {
                        detached(py, || self.start_timer(&mut shared.state()));
                    });
                    return appended?.or_raise(py);
                }
                Taken::NoRoom => timed(NOT_TAKEN_NOTE)?.map_err(|error| not_taken(py, &error))?,
            }
        }
    }

    /// Appends what waits; gives what the last append did.
    fn flush(&self, py: Python<'_>) -> PyResult<Option<rows::AppendInfo>> {
        let shared = &self.0;
        let append = || {
            let mut state = shared.state();
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            shared.append(&mut state)?;
            Ok(state.last)
        };
        let appended = shared.clock.timed(py, append)?;
        appended
            .map_err(|error| raise(py, &error))
            .map(|last| last.as_ref().map(info_row))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let flushed = self.flush(py);
        let shared = &self.0;
        // The timer may hold the lock while it waits for the interpreter, to ask a clock that is Python.
        detached(py, || shared.state().closed = true);
        shared.changed.notify_all();
        flushed.map(|_| ())
    }
}

impl Writer {
    /// A timer runs only while records wait.
    fn start_timer(&self, state: &mut State) {
        if state.timer || !self.0.has_linger {
            return;
        }
        let shared = Arc::clone(&self.0);
        let started = std::thread::Builder::new()
            .name("offsetlog-linger".to_owned())
            .spawn(move || shared.keep_time());
        state.timer = started.is_ok();
    }
}

/// The exception of a call whose record was not taken, also where it is about records that were given before.
fn not_taken(py: Python<'_>, error: &Error) -> PyErr {
    noted(py, raise(py, error), NOT_TAKEN_NOTE)
}

fn noted(py: Python<'_>, raised: PyErr, note: &str) -> PyErr {
    match raised.value(py).call_method1("add_note", (note,)) {
        Ok(_) => raised,
        Err(failure) => failure,
    }
}
