//! Builds a sound log from everything that can be read of a damaged one, with the same offsets, and reports what is lost.
//!
//! The live log wins. Records that recovery cut off it, and kept in `offsetlog-cut`, come back only if the log has a hole there or has
//! ended: offsets that compaction or retention removed stay removed.

mod cut;
mod gaps;
mod holes;
mod outside;
mod replicas;
mod set_aside;
mod sink;
mod truncated;

pub(crate) use cut::Cut;
use cut::Until;
use gaps::Gaps;
pub(crate) use gaps::shown_by;
use holes::Holes;
use offsetlog::disk::OverlayDisk;
use offsetlog::format::BatchHeader;
use offsetlog::format::name::DirectoryName;
use offsetlog::{
    BuiltPartition, Error, ErrorKind, Hole, Log, LogConfig, LogDir, NewPartition, OnCorrupt,
    OpenOptions, PartitionBuilder, Result, Scan, ScanOptions, TornTail, TruncationWatch,
    in_brokers_log_dir,
};
use outside::Outside;
use replicas::Replicas;
pub(crate) use replicas::history;
use set_aside::SetAsideBatches;
pub(crate) use sink::Epochs;
use sink::{Comparison, Kind, Sink};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use set_aside::{LeftOut, TakenBack};

/// Called every few batches with the number of bytes read and their total.
pub type SalvageProgress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// How a log is salvaged.
#[derive(Clone, Default)]
pub struct SalvageOptions {
    /// Whether whole segments that a truncation removed, and which wait for their deletion, are taken too.
    pub include_truncated: bool,
    /// Whether the topic is known to be compacted. By itself a directory shows it only where the cleaner came: without this, offsets between
    /// two segments that compaction has left out count as lost.
    pub is_compacted: bool,
    /// Does the same work and writes nothing.
    pub dry_run: bool,
    /// Called as the work proceeds.
    pub progress: Option<SalvageProgress>,
}

impl fmt::Debug for SalvageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SalvageOptions")
            .field("include_truncated", &self.include_truncated)
            .field("is_compacted", &self.is_compacted)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}

/// Bytes of the log that could not be read, with the times around them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Where they stand, what is wrong with them, and which offsets may be missing. There are no bytes at the start of the log, where the
    /// log dir's log start offset is before its first segment, and may be none at the end, where the high watermark is beyond it.
    pub hole: Hole,
    /// Offsets of the hole that came back, out of `offsetlog-cut` or another replica.
    pub taken_back: u64,
    /// Greatest timestamp of the batch before the hole, in milliseconds.
    pub time_before: Option<i64>,
    /// Greatest timestamp of the batch after it.
    pub time_after: Option<i64>,
}

impl Loss {
    /// The most records that may be missing; `None` where nobody knows.
    #[must_use]
    pub fn records_max(&self) -> Option<u64> {
        let offsets = u64::try_from(self.hole.stop? - self.hole.start).unwrap_or(0);
        Some(offsets.saturating_sub(self.taken_back))
    }
}

/// What was salvaged of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SalvageReport {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The directory that was read.
    pub source: PathBuf,
    /// Nothing was written: the report says what would be.
    pub dry_run: bool,
    /// The new directory.
    pub built: BuiltPartition,
    /// What could not be read, at most 10,000 places.
    pub losses: Vec<Loss>,
    /// Number of such places.
    pub loss_count: u64,
    /// The bytes behind the last whole batch, which are not a batch. What was promised of them is in `losses`.
    pub torn_tail: Option<TornTail>,
    /// Batches that came back from files that were set aside, and from other replicas.
    pub taken_back: Vec<TakenBack>,
    /// Batches of these that were left there, and why.
    pub left_out: Vec<LeftOut>,
    /// First offset of the oldest transaction without a marker, which `read_committed` readers wait for.
    pub first_unstable_offset: Option<i64>,
    /// Files beside the segments that could not be read, and so were not taken over.
    pub warnings: Vec<String>,
}

impl SalvageReport {
    /// Whether records are missing, or may be.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        self.loss_count as usize > self.losses.len()
            || self.losses.iter().any(|loss| loss.records_max() != Some(0))
    }
}

/// Makes the new partition directory `into` of everything that can be read in the partition directory `source`, which is not changed.
/// Each record keeps its offset, timestamp, key, value and headers, each batch its producer and its leader epoch. The directory
/// appears whole or not at all.
///
/// Batches that recovery cut off the log, and kept in `offsetlog-cut`, are taken where damage left a hole in the log, and behind its
/// end. Those of a segment that was truncated after the cut are taken with `include_truncated` only. A high watermark of the log dir
/// that is beyond the new log is a loss too: what is below it was acknowledged.
///
/// # Errors
/// `LogDir`: `source` is no partition directory with segments, or was truncated meanwhile; `into` is not named `topic-partition`, is not empty, or lies in
/// `source`. `Locked`: `into` is in the log dir of a running broker. `Cluster`: it is in one that a mirror fills. `Io`, `Interrupted`.
/// Damage is no error.
///
/// ```no_run
/// use offsetlog::OpenOptions;
/// use offsetlog_ops::{SalvageOptions, salvage};
///
/// # fn main() -> Result<(), offsetlog::Error> {
/// let report = salvage("/mnt/dead/orders-0", "salvaged/orders-0", &OpenOptions::default(), &SalvageOptions::default())?;
/// println!("{} records, {} places lost", report.built.records, report.loss_count);
/// # Ok(())
/// # }
/// ```
pub fn salvage(
    source: impl AsRef<Path>,
    into: impl AsRef<Path>,
    options: &OpenOptions,
    how: &SalvageOptions,
) -> Result<SalvageReport> {
    let log = Log::open(source, options)?;
    let place = (into.as_ref(), None);
    let mut report = salvage_log(&log, place, options, how, (None, None), &[])?.report;
    // Such a checkpoint would have told which records were deleted, or which were acknowledged and are missing.
    let ignored = log.warnings().iter();
    let ignored = ignored.filter(|warning| warning.starts_with("ignored: "));
    report.warnings.extend(ignored.cloned());
    let warning = in_brokers_log_dir(into.as_ref(), options);
    report.warnings.extend(warning);
    Ok(report)
}

/// What was made of a log.
pub(crate) struct Salvaged {
    pub(crate) report: SalvageReport,
    /// The greatest producer id of its batches; -1 without one.
    pub(crate) producer_id_max: i64,
    /// Whether it ends before a record at the time where it is to be cut.
    pub(crate) is_cut_at_time: bool,
}

/// Does the work of [`salvage`]. `begin` says what the new log begins with, and where it stops; its base offset is the old log's. It stops
/// too at the first record at the time `until`, or a later one. Holes are filled from `replicas` too. The log dir of the new log may be
/// held.
pub(crate) fn salvage_log(
    log: &Log,
    (into, held): (&Path, Option<&LogDir>),
    options: &OpenOptions,
    how: &SalvageOptions,
    (begin, until): (Option<&NewPartition>, Option<i64>),
    replicas: &[Log],
) -> Result<Salvaged> {
    let is_inside = std::path::absolute(into).is_ok_and(|into| into.starts_with(log.path()));
    if is_inside {
        let reason = "it lies in the directory to be salvaged; choose another place";
        return Err(Error::log_dir(into, reason));
    }
    let target = OpenOptions {
        disk: if how.dry_run {
            Arc::new(OverlayDisk::new(Arc::clone(&options.disk)))
        } else {
            Arc::clone(&options.disk)
        },
        ..options.clone()
    };
    let stop = begin.and_then(|begin| begin.stop);
    let cut = Cut { stop, until };
    let is_compacted = how.is_compacted || begin.is_some_and(|begin| begin.defaults.is_compacted());
    let replicas = Replicas::of(log, replicas, options, is_compacted)?;
    let mut salvage = Salvage::new(log, options, how, (cut, replicas))?;
    if begin.is_none() {
        // A restore tells it itself, of the best replica.
        salvage.outside.look_before(log)?;
    }
    salvage.place = Some(NewPlace {
        into,
        held,
        begin,
        target: &target,
    });
    if log.segments()?.is_empty() && salvage.aside.is_empty() {
        let reason = "no .log file found: not a partition directory with records";
        return Err(Error::log_dir(log.path(), reason));
    }
    salvage.run()?;
    salvage.finish(how.dry_run)
}

/// Compares `there` with what [`salvage_log`] would make, record for record, of a topic with these settings. Returns what that would
/// report; of what is there no byte was written.
///
/// # Errors
/// `LogDir` if it differs; those of reading either, or a replica without which it differs.
pub(crate) fn compare_log(
    log: &Log,
    there: &Log,
    options: &OpenOptions,
    (cut, epochs): (Cut, Epochs),
    topic: &LogConfig,
    replicas: &[Log],
) -> Result<Salvaged> {
    let how = SalvageOptions::default();
    let replicas = Replicas::of(log, replicas, options, topic.is_compacted())?;
    let mut salvage = Salvage::new(log, options, &how, (cut, replicas))?;
    let comparison = Comparison::with(there, cut.stop, epochs)?;
    salvage.sink = Some(salvage.sink_of(Kind::Compare(Box::new(comparison))));
    let run = salvage.run();
    // A replica that fails now, and did not then, leaves batches that cannot be compared.
    let failure = salvage.aside.take_failure();
    match run.and_then(|()| salvage.finish(false)) {
        Err(error) if matches!(error.kind(), ErrorKind::LogDir { .. }) => {
            Err(failure.unwrap_or(error))
        }
        done => done,
    }
}

/// Where the new log is made.
#[derive(Clone, Copy)]
struct NewPlace<'s> {
    into: &'s Path,
    held: Option<&'s LogDir>,
    begin: Option<&'s NewPartition>,
    /// How the new log is opened.
    target: &'s OpenOptions,
}

struct Salvage<'s> {
    log: &'s Log,
    /// `None` for a comparison.
    place: Option<NewPlace<'s>>,
    /// Offset, exclusive, up to which the log is taken.
    stop: i64,
    /// The time at whose first record it is cut too.
    until: Option<i64>,
    /// Whether that record has been found, and is at `stop`.
    is_cut_at_time: bool,
    /// Bytes that a batch is decompressed to, at most.
    limit: u64,
    log_start: i64,
    outside: Outside,
    aside: SetAsideBatches,
    replicas: Replicas<'s>,
    /// Made at the first batch, whose offset the log begins with.
    sink: Option<Sink>,
    holes: Holes,
    /// Behind the last batch of the live log.
    live_end: i64,
    /// The last batch of the live log so far.
    before: Option<BatchHeader>,
    /// Whether compaction has left offsets out, as the live log shows so far.
    has_gaps: bool,
    /// What it means here that offsets have no batch; known from the first such offsets on.
    gaps: Option<Gaps>,
    /// Greatest leader epoch of the live log so far.
    epoch: i32,
    /// Where the segments of the live log begin.
    segments: Vec<i64>,
    producer_id_max: i64,
    progress: Progress,
    warnings: Vec<String>,
}

impl<'s> Salvage<'s> {
    fn new(
        log: &'s Log,
        options: &OpenOptions,
        how: &SalvageOptions,
        (cut, replicas): (Cut, Replicas<'s>),
    ) -> Result<Self> {
        let mut aside = SetAsideBatches::list(log, options, how.include_truncated)?;
        let stop = cut.stop.unwrap_or(i64::MAX);
        aside.stop_at(stop);
        Ok(Self {
            log_start: log.log_start_offset()?,
            outside: Outside::of(log)?,
            progress: Progress::new(log, &aside, how)?,
            log,
            place: None,
            stop,
            until: cut.until,
            is_cut_at_time: false,
            limit: options.limits.max_decompressed_bytes,
            aside,
            replicas,
            sink: None,
            holes: Holes::default(),
            live_end: 0,
            before: None,
            has_gaps: false,
            gaps: None,
            epoch: i32::MIN,
            segments: log
                .segments()?
                .iter()
                .map(|segment| segment.base_offset)
                .collect(),
            producer_id_max: -1,
            warnings: Vec::new(),
        })
    }

    fn run(&mut self) -> Result<()> {
        // A log may end behind its last batch, because compaction removed the last records. Asked first: what is appended from now on
        // is not in the scan. Nobody truncates a log whose end damage hides: no writer opens it.
        let watch = match self.log.watch_end() {
            Err(error) if error.is_corruption() => None,
            watch => Some(watch?),
        };
        let end = watch.as_ref().map_or(0, TruncationWatch::log_end_offset);
        let mut live = self.log.scan(&ScanOptions {
            stop: Some(self.stop).filter(|stop| *stop < i64::MAX),
            ..everything()
        })?;
        self.holes.report = live.report();
        while let Some(mut batch) = live.next_batch()? {
            let header = *batch.header();
            self.holes.look(Some(header.max_timestamp));
            let next = self.known_first_of(&header)?;
            self.note_gap(next, Some(&header))?;
            if !self.holes.are_new() {
                self.has_gaps |= self.is_behind_a_gap(&header);
            } else if let Some(first) = self.first_of(&header)? {
                self.fill_holes(first, Some(header))?;
            }
            // By a record that came back.
            if self.is_cut_at_time {
                break;
            }
            self.has_gaps |= header.is_sparse();
            let base = header.base_offset.filter(|_| header.magic == 2);
            self.sink(base)?.add(&mut batch)?;
            self.look_for_stop();
            self.before = Some(header);
            self.live_end = header.last_offset.saturating_add(1).min(self.stop);
            if let Some(watch) = &watch {
                watch.passed(&header);
            }
            self.producer_id_max = self.producer_id_max.max(header.producer_id);
            self.epoch = self.epoch.max(header.leader_epoch);
            self.holes.passed(header.max_timestamp);
            self.progress.add(header.size_bytes as u64);
            if self.is_cut_at_time {
                break;
            }
        }
        let mut behind = i64::MAX;
        if !self.is_cut_at_time {
            behind = self.pass_end(end)?;
        }
        if let Some(watch) = &watch {
            watch.check()?;
        }
        self.holes.look(None);
        if self.is_cut_at_time {
            self.holes.stop_at(self.stop);
            self.live_end = self.stop;
            return Ok(());
        }
        self.live_end = self.live_end.max(end).min(self.stop);
        let next = self.live_end.max(self.log_start);
        self.take_back((next, behind), i32::MAX)?;
        for hole in self.aside.lost_behind(next) {
            self.holes.add(hole);
        }
        if self.is_cut_at_time {
            self.live_end = self.stop;
        }
        Ok(())
    }

    /// Whether compaction has left offsets out before this batch of the live log, if there is no damage before it.
    fn is_behind_a_gap(&self, header: &BatchHeader) -> bool {
        let first = header.base_offset;
        self.before.is_some() && first.is_some_and(|first| first > self.live_end)
    }

    /// Takes back the batches that were set aside, lie in this range whole, begin before the cut, and are of no later leader epoch than
    /// `epoch`.
    fn take_back(&mut self, (start, stop): (i64, i64), epoch: i32) -> Result<()> {
        let start = start.max(self.log_start);
        let epochs = (self.epoch, if epoch < 0 { i32::MAX } else { epoch });
        while let Some(base) = self.aside.next_in(start, stop, epochs) {
            self.sink(Some(base))?;
            let Some(sink) = &mut self.sink else {
                break;
            };
            let bytes = self.aside.add_next(sink)?;
            self.progress.add(bytes);
            self.look_for_stop();
        }
        Ok(())
    }

    /// The new log; made now if this is its first batch.
    fn sink(&mut self, base_offset: Option<i64>) -> Result<&mut Sink> {
        let sink = if let Some(sink) = self.sink.take() {
            sink
        } else {
            let Some(place) = self.place else {
                return Err(Error::argument("into", "no place for the new log"));
            };
            let base = base_offset.map_or(self.log_start, |base| base.min(self.log_start));
            let begin = match place.begin {
                Some(begin) => begin.clone(),
                None => self.as_it_was(place.into, base)?,
            };
            let begin = NewPartition {
                base_offset: Some(base),
                ..begin
            };
            let builder = match place.held {
                Some(held) => held.build_partition(place.into, &begin)?,
                None => PartitionBuilder::create(place.into, place.target, &begin)?,
            };
            self.sink_of(Kind::Build(Box::new(builder)))
        };
        Ok(self.sink.insert(sink))
    }

    fn sink_of(&self, kind: Kind) -> Sink {
        Sink::new(kind, Until::new(self.until, self.log_start, self.limit))
    }

    /// The settings that are stored with the log, its topic's id if that stays the same topic, and what it knows of producers before the
    /// offset `base`.
    fn as_it_was(&mut self, into: &Path, base: i64) -> Result<NewPartition> {
        let is_same_topic =
            DirectoryName::parse(name_of(into)).is_ok_and(|name| name.topic == self.log.topic());
        let topic_id = self.known(self.log.topic_id())?;
        let producers = self.log.producer_snapshot_at(base).map(Some);
        Ok(NewPartition {
            producers: self.known(producers)?.unwrap_or_default(),
            config: self.known(self.log.stored_config())?,
            topic_id: topic_id.filter(|_| is_same_topic),
            ..NewPartition::default()
        })
    }

    /// What a file beside the segments says; a warning where it is damaged, or the disk does not give it.
    fn known<T>(&mut self, read: Result<Option<T>>) -> Result<Option<T>> {
        let is_unread = |error: &Error| {
            matches!(error.kind(), ErrorKind::Io { source, .. } if source.raw_os_error().is_some())
                && !error.is_of_process()
        };
        match read {
            Err(error) if error.is_corruption() || is_unread(&error) => {
                self.warnings.push(format!("not taken over: {error}"));
                Ok(None)
            }
            read => read,
        }
    }

    /// Ends the new log, or the comparison, and reports.
    fn finish(mut self, dry_run: bool) -> Result<Salvaged> {
        self.sink(None)?;
        let (log, live_end, log_start) = (self.log, self.live_end, self.log_start);
        let built = match self.sink.take().map(|sink| sink.kind) {
            Some(Kind::Build(builder)) if dry_run => builder.rehearse(log_start, live_end)?,
            Some(Kind::Build(builder)) => builder.finish(log_start, live_end)?,
            Some(Kind::Compare(comparison)) => {
                // A time does not tell where the log ends without a record there.
                comparison.finish(self.until.map(|_| live_end))?
            }
            None => return Err(Error::argument("into", "nothing was built")),
        };
        let stable = built.last_stable_offset;
        let torn_tail = self.holes.report.torn_tails().pop();
        let torn_tail = torn_tail.map(|(_, torn)| torn);
        if let Some(stop) = self.outside.high_watermark.map(|stop| stop.min(self.stop))
            && let Some(start) = self.holes.told_up_to(built.log_end_offset)
            && start < stop
        {
            let hole = self.outside.end(log, torn_tail.as_ref(), (start, stop));
            self.holes.add(hole);
        }
        if let Some(hole) = self.outside.start {
            self.holes.add_first(hole);
        }
        let (taken_back, left_out) = self.aside.report();
        let report = SalvageReport {
            topic: log.topic().to_owned(),
            partition: log.partition(),
            source: log.path().to_path_buf(),
            dry_run,
            first_unstable_offset: (stable < built.log_end_offset).then_some(stable),
            built,
            loss_count: self.holes.count(),
            losses: self.holes.losses,
            torn_tail,
            taken_back,
            left_out,
            warnings: self.warnings,
        };
        Ok(Salvaged {
            report,
            producer_id_max: self.producer_id_max,
            is_cut_at_time: self.is_cut_at_time,
        })
    }
}

/// The last name of a path; empty for one that has none in UTF-8.
fn name_of(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

/// Every batch, markers too, and what cannot be read in the report.
pub(crate) fn everything() -> ScanOptions {
    ScanOptions {
        control_records: true,
        on_corrupt: OnCorrupt::Skip,
        ..ScanOptions::default()
    }
}

struct Progress {
    call: Option<SalvageProgress>,
    done: u64,
    told: u64,
    total: u64,
}

/// Bytes between two calls.
const PROGRESS_BYTES: u64 = 1 << 20;

impl Progress {
    fn new(log: &Log, aside: &SetAsideBatches, how: &SalvageOptions) -> Result<Self> {
        Ok(Self {
            call: how.progress.clone(),
            done: 0,
            told: 0,
            total: log.size_bytes()? + aside.bytes(),
        })
    }

    fn add(&mut self, bytes: u64) {
        self.done += bytes;
        if self.done - self.told >= PROGRESS_BYTES
            && let Some(call) = &self.call
        {
            self.told = self.done;
            call(self.done, self.total.max(self.done));
        }
    }
}

/// A scan of one file that was set aside.
fn scan_file(path: &Path, options: &OpenOptions) -> Result<Scan> {
    Log::open(path, options)?.scan(&everything())
}

#[cfg(test)]
#[path = "salvage_tests.rs"]
mod tests;
