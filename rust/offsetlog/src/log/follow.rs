//! Reads logs as they grow.

use super::scan::{Progress, Scan, ScanOptions, ScanRange, ScanReport};
use super::{Isolation, Log};
use crate::disk::{Disk, FileStat, IoCall, Watch};
use crate::error::{Error, ErrorKind, Result};
use offsetlog_format::Uuid;
use offsetlog_format::name::PARTITION_METADATA;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Longest time until a request to interrupt is noticed.
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// Bits of the order number that count within one scan of a follower. The number of the scan is in the bits above.
const ORDERS_A_SCAN: u32 = 40;

/// Produces one scan of the existing records and then scans of new ones; each record is returned once.
///
/// Others may write the logs meanwhile: a broker, another process, another thread. If the system can watch a directory, the
/// follower sleeps until something changes. It also looks regularly without a notification.
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
    stop: i64,
    progress: Arc<Progress>,
    topic: TopicIdentity,
}

/// Which topic a directory belonged to when its `partition.metadata` was read, and that file's stat: it is read again only if it changed.
#[derive(Debug, Default)]
struct TopicIdentity {
    file: Option<FileStat>,
    id: Option<Uuid>,
}

impl TopicIdentity {
    /// Fails if the topic was deleted and made again: another log has the path, and its offsets start again.
    fn check(&mut self, log: &Log) -> Result<()> {
        let path = log.path().join(PARTITION_METADATA);
        let file = log.options().disk.stat(&path).ok();
        if file.is_none() || file == self.file {
            return Ok(());
        }
        let found = match log.topic_id() {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted) => return Err(error),
            // Damaged, or being written: a scan needs none either, and it is read again.
            Err(_) => return Ok(()),
        };
        if let (Some(before), Some(now)) = (self.id, found)
            && before != now
        {
            let reason =
                format!("the topic was deleted and made again: its id is {now}, it was {before}");
            let gone = io::Error::new(io::ErrorKind::NotFound, reason);
            return Err(Error::io(IoCall::Open, log.path(), gone));
        }
        self.file = file;
        self.id = found.or(self.id);
        Ok(())
    }
}

impl Followed {
    /// Returns the log end offset. Fails if the log was truncated below an offset that was already returned, because records written in
    /// that place would be skipped.
    fn end(&mut self) -> Result<i64> {
        let (end, cut) = self.progress.look(&self.log)?;
        self.topic.check(&self.log)?;
        match cut {
            None => Ok(end),
            Some(cut) => Err(self.log.ask(|view| {
                Ok(Error::new(ErrorKind::OffsetOutOfRange {
                    requested: self.progress.next(),
                    log_start_offset: view.log_start_offset.min(cut),
                    log_end_offset: cut,
                })
                .at_path(self.log.path()))
            })?),
        }
    }

    /// Whether the range was read to its stop.
    fn is_read(&self) -> bool {
        self.progress.unread() >= self.stop
    }
}

impl Follow {
    /// Follows ranges; a range without a stop never ends. Ignores `start`, `stop` and `limit` of the options.
    ///
    /// # Errors
    /// As [`Scan::over`].
    pub fn over(
        ranges: Vec<ScanRange>,
        options: &ScanOptions,
        look_every: Duration,
    ) -> Result<Self> {
        // Watches before the first look, so that no change is missed.
        let paths: Vec<&Path> = ranges.iter().map(|range| range.log.path()).collect();
        let disk = ranges
            .first()
            .map(|range| Arc::clone(&range.log.options().disk));
        // If watching fails, the follower polls.
        let watch = disk.and_then(|disk: Arc<dyn Disk>| disk.watch(&paths).ok().flatten());
        drop(Scan::over(ranges.clone(), options)?);
        let logs = ranges.into_iter().map(|range| {
            let mut topic = TopicIdentity::default();
            topic.check(&range.log)?;
            let next = match range.start {
                Some(start) => start,
                None => range.log.log_start_offset()?,
            };
            Ok(Followed {
                topic,
                stop: range.stop.unwrap_or(i64::MAX),
                progress: Arc::new(Progress::new(&range.log, next)?),
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

    /// Waits for new records and returns a scan of them. Returns `None` after `at_most`, or if no more records can come.
    ///
    /// Use one scan at a time: this one begins behind the last batch that the previous one returned.
    ///
    /// # Errors
    /// `OffsetOutOfRange` if a log was truncated below what was read, or if retention deleted the next records; `Io` if a
    /// partition was deleted, even if its topic was made again since; `Interrupted`.
    pub fn next_scan(&mut self, at_most: Option<Duration>) -> Result<Option<Scan>> {
        let until = at_most.and_then(|at_most| Instant::now().checked_add(at_most));
        loop {
            // Asked before the look: what was appended before its writer was closed is still returned.
            let is_closed = self
                .logs
                .iter()
                .map(|each| each.log.is_closed())
                .collect::<Vec<_>>();
            let ranges = self.grown()?;
            if !ranges.is_empty() {
                let mut scan = Scan::following(ranges, &self.options)?;
                scan.report_to(&self.report, self.scans << ORDERS_A_SCAN);
                self.scans += 1;
                return Ok(Some(scan));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            // A closed writer appends nothing more.
            let ended = |(each, &is_closed): (&Followed, &bool)| each.is_read() || is_closed;
            let is_over = self.logs.iter().zip(&is_closed).all(ended);
            if is_over || left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            self.wait(left.map_or(self.look_every, |left| left.min(self.look_every)))?;
        }
    }

    /// The ranges that have grown since the last scan.
    fn grown(&mut self) -> Result<Vec<(ScanRange, Arc<Progress>)>> {
        let mut ranges = Vec::new();
        for each in self.logs.iter_mut().filter(|each| !each.is_read()) {
            let uncommitted = each.end()?;
            let end = match self.options.isolation {
                Isolation::ReadUncommitted => uncommitted,
                Isolation::ReadCommitted => each.log.last_stable_offset()?,
            };
            let end = end.min(each.stop);
            let next = each.progress.next();
            if end > each.progress.unread() {
                let range = ScanRange {
                    log: each.log.clone(),
                    start: Some(next),
                    stop: Some(end),
                };
                ranges.push((range, Arc::clone(&each.progress)));
            }
        }
        Ok(ranges)
    }

    fn wait(&mut self, at_most: Duration) -> Result<()> {
        // A writer in this process raises its end offset after it writes the file. The file's notification may come before the
        // new end, so poll too.
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
                // A watch that failed is not used again.
                Some(Err(_)) => self.watch = None,
                None => thread::sleep(step),
            }
        }
    }
}
