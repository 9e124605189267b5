//! What a writer shares with its threads: the records that wait, their timer, and how they are appended at last.

use crate::clock::LogClock;
use crate::interrupt::{self, detached};
use crate::raise::raise;
use crate::writers::{self, Lost};
use offsetlog::disk::process_id;
use offsetlog::format::counted;
use offsetlog::{AppendInfo, AppendOptions, Error, ErrorKind, RecordAccumulator};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks whether another thread is done.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What the writer and its threads share.
pub(crate) struct Shared {
    path: PathBuf,
    /// The process that made it.
    pub(super) process: u32,
    pub(super) clock: LogClock,
    options: AppendOptions,
    has_linger: bool,
    /// Whether a thread ends it, because nobody has the writer any more.
    ending: AtomicBool,
    /// Whether the log's topic was deleted.
    deleted: AtomicBool,
    pub(super) state: Mutex<State>,
    changed: Condvar,
}

pub(super) struct State {
    /// `None` once the writer is closed, nothing waits and its timer has ended: a writer that is done holds no log open.
    pub(super) log: Option<offsetlog::LogWriter>,
    pub(super) records: RecordAccumulator,
    timer: bool,
    pub(super) closed: bool,
    /// A failure of the timer's, for the next call.
    pub(super) failed: Option<Lost>,
    pub(super) last: Option<AppendInfo>,
}

/// Why what waits is appended at last.
#[derive(Clone, Copy)]
pub(crate) enum Ending {
    WithLog,
    WithProcess,
    /// The process ends later, and threads of it may go on: the writer stays open.
    BeforeProcess,
}

impl Ending {
    const fn is_end(self) -> bool {
        !matches!(self, Self::BeforeProcess)
    }
}

impl Shared {
    /// `linger` is whether a timer appends what has waited long enough.
    pub(super) fn new(
        log: offsetlog::LogWriter,
        clock: LogClock,
        records: RecordAccumulator,
        options: AppendOptions,
        linger: bool,
    ) -> Self {
        Self {
            path: log.log().path().to_path_buf(),
            process: process_id(),
            clock,
            options,
            has_linger: linger,
            ending: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
            state: Mutex::new(State {
                log: Some(log),
                records,
                timer: false,
                closed: false,
                failed: None,
                last: None,
            }),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn append(&self, state: &mut State) -> Result<(), Error> {
        let Some(log) = &state.log else {
            return Ok(());
        };
        let appended = state.records.append_to(log, &self.options);
        let info = match &appended {
            Ok(info) => *info,
            Err(error) => error.appended(),
        };
        state.last = info.or(state.last);
        appended.map(|_| ())
    }

    /// Appends; a failure has the number of records that are not in the log.
    fn append_all(&self, state: &mut State) -> Result<(), Lost> {
        let waiting = state.records.len();
        self.append(state).map_err(|error| Lost {
            path: self.path.clone(),
            records: Some(if error.is_appended() { 0 } else { waiting }),
            error,
            with_its_topic: false,
        })
    }

    /// Its log was closed because the topic was deleted.
    pub(crate) fn note_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
    }

    /// Appends what waits and ends the writer, as its log is about to be closed. Waits for others who do so now.
    ///
    /// # Errors
    /// What nobody has been told yet, with the number of records that are not in the log.
    pub(crate) fn end(&self, py: Python<'_>) -> Result<(), Lost> {
        self.finish(py, Ending::WithLog)
    }

    /// A clock that raises is asked again by the engine, which takes the system's time then: no record is lost for that.
    fn finish(&self, py: Python<'_>, how: Ending) -> Result<(), Lost> {
        // In a forked child the records that wait are the parent's to append.
        if self.process != process_id() {
            return Ok(());
        }
        if detached(py, || self.locked(how).map(|state| state.is_done(how)))? {
            return Ok(());
        }
        let finish = || self.finish_now(how);
        self.clock.timed(py, finish).unwrap_or_else(|raised| {
            detached(py, finish)?;
            // The engine's own question has told of an error, but Ctrl-C ends one question only.
            if raised.is_instance_of::<PyException>(py) {
                return Ok(());
            }
            interrupt::keep(raised);
            Err(self.interrupted(Some(0)))
        })
    }

    fn finish_now(&self, how: Ending) -> Result<(), Lost> {
        let mut state = self.locked(how)?;
        let appended = self.append_all(&mut state);
        let failed = state.failed.take();
        if how.is_end() {
            state.closed = true;
        }
        state.end_if_closed();
        drop(state);
        self.changed.notify_all();
        let finished = match (failed, appended) {
            (None, appended) => appended,
            (Some(failed), Ok(())) => Err(failed),
            (Some(mut failed), Err(next)) => {
                failed.add(&next);
                Err(failed)
            }
        };
        finished.map_err(|lost| Lost {
            with_its_topic: matches!(lost.error.kind(), ErrorKind::Closed)
                && self.deleted.load(Ordering::Acquire),
            ..lost
        })
    }

    /// The state, once nobody else has it. With the process, once no thread ends the writer any more, unless Ctrl-C ends the wait.
    fn locked(&self, how: Ending) -> Result<MutexGuard<'_, State>, Lost> {
        if matches!(how, Ending::WithLog) {
            return Ok(self.state());
        }
        let is_interrupted = interrupt::interrupt();
        loop {
            if !self.ending.load(Ordering::Acquire) {
                match self.state.try_lock() {
                    Ok(state) => return Ok(state),
                    Err(TryLockError::Poisoned(state)) => return Ok(state.into_inner()),
                    Err(TryLockError::WouldBlock) => {}
                }
            }
            if is_interrupted() {
                return Err(self.interrupted(None));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn interrupted(&self, records: Option<usize>) -> Lost {
        Lost {
            path: self.path.clone(),
            records,
            error: Error::new(ErrorKind::Interrupted),
            with_its_topic: false,
        }
    }

    /// Ends the writer that nobody has any more and returns how many records wait, what is done with them, and a failure that nobody has
    /// been told. `None` if another thread has the state, and appends all that waits.
    ///
    /// It appends nothing here: this may be in the middle of anything, also of the engine's work on this log.
    pub(super) fn dropped(self: &Arc<Self>) -> Option<(usize, &'static str, Option<Lost>)> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // What is left to tell afterwards, the thread does.
                self.end_in_background();
                return None;
            }
        };
        state.closed = true;
        let waiting = state.records.len();
        let failed = if waiting == 0 {
            state.failed.take()
        } else {
            None
        };
        state.end_if_closed();
        drop(state);
        self.changed.notify_all();
        let what = if waiting == 0 || self.end_in_background() {
            "appended in the background"
        } else {
            "appended when the log is closed or the program ends"
        };
        Some((waiting, what, failed))
    }

    /// Ends it in a thread. Returns whether there is one; without, closing the log or the end of the process does it.
    fn end_in_background(self: &Arc<Self>) -> bool {
        self.ending.store(true, Ordering::Release);
        let shared = Arc::clone(self);
        let started = thread::Builder::new()
            .name("offsetlog-end".to_owned())
            .spawn(move || shared.end_alone());
        if started.is_err() {
            self.ending.store(false, Ordering::Release);
            mem::forget(Arc::clone(self));
        }
        started.is_ok()
    }

    fn end_alone(&self) {
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        let _over = Over(&self.ending);
        if let Err(lost) = self.finish_now(Ending::WithLog) {
            Python::try_attach(|py| self.tell(py, &lost));
        }
    }

    /// Appends what waits as the process ends, with a warning if nobody did.
    ///
    /// # Errors
    /// What the logger was told.
    pub(crate) fn end_with_process(&self, py: Python<'_>, how: Ending) -> PyResult<()> {
        if self.process != process_id() {
            return Ok(());
        }
        let waiting = detached(py, || self.locked(how).map(|state| state.records.len()));
        let finished = waiting.and_then(|waiting| {
            if waiting > 0 {
                writers::warn(py, &self.unclosed(waiting, "appended now"));
            }
            self.finish(py, how)
        });
        finished.or_else(|lost| {
            self.tell(py, &lost);
            if lost.with_its_topic {
                return Ok(());
            }
            Err(raise(py, &lost.error))
        })
    }

    /// A timer runs only while records wait.
    pub(super) fn start_timer(self: &Arc<Self>, state: &mut State) {
        if state.timer || !self.has_linger {
            return;
        }
        let shared = Arc::clone(self);
        let started = thread::Builder::new()
            .name("offsetlog-linger".to_owned())
            .spawn(move || shared.keep_time());
        state.timer = started.is_ok();
    }

    /// Appends what has waited long enough; ends when nothing waits.
    fn keep_time(&self) {
        let mut state = self.state();
        while !state.records.is_empty() {
            let left = if state.closed {
                Some(Duration::ZERO)
            } else {
                state.records.time_left(Instant::now())
            };
            let Some(left) = left else {
                break;
            };
            if !left.is_zero() {
                let (next, _) = self
                    .changed
                    .wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner);
                state = next;
                continue;
            }
            if let Err(lost) = self.append_all(&mut state) {
                match &mut state.failed {
                    Some(failed) => failed.add(&lost),
                    none => *none = Some(lost),
                }
            }
        }
        state.timer = false;
        state.end_if_closed();
    }

    /// Says in the logger what no caller is there for.
    fn tell(&self, py: Python<'_>, lost: &Lost) {
        if lost.with_its_topic {
            lost.log_gone(py);
        } else {
            writers::log(py, "error", &self.told(lost));
        }
    }

    pub(super) fn told(&self, lost: &Lost) -> String {
        let what = match lost.records {
            None => "what waited in a Writer that was not closed may not be in the log".to_owned(),
            Some(0) => "a Writer that was not closed".to_owned(),
            Some(records) => format!(
                "{} of a Writer that was not closed could not be appended",
                counted(records, "record")
            ),
        };
        format!("{}: {what}: {}", self.path.display(), lost.error)
    }

    pub(super) fn unclosed(&self, waiting: usize, what: &str) -> String {
        format!(
            "{}: a Writer was not closed: {} that waited in it {} {what}; close it, or use it in a with block",
            self.path.display(),
            counted(waiting, "record"),
            if waiting == 1 { "is" } else { "are" }
        )
    }
}

impl State {
    /// Whether nothing is left to be done.
    pub(super) fn is_done(&self, how: Ending) -> bool {
        (self.closed || !how.is_end()) && self.records.is_empty() && self.failed.is_none()
    }

    fn end_if_closed(&mut self) {
        if self.closed && !self.timer && self.records.is_empty() {
            self.log = None;
        }
    }
}
