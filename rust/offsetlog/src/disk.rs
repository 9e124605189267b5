//! All calls to the operating system's files: one trait, so that the engine can also stand on a simulated or a failing disk.
//!
//! Nothing above this module names `std::fs`. It knows files and directories, not what is in them.

mod io_call;
mod lock;
mod map;
mod overlay;
mod real;
#[cfg(target_os = "linux")]
mod watch;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use io_call::IoCall;
pub use lock::{Lock, close_inherited_locks};
pub use map::Map;
pub use overlay::OverlayDisk;
pub use real::{RealDisk, wall_clock};

/// What reads past the cache are aligned to, in memory and in the file.
pub const UNCACHED_ALIGNMENT: usize = 4096;

/// A directory's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name; a name that is not UTF-8 cannot be one of Kafka's and is left out of listings.
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
    /// A link, a pipe, a device: never followed, never opened.
    Other,
}

/// What a file looks like at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// Size in bytes.
    pub size: u64,
    /// Modification time in milliseconds since 1970.
    pub modified_ms: i64,
    /// Modification time in nanoseconds since 1970: tells whether a directory changed.
    pub modified_ns: i128,
    /// Device and inode: tells whether a name still means the same file.
    pub id: (u64, u64),
}

impl FileStat {
    /// Whether it may change again without its time telling: a file system counts it by ticks of the clock.
    pub(crate) fn is_racy(&self) -> bool {
        const TICK_MS: i64 = 20;
        (0..TICK_MS).contains(&wall_clock().saturating_sub(self.modified_ms))
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// For reading only. Changes nothing, not even times where the system allows that.
    Read,
    /// For reading and writing; the file must be there.
    Write,
    /// For reading and writing; the file must not be there yet.
    Create,
    /// For reading and writing; made if it is not there, otherwise as it is.
    WriteOrCreate,
    /// For reading and writing; made if it is not there, otherwise emptied.
    Replace,
}

/// How a file is locked against other processes and other openings of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Many may hold it; keeps exclusive ones out.
    Shared,
    /// One may hold it.
    Exclusive,
}

/// A file system.
pub trait Disk: Debug + Send + Sync {
    /// Lists a directory in no particular order.
    ///
    /// # Errors
    /// The system's.
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>>;

    /// Opens a regular file; links are not followed, and anything that is not a regular file is refused.
    ///
    /// # Errors
    /// The system's; `InvalidInput` for what is not a regular file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a regular file for reading past the system's cache, so that what is read is what the disk holds: buffers, positions and
    /// lengths are multiples of [`UNCACHED_ALIGNMENT`]. `None` where that cannot be had.
    ///
    /// # Errors
    /// The system's.
    fn open_uncached(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>>;

    /// Changes with each start of the machine, after which no cache holds what the disk does not; `None` where it is not known.
    fn boot_id(&self) -> Option<u128>;

    /// Looks at a file or directory without opening it.
    ///
    /// # Errors
    /// The system's.
    fn stat(&self, path: &Path) -> io::Result<FileStat>;

    /// Where a file or directory really lies, all symbolic links followed; as it is named where there are none.
    ///
    /// # Errors
    /// The system's.
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    /// Makes a directory and those above it.
    ///
    /// # Errors
    /// The system's.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Renames within one file system; an existing target is replaced.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name.
    ///
    /// # Errors
    /// The system's.
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory that is empty.
    ///
    /// # Errors
    /// The system's; `Unsupported` where directories stay.
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes the names of a directory durable.
    ///
    /// # Errors
    /// The system's.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Locks a file, made if it is not there, without waiting. The lock ends when the value is dropped or the process ends; a
    /// child process does not hold it against its parent. `None` when somebody else holds one that conflicts.
    ///
    /// # Errors
    /// The system's.
    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Option<Lock>>;

    /// The process that holds a lock which would keep a shared one on the whole file away: a broker holds one on the log dir's
    /// `.lock`, a writer of ours on its partition's. `Some(None)` when it is held but the holder is not known; `None` when it is free or there is no file.
    ///
    /// # Errors
    /// The system's.
    fn lock_holder(&self, path: &Path) -> io::Result<Option<Option<i32>>>;

    /// Whether it is the system's own, so that every value of it is the same disk. Others are disks apart.
    fn is_systems(&self) -> bool {
        false
    }

    /// Begins to watch what happens in directories, their files' contents included; `None` where the system does not tell.
    ///
    /// # Errors
    /// The system's, which bounds how many are watched.
    fn watch(&self, directories: &[&Path]) -> io::Result<Option<Box<dyn Watch>>> {
        let _ = directories;
        Ok(None)
    }
}

/// Directories that are watched.
pub trait Watch: Debug + Send {
    /// Sleeps until something happens in one of them, or has happened since the last call, and says whether it did; at most so long.
    ///
    /// # Errors
    /// The system's.
    fn wait(&mut self, at_most: Duration) -> io::Result<bool>;
}

/// An open file. All positions are explicit, so that one file serves many threads.
pub trait DiskFile: Debug + Send + Sync {
    /// Looks at the open file.
    ///
    /// # Errors
    /// The system's.
    fn stat(&self) -> io::Result<FileStat>;

    /// Reads from `position` until `buffer` is full or the file ends; returns the bytes read.
    ///
    /// # Errors
    /// The system's. Interrupted calls are repeated.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `position`.
    ///
    /// # Errors
    /// The system's; a part may have been written.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;

    /// Writes `parts` one behind the other from `position` on, in one call where the system can.
    ///
    /// # Errors
    /// The system's; a part may have been written.
    fn write_parts_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()> {
        let mut position = position;
        for part in parts {
            self.write_at(part, position)?;
            position += part.len() as u64;
        }
        Ok(())
    }

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// The system's.
    fn set_len(&self, size: u64) -> io::Result<()>;

    /// Makes bytes and size durable.
    ///
    /// # Errors
    /// The system's.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes bytes, size and times durable.
    ///
    /// # Errors
    /// The system's.
    fn sync_all(&self) -> io::Result<()>;

    /// Gives the file this time of its last change, in ms since 1970. A file system without times does nothing.
    ///
    /// # Errors
    /// The system's.
    fn set_modified(&self, modified_ms: i64) -> io::Result<()> {
        let _ = modified_ms;
        Ok(())
    }

    /// Maps the first `size` bytes, or says that this file cannot be mapped. See [`Map`] for who may.
    fn map(&self, size: u64) -> Option<Map>;
}

/// Reads until `buffer` is full or the file ends, with calls that may give less than was asked for or be interrupted.
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

/// Writes all of `bytes`, with calls that may take less than they were given or be interrupted.
///
/// # Errors
/// Those of the calls; `WriteZero` from one that takes nothing.
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

/// A file that [`read_whole`] did not read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AboveLimit {
    pub(crate) size: u64,
    pub(crate) limit: u64,
}

impl std::fmt::Display for AboveLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { size, limit } = self;
        write!(f, "{size} bytes found, at most {limit} expected")
    }
}

impl std::error::Error for AboveLimit {}

/// Reads a small file whole.
///
/// # Errors
/// The system's; `FileTooLarge` above `limit` bytes.
pub fn read_whole(disk: &dyn Disk, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Access::Read)?;
    let size = file.stat()?.size;
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

/// Puts a new file in the place of an old one, whose readers keep what they have open or mapped. Not synced.
///
/// # Errors
/// The system's. The old file is then still there.
pub fn replace_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), FailedCall> {
    let temporary = temporary(path);
    write_temporary(disk, &temporary, bytes)
        .and_then(|_| renamed(disk, &temporary, path))
        .inspect_err(|_| forget(disk, &temporary))
}

/// Writes a small file so that after a crash the old or the new one is there, never a mixture: a `.tmp` beside it, synced and
/// renamed over it, then the directory synced. A `.tmp` that an earlier crash left is overwritten.
///
/// # Errors
/// The system's. The old file is then still there, unless it was the sync of the directory that failed.
pub fn write_whole(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), FailedCall> {
    let temporary = temporary(path);
    write_temporary(disk, &temporary, bytes)
        .and_then(|file| file.sync_all().map_err(|error| (IoCall::Sync, error)))
        .and_then(|()| renamed(disk, &temporary, path))
        .inspect_err(|_| forget(disk, &temporary))?;
    match path.parent() {
        Some(parent) => disk
            .sync_directory(parent)
            .map_err(|error| (IoCall::SyncDirectory, error)),
        None => Ok(()),
    }
}

/// Where a file is written before it takes its place: beside it, under a name that opening sweeps.
#[must_use]
pub fn temporary(path: &Path) -> std::path::PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(offsetlog_format::name::TEMPORARY_SUFFIX);
    temporary.into()
}

fn write_temporary(
    disk: &dyn Disk,
    path: &Path,
    bytes: &[u8],
) -> Result<Arc<dyn DiskFile>, FailedCall> {
    let written = disk.open(path, Access::Replace).and_then(|file| {
        if !bytes.is_empty() {
            file.write_at(bytes, 0)?;
        }
        Ok(file)
    });
    written.map_err(|error| (IoCall::Write, error))
}

fn renamed(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), FailedCall> {
    disk.rename(from, to)
        .map_err(|error| (IoCall::Rename, error))
}

/// An unfinished file is of no use; where it cannot be removed, the next opening does that.
fn forget(disk: &dyn Disk, path: &Path) {
    let _ = disk.unlink(path);
}
