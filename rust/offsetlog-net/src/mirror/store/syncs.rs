//! Makes the copies durable while more is appended: a thread syncs, one at a time.

use offsetlog::{Error, ErrorKind, LogDir, Result};
use std::thread::JoinHandle;

/// Bytes after which a sync begins: the disk works meanwhile, and little is left for the end.
const BYTES: usize = 32 << 20;

/// What was written and is not durable yet, and the sync that is under way.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    is_dirty: bool,
    bytes: usize,
    running: Option<JoinHandle<Result<()>>>,
}

impl Syncs {
    /// Something is about to be written.
    pub(super) const fn dirty(&mut self) {
        self.is_dirty = true;
    }

    /// This many bytes were appended.
    pub(super) const fn appended(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether enough was appended for a sync.
    pub(super) const fn is_due(&self) -> bool {
        self.bytes >= BYTES
    }

    /// Begins to sync, unless a sync is under way or nothing was written.
    ///
    /// # Errors
    /// That of the sync before.
    pub(super) fn begin(&mut self, log_dir: &LogDir) -> Result<()> {
        if self.running.as_ref().is_some_and(|it| !it.is_finished()) {
            return Ok(());
        }
        self.end()?;
        if !self.is_dirty {
            return Ok(());
        }
        let syncing = log_dir.clone();
        let thread = std::thread::Builder::new().name("offsetlog-mirror-sync".to_owned());
        match thread.spawn(move || syncing.flush()) {
            Ok(running) => self.running = Some(running),
            // Without a thread the caller syncs itself.
            Err(_) => log_dir.flush()?,
        }
        self.is_dirty = false;
        self.bytes = 0;
        Ok(())
    }

    /// Waits for the sync that is under way. If it fails, what it was to sync still counts as not durable.
    ///
    /// # Errors
    /// Its error.
    pub(super) fn end(&mut self) -> Result<()> {
        let ended = match self.running.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(synced)) => synced,
            Some(Err(_)) => Err(Error::new(ErrorKind::Poisoned {
                first: "the thread that syncs panicked".to_owned(),
            })),
        };
        self.is_dirty |= ended.is_err();
        ended
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// Those of [`LogDir::flush`].
    pub(super) fn flush(&mut self, log_dir: &LogDir) -> Result<()> {
        self.end()?;
        if self.is_dirty {
            log_dir.flush()?;
            self.is_dirty = false;
            self.bytes = 0;
        }
        Ok(())
    }
}
