//! Filters compressed batches on two threads, because decompressing and compressing are most of a pass there. The output keeps their order.
//!
//! Both threads take the oldest batch that nobody has taken. As long as there is one, the pass filters it and does not wait for the other
//! thread, which may have no core.

use super::filter::{CleanContext, Cleaned, Counts, Filter, Standing};
use super::output::Output;
use super::tally::Remains;
use crate::error::{Error, Result};
use offsetlog_format::{BatchHeader, Codec};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};

/// Batches that wait for those before them, at most.
const QUEUE_BATCHES: usize = 32;
/// Bytes of them, at most, unless one alone has more.
const QUEUE_BYTES: usize = 1 << 20;
/// Passes over fewer bytes end before another thread helps.
const LONG_BYTES: u64 = 4 << 20;
/// Buffers of more bytes are not kept for the next batch.
const SPARE_BYTES: usize = 256 << 10;

/// What is to be decided about a batch.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question {
    /// What remains of it; with the counts, if they are known.
    Filter(Standing, Option<Counts>),
    /// Nothing: what remains was counted, with its records.
    Known(Remains, u32),
}

/// A batch, without its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch<'p> {
    pub(super) context: CleanContext<'p>,
    pub(super) header: BatchHeader,
    pub(super) question: Question,
    /// Where it stands: base offset of the segment, and position.
    pub(super) at: (i64, u64),
}

/// An error, and where its batch stands.
pub(super) type Misplaced = (Error, Option<(i64, u64)>);

/// A batch in the queue.
#[derive(Debug)]
enum Slot<'p> {
    Waiting(Batch<'p>, Vec<u8>),
    /// A thread is at work on it.
    Taken,
    Done(Written),
}

/// What was written for a batch, and what became of it.
#[derive(Debug)]
struct Written {
    bytes: Vec<u8>,
    cleaned: Result<Cleaned, Box<Misplaced>>,
}

#[derive(Debug, Default)]
struct Queue<'p> {
    /// Each with the number of bytes that it counts for, oldest first.
    slots: VecDeque<(Slot<'p>, usize)>,
    /// Number of the oldest, counted from the beginning.
    first: u64,
    bytes: usize,
    /// Empty buffers.
    spare: Vec<Vec<u8>>,
    /// Whether the other thread waits for a batch, and the pass for the oldest one.
    other_waits: bool,
    pass_waits: bool,
    /// A thread has panicked: what it was at work on is never done.
    has_died: bool,
    is_over: bool,
}

/// The batches that two threads work on.
#[derive(Debug, Default)]
pub(super) struct Board<'p> {
    queue: Mutex<Queue<'p>>,
    is_waiting: Condvar,
    is_done: Condvar,
}

/// The pass's end of the queue.
pub(super) struct InOrder<'s, 'p> {
    board: &'s Board<'p>,
    filter: Filter,
    /// Whether another thread helps.
    has_other: bool,
    is_empty: bool,
    /// Whether an error was returned: what follows in the queue is void.
    has_failed: bool,
    counts: Counts,
}

impl Batch<'_> {
    /// Appends what remains of it to `out`.
    fn clean(
        &self,
        filter: &mut Filter,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Cleaned, Box<Misplaced>> {
        match self.question {
            Question::Known(remains, records) => {
                let known = (remains, records);
                Ok(self.context.clean_known(&self.header, bytes, known, out))
            }
            Question::Filter(standing, counts) => {
                let counted = counts.and_then(|counts| {
                    filter.clean_counted(&self.context, &self.header, bytes, counts, out)
                });
                if let Some(cleaned) = counted {
                    return Ok(cleaned);
                }
                filter
                    .clean(&self.context, &self.header, bytes, standing, out)
                    .map_err(|error| {
                        let error = error.at_offset(self.header.last_offset);
                        Box::new((error, Some(self.at)))
                    })
            }
        }
    }

    /// Whether it takes long enough for another thread.
    fn is_long(&self) -> bool {
        matches!(self.question, Question::Filter(..))
            && self.header.codec().is_ok_and(|codec| codec != Codec::None)
    }
}

impl<'p> Queue<'p> {
    fn is_full(&self) -> bool {
        self.slots.len() > 1 && (self.slots.len() >= QUEUE_BATCHES || self.bytes > QUEUE_BYTES)
    }

    /// The oldest batch that nobody has taken, with its number.
    fn take(&mut self) -> Option<(u64, Batch<'p>, Vec<u8>, Vec<u8>)> {
        let mut waiting = self.slots.iter_mut().zip(self.first..);
        let ((slot, _), number) =
            waiting.find(|((slot, _), _)| matches!(slot, Slot::Waiting(..)))?;
        let Slot::Waiting(batch, bytes) = std::mem::replace(slot, Slot::Taken) else {
            return None;
        };
        let out = self.spare.pop().unwrap_or_default();
        Some((number, batch, bytes, out))
    }

    fn put(&mut self, number: u64, done: Slot<'p>) {
        let slot = usize::try_from(number - self.first);
        if let Some((slot, _)) = slot.ok().and_then(|slot| self.slots.get_mut(slot)) {
            *slot = done;
        }
    }

    fn keep(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= SPARE_BYTES && self.spare.len() < QUEUE_BATCHES {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// The oldest one, if it is done.
    fn pop(&mut self) -> Option<Written> {
        if !matches!(self.slots.front(), Some((Slot::Done(..), _))) {
            return None;
        }
        let (slot, bytes) = self.slots.pop_front()?;
        self.first += 1;
        self.bytes -= bytes;
        match slot {
            Slot::Done(written) => Some(written),
            Slot::Waiting(..) | Slot::Taken => None,
        }
    }
}

impl<'p> Board<'p> {
    fn lock(&self) -> MutexGuard<'_, Queue<'p>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the other thread does.
    fn help(&self, mut filter: Filter) {
        let mut queue = self.lock();
        while !queue.is_over {
            if let Some(taken) = queue.take() {
                drop(queue);
                queue = self.filter(taken, &mut filter);
            } else {
                queue.other_waits = true;
                queue = self
                    .is_waiting
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                queue.other_waits = false;
            }
        }
    }

    fn filter(
        &self,
        (number, batch, bytes, mut out): (u64, Batch<'p>, Vec<u8>, Vec<u8>),
        filter: &mut Filter,
    ) -> MutexGuard<'_, Queue<'p>> {
        let alive = Alive(self);
        let cleaned = batch.clean(filter, &bytes, &mut out);
        std::mem::forget(alive);
        let mut queue = self.lock();
        queue.put(
            number,
            Slot::Done(Written {
                bytes: out,
                cleaned,
            }),
        );
        queue.keep(bytes);
        if queue.pass_waits {
            self.is_done.notify_one();
        }
        queue
    }
}

/// Tells the pass if the thread at work panics, so that it does not wait for ever.
struct Alive<'b, 'p>(&'b Board<'p>);

impl Drop for Alive<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().has_died = true;
        self.0.is_done.notify_one();
    }
}

impl<'s, 'p> InOrder<'s, 'p> {
    /// `bytes` are to be cleaned, of which each batch is decompressed to at most `limit`. Another thread helps if there is another core and
    /// they are many.
    pub(super) fn start<'e>(
        scope: &'s Scope<'s, 'e>,
        board: &'s Board<'p>,
        (bytes, limit): (u64, u64),
    ) -> Self {
        let helps = bytes >= LONG_BYTES
            && std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
        let start = || {
            Builder::new()
                .name("offsetlog-clean".to_owned())
                .spawn_scoped(scope, move || board.help(Filter::new(limit)))
        };
        Self {
            board,
            filter: Filter::new(limit),
            // If no thread can be started, this one does all the work.
            has_other: helps && start().is_ok(),
            is_empty: true,
            has_failed: false,
            counts: Counts::default(),
        }
    }

    /// Cleans a batch into `out`, now or behind those before it.
    ///
    /// # Errors
    /// Those of this batch, or one before it.
    pub(super) fn add(
        &mut self,
        batch: Batch<'p>,
        bytes: &[u8],
        out: &mut Output,
    ) -> Result<(), Misplaced> {
        let is_shared = self.has_other && batch.is_long();
        if self.is_empty && !is_shared {
            let cleaned = batch.clean(&mut self.filter, bytes, out.room());
            return self.passed(cleaned, out);
        }
        let mut copy = self.board.lock().spare.pop().unwrap_or_default();
        let slot = if is_shared {
            copy.extend_from_slice(bytes);
            Slot::Waiting(batch, copy)
        } else {
            let cleaned = batch.clean(&mut self.filter, bytes, &mut copy);
            Slot::Done(Written {
                bytes: copy,
                cleaned,
            })
        };
        let mut queue = self.board.lock();
        self.is_empty = false;
        queue.bytes += bytes.len();
        queue.slots.push_back((slot, bytes.len()));
        if queue.other_waits && is_shared {
            self.board.is_waiting.notify_one();
        }
        drop(queue);
        self.deliver(out, Queue::is_full)
    }

    /// Writes the batches that are done to `out`, in order, and more while the queue `is_long`.
    fn deliver(
        &mut self,
        out: &mut Output,
        is_long: impl Fn(&Queue<'p>) -> bool,
    ) -> Result<(), Misplaced> {
        let board = self.board;
        let mut queue = board.lock();
        loop {
            if let Some(Written { bytes, cleaned }) = queue.pop() {
                self.is_empty = queue.slots.is_empty();
                drop(queue);
                out.room().extend_from_slice(&bytes);
                self.passed(cleaned, out)?;
                queue = board.lock();
                queue.keep(bytes);
            } else if !is_long(&queue) {
                return Ok(());
            } else if let Some(taken) = queue.take() {
                drop(queue);
                queue = board.filter(taken, &mut self.filter);
            } else if queue.has_died {
                // The panic itself comes out where the threads are joined.
                let error = Error::argument("threads", "a thread that compacts has ended early");
                return Err((error, None));
            } else {
                queue.pass_waits = true;
                queue = board
                    .is_done
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                queue.pass_waits = false;
            }
        }
    }

    fn passed(
        &mut self,
        cleaned: Result<Cleaned, Box<Misplaced>>,
        out: &mut Output,
    ) -> Result<(), Misplaced> {
        let passed =
            cleaned
                .map_err(|misplaced| *misplaced)
                .and_then(|Cleaned { header, counts }| {
                    self.counts.read += counts.read;
                    self.counts.kept += counts.kept;
                    let header = header.as_ref();
                    let indexed = header.map_or(Ok(()), |header| out.appended(header));
                    indexed.map_err(|error| (error, None))
                });
        self.has_failed |= passed.is_err();
        passed
    }

    /// Writes all batches.
    ///
    /// # Errors
    /// That of the first batch that has one, unless it was returned before.
    pub(super) fn finish(&mut self, out: &mut Output) -> Result<(), Misplaced> {
        if self.has_failed {
            return Ok(());
        }
        self.deliver(out, |queue| !queue.slots.is_empty())
    }

    /// Records of the batches that were written so far.
    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }
}

/// The other thread ends, however the pass does.
impl Drop for InOrder<'_, '_> {
    fn drop(&mut self) {
        self.board.lock().is_over = true;
        self.board.is_waiting.notify_one();
    }
}
