//! `Writer`: the engine's record accumulator for several Python threads, with a timer for what waits. Public as `offsetlog.Writer`:
//! a method in Python around `append` would cost as much as the append.

use crate::appender::{Appender, codec, info_row};
use crate::clock::LogClock;
use crate::interrupt::detached;
use crate::raise::{OrRaise, misuse, noted, raise};
use crate::record_arguments::RecordArguments;
use crate::rows;
use crate::writers::{self, Lost};
use offsetlog::disk::process_id;
use offsetlog::format::counted;
use offsetlog::{AppendInfo, AppendOptions, Error, RecordAccumulator};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
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
    /// The process that made it.
    process: u32,
    closed: AtomicBool,
}

/// What the writer and its timer share.
pub(crate) struct Shared {
    path: PathBuf,
    clock: LogClock,
    options: AppendOptions,
    has_linger: bool,
    /// Whether nobody has the writer any more, to whom a failure could be told.
    forgotten: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// `None` once the writer is closed and its timer has ended: a writer that is done holds no log open.
    log: Option<offsetlog::LogWriter>,
    records: RecordAccumulator,
    timer: bool,
    closed: bool,
    /// A failure of the timer's, for the next call.
    failed: Option<Lost>,
    last: Option<AppendInfo>,
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

impl Shared {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, state: &mut State) -> Result<(), Error> {
        let Some(log) = &state.log else {
            return Ok(());
        };
        let appended = state.records.append_to(log, &self.options);
        let info = match &appended {
            Ok(info) => *info,
            Err(error) => error.appended(),
        };
        state.last = info.or(state.last);
        appended.map(|_| ())
    }

    /// Appends; a failure has the number of records that are not in the log.
    fn append_all(&self, state: &mut State) -> Result<(), Lost> {
        let waiting = state.records.len();
        self.append(state).map_err(|error| Lost {
            path: self.path.clone(),
            records: if error.is_appended() { 0 } else { waiting },
            error,
        })
    }

    /// Appends what waits and ends the writer, as its log is about to be closed. A clock that raises is asked again by the engine, which
    /// takes the system's time then: no record is lost for that.
    ///
    /// # Errors
    /// What nobody has been told yet, with the number of records that are not in the log.
    pub(crate) fn end(&self, py: Python<'_>) -> Result<(), Lost> {
        let end = || self.end_now();
        self.clock
            .timed(py, end)
            .unwrap_or_else(|_| detached(py, end))
    }

    fn end_now(&self) -> Result<(), Lost> {
        let mut state = self.state();
        let appended = self.append_all(&mut state);
        let failed = state.failed.take();
        state.closed = true;
        state.end_if_closed();
        drop(state);
        self.changed.notify_all();
        match (failed, appended) {
            (None, appended) => appended,
            (Some(failed), Ok(())) => Err(failed),
            (Some(failed), Err(next)) => Err(Lost {
                records: failed.records + next.records,
                ..failed
            }),
        }
    }

    /// Appends what has waited long enough; ends when nothing waits.
    fn keep_time(&self) {
        let mut state = self.state();
        while !state.records.is_empty() {
            let left = if state.closed {
                Some(Duration::ZERO)
            } else {
                state.records.time_left(Instant::now())
            };
            let Some(left) = left else {
                break;
            };
            if !left.is_zero() {
                let (next, _) = self
                    .changed
                    .wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner);
                state = next;
                continue;
            }
            if let Err(lost) = self.append_all(&mut state) {
                match &mut state.failed {
                    Some(failed) => failed.records += lost.records,
                    none => *none = Some(lost),
                }
            }
        }
        state.timer = false;
        state.end_if_closed();
        let untold = self
            .forgotten
            .load(Ordering::Acquire)
            .then(|| state.failed.take());
        drop(state);
        if let Some(lost) = untold.flatten() {
            Python::try_attach(|py| writers::log(py, "error", &self.told(&lost)));
        }
    }

    fn told(&self, lost: &Lost) -> String {
        format!(
            "{}: {} of a Writer that was not closed could not be appended: {}",
            self.path.display(),
            counted(lost.records, "record"),
            lost.error
        )
    }
}

impl State {
    fn end_if_closed(&mut self) {
        if self.closed && !self.timer {
            self.log = None;
        }
    }
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
            self.start_timer(state);
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
                        detached(py, || self.start_timer(&mut shared.state()));
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
        if self.closed.swap(true, Ordering::AcqRel) || self.process != process_id() {
            return Ok(());
        }
        // With its log, as a rule: no clock is asked any more.
        let is_done = detached(py, || {
            let state = self.shared.state();
            state.closed && state.records.is_empty() && state.failed.is_none()
        });
        if is_done {
            return Ok(());
        }
        let flushed = self.flush_waiting(py);
        // What waits still if a clock raised.
        let waiting = detached(py, || self.shared.state().records.len());
        let ended = self.shared.end(py);
        match (flushed, ended) {
            (Ok(_), ended) => ended.map_err(|lost| raise(py, &lost.error)),
            (Err(raised), Ok(())) if waiting > 0 => Err(noted(py, raised, ENDED_NOTE)),
            (Err(raised), _) => Err(raised),
        }
    }

    /// Close it as the program ends, with a warning if records wait that nobody appended.
    #[pyo3(name = "_end")]
    fn end_at_exit(&self, py: Python<'_>) -> PyResult<()> {
        if self.closed.load(Ordering::Acquire) || self.process != process_id() {
            return Ok(());
        }
        let waiting = detached(py, || self.shared.state().records.len());
        if waiting > 0 {
            writers::warn(py, &self.unclosed(waiting, "appended now"));
        }
        self.close(py)
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

/// A writer that nobody has any more. It appends nothing here: this may be in the middle of anything, also of the engine's work on this log.
impl Drop for Writer {
    fn drop(&mut self) {
        if self.closed.load(Ordering::Acquire) || self.process != process_id() {
            return;
        }
        let shared = &self.shared;
        shared.forgotten.store(true, Ordering::Release);
        let mut state = match shared.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The timer has it, and appends all that waits.
            Err(TryLockError::WouldBlock) => return,
        };
        state.closed = true;
        let waiting = state.records.len();
        if waiting > 0 && !state.timer {
            Self::start_thread(shared, &mut state);
        }
        let is_appended = state.timer;
        let untold = if is_appended {
            None
        } else {
            state.failed.take()
        };
        state.end_if_closed();
        drop(state);
        shared.changed.notify_all();
        if waiting == 0 && untold.is_none() {
            return;
        }
        Python::try_attach(|py| {
            if waiting > 0 {
                let what = if is_appended {
                    "appended in the background"
                } else {
                    "not in the log"
                };
                writers::warn(py, &self.unclosed(waiting, what));
            }
            if let Some(lost) = &untold {
                writers::warn(py, &shared.told(lost));
            }
        });
    }
}

impl Writer {
    fn unclosed(&self, waiting: usize, what: &str) -> String {
        format!(
            "{}: a Writer was not closed: {} that waited in it {} {what}; close it, or use it in a with block",
            self.shared.path.display(),
            counted(waiting, "record"),
            if waiting == 1 { "is" } else { "are" }
        )
    }

    pub(crate) fn of(
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
        let shared = Shared {
            path: log.log().path().to_path_buf(),
            clock,
            forgotten: AtomicBool::new(false),
            options: AppendOptions {
                leader_epoch,
                flush: false,
            },
            has_linger: linger.is_some(),
            state: Mutex::new(State {
                log: Some(log),
                records,
                timer: false,
                closed: false,
                failed: None,
                last: None,
            }),
            changed: Condvar::new(),
        };
        let shared = Arc::new(shared);
        appender.writers().add(&shared);
        Ok(Self {
            shared,
            process: process_id(),
            closed: AtomicBool::new(false),
        })
    }

    fn check_usable(&self, py: Python<'_>) -> PyResult<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(closed(py));
        }
        if self.process != process_id() {
            let message = format!(
                "the writer was made in process {}; a child process cannot write through its parent's log",
                self.process
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

    /// A timer runs only while records wait.
    fn start_timer(&self, state: &mut State) {
        if !state.timer && self.shared.has_linger {
            Self::start_thread(&self.shared, state);
        }
    }

    fn start_thread(shared: &Arc<Shared>, state: &mut State) {
        let shared = Arc::clone(shared);
        let started = std::thread::Builder::new()
            .name("offsetlog-linger".to_owned())
            .spawn(move || shared.keep_time());
        state.timer = started.is_ok();
    }
}

fn closed(py: Python<'_>) -> PyErr {
    misuse(py, "LogClosedError", "the writer is closed")
}

/// The exception of a call whose record was not taken, even if it is about records that were given before.
fn not_taken(py: Python<'_>, error: &Error) -> PyErr {
    noted(py, raise(py, error), NOT_TAKEN_NOTE)
}
