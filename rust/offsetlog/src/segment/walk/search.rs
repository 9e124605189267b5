//! Finds the next valid batch after damaged bytes.
//!
//! A record's value can hold any bytes, including a complete batch, and such a batch must not be taken for one of the log. So
//! the length that the damaged batch itself states is tried first. Only if that leads nowhere are the bytes searched, and a
//! batch found there counts only if a fitting batch, zeros or the end follows it directly.

use super::{SCAN_BYTES, Walk};
use crate::error::Result;
use crate::memory;
use offsetlog_format::batch::{FRAME_BYTES, LOG_OVERHEAD_BYTES};
use offsetlog_format::{BatchHeader, Fault, FormatError, Frame};

/// After this many bytes checksummed without success per byte of the segment, a search gives up. Hostile bytes can hold a
/// header at every twentieth byte, each of which claims all bytes that follow.
pub(super) const WORK_PER_BYTE: u64 = 8;
const LENGTH_AT: usize = 8;
const MAGIC_AT: usize = 16;

/// The bytes that a walk skipped as damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    /// Where the skipped bytes begin, and how many there are.
    pub(crate) position: u64,
    pub(crate) bytes: u64,
    /// First offset of the batch after them, if it is in order. At the end of a closed segment, the base offset of the next
    /// segment.
    pub(crate) next: Option<i64>,
    /// The search stopped before the end of the bytes.
    pub(crate) gave_up: bool,
}

/// The result of a search.
enum Search {
    At(u64),
    Nothing,
    GaveUp,
}

impl Walk {
    /// Moves past the damage that the last step met. Continues where the damaged batch's own length leads, if the log can
    /// continue there; otherwise at the next valid batch whose offsets fit; otherwise at the end.
    pub(crate) fn pass_damage(&mut self) -> Result<Passed> {
        let position = self.position;
        let mut gave_up = false;
        let behind = match self.own_end()? {
            Some(behind) => behind,
            None => match self.search(true, self.end)? {
                Search::At(found) => found,
                Search::Nothing => self.end,
                Search::GaveUp => {
                    gave_up = true;
                    self.end
                }
            },
        };
        self.position = behind;
        self.batch_at = behind;
        self.batch_bytes = 0;
        let next = if behind == self.end {
            self.segment.next_base_offset
        } else {
            match self.peek()? {
                Some(header) if header.base_offset.is_some() => header.base_offset,
                Some(header) => super::super::find::first_offset_of_set(self, &header),
                None => None,
            }
        };
        Ok(Passed {
            position,
            bytes: behind - position,
            next,
            gave_up,
        })
    }

    /// Where the current batch ends according to its own length field, if the log can continue there.
    fn own_end(&mut self) -> Result<Option<u64>> {
        let front = self.bytes_at(self.position, FRAME_BYTES, false)?;
        let length = front
            .get(LENGTH_AT..)
            .and_then(|bytes| bytes.first_chunk::<4>())
            .map_or(-1, |bytes| i32::from_be_bytes(*bytes));
        let Ok(length) = u64::try_from(length) else {
            return Ok(None);
        };
        let behind = self.position + LOG_OVERHEAD_BYTES as u64 + length;
        if length < (FRAME_BYTES - LOG_OVERHEAD_BYTES) as u64 || behind > self.end {
            return Ok(None);
        }
        Ok(self.goes_on(behind, self.previous)?.then_some(behind))
    }

    /// Whether the log can continue at `position`: the end, zeros that were not written yet, or a batch that fits or has a
    /// valid checksum.
    fn goes_on(&mut self, position: u64, previous: i64) -> Result<bool> {
        if position == self.end {
            return Ok(true);
        }
        let front = self.bytes_at(position, BatchHeader::LONGEST, false)?;
        if front.len() >= FRAME_BYTES && front.iter().all(|&byte| byte == 0) {
            return Ok(true);
        }
        let Ok(header) = BatchHeader::parse(front) else {
            return Ok(false);
        };
        // No broker appends offsets that an index entry of the segment cannot hold, so such a number is not an offset.
        if !self.is_near(header.last_offset) {
            return Ok(false);
        }
        if self.check_place_at(&header, position, previous).is_ok() {
            return Ok(true);
        }
        if !self.may_checksum(&header, position) {
            return Ok(false);
        }
        self.has_right_checksum(&header, position)
    }

    /// Whether only the magic byte is wrong, which the checksum of magic 2 does not cover. Such a batch was written completely.
    pub(super) fn is_whole_but_for_magic(&mut self, error: &FormatError) -> Result<bool> {
        if !matches!(error.fault, Fault::UnknownMagic { .. }) {
            return Ok(false);
        }
        self.is_whole_with(|front| {
            if let Some(magic) = front.get_mut(MAGIC_AT) {
                *magic = 2;
            }
        })
    }

    /// Whether a complete batch of magic 2 with a valid checksum starts here. Its offset is ignored: no checksum covers it.
    pub(crate) fn stands_on_whole_batch(&mut self) -> Result<bool> {
        self.is_whole_with(|front| {
            if let Some(offset) = front.get_mut(..LENGTH_AT) {
                offset.fill(0);
            }
        })
    }

    /// Whether a complete batch of magic 2 with a valid checksum starts here, after this change of bytes that the checksum does not cover.
    fn is_whole_with(&mut self, change: impl FnOnce(&mut [u8])) -> Result<bool> {
        let front = self.bytes_at(self.position, BatchHeader::LONGEST, false)?;
        let mut front = memory::copy(front)?;
        change(&mut front);
        let Ok(header) = BatchHeader::parse(&front) else {
            return Ok(false);
        };
        let is_here = header.size_bytes as u64 <= self.end.saturating_sub(self.position);
        Ok(header.magic == 2 && is_here && self.has_right_checksum(&header, self.position)?)
    }

    /// Whether a batch with a valid checksum and a higher offset starts anywhere after the current position. If so, the current
    /// bytes are damage in the middle of the log and not a torn tail.
    pub(crate) fn valid_batch_follows(&mut self) -> Result<bool> {
        // If the search gives up, there are more bytes than a write in progress leaves.
        Ok(!matches!(self.search(false, self.end)?, Search::Nothing))
    }

    /// Moves to the next position before `until` where a batch with a valid checksum begins, and returns whether there is one. That is a
    /// guess for a walk that begins anywhere: a value can hold a batch too. Bytes that cannot be read hold none.
    pub(crate) fn seek_likely_batch(&mut self, until: u64) -> bool {
        self.search_budget = until.saturating_sub(self.position);
        match self.is_valid_batch(self.position, false) {
            Ok(Some(true)) => true,
            Ok(_) => match self.search(false, until) {
                Ok(Search::At(found)) => {
                    self.position = found;
                    true
                }
                _ => false,
            },
            Err(_) => false,
        }
    }

    /// Searches for the next batch after the current position and before `until` that has a valid checksum and a higher offset than
    /// those before. With `in_place` its neighbours must agree too: its offsets fit into the segment, and the log continues after it.
    fn search(&mut self, in_place: bool, until: u64) -> Result<Search> {
        let magic = self.previous_magic.max(0) as u8;
        let mut position = self.position + 1;
        while position < until && position + FRAME_BYTES as u64 <= self.end {
            let length = self.bytes_at(position, SCAN_BYTES, false)?.len();
            let bytes = self.loaded(position, length);
            let magics = bytes.get(MAGIC_AT..).unwrap_or(&[]);
            let candidates: Vec<usize> = if in_place {
                memchr::memchr3_iter(0, 1, 2, magics)
                    .filter(|&at| self.is_plausible(position, at))
                    .collect()
            } else {
                memchr::memchr_iter(magic, magics)
                    .filter(|&at| self.is_plausible(position, at))
                    .collect()
            };
            for at in candidates {
                let candidate = position + at as u64;
                if candidate >= until {
                    return Ok(Search::Nothing);
                }
                match self.is_valid_batch(candidate, in_place)? {
                    Some(true) => return Ok(Search::At(candidate)),
                    Some(false) => {}
                    None => return Ok(Search::GaveUp),
                }
            }
            if length <= FRAME_BYTES {
                break;
            }
            position += (length - FRAME_BYTES + 1) as u64;
        }
        Ok(Search::Nothing)
    }

    /// Whether an index entry of this segment can hold the offset.
    fn is_near(&self, offset: i64) -> bool {
        offset.saturating_sub(self.segment.base_offset) <= i64::from(i32::MAX)
    }

    fn is_plausible(&self, window: u64, at: usize) -> bool {
        let position = window + at as u64;
        Frame::parse(self.loaded(position, FRAME_BYTES)).is_ok_and(|frame| {
            frame.offset > self.previous
                && self.is_near(frame.offset)
                && frame.size_bytes as u64 <= self.end - position
        })
    }

    /// Whether a valid batch starts at `position`; `None` if the checksum budget is used up.
    fn is_valid_batch(&mut self, position: u64, in_place: bool) -> Result<Option<bool>> {
        let front = self.bytes_at(position, BatchHeader::LONGEST, false)?;
        let Ok(header) = BatchHeader::parse(front) else {
            return Ok(Some(false));
        };
        if in_place
            && self
                .check_place_at(&header, position, self.previous)
                .is_err()
        {
            return Ok(Some(false));
        }
        if !self.may_checksum(&header, position) {
            return Ok(None);
        }
        let is_whole = header.size_bytes >= LOG_OVERHEAD_BYTES
            && self.has_right_checksum(&header, position)?;
        if !is_whole || !in_place {
            return Ok(Some(is_whole));
        }
        let behind = position + header.size_bytes as u64;
        self.goes_on(behind, header.last_offset).map(Some)
    }

    /// Whether the checksum of a batch, which is here to its end, is right. One above `max_batch_bytes` is read part by part: it is a batch
    /// of the log, and who steps on it gets the error of that limit.
    fn has_right_checksum(&mut self, header: &BatchHeader, position: u64) -> Result<bool> {
        if header.size_bytes as u64 <= self.segment.directory.limits.max_batch_bytes {
            let whole = self.bytes_at(position, header.size_bytes, false)?;
            return Ok(header.check_crc(whole).is_ok());
        }
        let end = position.saturating_add(header.size_bytes as u64);
        header.has_crc_of(|from, take| -> Result<()> {
            let mut at = position.saturating_add(from as u64);
            while at < end {
                let wanted = (end - at).min(SCAN_BYTES as u64) as usize;
                let part = self.bytes_at(at, wanted, false)?;
                if part.is_empty() {
                    break;
                }
                at += part.len() as u64;
                take(part);
            }
            Ok(())
        })
    }

    /// Takes the size of a batch off the checksum budget. Returns `false` if the budget is too small or the batch is not here to its end.
    fn may_checksum(&mut self, header: &BatchHeader, position: u64) -> bool {
        let size = header.size_bytes as u64;
        if size > self.end - position {
            return false;
        }
        match self.search_budget.checked_sub(size) {
            Some(left) => {
                self.search_budget = left;
                true
            }
            None => false,
        }
    }
}
