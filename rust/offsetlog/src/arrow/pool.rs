//! Reuses buffers that Arrow has released, so that a long scan does not fault in new pages for every record batch.

use arrow_buffer::Buffer;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of buffers in the pool: those of a few record batches in use.
const KEPT: usize = 16;
/// A larger buffer, from one huge record, is not kept.
const LARGEST_KEPT_BYTES: usize = 16 << 20;

/// A pool of byte buffers.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Vec<u8>>>);

/// A buffer that Arrow uses. It returns to its pool when it is dropped, on any thread.
struct Lent {
    bytes: Vec<u8>,
    pool: Arc<Pool>,
}

impl Pool {
    /// Returns an empty buffer: the smallest one with room for `bytes`, unless that has far more, or a new one with a little more. So
    /// keys take no buffer of values, which then would need another.
    ///
    /// A column takes it at its first record and not when the record batch before is full: in between the consumer may release one, which
    /// is in the CPU cache still.
    pub(super) fn take(&self, bytes: usize) -> Vec<u8> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = kept.iter().enumerate();
        let far_more = bytes.saturating_mul(4).saturating_add(4096);
        let fitting = fitting.filter(|(_, buffer)| (bytes..=far_more).contains(&buffer.capacity()));
        let smallest = fitting.min_by_key(|(_, buffer)| buffer.capacity());
        if let Some((slot, _)) = smallest {
            return kept.remove(slot);
        }
        let mut buffer = Vec::new();
        let bytes = bytes.saturating_add(bytes / 8);
        if bytes <= LARGEST_KEPT_BYTES {
            // Without memory for it the buffer grows as records come, as far as it can.
            _ = buffer.try_reserve_exact(bytes);
        }
        buffer
    }

    fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.capacity() > LARGEST_KEPT_BYTES {
            return;
        }
        kept.push(bytes);
        if kept.len() > KEPT {
            // The oldest one: nobody wants its size any more.
            kept.remove(0);
        }
    }
}

/// Passes `bytes` to Arrow without a copy.
pub(super) fn lend(bytes: Vec<u8>, pool: &Arc<Pool>) -> Buffer {
    let lent = Lent {
        bytes,
        pool: Arc::clone(pool),
    };
    Buffer::from(bytes::Bytes::from_owner(lent))
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(pool: &Pool) -> Vec<usize> {
        let kept = pool.0.lock().unwrap();
        let mut kept: Vec<_> = kept.iter().map(Vec::capacity).collect();
        kept.sort_unstable();
        kept
    }

    #[test]
    fn the_smallest_buffer_that_fits_is_taken_and_none_that_does_not() {
        let pool = Arc::new(Pool::default());
        for size in [1000, 10, 5000, 100] {
            drop(lend(Vec::with_capacity(size), &pool));
        }
        assert_eq!(kept(&pool), [10, 100, 1000, 5000]);
        assert_eq!(pool.take(11).capacity(), 100);
        assert_eq!(pool.take(11).capacity(), 1000);
        // The one of 5,000 has far more room than that.
        assert_eq!(pool.take(11).capacity(), 12);
        assert_eq!(kept(&pool), [10, 5000]);
    }

    #[test]
    fn a_full_pool_drops_the_oldest_and_keeps_none_of_a_huge_record() {
        let pool = Arc::new(Pool::default());
        for size in (1..=KEPT + 2).rev().chain([LARGEST_KEPT_BYTES + 1]) {
            drop(lend(Vec::with_capacity(size), &pool));
        }
        assert_eq!(kept(&pool), (1..=KEPT).collect::<Vec<_>>());
        // What it would make is what it would keep.
        assert_eq!(pool.take(LARGEST_KEPT_BYTES - 1).capacity(), 0);
    }

    #[test]
    fn memory_that_is_not_there_ends_nothing() {
        assert_eq!(Pool::default().take(usize::MAX).capacity(), 0);
    }
}
