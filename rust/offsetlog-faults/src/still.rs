//! A disk that nobody writes to: files in memory, of which single ones are exchanged between two readings.

use offsetlog::disk::{Access, Disk, DiskFile, Entry, EntryKind, FileStat, Lock, LockKind, Map};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Linux's numbers.
const ENOENT: i32 = 2;
const EROFS: i32 = 30;
/// 2023-11-14: long before any real clock.
const MODIFIED_MS: i64 = 1_700_000_000_000;
const DIRECTORY_BYTES: u64 = 4096;

/// Files in memory that can be read. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct StillDisk(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    files: Mutex<BTreeMap<PathBuf, Content>>,
    /// Reads that began behind the end of their file.
    astray: AtomicU64,
    next: AtomicU64,
}

#[derive(Debug, Clone)]
struct Content {
    bytes: Arc<Vec<u8>>,
    /// Zeros behind them, as a sparse file has.
    size: u64,
    inode: u64,
}

impl StillDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a file in its place.
    pub fn put(&self, path: &Path, bytes: &Arc<Vec<u8>>) {
        self.put_sparse(path, bytes, bytes.len() as u64);
    }

    /// Puts a file that says to be `size` bytes long and has zeros behind its first ones.
    pub fn put_sparse(&self, path: &Path, bytes: &Arc<Vec<u8>>, size: u64) {
        let content = Content {
            bytes: Arc::clone(bytes),
            size,
            inode: self.0.next.fetch_add(1, Ordering::Relaxed),
        };
        self.files().insert(path.to_path_buf(), content);
    }

    /// Takes a file away.
    pub fn remove(&self, path: &Path) {
        self.files().remove(path);
    }

    /// Reads that began behind the end of their file, since it was asked last.
    #[must_use]
    pub fn astray(&self) -> u64 {
        self.0.astray.swap(0, Ordering::Relaxed)
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Content>> {
        self.0.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stat(size: u64, inode: u64) -> FileStat {
    FileStat {
        size,
        modified_ms: MODIFIED_MS,
        modified_ns: i128::from(MODIFIED_MS) * 1_000_000,
        id: (0, inode),
    }
}

fn error<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

impl Disk for StillDisk {
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let mut found = BTreeMap::new();
        for path in self.files().keys() {
            let mut parts = match path.strip_prefix(directory) {
                Ok(rest) => rest.components(),
                Err(_) => continue,
            };
            let Some(name) = parts.next() else { continue };
            let kind = match parts.next() {
                Some(_) => EntryKind::Directory,
                None => EntryKind::File,
            };
            found.insert(name.as_os_str().to_string_lossy().into_owned(), kind);
        }
        if found.is_empty() {
            return error(ENOENT);
        }
        let entries = found.into_iter().map(|(name, kind)| Entry { name, kind });
        Ok(entries.collect())
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        if access != Access::Read {
            return error(EROFS);
        }
        match self.files().get(path) {
            Some(content) => Ok(Arc::new(StillFile {
                content: content.clone(),
                disk: Arc::clone(&self.0),
            })),
            None => error(ENOENT),
        }
    }

    fn open_uncached(&self, _: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
        Ok(None)
    }

    fn boot_id(&self) -> Option<u128> {
        None
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        let files = self.files();
        if let Some(content) = files.get(path) {
            return Ok(stat(content.size, content.inode));
        }
        if files.keys().any(|file| file.starts_with(path)) {
            return Ok(stat(DIRECTORY_BYTES, u64::MAX));
        }
        error(ENOENT)
    }

    fn create_directory(&self, _: &Path) -> io::Result<()> {
        error(EROFS)
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        error(EROFS)
    }

    fn unlink(&self, _: &Path) -> io::Result<()> {
        error(EROFS)
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        error(EROFS)
    }

    fn lock(&self, _: &Path, _: LockKind) -> io::Result<Option<Lock>> {
        error(EROFS)
    }

    fn lock_holder(&self, _: &Path) -> io::Result<Option<Option<i32>>> {
        Ok(None)
    }
}

#[derive(Debug)]
struct StillFile {
    content: Content,
    disk: Arc<Shared>,
}

impl DiskFile for StillFile {
    fn stat(&self) -> io::Result<FileStat> {
        Ok(stat(self.content.size, self.content.inode))
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let Content { bytes, size, .. } = &self.content;
        if position > *size {
            self.disk.astray.fetch_add(1, Ordering::Relaxed);
        }
        let count = size.saturating_sub(position).min(buffer.len() as u64) as usize;
        let stored = bytes.get(position.min(*size) as usize..).unwrap_or(&[]);
        let (front, rest) = buffer[..count].split_at_mut(stored.len().min(count));
        front.copy_from_slice(&stored[..front.len()]);
        rest.fill(0);
        Ok(count)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        error(EROFS)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        error(EROFS)
    }

    fn sync_data(&self) -> io::Result<()> {
        error(EROFS)
    }

    fn sync_all(&self) -> io::Result<()> {
        error(EROFS)
    }

    fn map(&self, _: u64) -> Option<Map> {
        None
    }
}
