//! The system's disk, which asks the system at each call that shortens an index, or opens it to be written anew, whether this process
//! still maps what goes: an access to it would end the process. Linux only, because of `/proc/self/maps`.
#![cfg(target_os = "linux")]

use offsetlog::disk::{Access, Disk, DiskFile, Entry, FileStat, Lock, LockKind, Map, RealDisk};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What the disk saw, and what it shall do.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) shortened_under_a_map: Mutex<Vec<String>>,
    /// New files for indexes find no room, so that a truncation has to change the old ones.
    pub(crate) has_no_room: AtomicBool,
    /// Indexes that were shortened, or opened to be written anew.
    pub(crate) shortened: AtomicUsize,
    /// How long a map that shall go is waited for.
    pub(crate) patience: Duration,
}

impl Seen {
    pub(crate) fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            shortened_under_a_map: Mutex::default(),
            has_no_room: AtomicBool::new(false),
            shortened: AtomicUsize::new(0),
            patience,
        })
    }

    /// Notes that a file becomes shorter. Returns whether it shall be left as it is: this process maps what goes, and shall live to tell.
    fn note(&self, path: &Path, stat: &FileStat, size: u64) -> bool {
        self.shortened.fetch_add(1, Ordering::Relaxed);
        // One that stays is waited for once.
        let is_found = !self.shortened_under_a_map.lock().unwrap().is_empty();
        let is_mapped = || mapped_bytes(stat.id.1) > size.next_multiple_of(4096);
        let stays = is_mapped() && (is_found || stays(self.patience, is_mapped));
        if stays {
            let what = format!("{} from {} to {size}", path.display(), stat.size);
            self.shortened_under_a_map.lock().unwrap().push(what);
        }
        stays
    }
}

/// The system's disk, watched.
#[derive(Debug, Clone)]
pub(crate) struct WatchedDisk(pub(crate) Arc<Seen>);

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    seen: Arc<Seen>,
}

/// The bytes of a file that this process maps, rounded up to whole pages; 0 if it maps none of it.
fn mapped_bytes(inode: u64) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let lengths = maps.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (range, found) = (words.next()?, words.nth(3)?);
        let (from, to) = range.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        (found.parse() == Ok(inode)).then_some(address(to)? - address(from)?)
    });
    lengths.max().unwrap_or(0)
}

/// Whether something stays true. A map whose last user is dropping it just now, on another thread, is still among those of the process
/// for a moment, and nobody can look into it any more.
pub(crate) fn stays(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + patience;
    while is_so() {
        if Instant::now() > end {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

fn is_index(path: &Path) -> bool {
    path.to_string_lossy().contains("index")
}

impl DiskFile for WatchedFile {
    fn set_len(&self, size: u64) -> io::Result<()> {
        let stat = self.file.stat()?;
        if is_index(&self.path) && size < stat.size && self.seen.note(&self.path, &stat, size) {
            return Ok(());
        }
        self.file.set_len(size)
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.file.stat()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_at(bytes, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_modified(&self, modified_ms: i64) -> io::Result<()> {
        self.file.set_modified(modified_ms)
    }

    fn map(&self, size: u64) -> Option<Map> {
        self.file.map(size)
    }
}

impl Disk for WatchedDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let is_new = access == Access::Replace && is_index(path);
        if is_new && self.0.has_no_room.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if is_new
            && let Ok(stat) = RealDisk.stat(path)
            && stat.size > 0
            && self.0.note(path, &stat, 0)
        {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        Ok(Arc::new(WatchedFile {
            file: RealDisk.open(path, access)?,
            path: path.to_path_buf(),
            seen: Arc::clone(&self.0),
        }))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        RealDisk.list(directory)
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
        RealDisk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        RealDisk.unlink(path)
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Option<Lock>> {
        RealDisk.lock(path, kind)
    }

    fn lock_holder(&self, path: &Path) -> io::Result<Option<Option<i32>>> {
        RealDisk.lock_holder(path)
    }
}

/// The disk itself: what a map covers is not shortened, and is told; what it does not cover is.
#[test]
fn the_disk_sees_what_is_shortened_under_a_map() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("00000000000000000000.index");
    std::fs::write(&path, [1; 10_000]).unwrap();
    let seen = Seen::new(Duration::ZERO);
    let disk = WatchedDisk(Arc::clone(&seen));
    let told = || std::mem::take(&mut *seen.shortened_under_a_map.lock().unwrap()).len();
    let size = || std::fs::metadata(&path).unwrap().len();
    let file = disk.open(&path, Access::Write).unwrap();
    let map = file.map(10_000).expect("a map");
    file.set_len(9_000).unwrap();
    assert_eq!((told(), size()), (0, 9_000));
    file.set_len(8_000).unwrap();
    assert_eq!((told(), size()), (1, 9_000));
    assert!(disk.open(&path, Access::Replace).is_err());
    assert_eq!((told(), size()), (1, 9_000));
    drop(map);
    file.set_len(8_000).unwrap();
    assert_eq!((told(), size()), (0, 8_000));
    disk.open(&path, Access::Replace).unwrap();
    assert_eq!((told(), size()), (0, 0));
    assert_eq!(seen.shortened.load(Ordering::Relaxed), 5);
}
