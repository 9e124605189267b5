//! What is noted in a folder that becomes a log dir: where the logs of its partitions begin.
//!
//! A partition that is written by itself, in a plain folder, keeps its log start offset in its own state file. In a log dir only the
//! checkpoint counts, as for a broker.

use super::{STATE_FILE, lock_shared_files, read_state};
use crate::disk::{Disk, EntryKind, IoCall, write_whole};
use crate::error::{Error, Result};
use crate::folder::{has_log_dir_files, is_absent};
use offsetlog_format::name::{DirectoryName, DirectoryState, FileName, SegmentFile};
use offsetlog_format::{OffsetCheckpoint, OffsetCheckpointFile, PartitionOffset};
use std::io;
use std::path::Path;

/// Writes the lines of partitions whose logs begin above their first segment, if the folder has no file of a log dir yet. Must be called
/// before its first one is made: records that were deleted would be there again from then on.
///
/// # Errors
/// `Io`.
pub(crate) fn note_log_starts(disk: &dyn Disk, folder: &Path) -> Result<()> {
    if has_log_dir_files(disk, folder)? || log_starts(disk, folder)?.entries.is_empty() {
        return Ok(());
    }
    // Another process may do the same, and then delete more records.
    let _shared = lock_shared_files(disk, folder)?;
    if has_log_dir_files(disk, folder)? {
        return Ok(());
    }
    let path = folder.join(OffsetCheckpointFile::LogStartOffset.name());
    let bytes = log_starts(disk, folder)?
        .write()
        .map_err(|error| Error::new(error).at_path(&path))?;
    write_whole(disk, &path, &bytes).map_err(|failed| Error::failed_call(&path, failed))
}

fn log_starts(disk: &dyn Disk, folder: &Path) -> Result<OffsetCheckpoint> {
    let entries = disk
        .list(folder)
        .map_err(|error| Error::io(IoCall::List, folder, error))?;
    let mut found = OffsetCheckpoint::default();
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
        // What cannot be parsed is told where the partition is opened.
        let state = read_state(disk, &directory.join(STATE_FILE), &mut Vec::new())?;
        let Some(state) = state.filter(|state| state.log_start > 0) else {
            continue;
        };
        let first = files
            .iter()
            .filter_map(|file| match FileName::classify(&file.name) {
                FileName::Segment(name) if name.file == SegmentFile::Log => Some(name.offset),
                _ => None,
            })
            .min();
        if first.is_some_and(|first| first < state.log_start) {
            found.entries.push(PartitionOffset {
                topic: name.topic.to_owned(),
                partition: name.partition,
                offset: state.log_start,
            });
        }
    }
    found.entries.sort_unstable_by(|one, other| {
        (&one.topic, one.partition).cmp(&(&other.topic, other.partition))
    });
    Ok(found)
}
