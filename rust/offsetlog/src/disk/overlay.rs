//! A disk that shows another disk and keeps all changes in memory, for dry runs.
//!
//! Code that runs on it does the real work and finds the results that the real work would leave. The disk below is only read.
//! Changed bytes are kept in pages, in memory and, where there are many, in a file without a name.

use super::pages::{PAGE, Page, Pages};
use super::{Access, Disk, DiskFile, Entry, EntryKind, FileStat, Lock, LockKind, Map, wall_clock};
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// No file system has this device number, so a file created here is never taken for a file below.
const DEVICE: u64 = u64::MAX;

/// A disk that shows another disk and keeps all changes to itself. Deletions and writes are visible only here. Locks are only queried,
/// never taken: locking fails if the lock is held below, unless the holder itself made the overlay.
#[derive(Debug)]
pub struct OverlayDisk {
    below: Arc<dyn Disk>,
    /// The process that made this overlay holds the locks below.
    is_of_holder: bool,
    /// The files and directories that differ from the disk below, by path.
    nodes: Mutex<HashMap<PathBuf, Node>>,
    pages: Arc<Pages>,
    made: AtomicU64,
}

#[derive(Debug, Clone)]
enum Node {
    File(Arc<OverlayFile>),
    Directory,
    Gone,
}

impl OverlayDisk {
    /// Whether the disk below has something of this name.
    fn is_below(&self, path: &Path) -> io::Result<bool> {
        match self.below.stat(path) {
            Ok(_) => Ok(true),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// An overlay over `below` without changes.
    #[must_use]
    pub fn new(below: Arc<dyn Disk>) -> Self {
        Self {
            below,
            is_of_holder: false,
            nodes: Mutex::default(),
            pages: Arc::default(),
            made: AtomicU64::new(0),
        }
    }

    /// An overlay over `below` without changes, for a caller that holds the locks of everything it opens here: no lock is refused.
    pub(crate) fn of_holder(below: Arc<dyn Disk>) -> Self {
        Self {
            is_of_holder: true,
            ..Self::new(below)
        }
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<PathBuf, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a file that does not exist below.
    fn make(&self) -> Arc<OverlayFile> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        Arc::new(OverlayFile {
            below: None,
            id: (DEVICE, number),
            store: Arc::clone(&self.pages),
            content: Mutex::new(Content {
                pages: BTreeMap::new(),
                size: 0,
                seen: 0,
                modified_ns: now_ns(),
            }),
        })
    }

    /// Opens a file here. While it is open, so is the file below that it has bytes of, and no longer: a dry run over many partitions
    /// may not have a descriptor for each.
    fn opened(&self, file: Arc<OverlayFile>) -> io::Result<Arc<dyn DiskFile>> {
        let has_bytes_below = file.content().seen > 0;
        let below = match &file.below {
            Some(path) if has_bytes_below => {
                let below = self.below.open(path, Access::Read)?;
                if below.stat()?.id != file.id {
                    // Another file has its name by now.
                    return Err(io::ErrorKind::NotFound.into());
                }
                Some(below)
            }
            _ => None,
        };
        Ok(Arc::new(OpenFile { file, below }))
    }

    /// A file of the disk below, so that it can be changed here.
    fn over(&self, path: &Path) -> io::Result<Arc<OverlayFile>> {
        let stat = self.below.open(path, Access::Read)?.stat()?;
        Ok(Arc::new(OverlayFile {
            below: Some(path.to_path_buf()),
            id: stat.id,
            store: Arc::clone(&self.pages),
            content: Mutex::new(Content {
                pages: BTreeMap::new(),
                size: stat.size,
                seen: stat.size,
                modified_ns: stat.modified_ns,
            }),
        }))
    }

    fn parent_is_there(&self, nodes: &HashMap<PathBuf, Node>, path: &Path) -> io::Result<()> {
        let parent = path.parent().unwrap_or(Path::new(""));
        match nodes.get(parent) {
            Some(Node::Directory) => Ok(()),
            Some(Node::Gone) => Err(io::ErrorKind::NotFound.into()),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => self.below.stat(parent).map(drop),
        }
    }
}

impl Disk for OverlayDisk {
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let nodes = self.nodes();
        let mut entries: BTreeMap<String, EntryKind> = match nodes.get(directory) {
            Some(Node::Gone) => return Err(io::ErrorKind::NotFound.into()),
            Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
            Some(Node::Directory) => BTreeMap::new(),
            None => {
                let listed = self.below.list(directory)?.into_iter();
                listed.map(|entry| (entry.name, entry.kind)).collect()
            }
        };
        for (path, node) in nodes.iter() {
            let name = path.file_name().and_then(|name| name.to_str());
            let (Some(name), true) = (name, path.parent() == Some(directory)) else {
                continue;
            };
            match node {
                Node::Gone => drop(entries.remove(name)),
                Node::File(_) => drop(entries.insert(name.to_owned(), EntryKind::File)),
                Node::Directory => drop(entries.insert(name.to_owned(), EntryKind::Directory)),
            }
        }
        let entries = entries.into_iter();
        Ok(entries.map(|(name, kind)| Entry { name, kind }).collect())
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut nodes = self.nodes();
        let known = match nodes.get(path) {
            Some(Node::Directory) => return Err(io::ErrorKind::InvalidInput.into()),
            Some(Node::File(file)) => Some(Some(Arc::clone(file))),
            Some(Node::Gone) => Some(None),
            None => None,
        };
        let is_below = known.is_none() && self.is_below(path)?;
        let is_there = is_below || matches!(known, Some(Some(_)));
        match access {
            Access::Read => match known {
                Some(Some(file)) => return self.opened(file),
                Some(None) => return Err(io::ErrorKind::NotFound.into()),
                None => return self.below.open(path, Access::Read),
            },
            Access::Write if !is_there => return Err(io::ErrorKind::NotFound.into()),
            Access::Create if is_there => return Err(io::ErrorKind::AlreadyExists.into()),
            _ => {}
        }
        let file = match known {
            Some(Some(file)) => file,
            _ if is_below => self.over(path)?,
            _ => {
                self.parent_is_there(&nodes, path)?;
                self.make()
            }
        };
        let open = self.opened(Arc::clone(&file))?;
        if access == Access::Replace {
            open.set_len(0)?;
        }
        nodes.insert(path.to_path_buf(), Node::File(file));
        Ok(open)
    }

    fn open_uncached(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
        // A file that was not changed here can be read below past the page cache. A changed one is only in memory.
        let is_known = self.nodes().contains_key(path);
        if is_known {
            Ok(None)
        } else {
            self.below.open_uncached(path)
        }
    }

    fn boot_id(&self) -> Option<u128> {
        self.below.boot_id()
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        let node = self.nodes().get(path).cloned();
        match node {
            Some(Node::File(file)) => Ok(file.stat()),
            Some(Node::Gone) => Err(io::ErrorKind::NotFound.into()),
            Some(Node::Directory) => Ok(FileStat {
                size: 0,
                modified_ms: wall_clock(),
                modified_ns: now_ns(),
                id: (DEVICE, directory_id(path)),
            }),
            None => self.below.stat(path),
        }
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut nodes = self.nodes();
        for made in path.ancestors() {
            match nodes.get(made) {
                Some(Node::Directory) => break,
                Some(Node::File(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
                None if self.is_below(made)? => break,
                Some(Node::Gone) | None => drop(nodes.insert(made.to_path_buf(), Node::Directory)),
            }
        }
        Ok(())
    }

    /// Renames files only. Directories cannot be renamed here.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut nodes = self.nodes();
        let file = match nodes.get(from) {
            Some(Node::File(file)) => Arc::clone(file),
            Some(Node::Gone) => return Err(io::ErrorKind::NotFound.into()),
            Some(Node::Directory) => return Err(io::ErrorKind::Unsupported.into()),
            None => self.over(from)?,
        };
        nodes.insert(from.to_path_buf(), Node::Gone);
        nodes.insert(to.to_path_buf(), Node::File(file));
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut nodes = self.nodes();
        match nodes.get(path) {
            Some(Node::Gone) => return Err(io::ErrorKind::NotFound.into()),
            Some(Node::Directory) => return Err(io::ErrorKind::IsADirectory.into()),
            Some(Node::File(_)) => {}
            None => drop(self.below.stat(path)?),
        }
        nodes.insert(path.to_path_buf(), Node::Gone);
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        if !self.list(path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.nodes().insert(path.to_path_buf(), Node::Gone);
        Ok(())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path, _: LockKind) -> io::Result<Option<Lock>> {
        if self.is_of_holder {
            return Ok(Some(Lock::unneeded()));
        }
        let holder = self.below.lock_holder(path)?;
        Ok(holder.is_none().then(Lock::unneeded))
    }

    fn lock_holder(&self, path: &Path) -> io::Result<Option<Option<i32>>> {
        self.below.lock_holder(path)
    }
}

/// Tells a directory that exists only here from every other one.
fn directory_id(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

/// A file with pages that differ from the file below, or a file that exists only here.
#[derive(Debug)]
struct OverlayFile {
    /// The path of the file below.
    below: Option<PathBuf>,
    id: (u64, u64),
    store: Arc<Pages>,
    content: Mutex<Content>,
}

/// A file that is open here.
#[derive(Debug)]
struct OpenFile {
    file: Arc<OverlayFile>,
    below: Option<Arc<dyn DiskFile>>,
}

#[derive(Debug)]
struct Content {
    pages: BTreeMap<u64, Page>,
    size: u64,
    /// Below this position, bytes without a page come from the file below.
    seen: u64,
    modified_ns: i128,
}

impl OverlayFile {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stat(&self) -> FileStat {
        let content = self.content();
        FileStat {
            size: content.size,
            modified_ms: i64::try_from(content.modified_ns.div_euclid(1_000_000))
                .unwrap_or(i64::MAX),
            modified_ns: content.modified_ns,
            id: self.id,
        }
    }
}

impl OpenFile {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.file.content()
    }

    /// Returns the current contents of a page.
    fn page(&self, content: &Content, number: u64) -> io::Result<Vec<u8>> {
        if let Some(page) = content.pages.get(&number) {
            return page.bytes();
        }
        let mut page = vec![0; PAGE as usize];
        let start = number * PAGE;
        let seen = content.seen.saturating_sub(start).min(PAGE) as usize;
        if let (Some(below), Some(front)) = (&self.below, page.get_mut(..seen))
            && seen > 0
        {
            below.read_at(front, start)?;
        }
        Ok(page)
    }

    fn keep(&self, content: &mut Content, number: u64, page: Vec<u8>) -> io::Result<()> {
        let before = content.pages.remove(&number);
        let page = self.file.store.keep(page, before)?;
        content.pages.insert(number, page);
        Ok(())
    }
}

impl DiskFile for OpenFile {
    fn stat(&self) -> io::Result<FileStat> {
        Ok(self.file.stat())
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let content = self.content();
        let left = content.size.saturating_sub(position);
        let count = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let buffer = buffer.get_mut(..count).unwrap_or_default();
        if let Some(below) = &self.below
            && content.pages.is_empty()
            && position + count as u64 <= content.seen
        {
            return below.read_at(buffer, position);
        }
        let mut at = position;
        let mut rest = buffer;
        while !rest.is_empty() {
            let page = self.page(&content, at / PAGE)?;
            let from = page.get((at % PAGE) as usize..).unwrap_or_default();
            let some = from.len().min(rest.len());
            let (now, later) = rest.split_at_mut(some);
            now.copy_from_slice(from.get(..some).unwrap_or_default());
            rest = later;
            at += some as u64;
        }
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut content = self.content();
        let (mut at, mut rest) = (position, bytes);
        while !rest.is_empty() {
            let number = at / PAGE;
            let mut page = self.page(&content, number)?;
            let to = page.get_mut((at % PAGE) as usize..).unwrap_or_default();
            let some = to.len().min(rest.len());
            let (now, later) = rest.split_at(some);
            to.get_mut(..some).unwrap_or_default().copy_from_slice(now);
            self.keep(&mut content, number, page)?;
            rest = later;
            at += some as u64;
        }
        content.size = content.size.max(at);
        content.modified_ns = now_ns();
        Ok(())
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        let mut content = self.content();
        if size < content.size {
            // If the file grows again, the new bytes must be zeros and not the old bytes.
            if !size.is_multiple_of(PAGE) {
                let mut page = self.page(&content, size / PAGE)?;
                page.get_mut((size % PAGE) as usize..)
                    .unwrap_or_default()
                    .fill(0);
                self.keep(&mut content, size / PAGE, page)?;
            }
            content.pages.retain(|number, _| number * PAGE < size);
            content.seen = content.seen.min(size);
        }
        content.size = size;
        content.modified_ns = now_ns();
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_modified(&self, modified_ms: i64) -> io::Result<()> {
        self.content().modified_ns = i128::from(modified_ms) * 1_000_000;
        Ok(())
    }

    fn map(&self, _: u64) -> Option<Map> {
        None
    }
}

fn now_ns() -> i128 {
    i128::from(wall_clock()) * 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{RealDisk, read_whole, write_whole};

    /// Makes random calls on an overlay and on a real folder and compares the results. The folder below must not change.
    #[test]
    fn what_is_seen_is_what_a_real_disk_shows() {
        for memory_max in [u64::MAX, 5 * PAGE, 0] {
            let overlay = OverlayDisk {
                pages: Arc::new(Pages::with_memory(memory_max)),
                ..OverlayDisk::new(Arc::new(RealDisk))
            };
            compare(&overlay);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_below_is_open_for_as_long_as_here() {
        let folder = tempfile::tempdir().unwrap();
        let open_below = || {
            let all = std::fs::read_dir("/proc/self/fd").unwrap();
            let paths = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
            paths.filter(|path| path.starts_with(folder.path())).count()
        };
        let overlay = OverlayDisk::new(Arc::new(RealDisk));
        let (path, moved) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&path, b"bytes").unwrap();
        let file = overlay.open(&path, Access::Write).unwrap();
        file.write_at(b"B", 0).unwrap();
        assert_eq!(open_below(), 1);
        drop(file);
        overlay.rename(&path, &moved).unwrap();
        assert_eq!(open_below(), 0);
        assert_eq!(read_whole(&overlay, &moved, u64::MAX).unwrap(), b"Bytes");
        // What has that name below by now is another file.
        std::fs::write(folder.path().join("c"), b"other").unwrap();
        std::fs::rename(folder.path().join("c"), &path).unwrap();
        let error = overlay.open(&moved, Access::Read).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    fn compare(overlay: &OverlayDisk) {
        let (below, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut state = 7_u64;
        let mut draw = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % bound
        };
        for name in ["a", "b", "c"] {
            let bytes: Vec<u8> = (0..draw(20_000)).map(|_| draw(256) as u8).collect();
            std::fs::write(below.path().join(name), &bytes).unwrap();
            std::fs::write(other.path().join(name), &bytes).unwrap();
        }
        let before: Vec<_> = ["a", "b", "c"]
            .map(|name| std::fs::read(below.path().join(name)).unwrap())
            .into();
        for _ in 0..600 {
            let name = ["a", "b", "c", "d"][draw(4) as usize];
            let target = ["a", "b", "c", "d"][draw(4) as usize];
            let (what, at) = (draw(7), draw(22_000));
            let bytes: Vec<u8> = (0..draw(9000)).map(|_| draw(256) as u8).collect();
            let done = [overlay as &dyn Disk, &RealDisk].map(|disk| {
                let folder = if std::ptr::addr_eq(disk, std::ptr::from_ref(overlay)) {
                    &below
                } else {
                    &other
                };
                let path = folder.path().join(name);
                match what {
                    0 => disk
                        .open(&path, Access::Write)
                        .and_then(|file| file.write_at(&bytes, at))
                        .is_ok(),
                    1 => disk
                        .open(&path, Access::WriteOrCreate)
                        .and_then(|file| file.set_len(at))
                        .is_ok(),
                    2 => disk
                        .open(&path, Access::Create)
                        .and_then(|file| file.write_at(&bytes, 0))
                        .is_ok(),
                    3 => disk.unlink(&path).is_ok(),
                    4 => write_whole(disk, &path, &bytes).is_ok(),
                    5 if name != target => disk.rename(&path, &folder.path().join(target)).is_ok(),
                    _ => disk.open(&path, Access::Replace).is_ok(),
                }
            });
            assert_eq!(done[0], done[1], "{what} {name}");
            let names = |disk: &dyn Disk, folder: &Path| {
                let mut names: Vec<_> = disk
                    .list(folder)
                    .unwrap()
                    .into_iter()
                    .map(|entry| entry.name)
                    .collect();
                names.sort();
                names
            };
            assert_eq!(names(overlay, below.path()), names(&RealDisk, other.path()));
            for name in names(overlay, below.path()) {
                let seen = read_whole(overlay, &below.path().join(&name), u64::MAX).unwrap();
                let real = std::fs::read(other.path().join(&name)).unwrap();
                assert!(
                    seen == real,
                    "{name}: {} and {} bytes",
                    seen.len(),
                    real.len()
                );
            }
        }
        let after: Vec<_> = ["a", "b", "c"]
            .map(|name| std::fs::read(below.path().join(name)).unwrap())
            .into();
        assert!(after == before);
        assert_eq!(std::fs::read_dir(below.path()).unwrap().count(), 3);
    }
}
