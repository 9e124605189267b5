//! A clock that is Python's: asked once by each call that needs the time, before anything is changed, so that what it raises ends the call.

use crate::callback;
use crate::interrupt::detached;
use offsetlog::{Clock, OpenOptions};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// What the clock said to the call that this thread is in.
    static TOLD: Cell<Option<i64>> = const { Cell::new(None) };
}

/// The clock of a log, as the engine asks it, and what it is in Python.
#[derive(Clone)]
pub(crate) struct LogClock {
    engine: Clock,
    python: Option<Arc<Py<PyAny>>>,
}

impl LogClock {
    /// Makes `clock` that of `options`, whose own holds without.
    pub(crate) fn of(options: &mut OpenOptions, clock: Option<Py<PyAny>>) -> Self {
        let python = clock.map(Arc::new);
        if let Some(python) = &python {
            options.clock = engine_clock(Arc::clone(python));
        }
        Self {
            engine: Arc::clone(&options.clock),
            python,
        }
    }

    /// Milliseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        (self.engine)()
    }

    /// The same, as one call is told it.
    ///
    /// # Errors
    /// What the clock raises.
    pub(crate) fn told(&self, py: Python<'_>) -> PyResult<i64> {
        match &self.python {
            Some(clock) => asked(py, clock),
            None => Ok(self.now()),
        }
    }

    /// Runs `work` without the interpreter, with Ctrl-C watched, at the time that the clock says now.
    ///
    /// # Errors
    /// What the clock raises; `work` has not begun then.
    pub(crate) fn timed<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce() -> T + Send,
    ) -> PyResult<T> {
        let Some(clock) = &self.python else {
            return Ok(detached(py, work));
        };
        let told = asked(py, clock)?;
        Ok(detached(py, move || {
            struct Over(Option<i64>);
            impl Drop for Over {
                fn drop(&mut self) {
                    TOLD.set(self.0);
                }
            }
            let _over = Over(TOLD.replace(Some(told)));
            work()
        }))
    }
}

/// What the clock says, in words of ours where that is no time.
fn asked(py: Python<'_>, clock: &Py<PyAny>) -> PyResult<i64> {
    let told = callback::call(clock.bind(py), &PyTuple::empty(py))?;
    told.extract::<i64>().map_err(|error| {
        let found = told.repr().map(|text| text.to_string());
        let text = format!(
            "clock gave {}, an int of ms since 1970 of at most 64 bits expected",
            found.unwrap_or_default()
        );
        if error.is_instance_of::<PyOverflowError>(py) {
            PyOverflowError::new_err(text)
        } else {
            PyTypeError::new_err(text)
        }
    })
}

/// Outside of [`LogClock::timed`] (a timer, a roll in the background) there is no caller to raise in: the failure is reported as one that
/// cannot be raised, and the system's time is used.
fn engine_clock(clock: Arc<Py<PyAny>>) -> Clock {
    Arc::new(move || {
        TOLD.get().unwrap_or_else(|| {
            Python::try_attach(|py| {
                asked(py, &clock)
                    .map_err(|error| error.write_unraisable(py, Some(clock.bind(py))))
                    .ok()
            })
            .flatten()
            .unwrap_or_else(offsetlog::disk::wall_clock)
        })
    })
}
