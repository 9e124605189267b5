//! [`LogWriter`]: a partition's log opened for appending. Adds to [`Log`] the methods that change the log.

use super::maintain::MaintenanceLock;
use super::producers::MarkerOptions;
use super::recovery::RecoveryReport;
use super::writer::{
    AppendOptions, AppendOrigin, Checksums, Commit, PartitionWriter, WriteOptions,
};
use super::{Log, OpenOptions};
use crate::append_info::AppendInfo;
use crate::batch_builder::BatchBuilder;
use crate::config::{EffectiveConfig, LogConfig};
use crate::error::Result;
use offsetlog_format::ProducerSnapshotEntry;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A partition's log, opened for appending. Dereferences to its [`Log`], so all methods that read are here too, and use the
/// same state.
///
/// Clones share everything, and all methods may be called from many threads: appends are done one after the other. A directory
/// has one writer at a time. If the last clone is dropped without [`close`](Self::close), files and locks are left as by a
/// killed process, and the next opening recovers the log.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use offsetlog::{AppendOptions, BatchBuilder, LogWriter, OpenOptions, WriteOptions};
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let log = LogWriter::open(folder.join("orders-0"), &OpenOptions::default(), &WriteOptions::default())?;
/// let mut batch = BatchBuilder::default();
/// batch.push(1_700_000_000_000, Some(b"key"), Some(b"value"), &[])?;
/// let appended = log.append(&mut batch, &AppendOptions::default())?;
/// assert_eq!((appended.base_offset, log.log_end_offset()?), (0, 1));
/// log.close()?;
/// # Ok(())
/// # }
/// ```
///
/// A log that was opened for reading has none of the methods that change it:
///
/// ```compile_fail
/// use offsetlog::{Log, OpenOptions};
///
/// let log = Log::open("orders-0", &OpenOptions::default()).unwrap();
/// log.flush().unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct LogWriter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    log: Log,
    writer: Mutex<PartitionWriter>,
    /// Held by maintenance, so that only one runs at a time.
    maintenance_lock: MaintenanceLock,
}

impl Deref for LogWriter {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.0.log
    }
}

impl LogWriter {
    pub(super) fn new(log: Log, writer: PartitionWriter) -> Self {
        Self(Arc::new(Inner {
            log,
            writer: Mutex::new(writer),
            maintenance_lock: MaintenanceLock::default(),
        }))
    }

    /// Returns the log for reading beside the appends. Holding it does not keep the log open for appending.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.0.log
    }

    /// Opens the partition directory `path` for appending. Creates it if it is missing.
    ///
    /// Takes an exclusive lock on the directory and, in a log dir, a shared one on its `.lock`, which a running broker holds.
    /// After an unclean end, reads the segments from the recovery point on, truncates an incomplete batch at the end and keeps
    /// it in `offsetlog-cut`; [`recovery_report`](Self::recovery_report) returns what was changed. After a clean end this lists
    /// the directory, looks twice at the indexes of each segment, and reads the log from the last index entry on.
    ///
    /// # Errors
    /// * `Locked`: somebody else writes.
    /// * `LogDir`: the name is not `topic-partition`, or a file is named like a segment and is not one.
    /// * Corruption followed by whole batches: a broker truncates these too, and so does [`recover`](crate::recover).
    /// * `Argument`: a topic id other than the stored one.
    ///
    /// Source: FORMAT.md «Partition directory».
    pub fn open(
        path: impl AsRef<Path>,
        options: &OpenOptions,
        write: &WriteOptions,
    ) -> Result<Self> {
        super::open::open_for_append(path.as_ref(), options, write)
    }

    /// Appends the records of `batch` as one batch, empties it, and returns their offsets. After an error the log and the batch
    /// are as before, unless [`is_appended`](crate::Error::is_appended) says that the records are in the log.
    ///
    /// When this returns, the operating system has the whole batch: it survives the death of this process, and after a flush a
    /// power failure.
    ///
    /// # Errors
    /// `RecordTooLarge`, `RecordBatchTooLarge`, `Unreadable`, `InvalidTimestamp`, `RecordRejected`; with a producer id
    /// `OutOfOrderSequence`, `ProducerFenced`, `InvalidTxnState`; `Argument` for a negative epoch; `Cluster` if other brokers
    /// have replicas; `Io`, `Closed`, `Poisoned`.
    pub fn append(&self, batch: &mut BatchBuilder, options: &AppendOptions) -> Result<AppendInfo> {
        self.appending("append", options.flush, |writer| {
            let leader_epoch = writer.epoch_for(options.leader_epoch);
            writer.append_built(batch, leader_epoch)
        })
    }

    /// As [`append`](Self::append), at a given offset, which must not be below the log end offset. For restoring a log: like
    /// what a leader stored, timestamps, epochs and sequences are not checked.
    ///
    /// # Errors
    /// `UnexpectedAppendOffset` below the log end offset; `RecordTooLarge`; `Cluster`; `Io`, `Closed`, `Poisoned`.
    pub fn append_at(
        &self,
        batch: &mut BatchBuilder,
        base_offset: i64,
        options: &AppendOptions,
    ) -> Result<AppendInfo> {
        self.appending("append", options.flush, |writer| {
            let leader_epoch = writer.epoch_for(options.leader_epoch);
            writer.append_built_at(batch, base_offset, leader_epoch)
        })
    }

    /// Checks what [`append_at`](Self::append_at) would refuse of records from offset `first` on, before they are encoded.
    /// Returns the settings, and the time by the log's clock.
    ///
    /// # Errors
    /// `UnexpectedAppendOffset` below the log end offset; `Closed`, `Poisoned`.
    pub fn check_append_at(&self, first: Option<i64>) -> Result<(LogConfig, i64)> {
        let now = (self.options().clock)();
        let writer = self.writer();
        writer.check_replica(first)?;
        Ok((writer.config().clone(), now))
    }

    /// Checks what [`append`](Self::append) would refuse of records before they are encoded. Returns the settings, and the time
    /// by the log's clock. `timestamps` are the least and the greatest in milliseconds since 1970, `None` for the time of the
    /// append; `first_null_key` is the number of the first record without a key.
    ///
    /// # Errors
    /// `InvalidTimestamp`, `RecordRejected`; `Argument` for the epoch; `Closed`, `Poisoned`.
    pub fn check_append(
        &self,
        timestamps: Option<(i64, i64)>,
        first_null_key: Option<i64>,
        leader_epoch: Option<i32>,
    ) -> Result<(LogConfig, i64)> {
        let now = (self.options().clock)();
        let writer = self.writer();
        let leader_epoch = writer.epoch_for(leader_epoch);
        let timestamps = timestamps.unwrap_or((now, now));
        writer.check_records(timestamps, first_null_key, leader_epoch, now)?;
        Ok((writer.config().clone(), now))
    }

    /// Checks whether a record may have `count` headers, for callers that collect records and report errors early.
    ///
    /// # Errors
    /// `Unreadable`: more than `max_headers`, with which this log was opened.
    pub fn check_headers(&self, count: usize) -> Result<()> {
        self.options().limits.allow_headers(count)
    }

    /// Appends an encoded batch as a leader does: assigns offsets and epoch, corrects the greatest timestamp, and encodes the
    /// batch again if its compression differs from the settings or its magic is 0 or 1.
    ///
    /// # Errors
    /// As [`append`](Self::append); `BatchRejected` for framing, checksum, counts and payload; `UnsupportedMagic`, `UnsupportedCodec`.
    pub fn append_batches(
        &self,
        data: &[u8],
        origin: AppendOrigin,
        options: &AppendOptions,
    ) -> Result<AppendInfo> {
        self.appending("append", options.flush, |writer| {
            let leader_epoch = writer.epoch_for(options.leader_epoch);
            writer.append_as_leader(data, origin, leader_epoch, 0)
        })
    }

    /// Appends encoded batches and keeps their offsets and epochs, as a replica, a mirror or a restore does. Leaves out the
    /// first batch with an epoch newer than `leader_epoch` and everything after it.
    ///
    /// # Errors
    /// As [`append_batches`](Self::append_batches); `OffsetsOutOfOrder`, `UnexpectedAppendOffset`.
    pub fn append_as_follower(
        &self,
        data: &[u8],
        leader_epoch: i32,
        flush: bool,
    ) -> Result<AppendInfo> {
        self.appending("append", flush, |writer| {
            writer.append_as_follower(data, leader_epoch, Checksums::Verify)
        })
    }

    /// Appends encoded batches of any epoch as [`append_as_follower`](Self::append_as_follower). They come from another log: what is wrong
    /// with them is damage of that one.
    pub(crate) fn append_copied(&self, data: &[u8], checksums: Checksums) -> Result<AppendInfo> {
        self.appending("append", false, |writer| {
            writer.append_as_follower(data, i32::MAX, checksums)
        })
        .map_err(|error| error.of_copied(None))
    }

    /// Makes a log without batches know these producers, as if it had begun before.
    pub(crate) fn begin_with_producers(&self, entries: &[ProducerSnapshotEntry]) -> Result<()> {
        self.changing(|writer| {
            writer.begin_with_producers(entries);
            Ok(())
        })
    }

    /// Ends a producer's transaction with a marker.
    ///
    /// # Errors
    /// `ProducerFenced`, `TransactionCoordinatorFenced`; `Cluster`; `Io`, `Closed`, `Poisoned`.
    pub fn append_marker(
        &self,
        marker: &MarkerOptions,
        options: &AppendOptions,
    ) -> Result<AppendInfo> {
        self.appending("append a marker", options.flush, |writer| {
            let leader_epoch = writer.epoch_for(options.leader_epoch);
            writer.append_marker(marker, leader_epoch)
        })
    }

    fn appending(
        &self,
        verb: &str,
        flush: bool,
        append: impl FnOnce(&mut PartitionWriter) -> Result<AppendInfo>,
    ) -> Result<AppendInfo> {
        let (info, end, due, interval) = self.changing(|writer| {
            writer.guard().check_replicas(verb, self.path())?;
            let info = append(writer)?;
            let due = writer.take_flush_due() || flush;
            let interval = writer.config().flush_ms();
            Ok((info, writer.log_end(), due, interval))
        })?;
        if due {
            self.commit(Some(end))
                .map_err(|error| error.after_append(info))?;
        } else if interval < i64::MAX {
            self.flush_within(interval)
                .map_err(|error| error.after_append(info))?;
        }
        Ok(info)
    }

    /// Makes everything below `end` durable; without an end, everything appended so far. Concurrent callers share one sync.
    fn commit(&self, end: Option<i64>) -> Result<()> {
        let flusher = self.writer().flusher().clone();
        let ends = self.0.log.0.directory.ends.as_deref();
        // Whether other waiters rely on this caller to sync.
        let mut is_next = false;
        loop {
            // After another caller's sync most waiters are done and need not lock the writer.
            let is_done =
                end.is_some_and(|end| ends.is_some_and(|ends| ends.recovery_point() >= end));
            let commit = if is_done {
                Ok(Commit::Done)
            } else {
                self.changing(|writer| writer.begin_commit(end))
            };
            match commit {
                Ok(Commit::Lead(job)) => return flusher.commit(&job),
                Ok(Commit::Follow) => is_next = !flusher.commits().wait_for(end),
                other => {
                    if is_next {
                        flusher.commits().pass_on();
                    }
                    return other.map(|_| ());
                }
            }
        }
    }

    /// Starts a thread that flushes the log after `flush.ms`, unless one is waiting already.
    fn flush_within(&self, interval: i64) -> Result<()> {
        let flusher = self.writer().flusher().clone();
        let wait = Duration::from_millis(interval.max(0) as u64);
        let Some(due) = Instant::now().checked_add(wait) else {
            return Ok(());
        };
        if !flusher.set_alarm(due) {
            return Ok(());
        }
        let log = Arc::downgrade(&self.0);
        let waiting = flusher.clone();
        let started = std::thread::Builder::new()
            .name("offsetlog-flush".to_owned())
            .spawn(move || {
                if waiting.await_alarm()
                    && let Some(inner) = log.upgrade()
                {
                    // A failed sync poisons the log, and the next call returns the error.
                    let _ = Self(inner).commit(None);
                }
            });
        if started.is_err() {
            // If no thread can be started, the caller flushes.
            flusher.drop_alarm();
            return self.commit(None);
        }
        Ok(())
    }

    /// Makes everything appended so far durable, and every truncation. Concurrent callers share one sync.
    ///
    /// # Errors
    /// `Io`. If a sync failed, nothing more can be appended until the log is opened again.
    /// `Closed`, `Poisoned`.
    pub fn flush(&self) -> Result<()> {
        self.commit(None)
    }

    /// Closes the active segment and creates a new one, unless the active one is empty and begins at the log end offset.
    /// Returns the base offset of the active segment.
    ///
    /// # Errors
    /// `Io`, `Closed`, `Poisoned`.
    pub fn roll(&self) -> Result<i64> {
        self.changing(PartitionWriter::roll)
    }

    /// Deletes the records from `offset` on. Returns false if the log ends at `offset` or below. If `offset` is inside a batch,
    /// the whole batch is deleted, and the next append still gets `offset`.
    ///
    /// # Errors
    /// `Argument` for a negative offset; `Cluster` if other brokers have replicas, or for an internal topic; `Io`, `Closed`,
    /// `Poisoned`.
    pub fn truncate_to(&self, offset: i64) -> Result<bool> {
        let _paused = self.pause_maintenance();
        self.changing(|writer| {
            self.check_removal(writer, "truncate")?;
            writer.truncate_to(offset)
        })
    }

    /// As [`truncate_to`](Self::truncate_to), after copying what it deletes into the folder `offsetlog-cut` of the partition directory.
    /// Returns the copies, which [`set_aside_files`](Log::set_aside_files) lists too: one for each segment. They are durable before
    /// anything is deleted.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use offsetlog::{AppendOptions, BatchBuilder, LogWriter, OpenOptions, WriteOptions};
    /// # let folder = tempfile::tempdir()?;
    /// # let folder = folder.path();
    /// # let log = LogWriter::open(folder.join("orders-0"), &OpenOptions::default(), &WriteOptions::default())?;
    /// let mut batch = BatchBuilder::default();
    /// for value in [b"kept", b"gone"] {
    ///     batch.push(1_700_000_000_000, None, Some(value), &[])?;
    ///     log.append(&mut batch, &AppendOptions::default())?;
    /// }
    /// let copies = log.truncate_to_keeping(1)?;
    /// assert_eq!((log.log_end_offset()?, copies.len()), (1, 1));
    /// # log.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`truncate_to`](Self::truncate_to). If a copy could not be made, nothing is deleted.
    pub fn truncate_to_keeping(&self, offset: i64) -> Result<Vec<PathBuf>> {
        let _paused = self.pause_maintenance();
        self.changing(|writer| {
            self.check_removal(writer, "truncate")?;
            writer.truncate_to_keeping(offset)
        })
    }

    /// Deletes all records and continues at `offset`. The log start offset becomes `log_start`, by default `offset`.
    ///
    /// # Errors
    /// As [`truncate_to`](Self::truncate_to).
    pub fn truncate_fully_and_start_at(&self, offset: i64, log_start: Option<i64>) -> Result<()> {
        let _paused = self.pause_maintenance();
        self.changing(|writer| {
            self.check_removal(writer, "truncate")?;
            writer.truncate_fully_and_start_at(offset, log_start)
        })
    }

    /// Makes `offset` the lowest offset that can be read. Returns whether that changed anything. An offset below the first segment of a topic
    /// with tiered storage is only stored: its broker then deletes what is below it in the remote store.
    ///
    /// # Errors
    /// `OffsetOutOfRange` above the high watermark; `Cluster` if other brokers have replicas, or for an internal topic; `Io`,
    /// `Closed`, `Poisoned`.
    pub fn delete_records_before(&self, offset: i64) -> Result<bool> {
        self.changing(|writer| {
            self.check_removal(writer, "delete records")?;
            writer.delete_records_before(offset)
        })
    }

    /// Refuses to delete records if other brokers have replicas, or in an internal topic.
    fn check_removal(&self, writer: &PartitionWriter, verb: &str) -> Result<()> {
        let guard = writer.guard();
        guard.check_internal(self.topic(), verb, self.path())?;
        guard.check_replicas(verb, self.path())
    }

    /// Offset below which everything is durable. Waits for the syncs under way.
    pub fn recovery_point(&self) -> i64 {
        self.writer().recovery_point()
    }

    /// Returns the settings in effect, with the source of each one. In a broker's log dir they are the cluster's.
    ///
    /// # Errors
    /// `Config` if a setting of the cluster is not valid.
    pub fn effective_config(&self) -> Result<EffectiveConfig> {
        self.writer().effective(None)
    }

    /// Returns the settings in effect.
    pub fn config(&self) -> LogConfig {
        self.writer().config().clone()
    }

    /// Replaces the settings, and those stored beside the data. With a broker's partition none are stored: they hold while the log is
    /// open.
    ///
    /// # Errors
    /// `Io`, `Closed`, `Poisoned`.
    pub fn set_config(&self, config: &LogConfig) -> Result<()> {
        self.changing(|writer| writer.set_config(config))
    }

    /// Replaces the settings by what `change` makes of those that are stored now, while the partition is locked.
    ///
    /// # Errors
    /// Those of `change` and of [`set_config`](Self::set_config); `Cluster` for a broker's partition.
    pub(crate) fn change_config(
        &self,
        change: impl Fn(&LogConfig) -> Result<LogConfig>,
    ) -> Result<()> {
        self.changing(|writer| writer.change_config(change))
    }

    /// Returns what opening found and changed.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.writer().report().clone()
    }

    /// Returns the greatest epoch at or below `epoch` and its end offset, as a leader answers a follower. If the log's first
    /// epoch is greater, returns `epoch` and the start offset of the first. `None` for a negative epoch, or one greater than
    /// the latest.
    pub fn end_offset_for_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        self.writer().end_offset_for_epoch(epoch)
    }

    /// Closes the log: writes a producer snapshot, trims the indexes, syncs everything, writes the clean-shutdown mark and
    /// releases the locks. Does nothing if the log is closed.
    ///
    /// # Errors
    /// `Io`, `Poisoned`. The log is closed nevertheless, and the next opening recovers it.
    pub fn close(&self) -> Result<()> {
        let _paused = self.pause_maintenance();
        self.writer().close()
    }

    /// Closes the log, and writes the log dir's lines of it even if nothing was changed: they are not there, or of another log.
    pub(crate) fn close_with_lines(&self) -> Result<()> {
        self.writer().lack_lines();
        self.close()
    }

    /// Closes the log as a killed process would: writes nothing more and releases the locks. For tests of recovery.
    #[doc(hidden)]
    pub fn abandon(&self) {
        let _paused = self.pause_maintenance();
        self.writer().abandon();
    }

    /// Whether there is another clone of it, or of its [`Log`].
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1 || Arc::strong_count(&self.0.log.0) > 1
    }

    pub(super) fn maintenance_lock(&self) -> &MaintenanceLock {
        &self.0.maintenance_lock
    }

    /// Runs `work`, which changes the log. A failed sync in it poisons the log, because a later sync would succeed although
    /// data is lost.
    pub(super) fn changing<T>(
        &self,
        work: impl FnOnce(&mut PartitionWriter) -> Result<T>,
    ) -> Result<T> {
        let mut writer = self.writer();
        work(&mut writer).inspect_err(|error| writer.note_failure(error))
    }

    /// Ignores that another thread panicked: the writer's own state decides whether it can continue.
    fn writer(&self) -> MutexGuard<'_, PartitionWriter> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
