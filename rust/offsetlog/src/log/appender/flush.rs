//! Making appended bytes durable: on request, by settings, and in the background behind a roll.

use super::Appender;
use super::place::{CleanMark, State};
use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Error, ErrorKind, Result};
use crate::log::Ends;
use crate::segment::{Directory, segment_path};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Rolls that may wait for their sync before a further one waits with them.
const WAITING_MAX: usize = 16;

/// Files of a closed segment that are to be synced, and what is true then.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) files: Vec<(PathBuf, Arc<dyn DiskFile>)>,
    pub(super) directory: Arc<Directory>,
    pub(super) ends: Arc<Ends>,
    /// Everything below is durable when the job is done.
    pub(super) up_to: i64,
}

impl Job {
    fn run(&self) -> Result<()> {
        for (path, file) in &self.files {
            file.sync_all()
                .map_err(|error| Error::io("sync", path, error))?;
        }
        let path = &self.directory.path;
        self.directory
            .disk
            .sync_directory(path)
            .map_err(|error| Error::io("sync", path, error))?;
        self.ends.raise_recovery_point(self.up_to);
        Ok(())
    }
}

/// Syncs closed segments on a thread of its own, which lives as long as there is something to do.
#[derive(Debug, Default)]
pub(super) struct Flusher(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    running: bool,
    failed: Option<String>,
}

impl Flusher {
    pub(super) fn start(&self, job: Job) {
        let mut queue = self.wait_until(|queue| queue.jobs.len() < WAITING_MAX);
        queue.jobs.push_back(job);
        if queue.running {
            return;
        }
        queue.running = true;
        drop(queue);
        let shared = Arc::clone(&self.0);
        let worker = std::thread::Builder::new()
            .name("offsetlog-flush".to_owned())
            .spawn(move || shared.work());
        if worker.is_err() {
            // No thread to be had: the caller does it.
            self.0.work();
        }
    }

    /// Waits until all that was started is done.
    pub(super) fn wait(&self) {
        drop(self.wait_until(|queue| !queue.running));
    }

    /// The first failure, which ends the appending: what a failed sync left of the pages is not known.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        match &self.0.lock().failed {
            Some(first) => Err(Error::new(ErrorKind::Poisoned {
                first: first.clone(),
            })
            .at_path(path)),
            None => Ok(()),
        }
    }

    fn wait_until(&self, condition: impl Fn(&Queue) -> bool) -> std::sync::MutexGuard<'_, Queue> {
        let mut queue = self.0.lock();
        while !condition(&queue) {
            queue = self
                .0
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        queue
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let job = {
                let mut queue = self.lock();
                let next = if queue.failed.is_some() {
                    queue.jobs.clear();
                    None
                } else {
                    queue.jobs.pop_front()
                };
                if next.is_none() {
                    queue.running = false;
                }
                self.changed.notify_all();
                next
            };
            let Some(job) = job else { return };
            if let Err(error) = job.run() {
                self.lock().failed = Some(error.to_string());
            }
        }
    }
}

impl Appender {
    /// Makes everything appended so far durable, and the names of new files with it.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.check_usable()?;
        self.flusher.wait();
        self.flusher.check(&self.directory.path)?;
        let log_end = self.log_end();
        if self.ends.recovery_point() >= log_end {
            return Ok(());
        }
        self.mark_unclean()?;
        self.active.touch()?;
        if let Err(error) = self.sync_up_to(log_end) {
            // A second sync would answer with success although pages were lost.
            self.poison(&error);
            return Err(error);
        }
        self.last_flush = self.now();
        Ok(())
    }

    fn sync_up_to(&self, log_end: i64) -> Result<()> {
        let recovery_point = self.ends.recovery_point();
        let first = self.closed.partition_point(|&base| base <= recovery_point);
        for &base in self.closed.get(first.saturating_sub(1)..).unwrap_or(&[]) {
            sync_closed(&self.directory, base)?;
        }
        Job {
            files: self.active.files(),
            directory: Arc::clone(&self.directory),
            ends: Arc::clone(&self.ends),
            up_to: log_end,
        }
        .run()
    }

    /// What the settings ask for after an append: a sync each so many records or milliseconds.
    pub(super) fn after_append(&mut self, now: i64, recovery_point: i64) -> Result<()> {
        let unflushed = self.log_end() - recovery_point;
        let by_count = unflushed >= self.config.flush_messages();
        let by_time = now.saturating_sub(self.last_flush) >= self.config.flush_ms();
        if by_count || by_time {
            self.flush()?;
        }
        self.delete_due(now);
        Ok(())
    }

    /// Recovery point after all that a roll began is done.
    pub(crate) fn recovery_point(&self) -> i64 {
        self.flusher.wait();
        self.ends.recovery_point()
    }

    /// Closes the log cleanly: everything durable, indexes trimmed, a snapshot, the clean mark.
    pub(crate) fn close(&mut self) -> Result<()> {
        if self.ends.is_closed() {
            return Ok(());
        }
        let closed = match self.check_usable() {
            Ok(()) => self.close_files(),
            // A broken log is left as after a crash: the next opening recovers it.
            Err(error) => Err(error),
        };
        self.ends.close();
        self.flusher.wait();
        self.unlock();
        closed
    }

    fn close_files(&mut self) -> Result<()> {
        self.flusher.wait();
        let untouched = !self.place.is_marked_unclean() && self.started_clean;
        if untouched {
            return Ok(());
        }
        self.mark_unclean()?;
        self.active.touch()?;
        let now = self.now();
        self.expire_producers(now);
        self.take_snapshot(true)?;
        self.active.close()?;
        let log_end = self.log_end();
        self.sync_up_to(log_end)?;
        self.flusher.check(&self.directory.path)?;
        let state = State::new(self.ends.recovery_point(), self.ends.log_start());
        self.place
            .checkpoint(state, self.high_watermark(), self.first_base())?;
        let mark = self.clean_mark()?;
        self.place.mark_clean(state, mark)
    }

    /// Lets go of the files as a killed process would: nothing is written.
    pub(crate) fn abandon(&mut self) {
        self.flusher.wait();
        self.ends.close();
        self.unlock();
    }
}

impl Appender {
    fn unlock(&mut self) {
        for lock in self.locks.drain(..).rev() {
            lock.release();
        }
    }

    /// How the active segment's file looks now.
    fn clean_mark(&self) -> Result<CleanMark> {
        let path = self.active.path();
        let stat = self
            .directory
            .disk
            .stat(path)
            .map_err(|error| Error::io("look at", path, error))?;
        Ok(CleanMark {
            active_base: self.active.base_offset,
            size: stat.size,
            modified_ns: stat.modified_ns,
        })
    }
}

fn sync_closed(directory: &Directory, base_offset: i64) -> Result<()> {
    for suffix in [".log", ".index", ".timeindex", ".txnindex"] {
        let path = segment_path(&directory.path, base_offset, suffix);
        sync_file(directory.disk.as_ref(), &path)?;
    }
    Ok(())
}

/// Syncs a file, if it is there.
pub(super) fn sync_file(disk: &dyn Disk, path: &Path) -> Result<()> {
    let synced = match disk.open(path, Access::Write) {
        Ok(file) => file.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    synced.map_err(|error| Error::io("sync", path, error))
}
