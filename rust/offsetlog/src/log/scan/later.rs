//! Logs that a scan opens when it reaches them and closes when it is done with them.

use super::progress::Progress;
use super::report::CorruptionPolicy;
use super::{Hole, OnCorrupt, Scan, ScanOptions, ScanRange, ScanReport};
use crate::error::{Error, ErrorKind, Result};
use crate::log::Log;
use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A log that is opened on demand. A log that no longer exists is skipped without an error.
#[derive(Clone)]
pub struct LaterLog {
    topic: String,
    partition: i32,
    open: Arc<dyn Fn() -> Result<Option<Log>> + Send + Sync>,
}

impl LaterLog {
    pub(crate) fn new(
        topic: &str,
        partition: i32,
        open: impl Fn() -> Result<Option<Log>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            topic: topic.to_owned(),
            partition,
            open: Arc::new(open),
        }
    }

    /// Opens the log; `None` if it no longer exists.
    ///
    /// # Errors
    /// Those of the function that opens it.
    pub fn open(&self) -> Result<Option<Log>> {
        (self.open)()
    }

    /// Opens the log. One that cannot be opened is reported, if damage is reported and not raised.
    fn open_or_note(&self, bad: &CorruptionPolicy) -> Result<Option<Log>> {
        self.open().or_else(|error| {
            let Some(hole) = self.hole(&error).filter(|_| bad.notes()) else {
                return Err(error);
            };
            bad.note_behind(hole);
            Ok(None)
        })
    }

    /// Opens the logs that exist now. One that cannot be opened goes into the report, if damage is reported and not raised.
    pub(in crate::log) fn open_all(
        logs: &[Self],
        on_corrupt: OnCorrupt,
        report: &ScanReport,
    ) -> Result<Vec<Log>> {
        let bad = CorruptionPolicy {
            on_corrupt,
            report: report.clone(),
            order: 0,
        };
        let opened = logs
            .iter()
            .filter_map(|later| later.open_or_note(&bad).transpose());
        opened.collect()
    }

    /// What a report says if the log cannot be opened because of its directory's contents; `None` for other errors.
    fn hole(&self, error: &Error) -> Option<Hole> {
        let path = error.path()?;
        let name = format!("{}-{}", self.topic, self.partition);
        let is_inside = path.iter().any(|part| part == name.as_str());
        let is_refused = matches!(error.kind(), ErrorKind::LogDir { .. }) || error.is_corruption();
        (is_inside && is_refused).then(|| Hole {
            topic: self.topic.clone(),
            partition: self.partition,
            path: path.to_path_buf(),
            position: 0,
            bytes: 0,
            start: 0,
            stop: None,
            kind: error.kind().code(),
            reason: error.words(),
        })
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
        Ok(Self::over(Vec::new(), options)?.and_logs(logs))
    }

    /// Scans these logs too, after the others. A log that cannot be opened because of its directory's contents counts as damage.
    #[must_use]
    pub fn and_logs(mut self, logs: Vec<LaterLog>) -> Self {
        self.ranges.later.extend(logs);
        self
    }

    /// The next range. Reports a log that cannot be opened, or is of another topic of the name, and continues with the next one, if damage is
    /// reported and not raised.
    pub(super) fn next_range(&mut self) -> Result<Option<(ScanRange, Option<Arc<Progress>>)>> {
        loop {
            let range = if let Some(range) = self.ranges.open.pop_front() {
                range
            } else if let Some(later) = self.ranges.later.pop_front() {
                let Some(log) = later.open_or_note(&self.bad)? else {
                    continue;
                };
                let range = ScanRange {
                    log,
                    start: None,
                    stop: None,
                };
                (range, None)
            } else {
                return Ok(None);
            };
            match self.topics.check(&range.0.log) {
                Ok(()) => return Ok(Some(range)),
                Err(error) if self.bad.notes() && error.path().is_some() => {
                    let log = &range.0.log;
                    let hole = Hole::of(log, log.path().to_path_buf(), error.kind().code());
                    let reason = error.words();
                    self.bad.note_behind(Hole { reason, ..hole });
                }
                Err(error) => return Err(error),
            }
        }
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

    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.later.clear();
    }

    /// Drops the remaining ranges of the log at `path`. Logs in `later` are scanned whole and only once, so they need no check.
    pub(super) fn leave_out(&mut self, path: &Path) {
        self.open.retain(|(range, _)| range.log.path() != path);
    }
}
