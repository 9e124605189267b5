//! Copies topics of a live cluster into a directory, batch for batch: with offsets, leader epochs, producers, markers, aborted
//! transactions, and appended as a follower appends them.
//!
//! The logic (`core`) touches neither sockets nor files: answers go in, requests and work for the disk come out. [`mirror`] runs it
//! on connections; a test runs it under a seeded scheduler.
//!
//! Unlike a follower: the brokers take it for a consumer that reads uncommitted records, so it reads nothing above the high watermark and
//! is in no ISR; and it keeps the records that the source deletes, and those that it truncates.

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
