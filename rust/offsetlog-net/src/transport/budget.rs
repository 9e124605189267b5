//! Memory that all requests in flight share.

use super::clock::{Awaited, Clock};
use std::sync::Arc;
use std::time::Instant;

/// Bytes that are free.
#[derive(Debug)]
pub(crate) struct Budget {
    free: Awaited<u64>,
}

impl Budget {
    pub(crate) fn new(bytes: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            free: Awaited::new(bytes, clock),
        }
    }

    /// A part of it, of no bytes yet.
    pub(crate) fn part(&self) -> Part<'_> {
        Part {
            budget: self,
            bytes: 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn poison(&self) {
        self.free.poison();
    }

    /// Bytes that nobody has.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u64 {
        *self.free.lock()
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
        let mut free = self.budget.free.lock();
        while *free < wanted {
            let Some(left) = self.budget.free.left(deadline) else {
                return false;
            };
            free = self.budget.free.wait(free, left);
        }
        *free -= wanted;
        self.bytes += wanted;
        true
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let change = |free: &mut u64| *free = free.saturating_add(self.bytes);
        self.budget.free.change(change);
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::SystemClock;
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_taken_comes_back() {
        let budget = Budget::new(10, Arc::new(SystemClock));
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
