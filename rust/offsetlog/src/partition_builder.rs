//! Builds a new partition directory out of batches of any format. It appears whole or not at all.
//!
//! The new directory is built in a folder beside it whose name ends in `-delete`. In a log dir, a broker and a
//! [`LogDir`](crate::LogDir) take such a folder for a partition that is being deleted and remove it; any other name would keep
//! a broker from starting. The last step is one rename, so a crash leaves either the complete new directory or none.

mod target;

use crate::config::LogConfig;
use crate::disk::{Access, Disk, IoCall, Lock, random};
use crate::error::{Error, ErrorKind, Result};
use crate::folder::{has_log_dir_files, refuse_new_partition};
use crate::log::{
    Batch, Checksums, Log, LogDirFiles, LogWriter, OpenOptions, SegmentInfo, WriteOptions,
    forget_partition, lock_log_dir, lock_partition, make_directory, open_for_append_in,
    partition_name,
};
use crate::log_dir::{DEPTH_MAX, remove_all};
use offsetlog_format::checksum::Crc64;
use offsetlog_format::name::{DirectoryName, DirectoryState, check_topic, directory_name_in_state};
use offsetlog_format::{
    BatchHeader, Codec, Fault, FormatError, Part, RecordView, TimestampType, Uuid,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use target::Target;

pub(crate) use target::{Kind, Message};

/// Bytes that are read back at once.
const READ_BACK_BYTES: usize = 1 << 20;

/// What a new partition directory begins with.
#[derive(Debug, Clone, Default)]
pub struct NewPartition {
    /// Settings to store with the log.
    pub config: Option<LogConfig>,
    /// The topic's id; drawn unless given.
    pub topic_id: Option<Uuid>,
    /// The codec of all batches with records; `None` keeps each batch's codec.
    pub codec: Option<Codec>,
    /// Base offset of the first segment; 0 unless given.
    pub base_offset: Option<i64>,
    /// Settings by which segments are made, where `config` gives none. They are not stored.
    pub defaults: LogConfig,
    /// Offset, exclusive, up to which batches are added: the batch around it gets only its records below.
    pub stop: Option<i64>,
    /// The greatest leader epoch that the log may have. If it is given, the epochs of the batches are renumbered, from 0 on; further ones
    /// share the last.
    pub leader_epoch_max: Option<i32>,
    /// Whether it takes the place of a partition that never had a record.
    pub replaces_empty: bool,
    /// Whether all bytes are read again, and compared with what was written, before the directory gets its name.
    pub reads_back: bool,
}

/// What was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltPartition {
    /// The new partition directory.
    pub path: PathBuf,
    /// Number of readable records in it, without control records.
    pub records: u64,
    /// Number of batches in it.
    pub batches: u64,
    /// Number of batches that were copied unchanged, apart from a missing leader epoch that was filled in.
    pub batches_kept: u64,
    /// Bytes of the new segments.
    pub bytes_written: u64,
    /// The log start offset.
    pub log_start_offset: i64,
    /// The log end offset.
    pub log_end_offset: i64,
    /// The last stable offset: below the log end offset, a transaction has no marker.
    pub last_stable_offset: i64,
}

/// A new partition directory while it is filled. Dropped before [`finish`](Self::finish), it leaves nothing.
#[derive(Debug)]
pub struct PartitionBuilder {
    site: Site,
    log: LogWriter,
    target: Target,
    stop: i64,
    reads_back: bool,
    lock: Option<Lock>,
    /// Whether the directory is in place.
    is_done: bool,
}

impl PartitionBuilder {
    /// Begins the directory `new`, which is not there yet, or is empty.
    ///
    /// # Errors
    /// `LogDir`: its name is not `topic-partition`, or it is not empty, or it lies inside of another partition. `Locked`: it is in the
    /// log dir of a running broker. `Io`.
    pub fn create(
        new: impl AsRef<Path>,
        options: &OpenOptions,
        begin: &NewPartition,
    ) -> Result<Self> {
        let new = new.as_ref();
        let new =
            std::path::absolute(new).map_err(|error| Error::io(IoCall::Resolve, new, error))?;
        Self::create_in(&new, options, begin, None)
    }

    /// `shared` comes from a program that has the log dir around `new` open, which then writes the lines of its checkpoints.
    pub(crate) fn create_in(
        new: &Path,
        options: &OpenOptions,
        begin: &NewPartition,
        shared: Option<&Arc<LogDirFiles>>,
    ) -> Result<Self> {
        let site = Site {
            shared: shared.map(Arc::clone),
            ..Site::prepare(new, options, begin.replaces_empty)?
        };
        let made = site.make().and_then(|lock| {
            let write = WriteOptions {
                config: begin.config.clone(),
                topic_id: begin.topic_id,
                log_start_offset: begin.base_offset,
                defaults: begin.defaults.clone(),
                ..made_here(&site.topic)
            };
            let log = LogWriter::open(&site.building, options, &write)?;
            let target = Target::new(&log, begin, options);
            let target = target.inspect_err(|_| log.abandon())?;
            Ok((log, target, lock))
        });
        let (log, target, lock) = made.inspect_err(|_| site.discard())?;
        Ok(Self {
            site,
            log,
            target,
            stop: begin.stop.unwrap_or(i64::MAX),
            reads_back: begin.reads_back,
            lock: Some(lock),
            is_done: false,
        })
    }

    /// The offset after everything added so far.
    #[must_use]
    pub fn next_offset(&self) -> i64 {
        self.target.next_offset()
    }

    /// Number of readable records added so far, without control records.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.target.records
    }

    /// Adds a batch of a scan, offsets kept. One of magic 2 is copied as it is, unless another codec is wanted. Messages of magic 0 and
    /// 1 become batches of magic 2. If the scan reports bytes that it cannot read, the records before them are added.
    ///
    /// # Errors
    /// `Corruption` where the scan raises it, and for an offset below [`next_offset`](Self::next_offset); `Limit`, `RecordBatchTooLarge`,
    /// `Io`.
    pub fn add(&mut self, batch: &mut Batch<'_>) -> Result<()> {
        let header = *batch.header();
        let (path, position) = (batch.path(), batch.position());
        let place = |error: Error| {
            let offset = header.base_offset.unwrap_or(header.last_offset);
            error.at_path(path).at_position(position).at_offset(offset)
        };
        let (target, stop) = (&mut self.target, self.stop);
        let Some(codec) = batch.check()? else {
            return Ok(());
        };
        if header.magic == 2 && header.last_offset >= stop {
            let first = header.base_offset.unwrap_or(header.last_offset);
            if first >= stop {
                return Ok(());
            }
            in_order(first, target.next_offset()).map_err(place)?;
            // The scan may continue past the stop.
            while batch.next_offset() < stop
                && batch
                    .next_record()?
                    .is_some_and(|record| record.offset < stop)
            {
                target.records += u64::from(!header.attributes.is_control());
            }
            let end = if batch.ended_early() {
                batch.next_offset()
            } else {
                stop
            };
            let header = BatchHeader {
                last_offset: stop - 1,
                ..header
            };
            return target.add_first(&header, batch.bytes(), end, place);
        }
        if header.magic == 2 {
            let first = header.base_offset.unwrap_or(header.last_offset);
            in_order(first, target.next_offset()).map_err(place)?;
            let records = count(batch)?;
            if batch.ended_early() {
                if records > 0 {
                    target.add_first(&header, batch.bytes(), batch.next_offset(), place)?;
                    target.records += records;
                }
                return Ok(());
            }
            let checksums = if batch.is_verified() {
                Checksums::Verified
            } else {
                Checksums::Verify
            };
            target.add(&header, codec, (batch.bytes(), checksums), place)?;
            if !header.attributes.is_control() {
                target.records += records;
            }
            return Ok(());
        }
        let is_set = codec != Codec::None;
        if is_set {
            target.end_batch()?;
        }
        while let Some(record) = batch.next_record()? {
            if record.offset >= stop {
                break;
            }
            in_order(record.offset, target.next_offset()).map_err(place)?;
            target.push(&message_of(&record), kind_of(codec, &header), is_set)?;
        }
        if is_set {
            target.end_set(header.last_offset.min(stop - 1))?;
        }
        Ok(())
    }

    /// Adds a message that is part of no batch; those of a compressed set, `is_set`, become one.
    pub(crate) fn push(&mut self, message: &Message<'_>, kind: Kind, is_set: bool) -> Result<()> {
        self.target.push(message, kind, is_set)
    }

    /// Ends the batch that is made of messages.
    pub(crate) fn end_batch(&mut self) -> Result<()> {
        self.target.end_batch()
    }

    /// Ends the log at `log_end_offset` or behind the last batch, deletes the records before `log_start_offset`, syncs all and moves
    /// the directory to its place.
    ///
    /// # Errors
    /// `Io`, `Interrupted`; `LogDir` if somebody else made the directory meanwhile. Nothing is left then.
    pub fn finish(mut self, log_start_offset: i64, log_end_offset: i64) -> Result<BuiltPartition> {
        let built = self.end(log_start_offset, log_end_offset)?;
        self.log.close()?;
        if self.reads_back {
            read_back(&self.site, &self.target)?;
        }
        self.site.publish(log_start_offset)?;
        self.is_done = true;
        Ok(built)
    }

    /// Says what [`finish`](Self::finish) would, and leaves nothing: for a dry run, on a disk that keeps what is written to itself.
    ///
    /// # Errors
    /// As `finish`.
    pub fn rehearse(
        mut self,
        log_start_offset: i64,
        log_end_offset: i64,
    ) -> Result<BuiltPartition> {
        self.end(log_start_offset, log_end_offset)
    }

    fn end(&mut self, log_start_offset: i64, log_end_offset: i64) -> Result<BuiltPartition> {
        let log_end_offset = self.target.finish(log_end_offset)?;
        self.log.delete_records_before(log_start_offset)?;
        Ok(BuiltPartition {
            last_stable_offset: self.log.last_stable_offset()?,
            path: self.site.new.clone(),
            records: self.target.records,
            batches: self.target.batches,
            batches_kept: self.target.batches_kept,
            bytes_written: self.target.bytes,
            log_start_offset,
            log_end_offset,
        })
    }
}

impl Drop for PartitionBuilder {
    fn drop(&mut self) {
        if !self.is_done {
            self.log.abandon();
        }
        if let Some(lock) = self.lock.take() {
            lock.release();
        }
        if !self.is_done {
            self.site.discard();
        }
    }
}

/// The place of the new directory, and where it is built.
#[derive(Debug)]
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
    /// The files that the log dir's partitions share, if somebody gathers their lines.
    shared: Option<Arc<LogDirFiles>>,
    /// Whether a partition that never had a record may be in its place.
    replaces_empty: bool,
    /// Keeps a broker from starting, because it would delete the unfinished directory.
    _lock: Option<Lock>,
}

impl Site {
    fn prepare(new: &Path, options: &OpenOptions, replaces_empty: bool) -> Result<Self> {
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
        let disk = Arc::clone(&options.disk);
        if !replaces_empty || !never_had_a_record(new, options)? {
            refuse_used(disk.as_ref(), new)?;
        }
        refuse_new_partition(disk.as_ref(), new)?;
        let parent = new.parent().unwrap_or(Path::new("/")).to_path_buf();
        let unique = random().u128(..).to_be_bytes();
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
            shared: None,
            replaces_empty,
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
    fn publish(&self, log_start_offset: i64) -> Result<()> {
        let replaced = self.take_away_empty()?;
        // If somebody else created the directory in the meantime, the log dir's checkpoints belong to it.
        refuse_used(self.disk.as_ref(), &self.new)?;
        if self.is_log_dir {
            // Lines that the log dir's checkpoints have for an earlier directory of this name do not apply to this one. The log
            // start offset must be there before the log is, or deleted records could be read for a moment.
            let built = Log::open(&self.building, &self.options)?.segments()?;
            let begins_inside = built
                .first()
                .is_some_and(|segment| segment.base_offset < log_start_offset);
            let log_start = Some(log_start_offset).filter(|_| begins_inside);
            match &self.shared {
                Some(shared) => {
                    let name = partition_name(&self.new)?;
                    shared.forget_stale(name.topic, name.partition, log_start)?;
                }
                None => forget_partition(&self.new, &self.options, log_start)?,
            }
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
        if let Some(replaced) = replaced {
            let _ = remove_all(self.disk.as_ref(), &replaced, DEPTH_MAX);
        }
        if self.is_log_dir {
            // In a log dir only the log dir's checkpoints hold the log start offset, and what a broker need not recover.
            give_lines(
                &self.new,
                &self.topic,
                &self.options,
                self.shared.as_ref(),
                log_start_offset,
            )?;
        }
        if let Some(shared) = &self.shared {
            shared.write_lines_in_time((self.options.clock)())?;
        }
        Ok(())
    }

    /// Renames the partition in the new one's place, which never had a record, as one that is being deleted. After a crash
    /// neither is there.
    fn take_away_empty(&self) -> Result<Option<PathBuf>> {
        if !self.replaces_empty || !never_had_a_record(&self.new, &self.options)? {
            return Ok(None);
        }
        let lock = lock_partition(self.disk.as_ref(), &self.new)?;
        // Nobody appends from now on.
        let is_empty = never_had_a_record(&self.new, &self.options);
        let unique = random().u128(..).to_be_bytes();
        let taken = is_empty.and_then(|is_empty| {
            let name = partition_name(&self.new)?;
            let state = DirectoryState::Delete;
            let name = directory_name_in_state(name.topic, name.partition, state, unique)
                .map_err(|error| Error::log_dir(&self.new, error.fault.to_string()))?;
            let replaced = self.parent.join(name);
            if is_empty {
                self.disk
                    .rename(&self.new, &replaced)
                    .map_err(|error| Error::io(IoCall::Rename, &self.new, error))?;
            }
            Ok(is_empty.then_some(replaced))
        });
        lock.release();
        taken
    }

    /// Removes the unfinished directory. Anything that remains is the same as after a crash.
    fn discard(&self) {
        let _ = remove_all(self.disk.as_ref(), &self.aside, DEPTH_MAX);
    }
}

/// Gives a partition that was made here its lines in the log dir's checkpoints; at once, unless they are gathered.
pub(crate) fn give_lines(
    path: &Path,
    topic: &str,
    options: &OpenOptions,
    shared: Option<&Arc<LogDirFiles>>,
    log_start_offset: i64,
) -> Result<()> {
    let log = open_for_append_in(path, options, &made_here(topic), shared, None)?;
    let deleted = log.delete_records_before(log_start_offset);
    deleted.and_then(|_| log.close_with_lines())
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

/// Whether the directory is a partition that never had a batch.
fn never_had_a_record(path: &Path, options: &OpenOptions) -> Result<bool> {
    if options.disk.list(path).is_err() {
        return Ok(false);
    }
    let log = Log::open(path, options)?;
    Ok(!log.segments()?.is_empty() && !log.has_begun()?)
}

/// Reads the segments of the finished directory, and compares them with what was written.
fn read_back(site: &Site, target: &Target) -> Result<()> {
    let log = Log::open(&site.building, &site.options)?;
    let mut digest = Crc64::default();
    let mut buffer = vec![0; READ_BACK_BYTES];
    let mut bytes = 0;
    for SegmentInfo { path, .. } in log.segments()? {
        let file = site
            .disk
            .open(&path, Access::Read)
            .map_err(|error| Error::io(IoCall::Open, &path, error))?;
        let mut position = 0;
        loop {
            log.check()?;
            let read = file
                .read_at(&mut buffer, position)
                .map_err(|error| Error::io(IoCall::Read, &path, error))?;
            let Some(found) = buffer.get(..read).filter(|found| !found.is_empty()) else {
                break;
            };
            digest.update(found);
            position += read as u64;
        }
        bytes += position;
    }
    if (bytes, Some(digest.value())) == (target.bytes, target.digest()) {
        return Ok(());
    }
    let reason = "what was read back is not what was written: the disk failed, or another program changed it";
    Err(Error::log_dir(&site.building, reason))
}

/// Fails if the directory is not empty.
fn refuse_used(disk: &dyn Disk, new: &Path) -> Result<()> {
    match disk.list(new) {
        Ok(entries) if entries.is_empty() => Ok(()),
        Ok(_) => Err(Error::log_dir(
            new,
            "the directory is not empty; a new one is made",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io(IoCall::List, new, error)),
    }
}

/// Counts the readable records of a batch. In one that starts before the log start offset only some are readable.
fn count(batch: &mut Batch<'_>) -> Result<u64> {
    if let Some(count) = batch.take_whole() {
        return Ok(count);
    }
    batch.count_records()
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
