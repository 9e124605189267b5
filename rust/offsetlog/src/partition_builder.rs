//! Builds a new partition directory out of batches of any format. It appears whole or not at all.
//!
//! The new directory is built in a folder beside it whose name ends in `-delete`. In a log dir, a broker and a
//! [`LogDir`](crate::LogDir) take such a folder for a partition that is being deleted and remove it; any other name would keep
//! a broker from starting. The last step is one rename, so a crash leaves either the complete new directory or none.

mod appender;
mod site;
mod target;

use crate::config::LogConfig;
use crate::disk::{Access, IoCall, Lock, process_id};
use crate::error::{Error, ErrorKind, Result};
use crate::local_path::local_path;
use crate::log::{
    Batch, Checksums, Log, LogDirFiles, LogWriter, OpenOptions, SegmentInfo, WriteOptions,
};
use offsetlog_format::checksum::Crc64;
use offsetlog_format::{
    BatchHeader, Codec, Fault, FormatError, Part, ProducerSnapshotEntry, RecordView, TimestampType,
    Uuid,
};
use site::{Site, made_here};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use target::Target;

pub(crate) use site::give_lines;
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
    /// What is known of producers before the first batch, as [`Log::producer_snapshot_at`] returns it.
    pub producers: Vec<ProducerSnapshotEntry>,
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
    /// The process whose directory it is.
    process: u32,
    /// Whether the directory is in place.
    is_done: bool,
}

impl PartitionBuilder {
    /// Begins the directory `new`, which is not there yet, or is empty.
    ///
    /// # Errors
    /// `LogDir`: its name is not `topic-partition`, or it is not empty, or it lies inside of another partition. `Locked`: it is in the
    /// log dir of a running broker. `Cluster`: it is in one that a mirror fills. `Io`.
    pub fn create(
        new: impl AsRef<Path>,
        options: &OpenOptions,
        begin: &NewPartition,
    ) -> Result<Self> {
        let new = local_path(new)?;
        Self::create_in(&new, options, begin, None)
    }

    /// `shared` comes from a program that has the log dir around `new` open, which then writes the lines of its checkpoints.
    pub(crate) fn create_in(
        new: &Path,
        options: &OpenOptions,
        begin: &NewPartition,
        shared: Option<&Arc<LogDirFiles>>,
    ) -> Result<Self> {
        let site = Site::prepare(new, options, begin.replaces_empty, shared)?;
        let made = site.make().and_then(|lock| {
            let write = WriteOptions {
                config: begin.config.clone(),
                topic_id: begin.topic_id,
                log_start_offset: begin.base_offset,
                defaults: begin.defaults.clone(),
                ..made_here(&site.topic)
            };
            let log = LogWriter::open(&site.building, options, &write)?;
            let target = log
                .begin_with_producers(&begin.producers)
                .and_then(|()| Target::new(&log, begin, options));
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
            process: process_id(),
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

    /// Lowers the offset, exclusive, up to which batches are added. What was added stays.
    pub fn stop_at(&mut self, offset: i64) {
        self.stop = self.stop.min(offset);
    }

    /// Adds a batch of a scan, offsets kept. One of magic 2 is copied as it is, unless another codec is wanted. Messages of magic 0 and
    /// 1 become batches of magic 2. If the scan reports bytes that it cannot read, the records before them are added.
    ///
    /// # Errors
    /// `Corruption` where the scan raises it, and for an offset below [`next_offset`](Self::next_offset); `Limit`, `RecordBatchTooLarge`,
    /// `Io`. The last two may be about a batch that was added before: batches are appended together, and by another thread if they are
    /// many. After such an error nothing more can be added.
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
            // What nobody can read is damage, even where the checksum is right: a header's own count says nothing of it.
            let records = batch.count_records()?;
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
    /// `Io`, `Interrupted`; `LogDir` if somebody else made the directory meanwhile. Nothing is left then, with two exceptions: if lines of
    /// the log dir's checkpoints cannot be written, the last step, the directory is complete and durable, and the error says so; if a sync
    /// fails when it has its name, it stays if somebody has opened it by then.
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
        if self.process != process_id() {
            // A forked child: the directory and its lock are the parent's, which goes on.
            std::mem::forget(self.lock.take());
            return;
        }
        self.target.stop();
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

/// Reads the segments of the finished directory, and compares them with what was written.
fn read_back(site: &Site, target: &Target) -> Result<()> {
    let log = Log::open(&site.building, &site.options)?;
    let mut digest = Crc64::default();
    let mut buffer = vec![0; READ_BACK_BYTES];
    let mut bytes = 0;
    for SegmentInfo { path, .. } in log.segments()? {
        let file = site
            .options
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
