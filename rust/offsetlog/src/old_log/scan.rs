//! Scans a 0.7 partition in order and unpacks compressed sets.

use super::OldLog;
use super::entries::{Entries, Found, Met};
use crate::codec::Decompressor;
use crate::error::{Error, ErrorKind, Result};
use crate::memory;
use crate::segment::walk::TornTail;
use offsetlog_format::{Codec, Fault, FormatError, OldMessage, OldMessages, Part};
use std::ops::Range;

/// Maximum nesting of compressed sets.
const DEPTH_MAX: usize = 8;
/// Bytes scanned between two checks for interruption.
const CHECK_BYTES: u64 = 4 << 20;

/// A scan of a 0.7 partition. See [`OldLog::scan`].
#[derive(Debug)]
pub struct OldScan {
    log: OldLog,
    /// Slot of the next file to open.
    slot: usize,
    start: i64,
    /// The caller chose the start, and no entry has been read yet.
    is_chosen: bool,
    entries: Option<Entries>,
    unpacked: Unpacked,
    torn: Option<TornTail>,
    unchecked_bytes: u64,
}

/// The values of one compressed set, including those of nested sets.
#[derive(Debug)]
struct Unpacked {
    bytes: Vec<u8>,
    values: Vec<Range<usize>>,
    decompressor: Decompressor,
}

/// An entry of the file: one message, or a compressed set of them.
#[derive(Debug)]
pub struct OldEntry<'s> {
    /// Position of the entry in the partition, which 0.7 called the offset of all its messages.
    pub offset: i64,
    /// Position after the entry, from which a consumer continues.
    pub next_offset: i64,
    /// Codec of the set; none for a single message.
    pub codec: Codec,
    values: Values<'s>,
}

#[derive(Debug)]
enum Values<'s> {
    One(&'s [u8]),
    Set(&'s Unpacked),
}

/// A message as a 0.7 consumer received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldRecord<'s> {
    /// Position of its entry in the partition.
    pub offset: i64,
    /// Where a consumer continues after this message: at its entry again, because nothing can be fetched from inside a
    /// compressed set; for the last message of the entry, after the entry.
    pub next_offset: i64,
    /// The payload; 0.7 has neither keys nor nulls.
    pub value: &'s [u8],
}

impl OldScan {
    pub(super) fn new(log: &OldLog, start: i64) -> Self {
        let slot = log
            .segments
            .partition_point(|segment| segment.end() <= start);
        Self {
            log: log.clone(),
            slot,
            start,
            is_chosen: start > log.start(),
            entries: None,
            unpacked: Unpacked {
                bytes: Vec::new(),
                values: Vec::new(),
                decompressor: Decompressor::new(),
            },
            torn: None,
            unchecked_bytes: 0,
        }
    }

    /// The torn tail of the last file, once the scan has reached it.
    #[must_use]
    pub const fn torn_tail(&self) -> Option<&TornTail> {
        self.torn.as_ref()
    }

    /// Returns the next entry, verified and unpacked. It borrows the scan until the next call.
    ///
    /// # Errors
    /// `CorruptBatch`, `UnsupportedMagic`, `UnsupportedCodec`, with file, position and offset: a bad entry, unless it
    /// is at the end of the last file and an interrupted write can have left it. `Decompression`, `InvalidRecord`: a set with a valid checksum and invalid
    /// contents. `Argument`: the start of the scan is not the start of an entry. `LogDir`: a file
    /// has fewer bytes than when the log was opened. `Limit`, `Io`, `Interrupted`. After an error
    /// the scan has ended.
    pub fn next_entry(&mut self) -> Result<Option<OldEntry<'_>>> {
        let found = match self.advance() {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(error) => {
                self.entries = None;
                self.slot = self.log.segments.len();
                return Err(error);
            }
        };
        let Some(entries) = self.entries.as_ref() else {
            return Ok(None);
        };
        let message = entries.entry(found)?;
        let offset = entries
            .segment
            .start
            .saturating_add_unsigned(found.position);
        let values = if message.codec == Codec::None {
            Values::One(message.payload)
        } else {
            Values::Set(&self.unpacked)
        };
        Ok(Some(OldEntry {
            offset,
            next_offset: offset.saturating_add_unsigned(found.size_bytes as u64),
            codec: message.codec,
            values,
        }))
    }

    /// Moves to the next entry and unpacks it if it is a set.
    fn advance(&mut self) -> Result<Option<Found>> {
        loop {
            let Some(entries) = self.entries.as_mut() else {
                if !self.open_next()? {
                    return Ok(None);
                }
                continue;
            };
            let found = match entries.step()? {
                Met::Entry(found) => {
                    if self.is_chosen {
                        // Where a consumer that reads entry by entry goes on.
                        self.is_chosen = false;
                        let behind = found.position + found.size_bytes as u64;
                        self.log.note_entry(&entries.segment, behind);
                    }
                    found
                }
                Met::End(torn) => {
                    self.torn = torn;
                    self.slot += 1;
                    self.entries = None;
                    continue;
                }
            };
            self.unchecked_bytes += found.size_bytes as u64;
            let message = entries.entry(found)?;
            let is_set = message.codec != Codec::None;
            if is_set || self.unchecked_bytes >= CHECK_BYTES {
                self.unchecked_bytes = 0;
                self.log.check()?;
            }
            if is_set {
                let limit = self.log.options.limits.max_decompressed_bytes;
                self.unpacked
                    .unpack(&message, limit)
                    .map_err(|error| entries.place(error, found.position))?;
            }
            return Ok(Some(found));
        }
    }

    /// Opens the next file. Returns whether there is one.
    fn open_next(&mut self) -> Result<bool> {
        let Some(segment) = self.log.segments.get(self.slot) else {
            return Ok(false);
        };
        self.log.check()?;
        let position = self
            .start
            .saturating_sub(segment.start)
            .max(0)
            .cast_unsigned();
        let known = self.log.known_entry(segment, position);
        let entries = Entries::open(&self.log, segment, (known, position))?;
        if position > 0 {
            self.log.note_entry(segment, position);
        }
        self.entries = Some(entries);
        Ok(true)
    }
}

impl Unpacked {
    /// Replaces the values with those of a set. Everything decompressed for it counts against `limit`, in bytes.
    fn unpack(&mut self, set: &OldMessage<'_>, limit: u64) -> Result<()> {
        self.bytes.clear();
        self.values.clear();
        let mut seen = 0;
        self.add(set, limit, &mut seen, 1)
    }

    fn add(
        &mut self,
        set: &OldMessage<'_>,
        limit: u64,
        seen: &mut u64,
        depth: usize,
    ) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(Error::new(FormatError::new(
                Part::MessageSet,
                0,
                Fault::Rule("compressed sets lie in each other, more than 8 deep"),
            )));
        }
        let left = limit.saturating_sub(*seen);
        let plain = self
            .decompressor
            .decompress(set.codec, 0, set.payload, left)
            .map_err(|error| match *error.kind() {
                ErrorKind::Limit {
                    name, seen: more, ..
                } => Error::new(ErrorKind::Limit {
                    name,
                    limit,
                    seen: seen.saturating_add(more),
                }),
                _ => error,
            })?;
        *seen += plain.len() as u64;
        // Nested sets need the decompressor's buffer.
        let plain = memory::copy(plain)?;
        let mut messages = OldMessages::new(&plain);
        while let Some(message) = messages.next_message()? {
            if message.codec != Codec::None {
                self.add(&message, limit, seen, depth + 1)?;
                continue;
            }
            let start = self.bytes.len();
            memory::extend(&mut self.bytes, message.payload)?;
            let reserved = self.values.try_reserve(1);
            reserved.map_err(|_| Error::no_memory())?;
            self.values.push(start..self.bytes.len());
        }
        Ok(())
    }
}

impl<'s> OldEntry<'s> {
    /// Number of messages.
    #[must_use]
    pub const fn len(&self) -> usize {
        match &self.values {
            Values::One(_) => 1,
            Values::Set(set) => set.values.len(),
        }
    }

    /// Whether this is a set without messages.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The messages in order.
    pub fn records(&self) -> impl Iterator<Item = OldRecord<'s>> + '_ {
        let count = self.len();
        (0..count).map(move |slot| OldRecord {
            offset: self.offset,
            next_offset: if slot + 1 == count {
                self.next_offset
            } else {
                self.offset
            },
            value: match &self.values {
                Values::One(value) => value,
                Values::Set(set) => set
                    .values
                    .get(slot)
                    .and_then(|range| set.bytes.get(range.clone()))
                    .unwrap_or(&[]),
            },
        })
    }
}
