//! Files as `dump` reads them: a segment through a window that moves forward, all others whole.

use offsetlog::Limits;
use offsetlog::disk::{Access, Disk as _, DiskFile, RealDisk, read_whole};
use std::io;
use std::path::Path;
use std::sync::Arc;

const WINDOW_BYTES: usize = 1 << 20;

/// A `.log` or `.checkpoint` file.
pub(super) struct LogFile {
    file: Arc<dyn DiskFile>,
    pub(super) size: u64,
    window: Vec<u8>,
    /// Position of the window's first byte.
    start: u64,
}

impl LogFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        Ok(Self {
            size: file.stat()?.size,
            file,
            window: Vec::new(),
            start: 0,
        })
    }

    /// The bytes from `position` on, `count` of them or as many as there are.
    pub(super) fn bytes(&mut self, position: u64, count: usize) -> io::Result<&[u8]> {
        let left = self.size.saturating_sub(position);
        let count = usize::try_from(left).map_or(count, |left| count.min(left));
        let held = position.checked_sub(self.start).and_then(|skip| {
            let skip = usize::try_from(skip).ok()?;
            (skip.checked_add(count)? <= self.window.len()).then_some(skip)
        });
        let skip = if let Some(skip) = held {
            skip
        } else {
            let wanted = count.max(WINDOW_BYTES);
            let wanted = usize::try_from(left).map_or(wanted, |left| wanted.min(left));
            self.window.clear();
            self.window
                .try_reserve(wanted)
                .map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.window.resize(wanted, 0);
            let read = self.file.read_at(&mut self.window, position)?;
            self.window.truncate(read);
            self.start = position;
            0
        };
        let bytes = self.window.get(skip..).unwrap_or(&[]);
        Ok(bytes.get(..count).unwrap_or(bytes))
    }
}

/// Reads an index, a snapshot or a text file.
pub(super) fn whole(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_whole(&RealDisk, &resolved(path), limit)
}

/// The largest file that is read whole: an index of the largest segment of the smallest batches fits.
pub(super) fn whole_limit() -> u64 {
    Limits::default().max_state_file_bytes.max(1 << 30)
}

fn open(path: &Path) -> io::Result<Arc<dyn DiskFile>> {
    RealDisk.open(&resolved(path), Access::Read)
}

/// The user may name a link; what it leads to must be a regular file all the same.
fn resolved(path: &Path) -> std::path::PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
