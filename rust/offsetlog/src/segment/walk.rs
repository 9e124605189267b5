//! Walking a `.log` file batch by batch: framing, order and checksum, with bounded read-ahead.
//!
//! What the walk does not know: compression, records, transactions. What ends it: the end of the file; damage in a closed
//! segment, which is an error; and a torn tail of the active segment, which is the end for now.

mod search;

use super::{Check, OpenSegment, Source};
use crate::disk::IoCall;
use crate::error::{Error, ErrorKind, Result};
use crate::memory;
use offsetlog_format::{BatchHeader, Fault, FormatError, Part};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use search::Passed;

/// Read-ahead of a scan: large enough to hide the call, small enough to stay in the cache.
pub(crate) const SCAN_BYTES: usize = 512 * 1024;
/// Read-ahead of a look-up: a few batches of one index interval.
pub(crate) const LOOKUP_BYTES: usize = 8 * 1024;
/// Read-ahead where only headers are wanted and batches are large.
pub(crate) const HOP_BYTES: usize = 128;

/// An unfinished end of the active segment: what a crash or a write in progress leaves. Not an error; readers stop before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The `.log` file.
    pub path: PathBuf,
    /// Where the last whole batch ends.
    pub position: u64,
    /// Bytes behind it.
    pub bytes: u64,
    /// Why they are not a batch.
    pub reason: String,
}

impl TornTail {
    /// The reason of an end whose first bytes are zeros, as a file has it that was made longer before it was filled.
    pub(crate) const ZEROS: &str = "zero tail";

    pub(crate) fn is_zeros(&self) -> bool {
        self.reason == Self::ZEROS
    }
}

impl fmt::Display for TornTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "torn tail of {} bytes at position {}: {}",
            self.bytes, self.position, self.reason
        )
    }
}

/// What a step met.
#[derive(Debug)]
pub(crate) enum Step {
    /// A whole batch, checked as asked.
    Batch(BatchHeader),
    /// The end of the segment, with what is behind it.
    End(Option<TornTail>),
}

/// A place in a segment from which batches are read one after another.
#[derive(Debug)]
pub(crate) struct Walk {
    segment: Arc<OpenSegment>,
    buffer: Vec<u8>,
    /// Position in the file of the buffer's first byte, and how many bytes of it count.
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
    /// Bytes that searches of this segment may still checksum in vain.
    search_budget: u64,
    read_ahead: usize,
    /// Only headers are wanted: the bytes of large batches are not read.
    headers_only: bool,
}

impl Walk {
    /// Starts at `position`, which must be where a batch starts. `buffer` is reused; [`into_buffer`](Self::into_buffer) gives
    /// it back.
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
        }
    }

    /// Reads headers only, where batches are large.
    pub(crate) fn headers_only(mut self) -> Self {
        self.headers_only = true;
        self
    }

    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.buffer
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

    pub(crate) fn set_read_ahead(&mut self, bytes: usize) {
        self.read_ahead = bytes;
    }

    /// Steps over the next batch and returns its header. With `verify` the whole batch is read and its checksum compared;
    /// without it only the header, and only that much is read where batches are large.
    #[inline]
    pub(crate) fn step(&mut self, verify: bool) -> Result<Step> {
        self.batch_at = self.position;
        self.batch_bytes = 0;
        let left = self.end - self.position;
        if left == 0 {
            return Ok(Step::End(None));
        }
        let want = (BatchHeader::LONGEST as u64).min(left) as usize;
        let parsed = BatchHeader::parse(self.bytes_at(self.position, want, self.headers_only)?);
        let header = match parsed.and_then(|header| self.check_place(&header).map(|()| header)) {
            Ok(header) => header,
            Err(error) => return self.damaged(error),
        };
        let limit = self.segment.directory.limits.max_batch_bytes;
        if header.size_bytes as u64 > limit {
            return Err(self.too_large(header.size_bytes, limit));
        }
        if verify {
            let whole = self.bytes_at(self.position, header.size_bytes, false)?;
            if let Err(error) = header.check_crc(whole) {
                return self.damaged(error);
            }
        }
        self.pass(&header);
        Ok(Step::Batch(header))
    }

    #[inline]
    fn pass(&mut self, header: &BatchHeader) {
        self.batch_bytes = header.size_bytes;
        self.position += header.size_bytes as u64;
        self.before = self.previous;
        self.previous = header.last_offset;
        self.previous_magic = header.magic;
    }

    /// Reads the whole batch of the last step and compares its checksum; a torn tail puts the walk at the end.
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

    /// The bytes of the batch of the last step, which [`batch`](Self::batch) or [`verify`](Self::verify) read before.
    #[inline]
    pub(crate) fn loaded_batch(&self) -> &[u8] {
        self.loaded(self.batch_at, self.batch_bytes)
    }

    /// The header at the present place if it is that of a whole batch which may stand there, without stepping over it.
    pub(crate) fn peek(&mut self) -> Result<Option<BatchHeader>> {
        let left = self.end - self.position;
        let want = (BatchHeader::LONGEST as u64).min(left) as usize;
        let parsed = BatchHeader::parse(self.bytes_at(self.position, want, false)?);
        Ok(parsed
            .ok()
            .filter(|header| self.check_place(header).is_ok()))
    }

    /// The lowest offset that a batch at the present place can have.
    pub(crate) const fn next_offset(&self) -> i64 {
        self.previous.saturating_add(1)
    }

    /// The lowest offset that a record of the batch of the last step can have.
    pub(crate) const fn batch_minimum(&self) -> i64 {
        self.before.saturating_add(1)
    }

    /// The bytes of a batch that [`peek`](Self::peek) saw.
    pub(crate) fn peeked(&mut self, header: &BatchHeader) -> Result<&[u8]> {
        self.bytes_at(self.position, header.size_bytes, false)
    }

    /// The bytes of the batch of the last step.
    #[inline]
    pub(crate) fn batch(&mut self) -> Result<&[u8]> {
        self.bytes_at(self.batch_at, self.batch_bytes, false)
    }

    /// Size and order: what neither the header alone nor the checksum can tell.
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
        let left = self.end - position;
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

    /// Bytes at `position`: at least `need` of them where the file has them.
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

    /// Bytes that were read before.
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
        // Where headers are hopped over and the last batch was large, the bytes behind the next header are not wanted.
        let hop = hop && self.batch_size_before(position) > HOP_BYTES as u64 * 64;
        let ahead = if hop { HOP_BYTES } else { self.read_ahead };
        if self.read_ahead < LOOKUP_BYTES * 8 {
            // A look-up that goes on is becoming a scan.
            self.read_ahead *= 2;
        }
        let wanted = (ahead.max(need) as u64).min(self.end - position) as usize;
        let start = position.wrapping_sub(self.buffer_at);
        let kept = if start < self.filled as u64 {
            self.buffer.copy_within(start as usize..self.filled, 0);
            self.filled - start as usize
        } else {
            0
        };
        self.buffer_at = position;
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
            // The file was cut since it was opened; what is left is the end for now.
            self.end = position + self.filled as u64;
        }
        Ok(())
    }

    #[cold]
    fn too_large(&self, size_bytes: usize, limit: u64) -> Error {
        self.place(Error::new(ErrorKind::Limit {
            name: "max_batch_bytes",
            limit,
            seen: size_bytes as u64,
        }))
    }

    fn batch_size_before(&self, position: u64) -> u64 {
        position.saturating_sub(self.buffer_at)
    }

    /// Damage, or the torn tail of the active segment if no valid batch follows.
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
            // One zero where a length stood makes no zeros of the rest.
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
                bytes: self.end - self.position,
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

    /// Adds the file and the position of the present batch to an error.
    pub(crate) fn place(&self, error: Error) -> Error {
        error.at_path(&self.segment.path).at_position(self.batch_at)
    }
}

/// Walks headers from `position` to the end of the segment and gives each to `visit` with its position.
pub(crate) fn hop_headers(
    segment: &Arc<OpenSegment>,
    position: u64,
    check: &Check<'_>,
    visit: impl FnMut(&BatchHeader, &mut Walk) -> Result<()>,
) -> Result<Option<TornTail>> {
    hop_headers_from(segment, (position, i64::MIN), check, visit)
}

/// The same, where damage that lies wholly below an offset is passed over.
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
