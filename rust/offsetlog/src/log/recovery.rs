//! Recovery: loads a partition directory after a clean or an unclean shutdown, and repairs it so that the log can be appended to.
//!
//! [`load`] takes a directory and does not know the writer. Source: Kafka's `LogLoader`.

mod due_indexes;
mod due_snapshots;
mod earlier_cuts;
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

pub(in crate::log) use earlier_cuts::EarlierCuts;
pub(in crate::log) use loader::{LoadOptions, load, with_lost_mark};
pub(in crate::log) use producer_state::{ProducerFiles, Tracked, follow_log_start};
pub(in crate::log) use repair_segment::CUT_FOLDER;
pub use report::{Cut, Progress, RecoverOptions, RecoveryReport};
