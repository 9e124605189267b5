//! Continues a scan after damage and reports which offsets may be missing.

use super::{Cursor, Hole};
use crate::error::{Error, ErrorKind, Result};
use crate::segment::walk::Passed;

impl Cursor {
    /// Skips the damage that the last step met. Returns the hole that it leaves in the requested range, if any.
    pub(super) fn pass_damage(&mut self, error: Error) -> Result<Option<Hole>> {
        let (path, first, passed) = if let Some(walk) = &mut self.walk {
            if error.path() != Some(walk.segment().path.as_path()) {
                return Err(error);
            }
            let first = walk.next_offset();
            (walk.segment().path.clone(), first, walk.pass_damage()?)
        } else {
            // The segment could not be opened because its file is larger than a segment can be.
            let (Some(segment), ErrorKind::SegmentTooLarge { size }) =
                (self.view.segments.get(self.slot), error.kind())
            else {
                return Err(error);
            };
            self.slot += 1;
            let passed = Passed {
                position: 0,
                bytes: *size,
                next: segment.next_base_offset,
                gave_up: false,
            };
            (segment.file_path(".log"), segment.base_offset, passed)
        };
        let reported = self.reported_up_to;
        let start = first.max(self.start).max(reported);
        let stop = passed
            .next
            .map(|next| next.clamp(start, self.stop.max(start)));
        if let Some(next) = passed.next {
            self.reported_up_to = self.reported_up_to.max(next);
            let is_reported = next <= reported;
            if is_reported || (next <= self.start && first < self.start) {
                return Ok(None);
            }
        }
        let mut hole = Hole::of(&self.log, path, error.kind().code());
        hole.position = passed.position;
        hole.bytes = passed.bytes;
        (hole.start, hole.stop) = (start, stop);
        hole.reason = error.words();
        if passed.gave_up {
            hole.reason.push_str(
                "; too much behind it looks like a batch and is none: not searched to its end",
            );
        }
        Ok(Some(hole))
    }
}
