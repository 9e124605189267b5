//! A change of the groups under their lock, and the word to those that it answers.

use super::State;
use std::sync::MutexGuard;

/// The groups while they are changed. When it ends, also by a panic, the lock is given back, and then those that wait for answers are told
/// if there are any.
pub(super) struct Changing<'a> {
    pub(super) state: MutexGuard<'a, State>,
    answered_before: u64,
    /// Dropped behind the lock.
    word: Word<'a>,
}

struct Word<'a> {
    on_answer: &'a (dyn Fn() + Send + Sync),
    is_due: bool,
}

impl<'a> Changing<'a> {
    pub(super) fn new(
        state: MutexGuard<'a, State>,
        on_answer: &'a (dyn Fn() + Send + Sync),
    ) -> Self {
        Self {
            answered_before: state.shared.tickets.answered,
            state,
            word: Word {
                on_answer,
                is_due: false,
            },
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.word.is_due = self.answered_before != self.state.shared.tickets.answered;
    }
}

impl Drop for Word<'_> {
    fn drop(&mut self) {
        if self.is_due {
            (self.on_answer)();
        }
    }
}
