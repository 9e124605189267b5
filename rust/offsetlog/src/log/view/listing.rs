//! What a partition directory holds, by the names in it.

use crate::disk::{Disk, EntryKind, FileStat, IoCall};
use crate::error::{Error, Result};
use crate::folder;
use crate::log::recovery::interrupted_swaps::next_offset;
use crate::segment::{Directory, segment_path, with_state};
use offsetlog_format::name::{FileName, FileState, SegmentFile};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// What a partition directory holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// Base offsets of the segments, ascending.
    pub(super) base_offsets: Vec<i64>,
    /// Those of finished output of a compaction that has not taken its place yet.
    pub(super) swapped: BTreeSet<i64>,
    /// The lowest one of output that is not finished: of what is there from it on, nothing is.
    pub(super) unfinished: Option<i64>,
    /// Offsets of the producer snapshots.
    pub(super) snapshots: Vec<i64>,
    pub(super) warnings: Vec<String>,
}

/// How often a directory is listed for two listings to agree.
pub(super) const LISTINGS_MAX: usize = 16;

/// A listing in which no file is missing that was made before another one in it.
///
/// The system may leave out a file that is made while it lists and still give one made later. Every file that is older than one in
/// the first listing was made before the second one began, so that has it; what came later belongs to the next look.
pub(super) fn settled_list(directory: &Directory, before: Option<FileStat>) -> Result<Listing> {
    const SETTLED_MS: i64 = 2_000;
    let disk = directory.disk.as_ref();
    let first = list(disk, &directory.path)?;
    let after = disk.stat(&directory.path).ok();
    let is_settled = before == after
        && before.is_some_and(|stat| {
            crate::disk::wall_clock().saturating_sub(stat.modified_ms) > SETTLED_MS
        });
    if is_settled {
        return Ok(first);
    }
    // Names that change while they are listed may be missed, the old one and the new one: until two listings agree.
    let mut before = first;
    for _ in 0..LISTINGS_MAX {
        let again = list(disk, &directory.path)?;
        // What was rolled meanwhile belongs to the next look.
        if again.base_offsets.starts_with(&before.base_offsets) && again.swapped == before.swapped {
            break;
        }
        before = again;
    }
    Ok(before)
}

impl Listing {
    /// Finished output of an interrupted compaction counts in the place of what it was made from, as it will once a writer, or a broker,
    /// opened the log. A reader changes no names.
    pub(super) fn finish_swaps(&mut self, directory: &Directory) -> Result<()> {
        self.swapped
            .retain(|&base| self.unfinished.is_none_or(|unfinished| base < unfinished));
        let mut range: Option<(i64, i64)> = None;
        for &base in &self.swapped {
            let path = segment_path(&directory.path, base, ".log");
            let path = with_state(&path, FileState::Swap);
            let next = next_offset(directory.disk.as_ref(), &path, base)?;
            let (low, high) = range.unwrap_or((base, next));
            range = Some((low.min(base), high.max(next)));
        }
        if let Some((low, high)) = range {
            self.base_offsets.retain(|base| !(low..high).contains(base));
            self.base_offsets.extend(&self.swapped);
            self.base_offsets.sort_unstable();
            self.base_offsets.dedup();
        }
        Ok(())
    }
}

fn list(disk: &dyn Disk, path: &Path) -> Result<Listing> {
    let entries = disk
        .list(path)
        .map_err(|error| Error::io(IoCall::List, path, error))?;
    let mut listing = Listing::default();
    let mut old = 0;
    if entries.iter().any(folder::is_doubtful) {
        folder::refuse_unless_partition(disk, path)?;
    }
    for entry in entries {
        let is_file = entry.kind == EntryKind::File;
        match FileName::classify(&entry.name) {
            FileName::Segment(name) if name.state == FileState::Cleaned => {
                let lowest = listing.unfinished.unwrap_or(i64::MAX);
                listing.unfinished = Some(lowest.min(name.offset));
            }
            FileName::Segment(name)
                if name.state == FileState::Swap && name.file == SegmentFile::Log =>
            {
                listing.swapped.insert(name.offset);
            }
            FileName::Segment(name) if name.state == FileState::Live => match name.file {
                SegmentFile::Log if is_file => listing.base_offsets.push(name.offset),
                // Left out, the log would look shorter than it is.
                SegmentFile::Log => return Err(not_a_file(path, &entry.name)),
                SegmentFile::ProducerSnapshot if is_file => listing.snapshots.push(name.offset),
                _ => {}
            },
            FileName::ByteOffsetSegment { .. } => old += 1,
            FileName::BadSegmentName(error) if is_file => {
                return Err(Error::log_dir(
                    &path.join(&entry.name),
                    format!(
                        "file {:?} is named like a segment but {}; move it out of the directory to read the rest",
                        entry.name, error.fault
                    ),
                ));
            }
            _ => {}
        }
    }
    listing.base_offsets.sort_unstable();
    match (old, listing.base_offsets.is_empty()) {
        (0, _) => {}
        (_, true) => return Err(old_layout(path)),
        (_, false) => listing.warnings.push(format!(
            "left out: {old} segments of Kafka 0.7 (.kafka) of {}, beside .log files",
            path.display()
        )),
    }
    Ok(listing)
}

/// Refuses what is no partition's directory, and that of a partition of Kafka 0.7, which is no log of today's kind: they must neither
/// look empty nor be written to. That it is not there, others say.
pub(in crate::log) fn refuse_other(disk: &dyn Disk, path: &Path) -> Result<()> {
    let entries = match disk.list(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(|error| Error::io(IoCall::List, path, error))?,
    };
    if entries.iter().any(folder::is_doubtful) {
        folder::refuse_unless_partition(disk, path)?;
    }
    let names: Vec<FileName> = entries
        .iter()
        .map(|entry| FileName::classify(&entry.name))
        .collect();
    let is_old = |name: &FileName| matches!(name, FileName::ByteOffsetSegment { .. });
    let is_segment = |name: &FileName| matches!(name, FileName::Segment(_));
    if names.iter().any(is_old) && !names.iter().any(is_segment) {
        return Err(old_layout(path));
    }
    Ok(())
}

fn old_layout(path: &Path) -> Error {
    Error::log_dir(
        path,
        "a partition of Kafka 0.7 (.kafka files); `offsetlog convert` makes a current directory of it, `OldLog` reads it as it is",
    )
}

/// What stands in a segment's place and is no file of records.
pub(in crate::log) fn not_a_file(directory: &Path, name: &str) -> Error {
    let reason = format!("{name:?} is not a regular file; move it out of the directory");
    Error::log_dir(&directory.join(name), reason)
}
