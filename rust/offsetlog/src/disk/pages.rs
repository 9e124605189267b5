//! Where an overlay keeps what was changed: in memory, and beyond a bound in a file without a name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub(super) const PAGE: u64 = 4096;
/// Most bytes in memory, of all files of an overlay: a dry run must not end a process that has little of it.
const MEMORY_MAX: u64 = 256 << 20;

/// The pages of an overlay.
#[derive(Debug)]
pub(super) struct Pages {
    memory_max: u64,
    /// Bytes in memory.
    held: AtomicU64,
    /// The file, and the pages in it.
    beyond: Mutex<Option<(Arc<File>, u64)>>,
}

/// A page that was changed.
#[derive(Debug)]
pub(super) enum Page {
    Held(Held),
    /// Its number in the file.
    Beyond(Arc<File>, u64),
}

/// A page in memory.
#[derive(Debug)]
pub(super) struct Held {
    bytes: Vec<u8>,
    pages: Arc<Pages>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pages.held.fetch_sub(PAGE, Ordering::Relaxed);
    }
}

impl Default for Pages {
    fn default() -> Self {
        Self::with_memory(MEMORY_MAX)
    }
}

impl Pages {
    pub(super) const fn with_memory(memory_max: u64) -> Self {
        Self {
            memory_max,
            held: AtomicU64::new(0),
            beyond: Mutex::new(None),
        }
    }

    /// Keeps the bytes of a page, in the place of those that were kept before.
    pub(super) fn keep(self: &Arc<Self>, bytes: Vec<u8>, before: Option<Page>) -> io::Result<Page> {
        if let Some(Page::Beyond(file, number)) = before {
            file.write_all_at(&bytes, number * PAGE)?;
            return Ok(Page::Beyond(file, number));
        }
        drop(before);
        if self.held.load(Ordering::Relaxed) < self.memory_max {
            self.held.fetch_add(PAGE, Ordering::Relaxed);
            let pages = Arc::clone(self);
            return Ok(Page::Held(Held { bytes, pages }));
        }
        let (file, number) = self.next_beyond()?;
        file.write_all_at(&bytes, number * PAGE)?;
        Ok(Page::Beyond(file, number))
    }

    fn next_beyond(&self) -> io::Result<(Arc<File>, u64)> {
        let mut beyond = self.beyond.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, count) = match beyond.take() {
            Some(beyond) => beyond,
            None => (Arc::new(nameless()?), 0),
        };
        *beyond = Some((Arc::clone(&file), count + 1));
        Ok((file, count))
    }
}

impl Page {
    pub(super) fn bytes(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Held(held) => Ok(held.bytes.clone()),
            Self::Beyond(file, number) => {
                let mut bytes = vec![0; PAGE as usize];
                file.read_exact_at(&mut bytes, number * PAGE)?;
                Ok(bytes)
            }
        }
    }
}

/// A file in the folder for temporary ones, whose name is gone before anything is in it.
fn nameless() -> io::Result<File> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("offsetlog-dry-run-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        match options.read(true).write(true).create_new(true).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}
