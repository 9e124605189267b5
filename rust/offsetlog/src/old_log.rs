//! Reads a partition of Kafka 0.7: `.kafka` files, each named by the position of its first byte in the whole partition.
//!
//! There are no offsets in the current sense: what 0.7 calls an offset is the position of an entry, and all messages of a
//! compressed set share one. There are no indexes, no keys, no timestamps. [`convert`](fn@crate::convert) makes a current
//! directory from such a partition.

mod entries;
mod scan;

use crate::disk::{Disk, EntryKind, IoCall};
use crate::error::{Error, ErrorKind, Result};
use crate::local_path::local_path;
use crate::log::OpenOptions;
use offsetlog_format::name::{BYTE_OFFSET_SEGMENT_SUFFIX, DirectoryName};
use offsetlog_format::{FileName, SegmentFile, counted};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub use scan::{OldEntry, OldRecord, OldScan};

/// A file of a 0.7 partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldSegment {
    /// The `.kafka` file.
    pub path: PathBuf,
    /// Position of its first byte in the whole partition.
    pub start: i64,
    /// Its size in bytes when the log was opened.
    pub size_bytes: u64,
    /// Whether no other file follows. An incomplete entry at the end of the last file is not damage.
    pub is_last: bool,
}

impl OldSegment {
    /// Position after its last byte.
    #[must_use]
    pub const fn end(&self) -> i64 {
        // The sum was checked when the log was opened.
        self.start.saturating_add_unsigned(self.size_bytes)
    }
}

/// A partition of Kafka 0.7, as it was when it was opened.
///
/// ```no_run
/// use offsetlog::{OldLog, OpenOptions};
///
/// # fn main() -> Result<(), offsetlog::Error> {
/// let log = OldLog::open("kafka-0.7/orders-0", &OpenOptions::default())?;
/// let mut scan = log.scan(None)?;
/// while let Some(entry) = scan.next_entry()? {
///     for record in entry.records() {
///         println!("{} {:?}", record.offset, record.value);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OldLog {
    path: PathBuf,
    topic: String,
    partition: i32,
    segments: Vec<OldSegment>,
    options: OpenOptions,
    /// Start of a file, and a position in it where an entry begins: the last one that a caller asked for, or behind it.
    known: Arc<Mutex<(i64, u64)>>,
}

impl OldLog {
    /// Opens the partition directory `path`, named `topic-partition`. Lists it and stats its files. Reads nothing, changes
    /// nothing, takes no lock.
    ///
    /// # Errors
    /// * `Io`: the directory cannot be listed.
    /// * `LogDir`: its name is not `topic-partition`; a `.kafka` file's name is not a position; a file does not start where the
    ///   previous one ends; there are `.log` files too.
    ///
    /// Source: FORMAT.md «Message of Kafka 0.7».
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let path = local_path(path)?;
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.unwrap_or("");
        let parsed = DirectoryName::parse(name).map_err(|error| {
            Error::log_dir(
                &path,
                format!(
                    "directory name {name:?} is not topic-partition: {}",
                    error.fault
                ),
            )
        })?;
        Ok(Self {
            segments: segments(options.disk.as_ref(), &path)?,
            topic: parsed.topic.to_owned(),
            partition: parsed.partition,
            options: options.clone(),
            known: Arc::default(),
            path,
        })
    }

    /// The partition directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The topic, from the directory's name.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The partition, from the directory's name.
    #[must_use]
    pub const fn partition(&self) -> i32 {
        self.partition
    }

    /// The files, oldest first.
    #[must_use]
    pub fn segments(&self) -> &[OldSegment] {
        &self.segments
    }

    /// Position of the first byte that still exists.
    #[must_use]
    pub fn start(&self) -> i64 {
        self.segments.first().map_or(0, |segment| segment.start)
    }

    /// Position after the last byte. The last bytes may be an incomplete entry.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.segments.last().map_or(0, OldSegment::end)
    }

    /// Total size of all files in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size_bytes).sum()
    }

    /// Reads entries starting with the one at `start`; default: the first. Entries can only be found from the one before: the first read
    /// goes through the lengths of those before `start` in its file, or from where an earlier scan of this log began if that is before it,
    /// and fails if they do not lead to `start`. It reads these bytes of the file, except for the rest of large entries.
    ///
    /// # Errors
    /// `OffsetOutOfRange` if the start is outside the log.
    pub fn scan(&self, start: Option<i64>) -> Result<OldScan> {
        let start = start.unwrap_or_else(|| self.start());
        if start < self.start() || start > self.end() {
            return Err(Error::new(ErrorKind::OffsetOutOfRange {
                requested: start,
                log_start_offset: self.start(),
                log_end_offset: self.end(),
            })
            .at_path(&self.path));
        }
        Ok(OldScan::new(self, start))
    }

    /// Where an entry of this file begins at or before `position`, as near as is known.
    fn known_entry(&self, segment: &OldSegment, position: u64) -> u64 {
        let (start, known) = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if start == segment.start && known <= position {
            known
        } else {
            0
        }
    }

    fn note_entry(&self, segment: &OldSegment, position: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = (segment.start, position);
    }

    fn check(&self) -> Result<()> {
        match &self.options.interrupt {
            Some(interrupt) if interrupt() => Err(Error::new(ErrorKind::Interrupted)),
            _ => Ok(()),
        }
    }
}

/// Layout of a partition directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `.log` files.
    Current,
    /// `.kafka` files.
    Old,
    /// Neither.
    Empty,
}

/// Determines a partition directory's layout from its file names.
pub(crate) fn layout(disk: &dyn Disk, path: &Path) -> Result<Layout> {
    let entries = disk
        .list(path)
        .map_err(|error| Error::io(IoCall::List, path, error))?;
    let any = |is_meant: fn(&str) -> bool| entries.iter().any(|entry| is_meant(&entry.name));
    match (any(is_log), any(is_old)) {
        (true, true) => Err(Error::log_dir(
            path,
            "both .log and .kafka files found: this is neither a log of Kafka 0.7 nor a later one; move those of one kind out of the directory",
        )),
        (true, false) => Ok(Layout::Current),
        (false, true) => Ok(Layout::Old),
        (false, false) => Ok(Layout::Empty),
    }
}

fn is_log(name: &str) -> bool {
    matches!(FileName::classify(name), FileName::Segment(name) if name.file == SegmentFile::Log)
}

fn is_old(name: &str) -> bool {
    name.ends_with(BYTE_OFFSET_SEGMENT_SUFFIX)
}

/// The files of a 0.7 partition. Like Kafka, requires each to start where the previous one ends.
fn segments(disk: &dyn Disk, path: &Path) -> Result<Vec<OldSegment>> {
    layout(disk, path)?;
    let entries = disk
        .list(path)
        .map_err(|error| Error::io(IoCall::List, path, error))?;
    let mut segments = Vec::new();
    for entry in entries.into_iter().filter(|entry| is_old(&entry.name)) {
        let file = path.join(&entry.name);
        let FileName::ByteOffsetSegment { position } = FileName::classify(&entry.name) else {
            return Err(Error::log_dir(
                &file,
                format!(
                    "file {:?} is named like a segment of Kafka 0.7 but not by a position of exactly 20 digits; move it out of the directory",
                    entry.name
                ),
            ));
        };
        if entry.kind != EntryKind::File {
            return Err(Error::log_dir(
                &file,
                format!(
                    "{:?} is not a regular file; move it out of the directory",
                    entry.name
                ),
            ));
        }
        let stat = disk
            .stat(&file)
            .map_err(|error| Error::io(IoCall::Stat, &file, error))?;
        if position.checked_add_unsigned(stat.size).is_none() {
            return Err(Error::log_dir(
                &file,
                format!(
                    "{} from position {position} on end beyond {}",
                    counted(stat.size, "byte"),
                    i64::MAX
                ),
            ));
        }
        segments.push(OldSegment {
            path: file,
            start: position,
            size_bytes: stat.size,
            is_last: false,
        });
    }
    segments.sort_unstable_by_key(|segment| segment.start);
    for pair in segments.windows(2) {
        let [one, next] = pair else { continue };
        if one.end() != next.start {
            return Err(Error::log_dir(
                &next.path,
                format!(
                    "begins at position {} of the partition, {} expected, where the file before ends",
                    next.start,
                    one.end()
                ),
            ));
        }
    }
    if let Some(last) = segments.last_mut() {
        last.is_last = true;
    }
    Ok(segments)
}

#[cfg(test)]
#[path = "old_log/old_log_tests.rs"]
mod tests;
