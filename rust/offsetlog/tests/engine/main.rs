//! What the engine does to a partition's files and answers from them, on a disk in memory: `cargo test -p offsetlog --test engine`.
//!
//! Expected bytes, offsets and refusals come from Kafka's rules, worked examples that were run through Kafka's own classes, and batches
//! that code of the tests encodes and reads. The simulated disk is a dependency of these tests alone: a test binary links the one
//! engine that both were built with, which tests inside the crate would have twice, as different types.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    clippy::type_complexity,
    clippy::needless_pass_by_value,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a test may panic"
)]

mod accumulator;
mod append;
mod append_failures;
mod changing;
mod common;
mod compaction;
mod compaction_threads;
mod companions;
mod indexing;
mod lost_records;
mod moved;
mod producers;
mod recovery;
mod refusals;
mod reopening;
mod retention;
mod roll;
mod tiered;
mod truncation;
mod views;
