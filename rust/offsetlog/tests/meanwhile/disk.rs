//! The system's disk, on which another process or thread does something between two calls.

use offsetlog::disk::{Access, Disk, DiskFile, Entry, FileStat, Lock, LockKind, Map, RealDisk};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What the other process does, and the lock file that was opened before it did so.
pub(crate) type Work = Box<dyn FnOnce() -> PathBuf + Send>;

/// What it does before a segment or the state file is read.
pub(crate) type Cut = Box<dyn FnOnce() + Send>;

/// What is done before each file gets another name, which may fail.
pub(crate) type Step = Box<dyn FnMut() -> io::Result<()> + Send>;

/// What is done before each file or folder of a deleted topic is removed, which may fail.
pub(crate) type Removal = Box<dyn FnMut() -> io::Result<()> + Send>;

/// The system's disk, on which another process does something once: when a partition is about to be locked, whose lock file is open by then,
/// or when a segment is about to be read, which is open by then. That process has the partition in the second case.
#[derive(Clone, Default)]
pub(crate) struct Meanwhile {
    pub(crate) before_lock: Arc<Mutex<Option<Work>>>,
    pub(crate) before_read: Arc<Mutex<Option<Cut>>>,
    pub(crate) before_removal: Arc<Mutex<Option<Removal>>>,
    pub(crate) before_state: Arc<Mutex<Option<Cut>>>,
    pub(crate) before_rename: Arc<Mutex<Option<Step>>>,
    pub(crate) failing_sync: Arc<Mutex<Option<io::Error>>>,
    pub(crate) is_held: bool,
}

impl Meanwhile {
    fn remove(&self, path: &Path) -> io::Result<()> {
        if !path.to_string_lossy().contains("-delete") {
            return Ok(());
        }
        let mut work = self.before_removal.lock().unwrap();
        work.as_mut().map_or(Ok(()), |work| work())
    }
}

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

/// A segment.
#[derive(Debug)]
struct MeanwhileFile(Arc<dyn DiskFile>, Meanwhile);

impl DiskFile for MeanwhileFile {
    fn stat(&self) -> io::Result<FileStat> {
        self.0.stat()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let work = self.1.before_read.lock().unwrap().take();
        if let Some(work) = work {
            work();
        }
        self.0.read_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.write_at(bytes, position)
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn map(&self, size: u64) -> Option<Map> {
        self.0.map(size)
    }
}

impl Disk for Meanwhile {
    fn is_systems(&self) -> bool {
        true
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        RealDisk.list(directory)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        if path.ends_with(".offsetlog.state")
            && let Some(work) = self.before_state.lock().unwrap().take()
        {
            work();
        }
        let file = RealDisk.open(path, access)?;
        if path.extension().is_some_and(|extension| extension == "log") {
            return Ok(Arc::new(MeanwhileFile(file, self.clone())));
        }
        Ok(file)
    }

    fn open_uncached(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
        RealDisk.open_uncached(path)
    }

    fn boot_id(&self) -> Option<u128> {
        RealDisk.boot_id()
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        RealDisk.stat(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if let Some(step) = &mut *self.before_rename.lock().unwrap() {
            step()?;
        }
        RealDisk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.remove(path)?;
        RealDisk.unlink(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.remove(path)?;
        RealDisk.remove_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let failure = self.failing_sync.lock().unwrap().take();
        failure.map_or_else(|| RealDisk.sync_directory(path), Err)
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Option<Lock>> {
        let work = if path.ends_with(".offsetlog.lock") {
            self.before_lock.lock().unwrap().take()
        } else {
            None
        };
        match work {
            Some(work) => RealDisk.lock(&work(), kind),
            None => RealDisk.lock(path, kind),
        }
    }

    fn lock_holder(&self, path: &Path) -> io::Result<Option<Option<i32>>> {
        if self.is_held {
            return Ok(Some(None));
        }
        RealDisk.lock_holder(path)
    }
}
