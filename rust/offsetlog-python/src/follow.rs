//! Iterating the records that are there, and then those that come.

use crate::convert;
use crate::interrupt::{detached, interrupt};
use crate::raise::{OrRaise, is_of};
use crate::record::Record;
use crate::records::Records;
use offsetlog::Error;
use pyo3::prelude::*;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// Iterates records as logs grow. Can continue when its time has passed, and after an error that names an offset to continue from. One
/// thread at a time.
#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct Follow(Mutex<Following>);

struct Following {
    /// `None` after an error that ended it.
    follow: Option<offsetlog::Follow>,
    records: Option<Records>,
    /// How long to wait for the next record.
    at_most: Option<Duration>,
    /// How many records are still wanted.
    left: Option<u64>,
}

impl Follow {
    pub(crate) fn new(
        follow: offsetlog::Follow,
        at_most: Option<Duration>,
        left: Option<u64>,
    ) -> Self {
        Self(Mutex::new(Following {
            follow: Some(follow),
            records: None,
            at_most,
            left,
        }))
    }
}

impl Following {
    fn end(&mut self) {
        (self.follow, self.records) = (None, None);
    }

    fn next_record(&mut self, py: Python<'_>) -> PyResult<Result<Option<Py<Record>>, Error>> {
        if self.left == Some(0) {
            let Some(follow) = &mut self.follow else {
                return Ok(Ok(None));
            };
            return Ok(detached(py, || follow.check()).map(|()| None));
        }
        loop {
            if let Some(records) = &mut self.records {
                match records.next_record(py)? {
                    Ok(None) => self.records = None,
                    next => return Ok(next),
                }
            }
            let Some(follow) = &mut self.follow else {
                return Ok(Ok(None));
            };
            match detached(py, || follow.next_scan(self.at_most)) {
                Ok(Some(scan)) => self.records = Some(Records::new(scan, interrupt())),
                Ok(None) => return Ok(Ok(None)),
                Err(error) => return Ok(Err(error)),
            }
        }
    }
}

#[pymethods]
impl Follow {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<Record>>> {
        let mut following = match self.0.try_lock() {
            Ok(following) => following,
            Err(TryLockError::Poisoned(poisoned)) => {
                let mut following = poisoned.into_inner();
                following.end();
                following
            }
            Err(TryLockError::WouldBlock) => return Err(convert::shared_iterator()),
        };
        // The guard itself must not go along where the interpreter is let go.
        let following: &mut Following = &mut following;
        let next = following.next_record(py).and_then(|next| next.or_raise(py));
        match &next {
            Ok(Some(_)) => following.left = following.left.map(|left| left - 1),
            Ok(None) => {}
            Err(raised) if is_of(py, raised, "OffsetOutOfRangeError") => following.records = None,
            // Records may have been read that were not returned.
            Err(_) => following.end(),
        }
        next
    }
}
