//! The writers of a log that are not closed yet. Closing the log appends what they hold; what could not be appended is told.

use crate::callback;
use crate::raise::raise;
use crate::writer::Shared;
use offsetlog::format::counted;
use offsetlog::{Error, ErrorKind};
use pyo3::exceptions::PyResourceWarning;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString, PyTuple};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Of one log, or of all logs of a log dir.
#[derive(Clone, Default)]
pub(crate) struct Writers(Arc<Mutex<Vec<Weak<Shared>>>>);

/// Records that waited and are not in the log.
pub(crate) struct Lost {
    pub(crate) path: PathBuf,
    /// How many, where that is known.
    pub(crate) records: Option<usize>,
    pub(crate) error: Error,
    /// Their topic was deleted.
    pub(crate) with_its_topic: bool,
}

impl Lost {
    /// Those of a later loss, too.
    pub(crate) fn add(&mut self, next: &Self) {
        self.records = self.records.zip(next.records).map(|(all, more)| all + more);
    }

    pub(crate) fn log_gone(&self, py: Python<'_>) {
        let text = format!(
            "{}: {} that waited in a Writer went with the topic",
            self.path.display(),
            counted(self.records.unwrap_or_default(), "record")
        );
        log(py, "warning", &text);
    }
}

impl Writers {
    pub(crate) fn add(&self, writer: &Arc<Shared>) {
        let mut all = self.all();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(writer));
    }

    /// Appends what the writers of the log at `path` hold, or of all logs, and ends them. Each is ended, whatever happens to another. They
    /// stay in the list: one who closes at the same time waits for what is appended here.
    pub(crate) fn end(&self, py: Python<'_>, path: Option<&Path>) -> Vec<Lost> {
        let writers = self.those(|writer| path.is_none_or(|path| path == writer.path()));
        let ended = writers.iter().map(|writer| writer.end(py));
        ended.filter_map(Result::err).collect()
    }

    /// Those of a topic's logs.
    pub(crate) fn of_topic(&self, topic: &str) -> Vec<Arc<Shared>> {
        self.those(|writer| {
            let name = writer.path().file_name().and_then(OsStr::to_str);
            name.and_then(|name| name.rsplit_once('-'))
                .is_some_and(|(of, _)| of == topic)
        })
    }

    fn those(&self, is_one: impl Fn(&Shared) -> bool) -> Vec<Arc<Shared>> {
        let mut writers: Vec<_> = self.all().iter().filter_map(Weak::upgrade).collect();
        // The list is free again: the last of a writer may go here, and the clock with it, which is Python.
        writers.retain(|writer| is_one(writer));
        writers
    }

    fn all(&self) -> MutexGuard<'_, Vec<Weak<Shared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What closing raises: the loss first, where there is one, with the number of records. What waited for a topic that was deleted went with
/// its other records, and the logger says so.
pub(crate) fn closed(py: Python<'_>, lost: Vec<Lost>, closed: Result<(), Error>) -> PyResult<()> {
    let (gone, mut lost): (Vec<Lost>, Vec<Lost>) =
        lost.into_iter().partition(|each| each.with_its_topic);
    for each in gone {
        each.log_gone(py);
    }
    let records: usize = lost.iter().filter_map(|each| each.records).sum();
    // Ctrl-C is not put off.
    lost.sort_by_key(|each| !matches!(each.error.kind(), ErrorKind::Interrupted));
    let mut lost = lost.into_iter();
    let Some(first) = lost.next() else {
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
    let is_interrupted = matches!(first.error.kind(), ErrorKind::Interrupted);
    if let Some(next) = lost.next().filter(|_| is_interrupted) {
        notes.push(format!("{}: {}", next.path.display(), next.error));
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
