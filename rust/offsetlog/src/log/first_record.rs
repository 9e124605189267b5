//! Finds the first record that a consumer at an offset would get.

use super::values::OffsetAndTimestamp;
use super::{Log, Scratch, View};
use crate::error::{Error, Result};
use crate::records::Records;
use crate::segment::find::{self, Found, ReadAhead, Trace};
use crate::segment::walk::{Step, Walk};
use offsetlog_format::BatchHeader;

/// Bytes read between two checks for interruption.
const CHECK_BYTES: usize = 1 << 20;

impl Log {
    /// Returns the first record at or after `offset` that is not a control record; `None` if there is none. An offset below the
    /// log start offset counts as the log start offset. Does not need the end of the log: damage behind the record is not an
    /// error.
    ///
    /// Cost: as [`get`](Self::get); more where compaction or control records left a gap.
    ///
    /// # Errors
    /// Corruption of a batch from the offset's up to the record's; `Io`.
    pub(crate) fn first_record(&self, offset: i64) -> Result<Option<OffsetAndTimestamp>> {
        let mut scratch = self.scratch();
        let found = self.ask(|view| first_record(self, view, offset, &mut scratch));
        self.give_back(scratch);
        found
    }
}

fn first_record(
    log: &Log,
    view: &View,
    offset: i64,
    scratch: &mut Scratch,
) -> Result<Option<OffsetAndTimestamp>> {
    let offset = offset.max(view.log_start_offset);
    for segment in view.segments.iter().skip(view.floor_slot(offset)) {
        let open = view.open(segment)?;
        let buffer = std::mem::take(&mut scratch.buffer);
        let read_ahead = ReadAhead::To(offset);
        let (mut walk, found) =
            find::find(&open, offset, read_ahead, buffer, &mut Trace::default())?;
        let found = match found {
            Found::Batch(header) => from_batch(log, &mut walk, header, offset, scratch),
            Found::End(_) => Ok(None),
        };
        scratch.buffer = walk.into_buffer();
        if let Some(found) = found? {
            return Ok(Some(found));
        }
        log.check()?;
    }
    Ok(None)
}

/// Searches the batch of the walk's last step, then those behind it in the segment.
fn from_batch(
    log: &Log,
    walk: &mut Walk,
    mut header: BatchHeader,
    offset: i64,
    scratch: &mut Scratch,
) -> Result<Option<OffsetAndTimestamp>> {
    let mut unchecked = 0_usize;
    loop {
        // The header that says that these are control records may be damaged itself.
        if walk.verify(&header)?.is_some() {
            return Ok(None);
        }
        if !header.attributes.is_control()
            && let Some(found) = in_batch(log, walk, &header, offset, scratch)?
        {
            return Ok(Some(found));
        }
        unchecked = unchecked.saturating_add(header.size_bytes);
        if unchecked > CHECK_BYTES {
            unchecked = 0;
            log.check()?;
        }
        let Step::Batch(next) = walk.step(false)? else {
            return Ok(None);
        };
        header = next;
    }
}

fn in_batch(
    log: &Log,
    walk: &mut Walk,
    header: &BatchHeader,
    offset: i64,
    scratch: &mut Scratch,
) -> Result<Option<OffsetAndTimestamp>> {
    walk.batch()?;
    let walk = &*walk;
    let at = |error: Error| {
        walk.place(error)
            .at_offset(header.base_offset.unwrap_or(header.last_offset))
    };
    let limit = log.0.options.limits.max_decompressed_bytes;
    let bytes = walk.loaded_batch();
    let mut records = Records::open(header, bytes, &mut scratch.decompressor, limit).map_err(at)?;
    let found = records
        .find(|record| record.offset >= offset)
        .map_err(|error| at(error.into()))?;
    Ok(found.map(|record| OffsetAndTimestamp {
        offset: record.offset,
        timestamp: record.timestamp,
        leader_epoch: (header.leader_epoch >= 0).then_some(header.leader_epoch),
    }))
}
