//! Decodes on several threads: the caller's thread reads batches and verifies checksums, workers decompress and decode copies
//! of them, and the results are returned in order.
//!
//! The threads belong to one scan and end with it. No thread exists before a scan needs it, so a forked child misses none.

use super::columns::Columns;
use super::pool::Pool;
use super::{ArrowOptions, Column};
use crate::batch_decoder::BatchDecoder;
use crate::error::{Error, Result};
use crate::log::{DetachedBatch, Log, Scan};
use crate::memory;
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes of batches per job: some hundred microseconds of work.
const JOB_BYTES: usize = 512 * 1024;
/// Time to wait for a worker between two checks for interruption.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// The result of a job: the rows before an error, and the error.
type Done = (Vec<RecordBatch>, Option<Error>);

/// Copies of batches for a worker.
struct Job {
    bytes: Vec<u8>,
    batches: Vec<JobBatch>,
    done: SyncSender<Done>,
}

struct JobBatch {
    batch: DetachedBatch,
    /// End of its bytes in those of the job.
    end: usize,
}

/// The workers and the running jobs, oldest first.
#[derive(Debug)]
pub(super) struct Parallel {
    jobs: Sender<Job>,
    running: VecDeque<Receiver<Done>>,
    most_running: usize,
    read_all: bool,
    failure: Option<Error>,
    /// The first log of the scan, used to check for interruption.
    log: Option<Log>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("batches", &self.batches.len())
            .finish_non_exhaustive()
    }
}

impl Parallel {
    pub(super) fn new(columns: &[Column], options: &ArrowOptions, pool: &Arc<Pool>) -> Self {
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..options.threads {
            let queue = Arc::clone(&queue);
            let columns = Columns::new(columns, options, Arc::clone(pool));
            let spawned = thread::Builder::new()
                .name("offsetlog-decode".to_owned())
                .spawn(move || work(&queue, columns));
            if spawned.is_err() {
                // The system has no more threads: the ones already started do the work. If none was started, `send` fails below.
                break;
            }
        }
        Self {
            jobs,
            running: VecDeque::new(),
            most_running: options.threads * 2,
            read_all: false,
            failure: None,
            log: None,
        }
    }

    /// Keeps the workers busy and takes the oldest result. Returns whether it was the last one.
    pub(super) fn advance(
        &mut self,
        scan: &mut Scan,
        ready: &mut VecDeque<RecordBatch>,
    ) -> Result<bool> {
        while !self.read_all && self.running.len() < self.most_running {
            let Some((job, receiver)) = self.read_job(scan) else {
                self.read_all = true;
                break;
            };
            self.running.push_back(receiver);
            if self.jobs.send(job).is_err() {
                return Err(Error::argument("threads", "no thread could be started"));
            }
        }
        let Some(oldest) = self.running.pop_front() else {
            return self.failure.take().map_or(Ok(true), Err);
        };
        let (batches, error) = loop {
            match oldest.recv_timeout(ASK_EVERY) {
                Ok(done) => break done,
                Err(RecvTimeoutError::Timeout) => self.log.as_ref().map_or(Ok(()), Log::check)?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::argument("threads", "a decoding thread ended early"));
                }
            }
        };
        ready.extend(batches);
        match error {
            Some(error) => {
                self.running.clear();
                self.read_all = true;
                self.failure = Some(error);
                Ok(false)
            }
            None => Ok(self.running.is_empty() && self.read_all && self.failure.is_none()),
        }
    }

    fn read_job(&mut self, scan: &mut Scan) -> Option<(Job, Receiver<Done>)> {
        let (done, receiver) = sync_channel(1);
        let mut job = Job {
            bytes: Vec::with_capacity(JOB_BYTES + JOB_BYTES / 4),
            batches: Vec::new(),
            done,
        };
        while job.bytes.len() < JOB_BYTES {
            let batch = match scan.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => {
                    // The scan has ended. The rows before the damage come first.
                    self.failure = Some(error);
                    self.read_all = true;
                    break;
                }
            };
            if let Err(error) = memory::extend(&mut job.bytes, batch.bytes()) {
                self.failure = Some(error.at_path(batch.path()).at_position(batch.position()));
                self.read_all = true;
                break;
            }
            if self.log.is_none() {
                self.log = Some(batch.log().clone());
            }
            let before = job.batches.last().map(|last| &last.batch);
            let detached = batch.detach(before);
            job.batches.push(JobBatch {
                batch: detached,
                end: job.bytes.len(),
            });
        }
        (!job.batches.is_empty()).then_some((job, receiver))
    }
}

fn work(queue: &Mutex<Receiver<Job>>, mut columns: Columns) {
    let mut decoder = BatchDecoder::default();
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else {
            return;
        };
        let mut batches = Vec::new();
        let error = decode(&job, &mut columns, &mut decoder, &mut batches).err();
        let error = match columns.finish() {
            Ok(rest) => {
                batches.extend(rest);
                error
            }
            Err(failed) => error.or(Some(failed)),
        };
        // The receiver is gone if the scan was dropped.
        let _ = job.done.send((batches, error));
    }
}

fn decode(
    job: &Job,
    columns: &mut Columns,
    decoder: &mut BatchDecoder,
    ready: &mut Vec<RecordBatch>,
) -> Result<()> {
    let mut start = 0;
    for JobBatch { batch, end } in &job.batches {
        let bytes = job.bytes.get(start..*end).unwrap_or(&[]);
        start = *end;
        columns.begin(batch.log(), batch.header());
        batch.decode(bytes, decoder, |record| {
            columns.push(record)?;
            if columns.is_full() {
                ready.extend(columns.finish()?);
            }
            Ok(())
        })?;
        columns.end();
    }
    Ok(())
}
