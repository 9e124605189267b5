//! Group commit: who of several callers syncs, and who waits for that.
//!
//! While one caller syncs, others append. Those whose records the sync does not reach wait for the next one, which one of them does for
//! all of them. Each is woken once, when its records are durable, but for that one: waking all after each sync cost more than syncing.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The callers of one log.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    state: Mutex<State>,
    /// Those who wait for the commit under way and for the next one, by whether its number is even.
    groups: [Condvar; 2],
    /// Those who wait until nobody syncs.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    under_way: bool,
    /// How many commits began: the number of the one under way, or of the last one.
    begun: u64,
    /// Everything below is durable when the one under way is done.
    end: i64,
}

impl State {
    const fn is_done(&self, number: u64) -> bool {
        self.begun > number || (self.begun == number && !self.under_way)
    }
}

impl Commits {
    /// Takes the part of the caller who syncs everything below `end`, unless somebody has it. Who takes it calls
    /// [`finish`](Self::finish).
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

    /// The commit under way is over. Where no further one can follow all are woken to find that out.
    pub(crate) fn finish(&self, is_last: bool) {
        let mut state = self.lock();
        state.under_way = false;
        let number = state.begun;
        drop(state);
        self.group(number).notify_all();
        if is_last {
            self.group(number + 1).notify_all();
        } else {
            self.group(number + 1).notify_one();
        }
        self.idle.notify_all();
    }

    /// Waits for the commit that reaches `target`, or with `None` for one that is still to begin. Says whether it is over; otherwise
    /// nobody syncs, and others who wait count on this caller to [`lead`](Self::lead), or to [`pass_on`](Self::pass_on).
    pub(crate) fn wait_for(&self, target: Option<i64>) -> bool {
        let mut state = self.lock();
        let is_reached = state.under_way && target.is_some_and(|target| target <= state.end);
        let number = state.begun + u64::from(!is_reached);
        while !state.is_done(number) {
            if !state.under_way {
                return false;
            }
            let group = self.group(number);
            state = group.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Wakes another one of those who wait, unless somebody syncs by now.
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
            state = self
                .idle
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
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
