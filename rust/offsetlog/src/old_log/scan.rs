//! Reading a 0.7 partition from front to back, sets unpacked.

use super::OldLog;
use super::entries::{Entries, Found, Met};
use crate::codec::Decompressor;
use crate::error::{Error, ErrorKind, Result};
use crate::memory;
use crate::segment::walk::TornTail;
use offsetlog_format::{Codec, Fault, FormatError, OldMessage, OldMessages, Part};
use std::ops::Range;

/// Sets within sets that are followed.
const DEPTH_MAX: usize = 8;
/// Bytes scanned between two questions whether to go on.
const CHECK_BYTES: u64 = 4 << 20;

/// A scan of a 0.7 partition in progress. See [`OldLog::scan`].
#[derive(Debug)]
pub struct OldScan {
    log: OldLog,
    /// Slot of the next file to open.
    slot: usize,
    start: i64,
    entries: Option<Entries>,
    unpacked: Unpacked,
    torn: Option<TornTail>,
    unchecked_bytes: u64,
}

/// The values of one compressed set, sets within it unpacked too.
#[derive(Debug)]
struct Unpacked {
    bytes: Vec<u8>,
    values: Vec<Range<usize>>,
    decompressor: Decompressor,
}

/// An entry of the file: one message, or a compressed set of them.
#[derive(Debug)]
pub struct OldEntry<'s> {
    /// Position of the entry in the partition: what 0.7 called the offset of all of its messages.
    pub offset: i64,
    /// Position behind it, from which a consumer that has it goes on.
    pub next_offset: i64,
    /// How the set is compressed; none for a single message.
    pub codec: Codec,
    values: Values<'s>,
}

#[derive(Debug)]
enum Values<'s> {
    One(&'s [u8]),
    Set(&'s Unpacked),
}

/// A message as a consumer of 0.7 was given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldRecord<'s> {
    /// Position of its entry in the partition.
    pub offset: i64,
    /// From where a consumer that has it goes on: the same position but for the last message of the entry, since within a compressed
    /// set nothing can be fetched.
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

    /// The unfinished end of the last file, once the scan has come to it.
    #[must_use]
    pub const fn torn_tail(&self) -> Option<&TornTail> {
        self.torn.as_ref()
    }

    /// The next entry, checked and unpacked. It borrows the scan until the next call.
    ///
    /// # Errors
    /// `CorruptBatch`, `UnsupportedMagic`, `UnsupportedCodec`, with file, position and offset: a bad entry in a file that another one
    /// follows, or with whole entries behind it. `Decompression`, `InvalidRecord`: a set whose checksum is right and whose content is
    /// not. `Argument`: the start of the scan is not where an entry begins. `Limit`, `Io`, `Interrupted`. After an error the scan is at its end.
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

    /// Steps to the next entry and unpacks it if it is a set.
    fn advance(&mut self) -> Result<Option<Found>> {
        loop {
            let Some(entries) = self.entries.as_mut() else {
                if !self.open_next()? {
                    return Ok(None);
                }
                continue;
            };
            let found = match entries.step()? {
                Met::Entry(found) => found,
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

    /// Opens the next file; says whether there is one.
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
        self.entries = Some(Entries::open(&self.log, segment, position)?);
        Ok(true)
    }
}

impl Unpacked {
    /// Replaces what is here with the values of a set; all that was decompressed for it stays below `limit` bytes.
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
        // The decompressor's buffer is needed again for the sets within.
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
    /// How many messages.
    #[must_use]
    pub const fn len(&self) -> usize {
        match &self.values {
            Values::One(_) => 1,
            Values::Set(set) => set.values.len(),
        }
    }

    /// Whether it is a set without a message.
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
