//! The writers of this process, for its end: what they hold is appended, and threads that do so for writers that nobody has any more are
//! waited for.

use crate::writer::{Ending, Shared};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Locked only with the interpreter attached, and for a moment: a child that Python forks never finds it locked.
static UNCLOSED: Mutex<Unclosed> = Mutex::new(Unclosed {
    writers: Vec::new(),
    look_at: LOOK_AT_MIN,
});

const LOOK_AT_MIN: usize = 64;

struct Unclosed {
    writers: Vec<Weak<Shared>>,
    /// With so many, those that are gone are taken out.
    look_at: usize,
}

/// Has a writer ended with the process.
pub(crate) fn remember(_: Python<'_>, writer: &Arc<Shared>) {
    let mut unclosed = UNCLOSED.lock().unwrap_or_else(PoisonError::into_inner);
    if unclosed.writers.len() >= unclosed.look_at {
        unclosed.writers.retain(|known| known.strong_count() > 0);
        unclosed.look_at = LOOK_AT_MIN.max(unclosed.writers.len() * 2);
    }
    unclosed.writers.push(Arc::downgrade(writer));
}

/// Appends what waits in the writers that this process made, and ends them unless they `stay_open`. Each gets its turn, whatever happens to
/// another; what happened is in the logger, and the first of it is raised.
#[pyfunction]
#[pyo3(signature = (*, stay_open))]
pub(crate) fn end_writers(py: Python<'_>, stay_open: bool) -> PyResult<()> {
    let unclosed = UNCLOSED.lock().unwrap_or_else(PoisonError::into_inner);
    let writers: Vec<Arc<Shared>> = unclosed.writers.iter().filter_map(Weak::upgrade).collect();
    drop(unclosed);
    let how = if stay_open {
        Ending::BeforeProcess
    } else {
        Ending::WithProcess
    };
    let mut first = Ok(());
    for writer in writers {
        first = first.and(writer.end_with_process(py, how));
    }
    first
}
