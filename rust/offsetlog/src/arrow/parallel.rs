//! Decodes on several threads: the caller's thread reads batches and verifies checksums, workers decompress and decode copies
//! of them, and the results are returned in order.
//!
//! The threads belong to one scan and end with it. No thread exists before a scan needs it, so a forked child misses none.

use super::columns::Columns;
use super::pool::Pool;
use super::{ArrowOptions, Column};
use crate::codec::Decompressor;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{BadBatch, BadBatches, Filter, Log, Scan, Selection, Verdict};
use crate::memory;
use crate::records::Records;
use arrow_array::RecordBatch;
use offsetlog_format::BatchHeader;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
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
    header: BatchHeader,
    /// The lowest offset that a record can have.
    minimum: i64,
    end: usize,
    log: Log,
    path: Arc<PathBuf>,
    position: u64,
    selection: Selection,
    filter: Arc<Filter>,
    bad: BadBatches,
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
                // The system has no more threads: those that were started do the work. If there is none, `send` fails below.
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
        let mut path: Option<Arc<PathBuf>> = None;
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
            let known = path.take().filter(|path| path.as_path() == batch.path());
            let file = known.unwrap_or_else(|| Arc::new(batch.path().to_path_buf()));
            let (selection, filter) = batch.selection();
            job.batches.push(JobBatch {
                header: *batch.header(),
                minimum: batch.minimum(),
                end: job.bytes.len(),
                log: batch.log().clone(),
                path: Arc::clone(&file),
                position: batch.position(),
                selection,
                filter: Arc::clone(filter),
                bad: batch.bad().clone(),
            });
            path = Some(file);
        }
        (!job.batches.is_empty()).then_some((job, receiver))
    }
}

fn work(queue: &Mutex<Receiver<Job>>, mut columns: Columns) {
    let mut decompressor = Decompressor::new();
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else {
            return;
        };
        let mut batches = Vec::new();
        let error = decode(&job, &mut columns, &mut decompressor, &mut batches).err();
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
    decompressor: &mut Decompressor,
    ready: &mut Vec<RecordBatch>,
) -> Result<()> {
    let mut start = 0;
    for batch in &job.batches {
        let bytes = job.bytes.get(start..batch.end).unwrap_or(&[]);
        start = batch.end;
        columns.begin(&batch.log, &batch.header);
        let mut next = batch.header.base_offset.unwrap_or(i64::MIN);
        let decoded = decode_batch(batch, bytes, columns, decompressor, ready, &mut next);
        if let Err(error) = decoded {
            let bad = BadBatch {
                log: &batch.log,
                path: &batch.path,
                position: batch.position,
                header: &batch.header,
                next,
                selection: batch.selection,
            };
            if !batch.bad.pass(&bad, &error) {
                return Err(error);
            }
        }
        columns.end();
    }
    Ok(())
}

/// Decodes one batch. `next` becomes the offset after the last decoded record, also if the next one cannot be read.
fn decode_batch(
    batch: &JobBatch,
    bytes: &[u8],
    columns: &mut Columns,
    decompressor: &mut Decompressor,
    ready: &mut Vec<RecordBatch>,
    next: &mut i64,
) -> Result<()> {
    let limits = &batch.log.options().limits;
    let limit = limits.max_decompressed_bytes;
    let at = |error: Error| place(error, &batch.path, batch.position, &batch.header);
    let records = Records::open(&batch.header, bytes, decompressor, limit).map_err(at)?;
    let mut records = records.not_below(batch.minimum);
    while let Some(record) = records
        .next_record()
        .map_err(|error| at(Error::new(ErrorKind::from(error))))?
    {
        *next = record.offset.saturating_add(1);
        match batch.selection.verdict(&batch.filter, &record) {
            Verdict::Take => {
                limits.check_headers(&record).map_err(at)?;
                columns.push(&record)?;
            }
            Verdict::Leave => continue,
            Verdict::Stop => break,
        }
        if columns.is_full() {
            ready.extend(columns.finish()?);
        }
    }
    Ok(())
}

fn place(error: Error, path: &Path, position: u64, header: &BatchHeader) -> Error {
    error
        .at_path(path)
        .at_position(position)
        .at_offset(header.base_offset.unwrap_or(header.last_offset))
}
