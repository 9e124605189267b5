//! One file of a simulated disk: what is on the disk, which changes only the system knows, and what of them a loss of power may leave.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes that reach a disk together.
pub(super) const SECTOR: usize = 512;

/// What stands in a grown file where nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fill {
    /// Zeros.
    #[default]
    Zeros,
    /// Whatever was there before: random bytes.
    Stale,
}

/// A file as it was after one unsynced change.
#[derive(Debug, Clone)]
pub(super) struct Version {
    bytes: Arc<Vec<u8>>,
    /// Sectors that the change touched.
    sectors: std::ops::Range<usize>,
    /// Whether they are to be written; a file that is made longer gets a hole.
    is_written: bool,
    modified: u64,
}

/// A file.
#[derive(Debug, Clone, Default)]
pub struct Inode {
    pub(super) durable: Arc<Vec<u8>>,
    pub(super) durable_modified: u64,
    /// Unsynced changes, oldest first.
    pub(super) versions: Vec<Version>,
    pub(super) cached: Arc<Vec<u8>>,
    pub(super) modified: u64,
    /// Sectors that a failed sync lost: writing them in place does not bring them back, truncating does.
    pub(super) lost: BTreeSet<usize>,
}

/// What of one file a crash leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// What was synced.
    Durable,
    /// All.
    Cached,
    /// As it was after so many of the unsynced changes.
    Version(usize),
    /// Each sector, and the length, from a version of its own.
    Mixed,
}

impl Inode {
    /// What is read.
    #[must_use]
    pub fn cached(&self) -> &[u8] {
        &self.cached
    }

    /// What is read past the system's memory: what is on the disk, at the length that the system knows; what it still has to
    /// write it writes first.
    #[must_use]
    pub fn uncached(&self) -> Vec<u8> {
        let mut after = self.clone();
        after.sync(true);
        let mut bytes = after.durable.as_ref().clone();
        bytes.resize(self.cached.len(), 0);
        bytes
    }

    pub(super) fn change(
        &mut self,
        bytes: Vec<u8>,
        touched: std::ops::Range<usize>,
        is_written: bool,
        modified: u64,
    ) {
        self.cached = Arc::new(bytes);
        self.modified = modified;
        self.versions.push(Version {
            bytes: Arc::clone(&self.cached),
            sectors: touched.start / SECTOR..touched.end.div_ceil(SECTOR),
            is_written,
            modified,
        });
    }

    pub(super) fn sync(&mut self, times: bool) {
        let chosen = |inode: &Self, sector: usize| {
            inode
                .versions
                .iter()
                .any(|version| version.sectors.contains(&sector))
                .then(|| Arc::clone(&inode.cached))
        };
        let size = self.cached.len();
        self.durable = Arc::new(self.mix(size, Fill::Zeros, 0, |sector| chosen(self, sector)));
        if times {
            self.durable_modified = self.modified;
        }
        self.versions.clear();
    }

    pub(super) fn fail_sync(&mut self) {
        // Of what was cut off meanwhile, and where a file was only made longer, nothing was to be written.
        let end = self.cached.len().div_ceil(SECTOR);
        for version in std::mem::take(&mut self.versions) {
            let written = version.sectors.filter(|_| version.is_written);
            self.lost.extend(written.filter(|&sector| sector < end));
        }
        // The length is the file system's own and got there: zeros instead of the bytes.
        let mut bytes = self.durable.as_ref().clone();
        bytes.resize(self.cached.len(), 0);
        self.durable = Arc::new(bytes);
        self.durable_modified = self.modified;
    }

    /// A file of `size` bytes, each sector as `choose` says or else as it is on the disk.
    fn mix(
        &self,
        size: usize,
        fill: Fill,
        seed: u64,
        mut choose: impl FnMut(usize) -> Option<Arc<Vec<u8>>>,
    ) -> Vec<u8> {
        let mut bytes = vec![0; size];
        for (sector, target) in bytes.chunks_mut(SECTOR).enumerate() {
            let chosen = choose(sector).filter(|_| !self.lost.contains(&sector));
            let source = chosen.as_ref().unwrap_or(&self.durable);
            let begin = sector * SECTOR;
            if begin < source.len() {
                let count = target.len().min(source.len() - begin);
                target[..count].copy_from_slice(&source[begin..begin + count]);
            } else if chosen.is_none() && fill == Fill::Stale {
                let mut rng = fastrand::Rng::with_seed(seed ^ sector as u64);
                rng.fill(target);
            }
        }
        bytes
    }

    pub(super) fn after(
        &self,
        choice: Choice,
        fill: Fill,
        rng: &mut fastrand::Rng,
    ) -> (Vec<u8>, u64) {
        if self.versions.is_empty() {
            let is_new = choice != Choice::Durable && rng.bool();
            let modified = if is_new {
                self.modified
            } else {
                self.durable_modified
            };
            return (self.durable.as_ref().clone(), modified);
        }
        let seed = rng.u64(..);
        let last = self.versions.len();
        match choice {
            Choice::Durable => (self.durable.as_ref().clone(), self.durable_modified),
            Choice::Cached => self.subset(u64::MAX, fill, seed),
            Choice::Version(count) => {
                let kept = count.min(last);
                self.subset(low_bits(kept), fill, seed)
            }
            Choice::Mixed => {
                let pick = |rng: &mut fastrand::Rng, sector: Option<usize>| {
                    let candidates: Vec<&Version> = self
                        .versions
                        .iter()
                        .filter(|version| {
                            sector.is_none_or(|sector| version.sectors.contains(&sector))
                        })
                        .collect();
                    match rng.usize(..=candidates.len()) {
                        0 => None,
                        slot => Some(candidates[slot - 1]),
                    }
                };
                let length =
                    pick(rng, None).map_or(self.durable.len(), |version| version.bytes.len());
                let modified =
                    pick(rng, None).map_or(self.durable_modified, |version| version.modified);
                let bytes = self.mix(length, fill, seed, |sector| {
                    pick(rng, Some(sector)).map(|version| Arc::clone(&version.bytes))
                });
                (bytes, modified)
            }
        }
    }

    /// Those of the unsynced changes whose bit is set: of each sector the version after the last one of them that touched it.
    pub(super) fn subset(&self, bits: u64, fill: Fill, seed: u64) -> (Vec<u8>, u64) {
        let chosen: Vec<&Version> = self
            .versions
            .iter()
            .enumerate()
            .filter(|(slot, _)| bits >> (*slot).min(63) & 1 == 1)
            .map(|(_, version)| version)
            .collect();
        let Some(last) = chosen.last() else {
            return (self.durable.as_ref().clone(), self.durable_modified);
        };
        let bytes = self.mix(last.bytes.len(), fill, seed, |sector| {
            let touched = chosen
                .iter()
                .rev()
                .find(|version| version.sectors.contains(&sector));
            touched.map(|version| Arc::clone(&version.bytes))
        });
        (bytes, last.modified)
    }
}

pub(super) fn low_bits(count: usize) -> u64 {
    if count >= 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}
