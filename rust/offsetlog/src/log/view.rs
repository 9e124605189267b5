//! The segments and bounds of a log at one moment, and what was worked out from them.

use super::appender::next_offset;
use super::transactions::{Fates, OpenTransactions};
use crate::disk::{Disk, EntryKind, FileStat};
use crate::error::{Error, Result};
use crate::segment::find::{self, Trace};
use crate::segment::walk::{LOOKUP_BYTES, Step, TornTail, Walk};
use crate::segment::{Directory, OpenSegment, Segment, segment_path, with_state};
use offsetlog_format::name::{FileName, FileState, SegmentFile};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What tells whether a directory is still as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stamp {
    directory: Option<FileStat>,
    active: Option<FileStat>,
    checkpoints: [Option<FileStat>; 2],
    /// The writer's, where this process writes: log start offset, log end offset, how often closed segments were replaced.
    writer: Option<(i64, i64, u64)>,
}

/// Where a log ends.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) log_end_offset: i64,
    /// Epoch of the last batch, -1 where it has none.
    pub(crate) leader_epoch: i32,
    pub(crate) torn: Option<TornTail>,
}

/// A log at one moment.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) segments: Vec<Arc<Segment>>,
    base_offsets: Vec<i64>,
    /// Those of segments whose files wait under the suffix `.swap` for somebody who finishes an interrupted compaction.
    swapped: BTreeSet<i64>,
    /// Offsets of the producer snapshots, ascending.
    pub(crate) snapshots: Vec<i64>,
    pub(crate) log_start_offset: i64,
    /// A writer of ours left the log with that start and with the files that are here.
    start_is_ours: bool,
    pub(crate) high_watermark: Option<i64>,
    pub(crate) warnings: Vec<String>,
    /// The active segment's files, held so that its size is the same for everybody who has this view.
    active: Option<Arc<OpenSegment>>,
    stamp: Stamp,
    /// The directory changed so shortly before it was looked at that its time would not tell a further change.
    is_racy: bool,
    end: OnceLock<End>,
    pub(super) open_transactions: OnceLock<OpenTransactions>,
    pub(super) fates: Mutex<Option<(i64, Arc<Fates>)>>,
    /// Greatest timestamp of the segments up to each one, from the segment of the log start offset on.
    pub(super) max_timestamps: Mutex<Vec<i64>>,
    /// Closed segments with open files, oldest opened first.
    opened: Mutex<VecDeque<Arc<Segment>>>,
    max_open_files: usize,
}

const CHECKPOINTS: [&str; 2] = [
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
];

impl View {
    /// Lists the directory and reads the checkpoints around it.
    pub(super) fn take(directory: &Arc<Directory>, before: Option<&Self>) -> Result<Self> {
        for _ in 0..LISTINGS_MAX {
            match Self::take_once(directory, before) {
                // What was listed has another name by now.
                Err(error) if error.is_missing_file() => {}
                done => return done,
            }
        }
        Self::take_once(directory, before)
    }

    fn take_once(directory: &Arc<Directory>, before: Option<&Self>) -> Result<Self> {
        let _names = directory.ends.as_ref().map(|ends| ends.listing());
        let mut stamp = Stamp::of(directory, None);
        // A writer of this process counts its own changes.
        let is_racy = directory.ends.is_none() && stamp.is_racy();
        let is_same = |before: &&Self| {
            let replaced = |stamp: &Stamp| stamp.writer.map(|(_, _, replaced)| replaced);
            !before.is_racy
                && before.stamp.directory == stamp.directory
                && replaced(&before.stamp) == replaced(&stamp)
        };
        if let Some(before) = before.filter(is_same) {
            // Only the active segment grew or a checkpoint moved: closed segments and what is known of them stay.
            let closed = before.segments.len().saturating_sub(1);
            let kept = before.segments.get(..closed).unwrap_or(&[]).to_vec();
            let listing = Listing {
                base_offsets: before.base_offsets.clone(),
                swapped: before.swapped.clone(),
                snapshots: before.snapshots.clone(),
                warnings: before.warnings.clone(),
                ..Listing::default()
            };
            return Self::build(directory, stamp, is_racy, listing, kept);
        }
        let mut listing = settled_list(directory, stamp.directory)?;
        let checked = directory.limits.check_segments(listing.base_offsets.len());
        checked.map_err(|error| error.at_path(&directory.path))?;
        listing.snapshots.sort_unstable();
        listing.finish_swaps(directory)?;
        // What came between the first look and the listing is seen by the next look.
        stamp.active = None;
        Self::build(directory, stamp, is_racy, listing, Vec::new())
    }

    fn build(
        directory: &Arc<Directory>,
        mut stamp: Stamp,
        is_racy: bool,
        listing: Listing,
        mut segments: Vec<Arc<Segment>>,
    ) -> Result<Self> {
        let Listing {
            base_offsets,
            swapped,
            snapshots,
            mut warnings,
            ..
        } = listing;
        for slot in segments.len()..base_offsets.len() {
            let Some(&base) = base_offsets.get(slot) else {
                break;
            };
            let next = base_offsets.get(slot + 1).copied();
            let mut segment = Segment::new(Arc::clone(directory), base, next);
            if swapped.contains(&base) {
                segment = segment.in_state(FileState::Swap);
            }
            segments.push(Arc::new(segment));
        }
        let active = match segments.last() {
            Some(segment) => Some(segment.open()?.0),
            None => None,
        };
        stamp.active = match (&active, &directory.ends) {
            (Some(active), None) => Some(active.stat),
            // A writer's own segment is cut to what is written; the file itself may be longer.
            (Some(active), Some(_)) => directory.disk.stat(&active.path).ok(),
            (None, _) => None,
        };
        let bounds = super::named_offsets::read_checkpoints(directory)?;
        warnings.extend(bounds.warnings);
        warnings.dedup();
        let (first, last) = (base_offsets.first().copied(), base_offsets.last().copied());
        // A writer knows where its log starts, also below the first segment after a restart elsewhere.
        let lowest = if directory.ends.is_some() {
            None
        } else {
            first
        };
        let log_start_offset = bounds.log_start.unwrap_or(0).max(lowest.unwrap_or(0));
        Ok(Self {
            segments,
            base_offsets,
            swapped,
            snapshots,
            log_start_offset,
            start_is_ours: bounds.closed_with.is_some() && bounds.closed_with == last,
            high_watermark: bounds.high_watermark,
            warnings,
            active,
            is_racy,
            stamp,
            end: OnceLock::new(),
            open_transactions: OnceLock::new(),
            fates: Mutex::new(None),
            max_timestamps: Mutex::new(Vec::new()),
            opened: Mutex::new(VecDeque::new()),
            max_open_files: directory.limits.max_open_files.max(4),
        })
    }

    /// Whether nothing changed since this view was taken: three or four looks at files, none of them opened.
    pub(super) fn is_current(&self, directory: &Directory) -> bool {
        let active = self
            .segments
            .last()
            .map(|segment| segment.file_path(".log"));
        !self.is_racy && Stamp::of(directory, active.as_deref()) == self.stamp
    }

    /// Whether another view has the same segments, in the same files.
    pub(super) fn has_segments_of(&self, other: &Self) -> bool {
        self.base_offsets == other.base_offsets && self.swapped == other.swapped
    }

    /// The open files of a segment of this view. Files opened longest ago are closed beyond the limit.
    pub(crate) fn open(&self, segment: &Arc<Segment>) -> Result<Arc<OpenSegment>> {
        if segment.is_active()
            && let Some(active) = &self.active
        {
            return Ok(Arc::clone(active));
        }
        let (open, newly) = segment.open()?;
        if newly {
            let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
            opened.push_back(Arc::clone(segment));
            if opened.len() > self.max_open_files
                && let Some(oldest) = opened.pop_front()
            {
                oldest.close();
            }
        }
        Ok(open)
    }

    /// Slot of the segment that may hold `offset`: the last one whose base offset is at or below it.
    pub(crate) fn floor_slot(&self, offset: i64) -> usize {
        self.base_offsets
            .partition_point(|&base| base <= offset)
            .saturating_sub(1)
    }

    /// Where the log ends: behind the last whole batch, its checksum right, of the active segment. Worked out once a view.
    pub(crate) fn end(&self) -> Result<&End> {
        if let Some(end) = self.end.get() {
            return Ok(end);
        }
        let mut end = self.find_end()?;
        // A truncation inside a batch leaves a gap at the end that only the writer knows of.
        if let Some((_, log_end, _)) = self.stamp.writer {
            end.log_end_offset = log_end;
        }
        // What is left in front of it was deleted before: as Kafka loads it, the log is empty at its start.
        // Bytes that are no batch may have been one with records behind the start.
        if self.start_is_ours && end.torn.is_none() {
            end.log_end_offset = end.log_end_offset.max(self.log_start_offset);
        }
        Ok(self.end.get_or_init(|| end))
    }

    /// Refuses a checkpointed log start offset above the log end offset: a broker would throw all segments away.
    pub(crate) fn check_bounds(&self) -> Result<()> {
        let within = self
            .base_offsets
            .last()
            .is_none_or(|&last| self.log_start_offset <= last);
        // The end is only needed where the start lies in the last segment or behind it.
        if within || self.log_start_offset <= self.end()?.log_end_offset {
            return Ok(());
        }
        let path = self
            .segments
            .first()
            .map(|segment| segment.file_path(".log"));
        Err(Error::log_dir(
            path.as_deref()
                .and_then(Path::parent)
                .unwrap_or(Path::new("")),
            format!(
                "log start offset {} of log-start-offset-checkpoint is above the log end offset {}; \
                 copy the partition directory elsewhere to read it without the checkpoint",
                self.log_start_offset,
                self.end()?.log_end_offset
            ),
        ))
    }

    fn find_end(&self) -> Result<End> {
        let Some(active) = &self.active else {
            return Ok(End {
                log_end_offset: self.log_start_offset,
                leader_epoch: -1,
                torn: None,
            });
        };
        let mut trace = Trace::default();
        let walk = find::start(active, i64::MAX, LOOKUP_BYTES, Vec::new(), &mut trace)?;
        let from_start = walk.position() == 0;
        match walk_to_end(walk) {
            Ok(end) if from_start || end.torn.is_none() => Ok(end),
            // The index entry may have pointed into a batch: only a walk from the start can say.
            Ok(_) | Err(_) if !from_start => {
                walk_to_end(Walk::new(Arc::clone(active), 0, 64 * 1024, Vec::new()))
            }
            end => end,
        }
    }
}

fn walk_to_end(mut walk: Walk) -> Result<End> {
    walk.set_read_ahead(64 * 1024);
    let mut end = End {
        log_end_offset: walk.segment().base_offset,
        leader_epoch: -1,
        torn: None,
    };
    loop {
        match walk.step(true)? {
            Step::Batch(header) => {
                end.log_end_offset = header.last_offset.saturating_add(1);
                end.leader_epoch = header.leader_epoch;
            }
            Step::End(torn) => {
                end.torn = torn;
                return Ok(end);
            }
        }
    }
}

impl Stamp {
    fn is_racy(&self) -> bool {
        self.directory.is_some_and(|stat| stat.is_racy())
    }

    fn of(directory: &Directory, active: Option<&Path>) -> Self {
        // Before the directory: what the writer told is in files that the directory has by now.
        let writer = directory
            .ends
            .as_ref()
            .map(|ends| (ends.log_start(), ends.log_end(), ends.replaced()));
        let stat = |path: &Path| directory.disk.stat(path).ok();
        let parent = directory.path.parent();
        Self {
            directory: stat(&directory.path),
            active: active.and_then(stat),
            checkpoints: CHECKPOINTS.map(|name| parent.and_then(|parent| stat(&parent.join(name)))),
            writer,
        }
    }
}

/// What a partition directory holds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Listing {
    /// Base offsets of the segments, ascending.
    base_offsets: Vec<i64>,
    /// Those of finished output of a compaction that has not taken its place yet.
    swapped: BTreeSet<i64>,
    /// The lowest one of output that is not finished: of what is there from it on, nothing is.
    unfinished: Option<i64>,
    /// Offsets of the producer snapshots.
    snapshots: Vec<i64>,
    warnings: Vec<String>,
}

/// How often a directory is listed for two listings to agree.
const LISTINGS_MAX: usize = 16;

/// A listing in which no file is missing that was made before another one in it.
///
/// The system may leave out a file that is made while it lists and still give one made later. Every file that is older than one in
/// the first listing was made before the second one began, so that has it; what came later belongs to the next look.
fn settled_list(directory: &Directory, before: Option<FileStat>) -> Result<Listing> {
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
    fn finish_swaps(&mut self, directory: &Directory) -> Result<()> {
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
        .map_err(|error| Error::io("list", path, error))?;
    let mut listing = Listing::default();
    let mut old = 0;
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
                SegmentFile::Log => listing.warnings.push(format!(
                    "left out: {:?} of {} is not a regular file",
                    entry.name,
                    path.display()
                )),
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

/// Refuses the directory of a partition of Kafka 0.7, which is no log of today's kind: it must neither look empty nor be written to.
/// That it is not there, others say.
pub(super) fn refuse_old(disk: &dyn Disk, path: &Path) -> Result<()> {
    let entries = match disk.list(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(|error| Error::io("list", path, error))?,
    };
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
