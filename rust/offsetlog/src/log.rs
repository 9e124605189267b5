//! A partition's log: its segments, its named offsets, and the methods that read it. [`LogWriter`] has those that write.
//!
//! A [`Log`] takes no lock, creates no file and writes nothing. It answers each call from a view: the segments and their sizes at one
//! moment. The module `view` decides whether a view is still current; a writer in this process reports its changes through `writers` and
//! `segment::live_offsets`.

mod active_producers;
mod append_log;
mod batches;
mod cleaner;
mod cluster;
mod filter;
mod first_record;
mod follow;
mod gaps;
mod log_writer;
mod look_up;
mod maintain;
mod move_log;
mod named_offsets;
mod open;
mod producers;
mod ranges;
mod recovery;
mod scan;
mod segment_age;
mod set_aside;
mod split;
mod state;
mod time;
mod transactions;
mod truncation_watch;
mod values;
mod verified;
mod verify;
mod view;
mod writer;
mod writers;

use crate::disk::{Disk, IoCall};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::Limits;
use crate::segment::Directory;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

pub use active_producers::ProducerState;
pub use append_log::AppendLogOptions;
pub use batches::Batches;
pub use cluster::{
    AccessControlEntry, BrokerRegistration, ClientQuota, HIDDEN, MetadataImage, MetadataMark,
    NodeAnswer, PartitionRegistration, ScramCredential, TopicImage, is_internal_topic, is_secret,
    zookeeper_node,
};
pub use follow::Follow;
pub use log_writer::LogWriter;
pub use look_up::{FetchOptions, FetchResult};
pub use maintain::{CompactOptions, Compaction, MaintainOptions, MaintainReport};
pub use move_log::{MovedBatch, moving_note};
pub use producers::MarkerOptions;
pub use ranges::{Extent, FetchedRange, FileRange, Outcome, RangeOptions};
pub use recovery::{Cut, Progress, RecoverOptions, RecoveryReport};
pub use scan::{
    Batch, DetachedBatch, Hole, LaterLog, OnCorrupt, OneTopic, Scan, ScanOptions, ScanRange,
    ScanReport, ScanStatistics,
};
pub(crate) use scan::{id_in, other_topic};
pub use segment_age::SegmentAge;
pub use set_aside::SetAsideFile;
pub use split::Split;
pub use state::{SHARED_LOCK_FILE, keep_kafka_out, lock_shared_files};
pub use truncation_watch::TruncationWatch;
pub use values::{
    AbortedTransaction, BatchInfo, IndexEntry, Isolation, Location, OffsetAndTimestamp, Record,
    SegmentInfo, sequence_of,
};

pub use verify::{DamageReport, Finding, Severity, VerifyOptions, verify};
pub use writer::{
    AppendOptions, AppendOrigin, RemovedSegment, RetentionReason, WriteOptions, recover,
};

pub(crate) use cleaner::{Rest, Rewriter};
pub(crate) use cluster::{
    Guard, Membership, Surroundings, check_internal, read_metadata, read_metadata_told,
    refuse_mirrored, replay,
};
pub use cluster::{MIRROR_NOTE, check_new_partition};
pub(crate) use open::{
    forget_partition, make_directory, open_for_append_in, open_in, partition_name,
};
pub(crate) use set_aside::SetAside;
pub(crate) use state::{
    LogDirFiles, STATE_FILE, lock_idle, lock_log_dir, lock_partition, note_offsets, read_config,
    read_state, write_config,
};
pub(crate) use writer::Checksums;

pub(crate) use crate::segment::live_offsets::LiveOffsets;
pub(crate) use look_up::Scratch;
pub(crate) use view::{Around, View};

/// How often a call is repeated because files changed while it read them.
const LOOKS_MAX: u32 = 8;
/// The same while a writer in another process truncates its log again and again: of what it has left alone for a while.
const LOOKS_BETWEEN_MAX: u32 = 100;
/// How long to wait for the file system's clock, whose ticks may be longer than the time between two changes.
const RACY_WAIT: std::time::Duration = std::time::Duration::from_millis(21);

/// Called every few MiB of work; if it returns `true`, the work ends with [`ErrorKind::Interrupted`].
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// Returns the current time in milliseconds since 1970; every decision about time uses it.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// How a log is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// Bounds on the work and memory that bytes from files can cause.
    pub limits: Limits,
    /// Maps `.log` files and indexes of a log opened for reading, instead of reading them. Faster, but safe only for copies that nobody
    /// writes: a file that shrinks while it is mapped kills the process with SIGBUS.
    pub mapped: bool,
    /// Called during long work, which it can end.
    pub interrupt: Option<Interrupt>,
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// The clock, for appending, and for the ages that a caller prints.
    pub clock: Clock,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            mapped: false,
            interrupt: None,
            disk: Arc::new(crate::disk::RealDisk),
            clock: Arc::new(crate::disk::wall_clock),
        }
    }
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOptions")
            .field("limits", &self.limits)
            .field("mapped", &self.mapped)
            .finish_non_exhaustive()
    }
}

/// One partition's log, for reading. Clones share everything; all methods may be called from many threads.
///
/// When a method that changes a log returns, every later call in this process sees the change, on any value of that log, and so does
/// every scan that begins later. Each call answers from one state of the log. If another process writes, that is a state the log had
/// between the last check of its directory and the answer. Every call checks, except [`get`](Self::get),
/// [`offset_for_timestamp`](Self::offset_for_timestamp) and ranges with a stop: for these a check is valid for about ten milliseconds.
/// [`refresh`](Self::refresh) checks at once.
///
/// ```no_run
/// # fn main() -> Result<(), offsetlog::Error> {
/// use offsetlog::{Log, OpenOptions, ScanOptions};
///
/// let log = Log::open("kafka-logs/orders-0", &OpenOptions::default())?;
/// let mut scan = log.scan(&ScanOptions::default())?;
/// while let Some(mut batch) = scan.next_batch()? {
///     while let Some(record) = batch.next_record()? {
///         println!("{} {:?}", record.offset, record.value);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Log(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: Arc<Directory>,
    options: Arc<OpenOptions>,
    /// Whether a broker or writer held the lock of the log dir when the log was opened.
    log_dir_was_locked: bool,
    warnings: Vec<String>,
    view: RwLock<Arc<View>>,
    scratch: Mutex<Vec<Scratch>>,
    /// Which bytes were checked before they were given out as ranges.
    verified: Mutex<verified::VerifiedSegments>,
}

impl Log {
    /// Whether this is a [`LogWriter`]'s log and its writer was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let ends = self.0.directory.ends.as_deref();
        ends.is_some_and(LiveOffsets::is_closed)
    }

    /// Whether all records appended by this writer are on the disk; for a closed one, whether they were when it closed. True for a log
    /// without a writer.
    pub(crate) fn is_durable(&self) -> bool {
        let ends = self.0.directory.ends.as_deref();
        ends.is_none_or(|ends| ends.recovery_point() >= ends.log_end())
    }

    /// Opens the partition directory `path`, named `topic-partition`.
    ///
    /// Lists the directory, reads the checkpoints around it and opens the active segment. Changes nothing.
    ///
    /// # Errors
    /// * `Io`: the directory cannot be listed or a file cannot be read.
    /// * `LogDir`: its name is not `topic-partition`, or it holds a file with a segment's suffix whose name Kafka cannot parse.
    /// * `Limit`: more segments than `max_segments`. `SegmentTooLarge`: an active segment above 2^31 - 1 bytes.
    ///
    /// Source: FORMAT.md «Partition directory».
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        open::open(path.as_ref(), options)
    }

    /// Returns the path of the partition directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.directory.path
    }

    /// Returns the topic, from the directory's name.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.0.directory.topic
    }

    /// Returns the partition, from the directory's name.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.0.directory.partition
    }

    /// Returns what was odd when the log was opened but did not prevent reading, such as a checkpoint that cannot be parsed,
    /// or that the log begins before its first segment.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.0.warnings
    }

    /// Returns how the log was opened.
    #[must_use]
    pub fn options(&self) -> &OpenOptions {
        &self.0.options
    }

    /// Returns the segments, oldest first; the last one is the active segment.
    ///
    /// # Errors
    /// `Io` if the directory cannot be listed or a file cannot be opened; the others of [`open`](Self::open).
    pub fn segments(&self) -> Result<Vec<SegmentInfo>> {
        self.ask(|view| {
            let infos = view.segments.iter().map(|segment| {
                let open = view.open(segment)?;
                Ok(SegmentInfo {
                    base_offset: segment.base_offset,
                    path: open.path.clone(),
                    size_bytes: open.stat.size,
                    index_entries: open.index().len(),
                    is_active: segment.is_active(),
                })
            });
            infos.collect()
        })
    }

    /// Returns the total size of all `.log` files, in bytes.
    ///
    /// # Errors
    /// As [`segments`](Self::segments).
    pub fn size_bytes(&self) -> Result<u64> {
        self.ask(|view| {
            view.segments.iter().try_fold(0, |total, segment| {
                let path = segment.file_path(".log");
                let stat = self.0.directory.disk.stat(&path);
                Ok(total
                    + stat
                        .map_err(|error| Error::io(IoCall::Stat, &path, error))?
                        .size)
            })
        })
    }

    /// Returns the view in use, whatever its age.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.0.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Checks the directory, so that later calls see what other processes have done. Changes by this process are seen without it. Costs
    /// the stat of three or four files if nothing changed, a listing if something did.
    ///
    /// # Errors
    /// As [`open`](Self::open); an `Io` of kind `NotFound` if the directory does not exist any more.
    pub fn refresh(&self) -> Result<()> {
        self.fresh_view().map(drop)
    }

    /// Closes the files that this log has open: that of the active segment, and those of others that were read. The next call opens what it
    /// reads, and answers from the log as it is then, as every call does. Scans at work keep what they read. For whoever holds the logs of many
    /// partitions and reads one after the other.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), offsetlog::Error> {
    /// let log = offsetlog::Log::open("/var/lib/kafka/orders-0", &offsetlog::OpenOptions::default())?;
    /// let end = log.log_end_offset()?;
    /// log.close_files();
    /// assert!(log.log_end_offset()? >= end);
    /// # Ok(())
    /// # }
    /// ```
    pub fn close_files(&self) {
        let mut current = self.0.view.write().unwrap_or_else(PoisonError::into_inner);
        let closed = current.without_files();
        current.hand_on_damage(&closed);
        *current = Arc::new(closed);
    }

    /// Returns a view of the directory as it is now; the one in use if nothing changed.
    pub(crate) fn fresh_view(&self) -> Result<Arc<View>> {
        let view = self.view();
        if view.is_current() {
            return Ok(view);
        }
        self.next_view(Some(&view))
    }

    /// Asks a log that was just opened, of which the opening has seen all that there is to look at: it is not looked at again.
    pub(crate) fn as_found<T>(&self, ask: impl FnOnce(&Self) -> T) -> T {
        struct TakenAsFound(Arc<View>);
        impl Drop for TakenAsFound {
            fn drop(&mut self) {
                self.0.take_as_found(false);
            }
        }
        let taken = TakenAsFound(self.view());
        taken.0.take_as_found(true);
        ask(self)
    }

    /// Returns a view for point look-ups and for ranges with known bounds. Changes by this process are seen at once, those by other
    /// processes after about ten milliseconds: within it the directory is not checked again.
    pub(crate) fn recent_view(&self) -> Result<Arc<View>> {
        let view = self.view();
        if view.is_recent() {
            return Ok(view);
        }
        self.fresh_view()
    }

    fn next_view(&self, before: Option<&View>) -> Result<Arc<View>> {
        let interrupt = self.0.options.interrupt.as_ref();
        let next = View::take(&self.0.directory, before, None, interrupt)?;
        let mut current = self.0.view.write().unwrap_or_else(PoisonError::into_inner);
        current.hand_on_damage(&next);
        *current = Arc::clone(&next);
        drop(current);
        Ok(next)
    }

    /// Returns the writer's offsets, if a writer in this process has the log open and the view in use knows it.
    pub(crate) fn told(&self) -> Option<Arc<LiveOffsets>> {
        self.view().ends().cloned()
    }

    /// Returns a newer view if the log changed since `view`; otherwise returns `error`, which reading in `view` caused. Truncation,
    /// compaction and retention, also by another process, delete, shorten and replace files that a view names.
    pub(crate) fn view_after(&self, view: &View, error: Error) -> Result<Arc<View>> {
        if !matches!(error.kind(), ErrorKind::Interrupted) && view.ends_below_start_for_now() {
            let fresh = self.next_view(None)?;
            view.hand_on(&error, &fresh);
            return Ok(fresh);
        }
        if !error.may_be_stale() {
            return Err(error);
        }
        if view.is_racy() {
            // The directory's timestamp does not yet tell whether it changed; soon it will.
            std::thread::sleep(RACY_WAIT);
        }
        let was_undisturbed = view.is_undisturbed() && !view.is_racy();
        let fresh = self.next_view(None)?;
        // A file replaced by one of the same name exists again.
        let disk = self.0.directory.disk.as_ref();
        let is_back =
            !error.is_corruption() && error.path().is_some_and(|path| disk.stat(path).is_ok());
        if was_undisturbed && fresh.has_segments_of(view) && !is_back {
            return Err(error);
        }
        view.hand_on(&error, &fresh);
        Ok(fresh)
    }

    /// Runs `work` with a view, and again with a newer one while files change under it. Returns the view too.
    pub(crate) fn in_view<T>(
        &self,
        mut view: Arc<View>,
        mut work: impl FnMut(&View) -> Result<T>,
    ) -> Result<(Arc<View>, T)> {
        let mut looks = 0;
        loop {
            match work(&view) {
                Ok(done) => return Ok((view, done)),
                Err(error) => {
                    let is_last = looks >= LOOKS_MAX
                        && (looks >= LOOKS_BETWEEN_MAX || !view.is_between_states(&error));
                    if is_last {
                        return Err(error);
                    }
                    view = self.view_after(&view, error)?;
                }
            }
            looks += 1;
        }
    }

    /// Answers from the directory as it is now. For work that reads only what the view holds: its bounds.
    pub(crate) fn look<T>(&self, work: impl FnMut(&View) -> Result<T>) -> Result<T> {
        self.in_view(self.fresh_view()?, work)
            .map(|(_, answer)| answer)
    }

    /// As [`look`](Self::look), for work that does not ask for the high watermark.
    pub(crate) fn look_at_bounds<T>(&self, work: impl FnMut(&View) -> Result<T>) -> Result<T> {
        let view = self.view();
        let view = if view.has_current_bounds() {
            view
        } else {
            self.next_view(Some(&view))?
        };
        self.in_view(view, work).map(|(_, answer)| answer)
    }

    /// Answers from one state of the log that is no older than the call. Repeats with a newer view if anything but the end of the log
    /// changed meanwhile.
    pub(crate) fn ask<T>(&self, mut work: impl FnMut(&View) -> Result<T>) -> Result<T> {
        for _ in 0..LOOKS_MAX {
            let (view, answer) = self.in_view(self.fresh_view()?, &mut work)?;
            // Between its end and its start stored for later lies no state of the log.
            if view.is_undisturbed() && !view.ends_below_start_for_now() {
                return Ok(answer);
            }
            // The log is not as it was found: the next round looks at it.
            view.take_as_found(false);
        }
        // The files change all the time. A writer in this process can be made to wait.
        let mut view = self.fresh_view()?;
        for _ in 0..LOOKS_MAX {
            let ends = view.ends().cloned();
            let held = ends.as_ref().map(|ends| ends.listing());
            if held.is_none() {
                break;
            }
            if view.is_told_current() {
                match work(&view) {
                    // A roll does not wait.
                    Err(error) if error.may_be_stale() => {}
                    answer => return answer,
                }
            }
            drop(held);
            view = self.fresh_view()?;
        }
        self.in_view(view, work).map(|(_, answer)| answer)
    }

    /// Fails with `Interrupted` if the caller wants the work to end.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.0.options.interrupt {
            Some(interrupt) if interrupt() => Err(Error::new(ErrorKind::Interrupted)),
            _ => Ok(()),
        }
    }
}
