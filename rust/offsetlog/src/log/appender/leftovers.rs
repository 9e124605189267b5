//! What a deletion, a compaction or a split left half done, and how it ends: as a broker does it when it loads a log.

use super::Appender;
use crate::disk::{Access, Disk, EntryKind, SYNC_NAMES};
use crate::error::{Error, Result};
use crate::segment::{Directory, segment_path};
use offsetlog_format::batch::BATCH_HEADER_V2_BYTES;
use offsetlog_format::name::TEMPORARY_SUFFIX;
use offsetlog_format::{BatchHeader, FileName, FileState, SegmentFile, SegmentFileName};
use std::io;
use std::path::Path;

/// One step of tidying up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A file goes.
    Remove(String, &'static str),
    /// Finished output takes its place.
    Rename(String, String),
}

/// What has to be done, in order, and the base offsets of segments that came out of a swap.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) swapped: Vec<i64>,
}

/// Looks at a directory's leftovers; changes nothing.
pub(super) fn plan(directory: &Directory) -> Result<Plan> {
    let disk = directory.disk.as_ref();
    let entries = disk
        .list(&directory.path)
        .map_err(|error| Error::io("list", &directory.path, error))?;
    let mut plan = Plan::default();
    let mut live = Vec::new();
    let mut cleaned = Vec::new();
    let mut swap = Vec::new();
    for entry in entries.iter().filter(|entry| entry.kind == EntryKind::File) {
        let name = &entry.name;
        match FileName::classify(name) {
            FileName::Segment(segment) => match segment.state {
                FileState::Live => live.push(segment),
                FileState::Deleted => {
                    plan.steps
                        .push(Step::Remove(name.clone(), "was to be deleted"));
                }
                FileState::Cleaned => cleaned.push(segment),
                FileState::Swap => swap.push(segment),
            },
            FileName::Other if name.ends_with(".deleted") => {
                plan.steps
                    .push(Step::Remove(name.clone(), "was to be deleted"));
            }
            FileName::Temporary => {
                plan.steps
                    .push(Step::Remove(name.clone(), "was never finished"));
            }
            FileName::Other if is_our_temporary(name) => {
                plan.steps
                    .push(Step::Remove(name.clone(), "was never finished"));
            }
            _ => {}
        }
    }
    let unfinished = cleaned.iter().map(|segment| segment.offset).min();
    let (superseded, swap): (Vec<_>, Vec<_>) = swap
        .into_iter()
        .partition(|segment| unfinished.is_some_and(|base| segment.offset >= base));
    for segment in superseded.iter().chain(&cleaned) {
        let why = "is output of a compaction or split that did not finish";
        plan.steps.push(Step::Remove(segment.to_string(), why));
    }
    plan_swaps(directory, &live, &swap, &mut plan)?;
    Ok(plan)
}

fn is_our_temporary(name: &str) -> bool {
    name.strip_suffix(TEMPORARY_SUFFIX).is_some_and(|stem| {
        stem.starts_with(".offsetlog") || matches!(FileName::classify(stem), FileName::Segment(_))
    })
}

/// Finished output takes the place of the files that it was made from.
fn plan_swaps(
    directory: &Directory,
    live: &[SegmentFileName],
    swap: &[SegmentFileName],
    plan: &mut Plan,
) -> Result<()> {
    let mut range: Option<(i64, i64)> = None;
    for segment in swap
        .iter()
        .filter(|segment| segment.file == SegmentFile::Log)
    {
        let path = directory.path.join(segment.to_string());
        let next = next_offset(directory.disk.as_ref(), &path, segment.offset)?;
        range = Some(match range {
            Some((low, high)) => (low.min(segment.offset), high.max(next)),
            None => (segment.offset, next),
        });
        plan.swapped.push(segment.offset);
    }
    if let Some((low, high)) = range {
        for segment in live {
            if (low..high).contains(&segment.offset) {
                let why = "was replaced by the output of a compaction or split";
                plan.steps.push(Step::Remove(segment.to_string(), why));
            }
        }
    }
    for segment in swap {
        let target = SegmentFileName::live(segment.offset, segment.file);
        plan.steps
            .push(Step::Rename(segment.to_string(), target.to_string()));
    }
    Ok(())
}

/// Offset behind the last whole batch of a file; its base offset where there is none.
pub(in crate::log) fn next_offset(disk: &dyn Disk, path: &Path, base_offset: i64) -> Result<i64> {
    let failed = |error| Error::io("read", path, error);
    let file = disk.open(path, Access::Read).map_err(failed)?;
    let size = file.stat().map_err(failed)?.size;
    let mut next = base_offset;
    let mut position = 0;
    let mut front = [0; BATCH_HEADER_V2_BYTES];
    while position < size {
        let read = file.read_at(&mut front, position).map_err(failed)?;
        let Ok(header) = BatchHeader::parse(front.get(..read).unwrap_or(&[])) else {
            break;
        };
        if header.size_bytes as u64 > size - position {
            break;
        }
        next = header.last_offset.saturating_add(1);
        position += header.size_bytes as u64;
    }
    Ok(next)
}

/// Does what was planned.
pub(super) fn apply(directory: &Directory, plan: &Plan) -> Result<()> {
    let disk = directory.disk.as_ref();
    for step in &plan.steps {
        match step {
            Step::Remove(name, _) => remove(disk, &directory.path.join(name))?,
            Step::Rename(from, to) => {
                let path = directory.path.join(from);
                disk.rename(&path, &directory.path.join(to))
                    .map_err(|error| Error::io("rename", &path, error))?;
            }
        }
    }
    if plan.steps.is_empty() {
        return Ok(());
    }
    disk.sync_directory(&directory.path)
        .map_err(|error| Error::io(SYNC_NAMES, &directory.path, error))
}

/// Removes a file that may be gone already.
pub(super) fn remove(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.unlink(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

impl Appender {
    /// Renames a segment's files, to be removed when `file.delete.delay.ms` is over: who reads them can finish.
    pub(super) fn doom_segment(&mut self, base_offset: i64, now: i64) -> Result<()> {
        self.doom_files(base_offset, now)?;
        self.doom_snapshot(base_offset, now)
    }

    /// The same for its `.log` and indexes alone.
    pub(super) fn doom_files(&mut self, base_offset: i64, now: i64) -> Result<()> {
        [".log", ".index", ".timeindex", ".txnindex"]
            .into_iter()
            .try_for_each(|suffix| self.doom(base_offset, suffix, now))
    }

    /// The same for the snapshot of an offset.
    pub(super) fn doom_snapshot(&mut self, offset: i64, now: i64) -> Result<()> {
        if self.snapshots.remove(&offset) {
            self.doom(offset, ".snapshot", now)?;
        }
        Ok(())
    }

    fn doom(&mut self, offset: i64, suffix: &str, now: i64) -> Result<()> {
        let path = segment_path(&self.directory.path, offset, suffix);
        let mut target = path.as_os_str().to_owned();
        target.push(FileState::Deleted.suffix());
        let target = std::path::PathBuf::from(target);
        match self.directory.disk.rename(&path, &target) {
            Ok(()) => {
                self.names_changed = true;
                let due = now.saturating_add(self.upkeep_config().file_delete_delay_ms());
                self.doomed.push((due, target));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io("rename", &path, error)),
        }
    }

    /// Removes what has waited long enough, and tells. A file that cannot be removed now is removed when the log is opened again.
    pub(crate) fn delete_due(&mut self, now: i64) -> Vec<std::path::PathBuf> {
        let disk = std::sync::Arc::clone(&self.directory.disk);
        let is_due = |doomed: &mut (i64, std::path::PathBuf)| doomed.0 <= now;
        let due = self.doomed.extract_if(.., is_due);
        due.filter(|(_, path)| disk.unlink(path).is_ok())
            .map(|(_, path)| path)
            .collect()
    }

    /// What [`delete_due`](Self::delete_due) would remove.
    pub(crate) fn due(&self, now: i64) -> Vec<std::path::PathBuf> {
        let due = self.doomed.iter().filter(|(due, _)| *due <= now);
        due.map(|(_, path)| path.clone()).collect()
    }
}
