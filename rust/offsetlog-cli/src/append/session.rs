//! Records on their way into the log: gathered for a batch, appended, counted.

use super::NewRecord;
use crate::args::{Append, Header};
use crate::failure::{Failure, with_advice_to_writers};
use offsetlog::format::counted;
use offsetlog::{AppendOptions, Clock, Error, ErrorKind, LogWriter, RecordAccumulator};
use std::io;
use std::time::{Duration, Instant};

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

/// A record that waits for its batch.
struct Entry {
    /// Number of its line.
    line: u64,
    /// Bytes of its key, value and headers.
    content: usize,
}

/// The appending of one input.
pub(super) struct Session<'s> {
    log: &'s LogWriter,
    /// Headers of every record.
    headers: &'s [Header],
    clock: Clock,
    options: AppendOptions,
    records: RecordAccumulator,
    /// One for each of the records.
    entries: Vec<Entry>,
    unit: &'static str,
    /// Number of the line that comes next.
    next_line: u64,
    pub(super) totals: Totals,
}

impl<'s> Session<'s> {
    pub(super) fn new(log: &'s LogWriter, args: &'s Append, unit: &'static str) -> Self {
        let linger = Duration::from_millis(args.linger);
        Self {
            log,
            headers: &args.headers,
            clock: log.options().clock.clone(),
            options: AppendOptions {
                leader_epoch: None,
                flush: args.flush,
            },
            records: RecordAccumulator::new(
                args.compression.into(),
                args.batch_bytes,
                Some(linger),
            ),
            entries: Vec::new(),
            unit,
            next_line: 1,
            totals: Totals::default(),
        }
    }

    pub(super) fn now(&self) -> i64 {
        (self.clock)()
    }

    /// How long the oldest record may still wait; `None` if none does.
    pub(super) fn time_left(&self) -> Option<Duration> {
        self.records.time_left(Instant::now())
    }

    /// Passes over a line that holds no record.
    pub(super) const fn pass(&mut self) {
        self.next_line += 1;
    }

    /// Adds the record of the next line to the batch; appends the batch before, if there is no room, or after, if it is full. Returns
    /// whether a batch was appended.
    pub(super) fn add(&mut self, timestamp: i64, record: &NewRecord<'_>) -> Result<bool, Failure> {
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            record
                .headers
                .iter()
                .map(|(name, value)| (name.as_ref(), value.as_deref()))
                .chain(self.headers.iter().map(|Header(name, value)| {
                    (name.as_bytes(), value.as_deref().map(str::as_bytes))
                }))
                .collect();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let content = headers
            .iter()
            .map(|(name, value)| name.len() + length(*value))
            .sum::<usize>()
            + length(key)
            + length(value);
        let mut appended = false;
        loop {
            match self
                .records
                .push(Instant::now, timestamp, key, value, &headers)
            {
                Ok(true) => break,
                Ok(false) => {
                    self.append()?;
                    appended = true;
                }
                Err(error) => {
                    self.append()?;
                    return Err(self.failed(error));
                }
            }
        }
        self.entries.push(Entry {
            line: self.next_line,
            content,
        });
        self.next_line += 1;
        if self.records.is_full() {
            self.append()?;
            appended = true;
        }
        Ok(appended)
    }

    /// Appends what waits. Where the log refuses a record, those before it are appended and the rest is dropped.
    pub(super) fn append(&mut self) -> Result<(), Failure> {
        let done = self.records.append_up_to_refused(self.log, &self.options);
        let (there, missing) = self
            .entries
            .split_at_checked(done.records)
            .unwrap_or((&self.entries, &[]));
        self.totals.appended += there.len() as u64;
        self.totals.bytes += there.iter().map(|entry| entry.content as u64).sum::<u64>();
        if let Some(info) = done.info {
            let first = self
                .totals
                .offsets
                .map_or(info.base_offset, |(first, _)| first);
            self.totals.offsets = Some((first, info.last_offset));
        }
        if let Some(entry) = missing.first() {
            self.next_line = entry.line;
        }
        self.entries.clear();
        match done.error {
            None => Ok(()),
            Some(error) => Err(self.failed(error)),
        }
    }

    /// The log did not take the next line.
    fn failed(&self, error: Error) -> Failure {
        if error.is_refusal() {
            // By itself, the record is the batch's number 0.
            let reason = error.to_string();
            self.refused(&reason.replacen("record 0 ", "the record ", 1))
        } else {
            self.stopped(error)
        }
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
        let at_risk = if error.is_appended() {
            ", the last ones perhaps not on the disk"
        } else {
            ""
        };
        Failure::Stopped(format!(
            "{}; {}{at_risk}, none from {} {} on",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use clap::Parser;
    use offsetlog::{OpenOptions, WriteOptions};
    use offsetlog_faults::fault::{Call, FaultDisk, Plan};
    use std::borrow::Cow;
    use std::sync::Arc;

    /// A user who learns that nothing of a line is in the log feeds it again.
    #[test]
    fn a_batch_whose_sync_failed_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FaultDisk::new(Arc::new(offsetlog::disk::RealDisk), Plan::none());
        let options = OpenOptions {
            disk: Arc::new(disk.clone()),
            ..OpenOptions::default()
        };
        let path = folder.path().join("orders-0");
        let log = LogWriter::open(&path, &options, &WriteOptions::default()).unwrap();
        let command = ["offsetlog", "append", "--flush", "orders-0"];
        let Verb::Append(args) = Cli::try_parse_from(command).unwrap().verb else {
            panic!("another command");
        };
        let mut session = Session::new(&log, &args, "line");
        let add = |session: &mut Session<'_>, value: &'static str| {
            let record = NewRecord {
                value: Some(Cow::Borrowed(value.as_bytes())),
                ..NewRecord::default()
            };
            session.add(1, &record).unwrap();
        };
        add(&mut session, "a");
        session.append().unwrap();
        disk.set(Plan {
            kinds: |call, _| call == Call::Sync,
            nth: 1,
            ..Plan::none()
        });
        add(&mut session, "b");
        add(&mut session, "c");
        let Err(Failure::Stopped(text)) = session.append() else {
            panic!("the sync did not fail");
        };
        let end = "3 records appended at offsets 0 to 2, the last ones perhaps not on the disk, none from line 4 on";
        assert!(text.ends_with(end), "{text}");
        assert_eq!(log.log_end_offset().unwrap(), 3);
    }
}
