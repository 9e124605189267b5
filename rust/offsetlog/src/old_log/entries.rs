//! Reads the entries of one `.kafka` file in order, checks framing and checksum, with bounded read-ahead.

use super::{OldLog, OldSegment};
use crate::disk::{Access, DiskFile, IoCall};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::LimitName;
use crate::memory;
use crate::segment::walk::TornTail;
use offsetlog_format::old_message::{
    OLD_HEADER_V0_BYTES, OLD_HEADER_V1_BYTES, OLD_LENGTH_BYTES, is_whole_old_entry, old_entry_size,
};
use offsetlog_format::{Fault, FormatError, OldMessage, Part, counted};
use std::sync::Arc;

/// Read-ahead of a scan.
const READ_BYTES: usize = 512 * 1024;
/// Maximum number of bytes to checksum in the search for a valid entry after a bad one. Beyond that the search gives up and
/// reports damage.
const SEARCH_BYTES: u64 = 256 << 20;

/// Entries whose lengths are looked at between two checks for interruption.
const CHECK_ENTRIES: u64 = 4096;
/// A disk writes a sector wholly or not at all.
const SECTOR_BYTES: u64 = 512;
/// This many entries without payload are no chance.
const IN_A_ROW: usize = 3;

/// A cursor over the entries of one file.
#[derive(Debug)]
pub(super) struct Entries {
    pub(super) segment: OldSegment,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    /// Position in the file of the buffer's first byte.
    buffer_at: u64,
    /// Where the next entry starts in the file.
    position: u64,
    limit: u64,
}

/// Position of the last step's entry in the file, and its size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) position: u64,
    pub(super) size_bytes: usize,
}

/// The result of a step.
pub(super) enum Met {
    Entry(Found),
    End(Option<TornTail>),
}

impl Entries {
    /// Opens a file at `position`, to which the entries lead from `known` on, where one begins.
    ///
    /// # Errors
    /// `Argument` if no entry begins there; corruption on the way; `Io`.
    pub(super) fn open(
        log: &OldLog,
        segment: &OldSegment,
        (known, position): (u64, u64),
    ) -> Result<Self> {
        let disk = &log.options.disk;
        let file = disk
            .open(&segment.path, Access::Read)
            .map_err(|error| Error::io(IoCall::Open, &segment.path, error))?;
        let mut entries = Self {
            segment: segment.clone(),
            file,
            buffer: Vec::new(),
            buffer_at: position,
            position,
            limit: log.options.limits.max_batch_bytes,
        };
        entries.go_to(log, known, position)?;
        Ok(entries)
    }

    /// The entry of the last step.
    pub(super) fn entry(&self, found: Found) -> Result<OldMessage<'_>> {
        OldMessage::parse(self.loaded(found.position, found.size_bytes))
            .map_err(|error| self.place(Error::new(error), found.position))
    }

    /// Steps over the next entry and verifies its checksum.
    pub(super) fn step(&mut self) -> Result<Met> {
        let at = self.position;
        if at >= self.segment.size_bytes {
            return Ok(Met::End(None));
        }
        match self.whole_at(at)? {
            Ok(size_bytes) => {
                self.position = at + size_bytes as u64;
                Ok(Met::Entry(Found {
                    position: at,
                    size_bytes,
                }))
            }
            Err(error) => self.damaged(error),
        }
    }

    /// Size of the entry at `at` in bytes, if it is complete and valid.
    fn whole_at(&mut self, at: u64) -> Result<Result<usize, FormatError>> {
        let left = self.segment.size_bytes - at;
        let size_bytes = match old_entry_size(self.bytes(at, OLD_LENGTH_BYTES)?) {
            Ok(size_bytes) => size_bytes,
            Err(error) => return Ok(Err(error)),
        };
        if size_bytes as u64 > left {
            return Ok(Err(cut_short(size_bytes, left)));
        }
        if size_bytes as u64 > self.limit {
            let error = Error::new(ErrorKind::Limit {
                name: LimitName::MaxBatchBytes,
                limit: self.limit,
                seen: size_bytes as u64,
            });
            return Err(self.place(error, at));
        }
        let checked = OldMessage::parse(self.bytes(at, size_bytes)?)
            .and_then(|message| message.check_crc().map(|()| size_bytes));
        Ok(checked)
    }

    /// Returns an error for damage, or the torn tail if this is the last file, no valid entry follows, and an interrupted write can have
    /// left it: an entry that is cut short, or one whose bytes are zeros from some sector to the end of the file.
    #[cold]
    fn damaged(&mut self, error: FormatError) -> Result<Met> {
        let at = self.position;
        let is_written = !self.segment.is_last
            || (matches!(error.fault, Fault::Checksum { .. }) && !self.ends_in_zeros(at)?)
            || (matches!(error.fault, Fault::Version { .. } | Fault::Codec { .. })
                && self.is_whole(at)?)
            || self.whole_entry_follows()?;
        if is_written {
            return Err(self.place(Error::new(error), at));
        }
        let is_zero = matches!(error.fault, Fault::Length { found: 0, .. });
        Ok(Met::End(Some(TornTail {
            path: self.segment.path.clone(),
            position: at,
            bytes: self.segment.size_bytes - at,
            reason: if is_zero {
                TornTail::ZEROS.to_owned()
            } else {
                error.to_string()
            },
        })))
    }

    fn no_entry(&self, position: u64) -> Error {
        let start = self.segment.start.saturating_add_unsigned(position);
        Error::argument(
            "start",
            format!("{start} found, the position of an entry expected: where the one before ends"),
        )
        .at_path(&self.segment.path)
    }

    /// Goes to `position`, where an entry begins if the lengths of those before it, from `known` on, lead there. Nothing else tells: a
    /// payload may hold entries too.
    fn go_to(&mut self, log: &OldLog, known: u64, position: u64) -> Result<()> {
        self.position = known;
        let mut passed = 0_u64;
        while self.position < position {
            let at = self.position;
            passed += 1;
            if passed.is_multiple_of(CHECK_ENTRIES) {
                log.check()?;
            }
            let left = self.segment.size_bytes - at;
            let bad = match old_entry_size(self.bytes(at, OLD_LENGTH_BYTES)?) {
                Ok(size_bytes) if size_bytes as u64 <= left => {
                    self.position = at + size_bytes as u64;
                    continue;
                }
                Ok(size_bytes) => cut_short(size_bytes, left),
                Err(error) => error,
            };
            // Within an unfinished end no entry begins. Behind damage the lengths tell nothing, and whole entries in a row do.
            return match self.damaged(bad) {
                Ok(_) => Err(self.no_entry(position)),
                Err(_) if self.are_whole(position)? => {
                    self.position = position;
                    Ok(())
                }
                Err(error) => Err(error),
            };
        }
        if self.position == position {
            Ok(())
        } else {
            Err(self.no_entry(position))
        }
    }

    /// Whether several valid entries in a row begin at `at`, or all are valid from there to the end of the file.
    fn are_whole(&mut self, mut at: u64) -> Result<bool> {
        for _ in 0..IN_A_ROW {
            if at >= self.segment.size_bytes {
                break;
            }
            match self.whole_at(at)? {
                Ok(size_bytes) => at += size_bytes as u64,
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    fn is_whole(&mut self, at: u64) -> Result<bool> {
        let left = self.segment.size_bytes - at;
        let size_bytes = old_entry_size(self.bytes(at, OLD_LENGTH_BYTES)?);
        match size_bytes {
            Ok(size_bytes) if size_bytes as u64 <= left.min(self.limit) => {
                Ok(is_whole_old_entry(self.bytes(at, size_bytes)?))
            }
            _ => Ok(false),
        }
    }

    /// Whether bytes of the entry at `at`, whose length is right, are zeros from the start of a sector on, and so is all behind it. After a
    /// loss of power the file may have its new size, and only some of the sectors that were written.
    fn ends_in_zeros(&mut self, at: u64) -> Result<bool> {
        let end = self.segment.size_bytes;
        let Ok(size_bytes) = old_entry_size(self.bytes(at, OLD_LENGTH_BYTES)?) else {
            return Ok(false);
        };
        let (mut zeros_from, mut position) = (at, at);
        while position < end {
            let window = (READ_BYTES as u64).min(end - position) as usize;
            let bytes = self.bytes(position, window)?;
            if let Some(last) = bytes.iter().rposition(|&byte| byte != 0) {
                zeros_from = position + last as u64 + 1;
            }
            position += window as u64;
        }
        Ok(zeros_from.next_multiple_of(SECTOR_BYTES) < at + size_bytes as u64)
    }

    /// Whether a valid entry starts anywhere after the current position; then the bytes here are damage in the middle. Also
    /// returns `true` if the search would cost too much: an error loses no data.
    fn whole_entry_follows(&mut self) -> Result<bool> {
        let mut spent = 0;
        let end = self.segment.size_bytes;
        let mut at = self.position + 1;
        while at + (OLD_HEADER_V0_BYTES as u64) <= end {
            let window = (READ_BYTES as u64).min(end - at) as usize;
            let bytes = self.bytes(at, window)?;
            // The magic follows the length.
            let candidates: Vec<(u64, u64)> = bytes
                .windows(OLD_LENGTH_BYTES + 1)
                .enumerate()
                .filter(|(_, front)| matches!(front.last(), Some(0 | 1)))
                .filter_map(|(slot, front)| {
                    let size = old_entry_size(front).ok()? as u64;
                    let place = at + slot as u64;
                    (size <= end - place).then_some((place, size))
                })
                .collect();
            let seen = bytes.len();
            for (place, size) in candidates {
                spent += size;
                if spent > SEARCH_BYTES || self.is_whole(place)? || self.are_empty(place)? {
                    return Ok(true);
                }
            }
            if seen <= OLD_LENGTH_BYTES {
                break;
            }
            at += (seen - OLD_LENGTH_BYTES) as u64;
        }
        Ok(false)
    }

    /// Whether entries without payload begin at `at`. The checksum of nothing is 0, so a few bytes of a payload may look like one: there
    /// must be several in a row, or the file must end behind them.
    fn are_empty(&mut self, mut at: u64) -> Result<bool> {
        let end = self.segment.size_bytes;
        for _ in 0..IN_A_ROW {
            let Ok(size_bytes) = old_entry_size(self.bytes(at, OLD_LENGTH_BYTES)?) else {
                return Ok(false);
            };
            if size_bytes > OLD_HEADER_V1_BYTES || size_bytes as u64 > end - at {
                return Ok(false);
            }
            let message = OldMessage::parse(self.bytes(at, size_bytes)?);
            let is_empty = message
                .is_ok_and(|message| message.payload.is_empty() && message.check_crc().is_ok());
            if !is_empty {
                return Ok(false);
            }
            at += size_bytes as u64;
            if at == end {
                break;
            }
        }
        Ok(true)
    }

    /// Returns `need` bytes at `position`, or fewer at the end of the file.
    fn bytes(&mut self, position: u64, need: usize) -> Result<&[u8]> {
        let within = position.checked_sub(self.buffer_at);
        let is_loaded = within.is_some_and(|start| start + need as u64 <= self.buffer.len() as u64);
        if !is_loaded {
            self.fill(position, need)?;
        }
        Ok(self.loaded(position, need))
    }

    fn loaded(&self, position: u64, need: usize) -> &[u8] {
        let start = position.wrapping_sub(self.buffer_at);
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        let rest = self.buffer.get(start..).unwrap_or(&[]);
        rest.get(..need).unwrap_or(rest)
    }

    fn fill(&mut self, position: u64, need: usize) -> Result<()> {
        let left = self.segment.size_bytes.saturating_sub(position);
        let wanted = (READ_BYTES.max(need) as u64).min(left) as usize;
        self.buffer.clear();
        self.buffer_at = position;
        memory::reserve(&mut self.buffer, wanted)
            .map_err(|error| error.at_path(&self.segment.path))?;
        self.buffer.resize(wanted, 0);
        let read = self
            .file
            .read_at(&mut self.buffer, position)
            .map_err(|error| {
                Error::io(IoCall::Read, &self.segment.path, error).at_position(position)
            })?;
        self.buffer.truncate(read);
        if read < wanted {
            let reason = format!(
                "{} expected, as when the log was opened, and it ends at {} now: it was truncated meanwhile; open it again",
                counted(self.segment.size_bytes, "byte"),
                position + read as u64
            );
            return Err(Error::log_dir(&self.segment.path, reason));
        }
        Ok(())
    }

    /// Adds to an error the file, the position in it and the position in the partition.
    pub(super) fn place(&self, error: Error, position: u64) -> Error {
        let offset = self.segment.start.saturating_add_unsigned(position);
        let error = error.at_path(&self.segment.path).at_position(position);
        if matches!(error.kind(), ErrorKind::Interrupted) {
            return error;
        }
        error.at_offset(offset)
    }
}

fn cut_short(size_bytes: usize, left: u64) -> FormatError {
    FormatError::new(
        Part::OldMessage,
        0,
        Fault::Truncated {
            needed: size_bytes,
            available: left as usize,
        },
    )
}
