//! What a simulated disk holds: of every file and every name what is on the disk and what only the system knows, and what of it a
//! loss of power may leave.
//!
//! over 600 lines: one model, whose rules only make sense read together.

use offsetlog::disk::FileStat;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// A whole path: comparing paths part by part would be most of what a test does.
pub type Name = Arc<str>;

/// The name that a path is.
#[must_use]
pub fn name(path: &Path) -> Name {
    Name::from(text(path))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn parent(name: &str) -> Option<&str> {
    let (parent, _) = name.rsplit_once('/')?;
    Some(if parent.is_empty() { "/" } else { parent })
}

/// Bytes that reach a disk together.
pub(super) const SECTOR: usize = 512;
/// 2023-11-14, in milliseconds: long before any real clock.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// How names survive a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// A journal keeps their order: any prefix of the changes.
    #[default]
    Journal,
    /// Any subset.
    Strict,
}

/// What stands in a grown file where nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fill {
    /// Zeros.
    #[default]
    Zeros,
    /// Whatever was there before: random bytes.
    Stale,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Node {
    /// A file.
    File(u64),
    /// A directory.
    Directory,
}

/// One change of the disk.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields say what they are")]
pub enum Change {
    Create {
        path: Name,
        inode: u64,
    },
    MakeDirectory {
        path: Name,
    },
    Rename {
        from: Name,
        to: Name,
        inode: u64,
    },
    Unlink {
        path: Name,
        inode: u64,
    },
    Write {
        inode: u64,
        position: usize,
        bytes: Arc<[u8]>,
    },
    SetLen {
        inode: u64,
        size: usize,
    },
    /// Bytes and length are on the disk, and the time of the last change if `times`.
    Sync {
        inode: u64,
        times: bool,
    },
    /// A sync that failed: what was not on the disk never gets there, and is read all the same.
    FailedSync {
        inode: u64,
    },
    SyncDirectory {
        path: Name,
    },
}

/// A file as it was after one unsynced change.
#[derive(Debug, Clone)]
struct Version {
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
    durable: Arc<Vec<u8>>,
    durable_modified: u64,
    /// Unsynced changes, oldest first.
    versions: Vec<Version>,
    cached: Arc<Vec<u8>>,
    modified: u64,
    /// Sectors that a failed sync lost: writing them in place does not bring them back, truncating does.
    lost: BTreeSet<usize>,
}

/// Names and files of a disk.
#[derive(Debug, Clone)]
pub struct World {
    rule: Names,
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<Name, Node>,
    durable_names: BTreeMap<Name, Node>,
    unsynced_names: Vec<Change>,
    directories: BTreeMap<Name, u64>,
    ticks: u64,
    inode: u64,
    boots: u64,
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

/// How a crash cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The process dies: everything is there.
    Process,
    /// Power is lost and nothing unsynced is left.
    Nothing,
    /// Power is lost; a random choice for every file and the names.
    Random,
    /// Power is lost: of all unsynced writes, in order, those whose bit is set, and so many changes of names.
    Subset {
        /// One bit for each unsynced write, from the lowest.
        writes: u64,
        /// Changes of names that survive.
        names: usize,
    },
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

    fn change(
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

    fn sync(&mut self, times: bool) {
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

    fn fail_sync(&mut self) {
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

    fn after(&self, choice: Choice, fill: Fill, rng: &mut fastrand::Rng) -> (Vec<u8>, u64) {
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
    fn subset(&self, bits: u64, fill: Fill, seed: u64) -> (Vec<u8>, u64) {
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

fn low_bits(count: usize) -> u64 {
    if count >= 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

impl World {
    /// An empty disk with these directories on it.
    #[must_use]
    pub fn new(rule: Names, directories: &[&str]) -> Self {
        let mut world = Self {
            rule,
            inodes: BTreeMap::new(),
            names: BTreeMap::from([(Name::from("/"), Node::Directory)]),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            directories: BTreeMap::new(),
            ticks: 0,
            inode: 1,
            boots: 1,
        };
        for directory in directories {
            world.names.insert(Name::from(*directory), Node::Directory);
        }
        world.durable_names = world.names.clone();
        world
    }

    /// Puts a file on the disk.
    pub fn put(&mut self, path: &str, bytes: &[u8]) {
        let inode = self.next_inode();
        let path = Name::from(path);
        self.apply(&Change::Create { path, inode });
        self.apply(&Change::Write {
            inode,
            position: 0,
            bytes: bytes.into(),
        });
        self.apply(&Change::Sync { inode, times: true });
        self.durable_names = self.names.clone();
        self.unsynced_names.clear();
    }

    /// The number that the next file gets.
    #[must_use]
    pub const fn next_inode(&self) -> u64 {
        self.inode
    }

    /// What stands under a name.
    #[must_use]
    pub fn node(&self, path: &Path) -> Option<Node> {
        self.names.get(text(path)).copied()
    }

    /// A file by its number.
    #[must_use]
    pub fn inode(&self, inode: u64) -> &Inode {
        &self.inodes[&inode]
    }

    /// The bytes of a file by its name.
    #[must_use]
    pub fn bytes(&self, path: &Path) -> Option<&[u8]> {
        match self.node(path)? {
            Node::File(inode) => Some(self.inode(inode).cached()),
            Node::Directory => None,
        }
    }

    /// What is in a directory.
    pub fn children(&self, directory: &Path) -> impl Iterator<Item = (&str, Node)> {
        let front = format!("{}/", text(directory).trim_end_matches('/'));
        let above = format!("{}0", front.trim_end_matches('/'));
        let range = (
            Bound::Excluded(front.as_str()),
            Bound::Excluded(above.as_str()),
        );
        let found = self
            .names
            .range::<str, _>(range)
            .filter_map(|(path, &node)| {
                let name = path.get(front.len()..)?;
                (!name.is_empty() && !name.contains('/')).then_some((name, node))
            });
        found.collect::<Vec<_>>().into_iter()
    }

    /// Every file with its bytes.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.names.iter().filter_map(|(path, node)| match node {
            Node::File(inode) => Some((Path::new(path.as_ref()), self.inode(*inode).cached())),
            Node::Directory => None,
        })
    }

    /// Unsynced writes of all files that have a name or had one on the disk.
    #[must_use]
    pub fn unsynced_writes(&self) -> usize {
        self.inodes.values().map(|inode| inode.versions.len()).sum()
    }

    /// Changes of names that are not on the disk for certain.
    #[must_use]
    pub fn unsynced_names(&self) -> usize {
        self.unsynced_names.len()
    }

    pub(super) fn stat(&self, path: &Path) -> Option<FileStat> {
        match self.node(path)? {
            Node::File(inode) => Some(self.stat_inode(inode)),
            Node::Directory => {
                let modified = self.directories.get(text(path)).copied().unwrap_or(0);
                Some(stat(4096, modified, u64::MAX))
            }
        }
    }

    pub(super) fn stat_inode(&self, number: u64) -> FileStat {
        let inode = self.inode(number);
        stat(inode.cached.len() as u64, inode.modified, number)
    }

    /// Changes the disk.
    pub fn apply(&mut self, change: &Change) {
        self.ticks += 1;
        match change {
            Change::Create { inode, .. } => {
                self.inode = self.inode.max(inode + 1);
                let file = Inode {
                    modified: self.ticks,
                    durable_modified: self.ticks,
                    ..Inode::default()
                };
                self.inodes.insert(*inode, file);
                self.rename(change);
            }
            Change::MakeDirectory { .. } | Change::Rename { .. } | Change::Unlink { .. } => {
                self.rename(change);
            }
            Change::Write {
                inode,
                position,
                bytes,
            } => {
                let ticks = self.ticks;
                let file = self.file(*inode);
                let mut whole = file.cached.as_ref().clone();
                let end = position + bytes.len();
                let touched = (*position).min(whole.len())..end;
                if whole.len() < end {
                    whole.resize(end, 0);
                }
                whole[*position..end].copy_from_slice(bytes);
                file.change(whole, touched, true, ticks);
            }
            Change::SetLen { inode, size } => {
                let ticks = self.ticks;
                let file = self.file(*inode);
                let before = file.cached.len();
                if before == *size {
                    file.modified = ticks;
                    return;
                }
                let mut whole = file.cached.as_ref().clone();
                whole.resize(*size, 0);
                // The system writes the sector that is cut anew.
                file.lost.retain(|&sector| (sector + 1) * SECTOR <= *size);
                let touched = before.min(*size)..before.max(*size);
                // The sector that is cut is written, a hole is not.
                file.change(whole, touched, *size < before, ticks);
            }
            Change::Sync { inode, times } => self.file(*inode).sync(*times),
            Change::FailedSync { inode } => self.file(*inode).fail_sync(),
            Change::SyncDirectory { path } => self.sync_directory(path),
        }
    }

    fn file(&mut self, inode: u64) -> &mut Inode {
        self.inodes.get_mut(&inode).expect("an inode")
    }

    fn rename(&mut self, change: &Change) {
        apply_name(&mut self.names, change);
        for directory in directories_of(change) {
            self.directories.insert(Name::from(directory), self.ticks);
        }
        self.unsynced_names.push(change.clone());
    }

    fn sync_directory(&mut self, path: &str) {
        let is_here = |change: &Change| directories_of(change).contains(&path);
        match self.rule {
            Names::Journal => {
                let last = self.unsynced_names.iter().rposition(is_here);
                for change in self.unsynced_names.drain(..last.map_or(0, |last| last + 1)) {
                    apply_name(&mut self.durable_names, &change);
                }
            }
            Names::Strict => {
                let changes = std::mem::take(&mut self.unsynced_names);
                for change in changes {
                    if is_here(&change) {
                        apply_name(&mut self.durable_names, &change);
                    } else {
                        self.unsynced_names.push(change);
                    }
                }
            }
        }
    }

    /// The disk after a crash, switched on again.
    #[must_use]
    pub fn crash(&self, cut: Cut, fill: Fill, rng: &mut fastrand::Rng) -> Self {
        let names = self.names_after(cut, rng);
        // One temper for the whole disk most of the time: mixtures of everything are nearly always the same garbage.
        let temper = rng.u8(0..8);
        let mut bits = match cut {
            Cut::Subset { writes, .. } => writes,
            _ => 0,
        };
        let mut inodes = BTreeMap::new();
        for (&number, inode) in &self.inodes {
            let count = inode.versions.len();
            let (bytes, modified) = match cut {
                Cut::Process => (inode.cached.as_ref().clone(), inode.modified),
                Cut::Nothing => inode.after(Choice::Durable, fill, rng),
                Cut::Subset { .. } => {
                    let (own, rest) = (bits & low_bits(count), bits >> count.min(63));
                    bits = rest;
                    inode.subset(own, fill, 0)
                }
                Cut::Random => {
                    let choice = match temper {
                        0 => Choice::Cached,
                        1 => Choice::Version(rng.usize(..=count)),
                        2 => Choice::Mixed,
                        _ => match rng.u8(0..5) {
                            0 => Choice::Durable,
                            1 => Choice::Cached,
                            2 => Choice::Version(rng.usize(..=count)),
                            _ => Choice::Mixed,
                        },
                    };
                    inode.after(choice, fill, rng)
                }
            };
            let mut after = Inode {
                cached: Arc::new(bytes),
                modified,
                durable_modified: modified,
                ..Inode::default()
            };
            if cut == Cut::Process {
                // The system goes on: what is lost or unsynced is so still.
                after = inode.clone();
            } else {
                after.durable = Arc::clone(&after.cached);
            }
            inodes.insert(number, after);
        }
        let mut world = Self {
            inodes,
            names,
            ticks: self.ticks + 1_000,
            ..self.clone()
        };
        if cut != Cut::Process {
            world.inodes.retain(|number, _| {
                world
                    .names
                    .values()
                    .any(|node| *node == Node::File(*number))
            });
            world.durable_names = world.names.clone();
            world.unsynced_names.clear();
            world.boots += 1;
        }
        world
    }

    /// How often the machine was started.
    #[must_use]
    pub const fn boots(&self) -> u64 {
        self.boots
    }

    fn names_after(&self, cut: Cut, rng: &mut fastrand::Rng) -> BTreeMap<Name, Node> {
        let mut names = self.durable_names.clone();
        let count = self.unsynced_names.len();
        let prefix = match cut {
            Cut::Process => return self.names.clone(),
            Cut::Nothing => 0,
            Cut::Subset { names, .. } => names,
            Cut::Random => match rng.u8(0..4) {
                0 => 0,
                1 => count,
                _ => rng.usize(..=count),
            },
        };
        let is_strict = self.rule == Names::Strict && cut == Cut::Random && rng.bool();
        for (slot, change) in self.unsynced_names.iter().enumerate() {
            if if is_strict { rng.bool() } else { slot < prefix } {
                apply_name(&mut names, change);
            }
        }
        names
    }
}

/// Directories whose names a change changes.
fn directories_of(change: &Change) -> Vec<&str> {
    match change {
        Change::Create { path, .. }
        | Change::MakeDirectory { path }
        | Change::Unlink { path, .. } => parent(path).into_iter().collect(),
        Change::Rename { from, to, .. } => parent(from).into_iter().chain(parent(to)).collect(),
        _ => Vec::new(),
    }
}

fn apply_name(names: &mut BTreeMap<Name, Node>, change: &Change) {
    let mut add = |path: &Name, node: Node| {
        // Of any subset a name in a directory needs the directory.
        let mut above = parent(path);
        while let Some(directory) = above.filter(|directory| !names.contains_key(*directory)) {
            names.insert(Name::from(directory), Node::Directory);
            above = parent(directory);
        }
        names.insert(path.clone(), node);
    };
    match change {
        Change::Create { path, inode } => add(path, Node::File(*inode)),
        Change::MakeDirectory { path } => add(path, Node::Directory),
        Change::Rename { from, to, inode } => {
            add(to, Node::File(*inode));
            if names.get(from) == Some(&Node::File(*inode)) {
                names.remove(from);
            }
        }
        Change::Unlink { path, inode } if names.get(path) == Some(&Node::File(*inode)) => {
            names.remove(path);
        }
        _ => {}
    }
}

fn stat(size: u64, modified: u64, inode: u64) -> FileStat {
    let modified_ms = BEGIN_MS + modified as i64 * 4;
    FileStat {
        size,
        modified_ms,
        modified_ns: i128::from(modified_ms) * 1_000_000,
        id: (7, inode),
    }
}
