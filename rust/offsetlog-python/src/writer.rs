//! `Writer`: many small appends gathered into batches by size and by time.

use crate::appender::{Appender, HeaderRow, codec, header_views, info_row};
use crate::clock::LogClock;
use crate::interrupt::detached;
use crate::raise::{OrRaise, raise};
use crate::rows;
use offsetlog::{AppendInfo, AppendOptions, BatchBuilder, Error, Producer};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct Writer(Arc<Shared>);

/// What the writer and its timer share.
struct Shared {
    log: offsetlog::LogWriter,
    clock: LogClock,
    options: AppendOptions,
    batch_bytes: usize,
    linger: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    batch: BatchBuilder,
    /// When the oldest record waiting came.
    since: Option<Instant>,
    timer: bool,
    closed: bool,
    /// A failure of the timer's, for the next call.
    failed: Option<Error>,
    last: Option<AppendInfo>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, state: &mut State) -> Result<(), Error> {
        state.since = None;
        if state.batch.is_empty() {
            return Ok(());
        }
        let appended = self.log.append(&mut state.batch, &self.options);
        // Records that the log refused would be refused again: they go, and the caller is told.
        state.batch.clear();
        state.last = Some(appended?);
        Ok(())
    }

    /// Appends what has waited long enough; ends when nothing waits.
    fn keep_time(&self) {
        let mut state = self.state();
        while let Some(since) = state.since {
            let waited = since.elapsed();
            if waited < self.linger && !state.closed {
                let (next, _) = self
                    .changed
                    .wait_timeout(state, self.linger.saturating_sub(waited))
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
        let batch = BatchBuilder::new(codec(compression)?, Producer::default());
        Ok(Self(Arc::new(Shared {
            log,
            clock,
            options: AppendOptions {
                leader_epoch,
                flush: false,
            },
            batch_bytes,
            linger: Duration::from_millis(linger_ms),
            state: Mutex::new(State {
                batch,
                since: None,
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
            None => shared.clock.timed(py, || shared.clock.now())?,
        };
        // The lock is held by the timer only while it appends, and then we wait without the interpreter.
        let push = |state: &mut State| -> Result<bool, Error> {
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            // Together with others it would take them along when the batch is refused.
            shared.log.check_headers(views.len())?;
            state
                .batch
                .push(timestamp, key.as_deref(), value.as_deref(), &views)?;
            if state.batch.size_bytes() >= shared.batch_bytes {
                return Ok(true);
            }
            state.since.get_or_insert_with(Instant::now);
            Ok(false)
        };
        let due = match shared.state.try_lock() {
            Ok(mut state) => push(&mut state).map(|due| (due, self.start_timer(&mut state, due))),
            Err(_) => detached(py, || {
                let mut state = shared.state();
                push(&mut state).map(|due| (due, self.start_timer(&mut state, due)))
            }),
        };
        let (due, ()) = due.or_raise(py)?;
        if due {
            let append = || shared.append(&mut shared.state());
            return shared.clock.timed(py, append)?.or_raise(py);
        }
        Ok(())
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
        self.0.state().closed = true;
        self.0.changed.notify_all();
        flushed.map(|_| ())
    }
}

impl Writer {
    /// A timer runs only while records wait.
    fn start_timer(&self, state: &mut State, due: bool) {
        if due || state.timer || self.0.linger.is_zero() {
            return;
        }
        let shared = Arc::clone(&self.0);
        let started = std::thread::Builder::new()
            .name("offsetlog-linger".to_owned())
            .spawn(move || shared.keep_time());
        state.timer = started.is_ok();
    }
}
