//! The persistent state of a partition beside its records: clean-shutdown marks, recovery point, settings, locks and companion files.
//!
//! If the partition is in a log dir, its checkpoints are lines in the log dir's files. Otherwise all of it is inside the partition
//! directory.

mod companion_files;
mod locks;
mod log_dir_files;
mod new_log_dir;
mod partition_state;
mod state_file;

pub(in crate::log) use companion_files::{
    keep_topic_id, make_epochs_file, place_snapshot, snapshot_of, write_epochs, write_snapshot,
};
pub use locks::keep_kafka_out;
pub(in crate::log) use locks::lock;
pub(crate) use locks::{lock_idle, lock_log_dir, lock_partition};
pub(in crate::log) use log_dir_files::CHECKPOINT_INTERVAL_MS;
pub(crate) use log_dir_files::{LogDirFiles, forget_dead_writers};
pub use log_dir_files::{SHARED_LOCK_FILE, lock_shared_files};
pub(in crate::log) use new_log_dir::became_log_dir;
pub(crate) use new_log_dir::note_offsets;
pub(in crate::log) use partition_state::{
    CONFIG_FILE, LOCK_FILE, PartitionState, Start, is_ours, read_small,
};
pub(crate) use partition_state::{STATE_FILE, read_config, read_state, write_config};
pub(in crate::log) use state_file::{CleanMark, State, Unclean};
