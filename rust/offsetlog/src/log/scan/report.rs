//! What a scan did and which bytes it could not read.

use super::options::ScanStatistics;
use crate::error::Error;
use crate::log::Log;
use crate::log::filter::Selection;
use crate::segment::walk::TornTail;
use offsetlog_format::{BatchHeader, counted};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// What a scan does with damaged bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCorrupt {
    /// Returns the records before the damage, then the error.
    #[default]
    Raise,
    /// Continues at the next valid batch and lists in the scan's report what it left out.
    Skip,
    /// Ends the log there without an error and records that in the scan's report. Other logs of the same scan continue.
    Stop,
}

impl FromStr for OnCorrupt {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "raise" => Ok(Self::Raise),
            "skip" => Ok(Self::Skip),
            "stop" => Ok(Self::Stop),
            _ => {
                let reason = format!("{name:?} found, raise, skip or stop expected");
                Err(Error::argument("on_corrupt", reason))
            }
        }
    }
}

/// Bytes that a scan left out because no records can be read from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The `.log` file.
    pub path: PathBuf,
    /// Where the bytes begin. For a batch with bad records, its first byte; the records before the bad one were returned.
    pub position: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// First offset that may be missing.
    pub start: i64,
    /// Offset after the last one that may be missing; `None` if it is unknown. Compaction and aborted transactions leave
    /// offsets out too, so fewer may really be missing.
    pub stop: Option<i64>,
    /// Name of the error's kind, as [`ErrorKind::code`](crate::ErrorKind::code).
    pub kind: &'static str,
    /// What is wrong with the bytes.
    pub reason: String,
}

impl Hole {
    pub(super) fn of(log: &Log, path: PathBuf, kind: &'static str) -> Self {
        Self {
            topic: log.topic().to_owned(),
            partition: log.partition(),
            path,
            position: 0,
            bytes: 0,
            start: 0,
            stop: None,
            kind,
            reason: String::new(),
        }
    }
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.path.file_name().map(|name| name.to_string_lossy());
        write!(
            f,
            "{}-{}: left out {} of {} at position {}",
            self.topic,
            self.partition,
            counted(self.bytes, "byte"),
            name.unwrap_or_default(),
            self.position
        )?;
        match self.stop {
            Some(stop) if stop == self.start => f.write_str(" (no offset is missing)"),
            Some(stop) if stop == self.start + 1 => write!(f, " (offset {})", self.start),
            Some(stop) => write!(f, " (offsets {} to {})", self.start, stop - 1),
            None => write!(f, " (offsets from {} on)", self.start),
        }?;
        write!(f, ": {}", self.reason)
    }
}

/// Number of holes that are kept. Further holes are only counted.
const HOLES_MAX: usize = 10_000;

/// What a scan did and left out so far. Clones share the same data, also while the scan runs.
#[derive(Debug, Clone, Default)]
pub struct ScanReport(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    /// Each with its place in the scan, because threads find them in any order.
    holes: Vec<(u64, Hole)>,
    count: u64,
    bytes: u64,
    torn: Vec<(Log, TornTail)>,
    statistics: ScanStatistics,
}

impl ScanReport {
    /// The holes in scan order, at most 10,000. [`hole_count`](Self::hole_count) counts all.
    #[must_use]
    pub fn holes(&self) -> Vec<Hole> {
        self.with(|noted| noted.holes.iter().map(|(_, hole)| hole.clone()).collect())
    }

    /// Number of holes.
    #[must_use]
    pub fn hole_count(&self) -> u64 {
        self.with(|noted| noted.count)
    }

    /// Total bytes of all holes.
    #[must_use]
    pub fn hole_bytes(&self) -> u64 {
        self.with(|noted| noted.bytes)
    }

    /// The torn tails at which logs ended. They are not damage.
    #[must_use]
    pub fn torn_tails(&self) -> Vec<(Log, TornTail)> {
        self.with(|noted| noted.torn.clone())
    }

    /// The scan's statistics, as of the last segment that it opened, or its end.
    #[must_use]
    pub fn statistics(&self) -> ScanStatistics {
        self.with(|noted| noted.statistics)
    }

    pub(super) fn tell(&self, statistics: ScanStatistics) {
        self.with(|noted| noted.statistics = statistics);
    }

    fn note(&self, order: u64, hole: Hole) {
        self.with(|noted| {
            noted.count += 1;
            noted.bytes = noted.bytes.saturating_add(hole.bytes);
            if noted.holes.len() < HOLES_MAX {
                let at = noted.holes.partition_point(|(before, _)| *before <= order);
                noted.holes.insert(at, (order, hole));
            }
        });
    }

    pub(super) fn note_torn(&self, log: &Log, torn: TornTail) {
        self.with(|noted| noted.torn.push((log.clone(), torn)));
    }

    fn with<T>(&self, look: impl FnOnce(&mut Noted) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reports batches with records that cannot be read, or decides that their error is raised.
#[derive(Debug, Clone)]
pub(crate) struct CorruptionPolicy {
    pub(crate) on_corrupt: OnCorrupt,
    pub(crate) report: ScanReport,
    /// Number of the batch in the scan.
    pub(crate) order: u64,
}

/// A batch with a record that cannot be read.
pub(crate) struct BadBatch<'a> {
    pub(crate) log: &'a Log,
    pub(crate) path: &'a Path,
    pub(crate) position: u64,
    pub(crate) header: &'a BatchHeader,
    /// First offset that was not decoded.
    pub(crate) next: i64,
    pub(crate) selection: Selection,
}

impl CorruptionPolicy {
    /// Reports a hole after the batch that was returned last.
    pub(super) fn note_behind(&self, hole: Hole) {
        self.report.note(2 * self.order + 1, hole);
    }

    /// Whether holes are reported instead of raised.
    #[inline]
    pub(crate) fn notes(&self) -> bool {
        self.on_corrupt != OnCorrupt::Raise
    }

    /// Reports a batch that cannot be read. Returns `false` if the caller must raise its error.
    pub(crate) fn pass(&self, batch: &BadBatch<'_>, error: &Error) -> bool {
        if !self.notes() || !error.is_corruption() {
            return false;
        }
        let (first, last) = batch.selection.range();
        let mut hole = Hole::of(batch.log, batch.path.to_path_buf(), error.kind().code());
        hole.position = batch.position;
        hole.bytes = batch.header.size_bytes as u64;
        hole.start = batch.next.max(first);
        let stop = batch.header.last_offset.saturating_add(1).min(last);
        hole.stop = Some(stop.max(hole.start));
        hole.reason = error.words();
        self.report.note(2 * self.order, hole);
        true
    }
}
