//! Memory maps: the only `unsafe` code of the engine.
//!
//! Policy. Maps of files are private, read-only, and never written through. If somebody truncates a mapped file, the next access kills
//! the process with SIGBUS. So a map is made only
//! 1. for `.log` files and indexes if the caller opened the log with `mapped`, whose documentation states this risk;
//! 2. for `.log` files that recovery or truncation reads in a directory whose exclusive lock this process holds; the map is
//!    dropped before the file is truncated; and
//! 3. for indexes of closed segments while this process holds both locks of the log, shared on the log dir and exclusive on the
//!    partition. `segment/index_maps.rs` drops them before a change of their files and before the locks are released.
//!
//! Locks do not keep out a program that does not ask for them (decision 3). Readers of indexes copy entries out; slices of a mapped `.log` live no longer than the scan that owns the map. If a file
//! system cannot map (FUSE with direct I/O), the caller reads instead.
//!
//! One more map is of no file: a page of memory that the system empties in a forked child, which tells parent and child apart.
#![allow(unsafe_code)]

use std::fs::File;

/// A read-only map of the first bytes of a file.
#[derive(Debug)]
pub struct Map(memmap2::Mmap);

impl Map {
    /// Maps the first `size` bytes of `file`; `None` if that is impossible.
    pub(super) fn new(file: &File, size: usize) -> Option<Self> {
        // SAFETY: the map is read-only and private to this process. Under the policy above the caller promises that nobody
        // truncates the file while the map lives; the directory's lock or the user's `mapped` upholds that.
        let map = unsafe { memmap2::MmapOptions::new().len(size).map(file) };
        map.ok().map(Self)
    }

    /// The mapped bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Advises the system that the bytes will be read sequentially.
    pub fn will_be_scanned(&self) {
        // Only advice: if the system refuses it, reads are slower.
        let _ = self.0.advise(memmap2::Advice::Sequential);
    }
}

/// A page that a fork leaves full in the parent and empty in the child.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(super) struct ForkMark(memmap2::MmapMut);

#[cfg(target_os = "linux")]
impl ForkMark {
    /// A page that is empty; `None` if the system empties none (before Linux 4.14).
    pub(super) fn new() -> Option<Self> {
        let mut page = memmap2::MmapMut::map_anon(1).ok()?;
        let (start, size) = (page.as_mut_ptr().cast(), page.len());
        let advice = rustix::mm::Advice::LinuxWipeOnFork;
        // SAFETY: the page is this value's own, and no reference to it exists. The advice changes nothing in this process; in a child
        // the page is empty before its first instruction.
        unsafe { rustix::mm::madvise(start, size, advice) }.ok()?;
        Some(Self(page))
    }

    /// Whether it was filled in this process.
    pub(super) fn is_full(&self) -> bool {
        self.0.first() == Some(&1)
    }

    pub(super) fn fill(&mut self) {
        self.0.fill(1);
    }
}
