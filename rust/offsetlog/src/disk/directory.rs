//! Lists directories of the operating system, and opens one so that its metadata and its names are of one directory.

use super::real::{READ_FLAGS, kind_and_stat, real_file};
use super::{DiskDirectory, DiskFile, Entry, EntryKind, FileStat};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// Room for the names that one call returns, in bytes: more than most partitions have.
const NAMES_BYTES: usize = 16 * 1024;

/// A directory of the operating system.
#[derive(Debug)]
pub(super) struct RealDirectory(File);

impl RealDirectory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(path);
        opened.map(Self)
    }

    /// The kind of an entry: that of the listing, so no file needs its own stat, where the file system tells it there. `None` for one that
    /// went meanwhile.
    fn kind(&self, name: &std::ffi::CStr, listed: FileType) -> io::Result<Option<EntryKind>> {
        let kind = match listed {
            FileType::Unknown => {
                match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(rustix::io::Errno::NOENT) => return Ok(None),
                    Err(error) => return Err(error.into()),
                }
            }
            listed => listed,
        };
        Ok(Some(match kind {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            _ => EntryKind::Other,
        }))
    }
}

impl DiskDirectory for RealDirectory {
    fn stat(&self) -> io::Result<FileStat> {
        kind_and_stat(&self.0).map(|(_, stat)| stat)
    }

    fn list(&self) -> io::Result<Vec<Entry>> {
        // As many as a partition of one segment has.
        let mut entries = Vec::with_capacity(8);
        self.list_each(&mut |name, kind| {
            entries.push(Entry {
                name: name.to_owned(),
                kind,
            });
        })?;
        Ok(entries)
    }

    fn list_each(&self, each: &mut dyn FnMut(&str, EntryKind)) -> io::Result<()> {
        let mut room = [MaybeUninit::uninit(); NAMES_BYTES];
        let mut listed = RawDir::new(&self.0, &mut room);
        while let Some(entry) = listed.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(rustix::io::Errno::INTR) => continue,
                // Deleted since it was opened: it has no more names.
                Err(rustix::io::Errno::NOENT) => break,
                Err(error) => return Err(error.into()),
            };
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name == "." || name == ".." {
                continue;
            }
            let Some(kind) = self.kind(entry.file_name(), entry.file_type())? else {
                continue;
            };
            each(name, kind);
        }
        Ok(())
    }

    fn open(&self, name: &OsStr) -> io::Result<Arc<dyn DiskFile>> {
        let flags = READ_FLAGS | OFlags::RDONLY;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
        real_file(file.into())
    }
}

/// The entries of the directory at a path.
pub(super) fn names_in(path: &Path) -> io::Result<Vec<Entry>> {
    RealDirectory::open(path)?.list()
}

/// Grows the table of open files by this many at once: a copy of a descriptor is made that far behind, and closed.
pub(super) fn expect_files(count: usize) -> io::Result<()> {
    let next = File::open("/dev/null")?;
    let far = usize::try_from(next.as_raw_fd()).ok();
    let far = far.and_then(|next| i32::try_from(next.checked_add(count)?).ok());
    let far = far.ok_or(io::ErrorKind::InvalidInput)?;
    rustix::io::fcntl_dupfd_cloexec(&next, far)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Access, Disk, RealDisk};
    use std::collections::BTreeMap;
    use std::fs;

    fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        entries
    }

    /// More names than one call returns, and every kind.
    #[test]
    fn all_names_are_listed_with_their_kinds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let mut expected = BTreeMap::new();
        for number in 0..1000 {
            let name = format!("{number:0200}");
            fs::write(path.join(&name), b"").unwrap();
            expected.insert(name, EntryKind::File);
        }
        fs::create_dir(path.join("folder")).unwrap();
        expected.insert("folder".to_owned(), EntryKind::Directory);
        std::os::unix::fs::symlink("folder", path.join("link")).unwrap();
        expected.insert("link".to_owned(), EntryKind::Other);
        let expected: Vec<Entry> = expected
            .into_iter()
            .map(|(name, kind)| Entry { name, kind })
            .collect();
        assert_eq!(sorted(RealDisk.list(path).unwrap()), expected);
        let open = RealDisk.open_directory(path).unwrap().unwrap();
        assert_eq!(sorted(open.list().unwrap()), expected);
        assert_eq!(open.stat().unwrap(), RealDisk.stat(path).unwrap());
        let error = RealDisk.list(&path.join("link/none")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let error = RealDisk
            .list(&path.join(format!("{:0200}", 1)))
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }

    /// As by their paths: nothing but regular files is opened, and no link followed.
    #[test]
    fn files_are_opened_in_a_directory_as_by_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::write(path.join("file"), b"twelve bytes").unwrap();
        fs::create_dir(path.join("folder")).unwrap();
        std::os::unix::fs::symlink("file", path.join("link")).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(path.join("socket")).unwrap();
        let open = RealDirectory::open(path).unwrap();
        for name in ["file", "folder", "link", "socket", "none"] {
            let here = open.open(OsStr::new(name));
            let by_path = RealDisk.open(&path.join(name), Access::Read);
            match (here, by_path) {
                (Ok(here), Ok(by_path)) => {
                    assert_eq!(name, "file");
                    assert_eq!(here.stat().unwrap(), by_path.stat().unwrap());
                    assert_eq!(here.stat_at_open().unwrap().size, 12);
                }
                (Err(here), Err(by_path)) => {
                    assert_ne!(name, "file");
                    assert_eq!(here.kind(), by_path.kind(), "{name}");
                    assert_eq!(here.raw_os_error(), by_path.raw_os_error(), "{name}");
                }
                different => panic!("{name}: {different:?}"),
            }
        }
        drop(socket);
    }

    /// Many files that are opened afterwards get their usual numbers, and none stays open.
    #[test]
    fn expected_files_take_no_descriptors() {
        let highest = || {
            let open = fs::read_dir("/proc/self/fd").unwrap();
            let numbers = open.map(|fd| fd.unwrap().file_name().into_string().unwrap());
            numbers.map(|fd| fd.parse::<usize>().unwrap()).max()
        };
        let before = highest().unwrap();
        expect_files(400).unwrap();
        // Other tests open files meanwhile, but not so many.
        assert!(highest().unwrap() < before + 300);
        assert!(expect_files(usize::MAX).is_err());
        assert!(expect_files(i32::MAX as usize - 1000).is_err());
    }

    /// An open directory stays the one that it was, whatever its name leads to.
    #[test]
    fn an_open_directory_is_not_another_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("first"), b"").unwrap();
        let before = RealDisk.stat(&path).unwrap();
        let open = RealDisk.open_directory(&path).unwrap().unwrap();
        fs::rename(&path, folder.path().join("other")).unwrap();
        fs::create_dir(&path).unwrap();
        fs::write(path.join("second"), b"").unwrap();
        assert_eq!(open.stat().unwrap().id, before.id);
        let names = open.list().unwrap().into_iter().map(|entry| entry.name);
        let names: Vec<String> = names.collect();
        assert_eq!(names, ["first"]);
        assert!(open.open(OsStr::new("first")).is_ok());
        let error = open.open(OsStr::new("second")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(folder.path().join("other")).unwrap();
        let gone = RealDirectory::open(&path).unwrap();
        fs::remove_dir_all(&path).unwrap();
        assert_eq!(gone.list().unwrap(), []);
    }
}
