//! File locks that belong to an open file. They conflict with a broker's lock on the log dir's `.lock`, and closing another
//! descriptor of the file in this process does not release them.

use super::LockKind;
use super::real::id_of_file;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::any::Any;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The locked files of this process, so that a forked child can close its copies.
static HELD: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());

/// Longer than any text that a lock file holds, in bytes.
const SIGNATURE_MAX: usize = 64;

/// The open file that owns a lock; empty in a forked child that closed its copy.
#[derive(Debug)]
struct Slot(Mutex<Option<File>>);

/// A lock that is held until the value is dropped.
#[derive(Debug)]
pub struct Lock {
    /// The open file that owns the lock. The lock ends when it is closed.
    slot: Option<Arc<Slot>>,
    /// The process that took the lock. A forked child has a copy of the descriptor and must not release the lock.
    process: u32,
    /// Dropped with this value, for a simulated disk's own lock or for code that must run when the lock ends.
    token: Option<Box<dyn Any + Send + Sync>>,
}

impl Lock {
    /// A lock that excludes nobody, for disks that only one process uses.
    #[must_use]
    pub const fn unneeded() -> Self {
        Self {
            slot: None,
            process: 0,
            token: None,
        }
    }

    /// A lock of a simulated disk. `token` is dropped when the lock ends.
    #[must_use]
    pub fn simulated(token: impl Any + Send + Sync) -> Self {
        Self {
            token: Some(Box::new(token)),
            ..Self::unneeded()
        }
    }

    /// Also drops `token` when the lock ends.
    pub(crate) fn with(mut self, token: impl Any + Send + Sync) -> Self {
        let own = self.token.take();
        self.token = Some(Box::new((own, token)));
        self
    }

    pub(super) fn take(file: File, kind: LockKind) -> io::Result<Option<Self>> {
        if !lock(&file, kind)? {
            return Ok(None);
        }
        let slot = Arc::new(Slot(Mutex::new(Some(file))));
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() == held.capacity() {
            held.retain(|slot| slot.strong_count() > 0);
        }
        held.push(Arc::downgrade(&slot));
        Ok(Some(Self {
            slot: Some(slot),
            process: std::process::id(),
            token: None,
        }))
    }

    /// Releases the lock even if a child process still has a copy of the descriptor.
    pub fn release(self) {
        if self.process == std::process::id() {
            // If this fails, the lock ends when the last descriptor is closed.
            let _ = self.with_file(unlock);
        }
    }

    /// Replaces the contents of the locked file with `text`, which names the holder for others.
    ///
    /// The file is never emptied: ext4 writes a file that was emptied to the disk when it is closed, and waits for that.
    ///
    /// # Errors
    /// The system's.
    pub fn sign(&self, text: &str) -> io::Result<()> {
        self.with_file(|file| {
            let mut found = [0; SIGNATURE_MAX];
            let length = file.read_at(&mut found, 0)?;
            if found.get(..length) == Some(text.as_bytes()) {
                return Ok(());
            }
            file.write_all_at(text.as_bytes(), 0)?;
            if length > text.len() {
                file.set_len(text.len() as u64)?;
            }
            Ok(())
        })
    }

    /// What tells the locked file from every other one, as [`FileStat::id`](super::FileStat::id). `None` if the lock is of no file: one of a
    /// simulated disk.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn file_id(&self) -> io::Result<Option<(u64, u64)>> {
        let mut found = None;
        self.with_file(|file| {
            found = Some(id_of_file(file)?);
            Ok(())
        })?;
        Ok(found)
    }

    fn with_file(&self, work: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        let Some(slot) = &self.slot else {
            return Ok(());
        };
        let file = slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.as_ref().map_or(Ok(()), work)
    }
}

/// For a process that was just forked: closes its copies of the parent's locked files, so that the locks end with the parent.
/// Never blocks: a mutex that is held here may belong to a thread that was not forked.
pub fn close_inherited_locks() {
    let Ok(held) = HELD.try_lock() else { return };
    for slot in held.iter().filter_map(Weak::upgrade) {
        if let Ok(mut file) = slot.0.try_lock() {
            // Closes without unlocking, because an unlock would release the parent's lock.
            drop(file.take());
        }
    }
}

/// Returns the holder of a lock that conflicts with a shared one: a broker, or an offsetlog writer on its partition.
/// `Some(None)` if the system does not know the process, as for locks of open files. On a file system without locks nobody has one, and
/// no broker keeps such a log dir online.
///
/// Only a call that is not there at all says so. `ENOLCK` is of a system that has locks: its table is full, or the server of a network file
/// system cannot be asked (fcntl(2)). A broker may have got its lock before that.
#[allow(clippy::option_option, reason = "held or not, and then known or not")]
pub(super) fn holder(file: &File) -> io::Result<Option<Option<i32>>> {
    let mut asked = whole_file(libc::F_RDLCK);
    match fcntl(file, FcntlArg::F_GETLK(&mut asked)) {
        Err(Errno::ENOSYS | Errno::EOPNOTSUPP) => return Ok(None),
        answered => answered?,
    };
    let is_free = i32::from(asked.l_type) == libc::F_UNLCK;
    Ok((!is_free).then(|| (asked.l_pid > 0).then_some(asked.l_pid)))
}

fn whole_file(kind: impl Into<i32>) -> libc::flock {
    libc::flock {
        l_type: kind.into() as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// An open-file-description lock. It conflicts with POSIX locks of other processes, and does not end when another descriptor of
/// the file is closed.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn lock(file: &File, kind: LockKind) -> io::Result<bool> {
    let whole = whole_file(match kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    });
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole)) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn unlock(file: &File) -> io::Result<()> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_UNLCK)))?;
    Ok(())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn unlock(file: &File) -> io::Result<()> {
    rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingUnlock)?;
    Ok(())
}

/// On other systems a `flock`, which excludes only other users of offsetlog. A running broker is detected by asking for its
/// lock.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn lock(file: &File, kind: LockKind) -> io::Result<bool> {
    use rustix::fs::{FlockOperation, flock};

    let operation = match kind {
        LockKind::Shared => FlockOperation::NonBlockingLockShared,
        LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
    };
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, RealDisk};
    use std::os::unix::fs::MetadataExt;

    /// A signature is exactly the last one, whatever the file held, and is not written again.
    #[test]
    fn a_signature_replaces_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let sign = |text: &str| {
            let lock = RealDisk.lock(&path, LockKind::Exclusive).unwrap().unwrap();
            lock.sign(text).unwrap();
            lock.release();
            std::fs::read_to_string(&path).unwrap()
        };
        for text in ["12\n", "1234567\n", "9\n", "9\n"] {
            assert_eq!(sign(text), text);
        }
        std::fs::write(&path, "x".repeat(5000)).unwrap();
        assert_eq!(sign("7\n"), "7\n");
        let modified = || std::fs::metadata(&path).unwrap().mtime_nsec();
        let before = modified();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(sign("7\n"), "7\n");
        assert_eq!(modified(), before);
    }
}
