//! What a reader's view tells of a writer in another process: whether it is at work, and whether it only appended.

use super::View;
use std::time::{Duration, Instant};

/// How long a reader waits at most for a writer that is changing the bounds, and how long between two looks.
const WRITER_WAIT: Duration = Duration::from_secs(1);
const WRITER_LOOK: Duration = Duration::from_millis(5);

impl View {
    /// Whether this view's segments and bytes are in a later one, as far as names, files and sizes tell: the log was appended to, and
    /// rolled.
    pub(in crate::log) fn has_only_grown_to(&self, later: &Self) -> bool {
        let has_same_names = self.stamp.directory == later.stamp.directory;
        let has_rolled = later.base_offsets.len() > self.base_offsets.len()
            && later.base_offsets.starts_with(&self.base_offsets);
        if !has_same_names && !has_rolled {
            return false;
        }
        let active = self
            .segments
            .last()
            .map(|segment| segment.file_path(".log"));
        let now = active.and_then(|path| self.directory.disk.stat(&path).ok());
        match (self.stamp.active, now) {
            (Some(before), Some(now)) => before.id == now.id && before.size <= now.size,
            (before, now) => before == now,
        }
    }

    /// Whether the log seems to end below its start only because a writer is at work: it is writing the batch at the end, or has
    /// truncated the log and not yet stored the lower start. Waits until the files change, at most a second.
    pub(in crate::log) fn ends_below_start_for_now(&self) -> bool {
        // What a writer of this process has published is no guess.
        let is_below = self.directory.ends.is_none()
            && self.check_bounds().is_err()
            && matches!(self.end(), Ok(end) if end.log_end_offset < self.log_start_offset);
        let until = Instant::now() + WRITER_WAIT;
        while is_below && self.is_held() && Instant::now() < until {
            let now = self.stamp_now();
            let seen = (
                self.stamp.directory,
                self.stamp.active,
                self.stamp.checkpoints,
            );
            if (now.directory, now.active, now.checkpoints) != seen {
                return true;
            }
            std::thread::sleep(WRITER_LOOK);
        }
        false
    }
}
