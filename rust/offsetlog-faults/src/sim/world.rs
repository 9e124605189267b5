//! What a simulated disk holds: files ([`super::inode`]) and names, what of them is on the disk and what only the system knows, and
//! what of it a loss of power may leave.

use super::inode::{Choice, Fill, Inode, SECTOR, low_bits};
use offsetlog::disk::FileStat;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
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
    /// With all that is in it.
    RenameDirectory {
        from: Name,
        to: Name,
    },
    RemoveDirectory {
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
                Some(stat(4096, modified, directory_id(path)))
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
            Change::MakeDirectory { .. }
            | Change::RenameDirectory { .. }
            | Change::RemoveDirectory { .. }
            | Change::Rename { .. }
            | Change::Unlink { .. } => {
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
        | Change::RemoveDirectory { path }
        | Change::Unlink { path, .. } => parent(path).into_iter().collect(),
        Change::Rename { from, to, .. } | Change::RenameDirectory { from, to } => {
            parent(from).into_iter().chain(parent(to)).collect()
        }
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
        Change::RenameDirectory { from, to } => {
            add(to, Node::Directory);
            let front = format!("{from}/");
            let moved: Vec<Name> = names
                .keys()
                .filter(|path| path.starts_with(&front))
                .cloned()
                .collect();
            for path in moved {
                let node = names.remove(&path).expect("a name");
                names.insert(Name::from(format!("{to}/{}", &path[front.len()..])), node);
            }
            names.remove(from);
        }
        Change::RemoveDirectory { path } => {
            let front = format!("{path}/");
            if !names.keys().any(|other| other.starts_with(&front)) {
                names.remove(path);
            }
        }
        Change::Unlink { path, inode } if names.get(path) == Some(&Node::File(*inode)) => {
            names.remove(path);
        }
        _ => {}
    }
}

/// Each directory has its own; files are numbered from 1 on.
fn directory_id(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish() | 1 << 63
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
