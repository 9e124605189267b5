//! Signals whose default would end `append` in the middle: Ctrl-C, and a file that reaches a limit.

use offsetlog::Interrupt;
use signal_hook::consts::{SIGINT, SIGXFSZ};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// From now on a write past the largest size that a file may have here (`ulimit -f`) is an error, which is told like any other.
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
