//! Reads and checksums a long segment in two threads, ahead of the sequential recovery scan.
//!
//! The segment is split into stripes. A thread reads a stripe into a buffer that stays in its processor's cache, guesses where its first
//! batch begins, and notes which batches there are whole and have the right checksum. These are facts about bytes, whatever the guess was
//! worth. The sequential scan remains authoritative: where it finds no fact for its position, it reads and checks by itself. So threads
//! change neither what a recovery finds nor how it is reported.
//!
//! The scan never waits for the other thread: that one may have no processor. It checks the stripes that nobody has taken, and at the
//! bound it reads the bytes again.

use crate::error::Result;
use crate::segment::OpenSegment;
use crate::segment::walk::{SCAN_BYTES, Step, Walk};
use offsetlog_format::BatchHeader;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Bytes that a thread takes at a time. In unit tests few, so that short logs have many stripes.
const STRIPE_BYTES: u64 = if cfg!(test) { 16 << 10 } else { 4 << 20 };
/// How far the threads may be ahead of the scan, in stripes.
const STRIPES_AHEAD: usize = 16;
/// A second thread does not help in shorter segments.
const LONG_BYTES: u64 = 4 * STRIPE_BYTES;
/// Bounds the memory for facts: where batches are smaller, the scan checks most of them itself.
const MAX_BATCHES: usize = (STRIPE_BYTES >> 11) as usize;
/// After this many stripes in which the scan found no fact at its position, guessing is given up.
const MAX_MISSES: u32 = 4;

/// A batch that is whole and has the right checksum, and its position.
type Fact = (u64, BatchHeader);

/// Checks stripes of one segment ahead of the scan.
#[derive(Debug)]
pub(in crate::log) struct Ahead {
    /// `None` if a second thread does not help.
    threads: Option<Threads>,
    /// What is known of the stripe that the scan is in, in ascending order of positions.
    facts: VecDeque<Fact>,
    /// The number of that stripe.
    stripe: Option<u64>,
    misses: u32,
}

#[derive(Debug)]
struct Threads {
    segment: Arc<OpenSegment>,
    board: Arc<Board>,
    buffer: Vec<u8>,
    other: Option<JoinHandle<()>>,
}

/// Which thread checks which stripe.
#[derive(Debug, Default)]
struct Board {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The stripe that the scan is in, the first that nobody has taken, and the number of stripes.
    first: u64,
    next: u64,
    count: u64,
    /// What is known of the stripes from `first` on; `None` while a thread is at work.
    checked: VecDeque<Option<VecDeque<Fact>>>,
    is_over: bool,
}

/// What the board says about a stripe.
enum Turn {
    Known(VecDeque<Fact>),
    /// This one was taken for the asking thread.
    Check(u64),
    /// Another thread is at work on it, and no stripe within the bound is left.
    Nothing,
}

impl Ahead {
    pub(in crate::log) fn of(segment: &Arc<OpenSegment>) -> Self {
        let helps = segment.stat.size >= LONG_BYTES
            && std::thread::available_parallelism().is_ok_and(|threads| threads.get() > 1);
        Self {
            threads: helps.then(|| Threads::start(Arc::clone(segment))),
            facts: VecDeque::new(),
            stripe: None,
            misses: 0,
        }
    }

    /// Returns the header of the batch at `position` if it is known that it is whole and its checksum is right. Call it with ascending
    /// positions. Calls `check` after each stripe.
    pub(in crate::log) fn known(
        &mut self,
        position: u64,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Result<Option<BatchHeader>> {
        let Some(threads) = &mut self.threads else {
            return Ok(None);
        };
        let stripe = position / STRIPE_BYTES;
        let is_new = self.stripe != Some(stripe);
        if is_new {
            self.stripe = Some(stripe);
            self.facts = threads.facts_of(stripe, position, check)?;
        }
        while self.facts.front().is_some_and(|(at, _)| *at < position) {
            self.facts.pop_front();
        }
        let is_known = self.facts.front().is_some_and(|(at, _)| *at == position);
        let known = if is_known {
            self.facts.pop_front()
        } else {
            None
        };
        if is_new && known.is_none() {
            self.misses += 1;
            if self.misses > MAX_MISSES {
                self.threads = None;
            }
        }
        Ok(known.map(|(_, header)| header))
    }
}

impl Threads {
    fn start(segment: Arc<OpenSegment>) -> Self {
        let board = Arc::new(Board::default());
        board.lock().count = segment.stat.size.div_ceil(STRIPE_BYTES);
        let other = {
            let (segment, board) = (Arc::clone(&segment), Arc::clone(&board));
            std::thread::Builder::new()
                .name("offsetlog-recover".to_owned())
                .spawn(move || check_stripes(&segment, &board))
        };
        Self {
            segment,
            board,
            buffer: Vec::new(),
            // If no thread can be started, this one does all the work.
            other: other.ok(),
        }
    }

    /// Returns what is known of a stripe whose first batch that is not passed begins at `position`. Checks it if nobody has taken it; if
    /// another thread is at work on it, checks others meanwhile.
    fn facts_of(
        &mut self,
        stripe: u64,
        position: u64,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Result<VecDeque<Fact>> {
        loop {
            match self.board.turn(stripe) {
                Turn::Known(facts) => return Ok(facts),
                Turn::Nothing => return Ok(VecDeque::new()),
                Turn::Check(taken) => {
                    let start = (taken == stripe).then_some(position);
                    let facts = right_batches(&self.segment, taken, start, &mut self.buffer);
                    if taken == stripe {
                        return Ok(facts);
                    }
                    self.board.keep(taken, facts);
                }
            }
            check(0)?;
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.board.lock().is_over = true;
        self.board.moved.notify_all();
        if let Some(other) = self.other.take() {
            // If it panicked, the stripe that it had taken was checked by the scan.
            let _ = other.join();
        }
    }
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the scan what to do for a stripe, and that it is there now.
    fn turn(&self, stripe: u64) -> Turn {
        let mut state = self.lock();
        if state.first < stripe {
            state.move_to(stripe);
            self.moved.notify_all();
        }
        if stripe < state.next
            && let Some(facts) = state.checked.front_mut().and_then(Option::take)
        {
            return Turn::Known(facts);
        }
        state.take().map_or(Turn::Nothing, Turn::Check)
    }

    fn keep(&self, stripe: u64, facts: VecDeque<Fact>) {
        let mut state = self.lock();
        // The scan may have passed it meanwhile.
        if let Some(slot) = stripe.checked_sub(state.first)
            && let Some(place) = state.checked.get_mut(slot as usize)
        {
            *place = Some(facts);
        }
    }

    /// Waits for a stripe to check; `None` if there will be none.
    fn wait_for_stripe(&self) -> Option<u64> {
        let mut state = self.lock();
        while !state.is_over && state.next < state.count {
            if let Some(taken) = state.take() {
                return Some(taken);
            }
            state = self
                .moved
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        None
    }
}

impl State {
    fn move_to(&mut self, stripe: u64) {
        for _ in self.first..stripe.min(self.next) {
            self.checked.pop_front();
        }
        self.first = stripe;
        self.next = self.next.max(stripe);
    }

    /// Takes the first free stripe within the bound.
    fn take(&mut self) -> Option<u64> {
        let is_free = self.next < self.count && self.checked.len() < STRIPES_AHEAD;
        is_free.then(|| {
            self.checked.push_back(None);
            self.next += 1;
            self.next - 1
        })
    }
}

/// The work of the other thread.
fn check_stripes(segment: &Arc<OpenSegment>, board: &Board) {
    let mut buffer = Vec::new();
    while let Some(stripe) = board.wait_for_stripe() {
        let facts = right_batches(segment, stripe, None, &mut buffer);
        board.keep(stripe, facts);
    }
}

/// Returns the batches that begin in a stripe, from `start` on or from the first that can be guessed, up to the first that is not whole
/// and right.
fn right_batches(
    segment: &Arc<OpenSegment>,
    stripe: u64,
    start: Option<u64>,
    buffer: &mut Vec<u8>,
) -> VecDeque<Fact> {
    let from = stripe * STRIPE_BYTES;
    let end = (from + STRIPE_BYTES).min(segment.stat.size);
    let mut batches = VecDeque::new();
    let at = start.unwrap_or(from);
    let mut walk = Walk::new(Arc::clone(segment), at, SCAN_BYTES, std::mem::take(buffer));
    if start.is_some() || walk.seek_likely_batch(end) {
        while walk.position() < end && batches.len() < MAX_BATCHES {
            // Bytes behind the stripe are for others to read.
            let left = (end - walk.position()) as usize;
            walk.set_read_ahead(left.min(SCAN_BYTES));
            let Ok(Step::Batch(header)) = walk.step(true) else {
                break;
            };
            batches.push_back((walk.batch_position(), header));
        }
    }
    *buffer = walk.into_buffer();
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::recovery::scan_segment;
    use crate::{AppendOptions, BatchBuilder, LogWriter, OpenOptions, WriteOptions};
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    const LOG: &str = "00000000000000000000.log";

    /// A closed segment of 100 batches; each value holds the batch before it, with the offset that a batch there could have.
    struct Made {
        folder: tempfile::TempDir,
    }

    impl Made {
        fn new(value_bytes: usize) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("t-0");
            let write = WriteOptions::default();
            let log = LogWriter::open(&path, &OpenOptions::default(), &write).unwrap();
            let mut batch = BatchBuilder::default();
            batch.push(1, None, Some(b"held"), &[]).unwrap();
            let other = folder.path().join("other-0");
            let one = LogWriter::open(&other, &OpenOptions::default(), &write).unwrap();
            one.append(&mut batch, &AppendOptions::default()).unwrap();
            one.close().unwrap();
            let mut held = std::fs::read(other.join(LOG)).unwrap();
            held[7] = 90;
            for timestamp in 0..100 {
                let mut value = vec![7; value_bytes + timestamp as usize];
                if timestamp % 3 == 0 {
                    value.extend_from_slice(&held);
                    value.resize(value_bytes * 2, 9);
                }
                batch.push(timestamp, None, Some(&value), &[]).unwrap();
                log.append(&mut batch, &AppendOptions::default()).unwrap();
            }
            log.close().unwrap();
            Self { folder }
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("t-0")
        }

        fn segment(&self) -> Arc<OpenSegment> {
            let options = OpenOptions::default();
            let directory = crate::log::open::directory(&self.path(), &options, false, None);
            scan_segment::open(directory.as_ref().unwrap(), 0, Some(100)).unwrap()
        }

        /// Flips the last byte of the batch that ends at a position.
        fn flip(&self, end: u64) {
            let file = self.path().join(LOG);
            let mut options = std::fs::File::options();
            let file = options.read(true).write(true).open(file).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, end - 1).unwrap();
            file.write_all_at(&[byte[0] ^ 1], end - 1).unwrap();
        }
    }

    /// What a walk from the start finds, up to the first damage.
    fn walked(segment: &Arc<OpenSegment>) -> Vec<Fact> {
        let mut walk = Walk::new(Arc::clone(segment), 0, SCAN_BYTES, Vec::new());
        let mut batches = Vec::new();
        while let Ok(Step::Batch(header)) = walk.step(true) {
            batches.push((walk.batch_position(), header));
        }
        batches
    }

    fn facts(segment: &Arc<OpenSegment>) -> Vec<Fact> {
        let stripes = segment.stat.size.div_ceil(STRIPE_BYTES);
        (0..stripes)
            .flat_map(|stripe| right_batches(segment, stripe, None, &mut Vec::new()))
            .collect()
    }

    #[test]
    fn a_stripe_that_begins_anywhere_finds_its_batches() {
        let made = Made::new(3000);
        let segment = made.segment();
        let (walked, facts) = (walked(&segment), facts(&segment));
        assert_eq!(walked.len(), 100);
        // A stripe may begin inside a value that holds a batch: then it finds that one, and no more.
        let real = |fact: &&Fact| walked.contains(fact);
        let (found, held): (Vec<_>, Vec<_>) = facts.iter().partition(real);
        assert!(found.len() >= 80, "{}", found.len());
        assert!(held.iter().all(|(_, header)| header.size_bytes < 100));
    }

    #[test]
    fn a_wrong_batch_is_no_fact() {
        let made = Made::new(3000);
        let sound = walked(&made.segment());
        for slot in [0, 1, 40, 99] {
            let (position, header) = sound[slot];
            let end = position + header.size_bytes as u64;
            made.flip(end);
            let segment = made.segment();
            assert!(facts(&segment).iter().all(|(at, _)| *at != position));
            assert_eq!(walked(&segment).len(), slot);
            made.flip(end);
        }
    }

    /// Whatever the threads' turns, a fact at the scan's position is what the scan would find.
    #[test]
    fn facts_are_what_the_scan_finds() {
        for value_bytes in [1000, 3000, 12_000] {
            let made = Made::new(value_bytes);
            let segment = made.segment();
            let walked = walked(&segment);
            let mut known = 0;
            // The threads need a turn before the scan ends: on a busy machine they get it later.
            let is_parallel = std::thread::available_parallelism().unwrap().get() > 1;
            let hung = std::time::Instant::now() + std::time::Duration::from_secs(300);
            let is_seen = |known| known > 0 || !is_parallel || std::time::Instant::now() > hung;
            let mut rounds = 0;
            while rounds < 20 || !is_seen(known) {
                rounds += 1;
                let mut ahead = Ahead::of(&segment);
                for (position, header) in &walked {
                    if let Some(fact) = ahead.known(*position, &|_| Ok(())).unwrap() {
                        assert_eq!(fact, *header);
                        known += 1;
                    }
                }
            }
            assert!(known > 0 || !is_parallel);
        }
    }

    /// Nobody checks stripes but the scan.
    fn alone(segment: &Arc<OpenSegment>) -> (Ahead, Arc<Board>) {
        let board = Arc::new(Board::default());
        board.lock().count = segment.stat.size.div_ceil(STRIPE_BYTES);
        let threads = Threads {
            segment: Arc::clone(segment),
            board: Arc::clone(&board),
            buffer: Vec::new(),
            other: None,
        };
        let ahead = Ahead {
            threads: Some(threads),
            facts: VecDeque::new(),
            stripe: None,
            misses: 0,
        };
        (ahead, board)
    }

    /// The other thread has taken a stripe and gets no processor.
    #[test]
    fn the_scan_does_not_wait() {
        let made = Made::new(3000);
        let segment = made.segment();
        let (mut ahead, board) = alone(&segment);
        assert_eq!(board.wait_for_stripe(), Some(0));
        let walked = walked(&segment);
        let known: Vec<bool> = walked
            .iter()
            .map(|(position, _)| ahead.known(*position, &|_| Ok(())).unwrap().is_some())
            .collect();
        assert!(!known[0] && known[20]);
        // Too late: the scan is elsewhere.
        board.keep(0, VecDeque::from(walked));
        assert!(board.lock().checked.len() <= STRIPES_AHEAD);
    }

    #[test]
    fn checking_ahead_is_interrupted() {
        let made = Made::new(3000);
        let (mut ahead, board) = alone(&made.segment());
        assert_eq!(board.wait_for_stripe(), Some(0));
        let interrupted = || crate::Error::new(crate::ErrorKind::Interrupted);
        assert!(ahead.known(0, &|_| Err(interrupted())).is_err());
    }
}
