//! What tests see and do inside of a broker.

use super::{Broker, lock};
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Broker {
    /// Whether no fetch waits for any partition.
    pub(crate) fn awaits_nothing(&self) -> bool {
        lock(&self.awaited).is_empty()
    }

    /// Panics under each of its locks.
    pub(crate) fn poison(&self) {
        let panics = |hold: &dyn Fn()| {
            let caught = catch_unwind(AssertUnwindSafe(hold));
            assert!(caught.is_err());
        };
        panics(&|| {
            let _held = (lock(&self.sessions), lock(&self.decisions));
            let _held = (lock(&self.awaited), lock(&self.not_listed));
            panic!("planted");
        });
        panics(&|| {
            let _held = self.catalog.write().unwrap();
            panic!("planted");
        });
        assert!(self.sessions.is_poisoned() && self.catalog.is_poisoned());
    }
}
