//! Buffers that come back when Arrow lets go of them, so that a long scan does not fault in new pages for each record batch.

use arrow_buffer::Buffer;
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers kept at most: those of a few record batches in flight.
const KEPT: usize = 16;
/// A buffer that one huge record made is not kept.
const LARGEST_KEPT_BYTES: usize = 16 << 20;

/// Byte buffers for reuse.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Vec<u8>>>);

/// A buffer on its way through Arrow; it goes back to its pool when it is dropped, on whatever thread that is.
struct Lent {
    bytes: Vec<u8>,
    pool: Arc<Pool>,
}

impl Pool {
    /// An empty buffer, with capacity if one came back.
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

/// Hands `bytes` to Arrow without copying them.
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
