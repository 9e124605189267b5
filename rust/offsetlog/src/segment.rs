//! One base offset's files: the `.log` and the indexes that help to find a place in it.
//!
//! A segment knows its own files and nothing of its neighbours but the offset at which the next one begins. Files are opened on
//! first use; [`Segment::close`] forgets them, so that a log of any length needs few descriptors.

pub(crate) mod active;
pub(crate) mod ends;
pub(crate) mod find;
pub(crate) mod index_file;
pub(crate) mod indexing;
pub(crate) mod offset_index;
pub(crate) mod time_index;
pub(crate) mod walk;

use crate::checkpoints::Checkpoints;
use crate::disk::{Access, Disk, DiskFile, FileStat, IoCall, Map};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::Limits;
use ends::Ends;
use offset_index::OffsetIndex;
use offsetlog_format::FileState;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use time_index::SegmentTimes;

/// What all segments of a partition directory share.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) limits: Limits,
    /// Whether indexes of closed segments may be mapped: the caller said that nobody writes them.
    pub(crate) map_indexes: bool,
    /// Whether `.log` files may be mapped: the caller said that nobody writes them.
    pub(crate) map_logs: bool,
    /// Where the log begins and ends while this process writes it.
    pub(crate) ends: Option<Arc<Ends>>,
    /// Those of the folder around it.
    pub(crate) checkpoints: Arc<Checkpoints>,
}

impl Directory {
    /// The same as it is read while this writer, or nobody in this process, writes it.
    pub(crate) fn beside(&self, ends: Option<Arc<Ends>>) -> Self {
        let is_written = ends.is_some();
        Self {
            path: self.path.clone(),
            disk: Arc::clone(&self.disk),
            limits: self.limits,
            // A file that is cut under its mapping ends the process.
            map_indexes: self.map_indexes && !is_written,
            map_logs: self.map_logs && !is_written,
            ends,
            checkpoints: Arc::clone(&self.checkpoints),
        }
    }

    /// The same with `.log` files mapped.
    pub(crate) fn mapped(&self) -> Self {
        Self {
            path: self.path.clone(),
            disk: Arc::clone(&self.disk),
            limits: self.limits,
            map_indexes: false,
            map_logs: true,
            ends: None,
            checkpoints: Arc::clone(&self.checkpoints),
        }
    }
}

/// A segment of a log, opened on first use.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base_offset: i64,
    /// Base offset of the segment behind this one; `None` for the active segment.
    pub(crate) next_base_offset: Option<i64>,
    directory: Arc<Directory>,
    /// That of its files.
    state: FileState,
    open: Mutex<Option<Arc<OpenSegment>>>,
    /// Kept when the files are closed: within one view of the log they do not change.
    times: OnceLock<SegmentTimes>,
    /// The same from the batch headers, once the time index was found to lie.
    walked_times: OnceLock<SegmentTimes>,
}

/// A segment's open files. The size is that at opening; what is appended later belongs to the next view of the log.
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
}

/// Where a `.log` file's bytes come from.
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
        Self {
            base_offset,
            next_base_offset,
            directory,
            state: FileState::Live,
            open: Mutex::new(None),
            times: OnceLock::new(),
            walked_times: OnceLock::new(),
        }
    }

    /// The same, with files in another state.
    pub(crate) fn in_state(self, state: FileState) -> Self {
        Self { state, ..self }
    }

    /// Path of the file of this segment with `suffix`, such as `.log`.
    pub(crate) fn file_path(&self, suffix: &str) -> PathBuf {
        let path = segment_path(&self.directory.path, self.base_offset, suffix);
        with_state(&path, self.state)
    }

    pub(crate) const fn is_active(&self) -> bool {
        self.next_base_offset.is_none()
    }

    /// The open files, opened now if they were not.
    pub(crate) fn open(&self) -> Result<(Arc<OpenSegment>, bool)> {
        let mut slot = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = slot.as_ref() {
            return Ok((Arc::clone(open), false));
        }
        let open = Arc::new(OpenSegment::new(self)?);
        *slot = Some(Arc::clone(&open));
        Ok((open, true))
    }

    /// Forgets the open files; scans that hold them go on.
    pub(crate) fn close(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Greatest timestamps within the segment, worked out once for a closed segment.
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

    /// The same, from the batch headers alone.
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

/// Asked at every few MiB of work; an error ends the work.
pub(crate) type Check<'c> = dyn Fn() -> Result<()> + 'c;

impl OpenSegment {
    fn new(segment: &Segment) -> Result<Self> {
        let directory = Arc::clone(&segment.directory);
        let path = segment.file_path(".log");
        let file = directory
            .disk
            .open(&path, Access::Read)
            .map_err(|error| Error::io(IoCall::Open, &path, error))?;
        let mut stat = file
            .stat()
            .map_err(|error| Error::io(IoCall::Stat, &path, error))?;
        // What a writer of this process has not finished, or has preallocated, is no part of the log.
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
            directory,
        })
    }

    pub(crate) const fn is_active(&self) -> bool {
        self.next_base_offset.is_none()
    }

    /// The offset index, read or mapped on first use. Problems with the file make it empty, never an error.
    pub(crate) fn index(&self) -> &OffsetIndex {
        self.index.get_or_init(|| OffsetIndex::load(self))
    }

    pub(crate) fn index_path(&self, suffix: &str) -> PathBuf {
        let path = segment_path(&self.directory.path, self.base_offset, suffix);
        with_state(&path, self.state)
    }
}

/// The path of a segment's file in a state.
pub(crate) fn with_state(path: &Path, state: FileState) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(state.suffix());
    path.into()
}

pub(crate) fn segment_path(directory: &Path, base_offset: i64, suffix: &str) -> PathBuf {
    directory.join(format!("{base_offset:020}{suffix}"))
}
