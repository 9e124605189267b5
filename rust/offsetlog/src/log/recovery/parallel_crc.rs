//! Compares the checksums of a long segment in two threads, ahead of the sequential recovery scan.
//!
//! The sequential scan remains authoritative: it compares a checksum itself unless all of a window were right here. So threads change
//! neither what a recovery finds nor how it is reported.

use crate::segment::walk::{HOP_BYTES, Step, Walk};
use crate::segment::{OpenSegment, Source};
use offsetlog_format::BatchHeader;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes checked in one go; large enough that the cost of starting a thread does not matter.
const WINDOW_BYTES: u64 = 32 << 20;
/// Bytes that a thread takes at a time; at least one batch.
const TURN_BYTES: u64 = 256 << 10;
/// Bytes that a thread touches at a time, ahead of the walk over the headers. Otherwise that walk takes all page faults of the file, in one
/// thread, and they cost as much as all checksums.
const TOUCH_BYTES: usize = 1 << 20;
/// Linux maps this many bytes at a page fault, if they are in the page cache.
const FAULT_BYTES: usize = 64 << 10;

/// Finding where smaller batches begin takes as long as their checksums.
const LARGE_BATCH: u64 = 8 << 10;

/// How far ahead of the scan checksums were compared.
#[derive(Debug)]
pub(in crate::log) struct Ahead {
    /// `None` if a second thread would not help.
    segment: Option<Arc<OpenSegment>>,
    /// The range of positions checked last, and whether all batches that begin in it are right.
    window: Range<u64>,
    is_right: bool,
}

impl Ahead {
    pub(in crate::log) fn of(segment: &Arc<OpenSegment>) -> Self {
        let helps = segment.is_mapped()
            && segment.stat.size >= 2 * WINDOW_BYTES
            && std::thread::available_parallelism().is_ok_and(|threads| threads.get() > 1);
        Self {
            segment: helps.then(|| Arc::clone(segment)),
            window: 0..0,
            is_right: false,
        }
    }

    /// Whether the checksum of the batch at `position` was compared and is right. Call it with ascending positions.
    pub(in crate::log) fn has_checked(&mut self, position: u64) -> bool {
        if !self.window.contains(&position)
            && let Some(segment) = &self.segment
        {
            let (batches, end) = headers(segment, position);
            if (batches.len() as u64).saturating_mul(LARGE_BATCH) > end - position {
                self.segment = None;
                return false;
            }
            self.window = position..end;
            self.is_right = match &segment.source {
                Source::Mapped(map) => {
                    // Behind the end or damage nothing is walked over, so nothing is touched.
                    let is_last = end - position < WINDOW_BYTES;
                    let touch = if is_last { 0 } else { WINDOW_BYTES };
                    let following = end as usize..(end + touch) as usize;
                    are_right(map.bytes(), &turns(&batches), &following)
                }
                Source::File(_) => false,
            };
        }
        self.is_right && self.window.contains(&position)
    }
}

/// Runs the same work in two threads until both are done; returns whether neither panicked.
fn in_two_threads(work: impl Fn() + Sync) -> bool {
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new()
            .name("offsetlog-recover".to_owned())
            .spawn_scoped(scope, &work);
        work();
        // If no thread can be started, this one has done all the work.
        other.map_or(true, |other| other.join().is_ok())
    })
}

/// Returns the headers and positions of one window of batches, and where the last of them ends. It stops at the first unreadable header:
/// the sequential scan reports that.
fn headers(segment: &Arc<OpenSegment>, position: u64) -> (Vec<(u64, BatchHeader)>, u64) {
    let mut walk = Walk::new(Arc::clone(segment), position, HOP_BYTES, Vec::new());
    let mut batches = Vec::new();
    while walk.position() < position + WINDOW_BYTES
        && let Ok(Step::Batch(header)) = walk.step(false)
    {
        batches.push((walk.batch_position(), header));
    }
    (batches, walk.position())
}

/// Groups neighbouring batches for one thread.
fn turns(batches: &[(u64, BatchHeader)]) -> Vec<&[(u64, BatchHeader)]> {
    let turn_of = |(position, _): &(u64, BatchHeader)| position / TURN_BYTES;
    batches
        .chunk_by(|one, next| turn_of(one) == turn_of(next))
        .collect()
}

/// Whether all checksums are right. Also touches the pages of the `following` window.
fn are_right(log: &[u8], turns: &[&[(u64, BatchHeader)]], following: &Range<usize>) -> bool {
    let (next, is_wrong) = (AtomicUsize::new(0), AtomicBool::new(false));
    let is_right = |(position, header): &(u64, BatchHeader)| {
        let bytes = log.get(*position as usize..);
        bytes.is_some_and(|bytes| header.check_crc(bytes).is_ok())
    };
    let touched = following.len() / TOUCH_BYTES;
    in_two_threads(|| {
        while !is_wrong.load(Ordering::Relaxed) {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if turn < touched {
                let start = following.start + turn * TOUCH_BYTES;
                for at in (start..start + TOUCH_BYTES).step_by(FAULT_BYTES) {
                    black_box(log.get(at).copied());
                }
            } else if let Some(turn) = turns.get(turn - touched) {
                if !turn.iter().all(is_right) {
                    is_wrong.store(true, Ordering::Relaxed);
                }
            } else {
                return;
            }
        }
    }) && !is_wrong.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::recovery::scan_segment;
    use crate::{BatchBuilder, LogWriter, OpenOptions, WriteOptions};
    use std::os::unix::fs::FileExt;

    /// A closed segment with batches of 1 MiB: a flipped byte fails its own window, and no other.
    #[test]
    fn only_what_is_right_counts_as_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t-0");
        let log = LogWriter::open(&path, &OpenOptions::default(), &WriteOptions::default());
        let log = log.unwrap();
        let mut batch = BatchBuilder::default();
        let value = vec![7; 1000 << 10];
        for timestamp in 0..100 {
            batch.push(timestamp, None, Some(&value), &[]).unwrap();
            log.append(&mut batch, &crate::AppendOptions::default())
                .unwrap();
        }
        log.close().unwrap();
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(path.join("00000000000000000000.log"))
            .unwrap();
        let size = file.metadata().unwrap().len();
        let batch_bytes = size / 100;
        let checked = || -> Vec<bool> {
            let mut directory =
                crate::log::open::directory(&path, &OpenOptions::default(), true, None);
            let directory = directory.as_mut().unwrap().0.clone();
            let segment = scan_segment::open(&directory, 0, Some(100)).unwrap();
            let mut ahead = Ahead::of(&segment);
            let mut found: Vec<bool> = (0..100)
                .map(|slot| ahead.has_checked(slot * batch_bytes))
                .collect();
            found.push(ahead.has_checked(size));
            found
        };
        let is_parallel = std::thread::available_parallelism().unwrap().get() > 1;
        let mut expected = vec![is_parallel; 100];
        expected.push(false);
        assert_eq!(checked(), expected);
        let window = (WINDOW_BYTES / batch_bytes) as usize;
        for slot in [0, 40, 99] {
            let at = slot as u64 * batch_bytes + batch_bytes - 1;
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            let found = checked();
            assert!(!found[slot], "batch {slot}");
            let apart = |other: &usize| other.abs_diff(slot) > window;
            assert!(
                (0..100)
                    .filter(apart)
                    .all(|other| found[other] == is_parallel)
            );
            file.write_all_at(&byte, at).unwrap();
        }
    }
}
