//! Walks the batches of a fetched partition by their headers alone: where the next fetch begins, what is torn off at the end.
//!
//! Checksums are computed when the batches are appended: until then the next request is on its way already.

use offsetlog::format::FormatError;
use offsetlog::format::batch::{BatchHeader, FRAME_BYTES};

/// What is wrong with batches that a broker sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadBatches {
    /// Not a batch header, at a position in the records.
    Header {
        /// Bytes from the start of the partition's records.
        position: usize,
        /// What is wrong.
        error: FormatError,
    },
    /// The batches do not ascend, or lie before the offset that was asked for.
    Offset {
        /// Bytes from the start of the partition's records.
        position: usize,
        /// The last offset of the batch.
        found: i64,
        /// The lowest one that it may have.
        expected: i64,
    },
}

impl std::fmt::Display for BadBatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header { position, error } => {
                write!(f, "batch header at byte {position} of the records: {error}")
            }
            Self::Offset {
                position,
                found,
                expected,
            } => write!(
                f,
                "batch at byte {position} of the records: offset {found} found, {expected} or more expected"
            ),
        }
    }
}

/// The whole batches at the front of a partition's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Walked {
    /// Their bytes.
    pub(crate) bytes: usize,
    /// How many there are.
    pub(crate) batches: u64,
    /// The base offset of the first, if its header says it.
    pub(crate) first_offset: Option<i64>,
    /// The offset behind the last one.
    pub(crate) next_offset: i64,
    /// The leader epoch of the last batch of magic 2.
    pub(crate) leader_epoch: Option<i32>,
    /// Bytes of the batch that is not wholly there, if its length is.
    pub(crate) torn: Option<usize>,
}

/// Walks the batches of `records`, which were asked for from `position` on. Stops at a batch of a leader epoch above `leader_epoch`, which
/// this leader cannot have, and before one that is wrong behind others.
///
/// # Errors
/// The first is wrong: not a batch header, or offsets below `position`.
pub(crate) fn walk(
    records: &[u8],
    position: i64,
    leader_epoch: Option<i32>,
) -> Result<Walked, BadBatches> {
    let mut walked = Walked {
        next_offset: position,
        ..Walked::default()
    };
    loop {
        let at = walked.bytes;
        let rest = records.get(at..).unwrap_or(&[]);
        if rest.len() < FRAME_BYTES {
            return Ok(walked);
        }
        let failed = |error| {
            let position = at;
            if at > 0 {
                return Ok(walked);
            }
            Err(BadBatches::Header { position, error })
        };
        let size = match offsetlog::format::Frame::parse(rest) {
            Ok(frame) => frame.size_bytes,
            Err(error) => return failed(error),
        };
        if size > rest.len() {
            walked.torn = Some(size);
            return Ok(walked);
        }
        let header = match BatchHeader::parse(rest) {
            Ok(header) => header,
            Err(error) => return failed(error),
        };
        let base = header.base_offset.unwrap_or(header.last_offset);
        // The first batch may begin before the offset that was asked for, the next ones not before the end of the one before.
        let lowest = if at == 0 { header.last_offset } else { base };
        if lowest < walked.next_offset || header.last_offset == i64::MAX {
            if at > 0 {
                return Ok(walked);
            }
            return Err(BadBatches::Offset {
                position: at,
                found: lowest,
                expected: walked.next_offset,
            });
        }
        if header.magic == 2 {
            if leader_epoch.is_some_and(|known| header.leader_epoch > known) {
                return Ok(walked);
            }
            walked.leader_epoch = Some(header.leader_epoch);
        }
        if at == 0 {
            walked.first_offset = header.base_offset;
        }
        walked.batches += 1;
        walked.bytes = at.saturating_add(size);
        walked.next_offset = header.last_offset + 1;
    }
}

/// Splits whole batches into runs that one segment can hold: of at most `at_most` bytes and offsets that are at most `i32::MAX` apart each,
/// and of one batch at least.
pub(crate) fn runs(records: &[u8], at_most: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = records;
    std::iter::from_fn(move || {
        let mut taken = 0_usize;
        let mut first = None;
        while let Ok(header) = BatchHeader::parse(rest.get(taken..).unwrap_or_default()) {
            let with = taken.saturating_add(header.size_bytes);
            let base = header.base_offset.unwrap_or(header.last_offset);
            let span = header
                .last_offset
                .saturating_sub(*first.get_or_insert(base));
            let fits = with <= at_most && span <= i64::from(i32::MAX);
            if with > rest.len() || (taken > 0 && !fits) {
                break;
            }
            taken = with;
        }
        let (run, behind) = rest.split_at_checked(taken)?;
        rest = behind;
        (!run.is_empty()).then_some(run)
    })
}
