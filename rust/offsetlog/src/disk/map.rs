//! Read-only mappings: the only `unsafe` of the engine.
//!
//! Policy. Mappings are private, read-only, and never stored through. A mapped file that somebody shrinks kills the process with
//! SIGBUS on the next access, so a mapping is made only
//! 1. for `.log` files and indexes when the caller opened with `mapped`, having been told this, and
//! 2. for `.log` files that recovery or truncation reads in a directory whose exclusive lock this process holds; the mapping is gone
//!    before the file is cut.
//!
//! Index entries are copied out by their readers; slices of a mapped `.log` live no longer than the scan that owns the map.
//! A file system that cannot map (FUSE with direct I/O) makes the caller fall back to reading.
#![allow(unsafe_code)]

use std::fs::File;

/// A read-only mapping of the front of a file.
#[derive(Debug)]
pub struct Map(memmap2::Mmap);

impl Map {
    /// Maps the first `size` bytes of `file`; `None` when that is impossible.
    pub(super) fn new(file: &File, size: usize) -> Option<Self> {
        // SAFETY: the mapping is read-only and private to this process; that nobody shrinks the file while it lives is the
        // caller's promise under the policy above, kept by the lock or by the user's `mapped`.
        let map = unsafe { memmap2::MmapOptions::new().len(size).map(file) };
        map.ok().map(Self)
    }

    /// The mapped bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Tells the system that the bytes will be read from front to back.
    pub fn will_be_scanned(&self) {
        // Advice only: where it is refused, reading is slower and nothing else.
        let _ = self.0.advise(memmap2::Advice::Sequential);
    }
}
