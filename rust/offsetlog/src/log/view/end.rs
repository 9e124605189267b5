//! Finds the end of a log, behind the last whole batch of its active segment, and checks the start against it.

use super::{End, View};
use crate::error::{Error, Result};
use crate::segment::OpenSegment;
use crate::segment::find::{self, ReadAhead, Trace};
use crate::segment::walk::{Step, Walk};
use std::path::Path;
use std::sync::Arc;

/// The end of a segment of this size is found by reading it whole: that takes less time than opening its index.
const SMALL_BYTES: u64 = 16 * 1024;

/// Returns the end of the log whose active segment this is.
pub(super) fn find(active: &Arc<OpenSegment>) -> Result<End> {
    let whole = || walk_to_end(Walk::new(Arc::clone(active), 0, 64 * 1024, Vec::new()));
    // Behind damage the index may still lead to the end.
    if active.stat.size <= SMALL_BYTES
        && let Ok(end) = whole()
        && end.torn.is_none()
    {
        return Ok(end);
    }
    let mut trace = Trace::default();
    let walk = find::start(
        active,
        i64::MAX,
        ReadAhead::To(i64::MAX),
        Vec::new(),
        &mut trace,
    )?;
    let from_start = walk.position() == 0;
    match walk_to_end(walk) {
        Ok(end) if from_start || end.torn.is_none() => Ok(end),
        // The index entry may have pointed into the middle of a batch. Only a walk from the start of the segment is
        // reliable.
        Ok(_) | Err(_) if !from_start => whole(),
        end => end,
    }
}

fn walk_to_end(mut walk: Walk) -> Result<End> {
    walk.set_read_ahead(64 * 1024);
    let mut end = End {
        log_end_offset: walk.segment().base_offset,
        leader_epoch: -1,
        torn: None,
    };
    loop {
        match walk.step(true)? {
            Step::Batch(header) => {
                end.log_end_offset = header.last_offset.saturating_add(1);
                end.leader_epoch = header.leader_epoch;
            }
            Step::End(torn) => {
                end.torn = torn;
                return Ok(end);
            }
        }
    }
}

impl View {
    /// Fails if the checkpointed log start offset is above the log end offset: a broker would delete all segments.
    pub(crate) fn check_bounds(&self) -> Result<()> {
        let within = self
            .base_offsets
            .last()
            .is_none_or(|&last| self.log_start_offset <= last);
        // The end is needed only if the start is after the last segment's base offset.
        if within || self.log_start_offset <= self.end()?.log_end_offset {
            return Ok(());
        }
        let path = self
            .segments
            .first()
            .map(|segment| segment.file_path(".log"));
        Err(Error::log_dir(
            path.as_deref()
                .and_then(Path::parent)
                .unwrap_or(Path::new("")),
            format!(
                "log start offset {} of log-start-offset-checkpoint is above the log end offset {}; \
                 copy the partition directory elsewhere to read it without the checkpoint",
                self.log_start_offset,
                self.end()?.log_end_offset
            ),
        ))
    }
}
