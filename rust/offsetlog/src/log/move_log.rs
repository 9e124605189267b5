//! Publishes a staged log without a copy: renames its segments into another log, after that log's end.
//!
//! Only base offset and leader epoch of its batches change, in the file where they were staged. From the moment before the first of these
//! changes the staged directory has a note with the size, checksum and width of every batch, by which they are known again, in whatever
//! state a crash leaves the files: some numbered and some not, some in their new place and some not.

use super::LogWriter;
use crate::append_info::AppendInfo;
use crate::disk::{Access, Disk, DiskFile, EntryKind, IoCall, read_whole, temporary, write_whole};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::segment::active::Settings;
use crate::segment::indexing::{Indexed, Indexing, MaxTimestamp, NewEntries, capacities};
use crate::segment::walk::SCAN_BYTES;
use offsetlog_format::batch::{BATCH_HEADER_V2_BYTES, LOG_OVERHEAD_BYTES};
use offsetlog_format::index_entry::OFFSET_INDEX_ENTRY_BYTES;
use offsetlog_format::{BatchHeader, FileName, FileState, Frame, SegmentFile};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of bytes after which the caller may interrupt.
const CHECK_BYTES: u64 = 4 << 20;
/// Base offset, length and leader epoch: the front of a batch.
const NUMBERED_BYTES: usize = 16;
/// In a staged directory whose segments are being moved: what its batches are.
const NOTE: &str = ".offsetlog.moving";
/// Its first line; another one is of a version that this one does not know.
const NOTE_VERSION: &str = "0";
/// Three numbers of ten digits at most for each batch, which has at least 61 bytes.
const NOTE_BYTES: u64 = 1 << 31;

/// The parts of a batch that stay when it gets new offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovedBatch {
    /// Its size on disk.
    pub size_bytes: u32,
    /// Its checksum, which does not cover base offset and leader epoch.
    pub crc: u32,
    /// Offset of its last record minus that of its first.
    pub last_offset_delta: i32,
}

impl MovedBatch {
    pub(super) const fn offsets(self) -> i64 {
        self.last_offset_delta as i64 + 1
    }
}

impl LogWriter {
    /// Moves the segments of the staged log in `source` to the end of this one by renaming its files. Returns `None`, with nothing changed,
    /// if [`append_log`](Self::append_log) has to copy them. Batches get the next offsets, and the epoch `leader_epoch` or else the newest
    /// of this log.
    ///
    /// A log is moved if it has at least a quarter of `segment.bytes`, so that there are never many more segments than with copying; or 16
    /// MiB if the active segment is empty, which its first one then replaces. It is copied if its offsets have gaps, or a batch belongs to
    /// a producer, is a marker or of magic 0 or 1, or a segment does not fit the settings of this log.
    ///
    /// Everything that was appended before is made durable first; the first moved segment follows it. After an error or a crash the first
    /// segments may be in the log, each whole or not at all; [`moving_note`] then returns the batches of all of them, and a call with the
    /// number of batches that are not in the log moves the rest. Nobody may have `source` open.
    ///
    /// # Errors
    /// `LogDir` if `source` does not have the expected number of batches, or was partly moved and cannot be moved further; `Locked` if it
    /// is open; corruption of its batches; `Cluster` if other brokers have replicas; `Io`, `Closed`, `Poisoned`.
    pub fn move_log(
        &self,
        source: &Path,
        batches: usize,
        leader_epoch: Option<i32>,
    ) -> Result<Option<AppendInfo>> {
        self.changing(|writer| {
            writer.guard().check_replicas("append", self.path())?;
            let leader_epoch = writer.epoch_for(leader_epoch);
            writer.move_in(source, batches, leader_epoch, &|| self.check())
        })
    }
}

/// Returns the batches of a staged log whose segments are being moved, those that are in their new place among them; `None` if
/// [`LogWriter::move_log`] has not begun with it.
///
/// # Errors
/// `LogDir` if the note is not one of this version; `Io`.
pub fn moving_note(disk: &dyn Disk, source: &Path) -> Result<Option<Vec<MovedBatch>>> {
    let path = source.join(NOTE);
    let bytes = match read_whole(disk, &path, NOTE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(IoCall::Read, &path, error)),
    };
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    parse_note(text).map(Some).ok_or_else(|| {
        let reason = "is not a note of version 0 about batches that are being moved";
        Error::log_dir(&path, reason)
    })
}

fn parse_note(text: &str) -> Option<Vec<MovedBatch>> {
    let (version, lines) = text.strip_suffix('\n')?.split_once('\n')?;
    if version != NOTE_VERSION {
        return None;
    }
    let batch = |line: &str| {
        let mut numbers = line.split(' ');
        let batch = MovedBatch {
            size_bytes: numbers.next()?.parse().ok()?,
            crc: numbers.next()?.parse().ok()?,
            last_offset_delta: numbers.next()?.parse().ok().filter(|&delta| delta >= 0)?,
        };
        numbers.next().is_none().then_some(batch)
    };
    lines.split('\n').map(batch).collect()
}

/// One segment of a staged log. Offsets count from its own first one.
#[derive(Debug)]
pub(super) struct Piece {
    /// Its `.log` file.
    pub(super) path: PathBuf,
    pub(super) size: u64,
    pub(super) batches: Vec<MovedBatch>,
    /// Offsets that its batches take up.
    pub(super) offsets: i64,
    pub(super) entries: NewEntries,
    /// Offset entries that a rebuild would write, if there was room.
    pub(super) rebuilt_entries: usize,
    pub(super) max: MaxTimestamp,
    pub(super) first_timestamp: Option<i64>,
}

/// A log that was written aside, as its files are.
#[derive(Debug)]
pub(super) struct Staged {
    directory: PathBuf,
    /// In the order of their offsets.
    pub(super) pieces: Vec<Piece>,
    /// Whether the move was begun by an earlier call.
    is_begun: bool,
    /// Why it has to be copied.
    pub(super) refusal: Option<&'static str>,
}

/// Base offset and path of each segment in a staged directory, in the order of their offsets.
fn log_files(disk: &dyn Disk, directory: &Path) -> Result<Vec<(i64, PathBuf)>> {
    let mut files = Vec::new();
    let listed = disk.list(directory);
    for entry in listed.map_err(|error| Error::io(IoCall::List, directory, error))? {
        match FileName::classify(&entry.name) {
            FileName::Segment(segment)
                if entry.kind == EntryKind::File
                    && segment.state == FileState::Live
                    && segment.file == SegmentFile::Log =>
            {
                files.push((segment.offset, directory.join(&entry.name)));
            }
            _ => {}
        }
    }
    files.sort_unstable();
    Ok(files)
}

impl Staged {
    /// Whether an earlier call has begun to move it, and how large its segments are.
    pub(super) fn look(disk: &dyn Disk, directory: &Path) -> Result<(bool, u64)> {
        let is_begun = moving_note(disk, directory)?.is_some();
        let mut size = 0;
        for (_, path) in log_files(disk, directory)? {
            let stat = disk.stat(&path);
            size += stat
                .map_err(|error| Error::io(IoCall::Stat, &path, error))?
                .size;
        }
        Ok((is_begun, size))
    }

    /// Reads and checks every batch; `settings` say which of them get index entries.
    pub(super) fn read(
        disk: &dyn Disk,
        directory: &Path,
        limits: &Limits,
        settings: &Settings,
        is_begun: bool,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Self> {
        let mut staged = Self {
            directory: directory.to_path_buf(),
            pieces: Vec::new(),
            is_begun,
            refusal: None,
        };
        let files = log_files(disk, directory)?;
        let mut next = files.first().map_or(0, |&(base, _)| base);
        for (base, path) in files {
            // Half of the batches may have their new offsets by now.
            if !staged.is_begun && base != next {
                staged.refuse("its offsets have gaps");
            }
            check()?;
            let piece = staged.read_piece(disk, path, limits, settings, base, check)?;
            next = base.saturating_add(piece.offsets);
            if !piece.batches.is_empty() {
                staged.pieces.push(piece);
            }
        }
        Ok(staged)
    }

    fn refuse(&mut self, reason: &'static str) {
        self.refusal.get_or_insert(reason);
    }

    fn read_piece(
        &mut self,
        disk: &dyn Disk,
        path: PathBuf,
        limits: &Limits,
        settings: &Settings,
        base: i64,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Piece> {
        let opened = disk.open(&path, Access::Read);
        let file = opened.map_err(|error| Error::io(IoCall::Open, &path, error))?;
        let stat = file.stat_at_open();
        let size = stat
            .map_err(|error| Error::io(IoCall::Stat, &path, error))?
            .size;
        let (offset_room, time_room) = capacities(settings.index_bytes);
        let mut indexing = Indexing::new(0, settings.index_interval, offset_room, time_room);
        let room = indexing.room();
        let mut unbounded = indexing.unbounded();
        let mut discarded = NewEntries::default();
        let mut piece = Piece {
            path,
            size,
            batches: Vec::new(),
            offsets: 0,
            entries: NewEntries::default(),
            rebuilt_entries: 0,
            max: indexing.max,
            first_timestamp: None,
        };
        let mut window = Window::new(file, size);
        let (mut position, mut checked) = (0, 0);
        while position < size {
            if position >= checked + CHECK_BYTES {
                check()?;
                checked = position;
            }
            let place = |error: Error| error.at_path(&piece.path).at_position(position);
            let front = window.bytes(position, BATCH_HEADER_V2_BYTES, &piece.path)?;
            let frame = Frame::parse(front).map_err(|error| place(Error::new(error)))?;
            limits.allow_batch(frame.size_bytes).map_err(place)?;
            let batch = window.bytes(position, frame.size_bytes, &piece.path)?;
            let header = BatchHeader::parse(batch).map_err(|error| place(Error::new(error)))?;
            header
                .check_crc(batch)
                .map_err(|error| place(Error::new(error)))?;
            let first = header.base_offset.unwrap_or(header.last_offset);
            let delta = i32::try_from(header.last_offset.saturating_sub(first));
            let (Ok(delta), 2) = (delta, header.magic) else {
                self.refuse("a batch is of magic 0 or 1");
                break;
            };
            if header.producer_id >= 0
                || header.attributes.is_control()
                || header.attributes.is_transactional()
            {
                self.refuse("a batch belongs to a producer");
            }
            if !self.is_begun && first != base.saturating_add(piece.offsets) {
                self.refuse("its offsets have gaps");
            }
            let moved = MovedBatch {
                size_bytes: frame.size_bytes as u32,
                crc: header.crc,
                last_offset_delta: delta,
            };
            piece.offsets = piece.offsets.saturating_add(moved.offsets());
            let indexed = Indexed {
                last_offset: piece.offsets - 1,
                max_timestamp: header.max_timestamp,
                position,
                size_bytes: u64::from(moved.size_bytes),
            };
            if piece.offsets > i64::from(i32::MAX) || position > u64::from(u32::MAX >> 1) {
                self.refuse("a segment is too long");
                break;
            }
            indexing.note(&indexed, &mut piece.entries)?;
            discarded.clear();
            unbounded.note(&indexed, &mut discarded)?;
            piece.rebuilt_entries += discarded.offset.len() / OFFSET_INDEX_ENTRY_BYTES;
            piece.first_timestamp.get_or_insert(header.max_timestamp);
            piece.batches.push(moved);
            position += u64::from(moved.size_bytes);
        }
        indexing.note_time(&mut piece.entries.time)?;
        piece.max = indexing.max;
        if piece.rebuilt_entries > room {
            self.refuse("a segment needs more index entries than there is room for");
        }
        Ok(piece)
    }

    pub(super) fn batches(&self) -> usize {
        self.pieces.iter().map(|piece| piece.batches.len()).sum()
    }

    /// Writes what the batches are, durably, before any of them changes.
    pub(super) fn note(&self, disk: &dyn Disk) -> Result<()> {
        let mut text = format!("{NOTE_VERSION}\n");
        for batch in self.pieces.iter().flat_map(|piece| &piece.batches) {
            let (size, crc, delta) = (batch.size_bytes, batch.crc, batch.last_offset_delta);
            let _ = writeln!(text, "{size} {crc} {delta}");
        }
        let path = self.directory.join(NOTE);
        write_whole(disk, &path, text.as_bytes())
            .map_err(|failed| Error::failed_call(&path, failed))
    }
}

impl Piece {
    /// Gives its batches offsets from `base_offset` on and an epoch, durably. Whatever state an earlier call left them in, the result is
    /// the same.
    ///
    /// The first call changes them in place. A later one rewrites the file: a sync may have failed before, and then the system may never
    /// write these places again.
    pub(super) fn number(
        &self,
        disk: &dyn Disk,
        base_offset: i64,
        epoch: i32,
        is_first: bool,
    ) -> Result<()> {
        if is_first {
            let opened = disk.open(&self.path, Access::Write);
            let file = opened.map_err(|error| Error::io(IoCall::Open, &self.path, error))?;
            return self.write(file.as_ref(), base_offset, epoch, |_, _| Ok(Vec::new()));
        }
        let new = temporary(&self.path);
        let opened = disk.open(&self.path, Access::Read);
        let old = opened.map_err(|error| Error::io(IoCall::Open, &self.path, error))?;
        let mut window = Window::new(old, self.size);
        let opened = disk.open(&new, Access::Replace);
        let file = opened.map_err(|error| Error::io(IoCall::Create, &new, error))?;
        self.write(file.as_ref(), base_offset, epoch, |position, batch| {
            let bytes = window.bytes(position, batch.size_bytes as usize, &self.path)?;
            Ok(bytes.get(NUMBERED_BYTES..).unwrap_or_default().to_vec())
        })?;
        disk.rename(&new, &self.path)
            .map_err(|error| Error::io(IoCall::Rename, &new, error))?;
        let parent = self.path.parent().unwrap_or(&self.path);
        disk.sync_directory(parent)
            .map_err(|error| Error::io(IoCall::SyncDirectory, parent, error))
    }

    /// Writes the front of each batch, and what `rest` returns for it behind, and syncs the file.
    fn write(
        &self,
        file: &dyn DiskFile,
        base_offset: i64,
        epoch: i32,
        mut rest: impl FnMut(u64, &MovedBatch) -> Result<Vec<u8>>,
    ) -> Result<()> {
        let failed = |call| move |error| Error::io(call, &self.path, error);
        let (mut position, mut next) = (0, base_offset);
        for batch in &self.batches {
            // The length between them stays as it is.
            let length = batch.size_bytes.saturating_sub(LOG_OVERHEAD_BYTES as u32);
            let mut front = [0; NUMBERED_BYTES];
            let (of_offset, behind) = front.split_at_mut(8);
            of_offset.copy_from_slice(&next.to_be_bytes());
            let (of_length, of_epoch) = behind.split_at_mut(4);
            of_length.copy_from_slice(&length.to_be_bytes());
            of_epoch.copy_from_slice(&epoch.to_be_bytes());
            let rest = rest(position, batch)?;
            let written = if rest.is_empty() {
                file.write_at(&front, position)
            } else {
                file.write_parts_at(&[&front, &rest], position)
            };
            written.map_err(failed(IoCall::Write))?;
            position += u64::from(batch.size_bytes);
            next = next.saturating_add(batch.offsets());
        }
        file.sync_data().map_err(failed(IoCall::Sync))
    }
}

/// A part of a file in memory, which is read on as it is asked for.
struct Window {
    file: Arc<dyn DiskFile>,
    size: u64,
    buffer: Vec<u8>,
    at: u64,
}

impl Window {
    fn new(file: Arc<dyn DiskFile>, size: u64) -> Self {
        Self {
            file,
            size,
            buffer: Vec::new(),
            at: 0,
        }
    }

    /// The bytes from `position` on: as many as asked for, or fewer where the file ends.
    fn bytes(&mut self, position: u64, count: usize, path: &Path) -> Result<&[u8]> {
        let mut from = position.saturating_sub(self.at) as usize;
        let available = self.buffer.len().saturating_sub(from);
        let wanted = count.min(self.size.saturating_sub(position) as usize);
        if position < self.at || available < wanted {
            let length = wanted.max(SCAN_BYTES);
            let length = length.min(self.size.saturating_sub(position) as usize);
            self.buffer.resize(length, 0);
            let read = self
                .file
                .read_at(&mut self.buffer, position)
                .map_err(|error| Error::io(IoCall::Read, path, error).at_position(position))?;
            self.buffer.truncate(read);
            self.at = position;
            from = 0;
        }
        let end = (from + count).min(self.buffer.len());
        Ok(self.buffer.get(from..end).unwrap_or_default())
    }
}
