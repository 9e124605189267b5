//! Reads a `.log` file batch by batch and checks framing, offset order and checksum, with bounded read-ahead.
//!
//! The walk knows nothing of compression, records or transactions. It ends at the end of the file, at damage in a closed
//! segment (an error), or at a torn tail of the active segment (the end for now).

mod search;

use super::{Check, OpenSegment, Source};
use crate::disk::IoCall;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::LimitName;
use crate::memory;
use offsetlog_format::{BatchHeader, Fault, FormatError, Part, counted};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use search::Passed;

/// Read-ahead of a scan: large enough to hide the call, small enough to stay in the cache.
pub(crate) const SCAN_BYTES: usize = 512 * 1024;
/// Read-ahead of a look-up: the batches of about two index intervals.
pub(crate) const LOOKUP_BYTES: usize = 8 * 1024;
/// Read-ahead where only headers are needed and batches are large.
pub(crate) const HOP_BYTES: usize = 128;

/// An incomplete end of the active segment, left by a crash or by a write in progress. Not an error: readers stop before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The `.log` file.
    pub path: PathBuf,
    /// Where the last complete batch ends.
    pub position: u64,
    /// Number of bytes after that position.
    pub bytes: u64,
    /// Why these bytes are not a batch.
    pub reason: String,
}

impl TornTail {
    /// The reason for a tail that starts with zeros: the file was extended before it was filled.
    pub(crate) const ZEROS: &str = "zero tail";

    pub(crate) fn is_zeros(&self) -> bool {
        self.reason == Self::ZEROS
    }
}

impl fmt::Display for TornTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "torn tail of {} at position {}: {}",
            counted(self.bytes, "byte"),
            self.position,
            self.reason
        )
    }
}

/// The result of one step.
#[derive(Debug)]
pub(crate) enum Step {
    /// A complete batch, checked as requested.
    Batch(BatchHeader),
    /// The end of the segment, and the torn tail if there is one.
    End(Option<TornTail>),
}

/// A cursor over the batches of one segment.
#[derive(Debug)]
pub(crate) struct Walk {
    segment: Arc<OpenSegment>,
    buffer: Vec<u8>,
    /// Position in the file of the buffer's first byte, and the number of valid bytes in the buffer.
    buffer_at: u64,
    filled: usize,
    /// Where the next batch starts.
    position: u64,
    /// Where the batch of the last step starts, and its size.
    batch_at: u64,
    batch_bytes: usize,
    end: u64,
    /// Last offset before the next batch, and before the batch of the last step.
    previous: i64,
    before: i64,
    previous_magic: i8,
    /// How many more bytes searches of this segment may checksum without success.
    search_budget: u64,
    read_ahead: usize,
    /// Skips the bytes of large batches: only headers are needed.
    headers_only: bool,
    /// How often it has read from the file.
    fills: u64,
}

impl Walk {
    /// Starts at `position`, which must be the start of a batch. The walk reuses `buffer`; [`into_buffer`](Self::into_buffer)
    /// returns it.
    pub(crate) fn new(
        segment: Arc<OpenSegment>,
        position: u64,
        read_ahead: usize,
        buffer: Vec<u8>,
    ) -> Self {
        let end = segment.stat.size;
        let previous = segment.base_offset - 1;
        Self {
            segment,
            buffer,
            buffer_at: 0,
            filled: 0,
            position,
            batch_at: position,
            batch_bytes: 0,
            end,
            previous,
            before: previous,
            previous_magic: 2,
            search_budget: end.saturating_mul(search::WORK_PER_BYTE),
            read_ahead,
            headers_only: false,
            fills: 0,
        }
    }

    /// Reads only the headers of large batches.
    pub(crate) fn headers_only(mut self) -> Self {
        self.headers_only = true;
        self
    }

    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// How often the walk has read from its file.
    pub(crate) const fn fills(&self) -> u64 {
        self.fills
    }

    pub(crate) fn segment(&self) -> &Arc<OpenSegment> {
        &self.segment
    }

    /// Where the batch of the last step starts.
    pub(crate) const fn batch_position(&self) -> u64 {
        self.batch_at
    }

    /// Where the next batch starts.
    pub(crate) const fn position(&self) -> u64 {
        self.position
    }

    /// Makes the next read so large, up to the read-ahead of a scan.
    pub(crate) fn read_at_least(&mut self, bytes: usize) {
        self.read_ahead = self.read_ahead.max(bytes.min(SCAN_BYTES));
    }

    pub(crate) fn set_read_ahead(&mut self, bytes: usize) {
        self.read_ahead = bytes;
    }

    /// Steps over the next batch and returns its header. With `verify` it reads the whole batch and compares the checksum.
    /// Without it, it checks only the header, and reads little more where batches are large and the walk is
    /// [`headers_only`](Self::headers_only()).
    #[inline]
    pub(crate) fn step(&mut self, verify: bool) -> Result<Step> {
        self.batch_at = self.position;
        self.batch_bytes = 0;
        // A batch that was passed by its header may be gone since: another process truncated the file under it.
        let left = self.end.saturating_sub(self.position);
        if left == 0 {
            return Ok(Step::End(None));
        }
        let want = (BatchHeader::LONGEST as u64).min(left) as usize;
        let parsed = BatchHeader::parse(self.bytes_at(self.position, want, self.headers_only)?);
        let header = match parsed.and_then(|header| self.check_place(&header).map(|()| header)) {
            Ok(header) => header,
            Err(error) => return self.damaged(error),
        };
        self.check_size(&header)?;
        if verify {
            let whole = self.bytes_at(self.position, header.size_bytes, false)?;
            if let Err(error) = header.check_crc(whole) {
                return self.damaged(error);
            }
        }
        self.pass(&header);
        Ok(Step::Batch(header))
    }

    /// Steps over the batch whose header [`peek`](Self::peek) has just returned.
    pub(crate) fn step_peeked(&mut self, header: BatchHeader) -> Result<Step> {
        self.batch_at = self.position;
        self.check_size(&header)?;
        self.pass(&header);
        Ok(Step::Batch(header))
    }

    /// Steps over the next batch without reading it: the caller knows its header, and that it is whole and has the right checksum. Returns
    /// `false`, and stays, if it is not in place here.
    pub(crate) fn step_over(&mut self, header: &BatchHeader) -> bool {
        if self.check_place(header).is_err() || self.check_size(header).is_err() {
            return false;
        }
        self.batch_at = self.position;
        self.pass(header);
        true
    }

    #[inline]
    fn check_size(&self, header: &BatchHeader) -> Result<()> {
        let limit = self.segment.directory.limits.max_batch_bytes;
        if header.size_bytes as u64 > limit {
            return Err(self.too_large(header.size_bytes, limit));
        }
        Ok(())
    }

    #[inline]
    fn pass(&mut self, header: &BatchHeader) {
        self.batch_bytes = header.size_bytes;
        self.position += header.size_bytes as u64;
        self.before = self.previous;
        self.previous = header.last_offset;
        self.previous_magic = header.magic;
    }

    /// Reads the whole batch of the last step and compares its checksum. If that batch is a torn tail, moves the walk back to
    /// its start and returns the tail.
    #[inline]
    pub(crate) fn verify(&mut self, header: &BatchHeader) -> Result<Option<TornTail>> {
        let whole = self.bytes_at(self.batch_at, header.size_bytes, false)?;
        let Err(error) = header.check_crc(whole) else {
            return Ok(None);
        };
        self.position = self.batch_at;
        self.previous = self.before;
        match self.damaged(error)? {
            Step::End(torn) => Ok(torn),
            Step::Batch(_) => Ok(None),
        }
    }

    /// The bytes of the batch of the last step, which [`batch`](Self::batch) or [`verify`](Self::verify) has already read.
    #[inline]
    pub(crate) fn loaded_batch(&self) -> &[u8] {
        self.loaded(self.batch_at, self.batch_bytes)
    }

    /// Returns the header at the current position without stepping over it, if it belongs to a complete batch in offset order.
    pub(crate) fn peek(&mut self) -> Result<Option<BatchHeader>> {
        let left = self.end.saturating_sub(self.position);
        let want = (BatchHeader::LONGEST as u64).min(left) as usize;
        let parsed = BatchHeader::parse(self.bytes_at(self.position, want, false)?);
        Ok(parsed
            .ok()
            .filter(|header| self.check_place(header).is_ok()))
    }

    /// The lowest offset that a batch at the current position can have.
    pub(crate) const fn next_offset(&self) -> i64 {
        self.previous.saturating_add(1)
    }

    /// The lowest offset that a record of the batch of the last step can have.
    pub(crate) const fn batch_minimum(&self) -> i64 {
        self.before.saturating_add(1)
    }

    /// The bytes of the batch whose header [`peek`](Self::peek) returned.
    pub(crate) fn peeked(&mut self, header: &BatchHeader) -> Result<&[u8]> {
        self.bytes_at(self.position, header.size_bytes, false)
    }

    /// The bytes of the batch of the last step.
    #[inline]
    pub(crate) fn batch(&mut self) -> Result<&[u8]> {
        self.bytes_at(self.batch_at, self.batch_bytes, false)
    }

    /// Checks size and offset order, which neither the header alone nor the checksum covers.
    #[inline]
    fn check_place(&self, header: &BatchHeader) -> Result<(), FormatError> {
        self.check_place_at(header, self.position, self.previous)
    }

    #[inline]
    fn check_place_at(
        &self,
        header: &BatchHeader,
        position: u64,
        previous: i64,
    ) -> Result<(), FormatError> {
        let left = self.end.saturating_sub(position);
        if header.size_bytes as u64 > left {
            return Err(FormatError::new(
                Part::BatchHeader,
                0,
                Fault::Truncated {
                    needed: header.size_bytes,
                    available: left as usize,
                },
            ));
        }
        let first = header.base_offset.unwrap_or(header.last_offset);
        let minimum = previous.saturating_add(1);
        let maximum = self
            .segment
            .next_base_offset
            .map_or(i64::MAX, |next| next - 1);
        let found = if first < minimum {
            first
        } else {
            header.last_offset
        };
        if found < minimum || found > maximum {
            return Err(FormatError::new(
                Part::BatchHeader,
                0,
                Fault::OffsetOrder {
                    found,
                    minimum,
                    maximum,
                },
            ));
        }
        Ok(())
    }

    /// Returns `need` bytes at `position`, or fewer at the end of the file.
    #[inline]
    fn bytes_at(&mut self, position: u64, need: usize, hop: bool) -> Result<&[u8]> {
        let within = position.wrapping_sub(self.buffer_at);
        if !self.segment.is_mapped()
            && within
                .checked_add(need as u64)
                .is_none_or(|end| end > self.filled as u64)
        {
            self.fill(position, need, hop)?;
        }
        Ok(self.loaded(position, need))
    }

    /// Bytes that an earlier read already loaded.
    #[inline]
    fn loaded(&self, position: u64, need: usize) -> &[u8] {
        match &self.segment.source {
            Source::Mapped(map) => {
                let end = position.saturating_add(need as u64).min(self.end) as usize;
                map.bytes().get(position as usize..end)
            }
            Source::File(_) => {
                let start = position.wrapping_sub(self.buffer_at) as usize;
                let end = start.saturating_add(need).min(self.filled);
                self.buffer.get(start..end)
            }
        }
        .unwrap_or(&[])
    }

    #[cold]
    fn fill(&mut self, position: u64, need: usize, hop: bool) -> Result<()> {
        // After a large batch, a read of headers does not need the bytes behind the next header.
        let hop = hop && self.batch_size_before(position) > HOP_BYTES as u64 * 64;
        let ahead = if hop { HOP_BYTES } else { self.read_ahead };
        if self.read_ahead < LOOKUP_BYTES * 8 {
            // A look-up that keeps reading turns into a scan.
            self.read_ahead *= 2;
        }
        let wanted = (ahead.max(need) as u64).min(self.end.saturating_sub(position)) as usize;
        let start = position.wrapping_sub(self.buffer_at);
        let kept = if start < self.filled as u64 {
            self.buffer.copy_within(start as usize..self.filled, 0);
            self.filled - start as usize
        } else {
            0
        };
        self.buffer_at = position;
        self.fills += 1;
        if self.buffer.len() < wanted {
            let more = wanted - self.buffer.len();
            memory::reserve(&mut self.buffer, more)
                .map_err(|error| error.at_path(&self.segment.path).at_position(position))?;
            self.buffer.resize(wanted, 0);
        }
        let Source::File(file) = &self.segment.source else {
            return Ok(());
        };
        let room = self.buffer.get_mut(kept..wanted).unwrap_or_default();
        let read = file
            .read_at(room, position + kept as u64)
            .map_err(|error| {
                Error::io(IoCall::Read, &self.segment.path, error).at_position(position)
            })?;
        self.filled = kept + read;
        if self.filled < need {
            // The file was truncated after it was opened; its new end is the end for now.
            self.end = position + self.filled as u64;
        }
        Ok(())
    }

    #[cold]
    fn too_large(&self, size_bytes: usize, limit: u64) -> Error {
        self.place(Error::new(ErrorKind::Limit {
            name: LimitName::MaxBatchBytes,
            limit,
            seen: size_bytes as u64,
        }))
    }

    fn batch_size_before(&self, position: u64) -> u64 {
        position.saturating_sub(self.buffer_at)
    }

    /// Returns an error for damage, or the torn tail if this is the active segment and no valid batch follows.
    #[cold]
    fn damaged(&mut self, error: FormatError) -> Result<Step> {
        let unfinished = !matches!(
            error.fault,
            Fault::OffsetOrder { .. } | Fault::OffsetOverflow { .. }
        );
        if self.segment.is_active()
            && unfinished
            && !self.is_whole_but_for_magic(&error)?
            && !self.valid_batch_follows()?
        {
            // A single zeroed length field does not make a zero tail.
            let front = self.bytes_at(self.position, BatchHeader::LONGEST, false)?;
            let is_zero = matches!(error.fault, Fault::Length { found: 0, .. })
                && front.iter().all(|&byte| byte == 0);
            let reason = if is_zero {
                TornTail::ZEROS.to_owned()
            } else {
                error.to_string()
            };
            return Ok(Step::End(Some(TornTail {
                path: self.segment.path.clone(),
                position: self.position,
                bytes: self.end.saturating_sub(self.position),
                reason,
            })));
        }
        let offset = self
            .bytes_at(self.position, 8, false)?
            .first_chunk::<8>()
            .map(|bytes| i64::from_be_bytes(*bytes));
        let error = self.place(Error::new(error));
        Err(match offset {
            Some(offset) => error.at_offset(offset),
            None => error,
        })
    }

    /// Adds the file and the position of the last step's batch to an error.
    pub(crate) fn place(&self, error: Error) -> Error {
        error.at_path(&self.segment.path).at_position(self.batch_at)
    }
}

/// Walks the headers from `position` to the end of the segment and passes each to `visit`. Returns the torn tail if there is
/// one.
pub(crate) fn hop_headers(
    segment: &Arc<OpenSegment>,
    position: u64,
    check: &Check<'_>,
    visit: impl FnMut(&BatchHeader, &mut Walk) -> Result<()>,
) -> Result<Option<TornTail>> {
    hop_headers_from(segment, (position, i64::MIN), check, visit)
}

/// The same, but skips damage that lies wholly below the offset `from`.
pub(crate) fn hop_headers_from(
    segment: &Arc<OpenSegment>,
    (position, from): (u64, i64),
    check: &Check<'_>,
    mut visit: impl FnMut(&BatchHeader, &mut Walk) -> Result<()>,
) -> Result<Option<TornTail>> {
    let mut walk = Walk::new(Arc::clone(segment), position, 64 * 1024, Vec::new()).headers_only();
    let mut count = 0_u32;
    loop {
        match walk.step(false) {
            Ok(Step::Batch(header)) => visit(&header, &mut walk)?,
            Ok(Step::End(torn)) => return Ok(torn),
            Err(error) if error.is_corruption() && walk.next_offset() < from => {
                let passed = walk.pass_damage()?;
                if passed.next.is_none_or(|next| next > from) {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        count = count.wrapping_add(1);
        if count.is_multiple_of(4096) {
            check()?;
        }
    }
}
