//! Writes the cleaned segment of a group, with its indexes, under the suffix `.cleaned`.

use crate::disk::{Access, DiskFile, IoCall};
use crate::error::{Error, Result};
use crate::log::recovery::interrupted_swaps;
use crate::segment::indexing::{Indexed, Indexing, NewEntries, capacities};
use crate::segment::{Directory, segment_path, with_state};
use offsetlog_format::{AbortedTransaction, BatchHeader, FileState};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes per write: few enough to be still in the CPU cache.
const WRITE_BYTES: usize = 256 << 10;

/// A cleaned segment in progress.
#[derive(Debug)]
pub(super) struct Output {
    directory: Arc<Directory>,
    base_offset: i64,
    path: PathBuf,
    log: Arc<dyn DiskFile>,
    written: u64,
    /// Bytes that are not written yet.
    pending: Vec<u8>,
    indexing: Indexing,
    entries: NewEntries,
    transactions: Vec<u8>,
}

impl Output {
    /// Starts a segment. Overwrites files that an interrupted cleaning left under its names.
    pub(super) fn create(
        directory: &Arc<Directory>,
        base_offset: i64,
        index_bytes: i32,
        index_interval: i32,
        buffer: Vec<u8>,
    ) -> Result<Self> {
        // The only one of its files that it may not write. An old one would make the next opening take the finished output for one
        // that is not, after the segments that it replaces are gone.
        let stale = cleaned(directory, base_offset, ".txnindex");
        interrupted_swaps::remove(directory.disk.as_ref(), &stale)?;
        let path = cleaned(directory, base_offset, ".log");
        let log = directory
            .disk
            .open(&path, Access::Replace)
            .map_err(|error| Error::io(IoCall::Create, &path, error))?;
        let (offset_room, time_room) = capacities(index_bytes);
        Ok(Self {
            directory: Arc::clone(directory),
            base_offset,
            path,
            log,
            written: 0,
            pending: buffer,
            indexing: Indexing::new(base_offset, index_interval, offset_room, time_room),
            entries: NewEntries::default(),
            transactions: Vec::new(),
        })
    }

    /// The buffer for the next batch. Call [`appended`](Self::appended) after appending it.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        &mut self.pending
    }

    /// Indexes the batch with this header, which the caller has appended to [`room`](Self::room).
    pub(super) fn appended(&mut self, header: &BatchHeader) -> Result<()> {
        let size_bytes = header.size_bytes as u64;
        let position = (self.written + self.pending.len() as u64).saturating_sub(size_bytes);
        let batch = Indexed {
            last_offset: header.last_offset,
            max_timestamp: header.max_timestamp,
            position,
            size_bytes,
        };
        self.indexing.note(&batch, &mut self.entries)?;
        if self.pending.len() >= WRITE_BYTES {
            self.write()?;
        }
        Ok(())
    }

    pub(super) fn push_aborted(&mut self, aborted: &AbortedTransaction) {
        aborted.write(&mut self.transactions);
    }

    fn write(&mut self) -> Result<()> {
        self.log
            .write_at(&self.pending, self.written)
            .map_err(|error| {
                Error::io(IoCall::Write, &self.path, error).at_position(self.written)
            })?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Syncs all files and sets the modification time of the `.log` to `modified_ms`. Returns the suffixes of the files, `.log`
    /// first; the size of the `.log` in bytes; and the buffer.
    pub(super) fn finish(mut self, modified_ms: i64) -> Result<(Vec<&'static str>, u64, Vec<u8>)> {
        if !self.pending.is_empty() {
            self.write()?;
        }
        self.indexing.note_time(&mut self.entries.time)?;
        let mut suffixes = vec![".log", ".index", ".timeindex"];
        self.write_beside(".index", &self.entries.offset)?;
        self.write_beside(".timeindex", &self.entries.time)?;
        if !self.transactions.is_empty() {
            self.write_beside(".txnindex", &self.transactions)?;
            suffixes.push(".txnindex");
        }
        self.log
            .set_modified(modified_ms)
            .and_then(|()| self.log.sync_all())
            .map_err(|error| Error::io(IoCall::Sync, &self.path, error))?;
        Ok((suffixes, self.written, self.pending))
    }

    fn write_beside(&self, suffix: &str, bytes: &[u8]) -> Result<()> {
        let path = cleaned(&self.directory, self.base_offset, suffix);
        let file = self
            .directory
            .disk
            .open(&path, Access::Replace)
            .map_err(|error| Error::io(IoCall::Create, &path, error))?;
        if !bytes.is_empty() {
            file.write_at(bytes, 0)
                .map_err(|error| Error::io(IoCall::Write, &path, error))?;
        }
        file.sync_all()
            .map_err(|error| Error::io(IoCall::Sync, &path, error))
    }
}

/// Deletes the output of a cleaning that failed. The next opening deletes what could not be deleted here.
pub(crate) fn discard(directory: &Directory, base_offset: i64) {
    for suffix in [".log", ".index", ".timeindex", ".txnindex"] {
        let _ = directory
            .disk
            .unlink(&cleaned(directory, base_offset, suffix));
    }
}

fn cleaned(directory: &Directory, base_offset: i64, suffix: &str) -> PathBuf {
    let path = segment_path(&directory.path, base_offset, suffix);
    with_state(path, FileState::Cleaned)
}
