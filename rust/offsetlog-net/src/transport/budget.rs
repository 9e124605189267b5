//! Memory that all requests in flight share.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Bytes that are free.
#[derive(Debug)]
pub(crate) struct Budget {
    free: Mutex<u64>,
    returned: Condvar,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            free: Mutex::new(bytes),
            returned: Condvar::new(),
        }
    }

    /// A part of it, of no bytes yet.
    pub(crate) fn part(&self) -> Part<'_> {
        Part {
            budget: self,
            bytes: 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory of one request. Dropping it returns the memory.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Part<'_> {
    /// Grows to `bytes`, waiting for others to release memory. Returns whether it succeeded before the deadline.
    pub(crate) fn grow(&mut self, bytes: u64, deadline: Instant) -> bool {
        let wanted = bytes.saturating_sub(self.bytes);
        let mut free = self.budget.lock();
        while *free < wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let outcome = self.budget.returned.wait_timeout(free, left);
            (free, _) = outcome.unwrap_or_else(PoisonError::into_inner);
        }
        *free -= wanted;
        self.bytes += wanted;
        true
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let mut free = self.budget.lock();
        *free = free.saturating_add(self.bytes);
        drop(free);
        self.budget.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_taken_comes_back() {
        let budget = Budget::new(10);
        let at_once = Instant::now();
        let mut first = budget.part();
        assert!(first.grow(6, at_once) && first.grow(8, at_once));
        let mut second = budget.part();
        assert!(!second.grow(3, Instant::now() + Duration::from_millis(5)));
        assert!(second.grow(2, at_once));
        drop(first);
        assert!(second.grow(10, at_once));
    }
}
