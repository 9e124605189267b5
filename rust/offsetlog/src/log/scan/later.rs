//! Logs that a scan opens when it comes to them, and lets go of behind their end.

use super::{Scan, ScanOptions, ScanRange};
use crate::error::Result;
use crate::log::Log;
use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A log that is opened when it is wanted; none where there is no such log any more, and that is no error.
#[derive(Clone)]
pub struct LaterLog(Arc<dyn Fn() -> Result<Option<Log>> + Send + Sync>);

impl LaterLog {
    pub(crate) fn new(open: impl Fn() -> Result<Option<Log>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    /// Opens it.
    ///
    /// # Errors
    /// As whoever made it says.
    pub fn open(&self) -> Result<Option<Log>> {
        self.0()
    }
}

impl fmt::Debug for LaterLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LaterLog")
    }
}

impl Scan {
    /// Scans whole logs one after another, each of which is opened when the scan comes to it: only one is held at a time. `start` and
    /// `stop` of the options are not used.
    ///
    /// # Errors
    /// As [`Log::scan`].
    pub fn over_logs(logs: Vec<LaterLog>, options: &ScanOptions) -> Result<Self> {
        let mut scan = Self::over(Vec::new(), options)?;
        scan.ranges.later = logs.into();
        Ok(scan)
    }
}

/// What a scan has still to read.
#[derive(Debug)]
pub(super) struct Ranges {
    open: VecDeque<ScanRange>,
    /// Behind those.
    later: VecDeque<LaterLog>,
}

impl From<Vec<ScanRange>> for Ranges {
    fn from(ranges: Vec<ScanRange>) -> Self {
        Self {
            open: ranges.into(),
            later: VecDeque::new(),
        }
    }
}

impl Ranges {
    pub(super) fn next(&mut self) -> Result<Option<ScanRange>> {
        if let Some(range) = self.open.pop_front() {
            return Ok(Some(range));
        }
        while let Some(later) = self.later.pop_front() {
            if let Some(log) = later.open()? {
                return Ok(Some(ScanRange {
                    log,
                    start: None,
                    stop: None,
                }));
            }
        }
        Ok(None)
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.later.clear();
    }

    /// Leaves out what is to be read of the log at `path`, which a later one never is.
    pub(super) fn leave_out(&mut self, path: &Path) {
        self.open.retain(|range| range.log.path() != path);
    }
}
