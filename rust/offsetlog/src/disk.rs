//! All file system calls behind one trait, so that the engine also runs on a simulated or failing disk.
//!
//! Nothing above this module names `std::fs`. The module knows files and directories, not their contents.

#[cfg(target_os = "linux")]
mod directory;
mod io_call;
mod lock;
mod looked_at;
mod map;
mod one_file;
mod overlay;
mod pages;
mod process;
mod random;
mod real;
#[cfg(target_os = "linux")]
mod watch;

use std::ffi::OsStr;
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use io_call::IoCall;
pub use lock::{Lock, close_inherited_locks};
pub(crate) use looked_at::{LookedAt, Moment};
pub use map::Map;
pub(crate) use one_file::OneFileDisk;
pub use overlay::OverlayDisk;
pub(crate) use process::open_files_max;
pub use process::process_id;
pub use random::random;
pub use real::{RealDisk, wall_clock};

/// Alignment of reads past the page cache, in memory and in the file, in bytes.
pub const UNCACHED_ALIGNMENT: usize = 4096;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name. Listings leave out names that are not UTF-8: Kafka writes none.
    pub name: String,
    /// Whether it is a regular file, a directory or anything else.
    pub kind: EntryKind,
}

/// Kinds of directory entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A link, a pipe or a device: never followed, never opened.
    Other,
}

/// Metadata of a file at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// Size in bytes.
    pub size: u64,
    /// Modification time in milliseconds since 1970.
    pub modified_ms: i64,
    /// Modification time in nanoseconds since 1970. Shows whether a directory changed.
    pub modified_ns: i128,
    /// Device and inode. Shows whether a name still refers to the same file.
    pub id: (u64, u64),
}

impl FileStat {
    /// From what the system tells: size in bytes, modification time in whole seconds since 1970 and nanoseconds, device and inode.
    fn new(size: u64, (seconds, nanoseconds): (i64, i64), id: (u64, u64)) -> Self {
        let modified_ns = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        Self {
            size,
            modified_ms: i64::try_from(modified_ns.div_euclid(1_000_000)).unwrap_or(i64::MAX),
            modified_ns,
            id,
        }
    }

    /// Whether the next change could leave the modification time as it is: a file system counts time in clock ticks.
    pub(crate) fn is_racy(&self) -> bool {
        const TICK_MS: i64 = 20;
        (0..TICK_MS).contains(&wall_clock().saturating_sub(self.modified_ms))
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read only. Changes nothing, not even access times where the system allows that.
    Read,
    /// Read and write. The file must exist.
    Write,
    /// Read and write. The file must not exist.
    Create,
    /// Read and write. Creates the file if it does not exist, otherwise leaves its contents.
    WriteOrCreate,
    /// Read and write. Creates the file if it does not exist, otherwise empties it.
    Replace,
}

/// How a file is locked against other processes and against other handles in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Many handles may hold it at once. Excludes exclusive locks.
    Shared,
    /// One handle may hold it.
    Exclusive,
}

/// A file system.
pub trait Disk: Debug + Send + Sync {
    /// Lists a directory in no particular order.
    ///
    /// # Errors
    /// The system's.
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>>;

    /// Opens a directory, to look at it and list it: what both return is of one directory, whatever its name leads to meanwhile. Costs
    /// less than to do the same by its path. `None` if only that can be done.
    ///
    /// # Errors
    /// The system's.
    fn open_directory(&self, path: &Path) -> io::Result<Option<Box<dyn DiskDirectory>>> {
        let _ = path;
        Ok(None)
    }

    /// Opens a regular file. Does not follow links, and refuses anything that is not a regular file.
    ///
    /// # Errors
    /// The system's; `InvalidInput` if it is not a regular file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a regular file for reads that bypass the page cache, to see what the disk holds. Buffers, positions and lengths
    /// must be multiples of [`UNCACHED_ALIGNMENT`]. Returns `None` if the file system does not support that.
    ///
    /// # Errors
    /// The system's.
    fn open_uncached(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>>;

    /// An id that changes with each boot; after a boot the page cache holds nothing that the disk does not. `None` if it is
    /// unknown.
    fn boot_id(&self) -> Option<u128>;

    /// Returns the metadata of a file or directory without opening it.
    ///
    /// # Errors
    /// The system's.
    fn stat(&self, path: &Path) -> io::Result<FileStat>;

    /// Returns what tells a file or directory from every other one, as [`FileStat::id`], and nothing more. Since Linux 6.13 a look
    /// at a file's times makes the next write to it store a new time, and its sync waits for that.
    ///
    /// # Errors
    /// The system's.
    fn id(&self, path: &Path) -> io::Result<(u64, u64)> {
        self.stat(path).map(|stat| stat.id)
    }

    /// Whether the path's last name is a symbolic link; `false` if it is not there.
    ///
    /// # Errors
    /// The system's.
    fn is_link(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// The path with all symbolic links resolved; the path itself on a disk without links.
    ///
    /// # Errors
    /// The system's.
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    /// Creates a directory and its parents.
    ///
    /// # Errors
    /// The system's.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Renames within one file system and replaces an existing target.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Deletes a file.
    ///
    /// # Errors
    /// The system's.
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// Deletes an empty directory.
    ///
    /// # Errors
    /// The system's; `Unsupported` on a disk that cannot delete directories.
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Syncs a directory: makes creations, renames and deletions in it durable.
    ///
    /// # Errors
    /// The system's.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Locks a file without waiting, and creates it if it does not exist. The lock ends when the value is dropped or the
    /// process ends; a forked child does not keep it from its parent. Returns `None` if a conflicting lock is held.
    ///
    /// # Errors
    /// The system's.
    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Option<Lock>>;

    /// Returns the process that holds a lock which conflicts with a shared lock on the whole file: a broker on the log dir's
    /// `.lock`, or an offsetlog writer on its partition's. `Some(None)` if the lock is held but the holder is unknown; `None`
    /// if it is free, there is no file, or the file system has no locks.
    ///
    /// # Errors
    /// The system's.
    fn lock_holder(&self, path: &Path) -> io::Result<Option<Option<i32>>>;

    /// Whether this is the operating system's disk, so that all its values are the same disk. All other values are separate
    /// disks.
    fn is_systems(&self) -> bool {
        false
    }

    /// Prepares the process for this many more open files, so that the table of them need not grow step by step: in a process of several
    /// threads each step waits for all processors.
    fn expect_files(&self, count: usize) {
        let _ = count;
    }

    /// Starts watching directories for changes, including the contents of their files. `None` if the system does not support
    /// that.
    ///
    /// # Errors
    /// The system's, which also limits the number of watches.
    fn watch(&self, directories: &[&Path]) -> io::Result<Option<Box<dyn Watch>>> {
        let _ = directories;
        Ok(None)
    }
}

/// An open directory.
pub trait DiskDirectory: Debug + Send + Sync {
    /// Returns the metadata of the directory.
    ///
    /// # Errors
    /// The system's.
    fn stat(&self) -> io::Result<FileStat>;

    /// Lists the directory, as [`Disk::list`]. To be called once: a second call continues where the first one ended.
    ///
    /// # Errors
    /// The system's.
    fn list(&self) -> io::Result<Vec<Entry>>;

    /// As [`list`](Self::list), without a copy of each name: calls `each` with the name and the kind of each entry.
    ///
    /// # Errors
    /// The system's, perhaps behind some calls.
    fn list_each(&self, each: &mut dyn FnMut(&str, EntryKind)) -> io::Result<()> {
        for entry in self.list()? {
            each(&entry.name, entry.kind);
        }
        Ok(())
    }

    /// Opens a regular file in the directory for reading, as [`Disk::open`].
    ///
    /// # Errors
    /// The system's; `InvalidInput` if it is not a regular file.
    fn open(&self, name: &OsStr) -> io::Result<Arc<dyn DiskFile>>;
}

/// A set of watched directories.
pub trait Watch: Debug + Send {
    /// Waits at most `at_most` for a change since the last call. Returns whether there was one.
    ///
    /// # Errors
    /// The system's.
    fn wait(&mut self, at_most: Duration) -> io::Result<bool>;
}

/// An open file. All positions are explicit, so many threads can share one file.
pub trait DiskFile: Debug + Send + Sync {
    /// Returns the metadata of the open file.
    ///
    /// # Errors
    /// The system's.
    fn stat(&self) -> io::Result<FileStat>;

    /// Returns the metadata that the file had when it was opened, if that is known without a call; else what it has now. Its id
    /// stays for as long as the file is open.
    ///
    /// # Errors
    /// The system's.
    fn stat_at_open(&self) -> io::Result<FileStat> {
        self.stat()
    }

    /// Reads from `position` until `buffer` is full or the file ends. Returns the number of bytes read.
    ///
    /// # Errors
    /// The system's. Interrupted calls are retried.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `position`.
    ///
    /// # Errors
    /// The system's; some of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;

    /// Writes `parts` one after another from `position` on, in one call if the system can.
    ///
    /// # Errors
    /// The system's; some of the bytes may have been written.
    fn write_parts_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()> {
        let mut position = position;
        for part in parts {
            self.write_at(part, position)?;
            position += part.len() as u64;
        }
        Ok(())
    }

    /// Truncates or extends the file.
    ///
    /// # Errors
    /// The system's.
    fn set_len(&self, size: u64) -> io::Result<()>;

    /// Makes the file's bytes and size durable.
    ///
    /// # Errors
    /// The system's.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes the file's bytes, size and times durable.
    ///
    /// # Errors
    /// The system's.
    fn sync_all(&self) -> io::Result<()>;

    /// Sets the file's modification time, in ms since 1970. A file system without times does nothing.
    ///
    /// # Errors
    /// The system's.
    fn set_modified(&self, modified_ms: i64) -> io::Result<()> {
        let _ = modified_ms;
        Ok(())
    }

    /// Sends bytes of the file to another descriptor, such as a socket's, without a copy through this process. Returns how many it
    /// accepted: fewer than `length` if it has no room for more or the file ends, 0 at the end of the file. `None` if this file or this
    /// descriptor cannot do that: read and write instead. Waits while a descriptor that blocks has no room.
    ///
    /// # Errors
    /// The system's, `WouldBlock` among them. Interrupted calls are retried.
    fn send_to(
        &self,
        to: BorrowedFd<'_>,
        position: u64,
        length: usize,
    ) -> io::Result<Option<usize>> {
        let _ = (to, position, length);
        Ok(None)
    }

    /// Maps the first `size` bytes; `None` if this file cannot be mapped. [`Map`] says who may call this.
    fn map(&self, size: u64) -> Option<Map>;
}

/// Reads until `buffer` is full or the file ends. Handles calls that return less than requested or are interrupted.
///
/// # Errors
/// Those of the calls.
pub fn read_fully(
    buffer: &mut [u8],
    position: u64,
    mut call: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match call(rest, position + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Writes all of `bytes`. Handles calls that accept less than given or are interrupted.
///
/// # Errors
/// Those of the calls; `WriteZero` if a call accepts nothing.
pub fn write_fully(
    bytes: &[u8],
    position: u64,
    mut call: impl FnMut(&[u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match call(rest, position + written as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The error of [`read_whole`] for a file that is too large.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AboveLimit {
    pub(crate) size: u64,
    pub(crate) limit: u64,
}

impl std::fmt::Display for AboveLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { size, limit } = self;
        let size = offsetlog_format::counted(*size, "byte");
        write!(f, "{size} found, at most {limit} expected")
    }
}

impl std::error::Error for AboveLimit {}

/// Reads a whole small file.
///
/// # Errors
/// The system's; `FileTooLarge` above `limit` bytes.
pub fn read_whole(disk: &dyn Disk, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Access::Read)?;
    let size = file.stat_at_open()?.size;
    if size > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            AboveLimit { size, limit },
        ));
    }
    let mut bytes = vec![0; size as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// A call that failed while a file was replaced, and the system's error.
pub type FailedCall = (IoCall, io::Error);

/// Replaces a file with a new one through a rename. Readers that have the old file open or mapped keep it. Does not sync.
///
/// # Errors
/// The system's. The old file is then unchanged.
pub fn replace_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), FailedCall> {
    write_beside(disk, path, bytes)
        .and_then(|_| take_place(disk, path))
        .inspect_err(|_| forget_beside(disk, path))
}

/// Replaces a small file atomically: after a crash either the old or the new file exists, never a mixture. Writes a `.tmp`
/// beside it, syncs it, renames it over the file, then syncs the directory. Overwrites a `.tmp` that an earlier crash left.
///
/// # Errors
/// The system's. The old file is then unchanged, unless the sync of the directory failed.
pub fn write_whole(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), FailedCall> {
    write_beside(disk, path, bytes)
        .and_then(|file| file.sync_all().map_err(|error| (IoCall::Sync, error)))
        .and_then(|()| take_place(disk, path))
        .inspect_err(|_| forget_beside(disk, path))?;
    match path.parent() {
        Some(parent) => disk
            .sync_directory(parent)
            .map_err(|error| (IoCall::SyncDirectory, error)),
        None => Ok(()),
    }
}

/// Where a file is written before it is renamed into place: the same path plus a suffix that the next opening deletes.
#[must_use]
pub fn temporary(path: &Path) -> std::path::PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(offsetlog_format::name::TEMPORARY_SUFFIX);
    temporary.into()
}

/// Writes the [`temporary`] of a file. Does not sync.
pub(crate) fn write_beside(
    disk: &dyn Disk,
    path: &Path,
    bytes: &[u8],
) -> Result<Arc<dyn DiskFile>, FailedCall> {
    let written = disk
        .open(&temporary(path), Access::Replace)
        .and_then(|file| {
            if !bytes.is_empty() {
                file.write_at(bytes, 0)?;
            }
            Ok(file)
        });
    written.map_err(|error| (IoCall::Write, error))
}

/// Renames the [`temporary`] of a file into its place.
pub(crate) fn take_place(disk: &dyn Disk, path: &Path) -> Result<(), FailedCall> {
    disk.rename(&temporary(path), path)
        .map_err(|error| (IoCall::Rename, error))
}

/// Deletes the [`temporary`] of a file. If that fails, the next opening deletes it.
pub(crate) fn forget_beside(disk: &dyn Disk, path: &Path) {
    let _ = disk.unlink(&temporary(path));
}
