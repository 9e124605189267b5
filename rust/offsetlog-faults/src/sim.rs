//! A disk in memory that can lose power.

mod inode;
mod world;

use offsetlog::disk::{Access, Disk, DiskFile, Entry, EntryKind, FileStat, Lock, LockKind, Map};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

pub use inode::{Choice, Fill, Inode};
pub use world::{Change, Cut, Name, Names, Node, World, name};

/// Linux's numbers.
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const ENOTEMPTY: i32 = 39;

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Open files.
    handles: AtomicUsize,
    locks: Mutex<BTreeMap<PathBuf, Held>>,
    foreground: ThreadId,
    /// Where calls stop for a moment, so that threads take turns differently each time; 0 for nowhere.
    shaken: AtomicU64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Held {
    shared: usize,
    exclusive: bool,
}

#[derive(Debug)]
struct State {
    world: World,
    recorded: Vec<Change>,
    /// Whether threads other than the one that made the disk have to wait.
    held: bool,
}

impl SimDisk {
    /// A disk that holds `world`.
    #[must_use]
    pub fn new(world: World) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State {
                world,
                recorded: Vec::new(),
                held: false,
            }),
            changed: Condvar::new(),
            handles: AtomicUsize::new(0),
            locks: Mutex::default(),
            foreground: std::thread::current().id(),
            shaken: AtomicU64::new(0),
        }))
    }

    /// What the disk holds now.
    #[must_use]
    pub fn world(&self) -> World {
        self.0.lock().world.clone()
    }

    /// Looks at what the disk holds now.
    pub fn look<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.0.lock().world)
    }

    /// All changes so far.
    #[must_use]
    pub fn recorded(&self) -> Vec<Change> {
        self.0.lock().recorded.clone()
    }

    /// How many changes there were so far.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.0.lock().recorded.len()
    }

    /// Holds back what other threads want to change until [`release`](Self::release): so that a script runs the same way each time.
    pub fn hold(&self) {
        self.0.lock().held = true;
    }

    /// Lets other threads go on.
    pub fn release(&self) {
        self.0.lock().held = false;
        self.0.changed.notify_all();
    }

    /// From now on some calls, other ones for each seed, let other threads go first.
    pub fn shake(&self, seed: u64) {
        self.0.shaken.store(seed | 1, Ordering::SeqCst);
    }

    /// Files that are open.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.0.handles.load(Ordering::SeqCst)
    }

    /// Locks that are held.
    #[must_use]
    pub fn held_locks(&self) -> usize {
        self.0.locks().len()
    }

    /// A sync of a file fails: what was not synced is lost, and reads still show it.
    pub fn fail_sync(&self, file: FileStat) {
        self.0
            .lock()
            .change(Change::FailedSync { inode: file.id.1 });
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locks(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Held>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop_for_a_moment(&self) {
        let before = self.shaken.load(Ordering::Relaxed);
        if before == 0 {
            return;
        }
        let next = before
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407)
            | 1;
        self.shaken.store(next, Ordering::Relaxed);
        match next >> 60 {
            0..8 => {}
            8..13 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(next >> 40 & 0x1f)),
        }
    }

    /// The state, once this thread may go on.
    fn enter(&self) -> MutexGuard<'_, State> {
        self.stop_for_a_moment();
        let mut state = self.lock();
        while state.held && std::thread::current().id() != self.foreground {
            let (next, waited) = self
                .changed
                .wait_timeout(state, Duration::from_secs(5))
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            if waited.timed_out() {
                // The thread of the script waits for this one: then the script is not the same each time, and goes on.
                state.held = false;
            }
        }
        state
    }
}

impl State {
    fn change(&mut self, change: Change) {
        self.world.apply(&change);
        self.recorded.push(change);
    }

    fn directory(&self, path: &Path) -> io::Result<()> {
        match self.world.node(path) {
            Some(Node::Directory) => Ok(()),
            Some(Node::File(_)) => Err(error(ENOTDIR)),
            None => Err(error(ENOENT)),
        }
    }

    fn empty(&self, path: &Path) -> io::Result<()> {
        match self.world.children(path).next() {
            Some(_) => Err(error(ENOTEMPTY)),
            None => Ok(()),
        }
    }

    fn create(&mut self, path: &Path) -> io::Result<u64> {
        self.directory(path.parent().unwrap_or(Path::new("/")))?;
        let inode = self.world.next_inode();
        self.change(Change::Create {
            path: name(path),
            inode,
        });
        Ok(inode)
    }

    fn file(&self, path: &Path) -> io::Result<Option<u64>> {
        match self.world.node(path) {
            Some(Node::File(inode)) => Ok(Some(inode)),
            Some(Node::Directory) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            )),
            None => Ok(None),
        }
    }
}

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl Disk for SimDisk {
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let state = self.0.enter();
        state.directory(directory)?;
        let entries = state.world.children(directory).map(|(name, node)| Entry {
            name: name.to_owned(),
            kind: match node {
                Node::File(_) => EntryKind::File,
                Node::Directory => EntryKind::Directory,
            },
        });
        Ok(entries.collect())
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.0.enter();
        let inode = match (state.file(path)?, access) {
            (Some(_), Access::Create) => return Err(error(EEXIST)),
            (Some(inode), Access::Replace) => {
                state.change(Change::SetLen { inode, size: 0 });
                inode
            }
            (Some(inode), _) => inode,
            (None, Access::Read | Access::Write) => return Err(error(ENOENT)),
            (None, _) => state.create(path)?,
        };
        drop(state);
        Ok(Arc::new(SimFile::new(&self.0, inode, true)))
    }

    fn open_uncached(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let inode = self.0.enter().file(path)?.ok_or_else(|| error(ENOENT))?;
        Ok(Some(Arc::new(SimFile::new(&self.0, inode, false))))
    }

    fn boot_id(&self) -> Option<u128> {
        Some(u128::from(self.0.enter().world.boots()))
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        let state = self.0.enter();
        state.world.stat(path).ok_or_else(|| error(ENOENT))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.enter();
        let mut missing: Vec<&Path> = path
            .ancestors()
            .take_while(|ancestor| state.world.node(ancestor).is_none())
            .collect();
        missing.reverse();
        for directory in missing {
            state.change(Change::MakeDirectory {
                path: name(directory),
            });
        }
        state.directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.enter();
        state.directory(to.parent().unwrap_or(Path::new("/")))?;
        if state.world.node(from) == Some(Node::Directory) {
            match state.world.node(to) {
                Some(Node::Directory) => state.empty(to)?,
                Some(Node::File(_)) => return Err(error(ENOTDIR)),
                None => {}
            }
            let (from, to) = (name(from), name(to));
            state.change(Change::RenameDirectory { from, to });
            return Ok(());
        }
        let Some(inode) = state.file(from)? else {
            return Err(error(ENOENT));
        };
        state.file(to)?;
        state.change(Change::Rename {
            from: name(from),
            to: name(to),
            inode,
        });
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.enter();
        let Some(inode) = state.file(path)? else {
            return Err(error(ENOENT));
        };
        state.change(Change::Unlink {
            path: name(path),
            inode,
        });
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.enter();
        state.directory(path)?;
        state.empty(path)?;
        state.change(Change::RemoveDirectory { path: name(path) });
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.enter();
        state.directory(path)?;
        state.change(Change::SyncDirectory { path: name(path) });
        Ok(())
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Option<Lock>> {
        let mut state = self.0.enter();
        if state.file(path)?.is_none() {
            state.create(path)?;
        }
        drop(state);
        let mut locks = self.0.locks();
        let held = locks.entry(path.to_path_buf()).or_default();
        match kind {
            _ if held.exclusive => return Ok(None),
            LockKind::Exclusive if held.shared > 0 => return Ok(None),
            LockKind::Exclusive => held.exclusive = true,
            LockKind::Shared => held.shared += 1,
        }
        Ok(Some(Lock::simulated(SimLock {
            disk: Arc::clone(&self.0),
            path: path.to_path_buf(),
            kind,
        })))
    }

    fn lock_holder(&self, path: &Path) -> io::Result<Option<Option<i32>>> {
        let locks = self.0.locks();
        Ok(locks.get(path).filter(|held| held.exclusive).map(|_| None))
    }
}

#[derive(Debug)]
struct SimLock {
    disk: Arc<Shared>,
    path: PathBuf,
    kind: LockKind,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut locks = self.disk.locks();
        let Some(held) = locks.get_mut(&self.path) else {
            return;
        };
        match self.kind {
            LockKind::Exclusive => held.exclusive = false,
            LockKind::Shared => held.shared -= 1,
        }
        if !held.exclusive && held.shared == 0 {
            locks.remove(&self.path);
        }
    }
}

#[derive(Debug)]
struct SimFile {
    disk: Arc<Shared>,
    inode: u64,
    cached: bool,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.disk.handles.fetch_sub(1, Ordering::SeqCst);
    }
}

impl SimFile {
    fn new(disk: &Arc<Shared>, inode: u64, cached: bool) -> Self {
        disk.handles.fetch_add(1, Ordering::SeqCst);
        Self {
            disk: Arc::clone(disk),
            inode,
            cached,
        }
    }

    fn change(&self, change: Change) -> io::Result<()> {
        self.disk.enter().change(change);
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn stat(&self) -> io::Result<FileStat> {
        Ok(self.disk.enter().world.stat_inode(self.inode))
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let state = self.disk.enter();
        let inode = state.world.inode(self.inode);
        let past_the_cache;
        let bytes = if self.cached {
            inode.cached()
        } else {
            past_the_cache = inode.uncached();
            &past_the_cache
        };
        let begin = bytes.len().min(position as usize);
        let count = buffer.len().min(bytes.len() - begin);
        buffer[..count].copy_from_slice(&bytes[begin..begin + count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.change(Change::Write {
            inode: self.inode,
            position: position as usize,
            bytes: bytes.into(),
        })
    }

    fn write_parts_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()> {
        self.write_at(&parts.concat(), position)
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        self.change(Change::SetLen {
            inode: self.inode,
            size: size as usize,
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(Change::Sync {
            inode: self.inode,
            times: false,
        })
    }

    fn sync_all(&self) -> io::Result<()> {
        self.change(Change::Sync {
            inode: self.inode,
            times: true,
        })
    }

    fn map(&self, _size: u64) -> Option<Map> {
        None
    }
}
