//! Completes what a deletion, a compaction or a split left half done, as a broker does when it loads a log (`completeSwapOperations`).

use super::repair_segment::CUT_FOLDER;
use crate::disk::{Access, Disk, Entry, EntryKind, IoCall};
use crate::error::{Error, Result};
use crate::folder::is_there;
use crate::log::set_aside::TRUNCATED;
use crate::segment::Directory;
use offsetlog_format::batch::BATCH_HEADER_V2_BYTES;
use offsetlog_format::name::TEMPORARY_SUFFIX;
use offsetlog_format::{BatchHeader, FileName, FileState, SegmentFile, SegmentFileName};
use std::io;
use std::path::Path;

/// One step of the cleanup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::log) enum Step {
    /// Deletes the file, for this reason.
    Remove(String, &'static str),
    /// Renames a finished `.swap` file to its live name.
    Rename(String, String),
    /// Moves a segment that a truncation removed to the folder for cut bytes, under this name.
    Keep(String, String),
}

/// The steps in their order, those of one kind by name, and the base offsets of the segments that the swaps put in place.
#[derive(Debug, Default)]
pub(in crate::log) struct Plan {
    pub(in crate::log) steps: Vec<Step>,
    pub(in crate::log) swapped: Vec<i64>,
    /// What the directory holds before the first step.
    pub(in crate::log) entries: Vec<Entry>,
}

/// Plans the cleanup of a directory; changes nothing.
pub(in crate::log) fn plan(directory: &Directory) -> Result<Plan> {
    let disk = directory.disk.as_ref();
    let mut entries = disk
        .list(&directory.path)
        .map_err(|error| Error::io(IoCall::List, &directory.path, error))?;
    // File systems list in any order; the same files must be reported in the same order.
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
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
    plan.entries = entries;
    Ok(plan)
}

impl Plan {
    /// Keeps the batches that a truncation removed, for those who ask `salvage` for them. What retention and compaction remove lies before
    /// the last segment, and is gone for good.
    pub(in crate::log) fn keep_truncated(&mut self, directory: &Directory) -> Result<()> {
        let live = self.entries.iter().filter_map(|entry| {
            let (offset, state) = log_file(&entry.name)?;
            let is_live = matches!(state, FileState::Live | FileState::Swap);
            is_live.then_some(offset)
        });
        let last = live.max();
        for step in &mut self.steps {
            let Step::Remove(name, _) = step else {
                continue;
            };
            let Some((offset, FileState::Deleted)) = log_file(name) else {
                continue;
            };
            if last.is_some_and(|last| offset <= last) {
                continue;
            }
            let live = SegmentFileName::live(offset, SegmentFile::Log);
            let (mut kept, mut number) = (format!("{live}.0.{TRUNCATED}"), 1);
            while is_there(
                directory.disk.as_ref(),
                &directory.path.join(CUT_FOLDER).join(&kept),
            )? {
                number += 1;
                kept = format!("{live}.0.{TRUNCATED}.{number}");
            }
            *step = Step::Keep(name.clone(), kept);
        }
        Ok(())
    }
}

/// Base offset and state of a `.log`.
fn log_file(name: &str) -> Option<(i64, FileState)> {
    match FileName::classify(name) {
        FileName::Segment(found) if found.file == SegmentFile::Log => {
            Some((found.offset, found.state))
        }
        _ => None,
    }
}

fn is_our_temporary(name: &str) -> bool {
    name.strip_suffix(TEMPORARY_SUFFIX).is_some_and(|stem| {
        stem.starts_with(".offsetlog") || matches!(FileName::classify(stem), FileName::Segment(_))
    })
}

/// Plans the swaps: deletes the segments that the finished output replaces, then renames the output.
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

/// Returns the offset after the last whole batch of a file; its base offset if it has none.
pub(in crate::log) fn next_offset(disk: &dyn Disk, path: &Path, base_offset: i64) -> Result<i64> {
    let failed = |error| Error::io(IoCall::Read, path, error);
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

/// Runs the planned steps, then syncs the directory.
pub(in crate::log) fn apply(directory: &Directory, plan: &Plan) -> Result<()> {
    let disk = directory.disk.as_ref();
    for step in &plan.steps {
        match step {
            Step::Remove(name, _) => remove(disk, &directory.path.join(name))?,
            Step::Keep(from, to) => {
                let folder = directory.path.join(CUT_FOLDER);
                let path = directory.path.join(from);
                disk.create_directory(&folder)
                    .map_err(|error| Error::io(IoCall::Create, &folder, error))?;
                disk.rename(&path, &folder.join(to))
                    .map_err(|error| Error::io(IoCall::Rename, &path, error))?;
                disk.sync_directory(&folder)
                    .map_err(|error| Error::io(IoCall::SyncDirectory, &folder, error))?;
            }
            Step::Rename(from, to) => {
                let path = directory.path.join(from);
                disk.rename(&path, &directory.path.join(to))
                    .map_err(|error| Error::io(IoCall::Rename, &path, error))?;
            }
        }
    }
    if plan.steps.is_empty() {
        return Ok(());
    }
    disk.sync_directory(&directory.path)
        .map_err(|error| Error::io(IoCall::SyncDirectory, &directory.path, error))
}

/// Deletes a file; one that does not exist is not an error.
pub(in crate::log) fn remove(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.unlink(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(IoCall::Remove, path, error))
        }
        _ => Ok(()),
    }
}
