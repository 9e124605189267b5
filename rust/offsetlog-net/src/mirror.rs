//! Copies topics of a live cluster into a directory, batch for batch: with offsets, leader epochs, producers, markers, aborted
//! transactions, and appended as a follower appends them.
//!
//! The logic (`core`) touches neither sockets nor files: answers go in, requests and work for the disk come out. [`mirror`] runs it
//! on connections; a test runs it under a seeded scheduler.
//!
//! What differs from a follower: the brokers take it for a consumer that reads uncommitted records, so it sees nothing above the high
//! watermark and counts in no ISR; and it keeps what the source deletes, and what it cuts.

mod batches;
mod core;
mod error;
mod note;
mod options;
mod partition;
mod perform;
mod properties;
mod report;
mod run;
mod store;
mod truncation;
mod work;

pub use error::MirrorError;
pub use options::MirrorOptions;
pub use report::{EventKind, MirrorEvent, MirrorProgress, MirrorReport, MirroredPartition};
pub use run::{Source, Told, Watch, mirror};

#[cfg(test)]
mod tests;
