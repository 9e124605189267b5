//! Which bytes of a segment were checked, and whether they are still those bytes.

use crate::disk::FileStat;
use crate::format::batch::BatchHeader;
use crate::segment::{OpenSegment, Source};
use std::collections::HashMap;

/// Most spans of a segment that are remembered: look-ups here and there make one each.
const SPANS_MAX: usize = 1024;

/// Which bytes of a segment were checked.
#[derive(Debug)]
pub(super) struct Verified {
    stat: FileStat,
    is_active: bool,
    cuts: Option<u64>,
    /// Ascending and apart.
    spans: Vec<Span>,
    /// Whether an index entry pointed to anything but the start of a batch.
    pub(super) index_is_wrong: bool,
}

/// By base offset.
pub(super) type VerifiedSegments = HashMap<i64, Verified>;

/// Whole batches that were checked: positions of the first byte, and of the one after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u64,
    end: u64,
    tail: Tail,
}

/// The front of the last batch of a span. Its checksum, offsets and leader epoch tell it from any other that a leader wrote there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    position: u64,
    length: usize,
    bytes: [u8; BatchHeader::LONGEST],
}

impl Tail {
    pub(super) fn of(position: u64, batch: &[u8]) -> Self {
        let mut bytes = [0; BatchHeader::LONGEST];
        let length = batch.len().min(bytes.len());
        for (to, from) in bytes.iter_mut().zip(batch) {
            *to = *from;
        }
        Self {
            position,
            length,
            bytes,
        }
    }

    /// Whether the file has it now.
    fn is_in(&self, open: &OpenSegment) -> bool {
        let mut now = [0; BatchHeader::LONGEST];
        let room = now.get_mut(..self.length).unwrap_or_default();
        let is_read = match &open.source {
            Source::File(file) => file
                .read_at(room, self.position)
                .is_ok_and(|read| read == self.length),
            Source::Mapped(map) => {
                let from = usize::try_from(self.position).unwrap_or(usize::MAX);
                let found = map.bytes().get(from..from.saturating_add(self.length));
                found.is_some_and(|found| {
                    room.copy_from_slice(found);
                    true
                })
            }
        };
        is_read && now == self.bytes
    }
}

impl Verified {
    pub(super) fn new(open: &OpenSegment, cuts: Option<u64>) -> Self {
        Self {
            stat: open.stat,
            is_active: open.is_active(),
            cuts,
            spans: Vec::new(),
            index_is_wrong: false,
        }
    }

    /// Whether the file still has the bytes that were checked, as far as can be told without reading them all: see decision 18 for what
    /// cannot. If so, the next question compares with the file as it is now.
    pub(super) fn still_holds(&mut self, open: &OpenSegment, cuts: Option<u64>) -> bool {
        let (before, now) = (&self.stat, &open.stat);
        if before.id != now.id || self.cuts != cuts {
            return false;
        }
        let is_same = before.size == now.size && before.modified_ns == now.modified_ns;
        let grew = before.size < now.size;
        let holds = if is_same {
            true
        } else if cuts.is_some() {
            // The writer of this process tells of each truncation, and nobody else writes.
            grew || self.is_active && before.size == now.size
        } else {
            // Another process may have truncated the file before it grew.
            grew && self.spans.iter().all(|span| span.tail.is_in(open))
        };
        if holds {
            self.stat = open.stat;
            self.is_active = open.is_active();
        }
        holds
    }

    /// End of the checked bytes from `position` on.
    pub(super) fn end_from(&self, position: u64) -> Option<u64> {
        let after = self.spans.partition_point(|span| span.start <= position);
        let span = self.spans.get(after.checked_sub(1)?)?;
        (position < span.end).then_some(span.end)
    }

    /// Takes whole batches that were checked, the last of which is `tail`.
    pub(super) fn add(&mut self, start: u64, end: u64, tail: Tail) {
        if start >= end {
            return;
        }
        let mut span = Span { start, end, tail };
        self.spans.retain(|other| {
            let touches = other.start <= span.end && span.start <= other.end;
            if touches {
                span.start = span.start.min(other.start);
                if other.end > span.end {
                    (span.end, span.tail) = (other.end, other.tail);
                }
            }
            !touches
        });
        if self.spans.len() >= SPANS_MAX {
            let lengths = self.spans.iter().map(|span| span.end - span.start);
            let shortest = lengths.enumerate().min_by_key(|(_, length)| *length);
            if let Some((slot, _)) = shortest {
                self.spans.remove(slot);
            }
        }
        let at = self.spans.partition_point(|other| other.start < span.start);
        self.spans.insert(at, span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified() -> Verified {
        Verified {
            stat: FileStat {
                size: 0,
                modified_ms: 0,
                modified_ns: 0,
                id: (0, 0),
            },
            is_active: true,
            cuts: None,
            spans: Vec::new(),
            index_is_wrong: false,
        }
    }

    #[test]
    fn spans_that_touch_become_one_with_the_last_batch_of_both() {
        let mut verified = verified();
        let tail = |position| Tail::of(position, &[7; 100]);
        verified.add(50, 90, tail(80));
        verified.add(0, 20, tail(10));
        assert_eq!(
            (verified.end_from(10), verified.end_from(20)),
            (Some(20), None)
        );
        verified.add(20, 50, tail(40));
        verified.add(30, 30, tail(30));
        let one = Span {
            start: 0,
            end: 90,
            tail: tail(80),
        };
        assert_eq!(verified.spans, [one]);
        assert_eq!(
            (verified.end_from(0), verified.end_from(90)),
            (Some(90), None)
        );
    }

    #[test]
    fn the_number_of_spans_is_bounded() {
        let mut verified = verified();
        let count = SPANS_MAX as u64 + 10;
        for number in 0..count {
            let start = number * 10_000;
            let tail = Tail::of(start, &[1; 30]);
            verified.add(start, start + 100 + number, tail);
        }
        assert_eq!(verified.spans.len(), SPANS_MAX);
        // The shortest ones are forgotten, and checked again when they are read.
        assert_eq!(verified.end_from(90_000), None);
        let last = (count - 1) * 10_000;
        assert_eq!(verified.end_from(last), Some(last + 100 + count - 1));
    }
}
