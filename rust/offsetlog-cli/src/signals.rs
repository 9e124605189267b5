//! Signals whose default would end `append` or `serve` in the middle: Ctrl-C, SIGTERM, and a file that reaches a limit; and how many files
//! may be open.

use crate::Terminal;
use offsetlog::Interrupt;
use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Open files that are asked for at most.
const FILES_MAX: u64 = 65_536;

/// From now on Ctrl-C is something to be asked for, and a second one ends the process. Not where whoever started the program has it ignored, as a shell does for what
/// runs in the background. Where the system refuses, it does what it always does, which costs no record that is appended.
pub(crate) fn catch_interrupt() -> Option<Interrupt> {
    if is_ignored(SIGINT) {
        return None;
    }
    let noted = Arc::new(AtomicBool::new(false));
    // In this order: the first signal finds the flag down and raises it, the second one finds it raised.
    flag::register_conditional_default(SIGINT, Arc::clone(&noted)).ok()?;
    flag::register(SIGINT, Arc::clone(&noted)).ok()?;
    Some(Arc::new(move || noted.load(Ordering::Relaxed)))
}

/// What ended a verb that runs until it is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Ctrl-C.
    Interrupted,
    /// SIGTERM, with which services are stopped.
    Terminated,
}

/// From now on SIGINT and SIGTERM are something to be asked for; a second one ends the process. In a process of somebody else's only what
/// the terminal's interrupt says counts.
pub(crate) fn catch_stop(terminal: &Terminal) -> impl FnMut() -> Option<Stop> + use<> {
    let interrupt = terminal.interrupt.clone();
    let (mut interrupted, mut terminated) = (None, None);
    if terminal.owns_signals {
        interrupted = catch_interrupt();
        let noted = Arc::new(AtomicBool::new(false));
        let caught = flag::register_conditional_default(SIGTERM, Arc::clone(&noted))
            .and_then(|_| flag::register(SIGTERM, Arc::clone(&noted)));
        terminated = caught.ok().map(|_| noted);
    }
    move || {
        let is_asked = |asked: &Option<Interrupt>| asked.as_ref().is_some_and(|asked| asked());
        if is_asked(&interrupted) || is_asked(&interrupt) {
            return Some(Stop::Interrupted);
        }
        let is_terminated = terminated.as_ref()?.load(Ordering::Relaxed);
        is_terminated.then_some(Stop::Terminated)
    }
}

/// From now on a write past the largest size that a file may have here (`ulimit -f`) is an error, which is told like any other.
pub(crate) fn outlive_file_limits() {
    // Only that there is a handler matters. Where the system refuses one, the process ends there, as after a kill.
    let _ = flag::register(SIGXFSZ, Arc::default());
}

/// From now on the process may have as many files open as the system lets it: 1024 is what shells begin with, for the sake of programs
/// that count files in bits. Where the system refuses, fewer partitions are open at a time.
pub(crate) fn open_more_files() {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(FILES_MAX).min(FILES_MAX);
    if limit.current.is_some_and(|files| files < wanted) {
        limit.current = Some(wanted);
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Whether a signal was ignored when the process began: Linux tells; elsewhere none is.
fn is_ignored(signal: i32) -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return false;
    };
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
