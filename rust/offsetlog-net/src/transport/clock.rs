//! The time of a server's connections: the system's, or one that a test turns.

use offsetlog::disk::wall_clock;
use std::fmt::Debug;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tells the time, and lets it pass.
pub(crate) trait Clock: Debug + Send + Sync {
    /// The time that deadlines are in.
    fn now(&self) -> Instant;

    /// Milliseconds since 1970, for the protocol logic.
    fn wall_ms(&self) -> i64;

    /// Waits this long.
    fn sleep(&self, time: Duration);

    /// The clock, if a test turns it. Whoever waits by the system's clock is woken by what it waits for.
    fn turned(&self) -> Option<&dyn Turned> {
        None
    }
}

/// A clock that a test turns.
pub(crate) trait Turned {
    /// Lets others go on, for this long at most. It may also return earlier.
    fn pass(&self, at_most: Duration);
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall_ms(&self) -> i64 {
        wall_clock()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The system's clock for who talks alone, in memory: what slows down others need not be waited for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoPauses;

impl Clock for NoPauses {
    fn now(&self) -> Instant {
        SystemClock.now()
    }

    fn wall_ms(&self) -> i64 {
        SystemClock.wall_ms()
    }

    fn sleep(&self, _: Duration) {}
}

/// A value that many threads change, and wait for.
#[derive(Debug)]
pub(crate) struct Awaited<T> {
    value: Mutex<T>,
    moved: Condvar,
    clock: Arc<dyn Clock>,
}

impl<T> Awaited<T> {
    pub(crate) fn new(value: T, clock: Arc<dyn Clock>) -> Self {
        Self {
            value: Mutex::new(value),
            moved: Condvar::new(),
            clock,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Panics under its lock.
    #[cfg(test)]
    pub(crate) fn poison(&self) {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = self.lock();
            panic!("planted");
        }));
        assert!(caught.is_err() && self.value.is_poisoned());
    }

    /// Changes it, and wakes all that wait.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.moved.notify_all();
    }

    /// Time until the deadline; `None` if it has passed.
    pub(crate) fn left(&self, deadline: Instant) -> Option<Duration> {
        let left = deadline.saturating_duration_since(self.clock.now());
        (!left.is_zero()).then_some(left)
    }

    /// Waits for a change, for this long at most. It may also return without one.
    pub(crate) fn wait<'a>(
        &'a self,
        value: MutexGuard<'a, T>,
        at_most: Duration,
    ) -> MutexGuard<'a, T> {
        if let Some(clock) = self.clock.turned() {
            drop(value);
            clock.pass(at_most);
            return self.lock();
        }
        let waited = self.moved.wait_timeout(value, at_most);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
