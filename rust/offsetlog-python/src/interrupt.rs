//! Ctrl-C while the engine works: the engine asks every few MiB, and at most every 50 ms Python's signal handlers run.
//!
//! Python runs signal handlers on its main thread only and only with the interpreter attached. A thread asks here only while
//! it is inside [`detached`] or [`watched`]: threads of the engine's own never attach, so none of them can wait for an
//! interpreter that waits for it.

use offsetlog::Interrupt;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long Ctrl-C may wait for an answer at most, give or take the engine's own steps.
const CHECK_EVERY: Duration = Duration::from_millis(50);

thread_local! {
    /// Whether this thread may attach: how many calls of [`watched`] it is inside.
    static WATCHED: Cell<usize> = const { Cell::new(0) };
    static CHECKED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// What a signal handler raised, kept until the engine has come back with `Interrupted`.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs `work` without the interpreter, with Ctrl-C watched.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(|| watched(work))
}

/// Runs `work` with Ctrl-C watched. The caller knows that this thread may attach.
pub(crate) fn watched<T>(work: impl FnOnce() -> T) -> T {
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            WATCHED.set(WATCHED.get() - 1);
        }
    }
    WATCHED.set(WATCHED.get() + 1);
    let _inside = Inside;
    work()
}

/// The question that the engine asks: whether to stop.
pub(crate) fn interrupt() -> Interrupt {
    Arc::new(|| {
        if WATCHED.get() == 0 {
            return false;
        }
        let now = Instant::now();
        if CHECKED
            .get()
            .is_some_and(|checked| now.duration_since(checked) < CHECK_EVERY)
        {
            return false;
        }
        CHECKED.set(Some(now));
        // `None` while the interpreter shuts down: there is nobody left to stop for.
        #[expect(
            clippy::redundant_closure_for_method_calls,
            reason = "the method itself has one lifetime, not any"
        )]
        match Python::try_attach(|py| py.check_signals()) {
            Some(Err(raised)) => {
                keep(raised);
                true
            }
            _ => false,
        }
    })
}

/// What the signal handler raised on this thread, if the engine came back without `Interrupted`.
pub(crate) fn raised_if_any() -> Option<PyErr> {
    RAISED.take()
}

/// Keeps what was raised on this thread for the one who comes back with `Interrupted`.
pub(crate) fn keep(raised: PyErr) {
    RAISED.set(Some(raised));
}

/// What the signal handler raised on this thread; `KeyboardInterrupt` if that is gone.
pub(crate) fn raised() -> PyErr {
    RAISED
        .take()
        .unwrap_or_else(|| PyKeyboardInterrupt::new_err(()))
}
