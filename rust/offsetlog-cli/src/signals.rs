//! Signals whose default would end `append`, `maintain` or `serve` in the middle: Ctrl-C, SIGTERM, and a file that reaches a limit.

use crate::Terminal;
use offsetlog::Interrupt;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// From now on Ctrl-C sets a flag, and a second one ends the process. Does nothing if the program was started with Ctrl-C ignored, as a
/// shell does for background jobs. If the system refuses, Ctrl-C does what it always does, which costs no appended record.
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

/// What ended a command that runs until it is stopped.
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

/// From now on a write past the file size limit (`ulimit -f`) is an error, which is reported like any other.
pub(crate) fn outlive_file_limits() {
    // Only that there is a handler matters. Where the system refuses one, the process ends there, as after a kill.
    let _ = flag::register(SIGXFSZ, Arc::default());
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
