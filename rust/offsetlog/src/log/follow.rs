//! Reading on as logs grow.

use super::scan::{Scan, ScanOptions, ScanRange, ScanReport};
use super::{Ends, Isolation, Log};
use crate::disk::{Disk, Watch};
use crate::error::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long somebody who wants to stop may have to wait.
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// Place of a scan among the scans of one follower, in the order of what is reported.
const ORDERS_A_SCAN: u32 = 40;

/// Scans of what is there, then of what comes behind it, each record once.
///
/// The logs may be written by others meanwhile: by a broker, by another process, by another thread. Where the system tells of changes in
/// a directory, a follower sleeps until there is one; it also looks now and then without being told.
#[derive(Debug)]
pub struct Follow {
    logs: Vec<Followed>,
    options: ScanOptions,
    look_every: Duration,
    watch: Option<Box<dyn Watch>>,
    report: ScanReport,
    scans: u64,
}

#[derive(Debug)]
struct Followed {
    log: Log,
    /// Behind what was handed out for scanning.
    next: i64,
    stop: i64,
    /// The writer of this process, if there is one, and how often it had cut batches from the end.
    cuts: Option<(Arc<Ends>, u64)>,
}

impl Followed {
    /// Where the log ends, for uncommitted records. Refuses where it was cut below what was handed out: what came in that place would be
    /// passed over.
    fn end(&mut self) -> Result<i64> {
        loop {
            let told = self.log.told();
            let (count, lowest) = match (&told, &self.cuts) {
                (Some(ends), Some((before, count))) if Arc::ptr_eq(ends, before) => {
                    ends.cuts_since(*count)
                }
                (Some(ends), _) => (ends.cut_count(), None),
                (None, _) => (0, None),
            };
            let end = self.log.log_end_offset()?;
            if let Some(cut) = lowest
                .filter(|&cut| cut < self.next)
                .or((end < self.next).then_some(end))
            {
                return Err(self.log.ask(|view| {
                    Ok(Error::new(ErrorKind::OffsetOutOfRange {
                        requested: self.next,
                        log_start_offset: view.log_start_offset.min(cut),
                        log_end_offset: cut,
                    })
                    .at_path(self.log.path()))
                })?);
            }
            let is_same = told.as_ref().is_none_or(|ends| ends.cut_count() == count);
            self.cuts = told.map(|ends| (ends, count));
            if is_same {
                return Ok(end);
            }
        }
    }
}

impl Follow {
    /// Follows ranges; those without a stop have no end. `start`, `stop` and `limit` of the options are not used.
    ///
    /// # Errors
    /// As [`Scan::over`].
    pub fn over(
        ranges: Vec<ScanRange>,
        options: &ScanOptions,
        look_every: Duration,
    ) -> Result<Self> {
        // Before the first look, so that nothing comes in between.
        let paths: Vec<&Path> = ranges.iter().map(|range| range.log.path()).collect();
        let disk = ranges
            .first()
            .map(|range| Arc::clone(&range.log.options().disk));
        // Whoever cannot be told looks by himself.
        let watch = disk.and_then(|disk: Arc<dyn Disk>| disk.watch(&paths).ok().flatten());
        drop(Scan::over(ranges.clone(), options)?);
        let logs = ranges.into_iter().map(|range| {
            Ok(Followed {
                next: match range.start {
                    Some(start) => start,
                    None => range.log.log_start_offset()?,
                },
                stop: range.stop.unwrap_or(i64::MAX),
                cuts: range.log.told().map(|ends| {
                    let count = ends.cut_count();
                    (ends, count)
                }),
                log: range.log,
            })
        });
        let mut options = options.clone();
        options.limit = None;
        Ok(Self {
            logs: logs.collect::<Result<_>>()?,
            options,
            look_every: look_every.max(Duration::from_millis(1)),
            watch,
            report: ScanReport::default(),
            scans: 0,
        })
    }

    /// What could not be read so far, in all scans.
    #[must_use]
    pub fn report(&self) -> ScanReport {
        self.report.clone()
    }

    /// A scan of what has come since the last one, waiting for it; `None` when nothing came for so long, or nothing can come any more.
    ///
    /// The scan before must have been read to its end: its records do not come again.
    ///
    /// # Errors
    /// `OffsetOutOfRange` where a log was cut below what was read, or has lost what comes next to retention; `Io` where a partition is
    /// gone; `Interrupted`.
    pub fn next_scan(&mut self, at_most: Option<Duration>) -> Result<Option<Scan>> {
        let until = at_most.and_then(|at_most| Instant::now().checked_add(at_most));
        loop {
            let ranges = self.grown()?;
            if !ranges.is_empty() {
                let mut scan = Scan::over(ranges, &self.options)?;
                scan.report_to(&self.report, self.scans << ORDERS_A_SCAN);
                self.scans += 1;
                return Ok(Some(scan));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            // A writer that was closed takes nothing any more.
            let ended = |each: &Followed| each.next >= each.stop || each.log.is_closed();
            let is_over = self.logs.iter().all(ended);
            if is_over || left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            self.wait(left.map_or(self.look_every, |left| left.min(self.look_every)))?;
        }
    }

    /// What is behind the last scans.
    fn grown(&mut self) -> Result<Vec<ScanRange>> {
        let mut ranges = Vec::new();
        for each in self.logs.iter_mut().filter(|each| each.next < each.stop) {
            let uncommitted = each.end()?;
            let end = match self.options.isolation {
                Isolation::ReadUncommitted => uncommitted,
                Isolation::ReadCommitted => each.log.last_stable_offset()?,
            };
            let end = end.min(each.stop);
            if end > each.next {
                ranges.push(ScanRange {
                    log: each.log.clone(),
                    start: Some(each.next),
                    stop: Some(end),
                });
                each.next = end;
            }
        }
        Ok(ranges)
    }

    fn wait(&mut self, at_most: Duration) -> Result<()> {
        // A writer of this process tells its end after the file has grown, of which the system tells: by then it may be too early.
        let is_told = self.logs.iter().any(|each| each.log.told().is_some());
        let at_most = if is_told {
            at_most.min(CHECK_EVERY)
        } else {
            at_most
        };
        let until = Instant::now() + at_most;
        loop {
            for each in self.logs.iter().take(1) {
                each.log.check()?;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let step = left.min(CHECK_EVERY);
            match self.watch.as_mut().map(|watch| watch.wait(step)) {
                Some(Ok(true)) => return Ok(()),
                Some(Ok(false)) => {}
                // One that fails tells nothing more.
                Some(Err(_)) => self.watch = None,
                None => thread::sleep(step),
            }
        }
    }
}
