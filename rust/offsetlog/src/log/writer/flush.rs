//! Making appended bytes durable: on request, by settings, and in the background behind a roll.
//!
//! A sync never runs under the writer's lock: one caller syncs for all who wait (a group commit) while others go on appending.
//! After a sync that failed nothing more is appended and no sync is tried again, because the system forgets which pages it lost.

use super::PartitionWriter;
use super::group_commit::Commits;
use crate::disk::{Access, Disk, DiskFile, IoCall};
use crate::error::{Error, ErrorKind, Result};
use crate::log::Ends;
use crate::log::state::CHECKPOINT_INTERVAL_MS;
use crate::log::state::CleanMark;
use crate::segment::{Directory, segment_path};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Rolls that may wait for their sync before a further one waits with them.
const WAITING_MAX: usize = 4;

/// Files that are to be synced, and what is true then.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) files: Vec<(PathBuf, Arc<dyn DiskFile>)>,
    /// Closed segments that nothing was written to since the log was opened, whose bytes may not be on the disk all the same.
    pub(super) closed: Vec<i64>,
    /// Whether files were made, renamed or removed.
    pub(super) names: bool,
    /// Whether the files' times have to be durable too.
    pub(super) times: bool,
    pub(super) directory: Arc<Directory>,
    pub(super) ends: Arc<Ends>,
    /// Everything below is durable when the job is done.
    pub(super) up_to: i64,
}

impl Job {
    pub(super) fn run(&self) -> Result<()> {
        for &base in &self.closed {
            sync_closed(&self.directory, base)?;
        }
        for (path, file) in &self.files {
            let synced = if self.times {
                file.sync_all()
            } else {
                file.sync_data()
            };
            synced.map_err(|error| Error::io(IoCall::Sync, path, error))?;
        }
        if self.names {
            let path = &self.directory.path;
            self.directory
                .disk
                .sync_directory(path)
                .map_err(|error| Error::io(IoCall::SyncDirectory, path, error))?;
        }
        self.ends.raise_recovery_point(self.up_to);
        Ok(())
    }
}

/// Whether a file that this program has open still has its name: whoever removes the directory, or puts another one in its place,
/// leaves appends that nobody will ever find.
///
/// # Errors
/// `LogDir`, which ends the appending.
pub(super) fn check_in_place(disk: &dyn Disk, path: &Path, file: &dyn DiskFile) -> Result<()> {
    let held = file
        .stat()
        .map_err(|error| Error::io(IoCall::Stat, path, error))?;
    let reason = match disk.stat(path) {
        Ok(named) if named.id == held.id => return Ok(()),
        Ok(_) => "is another file by now: the directory was removed and made again",
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            "is gone: the file or its directory was removed or renamed"
        }
        Err(error) => return Err(Error::io(IoCall::Stat, path, error)),
    };
    let reason = format!(
        "the segment that this program appends to {reason} while it was open; what was appended since then has no name any more. \
         Find out who did that, and open the log again"
    );
    Err(Error::log_dir(path, reason))
}

/// What a caller has to do whose records are to be durable.
#[derive(Debug)]
pub(crate) enum Commit {
    /// They are.
    Done,
    /// Sync for all who wait.
    Lead(Job),
    /// Wait for the caller who syncs, then ask again.
    Follow,
}

/// Who syncs what: closed segments on a thread of its own, which lives as long as there is something to do, and one commit at a time.
#[derive(Debug, Default, Clone)]
pub(crate) struct Flusher(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<Queue>,
    changed: Condvar,
    commits: Commits,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// The thread is there.
    running: bool,
    /// When the thread that flushes by time wakes up, while there is one.
    alarm: Option<Instant>,
    closed: bool,
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
        self.0.commits.wait();
    }

    /// The callers who sync and wait.
    pub(crate) fn commits(&self) -> &Commits {
        &self.0.commits
    }

    /// Syncs for all who wait. Holds no lock meanwhile.
    pub(crate) fn commit(&self, job: &Job) -> Result<()> {
        // Rolls before this one hold bytes that come before these.
        drop(self.wait_until(|queue| !queue.running));
        let done = self.check(&job.directory.path).and_then(|()| job.run());
        self.stop_leading(done.as_ref().err());
        done
    }

    fn stop_leading(&self, failed: Option<&Error>) {
        let mut queue = self.0.lock();
        if let Some(error) = failed {
            queue.failed.get_or_insert_with(|| error.to_string());
        }
        let has_failed = queue.failed.is_some();
        drop(queue);
        self.0.commits.finish(has_failed);
    }

    fn is_idle(&self) -> bool {
        !self.0.lock().running && self.0.commits.is_idle()
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

    /// Takes note that there must be a flush by `due`; says whether a thread has to be started for it.
    pub(crate) fn set_alarm(&self, due: Instant) -> bool {
        let mut queue = self.0.lock();
        if queue.alarm.is_some() || queue.closed {
            return false;
        }
        queue.alarm = Some(due);
        true
    }

    /// Waits for the alarm; says whether it rang, or the log was closed before.
    pub(crate) fn await_alarm(&self) -> bool {
        let mut queue = self.0.lock();
        loop {
            let Some(due) = queue.alarm.filter(|_| !queue.closed) else {
                return false;
            };
            let now = Instant::now();
            if now >= due {
                queue.alarm = None;
                return true;
            }
            queue = self
                .0
                .changed
                .wait_timeout(queue, due - now)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// No thread could be started for the alarm.
    pub(crate) fn drop_alarm(&self) {
        self.0.lock().alarm = None;
    }

    fn close(&self) {
        self.wait();
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }

    fn wait_until(&self, condition: impl Fn(&Queue) -> bool) -> MutexGuard<'_, Queue> {
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
    fn lock(&self) -> MutexGuard<'_, Queue> {
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
                self.lock().failed.get_or_insert_with(|| error.to_string());
            }
        }
    }
}

impl PartitionWriter {
    /// What makes everything below `target` durable, or with `None` everything appended so far and every truncation.
    pub(crate) fn begin_commit(&mut self, target: Option<i64>) -> Result<Commit> {
        // A truncation may have taken away what the caller appended.
        let target = target.map(|target| target.min(self.log_end()));
        if target.is_some_and(|target| self.ends.recovery_point() >= target) {
            return Ok(Commit::Done);
        }
        self.check_usable()?;
        if !self.durability.flusher.commits().lead(self.log_end()) {
            return Ok(Commit::Follow);
        }
        if !self.durability.unsynced && self.ends.recovery_point() >= self.log_end() {
            self.durability.flusher.stop_leading(None);
            return Ok(Commit::Done);
        }
        self.commit_job()
            .map(Commit::Lead)
            .inspect_err(|_| self.durability.flusher.stop_leading(None))
    }

    /// Everything that is not durable yet. The indexes of the active segment are left out: they are rebuilt after a crash.
    pub(super) fn commit_job(&mut self) -> Result<Job> {
        // Here and not when the job is done: by then retention may have taken the segment.
        if let Err(error) = self.check_in_place() {
            self.poison(&error);
            return Err(error);
        }
        self.mark_unclean()?;
        self.note_gap()?;
        Ok(self.job())
    }

    /// As [`commit_job`](Self::commit_job), where nothing was changed yet and nothing is to be marked.
    pub(super) fn job(&mut self) -> Job {
        let recovery_point = self.ends.recovery_point();
        let first = self
            .segments
            .closed
            .partition_point(|&base| base <= recovery_point);
        let mut closed = std::mem::take(&mut self.durability.unsettled);
        closed.extend_from_slice(
            self.segments
                .closed
                .get(first.saturating_sub(1)..)
                .unwrap_or(&[]),
        );
        closed.sort_unstable();
        closed.dedup();
        self.durability.last_flush = self.now();
        self.durability.unsynced = false;
        Job {
            files: vec![self.segments.active.log_file()],
            closed,
            names: std::mem::take(&mut self.durability.names_changed),
            times: false,
            directory: Arc::clone(&self.directory),
            ends: Arc::clone(&self.ends),
            up_to: self.log_end(),
        }
    }

    pub(crate) const fn flusher(&self) -> &Flusher {
        &self.durability.flusher
    }

    /// What the settings ask for after an append: a sync each so many records or milliseconds. The caller does it.
    pub(super) fn after_append(&mut self, now: i64, recovery_point: i64) {
        let unflushed = self.log_end() - recovery_point;
        let by_count = unflushed >= self.config.effective.flush_messages();
        let by_time =
            now.saturating_sub(self.durability.last_flush) >= self.config.effective.flush_ms();
        self.durability.flush_due |= by_count || by_time;
        if now.saturating_sub(self.durability.last_checkpoint) >= CHECKPOINT_INTERVAL_MS
            && self.durability.flusher.is_idle()
        {
            self.durability.last_checkpoint = now;
            // An older recovery point is as good: a recovery reads more. What hinders this write will hinder others too.
            let saved = self.save_point();
            if let Err(error) = saved.and_then(|()| self.place.checkpoint_in_time(now)) {
                self.note_failure(&error);
            }
        }
        self.delete_due(now);
    }

    /// Whether the settings want what was appended to be durable before the caller is answered.
    pub(crate) fn take_flush_due(&mut self) -> bool {
        std::mem::take(&mut self.durability.flush_due)
    }

    /// Recovery point after all that a roll began is done.
    pub(crate) fn recovery_point(&self) -> i64 {
        self.durability.flusher.wait();
        self.ends.recovery_point()
    }

    /// Closes the log cleanly: everything durable, indexes trimmed, a snapshot, the clean mark.
    pub(crate) fn close(&mut self) -> Result<()> {
        if self.ends.is_closed() {
            return Ok(());
        }
        self.durability.flusher.wait();
        let closed = match self.check_usable() {
            Ok(()) => self.close_files(),
            // A broken log is left as after a crash: the next opening recovers it.
            Err(error) => Err(error),
        };
        self.ends.close();
        self.durability.flusher.close();
        self.unlock();
        closed
    }

    /// Before files are made by their names: they would come to stand among somebody else's.
    pub(super) fn check_in_place(&self) -> Result<()> {
        let (path, file) = self.segments.active.log_file();
        check_in_place(self.directory.disk.as_ref(), &path, file.as_ref())
    }

    fn close_files(&mut self) -> Result<()> {
        let untouched = !self.place.is_marked_unclean() && self.started_clean;
        if untouched {
            return Ok(());
        }
        self.check_in_place()?;
        self.mark_unclean()?;
        self.segments.active.touch()?;
        let now = self.now();
        self.expire_producers(now);
        self.take_snapshot(true)?;
        self.segments.active.close()?;
        let mut job = self.commit_job()?;
        // Behind a clean end nothing is rebuilt.
        job.files = self.segments.active.files();
        job.names = true;
        // The clean mark knows the file by its time.
        job.times = true;
        job.run()?;
        let state = self.state_at(self.ends.recovery_point());
        let mark = self.clean_mark()?;
        let (log_end, first_base) = (self.ends.log_end(), self.segments.first_base());
        self.place.close(state, mark, log_end, first_base)
    }

    /// Lets go of the files as a killed process would: nothing is written.
    pub(crate) fn abandon(&mut self) {
        self.ends.close();
        self.durability.flusher.close();
        self.unlock();
    }

    fn unlock(&mut self) {
        for lock in self.locks.drain(..).rev() {
            lock.release();
        }
    }

    /// How the active segment's file looks now.
    fn clean_mark(&self) -> Result<CleanMark> {
        let path = self.segments.active.path();
        let stat = self
            .directory
            .disk
            .stat(path)
            .map_err(|error| Error::io(IoCall::Stat, path, error))?;
        Ok(CleanMark {
            active_base: self.segments.active.base_offset,
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
        Ok(file) => file.sync_data(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    synced.map_err(|error| Error::io(IoCall::Sync, path, error))
}
