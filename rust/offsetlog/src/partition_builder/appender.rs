//! Appends the chunks of a new log. For a long log and with a second core, another thread helps, while the next batches are read and checked.
//!
//! Each thread takes the oldest chunk when nobody else appends. The caller waits only for a chunk that the other thread has begun: one that
//! the other thread does not come to, because it has no core, the caller appends itself.

use crate::disk::process_id;
use crate::error::{Error, Result};
use crate::log::{Checksums, LogWriter};
use offsetlog_format::checksum::Crc64;
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Bytes that are not appended yet when [`Appender::append`] returns, at most; the chunk that is being appended counts.
const QUEUE_BYTES: usize = 2 << 20;
/// From this many bytes on the other thread is woken. A chunk may be one small batch.
const WAKE_BYTES: usize = 512 << 10;
/// A log of fewer bytes is done before another thread helps.
const LONG_BYTES: u64 = 4 << 20;
/// Empty buffers that are kept.
const SPARES: usize = 3;

#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    checksums: Checksums,
}

/// Why nothing more is appended.
#[derive(Debug)]
enum Failure {
    /// An append has failed.
    Append(Error),
    /// The same, and the caller has the error.
    Returned,
    /// A thread has panicked while it appended.
    Panic,
}

#[derive(Debug, Default)]
struct Queue {
    /// Oldest first.
    chunks: VecDeque<Chunk>,
    /// Bytes of these, and of the one that is being appended.
    bytes: usize,
    /// Over all bytes that were appended, in their order, if they will be compared with what is read back.
    digest: Option<Crc64>,
    spare: Vec<Vec<u8>>,
    /// Whether a thread appends, and has `digest`.
    is_taken: bool,
    failure: Option<Failure>,
    /// Whether the other thread waits for a chunk.
    other_waits: bool,
    /// Whether the caller waits for the other thread.
    caller_waits: bool,
    is_over: bool,
}

#[derive(Debug)]
struct Board {
    log: LogWriter,
    queue: Mutex<Queue>,
    chunk_came: Condvar,
    chunk_done: Condvar,
}

/// Appends chunks to a log in the order in which it gets them. The log has no other user until [`finish`](Self::finish) has returned.
#[derive(Debug)]
pub(super) struct Appender {
    board: Arc<Board>,
    other: Option<JoinHandle<()>>,
    /// Bytes until another thread is started; `None` once that was tried.
    until_long: Option<u64>,
    /// In a forked child there is no other thread, and perhaps a lock that nobody releases.
    process: u32,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the other thread does.
    fn help(&self) {
        let mut queue = self.lock();
        while !queue.is_over {
            let has_chunk = !queue.is_taken && !queue.chunks.is_empty();
            if has_chunk && queue.failure.is_none() {
                queue = self.append_oldest(queue);
            } else {
                queue.other_waits = true;
                queue = self
                    .chunk_came
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                queue.other_waits = false;
            }
        }
    }

    /// Appends the oldest chunk; nobody may be appending.
    fn append_oldest<'b>(&'b self, mut queue: MutexGuard<'b, Queue>) -> MutexGuard<'b, Queue> {
        let Some(Chunk { bytes, checksums }) = queue.chunks.pop_front() else {
            return queue;
        };
        queue.is_taken = true;
        let mut digest = queue.digest.take();
        drop(queue);
        let alive = Alive(self);
        let appended = self.log.append_copied(&bytes, checksums);
        if let Some(digest) = digest.as_mut().filter(|_| appended.is_ok()) {
            digest.update(&bytes);
        }
        std::mem::forget(alive);
        let mut queue = self.lock();
        queue.is_taken = false;
        queue.digest = digest;
        queue.bytes -= bytes.len();
        queue.keep(bytes);
        if let Err(error) = appended {
            queue.fail(Failure::Append(error));
        }
        if queue.caller_waits {
            self.chunk_done.notify_one();
        }
        queue
    }
}

impl Queue {
    fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARES && buffer.capacity() <= QUEUE_BYTES {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        self.chunks.clear();
        self.bytes = 0;
    }
}

/// Tells the caller if the thread that appends panics, so that it does not wait for ever.
struct Alive<'b>(&'b Board);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.is_taken = false;
        queue.fail(Failure::Panic);
        self.0.chunk_done.notify_one();
    }
}

impl Appender {
    /// `digest`: whether [`digest`](Self::digest) will be asked for.
    pub(super) fn new(log: &LogWriter, digest: bool) -> Self {
        Self {
            board: Arc::new(Board {
                log: log.clone(),
                queue: Mutex::new(Queue {
                    digest: digest.then(Crc64::default),
                    ..Queue::default()
                }),
                chunk_came: Condvar::new(),
                chunk_done: Condvar::new(),
            }),
            other: None,
            until_long: Some(LONG_BYTES),
            process: process_id(),
        }
    }

    /// Appends a chunk, now or behind those before it, and leaves an empty buffer.
    ///
    /// # Errors
    /// Those of this chunk, or of one before it. Afterwards nothing is appended, and each call fails.
    pub(super) fn append(&mut self, bytes: &mut Vec<u8>, checksums: Checksums) -> Result<()> {
        if self.process != process_id() {
            // It says that this is another process.
            return self.board.log.append_copied(bytes, checksums).map(|_| ());
        }
        self.check()?;
        self.until_long = match self.until_long {
            Some(left) if left <= bytes.len() as u64 => {
                self.start();
                None
            }
            left => left.map(|left| left - bytes.len() as u64),
        };
        let mut queue = self.board.lock();
        let buffer = queue.spare.pop().unwrap_or_default();
        let bytes = std::mem::replace(bytes, buffer);
        queue.bytes += bytes.len();
        queue.chunks.push_back(Chunk { bytes, checksums });
        if queue.other_waits && queue.bytes >= WAKE_BYTES {
            self.board.chunk_came.notify_one();
        }
        drop(queue);
        self.settle(if self.other.is_some() { QUEUE_BYTES } else { 0 })
    }

    /// Appends all chunks. More can follow.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.process != process_id() {
            return Ok(());
        }
        self.settle(0)
    }

    /// The checksum of all bytes that were appended, if it was asked for. Call [`finish`](Self::finish) before.
    pub(super) fn digest(&self) -> Option<u64> {
        self.board.lock().digest.as_ref().map(Crc64::value)
    }

    /// Ends the other thread. Chunks that no thread has begun are not appended.
    pub(super) fn stop(&mut self) {
        let Some(other) = self.other.take() else {
            return;
        };
        if self.process != process_id() {
            // A handle of a thread that is not in this process can only be forgotten.
            std::mem::forget(other);
            return;
        }
        self.board.lock().is_over = true;
        self.board.chunk_came.notify_one();
        // If it has panicked by now, the caller has given up before it could be told.
        let _ = other.join();
    }

    fn start(&mut self) {
        if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
            let board = Arc::clone(&self.board);
            let other = std::thread::Builder::new()
                .name("offsetlog-append".to_owned())
                .spawn(move || board.help());
            // If no thread can be started, this one does all the work.
            self.other = other.ok();
        }
    }

    /// Fails if an append has failed. A panic of the other thread becomes one of this thread.
    fn check(&mut self) -> Result<()> {
        let failure = match &mut self.board.lock().failure {
            None => return Ok(()),
            Some(failure) => std::mem::replace(failure, Failure::Returned),
        };
        match failure {
            Failure::Append(error) => return Err(error),
            Failure::Panic => {
                if let Some(Err(panic)) = self.other.take().map(JoinHandle::join) {
                    resume_unwind(panic);
                }
            }
            Failure::Returned => {}
        }
        let reason = "an append before this one has failed: the new log was given up";
        Err(Error::log_dir(self.board.log.log().path(), reason))
    }

    /// Appends chunks until no more than `limit` bytes wait.
    fn settle(&mut self, limit: usize) -> Result<()> {
        let mut queue = self.board.lock();
        while queue.bytes > limit && queue.failure.is_none() {
            if queue.is_taken {
                queue.caller_waits = true;
                let waited = self.board.chunk_done.wait(queue);
                queue = waited.unwrap_or_else(PoisonError::into_inner);
                queue.caller_waits = false;
            } else {
                queue = self.board.append_oldest(queue);
            }
        }
        drop(queue);
        self.check()
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.stop();
    }
}
