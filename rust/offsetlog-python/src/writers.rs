//! The writers of a log that are not closed yet. Closing the log appends what they hold; what could not be appended is told.

use crate::callback;
use crate::raise::raise;
use crate::writer::Shared;
use offsetlog::format::counted;
use offsetlog::{Error, ErrorKind};
use pyo3::exceptions::PyResourceWarning;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString, PyTuple};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Of one log, or of all logs of a log dir.
#[derive(Clone, Default)]
pub(crate) struct Writers(Arc<Mutex<Vec<Weak<Shared>>>>);

/// Records that waited and are not in the log.
pub(crate) struct Lost {
    pub(crate) path: PathBuf,
    pub(crate) records: usize,
    pub(crate) error: Error,
}

impl Writers {
    pub(crate) fn add(&self, writer: &Arc<Shared>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(writer));
    }

    /// Appends what the writers of the log at `path` hold, or of all logs, and ends them. Each is ended, whatever happens to another.
    pub(crate) fn end(&self, py: Python<'_>, path: Option<&Path>) -> Vec<Lost> {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut lost = Vec::new();
        for known in all {
            let Some(writer) = known.upgrade() else {
                continue;
            };
            if path.is_some_and(|path| path != writer.path()) {
                self.add(&writer);
                continue;
            }
            lost.extend(writer.end(py).err());
        }
        lost
    }
}

/// What closing raises: the loss first, where there is one, with the number of records. A log that was closed before is one whose topic was
/// deleted: what waited for it went with the other records, and the logger says so.
pub(crate) fn closed(py: Python<'_>, lost: Vec<Lost>, closed: Result<(), Error>) -> PyResult<()> {
    let (gone, lost): (Vec<Lost>, Vec<Lost>) = lost
        .into_iter()
        .partition(|each| matches!(each.error.kind(), ErrorKind::Closed));
    for each in gone {
        let text = format!(
            "{}: {} that waited in a Writer went with the topic",
            each.path.display(),
            counted(each.records, "record")
        );
        log(py, "warning", &text);
    }
    let records: usize = lost.iter().map(|each| each.records).sum();
    let Some(first) = lost.into_iter().next() else {
        return closed.map_err(|error| raise(py, &error));
    };
    let raised = raise(py, &first.error);
    let mut notes = Vec::new();
    if records > 0 {
        notes.push(format!(
            "{} that waited in a Writer could not be appended when the log was closed, and {} not in the log",
            counted(records, "record"),
            if records == 1 { "is" } else { "are" }
        ));
    }
    if let Err(error) = closed {
        notes.push(format!("closing failed too: {error}"));
    }
    for note in notes {
        raised.value(py).call_method1("add_note", (note,))?;
    }
    Err(raised)
}

/// Says in the logger that nobody waits for an answer about these records any more.
pub(crate) fn log(py: Python<'_>, level: &str, text: &str) {
    unless_raised(py, try_log(py, level, text));
}

/// Warns of a writer that nobody has any more, or at the end of the program, as of a file that was not closed.
pub(crate) fn warn(py: Python<'_>, text: &str) {
    // Python may be about to raise something else here.
    let pending = PyErr::take(py);
    unless_raised(py, try_warn(py, text));
    log(py, "warning", text);
    if let Some(pending) = pending {
        pending.restore(py);
    }
}

fn unless_raised(py: Python<'_>, told: PyResult<()>) {
    if let Err(failure) = told {
        failure.write_unraisable(py, None);
    }
}

fn try_log(py: Python<'_>, level: &str, text: &str) -> PyResult<()> {
    let logger = PyModule::import(py, "logging")?.call_method1("getLogger", ("offsetlog",))?;
    let arguments = PyTuple::new(py, [text])?;
    callback::call(&logger.getattr(level)?, &arguments).map(drop)
}

fn try_warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let warn = PyModule::import(py, "warnings")?.getattr("warn")?;
    let category = py.get_type::<PyResourceWarning>().into_any();
    let text = PyString::new(py, text).into_any();
    let arguments = PyTuple::new(py, [text, category])?;
    callback::call(&warn, &arguments).map(drop)
}
