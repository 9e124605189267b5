//! What a mirror notes beside a copy, and what it tells of the settings that the copy had.

use offsetlog::disk::{Disk, IoCall, read_whole, write_whole};
use offsetlog::format::name::FileName;
use offsetlog::{Error, LogConfig, LogWriter, Result};
use std::io;
use std::path::Path;

/// The file of a partition directory that says at which log start offset of the source's the mirror began the copy, or to which it deleted.
const START_FILE: &str = ".offsetlog.source-start";

/// Notes that the copy begins here because the source does.
pub(super) fn note_start(disk: &dyn Disk, log: &LogWriter, offset: i64) -> Result<()> {
    let path = log.path().join(START_FILE);
    write_whole(disk, &path, format!("{offset}\n").as_bytes())
        .map_err(|failed| Error::failed_call(&path, failed))
}

/// Where the mirror began the copy. Where that is not noted, notes where the copy begins: an earlier version began it and did not note it, or
/// it is new. From then on it is known what is removed from it.
pub(super) fn noted_start(disk: &dyn Disk, log: &LogWriter) -> Result<i64> {
    let path = log.path().join(START_FILE);
    match read_whole(disk, &path, 1 << 10) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let start = log.log_start_offset()?;
            note_start(disk, log, start)?;
            Ok(start)
        }
        read => {
            let bytes = read.map_err(|error| Error::io(IoCall::Read, &path, error))?;
            let text = String::from_utf8_lossy(&bytes);
            // What cannot be read says nothing: at worst an event is told too often.
            Ok(text.trim().parse().unwrap_or(0))
        }
    }
}

/// Whether a partition's directory is as it was made: nobody has opened it for appending. A kill while a topic is made leaves such.
pub(super) fn is_as_made(disk: &dyn Disk, directory: &Path) -> Result<bool> {
    let entries = disk
        .list(directory)
        .map_err(|error| Error::io(IoCall::List, directory, error))?;
    let mut has_id = false;
    for entry in &entries {
        match FileName::classify(&entry.name) {
            FileName::PartitionMetadata => has_id = true,
            FileName::Segment(_) => return Ok(false),
            _ if entry.name == START_FILE => return Ok(false),
            _ => {}
        }
    }
    // One in which nothing is was emptied.
    Ok(has_id)
}

/// In what settings differ: each that is not the same, before and after.
pub(super) fn difference_of(before: &LogConfig, after: &LogConfig) -> String {
    let value = |config: &LogConfig, name: &str| {
        let mut given = config.given();
        let found = given.find_map(|(other, value)| (other == name).then(|| value.to_owned()));
        found.unwrap_or_else(|| "not set".to_owned())
    };
    let mut names: Vec<&str> = before
        .given()
        .chain(after.given())
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    names.dedup();
    let parts = names.into_iter().filter_map(|name| {
        let (was, is) = (value(before, name), value(after, name));
        (was != is).then(|| format!("{name}: {was} here, {is} there"))
    });
    parts.collect::<Vec<_>>().join("; ")
}
