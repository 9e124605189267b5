//! Python's progress: the work calls it, and what it raises ends the work and is raised again.

use crate::callback;
use crate::raise::OrRaise;
use offsetlog::{
    ConvertProgress, DirectoryProgress, Error, ErrorKind, Interrupt, PartitionProgress, Progress,
    StepProgress, TopicPartition,
};
use offsetlog_ops::RestoreProgress;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// What Python's progress raised first.
#[derive(Clone, Default)]
pub(crate) struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    fn is_some(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// Takes it.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// It, or else the outcome.
    pub(crate) fn or<T>(&self, py: Python<'_>, outcome: Result<T, Error>) -> PyResult<T> {
        match self.take() {
            Some(error) => Err(error),
            None => outcome.or_raise(py),
        }
    }

    /// Calls Python's function, unless one raised before. Whether none has.
    pub(crate) fn tell<T>(&self, function: &Py<PyAny>, arguments: T) -> bool
    where
        T: for<'py> IntoPyObject<
                'py,
                Target = PyTuple,
                Output = Bound<'py, PyTuple>,
                Error = PyErr,
            >,
    {
        let mut raised = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if raised.is_some() {
            return false;
        }
        let outcome = Python::try_attach(|py| {
            let arguments = arguments.into_pyobject(py)?;
            callback::call(function.bind(py), &arguments).map(drop)
        });
        if let Some(Err(error)) = outcome {
            *raised = Some(error);
        }
        raised.is_none()
    }

    /// An interrupt that also ends the work when Python's progress raised.
    pub(crate) fn interrupts(&self, interrupt: Option<Interrupt>) -> Interrupt {
        let raised = self.clone();
        Arc::new(move || {
            raised.is_some() || interrupt.as_ref().is_some_and(|interrupt| interrupt())
        })
    }

    /// A progress of done and total.
    pub(crate) fn of_bytes(&self, progress: Option<Py<PyAny>>) -> Option<ConvertProgress> {
        let (progress, raised) = (progress?, self.clone());
        Some(Arc::new(move |done, total| {
            raised.tell(&progress, (done, total));
        }))
    }

    /// A progress of the bytes since it was called last.
    pub(crate) fn of_more(&self, progress: Option<Py<PyAny>>) -> Option<Progress> {
        let (progress, raised) = (progress?, self.clone());
        Some(Arc::new(move |more| {
            raised.tell(&progress, (more,));
        }))
    }

    /// A progress of done, total and the name of what is at work.
    pub(crate) fn of_names(&self, progress: Option<Py<PyAny>>) -> Option<RestoreProgress> {
        let (progress, raised) = (progress?, self.clone());
        Some(Arc::new(move |done, total, name: &str| {
            raised.tell(&progress, (done, total, name));
        }))
    }

    /// A progress of done, total and the partition that the next step is at.
    pub(crate) fn of_partitions(&self, progress: Option<Py<PyAny>>) -> PartitionProgress {
        self.of_steps(progress, |at: &TopicPartition| at.to_string().into())
    }

    /// A progress of done, total and the directory that the next step is at.
    pub(crate) fn of_directories(&self, progress: Option<Py<PyAny>>) -> DirectoryProgress {
        self.of_steps(progress, |at: &Path| at.as_os_str().to_owned())
    }

    fn of_steps<T: ?Sized>(
        &self,
        progress: Option<Py<PyAny>>,
        name: impl Fn(&T) -> OsString + Send + Sync + 'static,
    ) -> StepProgress<T> {
        let Some(progress) = progress else {
            return StepProgress::default();
        };
        let raised = self.clone();
        StepProgress::new(move |done, total, thing: &T| {
            if raised.tell(&progress, (done, total, name(thing))) {
                Ok(())
            } else {
                Err(Error::new(ErrorKind::Interrupted))
            }
        })
    }
}
