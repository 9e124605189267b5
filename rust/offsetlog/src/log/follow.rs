//! Reads logs as they grow.

use super::scan::{LaterLog, OneTopic, Progress, Scan, ScanOptions, ScanRange, ScanReport};
use super::{Isolation, Log};
use crate::disk::{Disk, FileStat, IoCall, Watch};
use crate::error::{Error, ErrorKind, Result};
use offsetlog_format::Uuid;
use offsetlog_format::name::PARTITION_METADATA;
use std::collections::HashMap;
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
    /// Where another range of the log ends that is followed too: this one never returns what lies below.
    floor: i64,
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
            Err(error) if error.is_of_process() => return Err(error),
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
    /// Returns the log end offset. Fails once if the log was truncated below an offset that was already returned, because records written
    /// there would be skipped; then continues there.
    fn end(&mut self) -> Result<i64> {
        let (end, cut) = self.progress.look(&self.log)?;
        self.topic.check(&self.log)?;
        match cut {
            None => Ok(end),
            Some(cut) => {
                let log_start_offset = self.log.ask(|view| Ok(view.log_start_offset))?;
                let error = Error::new(ErrorKind::OffsetOutOfRange {
                    requested: self.progress.next(),
                    log_start_offset: log_start_offset.min(cut),
                    log_end_offset: cut,
                });
                self.progress.go_on_at_cut();
                Err(error.at_path(self.log.path()))
            }
        }
    }

    /// Whether the range was read to its stop.
    fn is_read(&self) -> bool {
        self.progress.unread().max(self.floor) >= self.stop
    }

    /// As [`end`](Self::end); `None` if the range was read to its stop. A truncation of returned records is an error even then; other
    /// errors of the log are ignored.
    fn end_if_unread(&mut self) -> Result<Option<i64>> {
        match self.end() {
            Ok(_) if self.is_read() => Ok(None),
            Ok(end) => Ok(Some(end)),
            Err(error)
                if self.is_read()
                    && !is_of_what_was_returned(&error)
                    && !self.progress.knows_cut() =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether an error says that returned records were truncated, or that the caller wants the work to end.
fn is_of_what_was_returned(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::OffsetOutOfRange { .. } | ErrorKind::Interrupted
    )
}

impl Follow {
    /// Follows ranges, and whole logs, which are opened now. A range without a stop never ends. A log that cannot be opened because of its
    /// directory's contents counts as damage. Ignores `start`, `stop` and `limit` of the options.
    ///
    /// # Errors
    /// As [`Scan::over`], and those of opening the logs.
    pub fn over(
        mut ranges: Vec<ScanRange>,
        logs: &[LaterLog],
        options: &ScanOptions,
        look_every: Duration,
    ) -> Result<Self> {
        let report = ScanReport::default();
        let opened = LaterLog::open_all(logs, options.on_corrupt, &report)?;
        ranges.extend(opened.into_iter().map(|log| ScanRange {
            log,
            start: None,
            stop: None,
        }));
        // Watches before the first look, so that no change is missed.
        let paths: Vec<&Path> = ranges.iter().map(|range| range.log.path()).collect();
        let disk = ranges
            .first()
            .map(|range| Arc::clone(&range.log.options().disk));
        // If watching fails, the follower polls.
        let watch = disk.and_then(|disk: Arc<dyn Disk>| disk.watch(&paths).ok().flatten());
        drop(Scan::over(ranges.clone(), options)?);
        let floors = floors(&ranges);
        let mut topics = OneTopic::default();
        let logs = ranges.into_iter().zip(floors).map(|(range, floor)| {
            topics.check(&range.log)?;
            let mut topic = TopicIdentity::default();
            topic.check(&range.log)?;
            let next = match range.start {
                Some(start) => start,
                None => range.log.log_start_offset()?,
            };
            Ok(Followed {
                topic,
                floor,
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
            report,
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
    /// `OffsetOutOfRange` if a log was truncated below what was read, or, in the scan, if retention deleted the next records. The next call
    /// continues at the error's `log_end_offset`, or at its `log_start_offset`, and reports later truncations. `Io` if a partition was
    /// deleted, even if its topic was made again since; `Interrupted`.
    pub fn next_scan(&mut self, at_most: Option<Duration>) -> Result<Option<Scan>> {
        let until = at_most.and_then(|at_most| Instant::now().checked_add(at_most));
        loop {
            // Asked before the look, so that records appended before the writer was closed are still returned.
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

    /// Checks whether a log was truncated below the records that were returned. [`next_scan`](Self::next_scan) does so before it returns
    /// records; a caller that needs no more records calls this.
    ///
    /// # Errors
    /// `OffsetOutOfRange`; `Interrupted`.
    pub fn check(&mut self) -> Result<()> {
        for at in 0..self.logs.len() {
            match self.end_of(at) {
                Err(error) if is_of_what_was_returned(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The log end offset of a range; `None` if it was read to its stop. If the log was truncated below the returned records, its other
    /// ranges report that too, even if it has grown again by then: the caller drops the records of all of them.
    fn end_of(&mut self, at: usize) -> Result<Option<i64>> {
        let Some(each) = self.logs.get_mut(at) else {
            return Ok(None);
        };
        let end = each.end_if_unread();
        if let Err(error) = &end
            && let ErrorKind::OffsetOutOfRange { log_end_offset, .. } = error.kind()
        {
            let path = each.log.path().to_path_buf();
            let others = self.logs.iter().enumerate();
            for (_, other) in others.filter(|&(other, each)| other != at && each.log.path() == path)
            {
                other.progress.meet_end(*log_end_offset);
            }
        }
        end
    }

    /// The ranges that have grown since the last scan.
    fn grown(&mut self) -> Result<Vec<(ScanRange, Arc<Progress>)>> {
        let mut ranges = Vec::new();
        for at in 0..self.logs.len() {
            let Some(uncommitted) = self.end_of(at)? else {
                continue;
            };
            let Some(each) = self.logs.get(at) else {
                continue;
            };
            let end = match self.options.isolation {
                Isolation::ReadUncommitted => uncommitted,
                Isolation::ReadCommitted => each.log.last_stable_offset()?,
            };
            let end = end.min(each.stop);
            let next = each.progress.next().max(each.floor);
            if end > each.progress.unread().max(each.floor) {
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

/// Of each range, where the last one of the ranges ends that lie below it in the same log.
fn floors(ranges: &[ScanRange]) -> Vec<i64> {
    let mut stops: HashMap<&Path, Vec<i64>> = HashMap::new();
    for range in ranges {
        if let Some(stop) = range.stop {
            stops.entry(range.log.path()).or_default().push(stop);
        }
    }
    for of_a_log in stops.values_mut() {
        of_a_log.sort_unstable();
    }
    let floor = |range: &ScanRange| {
        let (stops, start) = (stops.get(range.log.path())?, range.start?);
        let below = stops.partition_point(|&stop| stop <= start);
        stops.get(below.checked_sub(1)?).copied()
    };
    let floors = ranges.iter().map(|range| floor(range).unwrap_or(i64::MIN));
    floors.collect()
}
