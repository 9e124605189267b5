//! The indexes that a recovery has written beside their places and not put there yet, so that it waits for the disk once for many of them.
//!
//! An opening trusts an index without asking whether it was synced. So none gets its name before its bytes are on the disk, and the names of
//! one kind are there before the next kind gets any: behind a loss of power an opening finds of each segment what it would find had they been
//! written one by one, and of a segment that had none of them its transaction index first. Whatever else changes the log, or reads a segment by its index, first puts in place what waits.

use super::due_snapshots::DueSnapshots;
use super::interrupted_swaps;
use super::sanity_check::ALL;
use crate::disk::{
    DiskFile, IoCall, forget_beside, open_files_max, take_place, write_beside, write_whole,
};
use crate::error::{Error, Result};
use crate::segment::Directory;
use crate::together::with_each_above;
use offsetlog_format::SegmentFile;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// So many wait at most, and no more than a part of the files that the process may have open.
const WAITING_MAX: usize = 64;
const PART_OF_OPEN_FILES: usize = 16;
/// When they have so many bytes they are put in place.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Up to so many are synced one after the other.
const FEW: usize = 8;

/// What waits.
#[derive(Debug, Default)]
pub(in crate::log) struct DueIndexes {
    waiting: Vec<Waiting>,
    bytes: usize,
}

/// An index that has its bytes and not its name.
#[derive(Debug)]
struct Waiting {
    kind: SegmentFile,
    path: PathBuf,
    /// If it does not get its name it is written again.
    bytes: Vec<u8>,
    /// The one in its place is right as well, and may stay.
    has_right_one: bool,
    /// Open until it is synced: the system forgets that it could not write a file when it drops the file from memory.
    file: Option<Arc<dyn DiskFile>>,
}

/// What making room takes.
pub(super) type Place<'p> = (&'p Directory, &'p RefCell<DueSnapshots>);

impl DueIndexes {
    /// Writes an index beside its place. `false` if it has to be written at once, for want of room or of open files.
    pub(super) fn put_off(
        &mut self,
        place: Place<'_>,
        (kind, path, bytes): (SegmentFile, &Path, &[u8]),
        has_right_one: bool,
    ) -> Result<bool> {
        let disk = place.0.disk.as_ref();
        match write_beside(disk, path, bytes) {
            Ok(file) => {
                self.bytes += bytes.len();
                self.waiting.push(Waiting {
                    kind,
                    path: path.to_path_buf(),
                    bytes: bytes.to_vec(),
                    has_right_one,
                    file: Some(file),
                });
            }
            Err(failed) => {
                forget_beside(disk, path);
                let error = Error::failed_call(path, failed);
                if !error.is_out_of_room() && !error.is_of_process() {
                    return Err(error);
                }
                // What they replace makes room.
                self.settle(place)?;
                return Ok(false);
            }
        }
        let waiting_max = (open_files_max() / PART_OF_OPEN_FILES).min(WAITING_MAX);
        if self.waiting.len() >= waiting_max || self.bytes >= WAITING_BYTES_MAX {
            self.settle(place)?;
        }
        Ok(true)
    }

    /// Puts in place, durably, what waits. Behind an error nothing waits any more, and what has no name yet is gone.
    pub(super) fn settle(&mut self, place: Place<'_>) -> Result<()> {
        self.bytes = 0;
        let mut waiting = std::mem::take(&mut self.waiting);
        let settled = settle(place, &mut waiting);
        if settled.is_err() {
            forget(place.0, &waiting);
        }
        settled
    }

    /// Removes what waits: the next opening makes it again.
    pub(super) fn forget(&mut self, directory: &Directory) {
        self.bytes = 0;
        forget(directory, &std::mem::take(&mut self.waiting));
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

fn forget(directory: &Directory, waiting: &[Waiting]) {
    for index in waiting {
        forget_beside(directory.disk.as_ref(), &index.path);
    }
}

fn settle(place: Place<'_>, waiting: &mut Vec<Waiting>) -> Result<()> {
    with_each_above(FEW, waiting, |index| match &index.file {
        Some(file) => file
            .sync_all()
            .map_err(|error| Error::io(IoCall::Sync, &index.path, error)),
        None => Ok(()),
    })?;
    // To sync a directory takes an open file too.
    for index in waiting.iter_mut() {
        index.file = None;
    }
    // While its offset index is missing a segment is looked at whole. Behind that nobody would miss its transaction index.
    name_all(
        place,
        waiting.extract_if(.., |index| comes_first(place.0, index)),
    )?;
    for kind in ALL {
        name_all(place, waiting.extract_if(.., |index| index.kind == kind))?;
    }
    Ok(())
}

/// Whether an index is the transaction index of a segment that has no offset index in its place.
fn comes_first(directory: &Directory, index: &Waiting) -> bool {
    let is_missing = |path: &Path| {
        let stat = directory.disk.stat(path);
        stat.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    index.kind == SegmentFile::TransactionIndex && is_missing(&index.path.with_extension("index"))
}

/// Puts synced indexes in place, and syncs their names, also of those before one that fails.
fn name_all(place: Place<'_>, mut indexes: impl Iterator<Item = Waiting>) -> Result<()> {
    let directory = place.0;
    let mut has_names = false;
    let named = indexes.try_for_each(|index| {
        has_names |= name_one(place, &index)?;
        Ok(())
    });
    let synced = if has_names {
        directory.disk.sync_directory(&directory.path)
    } else {
        Ok(())
    };
    let synced = synced.map_err(|error| Error::io(IoCall::SyncDirectory, &directory.path, error));
    // Of two failures the first one.
    named.and(synced)
}

/// Returns whether there is a name to sync.
fn name_one(place: Place<'_>, index: &Waiting) -> Result<bool> {
    let disk = place.0.disk.as_ref();
    let Err(failed) = take_place(disk, &index.path) else {
        return Ok(true);
    };
    forget_beside(disk, &index.path);
    let error = Error::failed_call(&index.path, failed);
    if !error.is_out_of_room() {
        return Err(error);
    }
    if !index.has_right_one {
        interrupted_swaps::remove(disk, &index.path)?;
        write_now(place, &index.path, &index.bytes)?;
    }
    Ok(false)
}

/// Writes an index durably. Snapshots that are about to go make room.
pub(super) fn write_now(
    (directory, snapshots): Place<'_>,
    path: &Path,
    bytes: &[u8],
) -> Result<()> {
    let write = || {
        write_whole(directory.disk.as_ref(), path, bytes)
            .map_err(|failed| Error::failed_call(path, failed))
    };
    match write() {
        Err(error) if error.is_out_of_room() && snapshots.borrow().has_doubted() => {
            snapshots.borrow_mut().delete_doubted(directory)?;
            write()
        }
        written => written,
    }
}
