//! Recovery: from the files of a clean or an unclean end to a log that can be appended to.
//!
//! [`load`] is a function of a directory; it does not know the writer. Source: Kafka's `LogLoader`.

mod finish;
mod index_check;
pub(in crate::log) mod interrupted_swaps;
mod loader;
mod page_cache_check;
mod parallel_crc;
mod producer_state;
mod repair_segment;
mod report;
pub(in crate::log) mod sanity_check;
pub(in crate::log) mod scan_segment;

pub(in crate::log) use loader::{LoadOptions, load};
pub(in crate::log) use producer_state::{ProducerFiles, Tracked, follow_log_start};
pub use report::{Cut, Progress, RecoverOptions, RecoveryReport};
