//! Lists a partition directory: segments, swap files and producer snapshots, by file name.

use crate::disk::{Disk, DiskDirectory, Entry, EntryKind, FileStat, IoCall};
use crate::error::{Error, Result};
use crate::folder;
use crate::log::recovery::interrupted_swaps::next_offset;
use crate::log::state::STATE_FILE;
use crate::segment::{Directory, segment_path, with_state};
use offsetlog_format::counted;
use offsetlog_format::name::{FileName, FileState, SegmentFile};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// The contents of a partition directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// Base offsets of the segments, ascending.
    pub(super) base_offsets: Vec<i64>,
    /// Base offsets of a compaction's finished output that was not renamed into place yet (`.swap`).
    pub(super) swapped: BTreeSet<i64>,
    /// Lowest base offset of unfinished output (`.cleaned`). Swap files from it on do not count.
    pub(super) unfinished: Option<i64>,
    /// Offsets of the producer snapshots.
    pub(super) snapshots: Vec<i64>,
    /// Whether a state file of ours was listed.
    pub(super) has_state: bool,
    /// Whether there is none; `false` if that is not known.
    pub(super) has_no_state: bool,
    pub(super) warnings: Vec<String>,
}

/// A directory that is about to be listed.
#[derive(Debug)]
pub(super) struct Names<'d> {
    disk: &'d dyn Disk,
    path: &'d Path,
    /// Open if it surely will be: then all looks are at one directory, and cheaper.
    open: Option<Box<dyn DiskDirectory>>,
}

impl<'d> Names<'d> {
    pub(super) fn new(directory: &'d Directory, is_listed: bool) -> Self {
        let (disk, path) = (directory.disk.as_ref(), directory.path.as_path());
        let open = || disk.open_directory(path).ok().flatten();
        Self {
            disk,
            path,
            // One that cannot be opened has the error of its listing.
            open: is_listed.then(open).flatten(),
        }
    }

    /// The directory's metadata now.
    pub(super) fn stat(&self) -> Option<FileStat> {
        let stat = match &self.open {
            Some(open) => open.stat(),
            None => self.disk.stat(self.path),
        };
        stat.ok()
    }

    /// The open directory, if it is open.
    pub(super) fn opened(&self) -> Option<&dyn DiskDirectory> {
        self.open.as_deref()
    }

    fn first_list(&self) -> Result<Listing> {
        match &self.open {
            Some(open) => list(self.disk, self.path, |each| open.list_each(each)),
            None => self.list_by_path(),
        }
    }

    fn list_by_path(&self) -> Result<Listing> {
        list(self.disk, self.path, |each| {
            let entries = self.disk.list(self.path)?.into_iter();
            entries.for_each(|entry| each(&entry.name, entry.kind));
            Ok(())
        })
    }

    /// Lists a directory so that no file is missing that is older than another one in the listing.
    ///
    /// Where a writer of this process is at work, the caller keeps it from changes other than growth meanwhile.
    ///
    /// The system may omit a file that is created during a listing and still return one that is created later. Every file older
    /// than one in the first listing existed before the second began, so the second has it. The next look finds newer files.
    pub(super) fn settled(
        &self,
        directory: &Directory,
        before: Option<FileStat>,
    ) -> Result<Listing> {
        const SETTLED_MS: i64 = 2_000;
        let ends = directory.ends.as_ref();
        let generation = ends.map(|ends| ends.generation());
        let mut first = self.first_list()?;
        if ends.is_some_and(|ends| !ends.is_closed() && Some(ends.generation()) == generation) {
            // Nobody else changed the directory, and this process rolled no segment, or is rolling one, which the next look finds.
            return Ok(first);
        }
        let after = self.stat();
        let is_settled = before == after
            && before.is_some_and(|stat| {
                crate::disk::wall_clock().saturating_sub(stat.modified_ms) > SETTLED_MS
            });
        if is_settled {
            first.has_no_state = !first.has_state;
            return Ok(first);
        }
        // A file that is renamed during a listing may be missed under both names, so list until two listings agree.
        let mut before = first;
        for _ in 0..LISTINGS_MAX {
            let again = self.list_by_path()?;
            // The next look finds a segment that was rolled in the meantime.
            if again.base_offsets.starts_with(&before.base_offsets)
                && again.swapped == before.swapped
            {
                break;
            }
            before = again;
        }
        Ok(before)
    }
}

/// How many times a directory is listed until two listings agree.
pub(super) const LISTINGS_MAX: usize = 16;

impl Listing {
    /// Treats finished output of an interrupted compaction as the segments that it replaces, as a writer or a broker will when
    /// it opens the log. A reader renames nothing.
    pub(super) fn finish_swaps(&mut self, directory: &Directory) -> Result<()> {
        self.swapped
            .retain(|&base| self.unfinished.is_none_or(|unfinished| base < unfinished));
        let mut range: Option<(i64, i64)> = None;
        for &base in &self.swapped {
            let path = segment_path(&directory.path, base, ".log");
            let path = with_state(path, FileState::Swap);
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

/// What the entries of the directory at this path are, which `walk` passes to its argument.
fn list(
    disk: &dyn Disk,
    path: &Path,
    walk: impl FnOnce(&mut dyn FnMut(&str, EntryKind)) -> io::Result<()>,
) -> Result<Listing> {
    let mut found = Found::default();
    walk(&mut |name, kind| found.add(path, name, kind))
        .map_err(|error| Error::io(IoCall::List, path, error))?;
    if found.is_doubtful {
        folder::refuse_unless_partition(disk, path)?;
    }
    if let Some(refused) = found.refused {
        return Err(refused);
    }
    let mut listing = found.listing;
    listing.base_offsets.sort_unstable();
    match (found.old, listing.base_offsets.is_empty()) {
        (0, _) => {}
        (_, true) => return Err(old_layout(path)),
        (_, false) => listing.warnings.push(format!(
            "left out: {} of Kafka 0.7 (.kafka) of {}, beside .log files",
            counted(found.old, "segment"),
            path.display()
        )),
    }
    Ok(listing)
}

/// What some of a directory's entries are.
#[derive(Default)]
struct Found {
    listing: Listing,
    /// Segments of Kafka 0.7.
    old: usize,
    /// Something does not belong in a partition's directory.
    is_doubtful: bool,
    /// Why the first of the others cannot be read, if it is a partition's directory.
    refused: Option<Error>,
}

impl Found {
    fn add(&mut self, path: &Path, name: &str, kind: EntryKind) {
        let is_file = kind == EntryKind::File;
        let listing = &mut self.listing;
        self.is_doubtful |= folder::is_doubtful(name, kind);
        listing.has_state |= name == STATE_FILE;
        match FileName::classify(name) {
            FileName::Segment(name) if name.state == FileState::Cleaned => {
                let lowest = listing.unfinished.unwrap_or(i64::MAX);
                listing.unfinished = Some(lowest.min(name.offset));
            }
            FileName::Segment(name)
                if name.state == FileState::Swap && name.file == SegmentFile::Log =>
            {
                listing.swapped.insert(name.offset);
            }
            FileName::Segment(segment) if segment.state == FileState::Live => match segment.file {
                SegmentFile::Log if is_file => listing.base_offsets.push(segment.offset),
                // If it were skipped, the log would look shorter than it is.
                SegmentFile::Log => self.refuse(|| not_a_file(path, name)),
                SegmentFile::ProducerSnapshot if is_file => listing.snapshots.push(segment.offset),
                _ => {}
            },
            FileName::ByteOffsetSegment { .. } => self.old += 1,
            FileName::BadSegmentName(error) if is_file => self.refuse(|| {
                Error::log_dir(
                    &path.join(name),
                    format!(
                        "file {name:?} is named like a segment but {}; move it out of the directory to read the rest",
                        error.fault
                    ),
                )
            }),
            _ => {}
        }
    }

    fn refuse(&mut self, error: impl FnOnce() -> Error) {
        self.refused.get_or_insert_with(error);
    }
}

/// Refuses a directory that is not a partition's, and one of a Kafka 0.7 partition: neither may look like an empty log or be
/// written to. A missing directory passes; the callers report it.
pub(in crate::log) fn refuse_other(disk: &dyn Disk, path: &Path) -> Result<()> {
    let entries = match disk.list(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(|error| Error::io(IoCall::List, path, error))?,
    };
    let is_doubtful = |entry: &Entry| folder::is_doubtful(&entry.name, entry.kind);
    if entries.iter().any(is_doubtful) {
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

/// The error for a segment's name that is not a regular file.
pub(in crate::log) fn not_a_file(directory: &Path, name: &str) -> Error {
    let reason = format!("{name:?} is not a regular file; move it out of the directory");
    Error::log_dir(&directory.join(name), reason)
}
