//! Logs that a scan opens when it reaches them and closes when it is done with them.

use super::progress::Progress;
use super::{Scan, ScanOptions, ScanRange};
use crate::error::Result;
use crate::log::Log;
use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A log that is opened on demand. A log that no longer exists is skipped without an error.
#[derive(Clone)]
pub struct LaterLog(Arc<dyn Fn() -> Result<Option<Log>> + Send + Sync>);

impl LaterLog {
    pub(crate) fn new(open: impl Fn() -> Result<Option<Log>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    /// Opens the log; `None` if it no longer exists.
    ///
    /// # Errors
    /// Those of the function that opens it.
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
    /// Scans whole logs one after another. Opens each when the scan reaches it, so only one is open at a time. Ignores `start`
    /// and `stop` of the options.
    ///
    /// # Errors
    /// As [`Log::scan`].
    pub fn over_logs(logs: Vec<LaterLog>, options: &ScanOptions) -> Result<Self> {
        let mut scan = Self::over(Vec::new(), options)?;
        scan.ranges.later = logs.into();
        Ok(scan)
    }
}

/// The ranges that a scan has not read yet.
#[derive(Debug)]
pub(super) struct Ranges {
    open: VecDeque<(ScanRange, Option<Arc<Progress>>)>,
    /// Scanned after `open`.
    later: VecDeque<LaterLog>,
}

impl From<Vec<ScanRange>> for Ranges {
    fn from(ranges: Vec<ScanRange>) -> Self {
        Self {
            open: ranges.into_iter().map(|range| (range, None)).collect(),
            later: VecDeque::new(),
        }
    }
}

impl Ranges {
    /// Those of a follower: the progress of each is told.
    pub(super) fn followed(ranges: Vec<(ScanRange, Arc<Progress>)>) -> Self {
        let told = |(range, progress)| (range, Some(progress));
        Self {
            open: ranges.into_iter().map(told).collect(),
            later: VecDeque::new(),
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<(ScanRange, Option<Arc<Progress>>)>> {
        if let Some(range) = self.open.pop_front() {
            return Ok(Some(range));
        }
        while let Some(later) = self.later.pop_front() {
            if let Some(log) = later.open()? {
                let range = ScanRange {
                    log,
                    start: None,
                    stop: None,
                };
                return Ok(Some((range, None)));
            }
        }
        Ok(None)
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.later.clear();
    }

    /// Drops the remaining ranges of the log at `path`. Logs in `later` are scanned whole and only once, so they need no check.
    pub(super) fn leave_out(&mut self, path: &Path) {
        self.open.retain(|(range, _)| range.log.path() != path);
    }
}
