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

#[cfg(target_os = "linux")]
static ADVICE_IS_TAKEN: std::sync::OnceLock<bool> = std::sync::OnceLock::new();

/// Whether the system acts on the advice to empty a page at a fork. QEMU's user mode answers "done" to any advice it does not know, and
/// then a child would be taken for its parent. Linux refuses the advice for shared pages: a system that accepts it there is not asked to
/// empty pages.
#[cfg(target_os = "linux")]
fn advice_is_taken() -> bool {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    let size = rustix::param::page_size();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new page at an address that the system chooses; nothing refers to it.
    let Ok(page) =
        (unsafe { mmap_anonymous(std::ptr::null_mut(), size, access, MapFlags::SHARED) })
    else {
        return false;
    };
    // SAFETY: the page is the one above, and nothing reads or writes it.
    let answer = unsafe { madvise(page, size, Advice::LinuxWipeOnFork) };
    // SAFETY: the same page, which is not used again.
    let unmapped = unsafe { munmap(page, size) };
    answer.is_err() && unmapped.is_ok()
}

/// A page that a fork leaves full in the parent and empty in the child.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(super) struct ForkMark(memmap2::MmapMut);

#[cfg(target_os = "linux")]
impl ForkMark {
    /// Returns an empty page; `None` if the system empties no pages (before Linux 4.14, or under a program that emulates Linux).
    pub(super) fn new() -> Option<Self> {
        if !*ADVICE_IS_TAKEN.get_or_init(advice_is_taken) {
            return None;
        }
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Shared pages cannot be emptied, so a system that agrees to do it ignores advice: it gets no marks.
    #[test]
    fn a_system_that_takes_advice_gives_marks() {
        assert!(ForkMark::new().is_none() || advice_is_taken());
        // Linux itself takes it; QEMU's user mode shows its own name in the processor's description or none of the flags.
        let is_linux_itself =
            std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("[vvar]"));
        assert!(!is_linux_itself || advice_is_taken());
    }
}
