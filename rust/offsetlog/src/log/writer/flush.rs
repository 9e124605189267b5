//! Makes appended bytes durable: when a caller flushes, by `flush.messages` and `flush.ms`, and after a roll.
//!
//! A flush syncs outside the writer's lock: one caller syncs for all who wait (a group commit), and others append meanwhile.
//! After a roll a thread syncs in the background. Rarer changes, such as a truncation, sync under the lock.
//!
//! After a failed sync nothing is appended and no sync is retried: the kernel may have dropped the pages that it could not
//! write, and a second sync would succeed.

use super::PartitionWriter;
use super::group_commit::Commits;
use crate::disk::{Access, Disk, DiskFile, IoCall};
use crate::error::{Error, ErrorKind, Result};
use crate::log::LiveOffsets;
use crate::log::state::CHECKPOINT_INTERVAL_MS;
use crate::log::state::CleanMark;
use crate::segment::{Directory, segment_path};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Number of queued syncs of rolls at which the next roll waits.
const WAITING_MAX: usize = 4;

/// Files to sync, and the recovery point that holds afterwards.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) files: Vec<(PathBuf, Arc<dyn DiskFile>)>,
    /// Closed segments that may not be durable. Their files are opened by path and synced.
    pub(super) closed: Vec<i64>,
    /// Whether to sync the directory, because files were created, renamed or deleted.
    pub(super) names: bool,
    /// Whether the files' modification times must be durable too.
    pub(super) times: bool,
    pub(super) directory: Arc<Directory>,
    pub(super) ends: Arc<LiveOffsets>,
    /// Everything below this offset is durable after the job.
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

/// Checks that a file which this process has open still has its name. If somebody deletes or replaces the directory, nobody
/// will ever find what is appended.
///
/// # Errors
/// `LogDir` if it has not; `Io`.
pub(super) fn check_in_place(disk: &dyn Disk, path: &Path, file: &dyn DiskFile) -> Result<()> {
    let held = file
        .stat_at_open()
        .map_err(|error| Error::io(IoCall::Stat, path, error))?;
    let reason = match disk.id(path) {
        Ok(named) if named == held.id => return Ok(()),
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

/// What a caller must do to make its records durable.
#[derive(Debug)]
pub(crate) enum Commit {
    /// Nothing: they are durable.
    Done,
    /// Run this job for all who wait.
    Lead(Job),
    /// Wait for the caller who syncs, then ask again.
    Follow,
}

/// Runs the syncs: those of rolls on a background thread, which ends when there is nothing left to do, and one commit at a
/// time.
#[derive(Debug, Default, Clone)]
pub(crate) struct Flusher(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<Queue>,
    /// Whether a sync has failed: each append asks, without the lock.
    has_failed: AtomicBool,
    changed: Condvar,
    commits: Commits,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// The background thread is running.
    running: bool,
    /// When the thread that flushes for `flush.ms` wakes up, if there is one.
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
            // If no thread can be started, the caller syncs.
            self.0.work();
        }
    }

    /// Waits until all syncs that were started have ended.
    pub(super) fn wait(&self) {
        drop(self.wait_until(|queue| !queue.running));
        self.0.commits.wait();
    }

    /// The group commits of this log.
    pub(crate) fn commits(&self) -> &Commits {
        &self.0.commits
    }

    /// Runs `job` for all who wait. Holds no lock meanwhile.
    pub(crate) fn commit(&self, job: &Job) -> Result<()> {
        // Earlier rolls hold bytes that come before these, so their syncs must end first.
        drop(self.wait_until(|queue| !queue.running));
        let done = self.check(&job.directory.path).and_then(|()| job.run());
        self.stop_leading(done.as_ref().err());
        done
    }

    fn stop_leading(&self, failed: Option<&Error>) {
        let mut queue = self.0.lock();
        if let Some(error) = failed {
            self.0.fail(&mut queue, error);
        }
        let has_failed = queue.failed.is_some();
        drop(queue);
        self.0.commits.finish(has_failed);
    }

    fn is_idle(&self) -> bool {
        !self.0.lock().running && self.0.commits.is_idle()
    }

    /// Fails with the first error of a sync: after it, nobody knows which pages reached the disk.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        if !self.0.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        match &self.0.lock().failed {
            Some(first) => Err(Error::new(ErrorKind::Poisoned {
                first: first.clone(),
            })
            .at_path(path)),
            None => Ok(()),
        }
    }

    /// Schedules a flush at `due`, unless one is scheduled. Returns whether the caller must start a thread for it.
    pub(crate) fn set_alarm(&self, due: Instant) -> bool {
        let mut queue = self.0.lock();
        if queue.alarm.is_some() || queue.closed {
            return false;
        }
        queue.alarm = Some(due);
        true
    }

    /// Waits for the scheduled flush. Returns false if the log was closed first.
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

    /// Cancels the scheduled flush, because no thread could be started for it.
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

    /// Keeps the first error of a sync.
    fn fail(&self, queue: &mut Queue, error: &Error) {
        queue.failed.get_or_insert_with(|| error.to_string());
        self.has_failed.store(true, Ordering::Release);
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
                self.fail(&mut self.lock(), &error);
            }
        }
    }
}

impl PartitionWriter {
    /// Decides how the caller makes everything below `target` durable; without a target, everything appended so far and every
    /// truncation.
    pub(crate) fn begin_commit(&mut self, target: Option<i64>) -> Result<Commit> {
        // A truncation may have deleted what the caller appended.
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

    /// Returns the sync of everything that is not durable yet. Leaves out the indexes of the active segment: recovery rebuilds
    /// them.
    pub(super) fn commit_job(&mut self) -> Result<Job> {
        // Checked here and not after the sync: by then retention may have deleted the segment.
        if let Err(error) = self.check_in_place() {
            self.poison(&error);
            return Err(error);
        }
        self.mark_unclean()?;
        self.note_gap()?;
        Ok(self.job())
    }

    /// As [`commit_job`](Self::commit_job), but checks and writes nothing.
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

    /// Ends an append: decides whether `flush.messages` or `flush.ms` requires a sync, which the caller performs; writes the
    /// recovery point, at most once a minute; deletes files whose delay is over.
    pub(super) fn end_append(&mut self, now: i64, recovery_point: i64) {
        let unflushed = self.log_end() - recovery_point;
        let by_count = unflushed >= self.config.effective.flush_messages();
        let by_time =
            now.saturating_sub(self.durability.last_flush) >= self.config.effective.flush_ms();
        self.durability.flush_due |= by_count || by_time;
        if now.saturating_sub(self.durability.last_checkpoint) >= CHECKPOINT_INTERVAL_MS
            && self.durability.flusher.is_idle()
        {
            self.durability.last_checkpoint = now;
            // The append succeeds even if this write fails: with the older recovery point a recovery only reads more.
            let saved = self.save_point();
            if let Err(error) = saved.and_then(|()| self.place.checkpoint_in_time(now)) {
                self.note_failure(&error);
            }
        }
        self.delete_due(now);
    }

    /// Returns whether the settings require a sync before the append returns.
    pub(crate) fn take_flush_due(&mut self) -> bool {
        std::mem::take(&mut self.durability.flush_due)
    }

    /// Waits for the syncs under way and returns the recovery point.
    pub(crate) fn recovery_point(&self) -> i64 {
        self.durability.flusher.wait();
        self.ends.recovery_point()
    }

    /// Closes the log cleanly: writes a producer snapshot, trims the indexes, syncs everything and writes the clean-shutdown
    /// mark.
    pub(crate) fn close(&mut self) -> Result<()> {
        if self.ends.is_closed() {
            return Ok(());
        }
        self.durability.flusher.wait();
        let closed = match self.check_usable() {
            Ok(()) => self.close_files(),
            // A poisoned log is left as after a crash: the next opening recovers it.
            Err(error) => Err(error),
        };
        self.maps.close();
        self.durability.flusher.close();
        if closed.is_err() {
            self.place.give_up();
        }
        self.unlock();
        closed
    }

    /// Has [`close`](Self::close) write all that a log which was changed gets.
    pub(crate) fn lack_lines(&mut self) {
        self.started_clean = false;
    }

    /// Checks that the active segment's file still has its name. Called before files are created by path: in a replaced
    /// directory they would be created among those of another log.
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
        // Opening after a clean end rebuilds no index, so the indexes are synced too.
        job.files = self.segments.active.files();
        job.names = true;
        // The clean-shutdown mark identifies the file by its modification time.
        job.times = true;
        job.run()?;
        let state = self.state_at(self.ends.recovery_point());
        let mark = self.clean_mark()?;
        let (log_end, first_base) = (self.ends.log_end(), self.segments.first_base());
        self.place.close(state, mark, log_end, first_base)
    }

    /// Closes the log as a killed process would: writes nothing more and releases the locks.
    pub(crate) fn abandon(&mut self) {
        self.maps.close();
        self.durability.flusher.close();
        self.place.give_up();
        self.unlock();
    }

    fn unlock(&mut self) {
        for lock in self.locks.drain(..).rev() {
            lock.release();
        }
    }

    /// Describes the active segment's file as it is now.
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

/// Syncs a file if it exists.
pub(super) fn sync_file(disk: &dyn Disk, path: &Path) -> Result<()> {
    let synced = match disk.open(path, Access::Write) {
        Ok(file) => file.sync_data(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    synced.map_err(|error| Error::io(IoCall::Sync, path, error))
}
