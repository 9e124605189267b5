//! Gathers records into batches by size and by time, as a producer does: Kafka's `RecordAccumulator` with `batch.size` and `linger.ms`.
//!
//! It starts no thread and asks no clock: callers say what time it is, and append when it is time.

use crate::append_info::AppendInfo;
use crate::batch_builder::{BatchBuilder, Producer};
use crate::error::{Error, Result};
use crate::log::{AppendOptions, LogWriter};
use offsetlog_format::v2::record_size_upper_bound;
use offsetlog_format::{Codec, RecordView};
use std::time::{Duration, Instant};

/// Records that wait until their batch is full or the oldest has waited long enough.
///
/// ```no_run
/// use offsetlog::format::Codec;
/// use offsetlog::{AppendOptions, LogWriter, OpenOptions, RecordAccumulator, WriteOptions};
/// use std::time::{Duration, Instant};
///
/// # fn main() -> Result<(), offsetlog::Error> {
/// let log = LogWriter::open("orders-0", &OpenOptions::default(), &WriteOptions::default())?;
/// let mut records = RecordAccumulator::new(Codec::Zstd, 16_384, Some(Duration::from_millis(5)));
/// for _ in 0..1000 {
///     while !records.push(Instant::now, 1_700_000_000_000, None, Some(b"paid"), &[])? {
///         records.append_to(&log, &AppendOptions::default())?;
///     }
/// }
/// records.append_to(&log, &AppendOptions::default())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RecordAccumulator {
    batch: BatchBuilder,
    batch_bytes: usize,
    linger: Option<Duration>,
    /// When the oldest record came.
    since: Option<Instant>,
}

/// What [`RecordAccumulator::append_up_to_refused`] appended.
#[derive(Debug)]
pub struct AppendedRecords {
    /// Number of the first records that are in the log. Where there is an error, the one with this number, from 0, was refused or
    /// not reached.
    pub records: usize,
    /// Their offsets; `None` for no record.
    pub info: Option<AppendInfo>,
    /// Why not all of them are in the log, or why they may not be durable ([`Error::is_appended`]).
    pub error: Option<Error>,
}

impl RecordAccumulator {
    /// Starts without records.
    ///
    /// `batch_bytes` bounds the size of a batch before compression, its header included; a larger record gets a batch of its own.
    /// `linger` is how long a record waits at most; `None`: until the batch is full.
    #[must_use]
    pub const fn new(codec: Codec, batch_bytes: usize, linger: Option<Duration>) -> Self {
        Self {
            batch: BatchBuilder::new(
                codec,
                Producer {
                    producer_id: -1,
                    producer_epoch: -1,
                    base_sequence: -1,
                    is_transactional: false,
                },
            ),
            batch_bytes,
            linger,
            since: None,
        }
    }

    /// Adds a record, or returns `false` and takes nothing, if the batch with it would be above the batch size: those that wait
    /// have to be appended first. `timestamp` is in milliseconds since 1970, or -1 for none. Asks for the time only if no record waits.
    ///
    /// # Errors
    /// As [`BatchBuilder::push`]. Those that wait stay.
    pub fn push(
        &mut self,
        now: impl FnOnce() -> Instant,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<bool> {
        // The exact size counts at the batch's end only.
        let bound = record_size_upper_bound(key, value, headers.iter().copied());
        let has_room = self.batch.is_empty()
            || self.batch.size_bytes() + bound <= self.batch_bytes
            || self.batch.size_bytes_with(timestamp, key, value, headers) <= self.batch_bytes;
        if has_room {
            self.batch.push(timestamp, key, value, headers)?;
            self.since.get_or_insert_with(now);
        }
        Ok(has_room)
    }

    /// Number of records that wait.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether no record waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Whether the batch has reached its size and has to be appended.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        !self.batch.is_empty() && self.batch.size_bytes() >= self.batch_bytes
    }

    /// How long the oldest record may still wait: zero if it has to be appended, `None` if no record waits, or any time.
    #[must_use]
    pub fn time_left(&self, now: Instant) -> Option<Duration> {
        let waited = now.saturating_duration_since(self.since?);
        Some(self.linger?.saturating_sub(waited))
    }

    /// Appends the waiting records as one batch, if there are any. Afterwards none waits, even after an error: the log would refuse them
    /// again.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    pub fn append_to(
        &mut self,
        log: &LogWriter,
        options: &AppendOptions,
    ) -> Result<Option<AppendInfo>> {
        if self.is_empty() {
            return Ok(None);
        }
        let appended = log.append(&mut self.batch, options);
        self.clear();
        appended.map(Some)
    }

    /// As [`append_to`](Self::append_to). If the log refuses the batch because of its records, appends them in smaller batches up to
    /// the first record that it refuses by itself.
    pub fn append_up_to_refused(
        &mut self,
        log: &LogWriter,
        options: &AppendOptions,
    ) -> AppendedRecords {
        let mut done = AppendedRecords {
            records: 0,
            info: None,
            error: None,
        };
        let count = self.len();
        if count > 0 {
            done.take(count, log.append(&mut self.batch, options));
        }
        if count > 1 && done.error.as_ref().is_some_and(Error::is_refusal) {
            done.error = self.append_in_parts(log, options, &mut done).err();
        }
        self.clear();
        done
    }

    fn append_in_parts(
        &self,
        log: &LogWriter,
        options: &AppendOptions,
        done: &mut AppendedRecords,
    ) -> Result<()> {
        let records = self.batch.records()?;
        let mut part = BatchBuilder::new(self.batch.codec(), Producer::default());
        // Halves of what was refused; the last one comes next.
        let mut waiting = halves(&records);
        while let Some(records) = waiting.pop() {
            part.clear();
            for record in records {
                let headers: Vec<_> = record.headers.iter().collect();
                part.push(record.timestamp, record.key, record.value, &headers)?;
            }
            done.take(records.len(), log.append(&mut part, options));
            match done.error.take() {
                Some(error) if records.len() > 1 && error.is_refusal() => {
                    waiting.extend(halves(records));
                }
                Some(error) => return Err(error),
                None => {}
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.batch.clear();
        self.since = None;
    }
}

impl AppendedRecords {
    /// Adds the append of the next `count` records. They are in the log too if only what followed their append failed.
    fn take(&mut self, count: usize, appended: Result<AppendInfo>) {
        let info = match &appended {
            Ok(info) => Some(*info),
            Err(error) => error.appended(),
        };
        if let Some(info) = info {
            self.records += count;
            self.info = Some(self.info.map_or(info, |before| before.and(info)));
        }
        self.error = appended.err();
    }
}

/// The second half, then the first.
fn halves<'r, 'a>(records: &'r [RecordView<'a>]) -> Vec<&'r [RecordView<'a>]> {
    let (first, second) = records.split_at(records.len() / 2);
    vec![second, first]
}
