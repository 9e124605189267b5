//! One segment of a log: the `.log` file and its indexes, opened for reading.
//!
//! A segment knows its own files. Of its neighbours it knows only the base offset of the next one. Files are opened on first
//! use and dropped by [`Segment::close`], so a log of any length needs few descriptors.

pub(crate) mod active;
pub(crate) mod find;
pub(crate) mod index_file;
pub(crate) mod index_maps;
pub(crate) mod indexing;
pub(crate) mod live_offsets;
pub(crate) mod offset_index;
mod sorted;
pub(crate) mod time_index;
pub(crate) mod walk;

use crate::checkpoints::Checkpoints;
use crate::disk::{Access, Disk, DiskDirectory, DiskFile, FileStat, IoCall, Map};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::Limits;
use crate::local_path::joined;
use index_maps::{IndexMaps, SegmentMaps};
use live_offsets::LiveOffsets;
use offset_index::OffsetIndex;
use offsetlog_format::FileState;
use offsetlog_format::name::{DirectoryState, segment_file_name};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use time_index::SegmentTimes;

/// State shared by all segments of a partition directory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    /// By its name, as the partition.
    pub(crate) topic: String,
    pub(crate) partition: i32,
    /// By its name too; `None` for a single file that was set aside, of which no checkpoint tells anything.
    pub(crate) state: Option<DirectoryState>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) limits: Limits,
    /// Whether indexes of closed segments may be mapped: the caller promised that nobody writes them.
    pub(crate) map_indexes: bool,
    /// The maps of indexes, if this log was opened for appending: its locks keep others from the files.
    pub(crate) maps: Option<Arc<IndexMaps>>,
    /// Whether `.log` files may be mapped: the caller promised that nobody writes them.
    pub(crate) map_logs: bool,
    /// The current start and end of the log, if this process writes it.
    pub(crate) ends: Option<Arc<LiveOffsets>>,
    /// The checkpoints of the log dir that holds the partition.
    pub(crate) checkpoints: Arc<Checkpoints>,
}

impl Directory {
    /// A copy for readers: `ends` belongs to the writer in this process, `None` if there is none.
    pub(crate) fn beside(&self, ends: Option<Arc<LiveOffsets>>) -> Self {
        let is_written = ends.is_some();
        Self {
            path: self.path.clone(),
            topic: self.topic.clone(),
            partition: self.partition,
            state: self.state,
            disk: Arc::clone(&self.disk),
            limits: self.limits,
            // Truncating a mapped file kills the process with SIGBUS, so nothing is mapped beside a writer.
            map_indexes: self.map_indexes && !is_written,
            maps: None,
            map_logs: self.map_logs && !is_written,
            ends,
            checkpoints: Arc::clone(&self.checkpoints),
        }
    }

    /// A copy that maps `.log` files and reads indexes.
    pub(crate) fn mapped(&self) -> Self {
        Self {
            map_logs: true,
            ..self.unmapped()
        }
    }

    /// A copy that maps nothing.
    pub(crate) fn unmapped(&self) -> Self {
        Self {
            path: self.path.clone(),
            topic: self.topic.clone(),
            partition: self.partition,
            state: self.state,
            disk: Arc::clone(&self.disk),
            limits: self.limits,
            map_indexes: false,
            maps: None,
            map_logs: false,
            ends: None,
            checkpoints: Arc::clone(&self.checkpoints),
        }
    }
}

/// A segment of a log, opened on first use.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base_offset: i64,
    /// Base offset of the next segment; `None` for the active segment.
    pub(crate) next_base_offset: Option<i64>,
    directory: Arc<Directory>,
    /// State of the segment's files: live, or renamed with a suffix such as `.deleted`.
    state: FileState,
    open: Mutex<Option<Arc<OpenSegment>>>,
    /// Survive [`close`](Self::close): they need no descriptor.
    maps: Option<Arc<SegmentMaps>>,
    /// Survives [`close`](Self::close): the times do not change within one view of the log.
    times: OnceLock<SegmentTimes>,
    /// Times computed from the batch headers, for a time index that proved wrong.
    walked_times: OnceLock<SegmentTimes>,
}

/// The open files of a segment. `stat.size` is the size at opening; bytes appended later belong to the next view of the log.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) base_offset: i64,
    pub(crate) next_base_offset: Option<i64>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) path: PathBuf,
    pub(crate) source: Source,
    pub(crate) stat: FileStat,
    state: FileState,
    index: OnceLock<OffsetIndex>,
    /// See [`usual_batch_bytes`](Self::usual_batch_bytes).
    usual_batch_bytes: AtomicU32,
    /// Of a closed segment in a log that was opened for appending.
    maps: Option<Arc<SegmentMaps>>,
}

/// The source of a `.log` file's bytes.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    File(Arc<dyn DiskFile>),
    Mapped(Arc<Map>),
}

impl Segment {
    pub(crate) fn new(
        directory: Arc<Directory>,
        base_offset: i64,
        next_base_offset: Option<i64>,
    ) -> Self {
        let maps = (next_base_offset.is_some() && directory.maps.is_some())
            .then(|| Arc::new(SegmentMaps::default()));
        Self {
            base_offset,
            next_base_offset,
            directory,
            maps,
            state: FileState::Live,
            open: Mutex::new(None),
            times: OnceLock::new(),
            walked_times: OnceLock::new(),
        }
    }

    /// The same segment, whose files are in `state`.
    pub(crate) fn in_state(self, state: FileState) -> Self {
        Self { state, ..self }
    }

    /// Path of this segment's file with `suffix`, such as `.log`.
    pub(crate) fn file_path(&self, suffix: &str) -> PathBuf {
        let path = segment_path(&self.directory.path, self.base_offset, suffix);
        with_state(path, self.state)
    }

    pub(crate) const fn is_active(&self) -> bool {
        self.next_base_offset.is_none()
    }

    /// Returns the open files, and whether this call opened them.
    pub(crate) fn open(&self) -> Result<(Arc<OpenSegment>, bool)> {
        self.open_in(None)
    }

    /// As [`open`](Self::open), in its directory if that is open.
    pub(crate) fn open_in(
        &self,
        directory: Option<&dyn DiskDirectory>,
    ) -> Result<(Arc<OpenSegment>, bool)> {
        let mut slot = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = slot.as_ref() {
            return Ok((Arc::clone(open), false));
        }
        let open = Arc::new(OpenSegment::new(self, directory)?);
        *slot = Some(Arc::clone(&open));
        Ok((open, true))
    }

    /// Drops the open files. Scans that hold them continue.
    pub(crate) fn close(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The segment's timestamps, computed once.
    pub(crate) fn times(
        &self,
        open: &Arc<OpenSegment>,
        check: &Check<'_>,
    ) -> Result<&SegmentTimes> {
        if let Some(times) = self.times.get() {
            return Ok(times);
        }
        let times = SegmentTimes::load_past_damage(open, check)?;
        Ok(self.times.get_or_init(|| times))
    }

    /// The segment's timestamps from the batch headers alone, computed once.
    pub(crate) fn walked_times(
        &self,
        open: &Arc<OpenSegment>,
        check: &Check<'_>,
    ) -> Result<&SegmentTimes> {
        if let Some(times) = self.walked_times.get() {
            return Ok(times);
        }
        let times = SegmentTimes::from_headers(open, check)?;
        Ok(self.walked_times.get_or_init(|| times))
    }
}

/// Called at least every few MiB of work; an error stops the work.
pub(crate) type Check<'c> = dyn Fn() -> Result<()> + 'c;

impl OpenSegment {
    fn new(segment: &Segment, open: Option<&dyn DiskDirectory>) -> Result<Self> {
        let directory = Arc::clone(&segment.directory);
        let name = segment_file_name(segment.base_offset, ".log") + segment.state.suffix();
        let path = joined(&directory.path, &name);
        let file = match open {
            Some(open) => open.open(name.as_ref()),
            None => directory.disk.open(&path, Access::Read),
        };
        let file = file.map_err(|error| Error::io(IoCall::Open, &path, error))?;
        let mut stat = file
            .stat_at_open()
            .map_err(|error| Error::io(IoCall::Stat, &path, error))?;
        // Bytes that a writer in this process has preallocated or not yet completed are not part of the log.
        let written = directory
            .ends
            .as_ref()
            .filter(|_| segment.is_active())
            .and_then(|ends| ends.written(segment.base_offset));
        stat.size = stat.size.min(written.unwrap_or(u64::MAX));
        if stat.size > i32::MAX as u64 {
            return Err(Error::new(ErrorKind::SegmentTooLarge { size: stat.size }).at_path(&path));
        }
        let mapped = if directory.map_logs {
            file.map(stat.size)
        } else {
            None
        };
        Ok(Self {
            base_offset: segment.base_offset,
            next_base_offset: segment.next_base_offset,
            path,
            source: mapped.map_or(Source::File(file), |map| {
                map.will_be_scanned();
                Source::Mapped(Arc::new(map))
            }),
            stat,
            state: segment.state,
            index: OnceLock::new(),
            usual_batch_bytes: AtomicU32::new(0),
            maps: segment.maps.clone(),
            directory,
        })
    }

    pub(crate) const fn is_active(&self) -> bool {
        self.next_base_offset.is_none()
    }

    /// The offset index, read or mapped on first use. A file that cannot be read gives an empty index, not an error.
    pub(crate) fn index(&self) -> &OffsetIndex {
        self.index.get_or_init(|| OffsetIndex::load(self))
    }

    /// About the largest size of the batches that look-ups found of late; 0 before the first. Decides how much a look-up reads at once,
    /// never what it finds.
    pub(crate) fn usual_batch_bytes(&self) -> u32 {
        self.usual_batch_bytes.load(Ordering::Relaxed)
    }

    /// Notes the size of a batch that a look-up found.
    pub(crate) fn note_batch_bytes(&self, size_bytes: usize) {
        let usual = self.usual_batch_bytes();
        let size = u32::try_from(size_bytes).unwrap_or(u32::MAX);
        let noted = size.max(usual - usual / 128);
        // Not written where it stays, so that threads do not take the line from each other.
        if noted != usual {
            self.usual_batch_bytes.store(noted, Ordering::Relaxed);
        }
    }

    pub(crate) fn index_path(&self, suffix: &str) -> PathBuf {
        let path = segment_path(&self.directory.path, self.base_offset, suffix);
        with_state(path, self.state)
    }
}

/// Appends the suffix of `state` to a segment file's path.
pub(crate) fn with_state(path: PathBuf, state: FileState) -> PathBuf {
    let mut path = path.into_os_string();
    path.push(state.suffix());
    path.into()
}

pub(crate) fn segment_path(directory: &Path, base_offset: i64, suffix: &str) -> PathBuf {
    directory.join(segment_file_name(base_offset, suffix))
}
