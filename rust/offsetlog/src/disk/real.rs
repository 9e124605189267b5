//! The disk of the operating system, on Linux and macOS.

#[cfg(not(target_os = "linux"))]
use super::EntryKind;
#[cfg(target_os = "linux")]
use super::directory::{self, RealDirectory, names_in};
use super::{
    Access, Disk, DiskFile, Entry, FileStat, Lock, LockKind, Map, read_fully, write_fully,
};
#[cfg(target_os = "linux")]
use super::{DiskDirectory, Watch};
use rustix::fs::{FileType, OFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
#[cfg(target_os = "linux")]
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Current time of the system clock, in milliseconds since 1970.
#[must_use]
pub fn wall_clock() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn is_systems(&self) -> bool {
        true
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        names_in(directory)
    }

    #[cfg(target_os = "linux")]
    fn open_directory(&self, path: &Path) -> io::Result<Option<Box<dyn DiskDirectory>>> {
        let open = RealDirectory::open(path)?;
        Ok(Some(Box::new(open)))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(access != Access::Read)
            .create_new(access == Access::Create)
            .create(matches!(access, Access::WriteOrCreate | Access::Replace))
            .truncate(access == Access::Replace)
            .custom_flags(READ_FLAGS.bits() as i32)
            .open(path)?;
        real_file(file)
    }

    fn open_uncached(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
        open_direct(path)
    }

    fn boot_id(&self) -> Option<u128> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        let stat = rustix::fs::stat(path)?;
        Ok(stat_of(&stat))
    }

    fn id(&self, path: &Path) -> io::Result<(u64, u64)> {
        id_of(path)
    }

    fn is_link(&self, path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(metadata.is_symlink()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Option<Lock>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(READ_FLAGS.bits() as i32)
            .open(path)?;
        Lock::take(file, kind)
    }

    fn lock_holder(&self, path: &Path) -> io::Result<Option<Option<i32>>> {
        let file = match OpenOptions::new()
            .read(true)
            .custom_flags(READ_FLAGS.bits() as i32)
            .open(path)
        {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // Closing this descriptor would release a POSIX lock of this process, but offsetlog never takes one.
        super::lock::holder(&file)
    }

    #[cfg(target_os = "linux")]
    fn expect_files(&self, count: usize) {
        // Beyond the limit of open files, or without such a device: the table grows as it is filled.
        let _ = directory::expect_files(count);
    }

    #[cfg(target_os = "linux")]
    fn watch(&self, directories: &[&Path]) -> io::Result<Option<Box<dyn Watch>>> {
        super::watch::watch(directories)
    }
}

/// NONBLOCK keeps the open of a pipe without a writer from blocking. NOFOLLOW refuses links under a segment's name.
pub(super) const READ_FLAGS: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// A file that was just opened, if it is a regular one.
pub(super) fn real_file(file: File) -> io::Result<Arc<dyn DiskFile>> {
    let (kind, at_open) = kind_and_stat(&file)?;
    if kind != FileType::RegularFile {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    Ok(Arc::new(RealFile {
        file,
        at_open,
        uncached: false,
    }))
}

#[derive(Debug)]
struct RealFile {
    file: File,
    at_open: FileStat,
    /// Reads bypass the page cache and must stay aligned.
    uncached: bool,
}

impl DiskFile for RealFile {
    fn stat(&self) -> io::Result<FileStat> {
        kind_and_stat(&self.file).map(|(_, stat)| stat)
    }

    fn stat_at_open(&self) -> io::Result<FileStat> {
        Ok(self.at_open)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut at_end = false;
        read_fully(buffer, position, |rest, position| {
            if at_end {
                return Ok(0);
            }
            let count = self.file.read_at(rest, position)?;
            // A short uncached read means the end of the file. Another read would not be aligned.
            at_end = self.uncached && count < rest.len();
            Ok(count)
        })
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        write_fully(bytes, position, |rest, position| {
            self.file.write_at(rest, position)
        })
    }

    fn write_parts_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = slices.as_mut_slice();
        let mut position = position;
        while !rest.is_empty() {
            match rustix::io::pwritev(&self.file, rest, position) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    position += count as u64;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        self.file.set_len(size)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn set_modified(&self, modified_ms: i64) -> io::Result<()> {
        let since = Duration::from_millis(modified_ms.unsigned_abs());
        let time = if modified_ms < 0 {
            UNIX_EPOCH.checked_sub(since)
        } else {
            UNIX_EPOCH.checked_add(since)
        };
        self.file.set_modified(time.unwrap_or(UNIX_EPOCH))
    }

    #[cfg(target_os = "linux")]
    fn send_to(
        &self,
        to: BorrowedFd<'_>,
        position: u64,
        length: usize,
    ) -> io::Result<Option<usize>> {
        use rustix::io::Errno;
        let mut position = position;
        loop {
            return match rustix::fs::sendfile(to, &self.file, Some(&mut position), length) {
                Ok(sent) => Ok(Some(sent)),
                Err(Errno::INTR) => continue,
                // A file system or a descriptor that cannot be spliced.
                Err(Errno::INVAL | Errno::NOSYS) => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
    }

    fn map(&self, size: u64) -> Option<Map> {
        usize::try_from(size)
            .ok()
            .filter(|&size| size > 0)
            .and_then(|size| Map::new(&self.file, size))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn open_direct(path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
    let flags = READ_FLAGS | OFlags::DIRECT;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path);
    match opened {
        Ok(file) => Ok(Some(Arc::new(RealFile {
            at_open: kind_and_stat(&file)?.1,
            file,
            uncached: true,
        }))),
        // A file system without a disk, such as an older tmpfs.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn open_direct(_: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
    Ok(None)
}

/// `File::metadata` and `fs::metadata` call statx, which takes twice as long.
pub(super) fn kind_and_stat(file: &File) -> io::Result<(FileType, FileStat)> {
    let stat = rustix::fs::fstat(file)?;
    Ok((FileType::from_raw_mode(stat.st_mode), stat_of(&stat)))
}

#[allow(
    clippy::unnecessary_cast,
    reason = "the fields' types differ between systems"
)]
fn stat_of(stat: &rustix::fs::Stat) -> FileStat {
    let modified = (stat.st_mtime, stat.st_mtime_nsec as i64);
    let id = (stat.st_dev as u64, stat.st_ino);
    FileStat::new(stat.st_size as u64, modified, id)
}

/// The id of the file or directory at a path, without its times.
#[cfg(target_os = "linux")]
fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
    match statx(CWD, path, AtFlags::empty(), StatxFlags::INO) {
        Ok(found) => Ok((
            makedev(found.stx_dev_major, found.stx_dev_minor),
            found.stx_ino,
        )),
        // Before Linux 4.11.
        Err(rustix::io::Errno::NOSYS) => RealDisk.stat(path).map(|stat| stat.id),
        Err(error) => Err(error.into()),
    }
}

/// The same of an open file.
#[cfg(target_os = "linux")]
pub(super) fn id_of_file(file: &File) -> io::Result<(u64, u64)> {
    use rustix::fs::{AtFlags, StatxFlags, makedev, statx};
    match statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::INO) {
        Ok(found) => Ok((
            makedev(found.stx_dev_major, found.stx_dev_minor),
            found.stx_ino,
        )),
        Err(rustix::io::Errno::NOSYS) => kind_and_stat(file).map(|(_, stat)| stat.id),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    RealDisk.stat(path).map(|stat| stat.id)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn id_of_file(file: &File) -> io::Result<(u64, u64)> {
    kind_and_stat(file).map(|(_, stat)| stat.id)
}

/// The entries of a directory.
#[cfg(not(target_os = "linux"))]
fn names_in(directory: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // The listing includes the type, so no file needs its own stat.
        let kind = match entry.file_type() {
            Ok(kind) if kind.is_file() => EntryKind::File,
            Ok(kind) if kind.is_dir() => EntryKind::Directory,
            Ok(_) => EntryKind::Other,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        entries.push(Entry { name, kind });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Access, RealDisk};

    #[cfg(target_os = "linux")]
    #[test]
    fn a_range_of_a_file_goes_to_a_socket() {
        use std::io::Read;
        use std::os::fd::AsFd;
        use std::os::unix::net::UnixStream;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"twelve bytes").unwrap();
        let file = RealDisk.open(&path, Access::Read).unwrap();
        let (here, mut there) = UnixStream::pair().unwrap();
        assert_eq!(file.send_to(here.as_fd(), 7, 3).unwrap(), Some(3));
        assert_eq!(file.send_to(here.as_fd(), 7, 100).unwrap(), Some(5));
        assert_eq!(file.send_to(here.as_fd(), 12, 100).unwrap(), Some(0));
        drop(here);
        let mut sent = Vec::new();
        there.read_to_end(&mut sent).unwrap();
        assert_eq!(sent, b"bytbytes");
    }

    /// A view compares what it knows of an open file with what its name tells.
    #[test]
    fn an_open_file_tells_what_its_name_tells() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"twelve bytes").unwrap();
        let before_1970 = UNIX_EPOCH - Duration::new(2, 999_999_999);
        for modified in [SystemTime::now(), UNIX_EPOCH, before_1970] {
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(modified).unwrap();
            let open = RealDisk.open(&path, Access::Read).unwrap();
            let stat = open.stat().unwrap();
            assert_eq!(stat, RealDisk.stat(&path).unwrap());
            assert_eq!(open.stat_at_open().unwrap(), stat);
            assert_eq!(RealDisk.id(&path).unwrap(), stat.id);
            assert_eq!(stat.size, 12);
            let expected = match modified.duration_since(UNIX_EPOCH) {
                Ok(since) => since.as_nanos() as i128,
                Err(before) => -(before.duration().as_nanos() as i128),
            };
            assert_eq!(stat.modified_ns, expected);
        }
    }
}
