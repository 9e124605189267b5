//! Random numbers that a forked child does not share with its parent or with another child of it.
//!
//! The generator of a thread is copied by a fork. Two children would draw the same topic ids, and the same names for what they set
//! aside.

use super::process_id;
use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::{Instant, SystemTime};

thread_local! {
    /// The process that seeded the generator of this thread.
    static SEEDED: Cell<u32> = const { Cell::new(0) };
}

/// Returns a generator for what must be unique.
#[must_use]
pub fn random() -> fastrand::Rng {
    let id = process_id();
    // A thread that is ending has no value any more.
    let is_seeded = SEEDED.try_with(|seeded| seeded.replace(id) == id);
    if is_seeded != Ok(true) {
        let mut hasher = DefaultHasher::new();
        (id, SystemTime::now(), Instant::now(), fastrand::u64(..)).hash(&mut hasher);
        fastrand::seed(hasher.finish());
    }
    fastrand::Rng::new()
}
