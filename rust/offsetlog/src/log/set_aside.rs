//! Reads one file of batches that was set aside, as a log of its own: what recovery cut off a segment, and a segment that waits for its
//! deletion.

use super::open::partition_name;
use super::recovery::CUT_FOLDER;
use crate::checkpoints::Checkpoints;
use crate::disk::{Disk, EntryKind, IoCall, OneFileDisk};
use crate::error::{Error, Result};
use crate::folder::is_absent;
use crate::local_path::local_path;
use crate::log::{Log, OpenOptions};
use crate::segment::Directory;
use offsetlog_format::name::{FileName, FileState, SegmentFile, SegmentFileName};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of batches that is no part of its partition's log, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetAside {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    /// Absolute.
    path: PathBuf,
    /// Base offset of the segment that the bytes were part of.
    base_offset: i64,
    /// Where in it the log was cut; `None` for a segment that waits for its deletion.
    cut_at: Option<u64>,
    /// Whether that was a truncation that kept what it removed, and not recovery.
    is_truncation: bool,
}

impl SetAside {
    /// Classifies the file at this path by its name; `None` if it is not named like a file that was set aside, or is not in a partition's
    /// directory. Reads no file.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        // Nearly all paths are a partition's, which costs no copy of an absolute one.
        if path.is_absolute() && !is_named_so(path) {
            return None;
        }
        let path = local_path(path).ok()?;
        let name = path.file_name()?.to_str()?;
        let folder = path.parent()?;
        let (base_offset, cut_at, is_truncation, directory) = if folder.file_name()? == CUT_FOLDER {
            let (base_offset, position, is_truncation) = cut_segment(name)?;
            (base_offset, Some(position), is_truncation, folder.parent()?)
        } else {
            (deleted_segment(name)?, None, false, folder)
        };
        let name = partition_name(directory).ok()?;
        Some(Self {
            topic: name.topic.to_owned(),
            partition: name.partition,
            base_offset,
            cut_at,
            is_truncation,
            path: path.clone(),
        })
    }

    /// The directory of a log whose only file is this one, without indexes and without checkpoints. Its path is the file's.
    pub(in crate::log) fn directory(&self, options: &OpenOptions) -> Arc<Directory> {
        let name = SegmentFileName::live(self.base_offset, SegmentFile::Log).to_string();
        let disk = Arc::clone(&options.disk);
        let disk: Arc<dyn Disk> = Arc::new(OneFileDisk::new(
            disk,
            self.path.clone(),
            self.path.clone(),
            name,
        ));
        let max_bytes = options.limits.max_state_file_bytes;
        Arc::new(Directory {
            limits: options.limits,
            map_indexes: options.mapped,
            maps: None,
            map_logs: options.mapped,
            ends: None,
            checkpoints: Arc::new(Checkpoints::new(&disk, &self.path, max_bytes)),
            path: self.path.clone(),
            topic: self.topic.clone(),
            partition: self.partition,
            state: None,
            disk,
        })
    }
}

/// Whether a path ends in the name of such a file.
fn is_named_so(path: &Path) -> bool {
    let mut names = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/');
    let first = names.next().and_then(<[u8]>::first);
    // All begin with a base offset, and hardly a topic does. (A path that ends in `/` or `.` is taken apart.)
    if first.is_some_and(|byte| !byte.is_ascii_digit() && *byte != b'.') {
        return false;
    }
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| cut_segment(name).is_some() || deleted_segment(name).is_some())
}

/// A file of batches beside a log, of which it is no part. [`Log::open`] reads it as a log of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAsideFile {
    /// The file.
    pub path: PathBuf,
    /// Base offset of the segment that it was, or was part of.
    pub base_offset: i64,
    /// Where in that segment the log was cut; `None` for a segment that waits for its deletion.
    pub cut_at: Option<u64>,
    /// Whether [`truncate_to_keeping`](crate::LogWriter::truncate_to_keeping) cut it there, and not recovery: the batches were removed on
    /// purpose.
    pub is_truncation: bool,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Log {
    /// The files that were set aside from this log, ascending by segment and position: bytes that recovery cut and kept in `offsetlog-cut`,
    /// bytes that [`truncate_to_keeping`](crate::LogWriter::truncate_to_keeping) kept there, and segments that a truncation, retention or
    /// compaction removed and that wait for their deletion.
    ///
    /// # Errors
    /// `Io`.
    pub fn set_aside_files(&self) -> Result<Vec<SetAsideFile>> {
        set_aside_files(self.options().disk.as_ref(), self.path())
    }
}

/// As [`Log::set_aside_files`], of the partition in `directory`.
pub(in crate::log) fn set_aside_files(
    disk: &dyn Disk,
    directory: &Path,
) -> Result<Vec<SetAsideFile>> {
    let mut found = Vec::new();
    let cut = directory.join(CUT_FOLDER);
    for folder in [directory, &cut] {
        let entries = match disk.list(folder) {
            Err(error) if is_absent(&error) => continue,
            listed => listed.map_err(|error| Error::io(IoCall::List, folder, error))?,
        };
        for entry in entries {
            let path = folder.join(&entry.name);
            let Some(aside) = SetAside::of(&path).filter(|_| entry.kind == EntryKind::File) else {
                continue;
            };
            let stat = disk.stat(&path);
            found.push(SetAsideFile {
                bytes: stat
                    .map_err(|error| Error::io(IoCall::Stat, &path, error))?
                    .size,
                base_offset: aside.base_offset,
                cut_at: aside.cut_at,
                is_truncation: aside.is_truncation,
                path,
            });
        }
    }
    found.sort_by(|one, other| {
        (one.base_offset, one.cut_at, &one.path).cmp(&(
            other.base_offset,
            other.cut_at,
            &other.path,
        ))
    });
    Ok(found)
}

impl Log {
    /// Whether the log ever had a batch, as far as its files tell: it has one, its offsets do not begin at 0, or something was set aside
    /// from it.
    ///
    /// # Errors
    /// `Io`; those of damage that hides where the log ends.
    pub fn has_begun(&self) -> Result<bool> {
        let mut segments = self.segments()?.into_iter();
        Ok(
            segments.any(|segment| segment.base_offset > 0 || segment.size_bytes > 0)
                || self.log_end_offset()? > 0
                || !self.set_aside_files()?.is_empty(),
        )
    }
}

/// Follows the position in the name of a file that a truncation kept.
pub(in crate::log) const TRUNCATED: &str = "truncated";

/// Base offset and position in the name of what was cut off a `.log`, and whether a truncation did: `FILE.POSITION` or
/// `FILE.POSITION.truncated`, both with `.NUMBER` behind it if there was one before.
fn cut_segment(name: &str) -> Option<(i64, u64, bool)> {
    let (file, counts) = name.split_at_checked(name.find(".log.")? + ".log".len())?;
    let mut counts = counts.strip_prefix('.')?.split('.').peekable();
    let position = counts.next()?.parse().ok()?;
    let is_truncation = counts.next_if_eq(&TRUNCATED).is_some();
    let is_count = |text: &str| text.parse::<u64>().is_ok();
    let is_all = counts.next().is_none_or(is_count) && counts.next().is_none();
    match FileName::classify(file) {
        FileName::Segment(found) if is_all && found.state == FileState::Live => {
            Some((found.offset, position, is_truncation))
        }
        _ => None,
    }
}

/// Base offset of a segment that waits for its deletion.
fn deleted_segment(name: &str) -> Option<i64> {
    match FileName::classify(name) {
        FileName::Segment(found)
            if found.file == SegmentFile::Log && found.state == FileState::Deleted =>
        {
            Some(found.offset)
        }
        _ => None,
    }
}
