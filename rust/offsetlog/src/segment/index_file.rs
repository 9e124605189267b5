//! Writes a `.index` or `.timeindex`: preallocated with zeros, filled entry by entry, trimmed when the segment is closed.
//!
//! As in a broker, the file is created on first use, so a segment that was just rolled has only its `.log`.
//!
//! A broker maps its indexes and stores an entry for nothing; here each write is a system call, up to a seventh of a small
//! append. So the newest entries wait in memory, usually fewer than [`GROUP_ENTRIES`], until a group is written, or the segment
//! is closed or cut. A process that ends before that leaves an unclean log, whose indexes of this segment recovery rebuilds.

use crate::disk::{Access, Disk, DiskFile, IoCall};
use crate::error::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Entries that are written in one call.
pub(crate) const GROUP_ENTRIES: usize = 8;

/// A `.index` or `.timeindex` of the active segment.
#[derive(Debug)]
pub(crate) struct IndexFile {
    path: PathBuf,
    entry_bytes: usize,
    /// Number of entries that fit.
    capacity: usize,
    /// Number of entries, with those that wait.
    entries: usize,
    /// The newest entries, which are not in the file yet.
    waiting: Vec<u8>,
    file: Option<Arc<dyn DiskFile>>,
}

impl IndexFile {
    /// An index of at most `maximum_bytes` that has no file yet.
    pub(crate) fn new(path: PathBuf, entry_bytes: usize, maximum_bytes: i32) -> Self {
        Self {
            path,
            entry_bytes,
            capacity: maximum_bytes.max(0) as usize / entry_bytes,
            entries: 0,
            waiting: Vec::new(),
            file: None,
        }
    }

    /// Continues after `entries` complete entries of an existing file. The file is opened and extended to its full size on
    /// first use.
    pub(crate) fn resume(&mut self, entries: usize) {
        self.entries = entries;
        // A file that already holds more entries than the settings allow keeps them, as in a broker.
        self.capacity = self.capacity.max(entries);
    }

    /// Number of entries, with those that wait.
    pub(crate) const fn entries(&self) -> usize {
        self.entries
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    const fn written_bytes(&self) -> u64 {
        (self.entries * self.entry_bytes - self.waiting.len()) as u64
    }

    const fn full_size(&self) -> u64 {
        (self.capacity * self.entry_bytes) as u64
    }

    /// Opens or creates the file at its full size, with zeros after the entries.
    pub(crate) fn touch(&mut self, disk: &dyn Disk) -> Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let failed = |error| Error::io(IoCall::Open, &self.path, error);
        let file = disk
            .open(&self.path, Access::WriteOrCreate)
            .map_err(failed)?;
        let used = self.written_bytes();
        // The bytes after the entries may not be zeros.
        if file.stat().map_err(failed)?.size > used {
            file.set_len(used).map_err(failed)?;
        }
        file.set_len(self.full_size()).map_err(failed)?;
        self.file = Some(file);
        Ok(())
    }

    /// Appends complete entries; writes them once there are [`GROUP_ENTRIES`]. The caller ensures that they fit. After an
    /// error they wait: a caller that takes back the append must [`cut`](Self::cut) to the number of entries before.
    pub(crate) fn append(&mut self, disk: &dyn Disk, bytes: &[u8]) -> Result<()> {
        self.waiting.extend_from_slice(bytes);
        self.entries += bytes.len() / self.entry_bytes;
        if self.waiting.len() < GROUP_ENTRIES * self.entry_bytes {
            return Ok(());
        }
        self.write_waiting(disk)
    }

    /// Writes the entries that wait. If this fails, they still wait.
    pub(crate) fn write_waiting(&mut self, disk: &dyn Disk) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.touch(disk)?;
        let position = self.written_bytes();
        if let Some(file) = &self.file {
            file.write_at(&self.waiting, position)
                .map_err(|error| Error::io(IoCall::Write, &self.path, error))?;
        }
        self.waiting.clear();
        Ok(())
    }

    /// Removes all entries from number `entries` on and puts zeros in their place.
    pub(crate) fn cut(&mut self, entries: usize) -> Result<()> {
        let gone = self.entries.saturating_sub(entries);
        let waiting = self.waiting.len();
        self.waiting
            .truncate(waiting.saturating_sub(gone * self.entry_bytes));
        self.entries -= gone;
        let Some(file) = &self.file else {
            return Ok(());
        };
        let cut = file.set_len(self.written_bytes()).and_then(|()| {
            match file.set_len(self.full_size()) {
                // The process may no longer create files of this size. The index is then shorter and grows with its entries; no
                // data is lost.
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(()),
                grown => grown,
            }
        });
        cut.map_err(|error| Error::io(IoCall::Truncate, &self.path, error))
    }

    /// Writes the entries that wait, and removes the zeros after the last one.
    pub(crate) fn trim(&mut self, disk: &dyn Disk) -> Result<()> {
        self.write_waiting(disk)?;
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.set_len(self.written_bytes())
            .map_err(|error| Error::io(IoCall::Trim, &self.path, error))
    }

    /// The open file, for a sync that runs beside further appends.
    pub(crate) fn file(&self) -> Option<Arc<dyn DiskFile>> {
        self.file.clone()
    }
}
