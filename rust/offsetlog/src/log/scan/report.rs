//! What a scan did, and what it met that it could not read.

use super::options::ScanStatistics;
use crate::error::Error;
use crate::log::Log;
use crate::log::filter::Selection;
use crate::segment::walk::TornTail;
use offsetlog_format::BatchHeader;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// What a scan does where bytes are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCorrupt {
    /// Gives the records before the damage, then its error.
    #[default]
    Raise,
    /// Goes on at the next whole batch that fits, and lists what it left out in the scan's report.
    Skip,
    /// Ends the log there, without an error, and says so in the scan's report. Other logs of the same scan go on.
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
    /// Where the bytes begin. Where a batch has bad records, its first byte: records of it that come before are given.
    pub position: u64,
    /// How many there are.
    pub bytes: u64,
    /// First offset that may be missing.
    pub start: i64,
    /// Offset behind the last one that may be missing; `None` where nothing tells. Compaction and aborted transactions leave offsets
    /// out too: what is really missing may be less.
    pub stop: Option<i64>,
    /// Name of the error's kind, as [`ErrorKind::name`](crate::ErrorKind::name).
    pub kind: &'static str,
    /// What is wrong.
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
            "{}-{}: left out {} bytes of {} at position {}",
            self.topic,
            self.partition,
            self.bytes,
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

/// Holes that are kept; those beyond are only counted.
const HOLES_MAX: usize = 10_000;

/// What a scan did and left out so far. Clones see the same, also while the scan runs.
#[derive(Debug, Clone, Default)]
pub struct ScanReport(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    /// Each with its place in the scan: threads meet them in any order.
    holes: Vec<(u64, Hole)>,
    count: u64,
    bytes: u64,
    torn: Vec<(Log, TornTail)>,
    statistics: ScanStatistics,
}

impl ScanReport {
    /// The holes in the order of the scan. Of more than ten thousand only as many; [`hole_count`](Self::hole_count) counts all.
    #[must_use]
    pub fn holes(&self) -> Vec<Hole> {
        self.with(|noted| noted.holes.iter().map(|(_, hole)| hole.clone()).collect())
    }

    /// How many holes there are.
    #[must_use]
    pub fn hole_count(&self) -> u64 {
        self.with(|noted| noted.count)
    }

    /// Bytes of all holes.
    #[must_use]
    pub fn hole_bytes(&self) -> u64 {
        self.with(|noted| noted.bytes)
    }

    /// The unfinished ends at which these logs ended. They are no damage.
    #[must_use]
    pub fn torn_tails(&self) -> Vec<(Log, TornTail)> {
        self.with(|noted| noted.torn.clone())
    }

    /// What was done, as of the segment that was begun last or the end.
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

/// Notes the batches whose records cannot be read, and tells whether that is an error.
#[derive(Debug, Clone)]
pub(crate) struct BadBatches {
    pub(crate) on_corrupt: OnCorrupt,
    pub(crate) report: ScanReport,
    /// Number of the batch in the scan.
    pub(crate) order: u64,
}

/// A batch whose records could not be read to their end.
pub(crate) struct BadBatch<'a> {
    pub(crate) log: &'a Log,
    pub(crate) path: &'a Path,
    pub(crate) position: u64,
    pub(crate) header: &'a BatchHeader,
    /// First offset that was not decoded.
    pub(crate) next: i64,
    pub(crate) selection: Selection,
}

impl BadBatches {
    /// Notes what was met behind the batch handed out last.
    pub(super) fn note_behind(&self, hole: Hole) {
        self.report.note(2 * self.order + 1, hole);
    }

    /// Whether holes are noted instead of raised.
    #[inline]
    pub(crate) fn notes(&self) -> bool {
        self.on_corrupt != OnCorrupt::Raise
    }

    /// Notes a batch that cannot be read; `false` where its error is one to raise.
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
