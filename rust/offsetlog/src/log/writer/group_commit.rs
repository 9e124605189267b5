//! Group commit: one of several callers syncs for all of them.
//!
//! While one caller syncs, others append. Callers whose records that sync does not cover wait for the next one, which one of
//! them runs for all. Each waiter is woken once, when its records are durable, except for the one that runs the next sync:
//! waking all of them after each sync cost more than the syncs.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The group commits of one log.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    state: Mutex<State>,
    /// Waiters for the current commit and for the next one: two condition variables, indexed by the parity of the commit's
    /// number.
    groups: [Condvar; 2],
    /// Waiters for the moment when nobody syncs.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    under_way: bool,
    /// Number of commits begun, which is the number of the current or latest one.
    begun: u64,
    /// The current commit makes everything below this offset durable.
    end: i64,
    /// Waiters of each group, by parity, and for the moment when nobody syncs. Waking nobody is a system call too.
    waiting: [usize; 2],
    idle: usize,
}

impl State {
    const fn is_done(&self, number: u64) -> bool {
        self.begun > number || (self.begun == number && !self.under_way)
    }

    const fn waiting(&mut self, number: u64) -> &mut usize {
        let [even, odd] = &mut self.waiting;
        if number.is_multiple_of(2) { even } else { odd }
    }
}

impl Commits {
    /// Makes the caller the one who syncs everything below `end`. Returns false if somebody syncs already; after true the
    /// caller must call [`finish`](Self::finish).
    pub(crate) fn lead(&self, end: i64) -> bool {
        let mut state = self.lock();
        if state.under_way {
            return false;
        }
        state.under_way = true;
        state.begun += 1;
        state.end = end;
        true
    }

    /// Ends the current commit and wakes its waiters. Also wakes one waiter of the next commit to run it, or all if it
    /// `is_last`, because none of them can succeed.
    pub(crate) fn finish(&self, is_last: bool) {
        let mut state = self.lock();
        state.under_way = false;
        let number = state.begun;
        let (current, next) = (*state.waiting(number), *state.waiting(number + 1));
        let idle = state.idle;
        drop(state);
        if current > 0 {
            self.group(number).notify_all();
        }
        if next > 0 && is_last {
            self.group(number + 1).notify_all();
        } else if next > 0 {
            self.group(number + 1).notify_one();
        }
        if idle > 0 {
            self.idle.notify_all();
        }
    }

    /// Waits for the commit that reaches `target`; without a target, for one that has not begun. Returns whether it has ended.
    /// If not, nobody syncs, and the other waiters rely on this caller to [`lead`](Self::lead) or to
    /// [`pass_on`](Self::pass_on).
    pub(crate) fn wait_for(&self, target: Option<i64>) -> bool {
        let mut state = self.lock();
        let is_reached = state.under_way && target.is_some_and(|target| target <= state.end);
        let number = state.begun + u64::from(!is_reached);
        while !state.is_done(number) {
            if !state.under_way {
                return false;
            }
            *state.waiting(number) += 1;
            let group = self.group(number);
            state = group.wait(state).unwrap_or_else(PoisonError::into_inner);
            *state.waiting(number) -= 1;
        }
        true
    }

    /// Wakes another waiter to run the next commit, unless somebody syncs.
    pub(crate) fn pass_on(&self) {
        let state = self.lock();
        if !state.under_way {
            self.group(state.begun + 1).notify_one();
        }
    }

    /// Waits until nobody syncs.
    pub(crate) fn wait(&self) {
        let mut state = self.lock();
        while state.under_way {
            state.idle += 1;
            state = self
                .idle
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.lock().under_way
    }

    fn group(&self, number: u64) -> &Condvar {
        let [even, odd] = &self.groups;
        if number.is_multiple_of(2) { even } else { odd }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
