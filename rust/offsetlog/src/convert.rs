//! Converts a partition directory of any Kafka version since 0.7 to the current format, or to another codec.
//!
//! The new directory is built in a folder beside it whose name ends in `-delete`. In a log dir, a broker and a
//! [`LogDir`](crate::LogDir) take such a folder for a partition that is being deleted and remove it; any other name would keep
//! a broker from starting. The last step is one rename, so a crash leaves either the complete new directory or none.

mod target;

use crate::config::LogConfig;
use crate::disk::{Disk, IoCall, Lock};
use crate::error::{Error, ErrorKind, Result};
use crate::folder::{has_log_dir_files, refuse_inside_partition};
use crate::log::{
    Batch, Interrupt, Log, LogWriter, OpenOptions, ScanOptions, WriteOptions, forget_partition,
    lock_log_dir, lock_partition, make_directory, read_config,
};
use crate::log_dir::{DEPTH_MAX, remove_all};
use crate::old_log::{Layout, OldLog, layout};
use crate::segment::walk::TornTail;
use offsetlog_format::name::{DirectoryName, DirectoryState, check_topic, directory_name_in_state};
use offsetlog_format::{BatchHeader, Codec, Fault, FormatError, Part, RecordView, TimestampType};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use target::{Kind, Message, Target};

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
}

/// Creates a new partition directory `new` in the current format with the records of `old`, which is not changed.
///
/// `old` is a directory of any Kafka since 0.7. Of messages of magic 0, 1 and 2 everything is kept: offsets with their gaps,
/// timestamps and their type, keys, values, headers, leader epochs, producers, transactions and markers, the log start offset,
/// and the topic id if the topic's name is the same. Batches of magic 2 are copied unchanged unless another codec is requested.
/// Uncompressed messages of magic 0 and 1 are combined into batches of up to 64 KiB; a compressed set becomes one batch.
/// Messages of Kafka 0.7 have no offsets in the current sense, no keys and no timestamps: they get offsets from 0 on, null keys
/// and the timestamp -1.
///
/// Records appended to `old` during the conversion are not converted. The new log is synced when this returns.
///
/// # Errors
/// * `LogDir`: `old` has no segments; its name or that of `new` is not `topic-partition`; `new` exists and is not empty, or is
///   inside `old`.
/// * Corruption, with file, position and offset: nothing is created. The same for `Limit`.
/// * `Locked`: `new` is in the log dir of a running broker.
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
    let old = absolute(old.as_ref())?;
    let new = absolute(new.as_ref())?;
    let source = Source::open(&old, options)?;
    let site = Site::prepare(&old, &new, options)?;
    let built = site.make().and_then(|lock| {
        let built = build(&source, &site, options, convert)
            .and_then(|report| site.publish(&report).map(|()| report));
        lock.release();
        built
    });
    built.inspect_err(|_| site.discard())
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::io(IoCall::Resolve, path, error))
}

/// The log to convert.
enum Source {
    Old(OldLog),
    Current(Log),
}

impl Source {
    fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
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

/// The place of the new directory, and where it is built.
struct Site {
    disk: Arc<dyn Disk>,
    options: OpenOptions,
    new: PathBuf,
    topic: String,
    /// The parent directory of `new`.
    parent: PathBuf,
    /// The folder beside `new` that looks like a partition being deleted.
    aside: PathBuf,
    /// The new directory while it is built. It already has its final name, but is not directly in a log dir.
    building: PathBuf,
    is_log_dir: bool,
    /// Keeps a broker from starting, because it would delete the unfinished directory.
    _lock: Option<Lock>,
}

impl Site {
    fn prepare(old: &Path, new: &Path, options: &OpenOptions) -> Result<Self> {
        let name = new.file_name().and_then(|name| name.to_str()).unwrap_or("");
        let refused = |reason: String| Error::log_dir(new, reason);
        let parsed = DirectoryName::parse(name)
            .and_then(|parsed| check_topic(parsed.topic).map(|()| parsed))
            .map_err(|error| {
                refused(format!(
                    "directory name {name:?} is not topic-partition: {}",
                    error.fault
                ))
            })?;
        if parsed.state != DirectoryState::Live {
            return Err(refused(format!(
                "directory name {name:?} is that of a partition being deleted or moved"
            )));
        }
        if new.starts_with(old) {
            return Err(refused(
                "it lies in the directory to be converted".to_owned(),
            ));
        }
        let disk = Arc::clone(&options.disk);
        refuse_used(disk.as_ref(), new)?;
        refuse_inside_partition(disk.as_ref(), new)?;
        let parent = new.parent().unwrap_or(Path::new("/")).to_path_buf();
        let unique = fastrand::u128(..).to_be_bytes();
        let state = DirectoryState::Delete;
        let aside = directory_name_in_state(parsed.topic, parsed.partition, state, unique)
            .map_err(|error| refused(format!("directory name {name:?}: {}", error.fault)))?;
        let aside = parent.join(aside);
        let is_log_dir = has_log_dir_files(disk.as_ref(), &parent)?;
        let lock = if is_log_dir {
            Some(lock_log_dir(disk.as_ref(), &parent)?)
        } else {
            None
        };
        Ok(Self {
            building: aside.join(name),
            topic: parsed.topic.to_owned(),
            options: options.clone(),
            new: new.to_path_buf(),
            parent,
            aside,
            is_log_dir,
            disk,
            _lock: lock,
        })
    }

    /// Creates the folder and locks it. The lock shows others that the folder is in use.
    fn make(&self) -> Result<Lock> {
        make_directory(self.disk.as_ref(), &self.aside)?;
        lock_partition(self.disk.as_ref(), &self.aside)
    }

    /// Moves the finished directory into place.
    fn publish(&self, report: &ConvertReport) -> Result<()> {
        // If somebody else created the directory in the meantime, the log dir's checkpoints belong to it.
        refuse_used(self.disk.as_ref(), &self.new)?;
        if self.is_log_dir {
            // Lines that the log dir's checkpoints have for an earlier directory of this name do not apply to this one. The log
            // start offset must be there before the log is, or deleted records could be read for a moment.
            let built = Log::open(&self.building, &self.options)?.segments()?;
            let begins_inside = built
                .first()
                .is_some_and(|segment| segment.base_offset < report.log_start_offset);
            let log_start = Some(report.log_start_offset).filter(|_| begins_inside);
            forget_partition(&self.new, &self.options, log_start)?;
        }
        self.disk
            .rename(&self.building, &self.new)
            .map_err(|error| Error::io(IoCall::Rename, &self.building, error))?;
        for folder in [&self.aside, &self.parent] {
            self.disk
                .sync_directory(folder)
                .map_err(|error| Error::io(IoCall::SyncDirectory, folder, error))?;
        }
        // If the folder cannot be removed, it does no harm: it is removed like that of a deleted topic.
        self.discard();
        if self.is_log_dir {
            // In a log dir only the log dir's checkpoint holds the log start offset.
            let write = made_here(&self.topic);
            let log = LogWriter::open(&self.new, &self.options, &write)?;
            let deleted = log.delete_records_before(report.log_start_offset);
            return deleted.and_then(|_| log.close());
        }
        Ok(())
    }

    /// Removes the unfinished directory. Anything that remains is the same as after a crash.
    fn discard(&self) {
        let _ = remove_all(self.disk.as_ref(), &self.aside, DEPTH_MAX);
    }
}

/// Options for a partition that was just created here. It belongs to nobody else yet, even if its topic is internal.
fn made_here(topic: &str) -> WriteOptions {
    WriteOptions {
        internal_topics: [topic.to_owned()].into(),
        single_replica: true,
        is_copy: true,
        ..WriteOptions::default()
    }
}

/// Fails if the directory is not empty.
fn refuse_used(disk: &dyn Disk, new: &Path) -> Result<()> {
    match disk.list(new) {
        Ok(entries) if entries.is_empty() => Ok(()),
        Ok(_) => Err(Error::log_dir(
            new,
            "the directory is not empty; convert makes a new one",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io(IoCall::List, new, error)),
    }
}

/// Fills and closes the new log.
fn build(
    source: &Source,
    site: &Site,
    options: &OpenOptions,
    convert: &ConvertOptions,
) -> Result<ConvertReport> {
    let mut write = WriteOptions {
        config: convert.config.clone(),
        ..made_here(&site.topic)
    };
    let (mut log_start, mut log_end) = (0, 0);
    if let Source::Current(log) = source {
        if write.config.is_none() {
            write.config = read_config(options.disk.as_ref(), log.path())?;
        }
        if log.topic() == site.topic {
            write.topic_id = log.topic_id()?;
        }
        (log_start, log_end) = (log.log_start_offset()?, log.log_end_offset()?);
        write.log_start_offset = Some(first_offset(log, log_start)?);
    }
    let log = LogWriter::open(&site.building, options, &write)?;
    let filled = Target::new(&log, convert.codec, options).and_then(|mut target| {
        let mut follow = Follow::new(source, options, convert)?;
        let torn_tail = match source {
            Source::Old(old) => move_old(old, &mut target, &mut follow)?,
            Source::Current(old) => move_current(old, &mut target, &mut follow)?,
        };
        let log_end_offset = target.finish(log_end)?;
        log.delete_records_before(log_start)?;
        log.close()?;
        Ok(ConvertReport {
            path: site.new.clone(),
            records: target.records,
            batches: target.batches,
            batches_kept: target.batches_kept,
            bytes_read: follow.done,
            bytes_written: target.bytes,
            torn_tail,
            log_start_offset: log_start,
            log_end_offset,
        })
    });
    filled.inspect_err(|_| log.abandon())
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
    target: &mut Target<'_>,
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
    target: &mut Target<'_>,
    follow: &mut Follow<'_>,
) -> Result<Option<TornTail>> {
    let options = ScanOptions {
        control_records: true,
        ..ScanOptions::default()
    };
    let mut scan = old.scan(&options)?;
    while let Some(mut batch) = scan.next_batch()? {
        let header = *batch.header();
        let (path, position) = (batch.path(), batch.position());
        let place = |error: Error| {
            let offset = header.base_offset.unwrap_or(header.last_offset);
            error.at_path(path).at_position(position).at_offset(offset)
        };
        let codec = header.codec().map_err(|error| place(Error::new(error)))?;
        if header.magic == 2 {
            let first = header.base_offset.unwrap_or(header.last_offset);
            in_order(first, target.next_offset()).map_err(place)?;
            target.add(&header, codec, batch.bytes(), place)?;
            if !header.attributes.is_control() {
                target.records += count(&mut batch)?;
            }
        } else {
            let is_set = codec != Codec::None;
            if is_set {
                target.end_batch()?;
            }
            while let Some(record) = batch.next_record()? {
                in_order(record.offset, target.next_offset()).map_err(place)?;
                target.push(&message_of(&record), kind_of(codec, &header), is_set)?;
            }
            if is_set {
                target.end_set(header.last_offset)?;
            }
        }
        follow.add(header.size_bytes)?;
    }
    follow.tell()?;
    Ok(scan.torn_tails().last().cloned())
}

/// Counts the readable records of a batch. In one that starts before the log start offset only some are readable.
fn count(batch: &mut Batch<'_>) -> Result<u64> {
    if let Some(count) = batch.take_whole() {
        return Ok(count);
    }
    let mut count = 0;
    while batch.next_record()?.is_some() {
        count += 1;
    }
    Ok(count)
}

fn message_of<'r>(record: &RecordView<'r>) -> Message<'r> {
    Message {
        offset: record.offset,
        timestamp: record.timestamp,
        key: record.key,
        value: record.value,
    }
}

fn kind_of(codec: Codec, header: &BatchHeader) -> Kind {
    let append_time = header.timestamp_type() == TimestampType::LogAppend;
    Kind {
        codec,
        append_time: append_time.then_some(header.max_timestamp),
    }
}

/// Compressed sets of magic 0 and 1 state only their last offset, so their first offsets may overlap with earlier batches.
fn in_order(found: i64, minimum: i64) -> Result<()> {
    if found >= minimum {
        return Ok(());
    }
    Err(Error::new(ErrorKind::from(FormatError::new(
        Part::BatchHeader,
        0,
        Fault::OffsetOrder {
            found,
            minimum,
            maximum: i64::MAX,
        },
    ))))
}

#[cfg(test)]
#[path = "convert/record_tests.rs"]
mod tests;
