//! How many requests are answered at once, and how many bytes of answers wait for their clients: what is made of a request costs more
//! memory than its bytes.

use super::clock::{Awaited, Clock};
use crate::step::{Room, VALUE_BYTES};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// Requests that are answered at once (Kafka's `num.io.threads` is 8). Others wait for their turn.
const AT_ONCE: usize = 16;
/// How often one that waits looks whether the server stops.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The turns of a server's requests.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Awaited<State>,
    /// No turn of a request that is not small begins while this many bytes of answers were not taken by their clients.
    unsent_max: u64,
    /// Values of a large request.
    values_max: usize,
}

#[derive(Debug, Default)]
struct State {
    at_work: usize,
    has_large: bool,
    unsent: u64,
}

impl Turns {
    /// With room for this many bytes of answers, and for a large request that costs as many.
    pub(crate) fn new(bytes: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Awaited::new(State::default(), clock),
            unsent_max: bytes,
            values_max: usize::try_from(bytes / VALUE_BYTES).unwrap_or(usize::MAX),
        }
    }

    /// Waits for a turn; `None` after the deadline, or when the server stops. A small request does not wait for clients that take no
    /// answers: a few of these must not lock out everybody.
    pub(crate) fn begin(
        &self,
        is_small: bool,
        deadline: Instant,
        is_stopping: impl Fn() -> bool,
    ) -> Option<Turn<'_>> {
        let is_free =
            |state: &State| state.at_work < AT_ONCE && (is_small || state.unsent < self.unsent_max);
        let mut state = self.wait_until(is_free, deadline, is_stopping)?;
        state.at_work += 1;
        drop(state);
        Some(Turn {
            turns: self,
            deadline,
            is_large: false,
        })
    }

    fn wait_until(
        &self,
        is_free: impl Fn(&State) -> bool,
        deadline: Instant,
        is_stopping: impl Fn() -> bool,
    ) -> Option<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        while !is_free(&state) {
            let left = self.state.left(deadline);
            let left = left.filter(|_| !is_stopping())?;
            state = self.state.wait(state, left.min(LOOK_EVERY));
        }
        Some(state)
    }

    #[cfg(test)]
    pub(crate) fn poison(&self) {
        self.state.poison();
    }

    /// Requests at work, whether one of them is large, and bytes of answers that were not taken.
    #[cfg(test)]
    pub(crate) fn busy(&self) -> (usize, bool, u64) {
        let state = self.state.lock();
        (state.at_work, state.has_large, state.unsent)
    }
}

/// The turn of a request that is being answered. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    deadline: Instant,
    is_large: bool,
}

impl<'a> Turn<'a> {
    /// Ends the turn. The bytes of the answer count until what is returned is dropped.
    pub(crate) fn answered(self, bytes: u64) -> Unsent<'a> {
        let turns = self.turns;
        let mut state = turns.state.lock();
        state.unsent = state.unsent.saturating_add(bytes);
        drop(state);
        Unsent { turns, bytes }
    }
}

impl Room for Turn<'_> {
    fn for_large(&mut self) -> Option<usize> {
        if !self.is_large {
            let is_free = |state: &State| !state.has_large;
            let mut state = self.turns.wait_until(is_free, self.deadline, || false)?;
            state.has_large = true;
            self.is_large = true;
        }
        Some(self.turns.values_max)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.state.change(|state| {
            state.at_work = state.at_work.saturating_sub(1);
            state.has_large &= !self.is_large;
        });
    }
}

/// The bytes of an answer that its client has not taken.
#[derive(Debug)]
pub(crate) struct Unsent<'a> {
    turns: &'a Turns,
    bytes: u64,
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        self.turns.state.change(|state| {
            state.unsent = state.unsent.saturating_sub(self.bytes);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::SystemClock;
    use super::*;

    fn turns(bytes: u64) -> Turns {
        Turns::new(bytes, Arc::new(SystemClock))
    }

    fn at_once(turns: &Turns) -> Option<Turn<'_>> {
        turns.begin(false, Instant::now(), || false)
    }

    #[test]
    fn a_turn_ends_when_it_is_dropped() {
        let turns = turns(1 << 20);
        let mut all: Vec<Turn<'_>> = (0..AT_ONCE).map(|_| at_once(&turns).unwrap()).collect();
        assert!(at_once(&turns).is_none());
        all.pop();
        all.push(at_once(&turns).unwrap());
        let far = Instant::now() + Duration::from_secs(3600);
        assert!(
            turns.begin(true, far, || true).is_none(),
            "the server stops"
        );
    }

    #[test]
    fn nothing_begins_beside_many_bytes_of_answers() {
        let turns = turns(1000);
        let first = at_once(&turns).unwrap().answered(999);
        let second = at_once(&turns).unwrap().answered(1);
        assert!(at_once(&turns).is_none());
        assert!(turns.begin(true, Instant::now(), || false).is_some());
        drop(first);
        let third = at_once(&turns).unwrap();
        drop(second);
        drop(third);
        assert_eq!(turns.busy().2, 0);
    }

    #[test]
    fn one_request_is_large() {
        let turns = turns(VALUE_BYTES * 7);
        let (mut one, mut other) = (at_once(&turns).unwrap(), at_once(&turns).unwrap());
        assert_eq!((one.for_large(), one.for_large()), (Some(7), Some(7)));
        assert_eq!(other.for_large(), None);
        let answer = one.answered(0);
        assert_eq!(other.for_large(), Some(7));
        drop(answer);
    }
}
