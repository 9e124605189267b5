//! Records on their way into the log: gathered for a batch, appended, counted.

use super::NewRecord;
use crate::args::{Append, Header};
use crate::failure::{Failure, with_advice_to_writers};
use offsetlog::format::counted;
use offsetlog::{AppendOptions, BatchBuilder, Clock, Error, ErrorKind, LogWriter, Producer};
use std::io;
use std::ops::Range;
use std::time::Instant;

/// Bytes of a batch's header, and more than any record has beside its fields.
const BATCH_HEADER_BYTES: usize = 61;
const RECORD_OVERHEAD_BYTES: usize = 24;
const HEADER_OVERHEAD_BYTES: usize = 4;

/// What is in the log of the input.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) appended: u64,
    /// First and last offset.
    pub(super) offsets: Option<(i64, i64)>,
    /// Keys, values and headers.
    pub(super) bytes: u64,
}

impl Totals {
    pub(super) fn words(&self) -> String {
        let records = counted(self.appended, "record");
        match (self.appended, self.offsets) {
            (1, Some((base, _))) => format!("{records} appended at offset {base}"),
            (_, Some((base, last))) => format!("{records} appended at offsets {base} to {last}"),
            _ => "nothing appended".to_owned(),
        }
    }
}

/// Records that wait for their batch, one behind the other in one buffer.
#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    headers: Vec<(Range<usize>, Option<Range<usize>>)>,
    records: Vec<Entry>,
    /// Bytes of the batch that they will be, a few more at most.
    size: usize,
    since: Option<Instant>,
}

/// A record in [`Waiting`].
struct Entry {
    /// Number of its line.
    line: u64,
    timestamp: i64,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    headers: Range<usize>,
    /// Bytes of its key, value and headers.
    content: usize,
}

impl Waiting {
    fn clear(&mut self) {
        self.bytes.clear();
        self.headers.clear();
        self.records.clear();
        self.size = BATCH_HEADER_BYTES;
        self.since = None;
    }

    fn put(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn get(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    /// Adds one of the records to a batch.
    fn push(&self, entry: &Entry, batch: &mut BatchBuilder) -> Result<(), Error> {
        let headers = self.headers.get(entry.headers.clone()).unwrap_or_default();
        let headers: Vec<(&[u8], Option<&[u8]>)> = headers
            .iter()
            .map(|(name, value)| (self.get(name), value.as_ref().map(|value| self.get(value))))
            .collect();
        batch.push(
            entry.timestamp,
            entry.key.as_ref().map(|key| self.get(key)),
            entry.value.as_ref().map(|value| self.get(value)),
            &headers,
        )
    }
}

/// The appending of one input.
pub(super) struct Session<'s> {
    log: &'s LogWriter,
    /// Headers of every record.
    headers: &'s [Header],
    clock: Clock,
    options: AppendOptions,
    batch_bytes: usize,
    batch: BatchBuilder,
    waiting: Waiting,
    unit: &'static str,
    /// Number of the line that comes next.
    next_line: u64,
    pub(super) totals: Totals,
}

impl<'s> Session<'s> {
    pub(super) fn new(log: &'s LogWriter, args: &'s Append, unit: &'static str) -> Self {
        let mut waiting = Waiting::default();
        waiting.clear();
        Self {
            log,
            headers: &args.headers,
            clock: log.options().clock.clone(),
            options: AppendOptions {
                leader_epoch: None,
                flush: args.flush,
            },
            batch_bytes: args.batch_bytes,
            batch: BatchBuilder::new(args.compression.into(), Producer::default()),
            waiting,
            unit,
            next_line: 1,
            totals: Totals::default(),
        }
    }

    pub(super) fn now(&self) -> i64 {
        (self.clock)()
    }

    /// When the oldest record that waits came.
    pub(super) const fn oldest(&self) -> Option<Instant> {
        self.waiting.since
    }

    /// Passes over a line that holds no record.
    pub(super) const fn pass(&mut self) {
        self.next_line += 1;
    }

    /// Adds the record of the next line to the batch; what would not fit into it any more is appended before. Says whether a
    /// batch was appended.
    pub(super) fn add(&mut self, timestamp: i64, record: &NewRecord<'_>) -> Result<bool, Failure> {
        let content = self.content_of(record);
        let header_count = record.headers.len() + self.headers.len();
        let size = content + RECORD_OVERHEAD_BYTES + header_count * HEADER_OVERHEAD_BYTES;
        let mut appended = false;
        if !self.waiting.records.is_empty()
            && self.waiting.size.saturating_add(size) > self.batch_bytes
        {
            self.append()?;
            appended = true;
        }
        let waiting = &mut self.waiting;
        let first_header = waiting.headers.len();
        for (name, value) in &record.headers {
            let header = (
                waiting.put(name),
                value.as_ref().map(|value| waiting.put(value)),
            );
            waiting.headers.push(header);
        }
        for Header(name, value) in self.headers {
            let header = (
                waiting.put(name.as_bytes()),
                value.as_ref().map(|value| waiting.put(value.as_bytes())),
            );
            waiting.headers.push(header);
        }
        let entry = Entry {
            line: self.next_line,
            timestamp,
            key: record.key.as_ref().map(|key| waiting.put(key)),
            value: record.value.as_ref().map(|value| waiting.put(value)),
            headers: first_header..waiting.headers.len(),
            content,
        };
        waiting.records.push(entry);
        waiting.size = waiting.size.saturating_add(size);
        waiting.since.get_or_insert_with(Instant::now);
        self.next_line += 1;
        if self.waiting.size >= self.batch_bytes {
            self.append()?;
            appended = true;
        }
        Ok(appended)
    }

    /// Bytes of a record's key, value and headers, those that every record gets among them.
    fn content_of(&self, record: &NewRecord<'_>) -> usize {
        let length = |bytes: Option<usize>| bytes.unwrap_or_default();
        let own: usize = record
            .headers
            .iter()
            .map(|(name, value)| name.len() + length(value.as_ref().map(|value| value.len())))
            .sum();
        let given: usize = self
            .headers
            .iter()
            .map(|Header(name, value)| name.len() + length(value.as_ref().map(String::len)))
            .sum();
        length(record.key.as_ref().map(|key| key.len()))
            + length(record.value.as_ref().map(|value| value.len()))
            + own
            + given
    }

    /// Appends what waits. Where the log refuses a record, those before it are appended and the rest is dropped.
    pub(super) fn append(&mut self) -> Result<(), Failure> {
        let count = self.waiting.records.len();
        if count == 0 {
            return Ok(());
        }
        let appended = self.append_range(0..count);
        let failure = appended.err().map(|(slot, error)| {
            if let Some(entry) = self.waiting.records.get(slot) {
                self.next_line = entry.line;
            }
            if is_refusal(error.kind()) {
                // By itself, the record is the batch's number 0.
                let reason = error.to_string();
                self.refused(&reason.replacen("record 0 ", "the record ", 1))
            } else {
                self.stopped(error)
            }
        });
        self.waiting.clear();
        failure.map_or(Ok(()), Err)
    }

    /// Appends some of the waiting records as one batch; as two where the log refuses that, and so on down to the record that it
    /// refuses, whose place is given.
    fn append_range(&mut self, range: Range<usize>) -> Result<(), (usize, Error)> {
        let Err(error) = self.append_batch(&range) else {
            return Ok(());
        };
        if range.len() < 2 || !is_refusal(error.kind()) {
            return Err((range.start, error));
        }
        let middle = range.start + range.len() / 2;
        self.append_range(range.start..middle)?;
        self.append_range(middle..range.end)
    }

    fn append_batch(&mut self, range: &Range<usize>) -> Result<(), Error> {
        self.batch.clear();
        let entries = self.waiting.records.get(range.clone()).unwrap_or_default();
        for entry in entries {
            self.waiting.push(entry, &mut self.batch)?;
        }
        let info = self.log.append(&mut self.batch, &self.options)?;
        self.totals.appended += entries.len() as u64;
        self.totals.bytes += entries
            .iter()
            .map(|entry| entry.content as u64)
            .sum::<u64>();
        let base = self
            .totals
            .offsets
            .map_or(info.base_offset, |(base, _)| base);
        self.totals.offsets = Some((base, info.last_offset));
        Ok(())
    }

    /// The next line is refused.
    pub(super) fn refused(&self, reason: &str) -> Failure {
        let Self {
            unit, next_line, ..
        } = self;
        Failure::Refused(format!(
            "{unit} {next_line}: {reason}; before it {}",
            self.totals.words()
        ))
    }

    /// Nothing can be appended from the next line on.
    pub(super) fn stopped(&self, error: Error) -> Failure {
        if matches!(error.kind(), ErrorKind::Interrupted) {
            return Failure::Writing(error);
        }
        Failure::Stopped(format!(
            "{}; {}, none from {} {} on",
            with_advice_to_writers(&error),
            self.totals.words(),
            self.unit,
            self.next_line
        ))
    }

    pub(super) fn unreadable(&self, error: &io::Error) -> Failure {
        Failure::Stopped(format!(
            "cannot read standard input: {error}; before that {}",
            self.totals.words()
        ))
    }
}

/// Whether the log refused what it was given, and would take less of it or something else.
const fn is_refusal(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::RecordRejected { .. }
            | ErrorKind::InvalidTimestamp { .. }
            | ErrorKind::RecordTooLarge { .. }
            | ErrorKind::RecordBatchTooLarge { .. }
            | ErrorKind::AppendTooWide { .. }
    )
}
