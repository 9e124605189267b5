//! What is noted in a folder that becomes a log dir: where the logs of its partitions begin, and up to where they were compacted.
//!
//! A partition that is written by itself, in a plain folder, keeps both in its own state file. In a log dir only the checkpoints count, as
//! for a broker. So nobody may have such a partition open for appending meanwhile: what its writer deletes later would be in no checkpoint.

use super::locks::check_idle;
use super::log_dir_files::SHARED_LOCK_FILE;
use super::{STATE_FILE, lock_shared_files, read_state};
use crate::disk::{Disk, EntryKind, IoCall, Lock, write_whole};
use crate::error::{Error, ErrorKind, Result};
use crate::folder::{has_log_dir_files, is_absent, is_there};
use offsetlog_format::name::{DirectoryName, DirectoryState, FileName, SegmentFile};
use offsetlog_format::{OffsetCheckpoint, OffsetCheckpointFile, PartitionOffset};
use std::io;
use std::path::Path;

/// Lines of the partitions in a folder.
#[derive(Default)]
struct Lines {
    /// Where logs begin above their first segment.
    log_starts: OffsetCheckpoint,
    /// The first offsets that were not compacted yet.
    cleaner_points: OffsetCheckpoint,
}

/// Writes the lines of partitions whose logs begin above their first segment, or were compacted, if the folder has no file of a log dir
/// yet. Must be called before its first one is made: records that were deleted would be there again from then on. Writers of partitions
/// wait until the returned lock is released; by then the folder must be a log dir.
///
/// # Errors
/// `Locked`: a partition is open for appending. `Io`.
pub(crate) fn note_offsets(disk: &dyn Disk, folder: &Path) -> Result<Option<Lock>> {
    if has_log_dir_files(disk, folder)? {
        return Ok(None);
    }
    // Another process may do the same, and then delete more records.
    let shared = lock_shared_files(disk, folder)?;
    if has_log_dir_files(disk, folder)? {
        return Ok(None);
    }
    let found = lines(disk, folder)?;
    // From the first file on it is a log dir. Without the second the next compaction only does again what was done.
    for (file, lines) in [
        (OffsetCheckpointFile::LogStartOffset, found.log_starts),
        (OffsetCheckpointFile::CleanerOffset, found.cleaner_points),
    ] {
        if lines.entries.is_empty() {
            continue;
        }
        let path = folder.join(file.name());
        let bytes = lines
            .write()
            .map_err(|error| Error::new(error).at_path(&path))?;
        write_whole(disk, &path, &bytes).map_err(|failed| Error::failed_call(&path, failed))?;
    }
    Ok(Some(shared))
}

/// Whether the folder of a partition, which was none when its writer looked and took the partition's lock, is a log dir now. Waits for
/// whoever makes it one.
///
/// # Errors
/// `Io`.
pub(crate) fn became_log_dir(disk: &dyn Disk, folder: &Path) -> Result<bool> {
    // Made before the partitions' locks are looked at: where it is not, who makes a log dir of the folder finds this one locked.
    if is_there(disk, &folder.join(SHARED_LOCK_FILE))? {
        match lock_shared_files(disk, folder) {
            Ok(lock) => lock.release(),
            // Another user's, who was refused or has finished: none of this user's programs can make a log dir of the folder.
            Err(error) if is_denied(&error) => {}
            Err(error) => return Err(error),
        }
    }
    has_log_dir_files(disk, folder)
}

fn is_denied(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
}

fn lines(disk: &dyn Disk, folder: &Path) -> Result<Lines> {
    let entries = disk
        .list(folder)
        .map_err(|error| Error::io(IoCall::List, folder, error))?;
    let mut found = Lines::default();
    for entry in entries {
        let name = DirectoryName::parse(&entry.name);
        let Some(name) = name.ok().filter(|name| {
            entry.kind == EntryKind::Directory && name.state == DirectoryState::Live
        }) else {
            continue;
        };
        let directory = folder.join(&entry.name);
        let files = match disk.list(&directory) {
            // Deleted meanwhile, or somebody else's: nobody here writes it.
            Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::PermissionDenied => {
                continue;
            }
            files => files.map_err(|error| Error::io(IoCall::List, &directory, error))?,
        };
        check_idle(disk, &directory)?;
        // What cannot be parsed is told where the partition is opened.
        let state = read_state(disk, &directory.join(STATE_FILE), &mut Vec::new())?;
        let Some(state) = state else {
            continue;
        };
        let line = |offset| PartitionOffset {
            topic: name.topic.to_owned(),
            partition: name.partition,
            offset,
        };
        found.cleaner_points.entries.extend(state.cleaner.map(line));
        let first = files
            .iter()
            .filter_map(|file| match FileName::classify(&file.name) {
                FileName::Segment(name) if name.file == SegmentFile::Log => Some(name.offset),
                _ => None,
            })
            .min();
        if first.is_some_and(|first| first < state.log_start) {
            found.log_starts.entries.push(line(state.log_start));
        }
    }
    for lines in [&mut found.log_starts, &mut found.cleaner_points] {
        lines.entries.sort_unstable_by(|one, other| {
            (&one.topic, one.partition).cmp(&(&other.topic, other.partition))
        });
    }
    Ok(found)
}
