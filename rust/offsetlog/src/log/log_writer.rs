//! [`LogWriter`]: a log opened for appending, with the verbs that change it. Its reading half is a [`Log`].

use super::maintain::MaintenanceLock;
use super::producers::MarkerOptions;
use super::recovery::RecoveryReport;
use super::writer::{
    AppendInfo, AppendOptions, AppendOrigin, Commit, PartitionWriter, WriteOptions,
};
use super::{Log, OpenOptions};
use crate::batch_builder::BatchBuilder;
use crate::config::{EffectiveConfig, LogConfig};
use crate::error::{Error, Result};
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One partition's log, opened for appending. Dereferences to its [`Log`], so every question that a reader answers it answers too, from
/// the same state.
///
/// Clones share everything, and all methods may be called from many threads: appends follow each other. There is one writer of a
/// directory at a time. When the last clone is dropped without [`close`](Self::close), files and locks are left as by a killed
/// process, and the next opening recovers the log.
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
/// A log that was opened for reading has none of these verbs:
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
    /// Maintenance, of which there is one at a time.
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

    /// The log, for reading beside the appends. Does not keep the log open for appending.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.0.log
    }

    /// Opens the partition directory `path` for appending and makes it if it is missing.
    ///
    /// Takes an exclusive lock on the directory and, in a log dir, a shared one on its `.lock`, which a running broker holds. After
    /// an unclean end the segments from the recovery point on are read and an unfinished batch at the end is cut off and kept in
    /// `offsetlog-cut`; [`recovery_report`](Self::recovery_report) tells. Cost after a clean end: a listing, two looks at each
    /// segment's indexes and a read from the last index entry on.
    ///
    /// # Errors
    /// * `Locked`: somebody else writes.
    /// * `LogDir`: the name is not `topic-partition`, or a file is named like a segment and is none.
    /// * Those of damage with whole batches behind it: a broker would cut them off, [`recover`](crate::recover) does.
    /// * `Argument`: another topic id than the stored one.
    ///
    /// Source: FORMAT.md «Partition directory».
    pub fn open(
        path: impl AsRef<Path>,
        options: &OpenOptions,
        write: &WriteOptions,
    ) -> Result<Self> {
        super::open::open_for_append(path.as_ref(), options, write)
    }

    /// Appends the records of `batch` as one batch and empties it; gives their offsets. After an error the log and the batch are as
    /// before.
    ///
    /// When this returns, the batch has been handed to the operating system whole: it survives the death of this process, and
    /// power loss after a flush.
    ///
    /// # Errors
    /// `RecordTooLarge`, `RecordBatchTooLarge`, `Unreadable`, `InvalidTimestamp`, `RecordRejected`; with a producer id `OutOfOrderSequence`,
    /// `ProducerFenced`, `InvalidTxnState`; `Io`, `Closed`, `Poisoned`.
    pub fn append(&self, batch: &mut BatchBuilder, options: &AppendOptions) -> Result<AppendInfo> {
        self.appending("append", options.flush, |writer| {
            let leader_epoch = writer.epoch_for(options.leader_epoch);
            writer.append_built(batch, leader_epoch)
        })
    }

    /// As [`append`](Self::append), at an offset that is given, at or behind the log end offset: what a restore does. Timestamps, epochs
    /// and sequences are not checked, as of what a leader stored.
    ///
    /// # Errors
    /// `UnexpectedAppendOffset` below the log end offset; `RecordTooLarge`; `Io`, `Closed`, `Poisoned`.
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

    /// What [`append_at`](Self::append_at) refuses of records from offset `first` on, before they are encoded. Returns the settings, and
    /// the time by the log's clock.
    ///
    /// # Errors
    /// `UnexpectedAppendOffset` below the log end offset; `Closed`, `Poisoned`.
    pub fn check_append_at(&self, first: Option<i64>) -> Result<(LogConfig, i64)> {
        let now = (self.options().clock)();
        let writer = self.writer();
        writer.check_replica(first)?;
        Ok((writer.config().clone(), now))
    }

    /// What [`append`](Self::append) refuses of records before they are encoded. Returns the settings, and the time by the log's clock.
    /// `timestamps` are the least and the greatest in milliseconds since 1970, `None` for the time of the append; `first_null_key` is the
    /// number of the first record without a key.
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

    /// Whether a record of so many headers may be appended: for whoever gathers records and tells early.
    ///
    /// # Errors
    /// `Unreadable`: more than `max_headers`, with which this log was opened.
    pub fn check_headers(&self, count: usize) -> Result<()> {
        self.options().limits.allow_headers(count)
    }

    /// Appends an encoded batch as a leader does: gives offsets and epoch, corrects the greatest timestamp, encodes anew what the
    /// settings want compressed differently or what has magic 0 or 1.
    ///
    /// # Errors
    /// As [`append`](Self::append); `CorruptBatch` for framing and checksum.
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

    /// Appends encoded batches as they are, offsets and epochs kept: what a replica, a mirror or a restore does. Batches of a newer
    /// epoch than `leader_epoch` are left out with all behind them.
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
            writer.append_as_follower(data, leader_epoch)
        })
    }

    /// Ends a producer's transaction with a marker.
    ///
    /// # Errors
    /// `ProducerFenced`, `TransactionCoordinatorFenced`; `Io`, `Closed`, `Poisoned`.
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
            self.commit(Some(end)).map_err(Error::after_append)?;
        } else if interval < i64::MAX {
            self.flush_within(interval)?;
        }
        Ok(info)
    }

    /// Makes everything below `end` durable, or with `None` everything so far. Callers at the same time share one sync.
    fn commit(&self, end: Option<i64>) -> Result<()> {
        let flusher = self.writer().flusher().clone();
        let ends = self.0.log.0.directory.ends.as_deref();
        // Whether somebody who waits may count on this caller to sync.
        let mut is_next = false;
        loop {
            // Most of those who waited for a sync of somebody else need no look at the writer.
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

    /// Has a thread flush the log when `flush.ms` are over, unless one waits for that already.
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
                    // A failure ends the appending, which the next caller is told.
                    let _ = Self(inner).commit(None);
                }
            });
        if started.is_err() {
            // No thread to be had: the caller does it.
            flusher.drop_alarm();
            return self.commit(None).map_err(Error::after_append);
        }
        Ok(())
    }

    /// Makes everything appended so far durable, and every truncation. Callers at the same time share one sync.
    ///
    /// # Errors
    /// `Io`, after which nothing more can be appended until the log is opened again.
    pub fn flush(&self) -> Result<()> {
        self.commit(None)
    }

    /// Closes the active segment and begins a new one; an empty one stays. Gives the active segment's base offset.
    ///
    /// # Errors
    /// `Io`, `Closed`, `Poisoned`.
    pub fn roll(&self) -> Result<i64> {
        self.changing(PartitionWriter::roll)
    }

    /// Takes the records from `offset` on away; says whether there were any. Where `offset` lies inside a batch the whole batch
    /// goes, and the next append still gets `offset`.
    ///
    /// # Errors
    /// `Argument` for a negative offset; `Io`, `Closed`, `Poisoned`; `Cluster` where a broker's cluster is against it.
    pub fn truncate_to(&self, offset: i64) -> Result<bool> {
        let _paused = self.pause_maintenance();
        self.changing(|writer| {
            self.check_removal(writer, "truncate")?;
            writer.truncate_to(offset)
        })
    }

    /// Takes all records away and goes on at `offset`.
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

    /// Makes `offset` the lowest offset that can be read; says whether that changed anything.
    ///
    /// # Errors
    /// `OffsetOutOfRange` beyond the high watermark; `Io`, `Closed`, `Poisoned`; `Cluster` where a broker's cluster is against it.
    pub fn delete_records_before(&self, offset: i64) -> Result<bool> {
        self.changing(|writer| {
            self.check_removal(writer, "delete records")?;
            writer.delete_records_before(offset)
        })
    }

    /// Refuses what a caller wants taken away against the cluster, or from a topic that brokers keep for themselves.
    fn check_removal(&self, writer: &PartitionWriter, verb: &str) -> Result<()> {
        let guard = writer.guard();
        guard.check_internal(self.topic(), verb, self.path())?;
        guard.check_replicas(verb, self.path())
    }

    /// Exclusive end of what is on the disk for certain: after the last flush, or behind the last roll. Waits for a sync that a
    /// roll began.
    pub fn recovery_point(&self) -> i64 {
        self.writer().recovery_point()
    }

    /// The settings that hold, with where each one comes from. In a broker's log dir they are the cluster's.
    ///
    /// # Errors
    /// `Config` where a setting of the cluster is not valid.
    pub fn effective_config(&self) -> Result<EffectiveConfig> {
        self.writer().effective(None)
    }

    /// The settings.
    pub fn config(&self) -> LogConfig {
        self.writer().config().clone()
    }

    /// Changes the settings, and those stored beside the data.
    ///
    /// # Errors
    /// `Io`, `Closed`, `Poisoned`.
    pub fn set_config(&self, config: &LogConfig) -> Result<()> {
        self.changing(|writer| writer.set_config(config))
    }

    /// What opening found and changed.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.writer().report().clone()
    }

    /// The greatest epoch at or below `epoch` and the offset at which it ended; `None` where the log knows none, as a leader answers
    /// a follower.
    pub fn end_offset_for_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        self.writer().end_offset_for_epoch(epoch)
    }

    /// Closes the log: flushes, trims, writes a snapshot and the clean mark, and lets go of the locks. Does nothing for a log that is
    /// closed.
    ///
    /// # Errors
    /// `Io`, `Poisoned`; the log is closed all the same, and the next opening recovers it.
    pub fn close(&self) -> Result<()> {
        let _paused = self.pause_maintenance();
        self.writer().close()
    }

    /// Lets go of files and locks as a killed process would. For tests of recovery.
    #[doc(hidden)]
    pub fn abandon(&self) {
        let _paused = self.pause_maintenance();
        self.writer().abandon();
    }

    /// Whether somebody else has a clone of it, or of its [`Log`].
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1 || Arc::strong_count(&self.0.log.0) > 1
    }

    pub(super) fn maintenance_lock(&self) -> &MaintenanceLock {
        &self.0.maintenance_lock
    }

    /// Does what changes the log. A sync that fails anywhere in it ends the appending: a later one would answer with success.
    pub(super) fn changing<T>(
        &self,
        work: impl FnOnce(&mut PartitionWriter) -> Result<T>,
    ) -> Result<T> {
        let mut writer = self.writer();
        work(&mut writer).inspect_err(|error| writer.note_failure(error))
    }

    /// A panic of another thread is no reason to panic here: the writer's own state says whether it can go on.
    fn writer(&self) -> MutexGuard<'_, PartitionWriter> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
