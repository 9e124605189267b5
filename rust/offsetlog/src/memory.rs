//! Fallible allocation for sizes that come from file contents: an infallible one ends the process if memory is short.

use crate::error::{Error, Result};

/// Adds a copy of `part`.
///
/// # Errors
/// [`Io`](crate::ErrorKind::Io) of the kind `OutOfMemory`, with `bytes` as they were.
pub fn extend(bytes: &mut Vec<u8>, part: &[u8]) -> Result<()> {
    reserve(bytes, part.len())?;
    bytes.extend_from_slice(part);
    Ok(())
}

/// A copy of `part`.
pub(crate) fn copy(part: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    extend(&mut bytes, part)?;
    Ok(bytes)
}

/// Makes room for `more` bytes; where there is not enough for growing by a factor, for these only.
///
/// # Errors
/// As [`extend`].
#[inline]
pub fn reserve(bytes: &mut Vec<u8>, more: usize) -> Result<()> {
    if bytes.try_reserve(more).is_err() && bytes.try_reserve_exact(more).is_err() {
        return Err(Error::no_memory());
    }
    Ok(())
}

/// Of the processor's caches.
const LINE_BYTES: usize = 64;
/// In more bytes than these lines hold the processor reads ahead itself.
const LINES_AHEAD_MAX: usize = 32;

/// Reads a byte of each cache line of what is copied soon, so that the copy does not wait for memory: a copy of a few hundred bytes ends
/// before the processor has begun to read ahead.
#[inline]
pub fn read_ahead(bytes: &[u8]) {
    let mut sum = 0;
    for line in bytes.chunks(LINE_BYTES).take(LINES_AHEAD_MAX) {
        sum ^= line.first().copied().unwrap_or(0);
    }
    // Otherwise the compiler would leave the reads out.
    std::hint::black_box(sum);
}
