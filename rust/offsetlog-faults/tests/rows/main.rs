//! Rows of the table of promises over disks in memory, a file each. One binary: linking takes longer than some rows.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::similar_names,
    clippy::type_complexity,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a test may panic"
)]

mod row_01_power_loss;
mod row_02_exhaustive;
mod row_03_crash_in_recovery;
mod row_08_errors;
mod row_09_failed_sync;
mod row_11_malformed;
mod row_12_fuzzing;
mod row_14_maps;
mod row_14_races;
mod row_26_convert;
mod watched_disk;
