//! A view whose files were closed.

use super::View;
use super::beside::Met;
use crate::disk::{LookedAt, Moment};
use crate::segment::Segment;
use offsetlog_format::name::FileState;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

impl View {
    /// The same without an open file, which is never current: whoever wants to read takes a new one.
    pub(in crate::log) fn without_files(&self) -> Self {
        let closed = |segment: &Arc<Segment>| {
            let directory = Arc::clone(&self.directory);
            let segment_of = Segment::new(directory, segment.base_offset, segment.next_base_offset);
            Arc::new(if self.swapped.contains(&segment.base_offset) {
                segment_of.in_state(FileState::Swap)
            } else {
                segment_of
            })
        };
        Self {
            directory: Arc::clone(&self.directory),
            slot: Arc::clone(&self.slot),
            version: self.version,
            looked: LookedAt::at(Moment::now()),
            segments: self.segments.iter().map(closed).collect(),
            base_offsets: self.base_offsets.clone(),
            swapped: self.swapped.clone(),
            snapshots: self.snapshots.clone(),
            log_start_offset: self.log_start_offset,
            start_is_ours: self.start_is_ours,
            is_being_cut: self.is_being_cut,
            has_changed_names: self.has_changed_names,
            high_watermark: self.high_watermark,
            warnings: self.warnings.clone(),
            active: None,
            stamp: self.stamp,
            is_racy: true,
            is_mixed: AtomicBool::new(false),
            is_replaced: AtomicBool::new(false),
            is_taken_as_found: AtomicBool::new(false),
            met: Mutex::new(Met::default()),
            end: OnceLock::new(),
            damaged_end: OnceLock::new(),
            leader_epochs: OnceLock::new(),
            open_transactions: OnceLock::new(),
            txn_outcomes: Mutex::new(None),
            max_timestamps: Mutex::new(Vec::new()),
            opened: Mutex::new(VecDeque::new()),
            max_open_files: self.max_open_files,
        }
    }
}
