//! Converts a partition directory of any Kafka version since 0.7 to the current format, or to another codec.

mod gaps;

use crate::config::LogConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::local_path::local_path;
use crate::log::{Interrupt, Log, OpenOptions, ScanOptions, SetAside, partition_name, read_config};
use crate::old_log::{Layout, OldLog, layout};
use crate::partition_builder::{Kind, Message, NewPartition, PartitionBuilder};
use crate::segment::walk::TornTail;
use gaps::Gaps;
use offsetlog_format::Codec;
use offsetlog_format::name::META_PROPERTIES;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of the old log between two progress calls.
const PROGRESS_BYTES: u64 = 1 << 20;

/// Called regularly with the number of converted bytes of the old log and their total.
pub type ConvertProgress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Options of a conversion.
#[derive(Clone, Default)]
pub struct ConvertOptions {
    /// The codec of all batches with records; `None` keeps each batch's codec.
    pub codec: Option<Codec>,
    /// Settings to store with the new log; `None` takes those stored with the old one, if any.
    pub config: Option<LogConfig>,
    /// Called as the work proceeds.
    pub progress: Option<ConvertProgress>,
}

impl std::fmt::Debug for ConvertOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConvertOptions")
            .field("codec", &self.codec)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// The result of a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertReport {
    /// The new partition directory.
    pub path: PathBuf,
    /// Number of readable records in it, without control records.
    pub records: u64,
    /// Number of batches in it.
    pub batches: u64,
    /// Number of batches that were copied unchanged, apart from a missing leader epoch that was filled in.
    pub batches_kept: u64,
    /// Bytes of the old segments that were read.
    pub bytes_read: u64,
    /// Bytes of the new segments.
    pub bytes_written: u64,
    /// The torn tail of the old log, which was not converted.
    pub torn_tail: Option<TornTail>,
    /// The log start offset of the new log.
    pub log_start_offset: i64,
    /// The log end offset of the new log.
    pub log_end_offset: i64,
    /// Ranges of offsets, the end exclusive, whose records the old log's log dir promises and its directory does not have, and so the
    /// new log neither: from the log start offset to the first segment, in a segment between two others, and from the end of the log to
    /// the high watermark.
    pub missing_offsets: Vec<(i64, i64)>,
    /// What is odd about the old log, as [`Log::warnings`], and which of its records are missing.
    pub warnings: Vec<String>,
}

/// Creates a new partition directory `new` in the current format with the records of `old`, which is not changed.
///
/// `old` is a directory of any Kafka since 0.7. Of messages of magic 0, 1 and 2 everything is kept: offsets with their gaps,
/// timestamps and their type, keys, values, headers, leader epochs, producers, transactions and markers, the log start offset,
/// and the topic id if the topic's name is the same; also what producer snapshots know of producers whose records are deleted. Batches of magic 2 are copied unchanged unless another codec is requested.
/// Uncompressed messages of magic 0 and 1 are combined into batches of up to 64 KiB; a compressed set becomes one batch.
/// Messages of Kafka 0.7 have no offsets in the current sense, no keys and no timestamps: they get offsets from 0 on, null keys
/// and the timestamp -1.
///
/// Every record is decoded, in batches that are copied unchanged too: their headers say how many records there should be, not whether
/// somebody can read them. Copying compressed batches therefore costs their decompression.
///
/// Records appended to `old` during the conversion are not converted. If `old` is truncated during it, the conversion fails, because
/// what was read before and after would be mixed. The new log is synced when this returns.
///
/// # Errors
/// * `LogDir`: `old` has no segments, or was truncated meanwhile; its name or that of `new` is not `topic-partition`; `new` exists and is not empty, or is
///   inside `old`.
/// * Corruption, with file, position and offset: nothing is created. The same for `Limit`.
/// * `Locked`: `new` is in the log dir of a running broker. `Cluster`: it is in one that a mirror fills.
/// * `RecordBatchTooLarge`: a batch does not fit into `segment.bytes`. `Io`, `Interrupted`.
///
/// ```no_run
/// use offsetlog::{ConvertOptions, OpenOptions, convert, format::Codec};
///
/// # fn main() -> Result<(), offsetlog::Error> {
/// let how = ConvertOptions { codec: Some(Codec::Zstd), ..ConvertOptions::default() };
/// let report = convert("old/orders-0", "new/orders-0", &OpenOptions::default(), &how)?;
/// println!("{} records, {} to {} bytes", report.records, report.bytes_read, report.bytes_written);
/// # Ok(())
/// # }
/// ```
pub fn convert(
    old: impl AsRef<Path>,
    new: impl AsRef<Path>,
    options: &OpenOptions,
    convert: &ConvertOptions,
) -> Result<ConvertReport> {
    let old = local_path(old)?;
    let new = local_path(new)?;
    let source = Source::open(&old, options)?;
    if new.starts_with(&old) {
        let reason = "it lies in the directory to be converted";
        return Err(Error::log_dir(&new, reason));
    }
    let mut report = build(&source, &new, options, convert)?;
    report.warnings.extend(in_brokers_log_dir(&new, options));
    Ok(report)
}

/// That a new directory stands in a broker's log dir, which takes in more than records: nobody has asked its cluster.
#[doc(hidden)]
#[must_use]
pub fn in_brokers_log_dir(directory: &Path, options: &OpenOptions) -> Option<String> {
    let directory = local_path(directory).ok()?;
    let log_dir = directory.parent()?;
    options.disk.stat(&log_dir.join(META_PROPERTIES)).ok()?;
    let log_dir = log_dir.display();
    Some(format!(
        "{log_dir} is a broker's log dir, and nothing was asked of its cluster: whether it has the topic by this id, and this broker a replica, \
         else the directory is set aside as a stray; whether it takes these leader epochs; what retention deletes. `offsetlog metadata \
         {log_dir} --directories` says what the broker does with it. `offsetlog restore` looks at all of it: give it this directory in a \
         folder of its own"
    ))
}

/// The log to convert.
enum Source {
    Old(OldLog),
    Current(Log),
}

impl Source {
    fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        // One file that was set aside is a log of its own.
        if SetAside::of(path).is_some() {
            return Log::open(path, options).map(Self::Current);
        }
        match layout(options.disk.as_ref(), path)? {
            Layout::Old => OldLog::open(path, options).map(Self::Old),
            Layout::Current => Log::open(path, options).map(Self::Current),
            Layout::Empty => Err(Error::log_dir(
                path,
                "no .log and no .kafka file found: not a partition directory with records",
            )),
        }
    }

    fn size_bytes(&self) -> Result<u64> {
        match self {
            Self::Old(log) => Ok(log.size_bytes()),
            Self::Current(log) => log.size_bytes(),
        }
    }
}

/// Fills and closes the new log.
fn build(
    source: &Source,
    new: &Path,
    options: &OpenOptions,
    convert: &ConvertOptions,
) -> Result<ConvertReport> {
    let mut begin = NewPartition {
        config: convert.config.clone(),
        codec: convert.codec,
        ..NewPartition::default()
    };
    let (mut log_start, mut log_end) = (0, 0);
    let mut watch = None;
    let mut missing = Missing::default();
    if let Source::Current(log) = source {
        if begin.config.is_none() {
            begin.config = read_config(options.disk.as_ref(), log.path())?;
        }
        if partition_name(new).is_ok_and(|name| name.topic == log.topic()) {
            begin.topic_id = log.topic_id()?;
        }
        missing = Missing::of(log)?;
        log_start = log.log_start_offset()?;
        let watched = log.watch_end()?;
        log_end = watched.log_end_offset();
        watch = Some(watched);
        let first = first_offset(log, log_start)?;
        begin.base_offset = Some(first);
        begin.producers = match log.producer_snapshot_at(first) {
            Err(error) if error.is_corruption() => {
                missing.warnings.push(format!(
                    "what only deleted records tell of producers is not taken over: {error}"
                ));
                Vec::new()
            }
            producers => producers?,
        };
    }
    let mut target = PartitionBuilder::create(new, options, &begin)?;
    let mut follow = Follow::new(source, options, convert)?;
    let torn_tail = match source {
        Source::Old(old) => move_old(old, &mut target, &mut follow)?,
        Source::Current(old) => {
            let mut gaps = Gaps::of(old)?;
            let torn_tail = move_current(old, log_end, &mut target, (&mut follow, &mut gaps))?;
            // Behind the last batch an empty segment may begin.
            gaps.pass_to(log_end);
            gaps.tell(old, begin.config.as_ref(), &mut missing)?;
            torn_tail
        }
    };
    if let Some(watch) = watch {
        watch.check()?;
    }
    let built = target.finish(log_start, log_end)?;
    Ok(ConvertReport {
        path: built.path,
        records: built.records,
        batches: built.batches,
        batches_kept: built.batches_kept,
        bytes_read: follow.done,
        bytes_written: built.bytes_written,
        torn_tail,
        log_start_offset: log_start,
        log_end_offset: built.log_end_offset,
        missing_offsets: missing.offsets,
        warnings: missing.warnings,
    })
}

/// What the old log's directory does not have.
#[derive(Default)]
struct Missing {
    offsets: Vec<(i64, i64)>,
    warnings: Vec<String>,
}

impl Missing {
    fn of(log: &Log) -> Result<Self> {
        let mut warnings = log.warnings().to_vec();
        let start = log.missing_start()?;
        let end = log.missing_end()?;
        if let Some((end, high_watermark)) = end {
            warnings.push(format!(
                "offsets {end} to {} are not in this directory: it ends before the high watermark of its log dir, so records that were \
                 acknowledged are missing",
                high_watermark - 1
            ));
        }
        // The line of a running broker is written once a minute: a segment that it has just deleted is no loss.
        let start = start.filter(|_| !log.has_running_owner());
        Ok(Self {
            offsets: start.into_iter().chain(end).collect(),
            warnings,
        })
    }
}

/// Base offset of the new log: the log start offset, or that of a batch of magic 2 that starts before it and is copied whole.
fn first_offset(log: &Log, log_start: i64) -> Result<i64> {
    let first = log.batches(None, None)?.next().transpose()?;
    let first = first.filter(|batch| batch.magic == 2);
    Ok(first.map_or(log_start, |batch| batch.base_offset.min(log_start)))
}

/// Reports progress and checks for interruption.
struct Follow<'c> {
    progress: Option<&'c ConvertProgress>,
    interrupt: Option<&'c Interrupt>,
    total: u64,
    done: u64,
    told: u64,
}

impl<'c> Follow<'c> {
    fn new(source: &Source, options: &'c OpenOptions, convert: &'c ConvertOptions) -> Result<Self> {
        Ok(Self {
            progress: convert.progress.as_ref(),
            interrupt: options.interrupt.as_ref(),
            total: source.size_bytes()?,
            done: 0,
            told: 0,
        })
    }

    fn add(&mut self, bytes: usize) -> Result<()> {
        self.done += bytes as u64;
        if self.done - self.told >= PROGRESS_BYTES {
            self.tell()?;
        }
        Ok(())
    }

    fn tell(&mut self) -> Result<()> {
        self.told = self.done;
        if let Some(progress) = self.progress {
            // If the log grows meanwhile, the total grows with it.
            progress(self.done, self.total.max(self.done));
        }
        match self.interrupt {
            Some(interrupt) if interrupt() => Err(Error::new(ErrorKind::Interrupted)),
            _ => Ok(()),
        }
    }
}

fn move_old(
    old: &OldLog,
    target: &mut PartitionBuilder,
    follow: &mut Follow<'_>,
) -> Result<Option<TornTail>> {
    let mut scan = old.scan(None)?;
    let mut offset = 0;
    while let Some(entry) = scan.next_entry()? {
        let kind = Kind {
            codec: entry.codec,
            append_time: None,
        };
        let is_set = entry.codec != Codec::None;
        if is_set {
            target.end_batch()?;
        }
        for record in entry.records() {
            let message = Message {
                offset,
                timestamp: -1,
                key: None,
                value: Some(record.value),
            };
            target.push(&message, kind, is_set)?;
            offset += 1;
        }
        if is_set {
            target.end_batch()?;
        }
        follow.add((entry.next_offset - entry.offset) as usize)?;
    }
    follow.tell()?;
    Ok(scan.torn_tail().cloned())
}

fn move_current(
    old: &Log,
    log_end: i64,
    target: &mut PartitionBuilder,
    (follow, gaps): (&mut Follow<'_>, &mut Gaps),
) -> Result<Option<TornTail>> {
    let options = ScanOptions {
        control_records: true,
        ..ScanOptions::default()
    };
    let mut scan = old.scan(&options)?;
    while let Some(mut batch) = scan.next_batch()? {
        let header = batch.header();
        if header.base_offset.unwrap_or(header.last_offset) >= log_end {
            // Appended meanwhile.
            break;
        }
        let bytes = header.size_bytes;
        gaps.look(old, header)?;
        target.add(&mut batch)?;
        follow.add(bytes)?;
    }
    follow.tell()?;
    Ok(scan.torn_tails().last().cloned())
}

#[cfg(test)]
#[path = "convert/record_tests.rs"]
mod tests;
