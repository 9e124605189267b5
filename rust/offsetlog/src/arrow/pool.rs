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
    /// Returns an empty buffer, with capacity if the pool has one.
    pub(super) fn take(&self) -> Vec<u8> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.pop().unwrap_or_default()
    }

    fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT && bytes.capacity() <= LARGEST_KEPT_BYTES {
            kept.push(bytes);
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
