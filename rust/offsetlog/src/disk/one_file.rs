//! A disk that shows one file of another disk as the only file of a folder: so a single segment reads as a log.

use super::{Access, Disk, DiskFile, Entry, EntryKind, FileStat, Lock, LockKind};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Shows `file` under another name, in the folder `folder`, which need not be there. Nothing else is on this disk, and nothing on it can
/// be changed.
#[derive(Debug)]
pub(crate) struct OneFileDisk {
    below: Arc<dyn Disk>,
    file: PathBuf,
    folder: PathBuf,
    name: String,
}

impl OneFileDisk {
    pub(crate) const fn new(
        below: Arc<dyn Disk>,
        file: PathBuf,
        folder: PathBuf,
        name: String,
    ) -> Self {
        Self {
            below,
            file,
            folder,
            name,
        }
    }

    /// The file below that is shown at `path`.
    fn file_at(&self, path: &Path) -> io::Result<&Path> {
        let is_it = path.parent() == Some(&self.folder)
            && path
                .file_name()
                .is_some_and(|name| name == self.name.as_str());
        is_it
            .then_some(self.file.as_path())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for OneFileDisk {
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        if directory != self.folder {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(vec![Entry {
            name: self.name.clone(),
            kind: EntryKind::File,
        }])
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.file_at(path)?;
        match access {
            Access::Read => self.below.open(file, access),
            _ => read_only(),
        }
    }

    fn open_uncached(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
        self.below.open_uncached(self.file_at(path)?)
    }

    fn boot_id(&self) -> Option<u128> {
        self.below.boot_id()
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        // The folder changes when the file does.
        if path == self.folder {
            return self.below.stat(&self.file);
        }
        self.below.stat(self.file_at(path)?)
    }

    fn create_directory(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn unlink(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn lock(&self, _: &Path, _: LockKind) -> io::Result<Option<Lock>> {
        read_only()
    }

    fn lock_holder(&self, _: &Path) -> io::Result<Option<Option<i32>>> {
        Ok(None)
    }
}
