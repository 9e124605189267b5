//! The locks that a writer holds: shared on the log dir, exclusive on the partition.

use super::{LOCK_FILE, PartitionState, forget_dead_writers};
use crate::disk::{Disk, IoCall, Lock, LockKind, read_whole};
use crate::error::{Error, ErrorKind, Result, is_out_of_room};
use crate::folder::is_absent;
use crate::log::writers::{RaiseAtEnd, Slot};
use crate::segment::Directory;
use offsetlog_format::name::LOCK;
use std::io;
use std::path::Path;

/// How often a lock file is locked that is no longer in its path by then.
const LOOKS_MAX: usize = 16;

/// Takes the locks of a writer: shared on the log dir, exclusive on the partition.
pub(in crate::log) fn lock(directory: &Directory, place: &PartitionState) -> Result<Vec<Lock>> {
    let disk = directory.disk.as_ref();
    let mut locks = Vec::new();
    if let Some(log_dir) = place.log_dir() {
        locks.push(lock_log_dir(disk, log_dir)?);
    }
    locks.push(lock_partition(disk, &directory.path)?);
    Ok(locks)
}

/// Locks a log dir against brokers; fails if a broker runs on it. Other processes of ours may hold the lock too.
pub(crate) fn lock_log_dir(disk: &dyn Disk, log_dir: &Path) -> Result<Lock> {
    forget_dead_writers(disk, log_dir)?;
    keep_kafka_out(disk, log_dir)
}

/// Locks a folder as Kafka's processes lock theirs: while it is held, no broker and no controller starts there. Other processes of
/// offsetlog may hold the lock too.
///
/// # Errors
/// `Locked`: a broker or a controller runs there. `Io`.
///
/// ```no_run
/// use offsetlog::{disk::RealDisk, keep_kafka_out};
/// # fn main() -> Result<(), offsetlog::Error> {
/// let lock = keep_kafka_out(&RealDisk, std::path::Path::new("/mnt/metadata"))?;
/// lock.release();
/// # Ok(())
/// # }
/// ```
pub fn keep_kafka_out(disk: &dyn Disk, folder: &Path) -> Result<Lock> {
    let path = folder.join(LOCK);
    lock_in_place(disk, &path, LockKind::Shared)?.ok_or_else(|| {
        let pid = disk.lock_holder(&path).ok().flatten().flatten();
        Error::new(ErrorKind::Locked { pid }).at_path(&path)
    })
}

/// Locks the file that a path leads to. Between the opening of a lock file and its locking another process may rename the folder and make
/// a new one in its place: that lock would keep nobody out of the new one.
fn lock_in_place(disk: &dyn Disk, path: &Path, kind: LockKind) -> Result<Option<Lock>> {
    let failed = |error| Error::io(IoCall::Lock, path, error);
    for _ in 0..LOOKS_MAX {
        let Some(lock) = disk.lock(path, kind).map_err(failed)? else {
            return Ok(None);
        };
        let Some(locked) = lock.file_id().map_err(failed)? else {
            return Ok(Some(lock));
        };
        match disk.id(path) {
            Ok(found) if found == locked => return Ok(Some(lock)),
            Err(error) if !is_absent(&error) => return Err(failed(error)),
            _ => lock.release(),
        }
    }
    let reason = "another file at each look: other programs replace the folder while it is to be locked; try again when they have ended";
    Err(Error::log_dir(path, reason))
}

/// Makes this process the only writer of a partition, of the one that is in the path now: what was read before may be of an earlier one.
pub(crate) fn lock_partition(disk: &dyn Disk, partition: &Path) -> Result<Lock> {
    let path = partition.join(LOCK_FILE);
    let Some(lock) = lock_in_place(disk, &path, LockKind::Exclusive)? else {
        return Err(held(disk, &path));
    };
    match lock.sign(&format!("{}\n", std::process::id())) {
        // The process id only improves the error of a process that finds the file locked.
        Err(error) if is_out_of_room(&error) => {}
        signed => signed.map_err(|error| Error::io(IoCall::Write, &path, error))?,
    }
    // Releasing the lock makes this process's readers of the partition look again, whatever was changed under it.
    let identity = disk.stat(partition).ok().map(|stat| stat.id);
    Ok(lock.with(RaiseAtEnd::new(Slot::of(disk, identity))))
}

/// The error that somebody holds the lock of a partition, with this lock file.
fn held(disk: &dyn Disk, path: &Path) -> Error {
    let pid = read_whole(disk, path, 64)
        .ok()
        .and_then(|text| String::from_utf8(text).ok()?.trim().parse().ok());
    Error::new(ErrorKind::Locked { pid }).at_path(path)
}

/// Fails if a writer has the partition open.
///
/// # Errors
/// `Locked`; `Io`.
pub(super) fn check_idle(disk: &dyn Disk, partition: &Path) -> Result<()> {
    // Asks and takes nothing: a writer that begins meanwhile must not find the partition locked, and it may be another user's.
    let path = partition.join(LOCK_FILE);
    match disk.lock_holder(&path) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(held(disk, &path)),
        Err(error) if is_absent(&error) => Ok(()),
        Err(error) => Err(Error::io(IoCall::Lock, &path, error)),
    }
}

/// Locks a directory that is about to be deleted; returns `None` if it is in use. Creates no lock file: a process that uses the directory
/// has created it, and a full disk must not prevent a deletion.
pub(crate) fn lock_idle(disk: &dyn Disk, directory: &Path) -> Result<Option<Lock>> {
    let path = directory.join(LOCK_FILE);
    match disk.stat(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Lock::unneeded())),
        Err(error) => Err(Error::io(IoCall::Lock, &path, error)),
        Ok(_) => match lock_in_place(disk, &path, LockKind::Exclusive) {
            Err(error) if error.is_missing_file() => Ok(Some(Lock::unneeded())),
            locked => locked,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use crate::{Log, OpenOptions};
    use std::time::{Duration, Instant};

    /// A reader in the process that has the lock, as where `adopt` looks at a directory again, does not wait for itself.
    #[test]
    fn nobody_waits_for_a_note_under_a_lock_of_ones_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t-0");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("00000000000000000000.log"), b"").unwrap();
        let state = "version: 0\nrecovery_point: 0\nlog_start_offset: 0\ncutting: 5\n";
        std::fs::write(path.join(super::super::STATE_FILE), state).unwrap();
        let lock = lock_partition(&RealDisk, &path).unwrap();
        let begun = Instant::now();
        let log = Log::open(&path, &OpenOptions::default()).unwrap();
        assert_eq!(log.log_end_offset().unwrap(), 0);
        assert!(begun.elapsed() < Duration::from_secs(10));
        lock.release();
    }
}
