//! `offsetlog append`: records from standard input, in batches, to one partition.
//!
//! A line that cannot be a record, or a record that the log refuses, ends the appending there: everything before it is in the
//! log, and nothing behind it.

mod feed;
mod lines;
mod objects;
mod session;

use crate::args::{Append, InputFormat, Stamp};
use crate::console::Console;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::json::{Encoding, document, unbase64, unhex, write_json};
use crate::progress::Progress;
use crate::table::human;
use crate::topics::unique;
use crate::{EXIT_FINE, EXIT_INTERRUPTED, recover, signals};
use feed::{Event, Feed};
use lines::{LineLayout, Lines};
use objects::ObjectLayout;
use offsetlog::format::counted;
use offsetlog::{Interrupt, LogConfig, LogWriter, OpenOptions, WriteOptions};
use serde::Serialize;
use session::Session;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

/// How long Ctrl-C may wait for an answer while no input comes.
const PATIENCE: Duration = Duration::from_millis(50);

type NewHeader<'l> = (Cow<'l, [u8]>, Option<Cow<'l, [u8]>>);

/// What a line says of a record.
#[derive(Debug, Default)]
struct NewRecord<'l> {
    /// `None` where the line says nothing.
    timestamp: Option<i64>,
    key: Option<Cow<'l, [u8]>>,
    value: Option<Cow<'l, [u8]>>,
    headers: Vec<NewHeader<'l>>,
}

/// Undoes what `cat` does to keys and values in a format; JSON is only looked at.
fn decoded(bytes: &[u8], format: Encoding) -> Result<Cow<'_, [u8]>, String> {
    Ok(match format {
        Encoding::Utf8 => Cow::Borrowed(bytes),
        Encoding::Base64 => Cow::Owned(unbase64(bytes)?),
        Encoding::Hex => Cow::Owned(unhex(bytes)?),
        Encoding::Json => {
            document(bytes)?;
            Cow::Borrowed(bytes)
        }
    })
}

/// How a line becomes a record.
enum Layout {
    Lines(LineLayout),
    Objects(ObjectLayout),
}

impl Layout {
    fn of(args: &Append) -> Result<Self, Failure> {
        if args.format == InputFormat::Json {
            let options = [
                ("-D", args.delimiter.is_some()),
                ("-K", args.key_separator.is_some()),
                ("-k", args.key.is_some()),
                ("--headers-separator", args.headers_separator.is_some()),
                ("--null-value", args.null_value.is_some()),
                ("-Z", args.null),
            ];
            if let Some((name, _)) = options.iter().find(|(_, given)| *given) {
                return Err(Failure::Usage(format!(
                    "{name} is for lines, and JSON objects say it themselves; leave it out"
                )));
            }
            return Ok(Self::Objects(ObjectLayout {
                key_format: args.key_format,
                value_format: args.value_format,
            }));
        }
        let separator = |given: &Option<crate::args::Delimiter>| {
            given.as_ref().map(|separator| separator.0.clone())
        };
        let null_value = args
            .null_value
            .as_ref()
            .map(|text| text.clone().into_bytes());
        Ok(Self::Lines(LineLayout {
            key_separator: separator(&args.key_separator),
            headers_separator: separator(&args.headers_separator),
            key: args.key.clone().map(String::into_bytes),
            null_value: null_value.or_else(|| args.null.then(Vec::new)),
            key_format: args.key_format,
            value_format: args.value_format,
        }))
    }

    /// The record of a line; `None` for a blank one among objects.
    fn record<'l>(&self, line: &'l [u8]) -> Result<Option<NewRecord<'l>>, String> {
        match self {
            Self::Lines(layout) => layout.record(line).map(Some),
            Self::Objects(layout) => layout.record(line),
        }
    }
}

/// What was appended, as a JSON line.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    topic: &'a str,
    partition: i32,
    appended: u64,
    base_offset: Option<i64>,
    last_offset: Option<i64>,
    bytes: u64,
}

pub(crate) fn run(args: &Append, console: &mut Console<'_>) -> Result<i32, Failure> {
    console.quiet = args.quiet;
    let layout = Layout::of(args)?;
    // The next file that is opened may get its number, and would be read.
    if console.terminal.stdin_is_closed {
        return Err(Failure::Usage(
            "standard input is closed, or a /dev/null that a program put in its place, so there is nothing to append; give it with '< FILE' \
             or a pipe ('< /dev/null' appends nothing)"
                .into(),
        ));
    }
    if console.terminal.owns_signals {
        signals::outlive_file_limits();
        if console.terminal.interrupt.is_none() {
            console.terminal.interrupt = signals::catch_interrupt();
        }
    }
    let interrupt = console.terminal.interrupt.clone();
    let log = open(args, console)?;
    let name = format!("{}-{}", log.topic(), log.partition());
    let size_before = size_of(&log)?;
    let unit = match args.delimiter {
        Some(_) => "record",
        None => "line",
    };
    let mut session = Session::new(&log, args, unit);
    let outcome = Work {
        args,
        layout: &layout,
        interrupt: interrupt.as_ref(),
        progress: Progress::counter(console),
        unit,
    }
    .run(&mut session, console);
    let totals = session.totals;
    let size = size_of(&log).map(|size| size.saturating_sub(size_before));
    let closed = log.close().map_err(|error| session.stopped(error));
    let summary = Summary {
        topic: log.topic(),
        partition: log.partition(),
        appended: totals.appended,
        base_offset: totals.offsets.map(|(base, _)| base),
        last_offset: totals.offsets.map(|(_, last)| last),
        bytes: size.unwrap_or_default(),
    };
    let mut printed = Ok(());
    if args.json {
        printed = write_json(&mut console.out, &summary)
            .and_then(|()| console.out.write_all(b"\n"))
            .map_err(Failure::Output);
    }
    let is_interrupted = outcome?;
    closed?;
    let interrupted = if is_interrupted { "interrupted: " } else { "" };
    let size = match totals.appended {
        0 => String::new(),
        _ => format!(", {}", counted(summary.bytes, "byte")),
    };
    console.note(&format!("{name}: {interrupted}{}{size}", totals.words()));
    printed?;
    Ok(if is_interrupted {
        EXIT_INTERRUPTED
    } else {
        EXIT_FINE
    })
}

fn size_of(log: &LogWriter) -> Result<u64, Failure> {
    let segments = log.segments().map_err(Failure::Writing)?;
    Ok(segments.iter().map(|segment| segment.size_bytes).sum())
}

/// Opens the partition, applies its settings, and reports what opening changed.
fn open(args: &Append, console: &mut Console<'_>) -> Result<LogWriter, Failure> {
    let settings = unique(&args.settings)?;
    let is_new = match std::fs::read_dir(&args.path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    let config = if is_new && !settings.is_empty() {
        let pairs = settings.iter().map(|(name, value)| (*name, *value));
        Some(LogConfig::parse(pairs).map_err(Failure::Writing)?)
    } else {
        None
    };
    let options = OpenOptions {
        interrupt: console.terminal.interrupt.clone(),
        ..OpenOptions::default()
    };
    let write = WriteOptions {
        config,
        topic_id: args.topic_id,
        metadata: args.metadata.clone(),
        single_replica: args.single_replica,
        ..WriteOptions::default()
    };
    let log = LogWriter::open(&args.path, &options, &write).map_err(Failure::Writing)?;
    tell(&log, console);
    let prepared = if is_new {
        Ok(())
    } else {
        change_settings(&log, &settings)
    };
    if let Err(failure) = prepared {
        // It is as it was: a clean end is nobody's loss, and the failure is what matters.
        let _ = log.close();
        return Err(failure);
    }
    Ok(log)
}

/// The stored settings and the given ones, which win: looked at together, since some depend on others.
fn change_settings(log: &LogWriter, settings: &BTreeMap<&str, &str>) -> Result<(), Failure> {
    if settings.is_empty() {
        return Ok(());
    }
    let stored = log.config();
    let mut pairs: BTreeMap<&str, &str> = stored.given().collect();
    pairs.extend(settings);
    let config = LogConfig::parse(pairs).map_err(Failure::Writing)?;
    if config == stored {
        return Ok(());
    }
    log.set_config(&config).map_err(Failure::Writing)
}

/// What is odd about the log, and what opening it mended.
fn tell(log: &LogWriter, console: &mut Console<'_>) {
    let name = format!("{}-{}", log.topic(), log.partition());
    for warning in log.warnings() {
        console.warn(&format!("{name}: {warning}"));
    }
    let report = log.recovery_report();
    for cut in &report.cut {
        let words = recover::words_of_cut(cut, log.path());
        console.warn(&format!("{name}: the last writer was stopped; {words}"));
    }
    let (rebuilt, tidied) = (report.rebuilt.len(), report.tidied.len());
    if rebuilt + tidied > 0 {
        console.warn(&format!(
            "{name}: the last writer was stopped; files rebuilt: {rebuilt}, leftovers tidied: {tidied}"
        ));
    }
}

/// From input to appends.
struct Work<'w> {
    args: &'w Append,
    layout: &'w Layout,
    interrupt: Option<&'w Interrupt>,
    progress: Progress,
    unit: &'static str,
}

impl Work<'_> {
    /// Appends until the input ends; says whether it was interrupted before.
    fn run(self, session: &mut Session<'_>, console: &mut Console<'_>) -> Result<bool, Failure> {
        let Some(input) = console.terminal.stdin.as_ref().map(|open| open()) else {
            return Ok(false);
        };
        if console.terminal.stdin_is_terminal {
            console.note("reading records from the terminal, one a line; Ctrl-D ends the input");
        }
        let delimiter = self.args.delimiter.as_ref();
        let mut lines = Lines::new(delimiter.map_or(b"\n".as_slice(), |delimiter| &delimiter.0));
        let feed = Feed::start(input).map_err(|error| session.unreadable(&error))?;
        loop {
            if self.is_interrupted() {
                session.append()?;
                return Ok(true);
            }
            let patience = match session.time_left() {
                Some(Duration::ZERO) => {
                    session.append()?;
                    self.show(session);
                    PATIENCE
                }
                Some(left) => PATIENCE.min(left),
                None => PATIENCE,
            };
            match feed.wait(patience) {
                Event::Quiet => {}
                Event::Bytes(bytes) => {
                    lines.push(&bytes);
                    while let Some(line) = lines.next() {
                        if self.take(line, session)? && self.is_interrupted() {
                            session.append()?;
                            return Ok(true);
                        }
                    }
                    if lines.is_too_long() {
                        return Err(session.refused("longer than 1 GiB"));
                    }
                }
                Event::End => {
                    if let Some(line) = lines.last() {
                        self.take(line, session)?;
                    }
                    session.append()?;
                    return Ok(false);
                }
                Event::Failed(error) => {
                    session.append()?;
                    return Err(session.unreadable(&error));
                }
            }
        }
    }

    /// Takes a line for the next batch; says whether a batch was appended for it.
    fn take(&self, line: &[u8], session: &mut Session<'_>) -> Result<bool, Failure> {
        let record = match self.layout.record(line) {
            Ok(Some(record)) => record,
            Ok(None) => {
                session.pass();
                return Ok(false);
            }
            Err(reason) => {
                session.append()?;
                return Err(session.refused(&reason));
            }
        };
        let timestamp = match (self.args.timestamp, record.timestamp) {
            (Some(Stamp::At(timestamp)), _) | (None, Some(timestamp)) => timestamp,
            _ => session.now(),
        };
        let appended = session.add(timestamp, &record)?;
        if appended {
            self.show(session);
        }
        Ok(appended)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_some_and(|interrupt| interrupt())
    }

    fn show(&self, session: &Session<'_>) {
        if self.progress.is_shown() {
            let totals = &session.totals;
            let text = format!(
                "{} {}s, {}",
                totals.appended,
                if self.unit == "line" {
                    "record"
                } else {
                    self.unit
                },
                human(totals.bytes)
            );
            self.progress.set(totals.appended, &escaped(&text));
        }
    }
}
