//! A partition: its segments in order, its named offsets, and the verbs that read it. [`LogWriter`] has those that write.
//!
//! A [`Log`] takes no lock, makes no file and writes nothing. It answers each question from a view: the segments and their sizes at one
//! moment. `view` decides whether a view is still new enough; a writer of this process tells it through
//! `writers` and `segment::ends`.

mod append_log;
mod batches;
mod cleaner;
mod cluster;
mod filter;
mod follow;
mod log_writer;
mod look_up;
mod maintain;
mod named_offsets;
mod open;
mod producers;
mod recovery;
mod scan;
mod split;
mod state;
mod time;
mod transactions;
mod values;
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

pub use append_log::AppendLogOptions;
pub use batches::Batches;
pub use cluster::{BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage};
pub use follow::Follow;
pub use log_writer::LogWriter;
pub use look_up::{FetchOptions, FetchResult};
pub use maintain::{CompactOptions, Compaction, MaintainOptions, MaintainReport};
pub use producers::MarkerOptions;
pub use recovery::{Cut, Progress, RecoverOptions, RecoveryReport};
pub use scan::{
    Batch, DetachedBatch, Hole, LaterLog, OnCorrupt, Scan, ScanOptions, ScanRange, ScanReport,
    ScanStatistics,
};
pub use split::Split;
pub use values::{
    AbortedTransaction, BatchInfo, IndexEntry, Isolation, Location, OffsetAndTimestamp, Record,
    SegmentInfo, sequence_of,
};

pub use verify::{DamageReport, Finding, Severity, VerifyOptions, verify};
pub use writer::{
    AppendInfo, AppendOptions, AppendOrigin, RemovedSegment, RetentionReason, WriteOptions, recover,
};

pub(crate) use cluster::{
    Guard, Membership, Surroundings, check_internal, is_internal, read_metadata, replay,
};
pub(crate) use open::{
    forget_partition, make_directory, open_for_append_in, open_in, partition_name,
};
pub(crate) use state::{
    LogDirFiles, lock_idle, lock_log_dir, lock_partition, read_config, write_config,
};

pub(crate) use crate::segment::ends::Ends;
pub(crate) use look_up::Scratch;
pub(crate) use view::View;

/// How often a question is asked anew because files were changed under it.
const LOOKS_MAX: u32 = 8;
/// How long to wait for the clock of a file system, whose ticks may be longer than the time between two changes.
const RACY_WAIT: std::time::Duration = std::time::Duration::from_millis(21);

/// Asked at every few MiB of work: `true` ends the work with [`ErrorKind::Interrupted`].
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// Milliseconds since 1970: every decision about time comes from here.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// How a log is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// Bounds on what bytes from files can make us do.
    pub limits: Limits,
    /// Maps `.log` files instead of reading them. Faster, and safe only on copies that nobody writes: a file that shrinks while it
    /// is mapped kills the process with SIGBUS.
    pub mapped: bool,
    /// Ends long work.
    pub interrupt: Option<Interrupt>,
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// The time, asked by whoever appends.
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
/// What it sees: when a verb that changes a log returns, every later question in this process sees the change, on whichever value it was
/// made and is asked, and so does every scan that begins later. Each question is answered from one state of the log. Where another
/// process writes, that is a state which the log had between the last look at its directory and the answer; each question looks, but
/// [`get`](Self::get) and [`offset_for_timestamp`](Self::offset_for_timestamp) and ranges with a stop, for which a look is good for a
/// millisecond. [`refresh`](Self::refresh) looks at once.
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
    topic: String,
    partition: i32,
    options: OpenOptions,
    /// A broker or writer held the log dir when the log was opened.
    log_dir_was_locked: bool,
    warnings: Vec<String>,
    view: RwLock<Arc<View>>,
    scratch: Mutex<Vec<Scratch>>,
}

impl Log {
    /// Whether its writer, where it is a [`LogWriter`]'s, was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let ends = self.0.directory.ends.as_deref();
        ends.is_some_and(Ends::is_closed)
    }

    /// Whether all that was appended here is on the disk; of a closed one whether closing got that far.
    pub(crate) fn is_durable(&self) -> bool {
        let ends = self.0.directory.ends.as_deref();
        ends.is_none_or(|ends| ends.recovery_point() >= ends.log_end())
    }

    /// Opens the partition directory `path`, named `topic-partition`.
    ///
    /// Lists the directory and reads its metadata and the checkpoints around it; no segment is opened yet. Changes nothing.
    ///
    /// # Errors
    /// * `Io`: the directory cannot be listed.
    /// * `LogDir`: its name is not `topic-partition`, or a file in it has a name that Kafka takes for a segment and cannot read.
    ///
    /// Source: FORMAT.md «Partition directory».
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        open::open(path.as_ref(), options)
    }

    /// The partition directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.directory.path
    }

    /// The topic, from the directory's name.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.0.topic
    }

    /// The partition, from the directory's name.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.0.partition
    }

    /// What was odd when the log was opened and did not hinder reading, such as a checkpoint that cannot be read.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.0.warnings
    }

    /// How the log was opened.
    #[must_use]
    pub fn options(&self) -> &OpenOptions {
        &self.0.options
    }

    /// The segments, oldest first; the last one is the active segment.
    ///
    /// # Errors
    /// `Io` when the directory cannot be listed or a file not be looked at.
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

    /// Bytes of all `.log` files.
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

    /// The view in use, whatever its age.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.0.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at the directory, so that later questions see what other processes have done up to now. What this process does is seen
    /// without it. Costs four looks at files where nothing changed, a listing where files did.
    ///
    /// # Errors
    /// `Io`: the directory cannot be listed; `NotFound` among them where it is gone.
    pub fn refresh(&self) -> Result<()> {
        self.fresh_view().map(drop)
    }

    /// A view of the directory as it is now; the one in use if nothing changed.
    pub(crate) fn fresh_view(&self) -> Result<Arc<View>> {
        let view = self.view();
        if view.is_current() {
            return Ok(view);
        }
        self.next_view(Some(&view))
    }

    /// A view for point look-ups and for ranges whose ends are known: all that this process did is in it, what other processes did up to
    /// a moment ago. Without a look where that is known.
    pub(crate) fn recent_view(&self) -> Result<Arc<View>> {
        let view = self.view();
        if view.is_recent() {
            return Ok(view);
        }
        self.fresh_view()
    }

    fn next_view(&self, before: Option<&View>) -> Result<Arc<View>> {
        let next = Arc::new(View::take(&self.0.directory, before)?);
        *self.0.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&next);
        Ok(next)
    }

    /// The offsets of the writer, where one of this process has the log open and the view in use knows it.
    pub(crate) fn told(&self) -> Option<Arc<Ends>> {
        self.view().ends().cloned()
    }

    /// A newer view for whoever met `error` in `view`, if the log is another by now; otherwise that error. A truncation, a compaction or
    /// retention, perhaps of another process, removes, cuts and replaces files that a view names.
    pub(crate) fn view_after(&self, view: &View, error: Error) -> Result<Arc<View>> {
        if !error.may_be_stale() {
            return Err(error);
        }
        if view.is_racy() {
            // Its time does not tell whether the directory changed; soon it will.
            std::thread::sleep(RACY_WAIT);
        }
        let was_undisturbed = view.is_undisturbed() && !view.is_racy();
        let fresh = self.next_view(None)?;
        // A segment that was replaced by itself alone is there again.
        let disk = self.0.directory.disk.as_ref();
        let is_back =
            !error.is_corruption() && error.path().is_some_and(|path| disk.stat(path).is_ok());
        if was_undisturbed && fresh.has_segments_of(view) && !is_back {
            return Err(error);
        }
        Ok(fresh)
    }

    /// Does `work` with a view, and again with a newer one as long as files are changed under it; gives the view too.
    pub(crate) fn in_view<T>(
        &self,
        mut view: Arc<View>,
        mut work: impl FnMut(&View) -> Result<T>,
    ) -> Result<(Arc<View>, T)> {
        for _ in 0..LOOKS_MAX {
            match work(&view) {
                Err(error) => view = self.view_after(&view, error)?,
                Ok(done) => return Ok((view, done)),
            }
        }
        work(&view).map(|done| (view, done))
    }

    /// Answers from the directory as it is now, where no more is read than what belongs to the view: its bounds.
    pub(crate) fn look<T>(&self, work: impl FnMut(&View) -> Result<T>) -> Result<T> {
        self.in_view(self.fresh_view()?, work)
            .map(|(_, answer)| answer)
    }

    /// Answers a question from one state of the log, no older than the question: again with a newer view as long as more than the end of
    /// the log changes meanwhile.
    pub(crate) fn ask<T>(&self, mut work: impl FnMut(&View) -> Result<T>) -> Result<T> {
        for _ in 0..LOOKS_MAX {
            let (view, answer) = self.in_view(self.fresh_view()?, &mut work)?;
            if view.is_undisturbed() {
                return Ok(answer);
            }
        }
        // Somebody changes it all the time. A writer of this process can be made to wait.
        let mut view = self.fresh_view()?;
        for _ in 0..LOOKS_MAX {
            let ends = view.ends().cloned();
            let held = ends.as_ref().map(|ends| ends.listing());
            if held.is_none() {
                break;
            }
            if view.is_told_current() {
                return work(&view);
            }
            drop(held);
            view = self.fresh_view()?;
        }
        self.in_view(view, work).map(|(_, answer)| answer)
    }

    /// Asks whether to go on.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.0.options.interrupt {
            Some(interrupt) if interrupt() => Err(Error::new(ErrorKind::Interrupted)),
            _ => Ok(()),
        }
    }
}
