//! The active segment: the one segment of a log that is appended to.
//!
//! Invariant: an append is written completely or not at all. The bytes go to the `.log` in one call, then come the index
//! entries, several appends' in one call. If a write fails, the caller restores the earlier state with [`ActiveSegment::undo`].

use super::index_file::IndexFile;
use super::indexing::{Indexed, Indexing, MaxTimestamp, NewEntries, capacities};
use super::{Directory, segment_path};
use crate::disk::{Access, DiskFile, IoCall};
use crate::error::{Error, Result};
use offsetlog_format::AbortedTransaction;
use offsetlog_format::index_entry::{
    ABORTED_TRANSACTION_BYTES, OFFSET_INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES, TimeIndexEntry,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Settings with which a segment is opened for writing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) index_bytes: i32,
    pub(crate) index_interval: i32,
    /// Size to which a new `.log` is preallocated; 0 for none.
    pub(crate) preallocate: u64,
    /// When the segment was created, opened or emptied.
    pub(crate) created: i64,
    /// How much earlier than `segment.ms` the segment is rolled, in ms.
    pub(crate) jitter: i64,
}

/// What an existing segment holds, as read when it is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contents {
    pub(crate) size: u64,
    pub(crate) offset_entries: usize,
    pub(crate) time_entries: usize,
    pub(crate) last_time: Option<TimeIndexEntry>,
    /// Greatest timestamp of the batches.
    pub(crate) max: MaxTimestamp,
    /// Greatest timestamp of the first batch.
    pub(crate) first_timestamp: Option<i64>,
    /// Number of index entries that a rebuild would make.
    pub(crate) rebuilt_entries: usize,
}

/// The segment that is appended to.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    pub(crate) base_offset: i64,
    directory: Arc<Directory>,
    path: PathBuf,
    log: Arc<dyn DiskFile>,
    size: u64,
    /// The file is longer than its written bytes.
    preallocated: bool,
    index: IndexFile,
    time_index: IndexFile,
    indexing: Indexing,
    /// The same rule as if the segment had been indexed from position 0 without a reopening: the entries that recovery would
    /// need.
    rebuild: Indexing,
    first_timestamp: Option<i64>,
    /// Its time index said what the greatest timestamp of its batches is, when it was opened.
    is_told: bool,
    settings: Settings,
    transactions: Option<(Arc<dyn DiskFile>, u64)>,
    entries: NewEntries,
    discarded: NewEntries,
}

impl ActiveSegment {
    /// Creates an empty segment. The caller has already removed older files with the same names.
    pub(crate) fn create(
        directory: &Arc<Directory>,
        base_offset: i64,
        settings: &Settings,
    ) -> Result<Self> {
        let path = segment_path(&directory.path, base_offset, ".log");
        let log = directory
            .disk
            .open(&path, Access::Create)
            .map_err(|error| Error::io(IoCall::Create, &path, error))?;
        if settings.preallocate > 0
            && let Err(error) = log.set_len(settings.preallocate)
        {
            // The next opening must not find a segment that was never used.
            let _ = directory.disk.unlink(&path);
            return Err(Error::io(IoCall::Preallocate, &path, error));
        }
        Ok(Self::assemble(directory, base_offset, path, log, settings))
    }

    /// Opens an existing segment; `contents` was read from its files.
    pub(crate) fn open(
        directory: &Arc<Directory>,
        base_offset: i64,
        settings: &Settings,
        contents: &Contents,
    ) -> Result<Self> {
        let path = segment_path(&directory.path, base_offset, ".log");
        let log = directory
            .disk
            .open(&path, Access::Write)
            .map_err(|error| Error::io(IoCall::Open, &path, error))?;
        let mut segment = Self::assemble(directory, base_offset, path, log, settings);
        segment.preallocated = false;
        segment.size = contents.size;
        segment.first_timestamp = contents.first_timestamp;
        segment.is_told = contents.size > 0;
        segment.index.resume(contents.offset_entries);
        segment.time_index.resume(contents.time_entries);
        segment.indexing = Indexing::new(
            base_offset,
            settings.index_interval,
            segment.index.capacity() - segment.index.entries(),
            segment.time_index.capacity() - segment.time_index.entries(),
        );
        segment.indexing.resume(contents.last_time, contents.max);
        segment.rebuild = Indexing::new(
            base_offset,
            settings.index_interval,
            segment
                .index
                .capacity()
                .saturating_sub(contents.rebuilt_entries),
            segment
                .time_index
                .capacity()
                .saturating_sub(contents.rebuilt_entries),
        );
        if contents.size > 0 {
            segment.rebuild.resume_anywhere();
        }
        // Recovery may have rewritten the `.txnindex`, so it is opened here and synced with the rest.
        segment.open_transactions(Access::Write)?;
        Ok(segment)
    }

    /// Opens the `.txnindex`. If there is none, creates it only if `access` does.
    fn open_transactions(&mut self, access: Access) -> Result<()> {
        if self.transactions.is_some() {
            return Ok(());
        }
        let path = segment_path(&self.directory.path, self.base_offset, ".txnindex");
        let opened = self
            .directory
            .disk
            .open(&path, access)
            .and_then(|file| Ok((file.stat_at_open()?.size, file)));
        match opened {
            Ok((size, file)) => {
                let whole = size - size % ABORTED_TRANSACTION_BYTES as u64;
                self.transactions = Some((file, whole));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io(IoCall::Open, &path, error)),
        }
    }

    fn assemble(
        directory: &Arc<Directory>,
        base_offset: i64,
        path: PathBuf,
        log: Arc<dyn DiskFile>,
        settings: &Settings,
    ) -> Self {
        let (offset_room, time_room) = capacities(settings.index_bytes);
        let file = |suffix: &str, entry_bytes: usize| {
            let path = segment_path(&directory.path, base_offset, suffix);
            IndexFile::new(path, entry_bytes, settings.index_bytes)
        };
        let indexing = Indexing::new(base_offset, settings.index_interval, offset_room, time_room);
        Self {
            base_offset,
            path,
            log,
            size: 0,
            preallocated: settings.preallocate > 0,
            index: file(".index", OFFSET_INDEX_ENTRY_BYTES),
            time_index: file(".timeindex", TIME_INDEX_ENTRY_BYTES),
            indexing,
            rebuild: indexing,
            first_timestamp: None,
            is_told: false,
            settings: *settings,
            transactions: None,
            entries: NewEntries::default(),
            discarded: NewEntries::default(),
            directory: Arc::clone(directory),
        }
    }

    /// Bytes written to the `.log`.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Greatest timestamp of its batches, -1 if no batch has one; `None` where its time index told it, which may be wrong.
    pub(crate) const fn max_timestamp(&self) -> Option<i64> {
        if self.is_told {
            None
        } else {
            Some(self.indexing.max.timestamp)
        }
    }

    /// How long the segment has waited for a roll when a batch with `timestamp` arrives at `now`, in ms: measured by record
    /// timestamps if the first batch has one, otherwise since the segment was opened.
    pub(crate) fn waited(&self, timestamp: i64, now: i64) -> i64 {
        match self.first_timestamp {
            Some(first) if first >= 0 => timestamp.saturating_sub(first),
            _ => now.saturating_sub(self.settings.created),
        }
    }

    /// Makes an empty segment as old as one that is created at `now`.
    pub(crate) const fn count_from(&mut self, now: i64) {
        self.settings.created = now;
    }

    pub(crate) const fn jitter(&self) -> i64 {
        self.settings.jitter
    }

    /// The settings it was created or opened with. Later changes of the log's settings do not affect them.
    pub(crate) const fn settings(&self) -> Settings {
        self.settings
    }

    /// Whether an index is full.
    pub(crate) const fn indexes_are_full(&self) -> bool {
        self.indexing.is_full()
    }

    /// Whether `batches` need more entries than an index has room for, now or after a rebuild. A broker does not start if its
    /// rebuild overflows an index.
    pub(crate) fn overfills(&mut self, batches: &[Indexed]) -> Result<bool> {
        for rule in [self.indexing, self.rebuild] {
            if batches.len() > rule.room() {
                let mut trial = rule.unbounded();
                self.discarded.clear();
                for batch in batches {
                    trial.note(batch, &mut self.discarded)?;
                }
                if self.discarded.offset.len() / OFFSET_INDEX_ENTRY_BYTES > rule.room() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Creates the index files if they are missing, as a broker does at the first append to a segment.
    pub(crate) fn touch(&mut self) -> Result<()> {
        let disk = self.directory.disk.as_ref();
        self.index.touch(disk)?;
        self.time_index.touch(disk)
    }

    /// Writes `parts`, which hold `batches`. Positions of the batches count from the first byte of the parts. After an error
    /// the caller must [`undo`](Self::undo) to the [`state`](Self::state) from before the call.
    pub(crate) fn append(&mut self, parts: &[&[u8]], batches: &[Indexed]) -> Result<()> {
        self.touch()?;
        let written = match parts {
            // One plain write is faster than a vectored write of one part.
            [whole] => self.log.write_at(whole, self.size),
            _ => self.log.write_parts_at(parts, self.size),
        };
        written
            .map_err(|error| Error::io(IoCall::Write, &self.path, error).at_position(self.size))?;
        if self.size == 0 {
            self.first_timestamp = batches.first().map(|batch| batch.max_timestamp);
        }
        self.entries.clear();
        self.discarded.clear();
        for batch in batches {
            let placed = Indexed {
                position: self.size + batch.position,
                ..*batch
            };
            self.indexing.note(&placed, &mut self.entries)?;
            self.rebuild.note(&placed, &mut self.discarded)?;
        }
        let disk = self.directory.disk.as_ref();
        if !self.entries.offset.is_empty() {
            self.index.append(disk, &self.entries.offset)?;
        }
        if !self.entries.time.is_empty() {
            self.time_index.append(disk, &self.entries.time)?;
        }
        self.size += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        Ok(())
    }

    /// Writes the index entries that wait for others, before the files are read or cut by their names.
    pub(crate) fn write_entries(&mut self) -> Result<()> {
        let disk = self.directory.disk.as_ref();
        self.index.write_waiting(disk)?;
        self.time_index.write_waiting(disk)
    }

    fn take_back(&mut self, (offset_entries, time_entries): (usize, usize)) -> Result<()> {
        let full = self.preallocated_size()?;
        self.log
            .set_len(self.size)
            .and_then(|()| full.map_or(Ok(()), |full| self.log.set_len(full)))
            .map_err(|error| Error::io(IoCall::Truncate, &self.path, error))?;
        self.index.cut(offset_entries)?;
        self.time_index.cut(time_entries)
    }

    fn preallocated_size(&self) -> Result<Option<u64>> {
        if !self.preallocated {
            return Ok(None);
        }
        let stat = self
            .log
            .stat()
            .map_err(|error| Error::io(IoCall::Stat, &self.path, error))?;
        Ok(Some(stat.size.max(self.size)))
    }

    /// Appends to the `.txnindex`, which is created with its first entry.
    pub(crate) fn append_aborted(&mut self, aborted: &[AbortedTransaction]) -> Result<()> {
        if aborted.is_empty() {
            return Ok(());
        }
        self.open_transactions(Access::WriteOrCreate)?;
        let mut bytes = Vec::with_capacity(aborted.len() * ABORTED_TRANSACTION_BYTES);
        for transaction in aborted {
            transaction.write(&mut bytes);
        }
        if let Some((file, size)) = &mut self.transactions {
            let path = segment_path(&self.directory.path, self.base_offset, ".txnindex");
            file.write_at(&bytes, *size)
                .map_err(|error| Error::io(IoCall::Write, &path, error))?;
            *size += bytes.len() as u64;
        }
        Ok(())
    }

    /// Restores an earlier state, of the files too. If this fails, nothing more may be appended.
    pub(crate) fn undo(&mut self, state: Undo) -> Result<()> {
        self.size = state.size;
        self.indexing = state.indexing;
        self.rebuild = state.rebuild;
        self.first_timestamp = state.first_timestamp;
        if let (Some((file, size)), Some(before)) = (&mut self.transactions, state.transactions) {
            *size = before;
            file.set_len(before)
                .map_err(|error| Error::io(IoCall::Truncate, &self.path, error))?;
        }
        self.take_back(state.entries)
    }

    /// Saves the current state for [`undo`](Self::undo).
    pub(crate) fn state(&self) -> Undo {
        Undo {
            size: self.size,
            indexing: self.indexing,
            rebuild: self.rebuild,
            first_timestamp: self.first_timestamp,
            entries: (self.index.entries(), self.time_index.entries()),
            transactions: self.transactions.as_ref().map(|(_, size)| *size),
        }
    }

    /// Writes the closing time entry, trims the indexes and removes preallocated space, as at a roll and at a clean close.
    pub(crate) fn close(&mut self) -> Result<()> {
        // The next opening treats a closed segment without index files as one that lost them.
        self.touch()?;
        self.entries.clear();
        self.indexing.note_time(&mut self.entries.time)?;
        let disk = self.directory.disk.as_ref();
        if !self.entries.time.is_empty() {
            self.time_index.append(disk, &self.entries.time)?;
        }
        self.index.trim(disk)?;
        self.time_index.trim(disk)?;
        if self.preallocated {
            self.log
                .set_len(self.size)
                .map_err(|error| Error::io(IoCall::Trim, &self.path, error))?;
            self.preallocated = false;
        }
        Ok(())
    }

    /// The `.log` file, for a sync.
    pub(crate) fn log_file(&self) -> (PathBuf, Arc<dyn DiskFile>) {
        (self.path.clone(), Arc::clone(&self.log))
    }

    /// The files to sync, `.log` first.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Arc<dyn DiskFile>)> {
        let mut files = vec![self.log_file()];
        for index in [&self.index, &self.time_index] {
            if let Some(file) = index.file() {
                files.push((index.path().to_path_buf(), file));
            }
        }
        if let Some((file, _)) = &self.transactions {
            let path = segment_path(&self.directory.path, self.base_offset, ".txnindex");
            files.push((path, Arc::clone(file)));
        }
        files
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A state of an active segment that [`ActiveSegment::undo`] can restore.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Undo {
    size: u64,
    indexing: Indexing,
    rebuild: Indexing,
    first_timestamp: Option<i64>,
    entries: (usize, usize),
    transactions: Option<u64>,
}
