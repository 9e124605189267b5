//! Writes a `.index` or `.timeindex`: preallocated with zeros, filled entry by entry, trimmed when the segment is closed.
//!
//! As in a broker, the file is created on first use, so a segment that was just rolled has only its `.log`.

use crate::disk::{Access, Disk, DiskFile, IoCall};
use crate::error::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A `.index` or `.timeindex` of the active segment.
#[derive(Debug)]
pub(crate) struct IndexFile {
    path: PathBuf,
    entry_bytes: usize,
    /// Number of entries that fit.
    capacity: usize,
    entries: usize,
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

    pub(crate) const fn entries(&self) -> usize {
        self.entries
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
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
        let used = (self.entries * self.entry_bytes) as u64;
        // The bytes after the entries may not be zeros.
        if file.stat().map_err(failed)?.size > used {
            file.set_len(used).map_err(failed)?;
        }
        file.set_len(self.full_size()).map_err(failed)?;
        self.file = Some(file);
        Ok(())
    }

    /// Appends complete entries. The caller ensures that they fit.
    pub(crate) fn append(&mut self, disk: &dyn Disk, bytes: &[u8]) -> Result<()> {
        self.touch(disk)?;
        let position = (self.entries * self.entry_bytes) as u64;
        if let Some(file) = &self.file {
            file.write_at(bytes, position)
                .map_err(|error| Error::io(IoCall::Write, &self.path, error))?;
        }
        self.entries += bytes.len() / self.entry_bytes;
        Ok(())
    }

    /// Removes all entries from number `entries` on and puts zeros in their place.
    pub(crate) fn cut(&mut self, entries: usize) -> Result<()> {
        self.entries = entries.min(self.entries);
        let Some(file) = &self.file else {
            return Ok(());
        };
        let used = (self.entries * self.entry_bytes) as u64;
        let cut = file.set_len(used).and_then(|()| {
            match file.set_len(self.full_size()) {
                // The process may no longer create files of this size. The index is then shorter and grows with its entries; no
                // data is lost.
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(()),
                grown => grown,
            }
        });
        cut.map_err(|error| Error::io(IoCall::Truncate, &self.path, error))
    }

    /// Removes the zeros after the last entry.
    pub(crate) fn trim(&self) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.set_len((self.entries * self.entry_bytes) as u64)
            .map_err(|error| Error::io(IoCall::Trim, &self.path, error))
    }

    /// The open file, for a sync that runs beside further appends.
    pub(crate) fn file(&self) -> Option<Arc<dyn DiskFile>> {
        self.file.clone()
    }
}
